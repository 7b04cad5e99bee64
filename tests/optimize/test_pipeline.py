"""Order, switches, report, dumps and speed of the passes."""

import pytest

import headrace as hr
from headrace.errors import GraphError
from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import owned
from headrace.ir.graph import Graph
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from headrace.optimize import base, pipeline
from headrace.optimize.base import Options, Pass, PassContext, Repeat, run
from headrace.optimize.pipeline import names, optimize, options_from
from headrace.prune import prune

TEXT = """
    x = _Arg[T=float32, index=0, shape=[8,3]]
    s = Shape(x)
    one = Const[value=float32[]{1.0}, dtype=float32]
    m = Mul(x, one)
    r = Reshape(m, s)
    t = Tanh(r)
    u = Tanh(x)
    z = AddV2(t, u)
    o = _Retval[index=0](z)
    """


def test_the_passes_make_work_for_each_other():
    g = from_text(TEXT)
    context = optimize(g, check=verify)
    assert to_text(g) == to_text(
        from_text(
            """
            x = _Arg[T=float32, index=0, shape=[8,3]]
            t = Tanh(x)
            z = AddV2(t, t)
            o = _Retval[index=0](z)
            """
        )
    )
    assert [(n.rule, n.op) for n in context.notes] == [
        ("fold", "s"),
        ("identities", "m"),
        ("identities", "r"),
        ("cse", "u"),
    ]


@pytest.mark.parametrize("name", ["fold", "identities", "cse", "prune"])
def test_each_pass_has_a_switch(name):
    g = from_text(TEXT)
    context = optimize(g, options=options_from(f"-{name}"))
    assert name not in {n.rule for n in context.notes}
    assert name not in {n for n, _, _ in context.ran}
    assert context.notes


def test_off_and_on():
    g = from_text(TEXT)
    assert optimize(g, options=options_from("off")).notes == []
    assert to_text(g) == to_text(from_text(TEXT))
    assert options_from("on") == options_from("") == Options()
    assert options_from("on,-cse").off == {"cse"}


@pytest.mark.parametrize(("text", "wrong"), [("-csee", "no pass 'csee'"), ("fold", "'fold' is neither")])
def test_a_wrong_option(text, wrong):
    with pytest.raises(ValueError, match=wrong) as e:
        options_from(text)
    assert ", ".join(names()) in str(e.value)


def test_dumps():
    g = from_text(TEXT)
    stages = []
    optimize(g, on_stage=lambda name, graph: stages.append((name, to_text(graph))))
    assert [name for name, _ in stages] == ["fold", "identities", "cse", "prune"]
    assert "s = Const" in stages[0][1]
    assert stages[-1][1] == to_text(g)


def test_the_graph_is_checked_after_each_change():
    g, checked = from_text(TEXT), []
    context = optimize(g, check=checked.append)
    assert checked == [g] * sum(changed for _, _, changed in context.ran)


def test_of_what_it_was_made_a_step_knows_nothing_more():
    with hr.Graph():
        x, y = hr.placeholder(hr.float32, (2,)), hr.placeholder(hr.float32, (2,))
        z = hr.cond(hr.placeholder(hr.bool, ()), lambda: x * y, lambda: x + y)
    step = prune([x, y], [z], []).graph
    own_bodies(step)
    optimize(step)
    (branches,) = [owned(op) for op in step.operations if op.opdef.structured]
    assert [(f.captures, f.originals) for f in branches] == [({}, {})] * 2


def test_targets_of_which_others_are_made():
    g = from_text(
        """
        m = Const[value=string[]{"m"}, dtype=string]
        c = StatefulPartitionedCall[f=@"f", Tin=(string), Tout=()](m)
        graph "f" of c, f, shares_names (a: string[]) -> () ^say {
          say = PrintV2(a)
        }
        """
    )
    context = optimize(g, [g.get_operation_by_name("c")], check=verify)
    assert [op.name for op in context.preserved] == ["say"]
    assert "say = PrintV2(m)" in to_text(g)


class _Breaks(Pass):
    name = "breaks"

    def call(self, graph: Graph, context: PassContext) -> bool:
        graph.operations[-1].device = "/gnu:0"
        return True


class _Counts(Pass):
    name = "counts"

    def __init__(self, changes: int) -> None:
        self.changes = changes
        self.calls = 0

    def call(self, graph: Graph, context: PassContext) -> bool:
        self.calls += 1
        return self.calls <= self.changes


def test_an_error_names_the_pass_and_those_before():
    with pytest.raises(GraphError, match="gnu") as e:
        run((_Counts(0), _Breaks()), from_text(TEXT), PassContext(), verify)
    assert "in the pass 'breaks', after counts" in e.value.__notes__[-1]


def test_a_group_goes_round_until_nothing_changes_and_not_for_ever():
    a, b = _Counts(2), _Counts(0)
    run((Repeat((a, b)),), from_text(TEXT), PassContext())
    assert (a.calls, b.calls) == (3, 2)  # nothing has changed since the second time
    a = _Counts(100)
    run((Repeat((a,), limit=5), a), from_text(TEXT), PassContext())
    assert a.calls == 6


def test_who_had_nothing_to_do_is_not_asked_again():
    a, b = _Counts(0), _Counts(0)
    run((a, Repeat((a, b)), b), from_text(TEXT), PassContext())
    assert (a.calls, b.calls) == (1, 1)


def test_each_pass_has_a_name_of_its_own_and_the_order_is_a_list():
    flat = [p for step in pipeline.PASSES for p in (step.passes if isinstance(step, Repeat) else (step,))]
    assert len({p.name for p in flat}) == len({type(p) for p in flat})
    assert all(isinstance(p, base.Pass) for p in flat)


@pytest.mark.matrix
def test_ten_thousand_operations_take_few_steps(monkeypatch):
    """Passes are linear: twice the operations, twice the work.

    Work is counted in calls of Python functions.
    """
    import sys

    def calls(n: int) -> int:
        with hr.Graph() as g:
            x = hr.placeholder(hr.float32, (4,))
            ys = [hr.tanh(x * float(i % 50)) + x for i in range(n)]
            y = hr.add_n(ys)
            with g.control_dependencies([y.op]) if hasattr(g, "control_dependencies") else hr.control_dependencies([y]):
                y = hr.identity(y)
        pruned = prune([x], [y], [])
        own_bodies(pruned.graph)
        count = 0

        def profile(frame, event, arg):
            nonlocal count
            count += event == "call"

        sys.setprofile(profile)
        try:
            optimize(pruned.graph)
        finally:
            sys.setprofile(None)
        return count

    small, large = calls(300), calls(600)
    assert large < 2.2 * small
