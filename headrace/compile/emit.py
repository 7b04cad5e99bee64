"""The emitter: writes the regions of a step as Python code.

A `While` becomes a `for` statement, an `If` an `if`, and a kernel a call. The order of the lines replaces the
scheduling of the executor. A value is a local variable. A value from outside of a branch or a body is the same variable
there, so a loop constant costs nothing. After its last reader, a value is deleted (`del`).

A loop iterates over an iterator that checks from time to time whether the step must stop (`runtime`). A loop that only
counts is a `for` over a range. Its counter is a Python int where it is used as an index, and is converted to int32 or
int64 for other uses.

Python allows twenty nested loops. Deeper blocks, and functions that call themselves, are written as functions.

`kernels` writes single operations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import dtypes, flags, thresholds
from headrace.compile import runtime
from headrace.compile.kernels import Writer
from headrace.compile.names import INT, Value
from headrace.compile.source import SourceLoop
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value
from headrace.ir.opdef import op_registry
from headrace.schedule import tiling
from headrace.schedule.lists import LIST, ROWS
from headrace.schedule.regions import Item, Region, Regions
from headrace.schedule.tiling import TiledGroup, Unit

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor

MOST_LOOPS: Final = 15  # nested in one function; Python's limit is 20
MOST_BLOCKS: Final = 60  # nested, of any kind; Python's limit is 100, of which a `Case` takes a few more


class Emitter(Writer):
    """Writes the source of one step.

    Args:
      regions: The regions of the step.
      args: The `_Arg` operations, in the order of the feeds.
      retvals: The `_Retval` operations, in the order of the fetches.
    """

    def __init__(self, regions: Regions, args: Sequence[Operation], retvals: Sequence[Operation]) -> None:
        super().__init__(regions)
        self._regions = regions
        self._functions: dict[str, str] = {}
        self._write(args, retvals)

    @property
    def calls_itself(self) -> bool:
        """Whether a function of the code calls itself."""
        return bool(self._functions)

    def _write(self, args: Sequence[Operation], retvals: Sequence[Operation]) -> None:
        names = []
        for op in args:
            name = self.out.new("a")
            names.append(name)
            self.values[op.outputs[0]] = Value(name)
        self.out.line(f"def step(run{''.join(', ' + n for n in names)}):")
        self.out.indent()
        # `_Retval`s are items of the root; their inputs are returned
        results = [op.inputs[0] for op in retvals]
        inner = Region(
            self._regions.root.graph,
            tuple(i for i in self._regions.root.items if i.op.type != "_Retval"),
            tuple(results),
            (),
        )
        self._region(inner)
        texts = []
        for t, op in zip(results, retvals, strict=True):
            texts.append(self.plain(t, op))
            if t.dtype.is_ref:
                self.out.line(f"{(name := self.out.new('r'))} = {texts[-1]}", op)
                texts[-1] = name
        self.out.line(f"return ({', '.join(texts)}{',' if len(texts) == 1 else ''})")
        self.out.dedent()

    # *** regions ***

    def _region(self, region: Region) -> None:
        """Writes the items of a region and deletes values after their last reader, except results."""
        find = self.selection.expression_of
        found = region.items if self._checks else tiling.units(region.items, find)
        if any(isinstance(unit, TiledGroup) for unit in found):  # items have moved
            for t in region.results:
                self.wanted.pop(t, None)
        retained = {t for item in region.items if self.selection.keeps_inputs(item) for t in item.reads}
        self._units(found, set(region.results), retained | set(region.results), set())

    def _units(
        self, units: Sequence[Unit], never_deleted: Collection[Tensor], retained: set[Tensor], mine: set[Tensor]
    ) -> None:
        """Writes items and groups.

        Args:
          units: The items and groups, in order.
          never_deleted: Tensors that are never deleted.
          retained: Tensors of which an object may keep a view or a reference.
          mine: Tensors that are deleted after their last reader. The outputs of the units are added.
        """
        last: dict[Tensor, int] = {}
        for i, unit in enumerate(units):
            for t in unit.reads:
                last[t] = i
        for i, unit in enumerate(units):
            dying = [t for t in dict.fromkeys(unit.reads) if last[t] == i and t in mine and t not in never_deleted]
            reusable = {t for t in dying if t not in retained}
            if isinstance(unit, TiledGroup):
                wanted = [t for t in unit.made if last.get(t, -1) > i or t in never_deleted]
                given = self._given(unit, wanted, reusable)
                if tiling.fits(unit, wanted, dying, list(given.values())):
                    self._group(unit, wanted, given, retained)
                    mine.update(wanted)
                else:
                    live = {*wanted, *(t for t in unit.reads if t not in dying)}
                    self._units(unit.items, live, retained, mine)
            elif unit.kind:
                self.structured(unit)
            else:
                self.next = self._only_reader(unit, units[i + 1 : i + 2], last, i, never_deleted)
                self.kernel(unit, reusable)
            if not isinstance(unit, TiledGroup):
                mine.update(unit.op.outputs[k] for k in unit.live)
            self.drop([t for t in dying if t in self.values])

    def _only_reader(
        self, item: Item, next: Sequence[Unit], last: Mapping[Tensor, int], i: int, never_deleted: Collection[Tensor]
    ) -> Item | None:
        """The item after `item` if it is the only reader of its output."""
        if self._checks or item.live != (0,) or not next or isinstance(next[0], TiledGroup) or next[0].kind:
            return None
        t = item.op.outputs[0]
        return next[0] if last.get(t) == i + 1 and t not in never_deleted else None

    # *** groups ***

    def _given(self, group: TiledGroup, wanted: Sequence[Tensor], reusable: Collection[Tensor]) -> dict[Tensor, Tensor]:
        """Arrays of `reusable` that outputs of a group may overwrite, by output.

        Such an array has no reader after the item that computes the output.
        """
        out: dict[Tensor, Tensor] = {}
        free = [t for t in group.reads if t in reusable]
        for i, item in enumerate(group.items):
            t, expression = item.op.outputs[0], self.selection.expression_of(item)
            if t not in wanted or expression is None:
                continue
            fit = next((r for r in free if group.reach[r] <= i and self._can_hold(r, expression)), None)
            if fit is not None:
                free.remove(fit)
                out[t] = fit
        return out

    def _group(
        self, group: TiledGroup, wanted: Sequence[Tensor], given: Mapping[Tensor, Tensor], retained: set[Tensor]
    ) -> None:
        """Writes a group as a loop over slices, with whole arrays for `wanted`."""
        out, op = self.out, group.items[0].op
        whole: dict[Tensor, str] = {}
        pattern = next((self.plain(t, op) for t in group.reads if t.shape == group.shape), "")
        for t in wanted:
            if t in given:
                whole[t] = self.values[given[t]].text
                self._owned.pop(given[t])
                continue
            whole[t] = out.new("t")
            dtype = out.bind(t.dtype.base.numpy, "o")
            like, empty = out.bind(np.empty_like, "f"), out.bind(np.empty, "f")
            made = f"{like}({pattern}, {dtype})" if pattern else f"{empty}({group.shape}, {dtype})"
            out.line(f"{whole[t]} = {made}", op)
        i, stop = out.new("i"), out.new("i")
        texts = {t: self.plain(t, op) for t in group.reads}
        before = {t: self.values[t] for t in group.reads}
        out.line(f"for {i} in range(0, {group.length}, {group.step}):", op)
        out.indent()
        self.converted.append({})
        out.line(f"{stop} = {i} + {group.step}", op)
        names: dict[str, str] = {}  # the slices that already have a name
        for t, text in [*texts.items(), *whole.items()]:
            index = group.sliced(t, f"{i}:{stop}")
            if not index:
                continue
            known = names.get(text + index)
            if known is None:
                known = names[text + index] = out.new("s")
                out.line(f"{known} = {text}{index}", op)
            if t in whole:
                self.targets[t] = known
            else:
                self.values[t] = Value(known)
        self.whole = len(group.shape) - group.axis - 1
        self._units(group.items, wanted, retained, set())
        self.whole = None
        self.converted.pop()
        out.dedent()
        out.line(f"del {', '.join(names.values())}", op)
        self.values.update(before)
        for t in wanted:
            del self.targets[t]
            self.own(t, Value(whole[t], is_fresh=True))

    def structured(self, item: Item) -> None:
        """Writes an operation that owns or calls graphs."""
        if self.out.depth >= MOST_LOOPS or self.out.indentation >= MOST_BLOCKS:
            self._outlined(item)
        elif item.kind == "While":
            self._loop(item)
        elif item.kind == "Call":
            self._call(item)
        elif item.kind == "Recursive":
            self._recursive(item)
        else:
            self._branches(item)

    def _outlined(self, item: Item) -> None:
        """Writes `item` as a function of its own, because too many blocks surround it."""
        outer = {t: self.values[t] for t in item.reads}
        given = {}
        for t, v in outer.items():
            if not v.is_global:
                given[t] = self.out.new("p")
        name = self.out.new("part")
        call = f"{name}(run{''.join(', ' + outer[t].text for t in given)})"
        converted, self.converted = self.converted, [{}]
        suspends, self.suspends = self.suspends, False
        self.out.begin(f"def {name}(run{''.join(', ' + p for p in given.values())}):")
        for t, p in given.items():
            self.values[t] = outer[t].named(p)
        self.structured(item)
        made = [item.op.outputs[k] for k in item.live]
        self.out.line(f"return ({''.join(self.values[t].text + ', ' for t in made)})")
        self.out.end()
        self.converted = converted
        self.values.update(outer)
        self._name_outputs(item, made, f"(yield from {call})" if self.suspends else call)
        self.suspends = self.suspends or suspends

    def _name_outputs(self, item: Item, made: Sequence[Tensor], call: str) -> None:
        names = []
        for t in made:
            old = self.values.get(t)
            name = self.out.new("t")
            self.own(t, old.named(name) if old is not None else Value(name))
            names.append(name)
        self.out.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}" if names else call, item.op)

    # *** conditionals ***

    def _branches(self, item: Item) -> None:
        op, out = item.op, self.out
        selector = self.values[op.inputs[0]]
        outputs = [op.outputs[k] for k in item.live]
        old = {t for t in outputs if t in self.wanted}  # their names hold other values until they are written
        names = [self.name_for(t) for t in outputs]
        kinds: list[Value] = []

        def write(header: str, region: Region) -> None:
            nonlocal kinds
            out.line(header, op)
            out.indent()
            kinds = self._branch(item, region, names, old)
            out.dedent()

        if item.kind == "If":
            other, then = item.regions
            write(f"if {self.truth(op.inputs[0], op)}:", then)
            if other.items or names:
                write("else:", other)
        else:
            which = out.new("w")
            chosen = self.plain(op.inputs[0], op)
            out.line(f"{which} = {out.bind(runtime.branch, 'f')}({chosen}, {len(item.regions)})", op, (selector.text,))
            self._case(item, which, range(len(item.regions)), write)
        for t, name, value in zip(outputs, names, kinds, strict=True):
            kind = value.kind if value.kind in (LIST, ROWS) else ""
            self.own(t, Value(name, kind))

    def _case(self, item: Item, which: str, numbers: range, write: Callable[[str, Region], None]) -> None:
        """Writes branches of a `Case` as nested halves.

        A chain of `elif` would be slower. Python's compiler recurses at each `elif` and fails at a few hundred.

        Args:
          item: The `Case`.
          which: The name of the variable with the number of the branch.
          numbers: The branches to write.
          write: Writes a header and a branch.
        """
        if len(numbers) <= thresholds.ELIF_CHAIN:
            for i in numbers:
                header = f"{'if' if i == numbers[0] else 'elif'} {which} == {i}:"
                write("else:" if i == numbers[-1] and len(numbers) > 1 else header, item.regions[i])
            return
        middle = len(numbers) // 2
        for header, half in ((f"if {which} < {numbers[middle]}:", numbers[:middle]), ("else:", numbers[middle:])):
            self.out.line(header, item.op)
            self.out.indent()
            self._case(item, which, half, write)
            self.out.dedent()

    def _branch(self, item: Item, region: Region, names: Sequence[str], old: Collection[Tensor]) -> list[Value]:
        """Writes one branch of a conditional, which assigns its results to `names`.

        Args:
          item: The conditional.
          region: The region of the branch.
          names: The names of the results.
          old: Outputs of the conditional whose names hold other values until they are written.

        Returns:
          The values of the results in the branch.
        """
        op, graph = item.op, region.graph
        assert isinstance(graph, FuncGraph)
        self.converted.append({})
        for k in region.params:
            self.alias(graph.params[k], op.inputs[item.offset + k], op)
        for name, t, k in zip(names, region.results, item.live, strict=True):
            mine = {p for p in graph.params if p in self.values and self.values[p].text == name}
            if op.outputs[k] not in old or _is_free(region, t, mine):
                self.wanted.setdefault(t, name)
        self._region(region)
        self._give(dict(zip(names, region.results, strict=True)), op)
        kinds = [self.values[t] for t in region.results]
        self._forget(region)
        self.converted.pop()
        return kinds

    def _forget(self, region: Region) -> None:
        """Releases the names of a region's values, so that outer regions keep them."""
        for item in region.items:
            for t in item.op.outputs:
                self.disown(t)

    # *** loops ***

    def _loop(self, item: Item) -> None:
        op, out = item.op, self.out
        test, inner = item.regions
        cond, loop = test.graph, inner.graph
        assert isinstance(cond, FuncGraph)
        assert isinstance(loop, FuncGraph)
        names: dict[int, str] = {}
        for k in item.variables:
            value = self.values[op.inputs[k]]
            if k == item.counter:
                continue
            names[k] = out.new("v")
            text = self.plain(op.inputs[k], op)
            if self.lists.kind(loop.params[k]) == LIST and value.kind == ROWS:
                text = f"list({text})"
            out.line(f"{names[k]} = {text}", op)
        for k, p in enumerate(loop.params):
            if k not in item.variables and (k in inner.params or k in test.params):
                self.alias(p, op.inputs[k], op)
                self.values[cond.params[k]] = self.values[p]
            elif k in names:
                kind = self.lists.kind(p)
                self.values[p] = self.values[cond.params[k]] = Value(names[k], kind)
        self.converted.append({})
        stop = self._counted_header(item, names) if item.trip_count is not None else self._header(item)
        for k, name in names.items():
            if _is_free(inner, loop.results[k], {loop.params[k]}):
                self.wanted.setdefault(loop.results[k], name)
        self._region(inner)
        self._give({name: loop.results[k] for k, name in names.items()}, op)
        self._forget(inner)
        out.leave_loop()
        self.converted.pop()
        for k in item.live:
            t = op.outputs[k]
            if k in names:
                self.own(t, Value(names[k], self.lists.kind(t)))
            elif k == item.counter:
                name = out.new("t")
                out.line(f"{name} = {self.scalar_type(t)}({stop})", op)
                self.own(t, Value(name))
            else:
                self.share(t, op.inputs[k], op)

    def _header(self, item: Item) -> str:
        """Writes the header of a loop that evaluates its condition in each iteration."""
        op, out = item.op, self.out
        test = item.regions[0]
        number = out.new("n")
        out.line(f"for {number} in {out.bind(runtime.chain, 'f')}({out.bind(runtime.START, 'c')}, run):", op)
        out.enter_loop(SourceLoop(op, number))
        self._region(test)
        t = test.results[0]
        out.line(f"if not {self.truth(t, op)}: break", op)
        self._forget(test)
        return ""

    def _counted_header(self, item: Item, names: Mapping[int, str]) -> str:
        """Writes the header of a loop that only counts; returns the counter's final value."""
        op, out = item.op, self.out
        count = item.trip_count
        assert count is not None
        main = count.bounds[0]
        first = self._integer(main.first, op)
        stops = []
        for b in count.bounds:
            limit = self._integer(b.limit if b.position is not None else self._constant_limit(b.limit), op)
            if b.is_inclusive:
                limit = str(int(limit) + 1) if limit.isdecimal() else f"{limit} + 1"
            if b is not main and b.counter != main.counter:
                limit = f"{first} + {limit} - {self._integer(b.first, op)}"
            stops.append(limit)
        stop = out.new("s") if len(stops) > 1 or not stops[0].isdecimal() else stops[0]
        if stop not in stops:
            out.line(f"{stop} = {'min(' + ', '.join(stops) + ')' if len(stops) > 1 else stops[0]}", op)
        number = out.new("i")
        is_short = stop.isdecimal() and first.isdecimal() and int(stop) - int(first) <= thresholds.FIRST_LOOK
        out.line(f"for {number} in {'range' if is_short else 'run.span'}({first}, {stop}):", op)
        out.enter_loop(SourceLoop(op, number, first, count.most))
        loop = item.regions[1].graph
        assert isinstance(loop, FuncGraph)
        self.values[loop.params[item.counter]] = Value(number, INT, is_natural=first.isdecimal())
        if first.isdecimal() and stop.isdecimal():
            return str(max(int(first), int(stop)))
        return f"max({first}, {stop})"

    def _constant_limit(self, t: Tensor) -> Tensor:
        """Gives a constant of the condition a value in the current region."""
        if t not in self.values:
            self.values[t] = self.constant(constant_value(t))
        return t

    def _integer(self, t: Tensor, op: Operation) -> str:
        """A scalar integer as the text of a Python int: a literal or a variable."""
        known = constant_value(t)
        if known is not None and int(known) >= 0:
            return str(int(known))
        name = self.out.new("s")
        self.out.line(f"{name} = int({self.plain(t, op)})", op)
        return name

    def _give(self, names: Mapping[str, Tensor], op: Operation) -> None:
        """Assigns their next values to the names of loop variables or of a conditional's outputs."""
        pairs = []
        for name, t in names.items():
            self.wanted.pop(t, None)
            text = self.plain(t, op)
            if text != name:
                pairs.append((name, text))
        left = {name for name, _ in pairs}
        if any(text in left for _, text in pairs):
            self.out.line(f"{', '.join(n for n, _ in pairs)} = {', '.join(t for _, t in pairs)}")
        else:
            for name, text in pairs:
                self.out.line(f"{name} = {text}")

    # *** calls ***

    def _call(self, item: Item) -> None:
        op, region = item.op, item.regions[0]
        graph = region.graph
        assert isinstance(graph, FuncGraph)
        given = [graph.params[k] for k in region.params]
        for k in region.params:
            self.share(graph.params[k], op.inputs[item.offset + k], op)
        self._region(region)
        for k, t in zip(item.live, region.results, strict=True):
            self.share(op.outputs[k], t, op)
        self.drop(given)
        self._forget(region)

    def _recursive(self, item: Item) -> None:
        op, out = item.op, self.out
        name = op.attrs["f"].name
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = out.new("function")
            self._define(function, self._regions.functions[name])
        texts = [self.plain(t, op) for t in op.inputs[item.offset :]]
        depth = "depth + 1" if self._in_function else "1"
        limit = flags.CALL_DEPTH.value
        if self._in_function:
            deep = out.bind(runtime.too_deep, "f")
            out.line(f"if depth >= {limit}: raise {deep}({out.bind(op, 'o')}, {limit}, {name!r})", op)
        outputs = []
        for k, t in enumerate(op.outputs):
            if k in item.live:
                outputs.append(out.new("t"))
                self.own(t, Value(outputs[-1]))
            else:
                outputs.append("_")
        target = f"{', '.join(outputs)}{',' if len(outputs) == 1 else ''} = " if outputs else ""
        out.line(f"{target}{function}(run, {depth}{''.join(', ' + t for t in texts)})", op, tuple(texts))

    def _define(self, name: str, region: Region) -> None:
        """Writes a function that calls itself."""
        graph = region.graph
        assert isinstance(graph, FuncGraph)
        converted, self.converted = self.converted, [{}]
        was, self._in_function = self._in_function, True
        params = [self.out.new("p") for _ in graph.params]
        self.out.begin(f"def {name}(run, depth{''.join(', ' + p for p in params)}):")
        for p, t in zip(params, graph.params, strict=True):
            self.values[t] = Value(p)
        self._region(region)
        texts = [self.plain(t, t.op) for t in region.results]
        self.out.line(f"return ({''.join(t + ', ' for t in texts)})")
        self.out.end()
        self._in_function = was
        self.converted = converted

    _in_function = False

    # *** predicates ***

    def truth(self, t: Tensor, op: Operation) -> str:
        """Expression of the predicate `t` for a Python `if`."""
        text = self.plain(t, op)
        if t.dtype.base is dtypes.bool_ and t.shape == ():
            return text
        kernel = op_registry.get("ToBool").kernel
        assert kernel is not None
        return f"{self.out.bind(kernel(np, {}), 'f')}({text})"


def _is_free(region: Region, made: Tensor, old: Set[Tensor]) -> bool:
    """Whether `made` may overwrite the variable of `old` as soon as it is computed.

    That requires that no item reads a tensor of `old` afterwards, and that no alias of one is still to be read.

    Args:
      region: The region.
      made: A tensor that an item of the region may compute.
      old: Parameters of the region that share one variable.
    """
    if sum(t is made for t in region.results) != 1 or any(t in old for t in region.results):
        return False
    at = next((i for i, item in enumerate(region.items) if made in item.op.outputs), None)
    if at is None or region.items[at].kind not in ("", "If", "Case"):
        return False
    for i, item in enumerate(region.items):
        if old.isdisjoint(item.reads):
            continue
        if i > at or item.kind == "Call" or (not item.kind and item.op.opdef.facts.forwards is not None):
            return False
        if item.kind == "While" and any(
            t in old and k in item.live and k not in item.variables for k, t in enumerate(item.op.inputs)
        ):
            return False
    return True
