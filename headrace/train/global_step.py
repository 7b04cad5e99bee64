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

NAME = "global_step"  # of the variable, and of its collection in a graph of TensorFlow 1


def root_of(graph: Graph | None = None) -> scopes.Graph:
    """`graph`, or the one entered, without the conditionals, loops and functions that one is in.

    Raises:
      GraphError: no graph is given and none has been entered.
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
    """The global step of a graph: a variable (of an imported graph it may be a tensor); None if there is none.

    Raises:
      GraphError: the graph has several that count as one; or it is no integer, or not a single one.
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
      TypeError: it is neither, or not of an integer dtype. GraphError (a ValueError): it is no scalar.
    """
    if not isinstance(step, Variable | Tensor):
        raise TypeError(f"the global step must be a variable or a tensor, got {step!r} ({type(step).__name__})")
    if not step.dtype.base.is_integer:
        raise TypeError(f"the global step '{step.name}' must be of an integer dtype, it is {step.dtype.base.name}")
    if step.shape is not None and len(step.shape) != 0:
        raise GraphError(f"the global step '{step.name}' must be a scalar, its shape is {list(step.shape)}")


def get_global_step(graph: Graph | None = None) -> Any:
    """The global step of a graph, or None.

    Args:
      graph: None: the one entered.

    Raises:
      GraphError: there is no graph; or what is found cannot be a global step.

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
    """Makes the global step of a graph: an int64 variable "global_step", 0 at first, that is not trained.

    Args:
      graph: None: the one entered.

    Raises:
      ValueError: the graph has one already.

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
    """The global step of a graph, made now if there was none. See `create_global_step`.

    Source: TensorFlow's `tf.train.get_or_create_global_step`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.train.get_or_create_global_step() is hr.train.get_or_create_global_step()
      True
    """
    found = global_step_of(root_of(graph))
    return create_global_step(graph) if found is None else found
