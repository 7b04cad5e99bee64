"""Time of an element of an input pipeline, with TensorFlow's where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import headrace.v1
from benchmarks.measure import Result, alternating

ROWS: Final = np.arange(400_000, dtype=np.float32).reshape(50_000, 8)

#: Pipelines, as functions of the module, and the elements of the source that a step takes.
PIPELINES: Final[dict[str, tuple[Callable[[Any], Any], int]]] = {
    "range, map": (lambda tf: tf.data.Dataset.range(1 << 40).map(lambda x: x * 2), 1),
    "range, map, batch": (lambda tf: tf.data.Dataset.range(1 << 40).map(lambda x: x * 2).batch(100), 100),
    "range, filter, batch": (lambda tf: tf.data.Dataset.range(1 << 40).filter(lambda x: x % 2 < 1).batch(50), 100),
    "rows, shuffle, batch": (lambda tf: _rows(tf).shuffle(1000, seed=1).batch(64), 64),
    "rows, parallel map, batch, prefetch": (
        lambda tf: _rows(tf).map(lambda x: x * 2, num_parallel_calls=2).batch(64).prefetch(2),
        64,
    ),
}


def _rows(tf: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(ROWS).repeat()


def _step(tf: Any, make: Callable[[Any], Any]) -> Callable[[], Any]:
    """Returns a function that takes an element of a pipeline in a session."""
    with tf.Graph().as_default() as graph:
        iterator = tf.data.make_initializable_iterator(make(tf))
        following = iterator.get_next().op
    session = tf.Session(graph=graph)
    session.run(iterator.initializer)
    return lambda: session.run(following)


def datasets(repeats: int = 300) -> list[Result]:
    """Measures steps that take an element, in turns with TensorFlow's."""
    modules: dict[str, Any] = {"headrace": headrace.v1}
    try:
        import tensorflow.compat.v1 as tf
    except ImportError:
        pass
    else:
        tf.disable_eager_execution()
        modules["TensorFlow"] = tf
    out = []
    for name, (make, taken) in PIPELINES.items():
        times = alternating([_step(m, make) for m in modules.values()], repeats)
        mine, *others = ([1e6 * s / taken for s in each] for each in times)
        facts = f"least {min(mine):.2f}" + "".join(f", TensorFlow's {min(o):.2f}" for o in others)
        rest = dict(zip(list(modules)[1:], others, strict=True))
        out.append(Result(f"dataset: {name}", "µs for an element", mine, facts, rest))
    return out
