"""Drives the parts of a partitioned graph in one thread, in a seeded random order.

It checks that the parts fit together.

Each part has a token machine of its own (`tests.execute.machine`). The messages between them are put down in a dict and
delivered later, so that three things are random: the device that runs next, the ready node that it fires, and the time
when a message arrives, which may be before or after a Recv waits for it.

After a run `Parts` asserts the invariant of each machine (in every opened iteration each node fired exactly once), that
no message is left, and no Recv waits; and that all devices opened the same iterations of each loop they share.
"""

from __future__ import annotations

import collections
import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.execute import plan as plans
from headrace.execute.plan import PlanNode
from headrace.execute.records import Frame, Iteration
from headrace.ir.analysis.frames import Frame as IrFrame
from headrace.ir.analysis.frames import derive
from headrace.ir.graph import Operation, Tensor
from headrace.ir.kernel import find_kernel
from headrace.ir.verify import verify
from headrace.partition import Part, partition
from tests.execute.machine import DEAD, Firing, Machine
from tests.partition.plans import through_bytes

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


def names(count: int) -> list[str]:
    """The names of that many devices."""
    return [f"{CPU}{i}" for i in range(count)]


def units(ops: Sequence[Operation]) -> list[list[Operation]]:
    """Groups of operations that may be placed apart from one another.

    Most operations are a group alone. Loop plumbing is in the group of its Merge, and the user of a resource or a
    reference is in the group of its producer.
    """
    together: dict[Operation, Operation] = {}

    def head(op: Operation) -> Operation:
        while op in together:
            op = together[op]
        return op

    for op in ops:
        for t in op.inputs:
            plumbing = op.opdef.primitive == "Merge" and t.op.opdef.primitive in ("Enter", "NextIteration")
            if plumbing or t.dtype.is_ref or t.dtype.name == "resource":
                a, b = head(op), head(t.op)
                if a is not b:
                    together[b] = a
    out: dict[Operation, list[Operation]] = {}
    for op in ops:
        out.setdefault(head(op), []).append(op)
    return list(out.values())


def place(ops: Sequence[Operation], rng: random.Random, count: int) -> dict[Operation, str]:
    """A random placement on `count` devices. Mostly, some devices have more than others."""
    weights = [rng.random() for _ in range(count)]
    of = {}
    for unit in units(ops):
        of.update(dict.fromkeys(unit, rng.choices(names(count), weights)[0]))
    return of


@functools.lru_cache(maxsize=4096)
def _kernel(op: Operation) -> Callable[..., Any]:
    kernel = find_kernel(op)
    assert kernel is not None
    assert kernel.form == "pure", f"{op} has effects"
    made: Callable[..., Any] = kernel.factory(np, op.attrs)
    return made


def compute(op: Operation, args: Sequence[Any]) -> Any:
    """The result of a pure operation."""
    with np.errstate(all="ignore"):
        out = _kernel(op)(*args)
    return out if op.outputs else ()


class PartMachine(Machine):
    """The machine of one part.

    Args:
      parts: all of them, which hand over its messages.
      part: the part that the machine runs.
      seed: of its order.
    """

    def __init__(self, parts: Parts, part: Part, seed: int | None) -> None:
        self.parts = parts
        self.iterations: dict[str, set[tuple[Any, int]]] = collections.defaultdict(set)
        super().__init__(part.ops, seed, compute=compute)

    def _watch(self, event: str, frame: Frame, it: Iteration) -> None:
        super()._watch(event, frame, it)
        self.iterations[frame.plan.name].add((frame.path, it.index))

    def _fire(self, node: PlanNode, it: Iteration, x: Any) -> None:
        real, is_dead = node.live.real, node.kind == plans.DEAD
        if real == plans.RECV:
            self.parts.receive(self, node.live, it)
            return
        if real == plans.SEND:
            value = DEAD if is_dead else x if node.live.arity else ()
            self.parts.send(node.live, it, value, x if is_dead else None)
            self.history.append(Firing(node.op.name, it.tag, None if is_dead else ()))
            if is_dead:
                self.propagator.dead(node, it, x)
            else:
                self.propagator.done_many(node, it, ())
            return
        super()._fire(node, it, x)

    def received(self, node: PlanNode, it: Iteration, value: Any, origin: Any) -> None:
        """A message for a Recv that waits for it."""
        self.history.append(Firing(node.op.name, it.tag, None if value is DEAD else (value,)))
        if value is DEAD:
            self.propagator.dead(node.dead, it, origin)
        elif node.n_outputs:
            self.propagator.done(node, it, value)
        else:
            self.propagator.done_many(node, it, ())


