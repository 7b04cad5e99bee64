"""Random programs of one example: mapped, they give what each example alone gives, gradients included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.vmap.alone import as_array, of_each

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

# Steps of a program: functions of the state, a vector of 3, and of a second argument of the same shape.
STEPS: dict[str, Any] = {
    "tanh": lambda x, y: hr.tanh(x * y),
    "add": lambda x, y: x + y[0],
    "product": lambda x, y: hr.matvec(hr.expand_dims(y, 1) * hr.expand_dims(x, 0), x) * 0.3,
    "outer": lambda x, y: hr.reduce_sum(hr.tensordot(x, y, 0), 0),
    "cond": lambda x, y: hr.cond(hr.reduce_sum(x) > y[1], lambda: hr.sqrt(hr.abs(x) + 1.0), lambda: x * 0.5 - y),
    "nested cond": lambda x, y: hr.cond(
        x[0] > 0.0, lambda: hr.cond(y[0] > 0.0, lambda: x * 2.0, lambda: hr.exp(-x * x)), lambda: hr.reverse(x, [0])
    ),
    "counted": lambda x, y: hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, hr.sin(a + y)), (0, x))[1],
    "until": lambda x, y: hr.while_loop(
        lambda i, a: hr.logical_and(hr.reduce_sum(a * a) < 4.0, i < 5), lambda i, a: (i + 1, a * 1.5 + 0.1), (0, x)
    )[1],
    "scan": lambda x, y: hr.scan(lambda a, r: a * 0.5 + r, x * y),
    "map": lambda x, y: hr.map_fn(lambda r: hr.cond(r > 0.0, lambda: r * r, lambda: r), x),
    "gather": lambda x, y: hr.gather(x, [2, 0, 1]) + hr.gather(y, hr.cast(hr.argmax(x), hr.int32)),
    "softmax": lambda x, y: hr.nn.softmax(x) * 3.0,
    "sort": lambda x, y: hr.sort(x) - hr.reduce_max(y),
    "stack": lambda x, y: hr.reshape(hr.transpose(hr.stack([x, y])), [2, 3])[1],
    "where": lambda x, y: hr.where(x > y, x, y * 0.1),
    "cumsum": lambda x, y: hr.cumsum(x, reverse=True) * 0.5,
    "pad": lambda x, y: hr.pad(x[1:], [[0, 1]]) + y,
}  # fmt: skip
PROGRAMS = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)


def program(names: list[str]) -> Any:
    def f(x: Any, y: Any) -> Any:
        for name in names:
            x = STEPS[name](x, y)
        return hr.reduce_sum(hr.sin(x)), x

    return f


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(PROGRAMS, st.integers(0, 2**16), st.sampled_from([(0, 0), (0, None), (None, 1), (1, 0)]))
def test_a_random_program(names: list[str], seed: int, in_axes: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(seed)
    args = tuple(
        rng.normal(size=(3,) if axis is None else np.insert([3], axis, 4)).astype(np.float32) for axis in in_axes
    )
    f = program(names)
    mapped = hr.vmap(f, in_axes=in_axes)
    for got, want in zip(mapped(*args), of_each(f, args, in_axes), strict=True):
        np.testing.assert_allclose(as_array(got), want, rtol=2e-4, atol=1e-4)
    gradient = hr.grad(lambda x, y: f(x, y)[0], (0, 1))
    wants = of_each(gradient, args, in_axes)
    for got, want in zip(hr.vmap(gradient, in_axes=in_axes)(*args), wants, strict=True):
        np.testing.assert_allclose(as_array(got), want, rtol=2e-3, atol=1e-3)
    total = hr.grad(lambda x, y: hr.reduce_sum(mapped(x, y)[0]), (0, 1))(*args)
    for got, want, axis in zip(total, wants, in_axes, strict=True):
        whole = want.sum(0) if axis is None else np.moveaxis(want, 0, axis)
        np.testing.assert_allclose(as_array(got), whole, rtol=2e-3, atol=2e-3)
