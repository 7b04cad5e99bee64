"""Ops on strings: splitting, hashing, patterns, encodings, characters.

The cases of the records cannot express these.
"""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import DataLossError, InvalidArgumentError, ShapeError, UnimplementedError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import Case, op_registry
from headrace.ops.strings.elements import texts
from headrace.ops.strings.fingerprints import each, farm
from tests.ops.cases import open_op, run_kernel

pytestmark = pytest.mark.one_engine


def run(type: str, *inputs: Any, **attrs: Any) -> Any:
    """The outputs of a kernel on arrays of unknown static shape.

    A single output is returned as it is, several as a tuple.
    """
    op = open_op(op_registry.get(type), Case(inputs, attrs), lambda x: None)
    found = run_kernel(op, [x for given in inputs for x in (given if isinstance(given, list) else [given])])
    return found[0] if len(found) == 1 else found


def text(value: bytes) -> np.ndarray:
    return np.array(value, object)


def of(type: str, *values: bytes, **attrs: Any) -> list[Any]:
    """The list of what an op of one vector makes of these."""
    out: list[Any] = run(type, texts(*values), **attrs).tolist()
    return out


# *** Splitting ***


@pytest.mark.parametrize(
    ("value", "sep", "limit", "parts"),
    [
        (b" a b c", b"", 0, [b" a b c"]),
        (b"a b c", b"", 3, [b"a", b"b", b"c", b""]),
        (b"  a", b"", 1, [b"a", b""]),
        (b" ", b"", 1, []),
        (b"a b", b"", -5, [b"a", b"b"]),
        (b"a\xa0b\x0cc", b"", -1, [b"a\xa0b", b"c"]),
        (b"", b",", -1, [b""]),
        (b"a,b,c", b",", 1, [b"a", b"b,c"]),
    ],
)
def test_splits_at_separators(value: bytes, sep: bytes, limit: int, parts: list[bytes]) -> None:
    indices, values, shape = run("StringSplitV2", texts(value), text(sep), maxsplit=limit)
    assert values.tolist() == parts
    assert indices.tolist() == [[0, i] for i in range(len(parts))]
    assert shape.tolist() == [1, len(parts)]


def test_short_rows_of_ngrams() -> None:
    attrs = {"separator": "|", "left_pad": "L", "right_pad": "R", "pad_width": 1}
    grams, splits = run(
        "StringNGrams",
        texts(b"a", b"b"),
        np.array([0, 1, 1, 2]),
        **attrs,
        ngram_widths=(5,),
        preserve_short_sequences=True,
    )
    assert (grams.tolist(), splits.tolist()) == ([b"L|a|R", b"L|b|R"], [0, 1, 1, 2])
    empty = run("StringNGrams", texts(), np.array([], np.int64), **attrs, ngram_widths=(2,),
                preserve_short_sequences=False)  # fmt: skip
    assert [x.tolist() for x in empty] == [[], []]


# *** Hashing ***


def test_fingerprints_of_many_lengths_are_those_of_each() -> None:
    words = texts(*(bytes(range(n)) for n in range(200)))
    assert each(farm, words).tolist() == [int(each(farm, words[i : i + 1])[0]) for i in range(200)]
    assert len(set(each(farm, words).tolist())) == 200


def test_keys_may_be_negative() -> None:
    assert of("StringToHashBucketStrong", b"a", num_buckets=1000, key=(-1, -2)) == [887]


# *** Patterns ***


@pytest.mark.parametrize(
    ("pattern", "rewrite", "value", "everywhere", "first"),
    [
        (b"a", b"p\\x", b"xaa", b"xpp", b"xaa"),  # an invalid rewrite ends where it is
        (b"a", b"\\", b"aa", b"", b"aa"),
        (b"(a)", b"\\2", b"aa", b"aa", b"aa"),
        (b"a*", b"x", b"baac", b"xbxcx", b"xbaac"),
        (b"", b"-", b"\xc3\xa9\xff\xe3\x81\x82", b"-\xc3\xa9-\xff-\xe3\x81\x82-", b"-\xc3\xa9\xff\xe3\x81\x82"),
        (b"\\C", b"-", b"\xff\xfe", b"--", b"-\xfe"),
        (b"^a", b"x", b"aa", b"xa", b"xa"),
    ],
)  # fmt: skip
def test_replacing(pattern: bytes, rewrite: bytes, value: bytes, everywhere: bytes, first: bytes) -> None:
    for flag, want in ((True, everywhere), (False, first)):
        got = run("RegexReplace", texts(value), text(pattern), text(rewrite), replace_global=flag)
        assert got.tolist() == [want]


