"""Graphs as text, one line for each operation: what humans read, and tests of passes write.

    # x * w + 1, on two devices
    x   = Placeholder[dtype=float32, shape=[2,?]]
    w   = Const[value=float32[]{2.0}, dtype=float32] @"/device:CPU:1"
    one = Const[value=float32[]{1.0}, dtype=float32] ^x : float32[]
    xw  = Mul(x, w)
    y   = AddV2[T=float32](xw:0, one) : float32[2,?]

A line is `name = Type[attributes](inputs) ^control @"device" : dtypes and shapes of the outputs`; everything after the
type may be left out where it is empty, has its default or can be inferred (`T` above). A name must be defined in a line
above, except where a Merge takes the input of a loop's back edge, and in control inputs. `#` starts a comment.

| value of an attribute | written |
|---|---|
| dtype, bool, int, float | `float32`, `true`, `-3`, `1e-05` (a float has a point, an exponent, or is `inf` or `nan`) |
| string | `"text"`, with `\\n`, `\\"`, `\\\\` and `\\xff` for other bytes |
| shape | `[2,?]`; `<unknown>` for an unknown rank |
| list | `(1, 2)` |
| function | `&"name"[T=float32]` |
| tensor | `int32[2,2]{1, 2, 3, 4}`; `float32[1000]{0.0...}` repeats one element; `:base64"..."` for long ones |
| others | `bad("reason", "...")`, a tensor that could not be read; `raw"..."`, an undeclared attribute as in the file |

Nothing is lost on the way out and back: `to_text(from_text(to_text(g))) == to_text(g)`, with the same arrays bit for
bit. (The lines of the user's program that made the operations are not part of the text.)
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import GraphError, TextError
from headrace.ir import attrs as wire
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.loop_shapes import infer_all
from headrace.ir.opdef import REQUIRED, Func, OpDef, op_registry
from headrace.ir.source import Source
from headrace.shapes import Shape

_INLINE = 16  # elements of an array written out; of longer ones the bytes are

# *** out ***


def to_text(graph: Graph | Sequence[Operation]) -> str:
    """The text of a graph, or of some operations.

    Raises:
      GraphError: an attribute holds what has no text (an array of handles).

    Example:
      >>> print(to_text(from_text("x = Placeholder[dtype=int32, shape=[?]]")), end="")
      x = Placeholder[dtype=int32, shape=[?]] : int32[?]
    """
    lines = []
    if isinstance(graph, Graph):
        if graph.versions != (0, 0):
            lines.append(f"versions {graph.versions[0]} {graph.versions[1]}")
        lines += [f"function {_quote(name)} = {_base64(data)}" for name, data in graph.library.items()]
        graph = graph.operations
    lines += map(show_op, graph)
    return "".join(line + "\n" for line in lines)


def show_op(op: Operation) -> str:
    """The line of one operation."""
    line = f"{op.name} = {op.type}"
    declared = op.opdef.attrs
    given = []
    for name in [*(n for n in declared if n in op.attrs), *sorted(op.attrs.keys() - declared.keys())]:
        value, spec = op.attrs[name], declared.get(name)
        if spec is None or spec.default is REQUIRED or not wire.equal(value, spec.default):
            given.append((name, _show(value, spec is not None and spec.kind == "shape")))
    line += _show_attrs(given)
    if op.inputs:
        line += "(" + ", ".join(t.name if t.index else t.op.name for t in op.inputs) + ")"
    line += "".join(f" ^{c.name}" for c in op.control_inputs)
    if op.device:
        line += f" @{_quote(op.device)}"
    if op.outputs:
        line += " : " + ", ".join(f"{t.dtype.name}{shapes.show(t.shape)}" for t in op.outputs)
    return line


def _show_attrs(attrs: Sequence[tuple[str, str]]) -> str:
    if not attrs:
        return ""
    return "[" + ", ".join(f"{k if _WORD.fullmatch(k) else _quote(k)}={v}" for k, v in attrs) + "]"


def _show(v: Any, is_shape: bool = False) -> str:
    """The text of an attribute's value. `is_shape`: it is a shape, or a list of them."""
    if is_shape and (v is None or all(d is None or isinstance(d, int) for d in v)):
        return shapes.show(v)
    if isinstance(v, tuple):
        return "(" + ", ".join(_show(x, is_shape) for x in v) + ")"
    if isinstance(v, DType):
        return v.name
    if isinstance(v, (bool, np.bool_)):
        return "true" if v else "false"
    if isinstance(v, (int, np.integer)):
        return str(int(v))
    if isinstance(v, (float, np.floating)):
        return repr(float(v))
    if isinstance(v, str):
        return _quote(v)
    if isinstance(v, Func):
        return "&" + _quote(v.name) + _show_attrs([(name, _show(x)) for name, x in v.attrs])
    if isinstance(v, np.ndarray):
        return _show_array(v)
    if isinstance(v, wire.BadTensor):
        return f"bad({_quote(v.reason)}, {_base64(v.proto)})"
    if isinstance(v, wire.Raw):
        return f"raw({_base64(v.proto)})"
    raise GraphError(f"{v!r} ({type(v).__name__}) has no text form")


