"""TensorFlow 1's input pipelines (`tf.train.batch` and others), in graphs with collections.

The functions are headrace's. Counters of epochs are local variables, queue runners are in the collection QUEUE_RUNNERS,
and the number of elements in each queue is a summary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from headrace.api import scopes
from headrace.train import input
from headrace.train.input.running import Keeper
from headrace.v1.graph import GraphKeys, in_default_graph
from headrace.v1.variables import Variable

P = ParamSpec("P")
R = TypeVar("R")


class _Collections(Keeper):
    def local_variable(self, initial_value: Any, name: str, validate_shape: bool = True) -> Variable:
        """A local variable."""
        return Variable(
            initial_value,
            trainable=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
            name=name,
            validate_shape=validate_shape,
        )

    def add_scalar(self, name: str, value: Callable[[], Any]) -> None:
        """A summary."""
        from headrace.v1 import summary

        summary.scalar(name, value())


def kept(f: Callable[P, R]) -> Callable[P, R]:
    """`f`, in a graph that keeps what it makes in collections."""

    @in_default_graph
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        graph: Any = scopes.current_graph()
        while getattr(graph, "outer", None) is not None:
            graph = graph.outer
        if not any(isinstance(k, _Collections) for k in graph.kept):
            graph.kept.append(_Collections())
        return f(*args, **kwargs)

    call.__name__, call.__qualname__, call.__doc__ = f.__name__, f.__name__, f.__doc__
    call.__wrapped__ = f  # type: ignore[attr-defined]  # for its signature
    return call


match_filenames_once = kept(input.match_filenames_once)
limit_epochs = kept(input.limit_epochs)
input_producer = kept(input.input_producer)
string_input_producer = kept(input.string_input_producer)
range_input_producer = kept(input.range_input_producer)
slice_input_producer = kept(input.slice_input_producer)
batch = kept(input.batch)
batch_join = kept(input.batch_join)
maybe_batch = kept(input.maybe_batch)
maybe_batch_join = kept(input.maybe_batch_join)
shuffle_batch = kept(input.shuffle_batch)
shuffle_batch_join = kept(input.shuffle_batch_join)
maybe_shuffle_batch = kept(input.maybe_shuffle_batch)
maybe_shuffle_batch_join = kept(input.maybe_shuffle_batch_join)
