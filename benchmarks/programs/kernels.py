"""Single operations at the sizes of networks, for the times of their kernels."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.programs import Late, Program, numbers


def conv2d(batch: int, side: int, window: int, channels: int, outputs: int, stride: int = 1) -> Program:
    """A convolution of square images."""

    @Late
    def arguments() -> dict[str, np.ndarray]:
        new = numbers()
        return {
            "x": new(batch, side, side, channels, scale=1.0),
            "w": new(window, window, channels, outputs, scale=1 / math.sqrt(window * window * channels)),
        }

    title = f"conv2d {window}x{window} {channels}→{outputs}, {batch}x{side}x{side}"
    title += f", stride {stride}" if stride > 1 else ""
    return Program(title, "conv2d", 1, {"stride": stride}, arguments, ())


def conv2d_by_input(batch: int, side: int, window: int, channels: int, outputs: int) -> Program:
    """Its gradient by the images, for a stride of 1."""
    sizes = {"batch": batch, "side": side, "channels": channels}

    @Late
    def arguments() -> dict[str, np.ndarray]:
        new = numbers()
        return {
            "w": new(window, window, channels, outputs, scale=1 / math.sqrt(window * window * outputs)),
            "dy": new(batch, side, side, outputs, scale=1.0),
        }

    title = f"conv2d {window}x{window} {channels}→{outputs}, {batch}x{side}x{side}: gradient by the input"
    return Program(title, "conv2d_by_input", 1, sizes, arguments, ())


def conv2d_by_filter(batch: int, side: int, window: int, channels: int, outputs: int, stride: int = 1) -> Program:
    """Its gradient by the filter."""
    after = -(-side // stride)
    sizes = {"window": window, "channels": channels, "stride": stride}

    @Late
    def arguments() -> dict[str, np.ndarray]:
        new = numbers()
        return {
            "x": new(batch, side, side, channels, scale=1.0),
            "dy": new(batch, after, after, outputs, scale=1 / math.sqrt(batch * after * after)),
        }

    title = f"conv2d {window}x{window} {channels}→{outputs}, {batch}x{side}x{side}"
    title += f", stride {stride}" if stride > 1 else ""
    return Program(f"{title}: gradient by the filter", "conv2d_by_filter", 1, sizes, arguments, ())


def max_pool(batch: int, side: int, channels: int, window: int, gradient: bool) -> Program:
    """The greatest elements of windows, every second one, of square images."""
    arguments = Late(lambda: {"x": numbers()(batch, side, side, channels, scale=1.0)})
    title = f"max pool {window}x{window}, {batch}x{side}x{side}x{channels}" + (", gradient" if gradient else "")
    return Program(title, "max_pool", 1, {"window": window}, arguments, ("x",) if gradient else ())


def batch_norm(batch: int, side: int, channels: int, gradient: bool) -> Program:
    """Batch normalisation as in training; for its derivatives the sum of the cubes."""

    @Late
    def arguments() -> dict[str, np.ndarray]:
        new = numbers()
        return {
            "x": new(batch, side, side, channels, scale=1.0),
            "scale": 1 + new(channels, scale=0.1),
            "offset": new(channels, scale=0.1),
        }

    title = f"batch norm {batch}x{side}x{side}x{channels}"
    if gradient:
        return Program(f"{title}, gradient", "batch_norm_cubed", 1, {}, arguments, ("x", "scale", "offset"))
    return Program(title, "batch_norm", 1, {}, arguments, ())


def cross_entropy(batch: int, classes: int) -> Program:
    """Softmax cross entropy with its gradient."""

    @Late
    def arguments() -> dict[str, np.ndarray]:
        new = numbers()
        labels = np.abs(new(batch, classes, scale=1.0))
        return {"labels": labels / labels.sum(1, keepdims=True), "logits": new(batch, classes, scale=1.0)}

    return Program(f"softmax cross entropy {batch}x{classes}, gradient", "cross_entropy", 1, {}, arguments, ("logits",))


def matmul(n: int) -> Program:
    """A product of square matrices."""

    @Late
    def arguments() -> dict[str, np.ndarray]:
        new = numbers()
        return {"x": new(n, n), "y": new(n, n)}

    return Program(f"matmul {n}", "matmul", 1, {}, arguments, ())


def reductions(n: int) -> Program:
    """A sum along rows, the greatest along columns, a mean of all."""
    arguments = Late(lambda: {"x": numbers()(n, n, scale=1.0)})
    return Program(f"reductions of {n}x{n}", "reductions", 1, {}, arguments, ())


def gather(rows: int, width: int, n: int) -> Program:
    """n rows of a table."""
    arguments = Late(lambda: {"table": numbers()(rows, width, scale=1.0), "rows": _ids(rows, n)})
    return Program(f"gather {n:,} of {rows:,} rows of {width}", "gather", 1, {}, arguments, ())


def scatter(rows: int, width: int, n: int) -> Program:
    """n rows added up in a table."""
    arguments = Late(lambda: {"ids": _ids(rows, n), "values": numbers()(n, width, scale=1.0)})
    return Program(f"scatter {n:,} rows of {width} into {rows:,}", "scatter", 1, {"rows": rows}, arguments, ())


def _ids(rows: int, n: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, rows, n).astype(np.int32)
