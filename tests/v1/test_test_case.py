"""`tf.test`: each assertion accepts and refuses what TensorFlow's does (recorded from 2.21)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf


class Case(tf.test.TestCase):
    __test__ = False  # for pytest: the tests are the functions below

    def runTest(self) -> None: ...


@pytest.fixture
def case() -> Any:
    found = Case()
    found.setUp()
    yield found
    found.tearDown()


HALF = np.array([1.0], np.float16), np.array([1.0009], np.float16)

ACCEPTED: list[Callable[[Any], Any]] = [
    lambda t: t.assertAllClose([1.0], [1.0 + 1e-7]),
    lambda t: t.assertAllClose({"a": [1.0], "b": ([1.0], [2.0, 3.0])}, {"b": ([1.0], [2.0, 3.0]), "a": [1.0]}),
    lambda t: t.assertAllEqual([np.nan], [np.nan]),
    lambda t: t.assertAllEqual(["a"], [b"a"]),
    lambda t: t.assertNear(1.0, 1.1, 0.2),
    lambda t: t.assertNDArrayNear(np.ones(2), np.ones(2) * 1.1, 0.2),
    lambda t: t.assertAllGreater([1, 2], 0),
    lambda t: t.assertAllInRange([1, 2], 1, 2),
    lambda t: t.assertAllInSet([1, 2], [2, 1]),
    lambda t: t.assertShapeEqual(np.ones((2, 3)), tf.zeros([2, 3])),
    lambda t: t.assertDeviceEqual("/cpu:0", "/device:CPU:0"),
    lambda t: t.assertAllCloseAccordingToType(*HALF),
    lambda t: t.assertEmpty([]),
    lambda t: t.assertLen([1], 1),
    lambda t: t.assertProtoEquals('node { name: "a" }', tf.GraphDef(node=[tf.NodeDef(name="a")])),
    lambda t: t.assertSameElements([1, 1, 2], [2, 1]),
    lambda t: t.assertItemsEqual([1, 2], [2, 1]),
]

REFUSED: list[tuple[str, Callable[[Any], Any]]] = [
    ("rtol=1e-06, atol=1e-06", lambda t: t.assertAllClose([1.0], [1.0 + 1e-5])),
    ("mismatched keys", lambda t: t.assertAllClose({"a": [1.0]}, {"b": [1.0]})),
    (r"a\[1\] is different from b\[1\]", lambda t: t.assertAllClose([[1.0], [2.0, 3.0]], [[1.0], [2.0, 3.1]])),
    ("Arrays are not equal: 1 of 2", lambda t: t.assertAllEqual([1, 2], [1, 3])),
    ("Shape mismatch", lambda t: t.assertAllEqual([1, 2], [[1, 2]])),
    (r"1.000000 != 1.300000 \+/- 0.200000", lambda t: t.assertNear(1.0, 1.3, 0.2)),
    (r"1.000000 != 1.300000", lambda t: t.assertArrayNear([1.0], [1.3], 0.2)),
    ("not greater than 1", lambda t: t.assertAllGreater([1, 2], 1)),
    (r"1 of the 2 .* \[1, 2\):", lambda t: t.assertAllInRange([1.0, 2], 1, 2, open_upper_bound=True)),
    (r"1 unique .* not in the set \[1\]: \[2\]", lambda t: t.assertAllInSet([1, 2], [1])),
    ("Tuples differ", lambda t: t.assertShapeEqual(np.ones((2,)), tf.zeros([2, 3]))),
    ("does not start with 'b'", lambda t: t.assertStartsWith("abc", "b")),
    ("equal at all", lambda t: t.assertNotAllEqual([1], [1])),
    ("close at all", lambda t: t.assertNotAllClose([1.0], [1.0])),
    ("length of 0", lambda t: t.assertNotEmpty([])),
    ("name", lambda t: t.assertProtoEquals('node { name: "a" }', tf.GraphDef(node=[tf.NodeDef(name="b")]))),
]


def test_what_tensorflow_accepts(case: Any) -> None:
    for accepts in ACCEPTED:
        accepts(case)


@pytest.mark.parametrize(("says", "refuses"), REFUSED)
def test_what_tensorflow_refuses(case: Any, says: str, refuses: Callable[[Any], Any]) -> None:
    with pytest.raises(AssertionError, match=says):
        refuses(case)


def test_sessions_of_a_test(case: Any) -> None:
    x = tf.constant([1.0, 4.0])
    with case.session() as one:
        assert tf.get_default_session() is one
        case.assertAllClose([1.0, 2.0], tf.sqrt(x))
        assert case.evaluate({"a": x})["a"].tolist() == [1.0, 4.0]
    with pytest.raises(RuntimeError):
        one.run(x)
    with case.cached_session() as first:
        pass
    with case.test_session() as second:
        assert first is second
        assert second.run(x)[1] == 4.0
    with pytest.raises(ValueError, match="another graph"), case.cached_session(graph=tf.Graph()):
        pass
    with case.test_session(graph=tf.Graph()) as other:
        assert other is not first


def test_errors_of_operations(case: Any) -> None:
    bad = tf.check_numerics(tf.constant(np.nan), "the loss")
    with case.session(), case.assertRaisesOpError("the loss"):
        bad.eval()
    with case.assertRaisesWithPredicateMatch(ValueError, lambda e: "ab" in str(e)):
        raise ValueError("xabx")
    with pytest.raises(AssertionError, match="does not fit"), case.assertRaisesWithPredicateMatch(ValueError, "q"):
        raise ValueError("xabx")
    with pytest.raises(AssertionError, match="OpError not raised"), case.assertRaisesOpError(""):
        pass


def test_threads_of_a_test_fail_it(case: Any) -> None:
    done = threading.Event()
    case.checkedThread(done.set).start()
    assert done.wait(10)
    with pytest.raises(AssertionError, match="was not joined"):
        case.tearDown()
    case._threads = []
    thread = case.checkedThread(lambda: 1 / 0)
    thread.start()
    with pytest.raises(AssertionError, match="division by zero"):
        thread.join()


def test_each_test_has_a_graph_a_seed_and_a_folder(case: Any) -> None:
    first = tf.get_default_graph()
    assert first.seed == 87654321
    case.setUp()
    assert tf.get_default_graph() is not first
    folder = Path(case.get_temp_dir())
    assert folder == Path(case.get_temp_dir())
    assert folder.parent == Path(tf.test.get_temp_dir())
    assert list(folder.iterdir()) == []


def test_what_the_process_has() -> None:
    assert (tf.test.is_gpu_available(), tf.test.gpu_device_name(), tf.test.is_built_with_cuda()) == (False, "", False)
    assert tf.test.mock.Mock(return_value=3)() == 3


def test_graph_defs_are_compared_by_nodes() -> None:
    a, b = tf.NodeDef(name="a", op="NoOp"), tf.NodeDef(name="b", op="NoOp")
    tf.test.assert_equal_graph_def(tf.GraphDef(node=[a, b]), tf.GraphDef(node=[b, a]))
    with pytest.raises(AssertionError, match=r"missing: \['b'\]"):
        tf.test.assert_equal_graph_def(tf.GraphDef(node=[a]), tf.GraphDef(node=[b, a]))
    with pytest.raises(AssertionError, match="'a' differs"):
        tf.test.assert_equal_graph_def(tf.GraphDef(node=[a]), tf.GraphDef(node=[tf.NodeDef(name="a", op="Abs")]))
    with pytest.raises(TypeError, match="GraphDef"):
        tf.test.assert_equal_graph_def(a, b)


@pytest.mark.system
def test_a_cluster_in_this_process() -> None:
    workers, ps = tf.test.create_local_cluster(1, 1, worker_config=tf.ConfigProto(device_count={"CPU": 2}))
    try:
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            x = tf.constant(2.0) * 3.0
            with tf.Session(workers[0].target) as session:
                assert session.run(x) == 6.0
    finally:
        for server in (*workers, *ps):
            server.close()
