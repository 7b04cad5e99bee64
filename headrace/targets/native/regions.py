"""Native regions: the instructions of a block that run as machine code.

A region is a sequence of neighboring instructions of a block, each of which native code has. An instruction with blocks
belongs to a region if all instructions in its blocks do. A call of a native function takes a few tenths of
a microsecond, so a region must contain a loop, or maps that take numpy longer.

**Borders.** Numbers and arrays of static shape pass between a region and the code around it. A list of such arrays does
so in the block of the step, as an array of its elements; elsewhere, where a loop may repeat the copy, a list is made,
changed and read in one region. The rows of an array are a view, so each side of the border makes its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import thresholds
from headrace.ir.kernel import residence
from headrace.ir.notes import CountedResidual
from headrace.opkit.forms import Accumulate, Product, Reduce, Window, reads
from headrace.records import record
from headrace.schedule.program import Block, Branches, Call, Compute, Convert, Instr, Loop, Value
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import Constant, KernelCall, ListOperation, Map, Move
from headrace.targets.native import scalars
from headrace.targets.native.calls import Functions, is_large
from headrace.targets.native.costs import ufuncs
from headrace.targets.native.element_types import KINDS, ElementTypes
from headrace.targets.native.fusion import deep_reads
from headrace.targets.native.grown import Dimensions, Front, Repeated, Rows, is_array, is_grown
from headrace.targets.native.rewriting import CrossEntropy, Division, Parts, flat
from headrace.targets.native.tuples import Absent, Pack, Unpack, Zeros, is_tuple

if TYPE_CHECKING:
    from headrace.schedule.program import Program

# Work that takes Python a call of numpy.
_MOVES: Final = (Move, ListOperation, Dimensions, Front, Rows, Repeated, Pack, Unpack)

# Blocks within blocks that a region may have: the printer is recursive.
_DEEPEST: Final = 40


@record(eq=False, slots=True)
class NativeRegion:
    """Part of a block that runs as machine code.

    Attributes:
      block: The block.
      start: The position of the first instruction in it.
      stop: The position behind the last one.
      inputs: The values that the region reads from outside, and large constants.
      outputs: The values of the region that are read behind it.
      elements: The types of the elements of its lists.
      instrs: The instructions, rewritten, behind those that make rows of arrays from outside.
      leaving: The instructions that make rows which are read behind the region.
    """

    block: Block
    start: int
    stop: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    elements: ElementTypes
    instrs: list[Instr]
    leaving: list[Compute]


# *** Instructions ***


def why_not(
    instr: Instr, elements: ElementTypes | None = None, functions: Functions | None = None, depth: int = 0
) -> str:
    """The reason why an instruction cannot be native; "" if it can.

    Args:
      instr: The instruction.
      elements: The types of elements of lists; None to compute them of the instruction alone.
      functions: The native functions that it may call; None for none.
      depth: The number of blocks around it.
    """
    if elements is None:
        elements = ElementTypes([instr])
    if depth > _DEEPEST:
        return "the blocks are nested too deeply"
    if isinstance(instr, Call):
        return _call(instr, elements, functions)
    if isinstance(instr, Compute):
        return _compute(instr, elements) or _values((*instr.inputs, *instr.made), elements, instr)
    if isinstance(instr, Loop):
        reason = _loop(instr, elements)
        if reason:
            return reason
    elif isinstance(instr, Branches):
        reason = _values((*instr.inputs, *instr.made), elements, instr)
        if reason:
            return reason
        if any(v.representation == "rows" for b in instr.branches for v in b.results):
            return "a conditional returns rows"
    for block in instr.blocks:
        for inner in block.instrs:
            reason = why_not(inner, elements, functions, depth + 1)
            if reason:
                return reason
        reason = _values(block.results, elements, instr)
        if reason:
            return reason
    return ""


def _call(call: Call, elements: ElementTypes, functions: Functions | None) -> str:
    body = functions.bodies.get(call.function) if functions is not None else None
    if body is None:
        return "a function that calls itself is not native"
    pairs = zip((*call.inputs, *call.made), (*body.params, *body.results), strict=True)
    if any(a.shape != b.shape or a.dtype is not b.dtype for a, b in pairs):
        return "an argument or a result of a call has another static shape than that of the function"
    return _values((*call.inputs, *call.made), elements, call)


def _compute(instr: Compute, elements: ElementTypes) -> str:
    if not instr.made and not (isinstance(instr.work, ListOperation) and instr.work.role.changes):
        return f"no result of {instr.op.type} is read"
    match instr.work:
        case KernelCall():
            return f"{instr.op.type} calls its kernel"
        case Map(expression):
            return scalars.why_not(expression, [v.dtype.numpy for v in instr.inputs])
        case Move(form):
            if isinstance(form, Product | Reduce):
                dtype = instr.made[0].dtype.numpy
                is_known = _multiplies(instr, form, dtype) if isinstance(form, Product) else _reduces(form, dtype)
                return "" if is_known else f"{instr.op.type} of {dtype.name}"
            if isinstance(form, Accumulate):
                dtype = instr.made[0].dtype.numpy
                return scalars.why_not(Apply(form.ufunc, (Input(0), Input(1)), dtype, None), [dtype, dtype])
            return ""
        case ListOperation(role):
            return _list(instr, role.kind)
        case Parts(instrs):
            return next(filter(None, map(why_not, instrs)), "")
        case Convert() | Dimensions() | Front() | Rows() | Repeated() | CrossEntropy():
            return ""
        case Pack() | Unpack() | Absent() | Zeros():
            return ""
        case Constant(value):
            array = np.asarray(value)
            return "a large constant" if array.nbytes > thresholds.NATIVE_CONSTANT_BYTES and array.any() else ""
    return f"{instr.op.type}: {type(instr.work).__name__}"


def _multiplies(instr: Compute, form: Product, dtype: np.dtype) -> bool:
    """Whether native code has a product of matrices."""
    if dtype.kind == "c":
        return all(v.is_static for v in instr.inputs)
    return dtype.kind in "fiu" and dtype.itemsize >= 4


def _reduces(form: Reduce, dtype: np.dtype) -> bool:
    """Whether native code has a reduction."""
    if dtype.kind == "c":
        return form.ufunc is np.add
    if dtype.kind == "b":
        return form.ufunc in (np.logical_and, np.logical_or)
    is_number = dtype.kind in "iu" or dtype in (np.dtype(np.float32), np.dtype(np.float64))
    return is_number and form.ufunc in (np.add, np.multiply, np.maximum, np.minimum)


def _list(instr: Compute, kind: str) -> str:
    if kind not in KINDS:
        return f"{instr.op.type} of a list"
    if CountedResidual in instr.op.notes:
        return "the elements of a list count as memory of the device"
    if instr.op.attrs.get("resize_if_index_out_of_bounds"):
        return f"{instr.op.type} may lengthen a list"
    if kind == "set" and instr.inputs[2].representation == "list":
        return "an element of a list is set to a list"
    return ""


def _loop(loop: Loop, elements: ElementTypes) -> str:
    values = [v for x in loop.variables for v in (x.initial, x.param, x.next, *([x.final] if x.final else []))]
    if loop.trip is not None:
        values.append(loop.trip.first)
        values += [v for limit in loop.trip.limits for v in (limit.first, limit.limit)]
        if loop.trip.final is not None:
            values.append(loop.trip.final)
    for x in loop.variables:
        if x.param.representation == "rows" and x.next is not x.param:
            return "a loop variable is the rows of different arrays"
        if x.param.representation == "list" and x.next not in _lists_of(loop, x.param):
            return "a list of one iteration becomes that of the next"
        if x.param.shape == () and x.param.representation == "scalar" and is_array(x.next):
            return "a loop variable has different ranks"
        shapes = {x.initial.shape, x.next.shape, x.param.shape}
        if is_array(x.param) and x.param.representation != "rows" and len(shapes) > 1:
            return f"the shape of {x.param.tensor.name} is not static"
    return _values(values, elements, loop)


def _lists_of(loop: Loop, param: Value) -> set[Value]:
    """The versions of the lists of a loop's variables."""
    found = {x.param for x in loop.variables if x.param.representation == "list"}
    size = -1
    while size != len(found):
        size = len(found)
        for instr in loop.body.instrs:
            _add_versions(instr, found)
    return found


