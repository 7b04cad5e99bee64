"""Nests, copies and products that a region repeats, such as those of an unrolled loop.

LLVM takes tens of milliseconds for a nest, and longer for each in a long function. So the first equal nests are part of
the code around them, and the later ones call a function that they share. So it is with copies. Products have functions
anyway. Small ones are inserted into their callers, but only some times.

In a loop a call costs a few nanoseconds of each iteration, so more copies are made there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import thresholds
from headrace.schedule.scalar_expressions import digest
from headrace.schedule.select import Map
from headrace.targets.native import threads

if TYPE_CHECKING:
    from headrace.schedule.program import Value
    from headrace.targets.native.fusion import Nest
    from headrace.targets.native.llvm_text import Function


class Repeats:
    """Functions of repeated nests, and numbers of copies, of one region."""

    def __init__(self) -> None:
        self._copies: Counter[Hashable] = Counter()
        self._functions: dict[Hashable, str] = {}

    def is_call(self, key: Hashable, is_in_loop: bool) -> bool:
        """Whether the next code with a key is a call and no copy."""
        most = thresholds.COPIES_IN_LOOPS if is_in_loop else thresholds.COPIES_OF_CODE
        if self._copies[key] >= most:
            return True
        self._copies[key] += 1
        return False

    def call(
        self,
        f: Function,
        key: Hashable,
        captured: Sequence[tuple[str, str]],
        body: Callable[[Function, list[str]], None],
        is_in_loop: bool,
    ) -> bool:
        """Prints a call of a nest's function; returns False for a copy.

        Args:
          f: The open function.
          key: The key of all that the code depends on, but for the names of values.
          captured: The types and names of values that the code reads. Literals are part of the code.
          body: Prints the function; it receives the new function and the names of the values there.
          is_in_loop: Whether the nest is in a loop of the region.
        """
        key = key, tuple([(kind, "" if _is_name(text) else text) for kind, text in captured])
        if not self.is_call(key, is_in_loop):
            return False
        if key not in self._functions:
            name = self._functions[key] = f.module.unused(f"{f.name}.nest")
            params = [(kind, f"p{k}") for k, (kind, text) in enumerate(captured) if _is_name(text)]
            g = f.module.function(name, "void", params, "nounwind noinline", "internal")
            body(g, [f"%p{k}" if _is_name(text) else text for k, (_, text) in enumerate(captured)])
            g.line("ret void")
        args = ", ".join(f"{kind} {text}" for kind, text in captured if _is_name(text))
        f.line(f"call void @{self._functions[key]}({args})")
        return True

    def run_parts(
        self,
        f: Function,
        key: Hashable,
        captured: Sequence[tuple[str, str]],
        parts: int,
        cost: int,
        body: Callable[[Function, list[str], str], None],
    ) -> None:
        """Prints the run of all parts; equal nests share the function of a part.

        The arguments are those of `threads.each_part`.
        """
        key = key, tuple([(kind, "" if text.startswith("%") else text) for kind, text in captured]), parts
        known = self._functions.get(key, "")
        self._functions[key] = threads.each_part(f, parts, captured, cost, body, "stopped", known)


def nest_key(nest: Nest) -> Hashable:
    """A key of the expressions, dtypes and shapes of a nest."""
    numbers: dict[Value, int] = {}
    for v in (*nest.reads, *nest.made):
        numbers.setdefault(v, len(numbers))
    maps: list[Any] = []
    for m in nest.maps:
        assert isinstance(m.work, Map)
        maps.append((digest([m.work.expression]), tuple([numbers[v] for v in m.inputs])))
    values = tuple([(v.dtype.name, v.shape) for v in numbers])
    return tuple(maps), values, nest.shape, tuple([numbers[v] for v in nest.stored])


def _is_name(text: str) -> bool:
    return text.startswith(("%", "@"))
