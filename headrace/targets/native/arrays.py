"""Printing of instructions on arrays: nests of loops, copies and views."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import thresholds
from headrace.errors import HeadraceInternalError
from headrace.opkit.forms import (
    Broadcast,
    Concat,
    Embed,
    OneHot,
    Permute,
    Pieces,
    Product,
    Reduce,
    Reshape,
    Tile,
)
from headrace.schedule.program import Compute, Instr, Value
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import Map, Move
from headrace.targets.native import scalars, state, threads
from headrace.targets.native.addends import AddedProduct
from headrace.targets.native.complex_sums import as_parts, sum_of_parts
from headrace.targets.native.costs import Costs
from headrace.targets.native.fusion import Nest
from headrace.targets.native.grown import Dimensions, Front, Repeated, Rows, is_array, is_grown, row_size
from headrace.targets.native.held import Array, Held, Items, Number
from headrace.targets.native.interleaving import vectors_in_turns
from headrace.targets.native.plan import (
    Divided,
    Home,
    Plan,
    Storage,
    contiguous,
    dims,
    is_turned,
    matrix_rows,
    piece,
    reshaped,
    row_major,
    size_of,
    spread,
)
from headrace.targets.native.products import product
from headrace.targets.native.reductions import combination, reduce
from headrace.targets.native.registers import of_host
from headrace.targets.native.repeats import Repeats, nest_key
from headrace.targets.native.rewriting import Division
from headrace.targets.native.strips import cut_reads, is_total, is_view, reduction
from headrace.targets.native.transposes import transpose, turned_matrix

if TYPE_CHECKING:
    from headrace.opkit.forms import Index
    from headrace.targets.native.llvm_text import Function, Module
    from headrace.targets.native.strips import Strips


class ArrayPrinter:
    """Prints nests, movements and products; part of `printer.Printer`."""

    module: Module
    f: Function
    plan: Plan
    values: dict[Value, Held]
    access: str
    has_parts: bool
    needed: dict[Compute, str]
    array: Callable[[Value], Array]
    number: Callable[[Value], str]
    held: Callable[[Value], Held]
    place_of: Callable[[Value], Array]
    addresses: dict[Storage, str]
    address: Callable[[Storage | Home], str]
    fail_if: Callable[..., None]
    index: Callable[[Value], str]
    repeats: Repeats
    _loops: list[Any]
    own_block: Callable[[str, str], None]
    copied_rows: Callable[[Array], tuple[str, str, str]]

    @property
    def empty(self) -> str:
        """An empty metadata node."""
        found: str | None = getattr(self, "_empty", None)
        if found is None:
            found = self._empty = self.module.metadata("!{}")
        return found

    # *** Nests of loops ***

    def nest(self, nest: Nest, places: Mapping[Value, Array] | None = None) -> None:
        """Prints maps of one shape as one nest of loops.

        Args:
          nest: The nest.
          places: The memory of its results; None for that of the plan.
        """
        for m in nest.maps:
            self.check_divisor(m)
        rank = len(nest.shape)
        length = self._length_of(nest) if None in nest.shape else ""
        shape: list[int | str] = [length if d is None else d for d in nest.shape]
        reads: dict[Value, Sequence[int | str]] = {}
        arrays: dict[Value, Array] = {}
        for v in nest.reads:
            held = self.held(v)
            if isinstance(held, Array) and _splat(v) is not None:
                self.values.setdefault(v, held)
                arrays[v] = held
                reads[v] = (0,) * rank
            elif isinstance(held, Array):
                arrays[v] = held
                reads[v] = self._spread(held, length, rank)
        if places is not None:
            targets = dict(places)
        else:
            targets = {v: self._grown(v, length) if length else self.place_of(v) for v in nest.stored}
        layouts: list[Sequence[int | str]] = [*reads.values(), *(t.strides for t in targets.values())]
        numbers: dict[Value, str] = {}
        for v in nest.reads:
            if v not in arrays:
                numbers[v] = self.number(v)

        def element(at: Sequence[str]) -> None:
            known = dict(numbers)
            for (v, held), offset in zip(arrays.items(), at, strict=False):
                splat = _splat(v)
                if splat is not None:
                    known[v] = splat
                else:
                    known[v] = self.load(held, offset)
            for m in nest.maps:
                (out,) = m.made
                assert isinstance(m.work, Map)
                texts = [known[v] for v in m.inputs]
                known[out] = scalars.expression(self.f, m.work.expression, texts, [v.dtype.numpy for v in m.inputs])
            for (v, target), offset in zip(targets.items(), at[len(arrays) :], strict=True):
                self.store(target, known[v], offset)

        self.values.update(targets)
        vectors = vectors_in_turns(nest, of_host().count)
        cost = sum(map(Costs().instr, nest.maps))
        outermost = next((count for count, symbol in collapsed(shape, layouts)[0] if not symbol), 1)
        each = outermost if length or places is not None else threads.divided(outermost, cost)
        captured = [("ptr", a.pointer) for a in (*arrays.values(), *targets.values())]
        captured += [(scalars.register_type(v.dtype.numpy), text) for v, text in numbers.items()]

        def rename(given: Sequence[str]) -> None:
            inside = iter(given)
            for held in (arrays, targets):
                held.update({v: dataclasses.replace(a, pointer=next(inside)) for v, a in held.items()})
            numbers.update(zip(numbers, inside, strict=True))

        def whole(g: Function, given: Sequence[str]) -> None:
            rename(given)
            outer, self.f = self.f, g
            self.each(shape, layouts, element, vectors=vectors)
            self.f = outer

        key = nest_key(nest), tuple(map(tuple, layouts)), tuple(map(_splat, arrays))
        if each == outermost:
            may_repeat = not length and places is None
            if not (may_repeat and self.repeats.call(self.f, key, captured, whole, bool(self._loops))):
                self.each(shape, layouts, element, vectors=vectors)
            return

        def part(g: Function, given: Sequence[str], number: str) -> None:
            rename(given)
            outer, self.f = self.f, g
            self.each(shape, layouts, element, vectors=vectors, part=(number, each))
            self.f = outer

        self.has_parts = True
        parts, of_part = -(-outermost // each), round(cost * each / outermost)
        self.repeats.run_parts(self.f, key, captured, parts, of_part, part)

    def strips(self, strips: Strips) -> None:
        """Prints nests and reductions as a loop over strips of rows.

        Much work runs in parts of several strips.
        """
        whole: dict[Value, Array] = {}  # that a strip reads its rows of, or writes
        totals: dict[Value, Array] = {}
        forms: dict[Value, Reduce] = {}
        for part in strips.parts:
            for v in part.made:
                if v in strips.kept and not is_total(part) and not is_view(part):
                    whole[v] = self.place_of(v)
            if not isinstance(part, Nest) and not is_view(part):
                form = reduction(part)
                source = part.inputs[form.source]
                if (part, form.source) in self.plan.copies:
                    self.values[source] = self.copied(part, form.source)
                if is_total(part):
                    (out,) = part.made
                    forms[out] = form
                    totals[out] = self._target(out)
                    self._fill(totals[out], form.ufunc)
        divided = self.plan.divided.get(strips)
        for first, stop, height in strips.strips():
            if divided is not None and first == 0:
                self._divided(strips, divided, whole, totals, forms)
                continue
            with self.f.loop(str(first), str(stop), height) as row:
                self._strip(strips, whole, totals, row, height)
        self.values.update(whole)
        for v, total in totals.items():
            self._divide(total, forms[v])
            self.define(v, total)
        for part in strips.parts:
            if isinstance(part, Compute) and is_view(part) and part.made[0] in strips.kept:
                self.move(part)

    def _divided(
        self,
        strips: Strips,
        divided: Divided,
        whole: Mapping[Value, Array],
        totals: Mapping[Value, Array],
        forms: Mapping[Value, Reduce],
    ) -> None:
        """Prints the strips of full height in parts, each with totals of its own."""
        _, stop, height = next(strips.strips())
        rows = divided.each * height
        parts = -(-stop // rows)
        each = {
            v: Array(self.address(divided.totals[v]), total.dtype, (parts, math.prod(total.dims)), ())
            for v, total in totals.items()
        }
        own = {storage: self.address(storage) for storage in divided.own}
        read = {v: self.held(v) for v in strips.reads}

        def body(g: Function, given: Sequence[str], number: str) -> None:
            outer, kept, self.f = self.f, dict(self.values), g
            inside = iter(given)
            for v, held in read.items():
                self.values[v] = _renamed(held, next(inside))
            mine = {v: dataclasses.replace(a, pointer=next(inside)) for v, a in whole.items()}
            found = {}
            for v, all_parts in each.items():
                at = self._advanced("0", number, all_parts.dims[1])
                start = self.at(dataclasses.replace(all_parts, pointer=next(inside)), at)
                found[v] = dataclasses.replace(totals[v], pointer=start)
                self._fill(found[v], forms[v].ufunc)
            for storage, size in divided.own.items():
                offset = g.op(f"mul nuw nsw i64 {number}, {size}")
                self.addresses[storage] = g.op(f"getelementptr inbounds i8, ptr {next(inside)}, i64 {offset}", "own")
            first, end = self._range(number, rows, stop)
            with g.loop(first, end, height) as row:
                self._strip(strips, mine, found, row, height)
            self.values.clear()
            self.values.update(kept)
            self.addresses.update(own)
            self.f = outer

        captured = list(map(_captured, read.values()))
        captured += [("ptr", p) for p in (*[a.pointer for a in (*whole.values(), *each.values())], *own.values())]
        self.has_parts = True
        threads.each_part(self.f, parts, captured, round(strips.cost / parts), body, "stopped")
        for v, all_parts in each.items():
            self._accumulate(totals[v], all_parts, dataclasses.replace(forms[v], axes=(0,)))

    def _strip(
        self, strips: Strips, whole: Mapping[Value, Array], totals: Mapping[Value, Array], row: str, height: int
    ) -> None:
        """Prints the parts of strips for `height` rows from `row` on."""
        made = set(strips.made)
        kept = dict(self.values)

        def cut(array: Array) -> Array:
            pointer = self.at(array, self._advanced("0", row, array.strides[0]))
            return dataclasses.replace(array, pointer=pointer, shape=(height, *array.shape[1:]))

        def place(v: Value) -> Array:
            if v in whole:
                return cut(whole[v])
            return dataclasses.replace(self.place_of(v), shape=(height, *dims(v)[1:]))

        for part in strips.parts:
            outside = {v: self.array(v) for v in cut_reads(part) if v not in made}
            self.values.update((v, cut(array)) for v, array in outside.items())
            if isinstance(part, Nest):
                nest = dataclasses.replace(part, shape=(height, *part.shape[1:]))
                self.nest(nest, {v: place(v) for v in part.stored})
            elif is_view(part):
                (out,) = part.made
                source = self.array(part.inputs[0])
                self.values[out] = Array(source.pointer, source.dtype, (height, *dims(out)[1:]), contiguous(out))
            else:
                (out,) = part.made
                form = reduction(part)
                source = self.array(part.inputs[form.source])
                if is_total(part):
                    self._accumulate(totals[out], source, form)
                else:
                    self.values[out] = place(out)
                    self._reduced(place(out), source, form, may_divide=False)
            self.values.update(outside)
        self.values.clear()
        self.values.update(kept)

    def _length_of(self, nest: Nest) -> str:
        """The i64 first dimension of the results of a nest."""
        found = dict.fromkeys(
            [str(self.array(v).shape[0]) for v in nest.reads if len(v.shape or ()) == len(nest.shape) and is_grown(v)]
        )
        first, *others = found
        f, length = self.f, first
        for other in others:
            length = f.op(f"select i1 {f.op(f'icmp eq i64 {length}, 1')}, i64 {other}, i64 {length}")
        for each in found if others else ():
            differs = f.op(f"icmp ne i64 {each}, {length}")
            self.fail_if(
                f.op(f"and i1 {differs}, {f.op(f'icmp ne i64 {each}, 1')}"), nest.maps[0], "shapes", each, length
            )
        return length

    def _spread(self, held: Array, length: str, rank: int) -> Sequence[int | str]:
        """The layout of an array that is broadcast to the first dimension `length`."""
        out: list[int | str] = list(spread(held.shape, held.strides, rank))
        own = held.shape[0]
        if len(held.shape) == rank and isinstance(own, str) and own != length:
            is_one = self.f.op(f"icmp eq i64 {own}, 1")
            out[0] = self.f.op(f"select i1 {is_one}, i64 0, i64 {held.strides[0]}")
        return out

    def _grown(self, v: Value, length: str) -> Array:
        """Memory for an array of unknown length, which ends with the block."""
        shape: tuple[int | str, ...] = (length, *dims(v))
        size = self.f.op(f"mul nuw nsw i64 {length}, {size_of(v)}")
        pointer = state.allocate_block(self.f, size, "no_memory", "rows")
        self.own_block(pointer, size)
        return Array(pointer, v.dtype.numpy, shape, row_major(shape))

    def check_divisor(self, instr: Compute) -> None:
        """Prints the test of the divisors of a division of integers."""
        if not isinstance(instr.work, Division):
            return
        f, divisor = self.f, instr.inputs[1]
        if divisor.storage == "constant" and np.all(divisor.constant):
            return
        kind = scalars.register_type(divisor.dtype.numpy)
        held = self.held(divisor)
        if not isinstance(held, Array):
            is_zero = f.op(f"icmp eq {kind} {self.number(divisor)}, 0")
            has_numbers = not any(map(is_array, instr.inputs))  # which the error shows
            self.fail_if(is_zero, instr, "division", *(map(self.index, instr.inputs) if has_numbers else ()))
            return
        found = f.alloca("i1")
        f.line(f"store i1 false, ptr {found}")

        def element(at: Sequence[str]) -> None:
            is_zero = f.op(f"icmp eq {kind} {self.load(held, at[0])}, 0")
            before = f.op(f"load i1, ptr {found}")
            f.line(f"store i1 {f.op(f'or i1 {is_zero}, {before}')}, ptr {found}")

        self.each(held.shape, (held.strides,), element, False)
        self.fail_if(f.op(f"load i1, ptr {found}"), instr, "division")

    def each(
        self,
        shape: Sequence[int | str],
        layouts: Sequence[Sequence[int | str]],
        element: Callable[[Sequence[str]], None],
        is_parallel: bool = True,
        vectors: int = 1,
        part: tuple[str, int] | None = None,
    ) -> None:
        """Prints loops over an index space.

        Args:
          shape: The shape of the index space.
          layouts: Layouts of arrays in it.
          element: Prints an iteration; it receives the offset of the element in each array.
          is_parallel: Whether the iterations are independent.
          vectors: The number of vectors that an iteration of the vectorized loop computes; 1 if LLVM chooses.
          part: The number of a part, and the iterations of the outermost loop in a part; None for all.
        """
        sizes, strides = collapsed(shape, layouts)
        group = self.module.metadata("distinct !{}")
        outer, self.access = self.access, f", !llvm.access.group {group}" if is_parallel else ""

        def level(axis: int, at: list[str]) -> None:
            if axis == len(sizes):
                element(at)
                return
            count, symbol = sizes[axis]
            size = symbol if symbol and count == 1 else f"{count}"
            if symbol and count != 1:
                size = self.f.op(f"mul nuw nsw i64 {symbol}, {count}")
            first = "0"
            if part is not None and axis == 0:
                first, size = self._range(*part, count)
            metadata = ""
            if axis == len(sizes) - 1 and is_parallel:
                accesses = self.module.metadata(f'!{{!"llvm.loop.parallel_accesses", {group}}}')
                if vectors > 1:
                    turns = self.module.metadata(f'!{{!"llvm.loop.interleave.count", i32 {vectors}}}')
                    accesses = f"{accesses}, {turns}"
                metadata = f", !llvm.loop {self.module.metadata(f'distinct !{{SELF, {accesses}}}')}"
            with self.f.loop(first, size, metadata=metadata) as i:
                made: dict[tuple[str, int | str], str] = {}
                inner = []
                for offset, steps in zip(at, strides, strict=True):
                    key = offset, steps[axis]
                    if key not in made:
                        made[key] = self._advanced(offset, i, steps[axis])
                    inner.append(made[key])
                level(axis + 1, inner)

        level(0, ["0"] * len(layouts))
        self.access = outer

    def _range(self, part: str, each: int, size: int) -> tuple[str, str]:
        """The first element of a part of `size` elements, and the end of the part."""
        first = self.f.op(f"mul nuw nsw i64 {part}, {each}")
        stop = self.f.op(f"add nuw nsw i64 {first}, {each}")
        if size % each:
            least = self.module.declare("llvm.smin.i64", "i64", ["i64", "i64"])
            stop = self.f.op(f"call i64 {least}(i64 {stop}, i64 {size})")
        return first, stop

    def _advanced(self, offset: str, i: str, stride: int | str) -> str:
        if stride == 0:
            return offset
        step = i if stride == 1 else self.f.op(f"mul nsw i64 {i}, {stride}")
        return step if offset == "0" else self.f.op(f"add nsw i64 {offset}, {step}")

    def load(self, array: Array, offset: str) -> str:
        """Prints a load of the element at an offset."""
        return scalars.load(self.f, array.dtype, self.at(array, offset), self.access)

    def store(self, array: Array, value: str, offset: str) -> None:
        """Prints a store to the element at an offset."""
        scalars.store(self.f, array.dtype, value, self.at(array, offset), self.access)

    def at(self, array: Array, offset: str) -> str:
        """Prints the address of the element at an offset."""
        if offset == "0":
            return array.pointer
        kind = scalars.memory_type(array.dtype)
        return self.f.op(f"getelementptr inbounds {kind}, ptr {array.pointer}, i64 {offset}", "at")

    def offset(self, vector: Array, i: str) -> str:
        """The offset of element `i` of a vector."""
        return self._advanced("0", i, vector.strides[0])

    # *** Copies and views ***

    def copy(self, target: Array, source: Array) -> None:
        """Prints a copy of an array to another one of its shape."""
        if target.is_contiguous and source.is_contiguous:
            size = str(math.prod(source.dims) * source.dtype.itemsize)
            if source.shape and isinstance(source.shape[0], str):
                size = self.f.op(f"mul nuw nsw i64 {source.shape[0]}, {size}")
            self.copy_bytes(target.pointer, source.pointer, size)
            return

        if self._transpose(target, source):
            return

        def print_copy(to: Array, of: Array) -> None:
            self.each(of.shape, (of.strides, to.strides), lambda at: self.store(to, self.load(of, at[0]), at[1]))

        def whole(g: Function, given: Sequence[str]) -> None:
            outer, self.f = self.f, g
            print_copy(dataclasses.replace(target, pointer=given[0]), dataclasses.replace(source, pointer=given[1]))
            self.f = outer

        key = "copy", source.dtype.name, source.shape, source.strides, target.strides
        captured = [("ptr", target.pointer), ("ptr", source.pointer)]
        is_static = all(isinstance(d, int) for d in source.shape)
        if not (is_static and self.repeats.call(self.f, key, captured, whole, bool(self._loops))):
            print_copy(target, source)

    def _transpose(self, target: Array, source: Array) -> bool:
        """Prints a copy that transposes large matrices; returns False if it is none."""
        sizes, layouts = collapsed(source.shape, (source.strides, target.strides))
        shape, (a, b) = [n for n, _ in sizes], layouts
        found = turned_matrix(shape, a, b, source.dtype.itemsize)
        if found is None or any(symbol for _, symbol in sizes):
            return False
        matrix = shape[found.target], shape[found.source], b[found.source], a[found.target]
        numbers = ", ".join(f"i64 {n}" for n in matrix)
        name = transpose(self.module, source.dtype.itemsize)

        def one(at: Sequence[str]) -> None:
            x, out = self.at(source, at[0]), self.at(target, at[1])
            self.f.line(f"call void {name}(ptr {out}, ptr {x}, {numbers})")

        outer = [k for k in range(len(shape)) if k not in found]
        self.each([shape[k] for k in outer], [[layout[k] for k in outer] for layout in layouts], one, False)
        return True

    def copy_bytes(self, target: str, source: str, size: str) -> None:
        """Prints a copy of memory that does not overlap."""
        copy = self.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        self.f.line(f"call void {copy}(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def shifted(self, array: Array, offset: int) -> str:
        """The address of the element at a static offset."""
        return self.at(array, str(offset)) if offset else array.pointer

    def global_array(self, array: np.ndarray) -> Array:
        """A constant array of the module."""
        raw = array.tobytes()
        text = "zeroinitializer" if not any(raw) else 'c"' + "".join(f"\\{b:02X}" for b in raw) + '"'
        name = f"constant.{array.dtype.name}.{hash_of(raw)}"
        pointer = self.module.add_global(name, f"private unnamed_addr constant [{len(raw)} x i8] {text}, align 64")
        return Array(pointer, array.dtype, array.shape, row_major(array.shape))

    def move(self, instr: Compute) -> None:
        """Prints a movement, a reduction or a product."""
        assert isinstance(instr.work, Move)
        match instr.work.form:
            case Reshape(source, shape):
                self._reshape(instr, self.array_or_number(instr.inputs[source]), shape)
            case Pieces(source, indices):
                whole = self.array(instr.inputs[source])
                for v, index in zip(instr.outputs, indices, strict=True):
                    if v is not None and not v.is_static:
                        self.values[v] = self._grown_piece(v, whole, index)
                    elif v is not None:
                        offset, strides = piece(whole.dims, whole.strides, index)
                        made = Array(self.shifted(whole, offset), whole.dtype, dims(v), strides)
                        self.define(v, made)
            case Permute(source, axes, _):
                (out,) = instr.made
                a = self.array(instr.inputs[source])
                turned = Array(a.pointer, a.dtype, dims(out), tuple(a.strides[k] for k in axes))
                self._view_or_copy(out, turned)
            case Broadcast(source, shape):
                held = self._in_memory(self.array_or_number(instr.inputs[source]))
                (out,) = instr.made
                strides = spread(held.shape, held.strides, len(shape))
                self.values[out] = Array(held.pointer, held.dtype, shape, strides)
            case Concat() as form:
                self._concat(instr, form)
            case Embed(source, _, index):
                self._embed(instr, self.array_or_number(instr.inputs[source]), index)
            case Tile(source, times):
                self._tile(instr, self.array(instr.inputs[source]), times)
            case OneHot(axis, _):
                self._one_hot(instr, axis)
            case Reduce() as form:
                self._reduce(instr, form)
            case Product() as form:
                self.matrix_product(instr, form)
            case _:
                raise HeadraceInternalError(f"native code has no {type(instr.work.form).__name__}")

    def array_or_number(self, v: Value) -> Array | Number:
        """The form of an array or a scalar."""
        held = self.held(v)
        assert isinstance(held, (Array, Number))
        return held

    def define(self, v: Value, array: Array) -> None:
        """Makes `array` the form of `v`, or its element if `v` is a scalar."""
        if is_array(v):
            self.values[v] = array
        else:
            self.values[v] = Number(scalars.load(self.f, array.dtype, array.pointer), array.dtype)

    def _view_or_copy(self, v: Value, view: Array) -> None:
        if is_array(v) and v in self.plan.places:
            target = self.place_of(v)
            self.copy(target, view)
            self.values[v] = target
        else:
            self.define(v, view)

    def _reshape(self, instr: Compute, source: Array | Number, shape: tuple[int, ...]) -> None:
        (out,) = instr.made
        if isinstance(source, Number):
            if not is_array(out):
                self.values[out] = source
                return
            target = self.place_of(out)
            scalars.store(self.f, source.dtype, source.text, target.pointer)
            self.values[out] = target
            return
        strides = reshaped(source.dims, source.strides, shape)
        if strides is not None:
            self.define(out, Array(source.pointer, source.dtype, shape, strides))
            return
        target = self.place_of(out)
        back = Array(target.pointer, target.dtype, source.shape, row_major(source.shape))
        self.copy(back, source)
        self.values[out] = target

    def _concat(self, instr: Compute, form: Concat) -> None:
        (out,), axis = instr.made, form.axis
        if form.is_new:
            self._pack(self.place_of(out), [self.array_or_number(instr.inputs[k]) for k in form.sources], axis)
            self.values[out] = self.place_of(out)
            return
        if not out.is_static:
            self._concat_grown(instr, form.sources, axis)
            return
        is_extended = out not in self.plan.places  # the first rows are there
        first = self.array(instr.inputs[form.sources[0]])
        target = Array(first.pointer, first.dtype, dims(out), contiguous(out)) if is_extended else self.place_of(out)
        at = 0
        for k in form.sources:
            part = self.array(instr.inputs[k])
            pointer = self.shifted(target, at * target.strides[axis])
            if at or not is_extended:
                self.copy(Array(pointer, target.dtype, part.shape, target.strides), part)
            at += part.dims[axis]
        self.values[out] = target

    def _pack(self, target: Array, parts: Sequence[Array | Number], axis: int) -> None:
        strides = (*target.strides[:axis], *target.strides[axis + 1 :])
        for i, part in enumerate(parts):
            pointer = self.shifted(target, i * target.strides[axis])
            if isinstance(part, Number):
                scalars.store(self.f, part.dtype, part.text, pointer)
            else:
                self.copy(Array(pointer, target.dtype, part.shape, strides), part)

    # *** Arrays of unknown length ***

    def grown(self, instr: Compute) -> None:
        """Prints an instruction of the module `grown` that is no `Move`."""
        if isinstance(instr.work, Repeated):
            self._repeat(instr)
            return
        source, (out,) = self.array(instr.inputs[0]), instr.made
        match instr.work:
            case Dimensions():
                self._dimensions(instr, source, out)
            case Front(end):
                count = self._front(str(source.shape[0]), instr.inputs[end])
                self.values[out] = dataclasses.replace(source, shape=(count, *dims(out)))
            case Rows():
                if self.plan.strides[instr.inputs[0]] != contiguous(instr.inputs[0]):
                    source = self.copied_block(source)
                count = self._rows(instr, str(source.shape[0]), out)
                self.values[out] = Array(source.pointer, source.dtype, (count, *dims(out)), contiguous(out))

    def _dimensions(self, instr: Compute, source: Array, out: Value) -> None:
        f, target, dtype = self.f, self.place_of(out), out.dtype.numpy
        most = np.iinfo(dtype).max
        length = str(source.shape[0])
        if most < np.iinfo(np.int64).max:
            self.fail_if(f.op(f"icmp sgt i64 {length}, {most}"), instr, "kernel", length)
        for i, d in enumerate(source.shape):
            number = scalars.convert(f, str(d), np.dtype(np.int64), dtype)
            self.store(target, number, str(i))
        self.values[out] = target

    def _repeat(self, instr: Compute) -> None:
        """Prints copies of an array, after the test that it fits the wanted shape."""
        f, (x, wanted), (out,) = self.f, instr.inputs, instr.made
        length, *given = (self._element(wanted, k) for k in range(len(out.shape or ())))
        bad = [f.op(f"icmp slt i64 {length}, 0")]
        bad += [f.op(f"icmp ne i64 {g}, {d}") for g, d in zip(given, dims(out), strict=True)]
        source, own = self._in_memory(self.array_or_number(x)), []
        if is_grown(x):
            own = [str(source.shape[0])]
            differs = f.op(f"icmp ne i64 {own[0]}, {length}")
            bad.append(f.op(f"and i1 {differs}, {f.op(f'icmp ne i64 {own[0]}, 1')}"))
        found = bad[0]
        for other in bad[1:]:
            found = f.op(f"or i1 {found}, {other}")
        self.fail_if(found, instr, "kernel", *own, length, *given)
        target = self._grown(out, length)
        layout = self._spread(source, length, len(target.shape)) if source.shape else (0,) * len(target.shape)
        self.each(
            target.shape, (layout, target.strides), lambda at: self.store(target, self.load(source, at[0]), at[1])
        )
        self.values[out] = target

    def _in_memory(self, held: Array | Number) -> Array:
        """An array, or a number that is stored on the stack."""
        if isinstance(held, Array):
            return held
        slot = self.f.alloca(scalars.memory_type(held.dtype), 16)
        scalars.store(self.f, held.dtype, held.text, slot)
        return Array(slot, held.dtype, (), ())

    def _front(self, length: str, end: Value) -> str:
        """The number of rows below an end; a negative one counts from the last row."""
        f = self.f
        low, high = (self.module.declare(f"llvm.{name}.i64", "i64", ["i64", "i64"]) for name in ("smax", "smin"))
        stop = self._element(end, 0)
        from_last = f.op(f"add i64 {stop}, {length}")
        stop = f.op(f"select i1 {f.op(f'icmp slt i64 {stop}, 0')}, i64 {from_last}, i64 {stop}")
        return f.op(f"call i64 {high}(i64 {f.op(f'call i64 {low}(i64 {stop}, i64 0)')}, i64 {length})")

    def _rows(self, instr: Compute, length: str, out: Value) -> str:
        """The number of rows of a reshaped array, after the test that the elements fit."""
        f, wanted = self.f, instr.inputs[1]
        before, after = row_size(instr.inputs[0]), row_size(out)
        common = math.gcd(before, after)
        count = length if before == common else f.op(f"mul nuw nsw i64 {length}, {before // common}")
        bad = []
        if after != common:
            bad.append(f.op(f"icmp ne i64 {f.op(f'urem i64 {count}, {after // common}')}, 0"))
            count = f.op(f"udiv i64 {count}, {after // common}")
        given = []
        if wanted.storage != "constant":
            given = [self._element(wanted, k) for k in range(len(out.shape or ()))]
            differs = f.op(f"icmp ne i64 {given[0]}, {count}")
            bad.append(f.op(f"and i1 {differs}, {f.op(f'icmp ne i64 {given[0]}, -1')}"))
            bad += [f.op(f"icmp ne i64 {g}, {d}") for g, d in zip(given[1:], dims(out), strict=True)]
        if bad:
            found = bad[0]
            for other in bad[1:]:
                found = f.op(f"or i1 {found}, {other}")
            self.fail_if(found, instr, "kernel", length, *given)
        return count

    def _element(self, vector: Value, k: int) -> str:
        """The i64 of an element of a vector of integers."""
        held = self.array(vector)
        text = self.load(held, str(k * held.strides[0]))
        return scalars.convert(self.f, text, held.dtype, np.dtype(np.int64))

    def copied_block(self, source: Array) -> Array:
        """A contiguous copy of an array, which ends with the block."""
        pointer, _, size = self.copied_rows(source)
        self.own_block(pointer, size)
        return Array(pointer, source.dtype, source.shape, row_major(source.shape))

    def _grown_piece(self, v: Value, whole: Array, index: Index) -> Array:
        """A piece with all rows of an array of unknown length."""
        offset, strides = piece(whole.dims, whole.strides[1:], index[1:])
        pointer, first = self.shifted(whole, offset), whole.strides[0]
        if is_turned(index):
            last = self.f.op(f"mul nsw i64 {self.f.op(f'sub i64 {whole.shape[0]}, 1')}, {first}")
            pointer, first = self.at(dataclasses.replace(whole, pointer=pointer), last), -first
        return Array(pointer, whole.dtype, (whole.shape[0], *dims(v)), (first, *strides))

    def _concat_grown(self, instr: Compute, sources: Sequence[int], axis: int) -> None:
        (out,) = instr.made
        parts = [self.array(instr.inputs[k]) for k in sources]
        lengths = [str(part.shape[0]) for part in parts]
        self._equal(instr, lengths)
        target = self._grown(out, lengths[0])
        at = 0
        for part in parts:
            pointer = self.shifted(target, at * target.strides[axis])
            self.copy(Array(pointer, target.dtype, part.shape, target.strides), part)
            at += part.dims[axis - 1]
        self.values[out] = target

    def _equal(self, instr: Compute, lengths: Sequence[str]) -> None:
        """Prints a failure of the kernel if first dimensions differ."""
        for other in dict.fromkeys(lengths[1:]):
            if other != lengths[0]:
                self.fail_if(self.f.op(f"icmp ne i64 {other}, {lengths[0]}"), instr, "kernel", *lengths)

    def _embed(self, instr: Compute, part: Array | Number, index: Index) -> None:
        (out,) = instr.made
        target = self.zeros(out)
        offset, strides = piece(target.dims, target.strides, index)
        pointer = self.shifted(target, offset)
        if isinstance(part, Number):
            scalars.store(self.f, part.dtype, part.text, pointer)
        else:
            self.copy(Array(pointer, target.dtype, part.shape, strides), part)
        self.values[out] = target

    def _tile(self, instr: Compute, source: Array, times: Sequence[int]) -> None:
        (out,) = instr.made
        target = self.place_of(out)
        shape = [n for pair in zip(times, source.dims, strict=True) for n in pair]
        strides = [n for stride in source.strides for n in (0, stride)]
        whole = Array(target.pointer, target.dtype, tuple(shape), row_major(shape))
        self.copy(whole, Array(source.pointer, source.dtype, tuple(shape), tuple(strides)))
        self.values[out] = target

    def _one_hot(self, instr: Compute, axis: int) -> None:
        (out,) = instr.made
        target, indices = self.place_of(out), self.array_or_number(instr.inputs[0])
        on, off = (self.array_or_number(instr.inputs[k]) for k in (2, 3))
        assert isinstance(on, Number)
        assert isinstance(off, Number)
        index = scalars.register_type(indices.dtype)
        at = () if isinstance(indices, Number) else indices.strides
        places = [int(k == axis) for k in range(len(target.shape))]  # the offset is the position along the axis

        def element(offsets: Sequence[str]) -> None:
            found = indices.text if isinstance(indices, Number) else self.load(indices, offsets[0])
            if index != "i64":
                found = self.f.op(f"{'zext' if indices.dtype.kind == 'u' else 'sext'} {index} {found} to i64")
            is_here = self.f.op(f"icmp eq i64 {found}, {offsets[2]}")
            self.store(target, scalars.choose(self.f, is_here, target.dtype, on.text, off.text), offsets[1])

        self.each(target.shape, ((*at[:axis], 0, *at[axis:]) if at else (0,), target.strides, places), element)
        self.values[out] = target

    def _sum(self, *offsets: str) -> str:
        """The sum of offsets."""
        total = "0"
        for offset in offsets:
            if offset != "0":
                total = offset if total == "0" else self.f.op(f"add nsw i64 {total}, {offset}")
        return total

    def zeros(self, out: Value) -> Array:
        """The memory of an array, filled with zeros."""
        target = self.place_of(out)
        zero = self.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        self.f.line(f"call void {zero}(ptr {target.pointer}, i8 0, i64 {size_of(out)}, i1 false)")
        return target

    # *** Products and reductions ***

    def matrix_product(self, instr: Compute, form: Product) -> None:
        """Prints a product of real matrices."""
        (out,) = instr.made
        operands, strides, turns = [], [], []
        for k, turned in enumerate(form.turned):
            a = self.copied(instr, k)
            if matrix_rows(a.shape[-2:], a.strides[-2:]) is None:  # of unknown length, in reverse order
                a = self.copied_block(a)
            found = matrix_rows(a.shape[-2:], a.strides[-2:])
            assert found is not None
            flips, stride = found
            operands.append(a)
            strides.append(stride)
            turns.append(turned != flips)
        a_shape, b_shape = (a.shape[-2:] for a in operands)
        m, k_size = reversed(a_shape) if form.turned[0] else a_shape
        n = b_shape[0] if form.turned[1] else b_shape[1]
        assert isinstance(n, int)
        if isinstance(k_size, str):
            self._equal(instr, [k_size, str(b_shape[0])])
        target = self.place_of(out) if isinstance(m, int) else self._grown(out, m)
        addend = self.copied(instr, 2) if isinstance(instr.work, AddedProduct) else None
        name = product(
            self.module,
            m if isinstance(m, int) else None,
            k_size if isinstance(k_size, int) else None,
            n,
            out.dtype.numpy,
            (turns[0], turns[1]),
            row_strides=(strides[0], strides[1], None),
            addend=None if addend is None else n if addend.shape == target.shape else 0,
            vector_bytes=of_host().bytes,
            may_call=isinstance(m, int) and isinstance(k_size, int),  # no step with such calls is called at once
        )
        more = "" if addend is None else f", ptr {addend.pointer}"
        more += "".join(f", i64 {size}" for size in (m, k_size) if isinstance(size, str))

        def one(at: Sequence[str]) -> None:
            c, a, b = (self.at(x, offset) for x, offset in zip((target, *operands), at, strict=True))
            self.f.line(f"call void {name}(ptr {c}, ptr {a}, ptr {b}{more}){calls}")

        calls = " noinline" if self.repeats.is_call(name, bool(self._loops)) else ""
        batch = target.shape[:-2]
        layouts = [spread(a.shape[:-2], a.strides[:-2], len(batch)) for a in operands]
        condition = self.needed.get(instr)
        if condition is None:
            self.each(batch, (target.strides[:-2], *layouts), one, False)
        else:
            needed, on = self.f.new("needed"), self.f.new("on")
            self.f.branch(condition, needed, on)
            self.f.begin(needed)
            self.each(batch, (target.strides[:-2], *layouts), one, False)
            self.f.jump(on)
            self.f.begin(on)
        self.values[out] = target

    def _reduce(self, instr: Compute, form: Reduce) -> None:
        (out,) = instr.made
        target = self._target(out)
        source = self.copied(instr, form.source)
        if is_grown(instr.inputs[form.source]):
            self._reduce_grown(target, source, form)
        else:
            self._reduced(target, source, form)
        self.define(out, target)

    def _reduce_grown(self, target: Array, source: Array, form: Reduce) -> None:
        """Prints a reduction over an unknown number of rows; neighboring axes are one."""
        if not source.is_contiguous:
            source = self.copied_block(source)
        target, source = as_parts(target), as_parts(source)
        merged = next((k for k in range(len(source.shape)) if k not in form.axes), len(source.shape))
        first, rest = math.prod(source.dims[: merged - 1]), source.dims[merged - 1 :]
        n = str(source.shape[0]) if first == 1 else self.f.op(f"mul nuw nsw i64 {source.shape[0]}, {first}")
        axes = [0, *(k - merged + 1 for k in form.axes if k >= merged)]
        name = reduce(self.module, form.ufunc, (None, *rest), axes, target.dtype, vector_bytes=of_host().bytes)
        self.f.line(f"call void {name}(ptr {target.pointer}, ptr {source.pointer}, i64 {n})")

    def _target(self, out: Value) -> Array:
        """The memory into which a reduction writes."""
        if is_array(out):
            return self.place_of(out)
        dtype = out.dtype.numpy
        return Array(self.f.alloca(f"[{dtype.itemsize} x i8]", 64), dtype, (), ())

    def _reduced(self, target: Array, source: Array, form: Reduce, may_divide: bool = True) -> None:
        """Prints a reduction, in parts if there is much work and `may_divide`.

        A part has some indices of the first axis. If that is reduced, the parts are reduced to a result each, and
        these at the end, so the order of additions depends on the shape alone.
        """

        def run(f: Function, out: str, x: str, dims: Sequence[int], axes: Sequence[int]) -> None:
            name = self._reduction(form, dims, axes, target.dtype, whole.dtype.kind == "c")
            f.line(f"call void {name}(ptr {out}, ptr {x})")

        whole, target, source = target, as_parts(target), as_parts(source)
        dims, axes, cost = source.dims, form.axes, thresholds.NATIVE_ELEMENT * math.prod(source.dims)
        is_total = len(axes) == len(dims)
        if is_total:
            dims, axes = (math.prod(dims),), (0,)
        each = threads.divided(dims[0], cost) if may_divide and dims and (is_total or 0 not in axes) else 0
        if not each or dims[0] % each or each == dims[0]:
            run(self.f, target.pointer, source.pointer, dims, axes)
            self._divide(whole, form)
            return
        parts = dims[0] // each
        found = target
        if is_total:
            found = dataclasses.replace(target, pointer=self.f.alloca(f"[{parts * target.dtype.itemsize} x i8]", 64))
        steps = 1 if is_total else each * math.prod(target.dims) // dims[0], each * math.prod(dims[1:])

        def part(g: Function, given: Sequence[str], number: str) -> None:
            kind, addresses = scalars.memory_type(target.dtype), []
            for base, step in zip(given, steps, strict=True):
                offset = g.op(f"mul nuw nsw i64 {number}, {step}")
                addresses.append(g.op(f"getelementptr inbounds {kind}, ptr {base}, i64 {offset}", "at"))
            run(g, addresses[0], addresses[1], (each, *dims[1:]), axes)

        self.has_parts = True
        captured = ("ptr", found.pointer), ("ptr", source.pointer)
        threads.each_part(self.f, parts, captured, round(cost / parts), part, "stopped")
        if is_total:
            run(self.f, target.pointer, found.pointer, (parts,), (0,))
        self._divide(whole, form)

    def _reduction(
        self,
        form: Reduce,
        dims: Sequence[int],
        axes: Sequence[int],
        dtype: np.dtype,
        is_of_parts: bool,
        accumulate: bool = False,
    ) -> str:
        """The function of a reduction of numbers, or of the parts of complex ones."""
        size = of_host().bytes
        if is_of_parts:
            return sum_of_parts(self.module, dims, axes, dtype, accumulate=accumulate, vector_bytes=size)
        return reduce(self.module, form.ufunc, dims, axes, dtype, accumulate=accumulate, vector_bytes=size)

    def _accumulate(self, total: Array, source: Array, form: Reduce) -> None:
        """Prints a reduction whose result is combined with a total."""
        is_complex = total.dtype.kind == "c"
        total, source = as_parts(total), as_parts(source)
        name = self._reduction(form, source.dims, form.axes, total.dtype, is_complex, True)
        self.f.line(f"call void {name}(ptr {total.pointer}, ptr {source.pointer})")

    def _divide(self, target: Array, form: Reduce) -> None:
        """Prints the division of sums by the number of terms, for means."""
        if form.divisor == 1:
            return
        mean = Apply(np.divide, (Input(0), form.divisor), target.dtype, None)

        def element(at: Sequence[str]) -> None:
            found = scalars.expression(self.f, mean, [self.load(target, at[0])], [target.dtype])
            self.store(target, found, at[0])

        self.each(target.shape, (target.strides,), element)

    def _fill(self, target: Array, ufunc: np.ufunc) -> None:
        """Prints stores of the identity of a reduction to all elements."""
        target = as_parts(target)
        number = combination(ufunc, target.dtype)[1]

        def element(at: Sequence[str]) -> None:
            kind, to = scalars.memory_type(target.dtype), self.at(target, at[0])
            self.f.line(f"store {kind} {number}, ptr {to}, align {target.dtype.itemsize}{self.access}")

        self.each(target.shape, (target.strides,), element)

    def copied(self, instr: Instr, k: int) -> Array:
        """Input `k` of an instruction, or a copy of it if the plan says so."""
        a = self.array(instr.inputs[k])
        if (instr, k) not in self.plan.copies:
            return a
        made = Array(self.address(self.plan.copies[instr, k]), a.dtype, a.shape, row_major(a.shape))
        self.copy(made, a)
        return made


def _captured(held: Held) -> threads.Captured:
    """The value that a part reads."""
    assert not isinstance(held, Items)
    return ("ptr", held.pointer) if isinstance(held, Array) else (scalars.register_type(held.dtype), held.text)


def _renamed(held: Held, name: str) -> Held:
    """The same value with another name."""
    assert not isinstance(held, Items)
    return dataclasses.replace(held, pointer=name) if isinstance(held, Array) else Number(name, held.dtype)


def _splat(v: Value) -> str | None:
    """The literal of a constant array of equal elements; None if it is none."""
    if v.storage != "constant" or not np.ndim(v.constant):
        return None
    flat = np.asarray(v.constant).ravel()
    if flat[:1].tobytes() * flat.size != flat.tobytes():
        return None
    return scalars.literal(flat[0], v.dtype.numpy)


def hash_of(raw: bytes) -> str:
    """A name for the content of a constant."""
    return hashlib.sha256(raw).hexdigest()[:24]


def collapsed(
    shape: Sequence[int | str], layouts: Sequence[Sequence[int | str]]
) -> tuple[list[tuple[int, str]], list[list[int | str]]]:
    """An equal index space with the fewest axes.

    Args:
      shape: The shape of the index space; a str is the name of an i64.
      layouts: Layouts of arrays in it; a str is the name of an i64.

    Returns:
      The sizes of the axes, each a number and the name by which it is multiplied, or ""; and for each array its
      distances along the axes.
    """
    sizes: list[tuple[int, str]] = []
    out: list[list[int | str]] = [[] for _ in layouts]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = [layout[axis] for layout in layouts]
        if sizes and isinstance(size, int) and all(map(_is_next, out, steps, [size] * len(steps))):
            count, symbol = sizes[-1]
            sizes[-1] = count * size, symbol
            for mine, step in zip(out, steps, strict=True):
                mine[-1] = step
            continue
        sizes.append((size, "") if isinstance(size, int) else (1, size))
        for mine, step in zip(out, steps, strict=True):
            mine.append(step)
    return sizes, out


def _is_next(mine: list[int | str], step: int | str, size: int) -> bool:
    """Whether an axis continues the one before."""
    return isinstance(step, int) and mine[-1] == step * size
