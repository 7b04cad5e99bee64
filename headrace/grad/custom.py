"""`custom_gradient`: a function that says itself what its gradient is.

What the function makes is operations as usual. Behind its results stands an `IdentityN`, which also takes the
arguments, and whose gradient is the user's: it hands the gradients of the results to the user's function, and what that
returns to the arguments, as if there were nothing between them. So the graph shows what runs, and the gradient of the
gradient is that of the operations which the user's function made.

That function uses tensors of the one around it. It runs when a gradient is asked for, maybe in the gradient of the
branch or body that these tensors belong to; the builder that is entered then fetches them (`grad.graph`).

Source: TensorFlow's `tf.custom_gradient`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes, nest
from headrace.api import scopes, tracing
from headrace.errors import SignatureError
from headrace.grad.activity import carries
from headrace.grad.registered import OVERRIDE, Custom, as_gradient, title
from headrace.ir.builder import Builder
from headrace.ir.grad_node import GradNode
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.indexed_slices import IndexedSlices


class custom_gradient:
    """A function like `f`, with the gradient that it gives.

    Args:
      f: takes tensors, or nested structures of them, and returns a pair `(y, grad_fn)`. `grad_fn(*dys)` gets the
        gradient of each leaf of y (zeros where nothing depends on it, None for an integer) and returns the gradient of
        each argument, in its structure; for a single argument, that of it; None for none. If `f` uses trainable
        variables that are no arguments, `grad_fn` must have a keyword `variables`: it gets the list of them, and
        returns a pair: the gradients of the arguments, and a list of those of the variables.

    It is called as `f` is, also as a method, and gives y. Numbers and arrays among the arguments reach `f` as tensors.

    Raises (when it is called, or when its gradient is asked for):
      SignatureError (a ValueError and TypeError): `f` did not return such a pair, or `grad_fn` returned another
        structure, shape or dtype than the arguments have.
      TypeError: `f` uses variables, and `grad_fn` has no keyword for them.
      ValueError: in a graph, keyword arguments; give arguments by their place.

    Source: TensorFlow's `tf.custom_gradient`.

    Example: a logarithm of 1 + exp(x) whose gradient does not overflow.
      >>> import headrace as hr
      >>> @hr.custom_gradient
      ... def log1pexp(x):
      ...     e = hr.exp(x)
      ...     return hr.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))
      >>> hr.grad(log1pexp)(100.0)
      <EagerTensor shape=[] dtype=float32: np.float32(1.0)>
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        tracing.check_callable(f=f)
        functools.update_wrapper(self, f)
        self.f = f

    def __get__(self, instance: Any, owner: type | None = None) -> custom_gradient:
        return self if instance is None else type(self)(self.f.__get__(instance, owner))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        f = self.f
        b = scopes.builder(*nest.flatten((args, kwargs)))
        if not isinstance(b, Builder):
            value, _ = _pair(f, f(*nest.map_leaves(b.tensor, args), **kwargs))
            return value
        if kwargs:
            raise ValueError(
                f"{tracing.titled(f)} has a custom gradient, and is given keyword arguments ({', '.join(kwargs)}) in a "
                "graph; give arguments by their place, or bind the others first (functools.partial)"
            )
        with scopes.entered(b):
            return _CustomGradCall(f, b, args).value


def _pair(f: Callable[..., Any], returned: Any) -> tuple[Any, Callable[..., Any]]:
    if not isinstance(returned, (list, tuple)) or len(returned) != 2 or not callable(returned[1]):
        raise SignatureError(
            f"{tracing.titled(f)} is decorated with custom_gradient, and must return a pair (y, grad_fn), whose second "
            f"is a function; got {nest.describe(returned)}"
        )
    return returned[0], returned[1]


