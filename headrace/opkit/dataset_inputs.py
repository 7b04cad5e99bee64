"""Checks of the inputs of dataset ops that are scalars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import op_registry


def scalar_check(type: str, attrs: Mapping[str, Any]) -> Callable[[Sequence[Any]], None]:
    """Returns a function that checks the ranks of the scalars among the inputs.

    Args:
      type: the op type; all its single numbers, bools and strings are scalars, but for file names.
      attrs: its complete attributes.
    """
    record = op_registry.get(type)
    spans = record.spans(attrs)
    scalars = [
        (spans[a.name].start, a.name)
        for a in record.ins
        if not a.is_list and a.name != "filenames" and a.dtype not in (None, dtypes.variant, dtypes.resource)
    ]

    def check(inputs: Sequence[Any]) -> None:
        for at, name in scalars:
            shape = getattr(inputs[at], "shape", ())
            if shape:
                raise InvalidArgumentError(f"{type}: `{name}` must be a scalar, got shape {shapes.show(shape)}")

    return check
