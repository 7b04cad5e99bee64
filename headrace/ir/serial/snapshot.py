"""Snapshots: lossless encoding of private graphs, for other processes of headrace.

A `GraphDef` for TensorFlow omits facts that a plan depends on. A snapshot has all of them: the order of the operations,
the graphs that operations own with their parameters, results and captures, static shapes, contents of handles, notes
and source lines. The nodes are in wire form (`nodedefs`), one message for each graph; the rest is plain data for JSON.

    writer = SnapshotWriter()
    index = writer.add(graph)
    data, messages = writer.data(), writer.messages

    graph = SnapshotReader(data, messages).graph(index)

A snapshot omits what only gradients read: the originals of copied graphs and the gradients of functions.

A reader treats its input as hostile: each graph is read at most once, so that a small snapshot cannot describe a large
graph, and `ir.verify` checks the graph afterwards (`partition.codec`).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from google.protobuf import message as protobuf

from headrace import dtypes, pb, recursion
from headrace.errors import GraphError, InvalidArgumentError
from headrace.ir.attr_values import Func
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.notes import Notes, note_from_data
from headrace.ir.serial import attrs as wire
from headrace.ir.serial.nodedefs import (
    GRAPH_DEF_VERSION,
    NodeDraft,
    NodeImport,
    Signatures,
    parse_tensor_name,
    show_tensor,
    write_node,
)
from headrace.ir.source import Source
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.opdef import OpDef
    from headrace.ir.static_info import Handle
    from headrace.shapes import Shape

T = TypeVar("T")

_OWNED: Final = "#graph "  # prefix of the names of owned graphs in the nodes


# *** out ***


@record(slots=True)
class SnapshotWriter:
    """Encoder of graphs that share a table of source lines.

    Attributes:
      home: the task of this process, for which alone operations that call Python functions are written; "": they are
        not written.
      messages: for each graph its nodes, a serialized `GraphDef`.
    """

    home: str = ""
    messages: list[bytes] = dataclasses.field(default_factory=list)
    _graphs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    _sources: dict[Source, int] = dataclasses.field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Returns the part of the snapshot that is data for JSON."""
        return {"graphs": self._graphs, "sources": [list(s) for s in self._sources]}

    @recursion.recursion_room_for_levels(recursion.MOST)
    def add(self, graph: Graph, ops: Sequence[Operation] | None = None) -> int:
        """Adds a graph, with the functions that it calls by name; returns its number.

        Args:
          graph: the graph.
          ops: the operations to write, which need no others; None: all.

        Raises:
          InvalidArgumentError: an operation refers to an object of this process; the text names it.
          NotFoundError: a function that an operation calls is not in the library.
          GraphError: an attribute has no wire form, or two functions have one name.
        """
        called: dict[str, FuncGraph] = {}
        index = self._add(graph, graph.operations if ops is None else ops, called)
        functions: dict[str, int] = {}
        while len(functions) < len(called):  # writing a function may add others
            for name in [n for n in called if n not in functions]:
                f = called[name]
                functions[name] = self._add(f, f.operations, called)
        self._graphs[index]["functions"] = functions
        return index

    def _add(
        self, graph: Graph, ops: Sequence[Operation], called: dict[str, FuncGraph], owner: Operation | None = None
    ) -> int:
        index = len(self._graphs)
        entry: dict[str, Any] = {"ops": [], "versions": list(graph.versions)}
        self._graphs.append(entry)
        self.messages.append(b"")
        message = pb.GraphDef()
        for op in ops:
            entry["ops"].append(self._op(message.node.add(), op, called))
        if isinstance(graph, FuncGraph):
            entry["function"] = self._function(graph, owner)
        self.messages[index] = message.SerializeToString(deterministic=True)
        return index

    def _op(self, node: pb.NodeDef, op: Operation, called: dict[str, FuncGraph]) -> dict[str, Any]:
        """Writes an operation into `node`; returns the other data about it."""
        _check_travels(op, self.home)
        owned: dict[FuncGraph, str] = {}
        out: dict[str, Any] = {}
        for name, spec in op.opdef.attrs.items():
            if spec.kind == "func":
                value = op.attrs[name]
                for f in value if spec.is_list else (value,):
                    if isinstance(f, FuncGraph):
                        index = self._add(f, f.operations, called, op)
                        owned[f] = f"{_OWNED}{index}"
                        out.setdefault("owned", []).append(index)
                    elif isinstance(f, Func):
                        found = op.graph.function(f.name, op)
                        if called.setdefault(f.name, found) is not found or f.name.startswith(_OWNED):
                            raise GraphError(f"another function is called {f.name!r}; give one another name")
        write_node(node, op, show_tensor, owned.__getitem__, is_for_files=False)
        if op.opdef.facts.blocking:
            node.device = str(_pinned(op, DeviceSpec.from_string(self.home)))
        if op.source is not None:
            out["source"] = self._sources.setdefault(op.source, len(self._sources))
        if op.outputs:
            out["shapes"] = [None if t.static_shape is None else list(t.static_shape) for t in op.outputs]
        handles = [[i, *_handle_data(t.handle)] for i, t in enumerate(op.outputs) if t.handle is not None]
        if handles:
            out["handles"] = handles
        if op.notes:
            out["notes"] = {type(n).__name__: n.to_data() for n in op.notes}
        floats = {name: v for name, v in sorted(op.attrs.items()) if _is_inexact(v)}
        if floats:
            out["floats"] = floats
        return out

    def _function(self, f: FuncGraph, owner: Operation | None) -> dict[str, Any]:
        """Returns the data of a graph with parameters and results."""
        inputs = frozenset() if owner is None else frozenset(owner.inputs)
        captures = [[show_tensor(t), show_tensor(p)] for t, p in f.captures.items() if t in inputs]
        attrs = pb.NameAttrList(attr={k: wire.encode_attr(v) for k, v in f.attrs.items()})
        return {
            "name": f.name,
            "role": f.role,
            "params": [p.op.name for p in f.params],
            "results": [show_tensor(t) for t in f.results],
            "controls": [op.name for op in f.control_results],
            "captures": captures,
            "is_ordered": f.is_ordered,
            "shares_names": f.shares_names,
            "captures_from_outer": f.captures_from_outer,
            "source": None if f.source is None else self._sources.setdefault(f.source, len(self._sources)),
            "attrs": base64.b64encode(attrs.SerializeToString(deterministic=True)).decode(),
        }


