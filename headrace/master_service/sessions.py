"""Sessions of clients: graph, version, steps, partial runs and callables of each, and their lifetimes.

A session ends when its client closes it, when a client resets the server, when it was idle for too long, or soon after
a call of its client broke off: the process of such a client has usually ended. The time limits are looked at by
`Sessions.sweep`, which the server calls at intervals.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace import pb, session_config, thresholds
from headrace.api.importing import import_graph_def
from headrace.errors import (
    AbortedError,
    CancelledError,
    InvalidArgumentError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from headrace.files import run_metadata
from headrace.ir.graph import Graph
from headrace.master_service.conversions import earlier_nodes, fed_tensors, fetched_tensors, proto_of, targets, value_of
from headrace.memo import Memo
from headrace.metadata import Cancellation, RunMetadata, RunOptions
from headrace.metadata.run import options_of
from headrace.ops.py_func import OF_ONE_PROCESS
from headrace.records import record
from headrace.session import Session

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor
    from headrace.pb.master_pb2 import PartialRunSetupRequest, RunStepRequest, RunStepResponse
    from headrace.target import Connectable


@record(frozen=True, slots=True)
class Step:
    """Fetches, targets and feeds of a client, resolved and compiled.

    Attributes:
      feeds: the tensors to feed.
      fetches: the tensors to fetch.
      run: a function from values of the feeds to values of the fetches, see `Session.make_callable`.
    """

    feeds: Sequence[Tensor]
    fetches: Sequence[Tensor]
    run: Callable[..., Any]

    def values(self, fed: Sequence[Any], options: RunOptions, metadata: pb.RunMetadata) -> list[Any]:
        """Runs the step and returns the values of the fetches.

        Args:
          fed: a value for each feed.
          options: the options of the run.
          metadata: receives the metadata, if the options ask for it.
        """
        measured = RunMetadata() if options.trace_level or options.output_partition_graphs else None
        try:
            return list(self.run(*fed, options=options, run_metadata=measured)[: len(self.fetches)])
        finally:
            if measured is not None:
                metadata.MergeFromString(run_metadata.encode(measured))


class ClientSession:
    """Session of one client. Thread-safe.

    Args:
      graph_def: the first part of the graph.
      config: the config of the client.
      target: the devices of the session.
      most_bytes: the largest size of a fed tensor.

    Attributes:
      handle: the name of the session in requests, which other clients cannot guess.
      version: the number of the newest part of the graph.

    Raises:
      GraphError: the graph is malformed.
      PermissionDeniedError: the graph calls Python functions of the server's process.
    """

    def __init__(self, graph_def: pb.GraphDef, config: Mapping[str, Any], target: Connectable, most_bytes: int) -> None:
        self.handle = secrets.token_hex(16)
        self.version = 0
        self._graph = Graph()
        self._most_bytes = most_bytes
        self._building = threading.Lock()  # the graph grows, or a step of it is compiled
        self._steps: Memo[tuple[Any, ...], Step] = Memo("steps of clients", thresholds.SESSION_CALLS)
        self._callables: dict[int, tuple[Step, RunOptions]] = {}
        self._partial: dict[str, Cancellation] = {}
        self._numbers = itertools.count(1)
        self._cancellation = Cancellation()
        self._add(graph_def)
        self._session = Session(target, self._graph, config)

    # *** the graph ***

    def extend(self, graph_def: pb.GraphDef, version: int) -> int:
        """Adds nodes, whose inputs may be nodes of earlier parts; returns the new version.

        Args:
          graph_def: the nodes, and the whole function library of the client.
          version: the version that the client knows.

        Raises:
          AbortedError: the graph has another version.
          InvalidArgumentError: the graph has a node of the same name.
          GraphError: the nodes are malformed; the graph is unchanged.
        """
        with self._building:
            if version != self.version:
                raise AbortedError(f"Current version is {self.version} but caller expected {version}.")
            self._add(graph_def)
            self.version += 1
            return self.version

    def _add(self, graph_def: pb.GraphDef) -> None:
        for node in graph_def.node:
            if node.name in self._graph:
                raise InvalidArgumentError(
                    f"GraphDef argument to Extend includes node '{node.name}', which was created by a previous call to "
                    "Create or Extend in this session."
                )
        for node in itertools.chain(graph_def.node, *(f.node_def for f in graph_def.library.function)):
            if node.op in OF_ONE_PROCESS:  # by the number of the function, which a client could guess
                raise PermissionDeniedError(
                    f"node '{node.name}' ({node.op}) calls a Python function of the process that made the graph; a "
                    "server has none of its clients' functions"
                )
        import_graph_def(graph_def, graph=self._graph, input_map=earlier_nodes(self._graph, graph_def))

    def _step(self, feeds: Sequence[str], fetches: Sequence[str], runs: Sequence[str]) -> Step:
        """Returns the compiled step of some names."""
        names = tuple(feeds), tuple(fetches), tuple(runs)
        step = self._steps.get((self._graph.version, *names))
        if step is not None:
            return step
        with self._building:
            if not fetches and not runs:
                raise InvalidArgumentError("Must specify at least one target to fetch or execute.")
            fed, fetched = fed_tensors(self._graph, feeds), fetched_tensors(self._graph, fetches)
            run = self._session.make_callable([*fetched, *targets(self._graph, runs)], fed, accept_options=True)
            step = Step(fed, fetched, run)
            self._steps.put((self._graph.version, *names), step)
            return step

    def _values(self, step: Step, protos: Sequence[pb.TensorProto]) -> list[Any]:
        return [value_of(p, t.name, self._most_bytes) for p, t in zip(protos, step.feeds, strict=True)]

    # *** runs ***

    def run(self, request: RunStepRequest, cancellation: Cancellation, response: RunStepResponse) -> None:
        """Runs a step, or a part of a partial run, and fills the response.

        Args:
          request: the request.
          cancellation: cancels the step.
          response: receives the fetched tensors and the metadata.
        """
        if request.partial_run_handle:
            self._run_part(request, response)
            return
        step = self._step([f.name for f in request.feed], request.fetch, request.target)
        options = options_of(request.options)
        options.cancellation = cancellation
        fed = self._values(step, [f.tensor for f in request.feed])
        values = step.values(fed, options, response.metadata)
        _fill(request.fetch, step.fetches, values, response)

    def set_up_partial_run(self, request: PartialRunSetupRequest) -> str:
        """Begins a partial run and returns its handle."""
        if len(self._partial) >= thresholds.CLIENT_PARTIAL_RUNS:
            raise ResourceExhaustedError(
                f"{len(self._partial)} partial runs of this session are open, and no more are allowed: end one by "
                "fetching all of its fetches"
            )
        with self._building:
            fed, fetched = fed_tensors(self._graph, request.feed), fetched_tensors(self._graph, request.fetch)
            runs = targets(self._graph, request.target)
            cancellation = Cancellation()
            handle = self._session.partial_run_setup(
                [*fetched, *runs], fed, options=RunOptions(cancellation=cancellation)
            )
        self._partial[handle] = cancellation
        return handle

    def _run_part(self, request: RunStepRequest, response: RunStepResponse) -> None:
        handle = request.partial_run_handle
        fed = fed_tensors(self._graph, [f.name for f in request.feed])
        fetched = fetched_tensors(self._graph, request.fetch)
        feeds = {t: value_of(f.tensor, t.name, self._most_bytes) for t, f in zip(fed, request.feed, strict=True)}
        try:
            values = self._session.partial_run(handle, [*fetched, *targets(self._graph, request.target)], feeds)
        finally:
            cancellation = self._partial.get(handle)
            if cancellation is not None and not cancellation.running:
                self._partial.pop(handle, None)
        _fill(request.fetch, fetched, values[: len(fetched)], response)

    # *** callables ***

    def make_callable(self, options: pb.CallableOptions) -> int:
        """Compiles a step and returns its number."""
        if options.tensor_connection:
            raise InvalidArgumentError("a callable with tensor connections is unknown here; feed the tensors")
        if len(self._callables) >= thresholds.CLIENT_CALLABLES:
            raise ResourceExhaustedError(
                f"this session has {len(self._callables)} callables, and no more are allowed: release some"
            )
        step = self._step(options.feed, options.fetch, options.target)
        number = next(self._numbers)
        self._callables[number] = step, options_of(options.run_options)
        return number

    def run_callable(
        self, number: int, feeds: Sequence[pb.TensorProto], cancellation: Cancellation, metadata: pb.RunMetadata
    ) -> list[pb.TensorProto]:
        """Runs a callable.

        Args:
          number: its number.
          feeds: the values of its feeds.
          cancellation: cancels the step.
          metadata: receives the metadata of the run, if the options of the callable ask for it.
        """
        step, given = self._callable(number)
        if len(feeds) != len(step.feeds):
            raise InvalidArgumentError(f"Expected {len(step.feeds)} feed tensors, but got {len(feeds)}")
        options = dataclasses.replace(given, cancellation=cancellation)
        values = step.values(self._values(step, feeds), options, metadata)
        return [proto_of(v, t) for v, t in zip(values, step.fetches, strict=True)]

    def release_callable(self, number: int) -> None:
        """Drops a callable."""
        self._callable(number)
        self._callables.pop(number, None)

    def _callable(self, number: int) -> tuple[Step, RunOptions]:
        found = self._callables.get(number)
        if found is None:
            raise InvalidArgumentError(f"No such callable handle: {number}")
        return found

    # *** the rest ***

    def devices(self) -> Iterator[pb.DeviceAttributes]:
        """Descriptions of the devices, without the incarnation of the server."""
        for d in self._session.list_devices():
            yield pb.DeviceAttributes(name=d.name, device_type=d.device_type, memory_limit=d.memory_limit_bytes)

    def close(self) -> None:
        """Cancels running steps and drops the resources of the session."""
        self._session.close()


def _fill(names: Sequence[str], fetched: Sequence[Tensor], values: Sequence[Any], response: RunStepResponse) -> None:
    """Adds fetched values to a response."""
    for name, tensor, value in zip(names, fetched, values, strict=True):
        response.tensor.add(name=name, tensor=proto_of(value, tensor))


@record(slots=True)
class _Entry:
    """Session with the times that limit its life.

    Attributes:
      session: the session.
      calls: number of calls under way.
      used: the time of the end of the newest call.
      is_broken: whether the newest call broke off.
    """

    session: ClientSession
    calls: int
    used: float
    is_broken: bool = False


class Sessions:
    """Open sessions of a server, by handle. Thread-safe.

    Args:
      target: returns the target of a new session, given whether its variables are its own.
      most: the largest number of open sessions.
      idle_seconds: time without calls after which a session ends.
      most_bytes: the largest size of a fed tensor.
    """

    def __init__(self, target: Callable[[bool], Connectable], most: int, idle_seconds: float, most_bytes: int) -> None:
        self._target = target
        self._most = most
        self._idle_seconds = idle_seconds
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._opening = 0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, graph_def: pb.GraphDef, config: pb.ConfigProto) -> ClientSession:
        """Returns a new session.

        Raises:
          ResourceExhaustedError: too many sessions are open.
        """
        with self._lock:
            self._check_open()
            if len(self._entries) + self._opening >= self._most:
                raise ResourceExhaustedError(
                    f"{self._most} sessions are open on this server, and no more are allowed: close one"
                )
            self._opening += 1
        try:
            settings = session_config.settings(config)
            target = self._target(bool(settings.pop("isolate_session_state", False)))
            session = ClientSession(graph_def, settings, target, self._most_bytes)
        finally:
            with self._lock:
                self._opening -= 1
        with self._lock:
            if not self._is_closed:
                self._entries[session.handle] = _Entry(session, 0, time.monotonic())
                return session
        session.close()
        raise CancelledError("the server stops")

    def _check_open(self) -> None:
        if self._is_closed:
            raise CancelledError("the server stops")

    @contextmanager
    def using(self, handle: str, was_broken: Callable[[], bool]) -> Iterator[ClientSession]:
        """Context manager of a call of a session, which cannot become idle meanwhile.

        Args:
          handle: the handle of the session.
          was_broken: whether the client has left the call before its end.

        Raises:
          AbortedError: no open session has the handle.
        """
        with self._lock:
            self._check_open()
            entry = self._entries.get(handle)
            if entry is None:
                raise _missing(handle)
            entry.calls += 1
        try:
            yield entry.session
        finally:
            with self._lock:
                entry.calls -= 1
                entry.used, entry.is_broken = time.monotonic(), was_broken()

    def close(self, handle: str) -> None:
        """Ends a session.

        Raises:
          AbortedError: no open session has the handle.
        """
        with self._lock:
            entry = self._entries.pop(handle, None)
        if entry is None:
            raise _missing(handle)
        entry.session.close()

    def close_all(self, is_final: bool = False) -> None:
        """Ends all sessions.

        Args:
          is_final: whether no new ones may be opened.
        """
        with self._lock:
            self._is_closed |= is_final
            entries, self._entries = self._entries, {}
        for entry in entries.values():
            entry.session.close()

    def sweep(self) -> None:
        """Ends the sessions that were idle for too long, and those whose client has left."""
        now = time.monotonic()
        with self._lock:
            gone = [
                handle
                for handle, e in self._entries.items()
                if not e.calls and now - e.used > (thresholds.BROKEN_CLIENT if e.is_broken else self._idle_seconds)
            ]
            entries = [self._entries.pop(handle) for handle in gone]
        for entry in entries:
            entry.session.close()


def _missing(handle: str) -> AbortedError:
    return AbortedError(f"Session {handle[:64]} is not found. It was closed, reset, or idle for too long")
