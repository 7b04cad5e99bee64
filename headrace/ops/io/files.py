"""Reading and writing of whole files as strings, and matching of file names.

Source: TensorFlow's ReadFile, WriteFile and MatchingFiles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes, thresholds
from headrace.errors import HeadraceInternalError, InvalidArgumentError, OpError
from headrace.files import local
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op
from headrace.resources.values import shape_of
from headrace.resources.workers import Workers
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext


def _workers() -> Workers:
    return Workers("headrace-files", thresholds.FILE_THREADS)


def _aside(work: Callable[..., Any]) -> Any:
    """A kernel that has a thread of the session do `work(*inputs)`."""

    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., None]:
        def kernel(*args: Any) -> None:
            *inputs, done = args

            def do() -> None:
                try:
                    result = work(*inputs)
                except OpError as e:
                    result = e
                except Exception as e:
                    result = HeadraceInternalError(f"reading or writing files failed: {type(e).__name__}: {e}")
                    result.__cause__ = e
                done(result)

            workers = ctx.step.session.lookup_or_create(
                "", Workers, "files", lambda: Workers("headrace-files", thresholds.FILE_THREADS)
            )
            workers.submit(do)

        return kernel

    return factory


def _one(value: Any, what: str) -> bytes:
    if shape_of(value):
        raise InvalidArgumentError(f"Input {what} tensor must be scalar, but had shape: {shapes.show(shape_of(value))}")
    text: bytes = value.item()
    return text


def _read(filename: Any) -> np.ndarray:
    return np.array(local.whole(_one(filename, "filename")), object)


def _write(filename: Any, contents: Any) -> None:
    local.written(_one(filename, "filename"), _one(contents, "contents"))


def _match(pattern: Any) -> np.ndarray:
    if len(shape_of(pattern)) > 1:
        raise InvalidArgumentError(
            f"Input patterns tensor must be scalar or vector, but had shape: {shapes.show(shape_of(pattern))}"
        )
    found = sorted(os.fsencode(path) for p in pattern.ravel() for path in local.matching(p))
    out = np.empty(len(found), object)
    out[:] = found
    return out


def _scalar_in(*outputs: Shape) -> Callable[[Inference], Sequence[Shape]]:
    def rule(c: Inference) -> Sequence[Shape]:
        for shape in c.shapes:
            shapes.with_rank(shape, 0)
        return list(outputs)

    return rule


def _names(c: Inference) -> Sequence[Shape]:
    shape = c.shapes[0]
    if shape is not None and len(shape) > 1:
        raise ValueError(f"patterns must be a scalar or a vector, got shape {shapes.show(shape)}")
    return [(None,)]


op(
    "ReadFile",
    "filename: string",
    "contents: string",
    shape=_scalar_in(()),
    async_=_aside(_read),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource", waits=True),
    doc="What is in a file.",
    differs="Files of more than 2 GiB, and files that are not regular, are refused.",
)
op(
    "WriteFile",
    "filename: string, contents: string",
    "",
    shape=_scalar_in(),
    async_=_aside(_write),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource", writes=True, waits=True),
    doc="Makes a file, and the folders around it; what was there is replaced.",
)
op(
    "MatchingFiles",
    "pattern: string",
    "filenames: string",
    shape=_names,
    async_=_aside(_match),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource", waits=True),
    doc="The paths that patterns such as data/*.csv stand for, sorted.",
)
