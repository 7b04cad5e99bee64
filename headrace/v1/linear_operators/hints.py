"""Hints of products of operators."""

from __future__ import annotations

from typing import Any


def of_product(left: Any, right: Any) -> dict[str, Any]:
    """Returns the hints of a product of two operators."""
    square = _both(left.is_square, right.is_square)
    if square is False:
        return {"is_non_singular": False, "is_self_adjoint": False, "is_positive_definite": False, "is_square": False}
    non_singular = _non_singular(left, right) if square else None
    return {
        "is_non_singular": non_singular, "is_self_adjoint": None, "is_positive_definite": None, "is_square": square,
    }  # fmt: skip


def of_commuting(left: Any, right: Any) -> dict[str, Any]:
    """Returns the hints of a product of two square operators that commute."""
    adjoint = True if left.is_self_adjoint and right.is_self_adjoint else None
    positive = left.is_positive_definite and right.is_positive_definite and adjoint
    return {
        "is_non_singular": _non_singular(left, right),
        "is_self_adjoint": adjoint,
        "is_positive_definite": True if positive else None,
        "is_square": True,
    }


def _both(a: bool | None, b: bool | None) -> bool | None:
    if a and b:
        return True
    return False if a is not b and None not in (a, b) else None


def _non_singular(left: Any, right: Any) -> bool | None:
    if left.is_non_singular is False or right.is_non_singular is False:
        return False
    return True if left.is_non_singular and right.is_non_singular else None