class Parts:
    """The parts of a graph, and what runs them.

    Args:
      parts: see `partition`.
      seed: of all that is random.

    Attributes:
      machines: for each device its machine.
      sent: how many messages crossed, by edge.
    """

    def __init__(self, parts: Mapping[str, Part], seed: int = 0) -> None:
        self.parts = parts
        self.random = random.Random(seed)
        self.machines = {d: PartMachine(self, p, self.random.randrange(1 << 30)) for d, p in parts.items()}
        self.sent: collections.Counter[str] = collections.Counter()
        self._under_way: dict[Any, tuple[Any, Any]] = {}
        self._arrived: dict[Any, tuple[Any, Any]] = {}
        self._waiting: dict[Any, tuple[PartMachine, PlanNode, Iteration]] = {}

    def send(self, node: PlanNode, it: Iteration, value: Any, origin: Any) -> None:
        key = (node.edge, it.frame.path, it.index)
        assert key not in self._under_way, f"sent twice: {key}"
        assert key not in self._arrived, f"sent twice: {key}"
        self.sent[node.edge] += 1
        self._under_way[key] = value, origin

    def receive(self, machine: PartMachine, node: PlanNode, it: Iteration) -> None:
        key = (node.edge, it.frame.path, it.index)
        assert key not in self._waiting, f"waited for twice: {key}"
        self._waiting[key] = machine, node, it
        self._meet(key)

    def _meet(self, key: Any) -> None:
        if key in self._waiting and key in self._arrived:
            machine, node, it = self._waiting.pop(key)
            machine.received(node, it, *self._arrived.pop(key))

    def run(self, feeds: Mapping[int, Any] | None = None) -> Parts:
        """Runs until nothing can go on, and checks that everything is done.

        `feeds` is by the `index` of an _Arg.
        """
        for m in self.machines.values():
            m.propagator.start()
            for node in m.plan.args:
                m.propagator.done(node, m.propagator.root, (feeds or {})[node.position])
        while True:
            able: list[Any] = [m for m in self.machines.values() if m.ready]
            if self._under_way:
                able.append(None)
            if not able:
                break
            m = self.random.choice(able)
            if m is not None:
                m._fire(*m.ready.popleft())
            else:
                key = self.random.choice(list(self._under_way))
                self._arrived[key] = self._under_way.pop(key)
                self._meet(key)
        assert not self._waiting, f"deadlock: waited for {list(self._waiting)}, there are {list(self._arrived)}"
        assert not self._arrived, f"nobody wanted {list(self._arrived)}"
        shared: dict[str, tuple[str, set[Any]]] = {}
        for device, m in self.machines.items():
            m.ready.check(m.propagator)
            assert m.propagator.finished, f"{device} is not finished"
            assert m._open == {} or m.plan.is_acyclic, f"{device} has open iterations"
            for name, opened in m.iterations.items():
                first = shared.setdefault(name, (device, opened))
                assert opened == first[1], f"{device} and {first[0]} opened different iterations of {name!r}"
        return self

    def value(self, what: Tensor | Operation, tag: str = "") -> Any:
        """The value that the copy of an operation or output sent in a tag.

        `what` is an operation of the whole graph, or one of its outputs.

        The operation is one of the whole graph.
        """
        name = what.op.name if isinstance(what, Tensor) else what.name
        for device, part in self.parts.items():
            op = part.graph.find(name)
            if op is not None:
                return self.machines[device].value(op.outputs[what.index] if isinstance(what, Tensor) else op, tag)
        raise AssertionError(f"no part has {name}")

    def results(self) -> dict[int, Any]:
        """The values of the `_Retval`s by their index; `DEAD` for dead tokens."""
        return {
            op.attrs["index"]: value if value is DEAD else value[0]
            for d, part in self.parts.items()
            for op in part.ops
            if op.type == "_Retval"
            for value in [self.machines[d].value(op)]
        }


def cut(ops: Sequence[Operation], of: Mapping[Operation, str], **options: Any) -> dict[str, Part]:
    """Partitions operations, sends the parts through bytes, and checks what holds for every result."""
    before = [(op.graph.version, op.id, op.attrs, op.notes, op.inputs, op.control_inputs) for op in ops]
    parts = {device: through_bytes(part) for device, part in partition(ops, of, **options).items()}
    assert [(op.graph.version, op.id, op.attrs, op.notes, op.inputs, op.control_inputs) for op in ops] == before
    buffers: dict[int, str] = {}
    tree = derive(ops)
    whole = {f.name: f for f in tree.frames}
    business = {f.name: {op.name for op in ops if _is_in(tree.of(op), f)} for f in tree.frames}
    for device, part in parts.items():
        verify(part.graph)
        for op in part.ops:
            assert op.device == device
            value = op.attrs.get("value")
            if op.type == "Const" and isinstance(value, np.ndarray):
                while isinstance(value.base, np.ndarray):
                    value = value.base
                assert buffers.setdefault(id(value), device) == device, f"{op} shares its array with another device"
        mine = derive(part.ops)
        for f in mine.frames[1:]:
            assert f.parent is not None
            before = whole[f.name]
            assert before.parent is not None
            assert f.parent.name == before.parent.name
            assert f.parallel_iterations >= before.parallel_iterations
            inside = {op.name for op in part.ops if _is_in(mine.of(op), f)}
            assert inside & business[f.name], f"{device} has no business in {f.name}"
    edges = {(op.attrs["tensor_name"], op.type) for p in parts.values() for op in p.ops if op.type in _ENDS}
    both = [e for e, type in edges if type in ("_Send", "_ControlSend")]
    assert sorted(both) == sorted(e for e, type in edges if type in ("_Recv", "_ControlRecv"))
    assert len(edges) == sum(op.type in _ENDS for p in parts.values() for op in p.ops), "two ends of one name"
    return parts


def _is_in(inner: IrFrame | None, frame: IrFrame) -> bool:
    while inner is not None and inner is not frame:
        inner = inner.parent
    return inner is frame


_ENDS = ("_Send", "_Recv", "_ControlSend", "_ControlRecv")
