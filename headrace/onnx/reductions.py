"""Operators that reduce axes, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.api import arrays, math, sorting
from headrace.api import reductions as r
from headrace.api.gathering import gather
from headrace.dtypes import bool_, int64, uint8
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator


def _max(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    if x.dtype.base == bool_:
        return math.cast(r.reduce_max(math.cast(x, uint8), axis, keepdims), bool_)
    return r.reduce_max(x, axis, keepdims)


def _min(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    if x.dtype.base == bool_:
        return math.cast(r.reduce_min(math.cast(x, uint8), axis, keepdims), bool_)
    return r.reduce_min(x, axis, keepdims)


_REDUCTIONS: Final[dict[str, Callable[[Tensor, Any, bool], Any]]] = {
    "ReduceL1": lambda x, axis, keep: r.reduce_sum(math.abs(x), axis, keep),
    "ReduceL2": lambda x, axis, keep: math.sqrt(r.reduce_sum(x * x, axis, keep)),
    "ReduceLogSum": lambda x, axis, keep: math.log(r.reduce_sum(x, axis, keep)),
    "ReduceLogSumExp": r.reduce_logsumexp,
    "ReduceMax": _max,
    "ReduceMean": r.reduce_mean,
    "ReduceMin": _min,
    "ReduceProd": r.reduce_prod,
    "ReduceSum": r.reduce_sum,
    "ReduceSumSquare": lambda x, axis, keep: r.reduce_sum(x * x, axis, keep),
}


def _register(name: str, f: Callable[[Tensor, Any, bool], Any]) -> None:
    def compute(call: Call, x: Tensor, axes: Tensor | None = None) -> Any:
        given: Any = axes if axes is not None else call.get("axes")
        if axes is not None and axes.shape == (0,):
            given = None
        if given is None and call.get("noop_with_empty_axes"):
            return f(x, [], True)
        return f(x, given, bool(call["keepdims"]))

    operator(name)(compute)


for _name, _f in _REDUCTIONS.items():
    _register(_name, _f)


def _arg(call: Call, x: Tensor, f: Callable[..., Any]) -> Tensor:
    axis = call.axis(x)
    if call.get("select_last_index"):
        size = arrays.shape(x, int64)[axis]
        found = size - 1 - f(arrays.reverse(x, [axis]), axis)
    else:
        found = f(x, axis)
    return arrays.expand_dims(found, axis) if call["keepdims"] else found


@operator("ArgMax")
def arg_max(call: Call, x: Tensor) -> Tensor:
    """Returns the positions of the largest elements."""
    return _arg(call, x, r.argmax)


@operator("ArgMin")
def arg_min(call: Call, x: Tensor) -> Tensor:
    """Returns the positions of the smallest elements."""
    return _arg(call, x, r.argmin)


@operator("CumSum", since=11)
def cum_sum(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    """Returns running sums."""
    at = int(call.static(axis, "axis").reshape(-1)[0])
    return r.cumsum(x, at, bool(call["exclusive"]), bool(call["reverse"]))


@operator("CumProd", since=26)
def cum_prod(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    """Returns running products."""
    at = int(call.static(axis, "axis").reshape(-1)[0])
    return r.cumprod(x, at, bool(call["exclusive"]), bool(call["reverse"]))


@operator("TopK")
def top_k(call: Call, x: Tensor, k: Tensor | None = None) -> Any:
    """Returns the k largest or smallest elements along an axis, and their positions."""
    axis = call.axis(x)
    n = int(call["k"] if k is None else call.static(k, "K").reshape(-1)[0])
    rank = call.rank(x)
    order = [*[a for a in range(rank) if a != axis], axis]
    back = [order.index(a) for a in range(rank)]
    y = arrays.transpose(x, order)
    direction = "DESCENDING" if call.get("largest", 1) else "ASCENDING"
    places = sorting.argsort(y, -1, direction, True)[..., :n]
    found = gather(y, places, batch_dims=rank - 1)
    return arrays.transpose(found, back), math.cast(arrays.transpose(places, back), int64)
