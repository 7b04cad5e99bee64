"""Lists and arrays that share memory in native code have the values of separate ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.api import scopes
from headrace.targets.native import engine
from tests.compile.running import same

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

ROW = np.array([3], np.int32)
X = np.array([1.5, np.nan, -2.0], np.float32)


@pytest.fixture(autouse=True)
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A graph of which each instruction that can be native is, with checks of memory."""
    for name in ("NATIVE_CALL", "NATIVE_ARGUMENT", "NATIVE_LEAST_SAVING"):
        monkeypatch.setattr(thresholds, name, 0)
    with hr.Graph() as g, flags.override(VERIFY=3):
        yield g


def pushed(rows: Any, v: Any, n: int, factor: float) -> tuple[Any, Any]:
    """A list with n more rows, each a multiple of the last, and the next."""

    def body(i: Any, v: Any, rows: Any) -> tuple[Any, Any, Any]:
        return i + 1, v * factor, scopes.builder().TensorListPushBack(rows, v)

    _, v, rows = hr.while_loop(lambda i, v, rows: i < n, body, [0, v, rows])
    return rows, v


def new() -> Any:
    return scopes.builder().EmptyTensorList(ROW, np.array(-1, np.int32), element_dtype=hr.float32)


def stack(rows: Any, n: int) -> Any:
    return scopes.builder().TensorListStack(rows, ROW, element_dtype=hr.float32, num_elements=n)


def folded(rows: Any, v: Any, n: int) -> Any:
    """A number from the rows that are popped, in their order."""

    def body(i: Any, v: Any, rows: Any) -> tuple[Any, Any, Any]:
        rows, last = scopes.builder().TensorListPopBack(rows, ROW, element_dtype=hr.float32)
        return i + 1, v * 0.5 + last, rows

    return hr.while_loop(lambda i, v, rows: i < n, body, [0, v, rows])[1]


def check(fetches: Any, x: Any, value: np.ndarray = X, numbers: Mapping[Any, int] = MappingProxyType({})) -> str:
    """Compares machine code with the Python target and the interpreter; returns its text."""
    found, source = [], ""
    for engine_name, native in (("compiled", "on"), ("compiled", "off"), ("interpret", "off")):
        with (
            flags.override(OPTIMIZE="off", NATIVE=native),
            hr.Session(graph=scopes.current_graph(), engine=engine_name) as session,
        ):
            found.append([session.run(fetches, {x: value, **numbers}) for _ in range(2)])
            source = source or session.explain(fetches, [x, *numbers]).native_source
    same(found[0], found[1])
    same(found[1], found[2])
    return source


@pytest.mark.parametrize("n", [1, 3, 4, 16])
def test_rows_behind_the_rows_of_all_iterations(n: int) -> None:
    x = hr.placeholder(hr.float32, [3])
    rows, last = pushed(new(), x, n, 0.5)
    together = hr.concat([stack(rows, n), hr.reshape(last, [1, 3]), hr.reshape(x, [1, 3])], 0)
    source = check([hr.reduce_sum(together[1:] * together[:-1], 0), together * 1.0], x)
    assert n == 1 or f"i64 {12 * n}, i1 false" not in source  # no copy of all rows


def test_two_arrays_behind_the_rows_of_one_list() -> None:
    x = hr.placeholder(hr.float32, [3])
    rows, last = pushed(new(), x, 4, 0.5)
    first = stack(rows, 4)
    one, other = (hr.concat([first, hr.reshape(v, [1, 3])], 0) for v in (last, x))
    check([one * 2.0, other * 2.0, hr.concat([first, first], 0) * 1.0], x)


def test_a_list_that_is_read_behind_its_stack() -> None:
    x = hr.placeholder(hr.float32, [3])
    rows, last = pushed(new(), x, 4, 0.5)
    together = hr.concat([stack(rows, 4), hr.reshape(last, [1, 3])], 0)
    check([together * 2.0, folded(rows, x, 4)], x)


def test_a_list_that_grows_behind_its_stack() -> None:
    x = hr.placeholder(hr.float32, [3])
    rows, last = pushed(new(), x, 4, 0.5)
    first = stack(rows, 4)
    more, _ = pushed(rows, last, 9, -1.0)
    check([first * 2.0, stack(more, 13) * 1.0, hr.concat([first, first], 0) * 1.0], x)


