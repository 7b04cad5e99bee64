"""Edges that are cut: a Send on one device, a Recv on the other.

**One pair for a tensor and a device.** A tensor that is computed elsewhere crosses once to a device, for any number of
readers there: all of them read the same Recv. The key (`tensor_name`) says which tensor it is and where it goes. With
the tag of the iteration, the two ends find each other by this key.

**Frames.** The Send and the Recv are both in the frame of the tensor. A Send is there because it reads the tensor. (The
output of an Exit is in the frame around the loop.) A Recv has no input that would bring it there, so it has a control
edge from the control loop of its device (`control_loops`). In the root frame it needs none.

**Deadness.** A Send fires dead or alive and ships its deadness, and the output of a Recv is dead or alive as the token
that it receives. So a conditional is cut like other operations: if an operation of a branch is on another device, it
receives the dead token of its Switch from the Recv, and is dead.

**Control edges** cross too. A `_ControlSend` waits for the operation, and the operations that waited for it wait for
the `_ControlRecv`. If a tensor of the operation goes to the same device anyway, its Recv usually replaces this pair: it
says that the operation is done, and whether it was dead. There are three exceptions. An output of a Switch may be dead
while the Switch is alive; the same holds for any operation with several outputs or none; and a call supplies its
results before it is done.

**References.** A reference to a variable does not cross. An operation that needs only the value, as most operations do,
receives the value: an Identity reads it on the device of the variable.

**bfloat16.** A float32 tensor may be sent with the upper half of its bits, between CPUs. It is cast before the Send,
once for all devices to which it goes, and cast back after each Recv.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU
from headrace.ir.kernel_errors import known_as
from headrace.ir.notes import StandsFor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.ir.analysis.frames import FrameTree
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor
    from headrace.partition.control_loops import ControlLoops
    from headrace.partition.copies import Where
    from headrace.partition.site import Site


class Edges:
    """Creates the two ends of cut edges on demand.

    Args:
      sites: the parts.
      tree: the frames of the whole graph.
      of: the placement: the device of each operation.
      where: the devices with a copy of each operation.
      loops: the control loops, open.
      bfloat16: whether float32 values are sent as bfloat16.
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        tree: FrameTree,
        of: Mapping[Operation, str],
        where: Where,
        loops: ControlLoops,
        bfloat16: bool,
    ) -> None:
        self._sites = sites
        self._tree = tree
        self._of = of
        self._loops = loops
        self._bfloat16 = bfloat16
        self._narrow: dict[Tensor, Tensor] = {}
        self._done: dict[tuple[Operation, str], Operation] = {}
        read = [(t, d) for op in where for d in where[op] for t in op.inputs] + loops.predicates()
        self._crossing = {(t.op, d) for t, d in read if d not in where[t.op]}

    def tensor(self, t: Tensor, site: Site) -> Tensor:
        """Returns the counterpart in the part of `site` of `t`, whose operation is copied already."""
        found = site.tensors.get(t)
        if found is None:
            found = site.tensors[t] = self._receive(t, site)
        return found

    def control(self, op: Operation, site: Site) -> Operation:
        """Returns the operation that replaces `op` as a control input in the part of `site`."""
        found = site.ops.get(op) or self._done.get((op, site.device))
        if found is None:
            if (op, site.device) in self._crossing and _tells_all(op):
                found = self.tensor(op.outputs[0], site).op
            else:
                found = self._receive_control(op, site)
            self._done[op, site.device] = found
        return found

    def _receive(self, t: Tensor, site: Site) -> Tensor:
        op = t.op
        home = self._sites[self._of[op]]
        sent = home.tensors[t]
        is_narrow = self._bfloat16 and t.dtype is dtypes.float32 and _is_cpu(home) and _is_cpu(site)
        if is_narrow:
            if t not in self._narrow:
                b = home.builder(op.source)
                self._narrow[t] = b.Cast(sent, DstT=dtypes.bfloat16, name=f"{_stem(t)}/to_bfloat16")
            sent = self._narrow[t]
        got = self._cross(sent, t, t.name, _stem(t), site)
        if is_narrow:
            got = site.builder(op.source).Cast(got, DstT=dtypes.float32, name=f"{_stem(t)}/from_bfloat16")
        got.refine(handle=t.handle)
        return got

    def _cross(self, sent: Tensor, t: Tensor, what: str, stem: str, site: Site) -> Tensor:
        """Sends `sent` to the part of `site`, and returns the output of its Recv.

        Args:
          sent: the tensor to send, in the part of the device that computes it.
          t: the tensor of the whole graph for which it stands.
          what: the name of the tensor in the key.
          stem: the prefix of the names of the two operations.
          site: the part of the receiver.
        """
        home = self._sites[self._of[t.op]]
        edge = _edge(what, home, site)
        home.builder(t.op.source).make("_Send", (sent,), edge, f"{stem}/to_{site.label}")
        attrs = {"tensor_type": sent.dtype, "shape": t.shape, **edge}
        name = f"{stem}/from_{home.label}"
        out: Tensor = self._recv_builder(t.op, site).make("_Recv", (), attrs, name, [StandsFor((known_as(t),))])
        return out

    def value(self, reader: Operation, i: int, site: Site) -> Tensor:
        """Value, in the part of `site`, of the reference at input `i` of `reader`.

        The reference is on another device. It is read there, after the control inputs of `reader`.
        """
        t = reader.inputs[i]
        home = self._sites[self._of[t.op]]
        after = [self.control(c, home) for c in reader.control_inputs]
        name = f"{reader.name}/read_{i}"
        read = home.builder(reader.source, after).Identity(home.tensors[t], name=name)
        return self._cross(read, t, f"{t.name} for {reader.name}", name, site)

    def _receive_control(self, op: Operation, site: Site) -> Operation:
        home = self._sites[self._of[op]]
        edge = _edge(f"^{op.name}", home, site)
        home.builder(op.source, [home.ops[op]]).make("_ControlSend", (), edge, f"{op.name}/done_to_{site.label}")
        out: Operation = self._recv_builder(op, site).make(
            "_ControlRecv", (), edge, f"{op.name}/done_from_{home.label}"
        )
        return out

    def _recv_builder(self, op: Operation, site: Site) -> Builder:
        gate = self._loops.gate(self._tree.outputs_of(op), site.device)
        return site.builder(op.source, [] if gate is None else [gate])


def _tells_all(op: Operation) -> bool:
    """Whether a Recv of the output of `op` also reports its end and deadness."""
    return len(op.outputs) == 1 and not op.opdef.primitive and not op.opdef.structured


def _is_cpu(site: Site) -> bool:
    """Whether the device of `site` is a CPU, which has a kernel for Cast."""
    return DeviceSpec.from_string(site.device).type == CPU


def _stem(t: Tensor) -> str:
    return f"{t.op.name}/{t.index}" if t.index else t.op.name


def _edge(what: str, home: Site, site: Site) -> dict[str, str]:
    return {"tensor_name": f"{what} -> {site.label}", "send_device": home.device, "recv_device": site.device}
