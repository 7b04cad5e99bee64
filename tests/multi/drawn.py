"""Random programs as graphs, with their results in plain Python."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final

import headrace as hr
from headrace.api import scopes
from tests.api import programs
from tests.api.test_random_programs import _draw, _program

PARALLEL: Final = (1, 2, 10)


@dataclasses.dataclass
class Drawn:
    """A random program.

    Attributes:
      graph: its graph.
      build: its feeds, variables and ends.
      python: the same program in plain Python, after its run.
      failure: the text of the assertion that failed there; None if none did.
      names: the names of its results.
      values: their tensors; a list is stacked.
      effects: its operations with effects; empty for a program without state.
    """

    graph: hr.Graph
    build: programs.Build
    python: programs.Python
    failure: str | None
    names: list[str]
    values: list[Any]
    effects: Sequence[Any]


def drawn(rng: random.Random, stateful: bool) -> Drawn:
    """Returns a random program."""
    block, start = _program(rng, stateful), programs.initial(rng)
    python = programs.Python(start, _draw)
    failure: str | None = None
    try:
        python.run(block)
    except programs.Failed as e:
        failure = str(e)
    with hr.Graph() as g:
        build = programs.Build(start, rng.choice(PARALLEL), python.took, stateful)
        before = set(g.operations)
        build.run(block)
        b = scopes.builder()
        values = [v.stack() if n in programs.LISTS else b.Identity(v) for n, v in build.values.items()]
        effects = [op for op in g.operations if op not in before and _has_effects(op)] if stateful else []
    return Drawn(g, build, python, failure, list(build.values), values, effects)


def _has_effects(op: Any) -> bool:
    return op.opdef.structured or op.type in ("Print", "Assert") or op.type.startswith(("Assign", "QueueEnqueueV2"))
