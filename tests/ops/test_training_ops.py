"""Updates by optimizers: TensorFlow's numbers, every form of each op, repeated rows, errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import FailedPreconditionError, InternalError, InvalidArgumentError, ShapeError
from headrace.ir.opdef import op_registry
from headrace.ops.training.applying import DENSE, SPARSE
from headrace.ops.training.optimizers import RULES
from tests.ops.running import Program

SCALARS: dict[str, Any] = {
    "lr": 0.1,
    "alpha": 0.1,
    "beta1_power": 0.81,
    "beta2_power": 0.98,
    "beta1": 0.9,
    "beta2": 0.99,
    "rho": 0.9,
    "momentum": 0.7,
    "epsilon": 1e-3,
    "l1": 0.05,
    "l2": 0.02,
    "l2_shrinkage": 0.03,
    "lr_power": -0.4,
    "logbase": 0.7,
    "sign_decay": 0.3,
    "beta": 0.8,
    "global_step": np.int64(3),
}
GRAD = [0.3, -0.2]

# The variable and its slots, which were `slot(i)`, after one step by the arguments above, as TensorFlow 2.21 has them.
EXPECTED: list[tuple[str, dict[str, bool], list[list[float]]]] = [
    ("GradientDescent", {}, [[0.57, 0.92]]),
    ("ProximalGradientDescent", {}, [[0.5638722555, 0.9131736527]]),
    ("Momentum", {"use_nesterov": False}, [[0.521, 0.8605], [0.79, 0.395]]),
    ("Momentum", {"use_nesterov": True}, [[0.5147, 0.89235], [0.79, 0.395]]),
    ("KerasMomentum", {"use_nesterov": False}, [[1.06, 1.515], [0.46, 0.615]]),
    ("KerasMomentum", {"use_nesterov": True}, [[0.892, 1.3505], [0.46, 0.615]]),
    ("AddSign", {}, [[0.588, 0.896], [0.62, 0.64]]),
    ("PowerSign", {}, [[0.5629896582, 0.9162116849], [0.62, 0.64]]),
    ("Adagrad", {"update_slots": False}, [[0.5641431417, 0.9216930458], [0.7, 0.85]]),
    ("Adagrad", {"update_slots": True}, [[0.566247363, 0.9211999576], [0.79, 0.89]]),
    ("AdagradV2", {"update_slots": False}, [[0.5641859477, 0.9216695419], [0.7, 0.85]]),
    ("AdagradV2", {"update_slots": True}, [[0.566285295, 0.9211775095], [0.79, 0.89]]),
    ("AdagradDA", {}, [[-0.08953040755, -0.05419965254], [1.0, 0.65], [0.89, 0.84]]),
    ("ProximalAdagrad", {}, [[0.5593632578, 0.9139623718], [0.79, 0.89]]),
    ("Adadelta", {}, [[0.5664380237, 0.9203986249], [0.639, 0.769], [0.7312640625, 0.724161039]]),
    ("Adam", {"use_nesterov": False}, [[0.5448927585, 0.8377760136], [0.66, 0.745], [0.7929, 0.7924]]),
    ("Adam", {"use_nesterov": True}, [[0.547898608, 0.8456688548], [0.66, 0.745], [0.7929, 0.7924]]),
    ("AdamWithAmsgrad", {}, [[0.5482718994, 0.8377760136], [0.66, 0.745], [0.7929, 0.7924], [0.9, 0.7924]]),
    ("AdaMax", {}, [[0.1619565939, 0.4055419128], [0.66, 0.745], [0.792, 0.792]]),
    ("RMSProp", {}, [[0.0025, 0.3627921153], [0.639, 0.769], [0.5975, 0.5372078847]]),
    (
        "CenteredRMSProp",
        {},
        [[-0.08529073356, 0.4235106921], [0.66, 0.745], [0.729, 0.724], [0.6852907336, 0.4764893079]],
    ),
    (
        "Ftrl",
        {"multiply_linear_by_lr": False},
        [[-0.08666357785, -0.04104908796], [0.79, 0.89], [0.8421222515, 0.443437528]],
    ),
    (
        "Ftrl",
        {"multiply_linear_by_lr": True},
        [[-0.8743926933, -0.7922571257], [0.79, 0.89], [0.8042122251, 0.7643437528]],
    ),
    (
        "FtrlV2",
        {"multiply_linear_by_lr": False},
        [[-0.09060222342, -0.04668314825], [0.79, 0.89], [0.8781222515, 0.497437528]],
    ),
    (
        "FtrlV2",
        {"multiply_linear_by_lr": True},
        [[-0.8783313389, -0.797891186], [0.79, 0.89], [0.8078122251, 0.7697437528]],
    ),
]
each_formula = pytest.mark.parametrize(
    ("name", "flags", "expected"), EXPECTED, ids=[f"{n}-{next(iter(f.values()), '')}" for n, f, _ in EXPECTED]
)


def slot(i: int) -> list[float]:
    return [0.6 + 0.1 * i, 0.9 - 0.05 * i]


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def variables(p: Program, type: str, values: Sequence[Any], dtype: dtypes.DType = dtypes.float64) -> list[Any]:
    """Variables of the kind that the op takes, assigned."""
    made = []
    for i, value in enumerate(values):
        array, name = np.array(value).astype(dtype.numpy), f"{type}{i}"
        if "Resource" in type:
            made.append(p.b.VarHandleOp(dtype=dtype, shape=array.shape, shared_name=name))
            p.run(p.b.AssignVariableOp(made[-1], array))
        else:
            made.append(p.b.VariableV2(dtype=dtype, shape=array.shape, shared_name=name))
            p.run(p.b.Assign(made[-1], array))
    return made


def read(p: Program, v: Any) -> np.ndarray:
    value: np.ndarray = p.run(v if v.dtype.is_ref else p.b.ReadVariableOp(v, dtype=v.handle[0]))
    return value


def update(
    p: Program, type: str, made: Sequence[Any], given: Mapping[str, Any], dtype: Any = dtypes.float64, **attrs: Any
) -> Any:
    """The op on variables; of its other arguments those that are not given are `SCALARS`."""
    args = [a.name for a in op_registry.get(type).ins[len(made) :]]
    rest = []
    for a in args:
        value = given[a] if a in given else SCALARS[a]
        keep = hasattr(value, "op") or a in ("indices", "global_step")
        rest.append(value if keep else np.array(value).astype(dtype.numpy))
    return p.b.make(type, [*made, *rest], attrs)


@each_formula
def test_formulas(p: Program, name: str, flags: dict[str, bool], expected: list[list[float]]) -> None:
    """All forms of an op do the same.

    The forms on rows are applied here to both rows, and to one of three.
    """
    n = len(expected)
    for form in DENSE:
        if form + name in op_registry:
            made = variables(p, form + name, [slot(i) for i in range(n)])
            p.run(update(p, form + name, made, {"grad": GRAD, "delta": GRAD}, **flags))
            for v, want in zip(made, expected, strict=True):
                np.testing.assert_allclose(read(p, v), want, rtol=1e-9)
    for form in SPARSE:
        if form + name in op_registry:
            made = variables(p, form + name, [np.array([*slot(i), 7.0])[:, None] for i in range(n)])
            given = {"grad": [[GRAD[1]], [GRAD[0]]], "indices": [1, 0]}
            p.run(update(p, form + name, made, given, **flags))
            for v, want in zip(made, expected, strict=True):
                np.testing.assert_allclose(read(p, v).ravel(), [*want, 7.0], rtol=1e-9)


def test_every_op_is_in_the_table() -> None:
    known = {n for n, _, _ in EXPECTED}
    found = {t.split("Apply")[1] for t in op_registry if t.startswith((*DENSE, *SPARSE))}
    assert found == known


@pytest.mark.parametrize("name", ["Adam", "Momentum", "Adagrad", "RMSProp", "Ftrl", "AddSign"])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32])
def test_values_keep_their_dtype(p: Program, name: str, dtype: dtypes.DType) -> None:
    want = next(e for n, f, e in EXPECTED if n == name and f.get("update_slots", not any(f.values())))
    made = variables(p, "Apply" + name, [slot(i) for i in range(len(want))], dtype)
    p.run(update(p, "Apply" + name, made, {"grad": GRAD}, dtype))
    tolerance = {"float16": 1e-2, "bfloat16": 8e-2, "float32": 1e-5}[dtype.name]
    for v, w in zip(made, want, strict=True):
        assert read(p, v).dtype == dtype.numpy
        np.testing.assert_allclose(read(p, v).astype(np.float64), w, rtol=tolerance, atol=tolerance / 5)


# *** formulas as they are read, and as they are computed ***


def arrays(shape: tuple[int, ...], dtype: dtypes.DType, n: int) -> list[np.ndarray]:
    """`n` read-only arrays: positive ones, then one of any sign.

    Each of the positive arrays is greater than the last.
    """
    random = np.random.default_rng(0)
    made = [np.asarray((i + random.random(shape)) / 4 + 0.25).astype(dtype.numpy) for i in range(n - 1)]
    made.append(np.asarray(random.standard_normal(shape)).astype(dtype.numpy))
    if dtype.numpy.kind == "c":
        made = [np.asarray(x + np.complex64(1j) * x[::-1]) for x in made]
    for x in made:
        x.flags.writeable = False
    return made


def scalars(name: str, dtype: dtypes.DType) -> dict[str, Any]:
    given = {a: SCALARS[a] for a in RULES[name].args if a != "grad"}
    return {a: x if a == "global_step" else np.asarray(x).astype(dtype.numpy)[()] for a, x in given.items()}


def computed(name: str, flags: Mapping[str, bool], values: Sequence[Any], grad: Any, given: dict[str, Any]) -> Any:
    rule = RULES[name]
    return rule.formula(np, flags, *values, *(grad if a == "grad" else given[a] for a in rule.args))


def gradient_descent(a: Any, var: Any, g: Any) -> tuple[Any, ...]:
    return (var - a["alpha"] * g,)


def momentum(a: Any, var: Any, accum: Any, g: Any) -> tuple[Any, ...]:
    accum = accum * a["momentum"] + g
    if a["flag"]:
        return var - (g * a["lr"] + accum * a["momentum"] * a["lr"]), accum
    return var - accum * a["lr"], accum


def adagrad(a: Any, var: Any, accum: Any, g: Any) -> tuple[Any, ...]:
    accum = accum + g * g if a["flag"] else accum
    return var - g * a["lr"] * (1 / np.sqrt(accum)), accum


def adagrad_v2(a: Any, var: Any, accum: Any, g: Any) -> tuple[Any, ...]:
    accum = accum + g * g if a["flag"] else accum
    return var - g * a["lr"] / (np.sqrt(accum) + a["epsilon"]), accum


def adadelta(a: Any, var: Any, accum: Any, update: Any, g: Any) -> tuple[Any, ...]:
    accum = accum * a["rho"] + g * g * (1 - a["rho"])
    step = np.sqrt(update + a["epsilon"]) * (1 / np.sqrt(accum + a["epsilon"])) * g
    return var - step * a["lr"], accum, update * a["rho"] + step * step * (1 - a["rho"])


def adam(a: Any, var: Any, m: Any, v: Any, g: Any) -> tuple[Any, ...]:
    m, v = m + (g - m) * (1 - a["beta1"]), v + (g * g - v) * (1 - a["beta2"])
    rate = a["lr"] * np.sqrt(1 - a["beta2_power"]) / (1 - a["beta1_power"])
    direction = g * (1 - a["beta1"]) + a["beta1"] * m if a["flag"] else m
    return var - direction * rate / (np.sqrt(v) + a["epsilon"]), m, v


def rms_prop(a: Any, var: Any, ms: Any, mom: Any, g: Any) -> tuple[Any, ...]:
    ms = ms + (g * g - ms) * (1 - a["rho"])
    mom = mom * a["momentum"] + g * a["lr"] / np.sqrt(ms + a["epsilon"])
    return var - mom, ms, mom


def ftrl_v2(a: Any, var: Any, accum: Any, linear: Any, g: Any) -> tuple[Any, ...]:
    pull, total = g + 2 * a["l2_shrinkage"] * var, accum + g * g
    before, after = accum ** -a["lr_power"], total ** -a["lr_power"]
    if a["flag"]:
        linear = linear + (pull * a["lr"] - (after - before) * var)
        bound, curvature = a["l1"] * a["lr"], after + 2 * a["l2"] * a["lr"]
    else:
        linear = linear + (pull - (after - before) / a["lr"] * var)
        bound, curvature = a["l1"], after / a["lr"] + 2 * a["l2"]
    return (np.minimum(np.maximum(linear, -bound), bound) - linear) / curvature, total, linear


def ftrl(a: Any, var: Any, accum: Any, linear: Any, g: Any) -> tuple[Any, ...]:
    return ftrl_v2({**a, "l2_shrinkage": np.zeros_like(a["l2"])}, var, accum, linear, g)


READ = {
    "GradientDescent": gradient_descent,
    "Momentum": momentum,
    "Adagrad": adagrad,
    "AdagradV2": adagrad_v2,
    "Adadelta": adadelta,
    "Adam": adam,
    "RMSProp": rms_prop,
    "Ftrl": ftrl,
    "FtrlV2": ftrl_v2,
}


KINDS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64]


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype"), [(n, d) for n in READ for d in KINDS if not (n.startswith("Ftrl") and d is dtypes.complex64)]
)
def test_formulas_give_what_they_read_like(name: str, flag: bool, dtype: dtypes.DType) -> None:
    """The results are equal to the last bit.

    Neither the order of operations nor the place of the result changes a rounding.
    """
    *values, grad = arrays((500,), dtype, len(RULES[name].slots) + 1)
    given, attr = scalars(name, dtype), next((k for n, f, _ in EXPECTED if n == name for k in f), "")
    want = READ[name]({**given, "flag": flag}, *values, grad)
    got = computed(name, {attr: flag}, values, grad, given)
    for slot, x, y in zip(RULES[name].slots, got, want, strict=True):
        assert x.dtype == dtype.numpy
        assert np.isfinite(x).all(), slot
        assert np.array_equal(x, y), slot


@pytest.mark.parametrize("layout", ["number", "array of rank 0", "rows", "columns", "every second"])
@each_formula
def test_formulas_leave_what_they_are_given(
    name: str, flags: dict[str, bool], expected: list[list[float]], layout: str
) -> None:
    """The value read of a variable is the array that it holds.

    No formula may write into it.
    """
    shape = {"number": (), "array of rank 0": (), "every second": (6, 10)}.get(layout, (6, 5))
    all = arrays(shape, dtypes.float32, len(expected) + 1)
    views: dict[str, Any] = {"number": lambda x: x[()], "columns": lambda x: x.T, "every second": lambda x: x[:, ::2]}
    *values, grad = [views.get(layout, lambda x: x)(x) for x in all]
    before, given = [x.copy() for x in all], scalars(name, dtypes.float32)
    got = computed(name, flags, values, grad, given)
    assert all_equal(all, before)
    assert all_equal(got, computed(name, flags, [np.array(v) for v in values], np.array(grad), given))
    for new, old in zip(got, values, strict=True):
        assert new.shape == old.shape
        assert new is old or not any(np.shares_memory(new, x) for x in all)


def all_equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("type", ["SparseApplyMomentum", "ResourceSparseApplyMomentum"])
def test_an_index_that_comes_twice_is_applied_twice_in_order(p: Program, type: str) -> None:
    made = variables(p, type, [np.zeros((3, 2)), np.zeros((3, 2))])
    grads = [[1.0, 2.0], [10.0, 20.0], [3.0, 4.0], [5.0, 6.0]]
    p.run(update(p, type, made, {"grad": grads, "indices": [2, 0, 2, 2], "lr": 1.0, "momentum": 0.5}))
    var, accum = np.zeros(2), np.zeros(2)
    for g in (grads[0], grads[2], grads[3]):
        accum = accum * 0.5 + g
        var = var - accum
    np.testing.assert_allclose(read(p, made[0]), [[-10, -20], [0, 0], var])
    np.testing.assert_allclose(read(p, made[1]), [[10, 20], [0, 0], accum])


def test_no_rows_at_all(p: Program) -> None:
    made = variables(p, "SparseApplyAdagrad", [[1.0], [1.0]])
    given = {"grad": np.zeros(0), "indices": np.zeros(0, np.int32)}
    assert p.run(update(p, "SparseApplyAdagrad", made, given)).tolist() == [1.0]


def test_what_was_read_stays_what_it_was(p: Program) -> None:
    made = variables(p, "ResourceApplyAdagrad", [slot(0), slot(1)])
    before = read(p, made[0])
    kept = before.copy()
    p.run(update(p, "ResourceApplyAdagrad", made, {"grad": GRAD}))
    assert (before == kept).all()
    assert (read(p, made[0]) != kept).all()


def test_without_slots_updated_the_sum_stays(p: Program) -> None:
    made = variables(p, "SparseApplyAdagradV2", [[[1.0], [2.0]], [[1.0], [4.0]]])
    given = {"grad": [[1.0]], "indices": [1], "lr": 1.0, "epsilon": 0.0}
    p.run(update(p, "SparseApplyAdagradV2", made, given, update_slots=False))
    assert (read(p, made[0]).tolist(), read(p, made[1]).tolist()) == ([[1], [1.5]], [[1], [4]])


# *** errors ***


@pytest.mark.parametrize(("prefix", "error"), [("", FailedPreconditionError), ("Resource", InternalError)])
@pytest.mark.parametrize("form", ["Apply", "SparseApply"])
def test_before_a_slot_is_assigned(p: Program, prefix: str, form: str, error: type[Exception]) -> None:
    type = f"{prefix}{form}Adagrad"
    (var,) = variables(p, type, [slot(0)])
    make = p.b.VarHandleOp if prefix else p.b.VariableV2
    accum = make(dtype=dtypes.float64, shape=(2,), shared_name="accum")
    with p.fails(error, "accum.*uninitialized|uninitialized value accum"):
        p.run(update(p, type, [var, accum], {"grad": GRAD, "indices": [0, 1]}))
    assert read(p, var).tolist() == slot(0)


@pytest.mark.parametrize("prefix", ["", "Resource"])
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"grad": [1.0, 2.0, 3.0]}, r"var and grad do not have the same shape\[2\] \[3\]"),
        ({"lr": [0.1]}, r"lr is not a scalar: \[1\]"),
        ({"momentum": [[0.1]]}, r"momentum is not a scalar: \[1,1\]"),
    ],
)
def test_dense_shapes(p: Program, prefix: str, given: dict[str, Any], match: str) -> None:
    type = f"{prefix}ApplyMomentum"
    made = variables(p, type, [slot(0), slot(1)])
    with p.fails(InvalidArgumentError, match):
        p.run(update(p, type, made, {"grad": GRAD, **{k: p.feed(v) for k, v in given.items()}}))


def test_slots_of_other_shapes(p: Program) -> None:
    made = variables(p, "ApplyMomentum", [slot(0), [1.0]])
    with p.fails(ShapeError, "(?s)2.*1"):
        update(p, "ApplyMomentum", made, {"grad": GRAD})


@pytest.mark.parametrize("prefix", ["", "Resource"])
@pytest.mark.parametrize(
    ("grad", "indices", "match"),
    [
        ([[1.0, 2.0]], [2], r"Index 2 at offset 0 in indices is out of range"),
        ([[1.0, 2.0], [1.0, 2.0]], [0, -1], r"Index -1 at offset 1 in indices is out of range"),
        ([[1.0, 2.0]], 0, "indices must be one-dimensional"),
        ([[1.0, 2.0]], [[0]], "indices must be one-dimensional"),
        ([[1.0, 2.0]], [0, 1], "grad must be the same size as indices in the first dimension"),
        ([[1.0]], [0], "var and grad must match in all dimensions but the first"),
        ([1.0], [0], "var and grad must match in all dimensions but the first"),
        (1.0, [0], "grad must be the same size as indices"),
    ],
)
def test_rows(p: Program, prefix: str, grad: Any, indices: Any, match: str) -> None:
    type = f"{prefix}SparseApplyAdagrad"
    made = variables(p, type, [np.ones((2, 2)), np.ones((2, 2))])
    with p.fails(InvalidArgumentError, match):
        p.run(update(p, type, made, {"grad": p.feed(grad), "indices": p.feed(np.array(indices, np.int32))}))
    assert (read(p, made[0]) == 1).all()


@pytest.mark.parametrize(("value", "match"), [(1.0, "at least 1 dimensional"), (np.zeros((2, 0)), "Inner dimension")])
def test_variables_without_rows(p: Program, value: Any, match: str) -> None:
    made = variables(p, "ResourceSparseApplyAdagrad", [value, value])
    with p.fails(InvalidArgumentError, match):
        grad = p.feed(np.zeros((1, *np.shape(value)[1:])))
        p.run(update(p, "ResourceSparseApplyAdagrad", made, {"grad": grad, "indices": [0]}))


@pytest.mark.parametrize(
    ("type", "given", "match"),
    [
        ("SparseApplyFtrl", {"lr": 0.0}, "lr is not a positive scalar"),
        ("SparseApplyFtrl", {"l1": -1.0}, "l1 regularization strength is not a non-negative scalar"),
        ("SparseApplyFtrl", {"l2": -1.0}, "l2 regularization strength is not a non-negative scalar"),
        ("SparseApplyFtrl", {"lr_power": 0.5}, "lr_power is not a non-positive scalar"),
        ("SparseApplyFtrlV2", {"l2_shrinkage": -1.0}, "l2 shrinkage regularization strength is not a non-negative"),
        ("ApplyProximalAdagrad", {"lr": 0.0}, "lr is not a positive scalar"),
        ("SparseApplyProximalAdagrad", {"l1": -1.0}, "l1 regularization strength is not a non-negative scalar"),
        ("ApplyProximalAdagrad", {"l2": -1.0}, "l2 regularization strength is not a non-negative scalar"),
    ],
)
def test_numbers_that_are_refused(p: Program, type: str, given: dict[str, float], match: str) -> None:
    n = sum(a.is_ref for a in op_registry.get(type).ins)
    made = variables(p, type, [slot(i) for i in range(n)])
    with p.fails(InvalidArgumentError, match):
        p.run(update(p, type, made, {"grad": GRAD, "indices": [0, 1], **given}))


def test_one_variable_for_two(p: Program) -> None:
    (v,) = variables(p, "ResourceApplyMomentum", [slot(0)])
    with p.fails(InvalidArgumentError, "must be variables of their own"):
        p.run(update(p, "ResourceApplyMomentum", [v, v], {"grad": GRAD}))
