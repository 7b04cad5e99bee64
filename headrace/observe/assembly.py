"""Documents of recorded steps, made from their logs."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.gc_pause import paused
from headrace.grad.differentiate import differentiate
from headrace.inspect.program_document import Piece, ProgramDocument, pieces_of, sources
from headrace.lower import lower
from headrace.observe.columns import NONE, column
from headrace.observe.critical_path import Dependencies, Tokens, critical_path
from headrace.observe.firings import Firings
from headrace.observe.recorded import FORMAT, VERSION
from headrace.observe.stage_texts import stage_texts
from headrace.observe.summaries import Summary, summaries

if TYPE_CHECKING:
    from headrace.compiled_step import CompiledStep
    from headrace.observe.step_log import StepLog


@paused()
def document_of_step(log: StepLog, now: int = 0) -> dict[str, Any]:
    """Returns the document of a recorded step.

    Args:
      log: the log of the step.
      now: for a step that is paused, the time of its pause (ns).
    """
    programs = log.call.programs
    observed = programs.observed
    program = ProgramDocument(_pieces(observed), programs.environment.names[0], is_placed="lower" in observed.stages)
    firings = Firings(program)
    for part in log.parts:
        firings.add_log(part)
    firings.add_events(log.events)
    request = programs.request
    step = {
        "number": log.number,
        "seconds": ((log.end or now) - log.start) / 1e9,
        "error": log.error or None,
        "fetches": [t.name for t in request.fetches] + [op.name for op in request.targets],
        "feeds": [t.name for t in request.feeds],
    }
    dropped = {
        "tokens": sum(p.dropped for p in log.parts) + log.dropped,
        "values": sum(p.summarized for p in log.parts),
    }
    stages, stage_graphs = stage_texts(programs, program)
    return _document(step, program, firings, log.start, stages, stage_graphs, dropped)


def _pieces(compiled: CompiledStep) -> list[Piece]:
    """The operations that the token machine fires, as far as this process has them."""
    if compiled.parts:
        return pieces_of({device: (part.ops, part.called) for device, part in compiled.parts.items()})
    lowered = compiled.stages.get("lower")
    if lowered is None:  # the master of a cluster has it; `ProgramDocument.named` adds the Sends and Recvs
        lowered = lower(compiled.pruned.graph, compiled.pruned.targets, differentiate)
    return pieces_of({"": (lowered.ops, lowered.functions)})


def _document(
    step: dict[str, Any],
    program: ProgramDocument,
    firings: Firings,
    start: int,
    stages: list[dict[str, Any]],
    stage_graphs: dict[str, Any],
    dropped: dict[str, int],
) -> dict[str, Any]:
    strings = _Strings()
    columns = _columns(program, firings, start, strings)
    return {
        "format": FORMAT,
        "version": VERSION,
        "headrace": sys.modules["headrace"].__version__,
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "step": step,
        "strings": strings.texts,
        "devices": program.devices,
        "files": sources(program.files),
        "frames": program.frames,
        "nodes": program.nodes,
        "tags": firings.tags,
        **columns,
        "causes": firings.causes,
        "stages": stages,
        "stage_graphs": stage_graphs,
        "dropped": dropped,
    }


class _Strings:
    """Texts with their indices; a call returns the index of a text.

    Attributes:
      texts: the texts, in order.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        found = self._index.get(text)
        if found is None:
            found = self._index[text] = len(self.texts)
            self.texts.append(text)
        return found