def _pinned(op: Operation, home: DeviceSpec) -> DeviceSpec:
    """Returns the device request of an operation, with a task."""
    asked = DeviceSpec.from_string(op.device)
    return dataclasses.replace(asked, job=home.job, replica=home.replica, task=home.task)


def _check_travels(op: Operation, home: str) -> None:
    """Raises `InvalidArgumentError` if `op` refers to an object of this process, whose task is `home`."""
    made = f", made at {op.source}" if op.source is not None else ""
    if op.opdef.facts.blocking:
        calls = f"'{op.name}' ({op.type}{made}) calls a Python function of this process, so no other process can run it"
        if not home:
            raise InvalidArgumentError(
                f"{calls}. A session of a server in this process can run it: hr.Session(server.target)", op.name, op
            )
        asked = dataclasses.replace(DeviceSpec.from_string(op.device), type=None, index=None)
        if not asked.matches(DeviceSpec.from_string(home)):
            raise InvalidArgumentError(
                f"{calls}. It requests the device {op.device}; this process is {home}", op.name, op
            )
    local = [type(n).__name__ for n in op.notes if n.is_local]
    if local:
        raise InvalidArgumentError(
            f"'{op.name}' ({op.type}{made}) has the note {local[0]}, an object of this process; a graph is encoded "
            "before its regions are fused",
            op.name,
            op,
        )


def _handle_data(handle: Handle) -> list[Any]:
    assert handle is not None
    return [handle[0].name, None if handle[1] is None else list(handle[1])]


