"""The check of numbers: the NaN and Inf that stop a step, and the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError, OpError, UnimplementedError, from_data, to_data

Build = Callable[[Any], Any]


def stopped(build: Build, fed: Any, dtype: Any = hr.float32, check: Any = True, **session: Any) -> InvalidArgumentError:
    """The error of a checked run that stops."""
    with pytest.raises(InvalidArgumentError) as caught:
        ended(build, fed, dtype, check, **session)
    assert type(caught.value) is InvalidArgumentError
    return caught.value


def ended(build: Build, fed: Any, dtype: Any = hr.float32, check: Any = True, **session: Any) -> Any:
    """The result of a checked run of what `build` makes of a placeholder `x`."""
    with hr.Graph() as g:
        x = hr.placeholder(dtype, np.shape(fed), name="x")
        y = build(x)
    with hr.Session(graph=g, **session) as s:
        if g.variables:
            s.run(hr.variables_initializer(g.variables))
        return s.run(y, {x: fed}, check_numerics=check)


def nested(x: Any) -> Any:
    """Nested loops with a `log` of a negative number."""

    def outer(i: Any, h: Any) -> Any:
        doubled = hr.multiply(h, 2.0, name="doubled")
        inner = lambda j, k: (j + 1, hr.log(k - 1.0, name="log"))
        found = hr.while_loop(lambda j, k: j < 2, inner, (0, doubled), name="inner")[1]
        return i + 1, hr.cond(i > 0, lambda: found + 1.0, lambda: found - 1.0)

    return hr.while_loop(lambda i, h: i < 3, outer, (0, x), name="outer")[1]


def test_a_nan_in_nested_loops_is_found_with_the_chain_of_its_values() -> None:
    error = stopped(nested, [3.0, 40.0])
    at = error.diagnosis
    assert at is not None
    assert at.op is not None
    assert at.op.name == "outer/inner/log"
    assert "test_numerics.py" in at.op.source
    assert at.where == "iteration 0 of loop 'outer/inner', in iteration 1 of loop 'outer'"
    assert [str(x)[:40] for x in at.inputs] == ["outer/inner/sub:0: float32[2] = [-3.9904"]
    chain = [(link.op.name, link.where) for link in at.chain]
    assert chain[:3] == [
        ("outer/inner/sub", "iteration 0 of loop 'outer/inner', in iteration 1 of loop 'outer'"),
        ("outer/doubled", "iteration 1 of loop 'outer'"),
        ("outer/cond/sub", "iteration 0 of loop 'outer'"),  # across the NextIteration
    ]
    assert chain[-1] == ("x:0", "")
    assert "made the first NaN of the step from finite inputs" in str(error)
    notes = "\n".join(error.__notes__)
    assert "the values came from, the nearest first:\n  'outer/inner/sub' (Sub), made at" in notes
    assert error.op is not None
    assert from_data(to_data(error)).diagnosis == at


def test_no_operation_fires_after_the_first_bad_value() -> None:
    seen: list[float] = []

    def note(v: Any) -> Any:
        seen.append(float(v))
        return v

    def build(x: Any) -> Any:
        body = lambda i, v: (i + 1, hr.numpy_function(note, [hr.sqrt(v, name="root") - 2.0], hr.float32))
        return hr.while_loop(lambda i, v: i < 9, lambda i, v: (i + 1, hr.ensure_shape(body(i, v)[1], ())), (0, x))[1]

    assert stopped(build, 4.0).diagnosis.where == "iteration 2 of loop 'while'"  # type: ignore[union-attr]
    assert seen == [0.0, -2.0]


@pytest.mark.parametrize(
    ("dtype", "fed", "build", "kind"),
    [
        (hr.float16, [60000.0], lambda x: x * np.float16(2.0), "Inf"),
        (hr.bfloat16, [0.0], hr.log, "Inf"),
        (hr.complex64, [0j], lambda x: hr.divide(x, x), "NaN"),
        (hr.float64, [-1.0], hr.sqrt, "NaN"),
        (hr.float32, [1e6], lambda x: hr.cast(x, hr.float16), "Inf"),
        (hr.float32, [np.inf], lambda x: x - x, "NaN"),  # from Inf, which is legal itself
        (hr.float32, [np.nan, -1.0], hr.sqrt, "NaN"),  # element 1 has none in its input
    ],
)
def test_an_operation_that_makes_a_bad_value_stops_the_step(dtype: Any, fed: Any, build: Build, kind: str) -> None:
    assert f"made the first {kind} of the step" in str(stopped(build, fed, dtype))


def test_masks_and_dropped_values_are_legal() -> None:
    out = ended(lambda x: hr.nn.softmax(x + hr.constant([0.0, -np.inf])), [1.0, 2.0])
    assert out.tolist() == [1.0, 0.0]
    out = ended(lambda x: hr.where(hr.is_nan(x * 2.0), 0.0, x * 2.0), [np.nan, 1.0])
    assert out.tolist() == [0.0, 2.0]
    assert ended(lambda x: hr.is_finite(x / 1.0), [np.inf, 1.0]).tolist() == [False, True]


def test_a_fed_nan_that_reaches_a_fetch_is_named() -> None:
    error = stopped(lambda x: hr.while_loop(lambda i, v: i < 40, lambda i, v: (i + 1, v * 2.0), (0, x))[1], [np.nan])
    assert "a NaN that no operation of the step made reaches the fetch 'while/Exit_1:0'" in str(error)
    assert "its source is 'x:0' (fed): float32[1] = [nan]" in str(error)


def test_a_fed_nan_stops_the_step_before_a_variable_is_written() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        v = hr.Variable(1.0, name="v")
        write = v.assign(x * 2.0)
    with hr.Session(graph=g) as s:
        s.run(v.initializer)
        with pytest.raises(InvalidArgumentError, match="reaches 'AssignVariableOp'"):
            s.run(write, {x: np.nan}, check_numerics=True)
        assert s.run(v) == 1.0


def test_a_nan_of_a_variable_is_named() -> None:
    error = stopped(lambda x: hr.Variable([np.nan], name="v") + x, [1.0])
    assert "its source is 'ReadVariableOp'" in str(error)
    assert "read from 'v' (VarHandleOp)" in str(error)


def test_settings_of_the_check() -> None:
    only_nan = hr.NumericsCheck(inf=False)
    assert ended(hr.log, [0.0], check=only_nan).tolist() == [-np.inf]
    assert "first NaN" in str(stopped(hr.log, [-1.0], check=only_nan))
    strict = hr.NumericsCheck(sources=True)
    assert str(stopped(hr.identity, [np.inf], check=strict)).startswith("the fed 'x:0' holds float32[1], 1 Inf")
    held = stopped(lambda x: x + hr.constant([np.inf], name="c"), [1.0], check=strict)
    assert str(held).startswith("the constant 'c' (Const), made at")
    ignored = hr.NumericsCheck(ignore=("scope/*",))
    masked = lambda x: hr.where(x > 0.0, hr.log(x, name="scope/log"), x)
    assert ended(masked, [0.0, 1.0], check=ignored).tolist() == [0, 0]


def test_run_options_check_too() -> None:
    with hr.Graph() as g:
        y = hr.log(hr.constant(-1.0))
    with hr.Session(graph=g) as s, pytest.raises(OpError, match="first NaN"):
        s.run(y, options=hr.RunOptions(check_numerics=True))


def test_a_value_from_another_device_is_followed() -> None:
    def build(x: Any) -> Any:
        with hr.device("/cpu:0"):
            a = hr.multiply(x, 2.0, name="a")
        with hr.device("/cpu:1"):
            b = hr.log(a - 4.0, name="b")
        with hr.device("/cpu:0"):
            return b + 1.0

    error = stopped(build, [1.0, 9.0], devices={"CPU": 2})
    assert error.diagnosis is not None
    assert [link.op.name for link in error.diagnosis.chain] == ["sub", "a", "x:0"]


def test_a_value_from_recursive_calls_is_followed() -> None:
    @hr.function
    def down(n: Any, v: Any) -> Any:
        return hr.cond(n > 0, lambda: down(n - 1, v - 1.0), lambda: hr.sqrt(v, name="root"))

    with hr.Graph() as g:
        n, x = hr.placeholder(hr.int32, (), name="n"), hr.placeholder(hr.float32, (), name="x")
        y = down(n, x)
    with hr.Session(graph=g) as s, pytest.raises(InvalidArgumentError) as caught:
        s.run(y, {n: 3, x: 1.0}, check_numerics=True)
    at = caught.value.diagnosis
    assert at is not None
    assert [link.value for link in at.chain] == [
        "float32[] = -2.0", "float32[] = -1.0", "float32[] = 0.0", "float32[] = 1.0",
    ]  # fmt: skip


@pytest.mark.system
def test_workers_of_a_cluster_check_their_parts() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2,), name="x")
        with hr.device("/task:0"):
            a = hr.multiply(x, 2.0, name="a")
        with hr.device("/task:1"):
            y = hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, hr.log(v, name="log")), (0, a), name="w")[1]
    with hr.cluster.local(2) as cluster, hr.Session(cluster, graph=g) as s:
        assert s.run(a, {x: [1.0, np.inf]}, check_numerics=True).tolist() == [2.0, np.inf]
        with pytest.raises(InvalidArgumentError, match=r"'w/log' .*made the first NaN of the step") as caught:
            s.run(y, {x: [1.0, 5.0]}, check_numerics=True)
        at = caught.value.diagnosis
        assert at is not None
        assert at.where == "iteration 2 of loop 'w'"
        assert [link.op.name for link in at.chain] == ["w/log", "w/log"]  # as far as the worker goes
        with pytest.raises(InvalidArgumentError, match="the fed 'x:0' holds"):
            s.run(a, {x: [1.0, np.inf]}, check_numerics=hr.NumericsCheck(sources=True))
        with pytest.raises(UnimplementedError, match="names that a NumericsCheck ignores"):
            s.run(a, {x: [1.0, 1.0]}, check_numerics=hr.NumericsCheck(ignore=("a",)))
        with pytest.raises(UnimplementedError, match="runs on a cluster"):
            s.run(a, {x: [1.0, 1.0]}, options=hr.RunOptions(breakpoints=[hr.breakpoint_when(a, on_pause=print)]))
