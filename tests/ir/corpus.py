"""The graphs of the conformance corpus, for tests of the graph layer."""

from __future__ import annotations

import functools
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

from headrace.ir.opdef import op_registry

ROOT = Path(__file__).parents[1] / "data" / "corpus"


@functools.cache
def index() -> dict[str, dict]:
    """Program id → its entry of the corpus' index."""
    return {p["id"]: p for p in json.loads((ROOT / "index.json").read_text())["programs"]}


def graph_bytes(program: str) -> bytes:
    """The serialized `GraphDef` of a program."""
    module, _, number = program.partition("/")
    with zipfile.ZipFile(ROOT / "modules" / f"{module}.zip") as z:
        return z.read(f"{number}/graph.pb")


def programs(sample: int | None = None, seed: int = 0) -> Iterator[str]:
    """Ids of programs that import without an error, all or some.

    The programs use registered ops of supported dtypes only.
    """
    ids = [
        i for i, p in sorted(index().items()) if "import_error" not in p["tags"] and set(p["ops"]) <= set(op_registry)
    ]
    if sample is not None:
        random.Random(seed).shuffle(ids)
        ids = ids[:sample]
    return iter(ids)
