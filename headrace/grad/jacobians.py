"""Matrices of derivatives: `jacobian`, `hessian`.

One forward and one backward pass of reverse mode give the derivatives of one linear combination of the results with
respect to all arguments. So a Jacobian takes one backward pass for each element of the results, n_O + 1 passes in all.
A pass of forward mode gives the derivatives of all results in one direction. So a Jacobian takes one pass for each
element of the arguments, n_I + 1 in all. The passes are iterations of a loop in the graph (`map_fn`), so the shapes may
be unknown until it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes, nest, tracebacks
from headrace.api import functional, scopes, tracing
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import GraphError, SignatureError
from headrace.grad.called import DifferentiatedCall, positions
from headrace.grad.gradients import as_source
from headrace.grad.transforms import grad
from headrace.grad.zeros import carries, gradient_dtype, gradient_shape, shape_of_gradient
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from headrace.jit.transformed import hashable, transformed

MODES = ("rev", "fwd")


@tracebacks.entry
def jacobian(of: Any, by: Any = 0, mode: str = "rev", has_aux: bool = False) -> Any:
    """Computes the derivatives of each element of a result by each element of an argument.

    Args:
      of: a function with results of any shape; or a tensor of a graph, or a nested structure of tensors.
      by: for a function, the position of the argument to differentiate by (argnums), or a tuple of positions; for
        tensors, a tensor or variable to differentiate by, or a nested structure of them.
      mode: "rev", with one backward pass for each element of the results, in a loop of the graph; or "fwd", with one
        forward pass for each element of the arguments. The derivatives are the same, so choose the smaller number.
      has_aux: whether the function returns a pair of the results to differentiate and an auxiliary result.

    Returns:
      For a function, a function of the same arguments that returns the derivatives; for tensors, the derivatives. They
      have the structure of the results, with the structure of the arguments in place of each leaf. A leaf has the shape
      `y.shape + x.shape`, and is zero if y does not depend on x.

    Raises:
      TypeError: a tensor to differentiate, or to differentiate by, has no gradients (an integer).
      ValueError: `mode` has another value.

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

    return transformed(of, ("jacobian", hashable(by), mode, has_aux), call)


@tracebacks.entry
def hessian(of: Any, by: Any = 0, has_aux: bool = False) -> Any:
    """Computes the second derivatives of a scalar, by forward mode over reverse mode.

    For n elements of the argument this takes n + 1 passes.

    Args:
      of: a function that returns a floating point scalar; or such a tensor of a graph.
      by: see `jacobian`.
      has_aux: whether the function returns a pair of the scalar and an auxiliary result.

    Returns:
      The result of `jacobian` of `grad`: the structure of the arguments, with the same structure in place of each leaf.
      A leaf has the shape `x.shape + x.shape`.

    Raises: see `grad`.

    Source: the transform is JAX's `hessian`.

    Example:
      >>> import headrace as hr
      >>> hr.hessian(hr.reduce_prod)(hr.constant([2.0, 3.0])).numpy()
      array([[0., 1.],
             [1., 0.]], dtype=float32)
    """
    if callable(of):
        return transformed(of, ("hessian", hashable(by), has_aux), jacobian(grad(of, by, has_aux), by, "fwd", has_aux))
    given = _Given(of, by, "hessian")
    y = given.ys[0]
    if len(given.ys) != 1 or y.shape not in ((), None):
        raise SignatureError(f"hessian needs a scalar, got {nest.describe(of)}; reduce it (hr.reduce_sum)")
    grads = given.pull_back([given.b.OnesLike(y)])
    return _Given(nest.pack(by, grads), by, "hessian").jacobian("fwd")


class _Given(DifferentiatedCall):
    """Tensors of a graph in place of a call: results, and tensors to differentiate by."""

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
        for path, given in nest.flatten_with_paths(xs):
            x = as_source(given)  # of a variable, its handle
            if not isinstance(x, Tensor) or not carries(x.dtype):
                dtype = f" of dtype {x.dtype.base.name}, which has no gradients" if isinstance(x, Tensor) else ""
                raise TypeError(
                    f"{what}: x{path} must be a floating point or complex tensor of the graph, got {nest.describe(x)}"
                    f"{dtype}"
                )
            self.xs.append(x)

    def jacobian(self, mode: str) -> Any:
        if mode == "fwd" and any(x is not None and x.dtype.base is dtypes.resource for x in self.xs):
            raise TypeError(f"{self.what}: a variable has derivatives by mode 'rev' only; pass mode='rev'")
        return _jacobian(self, mode, lambda leaves: self.like_arguments(leaves, True))


def _jacobian(made: DifferentiatedCall, mode: str, pack: Callable[[Sequence[Any]], Any]) -> Any:
    for path, y in nest.flatten_with_paths(made.value):
        if not carries(y.dtype) or y.dtype.base is dtypes.variant:
            raise TypeError(
                f"{made.what}: {made.title} returned '{y.name}'{path and ' at ' + path} of dtype {y.dtype.base.name}, "
                "which has no gradients; leave it out of the returned value, or return it as aux (has_aux=True)"
            )
    with scopes.entered(made.b.within("jacobian")) as b:
        rows = _by_rows(b, made) if mode == "rev" else _by_columns(b, made)
    return nest.pack(made.value, [pack(row) for row in rows])


def _by_rows(b: Builder, made: DifferentiatedCall) -> list[list[Tensor]]:
    """Returns the derivatives, with one backward pass for each element of the results."""
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
    """Returns the derivatives, with one forward pass for each element of the xs."""
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
    """Returns a vector of `n` zeros with a one at `i`."""
    one, zero = b.const(1, like.dtype.base), b.const(0, like.dtype.base)
    return b.OneHot(i, n, one, zero, axis=-1)


def _mapped(b: Builder, fn: Callable[[Any], list[Any]], n: Any, likes: Sequence[Tensor]) -> list[Tensor]:
    """Returns the stacked values of `fn` at 0 to n - 1.

    Args:
      b: the builder of the loop.
      fn: a function from a scalar to a list of tensors.
      n: the number of values.
      likes: tensors with the dtypes and shapes of the values.
    """
    specs = [TensorSpec(gradient_shape(t), gradient_dtype(t)) for t in likes]
    out: list[Tensor] = functional.map_fn(fn, b.Range(0, n, 1), fn_output_signature=specs, name="rows")
    return out


def _shaped(b: Builder, stacked: Tensor, y: Tensor, x: Tensor, is_column: bool) -> Tensor:
    """Reshapes derivatives to y.shape + x.shape.

    Args:
      b: the builder.
      stacked: derivatives with a row for each element of y, or of x if `is_column`.
      y: the result.
      x: the argument.
      is_column: whether the rows are for elements of x.
    """
    if is_column:
        stacked = b.Transpose(b.Reshape(stacked, b.Pack([b.Size(x), b.Size(y)])), [1, 0])
    made: Tensor = b.Reshape(stacked, b.ConcatV2([b.Shape(y), shape_of_gradient(b, x)], 0))
    end = gradient_shape(x)
    made.refine(None if y.shape is None or end is None else (*y.shape, *end))
    return made
