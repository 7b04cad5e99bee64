"""Functions of Python on tensors: `len`, `range`, `print`, `min`, `sum`, `int` and others.

Each calls the original unless a symbolic tensor is among the arguments.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from headrace import dtypes
from headrace.api import arrays, debugging, math, recorder, reductions, scopes, sorting, strings
from headrace.api.tensor_array import TensorArray
from headrace.autograph.operators import containers, iterables, journal, values
from headrace.autograph.operators.branches import if_exp
from headrace.autograph.operators.lists import TensorList
from headrace.autograph.operators.loops import for_
from headrace.errors import AutographError


def len_(x: Any) -> Any:
    """Returns the length: that of the first axis of a tensor."""
    if values.is_symbolic(x):
        shape = x.static_shape
        if shape == ():
            raise TypeError(f"a scalar tensor has no len(): {values.described(x)}")
        if shape is not None and shape[0] is not None:
            return shape[0]
        return values.weak(iterables.row_count(x))
    if isinstance(x, TensorList):
        return values.weak(x.length())
    if isinstance(x, iterables.Rows):
        return x.length
    if isinstance(x, TensorArray):
        return x.size()
    return len(x)


def print_(*args: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False) -> Any:
    """Prints now, or when the graph runs if a symbolic tensor is among the arguments."""
    is_standard = file is None or file is sys.stdout or file is sys.stderr
    if not any(map(_is_in_graph, args)) and not (journal.is_tracing() and is_standard):
        return builtins.print(*args, sep=sep, end=end, file=file, flush=flush)
    if not is_standard:
        raise AutographError("print() of a tensor in a graph goes to the standard output or error, not to a file")
    shown = [x.stack() if isinstance(x, TensorList) else x for x in args]
    shown = [x if values.is_tensor_like(x) or isinstance(x, str) else str(x) for x in shown]
    more: dict[str, Any] = {} if file is None else {"output_stream": file}
    return debugging.print(*shown, sep=" " if sep is None else sep, end="\n" if end is None else end, **more)


def _is_in_graph(x: Any) -> bool:
    return values.is_symbolic(x) or (isinstance(x, TensorList) and values.is_symbolic(x.flow))


def int_(x: Any = 0, *args: Any, **kwargs: Any) -> Any:
    """Returns an integer; of a tensor, one that stands for a number of Python."""
    if not values.is_symbolic(x):
        return int(x, *args, **kwargs)
    _check_single(x, "int()")
    if x.dtype.base is dtypes.string:
        return values.weak(strings.to_number(x, dtypes.int32))
    wide = dtypes.int64 if x.dtype.base in (dtypes.int64, dtypes.float64) else dtypes.int32
    return values.weak(x if x.dtype.base is wide else math.cast(x, wide))


def float_(x: Any = 0.0) -> Any:
    """Returns a float; of a tensor, one that stands for a number of Python.

    A tape would not record the float of a tensor with a value, and a graph does not cut the gradient here either. So
    while a tape records, the result is the tensor.
    """
    if recorder.active.get() and values.is_value(x) and x.dtype.is_floating and all(d == 1 for d in x.shape):
        return arrays.reshape(x, ()) if x.shape else x
    if not values.is_symbolic(x):
        return float(x)
    _check_single(x, "float()")
    if x.dtype.base is dtypes.string:
        return values.weak(strings.to_number(x, dtypes.float32))
    return values.weak(x if x.dtype.is_floating else math.cast(x, dtypes.float64))


def bool_(x: Any = False) -> Any:
    """Returns the truth of a value; of a tensor, a boolean scalar."""
    return values.truth(x, "the argument of bool()") if values.is_symbolic(x) else bool(x)


def _check_single(x: Any, what: str) -> None:
    if x.static_shape is not None and any(d not in (1, None) for d in x.static_shape):
        raise TypeError(f"{what} of {values.described(x)}; only a single value can be one")


def abs_(x: Any) -> Any:
    """Returns the absolute value."""
    return math.abs(x) if values.is_symbolic(x) else abs(x)


def round_(x: Any, digits: Any = None) -> Any:
    """Returns the rounded value."""
    if not values.is_symbolic(x):
        return round(x) if digits is None else round(x, digits)
    if digits is None or digits == 0:
        return math.round(x)
    scale = 10.0**digits
    return math.round(x * scale) / scale


def pow_(x: Any, y: Any, modulus: Any = None) -> Any:
    """Returns a power."""
    if modulus is None:
        return x**y
    if any(map(values.is_symbolic, (x, y, modulus))):
        return (x**y) % modulus
    return pow(x, y, modulus)


def divmod_(x: Any, y: Any) -> Any:
    """Returns quotient and remainder."""
    return (x // y, x % y) if values.is_symbolic(x) or values.is_symbolic(y) else divmod(x, y)


def _extreme(name: str, combine: Callable[..., Any], reduce: Callable[..., Any]) -> Callable[..., Any]:
    original = getattr(builtins, name)

    @functools.wraps(original)
    def extreme(*args: Any, key: Any = None, **kwargs: Any) -> Any:
        if len(args) == 1:
            x = args[0]
            is_weak = isinstance(x, TensorList) and x.spec.weak
            if isinstance(x, TensorList):
                x = x.rows()
            if values.is_symbolic(x):
                if key is not None:
                    x = arrays.unstack(x)
                elif x.static_shape is not None and len(x.static_shape) > 1:
                    raise ValueError(
                        f"{name}() of the rows of {values.described(x)}: their order is ambiguous; use hr.reduce_{name}"
                    )
                else:
                    return values.weak(reduce(x)) if is_weak else reduce(x)
            if isinstance(x, dict) or not hasattr(x, "__iter__"):
                return original(x, key=key, **kwargs)
            items = list(x)
        else:
            items = list(args)
        keys = items if key is None else [key(i) for i in items]
        if not any(map(values.is_symbolic, keys)):
            if len(args) != 1 or not items:
                return original(*args, key=key, **kwargs)
            best = original(range(len(items)), key=keys.__getitem__)
            return items[best]
        found, found_key = items[0], keys[0]
        for item, k in zip(items[1:], keys[1:], strict=True):
            if key is None:
                found = found_key = _combined(combine, found, item)
            else:
                better = k < found_key if name == "min" else k > found_key
                found = if_exp(better, functools.partial(_same, item), functools.partial(_same, found))
                found_key = _combined(combine, found_key, k)
        return found

    return extreme


def _same(x: Any) -> Any:
    return x


def _combined(combine: Callable[..., Any], x: Any, y: Any) -> Any:
    found = values.common_dtype(x, y)
    if found is not None:
        return combine(values.converted(x, found[0]), values.converted(y, found[0]))
    return combine(x, y)


def sum_(x: Any, start: Any = 0) -> Any:
    """Returns the sum of the elements."""
    if isinstance(x, TensorList):
        total = reductions.reduce_sum(x.rows(), 0)
        return start + (values.weak(total) if x.spec.weak else total)
    if values.is_symbolic(x):
        total = reductions.reduce_sum(x, 0)
        return total if values.is_number(start) and start == 0 else start + total
    return sum(x, start)


def _logical(name: str, reduce: Callable[..., Any], combine: Callable[..., Any], absorbing: bool) -> Callable[..., Any]:
    original = getattr(builtins, name)

    @functools.wraps(original)
    def logical(x: Any) -> Any:
        if isinstance(x, TensorList):
            x = x.stack()
        if values.is_symbolic(x):
            if x.dtype.base is not dtypes.bool_:
                x = math.not_equal(x, scopes.builder(x).const(0, x.dtype.base))
            return reduce(x)
        found: Any = not absorbing
        for item in x:
            if values.is_symbolic(item):
                holds = values.truth(item, f"an element of {name}()")
                found = holds if not values.is_symbolic(found) else combine(found, holds)
            elif bool(item) is absorbing:
                return absorbing
        return found

    return logical


def sorted_(x: Any, *, key: Any = None, reverse: bool = False) -> Any:
    """Returns the sorted elements; of a tensor, a sorted tensor."""
    if isinstance(x, TensorList):
        x = x.stack()
    if not values.is_symbolic(x):
        return sorted(x, key=key, reverse=reverse)
    if key is not None:
        raise AutographError("sorted() of a tensor has no key; use hr.argsort and hr.gather")
    return sorting.sort(x, direction="DESCENDING" if reverse else "ASCENDING")


def list_(x: Any = ()) -> Any:
    """Returns a list of the elements."""
    if isinstance(x, TensorList):
        return x.copy()
    rows = iterables.of(x)
    if rows is None:
        return list(x)
    if rows.static_length is not None:
        return list(rows)
    out: list[Any] = []
    cell = [out]

    def body(element: Any) -> None:
        containers.append(cell[0], element)

    for_(rows, body, None, ("list_",), lambda: (cell[0],), lambda new: cell.__setitem__(0, new[0]))
    return cell[0]


def tuple_(x: Any = ()) -> Any:
    """Returns a tuple of the elements."""
    rows = iterables.of(x)
    return tuple(x if rows is None else rows)


def map_(f: Any, *args: Any) -> Any:
    """Returns the results of a function for the elements."""
    if any(iterables.of(x) is not None for x in args):
        rows = iterables.zip_(*args)
        return iterables.Rows(rows.length, lambda k: f(*rows.at(k)))
    return map(f, *args)


def filter_(f: Any, x: Any) -> Any:
    """Returns the elements for which a function holds."""
    if iterables.of(x) is not None:
        raise AutographError("filter() of a tensor is not converted; use hr.boolean_mask")
    return filter(f, x)


def stack_(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns `hr.stack`, of a list of a graph too."""
    if isinstance(x, TensorList):
        axis = kwargs.get("axis", args[0] if args else 0)
        out = x.stack()
        if axis == 0:
            return out
        rank = None if out.shape is None else len(out.shape)
        if rank is None:
            raise AutographError("the stack of a list along another axis than 0 needs elements of a known rank")
        axis %= rank
        return arrays.transpose(out, [*range(1, axis + 1), 0, *range(axis + 1, rank)])
    return arrays.stack(x, *args, **kwargs)


