"""Optimizers as functions from parameters, gradients and state to parameters and state.

They serve programs that keep parameters in structures of tensors, not in variables: in eager execution, in functions,
and as loop variables. They have no effects and are differentiable. The results are equal to those of the form with
variables.
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.errors import SignatureError
from headrace.train.optimizers import tensors
from headrace.train.optimizers.rule import Hyperparameters, Rule, initial


class Functional(Rule):
    """Optimizer as pure functions of tensors: `init` and `update`."""

    def init(self, params: Any) -> dict[str, Any]:
        """Returns the state before the first step.

        Args:
          params: a structure of floating point tensors with known shapes, or of values that convert to such tensors.

        Returns:
          A structure of tensors: `{"counters": {name: scalar}, "slots": {name: structure like params}}`.

        Raises:
          ValueError: a parameter does not have a floating point dtype, or its shape is not known.

        Example:
          >>> import headrace as hr
          >>> state = hr.train.Adam(0.1).init({"w": hr.zeros([2])})
          >>> sorted(state["slots"]), float(state["counters"]["beta1_power"])
          (['m', 'v'], 0.8999999761581421)
        """
        leaves = self._parameters(params)
        wide = any(t.dtype.base is dtypes.float64 for t in leaves)
        b = scopes.builder(*leaves)
        counters = {}
        for name, value in self.counters().items():
            dtype = dtypes.int64 if isinstance(value, int) else dtypes.float64 if wide else dtypes.float32
            counters[name] = b.tensor(tensors.number(value, dtype))
        slots = {
            slot.name: nest.pack(params, [b.tensor(initial(slot, t.dtype.base, t.shape)) for t in leaves])
            for slot in self.slots()
        }
        return {"counters": counters, "slots": slots}

    def update(self, grads: Any, state: Any, params: Any) -> tuple[Any, dict[str, Any]]:
        """Computes one step.

        Args:
          grads: the gradients, in the structure of `params`: tensors of the same shapes and dtypes, `IndexedSlices`, or
            None for parameters that do not change.
          state: the state that `init` or the previous `update` returned.
          params: a structure of floating point tensors, the parameters.

        Returns:
          A pair (new parameters, new state), in the same structures.

        Raises:
          SignatureError (a ValueError and TypeError): `grads` or `state` do not match `params`.

        Example:
          >>> import headrace as hr
          >>> opt = hr.train.Momentum(0.1, momentum=0.9)
          >>> w = hr.constant(5.0)
          >>> state = opt.init(w)
          >>> for _ in range(2):
          ...     w, state = opt.update(2.0 * w, state, w)
          >>> round(float(w), 4)
          2.3
        """
        leaves = self._parameters(params)
        try:
            given = nest.flatten_up_to(params, grads)
            kept = [nest.flatten_up_to(params, state["slots"][s.name]) for s in self.slots()]
            counters = {name: state["counters"][name] for name in self.counters()}
        except (KeyError, TypeError) as e:
            raise SignatureError(f"update: the state is not one that this optimizer's init gives: {e!r}") from e
        except ValueError as e:
            raise SignatureError(f"update: the gradients or the state are not like the parameters: {e}") from e
        hyper = Hyperparameters(self, counters)
        new: list[Any] = []
        for i, (t, grad) in enumerate(zip(leaves, given, strict=True)):
            values = {"var": t} | {s.argument: k[i] for s, k in zip(self.slots(), kept, strict=True)}
            if grad is not None:
                of = hyper.of(t.dtype.base)
                if tensors.is_sparse(grad):
                    values |= self.sparse(values, of, grad)
                else:
                    values |= self.dense(values, of, _like(t, grad, i))
            new.append(values)
        slots = {s.name: nest.pack(params, [values[s.argument] for values in new]) for s in self.slots()}
        advanced = {k: tensors.of_dtype(x, counters[k].dtype.base) for k, x in self.advanced(counters).items()}
        after = nest.pack(params, [values["var"] for values in new])
        return after, {"counters": {**counters, **advanced}, "slots": slots}

    def _parameters(self, params: Any) -> list[Any]:
        b = scopes.builder(*nest.flatten(params))
        out = []
        for path, leaf in nest.flatten_with_paths(params):
            t = b.tensor(leaf)
            if t.dtype.base not in tensors.FLOATS:
                raise ValueError(
                    f"the parameter{path and ' at ' + path} is of dtype {t.dtype.base.name}: only floats are trained"
                )
            if not shapes.is_full(t.shape):
                raise ValueError(
                    f"the shape of the parameter{path and ' at ' + path} must be known, it is {shapes.show(t.shape)}"
                )
            out.append(t)
        return out


def _like(t: Any, grad: Any, i: int) -> Any:
    """Returns a gradient as a tensor of the parameter's dtype and a compatible shape."""
    b = scopes.builder(t, grad)
    try:
        made = b.tensor(grad, t.dtype.base)
    except (TypeError, ValueError) as e:
        raise SignatureError(f"update: gradient {i} must be a tensor of dtype {t.dtype.base.name}: {e}") from e
    if not shapes.compatible(made.shape, t.shape):
        raise SignatureError(
            f"update: gradient {i} is of shape {shapes.show(made.shape)}, its parameter of {shapes.show(t.shape)}"
        )
    return made