def _is_inexact(value: Any) -> bool:
    """Whether a float attribute changes when it is written to a GraphDef, as a float32."""
    values = value if isinstance(value, tuple) else (value,)
    with np.errstate(over="ignore"):
        return any(isinstance(v, float) and v == v and float(np.float32(v)) != v for v in values)


# *** in ***


class SnapshotReader:
    """Decoder of a snapshot.

    Args:
      data: the data of `SnapshotWriter.data`, as JSON restored them.
      messages: the serialized nodes of each graph.
      is_ours: whether this process has written the snapshot, so that its operations may call Python functions.

    Attributes:
      is_ours: whether operations may call Python functions of this process.

    Raises (all methods):
      GraphError: the snapshot describes no legal graph.
      NotFoundError: an op type is not registered.
      InvalidArgumentError: an operation calls a Python function, and the snapshot comes from another process.
    """

    def __init__(self, data: Any, messages: Sequence[bytes], is_ours: bool = False) -> None:
        given = Fields(data, "the snapshot")
        self.is_ours = is_ours
        self._graphs = given.get("graphs", list)
        self._messages = messages
        self._sources = [_source(s) for s in given.get("sources", list)]
        self._used: set[int] = set()
        if len(self._graphs) != len(messages):
            raise GraphError(f"the snapshot has data of {len(self._graphs)} graphs and nodes of {len(messages)}")

    @recursion.recursion_room_for_levels(recursion.MOST)
    def graph(self, index: Any) -> Graph:
        """Returns graph `index`, with the functions that it calls by name."""
        entry = self._entry(index)
        graph = Graph()
        functions = entry.get("functions", dict)
        for name, number in functions.items():
            graph.functions[name] = self.function(number, graph)
        self._fill(graph, entry, index)
        return graph

    def _entry(self, index: Any) -> Fields:
        """Returns the data of a graph, once."""
        if type(index) is not int or not 0 <= index < len(self._graphs):
            raise GraphError(f"the snapshot has {len(self._graphs)} graphs, but {index!r} is referred to")
        if index in self._used:
            raise GraphError(f"graph {index} of the snapshot is referred to twice")
        self._used.add(index)
        return Fields(self._graphs[index], f"graph {index} of the snapshot")

    def function(self, index: Any, outer: Graph) -> FuncGraph:
        """Returns a graph with parameters and results.

        It is a function of `outer`, or a graph that an operation in `outer` owns.
        """
        entry = self._entry(index)
        given = Fields(entry.get("function", dict), f"graph {index} of the snapshot")
        does_capture, shares = given.get("captures_from_outer", bool), given.get("shares_names", bool)
        graph = FuncGraph(given.get("name", str), outer, does_capture, shares)
        graph.role, graph.source = given.get("role", str), self.source_at(given.find("source", int))
        self._fill(graph, entry, index)
        params = [_op_called(graph, p) for p in given.get("params", list)]
        if any(p.type != "_Arg" for p in params):
            raise GraphError(f"a parameter of graph {index} of the snapshot is no _Arg")
        graph.set_params([p.outputs[0] for p in params])
        results = [_tensor_called(graph, r) for r in given.get("results", list)]
        controls = [_op_called(graph, c) for c in given.get("controls", list)]
        graph.set_results(results, controls, given.get("is_ordered", bool))
        captures = {}
        for pair in given.get("captures", list):
            if not isinstance(pair, list) or len(pair) != 2:
                raise GraphError(f"a capture of graph {index} of the snapshot must be two tensors, got {pair!r}")
            captures[_tensor_called(outer, pair[0])] = _tensor_called(graph, pair[1])
        try:
            attrs = pb.NameAttrList.FromString(base64.b64decode(given.get("attrs", str), validate=True)).attr
        except (binascii.Error, ValueError, protobuf.DecodeError) as e:
            raise GraphError(f"the attributes of graph {index} of the snapshot: {e}") from e
        graph.define(captures, {k: wire.decode_attr(attrs[k], None) for k in sorted(attrs)})
        return graph

    def _fill(self, graph: Graph, entry: Fields, index: int) -> None:
        """Adds the operations of a graph, in the order of the snapshot."""
        try:
            message = pb.GraphDef.FromString(self._messages[index])
        except protobuf.DecodeError as e:
            raise GraphError(f"the nodes of graph {index} of the snapshot: {e}") from e
        versions = entry.get("versions", list)
        if len(versions) != 2 or any(type(v) is not int for v in versions):
            raise GraphError(f"the versions of graph {index} of the snapshot must be two numbers, got {versions!r}")
        graph.versions = (versions[0], versions[1])
        ops = entry.get("ops", list)
        if len(ops) != len(message.node):
            raise GraphError(f"graph {index} of the snapshot has {len(message.node)} nodes and data of {len(ops)}")
        reader = _NodeReader(graph, message, [Fields(d, f"an operation of graph {index}") for d in ops], self, index)
        reader.make_all()
        Editor(graph).arrange([reader.made(node.name) for node in message.node])

    def source_at(self, index: int | None) -> Source | None:
        """Returns a line of the table of source lines; None for None."""
        if index is None:
            return None
        if not 0 <= index < len(self._sources):
            raise GraphError(f"the snapshot has {len(self._sources)} source lines, but {index} is referred to")
        return self._sources[index]


