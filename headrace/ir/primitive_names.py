"""Names of the results of conditionals and loops in TensorFlow 1's primitive form: "cond/Merge", "while/Exit_1"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.ir.opdef import OpDef

_RESULTS: Final = {"If": "Merge", "Case": "Merge", "While": "Exit", "For": "Exit"}


def visible_name(op: Operation, index: int) -> str:
    """The name, in the primitive form, of the operation that output `index` of a structured one comes out of."""
    what = _RESULTS.get(op.opdef.structured)
    if what is None:
        return f"{op.name}:{index}" if index else op.name
    return f"{op.name}/{what}_{index}" if index else f"{op.name}/{what}"


def result_index(record: OpDef, name: str) -> int | None:
    """The output of an operation of that type that is `name` ("Exit_1") below its name in the primitive form."""
    what, _, number = name.partition("_")
    is_number = number.isdigit() and number[0] != "0"
    if what != _RESULTS.get(record.structured) or not (is_number or name == what):
        return None
    return int(number) if is_number else 0
