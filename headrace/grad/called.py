"""The function that is differentiated: called with symbolic arguments, in a graph or outside of all.

What `grad`, `vjp`, `jacobian` and the like have in common. In a graph a function is simply called, and what it makes is
differentiated. Outside, it is called in a graph of its own, which is then run.

An argument that is differentiated goes through an Identity first. So it is told apart from every other tensor, even
from itself given twice: what is differentiated is what the function does with this argument, not what it knows already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import nest
from headrace.api import scopes, tracing
from headrace.api.function import is_tensor
from headrace.api.rematerialization import unrepeatable
from headrace.errors import SignatureError, UnimplementedError
from headrace.grad import sums
from headrace.grad.activity import carries
from headrace.grad.forward import forward
from headrace.grad.gradients import differentiate
from headrace.grad.zeros import zeros_for
from headrace.ir import walk
from headrace.ir.analysis.graph_size import room_around
from headrace.ir.builder import Builder
from headrace.ir.edit.copying import copy_into
from headrace.ir.graph import FuncGraph, Tensor


class DifferentiatedCall:
    """A call of a function in a graph, with arguments to differentiate by.

    Args:
      f: the function.
      args, kwargs: what it is called with.
      by: positions of the arguments that are differentiated.
      what: the transform, in messages.
      skips_integers: whether tensors of other dtypes among them are left as they are; else they are errors.

    Attributes:
      b: makes the operations.
      xs: the differentiated tensors: the leaves of those arguments, in order; None for one that is left as it is.
      value: what the function returned: a structure of tensors.
      ys: its leaves.
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
        with scopes.entered(self.b):  # outside of graphs, symbolic arguments say which graph is meant
            value = f(*given, **kwargs)
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
            t = self.b.tensor(leaf)
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
        made: Tensor = self.b.Identity(t)
        made.refine(handle=t.handle)
        return made

    # *** reverse ***

    def pull_back(self, dys: Sequence[Any], b: Builder | None = None) -> list[Tensor]:
        """The gradient of each of `xs` where those of the results are `dys` (None: none); made by `b`."""
        b = b or self.b
        xs = [x for x in self.xs if x is not None]
        pairs = [(y, dy) for y, dy in zip(self.ys, dys, strict=True) if dy is not None and carries(y.dtype)]
        grads = differentiate(b.within("gradients"), pairs, xs)
        return [zeros_for(b, x) if g is None else sums.dense(b, g) for x, g in zip(xs, grads, strict=True)]

    # *** forward ***

    def push_forward(self, dxs: Sequence[Any], b: Builder | None = None) -> list[Tensor | None]:
        """The tangent of each of the results where those of `xs` are `dxs`; made by `b`. None for integers."""
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
        """`leaves`, one for each of the `xs` that are differentiated, in the structure of the arguments."""
        rest = iter(leaves)
        every = iter([None if x is None else next(rest) for x in self.xs])
        out = tuple(nest.pack(self.args[k], [next(every) for _ in nest.flatten(self.args[k])]) for k in self.by)
        return out[0] if single else out


def _again(b: Builder, xs: Sequence[Tensor], ys: Sequence[Tensor], what: str) -> tuple[list[Tensor], list[Tensor]]:
    """What stands in the graph of `b`, which is inside theirs, for `xs` and `ys`, so that one can go forward there.

    Operations' values can be used in there. But conditionals and loops grow where they stand (`grad.forward`), so where
    there are any, what leads from xs to ys is copied.
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
            f"{what}: going forward for each element of the arguments would run '{bad.name}' ({bad.type}, made at "
            f"{bad.source}) each time, which would not do the same; use mode='rev'",
            bad.name,
            bad,
        )
    return [moved[x] for x in xs], [moved[y] for y in ys]


def _position(k: Any, args: Sequence[Any], what: str) -> int:
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool):
        raise TypeError(f"{what}: argnums must be an integer or a tuple of them, got {k!r}")
    if not -len(args) <= k < len(args):
        raise ValueError(f"{what}: argnums={k}, but the call has {len(args)} positional arguments")
    return int(k) % len(args)


def positions(argnums: Any) -> tuple[list[Any], bool]:
    """The positions, and whether there is but one, not in a tuple."""
    return nest.as_list(argnums), not isinstance(argnums, (list, tuple))


# *** outside of graphs ***


def is_eager(*structures: Any) -> bool:
    return not isinstance(scopes.builder(*nest.flatten(structures)), Builder)


class GradProgram:
    """A graph of its own, of what a function does with symbolic arguments; for calls outside of graphs.

    Args:
      args, kwargs: what the function is called with: arrays, eager tensors and floats become placeholders, all else
        stays.

    Attributes:
      graph: that graph.
      args, kwargs: the arguments as they are in it.
    """

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.graph = scopes.Graph()
        self.feeds: dict[Tensor, Any] = {}
        self.args = [nest.map_leaves(self._argument, a) for a in args]
        self.kwargs = nest.map_leaves(self._argument, kwargs)

    def _argument(self, leaf: Any) -> Any:
        if not (is_tensor(leaf) or isinstance(leaf, (float, complex)) or hasattr(type(leaf), "assign")):
            return leaf
        value = scopes.outside.builder.tensor(leaf)
        made = self.placeholder(value)
        self.feeds[made] = value.numpy()
        return made

    def placeholder(self, like: Any) -> Tensor:
        """A placeholder of the dtype and shape of an eager tensor."""
        b = Builder(self.graph)
        made: Tensor = b.make("Placeholder", (), {"dtype": like.dtype, "shape": like.shape}, "arg")
        return made

    def run(self, structure: Any, feeds: Mapping[Tensor, Any] | None = None) -> Any:
        """The structure of tensors, as eager ones; `feeds` are what else is fed."""
        leaves = nest.flatten(structure)
        wanted = [t for t in leaves if isinstance(t, Tensor)]
        with scopes.outside.session(graph=self.graph) as session:
            values = iter(session.run(wanted, {**self.feeds, **(feeds or {})}))
        make = scopes.outside.builder.const
        return nest.pack(structure, [make(next(values), t.dtype) if isinstance(t, Tensor) else t for t in leaves])


def anywhere(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, a function that works in a graph, as one that works outside of graphs too."""

    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not is_eager(args, kwargs):
            return call(*args, **kwargs)
        program = GradProgram(args, kwargs)
        with program.graph:
            value = call(*program.args, **program.kwargs)
        return program.run(value)

    return run


def named(call: Callable[..., Any], f: Any, what: str) -> Callable[..., Any]:
    name = getattr(f, "__name__", "function").replace("<lambda>", "function")
    call.__name__ = call.__qualname__ = f"{what}_of_{name}"
    call.__wrapped__ = f  # type: ignore[attr-defined]
    return call
