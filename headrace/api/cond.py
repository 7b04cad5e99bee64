"""Conditionals: `cond`, `case`, `switch_case`.

Each function creates one operation (`If`, `Case`) that owns a graph for each branch (`api.tracing`). The predicate
selects the branch when the graph runs. The other branches do nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from headrace import dtypes, nest, shapes, thresholds, tracebacks
from headrace.api import scopes, tracing
from headrace.errors import InvalidArgumentError, SignatureError
from headrace.ir import tensor_type
from headrace.ir.builder import Builder
from headrace.ir.graph import Operation, Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.kernel_errors import quoted

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph

Branch = Callable[[], Any]


@overload
def cond(
    pred: Any,
    true_fn: Callable[[], tensor_type.Tensor],
    false_fn: Callable[[], tensor_type.Tensor],
    name: str | None = None,
) -> tensor_type.Tensor: ...
@overload
def cond(pred: Any, true_fn: Branch, false_fn: Branch, name: str | None = None) -> Any: ...
@tracebacks.entry
def cond(pred: Any, true_fn: Branch, false_fn: Branch, name: str | None = None) -> Any:
    """Returns `true_fn()` if `pred` is true when the graph runs, else `false_fn()`.

    Both functions are called immediately, once, to build the branches. Operations created in a branch run only if the
    branch is taken. Operations created outside and used in a branch run in any case.

    Args:
      pred: a boolean scalar. A Python bool calls its branch immediately and creates no conditional.
      true_fn, false_fn: functions without arguments. They return tensors (or numbers, arrays, variables, None), or
        nested tuples, lists, dicts, named tuples or dataclasses of them, with the same structure and dtypes in both. A
        returned operation counts as a boolean scalar that is available when the operation has finished.
      name: the name of the conditional and its scope; "cond" if None.

    Returns:
      A structure like that of the branches. Static shapes cover both branches. If both return None, the operation.

    Raises:
      SignatureError (a ValueError and TypeError): `pred` is not a boolean scalar; the branches return different
        structures or dtypes.
      TypeError: `true_fn` or `false_fn` cannot be called.

    Source: TensorFlow's `tf.cond`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     x = hr.placeholder(hr.float32, ())
      ...     y = hr.cond(x < 0.0, lambda: -x, lambda: x)
      >>> hr.Session(graph=y.graph).run(y, {x: -3.0})
      np.float32(3.0)
    """
    tracing.check_callable(true_fn=true_fn, false_fn=false_fn)
    if isinstance(pred, (bool, np.bool_)):
        return (true_fn if pred else false_fn)()
    if not isinstance(scopes.builder(pred), Builder):
        return (true_fn if is_true(pred, "the predicate of a conditional") else false_fn)()
    with scopes.name_scope(name, "cond", [pred]) as scope:
        b = scopes.builder()
        pred = checked_predicate(b.tensor(pred), f"the predicate of {scope[:-1]!r}")
        branches = _Branches(b, scope[:-1], "If")
        branches.trace(true_fn, "'true_fn'", "true")
        branches.trace(false_fn, "'false_fn'", "false")
        if branches.unknown is not None:
            return branches.assumed()
        then_branch, else_branch = branches.graphs
        return branches.join(scope, pred, {"then_branch": then_branch, "else_branch": else_branch})


def is_true(pred: Any, what: str) -> bool:
    """Returns the value of a predicate in eager execution.

    Raises:
      SignatureError: it is not a boolean scalar.
    """
    value = np.asarray(pred)
    if value.dtype != np.bool_ or value.ndim:
        raise SignatureError(f"{what} must be a boolean scalar, got {pred!r}; {_fix(value.dtype == np.bool_)}")
    return bool(value)


def checked_predicate(t: Tensor, what: str) -> Tensor:
    """Returns `t`, a predicate of a conditional.

    Raises:
      SignatureError: it cannot be a boolean scalar. The text names the tensor and its line.
    """
    is_bool = t.dtype.base is dtypes.bool_
    if not is_bool or not shapes.compatible(t.shape, ()):
        made = f" (made at {t.op.source})" if t.op.source is not None else ""
        raise SignatureError(
            f"{what} must be a boolean scalar, got {quoted(t)}{made} of dtype {t.dtype.base.name} and shape "
            f"{shapes.show(t.shape)}; {_fix(is_bool)}"
        )
    return t


def _fix(is_bool: bool) -> str:
    return (
        "reduce it (reduce_any, reduce_all) or take one element"
        if is_bool
        else "compare it (x > 0, hr.not_equal(x, 0)) or cast it to bool"
    )


class _Branches:
    """Branches of a conditional during its tracing.

    Attributes:
      graphs: the traced graphs.
      unknown: the error of a branch whose results are not known yet, or None.
    """

    def __init__(self, b: Builder, name: str, type: str) -> None:
        self.graphs: list[FuncGraph] = []
        self.unknown: tracing.ResultsUnknown | None = None
        self._b = b
        self._name = name
        self._type = type
        self._labels: list[str] = []
        self._values: list[Any] = []

    def trace(self, fn: Branch, label: str, short: str) -> None:
        """Traces one more branch.

        Raises:
          SignatureError: it returned another structure, or other dtypes, than the first branch.
        """
        graph = tracing.sub_graph(self._b, f"{self._name}_{short}", f"the {short} branch of {self._name!r}", fn)
        try:
            value = tracing.call(fn, graph, self._b)
        except tracing.ResultsUnknown as e:
            self.unknown = e
            return
        self.graphs.append(graph)
        self._labels.append(label)
        self._values.append(value)
        if len(self.graphs) > 1:
            self._widen_indices()
            self._compare()

    def _widen_indices(self) -> None:
        """Casts int32 indices of `IndexedSlices` to int64 if another branch returns int64."""
        flat = [nest.flatten(v, expand=False) for v in self._values]
        if len({len(leaves) for leaves in flat}) > 1:
            return  # `_compare` reports this
        for column in zip(*flat, strict=True):
            if not all(isinstance(x, IndexedSlices) for x in column) or len({x.indices.dtype for x in column}) == 1:
                continue
            for k, x in enumerate(column):
                b = dataclasses.replace(self._b, graph=self.graphs[k], control_inputs=())
                if x.indices.dtype is not dtypes.int64:
                    wide = IndexedSlices(x.values, b.Cast(x.indices, DstT=dtypes.int64), x.dense_shape)
                    leaves = [wide if y is x else y for y in flat[k]]
                    flat[k] = leaves
                    self._values[k] = nest.pack(self._values[k], leaves, expand=False)

    def _compare(self) -> None:
        first, last = self._values[0], self._values[-1]
        (one, where), (two, there) = ((f, g.source) for f, g in ((self._labels[i], self.graphs[i]) for i in (0, -1)))
        found = nest.mismatch(first, last)
        if found is not None:
            raise SignatureError(
                f"The branches of {self._name!r} don't have the same nested structure{_at(found.path)}: {one} "
                f"({where}) returned {found.first}, {two} ({there}) returned {found.second}. Let both return the same "
                "structure; a branch that has no value for a result can return zeros"
            )
        for (path, x), y in zip(nest.flatten_with_paths(first), nest.flatten(last), strict=True):
            if x.dtype.base is not y.dtype.base:
                a, c = x.dtype.base.name, y.dtype.base.name
                raise SignatureError(
                    f"Outputs of {one} and {two} must have the same type(s). Received {a} from {one} and {c} from {two}"
                    f"{_at(path)}: {self._name!r} got '{x.name}' from {one} ({where}) and '{y.name}' from {two} "
                    f"({there}). Cast one of them (hr.cast), or write a number as 1.0 if it is to be a float"
                )

    def assumed(self) -> Any:
        """Returns tensors like the results of the branches with known results.

        Raises:
          ResultsUnknown: there is no such branch.
        """
        if not self._values:
            assert self.unknown is not None
            raise self.unknown
        b = self._b

        def like(t: Tensor) -> Tensor:
            made: Tensor = b.make("Placeholder", (), {"dtype": t.dtype.base, "shape": t.shape}, "assumed")
            return made

        return nest.map_leaves(like, self._values[0])

    def join(self, name: str, chooses: Tensor, attrs: dict[str, Any]) -> Any:
        """Returns the conditional's results in the structure of the branches; its operation for None."""
        for graph, value in zip(self.graphs, self._values, strict=True):
            tracing.finish(graph, nest.flatten(value))
            if not graph.results:  # without results it runs for its effects
                graph.set_control_results(tracing.changes(graph))
        value = functools.reduce(nest.merged, self._values)
        attrs["Tout"] = tuple(t.dtype.base for t in self.graphs[0].results)
        op = tracing.make(self._type, self._b, name, self.graphs, [chooses], [], attrs)
        return op if value is None else nest.pack(value, op.outputs)


