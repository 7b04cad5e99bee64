"""Operators and conversions that a symbolic tensor refuses, and the alternatives.

A symbolic tensor has no value until its graph runs. So every use of Python or numpy that needs the value raises an
error: `if`, `int()`, `range()`, iteration, `x[0] = 1`.

`==` between tensors compares identities, so that tensors can be keys. Between a tensor and a number it would be False
for every number, which is never the intention; so a comparison in a user's program raises an error too. (Graphs of
`headrace.v1` are excepted: programs for TensorFlow 1 compare objects that may be numbers or placeholders.)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import numpy as np

from headrace.ir.source import is_ours
from headrace.ir.tensor_type import Elsewhere, Tensor, TensorOperations

if TYPE_CHECKING:
    from headrace.ir.source import Source
    from headrace.shapes import Shape

_RUN: Final = "it has a value when the graph runs: session.run(tensor)"

# Attributes of tensors that have values, or of those with a known shape -> the alternative.
_OF_VALUES: Final = {
    "numpy": "it has a value when the graph runs: session.run(tensor)",
    "ndim": "use hr.rank(tensor)",
    **dict.fromkeys(("size", "nbytes"), "use hr.size(tensor)"),
}


class _Graph(Protocol):
    shows_primitives: bool


class _Maker(Protocol):
    """Part of an operation that this module reads.

    Attributes:
      source: the user's line that created the operation, if known.
    """

    source: Source | None

    @property
    def graph(self) -> _Graph: ...


class Symbolic(Tensor):
    """Refusal of operators that need a value, and the static shape; a base of `ir.graph.Tensor`.

    Attributes:
      static_shape: the static shape, which shape inference reads for the inputs of a new operation. The property
        `shape` of a subclass may return an object of another class for it.
    """

    __slots__ = ("static_shape",)

    static_shape: Shape

    if TYPE_CHECKING:

        @property
        def op(self) -> _Maker: ...

        @property
        def name(self) -> str: ...

        @property
        def shape(self) -> Shape: ...

        @shape.setter
        def shape(self, shape: Shape) -> None: ...

    @staticmethod
    def as_seen(shape: Shape) -> Any:
        """Returns a static shape as public properties return it (see `seen`): here a tuple."""
        return shape

    def _made(self) -> str:
        return f" (made at {self.op.source})" if self.op.source is not None else ""

    def _no_value(self, what: str, instead: str) -> NoReturn:
        raise TypeError(
            f"{what} of the symbolic tensor {self.name!r}{self._made()}, which has no value until the graph runs; "
            f"{instead}"
        )

    def __bool__(self) -> bool:
        self._no_value(
            "bool()",
            "for `if` use hr.cond, for `while` hr.while_loop, for `and`, `or`, `not` hr.logical_and, logical_or, "
            "logical_not, for a < b < c two comparisons; or run it in a Session first",
        )

    def __eq__(self, other: object) -> bool:
        if other.__class__ is self.__class__:  # the frequent case while a step is compiled
            return self is other
        if (
            isinstance(other, (int, float, complex, np.ndarray, np.generic))
            and not self.op.graph.shows_primitives
            and not is_ours(sys._getframe(1).f_code.co_filename)
        ):
            self._no_value(
                "a comparison by == or != with a number", "use hr.equal or hr.not_equal, or run it in a Session first"
            )
        return NotImplemented

    __hash__ = object.__hash__

    def __int__(self) -> int:
        self._no_value("int()", "use hr.cast(tensor, hr.int32), or run it in a Session first")

    def __float__(self) -> float:
        self._no_value("float()", "use hr.cast(tensor, hr.float32), or run it in a Session first")

    def __index__(self) -> int:
        self._no_value(
            "an index (of a list, in range())", "use hr.gather, or hr.while_loop; or run it in a Session first"
        )

    def __len__(self) -> int:
        self._no_value("len()", "use its .shape, or hr.shape(tensor)[0]")

    def __iter__(self) -> Any:
        self._no_value("iteration", "use hr.while_loop, or unstack it (hr.unstack)")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        self._no_value("a numpy array", "use hr's functions in place of numpy's, or run it: session.run(tensor)")

    def __setitem__(self, index: object, value: object) -> None:
        self._no_value(
            "assignment to elements",
            "tensors do not change: make a new one (hr.tensor_scatter_nd_update), or collect rows in a hr.TensorArray",
        )

    def __getattr__(self, name: str) -> NoReturn:
        text = f"'Tensor' object has no attribute {name!r}"
        elsewhere = vars(TensorOperations).get(name)
        instead = elsewhere.instead if isinstance(elsewhere, Elsewhere) else _OF_VALUES.get(name)
        if instead is not None:
            text += f": it is the symbolic tensor {self.name!r}{self._made()}, no array; {instead}"
        raise AttributeError(text, name=name, obj=self)


Symbolic.shape = vars(Symbolic)["static_shape"]  # type: ignore[method-assign]  # the slot under another name


def seen(shape: Shape, of: object) -> Any:
    """Returns a static shape in the form that public properties of the graph's tensors have.

    Args:
      shape: the shape of an object that represents tensors: a variable, a `SparseTensor`, a queue.
      of: one of these tensors, whose method `as_seen` determines the form.
    """
    return of.as_seen(shape) if isinstance(of, Symbolic) else shape