def _add_versions(instr: Instr, found: set[Value]) -> None:
    if isinstance(instr, Loop):
        for x in instr.variables:
            if x.initial in found and x.final is not None:
                found.add(x.final)
    elif isinstance(instr, Branches):
        for out, *results in zip(instr.made, *(b.results for b in instr.branches), strict=True):
            inner = set(found)
            for block in instr.branches:
                for i in block.instrs:
                    _add_versions(i, inner)
            if out.representation == "list" and all(r in inner for r in results):
                found.add(out)


def _values(values: Iterable[Value], elements: ElementTypes, instr: Instr | None) -> str:
    """The reason why values cannot be part of native code."""
    for v in values:
        if v.representation == "list":
            if residence(v.tensor) is not None:
                return "the elements of a list are in the memory of a device"
            if elements.of(v) is None:
                return "the shape of the elements of a list is not static"
            continue
        if v.representation in ("rows", "counter"):
            continue
        if _is_parameter(instr, v):
            continue
        if v.representation in ("object", "reference"):
            return f"{v.tensor.op.type}: a value of dtype {v.dtype.name}"
        if not scalars.is_number(v.dtype.numpy):
            return f"a value of dtype {v.dtype.name}"
        if not v.is_static:
            if is_grown(v) and _takes_grown(instr):
                continue
            return f"the shape of {v.tensor.name} is not static"
        if v.shape and 0 in v.shape:
            return f"{v.tensor.name} has no elements"
    return ""


