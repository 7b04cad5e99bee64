"""Order of the parts of a box, each behind its predecessors."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from headrace.inspect.parts import Node, Part, nodes


def in_order(parts: Sequence[Part]) -> list[Part]:
    """Arranges `parts` in the order of their creation, each behind its predecessors.

    Edges from one iteration to the next are ignored. Any other cycle is cut at its first part.

    Example:
      >>> a, b = Node(1, "a", "Neg", (("b", 2),)), Node(2, "b", "Const")
      >>> [p.name for p in in_order([a, b])]
      ['b', 'a']
    """
    return [parts[i] for i in _sequence(*_edges(parts))]


def _edges(parts: Sequence[Part]) -> tuple[list[list[int]], list[list[int]]]:
    """Predecessors and successors of each part, by position."""
    at: dict[int, int] = {}
    for i, part in enumerate(parts):
        for id in _makes(part):
            at[id] = i
    before = [sorted({j for id in _takes(part) if (j := at.get(id, i)) != i}) for i, part in enumerate(parts)]
    after: list[list[int]] = [[] for _ in parts]
    for i, some in enumerate(before):
        for j in some:
            after[j].append(i)
    return before, after


def _sequence(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> Iterator[int]:
    """Iterates over the positions of parts, each behind its predecessors, the smallest first."""
    waiting = [len(b) for b in before]
    done = [False] * len(before)
    ready = [i for i, n in enumerate(waiting) if not n]
    first = 0
    for _ in before:
        if not ready:  # a cycle
            while done[first]:
                first += 1
            ready.append(first)
        i = heapq.heappop(ready)
        done[i] = True
        yield i
        for j in after[i]:
            if not done[j]:
                waiting[j] -= 1
                if not waiting[j]:
                    heapq.heappush(ready, j)


def _makes(part: Part) -> Iterator[int]:
    """Nodes by which other parts refer to `part`."""
    if isinstance(part, Node):
        yield part.id
    elif part.node is not None:  # the nodes of the graphs that it owns have no outside references
        yield part.node.id
    else:
        for box in part.boxes:
            yield from (n.id for n in nodes(box))


def _takes(part: Part) -> Iterator[int]:
    """Nodes for which `part` waits."""
    if isinstance(part, Node):
        yield from (id for _, id in part.inputs[: 1 if part.goes_back else None])
        yield from (id for _, id in part.controls)
    elif part.node is not None:
        yield from _takes(part.node)
    else:
        for box in part.boxes:
            for n in nodes(box):
                yield from _takes(n)