def test_no_pattern_takes_long() -> None:
    start = time.monotonic()
    assert of("StaticRegexFullMatch", b"a" * 20000 + b"b", pattern="(a*)*(a|aa)+$") == [False]
    assert of("StaticRegexReplace", b"\xff" * 20000, pattern="", rewrite="") == [b"\xff" * 20000]
    assert time.monotonic() - start < 10


# *** Encodings ***


def test_compressed_strings_that_are_cut_or_followed() -> None:
    data = zlib.compress(b"hello" * 3)
    assert of("DecodeCompressed", data[:-6], data + b"zz", compression_type="ZLIB") == [b"helloh", b"hello" * 3]
    import gzip

    assert of("DecodeCompressed", gzip.compress(b"a") + gzip.compress(b"b"), compression_type="GZIP") == [b"ab"]


def test_a_parsed_tensor_may_be_one_element_many_times() -> None:
    three_sevens = b"\x08\x03\x12\x04\x12\x02\x08\x03\x3a\x01\x07"
    got = run("ParseTensor", text(three_sevens), out_type=dtypes.int32)
    assert got.tolist() == [7, 7, 7]


def test_quantized_tensors_keep_their_dtype() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.qint8, shape=(2,))
    op = b.SerializeTensor(x).op
    (written,) = run_kernel(op, [np.array([1, -2], np.int8)])
    assert written.item().startswith(b"\x08\x0b")
    assert run("ParseTensor", written, out_type=dtypes.qint8).tolist() == [1, -2]
    with pytest.raises(InvalidArgumentError, match=r"parsed tensor \(qint8\) and dtype \(int8\)"):
        run("ParseTensor", written, out_type=dtypes.int8)


# *** Characters ***


@pytest.mark.parametrize(
    ("encoding", "data", "points", "starts"),
    [
        ("UTF-8", b"\xe3\x81a", [0xFFFD, 97], [0, 2]),
        ("UTF-8", b"\xed\xa0\x80", [0xFFFD] * 3, [0, 1, 2]),
        ("UTF-8", b"\xef\xbb\xbfa", [0xFEFF, 97], [0, 3]),
        ("UTF-16-BE", b"\xd8\x00\x00a\x00", [0xFFFD, 97, 0xFFFD], [0, 2, 4]),
        ("UTF-16", b"\x00a", [97], [0]),
        ("UTF-16", b"\xff\xfea\x00b\x00", [97, 98], [0, 4]),
        ("UTF-32-BE", b"\x00\x11\x00\x00\x00\x00\x00a", [0xFFFD, 97], [0, 4]),
        ("US-ASCII", b"a\xffb", [97, 0xFFFD, 98], [0, 1, 2]),
        ("koi8-r", b"\xc3\xa9", [1094, 9560], [0, 1]),
    ],
)
def test_decoding(encoding: str, data: bytes, points: list[int], starts: list[int]) -> None:
    splits, found, at = run("UnicodeDecodeWithOffsets", texts(data), input_encoding=encoding)
    assert (splits.tolist(), found.tolist(), at.tolist()) == ([0, len(points)], points, starts)


def test_control_characters() -> None:
    attrs = {"input_encoding": "UTF-8", "replace_control_characters": True}
    for errors, want in (("replace", [97, 0xFFFD, 127]), ("ignore", [97, 127]), ("strict", [97, 0xFFFD, 127])):
        assert run("UnicodeDecode", texts(b"a\n\x7f"), **attrs, errors=errors)[1].tolist() == want
    with pytest.raises(InvalidArgumentError, match="Invalid formatting"):
        of("UnicodeTranscode", b"a\n", **attrs, output_encoding="UTF-8", errors="strict")


