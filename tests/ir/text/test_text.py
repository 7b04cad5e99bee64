"""`ir.text`: graphs as text, there and back."""

import contextlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from headrace import dtypes
from headrace.errors import GraphError, ShapeError, TextError
from headrace.ir import attr_values
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.serial import attrs as wire
from headrace.ir.serial.functiondef import EncodedFunction
from headrace.ir.serial.graphdef import export_graph_def, import_graph_def
from headrace.ir.text import from_text, show_op, to_text
from headrace.ir.verify import verify
from tests.ir import corpus, functional

LOOP = """\
versions 2474 12
function "f\\n" = base64"CgA="
x = Placeholder[dtype=float32, shape=[2,?]] : float32[2,?]
p = Placeholder[dtype=bool] : bool<unknown>
e = Enter[T=float32, frame_name="while"](x) : float32[2,?]
m = Merge[T=float32, N=2](e, n) : float32[2,?], int32[]
pe = Enter[T=bool, frame_name="while", is_constant=true](p) : bool<unknown>
c = LoopCond(pe) : bool[]
s = Switch[T=float32](m, c) : float32[2,?], float32[2,?]
go = Identity[T=float32](s:1) ^s ^last @"/device:CPU:1" : float32[2,?]
n = NextIteration[T=float32](go) : float32[2,?]
out = Exit[T=float32](s) : float32[2,?]
k = Const[value=float32[]{1.5}, dtype=float32] ^pe : float32[]
last = NoOp ^k
"""


def test_a_graph_prints_and_parses():
    g = from_text(LOOP)
    assert to_text(g) == LOOP
    assert g.versions == (2474, 12)
    assert g.library == {"f\n": EncodedFunction(b"\n\x00")}
    assert g.find("m").inputs[1].name == "n:0"
    assert [c.name for c in g.find("go").control_inputs] == ["s", "last"]
    assert g.find("go").device == "/device:CPU:1"
    assert g.find("e").attrs["parallel_iterations"] == 10
    assert str(g.find("x").source) == "<text>:3"


def test_comments_blank_lines_and_spaces_mean_nothing():
    g = from_text("""
        # all of it

        x   =   Placeholder [ dtype = float32 , _s = "a#b" ] # after
        y = Identity ( x : 0 )^x@"/cpu:0":float32
    """)
    assert to_text(g) == (
        'x = Placeholder[dtype=float32, _s="a#b"] : float32<unknown>\n'
        'y = Identity[T=float32](x) ^x @"/cpu:0" : float32<unknown>\n'
    )


def test_what_follows_from_the_inputs_may_be_left_out():
    g = from_text("""
        x = Placeholder[dtype=int64, shape=[3]]
        y = AddV2(x, x)
        z = AddN(x, y, x)
        q = IdentityN(x, y)
    """)
    assert g.find("z").attrs == {"T": dtypes.int64, "N": 3}
    assert g.find("q").attrs == {"T": (dtypes.int64, dtypes.int64)}
    assert g.get_tensor_by_name("z:0").shape == (3,)


def test_stated_shapes_hold():
    g = from_text(
        "x = Placeholder[dtype=float32] : float32[2,3]\ny = Placeholder[dtype=float32, shape=[4]] : float32<unknown>"
    )
    assert g.get_tensor_by_name("x:0").shape == (2, 3)
    assert g.get_tensor_by_name("y:0").shape is None


def test_some_operations_print_too():
    g = from_text(LOOP)
    assert to_text(g.operations[:1]) == LOOP.split("\n")[2] + "\n"
    assert show_op(g.find("last")) == "last = NoOp ^k"


