"""Kernels: forms, look-up by op and device, and the context of stateful kernels.

The record of an op holds its kernel, in one of these forms:

* `kernel=(attrs) -> f(*arrays)`: pure, on numpy's arrays.
* `kernel=(xp, attrs) -> f(*arrays)` with `xp=True`: pure, on the arrays of the namespace `xp`, which is numpy on the
  CPU and another one on devices whose type has a namespace (`provide_namespace`).
* `stateful=(ctx, attrs) -> f(*arrays)`: created once for each step and node; `ctx` is a `KernelContext`.
* `async_=(ctx, attrs) -> f(*arrays, done)`: may wait; calls `done(result)` or `done(exception)` exactly once, from any
  thread, and returns None or a function that cancels the wait.

Control-flow primitives and operations that own or call functions have no kernel. `override(op, device, constraints)`
adds a kernel of one of these forms outside of the record: for a device of another type, or in place of the record's
kernel for the attributes that the constraints allow, or for operations with some notes (`ir.notes`).

`f` returns the array if the op has one output, a tuple of arrays if it has several, None if it has none. An array is
immutable once it is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from headrace.device_arrays import Elements, hosted, on_arrays
from headrace.dtypes import resource, variant
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.ir.device import DeviceSpec
from headrace.ir.notes import NO_NOTES, OnDevice
from headrace.ir.opdef import op_registry, with_namespace
from headrace.ir.source import is_ours
from headrace.records import record
from headrace.registry import DuplicateError, line_of_caller

if TYPE_CHECKING:
    from headrace.device_arrays import ArrayMemory
    from headrace.dtypes import DType
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.notes import Note, Notes
    from headrace.ir.opdef import KernelFactory, OpDef

CPU = "CPU"


class StepContext(Protocol):
    """Interface between a kernel and its step; `execute.step` implements it.

    Attributes:
      id: the number of the step.
      session: the resource manager of the session (`resources.manager.ResourceManager`).
      locate: function that returns the tag where no executor knows it, or None.
      memory: the memory account of the device (`resources.step_memory.StepMemory`); None if the device has no limit.
    """

    id: int
    session: Any  # resources.manager.ResourceManager of the session
    locate: Callable[[], str] | None  # returns the tag where no executor knows it
    memory: Any  # resources.step_memory.StepMemory; None if the device has no limit

    @property
    def resources(self) -> Any:
        """Resource manager of this step, dropped when the step ends."""
        ...

    @property
    def tag(self) -> str:
        """Frame and iteration of the node that fires, as text; "" in the root frame."""
        ...

    def look(self, doing: str = "") -> None:
        """Raises if the step was cancelled or is past its deadline, while `doing` something."""
        ...


class KernelContext:
    """Context from which a stateful or asynchronous kernel is created, for each node and step.

    Attributes:
      step: the running step (`step.session` and `step.resources` are resource managers, `step.tag` the current tag).
      node: the operation's name.
      op: the operation.

    Example:
      >>> import headrace as hr, numpy as np
      >>> own_name = hr.register_op(
      ...     "DocOwnName", outs="name: string", shape=hr.extend.scalars, grad=hr.extend.NOT_DIFFERENTIABLE,
      ...     stateful=lambda ctx, attrs: lambda: np.array(ctx.node, object))
      >>> with hr.Graph() as g:
      ...     name = own_name(name="a")
      >>> hr.Session(graph=g).run(name)
      'a'
    """

    __slots__ = ("node", "op", "step")

    def __init__(self, step: StepContext, op: Operation) -> None:
        self.step = step
        self.op = op
        self.node = op.name


class Kernel(NamedTuple):
    """Kernel of an op.

    Attributes:
      form: "pure", "stateful" or "async".
      factory: the function that creates the kernel.
    """

    form: str
    factory: KernelFactory


@record(frozen=True, slots=True)
class NamesResource:
    """Factory of a stateful kernel that makes a handle and its resource.

    Attributes:
      factory: the factory of the kernel.
      known: the handle that an operation makes in each step; None if each step has another one.
    """

    factory: KernelFactory
    known: Callable[[Operation], Any]

    def __call__(self, ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        return self.factory(ctx, attrs)


@record(frozen=True, slots=True)
class OnResources:
    """Factory of a stateful kernel whose first inputs are handles.

    Compiled code knows most handles before the step runs. It finds their resources once, and again only after resources
    were dropped (`ResourceManager.generation`).

    Attributes:
      handles: the number of handles.
      find: `(step, attrs, *handles) -> resources`; raises if one is missing or does not suit.
      make: `(attrs, *resources) -> f(*other inputs)`, which reads their state when it is called.
      conditions: the number of last inputs that only state whether `f` may fail; without them it may.
    """

    handles: int
    find: Callable[..., Iterable[Any]]
    make: Callable[..., Callable[..., Any]]
    conditions: int = 0

    def __call__(self, ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        step, n = ctx.step, self.handles
        return lambda *inputs: self.make(attrs, *self.find(step, attrs, *inputs[:n]))(*inputs[n:])


@record(frozen=True, slots=True)
class OnArrays:
    """Factory of a pure kernel on values in the memory of a device.

    Attributes:
      factory: the factory of the kernel on arrays.
      load: returns the namespace of these arrays.
      memory: the memory.
      host: the positions of inputs that the kernel reads on the host.
    """

    factory: KernelFactory
    load: Callable[[], Any]
    memory: ArrayMemory
    host: frozenset[int]

    def on_arrays(self, op: Operation) -> Callable[..., Any]:
        """Returns the kernel of `op` on arrays."""
        return made_for(op, Kernel("pure", self.factory), self.load())

    def __call__(self, xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        return on_arrays(self.factory(self.load(), attrs), self.memory, self.host)


@record(frozen=True, slots=True)
class _Override:
    constraints: Mapping[str, frozenset[Any]]
    kernel: Kernel
    where: str
    notes: frozenset[type[Note]]

    def suits(self, attrs: Mapping[str, Any], notes: Notes) -> bool:
        return all(n in notes for n in self.notes) and all(
            attrs.get(a) in allowed for a, allowed in self.constraints.items()
        )

    def meets(self, constraints: Mapping[str, frozenset[Any]], notes: frozenset[type[Note]]) -> bool:
        """Whether some attributes satisfy both these constraints and `constraints`, and the notes are the same."""
        mine = self.constraints
        return self.notes == notes and not any(
            mine[a].isdisjoint(constraints[a]) for a in mine.keys() & constraints.keys()
        )

    def __str__(self) -> str:
        """Returns the constraints as text: "T in {float16, float32}"; "" without constraints."""
        parts = [f"{a} in {{{', '.join(sorted(map(str, v)))}}}" for a, v in self.constraints.items()]
        return " and ".join(parts + [f"the note {n.__name__}" for n in self.notes])


# (op type, device type) → kernels, those with more notes first. Of those with equal notes, at most one suits an op.
_overrides: dict[tuple[str, str], list[_Override]] = {}


def override(
    op: str,
    device: str,
    constraints: Mapping[str, frozenset[Any]] | None = None,
    form: str = "pure",
    depth: int = 1,
    notes: Iterable[type[Note]] = (),
    xp: bool = False,
) -> Callable[[KernelFactory], KernelFactory]:
    """Returns a decorator that registers a kernel factory for `op` on devices of type `device`.

    On the CPU the kernel replaces that of the record.

    Args:
      op: the op type.
      device: the type of device.
      constraints: attribute (mostly a dtype) → the values for which the kernel is used; None: all values.
      form: the form of the kernel: "pure", "stateful" or "async".
      depth: the number of stack frames between the decorator's call and the line that counts as the kernel's home.
      notes: the notes of the operations for which the kernel is used. With notes, the factory receives the notes of the
        operation as last argument, and the kernel precedes those for fewer notes.
      xp: whether the factory of a pure kernel receives the namespace of the device's arrays as first argument.

    Raises (when it decorates):
      DuplicateError: a kernel for some of these attributes is registered already.
    """

    def register(factory: KernelFactory) -> KernelFactory:
        there = _overrides.setdefault((op, device), [])
        allowed, wanted = constraints or {}, frozenset(notes)
        for o in there:
            if o.meets(allowed, wanted):
                what = f" with {o}" if str(o) else ""
                raise DuplicateError(f"a kernel of {op!r} on {device}{what} is registered already, at {o.where}")
        made = factory if xp or form != "pure" else with_namespace(factory)
        there.append(_Override(allowed, Kernel(form, made), line_of_caller(depth), wanted))
        there.sort(key=lambda o: -len(o.notes))
        return factory

    return register


def find_kernel(op: Operation, device: str = CPU) -> Kernel | None:
    """Returns the kernel of `op` on devices of type `device`, or None."""
    found = _override_for(op.type, op.attrs, op.notes, device)
    if found is not None:
        return found
    record = op.opdef
    if device != CPU:
        there = _namespaces.get(device)
        if there is None or not record.xp or not there.has(op):
            return None
    if record.kernel is not None:
        return Kernel("pure", record.kernel)
    if record.stateful is not None:
        return Kernel("stateful", record.stateful)
    if record.async_ is not None:
        return Kernel("async", record.async_)
    return None


def has_kernel(type: str, attrs: Mapping[str, Any], device: str) -> bool:
    """Whether a kernel is registered for `type` with `attrs` on `device`, apart from its record."""
    return _override_for(type, attrs, NO_NOTES, device) is not None


def _override_for(type: str, attrs: Mapping[str, Any], notes: Notes, device: str) -> Kernel | None:
    found = next((o for o in _overrides.get((type, device), ()) if o.suits(attrs, notes)), None)
    if found is None or not found.notes:
        return None if found is None else found.kernel
    factory = found.kernel.factory
    return Kernel(found.kernel.form, lambda context, attrs: factory(context, attrs, notes))


def may_wait(op: Operation) -> bool:
    """Whether `op` may wait when it fires: its kernel is asynchronous or may block."""
    kernel = find_kernel(op)
    return op.opdef.facts.blocking or (kernel is not None and kernel.form == "async")


def why_none(op: Operation, device: str) -> str:
    """Returns a suffix for the error about a missing kernel of `op` on `device`.

    It lists the kernels of the op type on devices of this type with other attributes, and is "" if there are none.
    """
    there = [o for o in _overrides.get((op.type, device), ()) if not o.suits(op.attrs, op.notes)]
    if not there:
        return ""
    got = dict.fromkeys(a for o in there for a in o.constraints)
    given = ", ".join(f"{a}={op.attrs.get(a)}" for a in got)
    return f" with {given} (on {device} there are kernels for {' or '.join(map(str, there))})"


def from_outside(type: str) -> list[str]:
    """Returns the lines outside headrace that registered the op type `type` or its kernels."""
    lines = [op_registry.where(type)] if type in op_registry else []
    lines += [o.where for (op, _), there in _overrides.items() if op == type for o in there]
    return [line for line in lines if not is_ours(line)]


@record(frozen=True, slots=True)
class _Namespace:
    """Namespace of the arrays of a type of devices."""

    load: Callable[[], Any]
    dtypes: frozenset[DType]
    memory: Callable[[int], ArrayMemory]

    def has(self, op: Operation) -> bool:
        """Whether it has the dtypes of all inputs and outputs; handles are on the host."""
        tensors = (*op.inputs, *op.outputs)
        if op.opdef.kernel is None:
            return all(t.dtype.base in self.dtypes or t.dtype is resource for t in tensors)
        return all(t.dtype.base in self.dtypes for t in tensors)


_namespaces: dict[str, _Namespace] = {}  # by device type


def provide_namespace(
    device: str, load: Callable[[], Any], dtypes: Iterable[DType], memory: Callable[[int], ArrayMemory]
) -> None:
    """Registers the namespace of the arrays of devices of type `device`.

    The devices then run each op whose record declares `xp=True`, on the given dtypes.

    Args:
      device: the type of devices.
      load: returns the namespace. It is called when a kernel is first made.
      dtypes: the dtypes that its functions support.
      memory: returns the memory of a device, given its number.
    """
    _namespaces[device] = _Namespace(load, frozenset(dtypes), memory)


def has_namespace(device: str) -> bool:
    """Whether devices of type `device` have a namespace of their own."""
    return device in _namespaces


def memory_of(device: DeviceSpec) -> ArrayMemory:
    """Returns the memory of a device whose type has a namespace."""
    return _namespaces[device.type or CPU].memory(device.index or 0)


def kernel_on(op: Operation, device: DeviceSpec) -> Kernel | None:
    """Returns the kernel of `op` on a device, as `find_kernel` does.

    If the device's type has a namespace, a pure kernel is bound to it: it takes and returns values in the memory of the
    device.
    """
    kernel = find_kernel(op, device.type or CPU)
    there = _namespaces.get(device.type or CPU)
    if kernel is None or there is None or kernel.form != "pure":
        return kernel
    memory, host = there.memory(device.index or 0), host_inputs(op.opdef, op.attrs)
    return Kernel("pure", OnArrays(kernel.factory, there.load, memory, host))


def kernel_in(memory: ArrayMemory, type: str, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns the pure kernel of an op type for arrays in a memory.

    Args:
      memory: the memory.
      type: an op type whose record has a pure kernel for any namespace.
      attrs: the attributes of the op that the kernel reads.
    """
    found = _override_for(type, attrs, NO_NOTES, memory.type)
    factory = op_registry.get(type).kernel if found is None else found.factory
    assert factory is not None
    return factory(memory.namespace, attrs)


