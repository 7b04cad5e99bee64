"""Kernels that are made for resources, once until resources are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace.errors import HeadraceError
from headrace.ir.kernel import KernelContext

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from headrace.ir.graph import Operation
    from headrace.ir.kernel import Kernel, StepContext

_Made: TypeAlias = "tuple[Callable[..., Any], ...]"


class Manager(Protocol):
    """Owner of the resources of a session (`resources.manager.ResourceManager`).

    Attributes:
      bound: For users of resources what they made for those that they found, with the `generation` before the look-up.
    """

    bound: MutableMapping[Any, tuple[object, Any]]

    @property
    def generation(self) -> object:
        """An object that is replaced whenever resources are dropped."""


class Resources:
    """Resources of a compiled step, and its kernels on them. Thread-safe.

    The session's manager has the kernels (`ResourceManager.bound`), so that they end with its resources.

    Args:
      named: The operations whose resources each run has, with the kernels that make them if there are none.
      users: The operations on these resources, with kernels of the form `ir.kernel.OnResources` and their handles.
    """

    __slots__ = ("__weakref__", "_named", "_users")

    def __init__(
        self,
        named: Sequence[tuple[Operation, Kernel]],
        users: Sequence[tuple[Operation, Kernel, tuple[Any, ...]]],
    ) -> None:
        self._named, self._users = named, users

    def __bool__(self) -> bool:
        return bool(self._named)

    def known(self, manager: Manager) -> _Made | None:
        """The kernels for the resources of a manager, once a step has found all."""
        found: tuple[object, _Made] | None = manager.bound.get(self)
        return found[1] if found is not None and found[0] == manager.generation else None

    def bound(self, step: StepContext) -> _Made:
        """The kernels for the resources of a step, in the order of `users`."""
        manager = step.session
        known = self.known(manager)
        if known is not None:
            return known
        generation = manager.generation  # before the look-ups, in case that resources are dropped meanwhile
        for op, kernel in self._named:
            kernel.factory(KernelContext(step, op), op.attrs)()
        is_whole = True
        found = []
        for op, kernel, handles in self._users:
            factory: Any = kernel.factory
            try:
                found.append(factory.make(op.attrs, *factory.find(step, op.attrs, *handles)))
            except HeadraceError:  # the step fails with this error only if the operation runs
                is_whole = False
                found.append(_late(factory(KernelContext(step, op), op.attrs), handles))
        made = tuple(found)
        if is_whole:
            manager.bound[self] = generation, made
        return made


def _late(kernel: Callable[..., Any], handles: tuple[Any, ...]) -> Callable[..., Any]:
    """A kernel that looks for its resources when it is called."""
    return lambda *inputs: kernel(*handles, *inputs)
