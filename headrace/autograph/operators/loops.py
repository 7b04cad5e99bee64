"""`while` and `for`.

A loop runs in Python as long as its test is a value of Python. When the test is a symbolic tensor, the rest of the loop
becomes a `While`. Its body is traced, and the values that the body leaves decide what the loop variables are: their
dtypes, where a number of Python meets tensors; their shapes, where a shape changes; tensor lists, where a list grows;
contents of objects, where the body changes them. If that differs from the assumption, the body is traced again.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from headrace import dtypes, nest, shapes, thresholds
from headrace.api import scopes, tracing
from headrace.api.cond import cond
from headrace.api.while_loop import while_loop
from headrace.autograph.operators import branches, iterables, journal, values
from headrace.autograph.operators.branches import Failure, Getter, Setter, State, placeholder_value
from headrace.autograph.operators.journal import Place
from headrace.autograph.operators.lists import Spec, TensorList, WiderElement, decider, list_spec, made, widened
from headrace.autograph.operators.undefined import Maybe, Undefined
from headrace.dtypes import DType
from headrace.errors import AutographError
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import Tensor
from headrace.ir.weak_numbers import WeakNumbers, is_weak
from headrace.records import record
from headrace.shapes import Shape

# Options that a body sets for the loop around it; None in a loop of Python.
_options: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("options of a loop", default=None)


@contextlib.contextmanager
def _collected(options: dict[str, Any] | None) -> Iterator[None]:
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


def set_loop_options(**options: Any) -> None:
    """Sets options of the loop around the call, if it becomes one of a graph.

    Args:
      **options: `parallel_iterations`, `swap_memory` and `maximum_iterations` of `hr.while_loop`, and
        `shape_invariants`, pairs of a tensor and its shape.
    """
    found = _options.get()
    if found is not None:
        found.update(options)


def while_(
    test: Callable[[], Any],
    body: Callable[[], None],
    names: Sequence[str] = (),
    get: Getter | None = None,
    set_: Setter | None = None,
    roots: Sequence[Callable[[], Any]] = (),
    globals_: str = "",
) -> None:
    """Repeats a block while a test holds; the arguments are those of `if_`."""
    state = State(names, get, set_, roots, (test, body))
    while True:
        graph = scopes.current_graph()
        before = 0 if graph is None else len(graph.operations)
        old = state.load()
        holds = decider(test())
        if values.is_symbolic(holds):
            branches.refuse_globals(globals_)
            made = () if graph is None else graph.operations[before:]
            assigns = any(x is not y for x, y in zip(old, state.load(), strict=True))  # by :=
            if assigns or any(op.opdef.is_effectful for op in made):
                _after_effects(holds, test, body, state)
            else:
                Loop(state, test, body).build()
            return
        if not holds:
            return
        with _collected(None):
            body()


def _after_effects(holds: Any, test: Callable[[], Any], body: Callable[[], None], state: State) -> None:
    """Makes a loop whose first test, already evaluated, has effects.

    The result of the test is a loop variable.
    """
    more = [values.truth(holds)]

    def set_(new: Sequence[Any]) -> None:
        more[0] = new[0]
        state.store(new[1:])

    wider = State(("the_test_", *state.names), lambda: (more[0], *state.load()), set_, state.root_getters, state.blocks)

    def step() -> None:
        body()
        found = test()
        more[0] = values.truth(found) if values.is_symbolic(found) else bool(found)

    step.__wrapped__ = body  # type: ignore[attr-defined]
    Loop(wider, lambda: more[0], step).build()


def for_(
    iterated: Any,
    body: Callable[[Any], None],
    extra_test: Callable[[], Any] | None = None,
    names: Sequence[str] = (),
    get: Getter | None = None,
    set_: Setter | None = None,
    roots: Sequence[Callable[[], Any]] = (),
    globals_: str = "",
) -> None:
    """Runs a block for each element of an object.

    Args:
      iterated: the object.
      body: the block, a function of the element.
      extra_test: the test of the flags that end the loop early; None for none.
      names, get, set_, roots, globals_: see `if_`.
    """
    blocks = (body,) if extra_test is None else (body, extra_test)
    rows = iterables.of(iterated)
    if rows is not None:
        branches.refuse_globals(globals_)
        _for_rows(rows, 0, body, extra_test, State(names, get, set_, roots, blocks))
        return
    elements = iterables.elements_of(iterated)
    if elements is not None:
        branches.refuse_globals(globals_)
        _for_elements(elements, body, extra_test, State(names, get, set_, roots, blocks))
        return
    if extra_test is None:
        with _collected(None):
            for element in iterated:
                body(element)
        return
    remaining = iter(iterated)
    for k, element in enumerate(remaining):
        go = extra_test()
        if values.is_symbolic(go):
            branches.refuse_globals(globals_)
            state = State(names, get, set_, roots, (body, extra_test))
            rows = iterables.rest(iterated, k)
            if rows is not None:
                _for_rows(rows, k, body, extra_test, state)
            else:
                _unrolled([element, *remaining], body, extra_test, state)
            return
        if not go:
            return
        with _collected(None):
            body(element)


def _unrolled(elements: list[Any], body: Callable[[Any], None], extra_test: Callable[[], Any], state: State) -> None:
    """Runs a block for Python objects, each iteration under the test of the flags."""
    for element in elements:

        def run(element: Any = element) -> None:
            with _collected(None):
                body(element)

        def skip() -> None:
            pass

        run.__wrapped__ = body  # type: ignore[attr-defined]
        branches.if_(extra_test(), run, skip, state.names, state.load, state.store, state.root_getters)


def _for_rows(
    rows: iterables.Rows, first: int, body: Callable[[Any], None], extra_test: Callable[[], Any] | None, state: State
) -> None:
    """Makes a loop over elements that the graph counts."""
    rows = rows.prepared()
    counter: list[Any] = [first]

    def set_(new: Sequence[Any]) -> None:
        counter[0] = new[0]
        state.store(new[1:])

    def test() -> Any:
        more = scopes.builder(counter[0]).Less(counter[0], n)
        if extra_test is None:
            return more
        go = extra_test()
        return scopes.builder(more).LogicalAnd(more, values.truth(go)) if values.is_symbolic(go) else more

    def step() -> None:
        body(rows.at(counter[0]))
        counter[0] = scopes.builder(counter[0]).AddV2(counter[0], 1)

    step.__wrapped__ = body  # type: ignore[attr-defined]
    test.__wrapped__ = body  # type: ignore[attr-defined]
    wider = State(
        ("iteration_", *state.names), lambda: (counter[0], *state.load()), set_, state.root_getters, state.blocks
    )
    n = rows.length
    known = rows.static_length
    if known == 0:
        return
    Loop(wider, test, step, runs=known is not None and extra_test is None).build()


def _for_elements(
    elements: Any, body: Callable[[Any], None], extra_test: Callable[[], Any] | None, state: State
) -> None:
    """Makes a loop over the elements of an iterator of a dataset."""
    following: list[Any] = [elements.get_next_as_optional()]
    like = following[0]

    def set_(new: Sequence[Any]) -> None:
        following[0] = like.of(new[0])
        state.store(new[1:])

    def test() -> Any:
        more = following[0].has_value()
        if extra_test is None:
            return more
        go = extra_test()
        return scopes.builder(more).LogicalAnd(more, values.truth(go)) if values.is_symbolic(go) else more

    def variant() -> Any:
        return elements.get_next_as_optional().variant

    def step() -> None:
        body(following[0].get_value())
        go = True if extra_test is None else extra_test()
        if values.is_symbolic(go):  # a jump out of the loop takes no further element
            made = cond(values.truth(go), variant, lambda: scopes.builder().make("OptionalNone", (), {}))
        else:
            made = variant()
        following[0] = like.of(made)

    step.__wrapped__ = body  # type: ignore[attr-defined]
    test.__wrapped__ = body  # type: ignore[attr-defined]
    wider = State(
        ("element_", *state.names),
        lambda: (following[0].variant, *state.load()),
        set_,
        state.root_getters,
        state.blocks,
    )
    Loop(wider, test, step).build()


# *** loops in a graph ***


class _Again(Exception):
    """The assumptions about a loop do not hold; its body is traced again."""


@record(frozen=True, slots=True)
class _Slot:
    """A loop variable.

    Attributes:
      index: its number.
    """

    index: int


@record(frozen=True, slots=True)
class _Static:
    """An object that the loop does not change."""

    value: Any


@record(frozen=True, slots=True)
class _Node:
    """A structure with loop variables.

    Attributes:
      like: the structure.
      parts: its parts.
    """

    like: Any
    parts: tuple[Any, ...]


@record(frozen=True, slots=True)
class _Possible:
    """A variable that may have no value before the loop.

    Attributes:
      value: the tree of its value.
      has: whether it has one.
      reason: the text of the error of a read without a value.
    """

    value: Any
    has: _Slot
    reason: str


_UNSET: Final = (
    "'{{name}}' is read after a loop that assigns it ({line}), but the loop ran no iteration that does, and it has no "
    "value before"
)


@record(slots=True)
class _Plan:
    """Assumptions about the variables of a loop, by their labels.

    Attributes:
      dtypes: dtypes of numbers that meet tensors, or that become floats.
      weak: labels of the numbers among them that are still weak.
      shapes: shapes that cover all iterations.
      structures: labels of lists and dictionaries that the body replaces by others.
      defined: contents of variables that have none before the loop.
      places: containers and attributes that the body changes.
      lists: lists that become tensor lists.
      split: labels of variables that share a tensor with another one only before the loop.
      options: arguments of `while_loop` that the body sets.
    """

    dtypes: dict[str, DType] = dataclasses.field(default_factory=dict)
    shapes: dict[str, Shape] = dataclasses.field(default_factory=dict)
    structures: set[str] = dataclasses.field(default_factory=set)
    defined: dict[str, Any] = dataclasses.field(default_factory=dict)
    places: dict[Any, tuple[Place, str]] = dataclasses.field(default_factory=dict)
    lists: dict[int, tuple[list[Any], Spec]] = dataclasses.field(default_factory=dict)
    split: set[str] = dataclasses.field(default_factory=set)
    weak: set[str] = dataclasses.field(default_factory=set)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@record(frozen=True, slots=True)
class _Proto:
    """Dtype and shape of a variable that the body defines."""

    dtype: DType
    shape: Shape
    like: Any


class Loop:
    """A loop in a graph under construction.

    Args:
      state: the variables.
      test: the test.
      body: the block.
      runs: whether at least one iteration runs.
    """

    def __init__(self, state: State, test: Callable[[], Any], body: Callable[[], None], runs: bool = False) -> None:
        self._state = state
        self._test = test
        self._body = body
        self._runs = runs
        self._plan = _Plan()

    def build(self) -> None:
        """Makes the loop and sets the variables to its results.

        Raises:
          AutographError: a variable cannot be a loop variable.
        """
        before, objects = self._state.load(), self._state.objects()
        for _ in range(thresholds.LOOP_TRACINGS):
            try:
                _Tracing(self._state, self._test, self._body, self._plan, self._runs, before, objects).build()
                return
            except _Again:
                self._state.store(before)
            except tracing.ResultsUnknown:  # the function is traced again, with results as of no iteration
                self._state.store(before)
                return
            except BaseException:
                self._state.store(before)
                raise
        raise AutographError(
            f"the dtypes or shapes of the variables {', '.join(_user_names(self._state.names))} change in each "
            "iteration; give them their final dtype and shape before the loop (hr.cast, hr.zeros)"
        )


class _Tracing:
    """One attempt to trace a loop."""

    def __init__(
        self,
        state: State,
        test: Callable[[], Any],
        body: Callable[[], None],
        plan: _Plan,
        runs: bool,
        before: tuple[Any, ...],
        objects: list[tuple[str, Any]],
    ) -> None:
        self._state = state
        self._test = test
        self._body = body
        self._plan = plan
        self._runs = runs
        self._before = before
        self._objects = objects
        self._first: list[Any] = []
        self._labels: list[str] = []
        self._by_tensor: dict[int, int] = {}
        self._again = False
        self._entries: list[Any] = []
        self._place_entries: list[tuple[Place, str, Any]] = []
        self._own: list[Any] = []  # objects of the present trace that hold its loop variables
        self._unsure: set[str] = set()
        self._weak: tuple[int, ...] = ()

    def build(self) -> None:
        """Traces the loop and sets the results.

        Raises:
          _Again: an assumption of the plan does not hold; the plan has the new one.
        """
        plan = self._plan
        replaced = {key: made(items, spec) for key, (items, spec) in plan.lists.items()}
        places = dict(plan.places)
        with journal.recording() as notes:
            try:
                if replaced:
                    branches.replace(self._state, replaced)
                    self._objects = [*self._objects, *(("the list", new) for new in replaced.values())]
                    for part in [part for new in replaced.values() for part in new.parts()]:
                        place = Place(part, "flow")
                        places[place.key] = place, "the list"
                self._entries = [
                    self._split(name, x) for name, x in zip(self._state.names, self._state.load(), strict=False)
                ]
                for place, label in places.values():
                    if id(place.holder) not in replaced:
                        if label in plan.structures:  # the variable has another object after an iteration
                            label = f"the first object of {label}"
                        self._place_entries.append((place, label, self._split(label, place.load(), contents=True)))
                b = scopes.builder(*self._first)
                if not self._first:
                    self._first.append(b.const(0))
                    self._labels.append("iteration_")
                first = [self._initial(k) for k in range(len(self._first))]
                self._weak = tuple(k for k, x in enumerate(first) if self._is_weak(k))
                invariants = [self._shape(k, x) for k, x in enumerate(first)]
                results = while_loop(self._condition(), self._step(), first, invariants, name="while", **plan.options)
            finally:
                notes.undo()
                self._state.restore()
                self._state.store(self._before)
        if self._weak:
            op = results[0].op
            Editor(op.graph).add_note(op, WeakNumbers(tuple(results[k].index for k in self._weak)))
        self._set_results(replaced, results)

    def _set_results(self, replaced: dict[int, TensorList], results: list[Any]) -> None:
        if replaced:
            branches.replace(self._state, replaced)
        after = [_rebuilt(e, results) for e in self._entries]
        if self._runs and "maximum_iterations" not in self._plan.options:
            # an iteration has given each variable a value, unless a branch in it has not
            after = [
                x.value if isinstance(x, Maybe) and n not in self._unsure else x
                for n, x in zip(self._state.names, after)
            ]
        self._state.store(after)
        for place, _, entry in self._place_entries:
            place.store(_rebuilt(entry, results))

    # *** from objects to loop variables ***

    def _split(self, label: str, x: Any, contents: bool = False) -> Any:
        """Returns the tree of a value; the tensors in it become loop variables."""
        if isinstance(x, Undefined):
            if label not in self._plan.defined:
                return _Static(x)
            value = self._split_prototype(label, self._plan.defined[label])
            if label.endswith("_"):
                return value
            return _Possible(value, self._slot(f"has {label}", False), _UNSET.format(line=branches.line_of(self._body)))
        if isinstance(x, Maybe):
            return _Possible(self._split(label, x.value), self._slot(f"has {label}", x.has), x.reason)
        if values.is_tensor_like(x):
            return self._slot(label, x)
        node = nest.nodes[type(x)]
        if node is None or x is None:
            return _Static(x)
        by_reference = isinstance(x, (list, dict)) or (not isinstance(x, tuple) and not node.is_composite)
        if by_reference and not contents and label not in self._plan.structures:
            return _Static(x)
        parts = zip(node.keys(x), node.parts(x), strict=True)
        return _Node(x, tuple(self._split(label + node.path(k), p) for k, p in parts))

    def _split_prototype(self, label: str, proto: Any) -> Any:
        if isinstance(proto, _Proto):
            zero = placeholder_value(proto.dtype, self._plan.shapes.get(label, proto.shape), proto.like)
            self._plan.shapes.setdefault(label, proto.shape)
            return self._slot(label, zero)
        if isinstance(proto, _Static):
            return proto
        node = nest.nodes[type(proto.like)]
        assert node is not None
        keys = node.keys(proto.like)
        parts = [self._split_prototype(label + node.path(k), p) for k, p in zip(keys, proto.parts, strict=True)]
        return _Node(proto.like, tuple(parts))

    def _slot(self, label: str, x: Any) -> _Slot:
        if isinstance(x, Tensor) and label not in self._plan.split:
            known = self._by_tensor.get(id(x))
            if known is not None:  # one tensor under two names stays one
                return _Slot(known)
            self._by_tensor[id(x)] = len(self._first)
        self._first.append(x)
        self._labels.append(label)
        return _Slot(len(self._first) - 1)

    def _initial(self, k: int) -> Any:
        x = self._first[k]
        dtype = self._plan.dtypes.get(self._labels[k])
        return values.converted(x, dtype or values.dtype_of(x))

    def _is_weak(self, k: int) -> bool:
        x, label = self._first[k], self._labels[k]
        if label in self._plan.dtypes and label not in self._plan.weak:
            return False
        return x.__class__ is not bool if values.is_number(x) else isinstance(x, Tensor) and is_weak(x)

    def _shape(self, k: int, x: Any) -> Any:
        if x.dtype.base is dtypes.variant:
            return None
        own = x.static_shape
        wide = self._plan.shapes.get(self._labels[k], own)
        return _Invariant(wide)

    # *** tracing ***

    def _enter(self, params: Sequence[Any]) -> None:
        if self._weak and params:
            for k in self._weak:
                op = params[k].op
                if WeakNumbers not in op.notes:
                    Editor(op.graph).add_note(op, WeakNumbers((0,)))
        self._own = []
        self._state.store([_rebuilt(e, params, self._own) for e in self._entries])
        for place, _, entry in self._place_entries:
            place.store(_rebuilt(entry, params, self._own))

    def _condition(self) -> Callable[..., Any]:
        def condition(*params: Any) -> Any:
            self._enter(params)
            with journal.recording() as notes:
                holds = decider(self._test())
                changed = self._state.undo(notes, self._objects)
            if changed:
                raise AutographError(
                    f"the test of a loop that a tensor decides changes '{changed[0][1]}'; do so in its body"
                )
            return values.truth(holds, "the test of 'while'") if values.is_symbolic(holds) else bool(holds)

        return _named(condition, self._labels, self._test)

    def _step(self) -> Callable[..., Any]:
        def step(*params: Any) -> Any:
            self._enter(params)
            after: tuple[Any, ...] = ()
            places: list[Any] = []
            options: dict[str, Any] = {}
            with journal.recording() as notes:
                try:
                    with _collected(options):
                        self._run_body()
                    after = self._state.load()
                    places = [place.load() for place, _, _ in self._place_entries]
                finally:
                    changes = self._state.undo(notes, self._objects, (*after, *places), self._own)
            self._take_options(options, params)
            self._find_places(changes)
            nexts: list[Any] = list(params)
            for name, entry, x in zip(self._state.names, self._entries, after, strict=False):
                self._match(name, entry, x, params, nexts)
            for (_, label, entry), x in zip(self._place_entries, places, strict=True):
                self._match(label, entry, x, params, nexts, contents=True)
            if self._again:
                raise _Again
            return nexts

        return _named(step, self._labels, self._body)

    def _take_options(self, options: dict[str, Any], params: Sequence[Any]) -> None:
        """Adds what the body sets to the plan."""
        for tensor, shape in options.pop("shape_invariants", ()):
            k = next((k for k, x in enumerate(params) if x is tensor), None)
            if k is None:
                raise AutographError(
                    f"shape_invariants has {values.described(tensor)}, which is no variable of the loop at "
                    f"{branches.line_of(self._body)} as its iteration starts; set options first in the body"
                )
            wide, label = shapes.as_shape(shape), self._labels[k]
            if not shapes.covers(self._plan.shapes.get(label, params[k].static_shape), wide):
                self._plan.shapes[label] = _widened(params[k].static_shape, wide)
                self._again = True
        if options.keys() - self._plan.options.keys():
            self._plan.options.update(options)
            self._again = True

    def _run_body(self) -> None:
        try:
            self._body()
        except Failure as e:
            scopes.builder().Assert(False, [f"{type(e.error).__name__}: {e.error}"])
        except WiderElement as e:
            for key, (items, spec) in self._plan.lists.items():
                wide = widened(spec, e.of.spec, e.wide)
                if wide is not None:
                    self._plan.lists[key] = items, wide
                    raise _Again from None
            raise

    def _find_places(self, changes: list[tuple[Place, str, Any, Any]]) -> None:
        """Adds the objects outside of the loop that the body has changed to the plan."""
        known = {place.key for place, _, _ in self._place_entries}
        for place, label, old, new in changes:
            if place.key in known:
                continue
            self._again = True
            if not place.attribute and isinstance(place.holder, list) and len(old) != len(new):
                self._add_list(label, place.holder, [*old, *new])
            elif isinstance(place.holder, set):
                raise AutographError(f"the set '{label}' changes in a loop that a tensor decides; use a list")
            else:
                self._plan.places[place.key] = place, label

    def _add_list(self, label: str, items: list[Any], elements: list[Any]) -> None:
        spec = list_spec(label, elements)
        if spec is None:
            raise AutographError(
                f"the list '{label}' changes its length in a loop that a tensor decides, so its elements must be "
                f"tensors, not {values.described(elements[-1]) if elements else 'nothing'}; keep a list for each part"
            )
        self._plan.lists[id(items)] = items, spec

    # *** from the values after an iteration to the next ones ***

    def _match(
        self, label: str, entry: Any, x: Any, params: Sequence[Any], nexts: list[Any], contents: bool = False
    ) -> None:
        match entry:
            case _Static(value):
                self._match_static(label, value, x)
            case _Possible(value, has, _):
                if isinstance(x, Maybe):
                    self._unsure.add(label)
                    self._match(label, value, x.value, params, nexts)
                    self._match_slot(f"has {label}", has.index, x.has, params, nexts)
                elif not isinstance(x, Undefined):
                    self._match(label, value, x, params, nexts)
                    nexts[has.index] = True
            case _Slot(k):
                self._match_slot(label, k, x, params, nexts)
            case _Node(like, parts):
                node, other = nest.nodes[type(like)], nest.nodes[type(x)]
                if isinstance(like, list) and (
                    isinstance(x, TensorList) or (isinstance(x, list) and len(parts) != len(x))
                ):
                    raise self._different(label, like, x, " (a list whose length changes must change by append or pop)")
                same = node is not None and other is not None and node.outline(like) == other.outline(x)
                if node is None or other is None or not same:
                    raise self._different(label, like, x)
                for key, part, value in zip(node.keys(like), parts, other.parts(x), strict=True):
                    self._match(label + node.path(key), part, value, params, nexts)

    def _match_static(self, label: str, old: Any, new: Any) -> None:
        if new is old:
            return
        if isinstance(old, Undefined):
            if isinstance(new, Undefined):
                return
            new = new.value if isinstance(new, Maybe) else new
            self._plan.defined[label] = self._prototype(label, new)
            self._again = True
            return
        if isinstance(new, Undefined):
            raise AutographError(
                f"'{label}' has a value before a loop that a tensor decides and none after an iteration: "
                f"{new.reason.format(name=label) or 'it was deleted'}. Assign it in every iteration"
            )
        if isinstance(old, list) and isinstance(new, TensorList):  # a conditional in the body has made it
            self._plan.lists[id(old)] = old, list_spec(label, [*old, new]) or new.described()
            self._again = True
            return
        if isinstance(old, (list, dict)) and type(new) is type(old):
            self._plan.structures.add(label)
            self._again = True
            return
        if nest.is_nested(old) and old is not None and type(new) is type(old):
            self._plan.structures.add(label)
            self._again = True
            return
        try:
            is_equal = type(old) is type(new) and bool(old == new or values.is_same_function(old, new))
        except (TypeError, ValueError):
            is_equal = False
        if not is_equal:
            raise self._different(label, old, new)

    def _different(self, label: str, old: Any, new: Any, why: str = "") -> AutographError:
        fix = "give it a tensor or a number before the loop, and one of the same kind in the body"
        if old is None:
            fix = "give it a tensor of the right shape and dtype before the loop, such as hr.zeros, in place of None"
        return AutographError(
            f"'{label}' cannot be a variable of a loop that a tensor decides: it is {values.described(old)} before the "
            f"loop ({branches.line_of(self._body)}) and {values.described(new)} after an iteration{why}; {fix}"
        )

    def _prototype(self, label: str, x: Any) -> Any:
        """Returns the description of a value that the body gives to a variable without one."""
        if values.is_tensor_like(x):
            if values.is_weak_value(x) and not values.is_number(x):
                self._plan.dtypes.setdefault(label, values.dtype_of(x))
            handle = getattr(x, "handle", None)
            return _Proto(values.dtype_of(x), values.shape_of(x), x if handle is not None else None)
        node = nest.nodes[type(x)]
        if node is None or x is None:
            return _Static(x)
        parts = zip(node.keys(x), node.parts(x), strict=True)
        self._plan.structures.add(label)
        return _Node(x, tuple(self._prototype(label + node.path(k), p) for k, p in parts))

    def _match_slot(self, label: str, k: int, x: Any, params: Sequence[Any], nexts: list[Any]) -> None:
        first, param = self._first[k], params[k]
        own = self._labels[k]
        if isinstance(x, Undefined):
            self._match_static(label, first, x)
        if not values.is_tensor_like(x):
            raise self._different(label, first, x)
        if own != label and x is not nexts[k]:  # two names of one tensor have parted
            self._plan.split.add(label)
            self._again = True
            return
        now = self._dtype(own, first, param, x)
        if now is None:
            return
        if now is not param.dtype.base:
            self._plan.dtypes[own] = now
            self._again = True
            return
        shape = values.shape_of(x)
        if param.dtype.base is not dtypes.variant and not shapes.covers(param.static_shape, shape):
            self._plan.shapes[own] = _widened(self._plan.shapes.get(own, param.static_shape), shape)
            self._again = True
            return
        nexts[k] = x if x is param else values.converted(x, param.dtype.base)

    def _dtype(self, label: str, first: Any, param: Any, x: Any) -> DType | None:
        """Returns the dtype of the loop variable that also covers the value `x`."""
        was: DType = param.dtype.base
        now = values.dtype_of(x)
        if was is now:
            return was
        weak = values.is_weak_value(first) or (isinstance(first, Tensor) and is_weak(first))
        if label in self._plan.dtypes:
            weak = values.is_number(first)
        weak_too = values.is_weak_value(x)
        if weak and weak_too:
            if values.kind(now) > values.kind(was) > 0:
                self._plan.weak.add(label)
                return now
            return was if values.kind(now) > 0 else None
        if weak and 0 < values.kind(was) <= values.kind(now):
            self._plan.weak.discard(label)
            return now
        if weak_too and 0 < values.kind(now) <= values.kind(was):
            return was
        raise AutographError(
            f"'{label}' enters a loop as {values.described(first)} and has dtype {now.name} after an iteration "
            f"({values.described(x)}, in the loop at {branches.line_of(self._body)}). A loop variable has one dtype: "
            "cast it (hr.cast), or start with a value of the other dtype"
        )


class _Invariant:
    """A shape invariant that `while_loop` takes as it is, unknown rank included."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


