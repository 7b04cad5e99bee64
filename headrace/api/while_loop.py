"""Loops: `while_loop`.

It creates one operation, `While`, which owns two graphs (`api.tracing`): the condition and the body. Both have a
parameter for each loop variable, followed by a parameter for each captured tensor of either graph. A loop constant is a
parameter that the body returns unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import nest, shapes, tracebacks
from headrace.api import rematerialization, scopes, tracing
from headrace.api.cond import checked_predicate, is_true
from headrace.api.independence import check_independent
from headrace.errors import ShapeError, SignatureError
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from headrace.ir.notes import NoBackProp, SwapMemory

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph
    from headrace.ir.notes import Note
    from headrace.shapes import Shape


@tracebacks.entry
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    maximum_iterations: Any = None,
    name: str | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    return_same_structure: bool = True,
    save: Any = "all",
    assert_independent: bool = False,
) -> Any:
    """Replaces `loop_vars` by `body(*loop_vars)` as long as `cond(*loop_vars)` is true.

    Both functions are called immediately, once, with symbolic tensors; the loop runs when the graph does. Both may use
    tensors from outside.

    Args:
      cond: a function that returns a boolean scalar.
      body: a function that returns a new value for each loop variable, in their order, with the structure and dtype of
        the variable, and a static shape that fits it.
      loop_vars: a list or tuple of the variables' initial values: tensors, numbers, arrays, tensor arrays, sparse
        tensors, `IndexedSlices`, and nested tuples, lists, dicts, named tuples and dataclasses of them. Any other
        object is a single variable.
      shape_invariants: for each variable, in the same structure, a shape that covers all of its shapes: a tuple with
        None for dimensions that change, or None if the rank changes too. Without this argument a variable keeps its
        initial shape. For a `SparseTensor` it is the shape of its `dense_shape`, (rank,): the number of elements may
        change in any case. For an `IndexedSlices` it is the shape of its values.
      parallel_iterations: the largest number of open iterations, 1 or more. It never changes results.
      maximum_iterations: an integer scalar: the loop ends after this number of iterations even if `cond` is still true.
      name: the name of the loop and its scope; "while" if None.
      back_prop: False declares that no gradient will flow through the loop (the note `NoBackProp`).
      swap_memory: True allows values for the gradient to be swapped to a slower memory. They are swapped if they would
        exceed the session's memory limit (`Session(memory_limit=...)`). (The note `SwapMemory`.)
      save: the values that a gradient of the loop keeps. "all": all needed values of every iteration.
        `hr.recompute(...)`: the loop variables of some iterations, from which it computes the other values again.
        "auto": values that are cheap to compute are computed again; the others are kept, and swapped if they would
        exceed the session's memory limit. If they are expected to exceed the flag ACCUMULATOR_LIMIT, "auto" acts like
        `hr.recompute("sqrt")`.
      assert_independent: True checks, when the loop is built, that no iteration depends on the one before it. Allowed
        are counters (variables to which each iteration adds a constant) and writes to a `TensorArray`. Then up to
        `parallel_iterations` iterations can run at the same time. Eager execution does not check.
      return_same_structure: False returns the result of a single variable as itself, not as a list of one.

    Returns:
      The variables' final values, in the structure of `loop_vars`.

    Raises:
      ValueError: there are no loop variables, or `save` has another value.
      TypeError: `cond` or `body` cannot be called, or `parallel_iterations` is not a positive integer.
      SignatureError (a ValueError and TypeError): `cond` did not return a boolean scalar; `body` returned too few or
        too many values, or values of another structure or dtype.
      ShapeError (a ValueError): a variable changes its shape, or an invariant does not cover its initial shape.
      GraphError (a ValueError): `assert_independent`, and an iteration depends on the one before.

    Source: TensorFlow's `tf.while_loop`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     i, total = hr.while_loop(lambda i, s: i < 5, lambda i, s: (i + 1, s + i), (0, 0))
      >>> hr.Session(graph=g).run(total)
      np.int32(10)
      >>> with hr.Graph():
      ...     hr.while_loop(lambda i, s: i < 5, lambda i, s: (i + 1, s + i), (0, 0), assert_independent=True)
      Traceback (most recent call last):
      headrace.errors.GraphError: the iterations of 'while' are not independent: the body reads loop variable ...
    """
    tracing.check_callable(cond=cond, body=body)
    if not isinstance(parallel_iterations, (int, np.integer)) or parallel_iterations < 1:
        raise TypeError(f"'parallel_iterations' must be a positive integer, got {parallel_iterations!r}")
    is_single = not isinstance(loop_vars, (list, tuple))
    variables = nest.as_list(loop_vars)
    if not variables:
        raise ValueError(
            "'loop_vars' must be provided: a loop needs at least one variable that its condition can ask for"
        )
    flat = nest.flatten(variables)
    if isinstance(scopes.builder(*flat, maximum_iterations), Builder):
        with scopes.name_scope(name, "while", [*flat, maximum_iterations]) as scope:
            attrs: dict[str, Any] = {"parallel_iterations": int(parallel_iterations)}
            notes: list[Note] = [] if back_prop else [NoBackProp()]
            if swap_memory or save == "auto":
                notes.append(SwapMemory())
            loop = _LoopTracer(scopes.builder(), scope, cond, body, variables)
            results = loop.make(shape_invariants, is_single, maximum_iterations, attrs, notes, save, assert_independent)
    else:
        results = _run(cond, body, variables, maximum_iterations)
    if is_single or (len(results) == 1 and not return_same_structure):
        return results[0]
    return nest.rebuilt(loop_vars, results)


class _LoopTracer:
    """Loop under construction: its builder, functions and initial values."""

    def __init__(
        self, b: Builder, scope: str, cond: Callable[..., Any], body: Callable[..., Any], variables: list[Any]
    ) -> None:
        self.b = b
        self.scope = scope
        self.name = scope[:-1]
        self.cond = cond
        self.body = body
        self.structure = variables
        self.first: list[Tensor] = []  # the variables' initial values
        self.shapes: list[Shape] = []  # the static shape of each variable in all iterations
        self.labels: list[str] = []
        self.names: list[str] = []
        self.limit: Tensor | None = None

    def make(
        self,
        invariants: Any,
        is_single: bool,
        maximum_iterations: Any,
        attrs: dict[str, Any],
        notes: Sequence[Note],
        save: Any,
        is_independent: bool,
    ) -> list[Any]:
        """Creates the loop; returns its results as a flat list."""
        b = self.b
        counter = []
        if maximum_iterations is not None:
            self.limit = _limit(b, maximum_iterations)
            counter = [b.const(0, self.limit.dtype.base, "iteration_counter")]
        arguments = tracing.argument_names(self.body, len(self.structure))
        for k, variable in enumerate(self.structure):
            argument = arguments[k] if k < len(arguments) else ""
            for path, leaf in nest.flatten_with_paths(variable):
                label = f"{k}" + (f" ({argument!r})" if argument else "") + (f" at {path}" if path else "")
                self.labels.append(label)
                self.names.append(argument or f"var{k}")
                try:
                    self.first.append(b.tensor(leaf))
                except TypeError as e:
                    raise SignatureError(f"loop variable {label} of {self.name!r} cannot be a tensor: {e}") from e
        self._shapes(invariants, is_single)
        cond_graph = self._condition(counter)
        body_graph, value = self._body(counter)
        if is_independent:
            labels = ["the iteration counter"] * len(counter) + self.labels
            check_independent(self.name, cond_graph, body_graph, labels)
        variables = [*counter, *self.first]
        how = rematerialization.strategy(save, body_graph, self.limit, self.name)
        if how is not None:
            op = rematerialization.segmented(b, self.scope, cond_graph, body_graph, variables, attrs, notes, how)
        else:
            graphs = {"cond": cond_graph, "body": body_graph}
            op = tracing.make("While", b, self.scope, [*graphs.values()], [], variables, attrs | graphs, notes)
        results: list[Any] = nest.pack(value, op.outputs[len(counter) : len(counter) + len(self.first)])
        return results

    def _shapes(self, invariants: Any, is_single: bool) -> None:
        leaves = nest.flatten(self.structure, expand=False)
        given: list[Any] = [None] * len(leaves)
        if invariants is not None:
            try:
                given = nest.flatten_up_to(
                    self.structure, [invariants] if is_single else list(invariants), expand=False
                )
            except (ValueError, TypeError) as e:
                raise SignatureError(
                    f"'shape_invariants' of {self.name!r} must have the structure of 'loop_vars', with a shape for "
                    f"each tensor: {e}"
                ) from e
        rest = iter(self.first)
        for leaf, invariant in zip(leaves, given, strict=True):
            of_leaf = [next(rest) for _ in nest.flatten(leaf)]
            if hasattr(type(invariant), "_loop_shapes"):  # the description of an extension type
                self.shapes += invariant._loop_shapes()
                continue
            shape = None if invariant is None else shapes.as_shape(getattr(invariant, "shape", invariant))
            own = leaf._loop_shapes(shape) if nest.is_composite(leaf) else None
            if own is not None:
                self.shapes += own
            elif invariants is None or (invariant is None and any(t.handle is not None for t in of_leaf)):
                self.shapes += [t.shape for t in of_leaf]  # a tensor array has no shape that could change
            else:
                self.shapes += [shape] * len(of_leaf)
        for k, (t, shape) in enumerate(zip(self.first, self.shapes, strict=True)):
            if not shapes.covers(shape, t.shape):
                raise ShapeError(
                    f"The shape invariant specified for {t.name} is not compatible with the initial shape of the loop "
                    f"variable. It enters the loop with shape {_show(t.shape)}, but the specified shape invariant is "
                    f"{_show(shape)}. This is loop variable {self.labels[k]} of {self.name!r}; give a shape with None "
                    "for what changes"
                )

    def _graph(self, role: str, fn: Callable[..., Any], counter: list[Tensor]) -> FuncGraph:
        kind = "the condition" if role == "cond" else "the body"
        graph = tracing.sub_graph(self.b, f"{self.name}_{role}", f"{kind} of loop {self.name!r}", fn)
        for t in counter:
            graph.add_param(t.dtype, (), "iteration_counter")
        for t, shape, name in zip(self.first, self.shapes, self.names, strict=True):
            graph.add_param(t.dtype, shape, name, source=t.op.source, handle=t.handle)
        return graph

    def _condition(self, counter: list[Tensor]) -> FuncGraph:
        graph = self._graph("cond", self.cond, counter)

        def holds(*variables: Any) -> Any:
            if not counter:
                return self.cond(*variables)
            b = scopes.builder()
            below = b.Less(graph.params[0], self.limit)
            more = self.cond(*variables)
            return b.LogicalAnd(below, checked_predicate(b.tensor(more), f"what {graph.title} returned"))

        value = tracing.call(holds, graph, self.b, nest.pack(self.structure, graph.params[len(counter) :]))
        if isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]
        what = f"what {graph.title} returned"
        if not isinstance(value, Tensor):
            raise SignatureError(f"{what} must be a boolean scalar, got {nest.describe(value)}; return one comparison")
        tracing.finish(graph, [checked_predicate(value, what)])
        return graph

    def _body(self, counter: list[Tensor]) -> tuple[FuncGraph, list[Any]]:
        graph = self._graph("body", self.body, counter)
        results = []

        def step(*variables: Any) -> Any:
            if counter:
                b = scopes.builder()
                results.append(b.AddV2(graph.params[0], 1, name="add"))
            return self.body(*variables)

        params = graph.params[len(counter) :]
        value = tracing.call(step, graph, self.b, nest.pack(self.structure, params))
        values = _next_values(value, self.structure, graph.title, self.labels)
        flat = nest.flatten(values)
        for k, (first, param, last) in enumerate(zip(self.first, params, flat, strict=True)):
            self._check(graph, k, first, param, last)
        tracing.finish(graph, results + flat)
        return graph, nest.merged(self.structure, values)

    def _check(self, graph: FuncGraph, k: int, first: Tensor, param: Tensor, last: Tensor) -> None:
        which = f"loop variable {self.labels[k]}; {graph.title} returned '{last.name}' for it"
        was, now = param.dtype.base.name, last.dtype.base.name
        if was != now:
            raise SignatureError(
                f"Input tensor '{first.name}' enters the loop with dtype {was}, but has dtype {now} after one "
                f"iteration: {which}. Cast it back (hr.cast), or start with a {now}"
            )
        if not shapes.covers(param.shape, last.shape):
            raise ShapeError(
                f"Input tensor '{first.name}' enters the loop with shape {_show(first.shape)}, but has shape "
                f"{_show(last.shape)} after one iteration. To allow the shape to vary across iterations, use the "
                f"`shape_invariants` argument of while_loop to specify a less-specific shape. This is {which}"
            )
        if None not in (param.handle, last.handle) and param.handle != last.handle:
            raise ShapeError(
                f"Input tensor '{first.name}' enters the loop as a handle of {_held(param)}, but is one of "
                f"{_held(last)} after one iteration: {which}. Let it hold the same in all iterations"
            )


def _next_values(result: Any, structure: Sequence[Any], who: str, labels: Sequence[str]) -> list[Any]:
    """Returns the result of a body as a list of values, one for each variable.

    Raises:
      SignatureError: there are too few or too many values, or they have another structure.
    """
    n = len(structure)
    if n == 1 and nest.mismatch(structure[0], result) is None:
        return [result]
    values = nest.as_list(result)
    must = "It must return a new value for each, in their order"
    if len(values) != n:
        raise SignatureError(
            f"{who} returned {len(values)} value{'s' * (len(values) != 1)} ({nest.describe(result)}) for {n} loop "
            f"variable{'s' * (n != 1)}: {', '.join(labels)}. {must}: those that do not change, too"
        )
    for k, (old, new) in enumerate(zip(structure, values, strict=True)):
        found = nest.mismatch(old, new)
        if found is not None:
            at = f" at {found.path}" if found.path else ""
            raise SignatureError(
                f"The two structures don't have the same nested structure: loop variable {k}{at} is {found.first} "
                f"when it enters the loop, but {who} returned {found.second}. {must}, of the structure that the "
                f"variable has{_LISTS if found.first.startswith('a list') else ''}"
            )
    return values


_LISTS = " (a list of numbers is as many variables; to make it one tensor, start with hr.constant([...]))"


def _held(t: Tensor) -> str:
    assert t.handle is not None
    return f"{t.handle[0].name}{shapes.show(t.handle[1])}"


def _show(shape: Shape) -> str:
    """Returns a shape in the notation of TensorFlow's messages."""
    return "<unknown>" if shape is None else str(shape)


