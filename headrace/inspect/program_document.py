"""Nodes, frames, devices and source files of a program in primitive form.

The document of a graph (`graph_document`) has little else; that of a recording (`observe.assembly`) has the tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import thresholds
from headrace.inspect import primitives
from headrace.inspect.elements import elements
from headrace.inspect.structure import brief
from headrace.ir.analysis import frames as ir_frames
from headrace.ir.kernel_errors import known_as
from headrace.ir.notes import LoopVariable
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame
    from headrace.ir.graph import Operation, Tensor

_PLUMBING: Final = frozenset({"Switch", "SwitchN", "Merge", "Enter", "Exit", "NextIteration"})
_DEEPEST: Final = 64  # frames around a node
_ROOT: Final = 0


@record(frozen=True, slots=True)
class Piece:
    """Operations of one graph that run on one device.

    Attributes:
      ops: the operations.
      device: the name of the device; "": the only one. None: the device that each operation requests.
      function: the name of the function, whose calls have frames of their own; "" for the step itself.
    """

    ops: Sequence[Operation]
    device: str | None = ""
    function: str = ""


class ProgramDocument:
    """Nodes and frames of a step in primitive form.

    Args:
      pieces: the operations of all devices and functions.
      home: the name of the only device, or of that of operations whose device is not known.
      is_placed: whether the devices of the operations are known.
      is_flat: whether all operations of a function are in one frame: that of a graph whose frames do not fit together.

    Attributes:
      nodes: the nodes, as in the document.
      frames: the frames, as in the document. `nodes[i]["frame"]` is the frame in which the node fires, or a branch in
        it: an Enter is outside of the frame that it opens, and an Exit inside.
      devices: names of the devices.
      files: names of the source files.
      ops: the operations of the first nodes, in order.
      index: operation → its node.
      results: (frame of a function, output) → the node of the result.
      params: frame of a function → (node, input of the call) of its parameters.
      problems: errors that prevented a complete analysis of branches, as texts.
    """

    def __init__(
        self, pieces: Iterable[Piece], home: str = "", is_placed: bool = True, *, is_flat: bool = False
    ) -> None:
        self._home = home
        self.nodes: list[dict[str, Any]] = []
        self.frames: list[dict[str, Any]] = [_frame("", "root", -1)]
        self.devices: list[str] = []
        self.files: list[str] = []
        self.index: dict[Operation, int] = {}
        self.results: dict[tuple[int, int], int] = {}
        self.params: dict[int, list[tuple[int, int]]] = {}
        self.problems: list[str] = []
        self._is_flat = is_flat
        self._frames: dict[tuple[int, str, str], int] = {}  # (parent, kind, name) → frame
        self._by_name: dict[str, list[int]] = {}
        pieces = list(pieces)
        for piece in pieces:
            for op in piece.ops:
                self.index[op] = len(self.index)
        self.ops = list(self.index)
        self._loop_conds = {op.name for op in self.ops if op.type == "LoopCond"}
        for piece in pieces:
            self._add(piece)
        self._nest_functions(pieces)
        self._unplaced = set() if is_placed else set(range(len(self.nodes)))

    def loop_or_function(self, parent: int, name: str) -> int:
        """Returns the loop `name` below the frame `parent`, or the function `name`."""
        for kind, at in (("loop", parent), ("function", _ROOT)):
            found = self._frames.get((at, kind, name))
            if found is not None:
                return found
        same = [i for i, f in enumerate(self.frames) if f["name"] == name and f["kind"] in ("loop", "function")]
        return same[0] if same else parent

    def firing_frame(self, node: int) -> int:
        """Returns the frame of the tokens of `node`: the root, a loop or a function."""
        return self._loop_around(self.nodes[node]["frame"])

    def named(self, device: str, name: str, type: str, frame: str) -> int:
        """Returns the node `name` of a device; adds an unknown one without edges.

        Args:
          device: the name of the device; "": the only one.
          name: the name of the operation.
          type: its op type.
          frame: the name of the loop or function in which it fires.
        """
        where, known = self.device(device), self._by_name.setdefault(name, [])
        found = [i for i in known if i not in self._unplaced and self.nodes[i]["device"] == where]
        found = found or [i for i in known if i in self._unplaced]
        fits = [i for i in found if self.frames[self.firing_frame(i)]["name"] == frame] or found
        if fits:
            self._unplaced.discard(fits[0])
            self.nodes[fits[0]]["device"] = where
            return fits[0]
        at = self.loop_or_function(_ROOT, frame) if frame else _ROOT
        known.append(len(self.nodes))
        self.nodes.append(_node(name, type, at, where))
        return known[-1]

    def device(self, name: str) -> int:
        """Returns the index of a device; "" is the home."""
        name = name or self._home
        if name not in self.devices:
            self.devices.append(name)
        return self.devices.index(name)

    def file(self, name: str) -> int:
        """Returns the index of a source file."""
        if name not in self.files:
            self.files.append(name)
        return self.files.index(name)

    def _frame(self, parent: int, kind: str, name: str, **more: Any) -> int:
        """Returns the frame below `parent`, which the parts of all devices share."""
        found = self._frames.get((parent, kind, name))
        if found is None:
            found = self._frames[parent, kind, name] = len(self.frames)
            self.frames.append(_frame(name, kind, parent, **more))
        return found

    def _add(self, piece: Piece) -> None:
        if not piece.ops:
            return
        root = self._frame(_ROOT, "function", piece.function) if piece.function else _ROOT
        if self._is_flat:
            for op in piece.ops:
                self._add_node(op, root, self._device_of(op, piece), piece.function, root)
            return
        tree = ir_frames.derive(piece.ops)
        places = primitives.find(piece.ops[0].graph, piece.ops, _DEEPEST)
        self.problems += [places.problem] if places.problem else []
        loops = {"": root}  # by name, which is unique in a graph
        for op in piece.ops:
            place = places.of.get(op, ())
            if op.opdef.primitive == "Enter" and place:  # it is drawn inside the loop, and fires outside
                opened = tree.entered_by(op).name
                at = [i for i, (thing, _) in enumerate(place) if _loop_name(thing) == opened]
                place = place[: at[-1]] if at else ()
            frame = root
            for thing, side in place:
                if isinstance(thing, ir_frames.Frame):
                    frame = loops[thing.name] if thing.name in loops else self._open(thing, frame, loops)
                elif _name_of(thing) not in self._loop_conds:  # a control loop has a Recv of the LoopCond
                    frame = self._frame(frame, "branch", _branch_name(thing, side), op=self.index.get(thing.op, -1))
            around = self._loop(tree.of(op), loops)
            if self._loop_around(frame) != around:  # the graph is not well-structured
                frame = around
            self._add_node(op, frame, self._device_of(op, piece), piece.function, root)

    def _device_of(self, op: Operation, piece: Piece) -> int:
        return self.device(op.device if piece.device is None else piece.device)

    def _open(self, frame: Frame, parent: int, loops: dict[str, int]) -> int:
        first = min((self.index[e] for e in frame.enters if e in self.index), default=-1)
        at = self._frame(parent, "loop", frame.name, op=first, limit=frame.parallel_iterations)
        loops[frame.name] = at
        return at

    def _loop(self, frame: Frame, loops: dict[str, int]) -> int:
        """Returns the index of a loop, after those of its outer loops."""
        chain = []
        f: Frame | None = frame
        while f is not None and f.name not in loops:
            chain.append(f)
            f = f.parent
        for f in reversed(chain):
            assert f.parent is not None, "the root is in `loops`"
            self._open(f, loops[f.parent.name], loops)
        return loops[frame.name]

    def _loop_around(self, frame: int) -> int:
        while self.frames[frame]["kind"] == "branch":
            frame = int(self.frames[frame]["parent"])
        return frame

    def _add_node(self, op: Operation, frame: int, device: int, function: str, root: int) -> None:
        i = self.index[op]
        assert i == len(self.nodes), "operations are numbered in the order of the pieces"
        node = _node(op.name, op.type, frame, device)
        source = op.source
        if source is not None and source.file:
            node["source"] = [self.file(source.file), source.line]
        node["inputs"] = [[self.index[t.op], t.index] for t in op.inputs if t.op in self.index]
        node["controls"] = [self.index[c] for c in op.control_inputs if c in self.index]
        node["outputs"] = [[t.dtype.name, None if t.shape is None else list(t.shape)] for t in op.outputs]
        node["attrs"] = _attrs(op)
        node["constant"] = _constant(op)
        node["setup"] = _is_setup(op)
        variable = op.notes.get(LoopVariable)
        node["variable"] = None if variable is None else variable.name
        self.nodes.append(node)
        self._by_name.setdefault(op.name, []).append(i)
        if function and op.type == "_Arg":
            self.params.setdefault(root, []).append((i, op.attrs["index"]))
        elif function and op.type == "_Retval":
            self.results[root, op.attrs["index"]] = i

    def _nest_functions(self, pieces: Sequence[Piece]) -> None:
        """Names the first call of each function."""
        for piece in pieces:
            for op in piece.ops:
                name = op.attrs["f"].name if op.opdef.structured == "Call" and "f" in op.attrs else None
                frame = self._frames.get((_ROOT, "function", name)) if name is not None else None
                if frame is not None and self.frames[frame]["op"] < 0:
                    self.frames[frame]["op"] = self.index[op]


def _frame(name: str, kind: str, parent: int, op: int = -1, limit: int = 0) -> dict[str, Any]:
    return {"name": name, "kind": kind, "parent": parent, "op": op, "limit": limit}


def _node(name: str, type: str, frame: int, device: int) -> dict[str, Any]:
    return {
        "name": name, "type": type, "frame": frame, "device": device, "source": None,
        "scope": name.rpartition("/")[0], "inputs": [], "controls": [], "outputs": [], "attrs": "", "constant": None,
        "setup": False, "variable": None,
    }  # fmt: skip


def _loop_name(thing: Frame | Tensor) -> str | None:
    return thing.name if isinstance(thing, ir_frames.Frame) else None


def _branch_name(key: Tensor, side: int) -> str:
    taken = ("false", "true")[side] if key.dtype.base.name == "bool" and side < 2 else str(side)
    return f"{_name_of(key)} is {taken}"


def _name_of(t: Tensor) -> str:
    """Name of a tensor in the whole graph; of a Recv, the sent tensor's."""
    return known_as(t).removesuffix(":0")


