"""Loops that stand on several devices: each of them counts the iterations by a small loop of its own.

**The problem.** Let the loop `while i < n: i = i + 1; s = s + f(i)` stand on device A, except for `f`, which stands on
B. Edges that lead from A to B and back are cut: A sends i, B receives it, computes f and sends the result. In B's part
there is no loop left, though: no Merge, no NextIteration, only `Recv -> f -> Send`. B's machine would do this once. It
has to be done as often as A goes round, and only A knows how often that is.

**The control loop.** So B's part gets a loop that does nothing but go round, of the same name (`frame_name`) as the one
it belongs to:

    start ─► CEnter ─► CMerge ─► CSwitch ─ true ─► CNext ─┐        pred = Recv(LoopCond)
                        ▲ │        ▲                      │
                        │ │        pred                   │
                        │ └─ ^ ─► every Recv of the loop  │
                        └─────────────────────────────────┘

The value that goes round is of no interest. The predicate is A's: what the LoopCond puts out in iteration k is sent to
B in iteration k. While it is true B opens the next iteration, as A does. `CMerge` fires once in each iteration, and so
a control edge from it puts each Recv into the frame and starts it once an iteration. From then on the token machine
does all of it: B's tokens have B's tags, the tags are the same as A's, and Send and Recv of one edge and one tag find
each other.

**The rules**, exactly. D(F) is the set of devices with an operation that fires in frame F or in one inside it.

1. If D(F) has more than one device, *each* device in it gets a control loop of F, the one the LoopCond stands on (the
   home of F) as well. If it has one, no device gets one: the loop as it is does.
2. pred is the LoopCond at home, elsewhere a Recv of it.
3. `start` is a constant, if F lies in the root frame. Else it is the CMerge, on the same device, of the frame around
   F. (There is one: D of the frame around F has all that D(F) has, so it is more than one device.)
4. Each Recv in F, that of the predicate included, has a control edge from CMerge, and from nothing that depends on the
   predicate. (From CSwitch's true side, the Recv of the predicate would wait for itself. And a Recv that the loop's
   condition needs has to start in the last iteration too, the one in which the predicate is false.)
5. All control loops of F, and so all pieces of it, have one `parallel_iterations`.

**Why it is right.** What is to be shown: a device in D(F) opens exactly the iterations of F that the whole loop has, it
does so in each instance of F (an inner loop has an instance for each iteration of the outer one), and every Send of a
tag has its Recv, and every Recv its Send.

*CMerge is always alive.* In iteration 0 it has what CEnter brings, in later ones what CNext brings. CNext brings live
tokens only (a dead one stops there); and `start` is alive: a constant is, and a CMerge of the frame around F is, by the
same argument one frame further out. So in each iteration that a device opens CMerge fires alive, and each Recv starts.

*Iteration 0.* By induction from the outermost frame inwards, let all devices open the same iterations of the frame
around F (of the root frame there is one, and all have it). In each of them CEnter fires, alive, on each device of D(F)
and opens an instance of F with iteration 0. If the operations of F are dead there, because the whole loop stands in a
branch that is not taken, it is opened all the same; that is why the home has a control loop too.

*Iteration n + 1.* Let all devices in D(F) have opened iteration n. In an open iteration each operation fires exactly
once, dead or alive (the invariant in `execute/frames`), the LoopCond too. Its token, with deadness and all, reaches
the other devices: the Send fires once, dead or alive, and so does the Recv. Therefore CSwitch has the same predicate
on all devices, and CNext opens iteration n + 1 on all of them or on none: on all if it is true, on none if it is false
or dead. The Merges of the loop itself get tokens of iteration n + 1 in the same case only.

*Sends and Recvs.* Both stand in the frame of the tensor that crosses, one on either side. By the above the two devices
open the same iterations of it, and in each of them the one fires once and the other once. So they pair one to one, and
when the step is done no token is left over.

*Nobody waits for ever.* A Recv in iteration n waits for CMerge, which waits for the predicate of iteration n - 1 and
for room in the window, that is, for the end of iterations before n; and it waits for its Send, which waits for other
operations of iteration n or of one before. Leave out the edges that lead to a later iteration and the whole graph,
with an edge from each Send to its Recv, has no cycle: it had none before it was cut, and a CMerge only precedes. So
there is always a first one in the order (iteration, place in the graph) that can go on.

The cases, for a loop with home A and a piece on B:

* *Zero trips.* Iteration 0 opens on both. A's LoopCond is false, B receives false: both CSwitches are dead on the true
  side, CNext stops it, no iteration 1. B's Recv of i gets a dead token (the body's Switch was not taken), f fires
  dead, its Send ships a dead token, A's Recv gets it. All have fired once: both free iteration 0 and the frame.
* *One trip.* Iteration 0 as in a body that is run: all alive. The predicate is true, both open iteration 1, and in that
  everything goes as in the case before.
* *Many.* The same again and again. A need not wait for B: if `f` is slow, A may be ahead by as many iterations as
  `parallel_iterations` says. B has the same window and is behind.
* *Nested.* In each iteration of the outer loop each device's inner CEnter gets a token from the outer CMerge and opens
  a new instance of the inner loop. In the last iteration of the outer loop too, where the body is dead: then the inner
  predicate is dead, and the instance is over after its iteration 0.
* *Dead.* The loop stands in a branch that is not taken. Its Enters, Merges and LoopCond are dead, once. B gets a dead
  predicate; a Switch with a dead predicate is dead on both sides; no iteration 1 on either. Dead Exits tell the graph
  outside when the frame is done.

Source: the control-loop state machines of "Dynamic Control Flow in Large-Scale Machine Learning" (Yu et al., EuroSys
2018, section 4.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HeadraceInternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation, Tensor
    from headrace.partition.copies import Where
    from headrace.partition.site import Site


def devices_of_frames(tree: FrameTree, where: Where) -> dict[Frame, tuple[str, ...]]:
    """D(F) for each loop F that stands on several devices, the loops around others first.

    Sends and Recvs need not be looked at: what crosses in F is made by an operation that fires in F (or is the Exit of
    a loop in it) and read by one that fires in F; so both devices have one of F already.
    """
    found: dict[Frame, dict[str, None]] = {frame: {} for frame in tree.frames}
    for frame in reversed(tree.frames):  # children first
        for op in frame.ops:
            found[frame].update(dict.fromkeys(where[op]))
        if frame.parent is not None:
            found[frame.parent].update(found[frame])
    return {f: tuple(found[f]) for f in tree.frames if f.parent is not None and len(found[f]) > 1}


class ControlLoops:
    """The control loops of a graph that is being cut. Made open; `close` gives them their predicates.

    Args:
      sites: the parts.
      spread: the devices of each loop that stands on several.
    """

    def __init__(self, sites: Mapping[str, Site], spread: Mapping[Frame, tuple[str, ...]]) -> None:
        self._sites = sites
        self._spread = spread
        self._merges: dict[tuple[Frame, str], Tensor] = {}
        self._starts: dict[str, Tensor] = {}
        for frame, devices in spread.items():
            for device in devices:
                self._merges[frame, device] = self._open(frame, sites[device])

    def gate(self, frame: Frame, device: str) -> Operation | None:
        """What a Recv in `frame` on `device` waits for to be in the frame: CMerge. None in the root frame."""
        if frame.parent is None:
            return None
        merge = self._merges.get((frame, device))
        if merge is None:
            raise HeadraceInternalError(f"{device} receives in the loop '{frame.name}', which it is said not to be in")
        return merge.op

    def predicates(self) -> list[tuple[Tensor, str]]:
        """What the control loops read: for each its LoopCond's output, and its device."""
        return [(_pred(frame), device) for frame, device in self._merges]

    def close(self, tensor: Callable[[Tensor, Site], Tensor]) -> None:
        """Completes the loops. `tensor` gives a tensor of the whole graph as a part has it."""
        for (frame, device), merge in self._merges.items():
            pred = _pred(frame)
            site = self._sites[device]
            b = site.builder(pred.op.source)
            _, go = b.Switch(merge, tensor(pred, site), name=f"{pred.op.name}/control/Switch")
            back = b.NextIteration(go, name=f"{pred.op.name}/control/NextIteration")
            site.graph.set_back_edge(merge.op, 1, back)

    def _open(self, frame: Frame, site: Site) -> Tensor:
        assert frame.parent is not None  # the root is no loop
        op = _pred(frame).op
        if frame.parent.parent is None:
            start = self._starts.get(site.device)
            if start is None:
                start = self._starts[site.device] = site.builder(op.source).const(False, name="control/start")
        else:
            start = self._merges[frame.parent, site.device]
        b = site.builder(op.source)
        enter = b.Enter(
            start,
            frame_name=frame.name,
            parallel_iterations=frame.parallel_iterations,
            name=f"{op.name}/control/Enter",
        )
        merge: Tensor = b.Merge([enter, enter], name=f"{op.name}/control/Merge")[0]
        return merge


def _pred(frame: Frame) -> Tensor:
    assert frame.loop_cond is not None  # `check.loop_conds`
    return frame.loop_cond.outputs[0]
