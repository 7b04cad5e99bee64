"""Output and checks of a running graph: print, Assert, assertions."""

from __future__ import annotations

import collections
import pprint
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import nest, shapes
from headrace.api import arrays, reductions, scopes
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.table_examples import example
from headrace.api.tensors import constant_value, is_tensor, pair
from headrace.errors import InvalidArgumentError, ShapeError
from headrace.ir.builder import Builder
from headrace.ir.tensor_type import Tensor


def Print(
    input_: Any,
    data: Sequence[Any],
    message: str = "",
    first_n: int = -1,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Returns `input_`; in a run, `data` are written to standard error.

    Args:
      input_: a tensor.
      data: tensors.
      message: a text that is written first.
      first_n: number of times that it writes; negative: always.
      summarize: number of elements of each tensor to write; 3 if None.
      name: name of the operation; "Print" if None.

    Source: TensorFlow's `tf.compat.v1.Print`.

    Example:
      >>> import headrace as hr
      >>> x = hr.Print(hr.constant([1, 2]), [hr.constant(3)], "written: ")
      >>> x.numpy()
      array([1, 2], dtype=int32)
    """
    attrs = {"message": message, "first_n": first_n, "summarize": 3 if summarize is None else summarize}
    return scopes.builder(input_, list(data)).make("Print", (input_, list(data)), attrs, name)


def print(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int | None = 3,
    sep: str = " ",
    end: str = "\n",
    name: str | None = None,
) -> Any:
    """Adds an operation that writes tensors and Python values.

    Args:
      *inputs: tensors, sparse tensors, texts, other Python values, and nested structures of these. A text is written as
        it is, anything else as Python's `pprint` formats it, with the values of tensors in their places; the keys of
        dictionaries are in order. A sparse tensor is written as 'SparseTensor(indices=..., values=..., shape=...)',
        with quotes, as TensorFlow writes it.
      output_stream: `sys.stderr` (also if None) or `sys.stdout`, or "file://" and a path.
      summarize: number of elements at each end of an axis to write; 3 if None; -1: all.
      sep, end: the texts between the values, and after the last one.
      name: name of the operation; "PrintV2" if None.

    Returns:
      The operation. Outside of an ordered graph (`hr.Graph`), it runs only if an operation of the step depends on it.

    Source: TensorFlow's `tf.print`.

    Example:
      >>> import sys
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.int32, (3,))
      ...     shown = hr.print("x is", x, output_stream=sys.stdout)
      >>> hr.Session(graph=g).run(shown, {x: [1, 2, 3]})
      x is [1 2 3]
    """
    streams = {None: "stderr", sys.stderr: "stderr", sys.stdout: "stdout"}
    is_file = isinstance(output_stream, str) and output_stream.startswith("file://")
    target = output_stream if is_file else streams.get(output_stream)
    if target is None:
        raise ValueError(f"'output_stream' must be sys.stderr, sys.stdout or 'file://...', got {output_stream!r}")
    inputs = tuple(map(_sorted, inputs))
    leaves = nest.flatten(inputs, expand=False)
    tensors = [t for x in leaves for t in _printed(x)]
    b = scopes.builder(*tensors)
    if len(inputs) == 1 and is_tensor(inputs[0]) and inputs[0].dtype == "string" and inputs[0].shape == ():
        text = inputs[0]
    else:
        template, holder = _template(inputs, sep)
        attrs = {"template": template, "placeholder": holder, "summarize": 3 if summarize is None else summarize}
        text = b.make("StringFormat", (tensors,), attrs, name and f"{name}_format")
    return b.make("PrintV2", (text,), {"output_stream": target, "end": end}, name)


def _printed(x: Any) -> list[Any]:
    """Returns the tensors whose values are written for a leaf."""
    return nest.flatten(x) if isinstance(x, SparseTensor) else [x] if is_tensor(x) else []


def _template(inputs: Sequence[Any], sep: str) -> tuple[str, str]:
    """Returns the text with a placeholder for each tensor, and the placeholder.

    Both are exactly TensorFlow's. The line breaks depend on the placeholder, which `pprint` formats as a text in the
    tensor's place.
    """

    def formatted(x: Any, holder: str) -> str:
        def shown(leaf: Any) -> Any:
            if isinstance(leaf, SparseTensor):
                return f"SparseTensor(indices={holder}, values={holder}, shape={holder})"
            return holder if is_tensor(leaf) else leaf

        return pprint.pformat(nest.map_leaves(shown, x, expand=False))

    plain = " ".join(formatted(x, "") for x in inputs)
    holder, digits = "{}", random.Random(5)
    while holder in plain:
        holder += str(digits.randint(0, 9))
    words = [x if isinstance(x, str) else formatted(x, holder) for x in inputs]
    return sep.join(words).replace(f"'{holder}'", holder), holder


@nest.bounded
def _sorted(x: Any) -> Any:
    """Sorts each `OrderedDict` in `x` by its keys.

    `nest` sorts all dictionaries, but `pprint` does not sort these.
    """
    node = nest.nodes[type(x)]
    if node is None or node.is_composite:
        return x
    parts = [_sorted(part) for part in node.parts(x)]
    if type(x) is collections.OrderedDict:
        return collections.OrderedDict(zip(node.keys(x), parts, strict=True))
    return node.rebuilder(x)(parts)


def Assert(condition: Any, data: Sequence[Any], summarize: int | None = None, name: str | None = None) -> Any:
    """Adds an operation that fails unless `condition` is True.

    Args:
      condition: a boolean scalar.
      data: tensors and strings that the error shows.
      summarize: number of elements of each tensor to show; 3 if None.
      name: name of the operation; "Assert" if None.

    Returns:
      The operation.

    Raises:
      InvalidArgumentError: when it runs: the condition does not hold.

    Source: TensorFlow's `tf.debugging.Assert`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.int32, ())
      ...     with hr.control_dependencies([hr.Assert(x > 0, [x])]):
      ...         y = hr.identity(x)
      >>> hr.Session(graph=g).run(y, {x: 3})
      np.int32(3)
    """
    b = scopes.builder(condition, list(data))
    return b.make("Assert", (condition, list(data)), {"summarize": 3 if summarize is None else summarize}, name)


def _assert_now(condition: Any, data: Sequence[Any], summarize: int | None = None) -> Any:
    """Adds an `Assert`; fails immediately if the condition is known to be False."""
    known = constant_value(condition) if isinstance(scopes.builder(condition, list(data)), Builder) else None
    if known is not None and known.shape == () and not known:
        values = [v if (v := constant_value(x)) is not None else x for x in data]
        raise InvalidArgumentError(f"assertion failed: {', '.join(map(str, values))}")
    return Assert(condition, data, summarize)


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Tensor:
    """Returns `tensor`; in a run, fails if it contains an infinity or a NaN.

    Args:
      tensor: a tensor of floats.
      message: the start of the error text.
      name: name of the operation; "CheckNumerics" if None.

    Source: TensorFlow's `tf.debugging.check_numerics`.

    Example:
      >>> import headrace as hr
      >>> hr.check_numerics([1.0, 2.0], "not finite").numpy()
      array([1., 2.], dtype=float32)
    """
    return scopes.builder(tensor).make("CheckNumerics", (tensor,), {"message": message}, name)


def assert_all_finite(x: Any, message: str, name: str | None = None) -> Tensor:
    """Returns `x` after a check that all its elements are finite.

    Args:
      x: a tensor of floats.
      message: the start of the error text.
      name: name of the scope; "VerifyFinite" if None.

    Source: TensorFlow's `tf.debugging.assert_all_finite`.

    Example:
      >>> import headrace as hr
      >>> hr.assert_all_finite([1.0, 2.0], "not finite").numpy()
      array([1., 2.], dtype=float32)
    """
    with scopes.name_scope(name, "VerifyFinite", [x]):
        b = scopes.builder(x)
        x = b.tensor(x, None, "t")
        checked = check_numerics(x, message)
        if not isinstance(b, Builder):
            return checked
        with scopes.control_dependencies([checked]):
            return scopes.builder().make("Identity", (x,), {}, "control_dependency")


# *** assertions about elements ***


def _comparison(name: str, type: str, symbol: str) -> Callable[..., Any]:
    def function(
        x: Any,
        y: Any,
        message: str | None = None,
        summarize: int | None = None,
        name: str | None = None,
        data: Sequence[Any] | None = None,
    ) -> Any:
        return _compare(function.__name__, type, symbol, x, y, message, summarize, name, data)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""When it runs, fails unless x {symbol} y holds for all elements.

    Args:
      x, y: tensors of the same dtype, or what can be made one; their shapes broadcast.
      message: what the error begins with.
      summarize: how many elements of each it shows; 3 if None.
      name: name of the scope; "{name}" if None.
      data: the tensors and texts that the error shows after the message, in place of `x` and `y`.

    Returns:
      The operation that checks.

    Raises:
      InvalidArgumentError: it is known now not to hold; or when it runs.

    Source: TensorFlow's `tf.debugging.{name}`.

    {example(name)}
    """
    return function


