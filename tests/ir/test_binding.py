"""Binding of arguments to op records, by graph and eager builders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.api import scopes
from headrace.dtypes import DType
from headrace.eager import EagerBuilder, EagerTensor
from headrace.errors import GraphError
from headrace.ir.binding import OpCalls
from headrace.ir.builder import Builder
from headrace.ir.conversion import as_array

Call = Callable[[Any], Any]

MISTAKES: list[tuple[Call, str]] = [
    (lambda b: b.AddV2(1.0), r"AddV2 takes 2 arguments \(x, y\), got 1"),
    (lambda b: b.Pack(1.0), "argument 'values' of Pack must be a list of tensors, got 1.0"),
    (
        lambda b: b.AddV2(b.const(1.0), b.const(1)),
        r"Input 'y' of 'AddV2' Op has type int32 that does not match type float32 of argument 'x': got .*\. Cast",
    ),
    (
        lambda b: b.AddV2(b.const(1), 1.5),
        r"Input 'y' of 'AddV2' Op does not match type int32 of argument 'x' \(.*\): expected int32, got 1\.5",
    ),
    (
        lambda b: b.MatMul(b.const("a"), b.const("b")),
        "Value passed to parameter 'a' of 'MatMul' Op has DataType string not in list of allowed values: .* Got .*cast",
    ),
    (lambda b: b.Pack([]), "'Pack' Op needs at least 1 tensor as argument 'values', got 0"),
    (lambda b: b.AddV2(b.const(1.0), None), "None .* cannot be a tensor: give a number"),
    (
        lambda b: b.tensor(b.const(1), dtypes.float32),
        "Tensor conversion requested dtype float32 for Tensor with dtype int32: .*; cast it",
    ),
]


@pytest.mark.parametrize(("call", "says"), MISTAKES)
def test_both_builders_raise_the_same_error(call: Call, says: str) -> None:
    errors = []
    with hr.Graph() as g:
        for b in (Builder(g), EagerBuilder()):
            with pytest.raises((TypeError, ValueError), match=says) as caught:
                call(b)
            errors.append(caught.type)
    assert errors[0] is errors[1]


CALLS: list[Call] = [
    lambda b: b.AddV2(1, b.const(np.float64(2.0))),
    lambda b: b.Pack([b.const(1.5), 2, np.float32(3.0)]),
    lambda b: b.tensor([b.const(2)], dtypes.int64),
    lambda b: b.tensor([[1, b.const(2)], [3, 4]]),
    lambda b: b.Reshape(b.const([1.0]), []),
    lambda b: b.ConcatV2([[1.0], b.const([2.0])], 0),
    lambda b: b.Fill([2], True),
    lambda b: b.Cast(1, DstT=dtypes.bfloat16),
]


@pytest.mark.parametrize("call", CALLS)
def test_both_builders_convert_alike(call: Call) -> None:
    want = call(EagerBuilder())
    with hr.Graph() as g:
        made = call(Builder(g))
    assert made.dtype is want.dtype
    got = hr.Session(graph=g).run(made)
    assert np.array_equal(got, want.numpy())
    assert np.shape(got) == want.shape


NUMBERS = [True, False, 0, 1, -7, 2**31 - 1, -(2**31), 2**31, 2**40, 2**70, 0.0, -0.0, 1.1, 3e38, 1e300]
NUMBERS += [float("inf"), float("-inf"), float("nan"), 5e-324]


@pytest.mark.parametrize("value", NUMBERS)
def test_a_number_is_converted_as_in_a_list(value: Any) -> None:
    wanted: list[DType | None] = [None, dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64]
    wanted += [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64]
    for dtype in wanted:
        with np.errstate(over="ignore"):
            one, listed = (_converted(v, dtype) for v in (value, [value]))
        if isinstance(listed, np.ndarray):
            assert isinstance(one, np.ndarray)
            assert (one.dtype, one.shape, one.flags.writeable) == (listed.dtype, (), False)
            assert one.tobytes() == listed.tobytes()
        else:
            assert one is listed


def _converted(value: Any, dtype: DType | None) -> np.ndarray | type[BaseException]:
    try:
        return as_array(value, dtype)
    except (TypeError, ValueError, OverflowError) as e:
        return type(e)


def test_a_call_with_tensors_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = []
    match = OpCalls._match
    monkeypatch.setattr(OpCalls, "_match", lambda *args: (bound.append(args[1].type), match(*args))[1])
    b = EagerBuilder()
    x, axis = b.const([1.0, 2.0]), b.const(0)
    for _ in range(3):
        b.AddV2(x, x)
        b.ConcatV2([x, x], axis)
    assert sorted(bound) == ["AddV2", "ConcatV2"]
    for number in (1.0, 2.0):
        b.AddV2(x, number)  # bound once, since the class of the number decides its dtype
    assert sorted(bound) == ["AddV2", "AddV2", "ConcatV2"]
    assert len(b._prepared) == 3


def test_a_list_where_a_tensor_is_expected_is_no_prepared_call() -> None:
    b = EagerBuilder()
    x = b.const([1.0, 2.0])
    assert b.Neg(x).numpy().tolist() == [-1, -2]
    assert b.Neg([x, x]).shape == (2, 2)
    assert b.Pack([x]).shape == (1, 2)
    assert b.Pack((x, x)).shape == (2, 2)
    with pytest.raises(GraphError, match="must be a list of tensors"):
        b.Pack(x)


def test_an_attribute_that_cannot_be_hashed_is_taken() -> None:
    b = EagerBuilder()
    for _ in range(2):
        made = b.Const(value=np.arange(3, dtype=np.int32), dtype=dtypes.int32)
        assert made.numpy().tolist() == [0, 1, 2]
    assert len(b._prepared) == 0


def test_a_variable_stands_for_its_value() -> None:
    v = hr.Variable(2.0)
    b = EagerBuilder()
    assert isinstance(b.tensor(v), EagerTensor)
    assert b.AddV2(v, 1).numpy() == 3.0
    assert scopes.runtime().eager.Pack([v, 1]).numpy().tolist() == [2.0, 1.0]
