"""Iterators of datasets: of steps in graphs, and of Python outside of graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes, nest, tracebacks
from headrace.api import scopes
from headrace.api.data import optional, structure
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import OutOfRangeError
from headrace.ir.builder import Builder
from headrace.records import record


def unordered(b: Any) -> Any:
    """Returns a builder of initializers, which do not follow the order of stateful ops."""
    return dataclasses.replace(b, is_ordered=False) if isinstance(b, Builder) else b


class Iterator:
    """Iterator of a graph, whose position belongs to the session.

    Args:
      iterator_resource: the handle.
      initializer: the operation that starts a pass; None: `make_initializer` makes such operations.
      element_spec: the description of an element.
      door: the class of datasets that are parts of elements.

    Attributes:
      element_spec: the description of an element.

    Source: TensorFlow's `tf.data.Iterator`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     iterator = hr.data.make_initializable_iterator(hr.data.Dataset.range(2))
      ...     x = iterator.get_next()
      >>> session = hr.Session(graph=g)
      >>> session.run(iterator.initializer)
      >>> session.run(x), session.run(x)
      (np.int64(0), np.int64(1))
    """

    def __init__(self, iterator_resource: Any, initializer: Any, element_spec: Any, door: Any) -> None:
        self._resource = iterator_resource
        self._initializer = initializer
        self.element_spec = element_spec
        self._door = door

    @staticmethod
    @tracebacks.entry
    def of_structure(element_spec: Any, shared_name: str | None, door: Any) -> Iterator:
        """Returns an iterator without a dataset, for elements of a structure.

        Args:
          element_spec: the description of an element.
          shared_name: the name in the session; None: that of the operation.
          door: the class of datasets that are parts of elements.
        """
        b = scopes.builder()
        attrs = {"shared_name": shared_name or "", "container": "", **structure.attributes(element_spec)}
        return Iterator(b.make("IteratorV2", (), attrs), None, element_spec, door)

    @staticmethod
    @tracebacks.entry
    def of_string_handle(string_handle: Any, element_spec: Any, door: Any) -> Iterator:
        """Returns the iterator of a string handle, a string scalar that may be fed."""
        b = scopes.builder(string_handle)
        text = b.tensor(string_handle, dtypes.string)
        made = b.make("IteratorFromStringHandleV2", [text], structure.attributes(element_spec))
        return Iterator(made, None, element_spec, door)

    @property
    def initializer(self) -> Any:
        """The operation that starts a pass.

        Raises:
          ValueError: the iterator has several, or starts itself.
        """
        if self._initializer is None:
            raise ValueError("The iterator does not have an initializer; use `make_initializer` with a dataset")
        return self._initializer

    @tracebacks.entry
    def make_initializer(self, dataset: Any, name: str | None = None) -> Any:
        """Returns an operation that starts a pass over `dataset`.

        Raises:
          TypeError: its elements have other dtypes or another structure, or shapes that the iterator does not have.
        """
        joined = structure.joined(self.element_spec, dataset.element_spec)
        for mine, other in zip(structure.flatten(self.element_spec), structure.flatten(joined), strict=True):
            if mine != other:
                raise TypeError(f"Expected output shapes compatible with {mine} but got a dataset of {other}")
        b = unordered(scopes.builder(self._resource))
        return b.make("MakeIterator", [b.tensor(dataset.variant_tensor), self._resource], {}, name)

    @tracebacks.entry
    def get_next(self, name: str | None = None) -> Any:
        """Returns the next element, as tensors: each step that computes them takes one.

        Raises (when it runs):
          OutOfRangeError: there is none.
        """
        b = scopes.builder(self._resource)
        attrs = structure.attributes(self.element_spec)
        made = b.make("IteratorGetNext", [self._resource], attrs, name)
        return structure.as_element(made, self.element_spec, self._door)

    def get_next_as_optional(self, name: str | None = None) -> optional.Optional:
        """Returns the next element; an optional without an element at the end."""
        return optional.next_as_optional(self, self._resource, name)

    def string_handle(self, name: str | None = None) -> Any:
        """Returns a string scalar that names the iterator in its session."""
        b = scopes.builder(self._resource)
        return b.make("IteratorToStringHandle", [self._resource], {}, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.element_spec}>"


def in_graph(dataset: Any) -> Iterator:
    """Returns an iterator over a dataset for one run of the present graph."""
    b = scopes.builder(dataset.variant_tensor)
    handle = b.make("AnonymousIteratorV3", (), structure.attributes(dataset.element_spec))
    begun = b.make("MakeIterator", [b.tensor(dataset.variant_tensor), handle], {})
    return Iterator(b.after(begun).Identity(handle), None, dataset.element_spec, dataset._door())


class OwnedIterator:
    """Iterator of Python over a dataset, in one pass.

    A jitted function may take elements, too.

    Args:
      dataset: the dataset.

    Attributes:
      element_spec: the description of an element.

    Raises:
      RuntimeError: the dataset is in a graph.

    Example:
      >>> import headrace as hr
      >>> numbers = iter(hr.data.Dataset.range(5))
      >>> twice = hr.jit(lambda: next(numbers) * 2)
      >>> int(next(numbers)), int(twice()), int(twice())
      (0, 2, 4)
    """

    def __init__(self, dataset: Any) -> None:
        if dataset.graph is not None:
            raise RuntimeError(
                "a dataset in a graph has no values to iterate over; make an iterator of it "
                "(make_initializable_iterator), use `reduce`, or create the dataset outside of the graph"
            )
        self.element_spec = dataset.element_spec
        self._door = dataset._door()
        with scopes.outside():
            b = scopes.builder()
            attrs = structure.attributes(self.element_spec)
            self._handle = b.make("AnonymousIteratorV3", (), attrs)
            b.make("MakeIterator", [b.tensor(dataset.variant_tensor), self._handle], {})
        self._next = self._handle.numpy().owned.next_or_none
        self._element = _packer(self.element_spec, self._door)

    def __iter__(self) -> OwnedIterator:
        return self

    def __next__(self) -> Any:
        if not scopes.is_outside():
            return self._in_graph()
        found = self._next()
        if found is None:
            raise StopIteration
        return self._element(found)

    def get_next(self) -> Any:
        """Returns the next element.

        Raises:
          OutOfRangeError: there is none.
        """
        if not scopes.is_outside():
            return self._in_graph()
        found = self._next()
        if found is None:
            raise OutOfRangeError("End of sequence")
        return self._element(found)

    def get_next_as_optional(self) -> optional.Optional:
        """Returns the next element; an optional without an element at the end."""
        return optional.next_as_optional(self, self._handle)

    def _in_graph(self) -> Any:
        b = scopes.builder()
        handle = b.tensor(self._handle)
        made = b.make("IteratorGetNext", [handle], structure.attributes(self.element_spec))
        return structure.as_element(made, self.element_spec, self._door)

    def save(self) -> bytes:
        """Returns the position, to pass to `restore` of an iterator of an equal dataset.

        Example:
          >>> import headrace as hr
          >>> numbers = hr.data.Dataset.range(5).shuffle(5, seed=1)
          >>> first, second = iter(numbers), iter(numbers)
          >>> _ = next(first)
          >>> second.restore(first.save())
          >>> int(next(first)) == int(next(second))
          True
        """
        out: bytes = self._handle.numpy().owned.save()
        return out

    def restore(self, data: bytes) -> None:
        """Moves to the position that `save` returned.

        Raises:
          DataLossError: the data are not a position in this dataset.
        """
        self._handle.numpy().owned.restore(data)


class NumpyIterator:
    """Iterator of Python over a dataset, whose elements have arrays in place of tensors.

    Args:
      dataset: the dataset.

    Source: TensorFlow's `tf.data.NumpyIterator`.

    Example:
      >>> import headrace as hr
      >>> [int(x) for x in hr.data.Dataset.range(3).as_numpy_iterator()]
      [0, 1, 2]
    """

    def __init__(self, dataset: Any) -> None:
        self._iterator = OwnedIterator(dataset)

    def __iter__(self) -> NumpyIterator:
        return self

    def __next__(self) -> Any:
        element = next(self._iterator)
        return nest.map_leaves(lambda t: t.numpy() if hasattr(t, "numpy") else t, element)

    def next(self) -> Any:
        """Returns the next element; raises StopIteration at the end."""
        return next(self)

    def save(self) -> bytes:
        """Returns the position; see `OwnedIterator.save`."""
        return self._iterator.save()

    def restore(self, data: bytes) -> None:
        """Moves to the position that `save` returned; see `OwnedIterator.restore`."""
        self._iterator.restore(data)


def _packer(spec: Any, door: Any) -> Callable[[Any], Any]:
    """Returns a function from components to an element of eager tensors."""
    kind = scopes.runtime().eager.tensor_type
    leaves = structure.flatten(spec)

    def leaf(s: Any) -> Callable[[Any], Any]:
        dtype = structure.component_type(s)
        if isinstance(s, TensorSpec):
            if dtype is dtypes.string:
                return lambda v: kind(np.asarray(v, object), dtype)
            return lambda v: kind(v, dtype)
        return lambda v: structure.leaf_of(kind(v, dtype), s, door)

    each = [leaf(s) for s in leaves]
    if len(each) == 1 and spec is leaves[0]:
        (only,) = each
        return lambda element: only(element[0])
    if type(spec) is tuple and len(spec) == len(leaves):
        return lambda element: tuple([f(v) for f, v in zip(each, element, strict=True)])
    return lambda element: structure.pack(spec, [f(v) for f, v in zip(each, element, strict=True)])


@record(frozen=True)
class _Part:
    """Tensor of a checkpoint (`train.saving.saveables.SaveSpec`)."""

    tensor: Any
    slice_spec: str
    name: str
    dtype: dtypes.DType


class SaveableIterator:
    """Position of an iterator of a graph, for the `var_list` of a saver.

    The initializer of the iterator must run before the position is restored.

    Args:
      iterator: the iterator.

    Attributes:
      name: the name of the iterator in checkpoints.
      specs: the description of the tensor that is saved.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> with hr.Graph() as g:
      ...     iterator = hr.data.make_initializable_iterator(hr.data.Dataset.range(9))
      ...     x = iterator.get_next()
      ...     saver = hr.train.Saver([hr.data.SaveableIterator(iterator)])
      >>> session = hr.Session(graph=g)
      >>> session.run(iterator.initializer)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     first = session.run(x)
      ...     path = saver.save(session, pathlib.Path(folder, "position"))
      ...     more = session.run(x), session.run(x)
      ...     saver.restore(session, path)
      ...     first, more, session.run(x)
      (np.int64(0), (np.int64(1), np.int64(2)), np.int64(1))
    """

    def __init__(self, iterator: Iterator) -> None:
        self._handle = iterator._resource
        self.name: str = self._handle.name
        saved = unordered(Builder(self._handle.graph)).make("_SaveIterator", [self._handle], {})
        self.specs = [_Part(saved, "", f"{self.name}-iterator_state", dtypes.string)]

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        """Returns the operation that moves the iterator to a saved position."""
        return scopes.builder().make("_RestoreIterator", [self._handle, *restored_tensors], {})
