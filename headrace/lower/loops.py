"""Lowering of `While` and `For` to Enter, Merge, Switch, NextIteration and Exit.

    i = While(i0)     condition: i < n      body: i + 1        (n is captured)

becomes, in a frame of its own,

    e    = Enter(i0)                     n' = Enter(n, is_constant=True)
    m    = Merge(e, next)
    go   = LoopCond(Less(m, n'))
    s    = Switch(m, go)                 s:1 goes into the body, s:0 out
    next = NextIteration(AddV2(s:1, 1))
    i    = Exit(s:0)

A variable that the body returns unchanged is a loop constant and needs only a constant Enter. If its output is read, it
iterates like every other variable, because its Exit states that the loop has ended: a reader of the output waits for
all iterations of the condition, as in TensorFlow 1.

**State tokens.** Iterations overlap: one may start while the previous one still runs. For values this is harmless. But
operations that *change* state must run in the order of the iterations. So each state that the loop changes (`ir.order`
lists them) gets a further loop variable, a token. Operations of the body that access the state wait for the token, and
the token passes to the next iteration when they have run. Other operations overlap as before. One more token collects
the operations that must run (`control_results`) and access no state of another token. A control edge from the loop
itself waits for all its results and for the Exits of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.ir.edit.for_as_while import counting
from headrace.ir.function import base_name
from headrace.ir.graph import FuncGraph
from headrace.ir.notes import LoopVariable
from headrace.ir.order import ANY, EVERYTHING, Key, effects_in, is_constant, is_resource
from headrace.lower.calls import inline
from headrace.lower.conditionals import as_predicate
from headrace.lower.lowering import LoweredLoop, LoweringScope, Made, Values, prefix_for, used_params

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.notes import Note
    from headrace.lower.lowering import Lowering
    from headrace.shapes import Shape


def lower_while(
    low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
) -> Made:
    """Lowers a While; see the module's text."""
    return _While(low, op, inputs, controls, place).lower()


class _Token:
    """Operations of the condition and of the body that a token keeps in order."""

    def __init__(self) -> None:
        self.cond: list[Operation] = []
        self.body: list[Operation] = []


class _Variable:
    """Loop variable or token in the primitive graph.

    Attributes:
      merge: The output of its Merge.
      go: The output of its Switch into the body.
      stop: The output of its Switch out of the loop.
      suffix: The suffix of the names of its operations.
    """

    def __init__(self, merge: Tensor, suffix: str) -> None:
        self.merge = self.go = self.stop = merge
        self.suffix = suffix