def _at(path: str) -> str:
    return f" at {path}" if path else ""


@tracebacks.entry
def switch_case(
    branch_index: Any,
    branch_fns: Mapping[int, Branch] | Sequence[Branch | tuple[int, Branch]],
    default: Branch | None = None,
    name: str = "switch_case",
) -> Any:
    """Returns the result of branch number `branch_index`, or of `default` for other numbers.

    Args:
      branch_index: an int32 scalar. A Python int calls its branch immediately.
      branch_fns: the branches, in order; or as a dict or pairs with the numbers 0, 1, ..., n - 1. See `cond` for their
        results.
      default: the branch for all other numbers; if None, the last branch serves them.
      name: the name of the scope.

    Returns:
      A structure like that of the branches.

    Raises:
      ValueError: the numbers are not those from 0 to n - 1.
      TypeError: a branch cannot be called, or the index is not int32.
      SignatureError: the branches return different structures or dtypes.

    Source: TensorFlow's `tf.switch_case`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     i = hr.placeholder(hr.int32, ())
      ...     y = hr.switch_case(i, [lambda: 10, lambda: 20], default=lambda: -1)
      >>> hr.Session(graph=y.graph).run(y, {i: 1})
      np.int32(20)
    """
    fns = _in_order(branch_fns)
    tracing.check_callable(**{f"branch_fns[{i}]": fn for i, fn in enumerate(fns)})
    if default is not None:
        tracing.check_callable(default=default)
        fns.append(default)
    b = scopes.builder(branch_index)
    if isinstance(branch_index, (int, np.integer)) and not isinstance(branch_index, bool):
        return fns[branch_index if 0 <= branch_index < len(fns) else -1]()
    if not isinstance(b, Builder):
        i = int(np.asarray(branch_index))
        return fns[i if 0 <= i < len(fns) else -1]()
    with scopes.name_scope(name, "switch_case", [branch_index]), scopes.name_scope("indexed_case") as scope:
        b = scopes.builder()
        index = b.tensor(branch_index, dtype=None if isinstance(branch_index, Tensor) else dtypes.int32)
        if index.dtype.base is not dtypes.int32 or not shapes.compatible(index.shape, ()):
            raise SignatureError(
                f"'branch_index' of {scope[:-1]!r} must be an int32 scalar, got '{index.name}' of dtype "
                f"{index.dtype.base.name} and shape {shapes.show(index.shape)}; cast it (hr.cast) or take one element"
            )
        branches = _Branches(b, scope[:-1], "Case")
        for i, fn in enumerate(fns):
            is_default = default is not None and i == len(fns) - 1
            label = "'default'" if is_default else f"branch {i}"
            branches.trace(fn, label, "default" if is_default else f"{i}")
        if branches.unknown is not None:
            return branches.assumed()
        return branches.join(scope, index, {"branches": tuple(branches.graphs)})


