"""Programs of regions: values in place of tensors, instructions in place of operations.

The builder walks the regions of a step in order and selects the instruction of each operation (`select`). An operation
that forwards a tensor yields no instruction: both tensors are one value. The same holds for functions, whose regions
become part of the block of the call, and for parameters and loop constants.

A loop that only counts has a "counter", an integer of the language of the printer. Where an instruction needs it as a
scalar of its dtype, a `Convert` precedes the instruction, once in each block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value
from headrace.ir.kernel import OnResources, residence
from headrace.opkit.forms import COPIES
from headrace.schedule.program import (
    Block,
    Branches,
    Call,
    Compute,
    Convert,
    Function,
    Instr,
    Limit,
    Loop,
    Program,
    Read,
    Trip,
    Value,
    Variable,
)
from headrace.schedule.select import (
    Constant,
    Forward,
    KernelCall,
    ListOperation,
    Map,
    Move,
    Nothing,
    Resource,
    Selection,
)

if TYPE_CHECKING:
    import numpy as np

    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.kernel import Kernel
    from headrace.schedule.program import Representation, Storage, Work
    from headrace.schedule.regions import Item, Region, Regions


def build(regions: Regions, args: Sequence[Operation], retvals: Sequence[Operation]) -> Program:
    """Builds the program of a step.

    Args:
      regions: The regions of the step.
      args: The `_Arg` operations, in the order of the feeds.
      retvals: The `_Retval` operations, in the order of the fetches.

    Returns:
      The program, before any pass.
    """
    return _Builder(regions).program(args, retvals)


def _kind_of_value(t: Tensor) -> Representation:
    """The representation of a value that is neither a reference nor a list."""
    if t.dtype.base in dtypes.OBJECT or residence(t) is not None:
        return "object"
    return "scalar" if t.shape == () else "array"


class _Builder:
    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._selection = Selection(regions)
        self._lists = self._selection.lists
        self._known: dict[Tensor, Value] = {}
        self._values: list[Value] = []
        self._functions: dict[str, Function] = {}
        self._instrs: list[Instr] = []  # of the open block
        self._converted: list[dict[tuple[Value, np.dtype], Value]] = [{}]  # scalars of counters, by open block
        self._root = self._converted[0]
        self._resources: list[tuple[Operation, Kernel]] = []

    def program(self, args: Sequence[Operation], retvals: Sequence[Operation]) -> Program:
        params = tuple([self._define(op.outputs[0], "argument") for op in args])
        root = self._regions.root
        for item in root.items:
            if item.op.type != "_Retval":
                self._item(item)
        results = tuple([self._plain(op.inputs[0], op) for op in retvals])
        block = Block(self._instrs, results, root)
        return Program(params, block, self._functions, self._values, tuple(self._resources))

    # *** values ***

    def _define(
        self, t: Tensor, storage: Storage, representation: Representation | None = None, constant: Any = None
    ) -> Value:
        """Makes the value of `t`."""
        shape = t.shape if constant is None or t.dtype.base is dtypes.resource else constant.shape
        kind = representation or self._representation(t)
        value = Value(len(self._values), t, t.dtype.base, shape, kind, storage, constant=constant)
        self._values.append(value)
        self._known[t] = value
        return value

    def _representation(self, t: Tensor) -> Representation:
        if t.dtype.is_ref:
            return "reference"
        kind = self._lists.kind(t)
        if kind:
            return "list" if kind == "list" else "rows"
        return _kind_of_value(t)

    def _constant(self, t: Tensor, array: Any) -> Value:
        return self._define(t, "constant", constant=array)

    def _value(self, t: Tensor) -> Value:
        """The value of `t`, defined here if it is a constant of no region."""
        value = self._known.get(t)
        return value if value is not None else self._constant(t, constant_value(t))

    def _plain(self, t: Tensor, op: Operation) -> Value:
        """The value of `t` as kernels take it: neither a reference nor a counter."""
        value = self._value(t)
        if value.representation == "counter":
            return self._as_scalar(value, t, op)
        if value.representation == "reference":
            return self._read(t, value, op)
        return value

    def _as_scalar(self, value: Value, t: Tensor, op: Operation) -> Value:
        key = value, t.dtype.base.numpy
        for known in reversed(self._converted):
            scalar: Value | None = known.get(key)
            if scalar is not None:
                return scalar
        made = Value(len(self._values), t, t.dtype.base, (), "scalar", "shared")
        self._values.append(made)
        self._instrs.append(Compute(op, (value,), (made,), Convert()))
        self._converted[-1][key] = made
        return made

    def _read(self, t: Tensor, reference: Value, op: Operation) -> Value:
        """The value of a reference at this time."""
        made = Value(len(self._values), t, t.dtype.base, t.shape, _kind_of_value(t), "shared")
        self._values.append(made)
        self._instrs.append(Compute(op, (reference,), (made,), Read()))
        return made

    def _same(self, t: Tensor, other: Tensor, op: Operation) -> None:
        """Records that `t` is the value of `other`."""
        value = self._value(other)
        if value.representation == "reference" and not t.dtype.is_ref:
            self._known[t] = self._read(other, value, op)
            return
        self._known[t] = value

    # *** instructions ***

    def _item(self, item: Item) -> None:
        match item.kind:
            case "":
                self._plain_item(item)
            case "While":
                self._loop(item)
            case "Call":
                self._call(item)
            case "Recursive":
                self._recursive(item)
            case _:
                self._branches(item)

    def _plain_item(self, item: Item) -> None:
        op, found = item.op, self._selection.of(item)
        match found:
            case Nothing():
                return
            case Constant(array):
                self._constant(op.outputs[0], array)
            case Forward(source):
                if item.live:
                    self._same(op.outputs[0], op.inputs[source], op)
                elif op.inputs[source].dtype.is_ref:  # the read must fail if there is no value
                    self._instrs.append(Compute(op, (self._value(op.inputs[source]),), (None,), Read()))
            case ListOperation():
                self._list_operation(item, found)
            case Resource(handle, kernel):
                if self._converted[-1] is self._root:
                    self._resources.append((op, kernel))
                    self._define(op.outputs[0], "constant", constant=handle)
                else:  # the resource is made only if the block runs
                    self._compute(item, [], KernelCall(kernel), "shared")
            case KernelCall(kernel):
                wants = op.opdef.input_dtypes(op.attrs) if any(t.dtype.is_ref for t in op.inputs) else ()
                inputs = [
                    self._value(t) if wants and wants[i].is_ref else self._plain(t, op) for i, t in enumerate(op.inputs)
                ]
                is_fresh = op.opdef.facts.fresh and len(op.outputs) == 1
                bound = kernel.factory.handles if isinstance(kernel.factory, OnResources) else 0
                if bound and all(v.storage == "constant" for v in inputs[:bound]):
                    found = KernelCall(kernel, bound)
                self._compute(item, inputs, found, "fresh" if is_fresh else "shared")
            case Map(expression):
                is_array = expression.shape is not None and expression.shape != ()
                self._compute(item, [self._plain(t, op) for t in op.inputs], found, "fresh" if is_array else "shared")
            case Move(form):
                is_copy = isinstance(form, COPIES)
                self._compute(item, [self._plain(t, op) for t in op.inputs], found, "fresh" if is_copy else "shared")

    def _compute(self, item: Item, inputs: Iterable[Value], work: Work, storage: Storage) -> None:
        op, given = item.op, tuple(inputs)
        outputs = tuple([self._define(t, storage) if i in item.live else None for i, t in enumerate(op.outputs)])
        self._instrs.append(Compute(op, given, outputs, work))

    def _list_operation(self, item: Item, found: ListOperation) -> None:
        op, role = item.op, found.role
        takes_counters = role.kind in ("get", "set")
        inputs = []
        for i, t in enumerate(op.inputs):
            value = self._value(t)
            is_index = takes_counters and i == 1 and value.representation == "counter"
            inputs.append(value if is_index else self._plain(t, op))
        if not role.changes:
            self._compute(item, inputs, found, "shared")
            return
        more = [self._define(t, "shared") if i in item.live else None for i, t in enumerate(op.outputs) if i]
        self._instrs.append(Compute(op, tuple(inputs), (None, *more), found))
        if 0 in item.live:
            self._same(op.outputs[0], op.inputs[0], op)

    def _block(self, region: Region, results: Sequence[Tensor], params: Sequence[tuple[Tensor, Tensor]] = ()) -> Block:
        """Builds a block of the items of `region`.

        Args:
          region: The region.
          results: The tensors whose values are the results.
          params: Parameters of the graph, each with the tensor of the surrounding block that it is.

        Returns:
          The block.
        """
        outer, self._instrs = self._instrs, []
        self._converted.append({})
        for p, t in params:
            self._same(p, t, p.op)
        for item in region.items:
            self._item(item)
        block = Block(self._instrs, tuple([self._plain(t, t.op) for t in results]), region)
        self._converted.pop()
        self._instrs = outer
        return block

    def _branches(self, item: Item) -> None:
        op = item.op
        selector = self._plain(op.inputs[0], op)
        blocks = []
        for region in item.regions:
            graph = region.graph
            assert isinstance(graph, FuncGraph)
            params = [(graph.params[k], op.inputs[item.offset + k]) for k in region.params]
            blocks.append(self._block(region, region.results, params))
        outputs = tuple([self._define(t, "shared") if i in item.live else None for i, t in enumerate(op.outputs)])
        self._instrs.append(
            Branches(
                op,
                (selector,),
                outputs,
                captures=_free(blocks),
                branches=tuple(blocks),
                is_case=item.kind == "Case",
            )
        )

    def _loop(self, item: Item) -> None:
        op = item.op
        test, inner = item.regions
        cond, loop = test.graph, inner.graph
        assert isinstance(cond, FuncGraph)
        assert isinstance(loop, FuncGraph)
        carried = [k for k in item.variables if k != item.counter]
        initial = [self._plain(op.inputs[k], op) for k in carried]
        trip = self._trip(item, loop) if item.trip_count is not None else None
        params = [self._define(loop.params[k], "shared") for k in carried]
        for k, p in enumerate(loop.params):
            if k not in item.variables and (k in inner.params or k in test.params):
                self._same(p, op.inputs[k], op)
            if p in self._known:
                self._known[cond.params[k]] = self._known[p]
        condition = self._block(test, test.results[:1]) if trip is None else None
        body = self._block(inner, [loop.results[k] for k in carried])
        outputs: list[Value | None] = [None] * len(op.outputs)
        for k in item.live:
            if k in carried:
                outputs[k] = self._define(op.outputs[k], "shared")
            elif k == item.counter:
                assert trip is not None
                outputs[k] = self._define(op.outputs[k], "shared")
                trip = Trip(trip.counter, trip.first, trip.limits, outputs[k], trip.most)
            else:
                self._same(op.outputs[k], op.inputs[k], op)
        variables = [
            Variable(first, param, following, outputs[k])
            for k, first, param, following in zip(carried, initial, params, body.results, strict=True)
        ]
        read = [*initial]
        if trip is not None:
            read += [trip.first, *(v for limit in trip.limits for v in (limit.first, limit.limit))]
            params.append(trip.counter)
        captures = _free([body] if condition is None else [condition, body], read, params)
        self._instrs.append(
            Loop(
                op,
                (),
                tuple(outputs),
                captures=captures,
                variables=tuple(variables),
                body=body,
                test=condition,
                trip=trip,
            )
        )

    def _trip(self, item: Item, loop: FuncGraph) -> Trip:
        count = item.trip_count
        assert count is not None
        main = count.bounds[0]
        first = self._bound(main.first)
        limits = [
            Limit(self._bound(b.first), self._bound(b.limit), b.is_inclusive, b.counter == main.counter)
            for b in count.bounds
        ]
        counter = self._define(loop.params[item.counter], "shared", "counter")
        counter.is_natural = first.storage == "constant" and int(first.constant) >= 0
        return Trip(counter, first, tuple(limits), None, count.most)

    def _bound(self, t: Tensor) -> Value:
        """The value of a bound of a counter, constant if known and natural."""
        known = constant_value(t)
        if known is not None and int(known) >= 0:
            return self._constant(t, known)
        value = self._value(t)
        return self._read(t, value, t.op) if value.representation == "reference" else value

    def _call(self, item: Item) -> None:
        op, region = item.op, item.regions[0]
        graph = region.graph
        assert isinstance(graph, FuncGraph)
        for k in region.params:
            self._same(graph.params[k], op.inputs[item.offset + k], op)
        for inner in region.items:
            self._item(inner)
        for k, t in zip(item.live, region.results, strict=True):
            self._same(op.outputs[k], t, op)

    def _recursive(self, item: Item) -> None:
        op = item.op
        name = op.attrs["f"].name
        if name not in self._functions:
            self._function(name, self._regions.functions[name])
        inputs = tuple([self._plain(t, op) for t in op.inputs[item.offset :]])
        outputs = tuple([self._define(t, "shared") if i in item.live else None for i, t in enumerate(op.outputs)])
        self._instrs.append(Call(op, inputs, outputs, function=name))

    def _function(self, name: str, region: Region) -> None:
        graph = region.graph
        assert isinstance(graph, FuncGraph)
        converted, self._converted = self._converted, []
        known, self._known = self._known, {}
        params = tuple([self._define(t, "argument") for t in graph.params])
        made = Function(name, params, Block([], (), region))
        self._functions[name] = made  # ends the recursion
        made.block = self._block(region, region.results)
        self._known = known
        self._converted = converted


def _free(blocks: Iterable[Block], read: Iterable[Value] = (), params: Iterable[Value] = ()) -> tuple[Value, ...]:
    """The values from outside that blocks read, except constants.

    Args:
      blocks: The blocks of an instruction.
      read: Further values that the instruction reads.
      params: Values that the instruction defines in its blocks.

    Returns:
      The values, each once.
    """
    found = dict.fromkeys(read)
    inside = set(params)
    for block in blocks:
        for instr in block.instrs:
            found.update((v, None) for v in instr.reads if v not in inside)
            inside.update(instr.made)
        found.update((v, None) for v in block.results if v not in inside)
    return tuple([v for v in found if v.storage != "constant"])
