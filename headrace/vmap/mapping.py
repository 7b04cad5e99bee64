"""`hr.vmap`: a function of single examples as a function of batches.

In a graph, the function is traced into a graph of its own, with symbolic arguments of one example. Then its operations
are made again in the user's graph, for all examples at once (`walk`). So the result consists of ordinary operations,
which can be differentiated, compiled and batched once more. The graph of one example is dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from headrace import dtypes, nest, tracebacks
from headrace.api import scopes, tracing
from headrace.autograph.conversion import convert
from headrace.errors import AutographError, SignatureError
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph, Tensor
from headrace.jit.transformed import hashable, transformed
from headrace.opkit.batch_node import spread
from headrace.vmap import axes
from headrace.vmap.flow import Flow
from headrace.vmap.walk import Batching

R = TypeVar("R")


@tracebacks.entry
def vmap(f: Callable[..., R], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., R]:
    """Returns a function that applies `f` to all examples of a batch at once.

    Args:
      f: a function of tensors of one example: it takes and returns nested structures of them.
      in_axes: the axis of the examples in each positional argument: an integer (negative ones count from the end) for
        all arguments; or a tuple with an entry for each argument: an integer, None for an argument that is the same for
        all examples, or a structure of these that is the upper part of the argument's structure. Keyword arguments
        always have the examples in axis 0.
      out_axes: the axis of the examples in each result: an integer for all, or an upper part of the structure of the
        result. None is for a result that is the same for all examples.

    Returns:
      A function of the same arguments, each with one more dimension where `in_axes` names an axis. It returns the
      structure of `f` with one more dimension in each result. Its result for each example equals that of `f`. A result
      that is the same for all examples is repeated. Random operations draw for each example. Operations that change
      state may not depend on the example.

      `f` is converted first (`hr.autograph.convert`), so that its `if`, `while` and `for` may depend on tensors. If the
      predicate of a conditional differs between examples, both branches are computed, each only with values
      with which an example takes it. A loop runs until the last example ends. An operation without a batching rule is
      computed for each example alone, in a loop, with a warning.

    Raises (by a call of the function):
      ValueError: an argument does not have the axis; no argument is mapped; `in_axes` or `out_axes` have another
        structure; a result with `out_axes=None` differs between examples.
      TypeError: an axis is not an integer or None; a mapped argument is not a tensor; `f` cannot be called.
      SignatureError: the mapped axes have different sizes.
      UnimplementedError: an operation changes state and its inputs differ between examples.

    Source: the transform is that of JAX; TensorFlow has `tf.vectorized_map`.

    Example:
      >>> import headrace as hr
      >>> dot = lambda x, y: hr.reduce_sum(x * y)
      >>> hr.vmap(dot, in_axes=(0, None))(hr.constant([[1.0, 2.0], [3.0, 4.0]]), [10.0, 1.0]).numpy()
      array([12., 34.], dtype=float32)
      >>> gradients = hr.vmap(hr.grad(lambda w, x: (w * x - 1.0) ** 2), in_axes=(None, 0))
      >>> gradients(2.0, hr.constant([1.0, 0.5])).numpy()
      array([2., 0.], dtype=float32)
    """
    tracing.check_callable(f=f)
    axes.check(in_axes, "in_axes")
    axes.check(out_axes, "out_axes")

    def call(*args: Any, **kwargs: Any) -> Any:
        return _Call(f, in_axes, args, kwargs).results(out_axes)

    return transformed(f, ("vmap", hashable(in_axes), hashable(out_axes)), call)


class _Call:
    """A call of a mapped function in a graph."""

    def __init__(self, f: Callable[..., Any], in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.b: Builder = scopes.builder(*nest.flatten((args, kwargs)))
        self.title = tracing.titled(f)
        given = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        leaf_axes = axes.of_leaves(given, args, "in_axes", f"the arguments of {self.title}")
        leaf_axes += [0] * len(nest.flatten(kwargs))
        names = tracing.argument_names(f, len(args))
        self.mapped: list[Tensor] = []
        self.labels: list[str] = []
        leaves: list[Any] = []
        for (path, leaf), axis in zip(_labelled(args, kwargs, names), leaf_axes, strict=True):
            leaves.append(leaf)
            if axis is not None:
                leaves[-1] = self._front(leaf, axis, f"{path} of {self.title}")
                self.mapped.append(leaves[-1])
                self.labels.append(path)
        if not self.mapped:
            raise ValueError(
                f"vmap of {self.title}: no argument is mapped, so that the number of examples is unknown; give an axis "
                "for at least one argument (in_axes=)"
            )
        self.size = self._number()
        is_mapped = [axis is not None for axis in leaf_axes]
        self.graph = FuncGraph("vmap", self.b.graph)
        tracing.begin(self.graph, self.b.graph, "the function of vmap", f)
        rest = iter(self._params())
        leaves = [next(rest) if m else leaf for leaf, m in zip(leaves, is_mapped, strict=True)]
        inner_args, inner_kwargs = nest.pack((args, kwargs), leaves)
        self.graph.is_open = True
        try:
            self.value = tracing.call(_converted(f), self.graph, Builder(self.graph), inner_args, inner_kwargs)
        finally:
            self.graph.is_open = False
        tracing.finish(self.graph, nest.flatten(self.value))

    def _front(self, leaf: Any, axis: int, label: str) -> Tensor:
        try:
            t = self.b.tensor(leaf)
        except (TypeError, ValueError) as e:
            raise SignatureError(
                f"vmap: {label} is mapped and must be a tensor, got {nest.describe(leaf)}: {e}; in_axes=None passes it "
                "on as it is"
            ) from e
        if t.dtype.base in (dtypes.resource, dtypes.variant):
            raise SignatureError(
                f"vmap: {label} is mapped and must be a tensor of numbers or strings, got one of dtype "
                f"{t.dtype.base.name}"
            )
        return axes.to_front(self.b, t, axis, label)

    def _number(self) -> int | Tensor:
        """Returns the number of examples.

        Mapped arguments of unknown size are compared when the step runs.
        """
        n = axes.common_size(list(zip(self.labels, self.mapped, strict=True)))
        b = self.b.within("vmap_size")
        sizes = [
            None if x.static_shape is not None and x.static_shape[0] is not None else b.Gather(b.Shape(x), np.int32(0))
            for x in self.mapped
        ]
        size: Any = next(s for s in sizes if s is not None) if n is None else n
        for k, (s, label) in enumerate(zip(sizes, self.labels, strict=True)):
            if s is None or s is size:
                continue
            message = b.const(f"vmap: {self.labels[0]} and {label} must have equally many examples; they have")
            ok = b.Assert(b.Equal(s, size), [message, b.tensor(size), s])
            self.mapped[k] = b.after(ok).Identity(self.mapped[k])
        return size  # type: ignore[no-any-return]

    def _params(self) -> list[Tensor]:
        out = []
        for x, label in zip(self.mapped, self.labels, strict=True):
            shape = x.shape
            name = label.replace("'", "").replace("argument ", "")
            name = "".join(c if c.isalnum() else "_" for c in name)
            out.append(
                self.graph.add_param(x.dtype, None if shape is None else shape[1:], name or "x", source=x.op.source)
            )
        return out

    def results(self, out_axes: Any) -> Any:
        """Returns the results of all examples."""
        leaves = nest.flatten(self.value)
        where = axes.of_leaves(out_axes, self.value, "out_axes", f"the result of {self.title}")
        graph = self.graph
        flow = Flow(graph, graph.params[: len(self.mapped)])
        outside = {p: t for t, p in graph.captured}
        given = [*self.mapped, *(outside[p] for p in graph.params[len(self.mapped) :])]
        b = self.b.within("vmap")
        if graph.outer_controls:
            b = b.after(*graph.outer_controls)
        found = Batching(flow, self.size, self.title).run(b, graph, given)
        out = []
        for (path, y), t, axis in zip(nest.flatten_with_paths(self.value), found, where, strict=True):
            label = f"the result{path} of {self.title}"
            is_batch = y in flow.batched
            if is_batch and axis is None:
                raise ValueError(f"vmap: out_axes=None for {label}, which differs between the examples; give an axis")
            if is_batch and y.dtype.base is dtypes.variant:
                raise SignatureError(
                    f"vmap: {label} is a list or TensorArray, which differs between the examples; return its stack()"
                )
            if axis is None:
                out.append(t)
                continue
            batch = t if is_batch else spread(b, t, self.size)
            out.append(axes.from_front(b, batch, axis, label))
        assert len(out) == len(leaves)
        return nest.pack(self.value, out)


def _converted(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the converted function; `f` itself without a conversion, with a note in its errors."""
    try:
        return convert(f)
    except AutographError as e:
        why = str(e).splitlines()[0]

    @functools.wraps(f)
    def unconverted(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeError as e:
            e.add_note(f"vmap calls the function as it is, so that tensors cannot decide its branches: {why}")
            raise

    return unconverted


def _labelled(args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]) -> list[tuple[str, Any]]:
    """Returns (description, leaf) of all arguments."""
    out = []
    for k, arg in enumerate(args):
        name = repr(names[k]) if k < len(names) else f"{k}"
        out += [(f"argument {name}{path and ' at ' + path}", leaf) for path, leaf in nest.flatten_with_paths(arg)]
    for path, leaf in nest.flatten_with_paths(kwargs):
        out.append((f"argument {path[1:-1] if path.count('[') == 1 else path}", leaf))
    return out
