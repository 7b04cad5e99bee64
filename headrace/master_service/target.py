"""Target of the sessions of a server: the devices, threads and variables that they share.

Variables, queues and tables are in containers of the server until a client resets them, as those of a worker of
TensorFlow are. Random streams and other states of kernels belong to one session (`resources.shared`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.environment import Environment, PlacementOptions
from headrace.ir.device import DeviceSpec
from headrace.resources.manager import ResourceManager
from headrace.resources.shared import SessionResources
from headrace.target import LocalTarget, TargetStatistics

if TYPE_CHECKING:
    from headrace import step_events
    from headrace.compiled_step import CompiledStep, Request
    from headrace.execute.clock import Clock
    from headrace.execute.devices import DeviceAttributes
    from headrace.execute.records import Ready
    from headrace.execute.run import Program
    from headrace.execute.step import Step
    from headrace.stages import Stages


class SharedTarget:
    """Devices and resources of this process for all sessions of a server. Thread-safe.

    Args:
      devices: number of devices of each type.
      memory_limit: bytes of values on each device; None: no limit.
      job: the job in the names of the devices.

    Attributes:
      local: the devices, threads and shared resources.
      homes: devices of the operations with state, which all sessions keep.
    """

    def __init__(self, devices: Mapping[str, int] | None, memory_limit: int | None, job: str) -> None:
        self.local = LocalTarget(devices, memory_limit, task=DeviceSpec(job=job, replica=0, task=0))
        self.homes: dict[str, str] = {}

    def connect(self, options: PlacementOptions, filters: Sequence[str]) -> SessionTarget:
        """Returns the target of a new session, see `target.Connectable`."""
        return SessionTarget(self, options, SessionResources(self.local.resources))

    def reset(self, names: Sequence[str]) -> None:
        """Drops the resources of containers; no names: of all."""
        self.local.reset(names)

    def close(self) -> None:
        """Releases resources and threads. No session may be open."""
        self.local.close()


class IsolatedTarget:
    """The devices of a server for a session whose variables no other session uses (`isolate_session_state`).

    Args:
      shared: the devices of the server.
    """

    def __init__(self, shared: SharedTarget) -> None:
        self._shared = shared

    def connect(self, options: PlacementOptions, filters: Sequence[str]) -> SessionTarget:
        """Returns the target of a new session, see `target.Connectable`."""
        return SessionTarget(self._shared, options, ResourceManager(), is_isolated=True)


class SessionTarget:
    """Target of one session on a `SharedTarget`; see `target.Target` for its methods.

    Args:
      shared: the devices and resources of the server.
      options: options of placement and partition.
      resources: the resources as the session sees them.
      is_isolated: whether the homes of variables belong to the session too.

    Attributes:
      environment: the devices, costs and homes of state of the session.
      clock: the time of the deadlines of steps.
      resources: the resources as the session sees them.
    """

    def __init__(
        self, shared: SharedTarget, options: PlacementOptions, resources: ResourceManager, is_isolated: bool = False
    ) -> None:
        self._shared = shared
        self._local = local = shared.local
        self.clock: Clock = local.clock
        self.resources = resources
        own = local.environment
        homes = None if is_isolated else shared.homes
        self.environment = Environment(own.names, options, own.has_limit, shared=homes)

    def devices(self) -> Sequence[DeviceAttributes]:
        return self._local.devices()

    def compile(self, request: Request, stages: Stages) -> CompiledStep:
        from headrace.pipeline import compile_step  # it imports all stages

        return compile_step(request, self.environment, stages)

    def register(self, step: CompiledStep, is_interpreted: bool = False) -> Program:
        return self._local.register(step, is_interpreted)

    def step(
        self,
        deadline: float | None = None,
        listener: step_events.Listener | None = None,
        ready: Ready | Callable[[str], Ready] | None = None,
        device: str = "",
    ) -> Step:
        return self._local.step(deadline, listener, ready, device, self.resources)

    def statistics(self) -> TargetStatistics:
        found = self._local.statistics()
        return TargetStatistics(tuple(self.resources.names()), found.memory)

    def clear_container(self, name: str) -> None:
        self.resources.clear_container(name)

    def reset(self, names: Sequence[str]) -> None:
        for container in names or {container for container, _, _ in self.resources.names()}:
            self.resources.clear_container(container)

    def discard_resources(self) -> None:
        """Does nothing: a forked process has no server."""

    def close(self) -> None:
        self.resources.close()
