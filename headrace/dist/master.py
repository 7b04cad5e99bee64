"""A master: carries out the instructions of `MasterState`.

Clients and workers send messages (`receive_from_client`, `receive_from_worker`). The master compiles the steps of its
clients and sends their parts to the workers. It runs nothing itself.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import thresholds
from headrace.dist import master_state as state
from headrace.dist import messages
from headrace.dist.master_programs import compile_parts
from headrace.environment import Environment, PlacementOptions
from headrace.errors import UnavailableError, to_data
from headrace.place import Link

if TYPE_CHECKING:
    from headrace.dist.reactor import Reactor

# Sends a message to a client or a worker, with values.
Sink: TypeAlias = "Callable[[messages.AnyMessage, Sequence[Any]], object]"


class Master:
    """Master of a cluster. Thread-safe.

    Args:
      tasks: the tasks of the cluster.
      reactor: runs compilations and timers.
      first_step: the number before that of the first step. Steps of different masters have different numbers.
      distance: returns the cost of a transfer to a worker.
      home: the task of this process, whose worker may call the Python functions of clients in this process; "": none.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        reactor: Reactor,
        first_step: int,
        distance: Callable[[str], Link] = lambda task: Link(thresholds.NETWORK_LATENCY, thresholds.NETWORK_BANDWIDTH),
        home: str = "",
    ) -> None:
        self._distance = distance
        self._home = home
        self._local: set[int] = set()  # sessions of clients in this process
        self._state = state.MasterState(tasks, first_step)
        self._reactor = reactor
        self._lock = threading.RLock()
        self._clients: dict[int, Sink] = {}
        self._workers: dict[str, Sink] = {}
        self._next_client = 0
        self._environments: dict[int, Environment] = {}
        self._homes: dict[str, str] = {}  # of state, that the sessions have claimed so far
        self._events: collections.deque[state.Event] = collections.deque()
        self._is_handling = False

    # *** clients ***

    def add_client(self, sink: Sink, is_local: bool = False) -> int:
        """Adds a client.

        Args:
          sink: sends to the client.
          is_local: whether the client is in this process.

        Returns:
          The number of the client.
        """
        with self._lock:
            self._next_client += 1
            self._clients[self._next_client] = sink
            self._handle(state.ClientUp(self._next_client, is_local))
            return self._next_client

    def lose_client(self, client: int) -> None:
        """Removes a client; closes its sessions and ends its steps."""
        with self._lock:
            if self._clients.pop(client, None) is not None:
                self._handle(state.ClientLost(client))

    def receive_from_client(self, client: int, message: messages.AnyMessage, values: Sequence[Any] = ()) -> None:
        """Handles a message of a client."""
        with self._lock:
            self._handle(state.FromClient(client, message, values))

    # *** workers ***

    def add_worker(self, task: str, incarnation: int, devices: Mapping[str, tuple[str, int]], sink: Sink) -> None:
        """Adds a worker that is connected, given the function that sends to it."""
        with self._lock:
            self._workers[task] = sink
            self._handle(state.WorkerUp(task, incarnation, devices))

    def lose_worker(self, task: str, reason: str) -> None:
        """Notes that a worker is not connected; the steps with a part on it fail."""
        with self._lock:
            self._workers.pop(task, None)
            self._handle(state.WorkerLost(task, reason))

    def receive_from_worker(self, task: str, message: messages.AnyMessage, values: Sequence[Any] = ()) -> None:
        """Handles a message of a worker."""
        with self._lock:
            self._handle(state.FromWorker(task, message, values))

    def announce(self, task: str, message: messages.AnyMessage) -> None:
        """Sends a message to all connected workers but one."""
        with self._lock:
            for other in self._workers:
                if other != task:
                    self._to_worker(state.ToWorker(other, message))

    # *** time ***

    def tick(self) -> None:
        """Looks at deadlines, and sends what can wait."""
        with self._lock:
            self._handle(state.Tick())

    # *** instructions ***

    def _handle(self, event: state.Event) -> None:
        """Handles an event.

        An event that follows from an instruction is handled after the other instructions.
        """
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._carry_out(self._state.handle(self._events.popleft(), time.monotonic()))
        finally:
            self._is_handling = False

    def _carry_out(self, instructions: Sequence[state.Instruction]) -> None:
        for i in instructions:
            if isinstance(i, state.ToWorker):
                self._to_worker(i)
            elif isinstance(i, state.ToClient):
                self._to_client(i)
            elif isinstance(i, state.Compile):
                self._reactor.submit(lambda i=i: self._compile(i))  # type: ignore[misc]
            elif isinstance(i, state.MakeSession):
                m = i.message
                options = PlacementOptions(m.soft, None, m.bfloat16, m.recv_scheduling)
                to = [self._distance(worker) for worker in i.workers]
                network = Link(max(d.latency for d in to), min(d.bandwidth for d in to))
                self._environments[i.session] = Environment(
                    i.devices, options, is_remote=True, network=network, shared=self._homes
                )
                if i.is_local:
                    self._local.add(i.session)
            elif isinstance(i, state.Alarm):
                self._reactor.call_later(i.seconds, self.tick)
            elif isinstance(i, state.Claim):
                self._environments[i.session].claim(i.homes)
            else:
                self._environments.pop(i.session, None)
                self._local.discard(i.session)

    def _to_worker(self, i: state.ToWorker) -> None:
        sink = self._workers.get(i.worker)
        if sink is None:
            return
        try:
            sink(i.message, i.values)
        except UnavailableError:
            pass  # the end of its connection is reported by `lose_worker`
        except Exception as e:  # a feed of a client in this process that cannot be sent
            if not isinstance(i.message, (messages.StartStep, messages.ResumeStep)):
                self._reactor.report(e)
                return
            if isinstance(i.message, messages.StartStep) and i.message.ended:
                self._to_worker(state.ToWorker(i.worker, messages.EndSteps(i.message.ended)))
            failed = messages.Report(i.message.step, (messages.PartFailed("", to_data(e)),))
            self._handle(state.FromWorker(i.worker, failed))

    def _to_client(self, i: state.ToClient) -> None:
        sink = self._clients.get(i.client)
        if sink is None:
            return
        try:
            sink(i.message, i.values)
        except UnavailableError:
            pass  # the end of its connection is reported by `lose_client`
        except Exception as e:  # a fetch that cannot be sent
            if not isinstance(i.message, messages.Reply):
                self._reactor.report(e)
                return
            self._to_client(state.ToClient(i.client, messages.Failure(i.message.call, to_data(e))))

    def _compile(self, i: state.Compile) -> None:
        """Compiles a step; a job of the reactor."""
        self._reactor.busy()
        environment = self._environments.get(i.session)
        result: state.CompiledParts | None = None
        error: BaseException | None = None
        try:
            if environment is None:
                raise UnavailableError("the session was closed")
            result = compile_parts(i.step, environment, self._home if i.session in self._local else "")
        except Exception as e:
            error = e
        with self._lock:
            self._handle(state.Compiled(i.program, result, error))