class _While:
    """Lowering of one loop."""

    def __init__(
        self, low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
    ) -> None:
        self.low, self.op, self.inputs, self.controls, self.place = low, op, inputs, controls, place
        self.cond = low.shared.graph_of(op, op.attrs["cond"])
        self.body = low.shared.graph_of(op, op.attrs["body"])
        self.name = place.prefix + op.name
        frame = low.frame_name(self.name)
        self.loop = LoweredLoop(place, self.name, frame, op.attrs["parallel_iterations"])
        self.variables = [k for k in range(len(inputs)) if self.iterates(k)]
        self.lowered: dict[int, _Variable] = {}

    def lower(self) -> Made:
        low, op, name = self.low, self.op, self.name
        for k in self.variables:
            p = self.body.params[k]
            self.lowered[k] = self.begin(self.inputs[k], f"_{k}" if k else "", p.shape, [LoopVariable(base_name(p))])
        tokens = self.find_tokens()
        if not self.lowered and not tokens:
            tokens = [_Token()]  # a loop needs a variable
        ordering = {self.begin_token(i): token for i, token in enumerate(tokens)}
        variables = self.leading_first([*self.lowered.values(), *ordering])

        # the condition, gated by the first Merge
        at = LoweringScope(
            self.loop,
            variables[0].merge.op,
            [r.merge for r in variables],
            prefix_for(self.place, op, self.cond, "cond"),
        )
        values = self.given(self.cond, {k: r.merge for k, r in self.lowered.items()})
        waits = _waits((c, r.merge.op) for r, token in ordering.items() for c in token.cond)
        done = low.sub_graph(self.cond, values, at, waits)
        pred = low.settled(as_predicate(low, op, values[self.cond.results[0]], at), at, op, f"{name}/Identity")
        go = low.emit(at, "LoopCond", [pred], {}, f"{name}/LoopCond", like=op, shapes=[()]).outputs[0]
        for r in variables:
            after = done.of_all(ordering[r].cond) if r in ordering else []
            data = self.identity(at, r.merge, after).outputs[0] if after else r.merge
            switch = low.emit(at, "Switch", [data, go], {"T": data.dtype.base}, f"{name}/Switch{r.suffix}", like=op)
            r.stop, r.go = switch.outputs

        # the body, gated by the first Switch
        at = LoweringScope(self.loop, None, [r.go for r in variables], prefix_for(self.place, op, self.body, "body"))
        first = variables[0].go
        at.pivot = low.emit(at, "Identity", [first], {"T": first.dtype.base}, f"{name}/Identity", like=op)
        values = self.given(self.body, {k: r.go for k, r in self.lowered.items()})
        # a control edge from a Switch is alive on both sides, so operations wait for an Identity of the token
        gates = {r: self.identity(at, r.go) for r, token in ordering.items() if token.body}
        waits = _waits((o, wait) for r, wait in gates.items() for o in ordering[r].body)
        done = low.sub_graph(self.body, values, at, waits)
        for k, r in self.lowered.items():
            self.end(r, low.settled(values[self.body.results[k]], at, op, f"{name}/Identity"), at)
        for r, token in ordering.items():
            self.end(r, self.identity(at, r.go, done.of_all(token.body)).outputs[0], at)

        outputs = [
            self.exit(self.lowered[k], t.shape) if k in self.lowered else self.inputs[k]
            for k, t in enumerate(op.outputs)
        ]
        ends = [t.op for t in outputs if t.dtype is not dtypes.resource]
        return outputs, lambda: ends + [self.exit(r, ()).op for r in ordering]

    def iterates(self, k: int) -> bool:
        """Whether variable `k` needs a Merge and an Exit.

        A loop-invariant handle does not: it must be on the device of the resource, and has no other use outside.
        """
        if is_constant(self.body, k):
            return self.low.is_read(self.op.outputs[k]) and self.inputs[k].dtype is not dtypes.resource
        return True

    def find_tokens(self) -> list[_Token]:
        """Tokens for the states that the loop changes, and for other operations that must run."""
        low = self.low
        keys: dict[Key, _Token] = {}
        writes: set[Key] = set()
        ordered: set[Operation] = set()
        for graph in (self.cond, self.body):
            for op, touched in effects_in(graph, low.shared.schedule(graph)):
                for key, write in touched.items():
                    key = self.outer_key(key, graph)
                    token = keys.setdefault(key, _Token())
                    (token.cond if graph is self.cond else token.body).append(op)
                    if write:
                        writes.add(key)
        if EVERYTHING in keys:
            _unite(keys, list(keys), EVERYTHING)
            writes = {EVERYTHING}
        elif ANY in keys and (ANY in writes or any(is_resource(k) for k in writes)):
            _unite(keys, [k for k in keys if is_resource(k)], ANY)
            writes.add(ANY)
        tokens = [t for k, t in keys.items() if k in writes]
        for t in tokens:
            ordered.update(t.cond, t.body)
        rest = _Token()
        rest.cond = [c for c in self.cond.control_results if c not in ordered]
        rest.body = [c for c in self.body.control_results if c not in ordered]
        return [*tokens, rest] if rest.cond or rest.body else tokens

    def outer_key(self, key: Key, graph: FuncGraph) -> Key:
        """Converts a key of the condition or body to a key of the loop."""
        if isinstance(key, tuple) and len(key) == 2 and key[0] == "resource" and key[1].op.graph is graph:
            k = graph.params.index(key[1])
            return ("resource", k) if is_constant(self.body, k) else ANY
        return key

    def begin(self, t: Tensor, suffix: str, shape: Shape, notes: Sequence[Note] = ()) -> _Variable:
        """Makes the Enter and Merge of a loop variable.

        Args:
          t: The initial value.
          suffix: The suffix of the names.
          shape: The static shape of the variable in all iterations.
          notes: The notes of the Merge.

        Returns:
          The variable, without its Switch.
        """
        low, op, name = self.low, self.op, self.name
        enter = low.enter(t, self.loop, False, f"{name}/Enter{suffix}", op, self.controls)
        # a scope of its own, without a pivot: the condition's scope begins with the Merge
        attrs = {"T": t.dtype.base, "N": 2}
        first = LoweringScope(self.loop, None, (), "")
        merge = low.emit(
            first, "Merge", enter.outputs, attrs, f"{name}/Merge{suffix}", like=op, shapes=[shape, ()], notes=notes
        )
        return _Variable(merge.outputs[0], suffix)

    def begin_token(self, i: int) -> _Variable:
        zero = self.low.token(f"{self.name}/token", self.place, self.op)
        return self.begin(zero, f"_token{i or ''}", ())

    def leading_first(self, variables: list[_Variable]) -> list[_Variable]:
        """Moves a variable that the condition reads to the front, as others may be pruned."""
        read = set(used_params(self.cond, self.low.shared.schedule(self.cond)))
        for k, r in self.lowered.items():
            if k in read:
                return [r, *(x for x in variables if x is not r)]
        return variables

    def given(self, graph: FuncGraph, variables: Mapping[int, Tensor]) -> Values:
        """Values of the parameters of `graph` that it uses."""
        out: Values = {}
        for k in used_params(graph, self.low.shared.schedule(graph)):
            p = graph.params[k]
            if k in variables:
                out[p] = variables[k]
            else:
                out[p] = self.low.enter_constant(self.inputs[k], self.loop, self.op, base_name(p), self.controls)
        return out

    def identity(self, at: LoweringScope, t: Tensor, after: Sequence[Operation] = ()) -> Operation:
        return self.low.emit(at, "Identity", [t], {"T": t.dtype.base}, f"{self.name}/token", after, self.op)

    def end(self, r: _Variable, value: Tensor, at: LoweringScope) -> None:
        """Makes the NextIteration of a variable."""
        attrs = {"T": value.dtype.base}
        new = self.low.emit(at, "NextIteration", [value], attrs, f"{self.name}/NextIteration{r.suffix}", like=self.op)
        self.low.graph.set_back_edge(r.merge.op, 1, new.outputs[0])

    def exit(self, r: _Variable, shape: Shape) -> Tensor:
        """Makes the Exit of a variable; returns its output, which is outside the loop."""
        stops = LoweringScope(self.loop, None, (), "")
        attrs = {"T": r.stop.dtype.base}
        new = self.low.emit(stops, "Exit", [r.stop], attrs, f"{self.name}/Exit{r.suffix}", like=self.op)
        t = new.outputs[0]
        t.replace_static(shape, t.handle)
        self.place.gated.add(t)
        return t


def _unite(keys: dict[Key, _Token], these: list[Key], into: Key) -> None:
    """Merges tokens into one, for operations that may access the state of any of them."""
    every = _Token()
    for key in these:
        token = keys.pop(key)
        every.cond += token.cond
        every.body += token.body
    keys[into] = every


def _waits(pairs: Iterable[tuple[Operation, Operation]]) -> dict[Operation, list[Operation]]:
    out: dict[Operation, list[Operation]] = {}
    for op, wait in pairs:
        out.setdefault(op, []).append(wait)
    return out


def lower_for(
    low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
) -> Made:
    """Lowers a For as a While whose first variable counts from `start` while below `limit`."""
    return inline(low, op, counting(op), inputs, controls, place)
