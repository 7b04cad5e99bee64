"""Access checks of TensorFlow 1 arrays: elements are written once and usually read once.

`headrace.v1.TensorArray` is a tensor list, as `hr.TensorArray` is: a value, with gradients of all orders. A program for
TensorFlow 1 expects an error if it writes an element twice, or reads an element that an earlier read cleared. These
operations raise the error:

    array = _TensorArrayTrack(TensorListReserve(...))       # a new `Accesses` for each execution
    mark = _TensorArrayMarkWritten(array, i)                # fails the second time
    array = TensorListSetItem(array, i, x) ^mark
    mark = _TensorArrayMarkRead(array, i)
    x = TensorListGetItem(array, i) ^mark

The read or write waits for its mark, so both run the same number of times. The gradient reads only the list operations.
If the indices show that no element can be written or read twice, the pass `array_marks` removes all of these operations
(`optimize.array_marks`).

Source: the rules are those of TensorFlow's `TensorArrayV3`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, string_attr
from headrace.opkit.jvp_rules import linear
from headrace.opkit.shape_rules import nothing
from headrace.opkit.tensor_lists import keeps_list
from headrace.resources.array_accesses import Accesses
from headrace.resources.tensor_list import TensorList, list_of

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

Attrs = Mapping[str, Any]
_EFFECT = Facts(effect="step", writes=True)


def _track(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], TensorList]:
    name = attrs["tensor_array_name"] or ctx.node.rpartition("/")[0] or ctx.node
    clear_after_read = attrs["clear_after_read"]
    return lambda handle: list_of(handle).tracked(Accesses(name, clear_after_read))


def _refill(ctx: KernelContext, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    def kernel(handle: Any, array: Any) -> TensorList:
        new, accesses = list_of(handle), list_of(array).accesses
        if accesses is not None:
            accesses.write(range(new.length()))
        return new.tracked(accesses)

    return kernel


def _marks(mark: Callable[[Accesses, Iterable[int]], None]) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[[Any, Any], None]:
        is_all = attrs["all"]

        def kernel(handle: Any, indices: Any) -> None:
            array = list_of(handle)
            if array.accesses is not None:
                mark(array.accesses, range(array.length()) if is_all else np.ravel(indices).tolist())

        return kernel

    return factory


op(
    "_TensorArrayTrack",
    "input_handle: variant",
    "output_handle: variant",
    {"tensor_array_name": string_attr(""), "clear_after_read": True},
    shape=keeps_list,
    stateful=_track,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="The list as a new array with elements to write once, and to read once if `clear_after_read`.",
)
op(
    "_TensorArrayRefill",
    "input_handle: variant, array: variant",
    "output_handle: variant",
    shape=keeps_list,
    stateful=_refill,
    grad=lambda b, n, dlist: [dlist, None],
    jvp=linear("input_handle"),
    facts=_EFFECT,
    doc="The list as the new value of `array`, with all of its elements marked as written.",
)
for _type, _mark, _what in (
    ("_TensorArrayMarkRead", Accesses.read, "read"),
    ("_TensorArrayMarkWritten", Accesses.write, "written"),
):
    op(
        _type,
        "handle: variant, indices: int32",
        "",
        {"all": False},
        shape=nothing,
        stateful=_marks(_mark),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc=f"Marks the elements at `indices` (with `all`, every one) as {_what}; fails if that is not allowed.",
    )
