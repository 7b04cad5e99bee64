"""`api.function`: results of calls, number of traces of a function, captures, recursion."""

import gc
import weakref

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.cond import cond
from headrace.api.tensor_spec import TensorSpec
from headrace.api.while_loop import while_loop
from headrace.errors import GraphError, SignatureError
from headrace.ir.function import bodies
from headrace.ir.graph import FuncGraph
from headrace.jit.function import Function
from tests.api.running import run

B = scopes.builder
INT = TensorSpec((), hr.int32)


def placeholder(dtype=hr.int32, shape=(), name="n"):
    return B().Placeholder(dtype=dtype, shape=shape, name=name)


def check(graph):
    """Every structured operation agrees with the graphs it owns or calls."""
    for op in graph.operations:
        if op.opdef.structured:
            for _, f in bodies(op):
                assert len(f.params) == len(op.opdef.ins[-1].dtypes(op.attrs))
                assert [p.op.attrs["index"] for p in f.params] == list(range(len(f.params)))
                if isinstance(f, FuncGraph) and f.outer is graph and f.name not in graph.functions:
                    check(f)
            if op.opdef.structured == "While":
                assert len(op.attrs["body"].results) == len(op.inputs) == len(op.outputs)
    for f in graph.functions.values():
        assert f.outer is graph
        assert not f.is_open
        check(f)


def test_a_call_is_one_operation_that_names_the_function(g):
    square = Function(lambda x: B().Mul(x, x), name="square")
    x = placeholder(hr.float32, (3,), "x")
    y = square(x)
    assert (y.op.type, y.op.name, y.op.attrs["f"].name) == ("PartitionedCall", "square", "square")
    assert y.shape == (3,)
    assert list(g.functions) == ["square"]
    z = square(y)
    assert z.op.name == "square_1"
    assert list(g.functions) == ["square"]
    check(g)
    np.testing.assert_array_equal(run(z, {x: [1, 2, 3]}), [1, 16, 81])


def test_structures(g):
    f = Function(lambda d, k: {"sum": B().AddV2(d["a"], d["b"]), "k": (k, None, 3)})
    out = f({"b": np.int32(1), "a": placeholder()}, k=placeholder(name="k"))
    assert run([out["sum"], *out["k"][::2]], {"n:0": 5, "k:0": 7}) == [6, 7, 3]
    assert out["k"][1] is None


def test_one_trace_for_each_signature(g):
    traced = []

    def fn(x, scale=1, flag=None):
        traced.append((getattr(x, "shape", x), scale, flag))
        return B().Mul(x, scale)

    f = Function(fn)
    a, b = placeholder(shape=(2,)), placeholder(shape=(3,))
    for x in (a, b, a, b):
        f(x)
    assert len(traced) == 2, "shapes are part of the signature"
    f(placeholder(hr.float32, (2,)), 1.0)
    f(a, 2), f(a, scale=2), f(a, 3), f(a, 2, flag=[1])
    assert len(traced) == 6
    with hr.Graph() as other:
        f(placeholder(shape=(2,)))
    assert len(traced) == 7, "each graph has its own"
    assert list(other.functions) == ["fn"]


def test_arrays_are_tensors_and_numbers_are_not(g):
    seen = []
    f = Function(lambda *xs: seen.append(xs) or B().const(1))
    f(1, np.int32(1), np.array([1.0]))
    assert seen[0][0] == 1
    assert [type(x) for x in seen[0]] == [int, hr.SymbolicTensor, hr.SymbolicTensor]


def test_input_signature(g):
    traced = []

    def fn(v, n):
        traced.append((v.shape, v.dtype, n.dtype))
        return B().Mul(B().Sum(v, [0]), n)

    f = Function(fn, input_signature=[TensorSpec((None,), hr.float32), TensorSpec((), hr.float32, name="times")])
    x = placeholder(hr.float32, (2,), "x")
    assert [run(f(*args), {x: [1, 2]}) for args in ((x, 2), ([1.0, 2.0, 3.0], 1.5))] == [6, 9]
    assert run(f(n=3.0, v=x), {x: [1, 2]}) == 9
    assert traced == [((None,), hr.float32, hr.float32)]
    with pytest.raises(
        SignatureError, match=r"argument 'v' of <Function 'fn'> must be TensorSpec.*got the tensor 'bad:0'"
    ):
        f(placeholder(hr.int32, (2,), "bad"), 1.0)
    with pytest.raises(SignatureError, match=r"argument 'v' of .* shape \[2,2\]"):
        f(np.zeros((2, 2), np.float32), 1.0)
    with pytest.raises(SignatureError, match="a tuple of 1 where a tuple of 2 was expected"):
        f(x)


