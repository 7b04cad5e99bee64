"""Value ranges: static bounds of the least and greatest elements of a tensor.

The results of `tanh` are in [-1, 1], so `1 - tanh(x) ** 2` is in [0, 1]. A multiplication by such a value makes nothing
larger. So a pass may multiply in any order, and no intermediate product becomes infinite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import thresholds
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor

Interval: TypeAlias = "tuple[float, float]"


def value_range(
    t: Tensor, within: Operation | None = None, depth: int = thresholds.VALUE_RANGE_DEPTH
) -> Interval | None:
    """Returns an interval that contains all elements of `t` except NaN, or None.

    Args:
      t: a tensor of real numbers.
      within: the While whose body contains `t`, for the initial values of its loop variables.
      depth: the number of operations that the search may still follow.

    Example:
      >>> from headrace.ir.text import from_text
      >>> g = from_text("x = Placeholder[dtype=float32, shape=[3]]\\ny = Tanh(x)\\nz = Square(y)")
      >>> value_range(g.operations[2].outputs[0])
      (0, 1)
    """
    op = t.op
    if depth == 0 or not (t.dtype.base.is_floating or t.dtype.base.is_integer):
        return None
    value = constant_value(t)
    if value is not None:
        return (float(value.min()), float(value.max())) if value.size else None
    facts = op.opdef.facts
    if facts.within is not None and t.index == 0:
        return facts.within
    if facts.forwards is not None and t.index == 0:
        return value_range(op.inputs[facts.forwards], within, depth - 1)
    kind = op.opdef.list_kind
    if kind == "pop" and t.index == 1 and op.inputs[0].op.type == "_Arg" and within is not None:
        return _of_elements(within.inputs[op.inputs[0].op.attrs["index"]], depth - 1)
    if kind == "stack":
        return _of_elements(op.inputs[0], depth - 1)
    if not t.dtype.base.is_floating or op.type not in _ARITHMETIC:  # integers wrap around
        return None
    found = [value_range(x, within, depth - 1) for x in op.inputs]
    a, b = found[0], found[-1]
    if a is None or b is None:
        return None
    if op.type == "Neg":
        return -a[1], -a[0]
    if op.type == "Square" or (op.type == "Mul" and op.inputs[0] is op.inputs[1]):
        ends = sorted(x * x for x in a)
        return (0 if a[0] <= 0 <= a[1] else ends[0]), ends[1]
    if op.type == "Mul":
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    return (a[0] - b[1], a[1] - b[0]) if op.type == "Sub" else (a[0] + b[0], a[1] + b[1])


_ARITHMETIC: Final = frozenset({"Neg", "Square", "Mul", "Sub", "AddV2"})


def _of_elements(values: Tensor, depth: int) -> Interval | None:
    """Returns the range of a list's elements, or None.

    It is known if all elements have one origin: the rows of a tensor, or a push in a loop.
    """
    op = values.op
    if op.opdef.list_kind == "from_tensor":
        return value_range(op.inputs[0], None, depth)
    if op.opdef.structured != "While" or not isinstance(op.attrs["body"], FuncGraph):
        return None
    body: FuncGraph = op.attrs["body"]
    push = body.results[values.index].op
    if push.opdef.list_kind != "push" or push.inputs[0] is not body.params[values.index]:
        return None
    if op.inputs[values.index].op.opdef.list_kind != "empty":
        return None
    return value_range(push.inputs[1], op, depth)
