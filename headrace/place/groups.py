"""Groups of operations that are placed together.

A `Group` is a set of operations that get one device, with the devices on which it may run. The placer begins with the
groups that the rules demand (`constraints`), joins those whose separation costs too much (`affinity`), and assigns a
device to each of the remaining groups (`greedy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation


@record(slots=True, eq=False)
class Group:
    """Operations that get one device. Equal only to itself.

    Attributes:
      ops: the operations.
      devices: the names of the devices on which all of them may run; never empty once the constraints are solved.
    """

    ops: list[Operation]
    devices: frozenset[str] = frozenset()


class Groups:
    """A partition of operations into groups, which grow by joining.

    Args:
      ops: the operations; each is a group of its own at first.
    """

    def __init__(self, ops: Iterable[Operation]) -> None:
        self._of = {op: Group([op]) for op in ops}

    def __iter__(self) -> Iterator[Group]:
        """Iterates over the groups in the order of their first operations."""
        return iter(dict.fromkeys(self._of.values()))

    def of(self, op: Operation) -> Group:
        """Group of `op`."""
        return self._of[op]

    def unite(self, a: Operation, b: Operation) -> None:
        """Unites the groups of `a` and `b`, even if no device is left for them."""
        into, other = self._of[a], self._of[b]
        if into is other:
            return
        if len(into.ops) < len(other.ops):
            into, other = other, into
        into.ops += other.ops
        into.devices &= other.devices
        for op in other.ops:
            self._of[op] = into

    def join(self, a: Operation, b: Operation) -> bool:
        """Unites the groups of `a` and `b` if they share a device.

        Returns:
          Whether `a` and `b` are in one group now.
        """
        if self._of[a].devices.isdisjoint(self._of[b].devices):
            return self._of[a] is self._of[b]
        self.unite(a, b)
        return True


class ColocationConstraints:
    """Operations that must be on one device, and the reasons.

    Args:
      ops: the operations.

    Attributes:
      groups: the colocation groups.
    """

    def __init__(self, ops: Iterable[Operation]) -> None:
        self.groups = Groups(ops)
        self._why: list[tuple[Operation, Operation, str]] = []

    def tie(self, a: Operation, b: Operation, why: str) -> None:
        """Ties `a` to `b`; `why` is a clause with the placeholders {a} and {b}."""
        if self.groups.of(a) is not self.groups.of(b):
            self.groups.unite(a, b)
            self._why.append((a, b, why))

    def tie_all(self, ops: Sequence[Operation], why: str) -> None:
        """Ties all of `ops` together, with the same reason."""
        for op in ops[1:]:
            self.tie(ops[0], op, why)

    def reasons(self, a: Operation, b: Operation) -> list[str]:
        """Reasons for the colocation of `a` and `b`: a chain of clauses between them."""
        near: dict[Operation, list[tuple[Operation, str]]] = {}
        for x, y, why in self._why:
            text = why.replace("{a}", f"'{x.name}'").replace("{b}", f"'{y.name}'")
            near.setdefault(x, []).append((y, text))
            near.setdefault(y, []).append((x, text))
        came: dict[Operation, tuple[Operation, str] | None] = {a: None}
        todo = [a]
        for op in todo:
            for other, text in near.get(op, ()):
                if other not in came:
                    came[other] = (op, text)
                    todo.append(other)
        out: list[str] = []
        step = came.get(b)
        while step is not None:
            out.append(step[1])
            step = came[step[0]]
        return list(dict.fromkeys(reversed(out)))
