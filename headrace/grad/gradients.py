"""`gradients`: adds the derivatives of tensors of a graph to the graph.

The tensors to differentiate, and to differentiate by, usually belong to one graph. Inside a branch or a loop's body
they may belong to several, because tensors from outside can be captured. So the walk visits one graph after the other,
from the inside out (`_Levels`). The gradients of a graph's captures are the start of the walk through the graph around
it. All operations of the gradient are made in the graph in which `gradients` is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, nest, shapes, tracebacks
from headrace.api import scopes
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.traced_graph import current_trace
from headrace.errors import GraphError, SignatureError
from headrace.gc_pause import paused
from headrace.grad import sums
from headrace.grad.backward import backward
from headrace.grad.graph import GradGraph
from headrace.grad.zeros import carries, gradient_dtype, gradient_shape, zeros_for
from headrace.ir import walk
from headrace.ir.analysis.graph_size import room_around
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph, Graph, Tensor, foreign, is_cloned
from headrace.ir.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient

UNCONNECTED = ("none", "zero")


@tracebacks.entry
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    stop_gradients: Any = None,
    unconnected: str = "none",
    name: str = "gradients",
) -> Any:
    """Computes the derivatives of the sum of `ys` with respect to each of `xs`.

    The gradient with respect to x has the shape and dtype of x. It is the sum over all elements of all ys of the
    derivative of the element, times the corresponding element of `grad_ys`. (For complex numbers it is the conjugate,
    as in TensorFlow.) Loops and conditionals are differentiated like other operations, to any order.

    If one x depends on another, the gradient includes this path: in `b = 2 * a; gradients(a + b, [a, b])`, the gradient
    with respect to a includes the path through b. `stop_gradients=[a, b]` gives partial derivatives.

    Inside a branch or a loop's body, xs may be tensors from outside. Then one run of the branch or one iteration is
    differentiated, whose loop variables do not depend on xs.

    Args:
      ys: a tensor, or a nested structure of tensors, of floating point or complex dtype.
      xs: a tensor or variable, or a nested structure of them.
      grad_ys: the gradient of each of `ys` (None: ones), in the same structure.
      stop_gradients: tensors that are treated as constants.
      unconnected: the gradient for an x that no y depends on: "none" for None, or "zero" for zeros.
      name: the name scope of the operations.

    Returns:
      A list with an entry for each of `xs`, also for a single x; for a nested x the entry has its structure. Each
      gradient is a tensor, an `IndexedSlices` for a gathered x, or None if no y depends on x.

    Raises:
      TypeError: an x or y is not a tensor or has a dtype without gradients, or a complex y has no gradient in
        `grad_ys`.
      GraphError (a ValueError): the tensors belong to different graphs, or to none.
      SignatureError (a ValueError and TypeError): `grad_ys` differs from `ys` in number, dtype or shape.
      LookupError: an operation on a path has no gradient.
      ValueError: `unconnected` has another value.

    Source: TensorFlow's `tf.gradients`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, ())
      ...     _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, 1.0))
      ...     (dx,) = hr.gradients(y, x)
      ...     (ddx,) = hr.gradients(dx, x)
      >>> hr.Session(graph=g).run([y, dx, ddx], {x: 2.0})
      [np.float32(8.0), np.float32(12.0), np.float32(12.0)]
    """
    return make_gradients(ys, xs, grad_ys, stop_gradients, unconnected, name)


@paused()
def make_gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any,
    stop_gradients: Any,
    unconnected: str,
    name: str | None,
    allows_integers: bool = False,
) -> Any:
    """Computes gradients as `gradients` does, with one more option.

    Args:
      ys: see `gradients`.
      xs: see `gradients`.
      grad_ys: see `gradients`.
      stop_gradients: see `gradients`.
      unconnected: see `gradients`.
      name: see `gradients`.
      allows_integers: whether an integer x or y is treated as unconnected, as in TensorFlow 1; else it is an error.
    """
    if unconnected not in UNCONNECTED:
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected!r}; it is 'none' or 'zero'")
    near = nest.flatten((ys, xs))
    with scopes.name_scope(name, "gradients", near):
        b = scopes.builder(*near)
        if not isinstance(b, Builder):
            raise GraphError(
                "gradients needs symbolic tensors, and these are eager; differentiate the function that "
                "computes them: hr.grad(f), hr.vjp(f, x)"
            )
        for what, given in (("x", xs), ("y", ys)):
            check_composites(what, given)
        ys = nest.map_leaves(lambda y: sums.dense(b, y) if isinstance(y, IndexedSlices) else y, ys, expand=False)
        sources = [_source(x, f"x{path}") for path, x in nest.flatten_with_paths(xs)]
        targets = [_target(b, y, f"y{path}") for path, y in nest.flatten_with_paths(ys)]
        seeds = aligned(ys, grad_ys, len(targets))
        stop = [s for s in map(as_source, nest.flatten(stop_gradients)) if isinstance(s, Tensor)]
        if not allows_integers:
            for what, tensors in (("x", sources), ("y", targets)):
                for t in tensors:
                    _check_dtype(t, what)
        sources, targets, stop = _structured(b, sources, targets, stop)
        pairs = [
            (y, _seed(b, y, dy, i)) for i, (y, dy) in enumerate(zip(targets, seeds, strict=True)) if carries(y.dtype)
        ]
        grads = differentiate(b, pairs, [x for x in sources if carries(x.dtype)], stop)
        of = iter(grads)
        out: list[Gradient | None] = [next(of) if carries(x.dtype) else None for x in sources]
        if unconnected == "zero":
            out = [zeros_for(b, x) if g is None else g for x, g in zip(sources, out, strict=True)]
    return _like(xs, out)


def differentiate(
    b: Builder,
    pairs: Sequence[tuple[Tensor, Gradient]],
    xs: Sequence[Tensor],
    stop: Sequence[Tensor] = (),
) -> list[Gradient | None]:
    """Returns the gradient with respect to each of `xs`, or None.

    Args:
      b: the builder of the gradient, in the graph of the tensors or in a nested one.
      pairs: the tensors to differentiate, each with its gradient, which is in the graph of `b`.
      xs: the tensors to differentiate by, in those graphs or in outer ones.
      stop: tensors that are treated as constants.

    Raises:
      GraphError: a tensor cannot be used in the graph of `b`.
    """
    with room_around(b.graph):
        return _Levels(b, xs, stop).walk(pairs)


class _Levels:
    """Reverse walk through nested graphs, from the inside out."""

    def __init__(self, b: Builder, xs: Sequence[Tensor], stop: Sequence[Tensor]) -> None:
        self.b = b
        self.xs = xs
        self.stop = stop
        self.found: dict[Tensor, list[Gradient]] = {x: [] for x in xs}

    def walk(self, pairs: Sequence[tuple[Tensor, Gradient]]) -> list[Gradient | None]:
        graphs = list(dict.fromkeys(y.op.graph for y, _ in pairs))
        self._check(graphs)
        pending: dict[Graph, list[tuple[Tensor, Gradient]]] = {g: [] for g in graphs}
        for y, dy in pairs:
            pending[y.op.graph].append((y, dy))
        while pending:
            inner = next(g for g in pending if not any(h is not g and g in _visible(h) for h in pending))
            self._through(inner, pending.pop(inner), pending)
        return [sums.total(self.b, self.found[x]) for x in self.xs]

    def _check(self, graphs: Sequence[Graph]) -> None:
        here = list(_visible(self.b.graph))
        for g in graphs:
            if g not in here:
                y = f"{g.title}" if g.outer is not None else "another graph"
                raise GraphError(f"gradients of {y} cannot be taken here, in {self.b.graph.title}")
        for x in self.xs:
            if graphs and x.op.graph not in here and not any(x.op.graph in _visible(g) for g in graphs):
                raise GraphError(f"gradients with respect to {x.name!r}: {foreign(x, graphs[0])}")

    def _through(
        self,
        graph: Graph,
        pairs: Sequence[tuple[Tensor, Gradient]],
        pending: dict[Graph, list[tuple[Tensor, Gradient]]],
    ) -> None:
        """Walks through one graph, and adds the gradients of its captures to `pending`."""
        sources = {x: x for x in self.xs if x.op.graph is graph}
        stop = {s for s in self.stop if s.op.graph is graph}
        if len(sources) < len(set(self.xs)):
            sources.update(
                (inside, outer)
                for outer, inside in _captures(graph)
                if inside.op.graph is graph and carries(inside.dtype)
            )
            if isinstance(graph, GradGraph):  # captured forward values may be computed from each other
                stop.update(t for t in graph.have.values() if t in sources)
        grads = backward(self.b, [y for y, _ in pairs], [dy for _, dy in pairs], list(sources), stop)
        for (inside, t), g in zip(sources.items(), grads, strict=True):
            if g is None:
                continue
            if t in self.found and (inside is t or is_cloned(t)):
                self.found[t].append(g)
            elif inside is not t:
                pending.setdefault(t.op.graph, []).append((t, g))


def _captures(graph: Graph) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields pairs (tensor of another graph, its counterpart in `graph`)."""
    if isinstance(graph, FuncGraph):
        yield from graph.captures.items()
    if isinstance(graph, GradGraph):
        yield from graph.have.items()


