"""TensorFlow 1's scopes: names, devices and control inputs of new operations."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.api import importing, scopes
from headrace.ir.graph import Operation, Tensor
from headrace.v1.device_spec import request
from headrace.v1.graph import get_default_graph, in_default_graph, scope_in_default_graph


class name_scope:
    """Context of a unique name scope `name` (default `default_name`); its value is the prefix.

    A name that ends in "/" is taken as it is; "" or None, without a default name, leads out of all scopes.

    Args:
      name: the name; None: `default_name`.
      default_name: the name in place of None.
      values: tensors, of whose graph the scope is.

    Attributes:
      name: the name that is made unique on entry.

    Source: TensorFlow's `tf.name_scope`.

    Raises:
      ValueError: `values` are given, but no name.
    """

    def __init__(self, name: str | None, default_name: str | None = None, values: Any = None) -> None:
        if name is None and default_name is None and values is not None:
            raise ValueError("At least one of name (None) and default_name (None) must be provided.")
        self._given = name, default_name, values
        self._entered: list[contextlib.AbstractContextManager[str]] = []

    @property
    def name(self) -> str | None:
        name, default_name, _ = self._given
        return default_name if name is None else name

    def __enter__(self) -> str:
        scope = _name_scope(*self._given)
        prefix: str = scope.__enter__()
        self._entered.append(scope)
        return prefix

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        return self._entered.pop().__exit__(kind, error, trace)


@scope_in_default_graph
def _name_scope(name: str | None, default_name: str | None, values: Any) -> Any:
    return scopes.name_scope(name, default_name, values)


def op_scope(values: Any, name: str | None, default_name: str | None = None) -> Any:
    """`name_scope` with its arguments in an older order.

    Source: TensorFlow's `tf.op_scope`.
    """
    return name_scope(name, default_name, values)


@scope_in_default_graph
def device(device_name_or_function: Any) -> Any:
    """Sets the requested device of new ops.

    The argument is a device name or `DeviceSpec`, which is merged into that of the block around, a function that
    returns one for an operation, or None.

    Source: TensorFlow's `tf.device`.
    """
    return scopes.device(request(device_name_or_function))


@scope_in_default_graph
def control_dependencies(control_inputs: Any) -> Any:
    """Makes new ops wait for `control_inputs` (operations, tensors, variables).

    With None, new ops have no control inputs, not even those of the blocks around.

    Source: TensorFlow's `tf.control_dependencies`.
    """
    return scopes.control_dependencies(control_inputs)


@scope_in_default_graph
def colocate_with(op: Any, ignore_existing: bool = False) -> Any:
    """New ops stand on the device of `op`.

    Source: TensorFlow's `tf.colocate_with`.
    """
    return scopes.colocate_with(op, ignore_existing)


@scope_in_default_graph
def container(container_name: str) -> Any:
    """New variables and queues are kept in the container of that name.

    Source: TensorFlow's `tf.container`.
    """
    return get_default_graph().container(container_name)


@scope_in_default_graph
@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """New ops go into the graph around all conditionals and loops, and wait for nothing.

    Source: TensorFlow's `tf.init_scope`.
    """
    b = dataclasses.replace(scopes.builder(), graph=get_default_graph(), control_inputs=())
    with scopes.entered(b):
        yield


@in_default_graph
def import_graph_def(
    graph_def: Any,
    input_map: Mapping[str, Any] | None = None,
    return_elements: Sequence[str] | None = None,
    name: str | None = None,
    op_dict: None = None,
    producer_op_list: Any = None,
) -> Any:
    """Adds the nodes of a `GraphDef` to the default graph. See `headrace.import_graph_def`.

    Args:
      graph_def: a `GraphDef` message, headrace's or TensorFlow's, or its bytes or text.
      input_map: name of a tensor in it → what takes its place: a tensor, a variable, or a value.
      return_elements: names of the tensors and operations to return.
      name: prefix of the nodes' names, made unique; "import" if None, and none if "".
      op_dict: not used.
      producer_op_list: the op definitions of what wrote it (an `OpList`): new attributes that have their default value
        there are left out.

    Raises:
      ValueError: `input_map` has values that are no tensors, and there is no name; or see `headrace.import_graph_def`.

    Source: TensorFlow's `tf.import_graph_def`.
    """
    if input_map is not None and not isinstance(input_map, Mapping):
        raise TypeError(f"Argument `input_map` must be a dictionary. Obtained {type(input_map).__name__}")
    if name == "":
        if any(not isinstance(v, (Tensor, Operation)) for v in (input_map or {}).values()):
            raise ValueError(
                "tf.import_graph_def() requires a non-empty `name` if `input_map` contains non-Tensor values. Try "
                "calling tf.convert_to_tensor() on `input_map` values before calling tf.import_graph_def()."
            )
        return importing.import_graph_def(graph_def, "", input_map, return_elements, producer_op_list=producer_op_list)
    with scopes.name_scope(name, "import") as prefix:
        return importing.import_graph_def(
            graph_def, prefix, input_map, return_elements, producer_op_list=producer_op_list
        )