def _in_order(branch_fns: Any) -> list[Branch]:
    if not isinstance(branch_fns, (list, tuple, Mapping)):
        raise TypeError(f"'branch_fns' must be a dict, list, or tuple, got {nest.describe(branch_fns)}")
    if not branch_fns:
        raise ValueError("'branch_fns' must not be empty; give at least one branch")
    if isinstance(branch_fns, Mapping):
        pairs = list(branch_fns.items())
    elif all(isinstance(f, tuple) and len(f) == 2 for f in branch_fns):
        pairs = list(branch_fns)
    else:
        return list(branch_fns)
    for i, _ in pairs:
        if not isinstance(i, int):
            raise TypeError(f"the number of a branch must be a Python int, got {i!r} ({type(i).__name__})")
    pairs.sort(key=lambda pair: pair[0])
    numbers = [i for i, _ in pairs]
    if numbers != list(range(len(pairs))):
        raise ValueError(
            f"branch indices (keys) must form contiguous range of [0 to {len(pairs)}) but found "
            f"{{{','.join(map(str, numbers))}}}"
        )
    return [fn for _, fn in pairs]


@tracebacks.entry
def case(
    pred_fn_pairs: Mapping[Any, Branch] | Sequence[tuple[Any, Branch]],
    default: Branch | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """Returns the result of the function of the first true predicate, or of `default`.

    Args:
      pred_fn_pairs: (predicate, function) pairs, tested in their order; or a dict. Predicates are boolean scalars; for
        the functions see `cond`.
      default: the function for the case that no predicate is true. If None, this case is an error at run time.
      exclusive: whether more than one true predicate is an error at run time.
      strict: ignored; an argument of TensorFlow. Here the result of a function that returns a list of one element is
        always a list.
      name: the name of the scope.

    Returns:
      A structure like that of the functions. Up to `thresholds.NESTED_CASE_PAIRS` pairs are nested conditionals, as in
      TensorFlow; more are one `switch_case`.

    Raises:
      TypeError: `pred_fn_pairs` are not pairs, or a function cannot be called.
      SignatureError: the functions return different structures or dtypes, or a predicate is not a boolean scalar.
      InvalidArgumentError: at run time, see `default` and `exclusive`.

    Source: TensorFlow's `tf.case`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     x = hr.placeholder(hr.int32, ())
      ...     y = hr.case([(x < 0, lambda: -1), (x > 0, lambda: 1)], default=lambda: 0)
      >>> hr.Session(graph=y.graph).run(y, {x: 5})
      np.int32(1)
    """
    pairs = _pairs(pred_fn_pairs)
    tracing.check_callable(**{f"fn of pair {i}": fn for i, (_, fn) in enumerate(pairs)})
    if default is not None:
        tracing.check_callable(default=default)
    preds = [p for p, _ in pairs]
    b = scopes.builder(*preds)
    if not isinstance(b, Builder):
        return _eager_case(pairs, default, exclusive)
    with scopes.name_scope(name, "case", preds):
        b = scopes.builder()
        preds = [
            p if isinstance(p, (bool, np.bool_)) else checked_predicate(b.tensor(p), f"predicate {i} of 'case'")
            for i, p in enumerate(preds)
        ]
        steps = list(zip(preds, (fn for _, fn in pairs), strict=True))
        if default is None:
            _, last = steps.pop()
            default = _guarded(last, preds, at_least_one=True)
        choose: Branch = default
        if len(steps) > thresholds.NESTED_CASE_PAIRS:
            choose = functools.partial(_first, steps, default)
        else:
            for pred, fn in reversed(steps):
                choose = functools.partial(cond, pred, fn, choose)
        return (_guarded(choose, preds, at_least_one=False) if exclusive else choose)()


def _first(steps: Sequence[tuple[Any, Branch]], default: Branch) -> Any:
    """Returns the result of the first true predicate's function, by one `switch_case`."""
    left = []
    for pred, fn in steps:  # values known to Python need not be traced
        if not isinstance(pred, (bool, np.bool_)):
            left.append((pred, fn))
        elif pred:
            default = fn
            break
    if not left:
        return default()
    b = scopes.builder()
    holds = b.Cast(b.Pack([*(pred for pred, _ in left), True], name="preds_c"), DstT=dtypes.int32)
    index = b.ArgMax(holds, 0, output_type=dtypes.int32, name="first")
    return switch_case(index, [fn for _, fn in left], default)


def _pairs(pairs: Any) -> list[tuple[Any, Branch]]:
    if not isinstance(pairs, (list, tuple, Mapping)):
        raise TypeError(f"'pred_fn_pairs' must be a list, tuple, or dict, got {nest.describe(pairs)}")
    out = list(pairs.items()) if isinstance(pairs, Mapping) else list(pairs)
    if not out:
        raise ValueError("'pred_fn_pairs' must not be empty; give at least one (predicate, function) pair")
    for i, pair in enumerate(out):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"entry {i} of 'pred_fn_pairs' must be a tuple (predicate, function), got {pair!r}")
    return out


