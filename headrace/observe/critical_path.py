"""Critical path of a recorded step: the chain of tokens that determined its end.

A token's firing starts when its last input has arrived. So the path is found backwards: from the live token that ended
last to the input that arrived last, and so on, up to a token without inputs. The edges are those of the graph, with the
tags that the rules of frames give (`execute.frames`):

* the input of an Enter's reader comes from the iteration around the frame, and that of a constant Enter too;
* the NextIteration at a loop's Merge is of the iteration before;
* an Exit is the live one among the iterations of its frame;
* a Merge has waited for the first live input only;
* a parameter of a function has the inputs of the call, and an output of a call the result in its frame;
* a Recv has its Send.

An iteration that `parallel_iterations` held back has one edge more: from the firing that let it open to the first
firings in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.records import record

if TYPE_CHECKING:
    from typing import Any

_ENTERS: Final = frozenset({"Enter", "RefEnter"})
_EXITS: Final = frozenset({"Exit", "RefExit"})
_MERGES: Final = frozenset({"Merge", "RefMerge"})
_NEXTS: Final = frozenset({"NextIteration", "RefNextIteration"})


@record(frozen=True, slots=True)
class Tokens:
    """Tokens of a step with what determines their inputs.

    Attributes:
      nodes: the nodes of a document.
      tags: the tags of a document.
      node: for each token its node.
      tag: for each token its tag.
      end: for each token the time of its end.
      dead: for each token whether it is dead.
      calls: tag of a call's frame → the node of the call.
      results: (node of a call's function frame, output) → the node of the result. The key is the index of the frame.
      held: (device, tag) → row of the firing that let the iteration open there.
    """

    nodes: Sequence[Mapping[str, Any]]
    tags: Sequence[Mapping[str, Any]]
    node: np.ndarray
    tag: np.ndarray
    end: np.ndarray
    dead: np.ndarray
    calls: Mapping[int, int]
    results: Mapping[tuple[int, int], int]
    held: Mapping[tuple[int, int], int]


class Dependencies:
    """Inputs of the tokens of a step.

    Args:
      tokens: the tokens.
      transfers: (tag, Send, Recv) of each token that crossed between devices.

    Attributes:
      sends: row of a Recv → row of its Send.
    """

    def __init__(self, tokens: Tokens, transfers: Iterable[tuple[int, int, int]] = ()) -> None:
        self._tokens = tokens
        self._n_tags = max(1, len(tokens.tags))
        keys = tokens.node.astype(np.int64) * self._n_tags + tokens.tag
        self._rows = np.argsort(keys, kind="stable")
        self._keys = keys[self._rows]
        self._before = {
            (t["parent"], t["frame"], t["iteration"], tokens.calls.get(i, -1)): i for i, t in enumerate(tokens.tags)
        }
        self._child = {(call, tokens.tags[tag]["parent"]): tag for tag, call in tokens.calls.items()}
        self._exits: dict[int, dict[int, int]] = {}  # Exit → tag around its frame → row
        self.sends: dict[int, int] = {}
        for tag, send, recv in transfers:
            sent, received = self.row(send, tag), self.row(recv, tag)
            if sent is not None and received is not None:
                self.sends[received] = sent

    def row(self, node: int, tag: int) -> int | None:
        """Row of the token of `node` with `tag`; None if it did not fire."""
        if tag < 0 or node < 0:
            return None
        key = node * self._n_tags + tag
        i = int(self._keys.searchsorted(key))
        return int(self._rows[i]) if i < len(self._keys) and self._keys[i] == key else None

    def source(self, node: int, output: int, reader: int, tag: int) -> int | None:
        """Row of the token from an output of `node` at `reader` with `tag`."""
        t = self._tokens
        kind = t.nodes[node]["type"]
        if kind in _ENTERS:
            if t.nodes[reader]["type"] in _MERGES and t.tags[tag]["iteration"]:
                return None  # a loop variable enters in iteration 0
            return self.row(node, t.tags[tag]["parent"])
        if kind in _NEXTS and t.nodes[reader]["type"] in _MERGES:
            return self.row(node, self._previous(tag))
        if kind in _EXITS:
            return self._exit(node, tag)
        child = self._child.get((node, tag))
        if child is not None and output >= 0:
            result = t.results.get((t.tags[child]["frame"], output))
            if result is not None:
                return self.row(result, child)
        return self.row(node, tag)

    def of(self, row: int) -> Iterator[int]:
        """Rows of the tokens for which the firing of `row` has waited."""
        t = self._tokens
        node, tag = int(t.node[row]), int(t.tag[row])
        about = t.nodes[node]
        data = [self.source(n, k, node, tag) for n, k in about["inputs"]]
        if tag in t.calls and about["type"] == "_Arg":
            call, outside = t.calls[tag], t.tags[tag]["parent"]
            data = [self.source(n, k, call, outside) for n, k in t.nodes[call]["inputs"]]
        found = [r for r in data if r is not None]
        if about["type"] in _MERGES and not t.dead[row]:
            found = sorted((r for r in found if not t.dead[r]), key=lambda r: t.end[r])[:1]
        yield from found
        for c in about["controls"]:
            r = self.source(c, -1, node, tag)
            if r is not None:
                yield r
        for r in (self.sends.get(row), t.held.get((about["device"], tag))):
            if r is not None:
                yield r

    def _previous(self, tag: int) -> int:
        about = self._tokens.tags[tag]
        key = (about["parent"], about["frame"], about["iteration"] - 1, self._tokens.calls.get(tag, -1))
        return self._before.get(key, -1)

    def _exit(self, node: int, outside: int) -> int | None:
        found = self._exits.get(node)
        if found is None:
            t, found = self._tokens, {}
            first, last = np.searchsorted(self._keys, [node * self._n_tags, (node + 1) * self._n_tags])
            for r in self._rows[first:last].tolist():
                around = t.tags[int(t.tag[r])]["parent"]
                if around not in found or not t.dead[r]:
                    found[around] = r
            self._exits[node] = found
        return found.get(outside)


def critical_path(dependencies: Dependencies, end: np.ndarray, dead: np.ndarray) -> list[int]:
    """Returns the rows of the critical path, in the order of time.

    Args:
      dependencies: the inputs of the tokens.
      end: for each token the time of its end.
      dead: for each token whether it is dead.
    """
    if not len(end):
        return []
    row = int(np.argmax(end if dead.all() else np.where(dead, -1, end)))
    path, seen = [row], {row}
    while True:
        send = dependencies.sends.get(row)  # its token may arrive before it has ended, on another thread
        before = [r for r in dependencies.of(row) if r not in seen and (end[r] <= end[row] or r == send)]
        if not before:
            return path[::-1]
        row = max(before, key=lambda r: end[r])
        seen.add(row)
        path.append(row)
