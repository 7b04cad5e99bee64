"""Documents of recordings, made by hand and not by the recorder.

    python -m tests.view.documents nested page.html    # a page to look at
    python -m tests.view.documents large page.html

`nested` is a loop of five iterations that contains a loop of four and a conditional, on two devices, with real values.
`large` has 2,000 nodes and 200,000 tokens.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

NONE = 0xFFFFFFFF
DTYPES = {"u1": np.uint8, "u4": np.uint32, "i4": np.int32, "f8": np.float64}

Document = dict[str, Any]


def column(dtype: str, values: Sequence[float] | npt.NDArray[Any]) -> Document:
    """A column as the page reads it."""
    array = np.ascontiguousarray(np.asarray(values, DTYPES[dtype]))
    return {"dtype": dtype, "n": len(array), "base64": base64.b64encode(array.tobytes()).decode("ascii")}


class Strings:
    """The texts of columns, each once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if text not in self._index:
            self._index[text] = len(self.all)
            self.all.append(text)
        return self._index[text]


TOKENS = {"node": "u4", "tag": "u4", "begin": "f8", "end": "f8", "dead": "u1", "cause": "u4", "value": "u4"}
TOKENS |= {"device": "u4", "waited": "u1"}
VALUES = {"dtype": "u4", "shape": "u4", "min": "f8", "max": "f8", "mean": "f8", "nans": "u4", "bytes": "f8"}
VALUES |= {"elements": "u4"}
ITERATIONS = {"tag": "u4", "device": "u4", "open": "f8", "close": "f8", "held_by": "u4"}
CROSSINGS = {"edge": "u4", "tag": "u4", "from": "u4", "to": "u4", "sent": "f8", "received": "f8", "dead": "u1"}


