"""Shares: a structured step as one structured graph for each device.

`partition` cuts the primitive form, and token machines run the parts. A loop over several devices then costs a dozen
nodes an iteration on each of them. If no operation of the step waits, each device can instead run its share as one
compiled function. A *share* has the conditionals and loops that contain an operation of its device, and in them only
the operations of its device, transfers to other devices (`_StepSend`) and from other devices (`_StepRecv`).

**Where values are.** An operation is on its device, and its outputs are. A loop variable has a *home*: the device that
computes its next value. An output of a conditional is at home where its first branch computes it. A value is sent from
there to each other device that reads it in the same graph, right after it is computed. A tensor from outside of a
branch or body is no transfer inside it: the device received it outside. Constants, and the counters of loops that only
count, are on every device.

**Conditionals and loops.** All devices of a conditional receive its predicate, and take the same branch. All devices of
a loop receive the predicate of each iteration, or count by themselves. So no token is dead, and the transfers over an
edge are first in, first out: no tag is needed.

**No deadlock.** All shares keep one order, that of the original graph. A transfer over an edge is sent right after its
value is computed, at position s, and received right before its first reader, at position r > s. A send never waits. If
all devices waited, consider the receive with the least position r: it waits for the send at s < r, whose device waits
at a receive before s, which is less than r. So there is no such receive. Inside conditionals and loops the same holds
for the positions of the operations on the path.

**What is lost.** A device runs its operations in order, so it does not do other work while it waits for a value. It
may still be some iterations ahead of a device that it receives nothing from.

**Messages.** A value leaves as soon as it is computed, unless another one for the same device follows without work of
any length in between (`is_last`); then both are one message.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.edit.add_values import own_graphs
from headrace.ir.edit.copying import copy_graph
from headrace.ir.edit.editor import Editor
from headrace.ir.edit.remove_values import remove_all_but
from headrace.ir.function import called_names, nested_operations, owned, owns_all, param_offset, recursive_functions
from headrace.ir.graph import FuncGraph
from headrace.ir.order import counts, is_constant
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Graph, Operation, Tensor

EVERYWHERE: Final = ""  # the home of what each device has by itself


@record(frozen=True, slots=True)
class Share:
    """The share of a step that one device runs.

    Attributes:
      graph: a structured graph of its own.
      args: its `_Arg` operations, whose attribute `index` is the position of a feed.
      retvals: its `_Retval` operations, whose attribute `index` is the position of a fetch.
      targets: operations that run although no fetch may need them.
      edges: the keys of the edges on which it receives.
    """

    graph: Graph
    args: tuple[Operation, ...]
    retvals: tuple[Operation, ...]
    targets: tuple[Operation, ...]
    edges: tuple[str, ...]


class Indivisible(Exception):
    """A step has no shares; the text is the reason."""


def devices_of(
    graph: Graph,
    of: Mapping[Operation, str],
    whole: Mapping[Operation, str],
    is_expanded: Callable[[Operation], bool],
) -> dict[Operation, str]:
    """Returns the devices of a structured graph's operations, from those of its primitive form.

    Each call gets operations of its own, on devices of their own.

    Args:
      graph: a private graph; its calls get graphs of their own.
      of: the full name of the device of each operation of the primitive form.
      whole: the same of the structured operations that the primitive form keeps whole.
      is_expanded: whether lowering replaces an operation by others.

    Raises:
      Indivisible: the device of an operation with effects is unknown.
    """
    recursive = recursive_functions(graph.operations)
    for op in nested_operations(graph.operations):
        if op.opdef.structured == "Call" and not recursive.intersection(called_names(op)):
            own_graphs(op)
    by_name = {(op.name, op.type): device for op, device in of.items()}
    wholes = {(op.name, op.type): device for op, device in whole.items()}
    default = next(iter(of.values()))
    where: dict[Operation, str] = {}

    def assign(ops: Iterable[Operation], device: str = "", prefix: str = "") -> None:
        for op in ops:
            name = prefix + op.name
            if op.opdef.structured:
                at = device or wholes.get((name, op.type), "")
                for g in owned(op):  # the operations of a library function have the name of the caller as a prefix
                    assign(g.operations, at, prefix if g.shares_names else f"{name}/")
            elif op.type != "_Arg":
                found = device or by_name.get((name, op.type))
                if found is None and (not op.opdef.is_pure or is_expanded(op)):
                    raise Indivisible(f"'{name}' ({op.type}) was renamed or expanded, and its device matters")
                where[op] = found or default

    assign(graph.operations)
    return where


def divide(
    graph: Graph,
    args: Sequence[Operation],
    retvals: Sequence[Operation],
    targets: Sequence[Operation],
    where: Mapping[Operation, str],
    *,
    bfloat16: bool = False,
) -> dict[str, Share]:
    """Divides a structured step.

    Args:
      graph: the graph of the step, which is not changed.
      args: the `_Arg` operations, in the order of the feeds.
      retvals: the `_Retval` operations, in the order of the fetches.
      targets: operations that run although no fetch may need them.
      where: the full name of the device of each operation without graphs of its own, nested operations included.
      bfloat16: whether float32 values are sent as bfloat16.

    Returns:
      The share of each device, by its name.

    Raises:
      Indivisible: an operation calls a function that it does not own; a handle or a reference would leave its device.
    """
    copy, copies = copy_graph(graph)
    placed = {}
    for old, new in _pairs(graph, copy, copies):
        if old in where:
            placed[new] = where[old]
    ends = [[copies[op] for op in ops] for ops in (args, retvals, targets)]
    _drop_constant_outputs(copy)
    division = _Division(copy, ends[1], ends[2], placed, bfloat16)
    return {device: division.share(device, *ends) for device in division.devices}


def _pairs(a: Graph, b: Graph, copies: Mapping[Operation, Operation]) -> Iterable[tuple[Operation, Operation]]:
    """Pairs of operations of a graph and its copy, nested ones included."""
    for old, new in copies.items():
        yield old, new
        for f, g in zip(owned(old), owned(new), strict=True) if old.opdef.structured else ():
            yield from _pairs(f, g, _copies(f, g))


def _copies(f: FuncGraph, g: FuncGraph) -> dict[Operation, Operation]:
    """Operation of an owned graph → operation of its copy (`ir.edit.copying.copied`)."""
    params = {p.op for p in f.params}
    out = {p.op: q.op for p, q in zip(f.params, g.params, strict=True)}
    mine = {p.op for p in g.params}
    others = walk.in_order({op for op in f.operations if op not in params})
    out.update(zip(others, [op for op in g.operations if op not in mine], strict=True))
    return out


def _drop_constant_outputs(graph: Graph) -> None:
    """Makes the readers of a loop constant's output read its input."""
    editor = Editor(graph)
    for op in list(graph.operations):
        for g in owned(op):  # first: a variable that an inner loop returns unchanged is a constant of the outer one
            _drop_constant_outputs(g)
        if op.opdef.structured == "While":
            loop = op.attrs["body"]
            for k, t in enumerate(op.outputs):
                if is_constant(loop, k):
                    editor.replace(t, op.inputs[k])


