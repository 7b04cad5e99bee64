"""Checks that a graph can be cut as its placement requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.errors import HeadraceInternalError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.ir.analysis.frames import Frame
    from headrace.ir.graph import Operation, Tensor
    from headrace.partition.copies import Where


def colocation(ops: Sequence[Operation], of: Mapping[Operation, str]) -> None:
    """Checks that every operation has a device, and that Merges share it with their inputs.

    The inputs concerned are the NextIterations and the Enters that are not constant.

    Raises:
      HeadraceInternalError: the placement violates this, which is a defect of the placement and not of the user's
        graph.
    """
    for op in ops:
        if op not in of:
            raise HeadraceInternalError(f"{_show(op)} has no device")
        if op.opdef.primitive == "Merge":
            for p in (t.op for t in op.inputs):
                if _enters_iteration(p) and of.get(p) != of[op]:
                    raise HeadraceInternalError(
                        f"{_show(p)} was placed on {of.get(p)}, but the Merge that it feeds, {_show(op)}, on {of[op]}; "
                        "they must be on one device"
                    )


def _enters_iteration(op: Operation) -> bool:
    """Whether `op` brings a value into a single iteration: an Enter or a NextIteration."""
    return op.opdef.primitive == "NextIteration" or (op.opdef.primitive == "Enter" and not op.attrs["is_constant"])


def handles(order: Iterable[Operation], where: Where) -> None:
    """Checks that resources and references to variables are used on their own device only.

    Raises:
      InvalidArgumentError: one is used elsewhere; the text names the operation that makes it and the one that uses it.
    """
    seen: dict[tuple[Operation, str], Operation] = {}  # for a copied Enter and a device, a reader of the Enter there
    ordered = list(order)
    for op in reversed(ordered):
        for device in where[op]:
            reader = seen.get((op, device), op) if op.opdef.primitive == "Enter" else op
            for t, want in zip(op.inputs, op.opdef.input_dtypes(op.attrs), strict=True):
                seen.setdefault((t.op, device), reader)
                if device not in where[t.op] and (want.is_ref or t.dtype.base is dtypes.resource):
                    raise _cannot_be_sent(t, where[t.op][0], reader, device)


def _cannot_be_sent(t: Tensor, home: str, reader: Operation, device: str) -> InvalidArgumentError:
    what = f"a reference to a variable of {t.dtype.base.name}" if t.dtype.is_ref else "a handle of a resource"
    return InvalidArgumentError(
        f"{_show(reader)} was placed on {device}, but it uses '{t.name}', {what}, which {_show(t.op)} makes on {home}. "
        "A resource cannot be used from another device: request one device for both (a device scope, or "
        "colocate_with), or read it on its own device and use the value",
        reader.name,
        reader,
    )


def loop_conds(spread: Mapping[Frame, Sequence[str]], where: Where) -> None:
    """Checks that every loop on several devices has exactly one predicate.

    Raises:
      InvalidArgumentError: a loop with none, or with several.
    """
    for frame, devices in spread.items():
        found = [op for op in frame.ops if op.type == "LoopCond"]
        if len(found) == 1:
            continue
        first = {device: next((op for op in frame.ops if device in where[op]), None) for device in devices}
        at = "; ".join(f"{device}: " + ("a loop inside" if op is None else _show(op)) for device, op in first.items())
        has = "several: " + ", ".join(map(_show, found)) if found else "none"
        op = (found or frame.enters)[0]
        raise InvalidArgumentError(
            f"the loop '{frame.name}' is on several devices ({at}). Such a loop needs exactly one LoopCond, and it has "
            f"{has}. Request one device for all operations of the loop",
            op.name,
            op,
        )


def _show(op: Operation) -> str:
    made = f", made at {op.source}" if op.source is not None else ""
    return f"'{op.name}' ({op.type}{made})"
