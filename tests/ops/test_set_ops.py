"""Ops on sets: errors, and sets that no case of the registry has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from tests.ops.running import Program


def indices(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, np.int64)


SORTED = indices((0, 0), (0, 1), (1, 2))


def sizes(p: Program, at: np.ndarray, shape: tuple[int, ...], validate: bool = True) -> Any:
    values = np.arange(len(at), dtype=np.int32)
    return p.b.SetSize(p.feed(at), p.feed(values), p.feed(np.array(shape, np.int64)), validate_indices=validate)


def test_repeated_values_count_once() -> None:
    p = Program()
    out = p.b.SetSize(SORTED, np.array([b"x", b"x", b"y"], object), np.array([3, 4], np.int64))
    assert p.run(out).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("at", "shape", "error", "match"),
    [
        (SORTED[::-1], (2, 3), InvalidArgumentError, "out of order"),
        (SORTED[[0, 0]], (2, 3), InvalidArgumentError, "repeated"),
        (SORTED, (1, 3), InvalidArgumentError, "out of bounds"),
        (SORTED, (2, 3, 4), InvalidArgumentError, "Number of dimensions"),
        (SORTED[:, :1], (2,), InvalidArgumentError, "Invalid rank 1"),
        (SORTED, (2, -3), InvalidArgumentError, "non-negative"),
        (SORTED, (2**40, 2**40), InvalidArgumentError, "overflow"),
        (SORTED, (2**50, 4), ResourceExhaustedError, "OOM"),
    ],
)
def test_bad_sparse_sets_are_refused(at: np.ndarray, shape: Any, error: type[Exception], match: str) -> None:
    p = Program()
    with p.fails(error, match):
        p.run(sizes(p, at, shape))


def test_unsorted_sets_are_taken_without_validation_but_not_those_out_of_bounds() -> None:
    p = Program()
    assert p.run(sizes(p, SORTED[::-1], (2, 3), validate=False)).tolist() == [2, 1]
    with p.fails(InternalError, "expected < 1, got 1"):
        p.run(sizes(p, SORTED, (1, 3), validate=False))


@pytest.mark.parametrize(
    ("name", "want"),
    [("a-b", [[1], [3, 4]]), ("B-A", [[], [9]]), ("intersection", [[2], []]), ("union", [[1, 2], [3, 4, 9]])],
)
def test_operations_on_dense_sets(name: str, want: list[list[int]]) -> None:
    p = Program()
    places, values, shape = p.run(
        list(p.b.DenseToDenseSetOperation([[1, 2, 2], [3, 4, 3]], [[2], [9]], set_operation=name))
    )
    rows = [[int(v) for (r, _), v in zip(places, values, strict=True) if r == k] for k in range(2)]
    assert rows == want
    assert shape.tolist() == [2, max(map(len, want))]


def test_operands_must_go_together() -> None:
    p = Program()

    def made(a: Any, b: Any, name: str = "union") -> Any:
        return list(p.b.DenseToDenseSetOperation(p.feed(a), p.feed(b), set_operation=name))

    with p.fails(InvalidArgumentError, "Invalid set_operation"):
        p.run(made([[1]], [[2]], "xor"))
    with p.fails(InvalidArgumentError, "Mismatched shapes"):
        p.run(made([[1]], [[2], [3]]))
    with p.fails(InvalidArgumentError, "has rank 1 < 2"):
        p.run(made([1], [[2]]))
    with p.fails(InvalidArgumentError, "Mismatched shapes"):
        sparse = (p.feed(SORTED), p.feed([1, 2, 3]), p.feed(np.array([3, 3], np.int64)))
        p.run(list(p.b.DenseToSparseSetOperation(p.feed([[1], [2]]), *sparse, set_operation="union")))
