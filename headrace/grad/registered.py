"""Gradients from users, registered for op types without a rule or under a name.

A name is used by `gradient_override_map`. The rule of an op record is made for headrace: `rule(b, n, *dys)`. Users
register functions of TensorFlow's kind, `f(op, *dys)`, which make operations with the public functions (`hr.multiply`,
operators). `lookup` finds the gradient of an operation, and returns either kind as a rule of the first kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace import nest, shapes
from headrace.api import scopes
from headrace.errors import GraphError, SignatureError
from headrace.grad.zeros import gradient_dtype, gradient_shape
from headrace.ir.custom_rules import CUSTOM, OVERRIDE, custom_of
from headrace.ir.grad_node import GradNode
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.opdef import NOT_DIFFERENTIABLE, GradRule, Missing, NotDifferentiable, op_registry
from headrace.registry import DuplicateError, Registry

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor
    from headrace.shapes import Shape

F = TypeVar("F", bound=Callable[..., Any])

# name -> function of (operation, gradients of its outputs); None: not differentiable
gradient_registry: Final[Registry[Callable[..., Any] | None]] = Registry("gradient")


class RegisterGradient:
    """Registers a gradient function for an op type without one, or under a name.

    A name is used by `gradient_override_map`. The function gets the operation, of which it may use `inputs`, `outputs`
    and `get_attr`, and the gradient of each output (zeros if nothing depends on it; None for a dtype without
    gradients). It returns the gradient of each input, or None for no gradient; for a single input it may return the
    tensor itself.

    Args:
      op_type: the op type, or a new name.

    Raises:
      TypeError: `op_type` is not a string.
      KeyError: the name is taken, or the op type has a gradient; the text names the line of the registration.

    Source: TensorFlow's `tf.RegisterGradient`.

    Example:
      >>> import headrace as hr
      >>> @hr.RegisterGradient("Halved")
      ... def halved(op, dy):
      ...     return dy * 0.5
      >>> "Halved" in gradient_registry
      True
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError(f"op_type must be a string, got {op_type!r}")
        self._op_type = op_type

    def __call__(self, f: F) -> F:
        """Registers `f` and returns it."""
        _register(self._op_type, f)
        return f


def not_differentiable(op_type: str) -> None:
    """Registers an op type, or a name for `gradient_override_map`, as not differentiable.

    Gradients do not flow through such operations.

    Args:
      op_type: the op type, or a new name.

    Raises:
      TypeError: `op_type` is not a string.
      KeyError: the name is taken, or the op type has a gradient.
    Source: TensorFlow's `tf.NotDifferentiable`.
    """
    if not isinstance(op_type, str):
        raise TypeError(f"op_type must be a string, got {op_type!r}")
    _register(op_type, None)


def _register(name: str, f: Callable[..., Any] | None) -> None:
    record = op_registry.find(name)
    if record is not None and not isinstance(record.grad, Missing):
        raise DuplicateError(
            f"gradient {name!r} is the name of an op type, whose gradient is registered at {op_registry.where(name)}; "
            "to override the gradient of single operations, register it under another name and "
            "use gradient_override_map"
        )
    gradient_registry.register(name, f, depth=3)


def stops(op: Operation) -> bool:
    """Whether `op` is not differentiable, by its record or by registration."""
    return isinstance(_rule_of(op), NotDifferentiable)


def lookup(op: Operation) -> Callable[..., Sequence[Any]]:
    """Returns the gradient rule `(b, n, *dys)` of `op`.

    It is the rule that the operation names, else that of its op type, else the one registered for its op type. If
    `stops(op)`, the rule returns None for each input.

    Args:
      op: the operation.

    Raises:
      LookupError: there is no rule; the text names the operation and its line, and says how to continue.
    """
    rule = _rule_of(op)
    if isinstance(rule, Missing):
        raise LookupError(f"operation {title(op)} has no gradient: {rule.why}")
    return _none if isinstance(rule, NotDifferentiable) else rule


