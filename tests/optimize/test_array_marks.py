"""`optimize.array_marks` removes the checks of an array as a whole, or none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import nested_operations
from headrace.ir.graph import Graph
from headrace.ir.verify import verify
from headrace.jit.function import Function
from headrace.optimize.array_marks import DropMarks
from headrace.optimize.base import PassContext, run
from headrace.prune import prune

pytestmark = pytest.mark.one_engine
N = 4


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default() as g:
        yield g


def array(clear: bool = True, n: Any = N, **kwargs: Any) -> Any:
    return tf.TensorArray(tf.float32, n, clear_after_read=clear, element_shape=[], **kwargs)


def rows(clear: bool = True) -> Any:
    return array(clear).unstack([1.0, 2.0, 3.0, 4.0])


def after(*fetches: Any, targets: Sequence[Any] = ()) -> tuple[Graph, PassContext]:
    """The graph of a step after the pass, and the report."""
    pruned = prune([], list(fetches), list(targets))
    own_bodies(pruned.graph)
    preserved = [op for t in targets if (op := pruned.graph.find(t.name)) is not None]
    context = PassContext(preserved=preserved)
    run([DropMarks()], pruned.graph, context)
    verify(pruned.graph)
    return pruned.graph, context


def left(graph: Graph) -> int:
    return sum(op.type.startswith("_TensorArray") for op in nested_operations(graph.operations))


def check(fetch: Any, refused: str = "") -> None:
    """The checks of the arrays behind `fetch` go; or they stay, for this reason."""
    graph, context = after(fetch)
    if refused:
        assert refused in " ".join(n.text for n in context.notes if not n.fired), context.notes
        assert not any(n.fired for n in context.notes)
        assert left(graph) > 1
    else:
        assert [n.text for n in context.notes if not n.fired] == []
        assert left(graph) == 0


def filled(index: Callable[[Any], Any], a: Any = None, start: Any = 0, step: int = 1) -> Any:
    def body(i: Any, a: Any) -> Any:
        return i + step, a.write(index(i), tf.cast(i, tf.float32))

    return tf.while_loop(lambda i, _: i < N, body, (start, array() if a is None else a))[1]


def total(index: Callable[[Any], Any], a: Any) -> Any:
    return tf.while_loop(lambda i, _: i < N, lambda i, t: (i + 1, t + a.read(index(i))), (0, 0.0))[1]


# *** without loops ***


def test_numbers_that_differ() -> None:
    a = array().write(0, 1.0).write(1, 2.0)
    check([a.read(1) + a.read(0)][0])
    check(rows().stack())
    check(rows().gather([0, 2]))
    check(array().scatter([3, 1], [1.0, 2.0]).size())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: array().write(0, 1.0).write(0, 2.0).stack(), "may touch the same element"),
        (lambda: array().write(1, 1.0).scatter([0, 1], [1.0, 2.0]).stack(), "may touch the same element"),
        (lambda: array().write(0, 1.0).unstack([1.0, 2.0]).stack(), "may touch the same element"),
        (lambda: array().scatter([1, 1], [1.0, 2.0]).stack(), "may touch an element twice"),
        (lambda: rows().gather([1, 1]), "may touch an element twice"),
        (lambda: rows().gather(tf.placeholder_with_default([1, 0], [2])), "may touch an element twice"),
    ],
)
def test_numbers_that_do_not_differ(make: Callable[[], Any], why: str) -> None:
    check(make(), why)


def test_reads_of_one_element() -> None:
    a = rows()
    check(a.read(0) + a.read(0), "may touch the same element")
    for k in (0, 1):
        a = rows()
        check(a.read(k) + tf.reduce_sum(a.stack()), "may touch the same element")
    a = rows(clear=False)
    check(a.read(0) + tf.reduce_sum(a.stack()))
    a = rows()
    check(a.read(tf.placeholder_with_default(0, [])) + a.read(1), "may touch the same element")
    check(rows().read(tf.placeholder_with_default(0, [])))


def test_a_write_of_what_may_have_been_read() -> None:
    a = array(clear=False)
    first = a.read(0)
    with tf.control_dependencies([first]):
        check(a.write(0, first).stack(), "has read")
    a = array(clear=False)
    check(a.write(1, a.read(0)).stack())
    a = array(clear=False)
    x = a.read(2)
    check(a.scatter([1, 3], tf.stack([x, x])).read(1))


# *** loops ***


@pytest.mark.parametrize(
    "index",
    [
        lambda i: i,
        lambda i: i + 1,
        lambda i: N - 1 - i,
        lambda i: tf.cast(tf.cast(i, tf.int64), tf.int32),
        lambda i: i + tf.placeholder_with_default(1, []),
        lambda i: tf.identity(i) - 1,
        lambda i: i + i,
    ],
)
def test_a_number_of_its_own_for_each_iteration(index: Callable[[Any], Any]) -> None:
    check(filled(index).stack())
    check(total(index, rows()))


@pytest.mark.parametrize(
    "index",
    [
        lambda i: i // 2,
        lambda i: i * 0,
        lambda i: i - i,
        lambda i: tf.placeholder_with_default(1, []),
        lambda i: 2,
        lambda i: tf.cast(tf.cast(i, tf.float32), tf.int32),
        lambda i: tf.minimum(i, 2),
        lambda i: i // 2 + 1,
        lambda i: 1 + i // 2,
    ],
)
def test_a_number_that_iterations_may_share(index: Callable[[Any], Any]) -> None:
    check(filled(index).stack(), "may touch an element twice")
    check(total(index, rows()), "may touch an element twice")


@pytest.mark.parametrize(
    ("after", "index"),
    [
        (lambda i, j: (i * 2, j), lambda i, j: i),
        (lambda i, j: (j, i), lambda i, j: i),
        (lambda i, j: (i + j, j + 1), lambda i, j: i),
        (lambda i, j: (i + i, j), lambda i, j: i),
        (lambda i, j: (i + 1, j + 1), lambda i, j: i + j),
        (lambda i, j: (i + 1, j + 1), lambda i, j: i - j),
    ],
)
def test_numbers_that_depend_on_more_than_one_variable(after: Callable[..., Any], index: Callable[..., Any]) -> None:
    a = rows()

    def body(n: Any, i: Any, j: Any, t: Any) -> Any:
        return n + 1, *after(i, j), t + a.read(index(i, j))

    loop = tf.while_loop(lambda n, *_: n < 2, body, (0, 1, 1, 0.0))
    check(loop[3], "may touch an element twice")


@pytest.mark.parametrize("start", [3, 0])
def test_numbers_from_one_that_is_not_known(start: int) -> None:
    """Whether element `start` is among those of the loop is not known."""
    by = tf.placeholder_with_default(1, [])
    for index in (lambda i: i + by, lambda i: by + i):
        check(filled(index, array().write(start, 1.0)).stack(), "may touch the same element")


def test_reads_at_a_distance_that_is_not_known() -> None:
    by = tf.placeholder_with_default(1, [])
    for read, write in ((lambda i: i - by, lambda i: i), (lambda i: i - 1, lambda i: i + by)):

        def body(i: Any, a: Any, read: Any = read, write: Any = write) -> Any:
            return i + 1, a.write(write(i), a.read(read(i)))

        check(tf.while_loop(lambda i, _: i < N, body, (2, array(clear=False)))[1].stack(), "has read")


def test_several_numbers_in_each_iteration() -> None:
    a, at = rows(), tf.placeholder_with_default([0, 1], [2])

    def body(i: Any, t: Any) -> Any:
        return i + 1, t + tf.reduce_sum(a.gather(at + i))

    check(tf.while_loop(lambda i, _: i < N, body, (0, 0.0))[1], "may touch an element twice")


def test_arrays_that_change_places() -> None:
    def body(i: Any, a: Any, b: Any, t: Any) -> Any:
        return i + 1, b, a, t + a.read(0)

    check(tf.while_loop(lambda i, *_: i < 2, body, (0, rows(), rows(), 0.0))[3], "may touch an element twice")


def test_a_read_before_the_numbers_of_a_loop() -> None:
    for k, why in ((1, ""), (2, "has read")):
        a = array(clear=False)
        x = a.read(k)
        check(x + filled(lambda i: i, a, start=2).read(0), why)


def test_numbers_before_those_of_a_loop() -> None:
    a = array().write(0, 1.0).write(1, 1.0)
    check(filled(lambda i: i, a, start=2).stack())
    check(filled(lambda i: i, a, start=1).stack(), "may touch the same element")
    a = array().write(3, 1.0)
    check(filled(lambda i: i, a, start=2).stack(), "may touch the same element")
    check(filled(lambda i: 2 - i, a, start=0).stack())
    check(
        filled(lambda i: i, array().write(0, 1.0), start=tf.placeholder_with_default(1, [])).stack(), "the same element"
    )


def test_two_loops_that_write() -> None:
    check(filled(lambda i: i, filled(lambda i: i)).stack(), "may touch the same element")


def test_a_loop_that_counts_down_or_by_two() -> None:
    a = tf.while_loop(lambda i, _: i >= 0, lambda i, a: (i - 1, a.write(i, 1.0)), (N - 1, array()))[1]
    check(a.stack())
    check(filled(lambda i: i, step=2).stack())
    check(filled(lambda i: i, step=0).stack(), "may touch an element twice")


def test_a_loop_in_a_loop() -> None:
    def around(j: Any, a: Any) -> Any:
        return j + 1, filled(lambda i: i, a)

    check(tf.while_loop(lambda j, _: j < 1, around, (0, array()))[1].stack(), "may touch an element twice")
    inner = tf.while_loop(lambda j, _: j < 2, lambda j, t: (j + 1, t + filled(lambda i: i).read(0)), (0, 0.0))[1]
    check(inner)


@pytest.mark.parametrize(("back", "why"), [(1, ""), (2, ""), (0, "has read"), (-1, "has read")])
def test_a_loop_that_reads_what_it_has_written(back: int, why: str) -> None:
    def body(i: Any, a: Any) -> Any:
        return i + 1, a.write(i, a.read(i - back))

    check(tf.while_loop(lambda i, _: i < N, body, (2, array(clear=False)))[1].stack(), why)


def test_a_loop_down_that_reads_what_it_has_written() -> None:
    def body(i: Any, a: Any) -> Any:
        return i - 1, a.write(i, a.read(i + 1))

    check(tf.while_loop(lambda i, _: i >= 0, body, (2, array(clear=False)))[1].stack())


def test_a_loop_that_reads_before_the_array_is_written() -> None:
    a = array(clear=False)
    x = total(lambda i: i, a)
    check(a.write(0, x).size(), "has read")


# *** branches ***


def test_branches_that_write_the_same_element() -> None:
    p = tf.placeholder_with_default(True, [])
    a = array()
    check(tf.cond(p, lambda: a.write(0, 1.0), lambda: a.write(0, 2.0)).stack())
    check(tf.cond(p, lambda: a.write(0, 1.0), lambda: a).stack())
    b = array().write(0, 1.0)
    check(tf.cond(p, lambda: b.write(0, 1.0), lambda: b).stack(), "may touch the same element")


def test_a_branch_with_a_loop() -> None:
    p = tf.placeholder_with_default(True, [])
    for swap in (False, True):
        a = array()
        branches = [lambda a=a: filled(lambda i: i, a), lambda a=a: a.write(2, 1.0)]
        check(tf.cond(p, *(reversed(branches) if swap else branches)).stack())


def test_branches_in_a_loop_at_a_distance_that_is_not_known() -> None:
    by, to = tf.placeholder_with_default(1, []), tf.placeholder_with_default(2, [])

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(i > 1, lambda: a.write(i + by, 1.0), lambda: a.write(i + to, 2.0))

    check(tf.while_loop(lambda i, _: i < N, body, (0, array()))[1].stack(), "may touch the same element")


def test_a_condition_and_a_body_that_read() -> None:
    a = rows()
    loop = tf.while_loop(lambda i, t: a.read(i) < 3.0, lambda i, t: (i + 1, t + a.read(i)), (0, 0.0))
    check(loop[1], "may touch the same element")
    b = rows()
    check(tf.while_loop(lambda i, t: b.read(i) < 3.0, lambda i, t: (i + 1, t), (0, 0.0))[1])


@pytest.mark.parametrize("swap", [False, True])
def test_a_branch_that_writes_by_itself_and_in_a_loop(swap: bool) -> None:
    """One of two writes of element 2 excludes the loop."""
    p, a = tf.placeholder_with_default(True, []), array()
    branches = [lambda: filled(lambda i: i, a.write(2, 1.0)), lambda: a.write(2, 1.0)]
    check(tf.cond(p, *(reversed(branches) if swap else branches)).stack(), "may touch the same element")


@pytest.mark.parametrize(("other", "why"), [(lambda i: i, ""), (lambda i: N - 1 - i, "may touch the same element")])
def test_branches_in_a_loop(other: Callable[[Any], Any], why: str) -> None:
    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(i > 1, lambda: a.write(i, 1.0), lambda: a.write(other(i), 2.0))

    check(tf.while_loop(lambda i, _: i < N, body, (0, array()))[1].stack(), why)


# *** lists that cannot be followed ***


def test_a_list_that_comes_in_from_elsewhere() -> None:
    stranger = tf.TensorArray(tf.float32, flow=tf.placeholder(tf.variant, []), element_shape=[])
    check(stranger.read(0) + rows().read(1), "another list of the graph has checks")


def test_a_list_that_goes_into_a_function() -> None:
    @Function
    def first(flow: Any) -> Any:
        return tf.TensorArray(tf.float32, flow=flow, element_shape=[]).read(0)

    check(first(rows().flow), "its list has a use that cannot be analyzed")


def test_a_list_that_is_fetched() -> None:
    check(filled(lambda i: i).flow)


def test_a_mark_that_is_a_target_stays(graph: Any) -> None:
    x = rows().read(0)
    (mark,) = [op for op in graph.get_operations() if op.type == "_TensorArrayMarkRead"]
    after_, context = after(x, targets=[mark])
    assert "is a target or a control result" in context.notes[0].text
    assert left(after_) > 0


def test_a_mark_that_something_else_waits_for_stays(graph: Any) -> None:
    x = rows().read(0)
    (mark,) = [op for op in graph.get_operations() if op.type == "_TensorArrayMarkRead"]
    with tf.control_dependencies([mark]):
        y = tf.constant(1.0) + 1.0
    check(x + y, "waits for")


def test_what_the_array_waits_for_runs_still() -> None:
    count = tf.get_variable("count", initializer=0.0, use_resource=True)
    with tf.control_dependencies([count.assign_add(1.0)]):
        size = tf.identity(tf.constant(2))
    out = array(n=size).unstack([1.0, 2.0]).stack()
    with tf.Session() as session:
        session.run(count.initializer)
        assert session.run(out).tolist() == [1, 2]
        assert session.run(count) == 1


def test_what_waits_for_an_array() -> None:
    a = rows()
    with tf.control_dependencies([a.flow]):
        x = tf.constant(1.0) + 1.0
    out, _ = after(x)
    assert left(out) == 0
    assert any(op.type == "TensorListFromTensor" for op in out.operations)


def test_gradients_do_not_matter() -> None:
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    y = total(lambda i: i, array().unstack(x))
    g = tf.gradients(y * y, x)[0]
    check(g)
    assert tf.Session().run(g).tolist() == [20] * 4


def test_results_are_the_same() -> None:
    a = filled(lambda i: N - 1 - i)
    np.testing.assert_array_equal(tf.Session().run(a.stack()), [3, 2, 1, 0])


@pytest.mark.one_engine
def test_the_gradient_of_a_loop_that_reads_rows_keeps_no_copy_of_them() -> None:
    def pushes(array_of: Callable[..., Any]) -> int:
        with tf.Graph().as_default():
            x, w = tf.placeholder(tf.float32, [5, 2, 3]), tf.placeholder(tf.float32, [7, 4])
            rows = array_of(tf.float32, size=5, element_shape=[2, 3]).unstack(x)

            def body(i: Any, h: Any) -> tuple[Any, Any]:
                return i + 1, tf.tanh(tf.matmul(tf.concat([rows.read(i), h], 1), w))

            _, h = tf.while_loop(lambda i, h: i < 5, body, [0, tf.zeros([2, 4])])
            gradients = tf.gradients(tf.reduce_sum(h), [x, w])
            with tf.Session() as session:
                return str(session.explain(gradients, [x, w])).count(".append(")

    assert pushes(tf.TensorArray) == pushes(hr.TensorArray)
