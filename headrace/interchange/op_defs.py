"""Records of op types as TensorFlow's `OpDef`s, for readers of another version.

A file contains the definitions of its ops. A reader that lacks a new attribute uses them to decide whether the
attribute can be dropped (`ir.serial.producer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import pb
from headrace.ir.attr_values import REQUIRED
from headrace.ir.opdef import op_registry
from headrace.ir.serial import attrs as wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.ir.attr_values import AttrSpec
    from headrace.ir.opdef import ArgSpec, OpDef


def op_def(record: OpDef) -> pb.OpDef:
    """Returns the definition of an op type, without its documentation."""
    out = pb.OpDef(name=record.type, is_commutative=record.facts.commutative, is_stateful=bool(record.facts.effect))
    _arguments(out.input_arg, record.ins)
    _arguments(out.output_arg, record.outs)
    for name, spec in sorted(record.attrs.items()):
        _attribute(out.attr.add(name=name), spec)
    return out


def _arguments(out: Sequence[pb.OpDef.ArgDef], args: Sequence[ArgSpec]) -> None:
    for a in args:
        arg = out.add(  # type: ignore[attr-defined]
            name=a.name,
            type_attr=a.type_attr,
            number_attr=a.number_attr,
            type_list_attr=a.type_list_attr,
            is_ref=a.is_ref,
        )
        if a.dtype is not None:
            arg.type = a.dtype.number


def _attribute(out: pb.OpDef.AttrDef, spec: AttrSpec) -> None:
    out.type = f"list({spec.kind})" if spec.is_list else spec.kind
    if spec.default is not REQUIRED:
        out.default_value.CopyFrom(wire.encode_attr(spec.default, spec))
    if spec.minimum:
        out.has_minimum, out.minimum = True, spec.minimum
    if spec.allowed is not None:
        values = out.allowed_values.list
        if spec.kind == "type":
            values.type.extend(sorted(d.number for d in spec.allowed))
        else:
            values.s.extend(sorted(map(wire.to_bytes, spec.allowed)))


def stripped_op_list(graph_def: pb.GraphDef) -> pb.OpList:
    """Returns the definitions of all ops of a graph and its functions."""
    types = {node.op for node in _nodes(graph_def)}
    return pb.OpList(op=[op_def(op_registry.get(t)) for t in sorted(types) if t in op_registry])


def strip_default_attrs(graph_def: pb.GraphDef) -> None:
    """Removes attributes with default values, for readers that do not know them."""
    definitions = {d.name: {a.name: a for a in d.attr} for d in stripped_op_list(graph_def).op}
    for node in _nodes(graph_def):
        attrs = definitions.get(node.op, {})
        for name in list(node.attr):
            attr = attrs.get(name)
            if attr is not None and attr.HasField("default_value") and node.attr[name] == attr.default_value:
                del node.attr[name]


def _nodes(graph_def: pb.GraphDef) -> Iterator[pb.NodeDef]:
    yield from graph_def.node
    for f in graph_def.library.function:
        yield from f.node_def
