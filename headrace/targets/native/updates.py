"""Updates of variables by the formulas of optimizers, in one pass over memory.

The formula itself writes the function: it is called with values of LLVM in place of arrays. Sums, products, quotients
and roots are rounded as those of numpy are, so the new values are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.opkit.kernel_library import KernelLibrary
from headrace.targets.native.functions import is_native
from headrace.targets.native.loops import Loops, compiled
from headrace.targets.native.values import Value

Array: TypeAlias = np.ndarray


class _Arithmetic:
    """The functions of numpy that formulas call."""

    @staticmethod
    def sqrt(x: Value) -> Value:
        """The square root."""
        return x.intrinsic("sqrt")

    @staticmethod
    def square(x: Value) -> Value:
        """The square."""
        return x * x


_ARITHMETIC: Final = _Arithmetic()


class NativeUpdates(KernelLibrary):
    """Updates by native code."""

    def updated(
        self,
        formula: Callable[..., Sequence[Any]],
        attrs: Mapping[str, Any],
        values: Sequence[Array],
        gradient: Array,
        numbers: Sequence[Any],
        position: int,
    ) -> list[Array] | None:
        """The new values; None if numpy is to compute them."""
        if values[0].size < thresholds.NATIVE_UPDATE or not is_native(*values, gradient):
            return None
        dtype = values[0].dtype
        if any(x.dtype != dtype for x in numbers):
            return None
        chosen = {name: value for name, value in attrs.items() if isinstance(value, bool)}
        function = compiled(
            (formula, dtype, tuple(sorted(chosen.items()))),
            lambda: _update(formula, chosen, dtype, len(values), len(numbers), position),
        )
        out = [np.empty(v.shape, dtype) for v in values]
        given = map(np.ascontiguousarray, (*values, gradient))
        function(*out, *given, np.array(numbers, dtype), gradient.size)
        return out


def _update(
    formula: Callable[..., Sequence[Any]],
    attrs: Mapping[str, Any],
    dtype: np.dtype,
    count: int,
    numbers: int,
    position: int,
) -> Loops:
    loops = Loops([dtype] * (2 * count + 2), ["n"])
    out, values, (gradient, given) = loops.arrays[:count], loops.arrays[count : 2 * count], loops.arrays[2 * count :]
    args = [given[k] for k in range(numbers)]
    with loops.each(0, loops.sizes[0]) as i:
        found = formula(_ARITHMETIC, attrs, *(v[i] for v in values), *args[:position], gradient[i], *args[position:])
        for array, new in zip(out, found, strict=True):
            array[i] = new
    return loops
