"""Checks of kernel results against inferred dtypes and shapes (HEADRACE_VERIFY=2).

A wrong dtype or shape is reported at the kernel that returned it, not three operations later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.errors import HeadraceInternalError
from headrace.ir.notes import OnDevice

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


def check_results(op: Operation, out: Any, of_cpu: bool = True) -> None:
    """Checks the results of a kernel of `op` against the inferred dtypes and shapes.

    Args:
      op: the operation.
      out: the return value of the kernel.
      of_cpu: whether the kernel runs on the CPU, so that results must be arrays.

    Raises:
      HeadraceInternalError: a result does not fit.
    """
    for t, v in zip(op.outputs, (out,) if len(op.outputs) == 1 else out or (), strict=True):
        check_value(t, v, of_cpu)


def checked(op: Operation, f: Callable[..., Any], of_cpu: bool = True) -> Callable[..., Any]:
    """Returns `f` with a check of its results (HEADRACE_VERIFY=2).

    Args:
      op: the operation that `f` computes.
      f: a kernel.
      of_cpu: whether the kernel runs on the CPU, so that results must be arrays.

    Returns:
      The kernel with checks.
    """

    def checking(*args: Any) -> Any:
        out = f(*args)
        check_results(op, out, of_cpu)
        return out

    return checking


def later(op: Operation, factory: Callable[..., Any], is_async: bool, of_cpu: bool = True) -> Callable[..., Any]:
    """Returns the factory of a stateful or asynchronous kernel, with checks of its results.

    Args:
      op: the operation.
      factory: the factory, which is called at each step.
      is_async: whether the kernel is asynchronous.
      of_cpu: whether the kernel runs on the CPU, so that results must be arrays.
    """

    def stateful(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        return checked(op, factory(ctx, attrs), of_cpu)

    def asynchronous(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        f = factory(ctx, attrs)

        def checking(*args: Any) -> Any:
            *inputs, done = args

            def checked_done(result: Any = None) -> None:
                if not isinstance(result, BaseException):
                    try:
                        check_results(op, result, of_cpu)
                    except (HeadraceInternalError, ValueError, TypeError) as e:
                        result = e
                done(result)

            return f(*inputs, checked_done)

        return checking

    return asynchronous if is_async else stateful


def check_value(t: Tensor, value: Any, of_cpu: bool = True) -> None:
    """Raises an error unless `value` has the dtype and fits the static shape of `t`.

    Args:
      t: the tensor.
      value: its value.
      of_cpu: whether the value must be an array, as on the CPU, unless the operation has the note `OnDevice`.

    Raises:
      HeadraceInternalError: the value does not fit.
    """
    if t.dtype.is_ref or t.dtype.name in ("resource", "variant"):
        return
    there = t.op.notes.get(OnDevice)
    is_host = of_cpu and (there is None or t.index not in there.outputs)
    is_value = isinstance(value, (np.ndarray, np.generic)) if is_host else hasattr(value, "shape")
    if not is_value or getattr(value, "dtype", None) != t.dtype.numpy:
        got = getattr(value, "dtype", type(value).__name__)
        raise HeadraceInternalError(f"{t.name} ({t.op.type}) must be {t.dtype.name}, its kernel gave {got}")
    if not shapes.fits(value.shape, t.shape):
        raise HeadraceInternalError(
            f"{t.name} ({t.op.type}) was inferred as {shapes.show(t.shape)}, its kernel gave {shapes.show(value.shape)}"
        )
