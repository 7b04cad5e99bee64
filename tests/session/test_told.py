"""Notes of an error of a running step.

They give inputs by the user's names, the last events of the step, and the iteration of a loop at its time limit. Every
engine gives the same notes, as far as it can know.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import DeadlineExceededError, InvalidArgumentError, UnknownError

ENGINES = [("interpret", 1), ("compiled", 1), ("auto", 1), ("interpret", 2), ("auto", 2)]
EVENTS = "the last events of the step:"


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


def events(error: BaseException) -> list[str]:
    """The lines of the note about the last events, without the places in this file."""
    found = [n for n in notes(error) if n.startswith(EVENTS)]
    assert len(found) == 1, notes(error)
    return [line.partition(", made at")[0].strip() for line in found[0].splitlines()[1:]]


def program(devices: int = 1) -> tuple[hr.Graph, Any, dict[Any, Any]]:
    """Divides by zero in iteration 3."""
    with hr.Graph() as g, hr.device("/device:CPU:0"):
        x = hr.placeholder(hr.int32, (), name="x")
        _, total = hr.while_loop(lambda i, total: i < 9, lambda i, total: (i + 1, total + 12 // (x - i)), [0, 0])
        with hr.device(f"/device:CPU:{devices - 1}"):
            out = total * 2
    return g, out, {x: 3}


def fails(engine: str, devices: int = 1, options: hr.RunOptions | None = None) -> InvalidArgumentError:
    g, out, feeds = program(devices)
    with (
        hr.Session(graph=g, engine=engine, devices={"CPU": devices}) as s,
        pytest.raises(InvalidArgumentError, match="Integer division by zero") as caught,
    ):
        s.run(out, feeds, options)
    return caught.value


@pytest.mark.parametrize(("engine", "devices"), ENGINES)
def test_inputs_are_called_as_in_the_users_graph(engine: str, devices: int) -> None:
    error = fails(engine, devices)
    assert "inputs: while/floordiv/x:0: int32[] = 12, while/sub:0: int32[] = 0" in notes(error)
    assert error.op is not None
    assert __file__ in notes(error)[0]


@pytest.mark.parametrize(("engine", "devices"), ENGINES)
def test_loop_variables_and_captures_have_their_names(engine: str, devices: int) -> None:
    with hr.Graph() as g:
        values = hr.placeholder(hr.float32, (None,), name="values")
        body = lambda k, s: (k + 1, s + hr.gather(values, k))
        _, total = hr.while_loop(lambda k, s: k < 9, body, [0, 0.0])
        with hr.device(f"/device:CPU:{devices - 1}"):
            out = total * 2.0
    with (
        hr.Session(graph=g, engine=engine, devices={"CPU": devices}) as s,
        pytest.raises(InvalidArgumentError, match=r"indices = 2 is not in \[0, 2\)") as caught,
    ):
        s.run(out, {values: [1.0, 2.0]})
    assert "inputs: values:0: float32[2] = [1.0, 2.0], loop variable 'k': int32[] = 2" in notes(caught.value)[1]


def test_the_last_events_as_the_state_of_the_machine_tells_them() -> None:
    told = events(fails("interpret"))
    assert told[:2] == ["fired: 'while/sub' (Sub)", "failed: 'while/floordiv' (FloorDiv)"]
    assert told[2:] in ([], ["was ready: 'while/Less' (Less)"])


@pytest.mark.parametrize("engine", ["interpret", "auto"])
def test_the_last_events_over_several_devices(engine: str) -> None:
    told = events(fails(engine, 2))
    assert "failed: 'while/floordiv' (FloorDiv)" in told
    assert any(line.startswith("fired: ") for line in told)


def test_a_listener_hears_what_really_fired() -> None:
    heard: list[Any] = []
    error = fails("interpret", options=hr.RunOptions(listener=heard.append))
    told = events(error)
    assert told[-1].startswith(("failed: 'while/floordiv'", "was ready"))
    started = [e.node for e in heard if isinstance(e, hr.step_events.NodeStart)]
    fired = [line.split("'")[1] for line in told if line.startswith("fired: ")]
    assert fired
    assert [n for n in started if n in fired][-len(fired) :] == fired  # in the order in which they did
    assert len(told) <= 16


def test_a_compiled_step_says_the_iteration_and_no_events() -> None:
    error = fails("compiled")
    assert "in iteration 3 of loop 'while'" in notes(error)[0]
    assert not any(n.startswith(EVENTS) for n in notes(error))


def test_a_step_without_loops_has_no_events_to_tell() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, ())
        y = 7 // (x + 1)
    with hr.Session(graph=g, engine="interpret") as s, pytest.raises(InvalidArgumentError) as caught:
        s.run(y, {x: -1})
    assert len(notes(caught.value)) == 2


@pytest.mark.parametrize(("engine", "devices"), ENGINES)
def test_a_loop_that_does_not_end_is_named(engine: str, devices: int) -> None:
    with hr.Graph() as g:
        inner = lambda v: hr.while_loop(lambda v: v > 0.0, lambda v: v + 1.0, [v], return_same_structure=False)
        n = hr.while_loop(lambda v: v > 0.0, inner, [1.0], return_same_structure=False)
        with hr.device(f"/device:CPU:{devices - 1}"):
            out = n * 2.0
    with (
        hr.Session(graph=g, engine=engine, devices={"CPU": devices}) as s,
        pytest.raises(DeadlineExceededError, match=r"Timed out: step \d+ ran past its time limit") as caught,
    ):
        s.run(out, timeout_ms=100)
    found = [n for n in notes(caught.value) if n.startswith("it was in iteration")]
    assert len(found) == 1
    assert "of loop 'while/while', in iteration 0 of loop 'while', made at" in found[0]
    assert f"{__file__}:" in found[0]
    assert found[0].endswith("Does the condition of the loop become false?")


def test_what_a_python_function_raised_is_kept() -> None:
    class Mine(KeyError):
        pass

    def lookup(v: Any) -> Any:
        raise Mine("no such key")

    for engine in ("interpret", "compiled"):
        with hr.Graph() as g:
            y = hr.py_func(lookup, [hr.constant(1)], hr.int32)
        with (
            hr.Session(graph=g, engine=engine) as s,
            pytest.raises(UnknownError, match="Mine: 'no such key'") as caught,
        ):
            s.run(y)
        assert isinstance(caught.value.__cause__, Mine)
        assert f"{__file__}:{lookup.__code__.co_firstlineno}" in str(caught.value)
        assert " at 0x" not in str(caught.value)  # addresses are no names
