"""What compiled code has at hand while it runs: the run itself, loops that look now and then whether to stop, and what
is too rare or too long to be written out at each place.

**Looking up.** A compiled loop would otherwise not notice that its session is closed, or its time is over. So it goes
round over an iterator: numbers of iterations, in stretches, and between two stretches the run is looked at. Stretches
double as long as they take less than `STRETCH` seconds. In a stretch an iteration costs the next number of a range.

A short loop within another one may begin a thousand times; to set up stretches costs more than its iterations do. So
loops of so few iterations that, together with those before them, they need no look, are mere ranges.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import shapes
from headrace.dtypes import int64
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.ir.kernel import Kernel, made_for
from headrace.ir.opdef import op_registry
from headrace.opkit.arrays import check_size

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Operation
    from headrace.ir.kernel import KernelContext, StepContext
    from headrace.shapes import Shape

FIRST: Final = 16  # iterations before the first look
STRETCH: Final = 0.02  # seconds between two looks that are not too many
FAR: Final = 1024  # elements by which a write may grow a short list before the kernel is asked whether it may
SHORT: Final = 512  # iterations of short loops after which there is a look in any case

START: Final = range(FIRST)
chain: Final = itertools.chain


_mine = threading.local()


def quietly(f: Callable[..., Any], *args: Any) -> Any:
    """`f(*args)` without numpy's warnings: as inside `np.errstate(all="ignore")`, which takes three times as long.

    numpy keeps its error state in a context variable. So each thread has a context of its own in which that is set
    once, and `f` runs in it. It must not call what users wrote, who would miss their own context variables.
    """
    try:
        context: contextvars.Context = _mine.context
    except AttributeError:
        context = _mine.context = contextvars.Context()
        context.run(np.seterr, all="ignore")
    try:
        return context.run(f, *args)
    except RuntimeError:
        if _is_entered(context):  # a run in a run
            with np.errstate(all="ignore"):
                return f(*args)
        raise


def _is_entered(context: contextvars.Context) -> bool:
    try:
        context.run(int)
    except RuntimeError:
        return True
    return False


class RunState:
    """One run of compiled code.

    Attributes:
      kernels: the stateful kernels, made for this run.
      held: by the id of a list of lists, the bytes in it.
      step: what they know of it; its `cancelled` and `time_left` are looked at.
    """

    __slots__ = ("_at_once", "_left", "_looked", "held", "kernels", "step")

    def __init__(self, step: StepContext | None, kernels: Sequence[Callable[..., Any]]) -> None:
        self.step: Any = step
        self.kernels = kernels
        self.held: dict[int, int] = {}
        self._left = 0  # iterations that short loops may go round until the next look
        self._at_once = FIRST  # how many that is after a look
        self._looked = 0.0  # when the last one was

    def look(self) -> None:
        """Raises if the step was cancelled or is past its deadline."""
        if self.step is not None:
            self.step.look()

    def __iter__(self) -> Iterator[int]:
        """The numbers from `FIRST` on, for ever: what follows `START`."""
        return chain.from_iterable(self._stretches(FIRST, None))

    def span(self, first: Any, stop: Any) -> Iterator[int] | range:
        """The numbers from `first` up to `stop`, as Python ints."""
        first, stop = int(first), int(stop)
        n = stop - first
        if self._left < n <= SHORT:
            self.look()
            now = time.monotonic()
            is_soon = now - self._looked < STRETCH
            self._at_once = min(2 * self._at_once, SHORT) if is_soon else max(self._at_once // 2, FIRST)
            self._left, self._looked = self._at_once, now
        if n <= self._left:
            self._left -= max(n, 0)
            return range(first, stop)
        return chain(range(first, first + FIRST), chain.from_iterable(self._stretches(first + FIRST, stop)))

    def _stretches(self, first: int, stop: int | None) -> Iterator[range]:
        n = FIRST
        began = time.monotonic()
        while stop is None or first < stop:
            self.look()
            end = first + n if stop is None else min(first + n, stop)
            yield range(first, end)
            first = end
            now = time.monotonic()
            if now - began < STRETCH:
                n *= 2
            elif n > 1:
                n //= 2
            began = now


def blocking(op: Operation, kernel: Kernel) -> Kernel:
    """The blocking kernel of `op` for compiled code: the watch of the step sees when it is called.

    A step that was given up meanwhile ends when the kernel returns.
    """

    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        f = made_for(op, kernel) if kernel.form == "pure" else kernel.factory(ctx, attrs)
        step: Any = ctx.step

        def call(*args: Any) -> Any:
            step.blocked_in = op
            try:
                out = f(*args)
            finally:
                step.blocked_in = None
            if step.cancelled is not None:
                raise step.cancelled
            return out

        return call

    return Kernel("stateful", factory)


def branch(value: Any, n: int) -> int:
    """Which of `n` branches an index means: the last one if there is none of that number."""
    if getattr(value, "ndim", 0):
        raise InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {shapes.show(value.shape)}: "
            "an index decides for one output"
        )
    i = int(value)
    return i if 0 <= i < n else n - 1


# *** lists ***


def element(items: Sequence[Any], index: Any, blank: Any) -> Any:
    """An element of a list; `blank` where there is none yet."""
    i = int(index)
    if not 0 <= i < len(items):
        raise InvalidArgumentError(f"Trying to access element {i} in a list with {len(items)} elements.")
    item = items[i]
    return blank if item is None else item


def place(items: list[Any], index: Any, value: Any) -> None:
    """Sets an element of a list."""
    i = int(index)
    if not 0 <= i < len(items):
        raise InvalidArgumentError(f"Trying to modify element {i} in a list with {len(items)} elements.")
    items[i] = value


class ByKernel:
    """The kernel of an operation on a list, for a list of Python: what is rare, and what is an error; O(n).

    Args:
      op: the operation; its input 0 is the list.
      dtype, shape: of the elements, as far as the list says.
    """

    __slots__ = ("_kernel", "_make", "_set", "_shape")

    def __init__(self, op: Operation, dtype: DType, shape: Shape) -> None:
        self._kernel = _kernel_of(op.type, op.attrs)
        self._make = _kernel_of("TensorListReserve", {"element_dtype": dtype, "shape_type": int64})
        self._set = _kernel_of("TensorListSetItem", {"element_dtype": dtype, "resize_if_index_out_of_bounds": False})
        self._shape = np.array(-1 if shape is None else [-1 if d is None else d for d in shape], np.int64)

    def __call__(self, items: Sequence[Any], *args: Any) -> Any:
        known = self._make(self._shape, np.int32(len(items)))
        for i, item in enumerate(items):
            if item is not None:
                known = self._set(known, np.int32(i), item)
        return self._kernel(known, *args)


def _kernel_of(type: str, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    make = op_registry.get(type).kernel
    assert make is not None
    kernel: Callable[..., Any] = make(np, attrs)
    return kernel


def element_alike(items: Sequence[Any], index: Any, stated: Any, by_kernel: ByKernel) -> Any:
    """An element of a list; where there is none yet, zeros of the shape that others have."""
    i = int(index)
    if 0 <= i < len(items) and items[i] is not None:
        return items[i]
    return by_kernel(items, np.int32(i), stated)


def place_growing(items: list[Any], index: Any, value: Any, by_kernel: ByKernel) -> None:
    """Sets an element of a list, which becomes longer if the element is behind its end; amortized O(1) an element."""
    i, n = int(index), len(items)
    if i == n:
        items.append(value)
    elif 0 <= i < n:
        items[i] = value
    else:
        if i < 0 or i > 2 * n + FAR:
            by_kernel(items, np.int32(i), value)  # raises if the index must be a mistake
        items.extend([None] * (i - n))
        items.append(value)


def resize(items: list[Any], size: Any, by_kernel: ByKernel) -> None:
    """Shortens a list, or adds elements that are not there yet."""
    n, old = int(size), len(items)
    if n < 0 or n > 2 * old + FAR:
        by_kernel(items, size)  # raises if the size must be a mistake
    if n < old:
        del items[n:]
    else:
        items.extend([None] * (n - old))


def unset(items: list[Any], indices: Any, by_kernel: ByKernel) -> None:
    """Takes elements, at a scalar or vector of indices, out of a list; their places stay."""
    for i in indices.ravel().tolist():
        if not 0 <= i < len(items):
            by_kernel(items, indices)  # raises
        items[i] = None


def blanks(n: Any) -> list[Any]:
    """A list of `n` elements that are not there yet."""
    if np.ndim(n):
        raise InvalidArgumentError(f"num_elements expected to be a scalar but got shape: {shapes.show(np.shape(n))}")
    if n < 0:
        raise InvalidArgumentError(f"The num_elements to reserve must be a non negative number, but got {n}")
    check_size((int(n),), int64)  # of a list, a word an element
    return [None] * int(n)


def stacked(items: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, wanted: int) -> Any:
    """The elements of a list, each of `shape`, as the rows of an array; zeros where there are none yet."""
    n = len(items)
    if wanted not in (-1, n):
        raise InvalidArgumentError(
            f"Operation expected a list with {wanted} elements but got a list with {n} elements."
        )
    if not n or not shape:
        return np.array([0 if x is None else x for x in items], dtype).reshape(n, *shape)
    if any(x is None for x in items):
        zero = np.zeros(shape, dtype)
        items = [zero if x is None else x for x in items]
    return np.concatenate(items).reshape(n, *shape)


def stacked_alike(
    items: Sequence[Any], pattern: Shape, dtype: np.dtype, wanted: int, stated: Any, by_kernel: ByKernel
) -> Any:
    """The elements of a list as the rows of an array, where their shape, which fits `pattern`, is not known before."""
    shape = _common_shape(items, pattern)
    if shape is None:
        return by_kernel(items, stated)
    return stacked(items, shape, dtype, wanted)


def gathered(items: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, indices: Any) -> Any:
    """The elements at `indices` of a list, each of `shape`, as the rows of an array."""
    return stacked(_chosen(items, indices), shape, dtype, -1)


def gathered_alike(
    items: Sequence[Any], pattern: Shape, dtype: np.dtype, indices: Any, stated: Any, by_kernel: ByKernel
) -> Any:
    """The same, where the shape of the elements, which fits `pattern`, is not known before."""
    chosen = _chosen(items, indices)
    shape = _common_shape(chosen, pattern)
    if shape is None:
        return by_kernel(items, indices, stated)
    return stacked(chosen, shape, dtype, -1)


def concatenated(
    items: Sequence[Any], pattern: Shape, stated: Any, leading_dims: Any, by_kernel: ByKernel
) -> tuple[Any, Any]:
    """The elements of a list joined along their first dimension, and the int64 length of each; `pattern` is what is
    known of the other dimensions."""
    rest = items[0].shape[1:] if len(items) and items[0] is not None else None
    alike = all(x is not None and x.ndim > 0 and x.shape[1:] == rest for x in items)
    if rest is None or not alike or not shapes.fits(rest, pattern):
        joined: tuple[Any, Any] = by_kernel(items, stated, leading_dims)
        return joined
    return np.concatenate(items), np.array([len(x) for x in items], np.int64)


def _chosen(items: Sequence[Any], indices: Any) -> list[Any]:
    n = len(items)
    where = indices.ravel().tolist()
    for i in where:
        if not 0 <= i < n:
            raise InvalidArgumentError(f"Trying to gather element {i} in a list with {n} elements.")
    return [items[i] for i in where]


def _common_shape(items: Sequence[Any], pattern: Shape) -> tuple[int, ...] | None:
    """The shape that all elements have, if none is missing and it fits `pattern`; None if there is none such."""
    if not len(items) or items[0] is None:
        return None
    shape: tuple[int, ...] = items[0].shape
    alike = all(item is not None and item.shape == shape for item in items)
    return shape if alike and shapes.fits(shape, pattern) else None


def within(items: list[Any], value: Any, limit: int, what: str) -> None:
    """Raises if an accumulator holds more than `limit` bytes; called when it may."""
    total = _bytes(items)
    if total > limit:
        raise _too_much(items, total - value.nbytes, limit, what)


def nested_within(run: RunState, items: list[Any], limit: int, what: str) -> None:
    """The same of an accumulator of lists, to which one was just added."""
    before = run.held.get(id(items), 0) if len(items) > 1 else 0  # what had this id before is gone
    last = items[-1]
    total = before + (run.held.get(id(last)) or _bytes(last) if isinstance(last, list) else last.nbytes)
    if total > limit:
        raise _too_much(items, before, limit, what)
    run.held[id(items)] = total


def _bytes(items: list[Any]) -> int:
    return sum(_bytes(x) if isinstance(x, list) else getattr(x, "nbytes", 0) for x in items)


def _too_much(items: list[Any], before: int, limit: int, what: str) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"the gradient of a loop keeps more than {limit:,} bytes of {what}: "
        f"{len(items) - 1} values of {before:,} bytes so far. Let the loop keep less "
        "(while_loop(..., save=hr.recompute('sqrt'))), or raise the limit (HEADRACE_ACCUMULATOR_LIMIT)"
    )


def too_deep(op: Operation, limit: int, name: str) -> ResourceExhaustedError:
    """The error of a call of `name` beyond `limit` calls in one another."""
    made = f", made at {op.source}" if op.source is not None else ""
    return ResourceExhaustedError(
        f"calls are nested deeper than {limit}: '{op.name}' ({op.type}){made}, calls '{name}' once more. "
        "Does the recursion end? If it does, raise the limit by HEADRACE_CALL_DEPTH",
        op.name,
        op,
    )
