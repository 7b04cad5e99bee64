"""Updates of variables by native code have the bits of the formulas on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.ops.training.optimizers import RULES
from headrace.targets.native import engine
from headrace.targets.native.library import NativeLibrary
from tests.compile.running import b

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

CASES = [
    ("Adam", {"use_nesterov": False}),
    ("Adam", {"use_nesterov": True}),
    ("RMSProp", {}),
    ("CenteredRMSProp", {}),
    ("Adadelta", {}),
    ("Adagrad", {"update_slots": True}),
    ("Adagrad", {"update_slots": False}),
    ("AdagradV2", {"update_slots": True}),
]


def case(name: str, dtype: Any, shape: tuple[int, ...]) -> tuple[list[Any], Any, list[Any], int]:
    """Values, gradient, numbers and the position of the gradient, with zeros and infinities."""
    random = np.random.default_rng(0)
    rule = RULES[name]
    values = [random.random(shape).astype(dtype) for _ in rule.slots]
    gradient = random.normal(size=shape).astype(dtype)
    gradient.flat[:4] = [0.0, -0.0, np.inf, np.nan]
    numbers = [dtype(x) for x in random.uniform(0.1, 0.9, len(rule.args) - 1)]
    return values, gradient, numbers, rule.args.index("grad")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "attrs"), CASES)
def test_the_bits_are_those_of_the_formula(
    name: str, attrs: dict[str, Any], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_UPDATE", 1)
    formula = RULES[name].formula
    for shape in ((5,), (3, 67), (4, 5, 16)):
        values, gradient, numbers, position = case(name, dtype, shape)
        before = [v.copy() for v in values]
        with flags.override(NATIVE="on", CACHE="off"):
            got = NativeLibrary().updated(formula, attrs, values, gradient.T.copy().T, numbers, position)
        assert got is not None
        with np.errstate(all="ignore"):
            want = formula(np, attrs, *values, *numbers[:position], gradient, *numbers[position:])
        for new, known, old, kept in zip(got, want, values, before, strict=True):
            assert (new.dtype, new.shape) == (known.dtype, known.shape)
            nan = np.isnan(known)
            assert np.array_equal(np.isnan(new), nan)
            assert new[~nan].tobytes() == known[~nan].tobytes()
            assert old.tobytes() == kept.tobytes()
            assert not np.shares_memory(new, old)


def test_numpy_updates_what_native_code_does_not() -> None:
    library, formula = NativeLibrary(), RULES["Adam"].formula
    values, gradient, numbers, position = case("Adam", np.float32, (thresholds.NATIVE_UPDATE,))
    attrs = {"use_nesterov": False}
    with flags.override(NATIVE="on", CACHE="off"):
        few = [v[:-1] for v in values]
        assert library.updated(formula, attrs, few, gradient[:-1], numbers, position) is None
        half = [v.astype(np.float16) for v in values]
        assert library.updated(formula, attrs, half, gradient.astype(np.float16), numbers, position) is None
        wide = [np.float64(x) for x in numbers]
        assert library.updated(formula, attrs, values, gradient, wide, position) is None
    with flags.override(NATIVE="off"):
        assert library.updated(formula, attrs, values, gradient, numbers, position) is None


@pytest.mark.parametrize("engine_name", ["interpret", "compiled"])
def test_training_has_the_same_bits(engine_name: str) -> None:
    found = []
    value = np.random.default_rng(0).normal(size=(200, 100)).astype(np.float32)
    for native in ("off", "on"):
        with flags.override(NATIVE=native, CACHE="off"), hr.Graph(ordered=False) as g:
            handles = [b().VarHandleOp(shared_name=name, dtype=hr.float32, shape=value.shape) for name in "xmv"]
            x, m, v = handles
            given = [b().AssignVariableOp(h, value * k) for h, k in ((x, 1), (m, 0), (v, 0))]
            numbers = [np.float32(k) for k in (0.9, 0.999, 0.1, 0.9, 0.999, 1e-8)]
            step = b().ResourceApplyAdam(x, m, v, *numbers, b().ReadVariableOp(x, dtype=hr.float32))
            with hr.Session(graph=g, engine=engine_name) as session:
                session.run(given)
                for _ in range(3):
                    session.run(step)
                found.append(session.run([b().ReadVariableOp(h, dtype=hr.float32) for h in handles]))
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()
        assert not np.array_equal(one, value)
