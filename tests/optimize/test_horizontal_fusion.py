"""An operation on several pieces of a small tensor is applied to the whole tensor."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import thresholds
from headrace.errors import GraphError
from headrace.ir.opdef import PerElement, op_registry
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from headrace.optimize.base import Options, PassContext, run
from headrace.optimize.horizontal_fusion import FuseHorizontally
from tests.optimize.loop_steps import agree

SPLIT = """\
x = Placeholder[dtype=float32, shape=[2,8]]
axis = Const[value=int32[]{1}, dtype=int32]
s = Split[num_split=4](axis, x)
"""


def joined(text: str, preserved: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """The operations of a graph after the pass, and its report."""
    graph = from_text(text)
    context = PassContext(Options(), [graph.get_operation_by_name(n) for n in preserved])
    changed = run([FuseHorizontally()], graph, context, verify)
    assert changed is any(n.fired for n in context.notes)
    assert not run([FuseHorizontally()], graph, PassContext(Options(), context.preserved), verify)
    lines = [line for line in to_text(graph).splitlines() if "Const" not in line and "Placeholder" not in line]
    return lines, [f"{n.op}: {n.text}" for n in context.notes]


def ends(*names: str) -> str:
    return "\n".join(f"r{k} = _Retval[index={k}]({name})" for k, name in enumerate(names))


def test_gates() -> None:
    text = SPLIT + "i = Sigmoid(s)\nj = Tanh(s:1)\nf = Sigmoid(s:2)\no = Sigmoid(s:3)\n"
    lines, notes = joined(text + ends("i", "j", "f", "o"))
    assert notes == ["s: one Sigmoid replaces those of 3 of 4 pieces"]
    assert [line.partition(" : ")[0] for line in lines if "_Retval" not in line] == [
        "s = Split[num_split=4, T=float32](axis, x)",
        "j = Tanh[T=float32](s:1)",
        "i_1 = Sigmoid[T=float32](x)",
        "s_1 = Split[num_split=4, T=float32](axis, i_1)",
    ]
    agree(text, [FuseHorizontally()], {"x": [[0.1 * k for k in range(8)]] * 2}, ["i", "j", "f", "o"])


def test_pieces_of_different_sizes() -> None:
    text = """\
x = Placeholder[dtype=float32, shape=[8]]
sizes = Const[value=int32[3]{1, 4, 3}, dtype=int32]
axis = Const[value=int32[]{0}, dtype=int32]
s = SplitV[num_split=3](x, sizes, axis)
a = Exp(s)
b = Exp(s:2)
"""
    assert joined(text + ends("a", "b", "s:1"))[1] == ["s: one Exp replaces those of 2 of 3 pieces"]
    agree(text, [FuseHorizontally()], {"x": range(8)}, ["a", "b"])


@pytest.mark.parametrize(
    ("work", "results"),
    [
        ("a = Exp(s)\nb = Tanh(s:1)", ("a", "b")),  # not the same
        ("a = Exp(s)\nb = Exp(s:1)", ("a", "b", "s")),  # read twice
        ("a = Exp(s)\nb = Exp(s:1) ^c\nc = NoOp()", ("a", "b")),  # waits
        ("a = Exp(s)\nb = Exp(s:1)\nc = NoOp() ^b", ("a", "b")),  # is waited for
        ("a = Cast[DstT=float64](s)\nb = Cast[DstT=int32](s:1)", ("a", "b")),  # attributes differ
        ("a = Exp{ContiguousResult}(s)\nb = Exp(s:1)", ("a", "b")),  # notes differ
        ("a = AddV2(s, s)\nb = AddV2(s:1, s:1)", ("a", "b")),  # of two arguments
        ("e = Const[value=int32[1]{4}, dtype=int32]\na = Reshape(s, e)\nb = Reshape(s:1, e)", ("a", "b")),
        ('a = Exp(s) @"/cpu:1"\nb = Exp(s:1)', ("a", "b")),
        ('a = Exp(s) @"/cpu:1"\nb = Exp(s:1) @"/cpu:1"', ("a", "b")),  # not where it is cut
        ('a = Exp[_class=("loc:@x")](s)\nb = Exp[_class=("loc:@x")](s:1)', ("a", "b")),
        ("a = AddV2(s, s:2)\nb = AddV2(s:1, s:3)", ("a", "b")),
        ("a = AddN[N=1](s)\nb = AddN[N=1](s:1)", ("a", "b")),
        ("a = Softmax(s)\nb = Softmax(s:1)", ("a", "b")),  # over the elements of a piece
        ('a = CheckNumerics[message="m"](s)\nb = CheckNumerics[message="m"](s:1)', ("a", "b")),  # s:2 may be infinite
        ("u = Unpack[num=2](x)\na = Exp(u)\nb = Exp(u:1)", ("a", "b")),  # no pieces along an axis that remains
    ],
)
def test_what_stays(work: str, results: tuple[str, ...]) -> None:
    assert joined(f"{SPLIT}{work}\n{ends(*results)}", preserved=("c",) if "c = " in work else ())[1] == []


def test_a_cut_that_waits_stays() -> None:
    text = SPLIT.replace("(axis, x)", "(axis, x) ^c") + "c = NoOp()\na = Exp(s)\nb = Exp(s:1)\n"
    assert joined(text + ends("a", "b"))[1] == []


@pytest.mark.parametrize("type", ["float32", "bool", "int32", "complex64"])
def test_all_that_is_done_to_each_element(type: str) -> None:
    """An operation that the pass takes for a function of one number is one."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 2, (2, 8)) * 0.75
    done = 0
    for name in op_registry:
        record = op_registry.get(name)
        facts, attrs = record.facts, "[DstT=float32]" if name == "Cast" else ""
        if [a.is_list for a in record.ins] != [False] or not isinstance(facts.cost, PerElement) or facts.total is None:
            continue
        text = SPLIT.replace("float32", type) + f"a = {name}{attrs}(s)\nb = {name}{attrs}(s:1)\n"
        try:
            from_text(text)
        except GraphError:
            continue  # not of that type
        assert joined(text + ends("a", "b"))[1] == [f"s: one {name} replaces those of 2 of 4 pieces"]
        with np.errstate(all="ignore"):
            agree(text, [FuseHorizontally()], {"x": x}, ["a", "b"])
        done += 1
    assert done


