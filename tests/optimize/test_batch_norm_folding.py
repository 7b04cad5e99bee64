"""Batch normalizations with given statistics are folded into the convolutions before them."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.optimize.batch_norm_folding import FoldBatchNorm
from headrace.optimize.constant_folding import FoldConstants
from tests.optimize.loop_steps import Optimized, close, optimize
from tests.optimize.running import apply, unchanged

RNG = np.random.default_rng(0)
_TEXT = """
x = Placeholder[dtype=float32, shape=[2, 5, 5, 3]]
w = Placeholder[dtype=float32, shape=[2, 2, 3, 4]]
s = Placeholder[dtype=float32, shape=[4]]
o = Placeholder[dtype=float32, shape=[4]]
m = Placeholder[dtype=float32, shape=[4]]
v = Placeholder[dtype=float32, shape=[4]]
b = Placeholder[dtype=float32, shape=[4]]
c = Conv2D[strides=(1, 1, 1, 1), padding="VALID"](x, w)
d = BiasAdd(c, b)
n = FusedBatchNormV3[is_training=false, epsilon=0.5](d, s, o, m, v)
y = _Retval[index=0](n)
"""

_READ = "something else reads the result of the convolution"
_BOUND = "it or its convolution has control edges, is colocated, or is a target"
_DEVICES = "it and its convolution request different devices, or one that is no CPU"


def _made(text: str) -> str:
    return apply(FoldBatchNorm(), text)[0]


def test_the_filter_is_scaled() -> None:
    text = _TEXT.replace("d = BiasAdd(c, b)\n", "").replace("(d, s", "(c, s")
    got = "\n".join(line.partition(" : ")[0] for line in _made(text).splitlines() if "Placeholder" not in line)
    assert (
        got
        == """n/variance/y = Const[value=float32[]{0.5}, dtype=float32]
