"""TensorFlow 1's `Iterator`, given by types, shapes and classes."""

from __future__ import annotations

from typing import Any

from headrace.api import data
from headrace.v1.data.elements import converted, spec_of
from headrace.v1.graph import in_default_graph


class Iterator(data.Iterator):
    """Iterator whose position belongs to the session. See `headrace.data.Iterator`.

    Args:
      iterator_resource: the handle.
      initializer: the operation that starts a pass, or None.
      output_types, output_shapes, output_classes: the structures of the dtypes, shapes and classes of an element.

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

    def __init__(
        self, iterator_resource: Any, initializer: Any, output_types: Any, output_shapes: Any, output_classes: Any
    ) -> None:
        if output_types is None or output_shapes is None or output_classes is None:
            raise ValueError(
                "All of `output_types`, `output_shapes`, and `output_classes` must be specified to create an iterator."
            )
        spec = spec_of(output_types, output_shapes, output_classes)
        super().__init__(iterator_resource, initializer, spec, data.Dataset)

    @classmethod
    def _of(cls, resource: Any, initializer: Any, element_spec: Any, door: Any) -> Iterator:
        """Returns the iterator of a resource, for elements of a description."""
        made = cls.__new__(cls)
        data.Iterator.__init__(made, resource, initializer, element_spec, door)
        return made

    @classmethod
    def _from(cls, made: data.Iterator) -> Iterator:
        return cls._of(made._resource, None, made.element_spec, data.Dataset)

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
    get_next_as_optional = in_default_graph(data.Iterator.get_next_as_optional)

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
        return converted(self.element_spec, kind)
