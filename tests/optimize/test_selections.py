"""Rows and pieces are read from every operation that selects them."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.ir.graph import Operation, Tensor
from headrace.optimize.selections import Piece, piece_of, row_of


def _last(build: Any, dims: tuple[int | None, ...] = (4, 6, 3)) -> tuple[Operation, Tensor]:
    with hr.Graph() as g:
        x, t = hr.placeholder(hr.float32, dims), hr.placeholder(hr.int32, ())
        made = build(x, t)
    return made.op, g.operations[1].outputs[0]


@pytest.mark.parametrize(
    ("build", "axis"),
    [
        (lambda x, t: x[t], 0),
        (lambda x, t: x[t, :], 0),
        (lambda x, t: x[t, ...], 0),
        (lambda x, t: x[:, t], 1),
        (lambda x, t: x[:, t, :], 1),
        (lambda x, t: x[0:4, t, 0:], 1),
        (lambda x, t: x[..., t, :], 1),
        (lambda x, t: x[..., t], 2),
        (lambda x, t: hr.gather(x, t), 0),
        (lambda x, t: hr.gather(x, t, axis=-2), 1),
    ],
)
def test_a_row_has_the_axis_and_the_index_of_its_selection(build: Any, axis: int) -> None:
    op, t = _last(build)
    row = row_of(op)
    assert row is not None
    assert (row.axis, row.index) == (axis, t)
    assert piece_of(op) is None if op.type == "StridedSlice" else True


@pytest.mark.parametrize(
    "build",
    [
        lambda x, t: x[t, 1:],
        lambda x, t: x[t, t],
        lambda x, t: x[t, ::-1],
        lambda x, t: x[t, hr.newaxis],
        lambda x, t: x[t:],
        lambda x, t: x[2],
        lambda x, t: hr.gather(x, [1, 2]),
        lambda x, t: hr.tanh(x),
    ],
)
def test_other_selections_are_no_rows(build: Any) -> None:
    assert row_of(_last(build)[0]) is None


@pytest.mark.parametrize(
    ("build", "piece"),
    [
        (lambda x, t: x[1:3], Piece(0, 1, 2)),
        (lambda x, t: x[:3, :], Piece(0, 0, 3)),
        (lambda x, t: x[:, 2:], Piece(1, 2, 4)),
        (lambda x, t: x[:, -2:100], Piece(1, 4, 2)),
        (lambda x, t: x[0:4, 0:2, ...], Piece(1, 0, 2)),
        (lambda x, t: x[..., :2], Piece(2, 0, 2)),
        (lambda x, t: hr.slice(x, [0, 1, 0], [-1, 2, 3]), Piece(1, 1, 2)),
        (lambda x, t: hr.slice(x, [1, 0, 0], [-1, 6, -1]), Piece(0, 1, 3)),
        (lambda x, t: hr.pad(x, [[0, 0], [2, 1], [0, 0]]), Piece(1, 2, 6)),
    ],
)
def test_a_piece_has_the_range_of_its_selection(build: Any, piece: Piece) -> None:
    op, _ = _last(build)
    assert piece_of(op) == piece
    assert row_of(op) is None


@pytest.mark.parametrize(
    "build",
    [
        lambda x, t: x[1:3, 1:],
        lambda x, t: x[:],
        lambda x, t: x[3:2],
        lambda x, t: x[::2],
        lambda x, t: x[t:],
        lambda x, t: x[1, 2:],
        lambda x, t: x[hr.newaxis, 2:],
        lambda x, t: hr.slice(x, hr.stack([t, 0, 0]), [1, -1, -1]),
        lambda x, t: hr.pad(x, [[0, 0], [2, 1], [0, 1]]),
        lambda x, t: hr.tanh(x),
    ],
)
def test_other_selections_are_no_pieces(build: Any) -> None:
    assert piece_of(_last(build)[0]) is None


def test_a_range_of_a_dimension_of_unknown_size_is_no_piece() -> None:
    for build in (lambda x, t: x[1:3], lambda x, t: hr.slice(x, [1, 0, 0], [-1, -1, -1]), lambda x, t: x[:, 1:]):
        op, _ = _last(build, (None, None, 3))
        assert piece_of(op) is None
    assert piece_of(_last(lambda x, t: x[..., 1:], (None, None, 3))[0]) == Piece(2, 1, 2)
    assert piece_of(_last(lambda x, t: hr.pad(x, [[0, 0], [0, 0], [1, 0]]), (None, None, 3))[0]) == Piece(2, 1, 3)
    assert piece_of(_last(lambda x, t: hr.pad(x, [[1, 0], [0, 0], [0, 0]]), (None, None, 3))[0]) is None


def test_the_gradient_of_a_selection_has_its_row_or_piece() -> None:
    with hr.Graph() as g:
        x, t = hr.placeholder(hr.float32, (4, 6)), hr.placeholder(hr.int32, ())
        hr.gradients(hr.reduce_sum(x[:, t]) + hr.reduce_sum(x[1:]), [x])
    first, second = (op for op in g.operations if op.type == "StridedSliceGrad")
    found = {row.axis for op in (first, second) if (row := row_of(op)) is not None}
    assert found == {1}
    assert [p for op in (first, second) if (p := piece_of(op))] == [Piece(0, 1, 3)]
