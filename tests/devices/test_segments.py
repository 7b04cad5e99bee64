"""Segments: calls of a device's kernels, as one function of its arrays."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.device_arrays import DeviceArray, on_list
from headrace.errors import InvalidArgumentError
from headrace.targets.python.printer import MOST_LOOPS
from tests.devices.fake import DEVICE, FAKE, MEMORY
from tests.extending.registering import forgotten

X = np.array([0.5, -1.0, 2.0])

Build = Callable[[Any], Any]


@contextmanager
def step(build: Build) -> Iterator[tuple[hr.Session, Any, Any]]:
    """A session with the device, and the fetches and the feed of a program."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [3], name="x")
        with hr.device(DEVICE):
            y = build(x)
    with hr.Session(graph=g, devices={FAKE: 1}, engine="compiled") as session:
        yield session, y, x


def compiled(build: Build) -> str:
    """The source of a program, whose results other engines have too."""
    with step(build) as (session, y, x):
        got = session.run(y, {x: X})
        source = session.explain(y, [x]).source
        for devices, engine in (({FAKE: 1}, "interpret"), ({"CPU": 1}, "auto")):
            with hr.Session(graph=session.graph, devices=devices, engine=engine) as other:
                want = other.run(y, {x: X})
            for a, b in zip(hr.nest.flatten(got), hr.nest.flatten(want), strict=True):
                np.testing.assert_array_equal(a, b)
    return source


def segments(source: str) -> list[list[str]]:
    """The lines of each segment that call kernels."""
    found = re.findall(r"def segment\d+\(values\):\n((?: .*\n)+)", source)
    return [[line for line in text.splitlines() if re.search(r" = k\d+\(", line)] for text in found]


def sizes(source: str) -> list[int]:
    return [len(lines) for lines in segments(source)]


def test_the_body_of_a_loop_is_one_call() -> None:
    source = compiled(lambda x: hr.while_loop(lambda i, a: i < 10, lambda i, a: (i + 1, hr.sin(a * a) + x), [0, x])[1])
    assert sizes(source) == [3]
    body = source.partition("for ")[2].splitlines()[1:2]
    assert re.fullmatch(r"  (\w+) = segment\d+\(\[\1, \w+\]\)", body[0]), "the variable takes the result"


def test_calls_that_do_not_wait_for_the_host_are_one_segment() -> None:
    def build(x: Any) -> Any:
        a = hr.sin(x)
        with hr.device("/cpu:0"):
            b = hr.cos(a)
        return hr.tanh(a) * 2.0, hr.exp(b) + a

    source = compiled(build)
    assert sizes(source) == [3, 2]


def test_a_single_call_is_no_segment() -> None:
    def build(x: Any) -> Any:
        a = hr.sin(x)
        with hr.device("/cpu:0"):
            b = hr.cos(a)
        return hr.exp(b)

    source = compiled(build)
    assert sizes(source) == []


def test_branches_and_nested_loops_have_segments() -> None:
    def build(x: Any) -> Any:
        def body(i: Any, a: Any) -> Any:
            b = hr.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, hr.sin(b) * x), [0, a])[1]
            return i + 1, hr.cond(hr.equal(i % 2, 0), lambda: hr.cos(b) - x, lambda: hr.exp(-b))

        y = hr.while_loop(lambda i, a: i < 4, body, [0, x])[1]
        return [y, *hr.gradients(y, [x])]

    source = compiled(build)
    assert len(segments(source)) >= 4


def test_numbers_of_the_host_stay_there() -> None:
    def build(x: Any) -> Any:
        def body(i: Any, a: Any) -> Any:
            return i + 1, hr.gather(hr.stack([a, hr.sin(a)]), i % 2) * 0.5

        return hr.while_loop(lambda i, a: i < 4, body, [0, x])[1]

    compiled(build)


def test_reads_and_updates_of_variables_keep_their_order() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        v = hr.Variable(X, name="v")
        first = hr.sin(v) * 2.0
        with hr.control_dependencies([first]):
            change = v.assign_add(first)
        with hr.control_dependencies([change]):
            second = hr.cos(v.read_value()) * 2.0
    with hr.Session(graph=g, devices={FAKE: 1}, engine="compiled") as session:
        session.run(v.initializer)
        got = session.run([first, second])
        assert len(segments(session.explain([first, second]).source)) == 2
    first_value = np.sin(X) * 2.0
    np.testing.assert_array_equal(got[0], first_value)
    np.testing.assert_array_equal(got[1], np.cos(X + first_value) * 2.0)


def test_no_update_precedes_an_error_of_the_device_before_it() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, [3], name="x")
        v = hr.Variable(X, name="v")
        checked = hr.check_numerics(hr.log(x), "bad") * 2.0
        with hr.control_dependencies([hr.identity(checked)]):
            change = v.assign_add(X)
    with hr.Session(graph=g, devices={FAKE: 1}, engine="compiled") as session:
        session.run(v.initializer)
        with pytest.raises(InvalidArgumentError, match="bad"):
            session.run([checked, change.op], {x: [-1.0, 1.0, 1.0]})
        np.testing.assert_array_equal(session.run(v), X)


def test_no_call_precedes_an_assertion_before_it() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [3], name="x")
        holds = hr.Assert(hr.reduce_all(x > 0.0), ["negative"])
        with hr.control_dependencies([holds]), hr.device(DEVICE):
            y = hr.check_numerics(hr.log(hr.identity(x)), "bad") * 2.0
    with hr.Session(graph=g, devices={FAKE: 1}, engine="compiled") as session:
        with pytest.raises(InvalidArgumentError, match="negative"):
            session.run(y, {x: [-1.0, 1.0, 1.0]})
        assert sizes(session.explain(y, [x]).source) == [3]


