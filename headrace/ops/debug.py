"""Ops that check and print values at run time: Assert, Print, PrintV2, StringFormat, Timestamp.

Source: TensorFlow's ops of the same names; texts are formatted as in TensorFlow. The short style of Assert and Print
shows the first elements in one line; the long style of `tf.print` shows both ends of every dimension. StringFormat
formats the texts.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.files import system
from headrace.files.regular import named
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, list_attr, op, string_attr, type_attr
from headrace.opkit.batch_shapes import all_hold
from headrace.opkit.jvp_rules import passed
from headrace.opkit.shape_rules import nothing, same_as, scalars
from headrace.resources.values import shape_of
from headrace.shapes import Shape

# *** values as text ***

_ESCAPES = {
    **{i: f"\\{i:03o}" for i in (*range(32), 127)},
    9: r"\t",
    10: r"\n",
    13: r"\r",
    34: r"\"",
    39: r"\'",
    92: r"\\",
}


def _escaped(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape").translate(_ESCAPES)


def _float(x: Any) -> str:
    """The text of a float in the shorter of two precisions that round-trips."""
    value = float(x)
    short, long, exact = (15, 17, float) if x.dtype == np.float64 else (6, 9, np.float32)
    text = f"{value:.{short}g}"
    return text if exact(text) == exact(value) or value != value else f"{value:.{long}g}"


def _element(x: Any, quote: str) -> str:
    """The text of one element of an array, with strings between `quote`."""
    if isinstance(x, bytes):
        return f"{quote}{_escaped(x)}{quote}"
    kind = getattr(x, "dtype", np.dtype(object)).kind
    if kind in "biu":
        return str(int(x))
    if kind == "c":
        return "?"  # TensorFlow shows no complex numbers
    return f"<{type(x).__name__}>" if kind == "O" else _float(x)


def summary(x: Any, limit: int) -> str:
    """The text of the first `limit` elements (-1: all) in one line.

    Rows of matrices are in brackets; "..." stands for omitted elements.
    """
    shape = shape_of(x)
    array = np.asarray(x, None if hasattr(x, "dtype") else object)
    n = array.size if limit < 0 else min(limit, array.size)
    texts = [_element(v, "") for v in array.reshape(-1)[:n]]

    def part(shape: Sequence[int], inside: bool) -> str:
        if len(shape) <= 1:
            taken = texts[: shape[0] if shape else 1]
            del texts[: len(taken)]
            return " ".join(taken) + ("..." if inside and len(taken) < shape[0] else "")
        return "".join(f"[{part(shape[1:], True)}]" for _ in range(shape[0]) if texts)

    return part(shape, False) + ("..." if n < array.size else "")


def pretty(x: Any, ends: int) -> str:
    """The text of the first and last `ends` elements (-1: all) of each dimension.

    Each row of a matrix is a line.
    """
    array = np.asarray(x, None if hasattr(x, "dtype") else object)
    ends = array.size if ends < 0 else min(ends, array.size)

    def part(x: Any, depth: int) -> str:
        left = array.ndim - depth
        if not left:
            return _element(x, '"')
        gap = " " if left == 1 else "\n" * (left - 1) + " " * (depth + 1)
        if len(x) <= 2 * ends:
            return "[" + gap.join(part(v, depth + 1) for v in x) + "]"
        front, back = ([part(v, depth + 1) for v in rows] for rows in (x[:ends], x[len(x) - ends :]))
        return "[" + gap.join([*front, "...", *back] if ends else ["", "..."]) + "]"

    if not array.ndim:
        return _element(array[()], '"') if ends else "..."
    return part(array, 0)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# *** Assert ***


def _assert_kernel(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    limit = attrs["summarize"]

    def kernel(condition: Any, *data: Any) -> None:
        if condition.ndim:
            raise InvalidArgumentError(f"In[0] should be a scalar: {shapes.show(condition.shape)}")
        if not condition:
            shown = " ".join(f"[{summary(x, limit)}]" for x in data)
            raise InvalidArgumentError(f"assertion failed: {shown}")

    return kernel


_SHOWS = Facts(effect="stdout", writes=True)

op(
    "Assert",
    "condition: bool, data: T",
    attrs={"T": list_attr("type", minimum=1), "summarize": 3},
    shape=nothing,
    stateful=_assert_kernel,
    grad=NOT_DIFFERENTIABLE,
    batch=all_hold,
    facts=_SHOWS,
    doc="Fails, with `data` in the message, unless `condition` holds.",
)

# *** Print, PrintV2 ***


class _Count:
    """The number of messages that a Print may still write."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0