def one(value):
    """The attribute `v` of an operation that is printed and parsed again."""
    g = Graph()
    g.add_op("NoOp", "x", attrs={"v": value})
    text = to_text(g)
    got = from_text(text).find("x").attrs["v"]
    assert to_text(from_text(text)) == text
    return text.removeprefix("x = NoOp[v=").removesuffix("]\n"), got


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (-3, "-3"),
        (2.0, "2.0"),
        (1e-5, "1e-05"),
        (float("inf"), "inf"),
        (-float("inf"), "-inf"),
        (-0.0, "-0.0"),
        (dtypes.float32, "float32"),
        (dtypes.float32.ref, "float32_ref"),
        ('a\n\t"\\\x00ü\udcff', '"a\\n\\t\\"\\\\\\x00\\xc3\\xbc\\xff"'),
        ((), "()"),
        ((1, 2), "(1, 2)"),
        ((dtypes.int32,), "(int32)"),
        (("a", "b"), '("a", "b")'),
        ((1.0, float("nan")), "(1.0, nan)"),
        (Func("f", (("T", dtypes.float32), ("odd name", 3))), '&"f"[T=float32, "odd name"=3]'),
        (Func("", ()), '&""'),
        (attr_values.Raw(b"\x12\x01a"), 'raw(base64"EgFh")'),
        (attr_values.BadTensor("why", b"\x08\x01"), 'bad("why", base64"CAE=")'),
        (np.int32([[1, 2], [3, 4]]), "int32[2,2]{1, 2, 3, 4}"),
        (np.float32(0.1), "float32[]{0.1}"),
        (np.array([], np.float64), "float64[0]{}"),
        (np.array([True, False]), "bool[2]{true, false}"),
        (np.float16([np.inf, -0.0]), "float16[2]{inf, -0.0}"),
        (np.array(0.25, ml_dtypes.bfloat16), "bfloat16[]{0.25}"),
        (np.complex64([1 + 2j, complex(np.nan, -np.inf)]), "complex64[2]{1+2j, nan-infj}"),
        (np.complex128(complex(-0.0, 3)), "complex128[]{-0+3j}"),
        (np.uint64(2**64 - 1), "uint64[]{18446744073709551615}"),
        (np.array([b"a", b'"\xff'], object), 'string[2]{"a", "\\"\\xff"}'),
        (np.broadcast_to(np.float32(7), (10**6, 3)), "float32[1000000,3]{7.0...}"),
        (np.broadcast_to(np.array(b"x", object), (4,)), 'string[4]{"x"...}'),
        (np.broadcast_to(np.uint32(0x7FC00001).view(np.float32), (4,)), 'float32[4]:base64"AQDAfw=="...'),
        (np.uint32(0x7FC00001).view(np.float32), 'float32[]:base64"AQDAfw=="'),
        (np.arange(17, dtype=np.int8), 'int8[17]:base64"AAECAwQFBgcICQoLDA0ODxA="'),
    ],
)
def test_values_of_attributes(value, text):
    value = np.asarray(value) if isinstance(value, np.generic) else value
    got_text, got = one(value)
    assert got_text == text
    assert attr_values.equal(got, value)
    if isinstance(got, np.ndarray):
        assert not got.flags.writeable


def test_shapes_and_lists_of_them():
    text = "x = FIFOQueueV2[component_types=(float32, int32), shapes=([2,?], [])] : resource[]\n"
    g = from_text(text)
    assert g.find("x").attrs["shapes"] == ((2, None), ())
    assert to_text(g) == text


def test_handles_have_no_text():
    with pytest.raises(GraphError, match="has no text form"):
        one(np.array([object()], object))
    with pytest.raises(GraphError, match="has no text form"):
        one(object())


