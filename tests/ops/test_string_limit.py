"""Operations whose strings are much larger than what they are given stop at HEADRACE_STRING_LIMIT."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.api import scopes
from headrace.errors import ResourceExhaustedError
from headrace.files import sources

LIMIT = 1 << 20
LONG = b"x" * 1000
MANY = np.full(2000, b"a", object)


def raw(type: str, *args: Any, **attrs: Any) -> Any:
    return scopes.runtime().eager.make(type, args, attrs)


def bomb(n: int, wbits: int) -> bytes:
    stream = zlib.compressobj(9, wbits=wbits)
    return b"".join([stream.compress(bytes(1 << 16)) for _ in range(n >> 16)]) + stream.flush()


CASES: dict[str, Callable[[], Any]] = {
    "DecodeCompressed": lambda: raw("DecodeCompressed", bomb(8 * LIMIT, 15), compression_type="ZLIB"),
    "DecodeCompressed of many": lambda: raw(
        "DecodeCompressed", np.full(20, bomb(LIMIT // 16, 31), object), compression_type="GZIP"
    ),
    "StringJoin": lambda: raw("StringJoin", [MANY, LONG]),
    "StringJoin's separator": lambda: raw("StringJoin", [MANY, MANY], separator=LONG.decode()),
    "ReduceJoin": lambda: raw("ReduceJoin", MANY, np.int32(0), separator=LONG.decode()),
    "UnsortedSegmentJoin": lambda: raw(
        "UnsortedSegmentJoin", MANY, np.zeros(2000, np.int32), np.int32(1), separator=LONG.decode()
    ),
    "AsString": lambda: raw("AsString", np.zeros(2), width=1 << 30),
    "AsString's precision": lambda: raw("AsString", np.zeros(2), precision=1 << 30),
    "RegexReplace": lambda: raw("RegexReplace", b"a" * 2000, b"a", LONG),
    "StaticRegexReplace": lambda: raw("StaticRegexReplace", MANY, pattern="a", rewrite=LONG.decode()),
    "StringNGrams": lambda: raw(
        "StringNGrams", MANY, np.array([0, 2000]), separator=LONG.decode(), ngram_widths=(2,), left_pad="",
        right_pad="", pad_width=0, preserve_short_sequences=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_too_much_is_refused_before_it_is_made(name: str) -> None:
    make = CASES[name]
    refused = "^" + name.split()[0].removesuffix("'s") + " would make .*HEADRACE_STRING_LIMIT"
    with flags.override(STRING_LIMIT=LIMIT):
        with pytest.raises(ResourceExhaustedError, match=refused):
            make()
        tracemalloc.start()
        try:
            with pytest.raises(ResourceExhaustedError):
                make()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 4 * LIMIT


def test_as_much_as_the_limit_is_made() -> None:
    with flags.override(STRING_LIMIT=LIMIT):
        assert len(raw("DecodeCompressed", bomb(LIMIT, 15), compression_type="ZLIB").numpy()) == LIMIT
        assert len(raw("StringJoin", [b"a", b"b"], separator="x" * (LIMIT - 2)).numpy()) == LIMIT


def test_the_error_of_a_step_names_the_operation() -> None:
    with hr.Graph() as g:
        y = hr.io.decode_compressed(bomb(2 * LIMIT, 15), "ZLIB", name="inflate")
    with (
        hr.Session(graph=g) as session,
        flags.override(STRING_LIMIT=LIMIT),
        pytest.raises(ResourceExhaustedError, match="DecodeCompressed would make") as e,
    ):
        session.run(y)
    assert e.value.op is y.op


def test_a_piece_of_a_compressed_file_has_a_limit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(bomb(4 * LIMIT, 31))
    monkeypatch.setattr(sources, "MOST", LIMIT)
    with pytest.raises(ResourceExhaustedError, match="at most 1048576"):
        sources.Fixed(str(path), 2 * LIMIT, encoding="GZIP")
