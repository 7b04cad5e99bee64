"""Environment of a step: the devices of its target, measured costs and homes of state.

A target (`target.Target`) owns one environment. `pipeline.compile_step` reads it, and running steps add measured costs.
Several threads may compile and run steps at the same time: a lock guards the costs and the homes of state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import forking, thresholds
from headrace.ir.device import DeviceSpec
from headrace.place import Cluster, Costs, Link
from headrace.records import record

if TYPE_CHECKING:
    from headrace.place import Placement

DEFAULT_DEVICES: Final = ("/job:localhost/replica:0/task:0/device:CPU:0",)


@record(frozen=True, slots=True)
class PlacementOptions:
    """Options of a session's config for steps over several devices.

    Attributes:
      soft: `allow_soft_placement`: whether an op with a request for a missing device may run on another one.
      log: called with each placement of a step, or None.
      bfloat16: whether float32 is sent between devices as bfloat16.
      recv_scheduling: whether Recvs are delayed until they are needed, in steps with other work in the meantime.
        (Between devices of one process this saves nothing, since a tensor that was sent is available at once.)
    """

    soft: bool = True
    log: Callable[[Placement], object] | None = None
    bfloat16: bool = False
    recv_scheduling: bool = False


NO_OPTIONS: Final = PlacementOptions()
NETWORK: Final = Link(thresholds.NETWORK_LATENCY, thresholds.NETWORK_BANDWIDTH)


class Environment:
    """Devices of a target, measured costs of operations, and homes of state. Thread-safe.

    The *home* of an operation with state is the device of its first placement. Later steps keep it, because the state
    is in the memory of this device.

    Args:
      names: the full names of all devices, the default device first.
      options: options of placement and partition.
      has_limit: whether the devices have a memory limit.
      is_remote: whether other processes own the devices.
      network: the link between devices of different processes.
      shared: homes that other environments of the same target have claimed; None: there are none. Operations without
        a home here prefer them.

    Attributes:
      names: the full names of all devices, the default device first.
      options: options of placement and partition.
      has_limit: whether the devices have a memory limit, so that steps count their values (`resources.memory`).
      is_remote: whether other processes own the devices. They compile their parts of a step themselves.

    Example:
      >>> environment = Environment()
      >>> environment.claim({"v": environment.names[0]}), environment.claim({"v": "/device:CPU:7"})
      (True, False)
      >>> environment.home("v") == environment.names[0]
      True
    """

    def __init__(
        self,
        names: Sequence[str] = DEFAULT_DEVICES,
        options: PlacementOptions = NO_OPTIONS,
        has_limit: bool = False,
        is_remote: bool = False,
        network: Link = NETWORK,
        shared: dict[str, str] | None = None,
    ) -> None:
        self.names = tuple(names)
        self.options = options
        self.has_limit = has_limit
        self.is_remote = is_remote
        self._network = network
        self._others = {} if shared is None else shared
        self._lock = threading.Lock()
        self._seconds: dict[tuple[str, str], float] = {}  # (operation, type of device) → moving average
        self._homes: dict[str, str] = {}  # operation with state → device
        self._has_noticed = False
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.Lock()

    @property
    def is_single(self) -> bool:
        """Whether there is one device, and this process owns it."""
        return len(self.names) == 1 and not self.is_remote

    @property
    def cluster(self) -> Cluster:
        """Devices and links as the cost model sees them."""
        return Cluster.remote(self.names, self._network) if self.is_remote else Cluster.local(self.names)

    def notice_once(self) -> bool:
        """Returns True at the first call, for a notice that a session makes once."""
        with self._lock:
            is_first, self._has_noticed = not self._has_noticed, True
        return is_first

    # *** measured costs ***

    def record(self, op: str, device_type: str, seconds: float) -> None:
        """Adds the duration of one firing of an operation.

        Args:
          op: the name of the operation.
          device_type: the type of the device that ran it, such as "CPU".
          seconds: the duration.
        """
        key = op, device_type
        with self._lock:
            before = self._seconds.get(key, seconds)
            self._seconds[key] = before + (seconds - before) * thresholds.MEASUREMENT_WEIGHT

    def costs(self) -> Costs:
        """Returns the costs measured so far. Later measurements do not change the result."""
        with self._lock:
            return Costs(dict(self._seconds))

    # *** homes of state ***

    def home(self, op: str) -> str | None:
        """Returns the device that an operation with state must keep; None before its first placement.

        Args:
          op: the name of the operation.
        """
        with self._lock:
            return self._homes.get(op)

    def preferred_home(self, op: str, request: str) -> str | None:
        """Returns the home of an operation, or a shared one that fits its request.

        Args:
          op: the name of the operation.
          request: its device request.
        """
        with self._lock:
            found = self._homes.get(op)
            shared = self._others.get(op) if found is None else None
        if shared is None or shared not in self.names:
            return found
        return shared if DeviceSpec.from_string(request).matches(DeviceSpec.from_string(shared)) else None

    def claim(self, homes: Mapping[str, str]) -> bool:
        """Fixes the homes of operations, or changes nothing if one of them has another home.

        A placement that reads `home` and loses against a placement of another thread is repeated: the second attempt
        reads the homes of the other one.

        Args:
          homes: name of operation → device.

        Returns:
          Whether all operations now have these homes.
        """
        with self._lock:
            if any(self._homes.get(op, device) != device for op, device in homes.items()):
                return False
            self._homes.update(homes)
            self._others.update(homes)
            return True
