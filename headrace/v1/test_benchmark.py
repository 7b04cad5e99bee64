"""Benchmarks of TensorFlow 1's `tf.test`: methods that time operations of a session.

Source: TensorFlow's `python/platform/benchmark.py`. `tf.test.main` runs the benchmarks that `--benchmarks=REGEX` names.
"""

from __future__ import annotations

import io
import re
import statistics
import time
from collections.abc import Iterator
from typing import Any

from headrace import step_events
from headrace.metadata.run import RunOptions
from headrace.pb import ConfigProto
from headrace.pb.rewriter_config_pb2 import RewriterConfig


def benchmark_config() -> Any:
    """Returns a `ConfigProto` without the optimization of control dependencies.

    Source: TensorFlow's `tf.test.benchmark_config`.
    """
    config = ConfigProto()
    config.graph_options.rewrite_options.dependency_optimization = RewriterConfig.OFF
    return config


class Benchmark:
    """Base class of benchmarks: each method `benchmark...` is one.

    Source: TensorFlow's `tf.test.Benchmark`.

    Example:
      >>> import headrace.v1 as tf
      >>> class SquareBenchmark(tf.test.Benchmark):
      ...     def benchmark_square(self):
      ...         with tf.Graph().as_default(), tf.Session() as session:
      ...             self.run_op_benchmark(session, tf.square(tf.ones([4])), min_iters=3)
      >>> SquareBenchmark().evaluate("benchmark_square")  # doctest: +ELLIPSIS
      SquareBenchmark.benchmark_square: 3 iterations, ... us each
    """

    @classmethod
    def is_abstract(cls) -> bool:
        """Returns whether the class has no benchmark."""
        return not cls.names()

    @classmethod
    def names(cls) -> list[str]:
        """Returns the names of the benchmarks."""
        return [n for n in dir(cls) if n.startswith("benchmark") and callable(getattr(cls, n))]

    def evaluate(self, method: str) -> None:
        """Runs a benchmark.

        Args:
          method: its name.
        """
        self._method = method
        getattr(self, method)()

    def report_benchmark(
        self,
        iters: int | None = None,
        cpu_time: float | None = None,
        wall_time: float | None = None,
        throughput: float | None = None,
        extras: dict[str, Any] | None = None,
        name: str | None = None,
        metrics: list[dict[str, Any]] | None = None,
    ) -> None:
        """Prints the results of a benchmark.

        Args:
          iters: number of iterations.
          cpu_time, wall_time: seconds of an iteration.
          throughput: MB of a second.
          extras: more numbers by name.
          name: name of the benchmark; None: that of the class and the method.
          metrics: dicts with a "name" and a "value".
        """
        shown = name or f"{type(self).__name__}.{getattr(self, '_method', 'benchmark')}"
        parts = [] if iters is None else [f"{iters} iterations"]
        if wall_time is not None:
            parts.append(f"{wall_time * 1e6:.1f} us each")
        if cpu_time is not None:
            parts.append(f"{cpu_time * 1e6:.1f} us of the processor each")
        if throughput is not None:
            parts.append(f"{throughput:.1f} MB/s")
        parts += [f"{key}: {value}" for key, value in (extras or {}).items()]
        parts += [f"{m['name']}: {m['value']}" for m in metrics or ()]
        print(f"{shown}: {', '.join(parts)}")

    def run_op_benchmark(
        self,
        sess: Any,
        op_or_tensor: Any,
        feed_dict: Any = None,
        burn_iters: int = 2,
        min_iters: int = 10,
        store_trace: bool = False,
        store_memory_usage: bool = True,
        name: str | None = None,
        extras: dict[str, Any] | None = None,
        mbs: float = 0,
    ) -> dict[str, Any]:
        """Times an operation, and reports the median.

        Args:
          sess: the session.
          op_or_tensor: the operation, or a tensor, whose value is not fetched.
          feed_dict: values of placeholders.
          burn_iters: number of runs before those that are timed.
          min_iters: number of runs that are timed.
          store_trace: whether the result has a Chrome trace of one more run.
          store_memory_usage: accepted as in TensorFlow, without effect: `hr.profile` measures memory.
          name, extras: see `report_benchmark`.
          mbs: MB that a run processes, for the throughput.

        Returns:
          A dict with "iters", "wall_time" (seconds), "throughput", "name" and "extras".
        """
        target = getattr(op_or_tensor, "op", op_or_tensor)
        for _ in range(burn_iters):
            sess.run(target, feed_dict=feed_dict)
        seconds = []
        for _ in range(min_iters):
            start = time.perf_counter()
            sess.run(target, feed_dict=feed_dict)
            seconds.append(time.perf_counter() - start)
        median = statistics.median(seconds) if seconds else 0.0
        throughput = mbs / median if median else 0.0
        found: dict[str, Any] = dict(extras or {})
        if store_trace:
            found["full_trace_chrome_format"] = _trace(sess, target, feed_dict)
        shown = {key: value for key, value in found.items() if key != "full_trace_chrome_format"}
        self.report_benchmark(min_iters, wall_time=median, throughput=throughput or None, extras=shown, name=name)
        return {
            "iters": min_iters,
            "wall_time": median,
            "throughput": throughput,
            "name": name or type(self).__name__,
            "extras": found,
        }


def _trace(sess: Any, target: Any, feed_dict: Any) -> str:
    """The Chrome trace of a run."""
    events: list[Any] = []
    options = RunOptions(trace_level=RunOptions.FULL_TRACE, listener=events.append)
    sess.run(target, feed_dict=feed_dict, options=options)
    text = io.StringIO()
    step_events.write_chrome(events, text)
    return text.getvalue()


def _below(cls: type[Benchmark]) -> Iterator[type[Benchmark]]:
    for heir in cls.__subclasses__():
        yield heir
        yield from _below(heir)


def run_benchmarks(pattern: str) -> None:
    """Runs the benchmarks whose names `Class.method` have a match of a pattern.

    Args:
      pattern: a regular expression; "all": every benchmark.
    """
    wanted = re.compile(".*" if pattern == "all" else pattern)
    for cls in _below(Benchmark):
        for method in cls.names():
            if wanted.search(f"{cls.__name__}.{method}"):
                cls().evaluate(method)
