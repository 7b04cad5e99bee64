"""Kernels that declare `xp=True`, on inputs that no case of a record has.

They are unusable inputs, about which all namespaces say the same, and inputs for which a kernel needs another algorithm
than numpy's: rows with NaN, segments of many rows, complex numbers that have no order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import HeadraceError
from headrace.ir.graph import Operation
from headrace.ir.opdef import op_registry
from tests.errors.table import hidden
from tests.errors.test_kernels import KERNELS, apply
from tests.ops.cases import assert_close
from tests.ops.namespaces import NAMESPACES

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]


def computed(f: Callable[..., Any], inputs: Iterable[Any]) -> Any:
    """The results of a kernel, without numpy's warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return f(*inputs)


def values_of(op: Operation) -> list[np.ndarray]:
    """The arrays that an operation of `hidden` tensors reads."""
    return [np.asarray(t.op.inputs[0].op.attrs["value"]) for t in op.inputs]


def mistakes() -> list[tuple[str, Mapping[str, Any], str]]:
    return [row for row in KERNELS if op_registry.get(row[0]).xp and op_registry.get(row[0]).kernel is not None]


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize(("type", "given", "says"), mistakes())
def test_what_a_kernel_says_in_its_namespace(type: str, given: dict[str, Any], says: str, namespace: str) -> None:
    there = NAMESPACES[namespace]()
    with hr.Graph():
        found = apply(type, given, hidden)
    op = (found[0] if isinstance(found, (tuple, list)) else found).op
    args = values_of(op)
    if not {t.dtype.base for t in (*op.inputs, *op.outputs)} <= there.dtypes:
        pytest.skip(f"{namespace} has not all of the element types")
    kernel = op.opdef.kernel
    assert kernel is not None
    with pytest.raises((HeadraceError, ValueError), match=says):
        computed(kernel(there.xp, op.attrs), map(there.put, args))


T, INT = {"T": dtypes.float32}, {"out_idx": dtypes.int32}
RNG = np.random.default_rng(0)


def drawn(rows: int, nan: float) -> np.ndarray:
    x = RNG.integers(-3, 4, (rows, 2)).astype(np.float32)
    x[RNG.uniform(size=x.shape) < nan] = np.nan
    return x


def hard() -> list[tuple[str, Mapping[str, Any], tuple[Any, ...]]]:
    """Op, attributes and inputs."""
    out: list[tuple[str, Mapping[str, Any], tuple[Any, ...]]] = []
    for rows, nan in ((1, 1.0), (7, 0.0), (7, 0.3), (40, 0.1), (40, 0.6)):
        x = drawn(rows, nan)
        few, ids = np.sort(RNG.integers(0, 4, rows)), RNG.integers(-2, 6, rows)
        pairs = (x[:, 0] + 1j * x[:, 1]).astype(np.complex64)
        out += [("Segment" + f, T, (x, few)) for f in ("Sum", "Mean", "Prod", "Max", "Min")]
        out += [("UnsortedSegment" + f, T, (x, ids, np.int32(7))) for f in ("Sum", "Prod", "Max", "Min")]
        out += [
            ("TopKV2", {**T, "index_type": dtypes.int32}, (np.array(x.T), np.int32(k))) for k in {0, 1, rows // 2, rows}
        ]
        out += [
            ("UniqueWithCountsV2", {**T, **INT}, (x, np.array([0]))),
            ("UniqueWithCountsV2", {"T": dtypes.complex64, **INT}, (pairs, np.array([0]))),
            ("UniqueWithCountsV2", {"T": dtypes.bool_, **INT}, (x > 0, np.array([1]))),
            ("ListDiff", {**T, **INT}, (x[:, 0], np.array(x[::3, 1]))),
            ("ListDiff", {"T": dtypes.complex64, **INT}, (pairs, pairs[::2])),
            ("LowerBound", {**T, "out_type": dtypes.int32}, (np.sort(x.T), np.array(x.T))),
            ("UpperBound", {**T, "out_type": dtypes.int32}, (np.sort(x.T), np.array(x.T))),
            ("LowerBound", {"T": dtypes.complex64, "out_type": dtypes.int32}, (np.sort(pairs)[None], pairs[None])),
        ]
    for lower, adjoint in ((False, False), (True, True)):
        a = (RNG.uniform(-1, 1, (2, 5, 5)) + 1j * RNG.uniform(-1, 1, (2, 5, 5)) + 3 * np.eye(5)).astype(np.complex64)
        attrs = {"T": dtypes.complex64, "lower": lower, "adjoint": adjoint}
        out.append(("MatrixTriangularSolve", attrs, (a, a[:, :, :2])))
        out.append(("Cholesky", {"T": dtypes.complex64}, (a @ np.conj(np.swapaxes(a, -1, -2)),)))
    indefinite = np.array([[[1, 2], [2, 1]], [[2, 1], [1, 2]]], np.float32)
    singular = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]], np.float32)
    solve = {"T": dtypes.float32, "partial_pivoting": True}
    out += [
        ("Cholesky", T, (indefinite,)),
        ("Cholesky", T, (np.eye(40, dtype=np.float32) + np.float32(0.5),)),
        ("MatrixDeterminant", T, (np.where(indefinite == 1, np.float32(np.nan), indefinite),)),
        (
            "MatrixInverse",
            {**T, "adjoint": True},
            (np.where(indefinite == 1, np.float32(np.inf), indefinite)[:, ::-1],),
        ),
        ("TridiagonalSolve", {**solve, "perturb_singular": False}, (singular, np.ones((3, 1), np.float32))),
        ("TridiagonalSolve", {**solve, "perturb_singular": True}, (singular + 1, np.ones((3, 1), np.float32))),
        ("Mean", {"T": dtypes.int32, "keep_dims": False}, (np.array([[-7, 2], [9, -2]], np.int32), np.array([1]))),
        ("Einsum", {**T, "N": 1, "equation": "i...->ii..."}, (np.ones((3, 2), np.float32),)),
        ("Einsum", {**T, "N": 1, "equation": "iijj->ji"}, (np.arange(36, dtype=np.float32).reshape(3, 3, 2, 2),)),
        (
            "Einsum",
            {**T, "N": 2, "equation": "a...b,...bb->...aa"},
            (np.ones((2, 1, 3), np.float32), np.arange(36, dtype=np.float32).reshape(4, 3, 3)),
        ),
    ]
    return out


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize(("type", "attrs", "inputs"), hard())
def test_inputs_that_need_another_algorithm(
    type: str, attrs: Mapping[str, Any], inputs: tuple[Any, ...], namespace: str
) -> None:
    there = NAMESPACES[namespace]()
    kernel = op_registry.get(type).kernel
    assert kernel is not None
    want = computed(kernel(np, attrs), inputs)
    got = computed(kernel(there.xp, attrs), map(there.put, inputs))
    results = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for g, w in results:
        assert_close(there.get(g), np.asarray(w), f"{type} of {inputs}")
