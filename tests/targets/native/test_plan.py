"""Plan of a region's memory: which arrays share a storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags
from headrace.targets.native import engine
from tests.targets.native import region_running as running

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

N = 48
BYTES = 4 * N * N  # more than may be on the stack


def large_storages(make: Callable[[Any, Any], Any]) -> int:
    """Runs a program on two matrices, and counts the storages of their size."""
    with hr.Graph():
        a, b = hr.placeholder(hr.float32, [N, N]), hr.placeholder(hr.float32, [N, N])
        rng = np.random.default_rng(0)
        feeds = {x: rng.normal(size=(N, N)).astype(np.float32) / 4 for x in (a, b)}
        seen = running.run(make(a, b), feeds)
        (program,) = seen.programs
        found = running.plan_of(running.whole(program.block))
    return sum(s.bytes == BYTES and s.output < 0 for s in found.storages)


def test_a_nest_writes_over_an_array_that_it_reads_last() -> None:
    assert large_storages(lambda a, b: hr.matmul(hr.tanh(hr.matmul(a, b) + b), b)) == 1


def test_a_chain_of_nests_has_one_storage() -> None:
    def make(a: Any, b: Any) -> Any:
        x = hr.matmul(a, b) + b
        x = x * hr.reduce_max(x)  # a sum of numbers of both signs would depend on the width of the vectors
        x = x - hr.reduce_sum(x, 1, keepdims=True)
        return hr.matmul(x, b)

    assert large_storages(make) == 1


def test_an_array_that_is_read_later_stays() -> None:
    def make(a: Any, b: Any) -> Any:
        x = hr.matmul(a, b)
        y = hr.matmul(hr.tanh(x), b)
        return hr.matmul(y, x)

    assert large_storages(make) == 3


def test_an_array_that_is_read_in_another_order_stays() -> None:
    def make(a: Any, b: Any) -> Any:
        x = hr.matmul(a, b)
        return hr.matmul(hr.tanh(x) + hr.transpose(x, [1, 0]), b)

    assert large_storages(make) == 2


def test_an_array_from_before_a_loop_stays() -> None:
    def make(a: Any, b: Any) -> Any:
        x = hr.matmul(a, b)
        return hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, hr.matmul(x + y, b)), [0, a])[1]

    assert large_storages(make) == 4  # two homes of the variable
