"""Gradient descent, with and without momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.api import scopes
from headrace.train.optimizers import tensors
from headrace.train.optimizers.base import Optimizer
from headrace.train.optimizers.rule import Hyper, Slot, Values


class SGD(Optimizer):
    """Gradient descent: `w -= learning_rate * gradient`.

    Args:
      learning_rate, name: see `Optimizer`.

    Source: TensorFlow's `tf.train.GradientDescentOptimizer`.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable(1.0)
      >>> hr.train.SGD(0.25).minimize(lambda: hr.square(w), var_list=[w])
      >>> w.numpy()
      np.float32(0.5)
    """

    op = "GradientDescent"

    def __init__(self, learning_rate: Any, name: str = "GradientDescent") -> None:
        super().__init__(learning_rate, name)

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {"alpha": self.rate(counters)}

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.sparse`. Rows with the same index are all subtracted."""
        rows = grad.values * hyper("alpha")
        return {"var": tensors.scatter(values["var"], grad.indices, rows, "TensorScatterSub")}

    def _update_sparse(self, v: Any, grad: Any, hyper: Hyper) -> Any:
        b = scopes.builder(v, grad.values, grad.indices)
        rows = grad.values * hyper("alpha")
        if v.handle.dtype.is_ref:
            return b.make("ScatterSub", (v.handle_in(b), grad.indices, rows), {}).op
        return b.make("ResourceScatterSub", (v.handle, grad.indices, rows), {"dtype": v.dtype.base})


class ProximalGradientDescent(Optimizer):
    """Gradient descent with L1 and L2 regularization by proximal steps (FOBOS).

    Args:
      learning_rate, name: see `Optimizer`.
      l1_regularization_strength: strength of the L1 penalty, not negative. It makes small weights exactly zero.
      l2_regularization_strength: strength of the L2 penalty, not negative. It makes all weights smaller.

    Source: TensorFlow's `tf.train.ProximalGradientDescentOptimizer`; Duchi and Singer 2009.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable(1.0)
      >>> hr.train.ProximalGradientDescent(0.25).minimize(lambda: hr.square(w), var_list=[w])
      >>> float(w) < 1.0
      True
    """

    op = "ProximalGradientDescent"

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(learning_rate, name)
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {"alpha": self.rate(counters), "l1": self._l1, "l2": self._l2}


class Momentum(Optimizer):
    """Gradient descent with momentum: steps along a decaying sum of gradients.

    `m = momentum * m + gradient; w -= learning_rate * m`. The slot is "momentum".

    Args:
      learning_rate, name: see `Optimizer`.
      momentum: decay rate of the sum: a number, a scalar tensor, or a function that returns one of them.
      use_nesterov: whether to use Nesterov momentum (Sutskever and others 2013).

    Source: TensorFlow's `tf.train.MomentumOptimizer`.

    Example:
      >>> import headrace as hr
      >>> w, opt = hr.Variable(1.0), hr.train.Momentum(0.5, 0.5)
      >>> for _ in range(2):
      ...     opt.apply_gradients([(1.0, w)])
      >>> w.numpy(), opt.get_slot(w, "momentum").numpy()
      (np.float32(-0.25), np.float32(1.5))
    """

    op = "Momentum"

    def __init__(
        self, learning_rate: Any, momentum: Any = 0.9, use_nesterov: bool = False, name: str = "Momentum"
    ) -> None:
        super().__init__(learning_rate, name)
        self._momentum, self._use_nesterov = momentum, use_nesterov

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        return [Slot("momentum", "accum")]

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {"lr": self.rate(counters), "momentum": self.now(self._momentum)}

    def attrs(self) -> dict[str, Any]:
        """See `Rule.attrs`."""
        return {"use_nesterov": self._use_nesterov}
