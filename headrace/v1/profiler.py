"""TensorFlow 1's `tf.profiler`: parameters, float operations and times by scopes.

The numbers of float operations are TensorFlow's: those of op types for which it has a formula, from static shapes. An
operation without a formula or with an unknown shape counts as 0. `hr.profile` measures a step in more detail.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from headrace import public_names
from headrace.errors import UnimplementedError
from headrace.ir.graph import Operation
from headrace.records import record
from headrace.v1.graph import GraphKeys, get_default_graph

_ROOT: Final = "_TFProfRoot"
_COMMANDS: Final = ("scope", "graph")
_TRAINABLE: Final = "_trainable_variables"  # the type of trainable variables in options


@record
class GraphNode:
    """Scope or operation with its numbers; those that begin with `total_` include everything below it.

    Attributes:
      name: full name; that of the root is "_TFProfRoot".
      parameters, total_parameters: number of elements of variables.
      float_ops, total_float_ops: number of float operations of one run.
      exec_micros, total_exec_micros: microseconds of the traced run.
      requested_bytes, total_requested_bytes: bytes of the outputs in the traced run.
      children: the scopes and operations directly below, those with the largest numbers first.
    """

    name: str
    parameters: int = 0
    total_parameters: int = 0
    float_ops: int = 0
    total_float_ops: int = 0
    exec_micros: int = 0
    total_exec_micros: int = 0
    requested_bytes: int = 0
    total_requested_bytes: int = 0
    children: list[GraphNode] = field(default_factory=list)


class ProfileOptionBuilder:
    """Builder of the options of `profile`, which are a dict.

    Args:
      options: options to begin with, or None.

    Source: TensorFlow's `tf.profiler.ProfileOptionBuilder`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default() as g:
      ...     y = tf.matmul(tf.zeros([2, 3]), tf.get_variable("w", [3, 4], initializer=tf.zeros_initializer()))
      >>> Builder = tf.profiler.ProfileOptionBuilder
      >>> silent = Builder(Builder.float_operation()).with_empty_output().build()
      >>> tf.profiler.profile(g, options=silent).total_float_ops
      48
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        start = _options(("params", "float_ops", "micros", "bytes"), "name") if options is None else options
        self._options = dict(start)

    @staticmethod
    def trainable_variables_parameter() -> dict[str, Any]:
        """Returns options for the numbers of parameters of trainable variables."""
        return _options(("params",), "name", account_type_regexes=[_TRAINABLE])

    @staticmethod
    def float_operation() -> dict[str, Any]:
        """Returns options for the numbers of float operations."""
        return _options(("float_ops",), "float_ops", min_float_ops=1)

    @staticmethod
    def time_and_memory(min_micros: int = 1, min_bytes: int = 1, **others: int) -> dict[str, Any]:
        """Returns options for the times and the memory of a traced run.

        Args:
          min_micros, min_bytes: smallest numbers of a shown operation.
          others: further limits of TensorFlow's, for GPUs; without effect.
        """
        return _options(("micros", "bytes"), "micros", min_micros=min_micros, min_bytes=min_bytes, **others)

    def build(self) -> dict[str, Any]:
        """Returns a copy of the options."""
        return dict(self._options)

    def _with(self, **changed: Any) -> ProfileOptionBuilder:
        self._options.update(changed)
        return self

    def with_max_depth(self, max_depth: int) -> ProfileOptionBuilder:
        """Limits the depth of the tree."""
        return self._with(max_depth=max_depth)

    def with_min_parameters(self, min_params: int) -> ProfileOptionBuilder:
        """Shows nodes with this number of parameters or more."""
        return self._with(min_params=min_params)

    def with_min_float_operations(self, min_float_ops: int) -> ProfileOptionBuilder:
        """Shows nodes with this number of float operations or more."""
        return self._with(min_float_ops=min_float_ops)

    def with_accounted_types(self, account_type_regexes: list[str]) -> ProfileOptionBuilder:
        """Counts operations whose type or device fits a pattern."""
        return self._with(account_type_regexes=list(account_type_regexes))

    def with_empty_output(self) -> ProfileOptionBuilder:
        """Prints nothing."""
        return self._with(output="none")

    def with_stdout_output(self) -> ProfileOptionBuilder:
        """Prints a table."""
        return self._with(output="stdout")

    def with_file_output(self, outfile: str) -> ProfileOptionBuilder:
        """Writes the table to a file."""
        return self._with(output=f"file:outfile={outfile}")

    def with_step(self, step: int) -> ProfileOptionBuilder:
        """Chooses a step of a `Profiler`. -1: the last."""
        return self._with(step=step)

    def order_by(self, attribute: str) -> ProfileOptionBuilder:
        """Orders the nodes by "name", "params", "float_ops", "micros" or "bytes"."""
        return self._with(order_by=attribute)

    def select(self, attributes: list[str]) -> ProfileOptionBuilder:
        """Chooses the numbers: of "params", "float_ops", "micros" and "bytes"."""
        return self._with(select=list(attributes))