def test_a_target_stays_itself() -> None:
    assert joined(SPLIT + "a = Exp(s)\nb = Exp(s:1)\n" + ends("a", "b"), preserved=("b",))[1] == []


def test_large_ones_are_done_one_by_one() -> None:
    for size, fits in ((thresholds.CALL_BOUND_BYTES // 4, True), (thresholds.CALL_BOUND_BYTES // 4 + 4, False)):
        text = SPLIT.replace("[2,8]", f"[1,{size}]") + "a = Exp(s)\nb = Exp(s:1)\n" + ends("a", "b")
        notes = joined(text)[1]
        assert notes == (
            ["s: one Exp replaces those of 2 of 4 pieces"]
            if fits
            else [f"a: the whole tensor has {4 * size} bytes; the limit is {thresholds.CALL_BOUND_BYTES}"]
        )


def test_most_of_it_must_be_wanted() -> None:
    text = SPLIT.replace("=4]", "=8]") + "a = Exp(s)\nb = Exp(s:1)\nc = Exp(s:2)\n"
    assert joined(text + ends("a", "b", "c"))[1] == ["a: less than half of the whole tensor is known to have consumers"]
    assert joined(text + "d = Exp(s:3)\n" + ends("a", "b", "c", "d"))[1] == [
        "s: one Exp replaces those of 4 of 8 pieces"
    ]


def test_of_a_shape_that_is_not_known() -> None:
    text = SPLIT.replace("[2,8]", "[?,8]") + "a = Exp(s)\nb = Exp(s:1)\n" + ends("a", "b")
    assert joined(text)[1] == []


@pytest.mark.parametrize("cut", ["Split[num_split=2](axis, x)", "SplitV[num_split=2](x, sizes, zero)"])
def test_pieces_whose_sizes_are_not_known(cut: str) -> None:
    text = f"""\
x = Placeholder[dtype=float32, shape=[2,8]]
axis = Placeholder[dtype=int32, shape=[]]
sizes = Placeholder[dtype=int32, shape=[2]]
zero = Const[value=int32[]{{0}}, dtype=int32]
s = {cut}
a = Exp(s)
b = Exp(s:1)
"""
    assert joined(text + ends("a", "b"))[1] == ["a: less than half of the whole tensor is known to have consumers"]
