"""Selection of the instruction for each operation of a step.

The record of an op determines the instruction: the ufuncs of its kernel, its form (`opkit.forms`), its role on tensor
lists. So a code generator handles a few classes of instructions instead of a thousand op types. An operation for which
no other instruction applies calls its kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import (
    Kernel,
    NamesResource,
    device_memory,
    find_kernel,
    kernel_on,
    made_for,
    residence,
    with_elements_in,
)
from headrace.ir.notes import ContiguousResult, OnDevice
from headrace.opkit.forms import NATIVE, Form, form_of
from headrace.records import record
from headrace.schedule.lists import Lists
from headrace.schedule.scalar_expressions import Apply, scalar_expression

if TYPE_CHECKING:
    from headrace.device_arrays import ArrayMemory
    from headrace.ir.graph import Operation
    from headrace.ir.op_roles import ListRole
    from headrace.schedule.regions import Item, Regions


@record(frozen=True, slots=True)
class Nothing:
    """No work: the order of the items replaces the operation."""


@record(frozen=True, slots=True)
class Constant:
    """Array that is known before the step runs.

    Attributes:
      value: The array or numpy scalar, as kernels take it.
    """

    value: Any


@record(frozen=True, slots=True)
class Forward:
    """Output 0 is an input, unchanged.

    Attributes:
      source: The position of the input.
    """

    source: int


@record(frozen=True, slots=True)
class ListOperation:
    """Operation on a tensor list that is changed in place, or on rows.

    Attributes:
      role: The role of the op.
      kind: The representation of the list: `lists.LIST` or `lists.ROWS`.
      has_blanks: Whether elements of the list may be missing.
      is_counted: Whether its elements count as memory of the device (`resources.memory`).
      memory: The memory of the device in which its elements are; None for the host.
    """

    role: ListRole
    kind: str
    has_blanks: bool
    is_counted: bool
    memory: ArrayMemory | None


@record(frozen=True, slots=True)
class Map:
    """Scalar expression, applied to the elements of the broadcast inputs.

    Attributes:
      expression: The expression.
      is_scalar: Whether output and inputs are of rank 0.
    """

    expression: Apply
    is_scalar: bool


@record(frozen=True, slots=True)
class Move:
    """Data movement, reduction or product with static parameters.

    Attributes:
      form: The form of the operation.
    """

    form: Form


@record(frozen=True, slots=True)
class KernelCall:
    """Call of the kernel.

    Attributes:
      kernel: The kernel.
      bound: The number of first inputs whose resources are found before the run, so that it is called with the others.
    """

    kernel: Kernel
    bound: int = 0


@record(frozen=True, slots=True)
class Resource:
    """Handle that is known before the step runs.

    Attributes:
      handle: The handle.
      kernel: The kernel that makes it, and the resource if there is none.
    """

    handle: Any
    kernel: Kernel


Instruction: TypeAlias = Nothing | Constant | Forward | ListOperation | Map | Move | KernelCall | Resource


class Selection:
    """Instructions of a step.

    Args:
      regions: The regions of the step, whose operations all have kernels.

    Attributes:
      lists: The representations of the tensor lists.
    """

    def __init__(self, regions: Regions) -> None:
        self.lists = Lists(regions)
        self._chosen: dict[Item, Instruction] = {}
        self._expressions: dict[Operation, Apply | None] = {}
        self._forms: dict[Operation, Form | None] = {}
        self._kernels: dict[Operation, Kernel] = {}

    def of(self, item: Item) -> Instruction:
        """The instruction of an item that owns no graphs."""
        found = self._chosen.get(item)
        if found is None:
            found = self._chosen[item] = self._choose(item)
        return found

    def _choose(self, item: Item) -> Instruction:
        op = item.op
        facts = op.opdef.facts
        if op.type == "Const" and isinstance(op.attrs["value"], np.ndarray):
            return Constant(made_for(op, self._kernel(op))())
        if op.opdef.primitive == "ControlTrigger":
            return Nothing()
        if facts.forwards is not None and item.live in ((), (0,)) and op.opdef.is_pure:
            return Forward(facts.forwards)
        if facts.list_role is not None:
            this = op.outputs[0] if facts.list_role.makes else op.inputs[0]
            kind = self.lists.kind(this)
            if kind:
                has_blanks, is_counted = self.lists.has_blanks(this), self.lists.is_counted(this)
                return ListOperation(facts.list_role, kind, has_blanks, is_counted, residence(this))
        if item.live:
            expression = self._expression(op)
            if expression is not None:
                return Map(expression, all(t.shape == () for t in (*op.inputs, op.outputs[0])))
            form = self._form(op)
            if form is not None and not isinstance(form, NATIVE):
                return Move(form)
        kernel = self._kernel(op)
        if isinstance(kernel.factory, NamesResource) and (handle := kernel.factory.known(op)) is not None:
            return Resource(handle, kernel)
        is_idle = kernel.form == "pure" and not op.outputs and not facts.blocking
        return Nothing() if is_idle else KernelCall(kernel)

    def _kernel(self, op: Operation) -> Kernel:
        kernel = self._kernels.get(op)
        if kernel is None:
            there = op.notes.get(OnDevice)
            on_device = None if there is None else kernel_on(op, DeviceSpec.from_string(there.device))
            kernel = on_device or find_kernel(op)
            assert kernel is not None
            if on_device is None and there is not None and "element_dtype" in op.attrs:
                memory = device_memory(op)
                assert memory is not None
                kernel = with_elements_in(kernel, memory)
            self._kernels[op] = kernel
        return kernel

    def _expression(self, op: Operation) -> Apply | None:
        if op not in self._expressions:
            found = None
            if len(op.outputs) == 1 and op.inputs and op.opdef.kernel is not None:
                kernel = self._kernel(op)
                if kernel.factory is op.opdef.kernel:
                    found = scalar_expression(op, kernel.factory, made_for(op, kernel))
            self._expressions[op] = found
        return self._expressions[op]

    def _form(self, op: Operation) -> Form | None:
        """The form of `op`; None if its kernel is not that of the record."""
        if op not in self._forms:
            is_known = op.opdef.form is not None and (
                self._kernel(op).factory is op.opdef.kernel or ContiguousResult in op.notes
            )
            self._forms[op] = form_of(op) if is_known else None
        return self._forms[op]
