"""Test cases of TensorFlow 1's `tf.test`, with sessions and assertions about arrays."""

# ruff: noqa: PT009 - the assertions of a `unittest.TestCase` are made of its own

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import re
import shutil
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np

from headrace import nest
from headrace.errors import OpError
from headrace.execute.devices import available, capability_of_gpu
from headrace.ir.graph import Tensor
from headrace.v1 import test_benchmark
from headrace.v1.device_spec import DeviceSpec
from headrace.v1.graph import executing_eagerly, reset_default_graph, set_random_seed
from headrace.v1.session import Session, get_default_session

_SEED = 87654321  # of the default graph of each test, TensorFlow's
_THREAD_SECONDS = 600.0  # longest wait for the thread of a test


class _OneSession(Session):
    """Session of a whole test: the `with` blocks of `cached_session` leave it open."""

    def __exit__(self, *exc: object) -> None:
        self._entered.pop().close()


class TestCase(unittest.TestCase):
    """Test case with a fresh default graph for each test.

    Arguments of the assertions may be arrays, numbers, nested structures or tensors. Tensors are evaluated first, in
    the default session.

    Source: TensorFlow's `tf.test.TestCase`.

    Example:
      >>> import headrace.v1 as tf, io, unittest
      >>> class SquareTest(tf.test.TestCase):
      ...     def test_square(self):
      ...         with self.session():
      ...             self.assertAllClose([1.0, 4.0], tf.square([1.0, 2.0]).eval())
      >>> unittest.TextTestRunner(io.StringIO()).run(SquareTest("test_square")).wasSuccessful()
      True
    """

    maxDiff = None

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)
        self._session: _OneSession | None = None
        self._threads: list[_CheckedThread] = []
        self._folder: str | None = None

    def setUp(self) -> None:
        """Makes a new default graph with a seed."""
        self._clear_cached_session()
        reset_default_graph()
        set_random_seed(_SEED)

    def tearDown(self) -> None:
        """Checks the threads of the test, and closes its session."""
        for thread in self._threads:
            thread.check_termination()
        self._threads = []
        self._clear_cached_session()

    def _clear_cached_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    # *** sessions ***

    @contextlib.contextmanager
    def session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> Iterator[Any]:
        """Returns a context with a new session, which is the default session.

        Args:
          graph: the graph; None: the default graph.
          config: a `ConfigProto`, or None.
          use_gpu, force_gpu: without effect; operations run where their devices are.
        """
        if executing_eagerly():
            yield None
            return
        with Session("", graph, config) as session:
            yield session

    @contextlib.contextmanager
    def cached_session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> Iterator[Any]:
        """Returns a context with the session of the test, which all such contexts share.

        Args:
          graph, config, use_gpu, force_gpu: see `session`. Those of the first call count.

        Raises:
          ValueError: an earlier call gave another graph.
        """
        if executing_eagerly():
            yield None
            return
        if self._session is None:
            self._session = _OneSession("", graph, config)
        elif graph is not None and graph is not self._session.graph:
            raise ValueError("cached_session: the session of this test runs another graph; use `session` for this one")
        with self._session as session:
            yield session

    def test_session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> contextlib.AbstractContextManager[Any]:
        """Returns the context of `cached_session`, or of `session` if a graph is given."""
        if self._testMethodName == "test_session":
            self.skipTest("Not a test.")  # a runner of tests takes it for one, by its name
        make = self.cached_session if graph is None else self.session
        return make(graph, config, use_gpu, force_gpu)

    def evaluate(self, tensors: Any) -> Any:
        """Returns the values of a structure of tensors.

        Args:
          tensors: a tensor, an operation, or a structure of such. Other objects stay as they are.

        Raises:
          ValueError: there are tensors of a graph and no default session.
        """
        if executing_eagerly():
            return nest.map_leaves(_array, tensors)
        session = get_default_session()
        if session is None:
            raise ValueError("evaluate needs a session: `with self.session():` or `with self.cached_session():`")
        return session.run(tensors)

    def _value(self, x: Any) -> Any:
        return self.evaluate(x) if isinstance(x, Tensor) or hasattr(x, "initializer") else x

    # *** arrays ***

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Asserts that two arrays have the same shape and elements. Two NaN are equal."""
        x, y = self._pair(a, b, msg)
        same = x == y
        if x.dtype.kind in "fc" and y.dtype.kind in "fc":
            same = same | (np.isnan(x) & np.isnan(y))
        self._all(same, x, y, "Arrays are not equal", msg)

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Asserts that two arrays differ somewhere."""
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        self.fail(self._formatMessage(msg, "The two values are equal at all elements."))

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Asserts that two arrays, or structures of arrays, are near.

        Elements are near if |a - b| <= atol + rtol |b|.

        Raises:
          AssertionError: the keys, the lengths, the shapes or the elements differ.
        """
        self._close(self._value(a), self._value(b), rtol, atol, msg, "")

    def _close(self, a: Any, b: Any, rtol: float, atol: float, msg: str | None, path: str) -> None:
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            if not (isinstance(a, Mapping) and isinstance(b, Mapping)):
                self.fail(self._formatMessage(msg, f"a{path} and b{path} must both be mappings, or neither"))
            self.assertCountEqual(a.keys(), b.keys(), f"mismatched keys of a{path} and b{path}")
            for key in a:
                self._close(self._value(a[key]), self._value(b[key]), rtol, atol, msg, f"{path}[{key!r}]")
        elif _is_ragged(a) or _is_ragged(b):
            self.assertEqual(len(a), len(b), self._formatMessage(msg, f"lengths of a{path} and b{path}"))
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self._close(self._value(x), self._value(y), rtol, atol, msg, f"{path}[{i}]")
        else:
            x, y = self._pair(a, b, msg)
            what = f"Not equal to tolerance rtol={rtol:g}, atol={atol:g}: a{path} is different from b{path}"
            self._all(np.isclose(x, y, rtol, atol, equal_nan=True), x, y, what, msg)

    def assertNotAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Asserts that two arrays are not near somewhere. See `assertAllClose`."""
        try:
            self.assertAllClose(a, b, rtol, atol)
        except AssertionError:
            return
        self.fail(self._formatMessage(msg, "The two values are close at all elements."))

    def assertAllCloseAccordingToType(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:
        """Asserts `assertAllClose` with the widest tolerance of the dtypes of both arrays."""
        x, y = _array(self._value(a)), _array(self._value(b))
        for name, wider in (
            ("float32", (float_rtol, float_atol)),
            ("complex64", (float_rtol, float_atol)),
            ("float16", (half_rtol, half_atol)),
            ("bfloat16", (bfloat16_rtol, bfloat16_atol)),
        ):
            if name in (x.dtype.name, y.dtype.name):
                rtol, atol = max(rtol, wider[0]), max(atol, wider[1])
        self.assertAllClose(x, y, rtol, atol, msg)

    def assertNear(self, f1: Any, f2: Any, err: float, msg: str | None = None) -> None:
        """Asserts that two numbers differ by at most `err`."""
        text = f"{f1:f} != {f2:f} +/- {err:f} (difference: {abs(f1 - f2):g})"
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, f"{text}: {msg}" if msg else text)

    def assertArrayNear(
        self, farray1: Sequence[float], farray2: Sequence[float], err: float, msg: str | None = None
    ) -> None:
        """Asserts that the numbers of two lists differ by at most `err`."""
        self.assertEqual(len(farray1), len(farray2), msg)
        for f1, f2 in zip(farray1, farray2, strict=True):
            self.assertNear(float(f1), float(f2), err, msg)

    def assertNDArrayNear(self, ndarray1: Any, ndarray2: Any, err: float, msg: str | None = None) -> None:
        """Asserts that the norm of the difference of two arrays is less than `err`."""
        self.assertTrue(np.linalg.norm(np.asarray(ndarray1) - np.asarray(ndarray2)) < err, msg)

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        """Asserts that all elements are greater than a number."""
        self.assertGreater(_array(self._value(a)).min(), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        """Asserts that all elements are less than a number."""
        self.assertLess(_array(self._value(a)).max(), comparison_target)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        """Asserts that all elements are a number or greater."""
        self.assertGreaterEqual(_array(self._value(a)).min(), comparison_target)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        """Asserts that all elements are a number or less."""
        self.assertLessEqual(_array(self._value(a)).max(), comparison_target)

    def assertAllInRange(
        self,
        target: Any,
        lower_bound: Any,
        upper_bound: Any,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Asserts that all elements are between two bounds.

        Args:
          target: the array.
          lower_bound, upper_bound: the bounds, which are part of the range.
          open_lower_bound, open_upper_bound: whether the bound is no part of the range.

        Raises:
          AssertionError: an element is outside; the text lists the first ones.
        """
        x = _array(self._value(target))
        low = x > lower_bound if open_lower_bound else x >= lower_bound
        high = x < upper_bound if open_upper_bound else x <= upper_bound
        outside = np.argwhere(~(low & high))
        if len(outside):
            ends = "(" if open_lower_bound else "[", ")" if open_upper_bound else "]"
            interval = f"{ends[0]}{lower_bound}, {upper_bound}{ends[1]}"
            shown = "".join(f"\n  {i.tolist()} : {x[tuple(i)]}" for i in outside[:10])
            self.fail(f"{len(outside)} of the {x.size} element(s) are outside the range {interval}:{shown}")

    def assertAllInSet(self, target: Any, expected_set: Iterable[Any]) -> None:
        """Asserts that all elements are in a set."""
        expected = list(expected_set)
        other = sorted(set(_array(self._value(target)).reshape(-1).tolist()).difference(expected))
        self.assertFalse(other, f"{len(other)} unique element(s) are not in the set {expected}: {other}")

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: str | None = None) -> None:
        """Asserts that two arrays or tensors have the same static shape."""
        self.assertTupleEqual(_shape(input_a), _shape(input_b), msg)

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:
        """Asserts the dtype of an array or of the value of a tensor."""
        self.assertEqual(_array(self._value(target)).dtype, np.dtype(getattr(expected_dtype, "numpy", expected_dtype)))

    def _pair(self, a: Any, b: Any, msg: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Returns two arrays after a check that their shapes are equal."""
        x, y = _array(self._value(a)), _array(self._value(b))
        text = f"Shape mismatch: expected {x.shape}, got {y.shape}."
        self.assertTupleEqual(x.shape, y.shape, f"{text} : {msg}" if msg else text)
        return x, y

    def _all(self, same: Any, x: np.ndarray, y: np.ndarray, what: str, msg: str | None) -> None:
        if np.all(same):
            return
        at = np.argwhere(~np.asarray(same))
        shown = "".join(f"\n  {i.tolist()}: {x[tuple(i)]!r}, {y[tuple(i)]!r}" for i in at[:10])
        text = f"{what}: {len(at)} of {x.size} elements differ{shown}\na = {x}\nb = {y}"
        self.fail(self._formatMessage(msg, text))

    # *** errors, messages and devices ***

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(
        self, exception_type: Any, expected_err_re_or_predicate: str | Callable[[Any], bool] | None
    ) -> Iterator[None]:
        """Asserts that the block raises an error with a text or a property.

        Args:
          exception_type: the class of the error.
          expected_err_re_or_predicate: a regular expression that the text has, or a function of the error, or None.
        """
        try:
            yield
        except exception_type as e:
            if callable(expected_err_re_or_predicate):
                matches = expected_err_re_or_predicate(e)
            else:
                text = getattr(e, "message", None) or str(e)
                matches = re.search(expected_err_re_or_predicate or "", f"{text}\n{e}") is not None
            if not matches:
                raise AssertionError(f"{expected_err_re_or_predicate!r} does not fit the error {e}") from e
        else:
            self.fail(f"{exception_type.__name__} not raised")

    def assertRaisesOpError(
        self, expected_err_re_or_predicate: str | Callable[[Any], bool]
    ) -> contextlib.AbstractContextManager[None]:
        """Asserts that the block raises an `OpError`. See `assertRaisesWithPredicateMatch`."""
        return self.assertRaisesWithPredicateMatch(OpError, expected_err_re_or_predicate)

    def assertProtoEquals(self, expected_message_maybe_ascii: Any, message: Any, msg: str | None = None) -> None:
        """Asserts that a message has the fields of another.

        Args:
          expected_message_maybe_ascii: a message of the same class, or its text form.
          message: the message.
          msg: further text of the error.
        """
        from google.protobuf import text_format

        expected = expected_message_maybe_ascii
        if isinstance(expected, (str, bytes)):
            expected = text_format.Parse(expected, type(message)())
        self.assertMultiLineEqual(str(expected), str(message), msg)
        self.assertEqual(expected, message, msg)

    def assertDeviceEqual(self, device1: Any, device2: Any, msg: str | None = None) -> None:
        """Asserts that two names of devices mean the same."""
        first, second = (DeviceSpec.from_string(str(d or "")) for d in (device1, device2))
        self.assertEqual(first, second, msg)

    # *** texts and containers ***

    def assertStartsWith(self, actual: str, expected_start: str, msg: str | None = None) -> None:
        """Asserts the beginning of a text."""
        if not actual.startswith(expected_start):
            self.fail(self._formatMessage(msg, f"{actual!r} does not start with {expected_start!r}"))

    def assertEndsWith(self, actual: str, expected_end: str, msg: str | None = None) -> None:
        """Asserts the end of a text."""
        if not actual.endswith(expected_end):
            self.fail(self._formatMessage(msg, f"{actual!r} does not end with {expected_end!r}"))

    def assertEmpty(self, container: Any, msg: str | None = None) -> None:
        """Asserts that a container has no elements."""
        self.assertLen(container, 0, msg)

    def assertNotEmpty(self, container: Any, msg: str | None = None) -> None:
        """Asserts that a container has elements."""
        if not len(container):
            self.fail(self._formatMessage(msg, f"{container!r} has length of 0."))

    def assertLen(self, container: Any, expected_len: int, msg: str | None = None) -> None:
        """Asserts the number of elements of a container."""
        if len(container) != expected_len:
            text = f"{container!r} has length of {len(container)}, expected {expected_len}."
            self.fail(self._formatMessage(msg, text))

    def assertBetween(self, value: Any, minv: Any, maxv: Any, msg: str | None = None) -> None:
        """Asserts that minv <= value <= maxv."""
        if not minv <= value <= maxv:
            self.fail(self._formatMessage(msg, f"{value!r} is not between {minv!r} and {maxv!r}"))

    def assertSameElements(
        self, expected_seq: Iterable[Any], actual_seq: Iterable[Any], msg: str | None = None
    ) -> None:
        """Asserts that two iterables have the same elements, however often."""
        self.assertSetEqual(set(expected_seq), set(actual_seq), msg)

    def assertItemsEqual(self, first: Iterable[Any], second: Iterable[Any], msg: str | None = None) -> None:
        """Asserts that two iterables have the same elements in any order."""
        self.assertCountEqual(first, second, msg)

    # *** files and threads ***

    def get_temp_dir(self) -> str:
        """Returns a folder for the files of this test, empty at the first call."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix=f"{self._testMethodName}_", dir=get_temp_dir())
        return self._folder

    def checkedThread(
        self, target: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> _CheckedThread:
        """Returns a thread whose error fails the test.

        Args:
          target, args, kwargs: see `threading.Thread`.

        Returns:
          An object with `start`, `join` (which raises the error) and `is_alive`.
        """
        made = _CheckedThread(self, target, tuple(args or ()), dict(kwargs or {}))
        self._threads.append(made)
        return made


class _CheckedThread:
    """Thread of a test. `join` fails the test with its error."""

    def __init__(self, case: TestCase, target: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._case = case
        self._target, self._args, self._kwargs = target, args, kwargs
        self._error: BaseException | None = None
        self._was_started = self._was_joined = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._target(*self._args, **self._kwargs)
        except BaseException as e:
            self._error = e

    def start(self) -> None:
        """Starts the thread."""
        self._was_started = True
        self._thread.start()

    def join(self) -> None:
        """Waits for the end of the thread, and fails the test with its error."""
        self._was_joined = True
        self._thread.join(_THREAD_SECONDS)
        if self._thread.is_alive():
            self._case.fail(f"a checkedThread still runs after {_THREAD_SECONDS:g} s")
        if self._error is not None:
            raise AssertionError(f"Error in checkedThread: {self._error}") from self._error

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def check_termination(self) -> None:
        """Fails the test if the thread was started and not joined."""
        if self._was_started and not self._was_joined:
            self._case.fail("A checkedThread was not joined.")


def _array(x: Any) -> np.ndarray:
    """Returns an array of a value; text as bytes, as sessions return it."""
    found = np.asarray(x)
    if found.dtype.kind == "U":
        return np.char.encode(found, "utf-8").astype(object)
    return found.astype(object) if found.dtype.kind == "S" else found


def _shape(x: Any) -> tuple[Any, ...]:
    return tuple(x.get_shape().as_list()) if hasattr(x, "get_shape") else np.shape(x)


def _is_ragged(x: Any) -> bool:
    """Whether a list is no array: of tensors, of mappings or of different lengths."""
    if not isinstance(x, (list, tuple)):
        return False
    if any(isinstance(y, (Tensor, Mapping)) for y in x):
        return True
    try:
        np.asarray(x)
    except ValueError:
        return True
    return False


_folders: list[str] = []


def get_temp_dir() -> str:
    """Returns a folder for files of tests, which is deleted when the process ends.

    Source: TensorFlow's `tf.test.get_temp_dir`.
    """
    if not _folders:
        _folders.append(tempfile.mkdtemp(prefix="headrace_test_"))
        atexit.register(shutil.rmtree, _folders[0], ignore_errors=True)
    os.makedirs(_folders[0], exist_ok=True)
    return _folders[0]


def main(argv: list[str] | None = None) -> None:
    """Runs the tests of the module `__main__`, and ends the process.

    With `--benchmarks=REGEX` it runs the benchmarks (`tf.test.Benchmark`) with such names instead, and returns.

    Args:
      argv: the command line; None: that of the process.

    Source: TensorFlow's `tf.test.main`.
    """
    for argument in sys.argv[1:] if argv is None else argv[1:]:
        if argument.startswith("--benchmarks="):
            test_benchmark.run_benchmarks(argument.partition("=")[2])
            return
    unittest.main(argv=argv)


def assert_equal_graph_def(
    actual: Any, expected: Any, checkpoint_v2: bool = False, hash_table_shared_name: bool = False
) -> None:
    """Asserts that two `GraphDef` messages have the same nodes, in any order.

    Args:
      actual, expected: the messages. Versions and libraries are not compared.
      checkpoint_v2: leaves out the names of files and tensors of savers of the second checkpoint format.
      hash_table_shared_name: leaves out the shared names of tables.

    Raises:
      AssertionError: a node is missing or differs.
      TypeError: an argument is no `GraphDef`.

    Source: TensorFlow's `tf.test.assert_equal_graph_def`.
    """
    for given in (actual, expected):
        if getattr(getattr(given, "DESCRIPTOR", None), "name", None) != "GraphDef":
            raise TypeError(f"expected a GraphDef, got {type(given).__name__}")
    mine, theirs = (
        {node.name: str(_compared(node, checkpoint_v2, hash_table_shared_name)) for node in graph.node}
        for graph in (actual, expected)
    )
    if mine.keys() != theirs.keys():
        missing, added = sorted(theirs.keys() - mine.keys()), sorted(mine.keys() - theirs.keys())
        raise AssertionError(f"nodes that are missing: {missing}; nodes that were not expected: {added}")
    for name, text in theirs.items():
        if mine[name] != text:
            raise AssertionError(f"the node {name!r} differs:\n{mine[name]}\nexpected:\n{text}")


def _compared(node: Any, checkpoint_v2: bool, hash_table_shared_name: bool) -> Any:
    """The part of a node that `assert_equal_graph_def` compares."""
    hides_value = checkpoint_v2 and node.op == "Const" and node.name.endswith(("tensor_names", "shape_and_slices"))
    hides_name = hash_table_shared_name and node.op in ("HashTable", "HashTableV2")
    if not hides_value and not hides_name:
        return node
    out = type(node)()
    out.CopyFrom(node)
    del out.attr["value" if hides_value else "shared_name"]
    return out


def create_local_cluster(
    num_workers: int, num_ps: int, protocol: str = "grpc", worker_config: Any = None, ps_config: Any = None
) -> tuple[list[Any], list[Any]]:
    """Returns the servers of a cluster in this process: workers, parameter servers.

    Args:
      num_workers, num_ps: number of tasks of both jobs.
      protocol: see `tf.train.Server`.
      worker_config, ps_config: `ConfigProto` of their servers, or None.

    Source: TensorFlow's `tf.test.create_local_cluster`.
    """
    from headrace.dist.server import Server

    numbers = {"worker": num_workers, "ps": num_ps}
    ports = _free_ports(num_workers + num_ps)
    jobs = {job: [f"localhost:{ports.pop()}" for _ in range(n)] for job, n in numbers.items() if n}
    configs = {"worker": worker_config, "ps": ps_config}
    made = {job: [Server(jobs, job, i, protocol, configs[job]) for i in range(n)] for job, n in numbers.items()}
    return made["worker"], made["ps"]


def _free_ports(n: int) -> list[int]:
    import socket

    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("localhost", 0))
        return [s.getsockname()[1] for s in sockets]


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
    """Returns whether `headrace.list_devices` has a GPU, so that sessions can have it.

    It imports PyTorch if that is installed. A session has a GPU if its config says so:
    `tf.ConfigProto(device_count={"GPU": 1})`.

    Args:
      cuda_only: without effect: all GPUs are CUDA devices.
      min_cuda_compute_capability: (major, minor) that a GPU must have; None: any.

    Source: TensorFlow's `tf.test.is_gpu_available`.
    """
    n = available("GPU")
    if min_cuda_compute_capability is None:
        return n > 0
    return any(capability_of_gpu(i) >= tuple(min_cuda_compute_capability) for i in range(n))


def gpu_device_name() -> str:
    """Returns the name of the first GPU; "" if there is none. Source: TensorFlow's `tf.test.gpu_device_name`."""
    return "/device:GPU:0" if available("GPU") else ""


def is_built_with_cuda() -> bool:
    """Returns whether CUDA is supported: no. Source: TensorFlow's `tf.test.is_built_with_cuda`."""
    return False


is_built_with_rocm = is_built_with_gpu_support = is_built_with_xla = is_built_with_cuda


def is_cpu_target_available(target: str) -> bool:
    """Returns whether XLA compiles for a kind of processor: no, there being no XLA.

    Args:
      target: its name, as "x86".

    Source: TensorFlow's `tf.test.is_cpu_target_available`.
    """
    return False


def disable_with_predicate(pred: Callable[[], bool], skip_message: str) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator of a test method, which skips it if a condition holds.

    Args:
      pred: returns the condition when the test begins.
      skip_message: the reason.

    Source: TensorFlow's `tf.test.disable_with_predicate`.
    """

    def decorator(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def run(self: unittest.TestCase, *args: Any, **kwargs: Any) -> Any:
            if pred():
                self.skipTest(skip_message)
            return method(self, *args, **kwargs)

        return run

    return decorator


def with_eager_op_as_function(cls: type | None = None, only_as_function: bool = False) -> Any:
    """Returns the class of tests unchanged: eager operations run as they are.

    Args:
      cls: the class; None: a decorator is returned.
      only_as_function: accepted as in TensorFlow.

    Source: TensorFlow's `tf.test.with_eager_op_as_function`.
    """
    return (lambda given: given) if cls is None else cls


class StubOutForTesting:
    """Replacer of attributes for the time of a test.

    Source: TensorFlow's `tf.test.StubOutForTesting`.

    Example:
      >>> import headrace.v1 as tf, math
      >>> with tf.test.StubOutForTesting() as stubs:
      ...     stubs.Set(math, "pi", 3)
      ...     math.pi
      3
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._smart = contextlib.ExitStack()

    def __enter__(self) -> StubOutForTesting:
        return self

    def __exit__(self, *exc: object) -> None:
        self.CleanUp()

    def CleanUp(self) -> None:
        """Restores all attributes."""
        self.SmartUnsetAll()
        self.UnsetAll()

    def Set(self, parent: Any, child_name: str, new_child: Any) -> None:
        """Replaces an attribute until `UnsetAll`.

        Args:
          parent: the object or class.
          child_name: name of the attribute.
          new_child: the new value.

        Raises:
          AttributeError: there is no such attribute.
        """
        self._stack.enter_context(mock.patch.object(parent, child_name, new_child))

    def UnsetAll(self) -> None:
        """Restores the attributes of `Set`, the last first."""
        self._stack.close()

    def SmartSet(self, obj: Any, attr_name: str, new_attr: Any) -> None:
        """Replaces an attribute until `SmartUnsetAll`, in the class that defines it.

        Args:
          obj: the object, class or module.
          attr_name: name of the attribute.
          new_attr: the new value.

        Raises:
          AttributeError: there is no such attribute.
        """
        owners = [obj] if inspect.ismodule(obj) else [obj, *(obj if isinstance(obj, type) else type(obj)).__mro__]
        owner = next((o for o in owners if attr_name in vars(o)), obj)
        self._smart.enter_context(mock.patch.object(owner, attr_name, new_attr))

    def SmartUnsetAll(self) -> None:
        """Restores the attributes of `SmartSet`, the last first."""
        self._smart.close()


class experimental:
    """TensorFlow's `tf.test.experimental`."""

    @staticmethod
    def sync_devices() -> None:
        """Waits for the operations of all devices; they have ended when a call returns.

        Source: TensorFlow's `tf.test.experimental.sync_devices`.
        """


def test_src_dir_path(relative_path: Any) -> str:
    """Returns a path below the folder of the running program.

    Args:
      relative_path: the path in that folder.

    Source: TensorFlow's `tf.test.test_src_dir_path`.
    """
    home = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.join(os.path.dirname(os.path.abspath(home)) if home else os.getcwd(), os.fspath(relative_path))
