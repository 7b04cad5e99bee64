"""Control loops: small loops that open a loop's iterations on each further device.

**The problem.** Let the loop `while i < n: i = i + 1; s = s + f(i)` be on device A, except for `f`, which is on B. The
edges from A to B and back are cut: A sends i, B receives it, computes f and sends the result. But B's part then has no
loop: it has no Merge and no NextIteration, only `Recv -> f -> Send`. B's token machine would run this once. It must run
once for each iteration on A, and only A knows the number of iterations.

**The control loop.** So B's part gets a loop that computes nothing, with the `frame_name` of the loop to which it
belongs:

    start ─► CEnter ─► CMerge ─► CSwitch ─ true ─► CNext ─┐        pred = Recv(LoopCond)
                        ▲ │        ▲                      │
                        │ │        pred                   │
                        │ └─ ^ ─► every Recv of the loop  │
                        └─────────────────────────────────┘

The value of its loop variable is never read. Its predicate is A's: the output of the LoopCond in iteration k is sent to
B in iteration k. While the predicate is true, B opens the next iteration, as A does. `CMerge` fires once in each
iteration. So a control edge from it brings each Recv into the frame and starts it once in each iteration. The token
machine does the rest: B's tokens have B's tags, which are equal to A's, and the Send and the Recv of one edge and one
tag meet.

**The rules** in full. D(F) is the set of devices with an operation that fires in frame F or in a frame inside it.

1. If D(F) has more than one device, *each* device in it gets a control loop of F. This includes the home of F, which is
   the device of the LoopCond. If D(F) has one device, no control loop is needed.
2. pred is the LoopCond on the home, and a Recv of it on other devices.
3. `start` is a constant if F is directly in the root frame. Else it is the CMerge, on the same device, of the frame
   around F. (This CMerge exists: D of the frame around F contains D(F), so it has more than one device.)
4. Each Recv in F, that of the predicate included, has a control edge from CMerge, and from no operation that depends on
   the predicate. (From CSwitch's true side, the Recv of the predicate would wait for itself. And a Recv that the loop's
   condition needs must also start in the last iteration, in which the predicate is false.)
5. All control loops of F, and so all pieces of it, have the same `parallel_iterations`.

**The proof.** The claim is: a device in D(F) opens exactly the iterations of F that the whole loop has, in each
instance of F (an inner loop has an instance for each iteration of the outer one); and every Send with a tag has a Recv
with this tag, and every Recv a Send.

*CMerge is always alive.* In iteration 0 its token comes from CEnter, in later ones from CNext. CNext passes live tokens
only (a dead one stops there). `start` is alive: a constant is alive, and a CMerge of the frame around F is alive by the
same argument for that frame. So in each iteration that a device opens, CMerge fires alive, and each Recv starts.

*Iteration 0.* By induction from the outermost frame inwards, let all devices open the same iterations of the frame
around F. (The root frame has one iteration, on every device.) In each of them CEnter fires, alive, on each device of
D(F), and opens an instance of F with iteration 0. The instance is opened even if the operations of F are dead there,
because the whole loop is in a branch that is not taken; therefore the home needs a control loop too.

*Iteration n + 1.* Let all devices in D(F) have opened iteration n. In an open iteration each operation fires exactly
once, dead or alive (the invariant in `execute/frames`), the LoopCond too. Its token, with its deadness, reaches the
other devices: the Send fires once, dead or alive, and so does the Recv. Therefore CSwitch has the same predicate on all
devices. CNext opens iteration n + 1 on all of them if the predicate is true, and on none if it is false or dead. The
Merges of the loop itself receive tokens of iteration n + 1 in the same case only.

*Sends and Recvs.* The Send and the Recv of an edge are both in the frame of the tensor that crosses. By the above,
their two devices open the same iterations of it, and in each iteration each of the two fires once. So they pair one to
one, and no token is left over when the step is done.

*No deadlock.* A Recv in iteration n waits for CMerge. CMerge waits for the predicate of iteration n - 1 and for room in
the window, that is, for the end of earlier iterations. The Recv also waits for its Send, which waits for other
operations of iteration n or of an earlier one. Without the edges to a later iteration, the whole graph, with an edge
from each Send to its Recv, has no cycle: it had none before it was cut, and a CMerge depends only on CMerges of outer
loops. So in the order (iteration, place in the graph) there is always a first operation that can proceed.

The cases, for a loop with home A and a piece on B:

* *Zero trips.* Iteration 0 opens on both devices. A's LoopCond is false, and B receives false. Both CSwitches are dead
  on the true side, CNext stops the dead token, and there is no iteration 1. B's Recv of i gets a dead token (the body's
  Switch was not taken), f fires dead, its Send ships a dead token, and A's Recv receives it. All operations have fired
  once, so both devices free iteration 0 and the frame.
* *One trip.* In iteration 0 the body runs and all its tokens are alive. The predicate is true, both devices open
  iteration 1, and this iteration proceeds as in the case above.
* *Many trips.* The same for each iteration. A need not wait for B: if `f` is slow, A may be ahead by as many iterations
  as `parallel_iterations` allows. B's window has the same size and lags behind.
* *Nested loops.* In each iteration of the outer loop, each device's inner CEnter gets a token from the outer CMerge and
  opens a new instance of the inner loop. This includes the last iteration of the outer loop, in which the body is dead.
  There the inner predicate is dead, and the instance ends after its iteration 0.
* *Dead loop.* The loop is in a branch that is not taken. Its Enters, Merges and LoopCond are dead, once. B gets a dead
  predicate. A Switch with a dead predicate is dead on both sides, so neither device opens iteration 1. When the frame
  is done, dead Exits pass deadness to the graph outside.

Source: the control-loop state machines of "Dynamic Control Flow in Large-Scale Machine Learning" (Yu et al., EuroSys
2018, section 4.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HeadraceInternalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation, Tensor
    from headrace.partition.copies import Where
    from headrace.partition.site import Site


def devices_of_frames(tree: FrameTree, where: Where) -> dict[Frame, tuple[str, ...]]:
    """D(F) for each loop F on several devices, outer loops before inner ones.

    Sends and Recvs need no attention. A tensor that crosses in F is computed by an operation that fires in F (or is the
    Exit of a loop in F), and is read by one that fires in F. So both devices have an operation of F already.
    """
    found: dict[Frame, dict[str, None]] = {frame: {} for frame in tree.frames}
    for frame in reversed(tree.frames):  # children first
        for op in frame.ops:
            found[frame].update(dict.fromkeys(where[op]))
        if frame.parent is not None:
            found[frame.parent].update(found[frame])
    return {f: tuple(found[f]) for f in tree.frames if f.parent is not None and len(found[f]) > 1}


class ControlLoops:
    """Control loops of a graph that is being cut, open until `close`.

    Args:
      sites: the parts.
      spread: the devices of each loop on several devices.
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
        """CMerge, which brings a Recv into `frame` on `device`; None in the root frame."""
        if frame.parent is None:
            return None
        merge = self._merges.get((frame, device))
        if merge is None:
            raise HeadraceInternalError(f"{device} receives in the loop '{frame.name}', which has no iterations there")
        return merge.op

    def predicates(self) -> list[tuple[Tensor, str]]:
        """Predicates of the control loops: for each its LoopCond's output, and its device."""
        return [(_pred(frame), device) for frame, device in self._merges]

    def close(self, predicates: Sequence[Tensor]) -> None:
        """Completes the loops.

        Args:
          predicates: the counterparts, in the parts, of `predicates()`.
        """
        for ((frame, device), merge), mine in zip(self._merges.items(), predicates, strict=True):
            pred = _pred(frame)
            site = self._sites[device]
            b = site.builder(pred.op.source)
            _, go = b.Switch(merge, mine, name=f"{pred.op.name}/control/Switch")
            back = b.NextIteration(go, name=f"{pred.op.name}/control/NextIteration")
            site.graph.set_back_edge(merge.op, 1, back)

    def _open(self, frame: Frame, site: Site) -> Tensor:
        assert frame.parent is not None  # the root is not a loop
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