def _options(select: tuple[str, ...], order_by: str, **changed: Any) -> dict[str, Any]:
    limits = dict.fromkeys(("bytes", "micros", "params", "float_ops", "occurrence"), 0)
    start = {"max_depth": 10000, **{f"min_{name}": n for name, n in limits.items()}, "order_by": order_by}
    patterns = {"account_type_regexes": [".*"], "show_name_regexes": [".*"], "hide_name_regexes": []}
    return {**start, **patterns, "select": list(select), "step": -1, "output": "stdout", **changed}


def profile(
    graph: Any = None, run_meta: Any = None, op_log: Any = None, cmd: str = "scope", options: Any = None
) -> GraphNode:
    """Returns the numbers of a graph by scopes.

    The options say whether the numbers are printed or written, too.

    Args:
      graph: the graph; None: the default graph.
      run_meta: the `RunMetadata` of a traced run, for "micros" and "bytes"; or None.
      op_log: not supported.
      cmd: "scope" or "graph", which are the same.
      options: a dict of `ProfileOptionBuilder`; None: all numbers.

    Raises:
      UnimplementedError: another `cmd`, or `op_log`.

    Source: TensorFlow's `tf.profiler.profile`.
    """
    if cmd not in _COMMANDS or op_log is not None:
        raise UnimplementedError(f"tf.profiler.profile has the commands {_COMMANDS}, without op_log; got {cmd!r}")
    graph = get_default_graph() if graph is None else graph
    given = ProfileOptionBuilder(options).build()
    root = _tree(dict(_counted(graph, run_meta, given)), given)
    output = str(given.get("output", "stdout"))
    if output == "stdout":
        print("\n".join(_table(root, given, 0)))
    elif output.startswith("file:outfile="):
        with open(output.removeprefix("file:outfile="), "w", encoding="utf-8") as out:
            out.write("\n".join(_table(root, given, 0)) + "\n")
    return root


class Profiler:
    """Profiles of several steps of a graph.

    Args:
      graph: the graph; None: the default graph.
      op_log: not supported.

    Source: TensorFlow's `tf.profiler.Profiler`.
    """

    def __init__(self, graph: Any = None, op_log: Any = None) -> None:
        if op_log is not None:
            raise UnimplementedError("tf.profiler.Profiler(op_log=...): the numbers are computed from the graph")
        self._graph = get_default_graph() if graph is None else graph
        self._steps: dict[int, Any] = {}

    def add_step(self, step: int, run_meta: Any) -> None:
        """Adds the metadata of a traced run.

        Args:
          step: number of the run.
          run_meta: its `RunMetadata`.
        """
        self._steps[step] = run_meta

    def profile_name_scope(self, options: Any) -> GraphNode:
        """Returns `profile` of the step that the options choose."""
        step = dict(options).get("step", -1)
        chosen = self._steps.get(max(self._steps, default=-1) if step < 0 else step)
        return profile(self._graph, chosen, options=options)

    profile_graph = profile_name_scope


# *** numbers of single operations ***


def _counted(graph: Any, run_meta: Any, options: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, int]]]:
    """Iterates over the names of operations and those of their numbers that are not 0."""
    select, types = options["select"], [re.compile(p) for p in options["account_type_regexes"]]
    trainable = {v.op.name: v for v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    every = {v.op.name: v for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)} | trainable
    times = _times(run_meta) if run_meta is not None else {}
    for op in graph.operations:
        kinds = [op.type, op.device] + [_TRAINABLE] * (op.name in trainable)
        if not any(p.fullmatch(kind) for p in types for kind in kinds):
            continue
        micros, size = times.get(op.name, (0, 0))
        found = {
            "params": _elements(every[op.name].shape) if op.name in every else 0,
            "float_ops": float_ops(op),
            "micros": micros,
            "bytes": size,
        }
        kept = {name: n for name, n in found.items() if n and name in select}
        if kept:
            yield op.name, kept


def _elements(shape: Any) -> int:
    """Returns the number of elements of a variable; 0 if its shape is not known."""
    return 0 if shape is None or None in shape else math.prod(shape)


def _times(run_meta: Any) -> dict[str, tuple[int, int]]:
    """Returns the microseconds and the bytes of each operation of a traced run."""
    out: dict[str, tuple[int, int]] = {}
    for device in run_meta.step_stats.dev_stats:
        for node in device.node_stats:
            micros, size = out.get(node.node_name, (0, 0))
            out[node.node_name] = micros + node.all_end_rel_micros, size + sum(m.total_bytes for m in node.memory)
    return out


