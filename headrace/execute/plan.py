"""Everything static about a step, computed once: dense nodes, edges, pending counts, kernels.

`make_plan` turns the operations of a pruned, primitive graph into a `Plan`: for each frame of the graph a `FramePlan`
with templates (what an iteration record starts as), and for each operation a `PlanNode` whose edges lead straight to
other nodes. While a step runs nothing looks at a name, an attribute or a graph again.

**Slots.** An iteration record has a list `values` with one slot for each data input of each *join* (a node that waits
for more than one token) and a list `pending` with one count for each join. A node that waits for exactly one token
has neither: the token goes into the ready queue at once ("direct" edges).

**Constants.** A constant of the root frame without control inputs is not a node: its value stands in the template of
the root's slots.

**Functions.** What is called in frames of its own (a recursive function) has a `FramePlan` like the root's, with
parameters and results in place of feeds and fetches, and below it those of its loops. A `CALL` leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags
from headrace.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from headrace.ir import output_check
from headrace.ir.analysis import frames as ir_frames
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU, find_kernel, made_for, why_none

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

# Kinds of nodes: how a node fires. The executor's hot loop tells them apart by number, most frequent first.
PASS: Final = 0  # one data input, and the output is that value
UNARY: Final = 1  # one data input, one output, pure kernel
NARY: Final = 2  # several data inputs, one output, pure kernel
NULLARY: Final = 3  # no data inputs, one output, pure kernel
SWITCH: Final = 4
LOOP_MERGE: Final = 5  # one Enter, one NextIteration, no control inputs: exactly one token an iteration
NEXT: Final = 6
DEAD: Final = 7  # the dead twin of any node
MERGE: Final = 8
ENTER: Final = 9
EXIT: Final = 10
OTHER: Final = 11  # a pure kernel with no output or several
STATEFUL: Final = 12
ASYNC: Final = 13
HEAVY: Final = 14  # a pure kernel worth a thread of its own
RETVAL: Final = 15
ARG: Final = 16
TRIGGER: Final = 17  # ControlTrigger: live whatever its inputs are
READING: Final = 18  # a primitive that takes a value but is fed a reference: it reads, then fires as `real`
SWITCH_N: Final = 19
CALL: Final = 20  # a function in a frame of its own; done when the frame is
PARAM: Final = 21  # an argument, in the function's frame
RESULT: Final = 22  # a result, in the function's frame: it is an output of the call
SEND: Final = 23  # ships a token, dead or alive, to another device
RECV: Final = 24  # waits for such a token, once its control inputs are there, dead or alive
BLOCKING: Final = 25  # its kernel, made at each step, may block the thread that calls it

KIND_NAMES: Final = (
    *("pass", "unary", "nary", "nullary", "switch", "loop merge", "next", "dead", "merge", "enter", "exit", "other"),
    *("stateful", "async", "heavy", "retval", "arg", "trigger", "reading", "switch n", "call", "param", "result"),
    *("send", "recv", "blocking"),
)

# A pending count holds the tokens still to come in its low bits; a dead token adds DEAD_TOKEN. A Merge's count also
# holds its control inputs still to come, whether a live input has arrived, and whether it has fired.
COUNT_MASK: Final = (1 << 24) - 1
DEAD_TOKEN: Final = 1 << 24
CONTROL_UNIT: Final = 1 << 24
CONTROL_MASK: Final = ((1 << 24) - 1) << 24
HAS_LIVE: Final = 1 << 48
FIRED: Final = 1 << 49

HEAVY_FLOPS: Final = 2e6  # a firing this large is worth a trip to the pool (some hundred microseconds)

Join = tuple[int, int, "PlanNode"]  # (slot, pending index, node)


class Out:
    """Edges of one output: the nodes that receive its tokens.

    Attributes:
      direct: nodes that wait for nothing but this token.
      joins, merges: nodes that wait for more; Merges, with the input's index.
      dead_direct: dead twins of the nodes of `direct`, without those of `quiet`.
      used: whether there is any edge.
      quiet: nodes of `direct` at which a dead token stops (an Exit withholds it, a NextIteration drops it).
    """

    __slots__ = ("dead_direct", "direct", "joins", "merges", "quiet", "used")

    def __init__(self) -> None:
        self.direct: tuple[PlanNode, ...] = ()
        self.dead_direct: tuple[PlanNode, ...] = ()
        self.quiet: tuple[PlanNode, ...] = ()
        self.used = False
        self.joins: tuple[Join, ...] = ()
        self.merges: tuple[tuple[PlanNode, int], ...] = ()


class PlanNode:
    """One operation of a plan.

    Attributes:
      id: dense number within the plan.
      op: the operation, for messages.
      kind: how it fires (`UNARY`, ...).
      kernel: its function; None for primitives, and for stateful and asynchronous nodes (bound at each step).
      frame: the frame it fires in.
      start, stop: its slots in an iteration's `values`; equal if it is not a join.
      index: its place in `pending`, -1 if it is not a join.
      outs: for each output its edges.
      direct, joins, merges: the edges that live tokens of a node with one output (or of a Merge's first) take at once:
        those of output 0, and in `direct` also the control edges to nodes that wait for nothing else.
      only: the one node in `direct`, if there is one.
      gates: whether it has control edges.
      stops_dead: whether a dead token goes no further (a NextIteration; for now, an Exit).
      crosses: whether its tokens may go to another frame or iteration than its own.
      acts_dead: whether the executor has something to do when it fires dead.
      edge: of a Send or Recv, the name of the edge that was cut.
      more: whether a live firing also sends tokens along other edges (control edges, a Merge's second output).
      controls: control edges to joins: (pending index, node).
      control_merges, control_direct: control edges to Merges, and to nodes that wait for nothing else.
      dead: its dead twin, of kind `DEAD`; the twin's `live` leads back.
      culprit: of a cluster, tells which of its operations an error came from; else None.

    What fires with a node, `x` in a ready entry `(node, iteration, x)`: the value of its one input; else the list of
    its inputs' values; for a Merge the pair (value, input index); for a dead twin the origin of its deadness.
    """

    __slots__ = (
        "acts_dead",
        "arity",
        "blank",
        "bound",
        "child",
        "control_direct",
        "control_merges",
        "controls",
        "cost",
        "crosses",
        "culprit",
        "dead",
        "direct",
        "edge",
        "frame",
        "gates",
        "id",
        "index",
        "is_constant",
        "joins",
        "kernel",
        "kind",
        "live",
        "merges",
        "more",
        "n_outputs",
        "only",
        "op",
        "outs",
        "position",
        "reads",
        "real",
        "start",
        "stop",
        "stops_dead",
        "value_index",
    )

    def __init__(self, id: int, op: Operation, kind: int, frame: FramePlan) -> None:
        self.id = id
        self.op = op
        self.kind = kind
        self.frame = frame
        self.kernel: Callable[..., Any] | None = None
        self.arity = len(op.inputs)
        self.n_outputs = len(op.outputs)
        self.start = self.stop = 0
        self.index = -1
        self.blank: tuple[None, ...] = ()
        self.outs: tuple[Out, ...] = tuple(Out() for _ in op.outputs)
        self.direct: tuple[PlanNode, ...] = ()
        self.only: PlanNode | None = None
        self.joins: tuple[Join, ...] = ()
        self.merges: tuple[tuple[PlanNode, int], ...] = ()
        self.controls: tuple[tuple[int, PlanNode], ...] = ()
        self.control_merges: tuple[PlanNode, ...] = ()
        self.control_direct: tuple[PlanNode, ...] = ()
        self.reads: tuple[int, ...] = ()  # inputs that arrive as references and are read when the node fires
        self.bound = -1  # index among the nodes whose kernels are made at each step
        self.child: FramePlan | None = None  # Enter, call: the frame it opens
        self.is_constant = False  # Enter: into every iteration
        # Merge: index of the input that arrives in iteration 0, and later, as values of its second output
        self.value_index = (np.int32(0), np.int32(0))
        self.more = False
        self.gates = False
        self.stops_dead = False
        self.crosses = False
        self.acts_dead = False
        self.edge = ""
        self.position = -1  # Arg, Retval: which feed or fetch; parameter, result: which argument or output of the call
        self.cost: Callable[..., float | None] | None = None
        self.culprit: Callable[[Exception], Any] | None = None
        self.real = kind  # READING: the kind behind it
        self.live = self
        self.dead: PlanNode = self

    def __repr__(self) -> str:
        return f"<{KIND_NAMES[self.kind]} {self.op.name}>"


class FramePlan:
    """The static side of one frame: the templates of its iteration records.

    Attributes:
      name: the loop's name; the function's; "" for the root.
      parent: the frame around a loop; None if it is no loop but the root or a function.
      limit: `parallel_iterations`.
      nodes: the nodes that fire in it.
      values: template of an iteration's slots.
      first, later: template of the pending counts in iteration 0, and in later ones.
      count: how many nodes fire in each iteration.
      enters: how many Enters lead into it.
      exits: its Exits.
      sources: (node, x) for nodes that wait for nothing: they are ready when the frame is opened.
      params: of a function, the nodes that its arguments are supplied to.
      shared: the frame instance that all runs share, where there is no control flow (`execute.acyclic_propagator`).
    """

    __slots__ = (
        *("count", "enters", "exits", "first", "later", "limit", "name", "nodes"),
        *("params", "parent", "shared", "sources", "values"),
    )

    def __init__(self, name: str, parent: FramePlan | None, limit: int) -> None:
        self.name = name
        self.parent = parent
        self.limit = max(1, limit)
        self.nodes: list[PlanNode] = []
        self.values: list[Any] = []
        self.first: list[int] = []
        self.later: list[int] = []
        self.count = 0
        self.enters = 0
        self.exits: list[PlanNode] = []
        self.sources: list[tuple[PlanNode, Any]] = []
        self.params: list[PlanNode] = []
        self.shared: Any = None

    def __repr__(self) -> str:
        return f"<frame {self.name or 'root'}>"


class Plan:
    """A step, ready to run any number of times, from any number of threads.

    Attributes:
      nodes: all nodes.
      frames: all frames, the root first.
      args: for each feed its node.
      retvals: for each fetch its node.
      binders: (operation, factory) of the kernels made at each step.
      is_straight: whether there is no control flow in it.
      uses_blas: whether some node may call the BLAS library.
      has_loops: whether there are loops inside nodes.
      device: of one part of a step over several devices, which it is for; "" for a whole step.
      sequence: static schedule of the runs (`execute.static_schedule`); None before it is computed; False if the step
        has none.
    """

    __slots__ = (
        *("args", "binders", "device", "frames", "has_loops", "is_straight"),
        *("nodes", "retvals", "sequence", "uses_blas"),
    )

    def __init__(self) -> None:
        self.nodes: list[PlanNode] = []
        self.frames: list[FramePlan] = []
        self.args: list[PlanNode] = []
        self.retvals: list[PlanNode] = []
        self.binders: list[tuple[Operation, Callable[..., Any]]] = []
        self.is_straight = True
        self.uses_blas = self.has_loops = False
        self.device = ""
        self.sequence: Any = None

    @property
    def flushes(self) -> bool:
        """Whether it takes denormal numbers for 0 (see `denormals`)."""
        return self.uses_blas or self.has_loops or len(self.frames) > 1

    @property
    def blocks(self) -> bool:
        """Whether it has kernels that may block their thread (see `blocking`)."""
        return any(op.opdef.facts.blocking for op, _ in self.binders)

    @property
    def root(self) -> FramePlan:
        return self.frames[0]


_PRIMITIVES = {
    "Switch": SWITCH,
    "SwitchN": SWITCH_N,
    "Merge": MERGE,
    "Enter": ENTER,
    "Exit": EXIT,
    "NextIteration": NEXT,
    "ControlTrigger": TRIGGER,
    "Send": SEND,
    "Recv": RECV,
}
_FRAMES = frozenset({"Switch", "SwitchN", "Merge", "Enter", "Exit", "NextIteration", "Send", "Recv"})
_ACT_DEAD = frozenset({RETVAL, SEND, RECV})


def make_plan(
    ops: Sequence[Operation], functions: Mapping[str, Sequence[Operation]] | None = None, device: str = ""
) -> Plan:
    """Returns the plan of a pruned primitive graph with `_Arg` and `_Retval` ends.

    Args:
      ops: of the root; all of them run.
      functions: for each function that an operation calls in a frame of its own its operations: the `_Arg`s are its
        parameters (`index`: which input of the call), the `_Retval`s its results (which output). All of them run
        whenever it is called.
      device: of one part of a step over several devices, the name of the one it is for.

    Raises:
      GraphError: a cycle that is no loop.
      InvalidArgumentError: the frames do not fit together (`ir.analysis.frames`); a call and its function do not.
      NotFoundError: a function that is called is not there.
      UnimplementedError: an op has no kernel for this device.
    """
    plan = Plan()
    plan.device = device
    plan.is_straight = not any(op.opdef.primitive in _FRAMES or op.opdef.structured for op in ops)
    _add_graph(plan, ops, None)
    roots = {name: _add_graph(plan, body, name) for name, body in (functions or {}).items()}
    for node in plan.nodes:
        if node.kind == CALL:
            node.child = _called(node.op, roots)
        node.frame.count += 1
        node.real = node.kind
        node.stops_dead = node.kind in (EXIT, NEXT) and node.frame.parent is not None
        node.crosses = node.stops_dead or node.kind in (ENTER, RESULT)
        node.acts_dead = node.kind in _ACT_DEAD
        node.gates = bool(node.controls or node.control_direct or node.control_merges)
        if node.reads and (node.op.opdef.primitive or node.kind == CALL):
            node.kind = READING
        twin = PlanNode(node.id, node.op, DEAD, node.frame)
        twin.live = node
        node.dead = twin
    for node in plan.nodes:
        for out in node.outs:
            out.used = bool(out.direct or out.joins or out.merges)
            out.quiet = tuple(n for n in out.direct if n.stops_dead)
            out.dead_direct = tuple(n.dead for n in out.direct if not n.stops_dead)
    plan.args.sort(key=lambda n: n.position)
    plan.retvals.sort(key=lambda n: n.position)
    return plan


def _add_graph(plan: Plan, ops: Sequence[Operation], function: str | None) -> FramePlan:
    """Adds the nodes and frames of a graph or function; returns its outermost frame."""
    tree = ir_frames.derive(ops)
    frame_plans: dict[int, FramePlan] = {}
    for f in tree.frames:
        parent = frame_plans[id(f.parent)] if f.parent is not None else None
        fp = FramePlan(f.name if parent is not None else function or "", parent, f.parallel_iterations)
        frame_plans[id(f)] = fp
        plan.frames.append(fp)

    opened = {enter: frame_plans[id(f)] for f in tree.frames for enter in f.enters}
    nodes: dict[Operation, PlanNode] = {}
    constants = _constants(ops, _device_type(plan))
    for op in ops:
        if op in constants:
            continue
        frame = frame_plans[id(tree.of(op))]
        node = _make_node(plan, op, frame, function is not None)
        nodes[op] = node
        if node.kind == ENTER:
            node.child = opened[op]
            node.child.enters += 1
            node.is_constant = bool(op.attrs["is_constant"])
        elif node.kind == EXIT:
            frame.exits.append(node)
    _connect(nodes, constants)
    return frame_plans[id(tree.root)]


def _called(call: Operation, roots: Mapping[str, FramePlan]) -> FramePlan:
    """The frame that `call` opens."""
    name = call.attrs["f"].name
    root = roots.get(name)
    if root is None:
        raise NotFoundError(
            f"'{call.name}' ({call.type}) calls function {name!r}, which is not defined", call.name, call
        )
    results = {n.position for n in root.nodes if n.kind == RESULT}
    wants = max((n.position + 1 for n in root.params), default=0)
    if wants > len(call.inputs) or results != set(range(len(call.outputs))):
        raise InvalidArgumentError(
            f"'{call.name}' ({call.type}) gives {len(call.inputs)} values to function {name!r} and expects "
            f"{len(call.outputs)} back, but it takes {wants} and returns {len(results)}",
            call.name,
            call,
        )
    return root


def _constants(ops: Sequence[Operation], device: str) -> dict[Operation, Any]:
    """The values of the constants that need not be nodes: in the root frame, waiting for nothing.

    One that feeds a Merge stays a node, because a Merge cares which token comes first. One that is on a device without
    a kernel for constants is the start of a loop that counts (`partition.control_loops`): nobody looks at its value.
    """
    merged = {t.op for op in ops if op.opdef.primitive == "Merge" for t in op.inputs}
    out: dict[Operation, Any] = {}
    for op in ops:
        if op.type == "Const" and not op.control_inputs and op not in merged:
            kernel = find_kernel(op, device) or find_kernel(op)
            if kernel is None or kernel.form != "pure":
                continue
            if isinstance(op.attrs["value"], np.ndarray):  # else it says so itself when it fires
                out[op] = made_for(op, kernel)()
    return out


def _make_node(plan: Plan, op: Operation, frame: FramePlan, in_function: bool) -> PlanNode:
    kind = _PRIMITIVES.get(op.opdef.primitive, OTHER)
    node = PlanNode(len(plan.nodes), op, kind, frame)
    wanted = op.opdef.input_dtypes(op.attrs)
    node.reads = tuple(
        i for i, (t, d) in enumerate(zip(op.inputs, wanted, strict=True)) if t.dtype.is_ref and not d.is_ref
    )
    plan.nodes.append(node)
    frame.nodes.append(node)
    if op.type == "_Arg":
        node.kind = PARAM if in_function else ARG
        node.position = op.attrs["index"]
        (frame.params if in_function else plan.args).append(node)
    elif op.type == "_Retval":
        node.kind = RESULT if in_function else RETVAL
        node.position = op.attrs["index"]
        if not in_function:
            plan.retvals.append(node)
    elif kind in (SEND, RECV):
        node.edge = op.attrs["tensor_name"]
    elif op.opdef.structured == "Call":
        node.kind = CALL
    elif kind == OTHER:
        _add_kernel(plan, node)
    return node


def _device_type(plan: Plan) -> str:
    return DeviceSpec.from_string(plan.device).type or CPU


def _add_kernel(plan: Plan, node: PlanNode) -> None:
    op = node.op
    device = _device_type(plan)
    kernel = find_kernel(op, device)
    if kernel is None:
        raise UnimplementedError(
            f"no kernel computes '{op.type}' (operation {op.name!r}) on {device}{why_none(op, device)}", op.name, op
        )
    compute = op.attrs.get("_compute")  # of a cluster
    node.culprit = getattr(compute, "culprit", None)
    plan.has_loops |= getattr(compute, "has_loops", False)
    plan.uses_blas |= op.opdef.facts.blas or getattr(compute, "uses_blas", False)
    is_blocking = op.opdef.facts.blocking
    if kernel.form != "pure" or is_blocking:
        node.kind = ASYNC if kernel.form == "async" else BLOCKING if is_blocking else STATEFUL
        node.bound = len(plan.binders)
        factory = kernel.factory if kernel.form != "pure" else lambda ctx, attrs: made_for(op, kernel)
        if flags.VERIFY.value >= 2:
            factory = output_check.later(op, factory, node.kind == ASYNC, device == CPU)
        plan.binders.append((op, factory))
        return
    f = made_for(op, kernel)
    if flags.VERIFY.value >= 2:
        f = output_check.checked(op, f, device == CPU)
    if node.reads:
        f = _reading(f, node.reads)
    node.kernel = f
    node.kind = {0: NULLARY, 1: UNARY}.get(node.arity, NARY) if node.n_outputs == 1 else OTHER
    if op.opdef.facts.forwards == 0 and node.kind == UNARY and not node.reads:
        node.kind = PASS
    if may_be_heavy(op):
        node.kind = HEAVY
        # where the sizes are not known, the executor looks at them when it fires
        node.cost = op.opdef.facts.cost if _flops(op) is None else None


def may_be_heavy(op: Operation) -> bool:
    """Whether firing `op`, which has a pure kernel, may justify its own thread."""
    facts = op.opdef.facts
    if facts.cost is None or len(op.outputs) != 1:
        return False
    flops = _flops(op)
    return facts.blas if flops is None else flops >= HEAVY_FLOPS


def is_heavy(op: Operation) -> bool:
    """Whether it is, as far as that is known before it fires."""
    return may_be_heavy(op) and _flops(op) is not None


def _flops(op: Operation) -> float | None:
    """The cost of one firing; None if it is not known."""
    cost = op.opdef.facts.cost
    return None if cost is None else cost([t.shape for t in op.inputs], [t.shape for t in op.outputs])


def _reading(f: Callable[..., Any], reads: Sequence[int]) -> Callable[..., Any]:
    """`f` with the references among its arguments read."""

    def reading(*args: Any) -> Any:
        got = list(args)
        for i in reads:
            got[i] = got[i].read()
        return f(*got)

    return reading


def _connect(nodes: Mapping[Operation, PlanNode], constants: Mapping[Operation, Any]) -> None:
    """Lays out slots and pending counts of the nodes of one graph, then makes its edges."""
    for node in nodes.values():
        _lay_out(node, constants)
    data: dict[tuple[PlanNode, int], list[tuple[PlanNode, int]]] = {}
    control: dict[PlanNode, list[PlanNode]] = {}
    for node in nodes.values():
        for i, t in enumerate(node.op.inputs):
            if t.op not in constants:
                data.setdefault((nodes[t.op], t.index), []).append((node, i))
        for c in node.op.control_inputs:
            if c not in constants:
                control.setdefault(nodes[c], []).append(node)
    for (src, k), uses in data.items():
        uses.sort(key=lambda use: use[0].kind != SEND)  # others wait for what is sent
        out = src.outs[k]
        out.direct = tuple(n for n, _ in uses if n.index < 0)
        out.joins = tuple((n.start + i, n.index, n) for n, i in uses if n.index >= 0 and n.kind != MERGE)
        out.merges = tuple((n, i) for n, i in uses if n.kind == MERGE)
    for src, ends in control.items():
        src.controls = tuple((n.index, n) for n in ends if n.index >= 0 and n.kind != MERGE)
        src.control_merges = tuple(n for n in ends if n.kind == MERGE)
        src.control_direct = tuple(n for n in ends if n.index < 0)
    for node in nodes.values():
        node.more = bool(node.controls or node.control_merges)
        if node.n_outputs == 1 or node.kind in (MERGE, LOOP_MERGE):
            out = node.outs[0]
            node.direct, node.joins, node.merges = out.direct + node.control_direct, out.joins, out.merges
            node.only = node.direct[0] if len(node.direct) == 1 else None
            if node.n_outputs == 2:
                second = node.outs[1]
                node.more |= bool(second.direct or second.joins or second.merges)
        else:
            node.more |= bool(node.control_direct)


def _lay_out(node: PlanNode, constants: Mapping[Operation, Any]) -> None:
    """Gives `node` its slots and pending count, unless one token is all it waits for."""
    op, frame = node.op, node.frame
    known = sum(t.op in constants for t in op.inputs)
    controls = sum(c not in constants for c in op.control_inputs)
    if node.kind == MERGE:
        _lay_out_merge(node, controls)
        return
    waits = node.arity - known + controls
    if waits == 0 and node.kind not in (ARG, PARAM):
        args = [constants[t.op] for t in op.inputs]
        frame.sources.append((node, args[0] if node.arity == 1 else args))
    if waits == 0 or (waits == 1 and not known and node.kind != TRIGGER):
        return
    node.index = len(frame.first)
    frame.first.append(waits)
    frame.later.append(waits)
    node.start = len(frame.values)
    node.stop = node.start + node.arity
    node.blank = (None,) * node.arity
    frame.values.extend(constants.get(t.op) for t in op.inputs)


def _lay_out_merge(node: PlanNode, controls: int) -> None:
    """A Merge expects Enters in iteration 0, NextIterations later, and anything else in every iteration.

    Outside loops there is only one iteration, and NextIteration just passes on.
    """
    op, frame = node.op, node.frame
    first = later = 0
    index = [0, 0]
    for i, t in enumerate(op.inputs):
        p = t.op.opdef.primitive
        if p != "NextIteration" or frame.parent is None:
            first += 1
            index[0] = i
        if p != "Enter" or t.op.attrs["is_constant"]:
            later += 1
            index[1] = i
    if first == 1 and later == 1 and not controls and node.arity == 2:
        node.kind = LOOP_MERGE
        node.value_index = (np.int32(index[0]), np.int32(index[1]))
        return
    node.index = len(frame.first)
    frame.first.append(first + controls * CONTROL_UNIT)
    frame.later.append(later + controls * CONTROL_UNIT)
    node.start = len(frame.values)
    node.stop = node.start + 2  # the value that arrived, and its index
    node.blank = (None, None)
    frame.values.extend(node.blank)
