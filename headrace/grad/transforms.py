"""Transforms of functions: `grad`, `value_and_grad`, `vjp`, `jvp`.

`jacobians` has two more. Each transform takes a function of tensors. `grad` and `value_and_grad` return a function;
`vjp` and `jvp` call it. In a graph they make operations of that graph. Outside of graphs they make a graph of the
function's operations on symbolic arguments, and run it. A function that uses a transform is a function of tensors, too,
so transforms can be nested: `grad(grad(f))`, `jvp` of `grad(f)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from headrace import dtypes, nest, shapes, tracebacks
from headrace.api import recorder, scopes, tracing
from headrace.api.traced_graph import current_trace
from headrace.errors import GraphError, SignatureError
from headrace.grad.called import DifferentiatedCall, is_eager, positions
from headrace.grad.zeros import carries
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from headrace.jit.transformed import anywhere, hashable, transformed

R = TypeVar("R")


@tracebacks.entry
def grad(f: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns a function that computes the gradient of `f`, whose value is a scalar.

    Args:
      f: a function that returns a floating point scalar; with `has_aux`, a pair of the scalar and an auxiliary result.
      argnums: the position of the argument to differentiate by (a nested structure of tensors), or a tuple of
        positions.
      has_aux: whether `f` returns a pair.

    Returns:
      A function of the same arguments. It returns the gradient in the structure of the argument (a tuple of such
      structures, if `argnums` is a tuple), with the same shapes and dtypes; it is zeros where `f` does not depend on
      the argument. With `has_aux` the function returns a pair of the gradient and the auxiliary result.

    Raises (by a call of the function):
      TypeError: an argument to differentiate by has no gradients (an integer), or the value is not a float.
      ValueError: the value is not a scalar, or there is no argument at a position.
      LookupError: an operation of `f` has no gradient.

    Source: the transform is that of Autograd and JAX.

    Example:
      >>> import headrace as hr
      >>> hr.grad(lambda x: x * x * x)(2.0)
      <EagerTensor shape=[] dtype=float32: np.float32(12.0)>
      >>> hr.grad(hr.grad(lambda x: x * x * x))(2.0)
      <EagerTensor shape=[] dtype=float32: np.float32(12.0)>
    """
    tracing.check_callable(f=f)

    def call(*args: Any, **kwargs: Any) -> Any:
        _, grads, aux = _value_and_grad(f, argnums, has_aux, args, kwargs, "grad")
        return (grads, aux) if has_aux else grads

    return transformed(f, ("grad", hashable(argnums), has_aux), call)


@tracebacks.entry
def value_and_grad(f: Callable[..., R], argnums: Any = 0, has_aux: bool = False) -> Callable[..., tuple[R, Any]]:
    """Returns a function that computes both the value and the gradient of `f`.

    Args:
      f: see `grad`.
      argnums: see `grad`.
      has_aux: see `grad`.

    Returns:
      A function of the same arguments. It returns a pair of the value (with `has_aux`, the pair that `f` returned) and
      the gradient as `grad` returns it.

    Raises (by a call of the function): see `grad`.

    Source: the transform is that of Autograd and JAX.

    Example:
      >>> import headrace as hr
      >>> y, dy = hr.value_and_grad(lambda p: p["w"] * 2.0 + p["b"])({"w": 3.0, "b": 1.0})
      >>> float(y), float(dy["w"]), float(dy["b"])
      (7.0, 2.0, 1.0)
    """
    tracing.check_callable(f=f)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, grads, aux = _value_and_grad(f, argnums, has_aux, args, kwargs, "value_and_grad")
        return ((value, aux) if has_aux else value), grads

    return transformed(f, ("value_and_grad", hashable(argnums), has_aux), call)


def _value_and_grad(
    f: Callable[..., Any], argnums: Any, has_aux: bool, args: Sequence[Any], kwargs: dict[str, Any], what: str
) -> tuple[Any, Any, Any]:
    by, single = positions(argnums)
    made = DifferentiatedCall(f, args, kwargs, by, what, has_aux=has_aux)
    if len(made.ys) != 1 or made.ys[0].shape not in ((), None):
        got = f"of shape {shapes.show(made.ys[0].shape)}" if len(made.ys) == 1 else nest.describe(made.value)
        raise SignatureError(
            f"{what} needs a function whose value is a scalar, and {made.title} returned a value {got}; reduce it "
            "(hr.reduce_sum), give the weight of each element to hr.vjp, or compute all derivatives by hr.jacobian"
        )
    y = made.ys[0]
    if not y.dtype.is_floating:
        hint = "take its real part" if y.dtype.is_complex else "cast it (hr.cast) before rounding"
        raise TypeError(
            f"{what} needs a function whose value is a floating point number, and {made.title} returned one of dtype "
            f"{y.dtype.base.name}; {hint}"
        )
    one = made.b.const(1, y.dtype.base, "grad_ys")
    if y.shape is None:  # checked at run time
        one = made.b.OnesLike(made.b.EnsureShape(y, shape=()))
    grads = made.pull_back([one])
    return made.value, made.like_arguments(grads, single), made.aux


