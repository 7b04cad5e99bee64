"""Results and error texts of steps whose tokens and errors pass between devices as bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.errors import AbortedError, OpError
from headrace.execute import parts
from headrace.execute.rendezvous import LocalRendezvous
from headrace.resources.optional import Optional
from headrace.resources.tensor_list import TensorList
from tests.multi import seeded, test_collectives, test_corpus, test_layouts, test_random_placements, test_session
from tests.multi.encoding import EncodedRendezvous
from tests.multi.scattering import scatter
from tests.session.helpers import custom_ops

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

SEEDS = 4
PASSES = ("on", "off")

SUITE: list[Callable[[], None]] = [
    test_layouts.test_data_parallel_with_variables_on_one_device,
    test_layouts.test_data_parallel_learning_in_a_loop,
    test_layouts.test_parameter_server,
    test_layouts.test_rows_of_a_table_on_a_parameter_server,
    test_collectives.test_what_a_branch_gathers,
    test_session.test_a_loop_over_two_devices,
    test_session.test_what_a_loop_keeps_stays_where_it_is_made,
    test_session.test_bfloat16_on_the_wire,
    test_session.test_partial_runs,
    test_session.test_threads_share_a_session,
    test_session.test_no_device_can_go_on,
    test_session.test_closing_cancels,
]
ALONE = {test_session.test_partial_runs}  # on one device


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LocalRendezvous", EncodedRendezvous.record())


@pytest.fixture
def custom() -> Iterator[None]:
    with custom_ops():
        yield


def tokens() -> tuple[int, int]:
    """Number of live and of dead tokens that passed."""
    return sum(r.alive for r in EncodedRendezvous.made), sum(r.dead for r in EncodedRendezvous.made)


@pytest.mark.parametrize("program", SUITE, ids=lambda f: f.__name__.removeprefix("test_"))
def test_a_program_of_the_suite(program: Callable[[], None]) -> None:
    program()
    assert EncodedRendezvous.made or program in ALONE


@pytest.mark.rotated(2)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed: int) -> None:
    options = (None, seeded.EXACT)[seed // 2]
    for check in (test_random_placements.check_values, test_random_placements.check_gradients):
        for i in range(4):
            check(700 + 4 * seed + i, options)
    for check_session in (test_random_placements.check_threads, test_random_placements.check_waiting):
        check_session(700 + seed, PASSES[seed // 2])
    alive, dead = tokens()
    assert alive
    assert dead
    # variants are the only values that are not encoded
    assert {type(v) for r in EncodedRendezvous.made for v in r.live} <= {TensorList, Optional}


@pytest.mark.parametrize(("i", "program"), [*enumerate(test_corpus.PROGRAMS[::10])])
def test_programs_of_the_corpus(i: int, program: str) -> None:
    test_corpus.test_program(program, PASSES[i % 2])


# *** errors ***


def _divides(x: Any) -> Any:
    return hr.while_loop(lambda i, t: i < 9, lambda i, t: (i + 1, t + 12 // (x - i)), [0, 0])[1]


def _asserts(x: Any) -> Any:
    def branch() -> Any:
        with hr.control_dependencies([hr.Assert(x > 5, [x, hr.constant("small")])]):
            return hr.identity(x) * 2

    return hr.cond(x < 100, branch, lambda: x)


def _takes_from_an_empty_list(x: Any) -> Any:
    return hr.gather(hr.constant([1, 2, 3]), x + 1) - 1


def _is_dead(x: Any) -> Any:
    return hr.square(hr.raw_ops.Switch(data=x + 1, pred=x > 7)[1]) - 1


FAILING: dict[str, Callable[[Any], Any]] = {
    "in a loop": _divides,
    "in a branch": _asserts,
    "of a kernel": _takes_from_an_empty_list,
    "dead": _is_dead,
}


def _failure(g: hr.Graph, y: Any, x: Any, devices: int = 3) -> OpError:
    with hr.Session(graph=g, engine="interpret", devices={"CPU": devices}) as s, pytest.raises(OpError) as caught:
        s.run(y, {x: 3})
    return caught.value


def _place(error: OpError) -> Any:
    found = error.diagnosis
    return None if found is None else (found.op, found.where, found.inputs)


@pytest.mark.parametrize("name", FAILING)
def test_errors_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        with hr.Graph() as g:
            x = hr.placeholder(hr.int32, (), name="x")
            y = FAILING[name](x)
        alone = _failure(g, y, x, 1)
        scatter(g, random.Random(f"{name} {seed}"), 3)
        encoded = _failure(g, y, x)
        assert EncodedRendezvous.made
        with monkeypatch.context() as patch:
            patch.setattr(parts, "LocalRendezvous", LocalRendezvous)
            local = _failure(g, y, x)
        for other in (local, encoded):
            assert type(other) is type(alone)
            assert (str(other), other.node, _place(other)) == (str(alone), alone.node, _place(alone))


def test_receivers_get_the_error_of_the_step_from_bytes(custom: None) -> None:
    test_session.test_a_device_fails_in_a_loop(None)
    failed = [r.aborted for r in EncodedRendezvous.made if r.aborted is not None]
    assert len(failed) == 5
    for sent, got in failed:
        assert sent is not got
        assert type(got) is type(sent) is AbortedError
        assert str(got) == str(sent)
        assert "failed on another device: the disk is full" in str(got)
