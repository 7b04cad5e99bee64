"""Buffers: the ufuncs of each map of arrays, and the arrays that take the results.

A ufunc needs no new array if one of its operands is an array that was made in the same block, has the shape and dtype
of the result, and has no later reader. The array must also be unreachable through views and lists. This is certain
because only maps, reductions and products keep no reference to their operands (`lifetimes.retained`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from headrace.schedule.lifetimes import retained
from headrace.schedule.program import Compute, Group, Step
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import Map

if TYPE_CHECKING:
    from headrace.schedule.program import Program, Value


def assign_buffers(program: Program) -> None:
    """Sets `steps` of all maps of arrays; `drops` must be known."""
    kept: dict[int, set[Value]] = {}  # of the blocks of groups
    for block in program.walk():
        keeps = kept.get(id(block)) or {*retained(block.instrs), *block.results}
        is_group = id(block) in kept
        for instr in block.instrs:
            if isinstance(instr, Group):
                kept[id(instr.block)] = {*keeps, *instr.block.results}
            elif isinstance(instr, Compute) and isinstance(instr.work, Map) and not instr.work.is_scalar:
                spare = {v for v in instr.drops if v not in keeps}
                is_placed = is_group and instr.outputs[0] in block.results
                instr.steps = _steps(instr, instr.work.expression, spare, is_placed)


def can_hold(value: Value, expression: Apply) -> bool:
    """Whether the array of `value` is its own, and fits the result of a map."""
    return (
        value.storage == "fresh"
        and expression.shape is not None
        and value.shape == expression.shape
        and value.dtype.numpy == expression.dtype
    )


def _steps(instr: Compute, found: Apply, spare: Collection[Value], is_placed: bool) -> tuple[Step, ...]:
    """The ufuncs of a map in order.

    Args:
      instr: The map.
      found: Its expression.
      spare: Inputs whose arrays may be overwritten after their last read.
      is_placed: Whether the result has an array of its own already.

    Returns:
      The steps; the last one makes the result.
    """
    inputs = instr.inputs
    left = _reads(found)  # number of reads of each input that are still to come
    used = _uses(found)
    holds = dict.fromkeys(v for v in inputs if v in spare and can_hold(v, found))
    free: list[int] = []  # buffers without a later reader that can hold the result
    done: dict[int, int] = {}
    steps: list[Step] = []

    def visit(node: Apply) -> int:
        if id(node) in done:
            return done[id(node)]
        args: list[int | tuple[Any, ...]] = [
            a.index if isinstance(a, Input) else visit(a) if isinstance(a, Apply) else (a,) for a in node.args
        ]
        for a in node.args:
            if isinstance(a, Input):
                left[a.index] -= 1
                value = inputs[a.index]
                if value in holds and not any(left.get(i, 0) for i, v in enumerate(inputs) if v is value):
                    del holds[value]
                    free.append(a.index)
            elif isinstance(a, Apply):
                used[id(a)] -= 1
                if not used[id(a)] and _alike(a, found):
                    free.append(done[id(a)])
        is_free = free and _alike(node, found) and not (is_placed and node is found)
        into = free.pop() if is_free else None
        steps.append(Step(node.ufunc, tuple(args), into, node.dtype, node.shape))
        done[id(node)] = -len(steps)
        return -len(steps)

    visit(found)
    return tuple(steps)


def _reads(found: Apply) -> dict[int, int]:
    """The number of reads of each input, by position."""
    out: dict[int, int] = {}
    for node in _nodes(found):
        for a in node.args:
            if isinstance(a, Input):
                out[a.index] = out.get(a.index, 0) + 1
    return out


def _uses(found: Apply) -> dict[int, int]:
    """The number of readers of each application, by id."""
    out: dict[int, int] = {}
    for node in _nodes(found):
        for a in node.args:
            if isinstance(a, Apply):
                out[id(a)] = out.get(id(a), 0) + 1
    return out


def _nodes(found: Apply) -> list[Apply]:
    """The applications of an expression, each once."""
    out, waiting, seen = [], [found], {id(found)}
    while waiting:
        node = waiting.pop()
        out.append(node)
        for a in node.args:
            if isinstance(a, Apply) and id(a) not in seen:
                seen.add(id(a))
                waiting.append(a)
    return out


def _alike(a: Apply, b: Apply) -> bool:
    """Whether two results have equal static shapes and dtypes, so that one buffer fits both."""
    return a.shape is not None and a.shape == b.shape and a.shape != () and a.dtype == b.dtype