class _CustomGradCall:
    """A call in a graph.

    Attributes:
      value: what it gives: y, behind an operation that has the user's gradient.
    """

    def __init__(self, f: Callable[..., Any], b: Builder, args: Sequence[Any]) -> None:
        self.f = f
        self.args = nest.map_leaves(b.tensor, tuple(args))
        self.xs: list[Tensor] = nest.flatten(self.args)
        before = len(b.graph)
        value, self.grad_fn = _pair(f, f(*self.args))
        value = tracing.convert(value, b, tracing.titled(f))
        ys: list[Tensor] = nest.flatten(value)
        self.n = len(ys)
        self.variables = _used_variables(b.graph, b.graph.operations[before:], ys, self.xs)
        self._check_variables()
        custom = Custom(self._gradient)
        scopes.keep(b.graph, custom)
        reads = [b.tensor(v) for v in self.variables]
        made = b.make("IdentityN", ([*ys, *self.xs, *reads],), {OVERRIDE: custom.name}, None)
        outs: Sequence[Tensor] = nest.as_list(made)
        for t, out in zip(ys, outs, strict=False):
            out.refine(handle=t.handle)
        self.value = nest.pack(value, outs[: self.n])

    def _check_variables(self) -> None:
        self.takes_variables = _has_keyword(self.grad_fn, "variables")
        if self.variables and not self.takes_variables:
            names = ", ".join(v.name for v in self.variables)
            raise TypeError(
                f"{tracing.titled(self.f)} uses variables ({names}), so its gradient function must accept the keyword "
                "argument 'variables', and return a pair: the gradients of the arguments, and a list of those of the "
                "variables"
            )

    def _gradient(self, b: Builder, n: GradNode, *dys: Any) -> list[Any]:
        """The rule of the IdentityN: nothing for y, what the user gives for the arguments and the variables."""
        op = n.op
        what = f"the gradient function {tracing.titled(self.grad_fn)} of {title(op)}"
        with scopes.entered(b):
            mine = dys[: self.n]
            of_variables: Any = []
            if self.variables:
                returned = self.grad_fn(*mine, variables=list(self.variables))
                if not isinstance(returned, (list, tuple)) or len(returned) != 2:
                    raise SignatureError(
                        f"{what} gets variables, and so must return a pair: the gradients of the arguments, and a list "
                        f"of those of the variables; got {nest.describe(returned)}"
                    )
                returned, of_variables = returned
                if not isinstance(of_variables, (list, tuple)) or len(of_variables) != len(self.variables):
                    raise SignatureError(
                        f"{what} must return a gradient for each of the {len(self.variables)} variables; got "
                        f"{nest.describe(of_variables)}"
                    )
            else:
                returned = self.grad_fn(*mine)
            grads = [*self._of_arguments(returned, what), *of_variables]
            out: list[Any] = [None] * self.n
            for g, x in zip(grads, op.inputs[self.n :], strict=True):
                out.append(as_gradient(b, g, x, f"{what}") if carries(x.dtype) else None)
        return out

    def _of_arguments(self, returned: Any, what: str) -> list[Any]:
        """What was returned for each leaf of the arguments."""
        got = nest.as_list(returned)
        fitting = _fitted(self.args, got)
        if fitting is not None:
            return fitting
        if len(got) == len(self.xs) and not any(map(nest.is_nested, filter(_is_something, got))):
            return got  # the leaves one after the other, as TensorFlow wants them
        wants = nest.describe(self.args) if len(self.args) != 1 else nest.describe(self.args[0])
        raise SignatureError(
            f"{what} must return the gradient of each argument, in the structure of the arguments ({wants}, of "
            f"{len(self.xs)} tensors in all); got {nest.describe(returned)}"
        )


def _is_something(g: Any) -> bool:
    return g is not None and not isinstance(g, (IndexedSlices, Tensor))


def _fitted(args: Sequence[Any], got: Sequence[Any]) -> list[Any] | None:
    """The leaves of `got` in the places of those of `args`; None if it is not like them. None in the place of a
    structure stands for all of it."""
    if len(args) != len(got):
        return None
    out: list[Any] = []
    for arg, g in zip(args, got, strict=True):
        n = len(nest.flatten(arg))
        if g is None:
            out += [None] * n
        elif isinstance(g, IndexedSlices) or not nest.is_nested(g):
            if nest.is_nested(arg) and not (n == 1 and nest.is_composite(arg)):
                return None
            out.append(g)
        elif not nest.is_nested(arg):
            return None
        elif nest.is_composite(g):
            out += nest.flatten(g)
        else:
            try:
                out += nest.flatten_up_to(arg, g)
            except ValueError:
                return None
    return out


def _has_keyword(f: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == name or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def _used_variables(graph: Graph, made: Sequence[Operation], ys: Sequence[Tensor], xs: Sequence[Tensor]) -> list[Any]:
    """The trainable variables that `ys` depend on by operations among `made`, not by way of `xs`."""
    new, stop = set(made), set(xs)
    handles: dict[Tensor, None] = {}
    seen: set[Operation] = set()
    todo = [y.op for y in ys if y not in stop]
    while todo:
        op = todo.pop()
        if op in seen or op not in new:
            continue
        seen.add(op)
        handles.update((t, None) for t in op.inputs if t.dtype.base is dtypes.resource and t not in stop)
        todo += [t.op for t in op.inputs if t not in stop]
    known = {v.handle: v for v in getattr(_root(graph), "variables", ()) if v.trainable}
    found = [known[h] for h in (_outermost(t) for t in handles) if h in known]
    return sorted(dict.fromkeys(found), key=lambda v: v.name)


def _outermost(t: Tensor) -> Tensor:
    """The tensor that a captured one stands for, as far out as there is one."""
    graph = t.op.graph
    while isinstance(graph, FuncGraph):
        outer = next((o for o, p in graph.captures.items() if p is t), None)
        if outer is None:
            return t
        t = outer
        graph = t.op.graph
    return t


def _root(graph: Graph) -> Graph:
    while graph.outer is not None:
        graph = graph.outer
    return graph
