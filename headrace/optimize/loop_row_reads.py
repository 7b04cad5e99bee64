"""Rows that a loop reads from tensors known before it begins.

    inputs = TensorListFromTensor(xs)
    While(i = 0, ...)   condition: i < n      body: x = TensorListGetItem(inputs, i) ...

The loop counts and `inputs` is a loop constant, so in iteration k the value of `x` is row k of `xs`. A function of such
rows and of invariant values alone is a row of a tensor, too, which could be computed before the loop. `RowReads` finds
these tensors of a body, and makes the tensors of which they are rows.

A loop that counts up may read rows from the last to the first, as the gradient of a loop that reads upwards does. Its
index is `last - i`, where the condition is `i <= last`, or `i < n` and `last` is known to be `n - 1`. So rows have a
direction. A function of rows of both directions is not a row.

Elements that a loop pops from a list of another loop are known before it begins, too:

    While(acc, d, ...)   body: acc, y = TensorListPopBack(acc); d * (1 - y * y) ...

`1 - y * y` is computed from all elements of `acc` at once, and the loop pops from a list of the results. These are the
*popped* rows, with a direction of their own. The values of a variable whose next value is popped are popped rows, too:
the same elements one iteration later, after the initial value. (The initial value and the list must wait for the same
events, because they are joined.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import shapes, thresholds
from headrace.dtypes import INDEX, OBJECT
from headrace.ir import walk
from headrace.ir.function import base_name
from headrace.ir.infer import constant_value, scalar_value
from headrace.ir.notes import ResidualPop
from headrace.ir.opdef import PerElement
from headrace.optimize.batching_rules import batch, can_batch
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.analysis.trip_count import Bound
    from headrace.ir.graph import Operation, Tensor
    from headrace.optimize.loop_editor import LoopEditor
    from headrace.shapes import Shape


JOINS: Final = frozenset({"ConcatV2", "Pack"})  # these move elements and compute nothing


@record(frozen=True, slots=True)
class Index:
    """Index of the row that an iteration reads.

    Attributes:
      tensor: the index, a tensor of the body.
      is_upward: whether the index is the counter; else it goes from the last row to the first.
      bound: the comparison that limits the counter.
    """

    tensor: Tensor
    is_upward: bool
    bound: Bound


@record(frozen=True, slots=True)
class Popped:
    """Marks a popped row: an iteration reads the last element not read so far."""


class RowReads:
    """Tensors of a loop's body that are rows.

    Args:
      loop: the loop.

    Attributes:
      loop: the loop.
      why: the reason why there are no rows read by index, or "".
    """

    def __init__(self, loop: LoopEditor) -> None:
        self.loop = loop
        self.why = ""
        self._found: dict[Tensor, Index | Popped] = {}
        self._made: dict[Tensor, Tensor] = {}
        self._work: dict[Tensor, float] = {}  # floating-point operations an element; moving elements is none
        self._products: set[Tensor] = set()  # rows whose computation contains a matrix product
        if loop.trip_count is not None and not loop.trip_count.is_exact:
            self.why = "the loop may end before its counter reaches the bound"
        for p, r in zip(loop.body.params, loop.body.results, strict=True):
            k = popped_from(loop, r)
            if k is None or not shapes.is_full(r.shape) or p.shape != r.shape:
                continue
            if loop.have_equal_waits([loop.op.inputs[p.op.attrs["index"]]], [loop.op.inputs[k]]):
                self._found[p] = Popped()
        for op in walk.in_order(loop.body.operations):
            self._look_at(op)

    def __contains__(self, t: Tensor) -> bool:
        return t in self._found

    def __getitem__(self, t: Tensor) -> Index | Popped:
        return self._found[t]

    def pays(self, t: Tensor) -> bool:
        """Whether it pays to compute the row `t` for all iterations at once.

        For popped rows, a matrix product always pays. Other work on large elements has little overhead for each
        iteration, and is faster while they are in the cache. Storing numbers in an array and reading them again costs
        as much as one or two operations on them. Moving elements alone never pays.
        """
        if not isinstance(self._found[t], Popped) or t in self._products:
            return True
        return self._work.get(t, 0) >= (thresholds.CHEAP_FLOPS if t.shape == () else 1) and self.is_small(t)

    def is_small(self, t: Tensor) -> bool:
        """Whether the overhead of an operation on a value like `t` exceeds its work."""
        size = element_bytes(t)
        return size is not None and size <= thresholds.CALL_BOUND_BYTES

    def source(self, t: Tensor) -> Tensor:
        """Returns the tensor of the graph around of which `t` is a row.

        It is made on the first call.
        """
        todo = [t]
        while todo:  # no recursion, because chains of operations may be longer than Python's stack
            x = todo[-1]
            is_first = x in self._made or x.op.type == "_Arg" or x.op.opdef.list_kind in ("get", "pop")
            before = [] if is_first else [r for r in x.op.inputs if self._is_left(r)]
            if before:
                todo += reversed(before)
            else:
                self._source(todo.pop())
        return self._made[t]

    def _is_left(self, t: Tensor) -> bool:
        """Whether `t` is a row of a tensor that is not made yet."""
        return t in self._found and t not in self._made

    def _source(self, t: Tensor) -> Tensor:
        got = self._made.get(t)
        if got is None:
            op = t.op
            if op.opdef.list_kind == "get":
                self._made[t] = self._read(op)
            elif op.opdef.list_kind == "pop":
                self._made[t] = self._elements(t)
            elif op.type == "_Arg":
                self._made[t] = self._one_later(t)
            else:
                rows = [x in self._found for x in op.inputs]
                inputs = [self._made[x] if r else self.loop.outside(x) for x, r in zip(op.inputs, rows, strict=True)]
                made = batch(self.loop.before(op), op, inputs, rows)
                self._made.update(zip(op.outputs, made, strict=True))
            got = self._made[t]
        return got

    def note(self, item: Tensor, t: Tensor) -> None:
        """Notes that `item` replaces the row `t`, and is a row of the same tensor."""
        self._found[item], self._made[item] = self._found[t], self._made[t]

    def _look_at(self, op: Operation) -> None:
        loop = self.loop
        if not loop.is_movable(op):
            return
        if op.opdef.list_kind == "get":
            at = index_of(loop, op.inputs[1])
            if at is not None and not self.why and self._is_read_of_rows(op, at):
                self._found[op.outputs[0]] = at
            return
        if op.opdef.list_kind == "pop":
            if popped_from(loop, op.outputs[1]) is not None and shapes.is_full(op.outputs[1].shape):
                self._found[op.outputs[1]] = Popped()
            return
        rows = [t in self._found for t in op.inputs]
        if not all(r or loop.is_invariant(t) for t, r in zip(op.inputs, rows, strict=True)):
            return
        indices = [self._found[t] for t, r in zip(op.inputs, rows, strict=True) if r]
        if len({_direction(i) for i in indices}) == 1 and can_batch(op, rows):
            self._found.update((t, indices[0]) for t in op.outputs)
            cost = op.opdef.facts.cost
            here = cost.flops if isinstance(cost, PerElement) else float(cost is not None)
            if op.type in JOINS:
                here = 0.0
            self._work.update(dict.fromkeys(op.outputs, here + sum(self._work.get(t, 0) for t in set(op.inputs))))
            if op.opdef.facts.blas or any(t in self._products for t in op.inputs):
                self._products.update(op.outputs)

    def _is_read_of_rows(self, op: Operation, at: Index) -> bool:
        handle, _, shape = op.inputs
        k = self.loop.position(handle)
        if k is None or not self.loop.is_constant(k) or not self.loop.is_invariant(shape):
            return False
        maker = self.loop.op.inputs[k].op
        if maker.opdef.list_kind != "from_tensor":
            return False
        xs = maker.inputs[0]
        return xs.shape is not None and xs.shape[1:] == op.outputs[0].shape and self._is_enough(op, xs, at)

    def _is_enough(self, op: Operation, xs: Tensor, at: Index) -> bool:
        """Whether at most about as many rows are computed in vain as are read."""
        first = constant_value(at.bound.first)
        if first is None:
            self.why = "the index of the first row is unknown"
            return False
        n = at.bound.count
        if at.is_upward and first > 0 and (n is None or first > n):
            self.why = "most rows precede the first that the loop reads"
            return False
        if first < 0:
            self.why = "its first row index is negative"
            return False
        return True

    def _elements(self, t: Tensor) -> Tensor:
        """Returns all elements of the list from which `t` is popped, as one tensor."""
        k = popped_from(self.loop, t)
        assert k is not None
        return stacked(self.loop, self.loop.op.inputs[k], t)

    def _one_later(self, p: Tensor) -> Tensor:
        """Returns all values of the parameter `p`, whose next value is popped.

        The value in an iteration is the element that was popped in the iteration before.
        """
        k = p.op.attrs["index"]
        all = self._elements(self.loop.body.results[k])
        b = self.loop.before(p.op)
        name = f"{all.op.name}/later"
        first = b.ExpandDims(self.loop.op.inputs[k], 0, name=f"{name}/first")
        more = b.ConcatV2([all, first], 0, name=f"{name}/all")
        one = np.ones(1, np.int32)
        out: Tensor = b.StridedSlice(more, one, np.zeros(1, np.int32), one, end_mask=1, name=name)
        return out

    def _read(self, op: Operation) -> Tensor:
        """Returns the rows from row 0 to the last one that `op` may read."""
        k = self.loop.position(op.inputs[0])
        assert k is not None
        xs = self.loop.op.inputs[k].op.inputs[0]
        at = self._found[op.outputs[0]]
        assert isinstance(at, Index)
        end = self._end(at, op)
        assert xs.shape is not None
        if isinstance(end, int):
            if xs.shape[0] is not None and end >= xs.shape[0]:
                return xs
            end_value: object = [end]
        else:
            end_value = self.loop.before(op).ExpandDims(end, 0, name=f"{op.name}/end")
        out: Tensor = self.loop.before(op).StridedSlice(
            xs, np.zeros(1, _dtype(end)), end_value, np.ones(1, _dtype(end)), begin_mask=1, name=f"{op.name}/all"
        )
        return out

    def _end(self, at: Index, op: Operation) -> int | Tensor:
        """Number of rows, counted from row 0, that the loop may read."""
        bound = at.bound
        limit = constant_value(bound.limit)
        more = int(bound.is_inclusive)
        if limit is not None:
            return max(0, int(limit) + more)
        outer = bound.limit
        if more:
            made: Tensor = self.loop.before(op).AddV2(outer, np.ones((), outer.dtype.base.numpy))
            return made
        return outer


def _dtype(end: int | Tensor) -> np.dtype:
    return np.dtype(np.int32) if isinstance(end, int) else end.dtype.base.numpy


def _direction(at: Index | Popped) -> object:
    return "popped" if isinstance(at, Popped) else (at.is_upward, at.tensor.dtype.base)


def popped_from(loop: LoopEditor, t: Tensor) -> int | None:
    """Position of the list variable from which the body pops `t`, or None.

    The list must have one element for each iteration.
    """
    op = t.op
    if op.opdef.list_kind != "pop" or ResidualPop not in op.notes:
        return None
    k = loop.position(op.inputs[0])
    if k is None or loop.body.results[k] is not op.outputs[0] or t.dtype.base in OBJECT:
        return None
    return k


def stacked(loop: LoopEditor, values: Tensor, t: Tensor) -> Tensor:
    """Returns the elements of the list `values` along a new first dimension.

    Args:
      loop: the loop.
      values: a list with one element for each iteration.
      t: a tensor of the body with the dtype and the shape of the elements.
    """
    n = None if loop.trip_count is None else loop.trip_count.count
    assert t.shape is not None
    if values.op.opdef.list_kind == "from_tensor" and values.op.inputs[0].shape == (n, *t.shape):
        rows: Tensor = values.op.inputs[0]
        return rows
    out: Tensor = loop.before(t.op).TensorListStack(
        values,
        as_vector(t.shape),
        element_dtype=t.dtype.base,
        num_elements=-1 if n is None else n,
        name=f"{loop.op.name}/{base_name(t)}_values",
    )
    out.replace_static((n, *t.shape), out.handle)
    return out


def index_of(loop: LoopEditor, t: Tensor) -> Index | None:
    """Returns `t` as an index that changes by one in each iteration, or None."""
    trip_count = loop.trip_count
    if trip_count is None:
        return None
    x, sign, offset = _counted(loop, t)
    k = loop.position(x)
    for b in trip_count.bounds if k is not None else ():
        if b.counter != k:
            continue
        if sign > 0 and not offset:
            return Index(t, True, b)
        last = scalar_value(b.limit)
        if sign < 0 and last is not None and offset == last - (not b.is_inclusive):
            return Index(t, False, b)
    if sign > 0 and not offset and x.op.opdef.facts.sum_sign < 0:
        most, count = map(_uncast, x.op.inputs)
        for b in trip_count.bounds:
            is_last = b.is_inclusive and b.position is not None and loop.position(most) == b.position
            if is_last and loop.position(count) == b.counter:
                return Index(t, False, b)
    return None


def _counted(loop: LoopEditor, t: Tensor) -> tuple[Tensor, int, int]:
    """Returns `t` without the constants that are added to it and subtracted.

    Returns:
      A tensor x, 1 or -1, and n: `t` is x + n or -x + n.
    """
    x, sign, offset = _uncast(t), 1, 0
    while loop.position(x) is None and (added := x.op.opdef.facts.sum_sign):
        a, b = map(_uncast, x.op.inputs)
        left, right = _number(loop, a), _number(loop, b)
        if right is not None:
            x, offset = a, offset + sign * added * right
        elif left is not None:
            x, offset, sign = b, offset + sign * left, sign * added
        else:
            break
    return x, sign, offset


def _number(loop: LoopEditor, t: Tensor) -> int | None:
    """Returns the known number that `t` is in all iterations, or None."""
    k = loop.position(t)
    return scalar_value(t if k is None or not loop.is_constant(k) else loop.op.inputs[k])


def _uncast(t: Tensor) -> Tensor:
    """`t` before casts among the index dtypes; in others a counter may wrap around."""
    while t.op.type == "Cast" and {t.op.attrs["SrcT"], t.op.attrs["DstT"]} <= INDEX:
        t = t.op.inputs[0]
    return t


def element_bytes(t: Tensor) -> int | None:
    """Number of bytes of a value of `t`, or None."""
    n = shapes.size(t.shape)
    return None if n is None or t.dtype.base in OBJECT else n * t.dtype.size


def as_vector(shape: Shape) -> np.ndarray:
    """A shape as an argument of list operations: -1 for an unknown rank or dimension."""
    return np.array(-1 if shape is None else [-1 if d is None else d for d in shape], np.int32)