@tracebacks.entry
def vjp(f: Callable[..., Any], *args: Any, has_aux: bool = False) -> Any:
    """Computes `f(*args)`, and a function from its gradient to those of the arguments.

    Args:
      f: a function of tensors.
      args: nested structures of tensors.
      has_aux: whether `f` returns a pair of the result to differentiate and an auxiliary result.

    Returns:
      (y, pull_back); with `has_aux` (y, pull_back, aux). `pull_back(dy)` takes a structure like y of tensors with the
      same shapes and dtypes. It returns a tuple with one structure for each argument, with None for an integer in an
      argument. In dy, integers may be replaced by None, too.

    Raises:
      SignatureError (a ValueError and TypeError): dy has another structure, dtype or shape than y.

    Source: the transform is that of JAX.

    Example:
      >>> import headrace as hr
      >>> y, pull_back = hr.vjp(lambda a, b: a * b, 2.0, 3.0)
      >>> float(y), [float(d) for d in pull_back(1.0)]
      (6.0, [3.0, 2.0])
    """
    tracing.check_callable(f=f)
    if not is_eager(args):
        made = DifferentiatedCall(f, args, {}, range(len(args)), "vjp", skips_integers=True, has_aux=has_aux)

        def pull_back(dy: Any) -> Any:
            b: Builder = scopes.builder(*nest.flatten(dy), *made.ys)
            dys = _cotangents(b, made, dy)
            return made.like_arguments(made.pull_back(dys, b), single=False)

        return (made.value, pull_back, made.aux) if has_aux else (made.value, pull_back)
    return (_recorded_vjp if recorder.active.get() else _vjp_of_values)(f, args, has_aux)


def _recorded_vjp(f: Callable[..., Any], args: Sequence[Any], has_aux: bool) -> Any:
    """Computes `vjp` outside of graphs by calls that the active recorders receive."""

    def call(*args: Any) -> Any:
        return f(*args)

    def pulled(*given: Any) -> Any:
        *args, dy = given
        return vjp(f, *args, has_aux=has_aux)[1](dy)

    def pull_back(dy: Any) -> Any:
        return anywhere(f, ("pull_back", has_aux), pulled)((*args, dy), {})

    value = anywhere(f, ("value", has_aux), call)(tuple(args), {})
    return (value[0], pull_back, value[1]) if has_aux else (value, pull_back)


def _vjp_of_values(f: Callable[..., Any], args: Sequence[Any], has_aux: bool) -> Any:
    """Computes `vjp` outside of graphs."""

    def call(*args: Any) -> Any:
        value, inner, *aux = vjp(f, *args, has_aux=has_aux)
        trace = current_trace()
        assert trace is not None
        trace.left = inner
        return (value, *aux)

    concrete, values = anywhere(f, ("vjp", has_aux), call).find(args, {})
    graph = concrete.graph

    def pull_back(dy: Any) -> Any:
        if not is_eager(dy):
            raise GraphError(
                "the function that hr.vjp returned outside of graphs takes values; "
                "call hr.vjp inside the graph to differentiate there"
            )
        (weighed,) = _of_dtypes([dy], [concrete.value[0]])
        leaves = [scopes.runtime().eager.tensor(d) for d in nest.flatten(weighed)]
        key = (nest.outline(dy), *((d.dtype, d.shape) for d in leaves))
        step = concrete.kept.get(key)
        if step is None:
            with graph.reopened():
                given = [graph.placeholder(d, "grad_ys") for d in leaves]
                step = concrete.kept[key] = concrete.step(graph.left(nest.pack(dy, given)), given)
        return step([*values, *(d._value for d in leaves)])

    value, *aux = concrete.run(values)
    return (value, pull_back, *aux)


def _cotangents(b: Builder, made: DifferentiatedCall, dy: Any) -> list[Any]:
    """Returns the leaves of `dy`, checked against the function's results."""
    return _alike(b, made.value, made.ys, dy, f"vjp of {made.title}: the gradient", "result")


