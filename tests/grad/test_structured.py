"""The table of derivatives of structured operations."""

from __future__ import annotations

from typing import get_args

from headrace.grad.structured import STRUCTURED
from headrace.ir.opdef import Structured


def test_each_structured_kind_has_derivatives() -> None:
    assert set(STRUCTURED) == set(get_args(Structured)) - {""}
