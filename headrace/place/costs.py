"""Costs of operations and transfers in seconds, and trip counts of loops.

Before the first run there are *estimates* only: flops from the records of the ops (`Facts.cost`) and bytes from the
shapes, divided by the speeds of the device. A moderate number stands for an unknown dimension. The estimates are good
enough to distinguish a product of large matrices from an addition of scalars, which placement needs most. After a step
was traced there are *measured* costs, and they take precedence (`Costs.from_events`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace import dtypes, step_events, thresholds
from headrace.ir import walk
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.device import DeviceSpec
from headrace.ir.function import owned
from headrace.ir.kernel import CPU
from headrace.place.cluster import SAME_PROCESSOR
from headrace.place.trip_count import PrimitiveTripCounts
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation, Tensor
    from headrace.place.cluster import DeviceModel
    from headrace.shapes import Shape


@record(frozen=True, slots=True)
class Costs:
    """Measured costs of a step, and estimates for the rest.

    Attributes:
      measured: (operation, type of device) → seconds of one firing; the average if some of its firings are dead. Types
        that share a processor (`cluster.SAME_PROCESSOR`) share figures, until both have one.
      trips: frame → trip count of its loop for each entry.

    Example:
      >>> Costs(measured={("conv", "CPU"): 0.02}, trips={"while": 100}).trips["while"]
      100
    """

    measured: Mapping[tuple[str, str], float] = dataclasses.field(default_factory=dict)
    trips: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @staticmethod
    def from_events(events: Iterable[step_events.Event]) -> Costs:
        """Computes costs from the events of one or several steps: medians over firings and entries.

        For work on a stream (`step_events.StreamSpan`) the time of the work counts, without the wait for its turn.
        Events without a device count as events of a CPU.

        Args:
          events: the events of a listener.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     y = hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
          >>> events = []
          >>> _ = hr.Session(graph=g).run(y, options=hr.RunOptions(listener=events.append))
          >>> list(Costs.from_events(events).trips.values())
          [3.0]
        """
        import statistics  # a slow import

        begun: dict[tuple[int, str, str, str], int] = {}
        beside: dict[tuple[str, str], list[float]] = {}
        live: dict[tuple[str, str], list[float]] = {}
        idle: list[tuple[tuple[str, str], tuple[str, int, str, str], int]] = []
        entered: dict[tuple[str, int, str, str], int] = {}
        for e in events:
            if isinstance(e, step_events.NodeStart):
                begun[e.step, e.node, e.tag, e.device] = e.time
            elif isinstance(e, step_events.NodeEnd):
                key = (e.node, _type(e.device))
                start = begun.pop((e.step, e.node, e.tag, e.device), e.time)
                if e.dead:
                    idle.append((key, (e.frame, e.step, e.tag.rpartition("#")[0], e.device), e.iteration))
                else:
                    live.setdefault(key, []).append((e.time - start) / 1e9)
            elif isinstance(e, step_events.StreamSpan) and e.stream == "compute":
                beside.setdefault((e.name, _type(e.device)), []).append((e.end - e.time) / 1e9)
            elif isinstance(e, step_events.IterationOpen):
                entry = (e.frame, e.step, e.tag.rpartition("#")[0], e.device)
                entered[entry] = max(entered.get(entry, 0), e.iteration)
        # the last iteration of a loop has a dead body, which is not a branch that was not taken
        dead = Counter(key for key, entry, n in idle if not entry[0] or n < entered.get(entry, 0))
        measured = {
            key: statistics.median(beside.get(key, each)) * len(each) / (len(each) + dead[key])
            for key, each in live.items()
        }
        measured.update(dict.fromkeys(set(dead) - set(live), 0.0))
        counts: dict[str, list[int]] = {}
        for (frame, *_), n in entered.items():
            if frame:
                counts.setdefault(frame, []).append(n)
        return Costs(measured, {frame: float(statistics.median(each)) for frame, each in counts.items()})

    def seconds(self, op: Operation, device: DeviceModel) -> float:
        """Seconds of one firing of `op` on `device`."""
        if op.type == "Const" or is_free(op):
            return 0.0
        known = self.measured.get((op.name, device.type))
        if known is not None:
            return known
        known = self.measured.get((op.name, SAME_PROCESSOR.get(device.type, "")))
        if known is not None:  # not an estimate: that of a slow machine is too low, and the operation would move
            return known + device.overhead
        facts = op.opdef.facts
        if op.opdef.structured and op.opdef.structured != "Call":
            once = sum(self.seconds(o, device) for graph in owned(op) for o in graph.operations)
            return device.overhead + once * _trips(op)
        if op.opdef.primitive or facts.graph_end or facts.forwards is not None:
            return device.overhead
        cost = op.opdef.facts.cost
        flops = cost([_guess(t.shape) for t in op.inputs], [_guess(t.shape) for t in op.outputs]) if cost else 0.0
        moved = 0.0 if cost is None else sum(size(t) for t in (*op.inputs, *op.outputs))
        return device.overhead + max((flops or 0.0) / device.flops, moved / device.bandwidth)

    def trips_of(self, tree: FrameTree) -> dict[Frame, float]:
        """Trip count of each frame for each entry; 1 for the root.

        It is measured, or derived from the graph, or else a guess.
        """
        told = PrimitiveTripCounts(tree, self.trips)
        counts: dict[Frame, float] = {}
        for frame in tree.frames:
            n = 1.0 if frame.parent is None else told.count(frame)
            counts[frame] = float(thresholds.UNKNOWN_TRIPS) if n is None else n
        return counts


def _trips(op: Operation) -> float:
    """Expected number of iterations of a structured operation; 1 for a conditional."""
    if op.opdef.structured != "While":
        return 1.0
    counted = trip_count(op)
    return float(thresholds.UNKNOWN_TRIPS if counted is None or counted.most is None else counted.most)


def _type(device: str) -> str:
    return DeviceSpec.from_string(device).type or CPU


def is_free(op: Operation) -> bool:
    """Whether `op` is a small constant, or an Enter of one, copied to each reader."""
    found = walk.constant_behind(op)
    return found is not None and size(found.outputs[0]) <= thresholds.COPIED_CONSTANT_BYTES


def size(t: Tensor) -> float:
    """Bytes of `t`, estimated if its shape is not fully known."""
    shape = _guess(t.shape)
    n = 1.0
    for d in shape or ():
        n *= d or 0
    if t.dtype.base in (dtypes.string, dtypes.variant, dtypes.resource):
        return n * thresholds.OBJECT_BYTES
    return n * t.dtype.base.size


def _guess(shape: Shape) -> Shape:
    """Replaces each unknown dimension of `shape` by a number."""
    return None if shape is None else tuple(thresholds.UNKNOWN_DIMENSION if d is None else d for d in shape)
