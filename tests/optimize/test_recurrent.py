"""All spellings of an LSTM or RNN become the same loops, with equal results."""

from __future__ import annotations

import collections
import functools

import pytest

from headrace.optimize.pipeline import PASSES
from headrace.resources.manager import ResourceManager
from tests.optimize.loop_steps import close, optimize
from tests.optimize.recurrent import GRUS, OTHERS, RNNS, SOURCES, SPELLINGS, loops, made

# Spellings that collect the state of each iteration, and spellings of one product for each gate.
COLLECTED = {"scanned", "scanned_products", "v1_while", "rnn_scan", "rnn_scan_concat"}
BY_GATE = {"gates", "concat_gates"}
# Each spelling with one source of weights in turn; the matrix tier has all.
EACH = [
    pytest.param(name, source, marks=[] if i % 3 == k else pytest.mark.matrix)
    for i, name in enumerate(SPELLINGS)
    for k, source in enumerate(SOURCES)
]
FURTHER = [
    pytest.param(name, source, marks=[] if i % 3 == k else pytest.mark.matrix)
    for i, name in enumerate(OTHERS)
    for k, source in enumerate(SOURCES)
]


def _model(name: str) -> str:
    """The spelling whose loops those of `name` must be."""
    if name in BY_GATE:
        return "gates"
    if name in GRUS:
        return "gru_concat"
    if name in RNNS:
        return "rnn_scan" if name in COLLECTED else "rnn_products"
    return "scanned" if name in COLLECTED else "concat_split"


@functools.cache
def _loops(name: str, source: str, gradient: bool) -> list[collections.Counter[str]]:
    return loops(made(name, source, gradient).optimized()[0])


@pytest.mark.parametrize(("name", "source"), EACH)
def test_the_loops_of_a_spelling_have_the_operations_of_the_others(name: str, source: str) -> None:
    for gradient in (False, True):
        found = _loops(name, source, gradient)
        assert found == _loops(_model(name), "feeds", gradient)
        assert len(found) == 1 + gradient
        assert all(body["MatMul"] == (4 if name in BY_GATE else 2 if name in GRUS else 1) for body in found)
        assert not any(
            body[gone] for body in found for gone in ("ReadVariableOp", "StridedSlice", "GatherV2", "SplitV")
        )


def test_the_loops_of_a_collected_state_have_one_operation_on_its_list_more() -> None:
    for gradient in (False, True):
        for plain, collecting in (("concat_split", "scanned"), ("rnn_products", "rnn_scan")):
            forward, *backward = (
                a - b
                for a, b in zip(_loops(collecting, "feeds", gradient), _loops(plain, "feeds", gradient), strict=True)
            )
            assert forward == {"TensorListSetItem": 1}
            assert backward == [{"AddN": 1, "TensorListGetItem": 1, "Sub": 1}] * gradient


@pytest.mark.parametrize(("name", "source"), FURTHER)
def test_the_loops_of_another_spelling_have_one_product(name: str, source: str) -> None:
    for gradient in (False, True):
        found = _loops(name, source, gradient)
        assert len(found) == 1 + gradient
        assert all(body["MatMul"] == 1 for body in found)
        assert not any(body[gone] for body in found for gone in ("ReadVariableOp", "StridedSlice", "GatherV2"))


@pytest.mark.parametrize(("name", "source"), EACH + FURTHER)
def test_the_results_are_those_of_the_spelling(name: str, source: str) -> None:
    step = made(name, source, True)
    resources = ResourceManager()
    if step.initial:
        optimize([], [], (), step.initial).run([], resources)
    feeds, fed = list(step.feeds), list(step.feeds.values())
    plain = optimize(feeds, step.fetches, ()).run(fed, resources)
    close(optimize(feeds, step.fetches, PASSES).run(fed, resources), plain, 1e-6)


@pytest.mark.parametrize(("name", "source"), EACH)
def test_a_batch_size_that_only_the_feed_states_makes_the_same_loops(name: str, source: str) -> None:
    for gradient in (False, True):
        assert loops(made(name, source, gradient, is_open=True).optimized()[0]) == _loops(name, source, gradient)
