"""Any passes, in any order: random programs and their gradients give what they give without."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import inside_out
from headrace.ir.graph import Graph
from headrace.ir.text import to_text
from headrace.ir.verify import verify
from headrace.optimize.base import Pass, PassContext, Repeat, run
from headrace.optimize.loops import LOOP_PASSES
from headrace.optimize.pipeline import PASSES
from headrace.prune import prune
from tests.api import programs as stateful_programs
from tests.api.test_random_programs import _check, _program
from tests.grad.test_random_gradients import Example, Made
from tests.optimize.running import optimized

pytestmark = pytest.mark.matrix

EACH: list[Pass] = list(
    {p.name: p for step in PASSES for p in (step.passes if isinstance(step, Repeat) else (step,))}.values()
)
EXACT = [p for p in EACH if p.is_exact]
OTHERS = [p for p in EACH if p not in LOOP_PASSES]

_quiet = (HealthCheck.too_slow, HealthCheck.data_too_large)
some = settings(max_examples=6, suppress_health_check=_quiet)
many = settings(max_examples=1000, suppress_health_check=_quiet)
rngs = st.integers(0, 2**48).map(random.Random)


def _some(rng: random.Random, passes: list[Pass]) -> list[Pass]:
    """A random choice of passes, in random order, some of them twice."""
    return [rng.choice(passes) for _ in range(rng.randrange(1, 2 * len(passes)))]


def _check_stateful(rng: random.Random, stateful: bool) -> None:
    block = _program(rng, stateful)
    with optimized(_some(rng, EACH)):
        _check(block, stateful_programs.initial(rng), stateful, rng.choice([1, 10]), rng.randrange(1000))


def _check_gradients(seed: int, passes: list[Pass], is_exact: bool) -> None:
    """Passes leave gradients the same.

    Some passes on loops may add or multiply in another order; the others change no bit.
    """
    with Made(Example(seed)) as made:
        grads = made.gradients(made.y)
        fetches = [made.y, *grads.values()]
    with optimized([]):
        want = made.run(fetches)
    with optimized(passes):
        got = made.run(fetches)
    for a, b in zip(got, want, strict=True):
        if is_exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def _check_contract(seed: int, passes: list[Pass]) -> None:
    """Passes keep their contract.

    Each pass reports correctly whether it changed the graph, and adds no operations unless it declares that it grows.
    After all passes have been repeated to a fixed point, none changes anything.
    """
    with Made(Example(seed)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    graph = prune([made.inputs[n] for n in made.inputs if n != "V"], fetches, []).graph
    own_bodies(graph)
    context = PassContext()
    for p in passes:
        before, count = to_text(graph), _count(graph)
        changed = run((p,), graph, context, verify)
        after = to_text(graph)
        assert changed == (after != before), p.name
        assert p.grows or _count(graph) <= count, p.name
    run((Repeat(tuple(OTHERS), limit=50),), graph, context)
    assert not run(OTHERS, graph, context)


def _count(graph: Graph) -> int:
    return sum(len(g) for g in inside_out(graph))


@pytest.mark.parametrize("stateful", [False, True], ids=["values", "state"])
@some
@given(rng=rngs)
def test_optimized_random_programs_are_unchanged(stateful: bool, rng: random.Random) -> None:
    _check_stateful(rng, stateful)


@some
@given(rng=rngs)
def test_optimized_random_gradients_are_unchanged(rng: random.Random) -> None:
    _check_gradients(rng.randrange(2**32), _some(rng, EACH), is_exact=False)


@some
@given(rng=rngs)
def test_gradients_bit_for_bit(rng: random.Random) -> None:
    _check_gradients(rng.randrange(2**32), _some(rng, EXACT), is_exact=True)


@some
@given(rng=rngs)
def test_the_contract(rng: random.Random) -> None:
    _check_contract(rng.randrange(2**32), _some(rng, EXACT))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stateful", [False, True], ids=["values", "state"])
@many
@given(rng=rngs)
def test_many_programs(stateful: bool, rng: random.Random) -> None:
    _check_stateful(rng, stateful)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@many
@given(rng=rngs)
def test_many_gradients(rng: random.Random) -> None:
    _check_gradients(rng.randrange(2**32), _some(rng, EACH), is_exact=False)
    _check_gradients(rng.randrange(2**32), _some(rng, EXACT), is_exact=True)
    _check_contract(rng.randrange(2**32), _some(rng, EXACT))