class _NodeReader(NodeImport):
    """Import of the nodes of one graph of a snapshot."""

    def __init__(
        self, graph: Graph, message: pb.GraphDef, data: Sequence[Fields], reader: SnapshotReader, index: int
    ) -> None:
        where = f"graph {index} of the snapshot"
        size = message.ByteSize()
        super().__init__(graph, message.node, where, {}, Signatures(graph), size, GRAPH_DEF_VERSION)
        self._data = data
        self._reader = reader

    def made(self, name: str) -> Operation:
        op = self.nodes[name].op
        assert op is not None  # make_all has created all
        return op

    def make(self, node: NodeDraft) -> Operation:
        op = super().make(node)
        if op.opdef.facts.blocking and not self._reader.is_ours:
            raise InvalidArgumentError(
                f"'{op.name}' ({op.type}) calls a Python function, which only the process that made it may call. This "
                "process runs none for others",
                op.name,
                op,
            )
        data = self._data[node.index]
        known = data.find("shapes", list) or []
        if len(known) != len(op.outputs):
            raise self.error(node, f"it has {len(op.outputs)} outputs and {len(known)} static shapes")
        handles: dict[Any, Handle] = {}
        for item in data.find("handles", list) or []:
            if not isinstance(item, list) or len(item) != 3 or item[0] not in range(len(op.outputs)):
                raise self.error(node, f"{item!r} describes no handle of an output")
            handles[item[0]] = _handle(item[1:])
        for i, t in enumerate(op.outputs):
            t.replace_static(_shape(known[i]), handles.get(i))
        return op

    def op(self, node: NodeDraft) -> tuple[OpDef, dict[str, Any]]:
        record, attrs = super().op(node)
        data = self._data[node.index]
        for name, value in (data.find("floats", dict) or {}).items():
            attrs[name] = _as_floats(name, value, attrs.get(name))
        owned = {f"{_OWNED}{i}": i for i in data.find("owned", list) or []}
        for name, spec in record.attrs.items() if owned else ():
            if spec.kind == "func":
                value = attrs[name]
                several = tuple(
                    self._reader.function(owned[f.name], self.graph) if f.name in owned else f
                    for f in (value if spec.is_list else (value,))
                )
                attrs[name] = several if spec.is_list else several[0]
        return record, attrs

    def notes(self, node: NodeDraft, attrs: dict[str, Any]) -> Notes:
        given = self._data[node.index].find("notes", dict) or {}
        return Notes(note_from_data(name, fields) for name, fields in given.items())

    def source_of(self, node: NodeDraft) -> Source | None:
        return self._reader.source_at(self._data[node.index].find("source", int))

    def check_unknown(self, node: NodeDraft, record: OpDef, name: str) -> None:
        """Accepts attributes that the op does not declare; an import has warned of them."""

    def check_colocated(self, node: NodeDraft, name: str) -> None:
        """Accepts colocation with an operation that was pruned or is in another part."""


