"""Graphs after the stages of a step, for the page to draw.

Each operation is kept once for all stages that have it. It names its inputs, so a change of one operation leaves the
entries of all others as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from headrace import thresholds
from headrace.inspect.program_document import Piece, ProgramDocument

NO_GRAPH: Final = -1
_ENTRY: Final = 7  # characters of one index in the document


class StageGraphs:
    """Graphs of stages in primitive form.

    Args:
      program: the program of the recording, whose source files the graphs share.
    """

    def __init__(self, program: ProgramDocument) -> None:
        self._program = program
        self._frames: list[dict[str, Any]] = [program.frames[0]]
        self._frame_at: dict[tuple[int, str, str], int] = {}  # (parent, kind, name) → frame
        self._parts: list[list[str]] = []
        self._devices: list[str] = []  # assigned and requested ones
        self._nodes: dict[str, int] = {}  # text of an entry → its index
        self._graphs: list[list[int]] = []
        self._left = thresholds.RECORDED_STAGE_GRAPHS
        self._left_out = 0

    def add(self, pieces: Sequence[Piece]) -> int:
        """Adds the graph of a stage and returns its index, or NO_GRAPH.

        There is no graph if it takes more than is left of the budget.

        Raises:
          GraphError, OpError: the frames of the graph do not fit together.
        """
        program = ProgramDocument(pieces)
        texts = self._texts(program, pieces)
        new = [text for text in dict.fromkeys(texts) if text not in self._nodes]
        cost = sum(map(len, new)) + _ENTRY * len(texts)
        if cost > self._left:
            self._left_out += 1
            return NO_GRAPH
        for text in new:
            self._nodes[text] = len(self._nodes)
        graph = [self._nodes[text] for text in texts]
        if not self._graphs or self._graphs[-1] != graph:
            self._left -= cost
            self._graphs.append(graph)
        return len(self._graphs) - 1

    def document(self) -> dict[str, Any]:
        """Returns the graphs as in the document of a recording."""
        most = thresholds.RECORDED_STAGE_GRAPHS
        note = f"The drawings of {self._left_out:,} stages are left out: all take more than {most:,} characters."
        return {
            "frames": self._frames,
            "parts": self._parts,
            "devices": self._devices,
            "nodes": [json.loads(text) for text in self._nodes],
            "graphs": self._graphs,
            "note": note if self._left_out else "",
        }

    def _texts(self, program: ProgramDocument, pieces: Sequence[Piece]) -> list[str]:
        """Entries of the nodes of a program, as texts."""
        frames = self._shared_frames(program)
        devices = [_place(self._devices, name) for name in program.devices]
        files = [self._program.file(name) for name in program.files]
        names = [node["name"] for node in program.nodes]
        out: list[str] = []
        for piece in pieces:
            part = _place(self._parts, [piece.device or "", piece.function])
            for _ in piece.ops:
                node = program.nodes[len(out)]
                source = node["source"]
                entry = {
                    **{key: node[key] for key in ("name", "type", "outputs", "attrs", "constant", "setup")},
                    "part": part,
                    "frame": frames[node["frame"]],
                    "device": devices[node["device"]],
                    "source": None if source is None else [files[source[0]], source[1]],
                    "inputs": [[names[i], k] for i, k in node["inputs"]],
                    "controls": [names[i] for i in node["controls"]],
                }
                out.append(json.dumps(entry, separators=(",", ":")))
        return out

    def _shared_frames(self, program: ProgramDocument) -> list[int]:
        """Index of each frame of `program` among the frames of all stages."""
        out = [0]
        for frame in program.frames[1:]:
            key = (out[frame["parent"]], frame["kind"], frame["name"])
            if key not in self._frame_at:
                self._frame_at[key] = len(self._frames)
                self._frames.append({**frame, "parent": key[0], "op": -1})
            out.append(self._frame_at[key])
        return out


def _place(known: list[Any], new: Any) -> int:
    """Index of `new` in a short list, which it joins."""
    if new not in known:
        known.append(new)
    return known.index(new)
