"""Rewrites operations that only headrace has as TensorFlow's operations.

A file for other systems must consist of TensorFlow's operations. Nearly all operations of headrace are: each record is
compared with TensorFlow's own (`tests/conformance/test_op_records.py`). A few are not. Their names begin with an
underscore:

* Collectives become the operations that their kernels perform: sums in pairs, a concatenation, and an IdentityN with
  the old name and the same number of outputs. (On one device this loses nothing. The devices of the participants are
  not written.)
* `_SaveNative`, which writes a checkpoint in headrace's format, becomes SaveV2. A saver may also write the states of
  random ops, which TensorFlow's random ops do not have: `_RandomStates` becomes empty lists, and `_SetRandomStates` a
  NoOp.
* The access checks of arrays of `headrace.v1` are removed: `_TensorArrayTrack` and `_TensorArrayRefill` become
  Identities, and the marks NoOps.
* `_TensorListUnset` takes an element out of the gradient of a list when the element has been read. It becomes an
  assignment of zeros of the same shape, as in TensorFlow.

**Functions.** A function of headrace lists the effects that must happen (`control_ret`; a function from a graph of
`headrace.v1` has none, unless a result needs it). TensorFlow also runs all other stateful operations of a function. So
operations that a function does not need are removed from it, unless it came from a file.

**Errors.** An operation without a counterpart in TensorFlow is an error that names the user's line. So is a call of a
recursive function: TensorFlow's files can contain such a call, but TensorFlow inlines it without end when it runs the
function, and crashes.

The rewrite works on the message, in the graph and in its functions. So it covers functions of an imported file, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace import pb
from headrace.errors import GraphError
from headrace.ir.function import find_anywhere
from headrace.ir.serial.functiondef import functions_in
from headrace.opkit.tree_reduction import tree_reduce

if TYPE_CHECKING:
    from headrace.ir.graph import Graph

INT32: Final = pb.AttrValue(type=pb.DT_INT32)

# Operations of TensorFlow whose names begin with an underscore.
THEIRS: Final = frozenset({"_Arg", "_EagerConst", "_Retval", "_SwitchN", "_Send", "_Recv"})

_REDUCTIONS: Final[Mapping[bytes, str]] = {b"sum": "AddV2", b"prod": "Mul", b"max": "Maximum", b"min": "Minimum"}

Attrs: TypeAlias = "Mapping[str, pb.AttrValue]"
_Rewrite: TypeAlias = "Callable[[_Nodes, pb.NodeDef], None]"


def make_portable(graph_def: pb.GraphDef, graph: Graph) -> None:
    """Replaces headrace's own operations in `graph_def` by TensorFlow's.

    Args:
      graph_def: the message, which is changed.
      graph: the graph from which it was written.

    Raises:
      GraphError: an operation without a counterpart in TensorFlow, or a call of a recursive function; the text names it
        and the user's line.
    """
    _refuse_recursion(graph_def, graph)
    _rewrite(graph_def.node, None, graph)
    for function in graph_def.library.function:
        if function.signature.name not in graph.library:
            _leave_out_unneeded(function)
        _rewrite(function.node_def, function, graph)


def is_own(type: str) -> bool:
    """Whether `type` is an op type that only headrace has."""
    return type.startswith("_") and type not in THEIRS


def _refuse_recursion(graph_def: pb.GraphDef, graph: Graph) -> None:
    """Raises `GraphError` if the graph calls, directly or not, a recursive function."""
    functions = {f.signature.name: f for f in graph_def.library.function}
    if not functions:
        return
    done: set[str] = set()

    def callees(node: pb.NodeDef) -> list[str]:
        named = [f.name for f in functions_in(node.attr.values())]
        return [name for name in (node.op, *named) if name in functions]

    def calls(name: str) -> Iterator[str]:
        return (called for node in functions[name].node_def for called in callees(node))

    for node in graph_def.node:
        for first in callees(node):
            if first in done:
                continue
            # depth-first search without Python recursion, because the calls of a file may be nested deeply
            open_: dict[str, Iterator[str]] = {first: calls(first)}
            while open_:
                name = next(reversed(open_))
                called = next(open_[name], None)
                if called is None:
                    done.add(name)
                    del open_[name]
                elif called in open_:
                    raise GraphError(
                        f"{_described(node, None, graph)} comes to call the function '{called}', which calls itself: "
                        f"TensorFlow cannot run that. {_FOR_US}"
                    )
                elif called not in done:
                    open_[called] = calls(called)


def _leave_out_unneeded(function: pb.FunctionDef) -> None:
    """Removes operations that neither the results nor the control results of a function need."""
    nodes = {n.name: n for n in function.node_def}
    todo = [*function.ret.values(), *function.control_ret.values()]
    kept: set[str] = set()
    while todo:
        name = todo.pop().removeprefix("^").partition(":")[0]
        if name in nodes and name not in kept:
            kept.add(name)
            todo.extend(nodes[name].input)
    if len(kept) < len(nodes):
        out = [_copy(n) for n in function.node_def if n.name in kept]
        del function.node_def[:]
        function.node_def.extend(out)


def _rewrite(nodes: Any, function: pb.FunctionDef | None, graph: Graph) -> None:
    if not any(is_own(n.op) for n in nodes):
        return
    scope = _Nodes(nodes, function)
    for node in list(nodes):
        if not is_own(node.op):
            scope.keep(node)
            continue
        rewrite = _REWRITES.get(node.op)
        if rewrite is None:
            raise GraphError(f"{_described(node, function, graph)} is an operation that only headrace has. {_FOR_US}")
        try:
            rewrite(scope, node)
        except _Refused as e:
            raise GraphError(f"{_described(node, function, graph)} {e}. {_FOR_US}") from None
    scope.write()


_FOR_US: Final = "To write a file for headrace alone, call as_graph_def(portable=False)."


class _Refused(Exception):
    """An operation cannot be written for TensorFlow. The text continues after the operation's name."""


