"""The global step: an int64 variable of a graph that counts training steps.

Optimizers increment it (`minimize(loss, global_step=...)`), hooks act at its values, and checkpoint names end in it. It
is found by its name or, in a graph of `headrace.v1`, by its collection. So programs need not pass it to every function.
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api import scopes
from headrace.api.variable import Variable
from headrace.errors import GraphError
from headrace.ir.graph import Graph, Tensor

NAME = "global_step"  # name of the variable, and of its collection in a graph of TensorFlow 1


def root_of(graph: Graph | None = None) -> scopes.Graph:
    """Returns the root graph of `graph`, outside of conditionals, loops and functions.

    Args:
      graph: a graph. None: the current graph.

    Raises:
      GraphError: no graph is given and none has been entered; or the root is not an `hr.Graph` or `tf.Graph`.
    """
    found: Graph | None = graph if graph is not None else scopes.current_graph()
    if found is None:
        raise GraphError("no graph: give graph=..., or call this inside `with hr.Graph() as g:`")
    while found.outer is not None:
        found = found.outer
    if not isinstance(found, scopes.Graph):
        raise GraphError(f"{found!r} is no graph that a program is written in: use hr.Graph() or tf.Graph()")
    return found


def global_step_of(graph: Graph) -> Any:
    """Returns the global step of a graph, or None if there is none.

    The global step is a variable. In an imported graph it may be a tensor.

    Raises:
      GraphError (a ValueError): several variables are in the collection "global_step", or the global step is not a
        scalar.
      TypeError: the global step does not have an integer dtype.
    """
    found: list[Any] = graph.get_collection(NAME) if hasattr(graph, "get_collection") else []
    if len(found) > 1:
        names = [v.name for v in found]
        raise GraphError(f"several global steps are in the collection {NAME!r}: {names}; leave one in it")
    if not found:
        found = [v for v in getattr(graph, "variables", ()) if v.op.name == NAME][:1]
    if not found and NAME in graph:
        found = [graph.get_tensor_by_name(NAME + ":0")]
    if not found:
        return None
    check_global_step(found[0])
    return found[0]


def check_global_step(step: Any) -> None:
    """Checks that a variable or tensor can be a global step.

    Raises:
      TypeError: `step` is not a variable or tensor, or does not have an integer dtype.
      GraphError (a ValueError): `step` is not a scalar.
    """
    if not isinstance(step, Variable | Tensor):
        raise TypeError(f"the global step must be a variable or a tensor, got {step!r} ({type(step).__name__})")
    if not step.dtype.base.is_integer:
        raise TypeError(f"the global step '{step.name}' must be of an integer dtype, it is {step.dtype.base.name}")
    if step.shape is not None and len(step.shape) != 0:
        raise GraphError(f"the global step '{step.name}' must be a scalar, its shape is {list(step.shape)}")


def get_global_step(graph: Graph | None = None) -> Any:
    """Returns the global step of a graph, or None if there is none.

    Args:
      graph: the graph. None: the current graph.

    Raises:
      GraphError, TypeError: there is no graph; or the object found cannot be a global step.

    Source: TensorFlow's `tf.train.get_global_step`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     before = hr.train.get_global_step()
      ...     step = hr.train.create_global_step()
      >>> before, hr.train.get_global_step(g) is step
      (None, True)
    """
    return global_step_of(root_of(graph))


def create_global_step(graph: Graph | None = None) -> Variable:
    """Creates the global step of a graph.

    It is an int64 variable "global_step" with initial value 0, and not trainable.

    Args:
      graph: the graph. None: the current graph.

    Raises:
      ValueError: the graph already has a global step.

    Source: TensorFlow's `tf.train.create_global_step`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.train.create_global_step().name
      'global_step:0'
    """
    root = root_of(graph)
    if global_step_of(root) is not None:
        raise ValueError(f'"{NAME}" already exists: use get_or_create_global_step()')
    with root, scopes.name_scope(None), scopes.control_dependencies(None):
        return Variable(0, trainable=False, name=NAME, dtype=dtypes.int64)


def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """Returns the global step of a graph, and creates it if there is none.

    Args:
      graph: the graph. None: the current graph.

    Raises:
      GraphError, TypeError: see `get_global_step`.

    Source: TensorFlow's `tf.train.get_or_create_global_step`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.train.get_or_create_global_step() is hr.train.get_or_create_global_step()
      True
    """
    found = global_step_of(root_of(graph))
    return create_global_step(graph) if found is None else found