class Builder:
    """A document whose nodes fire when the caller says so."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = list(devices)
        self.strings = Strings()
        self.frames: list[Document] = [{"name": "", "kind": "root", "parent": -1, "op": -1, "limit": 0}]
        self.nodes: list[Document] = []
        self.tags: list[Document] = [{"frame": 0, "iteration": 0, "parent": 0, "text": "root"}]
        self.causes: list[Document] = []
        self.tokens: dict[str, list[float]] = {name: [] for name in TOKENS}
        self.values: dict[str, list[float]] = {name: [] for name in VALUES}
        self.iterations: dict[str, list[float]] = {name: [] for name in ITERATIONS}
        self.crossings: dict[str, list[float]] = {name: [] for name in CROSSINGS}
        self.clock = [0.0] * len(self.devices)
        self.critical: list[int] = []

    def frame(self, name: str, kind: str, parent: int, limit: int = 0) -> int:
        self.frames.append({"name": name, "kind": kind, "parent": parent, "op": -1, "limit": limit})
        return len(self.frames) - 1

    def node(self, name: str, type: str, inputs: Sequence[int] = (), frame: int = 0, **more: Any) -> int:
        self.nodes.append(
            {
                "name": name,
                "type": type,
                "frame": frame,
                "device": more.get("device", 0),
                "source": [0, more["line"]] if "line" in more else None,
                "scope": name.rpartition("/")[0],
                "inputs": [[i, 0] for i in inputs],
                "controls": list(more.get("controls", ())),
                "outputs": [[more.get("dtype", "float32"), list(more.get("shape", ()))]],
                "attrs": more.get("attrs", ""),
                "constant": more.get("constant"),
                "setup": more.get("setup", False),
                "variable": more.get("variable"),
            }
        )
        return len(self.nodes) - 1

    def tag(self, frame: int, iteration: int, parent: int) -> int:
        outer = "" if parent == 0 else f"{self.tags[parent]['text']} "
        text = f"{outer}{self.frames[frame]['name'].rpartition('/')[2]}/{iteration}"
        self.tags.append({"frame": frame, "iteration": iteration, "parent": parent, "text": text})
        return len(self.tags) - 1

    def fire(self, node: int, tag: int = 0, value: Any = None, cost: float = 1.0, cause: int = NONE) -> int:
        """A token of a node, dead if it has a cause; returns its row."""
        device = self.nodes[node]["device"]
        begin = self.clock[device]
        self.clock[device] = begin + cost
        row = {"node": node, "tag": tag, "begin": begin, "end": begin + cost, "dead": cause != NONE, "cause": cause}
        row |= {"value": NONE if value is None else self.value(value), "device": device, "waited": False}
        for name, entry in row.items():
            self.tokens[name].append(entry)
        return len(self.tokens["node"]) - 1

    def value(self, value: Any) -> int:
        array = np.asarray(value)
        numeric = array.astype(np.float64)
        with np.printoptions(precision=4, threshold=6, edgeitems=3):
            elements = str(array).replace("\n", "")
        row = {
            "dtype": self.strings(str(array.dtype)),
            "shape": self.strings("[" + ",".join(map(str, array.shape)) + "]"),
            "min": numeric.min(),
            "max": numeric.max(),
            "mean": numeric.mean(),
            "nans": int(np.isnan(numeric).sum()),
            "bytes": array.nbytes,
            "elements": self.strings(elements),
        }
        for name, entry in row.items():
            self.values[name].append(entry)
        return len(self.values["dtype"]) - 1

    def iterate(self, tag: int, opened: float, closed: float, held_by: int) -> None:
        row = {"tag": tag, "device": 0, "open": opened, "close": closed, "held_by": NONE if held_by < 0 else held_by}
        for name, entry in row.items():
            self.iterations[name].append(entry)

    def cross(self, edge: str, tag: int, source: int, target: int, latency: float = 2.0, dead: bool = False) -> None:
        """A tensor from one device to another, which waits for it."""
        sent = self.clock[source]
        received = max(sent + latency, self.clock[target])
        self.clock[target] = received
        row = {"edge": self.strings(edge), "tag": tag, "from": source, "to": target, "sent": sent}
        for name, entry in {**row, "received": received, "dead": dead}.items():
            self.crossings[name].append(entry)

    def document(self, source: tuple[str, str], stages: Sequence[Document] = (), **step: Any) -> Document:
        """Rows in the order of their ends, as a recorder writes them."""
        order = np.argsort(np.asarray(self.tokens["end"]), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        tokens = {name: np.asarray(self.tokens[name])[order] for name in TOKENS}
        return make_document(
            step={"number": 3, "seconds": max(self.clock) * 1e-6, "error": None, "fetches": [], "feeds": [], **step},
            strings=self.strings.all,
            devices=self.devices,
            files=[{"name": source[0], "text": source[1]}],
            frames=self.frames,
            nodes=self.nodes,
            tags=self.tags,
            causes=self.causes,
            tables={
                "tokens": (TOKENS, tokens),
                "values": (VALUES, self.values),
                "iterations": (ITERATIONS, self.iterations),
                "crossings": (CROSSINGS, self.crossings),
            },
            critical=sorted(int(rank[row]) for row in self.critical),
            stages=list(stages),
        )


def make_document(tables: Mapping[str, tuple[Mapping[str, str], Mapping[str, Any]]], **parts: Any) -> Document:
    columns = {
        name: {key: column(dtype, rows[key]) for key, dtype in dtypes.items()}
        for name, (dtypes, rows) in tables.items()
    }
    parts["critical"] = column("u4", parts["critical"])
    head = {"format": "headrace-recording", "version": 2, "headrace": "0.1.0", "made": "2026-11-28T12:00:00Z"}
    parts["stages"] = [{"graph": -1, **stage} for stage in parts["stages"]]
    none = {"frames": parts["frames"][:1], "parts": [], "devices": [], "nodes": [], "graphs": [], "note": ""}
    return {"stage_graphs": none, **head, **parts, **columns, "dropped": {"tokens": 0, "values": 0}}


SOURCE = '''\
"""Refines a state in two nested loops."""

import headrace as hr

x = hr.placeholder(hr.float32, (2,), name="x")
w = hr.constant([[0.9, -0.4], [0.3, 0.8]], name="w")


def refine(i, h):
    with hr.device("/cpu:1"):
        y = hr.linalg.matvec(w, h, name="project")

    def step(j, a):
        return j + 1, hr.tanh(a * 1.5 - y, name="squash")

    _, a = hr.while_loop(lambda j, a: j < 4, step, (0, h), name="inner")
    # every other iteration keeps its sign
    h = hr.cond(i % 2 < 1, lambda: a * 0.5, lambda: -a)
    return i + 1, h


n, h = hr.while_loop(lambda i, h: i < 5, refine, (0, x), name="outer")
loss = hr.reduce_sum(hr.square(h), name="loss")
'''

STAGES = (
    {"name": "prune", "text": "graph {\n  %x = Placeholder()\n  %w = Const()\n  %unused = Const()\n"
     "  %h = While(%x, %w)\n  %sq = Square(%h)\n  %loss = Sum(%sq)\n  return %loss\n}"},
    {"name": "optimize", "text": "graph {\n  %x = _Arg()\n  %w = Const()\n  %h = While(%x, %w)\n"
     "  %loss = SumSquares(%h)\n  return %loss\n}"},
    {"name": "lower", "text": "graph {\n  %x = _Arg()\n  %w = Const()\n  %enter = Enter(%x)\n"
     "  %merge = Merge(%enter, %next)\n  %next = NextIteration(%squash)\n  %exit = Exit(%merge)\n"
     "  %loss = SumSquares(%exit)\n  return %loss\n}"},
)  # fmt: skip


def nested() -> Document:
    """Two nested loops with a conditional, on two devices; `outer/squash` fires 20 times."""
    b = Builder(["/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"])
    outer = b.frame("outer", "loop", 0, limit=10)
    inner = b.frame("outer/inner", "loop", outer, limit=4)
    taken = b.frame("outer/cond/then", "branch", outer)
    other = b.frame("outer/cond/else", "branch", outer)
    setup: dict[str, Any] = {"setup": True}
    vector: dict[str, Any] = {"shape": (2,)}
    integer: dict[str, Any] = {"dtype": "int32"}

    def constant(name: str, text: str, frame: int = 0, **more: Any) -> int:
        return b.node(name, "Const", frame=frame, constant=text, setup=True, **more)

    def loop(name: str, frame: int, starts: Sequence[tuple[str, int, Document]], line: int) -> dict[str, Any]:
        """The plumbing of a loop; its condition and next values come later."""
        out: dict[str, Any] = {}
        for variable, start, more in starts:
            enter = b.node(f"{name}/Enter_{variable}", "Enter", [start], frame, line=line, **setup, **more)
            merge = b.node(f"{name}/{variable}", "Merge", [enter], frame, line=line, **setup, **more)
            out[variable] = {"enter": enter, "merge": merge, "more": more}
        return out

    def close(name: str, frame: int, parts: dict[str, Any], condition: int, line: int) -> None:
        parts["cond"] = b.node(f"{name}/LoopCond", "LoopCond", [condition], frame, line=line, dtype="bool", **setup)
        for variable, part in list(parts.items()):
            if variable != "cond":
                inputs, more = [part["merge"], parts["cond"]], part["more"]
                part["switch"] = b.node(
                    f"{name}/Switch_{variable}", "Switch", inputs, frame, line=line, **setup, **more
                )

    def carry(name: str, frame: int, part: dict[str, Any], variable: str, value: int, line: int) -> None:
        more = part["more"]
        part["next"] = b.node(f"{name}/next_{variable}", "NextIteration", [value], frame, line=line, **setup, **more)
        b.nodes[part["merge"]]["inputs"].append([part["next"], 0])
        part["exit"] = b.node(f"{name}/Exit_{variable}", "Exit", [part["switch"]], frame, line=line, **setup, **more)

    x = b.node("x", "Placeholder", line=5, **vector)
    w = b.node("w", "Const", constant="[[0.9, -0.4], [0.3, 0.8]]", line=6, shape=(2, 2), setup=True)
    zero = constant("outer/zero", "0", line=22, **integer)
    o = loop("outer", outer, [("i", zero, integer), ("h", x, vector)], 22)
    five = constant("outer/five", "5", outer, line=22, **integer)
    less = b.node("outer/Less", "Less", [o["i"]["merge"], five], outer, line=22, dtype="bool")
    close("outer", outer, o, less, 22)
    w_in = b.node("outer/Enter_w", "Enter", [w], outer, line=11, shape=(2, 2), device=1, **setup)
    project = b.node("outer/project", "MatVec", [w_in, o["h"]["switch"]], outer, line=11, device=1, **vector)
    zero_j = constant("outer/inner/zero", "0", outer, line=16, **integer)
    n = loop("outer/inner", inner, [("j", zero_j, integer), ("a", o["h"]["switch"], vector)], 16)
    four = constant("outer/inner/four", "4", inner, line=16, **integer)
    less_j = b.node("outer/inner/Less", "Less", [n["j"]["merge"], four], inner, line=16, dtype="bool")
    close("outer/inner", inner, n, less_j, 16)
    y_in = b.node("outer/inner/Enter_y", "Enter", [project], inner, line=14, **setup, **vector)
    gain = constant("outer/inner/gain", "1.5", inner, line=14)
    mul = b.node("outer/inner/mul", "Mul", [n["a"]["switch"], gain], inner, line=14, **vector)
    sub = b.node("outer/inner/sub", "Sub", [mul, y_in], inner, line=14, **vector)
    squash = b.node("outer/inner/squash", "Tanh", [sub], inner, line=14, attrs="T=float32", **vector)
    one_j = constant("outer/inner/one", "1", inner, line=14, **integer)
    add_j = b.node("outer/inner/add", "AddV2", [n["j"]["switch"], one_j], inner, line=14, **integer)
    carry("outer/inner", inner, n["j"], "j", add_j, 16)
    carry("outer/inner", inner, n["a"], "a", squash, 16)
    two = constant("outer/two", "2", outer, line=18, **integer)
    mod = b.node("outer/mod", "FloorMod", [o["i"]["switch"], two], outer, line=18, **integer)
    one = constant("outer/one", "1", outer, line=18, **integer)
    even = b.node("outer/even", "Less", [mod, one], outer, line=18, dtype="bool")
    switch = b.node("outer/cond/Switch", "Switch", [n["a"]["exit"], even], outer, line=18, **setup, **vector)
    half = constant("outer/cond/half", "0.5", taken, line=18)
    scale = b.node("outer/cond/scale", "Mul", [switch, half], taken, line=18, **vector)
    negate = b.node("outer/cond/negate", "Neg", [switch], other, line=18, **vector)
    b.nodes[negate]["inputs"] = [[switch, 0]]
    merge = b.node("outer/cond/Merge", "Merge", [negate, scale], outer, line=18, **setup, **vector)
    add = b.node("outer/add", "AddV2", [o["i"]["switch"], one], outer, line=19, **integer)
    carry("outer", outer, o["i"], "i", add, 22)
    carry("outer", outer, o["h"], "h", merge, 22)
    square = b.node("Square", "Square", [o["h"]["exit"]], line=23, **vector)
    loss = b.node("loss", "Sum", [square], line=23, attrs="keep_dims=false\nTidx=int32")

    weights = np.array([[0.9, -0.4], [0.3, 0.8]], np.float32)
    h = np.array([0.5, -1.0], np.float32)
    b.fire(x, 0, h, 0.6)
    b.fire(zero, 0, np.int32(0), 0.2)
    b.fire(w, 0, weights, 0.3)
    previous = -1
    for i in range(6):
        tag = b.tag(outer, i, 0)
        opened = b.clock[0]
        for variable, value in (("i", np.int32(i)), ("h", h)):
            if i == 0:
                b.fire(o[variable]["enter"], tag, value, 0.3)
            b.fire(o[variable]["merge"], tag, value, 0.3)
        b.critical.append(b.fire(less, tag, i < 5, 0.7))
        b.fire(o["cond"], tag, i < 5, 0.2)
        b.fire(o["i"]["switch"], tag, np.int32(i), 0.3)
        b.critical.append(b.fire(o["h"]["switch"], tag, h, 0.3))
        if i == 5:
            b.iterate(tag, opened, b.clock[0], previous)
            break
        b.cross("outer/Switch_h:1", tag, 0, 1)
        if i == 0:
            b.fire(w_in, tag, weights, 0.3)
        y = weights @ h
        b.critical.append(b.fire(project, tag, y, 4.5))
        b.fire(mod, tag, np.int32(i % 2), 0.8)
        b.fire(even, tag, i % 2 < 1, 0.7)
        b.fire(add, tag, np.int32(i + 1), 0.6)
        b.fire(o["i"]["next"], tag, np.int32(i + 1), 0.2)
        b.cross("outer/project:0", tag, 1, 0)
        a = h
        previous_j = -1
        for j in range(5):
            tag_j = b.tag(inner, j, tag)
            opened_j = b.clock[0]
            if j == 0:
                b.fire(y_in, tag_j, y, 0.3)
            for variable, value in (("j", np.int32(j)), ("a", a)):
                if j == 0:
                    b.fire(n[variable]["enter"], tag_j, value, 0.3)
                b.fire(n[variable]["merge"], tag_j, value, 0.3)
            b.fire(less_j, tag_j, j < 4, 0.5)
            b.fire(n["cond"], tag_j, j < 4, 0.2)
            b.fire(n["j"]["switch"], tag_j, np.int32(j), 0.2)
            b.fire(n["a"]["switch"], tag_j, a, 0.3)
            if j < 4:
                scaled = a * np.float32(1.5)
                b.critical.append(b.fire(mul, tag_j, scaled, 1.1))
                b.critical.append(b.fire(sub, tag_j, scaled - y, 1.0))
                a = np.tanh(scaled - y)
                b.critical.append(b.fire(squash, tag_j, a, 2.4 if j != 2 else 3.8))
                b.fire(add_j, tag_j, np.int32(j + 1), 0.5)
                b.fire(n["j"]["next"], tag_j, np.int32(j + 1), 0.2)
                b.critical.append(b.fire(n["a"]["next"], tag_j, a, 0.2))
            else:
                b.critical.append(b.fire(n["a"]["exit"], tag_j, a, 0.2))
            b.iterate(tag_j, opened_j, b.clock[0], previous_j)
            previous_j = n["a"]["next"]
        where = f"iteration {i} of loop 'outer'"
        b.causes.append(
            {
                "op": "outer/cond/Switch",
                "node": switch,
                "where": where,
                "selector": "outer/even",
                "value": int(i % 2 < 1),
            }
        )
        b.fire(switch, tag, a, 0.3)
        dead, live, result = (negate, scale, a * np.float32(0.5)) if i % 2 < 1 else (scale, negate, -a)
        b.fire(dead, tag, None, 0.2, cause=i)
        b.critical.append(b.fire(live, tag, result, 1.2))
        b.fire(merge, tag, result, 0.3)
        h = result
        b.critical.append(b.fire(o["h"]["next"], tag, h, 0.2))
        b.iterate(tag, opened, b.clock[0], previous)
        previous = o["h"]["next"]
    b.fire(o["h"]["exit"], tag, h, 0.2)
    b.critical.append(b.fire(square, 0, h * h, 0.9))
    b.critical.append(b.fire(loss, 0, np.float32((h * h).sum()), 1.0))
    return with_stage_graphs(b.document(("refine.py", SOURCE), STAGES, fetches=["loss:0"], feeds=["x:0"]))


def with_stage_graphs(document: Document) -> Document:
    """`nested` with graphs of stages: the optimizer replaces a square and its sum."""
    nodes = document["nodes"]

    def entry(node: Document) -> Document:
        out = {key: value for key, value in node.items() if key != "scope"} | {"part": 0}
        out["inputs"] = [[nodes[source]["name"], output] for source, output in node["inputs"]]
        return out | {"controls": [nodes[c]["name"] for c in node["controls"]]}

    entries = [entry(node) for node in nodes]
    at = {node["name"]: i for i, node in enumerate(nodes)}
    entries += [
        {**entries[at["x"]], "type": "_Arg"},
        {**entries[at["loss"]], "type": "SumSquares", "inputs": entries[at["Square"]]["inputs"]},
        {**entries[at["x"]], "name": "unused", "type": "Const", "constant": "0", "setup": True},
    ]
    arg, squares, unused = range(len(nodes), len(nodes) + 3)
    kept = [i for i in range(len(nodes)) if i not in (at["x"], at["Square"], at["loss"])]
    graphs = [[*range(len(nodes)), unused], [arg, *kept, squares]]
    stage_graphs = {
        "frames": [{**frame, "op": -1} for frame in document["frames"]],
        "parts": [["", ""]],
        "devices": document["devices"],
        "nodes": entries,
        "graphs": graphs,
        "note": "",
    }
    stages = [{**stage, "graph": min(i, 1)} for i, stage in enumerate(document["stages"])]
    return document | {"stages": stages, "stage_graphs": stage_graphs}


def large(nodes: int = 2000, tokens: int = 200_000) -> Document:
    """Four deep towers in a loop, each on a device of its own."""
    b = Builder([f"/job:worker/replica:0/task:{i // 2}/device:CPU:{i % 2}" for i in range(4)])
    loop = b.frame("train", "loop", 0, limit=32)
    start = b.node("data", "Placeholder", shape=(64, 128), line=4)
    enter = b.node("train/Enter", "Enter", [start], loop, setup=True)
    merge = b.node("train/h", "Merge", [enter], loop, setup=True, line=6)
    kinds = ("MatMul", "BiasAdd", "Mul", "AddV2", "Relu", "Mul", "Sum", "Sub")
    body: list[int] = []
    ends = []
    per_tower = (nodes - 6) // 4
    for tower in range(4):
        last = [merge]
        for at in range(per_tower):
            layer, inside = divmod(at, 24)
            inputs = [last[-1]] if inside % 3 else [last[-1], last[max(0, len(last) - 3 - inside)]]
            name = (
                f"train/tower_{tower}/layer_{layer}/{'attention' if inside < 12 else 'dense'}/{kinds[at % 8]}_{inside}"
            )
            last.append(b.node(name, kinds[at % 8], inputs, loop, shape=(64, 128), device=tower, line=7 + layer))
        body += last[1:]
        ends.append(last[-1])
    body.append(b.node("train/sum", "AddN", ends, loop, shape=(64, 128), line=30))
    last = body[-1:]
    out = b.node("train/next_h", "NextIteration", last[:1], loop, setup=True)
    b.nodes[merge]["inputs"].append([out, 0])
    leave = b.node("train/Exit", "Exit", [merge], loop, setup=True)
    sink = b.node("loss", "Sum", [leave])
    per = len(body) + 2
    trips = max(1, tokens // per)
    fired = np.concatenate([[merge], body, [out]])
    count = trips * per
    rng = np.random.default_rng(7)
    node = np.tile(fired, trips)
    iteration = np.repeat(np.arange(trips), per)
    device = np.array([each["device"] for each in b.nodes])[node]
    cost = rng.gamma(2.0, 0.5, count)
    begin = np.empty(count)
    for each in range(len(b.devices)):
        rows = device == each
        begin[rows] = np.cumsum(cost[rows]) - cost[rows]
    end = begin + cost
    order = np.argsort(end, kind="stable")
    tags = [b.tag(loop, i, 0) for i in range(trips)]
    dead = rng.random(count) < 0.04
    b.causes.append({"op": "train/Switch", "node": -1, "where": "loop 'train'", "selector": "p", "value": 0})
    mean = np.sin(iteration / 9) + rng.normal(0, 0.1, count)
    texts = [b.strings(f"[{m:.4f} {m + 0.1:.4f} ...]") for m in np.round(mean, 3)]
    values = {
        "dtype": np.full(count, b.strings("float32")),
        "shape": np.full(count, b.strings("[64,128]")),
        "min": mean - 1,
        "max": mean + 1,
        "mean": mean,
        "nans": np.zeros(count),
        "bytes": np.full(count, 32768.0),
        "elements": np.array(texts),
    }
    columns = {
        "node": node[order],
        "tag": np.array(tags)[iteration][order],
        "begin": begin[order],
        "end": end[order],
        "dead": dead[order],
        "cause": np.where(dead, 0, NONE)[order],
        "value": np.where(dead, NONE, np.arange(count))[order],
        "device": device[order],
        "waited": np.zeros(count),
    }
    opened = np.array([begin[iteration == i].min() for i in range(trips)])
    closed = np.array([end[iteration == i].max() for i in range(trips)])
    held = np.where(np.arange(trips) > 0, out, NONE)
    iterations = {"tag": tags, "device": np.zeros(trips), "open": opened, "close": closed, "held_by": held}
    sent = np.sort(rng.choice(end, 2000, replace=False))
    for i in range(len(sent)):
        row = {"edge": b.strings("train/edge"), "tag": 0, "from": i % 4, "to": (i + 1) % 4}
        for name, entry in {**row, "sent": sent[i], "received": sent[i] + 5, "dead": False}.items():
            b.crossings[name].append(entry)
    del sink
    lines = "\n".join(f"    h = layer_{i}(h)" for i in range(40))
    return make_document(
        step={
            "number": 12,
            "seconds": float(end.max()) * 1e-6,
            "error": None,
            "fetches": ["loss:0"],
            "feeds": ["data:0"],
        },
        strings=b.strings.all,
        devices=b.devices,
        files=[
            {
                "name": "network.py",
                "text": f"import headrace as hr\n\n\nx = hr.placeholder(...)\n\nfor _ in steps:\n{lines}\n",
            }
        ],
        frames=b.frames,
        nodes=b.nodes,
        tags=b.tags,
        causes=b.causes,
        tables={
            "tokens": (TOKENS, columns),
            "values": (VALUES, values),
            "iterations": (ITERATIONS, iterations),
            "crossings": (CROSSINGS, b.crossings),
        },
        critical=np.flatnonzero(columns["device"] == 0)[::3],
        stages=list(STAGES),
    )


def flat(nodes: int = 2000) -> Document:
    """A chain without scopes, in which each operation also reads the first one."""
    b = Builder(["/device:CPU:0"])
    all = [b.node("first", "Placeholder")]
    for at in range(1, nodes):
        all.append(b.node(f"step_{at}", "AddN", [all[-1], all[0]]))
    for node in all:
        b.fire(node, 0, np.float32(node))
    return b.document(("chain.py", "x = 1\n"))


def graph_only() -> Document:
    """The graph of `nested` without a run."""
    document = nested()
    parts = {name: document[name] for name in ("devices", "files", "frames", "nodes")}
    facts = [["operations by type", f"{len(document['nodes'])} of many types"]]
    head = {"format": "headrace-graph", "version": 1, "headrace": "0.1.0", "title": "refine.pb"}
    return {**head, **parts, "facts": facts, "problems": [], "left_out": 0}


DOCUMENTS = {"nested": nested, "large": large, "graph": graph_only, "flat": flat}


def main(name: str, path: str) -> None:
    from headrace.view.page import assemble

    Path(path).write_text(assemble(json.dumps(DOCUMENTS[name]())), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