@pytest.mark.parametrize(
    ("text", "says", "column"),
    [
        ("x", "expected '='", 2),
        ("x =", "expected an op type", 4),
        ("= NoOp", "expected the name of an operation", 1),
        ("x = Foo", "no op type named 'Foo' is registered", 1),
        ("x = NoOp[a=1", "expected ','", 13),
        ("x = NoOp[a=1 b=2]", "expected ','", 14),
        ("x = NoOp[=1]", "expected the name of an attribute", 10),
        ("x = NoOp[a=1, a=2]", "the attribute 'a' is given twice", 15),
        ("x = NoOp[a=]", "expected a value", 12),
        ("x = NoOp[a=$]", "expected a value", 12),
        ("x = NoOp[a=float33]", "'float33' is not a dtype", 12),
        ("x = NoOp[a=123456789012345678901234567890]", "expected an integer of 64 bits", 12),
        ('x = NoOp[a="b]', "expected a string in double quotes", 12),
        ('x = NoOp[a="\\q"]', r"\\q is no escape", 12),
        ("x = NoOp[a=[2,x]]", "expected a dimension", 15),
        ("x = NoOp[a=int32[2]]", "expected '{'", 20),
        ("x = NoOp[a=int32[?]{1}]", r"there is no array of int32\[\?\]", 17),
        ("x = NoOp[a=resource[]{1}]", "there is no array of resource", 20),
        ("x = NoOp[a=int32[2]{1}]", "cannot reshape", 17),
        ("x = NoOp[a=int32[2]{1, x}]", "invalid literal", 17),
        ("x = NoOp[a=int32[2]{1, 2", "expected an element", 24),
        ("x = NoOp[a=int8[]{300}]", "out of bounds", 16),
        ("x = NoOp[a=bool[]{2}]", "neither true nor false", 16),
        ("x = NoOp[a=float32[999999999999,999999999999]{1...}]", "no elements of an array", 19),
        ('x = NoOp[a=float32[]:base64"A"]', "not base64", 28),
        ('x = NoOp[a=float32[]:base64"AAAA"]', "no elements of an array", 19),
        ("x = NoOp ^", "expected the name of an operation", 11),
        ("x = NoOp ^y", "there is no operation 'y'", 11),
        ("x = NoOp @gpu", "expected a string", 11),
        ("x = NoOp : float32", "NoOp has 0 outputs, and the line describes 1", 12),
        ("x = NoOp x", "expected the end of the line", 10),
        ("x = Identity(y)", "there is no operation 'y'", 14),
        ("x = Identity(x)", "'x' is not defined above", 14),
        ("x = NoOp\ny = Identity(x)", "has 0 outputs, so no output 0", 14),
        ("x = NoOp\nx = NoOp", "Node 'x' is not unique: line 1 has one", 1),
        ("x = Placeholder[dtype=float32]\ny = Merge(x, z)\nz = Identity(x)", "is a Identity, not a NextIteration", 14),
        ("x = Placeholder[dtype=float32]\ny = Merge(x, z:1)\nz = NextIteration(x)", "has 1 outputs", 14),
        (
            "x = Placeholder[dtype=float32]\nw = Placeholder[dtype=int32]\ny = Merge(x, z)\nz = NextIteration(w)",
            "'z' is int32, and this Merge takes float32",
            14,
        ),
        ("x = Placeholder", "needs the attribute 'dtype'", 1),
        ("x = Placeholder[dtype=3.5]", "must be type", 1),
        ("x = Placeholder[dtype=float32]\ny = AddV2(x)", "AddV2 takes 2 inputs .x, y., got 1", 1),
        ("x = Placeholder[dtype=float32] : int32", "x:0 is float32, not int32", 34),
        ("x = Placeholder[dtype=float32, shape=[2]] : float32[3]", r"the shape of x:0 is \[2\], not \[3\]", 45),
        ("x = Const[dtype=int32, value=float32[]{1}]", "a Const of int32 holds an array of float32", 1),
        ("versions 1", "expected a number", 11),
        ("versions 1 2 3", "expected the end of the line", 14),
        ('function "f" base64""', "expected '='", 14),
    ],
)  # fmt: skip
def test_errors_point_at_the_place(text, says, column):
    with pytest.raises(TextError, match=says) as e:
        from_text(text, "g.txt")
    message, line, caret = str(e.value).rsplit("\n", 2)
    number = int(message.split(":")[1])
    assert message.startswith("g.txt:")
    assert line == "  " + text.split("\n")[number - 1]
    assert caret.index("^") == column + 1, caret
    assert f":{column}:" in message


# *** graphs that operations own ***

