"""Loop-invariant work is done once, if that changes nothing else."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import numpy as np
import pytest

from headrace.ir.text import from_text, to_text
from headrace.optimize.base import PassContext, run
from tests.optimize.loop_steps import PASSES, agree, loop_of, loop_text, transformed, untouched

_RULE = "loop_invariants"
_VARIABLES = """
i: int32[] = zero -> i1
n: int32[]
h: float32[2,2] -> h1
w: float32[2,2]
"""
_FIVE = "less = Less(i, five)"  # the loop is known to iterate


def loop(body: str, more: str = "", **rest: str) -> str:
    """A loop with these lines in its body, and these variables besides."""
    body = "i1 = AddV2(i, one)\n" + body.replace(" | ", "\n")
    return loop_of(_VARIABLES + more.replace(" | ", "\n"), body, **rest)


def moved(text: str) -> tuple[list[str], list[str]]:
    """Reasons for which operations were moved, and reasons for which others were not.

    A second run of the pass moves nothing.
    """
    got, context = transformed(text, [PASSES[_RULE]])
    assert transformed(text, [PASSES[_RULE]] * 2)[0] == got
    return [n.text.partition(": ")[2] for n in context.notes if n.fired], [n.text for n in context.notes if not n.fired]


def unmoved(body: str, more: str = "", **rest: str) -> None:
    untouched(_RULE, loop(body, more, **rest))


# *** which operations of the body ***


@pytest.mark.parametrize(
    ("body", "more", "cond", "names"),
    [
        ("v = Neg(w) | h1 = AddV2(h, v)", "", "less = Less(i, n)", "v"),
        ("v = Neg(w) | u = Tanh(v) | h1 = AddV2(h, u)", "", "less = Less(i, n)", "v, u"),
        ("m = FloorMod(n, n) | f = Cast[SrcT=int32, DstT=float32](m) | h1 = AddV2(h, f)", "", _FIVE, "m, f"),
        ("v = Neg(w) | h1 = Tanh(h)", "s: float32[2,2] -> v", "less = Less(i, n)", "v"),
    ],
)
def test_what_moves(body: str, more: str, cond: str, names: str) -> None:
    text = loop(body, more, cond=cond)
    assert moved(text) == ([names], [])
    feeds = {"n": 3, "h": [[0.1, 0.2], [0.3, 0.4]], "w": [[1.0, -1.0], [0.5, 2.0]]}
    if more:
        feeds["s"] = feeds["h"]
    agree(text, [PASSES[_RULE]], feeds, ["loop:2", *(["loop:4"] if more else [])])


@pytest.mark.parametrize(
    ("body", "cond"),
    [
        ("v = Neg(w) ^i1 | h1 = AddV2(h, v)", _FIVE),
        ("v = AddV2(w, h) | h1 = AddV2(h, v)", _FIVE),
        ("h1 = Tanh(h)", _FIVE),
    ],
)
def test_what_stays(body: str, cond: str) -> None:
    unmoved(body, cond=cond)


def test_what_owns_graphs_stays() -> None:
    body = """p = Less(n, n)
