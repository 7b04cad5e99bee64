"""Resources of a session or of a pass over a dataset: shared and own containers.

Variables, queues and tables are in containers of the worker, so that all sessions and clients share them. The states
that kernels keep for themselves (random streams, counters) belong to one session, and those of the functions of a
dataset to one pass over it, as in TensorFlow. Their containers have names that begin with "_", which the names of
users' containers cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.resources.manager import ResourceManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.resources.manager import Handle

R = TypeVar("R")


class SessionResources(ResourceManager):
    """Resources as the steps of one session, or of one pass, see them. Thread-safe.

    Args:
      shared: the resources of all sessions.

    Example:
      >>> shared = ResourceManager()
      >>> a, b = SessionResources(shared), SessionResources(shared)
      >>> a.lookup_or_create("", list, "v", lambda: [1]) is b.lookup_or_create("", list, "v", list)
      True
      >>> a.lookup_or_create("_random", list, "v", lambda: [1]) is b.lookup_or_create("_random", list, "v", list)
      False
    """

    def __init__(self, shared: ResourceManager) -> None:
        super().__init__()
        self._shared = shared

    @property
    def generation(self) -> object:
        return self._generation, self._shared.generation

    def create(self, container: str, kind: type[R], name: str, resource: R) -> R:
        if container.startswith("_"):
            return super().create(container, kind, name, resource)
        return self._shared.create(container, kind, name, resource)

    def lookup(self, container: str, kind: type[R], name: str) -> R:
        if container.startswith("_"):
            return super().lookup(container, kind, name)
        return self._shared.lookup(container, kind, name)

    def lookup_or_create(self, container: str, kind: type[R], name: str, make: Callable[[], R]) -> R:
        if container.startswith("_"):
            return super().lookup_or_create(container, kind, name, make)
        return self._shared.lookup_or_create(container, kind, name, make)

    def delete(self, container: str, kind: type, name: str) -> None:
        if container.startswith("_"):
            super().delete(container, kind, name)
        else:
            self._shared.delete(container, kind, name)

    def of_kind(self, kind: type[R]) -> dict[tuple[str, str], R]:
        return {**self._shared.of_kind(kind), **super().of_kind(kind)}

    def remove(self, handle: Handle) -> bool:
        return super().remove(handle) or self._shared.remove(handle)

    def owned(self, handle: Handle) -> Handle:
        found = super().owned(handle)
        return found if found is not handle else self._shared.owned(handle)

    def names(self) -> list[tuple[str, str, str]]:
        return sorted([*self._shared.names(), *super().names()])

    def clear_container(self, container: str) -> None:
        super().clear_container(container)
        self._shared.clear_container(container)

    def unique_name(self, prefix: str) -> str:
        return self._shared.unique_name(prefix)