# *** checks of single values ***


class Fields:
    """Checked access to an object of JSON.

    Args:
      data: the object, a dict if it is legal.
      what: its description in messages.
    """

    __slots__ = ("_data", "_what")

    def __init__(self, data: Any, what: str) -> None:
        if not isinstance(data, dict):
            raise GraphError(f"{what} must be an object, got {type(data).__name__}")
        self._data: Mapping[str, Any] = data
        self._what = what

    def get(self, name: str, kind: type[T]) -> T:
        """Returns a field of class `kind`.

        Raises:
          GraphError: the field is missing, or of another class.
        """
        value = self.find(name, kind)
        if value is None:
            raise GraphError(f"{self._what}: the field {name!r} must be {kind.__name__}, and it is missing")
        return value

    def find(self, name: str, kind: type[T]) -> T | None:
        """Returns a field of class `kind`; None for a missing one.

        Raises:
          GraphError: the field is of another class.
        """
        value = self._data.get(name)
        if value is None or type(value) is kind:
            return value
        raise GraphError(f"{self._what}: the field {name!r} must be {kind.__name__}, got {type(value).__name__}")


def _source(given: Any) -> Source:
    if not isinstance(given, list) or [type(x) for x in given] != [str, int, str]:
        raise GraphError(f"{given!r} is no source line")
    return Source(*given)


def _shape(given: Any) -> Shape:
    if given is None:
        return None
    if not isinstance(given, list) or not all(n is None or type(n) is int for n in given):
        raise GraphError(f"{given!r} is no static shape")
    return wire.decode_shape(wire.encode_shape(_checked_sizes(given)))


def _checked_sizes(given: list[int | None]) -> Shape:
    if any(n is not None and not 0 <= n < 1 << 63 for n in given):
        raise GraphError(f"{given!r} is no static shape: a size is out of range")
    return tuple(given)


def _handle(given: list[Any]) -> Handle:
    name, shape = given
    try:
        return dtypes.as_dtype(name if isinstance(name, str) else None), _shape(shape)
    except TypeError as e:
        raise GraphError(f"{given!r} are no contents of a handle: {e}") from None


def _as_floats(name: str, value: Any, rounded: Any) -> Any:
    """Returns the exact value of an attribute that the nodes have rounded to float32."""
    values = value if isinstance(value, list) else [value]
    exact: list[float] = []
    for v in values:
        if type(v) not in (int, float):
            raise GraphError(f"the attribute {name!r} must be a float, got {v!r}")
        exact.append(float(v))
    others = rounded if isinstance(rounded, tuple) else (rounded,)
    with np.errstate(over="ignore"):
        same = len(exact) == len(others) and all(
            isinstance(r, float) and (float(np.float32(v)) == r or v != v) for v, r in zip(exact, others)
        )
    if not same:
        raise GraphError(f"the attribute {name!r} is {rounded!r} in the nodes, and {value!r} in the data")
    return tuple(exact) if isinstance(rounded, tuple) else exact[0]


def _op_called(graph: Graph, name: Any) -> Operation:
    op = graph.find(name) if isinstance(name, str) else None
    if op is None:
        raise GraphError(f"{name!r} is no operation of {graph.title}")
    return op


def _tensor_called(graph: Graph, text: Any) -> Tensor:
    name, index = parse_tensor_name(text) if isinstance(text, str) else (None, 0)
    op = _op_called(graph, name)
    if index >= len(op.outputs):
        raise GraphError(f"{text!r} is no tensor of {graph.title}; '{op.name}' has {len(op.outputs)} outputs")
    return op.outputs[index]
