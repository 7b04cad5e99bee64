"""Lowering of `If` and `Case`: a Switch for each input, a Merge for each result.

    y = If(p, x)      then: x + z      else: x * x        (z is captured)

becomes

    s     = Switch(p, p)            t = Identity(s:1)     f = Identity(s:0)       the pivots
    x_s   = Switch(x, p)            z_s = Switch(z, p)
    sum   = Add(x_s:1, z_s:1)       sq  = Mul(x_s:0, x_s:0)
    y     = Merge(sq, sum)

Each value has a Switch of its own, so an operation of a branch starts as soon as *its* inputs are available,
independent of the other inputs of the branch. `Case` is lowered in the same way with `_SwitchN`, which has an output
for each branch.

An operation that waits for the `If` itself, and not for a result, waits for its results. If branches have further
effects, it also waits for a Merge of Identities that wait for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.ir.function import base_name
from headrace.lower.lowering import Done, LoweringScope, Made, Values, prefix_for, used_params

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation, Tensor
    from headrace.lower.lowering import Lowering
    from headrace.shapes import Shape


def lower_if(
    low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
) -> Made:
    """Lowers an If; see the module's text."""
    pred = as_predicate(low, op, inputs[0], place)
    graphs = [low.shared.graph_of(op, op.attrs[name]) for name in ("else_branch", "then_branch")]
    return _Branching(low, op, pred, controls, place, graphs, ["else_branch", "then_branch"]).lower(inputs[1:])


def lower_case(
    low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
) -> Made:
    """Lowers a Case; see the module's text."""
    graphs = [low.shared.graph_of(op, f) for f in op.attrs["branches"]]
    parts = [f"branch{i}" for i in range(len(graphs))]
    return _Branching(low, op, inputs[0], controls, place, graphs, parts).lower(inputs[1:])


def as_predicate(low: Lowering, op: Operation, t: Tensor, place: LoweringScope) -> Tensor:
    """Converts `t` to a boolean scalar, because TensorFlow accepts a condition of any type."""
    if t.dtype.base is dtypes.bool_ and t.shape == ():
        return t
    name = f"{place.prefix}{op.name}/ToBool"
    return low.emit(place, "ToBool", [t], {"T": t.dtype.base}, name, like=op, shapes=[()]).outputs[0]


class _Branching:
    """Lowering of one conditional; side i belongs to branch i."""

    def __init__(
        self,
        low: Lowering,
        op: Operation,
        selector: Tensor,
        controls: Sequence[Operation],
        place: LoweringScope,
        graphs: list[FuncGraph],
        parts: list[str],
    ) -> None:
        self.low = low
        self.op = op
        self.place = place
        self.graphs = graphs
        self.name = name = place.prefix + op.name
        self.is_case = op.opdef.structured == "Case"
        attrs = {"T": selector.dtype.base}
        if controls:  # all operations of the branches wait for the selector, so only the selector must wait
            selector = low.emit(place, "Identity", [selector], attrs, f"{name}/pred_id", controls, op).outputs[0]
        self.selector = selector
        self.switches: dict[Tensor, Sequence[Tensor]] = {}
        ends = self.switch(self.selector, "")
        self.pivots: list[Tensor] = []
        self.sides: list[LoweringScope] = []
        for i, t in enumerate(ends):
            side = LoweringScope(place.loop, None, [t], prefix_for(place, op, graphs[i], parts[i]), place.anchor)
            what = f"branch{i}" if self.is_case else "ft"[i]
            pivot = low.emit(side, "Identity", [t], attrs, f"{name}/switch_{what}", like=op)
            side.pivot = pivot
            self.pivots.append(pivot.outputs[0])
            self.sides.append(side)
        self.done: list[Done] = []

    def switch(self, t: Tensor, name: str) -> Sequence[Tensor]:
        """Outputs of the Switch of `t`, one for each branch."""
        got = self.switches.get(t)
        if got is None:
            sides = len(self.graphs)
            got = self.low.switch(self.place, t, self.selector, sides, f"{self.name}/{name}Switch", self.op)
            # its outputs are gated in the branches, each in one, and not where the conditional is
            self.place.gated.difference_update(got)
            self.switches[t] = got
        return got

    def lower(self, args: list[Tensor]) -> Made:
        low, op = self.low, self.op
        ends: list[list[Tensor]] = []
        for i, (graph, side) in enumerate(zip(self.graphs, self.sides, strict=True)):
            values: Values = {}
            for k in used_params(graph, low.shared.schedule(graph)):
                p = graph.params[k]
                values[p] = t = self.switch(args[k], base_name(p) + "/")[i]
                side.gated.add(t)
            self.done.append(low.sub_graph(graph, values, side))
            ends.append(
                [low.settled(values[r], side, op, f"{self.name}/Identity") for r in graph.results[: len(op.outputs)]]
            )
        out = []
        for k, t in enumerate(op.outputs):
            name = f"{self.name}/Merge_{k}" if k else f"{self.name}/Merge"
            attrs = {"T": t.dtype.base, "N": len(ends)}
            merged = self.merge([e[k] for e in ends], attrs, name, t.shape)
            if len({e[k].handle for e in ends}) > 1:  # a branch may return an empty list in place of one without use
                merged.replace_static(merged.shape, None)
            merged.refine(handle=t.handle)
            out.append(merged)
        return out, lambda: self.ends(out)

    def ends(self, results: list[Tensor]) -> list[Operation]:
        """Operations to wait for until all operations of the branch taken have run."""
        low, name = self.low, self.name
        besides = [d.of_all(g.control_results) for d, g in zip(self.done, self.graphs, strict=True)]
        out = [t.op for t in results]  # results too: one may be read before the state is changed
        if not any(besides):
            return out or [self.selector.op]
        attrs = {"T": self.selector.dtype.base}
        gates = [
            low.emit(side, "Identity", [pivot], attrs, f"{name}/done", waits, self.op).outputs[0]
            for side, pivot, waits in zip(self.sides, self.pivots, besides, strict=True)
        ]
        return [*out, self.merge(gates, {**attrs, "N": len(gates)}, f"{name}/done/Merge", ()).op]

    def merge(self, ends: list[Tensor], attrs: Mapping[str, Any], name: str, shape: Shape) -> Tensor:
        low = self.low
        op = low.emit(self.place, "Merge", ends, attrs, name, like=self.op, shapes=[shape, ()], is_gated=True)
        return op.outputs[0]
