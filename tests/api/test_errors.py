"""Error texts of mistakes: their parts and their form.

A text names the variable or argument, the user's line, the expected value, the given value, and the fix.
"""

import re
from collections import namedtuple

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.cond import cond, switch_case
from headrace.api.functional import foldl, map_fn
from headrace.api.tensor_array import TensorArray
from headrace.api.while_loop import while_loop
from headrace.errors import GraphError, ShapeError, SignatureError
from headrace.jit.function import Function

B = scopes.builder
State = namedtuple("State", "h c")


def below(i, *_):
    return B().Less(i, 9)


def up(i, *rest):
    return (B().AddV2(i, 1), *rest)


def line_of(fn):
    return f"{__file__}:{fn.__code__.co_firstlineno}"


def raised(error, do, *says):
    with pytest.raises(error) as e:
        do()
    text = str(e.value)
    for part in says:
        assert part in text, text
    return text


# *** branches ***


def one():
    return 1.0


def two():
    return (1.0, 2.0)


def whole():
    return {"a": {"b": 1}}


def real():
    return {"a": {"b": 1.5}}


@pytest.mark.parametrize("error", [ValueError, TypeError, SignatureError])
def test_branches_of_different_structure(p, error):
    raised(
        error,
        lambda: cond(p, one, two),
        "The branches of 'cond' don't have the same nested structure",
        f"'true_fn' ({line_of(one)} in one) returned the tensor 'cond/Const:0'",
        f"'false_fn' ({line_of(two)} in two) returned a tuple of 2",
        "can return zeros",
    )


def test_branches_of_different_structure_inside(p):
    raised(
        ValueError,
        lambda: cond(p, lambda: {"s": State(1, 2)}, lambda: {"s": State(1, (2,))}),
        "structure at ['s'].c: 'true_fn'",
        "returned a tuple of 1",
    )
    raised(ValueError, lambda: cond(p, lambda: 1, lambda: None), "returned None")


def test_branches_of_different_dtype(p):
    raised(
        TypeError,
        lambda: cond(p, whole, real),
        "Outputs of 'true_fn' and 'false_fn' must have the same type(s). Received int32 from 'true_fn' and float32 "
        "from 'false_fn'",
        "at ['a']['b']",
        line_of(whole),
        line_of(real),
        "hr.cast",
    )
    raised(
        ValueError,
        lambda: switch_case(B().const(0), [one, whole]),
        f"branch 0 ({line_of(one)} in one)",
        f"branch 1 ({line_of(whole)} in whole)",
    )


def test_a_branch_that_returns_no_tensor(p):
    raised(
        TypeError,
        lambda: cond(p, lambda: {"a": object()}, one),
        "the true branch of 'cond' (" + __file__,
        "returned an object at ['a'], which cannot be a tensor",
    )


def test_a_predicate_is_a_boolean_scalar(g, x):
    says = "the predicate of 'cond' must be a boolean scalar, got 'x:0' (made at"
    raised(TypeError, lambda: cond(x, one, one), says, "of dtype float32 and shape []", "cast it to bool")
    v = B().Placeholder(dtype=hr.bool, shape=(2,), name="v")
    raised(ValueError, lambda: cond(v, one, one), "got 'v:0'", "of dtype bool and shape [2]", "reduce_any")
    raised(TypeError, lambda: cond(1, one, one), "must be a boolean scalar")
    unknown = B().Placeholder(dtype=hr.bool, shape=None)
    cond(unknown, one, one)


def test_branches_are_functions(p, x):
    raised(TypeError, lambda: cond(p, x, one), "'true_fn' must be callable, got the tensor 'x:0'", "lambda")
    raised(TypeError, lambda: cond(p, one, 3), "'false_fn' must be callable, got the number 3")


# *** loops ***


def too_few(i, total):
    return (B().AddV2(i, 1),)


def too_many(i, total):
    return B().AddV2(i, 1), total, total


def other_structure(i, state):
    return B().AddV2(i, 1), {"s": (state["s"].h, state["s"].c)}


def other_dtype(i, total):
    return B().AddV2(i, 1), B().Cast(total, DstT=hr.float32)


def other_shape(i, rows):
    return B().AddV2(i, 1), B().ConcatV2([rows, rows], 0)