def float_ops(op: Operation) -> int:
    """Returns the number of float operations of one run of an operation.

    Args:
      op: the operation.

    Returns:
      The number; 0 without a formula for its type, or with a shape that is not known.
    """
    formula = _FORMULAS.get(op.type)
    shapes = [t.shape for t in (*op.inputs, *op.outputs)]
    if formula is None or any(s is None or None in s for s in shapes):
        return 0
    return formula(op)


def _shape(t: Any) -> tuple[int, ...]:
    """Returns the shape of a tensor whose shape is known."""
    return tuple(t.shape)


def _size(t: Any) -> int:
    return math.prod(_shape(t))


def _each(n: int) -> Callable[[Operation], int]:
    """Returns the formula of `n` operations for each element of the result."""
    return lambda op: n * _size(op.outputs[0])


def _reduced(n: int) -> Callable[[Operation], int]:
    """Returns the formula of a reduction with `n` further operations for each result."""
    return lambda op: _size(op.inputs[0]) + (n - 1) * _size(op.outputs[0])


def _product(op: Operation) -> int:
    is_turned = op.attrs.get("transpose_a") or op.attrs.get("adj_x")
    return 2 * _size(op.outputs[0]) * _shape(op.inputs[0])[-2 if is_turned else -1]


def _convolved(op: Operation) -> int:
    height, width, depth, _ = _shape(op.inputs[1])
    return 2 * _size(op.outputs[0]) * height * width * depth


def _convolved_by_depth(op: Operation) -> int:
    return 2 * _size(op.outputs[0]) * math.prod(_shape(op.inputs[1])[:2])


def _pooled(op: Operation) -> int:
    window: tuple[int, ...] = tuple(op.attrs["ksize"])
    return _size(op.outputs[0]) * math.prod(window)


_FORMULAS: Final[dict[str, Callable[[Operation], int]]] = {
    **dict.fromkeys("Add AddV2 Sub Mul RealDiv Pow Maximum Minimum BiasAdd Square Log Neg".split(), _each(1)),
    **dict.fromkeys("Rsqrt SquaredDifference".split(), _each(2)),
    **dict.fromkeys("Sum ArgMax BiasAddGrad".split(), _reduced(0)),
    **dict.fromkeys("MatMul BatchMatMul BatchMatMulV2".split(), _product),
    **dict.fromkeys("MaxPool AvgPool".split(), _pooled),
    "AddN": lambda op: (len(op.inputs) - 1) * _size(op.outputs[0]),
    "Conv2D": _convolved,
    "DepthwiseConv2dNative": _convolved_by_depth,
    "L2Loss": lambda op: 3 * _size(op.inputs[0]) - 1,
    "Mean": _reduced(1),
    "Softmax": _each(5),
}


# *** the tree ***

_ATTRIBUTES: Final = {"params": "parameters", "float_ops": "float_ops", "micros": "exec_micros",
                      "bytes": "requested_bytes"}  # fmt: skip


def _tree(counted: Mapping[str, Mapping[str, int]], options: Mapping[str, Any]) -> GraphNode:
    """Returns the tree of scopes of operations with their numbers."""
    nodes = {"": GraphNode(_ROOT)}
    for name, numbers in counted.items():
        parts = name.split("/")
        paths = ["", *("/".join(parts[: i + 1]) for i in range(len(parts)))]
        for outer, path in itertools.pairwise(paths):
            if path not in nodes:
                nodes[path] = GraphNode(path)
                nodes[outer].children.append(nodes[path])
        for what, n in numbers.items():
            attribute = _ATTRIBUTES[what]
            setattr(nodes[name], attribute, n)
            for path in paths:
                setattr(nodes[path], f"total_{attribute}", getattr(nodes[path], f"total_{attribute}") + n)
    by = _ATTRIBUTES.get(options.get("order_by", "name"))
    for node in nodes.values():
        node.children.sort(key=lambda c: (-getattr(c, f"total_{by}") if by else 0, c.name))
    return nodes[""]


def _table(node: GraphNode, options: Mapping[str, Any], depth: int) -> Iterator[str]:
    numbers = [f"{getattr(node, f'total_{_ATTRIBUTES[what]}')} {what}" for what in options["select"]]
    if depth and not any(
        getattr(node, f"total_{_ATTRIBUTES[what]}") >= max(options.get(f"min_{what}", 0), 1)
        for what in options["select"]
    ):
        return
    yield f"{'  ' * depth}{node.name} ({', '.join(numbers)})"
    if depth < options["max_depth"]:
        for child in node.children:
            yield from _table(child, options, depth + 1)


# fmt: off
__all__ = ["GraphNode", "ProfileOptionBuilder", "Profiler", "profile"]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
