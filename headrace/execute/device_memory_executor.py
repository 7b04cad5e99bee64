"""Executor of a part on a device whose memory numpy may not reach.

Numbers and bools are there in the form that the device's `put` gives them: what is fed or received is put, what is
fetched or sent is got. So its kernels see its own values only, and no other kernel ever sees one. In between the token
machine hands values on without looking at them, a loop variable round and round as well, with one exception: what
decides where a token goes (the predicate of a Switch) is got first. Strings, resources and variants are Python objects
and have no other form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.execute.blame import raise_blamed
from headrace.execute.executor import branch, predicate
from headrace.execute.part_executor import PartExecutor

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.execute.devices import LocalDevice
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Iteration, Origin
    from headrace.execute.rendezvous import Token


class DeviceMemoryExecutor(PartExecutor):
    """One part of a step under way, on a device of another type than CPU.

    Args:
      device: the device.
      args: what `PartExecutor` takes.
    """

    __slots__ = ("_device",)

    def __init__(self, device: LocalDevice, *args: Any) -> None:
        super().__init__(*args)
        self._device = device

    def feed(self, position: int, value: Any) -> None:
        dtype = self.plan.args[position].op.outputs[0].dtype
        super().feed(position, self._device.put(value) if _is_kept(dtype) else value)

    def _retval(self, node: PlanNode, it: Iteration, x: Any) -> None:
        super()._retval(node, it, self._got(x, node))

    def _send(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        super()._send(node, it, self._got(value, node) if origin is None and node.arity else value, origin)

    def _received(self, node: PlanNode, it: Iteration, token: Token) -> tuple[Any, ...]:
        value, origin = token
        if origin is None and node.n_outputs and _is_kept(node.op.outputs[0].dtype):
            try:
                token = self._device.put(value), None
            except Exception as e:  # nobody else says where
                raise_blamed(e, node, it, ())
        return super()._received(node, it, token)

    def _predicate(self, value: Any) -> bool:
        return predicate(self._device.get(value))

    def _branch(self, value: Any) -> int:
        return branch(self._device.get(value))

    def _got(self, value: Any, node: PlanNode) -> Any:
        """Input 0 of `node` as other devices know it."""
        return self._device.get(value) if _is_kept(node.op.inputs[0].dtype) else value


def _is_kept(dtype: DType) -> bool:
    """Whether values of `dtype` lie in the memory of the device."""
    return dtype not in dtypes.OBJECT and not dtype.is_ref
