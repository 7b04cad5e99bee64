"""Random programs under random placements have the results of one device.

Each operation of the primitive graph (or each group that has to stand together) is put on a device at random, so that
conditions, bodies, Switches, Exits and single operations of nested loops are torn apart in all manners. The order of
firing, over all devices, is random too. After each run the invariant is checked on all devices, and that no token is
left in the rendezvous. `python -m tests.multi.test_random_placements KIND SEED` runs one.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import InvalidArgumentError
from headrace.optimize.base import Options
from headrace.resources.manager import ResourceManager
from tests import tiers
from tests.compile.waiting_programs import Program, numbers_of
from tests.execute.machine import SeededReady
from tests.grad.test_random_gradients import Example, Made, _all, _along
from tests.inside import manager_of
from tests.multi import seeded
from tests.multi.drawn import PARALLEL, drawn
from tests.multi.scattering import scatter
from tests.partition.plans import partition_through_bytes

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

BLOCKS = 2  # tests of so many programs each; four times as many more in the nightly tier
EACH = 14
GRADIENTS = 4  # programs with gradients in each of them, which take longer


@pytest.fixture(autouse=True)
def _parts_go_through_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.partition.partition", partition_through_bytes)


def _compare(got: Any, want: Any, what: str) -> None:
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want), what)


# *** values, and state ***


def check_values(seed: int, options: Options | None = None) -> None:
    """A program on two or three devices computes the integers and lists of plain Python."""
    rng = random.Random(f"values {seed}")
    stateful = bool(seed % 2)
    d = drawn(rng, stateful)
    build, python, failure = d.build, d.python, d.failure
    resources = ResourceManager()
    if stateful:
        for target in [*(v.initializer for v in build.variables.values()), *build.fill]:
            _run((), {}, [target], rng, resources, options)
    err, sys.stderr = sys.stderr, io.StringIO()
    failed: InvalidArgumentError | None = None
    got: list[Any] = []
    try:
        got = _run(d.values, build.feeds, d.effects, rng, resources, options)
    except InvalidArgumentError as e:
        failed = e
    finally:
        shown, sys.stderr = sys.stderr.getvalue().splitlines(), err
    if failure is not None:
        assert failed is not None, f"{failure} should have failed"
        assert f"assertion failed: {failure}" in str(failed)
        return
    if failed is not None:
        raise failed
    assert shown == python.shown
    for name, x in zip(d.names, got, strict=True):
        _compare(x, np.array(python.values[name], np.int32), name)
    if stateful:
        assert _run(list(build.ends.values()), {}, [], rng, resources, options) == list(python.variables.values())


def _run(
    fetches: Sequence[Any],
    feeds: Mapping[Any, Any],
    targets: Sequence[Any],
    rng: random.Random,
    resources: ResourceManager,
    options: Options | None,
) -> list[Any]:
    step = seeded.lowered(fetches, list(feeds), targets, options)
    of = seeded.at_random(step, rng, rng.choice([2, 3]))
    driven = seeded.Driven(seeded.planned(step, of), rng.getrandbits(32), resources)
    return driven.run(list(feeds.values()), len(fetches))


# *** gradients ***


def check_gradients(seed: int, options: Options | None = None) -> None:
    """Gradients of the first and second order equal those of one device bit for bit."""
    rng = random.Random(f"gradients {seed}")
    e = Example(30_000 + seed)
    with Made(e, rng.choice(PARALLEL)) as made:
        first = made.gradients(made.y)
        fetches = [made.y, *first.values()]
        if seed % 5 == 0:
            fetches += made.gradients(_along(first, e.directions[0])).values()
    feeds = {made.inputs[n]: x for n, x in e.at.items() if n != "V"}
    with hr.Session(graph=made.graph, engine="interpret") as session:
        session.run(made.inputs["V"].initializer)
        want = session.run(fetches, feeds)
        got = _run(fetches, feeds, [], rng, manager_of(session), options)
    for t, a, b in zip(fetches, got, want, strict=True):
        _compare(a, b, f"{t.name}, {e!r}")


def blocks(n: int) -> list[Any]:
    """The first `n`, and four times as many in the nightly tier."""
    return [*range(n), *(pytest.param(b, marks=pytest.mark.nightly) for b in range(n, 5 * n))]


with_and_without_passes = pytest.mark.parametrize("options", [None, seeded.EXACT], ids=["plain", "optimized"])


@with_and_without_passes
@pytest.mark.parametrize("block", blocks(BLOCKS))
def test_random_programs_on_devices_match_python(block: int, options: Options | None) -> None:
    _all(tiers.rotated(range(EACH * block, EACH * (block + 1)), 3), lambda seed: check_values(seed, options))


@with_and_without_passes
@pytest.mark.parametrize("block", blocks(BLOCKS))
def test_random_gradients_on_devices_match_one_device(block: int, options: Options | None) -> None:
    _all(
        tiers.rotated(range(GRADIENTS * block, GRADIENTS * (block + 1)), 2), lambda seed: check_gradients(seed, options)
    )


# *** with threads ***


def check_threads(seed: int, optimize: str = "on") -> None:
    """Gradients in a session with random requests of devices, whose threads decide the order.

    Args:
      seed: The seed of the program and of the requests.
      optimize: The flag OPTIMIZE. Some passes add in another order.
    """
    rng = random.Random(f"threads {seed}")
    e = Example(40_000 + seed)
    with Made(e, rng.choice(PARALLEL)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    with made.session() as session:
        want = made.run(fetches, session, ready=SeededReady(None))
    scatter(made.graph, rng, 3)
    with flags.override(OPTIMIZE=optimize), hr.Session(graph=made.graph, devices={"CPU": 3}) as session:
        session.run(made.inputs["V"].initializer)
        for _ in range(2):
            got = made.run(fetches, session)
            for t, a, b in zip(fetches, got, want, strict=True):
                if optimize == "off":
                    _compare(a, b, f"{t.name}, {e!r}")
                else:
                    e.close(a, b, t.name)


def test_programs_that_found_something() -> None:
    """A random program that failed once.

    The gradient of a branch has a list whose dtype differs from that of the unused list of the other branch.
    """
    check_threads(1256, "off")


def test_a_branch_whose_control_result_was_a_parameter() -> None:
    check_threads(20064)


def check_waiting(seed: int, optimize: str = "on") -> None:
    """A program that fills its own queues ends on three devices, with the same numbers."""
    rng = random.Random(f"waiting {seed}")
    program = Program(rng, 10)
    scatter(program.graph, rng, 3)
    with flags.override(OPTIMIZE=optimize), hr.Session(graph=program.graph, devices={"CPU": 3}) as session:
        assert numbers_of(session.run(program.fetches, timeout_ms=60_000)) == program.numbers


in_both_modes = pytest.mark.parametrize("optimize", ["on", "off"])


@in_both_modes
@pytest.mark.parametrize("block", blocks(2))
def test_threads(block: int, optimize: str) -> None:
    _all(tiers.rotated(range(4 * block, 4 * (block + 1)), 2), lambda seed: check_threads(seed, optimize))


@in_both_modes
@pytest.mark.parametrize("block", blocks(1))
def test_programs_on_devices_that_fill_their_own_queues(block: int, optimize: str) -> None:
    _all(tiers.rotated(range(8 * block, 8 * (block + 1)), 2), lambda seed: check_waiting(seed, optimize))


# *** every placement of small programs ***


def _conditional(x: Any) -> Any:
    return hr.cond(x < 2, lambda: x + 1, lambda: x * x)


def _zero_or_more(x: Any) -> Any:
    return hr.while_loop(lambda i: i < 3, lambda i: i + 1, [x])[0]


def _dead_loop(x: Any) -> Any:
    return hr.cond(x < 2, lambda: _zero_or_more(x), lambda: x)


def _with_a_constant(x: Any) -> Any:
    return hr.while_loop(lambda i: i < 3, lambda i: i + hr.maximum(x, 1), [hr.constant(0)])[0]


def _gradient_of_a_conditional(x: Any) -> Any:
    return hr.gradients(hr.cond(x < 2.0, lambda: x * x, lambda: hr.sin(x)), [x])[0]


def _gradient_of_a_loop(x: Any) -> Any:
    y = hr.while_loop(lambda y: y < 8.0, lambda y: y * y, [x])[0]
    return hr.gradients(y, [x])[0]


i32, f64 = hr.int32, hr.float64
SMALL: dict[str, tuple[Callable[[Any], Any], Any, Sequence[Any]]] = {
    "conditional": (_conditional, i32, [1, 5]),
    "loop": (_zero_or_more, i32, [1, 2, 7]),
    "loop in a conditional": (_dead_loop, i32, [1, 7]),
    "loop with a constant": (_with_a_constant, i32, [1, 9]),
    "gradient of a conditional": (_gradient_of_a_conditional, f64, [1.5, 3.0]),
    "gradient of a loop": (_gradient_of_a_loop, f64, [1.5, 9.0]),
}
MOST = 300  # placements of one program in the default run; of more, some are drawn


def _check_placements(name: str, devices: int, most: int) -> None:
    program, dtype, at = SMALL[name]
    with hr.Graph():
        x = hr.placeholder(dtype, ())
        y = program(x)
    step = seeded.lowered([y], [x])
    with hr.Session(graph=x.graph, engine="interpret") as session:
        want = {v: session.run(y, {x: v}) for v in at}
    many = seeded.count(step, devices) > most
    rng = random.Random(name)
    chosen = (seeded.at_random(step, rng, devices) for _ in range(most // 4)) if many else seeded.every(step, devices)
    for seed, of in enumerate(chosen):
        plans = seeded.planned(step, of)
        for v, w in want.items():
            assert seeded.Driven(plans, seed).run([np.asarray(v, dtype.numpy)[()]]) == [w], (seed, v)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("devices", [2, 3])
def test_every_placement(name: str, devices: int) -> None:
    _check_placements(name, devices, MOST)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("devices", [2, 3])
def test_every_placement_of_larger_programs(name: str, devices: int) -> None:
    _check_placements(name, devices, 100_000)


CHECKS: dict[str, Callable[[int], None]] = {
    "values": check_values,
    "values-optimized": lambda seed: check_values(seed, seeded.EXACT),
    "gradients": check_gradients,
    "gradients-optimized": lambda seed: check_gradients(seed, seeded.EXACT),
    "threads": lambda seed: check_threads(seed, "off"),
    "threads-optimized": check_threads,
    "waiting": lambda seed: check_waiting(seed, "off"),
    "waiting-optimized": check_waiting,
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](int(sys.argv[2]))