def _show_array(array: wire.Values) -> str:
    dtype = dtypes.from_numpy(array.dtype)
    head = dtype.name + shapes.show(array.shape)
    repeated = "..." if array.size > 1 and wire.is_splat(array) else ""
    flat = wire.first_element(array) if repeated else array.reshape(-1)
    if dtype is dtypes.string:
        if not all(isinstance(x, bytes) for x in flat):
            raise GraphError(f"an array of {type(flat[0]).__name__} objects has no text form")
        return f"{head}{{{', '.join(map(_quote, flat))}{repeated}}}"
    if len(flat) <= _INLINE:
        words = [str(x).lower() if dtype is dtypes.bool_ else str(x).strip("()") for x in flat]
        if _from_words(dtype, words).tobytes() == flat.tobytes():  # else it has a NaN of a special kind
            return f"{head}{{{', '.join(words)}{repeated}}}"
    return f"{head}:{_base64(flat.astype(flat.dtype.newbyteorder('<'), copy=False).tobytes())}{repeated}"


def _from_words(dtype: DType, words: Sequence[str]) -> wire.Values:
    """The vector that the elements written as `words` make; `ValueError` if one is no element of `dtype`."""
    of: Callable[[str], Any]
    if dtype is dtypes.bool_:
        values: list[Any] = [{"true": True, "false": False}.get(w) for w in words]
        if None in values:
            raise ValueError(f"{words[values.index(None)]!r} is neither true nor false")
        return np.array(values, bool)
    if dtype.is_integer:
        return np.array([int(w) for w in words], dtype.numpy)
    of = complex if dtype.is_complex else float
    wide = np.array([of(w) for w in words], np.complex128 if dtype.is_complex else np.float64)
    with np.errstate(over="ignore"):
        return wide.astype(dtype.numpy)


_ESCAPES: Final = {ord("\n"): r"\n", ord("\t"): r"\t", ord("\r"): r"\r", ord('"'): r"\"", ord("\\"): r"\\"}


def _quote(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else wire.to_bytes(text)
    return '"' + "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data) + '"'


def _base64(data: bytes) -> str:
    return f'base64"{base64.b64encode(data).decode()}"'


# *** in ***

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")  # names of attributes
_NAME: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_.\\/>-]*")  # names of operations and types
_ATOM: Final = re.compile(r"[A-Za-z0-9_.+-]+")
_INT: Final = re.compile(r"[+-]?[0-9]{1,20}(?![0-9])")
_DIM: Final = re.compile(r"[0-9]{1,19}(?![0-9])|\?")
_ELEMENT: Final = re.compile(r"[^\s,{}\"]+?(?=\.\.\.|[\s,{}\"])")
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_UNESCAPED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b'"': b'"', b"\\": b"\\"}
_SPACE: Final = re.compile(r"[ \t\r]*")


