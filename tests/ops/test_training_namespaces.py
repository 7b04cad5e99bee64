"""Formulas of optimizers compute in any namespace of the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import op_registry
from headrace.ops.training.optimizers import RULES
from tests.ops.cases import RTOL
from tests.ops.namespaces import NAMESPACES, Namespace
from tests.ops.test_training_ops import SCALARS

FLAGS = ("use_nesterov", "update_slots", "multiply_linear_by_lr")
DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]


def drawn(name: str, dtype: DType, zero: str = "") -> list[np.ndarray]:
    """Values of the variable and its slots, then arguments; that named `zero` is 0."""
    rng, rule = np.random.default_rng(7), RULES[name]
    shape = (3, 5)
    # the square of an average (mg) is less than the average of squares (ms)
    values = [rng.uniform(0.0 if s == "mg" else 0.2, 0.2 if s == "mg" else 0.9, shape) for s in rule.slots]
    given = [rng.uniform(-1, 1, shape) if a == "grad" else 0.0 if a == zero else SCALARS[a] for a in rule.args]
    types = [dtypes.int64 if a == "global_step" else dtype for a in (*rule.slots, *rule.args)]
    return [np.asarray(x).astype(t.numpy) for x, t in zip((*values, *given), types, strict=True)]


def computed(name: str, there: Namespace, attrs: dict[str, Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The new values, by arrays of a namespace, which the formula does not change."""
    put = [there.put(x) for x in arrays]
    out = []
    for x in RULES[name].formula(there.xp, attrs, *put):
        assert isinstance(x, there.array), f"{x!r} is no array of the namespace"
        out.append(there.get(x))
    for x, before in zip(put, arrays, strict=True):
        np.testing.assert_array_equal(there.get(x), before)
    return out


def expected(name: str, attrs: dict[str, Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    return list(RULES[name].formula(np, attrs, *(x.copy() for x in arrays)))


def has(name: str, dtype: DType) -> bool:
    """Whether the ops of a formula have a dtype."""
    record = next(op_registry.get(form + name) for form in ("Apply", "ResourceApply") if form + name in op_registry)
    allowed = record.attrs["T"].allowed
    return allowed is None or dtype in allowed


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_a_formula_computes_in_its_namespace(name: str, flag: bool, namespace: str) -> None:
    there, attrs = NAMESPACES[namespace](), dict.fromkeys(FLAGS, flag)
    for dtype in DTYPES:
        if dtype not in there.dtypes or not has(name, dtype):
            continue
        arrays = drawn(name, dtype)
        tolerance = 10 * RTOL[dtype.name]
        want = expected(name, attrs, arrays)
        for g, w in zip(computed(name, there, attrs, arrays), want, strict=True):
            assert g.dtype == w.dtype
            assert g.shape == w.shape
            wide = np.complex128 if dtype.is_complex else np.float64
            np.testing.assert_allclose(g.astype(wide), w.astype(wide), tolerance, tolerance)


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("name", [n for n in RULES if "l1" in RULES[n].args])
def test_without_l1_nothing_shrinks(name: str, namespace: str) -> None:
    there, attrs = NAMESPACES[namespace](), dict.fromkeys(FLAGS, False)
    arrays = drawn(name, dtypes.float64, zero="l1")
    for g, w in zip(computed(name, there, attrs, arrays), expected(name, attrs, arrays), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-12)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_arguments_are_checked_in_every_namespace(namespace: str) -> None:
    there, attrs = NAMESPACES[namespace](), dict.fromkeys(FLAGS, False)
    with pytest.raises(InvalidArgumentError, match="lr is not a positive scalar: 0"):
        computed("ProximalAdagrad", there, attrs, drawn("ProximalAdagrad", dtypes.float64, zero="lr"))
    with pytest.raises(InvalidArgumentError, match="lr is not a positive scalar: 0"):
        computed("Ftrl", there, {**attrs, "Tindices": dtypes.int32}, drawn("Ftrl", dtypes.float64, zero="lr"))
