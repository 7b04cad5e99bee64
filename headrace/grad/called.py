"""Calls of the function to differentiate, with symbolic arguments.

This is the common part of `grad`, `vjp`, `jacobian` and the other transforms. In a graph the function is called, and
the operations that it makes are differentiated. Outside of graphs it is traced and compiled once for each signature
(`jit.cache`).

Each differentiated argument first goes through an Identity. So it is distinct from every other tensor, even if the same
tensor is given twice. The derivative is then that of the function's use of this argument alone, not of other uses of
the same tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import nest
from headrace.api import scopes, tracing
from headrace.api.rematerialization import unrepeatable
from headrace.autograph.conversion import traceable
from headrace.errors import SignatureError, UnimplementedError
from headrace.grad import sums
from headrace.grad.forward import forward
from headrace.grad.gradients import differentiate
from headrace.grad.zeros import carries, zeros_for
from headrace.ir import walk
from headrace.ir.analysis.graph_size import room_around
from headrace.ir.builder import Builder
from headrace.ir.edit.copying import copy_into
from headrace.ir.graph import FuncGraph, Tensor
from headrace.ir.weak_numbers import WeakNumbers


class DifferentiatedCall:
    """A call of a function in a graph, with arguments to differentiate by.

    Args:
      f: the function.
      args: the positional arguments of the call.
      kwargs: the keyword arguments of the call.
      by: the positions of the differentiated arguments.
      what: the name of the transform, for error messages.
      skips_integers: whether differentiated arguments may contain tensors without gradients, which stay as they are;
        else they are errors.
      has_aux: whether `f` returns a pair of the value and an auxiliary result.

    Attributes:
      b: the builder of the graph.
      xs: the differentiated tensors: the leaves of those arguments, in order; None for a leaf without gradients.
      value: the structure of tensors that the function returned.
      ys: its leaves.
      aux: the auxiliary result, or None.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        by: Sequence[int],
        what: str,
        skips_integers: bool = False,
        has_aux: bool = False,
    ) -> None:
        self.b: Builder = scopes.builder(*nest.flatten((args, kwargs)))
        self.title = tracing.titled(f)
        self.what = what
        self.args = args
        names = tracing.argument_names(f, len(args))
        self.by = [_position(k, args, f"{what} of {self.title}") for k in by]
        self._leaves = nest.flatten((args, kwargs))
        self.xs: list[Tensor | None] = []
        self.labels: list[str] = []
        given = list(args)
        for k in self.by:
            label = repr(names[k]) if k < len(names) else f"{k}"
            mine = []
            for path, leaf in nest.flatten_with_paths(args[k]):
                x = self._source(leaf, f"argument {label}{path and ' at ' + path} of {self.title}", skips_integers)
                self.xs.append(x)
                self.labels.append(f"argument {label}{path}")
                mine.append(leaf if x is None else x)
            given[k] = nest.pack(args[k], mine)
        with scopes.entered(self.b):  # symbolic arguments determine the graph, also outside of `with graph`
            value = traceable(f)(*given, **kwargs)
        self.aux: Any = None
        if has_aux:
            if not isinstance(value, tuple) or len(value) != 2:
                raise SignatureError(
                    f"{what}(has_aux=True) of {self.title}, which must return a pair (value, aux), got "
                    f"{nest.describe(value)}"
                )
            value, self.aux = value
        self.value = tracing.convert(value, self.b, self.title)
        self.ys: list[Tensor] = nest.flatten(self.value)

    def _source(self, leaf: Any, label: str, skips: bool) -> Tensor | None:
        try:
            t = self.b.tensor(leaf, tracing.dtype_of_number(leaf, self._leaves) if _is_number(leaf) else None)
        except (TypeError, ValueError) as e:
            raise SignatureError(f"{self.what}: {label} must be a tensor, got {nest.describe(leaf)}: {e}") from e
        if not carries(t.dtype):
            if skips:
                return None
            raise TypeError(
                f"{self.what}: {label} is of dtype {t.dtype.base.name}, which has no gradients; only floating point "
                f"and complex numbers have. Give a float (hr.cast, or 3.0 for 3), or differentiate by other arguments "
                "(argnums=)"
            )
        notes = [WeakNumbers((0,))] if _is_number(leaf) else []
        made: Tensor = self.b.make("Identity", (t,), {}, notes=notes)
        made.refine(handle=t.handle)
        return made

    # *** reverse ***

    def pull_back(self, dys: Sequence[Any], b: Builder | None = None) -> list[Tensor]:
        """Returns the gradient of each of `xs`.

        Args:
          dys: the gradient of each of `ys`, or None.
          b: the builder of the gradient; None: that of the call.
        """
        b = b or self.b
        xs = [x for x in self.xs if x is not None]
        pairs = [(y, dy) for y, dy in zip(self.ys, dys, strict=True) if dy is not None and carries(y.dtype)]
        grads = differentiate(b.within("gradients"), pairs, xs)
        return [zeros_for(b, x) if g is None else sums.dense(b, g) for x, g in zip(xs, grads, strict=True)]

    # *** forward ***

    def push_forward(self, dxs: Sequence[Any], b: Builder | None = None) -> list[Tensor | None]:
        """Returns the tangent of each of `ys`; None for integers.

        Args:
          dxs: the tangent of each of `xs`.
          b: the builder of the tangents; None: that of the call.
        """
        b = b or self.b
        xs = [x for x in self.xs if x is not None]
        ys = [y for y in self.ys if carries(y.dtype)]
        if b.graph is not self.b.graph:
            xs, ys = _again(b, xs, ys, self.what)
        with room_around(b.graph):
            found = iter(forward(b.within("tangents"), xs, list(dxs), ys))
        tangents = [next(found) if carries(y.dtype) else None for y in self.ys]
        return [
            zeros_for(b, y) if dy is None and carries(y.dtype) else dy for y, dy in zip(self.ys, tangents, strict=True)
        ]

    # *** structures ***

    def like_arguments(self, leaves: Sequence[Any], single: bool) -> Any:
        """Packs one leaf for each differentiated tensor into the structure of the arguments."""
        rest = iter(leaves)
        every = iter([None if x is None else next(rest) for x in self.xs])
        out = tuple(nest.pack(self.args[k], [next(every) for _ in nest.flatten(self.args[k])]) for k in self.by)
        return out[0] if single else out