def _visible(graph: Graph) -> Iterator[Graph]:
    """Yields the graphs whose tensors can be used in `graph`, itself first."""
    around: Graph | None = graph
    while around is not None:
        yield around
        if isinstance(around, GradGraph):
            yield around.forward
        around = around.outer if not isinstance(around, FuncGraph) or around.captures_from_outer else None


# *** arguments ***


def as_source(x: Any) -> Any:
    """Returns the handle of a variable, and any other object unchanged.

    An eager tensor or variable that a traced function captures becomes its placeholder.
    """
    x = x.handle if hasattr(type(x), "assign") else x
    if not isinstance(x, Tensor) and hasattr(type(x), "as_tensor") and current_trace() is not None:
        return scopes.builder().own(x)
    return x


def _source(x: Any, what: str) -> Tensor:
    given, x = x, as_source(x)
    if not isinstance(x, Tensor):
        raise TypeError(
            f"gradients: {what} must be a tensor of the graph or a variable of it, got {nest.describe(given)}; "
            "use the tensor that the graph computes with (hr.constant converts a value)"
        )
    return x


def _target(b: Builder, y: Any, what: str) -> Tensor:
    if isinstance(y, Tensor):
        return y
    try:
        return b.tensor(y)
    except GraphError:
        raise
    except TypeError as e:
        raise TypeError(f"gradients: {what} must be a tensor, got {nest.describe(y)}: {e}") from e


