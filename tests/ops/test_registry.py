"""Promises of every op record, checked for the whole registry.

No list of ops is kept here.

For each op with a sampler and each dtype it has cases for: the kernel against the oracle, the static shape against the
computed one, graphs as text and on the wire, gradient rules against differences of values, and hostile inputs.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest

from headrace import dtypes, nest, shapes
from headrace.dtypes import DType
from headrace.errors import OpError, SignatureError
from headrace.grad.registered import input_gradients
from headrace.grad.zeros import carries, zeros_for
from headrace.ir import text, walk
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation
from headrace.ir.op_roles import LIST_SIGNATURES, MIRRORED
from headrace.ir.opdef import Case, Missing, NotDifferentiable, OpDef, Primitive, Structured, op_registry
from headrace.ir.serial import graphdef
from headrace.opkit import arrays, elementwise
from tests.ops.cases import (
    assert_close,
    cases,
    constant_op,
    dtype_of,
    evaluate,
    first_types,
    flat,
    gradients,
    is_inexact,
    make,
    open_op,
    placeholder,
    records,
    run_kernel,
    sampled,
)

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

DTYPES: dict[str, list[DType]] = {}
for _type, _dtype in sampled():
    DTYPES.setdefault(_type, []).append(_dtype)
each_type = pytest.mark.parametrize("type", DTYPES)


def read_only(x: np.ndarray) -> np.ndarray:
    out = x.copy()
    out.flags.writeable = False
    return out


def one_dtype(type: str) -> DType:
    """A dtype for checks that depend on it little."""
    return next((d for d in (dtypes.float32, dtypes.int32) if d in DTYPES[type]), DTYPES[type][0])


def scalars(args: Sequence[np.ndarray]) -> list[Any]:
    """The numpy scalars in place of arrays of rank 0 (strings stay arrays)."""
    return [x[()] if x.ndim == 0 and x.dtype != object else x for x in args]


def wanted(record: OpDef, case: Case) -> tuple[Any, ...]:
    want = case.want
    if want is None:
        assert record.oracle is not None, f"a case of {record.type} has neither want= nor an oracle"
        with np.errstate(all="ignore"):
            want = record.oracle(*case.inputs, **case.attrs)
    return want if isinstance(want, tuple) else (want,)


# *** Kernels ***


@each_type
def test_kernel_gives_what_the_oracle_gives(type: str) -> None:
    for dtype in DTYPES[type]:
        check_kernel(op_registry.get(type), dtype)


def check_kernel(record: OpDef, dtype: DType) -> None:
    type = record.type
    for i, case in enumerate(cases(type, dtype)):
        op = constant_op(record, case)
        where = f"case {i} of {type} {dtype} {dict(case.attrs)}"
        args = [read_only(x) for x in flat(case.inputs)]
        before = [x.tobytes() for x in args if x.dtype != object]
        got = run_kernel(op, args)
        want = wanted(record, case)
        assert len(got) == len(want) == len(op.outputs), where
        for g, w, t in zip(got, want, op.outputs, strict=True):
            assert isinstance(g, (np.ndarray, np.generic)), f"{where}: {g!r} is a Python value"
            assert g.dtype == t.dtype.numpy, f"{where}: got dtype {g.dtype}, the record says {t.dtype}"
            assert_close(g, w, where)
            assert shapes.fits(g.shape, t.shape), f"{where}: computed shape {g.shape}, inferred {t.shape}"
            if not record.facts.dynamic_shape:
                assert shapes.is_full(t.shape), f"{where}: inferred {t.shape} of constants; is it dynamic_shape?"
        assert before == [x.tobytes() for x in args if x.dtype != object], f"{where}: an input was changed"
        again = run_kernel(op, scalars(args))
        for g, a in zip(got, again, strict=True):
            assert_close(a, np.asarray(g), f"{where}, with numpy scalars")
            shared = isinstance(g, np.ndarray) and g.flags.writeable and np.may_share_memory(g, a)
            assert not shared, f"{where}: two firings gave the same writable storage"


@each_type
def test_inference_says_nothing_wrong_of_unknown_shapes(type: str) -> None:
    record = op_registry.get(type)
    ways: tuple[Callable[[np.ndarray], Any], ...] = (
        lambda x: None,
        lambda x: (None,) * x.ndim,
        lambda x: (None, *x.shape[1:]) if x.ndim else (),
        lambda x: x.shape,
    )
    dtype = one_dtype(type)
    for case in cases(type, dtype):
        actual = [np.shape(w) for w in wanted(record, case)]
        for way in ways:
            op = open_op(record, case, way)
            for t, s in zip(op.outputs, actual, strict=True):
                assert shapes.fits(s, t.shape), f"{type} {dtype}: computed shape {s}, inferred {t.shape}"


# *** Round trips ***


def example_graph(type: str) -> Graph:
    """Some cases of an op, of every dtype, in one graph.

    They are in turn on constants and on placeholders.
    """
    record, b = op_registry.get(type), Builder(Graph())
    for dtype in DTYPES[type]:
        for i, case in enumerate(cases(type, dtype)[:4]):
            found = flat(case.inputs)
            make(b, record, case, [b.const(x, dtype_of(x)) if i % 2 else placeholder(b, x, x.shape) for x in found])
    return b.graph


def assert_same(a: Operation, b: Operation) -> None:
    assert (a.name, a.type, set(a.attrs)) == (b.name, b.type, set(b.attrs))
    assert [t.name for t in a.inputs] == [t.name for t in b.inputs]
    assert [(t.dtype, t.shape) for t in a.outputs] == [(t.dtype, t.shape) for t in b.outputs]
    for name, value in a.attrs.items():
        if isinstance(value, np.ndarray):
            assert_close(b.attrs[name], value, f"{a.name}.{name}")
        elif isinstance(value, float):
            assert np.float32(b.attrs[name]) == np.float32(value), f"{a.name}.{name}"  # the wire keeps float32
        else:
            assert b.attrs[name] == value, f"{a.name}.{name}"


@each_type
def test_text_round_trip(type: str) -> None:
    graph = example_graph(type)
    written = text.to_text(graph)
    back = text.from_text(written)
    assert len(back) == len(graph)
    for a, b in zip(graph.operations, back.operations, strict=True):
        assert_same(a, b)
    assert text.to_text(back) == written


@each_type
def test_wire_round_trip(type: str) -> None:
    graph = example_graph(type)
    written = graphdef.export_graph_def(graph)
    back = Graph()
    graphdef.import_graph_def(written.SerializeToString(), back)
    assert len(back) == len(graph)
    for a, b in zip(graph.operations, back.operations, strict=True):
        assert_same(a, b)
    assert graphdef.export_graph_def(back) == written


# *** Gradients ***

# Inputs by which TensorFlow gives no gradient either, though there is one.
UNDERIVED = {"Betainc": {0, 1}, "Polygamma": {0}, "Zeta": {0}}
# Inputs that are compared with each other, so that moving one of them alone changes what the op does.
UNDERIVED |= {"MaxPoolGradGrad": {0, 1}, "MaxPoolGradGradV2": {0, 1}}
UNDERIVED |= {"MaxPool3DGrad": {0, 1}, "MaxPool3DGradGrad": {0, 1}, "CropAndResizeGradImage": {1}}
UNDERIVED |= {"ImageProjectiveTransformV2": {1}, "ImageProjectiveTransformV3": {1, 3}}
UNDERIVED |= {"ScaleAndTranslate": {2, 3}, "ScaleAndTranslateGrad": {1, 2, 3}}
# Not functions of a complex number that have a derivative; TensorFlow's rules are those of the real case.
NOT_HOLOMORPHIC = {"EuclideanNorm", "Sign", "SquaredDifference"}
# Op types of which the sampler has a case without zeros only under the type's later name.
SAME_AS = {f"Batch{t}": t for t in ("Cholesky", "CholeskyGrad", "Svd")}
# Ops whose rule says otherwise than differences of values: on purpose, ...
AGAINST = {"StopGradient", "PreventGradient"} | {f"QuantizeAndDequantize{v}" for v in ("", "V2", "V3", "V4")}
AGAINST |= {f"FakeQuantWithMinMax{v}" for v in ("Args", "Vars", "VarsPerChannel")}
# ... since numbers drawn by rejection jump, ...
AGAINST |= {"StatelessRandomGammaV2", "StatelessRandomGammaV3"}
# ... or since, as in TensorFlow, some of their results have no gradient.
AGAINST |= {"BlockLSTM", "BlockLSTMV2", "LSTMBlockCell", "CTCLoss", "CTCLossV2"}
AGAINST |= {f"FusedBatchNorm{g}{v}" for g in ("", "Grad") for v in ("", "V2", "V3")}
# Tests that compare the rules of those, and of what has no sampler (state, lists, functions).
RULES_COMPARED_IN = """
    api/test_quantization.py
    grad/test_gradients.py::test_prevented_gradients
    grad/test_sparse.py::test_lists_to_order_three
    ops/test_array_ops.py::test_gradient_through_ragged_rows
    ops/test_batch_norm_ops.py
    ops/test_block_rnn_ops.py::test_gradients_of_cells
    ops/test_block_rnn_ops.py::test_gradients_of_layers
    ops/test_ctc_ops.py::test_gradient
    ops/test_gradient_rules.py
    ops/test_optional_ops.py::test_derivatives_to_order_three
    ops/test_py_function.py::test_gradients_in_straight_graphs_loops_and_branches
    ops/test_quantized_ops.py::test_gradients_are_tensorflows_ops
    ops/test_sparse_ops.py::test_matrices
    ops/test_state_nd_ops.py::test_the_gradient_of_gathering
    ops/test_state_ops.py::test_a_gradient_reaches_the_variable
    ops/test_stateless_random_ops.py::test_gradient_of_gamma_numbers
    ops/test_stateless_random_ops.py::test_gradient_of_truncated_numbers
    ops/test_storage_ops.py::test_gradients_of_tensor_maps
    ops/test_tensor_array_ops.py::test_tensor_array_gradients_match_differences
    ops/test_tensor_array_ops.py::test_versions_before_v3_go_by_name
    ops/test_tensor_list_ops.py::test_tensor_list_gradients_match_differences
    ops/test_volume_ops.py::test_gradients_of_fractional_pooling
    v1/test_tensor_array.py::test_derivatives_of_order_three
