"""Programs of `benchmarks.cluster`: scripts for TensorFlow 1 that run in several processes.

`task` is the process of one task. Each program is a class. Its constructor receives the module `tf`
(`tensorflow.compat.v1` or `headrace.v1`) and a `Place`, builds a graph and opens a session. Its methods run steps,
check their results and return seconds. `round_trip` uses plain sockets and no module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Place:
    """Task that runs a client program, and its cluster.

    Attributes:
      target: target for the session; empty without a server.
      cluster: job → addresses of its tasks.
      job: name of this task's job.
      index: number of this task in its job.
    """

    target: str
    cluster: Mapping[str, Sequence[str]]
    job: str
    index: int


def worker(index: int) -> str:
    """Device name of one worker."""
    return f"/job:worker/task:{index}"


def check(what: str, found: float, expected: float, tolerance: float = 0.0) -> None:
    """Compares a result with the expected number.

    Args:
      what: name of the result, for the error.
      found: the result.
      expected: the right number.
      tolerance: greatest relative difference.

    Raises:
      ArithmeticError: they differ by more; also if the result is not a number.
    """
    if not abs(found - expected) <= tolerance * abs(expected):
        raise ArithmeticError(f"{what} is {found!r}; expected {expected!r}")
