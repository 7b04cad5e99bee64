"""Firings of a recorded step as rows of numbers, from its log.

A log has one of two forms: the executor's records (`firing_log`), or events (`step_events`) from workers of a cluster,
which have summaries of the values. `Firings` reads both. It finds the tags, the times of iterations, the crossings and
the causes of deadness; `observe.assembly` makes the document of them.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import step_events
from headrace.execute import plan as plans
from headrace.execute.blame import dead_cause
from headrace.execute.events import output_values
from headrace.observe.firing_log import FIRING
from headrace.observe.summaries import NO_VALUE, Summary
from headrace.records import record

if TYPE_CHECKING:
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import DeadCause, Frame, Iteration, Origin
    from headrace.inspect.program_document import ProgramDocument
    from headrace.observe.firing_log import FiringLog

_PART: Final = re.compile(r"(?:^|/)(.+?)#(\d+)(?=/|$)")  # a frame of a tag, with its iteration

Outputs = Sequence[Any] | None


@record(slots=True)
class Rows:
    """Firings: a list for each column, with one entry for each firing.

    Attributes:
      node: the nodes.
      tag: the tags.
      begin: the begins (ns).
      end: the ends (ns).
      dead: whether they fired dead.
      cause: causes of deadness, or None.
      outputs: the values of the outputs, or None.
      device: the devices.
      waited: whether the time is a wait: for a token of another device, for a queue, or for the end of a call.
    """

    node: list[int]
    tag: list[int]
    begin: list[int]
    end: list[int]
    dead: list[bool]
    cause: list[int | None]
    outputs: list[Outputs]
    device: list[int]
    waited: list[bool]

    def add(
        self,
        node: int,
        tag: int,
        begin: int,
        end: int,
        dead: bool,
        cause: int | None,
        outputs: Outputs,
        device: int,
        waited: bool = False,
    ) -> None:
        """Adds a firing."""
        self.node.append(node)
        self.tag.append(tag)
        self.begin.append(begin)
        self.end.append(end)
        self.dead.append(dead)
        self.cause.append(cause)
        self.outputs.append(outputs)
        self.device.append(device)
        self.waited.append(waited)


@record(slots=True)
class Transfer:
    """A token that crossed from a device to another.

    Attributes:
      source: the device of the Send.
      to: the device of the Recv.
      dead: whether the token is dead.
      sent: the time of sending (ns), or -1.
      received: the time of arrival (ns), or -1.
      send: the Send, or -1.
      recv: the Recv, or -1.
    """

    source: int
    to: int
    dead: bool
    sent: int = -1
    received: int = -1
    send: int = -1
    recv: int = -1


class Firings:
    """Rows of a step, with its tags, iterations and crossings.

    Args:
      program: the nodes and frames.

    Attributes:
      rows: the firings, of one part after the other, each in the order of ends.
      tags: the tags, as in the document.
      causes: the causes of deadness, as in the document.
      calls: tag of a call's frame → the node of the call.
      times: (device, tag) → times of opening and freeing there (ns), the latter -1 if the step ended before.
      openers: (device, tag) → row of the firing that let the iteration open there.
      transfers: (edge, tag) → the token that crossed.
    """

    def __init__(self, program: ProgramDocument) -> None:
        self.rows = Rows([], [], [], [], [], [], [], [], [])
        self.tags: list[dict[str, Any]] = [{"frame": 0, "iteration": 0, "parent": -1, "text": ""}]
        self.causes: list[dict[str, Any]] = []
        self.calls: dict[int, int] = {}
        self.times: dict[tuple[int, int], tuple[int, int]] = {}
        self.openers: dict[tuple[int, int], int] = {}
        self.transfers: dict[tuple[str, int], Transfer] = {}
        self._program = program
        self._tag_of: dict[str, int] = {"": 0}
        self._cause_of: dict[Any, int] = {}

    # *** the executor's records ***

    def add_log(self, log: FiringLog) -> None:
        """Adds the firings of one part."""
        index, flat = self._program.index, log.firings
        nodes, its, values = flat[0::FIRING], flat[1::FIRING], flat[4::FIRING]
        tags = {it: self._tag(it) for it in {id(i): i for i in (*its, *log.iterations[1::3])}.values()}
        self._add_crossings(log, tags)
        results = _results(nodes, its, values)
        first, device = len(self.rows.node), self._program.device(log.device)
        for node, it, begin, end, given in zip(nodes, its, flat[2::FIRING], flat[3::FIRING], values, strict=True):
            live, is_dead = node.live, node.kind == plans.DEAD
            cause = self._cause(given[0]) if is_dead else None
            outputs = None if is_dead else _outputs(live, it, given, results)
            self.rows.add(index[live.op], tags[it], begin, end, is_dead, cause, outputs, device, live.real in _WAITING)
        opened = zip(log.iterations[0::3], log.iterations[1::3], log.iterations[2::3], strict=True)
        self._add_iterations([(is_open, tags[it], time) for is_open, it, time in opened], first, device)

    def _tag(self, it: Iteration) -> int:
        """Index of the tag of an iteration, after those around it."""
        chain: list[tuple[str, Iteration]] = []
        at: Iteration | None = it
        while at is not None and (text := at.tag) not in self._tag_of:
            chain.append((text, at))
            at = at.frame.parent
        for text, i in reversed(chain):
            frame = i.frame
            parent = -1 if frame.parent is None else self._tag_of[frame.parent.tag]
            tag = self._new_tag(text, self._static_frame(frame), i.index, parent)
            if frame.call is not None:
                self.calls[tag] = self._program.index[frame.call.op]
        return self._tag_of[it.tag]

    def _static_frame(self, frame: Frame) -> int:
        nodes = frame.plan.nodes
        return self._program.firing_frame(self._program.index[nodes[0].op]) if nodes else 0

    def _new_tag(self, text: str, frame: int, iteration: int, parent: int) -> int:
        out = self._tag_of[text] = len(self.tags)
        self.tags.append({"frame": frame, "iteration": iteration, "parent": parent, "text": text})
        return out

    def _add_crossings(self, log: FiringLog, tags: Mapping[Iteration, int]) -> None:
        """Adds the crossings of a part."""
        flat = log.crossings
        for is_sent, node, it, time, origin in zip(*(flat[i::5] for i in range(5)), strict=True):
            attrs, tag = node.op.attrs, tags[it] if it in tags else self._tag(it)
            devices = attrs["send_device"], attrs["recv_device"]
            self._cross(is_sent, node.edge, tag, devices, time, origin is not None, self._program.index[node.op])

    def _cross(
        self, is_sent: bool, edge: str, tag: int, devices: tuple[str, str], time: int, is_dead: bool, node: int
    ) -> None:
        found = self.transfers.get((edge, tag))
        if found is None:
            source, to = map(self._program.device, devices)
            found = self.transfers[edge, tag] = Transfer(source, to, is_dead)
        if is_sent:
            found.sent, found.send = time, node
        else:
            found.received, found.recv = time, node

    def _cause(self, origin: Origin) -> int:
        """Index of the cause of deadness."""
        key = (origin[0].op, origin[1], int(origin[2])) if isinstance(origin, tuple) else origin
        found = self._cause_of.get(key)
        if found is None:
            cause = dead_cause(origin)
            node = self._program.index[origin[0].op] if isinstance(origin, tuple) else self._node_of(cause)
            found = self._cause_of[key] = len(self.causes)
            about = {"op": cause.op.name, "node": node, "where": cause.where}
            self.causes.append({**about, "selector": cause.selector, "value": cause.value})
        return found

    def _node_of(self, cause: DeadCause) -> int:
        return next((i for i, n in enumerate(self._program.nodes) if n["name"] == cause.op.name), -1)

    def _add_iterations(self, events: Iterable[tuple[bool, int, int]], first: int, device: int) -> None:
        """Adds (is an opening, tag, time) of the part whose rows begin at `first`."""
        ends = self.rows.end[first:]
        for is_open, tag, time in events:
            key = device, tag
            known = self.times.get(key)
            if not is_open:
                if known is not None:
                    self.times[key] = (known[0], max(known[1], time))
            elif known is None or time < known[0]:
                self.times[key] = (time, -1 if known is None else known[1])
                row = first + bisect.bisect_left(ends, time)
                if row < len(self.rows.end) and self.rows.begin[row] <= time:  # it opened during this firing
                    self.openers[key] = row

    # *** events ***

    def add_events(self, events: Sequence[step_events.Event]) -> None:
        """Adds the firings of which only events are known."""
        by_device: dict[str, list[step_events.Event]] = {}
        for e in events:
            if isinstance(e, _PLACED):
                device = e.to if isinstance(e, step_events.TokenReceived) else e.device
                by_device.setdefault(device, []).append(e)
        for device, some in by_device.items():
            self._add_part(device, some)

    def _add_part(self, device: str, events: Sequence[step_events.Event]) -> None:
        program, first, at = self._program, len(self.rows.node), self._program.device(device)
        started: dict[tuple[str, str], int] = {}
        heavy = {e.name for e in events if isinstance(e, step_events.StreamSpan)}  # other threads computed these
        opened: list[tuple[bool, int, int]] = []
        crossing: step_events.Crossing | None = None
        for e in events:
            if isinstance(e, step_events.NodeStart):
                started[e.node, e.tag] = e.time
            elif isinstance(e, step_events.NodeEnd):
                node = program.named(device, e.node, e.type, e.frame)
                if crossing is not None:  # a Send or Recv ends after its token has crossed
                    self._cross_event(crossing, node)
                    crossing = None
                begin = started.pop((e.node, e.tag), e.time)
                cause = None if e.cause is None else self._cause(e.cause)
                sizes = None if e.dead else e.sizes
                about = program.nodes[node]["outputs"]
                outputs = _known(e.values, len(about)) or _sized(about, sizes)
                waited = e.waited and e.node not in heavy
                self.rows.add(node, self._tag_of_text(e.tag), begin, e.time, e.dead, cause, outputs, at, waited)
            elif isinstance(e, (step_events.IterationOpen, step_events.IterationFree)):
                opened.append((isinstance(e, step_events.IterationOpen), self._tag_of_text(e.tag), e.time))
            elif isinstance(e, step_events.Crossing):
                crossing = e
        self._add_iterations(opened, first, at)

    def _cross_event(self, e: step_events.Crossing, node: int) -> None:
        is_sent = isinstance(e, step_events.TokenSent)
        self._cross(is_sent, e.edge, self._tag_of_text(e.tag), (e.device, e.to), e.time, e.dead, node)

    def _tag_of_text(self, text: str) -> int:
        """Index of a tag, which is read from its text, after those around it."""
        found = self._tag_of.get(text)
        if found is not None:
            return found
        last = list(_PART.finditer(text))[-1:]
        if not last:
            return 0
        outer = text[: last[0].start()]
        parent = self._tag_of_text(outer)
        name, _, call = last[0].group(1).partition("@")
        frame = self._program.loop_or_function(self.tags[parent]["frame"], name)
        tag = self._new_tag(text, frame, int(last[0].group(2)), parent)
        if call:
            self.calls[tag] = next((i for i, n in enumerate(self._program.nodes) if n["name"] == call), -1)
        return tag

    # *** calls ***

    def parameters(self) -> Iterator[tuple[int, int, int, int]]:
        """Parameters of the calls: (node, tag, the input's node, the input's output)."""
        for tag, call in self.calls.items():
            inputs = self._program.nodes[call]["inputs"] if call >= 0 else []
            for node, position in self._program.params.get(self.tags[tag]["frame"], ()):
                if position < len(inputs):
                    yield node, tag, *inputs[position]


_PLACED: Final = (
    *(step_events.NodeStart, step_events.NodeEnd, step_events.IterationOpen, step_events.IterationFree),
    *(step_events.Crossing, step_events.StreamSpan),
)
_WAITING: Final = (plans.RECV, plans.ASYNC, plans.CALL)


def _results(
    nodes: Sequence[PlanNode], its: Sequence[Iteration], values: Sequence[Any]
) -> dict[tuple[PlanNode, int], dict[int, Any]]:
    """Values of the results of calls: (call, identity of its iteration) → output → value."""
    out: dict[tuple[PlanNode, int], dict[int, Any]] = {}
    for node, it, given in zip(nodes, its, values, strict=True):
        if node.kind == plans.RESULT or (node.kind == plans.READING and node.real == plans.RESULT):
            call, parent = it.frame.call, it.frame.parent
            assert call is not None
            out.setdefault((call, id(parent)), {})[node.position] = given[0]
    return out


def _outputs(
    node: PlanNode, it: Iteration, given: tuple[Any, ...] | None, results: Mapping[tuple[PlanNode, int], Any]
) -> Outputs:
    """Values of the outputs of a live firing; None if there are none."""
    n = node.n_outputs
    if n and node.real == plans.CALL:
        found = results.get((node, id(it)), {})
        return [found.get(k, NO_VALUE) for k in range(n)]
    return _known(output_values(node, it, given) if n and given else (), n)


def _known(values: Sequence[Any] | None, n: int) -> Outputs:
    """Values of the `n` outputs of a row; None if they are not known."""
    return [NO_VALUE if v is None else v for v in values] if n and values and len(values) >= n else None


def _sized(outputs: Sequence[Sequence[Any]], sizes: Sequence[int] | None) -> Outputs:
    """Outputs of which only the sizes are known."""
    if sizes is None or len(sizes) != len(outputs) or not outputs:
        return None
    return [Summary(dtype, "", bytes=n) for (dtype, _), n in zip(outputs, sizes, strict=True)]
