"""Owners of resources: a `ResourceManager` for each session, and one for each running step.

The key of a resource is (container, kind, name). Containers group resources so that they can be dropped together; the
default is "localhost". The kind is the class that an operation expects (`Variable`, `Queue`). So the same name with two
kinds refers to two resources.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from headrace import shapes
from headrace.errors import AlreadyExistsError, CancelledError, InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dtypes import DType
    from headrace.shapes import Shape

DEFAULT_CONTAINER = "localhost"

R = TypeVar("R")


class ResourceManager:
    """Resources of one session or one step, by container, kind and name. Thread safe.

    When a resource is dropped, its method `release()` is called, if it has one. It cancels waiting requests and frees
    the memory of the resource.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._resources: dict[tuple[str, type, str], Any] = {}
        self._numbers = itertools.count()
        self._closed = False

    def _forked(self) -> None:
        """Replaces the lock after a fork; owners of long-lived managers register this (`forking`)."""
        self._lock = threading.RLock()

    def create(self, container: str, kind: type[R], name: str, resource: R) -> R:
        """Adds `resource` and returns it.

        Raises:
          AlreadyExistsError: A resource with this key exists.
          CancelledError: The manager is closed.
        """
        with self._lock:
            self._check_open()
            key = (container or DEFAULT_CONTAINER, kind, name)
            if key in self._resources:
                raise AlreadyExistsError(
                    f"Resource {_show(key)} exists already; choose another name or delete it first"
                )
            self._resources[key] = resource
            return resource

    def lookup(self, container: str, kind: type[R], name: str) -> R:
        """The resource with this key.

        Raises:
          NotFoundError: There is none.
        """
        key = (container or DEFAULT_CONTAINER, kind, name)
        with self._lock:
            found: R | None = self._resources.get(key)
        if found is None:
            raise NotFoundError(f"Resource {_show(key)} does not exist: it was never created, or deleted")
        return found

    def lookup_or_create(self, container: str, kind: type[R], name: str, make: Callable[[], R]) -> R:
        """The resource with this key, which `make()` makes if there is none.

        Raises:
          CancelledError: There is none, and the manager is closed.
        """
        key = (container or DEFAULT_CONTAINER, kind, name)
        with self._lock:
            found: R | None = self._resources.get(key)
            if found is None:
                self._check_open()
                found = self._resources[key] = make()
            return found

    def delete(self, container: str, kind: type, name: str) -> None:
        """Drops the resource with this key.

        Raises:
          NotFoundError: There is none.
        """
        key = (container or DEFAULT_CONTAINER, kind, name)
        with self._lock:
            found = self._resources.pop(key, None)
        if found is None:
            raise NotFoundError(f"Resource {_show(key)} does not exist, so it cannot be deleted")
        _release(found)

    def of_kind(self, kind: type[R]) -> dict[tuple[str, str], R]:
        """All resources of a kind, by container and name."""
        with self._lock:
            return {(k[0], k[2]): r for k, r in self._resources.items() if k[1] is kind}

    def remove(self, resource: object) -> bool:
        """Drops `resource` under any name; returns False if the manager does not contain it."""
        with self._lock:
            keys = [k for k, r in self._resources.items() if r is resource]
            for k in keys:
                del self._resources[k]
        if keys:
            _release(resource)
        return bool(keys)

    def names(self) -> list[tuple[str, str, str]]:
        """Container, kind and name of each resource, sorted."""
        with self._lock:
            return sorted((container, kind.__name__, name) for container, kind, name in self._resources)

    def clear_container(self, container: str) -> None:
        """Drops all resources of `container`, if any."""
        container = container or DEFAULT_CONTAINER
        with self._lock:
            keys = [k for k in self._resources if k[0] == container]
            gone = [self._resources.pop(k) for k in keys]
        for resource in gone:
            _release(resource)

    def close(self) -> None:
        """Drops all resources and refuses new ones. Further calls have no effect."""
        with self._lock:
            self._closed = True
            gone = list(self._resources.values())
            self._resources.clear()
        for resource in gone:
            _release(resource)

    def unique_name(self, prefix: str) -> str:
        """A name that no other call returns: `prefix`, "_" and a number."""
        return f"{prefix}_{next(self._numbers)}"

    def __len__(self) -> int:
        return len(self._resources)

    def __repr__(self) -> str:
        with self._lock:
            names = sorted(map(_show, self._resources))
        return f"ResourceManager({', '.join(names)}{', closed' if self._closed else ''})"

    def _check_open(self) -> None:
        if self._closed:
            raise CancelledError("the session or step that owns these resources has been closed")


class Handle:
    """Value of a tensor of dtype resource: a resource's name and a reference to it.

    Attributes:
      container: The container in its manager.
      name: The name in its manager.
      resource: The object itself, so that ops need no lookup.
      value_dtype: The dtype of its contents, if these are tensors of one kind.
      value_shape: The static shape of its contents, if these are tensors of one kind.
    """

    __slots__ = ("container", "name", "resource", "value_dtype", "value_shape")

    def __init__(
        self,
        container: str,
        name: str,
        resource: Any,
        value_dtype: DType | None = None,
        value_shape: Shape = None,
    ) -> None:
        self.container = container or DEFAULT_CONTAINER
        self.name = name
        self.resource = resource
        self.value_dtype = value_dtype
        self.value_shape = value_shape

    @property
    def kind(self) -> str:
        """The class name of the resource."""
        return type(self.resource).__name__

    def get(self, kind: type[R]) -> R:
        """The resource, which must be of class `kind`.

        Raises:
          InvalidArgumentError: It is of another class.
        """
        resource = self.resource
        if not isinstance(resource, kind):
            raise InvalidArgumentError(
                f"Trying to access resource {self.name!r} as a {kind.__name__}, but it is a {self.kind}: "
                "the handle of another op was passed"
            )
        return resource

    def __repr__(self) -> str:
        held = "" if self.value_dtype is None else f" of {self.value_dtype.name}{shapes.show(self.value_shape)}"
        return f"<{self.kind} {self.container}/{self.name}{held}>"


def resource_of(value: Any, kind: type[R]) -> R:
    """The resource of a scalar handle, which must be of class `kind`.

    Raises:
      InvalidArgumentError: `value` is not a scalar handle, or its resource is of another class.
    """
    if not isinstance(value, Handle):
        raise InvalidArgumentError(
            f"expected the handle of a {kind.__name__} (a scalar of dtype resource), got {type(value).__name__}"
        )
    return value.get(kind)


def _release(resource: Any) -> None:
    release = getattr(resource, "release", None)
    if release is not None:
        release()


def _show(key: tuple[str, type, str]) -> str:
    container, kind, name = key
    return f"{container}/{name}/{kind.__name__}"