def nothing(i, total):
    pass


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (too_few, ("returned 1 value (a tuple of 1) for 2 loop variables: 0 ('i'), 1 ('total')",)),
        (too_many, ("returned 3 values (a tuple of 3) for 2 loop variables",)),
        (nothing, ("returned 1 value (None) for 2 loop variables",)),
    ],
)
def test_a_body_returns_a_value_for_each_variable(g, body, says):
    where = f"the body of loop 'while' ({line_of(body)} in {body.__name__})"
    raised(ValueError, lambda: while_loop(below, body, (0, 0)), where, *says, "those that do not change, too")


def test_a_variable_keeps_its_structure(g):
    raised(
        SignatureError,
        lambda: while_loop(below, other_structure, (0, {"s": State(1, 2)})),
        "don't have the same nested structure: loop variable 1 at ['s'] is a State(h, c) when it enters the loop",
        f"the body of loop 'while' ({line_of(other_structure)} in other_structure) returned a tuple of 2",
    )


def test_a_variable_keeps_its_dtype(g):
    raised(
        TypeError,
        lambda: while_loop(below, other_dtype, (0, 0)),
        "Input tensor 'while/Const_1:0' enters the loop with dtype int32, but has dtype float32 after one iteration",
        "loop variable 1 ('total')",
        line_of(other_dtype),
        "'while/Cast:0'",
        "hr.cast",
    )


def test_a_variable_keeps_its_shape(g):
    ones = B().const([1.0], name="ones")
    text = raised(
        ShapeError,
        lambda: while_loop(below, other_shape, (0, ones)),
        "loop variable 1 ('rows')",
        line_of(other_shape),
        "'while/ConcatV2:0'",
    )
    assert text.startswith(
        "Input tensor 'ones:0' enters the loop with shape (1,), but has shape (2,) after one iteration. To allow the "
        "shape to vary across iterations, use the `shape_invariants` argument of while_loop to specify a "
        "less-specific shape."
    )
    raised(
        ValueError,
        lambda: while_loop(below, other_shape, (0, ones), shape_invariants=((), (1,))),
        "has shape (2,) after one iteration",
    )
    raised(
        ValueError,
        lambda: while_loop(below, lambda i, v: up(i, B().ExpandDims(v, 0)), (0, ones), shape_invariants=((), (None,))),
        "has shape (1, None) after one iteration",
    )


def test_invariants_cover_the_first_shape(g):
    ones = B().const([1.0], name="ones")
    raised(
        ShapeError,
        lambda: while_loop(below, other_shape, (0, {"v": ones}), shape_invariants=((), {"v": (2,)})),
        "The shape invariant specified for ones:0 is not compatible with the initial shape of the loop variable. It "
        "enters the loop with shape (1,), but the specified shape invariant is (2,)",
        "loop variable 1 ('rows') at ['v']",
    )
    raised(
        ValueError,
        lambda: while_loop(below, up, (0, ones), shape_invariants=((),)),
        "'shape_invariants' of 'while_1' must have the structure of 'loop_vars'",
        "a list of 1 where a list of 2 was expected",
    )


def test_a_condition_gives_a_boolean_scalar(g):
    says = "what the condition of loop 'while' ("
    raised(
        TypeError,
        lambda: while_loop(lambda i: i, up, [0]),
        says,
        "got loop variable 'i'",
        "of dtype int32",
        "compare it",
    )
    vector = lambda i: B().Less([i, i], 3)
    raised(ValueError, lambda: while_loop(vector, up, [0]), "'while_1'", line_of(vector), "shape [2]", "reduce_all")
    raised(TypeError, lambda: while_loop(lambda i: None, up, [0]), "must be a boolean scalar, got None")
    raised(
        TypeError, lambda: while_loop(lambda i: i, up, [0], maximum_iterations=3), "must be a boolean scalar", "int32"
    )


@pytest.mark.parametrize("n", [0, -1, 2.5, None])
def test_parallel_iterations(g, n):
    raised(
        TypeError,
        lambda: while_loop(below, up, [0], parallel_iterations=n),
        f"'parallel_iterations' must be a positive integer, got {n!r}",
    )


def test_arguments_of_while_loop(g, x):
    raised(ValueError, lambda: while_loop(below, up, []), "'loop_vars' must be provided")
    raised(TypeError, lambda: while_loop(3, up, [0]), "'cond' must be callable, got the number 3")
    raised(TypeError, lambda: while_loop(below, x, [0]), "'body' must be callable, got the tensor 'x:0'")
    raised(
        TypeError, lambda: while_loop(below, up, [object()]), "loop variable 0 ('i') of 'while", "cannot be a tensor"
    )
    many = B().const([1, 2])
    raised(ValueError, lambda: while_loop(below, up, [0], maximum_iterations=many), "must be a scalar", "[2]")
    raised(TypeError, lambda: while_loop(below, up, [0], maximum_iterations=1.5), "must be an integer", "float32")