def from_text(text: str, file: str = "<text>") -> Graph:
    """The graph that `text` describes.

    The shapes of outputs are inferred; where a line states them, that is what they are, if the two agree.

    Args:
      text: see the module's docstring.
      file: what to call the text in error messages; each operation's `source` is its line of it.

    Raises:
      TextError (a GraphError): it is no text of a graph; the message has the line, with a caret where it goes wrong.
      ShapeError: the inputs of an operation cannot go together.

    Example:
      >>> g = from_text("x = Placeholder[dtype=float32, shape=[2,?]]\\ny = Identity(x)")
      >>> g.get_tensor_by_name("y:0")
      <Tensor 'y:0' shape=[2,?] dtype=float32>
    """
    return _Reader(text, file).read()


class _Line:
    """A line that is being read from left to right."""

    def __init__(self, text: str, number: int, file: str) -> None:
        self.text = text
        self.number = number
        self.file = file
        self.at = 0

    def error(self, message: str, at: int | None = None) -> TextError:
        at = min(self.at if at is None else at, len(self.text))
        shown = self.text.replace("\t", " ")
        return TextError(f"{self.file}:{self.number}:{at + 1}: {message}\n  {shown}\n  {' ' * at}^")

    def skip(self) -> int:
        m = _SPACE.match(self.text, self.at)
        self.at = m.end() if m else self.at
        return self.at

    def ends(self) -> bool:
        self.skip()
        return self.at == len(self.text) or self.text[self.at] == "#"

    def looks_at(self, what: str) -> bool:
        return self.text.startswith(what, self.skip())

    def take(self, what: str) -> bool:
        if not self.looks_at(what):
            return False
        self.at += len(what)
        return True

    def need(self, what: str) -> None:
        if not self.take(what):
            raise self.error(f"expected {what!r}")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        m = pattern.match(self.text, self.skip())
        if m is None:
            raise self.error(f"expected {what}")
        self.at = m.end()
        return m.group()

    def several(self, read: Callable[[], Any], end: str) -> list[Any]:
        """`read()`, separated by commas, up to `end`."""
        out: list[Any] = []
        while not self.take(end):
            if out:
                self.need(",")
            out.append(read())
        return out

    # *** values ***

    def string(self) -> bytes:
        start = self.skip()
        quoted = self.match(_STRING, "a string in double quotes")[1:-1]

        def unescape(m: re.Match[bytes]) -> bytes:
            if m.group(1):
                return bytes([int(m.group(1), 16)])
            plain = _UNESCAPED.get(m.group(2))
            if plain is None:
                raise self.error(f"\\{m.group(2).decode(errors='replace')} is no escape in a string", start)
            return plain

        return _ESCAPE.sub(unescape, quoted.encode("utf-8", "surrogatepass"))

    def word(self) -> str:
        return self.string().decode("utf-8", "surrogateescape")

    def base64(self) -> bytes:
        self.need("base64")
        start = self.at
        try:
            return base64.b64decode(self.string(), validate=True)
        except binascii.Error as e:
            raise self.error(f"not base64: {e}", start) from e

    def shape(self) -> Shape:
        if self.take("<unknown>"):
            return None
        self.need("[")
        dims = self.several(lambda: self.match(_DIM, "a dimension or '?'"), "]")
        return tuple(None if d == "?" else int(d) for d in dims)

    def dtype(self) -> DType:
        start = self.skip()
        word = self.match(_ATOM, "a dtype")
        try:
            return dtypes.as_dtype(word)
        except TypeError as e:
            raise self.error(str(e), start) from None

    def attrs(self) -> dict[str, Any]:
        """`[name=value, ...]`, if it is there."""
        out: dict[str, Any] = {}
        if not self.take("["):
            return out

        def one() -> None:
            start = self.skip()
            name = self.word() if self.looks_at('"') else self.match(_WORD, "the name of an attribute")
            if name in out:
                raise self.error(f"the attribute {name!r} is given twice", start)
            self.need("=")
            out[name] = self.value()

        self.several(one, "]")
        return out

    def value(self) -> Any:
        start = self.skip()
        if self.looks_at('"'):
            return self.word()
        if self.looks_at("[") or self.looks_at("<"):
            return self.shape()
        if self.take("("):
            return tuple(self.several(self.value, ")"))
        if self.take("&"):
            name = self.word()
            return Func(name, tuple(self.attrs().items()))
        word = self.match(_ATOM, "a value")
        if word in ("true", "false"):
            return word == "true"
        if word == "bad":
            self.need("(")
            reason = self.word()
            self.need(",")
            bad = wire.BadTensor(reason, self.base64())
            self.need(")")
            return bad
        if word == "raw":
            self.need("(")
            raw = wire.Raw(self.base64())
            self.need(")")
            return raw
        if word.lstrip("+-").isdigit():
            self.at = start
            return int(self.match(_INT, "an integer of 64 bits"))
        try:
            return float(word)
        except ValueError:
            self.at = start
        dtype = self.dtype()
        return self.array(dtype) if self.text.startswith("[", self.at) else dtype

    def array(self, dtype: DType) -> wire.Values:
        start = self.at
        shape = self.shape()
        if shape is None or None in shape or dtype.is_ref or dtype in (dtypes.resource, dtypes.variant):
            raise self.error(f"there is no array of {dtype.name}{shapes.show(shape)}", start)
        sizes = tuple(d for d in shape if d is not None)
        try:
            flat, repeated = self.elements(dtype)
            array = np.broadcast_to(flat.reshape(()), sizes) if repeated else flat.reshape(sizes)
        except (ValueError, OverflowError, TypeError) as e:
            if isinstance(e, TextError):
                raise
            raise self.error(f"no elements of an array of {dtype.name}{shapes.show(shape)}: {e}", start) from e
        array.flags.writeable = False
        return array

    def elements(self, dtype: DType) -> tuple[wire.Values, bool]:
        """The elements of an array, and whether "..." says that the one there is stands for all."""
        if self.take(":"):
            stored = np.dtype(np.uint8) if dtype is dtypes.bool_ else dtype.numpy.newbyteorder("<")
            return np.frombuffer(self.base64(), stored).astype(dtype.numpy), self.take("...")
        self.need("{")
        words: list[Any] = []
        while not self.looks_at("}") and not self.looks_at("..."):
            if words:
                self.need(",")
            words.append(self.string() if dtype is dtypes.string else self.match(_ELEMENT, "an element"))
        repeated = self.take("...")
        self.need("}")
        if dtype is not dtypes.string:
            return _from_words(dtype, words), repeated
        out = np.empty(len(words), object)
        out[:] = words
        return out, repeated


