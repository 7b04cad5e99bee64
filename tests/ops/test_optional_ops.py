"""Optionals: making them, looking into them, and gradients through them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError, ShapeError
from tests.grad.numeric import check
from tests.ops.running import Program, gradients

BOTH = {"output_types": (hr.float32, hr.int32), "output_shapes": ((), (None,))}


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def test_what_goes_in_comes_out(p: Program) -> None:
    made = p.b.OptionalFromValue([1.5, [1, 2]])
    x, y = p.b.OptionalGetValue(made, **BOTH)
    assert (made.shape, x.shape, y.shape) == ((), (), (None,))
    has = [p.b.OptionalHasValue(made), p.b.OptionalHasValue(p.b.OptionalNone())]
    got = p.run([x, y, *has])
    assert (got[0], got[1].tolist(), got[2:]) == (1.5, [1, 2], [True, False])
    assert isinstance(got[2], np.bool_)
    alone = p.b.OptionalFromValue(["text"])
    assert alone.handle == (hr.string, ())
    assert p.run(p.b.OptionalGetValue(alone, output_types=(hr.string,), output_shapes=(None,))) == b"text"


@pytest.mark.parametrize(
    ("types", "shapes", "message"),
    [
        ((hr.float32, hr.int32), (None, (3,)), r"shape for component 1. Expected: \[3\]. Actual: \[2\]"),
        ((hr.float32, hr.float32), (None, None), r"type for component 1. Expected: float32. Actual: int32"),
        ((hr.float32,), (None,), "has 2 components, expected 1"),
    ],
)
def test_something_else_is_wanted(
    p: Program, types: tuple[hr.DType, ...], shapes: tuple[None, ...], message: str
) -> None:
    made = p.b.OptionalFromValue([1.5, [1, 2]])
    with p.fails(InvalidArgumentError, message):
        got = p.b.OptionalGetValue(made, output_types=types, output_shapes=shapes)
        p.run(got[0] if isinstance(got, tuple) else got)


def test_nothing_is_there(p: Program) -> None:
    with p.fails(InvalidArgumentError, "does not have a value"):
        p.run(p.b.OptionalGetValue(p.b.OptionalNone(), **BOTH)[0])
    a_list = p.b.EmptyTensorList(-1, 2, element_dtype=hr.float32)
    with p.fails(InvalidArgumentError, "OptionalHasValue must be an optional .* got TensorList"):
        p.run(p.b.OptionalHasValue(a_list))
    with pytest.raises(ShapeError, match=r"must be the same length as `output_types` \(2 vs. 1"):
        p.b.OptionalGetValue(p.b.OptionalNone(), output_types=(hr.float32,), output_shapes=(None, None))


def test_sums_and_zeros(p: Program) -> None:
    made, none = p.b.OptionalFromValue([1.5, [1, 2]]), p.b.OptionalNone()
    twice, zeros = p.b.AddN([made, made]), p.b.ZerosLike(made)
    got = p.run([p.b.OptionalGetValue(o, **BOTH) for o in (twice, zeros)])
    assert [(float(x), y.tolist()) for x, y in got] == [(3, [2, 4]), (0, [0, 0])]
    assert (
        p.run([p.b.OptionalHasValue(p.b.AddN([none, none])), p.b.OptionalHasValue(p.b.ZerosLike(none))]) == [False] * 2
    )
    with p.fails(InvalidArgumentError, "one has a value and the other doesn't"):
        p.run(p.b.OptionalHasValue(p.b.AddN([made, none])))
    with p.fails(InvalidArgumentError, r"different components: \(float32, int32\) and \(float32\)"):
        p.run(p.b.OptionalHasValue(p.b.AddN([made, p.b.OptionalFromValue([1.5])])))
    nested = p.b.OptionalFromValue([made])
    inner = p.b.OptionalGetValue(p.b.AddN([nested, nested]), output_types=(hr.variant,), output_shapes=((),))
    assert p.run(p.b.OptionalGetValue(inner, **BOTH)[0]) == 3


def test_gradients_go_through(p: Program) -> None:
    x, y = p.feed([1.0, 2.0], hr.float32), p.feed([3.0], hr.float32)
    made = p.b.OptionalFromValue([p.b.Mul(x, 2.0), y])
    types = {"output_types": (hr.float32, hr.float32), "output_shapes": ((2,), (1,))}
    a, c = p.b.OptionalGetValue(made, **types)
    again, _ = p.b.OptionalGetValue(made, **types)
    dx, dy = gradients(p.b, {a: p.b.const([1.0, 10.0]), again: p.b.const([1.0, 1.0])}, [x, y])
    assert [v.tolist() for v in p.run([dx, dy])] == [[4, 22], [0]]
    (only,) = gradients(p.b, {c: p.b.const([5.0])}, [y])
    assert p.run(only).tolist() == [5]


def in_a_loop(x: hr.Tensor) -> hr.Tensor:
    types = {"output_types": (hr.float64, hr.int32, hr.string), "output_shapes": ((2,), (), ())}

    def body(i, y):
        b = hr.api.scopes.builder(y)
        sines = b.OptionalFromValue([hr.sin(y), i, b.AsString(i)])
        products = b.OptionalFromValue([y * x, i, b.AsString(i)])
        (s, k, _), (p, _, _) = (b.OptionalGetValue(o, **types) for o in (sines, products))
        return i + 1, s * p * hr.cast(k + 1, hr.float64)

    return hr.while_loop(lambda i, y: i < 3, body, (0, x))[1]


def through_branches(x: hr.Tensor) -> hr.Tensor:
    b = hr.api.scopes.builder
    types = {"output_types": (hr.float64, hr.int32), "output_shapes": ((2,), ())}
    some = hr.cond(x[0] > 0.0, lambda: b(x).OptionalFromValue([hr.sin(x), 1]), lambda: b(x).OptionalNone())
    return x * hr.cond(x[0] > 0.0, lambda: b(x).OptionalGetValue(some, **types)[0] ** 2, lambda: x)


@pytest.mark.matrix
@pytest.mark.parametrize("at", [0.3, -0.3])
@pytest.mark.parametrize("make", [in_a_loop, through_branches])
def test_derivatives_to_order_three(make, at: float) -> None:
    check(make, [at, 0.5])
