"""Programs as text, after each pass."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import HeadraceInternalError
from headrace.ir.graph import Tensor
from headrace.schedule import text
from headrace.schedule.buffers import assign_buffers
from headrace.schedule.build import build
from headrace.schedule.checks import place_checks
from headrace.schedule.homes import find_homes
from headrace.schedule.lifetimes import mark_ends, retained
from headrace.schedule.program import Compute, Instr, Loop, Program
from headrace.schedule.select import ListOperation
from headrace.schedule.tiling import tile
from headrace.schedule.verify import verify
from tests.compile.running import b, program, scheduled


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


def floats(name: str, *shape: int) -> Tensor:
    made: Tensor = hr.placeholder(hr.float32, shape, name=name)
    return made


def shown(made: Program) -> str:
    """The text without the names of operations."""
    return re.sub(r"  # \S+(, \S+)?$", "", text.show(made), flags=re.M)


def lines(expected: str) -> str:
    return textwrap.dedent(expected).strip()


def all_instrs(made: Program) -> list[Instr]:
    return [instr for block in made.walk() for instr in block.instrs]


# *** build ***


def test_the_instructions_of_a_step() -> None:
    x, y = floats("x", 4, 4), floats("y", 4, 4)
    z = hr.transpose(hr.tanh(x * 2.0 + y) @ y)
    assert shown(program([hr.identity(z[:2, 1])], [x, y])) == lines("""
        step(%0 float32[4,4] array, %1 float32[4,4] array):
          %3 float32[4,4] array = map multiply($0, $1) (%0, 2.0)
          %4 float32[4,4] array = map add($0, $1) (%3, %1)
          %5 float32[4,4] array = map tanh($0) (%4)
          %6 float32[4,4] array = product plain plain (%5, %1)
          %8 float32[4,4] array = permute [1,0] (%6, int32[2])
          %12 float32[2] array = pieces [:2, 1] (%8, int32[2], int32[2], int32[2])
          results (%12)
    """)


def test_a_counted_loop_and_a_conditional() -> None:
    x = floats("x", 3)
    _, y = hr.while_loop(
        lambda i, y: i < 4, lambda i, y: (i + 1, hr.cond(y[0] > 0.0, lambda: hr.sin(y), lambda: y)), (0, x)
    )
    assert shown(program([y], [x])) == lines("""
        step(%0 float32[3] array):
          %15 float32[3] array = Loop
            variable %6 float32[3] array: %0, next %14, then %15
            counter %5 int32[] counter: from 0 to 4
            do:
              %10 float32[] scalar = pieces [0] (%6, int32[1], int32[1], int32[1])
              %12 bool[] scalar = scalar greater($0, $1) (%10, 0.0)
              %14 float32[3] array = If (%12)
                else:
                  results (%6)
                then:
                  %13 float32[3] array = map sin($0) (%6)
                  results (%13)
              results (%14)
          results (%15)
    """)


def test_a_loop_with_a_condition_and_a_counter_that_is_converted_once_in_a_block() -> None:
    n = hr.placeholder(hr.int32, [], name="n")

    def body(i: Tensor, s: Tensor) -> Any:
        return i + 1, hr.while_loop(lambda t: t < 10, lambda t: t + i + i * 2, [s])[0]

    made = program([hr.while_loop(lambda i, s: i < n, body, [0, 0])[1]], [n])
    found = shown(made)
    assert found.count("= convert (") == 1
    assert "while:\n" in found
    assert [i.trip is None for i in all_instrs(made) if isinstance(i, Loop)] == [False, True]


def test_called_functions_become_part_of_the_block_and_recursive_ones_functions() -> None:
    @hr.function
    def twice(x: Tensor) -> Tensor:
        return x + x

    x = floats("x")
    found = shown(program([twice(twice(x))], [x]))
    assert found.count("scalar add($0, $1)") == 2
    assert "call" not in found


def test_lists_of_one_class_are_one_value() -> None:
    x = floats("x", 3)
    made = b().EmptyTensorList(b().const([3], hr.int32), b().const(-1, hr.int32), element_dtype=hr.float32)
    pushed = b().TensorListPushBack(b().TensorListPushBack(made, x), x)
    rows = b().TensorListStack(pushed, b().const([3], hr.int32), element_dtype=hr.float32, num_elements=2)
    found = program([rows], [x])
    lists = {i.inputs[0] for i in all_instrs(found) if isinstance(i, Compute) and isinstance(i.work, ListOperation)}
    assert sum(v.representation == "list" for v in lists) == 1


# *** passes ***


def test_values_end_with_their_last_reader() -> None:
    x, y = floats("x", 4), floats("y", 4)
    z = hr.tanh(x) * y
    made = program([z + 1.0, hr.sin(x)], [x, y])
    mark_ends(made)
    drops = {i.op.type: [v.tensor.op.type for v in i.drops] for i in made.block.instrs}
    assert drops == {"Tanh": [], "Mul": ["Tanh"], "AddV2": ["Mul"], "Sin": []}


def test_a_view_keeps_the_array_and_a_map_does_not() -> None:
    x, y = floats("x", 4, 4), floats("y", 4, 4)
    t = hr.concat([hr.reshape(x, (16,)), hr.reshape((x + y) @ y, (16,))], 0)
    made = program([hr.cumprod(hr.reshape(t, (4, 8)), 0)], [x, y])
    keeps = {i.op.type: bool(retained([i])) for i in made.block.instrs}
    assert keeps == {"Reshape": True, "AddV2": False, "MatMul": False, "ConcatV2": False, "Cumprod": True}


def test_results_take_the_arrays_of_values_that_end() -> None:
    x, y = floats("x", 4), floats("y", 4)
    made = program([hr.sigmoid(x * y + x)], [x, y])
    mark_ends(made)
    assign_buffers(made)
    assert "map add($0, $1) into step 0: $0" in shown(made)
    assert "exp(negative($0)), 1)) into step 0: $0, step 1: step 0, step 2: step 1, step 3: step 2 (" in shown(made)


def test_no_result_takes_an_array_of_which_a_view_lives() -> None:
    x, y = floats("x", 4), floats("y", 4)
    t = x * y
    made = scheduled([hr.reshape(t, (2, 2)), t + 1.0], [x, y])
    assert "into" not in shown(made)


def test_a_next_value_has_the_variable_of_the_loop_as_home_unless_it_is_still_read() -> None:
    x = floats("x", 3)
    _, a, c = hr.while_loop(lambda i, a, c: i < 4, lambda i, a, c: (i + 1, a * 2.0, a), (0, x, x))
    made = program([a, c], [x])
    find_homes(made)
    (loop,) = [i for i in made.block.instrs if isinstance(i, Loop)]
    assert [v.next.home for v in loop.variables] == [None, None]
    _, a = hr.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, a * 2.0), (0, x))
    made = program([a], [x])
    find_homes(made)
    (loop,) = [i for i in made.block.instrs if isinstance(i, Loop)]
    assert [v.next.home for v in loop.variables] == [loop.variables[0].param]


def test_large_maps_form_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "TILED_BYTES", 64)
    monkeypatch.setattr(thresholds, "TILE_BYTES", 64)
    x = floats("x", 16, 4)
    made = program([hr.tanh(x * 2.0 + 1.0)], [x])
    tile(made)
    mark_ends(made)
    assert "= slices of 4 along axis 0 (%0, 2.0, 1.0)" in shown(made)


def test_only_lists_that_may_become_too_large_are_checked() -> None:
    n, x = hr.placeholder(hr.int32, [], name="n"), floats("x", 4)
    for count, is_checked in ((n, True), (hr.constant(5), False)):
        _, y = hr.while_loop(lambda i, y, count=count: i < count, lambda i, y: (i + 1, hr.sin(y) * y), (0, x))
        made = program(hr.gradients([y], [x]), [n, x])
        with flags.override(ACCUMULATOR_LIMIT=10**6):
            place_checks(made)
        limits = [i.most_bytes for i in all_instrs(made) if isinstance(i, Compute) and i.most_bytes is not None]
        assert bool(limits) == is_checked


def test_the_verifier_finds_values_that_are_read_too_early_or_too_late() -> None:
    x, y = floats("x", 4), floats("y", 4)
    for damage, rule in (("order", "before it is defined"), ("end", "after its end"), ("result", "is not defined")):
        made = scheduled([hr.tanh(hr.sin(x) * y) + y], [x, y])
        instrs = made.block.instrs
        if damage == "order":
            instrs.reverse()
        elif damage == "end":
            instrs[1].drops, instrs[2].inputs = instrs[1].inputs[:1], instrs[1].inputs[:1]
        else:
            del instrs[-1]
        with pytest.raises(HeadraceInternalError, match=rule):
            verify(made)


def test_the_explanation_has_the_schedule() -> None:
    x = hr.placeholder(hr.float32, (2, 2))
    with hr.Session() as session:
        run = session.make_callable(hr.tanh(x) @ x, [x])
        run(np.eye(2, dtype=np.float32))
        schedule = hr.explain(run).schedule
    assert "= map tanh($0) (" in schedule
    assert "= product plain plain (" in schedule


def test_build_is_without_passes() -> None:
    x = floats("x", 4)
    made = program([hr.sin(hr.sin(x))], [x])
    assert build.__module__ == "headrace.schedule.build"
    assert not any(i.drops for i in made.block.instrs)
