"""TensorFlow 1's gradients: `tf.gradients`, `tf.hessians`, `tf.custom_gradient` and related functions.

Loops with `back_prop=False` count as constants, as in TensorFlow 1.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

from headrace import nest
from headrace.api import rematerialization
from headrace.grad import custom, jacobians, registered
from headrace.grad.gradients import make_gradients
from headrace.v1.graph import in_default_graph


class UnconnectedGradients(enum.Enum):
    """Result of `gradients` for an x without a path to the ys.

    NONE stands for None, ZERO for zeros of the shape of x.

    Source: TensorFlow's `tf.UnconnectedGradients`.
    """

    NONE = "none"
    ZERO = "zero"


class AggregationMethod:
    """Methods of summing the gradients of a tensor. All have the same effect, one AddN.

    Source: TensorFlow's `tf.AggregationMethod`.
    """

    ADD_N = DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


@in_default_graph
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = UnconnectedGradients.NONE,
) -> list[Any]:
    """Computes the derivatives of the sum of all `ys` with respect to each of `xs`.

    Args:
      ys, xs, grad_ys, name, stop_gradients: see `headrace.gradients`. An integer tensor has no gradient.
      colocate_gradients_with_ops, gate_gradients, aggregation_method: accepted as in TensorFlow, without effect.
      unconnected_gradients: an `UnconnectedGradients`, or its value.

    Returns:
      A list with an entry for each of `xs`: a tensor, an `IndexedSlices`, or None.

    Raises:
      ValueError: the tensors belong to different graphs; the lengths of `ys` and `grad_ys` differ;
        `unconnected_gradients` has another value; or a y or an x is an extension type.
      LookupError: an operation on a path has no gradient.
      TypeError: a y is complex and has no entry in `grad_ys`.

    Source: TensorFlow's `tf.gradients`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.constant(2.0)
      ...     y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), [0, 1.0])[1]
      ...     sess.run(tf.gradients(y, x))
      [np.float32(12.0)]
    """
    try:
        unconnected = UnconnectedGradients(unconnected_gradients).value
    except ValueError:
        raise ValueError(
            f"Unknown value for unconnected_gradients: {unconnected_gradients!r}; it is 'none' or 'zero'"
        ) from None
    for given in (ys, xs):
        for x in nest.flatten(given, expand=False):
            if hasattr(type(x), "_type_spec"):
                kind = type(x).__name__
                raise ValueError(f"Type {kind} is not supported as a gradient source or gradient target; give tensors")
    found = make_gradients(ys, xs, grad_ys, stop_gradients, unconnected, name, allows_integers=True)
    return found if isinstance(found, list) else nest.flatten(found)


@in_default_graph
def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[Any]:
    """Computes the second derivatives of the sum of `ys` by each of `xs`.

    Args:
      ys, xs: see `gradients`.
      name: name of the scope.
      colocate_gradients_with_ops, gate_gradients, aggregation_method: accepted as in TensorFlow, without effect.

    Returns:
      A list with a tensor of the shape `x.shape + x.shape` for each of `xs`.

    Raises:
      ValueError: no y depends on an x. Other errors: see `gradients`.

    Source: TensorFlow's `tf.hessians`.
    """
    xs = nest.as_list(xs)
    first = gradients(ys, xs, name=name)
    out = []
    for x, g in zip(xs, first, strict=True):
        if g is None:
            raise ValueError(f"hessians: no y depends on {nest.describe(x)}, so there are no derivatives of it")
        out.append(jacobians.jacobian(g, x))
    return out


def custom_gradient(f: Any = None) -> Any:
    """Returns a function with a custom gradient. See `headrace.custom_gradient`.

    Args:
      f: a function that returns a pair (y, grad_fn).

    Source: TensorFlow's `tf.custom_gradient`.
    """
    if f is None:
        return custom_gradient
    return _InDefaultGraph(f)


class _InDefaultGraph(custom.custom_gradient):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return in_default_graph(super().__call__)(*args, **kwargs)


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function like `f` whose gradient is that of the identity.

    Args:
      f: a function whose result has the shape of its argument.

    Source: TensorFlow's `tf.grad_pass_through`.
    """

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        def back(*dys: Any, variables: Any = None) -> Any:
            return dys if variables is None else (dys, [None] * len(variables))

        return f(*args), back

    return custom_gradient(call)  # type: ignore[no-any-return]


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function like `f` that is computed again for its gradient. See `headrace.recompute_grad`.

    Args:
      f: the function. Of its values only the arguments are kept for the gradient.

    Source: TensorFlow's `tf.recompute_grad`.
    """
    return in_default_graph(rematerialization.recompute_grad(f))


RegisterGradient = registered.RegisterGradient
NotDifferentiable = registered.not_differentiable