def _described(node: pb.NodeDef, function: pb.FunctionDef | None, graph: Graph) -> str:
    op = find_anywhere(graph, node.name)
    made = f", made at {op.source}," if op is not None and op.source is not None else ""
    where = f" in the function '{function.signature.name}'" if function is not None else ""
    return f"'{node.name}' ({node.op}){where}{made}"


class _Nodes:
    """Nodes of a graph or function while they are rewritten.

    Args:
      nodes: the nodes of the message.
      function: the function; None for a graph.

    Attributes:
      nodes: the nodes of the message.
      function: the function; None for a graph.
      given: the original nodes, by name.
      out: the new nodes.
    """

    def __init__(self, nodes: Any, function: pb.FunctionDef | None) -> None:
        self.nodes = nodes
        self.function = function
        self.given = {n.name: n for n in nodes}
        self.out: list[Any] = []
        self._taken = set(self.given)
        self._renamed: set[str] = set()  # of a function: nodes whose outputs have another name now

    def keep(self, node: pb.NodeDef) -> None:
        self.out.append(node)

    def add(self, like: pb.NodeDef, op: str, inputs: Iterable[str], attrs: Attrs, what: str) -> str:
        """Adds a node before the new form of `like`; returns its output's name."""
        name, n = f"{like.name}/{what}", 0
        while name in self._taken:
            n += 1
            name = f"{like.name}/{what}_{n}"
        self._taken.add(name)
        self._new(name, op, inputs, attrs, like.device)
        argument = {"AddV2": "z", "Mul": "z", "Maximum": "z", "Minimum": "z", "ZerosLike": "y"}.get(op, "output")
        return f"{name}:{argument}:0" if self.function is not None else name

    def replace(self, old: pb.NodeDef, op: str, inputs: Sequence[str], attrs: Attrs) -> None:
        """Adds the replacement of `old`, with its name and its number of outputs."""
        new = self._new(old.name, op, [*inputs, *_controls(old)], attrs, old.device)
        for name, value in old.attr.items():
            if name.startswith("_"):
                new.attr[name].CopyFrom(value)
        self._renamed.add(old.name)

    def _new(self, name: str, op: str, inputs: Iterable[str], attrs: Attrs, device: str) -> pb.NodeDef:
        node = pb.NodeDef(name=name, op=op, input=inputs, device=device, attr=attrs)
        self.out.append(node)
        return node

    def beside(self, reference: str) -> list[str]:
        """Control inputs that put a constant into the frame of the tensor `reference`."""
        name = reference.partition(":")[0]
        return [f"^{name}"] if name in self.given else []  # none for an argument of the function

    def constant(self, like: pb.NodeDef, value: int, beside: str, what: str) -> str:
        """Adds an int32 constant in the frame of the tensor `beside`; returns its output."""
        tensor = pb.TensorProto(dtype=INT32.type, tensor_shape=pb.TensorShapeProto(), int_val=[value])
        attrs = {"value": pb.AttrValue(tensor=tensor), "dtype": INT32}
        return self.add(like, "Const", self.beside(beside), attrs, what)

    def write(self) -> None:
        """Replaces the old nodes of the message by the new ones."""
        out = [_copy(n) for n in self.out]  # the old ones are freed with their list
        if self.function is not None:
            for n in out:
                n.input[:] = [self._reference(r) for r in n.input]
            for key, reference in list(self.function.ret.items()):
                self.function.ret[key] = self._reference(reference)
        del self.nodes[:]
        self.nodes.extend(out)

    def _reference(self, reference: str) -> str:
        name, _, rest = reference.partition(":")
        if name not in self._renamed:
            return reference
        argument = "output_handle" if self.given[name].op == "_TensorListUnset" else "output"
        return f"{name}:{argument}:{rest.partition(':')[2]}"


def _copy(node: pb.NodeDef) -> pb.NodeDef:
    out = pb.NodeDef()
    out.CopyFrom(node)
    return out


def _data(node: pb.NodeDef) -> list[str]:
    return [r for r in node.input if not r.startswith("^")]


def _controls(node: pb.NodeDef) -> list[str]:
    return [r for r in node.input if r.startswith("^")]


# *** the rewrites ***


