"""Recurrent networks in all spellings are native as a whole, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
import headrace.v1 as v1
from headrace import flags
from headrace.grad.differentiate import differentiate
from headrace.ir.edit.editor import own_bodies
from headrace.ir.graph import Graph
from headrace.optimize.pipeline import optimize
from headrace.prune import prune
from headrace.schedule.build import build
from headrace.schedule.program import Loop
from headrace.schedule.regions import Regions
from headrace.targets.native import engine
from headrace.targets.native.element_types import ElementTypes
from headrace.targets.native.regions import native_regions, why_not
from headrace.targets.native.rewriting import rewritten
from tests.optimize.recurrent import OTHERS as FURTHER
from tests.optimize.recurrent import SOURCES, SPELLINGS, Sizes, made
from tests.targets.native import region_running as running

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

# Each spelling with one source of weights in turn; the matrix tier has all.
EACH = [
    pytest.param(name, source, marks=[] if i % 3 == k else pytest.mark.matrix)
    for i, name in enumerate([*SPELLINGS, *FURTHER])
    for k, source in enumerate(SOURCES)
]


def check_region(graph: Graph, but: frozenset[str] = frozenset()) -> None:
    """Raises unless one native region has all instructions of a step, except some types."""
    args, retvals = (
        sorted((op for op in graph.operations if op.type == type), key=lambda op: op.attrs["index"])
        for type in ("_Arg", "_Retval")
    )
    found = build(Regions(graph, (), differentiate), args, retvals)
    instrs = rewritten(found.block.instrs)
    elements = ElementTypes(instrs)
    why = [f"{i.op.type}: {r}" for i in instrs if i.op.type not in but and (r := why_not(i, elements))]
    assert not why
    (region,) = native_regions(found)
    outside = [*found.block.instrs[: region.start], *found.block.instrs[region.stop :]]
    assert {i.op.type for i in outside} <= but
    assert any(isinstance(i, Loop) for i in region.instrs)


@pytest.mark.parametrize(("name", "source"), EACH)
def test_a_spelling_is_one_region(name: str, source: str) -> None:
    step = made(name, source, True, Sizes(2, 60, 3, 5), by_inputs=name in FURTHER)
    check_region(step.optimized()[0], frozenset({"VarHandleOp", "ReadVariableOp"}))


def _cell(x: Any, h: Any, w: Any) -> Any:
    return hr.tanh(hr.matmul(hr.concat([x, h], 1), w))


def _loop(read: Any, xs: Any, h: Any, w: Any) -> Any:
    return hr.while_loop(lambda t, h: t < STEPS, lambda t, h: (t + 1, _cell(read(xs, t), h, w)), (0, h))[1]


def _collected(xs: Any, h: Any, w: Any) -> Any:
    def body(t: Any, h: Any, ys: Any) -> Any:
        h = _cell(xs[t], h, w)
        return t + 1, h, ys.write(t, h)

    start = (0, h, hr.TensorArray(hr.float32, STEPS))
    return hr.while_loop(lambda t, h, ys: t < STEPS, body, start)[2]


def _until_the_end(xs: Any, h: Any, w: Any) -> Any:
    ends = hr.reduce_sum(hr.cast(xs[:, :, 0] > 0.0, hr.float32), 0)

    def body(t: Any, h: Any) -> Any:
        return t + 1, v1.where(hr.cast(t, hr.float32) < ends, _cell(xs[t], h, w), h)

    return hr.while_loop(lambda t, h: t < STEPS, body, (0, h))[1]


def _packed(xs: Any, h: Any, w: Any) -> Any:
    def body(t: Any, both: Any) -> Any:
        now, before = hr.unstack(both)
        return t + 1, hr.stack([_cell(xs[t], now, w), now + 0.5 * before])

    return hr.while_loop(lambda t, both: t < STEPS, body, (0, hr.stack([h, h])))[1][0]


def _part(xs: Any, t: Any) -> Any:
    return hr.reshape(hr.slice(xs, hr.stack([t, 0, 0]), [1, *xs.shape[1:]]), xs.shape[1:])


def _attending(scores: Callable[[Any, Any], Any], context: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def loop(xs: Any, h: Any, w: Any) -> Any:
        def body(t: Any, h: Any) -> Any:
            weights = hr.nn.softmax(scores(xs, h), axis=0)
            return t + 1, _cell(context(weights, xs), h, w)

        return hr.while_loop(lambda t, h: t < 5, body, (0, h))[1]

    return loop


def _with_losses(xs: Any, h: Any, w: Any) -> Any:
    labels = hr.constant(np.array([[0.1, 0.2, 0.3, 0.4, 0.0], [0.5, 0.1, 0.1, 0.1, 0.2]], np.float32))

    def body(t: Any, h: Any, total: Any) -> Any:
        h = _cell(xs[t], h, w)
        losses = hr.nn.softmax_cross_entropy_with_logits(labels, h)
        return t + 1, h, total + hr.reduce_mean(losses) + hr.reduce_max(hr.nn.log_softmax(h))

    return hr.while_loop(lambda t, h, total: t < STEPS, body, (0, h, hr.constant(0.0)))[2]


def _by_batches(xs: Any, h: Any, w: Any) -> Any:
    both = hr.stack([w[:5], w[3:]]) * 0.3

    def body(t: Any, h: Any) -> Any:
        return t + 1, hr.tanh(hr.matmul(h, both) + hr.reduce_sum(xs[t], -1)[:, None])

    return hr.while_loop(lambda t, h: t < STEPS, body, (0, hr.stack([h, h * 0.5])))[1]


STEPS = 60
OTHERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "rows": lambda xs, h, w: _loop(lambda xs, t: xs[t], xs, h, w),
    "rows along another dimension": lambda xs, h, w: _loop(lambda xs, t: xs[:, t], hr.transpose(xs, [1, 0, 2]), h, w),
    "rows from the last to the first": lambda xs, h, w: _loop(lambda xs, t: xs[STEPS - 1 - t], xs, h, w),
    "slices": lambda xs, h, w: _loop(_part, xs, h, w),
    "rows that keep their dimension": lambda xs, h, w: _loop(lambda xs, t: xs[t : t + 1][0], xs, h, w),
    "states in one array": _packed,
    "states that the gradient reads twice": lambda xs, h, w: hr.while_loop(
        lambda t, h: t < STEPS, lambda t, h: (t + 1, hr.nn.elu(hr.matmul(hr.concat([xs[t], h], 1), w * 0.3))), (0, h)
    )[1],
    "attention": _attending(
        lambda xs, h: hr.reduce_sum(xs * h[None, :, :3], 2), lambda a, xs: hr.reduce_sum(a[:, :, None] * xs, 0)
    ),
    "attention by einsum": _attending(
        lambda xs, h: hr.einsum("tbi,bi->tb", xs, h[:, 1:4]), lambda a, xs: hr.einsum("tb,tbi->bi", a, xs)
    ),
    "products for each element of a batch": _by_batches,
    "einsum": lambda xs, h, w: hr.scan(lambda h, x: hr.tanh(hr.einsum("bi,ij->bj", hr.concat([x, h], 1), w)), xs, h)[
        -1
    ],
    "the mean of all states": lambda xs, h, w: hr.reduce_mean(_collected(xs, h, w).stack(), 0),
    "an element of a list of states": lambda xs, h, w: _collected(xs, h, w).read(STEPS - 1),
    "sequences that end": _until_the_end,
}


def _differentiated(name: str, ins: list[Any]) -> list[Any]:
    """Inputs of the gradient, without those whose gradient calls a kernel."""
    return ins[1:] if name in ("slices", "rows that keep their dimension") else ins


@pytest.mark.parametrize("name", OTHERS)
def test_another_loop_is_one_region_with_its_gradient(name: str) -> None:
    with hr.Graph():
        ins: list[Any] = [hr.placeholder(hr.float32, d) for d in ((STEPS, 2, 3), (2, 5), (8, 5))]
        loss = hr.reduce_sum(OTHERS[name](*ins) ** 2)
        fetches = [loss, *hr.gradients(loss, _differentiated(name, ins))]
        step = prune(ins, fetches, ()).graph
        own_bodies(step)
        optimize(step)
        check_region(step)


@pytest.mark.matrix
@pytest.mark.parametrize("name", OTHERS)
def test_the_results_of_another_loop(name: str) -> None:
    rng = np.random.default_rng(0)
    with hr.Graph():
        ins: list[Any] = [hr.placeholder(hr.float32, d) for d in ((STEPS, 2, 3), (2, 5), (8, 5))]
        loss = hr.reduce_sum(OTHERS[name](*ins) ** 2)
        feeds = {x: rng.normal(size=x.shape).astype(np.float32) for x in ins}
        running.run([loss, *hr.gradients(loss, _differentiated(name, ins))], feeds)


def test_operations_on_rows_within_a_loop_are_native() -> None:
    rng = np.random.default_rng(0)
    with hr.Graph():
        ins: list[Any] = [hr.placeholder(hr.float32, d) for d in ((STEPS, 2, 3), (2, 5), (8, 5))]
        feeds = {x: (rng.normal(size=x.shape) * 0.3).astype(np.float32) for x in ins}
        running.run([_with_losses(*ins)], feeds)
