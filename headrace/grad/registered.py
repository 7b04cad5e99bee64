"""Gradients that users give: for op types that have no rule of their own, and under names for `gradient_override_map`.

An op record's own rule is made for headrace: `rule(b, n, *dys)`. What users register is TensorFlow's kind of function,
`f(op, *dys)`, which makes its operations with the ordinary functions (`hr.multiply`, operators). `lookup` gives both as
rules of the first kind, and says which one an operation has.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace import nest, shapes
from headrace.api import scopes
from headrace.errors import GraphError, SignatureError
from headrace.grad.zeros import gradient_dtype, gradient_shape
from headrace.ir.grad_node import GradNode
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.opdef import NOT_DIFFERENTIABLE, GradRule, Missing, NotDifferentiable, op_registry
from headrace.registry import DuplicateError, Registry

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor

F = TypeVar("F", bound=Callable[..., Any])

# name -> function of (operation, gradients of its outputs); None: there is no gradient
gradient_registry: Final[Registry[Callable[..., Any] | None]] = Registry("gradient")

OVERRIDE: Final = "_gradient_op_type"  # the attribute of operations that have another gradient than their type
CUSTOM: Final = "CustomGradient-"  # what the names of `Custom`s begin with


class RegisterGradient:
    """Registers a gradient: of an op type that has none, or under a name for `gradient_override_map`.

    The function gets the operation, whose `inputs`, `outputs` and `get_attr` it may use, and the gradient of each
    output (zeros where nothing depends on one; None where it is of a dtype without gradients). It returns the gradient
    of each input, None for no gradient; for a single input it may return the tensor itself.

    Args:
      op_type: the op type, or a name of your own.

    Raises:
      TypeError: it is no string. KeyError: it is taken, or an op type that has a gradient; the text says by which line.

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
        """Registers `f`, and gives it back."""
        _register(self._op_type, f)
        return f


def not_differentiable(op_type: str) -> None:
    """Registers that an op type (or a name for `gradient_override_map`) has no gradient: what leads through it counts
    as no path.

    Raises:
      TypeError: it is no string. KeyError: it is taken, or an op type that has a gradient.

    Source: TensorFlow's `tf.NotDifferentiable`.
    """
    if not isinstance(op_type, str):
        raise TypeError(f"op_type must be a string, got {op_type!r}")
    _register(op_type, None)


def _register(name: str, f: Callable[..., Any] | None) -> None:
    record = op_registry.find(name)
    if record is not None and not isinstance(record.grad, Missing):
        raise DuplicateError(
            f"gradient {name!r} is that of an op type, which has one, registered at {op_registry.where(name)}; to give "
            "single operations another one, register it under a name of your own and use gradient_override_map"
        )
    gradient_registry.register(name, f, depth=3)


class Custom:
    """A gradient that one operation alone has (`custom_gradient`). It is known by a name, as long as a graph keeps it.

    Args:
      rule: like that of an op record.

    Attributes:
      name: what the operation's attribute names.
    """

    def __init__(self, rule: Callable[..., Sequence[Any]]) -> None:
        self.name = f"{CUSTOM}{next(_numbers)}"
        self.rule = rule
        _customs[self.name] = self


_numbers = itertools.count(1)
_customs: Final[weakref.WeakValueDictionary[str, Custom]] = weakref.WeakValueDictionary()


def stops(op: Operation) -> bool:
    """Whether gradients stop at `op`, by its nature or because somebody said so."""
    return isinstance(_rule_of(op), NotDifferentiable)


def lookup(op: Operation) -> Callable[..., Sequence[Any]]:
    """The gradient of `op`, a rule `(b, n, *dys)`: the one that the operation names itself, else that of its type, else
    the one registered for its type. Where `stops(op)`, one that gives None for each input.

    Raises:
      LookupError: there is none; the text names the operation, its line and what to do.
    """
    rule = _rule_of(op)
    if isinstance(rule, Missing):
        raise LookupError(f"operation {title(op)} has no gradient: {rule.why}")
    return _none if isinstance(rule, NotDifferentiable) else rule


def _none(b: Builder, n: GradNode, *dys: Any) -> list[None]:
    return [None] * len(n.inputs)


def _rule_of(op: Operation) -> GradRule:
    name = op.attrs.get(OVERRIDE)
    if name is not None:
        custom = _customs.get(name)
        if custom is not None:
            return custom.rule
        if name in gradient_registry:
            return _as_rule(gradient_registry.get(name))
        record = op_registry.find(name)  # an op type: the gradient of that one is meant
        return _unknown(name) if record is None else record.grad
    rule = op.opdef.grad
    if not isinstance(rule, Missing):
        return rule
    if op.type in gradient_registry:
        return _as_rule(gradient_registry.get(op.type))
    return Missing(
        f"{rule.why}. Give it one (hr.RegisterGradient({op.type!r}), or hr.custom_gradient around it), or let "
        "gradients stop there (hr.stop_gradient)"
    )


def _unknown(name: str) -> Missing:
    if name.startswith(CUSTOM):
        return Missing(
            f"what computes it ({name!r}, of a custom_gradient) is a function of the program that made the graph, and "
            f"not in a file. Call that function here, or register one: hr.RegisterGradient({name!r})"
        )
    return Missing(
        f"its own is overridden by {name!r}, and no gradient of that name is registered. Register one: "
        f"hr.RegisterGradient({name!r})"
    )


def title(op: Operation) -> str:
    """What `op` is, in messages."""
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
    """`g`, which a user's function gave as gradient of `x`, as a tensor; as it is, if it is sparse or None.

    Args:
      what: who gave it, in messages.

    Raises:
      SignatureError: it cannot be a tensor, or is not of the dtype and shape of `x`.
    """
    if g is None or isinstance(g, IndexedSlices):
        return g
    dtype, shape = gradient_dtype(x), gradient_shape(x)
    wanted = f"{what}, must return a tensor of dtype {dtype.name} and shape {shapes.show(shape)} like '{x.name}'"
    try:
        t = b.tensor(g, dtype)
    except GraphError:
        raise
    except TypeError as e:
        raise SignatureError(f"{wanted}, got {nest.describe(g)}: {e}") from e
    if not shapes.compatible(t.shape, shape):
        raise SignatureError(f"{wanted}, got {nest.describe(g)} of shape {shapes.show(t.shape)}")
    return t
