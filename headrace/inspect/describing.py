"""Descriptions of graphs and of steps, as data."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import dtypes, shapes
from headrace.grad.differentiate import differentiate
from headrace.inspect.parts import Box, Value
from headrace.inspect.structure import draw, value
from headrace.ir import walk
from headrace.ir.function import nested_operations
from headrace.lower import lower, lower_whole
from headrace.prune import prune
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_HANDLES: Final = frozenset({dtypes.resource, dtypes.variant})


@record(frozen=True, slots=True)
class Resource:
    """An operation that makes a handle of a variable, queue, tensor array, ...

    Attributes:
      type: the op type.
      name: the name of the operation.
      detail: the contents of the object, as far as the attributes show them.
      bytes: the size of a variable of known shape; else None.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import describe
      >>> with hr.Graph() as g:
      ...     v = hr.Variable([1.0, 2.0], name="v")
      >>> resource = describe(g).resources[0]
      >>> resource.name, resource.bytes
      ('v', 8)
    """

    type: str
    name: str
    detail: str
    bytes: int | None = None


@record(frozen=True, slots=True)
class Description:
    """Description of a graph.

    Attributes:
      ops: number of operations of each type, the most frequent first.
      inputs: placeholders.
      outputs: outputs of operations without consumers; for operations without outputs, their names.
      resources: variables, queues and similar objects.
      effects: number of other stateful operations of each type.
      dtypes: number of tensors of each dtype.
      constants: constants of the graph and of the graphs that its operations own, the largest first; without those of
        functions.
      box: the operations, in their loops, branches and bodies.
      functions: names of the graph's functions.
      devices: number of operations that request each device.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import describe
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     y = hr.tanh(x, name="y")
      >>> description = describe(g)
      >>> dict(description.ops), description.outputs
      ({'Placeholder': 1, 'Tanh': 1}, ('y:0  float32 [2]',))
    """

    ops: Mapping[str, int]
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    resources: tuple[Resource, ...]
    effects: Mapping[str, int]
    dtypes: Mapping[str, int]
    constants: tuple[Value, ...]
    box: Box
    functions: tuple[str, ...]
    devices: Mapping[str, int]


@record(frozen=True, slots=True)
class StepDescription:
    """Description of a step.

    Attributes:
      of: number of operations of the whole graph.
      graph: the part of the graph that the step needs, without its ends.
      args: (fed tensor, names of its consumers) for each feed.
      retvals: the fetched tensors.
      source: operations without inputs, except for constants.
      constants: number of constants without inputs.
      sink: operations without consumers, except for the ends of the fetches.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import describe_step
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     y = hr.tanh(x, name="y")
      >>> step = describe_step(g, [x], [y], [])
      >>> step.of, step.retvals[0].name
      (2, 'y:0')
    """

    of: int
    graph: Description
    args: tuple[tuple[Value, tuple[str, ...]], ...]
    retvals: tuple[Value, ...]
    source: tuple[str, ...]
    constants: int
    sink: tuple[str, ...]


def describe(graph: Graph, lowered: bool = False) -> Description:
    """Describes `graph`.

    Args:
      graph: any graph.
      lowered: whether to describe the primitive form, that of `as_graph_def(form="primitive")`, in which conditionals,
        loops and calls are Switch, Merge, Enter, Exit and NextIteration. This is the form that the token machine runs.

    Raises:
      GraphError: the graph cannot be lowered, or a function does not fit its call.
      NotFoundError: a function is missing.

    Example:
      >>> from headrace.ir.text import from_text
      >>> describe(from_text("x = Placeholder[dtype=int32, shape=[2]]")).inputs
      (Value(name='x:0', dtype='int32', shape=(2,), bytes=8),)
    """
    if lowered:
        graph = lower_whole(graph, differentiate)
    return _describe(graph, graph.operations)


def describe_step(
    graph: Graph,
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    lowered: bool = False,
) -> StepDescription:
    """Describes the part of `graph` that a step needs; see `describe`.

    Args:
      graph: any graph.
      feeds: the fed tensors.
      fetches: the fetched tensors.
      targets: the operations that the step runs.
      lowered: whether to describe the primitive form.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      ...     y = hr.tanh(x, name="y")
      >>> from headrace.inspect import describe_step
      >>> step = describe_step(g, [x], [y], [])
      >>> step.args[0][1]
      ('y',)
    """
    pruned = prune(feeds, fetches, targets)
    ends = set(pruned.args) | set(pruned.retvals)
    ops = [op for op in pruned.graph.operations if op not in ends]
    readers = walk.uses(pruned.graph.operations)
    waited_for = {t.op for t in readers} | {c for op in pruned.graph.operations for c in op.control_inputs}
    source = [op for op in ops if not op.inputs and not op.control_inputs]
    return StepDescription(
        of=len(graph.operations),
        graph=_describe_lowered(pruned.graph) if lowered else _describe(pruned.graph, ops),
        args=tuple(
            (value(t), tuple(dict.fromkeys(u.name for u, _ in readers.get(a.outputs[0], ()) if u not in ends)))
            for a, t in zip(pruned.args, feeds, strict=True)
        ),
        retvals=tuple(value(t) for t in fetches),
        source=tuple(op.name for op in source if op.type != "Const"),
        constants=sum(op.type == "Const" for op in source),
        sink=tuple(op.name for op in ops if op not in waited_for),
    )


def _describe_lowered(pruned: Graph) -> Description:
    """Describes the primitive form of a graph that was pruned for a step."""
    lowered = lower(pruned, [op for op in pruned.operations if not op.opdef.facts.graph_end], differentiate)
    ops = [op for op in lowered.ops if not op.opdef.facts.graph_end]
    return _describe(lowered.graph, ops, lowered.functions)


def _describe(
    graph: Graph, ops: Sequence[Operation], called: Mapping[str, Sequence[Operation]] | None = None
) -> Description:
    uses = walk.uses(ops)
    waited_for = {t.op for t in uses} | {c for op in ops for c in op.control_inputs}
    resources = [op for op in ops if _is_resource(op)]
    effects = [op for op in ops if _has_effect(op) and not _is_resource(op)]
    constants = [value(op.outputs[0]) for op in nested_operations(ops) if op.type == "Const"]
    return Description(
        ops=_counts(op.type for op in ops),
        inputs=tuple(value(op.outputs[0]) for op in ops if op.opdef.facts.placeholder),
        outputs=tuple(_end(op) for op in ops if op not in waited_for),
        resources=tuple(_resource(op) for op in resources),
        effects=_counts(op.type for op in effects),
        dtypes=_counts(t.dtype.name for op in ops for t in op.outputs),
        constants=tuple(sorted(constants, key=lambda v: -(v.bytes or 0))),
        box=draw(graph, ops, called or {}),
        functions=tuple(dict.fromkeys([*graph.library, *graph.functions])),
        devices=_counts(op.device for op in ops if op.device),
    )


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(collections.Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _end(op: Operation) -> str:
    return ", ".join(str(value(t)) for t in op.outputs) or f"{op.name}  ({op.type})"


def _has_effect(op: Operation) -> bool:
    record = op.opdef
    return not record.facts.placeholder and bool(record.facts.effect or record.stateful or record.async_)


def _is_resource(op: Operation) -> bool:
    """Whether `op` makes a handle (of a variable, a queue, ...) and takes none."""
    return (
        _has_effect(op)
        and any(t.dtype.is_ref or t.dtype in _HANDLES for t in op.outputs)
        and not any(t.dtype.is_ref or t.dtype in _HANDLES for t in op.inputs)
    )


def _resource(op: Operation) -> Resource:
    """Describes a resource by the attributes that TensorFlow's resource ops share."""
    a, parts = op.attrs, []
    types: tuple[dtypes.DType, ...] = a.get("component_types") or ((a["dtype"],) if "dtype" in a else ())
    if types:
        parts.append(", ".join(d.name for d in types))
    if "shape" in a:
        parts.append(shapes.show(a["shape"]))
    if a.get("shapes"):
        parts.append(", ".join(map(shapes.show, a["shapes"])))
    if a.get("capacity", -1) >= 0:
        parts.append(f"capacity {a['capacity']}")
    if a.get("shared_name"):
        parts.append(f"shared as {a['shared_name']!r}")
    held = types[0] if len(types) == 1 and "shape" in a and types[0] not in dtypes.OBJECT else None
    n = shapes.size(a["shape"]) if held is not None else None
    return Resource(op.type, op.name, " ".join(parts), None if n is None or held is None else n * held.size)
