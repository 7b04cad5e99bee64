"""Loop variables that TensorFlow's gradient of a `While` reads.

TensorFlow's gradient takes the first variable of a loop for the number of its iterations and the second one for their
limit, as `tf.while_loop` makes them. Loops of headrace have the user's variables only. So every loop in a function of a
SavedModel gets the two: a counter, and the limit -1, which stands for none.

Source: `_WhileGrad` of TensorFlow's `while_v2.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace import pb

if TYPE_CHECKING:
    from headrace.pb import FunctionDef, NodeDef

LOOPS: Final = frozenset({"While", "StatelessWhile"})
_ADDED: Final = 2
_INT: Final = pb.AttrValue(type=pb.DT_INT32)
_NAMES: Final = ("loop_counter", "maximum_iterations")


def add_counters(functions: Sequence[FunctionDef]) -> list[FunctionDef]:
    """Adds the two variables to all loops in functions.

    Args:
      functions: the functions, which are changed.

    Returns:
      The functions, and those that the loops call now in place of their conditions and bodies.
    """
    out = list(functions)
    named = {f.signature.name: f for f in functions}
    counted: dict[str, FunctionDef] = {}
    for f in functions:
        loops = {node.name for node in f.node_def if node.op in LOOPS}
        for node in [node for node in f.node_def if node.name in loops]:
            for role in ("cond", "body"):
                called = node.attr[role].func
                name = f"{called.name}_counted_{role}"
                if name not in counted:
                    counted[name] = pb.FunctionDef()  # filled below, when the loops in the original have counters
                    out.append(counted[name])
                called.name = name
            _add_inputs(f, node)
        if loops:
            for node in f.node_def:
                node.input[:] = [_moved(text, loops) for text in node.input]
            for key, text in list(f.ret.items()):
                f.ret[key] = _moved(text, loops)
    for name, made in counted.items():
        original, _, role = name.rpartition("_counted_")
        made.CopyFrom(named[original])
        made.signature.name = name
        _add_arguments(made)
        if role == "body":
            _add_results(made)
    return out


def _moved(text: str, loops: set[str]) -> str:
    """Returns the notation of an output of a loop after the two new outputs."""
    name, _, output = text.partition(":")
    if name not in loops or not output:
        return text
    return f"{name}:output:{int(output.rpartition(':')[2]) + _ADDED}"


def _add_inputs(f: FunctionDef, node: NodeDef) -> None:
    given = [_constant(f, f"{node.name}/{name}", value) for name, value in zip(_NAMES, (0, -1), strict=True)]
    node.input[:] = [*given, *node.input]
    node.attr["T"].list.type[:] = [pb.DT_INT32] * _ADDED + list(node.attr["T"].list.type)
    for key in ("output_shapes", "_output_shapes"):
        if key in node.attr and node.attr[key].list.shape:
            shapes = [pb.TensorShapeProto() for _ in range(_ADDED)] + list(node.attr[key].list.shape)
            node.attr[key].ClearField("list")
            node.attr[key].list.shape.extend(shapes)


def _add_arguments(f: FunctionDef) -> None:
    arguments = list(f.signature.input_arg)
    del f.signature.input_arg[:]
    for name in _NAMES:
        f.signature.input_arg.add(name=_free(name, f), type=pb.DT_INT32)
    f.signature.input_arg.extend(arguments)
    moved = pb.FunctionDef()
    for i in range(_ADDED):
        moved.arg_attr[i].attr["_output_shapes"].list.shape.add()
    for i in f.arg_attr:
        moved.arg_attr[i + _ADDED].CopyFrom(f.arg_attr[i])
    f.ClearField("arg_attr")
    f.MergeFrom(moved)
    if "_input_shapes" in f.attr:  # of a function that TensorFlow wrote
        shapes = [pb.TensorShapeProto() for _ in range(_ADDED)] + list(f.attr["_input_shapes"].list.shape)
        f.attr["_input_shapes"].ClearField("list")
        f.attr["_input_shapes"].list.shape.extend(shapes)


def _add_results(f: FunctionDef) -> None:
    counter, limit = (arg.name for arg in f.signature.input_arg[:_ADDED])
    one = _constant(f, "loop_counter/one", 1)
    added = f.node_def.add(name=_free("loop_counter/next", f), op="AddV2", input=[counter, one])
    added.attr["T"].CopyFrom(_INT)
    same = f.node_def.add(name=_free("maximum_iterations/same", f), op="Identity", input=[limit])
    same.attr["T"].CopyFrom(_INT)
    results = list(f.signature.output_arg)
    del f.signature.output_arg[:]
    for node, output in ((added, "z"), (same, "output")):
        name = _free(f"{node.name.partition('/')[0]}_out", f)
        f.signature.output_arg.add(name=name, type=pb.DT_INT32)
        f.ret[name] = f"{node.name}:{output}:0"
    f.signature.output_arg.extend(results)


def _constant(f: FunctionDef, name: str, value: int) -> str:
    """Adds an int32 constant to a function; returns its output."""
    node = f.node_def.add(name=_free(name, f), op="Const")
    node.attr["dtype"].CopyFrom(_INT)
    tensor = pb.TensorProto(dtype=pb.DT_INT32, tensor_shape=pb.TensorShapeProto(), int_val=[value])
    node.attr["value"].tensor.CopyFrom(tensor)
    return f"{node.name}:output:0"


def _free(name: str, f: FunctionDef) -> str:
    """Returns a name like `name` that no node, argument or result of a function has."""
    taken = {n.name for n in f.node_def} | {a.name for a in (*f.signature.input_arg, *f.signature.output_arg)}
    made, n = name, 0
    while made in taken:
        n += 1
        made = f"{name}_{n}"
    return made