class _Entry:
    """An operation as its line describes it.

    Attributes:
      line: where it stands.
      start: the column of its name.
      inputs: (column, name, output index).
      controls: (column, name).
      outputs: (column, dtype, shape or `_UNSTATED`), or None where the line does not say.
      op: the operation made of it.
    """

    __slots__ = ("attrs", "controls", "device", "inputs", "line", "name", "op", "outputs", "start", "type")

    def __init__(self, line: _Line, start: int, name: str) -> None:
        self.line = line
        self.start = start
        self.name = name
        self.type = line.match(_NAME, "an op type")
        self.attrs = line.attrs()
        self.inputs: list[tuple[int, str, int]] = []
        self.controls: list[tuple[int, str]] = []
        self.device = ""
        self.outputs: list[tuple[int, DType, Any]] | None = None
        self.op: Operation | None = None
        if line.take("("):
            self.inputs = line.several(self._input, ")")
        while line.take("^"):
            self.controls.append((line.at, line.match(_NAME, "the name of an operation")))
        if line.take("@"):
            self.device = line.word()
        if line.take(":"):
            self.outputs = [self._output()]
            while line.take(","):
                self.outputs.append(self._output())
        if not line.ends():
            raise line.error("expected the end of the line")

    def _input(self) -> tuple[int, str, int]:
        at = self.line.skip()
        name = self.line.match(_NAME, "the name of a tensor")
        index = int(self.line.match(_INT, "the index of an output")) if self.line.take(":") else 0
        return at, name, index

    def _output(self) -> tuple[int, DType, Any]:
        line = self.line
        at, dtype = line.skip(), line.dtype()
        stated = line.at < len(line.text) and line.text[line.at] in "[<"
        return at, dtype, line.shape() if stated else _UNSTATED


