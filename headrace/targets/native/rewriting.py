"""Instructions of native code in place of calls of kernels.

The Python target applies numpy to whole arrays, so only ufuncs are worth an instruction. Machine code has more: choices
between numbers, conversions, the division of integers, which fails if a divisor is zero, vectors of numbers, and the
cross entropy of few rows. `rewritten` returns the instructions of a block with these in place of kernel calls, also in
inner blocks. The program keeps its own instructions, for the Python target; values are common to both.

A choice of rows is two instructions: a view of the vector of conditions as a column, and a map. A sum of many arrays,
whose expression would be too deep, is several maps, in the same order. In the block of the step they are the `Parts` of
one instruction, since the block keeps its instructions, of which some run in Python. In an inner block, an operation on
rows with sums or maxima of each row, such as softmax, is maps and reductions. Elsewhere the kernel reads each row once,
by `row_maps`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from headrace import shapes, thresholds
from headrace.dtypes import as_dtype
from headrace.ir.kernel import made_for
from headrace.opkit.forms import NATIVE, Reduce, Reshape, Window, form_of
from headrace.records import record
from headrace.schedule.program import Block, Branches, Compute, Instr, Loop, Value
from headrace.schedule.scalar_expressions import DEEPEST, Apply, Check, Input, formula, is_plain, row_formula_of
from headrace.schedule.select import Constant, KernelCall, Map, Move
from headrace.targets.native import grown


@record(frozen=True, slots=True)
class Division(Map):
    """Map that divides integers by input 1.

    Attributes:
      check: The check that no divisor is zero.
    """

    check: Check


@record(frozen=True, slots=True)
class CrossEntropy:
    """Cross entropies of rows with the labels in input 1, and their gradient."""

    def __str__(self) -> str:
        return "cross entropy"


@record(frozen=True, slots=True)
class Parts:
    """Instructions that do the work of one together.

    Attributes:
      instrs: The instructions.
    """

    instrs: tuple[Instr, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.instrs))


def rewritten(instrs: Sequence[Instr]) -> list[Instr]:
    """The instructions of a block, with maps in place of kernel calls."""
    return [_whole(instr) for instr in instrs]


def flat(instrs: Iterable[Instr]) -> list[Instr]:
    """Instructions with their parts in place of those that have some."""
    out: list[Instr] = []
    for instr in instrs:
        is_whole = isinstance(instr, Compute) and isinstance(instr.work, Parts)
        out += instr.work.instrs if is_whole else [instr]  # type: ignore[attr-defined]
    return out


def _whole(instr: Instr) -> Instr:
    parts = _parts_of(instr)
    return dataclasses.replace(instr, work=Parts(tuple(parts))) if parts else _rewritten(instr)  # type: ignore[call-arg]


def _rewritten(instr: Instr) -> Instr:
    if isinstance(instr, Compute):
        if isinstance(instr.work, KernelCall):
            found = (
                _map_of(instr, instr.work)
                or _constant_of(instr, instr.work)
                or _form_of(instr, instr.work)
                or _cross_entropy_of(instr, instr.work)
                or grown.work_of(instr)
            )
            inputs = () if isinstance(found, Constant) else instr.inputs
            return instr if found is None else dataclasses.replace(instr, inputs=inputs, work=found)  # type: ignore[arg-type]
    elif isinstance(instr, Loop):
        test = None if instr.test is None else _block(instr.test)
        return dataclasses.replace(instr, body=_block(instr.body), test=test)
    elif isinstance(instr, Branches):
        return dataclasses.replace(instr, branches=tuple(map(_block, instr.branches)))
    return instr


def _block(block: Block) -> Block:
    return dataclasses.replace(block, instrs=[made for instr in block.instrs for made in _expanded(instr)])


def _expanded(instr: Instr) -> list[Instr]:
    """The instructions in place of one of an inner block."""
    if not isinstance(instr, Compute) or not isinstance(instr.work, KernelCall):
        return [_rewritten(instr)]
    if instr.work.kernel.factory is not instr.op.opdef.kernel or not instr.made:
        return [_rewritten(instr)]
    form = _form_of(instr, instr.work, is_inner=True)
    return (
        _parts_of(instr)
        or _on_rows(instr, instr.work)
        or [_rewritten(instr) if form is None else dataclasses.replace(instr, work=form)]
    )


def _parts_of(instr: Instr) -> list[Instr]:
    """The instructions in place of one of any block; none if it stays one."""
    if not isinstance(instr, Compute) or not isinstance(instr.work, KernelCall) or not instr.made:
        return []
    if instr.work.kernel.factory is not instr.op.opdef.kernel:
        return []
    if instr.op.type == "Select" and _is_of_rows(instr):
        return _choice_of_rows(instr)
    return _long_sum(instr) if instr.op.type == "AddN" and len(instr.inputs) > DEEPEST else []


def _long_sum(instr: Compute) -> list[Instr]:
    """The sums of groups of arrays, each with the sum of those before."""
    (out,) = instr.made
    dtype, shape = out.dtype.numpy, tuple(d for d in out.shape or () if d is not None)
    if not is_plain(dtype) or not all(v.is_static and v.shape == out.shape for v in (*instr.inputs, out)):
        return []
    parts: list[Instr] = []
    total, *left = instr.inputs
    while left:
        group, left = [total, *left[: DEEPEST - 1]], left[DEEPEST - 1 :]
        expression: Apply | Input = Input(0)
        for k in range(1, len(group)):
            expression = Apply(np.add, (expression, Input(k)), dtype, shape)
        assert isinstance(expression, Apply)
        total = Value(out.number, out.tensor, out.dtype, out.shape, out.representation, "fresh") if left else out
        parts.append(Compute(instr.op, tuple(group), (total,), Map(expression, not shape)))
    return parts


def _choice_of_rows(instr: Compute) -> list[Instr]:
    """A column of the conditions, and a map."""
    condition, x, y = instr.inputs
    shape = (*(condition.shape or ()), *[1] * (len(x.shape or ()) - 1))
    column = Value(condition.number, condition.tensor, condition.dtype, shape, "array", "shared")
    choice = Apply(np.where, (Input(0), Input(1), Input(2)), x.dtype.numpy, instr.made[0].shape)  # type: ignore[arg-type]
    return [
        Compute(instr.op, (condition,), (column,), Move(Reshape(0, shape))),  # type: ignore[arg-type]
        dataclasses.replace(instr, inputs=(column, x, y), work=Map(choice, False)),
    ]


def _on_rows(instr: Compute, work: KernelCall) -> list[Instr]:
    """The instructions of an operation with reductions of each row; none for other operations."""
    op, dtypes = instr.op, [v.dtype.numpy for v in instr.inputs]
    first = instr.inputs[0].shape if instr.inputs else None
    shape = tuple(d for d in first or () if d is not None)
    if not shape or work.kernel.form != "pure" or any(v.shape != shape for v in instr.inputs):
        return []
    if math.prod(shape) > thresholds.NATIVE_EXPANDED_ROWS:
        return []
    if not all(is_plain(d) for d in dtypes) or not all(v.is_static for v in instr.made):
        return []
    formula = row_formula_of(work.kernel.factory, op.attrs, dtypes, shape, [t.dtype.numpy for t in op.outputs])
    if formula is None:
        return []
    known = list(instr.inputs)
    out: list[Instr] = []

    def value(dtype: np.dtype, shape: tuple[int | None, ...]) -> Value:
        return Value(instr.made[0].number, instr.made[0].tensor, as_dtype(dtype), shape, "array", "fresh")

    for ufunc, expression in formula.reductions:
        reduced = known[expression.index] if isinstance(expression, Input) else value(expression.dtype, shape)
        if isinstance(expression, Apply):
            out.append(Compute(op, tuple(known), (reduced,), Map(expression, False)))
        known.append(value(reduced.dtype.numpy, (*shape[:-1], 1)))
        form = Reduce(0, ufunc, (len(shape) - 1,), True)
        out.append(Compute(op, (reduced,), (known[-1],), Move(form)))
    for v, (expression, dtype, result) in zip(instr.outputs, formula.results, strict=True):
        if v is None:
            continue
        made = known[expression.index] if isinstance(expression, Input) else v
        if isinstance(expression, Apply):
            made = v if result == shape else value(dtype, (*shape[:-1], 1))
            out.append(Compute(op, tuple(known), (made,), Map(expression, False)))
        if made is not v:
            out.append(Compute(op, (made,), (v,), Move(Reshape(0, result))))
    return out


def _is_of_rows(instr: Compute) -> bool:
    """Whether a `Select` has an element of a vector for each row."""
    condition, x, y = instr.inputs
    if not all(v.is_static and v.representation == "array" for v in instr.inputs) or not is_plain(x.dtype.numpy):
        return False
    return len(x.shape or ()) > 1 and x.shape == y.shape and condition.shape == (x.shape or ())[:1]


def _map_of(instr: Compute, work: KernelCall) -> Map | None:
    """The map that a kernel computes; None if it is none."""
    op, kernel = instr.op, work.kernel
    if len(op.outputs) != 1 or not op.inputs or not instr.made or kernel.form != "pure":
        return None
    if kernel.factory is not op.opdef.kernel:
        return None
    if any(t.dtype.is_ref for t in op.inputs):
        return None
    found = formula(op, kernel.factory)
    if found is None:
        return None
    is_scalar = all(t.shape == () for t in (*op.inputs, op.outputs[0]))
    match found.checks:
        case ():
            return Map(found.expression, is_scalar)
        case (Check(Apply(np.not_equal, (Input(1), 0))) as check,):
            return Division(found.expression, is_scalar, check)
    return None


def _form_of(instr: Compute, work: KernelCall, is_inner: bool = False) -> Move | None:
    """The form of a kernel's operation that native code alone has.

    Only inner blocks call functions of windows. Elsewhere their kernels, which take any number of images, do.
    """
    if work.kernel.factory is not instr.op.opdef.kernel or not instr.made:
        return None
    form = form_of(instr.op)
    return Move(form) if isinstance(form, NATIVE) and (is_inner or not isinstance(form, Window)) else None


def _cross_entropy_of(instr: Compute, work: KernelCall) -> CrossEntropy | None:
    """The instruction for a small `SparseSoftmaxCrossEntropyWithLogits`; None for other kernels.

    Kernels of larger ones use the library.
    """
    op = instr.op
    if op.type != "SparseSoftmaxCrossEntropyWithLogits" or work.kernel.factory is not op.opdef.kernel:
        return None
    logits, labels = instr.inputs
    shape = logits.shape or ()
    is_known = logits.is_static and labels.is_static and len(shape) == 2 and labels.shape == shape[:1]
    size = shapes.size(shape)
    if not is_known or not size or size >= thresholds.NATIVE_MAP:
        return None
    return CrossEntropy() if logits.dtype.numpy in (np.dtype(np.float32), np.dtype(np.float64)) else None


def _constant_of(instr: Compute, work: KernelCall) -> Constant | None:
    """The result of a kernel that depends on constants and static shapes alone, else None.

    Functions that call themselves have such operations, since the passes on graphs do not change their library.
    """
    op, kernel = instr.op, work.kernel
    if op.type == "ZerosLike" and instr.made and kernel.factory is op.opdef.kernel and instr.made[0].is_static:
        dtype = instr.made[0].dtype.numpy
        return Constant(np.zeros(instr.made[0].shape or (), dtype)) if is_plain(dtype) else None
    if op.inputs and not (op.type == "Fill" and all(v.storage == "constant" for v in instr.inputs)):
        return None
    if len(op.outputs) != 1 or kernel.form != "pure" or not op.opdef.is_pure or not instr.made:
        return None
    if not instr.made[0].is_static or instr.made[0].representation not in ("array", "scalar"):
        return None
    found = made_for(op, kernel)(*(v.constant for v in instr.inputs))
    return Constant(found) if isinstance(found, np.ndarray | np.generic) else None
