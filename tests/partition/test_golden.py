"""The parts of graphs as text: the files in `golden/`.

`python -m tests.partition.golden` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.execute.machine import Machine
from tests.partition.golden import GOLDEN, PROGRAMS, operations, parts_of, text
from tests.partition.machine import Parts, compute

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_parts(make: Callable[[], Any]) -> None:
    assert text(make) == (GOLDEN / f"{make.__name__}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_the_parts_compute_what_the_whole_does(make: Callable[[], Any]) -> None:
    ops = operations(make)
    parts = parts_of(make)
    assert len(parts) > 1
    args = sum(op.type == "_Arg" for op in ops)
    for values in ((0.0, 2.0, 5.0), (1.0, 3.0, 5.0), (3.0, 2.0, 5.0)):
        fed = dict(enumerate(map(np.float32, values[:args])))
        alone = Machine(ops, compute=compute).run(fed)
        (want,) = (alone.value(op)[0] for op in ops if op.type == "_Retval")
        for seed in range(5):
            assert Parts(parts, seed).run(fed).results() == {0: want}, values


def test_every_golden_text_is_tested() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {f.__name__ for f in PROGRAMS}
