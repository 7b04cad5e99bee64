"""Structured, primitive, structured: random programs are lowered, recovered, and do the same as plain Python."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.function import owned
from headrace.ir.graph import Graph, Operation
from headrace.ir.verify import verify
from headrace.lower import lower
from headrace.prune import prune
from headrace.recover import recover
from tests.api.programs import LISTS, Block, Build, Failed, Python, initial
from tests.api.test_random_programs import _draw, _fills, _program
from tests.execute.machine import SeededReady
from tests.inside import share_resources

pytestmark = pytest.mark.matrix

_quiet = (HealthCheck.too_slow, HealthCheck.data_too_large)
some = settings(max_examples=15, suppress_health_check=_quiet)
many = settings(max_examples=1500, suppress_health_check=_quiet)

rngs = st.integers(0, 2**48).map(random.Random)


def inside(op: Operation) -> Iterator[Operation]:
    for graph in owned(op):
        for o in graph.operations:
            yield o
            yield from inside(o)


def _check(block: Block, start: dict[str, Any], stateful: bool, parallel: int, seed: int) -> None:
    python = Python(start, _draw)
    want = None
    try:
        python.run(block)
    except Failed as e:
        want = str(e)
    with hr.Graph() as g:
        build = Build(start, parallel, python.took, stateful)
        build.run(block)
        fetches = {n: (v.stack() if n in LISTS else scopes.builder().Identity(v)) for n, v in build.values.items()}
    done_before = {v.initializer for v in build.variables.values()} | set(_fills(build))
    effectful = [op for op in g.operations if op.opdef.is_effectful]
    run = [op for op in effectful if op not in done_before and not _is_setting_up(build, op)]

    pruned = prune([*build.feeds], [*fetches.values()], run).graph
    lowered = lower(pruned, [op for t in run if (op := pruned.find(t.name)) is not None])
    primitive = lowered.graph
    effects = [op for op in lowered.ops if op.opdef.is_effectful]
    recover(primitive, None, effects)
    tops = [op for op in primitive.operations if op.opdef.structured]
    copied = {o.name for op in tops for o in inside(op)}
    targets = [op for op in tops if any(f.control_results for f in owned(op))]
    targets += [op for op in effects if op.name not in copied]
    args = [op.outputs[0] for op in primitive.operations if op.type == "_Arg"]
    rets = sorted((op for op in primitive.operations if op.type == "_Retval"), key=lambda op: op.attrs["index"])

    step = prune(args, [r.inputs[0] for r in rets], targets).graph
    verify(step)
    assert not any(op.opdef.primitive for op in step.operations)
    with hr.Session(graph=g) as first, hr.Session(graph=primitive) as second:
        share_resources(second, first)
        if stateful:
            first.run([v.initializer for v in build.variables.values()])
            first.run(build.fill)
        late = frozenset(op.name for op in effects if random.Random(f"{seed} {op.name}").random() < 0.4)
        options = hr.RunOptions(ready=SeededReady(seed, last=late), timeout_in_ms=30_000)
        feeds = dict(zip(args, [build.feeds[t] for t in build.feeds], strict=True))
        err, sys.stderr = sys.stderr, io.StringIO()
        try:
            got, _ = second.run(([r.inputs[0] for r in rets], targets), feeds, options)
            failed = None
        except InvalidArgumentError as e:
            failed = e
        finally:
            shown, sys.stderr = sys.stderr.getvalue().splitlines(), err
        assert shown == python.shown
        if want is not None:
            assert f"assertion failed: {want}" in str(failed)
            return
        if failed is not None:
            raise failed
        for name, value in zip(fetches, got, strict=True):
            np.testing.assert_array_equal(value, np.array(python.values[name], np.int32), name)
        if stateful:
            assert first.run(build.ends) == python.variables


def _is_setting_up(build: Build, op: Operation) -> bool:
    """Whether an operation is a variable or a queue, or sets one up.

    Operations that set one up read it before the program, or fill it.
    """
    ends = {t.op for t in getattr(build, "ends", {}).values()}
    return op in ends or op.type in ("VarHandleOp", "FIFOQueueV2") or op.type.startswith(("VarIsInit", "QueueEnqueueM"))


_both = pytest.mark.parametrize("stateful", [False, True], ids=["values", "state"])


@_both
@some
@given(rng=rngs, parallel=st.sampled_from([1, 2, 10]))
def test_recovered_random_programs_match_python(stateful: bool, rng: random.Random, parallel: int) -> None:
    _check(_program(rng, stateful), initial(rng), stateful, parallel, rng.randrange(1000))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@_both
@many
@given(rng=rngs, parallel=st.sampled_from([1, 2, 10]))
def test_many_programs(stateful: bool, rng: random.Random, parallel: int) -> None:
    _check(_program(rng, stateful), initial(rng), stateful, parallel, rng.randrange(1000))


def _again(g: Graph, feeds: list[Any], fetch: Any) -> tuple[Graph, Any]:
    """The graph of `fetch`, lowered and recovered, and the fetch in it."""
    primitive = lower(prune(feeds, [fetch], []).graph).graph
    recover(primitive)
    (ret,) = [op for op in primitive.operations if op.type == "_Retval"]
    assert not any(op.opdef.primitive for op in walk.reachable([ret]))
    return primitive, ret.inputs[0]


@pytest.mark.parametrize("k", range(4))
def test_a_case(k: int) -> None:
    with hr.Graph() as g:
        i, x = hr.placeholder(hr.int32, ()), hr.placeholder(hr.float32, (2,))
        y = hr.switch_case(i, [lambda: x + 1.0, lambda: hr.cond(x[0] > 0.0, lambda: -x, lambda: x), lambda: x * x])
    again, fetch = _again(g, [i, x], y)
    args = [op.outputs[0] for op in again.operations if op.type == "_Arg"]
    value = np.array([2.0, -3.0], np.float32)
    with hr.Session(graph=g) as a, hr.Session(graph=again) as b:
        np.testing.assert_array_equal(
            b.run(fetch, dict(zip(args, [k, value], strict=True))), a.run(y, {i: k, x: value})
        )


def test_gradients_after_the_round_trip() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        _, y = hr.while_loop(
            lambda i, y: i < 4, lambda i, y: (i + 1, hr.cond(y > 5.0, lambda: y * 0.5 * x, lambda: y * x)), (0, 1.0)
        )
    again, fetch = _again(g, [x], y)
    (arg,) = [op.outputs[0] for op in again.operations if op.type == "_Arg"]
    with hr.Session(graph=g) as a, hr.Session(graph=again) as b:
        for _ in range(3):
            assert b.run(fetch, {arg: 2.0}) == pytest.approx(a.run(y, {x: 2.0}))
            with g:
                (y,) = hr.gradients(y, [x])
            with scopes.entered(Builder(again)):
                (fetch,) = hr.gradients(fetch, [arg])
