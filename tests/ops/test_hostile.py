"""Hostile arguments make no operation crash, hang or use unbounded memory.

An operation fails only with an error that states the fault. This is a property of every op type in the registry,
stateful ones included.
"""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import GraphError, HeadraceWarning, InternalError, OpError, UnknownError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import op_registry
from headrace.opkit import arrays
from tests.ops.hostile import attempts, can_be_tried, make

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

TYPES = [t for t in sorted(op_registry) if can_be_tried(op_registry.get(t))]
ATTEMPTS = 8  # of each type
MANY = 100
# TensorFlow too has no better class for these.
INTERNAL = {
    *("TruncateDiv", "TruncateMod", "StackPop", "StackPopV2"),
    *("SparseReduceSum", "SparseReduceSumSparse", "SparseSliceGrad"),
}
MOST_BYTES = 10**8
WAIT_MS = 200  # an operation that waits for others waits in vain


def check(type: str, n: int, seed: int) -> None:
    record = op_registry.get(type)
    for i, attempt in enumerate(attempts(record, n, seed)):
        graph = Graph()
        try:
            try:
                op = make(Builder(graph), record, attempt)
            except (ValueError, OpError):  # an error of the shape rule or of the signature
                continue
            with hr.Session(graph=graph) as session:
                session.run(op, options=hr.RunOptions(timeout_in_ms=WAIT_MS))
        except (InternalError, UnknownError) as e:
            if type in INTERNAL:
                continue
            e.add_note(f"attempt {i} at {type} (seed {seed}): {attempt}")
            raise
        except (GraphError, OpError):
            continue
        except Exception as e:
            e.add_note(f"attempt {i} at {type} (seed {seed}): {attempt}")
            raise


@pytest.mark.timeout(60)
@pytest.mark.parametrize("type", TYPES)
def test_any_arguments_are_refused_or_computed(type: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # some write files of any name
    monkeypatch.setattr(arrays, "max_bytes", MOST_BYTES // 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        check(type, ATTEMPTS, seed=0)


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("type", TYPES)
def test_any_arguments_with_many_seeds(type: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arrays, "max_bytes", MOST_BYTES // 4)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HeadraceWarning)
            check(type, MANY, seed=1)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES, f"{type} allocated too much"
    finally:
        tracemalloc.stop()
