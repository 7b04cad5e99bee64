"""Executor of a part on a device whose memory numpy may not reach.

Numbers and bools are in the memory of the device, in the form that the device's `put` returns. The executor calls `put`
on values that are fed or received, and `get` on values that are fetched or sent. So the kernels of the device receive
its own values only, and no other kernel receives one.

Between these points the token machine passes values on without reading them, loop variables included. The one exception
is a value that decides where a token goes (the predicate of a Switch): the executor calls `get` on it first. Strings,
resources and variants are Python objects and stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.execute.blame import raise_blamed
from headrace.execute.executor import branch, predicate
from headrace.execute.part_executor import PartExecutor

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Iteration, Origin
    from headrace.execute.rendezvous import Token


class DeviceMemoryExecutor(PartExecutor):
    """A running part of a step, on a device of another type than CPU."""

    __slots__ = ()

    def feed(self, position: int, value: Any) -> None:
        dtype = self.plan.args[position].op.outputs[0].dtype
        super().feed(position, self.device.put(value) if _is_kept(dtype) else value)

    def _retval(self, node: PlanNode, it: Iteration, x: Any) -> None:
        super()._retval(node, it, self._got(x, node))

    def _send(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        super()._send(node, it, self._got(value, node) if origin is None and node.arity else value, origin)

    def _received(self, node: PlanNode, it: Iteration, token: Token) -> tuple[Any, ...]:
        value, cause = token
        if cause is None and node.n_outputs and _is_kept(node.op.outputs[0].dtype):
            try:
                token = self.device.put(value), None
            except Exception as e:  # no caller adds the place of this error
                raise_blamed(e, node, it, ())
        return super()._received(node, it, token)

    def _predicate(self, value: Any) -> bool:
        return predicate(self.device.get(value))

    def _branch(self, value: Any) -> int:
        return branch(self.device.get(value))

    def _got(self, value: Any, node: PlanNode) -> Any:
        """Input 0 of `node` as an array, the form that other devices read."""
        return self.device.get(value) if _is_kept(node.op.inputs[0].dtype) else value


def _is_kept(dtype: DType) -> bool:
    """Whether values of `dtype` are in the memory of the device."""
    return dtype not in dtypes.OBJECT and not dtype.is_ref
