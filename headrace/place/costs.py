"""What operations and transfers cost, in seconds, and how often loops go round.

Before anything has run there are only *estimates*: flops from the records of the ops (`Facts.cost`) and bytes from the
shapes, over what the device can do; where a dimension is not known, a moderate number stands for it. They are good
enough to tell a product of large matrices from an addition of scalars, which is what placing needs most. After a step
was traced there are *measured* costs, and they win (`Costs.from_events`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from headrace import dtypes, trace
from headrace.ir import walk
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU
from headrace.place.trip_count import PrimitiveTripCounts

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation, Tensor
    from headrace.place.cluster import DeviceModel
    from headrace.shapes import Shape

TRIPS: Final = 10  # how often a loop goes round of which nothing is known
_DIMENSION: Final = 32  # what a dimension is that is not known
_COPIED: Final = 1 << 16  # bytes of a constant that each device which reads it has a copy of (`partition.copies`)
_OBJECT: Final = 64  # bytes of a string or another object


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """What is known of a step's costs besides its graph.

    Attributes:
      measured: (operation, type of device) → seconds of one firing; of one that may be dead, on average.
      trips: frame → how often its loop goes round each time it is entered.

    Example:
      >>> Costs(measured={("conv", "CPU"): 0.02}, trips={"while": 100}).trips["while"]
      100
    """

    measured: Mapping[tuple[str, str], float] = dataclasses.field(default_factory=dict)
    trips: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @staticmethod
    def from_events(events: Iterable[trace.Event]) -> Costs:
        """The costs that the events of one step or of several show: medians over firings and entries.

        Where a device has computed something beside its executor (`trace.StreamSpan`), what counts is how long that
        took, not how long it waited for its turn. Events without a device are taken to come from a CPU.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     y = hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
          >>> events = []
          >>> _ = hr.Session(graph=g).run(y, options=hr.RunOptions(listener=events.append))
          >>> list(Costs.from_events(events).trips.values())
          [3.0]
        """
        import statistics  # brings much with it

        begun: dict[tuple[int, str, str, str], int] = {}
        beside: dict[tuple[str, str], list[float]] = {}
        live: dict[tuple[str, str], list[float]] = {}
        idle: list[tuple[tuple[str, str], tuple[str, int, str, str], int]] = []
        entered: dict[tuple[str, int, str, str], int] = {}
        for e in events:
            if isinstance(e, trace.NodeStart):
                begun[e.step, e.node, e.tag, e.device] = e.time
            elif isinstance(e, trace.NodeEnd):
                key = (e.node, _type(e.device))
                start = begun.pop((e.step, e.node, e.tag, e.device), e.time)
                if e.dead:
                    idle.append((key, (e.frame, e.step, e.tag.rpartition("#")[0], e.device), e.iteration))
                else:
                    live.setdefault(key, []).append((e.time - start) / 1e9)
            elif isinstance(e, trace.StreamSpan) and e.stream == "compute":
                beside.setdefault((e.name, _type(e.device)), []).append((e.end - e.time) / 1e9)
            elif isinstance(e, trace.IterationOpen):
                entry = (e.frame, e.step, e.tag.rpartition("#")[0], e.device)
                entered[entry] = max(entered.get(entry, 0), e.iteration)
        # the last iteration of a loop finds that it is over: that its body is dead then is no branch not taken
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
        """How long one firing of `op` takes on `device`."""
        if op.type == "Const" or is_free(op):
            return 0.0
        known = self.measured.get((op.name, device.type))
        if known is not None:
            return known
        if op.opdef.primitive or op.type in ("_Arg", "_Retval") or op.opdef.facts.forwards is not None:
            return device.overhead
        cost = op.opdef.facts.cost
        flops = cost([_guess(t.shape) for t in op.inputs], [_guess(t.shape) for t in op.outputs]) if cost else 0.0
        moved = 0.0 if cost is None else sum(size(t) for t in (*op.inputs, *op.outputs))
        return device.overhead + max((flops or 0.0) / device.flops, moved / device.bandwidth)

    def trips_of(self, tree: FrameTree) -> dict[Frame, float]:
        """How often the loop of each frame goes round each time it is entered: measured, or told by the graph, or a
        guess; 1 for the root."""
        told = PrimitiveTripCounts(tree, self.trips)
        counts: dict[Frame, float] = {}
        for frame in tree.frames:
            n = 1.0 if frame.parent is None else told.count(frame)
            counts[frame] = float(TRIPS) if n is None else n
        return counts


def _type(device: str) -> str:
    return DeviceSpec.from_string(device).type or CPU


def is_free(op: Operation) -> bool:
    """Whether `op` is a small constant, or the Enter of one into every iteration: it is wherever it is wanted."""
    found = walk.constant_behind(op)
    return found is not None and size(found.outputs[0]) <= _COPIED


def size(t: Tensor) -> float:
    """The bytes of `t`, as far as can be told."""
    shape = _guess(t.shape)
    n = 1.0
    for d in shape or ():
        n *= d or 0
    if t.dtype.base in (dtypes.string, dtypes.variant, dtypes.resource):
        return n * _OBJECT
    return n * t.dtype.base.size


def _guess(shape: Shape) -> Shape:
    """`shape`, with a number for each dimension that is not known."""
    return None if shape is None else tuple(_DIMENSION if d is None else d for d in shape)
