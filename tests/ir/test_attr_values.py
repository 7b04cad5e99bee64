"""Keys and comparison of attribute values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.ir.attr_values import Func, attr_key, equal

DISTINCT: list[Any] = [
    0, 1, False, True, 0.0, -0.0, 1.0, float("nan"), "1", "0x0.0p+0", hr.float32, None, (), (0,), (0.0,), (-0.0,),
    (False,), ((0,),), (1, 2), (1, 2.0), np.float32(0.0), np.float32(-0.0), np.int64(0), np.int32(0), np.bool_(False),
    Func("f"), Func("g"), Func("f", (("a", 0.0),)), Func("f", (("a", -0.0),)),
]  # fmt: skip


def test_keys_of_different_values_differ() -> None:
    for a, b in itertools.combinations(DISTINCT, 2):
        assert attr_key(a) != attr_key(b), (a, b)
    assert len(set(map(attr_key, DISTINCT))) == len(DISTINCT)


def test_keys_of_equal_values_are_equal() -> None:
    def values() -> list[Any]:
        return [0, 1.5, float("nan"), (1, (float("nan"), -0.0)), "a", Func("f", (("a", 0.0),))]

    for a, b in zip(values(), values(), strict=True):
        assert equal(a, b)
        assert attr_key(a) == attr_key(b)
        assert hash(attr_key(a)) == hash(attr_key(b))


def test_the_key_of_an_array_cannot_be_hashed() -> None:
    for value in (np.zeros(2), (np.zeros(2),)):
        with pytest.raises(TypeError):
            hash(attr_key(value))
