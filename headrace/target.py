"""Session targets: machines that run the steps of a session and own its state.

A session resolves fetches and feeds, and caches compiled steps. Everything that belongs to devices belongs to its
target: threads, memory, resources (variables, queues), measured costs, and homes of state. `LocalTarget` is this
process. Methods of a target may be called by several threads at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, cast

from headrace import forking, thresholds
from headrace.environment import NO_OPTIONS, Environment, PlacementOptions
from headrace.execute.clock import SYSTEM_CLOCK
from headrace.execute.compiled_run import CompiledProgram
from headrace.execute.devices import HERE, DeviceAttributes, make_devices
from headrace.execute.executor import MachineProgram
from headrace.execute.run import RunEnvironment
from headrace.execute.static_schedule import StaticProgram, static_schedule
from headrace.execute.step import Step
from headrace.execute.threads import Pool
from headrace.ir.kernel import has_namespace, memory_of
from headrace.records import record
from headrace.resources.manager import ResourceManager
from headrace.resources.memory import Memory
from headrace.resources.step_memory import StepMemory

if TYPE_CHECKING:
    from headrace import step_events
    from headrace.compiled_step import CompiledStep, Request
    from headrace.device_arrays import ArrayMemory
    from headrace.execute.clock import Clock
    from headrace.execute.compiled_run import Code
    from headrace.execute.devices import LocalDevice
    from headrace.execute.plan import Plan
    from headrace.execute.records import Ready
    from headrace.execute.run import Program
    from headrace.ir.device import DeviceSpec
    from headrace.metadata import MemoryStatistics
    from headrace.stages import Stages


@record(frozen=True, slots=True)
class TargetStatistics:
    """State of a target at one moment.

    Attributes:
      resources: (container, kind, name) of each variable, queue and other resource, sorted.
      memory: bytes by device name, of devices with a memory limit.
    """

    resources: tuple[tuple[str, str, str], ...]
    memory: Mapping[str, MemoryStatistics]


class StepTarget(Protocol):
    """Part of a target that `programs.Programs` uses.

    Attributes:
      environment: the devices for which steps are compiled, measured costs and homes of state.
    """

    environment: Environment

    def compile(self, request: Request, stages: Stages) -> CompiledStep:
        """Compiles a step as far as this process does it; see `pipeline.compile_step`."""

    def register(self, step: CompiledStep, is_interpreted: bool = False) -> Program | None:
        """Returns the program of a compiled step, which can be started any number of times.

        Args:
          step: the step.
          is_interpreted: whether the token machine must fire each node by itself, for a listener, a queue of ready
            nodes or a partial run.

        Returns:
          The program; None if other processes have it.
        """


class Target(StepTarget, Protocol):
    """Machines that run the steps of a session.

    Attributes:
      clock: the time of the deadlines of steps, and all waits for them.
    """

    clock: Clock

    @property
    def resources(self) -> ResourceManager | None:
        """The variables and other resources of the session; None if other processes have them."""

    def devices(self) -> Sequence[DeviceAttributes]:
        """Returns descriptions of the devices, the default device first."""

    def step(
        self,
        deadline: float | None = None,
        listener: step_events.Listener | None = None,
        ready: Ready | Callable[[str], Ready] | None = None,
        device: str = "",
    ) -> Step:
        """Returns a new step, for one start of a program.

        Args:
          deadline: the time of `clock` at which the step fails; None: no deadline.
          listener: receives the `step_events` of the step, or None.
          ready: a queue of ready nodes, or a function that makes the queue of a device, see `metadata.RunOptions`.
          device: full name of the device that runs the whole step; "": the default device, or several devices.
        """

    def statistics(self) -> TargetStatistics:
        """Returns the resources and the memory at this moment."""

    def clear_container(self, name: str) -> None:
        """Drops the resources of a container; "" is the default one."""

    def reset(self, names: Sequence[str]) -> None:
        """Drops the resources of containers; no names: of all."""

    def discard_resources(self) -> None:
        """Forgets the resources without their release, in a forked process."""

    def close(self) -> None:
        """Releases resources and threads. Further calls have no effect. No step may run."""


class Connectable(Protocol):
    """Cluster to which a session can connect."""

    def connect(self, options: PlacementOptions, filters: Sequence[str]) -> Target:
        """Returns the target of a new session.

        Args:
          options: options of placement and partition.
          filters: partial device names; the session uses the tasks that match one of them. Empty: all.
        """


#: Scheme of an address → the function that returns the cluster at an address. `headrace/__init__.py` adds them.
SCHEMES: Final[dict[str, Callable[[str], Connectable]]] = {}


def connectable(target: object) -> Connectable:
    """Returns the cluster that a session's argument `target` describes.

    Args:
      target: an address, or an object that is a `Connectable`.

    Raises:
      ValueError: an address with an unknown scheme.
      TypeError: another object.

    Example:
      >>> connectable("grpc://localhost:2222")
      Traceback (most recent call last):
      ValueError: Session target 'grpc://localhost:2222': an address begins with headrace://, and "" is this process
    """
    if hasattr(target, "connect"):
        return cast(Connectable, target)
    if not isinstance(target, str):
        raise TypeError(
            f"target must be an address, an hr.Server or a cluster, got {target!r} ({type(target).__name__})"
        )
    scheme = target.partition("://")[0]
    if scheme not in SCHEMES or "://" not in target:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(f'Session target {target!r}: an address begins with {known}, and "" is this process')
    return SCHEMES[scheme](target)


@record(frozen=True, slots=True)
class _Accounts:
    """Memory accounts of the devices with a memory limit.

    Attributes:
      memories: those of all devices, by name.
      others: those of devices with arrays of their own, by the memory of the arrays.
    """

    memories: Mapping[str, Memory]
    others: Mapping[ArrayMemory, Memory]

    @classmethod
    def of(cls, devices: Iterable[LocalDevice]) -> _Accounts:
        """Makes the accounts of devices."""
        memories = {}
        for d in devices:
            if d.memory_limit is not None:
                place = memory_of(d.spec) if has_namespace(d.type) else None
                memories[d.name] = Memory(d.name, d.memory_limit, d.stream("copy").submit, place)
        return cls(memories, {m.place: m for m in memories.values() if m.place is not None})

    def account(self, step: Step, device: str) -> StepMemory | None:
        """Returns the memory account of a step, or a part of one, on `device`."""
        memory = self.memories.get(device)
        return None if memory is None else StepMemory(memory, step, step.listener, self.others)


class LocalTarget:
    """Devices, threads, memory and resources of this process for one session. Thread-safe.

    Threads are started on first use. They end when the target is closed or has no more references.

    Args:
      devices: number of devices of each type.
      memory_limit: bytes of values on each device; None: no limit.
      intra_op_threads: threads that a single operation may use: in the BLAS library, in native code, and in PyTorch on
        devices of type TORCH.
      inter_op_threads: threads for heavy kernels that can run in parallel; None: one for each core.
      options: options of placement and partition.
      clock: the time of the deadlines of steps, and all waits for them.
      task: job, replica and task in the names of the devices.

    Attributes:
      environment: the devices for which steps are compiled, measured costs and homes of state.
      clock: the time of the deadlines of steps, and all waits for them.
      local_devices: the devices, by name.
      run_environment: the threads, devices and accounts that the runs of steps share.
      resources: the variables, queues and other resources.

    Raises:
      ValueError: a limit or a number of threads is not positive.
      InvalidArgumentError: a type of device that is not registered, or a wrong number of devices.

    Example:
      >>> target = LocalTarget({"CPU": 2})
      >>> [d.name.rpartition("/device:")[2] for d in target.devices()]
      ['CPU:0', 'CPU:1']
      >>> target.statistics().resources
      ()
      >>> target.close()
    """

    def __init__(
        self,
        devices: Mapping[str, int] | None = None,
        memory_limit: int | None = None,
        intra_op_threads: int = 1,
        inter_op_threads: int | None = None,
        options: PlacementOptions = NO_OPTIONS,
        clock: Clock = SYSTEM_CLOCK,
        task: DeviceSpec = HERE,
    ) -> None:
        if memory_limit is not None and memory_limit < 1:
            raise ValueError(f"memory_limit must be at least 1 byte, got {memory_limit}")
        inter_op_threads = inter_op_threads or os.cpu_count() or 1
        if intra_op_threads < 1 or inter_op_threads < 1:
            raise ValueError("intra_op_threads and inter_op_threads must be at least 1")
        self.local_devices: Mapping[str, LocalDevice] = make_devices(devices or {}, memory_limit, task)
        self._accounts = _Accounts.of(self.local_devices.values())
        self.environment = Environment(tuple(self.local_devices), options, bool(self._accounts.memories))
        self.resources = ResourceManager()
        self._kernels = Pool(inter_op_threads, "headrace-kernel")
        # it does not refer to the target, which is freed without the garbage collector
        account = self._accounts.account if self._accounts.memories else None
        self.run_environment = RunEnvironment(
            self._kernels, intra_op_threads, self.local_devices, self.environment.record, account
        )
        self._blocking = Pool(thresholds.BLOCKING_THREADS, "headrace-blocking", computes=False)
        self.clock = clock
        self._lock = threading.Lock()
        self._is_closed = False
        forking.register_at_fork(self)
        forking.register_at_fork(self.resources)

    def devices(self) -> list[DeviceAttributes]:
        """Returns descriptions of the devices, the default device first."""
        return [DeviceAttributes(d.name, d.type, d.memory_limit or 0) for d in self.local_devices.values()]

    def compile(self, request: Request, stages: Stages) -> CompiledStep:
        """Compiles a step for the devices of this process."""
        from headrace.pipeline import compile_step  # it imports all stages, which building a graph does not need

        return compile_step(request, self.environment, stages)

    def register(self, step: CompiledStep, is_interpreted: bool = False) -> Program:
        """Returns the program of a compiled step; see `Target.register`."""
        return self.program(step.compiled, step.plans, is_interpreted)

    def program(self, code: Code | None, plans: Mapping[str, Plan], is_interpreted: bool = False) -> Program:
        """Returns the program of a function or of plans.

        Args:
          code: a step as one Python function, or None.
          plans: without `code`, the plan of each device's part, by the full name of the device. A step on the default
            device has one plan, under "".
          is_interpreted: whether the token machine must fire each node by itself.
        """
        if code is not None:
            return CompiledProgram(code, self.run_environment)
        if "" not in plans:
            from headrace.execute.parts import PartsProgram  # a slow import, which one device does not need

            return PartsProgram(plans, self.run_environment)
        schedule = None if is_interpreted else static_schedule(plans[""])
        if schedule is not None:
            return StaticProgram(schedule, self.run_environment)
        return MachineProgram(plans[""], self.run_environment)

    def step(
        self,
        deadline: float | None = None,
        listener: step_events.Listener | None = None,
        ready: Ready | Callable[[str], Ready] | None = None,
        device: str = "",
        resources: ResourceManager | None = None,
    ) -> Step:
        """Returns a new step, with the memory of its device; see `Target.step`.

        Args:
          deadline: the time of `clock` at which the step fails; None: no deadline.
          listener: receives the `step_events` of the step, or None.
          ready: a queue of ready nodes, or a function that makes the queue of a device.
          device: full name of the device that runs the whole step; "": the default device, or several devices.
          resources: the variables, queues and other resources of the step; None: those of the target.
        """
        owned = self.resources if resources is None else resources
        step = Step(owned, ResourceManager, deadline, self._blocking, listener, ready, self.clock)
        if self._accounts.memories:
            step.memory = self._accounts.account(step, device or self.environment.names[0])
        return step

    def statistics(self) -> TargetStatistics:
        """Returns the resources and the memory at this moment."""
        memory = {name: m.statistics() for name, m in self._accounts.memories.items()}
        return TargetStatistics(tuple(self.resources.names()), memory)

    def clear_container(self, name: str = "") -> None:
        """Drops the resources of a container; "" is the default one."""
        self.resources.clear_container(name)

    def reset(self, names: Sequence[str] = ()) -> None:
        """Drops the resources of containers; no names: of all."""
        for container in names or {container for container, _, _ in self.resources.names()}:
            self.resources.clear_container(container)

    def close(self) -> None:
        """Releases resources and threads. Further calls have no effect. No step may run."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self.resources.close()
            for pool in (self._kernels, self._blocking):
                pool.close()
            for device in self.local_devices.values():
                device.close()
            for memory in self._accounts.memories.values():
                memory.close()

    def discard_resources(self) -> None:
        """Replaces the resources by none, without their release.

        A forked process calls it if a step of its parent was running, which may have left locks and half of a change.
        """
        self.resources = ResourceManager()
        forking.register_at_fork(self.resources)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.Lock()

    def __del__(self) -> None:
        if "_is_closed" in vars(self):  # else it was not fully constructed
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a target cannot be pickled or copied: it has the threads and the memory of this process")
