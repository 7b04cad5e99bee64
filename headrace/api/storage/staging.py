"""Staging areas and barriers, in which steps store tensors for other steps.

A staging area is a queue that belongs to a device; a `MapStagingArea` stores its elements under keys. A barrier
assembles elements whose components arrive one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.api.storage import queues
from headrace.api.tensors import constant_value
from headrace.errors import ShapeError
from headrace.ir.builder import Builder

_numbers: Final = itertools.count()  # for the names of areas outside of graphs


class BaseStagingArea:
    """Base of the staging areas.

    Args:
      dtypes: dtypes of the components of an element: a list.
      shapes: shapes of the components: a list; None: any shapes.
      names: names of the components: a list. Elements are then dicts.
      shared_name: areas with the same name are one area in a session; None: the area is not shared.
      capacity: the largest number of elements; 0: unlimited.
      memory_limit: the largest number of bytes; 0: unlimited.

    Raises:
      ValueError: the number of shapes or names is not that of the dtypes.
    """

    _type = ""  # prefix of the types of the operations

    def __init__(
        self,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        if shared_name is not None and not isinstance(shared_name, str):
            raise ValueError(f"shared_name must be a string, got {shared_name!r}")
        self._dtypes = queues._as_dtypes(dtypes)
        self._shapes = queues._as_shapes(shapes, self._dtypes) or [None] * len(self._dtypes)
        self._names = queues._as_names(names, self._dtypes)
        self._capacity, self._memory_limit = capacity, memory_limit
        self._name = shared_name or self._own_name()

    def _own_name(self) -> str:
        b, kind = scopes.builder(), type(self).__name__
        if not isinstance(b, Builder):
            return f"{kind}_{next(_numbers)}"
        return b.graph.unique_name(b.scope + kind)

    @property
    def name(self) -> str:
        """The shared name of the area."""
        return self._name

    @property
    def dtypes(self) -> list[dtypes.DType]:
        """The dtype of each component."""
        return list(self._dtypes)

    @property
    def shapes(self) -> list[shapes.Shape]:
        """The shape of each component; None: any shape."""
        return list(self._shapes)

    @property
    def names(self) -> list[str] | None:
        """The name of each component; None: components have no names."""
        return self._names

    @property
    def capacity(self) -> int:
        """Number of elements at which `put` waits; 0: unlimited."""
        return self._capacity

    @property
    def memory_limit(self) -> int:
        """Number of bytes at which `put` waits; 0: unlimited."""
        return self._memory_limit

    def size(self, name: str | None = None) -> Any:
        """Returns the number of elements: an int32 scalar."""
        return self._make(f"{self._type}Size", (), name or f"{self._name}_size")

    def clear(self, name: str | None = None) -> Any:
        """Adds an operation that removes all elements."""
        return self._make(f"{self._type}Clear", (), name or f"{self._name}_clear")

    def _make(self, type: str, args: tuple[Any, ...], name: str, which: Sequence[int] | None = None) -> Any:
        """Adds an operation of the area; `which` are the indices of the result components."""
        b = scopes.builder(*args)
        attrs = {
            "dtypes": tuple(self._dtypes if which is None else [self._dtypes[i] for i in which]),
            "shared_name": self._name,
            "container": getattr(b.graph, "current_container", ""),
            "capacity": self._capacity,
            "memory_limit": self._memory_limit,
        }
        return b.make(type, args, attrs, name)

    def _components(self, given: Any, indices: Sequence[int] | None) -> tuple[list[Any], list[int]]:
        """Returns the tensors of the given components, and the indices of these components."""
        if isinstance(given, Mapping):
            if self._names is None:
                raise ValueError("Staging areas must have names to enqueue a dictionary")
            if not set(given) <= set(self._names):
                raise ValueError(
                    "Keys in dictionary to put do not match names of staging area. "
                    f"Dictionary: {sorted(given)}, staging area: {sorted(self._names)}"
                )
            which = [i for i, name in enumerate(self._names) if name in given]
            parts = [given[self._names[i]] for i in which]
        else:
            if self._names is not None:
                raise ValueError("You must enqueue a dictionary in a staging area with names")
            parts = nest.as_list(given)
            which = list(range(len(parts)) if indices is None else indices)
            if len(which) != len(parts):
                raise ValueError(f"Number of indices {len(which)} doesn't match number of values {len(parts)}")
        if len(parts) > len(self._dtypes) or any(not 0 <= i < len(self._dtypes) for i in which):
            raise ValueError(f"Unexpected number of inputs {len(parts)} vs {len(self._dtypes)} (indices {which})")
        b = scopes.builder(*parts)
        tensors = []
        for x, i in zip(parts, which, strict=True):
            t = b.tensor(x, None if hasattr(x, "dtype") else self._dtypes[i], f"component_{i}")
            if t.dtype.base is not self._dtypes[i].base:
                raise ValueError(f"Datatypes do not match. Received {t.dtype.name} for component {i}, of which it has "
                                 f"{self._dtypes[i].name}")  # fmt: skip
            if not shapes.compatible(t.shape, self._shapes[i]):
                raise ShapeError(
                    f"Shapes {shapes.show(t.shape)} and {shapes.show(self._shapes[i])} are incompatible: component {i}"
                )
            tensors.append(t)
        return tensors, which

    def _taken(self, made: Any, which: Sequence[int]) -> Any:
        """Converts the results of an operation to a list or a dict."""
        tensors = nest.as_list(made)
        for t, i in zip(tensors, which, strict=True):
            if isinstance(scopes.builder(t), Builder):
                t.refine(self._shapes[i])
        if self._names is not None:
            return {self._names[i]: t for t, i in zip(tensors, which, strict=True)}
        return tensors

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of ({', '.join(d.name for d in self._dtypes)})>"


class StagingArea(BaseStagingArea):
    """Staging area that returns its elements in the order of insertion.

    The arguments are those of `BaseStagingArea`.

    Source: TensorFlow's `data_flow_ops.StagingArea`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     area = hr.StagingArea([hr.float32])
      ...     x = hr.placeholder(hr.float32, ())
      ...     put, take = area.put([x]), area.get()
      >>> with hr.Session(graph=g) as session:
      ...     session.run(put, {x: 3.0})
      ...     session.run(take)
      [np.float32(3.0)]
    """

    _type = "Stage"

    def put(self, values: Any, name: str | None = None) -> Any:
        """Adds an operation that inserts an element, waiting while the area is full.

        Args:
          values: the components: a tensor, a list, or a dict if the components have names.
          name: name of the operation.
        """
        with scopes.name_scope(name, f"{self._name}_put") as scope:
            tensors, _ = self._components(values, None)
            return self._make("Stage", (tensors,), scope or "Stage", self._all)

    def get(self, name: str | None = None) -> Any:
        """Removes and returns an element, waiting while there is none.

        Returns:
          A list of tensors, or a dict if the components have names.
        """
        return self._taken(self._make("Unstage", (), name or f"{self._name}_get"), self._all)

    def peek(self, index: Any, name: str | None = None) -> Any:
        """Returns element `index` without removing it, waiting until it exists. See `get`."""
        return self._taken(self._make("StagePeek", (index,), name or f"{self._name}_peek"), self._all)

    @property
    def _all(self) -> list[int]:
        return list(range(len(self._dtypes)))


class MapStagingArea(BaseStagingArea):
    """Staging area whose elements have keys, int64 scalars.

    The components of an element can be inserted one by one. The element is available when it is complete.

    Args:
      dtypes, shapes, names, shared_name, capacity, memory_limit: see `BaseStagingArea`.
      ordered: whether `get` without a key returns the element with the least key; otherwise it returns any element.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     area = hr.MapStagingArea(hr.float32)
      ...     put = area.put(7, [hr.constant(2.5)], [0])
      ...     key, value = area.get(7)
      >>> with hr.Session(graph=g) as session:
      ...     session.run(put)
      ...     print(session.run(value))
      [np.float32(2.5)]

    Source: TensorFlow's `data_flow_ops.MapStagingArea`.
    """

    def __init__(
        self,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        ordered: bool = False,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        super().__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)
        self._type = "OrderedMap" if ordered else "Map"

    def put(self, key: Any, vals: Any, indices: Sequence[int] | None = None, name: str | None = None) -> Any:
        """Adds an operation that inserts components of an element, waiting while the area is full.

        Args:
          key: key of the element, an int64 scalar.
          vals: the components: a list, or a dict if the components have names.
          indices: the indices of the components of a list; None: 0, 1, ...
          name: name of the operation.
        """
        with scopes.name_scope(name, f"{self._name}_put") as scope:
            tensors, which = self._components(vals, indices)
            b = scopes.builder(key, *tensors)
            args = (b.tensor(key, dtypes.int64, "key"), b.tensor(which, dtypes.int32, "indices"), tensors)
            return self._make(f"{self._type}Stage", args, scope or "Stage")

    def get(self, key: Any = None, indices: Sequence[Any] | None = None, name: str | None = None) -> tuple[Any, Any]:
        """Removes and returns an element, waiting until it is complete.

        Args:
          key: key of the element; None: any element.
          indices: the indices or names of the components to remove; None: all. Other components stay in the area.
          name: name of the operation.

        Returns:
          The key, and a list of tensors (a dict if the components have names).
        """
        which = self._chosen(indices)
        if key is None:
            made = self._make(f"{self._type}UnstageNoKey", (which,), name or f"{self._name}_get_nokey", which)
            return made[0], self._taken(tuple(made[1:]), which)
        args = (self._key(key), which)
        return key, self._taken(self._make(f"{self._type}Unstage", args, name or f"{self._name}_get", which), which)

    def peek(self, key: Any, indices: Sequence[Any] | None = None, name: str | None = None) -> Any:
        """Returns an element without removing it, waiting until it is complete. See `get`."""
        which = self._chosen(indices)
        args = (self._key(key), which)
        return self._taken(self._make(f"{self._type}Peek", args, name or f"{self._name}_pop", which), which)

    def incomplete_size(self, name: str | None = None) -> Any:
        """Returns the number of incomplete elements: an int32 scalar."""
        return self._make(f"{self._type}IncompleteSize", (), name or f"{self._name}_incomplete_size")

    def _key(self, key: Any) -> Any:
        return scopes.builder(key).tensor(key, dtypes.int64, "key")

    def _chosen(self, indices: Sequence[Any] | None) -> list[int]:
        if indices is None:
            return list(range(len(self._dtypes)))
        if not isinstance(indices, (tuple, list)):
            raise TypeError(f"Invalid indices type {type(indices).__name__}: a list expected")
        if not indices:
            raise ValueError("Empty indices")
        if all(isinstance(i, str) for i in indices):
            if self._names is None or not set(indices) <= set(self._names):
                raise ValueError(f"Named index not in Staging Area names {self._names}: {list(indices)}")
            return [self._names.index(i) for i in indices]
        if not all(isinstance(i, int) for i in indices):
            raise TypeError(f"Mixed types in indices {indices}. May only be str or int")
        return list(indices)


class Barrier:
    """Collects elements whose components are inserted separately, by string keys.

    Args:
      types: dtypes of the components: a dtype or a list.
      shapes: shapes of the components: a list; None: any shapes. No dimension may be 0.
      shared_name: barriers with the same name are one barrier in a session; None: the name of the operation.
      name: name of the operation.

    A barrier works in graphs only.

    Raises:
      ValueError: a shape has a dimension of 0.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     barrier = hr.Barrier([hr.float32], shapes=[()])
      ...     insert = barrier.insert_many(0, ["a", "b"], [1.0, 2.0])
      ...     indices, keys, values = barrier.take_many(2)
      >>> with hr.Session(graph=g) as session:
      ...     session.run(insert)
      ...     print(session.run(keys))
      [b'a' b'b']

    Source: TensorFlow's `data_flow_ops.Barrier`.
    """

    def __init__(self, types: Any, shapes: Any = None, shared_name: str | None = None, name: str = "barrier") -> None:
        b = scopes.graph_builder("Barrier")
        self._types = queues._as_dtypes(types)
        self._shapes = queues._as_shapes(shapes, self._types)
        for i, shape in enumerate(self._shapes or ()):
            if shape is not None and 0 in shape:
                raise ValueError(f"Empty tensors are not supported, but received shape {shape} at index {i}")
        attrs = {
            "component_types": tuple(self._types),
            "shapes": tuple(self._shapes or ()),
            "shared_name": shared_name or "",
            "container": getattr(b.graph, "current_container", ""),
        }
        self._ref = b.make("Barrier", (), attrs, name)
        self._name = self._ref.op.name.rpartition("/")[2]

    @property
    def barrier_ref(self) -> Any:
        """The handle of the barrier, an input of its operations."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that creates the handle."""
        return str(self._ref.op.name)

    def insert_many(self, component_index: int, keys: Any, values: Any, name: str | None = None) -> Any:
        """Adds an operation that inserts one component of several elements.

        Args:
          component_index: index of the component, an int.
          keys: keys of the elements, a vector of strings.
          values: a row for each key.
          name: name of the operation.

        Raises (when it runs):
          InvalidArgumentError: an element already has the component.
          CancelledError: the barrier is closed, and no element has the key.
        """
        return self._make("BarrierInsertMany", (keys, values), {"component_index": component_index}, name)

    def take_many(
        self, num_elements: Any, allow_small_batch: bool = False, timeout: int | None = None, name: str | None = None
    ) -> tuple[Any, Any, list[Any]]:
        """Removes and returns complete elements, waiting until there are enough.

        Args:
          num_elements: number of elements, an int32 scalar.
          allow_small_batch: whether a closed barrier may return fewer elements.
          timeout: the longest wait in milliseconds; None: unlimited.
          name: name of the operation.

        Returns:
          A vector of numbers in the order of the first insertion of each key, the vector of keys, and a list with a
          tensor for each component, with a row for each element.

        Raises (when it runs):
          OutOfRangeError: the barrier is closed and has too few elements.
        """
        attrs = {
            "component_types": tuple(self._types),
            "allow_small_batch": allow_small_batch,
            "timeout_ms": -1 if timeout is None else timeout,
        }
        made = list(self._make("BarrierTakeMany", (num_elements,), attrs, name))
        n = None if allow_small_batch else constant_value(num_elements)
        rows = (None if n is None else int(n),)
        for t, shape in zip(made, [(), (), *(self._shapes or [None] * len(self._types))], strict=True):
            t.refine(shapes.concatenate(rows, shape))
        return made[0], made[1], made[2:]

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """Adds an operation that closes the barrier: it accepts no new keys.

        Args:
          cancel_pending_enqueues: whether components for incomplete elements are refused, too.
          name: name of the operation.
        """
        attrs = {"cancel_pending_enqueues": cancel_pending_enqueues}
        return self._make("BarrierClose", (), attrs, name)

    def ready_size(self, name: str | None = None) -> Any:
        """Returns the number of complete elements: an int32 scalar."""
        return self._make("BarrierReadySize", (), {}, name)

    def incomplete_size(self, name: str | None = None) -> Any:
        """Returns the number of incomplete elements: an int32 scalar."""
        return self._make("BarrierIncompleteSize", (), {}, name)

    def _make(self, type: str, args: tuple[Any, ...], attrs: dict[str, Any], name: str | None) -> Any:
        b = scopes.builder(self._ref, *args)
        return b.make(type, (self._ref, *args), attrs, name or f"{self._name}_{type}")

    def __repr__(self) -> str:
        return f"<Barrier {self.name!r} of ({', '.join(d.name for d in self._types)})>"
