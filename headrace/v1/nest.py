"""TensorFlow 1's `tf.nest`: nested structures of Python.

They are those of `headrace.tree`, but for None, which is a leaf here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import nest, public_names


def _is_none(x: Any) -> bool:
    return x is None


def is_nested(seq: Any) -> bool:
    """Whether an object is a structure and no leaf.

    Args:
      seq: the object.

    Source: TensorFlow's `tf.nest.is_nested`.
    """
    return seq is not None and not nest.is_composite(seq) and nest.is_nested(seq)


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Returns the leaves of a structure in order.

    Args:
      structure: the structure. A leaf is a list of itself.
      expand_composites: whether sparse tensors and the like are structures of their parts.

    Source: TensorFlow's `tf.nest.flatten`.

    >>> flatten({"b": 1, "a": [2, (3, None)]})
    [2, 3, None, 1]
    """
    return nest.flatten(structure, expand_composites, _is_none)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """Returns a structure like another one with given leaves.

    Args:
      structure: the other structure.
      flat_sequence: the leaves in order.
      expand_composites: see `flatten`.

    Raises:
      ValueError: the number of leaves differs.

    Source: TensorFlow's `tf.nest.pack_sequence_as`.
    """
    leaves = list(flat_sequence)
    n = len(flatten(structure, expand_composites))
    if n != len(leaves):
        raise ValueError(
            f"Could not pack sequence. Structure had {n} atoms, but flat_sequence had {len(leaves)} items. "
            f"Structure: {structure!r}, flat_sequence: {leaves!r}."
        )
    return nest.pack(structure, leaves, expand_composites, _is_none)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Checks that two structures differ in their leaves only.

    Args:
      nest1, nest2: the structures.
      check_types: whether their sequences and mappings must be of the same classes.
      expand_composites: see `flatten`.

    Raises:
      ValueError: the structures differ.
      TypeError: they differ in a class.

    Source: TensorFlow's `tf.nest.assert_same_structure`.
    """
    _check(nest1, nest2, check_types, expand_composites, (nest1, nest2))


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Returns a structure of the results of a function of each leaf.

    Args:
      func: a function of as many leaves as there are structures.
      structure: structures that differ in their leaves only.
      kwargs: `check_types` and `expand_composites`; see `assert_same_structure`.

    Raises:
      ValueError, TypeError: the structures differ.

    Source: TensorFlow's `tf.nest.map_structure`.

    >>> map_structure(lambda x, y: x + y, [1, (2,)], [3, (4,)])
    [4, (6,)]
    """
    check_types, expand = kwargs.pop("check_types", True), kwargs.pop("expand_composites", False)
    if kwargs:
        raise ValueError(f"Only valid keyword arguments are check_types and expand_composites, got {sorted(kwargs)}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types, expand)
    columns = zip(*[flatten(s, expand) for s in structure], strict=True)
    return pack_sequence_as(structure[0], [func(*leaves) for leaves in columns], expand)


def _parts(x: Any, expand: bool) -> Sequence[Any] | None:
    """Returns the parts of one level of a structure; None for a leaf."""
    node = None if x is None else nest.nodes[type(x)]
    return None if node is None or (node.is_composite and not expand) else node.parts(x)


def _check(a: Any, b: Any, check_types: bool, expand: bool, whole: tuple[Any, Any]) -> None:
    first, second = _parts(a, expand), _parts(b, expand)
    if first is None and second is None:
        return
    same_type = type(a) is type(b) or (isinstance(a, dict) and isinstance(b, dict))
    if first is None or second is None or len(first) != len(second) or not _are_compatible(a, b):
        error: type[Exception] = ValueError
    elif check_types and not same_type:
        error = TypeError
    elif isinstance(a, dict) and isinstance(b, dict) and set(a) != set(b):
        error = ValueError
    else:
        for x, y in zip(first, second, strict=True):
            _check(x, y, check_types, expand, whole)
        return
    shown = [f"type={type(x).__name__} str={x}" for x in (*whole, a, b)]
    raise error(
        f"The two structures don't have the same nested structure.\n\nFirst structure: {shown[0]}\n\n"
        f"Second structure: {shown[1]}\n\nMore specifically: {shown[2]} and {shown[3]} differ"
    )


def _are_compatible(a: Any, b: Any) -> bool:
    """Whether two structures, if they are extension types, have a common description."""
    if not hasattr(type(a), "_type_spec") or type(a) is not type(b):
        return True
    return a._type_spec.most_specific_common_supertype([b._type_spec]) is not None


# fmt: off
__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
