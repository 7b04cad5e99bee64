"""Run-time support of compiled code: its state, cancellable loops, operations on lists.

**Checks for cancellation.** Without checks, a compiled loop would not notice that its session was closed or its
deadline passed. So it iterates over an iterator that yields iteration numbers in stretches, and checks the step between
two stretches. The length of a stretch doubles while it takes less than `thresholds.LOOK_INTERVAL` seconds. Within a
stretch, an iteration costs the next number of a range.

A short inner loop may run a thousand times, and setting up stretches would cost more than its iterations. So a loop is
a mere range if its iterations and those of the short loops before it are too few to need a check.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from headrace import shapes, thresholds
from headrace.device_arrays import Elements, computed
from headrace.dtypes import int64
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.ir.kernel import Kernel, made_for
from headrace.ir.opdef import op_registry
from headrace.opkit.arrays import check_size

if TYPE_CHECKING:
    from headrace.device_arrays import ArrayMemory
    from headrace.dtypes import DType
    from headrace.ir.graph import Operation
    from headrace.ir.kernel import KernelContext, StepContext
    from headrace.opkit.forms import Index
    from headrace.schedule.timers import Laps
    from headrace.shapes import Shape

T = TypeVar("T")


START: Final = range(thresholds.FIRST_LOOK)
chain: Final = itertools.chain


_mine = threading.local()


def quietly(f: Callable[..., T], *args: Any) -> T:
    """Calls `f(*args)` without numpy's warnings.

    It is equal to `np.errstate(all="ignore")`, which takes twenty times as long. numpy keeps its error state in a
    context variable. So each thread has a context of its own, in which the state is set once, and `f` runs in it. `f`
    must not call functions of users, because these would not see the context variables of their thread.
    """
    try:
        context: contextvars.Context = _mine.context
    except AttributeError:
        context = _mine.context = contextvars.Context()
        context.run(np.seterr, all="ignore")
    try:
        return context.run(f, *args)
    except RuntimeError:
        if _is_entered(context):  # a nested run
            with np.errstate(all="ignore"):
                return f(*args)
        raise


def _is_entered(context: contextvars.Context) -> bool:
    try:
        context.run(int)
    except RuntimeError:
        return True
    return False


def embedded(x: Any, shape: tuple[int, ...], index: Index) -> np.ndarray:
    """Returns zeros of `shape` with `x` in the piece at `index`."""
    out = np.zeros(shape, x.dtype)
    out[index] = x
    return out


def one_hot(indices: Any, on: Any, off: Any, axis: int, depth: int) -> np.ndarray:
    """Returns `on` at the position of each index along a new axis, `off` elsewhere."""
    places = np.arange(depth).reshape([depth if i == axis else 1 for i in range(indices.ndim + 1)])
    made: np.ndarray = np.where(np.expand_dims(indices, axis) == places, on, off)
    return made


class RunState:
    """State of one run of compiled code.

    Attributes:
      kernels: The stateful kernels, made for this run.
      bound: The kernels that are made for resources, without their handles as inputs.
      list_bytes: The bytes in a list of lists, by the list's id.
      step: The context of the step, which is checked for cancellation and the deadline; None if there is none.
      laps: The times of a profiled run; else None.
    """

    __slots__ = ("_at_once", "_left", "_looked", "bound", "kernels", "laps", "list_bytes", "step")

    def __init__(
        self,
        step: StepContext | None,
        kernels: Sequence[Callable[..., Any]],
        bound: Sequence[Callable[..., Any]] = (),
        laps: Laps | None = None,
    ) -> None:
        self.step: Any = step
        self.laps: Any = laps
        self.kernels = kernels
        self.bound = bound
        self.list_bytes: dict[int, int] = {}
        self._left = 0  # iterations of short loops until the next check
        self._at_once = thresholds.FIRST_LOOK  # their number after a check
        self._looked = 0.0  # time of the last check

    def look(self) -> None:
        """Raises if the step was cancelled or is past its deadline."""
        if self.step is not None:
            self.step.look()

    def __iter__(self) -> Iterator[int]:
        """The numbers from `thresholds.FIRST_LOOK` on, without end: the continuation of `START`."""
        return chain.from_iterable(self._stretches(thresholds.FIRST_LOOK, None))

    def span(self, first: Any, stop: Any) -> Iterator[int] | range:
        """The numbers from `first` up to `stop`, as Python ints."""
        first, stop = int(first), int(stop)
        n = stop - first
        if self._left < n <= thresholds.SHORT_LOOP_LOOK:
            self.look()
            now = time.monotonic()
            is_soon = now - self._looked < thresholds.LOOK_INTERVAL
            if is_soon:
                self._at_once = min(2 * self._at_once, thresholds.SHORT_LOOP_LOOK)
            else:
                self._at_once = max(self._at_once // 2, thresholds.FIRST_LOOK)
            self._left, self._looked = self._at_once, now
        if n <= self._left:
            self._left -= max(n, 0)
            return range(first, stop)
        return chain(
            range(first, first + thresholds.FIRST_LOOK),
            chain.from_iterable(self._stretches(first + thresholds.FIRST_LOOK, stop)),
        )

    def _stretches(self, first: int, stop: int | None) -> Iterator[range]:
        n = thresholds.FIRST_LOOK
        began = time.monotonic()
        while stop is None or first < stop:
            self.look()
            end = first + n if stop is None else min(first + n, stop)
            yield range(first, end)
            first = end
            now = time.monotonic()
            if now - began < thresholds.LOOK_INTERVAL:
                n *= 2
            elif n > 1:
                n //= 2
            began = now


def blocking(op: Operation, kernel: Kernel) -> Kernel:
    """Wraps the blocking kernel of `op` so that the step's watch sees its calls.

    A step that was cancelled during a call ends when the kernel returns.
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
    """The branch for an index; the last one if the index is out of range."""
    if getattr(value, "ndim", 0):
        raise InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {shapes.show(value.shape)}: "
            "a SwitchN needs one output_index"
        )
    i = int(value)
    return i if 0 <= i < n else n - 1


