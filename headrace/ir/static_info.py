"""Static information of a tensor: its shape and the contents of its handle.

It is the knowledge before a step runs. Three methods change it. `refine` adds information and refuses a contradiction;
it is for callers that know more than shape inference. `replace_static` and `copy_static` discard the present
information; they are for tensors whose producer was just created or changed. Each increments `Graph.version` if the
information changes, because compiled steps depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace import shapes
from headrace.errors import ShapeError
from headrace.ir.symbolic import Symbolic

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.source import Source
    from headrace.shapes import Shape

# dtype and shape of the value that a resource or variant tensor refers to
Handle: TypeAlias = "tuple[DType, Shape] | None"
Known: TypeAlias = "tuple[Shape, Handle]"


class _Graph(Protocol):
    shows_primitives: bool

    def _grew(self) -> None: ...


class _Maker(Protocol):
    source: Source | None

    @property
    def graph(self) -> _Graph: ...


class StaticInfo(Symbolic):
    """Static information of a tensor; a base of `ir.graph.Tensor`.

    Attributes:
      handle: (dtype, shape) of the value that a resource or variant tensor refers to, or None if unknown.
    """

    __slots__ = ("handle",)

    handle: Handle

    if TYPE_CHECKING:

        @property
        def op(self) -> _Maker: ...

    def refine(self, shape: Shape = None, handle: Handle = None) -> None:
        """Adds to the static shape and to the contents of the handle.

        Args:
          shape: a shape of the tensor, None for no information.
          handle: contents of the handle, None for no information.

        Raises:
          ShapeError: the arguments contradict the present information, which stays.
        """
        try:
            known = merged((self.static_shape, self.handle), (shape, handle))
        except ValueError as e:
            made = f" (made at {self.op.source})" if self.op.source is not None else ""
            raise ShapeError(
                f"Tensor's shape {_shown(self.static_shape, self.handle)} is not compatible with supplied shape "
                f"{_shown(shape, handle)}: '{self.name}'{made}; {e}"
            ) from None
        self.replace_static(*known)

    def set_shape(self, shape: Any) -> None:
        """Refines the static shape.

        Args:
          shape: the shape, with None for unknown dimensions.

        Raises:
          ShapeError (a ValueError): it contradicts the present static shape.

        Source: TensorFlow's `tf.Tensor.set_shape`.
        """
        self.refine(shapes.as_shape(shape))

    def replace_static(self, shape: Shape, handle: Handle) -> None:
        """Replaces the static shape and the contents of the handle.

        Args:
          shape: the new static shape.
          handle: the new contents of the handle.
        """
        if self.static_shape != shape or self.handle != handle:
            self.static_shape, self.handle = shape, handle
            self.op.graph._grew()

    def copy_static(self, other: StaticInfo) -> None:
        """Replaces the static information by that of `other`, a tensor with the same value."""
        self.replace_static(other.static_shape, other.handle)


def merged(a: Known, b: Known) -> Known:
    """Returns the static information of a tensor that both arguments describe.

    Raises:
      ValueError: the arguments contradict each other.
    """
    (shape, held), (other, holds) = a, b
    both = held or holds
    if held is not None and holds is not None:
        if held[0] is not holds[0]:
            raise ValueError(f"Handles must refer to one dtype, but refer to {held[0].name} and {holds[0].name}")
        both = held[0], shapes.merge(held[1], holds[1])
    return shapes.merge(shape, other), both


def _shown(shape: Shape, handle: Handle) -> str:
    of = "" if handle is None else f" of {handle[0].name}{shapes.show(handle[1])}"
    return shapes.show(shape) + of
