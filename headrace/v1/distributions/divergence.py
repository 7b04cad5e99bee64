"""Kullback-Leibler divergences of pairs of distributions, and the register of their functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.v1.array_ops import identity
from headrace.v1.check_ops import Assert
from headrace.v1.math_ops import is_nan, logical_not, reduce_any
from headrace.v1.scoping import control_dependencies, name_scope

_FUNCTIONS: dict[tuple[type, type], Callable[..., Any]] = {}


class RegisterKL:
    """Decorator that registers the divergence of two classes.

    The function is called with the two distributions and `name`.

    Source: TensorFlow's `tf.distributions.RegisterKL`.
    """

    def __init__(self, dist_cls_a: type, dist_cls_b: type) -> None:
        self._key = (dist_cls_a, dist_cls_b)

    def __call__(self, kl_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Registers `kl_fn`, and returns it.

        Raises:
          TypeError: `kl_fn` is not callable.
          ValueError: the pair of classes has a function already.
        """
        if not callable(kl_fn):
            raise TypeError(f"kl_fn must be callable, received: {kl_fn}")
        a, b = self._key
        if self._key in _FUNCTIONS:
            found = _FUNCTIONS[self._key]
            raise ValueError(f"KL({a.__name__} || {b.__name__}) has already been registered to: {found}")
        _FUNCTIONS[self._key] = kl_fn
        return kl_fn


def kl_divergence(
    distribution_a: Any, distribution_b: Any, allow_nan_stats: bool = True, name: str | None = None
) -> Any:
    """Computes KL(a || b), with the function that is registered for the nearest base classes.

    Args:
      distribution_a, distribution_b: the two distributions.
      allow_nan_stats: whether the result may be NaN; if not, a NaN is an error of the step.
      name: of the operations.

    Raises:
      NotImplementedError: no function is registered for the classes.

    Source: TensorFlow's `tf.distributions.kl_divergence`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     a, b = tf.distributions.Normal(0.0, 1.0), tf.distributions.Normal(1.0, 1.0)
      ...     sess.run(tf.distributions.kl_divergence(a, b))
      np.float32(0.5)
    """
    a, b = type(distribution_a), type(distribution_b)
    pairs = [(i + j, i, (x, y)) for i, x in enumerate(a.__mro__) for j, y in enumerate(b.__mro__)]
    known = [pair for pair in pairs if pair[2] in _FUNCTIONS]
    if not known:
        raise NotImplementedError(
            f"No KL(distribution_a || distribution_b) registered for distribution_a type {a.__name__} and "
            f"distribution_b type {b.__name__}"
        )
    with name_scope("KullbackLeibler"):
        out = _FUNCTIONS[min(known, key=lambda pair: pair[:2])[2]](distribution_a, distribution_b, name=name)
        if allow_nan_stats:
            return out
        out = identity(out, name="kl")
        text = (
            f"KL calculation between {distribution_a.name} and {distribution_b.name} returned NaN values "
            "(and was called with allow_nan_stats=False). Values:"
        )
        with control_dependencies([Assert(logical_not(reduce_any(is_nan(out))), [text, out])]):
            return identity(out, name="checked_kl")
