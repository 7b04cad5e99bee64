"""Diagnosis of a failure in a running step, as data.

A `Diagnosis` consists of names, numbers and texts, and refers to no object of a graph or of a run. So it can be sent to
another process (`plain_data`). The notes of an exception are its text.
"""

from __future__ import annotations

from typing import Final

from headrace.records import record

FIRED: Final = "fired"
FAILED: Final = "failed"
WAITED: Final = "waited for"
READY: Final = "was ready"


@record(frozen=True, slots=True)
class OpRef:
    """Operation that an error names.

    Attributes:
      name: its name; "" if it ran outside a graph.
      type: its op type.
      source: the user's line that created or ran it, as text; "" if unknown.

    Example:
      >>> str(OpRef("sum", "AddV2", "program.py:3 in body"))
      "'sum' (AddV2), made at program.py:3 in body"
      >>> str(OpRef("", "AddV2", "program.py:3"))
      'AddV2, run at program.py:3'
    """

    name: str
    type: str
    source: str = ""

    def __str__(self) -> str:
        if not self.name:
            return f"{self.type}, run at {self.source}" if self.source else self.type
        made = f", made at {self.source}" if self.source else ""
        return f"'{self.name}' ({self.type}){made}"


@record(frozen=True, slots=True)
class Input:
    """Input of an operation that failed.

    Attributes:
      name: its name in the user's graph; "" outside a graph.
      value: the value, abbreviated.
    """

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.name else self.value


@record(frozen=True, slots=True)
class Event:
    """Event of a step near its failure.

    Attributes:
      kind: `FIRED`, `FAILED`, `WAITED` (started, not completed) or `READY` (not yet started).
      op: the operation.
      where: the loops and calls around it, abbreviated; "" outside of all.
    """

    kind: str
    op: OpRef
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.op}" + (f", in {self.where}" if self.where else "")


@record(frozen=True, slots=True)
class Link:
    """Operation in the chain of values that led to a failure.

    Attributes:
      op: the operation.
      value: the value that it made, abbreviated, or the kind of source that it is ("fed", "a constant").
      where: the loops and calls around it with their iterations, innermost first; "" outside of all.
    """

    op: OpRef
    value: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.op}" + (f", in {self.where}" if self.where else "") + f": {self.value}"


@record(frozen=True, slots=True)
class Diagnosis:
    """Place and circumstances of a failure.

    Attributes:
      op: the operation that failed; None if the step itself did (a deadline).
      where: the loops and calls around it with their iterations, innermost first; "" outside of all.
      inputs: its inputs; () if they are not known.
      running: the iteration of the loop that ran at the deadline, and the line of the loop; "" if none did.
      story: events before and after the failure; () for compiled code, where the order of the operations is fixed.
      chain: operations whose values led to the failure, the nearest first; () except for a NaN or Inf.

    Example:
      >>> at = Diagnosis(OpRef("div", "FloorDiv"), "iteration 3 of loop 'a'", (Input("x:0", "int32[] = 0"),))
      >>> at.notes()
      ["operation 'div' (FloorDiv), in iteration 3 of loop 'a'", 'inputs: x:0: int32[] = 0']
    """

    op: OpRef | None
    where: str = ""
    inputs: tuple[Input, ...] = ()
    running: str = ""
    story: tuple[Event, ...] = ()
    chain: tuple[Link, ...] = ()

    def notes(self) -> list[str]:
        """Notes that describe the failure to the user."""
        out = []
        if self.op is not None:
            out.append(f"operation {self.op}" + (f", in {self.where}" if self.where else ""))
        if self.inputs:
            out.append(f"inputs: {', '.join(map(str, self.inputs))}")
        if self.running:
            out.append(f"it was in {self.running}. Does the condition of the loop become false?")
        if self.chain:
            out.append("\n".join(["the values came from, the nearest first:", *(f"  {x}" for x in self.chain)]))
        # if all events are outside of loops and none waits, the graph itself shows what led to the failure
        if len(self.story) > 1 and any(e.where or e.kind == WAITED for e in self.story):
            out.append("\n".join(["the last events of the step:", *(f"  {e}" for e in self.story)]))
        return out
