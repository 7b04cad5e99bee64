"""`ScipyOptimizerInterface`: minimizes a loss by `scipy.optimize`, which calls a session for values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.v1 import gradient_ops
from headrace.v1.array_ops import placeholder
from headrace.v1.graph import in_default_graph
from headrace.v1.variables import trainable_variables


class ExternalOptimizerInterface:
    """Base class of optimizers outside of the graph.

    Args:
      loss: the loss, a scalar.
      var_list: variables to optimize; None: all trainable ones.
      equalities: tensors that shall be 0.
      inequalities: tensors that shall be at least 0.
      var_to_bounds: lowest and highest values by variable: numbers or arrays of its shape.
      **optimizer_kwargs: arguments of the optimizer.

    Source: TensorFlow's `tf.contrib.opt.ExternalOptimizerInterface`.
    """

    @in_default_graph
    def __init__(
        self, loss: Any, var_list: Sequence[Any] | None = None, equalities: Sequence[Any] | None = None,
        inequalities: Sequence[Any] | None = None, var_to_bounds: Mapping[Any, Any] | None = None,
        **optimizer_kwargs: Any,
    ) -> None:  # fmt: skip
        self._loss, self._options = loss, optimizer_kwargs
        self._vars = list(trainable_variables() if var_list is None else var_list)
        self._constraints = {"eq": list(equalities or ()), "ineq": list(inequalities or ())}
        self._bounds = None if var_to_bounds is None else self._packed_bounds(var_to_bounds)
        self._gradients = self._of(loss)
        self._jacobians = {kind: [self._of(t) for t in found] for kind, found in self._constraints.items()}
        self._fed = [placeholder(v.dtype.base, v.shape) for v in self._vars]
        self._assign = [v.assign(x, read_value=False) for v, x in zip(self._vars, self._fed, strict=True)]

    def _of(self, t: Any) -> list[Any]:
        if t.shape is None or t.shape:
            raise ValueError(f"the loss and the constraints must be scalars, got {t!r}")
        found = gradient_ops.gradients(t, self._vars)
        return [v * 0 if g is None else g + 0 * v for g, v in zip(found, self._vars, strict=True)]

    def _packed_bounds(self, given: Mapping[Any, Any]) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        for v in self._vars:
            bounds = next((b for k, b in given.items() if k is v), (-np.inf, np.inf))
            low, high = (np.broadcast_to(np.asarray(b, np.float64), v.shape).ravel() for b in bounds)
            found += zip(low.tolist(), high.tolist(), strict=True)
        return found

    def _packed(self, arrays: Sequence[Any]) -> np.ndarray:
        return np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])

    def _unpacked(self, x: np.ndarray) -> list[np.ndarray]:
        sizes = [int(np.prod(v.shape, dtype=np.int64)) for v in self._vars]
        parts = np.split(x, np.cumsum(sizes)[:-1])
        return [p.reshape(v.shape).astype(v.dtype.base.numpy) for p, v in zip(parts, self._vars, strict=True)]

    def minimize(
        self, session: Any = None, feed_dict: Mapping[Any, Any] | None = None, fetches: Sequence[Any] | None = None,
        step_callback: Callable[[Any], Any] | None = None, loss_callback: Callable[..., Any] | None = None,
        **run_kwargs: Any,
    ) -> None:  # fmt: skip
        """Changes the variables so that the loss becomes small.

        Args:
          session: the session.
          feed_dict: feeds of every evaluation.
          fetches: tensors that `loss_callback` receives.
          step_callback: a function of the values after each step, or None.
          loss_callback: a function of the fetched values, called at each evaluation, or None.
          **run_kwargs: further arguments of `Session.run`.
        """
        more = list(fetches or ())

        def at(x: np.ndarray, fetched: Any) -> Any:
            fed = dict(zip(self._vars, self._unpacked(x), strict=True))
            return session.run(fetched, {**(feed_dict or {}), **fed}, **run_kwargs)

        def loss_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            loss, found, seen = at(x, [self._loss, self._gradients, more])
            if loss_callback is not None:
                loss_callback(*seen)
            return float(loss), self._packed(found)

        constraints = [
            {"type": kind, "fun": lambda x, t=t: float(at(x, t)), "jac": lambda x, g=g: self._packed(at(x, g))}
            for kind, found in self._constraints.items()
            for t, g in zip(found, self._jacobians[kind], strict=True)
        ]
        start = self._packed(session.run(self._vars))
        best = self._minimize(start, loss_and_gradient, constraints, step_callback)
        session.run(self._assign, dict(zip(self._fed, self._unpacked(best), strict=True)))

    def _minimize(
        self, start: np.ndarray, loss_and_gradient: Any, constraints: list[Any], step_callback: Any
    ) -> np.ndarray:
        """Returns the best values. A subclass defines it."""
        raise NotImplementedError("To use ExternalOptimizerInterface, subclass it and define _minimize")


class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """Optimizer of `scipy.optimize.minimize`. See `ExternalOptimizerInterface`.

    Its further arguments are those of `scipy.optimize.minimize`: `method`, "L-BFGS-B" by default and "SLSQP" with
    constraints, and `options`.

    Source: TensorFlow's `tf.contrib.opt.ScipyOptimizerInterface`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     w = tf.get_variable("w", initializer=[7.0, 7.0])
      ...     optimizer = tf.contrib.opt.ScipyOptimizerInterface(tf.reduce_sum(tf.square(w - [1.0, 2.0])))
      ...     sess.run(tf.global_variables_initializer())
      ...     optimizer.minimize(sess)
      ...     sess.run(w).round(4).tolist()
      [1.0, 2.0]
    """

    def _minimize(
        self, start: np.ndarray, loss_and_gradient: Any, constraints: list[Any], step_callback: Any
    ) -> np.ndarray:
        from scipy import optimize  # optional and slow to import

        options = dict(self._options)
        method = options.pop("method", "SLSQP" if constraints else "L-BFGS-B")
        found = optimize.minimize(
            loss_and_gradient, start, method=method, jac=True, bounds=self._bounds, constraints=constraints,
            callback=step_callback, **options,
        )  # fmt: skip
        return np.asarray(found.x)
