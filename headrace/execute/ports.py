"""Ports of an executor: its connection to other devices and to device memory.

The executor (`execute.executor`) knows no other device. It sends and receives tokens through its ports, and the ports
say when the thread of the executor is about to be busy. `Ports` are those of a step on one device, `DevicePorts` those
of one device's part of a step.

**Device memory.** A device of another type than CPU may have a memory that numpy cannot reach (`MemoryPorts`). Numbers
and bools are then in the form that the device's `put` returns. The executor calls `put` on values that are fed or
received, and `get` on values that are fetched or sent. A copy from a far memory only begins then, and the receiver or
the fetch waits for it. So the kernels of the device receive its own values only, and no other kernel receives one.
Between these points the token machine passes values on without reading them, loop variables included. The one exception
is a value that decides where a token goes (the predicate of a Switch): `get` is called on it first. Strings, resources
and variants are Python objects and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from headrace import dtypes, flags, shapes
from headrace.device_arrays import is_host, to_host
from headrace.errors import InvalidArgumentError
from headrace.ir.kernel import CPU

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.execute.devices import LocalDevice
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import DeadCause, Iteration
    from headrace.execute.rendezvous import Receiver, Rendezvous, Token
    from headrace.execute.run import RunEnvironment, Workers


def nothing() -> None:
    """Has no effect."""


class Ports:
    """Ports of a step on one device, which sends and receives nothing.

    Args:
      environment: the resources of the session.
      busy: called before work that may take long, so that other threads serve the other devices.

    Attributes:
      busy: called before work that may take long.
      is_alone: whether the step has one device, so that the executor may wait by itself.
      copies: whether values are in a memory of the device (`put`, `get`).
    """

    __slots__ = ("_environment", "busy")

    is_alone: ClassVar[bool] = True
    copies: ClassVar[bool] = False

    def __init__(self, environment: RunEnvironment, busy: Callable[[], object] = nothing) -> None:
        self._environment = environment
        self.busy = busy

    def send(self, node: PlanNode, it: Iteration, value: Any, cause: DeadCause | None) -> None:
        """Ships the token of the Send `node`; a dead one has a `cause`."""
        self._no_other(node)

    def receive(self, node: PlanNode, it: Iteration, receiver: Receiver) -> Token | None:
        """Returns the token of the Recv `node`; None if it has not arrived.

        `receiver` is then called with it when it arrives.
        """
        self._no_other(node)

    def forget(self, node: PlanNode, it: Iteration) -> None:
        """Removes the receiver of the Recv `node`."""
        self._no_other(node)

    def _no_other(self, node: PlanNode) -> NoReturn:
        raise InvalidArgumentError(
            f"'{node.op.name}' ({node.op.type}) runs only in a part of a step, into which the partitioner inserts it. "
            "Remove it from the graph; a session inserts the transfers that a step needs"
        )

    def put(self, value: Any, dtype: DType) -> Any:
        """Copies a value to the memory of the device."""
        return value

    def get(self, value: Any, dtype: DType) -> Any:
        """Inverse of `put`."""
        return value

    def begin_get(self, value: Any, dtype: DType) -> Any:
        """Begins `get`, so that `to_host` of the result is that of `get`."""
        return value

    def predicate(self, value: Any) -> bool:
        """Converts the predicate of a Switch to a bool; raises `InvalidArgumentError` unless it is scalar."""
        _check_scalar(value, "a Switch needs one predicate")
        return bool(value)

    def branch(self, value: Any) -> int:
        """Converts the index of a _SwitchN to an int; raises `InvalidArgumentError` unless it is scalar."""
        _check_scalar(value, "a SwitchN needs one output_index")
        return int(value)

    def workers(self) -> Workers:
        """Destination of heavy kernels."""
        return self._environment.pool

    def computed(self, op: str, seconds: float) -> None:
        """Records the duration of a heavy kernel."""


class DevicePorts(Ports):
    """Ports of one device's part of a step.

    Args:
      environment: the resources of the session.
      device: the device of the part.
      rendezvous: the rendezvous of the parts.
      busy: called before work that may take long.
      look: raises if the step must end; called in waits for a copy.
    """

    __slots__ = ("_detaches", "_device", "_look", "_rendezvous")

    is_alone = False

    def __init__(
        self,
        environment: RunEnvironment,
        device: LocalDevice,
        rendezvous: Rendezvous,
        busy: Callable[[], object],
        look: Callable[[], object],
    ) -> None:
        super().__init__(environment, busy)
        self._look = look
        self._device = device
        self._rendezvous = rendezvous
        # Arrays are immutable, so a value that is sent within a process need not be copied. At the highest level of
        # checks it is: then a buffer that two devices share did not get there by a Send.
        self._detaches = flags.VERIFY.value >= 2

    def send(self, node: PlanNode, it: Iteration, value: Any, cause: DeadCause | None) -> None:
        if self._detaches and isinstance(value, np.ndarray):
            value = value.copy()
        self._rendezvous.send((node.edge, it.frame.path, it.index), value, cause)

    def receive(self, node: PlanNode, it: Iteration, receiver: Receiver) -> Token | None:
        key = (node.edge, it.frame.path, it.index)
        token = self._rendezvous.take(key)
        if token is None:
            self._rendezvous.recv_async(key, receiver)
        return token

    def forget(self, node: PlanNode, it: Iteration) -> None:
        self._rendezvous.forget((node.edge, it.frame.path, it.index))

    def workers(self) -> Workers:
        return self._device.compute()

    def computed(self, op: str, seconds: float) -> None:
        if not self._device.enqueues:
            self._environment.record(op, self._device.type, seconds)


class MemoryPorts(DevicePorts):
    """Ports of a part on a device with a memory of its own."""

    __slots__ = ()

    copies = True

    def put(self, value: Any, dtype: DType) -> Any:
        return self._device.put(value) if _is_kept(dtype) else value

    def get(self, value: Any, dtype: DType) -> Any:
        if not is_host(value):  # also the value of a reference
            return to_host(value, self._look)
        return self._device.get(value) if _is_kept(dtype) else value

    def begin_get(self, value: Any, dtype: DType) -> Any:
        if is_host(value) or value.memory.is_near:
            return self.get(value, dtype)
        value.memory.begin_get(value)
        return value

    def predicate(self, value: Any) -> bool:
        return super().predicate(self.get(value, dtypes.bool_))

    def branch(self, value: Any) -> int:
        return super().branch(self.get(value, dtypes.int32))


def ports_of(
    environment: RunEnvironment,
    device: LocalDevice,
    rendezvous: Rendezvous,
    busy: Callable[[], object],
    look: Callable[[], object],
) -> DevicePorts:
    """Returns the ports of a part on `device`."""
    make = DevicePorts if device.type == CPU else MemoryPorts
    return make(environment, device, rendezvous, busy, look)


def _is_kept(dtype: DType) -> bool:
    """Whether values of `dtype` are in the memory of the device."""
    return dtype not in dtypes.OBJECT and not dtype.is_ref


def _check_scalar(value: Any, reason: str) -> None:
    if getattr(value, "ndim", 0):
        raise InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {shapes.show(value.shape)}: {reason}"
        )
