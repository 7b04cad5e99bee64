"""TensorFlow 1's global step: `tf.train.get_or_create_global_step` and related functions."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api import scopes
from headrace.train import global_step as counted
from headrace.v1.graph import Graph, GraphKeys, get_default_graph
from headrace.v1.initializers import Zeros
from headrace.v1.variable_store import get_variable
from headrace.v1.variables import Variable


def assert_global_step(global_step_tensor: Any) -> None:
    """Checks that a variable or tensor can be a global step.

    Args:
      global_step_tensor: the variable or tensor.

    Raises:
      TypeError, ValueError: it is no integer scalar.

    Source: TensorFlow's `tf.train.assert_global_step`.
    """
    counted.check_global_step(global_step_tensor)


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The value of the global step in a session.

    Args:
      sess: the session.
      global_step_tensor: the variable or tensor, or its name.

    Source: TensorFlow's `tf.train.global_step`.
    """
    return int(sess.run(global_step_tensor))


def get_global_step(graph: Graph | None = None) -> Any:
    """Returns the global step of a graph, or None.

    It is the element of GraphKeys.GLOBAL_STEP, or the variable named "global_step".

    Args:
      graph: None: the default graph.

    Raises:
      TypeError, ValueError: it is no integer scalar; or the collection has several.

    Source: TensorFlow's `tf.train.get_global_step`.
    """
    return counted.global_step_of(graph or get_default_graph())


def create_global_step(graph: Graph | None = None) -> Any:
    """Makes the global step of a graph: an int64 variable "global_step" that is not trained.

    Args:
      graph: None: the default graph.

    Raises:
      ValueError: there is one.

    Source: TensorFlow's `tf.train.create_global_step`.

    Example:
      >>> import headrace.v1 as tf
      >>> from headrace.v1.global_step import create_global_step
      >>> with tf.Graph().as_default() as g:
      ...     step = create_global_step()
      ...     step.name, g.get_collection(tf.GraphKeys.GLOBAL_STEP) == [step]
      ('global_step:0', True)
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    if scopes.is_eager_call():  # the default graph keeps it for `get_global_step`
        made = Variable(0, trainable=False, name=GraphKeys.GLOBAL_STEP, dtype=dtypes.int64)
        graph.add_to_collection(GraphKeys.GLOBAL_STEP, made)
        return made
    with graph.as_default(), scopes.name_scope(None), scopes.control_dependencies(None):
        return get_variable(
            GraphKeys.GLOBAL_STEP,
            shape=(),
            dtype=dtypes.int64,
            initializer=Zeros(),
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )


def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """The global step of a graph, made now if there was none. See `create_global_step`.

    Source: TensorFlow's `tf.train.get_or_create_global_step`.
    """
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


__all__ = [
    "assert_global_step",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
]
