"""Operations that cannot fail succeed on every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace  # noqa: F401 - registers the ops
from headrace import dtypes
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.kernel import constant_kernel
from headrace.ir.opdef import OpDef, op_registry
from headrace.ir.text import from_text

# Copies to and from a far memory (`begins`) need a device that has one: tests/devices/test_far_memory.py.
TOTAL = sorted(r.type for r in map(op_registry.get, op_registry) if r.facts.total is not None and not r.facts.begins)
SOME = (dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.bool_, dtypes.complex64, dtypes.float16)


def nasty(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """An array like another, of the values that make operations fail."""
    dtype = array.dtype
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values: list[Any] = [0, 1, info.max, info.min, info.max // 2]
    elif dtype.kind == "b":
        values = [True, False]
    else:
        values = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -3.5, 1e4]
    return rng.choice(np.array(values).astype(dtype), array.shape)


@pytest.mark.matrix
@pytest.mark.parametrize("type", TOTAL)
def test_no_values_make_it_fail(type: str) -> None:
    record: OpDef = op_registry.get(type)
    rng = np.random.default_rng(1)
    tried = 0
    assert record.sample is not None
    for dtype in SOME:
        try:
            cases = list(record.sample(rng, dtype))
        except (TypeError, ValueError, KeyError):
            continue
        for case in cases:
            flat = [a for x in case.inputs for a in (x if isinstance(x, list) else [x])]
            if any(np.asarray(a).dtype.kind not in "biufcV" for a in flat):
                continue
            b = Builder(Graph())
            args = [[b.const(a) for a in x] if isinstance(x, list) else b.const(x) for x in case.inputs]
            try:
                made = b.make(type, args, dict(case.attrs))
            except Exception:  # a dtype that the op does not have
                continue
            op = (made[0] if isinstance(made, (tuple, list)) else made).op
            if not is_speculatable(op):
                continue
            spans = record.spans(op.attrs)
            fixed = {i for name in record.facts.total or () for i in range(spans[name].start, spans[name].stop)}
            kernel = constant_kernel(op)
            assert kernel is not None
            for _ in range(3):
                values = [a if i in fixed else nasty(rng, np.asarray(a)) for i, a in enumerate(flat)]
                with np.errstate(all="ignore"):
                    kernel(*values)
            tried += 1
    assert tried, "no case was tried"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("AddV2(f, f)", True),
        ("AddV2(f, b)", True),
        ("AddV2(f, g)", False),  # the sizes may differ
        ("AddV2(f, u)", False),
        ("Neg(u)", False),
        ("Identity(u)", True),
        ("Shape(u)", True),
        ("MatMul(f, w)", True),
        ("MatMul(w, f)", False),
        ("MatMul[transpose_a=true](f, f)", True),
        ("MatMul[transpose_a=true](f, g)", False),
        ("FloorDiv(i, i)", False),
        ("FloorDiv(f, f)", True),
        ("Pow(i, i)", False),
        ("Reshape(f, s)", True),
        ("Reshape(f, t)", False),
        ("Reshape(f, i)", False),
        ("Slice(f, z, s)", True),
        ("Slice(f, o, s)", False),  # there may be no row 1
        ("Slice(w, o, s)", True),
        ("Sum(f, i0)", True),
        ("Sum(f, i)", False),
        ("GatherV2(f, i, i0)", False),
        ('CheckNumerics[message=""](f)', False),
        ("RandomUniform[dtype=float32](s)", False),
    ],
)
def test_of_what_is_known(line: str, want: bool) -> None:
    g = from_text(f"""
    f = Placeholder[dtype=float32, shape=[?,3]]
    g = Placeholder[dtype=float32, shape=[?,3]]
    u = Placeholder[dtype=float32]
    b = Placeholder[dtype=float32, shape=[3]]
    w = Placeholder[dtype=float32, shape=[3,4]]
    i = Placeholder[dtype=int32, shape=[2]]
    i0 = Const[value=int32[]{{0}}, dtype=int32]
    s = Const[value=int32[2]{{-1, 3}}, dtype=int32]
    t = Const[value=int32[2]{{-1, 4}}, dtype=int32]
    z = Const[value=int32[2]{{0, 0}}, dtype=int32]
    o = Const[value=int32[2]{{1, 0}}, dtype=int32]
    y = {line}
    """)
    assert is_speculatable(g.get_operation_by_name("y")) is want
