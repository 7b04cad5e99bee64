"""Derivatives of x³ by a loop, at 2, in each system that is installed.

    python -m benchmarks.loop_derivatives

The loop is `i = 0; y = 1; while i < 3: y *= x; i += 1`, whose trip count the systems do not know. The value is 8, the
first and the second derivative are 12. Prints a markdown table: a number, or the class of the error.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

X = 2.0
TRUE = (8.0, 12.0, 12.0)

#: Row of the table -> function that returns the three functions value, first and second derivative.
System = Callable[[], tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]]


def headrace_session() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import headrace as hr

    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, ())
        _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, hr.constant(1.0, hr.float64)))
        (first,) = hr.gradients(y, x)
        (second,) = hr.gradients(first, x)
    session = hr.Session(graph=g)
    return tuple(lambda t=t: session.run(t, {x: X}) for t in (y, first, second))  # type: ignore[return-value,misc]


def headrace_jit() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import headrace as hr

    @hr.jit
    def power(x: Any) -> Any:
        i, y = hr.constant(0), hr.constant(1.0, hr.float64)
        while i < 3:
            y = y * x
            i += 1
        return y

    x = hr.constant(X, hr.float64)
    return lambda: power(x), lambda: hr.grad(power)(x), lambda: hr.grad(hr.grad(power))(x)


def tensorflow_v1() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    return _tensorflow(False)


def tensorflow_v2() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    return _tensorflow(True)


def _tensorflow(is_v2: bool) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import tensorflow.compat.v1 as tf

    (tf.enable_control_flow_v2 if is_v2 else tf.disable_control_flow_v2)()

    def run(order: int) -> Any:
        with tf.Graph().as_default() as g:
            x = tf.placeholder(tf.float64, ())
            y0 = tf.constant(1.0, tf.float64)
            y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (tf.constant(0), y0))[1]
            for _ in range(order):
                (y,) = tf.gradients(y, x)
            with tf.Session(graph=g) as session:
                return session.run(y, {x: X})

    return lambda: run(0), lambda: run(1), lambda: run(2)


def jax_while() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import jax

    jax.config.update("jax_enable_x64", True)

    def power(x: Any) -> Any:
        return jax.lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] * x), (0, 1.0))[1]

    return lambda: power(X), lambda: jax.grad(power)(X), lambda: jax.grad(jax.grad(power))(X)


def jax_forward() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import jax

    def power(x: Any) -> Any:
        return jax.lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] * x), (0, 1.0))[1]

    return lambda: power(X), lambda: jax.jacfwd(power)(X), lambda: jax.jacfwd(jax.jacfwd(power))(X)


def torch_eager() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import torch

    def power(x: Any) -> Any:
        i, y = torch.tensor(0), torch.tensor(1.0, dtype=torch.float64)
        while i < 3:
            y = y * x
            i = i + 1
        return y

    return _by_torch(power)


def torch_while_loop() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import torch
    from torch._higher_order_ops.while_loop import while_loop

    def power(x: Any) -> Any:
        first = (torch.tensor(0), torch.tensor(1.0, dtype=torch.float64))
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), first)[1]

    return _by_torch(power)


def _by_torch(power: Callable[[Any], Any]) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    import torch

    def run(order: int) -> Any:
        x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
        y = power(x)
        for _ in range(order):
            (y,) = torch.autograd.grad(y, x, create_graph=True)
        return y

    return lambda: run(0), lambda: run(1), lambda: run(2)


SYSTEMS: dict[str, System] = {
    "headrace, `while_loop` in a graph": headrace_session,
    "headrace, `while` under `hr.jit`": headrace_jit,
    "TensorFlow, `tf.while_loop`, control flow V1": tensorflow_v1,
    "TensorFlow, `tf.while_loop`, control flow V2": tensorflow_v2,
    "JAX, `lax.while_loop`, reverse mode": jax_while,
    "JAX, `lax.while_loop`, forward mode": jax_forward,
    "PyTorch, Python's `while`, eager": torch_eager,
    "PyTorch, `while_loop` (prototype)": torch_while_loop,
}


def _shown(compute: Callable[[], Any], true: float) -> str:
    try:
        value = float(compute())
    except Exception as error:  # the table is about the errors of other systems
        return type(error).__name__
    return f"{value:g}" if abs(value - true) < 1e-9 else f"**{value:g}**"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def main() -> None:
    """Prints the table; a wrong number is in bold type."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    rows = []
    for name, system in SYSTEMS.items():
        with _quiet():
            try:
                functions = system()
            except ImportError as error:
                print(f"{name}: not measured, {error}", file=sys.stderr)
                continue
            rows.append([name, *map(_shown, functions, TRUE)])
    print("| system | value | first derivative | second derivative |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