class _Division:
    """The transfers of a step, and its shares.

    Args:
      graph: a private graph.
      retvals, targets: its ends.
      where: the device of each operation that has no graphs, nested ones included.
      bfloat16: whether float32 values are sent as bfloat16.

    Attributes:
      devices: the devices of the shares.
    """

    def __init__(
        self,
        graph: Graph,
        retvals: Sequence[Operation],
        targets: Sequence[Operation],
        where: Mapping[Operation, str],
        bfloat16: bool,
    ) -> None:
        self.graph = graph
        self._bfloat16 = bfloat16
        self.devices = tuple(dict.fromkeys(where.values()))
        self._where = dict(where)
        self._order: dict[Graph, dict[Operation, int]] = {}
        self._owners: dict[Graph, Operation] = {}
        self._counting: dict[Operation, frozenset[int]] = {}  # While → positions of the counters that all devices have
        self._homes: dict[tuple[Operation, int], str] = {}
        self._members: dict[Operation, tuple[str, ...]] = {}
        self._transfers: dict[Graph, dict[tuple[Tensor, str], int]] = {}  # (tensor, to) → position of its first reader
        self._signals: dict[Graph, dict[tuple[Operation, str, str], int]] = {}  # (operation, from, to) → position
        self._known: set[tuple[Tensor, str]] = set()  # that are everywhere, and whose inputs were looked at
        self._look(graph)
        self._claim(graph, targets)
        for op in retvals:
            home = self._home(op.inputs[0])
            self._where[op] = home if home != EVERYWHERE else self.devices[0]
            self._need(op.inputs[0], self._where[op], self._order[graph][op])

    # *** where everything is ***

    def _look(self, graph: Graph) -> None:
        """Notes the order of each graph, and the operations that are on all devices."""
        order = walk.in_order(graph.operations)
        self._order[graph] = {op: i for i, op in enumerate(order)}
        for op in order:
            if op.type == "Const" and not op.control_inputs:
                self._where[op] = EVERYWHERE
            kind = op.opdef.structured
            if not kind:
                continue
            if kind not in ("If", "Case", "While", "Call") or not owns_all(op):
                raise Indivisible(f"'{op.name}' ({op.type}) calls a function")
            for g in owned(op):
                self._owners[g] = op
                self._look(g)
            if kind == "While":
                self._count(op)

    def _count(self, op: Operation) -> None:
        """Lets all devices count the iterations of a loop that only counts."""
        cond, loop = op.attrs["cond"], op.attrs["body"]
        found = trip_count(op)
        ops = [o for o in walk.reachable([cond.results[0].op]) if o.type != "_Arg"]
        if found is None or not found.is_exact or cond.control_results:
            self._counting[op] = frozenset()
            return
        counters = frozenset(b.counter for b in found.bounds)
        is_simple = all(o.opdef.is_pure and not o.control_inputs and not o.opdef.structured for o in ops)
        if not is_simple or not all(counts(loop, k) and not loop.results[k].op.control_inputs for k in counters):
            self._counting[op] = frozenset()
            return
        self._counting[op] = counters
        for o in (*ops, *(loop.results[k].op for k in counters)):
            self._where[o] = EVERYWHERE

    def _home(self, t: Tensor) -> str:
        """Returns the device of a tensor; `EVERYWHERE` if no device needs a transfer."""
        op = t.op
        if op.type == "_Arg":
            owner = self._owners.get(op.graph)
            if owner is None:
                return EVERYWHERE  # each device is fed by the master
            k = self._param(t)
            if owner.opdef.structured == "While" and not is_constant(owner.attrs["body"], k):
                return self._variable(owner, k)
            return self._home(owner.inputs[k + param_offset(owner)])
        kind = op.opdef.structured
        if kind == "While":
            return self._variable(op, t.index)
        return self._output(op, t.index) if kind else self._where[op]

    def _param(self, t: Tensor) -> int:
        graph = t.op.graph
        assert isinstance(graph, FuncGraph)
        return graph.params.index(t)

    def _variable(self, op: Operation, k: int) -> str:
        """Returns the home of loop variable `k`: the device that computes its next value."""
        key = op, k
        if key not in self._homes:
            if k in self._counting[op]:
                self._homes[key] = EVERYWHERE
            else:
                self._homes[key] = self.devices[0]  # of a variable whose next value is another variable's
                found = self._home(op.attrs["body"].results[k])
                if found == EVERYWHERE:
                    found = self._home(op.inputs[k])
                self._homes[key] = found if found != EVERYWHERE else self.devices[0]
        return self._homes[key]

    def _output(self, op: Operation, j: int) -> str:
        """Returns the home of output `j` of a conditional."""
        key = op, j
        if key not in self._homes:
            found = [self._home(g.results[j]) for g in owned(op)]
            self._homes[key] = next((d for d in found if d != EVERYWHERE), self.devices[0])
        return self._homes[key]

    def _of(self, op: Operation) -> tuple[str, ...]:
        """Returns the devices that run an operation; () for one that each device has."""
        if not op.opdef.structured:
            found = self._where.get(op, EVERYWHERE)  # an _Arg
            return () if found == EVERYWHERE else (found,)
        if op not in self._members:
            inside = dict.fromkeys(d for g in owned(op) for o in self._order[g] for d in self._of(o))
            home = self._variable if op.opdef.structured == "While" else self._output
            inside.update(dict.fromkeys(home(op, j) for j in range(len(op.outputs))))
            inside.pop(EVERYWHERE, None)
            self._members[op] = tuple(d for d in self.devices if d in inside) or self.devices[:1]
        return self._members[op]

    # *** transfers ***

    def _claim(self, graph: Graph, ends: Iterable[Operation] = ()) -> None:
        """Notes what the operations of a graph need on their devices."""
        order = self._order[graph]
        for op, i in order.items():
            on = self._of(op)
            if op.opdef.structured:
                self._claim_structure(op, on, i)
            elif op.type != "_Retval":
                for d in on:
                    for t in op.inputs:
                        self._need(t, d, i)
            for c in op.control_inputs:
                for source in self._of(c):
                    for d in on:
                        if source != d:
                            signals = self._signals.setdefault(graph, {})
                            signals[c, source, d] = min(i, signals.get((c, source, d), i))

    def _claim_structure(self, op: Operation, on: Sequence[str], i: int) -> None:
        kind = op.opdef.structured
        if kind != "While":
            for d in on if kind != "Call" else ():
                self._need(op.inputs[0], d, i)
            for j in range(len(op.outputs)):
                for g in owned(op):
                    self._need(g.results[j], self._output(op, j), len(self._order[g]))
        else:
            cond, loop = op.attrs["cond"], op.attrs["body"]
            for k, t in enumerate(op.inputs):
                if is_constant(loop, k):
                    continue
                home = self._variable(op, k)
                for d in on if home == EVERYWHERE else (home,):
                    self._need(t, d, i)
                    self._need(loop.results[k], d, len(self._order[loop]))
            for d in on:
                self._need(cond.results[0], d, len(self._order[cond]))
        for g in owned(op):
            self._claim(g)

    def _need(self, t: Tensor, device: str, i: int) -> None:
        """Notes that operation `i` of the graph of `t` reads `t` on a device."""
        op, graph = t.op, t.op.graph
        if op.type == "_Arg":
            owner = self._owners.get(graph)
            if owner is None:
                return
            k = self._param(t)
            if owner.opdef.structured != "While" or is_constant(owner.attrs["body"], k):
                outer = owner.inputs[k + param_offset(owner)]
                self._need(outer, device, self._order[owner.graph][owner])
                return
        home = self._source(t, device)
        if home == EVERYWHERE:
            if (t, device) not in self._known:
                self._known.add((t, device))
                if not op.opdef.structured and op.type != "_Arg":
                    for x in op.inputs:
                        self._need(x, device, self._order[graph][op])
        elif home != device:
            if t.dtype.is_ref or t.dtype is dtypes.resource:
                raise Indivisible(f"{t.name} is a handle on {home}, and is read on {device}")
            found = self._transfers.setdefault(graph, {})
            found[t, device] = min(i, found.get((t, device), i))

    def _source(self, t: Tensor, device: str) -> str:
        """Returns the device that sends a tensor to `device`.

        It is `EVERYWHERE`, or `device` itself, if no transfer is needed.
        The final value of a counter is on the devices that run its loop, and nowhere else.
        """
        home = self._home(t)
        if home == EVERYWHERE and t.op.opdef.structured:
            members = self._of(t.op)
            return home if device in members else members[0]
        return home

    # *** shares ***

    def share(
        self, device: str, args: Sequence[Operation], retvals: Sequence[Operation], targets: Sequence[Operation]
    ) -> Share:
        """Returns the share of a device."""
        graph, copies = copy_graph(self.graph)
        edges: list[str] = []
        mine = [op for op in targets if device in self._of(op)]
        kept = self._keep(self.graph, graph, copies, device, edges, mine)
        ends = [copies[op] for op in retvals if self._where[op] == device]
        preserved = [*ends, *kept]
        needed = walk.reachable(preserved)
        Editor(graph, preserved).sweep(needed)
        used = [copies[op] for op in args if copies[op] in needed]
        Editor(graph, preserved).remove([o for o in graph.operations if o.type == "_Arg" and o not in used])
        return Share(graph, tuple(used), tuple(ends), tuple(kept), tuple(edges))

    def _keep(
        self,
        old: Graph,
        new: Graph,
        copies: Mapping[Operation, Operation],
        device: str,
        edges: list[str],
        must: Iterable[Operation],
    ) -> list[Operation]:
        """Turns a copied graph into a device's share; returns the operations that must run.

        Args:
          old: the graph.
          new: its copy, in which the device's share will be left.
          copies: operation → its copy.
          device: the device.
          edges: gains the keys of the edges on which the share receives.
          must: operations of `old` that run on the device whether their outputs are read or not.
        """
        editor = Editor(new)
        order = self._order[old]
        chain: list[tuple[tuple[int, int], Operation]] = []

        transfers = self._transfers.get(old, {})
        # structured operations lose outputs below, so the others get new numbers
        tensors = {t: copies[t.op].outputs[t.index] for t, _ in transfers}
        chain += [
            ((i, 1), copies[op])
            for op, i in order.items()
            if op.opdef.structured and device in self._of(op) and self._keep_structure(op, copies[op], device, edges)
        ]
        for (t, to), i in transfers.items():
            key = f"{_path(self._owners, old)}{t.name};{to}"
            wire = dtypes.bfloat16 if self._bfloat16 and t.dtype is dtypes.float32 else t.dtype
            if to == device:
                recv, value = _recv(new, t, wire, key, device, self._source(t, to))
                edges.append(key)
                editor.replace(tensors[t], value)
                chain.append(((i, 0), recv))
            elif self._source(t, to) == device:
                at = -1 if t.op.type == "_Arg" else order[t.op]
                chain.append(((at, 2), _send(new, tensors[t], wire, key, device, to)))
        received: dict[tuple[Operation, str], Operation] = {}
        for (c, source, to), i in self._signals.get(old, {}).items():
            key = f"{_path(self._owners, old)}^{c.name}@{source};{to}"
            ends = _ends(key, source, to)
            if to == device:
                made = new.add_op("_StepControlRecv", new.unique_name(f"{c.name}/recv"), attrs=ends, source=c.source)
                received[c, source] = made
                edges.append(key)
                chain.append(((i, 0), made))
            elif source == device:
                name = new.unique_name(f"{c.name}/send")
                made = new.add_op("_StepControlSend", name, attrs=ends, source=c.source)
                editor.set_controls(made, [copies[c]])
                chain.append(((order[c], 2), made))
        for op in order:
            if op.control_inputs and op in copies and (device in self._of(op)):
                before = [copies[c] for c in op.control_inputs if device in self._of(c)]
                before += [received[c, s] for c in op.control_inputs for s in self._of(c) if s != device]
                editor.set_controls(copies[op], before)
            elif op.control_inputs:
                editor.set_controls(copies[op], ())
        chain.sort(key=lambda entry: entry[0])
        self._gather(editor, old, device, [(at, op) for (at, _), op in chain if "is_last" in op.attrs])
        for (_, first), (_, second) in itertools.pairwise(chain):
            editor.add_controls(second, [first])
        return [*(copies[op] for op in must), *(op for _, op in chain[-1:])]

    def _gather(self, editor: Editor, old: Graph, device: str, sends: Sequence[tuple[int, Operation]]) -> None:
        """Lets transfers to one device leave together if no work lies between them.

        Args:
          editor: of the device's share of `old`.
          old: the graph.
          device: the device.
          sends: the transfers with their positions in `old`, in order.
        """
        long = [
            i
            for op, i in self._order[old].items()
            if (op.opdef.structured or op.opdef.facts.cost is not None) and device in self._of(op)
        ]
        following: dict[str, int] = {}
        for at, op in reversed(sends):
            to = op.attrs["recv_device"]
            if to in following and bisect.bisect_right(long, at) == bisect.bisect_right(long, following[to]):
                editor.set_attr(op, "is_last", False)
            following[to] = at

    def _keep_structure(self, op: Operation, copy: Operation, device: str, edges: list[str]) -> bool:
        """Turns a copied conditional or loop into a device's share; returns whether it has transfers."""
        is_loop = op.opdef.structured == "While"
        had = len(edges)
        has_transfers = False
        for f, g in zip(owned(op), owned(copy), strict=True):
            must = [c for c in f.control_results if device in self._of(c)]
            kept = self._keep(f, g, _copies(f, g), device, edges, must)
            g.set_control_results(dict.fromkeys(kept))
            has_transfers = has_transfers or any(_is_transfer(o) or o.opdef.structured for o in kept)
        graphs = owned(copy)
        offset, outputs = param_offset(copy), list(range(len(op.outputs)))
        if is_loop:
            loop = op.attrs["body"]
            others = [
                k for k in outputs if not is_constant(loop, k) and self._variable(op, k) not in (device, EVERYWHERE)
            ]
            for k in others:
                Editor(copy.attrs["body"]).set_result(k, copy.attrs["body"].params[k])
        else:
            outputs = [j for j in outputs if self._output(op, j) == device]
            remove_all_but(copy, range(len(op.inputs)), outputs)
        for g in graphs:
            g_editor = Editor(g)
            g_editor.forget_captures()
            g_editor.sweep()
        read = {t for g in graphs for o in g.operations for t in o.inputs}
        read |= {t for g in graphs for k, t in enumerate(g.results) if not is_loop or g.params[k : k + 1] != [t]}
        waited = {c for g in graphs for o in g.operations for c in o.control_inputs}
        if is_loop:
            loop = op.attrs["body"]
            stay = [
                k
                for k in range(len(copy.inputs))
                if k not in others
                and (not is_constant(loop, k) or any(g.params[k] in read or g.params[k].op in waited for g in graphs))
            ]
        else:
            stay = [
                k
                for k in range(len(copy.inputs))
                if k < offset or any(g.params[k - offset] in read or g.params[k - offset].op in waited for g in graphs)
            ]
        remove_all_but(copy, stay, stay if is_loop else range(len(copy.outputs)))
        return has_transfers or len(edges) > had