# *** lists ***


def element(items: Sequence[Any], index: Any, blank: Any) -> Any:
    """An element of a list; `blank` if it is missing."""
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
    """Kernel of an operation on tensor lists, for a list of Python.

    It is called in rare cases and to raise errors, as each call copies the list in O(n).

    Args:
      op: The operation; its input 0 is the list.
      dtype: The dtype of the elements.
      shape: The static shape of the elements, as far as the list states it.
      memory: The memory of the device in which the elements are; None for the host.

    Attributes:
      stack: Makes an array of elements of one shape, as `stacked`.
      join: Concatenates elements.
    """

    __slots__ = ("_kernel", "_make", "_set", "_shape", "join", "stack")

    def __init__(self, op: Operation, dtype: DType, shape: Shape, memory: ArrayMemory | None) -> None:
        self.stack: Callable[..., Any] = stacked if memory is None else _stacked_there
        self.join: Callable[..., Any] = np.concatenate if memory is None else _joined_there
        self._kernel = _kernel_of(op.type, op.attrs, np if memory is None else Elements(memory))
        self._make = _kernel_of("TensorListReserve", {"element_dtype": dtype, "shape_type": int64})
        self._set = _kernel_of("TensorListSetItem", {"element_dtype": dtype, "resize_if_index_out_of_bounds": False})
        self._shape = np.array(-1 if shape is None else [-1 if d is None else d for d in shape], np.int64)

    def __call__(self, items: Sequence[Any], *args: Any) -> Any:
        known = self._make(self._shape, np.int32(len(items)))
        for i, item in enumerate(items):
            if item is not None:
                known = self._set(known, np.int32(i), item)
        return self._kernel(known, *args)


