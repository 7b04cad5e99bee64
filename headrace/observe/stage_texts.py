"""Text of a step's graph after each stage: prune, recover, each pass, lower and partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import thresholds
from headrace.errors import GraphError, OpError
from headrace.ir.text.dumps import Dumps
from headrace.pipeline import blocked, optimized, pruned, recovered
from headrace.stages import Stages

if TYPE_CHECKING:
    from headrace.programs import Programs

_TITLES: Final = {"pruned": "prune", "recovered": "recover", "lowered": "lower"}


class _Texts(Dumps):
    """Dumps that keep the texts of graphs in place of files.

    Attributes:
      found: (stage, text) of each graph that differs from the one before.
      within: the stage whose passes are dumped now, as a prefix of their names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.within = ""
        self._left = thresholds.RECORDED_STAGES

    def __bool__(self) -> bool:
        return True

    def text(self, name: str, text: str) -> None:
        """Keeps `text` if it differs from the one before."""
        if self.found and self.found[-1][1] == text:
            return
        self._left -= len(text)
        if self._left >= 0:
            title = name.removesuffix(".txt")
            self.found.append((self.within + title if self.within else _TITLES.get(title, title), text))


def stage_texts(programs: Programs) -> list[dict[str, str]]:
    """Returns the stages of a step, as in the document of a recording.

    The optimizer runs again over a copy of the step. The later stages are those of the program with one node for each
    operation, which a run with a listener uses.

    Args:
      programs: the programs of the step.
    """
    texts = _Texts()
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
        texts.found.append((f"{stages.current} failed", f"# {type(e).__name__}: {e}"))
    texts.within = ""
    made = observed.stages
    if "lower" in made:
        texts.graph("lowered", made["lower"].graph)
        for function, ops in made["lower"].functions.items():
            if ops:
                texts.graph(f"lower {function}", ops[0].graph)
    for device, part in observed.parts.items():
        texts.graph(f"partition {device.rpartition('/device:')[2]}", part.graph)
    return [{"name": name, "text": text} for name, text in texts.found]
