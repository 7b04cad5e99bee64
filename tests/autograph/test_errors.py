"""Errors of conversion: text, line and caret."""

from __future__ import annotations

import asyncio
import inspect
import traceback

import numpy as np
import pytest

import headrace as hr
from headrace import autograph
from tests.autograph.programs import in_graph


def _line(f, text):
    """Line of a function's source that contains `text`."""
    lines, first = inspect.getsourcelines(f)
    return first + next(k for k, line in enumerate(lines) if text in line)


def test_a_name_of_one_branch_names_the_lines():
    def f(x):
        if x > 0:
            y = x * 2
        return y

    with pytest.raises(autograph.UndefinedError) as caught:
        in_graph(f, 1.0)
    assert isinstance(caught.value, UnboundLocalError)
    assert f"test_errors.py:{_line(f, 'y = x')}" in str(caught.value)


def test_python_keeps_its_error_of_an_unassigned_name():
    def f(x):
        if x > 0:
            y = x
        return y

    with pytest.raises(UnboundLocalError, match="cannot access local variable 'y'"):
        autograph.convert(f)(-1)


def test_dtypes_of_branches_name_both_lines_and_the_variable():
    def f(x):
        if x > 0:
            value = hr.zeros([2], hr.float64)
        else:
            value = hr.zeros([2], hr.int32)
        return value

    with pytest.raises(autograph.AutographError, match=r"'value' has different dtypes .* float64 .* int32 .*hr.cast"):
        in_graph(f, 1.0)


def test_none_before_a_loop_names_the_remedy():
    def f(n):
        best = None
        for i in range(n):
            best = i
        return best

    with pytest.raises(autograph.AutographError, match=r"'best' .* is None before the loop .*hr.zeros"):
        in_graph(f, 2)


def test_a_refused_construct_has_a_caret():
    def f(x):
        return [e if e > 1 else (y := x) + y for e in x]

    with pytest.raises(autograph.AutographError) as caught:
        autograph.convert(f)
    text = str(caught.value)
    assert f"line {_line(f, 'return')}" in text
    line, caret = text.splitlines()[-2:]
    assert line[caret.index("^") : caret.rindex("^") + 1] == "(y := x) + y"


def test_bad_input_is_named():
    def dict_key(x):
        return {}.get(0) if x in {1: 2} else x

    def assigned_key(x):
        d = {}
        d[x] = 1
        return d

    def deleted(n):
        a = 1
        for _ in range(n):
            b = a
            del a
        return b

    def several(v):
        if v > 0:
            return 1
        return 2

    def generator(x):
        def numbers():
            if x > 0:
                yield x

        for y in numbers():
            return y

    expected = {
        dict_key: "keys Python must know",
        assigned_key: "cannot be the key of a dictionary",
        deleted: "it was deleted",
        generator: "numbers.*which is a generator",
    }
    for f, text in expected.items():
        with pytest.raises(autograph.AutographError, match=text):
            in_graph(f, 2)
    with pytest.raises(autograph.AutographError, match="several elements"):
        in_graph(several, np.float32([1, 2]))


def test_asynchronous_functions_are_refused():
    async def f(x):
        return x

    with pytest.raises(autograph.AutographError, match="asynchronous function"):
        autograph.convert(f)
    assert asyncio.iscoroutinefunction(f)


def test_a_global_is_assigned_by_python_only():
    def f(x):
        global LAST
        if x > 0:
            LAST = x
        return x

    with pytest.raises(autograph.AutographError, match="global variable LAST"):
        in_graph(f, 1)
    assert autograph.convert(f)(3) == 3
    assert LAST == 3


LAST = 0


def test_tracebacks_have_the_lines_and_names_of_the_user():
    def f(x):
        while x < 10:
            if x > 5:
                x = x + "text"
            x = x * 2
        return x

    with pytest.raises(TypeError) as caught:
        in_graph(f, 1.0)
    frames = [s for s in traceback.extract_tb(caught.value.__traceback__) if s.filename == __file__]
    assert frames[-1].lineno == _line(f, "text")
    assert frames[-1].name == "f"
    assert frames[-1].line == 'x = x + "text"'


def test_operations_record_the_lines_of_the_user():
    def f(x):
        if x > 5:
            x = x * 2
        return x

    with hr.Graph() as graph:
        autograph.convert(f)(hr.placeholder(hr.float32, ()))
    (op,) = [op for op in graph.operations if op.opdef.structured]
    assert op.source is not None
    assert (op.source.file, op.source.line) == (__file__, _line(f, "if x"))
    (product,) = [op for op in op.attrs["then_branch"].operations if op.type == "Mul"]
    assert product.source.line == _line(f, "x * 2")


def test_an_exception_that_a_graph_would_have_to_catch_is_refused():
    def f(x):
        try:
            if x > 0:
                raise ValueError
            y = 1
        except ValueError:
            y = 2
        return y

    assert autograph.convert(f)(1) == 2
    with pytest.raises(hr.errors.UnimplementedError, match=r"'raise ValueError' in a 'try'"):
        in_graph(f, 1)


def test_other_methods_of_lists_are_refused_by_name():
    def f(n):
        items = [1]
        for i in range(n):
            items.insert(0, i)
        return items[0]

    assert autograph.convert(f)(3) == 2
    with pytest.raises(autograph.AutographError, match=r"insert\(\) of a list"):
        in_graph(f, 3)


def test_a_print_in_a_branch_is_that_of_the_graph(capfd):
    def f(x):
        if x > 0:
            print("positive")
        else:
            print("negative")
        return x

    assert float(hr.jit(f)(hr.constant(-1.0))) == -1.0
    captured = capfd.readouterr()
    assert (captured.out + captured.err).split() == ["negative"]


def test_an_assertion_in_a_branch_not_taken_is_not_checked():
    def f(x, n):
        if x > 0:
            assert n > 3
            y = x * 2
        else:
            y = x
        return y

    assert in_graph(lambda x: f(x, 1), -1.0) == -1.0
