"""Checks of the sizes of several tensors: `tf.debugging.assert_shapes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.api import grouping
from headrace.api.sparse_tensor import SparseTensor
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.graph import in_default_graph
from headrace.v1.scoping import control_dependencies, name_scope
from headrace.v1.tensor_shape import Dimension, TensorShape


@in_default_graph
def assert_shapes(
    shapes: Any,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Any:
    """Checks the ranks of tensors, and that sizes with the same symbol are equal.

    Args:
      shapes: pairs of a tensor and a shape, or a dict. A shape has for each axis a size, a symbol (any hashable
        value), or None or "." for any size. Its first entry can be ... or "*", for any number of leading axes. None
        in place of a shape allows any.
      data: tensors and texts that an error of a run shows, in place of the sizes.
      summarize: largest number of elements of each of `data` in the message.
      message: prefix of the error message.
      name: name of the scope; "assert_shapes" if None.

    Returns:
      The operation that checks what is unknown now.

    Raises:
      ValueError: a known shape is another one, or a shape is no iterable.
      InvalidArgumentError: in a run, a shape is another one.

    Source: TensorFlow's `tf.debugging.assert_shapes`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     x, y = tf.zeros([2, 3]), tf.zeros([5, 3])
      ...     tf.debugging.assert_shapes([(x, (2, "n")), (y, (None, "m"))]).type
      ...     tf.debugging.assert_shapes({x: ("n", "m"), y: ("n", "m")})
      Traceback (most recent call last):
      ...
      ValueError: Specified by tensor zeros:0 dimension 0.  Tensor zeros_1:0 dimension 0 must have size 2.  Received \
size 5, shape (5, 3)
    """
    pairs = shapes.items() if isinstance(shapes, Mapping) else shapes
    prefix = f"{message}.  " if message else ""
    with name_scope(name, "assert_shapes"):
        wanted = [_Wanted(x, shape, prefix) for x, shape in pairs if shape is not None]
        ranks = [w.rank_check(data, summarize, message) for w in wanted if not w.is_open or len(w.symbols) > 1]
        checks: list[Any] = []
        known: dict[Any, tuple[Any, str]] = {}
        for w in wanted:
            for i, symbol in enumerate(w.symbols):
                if symbol in (None, "."):
                    continue
                axis = i - len(w.symbols) if w.is_open else i
                with control_dependencies(ranks):
                    size = w.size(axis)
                explicit = _number(symbol)
                if explicit is None and symbol not in known:
                    known[symbol] = size, f"Specified by tensor {w.label} dimension {axis}"
                    continue
                other, reason = (explicit, "Specified explicitly") if explicit is not None else known[symbol]
                if isinstance(size, int) and isinstance(other, int):
                    if size != other:
                        raise ValueError(
                            f"{prefix}{reason}.  Tensor {w.label} dimension {axis} must have size {other}.  "
                            f"Received size {size}, shape {w.x.get_shape()}"
                        )
                    continue
                shown = data
                if shown is None:
                    text = f"Tensor {w.label} dimension {axis} must have size"
                    shown = [prefix, reason, text, other, "Received shape: ", w.shape]
                checks.append(check_ops.Assert(math_ops.equal(size, other), shown, summarize))
        with control_dependencies(ranks):
            return grouping.group(*checks)


class _Wanted:
    """A tensor and its wanted shape; a scalar counts as a vector."""

    def __init__(self, x: Any, shape: Any, prefix: str) -> None:
        given: Any = x if isinstance(x, SparseTensor) else array_ops.convert_to_tensor(x)
        self.x = given
        sparse = isinstance(x, SparseTensor)
        self.label = f"{self.x.get_shape()} dtype: {self.x.dtype.name}" if sparse else self.x.name
        if not isinstance(shape, (Iterable, TensorShape)):
            raise ValueError(
                f"{prefix}Tensor {self.label}.  Specified shape must be an iterable.  An iterable has the attribute "
                f"`__iter__` or `__getitem__`.  Received specified shape: {shape}"
            )
        symbols = [d.value if isinstance(d, Dimension) else d for d in shape]
        for i, symbol in enumerate(symbols[1:], 1):
            if symbol is ... or symbol == "*":
                raise ValueError(
                    f"{prefix}Tensor {self.label} specified shape index {i}.  Symbol `...` or `*` for a variable "
                    "number of unspecified dimensions is only allowed as the first entry"
                )
        self.is_open = bool(symbols) and (symbols[0] is ... or symbols[0] == "*")
        self.symbols: list[Any] = symbols[1:] if self.is_open else symbols or [1]

    @property
    def shape(self) -> Any:
        """Shape in a run."""
        return self.x.dense_shape if isinstance(self.x, SparseTensor) else array_ops.shape(self.x)

    def rank_check(self, data: Any, summarize: int | None, message: str | None) -> Any:
        """Adds a check of the rank."""
        count = len(self.symbols)
        known = self.x.get_shape().ndims
        if known is not None and (known >= count if self.is_open else max(known, 1) == max(count, 1)):
            return grouping.no_op()
        x = self.x.dense_shape if isinstance(self.x, SparseTensor) else self.x
        if isinstance(self.x, SparseTensor):
            return check_ops.assert_equal(array_ops.size(x), count, data, summarize, message)
        if self.is_open:
            return check_ops.assert_rank_at_least(x, count, message=message)
        if count <= 1:
            return check_ops.assert_rank_in(x, [0, 1], message=message)
        return check_ops.assert_rank(x, count, message=message)

    def size(self, axis: int) -> Any:
        """Returns the size of an axis: an int if it is known, otherwise a tensor."""
        dims = self.x.get_shape()
        if dims.ndims is not None:
            sizes = dims.as_list() or [1]
            if sizes[axis] is not None:
                return int(sizes[axis])
            return self.shape[axis]
        if axis not in (0, -1):
            return self.shape[axis]
        return array_ops.concat([[1], self.shape], 0)[-1] if axis == -1 else array_ops.concat([self.shape, [1]], 0)[0]


def _number(symbol: Any) -> int | None:
    """Returns the explicit size that an entry of a shape is."""
    try:
        return int(symbol)
    except (TypeError, ValueError):
        return None