def _kernel_of(type: str, attrs: Mapping[str, Any], xp: Any = np) -> Callable[..., Any]:
    make = op_registry.get(type).kernel
    assert make is not None
    kernel: Callable[..., Any] = make(xp, attrs)
    return kernel


def _stacked_there(items: Sequence[Any], *_: Any) -> Any:
    return computed(lambda xp, *arrays: xp.stack(arrays), *items)


def _joined_there(items: Sequence[Any]) -> Any:
    return computed(lambda xp, *arrays: xp.concat(arrays), *items)


def rows(array: Any) -> list[Any]:
    """The rows of an array in the memory of a device."""
    return list(computed(lambda xp, x: xp.unstack(x), array))


def element_alike(items: Sequence[Any], index: Any, stated: Any, by_kernel: ByKernel) -> Any:
    """An element of a list; zeros of the other elements' shape if missing."""
    i = int(index)
    if 0 <= i < len(items) and items[i] is not None:
        return items[i]
    return by_kernel(items, np.int32(i), stated)


def place_growing(items: list[Any], index: Any, value: Any, by_kernel: ByKernel) -> None:
    """Sets an element of a list that may have to grow; amortized O(1)."""
    i, n = int(index), len(items)
    if i == n:
        items.append(value)
    elif 0 <= i < n:
        items[i] = value
    else:
        if i < 0 or i > 2 * n + thresholds.UNCHECKED_GROWTH:
            by_kernel(items, np.int32(i), value)  # raises if the index is out of bounds or implausibly large
        items.extend([None] * (i - n))
        items.append(value)


def resize(items: list[Any], size: Any, by_kernel: ByKernel) -> None:
    """Shortens a list, or extends it by missing elements."""
    n, old = int(size), len(items)
    if n < 0 or n > 2 * old + thresholds.UNCHECKED_GROWTH:
        by_kernel(items, size)  # raises if the size is negative or implausibly large
    if n < old:
        del items[n:]
    else:
        items.extend([None] * (n - old))


def unset(items: list[Any], indices: Any, by_kernel: ByKernel) -> None:
    """Removes the elements at a scalar or vector of indices; the length stays."""
    for i in indices.ravel().tolist():
        if not 0 <= i < len(items):
            by_kernel(items, indices)  # raises
        items[i] = None


def blanks(n: Any) -> list[Any]:
    """A list of `n` missing elements."""
    if np.ndim(n):
        raise InvalidArgumentError(f"num_elements expected to be a scalar but got shape: {shapes.show(np.shape(n))}")
    if n < 0:
        raise InvalidArgumentError(f"The num_elements to reserve must be a non negative number, but got {n}")
    check_size((int(n),), int64)  # the list takes a word per element
    return [None] * int(n)


def stacked(items: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, wanted: int) -> Any:
    """Elements of a list, each of `shape`, as rows; zeros for missing ones."""
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
    """Elements of a list as rows, if their static shape is not full.

    Args:
      items: The elements.
      pattern: The static shape of the elements.
      dtype: The dtype of the elements.
      wanted: The number of elements that the operation states; -1 for any.
      stated: The shape of the elements that the operation states.
      by_kernel: The kernel for missing elements, different shapes and errors.

    Returns:
      The array of the elements.
    """
    shape = _common_shape(items, pattern)
    if shape is None or wanted not in (-1, len(items)):
        return by_kernel(items, stated)
    return by_kernel.stack(items, shape, dtype, wanted)


def gathered(items: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, indices: Any) -> Any:
    """Elements of a list at `indices`, each of `shape`, as rows of an array."""
    return stacked(_chosen(items, indices), shape, dtype, -1)


