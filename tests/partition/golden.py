"""Graphs whose parts are kept as text in `golden/`.

`python -m tests.partition.golden` writes the texts again.

Operations stand where they ask to (`hr.device`), else on device 0; gradients where what they are the gradients of
stands; Merge, Switch, NextIteration and Exit of a loop variable where its next value is made. Element types, shapes
and devices are left out of the text.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import headrace as hr
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Operation
from headrace.ir.text import to_text
from headrace.lower import lower
from headrace.partition import Part
from headrace.prune import prune
from tests.partition.machine import cut, names, units

GOLDEN = pathlib.Path(__file__).parent / "golden"


def placeholders(*called: str) -> list[Any]:
    return [hr.placeholder(hr.float32, [], name=name) for name in called]


def conditional() -> Any:
    """The branches stand on other devices than the predicate."""
    x, y, z = placeholders("x", "y", "z")

    def add() -> Any:
        with hr.device("/cpu:1"):
            return hr.add(x, z, name="add")

    def square() -> Any:
        with hr.device("/cpu:2"):
            return hr.square(y, name="square")

    return hr.cond(x < y, add, square)


def loop() -> Any:
    """One operation of the body, which reads a loop constant, stands elsewhere."""
    n, c = placeholders("n", "c")

    def body(i: Any, s: Any) -> Any:
        with hr.device("/cpu:1"):
            work = hr.multiply(i, c, name="work")
        return i + 1.0, s + work

    return hr.while_loop(lambda i, s: i < n, body, [0.0, 0.0])[1]


def nested_loop() -> Any:
    """A variable of the inner loop stands elsewhere; of the outer loop nothing else does."""
    n, c = placeholders("n", "c")

    def body(i: Any, s: Any) -> Any:
        def step(j: Any, t: Any) -> Any:
            with hr.device("/cpu:1"):
                work = hr.multiply(t, c, name="work")
            return j + 1.0, work

        return i + 1.0, hr.while_loop(lambda j, t: j < i, step, [0.0, s])[1]

    return hr.while_loop(lambda i, s: i < n, body, [0.0, 1.0])[1]


def gradient_of_a_loop() -> Any:
    """A loop variable, its values kept for the gradient, and the gradient stand elsewhere."""
    n, c = placeholders("n", "c")

    def body(i: Any, s: Any) -> Any:
        with hr.device("/cpu:1"):
            work = hr.multiply(s, c, name="work")
        return i + 1.0, work

    out = hr.while_loop(lambda i, s: i < n, body, [0.0, 2.0])[1]
    return hr.gradients(out, [c])[0]


PROGRAMS: tuple[Callable[[], Any], ...] = (conditional, loop, nested_loop, gradient_of_a_loop)


def requested(ops: list[Operation]) -> dict[Operation, str]:
    """The device of each operation."""
    devices = names(3)
    of = {op: devices[DeviceSpec.from_string(op.device).index or 0] if op.device else devices[0] for op in ops}
    of.update((op, devices[1]) for op in ops if "work_grad" in op.name or "TensorList" in op.type)
    for unit in units(ops):
        for op in unit:
            if op.opdef.primitive == "NextIteration":
                of.update(dict.fromkeys(unit, of[op.inputs[0].op]))
    of.update((op, of[op.inputs[0].op]) for op in ops if op.type == "Switch" and op.inputs[0].op.type == "Merge")
    of.update((op, of[op.inputs[0].op]) for op in ops if op.type == "Exit")
    return of


def operations(make: Callable[[], Any]) -> list[Operation]:
    """The operations to cut: the primitives of a program's result."""
    with hr.Graph() as g:
        out = make()
        feeds = [op.outputs[0] for op in g.operations if op.type == "Placeholder"]
        pruned = prune(feeds, [out], [])
    return list(lower(pruned.graph).ops)


def parts_of(make: Callable[[], Any]) -> dict[str, Part]:
    ops = operations(make)
    return cut(ops, requested(ops))


def text(make: Callable[[], Any]) -> str:
    out = f"# {(make.__doc__ or '').strip()}\n"
    for device, part in parts_of(make).items():
        lines = to_text(part.graph)
        lines = re.sub(r" : .*$", "", lines, flags=re.MULTILINE)
        lines = re.sub(r' @".*?"', "", lines)
        lines = re.sub(r"(?<=[\w\]])\{(Residual|StandsFor)\w*(\[.*\])?\}", "", lines)
        lines = re.sub(r'(send_device|recv_device|of)=".*?"(, )?', "", lines)
        lines = re.sub(r"\b(T|dtype|tensor_type|element_dtype)=\w+(, )?", "", lines)
        lines = re.sub(r"(shape=)?\[[\d,]*\](, )?(?=[\]\w{])", "", lines)
        lines = re.sub(r", (?=\])|\[\](?=[\s(])", "", lines)
        out += f"\n# on {device}\n{lines}"
    return out


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for program in PROGRAMS:
        (GOLDEN / f"{program.__name__}.txt").write_text(text(program), encoding="utf-8")