def concat_(x: Any, axis: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns `hr.concat`, of a list of a graph too."""
    if isinstance(x, TensorList):
        if axis != 0:
            raise AutographError("a list of a graph is concatenated along axis 0; stack it and reshape")
        return TensorArray(x.spec.dtype, flow=x.flow, element_shape=x.spec.shape).concat()
    return arrays.concat(x, axis, *args, **kwargs)


OVERLOADS: Final[dict[Any, Callable[..., Any]]] = {
    len: len_,
    range: iterables.range_,
    enumerate: iterables.enumerate_,
    zip: iterables.zip_,
    reversed: iterables.reversed_,
    print: print_,
    int: int_,
    float: float_,
    bool: bool_,
    abs: abs_,
    round: round_,
    pow: pow_,
    divmod: divmod_,
    min: _extreme("min", math.minimum, reductions.reduce_min),
    max: _extreme("max", math.maximum, reductions.reduce_max),
    sum: sum_,
    any: _logical("any", reductions.reduce_any, math.logical_or, True),
    all: _logical("all", reductions.reduce_all, math.logical_and, False),
    sorted: sorted_,
    list: list_,
    tuple: tuple_,
    map: map_,
    filter: filter_,
    arrays.stack: stack_,
    arrays.concat: concat_,
}