_NONE_HOLDS = "None of conditions evaluated as True."
_MANY_HOLD = "More than one condition evaluated as True but exclusive=True."


def _guarded(fn: Branch, preds: Sequence[Any], at_least_one: bool) -> Branch:
    """Returns `fn` with a run-time check of the predicates before its results.

    Args:
      fn: the function.
      preds: the predicates.
      at_least_one: whether one predicate must be true; otherwise at most one may be.
    """

    @functools.wraps(fn.func if isinstance(fn, functools.partial) else fn)
    def guarded() -> Any:
        b = scopes.builder()
        true_conds = b.Sum(b.Cast(b.Pack(preds, name="preds_c"), DstT=dtypes.int32), 0, name="num_true_conds")
        holds = b.GreaterEqual(true_conds, 1) if at_least_one else b.LessEqual(true_conds, 1)
        ok = b.Assert(
            holds, [b.const(_NONE_HOLDS if at_least_one else _MANY_HOLD), b.Pack(preds)], summarize=len(preds)
        )
        with scopes.control_dependencies([ok]):
            return nest.map_leaves(lambda x: x if isinstance(x, Operation) else _held(x), fn())

    return guarded


def _held(x: Any) -> Tensor:
    b = scopes.builder()
    out: Tensor = b.Identity(b.tensor(x))
    return out


def _eager_case(pairs: list[tuple[Any, Branch]], default: Branch | None, exclusive: bool) -> Any:
    holds = [is_true(p, f"predicate {i} of 'case'") for i, (p, _) in enumerate(pairs)]
    if exclusive and sum(holds) > 1:
        raise InvalidArgumentError(f"{_MANY_HOLD} Values: {holds}")
    for (_, fn), is_chosen in zip(pairs, holds, strict=True):
        if is_chosen:
            return fn()
    if default is None:
        raise InvalidArgumentError(f"{_NONE_HOLDS} Values: {holds}; give a default")
    return default()
