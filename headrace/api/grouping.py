"""Groups of operations and tensors that wait for others: `no_op`, `group`, `tuple`, `with_dependencies`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

from headrace import nest
from headrace.api import scopes
from headrace.api.sparse_tensor import SparseTensor
from headrace.ir.builder import Builder
from headrace.ir.graph import Operation
from headrace.ir.indexed_slices import IndexedSlices


def no_op(name: str | None = None) -> Operation | None:
    """Creates an operation that does nothing; None in eager execution.

    Source: TensorFlow's `tf.no_op`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     done = hr.no_op(name="done")
      >>> hr.Session(graph=g).run(done)
      >>> done
      <Operation 'done' type=NoOp>
    """
    b = scopes.builder()
    return b.NoOp(name=name) if isinstance(b, Builder) else None


def group(*inputs: Any, name: str | None = None) -> Operation | None:
    """Creates an operation that finishes after all `inputs`.

    Args:
      inputs: operations, tensors, variables, or nested structures of them.
      name: the name of the operation; "group_deps" if None.

    Returns:
      The operation; None in eager execution, where all inputs have finished already.

    Raises:
      TypeError: an input has another type.

    Source: TensorFlow's `tf.group`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     both = hr.group(hr.constant(1), hr.constant(2))
      >>> both.name, len(both.control_inputs)
      ('group_deps', 2)
    """
    flat = nest.flatten(inputs)
    if not isinstance(scopes.builder(*flat), Builder):
        return None
    with scopes.name_scope(name, "group_deps", flat) as scope, scopes.control_dependencies(flat):
        b = scopes.builder()
        devices = {op.device for op in b.control_inputs}
        if len(devices) == 1 and not b.device:
            b = b.on(devices.pop())
        made: Operation = b.make("NoOp", (), {}, scope)
        return made


def tuple(tensors: Iterable[Any], control_inputs: Iterable[Any] | None = None, name: str | None = None) -> list[Any]:
    """Returns `tensors`, each available only after all of them and all `control_inputs`.

    Args:
      tensors: tensors, operations and None; the latter two are returned unchanged, and operations are waited for.
      control_inputs: additional operations or tensors to wait for.
      name: the name of the scope; "tuple" if None.

    Returns:
      A list like `tensors`.

    Raises:
      ValueError: `tensors` contains nothing to wait for.

    Source: TensorFlow's `tf.tuple`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     a, b = hr.tuple([hr.constant(1), hr.constant(2)])
      >>> a.name, b.name
      ('tuple/control_dependency:0', 'tuple/control_dependency_1:0')
    """
    items = list(tensors)
    waits = [x for x in items if x is not None]
    if not waits:
        raise ValueError(f"'tensors' must have at least one tensor or operation, got {items!r}")
    if not isinstance(scopes.builder(*waits), Builder):
        return items
    with scopes.name_scope(name, "tuple", waits):
        gate = group(*waits, *(control_inputs or ()))
        return [x if x is None or isinstance(x, Operation) else with_dependencies([gate], x) for x in items]


def with_dependencies(dependencies: Iterable[Any], output: Any, name: str | None = None) -> Any:
    """Returns `output`, available only after all `dependencies`; a composite's values are.

    Source: TensorFlow's `control_flow_ops.with_dependencies`.
    """
    deps: builtins.tuple[Any, ...] = (*dependencies,)
    if not isinstance(scopes.builder(output, *deps), Builder):
        return output
    if isinstance(output, (IndexedSlices, SparseTensor)):
        return output.with_values(with_dependencies(deps, output.values, name))
    with scopes.name_scope(name, "control_dependency", [output, *deps]) as scope, scopes.control_dependencies(deps):
        b = scopes.builder()
        return b.make("Identity", (b.tensor(output),), {}, scope)
