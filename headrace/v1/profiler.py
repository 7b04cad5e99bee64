"""TensorFlow 1's `tf.profiler`: parameters, float operations and times by scopes.

The numbers of float operations are TensorFlow's: those of op types for which it has a formula, from static shapes. An
operation without a formula or with an unknown shape counts as 0. `hr.profile` measures a step in more detail.
"""

from __future__ import annotations

import collections
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace import public_names
from headrace.errors import UnimplementedError
from headrace.files.commit import replacing
from headrace.ir.graph import Operation
from headrace.pb import AdviceProto, GraphNodeProto, MultiGraphNodeProto, OpLogProto
from headrace.v1.graph import GraphKeys, get_default_graph

_ROOT: Final = "_TFProfRoot"
_COMMANDS: Final = ("scope", "graph")
_TRAINABLE: Final = "_trainable_variables"  # the type of trainable variables in options


# Names of checks of `advise`, which each have a list of reports.
ALL_ADVICE: Final[dict[str, dict[str, Any]]] = {
    "ExpensiveOperationChecker": {},
    "AcceleratorUtilizationChecker": {},
    "JobChecker": {},
    "OperationChecker": {},
}  # fmt: skip
_TOP: Final = 3  # op types that a report names


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
) -> GraphNodeProto:
    """Returns the numbers of a graph by scopes.

    The options say whether the numbers are printed or written, too.

    Args:
      graph: the graph; None: the default graph.
      run_meta: the `RunMetadata` of a traced run, for "micros" and "bytes"; or None.
      op_log: an `OpLogProto` with float operations and types of operations, as of `write_op_log`; or None.
      cmd: "scope" or "graph", which are the same.
      options: a dict of `ProfileOptionBuilder`; None: all numbers.

    Returns:
      The root of the tree, whose fields that begin with `total_` include everything below.

    Raises:
      UnimplementedError: another `cmd`.

    Source: TensorFlow's `tf.profiler.profile`.
    """
    if cmd not in _COMMANDS:
        raise UnimplementedError(f"tf.profiler.profile has the commands {_COMMANDS}; got {cmd!r}")
    graph = get_default_graph() if graph is None else graph
    given = ProfileOptionBuilder(options).build()
    root = _tree(dict(_counted(graph, run_meta, op_log, given)), given)
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
      op_log: see `profile`.

    Source: TensorFlow's `tf.profiler.Profiler`.
    """

    def __init__(self, graph: Any = None, op_log: Any = None) -> None:
        self._op_log = op_log
        self._graph = get_default_graph() if graph is None else graph
        self._steps: dict[int, Any] = {}

    def add_step(self, step: int, run_meta: Any) -> None:
        """Adds the metadata of a traced run.

        Args:
          step: number of the run.
          run_meta: its `RunMetadata`.
        """
        self._steps[step] = run_meta

    def profile_name_scope(self, options: Any) -> GraphNodeProto:
        """Returns `profile` of the step that the options choose."""
        step = dict(options).get("step", -1)
        chosen = self._steps.get(max(self._steps, default=-1) if step < 0 else step)
        return profile(self._graph, chosen, self._op_log, options=options)

    profile_graph = profile_name_scope

    def advise(self, options: Any = None) -> AdviceProto:
        """Returns `advise` for the last step.

        Args:
          options: see `advise`.
        """
        return advise(self._graph, self._steps.get(max(self._steps, default=-1)), options)


def advise(graph: Any = None, run_meta: Any = None, options: Any = None) -> AdviceProto:
    """Prints and returns reports of a traced run: its expensive op types and operation.

    Args:
      graph: the graph; None: the default graph.
      run_meta: the `RunMetadata` of the run; None: nothing is reported.
      options: a dict whose keys are names of checks (`ALL_ADVICE`); None or 0: all. The check of accelerators has no
        reports, there being none.

    Source: TensorFlow's `tf.profiler.advise`.
    """
    graph = get_default_graph() if graph is None else graph
    out = AdviceProto()
    for name in options or ALL_ADVICE:
        found = _expensive(graph, run_meta) if name == "ExpensiveOperationChecker" and run_meta is not None else []
        out.checkers[name].reports.extend(found)
    for name in sorted(out.checkers):
        print("\n".join([f"{name}:", *out.checkers[name].reports, ""]))
    return out


def _expensive(graph: Any, run_meta: Any) -> list[str]:
    """The op types with the longest times, and the operation with the longest."""
    types = {op.name: op.type for op in graph.operations}
    times = {name: micros for name, (micros, _) in _times(run_meta).items() if name in types}
    by_type: collections.Counter[str] = collections.Counter()
    for name, micros in times.items():
        by_type[types[name]] += micros
    whole = sum(by_type.values())
    out = [
        f"top {i} operation type: {kind}, cpu: {micros}us, accelerator: 0us, total: {micros}us ({micros / whole:.2%})"
        for i, (kind, micros) in enumerate(by_type.most_common(_TOP), 1)
        if micros
    ]
    if whole:
        name = max(times, key=times.__getitem__)
        out.append(f"top 1 graph node: {name}, cpu: {times[name]}us, accelerator: 0us, total: {times[name]}us")
    return out


def write_op_log(graph: Any, log_dir: str, op_log: Any = None, run_meta: Any = None, add_trace: bool = True) -> None:
    """Writes facts about the operations of a graph to the file "tfprof_log".

    The facts are float operations, types and lines of the program.

    Args:
      graph: the graph; None: the default graph.
      log_dir: the folder, which exists.
      op_log: an `OpLogProto` whose entries come first; or None.
      run_meta: accepted as in TensorFlow; shapes are those of the graph.
      add_trace: whether the lines of the program are written.

    Source: TensorFlow's `tf.profiler.write_op_log`.
    """
    graph = get_default_graph() if graph is None else graph
    trainable = {v.op.name for v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    out, texts = OpLogProto(), {"none": 0}
    if op_log is not None:
        out.CopyFrom(op_log)
        texts |= {text: key for key, text in op_log.id_to_string.items()}
    entries = {e.name: e for e in out.log_entries}
    for op in graph.operations:
        number = float_ops(op)
        place = op.source if add_trace else None
        if not number and op.name not in trainable and place is None:
            continue
        entry = entries[op.name] if op.name in entries else out.log_entries.add(name=op.name)
        entry.float_ops = entry.float_ops or number
        if op.name in trainable and _TRAINABLE not in entry.types:
            entry.types.append(_TRAINABLE)
        if place is not None and not entry.code_def.traces:
            file, function = (texts.setdefault(text, len(texts)) for text in (place.file, place.function))
            entry.code_def.traces.add(file_id=file, lineno=place.line, function_id=function, func_start_line=-1)
    for text, key in texts.items():
        out.id_to_string[key] = text
    with replacing(os.path.join(log_dir, "tfprof_log")) as file_:
        file_.write(out.SerializeToString(deterministic=True))


# *** numbers of single operations ***


def _counted(
    graph: Any, run_meta: Any, op_log: Any, options: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, int]]]:
    """Iterates over the names of operations and those of their numbers that are not 0."""
    select, types = options["select"], [re.compile(p) for p in options["account_type_regexes"]]
    trainable = {v.op.name: v for v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    every = {v.op.name: v for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)} | trainable
    times = _times(run_meta) if run_meta is not None else {}
    logged = {} if op_log is None else {entry.name: entry for entry in op_log.log_entries}
    for op in graph.operations:
        said = logged.get(op.name)
        kinds = [op.type, op.device] + [_TRAINABLE] * (op.name in trainable) + ([] if said is None else [*said.types])
        if not any(p.fullmatch(kind) for p in types for kind in kinds):
            continue
        micros, size = times.get(op.name, (0, 0))
        found = {
            "params": _elements(every[op.name].shape) if op.name in every else 0,
            "float_ops": (said is not None and said.float_ops) or float_ops(op),
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


def _tree(counted: Mapping[str, Mapping[str, int]], options: Mapping[str, Any]) -> GraphNodeProto:
    """Returns the tree of scopes of operations with their numbers."""
    own: dict[str, dict[str, int]] = {"": {}}
    totals: dict[str, collections.Counter[str]] = {"": collections.Counter()}
    below: dict[str, list[str]] = {"": []}
    for name, numbers in counted.items():
        parts = name.split("/")
        paths = ["", *("/".join(parts[: i + 1]) for i in range(len(parts)))]
        for outer, path in itertools.pairwise(paths):
            if path not in own:
                own[path], totals[path], below[path] = {}, collections.Counter(), []
                below[outer].append(path)
        own[name] = {_ATTRIBUTES[what]: n for what, n in numbers.items()}
        for path in paths:
            totals[path].update(own[name])
    by = _ATTRIBUTES.get(options.get("order_by", "name"), "")

    def node(path: str) -> GraphNodeProto:
        out = GraphNodeProto(name=path or _ROOT)
        for attribute, n in (own[path] | {f"total_{a}": n for a, n in totals[path].items()}).items():
            setattr(out, attribute, n)
        out.children.extend(node(p) for p in sorted(below[path], key=lambda p: (-totals[p][by], p)))
        return out

    return node("")


def _table(node: GraphNodeProto, options: Mapping[str, Any], depth: int) -> Iterator[str]:
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
__all__ = [
    "ALL_ADVICE", "AdviceProto", "GraphNodeProto", "MultiGraphNodeProto", "OpLogProto", "ProfileOptionBuilder",
    "Profiler", "advise", "profile", "write_op_log",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
