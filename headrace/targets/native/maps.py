"""Single elementwise operations on large arrays, printed from the formulas of their kernels.

A formula is found by running the kernel on symbols (`schedule.scalar_expressions`), so an op is written once. The
functions have sizes as arguments. An input has a number for each number of the result, for each of its rows or columns,
or a single one; so biases and means of rows broadcast. Other shapes are left to numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.dtypes import bfloat16, float16
from headrace.memo import Memo
from headrace.opkit.kernel_library import SLOW_UFUNCS, KernelLibrary
from headrace.records import record
from headrace.schedule.scalar_expressions import Apply, Input, RowFormula, digest, formula_of, nodes_of, row_formula_of
from headrace.targets.native import costs, elementary, engine, scalars
from headrace.targets.native.loops import Loops, compiled, rows_of_part
from headrace.targets.native.row_maps import row_map
from headrace.targets.native.values import Value

if TYPE_CHECKING:
    from headrace.ir.opdef import KernelFactory

Array: TypeAlias = np.ndarray

#: Numbers of an input: one for each number of the result, for each column, for each row, or a single one.
Extent: TypeAlias = Literal["all", "columns", "rows", "one"]

_HALF: Final = (float16.numpy, bfloat16.numpy)

# Ufuncs that native code takes from the C library, for one number at a time.
_NOT_VECTORIZED: Final = frozenset(elementary.LIBRARY_NAMES) - {
    "exp",
    "expm1",
    "log",
    "log1p",
    "tanh",
    "sin",
    "cos",
    "erf",
    "arctan",
    "arctan2",
}
_REMAINDERS: Final = frozenset({"fmod", "remainder", "floor_divide"})


class NativeMaps(KernelLibrary):
    """Elementwise operations by native code."""

    def elementwise(
        self, factory: KernelFactory, attrs: Mapping[str, Any], dtypes: Sequence[np.dtype]
    ) -> Callable[..., Any] | None:
        """A function that computes the operation, or returns None to leave it to the kernel."""
        maps: Memo[Any, Callable[[Sequence[Array]], Any]] = Memo("native maps", thresholds.NATIVE_MAPS)

        def compute(*arrays: Array) -> Any:
            if engine.available():
                return None
            inputs = tuple([(a.dtype, a.shape) for a in arrays])
            found = maps.get(inputs)
            if found is None:
                found = _map(factory, attrs, inputs, dtypes)
                maps.put(inputs, found)
            return found(arrays)

        return compute


@record(frozen=True, slots=True)
class _Map:
    """A map of inputs of certain dtypes and shapes.

    Attributes:
      function: The function.
      dtype: The dtype of the result.
      shape: The shape of the result.
      sizes: The sizes that the function takes.
    """

    function: Callable[..., None]
    dtype: np.dtype
    shape: tuple[int, ...]
    sizes: tuple[int, ...]

    def __call__(self, arrays: Sequence[Array]) -> Array:
        """The result for some inputs."""
        out = np.empty(self.shape, self.dtype)
        self.function(out, *[np.ascontiguousarray(a) for a in arrays], *self.sizes)
        return out


def _leave(arrays: Sequence[Array]) -> None:
    """Leaves all inputs to the kernel."""


# *** The decision ***


def _map(
    factory: KernelFactory,
    attrs: Mapping[str, Any],
    inputs: Sequence[tuple[np.dtype, tuple[int, ...]]],
    results: Sequence[np.dtype],
) -> Callable[[Sequence[Array]], Any]:
    """The map for some inputs, or a function that returns None."""
    dtypes = [d for d, _ in inputs]
    try:
        shape = np.broadcast_shapes(*(s for _, s in inputs))
    except ValueError:
        return _leave  # the kernel raises its error
    found = formula_of(factory, attrs, inputs, results[0], shape) if len(results) == 1 else None
    if found is None:
        of_rows = all(s == shape for _, s in inputs)
        rows = row_formula_of(factory, attrs, dtypes, shape, results) if of_rows else None
        return _leave if rows is None or not _is_known(rows, dtypes) else row_map(rows, dtypes, shape)
    if found.checks or scalars.why_not(found.expression, dtypes) or not pays(found.expression, dtypes):
        return _leave
    return _map_of(found.expression, inputs, shape)


def _map_of(
    expression: Apply, inputs: Sequence[tuple[np.dtype, tuple[int, ...]]], shape: tuple[int, ...]
) -> Callable[[Sequence[Array]], Any]:
    """The map of an expression."""
    layout = _layout([s for _, s in inputs], shape)
    if layout is None:
        return _leave
    extents, width = layout
    dtypes, n = [d for d, _ in inputs], math.prod(shape)
    cost = thresholds.NATIVE_ELEMENT * costs.ufuncs(expression) * width
    function = compiled(("map", digest([expression]), *dtypes, *extents), lambda: _loops(expression, dtypes, extents))
    return _Map(function, expression.dtype, shape, (width, n, *rows_of_part(-(-n // width), cost)))


def converted(x: Array, dtype: np.dtype) -> Array:
    """An array of numbers of another dtype, by native code."""
    expression = Apply(np.astype, (Input(0),), dtype, x.shape)  # type: ignore[arg-type]
    made: Array = _map_of(expression, [(x.dtype, x.shape)], x.shape)([x])
    return made


def _is_known(formula: RowFormula, dtypes: Sequence[np.dtype]) -> bool:
    """Whether a formula of rows can be printed and is likely to pay."""
    known = [*dtypes]
    for _, expression in formula.reductions:
        known.append(expression.dtype if isinstance(expression, Apply) else known[expression.index])
    nodes = nodes_of(formula.expressions)
    return not any(scalars.why_not(node, known) for node in nodes) and not _is_slow(nodes, False)


def pays(expression: Apply, dtypes: Sequence[np.dtype]) -> bool:
    """Whether native code is likely to be faster than numpy on large arrays.

    It is for several ufuncs, whose results in between numpy writes to memory, and for most work on half-precision
    floats.

    Args:
      expression: The expression.
      dtypes: The dtypes of the inputs.
    """
    nodes = nodes_of([expression])
    is_half = any(d in _HALF for d in (*dtypes, expression.dtype))
    if _is_slow(nodes, is_half):
        return False
    if len(nodes) > 1:
        return True
    name = nodes[0].ufunc.__name__
    if name == "astype":
        return is_half and (dtypes[0] != bfloat16.numpy or expression.dtype == float16.numpy)
    if is_half:
        return float16.numpy not in dtypes or name not in (*elementary.LIBRARY_NAMES, "absolute")
    if name in ("maximum", "minimum"):  # of numbers and a constant
        return len(dtypes) == 1
    return dtypes[0].name in SLOW_UFUNCS.get(name, ())


def _is_slow(nodes: Sequence[Apply], is_half: bool) -> bool:
    """Whether native code takes one of some ufuncs from the C library."""
    names = {(node.ufunc.__name__, node.dtype) for node in nodes if node.dtype.kind != "c"}
    if any(name == "erf" and dtype == np.float64 for name, dtype in names):
        return True
    allowed = {"power"} if is_half else set()
    return any(name in (_NOT_VECTORIZED | _REMAINDERS) - allowed for name, _ in names)


def _layout(inputs: Sequence[tuple[int, ...]], shape: tuple[int, ...]) -> tuple[tuple[Extent, ...], int] | None:
    """The extents of inputs and the length of a row; None if there are none."""
    if all(math.prod(s) in (1, math.prod(shape)) for s in inputs):
        return tuple(["one" if math.prod(s) == 1 else "all" for s in inputs]), thresholds.NATIVE_MAP_ROW
    for k in range(1, len(shape)):
        extents = [_extent(s, shape, k) for s in inputs]
        if None not in extents:
            return tuple([e for e in extents if e]), math.prod(shape[k:])
    return None


def _extent(of: tuple[int, ...], shape: tuple[int, ...], k: int) -> Extent | None:
    """The extent of an input for a result with the rows `shape[k:]`."""
    dims = (1,) * (len(shape) - len(of)) + of
    if dims == shape:
        return "all"
    if dims[k:] == shape[k:] and math.prod(dims[:k]) == 1:
        return "columns"
    if dims[:k] == shape[:k] and math.prod(dims[k:]) == 1:
        return "rows"
    return "one" if math.prod(dims) == 1 else None


# *** Loops ***


def _loops(expression: Apply, dtypes: Sequence[np.dtype], extents: Sequence[Extent]) -> Loops:
    loops = Loops([expression.dtype, *dtypes], ["width", "n"], divided=True)
    (out, *inputs), (width, n) = loops.arrays, loops.sizes
    kind = scalars.register_type(expression.dtype)
    with loops.each_row() as row:
        first = row * width
        into = out.part(first)
        parts = [a.part(first) if extent == "all" else a for a, extent in zip(inputs, extents, strict=True)]
        single = {"rows": row, "one": loops.constant(0)}
        fixed = [a[single[e]] if e in single else None for a, e in zip(inputs, extents, strict=True)]
        with loops.each(0, loops.least(width, n - first)) as i:
            values = [a[i] if value is None else value for a, value in zip(parts, fixed, strict=True)]
            names = [v.name for v in values]
            into[i] = Value(loops.f, kind, scalars.expression(loops.f, expression, names, dtypes))
    return loops
