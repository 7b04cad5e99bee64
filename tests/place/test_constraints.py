"""Permitted devices of operations: kernels, requests, colocation, and the errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

import headrace as hr
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from headrace.ir.text import from_text
from headrace.jit.function import Function
from headrace.lower import Lowered
from headrace.place import Cluster, place
from tests.place.placing import TASK, cluster, lowered, named, placed, short

TWO = """
a = Const[value=float32[]{1.0}, dtype=float32] @"%s"
x = Neg(a)
b = Neg(x) @"%s"
"""


def test_requests_are_met_whole_and_partial() -> None:
    got = placed(TWO % ("/job:localhost/replica:0/task:0/device:CPU:1", "/cpu:0"))
    assert (got["a"], got["b"]) == ("CPU:1", "CPU:0")
    assert placed(TWO % ("/device:CPU:*", "/task:0/cpu:1"))["b"] == "CPU:1"


def test_a_device_type_is_enough_of_a_request() -> None:
    text = """
    a = Placeholder[dtype=float32, shape=[2,2]]
    m = MatMul(a, a) @"/device:SLIM:*"
    """
    assert placed(text, cluster("CPU:0", "SLIM:0"), soft=False)["m"] == "SLIM:0"


def test_operations_go_where_there_is_a_kernel() -> None:
    text = """
    a = Placeholder[dtype=float32, shape=[2,2]]
    n = Neg(a)
    """
    got = placed(text, cluster("SLIM:0", "CPU:0"))
    assert got["n"] == "CPU:0"


def test_primitives_and_ends_run_anywhere() -> None:
    text = """
    x = _Arg[T=float32, index=0, shape=[]] @"/device:SLIM:0"
    p = _Arg[T=bool, index=1, shape=[]] @"/device:SLIM:0"
    s = Switch(x, p) @"/device:SLIM:0"
    m = Merge(s:0, s:1) @"/device:SLIM:0"
    r = _Retval[index=0](m) @"/device:SLIM:0"
    """
    assert set(placed(text, cluster("CPU:0", "SLIM:0"), soft=False).values()) == {"SLIM:0"}


def test_no_kernel_anywhere() -> None:
    with pytest.raises(
        UnimplementedError, match="Cannot assign a device for operation n: no kernel computes 'Neg'"
    ) as e:
        placed("a = _Arg[T=float32, index=0, shape=[]]\nn = Neg(a)", cluster("SLIM:0"))
    assert e.value.node == "n"


def test_no_kernel_where_it_is_asked_for() -> None:
    text = 'a = Placeholder[dtype=float32, shape=[]]\nn = Neg(a) @"/device:SLIM:0"'
    both = cluster("CPU:0", "SLIM:0")
    with pytest.raises(
        InvalidArgumentError, match=r"operation n: it requests '/device:SLIM:0'.*no kernel computes 'Neg'"
    ):
        placed(text, both, soft=False)
    g = from_text(text)
    found = place(g.operations, both)
    n = g.get_operation_by_name("n")
    assert short(found.of[n]) == "CPU:0"
    assert "has no kernel for 'Neg'" in found.reasons[n]


def test_a_device_that_is_not_there() -> None:
    text = 'a = Const[value=float32[]{1.0}, dtype=float32]\nfar = Neg(a) @"/cpu:7"'
    with pytest.raises(
        InvalidArgumentError,
        match=r"^Cannot assign a device for operation far: it requests '/cpu:7'.*has 2 x CPU.*allow_soft_placement",
    ) as e:
        placed(text, soft=False)
    assert e.value.node == "far"
    assert e.value.op.name == "far"


@pytest.mark.parametrize(
    ("asked", "got", "why"),
    [
        (
            "/cpu:7",
            "CPU:0",
            "this session does not have; the part '/device:CPU:*' of the request is met",
        ),  # the type is kept
        ("/device:SLIM:3", "SLIM:0", "the part '/device:SLIM:*' of the request is met"),
        ("/device:GPU:0", "CPU:0", "no part of the request is met"),
        ("/job:other/device:SLIM:0", "SLIM:0", "the part '/device:SLIM:*' of the request is met"),
    ],
)
def test_soft_placement_relaxes_in_steps(asked: str, got: str, why: str) -> None:
    g = from_text(f'a = Placeholder[dtype=float32, shape=[2,2]] @"/cpu:0"\nm = MatMul(a, a) @"{asked}"')
    m = g.get_operation_by_name("m")
    found = place(g.operations, cluster("CPU:0", "SLIM:0"))
    assert short(found.of[m]) == got
    assert why in found.reasons[m]
    assert list(found.reasons) == [m]


def test_colocation_by_name() -> None:
    text = """
    a = Const[value=float32[]{1.0}, dtype=float32] @"/cpu:1"
    b = Const[value=float32[]{1.0}, dtype=float32, _class=("loc:@a")]
    c = Neg[_class=("loc:@b")](a)
    """
    assert set(placed(text).values()) == {"CPU:1"}


def test_colocation_with_what_is_not_there_is_with_one_another() -> None:
    text = """
    x = Placeholder[dtype=float32, shape=[]] @"/cpu:0"
    b = Neg[_class=("loc:@gone")](x)
    c = Neg[_class=("loc:@gone")](x) @"/cpu:1"
    """
    got = placed(text)
    assert got["b"] == got["c"] == "CPU:1"


CONFLICT = """
a = Const[value=float32[]{1.0}, dtype=float32] @"/cpu:0"
b = Neg[_class=("loc:@a")](a)
c = Neg[_class=("loc:@b")](a) @"/cpu:1"
"""


def test_a_colocation_conflict_names_both() -> None:
    with pytest.raises(InvalidArgumentError) as e:
        placed(CONFLICT, soft=False)
    text = str(e.value)
    assert text.startswith("Cannot assign a device for operation c: 3 operations must be on one device")
    assert "'a' (Const" in text
    assert "requests '/cpu:0'" in text
    assert "'c' (Neg" in text
    assert "requests '/cpu:1'" in text
    assert f"it can run on {TASK}CPU:0, {TASK}CPU:1" in text
    assert "'c' is colocated with 'b' ('loc:@b')" in text
    assert "'b' is colocated with 'a' ('loc:@a')" in text
    assert "and 1 more" in text
    assert e.value.node == "c"


def test_an_error_has_the_source_lines() -> None:
    with hr.Graph() as g:
        with hr.device("/cpu:0"):
            a = hr.constant(1.0)
        with hr.device("/cpu:1"):
            b = -a
    b.op.attrs["_class"] = (f"loc:@{a.op.name}",)
    with pytest.raises(InvalidArgumentError, match=r"made at .*test_constraints\.py:\d+.*\n.*test_constraints\.py:\d+"):
        placed(g, soft=False)


def test_a_colocation_conflict_is_relaxed_softly() -> None:
    g = from_text(CONFLICT)
    found = place(g.operations, cluster())
    assert {short(d) for d in found.of.values()} == {"CPU:0"}
    assert "conflicts with 'a'" in found.reasons[g.get_operation_by_name("c")]


def test_no_device_has_all_the_kernels() -> None:
    text = """
    a = Placeholder[dtype=float32, shape=[2,2]]
    m = MatMul(a, a) @"/device:SLIM:0"
    n = Neg[_class=("loc:@m")](a)
    """
    with pytest.raises(
        InvalidArgumentError, match="'m' requests a device that does not have kernels for all of them"
    ) as e:
        placed(text, cluster("SLIM:0", "CPU:0"), soft=False)
    assert re.search(r"'n' \(Neg.*\) requests no device; it can run on [^,]*CPU:0$", str(e.value), re.M)
    assert placed(text, cluster("SLIM:0", "CPU:0"))["m"] == "CPU:0"


VARIABLE = """
v = VarHandleOp[dtype=float32, shape=[], shared_name="v"] @"{v}"
r = ReadVariableOp[dtype=float32](v) @"{r}"
y = Neg(r) @"{r}"
"""


def test_who_touches_state_follows_its_handle() -> None:
    for soft in (False, True):
        g = from_text(VARIABLE.format(v="/cpu:1", r="/cpu:0"))
        found = place(g.operations, cluster(), soft=soft)
        r = g.get_operation_by_name("r")
        assert named(g.operations, found.of) == {"v": "CPU:1", "r": "CPU:1", "y": "CPU:0"}
        assert found.reasons[r] == (
            "it requests '/cpu:0', but is colocated with 'v' (requests '/cpu:1'): 'r' uses the resource 'v:0' of 'v'"
        )


def test_a_handle_without_a_request_goes_with_who_has_one() -> None:
    assert placed(VARIABLE.format(v="", r="/cpu:1"))["v"] == "CPU:1"


def test_the_first_placement_holds() -> None:
    g = from_text(VARIABLE.format(v="", r="/cpu:0"))
    v = g.get_operation_by_name("v")
    got = named(g.operations, place(g.operations, cluster(), first={v: TASK + "CPU:1"}).of)
    assert got == {"v": "CPU:1", "r": "CPU:1", "y": "CPU:0"}


def test_first_placements_that_cannot_be_kept() -> None:
    g = from_text('v = VarHandleOp[dtype=float32, shape=[], shared_name="v"]')
    (v,) = g.operations
    with pytest.raises(
        InvalidArgumentError, match=r"operation v: it was placed on '.*CPU:5' before, which this session does not have"
    ):
        place(g.operations, cluster(), first={v: TASK + "CPU:5"})
    g = from_text(CONFLICT.replace(' @"/cpu:1"', "").replace(' @"/cpu:0"', ""))
    a, _, c = g.operations
    with pytest.raises(InvalidArgumentError, match=r"'c' was placed on '.*CPU:1' before, 'a' on another device"):
        place(g.operations, cluster(), first={a: TASK + "CPU:0", c: TASK + "CPU:1"})


def test_handles_are_followed_through_captures() -> None:
    with hr.Graph():
        with hr.device("/cpu:1"):
            v = hr.Variable(1.0)
        x = hr.placeholder("float32", [])
        with hr.device("/cpu:0"):
            y = hr.while_loop(
                lambda i, s: i < 3,
                lambda i, s: (i + 1, hr.cond(s > 0.0, lambda: s + v, lambda: s - v)),
                (0, x),
            )[1]
    low = lowered([y], [x])
    found = place(low.ops, cluster(), soft=False)
    carries = [op for op in low.ops if any(t.dtype.name == "resource" for t in (*op.inputs, *op.outputs))]
    assert {op.type for op in carries} >= {"VarHandleOp", "Enter", "Switch", "ReadVariableOp"}
    assert {short(found.of[op]) for op in carries} == {"CPU:1"}
    rest = {short(found.of[op]) for op in low.ops if op not in carries and op.type != "Const"}
    assert "CPU:0" in rest


def test_references_and_their_users_stand_together() -> None:
    text = """
    v = VariableV2[dtype=float32, shape=[]] @"/cpu:1"
    one = Const[value=float32[]{1.0}, dtype=float32] @"/cpu:0"
    a = Assign(v, one) @"/cpu:0"
    i = RefIdentity(a)
    y = Neg(v) @"/cpu:0"
    """
    got = placed(text, soft=False)
    assert got == {"v": "CPU:1", "one": "CPU:0", "a": "CPU:1", "i": "CPU:1", "y": "CPU:0"}  # y takes the value


def test_stacks_by_name_are_followed() -> None:
    text = """
    h = Stack[elem_type=float32] @"/cpu:1"
    p = Placeholder[dtype=bool, shape=[]] @"/cpu:0"
    s = RefSwitch(h, p) @"/cpu:0"
    x = Placeholder[dtype=float32, shape=[]] @"/cpu:0"
    w = StackPush[T=float32](s:1, x) @"/cpu:0"
    """
    assert placed(text, soft=False) == {"h": "CPU:1", "p": "CPU:0", "s": "CPU:1", "x": "CPU:0", "w": "CPU:1"}


LOOP = """
zero = Const[value=int32[]{0}, dtype=int32]
x = Placeholder[dtype=float32, shape=[]]
ten = Const[value=int32[]{10}, dtype=int32]
one = Const[value=int32[]{1}, dtype=int32]
e = Enter[frame_name="loop"](zero)
n = Enter[frame_name="loop", is_constant=true](ten)
k = Enter[frame_name="loop", is_constant=true](one)
m = Merge[N=2, T=int32](e, next)
less = Less(m, n)
go = LoopCond(less)
s = Switch(m, go)
add = AddV2(s:1, k) @"%s"
next = NextIteration(add)
out = Exit(s:0)
e2 = Enter[frame_name="loop"](x)
m2 = Merge[N=2, T=float32](e2, next2)
s2 = Switch(m2, go)
neg = Neg(s2:1) @"%s"
next2 = NextIteration(neg)
out2 = Exit(s2:0)
"""


def test_the_plumbing_of_a_loop_variable_stands_where_its_next_value_is_made() -> None:
    got = placed(LOOP % ("/cpu:1", "/cpu:0"), soft=False)
    assert {got[k] for k in ("e", "m", "s", "next", "out", "add")} == {"CPU:1"}
    assert {got[k] for k in ("e2", "m2", "s2", "next2", "out2", "neg")} == {"CPU:0"}
    assert got["less"] == got["go"]


def test_enter_merge_and_next_iteration_are_one_place() -> None:
    text = (LOOP % ("/cpu:1", "/cpu:0")).replace('e = Enter[frame_name="loop"](zero)', "%s") % (
        'e = Enter[frame_name="loop"](zero) @"/cpu:0"'
    )
    got = placed(text, soft=False)
    assert got["e"] == got["m"] == got["next"] == "CPU:0"
    assert got["add"] == "CPU:1"
    # where they ask for different devices, it is the Merge's that counts
    text = text.replace("next = NextIteration(add)", 'next = NextIteration(add) @"/cpu:1"')
    text = re.sub(r"^(m = Merge.*)$", r'\1 @"/cpu:1"', text, flags=re.MULTILINE)
    assert '(e, next) @"/cpu:1"' in text
    got = placed(text, soft=False)
    assert got["e"] == got["m"] == got["next"] == "CPU:1"


@pytest.mark.parametrize("conds", [0, 2])
def test_a_loop_without_one_predicate_is_not_cut(conds: int) -> None:
    text = LOOP % ("/cpu:1", "")
    if conds == 0:
        text = text.replace("go = LoopCond(less)", "go = Identity(less)")
    else:
        text = text.replace("go = LoopCond(less)", "go = LoopCond(less)\nLoopCounter = LoopCond(less)")
    got = placed(text, soft=False)
    assert {device for name, device in got.items() if name not in ("zero", "x", "ten", "one")} == {"CPU:1"}
    with pytest.raises(InvalidArgumentError, match="are in the loop 'loop', which cannot be partitioned"):
        placed(text.replace('neg = Neg(s2:1) @""', 'neg = Neg(s2:1) @"/cpu:0"'), soft=False)


def recursive(inside: str, other: str = "") -> Lowered:
    """A step that calls a recursive function.

    The function has one operation on `inside` and one on `other`.
    """

    def body(x: Any) -> Any:
        with hr.device(inside):
            y = x * 0.5
        with hr.device(other):
            small = y < 1.0
        return hr.cond(small, lambda: y, lambda: halve(y))

    with hr.Graph():
        halve = Function(body, results=TensorSpec((), hr.float32), name="halve")
        x = hr.placeholder("float32", [])
        y = halve(x)
    low = lowered([y], [x])
    assert list(low.functions) == ["halve"]
    return low


def test_calls_stand_with_what_they_call() -> None:
    low = recursive("/cpu:1")
    found = place(low.ops, cluster(), soft=False, functions=low.functions)
    body = low.functions["halve"]
    assert set(found.of) == {*low.ops, *body}
    assert {short(found.of[op]) for op in body} == {"CPU:1"}
    assert {short(found.of[op]) for op in low.ops if op.opdef.structured == "Call"} == {"CPU:1"}


@pytest.mark.parametrize("soft", [False, True])
def test_a_body_that_asks_for_several_devices_is_refused_by_name(soft: bool) -> None:
    low = recursive("/cpu:1", "/cpu:0")
    with pytest.raises(InvalidArgumentError, match="the body of the function 'halve' must be on one device"):
        place(low.ops, cluster(), soft=soft, functions=low.functions)
    if soft:  # where only one of them is there, there is no choice to make
        assert place(low.ops, cluster("CPU:0"), functions=low.functions).reasons


def test_a_call_of_nothing() -> None:
    with pytest.raises(NotFoundError, match="calls function 'halve', which is not defined"):
        place(recursive("").ops, cluster())


def test_clusters_that_make_no_sense() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one device"):
        Cluster(())
    with pytest.raises(InvalidArgumentError, match="not the full name"):
        Cluster.local(["/cpu:0"])
    with pytest.raises(InvalidArgumentError, match="the same name"):
        Cluster.local([TASK + "CPU:0"] * 2)
    with pytest.raises(InvalidArgumentError, match="a link joins"):
        Cluster(cluster().devices, links={(TASK + "CPU:0", TASK + "CPU:9"): cluster().link})