def test_what_is_used_from_outside_becomes_a_parameter(g):
    c = placeholder(hr.float32, (), "c")
    k = B().const(2.0)
    f = Function(lambda x: B().Mul(B().AddV2(x, c), k), name="f")
    x = placeholder(hr.float32, (), "x")
    y = f(x)
    assert y.op.inputs == [x, c, k]
    _, inside = while_loop(lambda i, s: B().Less(i, 3), lambda i, s: (B().AddV2(i, 1), f(s)), (0, x))
    check(g)
    assert list(g.functions) == ["f"]
    assert run(y, {x: 1, c: 10}) == 22
    assert run(inside, {x: 1, c: 1}) == ((1 + 1) * 2 + 1) * 2 * 2 + 2


def test_a_function_made_in_a_loop_captures_what_is_there(g):
    def body(i, s):
        k = B().Mul(i, i)
        inner = Function(lambda x: B().AddV2(x, k), name="inner")
        return B().AddV2(i, 1), inner(inner(s))

    _, s = while_loop(lambda i, s: B().Less(i, 4), body, (0, 0))
    check(g)
    assert run(s) == 2 * (0 + 1 + 4 + 9)


def test_what_is_captured_in_one_loop_cannot_be_had_in_another(g):
    holder = []
    f = Function(lambda x: B().AddV2(x, holder[-1]), name="f")

    def body(i):
        holder.append(B().Mul(i, 1))
        return f(i)

    for _ in range(2):
        while_loop(lambda i: B().Less(i, 4), body, [0])
    assert list(g.functions) == ["f", "f_1"]
    check(g)


def test_effects(g, capfd):
    def show(x):
        B().PrintV2(B().StringFormat([x], template="<>", placeholder="<>"), output_stream="stderr")
        return x

    f = Function(show)
    y = f(placeholder(name="x"))
    assert y.op.type == "StatefulPartitionedCall"
    assert [op.type for op in g.functions["show"].control_results] == ["PrintV2"]
    none = Function(lambda x: [show(x)].clear(), name="none")(y)
    assert none.type == "StatefulPartitionedCall"
    run(none, {"x:0": 5})
    assert capfd.readouterr().err == "5\n5\n"


def test_control_inputs_from_outside_are_the_calls(g):
    before = B().NoOp(name="before")

    def fn(x):
        with scopes.control_dependencies([before]):
            return B().Neg(x)

    assert Function(fn)(placeholder()).op.control_inputs == [before]


def test_the_same_resource_twice_is_one_parameter(g):
    queue = B().FIFOQueueV2(component_types=[hr.int32], shapes=[()])
    other = B().FIFOQueueV2(component_types=[hr.int32], shapes=[()])
    f = Function(lambda a, b: [B().QueueSizeV2(a), B().QueueSizeV2(b)], name="sizes")
    f(queue, queue)
    f(queue, other)
    assert [len(f.params) for f in g.functions.values()] == [1, 2]


def test_a_failing_function_leaves_nothing(g):
    def fn(x):
        good(x)
        raise ZeroDivisionError("the user's own")

    good = Function(lambda x: x, name="good")
    x = placeholder()
    f = Function(fn)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match=r"^the user's own\nin function 'fn'"):
            f(x)
    assert not g.functions
    assert len(g) == 1
    assert good(x).op.type == "PartitionedCall"


def test_nothing_keeps_a_graph_alive():
    f = Function(lambda x: B().Neg(x))
    with hr.Graph() as graph:
        f(placeholder())
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_outside_a_graph_the_python_function_runs():
    assert Function(lambda a, b=2: (a, b))(1) == (1, 2)
    assert Function(max)(3, 4) == 4


def test_results_are_what_is_declared(g):
    x = placeholder(hr.float32, (2,), "x")
    assert Function(lambda v: 1, results=TensorSpec((), hr.float32))(x).dtype == hr.float32
    for results, says in (
        ((INT, INT), "returned the tensor 'arg:0', but its results= say a tuple of 2"),
        (
            TensorSpec((3,), hr.float32),
            r"of dtype float32 and shape \[2\], but its results= say TensorSpec\(shape=\[3\]",
        ),
        (hr.int32, "of dtype float32"),
    ):
        with pytest.raises(SignatureError, match=says):
            Function(lambda arg: arg, results=results, input_signature=[TensorSpec((2,), name="arg")])(x)


def test_specs():
    assert repr(TensorSpec((None, 2), "int64", "a")) == "TensorSpec(shape=[?,2], dtype=int64, name='a')"
    assert TensorSpec((1,)) == TensorSpec([1], hr.float32, "named")
    assert len({TensorSpec((1,)), TensorSpec((1,)), TensorSpec((2,))}) == 2


# *** recursion ***


def less(a, b):
    return B().Less(a, b)


def minus(a, b):
    return B().Sub(a, b)


