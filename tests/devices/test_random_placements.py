"""Random programs with operations on the CPU and on devices with PyTorch's tensors, at random.

Their values are those of plain Python; gradients are those of one CPU, within the rounding of sums in another order.
With one CPU and one such device the step is one function with copies (`partition.joined`); with several, and under the
interpreter, the partitioner cuts it. `FAR` is a simulated GPU.
`python -m tests.devices.test_random_placements KIND SEED` runs one program.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError
from tests import tiers
from tests.compile.waiting_programs import Program, numbers_of
from tests.grad.test_random_gradients import Example, Made, _all
from tests.multi.drawn import PARALLEL, drawn
from tests.multi.scattering import scatter

pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
importlib.import_module("tests.devices.simulated_cuda")  # the type of device `FAR`, whose copies overlap
pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

LAYOUTS: tuple[tuple[str, dict[str, int]], ...] = (
    ("auto", {"CPU": 1, "TORCH": 1}),
    ("interpret", {"CPU": 1, "TORCH": 1}),
    ("auto", {"CPU": 2, "TORCH": 2}),
    ("auto", {"CPU": 1, "FAR": 1}),
)
EACH = 12  # programs of a test; four times as many in the nightly tier
TIMEOUT_MS = 60_000


def names(devices: dict[str, int]) -> list[str]:
    """The devices of a layout."""
    return [f"/device:{kind}:{i}" for kind, n in devices.items() for i in range(n)]


@contextlib.contextmanager
def _silent() -> Iterator[io.StringIO]:
    err, sys.stderr = sys.stderr, io.StringIO()
    try:
        yield sys.stderr
    finally:
        sys.stderr = err


def check_values(seed: int, layout: int) -> None:
    """A program has the results, lines and errors of plain Python."""
    rng = random.Random(f"values {seed}")
    engine, devices = LAYOUTS[layout]
    d = drawn(rng, bool(seed % 2))
    scatter(d.graph, rng, names(devices))
    variables = d.build.variables if seed % 2 else {}
    with _silent() as shown, hr.Session(graph=d.graph, devices=devices, engine=engine) as session:
        for target in [*(v.initializer for v in variables.values()), *(d.build.fill if variables else ())]:
            session.run(target, timeout_ms=TIMEOUT_MS)
        run = lambda: session.run([*d.values, *d.effects], d.build.feeds, timeout_ms=TIMEOUT_MS)
        if d.failure is not None:
            with pytest.raises(InvalidArgumentError, match=re.escape(f"assertion failed: {d.failure}")):
                run()
            return
        got = run()
        ends = session.run(list(d.build.ends.values()), timeout_ms=TIMEOUT_MS) if variables else []
    assert shown.getvalue().splitlines() == d.python.shown
    for name, x in zip(d.names, got, strict=False):
        np.testing.assert_array_equal(np.asarray(x), np.array(d.python.values[name], np.int32), name)
    if variables:
        assert ends == list(d.python.variables.values())


def check_gradients(seed: int, layout: int) -> None:
    """Gradients equal those of one CPU."""
    rng = random.Random(f"gradients {seed}")
    engine, devices = LAYOUTS[layout]
    e = Example(60_000 + seed)
    with Made(e, rng.choice(PARALLEL)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    with made.session() as session:
        want = made.run(fetches, session)
    scatter(made.graph, rng, names(devices))
    with hr.Session(graph=made.graph, devices=devices, engine=engine) as session:
        session.run(made.inputs["V"].initializer)
        got = made.run(fetches, session)
    for t, a, b in zip(fetches, got, want, strict=True):
        e.close(a, b, t.name)


def check_waiting(seed: int, layout: int) -> None:
    """A program that fills its own queues ends, with the numbers of plain Python."""
    rng = random.Random(f"waiting {seed}")
    engine, devices = LAYOUTS[layout]
    program = Program(rng, 10)
    scatter(program.graph, rng, names(devices))
    with hr.Session(graph=program.graph, devices=devices, engine=engine) as session:
        assert numbers_of(session.run(program.fetches, timeout_ms=TIMEOUT_MS)) == program.numbers


KINDS = {"values": check_values, "gradients": check_gradients, "waiting": check_waiting}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("kind", KINDS)
def test_random_placements(kind: str, layout: int) -> None:
    _all(tiers.rotated(range(EACH), 3), lambda seed: KINDS[kind](seed, layout))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("kind", KINDS)
def test_more_random_placements(kind: str, layout: int) -> None:
    _all(range(EACH, 5 * EACH), lambda seed: KINDS[kind](seed, layout))


if __name__ == "__main__":
    for seed in range(int(sys.argv[2]), int((sys.argv[3:] or [int(sys.argv[2]) + 1])[0])):
        for layout in range(len(LAYOUTS)):
            try:
                KINDS[sys.argv[1]](seed, layout)
            except Exception as error:
                first: Any = str(error).strip().splitlines()[:2]
                print(sys.argv[1], seed, layout, type(error).__name__, *first, flush=True)
