"""Batches of features: sparse, dense and ragged arrays of the values of many records.

A record has a vector of values, or none, for each key; in a sequence each step has one. These functions take the
vectors of one key in all records, and reject vectors of a wrong type or length, as TensorFlow's parsers do.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.dtypes import DType, float32, int64, string
from headrace.errors import InvalidArgumentError
from headrace.opkit.arrays import check_size, zeros
from headrace.shapes import Shape, show

Values: TypeAlias = "np.ndarray | None"
TYPES = frozenset({float32, int64, string})  # dtypes of values


class Dense(NamedTuple):
    """Description of a feature that is parsed into a dense array.

    Attributes:
      key: its name.
      type: of its values.
      shape: of a record's part, of which the first dimension may be unknown.
      default: of `shape`, or without elements, if the feature is required; one element, if `shape` is not known.
    """

    key: str
    type: DType
    shape: tuple[int | None, ...]
    default: np.ndarray

    @property
    def is_open(self) -> bool:
        """Whether records have different numbers of rows, which are made up with the default."""
        return bool(self.shape) and self.shape[0] is None


def name_of(key: bytes) -> str:
    """The text of a key (what is not UTF-8 is the name of nothing)."""
    return key.decode("utf-8", "surrogateescape")


def checked_shape(shape: Shape, i: int, opens: bool) -> tuple[int | None, ...]:
    """`shape`, the attribute of a dense feature; its first dimension may be unknown if `opens`."""
    if shape is None or None in shape[1 if opens else 0 :]:
        what = "has unknown rank or unknown inner dimensions" if opens else "is not fully defined"
        raise InvalidArgumentError(f"dense_shapes[{i}] {what}: Shape {show(shape)}")
    return shape


def checked_default(dense: Dense, i: int) -> None:
    """Raises unless the default fits the shape."""
    given = dense.default
    if dense.is_open and given.size != 1:
        raise InvalidArgumentError(
            f"dense_shape[{i}] is a variable length shape: {show(dense.shape)}, therefore def_value[{i}] must contain "
            f"a single element (the padding element).  But its shape is: {show(given.shape)}"
        )
    if not dense.is_open and given.size and given.shape != dense.shape:
        raise InvalidArgumentError(
            f"def_value[{i}].shape() == {show(given.shape)} is not compatible with "
            f"dense_shapes_[{i}] == {show(dense.shape)}"
        )


def typed(values: Values, t: DType, key: str, where: Callable[[], str]) -> np.ndarray:
    """`values`, none if there are none; they must be of the type `t`."""
    if values is None:
        return np.empty(0, t.numpy)
    if values.dtype != t.numpy:
        found = next(d for d in TYPES if d.numpy == values.dtype)
        raise InvalidArgumentError(
            f"{where()}Key: {key}.  Data types don't match. Expected type: {t.name}, Actual type: {found.name}"
        )
    return values


def joined(rows: Sequence[np.ndarray], t: DType) -> np.ndarray:
    """The vectors one after the other."""
    return np.concatenate([np.empty(0, t.numpy), *rows])


def sparse(rows: Sequence[np.ndarray], places: np.ndarray, shape: Sequence[int], t: DType) -> tuple[np.ndarray, ...]:
    """Indices, values and shape of a sparse array.

    Args:
      rows: vectors of values.
      places: for each of them, as a row, where it lies.
      shape: of these.
      t: the type of the values.
    """
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    first = np.repeat(np.cumsum(counts) - counts, counts)
    within = np.arange(int(counts.sum())) - first
    indices = np.concatenate([np.repeat(places, counts, axis=0), within[:, None]], axis=1)
    return indices, joined(rows, t), np.array([*shape, max(counts, default=0)], np.int64)


def splits(counts: Sequence[int], t: DType) -> np.ndarray:
    """Row splits of rows of these lengths."""
    return np.cumsum([0, *counts], dtype=t.numpy)


def dense(of: Dense, rows: Sequence[Values], where: Callable[[int], str]) -> np.ndarray:
    """The array of a feature of all records."""
    stride = int(np.prod(of.shape[1:] if of.is_open else of.shape, dtype=np.int64))  # type: ignore[arg-type]
    found = []
    for i, row in enumerate(rows):
        values = typed(row, of.type, of.key, functools.partial(where, i))
        if row is None and not of.is_open:
            if not of.default.size:
                raise InvalidArgumentError(
                    f"{where(i)}Feature: {of.key} (data type: {of.type.name}) is required but could not be found."
                )
            values = of.default.reshape(-1)
        elif not of.is_open and len(values) != stride:
            raise InvalidArgumentError(
                f"{where(i)}Key: {of.key}, Index: {i}.  Number of {of.type.name} values != expected.  "
                f"Values size: {len(values)} but output shape: {show(of.shape)}"
            )
        elif of.is_open and (len(values) % stride if stride else len(values)):
            raise InvalidArgumentError(
                f"{where(i)}Key: {of.key}, Index: {i}.  Number of {of.type.name} values is not a multiple of stride "
                f"length. Saw {len(values)} values but output shape is: {show(of.shape)}"
            )
        found.append(values)
    if not of.is_open:
        return joined(found, of.type).reshape(len(rows), *of.shape)
    longest = max(map(len, found), default=0)
    shape = (len(rows), longest // stride if stride else 0, *of.shape[1:])
    check_size(shape, of.type)  # type: ignore[arg-type]
    out = np.full((len(rows), longest), of.default.reshape(-1)[0], of.type.numpy)
    for row, values in zip(out, found, strict=True):
        row[: len(values)] = values
    return out.reshape(shape)  # type: ignore[arg-type]


def dense_steps(of: Dense, rows: Sequence[list[Values]], where: Callable[[int], str]) -> tuple[np.ndarray, np.ndarray]:
    """Array of a feature at all steps of all records, and the numbers of steps.

    Shorter records are padded with zeros.
    """
    stride = int(np.prod(of.shape, dtype=np.int64))  # type: ignore[arg-type]
    lengths = np.array([len(steps) for steps in rows], np.int64)
    shape = (len(rows), max(lengths, default=0), *of.shape)
    check_size(shape, of.type)  # type: ignore[arg-type]
    out = zeros(np, (len(rows), int(shape[1] or 0), stride), of.type)
    for i, steps in enumerate(rows):
        for k, step in enumerate(steps):
            values = typed(step, of.type, of.key, functools.partial(where, i))
            if len(values) != stride:
                raise InvalidArgumentError(
                    f"{where(i)}Key: {of.key}, Index: {k}.  Number of {of.type.name} values != expected.  "
                    f"values size: {len(values)} but output shape: {show(of.shape)}"
                )
            out[i, k] = values
    return out.reshape(shape), lengths


def places_of_steps(rows: Sequence[Sequence[Any]]) -> np.ndarray:
    """Pairs (record, step) of the indices of all steps."""
    found = [(i, k) for i, steps in enumerate(rows) for k in range(len(steps))]
    return np.array(found, np.int64).reshape(-1, 2)


def flat_steps(rows: Sequence[list[Values]], t: DType, key: str, where: Callable[[int], str]) -> list[np.ndarray]:
    """The vectors of all steps, one after the other."""
    steps = itertools.chain.from_iterable(((i, step) for step in of) for i, of in enumerate(rows))
    return [typed(step, t, key, functools.partial(where, i)) for i, step in steps]
