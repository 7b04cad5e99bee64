"""`SessionStatistics`: the state of a session at one moment."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.records import record


@record(frozen=True, slots=True)
class MemoryStatistics:
    """Bytes of one device with a memory limit.

    Values of a GPU that are swapped go to pinned memory of the host, and others to the spill file.

    Attributes:
      held: bytes in memory now.
      peak: the largest number of bytes in memory so far.
      spilled: swapped bytes now.
      bytes_out: bytes that left memory since the session began.
      bytes_in: bytes that came back since the session began.
      allocated: for a GPU, bytes of all tensors of this process on it, temporary values and other sessions included.
      allocated_peak: the largest number of these so far.
    """

    held: int
    peak: int
    spilled: int
    bytes_out: int
    bytes_in: int
    allocated: int = 0
    allocated_peak: int = 0


@record(frozen=True, slots=True)
class SessionStatistics:
    """State of a session at one moment: `session.statistics()`.

    Attributes:
      active: runs in progress, open partial runs included. A compiled step in which nothing waits is not counted, nor
        is one that is a single call of machine code.
      partial_runs: partial runs that are open.
      steps: compiled (fetches, feeds) signatures in the cache.
      made: number of signatures compiled since the session began, including those that are no longer in the cache.
      engines: number of cached signatures that each engine ("compiled", "interpret") has run.
      resources: (container, kind, name) of each variable, queue and other resource, sorted.
      memory: bytes by device name, of devices with a memory limit.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, [])
      ...     y = x * 2.0
      >>> with hr.Session(graph=g, engine="compiled") as session:
      ...     for value in (1.0, 2.0, 3.0):
      ...         _ = session.run(y, {x: value})
      ...     session.statistics().steps, dict(session.statistics().engines)
      (1, {'compiled': 1})
    """

    active: int
    partial_runs: int
    steps: int
    made: int
    engines: Mapping[str, int]
    resources: tuple[tuple[str, str, str], ...]
    memory: Mapping[str, MemoryStatistics]