def check_composites(what: str, given: Any) -> None:
    """Raises `SignatureError` for composites that cannot be differentiated.

    These are sparse tensors, and each `IndexedSlices` as an x.
    """
    for x in nest.flatten(given, expand=False):
        if isinstance(x, SparseTensor) or (what != "y" and isinstance(x, IndexedSlices)):
            kind = type(x).__name__
            raise SignatureError(
                f"Type {kind} is not supported as a gradient source or gradient target: {what} is {x!r}; use its "
                "`values`, which are a tensor"
            )


def _check_dtype(t: Tensor, what: str) -> None:
    if carries(t.dtype):
        return
    made = f" (made at {t.op.source})" if t.op.source is not None else ""
    raise TypeError(
        f"gradients: {what} '{t.name}'{made} is of dtype {t.dtype.base.name}, which has no gradients; only floating "
        "point and complex numbers have. Leave it out, or cast it to a float before it is used (hr.cast)"
    )


def aligned(ys: Any, grad_ys: Any, n: int) -> list[Any]:
    """Returns the gradient in `grad_ys`, or None, for each of the `n` leaves of `ys`."""
    if grad_ys is None:
        return [None] * n
    if nest.is_nested(ys) and (isinstance(grad_ys, IndexedSlices) or not nest.is_nested(grad_ys)):
        grad_ys = [grad_ys]
    elif not nest.is_nested(ys) and isinstance(grad_ys, (list, tuple)) and not nest.is_composite(ys):
        ys = [ys]
    try:
        found = nest.flatten_up_to(ys, grad_ys)
    except ValueError as e:
        given = len(grad_ys) if isinstance(grad_ys, (list, tuple)) else len(nest.flatten(grad_ys))
        raise SignatureError(f"Length mismatch: {given} grad_ys were passed for {n} ys ({e}); give one for each") from e
    # the gradient of a tensor array is a tensor array, and its only leaf is used
    return [nest.flatten(g)[0] if nest.is_composite(g) and not isinstance(g, IndexedSlices) else g for g in found]