def _again(b: Builder, xs: Sequence[Tensor], ys: Sequence[Tensor], what: str) -> tuple[list[Tensor], list[Tensor]]:
    """Returns `xs` and `ys` as tensors for forward mode in a nested graph.

    Args:
      b: a builder in a graph nested in that of the tensors.
      xs: tensors to differentiate by.
      ys: tensors to differentiate.
      what: the name of the transform, for error messages.

    Outer tensors can be used in the nested graph as they are. But forward mode extends conditionals and loops in place
    (`grad.forward`). So if there are any between xs and ys, all operations between them are copied.
    """
    way = [op for op in walk.in_order(walk.reachable([y.op for y in ys], set(xs))) if op.outputs]
    from_xs = set(xs)
    needed = []
    for op in way:
        if any(t in from_xs for t in op.inputs):
            needed.append(op)
            from_xs.update(op.outputs)
    if not any(op.opdef.structured for op in needed):
        return list(xs), list(ys)
    graph = b.graph
    outside = [t for op in needed for t in op.inputs if t not in from_xs]
    moved = {t: graph.capture(t) for t in dict.fromkeys([*xs, *outside, *(y for y in ys if y not in from_xs)])}
    copy_into(graph, needed, moved)
    bad = None
    if isinstance(graph, FuncGraph):
        graph.add_originals({t: moved[t] for op in needed for t in op.outputs})
        bad = unrepeatable(graph)
    if bad is not None:
        raise UnimplementedError(
            f"{what}: forward mode for each element of the arguments would run '{bad.name}' ({bad.type}, made at "
            f"{bad.source}) each time, with other results; use mode='rev'",
            bad.name,
            bad,
        )
    return [moved[x] for x in xs], [moved[y] for y in ys]


def _is_number(x: Any) -> bool:
    """Whether `x` is a Python float or complex number."""
    return isinstance(x, (float, complex)) and not isinstance(x, np.generic)


def _position(k: Any, args: Sequence[Any], what: str) -> int:
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool):
        raise TypeError(f"{what}: argnums must be an integer or a tuple of them, got {k!r}")
    if not -len(args) <= k < len(args):
        raise ValueError(f"{what}: argnums={k}, but the call has {len(args)} positional arguments")
    return int(k) % len(args)


def positions(argnums: Any) -> tuple[list[Any], bool]:
    """Returns the positions, and whether `argnums` is a single one rather than a tuple."""
    return nest.as_list(argnums), not isinstance(argnums, (list, tuple))


# *** outside of graphs ***


def is_eager(*structures: Any) -> bool:
    return not isinstance(scopes.builder(*nest.flatten(structures)), Builder)
