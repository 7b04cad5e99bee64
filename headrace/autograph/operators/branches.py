"""`if` and conditional expressions."""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace import dtypes, nest
from headrace.api import arrays, scopes, tracing
from headrace.autograph.operators import joins, journal, lists, values
from headrace.autograph.operators.journal import Place
from headrace.autograph.operators.undefined import UNDEFINED, Undefined
from headrace.errors import AutographError, UnimplementedError
from headrace.ir import source
from headrace.ir.weak_numbers import WeakNumbers

Getter = Callable[[], "tuple[Any, ...]"]
Setter = Callable[[Any], None]
Assigned: TypeAlias = "tuple[Sequence[str], Getter, Setter]"


class Failure(Exception):
    """A `raise` in a branch that a tensor chooses.

    The conditional makes an assertion of it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def failure(error: Any, is_caught: bool = False) -> BaseException:
    """Returns the exception that a `raise` statement raises.

    In a traced branch the conditional catches it.
    """
    if isinstance(error, type) and issubclass(error, BaseException):
        error = error()
    if journal.is_tracing() and isinstance(error, Exception):
        if is_caught:
            # neither a ValueError nor a TypeError, which the handlers of the user may catch
            raise UnimplementedError(
                f"'raise {type(error).__name__}' in a 'try' with 'except', in a conditional or loop that a tensor "
                f"decides ({source.here()}): a graph cannot catch it. Use a flag in place of the exception"
            )
        return Failure(error)
    made: BaseException = error
    return made


def if_(
    test: Any,
    body: Callable[[], Any],
    orelse: Callable[[], Any],
    names: Sequence[str] = (),
    get: Getter | None = None,
    set_: Setter | None = None,
    roots: Sequence[Callable[[], Any]] = (),
    globals_: str = "",
) -> None:
    """Runs one of two blocks, or makes a conditional of both if a tensor decides.

    Args:
      test: the value that decides.
      body, orelse: the blocks.
      names: the variables of the state.
      get, set_: the access to their values.
      roots: the objects whose contents the blocks may change.
      globals_: the global variables that the blocks assign.
    """
    test = lists.decider(test)
    if not values.is_symbolic(test):
        (body if test else orelse)()
        return
    refuse_globals(globals_)
    pred = values.truth(test, "the condition of 'if'")
    state = State(names, get, set_, roots, (body, orelse))
    with scopes.name_scope(None, "cond", [pred]) as scope:
        Conditional(scope, pred, state).build(body, orelse)


def if_exp(test: Any, body: Callable[[], Any], orelse: Callable[[], Any], state: Assigned | None = None) -> Any:
    """Returns the value of `body() if test else orelse()`.

    Args:
      test: the value that decides.
      body, orelse: the branches.
      state: the names, the getter and the setter of the variables that the branches assign by `:=`.
    """
    test = lists.decider(test)
    if not values.is_symbolic(test):
        return body() if test else orelse()
    out: list[Any] = [None]
    names, get, store = state or ((), tuple, list)

    def block(fn: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            out[0] = fn()

        run.__wrapped__ = fn  # type: ignore[attr-defined]
        return run

    def set_(new: Any) -> None:
        out[0] = new[0]
        store(new[1:])

    all_names = ("the value of the expression", *names)
    pred = values.truth(test, "the condition of 'if'")
    wider = State(all_names, lambda: (out[0], *get()), set_, (), (body, orelse))
    with scopes.name_scope(None, "cond", [pred]) as scope:
        Conditional(scope, pred, wider, skips=bool(names)).build(block(body), block(orelse))
    return out[0]


def _variables_of(fn: types.FunctionType) -> list[tuple[str, Any]]:
    """Returns the names and values of the variables of a function's surroundings that it reads."""
    code = fn.__code__
    found = [(name, _contents(cell)) for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True)]
    read = [(name, fn.__globals__[name]) for name in code.co_names if name in fn.__globals__]
    return found + [(name, x) for name, x in read if not callable(x) and not isinstance(x, types.ModuleType)]


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return UNDEFINED


