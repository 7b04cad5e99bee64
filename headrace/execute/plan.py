"""Everything static about a step, computed once: dense nodes, edges, pending counts, kernels.

`make_plan` turns the operations of a pruned, primitive graph into a `Plan`. For each frame of the graph the plan has a
`FramePlan` with the templates of its iteration records. For each operation it has a `PlanNode`, whose edges refer to
other nodes directly. So a running step never looks up a name, an attribute or a graph.

**Slots.** A *join* is a node that waits for more than one token. An iteration record has a list `values` with one slot
for each data input of each join, and a list `pending` with one count for each join. A node that waits for exactly one
token has neither: its token goes into the ready queue at once (a "direct" edge).

**Constants.** A constant of the root frame without control inputs is not a node. Its value is in the template of the
root's slots.

**Functions.** A function that is called in frames of its own (because it is recursive) has a `FramePlan` like the
root's, with parameters and results in place of feeds and fetches. The frames of its loops are below this frame. A
`CALL` refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags, thresholds
from headrace.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from headrace.ir import output_check
from headrace.ir.analysis import frames as ir_frames
from headrace.ir.analysis.flops import flops_of, is_threaded
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU, find_kernel, has_namespace, host_kernel, kernel_on, made_for, memory_of, why_none
from headrace.ir.notes import FusedKernel
from headrace.opkit.kernel_library import kernel_with_library

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.ir.kernel_errors import Located
    from headrace.ir.opdef import Primitive

# Kinds of nodes: how a node fires. The dispatch loop compares these numbers, the most frequent kinds first.
PASS: Final = 0  # one data input, whose value is the output
UNARY: Final = 1  # one data input, one output, pure kernel
NARY: Final = 2  # several data inputs, one output, pure kernel
NULLARY: Final = 3  # no data inputs, one output, pure kernel
SWITCH: Final = 4
LOOP_MERGE: Final = 5  # one Enter, one NextIteration, no control inputs: exactly one token per iteration
NEXT: Final = 6
DEAD: Final = 7  # the dead twin of any node
MERGE: Final = 8
ENTER: Final = 9
EXIT: Final = 10
OTHER: Final = 11  # a pure kernel with no output or several
STATEFUL: Final = 12
ASYNC: Final = 13
HEAVY: Final = 14  # a pure kernel that may justify its own thread
RETVAL: Final = 15
ARG: Final = 16
TRIGGER: Final = 17  # ControlTrigger: live for any inputs
READING: Final = 18  # a primitive with a reference in place of a value: it reads the reference, then fires as `real`
SWITCH_N: Final = 19
CALL: Final = 20  # a function in a frame of its own; it is done when the frame is
PARAM: Final = 21  # a parameter, in the frame of the function
RESULT: Final = 22  # a result, in the frame of the function: it is an output of the call
SEND: Final = 23  # sends a token, dead or alive, to another device
RECV: Final = 24  # waits for such a token once its control inputs have arrived, dead or alive
BLOCKING: Final = 25  # its kernel, made at each step, may block the calling thread
LONG: Final = 26  # a fused region of pure kernels that may take as long as a heavy kernel

KIND_NAMES: Final = (
    *("pass", "unary", "nary", "nullary", "switch", "loop merge", "next", "dead", "merge", "enter", "exit", "other"),
    *("stateful", "async", "heavy", "retval", "arg", "trigger", "reading", "switch n", "call", "param", "result"),
    *("send", "recv", "blocking", "long"),
)

# A pending count has the number of missing tokens in its low bits; a dead token adds DEAD_TOKEN. The count of a Merge
# also has the number of missing control inputs, whether a live input has arrived, and whether the Merge has fired.
COUNT_MASK: Final = (1 << 24) - 1
DEAD_TOKEN: Final = 1 << 24
CONTROL_UNIT: Final = 1 << 24
CONTROL_MASK: Final = ((1 << 24) - 1) << 24
HAS_LIVE: Final = 1 << 48
FIRED: Final = 1 << 49


Join = tuple[int, int, "PlanNode"]  # (slot, pending index, node)


class Out:
    """Edges of one output: the nodes that receive its tokens.

    Attributes:
      direct: nodes that wait for this token only.
      joins: edges to nodes that wait for more tokens.
      merges: edges to Merges: (node, index of its input).
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
    """An operation of a plan.

    A ready entry `(node, iteration, x)` has the inputs of the firing in `x`. For a node with one input `x` is the value
    of the input, and for one with several inputs the list of their values. For a Merge it is the pair (value, input
    index), and for a dead twin the origin of its deadness.

    Args:
      id: dense number within the plan.
      op: the operation, for messages.
      kind: how the node fires (`UNARY`, ...).
      frame: the frame in which the node fires.

    Attributes:
      id: dense number within the plan.
      op: the operation, for messages.
      kind: how the node fires (`UNARY`, ...).
      real: the kind without `READING`: how the node fires once its references are read.
      kernel: its function; None for primitives, and for nodes whose kernel is made at each step.
      bound: index of its kernel among those made at each step; -1 for other nodes.
      frame: the frame in which the node fires.
      child: of an Enter or a call, the frame that it opens; else None.
      arity: number of data inputs.
      n_outputs: number of outputs.
      start: index of its first slot in the `values` of an iteration.
      stop: index after its last slot; equal to `start` if it is not a join.
      blank: empty values for its slots.
      index: its place in `pending`; -1 if it is not a join.
      outs: for each output its edges.
      direct: edges that a live token takes at once: those of output 0, and control edges to nodes that wait for nothing
        else. Set for a node with one output and for a Merge, as are `joins` and `merges`.
      joins: edges of output 0 to joins.
      merges: edges of output 0 to Merges.
      only: the single node of `direct`; None if there are several or none.
      gates: whether it has outgoing control edges.
      stops_dead: whether a dead token ends at it (a NextIteration drops it, an Exit withholds it until the loop ends).
      crosses: whether its tokens may go to another frame or iteration than its own.
      acts_dead: whether the executor acts when it fires dead.
      edge: of a Send or Recv, the name of the edge that was cut.
      position: the feed or fetch of an Arg or Retval; the input or output of the call of a parameter or result.
      more: whether a live firing also sends tokens along other edges (control edges, a Merge's second output).
      controls: control edges to joins: (pending index, node).
      control_merges: control edges to Merges.
      control_direct: control edges to nodes that wait for nothing else.
      reads: inputs that arrive as references and are read when the node fires.
      is_constant: whether an Enter brings its value into every iteration.
      value_index: values of the second output of a Merge in iteration 0 and in later ones.
      cost: the cost function of a heavy kernel whose cost the static shapes do not decide; else None.
      dead: its dead twin, of kind `DEAD`.
      live: of a dead twin, the node; else the node itself.
      locate: of a fused region, finds the operation inside it that raised an error; else None.
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
        "locate",
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
        self.child: FramePlan | None = None  # Enter, call: the frame that it opens
        self.is_constant = False  # Enter: whether it brings its value into every iteration
        # Merge: index of the input that arrives in iteration 0 and in later ones, as values of its second output
        self.value_index = (np.int32(0), np.int32(0))
        self.more = False
        self.gates = False
        self.stops_dead = False
        self.crosses = False
        self.acts_dead = False
        self.edge = ""
        self.position = -1  # Arg, Retval: its feed or fetch; parameter, result: its input or output of the call
        self.cost: Callable[..., float | None] | None = None
        self.locate: Callable[[Exception], Located | None] | None = None
        self.real = kind  # READING: the kind after reading
        self.live = self
        self.dead: PlanNode = self

    def __repr__(self) -> str:
        return f"<{KIND_NAMES[self.kind]} {self.op.name}>"


class FramePlan:
    """Static part of a frame: the templates of its iteration records.

    Args:
      name: the name of the loop or of the function; "" for the root.
      parent: the frame around a loop; None for the root and for functions.
      limit: `parallel_iterations`; at least 1.

    Attributes:
      name: the name of the loop or of the function; "" for the root.
      parent: the frame around a loop; None for the root and for functions.
      limit: the largest number of open iterations.
      nodes: the nodes that fire in the frame.
      values: template of the slots of an iteration.
      first: template of the pending counts of iteration 0.
      later: template of the pending counts of later iterations.
      count: number of nodes that fire in each iteration.
      enters: number of Enters that lead into the frame.
      exits: the Exits of the loop.
      sources: (node, x) of nodes without pending tokens: they are ready when the frame is opened.
      params: of a function, the nodes that receive its arguments.
      shared: of a root without control flow, the frame instance that all runs share (`execute.acyclic_propagator`).
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
    """Static part of a step. Several threads may run it, any number of times.

    Attributes:
      nodes: all nodes.
      frames: all frames, the root first.
      args: for each feed its node.
      retvals: for each fetch its node.
      binders: (operation, factory) of the kernels made at each step.
      is_acyclic: whether the step has no control flow.
      uses_blas: whether some node may call the BLAS library.
      uses_threads: whether an operation may use several threads: by the BLAS library, or in machine code.
      is_threaded: whether one may have enough work for them.
      calls_library: whether kernels of another library than numpy compute on the processor.
      is_fused_flushing: whether some fused region of the step flushes denormal numbers to 0.
      flops: the cost of all pure kernels that run in the thread of the executor and do not tell it (`HEAVY`, `LONG`);
        None if the static shapes do not give it.
      device: the device of one part of a step over several devices; "" for a whole step.
      static_schedule: schedule of the step (`execute.static_schedule`); None before it is computed; False if the step
        has none.
    """

    __slots__ = (
        *("args", "binders", "calls_library", "device", "flops", "frames", "is_acyclic", "is_fused_flushing"),
        *("is_threaded", "nodes", "retvals", "static_schedule", "uses_blas", "uses_threads"),
    )

    def __init__(self) -> None:
        self.nodes: list[PlanNode] = []
        self.frames: list[FramePlan] = []
        self.args: list[PlanNode] = []
        self.retvals: list[PlanNode] = []
        self.binders: list[tuple[Operation, Callable[..., Any]]] = []
        self.is_acyclic = True
        self.uses_blas = self.uses_threads = self.is_threaded = self.is_fused_flushing = self.calls_library = False
        self.flops: float | None = 0.0
        self.device = ""
        self.static_schedule: Any = None

    @property
    def flushes(self) -> bool:
        """Whether the step flushes denormal numbers to 0 (see `denormals`)."""
        return self.uses_blas or self.is_fused_flushing or len(self.frames) > 1

    @property
    def blocks(self) -> bool:
        """Whether the step has kernels that may block their thread (see `blocking`)."""
        return any(op.opdef.facts.blocking for op, _ in self.binders)

    @property
    def is_short(self) -> bool:
        """Whether the executor takes at most about a millisecond between two calls of `Ports.busy`."""
        return len(self.frames) == 1 and self.flops is not None and self.flops < thresholds.POOL_FLOPS

    @property
    def root(self) -> FramePlan:
        return self.frames[0]


