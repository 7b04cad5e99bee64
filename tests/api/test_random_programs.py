"""Random structured programs: the graph and plain Python have the same effects.

This holds in every order of firing and compiled.
"""

from __future__ import annotations

import functools
import io
import random
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import flags
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.ir.function import bodies
from headrace.ir.graph import Graph
from tests.api.programs import (
    INTS,
    LISTS,
    MODULUS,
    QUEUES,
    VECTORS,
    Block,
    Build,
    Failed,
    Generator,
    If,
    Python,
    While,
    initial,
)
from tests.execute.machine import SeededReady

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

_quiet = (HealthCheck.too_slow, HealthCheck.data_too_large)
some = settings(max_examples=12, suppress_health_check=_quiet)
many = settings(max_examples=2500, suppress_health_check=_quiet)

rngs = st.integers(0, 2**48).map(random.Random)
ORDERS = 2  # random orders of firing for each program


@functools.cache
def _stream(seed2: int) -> list[int]:
    """The first numbers of a random op's stream.

    The graph contains only the random op.
    """
    with hr.Graph() as g:
        b = scopes.builder()
        x = b.RandomUniformInt(hr.constant([], hr.int32), hr.constant(0), hr.constant(MODULUS), seed=87, seed2=seed2)
    with hr.Session(graph=g) as sess:
        return [int(sess.run(x)) for _ in range(TRIPS_IN_ALL)]


TRIPS_IN_ALL = 3**3 + 1  # three loops, one in another


def _draw(seed2: int, k: int) -> int:
    return _stream(seed2)[k]


def _check(block: Block, start: dict[str, Any], stateful: bool, parallel: int, seed: int, orders: int = ORDERS) -> None:
    python = Python(start, _draw)
    want: str | None = None
    try:
        python.run(block)
    except Failed as e:
        want = str(e)
    with hr.Graph() as g:
        build = Build(start, parallel, python.took, stateful)
        build.run(block)
        fetches = {
            name: (v.stack() if name in LISTS else scopes.builder().Identity(v)) for name, v in build.values.items()
        }
        run = [op for op in g.operations if op.opdef.structured or op.type in ("Print", "Assert")] if stateful else []
        run += [op for op in g.operations if op.type.startswith(("Assign", "QueueEnqueueV2"))]
    names = _stateful(g)
    for order in range(orders + 2):
        is_compiled = order >= orders  # with all passes, and with none
        # operations with effects are also put off at random: a violated order shows best when an operation is late
        late = frozenset(n for n in names if random.Random(f"{seed} {order} {n}").random() < 0.4)
        ready = SeededReady(seed + order, last=late)
        options = hr.RunOptions(ready=None if is_compiled else ready, timeout_in_ms=30_000)
        optimize = "off" if order == orders else "on"
        # checks of values stand between the lines of compiled code, which then are not joined
        verify = 0 if is_compiled and (seed + order) % 2 else 3
        with flags.override(OPTIMIZE=optimize, VERIFY=verify), hr.Session(graph=g, engine="auto") as sess:
            if stateful:
                sess.run([v.initializer for v in build.variables.values()])
                sess.run(build.fill)
                initial_ops = {v.initializer for v in build.variables.values()}
            else:
                initial_ops = set()
            err, sys.stderr = sys.stderr, io.StringIO()
            try:
                targets = [op for op in run if op not in initial_ops and op not in _fills(build)]
                got, _ = sess.run((fetches, targets), build.feeds, options)
                failed = None
            except InvalidArgumentError as e:
                failed = e
            finally:
                shown, sys.stderr = sys.stderr.getvalue().splitlines(), err
            assert shown == python.shown
            if want is not None:
                assert failed is not None, f"{want} should have failed"
                assert f"assertion failed: {want}" in str(failed)
                continue
            if failed is not None:
                raise failed
            if not is_compiled:
                ready.check()
            for name in INTS:
                assert got[name] == python.values[name], name
            for name in VECTORS + LISTS:
                np.testing.assert_array_equal(got[name], np.array(python.values[name], np.int32), name)
            if stateful:
                assert sess.run(build.ends) == python.variables
                _check_queues(sess, g, build, python)


def _stateful(graph: Graph) -> list[str]:
    """The names of the operations that have to do with anything but values."""
    out = []
    for op in graph.operations:
        if op.opdef.facts.effect:
            out.append(op.name)
        if op.opdef.structured:
            out += [n for _, body in bodies(op) for n in _stateful(body)]
    return out


def _fills(build: Build) -> list[Any]:
    return getattr(build, "fill", [])


def _check_queues(sess: Any, g: Any, build: Build, python: Python) -> None:
    with g:
        b = scopes.builder()
        sizes = {q: b.QueueSizeV2(build.queues[q]) for q in QUEUES}
        some = {
            q: b.QueueDequeueManyV2(build.queues[q], len(python.queues[q]), component_types=[hr.int32]) for q in QUEUES
        }
    assert sess.run(sizes) == {q: len(v) for q, v in python.queues.items()}
    for q, v in sess.run(some).items():
        assert sorted(v) == sorted(python.queues[q])  # a queue keeps no order between iterations that overlap


def _program(rng: random.Random, stateful: bool) -> Block:
    while True:
        block = Generator(rng, stateful).program()
        if _depth(block) >= 1:
            return block


def _depth(block: Block) -> int:
    inner = [s.yes + s.no if isinstance(s, If) else s.body for s in block if isinstance(s, (If, While))]
    return max((1 + _depth(b) for b in inner), default=0)


_both = pytest.mark.parametrize("stateful", [False, True], ids=["values", "state"])


@_both
@some
@given(rng=rngs, parallel=st.sampled_from([1, 2, 10]))
def test_random_programs_match_python(stateful: bool, rng: random.Random, parallel: int) -> None:
    block = _program(rng, stateful)
    _check(block, initial(rng), stateful, parallel, rng.randrange(1000))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@_both
@many
@given(rng=rngs, parallel=st.sampled_from([1, 2, 10]))
def test_many_programs(stateful: bool, rng: random.Random, parallel: int) -> None:
    block = _program(rng, stateful)
    _check(block, initial(rng), stateful, parallel, rng.randrange(1000), 2 * ORDERS)
