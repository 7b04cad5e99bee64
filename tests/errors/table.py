"""Mistakes as rows of a table: what is done, the class of the error, what its text must say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr

Row = tuple[Callable[[], Any], type[BaseException], str]


def check(how: Callable[[], Any], error: type[BaseException], says: str) -> str:
    """`how` must fail with exactly this class and a text that has `says` (a regular expression). Returns the text."""
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
    """A tensor of this value whose shape nobody knows while the graph is built, so the kernel has to complain."""
    out: hr.Tensor = hr.placeholder_with_default(hr.constant(value, dtype), None)
    return out


def run(make: Callable[[], Any], feeds: Any = None) -> Any:
    """What `make` makes, run in a graph and a session of its own."""
    with hr.Graph() as g:
        fetched = make()
    with hr.Session(graph=g) as session:
        return session.run(fetched, feeds)