def _takes_grown(instr: Instr | None) -> bool:
    """Whether the first dimension of arrays that an instruction reads and makes may be unknown."""
    if not isinstance(instr, Compute):
        return False
    match instr.work:
        case Map():
            return not isinstance(instr.work, Division) and _is_as_long(instr)
        case Move(Product((is_turned, _), is_batch)):
            fits = all(map(is_grown, instr.inputs)) if is_turned else instr.inputs[1].is_static
            return fits and not is_batch
        case Move() | Dimensions() | Front() | Rows() | Repeated():
            return True  # the rule of `grown` has tested it
        case ListOperation(role):
            return role.kind in ("stack", "from_tensor", "length", "get")
    return False


def _is_as_long(instr: Compute) -> bool:
    """Whether inputs determine the unknown first dimension of the result of a map.

    Other inputs are repeated along it.
    """
    (out,) = instr.made
    if not is_grown(out):
        return False
    rank = len(out.shape or ())
    grown = [v for v in instr.inputs if is_grown(v)]
    others = [v.shape[0] for v in instr.inputs if v.shape and len(v.shape) == rank and not is_grown(v)]
    return bool(grown) and all(len(v.shape or ()) == rank for v in grown) and all(d == 1 for d in others)


def _is_parameter(instr: Instr | None, v: Value) -> bool:
    """Whether `v` is an input that only determines the form of an instruction."""
    if not isinstance(instr, Compute) or v in instr.made:
        return False
    if isinstance(instr.work, ListOperation):
        role = instr.work.role
        at = {i for i, x in enumerate(instr.inputs) if x is v}
        return at <= _ignored_inputs(role.kind)
    if isinstance(instr.work, Move):
        return all(instr.inputs[k] is not v for k in reads(instr.work.form))
    return False


def _ignored_inputs(kind: str) -> set[int]:
    """The positions of inputs of a list operation that native code does not read."""
    return {
        "empty": {0, 1},
        "reserve": {0},
        "from_tensor": {1},
        "pop": {1},
        "get": {2},
        "stack": {1},
        "gather": {2},
    }.get(kind, set())


# *** Functions ***


def native_functions(program: Program) -> Functions:
    """The native functions of a program."""
    functions = Functions(program)
    size = -1
    while size != len(functions.bodies):
        size = len(functions.bodies)
        functions.bodies = {name: b for name, b in functions.bodies.items() if not _is_python(name, functions)}
    return functions


def _is_python(name: str, functions: Functions) -> bool:
    """Whether a function has instructions that are not native, or calls such functions."""
    body = functions.bodies[name]
    elements = ElementTypes(body.instrs)
    if any(why_not(instr, elements, functions) for instr in body.instrs):
        return True
    values = (*body.params, *body.results)
    return any(v.representation not in ("scalar", "array") for v in values) or bool(_values(values, elements, None))


