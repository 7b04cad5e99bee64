"""Kernels: which function computes an op on a device, and what a stateful one is given.

A record holds a kernel in one of four forms (design §4):

* `kernel=(xp, attrs) -> f(*arrays)`: pure; `xp` is the array namespace of the device (numpy on the CPU).
* `stateful=(ctx, attrs) -> f(*arrays)`: made once for each step and node; `ctx` is a `KernelContext`.
* `async_=(ctx, attrs) -> f(*arrays, done)`: may wait; calls `done(result)` or `done(exception)` exactly once, from any
  thread, and returns None or a function that cancels the wait.
* `override(op, device, constraints)`: replaces the record's kernel on one device, for some dtypes.

`f` returns the array if the op has one output, a tuple of arrays if it has several, None if it has none. An array is
immutable once it is returned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from headrace.ir.opdef import op_registry
from headrace.registry import Registry

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.ir.opdef import KernelFactory

CPU = "CPU"


class Step(Protocol):
    """What a kernel may know of the step it runs in; `execute.step` implements it."""

    id: int
    session: Any  # resources.manager.ResourceManager of the session
    locate: Callable[[], str] | None  # finds out the tag, where no token machine knows it
    memory: Any  # resources.step_memory.StepMemory: the account of the device; None if that has no limit

    @property
    def resources(self) -> Any:
        """The same, of this step: dropped when it ends."""
        ...

    @property
    def tag(self) -> str:
        """The frame and iteration of the node that fires now, as text; "" in the root frame."""
        ...


class KernelContext:
    """What a stateful or asynchronous kernel is made with: one for each node and step.

    Attributes:
      step: the running step (`step.session` and `step.resources` are resource managers, `step.tag` the current tag).
      node: the operation's name.
      op: the operation.
    """

    __slots__ = ("node", "op", "step")

    def __init__(self, step: Step, op: Operation) -> None:
        self.step = step
        self.op = op
        self.node = op.name


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel found for an op: its form ("pure", "stateful" or "async") and factory."""

    form: str
    factory: KernelFactory


@dataclasses.dataclass(frozen=True, slots=True)
class _Override:
    constraints: Mapping[str, frozenset[Any]]
    kernel: Kernel


_overrides: Registry[list[_Override]] = Registry("kernel override")


def override(
    op: str, device: str, constraints: Mapping[str, frozenset[Any]] | None = None, form: str = "pure"
) -> Callable[[KernelFactory], KernelFactory]:
    """Decorates a factory that replaces the kernel of `op` on `device` where the attributes (mostly those that are
    dtypes) are in `constraints`."""

    def register(factory: KernelFactory) -> KernelFactory:
        key = f"{op}@{device}"
        if key not in _overrides:
            _overrides.register(key, [], depth=2)
        _overrides.get(key).append(_Override(constraints or {}, Kernel(form, factory)))
        return factory

    return register


def find_kernel(op: Operation, device: str = CPU) -> Kernel | None:
    """The kernel that runs `op` on devices of type `device`, or None if there is none."""
    for o in _overrides.find(f"{op.type}@{device}") or ():
        if all(op.attrs.get(a) in allowed for a, allowed in o.constraints.items()):
            return o.kernel
    record = op.opdef
    if device != CPU:
        return None
    if record.kernel is not None:
        return Kernel("pure", record.kernel)
    if record.stateful is not None:
        return Kernel("stateful", record.stateful)
    if record.async_ is not None:
        return Kernel("async", record.async_)
    return None


def constant_kernel(op: Operation) -> Callable[..., Any] | None:
    """The pure kernel of `op` bound to numpy, for evaluating it before anything runs."""
    record = op_registry.find(op.type)
    if record is None or record.kernel is None:
        return None
    return record.kernel(np, op.attrs)
