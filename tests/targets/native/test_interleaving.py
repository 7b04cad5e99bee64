"""Several vectors in turns in loops with long bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace.targets.native.fusion import Nest
from headrace.targets.native.interleaving import vectors_in_turns
from tests.targets.native import region_running as running

pytestmark = pytest.mark.one_engine


def chain(count: int) -> Callable[[Any], Any]:
    """A function of `count` maps, each of which reads the result of the last."""

    def function(x: Any) -> Any:
        y = x
        for _ in range(count // 2):
            y = hr.minimum(y * x, 2.0)
        return y

    return function


def wide(x: Any) -> Any:
    """More intermediate results than there are registers, each in a chain."""
    parts = [x * (1.0 + k) for k in range(40)]
    total = x
    for part in parts:
        total = total + part * total
    for part in parts:
        total = total * part
    return total


def turns(function: Callable[[Any], Any], *shape: int, registers: int = 32) -> int:
    """The vectors in turns of the first nest."""
    with hr.Graph():
        x = hr.placeholder(hr.float32, shape)
        seen = running.run(function(x), {x: np.ones(shape, np.float32)})
    nest = running.printed(running.whole(seen.programs[0].block)).units[0]
    assert isinstance(nest, Nest)
    return vectors_in_turns(nest, registers)


def test_long_chains_have_four_vectors() -> None:
    assert turns(chain(60), 32, 32) == 4


def test_short_chains_and_small_arrays_have_one() -> None:
    assert turns(chain(20), 32, 32) == 1
    assert turns(chain(60), 8, 8) == 1


def test_functions_count_as_many_instructions() -> None:
    assert turns(lambda x: hr.tanh(hr.tanh(x) + 1.0), 64, 64) == 4


def test_registers_limit_the_number() -> None:
    assert turns(chain(60), 64, 64, registers=16) == 4
    assert turns(chain(60), 64, 64, registers=8) == 2


def test_many_results_in_between_leave_one() -> None:
    assert turns(wide, 64, 64) == 1


@pytest.mark.parametrize("size", [512, 577])
def test_results_are_those_of_the_python_target(size: int) -> None:
    x = np.linspace(-3, 3, size, dtype=np.float32)
    x[5] = np.nan
    with hr.Graph():
        fed = hr.placeholder(hr.float32, x.shape)
        running.run(chain(60)(fed), {fed: x}, np.testing.assert_array_equal)
