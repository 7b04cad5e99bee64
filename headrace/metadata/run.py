"""Options and metadata of a run: times of operations, loops, transfers.

m = hr.RunMetadata()
session.run(y, options=hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE), run_metadata=m)
print(m)

`counters` fills the metadata.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from headrace import step_events
from headrace.records import record

if TYPE_CHECKING:
    from headrace.metadata.cancellation import Cancellation
    from headrace.metadata.step_stats import Firing, StepStats

UNFINISHED: Final = 100
SHOWN: Final = 20  # operations in the text


@record(frozen=True, slots=True)
class NumericsCheck:
    """Settings of a check of all numbers of a run, for `RunOptions(check_numerics=...)`.

    Attributes:
      inf: whether an Inf is an error too; False: only NaN.
      sources: whether a NaN or Inf is an error already in a constant, a feed, a variable or an element of a queue.
      ignore: names of operations whose values are not checked; `*` stands for any characters.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     safe = hr.where(x > 0.0, hr.log(x, name="log"), x)
      >>> session = hr.Session(graph=g)
      >>> session.run(safe, {x: [1.0, 0.0]}, check_numerics=hr.NumericsCheck(ignore=("log",)))
      array([0., 0.], dtype=float32)
      >>> session.run(safe, {x: [1.0, 0.0]}, check_numerics=True)
      Traceback (most recent call last):
      headrace.errors.InvalidArgumentError: 'log' (Log), made at ...
    """

    inf: bool = True
    sources: bool = False
    ignore: tuple[str, ...] = ()


@record(slots=True)
class RunOptions:
    """Options of one run: its deadline, its listener, its trace level and its debugging.

    Attributes:
      timeout_in_ms: time limit in milliseconds, after which the run fails with `DeadlineExceededError`; 0: no limit.
      listener: receives the run's `step_events`; with an attribute `wants_values = True` also the values of all
        outputs.
      ready: a queue of ready nodes that determines the order of firing; for tests (see `execute.records.Ready`). Or a
        function that makes the queue of a device, given its name ("" if the step runs on one device).
      trace_level: any level but NO_TRACE fills the `RunMetadata` of the run from its events. Without a `RunMetadata` it
        has no effect. The other levels are TensorFlow's names; all have the same effect.
      check_numerics: whether the run stops at the first NaN or Inf that an operation makes; a `NumericsCheck` has
        further settings. Such a run is interpreted operation by operation.
      breakpoints: the breakpoints of the run, results of `breakpoint_when`. Such a run is interpreted operation by
        operation.
      profile: the profile that receives the times of the run (`hr.profile`), or None.
      watch: values to return from inside of the step: a result of `hr.watch`, or a list of them. The run then returns a
        pair of the fetched and the watched values.
      output_partition_graphs: whether the `RunMetadata` of the run gets the graph that each device ran.
      cancellation: ends the run when another thread cancels it (`metadata.Cancellation`), or None.

    Source: TensorFlow's `tf.compat.v1.RunOptions`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     got = hr.FIFOQueue(1, [hr.float32]).dequeue()
      >>> hr.Session(graph=g).run(got, options=hr.RunOptions(timeout_in_ms=10))
      Traceback (most recent call last):
      headrace.errors.DeadlineExceededError: Timed out: ...
    """

    timeout_in_ms: int = 0
    listener: step_events.Listener | None = None
    ready: Any = None
    trace_level: int = 0
    check_numerics: bool | NumericsCheck = False
    breakpoints: Sequence[Any] = ()
    profile: Any = None
    watch: Any = None
    output_partition_graphs: bool = False
    cancellation: Cancellation | None = None

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    @property
    def is_observed(self) -> bool:
        """Whether the token machine must fire each node by itself."""
        return not (self.listener is None and self.ready is None and not self.check_numerics and not self.breakpoints)


class RunOptionsMessage(Protocol):
    """A `RunOptions` message, of headrace or TensorFlow."""

    timeout_in_ms: int
    output_partition_graphs: bool

    @property
    def DESCRIPTOR(self) -> Any: ...

    @property
    def trace_level(self) -> Any: ...


class RunMetadataMessage(Protocol):
    """A `RunMetadata` message, of headrace or TensorFlow."""

    @property
    def DESCRIPTOR(self) -> Any: ...

    @property
    def step_stats(self) -> Any: ...


def options_of(given: Any) -> RunOptions:
    """Returns the options of a run; of a message, those that headrace has.

    Args:
      given: a `RunOptions`; or headrace's or TensorFlow's message of that name.

    Raises:
      TypeError: an argument of another type.
    """
    if isinstance(given, RunOptions):
        return given
    if getattr(getattr(given, "DESCRIPTOR", None), "name", None) != "RunOptions":
        raise TypeError(f"options must be a RunOptions, got {given!r} ({type(given).__name__})")
    return RunOptions(
        given.timeout_in_ms,
        trace_level=given.trace_level,
        output_partition_graphs=given.output_partition_graphs,
    )


# *** headrace's own records ***


@record(slots=True)
class Op:
    """Statistics of one operation on one device, over all firings.

    Attributes:
      name: the name of the operation.
      type: the op type.
      device: the full name of the device.
      calls: number of live firings.
      dead: number of dead firings. (A dead token that stops at an Exit or a NextIteration is not a firing.)
      seconds: time of computing in live firings. 0 for a call, whose time is that of its function's operations.
      waited: further seconds between the starts and the ends of its firings, in which it waited for a queue, another
        device or a thread, or, as a call, for the end of its function.
      longest: seconds of the longest firing during which no other node could fire.
      bytes: bytes of all its outputs. An operation that passes its input on (Identity, Enter) counts it again.
    """

    name: str
    type: str
    device: str
    calls: int = 0
    dead: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    longest: float = 0.0
    bytes: int = 0

    @property
    def mean(self) -> float:
        """Average seconds of a live firing."""
        return self.seconds / self.calls if self.calls else 0.0


@record(slots=True)
class LoopInstance:
    """One entry of a loop.

    Attributes:
      tag: the tag of the entry: "outer#3/inner" is the loop `inner` in iteration 3 of `outer`.
      trips: the trip count. (If the run failed: number of iterations that began after the first.)
      most_in_flight: the largest number of iterations that were open at the same time.
    """

    tag: str
    trips: int = 0
    most_in_flight: int = 0


@record(slots=True)
class LoopStats:
    """Statistics of one loop over all of its instances.

    Every device of a loop over several devices counts its iterations. The counts are those of the device with the most.

    Attributes:
      name: the name of the loop's frame.
      parallel_iterations: the largest number of iterations that may be in flight.
      entered: number of live entries of the loop.
      dead: number of dead entries, in a branch that was not taken.
      trips: sum of the trip counts of all entries.
      fewest: the smallest trip count of an entry.
      most: the largest trip count of an entry.
      most_in_flight: the largest number of iterations of one entry that were open at the same time, on any device.
      instances: the first `thresholds.LISTED_LOOP_FIRINGS` live entries, in order.
      devices: the devices of the loop.
      held: number of iterations whose beginning `parallel_iterations` delayed, until an older one had ended.
      last: for a NextIteration, the edge of a loop variable to the next iteration, the number of iterations in which
        its token was the last one.
    """

    name: str
    parallel_iterations: int
    entered: int = 0
    dead: int = 0
    trips: int = 0
    fewest: int = 0
    most: int = 0
    most_in_flight: int = 0
    instances: list[LoopInstance] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    held: int = 0
    last: dict[str, int] = field(default_factory=dict)

    @property
    def bound(self) -> str:
        """Reason why not more iterations were in flight.

        It is "parallel_iterations" if that limit delayed more than half of the iterations. Otherwise it is the
        NextIteration whose token arrived last most often, since an iteration needs the tokens of all loop variables.
        It is "" if the loop ran no iteration.
        """
        if self.held > self.trips / 2:
            return "parallel_iterations"
        return max(self.last, key=lambda name: self.last[name], default="")


@record(slots=True)
class Device:
    """Statistics of one device.

    Attributes:
      name: the full name of the device.
      calls: number of live firings.
      dead: number of dead firings.
      busy: seconds that its executor spent on operations, alive or dead.
      dead_seconds: the part of `busy` for dead firings.
      streams: seconds of work on streams: "compute" (heavy kernels on other threads), "copy" (swapping).
      bytes: bytes of all outputs.
    """

    name: str
    calls: int = 0
    dead: int = 0
    busy: float = 0.0
    dead_seconds: float = 0.0
    streams: dict[str, float] = field(default_factory=dict)
    bytes: int = 0


@record(slots=True)
class Traffic:
    """Tokens that one device sent to another.

    Attributes:
      source: the full name of the sender.
      to: the full name of the receiver.
      tokens: number of live tokens.
      dead: number of dead tokens.
      bytes: bytes of the live tokens.
    """

    source: str
    to: str
    tokens: int = 0
    dead: int = 0
    bytes: int = 0


@record(slots=True)
class RunMetadata:
    """Metadata of a run. `session.run(..., run_metadata=m)` fills it, and clears it before.

    Without a trace (`RunOptions(trace_level=...)` is NO_TRACE) the speed of the run does not change, and only `engine`,
    `seconds` and `error` are filled. With a trace (any other level) the step is interpreted operation by operation, as
    with a listener, and all fields are filled. `str()` of it is a table.

    Source: TensorFlow's `tf.RunMetadata`.

    Attributes:
      engine: the engine of the run: "compiled" or "interpret"; "" before a run.
      seconds: duration of the run, without the preparation for the first run of the step.
      step_id: the number of the step, as in events; None without a trace.
      error: the text of the run's error, or "".
      ops: statistics by operation and device, in the order of decreasing time.
      loops: statistics of loops, in the order of their first entries.
      devices: statistics of devices, by name.
      sent: tokens between each pair of devices.
      unfinished: operations that had started and not ended when the run failed, with their tags; the first
        `UNFINISHED`.
      left_out: number of firings that `step_stats` leaves out.
      cost_graph: always None; a field of TensorFlow's message.
      partition_graphs: with `RunOptions(output_partition_graphs=True)`, a `headrace.pb.GraphDef` for each device, of
        the operations that it ran.
      function_graphs: always empty; a field of TensorFlow's message.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     i = hr.while_loop(lambda i: i < 5, lambda i: i + 1, [0], parallel_iterations=3, name="count")[0]
      >>> m = hr.RunMetadata()
      >>> hr.Session(graph=g).run(i, options=hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE), run_metadata=m)
      np.int32(5)
      >>> m.engine, m.loops[0].trips, m.loops[0].most_in_flight <= 3
      ('interpret', 5, True)
      >>> [(op.calls, op.bytes) for op in m.ops if op.type == "AddV2"]
      [(5, 20)]
    """

    cost_graph: Any = None
    partition_graphs: list[Any] = field(default_factory=list)
    function_graphs: list[Any] = field(default_factory=list)
    engine: str = ""
    seconds: float = 0.0
    step_id: int | None = None
    error: str = ""
    ops: list[Op] = field(default_factory=list)
    loops: list[LoopStats] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    sent: list[Traffic] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    left_out: int = 0
    _listed: dict[str, list[Firing]] = field(default_factory=dict, init=False, repr=False)
    _step_stats: StepStats | None = field(default=None, init=False, repr=False)

    @property
    def step_stats(self) -> StepStats:
        """The first `thresholds.LISTED_FIRINGS` live firings, in TensorFlow's records."""
        if self._step_stats is None:  # built on demand, because this takes longer than the rest
            from headrace.metadata.step_stats import step_stats

            self._step_stats = step_stats(self._listed)
        return self._step_stats

    @property
    def calls(self) -> int:
        """Number of live firings."""
        return sum(d.calls for d in self.devices)

    @property
    def dead(self) -> int:
        """Number of dead firings."""
        return sum(d.dead for d in self.devices)

    @property
    def bytes(self) -> int:
        """Bytes of the outputs of all operations."""
        return sum(d.bytes for d in self.devices)

    def clear(self) -> None:
        """Resets all fields to their initial values."""
        RunMetadata.__init__(self)

    def to_dict(self, step_stats: bool = False) -> dict[str, Any]:
        """Converts all fields to dicts, lists, strings and numbers.

        Args:
          step_stats: whether to include the list of firings, which is long.
        """
        left = ("cost_graph", "partition_graphs", "function_graphs")
        out = {k: v for k, v in dataclasses.asdict(self).items() if k not in left and not k.startswith("_")}
        out |= {"calls": self.calls, "dead": self.dead, "bytes": self.bytes}
        return out | ({"step_stats": dataclasses.asdict(self.step_stats)} if step_stats else {})

    def to_json(self, step_stats: bool = False) -> str:
        """Converts all fields to JSON, see `to_dict`."""
        import json  # a slow import, needed only here

        return json.dumps(self.to_dict(step_stats), indent=1)

    def __str__(self) -> str:
        return "\n".join(_text(self))


