"""A step's graph after each stage: prune, recover, each pass, lower and partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import thresholds
from headrace.errors import GraphError, OpError
from headrace.grad.differentiate import differentiate
from headrace.inspect.program_document import Piece, ProgramDocument, pieces_of
from headrace.ir.text import to_text
from headrace.ir.text.dumps import Dumps
from headrace.lower import lower
from headrace.observe.stage_graphs import NO_GRAPH, StageGraphs
from headrace.pipeline import blocked, optimized, pruned, recovered
from headrace.stages import Stages

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation
    from headrace.programs import Programs

_TITLES: Final = {"pruned": "prune", "recovered": "recover", "lowered": "lower"}


class _Texts(Dumps):
    """Dumps that keep the texts of graphs in place of files.

    Args:
      graphs: receives the graphs.

    Attributes:
      found: the stages whose text differs from the one before, as in the document of a recording.
      within: the stage whose passes are dumped now, as a prefix of their names.
    """

    def __init__(self, graphs: StageGraphs) -> None:
        super().__init__()
        self._graphs = graphs
        self.found: list[dict[str, Any]] = []
        self.within = ""
        self._left = thresholds.RECORDED_STAGES

    def __bool__(self) -> bool:
        return True

    def graph(self, stage: str, graph: Graph) -> None:
        """Keeps a graph, lowered for its drawing, as `keep` does."""
        self.keep(stage, graph, lambda: _lowered(graph))

    def keep(self, stage: str, graph: Graph, pieces: Callable[[], Sequence[Piece]]) -> None:
        """Keeps the text of a graph if it is new, and draws `pieces`."""
        before = len(self.found)
        self.text(stage, to_text(graph))
        if len(self.found) > before:
            try:
                self.found[-1]["graph"] = self._graphs.add(pieces())
            except (GraphError, OpError):  # an intermediate graph may have no primitive form; its text is there
                self.found[-1]["graph"] = NO_GRAPH

    def text(self, name: str, text: str) -> None:
        """Keeps `text` if it differs from the one before."""
        if self.found and self.found[-1]["text"] == text:
            return
        self._left -= len(text)
        if self._left >= 0:
            title = name.removesuffix(".txt")
            title = self.within + title if self.within else _TITLES.get(title, title)
            self.found.append({"name": title, "text": text, "graph": NO_GRAPH})


def _lowered(graph: Graph) -> list[Piece]:
    """The primitive form of a graph: all stages are drawn in one form."""
    made = lower(graph, [op for op in graph.operations if not op.opdef.facts.graph_end], differentiate)
    return _with_requests(made.ops, made.functions.items())


def _with_requests(ops: Sequence[Operation], functions: Iterable[tuple[str, Sequence[Operation]]]) -> list[Piece]:
    return [Piece(ops, None), *(Piece(body, None, name) for name, body in functions)]


def stage_texts(programs: Programs, program: ProgramDocument) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns the stages of a step and their graphs, as a recording has them.

    The optimizer runs again over a copy of the step. The later stages are those of the program with one node for each
    operation, which a run with a listener uses.

    Args:
      programs: the programs of the step.
      program: the document of the recorded program.
    """
    graphs = StageGraphs(program)
    texts = _Texts(graphs)
    observed, environment, request = programs.observed, programs.environment, programs.request
    stages = Stages()
    stages.dumps = texts
    try:
        step = stages.run("prune", pruned, request, environment)
        if request.engine != "interpret":
            step, refused = stages.run("recover", recovered, step)
            if not refused and not request.fed_constants():
                is_lowered = bool(blocked(request, step)) or not environment.is_single
                texts.within = "optimize: "
                stages.run("optimize", optimized, request, environment, step, is_lowered, texts)
    except (GraphError, OpError) as e:  # a correct step runs without these stages, see `compile.fallback`
        failed = {"name": f"{stages.current} failed", "text": f"# {type(e).__name__}: {e}", "graph": NO_GRAPH}
        texts.found.append(failed)
    texts.within = ""
    made = observed.stages
    if "lower" in made:
        lowered = made["lower"]

        def whole() -> list[Piece]:
            return _with_requests(lowered.ops, lowered.functions.items())

        texts.keep("lowered", lowered.graph, whole)
        for function, ops in lowered.functions.items():
            if ops:
                texts.keep(f"lower {function}", ops[0].graph, whole)
    parts = {device: (part.ops, part.called) for device, part in observed.parts.items()}
    for device, part in observed.parts.items():  # each drawing has the parts of all devices
        texts.keep(f"partition {device.rpartition('/device:')[2]}", part.graph, lambda: pieces_of(parts))
    return texts.found, graphs.document()