def _columns(program: ProgramDocument, firings: Firings, start: int, strings: _Strings) -> dict[str, Any]:
    """Returns the columns of the document."""
    _add_parameters(program, firings)
    rows = firings.rows
    order = np.argsort(np.array(rows.end, np.int64), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sorted_rows = order.tolist()
    node, tag, begin, end, device = (
        np.array(x, np.int64)[order] for x in (rows.node, rows.tag, rows.begin, rows.end, rows.device)
    )
    dead = np.array(rows.dead, bool)[order]
    held = {key: int(place[row]) for key, row in firings.openers.items()}
    cause = [rows.cause[i] for i in sorted_rows]
    found = _dependencies(program, firings, node, tag, end, dead, held)
    value, flat = _consecutive(rows.outputs[i] for i in sorted_rows)
    about = summaries(flat)

    def micro(times: Iterable[int]) -> np.ndarray:
        given = np.fromiter(times, np.float64)
        return np.where(given < 0, np.nan, (given - start) / 1e3)

    times = sorted(firings.times.items(), key=lambda item: item[1][0])
    last = int(end[-1]) if len(end) else start
    crossed = sorted(firings.transfers.items(), key=lambda item: item[1].sent)
    return {
        "tokens": {
            "node": column("u4", node),
            "tag": column("u4", tag),
            "begin": column("f8", micro(begin)),
            "end": column("f8", micro(end)),
            "dead": column("u1", dead),
            "waited": column("u1", np.array(rows.waited, bool)[order]),
            "cause": column("u4", [NONE if c is None else c for c in cause]),
            "value": column("u4", value),
            "device": column("u4", device),
        },
        "values": _values(about, strings),
        "iterations": {
            "tag": column("u4", [tag for (_, tag), _ in times]),
            "device": column("u4", [device for (device, _), _ in times]),
            "open": column("f8", micro(opened for _, (opened, _) in times)),
            "close": column("f8", micro(last if freed < 0 else freed for _, (_, freed) in times)),
            "held_by": column("u4", [_held_by(key, held, node, firings) for key, _ in times]),
        },
        "crossings": {
            "edge": column("u4", [strings(edge) for (edge, _), _ in crossed]),
            "tag": column("u4", [t for (_, t), _ in crossed]),
            "from": column("u4", [x.source for _, x in crossed]),
            "to": column("u4", [x.to for _, x in crossed]),
            "sent": column("f8", micro(x.sent for _, x in crossed)),
            "received": column("f8", micro(x.received for _, x in crossed)),
            "dead": column("u1", [x.dead for _, x in crossed]),
        },
        "critical": column("u4", critical_path(found, end, dead)),
    }


def _values(about: Sequence[Summary], strings: _Strings) -> dict[str, Any]:
    return {
        "dtype": column("u4", [strings(x.dtype) for x in about]),
        "shape": column("u4", [strings(x.shape) for x in about]),
        "min": column("f8", [x.min for x in about]),
        "max": column("f8", [x.max for x in about]),
        "mean": column("f8", [x.mean for x in about]),
        "nans": column("u4", [x.nans for x in about]),
        "bytes": column("f8", [x.bytes for x in about]),
        "elements": column("u4", [strings(x.elements) for x in about]),
    }


def _held_by(key: tuple[int, int], held: dict[tuple[int, int], int], node: np.ndarray, firings: Firings) -> int:
    """Node whose firing let an iteration open on a device; for a function, its call."""
    if key in held:
        return int(node[held[key]])
    call = firings.calls.get(key[1], -1)
    return call if call >= 0 else NONE


def _dependencies(
    program: ProgramDocument,
    firings: Firings,
    node: np.ndarray,
    tag: np.ndarray,
    end: np.ndarray,
    dead: np.ndarray,
    held: dict[tuple[int, int], int],
) -> Dependencies:
    tokens = Tokens(program.nodes, firings.tags, node, tag, end, dead, firings.calls, program.results, held)
    return Dependencies(tokens, ((key[1], x.send, x.recv) for key, x in firings.transfers.items()))


def _add_parameters(program: ProgramDocument, firings: Firings) -> None:
    """Adds the firings of parameters, which the executor does not report."""
    rows = firings.rows
    if not firings.calls:
        return
    node, tag_of, end = (np.array(x, np.int64) for x in (rows.node, rows.tag, rows.end))
    found = _dependencies(program, firings, node, tag_of, end, np.array(rows.dead, bool), {})
    made: dict[tuple[int, int], Any] = {}
    for param, tag, source, k in firings.parameters():  # those of outer calls first
        outside = firings.tags[tag]["parent"]
        row = found.source(source, k, firings.calls[tag], outside)
        outputs = None if row is None else rows.outputs[row]
        if outputs is not None and k < len(outputs):
            value = outputs[k]
        elif (source, outside) in made:
            value = made[source, outside]
        else:
            op = program.ops[source] if source < len(program.ops) else None
            value = op.attrs["value"] if op is not None and op.type == "Const" else None
        made[param, tag] = value
        device = program.nodes[param]["device"]
        time = firings.times.get((device, tag), (0, 0))[0]
        rows.add(param, tag, time, time, False, None, None if value is None else [value], device)


def _consecutive(outputs: Iterable[Sequence[Any] | None]) -> tuple[list[int], list[Any]]:
    """Returns the index of the first value of each firing, and all values."""
    first: list[int] = []
    flat: list[Any] = []
    for some in outputs:
        first.append(NONE if some is None else len(flat))
        flat += some or ()
    return first, flat