def test_long_damaged_strings_are_decoded_at_once() -> None:
    start = time.monotonic()
    attrs = {"input_encoding": "UTF-8", "output_encoding": "UTF-8", "errors": "ignore"}
    assert of("UnicodeTranscode", b"\xff" * 10**5, **attrs) == [b""]
    assert time.monotonic() - start < 10


# *** Errors ***

NGRAMS = {"separator": "", "left_pad": "", "right_pad": "", "pad_width": 0, "preserve_short_sequences": False}
DECODE = {"input_encoding": "UTF-8"}
OUT = {"output_encoding": "UTF-8"}
ONE = texts(b"a")
I64 = lambda *values: np.array(values, np.int64)
INVALID: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("StringSplit", (text(b"a"), text(b"")), {}, "input must be a vector"),
    ("StringSplit", (ONE, ONE), {}, "delimiter must be a scalar"),
    ("StringSplitV2", (ONE, ONE), {}, "sep must be a scalar"),
    ("StringNGrams", (ONE, I64(0, 2)), {**NGRAMS, "ngram_widths": (1,)}, r"Invalid split value 2, must be in \[0, 1\]"),
    ("StringNGrams", (ONE, I64(0, 0)), {**NGRAMS, "ngram_widths": (1,)}, "Expected 1, got 0"),
    ("StringNGrams", (ONE, I64(1, 1)), {**NGRAMS, "ngram_widths": (1,)}, "First split value must be 0, got 1"),
    ("StringNGrams", (ONE, I64(0, 1)), {**NGRAMS, "ngram_widths": (0,)}, "positive values"),
    (
        "StringNGrams",
        (ONE, I64(0, 1)),
        {**NGRAMS, "ngram_widths": (), "pad_width": -1, "preserve_short_sequences": True},
        "Pad width should be >= 0",
    ),
    ("UnsortedSegmentJoin", (ONE, I64(-1), I64(2)[0, ...]), {}, "not allowed to exceed"),
    ("UnsortedSegmentJoin", (ONE, I64(2), I64(2)[0, ...]), {}, "not allowed to exceed"),
    ("UnsortedSegmentJoin", (ONE, I64(0, 1), I64(2)[0, ...]), {}, "Segment dimension"),
    ("UnsortedSegmentJoin", (ONE, I64(0), I64(-2)[0, ...]), {}, "non-negative but got -2"),
    ("UnsortedSegmentJoin", (ONE, I64(0), I64(2)), {}, "must be a scalar"),
    ("UnsortedSegmentJoin", (ONE, I64(0)[0, ...], I64(2)[0, ...]), {}, "cannot have rank 0"),
    ("StringToHashBucketStrong", (ONE,), {"num_buckets": 2, "key": (1,)}, "Key must have 2 elements"),
    ("Fingerprint", (text(b"a"), text(b"farmhash64")), {}, "at least one dimension"),
    ("Fingerprint", (ONE, text(b"md5")), {}, "Unsupported fingerprint method: b'md5'"),
    ("Fingerprint", (ONE, texts(b"farmhash64")), {}, "should be a scalar string"),
    ("RegexReplace", (ONE, text(b"("), text(b"")), {}, r"Invalid pattern: \(, error: missing \)"),
    ("RegexReplace", (ONE, ONE, text(b"")), {}, "Pattern must be scalar, but received"),
    ("RegexReplace", (ONE, text(b"a"), ONE), {}, "Rewrite must be scalar, but received"),
    ("RegexFullMatch", (ONE, text(b"(?=a)")), {}, "Invalid pattern"),
    ("StaticRegexFullMatch", (ONE,), {"pattern": "((a{100}){100}){100}"}, "invalid repetition size|bad repetition"),
    ("DecodeBase64", (texts(b"YQ="),), {}, "Invalid character found in base64"),
    ("DecodeBase64", (texts(b"YW Jj"),), {}, "1 modulo 4"),
    ("DecodeBase64", (texts(b"++//"),), {}, "Invalid character found in base64"),
    ("DecodeRaw", (texts(b"abc"),), {"out_type": dtypes.int16}, "length 3 that is not a multiple of 2"),
    ("DecodeRaw", (texts(b"ab", b"a"),), {"out_type": dtypes.uint8}, "element 1 has size 1 != 2"),
    ("DecodePaddedRaw", (ONE, np.array(3, np.int32)), {"out_type": dtypes.int16}, r"fixed_length \(3\) must be a mult"),
    ("DecodePaddedRaw", (ONE, np.array(0, np.int32)), {"out_type": dtypes.int16}, "greater than zero"),
    ("DecodePaddedRaw", (ONE, np.array([2], np.int32)), {"out_type": dtypes.int16}, "must be scalar"),
    ("DecodeCompressed", (ONE,), {"compression_type": "RAW"}, "Only ZLIB, GZIP or NONE"),
    ("ParseTensor", (text(b"\xff"),), {"out_type": dtypes.int32}, "Cannot parse tensor from proto"),
    ("ParseTensor", (text(b""),), {"out_type": dtypes.int32}, "Cannot parse tensor from proto"),
    ("ParseTensor", (ONE,), {"out_type": dtypes.int32}, "Expected `serialized` to be a scalar"),
    ("UnicodeDecode", (ONE,), {"input_encoding": "nonsense"}, "Could not create converter for input encoding: nons"),
    ("UnicodeDecode", (ONE,), {"input_encoding": "punycode"}, "Could not create converter"),
    ("UnicodeDecode", (ONE,), {"input_encoding": "rot13"}, "Could not create converter"),
    ("UnicodeDecode", (ONE,), {**DECODE, "replacement_char": -1}, "out of unicode codepoint range"),
    ("UnicodeDecode", (texts(b"\xff"),), {**DECODE, "errors": "strict"}, "Invalid formatting on input string"),
    ("UnicodeEncode", (np.array([97], np.int32), I64(0, 2)), OUT, "Last value in input_splits"),
    ("UnicodeEncode", (np.array([97], np.int32), I64(1, 1)), OUT, "First value in input_splits"),
    ("UnicodeEncode", (np.array([97], np.int32), I64(0, 1, 0, 1)), OUT, "ascending order"),
    ("UnicodeEncode", (np.array([97], np.int32), I64()), OUT, "should contain elements"),
    ("UnicodeEncode", (np.array([-1], np.int32), I64(0, 1)), {**OUT, "errors": "strict"}, "out of range for Unicode"),
]  # fmt: skip


