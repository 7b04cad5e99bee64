"""Lossless text form of graphs, a line for each operation, for files and dumps.

    # x * w + 1, on two devices
    x   = Placeholder[dtype=float32, shape=[2,?]]
    w   = Const[value=float32[]{2.0}, dtype=float32] @"/device:CPU:1"
    one = Const[value=float32[]{1.0}, dtype=float32] ^x : float32[]
    xw  = Mul(x, w)
    y   = AddV2[T=float32](xw:0, one) : float32[2,?]

A line is `name = Type[attributes]{notes}(inputs) ^control @"device" : dtypes and shapes of the outputs`. Everything
after the type may be omitted if it is empty, has its default or can be inferred (`T` above). A note (`ir.notes`) is
written like an op type with its fields as attributes: `{ResidualPush[of="x", may_swap=true]}`. A name must be defined
in an earlier line, except in the input of a Merge that is a loop's back edge, and in control inputs. `#` starts a
comment.

| value of an attribute | written |
|---|---|
| dtype, bool, int, float | `float32`, `true`, `-3`, `1e-05` (a float has a point, an exponent, or is `inf` or `nan`) |
| string | `"text"`, with `\\n`, `\\"`, `\\\\` and `\\xff` for other bytes |
| shape | `[2,?]`; `<unknown>` for an unknown rank |
| list | `(1, 2)` |
| function | `&"name"[T=float32]`; `@"name"` for an owned graph, which follows |
| tensor | `int32[2,2]{1, 2, 3, 4}`; `float32[1000]{0.0...}` repeats one element; `:base64"..."` for long ones |
| others | `bad("reason", "...")`, a tensor that could not be read; `raw"..."`, an undeclared attribute as in the file |

A graph that an operation owns (`ir.function`) follows its line as a block, and so do functions that operations call:

    c = If[then_branch=@"c_true", else_branch=@"c_false", Tin=(float32), Tout=(float32)](p, x)
    graph "c_true" of c, then_branch (a: float32[2] of "x:0") -> (double) ^done {
      double = AddV2(a, a)
      done = NoOp ^double
    }
    graph "c_false" of c, else_branch (a: float32[2] of "x:0") -> (a) {
    }
    function "square" (v: float32[]) -> (y) {
      y = Mul(v, v)
    }

The first line of a block lists the parameters, the results and the control results. A parameter may state the captured
tensor (`of`) and the contents of a resource (`holds`, as in `v: resource[] holds float32[2]`). The name of the
attribute (`branches.0` in a list) is followed by `, is_ordered` and `, shares_names` if these properties hold, and by
the graph's attributes. A serialized function of a file's library is `function "name" = base64"..."`; `gradient "f" =
"g"` states that g computes the gradient of f.

The form is lossless: `to_text(from_text(to_text(g))) == to_text(g)`, with arrays equal bit for bit. (The text does not
contain the user's source lines, and parameters come first.) `inspect.program` is the form for readers, `str(graph)`: it
omits details and cannot be read again.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import GraphError
from headrace.ir import attr_values, walk
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.attr_values import REQUIRED, Func
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.serial import attrs as wire
from headrace.ir.serial.nodedefs import show_tensor
from headrace.ir.text.line import WORD, from_words
from headrace.ir.text.parse import read

_INLINE = 16  # maximum number of elements written as text; longer arrays are written as bytes

# *** out ***


@deepens_recursion
def to_text(graph: Graph | Sequence[Operation]) -> str:
    """Returns the text of a graph or operations; a FuncGraph is written as a function.

    Raises:
      GraphError: an attribute has a value without text form (an array of handles).

    Example:
      >>> print(to_text(from_text("x = Placeholder[dtype=int32, shape=[?]]")), end="")
      x = Placeholder[dtype=int32, shape=[?]] : int32[?]
    """
    if isinstance(graph, FuncGraph):
        lines = _block(f"function {_quote(graph.name)}", graph)
    else:
        lines = _lines(graph) if isinstance(graph, Graph) else _op_lines(graph)
    return "".join(line + "\n" for line in lines)


def _lines(graph: Graph) -> Iterator[str]:
    """Iterates over the lines of a graph, without its parameters and results."""
    if graph.versions != (0, 0):
        yield f"versions {graph.versions[0]} {graph.versions[1]}"
    for name, encoded in graph.library.items():
        yield f"function {_quote(name)} = {_base64(encoded.data)}"
    for name, gradient in graph.gradient_functions.items():
        yield f"gradient {_quote(name)} = {_quote(gradient)}"
    for name, f in graph.functions.items():
        if name not in graph.library:
            yield from _block(f"function {_quote(name)}", f)
    params = {t.op for t in graph.params} if isinstance(graph, FuncGraph) else frozenset()
    yield from _op_lines(_in_order([op for op in graph.operations if op not in params]))


def _in_order(ops: Sequence[Operation]) -> Sequence[Operation]:
    """Returns `ops`, each after the producers of its inputs.

    Creation order may differ, because conditionals and loops gain inputs after their creation.
    """
    late = {op: [t.op for t in op.inputs if t.op.id >= op.id and not walk.is_back_edge(t.op, op)] for op in ops}
    if not any(late.values()):
        return ops
    out: dict[Operation, None] = {}
    todo = list(reversed(ops))
    open_: set[Operation] = set()
    while todo:
        op = todo[-1]
        first = [] if op in open_ else [x for x in _makers(op) if x not in out]
        open_.add(op)
        if first:
            todo += reversed(first)
        else:
            out.setdefault(todo.pop())
    inside = set(ops)
    return [op for op in out if op in inside]


def _makers(op: Operation) -> Iterator[Operation]:
    return (t.op for t in op.inputs if not walk.is_back_edge(t.op, op))


def _op_lines(ops: Sequence[Operation]) -> Iterator[str]:
    """Iterates over the lines of operations, each followed by the graphs that it owns."""
    for op in ops:
        yield show_op(op)
        for name, spec in op.opdef.attrs.items():
            if spec.kind == "func":
                value = op.attrs.get(name)
                for i, f in enumerate(value if isinstance(value, tuple) else (value,)):
                    if isinstance(f, FuncGraph):
                        yield from _block(
                            f"graph {_quote(f.name)} of {op.name}, {name}{f'.{i}' if spec.is_list else ''}", f
                        )


def _block(first: str, graph: FuncGraph) -> Iterator[str]:
    """Iterates over the lines of a graph with parameters and results, in braces."""
    words = "".join(f", {w}" for w in ("is_ordered", "shares_names") if getattr(graph, w))
    attrs = _show_attrs([(name, show_value(v)) for name, v in graph.attrs.items()])
    params = ", ".join(map(_show_param, graph.params))
    results = ", ".join(map(show_tensor, graph.results))
    controls = "".join(f" ^{c.name}" for c in graph.control_results)
    yield f"{first}{words}{attrs and ' ' + attrs} ({params}) -> ({results}){controls} {{"
    for line in _lines(graph):
        yield "  " + line
    yield "}"


def _show_param(t: Tensor) -> str:
    attrs = t.op.attrs
    more = _show_attrs([(name, show_value(attrs[name])) for name in sorted(attrs.keys() - t.op.opdef.attrs.keys())])
    holds = f" holds {t.handle[0].name}{shapes.show(t.handle[1])}" if t.handle is not None else ""
    of = f" of {_quote(attrs['of'])}" if attrs["of"] else ""
    return f"{t.op.name}{more}: {t.dtype.name}{shapes.show(t.shape)}{holds}{of}"


def show_op(op: Operation) -> str:
    """Returns the line of one operation."""
    line = f"{op.name} = {op.type}"
    declared = op.opdef.attrs
    given = []
    for name in [*(n for n in declared if n in op.attrs), *sorted(op.attrs.keys() - declared.keys())]:
        value, spec = op.attrs[name], declared.get(name)
        if spec is None or spec.default is REQUIRED or not attr_values.equal(value, spec.default):
            given.append((name, show_value(value, spec is not None and spec.kind == "shape")))
    line += _show_attrs(given) + _show_notes(op)
    if op.inputs:
        line += "(" + ", ".join(map(show_tensor, op.inputs)) + ")"
    line += "".join(f" ^{c.name}" for c in op.control_inputs)
    if op.device:
        line += f" @{_quote(op.device)}"
    if op.outputs:
        line += " : " + ", ".join(f"{t.dtype.name}{shapes.show(t.shape)}" for t in op.outputs)
    return line


def _show_attrs(attrs: Sequence[tuple[str, str]]) -> str:
    if not attrs:
        return ""
    return "[" + ", ".join(f"{k if WORD.fullmatch(k) else _quote(k)}={v}" for k, v in attrs) + "]"


def _show_notes(op: Operation) -> str:
    """Returns the notes of an operation, except those that refer to objects of this process."""
    shown = []
    for n in op.notes:
        if not n.is_local:
            fields = [(f.name, show_value(getattr(n, f.name))) for f in dataclasses.fields(n)]
            shown.append(type(n).__name__ + _show_attrs(fields))
    return "{" + ", ".join(shown) + "}" if shown else ""


def show_value(v: Any, is_shape: bool = False) -> str:
    """Returns the text of an attribute's value.

    Args:
      v: the value.
      is_shape: whether the value is a shape or a list of shapes.

    Raises:
      GraphError: the value has no text form.
    """
    if is_shape and (v is None or all(d is None or isinstance(d, int) for d in v)):
        return shapes.show(v)
    if isinstance(v, tuple):
        return "(" + ", ".join(show_value(x, is_shape) for x in v) + ")"
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
    if isinstance(v, FuncGraph):
        return "@" + _quote(v.name)
    if isinstance(v, Func):
        return "&" + _quote(v.name) + _show_attrs([(name, show_value(x)) for name, x in v.attrs])
    if isinstance(v, np.ndarray):
        return _show_array(v)
    if isinstance(v, attr_values.BadTensor):
        return f"bad({_quote(v.reason)}, {_base64(v.proto)})"
    if isinstance(v, attr_values.Raw):
        return f"raw({_base64(v.proto)})"
    raise GraphError(f"{v!r} ({type(v).__name__}) has no text form")


def _show_array(array: wire.Values) -> str:
    dtype = dtypes.from_numpy(array.dtype)
    head = dtype.name + shapes.show(array.shape)
    repeated = "..." if array.size > 1 and attr_values.is_splat(array) else ""
    flat = attr_values.first_element(array) if repeated else array.reshape(-1)
    if dtype is dtypes.string:
        if not all(isinstance(x, bytes) for x in flat):
            raise GraphError(f"an array of {type(flat[0]).__name__} objects has no text form")
        return f"{head}{{{', '.join(map(_quote, flat))}{repeated}}}"
    if len(flat) <= _INLINE:
        words = [str(x).lower() if dtype is dtypes.bool_ else str(x).strip("()") for x in flat]
        if from_words(dtype, words).tobytes() == flat.tobytes():  # false for a NaN with unusual bits
            return f"{head}{{{', '.join(words)}{repeated}}}"
    return f"{head}:{_base64(flat.astype(flat.dtype.newbyteorder('<'), copy=False).tobytes())}{repeated}"


_ESCAPES: Final = {ord("\n"): r"\n", ord("\t"): r"\t", ord("\r"): r"\r", ord('"'): r"\"", ord("\\"): r"\\"}


def _quote(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else wire.to_bytes(text)
    return '"' + "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data) + '"'


def _base64(data: bytes) -> str:
    return f'base64"{base64.b64encode(data).decode()}"'


# *** in ***


def from_text(text: str, file: str = "<text>") -> Graph:
    """Returns the graph that `text` describes.

    The shapes of outputs are inferred. If a line states a shape that is compatible with the inferred one, the stated
    shape is used.

    Args:
      text: the text; see the module's docstring.
      file: the name of the text in error messages; each operation's `source` is its line in this file.

    Returns:
      The graph.

    Raises:
      TextError (a GraphError): the text is invalid; the message shows the line, with a caret at the error.
      ShapeError: the inputs of an operation do not fit together.

    Example:
      >>> g = from_text("x = Placeholder[dtype=float32, shape=[2,?]]\\ny = Identity(x)")
      >>> g.get_tensor_by_name("y:0")
      <Tensor 'y:0' shape=[2,?] dtype=float32>
    """
    return read(text, file)