c = If[Tcond=bool, Tin=(float32), Tout=(float32), then_branch=@"t", else_branch=@"e"](p, w)
graph "t" of c, then_branch (a: float32[2,2]) -> (b) {
  b = Neg(a)
}
graph "e" of c, else_branch (a: float32[2,2]) -> (a) {
}
h1 = AddV2(h, c)"""
    assert moved(loop(body, cond=_FIVE)) == (["p"], [])


# *** lists ***

_LIST = "shape = Const[value=int32[2]{2, 2}, dtype=int32] | any = Const[value=int32[]{-1}, dtype=int32] | empty = EmptyTensorList[element_dtype=float32](shape, any) | "
_ROWS = "shape = Const[value=int32[2]{2, 2}, dtype=int32] | rows = TensorListFromTensor(l, shape) | "
_L = "l: float32[3,2,2]"
_CHANGED = "each iteration changes a list of its own"


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (_LIST + "put = TensorListPushBack[element_dtype=float32](empty, h) | h1 = TensorListGetItem[element_dtype=float32](put, zero, shape)", ""),
        (_ROWS + "put = TensorListSetItem[element_dtype=float32](rows, zero, h) | h1 = TensorListGetItem[element_dtype=float32](put, one, shape)", _L),
        (_ROWS + "pop = TensorListPopBack[element_dtype=float32](rows, shape) | h1 = AddV2(h, pop:1)", _L),
    ],
)  # fmt: skip
def test_a_list_that_each_iteration_changes_stays(body: str, more: str) -> None:
    done, why = moved(loop(body, more, cond=_FIVE))
    assert (done, why) == ([], [_CHANGED])


def test_rows_that_are_only_read_move() -> None:
    body = _ROWS + "v = TensorListGetItem[element_dtype=float32](rows, i, shape) | h1 = AddV2(h, v)"
    assert moved(loop(body, _L, cond=_FIVE)) == (["rows"], [])


# *** large tensors ***


@pytest.mark.parametrize(
    ("body", "more", "names"),
    [
        ("v = BroadcastTo(s, size) | k1 = AddV2(k, v) | h1 = Neg(h)", "s: float32[] | k: float32[20,20] -> k1", "v"),
        ("v = Neg(l) | k1 = AddV2(k, v) | h1 = Neg(h)", "l: float32[300,300] | k: float32[300,300] -> k1", "v"),
        ("v = BroadcastTo(s, large) | u = Sum(v, both) | g = AddV2(h, u) | h1 = Neg(g)", "s: float32[]", "v, u"),
        ("v = Neg(l) | k1 = AddV2(k, v) | h1 = Neg(h)", "l: float32[?,?] | k: float32[?,?] -> k1", "v"),
        ("v = Pack[N=2](l, l) | u = Neg(v) | k1 = AddV2(k, u) | h1 = Neg(h)", "l: float32[?] | k: float32[?,?] -> k1", "v, u"),
        ("v = Neg(l) | h1 = Neg(h)", "l: float32[?] | k: float32[?] -> v", "v"),
    ],
)  # fmt: skip
def test_what_is_small_enough(body: str, more: str, names: str) -> None:
    assert moved(loop(_CONSTANTS + body, more, cond=_FIVE)) == ([names], [])


_CONSTANTS = "size = Const[value=int32[2]{20, 20}, dtype=int32] | large = Const[value=int32[2]{300, 300}, dtype=int32] | both = Const[value=int32[2]{0, 1}, dtype=int32] | "
_STRETCHED = "its result is much larger than its inputs"


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("v = BroadcastTo(s, large) | k1 = AddV2(k, v) | h1 = Neg(h)", "s: float32[] | k: float32[300,300] -> k1"),
        ("v = BroadcastTo(s, large) | h1 = Neg(h)", "s: float32[] | k: float32[300,300] -> v"),
        ("v = Reshape(l, large) | k1 = AddV2(k, v) | h1 = Neg(h)", "l: float32[?,?] | k: float32[300,300] -> k1"),
        ("v = BroadcastTo(s, d) | k1 = AddV2(k, v) | h1 = Neg(h)", "s: float32[] | d: int32[2] | k: float32[?,?] -> k1"),
        ("v = Reshape(l, d) | k1 = AddV2(k, v) | h1 = Neg(h)", "l: float32[?] | d: int32[?] | k: float32<unknown> -> k1"),
    ],
)  # fmt: skip
def test_what_is_stretched_stays(body: str, more: str) -> None:
    done, why = moved(loop(_CONSTANTS + body, more, cond=_FIVE))
    assert (done, why) == ([], [_STRETCHED])


# *** variables that are only read ***

_READ = "x = ReadVariableOp[dtype=float32](v) | h1 = AddV2(h, x)"
_V = "v: resource[] holds float32[2,2] = var"
_VAR = "var = VarHandleOp[dtype=float32, shape=[2,2]]\nc = NoOp"


def reading(body: str, more: str = _V, before: str = _VAR, **rest: str) -> str:
    return loop(body, more, before=before, cond=_FIVE, type="While", **rest)


def test_a_variable_is_read_once() -> None:
    text = reading(_READ).replace("var)", "var) ^c")
    got, context = transformed(text, [PASSES[_RULE]])
    assert [n.text for n in context.notes] == ["loop-invariant, hoisted: x"]
    assert "x = ReadVariableOp(var) ^c" in got
    more = text.replace("h1 = AddV2(h, x)", "a = Neg(w)\nah = AddV2(h, a)\nh1 = AddV2(ah, x)")
    got, _ = transformed(more, [PASSES[_RULE]])
    assert "\na = Neg(w)\nx = ReadVariableOp(var) ^c\n" in got


@pytest.mark.parametrize(
    "body",
    [
        "x = ReadVariableOp[dtype=float32](v) ^i1 | h1 = AddV2(h, x)",
        "x = ReadVariableOp[dtype=float32](v) | y = Neg(i1) ^x | h1 = AddV2(h, x)",
        _READ + " | a = AssignVariableOp(v, h)",
    ],
)
def test_a_variable_that_is_read_at_its_time(body: str) -> None:
    untouched(_RULE, reading(body))


def test_what_runs_in_any_case_is_read_at_its_time() -> None:
    graph = from_text(reading(_READ))
    body = graph.get_operation_by_name("loop").attrs["body"]
    body.control_results = [body.get_operation_by_name("x")]
    before = to_text(graph)
    assert not run([PASSES[_RULE]], graph, PassContext())
    assert to_text(graph) == before


def test_what_others_change_meanwhile_is_read_each_time() -> None:
    queue = "var = FIFOQueueV2[component_types=(float32)]\nc = NoOp"
    body = "s = QueueSizeV2(v) | f = Cast[SrcT=int32, DstT=float32](s) | h1 = AddV2(h, f)"
    untouched(_RULE, reading(body, "v: resource[] = var", queue))


# *** reads that may not be needed ***

_GUARDED = "x = _ReadVariableIfNeeded(var, less)"


def maybe(body: str = _READ, more: str = _V, before: str = _VAR, cond: str = "less = Less(i, n)", **rest: str) -> str:
    return loop(body, more, before=before, cond=cond, type="While", **rest)


def lines_of(text: str, preserved: tuple[str, ...] = ()) -> list[str]:
    return transformed(text, [PASSES[_RULE]], preserved)[0].splitlines()


def test_a_variable_that_a_loop_may_read_is_read_once_under_its_condition() -> None:
    assert moved(maybe()) == (["x"], [])
    lines = lines_of(maybe())
    assert "less = Less(zero, n)" in lines
    assert _GUARDED in lines
    assert sum("ReadVariable" in line for line in lines) == 1


def test_reads_of_one_loop_have_one_condition() -> None:
    lines = lines_of(maybe(_READ.replace("h1 =", "g =") + " | y = ReadVariableOp[dtype=float32](w2) | h1 = AddV2(g, y)",
                           _V + " | w2: resource[] holds float32[2,2] = other",
                           _VAR + "\nother = VarHandleOp[dtype=float32, shape=[2,2]]"))  # fmt: skip
    assert _GUARDED in lines
    assert "y = _ReadVariableIfNeeded(other, less)" in lines
    assert sum("= Less(" in line for line in lines) == 1


def test_the_condition_may_be_a_variable_of_the_loop() -> None:
    text = maybe(more=_V + " | p: bool[]", cond="q = LogicalAnd(p, p)")
    assert "x = _ReadVariableIfNeeded(var, q)" in lines_of(text)


def test_a_read_that_waits_for_what_the_loop_waits_for() -> None:
    assert _GUARDED + " ^c" in lines_of(maybe().replace("var)", "var) ^c"))


@pytest.mark.parametrize(
    "changes",
    [
        {"cond": "most = FloorDiv(i, n)\nless = Less(most, n)"},  # the condition may fail
        {"cond": "shape = Shape(h)\nr = RandomUniformInt(shape, n, n)\ns = Sum(r, zero)\nmost = Sum(s, zero)\nless = Less(i, most)"},
        {"cond": "less = Less(i, n) ^i"},
        {"cond": "r = LogicalNot(q)", "more": _V + " | q: bool[1]"},
        {"cond": "r = Less(i, n)", "named": "r"},
        {"cond": "r = Sub(n, i)"},
        {"more": "v: resource[] holds float32[?,2] = var", "before": _VAR.replace("2,2", "?,2")},
        {"body": "x = ReadVariableOp[dtype=string](s) | h1 = Tanh(h) | t1 = Identity(x)", "more": "s: resource[] holds string[2] = var | t: string[2] -> t1", "before": "var = VarHandleOp[dtype=string, shape=[2]]\nc = NoOp"},
        {"body": _READ.replace("ReadVariableOp[dtype=float32](v)", "ResourceGather[dtype=float32, Tindices=int32](v, zero)")},
    ],
)  # fmt: skip
def test_a_read_without_a_condition_to_copy_stays(changes: dict[str, str]) -> None:
    changes = dict(changes)
    named = changes.pop("named", "")
    graph = from_text(maybe(**changes))
    if named:
        graph.get_operation_by_name("loop").attrs["cond"].get_operation_by_name(named).attrs["_class"] = (b"loc:@h",)
    context = PassContext()
    run([PASSES[_RULE]], graph, context)
    body = graph.get_operation_by_name("loop").attrs["body"]
    assert body.get_operation_by_name("x").type in ("ReadVariableOp", "ResourceGather")
    assert "it may fail, and the trip count may be 0" in [n.text for n in context.notes if not n.fired]


_READ_M = "same = Identity(m)\nmost = ReadVariableOp[dtype=int32](same)\nless = Less(i, most)"
_OTHER = _V + " | u: resource[] holds float32[2,2] = {}"
_WRITES = _READ + " | a = AssignVariableOp(u, h)"


def test_another_variable_may_be_written() -> None:
    two = _VAR + "\nother = VarHandleOp[dtype=float32, shape=[2,2]]"
    assert _GUARDED in lines_of(maybe(_WRITES, _OTHER.format("other"), two))
    random = _READ + " | size = Shape(h) | r = RandomUniform[dtype=float32](size) | k1 = AddV2(k, r)"
    assert _GUARDED in lines_of(maybe(random, _V + " | k: float32[2,2] -> k1"))


@pytest.mark.parametrize(
    ("var", "before"),
    [
        ("var", _VAR),
        ("twin", _VAR + '\ntwin = VarHandleOp[dtype=float32, shape=[2,2], shared_name="var"]'),
        ("twin", _VAR + "\ntwin = Placeholder[dtype=resource, shape=[]]"),
    ],
)
def test_a_variable_that_may_be_written_is_read_each_time(var: str, before: str) -> None:
    untouched(_RULE, maybe(_WRITES, _OTHER.format(var), before))


@pytest.mark.parametrize("cond", ["less = Less(i, n)", _READ_M])
def test_a_handle_that_the_loop_computes(cond: str) -> None:
    two = _VAR + "\nother = VarHandleOp[dtype=float32, shape=[2,2]]\nlimit = VarHandleOp[dtype=int32, shape=[]]"
    body = (
        "same = Identity(v) | x = ReadVariableOp[dtype=float32](same) | h1 = AddV2(h, x) | a = AssignVariableOp(u, h)"
    )
    more = _OTHER.format("other") + " | m: resource[] holds int32[] = limit"
    assert not any("_ReadVariable" in line for line in lines_of(maybe(body, more, two, cond)))


def test_a_handle_that_changes_may_be_any() -> None:
    names = "other", "third"
    more = _V + " | u: resource[] holds float32[2,2] = other -> t | t: resource[] holds float32[2,2] = third -> u"
    before = "\n".join([_VAR, *(f"{name} = VarHandleOp[dtype=float32, shape=[2,2]]" for name in names)])
    untouched(_RULE, maybe(_WRITES, more, before))


def test_a_condition_is_copied_only_for_reads() -> None:
    assert "less" not in "".join(lines_of(maybe("y = Neg(w) | h1 = AddV2(h, y)")))


_OUTER = """
k: int32[] = zero -> k1
g: float32[2,2] -> inner:1
n: int32[]
v: resource[] holds float32[2,2] = var
"""


def nested(after: str = "", limit: str = "n") -> str:
    variables = "i: int32[], h: float32[2,2], n: int32[], v: resource[] holds float32[2,2]"
    inner = loop_text(variables, f"zero, g, {limit}, v", "i1, h1, n, v", "i1 = AddV2(i, one)\n" + _READ.replace(" | ", "\n"),
                      name="inner", type="While")  # fmt: skip
    return loop_of(
        _OUTER,
        "k1 = AddV2(k, one)\n" + inner + after,
        cond="less = Less(k, n)",
        before=_VAR,
        type="While",
        name="outer",
    )


def test_a_read_leaves_nested_loops_under_both_conditions() -> None:
    lines = lines_of(nested())
    assert "LogicalAnd = LogicalAnd(less, less_1)" in lines
    assert "x = _ReadVariableIfNeeded(var, LogicalAnd)" in lines
    assert sum("ReadVariable" in line for line in lines) == 1


def test_a_read_stays_in_the_loop_on_which_its_condition_depends() -> None:
    assert "  x = _ReadVariableIfNeeded(v, less)" in lines_of(nested(limit="k"))


def test_a_read_stays_in_the_loop_that_writes() -> None:
    assert "  x = _ReadVariableIfNeeded(v, less_1)" in lines_of(nested("\na = AssignVariableOp(v, inner:1) ^inner"))


def test_in_lowered_form_a_read_leaves_a_loop_that_does_not_wait() -> None:
    assert _GUARDED in transformed(maybe(), [PASSES[_RULE]], is_lowered=True)[0]


@pytest.mark.parametrize("is_lowered", [False, True])
def test_other_steps_may_write_while_a_loop_of_a_lowered_step_waits(is_lowered: bool) -> None:
    text = maybe(_READ + " | d = QueueDequeueV2[component_types=(float32)](q) | k1 = AddV2(k, d)",
                 _V + " | q: resource[] = queue | k: float32<unknown> = any -> k1",
                 _VAR + "\nany = Placeholder[dtype=float32]\nqueue = FIFOQueueV2[component_types=(float32)]")  # fmt: skip
    got = transformed(text, [PASSES[_RULE]], is_lowered=is_lowered)[0]
    assert (_GUARDED in got) == (not is_lowered)


# *** the condition ***

_BODY = "h1 = Tanh(h)"
_P = "p: bool[] | q: bool[]"


@pytest.mark.parametrize(
    ("cond", "names"),
    [
        ("most = FloorDiv(n, two) | less = Less(i, most)", "most"),
        ("half = FloorDiv(n, two) | most = FloorDiv(half, two) | less = Less(i, most)", "half, most"),
        ("most = FloorDiv(n, two) | below = AddV2(i, most) | less = Less(below, most)", "most"),
        ("most = FloorDiv(n, two) | unread = Neg(n) | less = Less(i, most)", "unread, most"),
    ],
)
def test_what_the_condition_computes(cond: str, names: str) -> None:
    text = loop(_BODY, cond=cond.replace(" | ", "\n"))
    assert moved(text) == ([names], [])
    after = agree(text, [PASSES[_RULE]], {"n": 9, "h": [[0.1, 0.2], [0.3, 0.4]], "w": [[0.0] * 2] * 2}, ["loop:2"])
    graph = after.graph
    assert sum(op.type == "Const" and op.attrs["value"] == 2 for op in graph.operations) == (", two" in cond)
    assert sum(op.type == "FloorDiv" for op in graph.operations) == cond.count("FloorDiv")
    assert not any(op.type == "FloorDiv" for op in graph.get_operation_by_name("loop").attrs["cond"].operations)


def test_a_condition_that_never_changes() -> None:
    text = loop(_BODY, _P, cond="r = LogicalAnd(p, q)")
    assert moved(text) == (["r"], [])
    feeds = {"p": True, "q": False, "h": [[0.1, 0.2], [0.3, 0.4]], "w": [[0.0] * 2] * 2, "n": 1}
    agree(text, [PASSES[_RULE]], feeds, ["loop:2"])


@pytest.mark.parametrize(
    "cond",
    [
        "less = Less(i, n)",
        "most = FloorDiv(n, two) ^i | less = Less(i, most)",
        "most = FloorDiv(n, two) | less = Less(i, most) ^most",
        "most = FloorDiv(n, two) | less = Less(i, n)",  # no operation reads it
    ],
)
def test_what_the_condition_keeps(cond: str) -> None:
    unmoved(_BODY, cond=cond.replace(" | ", "\n"))


_LIMIT = "m: resource[] holds int32[] = limit"
_READ_LIMIT = "most = ReadVariableOp[dtype=int32](m)\nless = Less(i, most)"
_LIMIT_VAR = "limit = VarHandleOp[dtype=int32, shape=[]]\nc = NoOp"


def test_a_variable_of_the_condition_is_read_once() -> None:
    text = loop(_BODY, _LIMIT, cond=_READ_LIMIT, before=_LIMIT_VAR, type="While").replace("limit)", "limit) ^c")
    assert moved(text) == (["most"], [])
    assert "most = ReadVariableOp(limit) ^c" in transformed(text, [PASSES[_RULE]])[0]


@pytest.mark.parametrize(
    ("body", "cond"),
    [
        (_BODY + " | a = AssignVariableOp(m, i1)", _READ_LIMIT),
        (_BODY, _READ_LIMIT.replace("(m)", "(m) ^i")),
        (_BODY, _READ_LIMIT.replace("ReadVariableOp[dtype=int32](m)", "QueueSizeV2(m)")),
    ],
)
def test_a_variable_of_the_condition_that_is_read_each_time(body: str, cond: str) -> None:
    queue = _LIMIT_VAR if "Queue" not in cond else "limit = FIFOQueueV2[component_types=(float32)]\nc = NoOp"
    variables = _LIMIT if "Queue" not in cond else "m: resource[] = limit"
    untouched(_RULE, loop(body, variables, cond=cond, before=queue, type="While"))


def test_a_read_of_the_condition_that_runs_in_any_case_is_made_each_time() -> None:
    graph = from_text(loop(_BODY, _LIMIT, cond=_READ_LIMIT, before=_LIMIT_VAR, type="While"))
    cond = graph.get_operation_by_name("loop").attrs["cond"]
    cond.control_results = [cond.get_operation_by_name("most")]
    assert not run([PASSES[_RULE]], graph, PassContext())


def test_a_random_number_of_the_condition_is_drawn_each_time() -> None:
    cond = "size = ExpandDims(zero, zero)\nr = RandomUniformInt(size, n, n)\nmost = Sum(r, zero)\nless = Less(i, most)"
    assert moved(loop(_BODY, cond=cond)) == (["size"], [])


def test_what_stands_with_others_stays() -> None:
    graph = from_text(loop(_BODY, cond="most = FloorDiv(n, two)\nless = Less(i, most)"))
    cond = graph.get_operation_by_name("loop").attrs["cond"]
    cond.get_operation_by_name("most").attrs["_class"] = (b"loc:@less",)
    assert not run([PASSES[_RULE]], graph, PassContext())


def test_a_name_that_is_taken_outside() -> None:
    text = loop("v = Neg(w) | h1 = AddV2(h, v)", before="v = Exp(w)", behind="end = AddV2(loop:2, v)")
    feeds = {"n": 3, "h": [[0.1, 0.2], [0.3, 0.4]], "w": [[1.0, -1.0], [0.5, 2.0]]}
    assert agree(text, [PASSES[_RULE]], feeds, ["end"]).fired()


# *** values that another loop has pushed ***

_PUSHING = """
i: int32[] = zero -> i1
h: float32[2,2] -> h1
w: float32[2,2]
acc: variant[] holds float32[2,2] = empty -> put
"""
_POPPING = """
k: int32[] = zero -> k1
d: float32[2,2] -> d1
bcc: variant[] holds float32[2,2] = loop:3 -> pop
"""
_PUSH = "i1 = AddV2(i, one)\nput = TensorListPushBack[element_dtype=float32](acc, w)\nh1 = MatMul(h, w)"
_POP = (
    "k1 = AddV2(k, one)\nshape = Const[value=int32[2]{2, 2}, dtype=int32]\n"
    "pop = TensorListPopBack[element_dtype=float32]{ResidualPop}(bcc, shape)\nd1 = MatMul(d, pop:1)"
)
_LISTS = """shape = Const[value=int32[2]{2, 2}, dtype=int32]
any = Const[value=int32[]{-1}, dtype=int32]
empty = EmptyTensorList[element_dtype=float32](shape, any)
filled = TensorListFromTensor(xs, shape)
"""


def _two_loops(push: str = _PUSH, pop: str = _POP, pushing: str = _PUSHING, popping: str = _POPPING) -> str:
    first = loop_of(
        pushing, push, cond="less = Less(i, five)", before="xs = Placeholder[dtype=float32, shape=[5,2,2]]\n" + _LISTS
    )
    second = loop_of(popping, pop, cond="less = Less(k, five)", name="back", behind="end = Identity(back:1)")
    return first + second.replace(_NUMBERS, "")


_NUMBERS = "zero = Const[value=int32[]{0}, dtype=int32]\none = Const[value=int32[]{1}, dtype=int32]\n"


def test_a_popped_value_that_was_pushed_in_all_iterations_is_read_before_both_loops() -> None:
    feeds = {"h": np.eye(2), "w": np.full((2, 2), 0.5), "d": np.eye(2)}
    made = agree(_two_loops(), [PASSES[_RULE]], feeds, ["end", "loop:1"])
    assert made.fired() == ["back: popped, equal in all iterations: pop"]
    got, _ = transformed(_two_loops(), [PASSES[_RULE]])
    assert "d1 = MatMul(d, w)" in got
    assert transformed(_two_loops(), [PASSES[_RULE]] * 2)[0] == got


@pytest.mark.parametrize(
    "changes",
    [
        {"push": _PUSH.replace("(acc, w)", "(acc, h)")},
        {"push": _PUSH.replace("(acc, w)", "(two_, w)").replace("put", "two_ = TensorListPushBack[element_dtype=float32](acc, w)\nput")},
        {"pushing": _PUSHING.replace("= empty", "= filled")},
        {"popping": _POPPING.replace("= loop:3", "= filled")},
        {"pushing": _PUSHING + "bcc: variant[] holds float32[2,2] = empty -> put", "push": _PUSH, "popping": _POPPING.replace("loop:3", "loop:4")},
        {"pop": _POP.replace("{ResidualPop}", "")},
        {"pop": _POP.replace("d1 = ", "d0 = ").replace("pop:1)", "pop:1)\nd1 = Neg(d)").replace("shape)", "shape) ^k1")},
        {"pushing": _PUSHING.replace("w: float32[2,2]", "w: float32[?,2]")},
    ],
)  # fmt: skip
def test_other_popped_values_stay(changes: dict[str, str]) -> None:
    got, context = transformed(_two_loops(**changes), [PASSES[_RULE]])
    assert not context.notes
    assert got == transformed(_two_loops(**changes), [])[0]


def test_a_large_variable_is_read_once() -> None:
    large = _READ.replace("h1 = AddV2(h, x)", "s = Sum(x, both) | h1 = AddV2(h, s)")
    text = reading(_CONSTANTS + large, _V.replace("2,2", "300,300"), _VAR.replace("2,2", "300,300"))
    assert moved(text) == (["x, s"], [])
    text = reading(_CONSTANTS + _READ.replace("AddV2(h, x)", "Neg(h) | k1 = AddV2(k, x)"),
                   _V.replace("2,2", "300,300") + " | k: float32[300,300] -> k1", _VAR.replace("2,2", "300,300"))  # fmt: skip
    assert moved(text) == (["x"], [])