@pytest.mark.parametrize(("type", "inputs", "attrs", "match"), INVALID, ids=[f"{e[0]}-{e[3]}" for e in INVALID])
def test_invalid_arguments(type: str, inputs: Any, attrs: dict[str, Any], match: str) -> None:
    with pytest.raises((InvalidArgumentError, ValueError), match=match):
        run(type, *inputs, **attrs)


def test_other_errors() -> None:
    for kind in ("ZLIB", "GZIP"):
        with pytest.raises(DataLossError, match="inflate"):
            of("DecodeCompressed", b"hello", compression_type=kind)
    with pytest.raises(UnimplementedError, match="ZSTD"):
        of("DecodeCompressed", b"", compression_type="ZSTD")


def test_what_cannot_be_is_refused_when_built() -> None:
    b = Builder(Graph())
    matrix = b.Placeholder(dtype=dtypes.string, shape=(2, 2))
    for type, inputs, attrs in (
        ("StringSplit", [matrix, ""], {}),
        ("StringSplitV2", [matrix, ""], {}),
        ("RegexReplace", [matrix, matrix, ""], {}),
        ("ParseTensor", [matrix], {"out_type": dtypes.int32}),
        ("DecodePaddedRaw", [matrix, 3], {"out_type": dtypes.int16}),
    ):
        with pytest.raises(ShapeError):
            b.make(type, inputs, attrs)
    assert b.DecodePaddedRaw(matrix, 6, out_type=dtypes.int16).shape == (2, 2, 3)
    assert b.UnicodeDecode(matrix, **DECODE)[0].shape == (5,)
    assert b.Fingerprint(matrix, "farmhash64").shape == (2, 8)
