"""Diagnoses of failures, and errors as plain data."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import errors, plain_data
from headrace.diagnosis import FAILED, FIRED, WAITED, Diagnosis, Event, Input, OpRef
from headrace.errors import HeadraceInternalError, InvalidArgumentError, NotFoundError, OpError, UnknownError
from headrace.execute.records import DeadCause

OP = OpRef("a/div", "FloorDiv", "program.py:3 in body")
FULL = Diagnosis(
    OP,
    "iteration 3 of loop 'a'",
    (Input("x:0", "int32[] = 0"), Input("y:0", "int32[] = 1")),
    "iteration 3 of loop 'a', made at program.py:2",
    (Event(FIRED, OpRef("a/sub", "Sub")), Event(FAILED, OP, "iteration 3 of loop 'a'")),
)
CLASSES = [c for c in OpError.__subclasses__() if c.__module__ == "headrace.errors"]


def through(error: BaseException) -> Any:
    """The error after a way through a text."""
    return errors.from_data(json.loads(json.dumps(errors.to_data(error))))


def failure(engine: str = "interpret") -> InvalidArgumentError:
    """Divides by zero in iteration 3."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, (), name="x")
        _, total = hr.while_loop(lambda i, t: i < 9, lambda i, t: (i + 1, t + 12 // (x - i)), [0, 0])
    with hr.Session(graph=g, engine=engine) as s, pytest.raises(InvalidArgumentError) as caught:
        s.run(total, {x: 3})
    return caught.value


# *** in a run ***


@pytest.mark.parametrize("engine", ["interpret", "compiled", "auto"])
def test_an_error_has_the_place_of_the_failure(engine: str) -> None:
    found = failure(engine).diagnosis
    assert found is not None
    assert found.op is not None
    assert (found.op.name, found.op.type) == ("while/floordiv", "FloorDiv")
    assert f"{__file__}:" in found.op.source
    assert found.where == "iteration 3 of loop 'while'"
    assert found.inputs == (Input("while/floordiv/x:0", "int32[] = 12"), Input("while/sub:0", "int32[] = 0"))
    assert [e.kind for e in found.story[:2]] == ([FIRED, FAILED] if engine == "interpret" else [])


@pytest.mark.parametrize("engine", ["interpret", "compiled", "auto"])
def test_the_notes_are_those_of_the_diagnosis(engine: str) -> None:
    error = failure(engine)
    assert error.diagnosis is not None
    assert error.__notes__ == error.diagnosis.notes()


def test_an_op_that_runs_at_once_has_a_diagnosis() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        hr.constant(7) // hr.constant(0)
    found = caught.value.diagnosis
    assert found is not None
    assert found.op is not None
    assert (found.op.name, found.op.type) == ("", "FloorDiv")
    assert found.inputs == (Input("", "int32[] = 7"), Input("", "int32[] = 0"))
    assert caught.value.__notes__ == found.notes()


def test_a_step_past_its_deadline_names_the_loop_that_ran() -> None:
    with hr.Graph() as g:
        n = hr.while_loop(lambda n: n >= 0.0, lambda n: n / 2.0, [1.0], return_same_structure=False)
    for engine in ("interpret", "compiled"):
        with hr.Session(graph=g, engine=engine) as s, pytest.raises(errors.DeadlineExceededError) as caught:
            s.run(n, timeout_ms=30)
        assert caught.value.diagnosis is not None
        assert caught.value.diagnosis.running.startswith("iteration ")
        assert "of loop 'while', made at" in caught.value.diagnosis.running


# *** notes ***


def test_a_later_diagnosis_of_an_operation_replaces_its_notes() -> None:
    error = NotFoundError("no")
    error.add_note("first")
    error.diagnose(FULL)
    error.add_note("last")
    new = dataclasses.replace(FULL, inputs=(Input("z:0", "int32[] = 0"),), story=())
    error.diagnose(new)
    assert error.__notes__ == ["first", *new.notes(), "last"]


def test_the_diagnosis_of_another_operation_adds_its_notes() -> None:
    error = NotFoundError("no")
    inner = Diagnosis(OpRef("", "Neg", "inner.py:1"))
    error.diagnose(inner)
    error.diagnose(FULL)
    assert error.__notes__ == ["operation Neg, run at inner.py:1", *FULL.notes()]
    assert error.diagnosis is FULL


def test_events_outside_of_loops_are_shown_if_one_waits() -> None:
    events = Event(FIRED, OP), Event(FAILED, OP)
    assert Diagnosis(None, story=events).notes() == []
    (note,) = Diagnosis(None, story=(*events, Event(WAITED, OpRef("q", "QueueDequeueV2")))).notes()
    assert note.splitlines()[3] == "  waited for: 'q' (QueueDequeueV2)"


# *** as data ***


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_of_each_class_is_rebuilt(kind: type[OpError]) -> None:
    error = kind("what was wrong: 'ä'", "a/div")
    error.diagnose(FULL)
    error.add_note("and a note")
    error.__cause__ = ValueError("zero")
    out = through(error)
    assert type(out) is kind
    assert (str(out), out.message, out.node, out.op) == (error.message, error.message, "a/div", None)
    assert out.diagnosis == FULL
    assert out.__notes__ == error.__notes__
    assert str(out.__cause__) == "ValueError: zero"


def test_all_classes_are_rebuilt() -> None:
    assert {c.error_code for c in CLASSES} == set(range(1, 17))


def test_an_error_without_anything_is_rebuilt() -> None:
    out = through(UnknownError("no"))
    assert (str(out), out.node, out.diagnosis, out.__cause__) == ("no", None, None, None)
    assert not hasattr(out, "__notes__")


def test_other_errors() -> None:
    class Mine(NotFoundError):
        pass

    assert type(through(Mine("no"))) is NotFoundError
    assert isinstance(through(HeadraceInternalError("a defect")), HeadraceInternalError)
    assert str(through(KeyError("k"))) == "KeyError: 'k'"
    assert isinstance(through(KeyError("k")), UnknownError)


def test_an_error_of_a_run_is_rebuilt() -> None:
    for engine in ("interpret", "compiled"):
        error = failure(engine)
        out = through(error)
        assert (str(out), out.node, out.__notes__) == (str(error), error.node, error.__notes__)
        assert out.diagnosis == error.diagnosis


@pytest.mark.system
def test_an_error_is_rebuilt_in_another_process() -> None:
    error = failure()
    code = """
import json, sys
from headrace import errors
try:
    raise errors.from_data(json.load(sys.stdin))
except errors.InvalidArgumentError as e:
    print(json.dumps([str(e), e.__notes__, errors.to_data(e)]))
"""
    sent = json.dumps(errors.to_data(error))
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [str(error), error.__notes__, json.loads(sent)]


GOOD: Any = errors.to_data(InvalidArgumentError("no", "a"))
HOSTILE: dict[str, Callable[[list[Any]], Any]] = {
    "no list": lambda d: {"type": "AbortedError"},
    "none": lambda d: None,
    "too short": lambda d: d[:-1],
    "too long": lambda d: [*d, 1],
    "unknown class": lambda d: ["Exception", *d[1:]],
    "class of the builtins": lambda d: ["KeyboardInterrupt", *d[1:]],
    "text is no text": lambda d: [d[0], 7, *d[2:]],
    "huge text": lambda d: [d[0], "x" * (plain_data.MOST_CHARACTERS + 1), *d[2:]],
    "node is a list": lambda d: [*d[:2], ["a"], *d[3:]],
    "notes are a text": lambda d: [*d[:3], "notes", *d[4:]],
    "a note is a number": lambda d: [*d[:3], [1], *d[4:]],
    "too many notes": lambda d: [*d[:3], ["n"] * (plain_data.MOST_ITEMS + 1), *d[4:]],
    "diagnosis is a text": lambda d: [*d[:5], "here"],
    "operation without a type": lambda d: [*d[:5], [["op"], "", [], "", []]],
    "event is a number": lambda d: [*d[:5], [None, "", [], "", [7]]],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_is_refused(name: str) -> None:
    assert str(errors.from_data(GOOD)) == "no"
    with pytest.raises(InvalidArgumentError, match="the data is not that of an error: ") as caught:
        errors.from_data(HOSTILE[name](GOOD))
    assert len(str(caught.value)) < 300


def test_large_errors_are_cut() -> None:
    error = InvalidArgumentError("x" * 100_000)
    for i in range(plain_data.MOST_ITEMS + 7):
        error.add_note(str(i))
    out = through(error)
    assert str(out).endswith(f"xxx... ({100_000 - plain_data.MOST_CHARACTERS + 40} more characters)")
    assert len(str(out)) <= plain_data.MOST_CHARACTERS
    assert out.__notes__ == error.__notes__[: plain_data.MOST_ITEMS]


def test_causes_of_deadness_are_data() -> None:
    cause = DeadCause(OP, "iteration 0 of loop 'a'", "p:0", 1, 2)
    assert plain_data.decode(DeadCause, json.loads(json.dumps(plain_data.encode(cause)))) == cause
    good = plain_data.encode(cause)
    for bad in (True, 1.0, "1", None, 1 << 63):
        with pytest.raises(ValueError, match=r"DeadCause\.value: "):
            plain_data.decode(DeadCause, [*good[:3], bad, 2])
