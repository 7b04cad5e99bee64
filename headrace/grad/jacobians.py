"""Matrices of derivatives: `jacobian`, `hessian`.

Reverse mode goes once through a function and then back, and gives the derivatives of one combination of the results
with respect to everything; so a Jacobian takes a way back for each element of the results. Forward mode gives the
derivatives of all results in one direction; a Jacobian takes a way for each element of the arguments. The one costs
n_O + 1 passes, the other n_I + 1. The ways are the iterations of a loop in the graph (`map_fn`), so the shapes need not
be known before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes, nest
from headrace.api import functional, scopes, tracing
from headrace.api.function import TensorSpec
from headrace.errors import GraphError, SignatureError
from headrace.grad.activity import carries
from headrace.grad.called import DifferentiatedCall, anywhere, named, positions
from headrace.grad.transforms import grad
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor

MODES = ("rev", "fwd")


def jacobian(of: Any, by: Any = 0, mode: str = "rev", has_aux: bool = False) -> Any:
    """The derivatives of every element of a result with respect to every element of an argument.

    Args:
      of: a function, whose results may be of any shape; or a tensor of a graph, or a nested structure of tensors.
      by: for a function the position of the argument to differentiate by (argnums), or a tuple of those; for tensors
        those to differentiate by, or a nested structure of them.
      mode: "rev", which goes back once for each element of the results, in a loop of the graph; or "fwd", which goes
        forward once for each element of the arguments. The derivatives are the same: choose the fewer.
      has_aux: whether the function returns a pair of what is differentiated and anything else.

    Returns:
      For a function, a function of the same arguments that gives the derivatives; for tensors these. They are in the
      structure of the results, in the place of each of which there is the structure of the arguments. A leaf has the
      shape `y.shape + x.shape`, and is zero if y does not depend on x.

    Raises:
      TypeError: what it is to differentiate, or by, has no gradients (an integer).
      ValueError: `mode` is something else.

    Source: the transforms are JAX's `jacrev` and `jacfwd`.

    Example:
      >>> import headrace as hr
      >>> hr.jacobian(lambda x: x * x)(hr.constant([1.0, 2.0])).numpy()
      array([[2., 0.],
             [0., 4.]], dtype=float32)
    """
    if mode not in MODES:
        raise ValueError(f"jacobian: mode must be 'rev' or 'fwd', got {mode!r}")
    if not callable(of):
        return _Given(of, by, "jacobian").jacobian(mode)

    def call(*args: Any, **kwargs: Any) -> Any:
        numbers, single = positions(by)
        made = DifferentiatedCall(of, args, kwargs, numbers, "jacobian", has_aux=has_aux)
        out = _jacobian(made, mode, lambda leaves: made.like_arguments(leaves, single))
        return (out, made.aux) if has_aux else out

    return named(anywhere(call), of, "jacobian")


def hessian(of: Any, by: Any = 0, has_aux: bool = False) -> Any:
    """The second derivatives of a scalar: forward mode over reverse mode, n + 1 passes for n elements of the argument.

    Args:
      of: a function whose value is a floating point scalar; or such a tensor of a graph.
      by: see `jacobian`.
      has_aux: whether the function returns a pair of what is differentiated and anything else.

    Returns:
      As `jacobian` of `grad`: in the structure of the arguments, in the place of each leaf of which there is that
      structure again. A leaf has the shape `x.shape + x.shape`.

    Raises: see `grad`.

    Source: the transform is JAX's `hessian`.

    Example:
      >>> import headrace as hr
      >>> hr.hessian(hr.reduce_prod)(hr.constant([2.0, 3.0])).numpy()
      array([[0., 1.],
             [1., 0.]], dtype=float32)
    """
    if callable(of):
        return named(jacobian(grad(of, by, has_aux), by, "fwd", has_aux), of, "hessian")
    given = _Given(of, by, "hessian")
    y = given.ys[0]
    if len(given.ys) != 1 or y.shape not in ((), None):
        raise SignatureError(f"hessian needs a scalar, got {nest.describe(of)}; reduce it (hr.reduce_sum)")
    grads = given.pull_back([given.b.OnesLike(y)])
    return _Given(nest.pack(by, grads), by, "hessian").jacobian("fwd")


class _Given(DifferentiatedCall):
    """Tensors of a graph in the place of a call: what it is to be differentiated, and by what."""

    def __init__(self, ys: Any, xs: Any, what: str) -> None:
        self.b = scopes.builder(*nest.flatten((ys, xs)))
        if not isinstance(self.b, Builder):
            raise GraphError(f"{what} of values: give the function that computes them, or tensors of a graph")
        self.title = nest.describe(ys)
        self.what = what
        self.args, self.by = (xs,), [0]
        self.value = tracing.convert(ys, self.b, what)
        self.ys = nest.flatten(self.value)
        self.xs = []
        for path, x in nest.flatten_with_paths(xs):
            if not isinstance(x, Tensor) or not carries(x.dtype):
                dtype = f" of dtype {x.dtype.base.name}, which has no gradients" if isinstance(x, Tensor) else ""
                raise TypeError(
                    f"{what}: x{path} must be a floating point or complex tensor of the graph, got {nest.describe(x)}"
                    f"{dtype}"
                )
            self.xs.append(x)

    def jacobian(self, mode: str) -> Any:
        return _jacobian(self, mode, lambda leaves: self.like_arguments(leaves, True))


def _jacobian(made: DifferentiatedCall, mode: str, pack: Callable[[Sequence[Any]], Any]) -> Any:
    for path, y in nest.flatten_with_paths(made.value):
        if not carries(y.dtype) or y.dtype.base is dtypes.variant:
            raise TypeError(
                f"{made.what}: {made.title} returned '{y.name}'{path and ' at ' + path} of dtype {y.dtype.base.name}, "
                "which has no gradients; leave it out of what it returns, or return it as aux (has_aux=True)"
            )
    with scopes.entered(made.b.within("jacobian")) as b:
        rows = _by_rows(b, made) if mode == "rev" else _by_columns(b, made)
    return nest.pack(made.value, [pack(row) for row in rows])


def _by_rows(b: Builder, made: DifferentiatedCall) -> list[list[Tensor]]:
    """For each result, for each x, the derivatives; a way back for each element of the result."""
    xs = [x for x in made.xs if x is not None]
    out = []
    for k, y in enumerate(made.ys):
        n, shape = b.Size(y), b.Shape(y)

        def row(i: Any, k: int = k, y: Tensor = y, n: Any = n, shape: Any = shape) -> list[Tensor]:
            inner: Builder = scopes.builder()
            dy = inner.Reshape(_unit(inner, i, n, y), shape)
            return made.pull_back([dy if j == k else None for j in range(len(made.ys))], inner)

        rows = _mapped(b, row, n, xs)
        out.append([_shaped(b, r, y, x, False) for r, x in zip(rows, xs, strict=True)])
    return out


def _by_columns(b: Builder, made: DifferentiatedCall) -> list[list[Tensor]]:
    """The same; a way forward for each element of the xs."""
    xs = [x for x in made.xs if x is not None]
    columns = []
    for k, x in enumerate(xs):
        n, shape = b.Size(x), b.Shape(x)

        def column(i: Any, k: int = k, x: Tensor = x, n: Any = n, shape: Any = shape) -> list[Any]:
            inner: Builder = scopes.builder()
            dx = inner.Reshape(_unit(inner, i, n, x), shape)
            return made.push_forward([dx if j == k else inner.ZerosLike(z) for j, z in enumerate(xs)], inner)

        found = _mapped(b, column, n, made.ys)
        columns.append([_shaped(b, c, y, x, True) for c, y in zip(found, made.ys, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in made.ys]


def _unit(b: Builder, i: Any, n: Any, like: Tensor) -> Any:
    """The vector of `n` zeros with a one at `i`."""
    one, zero = b.const(1, like.dtype.base), b.const(0, like.dtype.base)
    return b.OneHot(i, n, one, zero, axis=-1)


def _mapped(b: Builder, fn: Callable[[Any], list[Any]], n: Any, likes: Sequence[Tensor]) -> list[Tensor]:
    """What `fn` gives for 0 to n - 1, stacked; tensors like `likes`."""
    specs = [TensorSpec(t.shape, t.dtype.base) for t in likes]
    out: list[Tensor] = functional.map_fn(fn, b.Range(0, n, 1), fn_output_signature=specs, name="rows")
    return out


def _shaped(b: Builder, stacked: Tensor, y: Tensor, x: Tensor, is_column: bool) -> Tensor:
    """Derivatives of shape y.shape + x.shape; `stacked` has a row for each element of y, or of x if `is_column`."""
    if is_column:
        stacked = b.Transpose(b.Reshape(stacked, b.Pack([b.Size(x), b.Size(y)])), [1, 0])
    made: Tensor = b.Reshape(stacked, b.ConcatV2([b.Shape(y), b.Shape(x)], 0))
    made.refine(None if y.shape is None or x.shape is None else (*y.shape, *x.shape))
    return made
