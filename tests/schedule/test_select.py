"""The instruction of each operation, and the text of a schedule."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.ir.graph import Tensor
from headrace.schedule import text
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
        (lambda x, y: x @ y, Move),
        (lambda x, y: hr.identity(x), Forward),
        (lambda x, y: hr.constant([1.0, 2.0]), Constant),
        (lambda x, y: hr.reduce_max(x, 0), KernelCall),
        (lambda x, y: hr.random.uniform((4,)), KernelCall),
        (lambda x, y: hr.linalg.inv(x), KernelCall),
    ],
)
def test_the_record_determines_the_instruction(make: Make, kind: type[Instruction]) -> None:
    x, y = placed(4, 4), placed(4, 4)
    assert type(instruction(make(x, y), x, y)) is kind


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


def test_operations_that_keep_their_inputs() -> None:
    """A view keeps the array, an element-wise operation and a product do not."""
    x, y = placed(4, 4), placed(4, 4)
    keeps = {"Reshape": True, "AddV2": False, "MatMul": False, "ConcatV2": False, "Max": True}
    t = hr.concat([hr.reshape(x, (16,)), hr.reshape((x + y) @ y, (16,))], 0)
    found = regions([hr.reduce_max(hr.reshape(t, (4, 8)), 0)], [x, y])
    selection = Selection(found)
    for item in found.root.items:
        if item.op.type in keeps:
            assert selection.keeps_inputs(item) == keeps[item.op.type], item.op.type


# *** text ***


def shown(fetches: list[Tensor], feeds: list[Tensor]) -> str:
    found = regions(fetches, feeds)
    return text.show(found, Selection(found))


def test_the_text_of_instructions() -> None:
    x, y = hr.placeholder(hr.float32, (4, 4), name="x"), hr.placeholder(hr.float32, (4, 4), name="y")
    z = hr.transpose(hr.tanh(x * 2.0 + y) @ y, name="turned")
    half = hr.identity(z[:2, 1], name="half")
    assert "turned:0 float32[4,4] = permute [1,0] (" in shown([half], [x, y])
    lines = shown([half], [x, y]).splitlines()
    assert [line.partition(" = ")[2].partition(" (")[0] for line in lines if " = " in line] == [
        "map multiply($0, $1)",
        "map add($0, $1)",
        "map tanh($0)",
        "product plain plain",
        "permute [1,0]",
        "pieces [:2, 1]",
        "forward $0",
    ]


def test_the_text_of_loops_and_conditionals() -> None:
    x = hr.placeholder(hr.float32, (3,), name="x")
    with flags.override(OPTIMIZE="off"):
        _, y = hr.while_loop(
            lambda i, y: i < 4,
            lambda i, y: (i + 1, hr.cond(y[0] > 0, lambda: hr.sin(y), lambda: hr.cos(y))),
            (0, x),
            name="loop",
        )
        found = textwrap.dedent(shown([y], [x]))
    assert "While, which only counts, (" in found
    assert "  body:" in found
    assert "condition:" not in found
    for expected in ("If (", "then:", "else:", "map sin($0)", "map cos($0)"):
        assert expected in found, expected


def test_the_explanation_has_the_schedule() -> None:
    x = hr.placeholder(hr.float32, (2, 2))
    with hr.Session() as session:
        run = session.make_callable(hr.tanh(x) @ x, [x])
        run(np.eye(2, dtype=np.float32))
        schedule = hr.explain(run).schedule
    assert "= map tanh($0) (" in schedule
    assert "= product plain plain (" in schedule
