"""An operation on all rows at once gives each row its own result.

The result for a row is the one that the operation gives for that row alone.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.text import from_text
from headrace.optimize.batching_rules import batch, can_batch
from tests.optimize.loop_steps import optimize

_CONSTANTS = """
zero = Const[value=int32[]{0}, dtype=int32]
one = Const[value=int32[]{1}, dtype=int32]
minus = Const[value=int32[]{-1}, dtype=int32]
ends = Const[value=int32[2]{0, -1}, dtype=int32]
many = Const[value=int64[1]{1}, dtype=int64]
sizes = Const[value=int32[2]{1, 2}, dtype=int32]
begin = Const[value=int32[2]{0, 1}, dtype=int32]
size = Const[value=int32[2]{2, -1}, dtype=int32]
turn = Const[value=int32[2]{-1, 0}, dtype=int32]
turn3 = Const[value=int32[3]{2, 0, 1}, dtype=int32]
none = Const[value=int32[0]{}, dtype=int32]
six = Const[value=int32[1]{6}, dtype=int32]
xsix = Const[value=int32[1]{6}, dtype=int32]
three = Const[value=int32[2]{3, -1}, dtype=int32]
thin = Const[value=int32[2]{4, 2}, dtype=int32]
"""
_N = 3  # rows


def made(line: str, *inputs: str) -> tuple[Graph, Operation, list[bool]]:
    """Returns the graph, the operation of a line, and whether each input is a row.

    An input is written as `name: type`; the inputs whose names begin with x are rows.
    """
    lines = [
        f"{n} = Placeholder[dtype={d}, shape={s}]"
        for n, d, s in (re.match(r"(\w+): (\w+)(.*)", i).groups() for i in inputs)
    ]
    graph = from_text(_CONSTANTS + "\n".join(lines) + f"\n{line}")
    op = graph.get_operation_by_name(line.split(" ")[0])
    return graph, op, [t.op.name.startswith("x") for t in op.inputs]


def drawn(t: Tensor, more: tuple[int, ...] = ()) -> np.ndarray:
    """A value for a placeholder, `more` dimensions in front."""
    shape = [2 if d is None else d for d in t.shape or ()]
    rng = np.random.default_rng(len(shape) + sum(map(ord, t.op.name)))
    return rng.standard_normal((*more, *shape)).astype(t.dtype.base.numpy)


@pytest.mark.parametrize(
    "case",
    [
        "y = Tanh(x); x: float32[2,3]",
        "y = Tanh(x); x: float32[]",
        "y = Softmax(x); x: float32[2,3]",
        "y = AddV2(x, x2); x: float32[2,3]; x2: float32[2,3]",
        "y = AddV2(x, c); x: float32[2,3]; c: float32[3]",
        "y = AddV2(c, x); x: float32[2,3]; c: float32[2,1]",
        "y = AddV2(x, x2); x: float32[2,1]; x2: float32[1,3]",
        "y = TanhGrad(x, x2); x: float32[2,3]; x2: float32[2,3]",
        "y = MatMul(x, w); x: float32[2,3]; w: float32[3,4]",
        "y = MatMul(x, w); x: float32[?,3]; w: float32[3,4]",
        "y = MatMul[transpose_b=true](x, w); x: float32[2,3]; w: float32[4,3]",
        "y = BiasAdd(x, b); x: float32[2,3]; b: float32[3]",
        "y = ConcatV2(x, x2, one); x: float32[2,3]; x2: float32[2,1]",
        "y = ConcatV2(x, x2, minus); x: float32[2,3]; x2: float32[2,1]",
        "y = ConcatV2(x, x2, zero); x: float32[2,3]; x2: float32[1,3]",
        "y = Split[num_split=2](zero, x); x: float32[2,3]",
        "y = Split[num_split=3](minus, x); x: float32[2,3]",
        "y = SplitV[num_split=2](x, sizes, one); x: float32[2,3]",
        "y = SplitV[num_split=2](x, sizes, minus); x: float32[2,3]",
        "y = Slice(x, begin, size); x: float32[2,3]",
        "y = Transpose(x, turn); x: float32[2,3]",
        "y = Transpose(x, turn3); x: float32[2,3,1]",
        "y = Transpose(x, none); x: float32[]",
        "y = Reshape(x, six); x: float32[2,3]",
        "y = Reshape(x, three); x: float32[2,3]",
        "y = ExpandDims(x, one); x: float32[2,3]",
        "y = ExpandDims(x, minus); x: float32[2,3]",
        "y = Squeeze(x); x: float32[2,1,3]",
        "y = Sum(x, zero); x: float32[2,3]",
        "y = Sum(x, many); x: float32[2,3]",
        "y = Sum[keep_dims=true](x, minus); x: float32[2,3]",
        "y = Mean(x, ends); x: float32[2,3]",
        "y = Max(x, zero); x: float32[2,3]",
        "y = Min(x, ends); x: float32[2,3]",
        "y = Prod(x, minus); x: float32[2,3]",
        "y = LogSoftmax(x); x: float32[2,3]",
    ],
)
def test_all_rows_at_once(case: str) -> None:
    line, *inputs = case.split("; ")
    graph, op, rows = made(line, *inputs)
    assert can_batch(op, rows)
    b = Builder(graph)
    feeds = [t for t in op.inputs if t.op.type == "Placeholder"]
    stacks = [
        b.Placeholder(dtype=t.dtype, shape=(_N, *(t.shape or ()))) if r else t
        for t, r in zip(op.inputs, rows, strict=True)
    ]
    out = list(batch(b, op, stacks, rows))
    given = {t: drawn(t, (_N,) if r else ()) for t, r in zip(op.inputs, rows, strict=True) if t in feeds}
    fed = [s for s, t in zip(stacks, op.inputs, strict=True) if t in feeds]
    whole = optimize(fed, out, ()).run([given[t] for t in feeds])
    alone = optimize(feeds, op.outputs, ())
    for k in range(_N):
        mine = alone.run([given[t][k] if t.op.name.startswith("x") else given[t] for t in feeds])
        for got, want in zip(whole, mine, strict=True):
            np.testing.assert_allclose(np.asarray(got)[k], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "case",
    [
        "y = Tanh(c); c: float32[2,3]",  # no rows
        "y = FloorDiv(x, x2); x: int32[2]; x2: int32[2]",  # it may fail
        "y = AddV2(x, c); x: float32[3]; c: float32[2,3]",
        "y = AddV2(x, x2); x: float32[3]; x2: float32[2,3]",
        "y = AddV2(x, c); x: float32<unknown>; c: float32[3]",
        "y = Tanh(x); x: float32<unknown>",
        "y = TanhGrad(x, c); x: float32[2,3]; c: float32[2,3]",
        "y = Pack[N=2](x, x2); x: float32[2]; x2: float32[2]",
        "y = Select(x, x2, x3); x: bool[2]; x2: float32[2,3]; x3: float32[2,3]",
        "y = Cumsum(x, zero); x: float32[2,3]",
        "y = MatMul(c, x); x: float32[3,4]; c: float32[2,3]",
        "y = MatMul(x, x2); x: float32[2,3]; x2: float32[3,4]",
        "y = MatMul[transpose_a=true](x, w); x: float32[3,2]; w: float32[3,4]",
        "y = MatMul(x, w); x: float32[2,0]; w: float32[0,4]",
        "y = MatMul(x, w); x: float32[2,3]; w: float32[3,?]",
        "y = MatMul(x, w); x: float32[2,?]; w: float32[?,4]",
        "y = MatMul(x, w); x: float32[2,3]; w: float32<unknown>",
        "y = MatMul(x, w); x: float32<unknown>; w: float32[3,4]",
        "y = BiasAdd(x, x2); x: float32[2,3]; x2: float32[3]",
        "y = BiasAdd(c, x2); c: float32[2,3]; x2: float32[3]",
        "y = BiasAdd[data_format=\"NCHW\"](x, b); x: float32[2,3,4,5]; b: float32[3]",
        "y = ConcatV2(x, c, one); x: float32[2,3]; c: float32[2,3]",
        "y = Split[num_split=2](xk, x); xk: int32[]; x: float32[2,2]",
        "y = Sum(x, k); x: float32[2,3]; k: int32[]",
        "y = Sum(x, zero); x: float32<unknown>",
        "y = Reshape(x, s); x: float32[2,3]; s: int32[2]",
        "y = Reshape(x, three); x: float32<unknown>",
        "y = Reshape(x, xsix); x: float32[2,3]",
        "y = Reshape(x, three); x: float32[?,3]",
        "y = ExpandDims(x, one); x: float32[?,3]",
        "y = Squeeze(x); x: float32<unknown>",
        "y = ExpandDims(x, zero); x: float32<unknown>",
    ],
)  # fmt: skip
def test_row_by_row_only(case: str) -> None:
    line, *inputs = case.split("; ")
    _, op, rows = made(line, *inputs)
    assert not can_batch(op, rows)


# *** on the rows of a product ***


def _after_product(work: str, *inputs: str) -> list[str]:
    """Types of the operations of a product `y` and of `work`, for all rows."""
    lines = ["y = MatMul(x, w)", *work.split(" | ")]
    graph, _, _ = made("\n".join(lines), "x: float32[2,3]", "w: float32[3,4]", *inputs)
    feeds = [op.outputs[0] for op in graph.operations if op.type == "Placeholder"]
    wanted = [graph.get_operation_by_name(line.split(" ")[0]) for line in lines]
    known, b = len(graph.operations), Builder(graph)
    whole = {t: b.Placeholder(dtype=t.dtype, shape=(_N, *t.shape)) for t in feeds if t.op.name.startswith("x")}
    given = {t: drawn(t, (_N,) if t in whole else ()) for t in feeds}
    stacks = [whole.get(t, t) for t in feeds]
    for op in wanted:
        rows = [t in whole for t in op.inputs]
        assert can_batch(op, rows)
        whole.update(zip(op.outputs, batch(b, op, [whole.get(t, t) for t in op.inputs], rows), strict=True))
    end = wanted[-1].outputs[0]
    types = [op.type for op in graph.operations[known:] if op.type not in ("Const", "Placeholder")]
    (got,) = optimize(stacks, [whole[end]], ()).run(list(given.values()))
    alone = optimize(feeds, [end], ())
    for k in range(_N):
        (want,) = alone.run([v[k] if t.op.name.startswith("x") else v for t, v in given.items()])
        np.testing.assert_allclose(got[k], want, rtol=1e-5, atol=1e-6)
    return types


@pytest.mark.parametrize(
    ("work", "inputs", "types"),
    [
        ("z = AddV2(y, b)", ["b: float32[4]"], ["AddV2"]),
        ("z = AddV2(b, y)", ["b: float32[]"], ["AddV2"]),
        ("z = Tanh(y)", [], ["Tanh"]),
        ("z = Mul(y, y)", [], ["Mul"]),
        ("u = AddV2(y, b) | z = Sigmoid(u)", ["b: float32[4]"], ["AddV2", "Reshape", "Sigmoid"]),
    ],
)
def test_elementwise_work_on_a_product_precedes_the_reshape_to_rows(
    work: str, inputs: list[str], types: list[str]
) -> None:
    assert _after_product(work, *inputs) == ["Reshape", "MatMul", "Reshape", *types, "Reshape"]


@pytest.mark.parametrize(
    ("work", "inputs"),
    [
        ("z = AddV2(y, b)", ["b: float32[2,4]"]),
        ("z = AddV2(y, b)", ["b: float32[2,1]"]),
        ("z = AddV2(y, x2)", ["x2: float32[2,4]"]),
    ],
)
def test_work_with_other_rows_or_matrices_follows_the_reshape_to_rows(work: str, inputs: list[str]) -> None:
    assert _after_product(work, *inputs) == ["Reshape", "MatMul", "Reshape", "AddV2"]


def test_reshapes_to_rows_of_another_width_stay() -> None:
    work = "v = Reshape(y, three) | z = AddV2(v, b)"
    assert _after_product(work.replace("three", "thin"), "b: float32[2]")[-1] == "AddV2"
