"""Owners of resources: a `ResourceManager` for each session, and one for each running step.

The key of a resource is (container, kind, name). Containers group resources so that they can be dropped together; the
default is "localhost". The kind is the class that an operation expects (`Variable`, `Queue`). So the same name with two
kinds refers to two resources.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace import shapes, thresholds
from headrace.errors import AlreadyExistsError, CancelledError, InvalidArgumentError, NotFoundError
from headrace.memo import cached
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping

    from headrace.dtypes import DType
    from headrace.shapes import Shape

DEFAULT_CONTAINER = "localhost"

R = TypeVar("R")


class ResourceManager:
    """Resources of one session or one step, by container, kind and name. Thread safe.

    When a resource is dropped, its method `release()` is called, if it has one. It cancels waiting requests and frees
    the memory of the resource.

    Attributes:
      bound: For users of resources what they made for those that they found, with the `generation` before the look-up.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._resources: dict[tuple[str, type, str], Any] = {}
        self._numbers = itertools.count()
        self._closed = False
        self._generation = object()
        self.bound: MutableMapping[Any, tuple[object, Any]] = weakref.WeakKeyDictionary()

    @property
    def generation(self) -> object:
        """An object that is replaced by an unequal one whenever resources are dropped.

        A resource that was found stays that of its key until then.
        """
        return self._generation

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
        found: R | None = self._resources.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._resources.get(key)  # another thread may have made it
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
        if not self._drop([key]):
            raise NotFoundError(f"Resource {_show(key)} does not exist, so it cannot be deleted")

    def of_kind(self, kind: type[R]) -> dict[tuple[str, str], R]:
        """All resources of a kind, by container and name."""
        with self._lock:
            return {(k[0], k[2]): r for k, r in self._resources.items() if k[1] is kind}

    def remove(self, handle: Handle) -> bool:
        """Drops the resource of `handle`; returns False if the manager does not contain it."""
        with self._lock:
            keys = [
                k
                for k in self._resources
                if (k[0], k[1].__name__, k[2]) == (handle.container, handle.kind, handle.name)
            ]
        return self._drop(keys)

    def owned(self, handle: Handle) -> Handle:
        """The handle with its resource as its own; `handle` if the manager lacks it."""
        with self._lock:
            for (container, kind, name), resource in self._resources.items():
                if (container, kind.__name__, name) == (handle.container, handle.kind, handle.name):
                    return dataclasses.replace(handle, owned=resource)
        return handle

    def names(self) -> list[tuple[str, str, str]]:
        """Container, kind and name of each resource, sorted."""
        with self._lock:
            return sorted((container, kind.__name__, name) for container, kind, name in self._resources)

    def clear_container(self, container: str) -> None:
        """Drops all resources of `container`, if any."""
        container = container or DEFAULT_CONTAINER
        with self._lock:
            keys = [k for k in self._resources if k[0] == container]
        self._drop(keys)

    def close(self) -> None:
        """Drops all resources and refuses new ones. Further calls have no effect."""
        with self._lock:
            self._closed = True
            keys = list(self._resources)
        self._drop(keys)

    def unique_name(self, prefix: str) -> str:
        """A name that no other call returns: `prefix`, "_" and a number."""
        return f"{prefix}_{next(self._numbers)}"

    def __len__(self) -> int:
        return len(self._resources)

    def __repr__(self) -> str:
        with self._lock:
            names = sorted(map(_show, self._resources))
        return f"ResourceManager({', '.join(names)}{', closed' if self._closed else ''})"

    def _drop(self, keys: Iterable[tuple[str, type, str]]) -> bool:
        """Drops the resources with these keys; returns False if there are none."""
        with self._lock:
            gone = [self._resources.pop(k) for k in keys if k in self._resources]
            if gone:
                self._generation = object()
                self.bound.clear()
        for resource in gone:
            _release(resource)
        return bool(gone)

    def _check_open(self) -> None:
        if self._closed:
            raise CancelledError("the session or step that owns these resources has been closed")


