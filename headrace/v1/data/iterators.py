"""TensorFlow 1's `Iterator`, given by types, shapes and classes."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import data
from headrace.api.data.structure import DatasetSpec
from headrace.api.sparse_tensor import SparseTensor, SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.v1.graph import in_default_graph
from headrace.v1.tensor_shape import TensorShape


def spec_of(types: Any, known: Any = None, classes: Any = None) -> Any:
    """Returns the description of elements of given types, shapes and classes.

    Args:
      types: the structure of the dtypes.
      known: the structure of the shapes; None: any.
      classes: the structure of the classes; None: tensors.
    """
    if isinstance(types, DatasetSpec):
        return types
    if isinstance(types, dict):
        pick = lambda x, k: None if x is None else x[k]
        return {k: spec_of(v, pick(known, k), pick(classes, k)) for k, v in types.items()}
    if isinstance(types, (tuple, list)) and nest.is_nested(types):
        n = len(types)
        parts = [
            spec_of(t, s, c)
            for t, s, c in zip(
                types, [None] * n if known is None else known, [None] * n if classes is None else classes, strict=True
            )
        ]
        return type(types)(*parts) if hasattr(types, "_fields") else tuple(parts)
    shape = shapes.as_shape(TensorShape(known).as_list() if known is not None and _is_known(known) else None)
    made = SparseTensorSpec if classes is SparseTensor else TensorSpec
    return made(shape, dtypes.as_dtype(types))


def _is_known(shape: Any) -> bool:
    return TensorShape(shape).ndims is not None


class Iterator(data.Iterator):
    """Iterator whose position belongs to the session. See `headrace.data.Iterator`.

    Source: TensorFlow 1's `tf.data.Iterator`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     iterator = tf.data.Iterator.from_structure(tf.int64, [])
      ...     train = iterator.make_initializer(tf.data.Dataset.range(3))
      ...     test = iterator.make_initializer(tf.data.Dataset.range(10, 12))
      ...     x = iterator.get_next()
      ...     sess.run(test), sess.run(x), sess.run(train), sess.run(x)
      (None, np.int64(10), None, np.int64(0))
    """

    @classmethod
    def _from(cls, made: data.Iterator) -> Iterator:
        from headrace.v1.data.datasets import Dataset  # which imports this module

        return cls(made._resource, None, made.element_spec, Dataset)

    @classmethod
    @in_default_graph
    def from_spec(cls, element_spec: Any, shared_name: str | None = None) -> Iterator:
        """Returns an iterator without a dataset, for elements of a description."""
        return cls._from(data.Iterator.of_structure(element_spec, shared_name, data.Dataset))

    @classmethod
    def from_structure(
        cls, output_types: Any, output_shapes: Any = None, shared_name: str | None = None, output_classes: Any = None
    ) -> Iterator:
        """Returns an iterator without a dataset; `make_initializer` starts a pass over one.

        Args:
          output_types: the structure of the dtypes of an element.
          output_shapes: the structure of their shapes; None: any.
          shared_name: the name in the session; None: that of the operation.
          output_classes: the structure of their classes; None: tensors.
        """
        return cls.from_spec(spec_of(output_types, output_shapes, output_classes), shared_name)

    @classmethod
    @in_default_graph
    def from_string_handle(
        cls, string_handle: Any, output_types: Any, output_shapes: Any = None, output_classes: Any = None
    ) -> Iterator:
        """Returns the iterator that a string handle names, which may be fed.

        Args:
          string_handle: the value of another iterator's `string_handle()`.
          output_types, output_shapes, output_classes: see `from_structure`.
        """
        spec = spec_of(output_types, output_shapes, output_classes)
        return cls._from(data.Iterator.of_string_handle(string_handle, spec, data.Dataset))

    make_initializer = in_default_graph(data.Iterator.make_initializer)
    get_next = in_default_graph(data.Iterator.get_next)

    @in_default_graph
    def string_handle(self, name: str | None = None) -> Any:
        """Returns a string scalar that names the iterator in its session."""
        return super().string_handle(name)

    @property
    def output_types(self) -> Any:
        """The structure of the dtypes of an element."""
        return self._converted("types")

    @property
    def output_shapes(self) -> Any:
        """The structure of the shapes of an element."""
        return self._converted("shapes")

    @property
    def output_classes(self) -> Any:
        """The structure of the classes of an element's leaves."""
        return self._converted("classes")

    def _converted(self, kind: str) -> Any:
        from headrace.v1.data.datasets import converted

        return converted(self.element_spec, kind)