def gathered_alike(
    items: Sequence[Any], pattern: Shape, dtype: np.dtype, indices: Any, stated: Any, by_kernel: ByKernel
) -> Any:
    """Elements at `indices` as rows, if their static shape is not full.

    The other arguments are those of `stacked_alike`.
    """
    chosen = _chosen(items, indices)
    shape = _common_shape(chosen, pattern)
    if shape is None:
        return by_kernel(items, indices, stated)
    return by_kernel.stack(chosen, shape, dtype, -1)


def concatenated(
    items: Sequence[Any], pattern: Shape, stated: Any, leading_dims: Any, by_kernel: ByKernel
) -> tuple[Any, Any]:
    """Joins the elements of a list along their first dimension.

    Args:
      items: The elements.
      pattern: The static shape of an element without its first dimension.
      stated: The shape of the elements that the operation states.
      leading_dims: The first dimensions that the operation states.
      by_kernel: The kernel for missing elements, different shapes and errors.

    Returns:
      The joined array, and the int64 length of each element.
    """
    rest = items[0].shape[1:] if len(items) and items[0] is not None else None
    alike = all(x is not None and x.ndim > 0 and x.shape[1:] == rest for x in items)
    if rest is None or not alike or not shapes.fits(rest, pattern):
        joined: tuple[Any, Any] = by_kernel(items, stated, leading_dims)
        return joined
    return by_kernel.join(items), np.array([x.shape[0] for x in items], np.int64)


def _chosen(items: Sequence[Any], indices: Any) -> list[Any]:
    n = len(items)
    where = indices.ravel().tolist()
    for i in where:
        if not 0 <= i < n:
            raise InvalidArgumentError(f"Trying to gather element {i} in a list with {n} elements.")
    return [items[i] for i in where]


def _common_shape(items: Sequence[Any], pattern: Shape) -> tuple[int, ...] | None:
    """The common shape of all elements, none missing, if it fits `pattern`; else None."""
    if not len(items) or items[0] is None:
        return None
    shape: tuple[int, ...] = items[0].shape
    alike = all(item is not None and item.shape == shape for item in items)
    return shape if alike and shapes.fits(shape, pattern) else None


def within(items: list[Any], value: Any, limit: int, what: str) -> None:
    """Raises `ResourceExhaustedError` if an accumulator holds more than `limit` bytes."""
    total = _bytes(items)
    if total > limit:
        raise _too_much(items, total - value.nbytes, limit, what)


def nested_within(run: RunState, items: list[Any], limit: int, what: str) -> None:
    """Raises `ResourceExhaustedError` if an accumulator of lists is too large after a push."""
    # a list of one element is new, and its id was reused
    before = run.list_bytes.get(id(items), 0) if len(items) > 1 else 0
    last = items[-1]
    has_lists = isinstance(last, list) and bool(last) and isinstance(last[0], list)
    total = before + ((has_lists and run.list_bytes.get(id(last))) or _bytes([last]))
    if total > limit:
        raise _too_much(items, before, limit, what)
    run.list_bytes[id(items)] = total


def _bytes(items: list[Any]) -> int:
    return sum(_bytes(x) if isinstance(x, list) else getattr(x, "nbytes", 0) for x in items)


def _too_much(items: list[Any], before: int, limit: int, what: str) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"the gradient of a loop keeps more than {limit:,} bytes of {what}: "
        f"{len(items) - 1} values of {before:,} bytes so far. Keep fewer residuals "
        "(while_loop(..., save=hr.recompute('sqrt'))), or raise HEADRACE_ACCUMULATOR_LIMIT"
    )


def too_deep(op: Operation, limit: int, name: str) -> ResourceExhaustedError:
    """The error of a call of `name` that is nested more than `limit` deep."""
    made = f", made at {op.source}" if op.source is not None else ""
    return ResourceExhaustedError(
        f"calls are nested deeper than {limit}: '{op.name}' ({op.type}){made}, calls '{name}' again. "
        "Check that the recursion ends; if it does, raise HEADRACE_CALL_DEPTH",
        op.name,
        op,
    )
