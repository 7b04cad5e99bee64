"""Roles of op types that passes recognize: operations on tensor lists, splits and comparisons.

The record of an op states its role (`opdef.Facts`), and a pass asks for the role instead of the name of the type. So an
op type of an extension package takes part in the passes if its record has the role.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from headrace.records import record

ListKind: TypeAlias = Literal[
    "empty",
    "reserve",
    "from_tensor",
    "push",
    "pop",
    "get",
    "set",
    "unset",
    "resize",
    "length",
    "stack",
    "gather",
    "concat",
]
Relation: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]

#: The debug_name of a VarHandleOp in place of a reference variable (`recover.references`).
BY_REFERENCE: Final = "a reference variable"

#: `x r y` holds where `y MIRRORED[r] x` holds.
MIRRORED: Final[dict[Relation, Relation]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

# By kind: the number of inputs, the number of outputs, and the attributes that passes read.
LIST_SIGNATURES: Final[dict[ListKind, tuple[int, int, tuple[str, ...]]]] = {
    "empty": (2, 1, ("element_dtype",)),
    "reserve": (2, 1, ("element_dtype",)),
    "from_tensor": (2, 1, ("element_dtype",)),
    "push": (2, 1, ("element_dtype",)),
    "pop": (2, 2, ("element_dtype",)),
    "get": (3, 1, ("element_dtype",)),
    "set": (3, 1, ("element_dtype", "resize_if_index_out_of_bounds")),
    "unset": (2, 1, ()),
    "resize": (2, 1, ()),
    "length": (1, 1, ()),
    "stack": (2, 1, ("element_dtype", "num_elements")),
    "gather": (3, 1, ("element_dtype",)),
    "concat": (3, 2, ("element_dtype",)),
}

_MAKE: Final = frozenset({"empty", "reserve", "from_tensor"})
_CHANGE: Final = frozenset({"push", "pop", "set", "unset", "resize"})
_JOIN: Final = frozenset({"stack", "gather", "concat"})
_UNSET: Final = frozenset({"unset", "resize"})


@record(frozen=True, slots=True)
class ListRole:
    """Role of an op that creates, changes or reads one tensor list.

    An op of a kind has the arguments, the order of the arguments and the attributes of TensorFlow's op of that kind:
    passes rewrite it as such, and the compiler writes it as code on a Python list. The list is input 0; the list that
    an op creates or changes is output 0.

    Attributes:
      kind: the operation: "empty" (EmptyTensorList), "reserve" (TensorListReserve), "from_tensor"
        (TensorListFromTensor), "push" (TensorListPushBack), "pop" (TensorListPopBack), "get" (TensorListGetItem), "set"
        (TensorListSetItem), "unset" (_TensorListUnset), "resize" (TensorListResize), "length" (TensorListLength),
        "stack" (TensorListStack), "gather" (TensorListGather) or "concat" (TensorListConcatV2).
      element_input: the position of the input that becomes an element; None without such an input.
      shape_input: the position of the input that states the shape of the elements to read; None without such an input.

    Example:
      >>> import headrace as hr
      >>> role = hr.extend.ListRole("push", element_input=1)
      >>> role.makes, role.changes, role.reads
      (False, True, False)
    """

    kind: ListKind
    element_input: int | None = None
    shape_input: int | None = None

    @property
    def makes(self) -> bool:
        """Whether the op creates a new list."""
        return self.kind in _MAKE

    @property
    def changes(self) -> bool:
        """Whether output 0 is the list of input 0 with a change."""
        return self.kind in _CHANGE

    @property
    def reads(self) -> bool:
        """Whether the op reads a list and neither creates nor changes one."""
        return not self.makes and not self.changes

    @property
    def joins(self) -> bool:
        """Whether the op reads several elements into one tensor."""
        return self.kind in _JOIN

    @property
    def leaves_unset(self) -> bool:
        """Whether the op may leave elements of the changed list without a value."""
        return self.kind in _UNSET


@record(frozen=True, slots=True)
class SplitRole:
    """Role of an op whose outputs are consecutive pieces of one input along one axis.

    Attributes:
      value: the position of the input that is split.
      axis: the position of the input with the axis, a scalar integer.

    Example:
      >>> import headrace as hr
      >>> hr.extend.Facts(split=hr.extend.SplitRole(value=1, axis=0)).split.value
      1
    """

    value: int
    axis: int