def _print_kernel(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    message, limit, first_n = attrs["message"], attrs["summarize"], attrs["first_n"]
    count = (
        ctx.step.session.lookup_or_create("_print", _Count, ctx.node, lambda: _Count(first_n)) if first_n >= 0 else None
    )

    def kernel(x: Any, *data: Any) -> Any:
        if count is None or count.take():
            _to_stream(sys.stderr, message + "".join(f"[{summary(d, limit)}]" for d in data) + "\n")
        return x

    return kernel


op(
    "Print",
    "input: T, data: U",
    "output: T",
    {"T": type_attr(), "U": list_attr("type"), "message": "", "first_n": -1, "summarize": 3},
    shape=same_as(0),
    stateful=_print_kernel,
    grad=lambda b, n, dy: [dy] + [None] * len(n.attrs["U"]),
    jvp=passed,
    facts=_SHOWS,
    doc="The input; prints `data` on standard error, the first `first_n` times (-1: always).",
)


def _to_stream(stream: Any, text: str) -> None:
    """Writes text that may contain bytes other than UTF-8."""
    stream.write(_utf8(text).decode("utf-8", "replace"))
    stream.flush()


def _to_log(level: str, text: str) -> None:
    import logging

    logging.getLogger("headrace").log(logging.getLevelNamesMapping()[level.upper()], "%s", text)


def _print_v2_kernel(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    target, end = attrs["output_stream"], attrs["end"]
    _check_stream(target)

    def kernel(x: Any) -> None:
        if x.ndim:
            raise InvalidArgumentError(f"Input is expected to be scalar, but got {shapes.show(x.shape)}")
        text = x[()].decode("utf-8", "surrogateescape")
        if target.startswith("file://"):
            path = target.removeprefix("file://")
            with named(path), system.stream(path, "ab") as file:
                file.write(_utf8(text + end))
        elif target.startswith("log("):
            _to_log(target[4:-1], text)
        else:
            _to_stream(sys.stdout if target == "stdout" else sys.stderr, text + end)

    return kernel


_STREAMS = ("stdout", "stderr", "log(info)", "log(warning)", "log(error)")


def _check_stream(target: str) -> None:
    if target not in _STREAMS and not target.startswith("file://"):
        known = ", ".join((*_STREAMS, "file://<path>"))
        raise InvalidArgumentError(f"Unknown output stream: {target}, needs to be one of {known}")


op(
    "PrintV2",
    "input: string",
    attrs={"output_stream": "stderr", "end": "\n"},
    shape=nothing,
    stateful=_print_v2_kernel,
    grad=NOT_DIFFERENTIABLE,
    facts=_SHOWS,
    doc="Writes a text to standard output or error, to Python's log, or at the end of a file.",
)

# *** StringFormat ***


def _format_shape(c: Inference) -> Sequence[Shape]:
    template, placeholder = c.attrs["template"], c.attrs["placeholder"]
    n = len(template.split(placeholder)) - 1 if placeholder else 0
    if n != len(c.shapes):
        raise ValueError(f"num placeholders in template and num inputs must match: {n} vs. {len(c.shapes)}")
    return [()]


def _format_kernel(attrs: Mapping[str, Any]) -> Any:
    pieces = attrs["template"].split(attrs["placeholder"]) if attrs["placeholder"] else [attrs["template"]]
    ends = attrs["summarize"]

    def kernel(*inputs: Any) -> Any:
        if len(inputs) != len(pieces) - 1:
            raise InvalidArgumentError(
                f"num placeholders in template and num inputs must match: {len(pieces) - 1} vs. {len(inputs)}"
            )
        text = pieces[0] + "".join(pretty(x, ends) + after for x, after in zip(inputs, pieces[1:]))
        return np.array(_utf8(text), object)

    return kernel


def _formats(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(want: str, *inputs: Any, **attrs: Any) -> Any:
        return case([np.asarray(x) for x in inputs], **attrs, want=np.array(want.encode(), object))

    cube = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    return [
        some("nothing", template="nothing"),
        some("1.5", np.float32(1.5)),
        some("a 1 b [0.1 0.33333333333333331] c", True, np.array([0.1, 1 / 3]), template="a %s b %s c"),
        some('["x" "\\"y\\""]', np.array([b"x", b'"y"'], object)),
        some("[0 1 ... 8 9]", np.arange(10), summarize=2),
        some("[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]", cube, template="{}", placeholder="{}"),
        some("[[0 ... 4]\n ...\n [20 ... 24]]", np.arange(25).reshape(5, 5), summarize=1),
    ]


op(
    "StringFormat",
    "inputs: T",
    "output: string",
    {"T": list_attr("type"), "template": string_attr("%s"), "placeholder": string_attr("%s"), "summarize": 3},
    shape=_format_shape,
    kernel=_format_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    sample=_formats,
    doc="The template with the texts of the inputs in place of its placeholders.",
)
op(
    "Timestamp",
    "",
    "ts: float64",
    shape=scalars,
    stateful=lambda ctx, attrs: lambda: np.float64(time.time()),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="step", writes=True),  # two of them may differ
    doc="The seconds since 1970.",
)
op(
    "Fact",
    "",
    "fact: string",
    shape=scalars,
    kernel=lambda attrs: lambda: np.array(b"0! == 1", object),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    sample=lambda rng, t: [case(want=np.array(b"0! == 1", object))],
    doc="A fact about factorials.",
)


def _pinned(x: Any) -> Any:
    raise InvalidArgumentError("not pinned: memory is pinned for the copies of GPUs, and a CPU has none")


op(
    "CheckPinned",
    "tensor: T",
    "output: T",
    {"T": type_attr()},
    shape=same_as(0),
    stateful=lambda ctx, attrs: _pinned,
    grad=NOT_DIFFERENTIABLE,
    doc="Checks that a tensor is in memory that is pinned for a GPU; always an error on a CPU.",
)
