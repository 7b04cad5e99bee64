"""Operations that stand together.

A `Group` is a set of operations that get one device, and the devices that this may be. The placer begins with the
groups that the rules demand (`constraints`), joins those that had better not be parted (`affinity`), and gives each of
what is left a device (`greedy`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.ir.graph import Operation


@dataclasses.dataclass(slots=True, eq=False)
class Group:
    """Operations that get one device. Equal only to itself.

    Attributes:
      ops: they.
      devices: the names of the devices that they all may stand on; never empty once the constraints are solved.
    """

    ops: list[Operation]
    devices: frozenset[str] = frozenset()


class Groups:
    """A partition of operations into groups, which grow by joining."""

    def __init__(self, ops: Iterable[Operation]) -> None:
        self._of = {op: Group([op]) for op in ops}

    def __iter__(self) -> Iterator[Group]:
        """The groups, in the order of their first operations."""
        return iter(dict.fromkeys(self._of.values()))

    def of(self, op: Operation) -> Group:
        """The group that `op` is in."""
        return self._of[op]

    def unite(self, a: Operation, b: Operation) -> None:
        """Puts the groups of `a` and `b` together, whatever devices they may stand on."""
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
        """Puts the groups of `a` and `b` together if there is a device that suits both; whether they are together."""
        if self._of[a].devices.isdisjoint(self._of[b].devices):
            return self._of[a] is self._of[b]
        self.unite(a, b)
        return True


class ColocationConstraints:
    """Which operations must stand together, and why.

    Attributes:
      groups: they, as groups.
    """

    def __init__(self, ops: Iterable[Operation]) -> None:
        self.groups = Groups(ops)
        self._why: list[tuple[Operation, Operation, str]] = []

    def tie(self, a: Operation, b: Operation, why: str) -> None:
        """`a` and `b` must stand together. `why` is a clause in which they are {a} and {b}."""
        if self.groups.of(a) is not self.groups.of(b):
            self.groups.unite(a, b)
            self._why.append((a, b, why))

    def tie_all(self, ops: Sequence[Operation], why: str) -> None:
        """All of `ops` must stand together, by the same clause."""
        for op in ops[1:]:
            self.tie(ops[0], op, why)

    def reasons(self, a: Operation, b: Operation) -> list[str]:
        """Why `a` and `b`, of one group, must stand together: a chain of clauses from the one to the other."""
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