def test_errors_name_the_call_its_iteration_and_its_inputs() -> None:
    def build(x: Any) -> Any:
        def body(i: Any, a: Any) -> Any:
            return i + 1, hr.check_numerics(hr.log(a) - 0.5, "bad", name="check") * 3.0

        return hr.while_loop(lambda i, a: i < 10, body, [0, x], name="loop")[1]

    with step(build) as (session, y, x):
        assert sizes(session.explain(y, [x]).source) == [4]
        with pytest.raises(InvalidArgumentError) as caught:
            session.run(y, {x: [2.0, 2.0, 2.0]})
    assert "bad" in str(caught.value)
    found = caught.value.diagnosis
    assert found is not None
    assert found.op is not None
    assert found.op.name == "loop/check"
    assert found.where == "iteration 2 of loop 'loop'"
    assert [each.value for each in found.inputs] == ["float64[3]"]


def fail(a: Any) -> Any:
    raise RuntimeError("too far")


alive: list[weakref.ref[Any]] = []  # the results of SegmentMakes
counted: list[int] = []


def make(a: Any) -> Any:
    made = a + 1.0
    alive.append(weakref.ref(made))
    return made


def count(a: Any) -> Any:
    counted.append(sum(made() is not None for made in alive))
    return a + 1.0


@pytest.fixture
def registered() -> Iterator[tuple[Callable[..., Any], ...]]:
    """The functions of three op types, whose kernels are those above."""
    with forgotten():
        yield tuple(
            hr.register_op(
                f"Segment{kernel.__name__.capitalize()}s",
                "a: float64",
                "out: float64",
                shape=hr.extend.same_as(0),
                kernel=lambda xp, attrs, kernel=kernel: kernel,
                xp=True,
                grad=hr.extend.NOT_DIFFERENTIABLE,
                facts=hr.extend.Facts(no_fold=True),
            )
            for kernel in (fail, make, count)
        )


def test_errors_of_the_library_name_the_call(
    registered: tuple[Callable[..., Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = registered[0]
    monkeypatch.setattr(MEMORY, "error_of", lambda e: InvalidArgumentError(f"translated: {e}"), raising=False)
    with step(lambda x: fails(hr.sin(x), name="failing") * 2.0) as (session, y, x):
        assert sizes(session.explain(y, [x]).source) == [3]
        with pytest.raises(InvalidArgumentError, match="translated: too far") as caught:
            session.run(y, {x: X})
    found = caught.value.diagnosis
    assert found is not None
    assert found.op is not None
    assert found.op.name == "failing"
    assert [each.value for each in found.inputs] == ["float64[3]"]


def test_values_end_with_their_last_reader_in_a_segment(registered: tuple[Callable[..., Any], ...]) -> None:
    _, makes, counts = registered

    def build(x: Any) -> Any:
        a = makes(x)
        with hr.device("/cpu:0"):
            shown = hr.cos(a)  # a segment ends here
        return counts(counts(makes(shown) + a) * a) + 1.0

    with step(build) as (session, y, x):
        assert sizes(session.explain(y, [x]).source) == [6]
        alive.clear()
        counted.clear()
        session.run(y, {x: X})
    assert counted == [1, 0]


def test_a_list_is_empty_while_a_segment_computes() -> None:
    given = [MEMORY.put(X), np.int32(3)]

    def f(arrays: list[Any]) -> Any:
        assert given == []
        return arrays[0] * arrays[1], arrays[0]

    first, second = on_list(f, MEMORY, "f", 1)(given)
    assert type(first) is type(second) is DeviceArray
    np.testing.assert_array_equal(first.array, X * 3)


def test_listeners_and_profiles_have_all_calls() -> None:
    with step(lambda x: hr.tanh(hr.sin(x, name="first") * x, name="last")) as (session, y, x):
        with hr.record() as recording:
            session.run(y, {x: X})
        assert {"first", "last"} <= {node["name"] for node in recording.document()["nodes"]}
        profile = hr.profile(lambda: session.run(y, {x: X}))
        assert {"first", "last"} <= {name for row in profile.rows for name in row.names}
        _, watched = session.run(y, {x: X}, watch=hr.watch("first"))
    np.testing.assert_array_equal(watched["first"][0].value, np.sin(X))


def test_a_copy_from_a_far_memory_waits_for_its_own_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(x: Any) -> Any:
        def body(a: Any, n: Any) -> Any:
            b = hr.sin(a) * 2.0
            is_small = hr.reduce_sum(a * a) < 40.0
            return b + x, hr.where(is_small, n + 1, n + 2)

        return hr.while_loop(lambda a, n: n < 10, body, [x, 0])

    for is_near, want in ((True, [6]), (False, [3, 3])):
        monkeypatch.setattr(type(MEMORY), "is_near", is_near)
        assert sizes(compiled(build)) == want


def test_a_segment_may_have_no_inputs() -> None:
    source = compiled(lambda x: hr.sin(hr.fill([3], hr.constant(2.0, hr.float64))))
    assert sizes(source) == [2]


def test_loops_that_are_nested_deeply_have_segments() -> None:
    def build(x: Any) -> Any:
        def nest(depth: int, a: Any) -> Any:
            if not depth:
                return hr.sin(a) * x
            return hr.while_loop(lambda i, a: i < 1, lambda i, a: (i + 1, nest(depth - 1, a) * 0.5), [0, a])[1]

        return nest(MOST_LOOPS + 1, x)

    with step(build) as (session, y, x):
        np.testing.assert_allclose(session.run(y, {x: X}), np.sin(X) * X * 0.5 ** (MOST_LOOPS + 1), rtol=1e-12)
        source = session.explain(y, [x]).source
    assert re.search(r"def part\d+\(", source), "the innermost loops are a function of their own"
    assert sizes(source) == [3]