def refuse_globals(names: str) -> None:
    """Raises an error if a graph would have to assign global variables."""
    if names:
        raise AutographError(
            f"the global variable {names} is assigned in a conditional or loop that a tensor decides, but a graph "
            "cannot change it; return the value, or use an hr.Variable"
        )


class State:
    """Variables of a conditional or loop.

    Args:
      names: the variables.
      get: returns their values.
      set_: assigns their values.
      roots: return the objects whose contents the blocks may change.
      blocks: the functions of the blocks, which may change all objects that their variables hold.
    """

    def __init__(
        self,
        names: Sequence[str],
        get: Getter | None,
        set_: Setter | None,
        roots: Sequence[Callable[[], Any]],
        blocks: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self.names = tuple(names)
        self.blocks = blocks
        self._get = get
        self._set = set_
        self.root_getters = roots
        self._rebound: list[tuple[types.CellType, Any]] = []

    def load(self) -> tuple[Any, ...]:
        """Returns the values of the variables, and of those that are only restored."""
        return () if self._get is None else self._get()

    def store(self, new: Sequence[Any]) -> None:
        """Assigns values to the variables."""
        if self._set is not None:
            self._set((*new, *self.load()[len(new) :]))

    def rebind(self, new: dict[int, Any]) -> set[int]:
        """Replaces the objects with the given ids in all variables; returns the ids found."""
        old = self.load()
        self.store([new.get(id(x), x) for x in old])
        found = {id(x) for x in old} & new.keys()
        for root in self.root_getters:
            for cell in getattr(root, "__closure__", None) or ():
                x = _contents(cell)
                if id(x) in new:
                    found.add(id(x))
                    self._rebound.append((cell, x))
                    cell.cell_contents = new[id(x)]
        return found

    def restore(self) -> None:
        """Undoes `rebind` for the variables that `store` does not assign."""
        while self._rebound:
            cell, x = self._rebound.pop()
            cell.cell_contents = x

    def objects(self) -> list[tuple[str, Any]]:
        """Returns the names and values of variables and used objects, those of local functions included."""
        out: list[tuple[str, Any]] = list(zip(self.names, self.load(), strict=False))
        for root in self.root_getters:
            try:
                code = getattr(root, "__code__", None)
                known = () if code is None else (*code.co_freevars, *code.co_names)
                out.append((known[0] if known else "an object", root()))
            except (NameError, ValueError):
                continue  # a variable without a value yet
        functions = [*self.blocks, *(x for _, x in out)]
        seen: set[int] = set()
        for x in functions:  # also those that are added
            if isinstance(x, types.FunctionType) and id(x) not in seen:
                seen.add(id(x))
                found = _variables_of(x)
                functions += [value for _, value in found]
                out += found
            elif isinstance(x, functools.partial):  # a later operand of `and` or `or`
                functions += [x.func, *nest.flatten(x.args)]
        return out

    def undo(
        self,
        notes: journal.Journal,
        objects: list[tuple[str, Any]],
        results: Sequence[Any] = (),
        own: Sequence[Any] = (),
    ) -> list[tuple[Place, str, Any, Any]]:
        """Undoes the changes of a trace.

        Objects that the trace has made keep their contents if they are among its results.

        Args:
          notes: the changes.
          objects: the result of `objects` before the trace.
          results: the values that the trace leaves.
          own: the objects that were made for the trace, though objects outside may hold them while it runs.

        Returns:
          The changed places that exist outside of the trace, with labels and contents before and after it.
        """
        changes = notes.undo()
        if not changes:
            return []
        known = {**notes.outer, **journal.reachable(objects)}
        for x in own:
            known.pop(id(x), None)
        out = []
        for place, before, after in changes.values():
            label = known.get(id(place.holder))
            if label is not None and not _same(before, after):
                out.append((place, f"{label}.{place.attribute}" if place.attribute else label, before, after))
        found = journal.reachable(("", x) for x in (*results, *(after for *_, after in out)))
        for place, _, after in changes.values():
            if id(place.holder) in found and id(place.holder) not in known:
                place.restore(after)
        return out


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, dict) and isinstance(after, dict):
        return list(before) == list(after) and all(before[k] is after[k] for k in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(x is y for x, y in zip(before, after, strict=True))
    return before is after


class Conditional:
    """A conditional under construction.

    Args:
      scope: the scope of its operation.
      pred: the predicate.
      state: the variables.
      skips: whether a variable without a value in one branch may be read where it has one.
    """

    def __init__(self, scope: str, pred: Any, state: State, skips: bool = False) -> None:
        self._skips = skips
        self._b = scopes.builder()
        self._scope = scope
        self._pred = self._b.tensor(pred)
        self._state = state
        self._graphs: list[Any] = []
        self._fails: list[bool] = []
        self._unknown: tracing.ResultsUnknown | None = None

    def build(self, *blocks: Callable[[], Any]) -> None:
        """Traces the blocks and sets the variables to the results."""
        before, objects = self._state.load(), self._state.objects()
        states: list[tuple[Any, ...]] = []
        changed: list[list[tuple[Place, str, Any, Any]]] = []
        for block, short in zip(blocks, ("true", "false"), strict=True):
            after: tuple[Any, ...] = ()
            with journal.recording() as notes:
                try:
                    self._trace(block, short)
                    after = self._state.load()
                finally:
                    changed.append(self._state.undo(notes, objects, after))
                    self._state.store(before)
            states.append(after)
        if self._unknown is not None and all(self._fails):
            raise self._unknown
        lines = line_of(blocks[0]), line_of(blocks[1])
        jumps = self._skips or any(
            name.startswith("did_") and name.endswith("_") and (x is True) != (y is True)
            for name, x, y in zip(self._state.names, *states, strict=False)
        )
        first, second = map(_contents_after, changed)
        join = joins.Join(lines, (self._fails[0], self._fails[1]), jumps, (first, second))
        rebuilt = [
            join.value(name, x, y, is_generated=name.endswith("_"))
            for name, x, y in zip(self._state.names, *states, strict=False)
        ]
        places: dict[Any, tuple[Place, str, list[Any]]] = {}
        for side, found in enumerate(changed):
            for place, label, old, new in found:
                places.setdefault(place.key, (place, label, [old, old]))[2][side] = new
        stored = [(place, join.value(label, *sides)) for place, label, sides in places.values()]
        results = self._finish(join)
        self._state.store([r(results) for r in rebuilt])
        replaced: dict[int, Any] = {}
        for place, rebuild in stored:
            value = rebuild(results)
            if isinstance(place.holder, list) and not isinstance(value, list):
                replaced[id(place.holder)] = value
            else:
                place.store(value)
        if replaced:
            replace(self._state, replaced)

    def _trace(self, block: Callable[[], Any], short: str) -> None:
        name = self._scope[:-1]
        graph = tracing.sub_graph(self._b, f"{name}_{short}", f"the {short} branch of {name!r}", block)
        self._graphs.append(graph)
        self._fails.append(False)

        def run() -> None:
            try:
                block()
            except Failure as e:
                self._fails[-1] = True
                text = f"{type(e.error).__name__}: {e.error}"
                scopes.builder().Assert(False, [text])
            except tracing.ResultsUnknown as e:  # the function is traced again, with the results of the other block
                self._fails[-1] = True
                self._unknown = e

        run.__wrapped__ = block  # type: ignore[attr-defined]
        tracing.call(run, graph, self._b)

    def _finish(self, join: joins.Join) -> Sequence[Any]:
        outputs = join.outputs
        made: list[list[Any]] = []
        for side, graph in enumerate(self._graphs):
            inner = dataclasses.replace(self._b, graph=graph, control_inputs=())
            with scopes.entered(inner):
                made.append([self._result(o, side) for o in outputs])
            tracing.finish(graph, made[-1])
            if not graph.results:
                graph.set_control_results(tracing.changes(graph))
        if not outputs and not any(g.control_results for g in self._graphs):
            return ()
        graphs = self._graphs
        attrs = {"then_branch": graphs[0], "else_branch": graphs[1], "Tout": tuple(o.dtype for o in outputs)}
        weak = tuple(k for k, o in enumerate(outputs) if o.weak)
        notes = [WeakNumbers(weak)] if weak else []
        op = tracing.make("If", self._b, self._scope, graphs, [self._pred], [], attrs, notes)
        return op.outputs

    def _result(self, output: joins.Output, side: int) -> Any:
        x = joins.flow_of(output.sides[side])
        if x is None:  # never read: the branch raises, or a flag guards the variable
            other = output.sides[1 - side]
            return placeholder_value(output.dtype, values.shape_of(other), other)
        return values.converted(x, output.dtype)


def _contents_after(changed: list[tuple[Place, str, Any, Any]]) -> dict[int, Any]:
    """Returns the changed objects with their last contents, by id."""
    out: dict[int, Any] = {}
    for place, _, _, after in changed:
        key = id(place.holder)
        if place.attribute:
            out[key] = out[key] if key in out else copy.copy(place.holder)
            Place(out[key], place.attribute).restore(after)
        else:
            out[key] = after
    return out


def placeholder_value(dtype: Any, shape: Any, like: Any = None) -> Any:
    """Returns a tensor that is never read, of a dtype and a shape."""
    b = scopes.builder()
    if dtype is dtypes.variant:
        inner, element = like.handle if like is not None and like.handle is not None else (dtypes.float32, None)
        sizes = -1 if element is None else [-1 if d is None else d for d in element]
        return b.EmptyTensorList(b.const(np.array(sizes, np.int32)), -1, element_dtype=inner)
    dims = [] if shape is None else [0 if d is None else d for d in shape]
    if dtype is dtypes.string:
        return arrays.fill(dims, "")
    return arrays.zeros(dims, dtype)


def replace(state: State, new: dict[int, Any]) -> None:
    """Replaces lists by other objects in variables and in the objects that hold them.

    Raises:
      AutographError: a list is held where it cannot be replaced.
    """
    left = set(new) - state.rebind(new)
    if left:
        _replace_within(state.objects(), new, left)
    if left:
        raise AutographError(
            "a list from outside of the function changes its length in a conditional or loop that a tensor decides "
            f"(at {source.here()}); a graph cannot change it. Make a list in the function, and return it"
        )


def _replace_within(objects: list[tuple[str, Any]], new: dict[int, Any], left: set[int]) -> None:
    seen: set[int] = set()
    todo = [x for _, x in objects]
    while todo and left:
        x = todo.pop()
        if id(x) in seen or isinstance(x, Undefined):
            continue
        seen.add(id(x))
        if isinstance(x, dict):
            entries: list[tuple[Any, Any]] = list(x.items())
        elif isinstance(x, list):
            entries = list(enumerate(x))
        elif hasattr(x, "__dict__") and not isinstance(x, type):
            entries = list(vars(x).items())
        else:
            continue
        for key, value in entries:
            if id(value) in new:
                left.discard(id(value))
                if isinstance(x, (dict, list)):
                    journal.touch(x)
                    x[key] = new[id(value)]
                else:
                    Place(x, key).store(new[id(value)])
            elif isinstance(value, (dict, list)) or hasattr(value, "__dict__"):
                todo.append(value)


def line_of(block: Any) -> str:
    """Returns the line of a block, as text for messages."""
    where = tracing.source_of(block)
    return "an unknown line" if where is None else f"{where.file}:{where.line}"