def _attrs(op: Operation) -> str:
    shape_like = ("shape", "shapes", "_output_shapes", "output_shapes")
    return ", ".join(f"{k}={brief(v, k in shape_like)}" for k, v in op.attrs.items() if k != "value")


def _constant(op: Operation) -> str | None:
    if op.type != "Const":
        return None
    value = op.attrs["value"]
    return elements(value) if isinstance(value, np.ndarray) else ""  # a tensor that is damaged or of a foreign dtype


def _is_setup(op: Operation) -> bool:
    """Whether `op` is a constant, a handle, or plumbing of loops and conditionals."""
    if op.opdef.primitive in _PLUMBING or op.type in ("Const", "LoopCond"):
        return True
    return not op.inputs and bool(op.outputs) and all(t.dtype.is_ref or t.dtype.name == "resource" for t in op.outputs)


def sources(files: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the Python files among `files` with their texts, as in the document.

    Other files are named without a text: an imported graph may name any file of the machine, and a recording is sent to
    other people.
    """
    left = thresholds.RECORDED_SOURCES
    out = []
    for name in files:
        text = _text_of(name, min(left, thresholds.RECORDED_SOURCE)) if name.endswith(".py") else None
        left -= 0 if text is None else len(text.encode())
        out.append({"name": name, "text": text})
    return out


def _text_of(path: str, most: int) -> str | None:
    """Text of a regular file of at most `most` bytes; None if there is none."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > most:
            return None
        with open(path, "rb") as f:
            return f.read(most).decode("utf-8")
    except (OSError, UnicodeDecodeError):  # the file is gone, or in another encoding: the page names it
        return None


def pieces_of(parts: Mapping[str, tuple[Sequence[Operation], Mapping[str, Sequence[Operation]]]]) -> list[Piece]:
    """Returns the operations of the parts of a step.

    Args:
      parts: device → its operations, and those of the functions that it calls.
    """
    out = [Piece(ops, device) for device, (ops, _) in parts.items()]
    return out + [
        Piece(body, device, name) for device, (_, functions) in parts.items() for name, body in functions.items()
    ]
