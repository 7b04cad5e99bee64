"""Codec of steps: a pruned step as bytes, with the facts that its compilation needs.

    data = encode(request, step)          # in the process of the client
    request, step = decode(data)          # in the process of the master

The master prunes nothing: it gets the step as `prune` left it, with an `_Arg` for each feed and a `_Retval` for each
fetch. It does not get the user's graph, so the facts about it that later stages read are part of the request
(`ReceivedRequest`). A master sends a share, and a step that one device runs as a whole, to a worker in the same form.

The bytes are an envelope (`ir.serial.envelope`). They are hostile input, and `ir.verify` checks the graph at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import flags
from headrace.compiled_step import Request
from headrace.errors import GraphError
from headrace.ir.serial.envelope import pack, unpack
from headrace.ir.serial.snapshot import SnapshotWriter
from headrace.ir.verify import verify
from headrace.prune import StepGraph
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation

VERSION: Final = 2
MAGIC: Final = b"hr-step\n"


@record(frozen=True, slots=True)
class ReceivedRequest(Request):
    """Request of a step whose user's graph is in another process.

    Attributes:
      feeds, fetches, targets: empty, because the graph of the tensors is in the other process.
      facts: reasons against relying on static shapes (`Request.fed_constants`).
      order: whether stateful operations run in the order of their creation.
    """

    feeds: Sequence[Any] = ()
    fetches: Sequence[Any] = ()
    targets: Sequence[Any] = ()
    facts: tuple[str, ...] = ()
    order: bool = False

    @property
    def graph(self) -> Graph | None:
        """None: the user's graph is in another process."""
        return None

    @property
    def is_ordered(self) -> bool:
        return self.order

    def fed_constants(self) -> Sequence[str]:
        return self.facts

    def inherit_devices(self, ops: Sequence[Operation]) -> None:
        """Does nothing: `encode` has copied the device requests."""


def encode(request: Request, step: StepGraph, home: str = "") -> bytes:
    """Returns a step as bytes.

    Args:
      request: the request of the step.
      step: the step, not lowered. It is not changed.
      home: the task of this process, which operations that call Python functions request; "": none may call one.

    Raises:
      InvalidArgumentError: an operation refers to an object of this process (a Python function); the text names it.
      NotFoundError: a function that an operation calls is not in the library.
      GraphError: an attribute has no wire form.
    """
    if request.graph is not None:
        step = step.copy()
        request.inherit_devices(step.graph.operations)
    writer = SnapshotWriter(home)
    fields = {
        "graph": writer.add(step.graph),
        "args": [op.name for op in step.args],
        "retvals": [op.name for op in step.retvals],
        "targets": [op.name for op in step.targets],
        "engine": request.engine,
        "is_partial": request.is_partial,
        "fed_constants": list(request.fed_constants()),
        "is_ordered": request.is_ordered,
        "off": sorted(request.off),
        "fold_bytes": request.fold_bytes,
    }
    return pack(MAGIC, VERSION, fields, writer, "step")


def decode(data: bytes, is_ours: bool = False) -> tuple[ReceivedRequest, StepGraph]:
    """Returns the request and the step that `encode` has turned into bytes.

    Args:
      data: the bytes.
      is_ours: whether this process has written them, so that operations may call Python functions.

    Raises:
      DataLossError: the bytes are damaged or incomplete, or are no step.
      UnimplementedError: another version of headrace has written them.
      GraphError: they describe no legal step.
      NotFoundError: an op type or a called function does not exist here.
      InvalidArgumentError: the frames of the graph do not fit together, or an operation calls a Python function.
    """
    given, reader = unpack(MAGIC, VERSION, data, "step", is_ours)
    graph = reader.graph(given.get("graph", int))
    verify(graph)
    args, retvals, targets = (_operations(graph, given.get(k, list), k) for k in ("args", "retvals", "targets"))
    for ops, kind in ((args, "_Arg"), (retvals, "_Retval")):
        if any(op.type != kind for op in ops) or [op.attrs["index"] for op in ops] != sorted(
            {op.attrs["index"] for op in ops}
        ):
            raise GraphError(f"the ends of the encoded step are not its {kind} operations in order")
    engine = given.get("engine", str)
    if engine not in flags.ENGINES:
        raise GraphError(f"the encoded step asks for the engine {engine!r}; there are {', '.join(flags.ENGINES)}")
    facts = given.get("fed_constants", list)
    if not all(isinstance(f, str) for f in facts):
        raise GraphError("the reasons of the encoded step must be texts")
    off, fold_bytes = given.get("off", list), given.get("fold_bytes", int)
    if not all(isinstance(name, str) for name in off) or fold_bytes < 0:
        raise GraphError("the encoded step must name passes by texts, and its size of constants must not be negative")
    request = ReceivedRequest(
        engine=engine,
        is_partial=given.get("is_partial", bool),
        facts=tuple(facts),
        order=given.get("is_ordered", bool),
        off=frozenset(off),
        fold_bytes=fold_bytes,
    )
    return request, StepGraph(graph, args, retvals, targets)


def _operations(graph: Graph, names: Sequence[Any], what: str) -> tuple[Operation, ...]:
    found = [graph.find(name) if isinstance(name, str) else None for name in names]
    if None in found:
        raise GraphError(f"the {what} of the encoded step name operations that it lacks: {names!r:.200}")
    return tuple(op for op in found if op is not None)