def _seed(b: Builder, y: Tensor, dy: Any, i: int) -> Gradient:
    """Returns the given gradient of `y`, or ones."""
    label = f"grad_ys_{i}"
    if dy is None:
        if y.dtype.base in (dtypes.variant, dtypes.resource):
            raise TypeError(f"gradients: y '{y.name}' is of dtype {y.dtype.base.name}; give its gradient in grad_ys")
        if y.dtype.is_complex:
            raise TypeError(
                f"Gradients of complex tensors must set grad_ys (y.dtype = {y.dtype.base.name}): {y!r} has no gradient "
                "by default; give one, or differentiate its real part"
            )
        if shapes.is_full(y.shape):
            size = b.const(y.shape, dtypes.int32, "Shape")
        else:
            size = b.make("Shape", (y,), {}, "Shape")
        made: Tensor = b.make("Fill", (size, b.const(1, y.dtype.base, f"{label}/Const")), {}, label)
        return made
    if isinstance(dy, IndexedSlices):
        return dy
    dtype, shape = gradient_dtype(y), gradient_shape(y)
    wanted = f"gradients: the gradient of y '{y.name}' must be a tensor of dtype {dtype.name} and shape "
    wanted += f"{shapes.show(shape)}, got {nest.describe(dy)}"
    try:
        t = b.tensor(dy, dtype, label)
    except GraphError:
        raise
    except TypeError as e:
        raise SignatureError(f"{wanted}: {e}") from e
    if not shapes.compatible(t.shape, shape):
        raise SignatureError(f"{wanted} of shape {shapes.show(t.shape)}")
    return t


def _structured(
    b: Builder, xs: list[Tensor], ys: list[Tensor], stop: list[Tensor]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Returns the tensors, after recovery of structured operations from primitives.

    Imported graphs may contain loops and conditionals as primitives. Recovery replaces these, and then tensors of the
    structured operations take the place of the given ones.
    """
    for graph in dict.fromkeys(y.op.graph for y in ys):
        mine = [y for y in ys if y.op.graph is graph]
        if any(op.opdef.primitive not in ("", "ControlTrigger") for op in walk.reachable([y.op for y in mine])):
            from headrace.recover import recover  # only imported graphs need it

            recover(graph, [*mine, *(x for x in xs if x.op.graph is graph)])
            replaced = graph.replaced
            xs, ys, stop = ([replaced.get(t, t) for t in ts] for ts in (xs, ys, stop))
    return xs, ys, stop


# *** results ***


def _like(xs: Any, grads: Sequence[Any]) -> Any:
    """Packs `grads` into the structure of `xs`, or a list for a tuple or leaf."""
    rest = iter(grads)
    if not nest.is_nested(xs) or nest.is_composite(xs):
        return [_packed(xs, rest)]
    if isinstance(xs, (list, tuple)):
        return [_packed(x, rest) for x in xs]
    return _packed(xs, rest)


def _packed(x: Any, rest: Iterator[Any]) -> Any:
    mine = [next(rest) for _ in nest.flatten(x)]
    if nest.is_composite(x) and None in mine:
        return None
    return nest.pack(x, mine)
