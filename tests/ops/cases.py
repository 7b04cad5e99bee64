"""Test support for op records: cases of the registry, kernels called by hand, small gradients.

There is no engine here: a graph is evaluated by calling the pure kernels in topological order, and differentiated by a
reverse walk of a few lines, so that what is tested is the records and nothing else.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import headrace.ops
from headrace import dtypes
from headrace.dtypes import DType
from headrace.grad.backward import backward
from headrace.grad.sums import dense
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.kernel import find_kernel
from headrace.ir.opdef import Case, OpDef, op_registry

assert headrace.ops  # importing it is what fills the registry

RTOL = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-5, "complex64": 2e-5, "float16": 3e-3, "bfloat16": 2e-2}


def records() -> list[OpDef]:
    """All records, by name."""
    return [op_registry.get(name) for name in sorted(op_registry)]


def first_types(record: OpDef) -> list[DType]:
    """The dtypes that the first type attribute allows.

    A record without such an attribute gets a stand-in.
    """
    for spec in record.attrs.values():
        if spec.kind == "type" and not spec.is_list:
            allowed = dtypes.ALL if spec.allowed is None else spec.allowed
            return sorted(allowed, key=lambda d: d.number)
    return [dtypes.float32]


@functools.cache
def cases(type: str, dtype: DType) -> list[Case]:
    """The cases of an op and dtype, the same ones every time."""
    record = op_registry.get(type)
    if record.sample is None:
        return []
    rng = np.random.default_rng(zlib.crc32(f"{type} {dtype}".encode()))
    return list(record.sample(rng, dtype))


def sampled() -> list[tuple[str, DType]]:
    """Each op with each dtype that its sampler has cases for."""
    return [(r.type, d) for r in records() if r.sample is not None for d in first_types(r) if cases(r.type, d)]


def first_sampled() -> dict[str, DType]:
    """Each op with a sampler, with the first dtype that the sampler has cases for."""
    found = {r.type: next((d for d in first_types(r) if cases(r.type, d)), None) for r in records()}
    return {type: dtype for type, dtype in found.items() if dtype is not None}


def flat(inputs: Iterable[Any]) -> list[np.ndarray]:
    """The inputs of a case, list arguments spread out."""
    out: list[np.ndarray] = []
    for x in inputs:
        out.extend(map(np.asarray, x) if isinstance(x, (list, tuple)) else [np.asarray(x)])
    return out


def dtype_of(x: np.ndarray) -> DType:
    """The dtype of an array of a case: numpy's, unless it is marked (`opkit.testing.samples.meant_as`)."""
    marked = (x.dtype.metadata or {}).get("headrace")
    return dtypes.from_numpy(x.dtype) if marked is None else dtypes.as_dtype(marked)


def regroup(inputs: Iterable[Any], tensors: Sequence[Any]) -> list[Any]:
    """`tensors`, one for each flat input, in the argument structure of `inputs`."""
    rest = iter(tensors)
    return [[next(rest) for _ in x] if isinstance(x, (list, tuple)) else next(rest) for x in inputs]


def placeholder(b: Builder, x: np.ndarray, shape: Any) -> Tensor:
    out: Tensor = b.Placeholder(dtype=dtype_of(x), shape=shape)
    return out


def make(b: Builder, record: OpDef, case: Case, inputs: Sequence[Tensor]) -> Operation:
    """The op of a case on the given tensors."""
    made = b.make(record.type, regroup(case.inputs, inputs), dict(case.attrs))
    if isinstance(made, Operation):
        return made
    out: Operation = made.op if isinstance(made, Tensor) else made[0].op
    return out


def constant_op(record: OpDef, case: Case) -> Operation:
    """The op of a case in a graph of its own, its inputs constants."""
    b = Builder(Graph())
    return make(b, record, case, [b.const(x, dtype_of(x)) for x in flat(case.inputs)])


def open_op(record: OpDef, case: Case, shape: Callable[[np.ndarray], Any]) -> Operation:
    """The op of a case in a graph of its own.

    Its inputs are placeholders of the static shape `shape(array)`.
    """
    b = Builder(Graph())
    return make(b, record, case, [placeholder(b, x, shape(x)) for x in flat(case.inputs)])


def kernel_of(op: Operation) -> Callable[..., Any]:
    """The pure kernel of an op on the CPU."""
    found = find_kernel(op)
    assert found is not None, f"no kernel for {op.type}"
    assert found.form == "pure", f"{op.type} is not pure"
    return found.factory(np, op.attrs)


def run_kernel(op: Operation, args: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of one firing, as a tuple."""
    with np.errstate(all="ignore"):
        out = kernel_of(op)(*args)
    if len(op.outputs) == 1:
        return (out,)
    return () if out is None else tuple(out)


def evaluate(wanted: Sequence[Tensor], fed: Mapping[Tensor, Any]) -> list[Any]:
    """The values of tensors, computed by their pure kernels one after the other."""
    values: dict[Tensor, Any] = dict(fed)
    for op in walk.toposort(sorted(walk.reachable([t.op for t in wanted], set(fed)), key=lambda o: o.id)):
        if not all(t in values for t in op.outputs):
            values.update(zip(op.outputs, run_kernel(op, [values[t] for t in op.inputs]), strict=True))
    return [values[t] for t in wanted]


def gradients(b: Builder, ys: Sequence[Tensor], dys: Sequence[Tensor | None], xs: Sequence[Tensor]) -> list[Any]:
    """The gradients by `xs`, computed by the rules of the records.

    The gradient is None for a tensor of `xs` without a path to `ys`.
    """
    return [None if g is None else dense(b, g) for g in backward(b, ys, dys, xs)]


def is_inexact(t: Tensor) -> bool:
    return t.dtype.is_floating or t.dtype.is_complex


def assert_close(got: Any, want: np.ndarray, where: str = "") -> None:
    """Checks that shape, dtype and values are equal, within the precision of the dtype.

    NaN equals NaN.
    """
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{where}: got dtype {got.dtype}, want {want.dtype}"
    assert got.shape == want.shape, f"{where}: got shape {got.shape}, want {want.shape}"
    rtol = RTOL.get(got.dtype.name)
    if rtol is None:
        assert got.tolist() == want.tolist(), f"{where}: got {got!r}, want {want!r}"
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        g, w = got.astype(wide), want.astype(wide)
        scale = np.max(np.abs(w[np.isfinite(w)]), initial=0.0)
        near = (np.abs(g - w) <= rtol * np.abs(w) + rtol * 0.1 * scale) | (g == w) | (np.isnan(g) & np.isnan(w))
    assert near.all(), f"{where}: got {got!r}, want {want!r}"
