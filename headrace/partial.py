"""Partial runs: steps that are fed and fetched in several calls (`Session.partial_run`)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import InvalidArgumentError
from headrace.fetches import Fetches, feed_form, feed_tensors, result, spread

if TYPE_CHECKING:
    from headrace.execute.run import Run
    from headrace.ir.graph import Graph, Tensor
    from headrace.prune import StepGraph


class WatchedSoFar(Protocol):
    """Watched values of a partial run, see `observe.watching.PartialValues`.

    Attributes:
      positions: the positions of the fetches that have the values.
    """

    positions: range

    def add(self, position: int, value: Any) -> None:
        """Adds the value of a fetch."""
        ...

    def watched(self) -> Any:
        """Returns the watched values so far."""
        ...


class PartialRun:
    """A step that is fed and fetched in several calls.

    Args:
      graph: the user's graph.
      run: the run of the step, not started.
      step: the graph of the step.
      feeders: for each feed the function that checks and converts its value.
      feed_names: the names of all tensors that will be fed.
      fetch_names: the names of all tensors that will be fetched.
      target_names: the names of all operations that will be run.
      watched: the watched values; None: the run has no watch.
      measured: makes a context manager around each call, which measures its time.

    Attributes:
      run: the run of the step.
      failed: whether an error has ended the run.
    """

    def __init__(
        self,
        graph: Graph,
        run: Run,
        step: StepGraph,
        feeders: Sequence[Callable[[Any], Any]],
        feed_names: Sequence[str],
        fetch_names: Sequence[str],
        target_names: Sequence[str] = (),
        watched: WatchedSoFar | None = None,
        measured: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.run = run
        self.failed = False
        self._graph = graph
        self._feeders = feeders
        self._feeds = {n: i for i, n in enumerate(feed_names)}
        self._fed: set[int] = set()
        self._fetches = {n: i for i, n in enumerate(fetch_names)}
        self._fetched: set[int] = set()
        self._targets = {*target_names, *(op.name for op in step.graph.operations)}
        self._depends_on = step.depends_on()
        self._watched = watched
        self._measured = measured
        self._lock = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether a thread is in `go`."""
        return self._lock.locked()

    @property
    def is_done(self) -> bool:
        """Whether everything has run and every result has been fetched."""
        return self.run.finished and len(self._fetched) == len(self._fetches)

    def go(self, fetches: Any, feed_dict: Mapping[Any, Any]) -> Any:
        """Feeds more of the run and returns more of its results; see `Session.partial_run`."""
        with self._lock, self._measured():
            wanted = Fetches(self._graph, fetches)
            positions = [self._position(t) for t in wanted.tensors]
            for op in wanted.targets:
                if op.name not in self._targets:
                    raise InvalidArgumentError(f"operation '{op.name}' was not named in partial_run_setup", op.name)
            keys = [feed_tensors(self._graph, k) for k in feed_dict]
            fed = spread(list(feed_dict.values()), [feed_form(k) for k in feed_dict])
            tensors = [t for ts in keys for t in ts]
            feeds = [(self._feed_position(t), v) for t, v in zip(tensors, fed, strict=True)]
            there = self._fed | {i for i, _ in feeds}
            for t, p in zip(wanted.tensors, positions, strict=True):
                missing = self._depends_on[p] - there
                if missing:
                    names = [n for n, i in self._feeds.items() if i in missing]
                    raise InvalidArgumentError(
                        f"fetch '{t.name}' can't be computed from the feeds that have been fed so far: it needs {names}"
                    )
            values = [(i, self._feeders[i](v)) for i, v in feeds]
            self.failed = True  # an error from here on ends the run
            for i, v in values:
                self.run.feed(i, v)
            self._fed = there
            added = self._added()
            self._run([*positions, *added])
            self._fetched.update(positions, added)
            out = [result([self.run.fetch(p)]) for p in positions]
            self.failed = False
            if self._watched is None:
                return wanted.pack(out)
            for p in added:
                self._watched.add(p, result([self.run.fetch(p)]))
            return wanted.pack(out), self._watched.watched()

    def _added(self) -> list[int]:
        """Positions of the fetches with watched values whose feeds are there."""
        some = () if self._watched is None else self._watched.positions
        return [p for p in some if p not in self._fetched and self._depends_on[p] <= self._fed]

    def _run(self, positions: list[int]) -> None:
        # once everything is fed, each operation must be able to fire, so a step that is stuck is then an error
        is_fed = len(self._fed) == len(self._feeds)
        # the last call ends the step: an operation that only a target needs has no later call in which it could run
        is_last = is_fed and len(self._fetched.union(positions)) == len(self._fetches)
        self.run.run(None if is_last else positions, is_fed)

    def _position(self, t: Tensor) -> int:
        p = self._fetches.get(t.name)
        if p is None:
            raise InvalidArgumentError(f"fetch '{t.name}' was not named in partial_run_setup", t.name)
        if p in self._fetched:
            raise InvalidArgumentError(f"fetch '{t.name}' has already been fetched in this partial run", t.name)
        return p

    def _feed_position(self, t: Tensor) -> int:
        p = self._feeds.get(t.name)
        if p is None:
            raise InvalidArgumentError(f"feed '{t.name}' was not named in partial_run_setup", t.name)
        if p in self._fed:
            raise InvalidArgumentError(f"feed '{t.name}' has already been fed in this partial run", t.name)
        return p