@record(frozen=True, slots=True)
class Handle:
    """Value of a tensor of dtype resource: the name of a resource as data.

    An operation finds the resource in the manager of its session or step (`resource_of`). A resource without a name (a
    fed variable, an anonymous table, the resources of eager ops) belongs to its handle, and is freed with it.

    Attributes:
      device: The device of the operation that made the resource; "" if it requested none.
      container: The container in its manager.
      kind: The name of the class under which the manager has it.
      name: The name in its manager.
      of_step: Whether the manager is that of the step, else that of the session.
      value_dtype: The name of the dtype of its contents, if these are tensors of one kind; else "".
      value_shape: The static shape of its contents, if these are tensors of one kind.
      owned: A resource that belongs to the handle; None for one that a manager owns. Only a handle without it is data.
    """

    device: str
    container: str
    kind: str
    name: str
    of_step: bool = False
    value_dtype: str = ""
    value_shape: tuple[int | None, ...] | None = None
    owned: Any = None

    def __repr__(self) -> str:
        held = f" of {self.value_dtype}{shapes.show(self.value_shape)}" if self.value_dtype else ""
        return f"<{self.kind} {self.container}/{self.name}{held}>"


@cached(thresholds.MEMOIZED_HANDLES, "handles of resources")
def _handle(
    device: str, container: str, kind: type, name: str, of_step: bool, dtype: DType | None, shape: Shape
) -> Handle:
    held = "" if dtype is None else dtype.name
    return Handle(device, container or DEFAULT_CONTAINER, kind.__name__, name, of_step, held, shape)


def handle_of(
    op: Any,
    container: str,
    kind: type,
    name: str,
    dtype: DType | None = None,
    shape: Shape = None,
    of_step: bool = False,
) -> Handle:
    """The handle of a resource of a session's or a step's manager.

    Args:
      op: The operation that makes the handle (`KernelContext.op`).
      container: The container; "" for the default one.
      kind: The class under which the manager has the resource.
      name: The name of the resource.
      dtype, shape: Dtype and static shape of its contents, if these are tensors of one kind.
      of_step: Whether the manager is that of the step.
    """
    return _handle(op.device, container, kind, name, of_step, dtype, shape)


class Owners(Protocol):
    """The managers of a running step (`ir.kernel.StepContext`)."""

    @property
    def session(self) -> ResourceManager:
        """The manager of its session."""

    @property
    def resources(self) -> ResourceManager:
        """The manager of the step itself."""


def resource_of(step: Owners, value: Any, kind: type[R]) -> R:
    """The resource of a scalar handle, which must be of class `kind`.

    Raises:
      InvalidArgumentError: `value` is not a scalar handle, or its resource is of another class.
      NotFoundError: The resource does not exist in this session or step.
    """
    if value.__class__ is not Handle:
        raise _no_handle(value, kind.__name__)
    owned = value.owned
    if owned is None and value.kind == kind.__name__:
        return (step.resources if value.of_step else step.session).lookup(value.container, kind, value.name)
    if not isinstance(owned, kind):
        raise InvalidArgumentError(
            f"Trying to access resource {value.name!r} as a {kind.__name__}, but it is a {value.kind}: "
            "the handle of another op was passed"
        )
    return owned


def destroy(step: Owners, value: Any) -> bool:
    """Drops the resource of a scalar handle; returns False if it does not exist.

    Raises:
      InvalidArgumentError: `value` is not a scalar handle.
    """
    if value.__class__ is not Handle:
        raise _no_handle(value, "resource")
    return (step.resources if value.of_step else step.session).remove(value)


def _no_handle(value: Any, kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"expected the handle of a {kind} (a scalar of dtype resource), got {type(value).__name__}"
    )


def _release(resource: Any) -> None:
    release = getattr(resource, "release", None)
    if release is not None:
        release()


def _show(key: tuple[str, type, str]) -> str:
    container, kind, name = key
    return f"{container}/{name}/{kind.__name__}"
