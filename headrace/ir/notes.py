"""Notes: typed facts about single operations, recorded for passes, gradients and kernels of headrace.

An attribute is part of an op's public definition and has a wire form. A note is a frozen record of headrace's own, in
`Operation.notes`, for example "this push stores a residual of a loop":

    op.notes.get(ResidualPush)           # the record, or None
    RematerializedCall in op.notes

Copies of an operation share its notes. Private graphs change them by `ir.edit.editor.Editor.add_note`, and
`ir.kernel.override` registers a kernel for operations with given notes. Each class states how its records leave the
process:

* A GraphDef states some notes as attributes (`Note.to_attrs`, `Note.from_attrs`), so that an exported graph keeps them.
* The codec of parts (`partition.codec`) transfers a note as plain data (`Note.to_data`, `note_from_data`), except those
  with `is_local`, which refer to objects of this process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

from headrace.dtypes import DType, as_dtype
from headrace.errors import GraphError
from headrace.records import record
from headrace.registry import Registry

N = TypeVar("N", bound="Note")


class Note:
    """Base class of notes. Subclasses are frozen dataclasses, registered by `note`.

    The fields may be strings, bools, ints, dtypes, and tuples of these.

    Attributes:
      attr: the attribute of a GraphDef that tells the presence of the note; "" if a GraphDef does not contain it.
      attr_value: the value of this attribute, for a class without fields.
      is_local: whether the note refers to objects of this process and cannot be encoded.
      changes_value: whether the outputs of the operation depend on the note, so that operations with different notes
        compute different functions.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # no dataclass, so that subclasses may be any

    attr: ClassVar[str] = ""
    attr_value: ClassVar[bool] = True
    is_local: ClassVar[bool] = False
    changes_value: ClassVar[bool] = False

    def to_attrs(self) -> dict[str, Any]:
        """Returns the attributes that state the note in a GraphDef; {} for none.

        This method and `from_attrs` suit classes without fields, or with one string.
        """
        values = [getattr(self, f.name) for f in dataclasses.fields(self)]
        return {self.attr: values[0] if values else self.attr_value} if self.attr else {}

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Note | None:
        """Returns the note of this class that attributes of a GraphDef state, or None."""
        value = attrs.get(cls.attr)
        if dataclasses.fields(cls):
            return cls(value) if isinstance(value, str) else None  # type: ignore[call-arg]  # a subclass with a field
        return cls() if value is cls.attr_value else None

    def to_data(self) -> dict[str, Any]:
        """Returns the fields as values of JSON, the inverse of `note_from_data`."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


note_registry: Final[Registry[type[Note]]] = Registry("note")
_by_attr: Final[dict[str, type[Note]]] = {}  # attribute of a GraphDef -> class of the note that it tells


def note(cls: type[N]) -> type[N]:
    """Registers a class of notes by its name and attribute, as a decorator."""
    note_registry.register(cls.__name__, cls, depth=2)
    if cls.attr:
        _by_attr[cls.attr] = cls
    return cls


class Notes:
    """Immutable set of the notes of one operation.

    It has at most one note of each class. It is hashable and compared by value.
    """

    __slots__ = ("_by_class",)

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self._by_class: dict[type[Note], Note] = {type(n): n for n in notes}

    def get(self, cls: type[N]) -> N | None:
        """Returns the note of a class, or None."""
        return self._by_class.get(cls)  # type: ignore[return-value]  # the key is the value's class

    def __getitem__(self, cls: type[N]) -> N:
        return self._by_class[cls]  # type: ignore[return-value]

    def __contains__(self, cls: type[Note]) -> bool:
        return cls in self._by_class

    def __iter__(self) -> Iterator[Note]:
        """Iterates over the notes by the names of their classes."""
        return iter(sorted(self._by_class.values(), key=lambda n: type(n).__name__))

    def __len__(self) -> int:
        return len(self._by_class)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Notes) and self._by_class == other._by_class

    def __hash__(self) -> int:
        return hash(frozenset(self._by_class.values()))

    def __repr__(self) -> str:
        return f"Notes({list(self)})"

    def added(self, *notes: Note) -> Notes:
        """Returns these notes with `notes`, which replace those of the same classes."""
        return Notes((*self._by_class.values(), *notes))

    def without(self, cls: type[Note]) -> Notes:
        """Returns these notes without that of a class."""
        return Notes(n for n in self._by_class.values() if type(n) is not cls)

    def that_change_values(self) -> Notes:
        """Returns the notes on which the outputs of the operation depend."""
        return Notes(n for n in self._by_class.values() if n.changes_value)


NO_NOTES: Final = Notes()


def as_notes(notes: Iterable[Note]) -> Notes:
    """Returns `notes` as a `Notes`."""
    return notes if isinstance(notes, Notes) else Notes(notes) if notes else NO_NOTES


# *** forms outside of the process ***


def stated_attrs(attrs: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Returns the attributes of an operation and those that state its notes."""
    return attrs | {name: value for n in notes for name, value in n.to_attrs().items()} if notes else attrs


