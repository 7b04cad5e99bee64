"""`hr.strings`: parts, patterns, characters. The results of single ops are tested with the ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr


def _values(x: Any) -> Any:
    return np.asarray(x.numpy()).tolist()


def test_split_gives_a_row_for_each_string() -> None:
    parts = hr.strings.split(["a  b c", "", " d"])
    assert _values(parts.values) == [b"a", b"b", b"c", b"d"]
    assert _values(parts.indices) == [[0, 0], [0, 1], [0, 2], [2, 0]]
    assert _values(parts.dense_shape) == [3, 3]
    assert _values(hr.strings.split("a,,b,c", ",", maxsplit=2).values) == [b"a", b"", b"b,c"]


def test_string_split_splits_at_each_character() -> None:
    assert _values(hr.strings.string_split(["a,b;c,,"], ",;").values) == [b"a", b"b", b"c"]
    assert _values(hr.strings.string_split(["a,,b"], delimiter=",", skip_empty=False).values) == [b"a", b"", b"b"]
    assert _values(hr.strings.string_split(["ab"], "").values) == [b"a", b"b"]
    with pytest.raises(ValueError, match="'sep' and 'delimiter' are the same"):
        hr.strings.string_split(["a"], ",", delimiter=";")


def test_bytes_and_characters() -> None:
    text = "hé€"
    assert _values(hr.strings.bytes_split(text[:2])) == [b"h", b"\xc3", b"\xa9"]
    assert _values(hr.strings.unicode_split(text, "UTF-8")) == [c.encode() for c in text]
    numbers, starts = hr.strings.unicode_decode_with_offsets(text, "UTF-8")
    assert _values(numbers) == [ord(c) for c in text]
    assert _values(starts) == [0, 1, 3]
    assert _values(hr.strings.unicode_encode(numbers, "UTF-16-BE")) == text.encode("utf-16-be")
    assert _values(hr.strings.unicode_encode([[[65, 66]], [[67, 68]]], "UTF-8")) == [[b"AB"], [b"CD"]]


def test_what_gives_a_vector_takes_one_string() -> None:
    for f in (
        hr.strings.bytes_split,
        lambda x: hr.strings.unicode_decode(x, "UTF-8"),
        lambda x: hr.strings.unicode_split(x, "UTF-8"),
    ):
        with pytest.raises(ValueError, match=r"takes one string \(shape \[\]\), got shape \[1\]"):
            f(["a"])
    with pytest.raises(ValueError, match="rank must be at least 1"):
        hr.strings.unicode_encode(65, "UTF-8")
    with hr.Graph(), pytest.raises(ValueError, match="must be statically known"):
        hr.strings.unicode_encode(hr.placeholder(hr.int32), "UTF-8")


def test_ngrams() -> None:
    words = ["a", "b", "c"]
    assert _values(hr.strings.ngrams(words, (3, 1), "-")) == [b"a-b-c", b"a", b"b", b"c"]
    assert _values(hr.strings.ngrams(words, 2, pad_values=("<", ">"))) == [b"< a", b"a b", b"b c", b"c >"]
    assert _values(hr.strings.ngrams(words, 3, pad_values="x", padding_width=1)) == [b"x a b", b"a b c", b"b c x"]
    assert _values(hr.strings.ngrams(words, 5)) == []
    assert _values(hr.strings.ngrams(words, 5, preserve_short_sequences=True)) == [b"a b c"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ngram_width": (1, 0)}, ValueError, "must be greater than 0"),
        ({"ngram_width": 2, "pad_values": 3}, TypeError, "must be a string, a pair of strings, or None"),
        ({"ngram_width": 2, "padding_width": 1}, ValueError, "pad_values must be provided"),
        ({"ngram_width": 2, "pad_values": "x", "padding_width": 0}, ValueError, "padding_width must be greater"),
        ({"ngram_width": 2, "data": [["a"]]}, ValueError, "a vector of strings"),
    ],
)
def test_mistakes_with_ngrams(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        hr.strings.ngrams(**{"data": ["a", "b"]} | arguments)


def test_patterns_may_be_text_or_tensors() -> None:
    assert _values(hr.strings.regex_replace("a1b22", "([0-9]+)", r"<\1>")) == b"a<1>b<22>"
    assert _values(hr.strings.regex_replace("a1b22", hr.constant("[0-9]+"), "", False)) == b"ab22"
    with hr.Graph() as g:
        hr.strings.regex_full_match("a", "a")
        hr.strings.regex_full_match("a", hr.constant("a"))
        assert {"StaticRegexFullMatch", "RegexFullMatch"} <= {op.type for op in g.operations}
