"""`headrace.v1.TensorArray`: each element is written once, and read once unless `clear_after_read=False`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from headrace.errors import InvalidArgumentError

READ_TWICE = r"Could not read index 0 twice because it was cleared after a previous read \(perhaps try setting "
WRITTEN = "Could not write to TensorArray index {} because it has already been written to"
READ = "Could not write to TensorArray index {} because it has already been read"


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default() as g:
        yield g


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def two(**kwargs: Any) -> Any:
    return tf.TensorArray(tf.float32, size=2, **kwargs).unstack([1.0, 2.0])


# *** reading ***

READS: dict[str, Callable[[Any], Any]] = {
    "read": lambda a: a.read(0),
    "gather": lambda a: a.gather([0]),
    "stack": lambda a: a.stack(),
    "concat": lambda a: a.concat(),
    "read at a number from outside": lambda a: a.read(tf.identity(tf.constant(0))),
}


@pytest.mark.parametrize("second", [name for name in READS if name != "concat"])
def test_a_second_read_raises(second: str) -> None:
    a = two()
    with tf.control_dependencies([READS["read"](a)]):
        again = READS[second](a)
    with pytest.raises(InvalidArgumentError, match=READ_TWICE):
        run(again)


def test_a_second_concat_raises() -> None:
    a = tf.TensorArray(tf.float32, size=2).split([1.0, 2.0, 3.0], [1, 2])
    assert run(a.concat()).tolist() == [1, 2, 3]
    with pytest.raises(InvalidArgumentError, match=READ_TWICE):
        run([a.concat(), a.concat()])


def test_one_index_twice_in_gather_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=READ_TWICE):
        run(two().gather([0, 1, 0]))


def test_elements_stay_without_clear_after_read() -> None:
    a = two(clear_after_read=False)
    assert [np.asarray(x).tolist() for x in run([a.read(0), a.read(0), a.stack()])] == [1, 1, [1, 2]]


def test_what_is_not_fetched_reads_nothing() -> None:
    a = two()
    a.read(0)
    assert run(a.read(0)) == 1


def test_each_run_begins_anew() -> None:
    x = two().read(0)
    with tf.Session() as session:
        assert [session.run(x) for _ in range(3)] == [1, 1, 1]


def test_the_error_names_the_array_and_the_line() -> None:
    a = two(tensor_array_name="rows")
    with pytest.raises(InvalidArgumentError, match="TensorArray rows: Could not read index 0 twice") as e:
        run([a.read(0), a.read(0)])
    assert "test_tensor_array.py" in "".join([str(e.value), *e.value.__notes__])


# *** writing ***


def test_a_second_write_raises() -> None:
    a = tf.TensorArray(tf.float32, size=3).write(2, 3.0)
    with pytest.raises(InvalidArgumentError, match=WRITTEN.format(2)):
        run(a.write(2, 4.0).stack())


def test_a_second_write_to_an_older_version_raises() -> None:
    a = tf.TensorArray(tf.float32, size=2, clear_after_read=False)
    with pytest.raises(InvalidArgumentError, match=WRITTEN.format(0)):
        run([a.write(0, 1.0).flow, a.write(0, 2.0).flow])


def test_a_write_after_a_read_raises() -> None:
    a = tf.TensorArray(tf.float32, size=2, element_shape=[], clear_after_read=False)
    with tf.control_dependencies([a.read(0)]):
        later = a.write(0, 1.0)
    with pytest.raises(InvalidArgumentError, match=READ.format(0)):
        run(later.stack())


@pytest.mark.parametrize(
    "fill",
    [
        lambda a: a.unstack([1.0, 2.0]),
        lambda a: a.split([1.0, 2.0], [1, 1]),
        lambda a: a.scatter([1, 0], [1.0, 2.0]),
    ],
)
def test_filling_a_written_array_raises(fill: Callable[[Any], Any]) -> None:
    a = tf.TensorArray(tf.float32, size=2, infer_shape=False).write(0, 1.0)
    with pytest.raises(InvalidArgumentError, match=WRITTEN.format(0)):
        run(fill(a).size())


def test_one_index_twice_in_scatter_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=WRITTEN.format(1)):
        run(tf.TensorArray(tf.float32, size=2).scatter([1, 1], [1.0, 2.0]).stack())


# *** loops ***


def squares(n: Any, index: Callable[[Any], Any], size: int = 5) -> Any:
    a = tf.TensorArray(tf.int32, size=size, element_shape=[])
    return tf.while_loop(lambda i, _: i < n, lambda i, a: (i + 1, a.write(index(i), i * i)), (0, a))[1]


@pytest.mark.parametrize(
    ("index", "want"),
    [
        (lambda i: i, [0, 1, 4, 9, 16]),
        (lambda i: 4 - i, [16, 9, 4, 1, 0]),
        (lambda i: tf.cond(i > 2, lambda: i, lambda: 2 - i), [4, 1, 0, 9, 16]),
        (lambda i: i // 2, 0),
        (lambda i: 3, 3),
        (lambda i: tf.maximum(i, 1), 1),
    ],
)
def test_writes_of_a_loop(index: Callable[[Any], Any], want: Any) -> None:
    out = squares(5, index).stack()
    if isinstance(want, list):
        assert run(out).tolist() == want
    else:
        with pytest.raises(InvalidArgumentError, match=WRITTEN.format(want)):
            run(out)


def test_an_array_made_in_a_loop_is_another_one_in_each_iteration() -> None:
    def body(i: Any, total: Any) -> Any:
        a = tf.TensorArray(tf.int32, size=1, element_shape=[]).write(0, i)
        return i + 1, total + a.read(0)

    assert run(tf.while_loop(lambda i, _: i < 4, body, (0, 0)))[1] == 6


def test_rows_are_read_once_by_a_loop() -> None:
    x = tf.placeholder(tf.float32, [None])
    a = tf.TensorArray(tf.float32, size=tf.size(x), element_shape=[]).unstack(x)

    def total(index: Callable[[Any], Any]) -> Any:
        return tf.while_loop(lambda i, _: i < tf.size(x), lambda i, t: (i + 1, t + a.read(index(i))), (0, 0.0))[1]

    assert run(total(lambda i: i), {x: [1.0, 2.0, 3.0]}) == 6
    with pytest.raises(InvalidArgumentError, match=READ_TWICE):
        run(total(lambda i: i * 0), {x: [1.0, 2.0, 3.0]})


def test_a_table_that_a_loop_fills_from_itself() -> None:
    a = tf.TensorArray(tf.int32, size=10, clear_after_read=False).write(0, 1).write(1, 1)

    def body(i: Any, a: Any) -> Any:
        return i + 1, a.write(i, a.read(i - 1) + a.read(i - 2))

    assert run(tf.while_loop(lambda i, _: i < 10, body, (2, a))[1].stack()).tolist() == [
        1, 1, 2, 3, 5, 8, 13, 21, 34, 55,
    ]  # fmt: skip


# *** gradients ***


def test_derivatives_of_order_three() -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    a = tf.TensorArray(tf.float32, size=3).unstack(x)
    made = tf.TensorArray(tf.float32, size=3, element_shape=[])

    def body(i: Any, made: Any) -> Any:
        row = a.read(i)
        return i + 1, made.write(2 - i, row**4)

    y = tf.reduce_sum(tf.while_loop(lambda i, _: i < 3, body, (0, made))[1].stack())
    first = tf.gradients(y, x)[0]
    second = tf.gradients(first, x)[0]
    third = tf.gradients(second, x)[0]
    want = [[4, 32, 108], [12, 48, 108], [24, 48, 72]]
    assert [g.tolist() for g in run([first, second, third])] == want


def test_gradients_of_what_is_checked_when_it_runs() -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    at = tf.placeholder(tf.int32, [3])
    a = tf.TensorArray(tf.float32, size=3, clear_after_read=False).unstack(x)
    y = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t + a.read(at[i]) ** 2), (0, 0.0))[1]
    g = tf.gradients(y, x)[0]
    assert run(g, {at: [2, 0, 2]}).tolist() == [2, 0, 12]


# *** other ways in and out ***


def test_the_default_is_tensorflow_2s_in_headrace() -> None:
    import headrace as hr

    with hr.Graph() as g:
        a = hr.TensorArray(hr.float32, size=2).unstack([1.0, 2.0]).write(0, 3.0)
        out = [a.read(0), a.read(0)]
    assert hr.Session(graph=g).run(out) == [3, 3]


def test_arrays_for_tensorflow_are_lists_without_checks(graph: Any) -> None:
    out = squares(3, lambda i: i, 3).stack()
    again = two().read(0)
    written = graph.as_graph_def()
    types = {n.op for n in written.node} | {n.op for f in written.library.function for n in f.node_def}
    assert not any(t.startswith("_TensorArray") for t in types)
    with tf.Graph().as_default():
        names = tf.import_graph_def(written, return_elements=[out.name, again.name], name="")
        assert [np.asarray(x).tolist() for x in run(names)] == [[0, 1, 4], 1]


@pytest.mark.parametrize("of", ["the gradient", "both"])
def test_a_gradient_alone_checks_the_reads_that_it_needs(of: str) -> None:
    x = tf.placeholder(tf.float32, [4])
    array = tf.TensorArray(tf.float32, size=4).unstack(x)

    def body(i: Any, total: Any) -> tuple[Any, Any]:
        value = array.read(i // 2)
        return i + 1, total + value * value

    _, total = tf.while_loop(lambda i, total: i < 4, body, [0, 0.0])
    (dx,) = tf.gradients(total, x)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="Could not read index 0 twice"):
        session.run(dx if of == "the gradient" else [total, dx], {x: [1.0, 2.0, 3.0, 4.0]})
