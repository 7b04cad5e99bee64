"""The instruction of each operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.ir.graph import Tensor
from headrace.opkit.forms import Reduce
from headrace.schedule.select import (
    Constant,
    Forward,
    Instruction,
    KernelCall,
    ListOperation,
    Map,
    Move,
    Nothing,
    Selection,
)
from tests.compile.running import b, regions


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


def instruction(t: Tensor, *feeds: Tensor) -> Instruction:
    """The instruction of the operation that makes a fetched tensor."""
    found = regions([t], list(feeds))
    (item,) = [i for i in found.root.items if i.op.type == "_Retval"]
    made = item.op.inputs[0].op
    return Selection(found).of(next(i for i in found.root.items if i.op is made))


def placed(*shape: int | None, dtype: hr.DType = hr.float32) -> Tensor:
    made: Tensor = hr.placeholder(dtype, shape)
    return made


Make = Callable[[Tensor, Tensor], Tensor]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x, y: x + y, Map),
        (lambda x, y: hr.sigmoid(x), Map),
        (lambda x, y: b().SigmoidGrad(x, y), Map),
        (lambda x, y: hr.reshape(x, (2, 8)), Move),
        (lambda x, y: hr.transpose(x), Move),
        (lambda x, y: x[1:3], Move),
        (lambda x, y: hr.concat([x, y], 0), Move),
        (lambda x, y: hr.split(x, 2)[0], Move),
        (lambda x, y: hr.reduce_sum(x, 0), Move),
        (lambda x, y: b().BiasAddGrad(x), Move),
        (lambda x, y: x @ y, Move),
        (lambda x, y: hr.identity(x), Forward),
        (lambda x, y: hr.constant([1.0, 2.0]), Constant),
        (lambda x, y: hr.cumsum(x, 0), KernelCall),
        (lambda x, y: hr.random.uniform((4,)), KernelCall),
        (lambda x, y: hr.linalg.inv(x), KernelCall),
    ],
)
def test_the_record_determines_the_instruction(make: Make, kind: type[Instruction]) -> None:
    x, y = placed(4, 4), placed(4, 4)
    assert type(instruction(make(x, y), x, y)) is kind


@pytest.mark.parametrize(("data_format", "axes"), [("NHWC", (0, 1, 2)), ("NCHW", (0, 2, 3))])
def test_the_gradient_of_a_bias_is_a_sum_over_all_axes_but_the_channels(
    data_format: str, axes: tuple[int, ...]
) -> None:
    x = placed(2, 3, 4, 5)
    found = instruction(b().BiasAddGrad(x, data_format=data_format), x)
    assert isinstance(found, Move)
    assert isinstance(found.form, Reduce)
    assert (found.form.axes, found.form.keep_dims) == (axes, False)


@pytest.mark.parametrize(
    "make", [lambda x, n: hr.reverse(x, n), lambda x, n: x[n[0] :], lambda x, n: hr.concat([x, x], n[0])]
)
def test_parameters_that_are_not_static_need_the_kernel(make: Make) -> None:
    x, n = placed(4, 4), placed(1, dtype=hr.int32)
    assert type(instruction(make(x, n), x, n)) is KernelCall


@pytest.mark.parametrize("make", [lambda x: hr.reshape(x, (-1,)), lambda x: hr.transpose(x), lambda x: x[1:3]])
def test_shapes_that_are_not_static_need_the_kernel(make: Callable[[Tensor], Tensor]) -> None:
    x = placed(None, 4)
    assert type(instruction(make(x), x)) is KernelCall


def test_a_kernel_in_place_of_that_of_the_record_is_called() -> None:
    """float16 is computed in float32, and the form of a product would compute in float16."""
    x = placed(4, 4, dtype=hr.float16)
    assert type(instruction(x @ x, x)) is KernelCall
    assert type(instruction(hr.reduce_sum(x, 0), x)) is KernelCall


def test_scalars_are_told_apart() -> None:
    x, y = placed(), placed(4)
    for made, is_scalar in ((x * x, True), (x * y, False)):
        found = instruction(made, x, y)
        assert isinstance(found, Map)
        assert found.is_scalar == is_scalar


def test_no_instruction_and_those_of_lists() -> None:
    x = placed(3, 2)
    rows = b().TensorListFromTensor(x, b().const([2], hr.int32))
    row = b().TensorListGetItem(rows, b().const(1, hr.int32), b().const([2], hr.int32), element_dtype=hr.float32)
    with hr.control_dependencies([hr.no_op()]):
        last = hr.identity(row)
    found = regions([last], [x])
    selection = Selection(found)
    chosen = {i.op.type: selection.of(i) for i in found.root.items if i.op.type != "_Retval"}
    made, read = chosen["TensorListFromTensor"], chosen["TensorListGetItem"]
    assert isinstance(made, ListOperation)
    assert isinstance(read, ListOperation)
    assert (made.role.kind, made.kind) == ("from_tensor", "rows")
    assert (read.role.kind, read.kind) == ("get", "rows")
    assert chosen["NoOp"] == Nothing()