n/variance = AddV2[T=float32](v, n/variance/y)
n/deviation = Sqrt[T=float32](n/variance)
n/scale = RealDiv[T=float32](s, n/deviation)
c/filter = Mul[T=float32](w, n/scale)
c_1 = Conv2D[T=float32, strides=(1, 1, 1, 1), padding="VALID"](x, c/filter)
n/shift = Mul[T=float32](m, n/scale)
n/bias = Sub[T=float32](o, n/shift)
n_1 = BiasAdd[T=float32](c_1, n/bias)
y = _Retval[T=float32, index=0](n_1)"""
    )


def test_a_bias_is_subtracted_from_the_mean() -> None:
    got = _made(_TEXT)
    assert "n/mean = Sub[T=float32](m, b)" in got
    assert "n/shift = Mul[T=float32](n/mean, n/scale)" in got


@pytest.mark.parametrize("type", ["FusedBatchNorm", "FusedBatchNormV2"])
def test_other_versions(type: str) -> None:
    assert "Norm" not in _made(_TEXT.replace("FusedBatchNormV3", type))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("is_training=false, ", "", ""),
        ('Conv2D[strides=(1, 1, 1, 1), padding="VALID"](x, w)', "Placeholder[dtype=float32, shape=[2, 4, 4, 4]]", ""),
        ("y =", "z = _Retval[index=1](n:1)\ny =", "the statistics that it returns are read"),
        ("y =", "z = _Retval[index=1](d)\ny =", _READ),
        ("y =", "z = _Retval[index=1](c)\ny =", _READ),
        (", s, o, m, v)", ", s, o, m, v) ^b", _BOUND),
        ("(c, b)", "(c, b) ^o", _BOUND),
        ("(x, w)", "(x, w) ^o", _BOUND),
        ("y =", "z = NoOp() ^c\ny =", _BOUND),
        ("y =", "z = NoOp() ^d\ny =", _BOUND),
        ("y =", "z = NoOp() ^n\ny =", _BOUND),
        ("(c, b)", '(c, b) @"/device:CPU:1"', _DEVICES),
        ("(x, w)", '(x, w) @"/device:CPU:1"', _DEVICES),
        ("BiasAdd", 'BiasAdd[data_format="NCHW"]', "it and its convolution have different layouts"),
        ("[2, 5, 5, 3]", "[?, 5, 5, 3]", "its dtype is not float32, or its shapes are unknown"),
        ("[2, 2, 3, 4]", "[5, 5, 3, 4]", "the filter is larger than the result"),
    ],
)  # fmt: skip
def test_another_normalization_stays(old: str, new: str, why: str) -> None:
    assert old in _TEXT
    text = _TEXT.replace(old, new)
    if "NCHW" in new:
        text = text.replace("[4]]\nc =", "[3]]\nc =").replace("[2, 5, 5, 3]", "[2, 4, 4, 3]")
    if why.startswith("the filter"):
        text = text.replace("VALID", "SAME").replace("[2, 5, 5, 3]", "[1, 2, 2, 3]")
    notes = unchanged(FoldBatchNorm(), text).notes
    assert [n.text for n in notes] == ([why] if why else [])


def test_a_target_stays() -> None:
    for name in ("n", "d", "c"):
        assert unchanged(FoldBatchNorm(), _TEXT, preserved=[name]).notes


def test_half_precision_stays() -> None:
    text = _TEXT
    for name in "xwb":
        text = text.replace(f"{name} = Placeholder[dtype=float32", f"{name} = Placeholder[dtype=float16")
    assert [n.text for n in unchanged(FoldBatchNorm(), text).notes] == [
        "its dtype is not float32, or its shapes are unknown"
    ]


def _step(depthwise: bool, bias: bool, constant: bool, layout: str, passes: Any, scale: float = 1.0) -> tuple[Any, ...]:
    dims = [(2, 2, 3, 2 if depthwise else 4), *[(6 if depthwise else 4,)] * 5]
    values = [np.random.default_rng(k).random(d).astype(np.float32) + np.float32(0.1) for k, d in enumerate(dims)]
    values[0] *= np.float32(scale)
    with hr.Graph():
        x = hr.placeholder(hr.float32, (2, 6, 5, 3) if layout == "NHWC" else (2, 3, 6, 5))
        tensors: list[Any] = [hr.constant(a) if constant else hr.placeholder(hr.float32, a.shape) for a in values]
        w, b, *statistics = tensors
        conv: Any = hr.nn.depthwise_conv2d if depthwise else hr.nn.conv2d
        y = conv(x, w, [1, 1, 1, 1], "SAME", data_format=layout)
        if bias:
            y = hr.nn.bias_add(y, b, layout)
        y = hr.nn.fused_batch_norm(y, *statistics, epsilon=0.1, data_format=layout, is_training=False)[0]
        feeds = [x] if constant else [x, *tensors]
        made: Optimized = optimize(feeds, [y], passes)
    given = RNG.standard_normal(x.shape).astype(np.float32)
    return made, [given] if constant else [given, *values]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("depthwise", [False, True])
def test_results_are_the_same(depthwise: bool, bias: bool, constant: bool, layout: str) -> None:
    made, fed = _step(depthwise, bias, constant, layout, [FoldBatchNorm(), FoldConstants()])
    types = collections.Counter(op.type for op in made.graph.operations)
    assert not types["FusedBatchNormV3"]
    assert types["BiasAdd"] == 1
    assert bool(types["Sqrt"]) is not constant
    close(made.run(fed), _step(depthwise, bias, constant, layout, ())[0].run(fed), 1e-5)


def test_a_constant_filter_that_would_overflow_stays() -> None:
    for depthwise in (False, True):
        made, _ = _step(depthwise, True, True, "NHWC", [FoldBatchNorm()], 3e38)
        assert [n.text for n in made.context.notes] == ["the filter would overflow"]


def test_a_constant_filter_may_be_large() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, (1, 1, 1, 8))
        w = hr.constant(np.ones((1, 1, 8, 8), np.float32))
        s = [hr.constant(np.ones(8, np.float32)) for _ in range(4)]
        y = hr.nn.fused_batch_norm(hr.nn.conv2d(x, w, 1, "SAME"), *s, is_training=False)[0]
        assert optimize([x], [y], [FoldBatchNorm()]).fired("batch_norm")


def test_the_gradient_keeps_the_normalization() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, (2, 4, 4, 3))
        ins: list[Any] = [hr.placeholder(hr.float32, d) for d in ((1, 1, 3, 4), (4,), (4,), (4,), (4,))]
        y = hr.nn.fused_batch_norm(hr.nn.conv2d(x, ins[0], 1, "SAME"), *ins[1:], is_training=False)[0]
        grads = hr.gradients(hr.reduce_sum(y * y), ins[:3])
        found = optimize([x, *ins], [y, *grads], [FoldBatchNorm()]).refused("batch_norm")
    assert [why.partition(": ")[2] for why in found] == ["the statistics that it returns are read"]