CALLS = """\
function "raw" = base64"CgA="
gradient "raw" = "square"
function "square" [_noinline=true] (v: float32[]) -> (y) {
  y = Mul[T=float32](v, v) : float32[]
}
x = Placeholder[dtype=float32, shape=[]] : float32[]
p = Placeholder[dtype=bool, shape=[]] : bool[]
h = VarHandleOp[dtype=float32, shape=[2]] : resource[]
c = If[Tcond=bool, Tin=(float32, resource), Tout=(float32, float32), then_branch=@"t", else_branch=@"f"](p, x, h) \
: float32[], float32[]
graph "t" of c, then_branch, is_ordered, shares_names (a: float32[] of "x:0", r: resource[] holds float32[2] of "h:0") \
-> (s, a) ^set {
  s = PartitionedCall[Tin=(float32), Tout=(float32), f=&"square"](a) : float32[]
  k = Const[value=float32[2]{1.0, 2.0}, dtype=float32] : float32[2]
  set = AssignVariableOp[dtype=float32](r, k) ^s
}
graph "f" of c, else_branch (a[_class=("loc:@x")]: float32[] of "x:0", b: resource[]) -> (d, b/z:1) {
  i = Const[value=int32[]{0}, dtype=int32] : int32[]
  d = Case[Tin=(float32), Tout=(float32), branches=(@"one", &"square")](i, a) : float32[]
  graph "one" of d, branches.0 (a: float32[]) -> (a) {
  }
  b/z = IdentityN[T=(float32, float32)](a, a) : float32[], float32[]
}
out = AddV2[T=float32](c, c:1) ^c : float32[]
"""


def test_owned_graphs_print_and_parse():
    g = from_text(CALLS)
    assert to_text(g) == CALLS
    verify(g)
    then, other = (g.find("c").attrs[a] for a in ("then_branch", "else_branch"))
    assert (then.name, then.outer, then.is_ordered, then.shares_names) == ("t", g, True, True)
    assert (other.is_ordered, other.shares_names, other.captures_from_outer) == (False, False, True)
    assert [t.name for t in then.params] == ["a:0", "r:0"]
    assert [t.op.attrs["index"] for t in then.params] == [0, 1]
    assert then.params[1].handle == (dtypes.float32, (2,))
    assert then.captures == dict(zip(g.find("c").inputs[1:], then.params, strict=True))
    assert list(other.captures) == [g.get_tensor_by_name("x:0")]
    assert [t.name for t in other.results] == ["d:0", "b/z:1"]
    assert [op.name for op in then.control_results] == ["set"]
    inner = other.find("d").attrs["branches"][0]
    assert inner.outer is other
    assert inner.results == inner.params
    assert str(then.source) == "<text>:10"
    square = g.functions["square"]
    assert g.function("square") is square
    assert not square.captures_from_outer
    assert square.attrs == {"_noinline": True}
    assert g.gradient_functions == {"raw": "square"}


def test_shapes_follow_from_owned_graphs():
    lines = [line.rsplit(" : ", 1)[0] for line in CALLS.split("\n")]
    g = from_text("\n".join(lines).replace("_noinline", "  _noinline"))
    assert to_text(g) == CALLS


def test_some_operations_print_with_their_graphs():
    g = from_text(CALLS)
    start = CALLS.index("c = If")
    assert to_text([g.find("c")]) == CALLS[start : CALLS.index("out =")]
    assert show_op(g.find("c")) == CALLS[start:].split("\n")[0]


@pytest.mark.parametrize("make", [functional.program, functional.counting])
def test_graphs_with_graphs_go_round(make):
    g = make()
    text = to_text(g)
    back = from_text(text)
    assert to_text(back) == text
    verify(back)
    assert export_graph_def(back) == export_graph_def(g)


def test_names_in_text_are_those_of_operations():
    g = from_text(CALLS)
    g.shows_primitives = True
    assert g.find("c").outputs[1].name == "c/Merge_1:0"
    assert to_text(g) == CALLS


