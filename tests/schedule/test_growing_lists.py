"""Arrays that grow, or have an unknown element shape, are lists of Python too.

Writes make these arrays longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import v1
from headrace.ir.graph import Tensor
from headrace.schedule.lists import KERNEL, LIST
from tests.compile.running import both, failure, kinds, regions

f32, i32 = hr.float32, hr.int32


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


def filled(ta: Any, n: Any, write: Any = None) -> Any:
    """`ta` after a loop that writes `[i, i]` at `i`, or what `write(ta, i)` does."""
    write = write or (lambda t, i: t.write(i, hr.fill([2], hr.cast(i, f32))))
    return hr.while_loop(lambda i, _: i < n, lambda i, t: (i + 1, write(t, i)), [0, ta])[1]


def dynamic(**kwargs: Any) -> Any:
    return hr.TensorArray(f32, size=0, dynamic_size=True, **kwargs)


def all_lists(fetches: list[Any], feeds: Any = None) -> Any:
    assert set(kinds(regions(fetches, list(feeds or {}))).values()) == {LIST}
    return both(fetches, feeds)


@pytest.mark.parametrize("n", [0, 1, 40])
@pytest.mark.parametrize(
    "kwargs", [{}, {"infer_shape": False}, {"element_shape": [2]}, {"element_shape": [None]}], ids=str
)
def test_a_dynamic_array_filled_by_a_loop(n: int, kwargs: Any) -> None:
    k = hr.placeholder(i32, [], name="k")
    ta = filled(dynamic(**kwargs), k)
    fetches = [ta.size(), *([ta.stack(), ta.concat(), ta.gather([n - 1, 0]), ta.read(0)] if n else [])]
    got = all_lists(fetches, {k: n})
    assert got[0] == n
    if n:
        rows = np.repeat(np.arange(n, dtype=np.float32)[:, None], 2, 1)
        assert np.array_equal(got[1], rows)
        assert np.array_equal(got[2], rows.ravel())


@pytest.mark.parametrize("v", [hr, v1], ids=["hr", "v1"])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_arrays_of_unknown_element_shape(v: Any, is_dynamic: bool) -> None:
    with v.Graph() as g:
        ta = v.TensorArray(v.float32, size=0 if is_dynamic else 5, dynamic_size=is_dynamic)
        _, ta = v.while_loop(lambda i, _: i < 5, lambda i, t: (i + 1, t.write(i, v.cast(i * i, v.float32))), [0, ta])
        out = ta.stack()
    with hr.Session(graph=g, engine="compiled") as session:
        assert session.run(out).tolist() == [0, 1, 4, 9, 16]


def test_writes_far_behind_the_end_and_places_in_between() -> None:
    where = hr.constant([3, 0, 5000, 3])
    ta = filled(dynamic(), 4, lambda t, i: t.write(where[i], hr.fill([2], hr.cast(i + 1, f32))))
    size, third, second, rows = all_lists([ta.size(), ta.read(3), ta.read(1), ta.gather([0, 2, 3])])
    assert size == 5001
    assert (third.tolist(), second.tolist()) == ([4, 4], [0, 0])
    assert rows.tolist() == [[2, 2], [0, 0], [4, 4]]


def test_rows_unstacked_and_then_written_behind() -> None:
    ta = dynamic().unstack(hr.ones([3, 2]))
    before = ta.size()
    ta = filled(ta, 5, lambda t, i: t.write(i, hr.zeros([2])))
    n, rows = all_lists([before, filled(ta, 7).stack()])
    assert n == 3
    assert rows.shape == (7, 2)


def test_an_element_read_back_and_written_on() -> None:
    ta = dynamic().write(0, hr.ones([2]))
    _, ta = hr.while_loop(lambda i, _: i < 6, lambda i, t: (i + 1, t.write(i, t.read(i - 1) * 2.0)), [1, ta])
    assert all_lists([ta.stack()])[0][:, 0].tolist() == [1, 2, 4, 8, 16, 32]


def test_written_in_one_branch_alone() -> None:
    def write(t: Any, i: Tensor) -> Any:
        return hr.cond(i % 2 > 0, lambda: t.write(i, hr.fill([2], hr.cast(i, f32))), lambda: t)

    assert all_lists([filled(dynamic(), 6, write).stack()])[0][:, 0].tolist() == [0, 1, 0, 3, 0, 5]


def test_elements_of_different_shapes_joined() -> None:
    def write(t: Any, i: Tensor) -> Any:
        return t.write(i, hr.fill(hr.stack([i, 2]), hr.cast(i, f32)))

    joined = all_lists([filled(dynamic(infer_shape=False), 4, write).concat()])[0]
    assert joined[:, 1].tolist() == [1, 2, 2, 3, 3, 3]


def test_a_shape_that_an_element_may_not_have_is_left_to_the_kernel() -> None:
    x = hr.placeholder_with_default(np.ones(3, np.float32), [None])
    ta = filled(dynamic(), 2, lambda t, i: t.write(i, x))
    out = hr.identity(ta.flow)
    item = hr.api.scopes.builder().TensorListGetItem(out, 0, hr.constant([2]), element_dtype=f32)
    assert set(kinds(regions([item])).values()) == {KERNEL}
    for engine in ("compiled", "interpret"):
        assert "Incompatible shapes" in str(failure(item, engine=engine))


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda ta: ta.read(9), "access element 9 in a list with 3 elements"),
        (lambda ta: ta.write(-1, hr.ones([2])).size(), "modify element -1 in a list with 3 elements"),
        (lambda ta: ta.write(2**30, hr.ones([2])).size(), "OOM when growing a list of 3 elements"),
        (lambda ta: ta.gather([0, 3]), "gather element 3 in a list with 3 elements"),
        (lambda ta: ta.write(3, hr.ones([3])).stack(), "Incompatible shapes"),
        (lambda ta: hr.TensorArray(f32, size=3, infer_shape=False).stack(), "only contains uninitialized tensors"),
        (lambda ta: hr.TensorArray(f32, size=3, infer_shape=False).read(1), "no list element is set"),
    ],
)
def test_errors_are_those_of_the_kernels(do: Any, message: str) -> None:
    out = do(filled(dynamic(infer_shape=False), 3))
    mine, kernels = (failure(out, engine=engine) for engine in ("compiled", "interpret"))
    assert message in str(mine)
    assert type(mine) is type(kernels)
    assert str(mine).splitlines()[0] == str(kernels).splitlines()[0]
