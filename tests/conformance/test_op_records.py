"""Every op record against TensorFlow's op registry: arguments, attributes, types, defaults.

A graph that we write must be one that TensorFlow reads, and the other way round, so names, order and types of arguments
and attributes are TensorFlow's. Our attributes may allow fewer dtypes than TensorFlow's, never more. Ops that are our
own have a name that begins with an underscore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import headrace.ops
from headrace import dtypes, pb
from headrace.ir.attr_values import REQUIRED, AttrSpec
from headrace.ir.opdef import ArgSpec, OpDef, op_registry
from headrace.ir.serial.attrs import decode_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

assert headrace.ops  # importing it is what fills the registry

PROGRAM = """
import sys
import tensorflow
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry
found = [op_def_registry.get(name) for name in {names!r}]
data = op_def_pb2.OpList(op=[f for f in found if f is not None]).SerializeToString()
sys.stdout.buffer.write(data)
"""

# What TensorFlow keeps of a default's kind, by the field of its `AttrValue`.
PLAIN = {"i": "int", "f": "float", "b": "bool", "s": "string", "type": "type", "shape": "shape"}


def theirs_of(arg: Any) -> tuple[Any, ...]:
    kind = arg.type_attr or arg.type_list_attr or dtypes.from_number(arg.type).name
    return arg.name, kind, arg.number_attr, arg.is_ref


def ours_of(arg: ArgSpec) -> tuple[Any, ...]:
    kind = arg.type_attr or arg.type_list_attr or (arg.dtype.name if arg.dtype else "")
    return arg.name, kind, arg.number_attr or "", arg.is_ref


def known(numbers: Any) -> set[Any]:
    """The dtypes among enum numbers that headrace has."""
    out = set()
    for n in numbers:
        try:
            out.add(dtypes.from_number(n))
        except TypeError:
            continue
    return out


def plain(value: Any) -> Any:
    """A default of TensorFlow's as the Python value that a record has."""
    field = value.WhichOneof("value")
    if field == "list":
        lists = value.list
        for name in ("i", "f", "b", "s", "type", "shape"):
            if len(getattr(lists, name)):
                return tuple(plain(pb.AttrValue(**{name: v})) for v in getattr(lists, name))
        return ()
    v = getattr(value, field)
    if field == "tensor":
        return decode_tensor(v)
    if field == "s":
        return v.decode()
    if field == "type":
        return dtypes.from_number(v)
    if field == "shape":
        return None if v.unknown_rank else tuple(None if d.size < 0 else d.size for d in v.dim)
    return v


def differs(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        same_kind = type(ours) is type(theirs) and ours.dtype == theirs.dtype
        return not (same_kind and np.array_equal(ours, theirs))
    if isinstance(theirs, float) and ours is not REQUIRED:
        return bool(np.float32(ours) != np.float32(theirs))
    if isinstance(theirs, tuple) and any(isinstance(v, float) for v in theirs) and isinstance(ours, tuple):
        return len(ours) != len(theirs) or any(differs(a, b) for a, b in zip(ours, theirs, strict=True))
    return bool(ours is REQUIRED or ours != theirs or (isinstance(ours, bool) != isinstance(theirs, bool)))


def attr_errors(name: str, ours: AttrSpec, theirs: Any) -> list[str]:
    out = []
    kind = theirs.type
    if kind != (f"list({ours.kind})" if ours.is_list else ours.kind):
        out.append(f"attribute {name}: ours is {ours}, theirs {kind}")
    if theirs.HasField("default_value"):
        want = plain(theirs.default_value)
        if differs(ours.default, want):
            out.append(f"attribute {name}: our default is {ours.default!r}, theirs {want!r}")
    elif ours.default is not REQUIRED:
        out.append(f"attribute {name}: our default is {ours.default!r}, they have none")
    if theirs.HasField("allowed_values"):
        allowed = theirs.allowed_values.list
        values = known(allowed.type) if allowed.type else {s.decode() for s in allowed.s}
        if ours.allowed is None:
            out.append(f"attribute {name}: we allow anything, they allow {sorted(map(str, values))}")
        elif ours.allowed - values:
            out.append(f"attribute {name}: we allow {sorted(map(str, ours.allowed - values))} more than they")
    if theirs.has_minimum and (ours.minimum or 0) < theirs.minimum and theirs.minimum > 0:
        out.append(f"attribute {name}: our minimum is {ours.minimum}, theirs {theirs.minimum}")
    if theirs.has_minimum and ours.minimum is not None and ours.minimum > theirs.minimum:
        out.append(f"attribute {name}: our minimum is {ours.minimum}, theirs only {theirs.minimum}")
    return out


def errors_of(ours: OpDef, theirs: Any) -> list[str]:
    """The differences between a record and TensorFlow's `OpDef`, one line each."""
    out = []
    for what, mine, other in (("inputs", ours.ins, theirs.input_arg), ("outputs", ours.outs, theirs.output_arg)):
        a, b = list(map(ours_of, mine)), list(map(theirs_of, other))
        if a != b:
            out.append(f"{what}: ours are {a}, theirs {b}")
    names = {a.name for a in theirs.attr}
    if set(ours.attrs) != names:
        out.append(f"attributes: ours are {sorted(ours.attrs)}, theirs {sorted(names)}")
    for a in theirs.attr:
        if a.name in ours.attrs:
            out += attr_errors(a.name, ours.attrs[a.name], a)
    return out


def test_records_are_those_of_tensorflow(run_python: Callable[[str], bytes]) -> None:
    names = sorted(n for n in op_registry if not n.startswith("_"))
    found = {d.name: d for d in pb.OpList.FromString(run_python(PROGRAM.format(names=names))).op}
    report = [f"{n}: TensorFlow has no such op (call an op of our own _{n})" for n in names if n not in found]
    for n in names:
        if n in found:
            report += [f"{n}: {e}" for e in errors_of(op_registry.get(n), found[n])]
    if report:
        pytest.fail("\n".join(report), pytrace=False)


def theirs(**fields: Any) -> Any:
    """An `OpDef` of an op like Add, with changes."""
    out = pb.OpDef(name="Add")
    for a in "x", "y":
        out.input_arg.add(name=a, type_attr="T")
    out.output_arg.add(name="z", type_attr="T")
    t = out.attr.add(name="T", type="type")
    t.allowed_values.list.type.extend(fields.get("types", [d.number for d in dtypes.ALL]))
    return out


def test_the_comparison_finds_differences() -> None:
    add = op_registry.get("Add")
    assert errors_of(add, theirs()) == []
    assert "more than they" in errors_of(add, theirs(types=[1]))[0]
    other = theirs()
    other.input_arg[0].name = "a"
    other.output_arg[0].is_ref = True
    other.attr[0].default_value.type = 1
    assert [e.split(":")[0] for e in errors_of(add, other)] == ["inputs", "outputs", "attribute T"]
    other = theirs()
    other.attr.add(name="more", type="int")
    assert errors_of(add, other)[0].startswith("attributes")
