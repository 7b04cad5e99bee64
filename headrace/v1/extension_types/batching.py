"""Batches of extension types: `tf.experimental.ExtensionTypeBatchEncoder`."""

from __future__ import annotations

from typing import Any

from headrace import nest
from headrace.api.data import structure
from headrace.v1.tensor_shape import TensorShape


class ExtensionTypeBatchEncoder:
    """Encoder of extension types as tensors that are stacked in their place.

    By default the encoding of an instance is the tuple of its tensors and composites. A derived class overrides some
    methods where that is not right, and is the attribute `__batch_encoder__` of the extension type.

    Source: TensorFlow's `tf.experimental.ExtensionTypeBatchEncoder`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Weighted(tf.experimental.BatchableExtensionType):
      ...     values: tf.Tensor
      ...     shape: tf.TensorShape
      >>> one = Weighted.Spec(tf.TensorSpec([2]), tf.TensorShape([2]))
      >>> print(Weighted.Spec.__batch_encoder__.batch(one, 8).shape)
      (8, 2)
    """

    def batch(self, spec: Any, batch_size: int | None) -> Any:
        """Returns the description of a batch.

        Args:
          spec: the description of one instance.
          batch_size: the number of instances; None: any.
        """
        shape = TensorShape([batch_size])
        return _mapped(spec, lambda s: structure.batched(s, batch_size), shape.concatenate)

    def unbatch(self, spec: Any) -> Any:
        """Returns the description of one instance of a batch.

        Args:
          spec: the description of the batch.
        """
        return _mapped(spec, structure.unbatched, lambda s: s[1:])

    def encode(self, spec: Any, value: Any, minimum_rank: int = 0) -> Any:
        """Returns an instance as a structure of tensors and composites.

        Args:
          spec: its description.
          value: the instance.
          minimum_rank: the least rank that the tensors must have.
        """
        return value._parts

    def decode(self, spec: Any, encoded_value: Any) -> Any:
        """Returns the instance of an encoding.

        Args:
          spec: the description of the instance.
          encoded_value: the encoding, or a batch or a row of encodings.
        """
        return spec._value(tuple(encoded_value))

    def encoding_specs(self, spec: Any) -> Any:
        """Returns descriptions of the encoding.

        Args:
          spec: the description of the instance.
        """
        return spec._parts

    @property
    def is_default(self) -> bool:
        """Whether the encoding of an instance is that of its fields."""
        return type(self).encoding_specs is ExtensionTypeBatchEncoder.encoding_specs


def _mapped(spec: Any, of_part: Any, of_shape: Any) -> Any:
    """Returns a description with other parts and shapes."""
    values = tuple(spec.__dict__.values())

    def change(x: Any) -> Any:
        if spec._is_part(x):
            return of_part(x)
        return of_shape(x) if isinstance(x, TensorShape) else x

    leaves = [change(x) for x in nest.flatten(values, expand=False)]
    return spec._made(dict(zip(spec.__dict__, nest.pack(values, leaves, expand=False), strict=True)))
