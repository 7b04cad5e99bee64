"""Static bounds of values."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.ir.analysis.value_range import value_range
from headrace.ir.builder import Builder
from headrace.ir.opdef import op_registry
from headrace.ir.text import from_text

HEAD = """\
x = Placeholder[dtype=float32, shape=[3]]
t = Tanh(x)
s = Sigmoid(x)
one = Const[value=float32[]{1}, dtype=float32]
"""


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("y = Identity(x)", None),
        ("y = Identity(t)", (-1, 1)),
        ("y = Neg(s)", (-1, 0)),
        ("y = Square(t)", (0, 1)),
        ("y = Mul(t, t)", (0, 1)),
        ("y = Mul(t, s)", (-1, 1)),
        ("y = Mul(t, x)", None),
        ("y = Mul(x, t)", None),
        ("y = Sub(one, s)", (0, 1)),
        ("y = Sub(s, t)", (-1, 2)),
        ("y = AddV2(s, t)", (-1, 2)),
        ("y = AddV2(x, t)", None),
        ("y = Exp(t)", None),
        ("y = Const[value=float32[2]{-2, 0.5}, dtype=float32]", (-2, 0.5)),
        ("y = Const[value=float32[0]{}, dtype=float32]", None),
        ("y = Const[value=bool[]{true}, dtype=bool]", None),
        ("u = AddV2(s, one)\ny = Square(u)", (1, 4)),
        ("u = Neg(s)\nv = Sub(u, one)\ny = Square(v)", (1, 4)),
    ],
)
def test_bounds(line: str, want: tuple[float, float] | None) -> None:
    graph = from_text(HEAD + line)
    assert value_range(graph.get_tensor_by_name("y:0")) == want


def test_integers_wrap_around() -> None:
    two = "Const[value=int32[]{2000000000}, dtype=int32]"
    graph = from_text(f"a = {two}\ny = AddV2(a, a)")
    assert value_range(graph.get_tensor_by_name("y:0")) in (None, (-294967296, -294967296))


def test_elements_of_lists() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [3])
        h = hr.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, hr.tanh(h) + 1.0), (0, x))[1]
        hr.gradients(h, [x])
        back = next(op for op in g.operations if op.type == "StatelessWhile" and "grad" in op.name)
        popped = [op.outputs[1] for op in back.attrs["body"].operations if op.type == "TensorListPopBack"]
    assert [value_range(t, back) for t in popped] == [(-1, 1)]
    assert [value_range(t) for t in popped] == [None]


@pytest.mark.parametrize("type", [n for n in op_registry if op_registry.get(n).facts.within is not None])
def test_records_tell_the_truth(type: str) -> None:
    values = np.concatenate([np.linspace(-40, 40, 1001), [np.inf, -np.inf, 0.0, -0.0, 1e-30, 1e30]])
    low, high = op_registry.get(type).facts.within or (0, 0)
    for dtype in (np.float32, np.float64):
        with hr.Graph() as g:
            x = hr.constant(values.astype(dtype))
            got = hr.Session(graph=g).run(Builder(g).make(type, (x,), {}))
        got = got[~np.isnan(got)]
        assert low <= got.min()
        assert got.max() <= high


@pytest.mark.parametrize("type", [n for n in op_registry if op_registry.get(n).facts.slope is not None])
def test_slopes_are_what_the_derivative_multiplies_by(type: str) -> None:
    y, dy = np.linspace(0.1, 0.9, 9), np.linspace(-2, 2, 9)
    with hr.Graph() as g:
        b = Builder(g)
        t = hr.constant(y)
        slope = op_registry.get(type).facts.slope
        assert slope is not None
        both = b.make(type, (t, hr.constant(dy)), {}), b.Mul(hr.constant(dy), slope(b, t))
        got, want = hr.Session(graph=g).run(both)
    np.testing.assert_allclose(got, want, rtol=1e-14)
