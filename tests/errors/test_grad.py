"""Error texts about derivatives that cannot be taken.

Also those about rules (a third party's, too) whose results do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.dtypes import FLOATING
from headrace.errors import GraphError, InvalidArgumentError, ShapeError, UnimplementedError
from headrace.extend import NOT_DIFFERENTIABLE, same_as
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph
from tests.errors.table import check, open_
from tests.extending.registering import forgotten


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    with forgotten():
        yield


def body_of_random(graph: hr.Graph) -> FuncGraph:
    body = FuncGraph("body", graph, captures_from_outer=False)
    body.add_param(hr.int32, (), "i")
    y = body.add_param(hr.float32, (), "y")
    b = Builder(body)
    body.results = [b.AddV2(y, b.RandomUniform(np.zeros(0, np.int32), dtype=hr.float32))]
    return body


def random_for() -> Any:
    x = open_(hr.float32, 2)[0]
    y = hr.raw_ops.For(start=0, limit=3, delta=1, input=[x], body=body_of_random(x.graph))
    return hr.gradients(y, x)


def symbolic(n: int) -> Any:
    """A SymbolicGradient of a function of one argument and one result, with so many inputs."""
    x = open_(hr.float32, 2)
    f = FuncGraph("f", x.graph, captures_from_outer=False)
    a = f.add_param(hr.float32, (2,), "a")
    f.results = [a]
    y = hr.raw_ops.SymbolicGradient(input=[x] * n, Tout=(hr.float32,), f=f)
    return hr.gradients(y, x)


def forward_through_random() -> Any:
    def f(x: Any) -> Any:
        return hr.cond(x[0] > 0, lambda: x * hr.random.uniform(()), lambda: x)

    return hr.jacobian(f, mode="fwd")(open_(hr.float32, 2))


def of_a_list() -> Any:
    x = open_(hr.float32, 2)
    return hr.gradients(hr.raw_ops.TensorListFromTensor(tensor=x, element_shape=hr.zeros([0], hr.int32)), x)


ROWS = [
    (
        random_for,
        UnimplementedError,
        r"has no gradient, because it would have to run twice, and .* \(RandomUniform, made",
    ),
    (
        lambda: symbolic(3),
        InvalidArgumentError,
        "SymbolicGradient '.*' of 'f' needs 1 arguments and 1 gradients, got 3",
    ),
    (forward_through_random, UnimplementedError, r"would run '.*' \(RandomUniform, made at .*\) each time.*mode='rev'"),
    (of_a_list, TypeError, "gradients: y '.*' is of dtype variant; give its gradient in grad_ys"),
    (lambda: tf.NotDifferentiable(3), TypeError, "op_type must be a string, got 3"),
]


@pytest.mark.parametrize(("how", "error", "says"), ROWS)
def test_what_is_said(how: Any, error: Any, says: str) -> None:
    with hr.Graph():
        check(how, error, says)


def test_of_values() -> None:
    x = hr.constant(2.0)
    check(lambda: hr.jacobian(x, x), GraphError, "jacobian of values: give the function that computes them, or tensors")


def twice(**fields: Any) -> Any:
    """An op of a third party, y = 2 x, with these fields."""
    given: dict[str, Any] = {
        "shape": same_as(0),
        "kernel": lambda attrs: lambda x: x + x,
        "grad": NOT_DIFFERENTIABLE,
        **fields,
    }
    return hr.register_op("Twice", "x: T", "y: T", {"T": FLOATING}, **given)


def gradient_of(f: Any) -> Any:
    x = open_(hr.float32, 2)
    return hr.gradients(f(x), x)


RULES = [
    (
        lambda: twice(shape=lambda c: [])(open_(hr.float32, 2)),
        ShapeError,
        "the shape rule of Twice gave 0 shapes for 1 outputs",
    ),
    (
        lambda: gradient_of(twice(grad=lambda b, n, dy: [dy, dy])),
        GraphError,
        "the gradient of .*Twice.* gave 2 entries for 1 inputs",
    ),
    (
        lambda: gradient_of(twice(grad=lambda b, n, dy: [b.Sum(dy, 0)])),
        GraphError,
        r"the gradient of 'Twice' \(Twice\).* with respect to its input '.*', which is float32\[2\], is float32\[\]",
    ),
    (
        lambda: gradient_of(twice(grad=lambda b, n, dy: [b.Mul(dy, n.z)])),
        AttributeError,
        "Twice has no argument 'z'",
    ),
    (
        lambda: hr.jvp(twice(jvp=lambda b, n, dx: [dx, dx]), [open_(hr.float32, 2)], [open_(hr.float32, 2)]),
        GraphError,
        "the tangent rule of .*Twice.* gave 2 entries for 1 outputs",
    ),
    (
        lambda: hr.register_op("Odd", "x: T", "y: T", {"T": FLOATING, "n": 1j}, shape=same_as(0), kernel=len, grad=len),
        TypeError,
        "1j describes no attribute",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), RULES)
def test_what_is_said_of_rules(how: Any, error: Any, says: str) -> None:
    with hr.Graph():
        check(how, error, says)
