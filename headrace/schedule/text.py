"""Text of a schedule: a line for each instruction, and indented blocks.

    add:0 float32[4] = map add($0, $1) (x:0, y:0)
    while:1 float32[4] = While (zero:0, x:0)
      condition:
        ...
      body:
        ...

`$0` is input 0 of the operation, in parentheses at the end of the line. Constants have no line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace import shapes
from headrace.opkit.forms import Concat, Form, Permute, Pieces, Product, Reduce, Reshape, index_text
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import Constant, Forward, KernelCall, ListOperation, Map, Move, Nothing

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor
    from headrace.schedule.regions import Item, Region, Regions
    from headrace.schedule.select import Instruction, Selection


def show(regions: Regions, selection: Selection) -> str:
    """Text of all regions of a step; functions that call themselves stand before the step."""
    lines: list[str] = []
    for name, region in regions.functions.items():
        lines += [f"function {name}:", *_indented(_region(region, selection))]
    lines += _region(regions.root, selection)
    return "\n".join(lines)


def _region(region: Region, selection: Selection) -> Iterator[str]:
    for item in region.items:
        if item.kind:
            yield from _structured(item, selection)
            continue
        if item.op.opdef.facts.graph_end:
            yield f"return {item.op.inputs[0].name}"
            continue
        found = selection.of(item)
        if not isinstance(found, (Nothing, Constant)):
            yield f"{_outputs(item)}{_instruction(found)} ({', '.join(t.name for t in item.op.inputs)})"
    if region.results:
        yield f"results: {', '.join(t.name for t in region.results)}"


def _structured(item: Item, selection: Selection) -> Iterator[str]:
    op = item.op
    what = item.kind
    if item.kind == "Recursive":
        what = f"call {op.attrs['f'].name}"
    elif item.trip_count is not None:
        what = "While, which only counts,"
    yield f"{_outputs(item)}{what} ({', '.join(t.name for t in item.reads)})"
    titles = {"If": ("else", "then"), "While": ("condition", "body")}
    for i, region in enumerate(item.regions):
        named = titles.get(item.kind)
        title = named[i] if named is not None else f"branch {i}" if item.kind == "Case" else "function"
        if item.trip_count is None or title != "condition":
            yield f"  {title}:"
            yield from _indented(_region(region, selection), 4)


def _indented(lines: Iterator[str], by: int = 2) -> Iterator[str]:
    return (textwrap.indent(line, " " * by) for line in lines)


def _outputs(item: Item) -> str:
    made = ", ".join(f"{t.name} {_type(t)}" for t in (item.op.outputs[i] for i in item.live))
    return f"{made} = " if made else ""


def _type(t: Tensor) -> str:
    return f"{t.dtype.name}{shapes.show(t.shape)}"


def _instruction(found: Instruction) -> str:
    match found:
        case Map(expression, is_scalar):
            return f"{'scalar' if is_scalar else 'map'} {_expression(expression)}"
        case Move(form):
            return _form(form)
        case ListOperation(role, kind):
            return f"{role.kind} of a {kind}" if kind == "list" else f"{role.kind} of {kind}"
        case Forward(source):
            return f"forward ${source}"
        case KernelCall(kernel):
            return f"kernel {kernel.form}"
    return type(found).__name__


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
        case Concat(_, axis):
            return f"concat along {axis}"
        case Reduce(_, ufunc, axes, keep_dims):
            return f"reduce {ufunc.__name__} over {shapes.show(axes)}{' keeping dims' if keep_dims else ''}"
        case Product(turned):
            return f"product {' '.join('transposed' if t else 'plain' for t in turned)}"
