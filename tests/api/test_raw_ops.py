"""Every op type by keyword."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.api import raw_ops
from headrace.ir.opdef import op_registry


def test_every_op_type_is_there() -> None:
    assert set(dir(raw_ops)) == set(op_registry)
    for type in op_registry:
        function = getattr(raw_ops, type)
        assert function.__name__ == type
        assert f"tf.raw_ops.{type}" in function.__doc__
        assert all(a.name in function.__doc__ for a in op_registry.get(type).ins)


def test_calls() -> None:
    with hr.Graph() as g:
        y = raw_ops.MatMul(a=[[1.0, 2.0]], b=[[3.0, 4.0]], transpose_b=True, name="product")
        parts = raw_ops.Unpack(value=[1, 2], num=2)
        nothing = raw_ops.NoOp()
    assert (y.op.name, [t.op.name for t in y.op.inputs]) == ("product", ["product/a", "product/b"])
    assert isinstance(nothing, hr.Operation)
    assert hr.Session(graph=g).run([y, *parts])[0].tolist() == [[11]]


def test_outside_a_graph() -> None:
    assert np.array_equal(raw_ops.AddV2(x=[1, 2], y=3), [4, 5])


def test_raw_ops_name_the_missing_argument() -> None:
    with pytest.raises(AttributeError, match="no op type of that name is registered"):
        raw_ops.NoSuchOp
    with hr.Graph():
        with pytest.raises(TypeError, match=r"AddV2 takes the keyword arguments x, y, name=None; missing \['y'\]"):
            raw_ops.AddV2(x=1)
        with pytest.raises(TypeError, match=r"unknown \['z'\]"):
            raw_ops.AddV2(x=1, y=2, z=3)
        with pytest.raises(TypeError, match="positional"):
            raw_ops.AddV2(1, 2)