# *** as text ***


def show_seconds(seconds: float) -> str:
    """Formats a time with a suitable unit: "1.5 s", "12 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def show_bytes(n: int) -> str:
    """Formats a number of bytes with a suitable unit: "640 B", "1.5 MiB"."""
    size = float(n)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def _text(m: RunMetadata) -> Iterator[str]:
    if not m.engine:
        yield "no run yet"
        return
    step = "the run" if m.step_id is None else f"step {m.step_id}"
    how = {"compiled": "compiled", "interpret": "interpreted"}[m.engine]
    yield f"{step}: {show_seconds(m.seconds)}, {how}" + (f", failed: {m.error}" if m.error else "")
    if m.step_id is None:
        yield "no trace: nothing more is known (give RunOptions(trace_level=RunOptions.FULL_TRACE))"
        return
    short = {d.name: d.name.rpartition("/device:")[2] for d in m.devices}
    if len(set(short.values())) < len(short):  # on several machines
        short = {name: name for name in short}
    yield f"{m.calls:,} operations fired alive, {m.dead:,} dead; their outputs are {show_bytes(m.bytes)}"
    yield from _table(
        ("time", "mean", "longest", "waited", "alive", "dead", "outputs", "operation"),
        [
            (
                *(show_seconds(x) if x else "" for x in (op.seconds, op.mean, op.longest, op.waited)),
                *(f"{op.calls:,}", f"{op.dead:,}", show_bytes(op.bytes)),
                f"{op.name} ({op.type})" + (f" on {short[op.device]}" if len(m.devices) > 1 else ""),
            )
            for op in m.ops[:SHOWN]
        ],
    )
    if len(m.ops) > SHOWN:
        rest = m.ops[SHOWN:]
        yield f"  ... and {len(rest):,} more, together {show_seconds(sum(op.seconds for op in rest))}"
    if m.loops:
        yield from _table(
            ("trips", "entered", "each time", "in flight", "loop"),
            [
                (f"{x.trips:,}", f"{x.entered:,}", _range(x), f"{x.most_in_flight} of {x.parallel_iterations}", x.name)
                for x in m.loops
            ],
        )
        for x in m.loops:
            if x.bound:
                n = x.last.get(x.bound, x.held)
                yield f"  the next iteration of {x.name} waited for {x.bound} in {n:,} of {x.trips:,} iterations"
    if len(m.devices) > 1:
        yield from _table(
            ("busy", "alive", "dead", "outputs", "device"),
            [(show_seconds(d.busy), f"{d.calls:,}", f"{d.dead:,}", show_bytes(d.bytes), d.name) for d in m.devices],
        )
    for t in m.sent:
        yield f"sent {t.tokens:,} tokens ({t.dead:,} dead), {show_bytes(t.bytes)}: {short[t.source]} to {short[t.to]}"
    if m.unfinished:
        yield "begun and not ended: " + "; ".join(m.unfinished[:SHOWN])


def _range(loop: LoopStats) -> str:
    if not loop.entered:
        return ""
    return f"{loop.most}" if loop.fewest == loop.most else f"{loop.fewest} to {loop.most}"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Formats columns, aligned to the right except for the last."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads) - 1)]
    for row in [heads, *rows]:
        yield "  " + "  ".join(text.rjust(w) for text, w in zip(row, widths, strict=False)) + "  " + row[-1]
