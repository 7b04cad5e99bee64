"""Rules of token propagation: readiness, frames, iterations and deadness of nodes.

**The idea.** A graph runs by tokens. A node fires when a token has arrived on each of its inputs: it computes, and
sends a token along each of its output edges. By this rule alone every node fires once, so a graph could have no loops.
Loops become possible by *tagging* tokens. A tag says where a token belongs, for example to iteration 3 of the loop
`outer`, and inside it to iteration 0 of the loop `inner`. Tokens meet at a node only if their tags are equal. So
several iterations of a loop can be under way at the same time, in the same nodes, and their tokens never mix.

A loop has its own *frame*. `Enter` moves a token from a tag t to iteration 0 of a frame below t, `NextIteration` from
iteration n to n+1, and `Exit` back to t. `Switch` sends its data to one of two outputs, as a predicate decides, and a
*dead* token to the other one. A node that receives a dead token does not compute but passes deadness on, up to a
`Merge`, which takes the first live token of its inputs. So each node of a branch that is not taken still fires, dead,
and no node waits for it in vain.

**A worked loop**: `i = 0; while i < 2: i = i + 1`, five nodes in the frame F (Less and Add hold their constants):

    root  Enter(0) -> F/0
    F/0   Merge(0) -> Less(0)=True -> Switch(0, True): [1] 0 alive, [0] dead. Add(0)=1 -> NextIteration(1) -> F/1.
          Exit: dead.
    F/1   Merge(1) -> Less(1)=True -> Switch(1, True): [1] 1 alive, [0] dead. Add(1)=2 -> NextIteration(2) -> F/2.
          Exit: dead.
    F/2   Merge(2) -> Less(2)=False -> Switch(2, False): [1] dead, [0] 2 alive. Add: dead -> NextIteration: dead, stops.
          Exit(2) -> root.

**The rules** in full:

* *Any node* fires when all its tokens (data and control) have arrived: dead if one of them is dead, else it computes.
* *Switch*: alive, it sends its data to one output and a dead token to the other. Its outgoing control edges are alive.
* *Merge* fires at its first live input, or dead when all inputs are dead; then it consumes the remaining tokens. It
  waits for its control inputs and ignores their deadness. In iteration 0 of a loop it expects its Enters, later its
  NextIterations.
* *Enter* brings its token into iteration 0; a constant Enter into every iteration, open or future.
* *NextIteration*: a dead token stops here. At most `parallel_iterations` iterations of a frame are open. A token that
  would open one more is *held* until the oldest is freed.
* *Exit*: a dead token is withheld. When the frame is finished, each Exit that never fired alive sends one dead token.
  (If dead tokens were passed on at once, consumers would receive one for every iteration.)
* *ControlTrigger* is alive for any inputs.
* *_SwitchN* is a Switch with n outputs. It sends its data to the output that its index names, or to the last one if the
  index is out of range.
* *Send* ships its token to another device, dead or alive. *Recv* starts when its control inputs have arrived, dead or
  alive. It fires when its token arrives, which the Send of the same edge ships with the same tag, and is dead if the
  token is.
* *A call* (of a function that is not inlined because it is recursive): alive, it opens a frame of its own with one
  iteration, and supplies the parameters. The frame is below the call and the iteration in which the call fires. A
  result goes to the caller as soon as it arrives, dead or alive. When everything in the frame has fired, the call is
  done and alive: its outgoing control edges fire then.

**The invariant**: in every opened iteration of every frame instance each node fires exactly once, alive or dead. (An
Enter counts in the iteration of its input. A call has fired when its frame is done.) So the end of an iteration follows
from a count: it is over when as many nodes have fired as the frame has, and no child frame is open. Then it is freed,
oldest first. A frame is finished when its last iteration is and all its Enters have arrived. The step is finished when
the root's only iteration is. The proof of the partitioner relies on the same invariant, and the tests check it after
every run.

**Limits of this module.** It starts no thread, runs no kernel and reads no value; even for a predicate, the executor
says which output of the Switch was taken. It is passive: `start()` makes the first nodes ready, and for each ready
entry `(node, iteration, x)` the driver calls the method for the node's kind, in any order. Sources: TensorFlow's
executor (PropagatorState) for the rules; Arvind and Culler's tagged-token architecture for the idea.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceInternalError, InternalError
from headrace.execute.plan import (
    CONTROL_MASK,
    CONTROL_UNIT,
    COUNT_MASK,
    DEAD_TOKEN,
    ENTER,
    EXIT,
    FIRED,
    HAS_LIVE,
    MERGE,
    RESULT,
    RETVAL,
    TRIGGER,
)
from headrace.execute.records import Frame, Iteration

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.execute.plan import FramePlan, Out, Plan, PlanNode
    from headrace.execute.records import Origin, Ready


class Propagator:
    """State of one running step: the tokens that have arrived. The module describes the rules.

    Args:
      plan: the plan of the step.
      ready: the queue that receives an entry `(node, iteration, x)` for each node that becomes ready.
      watch: called as `watch(event, frame, iteration)` with event "open" or "free" for each iteration; None: not
        called.

    Attributes:
      plan: the plan of the step.
      ready: the queue of ready entries.
      watch: the function that is called for each iteration, or None.
      root: the only iteration of the root frame.
      finished: whether every node has fired.
    """

    __slots__ = ("_calls", "_push", "finished", "plan", "ready", "root", "watch")

    def __init__(self, plan: Plan, ready: Ready, watch: Callable[[str, Frame, Iteration], None] | None = None) -> None:
        self.plan = plan
        self.ready = ready
        self._push = ready.append
        self.watch = watch
        self.finished = False
        self._calls = 0  # calls opened so far
        self.root = self._open_root(plan.frames[0])

    def _open_root(self, plan: FramePlan) -> Iteration:
        return self._open_first(Frame(plan, None))

    def start(self) -> None:
        """Makes the nodes without pending tokens ready. Feeds arrive by `done` on the plan's `args`."""
        root, push = self.root, self._push
        for node, x in root.frame.plan.sources:
            push((node, root, x))
        if not root.left and not self.finished:
            self._settle(root.frame)

    # *** the interface of the driver: one method for each way in which a node fires ***

    def done(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Sends the value of `node`, which has one output."""
        push = self._push
        for dst in node.direct:
            push((dst, it, value))
        if node.joins:
            values, pending = it.values, it.pending
            for slot, i, dst in node.joins:
                values[slot] = value
                p = pending[i] - 1
                pending[i] = p
                if not p:
                    a = dst.start
                    if dst.arity == 1:
                        push((dst, it, values[a]))
                        values[a] = None
                    else:
                        push((dst, it, values[a : dst.stop]))
                        values[a : dst.stop] = dst.blank
                elif not p & COUNT_MASK:
                    self._join_dead(dst, it)
        for dst, k in node.merges:
            self._to_merge(dst, it, k, value)
        if node.more:
            self._send_controls(node, it)
        left = it.left - 1
        it.left = left
        if not left:
            self._settle(it.frame)

    def done_many(self, node: PlanNode, it: Iteration, values: Sequence[Any]) -> None:
        """Sends the values of `node`, which has no output or several."""
        for out, value in zip(node.outs, values, strict=True):
            self._send(out, it, value)
        self._fired(node, it)

    def switch(self, node: PlanNode, it: Iteration, data: Any, taken: bool) -> None:
        """Sends `data` to output `taken` of the Switch `node`, deadness to the other."""
        push = self._push
        live = node.outs[taken]
        for dst in live.direct:
            push((dst, it, data))
        if live.joins or live.merges:
            self._send(live, it, data, direct=False)
        dead = node.outs[not taken]
        if dead.used:
            self._send_dead(dead, it, (node, it, taken))
        if node.more:
            self._send_all_controls(node, it)
        left = it.left - 1
        it.left = left
        if not left:
            self._settle(it.frame)

    def switch_n(self, node: PlanNode, it: Iteration, data: Any, index: int) -> None:
        """Sends `data` to output `index` (by default the last) of the _SwitchN `node`."""
        taken = index if 0 <= index < node.n_outputs else node.n_outputs - 1
        for k, out in enumerate(node.outs):
            if k == taken:
                self._send(out, it, data)
            elif out.used:
                self._send_dead(out, it, (node, it, index))
        self._fired(node, it)

    def merge(self, node: PlanNode, it: Iteration, value: Any, index: Any) -> None:
        """Passes on `value`, which arrived at the input of the Merge `node` that `index` names."""
        push = self._push
        for dst in node.direct:
            push((dst, it, value))
        if node.joins or node.merges:
            self._send(node.outs[0], it, value, direct=False)
        if node.more:
            self._send(node.outs[1], it, index)
            self._send_controls(node, it)
        left = it.left - 1
        it.left = left
        if not left:
            self._settle(it.frame)

    def absorbed(self, it: Iteration) -> None:
        """Counts the firing of a node that sends no tokens (a fetch)."""
        left = it.left - 1
        it.left = left
        if not left:
            self._settle(it.frame)

    def next_iteration(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Sends `value` from the NextIteration `node` to the iteration after `it`."""
        nxt = it.next
        if nxt is None:
            frame = it.frame
            if frame.plan.parent is None:
                nxt = it  # outside a loop there is no next iteration
            elif frame.open < frame.plan.limit:
                nxt = self._open_next(frame)
        if nxt is None:
            frame.next_iteration_roots.append((node, value))
        else:
            push = self._push
            for dst in node.direct:
                push((dst, nxt, value))
            if node.joins or node.merges or node.more:
                self._send(node.outs[0], nxt, value, direct=False)
                self._send_controls(node, nxt)
        left = it.left - 1
        it.left = left
        if not left:
            self._settle(it.frame)

    def enter(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Brings `value` into the frame of the Enter `node`."""
        self._enter(node, it, value, None)

    def exit(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Brings `value` from the Exit `node` to the parent's iteration."""
        frame = it.frame
        if frame.parent is None or frame.plan.parent is None:
            raise HeadraceInternalError(f"Exit {node.op.name!r} fires outside any loop; the frame check let it pass")
        if node in frame.live_exits:
            raise InternalError(
                f"Exit '{node.op.name}' fired alive in more than one iteration of loop '{frame.plan.name}' "
                f"(the second time in iteration {it.index}); its input must be the false side of the loop's Switch",
                node.op.name,
                node.op,
            )
        frame.live_exits.add(node)
        self._send(node.outs[0], frame.parent, value)
        self._send_all_controls(node, frame.parent)
        it.left -= 1
        if not it.left:
            self._settle(frame)

    def call(self, node: PlanNode, it: Iteration, args: Sequence[Any]) -> None:
        """Opens a frame of the function that `node` calls, and supplies `args`."""
        assert node.child is not None
        self._calls += 1
        frame = Frame(node.child, it, node, it.frame.depth + 1, self._calls)
        it.frame.children[it.index, node] = frame
        first = self._open_first(frame)
        for param in node.child.params:
            self._send(param.outs[0], first, args[param.position])
            self._send_all_controls(param, first)
        for source, x in node.child.sources:
            self._push((source, first, x))
        first.left -= len(node.child.params)
        if not first.left:
            self._settle(frame)

    def result(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Sends `value`, the result `node` of a function, to the caller."""
        call, parent = it.frame.call, it.frame.parent
        assert call is not None
        assert parent is not None
        self._send(call.outs[node.position], parent, value)
        self._fired(node, it)

    def dead(self, twin: PlanNode, it: Iteration, origin: Origin) -> None:
        """Passes deadness on from a node with a dead input; `twin` is its dead twin."""
        node = twin.live
        if node.real == ENTER:
            self._enter(node, it, None, origin)
            return
        if node.real == RESULT:
            call, parent = it.frame.call, it.frame.parent
            assert call is not None
            assert parent is not None
            self._send_dead(call.outs[node.position], parent, origin)
        if node.stops_dead:
            if node.real == EXIT:
                it.frame.dead_exits[node] = origin
        else:
            for out in node.outs:
                self._send_dead(out, it, origin)
            if node.gates:
                self._dead_controls(node, it, origin)
        left = it.left - 1
        it.left = left
        if not left:
            self._settle(it.frame)

    # *** sending ***

    def _send(self, out: Out, it: Iteration, value: Any, direct: bool = True) -> None:
        """Sends live tokens along the data edges of one output."""
        push = self._push
        if direct:
            for dst in out.direct:
                push((dst, it, value))
        values, pending = it.values, it.pending
        for slot, i, dst in out.joins:
            values[slot] = value
            p = pending[i] - 1
            pending[i] = p
            if not p & COUNT_MASK:
                self._join(dst, it, p)
        for dst, k in out.merges:
            self._to_merge(dst, it, k, value)

    def _send_dead(self, out: Out, it: Iteration, origin: Origin, direct: bool = True) -> None:
        """Sends dead tokens along the data edges of one output."""
        if direct:
            for twin in out.dead_direct:
                self._push((twin, it, origin))
        for node in out.quiet:
            # a dead token stops at this node, so the firing is only counted; the caller is still in the count, so the
            # iteration cannot end here
            if node.real == EXIT:
                it.frame.dead_exits[node] = origin
            it.left -= 1
        for _, i, dst in out.joins:
            self._count_dead(dst, i, it, origin)
        for dst, _ in out.merges:
            self._dead_to_merge(dst, it, origin)

    def _fired(self, node: PlanNode, it: Iteration) -> None:
        """Sends the live control tokens of `node`, and counts its firing in iteration `it`."""
        self._send_all_controls(node, it)
        it.left -= 1
        if not it.left:
            self._settle(it.frame)

    def _send_all_controls(self, node: PlanNode, it: Iteration) -> None:
        for dst in node.control_direct:
            self._push((dst, it, ()))
        self._send_controls(node, it)

    def _send_controls(self, node: PlanNode, it: Iteration) -> None:
        pending = it.pending
        for i, dst in node.controls:
            p = pending[i] - 1
            pending[i] = p
            if not p & COUNT_MASK:
                self._join(dst, it, p)
        for dst in node.control_merges:
            self._control_to_merge(dst, it)

    def _dead_controls(self, node: PlanNode, it: Iteration, origin: Origin) -> None:
        # `outs` and not `direct`: the `direct` edges of a node with one output include control edges (see plan)
        for dst in node.control_direct:
            self._push((dst.dead, it, origin))
        for i, dst in node.controls:
            self._count_dead(dst, i, it, origin)
        for dst in node.control_merges:
            self._control_to_merge(dst, it)

    def _count_dead(self, dst: PlanNode, i: int, it: Iteration, origin: Origin) -> None:
        """Counts a dead token at the join `dst`."""
        p = it.pending[i] - 1
        if dst.kind != TRIGGER:
            p += DEAD_TOKEN
            it.frame.origins.setdefault((it.index, i), origin)
        it.pending[i] = p
        if not p & COUNT_MASK:
            self._join(dst, it, p)

    def _join(self, dst: PlanNode, it: Iteration, p: int) -> None:
        """Makes the join `dst` ready, all tokens of which have arrived; `p` is its count."""
        if p:
            self._join_dead(dst, it)
            return
        values, a = it.values, dst.start
        if dst.arity == 1:
            self._push((dst, it, values[a]))
            values[a] = None
        else:
            self._push((dst, it, values[a : dst.stop]))
            values[a : dst.stop] = dst.blank

    def _join_dead(self, dst: PlanNode, it: Iteration) -> None:
        it.values[dst.start : dst.stop] = dst.blank
        self._push((dst.dead, it, it.frame.origins.pop((it.index, dst.index))))

    # *** Merges with more than one token an iteration ***

    def _to_merge(self, dst: PlanNode, it: Iteration, k: int, value: Any) -> None:
        """Processes a live token at input `k` of a Merge: the first counts."""
        p = it.pending[dst.index] - 1
        if not p & (HAS_LIVE | FIRED):
            p |= HAS_LIVE
            if not p & CONTROL_MASK:
                p |= FIRED
                it.values[dst.start] = None  # the slot may hold an origin, which refers to this iteration
                self._push((dst, it, (value, k)))
            else:
                it.values[dst.start] = value
                it.values[dst.start + 1] = k
        it.pending[dst.index] = p

    def _dead_to_merge(self, dst: PlanNode, it: Iteration, origin: Origin) -> None:
        p = it.pending[dst.index] - 1
        it.pending[dst.index] = p
        if not p & (HAS_LIVE | FIRED):
            it.values[dst.start] = origin  # the slot is free until a live token arrives
            if not p & COUNT_MASK and not p & CONTROL_MASK:
                it.pending[dst.index] = p | FIRED
                self._push((dst.dead, it, origin))

    def _control_to_merge(self, dst: PlanNode, it: Iteration) -> None:
        """Counts a control token, dead or alive, at a Merge."""
        p = it.pending[dst.index] - CONTROL_UNIT
        if not p & (CONTROL_MASK | FIRED):
            if p & HAS_LIVE:
                p |= FIRED
                values, a = it.values, dst.start
                self._push((dst, it, (values[a], values[a + 1])))
                values[a] = values[a + 1] = None
            elif not p & COUNT_MASK:
                p |= FIRED
                self._push((dst.dead, it, it.values[dst.start]))
        it.pending[dst.index] = p

    # *** frames and iterations ***

    def _enter(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        assert node.child is not None
        key = (it.index, node.child)
        frame = it.frame.children.get(key)
        if frame is None:
            frame = Frame(node.child, it, None, it.frame.depth)
            self._open_first(frame)
            it.frame.children[key] = frame
            it.left += 1
        frame.enters_left -= 1
        if node.is_constant:
            self._keep_constant(frame, node, value, origin)
            to: Iteration | None = frame.oldest
            while to is not None:
                self._deliver(node, to, value, origin)
                to = to.next
        else:
            self._deliver(node, frame.oldest, value, origin)
        if not frame.enters_left and not frame.oldest.left:
            self._settle(frame)
        it.left -= 1
        if not it.left:
            self._settle(it.frame)

    def _keep_constant(self, frame: Frame, node: PlanNode, value: Any, origin: Origin | None) -> None:
        """Keeps a loop constant for the iterations that are opened later.

        If the constant only fills slots of joins that also wait for other tokens, it is written into the templates.
        Then it adds no cost to opening an iteration.
        """
        out = node.outs[0]
        simple = origin is None and not (out.direct or out.merges or node.control_direct or node.more)
        filled = [i for _, i, _ in out.joins]
        if not simple or any(frame.pending[i] <= filled.count(i) for i in filled):
            frame.constants.append((node, value, origin))
            return
        if frame.values is frame.plan.values:
            frame.values, frame.pending = frame.values[:], frame.pending[:]
        for slot, i, _ in out.joins:
            frame.values[slot] = value
            frame.pending[i] -= 1

    def _deliver(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Sends a token of an Enter or Exit in iteration `it` of another frame."""
        if origin is None:
            self._send(node.outs[0], it, value)
            self._send_all_controls(node, it)
        else:
            self._send_dead(node.outs[0], it, origin)
            self._dead_controls(node, it, origin)

    def _open_first(self, frame: Frame) -> Iteration:
        plan = frame.plan
        it = Iteration(frame, 0, plan.values[:], plan.first[:], plan.count)
        frame.oldest = frame.newest = it
        frame.open = 1
        if self.watch is not None:
            self.watch("open", frame, it)
        return it

    def _open_next(self, frame: Frame) -> Iteration:
        before = frame.newest
        it = Iteration(frame, before.index + 1, frame.values[:], frame.pending[:], frame.plan.count)
        before.next = frame.newest = it
        frame.open += 1
        if self.watch is not None:
            self.watch("open", frame, it)
        for node, value, origin in frame.constants:
            self._deliver(node, it, value, origin)
        return it

    def _settle(self, frame: Frame) -> None:
        """Frees the oldest finished iterations, and closes the frame after the last.

        A closed frame may finish the iteration around it, and so on outwards. This is a loop and not a recursion,
        because calls may be nested deeply.
        """
        it = frame.oldest
        while not it.left and not frame.enters_left:
            frame.open -= 1
            if self.watch is not None:
                self.watch("free", frame, it)
            if frame.next_iteration_roots and frame.open < frame.plan.limit:
                self._release(frame)
            if it.next is not None:
                it = frame.oldest = it.next
                continue
            parent = frame.parent
            if parent is None:
                self.finished = True
                return
            self._close(frame, parent)
            parent.left -= 1
            if parent.left:
                return
            frame = parent.frame
            it = frame.oldest

    def _release(self, frame: Frame) -> None:
        """Opens the iteration for which tokens are held, and sends them there."""
        roots, frame.next_iteration_roots = frame.next_iteration_roots, []
        it = self._open_next(frame)
        for node, value in roots:
            self._send(node.outs[0], it, value)
            self._send_all_controls(node, it)

    def _close(self, frame: Frame, parent: Iteration) -> None:
        """Closes a finished frame: sends its final tokens to the parent iteration."""
        call = frame.call
        if call is not None:
            self._send_all_controls(call, parent)
        else:
            for node in frame.plan.exits:
                if node not in frame.live_exits:
                    origin = frame.dead_exits.get(node) or (node, frame.oldest, False)
                    self._deliver(node, parent, None, origin)
        del parent.frame.children[parent.index, frame.plan if call is None else call]
        frame.values, frame.constants = frame.plan.values, []
        # they refer back to the frame; without them it is freed without the garbage collector
        del frame.oldest, frame.newest

    # *** when no node can fire ***

    def release(self) -> bool:
        """Ends an iteration that contains nodes that can never fire; False if there is none.

        The driver calls it when no node is ready or running. In a loop as `while_loop` builds it, every node fires in
        every iteration. Other graphs run too: one loop variable may be dead and another alive, so that the next
        iteration gets only some of its tokens; or a node has no input but an Enter, which has a token in iteration 0
        only. As in TensorFlow, such an iteration counts as done, and the nodes that did not fire in it count as dead.
        """
        frame = self.releasable()
        if frame is None:
            return False
        frame.oldest.left = 0
        self._settle(frame)
        return True

    def releasable(self) -> Frame | None:
        """Innermost frame whose oldest iteration `release` would end."""
        for frame in reversed(self.open_frames()):  # inner ones first
            if frame.plan.parent is not None and not frame.children and not frame.enters_left:
                return frame
        return None

    def open_frames(self) -> list[Frame]:
        """All open frame instances, including the root's; none once the step is finished."""
        out = [] if self.finished else [self.root.frame]
        for frame in out:
            out.extend(frame.children.values())
        return out

    @property
    def open_iterations(self) -> int:
        """Number of open iterations in all frames."""
        return sum(frame.open for frame in self.open_frames())

    def waiting(self) -> list[tuple[PlanNode, Iteration]]:
        """Returns the joins at which a stuck step waits, with their iterations."""
        out: list[tuple[PlanNode, Iteration]] = []
        for frame in self.open_frames():
            it: Iteration | None = frame.oldest if frame.parent is not None else self.root
            while it is not None:
                for node in frame.plan.nodes:
                    if node.index >= 0:
                        p = it.pending[node.index]
                        full = (frame.plan.later if it.index else frame.plan.first)[node.index]
                        unfired = not p & FIRED if node.real == MERGE else p & COUNT_MASK
                        if unfired and (p != full or node.kind == RETVAL):
                            out.append((node, it))
                it = it.next
        return out