def test_a_list_of_the_rows_of_an_array_that_is_read_again() -> None:
    x = hr.placeholder(hr.float32, [4, 3])
    y = x * 2.0
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    source = check([folded(scopes.builder().TensorListFromTensor(y, ROW), y[1], 4), y + 1.0, y[::-1] * 3.0], x, value)
    assert "headrace_take_block" not in source  # the list has the memory of the array


def test_a_list_of_the_rows_of_an_array_that_grows() -> None:
    x = hr.placeholder(hr.float32, [4, 3])
    y = x * 2.0
    rows, last = pushed(scopes.builder().TensorListFromTensor(y, ROW), y[0], 5, 0.5)
    check([folded(rows, last, 9), y + 1.0], x, np.arange(12, dtype=np.float32).reshape(4, 3))


def test_a_list_of_rows_that_outlives_the_iteration_which_made_it() -> None:
    x = hr.placeholder(hr.float32, [2, 3])

    def body(i: Any, y: Any, rows: Any) -> tuple[Any, Any, Any]:
        rows, last = scopes.builder().TensorListPopBack(rows, ROW, element_dtype=hr.float32)
        y = y * 0.5 + last
        return i + 1, y, scopes.builder().TensorListFromTensor(y + 1.0, ROW)

    _, y, rows = hr.while_loop(
        lambda i, y, rows: i < 5, body, [0, x, scopes.builder().TensorListFromTensor(x * 3.0, ROW)]
    )
    check([y * 1.0, folded(rows, x[0], 2)], x, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_a_list_of_rows_in_an_inner_loop() -> None:
    x = hr.placeholder(hr.float32, [2, 3])

    def body(i: Any, y: Any) -> tuple[Any, Any]:
        last = folded(scopes.builder().TensorListFromTensor(y * 3.0, ROW), y[0], 2)
        return i + 1, hr.cond(last[0] > 4.0, lambda: y * 0.1, lambda: y + last)

    y = hr.while_loop(lambda i, y: i < 7, body, [0, x])[1]
    check([y * 1.0], x, np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.system
@pytest.mark.parametrize("gate", [hr.tanh, hr.sigmoid])
def test_gradients_of_a_recurrence(gate: Any) -> None:
    h, w = hr.placeholder(hr.float32, [3, 5]), hr.placeholder(hr.float32, [5, 5])
    last = hr.while_loop(lambda i, h: i < 6, lambda i, h: (i + 1, gate(hr.matmul(h, w))), [0, h])[1]
    fetches = [last, *hr.gradients(hr.reduce_sum(last * last), [h, w])]
    rng = np.random.default_rng(3)
    feeds = {t: rng.normal(size=t.shape).astype(np.float32) for t in (h, w)}
    found = []
    for engine_name, native in (("compiled", "on"), ("compiled", "off"), ("interpret", "off")):
        with flags.override(NATIVE=native), hr.Session(engine=engine_name) as session:
            found.append(session.run(fetches, feeds))
            if native == "on":
                assert session.explain(fetches, list(feeds)).native_source
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("reserved", [0, 1 << 26])
@pytest.mark.parametrize("trips", [0, 1, 3, 40])
def test_lists_that_get_their_memory_before_a_loop(reserved: int, trips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pushes in an iteration, and two in an inner loop."""
    monkeypatch.setattr(thresholds, "NATIVE_RESERVED_BYTES", reserved)
    x, n = hr.placeholder(hr.float32, [3]), hr.placeholder(hr.int32, [])

    def body(i: Any, v: Any, rows: Any, more: Any) -> tuple[Any, Any, Any, Any]:
        b = scopes.builder()
        rows = b.TensorListPushBack(b.TensorListPushBack(rows, v), v * 2.0)
        more, v = pushed(more, v, 2, 0.5)
        return i + 1, v, rows, more

    _, _, rows, more = hr.while_loop(lambda i, v, rows, more: i < n, body, [0, x, new(), new()])
    check([stack(rows, -1), stack(more, -1)], x, X, {n: trips})


def test_a_list_of_the_rows_of_an_array_of_unknown_length() -> None:
    x, n = hr.placeholder(hr.float32, [4, 3]), hr.placeholder(hr.int32, [])
    rows = scopes.builder().TensorListFromTensor(hr.tanh(x[:n]), ROW)
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    check([folded(rows, x[0], 3)], x, value, {n: 3})
    more, _ = pushed(rows, x[1], 2, 0.5)
    check([stack(more, -1), hr.tanh(x[:n])], x, value, {n: 3})