def host_kernel(op: Operation) -> Kernel | None:
    """Returns the kernel of the host for an operation on a device without one.

    It computes on copies of the values. Operations that must be with others on a device (`place.constraints`) need it.
    """
    found = find_kernel(op)
    if found is None:
        return None
    memory, is_async = device_memory(op), found.form == "async"
    return Kernel(found.form, lambda context, attrs: hosted(found.factory(context, attrs), memory, is_async))


def device_memory(op: Operation) -> ArrayMemory | None:
    """Returns the memory of the device that computes `op`; None for the host (`ir.notes.OnDevice`)."""
    there = op.notes.get(OnDevice)
    return None if there is None else memory_of(DeviceSpec.from_string(there.device))


def residence(t: Tensor) -> ArrayMemory | None:
    """Returns the memory of a value or of the elements of a list, or None."""
    there = t.op.notes.get(OnDevice)
    return device_memory(t.op) if there is not None and t.index in there.outputs else None


def keeps_elements(op: Operation) -> bool:
    """Whether an operation on lists leaves the elements where they are, on any device.

    In a step on the host and one device, they may be in the memory of the device (`partition.list_families`). Those of
    a constant are on the host.
    """
    is_known = op.opdef.is_pure and (op.opdef.xp or op.opdef.facts.forwards is not None)
    return is_known and op.type != "Const" and any(t.dtype.base is variant for t in (*op.inputs, *op.outputs))


