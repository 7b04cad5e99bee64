"""Parser of the text form. `ir.text` describes the form and has the public functions.

A text is read in two stages. The first stage reads the lines, independent of each other, into a tree of blocks
(`_Block`): the graph, its functions, the graphs that operations own. The second stage creates the operations of each
block. It completes the blocks that an operation owns before the operation itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace import recursion, shapes
from headrace.dtypes import DType
from headrace.errors import GraphError
from headrace.ir import attr_values
from headrace.ir.analysis.loop_shapes import infer_all
from headrace.ir.function import connect
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.opdef import OpDef, op_registry
from headrace.ir.serial.functiondef import EncodedFunction
from headrace.ir.source import Source
from headrace.ir.text.line import INT, NAME, WORD, Line, OwnedName
from headrace.shapes import Shape


class _Entry:
    """Operation as its line describes it.

    Attributes:
      line: the line.
      start: the column of the name.
      name: the name.
      type: the op type.
      attrs: the stated attributes.
      notes: the notes.
      inputs: (column, name, output index) of each input.
      controls: (column, name) of each control input.
      device: the requested device.
      outputs: (column, dtype, shape or `_UNSTATED`) of each output; None if the line does not state them.
      op: the operation created from the line, or None.
    """

    __slots__ = ("attrs", "controls", "device", "inputs", "line", "name", "notes", "op", "outputs", "start", "type")

    def __init__(self, line: Line, start: int, name: str) -> None:
        self.line = line
        self.start = start
        self.name = name
        self.type = line.match(NAME, "an op type")
        self.attrs = line.attrs()
        self.notes = line.notes()
        self.inputs: list[tuple[int, str, int]] = []
        self.device = ""
        self.outputs: list[tuple[int, DType, Any]] | None = None
        self.op: Operation | None = None
        if line.take("("):
            self.inputs = line.several(line.tensor_name, ")")
        self.controls = line.control_names()
        if line.take("@"):
            self.device = line.word()
        if line.take(":"):
            self.outputs = [self._output()]
            while line.take(","):
                self.outputs.append(self._output())
        if not line.ends():
            raise line.error("expected the end of the line")

    def _output(self) -> tuple[int, DType, Any]:
        line = self.line
        at, dtype = line.skip(), line.dtype()
        stated = line.at < len(line.text) and line.text[line.at] in "[<"
        return at, dtype, line.shape() if stated else _UNSTATED


_UNSTATED: Final = object()


class _Param:
    """Parameter as the first line of a block describes it."""

    __slots__ = ("at", "attrs", "dtype", "handle", "name", "shape")

    def __init__(self, line: Line) -> None:
        self.at = line.skip()
        self.name = line.match(NAME, "the name of a parameter")
        self.attrs = line.attrs()
        line.need(":")
        self.dtype = line.dtype()
        self.shape = line.shape()
        self.handle: tuple[DType, Shape] | None = None
        if line.take_word("holds"):
            self.handle = line.dtype(), line.shape()
        self.attrs["of"] = line.word() if line.take_word("of") else ""


class _Block:
    """Block of a text: the graph as a whole, a function, or an owned graph.

    Attributes:
      graph: the graph that is created.
      line, start: the first line of the block, and the column where it begins; None for the whole text.
      name: its name.
      owner, attr: the operation and attribute that own it; "" for a function.
      entries: its operations, by name.
      functions: the functions written in it.
      owned: the graphs that its operations own, by operation and attribute.
      is_made: whether its operations have been created.
      depth: the number of blocks around it.
    """

    def __init__(self, line: Line | None, outer: _Block | None, start: int = 0) -> None:
        self.line = line
        self.start = start
        self.name = self.owner = self.attr = ""
        self.entries: dict[str, _Entry] = {}
        self.functions: dict[str, _Block] = {}
        self.owned: dict[tuple[str, str], _Block] = {}
        self.is_made = False
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._results: list[tuple[int, str, int]] = []
        self._controls: list[tuple[int, str]] = []
        self.graph: Graph = Graph() if line is None or outer is None else self._read_first(line, outer.graph)

    def _read_first(self, line: Line, outer: Graph) -> FuncGraph:
        """Reads the first line of a block after `graph` or `function`.

        Its form is `"name" of owner, attribute (params) -> ... {`.
        """
        self.name = line.word()
        words = {}
        if line.take_word("of"):
            self.owner = line.match(NAME, "the name of an operation")
            line.need(",")
            self.attr = line.word() if line.looks_at('"') else line.match(WORD, "the name of an attribute")
        while line.take(","):
            at = line.skip()
            word = line.match(WORD, "is_ordered or shares_names")
            if word not in ("is_ordered", "shares_names"):
                raise line.error(f"{word!r} is neither is_ordered nor shares_names", at)
            words[word] = True
        graph = FuncGraph(self.name, outer, captures_from_outer=bool(self.owner), shares_names="shares_names" in words)
        graph.is_ordered = "is_ordered" in words
        graph.attrs = line.attrs()
        graph.source = Source(line.file, line.number)
        line.need("(")
        params: list[Tensor] = []
        for p in line.several(lambda: _Param(line), ")"):
            attrs = {**p.attrs, "T": p.dtype, "index": len(params), "shape": p.shape}
            try:
                t = graph.add_op("_Arg", p.name, attrs=attrs, source=graph.source).outputs[0]
            except GraphError as e:
                raise line.error(str(e), p.at) from e
            t.replace_static(p.shape, p.handle)
            params.append(t)
        graph.set_params(params)
        line.need("->")
        line.need("(")
        self._results = line.several(line.tensor_name, ")")
        self._controls = line.control_names()
        line.need("{")
        return graph

    # *** making ***

    def make(self) -> Graph:
        """Creates the functions and operations."""
        graph = self.graph
        for name, f in self.functions.items():
            made = f.make()
            assert isinstance(made, FuncGraph)
            graph.functions[name] = made
        late: list[tuple[_Entry, int]] = []
        for entry in self.entries.values():
            late += self.make_op(entry)
        for entry, i in late:
            self.close(entry, i)
        for entry in self.entries.values():
            self.add_controls(entry)
        infer_all([e.op for e in self.entries.values() if e.op is not None])
        for entry in self.entries.values():
            self.check_outputs(entry)
        for block in self.owned.values():
            if not block.is_made:
                assert block.line is not None
                raise block.line.error(
                    f"there is no operation {block.owner!r} with an attribute {block.attr!r} for it", block.start
                )
        if isinstance(graph, FuncGraph) and self.line is not None:
            self.finish(graph, self.line)
        self.is_made = True
        return graph

    def finish(self, graph: FuncGraph, line: Line) -> None:
        """Sets the results, which the first line names."""
        results, controls = [], []
        for at, name, index in self._results:
            op = graph.find(name)
            if op is None or index >= len(op.outputs):
                raise line.error(f"there is no tensor {name}:{index} in it", at)
            results.append(op.outputs[index])
        for at, name in self._controls:
            op = graph.find(name)
            if op is None:
                raise line.error(f"there is no operation {name!r} in it", at)
            controls.append(op)
        graph.set_results(results, controls)

    def make_op(self, entry: _Entry) -> list[tuple[_Entry, int]]:
        """Creates the operation of `entry`; returns its inputs that are defined in later lines."""
        try:
            record = op_registry.get(entry.type)
        except LookupError as e:
            raise entry.line.error(str(e), entry.start) from e.__cause__
        found = [self.tensor(entry, *i) for i in entry.inputs]
        there = [t for t in found if t is not None]
        late = [(entry, i) for i, t in enumerate(found) if t is None]
        if late and not (record.primitive == "Merge" and there):
            at, name, _ = entry.inputs[late[0][1]]
            raise entry.line.error(
                f"{name!r} is not defined above; only a Merge may take such an input, from a NextIteration further "
                "down, beside one that is defined above",
                at,
            )
        inputs = [there[0] if t is None else t for t in found]
        controls = []
        for at, name in entry.controls:
            before = self.operation(entry, at, name)
            if before is None:
                break  # defined in a later line: add_controls adds this and the following ones, in order
            controls.append(before)
        self.add_owned(entry, record)
        try:
            attrs = _complete(record, entry.attrs, inputs)
            attr_values.check_const(record.type, attrs)
            where = Source(entry.line.file, entry.line.number)
            entry.op = self.graph.add_op(
                record.type, entry.name, inputs, attrs, controls, entry.device, where, notes=entry.notes
            )
        except GraphError as e:
            raise entry.line.error(str(e), entry.start) from e
        for (owner, _), block in self.owned.items():
            if owner == entry.name:
                assert isinstance(block.graph, FuncGraph)
                connect(entry.op, block.graph)
        return late

    def add_owned(self, entry: _Entry, record: OpDef) -> None:
        """Replaces the names of owned graphs in the attributes of an operation by the graphs."""

        def graph(value: Any, path: str) -> Any:
            if not isinstance(value, OwnedName):
                return value
            block = self.owned.get((entry.name, path))
            if block is None or block.name != value.name:
                raise entry.line.error(f"no graph {value.name!r} of {entry.name}, {path} follows", entry.start)
            return block.make()

        for name, value in entry.attrs.items():
            spec = record.attrs.get(name)
            if spec is None or spec.kind != "func":
                if isinstance(value, OwnedName) or (
                    isinstance(value, tuple) and any(isinstance(v, OwnedName) for v in value)
                ):
                    raise entry.line.error(f"the attribute {name!r} of {record.type} holds no graph", entry.start)
            elif isinstance(value, tuple):
                entry.attrs[name] = tuple(graph(v, f"{name}.{i}") for i, v in enumerate(value))
            else:
                entry.attrs[name] = graph(value, name)

    def operation(self, entry: _Entry, at: int, name: str) -> Operation | None:
        """Returns the operation called `name`; None if a later line defines it."""
        op = self.graph.find(name)
        if op is None and name not in self.entries:
            raise entry.line.error(f"there is no operation {name!r}", at)
        return op

    def tensor(self, entry: _Entry, at: int, name: str, index: int) -> Tensor | None:
        """Returns the tensor `name:index`; None if a later line defines it."""
        source = self.operation(entry, at, name)
        if source is not None and index >= len(source.outputs):
            has = len(source.outputs)
            raise entry.line.error(f"{name!r} ({source.type}) has {has} outputs, so no output {index}", at)
        return None if source is None else source.outputs[index]

    def close(self, entry: _Entry, i: int) -> None:
        """Sets input `i` of a Merge, a back edge."""
        at, name, index = entry.inputs[i]
        t = self.tensor(entry, at, name, index)
        assert t is not None
        assert entry.op is not None
        if t.op.opdef.primitive != "NextIteration":
            raise entry.line.error(f"{name!r} is defined further down and is a {t.op.type}, not a NextIteration", at)
        want = entry.op.outputs[0].dtype
        if t.dtype != want:
            raise entry.line.error(f"{name!r} is {t.dtype}, and this Merge takes {want}", at)
        self.graph.set_back_edge(entry.op, i, t)

    def add_controls(self, entry: _Entry) -> None:
        assert entry.op is not None
        for at, name in entry.controls[len(entry.op.control_inputs) :]:
            before = self.operation(entry, at, name)
            assert before is not None
            self.graph.add_control_input(entry.op, before)

    def check_outputs(self, entry: _Entry) -> None:
        """Compares the stated dtypes and shapes of the outputs with the inferred ones."""
        if entry.outputs is None or entry.op is None:
            return
        if len(entry.outputs) != len(entry.op.outputs):
            text = f"{entry.type} has {len(entry.op.outputs)} outputs, and the line describes {len(entry.outputs)}"
            raise entry.line.error(text, entry.outputs[0][0])
        for (at, dtype, shape), t in zip(entry.outputs, entry.op.outputs, strict=True):
            if dtype != t.dtype:
                raise entry.line.error(f"{t.name} is {t.dtype}, not {dtype}", at)
            if shape is _UNSTATED:
                continue
            if not shapes.compatible(shape, t.shape):
                raise entry.line.error(f"the shape of {t.name} is {shapes.show(t.shape)}, not {shapes.show(shape)}", at)
            t.replace_static(shape, t.handle)


@recursion.recursion_room_for_levels(recursion.MOST)
def read(text: str, file: str) -> Graph:
    """Returns the graph that `text` describes; see `ir.text.from_text`."""
    root = _Block(None, None)
    blocks = [root]
    for number, line_text in enumerate(text.split("\n"), 1):
        line = Line(line_text, number, file)
        if not line.ends():
            _read_line(line, blocks)
    if len(blocks) > 1:
        assert blocks[-1].line is not None
        raise blocks[-1].line.error("nothing ends this block; a line with a '}' does", 0)
    return root.make()


def _read_line(line: Line, blocks: list[_Block]) -> None:
    """Reads one line of the last of `blocks`."""
    block = blocks[-1]
    if len(blocks) > 1 and line.take("}"):
        blocks.pop()
    else:
        start = line.skip()
        name = line.match(NAME, "the name of an operation")
        if name == "versions" and not line.looks_at("="):
            block.graph.versions = (int(line.match(INT, "a number")), int(line.match(INT, "a number")))
        elif name in ("function", "graph") and line.looks_at('"'):
            _read_graph(line, start, name == "function", blocks)
        elif name == "gradient" and line.looks_at('"'):
            function = line.word()
            line.need("=")
            block.graph.gradient_functions[function] = line.word()
        else:
            line.need("=")
            entry = _Entry(line, start, name)
            before = block.entries.setdefault(name, entry)
            if before is not entry:
                raise line.error(f"Node '{name}' is not unique: line {before.line.number} has one", start)
    if not line.ends():
        raise line.error("expected the end of the line")


def _read_graph(line: Line, start: int, is_function: bool, blocks: list[_Block]) -> None:
    """Reads a function of the library, or the first line of a block."""
    outer = blocks[-1]
    at = line.at
    name = line.word()
    if is_function and line.take("="):
        outer.graph.library[name] = EncodedFunction(line.base64())
        return
    if line.looks_at("base64"):
        line.need("=")
    line.at = at
    if outer.depth >= recursion.MOST:
        raise line.error(f"graphs are nested more than {recursion.MOST} deep", start)
    block = _Block(line, outer, start)
    if is_function == bool(block.owner):
        raise line.error("a graph is of an operation, and a function of none", start)
    if is_function:
        before = outer.functions.setdefault(name, block)
    else:
        before = outer.owned.setdefault((block.owner, block.attr), block)
    if before is not block:
        assert before.line is not None
        raise line.error(f"line {before.line.number} has one for that already", start)
    blocks.append(block)


def _complete(record: OpDef, given: dict[str, Any], inputs: Sequence[Tensor]) -> dict[str, Any]:
    """Returns complete attributes.

    Attributes that follow from the inputs may be missing, unless the record has several list arguments.

    Raises:
      GraphError: the number of inputs is wrong, or an attribute is missing or wrong.
    """
    lists = [a for a in record.ins if a.is_list]
    rest = len(inputs) - (len(record.ins) - len(lists))
    if rest < 0 or (rest and not lists):
        arguments = ", ".join(a.name for a in record.ins) or "none"
        raise GraphError(f"{record.type} takes {len(record.ins)} inputs ({arguments}), got {len(inputs)}")
    if len(lists) > 1:
        return record.complete_attrs(given)
    groups, at = [], 0
    for arg in record.ins:
        n = rest if arg.is_list else 1
        groups.append([t.dtype for t in inputs[at : at + n]])
        at += n
    return record.infer_attrs(groups, given)
