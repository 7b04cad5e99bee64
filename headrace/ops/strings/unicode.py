"""Characters of strings: UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeEncode, UnicodeTranscode, UnicodeScript.

Source: TensorFlow's ops of the same names. The encodings are those of Python. In invalid text, each longest part that
could begin a character counts as one character, as the Unicode standard recommends.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.dtypes import INDEX, DType, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    flops_per_element,
    flops_per_input,
    op,
    string_attr,
    type_attr,
)
from headrace.opkit.shape_rules import same_as
from headrace.ops.strings.elements import each, texts
from headrace.ops.strings.scripts import script_of
from headrace.shapes import Shape, show, with_rank

_COST = Facts(cost=flops_per_element(1000))

# *** Decoding ***

_MARK = 0xDC00  # + the number of bytes of what could not be decoded: no code point that any encoding gives
_PIECE = 1024  # bytes
_ERRORS = "headrace.ops.strings.unicode"
# What Python calls encodings and ICU does not.
_OTHERS = {"idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-8-sig"}


def _marked(e: UnicodeError) -> tuple[str, int]:
    if not isinstance(e, UnicodeDecodeError):
        raise e
    return chr(_MARK + min(e.end - e.start, 0x3FF)), e.end


codecs.register_error(_ERRORS, _marked)


class _Decoded(NamedTuple):
    """The characters of a string.

    Attributes:
      points: their code points; anything where `bad`.
      starts: the bytes where they begin.
      bad: a mask of the invalid ones.
    """

    points: np.ndarray
    starts: np.ndarray
    bad: np.ndarray


def _points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<i4").astype(np.int32, copy=False)


def _utf_8(points: np.ndarray) -> np.ndarray:
    return 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)


def _utf_16(points: np.ndarray) -> np.ndarray:
    return 2 + 2 * (points >= 0x10000)


def _utf_32(points: np.ndarray) -> np.ndarray:
    return np.full(len(points), 4)


_SIZES = {"utf-8": _utf_8, **dict.fromkeys(("utf-16-be", "utf-16-le"), _utf_16)}
_SIZES |= dict.fromkeys(("utf-32-be", "utf-32-le"), _utf_32)
_BYTE_ORDER_MARKS = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"), (b"", "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (b"", "utf-32-be")),
}


def _decoder(encoding: str) -> Callable[[bytes], _Decoded]:
    try:
        name = codecs.lookup(encoding).name
        b"a".decode(encoding, "ignore")  # not every codec is one of text
        steps = codecs.getincrementaldecoder(encoding)
    except (LookupError, ValueError):
        name = ""
    if not name or name in _OTHERS:
        raise InvalidArgumentError(f"Could not create converter for input encoding: {encoding}")

    def of_known_size(data: bytes, name: str, skipped: int = 0) -> _Decoded:
        # In pieces, for what Python does about an error takes time in proportion to all that it is given.
        decoder = codecs.getincrementaldecoder(name)(_ERRORS)
        pieces = [decoder.decode(data[i : i + _PIECE]) for i in range(skipped, len(data), _PIECE)]
        points = _points("".join([*pieces, decoder.decode(b"", True)]))
        bad = points & ~0x3FF == _MARK
        ends = np.cumsum(np.where(bad, points - _MARK, _SIZES[name](points))) + skipped
        return _Decoded(points, np.concatenate(([0], ends[:-1]))[: len(points)], bad)

    def by_steps(data: bytes) -> _Decoded:
        """Byte by byte, to see where characters begin."""
        decoder, texts, starts, begin = steps(_ERRORS), [], [], 0
        for i in range(len(data)):
            text = decoder.decode(data[i : i + 1], i + 1 == len(data))
            if text:
                texts.append(text)
                starts += [begin, *[i] * (len(text) - 1)]
                begin = i + 1
        points = _points("".join(texts))
        return _Decoded(points, np.array(starts, np.int64), points & ~0x3FF == _MARK)

    if name in _BYTE_ORDER_MARKS:

        def by_mark(data: bytes) -> _Decoded:
            mark, found = next(m for m in _BYTE_ORDER_MARKS[name] if data.startswith(m[0]))
            return of_known_size(data, found, len(mark))

        return by_mark
    return (lambda data: of_known_size(data, name)) if name in _SIZES else by_steps


def _replacement(attrs: Mapping[str, Any]) -> int:
    point: int = attrs["replacement_char"]
    if not 0 <= point <= 0x10FFFF:
        raise InvalidArgumentError(f"replacement_char out of unicode codepoint range: {point}")
    return point


def _reader(attrs: Mapping[str, Any], strict_controls: bool) -> Callable[[bytes], _Decoded]:
    """Function that decodes a string and treats invalid characters as `errors` asks.

    Args:
      strict_controls: whether a control character that is to be replaced is an error, if errors are.
    """
    decode, replacement, errors = _decoder(attrs["input_encoding"]), _replacement(attrs), attrs["errors"]

    def read(data: bytes) -> _Decoded:
        points, starts, bad = decode(data)
        controls = points < 0x20 if attrs["replace_control_characters"] else np.zeros(len(points), np.bool_)
        if errors == "strict" and (bad.any() or (strict_controls and controls.any())):
            raise InvalidArgumentError(f"Invalid formatting on input string {data[:100]!r}")
        bad = bad | controls
        if errors == "ignore":
            return _Decoded(points[~bad], starts[~bad], bad[~bad])
        return _Decoded(np.where(bad, np.int32(replacement), points), starts, bad)

    return read


def _decode_kernel(offsets: bool) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Any:
        read, splits = _reader(attrs, strict_controls=False), attrs["Tsplits"].numpy

        def kernel(x: Any) -> Any:
            rows = [read(text) for text in x.ravel()]
            ends = np.cumsum([0, *(len(row.points) for row in rows)], dtype=splits)
            points = np.concatenate([np.empty(0, np.int32), *(row.points for row in rows)])
            if not offsets:
                return ends, points
            return ends, points, np.concatenate([np.empty(0, np.int64), *(row.starts for row in rows)])

        return kernel

    return factory


def _decode_shape(c: Inference) -> Sequence[Shape]:
    shape = c.shapes[0]
    n = None if shape is None or None in shape else int(np.prod(shape, dtype=np.int64)) + 1  # type: ignore[arg-type]
    return [(n,), *[(None,)] * (len(c.op.outputs) - 1)]


# *** Encoding ***


def _written(points: np.ndarray, encoding: str) -> bytes:
    surrogate = points & ~0x7FF == 0xD800  # only if it is what replaces others
    clean = np.where(surrogate, 0xFFFD, points)
    out = clean.astype("<i4").tobytes().decode("utf-32-le").encode(encoding)
    return out


def _encode_kernel(attrs: Mapping[str, Any]) -> Any:
    replacement, errors, encoding = _replacement(attrs), attrs["errors"], attrs["output_encoding"]

    def kernel(points: Any, splits: Any) -> Any:
        if points.ndim != 1 or splits.ndim != 1:
            raise InvalidArgumentError(
                f"input_values and input_splits must be vectors, got {show(points.shape)} and {show(splits.shape)}"
            )
        if not len(splits):
            raise InvalidArgumentError("Input_splits should contain elements, but given input_values has 0 elements")
        if splits[0] != 0:
            raise InvalidArgumentError(f"First value in input_splits must be zero, got {splits[0]}.")
        if (splits[1:] < splits[:-1]).any():
            raise InvalidArgumentError("Values in input_splits must be equal or in ascending order.")
        if splits[-1] != len(points):
            raise InvalidArgumentError(
                f"Last value in input_splits must be equal to length of input_tensor: {splits[-1]} and {len(points)}."
            )
        bad = (points < 0) | (points > 0x10FFFF) | (points & ~0x7FF == 0xD800)
        if errors == "strict" and bad.any():
            raise InvalidArgumentError(
                f"Code point is out of range for Unicode, or is a surrogate: {points[np.argmax(bad)]}."
            )
        clean = np.where(bad, np.int32(replacement), points)
        out = np.empty(len(splits) - 1, object)
        for i, (a, b) in enumerate(zip(splits[:-1].tolist(), splits[1:].tolist(), strict=True)):
            out[i] = _written(clean[a:b][~bad[a:b]] if errors == "ignore" else clean[a:b], encoding)
        return out

    return kernel


def _encode_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 1)
    splits = with_rank(c.shapes[1], 1)
    n = None if splits is None else splits[0]
    if n == 0:
        raise ValueError("input_splits should contain elements")
    return [(None if n is None else n - 1,)]


def _transcode_kernel(attrs: Mapping[str, Any]) -> Any:
    read, encoding = _reader(attrs, strict_controls=True), attrs["output_encoding"]
    return lambda x: each(lambda text: _written(read(text).points, encoding), x)


def _script_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any) -> Any:
        points, places = np.unique(x, return_inverse=True)
        scripts = np.fromiter(map(script_of, points.tolist()), np.int32, points.size)
        return scripts[places].reshape(x.shape)

    return kernel


# *** Records ***


_ON_ERRORS = {"errors": string_attr("replace", {"ignore", "replace", "strict"})}
_REPLACING = {"replacement_char": 0xFFFD}
_CONTROLS = {"replace_control_characters": False}
_IN = {"input_encoding": string_attr()}
_OUT = {"output_encoding": string_attr(allowed={"UTF-8", "UTF-16-BE", "UTF-32-BE"})}
_SPLITS = {"Tsplits": type_attr(INDEX, int64)}
_DIFFERS = "Encodings are those of Python, which differ from ICU's in some unassigned bytes of old code pages."
_LINES = texts(b"a\xffb\n", b"", b"\xc3\xa9\xe3\x81", b"\xf0\x9f\x98\x80x")


def _decodings(offsets: bool) -> Any:
    def one(x: np.ndarray, t: DType, ends: list[int], points: list[int], starts: list[int], **attrs: Any) -> Any:
        want = (np.array(ends, t.numpy), np.array(points, np.int32), np.array(starts, np.int64))
        return case(x, want=want if offsets else want[:2], **{"input_encoding": "UTF-8", "Tsplits": t} | attrs)

    def sample(rng: np.random.Generator, t: DType) -> list[Any]:
        bad = 0xFFFD
        return [
            one(_LINES, t, [0, 4, 4, 6, 8], [97, bad, 98, 10, 233, bad, 128512, 120], [0, 1, 2, 3, 0, 2, 0, 4]),
            one(
                _LINES[:3],
                t,
                [0, 2, 2, 3],
                [97, 98, 233],
                [0, 2, 0],
                errors="ignore",
                replace_control_characters=True,
            ),
            one(
                texts(b"\xd8=\xde\x00\x00", b"\x00a").reshape(1, 2),
                t,
                [0, 2, 3],
                [128512, 46, 97],
                [0, 4, 0],
                input_encoding="UTF-16-BE",
                replacement_char=46,
            ),
            one(texts(b"\xff\xfea\x00b\x00"), t, [0, 2], [97, 98], [0, 4], input_encoding="UTF-16"),
            one(texts(b"\x82\xa0\xa1a"), t, [0, 3], [0x3042, 0xFF61, 97], [0, 2, 3], input_encoding="shift-jis"),
            one(np.array(b"\xe9", object), t, [0, 1], [233], [0], input_encoding="latin1"),
        ]

    return sample


for _name, _starts, _offsets, _doc in (
    ("", "", False, "The code points of each string, as a ragged matrix."),
    (
        "WithOffsets",
        ", char_to_byte_starts: int64",
        True,
        "The code points of each string, as a ragged matrix, and the byte where each begins.",
    ),
):
    op(
        f"UnicodeDecode{_name}",
        "input: string",
        f"row_splits: Tsplits, char_values: int32{_starts}",
        _IN | _ON_ERRORS | _REPLACING | _CONTROLS | _SPLITS,
        shape=_decode_shape,
        kernel=_decode_kernel(_offsets),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(dynamic_shape=True, cost=flops_per_input(1000)),
        sample=_decodings(_offsets),
        doc=_doc,
        differs=_DIFFERS,
    )


def _encodings(rng: np.random.Generator, dtype: DType) -> list[Any]:
    points = np.array([97, 0xE9, 0xD800, 0x1F600], np.int32)
    splits = np.array([0, 2, 2, 4], dtype.numpy)
    return [
        case(points, splits, want=texts(b"a\xc3\xa9", b"", b"\xef\xbf\xbd\xf0\x9f\x98\x80"), output_encoding="UTF-8"),
        case(
            points,
            splits,
            want=texts(b"\x00a\x00\xe9", b"", b"\xd8=\xde\x00"),
            output_encoding="UTF-16-BE",
            errors="ignore",
        ),
        case(
            points[2:3],
            np.array([0, 1], dtype.numpy),
            want=texts(b"\x00\x00\x00."),
            output_encoding="UTF-32-BE",
            replacement_char=46,
        ),
    ]


op(
    "UnicodeEncode",
    "input_values: int32, input_splits: Tsplits",
    "output: string",
    _ON_ERRORS | _OUT | _REPLACING | _SPLITS,
    shape=_encode_shape,
    kernel=_encode_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(100)),
    sample=_encodings,
    doc="The strings of rows of code points.",
)
op(
    "UnicodeTranscode",
    "input: string",
    "output: string",
    _IN | _OUT | _ON_ERRORS | _REPLACING | _CONTROLS,
    shape=same_as(0),
    kernel=_transcode_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, dtype: [
        case(
            _LINES[:3],
            input_encoding="utf8",
            output_encoding="UTF-16-BE",
            want=texts(b"\x00a\xff\xfd\x00b\x00\n", b"", b"\x00\xe9\xff\xfd"),
        ),
        case(
            _LINES,
            input_encoding="UTF-8",
            output_encoding="UTF-8",
            replacement_char=46,
            replace_control_characters=True,
            want=texts(b"a.b.", b"", b"\xc3\xa9.", b"\xf0\x9f\x98\x80x"),
        ),
    ],
    doc="Each string in another encoding.",
    differs=_DIFFERS,
)
op(
    "UnicodeScript",
    "input: int32",
    "output: int32",
    shape=same_as(0),
    kernel=_script_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, dtype: [
        case(
            np.array([[97, 0x4E00, 0x3042, 0x416], [0x1F600, 0x300, 0xD800, -1]], np.int32),
            want=np.array([[25, 17, 20, 8], [0, 1, 103, -1]], np.int32),
        ),
        case(np.array(0x110000, np.int32), want=np.array(-1, np.int32)),
        case(np.zeros((0, 2), np.int32), want=np.zeros((0, 2), np.int32)),
    ],
    doc="The script in which each code point is written, as ICU numbers them; -1 for what is none.",
    differs="Scripts and characters are those of RE2's version of Unicode, which is later than TensorFlow's.",
)
