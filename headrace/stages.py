"""Results of the stages of one step, kept by name, dumped and verified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace import flags, notices
from headrace.ir.text.dumps import Dumps
from headrace.lower import Lowered

if TYPE_CHECKING:
    from headrace.ir.graph import Graph

T = TypeVar("T")


class Stages:
    """Results of the stages of one step, by name, in order.

    Args:
      base: stages of another program of the same step. Results that depend neither on shapes nor on the engine are
        common to both, and computed once.

    Attributes:
      made: stage → its result.
      current: the stage that runs, or ran last.
      dumps: the dump files of the step (HEADRACE_DUMP).
    """

    def __init__(self, base: Stages | None = None) -> None:
        self.made: dict[str, Any] = {}
        self.current = ""
        self.dumps: Dumps = Dumps() if base is None else base.dumps
        self._common = self.made if base is None else base.made

    def run(self, name: str, stage: Callable[..., T], *args: Any) -> T:
        """Returns the result of a stage, which runs once."""
        kept = self._common if name in ("prune", "recover") else self.made
        if name not in kept:
            self.current = name
            with notices.timed(name):
                kept[name] = made = stage(*args)
            for title, graph in self._graphs(name, made):
                verified(graph)  # with the functions that it calls
                self.dumps.graph(title, graph)
            for function, ops in made.functions.items() if isinstance(made, Lowered) else ():
                self.dumps.graph(f"lowered-{function}", ops[0].graph)
        self.made[name] = kept[name]
        return cast(T, kept[name])

    def refuse(self, reasons: Sequence[str]) -> None:
        """Dumps the reasons against running the step as one Python function."""
        lines = (line for reason in reasons for line in reason.splitlines())
        self.dumps.text("not-compiled.txt", "".join(f"# {line}\n" for line in lines))

    def _graphs(self, name: str, made: Any) -> Iterable[tuple[str, Graph]]:
        """Graphs in the result of a stage, each with a title for its dump."""
        if name == "prune":
            yield "pruned", made.graph
        elif name == "recover" and made[0] is not self.made["prune"]:
            yield "recovered", made[0].graph
        elif name == "collectives" and made is not self.made["optimize"][0]:
            yield "collectives", made.graph
        elif name == "lower":
            if made.graph not in [self.made[k][0].graph for k in ("recover", "optimize") if k in self.made]:
                yield "lowered", made.graph
        elif name == "partition":
            for device, part in made.items():
                yield f"part-{device.rpartition('/device:')[2].replace(':', '-')}", part.graph


def verified(graph: Graph) -> None:
    """Verifies the graph between two stages (HEADRACE_VERIFY)."""
    if flags.VERIFY.value >= 1:
        from headrace.ir.verify import verify  # a slow import: it loads the wire format

        verify(graph)