BAD_BLOCKS = {
    "no owner": ('graph "g" of x, cond () -> () {\n}', "there is no operation 'x' with an attribute 'cond' for it", 1),
    "no attribute": ('x = NoOp\ngraph "g" of x, cond () -> () {\n}', "'x' with an attribute 'cond' for it", 1),
    "no block": ('x = PartitionedCall[Tin=(), Tout=(), f=@"g"]', "no graph 'g' of x, f follows", 1),
    "other block": (
        'x = PartitionedCall[Tin=(), Tout=(), f=@"g"]\ngraph "h" of x, f () -> () {\n}',
        "no graph 'g' of x, f follows",
        1,
    ),
    "no functions there": ('x = NoOp[a=(@"g")]', "the attribute 'a' of NoOp holds no graph", 1),
    "twice": ('function "f" () -> () {\n}\nfunction "f" () -> () {\n}', "line 1 has one for that already", 1),
    "ends too late": ('function "f" () -> () {', "nothing ends this block", 1),
    "ends too early": ("}", "expected the name of an operation", 1),
    "no result": ('function "f" () -> (x:1) {\n  x = NoOp\n}', "there is no tensor x:1 in it", 21),
    "no control result": ('function "f" () -> () ^x {\n}', "there is no operation 'x' in it", 24),
    "same parameter": ('function "f" (x: int32[], x: int32[]) -> () {\n}', "'x' is not unique", 27),
    "parameter": ('function "f" (x) -> () {\n}', "expected ':'", 16),
    "unknown word": ('function "f", fast () -> () {\n}', "'fast' is neither is_ordered nor shares_names", 15),
    "owner": ('graph "f" () -> () {\n}', "a graph is of an operation, and a function of none", 1),
    "parameter as operation": ('function "f" (x: int32[]) -> () {\n  x = NoOp\n}', "'x' is not unique", 3),
}


@pytest.mark.parametrize("case", BAD_BLOCKS)
def test_errors_in_blocks_point_at_the_place(case):
    test_errors_point_at_the_place(*BAD_BLOCKS[case])


def test_blocks_inside_blocks_have_a_limit():
    text = "".join(f'function "f{i}" () -> () {{\n' for i in range(1200))
    with pytest.raises(TextError, match="graphs are nested more than 1000 deep"):
        from_text(text)


def test_shapes_that_do_not_go_together():
    with pytest.raises(ShapeError, match=r"'y'.*made at <text>:2"):
        from_text("x = Placeholder[dtype=float32, shape=[3]]\ny = MatMul(x, x)")


# *** there and back, for any graph ***


def numpy_dtypes():
    return [d for d in sorted(dtypes.ALL, key=str) if d not in dtypes.OBJECT]


@st.composite
def arrays(draw):
    d = draw(st.sampled_from([*numpy_dtypes(), dtypes.string]))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    n = int(np.prod(shape))
    if d is dtypes.string:
        flat = np.empty(n, object)
        flat[:] = draw(st.lists(st.binary(max_size=5), min_size=n, max_size=n))
    elif d is dtypes.bool_:
        flat = draw(np_st.arrays(bool, n))
    else:  # any bits: infinities, NaNs of all kinds, denormals
        flat = np.frombuffer(draw(st.binary(min_size=n * d.size, max_size=n * d.size)), d.numpy)
    array = flat.reshape(shape)
    if draw(st.booleans()):
        array = np.broadcast_to(array.reshape(-1)[:1].reshape(()) if n else array.reshape(0), (4,) if n else (0,))
    array.flags.writeable = False
    return d, array


scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.binary(max_size=8).map(wire.to_str),
    st.sampled_from([*dtypes.ALL, dtypes.float32.ref]),
    st.binary(max_size=8).map(attr_values.Raw),
)
funcs = st.builds(
    Func, st.text(max_size=5), st.dictionaries(st.text(max_size=5), scalars, max_size=2).map(lambda d: tuple(d.items()))
)
extras = st.dictionaries(
    st.text(min_size=1, max_size=6).filter(lambda s: s not in ("T", "N", "dtype", "value", "shape", "frame_name")),
    scalars | funcs | st.lists(scalars, max_size=3).map(tuple) | arrays().map(lambda a: a[1]),
    max_size=2,
)