""".split()
STEP, TOLERANCE = 1e-6, 2e-5
# For outputs that are float32 for any input dtype, the step is a power of two so that it is added exactly.
COARSE_STEP, COARSE_TOLERANCE = 2.0**-9, 2e-3
MOST_DERIVED = 12  # cases, of one op and dtype, at which its gradient is checked


def derived_types(record: OpDef) -> list[DType]:
    """The dtypes at which the gradient of an op is compared.

    They are double precision, or float32 for an op that has no other.
    """
    there = [d for d in first_types(record) if cases(record.type, d)]
    fine = [d for d in there if d in (dtypes.float64, dtypes.complex128)]
    return [
        d
        for d in fine or there
        if d in (dtypes.float32, *fine) and not (d.is_complex and record.type in NOT_HOLOMORPHIC)
    ]


# Op types with a rule of their own. Ops that own or call graphs are differentiated by `headrace.grad` and tested in
# tests/grad.
RULED = [r for r in records() if not r.structured and not isinstance(r.grad, (NotDifferentiable, Missing))]
DERIVED = [(r.type, d) for r in RULED if r.is_pure and r.type not in AGAINST for d in derived_types(r)]


def derived_cases(type: str, dtype: DType) -> list[Case]:
    """The cases at which the gradient of an op is compared."""
    found = cases(SAME_AS.get(type, type), dtype)
    if type == "StatelessShuffle":  # which shuffles 0, 1, 2, ...
        found = [dataclasses.replace(c, inputs=(c.inputs[0] + 1, *c.inputs[1:])) for c in found]
    return [c for c in found if smooth(type, c)]


def smooth(type: str, case: Case) -> bool:
    """Whether to differentiate at a case.

    Its numbers are finite, and none is 0, where functions have their kinks.
    """
    left_out = UNDERIVED.get(type, ())
    numbers = [x for i, x in enumerate(flat(case.inputs)) if x.dtype.kind in "fc" and i not in left_out]
    return bool(numbers) and all(np.isfinite(x).all() and (x != 0).all() for x in numbers)


def inner(us: Sequence[Any], vs: Sequence[Any]) -> float:
    """Σ Re(conj(u)·v)."""
    return float(sum(np.sum(np.real(np.conj(u) * v)) for u, v in zip(us, vs, strict=True)))


def random_like(rng: np.random.Generator, x: Any) -> np.ndarray:
    out = rng.uniform(-1, 1, np.shape(x))
    return np.asarray(out + 1j * rng.uniform(-1, 1, np.shape(x)) if np.iscomplexobj(x) else out).astype(x.dtype)


def check_gradient(record: OpDef, case: Case, static: bool, rng: np.random.Generator) -> int:
    """Compares the rule of an op with central differences in a random direction.

    The rules of the ops that the rule uses are compared too.

    With `static`, shapes are known and integer inputs constants; else nothing is known while the graph is built.
    Returns how many orders of derivatives were compared.
    """
    b = Builder(Graph())
    found = flat(case.inputs)
    fed: dict[Any, Any] = {}
    inputs = []
    for x in found:
        if static and x.dtype.kind not in "fc":
            inputs.append(b.const(x, dtype_of(x)))
            continue
        inputs.append(placeholder(b, x, x.shape if static else None))
        fed[inputs[-1]] = x
    op = make(b, record, case, inputs)
    results = {t.dtype for t in op.outputs if is_inexact(t)}
    if results - {dtypes.float32, dtypes.complex64, dtypes.float64, dtypes.complex128}:
        return 0  # too coarse for differences
    is_coarse = bool(results & {dtypes.float32, dtypes.complex64})
    step, tolerance = (COARSE_STEP, COARSE_TOLERANCE) if is_coarse else (STEP, TOLERANCE)
    xs = [t for i, t in enumerate(inputs) if is_inexact(t) and i not in UNDERIVED.get(record.type, ())]
    ys = [t for t in op.outputs if is_inexact(t)]
    direction = [random_like(rng, fed[x]) for x in xs]
    for order in (1, 2):
        values = evaluate(ys, fed)
        if not all(np.isfinite(v).all() for v in values):
            return order - 1  # the mean of nothing, say
        weights = [random_like(rng, v) * (np.abs(v) < 1e100) for v in values]  # the largest of nothing is huge
        seeds = [placeholder(b, w, w.shape if static else None) for w in weights]
        seeded = dict(zip(seeds, weights, strict=True))
        try:
            dxs = gradients(b, ys, seeds, xs)
        except LookupError:
            if order == 1 and static:
                raise
            return order - 1  # the rule says that it has no derivative itself, or none where nothing is known

        def along(step: float, ys: list[Any] = ys, weights: list[Any] = weights) -> float:
            moved = {x: fed[x] + step * v for x, v in zip(xs, direction, strict=True)}
            return inner(weights, evaluate(ys, {**fed, **moved}))

        numeric = (along(step) - along(-step)) / (2 * step)
        there = [(x, dx, v) for x, dx, v in zip(xs, dxs, direction, strict=True) if dx is not None]
        if order == 1 and not there:
            return 0
        values = evaluate([dx for _, dx, _ in there], {**fed, **seeded})
        for (x, _, _), value in zip(there, values, strict=True):
            assert np.shape(value) == np.shape(fed[x]), f"the gradient by {x.name} has shape {np.shape(value)}"
        exact = inner(values, [v for _, _, v in there])
        size = max(1.0, abs(exact), abs(numeric))
        assert abs(exact - numeric) < tolerance * size, f"order {order}: {exact} by the rules, {numeric} by differences"
        fed.update(seeded)
        ys = [dx for _, dx, _ in there]
        if not ys:
            return order
    return 2


@pytest.mark.parametrize(("type", "dtype"), DERIVED, ids=[f"{t}-{d}" for t, d in DERIVED])
def test_gradient_rule(type: str, dtype: DType) -> None:
    record, rng = op_registry.get(type), np.random.default_rng(5)
    found, compared = derived_cases(type, dtype), 0
    for case in found[:: -(-len(found) // MOST_DERIVED) or 1]:
        with np.errstate(all="ignore"):
            compared += check_gradient(record, case, static=True, rng=rng)
            check_gradient(record, case, static=False, rng=rng)
    assert compared, f"no case of {type} {dtype} compares its gradient rule: {len(found)} have finite values without 0"


@pytest.mark.parametrize("type", [r.type for r in RULED if r.type in DTYPES])
def test_a_gradient_rule_makes_only_the_wanted_gradients(type: str) -> None:
    """Wanted are the gradient by each input alone, and those by all inputs."""
    for dtype in DTYPES[type]:
        found = cases(type, dtype)
        for case in found[:: -(-len(found) // MOST_DERIVED)]:
            for static in (True, False):
                op = open_op(op_registry.get(type), case, lambda x, static=static: x.shape if static else None)
                active = [i for i, t in enumerate(op.inputs) if carries(t.dtype)]
                if not active or not any(carries(t.dtype) for t in op.outputs):
                    continue
                for some in {(i,) for i in active} | {tuple(active)}:
                    unneeded = made_in_vain(op, some)
                    names = ", ".join(f"{o.type} {o.name}" for o in unneeded)
                    assert not unneeded, f"{dtype} {dict(case.attrs)}, wanted by inputs {some}: {names}"


def made_in_vain(op: Operation, some: Sequence[int]) -> list[Operation]:
    """Operations of the rule of `op` that its gradients by inputs `some` do not need."""
    b = Builder(op.graph)
    dys = [zeros_for(b, t) if carries(t.dtype) else None for t in op.outputs]
    since = len(b.graph)
    try:
        made = input_gradients(b, op, dys, [i in some for i in range(len(op.inputs))])
    except (LookupError, SignatureError):  # no rule where nothing is known, or an op without this dtype
        return []
    ends = [t for i in some if made[i] is not None for t in nest.flatten(made[i])]
    needed = walk.reachable([t.op for t in ends])
    return [o for o in b.graph.operations[since:] if o not in needed and not o.opdef.is_effectful]


def test_every_gradient_rule_is_compared(tmp_path: Path) -> None:
    """A rule that `test_gradient_rule` leaves out is used by one of the tests named above."""
    used = tmp_path / "used.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.ops.rules_used"),
            *("--tier", "unit,system,matrix", "-k", "not interpret"),
            *(f"tests/{node}" for node in RULES_COMPARED_IN),
        ],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "RULES_USED": str(used)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    compared = {type for type, _ in DERIVED} | set(json.loads(used.read_text(encoding="utf-8")))
    left = [r.type for r in RULED if r.type not in compared]
    assert not left, f"gradient rules that no test compares with anything: {left}"


# *** Hostile inputs ***

MOST_BYTES = 10**8
ALLOWED = (OpError, ValueError, IndexError, MemoryError)


def spoilt(x: np.ndarray) -> list[np.ndarray]:
    """Hostile substitutes for an input: other ranks, empty arrays, absurd integers."""
    out = [x[None], x[None, None, None], np.zeros((0,) * max(x.ndim, 1), x.dtype), np.zeros((), x.dtype)]
    if x.dtype == object:
        out = [x[None], x[:0] if x.ndim else x[None][:0]]
    if x.ndim:
        out += [x[:1], np.concatenate([x, x]), np.zeros((3, *x.shape[1:]), x.dtype) if x.dtype != object else x[:1]]
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        out += [np.full_like(x, v) for v in (limits.min, limits.max, limits.max // 2, 7, limits.max // 4 * 0 + 1)]
        if limits.min:
            out += [np.full_like(x, -1), np.full_like(x, -7)]
    if x.dtype.kind == "f":
        out += [np.full_like(x, np.nan), np.full_like(x, np.inf)]
    return out


@each_type
@pytest.mark.parametrize(
    "which", [slice(3), pytest.param(slice(3, 6), marks=pytest.mark.nightly)], ids=["three", "more"]
)
def test_hostile_inputs_are_refused_or_computed(type: str, which: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "max_bytes", MOST_BYTES // 4)
    record = op_registry.get(type)
    tracemalloc.start()
    try:
        for case in cases(type, one_dtype(type))[which]:
            op = constant_op(record, case)
            found = flat(case.inputs)
            for i, x in enumerate(found):
                for bad in spoilt(x):
                    args = [bad if j == i else y for j, y in enumerate(found)]
                    try:
                        run_kernel(op, args)
                    except ALLOWED:
                        pass
                    except Exception as e:
                        e.add_note(f"{type} {dict(case.attrs)}: input {i} was {bad!r} of shape {bad.shape}")
                        raise
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES, f"{type} allocated too much"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("type", [r.type for r in records() if r.facts.fresh])
def test_fresh_results_share_no_memory(type: str) -> None:
    for dtype in DTYPES[type]:
        for case in cases(type, dtype):
            op, inputs = constant_op(op_registry.get(type), case), flat(case.inputs)
            (got,), (again,) = run_kernel(op, inputs), run_kernel(op, inputs)
            assert got.flags.writeable
            assert not any(np.shares_memory(got, x) for x in (*inputs, again))


@pytest.mark.parametrize(
    ("type", "dtype"),
    [(r.type, t) for r in records() if r.facts.rounds_once for t in DTYPES[r.type] if t in elementwise.HALF],
)
def test_half_precision_is_float32_rounded_once(type: str, dtype: DType) -> None:
    """A result equals the other one or is its neighbour.

    The two may differ because the order of sums may differ.
    """
    record = op_registry.get(type)
    found = cases(type, dtype)
    assert found
    for case in found:
        inputs = flat(case.inputs)
        wide = [x.astype(np.float32) if x.dtype == dtype.numpy else x for x in inputs]
        attrs = {k: dtypes.float32 if v is dtype else v for k, v in case.attrs.items()}
        got = run_kernel(constant_op(record, case), inputs)
        want = run_kernel(constant_op(record, dataclasses.replace(case, inputs=wide, attrs=attrs)), wide)
        for x, y in zip(got, want, strict=True):
            rounded = y.astype(dtype.numpy) if x.dtype == dtype.numpy else y
            np.testing.assert_allclose(
                x.astype(np.float32), rounded.astype(np.float32), rtol=float(ml_dtypes.finfo(dtype.numpy).eps), atol=0
            )


# *** Roles ***


def test_a_list_role_names_inputs_of_the_record() -> None:
    found = [r for r in records() if r.facts.list_role is not None]
    assert {r.list_kind for r in found} == set(LIST_SIGNATURES), "a kind without an op"
    for r in found:
        role = r.facts.list_role
        assert role is not None
        assert role.makes + role.changes + role.reads == 1, r.type
        assert role.element_input is None or r.ins[role.element_input].type_attr == "element_dtype", r.type
        if role.shape_input is not None:
            assert "shape" in r.ins[role.shape_input].name, r.type


def test_ops_on_one_tensor_list_have_a_role() -> None:
    """Passes and the compiler leave an op on lists without a role to its kernel."""
    left = {r.type for r in records() if r.type.startswith(("TensorList", "_TensorList")) and r.list_kind is None}
    batched = {"TensorListPushBackBatch", "_TensorListPopBackBatch"}
    several = {"TensorListConcatLists", "_TensorListSplit"}
    scattered = {"TensorListScatter", "TensorListScatterV2", "TensorListScatterIntoExistingList"}
    pieces = {"TensorListSplit", "TensorListConcat", "TensorListElementShape"}
    assert left == batched | several | scattered | pieces


def test_a_split_gives_consecutive_pieces_along_its_axis() -> None:
    found = [r for r in records() if r.facts.split is not None]
    assert found
    for r in found:
        role = r.facts.split
        assert role is not None
        for case in cases(r.type, one_dtype(r.type)):
            pieces = wanted(r, case)
            whole = np.concatenate(pieces, int(case.inputs[role.axis]))
            np.testing.assert_array_equal(whole, case.inputs[role.value])


RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def test_a_comparison_states_its_relation() -> None:
    found = [r for r in records() if r.facts.compares is not None]
    assert {r.facts.compares for r in found} == set(MIRRORED)
    x, y = np.array([1, 2, 3], np.int32), np.array([2, 2, 2], np.int32)
    for r in found:
        relation = r.facts.compares
        assert relation is not None
        op = constant_op(r, Case((x, y)))
        (got,) = run_kernel(op, [x, y])
        np.testing.assert_array_equal(got, RELATIONS[relation](x, y), r.type)
        np.testing.assert_array_equal(got, RELATIONS[MIRRORED[relation]](y, x), r.type)


def test_a_sum_states_its_sign() -> None:
    found = [r for r in records() if r.facts.sum_sign]
    assert {r.facts.sum_sign for r in found} == {1, -1}
    x, y = np.array([1, 2, 3], np.int32), np.array([5, 7, 9], np.int32)
    for r in found:
        (got,) = run_kernel(constant_op(r, Case((x, y))), [x, y])
        np.testing.assert_array_equal(got, x + r.facts.sum_sign * y, r.type)


def test_each_primitive_and_structured_kind_has_an_op() -> None:
    assert {r.primitive for r in records()} == set(get_args(Primitive))
    assert {r.structured for r in records()} == set(get_args(Structured))


def test_stateless_and_placeholder_ops_are_of_their_forms() -> None:
    assert all(r.structured for r in records() if r.facts.stateless)
    for r in records():
        if r.facts.placeholder:
            assert len(r.outs) == 1, r.type
            assert {"dtype", "shape"} <= set(r.attrs), r.type


# *** Completeness ***


def test_every_pure_op_is_sampled() -> None:
    left = [
        r.type
        for r in records()
        if r.is_pure and r.outs and not r.facts.no_fold and r.type not in DTYPES and r.type != "Const"
        if not any(a.dtype in arrays.HANDLES for a in (*r.ins, *r.outs))  # lists have suites of their own
    ]
    assert not left, f"these ops have no sampler (or no cases), so nothing here tests them: {left}"


def test_every_op_says_what_it_does() -> None:
    assert not [r.type for r in records() if not r.doc.strip().endswith(")") and not r.doc.strip().endswith(".")]
