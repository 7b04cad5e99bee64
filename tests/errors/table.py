"""Mistakes as rows of a table.

A row has the function that makes the mistake, the class of the error, and a pattern for its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr

Row = tuple[Callable[[], Any], type[BaseException], str]


def check(how: Callable[[], Any], error: type[BaseException], says: str) -> str:
    """Requires `how` to fail with exactly this class; returns the text.

    The text must have `says` (a regular expression).
    """
    with pytest.raises(error) as e:
        how()
    text = str(e.value)
    assert type(e.value) is error, f"{type(e.value).__name__}: {text}"
    assert re.search(says, text, re.DOTALL), f"{says!r} is not in: {text}"
    return text


def open_(dtype: hr.DType = hr.float32, *dims: int | None) -> hr.Tensor:
    """A placeholder of a shape that is not known, or of these dimensions."""
    out: hr.Tensor = hr.placeholder(dtype, dims or None)
    return out


def hidden(value: Any, dtype: hr.DType | None = None) -> hr.Tensor:
    """A tensor of this value without a static shape, so the kernel has to complain."""
    out: hr.Tensor = hr.placeholder_with_default(hr.constant(value, dtype), None)
    return out


def run(make: Callable[[], Any], feeds: Any = None) -> Any:
    """The results of `make`, run in a graph and a session of its own."""
    with hr.Graph() as g:
        fetched = make()
    with hr.Session(graph=g) as session:
        return session.run(fetched, feeds)
