"""`custom_gradient`: functions that define their own gradients.

The function makes operations as usual. Its results pass through an `IdentityN`, which takes the arguments, too, and
whose gradient rule calls the user's gradient function. The rule passes the gradients of the results to that function,
and returns the function's results as gradients of the arguments, so the operations in between are not differentiated.
The graph still shows the operations that run. The gradient of the gradient is that of the operations which the user's
gradient function made.

The gradient function may use tensors of the surrounding function. It runs when a gradient is requested, perhaps in the
gradient of the branch or body that contains these tensors. Then the entered builder fetches them (`grad.graph`).

Source: TensorFlow's `tf.custom_gradient`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes, nest
from headrace.api import recorder, scopes, tracing
from headrace.errors import SignatureError
from headrace.grad.registered import as_gradient, eager_gradient, title
from headrace.grad.zeros import carries
from headrace.ir.builder import Builder
from headrace.ir.custom_rules import OVERRIDE, Custom
from headrace.ir.grad_node import GradNode
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.indexed_slices import IndexedSlices


class custom_gradient:
    """Decorates a function that returns its value and its gradient function.

    Args:
      f: a function of tensors, or nested structures of them, that returns a pair `(y, grad_fn)`. `grad_fn(*dys)` gets
        the gradient of each leaf of y (zeros if nothing depends on the leaf, None for an integer). It returns the
        gradient of each argument, in the structure of the argument, or None for no gradient; for a single argument it
        returns that gradient alone. If `f` uses trainable variables that are not arguments, `grad_fn` must have a
        keyword `variables`. It then gets the list of them, and returns a pair: the gradients of the arguments, and a
        list of those of the variables.

    The decorated function is called like `f`, also as a method, and returns y. Numbers and arrays among the arguments
    reach `f` as tensors.

    Raises (by a call, or when the gradient is requested):
      SignatureError (a ValueError and TypeError): `f` did not return such a pair, or `grad_fn` returned another
        structure, shape or dtype than the arguments have.
      TypeError: `f` uses variables, and `grad_fn` has no keyword `variables`.
      ValueError: keyword arguments were given in a graph, where only positional ones are allowed.

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
            given = nest.map_leaves(b.tensor, args)
            if not recorder.active.get():
                return _pair(f, f(*given, **kwargs))[0]
            return _EagerCall(f, b, given, kwargs).value
        if kwargs:
            raise ValueError(
                f"{tracing.titled(f)} has a custom gradient and was called in a graph with the keyword arguments "
                f"{', '.join(kwargs)}; pass positional arguments, or bind the others first (functools.partial)"
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


class _Call:
    """A call of a decorated function.

    Args:
      f: the function.
      args: the arguments, with tensors as leaves.

    Attributes:
      xs: the leaves of the arguments.
      grad_fn: the user's gradient function.
      variables: the trainable variables that `f` uses and that are not arguments.
    """

    def __init__(self, f: Callable[..., Any], args: Any) -> None:
        self.f = f
        self.args = args
        self.xs: list[Any] = nest.flatten(args)
        self.grad_fn: Callable[..., Any]
        self.variables: list[Any] = []

    def check_variables(self) -> None:
        if self.variables and not _has_keyword(self.grad_fn, "variables"):
            names = ", ".join(v.name for v in self.variables)
            raise TypeError(
                f"{tracing.titled(self.f)} uses variables ({names}), so its gradient function must accept the keyword "
                "argument 'variables', and return a pair: the gradients of the arguments, and a list of those of the "
                "variables"
            )

    def gradients(self, dys: Sequence[Any], what: str) -> list[Any]:
        """Returns the user's gradients for the leaves of the arguments, then for the variables.

        Args:
          dys: the gradient of each result.
          what: the description of the gradient function, for error messages.
        """
        if not self.variables:
            return self._of_arguments(self.grad_fn(*dys), what)
        returned = self.grad_fn(*dys, variables=list(self.variables))
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
        return [*self._of_arguments(returned, what), *of_variables]

    def _of_arguments(self, returned: Any, what: str) -> list[Any]:
        """Returns the gradient for each leaf of the arguments, from the user's return value."""
        got = nest.as_list(returned)
        fitting = _fitted(self.args, got)
        if fitting is not None:
            return fitting
        if len(got) == len(self.xs) and not any(map(nest.is_nested, filter(_is_something, got))):
            return got  # one gradient for each leaf in a flat list, as TensorFlow expects
        wants = nest.describe(self.args) if len(self.args) != 1 else nest.describe(self.args[0])
        raise SignatureError(
            f"{what} must return the gradient of each argument, in the structure of the arguments ({wants}, of "
            f"{len(self.xs)} tensors in all); got {nest.describe(returned)}"
        )


class _CustomGradCall(_Call):
    """A call of a decorated function in a graph.

    Attributes:
      value: y, as outputs of the operation with the user's gradient.
    """

    def __init__(self, f: Callable[..., Any], b: Builder, args: Sequence[Any]) -> None:
        super().__init__(f, nest.map_leaves(b.tensor, tuple(args)))
        before = len(b.graph)
        value, self.grad_fn = _pair(f, f(*self.args))
        value = tracing.convert(value, b, tracing.titled(f))
        ys: list[Tensor] = nest.flatten(value)
        self.n = len(ys)
        self.variables = _used_variables(b.graph, b.graph.operations[before:], ys, self.xs)
        self.check_variables()
        custom = Custom(self._gradient)
        scopes.keep(b.graph, custom)
        reads = [b.tensor(v) for v in self.variables]
        made = b.make("IdentityN", ([*ys, *self.xs, *reads],), {OVERRIDE: custom.name}, None)
        outs: Sequence[Tensor] = nest.as_list(made)
        for t, out in zip(ys, outs, strict=False):
            out.refine(handle=t.handle)
        self.value = nest.pack(value, outs[: self.n])

    def _gradient(self, b: Builder, n: GradNode, *dys: Any) -> list[Any]:
        """Gradient rule of the IdentityN: None for y, the user's gradients for arguments and variables."""
        op = n.op
        what = f"the gradient function {tracing.titled(self.grad_fn)} of {title(op)}"
        with scopes.entered(b):
            out: list[Any] = [None] * self.n
            for g, x in zip(self.gradients(dys[: self.n], what), op.inputs[self.n :], strict=True):
                out.append(as_gradient(b, g, x, f"{what}") if carries(x.dtype) else None)
        return out


class _EagerCall(_Call):
    """A recorded call of a decorated function outside of graphs.

    Attributes:
      value: y, as new tensors.
    """

    def __init__(self, f: Callable[..., Any], b: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__(f, tuple(args))
        reads = recorder.VariableReads()
        with recorder.set_to((*recorder.active.get(), reads)):
            value, self.grad_fn = _pair(f, f(*self.args, **kwargs))
        given = {id(x) for x in nest.flatten((args, kwargs))}
        self.variables = sorted((v for v in reads.found if id(v) not in given), key=lambda v: v.name)
        self.check_variables()
        self._b = b
        with recorder.set_to(()):
            self.value = nest.map_leaves(lambda y: b.Identity(b.tensor(y)), value)
        handles = [v.handle for v in self.variables]
        outputs = tuple(nest.flatten(self.value))
        recorder.record(recorder.CustomEntry((*self.xs, *handles), outputs, self._pull_back))

    def _pull_back(self, dys: list[Any]) -> list[Any]:
        what = f"the gradient function {tracing.titled(self.grad_fn)}"
        out = []
        for g, x in zip(self.gradients(dys, what), [*self.xs, *self.variables], strict=True):
            out.append(eager_gradient(self._b, g, x, what) if carries(x.dtype) else None)
        return out


def _is_something(g: Any) -> bool:
    return g is not None and not isinstance(g, (IndexedSlices, Tensor))


def _fitted(args: Sequence[Any], got: Sequence[Any]) -> list[Any] | None:
    """Returns the leaves of `got` for those of `args`, or None if the structures differ.

    A None in `got` in place of a structure stands for all of its leaves.
    """
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
    """Trainable variables from which operations of `made` compute `ys`, except through `xs`."""
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
    """Returns the outermost tensor for which the captured tensor `t` stands."""
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