def test_recursion(g):
    fact = Function(
        lambda n: cond(less(n, 2), lambda: 1, lambda: B().Mul(n, fact(minus(n, 1)))), results=INT, name="fact"
    )
    n = placeholder()
    y = fact(n)
    check(g)
    assert list(g.functions) == ["fact"]
    assert y.shape == ()
    assert g.functions["fact"].control_results == [], "it changes nothing outside"
    assert [run(y, {n: k}) for k in (0, 1, 5, 10)] == [1, 1, 120, 3628800]


def test_recursion_twice_in_one_body(g):
    fib = Function(
        lambda n: cond(less(n, 2), lambda: n, lambda: B().AddV2(fib(minus(n, 1)), fib(minus(n, 2)))),
        results=INT,
        name="fib",
    )
    n = placeholder()
    assert run(fib(n), {n: 11}) == 89


def test_captures_found_after_the_recursive_call(g):
    c = placeholder(name="c")

    def fn(n):
        rest = cond(less(n, 1), lambda: 0, lambda: f(minus(n, 1)))
        return B().AddV2(rest, c)

    f = Function(fn, results=INT, name="f")
    n = placeholder()
    y = f(n)
    assert y.op.inputs == [n, c]
    check(g)
    assert run(y, {n: 4, c: 3}) == 15


def test_mutual_recursion_with_captures(g):
    a, b = placeholder(name="a"), placeholder(name="b")
    even = Function(lambda n: cond(less(n, 1), lambda: a, lambda: odd(minus(n, 1))), results=INT, name="even")
    odd = Function(lambda n: cond(less(n, 1), lambda: b, lambda: even(minus(n, 1))), results=INT, name="odd")
    n = placeholder()
    y, z = even(n), odd(n)
    check(g)
    assert sorted(g.functions) == ["even", "odd"]
    assert {t.op.name for t in y.op.inputs} == {t.op.name for t in z.op.inputs} == {"n", "a", "b"}
    assert [run([y, z], {n: k, a: 10, b: 20}) for k in (0, 1, 6, 7)] == [[10, 20], [20, 10], [10, 20], [20, 10]]


def test_recursion_in_a_loop_in_a_branch_with_captures(g):
    c = placeholder(name="c")

    def fn(n):
        def many():
            step = lambda i, s: (B().AddV2(i, 1), B().AddV2(s, f(minus(n, 1))))
            return while_loop(lambda i, s: less(i, 2), step, (0, 0))[1]

        return B().AddV2(cond(less(n, 1), lambda: 0, many), c)

    f = Function(fn, results=INT, name="f")
    n = placeholder()
    y = f(n)
    check(g)
    assert run(y, {n: 3, c: 1}) == 1 + 2 + 4 + 8


def test_recursion_from_a_branch_of_the_graph(g):
    """The trace is begun inside a sub-graph, which the function's captures must pass through."""
    c, p = placeholder(name="c"), B().Placeholder(dtype=hr.bool, shape=())

    def fn(n):
        return B().AddV2(cond(less(n, 1), lambda: 0, lambda: f(minus(n, 1))), c)

    f = Function(fn, results=INT, name="f")
    y = cond(p, lambda: f(2), lambda: B().Neg(f(3)))
    check(g)
    assert [run(y, {p: v, c: 5}) for v in (True, False)] == [15, -20]


def test_recursion_with_other_shapes(g):
    def fn(v):
        n = B().Size(v)
        half = B().FloorDiv(n, 2)

        def both():
            left = B().Slice(v, [0], B().Pack([half]))
            return B().AddV2(total(left), total(B().Slice(v, B().Pack([half]), [-1])))

        return cond(less(n, 2), lambda: B().Sum(v, [0]), both)

    total = Function(fn, results=TensorSpec((), hr.float32), name="total")
    v = placeholder(hr.float32, (8,), "v")
    y = total(v)
    assert sorted(g.functions) == ["total", "total_1"], "one for 8 elements, one for any number"
    check(g)
    assert run(y, {v: np.arange(8)}) == 28


def test_order_of_effects_around_a_recursive_call(g, capfd):
    """Operations after the call wait for all effects that the call may have."""

    def fn(n):
        out = cond(less(n, 1), lambda: 0, lambda: f(minus(n, 1)))
        B().PrintV2(B().StringFormat([n], template="<>", placeholder="<>"), output_stream="stderr")
        return out

    f = Function(fn, results=INT, name="f")
    n = placeholder()
    run(f(n), {n: 3})
    assert capfd.readouterr().err == "0\n1\n2\n3\n"


def test_recursion_without_end(g):
    f = Function(lambda n: cond(less(0, 1), lambda: 0, lambda: f(n + 1)), results=INT, name="f")
    with pytest.raises(GraphError, match=r"calls itself with other Python arguments each time.*give it tensors"):
        f(0)
    assert not g.functions


def test_a_recursive_function_without_results(g):
    f = Function(lambda n: f(n), name="f")
    with pytest.raises(GraphError, match=r"function 'f' .* calls itself"):
        f(placeholder())
    assert not g.functions
