"""Recordings of random programs with effects, compared with the interpreter's events."""

from __future__ import annotations

import collections
import contextlib
import json

import pytest

import headrace as hr
from headrace.observe.recorded import check
from headrace.observe.recording import Recording
from tests.observe import reading
from tests.order import running
from tests.order.generating import generate

pytestmark = pytest.mark.matrix

EACH = 10  # programs of one test


def step(seed: int, listener: Recording | reading.Events) -> bool:
    """Whether a run of the program, in a session of its own, succeeds."""
    g = hr.Graph()
    built = running.Built(generate(seed), running.ORDERED, g, g.as_default())
    with hr.Session(graph=g, engine="interpret") as session:
        built.start(session)
        with contextlib.suppress(hr.errors.OpError):
            built.step(session, options=hr.RunOptions(listener=listener, timeout_in_ms=20_000))
            return True
    return False


@pytest.mark.parametrize("block", range(6))
def test_a_recording_has_each_firing_of_a_random_program(block: int) -> None:
    compared = 0
    for seed in range(EACH * block, EACH * (block + 1)):
        events, recording = reading.Events(), hr.record()
        has_run = step(seed, events), step(seed, recording)
        assert has_run[0] == has_run[1], seed
        document = json.loads(json.dumps(recording.document()))
        check(document)
        if has_run[0]:  # else the firings before the error depend on the threads of queues
            found = collections.Counter((t.node, t.tag, t.dead) for t in reading.fired(document))
            assert found == collections.Counter(events.ends()), seed
            compared += 1
    assert compared > EACH // 2