def notes_from_attrs(attrs: dict[str, Any]) -> Notes:
    """Moves notes out of the attributes of a node, which were read from a GraphDef.

    An attribute of another kind than that of the note (by another producer) stays an attribute.

    Args:
      attrs: the attributes; those that state a note are removed.

    Returns:
      The notes.
    """
    found = [n for name in _by_attr.keys() & attrs.keys() if (n := _by_attr[name].from_attrs(attrs)) is not None]
    for n in found:
        for name in n.to_attrs():
            del attrs[name]
    return as_notes(found)


def note_from_data(name: str, data: Mapping[str, Any]) -> Note:
    """Returns the note of the registered class `name` with the fields `data`; see `Note.to_data`.

    Fields that have a default may be missing.

    Raises:
      GraphError: the class is not registered or local, or the fields are not those of the class.
    """
    cls = note_registry.find(name)
    if cls is None or cls.is_local:
        raise GraphError(f"{name!r} is no note that another process can send; there are {_travelling()}")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    needed = {f.name for f in fields.values() if f.default is dataclasses.MISSING}
    if not isinstance(data, Mapping) or not needed <= data.keys() <= fields.keys():
        raise GraphError(f"the note {name!r} has the fields {sorted(fields)}, got {data!r}")
    return cls(**{key: _typed(name, key, str(fields[key].type), value) for key, value in data.items()})


def _travelling() -> list[str]:
    return sorted(name for name in note_registry if not note_registry.get(name).is_local)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.name if isinstance(value, DType) else value


_FIELDS: Final[dict[str, Callable[[Any], bool]]] = {
    "str": lambda v: type(v) is str,
    "bool": lambda v: type(v) is bool,
    "int": lambda v: type(v) is int,
    "DType": lambda v: type(v) is str or isinstance(v, DType),
}


def _typed(name: str, key: str, kind: str, value: Any) -> Any:
    """Returns a field of a note, checked against its annotation."""
    of = kind.removeprefix("tuple[").removesuffix(", ...]")
    items = value if of != kind else [value]
    if not isinstance(items, (list, tuple)) or not all(map(_FIELDS[of], items)):
        raise GraphError(f"the field {key!r} of the note {name!r} must be {kind}, got {value!r}")
    try:
        made = tuple(as_dtype(v) if of == "DType" else v for v in items)
    except TypeError as e:
        raise GraphError(f"the field {key!r} of the note {name!r}: {e}") from None
    return made if of != kind else made[0]


# *** loops and their gradients ***


@note
@record(frozen=True, slots=True)
class ResidualPush(Note):
    """A push of a residual, which the gradient of a loop reads.

    The list has one element for each iteration, and only the gradient pops it.

    Attributes:
      of: the tensor and its loop, for messages.
      may_swap: whether the value may be moved to the host or to disk if the memory limit is reached.
    """

    attr: ClassVar[str] = "_accumulates"

    of: str
    may_swap: bool = False

    def to_attrs(self) -> dict[str, Any]:
        return {"_accumulates": self.of} | ({"_swap": True} if self.may_swap else {})

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> ResidualPush | None:
        of = attrs.get("_accumulates")
        return cls(of, attrs.get("_swap") is True) if isinstance(of, str) else None


