"""Python that cannot be converted: the documented behaviour, or an error with the user's line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import AutographError, GraphError, HeadraceError, SignatureError, UndefinedError
from tests.autograph.suite.sources import written

SEEN: list[Any] = []
TABLE: list[Any] = [1.0, 2.0]
COUNT = 0


@pytest.fixture(autouse=True)
def fresh_globals() -> None:
    global COUNT
    SEEN.clear()
    TABLE[:] = [1.0, 2.0]
    COUNT = 0


def line_of(f: Callable[..., Any], text: str) -> int:
    """The number of the line of a function that contains a text."""
    lines, first = inspect.getsourcelines(f)
    return next(first + k for k, line in enumerate(lines) if text in line)


def said(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def refused(f: Callable[..., Any], *args: Any, kind: type[BaseException] = AutographError, at: str = "") -> str:
    """The text of the error of a jitted function, with the line of `at`."""
    with pytest.raises(kind) as caught:
        hr.jit(f)(*args)
    text = said(caught.value)
    if at:
        number = line_of(f, at)
        assert re.search(rf"{re.escape(Path(__file__).name)}(', line |:){number}\b", text), text
    return text


# *** no source, and functions that are no plain functions ***


def test_code_of_exec_has_no_source() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    if x > 0:\n        x = x + 1\n    return x\n", names)
    text = refused(names["f"], hr.constant(1.0), kind=TypeError)
    assert "no source for 'f'" in text
    assert "Define the function in a file" in text


def test_a_lambda_of_eval_has_no_source() -> None:
    assert "no source" in refused(eval("lambda x: x if x > 0 else -x"), hr.constant(1.0), kind=TypeError)


def test_code_without_source_is_traced_as_long_as_no_tensor_decides() -> None:
    names: dict[str, Any] = {}
    exec("def f(x, n):\n    return x * 2 if n > 0 else x\n", names)
    assert float(hr.jit(names["f"])(hr.constant(3.0), 1)) == 6.0


def generator(x: Any) -> Any:
    while x < 3.0:
        yield x
        x = x + 1.0


def test_a_generator_is_no_result() -> None:
    text = refused(generator, hr.constant(1.0), kind=SignatureError, at="def generator")
    assert "returned a generator" in text


def uses_a_generator(x: Any) -> Any:
    total = x
    for y in generator(x):
        total = total + y
    return total


def test_a_generator_whose_end_a_tensor_decides_is_an_error_at_its_line() -> None:
    with pytest.raises(TypeError) as caught:
        hr.jit(uses_a_generator)(hr.constant(1.0))
    assert f"{Path(__file__).name}:{line_of(generator, 'while x')}" in said(caught.value)


async def coroutine(x: Any) -> Any:
    return x


def test_an_asynchronous_function_is_refused() -> None:
    text = refused(coroutine, hr.constant(1.0), at="async def")
    assert "asynchronous" in text


# *** names ***


def rebinds_a_global(x: Any) -> Any:
    global COUNT
    if x > 0:
        COUNT = COUNT + x
    return x


def test_a_global_that_a_tensor_would_rebind_is_refused() -> None:
    text = refused(rebinds_a_global, hr.constant(1.0))
    assert "COUNT" in text
    assert COUNT == 0


def counts_traces(x: Any) -> Any:
    global COUNT
    COUNT += 1
    return x * 2.0


def test_a_global_is_a_part_of_the_signature_and_rebound_by_each_trace() -> None:
    f = hr.jit(counts_traces)
    for value in (1.0, 2.0, 3.0):
        assert float(f(hr.constant(value))) == 2.0 * value
    assert COUNT == f.cache_info().traces == 3


def rebinds_a_nonlocal(x: Any, n: Any) -> Any:
    total = 0.0

    def add(y: Any) -> None:
        nonlocal total
        if y > 0:
            total = total + y

    for _ in range(n):
        add(x)
        x = x - 1.0
    return total


def test_a_nonlocal_is_a_variable_of_the_loop() -> None:
    for x in (2.5, -1.0):
        wanted = rebinds_a_nonlocal(x, 4)
        assert float(hr.jit(rebinds_a_nonlocal)(hr.constant(x), hr.constant(4))) == wanted


def deletes_loop_state(x: Any, n: Any) -> Any:
    for _ in range(n):
        x = x * 2.0
        y = x
        del x
        x = y
        del y
    return x


def deletes_and_reads(x: Any, n: Any) -> Any:
    for _ in range(n):
        x = x * 2.0
        del x
    return x  # noqa: F821


def test_del_of_loop_state() -> None:
    assert float(hr.jit(deletes_loop_state)(hr.constant(1.5), hr.constant(3))) == 12.0
    text = refused(deletes_and_reads, hr.constant(1.5), hr.constant(3), at="for _ in range(n)")
    assert "'x'" in text


def has_a_name_in_one_branch(x: Any) -> Any:
    if x > 0:
        y = x
    return y


def test_a_name_of_one_branch_is_an_error_where_it_is_read() -> None:
    text = refused(has_a_name_in_one_branch, hr.constant(1.0), kind=UndefinedError, at="y = x")
    assert "'y' has a value only in the branch" in text


# *** containers and effects ***


def has_a_tensor_as_key(x: Any) -> Any:
    d = {}
    d[x] = 1
    return x


def looks_a_tensor_up(k: Any) -> Any:
    return {0: 1.0, 1: 2.0}[k]


@pytest.mark.parametrize("f", [has_a_tensor_as_key, looks_a_tensor_up])
def test_a_tensor_is_no_key_of_a_dictionary(f: Any) -> None:
    text = refused(f, hr.constant(1))
    assert "a tensor cannot be the key of a dictionary" in text
    with pytest.raises(TypeError):
        hr.autograph.convert(f)(hr.constant(1))


def has_an_effect(x: Any) -> Any:
    SEEN.append("traced")
    return x * 2.0


def test_an_effect_outside_of_tensor_blocks_occurs_once_for_each_trace() -> None:
    f = hr.jit(has_an_effect)
    for value in (1.0, 2.0):
        f(hr.constant(value))
    assert SEEN == ["traced"]
    f(hr.constant([1.0]))
    assert SEEN == ["traced"] * 2


def leaks(x: Any) -> Any:
    SEEN.append(x * 2.0)
    return x


def test_a_tensor_that_leaks_out_of_a_trace_is_an_error_when_it_is_used() -> None:
    hr.jit(leaks)(hr.constant(1.0))
    with pytest.raises((GraphError, TypeError)) as caught:
        float(SEEN[0] + 1.0)
    assert f"{Path(__file__).name}:{line_of(leaks, 'def leaks')}" in said(caught.value)


def leaks_from_a_branch(x: Any) -> Any:
    kept = {}

    def keep() -> None:
        kept["y"] = x * 3.0

    if x > 0:
        keep()
    return kept["y"]


def test_an_element_of_one_branch_is_an_error() -> None:
    with pytest.raises((HeadraceError, KeyError)) as caught:
        hr.jit(leaks_from_a_branch)(hr.constant(1.0))
    assert "'y'" in said(caught.value)


def grows_a_captured_list(x: Any, n: Any) -> Any:
    for _ in range(n):
        SEEN.append(x)  # noqa: PERF401
    return x


def test_a_captured_list_cannot_grow_in_a_tensor_loop() -> None:
    text = refused(grows_a_captured_list, hr.constant(1.0), hr.constant(2), at="for _ in range(n)")
    assert "a list from outside of the function" in text
    assert SEEN == []


def has_a_list_of_texts(n: Any) -> Any:
    names: list[Any] = []
    for i in range(n):
        names.append(None if i is None else print)  # noqa: PERF401
    return len(names)


def test_a_list_of_objects_cannot_grow_in_a_tensor_loop() -> None:
    text = refused(has_a_list_of_texts, hr.constant(2), at="for i in range(n)")
    assert "'names'" in text
    assert "keep a list for each part" in text


def raises(x: Any) -> Any:
    if x > 0:
        raise ValueError("x is positive")
    return x


def test_raise_in_a_branch_is_an_error_of_the_step() -> None:
    f = hr.jit(raises)
    assert float(f(hr.constant(-1.0))) == -1.0
    with pytest.raises(hr.errors.InvalidArgumentError) as caught:
        f(hr.constant(1.0))
    text = said(caught.value)
    assert "ValueError: x is positive" in text
    assert f"{Path(__file__).name}:{line_of(raises, 'if x')}" in text


def matches_a_mapping(x: Any) -> Any:
    match {"x": x}:
        case {"x": y}:
            return y
    return x


def leaves_finally(x: Any) -> Any:
    while x < 10.0:
        try:
            x = x * 2.0
        finally:
            break  # noqa: B012
    return x


def walrus_in_a_comprehension(x: Any) -> Any:
    return [y for e in x if e > 0 and (y := e) < 2]


@pytest.mark.parametrize(
    ("f", "at", "word"),
    [
        (matches_a_mapping, 'case {"x": y}', "pattern"),
        (leaves_finally, "break", "finally"),
        (walrus_in_a_comprehension, "y :=", ":="),
    ],
)
def test_constructs_that_are_refused_by_name(f: Any, at: str, word: str) -> None:
    text = refused(f, hr.constant(1.0), at=at)
    assert word in text
    assert "^" in text


JOINS = ("1.0", "x * 2.0", "None", "(x, x)", "True", "2")
BRANCHES = """
def f(x):
    if x > 0:
        y = {}
    else:
        y = {}
    return y
"""


def outcome(f: Any, x: Any) -> list[Any] | str:
    """The leaves of a result as values of Python, or the text of its error."""
    try:
        return [leaf.numpy().item() for leaf in hr.tree.leaves(hr.jit(f)(x)) if leaf is not None]
    except AutographError as error:
        return said(error)


@pytest.mark.matrix
@settings(max_examples=40, database=None, derandomize=True)
@given(st.sampled_from(JOINS), st.sampled_from(JOINS), st.integers(0, 5))
def test_a_join_of_unlike_values_is_that_of_python_or_names_the_lines(first: str, second: str, before: int) -> None:
    f = written("\n" * before + BRANCHES.format(first, second), "headrace_suite_join").f
    for value in (1.5, -1.5):
        got = outcome(f, hr.constant(value))
        if isinstance(got, str):
            assert first != second
            assert "'y'" in got
            assert f"_{f.__module__.rpartition('_')[2]}.py:{before + 4}" in got or f".py:{before + 6}" in got
        else:
            assert got == [leaf for leaf in hr.tree.leaves(f(value)) if leaf is not None]