@st.composite
def graphs(draw):
    """A graph with constants of all dtypes, conditionals, loops, control edges and devices."""
    g = Graph()
    b = Builder(g)
    tensors = [b.Placeholder(dtype=dtypes.float32, shape=draw(st.none() | st.just((2, None))))]
    preds = [b.Placeholder(dtype=dtypes.bool_, shape=())]
    name = st.from_regex(r"[A-Za-z0-9.][A-Za-z0-9_./>-]{0,8}", fullmatch=True)
    for _ in range(draw(st.integers(0, 8))):
        before = draw(st.lists(st.sampled_from(g.operations), max_size=2))
        device = draw(st.sampled_from(["", "", "/cpu:0", "/job:a/task:1"]))
        at = b.after(*before).on(device)
        kind = draw(st.integers(0, 4))
        if kind == 0:
            d, value = draw(arrays())
            g.add_op("Const", g.unique_name(draw(name)), attrs={"dtype": d, "value": value}, control_inputs=before)
            t = g.operations[-1].outputs[0]
            t.shape = value.shape
        elif kind == 1:
            t = at.Identity(draw(st.sampled_from(tensors)), name=draw(name), **draw(extras))
        elif kind == 2:
            off, on = at.Switch(draw(st.sampled_from(tensors)), preds[0])
            tensors.append(off)
            t, _ = at.Merge([off, on])
        elif kind == 3:
            frame = g.unique_name("while")
            e = b.Enter(draw(st.sampled_from(tensors)), frame_name=frame, parallel_iterations=draw(st.integers(1, 20)))
            m, _ = b.Merge([e, e])
            off, on = b.Switch(m, b.LoopCond(b.Enter(preds[0], frame_name=frame, is_constant=True)))
            g.set_back_edge(m.op, 1, b.NextIteration(on))
            t = b.Exit(off)
        else:
            at.NoOp()
            continue
        tensors.append(t)
    for _ in range(draw(st.integers(0, 2))):
        first, second = draw(st.sampled_from(g.operations)), draw(st.sampled_from(g.operations))
        g.add_control_input(first, second)
    return g


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a.operations, b.operations, strict=True):
        assert (x.name, x.type, x.device) == (y.name, y.type, y.device)
        assert [t.name for t in x.inputs] == [t.name for t in y.inputs]
        assert [c.name for c in x.control_inputs] == [c.name for c in y.control_inputs]
        assert x.attrs.keys() == y.attrs.keys()
        for k in x.attrs:
            assert attr_values.equal(x.attrs[k], y.attrs[k]), (k, x.attrs[k], y.attrs[k])
        assert [(t.dtype, t.shape) for t in x.outputs] == [(t.dtype, t.shape) for t in y.outputs]


@pytest.mark.matrix
@given(graphs())
def test_text_loses_nothing(g):
    text = to_text(g)
    again = from_text(text)
    same(g, again)
    assert to_text(again) == text


def goes_round(program):
    g = Graph()
    import_graph_def(corpus.graph_bytes(program), g)
    text = to_text(g)
    again = from_text(text)
    same(g, again)
    assert to_text(again) == text
    assert again.versions == g.versions
    assert again.library == g.library


@pytest.mark.matrix
def test_tensorflows_graphs_print_and_parse():
    for program in corpus.programs(sample=100, seed=1):
        goes_round(program)


@pytest.mark.nightly
def test_all_of_tensorflows_graphs_print_and_parse():
    for program in corpus.programs():
        goes_round(program)


@given(st.text(max_size=60) | st.lists(st.sampled_from(LOOP.replace("=", " = ").split(" ")), max_size=12).map(" ".join))
def test_any_text_parses_or_is_refused(text):
    with contextlib.suppress(GraphError):
        from_text(text)


def test_a_loop_that_gained_an_input_prints_after_it():
    g = functional.program()
    loop = g.find("while")
    late = Builder(g).Identity(g.find("out").outputs[0], name="before")  # not made of the loop's own results, below
    late.op.inputs[0] = g.find("x").outputs[0]
    for f in (loop.attrs["cond"], loop.attrs["body"]):
        f.add_captured(late)
    body = loop.attrs["body"]
    body.results.append(body.params[-1])
    g.extend_op(loop, [late], {"T": (*loop.attrs["T"], dtypes.float32)})
    verify(g)
    text = to_text(g)
    assert text.index("before = ") < text.index("while = ") < text.index("out = ")
    assert to_text(from_text(text)) == text


def test_a_sub_graph_prints_as_a_function():
    g = from_text(CALLS)
    text = to_text(g.find("c").attrs["then_branch"])
    assert text.startswith('function "t", is_ordered, shares_names (a: float32[] of "x:0", r: resource[] holds')
    assert to_text(from_text(text).functions["t"]) == text