_UNSTATED: Final = object()


class _Reader:
    """One reading of a text."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.graph = Graph()
        self.entries: dict[str, _Entry] = {}
        for number, line_text in enumerate(text.split("\n"), 1):
            line = _Line(line_text, number, file)
            if not line.ends():
                self.read_line(line)

    def read_line(self, line: _Line) -> None:
        start = line.skip()
        name = line.match(_NAME, "the name of an operation")
        if name == "versions" and not line.looks_at("="):
            self.graph.versions = (int(line.match(_INT, "a number")), int(line.match(_INT, "a number")))
        elif name == "function" and line.looks_at('"'):
            function = line.word()
            line.need("=")
            self.graph.library[function] = line.base64()
        else:
            line.need("=")
            entry = _Entry(line, start, name)
            before = self.entries.setdefault(name, entry)
            if before is not entry:
                raise line.error(f"Node '{name}' is not unique: line {before.line.number} has one", start)
            return
        if not line.ends():
            raise line.error("expected the end of the line")

    def read(self) -> Graph:
        late: list[tuple[_Entry, int]] = []
        for entry in self.entries.values():
            late += self.make(entry)
        for entry, i in late:
            self.close(entry, i)
        for entry in self.entries.values():
            self.add_controls(entry)
        infer_all(self.graph.operations)
        for entry in self.entries.values():
            self.check_outputs(entry)
        return self.graph

    def make(self, entry: _Entry) -> list[tuple[_Entry, int]]:
        """Makes the operation of `entry`; returns its inputs that are defined further down."""
        record = op_registry.find(entry.type)
        if record is None:
            try:
                op_registry.get(entry.type)
            except LookupError as e:
                raise entry.line.error(str(e), entry.start) from None
        assert record is not None
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
            before = self.entries.get(name)
            if before is None:
                raise entry.line.error(f"there is no operation {name!r}", at)
            if before.op is None:
                break  # defined further down: add_controls adds it and the ones after it, to keep their order
            controls.append(before.op)
        try:
            attrs = _complete(record, entry.attrs, inputs)
            check_const(record.type, attrs)
            where = Source(self.file, entry.line.number)
            entry.op = self.graph.add_op(record.type, entry.name, inputs, attrs, controls, entry.device, where)
        except GraphError as e:
            raise entry.line.error(str(e), entry.start) from e
        return late

    def tensor(self, entry: _Entry, at: int, name: str, index: int) -> Tensor | None:
        """The tensor called `name:index`; None if it is defined further down."""
        source = self.entries.get(name)
        if source is None:
            raise entry.line.error(f"there is no operation {name!r}", at)
        if source.op is None:
            return None
        if index >= len(source.op.outputs):
            has = len(source.op.outputs)
            raise entry.line.error(f"{name!r} ({source.type}) has {has} outputs, so no output {index}", at)
        return source.op.outputs[index]

    def close(self, entry: _Entry, i: int) -> None:
        """Gives a Merge its input `i`, a back edge."""
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
            if name not in self.entries:
                raise entry.line.error(f"there is no operation {name!r}", at)
            before = self.entries[name].op
            assert before is not None
            self.graph.add_control_input(entry.op, before)

    def check_outputs(self, entry: _Entry) -> None:
        """Compares what the line says of the outputs with what was inferred."""
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
            t.shape = shape


def _complete(record: OpDef, given: dict[str, Any], inputs: Sequence[Tensor]) -> dict[str, Any]:
    """Complete attributes; those that follow from the inputs may be left out if it is clear which input is which."""
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


def check_const(type: str, attrs: Mapping[str, Any]) -> None:
    """Raises `GraphError` if the array of a constant is not of the dtype that the constant has."""
    if type == "Const" and isinstance(attrs["value"], np.ndarray) and attrs["value"].dtype != attrs["dtype"].numpy:
        raise GraphError(f"a Const of {attrs['dtype']} holds an array of {dtypes.from_numpy(attrs['value'].dtype)}")
