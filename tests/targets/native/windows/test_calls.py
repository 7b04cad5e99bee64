"""Convolutions and poolings in loops and conditionals are native, with the results of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import dtypes, flags
from headrace.api import scopes
from headrace.ir.builder import Builder
from headrace.ir.opdef import op_registry
from headrace.opkit.forms import Window, form_of
from headrace.targets.native import engine
from tests.ops import cases
from tests.targets.native import region_running as running

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

OPS = [r.type for r in cases.records() if r.form is not None and "window_forms" in getattr(r.form, "__module__", "")]


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("type", OPS)
def test_an_operation_in_a_branch(type: str, dtype: str) -> None:
    record, found = op_registry.get(type), 0
    for case in cases.cases(type, dtypes.as_dtype(dtype)):
        with hr.Graph():
            is_there, feeds = hr.placeholder(hr.bool, ()), {}
            inputs = []
            for x in cases.flat(case.inputs):
                is_data = x.dtype == np.dtype(dtype)
                inputs.append(hr.placeholder(hr.as_dtype(dtype), x.shape) if is_data else hr.constant(x))
                if is_data:
                    feeds[inputs[-1]] = x
            y = cases.make(Builder(inputs[-1].graph), record, case, inputs).outputs[0]
            if not isinstance(form_of(y.op), Window):
                continue
            found += 1
            there = lambda case=case, inputs=inputs: cases.make(scopes.builder(), record, case, inputs).outputs[0]
            chosen = hr.cond(is_there, there, lambda y=y: hr.zeros(y.shape, y.dtype))
            running.run(chosen, feeds | {is_there: True}, near)
    assert found


def _cell(x: Any, h: Any, w: Any) -> Any:
    return hr.tanh(hr.nn.conv2d(hr.concat([x, h], 3), w, strides=[1, 1, 1, 1], padding="SAME"))


def _first(f: Callable[[Any], Any], h: Any) -> Any:
    """The result for images with the channels first, with the channels last."""
    return hr.transpose(f(hr.transpose(h, [0, 3, 1, 2])), [0, 2, 3, 1])


def _depthwise_first(h: Any, w: Any) -> Any:
    return _first(lambda z: hr.nn.depthwise_conv2d(z, w, [1, 1, 1, 1], "SAME", data_format="NCHW"), h)


LOOPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "channels first": lambda x, h, w: hr.tanh(
        _first(lambda z: hr.nn.conv2d(z, w[:, :, :2], strides=1, padding="SAME", data_format="NCHW"), h) + x
    ),
    "maximum, channels first": lambda x, h, w: (
        _first(lambda z: hr.nn.max_pool2d(z, [2, 3], 1, "SAME", data_format="NCHW"), h) * 0.5 + x
    ),
    "mean, channels first": lambda x, h, w: (
        _first(lambda z: hr.nn.avg_pool2d(z, 3, 1, "SAME", data_format="NCHW"), h) * 0.5 + x
    ),
    "several filters": lambda x, h, w: hr.tanh(
        hr.nn.depthwise_conv2d(h + x, w[:, :, :2], [1, 1, 1, 1], "SAME")[..., 1:3]
    ),
    "several filters, channels first": lambda x, h, w: hr.tanh(_depthwise_first(h + x, w[:, :, :2])[..., ::2]),
    "convolution": _cell,
    "strides": lambda x, h, w: hr.tanh(
        hr.nn.conv2d_transpose(
            hr.nn.conv2d(h, w[:, :, :2], strides=[1, 2, 2, 1], padding="SAME"), w[:, :, :2], (2, 4, 5, 2), [1, 2, 2, 1]
        )
        + x
    ),
    "depthwise": lambda x, h, w: hr.tanh(hr.nn.depthwise_conv2d(h + x, w[:, :, :2, :1], [1, 1, 1, 1], "SAME")),
    "line": lambda x, h, w: hr.tanh(hr.nn.conv1d(h[:, 0], w[0, :, :2], stride=1, padding="SAME")[:, None] + x),
    "maximum": lambda x, h, w: hr.nn.max_pool2d(h * 0.9 + x, [2, 3], [1, 1], "SAME") - _cell(x, h, w),
    "mean": lambda x, h, w: hr.nn.avg_pool2d(hr.tanh(h + x), [3, 2], [1, 1], "SAME"),
    "transposed images": lambda x, h, w: hr.transpose(
        _cell(hr.transpose(x, [0, 2, 1, 3]), hr.transpose(h, [0, 2, 1, 3]), w), [0, 2, 1, 3]
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("verify", [0, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_native_with_its_gradient(name: str, verify: int) -> None:
    rng = np.random.default_rng(0)
    with hr.Graph(), flags.override(VERIFY=verify):
        xs, w, h = (hr.placeholder(hr.float32, s) for s in ((3, 2, 4, 5, 2), (3, 2, 4, 2), (2, 4, 5, 2)))
        feeds = {x: (rng.normal(size=tuple(x.shape)) / 2).astype(np.float32) for x in (xs, w, h)}
        step = LOOPS[name]
        last = hr.while_loop(lambda t, h: t < 3, lambda t, h: (t + 1, step(xs[t], h, w)), (0, h))[1]
        loss = hr.reduce_sum(hr.square(last))
        slopes = [g for g in hr.gradients(loss, [xs, w, h]) if g is not None]
        running.run(
            [loss, *slopes], feeds, lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        )


def test_a_convolution_outside_of_loops_calls_its_kernel() -> None:
    with hr.Graph():
        x, w = hr.placeholder(hr.float32, (1, 4, 4, 2)), hr.placeholder(hr.float32, (3, 3, 2, 2))
        y = hr.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME")
        with running.compared(near) as seen, hr.Session(engine="compiled") as session:
            session.run(y, {x: np.ones((1, 4, 4, 2)), w: np.ones((3, 3, 2, 2))})
        assert seen.reasons == ["Conv2D calls its kernel"]