def _compare(
    default: str,
    type: str,
    symbol: str,
    x: Any,
    y: Any,
    message: str | None,
    summarize: int | None,
    name: str | None,
    data: Sequence[Any] | None,
) -> Any:
    with scopes.name_scope(name, default, [x, y]):
        b = scopes.builder(x, y)
        x, y = pair(b, x, y)
        holds = reductions.reduce_all(b.make(type, (x, y), {}))
        if data is None:
            data = [
                f"Condition x {symbol} y did not hold element-wise:",
                f"x ({_label(x)}) = ",
                x,
                f"y ({_label(y)}) = ",
                y,
            ]
        return _assert_now(holds, data if message is None else [message, *data], summarize)


def _label(x: Any) -> str:
    return str(getattr(x, "name", "") or "value")


assert_equal = _comparison("assert_equal", "Equal", "==")
assert_none_equal = _comparison("assert_none_equal", "NotEqual", "!=")
assert_less = _comparison("assert_less", "Less", "<")
assert_less_equal = _comparison("assert_less_equal", "LessEqual", "<=")
assert_greater = _comparison("assert_greater", "Greater", ">")
assert_greater_equal = _comparison("assert_greater_equal", "GreaterEqual", ">=")


def _signed(name: str, compare: Callable[..., Any], swap: bool, what: str) -> Callable[..., Any]:
    def function(
        x: Any,
        message: str | None = None,
        summarize: int | None = None,
        name: str | None = None,
        data: Sequence[Any] | None = None,
    ) -> Any:
        with scopes.name_scope(name, function.__name__, [x]):
            b = scopes.builder(x)
            x = b.tensor(x, None, "x")
            zero = b.const(0, x.dtype.base)
            text = f"{message or ''}{' ' if message else ''}Condition x {what} 0 did not hold element-wise:"
            return compare(*((zero, x) if swap else (x, zero)), message=text, summarize=summarize, data=data)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""When it runs, fails unless x {what} 0 holds for all elements; see `assert_equal`.

    Source: TensorFlow's `tf.debugging.{name}`.

    {example(name)}
    """
    return function


assert_positive = _signed("assert_positive", assert_less, True, ">")
assert_non_negative = _signed("assert_non_negative", assert_less_equal, True, ">=")
assert_negative = _signed("assert_negative", assert_less, False, "<")
assert_non_positive = _signed("assert_non_positive", assert_less_equal, False, "<=")


def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
    data: Sequence[Any] | None = None,
) -> Any:
    """Adds a check that |x - y| <= atol + rtol * |y| everywhere.

    Args:
      x, y: tensors of floats of the same dtype; their shapes broadcast.
      rtol, atol: the tolerances; None: 10 times the machine epsilon of the dtype.
      message, summarize, name, data: see `assert_equal`.

    Source: TensorFlow's `tf.debugging.assert_near`.

    Example:
      >>> import headrace as hr
      >>> hr.assert_near(1.0, 1.0000001)
    """
    with scopes.name_scope(name, "assert_near", [x, y, rtol, atol]):
        b = scopes.builder(x, y)
        x, y = pair(b, x, y)
        import ml_dtypes

        precision = 10 * float(ml_dtypes.finfo(x.dtype.numpy).eps)
        r = b.tensor(precision if rtol is None else rtol, x.dtype.base, "rtol")
        a = b.tensor(precision if atol is None else atol, x.dtype.base, "atol")
        allowed = b.make("AddV2", (a, b.make("Mul", (r, b.make("Abs", (y,), {})), {}, "mul")), {}, "add")
        distance = b.make("Abs", (b.make("Sub", (x, y), {}, "sub"),), {})
        holds = reductions.reduce_all(b.make("LessEqual", (distance, allowed), {}))
        if data is None:
            data = ["x and y not equal to tolerance", f"x ({_label(x)}) = ", x, f"y ({_label(y)}) = ", y]
        return _assert_now(holds, data if message is None else [message, *data], summarize)


# *** assertions about shapes ***


def _ranked(name: str, type: str, symbol: str, holds: Callable[[int, int], bool]) -> Callable[..., Any]:
    def function(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> Any:
        with scopes.name_scope(name, function.__name__, [x, rank]):
            b = scopes.builder(x, rank)
            x = b.tensor(x, None, "x")
            wanted = constant_value(rank) if is_tensor(rank) else np.asarray(rank)
            if x.shape is not None and wanted is not None:
                if not holds(len(x.shape), int(wanted)):
                    raise ShapeError(
                        f"{message or ''}{' ' if message else ''}Tensor {_label(x)} must have rank "
                        f"{symbol}{int(wanted)}. Received rank {len(x.shape)}, shape {shapes.show(x.shape)}"
                    )
                return b.make("NoOp", (), {}, "static_checks_determined_all_ok")
            data = [
                message or "",
                f"Tensor {_label(x)} must have rank {symbol}",
                rank,
                "Received shape: ",
                arrays.shape(x),
            ]
            return _assert_now(b.make(type, (arrays.rank(x), rank), {}), data)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Fails unless `x` has a rank of {symbol}`rank`: now, where that is known, or when it runs.

    Raises:
      ShapeError (a ValueError): it is known now to have another.

    Source: TensorFlow's `tf.debugging.{name}`.

    {example(name)}
    """
    return function


assert_rank = _ranked("assert_rank", "Equal", "", lambda n, k: n == k)
assert_rank_at_least = _ranked("assert_rank_at_least", "GreaterEqual", "at least ", lambda n, k: n >= k)
