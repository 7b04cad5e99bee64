"""Objects that `for` iterates over in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes
from headrace.api import scopes
from headrace.api.tensor_array import TensorArray
from headrace.autograph.operators import values
from headrace.autograph.operators.lists import TensorList
from headrace.dtypes import DType
from headrace.errors import AutographError
from headrace.ir.infer import constant_value


class Rows:
    """Elements that a graph counts.

    Args:
      length: their number, a Python int or an int32 scalar.
      at: returns the element of an index.
      prepare: returns rows that are cheap to read in a loop; None for these.
    """

    def __init__(self, length: Any, at: Callable[[Any], Any], prepare: Callable[[], Rows] | None = None) -> None:
        self.length = length
        self.at = at
        self._prepare = prepare

    @property
    def static_length(self) -> int | None:
        """Number of elements, if it is known."""
        return self.length if isinstance(self.length, int) else None

    def prepared(self) -> Rows:
        """Returns these rows for use in a loop."""
        return self if self._prepare is None else self._prepare()

    def __iter__(self) -> Any:
        n = self.static_length
        if n is None:
            raise AutographError(
                "an object whose length only the graph knows is iterated over by code that is not converted; use a "
                "'for' statement in a converted function"
            )
        return iter([self.at(i) for i in range(n)])


def elements_of(x: Any) -> Any:
    """Returns the iterator that a graph iterates over; None if Python does."""
    if scopes.is_outside() or not hasattr(x, "element_spec"):
        return None
    from headrace.api.data.iterators import OwnedIterator, in_graph  # here: few programs need datasets
    from headrace.api.data.structure import is_dataset

    if isinstance(x, OwnedIterator):
        return x
    return in_graph(x) if is_dataset(x) else None


def of(x: Any) -> Rows | None:
    """Returns the elements of an object that a graph iterates over; None if Python does."""
    if isinstance(x, Rows):
        return x
    if values.is_symbolic(x):
        return _tensor_rows(x)
    if isinstance(x, TensorList):
        return Rows(x.length(), x.copy().__getitem__)
    if isinstance(x, TensorArray) and values.is_symbolic(x.flow):
        n = x._size if x._size is not None and not x._dynamic_size else x.size()
        return Rows(n, x.read)
    return None


def rest(x: Any, start: int) -> Rows | None:
    """Returns the elements of a Python object for a loop in a graph, if possible."""
    if isinstance(x, range):
        return Rows(len(x), lambda k: x.start + k * x.step)
    if values.is_value(x):
        b = scopes.builder()
        return _tensor_rows(b.tensor(x)) if scopes.current_graph() is not None else None
    return None


def _tensor_rows(x: Any) -> Rows:
    shape = x.static_shape
    if shape == ():
        raise AutographError(f"a scalar tensor cannot be iterated over: '{x.name}'; use range({x.op.name}) to count")
    n = None if shape is None else shape[0]
    if n is None and x.op.type == "Range" and x.dtype.base in (dtypes.int32, dtypes.int64):
        return _range_rows(x)
    length = row_count(x) if n is None else n

    def prepare() -> Rows:
        element = None if shape is None else shape[1:]
        array = TensorArray(x.dtype.base, length, element_shape=element).unstack(x)
        return Rows(length, array.read)

    return Rows(length, lambda i: x[i], prepare)


def _range_rows(x: Any) -> Rows:
    """Returns the elements of a Range.

    There are none if its limit is passed, where the Range itself would fail.
    """

    def end(t: Any) -> Any:
        known = constant_value(t)
        return t if known is None else int(known)

    start, stop, step = map(end, x.op.inputs)
    return _counted(start, stop, step, x.dtype.base, lambda k: values.converted(k, x.dtype.base))


def row_count(x: Any) -> Any:
    """Returns the number of rows of a symbolic tensor, an int32 scalar."""
    b = scopes.builder(x)
    return b.Shape(x)[0]


def range_(*args: Any) -> Any:
    """Returns the range of the arguments; of symbolic ones, one that a graph counts.

    Raises:
      TypeError: there are too few or too many arguments.
    """
    if not any(map(values.is_symbolic, args)) or not 1 <= len(args) <= 3:
        return range(*args)
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
    for x in (start, stop, step):
        if values.is_symbolic(x) and not x.dtype.is_integer:
            raise TypeError(f"range() takes integers, got {values.described(x)}; cast it (hr.cast)")
    kinds = [x.dtype.base for x in (start, stop, step) if values.is_symbolic(x)]
    dtype = dtypes.int64 if dtypes.int64 in kinds else dtypes.int32
    return _counted(start, stop, step, dtype, weak_index)


def _counted(start: Any, stop: Any, step: Any, dtype: DType, made: Callable[[Any], Any]) -> Rows:
    """Returns the numbers of a range, each as the result of `made`."""
    b = scopes.builder(start, stop, step)

    def as_index(x: Any) -> Any:
        return values.converted(x, dtype) if values.is_symbolic(x) else int(x)

    start, stop, step = map(as_index, (start, stop, step))
    n = stop
    if not (isinstance(start, int) and start == 0 and isinstance(step, int) and step == 1):
        difference = b.Sub(values.converted(stop, dtype), start)
        if isinstance(step, int) and step == 1:
            n = difference
        else:
            n = b.Neg(b.FloorDiv(b.Neg(difference), step))
    if dtype is dtypes.int64:
        n = b.Cast(n, DstT=dtypes.int32)

    def at(k: Any) -> Any:
        index = k
        if dtype is dtypes.int64 and values.is_symbolic(k):
            index = scopes.builder(k).Cast(k, DstT=dtype)
        if not (isinstance(step, int) and step == 1):
            index = index * step
        if not (isinstance(start, int) and start == 0):
            index = index + start
        return made(index)

    return Rows(n, at)


def enumerate_(x: Any, start: Any = 0) -> Any:
    """Returns the pairs of a number and an element."""
    rows = of(x)
    if rows is None:
        return enumerate(x, start)
    is_zero = isinstance(start, int) and start == 0

    def made(inner: Rows, prepare: Callable[[], Rows] | None) -> Rows:
        return Rows(inner.length, lambda k: (weak_index(k) if is_zero else weak_index(k) + start, inner.at(k)), prepare)

    return made(rows, lambda: made(rows.prepared(), None))


def weak_index(k: Any) -> Any:
    """Returns the number of an iteration as a weak number."""
    return values.weak(k) if values.is_symbolic(k) else k


def zip_(*args: Any, strict: bool = False) -> Any:
    """Returns the tuples of the elements with one index."""
    found = [of(x) for x in args]
    if not any(found):
        return zip(*args, strict=strict)
    all_rows: list[Rows] = []
    for x, rows in zip(args, found, strict=True):
        if rows is None:
            rows = _python_rows(x)
        all_rows.append(rows)
    lengths = [r.length for r in all_rows]
    shortest = lengths[0]
    for n in lengths[1:]:
        if isinstance(n, int) and isinstance(shortest, int):
            shortest = min(n, shortest)
        elif n is not shortest:
            shortest = scopes.builder(n, shortest).Minimum(n, shortest)

    def made(rows: Sequence[Rows], prepare: Callable[[], Rows] | None) -> Rows:
        return Rows(shortest, lambda k: tuple(r.at(k) for r in rows), prepare)

    return made(all_rows, lambda: made([r.prepared() for r in all_rows], None))


def _python_rows(x: Any) -> Rows:
    """Returns the elements of a Python sequence as rows of a tensor."""
    if isinstance(x, range):
        return Rows(len(x), lambda k: x.start + k * x.step)
    try:
        items = list(x)
        return _tensor_rows(scopes.builder().tensor(items if not values.is_tensor_like(x) else x))
    except (TypeError, ValueError) as e:
        raise AutographError(
            f"zip() of a tensor and {values.described(x)}: the elements of the latter cannot be rows of a tensor ({e})"
        ) from e


def reversed_(x: Any) -> Any:
    """Returns the elements in reverse order."""
    rows = of(x)
    if rows is None:
        return reversed(x)

    def made(inner: Rows, prepare: Callable[[], Rows] | None) -> Rows:
        last = inner.length - 1
        return Rows(inner.length, lambda k: inner.at(last - k), prepare)

    return made(rows, lambda: made(rows.prepared(), None))


def elements(x: Any) -> Any:
    """Returns an object for the `for` of a comprehension.

    Rows of a known number become a list.
    """
    rows = of(x)
    return x if rows is None else iter(rows)


def unpack(x: Any, n: int | None) -> Any:
    """Returns the value of an assignment to `n` targets; None: any number."""
    if not values.is_symbolic(x):
        return x
    shape = x.static_shape
    known = None if not shape else shape[0]
    if n is not None and known is None:
        known = n
    if known is None:
        raise AutographError(
            f"{values.described(x)} has an unknown number of rows, so it cannot be unpacked; set its shape (set_shape)"
        )
    if n is not None and known != n:
        word = "too many" if known > n else "not enough"
        raise ValueError(f"{word} values to unpack: {values.described(x)} has {known} rows, for {n} targets")
    b = scopes.builder(x)
    parts = b.Unpack(x, num=known)
    return parts if isinstance(parts, (tuple, list)) else (parts,)
