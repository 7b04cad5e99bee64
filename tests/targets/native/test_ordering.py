"""Lists are made at their first readers, behind calls of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags
from headrace.schedule.program import Loop, Program
from headrace.targets.native import engine
from headrace.targets.native.ordering import make_lists_late
from headrace.targets.native.regions import native_regions
from tests.compile.running import program

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine


def step() -> tuple[list[Any], list[Any]]:
    """A list that is made before a call of a kernel, and filled behind it."""
    x = hr.placeholder(hr.float32, [50, 3, 3])
    ys = hr.TensorArray(hr.float32, 50, element_shape=[3, 3])
    rows = hr.TensorArray(hr.float32, 50).unstack(x)
    scale = hr.linalg.det(x[0])
    made = hr.while_loop(
        lambda t, ys: t < 50, lambda t, ys: (t + 1, ys.write(t, hr.tanh(rows.read(t)) * scale)), [0, ys]
    )[1]
    return [made.stack()], [x]


def kinds(found: Program) -> list[str]:
    return [i.op.type for i in found.block.instrs]


def test_a_call_of_a_kernel_does_not_separate_a_list_from_its_loop() -> None:
    with hr.Graph():
        found = program(*step())
    assert native_regions(found) == []
    before = kinds(found)
    make_lists_late(found)
    assert sorted(kinds(found)) == sorted(before)
    loop = next(k for k, i in enumerate(found.block.instrs) if isinstance(i, Loop))
    assert set(kinds(found)[loop - 2 : loop]) == {"TensorListReserve", "TensorListFromTensor"}
    (region,) = native_regions(found)
    assert any(isinstance(i, Loop) for i in region.instrs)
    order = kinds(found)
    make_lists_late(found)
    assert kinds(found) == order


def test_the_results_stay() -> None:
    with hr.Graph():
        fetches, (x,) = step()
        value = np.random.default_rng(0).normal(size=(50, 3, 3)).astype(np.float32)
        results = []
        for native in ("off", "on"):
            with flags.override(NATIVE=native, CACHE="off"), hr.Session(engine="compiled") as session:
                run = session.make_callable(fetches, [x])
                results.append(run(value)[0])
                parts = hr.explain(run).native
    assert not parts[0].startswith("0 ")
    np.testing.assert_allclose(results[1], results[0], rtol=2e-5, atol=1e-6)
