"""Signatures of a SavedModel: functions from named tensors to named tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import nest, pb
from headrace.errors import GraphError
from headrace.ir.graph import Tensor
from headrace.jit.function import Function
from headrace.saved_model.traces import call_of

if TYPE_CHECKING:
    from headrace.pb import FunctionDef

DEFAULT: Final = "serving_default"


def default_of(children: Mapping[str, Any]) -> Function | None:
    """Returns the function of the default signature, or None.

    It is `__call__`, or else the only function with an `input_signature`. It needs one trace, and results that a
    signature can have.

    Args:
      children: the children of the root.
    """
    functions = [f for f in children.values() if isinstance(f, Function) and f.input_signature is not None]
    call = children.get("__call__")
    found = call if isinstance(call, Function) else functions[0] if len(functions) == 1 else None
    if found is None:
        return None
    if found.input_signature is not None:
        found.lower(*found.input_signature)
    traces = found.traces.all()
    return found if len(traces) == 1 and _names_of(traces[0].value) is not None else None


def _names_of(value: Any) -> list[tuple[str, Any]] | None:
    """Returns the names and tensors of results; None if a signature cannot have them."""
    if isinstance(value, Mapping):
        named = [(k, v) for k, v in value.items() if isinstance(k, str)]
        named = named if len(named) == len(value) else []
    elif isinstance(value, Tensor):
        named = [("output_0", value)]
    else:
        named = [(f"output_{i}", v) for i, v in enumerate(value)] if isinstance(value, (list, tuple)) else []
    return named if named and all(isinstance(t, Tensor) for _, t in named) else None


def named_results(name: str, value: Any) -> dict[str, tuple[int, Tensor]]:
    """Returns the positions and tensors of the results of a signature by name, sorted.

    Raises:
      GraphError: the results are of another kind.
    """
    named = _names_of(value)
    if named is None:
        raise GraphError(
            f"the signature {name!r} returns {nest.describe(value)}; a signature returns a tensor, a list or tuple of "
            "tensors, or a dict of tensors with text keys"
        )
    order = {id(t): i for i, t in enumerate(nest.flatten(value))}
    return {k: (order[id(t)], t) for k, t in sorted(named)}


def wrapper(name: str, inner: FunctionDef, inputs: Sequence[str], outputs: Mapping[str, int]) -> FunctionDef:
    """Returns a function that calls `inner`, with arguments in the order of their names.

    Args:
      name: its name.
      inner: the function of a trace.
      inputs: the names of the arguments, in the order of `inner`, whose captured tensors follow.
      outputs: the results of the wrapper, in order: name → position among the results of `inner`.
    """
    out = pb.FunctionDef()
    out.signature.name = name
    out.signature.is_stateful = True
    given = inner.signature.input_arg
    order = [*sorted(range(len(inputs)), key=lambda i: inputs[i]), *range(len(inputs), len(given))]
    for at, i in enumerate(order):
        out.signature.input_arg.add().CopyFrom(given[i])
        out.arg_attr[at].CopyFrom(inner.arg_attr[i])
    node = out.node_def.add()
    node.CopyFrom(call_of(inner, "StatefulPartitionedCall", [arg.name for arg in given]))
    for at, i in enumerate(outputs.values()):
        out.signature.output_arg.add(name=f"output_{at}", type=inner.signature.output_arg[i].type)
        out.ret[f"output_{at}"] = f"{node.name}:output:{i}"
    out.signature.control_output.append(node.name)
    out.control_ret[node.name] = node.name
    return out