@note
@record(frozen=True, slots=True)
class ResidualPop(Note):
    """A pop of a residual, once in each iteration of a loop's gradient."""

    attr: ClassVar[str] = "_accumulated"


@note
@record(frozen=True, slots=True)
class CountedResidual(Note):
    """A push of a residual (`ResidualPush`) whose bytes the memory account of the device counts."""


@note
@record(frozen=True, slots=True)
class SwapMemory(Note):
    """A loop whose residuals may be moved out of device memory (`while_loop(swap_memory=True)`)."""

    attr: ClassVar[str] = "_swap_memory"


@note
@record(frozen=True, slots=True)
class NoBackProp(Note):
    """A loop through which no gradient flows (`while_loop(back_prop=False)`)."""

    attr: ClassVar[str] = "_back_prop"
    attr_value: ClassVar[bool] = False


@note
@record(frozen=True, slots=True)
class FrameName(Note):
    """The name of the frame from which a loop was recovered.

    Messages about its iterations contain the name.

    Attributes:
      name: the name.
    """

    attr: ClassVar[str] = "_frame_name"

    name: str


@note
@record(frozen=True, slots=True)
class LoopVariable(Note):
    """The name of the loop variable whose Merge this is.

    Drawings of the primitive form show the name.

    Attributes:
      name: the name, that of a parameter of the loop's body.
    """

    name: str


@note
@record(frozen=True, slots=True)
class RematerializedCall(Note):
    """A call whose gradient computes the function again; it is not inlined."""

    attr: ClassVar[str] = "_recompute"


# *** single ops ***


@note
@record(frozen=True, slots=True)
class ContiguousResult(Note):
    """A Transpose whose result is stored contiguously, because it is read often."""


@note
@record(frozen=True, slots=True)
class JoinedElementShapes(Note):
    """A concatenation of tensor lists that accepts different element shapes and joins them."""

    attr: ClassVar[str] = "_join_shapes"
    changes_value: ClassVar[bool] = True


@note
@record(frozen=True, slots=True)
class RemovedElements(Note):
    """The dtype and shape of elements removed from a list.

    An export to TensorFlow (`interchange.portable`) writes zeros of them.

    Attributes:
      dtype: the dtype.
      shape: the shape, fully known.
    """

    attr: ClassVar[str] = "_element_dtype"

    dtype: DType
    shape: tuple[int, ...]

    def to_attrs(self) -> dict[str, Any]:
        return {"_element_dtype": self.dtype, "_element_shape": self.shape}

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> RemovedElements | None:
        dtype, shape = attrs.get("_element_dtype"), attrs.get("_element_shape")
        if isinstance(dtype, DType) and isinstance(shape, tuple) and all(type(n) is int for n in shape):
            return cls(dtype, shape)
        return None


# *** operations that stand for others in the graph of a part ***


@note
@record(frozen=True, slots=True)
class StandsFor(Note):
    """The tensors of the whole graph that the outputs of an operation represent.

    Messages contain their names.

    Attributes:
      names: the name of the tensor for each output.
    """

    names: tuple[str, ...]


@note
@record(frozen=True, slots=True)
class FusedKernel(Note):
    """The compiled function of a fused region (`compile.fused_kernels`).

    Attributes:
      compute: the kernel, or a function that makes the kernel for a step.
      flops: the cost of one firing; None: the static shapes do not give it.
    """

    is_local: ClassVar[bool] = True

    compute: Any
    flops: float | None = None


@note
@record(frozen=True, slots=True)
class OnDevice(Note):
    """The outputs of an operation that are in the memory of a device.

    The device computes the operation if it has a kernel for it.

    Attributes:
      device: the full name of the device.
      outputs: the positions of these outputs.
    """

    is_local: ClassVar[bool] = True

    device: str
    outputs: tuple[int, ...]


@note
@record(frozen=True, slots=True)
class OfCondition(Note):
    """Part of a loop's condition that is evaluated before its iteration (`partition.rotated_loops`).

    Attributes:
      loop: the name of the loop in messages.
      ahead: 1 if the iteration before evaluates it; 0 if it is evaluated before the loop, for iteration 0.
    """

    is_local: ClassVar[bool] = True

    loop: str
    ahead: int