def _widened(first: Shape, second: Shape) -> Shape:
    return None if first is None or second is None or len(first) != len(second) else shapes.join(first, second)


def _has_other_length(parts: Sequence[Any], x: Any) -> bool:
    return isinstance(x, list) and len(parts) != len(x)


def _rebuilt(entry: Any, leaves: Sequence[Any], made: list[Any] | None = None) -> Any:
    """Returns the value of an entry, and adds new objects to `made`."""
    match entry:
        case _Slot(k):
            return leaves[k]
        case _Static(value):
            return value
        case _Possible(value, has, reason):
            return Maybe(_rebuilt(value, leaves, made), leaves[has.index], reason)
        case _:
            node = nest.nodes[type(entry.like)]
            assert node is not None
            out = node.rebuilder(entry.like)([_rebuilt(p, leaves, made) for p in entry.parts])
            if made is not None:
                made.append(out)
            return out


def _named(fn: Callable[..., Any], labels: Sequence[str], of: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function the user's names and line for messages."""
    names: dict[str, None] = {}
    for k, label in enumerate(labels):
        name = re.sub(r"\W+", "_", label).strip("_") or f"var{k}"
        name = name if name.isidentifier() else f"var{k}"
        names[name if name not in names else f"{name}_{k}"] = None
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    fn.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    fn.__wrapped__ = of  # type: ignore[attr-defined]
    return fn


def _user_names(names: Sequence[str]) -> list[str]:
    return [f"'{n}'" for n in names if not n.endswith("_")]
