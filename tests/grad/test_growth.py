"""Building a gradient takes calls of Python functions in proportion to the operations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.api import scopes
from headrace.grad.graph import GradGraph
from tests.compile.running import same


def _calls(f: Callable[[], Any]) -> int:
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        f()
    finally:
        sys.setprofile(None)
    return count


def _work(place: str, layer: Callable[[Any, Any], Any], shape: tuple[int | None, ...] | None, n: int) -> int:
    """Calls that build the gradient of `n` layers in a loop, branch or function."""
    with hr.Graph():
        x = hr.placeholder(hr.float32, shape)

        def layers(y: Any) -> Any:
            for _ in range(n):
                y = layer(y, x)
            return y

        if place == "loop":
            y = hr.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, layers(y)), [0, x])[1]
        elif place == "branch":
            y = hr.cond(hr.reduce_sum(x) > 0, lambda: layers(x), lambda: x)
        else:
            y = hr.Function(layers)(x)
        y = hr.reduce_sum(y)
        return _calls(lambda: hr.gradients([y], [x]))


LAYERS: dict[str, Callable[[Any, Any], Any]] = {
    "a gradient that is not wanted": lambda y, x: y * 1.01,
    "a shape that is not wanted": lambda y, x: hr.reshape(hr.reshape(y, [-1]) * 1.5, hr.shape(y)),
    "a value to keep": lambda y, x: hr.tanh(y + x),
}


@pytest.mark.system
@pytest.mark.parametrize("shape", [(4,), None], ids=["known", "unknown"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("place", ["loop", "branch", "function"])
def test_each_operation_adds_as_much_work(place: str, layer: str, shape: tuple[int, ...] | None) -> None:
    """Increments are compared: the first layer takes less work than the others."""
    small, large, larger = (_work(place, LAYERS[layer], shape, n) for n in (10, 20, 30))
    assert larger - large < 1.1 * (large - small)


@hr.RegisterGradient("ProductOfBoth")
def _product_of_both(op: Any, dy: Any) -> Any:
    x, y = op.inputs
    return dy * y, hr.reduce_sum(dy * x)


def _overridden(y: Any, x: Any) -> Any:
    with scopes.gradient_override_map({"Mul": "ProductOfBoth"}):
        return y * hr.constant(1.01)


@pytest.mark.parametrize("shape", [(4,), None], ids=["known", "unknown"])
@pytest.mark.parametrize("place", ["loop", "branch", "function"])
def test_gradients_that_a_user_function_makes_in_vain_add_as_much_work(
    place: str, shape: tuple[int, ...] | None
) -> None:
    """The function reads `y` for an unwanted gradient; copies of `y` are shared."""
    small, large, larger = (_work(place, _overridden, shape, n) for n in (10, 20, 30))
    assert larger - large < 1.1 * (large - small)


def test_a_user_function_leaves_no_residual_of_an_unwanted_gradient() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [4])
        _, y = hr.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, _overridden(hr.exp(y), x)), [0, x])
        hr.gradients([y], [x])
    *_, back = (op.attrs["body"] for op in g.operations if op.opdef.structured == "While")
    assert [op.type for op in back.operations if op.type in ("Mul", "Sum")] == ["Mul", "Mul"]


def test_rules_of_records_leave_nothing_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only gradients that no rule passes on are removed, and gradient functions of users."""
    removed: list[Any] = []
    monkeypatch.setattr(GradGraph, "take_back", lambda self, ops: removed.extend(ops))
    with hr.Graph():
        x, w = hr.placeholder(hr.float32, [None, None]), hr.placeholder(hr.float32, [None, None])

        def body(i: Any, y: Any) -> tuple[Any, Any]:
            z = hr.where(y > 0.0, y * w, 2.0 / (1.0 + y * y)) - hr.maximum(y, 0.5)
            z = hr.concat([z, hr.pow(z, 2.0)], 0)[:2]
            return i + 1, hr.matmul(hr.matmul(z, w), hr.cond(w[0, 0] > 0.0, lambda: w * 2.0, lambda: w), True)

        y = hr.while_loop(lambda i, _: i < 3, body, [0, x])[1]
        (dx,) = hr.gradients([y], [x])
        hr.gradients([dx], [x])
    assert not removed


def _chain(n: int) -> tuple[Any, Any]:
    """`n` functions of which each calls the one before; with the input."""
    f = hr.Function(hr.tanh)
    for _ in range(n - 1):
        f = hr.Function(lambda a, f=f: hr.sin(f(a)))
    x = hr.placeholder(hr.float32, [2])
    return f(x), x


def _chain_work(n: int) -> int:
    with hr.Graph():
        y, x = _chain(n)
        return _calls(lambda: hr.gradients([y], [x]))


def test_work_of_functions_that_call_each_other_in_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "GRADIENT_CALL_LEVELS", 4)
    small, large, larger = map(_chain_work, (10, 20, 30))
    assert larger - large < 1.5 * (large - small)


def test_a_deep_chain_of_functions_has_the_gradient_of_a_shallow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = []
    for levels in (100, 4):
        monkeypatch.setattr(thresholds, "GRADIENT_CALL_LEVELS", levels)
        with hr.Graph() as g:
            y, x = _chain(7)
            (dy,) = hr.gradients([hr.reduce_sum(y)], [x])
            (ddy,) = hr.gradients([hr.reduce_sum(dy)], [x])
        with hr.Session(graph=g) as session:
            values.append(session.run([dy, ddy], {x: np.array([0.3, -0.7], np.float32)}))
    same(values[0], values[1])


def test_a_body_of_hundreds_of_operations_has_a_gradient() -> None:
    """The search for loop-invariant tensors does not recurse."""
    n = 700
    with hr.Graph():
        x = hr.placeholder(hr.float32, [2])

        def body(i: Any, y: Any) -> tuple[Any, Any]:
            z = y
            for _ in range(n // 2):
                z = hr.sin(z) * x
            return i + 1, z

        y = hr.while_loop(lambda i, _: i < 3, body, [0, x])[1]
        assert hr.gradients([y], [x])[0] is not None


def test_what_only_an_unwanted_gradient_names_is_not_in_the_gradient() -> None:
    """The gradient of a product with a constant keeps nothing of the other factor."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [4])
        y = hr.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, hr.sin(y) * 2.0), [0, x])[1]
        hr.gradients([y], [x])
    loops = [op for op in g.operations if op.opdef.structured == "While"]
    back = loops[-1].attrs["body"]
    types = [op.type for op in back.operations]
    assert (types.count("Cos"), types.count("Sin")) == (1, 0)
