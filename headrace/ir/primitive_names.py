"""Names of the results of conditionals and loops in TensorFlow 1's primitive form: "cond/Merge", "while/Exit_1"."""

from __future__ import annotations

from typing import Final

_RESULTS: Final = {"If": "Merge", "Case": "Merge", "While": "Exit", "For": "Exit"}


def visible_name(name: str, structured: str, index: int) -> str:
    """Returns the name, in the primitive form, of the operation that produces output `index`.

    Args:
      name: the name of the structured operation.
      structured: its kind, `OpDef.structured` ("If", "While").
      index: the number of the output.
    """
    what = _RESULTS.get(structured)
    if what is None:
        return f"{name}:{index}" if index else name
    return f"{name}/{what}_{index}" if index else f"{name}/{what}"


def result_index(structured: str, name: str) -> int | None:
    """Returns the number of the output that the primitive form calls `name` ("Exit_1"), or None.

    Args:
      structured: the kind of the structured operation.
      name: the name below that of the operation.
    """
    what, _, number = name.partition("_")
    is_number = number.isdigit() and number[0] != "0"
    if what != _RESULTS.get(structured) or not (is_number or name == what):
        return None
    return int(number) if is_number else 0
