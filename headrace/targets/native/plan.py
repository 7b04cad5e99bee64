"""Plan of a native region: the memory of its arrays, decided before code is printed.

The plan walks the blocks of the region in the order in which they run, and gives every array

* a *layout*, the distances of its elements along each axis. Slices and transposed arrays are views with the memory of
  their source; all others are contiguous.
* the *storages* that its elements may be in. A storage is a piece of memory of a fixed size. An instruction that
  computes an array has one of its own. A loop variable may be in the storage of its initial value or in one of its two
  homes, and the result of a conditional in that of any branch, so both are only addresses that are chosen when the code
  runs, and no array is copied. A nest writes its result over a large array of the same size that it reads last.

**Loop variables.** The next value is computed into the home that does not hold the current value, and the homes change
places at the end of the iteration. If the next value is made by a nest that is the last reader of the current one, and
reads it element by element, one home is enough; so is it if pieces of the current value are replaced (`Put`).

**Lists.** An array that is read from a list is in the list's memory, unless a later instruction writes to the list. A
list that is made from an array has the array's memory if nothing writes to it. A result that each iteration of a loop
pushes to a list is computed in the list's memory, unless the loop has another use of the list. Rows behind the stack of
a list that is not read any more are put into the list's memory (`room`). So gradients of loops do not copy the values
of all iterations.

**Lifetimes.** The walk numbers the units. A storage is in use from the first definition to the last use of the values
that may be in it. A value that is defined before a loop and used in it is in use until the end of the loop. Storages
whose lifetimes do not overlap may have the same place in memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import thresholds
from headrace.opkit.forms import (
    COPIES,
    Broadcast,
    Concat,
    Extreme,
    Permute,
    Pieces,
    Product,
    Put,
    Reduce,
    Reshape,
    Take,
    Top,
    Window,
    part_shape,
    reads,
)
from headrace.records import record
from headrace.schedule.program import Block, Branches, Call, Compute, Instr, Loop, Value, Variable
from headrace.schedule.select import Constant, ListOperation, Move
from headrace.targets.native import threads
from headrace.targets.native.fusion import Nest, deep_reads
from headrace.targets.native.grown import Dimensions, Front, Repeated, Rows, is_array, is_grown
from headrace.targets.native.rewriting import CrossEntropy
from headrace.targets.native.strips import Strips, Unit, cut_reads, is_total, is_view, reduction, units
from headrace.targets.native.tuples import Unpack

if TYPE_CHECKING:
    from headrace.opkit.forms import Index

#: Distances between the elements along each axis, in elements.
Strides: TypeAlias = tuple[int, ...]

#: Work that writes its results to memory that it is given.
_FILLED: Final = (Dimensions, CrossEntropy)

#: Alignment of storages, in bytes.
ALIGNMENT: Final = 64


@record(eq=False, slots=True)
class Storage:
    """Memory of arrays.

    Attributes:
      bytes: The size; 0 if no value is put there.
      first: The number of the unit that first writes to it.
      last: The number of the last unit that reads it.
      output: The output of the region whose memory it is; -1 if it is none.
      offset: The offset in the block of memory of the region; -1 on the stack.
    """

    bytes: int
    first: int
    last: int = -1
    output: int = -1
    offset: int = -1


@record(eq=False, slots=True)
class Home:
    """Homes of a loop variable.

    Attributes:
      variable: The variable.
      homes: The two storages; the second one has no bytes if the next value is computed in place.
      copies_initial: Whether the initial value is copied to the first home before the loop.
      is_direct: Whether the instruction that makes the next value writes it to a home; else it is copied.
      is_in_place: Whether the next value overwrites the current one.
    """

    variable: Variable
    homes: tuple[Storage, Storage]
    copies_initial: bool
    is_direct: bool = False
    is_in_place: bool = False


Place: TypeAlias = Storage | Home


@record(frozen=True, eq=False, slots=True)
class Divided:
    """Strips that run in parts.

    Attributes:
      each: The number of strips in a part.
      own: Storages with memory for all parts, of results that only strips read; and the bytes of a part.
      totals: Storages with the totals of all parts.
    """

    each: int
    own: dict[Storage, int]
    totals: dict[Value, Storage]


class Plan:
    """Memory of the arrays of a region.

    Args:
      instrs: The instructions of the region.
      inputs: The values that it reads from outside.
      outputs: The values that are read behind it.

    Attributes:
      top: The units of the region.
      units: The units of each block.
      strides: The layouts of arrays.
      places: Where the arrays are put that instructions write.
      homes: The homes of the loop variables that are arrays and vary.
      storages: All storages.
      copied: Results of branches that are copied to the place of their output, by block: pairs of the result's position
        and the place.
      copied_outputs: Outputs of the region that are copied to its memory, by position.
      copies: Storages of copies of operands, by instruction and position.
      divided: The parts of strips with much work.
      borrowed: Lists in the memory of the array that they are made from, or that the caller gives.
      pushed: Arrays that are computed in the memory of a list, with the instruction that pushes each.
      room: Bytes that the list of a stack must have room for, because more rows are put behind its own.
      bytes: The size of the block of memory of the region.
    """

    def __init__(self, instrs: Sequence[Instr], inputs: Iterable[Value], outputs: Sequence[Value]) -> None:
        self.units: dict[Block, list[Unit]] = {}
        self.strides: dict[Value, Strides] = {}
        self.places: dict[Value, Place] = {}
        self.homes: dict[Variable, Home] = {}
        self.storages: list[Storage] = []
        self.copied: dict[Block, list[tuple[int, Place]]] = {}
        self.copies: dict[tuple[Instr, int], Storage] = {}
        self.divided: dict[Strips, Divided] = {}
        self.copied_outputs: list[int] = []
        self.borrowed: set[Value] = set()
        self.room: dict[Instr, int] = {}
        self.pushed: dict[Value, Compute] = {}
        self._in: dict[Value, frozenset[Storage]] = {}
        self._defined: dict[Value, int] = {}
        self._last: dict[Value, int] = {}
        self._used: list[dict[Value, None]] = [{}]  # by open loop
        self._pushes: dict[Value, Compute] = {}  # that may be in `pushed`
        self._listed: set[Value] = set()  # possibly in the memory of a list
        self._results: set[Value] = set(outputs)  # of the region and of blocks inside
        self._now = 0
        self._nests: list[tuple[int, Nest]] = []  # with the numbers of their units
        self._changed = _Changed()
        for v in inputs:
            self._define(v, contiguous(v), frozenset())
            if v.representation == "list" and v not in self._changed.or_results(instrs, self._results):
                self.borrowed.add(v)
        self.top = units(instrs, outputs)
        wanted: dict[Value, Place] = {}
        makers = {v: [unit] for unit in self.top for v in unit.made}
        for k, v in enumerate(outputs):
            if is_array(v) and v.is_static and v not in wanted and is_made_by(makers.get(v, ()), v):
                wanted[v] = self._storage(size_of(v), output=k)
        self._walk(self.top, wanted, instrs)
        self._now += 1
        for k, v in enumerate(outputs):
            if is_array(v) and v.is_static:
                self._use(v)
                place = self.places.get(v)
                if not (isinstance(place, Storage) and place.output == k):
                    self.copied_outputs.append(k)
        self._settle()
        self._overwrite()
        self.bytes = _arrange(self.storages)

    # *** Walk ***

    def _walk(self, found: Sequence[Unit], wanted: dict[Value, Place], instrs: Sequence[Instr]) -> None:
        """Plans the units of a block.

        Args:
          found: The units.
          wanted: The places of values that instructions of the block make.
          instrs: The instructions of the block.
        """
        for unit in found:
            self._now += 1
            if isinstance(unit, Nest):
                self._nests.append((self._now, unit))
                for v in unit.reads:
                    self._use(v)
                for v in unit.stored:
                    self._put(v, wanted)
            elif isinstance(unit, Strips):
                self._strips(unit, wanted)
            elif isinstance(unit, Loop):
                self._loop(unit)
            elif isinstance(unit, Branches):
                self._branches(unit, wanted)
            else:
                for v in unit.inputs:
                    self._use(v)
                if isinstance(unit, Compute):
                    self._compute(unit, wanted, instrs)
                elif isinstance(unit, Call):
                    self._call(unit, wanted)

    def _compute(self, instr: Compute, wanted: dict[Value, Place], instrs: Sequence[Instr]) -> None:
        work = instr.work
        if isinstance(work, Move):
            if isinstance(work.form, Reduce):
                k = work.form.source
                source = instr.inputs[k]
                if source.is_static and not is_same_order(dims(source), self.strides[source]):
                    self._copy_first(instr, k)
            if isinstance(work.form, Take | Put):
                self._positions(instr, work.form)
            if isinstance(work.form, Window | Top):
                for k in reads(work.form):
                    if not is_same_order(dims(instr.inputs[k]), self.strides[instr.inputs[k]]):
                        self._copy_first(instr, k)
            for i, v in enumerate(instr.outputs):
                if v is None or not is_array(v):
                    continue
                layout = self._view(instr, i)
                if isinstance(work.form, Concat) and self._extends(instr, work.form, v, wanted, instrs):
                    self._define(v, contiguous(v), frozenset(), True)
                elif layout is None:
                    self._put(v, wanted)
                    if isinstance(work.form, Product):
                        self._operands(instr)
                else:
                    source = instr.inputs[work.form.source]  # type: ignore[union-attr]
                    self._define(v, layout, self._in.get(source, frozenset()), source in self._listed)
        elif isinstance(work, _FILLED):
            for v in instr.made:
                self._put(v, wanted)
        elif isinstance(work, Unpack):
            for v in instr.made:
                if is_array(v):
                    self._define(v, contiguous(v), frozenset())
        elif isinstance(work, Repeated):
            self._put(instr.made[0], wanted)
        elif isinstance(work, (Front, Rows)):
            source, (out,) = instr.inputs[0], instr.made
            if isinstance(work, Front):
                self._define(out, self.strides[source], self._in.get(source, frozenset()), source in self._listed)
            elif self.strides[source] == contiguous(source):
                self._define(out, contiguous(out), self._in.get(source, frozenset()), source in self._listed)
            else:  # a copy
                self._put(out, wanted)
        elif isinstance(work, Constant):
            for v in instr.made:
                if is_array(v):
                    self._define(v, contiguous(v), frozenset())
        elif isinstance(work, ListOperation):
            for v in instr.made:
                if v.representation == "rows":
                    self._same(v, instr.inputs[0])
                elif is_array(v):
                    self._element(instr, work, v, wanted, instrs)
                elif work.role.kind == "from_tensor":
                    self._list_of_rows(instr, v, instrs)

    def _call(self, call: Call, wanted: dict[Value, Place]) -> None:
        """Plans the memory of results of a call.

        Arguments that are not in row-major order are copied.
        """
        for k, v in enumerate(call.inputs):
            if is_array(v) and not is_same_order(dims(v), self.strides[v]):
                self._copy_first(call, k)
        for v in call.made:
            self._put(v, wanted)

    def _list_of_rows(self, instr: Compute, v: Value, instrs: Sequence[Instr]) -> None:
        """Plans a list that is made from an array.

        It has the memory of the array if no element is written, and if it ends with the block, in whose next iteration
        the array may have other elements, and behind which its memory may be used again.
        """
        rows = instr.inputs[0]
        if self.strides[rows] != contiguous(rows):
            return
        if v not in self._changed.or_results(instrs, self._results):
            self.borrowed.add(v)
            self._define(v, (), self._in[rows], rows in self._listed)

    def _extends(
        self, instr: Compute, form: Concat, v: Value, wanted: dict[Value, Place], instrs: Sequence[Instr]
    ) -> bool:
        """Plans rows behind a stack in the memory of a list that ends there.

        Gradients of loops need the values of all iterations and the one behind the last.
        """
        first = instr.inputs[form.sources[0]]
        if form.axis != 0 or form.is_new or v in wanted or not v.is_static or first not in self._listed:
            return False
        stack = next((i for i in instrs if first in i.made), None)
        if not isinstance(stack, Compute) or not isinstance(stack.work, ListOperation) or stack in self.room:
            return False
        this = stack.inputs[0]
        if stack.work.role.kind != "stack" or this.representation != "list" or this in self._in:
            return False
        if any(this in deep_reads(later) for later in instrs[instrs.index(stack) + 1 :]):
            return False
        self.room[stack] = size_of(v)
        return True

    def _strips(self, strips: Strips, wanted: dict[Value, Place]) -> None:
        """Plans whole arrays, and memory of one strip for results that only strips read."""
        for v in strips.reads:
            self._use(v)
        made = set(strips.made)
        whole = strips.rows // strips.height
        each = threads.divided(whole, strips.cost)
        parts = -(-whole // each)
        divided = Divided(each, {}, {})
        if parts > 1:
            self.divided[strips] = divided
        for part in strips.parts:
            if not isinstance(part, Nest):
                (source,) = cut_reads(part)
                if is_view(part):
                    for v in part.made:
                        self._define(v, contiguous(v), self._in[source], source in self._listed)
                    continue
                if source not in made and not is_same_order(dims(source), self.strides[source]):
                    self._copy_first(part, reduction(part).source)
            if is_total(part) and parts > 1:
                for v in part.made:
                    divided.totals[v] = self._storage(parts * size_of(v), self._now)
                    divided.totals[v].last = self._now
            for v in part.stored if isinstance(part, Nest) else part.made:
                if v in strips.kept or is_total(part):
                    self._put(v, wanted)
                elif is_array(v):
                    size = -(-size_of(v) // strips.rows * strips.height // ALIGNMENT) * ALIGNMENT
                    self.places[v] = place = self._storage(parts * size, self._now)
                    self._define(v, contiguous(v), frozenset((place,)))
                    divided.own[place] = size

    def _operands(self, instr: Compute) -> None:
        """Plans copies of the inputs of a product that are not regular."""
        if instr.made[0].dtype.is_complex:  # `complex_products` copies them
            return
        for k, v in enumerate(instr.inputs[:2]):
            if v.is_static and matrix_rows((v.shape or ())[-2:], self.strides[v][-2:]) is None:
                self._copy_first(instr, k)
        for k, v in enumerate(instr.inputs[2:], 2):  # an addend
            if self.strides[v] != contiguous(v):
                self._copy_first(instr, k)

    def _positions(self, instr: Compute, form: Take | Put) -> None:
        """Plans copies of positions and pieces that are not in row-major order."""
        for k in (form.at.source, *((form.source,) if isinstance(form, Put) and form.at.shape else ())):
            v = instr.inputs[k]
            if is_array(v) and k in reads(form) and not is_same_order(dims(v), self.strides[v]):
                self._copy_first(instr, k)

    def _copy_first(self, instr: Instr, k: int) -> None:
        """Plans a copy of input `k`."""
        self.copies[instr, k] = self._storage(size_of(instr.inputs[k]), self._now)
        self.copies[instr, k].last = self._now

    def _element(
        self, instr: Compute, work: ListOperation, v: Value, wanted: dict[Value, Place], instrs: Sequence[Instr]
    ) -> None:
        """Plans an array that is read from a list."""
        this, kind = instr.inputs[0], work.role.kind
        if this.representation == "rows" and kind == "get":
            self._define(v, self.strides[this][1:], self._in[this], this in self._listed)
            return
        if this.representation == "rows" and kind == "stack":
            self._same(v, this)
            return
        changed = self._changed.behind(instrs, instr) if kind == "stack" else self._changed.of(instrs)
        if v not in wanted and this not in changed:
            self._define(v, contiguous(v), self._in.get(this, frozenset()), True)
        else:
            self._put(v, wanted)

    def is_on_stack(self, v: Value) -> bool:
        """Whether an array may be on the stack of the region's function."""
        return any(s.offset < 0 and s.output < 0 for s in self._in[v])

    def stack_is_view(self, instr: Compute) -> bool:
        """Whether a stack of unknown length has the memory of its list."""
        return instr.made[0] in self._listed

    def _view(self, instr: Compute, i: int) -> Strides | None:
        """The layout of output `i` as a view; None if it is no view."""
        assert isinstance(instr.work, Move)
        form = instr.work.form
        if isinstance(form, Broadcast):
            source = instr.inputs[form.source]
            strides = self.strides[source] if is_array(source) else ()
            return spread(dims(source), strides, len(form.shape))
        if isinstance(form, Take) and not form.at.shape:
            whole, (out,) = instr.inputs[form.source], instr.made
            strides = piece(dims(whole), self.strides[whole], form.index)[1]
            return reshaped(part_shape(dims(whole), form.index), strides, dims(out))
        if not isinstance(form, (Reshape, Pieces, Permute)) or (isinstance(form, Permute) and form.is_contiguous):
            return None
        source = instr.inputs[form.source]
        if not is_array(source):
            return None
        strides = self.strides[source]
        if isinstance(form, Permute):
            return tuple(strides[a] for a in form.axes)
        if isinstance(form, Pieces):
            index = form.indices[i]
            if source.is_static:
                return piece(dims(source), strides, index)[1]
            return (-strides[0] if is_turned(index) else strides[0], *piece(dims(source), strides[1:], index[1:])[1])
        return reshaped(dims(source), strides, form.shape)

    def _loop(self, loop: Loop) -> None:
        start = self._now
        for v in fixed_reads(loop):
            self._use(v)
        homes: list[Home] = []
        for variable in loop.variables:
            initial, param = variable.initial, variable.param
            if not is_array(param) or param.representation == "rows":
                self._same(param, initial)
                continue
            self._use(initial)
            if variable.next is param:
                self._define(param, self.strides[initial], self._in[initial], initial in self._listed)
                continue
            home = Home(
                variable,
                (self._storage(size_of(param), start), self._storage(size_of(param), start)),
                self.strides[initial] != contiguous(initial),
            )
            self.homes[variable] = home
            homes.append(home)
            before = frozenset() if home.copies_initial else self._in[initial]
            self._define(param, contiguous(param), before | set(home.homes), initial in self._listed)
        self._results.update(loop.body.results)
        self._used.append({})
        if loop.test is not None:
            self.units[loop.test] = units(loop.test.instrs, loop.test.results)
            self._walk(self.units[loop.test], {}, loop.test.instrs)
        body = loop.body
        found = self.units[body] = units(body.instrs, body.results)
        wanted: dict[Value, Place] = {}
        for home in homes:
            following = home.variable.next
            if following not in wanted and is_made_by(found, following):
                wanted[following] = home
        self._pushes |= {v: push for v, push in _pushes(body, found).items() if v not in wanted}
        self._walk(found, wanted, body.instrs)
        self._now += 1
        for home in homes:
            home.is_direct = self.places.get(home.variable.next) is home
            if not home.is_direct:
                self._use(home.variable.next)
        for home in homes:
            home.is_in_place = home.is_direct and self._is_in_place(home, found, start)
            if home.is_in_place:
                home.homes[1].bytes = 0
        self._now += 1
        for v in self._used.pop():
            if self._defined.get(v, start) < start:
                self._use(v)
        for home in homes:
            for storage in home.homes:
                storage.last = self._now
        for variable in loop.variables:
            if variable.param in self._in:
                self._use(variable.param)  # in the last iteration
            final = variable.final
            if final is not None:
                self._same(final, variable.param)
                self._defined[final] = self._now

    def _is_in_place(self, home: Home, found: Sequence[Unit], start: int) -> bool:
        """Whether the unit that makes the next value may overwrite the current one."""
        following, param = home.variable.next, home.variable.param
        if not any(_overwrites(unit, home.variable) for unit in found):
            return False
        at = self._defined[following]
        shape = dims(following)
        for v, storages in self._in.items():
            if home.homes[0] not in storages or v is following:
                continue
            last = self._last.get(v, -1)
            if last > at or (last == at and (v is not param or dims(v) != shape)):
                return False
        return True

    def _branches(self, instr: Branches, wanted: dict[Value, Place]) -> None:
        self._use(instr.inputs[0])
        outputs = [v for v in instr.outputs if v is not None]
        for block in instr.branches:
            found = self.units[block] = units(block.instrs, block.results)
            self._results.update(block.results)
            inner: dict[Value, Place] = {}
            for v, result in zip(outputs, block.results, strict=True):
                if v in wanted and result not in inner and is_made_by(found, result):
                    inner[result] = wanted[v]
            self._walk(found, inner, block.instrs)
            self._now += 1
            for result in block.results:
                self._use(result)
        end = self._now
        for k, v in enumerate(outputs):
            results = [block.results[k] for block in instr.branches]
            if not is_array(v):
                if any(r in self._in for r in results):
                    self._define(v, (), frozenset().union(*(self._in.get(r, frozenset()) for r in results)), True)
                continue
            place = wanted.get(v)
            if place is None and any(self.strides[r] != contiguous(r) or r in self._listed for r in results):
                place = self._storage(size_of(v), min(self._defined.get(r, end) for r in results))
            if place is None:
                self._define(v, contiguous(v), frozenset().union(*(self._in[r] for r in results)))
                continue
            for block, r in zip(instr.branches, results, strict=True):
                if self.places.get(r) is not place:
                    self.copied.setdefault(block, []).append((k, place))
            self.places[v] = place
            self._define(v, contiguous(v), frozenset(place_storages(place)))

    # *** Values ***

    def _define(self, v: Value, strides: Strides, storages: frozenset[Storage], is_listed: bool = False) -> None:
        self.strides[v], self._in[v], self._defined[v] = strides, storages, self._now
        if is_listed:
            self._listed.add(v)

    def _same(self, v: Value, other: Value) -> None:
        if is_array(other) or other in self._in:
            self._use(other)
            self._define(v, self.strides[other], self._in[other], other in self._listed)

    def _put(self, v: Value, wanted: dict[Value, Place]) -> None:
        """Plans an array that an instruction writes."""
        if not is_array(v):
            return
        if not v.is_static:  # memory of its own, allocated where it is defined
            self._define(v, contiguous(v), frozenset())
            return
        if v in self._pushes:
            self.pushed[v] = self._pushes[v]
            self.places[v] = Storage(0, self._now)
            self._define(v, contiguous(v), frozenset(), True)
            return
        place = wanted.get(v)
        if place is None:
            place = self._storage(size_of(v), self._now)
        self.places[v] = place
        self._define(v, contiguous(v), frozenset(place_storages(place)))

    def _use(self, v: Value) -> None:
        if v not in self.strides and v.storage == "constant" and is_array(v):
            self._define(v, contiguous(v), frozenset())
        self._last[v] = self._now
        self._used[-1][v] = None
        if len(self._used) > 1:
            for used in self._used[:-1]:
                used[v] = None

    def _storage(self, size: int, first: int = 0, output: int = -1) -> Storage:
        made = Storage(size, first, output=output)
        self.storages.append(made)
        return made

    def _settle(self) -> None:
        """Computes the lifetimes of storages from those of values."""
        for v, storages in self._in.items():
            for storage in storages:
                storage.first = min(storage.first, self._defined[v])
                storage.last = max(storage.last, self._last.get(v, self._defined[v]), self._defined[v])

    def _overwrite(self) -> None:
        """Joins storages of nests' results with those that are read there last, element by element.

        Small storages are left apart: LLVM keeps more of them in registers if they are not the same memory.
        """
        held: dict[Storage, list[Value]] = {}
        for v, storages in self._in.items():
            for storage in storages:
                held.setdefault(storage, []).append(v)
        joined: dict[Storage, Storage] = {}
        for now, nest in self._nests:
            for v in nest.stored:
                made = self.places.get(v)
                if not isinstance(made, Storage) or not self._is_made_at(made, now):
                    continue
                for read in nest.reads:
                    for ending in self._in.get(read, ()):
                        old = joined.get(ending, ending)
                        if self._ends_at(old, now, nest, held[old], made):
                            old.last, made.bytes = made.last, 0
                            joined[made] = old
                            held[old] = held[old] + held[made]
                            break
                    if made in joined:
                        break
        self.storages = [s for s in self.storages if s not in joined]
        if joined:
            for v, place in self.places.items():
                if isinstance(place, Storage):
                    self.places[v] = joined.get(place, place)
            for v, storages in self._in.items():
                self._in[v] = frozenset([joined.get(s, s) for s in storages])
            for block, copies in self.copied.items():
                self.copied[block] = [(k, joined.get(p, p) if isinstance(p, Storage) else p) for k, p in copies]

    def _is_made_at(self, storage: Storage, now: int) -> bool:
        """Whether a large storage is first written by unit `now` and is the region's own."""
        return storage.first == now and storage.output < 0 and storage.bytes > thresholds.NATIVE_STACK_EACH

    def _ends_at(self, old: Storage, now: int, nest: Nest, held: Iterable[Value], made: Storage) -> bool:
        """Whether `nest` is the last reader of a storage, element by element."""
        if old.last != now or old.first == now or old.output >= 0 or old.bytes != made.bytes:
            return False
        ending = [v for v in held if self._last.get(v) == now]
        return all(v.is_static and dims(v) == nest.shape and self.strides[v] == contiguous(v) for v in ending)


