"""Random programs over worker processes: results of one device and of plain Python.

Each operation requests the device of a random worker, so conditions, bodies and single operations of nested loops are
cut apart between processes. `python -m tests.dist.test_random_programs KIND SEED` runs one program, and
`python -m tests.dist.many_programs` many.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import InvalidArgumentError
from tests import tiers
from tests.compile.waiting_programs import Program, numbers_of
from tests.execute.machine import SeededReady
from tests.grad.test_random_gradients import Example, Made, _all
from tests.multi.drawn import PARALLEL, drawn
from tests.multi.scattering import scatter

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine, pytest.mark.timeout(600)]

WORKERS = 3
DEVICES = [f"/job:worker/replica:0/task:{i}/device:CPU:{d}" for i, d in ((0, 0), (0, 1), (1, 0), (2, 0))]
LIMIT = 60_000  # milliseconds of a step

_cluster: hr.cluster.LocalCluster | None = None


def cluster() -> hr.cluster.LocalCluster:
    """The workers of all tests of this process."""
    global _cluster
    if _cluster is None:
        _cluster = hr.cluster.local(WORKERS, devices={"CPU": 2})
    return _cluster


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    yield
    global _cluster
    if _cluster is not None:
        _cluster.close()
        _cluster = None


def _session(graph: hr.Graph) -> hr.Session:
    session = hr.Session(cluster(), graph=graph)
    session.clear_container()  # programs have variables and queues of the same names
    return session


def check_values(seed: int, optimize: str = "off") -> None:
    """A program with variables and queues computes the integers and lists of plain Python."""
    rng = random.Random(f"cluster values {seed}")
    stateful = bool(seed % 2)
    d = drawn(rng, stateful)
    build, python, failure = d.build, d.python, d.failure
    scatter(d.graph, rng, DEVICES)
    with flags.override(OPTIMIZE=optimize), _session(d.graph) as session:
        for target in [*(v.initializer for v in build.variables.values()), *build.fill] if stateful else ():
            session.run(target)
        try:
            got = session.run([d.values, d.effects], build.feeds, timeout_ms=LIMIT)[0]
        except InvalidArgumentError as e:
            if failure is None or f"assertion failed: {failure}" not in str(e):
                raise
            return
        assert failure is None, f"{failure} should have failed"
        for name, x in zip(d.names, got, strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.array(python.values[name], np.int32), name)
        if stateful:
            assert session.run(list(build.ends.values())) == list(python.variables.values())


def check_gradients(seed: int, optimize: str = "off") -> None:
    """Gradients equal those of one device; some passes of "on" add in another order."""
    rng = random.Random(f"cluster gradients {seed}")
    e = Example(50_000 + seed)
    with Made(e, rng.choice(PARALLEL)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    with made.session() as session:
        want = made.run(fetches, session, ready=SeededReady(None))
    scatter(made.graph, rng, DEVICES)
    with flags.override(OPTIMIZE=optimize), _session(made.graph) as session:
        session.run(made.inputs["V"].initializer)
        for _ in range(2):
            got = made.run(fetches, session)
            for t, a, b in zip(fetches, got, want, strict=True):
                if optimize == "off":
                    np.testing.assert_array_equal(a, b, f"{t.name}, {e!r}")
                else:
                    e.close(a, b, t.name)


def check_waiting(seed: int, optimize: str = "off") -> None:
    """A program that fills its own queues ends, with the same numbers."""
    rng = random.Random(f"cluster waiting {seed}")
    program = Program(rng, 10)
    scatter(program.graph, rng, DEVICES)
    with flags.override(OPTIMIZE=optimize), _session(program.graph) as session:
        assert numbers_of(session.run(program.fetches, timeout_ms=LIMIT)) == program.numbers


CHECKS: dict[str, Callable[[int, str], None]] = {
    "values": check_values,
    "gradients": check_gradients,
    "waiting": check_waiting,
}


@pytest.mark.parametrize("optimize", ["off", "on"])
@pytest.mark.parametrize(("kind", "count"), [("values", 16), ("gradients", 4), ("waiting", 8)])
def test_random_programs_on_workers(kind: str, count: int, optimize: str) -> None:
    _all(tiers.rotated(range(count), 3), lambda seed: CHECKS[kind](seed, optimize))


@pytest.mark.parametrize(("kind", "seed", "optimize"), [
    ("gradients", 1105, "off"),  # the final value of a counter was not sent to a device without the loop
    ("gradients", 1385, "off"),  # a transposed matrix lost its layout on its way
    ("gradients", 11195, "off"),  # a conditional that is not reached has no device
])  # fmt: skip
def test_programs_that_failed_once(kind: str, seed: int, optimize: str) -> None:
    CHECKS[kind](seed, optimize)


if __name__ == "__main__":
    CHECKS[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