def input_gradients(
    b: Builder,
    op: Operation,
    dys: Sequence[Any],
    wanted: Sequence[bool],
    reached: Sequence[bool] | None = None,
    view: Callable[[Tensor], Tensor] = lambda t: t,
) -> list[Any]:
    """Returns the gradients of the inputs of `op`, by its rule.

    The entry of an unwanted input is None, unless the rule made it nevertheless.

    Args:
      b: the builder of the gradient.
      op: the operation.
      dys: the gradients of its outputs.
      wanted: for each input, whether its gradient is wanted. The rule can read this, and its functions for other
        inputs are not called.
      reached: for each output, whether its gradient is more than zeros that stand for none; None: all are.
      view: the function by which the rule sees tensors of `op`.

    Raises:
      LookupError: there is no rule.
      GraphError: the rule returned more or fewer entries than `op` has inputs.
    """
    found = lookup(op)(b, GradNode(op, wanted, reached, view), *dys)
    if len(found) != len(op.inputs):
        raise GraphError(f"the gradient of {title(op)} gave {len(found)} entries for {len(op.inputs)} inputs")
    entries = [g if want or not callable(g) else None for g, want in zip(found, wanted, strict=True)]
    while any(map(callable, entries)):
        entries = [g() if callable(g) else g for g in entries]
    return entries


def _none(b: Builder, n: GradNode, *dys: Any) -> list[None]:
    return [None] * len(n.inputs)


def _rule_of(op: Operation) -> GradRule:
    name = op.attrs.get(OVERRIDE)
    if name is not None:
        custom = custom_of(op)
        if custom is not None:
            return custom.rule
        if name in gradient_registry:
            return _as_rule(gradient_registry.get(name))
        record = op_registry.find(name)  # the name of an op type stands for the gradient of that type
        return _unknown(name) if record is None else record.grad
    rule = op.opdef.grad
    if not isinstance(rule, Missing):
        return rule
    if op.type in gradient_registry:
        return _as_rule(gradient_registry.get(op.type))
    return Missing(
        f"{rule.why}. Register one (hr.RegisterGradient({op.type!r}), or hr.custom_gradient around it), or let "
        "gradients stop there (hr.stop_gradient)"
    )


def _unknown(name: str) -> Missing:
    if name.startswith(CUSTOM):
        return Missing(
            f"the function of its gradient ({name!r}, of a custom_gradient) belongs to the program that built the "
            f"graph and is not saved in a file. Call it here, or register one: hr.RegisterGradient({name!r})"
        )
    return Missing(
        f"it is overridden by {name!r}, and no gradient of that name is registered. Register one: "
        f"hr.RegisterGradient({name!r})"
    )


def title(op: Operation) -> str:
    """Description of `op` for error messages."""
    made = f", made at {op.source}" if op.source is not None else ""
    return f"'{op.name}' ({op.type}{made})"


def _as_rule(f: Callable[..., Any] | None) -> GradRule:
    if f is None:
        return NOT_DIFFERENTIABLE

    def rule(b: Builder, n: GradNode, *dys: Any) -> list[Any]:
        op = n.op
        what = f"the gradient function {getattr(f, '__qualname__', f)!s} of {title(op)}"
        with scopes.entered(b):
            got = f(op, *dys)
            grads = nest.as_list(got)
            if len(grads) != len(op.inputs):
                raise SignatureError(
                    f"{what} returned {len(grads)} gradients; it has {len(op.inputs)} inputs, so return as many, None "
                    "for one that has none"
                )
            return [as_gradient(b, g, x, f"{what}, for input {i}") for i, (g, x) in enumerate(zip(grads, op.inputs))]

    return rule


def as_gradient(b: Builder, g: Any, x: Tensor, what: str) -> Any:
    """Converts a gradient that a user's function returned to a tensor.

    Args:
      b: the builder of the gradient.
      g: the gradient; None and `IndexedSlices` are returned unchanged.
      x: the tensor to differentiate by.
      what: the description of the function, for error messages.

    Raises:
      SignatureError: `g` cannot be converted to a tensor, or has another dtype or shape than `x`.
    """
    return _like(b, g, gradient_dtype(x), gradient_shape(x), f" like '{x.name}'", what)


def eager_gradient(b: Any, g: Any, x: Any, what: str) -> Any:
    """Converts a gradient that a user's function returned outside of graphs; see `as_gradient`.

    Args:
      b: the eager builder.
      g: the gradient.
      x: the eager tensor or variable to differentiate by.
      what: the description of the function, for error messages.
    """
    return _like(b, g, x.dtype.base, x.shape, "", what)


def _like(b: Any, g: Any, dtype: DType, shape: Shape, like: str, what: str) -> Any:
    if g is None or isinstance(g, IndexedSlices):
        return g
    wanted = f"{what}, must return a tensor of dtype {dtype.name} and shape {shapes.show(shape)}{like}"
    try:
        t = b.tensor(g, dtype)
    except GraphError:
        raise
    except TypeError as e:
        raise SignatureError(f"{wanted}, got {nest.describe(g)}: {e}") from e
    if not shapes.compatible(t.shape, shape):
        raise SignatureError(f"{wanted}, got {nest.describe(g)} of shape {shapes.show(t.shape)}")
    return t