def _pushes(body: Block, found: Sequence[Unit]) -> dict[Value, Compute]:
    """Arrays that a loop makes and pushes to a list without other uses."""
    lists = Counter(v for instr in body.instrs for v in deep_reads(instr) if v.representation == "list")
    made = {v for unit in found if isinstance(unit, Nest | Compute) for v in unit.made}
    out: dict[Value, Compute] = {}
    for instr in body.instrs:
        if isinstance(instr, Compute) and isinstance(instr.work, ListOperation) and instr.work.role.kind == "push":
            this, v = instr.inputs[:2]
            if lists[this] == 1 and is_array(v) and v.is_static and v in made and v not in body.results:
                out.setdefault(v, instr)
    return out


class _Changed:
    """Lists that blocks change, as values."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Instr | str], set[Value]] = {}

    def of(self, instrs: Sequence[Instr]) -> set[Value]:
        """The lists to which the instructions or their blocks write elements."""
        return self._closed((id(instrs), ""), instrs, ())

    def behind(self, instrs: Sequence[Instr], instr: Instr) -> set[Value]:
        """The lists to which the instructions behind `instr` write elements."""
        return self._closed((id(instrs), instr), instrs[instrs.index(instr) + 1 :], ())

    def or_results(self, instrs: Sequence[Instr], results: Iterable[Value]) -> set[Value]:
        """The lists of `of`, and those that are results under some name."""
        return self._closed((id(instrs), "results"), instrs, results)

    def _closed(self, key: tuple[int, Instr | str], instrs: Sequence[Instr], also: Iterable[Value]) -> set[Value]:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = set(also)
            joined: list[tuple[Value, Value]] = []
            self._collect(instrs, found, joined)
            size = -1
            while size != len(found):
                size = len(found)
                for a, b in joined:
                    if a in found or b in found:
                        found.update((a, b))
        return found

    def _collect(self, instrs: Iterable[Instr], found: set[Value], joined: list[tuple[Value, Value]]) -> None:
        for instr in instrs:
            if isinstance(instr, Compute) and isinstance(instr.work, ListOperation):
                if instr.work.role.changes and instr.work.role.kind != "pop":
                    found.update(v for v in instr.inputs if v.representation == "list")  # also one that moves into it
            elif isinstance(instr, Loop):
                for v in instr.variables:
                    if v.param.representation == "list":
                        joined += [(v.initial, v.param), (v.param, v.next)]
                        joined += [(v.param, v.final)] if v.final is not None else []
            elif isinstance(instr, Branches):
                for block in instr.branches:
                    pairs = zip(instr.made, block.results, strict=True)
                    joined += [(v, r) for v, r in pairs if v.representation == "list"]
            for block in instr.blocks:
                self._collect(block.instrs, found, joined)


# *** Layouts ***


def dims(v: Value) -> tuple[int, ...]:
    """The static shape of an array."""
    assert v.shape is not None
    return tuple([d for d in v.shape if d is not None])


def size_of(v: Value) -> int:
    """The bytes of an array."""
    return math.prod(dims(v)) * v.dtype.numpy.itemsize


def contiguous(v: Value) -> Strides:
    """The layout in row-major order."""
    if v.representation == "rows" or not (v.is_static or is_grown(v)):
        return ()
    return row_major([1 if d is None else d for d in v.shape or ()])


def spread(shape: Sequence[int | str], strides: Strides, rank: int) -> Strides:
    """The layout of an array that is broadcast to a shape of `rank` dimensions."""
    return (*(0,) * (rank - len(shape)), *(0 if d == 1 else s for d, s in zip(shape, strides, strict=True)))


def row_major(shape: Sequence[int | str]) -> Strides:
    """The layout of a shape in row-major order.

    The first dimension has no effect and may be unknown.
    """
    out = []
    size = 1
    for d in reversed(shape):
        out.append(size)
        size *= d if isinstance(d, int) else 1
    return tuple(reversed(out))


def matrix_rows(shape: Sequence[int | str | None], strides: Strides) -> tuple[bool, int] | None:
    """Storage of a matrix in row-major order.

    Args:
      shape: Its shape; the number of rows may be unknown.
      strides: Its layout.

    Returns:
      Whether it is stored as the transposed matrix, and the distance of the rows as they are stored; None if it is
      regular along neither axis.
    """
    (r, c), (down, right) = shape, strides
    assert isinstance(c, int)
    if (c == 1 or right == 1) and (r == 1 or down >= c):
        return False, c if r == 1 else down
    if isinstance(r, int) and (r == 1 or down == 1) and (c == 1 or right >= r):
        return True, r if c == 1 else right
    return None


def is_same_order(shape: Sequence[int], strides: Strides) -> bool:
    """Whether elements are in row-major order without gaps."""
    return all(d == 1 or s == wanted for d, s, wanted in zip(shape, strides, row_major(shape), strict=True))


def piece(shape: Sequence[int], strides: Strides, index: Index) -> tuple[int, Strides]:
    """The offset and the layout of a piece of an array, in elements."""
    offset = 0
    axes = iter(zip(shape, strides, strict=True))
    kept: list[tuple[int, int] | None] = []  # size and stride; None: a new axis
    for part in index:
        if part is None:
            kept.append(None)
            continue
        d, stride = next(axes)
        if isinstance(part, int):
            offset += (part % d) * stride
            continue
        first, _, step = part.indices(d)
        offset += first * stride
        kept.append((len(range(d)[part]), step * stride))
    out: list[int] = []
    after = 1  # the stride of a new axis is that of a contiguous array
    for axis in reversed([*kept, *axes]):
        out.append(after if axis is None else axis[1])
        after = after if axis is None else axis[0] * axis[1]
    return offset, tuple(reversed(out))


def is_turned(index: Index) -> bool:
    """Whether a piece with all rows of an array has them in reverse order."""
    return isinstance(index[0], slice) and index[0].step == -1


def reshaped(shape: Sequence[int], strides: Strides, target: Sequence[int]) -> Strides | None:
    """The layout of an array in another shape; None if it is not regular there."""
    old = [(d, s) for d, s in zip(shape, strides, strict=True) if d != 1]
    out: list[int] = []
    i = 0
    waiting = [d for d in target if d != 1]
    j = 0
    while i < len(old):
        count, i0 = old[i][0], i
        i += 1
        wanted, j0 = waiting[j], j
        j += 1
        while count != wanted:
            if count < wanted:
                if old[i - 1][1] != old[i][0] * old[i][1]:
                    return None
                count *= old[i][0]
                i += 1
            else:
                wanted *= waiting[j]
                j += 1
        stride = old[i - 1][1]
        part = []
        for d in reversed(waiting[j0:j]):
            part.append(stride)
            stride *= d
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(i0, i - 1)):
            return None
        out.extend(reversed(part))
    found = iter(out)
    return tuple([next(found) if d != 1 else 0 for d in target])


# *** Reads and places ***


def is_made_by(found: Sequence[Unit], v: Value) -> bool:
    """Whether a unit writes the array `v` to memory that it is given."""
    for unit in found:
        if isinstance(unit, Nest):
            if v in unit.made:
                return True
        elif isinstance(unit, Strips):
            if is_made_by(unit.parts, v):
                return True
        elif v in unit.made:
            if isinstance(unit, Branches | Call) or (isinstance(unit, Compute) and isinstance(unit.work, _FILLED)):
                return True
            if isinstance(unit, Compute) and isinstance(unit.work, Move):
                form = unit.work.form
                return isinstance(form, (*COPIES, Put, Extreme)) or (
                    form.is_contiguous if isinstance(form, Permute) else isinstance(form, Take) and bool(form.at.shape)
                )
            is_joined = isinstance(unit, Compute) and isinstance(unit.work, ListOperation) and unit.work.role.joins
            return is_joined and unit.inputs[0].representation == "list" and v.is_static
    return False


def _overwrites(unit: Unit, variable: Variable) -> bool:
    """Whether a unit may compute the next value in the memory of the current one."""
    if isinstance(unit, Nest):
        return variable.next in unit.stored
    if not isinstance(unit, Compute) or not isinstance(unit.work, Move) or variable.next not in unit.made:
        return False
    form = unit.work.form
    return isinstance(form, Put) and form.base is not None and unit.inputs[form.base] is variable.param


def fixed_reads(loop: Loop) -> list[Value]:
    """The values that a loop reads before its first iteration, except initial values."""
    if loop.trip is None:
        return []
    return [loop.trip.first, *(v for limit in loop.trip.limits for v in (limit.first, limit.limit))]


def place_storages(place: Place) -> tuple[Storage, ...]:
    """The storages that a place may stand for."""
    return (place,) if isinstance(place, Storage) else place.homes


def _arrange(storages: Collection[Storage]) -> int:
    """Sets the offsets of storages; returns the size of the block that contains them."""
    placed: list[Storage] = []
    on_stack = total = 0
    for s in sorted(storages, key=lambda s: (-s.bytes, s.first)):
        if s.output >= 0 or not s.bytes:
            continue
        if s.bytes <= thresholds.NATIVE_STACK_EACH and on_stack + s.bytes <= thresholds.NATIVE_STACK_ALL:
            on_stack += s.bytes
            continue
        taken = sorted((p.offset, p.offset + p.bytes) for p in placed if p.first <= s.last and s.first <= p.last)
        at = 0
        for low, high in taken:
            if at + s.bytes <= low:
                break
            at = max(at, -(-high // ALIGNMENT) * ALIGNMENT)
        s.offset = at
        placed.append(s)
        total = max(total, at + s.bytes)
    return total
