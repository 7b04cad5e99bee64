"""`tf.contrib.framework.nest`: walks over nested structures; see `headrace.tree`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import nest
from headrace.v1.contrib import equivalents


def is_sequence(seq: Any) -> bool:
    """Whether `seq` is a nested structure: a tuple, list, mapping or the like.

    Source: TensorFlow's `tf.contrib.framework.nest.is_sequence`.
    """
    return nest.is_nested(seq)


is_nested = is_sequence


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Returns the leaves of a structure, depth first; mappings in the order of their keys.

    Source: TensorFlow's `tf.contrib.framework.nest.flatten`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.contrib.framework.nest.flatten({"b": 3, "a": [1, (2,)]})
      [1, 2, 3]
    """
    return nest.flatten(structure, expand_composites)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """Returns the leaves in the form of a structure.

    Raises:
      ValueError: the number of leaves is another one.

    Source: TensorFlow's `tf.contrib.framework.nest.pack_sequence_as`.
    """
    wanted = len(nest.flatten(structure, expand_composites))
    if wanted != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence. Structure had {wanted} elements, but flat_sequence had {len(flat_sequence)} "
            f"elements: {nest.describe(structure)}"
        )
    return nest.pack(structure, list(flat_sequence), expand_composites)


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """Returns the results of a function of corresponding leaves, in the form of the structures.

    Raises:
      TypeError: there is no structure, or `func` cannot be called.
      ValueError: the structures differ.

    Source: TensorFlow's `tf.contrib.framework.nest.map_structure`.
    """
    if not callable(func) or not structure:
        raise TypeError(f"map_structure takes a function and one structure at least, got {func!r}")
    for other in structure[1:]:
        assert_same_structure(structure[0], other)
    return nest.map_leaves(func, *structure)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Checks that two structures have the same form.

    Raises:
      ValueError: they have different forms.

    Source: TensorFlow's `tf.contrib.framework.nest.assert_same_structure`.
    """
    found = nest.mismatch(nest1, nest2, expand=expand_composites)
    if found is not None:
        raise ValueError(f"The two structures don't have the same nested structure{found}")


__all__ = ["assert_same_structure", "flatten", "is_nested", "is_sequence", "map_structure", "pack_sequence_as"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
