"""Text of a program: a line for each instruction, and indented blocks.

    %2 float32[4] scalar = map add($0, $1) (%0, %1)      # add, train.py:4
    %7 float32[4] array = Loop (%0, %2)                  # while, train.py:5
      ...

`$0` is input 0 of the instruction, in parentheses behind it. A constant stands where it is read, as its number or its
type. Behind `drop` are the values that end, and behind `into` the buffers that take results of a map.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from headrace import shapes
from headrace.opkit.forms import (
    Accumulate,
    Assemble,
    Broadcast,
    Concat,
    Embed,
    Extreme,
    Form,
    Index,
    OneHot,
    Permute,
    Pieces,
    Positions,
    Product,
    Put,
    Reduce,
    Reshape,
    Take,
    Tile,
    Top,
    Window,
    index_text,
)
from headrace.schedule.program import (
    Block,
    Branches,
    Call,
    Compute,
    Convert,
    Group,
    Instr,
    Loop,
    Program,
    Read,
    Section,
    Segment,
    Value,
)
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import KernelCall, ListOperation, Map, Move


def show(program: Program) -> str:
    """Text of a program; functions that call themselves stand before the step."""
    lines: list[str] = []
    for name, function in program.functions.items():
        params = ", ".join(map(_defined, function.params))
        lines += [f"function {name}({params}):", *_indented(_block(function.block))]
    params = ", ".join(map(_defined, program.params))
    lines += [f"step({params}):", *_indented(_block(program.block))]
    return "\n".join(lines)


def _block(block: Block) -> Iterator[str]:
    for instr in block.instrs:
        made = ", ".join(map(_defined, instr.made))
        what = f"{made} = {_what(instr)}" if made else _what(instr)
        drops = f" drop {_values(instr.drops)}" if instr.drops else ""
        source = instr.op.source
        line = f", {source.brief}" if source is not None and source.line else ""
        yield f"{what}{drops}  # {instr.op.name}{line}"
        yield from _blocks(instr)
    yield f"results ({_values(block.results)})"


def _blocks(instr: Instr) -> Iterator[str]:
    if isinstance(instr, Loop):
        for v in instr.variables:
            final = f", then {v.final}" if v.final is not None else ""
            yield f"  variable {_defined(v.param)}: {_value(v.initial)}, next {_value(v.next)}{final}"
        if instr.trip is not None:
            limits = ", ".join(
                f"{_value(b.limit)}{' inclusive' if b.is_inclusive else ''}"
                + ("" if b.is_own else f" from {_value(b.first)}")
                for b in instr.trip.limits
            )
            yield f"  counter {_defined(instr.trip.counter)}: from {_value(instr.trip.first)} to {limits}"
        if instr.test is not None:
            yield "  while:"
            yield from _indented(_block(instr.test), 4)
        yield "  do:"
        yield from _indented(_block(instr.body), 4)
        return
    if isinstance(instr, Section):
        yield from _indented(_block(instr.block), 4)
    for i, block in enumerate(instr.blocks):
        title = {Group: "slice", Segment: "on the device"}.get(type(instr), f"branch {i}")
        if isinstance(instr, Branches) and not instr.is_case:
            title = ("else", "then")[i]
        yield f"  {title}:"
        yield from _indented(_block(block), 4)


def _what(instr: Instr) -> str:
    inputs = f" ({_values(instr.inputs)})"
    match instr:
        case Compute():
            return f"{_work(instr)}{inputs}"
        case Branches():
            return f"{'Case' if instr.is_case else 'If'}{inputs}"
        case Call():
            return f"call {instr.function}{inputs}"
        case Section():
            return f"section{inputs}"
        case Segment():
            return f"segment of {instr.memory.name}{inputs}"
        case Group():
            given = [f"{v} into {g}" for v, g in zip(instr.made, instr.given, strict=True) if g is not None]
            return f"slices of {instr.step} along axis {instr.axis}{inputs}{''.join(f', {g}' for g in given)}"
    return type(instr).__name__


def _work(instr: Compute) -> str:
    match instr.work:
        case Map(expression, is_scalar):
            text = f"{'scalar' if is_scalar else 'map'} {_expression(expression)}"
            into = {i: s.into for i, s in enumerate(instr.steps) if s.into is not None}
            if into:
                text += f" into {', '.join(f'step {i}: {_buffer(b)}' for i, b in into.items())}"
            return text
        case Move(form):
            return _form(form)
        case ListOperation(role, kind):
            most = f" of at most {instr.most_bytes} bytes" if instr.most_bytes is not None else ""
            return f"{role.kind} of a {kind}{most}" if kind == "list" else f"{role.kind} of {kind}"
        case KernelCall(kernel, bound):
            return f"kernel {instr.op.type} {'bound' if bound else kernel.form}"
        case Convert():
            return "convert"
        case Read():
            return "read"
    return str(instr.work)


def _buffer(number: int) -> str:
    return f"${number}" if number >= 0 else f"step {-number - 1}"


def _defined(value: Value) -> str:
    home = f" in {value.home}" if value.home is not None else ""
    return f"{value} {value.dtype.name}{shapes.show(value.shape)} {value.representation}{home}"


def _values(values: Iterable[Value]) -> str:
    return ", ".join(map(_value, values))


def _value(value: Value) -> str:
    if value.storage != "constant":
        return repr(value)
    array = value.constant
    if isinstance(array, (np.ndarray, np.generic)) and not array.ndim and array.dtype.kind in "biufc":
        return str(np.asarray(array)[()])
    return f"{value.dtype.name}{shapes.show(value.shape)}"


def _indented(lines: Iterator[str], by: int = 2) -> Iterator[str]:
    return (textwrap.indent(line, " " * by) for line in lines)


def _expression(node: Any) -> str:
    if isinstance(node, Input):
        return f"${node.index}"
    if isinstance(node, Apply):
        return f"{node.ufunc.__name__}({', '.join(map(_expression, node.args))})"
    return str(node)


def _form(form: Form) -> str:
    match form:
        case Reshape(_, shape):
            return f"reshape {shapes.show(shape)}"
        case Pieces(_, indices):
            return f"pieces {', '.join(map(index_text, indices))}"
        case Permute(_, axes, is_contiguous):
            return f"permute {shapes.show(axes)}{' contiguous' if is_contiguous else ''}"
        case Concat(_, axis, is_new):
            return f"{'pack' if is_new else 'concat'} along {axis}"
        case Embed(_, shape, index):
            return f"embed {index_text(index)} of {shapes.show(shape)}"
        case Tile(_, times):
            return f"tile {shapes.show(times)}"
        case OneHot(axis, depth):
            return f"one-hot of {depth} along {axis}"
        case Broadcast(_, shape):
            return f"broadcast {shapes.show(shape)}"
        case Reduce(_, ufunc, axes, keep_dims, divisor, _):
            name = "mean" if divisor != 1 else ufunc.__name__
            return f"reduce {name} over {shapes.show(axes)}{' keeping dims' if keep_dims else ''}"
        case Take(_, at, index):
            return f"take {_pieces(index, at)}"
        case Put(_, at, index, shape, base, ufunc):
            into = shapes.show(shape) if base is None else f"input {base}"
            return f"{'put' if ufunc is None else ufunc.__name__} {_pieces(index, at)} of {into}"
        case Extreme(_, axis, is_greatest):
            return f"position of the {'greatest' if is_greatest else 'least'} along {axis}"
        case Accumulate(_, ufunc, axis, is_exclusive, is_reverse):
            return f"{'exclusive ' * is_exclusive}{ufunc.__name__} along {axis}{' in reverse' if is_reverse else ''}"
        case Top(_, count):
            return f"{count} greatest of rows"
        case Window(kind, _, axes):
            return f"{kind.replace('_', ' ')} of windows {shapes.show(tuple(a.size for a in axes))}"
        case Assemble(shape, parts):
            return f"{len(parts)} parts of {shapes.show(shape)}"
        case Product(turned, is_batch):
            return f"{'batch ' * is_batch}product {' '.join('transposed' if t else 'plain' for t in turned)}"


def _pieces(index: Index, at: Positions) -> str:
    return f"{index_text(index)} at {shapes.show(at.shape)} positions along {shapes.show(at.axes)}"