# *** Regions ***


def native_regions(program: Program, functions: Functions | None = None) -> list[NativeRegion]:
    """The native regions of a program, outermost first; none is inside another.

    Args:
      program: The program.
      functions: Its native functions; None to find them.
    """
    functions = native_functions(program) if functions is None else functions
    found: list[NativeRegion] = []
    blocks, names = [program.block], set[str]()
    while blocks:
        block = blocks.pop()
        mine = block_regions(block, block is program.block, functions)
        found += mine
        inside = {k for r in mine for k in range(r.start, r.stop)}
        left = [instr for k, instr in enumerate(block.instrs) if k not in inside]
        blocks += [b for instr in left for b in instr.blocks]
        called = {i.function for i in left if isinstance(i, Call)} - names
        names |= called
        blocks += [program.functions[name].block for name in sorted(called)]
    return found


def block_regions(block: Block, lists_cross: bool = False, functions: Functions | None = None) -> list[NativeRegion]:
    """The native regions of one block.

    Args:
      block: The block.
      lists_cross: Whether lists may pass between a region and the code around it.
      functions: The native functions that the block may call; None for none.
    """
    functions = Functions() if functions is None else functions
    instrs = functions.rewritten(block.instrs)
    results = tuple(map(functions.value, block.results))
    elements = ElementTypes(instrs)
    rows = _rows(instrs)
    banned: set[int] = {k for k, instr in enumerate(instrs) if why_not(instr, elements, functions)}
    while True:
        runs = _runs(len(block.instrs), banned)
        bad: set[int] = set()
        for start, stop in runs:
            values = _crossing(instrs, results, start, stop)
            stay = {v for v in values if v not in rows and not (lists_cross and elements.may_cross(v))}
            bad |= {k for k in range(start, stop) if not stay.isdisjoint({*deep_reads(instrs[k]), *instrs[k].made})}
        if not bad:
            break
        banned |= bad
    out = []
    for start, stop in runs:
        region = make_region(block, start, stop, instrs, elements)
        if is_worth_a_call(region):
            out.append(region)
    return out


def _rows(instrs: Iterable[Instr]) -> dict[Value, Compute]:
    """The instructions of a block that make rows of arrays."""
    return {
        instr.made[0]: instr
        for instr in instrs
        if isinstance(instr, Compute)
        and isinstance(instr.work, ListOperation)
        and instr.work.role.kind == "from_tensor"
        and instr.made
        and instr.made[0].representation == "rows"
        and not why_not(instr)
        and all(v.storage == "constant" for v in instr.inputs[1:])
    }


def _runs(n: int, banned: set[int]) -> list[tuple[int, int]]:
    out = []
    start = 0
    for k in range(n + 1):
        if k == n or k in banned:
            if start < k:
                out.append((start, k))
            start = k + 1
    return out


def _crossing(instrs: Sequence[Instr], results: Iterable[Value], start: int, stop: int) -> set[Value]:
    """The lists, rows and tuples that a run shares with the code around it."""
    inside = instrs[start:stop]
    made = {v for instr in inside for v in instr.made}
    behind = set(results).union(*(deep_reads(i) for i in instrs[stop:]))
    special = {v for instr in inside for v in (*deep_reads(instr), *instr.made) if _is_special(v)}
    return {v for v in special if v not in made or v in behind}


def _is_special(v: Value) -> bool:
    """Whether native code and Python have different forms of a value."""
    return v.representation in ("list", "rows") or is_tuple(v)


