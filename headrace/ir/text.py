"""Graphs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.ir.graph import Operation


def show_op(op: Operation) -> str:
    """One line of text for an operation."""
    return repr(op)
