"""Device requests and colocation of a step are those of its optimized form."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import headrace as hr
from headrace.api import scopes
from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import nested_operations
from headrace.ir.graph import Graph, Operation
from headrace.ir.text import from_text
from headrace.ir.verify import verify
from headrace.optimize.base import Options
from headrace.optimize.pipeline import names, optimize
from headrace.optimize.queries import has_effect
from headrace.prune import prune
from tests import tiers
from tests.api import programs
from tests.api.test_random_programs import _program
from tests.grad.test_random_gradients import Example, Made, _all

# Passes that replace several operations by fewer: with requests that are all different they must change nothing.
MERGING = frozenset({"cse", "pieces", "loop_merging", "loop_variables", "loop_sums", "loop_products"})
REWRITING = frozenset({"loop_factors"})  # replaces single operations by several, with the same request
GENERATED = frozenset({"_Arg", "_Retval", "Const", "NoOp"})  # a fold or a join of control edges may make these

Mark = Callable[[Operation, int], None]


def _request(op: Operation, k: int) -> None:
    op.device = f"/device:CPU:{k}"


def _colocate(op: Operation, k: int) -> None:
    op.attrs = {**op.attrs, "_class": (f"loc:@group{k}",)}


def _graphs(seed: int) -> Iterator[Callable[[], Graph]]:
    """Builders of two pruned steps: a random program with state, and gradients."""
    rng = random.Random(seed)
    block, start = _program(rng, True), programs.initial(rng)
    with hr.Graph() as g:
        build = programs.Build(start, 10, 0, True)
        build.run(block)
        values = [v.stack() if n in programs.LISTS else scopes.builder().Identity(v) for n, v in build.values.items()]
        run = [op for op in g.operations if op.opdef.structured or op.type.startswith("Assign")]
    yield lambda: _pruned(list(build.feeds), values, run)
    with Made(Example(seed)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    yield lambda: _pruned([made.inputs[n] for n in made.inputs if n != "V"], fetches, [])


def _pruned(feeds: Sequence[Any], fetches: Sequence[Any], targets: Sequence[Operation]) -> Graph:
    """Graph of a step with calls inlined, so that no two operations share a request."""
    pruned = prune(feeds, fetches, targets)
    own_bodies(pruned.graph)
    preserved = [op for t in targets if (op := pruned.graph.find(t.name)) is not None]
    optimize(pruned.graph, preserved, Options(off=frozenset(names()) - {"prune", "inline"}))
    return pruned.graph


def _marked(graph: Graph, mark: Mark) -> Graph:
    for k, op in enumerate(nested_operations(graph.operations)):
        mark(op, k)
    return graph


def _requests(ops: Sequence[Operation]) -> Counter[tuple[Any, ...]]:
    return Counter((op.type, op.device, op.attrs.get("_class")) for op in ops if op.type not in GENERATED)


def _optimized(graph: Graph, off: frozenset[str] = frozenset()) -> list[Operation]:
    preserved = [op for op in graph.operations if has_effect(op)]
    report = optimize(graph, preserved, Options(off=off), verify)
    bypassed = [n for n in report.notes if n.rule == "identities" and n.fired and not n.text.startswith("returns")]
    assert not bypassed  # a conditional or loop may return an input unchanged, but no operation with its own request
    return list(nested_operations(graph.operations))


def check_requests(seed: int) -> None:
    """No pass merges operations with different requests, and effects keep their requests."""
    for make in _graphs(seed):
        for mark in (_request, _colocate):
            before = _marked(make(), mark)
            effects = _requests([op for op in nested_operations(before.operations) if _must_run(op)])
            found = {op.device for op in nested_operations(before.operations)}
            ops = _optimized(before)
            assert {op.device for op in ops} <= found | {""}
            left = _requests([op for op in ops if _must_run(op)])
            assert left <= effects  # those of a branch that is not taken are gone
            apart = _requests(_optimized(_marked(make(), mark), MERGING | REWRITING))
            together = _requests(_optimized(_marked(make(), mark), REWRITING))
            assert together == apart, (together - apart, apart - together)


def _must_run(op: Operation) -> bool:
    return not op.opdef.structured and (has_effect(op) or op.opdef.facts.effect == "random")


@pytest.mark.matrix
@pytest.mark.parametrize("block", [*range(2), *(pytest.param(b, marks=pytest.mark.nightly) for b in range(2, 40))])
def test_each_operation_keeps_its_request(block: int) -> None:
    _all(tiers.rotated(range(6 * block, 6 * (block + 1)), 2), check_requests)


# *** single conditions ***

COLOCATED = """
    x = _Arg[T=float32, index=0, shape=[2]]
    a = Tanh(x)
    b = Tanh(x)
    c = Sin[_class=("loc:@b")](x)
    d = Cos[_class=("loc:@c")](x)
    e = Identity[_class=("loc:@d")](d)
    f = Exp[_class=("loc:@e")](e)
    y = AddN(a, b, c, f)
    r = _Retval[index=0](y)
    """


def _classes(graph: Graph) -> dict[str, Any]:
    return {op.name: op.attrs["_class"] for op in graph.operations if "_class" in op.attrs}


def test_colocation_with_a_replaced_operation_is_with_its_replacement() -> None:
    g = from_text(COLOCATED)
    optimize(g)
    assert g.find("b") is None
    assert g.find("e") is None
    assert _classes(g) == {"c": ("loc:@a",), "d": ("loc:@c",), "f": ("loc:@e", "loc:@d")}


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("", "", 1),
        ('_class=("loc:@x")', "", 2),
        ("", '_class=("loc:@x")', 2),
        ('_class=("loc:@x")', '_class=("loc:@x")', 1),
    ],
)
def test_operations_colocated_with_others_are_not_merged(first: str, second: str, left: int) -> None:
    g = from_text(
        f"x = _Arg[T=float32, index=0, shape=[2]]\na = Neg[{first}](x)\nb = Neg[{second}](x)\n"
        "y = Mul(a, b)\nr = _Retval[index=0](y)"
    )
    optimize(g)
    assert sum(op.type == "Neg" for op in g.operations) == left


@pytest.mark.parametrize(("entry", "stays"), [("loc:@x", False), ("loc:@z", True)])
def test_an_identity_colocated_elsewhere_stays(entry: str, stays: bool) -> None:
    g = from_text(
        f'x = _Arg[T=float32, index=0, shape=[2]]\nz = Neg(x)\ni = Identity[_class=("{entry}")](x)\n'
        "y = Mul(i, z)\nr = _Retval[index=0](y)"
    )
    report = optimize(g)
    assert (g.find("i") is not None) is stays
    refused = [n.text for n in report.notes if n.rule == "identities" and not n.fired]
    assert refused == (["it is colocated with other operations than 'x'"] if stays else [])


def test_an_operation_on_a_device_without_constants_is_not_folded() -> None:
    g = from_text(
        'a = Const[value=float32[]{2.0}, dtype=float32]\nb = Neg(a) @"/device:DLP:0"\nc = Neg(a)\n'
        "y = Mul(b, c)\nr = _Retval[index=0](y)"
    )
    report = optimize(g)
    assert [op.type for op in g.operations if op.name in "bc"] == ["Neg", "Const"]
    assert [n.text for n in report.notes if n.op == "b"] == [
        "it requests '/device:DLP:0', where constants have no kernel"
    ]


def _loop(device: str, then: str) -> Graph:
    """Loop with a sum of three terms, one of them invariant, on two devices."""
    with hr.Graph():
        x, w = hr.placeholder(hr.float32, [2]), hr.placeholder(hr.float32, [5, 2])
        rows = hr.TensorArray(hr.float32, size=5, element_shape=(2,)).unstack(w)

        def body(i: Any, h: Any) -> Any:
            with hr.device(device):
                inner = rows.read(i) + h * hr.sin(x)
            with hr.device(then):
                return i + 1, inner + x

        y = hr.while_loop(lambda i, h: i < 5, body, [0, x])[1]
        graph = prune([x, w], [y], []).graph
    own_bodies(graph)
    return graph


@pytest.mark.parametrize(("device", "fires"), [("/cpu:1", True), ("/device:DLP:0", False)])
def test_a_loop_on_another_type_of_device_stays(device: str, fires: bool) -> None:
    graph = _loop(device, device)
    report = optimize(graph)
    fired = {n.rule for n in report.notes if n.fired}
    assert ({"loop_invariants", "loop_sums", "loop_fission"} <= fired) is fires
    reasons = {n.text for n in report.notes if n.rule == "loops"}
    assert bool(reasons) is not fires
    assert all("may have no kernel for the new operations" in text for text in reasons)


def test_a_sum_over_devices_is_not_regrouped() -> None:
    report = optimize(_loop("/cpu:1", "/cpu:2"))
    assert "loop_sums" not in {n.rule for n in report.notes if n.fired}


def test_loops_with_other_colocation_are_not_fused() -> None:
    for entry, left in (("", 1), ("loc:@x", 2)):
        with hr.Graph():
            x = hr.placeholder(hr.float32, [2], name="x")
            y = [
                hr.while_loop(lambda i, h: i < 5, lambda i, h, f=f: (i + 1, f(h)), [0, x])[1] for f in (hr.sin, hr.cos)
            ]
            if entry:
                y[0].op.attrs = {**y[0].op.attrs, "_class": (entry,)}
        graph = prune([x], y, []).graph
        own_bodies(graph)
        optimize(graph)
        assert sum(op.opdef.structured == "While" for op in graph.operations) == left
