"""Lists, pure kernels and updates come late, and reads of variables early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.schedule.program import Loop, Program
from headrace.schedule.verify import verify
from headrace.targets.native import engine
from headrace.targets.native.ordering import Reasons, call_kernels_late, make_lists_late, read_early, update_late
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


@pytest.mark.system
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


def around(loop_reads_kernel: bool) -> tuple[list[Any], list[Any]]:
    """Elementwise work, a kernel, a loop over the rows of that work, and a stack."""
    x = hr.placeholder(hr.float32, [50, 3, 3])
    work = hr.tanh(x) * 2.0
    turned = hr.linalg.inv(x)
    scale = turned[0] if loop_reads_kernel else hr.ones([3, 3])
    rows = hr.TensorArray(hr.float32, 50).unstack(work)
    ys = hr.TensorArray(hr.float32, 50, element_shape=[3, 3])
    made = hr.while_loop(
        lambda t, ys: t < 50, lambda t, ys: (t + 1, ys.write(t, hr.exp(rows.read(t)) * scale)), [0, ys]
    )[1]
    return [made.stack() + turned], [x]


@pytest.mark.parametrize("loop_reads_kernel", [False, True])
def test_a_kernel_does_not_separate_a_loop_from_its_preparation(loop_reads_kernel: bool) -> None:
    with hr.Graph():
        found = program(*around(loop_reads_kernel))
        make_lists_late(found)
        before = kinds(found)
        call_kernels_late(found, Reasons())
    order = kinds(found)
    assert sorted(order) == sorted(before)
    loop = next(k for k, i in enumerate(found.block.instrs) if isinstance(i, Loop))
    assert (order.index("MatrixInverse") > loop) is not loop_reads_kernel
    regions = [r for r in native_regions(found) if any(isinstance(i, Loop) for i in r.instrs)]
    (region,) = regions
    assert ("Tanh" in [i.op.type for i in region.instrs]) is not loop_reads_kernel
    verify(found)
    call_kernels_late(found, Reasons())
    assert kinds(found) == order


@pytest.mark.parametrize("loop_reads_kernel", [False, True])
def test_results_with_a_late_kernel(loop_reads_kernel: bool) -> None:
    with hr.Graph():
        fetches, (x,) = around(loop_reads_kernel)
        value = np.random.default_rng(0).normal(size=(50, 3, 3)).astype(np.float32)
        results = []
        for native, engine_name in (("off", "interpret"), ("off", "compiled"), ("on", "compiled")):
            with flags.override(NATIVE=native, CACHE="off"), hr.Session(engine=engine_name) as session:
                results.append(session.run(fetches, {x: value})[0])
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=2e-4, atol=1e-5)


@pytest.mark.system
def test_lists_pass_between_sections_as_arrays() -> None:
    """A kernel runs between the loops that fill and empty the lists."""
    with hr.Graph():
        n, x = hr.placeholder(hr.int32, []), hr.placeholder(hr.float32, [4, 4])
        y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, (hr.tanh(v @ x) + 1.5) * v), [0, x])[1]
        (dx,) = hr.gradients([hr.linalg.det(y)], [x])
        value = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
        results = []
        for native, engine_name in (("off", "interpret"), ("off", "compiled"), ("on", "compiled")):
            with flags.override(NATIVE=native, CACHE="off"), hr.Session(engine=engine_name) as session:
                run = session.make_callable([y, dx], [n, x])
                results.append([run(length, value) for length in (0, 1, 2, 5)])
                source = hr.explain(run).source
    assert source.count("(run.look") == 2  # the sections of both loops
    assert " list(" not in source
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5)


def test_a_list_that_a_kernel_reads_too_is_a_list() -> None:
    with hr.Graph():
        n, x = hr.placeholder(hr.int32, []), hr.placeholder(hr.float32, [4, 4])
        ys = hr.TensorArray(hr.float32, 0, dynamic_size=True, element_shape=[4, 4])
        made = hr.while_loop(
            lambda i, v, ys: i < n, lambda i, v, ys: (i + 1, hr.tanh(v @ x), ys.write(i, v)), [0, x, ys]
        )[2]
        fetches = [made.concat(), made.size()]
        value = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
        results = []
        for native in ("off", "on"):
            with flags.override(NATIVE=native, CACHE="off"), hr.Session(engine="compiled") as session:
                results.append([session.run(fetches, {n: length, x: value}) for length in (1, 7)])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
        assert got[1] == want[1]


# *** Variables ***


def trained() -> tuple[list[Any], list[Any], dict[Any, Any]]:
    """Two variables, each read and updated between native work."""
    x = hr.placeholder(hr.float32, [4, 4])
    first, second = (hr.Variable(np.full((4, 4), k, np.float32)) for k in (1, 2))
    y = hr.tanh(x @ first.read_value())
    one = first.assign_add(hr.sin(y), read_value=False)
    with hr.control_dependencies([one]):
        z = hr.tanh(y @ second.read_value())
        two = second.assign_sub(z, read_value=False)
    with hr.control_dependencies([two]):
        return [y, hr.identity(z)], [first, second], {x: np.eye(4, dtype=np.float32)}


def test_reads_and_updates_of_variables_do_not_separate_native_work() -> None:
    with hr.Graph():
        fetches, _, feeds = trained()
        found = program(fetches, list(feeds))
    before = kinds(found)
    read_early(found, Reasons())
    update_late(found, Reasons())
    order = kinds(found)
    assert sorted(order) == sorted(before)
    calls = [k for k in order if "Variable" in k]
    assert calls == [k for k in before if "Variable" in k]  # in their order
    assert "ReadVariableOp" in order[0]
    assert "Variable" in order[-1]
    verify(found)


def test_a_large_update_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "LATE_UPDATE_BYTES", 63)
    with hr.Graph():
        fetches, _, feeds = trained()
        found = program(fetches, list(feeds))
    before = kinds(found)
    update_late(found, Reasons())
    assert kinds(found) == before


def test_variables_have_the_same_values() -> None:
    results = []
    for native, engine_name in (("off", "interpret"), ("off", "compiled"), ("on", "compiled")):
        with hr.Graph():
            fetches, variables, feeds = trained()
            with flags.override(NATIVE=native, CACHE="off"), hr.Session(engine=engine_name) as session:
                session.run(hr.variables_initializer(variables))
                for _ in range(2):
                    session.run(fetches, feeds)
                results.append(session.run([v.read_value() for v in variables], feeds))
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("waits", [True, False])
def test_an_update_precedes_the_native_work_that_waits_for_it(waits: bool) -> None:
    with hr.Graph() as g, flags.override(NATIVE="on"):
        v: Any = hr.Variable(0.0)
        x, d = hr.placeholder(hr.int32, (3,)), hr.placeholder(hr.int32, ())
        update = v.assign_add(1.0, read_value=False)
        with hr.control_dependencies([update] if waits else []):
            y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y // d + 1), (0, x))[1]
        with hr.Session(graph=g, engine="compiled") as session:
            session.run(v.initializer)
            assert session.run([y, update], {x: [5, 6, 7], d: 2})[0].tolist() == [2, 2, 2]
            with pytest.raises(hr.errors.InvalidArgumentError):
                session.run([y, update], {x: [5, 6, 7], d: 0})
            assert session.run(v) == 2.0 if waits else session.run(v) >= 1.0


def test_an_assertion_precedes_the_native_work_that_waits_for_it() -> None:
    with hr.Graph() as g, flags.override(NATIVE="on"):
        x, d = hr.placeholder(hr.int32, (3,)), hr.placeholder(hr.int32, ())
        check = hr.assert_greater(d, 0, message="divisors are positive")
        with hr.control_dependencies([check]):
            y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y // d + 1), (0, x))[1]
        with hr.Session(graph=g, engine="compiled") as session:
            assert session.run(y, {x: [5, 6, 7], d: 2}).tolist() == [2, 2, 2]
            with pytest.raises(hr.errors.InvalidArgumentError, match="divisors are positive"):
                session.run(y, {x: [5, 6, 7], d: 0})


def trained_in_a_loop() -> tuple[list[Any], list[Any], list[Any]]:
    """A loop that reads and updates variables in its body and in a branch."""
    n, x = hr.placeholder(hr.int32, []), hr.placeholder(hr.float32, [8, 8])
    first, second, seen = (hr.Variable(np.full((8, 8), k / 8, np.float32)) for k in range(3))

    def learn() -> Any:
        reads = [first.read_value(), second.read_value()]
        y = hr.tanh(x @ reads[0])
        one = first.assign_sub(hr.sin(y) * 0.1, read_value=False)
        z = hr.tanh(y @ reads[1])
        two = second.assign_sub(z * 0.1, read_value=False)
        loss = hr.reduce_sum(hr.tanh(z) * hr.cos(z))
        with hr.control_dependencies([one, two]):
            return hr.identity(loss)

    def body(i: Any, total: Any) -> Any:
        count = seen.assign_add(hr.tanh(seen.read_value() + x), read_value=False)
        with hr.control_dependencies([count]):
            loss = hr.cond(i % 3 > 0, learn, lambda: hr.reduce_sum(x))
        return i + 1, total + loss

    total = hr.while_loop(lambda i, t: i < n, body, [0, 0.0])[1]
    with hr.control_dependencies([total]):
        return [total, first.read_value(), second.read_value(), seen.read_value()], [first, second, seen], [n, x]


def test_updates_in_a_branch_of_a_loop_come_after_its_native_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_LEAST_SAVING", 0)
    with hr.Graph():
        fetches, _, feeds = trained_in_a_loop()
        found = program(fetches, feeds)
    read_early(found, Reasons())
    update_late(found, Reasons())
    verify(found)
    (branch,) = (b for b in found.walk() if sum(i.op.type == "AssignSubVariableOp" for i in b.instrs) == 2)
    order = [i.op.type for i in branch.instrs]
    calls = [k for k, kind in enumerate(order) if "Variable" in kind]
    assert calls == [0, 1, len(order) - 2, len(order) - 1]
    (region,) = (r for r in native_regions(found) if r.block is branch)
    assert (region.start, region.stop) == (2, len(order) - 2)


def test_results_and_variables_of_such_a_loop() -> None:
    results = []
    value = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    for native, engine_name in (("off", "interpret"), ("off", "compiled"), ("on", "compiled")):
        with hr.Graph(), flags.override(NATIVE=native, CACHE="off"), hr.Session(engine=engine_name) as session:
            fetches, variables, (n, x) = trained_in_a_loop()
            session.run(hr.variables_initializer(variables))
            results.append([session.run(fetches, {n: 7, x: value}), session.run(variables)])
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