def test_a_tensor_array_keeps_its_dtype(g):
    raised(
        SignatureError,
        lambda: while_loop(
            below, lambda i, a: up(i, TensorArray(hr.int32, size=1)), (0, TensorArray(hr.float32, size=1))
        ),
        "loop variable 1 is a TensorArray of dtype float32",
        "returned a TensorArray of dtype int32",
    )


# *** inner tensors outside, other graphs, Python's control flow ***


def test_a_tensor_of_a_loop_used_outside(g):
    leaked = []

    def body(i):
        leaked.append(B().Mul(i, 2, name="twice"))
        return B().AddV2(i, 1)

    while_loop(below, body, [0])
    made = leaked[0].op.source.line
    text = raised(
        GraphError,
        lambda: B().Neg(leaked[0]),
        f"'while/twice:0' (made at {__file__}:{made} in body) belongs to the body of loop 'while'",
        f"({line_of(body)} in body)",
        "return it from there",
    )
    assert "no value outside" in text
    raised(GraphError, lambda: while_loop(below, lambda i, x: up(i, leaked[0]), (0, 0)), "the body of loop 'while'")


def test_a_tensor_of_a_branch_used_outside(p, x):
    leaked = []

    def branch():
        leaked.append(B().Neg(x))
        return leaked[0]

    cond(p, branch, lambda: x)
    raised(
        GraphError, lambda: B().Neg(leaked[0]), f"belongs to the true branch of 'cond' ({line_of(branch)} in branch)"
    )
    raised(GraphError, lambda: cond(p, lambda: x, lambda: leaked[0]), "the true branch of 'cond'")
    with pytest.raises(GraphError, match="the true branch of 'cond'"), scopes.control_dependencies([leaked[0].op]):
        B().NoOp()


def test_two_graphs(g, x):
    with hr.Graph():
        y = B().Placeholder(dtype=hr.float32)
        p = B().Placeholder(dtype=hr.bool)
        says = "'x:0' (made at"
        raised(GraphError, lambda: B().AddV2(x, y), says, "belongs to another graph")
        raised(GraphError, lambda: cond(p, lambda: x, lambda: y), says, "belongs to another graph")
        raised(GraphError, lambda: while_loop(below, lambda i: B().AddV2(i, x), [0.0]), says)


def test_pythons_if_on_a_symbolic_tensor(p, x):
    def branch():
        return 1 if B().Less(x, 0.0) else 2

    with pytest.raises(TypeError, match=re.escape(f"symbolic tensor 'cond/Less:0' (made at {__file__}")) as e:
        cond(p, branch, one)
    assert "hr.cond" in str(e.value)
    assert "branch" in [entry.name for entry in e.traceback]


# *** functions over rows, calls ***


def test_map_fn_says_what_it_expects(g):
    rows = B().const([[1.0, 2.0]])
    raised(
        TypeError,
        lambda: map_fn(lambda v: B().Cast(v, DstT=hr.int32), rows),
        "map_fn's function (" + __file__,
        "of dtype int32, where float32 was expected",
        "fn_output_signature=int32",
    )
    raised(
        ValueError,
        lambda: map_fn(lambda v: (v, v), rows),
        "returned a tuple of 2, where its elems have the tensor 'Const:0'",
        "fn_output_signature=",
    )
    raised(ValueError, lambda: map_fn(lambda v: v, 1.0), "at least 1-dimensional: elems is the scalar <Tensor")
    raised(ValueError, lambda: map_fn(lambda v: v, ()), "at least one tensor")
    raised(
        ValueError,
        lambda: map_fn(lambda v: v["a"], {"a": np.zeros(2), "b": np.zeros(3)}),
        "elems['a'] has 2, elems['b'] (<Tensor ",
    )
    raised(ValueError, lambda: foldl(lambda a, v: (a, v), rows), "returned a tuple of 2, where the state is the tensor")


def test_a_recursive_function_needs_its_results_declared(g):
    def f(n):
        return again(B().Sub(n, 1))

    again = Function(f)
    before = len(g)
    raised(
        GraphError,
        lambda: again(B().const(3)),
        f"function 'f' ({line_of(f)} in f) calls itself",
        "results=hr.TensorSpec",
    )
    assert not g.functions
    assert len(g) == before + 1
