"""Joins: one value for a variable that has different values in two branches.

Tensors and numbers become results of the conditional, in one dtype. Structures are joined part by part. Other objects
must be equal. A variable that has a value in one branch only becomes undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace import dtypes, nest
from headrace.autograph.operators import values
from headrace.autograph.operators.lists import ListSpec, Spec, StructuredList, TensorList, list_spec, made
from headrace.autograph.operators.undefined import Maybe, Undefined
from headrace.dtypes import DType
from headrace.errors import AutographError
from headrace.records import record

Rebuild = Callable[[Sequence[Any]], Any]


@record(slots=True)
class Output:
    """A result of a conditional.

    Attributes:
      sides: the value in each branch.
      dtype: the dtype of the result.
      weak: whether it stands for a number of Python.
    """

    sides: tuple[Any, Any]
    dtype: DType
    weak: bool


class Join:
    """Join of the states of two branches.

    Args:
      lines: the user's lines of the two branches.
      failing: for each branch, whether it always raises.
      jumps: whether one of them breaks, continues or returns.
      contents: for each branch, the objects that it changes, by id, as they are at its end.

    Attributes:
      outputs: the results of the conditional.
    """

    def __init__(
        self,
        lines: tuple[str, str],
        failing: tuple[bool, bool],
        jumps: bool = False,
        contents: tuple[Mapping[int, Any], Mapping[int, Any]] = ({}, {}),
    ) -> None:
        self.outputs: list[Output] = []
        self._contents = contents
        self._lines = lines
        self._failing = failing
        self._jumps = jumps
        self._known: dict[tuple[int, int], int] = {}

    def value(self, label: str, first: Any, second: Any, is_generated: bool = False) -> Rebuild:
        """Adds a variable.

        Args:
          label: its name in messages.
          first: the value in the first branch.
          second: the value in the second branch.
          is_generated: whether a flag guards it, so that a missing value is never read.

        Returns:
          A function from the results of the conditional to the value of the variable.

        Raises:
          AutographError: the values cannot be joined.
        """
        if first is second:  # its changes are joined by the place where it is
            return lambda outs: first
        first, second = (held.get(id(x), x) for held, x in zip(self._contents, (first, second), strict=True))
        if any(self._failing):
            first = second if self._failing[0] else first
            second = first if self._failing[1] else second
            return self._one_sided(label, first, 1 if self._failing[0] else 0)
        if isinstance(first, (Undefined, Maybe)) or isinstance(second, (Undefined, Maybe)):
            return self._missing(label, first, second, is_generated)
        if values.is_tensor_like(first) and values.is_tensor_like(second):
            return self._output(label, first, second)
        if isinstance(first, TensorList) or isinstance(second, TensorList):
            return self._lists(label, first, second)
        a, b = nest.nodes[type(first)], nest.nodes[type(second)]
        if a is not None and b is not None and first is not None and second is not None:
            if isinstance(first, dict) and isinstance(second, dict) and first.keys() != second.keys():
                return self._dicts(label, first, second)
            if a.outline(first) == b.outline(second):
                return self._structure(label, a, first, second)
            if isinstance(first, list) and isinstance(second, list):
                return self._lists(label, first, second)
        elif a is None and b is None and _equal(first, second):
            return lambda outs: first
        raise self._mismatch(label, first, second)

    def _mismatch(self, label: str, first: Any, second: Any) -> AutographError:
        one, two = values.described(first), values.described(second)
        fix = "let both branches give it a tensor or a number"
        if first is None or second is None:
            fix = "give it a tensor of the same shape and dtype, such as hr.zeros, in place of None"
        elif isinstance(first, str) and isinstance(second, str):
            fix = "make it a tensor (hr.constant), or choose the text outside of the conditional"
        return AutographError(
            f"{_called(label)} has values that a tensor cannot choose from: in the branch at {self._lines[0]} it is "
            f"{one}, in the branch at {self._lines[1]} it is {two}; {fix}"
        )

    def _one_sided(self, label: str, value: Any, side: int) -> Rebuild:
        """Returns a variable of a conditional whose other branch raises."""
        if values.is_tensor_like(value):
            if not values.is_symbolic(value):
                return lambda outs: value
            sides = (value, None) if side == 0 else (None, value)
            self.outputs.append(Output(sides, value.dtype.base, values.is_weak_value(value)))
            k = len(self.outputs) - 1
            return lambda outs: outs[k]
        node = nest.nodes[type(value)]
        if node is None:
            return lambda outs: value
        parts = [
            self._one_sided(f"{label}{node.path(k)}", p, side) for k, p in zip(node.keys(value), node.parts(value))
        ]
        rebuild = node.rebuilder(value)
        return lambda outs: rebuild([p(outs) for p in parts])

    def _missing(self, label: str, first: Any, second: Any, is_generated: bool) -> Rebuild:
        if isinstance(first, Undefined) and isinstance(second, Undefined):
            found = first if first.reason else second
            return lambda outs: found
        side = 1 if isinstance(first, Undefined) else 0
        if is_generated:
            return self._one_sided(label, first if side == 0 else second, side)
        if self._jumps or isinstance(first, Maybe) or isinstance(second, Maybe):
            return self._maybe(label, first, second)
        gone: Any = second if side == 0 else first
        reason = gone.reason or (
            "'{name}' has a value only in the branch at "
            f"{self._lines[side]}; it has none in the branch at {self._lines[1 - side]}, which a tensor may choose. "
            "Assign it there, or before the conditional"
        )
        missing = Undefined(reason)
        return lambda outs: missing

    def _maybe(self, label: str, first: Any, second: Any) -> Rebuild:
        """Returns a variable that a jump may leave without a value."""
        sides = [x.value if isinstance(x, Maybe) else x for x in (first, second)]
        has = [x.has if isinstance(x, Maybe) else not isinstance(x, Undefined) for x in (first, second)]
        if isinstance(first, Undefined) or isinstance(second, Undefined):
            side = 1 if isinstance(first, Undefined) else 0
            value = self._one_sided(label, sides[side], side)
        else:
            value = self.value(label, *sides)
        holds = self._output(label, *has)
        reason = next((x.reason for x in (first, second) if isinstance(x, Maybe)), "") or (
            "cannot access local variable '{name}' where it is not associated with a value: it is assigned only in a "
            f"branch at {self._lines[1 if isinstance(first, Undefined) else 0]}"
        )
        return lambda outs: Maybe(value(outs), holds(outs), reason)

    def _output(self, label: str, first: Any, second: Any) -> Rebuild:
        if values.is_number(first) and first.__class__ is second.__class__ and first == second:
            return lambda outs: first
        known = self._known.get((id(first), id(second)))
        if known is not None and not values.is_number(first) and not values.is_number(second):
            return lambda outs: outs[known]
        found = values.common_dtype(first, second)
        if found is None:
            raise AutographError(
                f"{_called(label)} has different dtypes in two branches: {values.described(first)} in the branch at "
                f"{self._lines[0]}, and {values.described(second)} in the branch at {self._lines[1]}. Cast one of them "
                "(hr.cast)"
            )
        self.outputs.append(Output((first, second), *found))
        k = self._known[id(first), id(second)] = len(self.outputs) - 1
        return lambda outs: outs[k]

    def _structure(self, label: str, node: Any, first: Any, second: Any) -> Rebuild:
        other: Any = nest.nodes[type(second)]
        parts = [
            self.value(f"{label}{node.path(k)}", x, y)
            for k, x, y in zip(node.keys(first), node.parts(first), other.parts(second), strict=True)
        ]
        rebuild = node.rebuilder(nest.merged(first, second) if node.is_composite else first)
        return lambda outs: rebuild([p(outs) for p in parts])

    def _dicts(self, label: str, first: dict[Any, Any], second: dict[Any, Any]) -> Rebuild:
        keys = list(dict.fromkeys([*first, *second]))
        missing = Undefined()
        parts = {k: self.value(f"{label}[{k!r}]", first.get(k, missing), second.get(k, missing)) for k in keys}
        return lambda outs: {k: p(outs) for k, p in parts.items()}

    def _lists(self, label: str, first: Any, second: Any) -> Rebuild:
        """Returns a list that has different lengths in the branches: a tensor list."""
        spec = list_spec(label, [*_elements(first), *_elements(second)])
        if spec is None:
            raise self._mismatch(label, first, second)
        n = 1 if isinstance(spec, ListSpec) else len(spec.specs)
        start = len(self.outputs)
        sides = _Flows(first, spec), _Flows(second, spec)
        for k in range(n):
            self.outputs.append(Output((_Flow(sides[0], k), _Flow(sides[1], k)), dtypes.variant, False))
        if isinstance(spec, ListSpec):
            return lambda outs: TensorList(outs[start], spec)
        return lambda outs: StructuredList([TensorList(outs[start + k], one) for k, one in enumerate(spec.specs)], spec)


class _Flows:
    """A list of one branch that becomes a list of its graph."""

    def __init__(self, items: Any, spec: Spec) -> None:
        self._items = items
        self._spec = spec
        self._made: list[TensorList] | None = None

    def flow(self, k: int) -> Any:
        """Returns the tensor list of a leaf in the current graph."""
        if self._made is None:
            self._made = (self._items if isinstance(self._items, TensorList) else made(self._items, self._spec)).parts()
        return self._made[k].flow


@record(frozen=True, slots=True)
class _Flow:
    """One of the tensor lists of a list.

    Attributes:
      of: the list.
      index: the number of the leaf.
    """

    of: _Flows
    index: int


def flow_of(x: Any) -> Any:
    """Returns the value of one side of an output in the current graph."""
    return x.of.flow(x.index) if isinstance(x, _Flow) else x


def _elements(x: Any) -> list[Any]:
    return [x] if isinstance(x, TensorList) else list(x)


def _equal(first: Any, second: Any) -> bool:
    try:
        return type(first) is type(second) and bool(first == second or values.is_same_function(first, second))
    except (TypeError, ValueError):
        return False


def _called(label: str) -> str:
    return "the return value" if label.startswith("return_value_") else f"'{label}'"