def _alike(b: Builder, structure: Any, tensors: Sequence[Tensor], given: Any, what: str, of: str) -> list[Any]:
    try:
        leaves = nest.flatten_up_to(structure, given)
    except ValueError as e:
        raise SignatureError(f"{what} does not have the structure of the {of}: {e}") from e
    paths = [path for path, _ in nest.flatten_with_paths(structure)]
    out: list[Any] = []
    for path, t, leaf in zip(paths, tensors, leaves, strict=True):
        at = f" at {path}" if path else ""
        if leaf is None or not carries(t.dtype):
            if leaf is not None and not _is_zero(leaf):
                raise SignatureError(
                    f"{what}{at} must be None: the {of} there is of dtype {t.dtype.base.name}, which has no gradients"
                )
            out.append(None)
            continue
        wanted = f"{what}{at} must be a tensor of dtype {t.dtype.base.name} and shape {shapes.show(t.shape)}"
        try:
            d = b.tensor(leaf, t.dtype.base)
        except GraphError:
            raise
        except TypeError as e:
            raise SignatureError(f"{wanted}, got {nest.describe(leaf)}: {e}") from e
        if not shapes.compatible(d.shape, t.shape):
            raise SignatureError(f"{wanted}, got {nest.describe(leaf)} of shape {shapes.show(d.shape)}")
        out.append(d)
    return out


def _is_zero(leaf: Any) -> bool:
    return isinstance(leaf, (int, float, np.ndarray, np.generic)) and not np.any(leaf)


@tracebacks.entry
def jvp(f: Callable[..., Any], args: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Computes `f(*args)` and its derivative in the direction `tangents`, in forward mode.

    Args:
      f: a function of tensors.
      args: a list or tuple of its arguments, nested structures of tensors.
      tangents: the tangent of each argument, in the same structure, dtype and shape; None for one that does not change
        (an integer).
      has_aux: whether `f` returns a pair of the result to differentiate and an auxiliary result.

    Returns:
      (y, dy), of the same structure, with None in dy for integers; with `has_aux` (y, dy, aux).

    Raises:
      TypeError: `args` or `tangents` is not a list or tuple.
      SignatureError (a ValueError and TypeError): `tangents` has another structure, dtype or shape than `args`.
      LookupError: an operation of `f` cannot be differentiated.

    Source: the transform is that of JAX.

    Example:
      >>> import headrace as hr
      >>> y, dy = hr.jvp(hr.sin, [0.0], [2.0])
      >>> float(y), float(dy)
      (0.0, 2.0)
    """
    tracing.check_callable(f=f)
    for label, given in (("args", args), ("tangents", tangents)):
        if not isinstance(given, (list, tuple)):
            raise TypeError(
                f"jvp: {label} must be a list or tuple with an entry for each argument of {tracing.titled(f)}, got "
                f"{nest.describe(given)}"
            )
    if len(args) != len(tangents):
        raise SignatureError(
            f"jvp of {tracing.titled(f)}: {len(args)} args, but {len(tangents)} tangents; give one for each"
        )

    def call(args: Any, tangents: Any) -> Any:
        made = DifferentiatedCall(f, args, {}, range(len(args)), "jvp", skips_integers=True, has_aux=has_aux)
        leaves = nest.flatten(list(args))
        tensors = [made.b.tensor(a) if x is None else x for x, a in zip(made.xs, leaves, strict=True)]
        given = _alike(made.b, list(args), tensors, list(tangents), f"jvp of {made.title}: the tangent", "argument")
        dxs = [made.b.ZerosLike(x) if d is None else d for x, d in zip(made.xs, given, strict=True) if x is not None]
        dys = nest.pack(made.value, made.push_forward(dxs))
        return (made.value, dys, made.aux) if has_aux else (made.value, dys)

    return anywhere(f, ("jvp", has_aux), call)((args, _of_dtypes(tangents, args)), {})


def _of_dtypes(numbers: Sequence[Any], likes: Sequence[Any]) -> Any:
    """Returns Python numbers with the dtypes of other values, which they are tangents of."""
    try:
        given = nest.flatten_up_to(list(likes), list(numbers))
    except ValueError:  # `_alike` tells the difference
        return numbers

    def of_dtype(x: Any, like: Any) -> Any:
        dtype = getattr(like, "dtype", None)
        if dtype is None or not isinstance(x, (int, float)) or not carries(dtypes.as_dtype(dtype)):
            return x
        return dtypes.as_dtype(dtype).numpy.type(x)

    leaves = [of_dtype(x, like) for x, like in zip(given, nest.flatten(list(likes)), strict=True)]
    kind: Any = type(numbers)
    return kind(nest.pack(list(likes), leaves))
