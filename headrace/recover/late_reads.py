"""Late reads of reference variables: TensorFlow 1's aliasing, in the graph of a step.

In TensorFlow the output of `Identity(ref)` shares its buffer with the variable, and `Assign`, `AssignAdd`, `ApplyAdam`
and others write into that buffer. So a consumer of `v/read` sees every change of `v` that was made before the consumer
runs, even if the read ran earlier:

    r = tf.identity(v)                                   # 0, and the buffer of v
    with tf.control_dependencies([v.assign_add(1.0)]):
        y = r + 0.0                                      # 1

Values are never written in place here (`resources.variable`), so the graph of a step says the same by edges. A consumer
for which a change comes between the read and the consumer gets a read of its own, which waits for all that the consumer
waits for. Other consumers keep the common read, so a step without such a consumer stays as it is. A fetch is a consumer
that runs at the end of the step.

Where no edge orders a consumer and a change, TensorFlow's result depends on the time; here the read comes first.
Of the operations that share the buffer of an input, the pass follows those that forward it (`Facts.forwards`), Reshape,
Squeeze, ExpandDims and Enter.

A fetch of a variable is such a late read also if the variable is a resource variable only because `headrace.v1` makes
them in place of reference variables (`LateFetch`): in `sess.run([train_op, global_step])` it sees the update.

Source: TensorFlow's executor (`PrepareInputs`), `AssignOp`, `IdentityOp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.ir import walk
from headrace.ir.edit.editor import Editor
from headrace.ir.notes import LateFetch
from headrace.ir.order import ANY, EVERYTHING, effects, key_of

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_VARIABLES: Final = ("VariableV2", "Variable", "TemporaryVariable")
_SHARING: Final = ("Reshape", "Squeeze", "ExpandDims")  # of the operations without `Facts.forwards`
_NOT_CONSUMERS: Final = ("Merge", "NextIteration", "Exit")  # which run before all of their inputs are there


def fetch_late(graph: Graph, retvals: Sequence[Operation]) -> None:
    """Makes fetches with the note `LateFetch` wait for the changes of the step.

    Args:
      graph: the graph of a step that is fed in one call, which is changed.
      retvals: the `_Retval` of each fetch.
    """
    fetched = [op for op in retvals if LateFetch in op.inputs[0].op.notes]
    if not fetched or any(op.opdef.primitive for op in graph.operations):  # an edge cannot leave a primitive loop
        return
    touched = [(op, effects(op)) for op in graph.operations]
    editor = Editor(graph)
    for retval in fetched:
        read = retval.inputs[0].op
        keys = (key_of(read.inputs[0]), ANY, EVERYTHING)
        changes = [op for op, found in touched if any(found.get(key, False) for key in keys)]
        if changes:
            name = graph.unique_name(f"{read.name}/late")
            attrs = {"dtype": read.attrs["dtype"]}
            late = graph.add_op("ReadVariableOp", name, read.inputs, attrs, changes, read.device, read.source)
            editor.set_input(retval, 0, late.outputs[0])


def read_late(
    graph: Graph, retvals: Sequence[Operation], targets: Sequence[Operation], is_partial: bool = False
) -> None:
    """Gives consumers of reference variables that run after a change a read of their own.

    Args:
      graph: the graph of a step, which is changed.
      retvals: the `_Retval` of each fetch.
      targets: the operations that run although no `_Retval` may need them.
      is_partial: whether the step is fed in several calls, so that a fetch may not wait for the others.
    """
    variables = [op for op in graph.operations if op.type in _VARIABLES]
    if not variables:
        return
    search = _LateReads(graph, variables)
    if search.writers:
        ends = [] if is_partial else [*(op.inputs[0].op for op in retvals), *targets]
        search.run(ends)


class _Alias:
    """Value that shares the buffer of a variable.

    Attributes:
      chain: the operations from the reference to the value.
      changes: the changes of the variable, as a set of bits.
      seen: the changes that come before the first operation of the chain.
    """

    __slots__ = ("chain", "changes", "seen")

    def __init__(self, chain: tuple[Operation, ...], changes: int, seen: int) -> None:
        self.chain = chain
        self.changes = changes
        self.seen = seen


class _LateReads:
    """Search of one step.

    A set of changes is an int with a bit for each operation that changes a variable.
    """

    def __init__(self, graph: Graph, variables: Sequence[Operation]) -> None:
        self.graph = graph
        self.editor = Editor(self.graph)
        self.origins: dict[Tensor, frozenset[Operation]] = {op.outputs[0]: frozenset((op,)) for op in variables}
        self.order = walk.in_order(self.graph.operations)
        self.writers: dict[Operation, int] = {}
        self.changes: dict[Operation, int] = dict.fromkeys(variables, 0)
        self.aliases: dict[Tensor, _Alias] = {}
        self.entered: dict[tuple[Tensor, Operation], Tensor] = {}
        keys = {key_of(op.outputs[0]): op for op in variables}
        for op in self.order:
            written = self._written(op, keys)
            if written:
                self.writers[op] = bit = 1 << len(self.writers)
                for v in written:
                    self.changes[v] |= bit

    def _written(self, op: Operation, keys: dict[object, Operation]) -> Iterable[Operation]:
        """Returns the variables that `op` changes."""
        if op.opdef.structured:
            found = [key for key, writes in effects(op).items() if writes]
            return set(keys.values()) if ANY in found or EVERYTHING in found else [keys[k] for k in found if k in keys]
        if not op.opdef.facts.writes:
            return ()
        wants = op.opdef.input_dtypes(op.attrs)
        return {v for t, want in zip(op.inputs, wants, strict=True) if want.is_ref for v in self._origin(t)}

    def _origin(self, t: Tensor) -> frozenset[Operation]:
        """Returns the variables to which the reference `t` may refer."""
        found = self.origins.get(t)
        if found is None:
            self.origins[t] = frozenset()  # for the back edges of loops
            refs = [x for x in t.op.inputs if x.dtype.is_ref]
            found = self.origins[t] = frozenset().union(*map(self._origin, refs))
        return found

    def run(self, ends: Sequence[Operation]) -> None:
        """Gives each consumer its read; a fetch waits for `ends` after a change."""
        before = self._before()
        for op in self.order:
            now = before[op]
            for i, t in enumerate(list(op.inputs)):
                if op.type == "_Retval":
                    if ends:
                        self._fetch(op, t, ends, before)
                elif not t.dtype.is_ref and op.opdef.primitive not in _NOT_CONSUMERS:
                    alias = self.aliases.get(t)
                    if alias is not None and now & alias.changes & ~alias.seen:
                        others = [x.op for k, x in enumerate(op.inputs) if k != i]
                        read = self._read(alias, [*others, *op.control_inputs])
                        if read is not None:
                            self.editor.set_input(op, i, read)
                            self.aliases[read] = _Alias(alias.chain, alias.changes, now)
            self._follow(op, now)

    def _before(self) -> dict[Operation, int]:
        """Returns the changes that come before each operation, in any iteration."""
        before: dict[Operation, int] = {}
        is_new = has_loops = any(op.opdef.primitive == "NextIteration" for op in self.order)
        while True:
            is_new = False
            for op in self.order:
                now = 0
                for p in walk.predecessors(op):
                    now |= before.get(p, 0) | self.writers.get(p, 0)
                if before.get(op) != now:
                    before[op] = now
                    is_new = has_loops
            if not is_new:
                return before

    def _follow(self, op: Operation, now: int) -> None:
        """Records the result of `op` if it shares the buffer of a variable."""
        at = op.opdef.facts.forwards
        if at is None and (op.type in _SHARING or op.opdef.primitive == "Enter"):
            at = 0
        if at is None or op.outputs[0].dtype.is_ref:
            return
        source = op.inputs[at]
        if source.dtype.is_ref:
            changes = 0
            for v in self._origin(source):
                changes |= self.changes[v]
            self.aliases[op.outputs[0]] = _Alias((op,), changes, now)
        elif source in self.aliases:
            alias = self.aliases[source]
            self.aliases[op.outputs[0]] = _Alias((*alias.chain, op), alias.changes, alias.seen)

    def _fetch(self, retval: Operation, t: Tensor, ends: Sequence[Operation], before: dict[Operation, int]) -> None:
        """Makes a fetch read at the end of the step."""
        if t.dtype.is_ref:
            changes = 0
            for v in self._origin(t):
                changes |= self.changes[v]
            alias = _Alias((), changes, before[t.op] | self.writers.get(t.op, 0))
        elif t in self.aliases:
            alias = self.aliases[t]
        else:
            return
        missed = alias.changes & ~alias.seen
        if not missed:
            return
        waits = [op for op in ends if missed & (before[op] | self.writers.get(op, 0))]
        read = self._read(alias, waits) if alias.chain else self._identity(t, waits)
        if read is not None:
            self.editor.set_input(retval, 0, read)

    def _identity(self, ref: Tensor, waits: Iterable[Operation]) -> Tensor:
        name = self.graph.unique_name(f"{ref.op.name}/late")
        controls = list(dict.fromkeys(waits))
        attrs = {"T": ref.dtype.base}
        op = self.graph.add_op("Identity", name, [ref], attrs=attrs, control_inputs=controls, source=ref.op.source)
        self.editor.set_device(op, ref.op.device)
        return op.outputs[0]

    def _read(self, alias: _Alias, waits: Iterable[Operation]) -> Tensor | None:
        """Returns a copy of an alias that runs after `waits`, or None in conditionals."""
        first, *rest = alias.chain
        ref = first.inputs[first.opdef.facts.forwards or 0]
        while rest and rest[0].opdef.primitive == "Enter":
            enter = rest.pop(0)
            if (ref, enter) not in self.entered:
                name = self.graph.unique_name(f"{enter.name}/late")
                made = self.graph.add_op("RefEnter", name, [ref], attrs=dict(enter.attrs), source=enter.source)
                self.entered[ref, enter] = made.outputs[0]
            ref = self.entered[ref, enter]
        if any(op.opdef.primitive for op in rest):
            return None
        read = self._identity(ref, waits)
        for op in rest:
            inputs = list(op.inputs)
            inputs[op.opdef.facts.forwards or 0] = read
            read = self.graph.copy_op(op, inputs, (), self.graph.unique_name(f"{op.name}/late")).outputs[0]
        return read