def _is_transfer(op: Operation) -> bool:
    return op.type.startswith("_Step")


def _path(owners: Mapping[Graph, Operation], graph: Graph) -> str:
    """Path of a graph: its owners and their graphs' numbers, for keys of edges."""
    out = ""
    while graph in owners:
        op = owners[graph]
        out = f"{op.name}.{owned(op).index(graph)}/{out}"  # type: ignore[arg-type]
        graph = op.graph
    return out


def _ends(key: str, source: str, to: str) -> dict[str, object]:
    return {"tensor_name": key, "send_device": source, "recv_device": to}


def _send(graph: Graph, t: Tensor, wire: DType, key: str, device: str, to: str) -> Operation:
    """Adds a send of `t` in dtype `wire`."""
    if wire is not t.dtype:
        t = _cast(graph, t, wire)
    name, attrs = graph.unique_name(f"{t.op.name}/send"), {"T": wire, **_ends(key, device, to)}
    return graph.add_op("_StepSend", name, [t], attrs=attrs, source=t.op.source)


def _recv(graph: Graph, t: Tensor, wire: DType, key: str, device: str, source: str) -> tuple[Operation, Tensor]:
    """Adds a receive of `t` in dtype `wire`; also returns the value in its dtype."""
    attrs = {"tensor_type": wire, "shape": t.static_shape, **_ends(key, source, device)}
    made = graph.add_op("_StepRecv", graph.unique_name(f"{t.op.name}/recv"), attrs=attrs, source=t.op.source)
    made.outputs[0].replace_static(t.static_shape, t.handle)
    return made, made.outputs[0] if wire is t.dtype else _cast(graph, made.outputs[0], t.dtype)


def _cast(graph: Graph, t: Tensor, dtype: DType) -> Tensor:
    attrs = {"SrcT": t.dtype, "DstT": dtype, "Truncate": False}
    made = graph.add_op("Cast", graph.unique_name(f"{t.op.name}/cast"), [t], attrs=attrs, source=t.op.source)
    made.outputs[0].replace_static(t.static_shape, None)
    return made.outputs[0]
