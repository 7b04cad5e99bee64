"""Annotations of tensors with shape and dtype: `Tensor["n 3", float32]`.

The words of the text are the dimensions: a number; a name, which stands for one number in all annotations of a call;
`_` for any dimension; and at most one of `...` and `*name`, which stand for any number of dimensions. The empty text is
the shape of a scalar. `api.annotations` checks values.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from headrace import dtypes
from headrace.dtypes import DType
from headrace.records import record


@record(frozen=True, slots=True)
class TensorAnnotation:
    """A tensor with a shape and one of several dtypes.

    Attributes:
      words: the dimensions; None for any shape.
      dtypes: the allowed dtypes; () for any.
    """

    words: tuple[str, ...] | None
    dtypes: tuple[DType, ...]

    @property
    def shape(self) -> str:
        """The shape for messages: "[n,3]"; "" for any."""
        return "" if self.words is None else f"[{','.join(self.words)}]"

    @property
    def dtype(self) -> str:
        """The dtypes for messages: "float32 or float64"; "" for any."""
        return " or ".join(d.name for d in self.dtypes)

    def __str__(self) -> str:
        return f"a tensor{' of ' * bool(self.dtypes)}{self.dtype}{' ' * bool(self.shape)}{self.shape}"

    def __repr__(self) -> str:
        parts = ([] if self.words is None else [repr(" ".join(self.words))]) + [d.name for d in self.dtypes]
        return f"Tensor[{', '.join(parts)}]"

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 - the operator on types calls this method

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # parts of a Union must be callable
        raise TypeError(f"{self!r} is an annotation and makes no tensor: use hr.constant(value)")


def annotation(parts: Sequence[Any]) -> TensorAnnotation:
    """Returns the annotation of parts in brackets: texts or numbers (the shape), then dtypes.

    Raises:
      TypeError: a part is no dtype.
      ValueError: the text has a word that is no dimension, or more than one that stands for several.
    """
    n = next((i for i, part in enumerate(parts) if not isinstance(part, (str, int))), len(parts))
    kinds, text = parts[n:], " ".join(map(str, parts[:n]))
    words = tuple(text.split()) if n else None
    for word in words or ():
        name = word.removeprefix("*")
        if not (word == "..." or word.isdecimal() or name.isidentifier()):
            raise ValueError(
                f"{word!r} in the shape {text!r} of a tensor is no dimension: write a number, a name, _, *name or ..."
            )
    if sum(is_several(word) for word in words or ()) > 1:
        raise ValueError(f"the shape {text!r} of a tensor can have one of ... and *name, and one only")
    return TensorAnnotation(words, tuple(dtypes.as_dtype(k).base for k in kinds))


def is_several(word: str) -> bool:
    """Whether a word stands for any number of dimensions."""
    return word == "..." or word.startswith("*")
