"""Maps of large arrays with sums and maxima of each row, such as softmax.

The formula is found by running the kernel on symbols (`schedule.scalar_expressions`). A row is read once for each
reduction and once for the results. A reduced expression that is used again is kept in memory of one row for each part.

Sums of up to `NATIVE_SUM_TERMS` numbers are those of the dtype, and sums of these float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.records import record
from headrace.schedule.scalar_expressions import Apply, Input, RowFormula, digest, nodes_of
from headrace.targets.native import costs, scalars
from headrace.targets.native.loops import Loops, Numbers, compiled, rows_of_part
from headrace.targets.native.values import Value

Array: TypeAlias = np.ndarray


@record(frozen=True, slots=True)
class RowMap:
    """Operation on rows of inputs of certain dtypes and shapes.

    Attributes:
      function: The function.
      results: The dtype and the shape of each result.
      kept: The dtypes of the rows in memory.
      parts: The number of parts.
      sizes: The sizes that the function takes.
    """

    function: Any
    results: tuple[tuple[np.dtype, tuple[int, ...]], ...]
    kept: tuple[np.dtype, ...]
    parts: int
    sizes: tuple[int, ...]

    def __call__(self, arrays: Sequence[Array]) -> Any:
        """The results for some inputs: an array, or a tuple of several."""
        made = [np.empty(shape, dtype) for dtype, shape in self.results]
        kept = [np.empty((self.parts, self.sizes[0]), dtype) for dtype in self.kept]
        self.function(*made, *kept, *[np.ascontiguousarray(a) for a in arrays], *self.sizes)
        return made[0] if len(made) == 1 else tuple(made)


def row_map(formula: RowFormula, dtypes: Sequence[np.dtype], shape: tuple[int, ...]) -> RowMap:
    """The operation of a formula.

    Args:
      formula: The formula.
      dtypes: The dtypes of the inputs.
      shape: The shape of each input.
    """
    width = shape[-1]
    rows, each, cost = rows_of_part(
        math.prod(shape[:-1]), thresholds.NATIVE_ELEMENT * width * sum(map(costs.ufuncs, formula.expressions))
    )
    kept = tuple([node.dtype for node in _kept(formula)])
    results = tuple([(r.dtype, r.shape) for r in formula.results])
    key = "rows", digest(formula.expressions), tuple([r.ufunc for r in formula.reductions]), *dtypes
    are_rows = tuple([r.shape != shape for r in formula.results])
    function = compiled((*key, are_rows), lambda: _loops(formula, dtypes, shape))
    return RowMap(function, results, kept, -(-rows // each), (width, each, rows, each, cost))


def _kept(formula: RowFormula) -> list[Apply]:
    """The reduced expressions with elementary functions that are used again."""
    found: list[Apply] = []
    for k, reduction in enumerate(formula.reductions):
        later = nodes_of(formula.expressions[k + 1 :])
        node = reduction.expression
        if isinstance(node, Apply) and node in later and any(map(scalars.is_elementary, nodes_of([node]))):
            found.append(node)
    return found


def _loops(formula: RowFormula, dtypes: Sequence[np.dtype], shape: tuple[int, ...]) -> Loops:
    kept = _kept(formula)
    every = [*(r.dtype for r in formula.results), *(node.dtype for node in kept), *dtypes]
    loops = Loops(every, ["width", "run"], divided=True)
    width, run = loops.sizes
    at = len(formula.results)
    outs, memory, inputs = loops.arrays[:at], loops.arrays[at : at + len(kept)], loops.arrays[at + len(kept) :]
    part = loops.part_number(run) * width
    rows_in_memory = {node: numbers.part(part) for node, numbers in zip(kept, memory, strict=True)}
    with loops.each_row() as row:
        _Row(loops, formula, dtypes, shape, [a.part(row * width) for a in inputs], rows_in_memory).write(outs, row)
    return loops


class _Row:
    """Writer of the work on a row.

    Args:
      loops: The writer of the function.
      formula: The formula.
      dtypes: The dtypes of the inputs.
      shape: The shape of each input.
      inputs: The row of each input.
      memory: The rows in memory of the expressions that are kept.
    """

    def __init__(
        self,
        loops: Loops,
        formula: RowFormula,
        dtypes: Sequence[np.dtype],
        shape: tuple[int, ...],
        inputs: Sequence[Numbers],
        memory: Mapping[Any, Numbers],
    ) -> None:
        self._loops, self._formula, self._shape, self._inputs, self._memory = loops, formula, shape, inputs, memory
        self._width = loops.sizes[0]
        self._dtypes = [*dtypes]
        self._reduced: list[Value] = []
        self._known: dict[Apply, str] = {}  # numbers of the row
        self._filled: list[Any] = []  # expressions that are in memory by now

    def write(self, outs: Sequence[Numbers], row: Value) -> None:
        """Writes the reductions and the results."""
        loops, results = self._loops, self._formula.results
        for reduction in self._formula.reductions:
            node = reduction.expression
            self._prepare(node)
            combine = loops.sum if reduction.ufunc is np.add else loops.greatest
            dtype = node.dtype if isinstance(node, Apply) else self._dtypes[node.index]
            found = combine(self._width, dtype, functools.partial(self._term, node))
            self._reduced.append(loops.converted(found, np.dtype(np.float64), dtype) if combine == loops.sum else found)
            self._dtypes.append(dtype)
            if node in self._memory:
                self._filled.append(node)
        wide: list[tuple[Apply | Input, Numbers]] = []
        for result, out in zip(results, outs, strict=True):
            self._prepare(result.expression)
            if result.shape == self._shape:
                wide.append((result.expression, out.part(row * self._width)))
            else:
                out[row] = self._value(result.expression, loops.constant(0))
        with loops.each(0, self._width) as i:
            for node, out in wide:
                out[i] = self._value(node, i)

    def _is_wide(self, node: Any) -> bool:
        return isinstance(node, Apply) and node.shape == self._shape

    def _prepare(self, node: Any) -> None:
        """Writes the parts of an expression that have one number for the row."""
        for part in nodes_of([node]):
            if not self._is_wide(part) and part not in self._known:
                names = ["poison"] * len(self._inputs) + [v.name for v in self._reduced]
                self._known[part] = scalars.expression(self._loops.f, part, names, self._dtypes, self._known)

    def _term(self, node: Apply | Input, i: Value) -> Value:
        """The number of a reduced expression at a place, stored if its row is kept."""
        value = self._value(node, i)
        if node in self._memory:
            self._memory[node][i] = value
        return value

    def _value(self, node: Apply | Input, i: Value) -> Value:
        numbers = [*(a[i] for a in self._inputs), *self._reduced]
        if isinstance(node, Input):
            return numbers[node.index]
        known: dict[Any, str] = self._known | {kept: self._memory[kept][i].name for kept in self._filled}
        names = [v.name for v in numbers]
        text = scalars.expression(self._loops.f, node, names, self._dtypes, known)
        return Value(self._loops.f, scalars.register_type(node.dtype), text)