_PRIMITIVES: Final[Mapping[Primitive, int]] = {
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
_ACT_DEAD = frozenset({RETVAL, SEND, RECV})


def make_plan(
    ops: Sequence[Operation], functions: Mapping[str, Sequence[Operation]] | None = None, device: str = ""
) -> Plan:
    """Returns the plan of a pruned primitive graph with `_Arg` and `_Retval` ends.

    Args:
      ops: the operations of the root; all of them run.
      functions: for each function that is called in a frame of its own, its operations. Its `_Arg`s are its parameters
        (`index`: the input of the call), its `_Retval`s its results (the output). All operations run at each call.
      device: the name of the device, for one part of a step over several devices; "" for a whole step.

    Raises:
      GraphError: a cycle that is not a loop.
      InvalidArgumentError: frames that do not fit together (`ir.analysis.frames`), or a call that does not fit its
        function.
      NotFoundError: a call of a function that is not in `functions`.
      UnimplementedError: an op without a kernel for this device.
    """
    plan = Plan()
    plan.device = device
    plan.is_acyclic = all(
        _PRIMITIVES.get(op.opdef.primitive, TRIGGER) == TRIGGER and not op.opdef.structured for op in ops
    )
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
    constants = _constants(ops, DeviceSpec.from_string(plan.device))
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
    """Returns the frame that `call` opens."""
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


def _constants(ops: Sequence[Operation], device: DeviceSpec) -> dict[Operation, Any]:
    """Values of the constants that need no node: in the root frame, without inputs.

    A constant that feeds a Merge stays a node, because the order of the tokens at a Merge matters. A constant on a
    device without a kernel for constants starts a counting loop (`partition.control_loops`); no operation reads its
    value there, so the kernel of the CPU makes it.
    """
    merged = {t.op for op in ops if op.opdef.primitive == "Merge" for t in op.inputs}
    out: dict[Operation, Any] = {}
    for op in ops:
        if op.type == "Const" and not op.control_inputs and op not in merged:
            kernel = kernel_on(op, device) or find_kernel(op)
            if kernel is None or kernel.form != "pure":
                continue
            if isinstance(op.attrs["value"], np.ndarray):  # for other values the kernel raises its error when it fires
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


def _add_kernel(plan: Plan, node: PlanNode) -> None:
    op = node.op
    spec = DeviceSpec.from_string(plan.device)
    device = spec.type or CPU
    plan.calls_library |= has_namespace(device) and memory_of(spec).is_near
    kernel = kernel_on(op, spec) or (host_kernel(op) if has_namespace(device) else None)
    if kernel is None:
        raise UnimplementedError(
            f"no kernel computes '{op.type}' (operation {op.name!r}) on {device}{why_none(op, device)}", op.name, op
        )
    fused = op.notes.get(FusedKernel)
    compute = None if fused is None else fused.compute
    node.locate = getattr(compute, "locate", None)
    plan.is_fused_flushing |= getattr(compute, "flushes", False)
    plan.uses_blas |= op.opdef.facts.blas or getattr(compute, "uses_blas", False)
    plan.uses_threads |= plan.uses_blas or getattr(compute, "uses_threads", False)
    plan.is_threaded |= is_threaded(op) or getattr(compute, "is_threaded", False)
    is_blocking = op.opdef.facts.blocking
    if kernel.form != "pure" or is_blocking:
        node.kind = ASYNC if kernel.form == "async" else BLOCKING if is_blocking else STATEFUL
        node.bound = len(plan.binders)
        factory = kernel.factory if kernel.form != "pure" else lambda ctx, attrs: made_for(op, kernel)
        if flags.VERIFY.value >= 2:
            factory = output_check.later(op, factory, node.kind == ASYNC, device == CPU)
        plan.binders.append((op, factory))
        return
    f = kernel_with_library(op, kernel, [t.shape for t in op.inputs])
    has_parts = getattr(f, "uses_threads", False)
    plan.uses_threads |= has_parts
    plan.is_threaded |= has_parts
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
        # where static shapes do not give the cost, the executor computes it from the inputs of the firing
        node.cost = op.opdef.facts.cost if flops_of(op) is None else None
        return
    flops = flops_of(op) if fused is None else fused.flops
    if fused is not None and (flops is None or flops >= thresholds.POOL_FLOPS):
        node.kind = LONG
    else:
        plan.flops = None if plan.flops is None or flops is None else plan.flops + flops


def may_be_heavy(op: Operation) -> bool:
    """Whether a firing of `op`, which has a pure kernel, may justify its own thread."""
    facts = op.opdef.facts
    if facts.cost is None or len(op.outputs) != 1:
        return False
    flops = flops_of(op)
    return facts.blas if flops is None else flops >= thresholds.POOL_FLOPS


def is_heavy(op: Operation) -> bool:
    """Whether a firing of `op` justifies its own thread by its static shapes."""
    return may_be_heavy(op) and flops_of(op) is not None


def _reading(f: Callable[..., Any], reads: Sequence[int]) -> Callable[..., Any]:
    """Returns `f` with the references among its arguments read before the call."""

    def reading(*args: Any) -> Any:
        got = list(args)
        for i in reads:
            got[i] = got[i].read()
        return f(*got)

    return reading


def _connect(nodes: Mapping[Operation, PlanNode], constants: Mapping[Operation, Any]) -> None:
    """Lays out the slots and pending counts of one graph's nodes, then connects them."""
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
        uses.sort(key=lambda use: use[0].kind != SEND)  # Sends first: another device waits for them
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
    """Assigns slots and a pending count to `node`, unless it waits for a single token."""
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
    """Assigns slots and pending counts to a Merge, which depend on the iteration.

    A Merge in a loop expects its Enters in iteration 0, its NextIterations later, and any other input in every
    iteration. Outside loops there is one iteration, and NextIteration passes its value on within it.
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
    node.stop = node.start + 2  # the value that arrived, and the index of its input
    node.blank = (None, None)
    frame.values.extend(node.blank)
