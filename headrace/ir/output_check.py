"""HEADRACE_VERIFY=2: what kernels give is checked against what inference promised.

A wrong dtype or shape is then reported where it is made, not three operations later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.errors import HeadraceInternalError

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


def check_results(op: Operation, out: Any, of_cpu: bool = True) -> None:
    """Checks what a kernel of `op` returned."""
    for t, v in zip(op.outputs, (out,) if len(op.outputs) == 1 else out or (), strict=True):
        check_value(t, v, of_cpu)


def checked(op: Operation, f: Callable[..., Any], of_cpu: bool = True) -> Callable[..., Any]:
    """`f` with its results checked against what inference promised (HEADRACE_VERIFY=2).

    Args:
      op: what `f` computes.
      f: a kernel.
      of_cpu: whether it is one of the CPU, which gives arrays.
    """

    def checking(*args: Any) -> Any:
        out = f(*args)
        check_results(op, out, of_cpu)
        return out

    return checking


def later(op: Operation, factory: Callable[..., Any], is_async: bool, of_cpu: bool = True) -> Callable[..., Any]:
    """The same for a stateful or asynchronous kernel, which `factory` makes at each step."""

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
    """Raises `HeadraceInternalError` unless `value` is what `t`'s dtype and static shape say; an array, if `of_cpu`."""
    if t.dtype.is_ref or t.dtype.name in ("resource", "variant"):
        return
    is_value = isinstance(value, (np.ndarray, np.generic)) if of_cpu else hasattr(value, "shape")
    if not is_value or getattr(value, "dtype", None) != t.dtype.numpy:
        got = getattr(value, "dtype", type(value).__name__)
        raise HeadraceInternalError(f"{t.name} ({t.op.type}) must be {t.dtype.name}, its kernel gave {got}")
    if not shapes.fits(value.shape, t.shape):
        raise HeadraceInternalError(
            f"{t.name} ({t.op.type}) was inferred as {shapes.show(t.shape)}, its kernel gave {shapes.show(value.shape)}"
        )