def _limit(b: Builder, maximum_iterations: Any) -> Tensor:
    limit: Tensor = b.tensor(maximum_iterations, name="maximum_iterations")
    if not shapes.compatible(limit.shape, ()):
        raise ShapeError(f"'maximum_iterations' must be a scalar, got one of shape {shapes.show(limit.shape)}")
    if not limit.dtype.is_integer:
        raise SignatureError(f"'maximum_iterations' must be an integer, got one of dtype {limit.dtype.base.name}")
    return limit


def _run(cond: Callable[..., Any], body: Callable[..., Any], variables: list[Any], most: Any) -> list[Any]:
    """Runs the loop in eager execution, as a loop of Python."""
    b = scopes.builder()

    def as_tensors(values: list[Any]) -> list[Any]:
        made: list[Any] = nest.map_leaves(b.tensor, values)
        return made

    structure = variables = as_tensors(variables)
    if most is not None and np.ndim(most):
        raise ShapeError(f"'maximum_iterations' must be a scalar, got one of shape {shapes.show(np.shape(most))}")
    left = None if most is None else int(np.asarray(most))
    labels = [str(k) for k in range(len(variables))]
    who = f"the body of a loop ({tracing.source_of(body)})"
    what = f"what the condition of a loop ({tracing.source_of(cond)}) returned"
    while left is None or left > 0:
        if not is_true(cond(*variables), what):
            break
        variables = as_tensors(_next_values(body(*variables), structure, who, labels))
        left = None if left is None else left - 1
    return variables
