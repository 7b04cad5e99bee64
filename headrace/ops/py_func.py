"""Python functions in graphs.

Source: TensorFlow's PyFunc, PyFuncStateless, EagerPyFunc. An operation refers to its function by a token
(`resources.callback`). The function runs on a thread of the session (`Facts.blocking`) in a clean context: without a
current graph, with numpy's default warnings, and with the floating-point mode of the caller of the step.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, nest
from headrace.denormals import unflushed
from headrace.errors import (
    HeadraceError,
    InvalidArgumentError,
    OpError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
    UnknownError,
)
from headrace.ir.grad_node import GradNode
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, list_attr, op, string_attr
from headrace.opkit.shape_rules import unknown
from headrace.resources import callback

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.kernel import KernelContext

# The step's error for an exception of the Python function: the first class that matches.
_CLASSES: Sequence[tuple[type[Exception], type[OpError]]] = (
    (ValueError, InvalidArgumentError),
    (TypeError, InvalidArgumentError),
    (StopIteration, OutOfRangeError),
    (MemoryError, ResourceExhaustedError),
    (NotImplementedError, UnimplementedError),
    (Exception, UnknownError),
)


def _argument(x: Any) -> Any:
    """The argument passed to the function: a writable copy of an array, or a scalar."""
    if not isinstance(x, np.ndarray):
        return x
    return x.copy() if x.ndim else x[()]


def _call(found: callback.Callback, args: Sequence[Any]) -> Any:
    try:
        with unflushed():
            return contextvars.Context().run(found.function, *map(_argument, args))
    except HeadraceError:
        raise
    except Exception as e:
        cls = next(made for kind, made in _CLASSES if isinstance(e, kind))
        raise cls(f"{type(e).__name__}: {e} (raised by the Python function {_named(found)})") from e


def _named(found: callback.Callback) -> str:
    """The name and line of the function, for errors."""
    fn = found.function
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__", None) or repr(fn)
    return f"'{name}'" + (f", {code.co_filename}:{code.co_firstlineno}" if code is not None else "")


def _array(value: Any, i: int, dtype: DType, found: callback.Callback) -> Any:
    """A private copy of one result, after a check that it is of `dtype`."""
    if dtype in (dtypes.resource, dtypes.variant):
        return value
    try:
        array = np.array(value)
    except ValueError as e:
        raise InvalidArgumentError(f"{i}-th value returned by {_named(found)} is no array: {e}") from e
    if array.dtype.kind in "SU" or (dtype is dtypes.string and array.dtype == object):
        array = _bytes(np.array(value, object), i, found)  # numpy's string dtypes drop trailing NULs
    if array.dtype != dtype.numpy:
        got = "string" if array.dtype == object else array.dtype.name
        raise InvalidArgumentError(
            f"{i}-th value returned by {_named(found)} is {got}, but expects {dtype.name}; "
            f"let it return np.{dtype.numpy.name}, or change Tout"
        )
    return array if array.ndim or dtype is dtypes.string else array[()]


def _bytes(array: np.ndarray, i: int, found: callback.Callback) -> np.ndarray:
    out = np.empty(array.shape, object)
    for at in np.ndindex(array.shape):
        x = array[at]
        x = x.encode() if isinstance(x, str) else x
        if not isinstance(x, bytes):
            raise InvalidArgumentError(f"{i}-th value returned by {_named(found)} has {x!r} in it, which is no text")
        out[at] = bytes(x)
    return out


def _py_func(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    token, types = attrs["token"], attrs["Tout"]
    found = callback.find(token)

    def kernel(*args: Any) -> Any:
        got = _call(found, args)
        results = [] if got is None else nest.as_list(got)
        if len(results) != len(types):
            raise InvalidArgumentError(
                f"{token} returns {len(results)} values, but expects to see {len(types)} (the number of types in "
                f"Tout): {_named(found)}"
            )
        out = tuple(_array(v, i, d, found) for i, (v, d) in enumerate(zip(results, types, strict=True)))
        return out[0] if len(out) == 1 else out or None

    return kernel


def _stateful(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    return _py_func(attrs)


def _pure(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    # found at each call, so a graph can be prepared without its function
    return lambda *args: _py_func(attrs)(*args)


def _grad(b: Any, n: GradNode, *dys: Any) -> list[Any]:
    """The gradient of a py_function: an operation that calls the callback's backward function.

    Its arguments are the inputs, the outputs and the gradients of the outputs.
    """
    found = callback.find(n.attrs["token"])
    back = found.back()
    if back is None:
        raise LookupError(
            f"{_named(found)} has no gradient here: a py_function has one of first order; for more, write it in ops"
        )
    xs, ys = list(n.input), list(n.output)
    at = [i for i, x in enumerate(xs) if _carries(x.dtype)]
    given = [b.ZerosLike(y) if dy is None else dy for y, dy in zip(ys, dys, strict=True) if _carries(y.dtype)]
    attrs = {"token": back.token, "Tout": tuple(xs[i].dtype.base for i in at)}
    made = b.make("EagerPyFunc", ([*xs, *ys, *given],), attrs)
    out: list[Any] = [None] * len(xs)
    for i, dx in zip(at, nest.as_list(made), strict=True):
        dx.replace_static(xs[i].shape, dx.handle)
        out[i] = dx
    return out


def _carries(dtype: DType) -> bool:
    return dtype.is_floating or dtype.is_complex


#: Operations that call a function of the process that made the graph.
OF_ONE_PROCESS: Final = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})

_ATTRS = {"token": string_attr(), "Tin": list_attr("type"), "Tout": list_attr("type")}
_EFFECT = Facts(effect="python", writes=True, blocking=True, dynamic_shape=True)
op(
    "PyFunc",
    "input: Tin",
    "output: Tout",
    _ATTRS,
    shape=unknown,
    stateful=_stateful,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="The results of a Python function of arrays, which may have side effects.",
)
op(
    "PyFuncStateless",
    "input: Tin",
    "output: Tout",
    _ATTRS,
    shape=unknown,
    kernel=_pure,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(blocking=True, no_fold=True, dynamic_shape=True),
    doc="The results of a Python function of arrays, which is stateless.",
)
op(
    "EagerPyFunc",
    "input: Tin",
    "output: Tout",
    {**_ATTRS, "is_async": False},
    shape=unknown,
    stateful=_stateful,
    grad=_grad,
    facts=_EFFECT,
    doc="The results of a Python function of eager tensors, which may have side effects.",
)
