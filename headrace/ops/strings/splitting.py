"""Splitting and joining of strings: StringSplit, StringSplitV2, StringNGrams, UnsortedSegmentJoin.

Source: TensorFlow's ops of the same names. The result for several strings is a sparse matrix with a row for each
string, or a ragged one with a vector of the ends of the rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import INDEX, DType, int32, int64, string
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    bool_attr,
    case,
    flops_per_input,
    int_attr,
    list_attr,
    op,
    string_attr,
    type_attr,
)
from headrace.opkit.arrays import check_size
from headrace.ops.strings.elements import Budget, texts
from headrace.shapes import Shape, merge, show, with_rank, with_rank_at_least

_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(1000))


# *** StringSplit, StringSplitV2 ***


def _splitting(name: str, split: Callable[[bytes, bytes, Mapping[str, Any]], list[bytes]]) -> Any:
    """Kernel factory of an op that splits a vector of strings into a sparse matrix."""

    def factory(attrs: Mapping[str, Any]) -> Any:
        def kernel(x: Any, by: Any) -> Any:
            if x.ndim != 1:
                raise InvalidArgumentError(f"input must be a vector, got shape: {show(x.shape)}")
            if by.ndim:
                raise InvalidArgumentError(f"{name} must be a scalar, got shape: {show(by.shape)}")
            rows = [split(text, by.item(), attrs) for text in x]
            counts = np.array([len(row) for row in rows], np.int64)
            total = int(counts.sum())
            first = np.repeat(np.cumsum(counts) - counts, counts)
            indices = np.stack([np.repeat(np.arange(len(rows)), counts), np.arange(total) - first], axis=1)
            return indices, texts(*(t for row in rows for t in row)), np.array([len(rows), max(counts, default=0)])

        return kernel

    return factory


def _at_bytes(text: bytes, delimiter: bytes, attrs: Mapping[str, Any]) -> list[bytes]:
    """Parts between any of the bytes of `delimiter`; without one, the single bytes."""
    if not text:
        return []
    if not delimiter:
        return [text[i : i + 1] for i in range(len(text))]
    if len(delimiter) > 1:
        text = text.translate(bytes(delimiter[0] if i in delimiter else i for i in range(256)))
    parts = text.split(delimiter[:1])
    return list(filter(None, parts)) if attrs["skip_empty"] else parts


def _at_separator(text: bytes, separator: bytes, attrs: Mapping[str, Any]) -> list[bytes]:
    """Parts between separators, at most `maxsplit` + 1.

    Without a separator, runs of white space separate the parts.
    """
    limit = attrs["maxsplit"]
    if limit == 0:
        return [text]
    if separator:
        return text.split(separator, max(limit, -1))
    parts = text.split(None, max(limit, -1))
    if len(parts) == limit:  # the rest after the last split is a part, even if it is empty
        parts.append(b"")
    return parts


def _split_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 1)
    with_rank(c.shapes[1], 0)
    return [(None, 2), (None,), (2,)]


def _sparse(rows: list[list[bytes]]) -> tuple[np.ndarray, ...]:
    """Expected outputs of the ops for strings with these parts."""
    indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    shape = [len(rows), max(map(len, rows), default=0)]
    return (
        np.array(indices, np.int64).reshape(-1, 2),
        texts(*(t for row in rows for t in row)),
        np.array(shape, np.int64),
    )


def _split_case(found: list[bytes], by: bytes, rows: list[list[bytes]], **attrs: Any) -> Any:
    return case(texts(*found), np.array(by, object), want=_sparse(rows), **attrs)


op(
    "StringSplit",
    "input: string, delimiter: string",
    "indices: int64, values: string, shape: int64",
    {"skip_empty": True},
    shape=_split_shape,
    kernel=_splitting("delimiter", _at_bytes),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=lambda rng, dtype: [
        _split_case([b" a  b", b"", b"c"], b" ", [[b"a", b"b"], [], [b"c"]]),
        _split_case([b"a, b"], b" ,", [[b"a", b"", b"b"]], skip_empty=False),
        _split_case([b"h\xc3\xa9"], b"", [[b"h", b"\xc3", b"\xa9"]]),
        _split_case([], b" ", []),
    ],
    doc="The parts of each string between any of the bytes of a delimiter, as a sparse matrix.",
)
op(
    "StringSplitV2",
    "input: string, sep: string",
    "indices: int64, values: string, shape: int64",
    {"maxsplit": -1},
    shape=_split_shape,
    kernel=_splitting("sep", _at_separator),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=lambda rng, dtype: [
        _split_case([b" a\t\x0b b ", b"", b"c"], b"", [[b"a", b"b"], [], [b"c"]]),
        _split_case([b"1<><>2<>", b""], b"<>", [[b"1", b"", b"2", b""], [b""]]),
        _split_case([b"1<><>2<>", b"3"], b"<>", [[b"1", b"", b"2<>"], [b"3"]], maxsplit=2),
        _split_case([b" a b  c ", b"a b", b"a"], b"", [[b"a", b"b", b"c "], [b"a", b"b", b""], [b"a"]], maxsplit=2),
        _split_case([b" a b"], b"", [[b" a b"]], maxsplit=0),
    ],
    doc="The parts of each string between separators, or white space, as Python's `split`, as a sparse matrix.",
)

# *** StringNGrams ***


def _checked_splits(splits: list[int], n: int) -> None:
    """Raises unless these are where the rows of `n` strings begin and end."""
    if splits[0] != 0:
        raise InvalidArgumentError(f"First split value must be 0, got {splits[0]}")
    for before, after in itertools.pairwise(splits):
        if not before <= after <= n:
            raise InvalidArgumentError(f"Invalid split value {after}, must be in [{before}, {n}]")
    if splits[-1] != n:
        raise InvalidArgumentError(f"Last split value must be data size. Expected {n}, got {splits[-1]}")


def _ngrams_kernel(attrs: Mapping[str, Any]) -> Any:
    widths, pad_width = attrs["ngram_widths"], attrs["pad_width"]
    separator, left, right = (
        attrs[name].encode("utf-8", "surrogateescape") for name in ("separator", "left_pad", "right_pad")
    )
    if any(w <= 0 for w in widths):
        raise InvalidArgumentError(f"ngram_widths must contain positive values, got {list(widths)}")
    if attrs["preserve_short_sequences"] and not widths and pad_width < 0:
        raise InvalidArgumentError(
            "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not provided, "
            f"got {pad_width}"
        )

    def pads(width: int) -> int:
        return width - 1 if pad_width < 0 else min(pad_width, width - 1)

    def of_width(row: list[bytes], width: int, budget: Budget) -> list[bytes]:
        n = pads(width)
        padded = [left] * n + row + [right] * n
        return [budget.join(separator, padded[i : i + width]) for i in range(len(padded) - width + 1)]

    def of_row(row: list[bytes], budget: Budget) -> Iterator[bytes]:
        found = [gram for width in widths for gram in of_width(row, width, budget)]
        if not found and row and attrs["preserve_short_sequences"]:
            # All there is, with as much padding as is asked for.
            n = max(pad_width, 0)
            found = [budget.join(separator, [left] * n + row + [right] * n)]
        yield from found

    def kernel(data: Any, splits: Any) -> Any:
        ends, strings = splits.ravel().tolist(), data.ravel().tolist()
        if not ends:
            return data, splits
        _checked_splits(ends, len(strings))
        longest = max((b - a for a, b in itertools.pairwise(ends)), default=0)
        check_size((sum(longest + 2 * pads(w) for w in widths) + 2 * max(pad_width, 0), max(widths, default=1)), int64)
        grams: list[bytes] = []
        counts, budget = [0], Budget("StringNGrams")
        for begin, end in itertools.pairwise(ends):
            grams.extend(of_row(strings[begin:end], budget))
            counts.append(len(grams))
        return texts(*grams), np.array(counts, splits.dtype).reshape(splits.shape)

    return kernel


def _ngrams_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 1)
    return [(None,), with_rank(c.shapes[1], 1)]


def _ngrams(rng: np.random.Generator, dtype: DType) -> list[Any]:
    x = texts(b"a", b"b", b"c", b"d", b"e")

    def some(splits: list[int], grams: bytes, counts: list[int], width: int | list[int] = 3, **attrs: Any) -> Any:
        attrs = {"pad_width": 0, "preserve_short_sequences": False} | attrs
        return case(
            x,
            np.array(splits, dtype.numpy),
            want=(texts(*grams.split()), np.array(counts, dtype.numpy)),
            separator="|",
            left_pad="L",
            right_pad="R",
            ngram_widths=[width] if isinstance(width, int) else width,
            **attrs,
        )

    return [
        some([0, 3, 5], b"a|b|c", [0, 1, 1]),
        some([0, 3, 5], b"L|L|a L|a|b a|b|c b|c|R c|R|R L|L|d L|d|e d|e|R e|R|R", [0, 5, 9], pad_width=-1),
        some([0, 1, 1, 5], b"a b|c c|d d|e b|c|d|e", [0, 1, 1, 5], [2, 4], preserve_short_sequences=True),
        some([0, 5], b"L|a a|b b|c c|d d|e e|R", [0, 6], 2, pad_width=7),
    ]


op(
    "StringNGrams",
    "data: string, data_splits: Tsplits",
    "ngrams: string, ngrams_splits: Tsplits",
    {
        "separator": string_attr(),
        "ngram_widths": list_attr("int"),
        "left_pad": string_attr(),
        "right_pad": string_attr(),
        "pad_width": int_attr(),
        "preserve_short_sequences": bool_attr(),
        "Tsplits": type_attr(INDEX, int64),
    },
    shape=_ngrams_shape,
    kernel=_ngrams_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_ngrams,
    doc="Runs of some lengths of the strings of each row, joined.",
)

# *** UnsortedSegmentJoin ***


def _segment_join_kernel(attrs: Mapping[str, Any]) -> Any:
    separator = attrs["separator"].encode("utf-8", "surrogateescape")

    def kernel(x: Any, ids: Any, num_segments: Any) -> Any:
        if num_segments.ndim:
            raise InvalidArgumentError(f"Number of segments must be a scalar, got the shape {show(num_segments.shape)}")
        n = int(num_segments)
        if n < 0:
            raise InvalidArgumentError(f"Number of segments must be non-negative but got {n}")
        if not ids.ndim:
            raise InvalidArgumentError("Segment_id cannot have rank 0")
        if x.shape[: ids.ndim] != ids.shape:
            raise InvalidArgumentError(
                f"Segment dimension is {show(ids.shape)} while input dimension is {show(x.shape[: ids.ndim])}"
            )
        if ids.size and not (ids.min() >= 0 and ids.max() < n):
            raise InvalidArgumentError(
                "segment_ids are not allowed to exceed num_segments or to have negative values, "
                f"got {ids.min()} to {ids.max()} of {n}"
            )
        shape = (n, *x.shape[ids.ndim :])
        check_size(shape, string)
        out = np.full(shape, b"", object)
        width = math.prod(shape[1:])
        rows, flat, joined = x.reshape(ids.size, width), ids.reshape(-1), out.reshape(n, width)
        order, budget = np.argsort(flat, kind="stable"), Budget("UnsortedSegmentJoin")
        for group in np.split(order, np.flatnonzero(np.diff(flat[order])) + 1):
            if len(group):
                joined[flat[group[0]]] = [budget.join(separator, column.tolist()) for column in rows[group].T]
        return out

    return kernel


def _segment_join_shape(c: Inference) -> Sequence[Shape]:
    x, ids = c.shapes[0], with_rank_at_least(c.shapes[1], 1)
    with_rank(c.shapes[2], 0)
    n = c.scalar(2)
    if n is not None and n < 0:
        raise ValueError(f"Number of segments must be non-negative but got {n}")
    if x is None or ids is None:
        return [None]
    with_rank_at_least(x, len(ids))
    merge(x[: len(ids)], ids)
    return [(n, *x[len(ids) :])]


def _segment_joins(rng: np.random.Generator, dtype: DType) -> list[Any]:
    x = texts(b"a", b"b", b"c", b"d").reshape(2, 2)

    def some(ids: Any, n: int, want: np.ndarray) -> Any:
        return case(x, np.array(ids, dtype.numpy), np.array(n, np.int32), want=want, separator="-")

    return [
        some([0, 0], 2, texts(b"a-c", b"b-d", b"", b"").reshape(2, 2)),
        some([[1, 2], [1, 0]], 3, texts(b"d", b"a-c", b"b")),
    ]


op(
    "UnsortedSegmentJoin",
    "inputs: string, segment_ids: Tindices, num_segments: Tnumsegments",
    "output: string",
    {"separator": "", "Tindices": INDEX, "Tnumsegments": type_attr(INDEX, int32)},
    shape=_segment_join_shape,
    kernel=_segment_join_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_input(100)),
    sample=_segment_joins,
    doc="The rows with the same id, joined.",
)