def _total(nodes: _Nodes, node: pb.NodeDef, type: str) -> str:
    """Adds a reduction of all inputs in the order of the kernel (`opkit.tree_reduction`)."""
    attrs = {"T": node.attr["T"]}
    return tree_reduce(lambda i, x, y: nodes.add(node, type, [x, y], attrs, "pair"), _data(node))


def _to_each(nodes: _Nodes, node: pb.NodeDef, value: str) -> None:
    n = node.attr["N"].i
    types = pb.AttrValue.ListValue(type=[node.attr["T"].type] * n)
    nodes.replace(node, "IdentityN", [value] * n, {"T": pb.AttrValue(list=types)})


def _all_reduce(nodes: _Nodes, node: pb.NodeDef) -> None:
    how = node.attr["reduction"].s if "reduction" in node.attr else b"sum"
    _to_each(nodes, node, _total(nodes, node, _REDUCTIONS[how]))


def _broadcast(nodes: _Nodes, node: pb.NodeDef) -> None:
    _to_each(nodes, node, _data(node)[0])


def _all_gather(nodes: _Nodes, node: pb.NodeDef) -> None:
    xs = _data(node)
    if len(xs) > 1:
        axis = nodes.constant(node, 0, xs[0], "axis")
        attrs = {"N": node.attr["N"], "T": node.attr["T"], "Tidx": INT32}
        xs = [nodes.add(node, "ConcatV2", [*xs, axis], attrs, "concat")]
    _to_each(nodes, node, xs[0])


def _reduce_scatter(nodes: _Nodes, node: pb.NodeDef) -> None:
    axis = nodes.constant(node, 0, _data(node)[0], "axis")
    attrs = {"num_split": node.attr["N"], "T": node.attr["T"]}
    nodes.replace(node, "Split", [axis, _total(nodes, node, "AddV2")], attrs)


def _unset(nodes: _Nodes, node: pb.NodeDef) -> None:
    where = _data(node)
    reads = (n for n in nodes.given.values() if n.op == "TensorListGetItem" and _data(n)[:2] == where)
    read = next(reads, None)
    if read is not None:
        item = f"{read.name}:item:0" if nodes.function is not None else read.name
        dtype = read.attr["element_dtype"]
        zeros = nodes.add(node, "ZerosLike", [item], {"T": dtype}, "zeros")
    elif "_element_dtype" in node.attr:
        dtype = node.attr["_element_dtype"]
        dims = node.attr["_element_shape"].list.i
        shape = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=n) for n in dims])
        value = pb.AttrValue(tensor=pb.TensorProto(dtype=dtype.type, tensor_shape=shape))  # no values: zeros
        zeros = nodes.add(node, "Const", nodes.beside(where[0]), {"value": value, "dtype": dtype}, "zeros")
    else:
        raise _Refused("takes elements out of a list whose shapes are not known, for which TensorFlow has no operation")
    nodes.replace(node, "TensorListSetItem", [*where, zeros], {"element_dtype": dtype})


def _hand_on(nodes: _Nodes, node: pb.NodeDef) -> None:
    first, *rest = _data(node)
    inputs = [first, *(c for r in rest for c in nodes.beside(r) if c not in node.input)]
    nodes.replace(node, "Identity", inputs, {"T": pb.AttrValue(type=pb.DT_VARIANT)})


def _nothing(nodes: _Nodes, node: pb.NodeDef) -> None:
    inputs = dict.fromkeys(c for r in _data(node) for c in nodes.beside(r))
    nodes.replace(node, "NoOp", [c for c in inputs if c not in node.input], {})


def _save(nodes: _Nodes, node: pb.NodeDef) -> None:
    nodes.replace(node, "SaveV2", _data(node), {"dtypes": node.attr["dtypes"]})


def _random_states(nodes: _Nodes, node: pb.NodeDef) -> None:
    if nodes.function is not None:
        raise _Refused("tells the states of random ops, for which TensorFlow has no operation")
    types, parts = (pb.DT_STRING, pb.DT_UINT64), []
    for what, type, dims in zip(("names", "states"), types, ((0,), (0, 3)), strict=True):
        shape = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=n) for n in dims])
        value = pb.AttrValue(tensor=pb.TensorProto(dtype=type, tensor_shape=shape))
        parts.append(
            nodes.add(node, "Const", _controls(node), {"value": value, "dtype": pb.AttrValue(type=type)}, what)
        )
    nodes.replace(node, "IdentityN", parts, {"T": pb.AttrValue(list=pb.AttrValue.ListValue(type=types))})


_REWRITES: Final[Mapping[str, _Rewrite]] = {
    "_SaveNative": _save,
    "_RandomStates": _random_states,
    "_SetRandomStates": _nothing,
    "_AllReduce": _all_reduce,
    "_Broadcast": _broadcast,
    "_AllGather": _all_gather,
    "_ReduceScatter": _reduce_scatter,
    "_TensorArrayTrack": _hand_on,
    "_TensorArrayRefill": _hand_on,
    "_TensorArrayMarkRead": _nothing,
    "_TensorArrayMarkWritten": _nothing,
    "_TensorListUnset": _unset,
}