def make_region(
    block: Block, start: int, stop: int, instrs: Sequence[Instr] | None = None, elements: ElementTypes | None = None
) -> NativeRegion:
    """The region of the instructions of a block from `start` to below `stop`.

    Args:
      block: The block.
      start: The position of the first instruction.
      stop: The position behind the last one.
      instrs: The instructions of the block, rewritten; None to rewrite them.
      elements: The types of the elements of lists; None to compute them.
    """
    instrs = Functions().rewritten(block.instrs) if instrs is None else instrs
    mine = flat(instrs[start:stop])
    rows = _rows(instrs)
    crossing = _crossing(instrs, block.results, start, stop)
    made = {v for instr in mine for v in instr.made}
    entering: list[Instr] = [rows[v] for v in rows if v in crossing and v not in made]
    leaving = [rows[v] for v in rows if v in crossing and v in made]
    mine = entering + mine
    made.update(v for instr in entering for v in instr.made)
    reads: dict[Value, None] = {}
    for instr in mine:
        reads.update(_used(instr, set()))
    outside = [v for v in reads if v not in made and (v.storage != "constant" or is_large(v))]
    # feeds in the order of the step, then values that kernels read from its state
    inputs = tuple(sorted(outside, key=lambda v: (v.storage == "constant", v.number)))
    behind = set(block.results).union(*(deep_reads(i) for i in [*instrs[stop:], *leaving]))
    results = dict.fromkeys(v for v in (*block.results, *(v for instr in mine for v in instr.made)) if v in made)
    outputs = tuple([v for v in results if v in behind and v.representation != "rows"])  # fetches in their order
    return NativeRegion(block, start, stop, inputs, outputs, elements or ElementTypes(mine), mine, leaving)


def _used(instr: Instr, defined: set[Value]) -> dict[Value, None]:
    """The values from outside that code for an instruction reads, without parameters of its form."""
    if isinstance(instr, Compute):
        return {v: None for v in instr.inputs if v not in defined and not _is_parameter(instr, v)}
    found = dict.fromkeys(v for v in instr.inputs if v not in defined)
    inner = set(defined)
    if isinstance(instr, Loop):
        fixed = [x.initial for x in instr.variables]
        if instr.trip is not None:
            fixed += [instr.trip.first, *(v for limit in instr.trip.limits for v in (limit.first, limit.limit))]
            inner.add(instr.trip.counter)
        inner.update(x.param for x in instr.variables)
        found.update((v, None) for v in fixed if v not in defined)
    for block in instr.blocks:
        for i in block.instrs:
            found.update(_used(i, inner))
            inner.update(i.made)
        found.update((v, None) for v in block.results if v not in inner)
    return found


def is_worth_a_call(region: NativeRegion) -> bool:
    """Whether native code saves enough time of a run to be compiled."""
    values = (*region.inputs, *region.outputs)
    call = thresholds.NATIVE_CALL + thresholds.NATIVE_ARGUMENT * len(values)
    call += 2 * thresholds.NUMPY_CALL * sum(v.representation == "list" for v in values)
    return sum(map(_saved, region.instrs)) > call + thresholds.NATIVE_LEAST_SAVING


def _saved(instr: Instr) -> float:
    """Nanoseconds that native code of an instruction is likely to save in a run."""
    if isinstance(instr, Loop):
        trips = thresholds.NATIVE_UNKNOWN_TRIPS
        if instr.trip is not None and instr.trip.most is not None:
            trips = instr.trip.most
        return trips * (thresholds.NUMPY_SCALAR + sum(map(_saved, instr.body.instrs)))
    if isinstance(instr, Call):
        return thresholds.NATIVE_UNKNOWN_TRIPS * thresholds.NUMPY_SCALAR
    if isinstance(instr, Compute):
        if isinstance(instr.work, Map):
            count = ufuncs(instr.work.expression)
            if instr.work.is_scalar:
                return count * thresholds.NUMPY_SCALAR
            size = max(0, instr.made[0].bytes) if instr.made else 0
            return count * (thresholds.NUMPY_CALL + thresholds.NUMPY_BYTE * size)
        if isinstance(instr.work, Parts):
            return sum(map(_saved, instr.work.instrs))
        if isinstance(instr.work, Move) and isinstance(instr.work.form, Reduce):
            return thresholds.NUMPY_CALL + thresholds.NUMPY_BYTE * max(0, instr.inputs[instr.work.form.source].bytes)
        is_window = isinstance(instr.work, Move) and isinstance(instr.work.form, Window)
        if isinstance(instr.work, CrossEntropy) or is_window:
            return 20 * thresholds.NUMPY_CALL
        return thresholds.NUMPY_CALL if isinstance(instr.work, _MOVES) else 0.0
    return max((sum(map(_saved, b.instrs)) for b in instr.blocks), default=0.0)