def with_elements_in(kernel: Kernel, memory: ArrayMemory) -> Kernel:
    """Returns a kernel of an operation on lists, for elements in a memory."""
    if kernel.form != "pure":
        return kernel
    return Kernel("pure", lambda xp, attrs: kernel.factory(Elements(memory), attrs))


def host_inputs(record: OpDef, attrs: Mapping[str, Any]) -> frozenset[int]:
    """Returns the positions of the inputs that devices take from the host (`op(host=)`): axes, sizes."""
    if not record.host:
        return frozenset()
    spans = record.spans(attrs)
    return frozenset(i for name in record.host for i in range(spans[name].start, spans[name].stop))


def constant_kernel(op: Operation) -> Callable[..., Any] | None:
    """Returns the pure kernel of `op` bound to numpy, for constant folding, or None."""
    if op.type not in op_registry:
        return None
    kernel = find_kernel(op)
    return made_for(op, kernel) if kernel is not None and kernel.form == "pure" else None


def made_for(op: Operation, kernel: Kernel, xp: Any = np) -> Callable[..., Any]:
    """Returns a pure kernel for the attributes of `op`, bound to an array namespace.

    Raises:
      InvalidArgumentError: the kernel refuses the attributes. The shape rule could not check them because ranks are
        unknown.
    """
    try:
        return kernel.factory(xp, op.attrs)
    except HeadraceError:
        raise
    except ValueError as e:
        raise InvalidArgumentError(f"{e} ('{op.name}', {op.type})", op.name, op) from e
