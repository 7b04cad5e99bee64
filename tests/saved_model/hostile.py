"""Tools of the tests with SavedModels that are made to harm."""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace import pb
from headrace.errors import GraphError, HeadraceInternalError, OpError
from headrace.interchange import saved_model

MOST_BYTES = 64 * 2**20
MOST_SECONDS = 20.0
ALLOWED = (OpError, GraphError, OSError)
OF_TENSORFLOW = (  # classes that TensorFlow has for these
    "RuntimeError: MetaGraphDef associated with tags",
    "ValueError: The passed save_path is not a valid checkpoint",
)

_opened: list[str] | None = None  # the paths that are opened, while a test looks


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(args[0], (str, bytes)):
        _opened.append(str(args[0]))


sys.addaudithook(_on_event)


def refusal_of(load: Callable[[Path], Any], folder: Path) -> str | None:
    """The error of a load, as its class and text; None if the model loads.

    Errors of other classes are not caught.
    No file outside of the folder is opened.
    """
    global _opened
    _opened = []
    try:
        load(folder)
    except (RuntimeError, ValueError, *ALLOWED) as e:
        text = f"{type(e).__name__}: {e}"
        if isinstance(e, HeadraceInternalError) or not (isinstance(e, ALLOWED) or text.startswith(OF_TENSORFLOW)):
            raise
    else:
        text = ""
    finally:
        paths, _opened = _opened, None
    places = f"{folder.parent}/", "/etc/", "/proc/"  # of this test, and of the paths in the models
    outside = [p for p in paths if p.startswith(places) and not p.startswith(f"{folder}/")]
    assert not outside, outside
    if not text:
        return None
    assert len(text) > len("GraphError: "), "an error without a text"
    assert len(text) < 20_000, "an error that repeats its input"
    return text


@contextmanager
def bounded() -> Iterator[None]:
    """Asserts that the block takes bounded time and memory."""
    tracemalloc.start()
    start = time.monotonic()
    try:
        yield
        assert time.monotonic() - start < MOST_SECONDS
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def change(folder: Path, edit: Callable[[pb.MetaGraphDef], object]) -> None:
    """Changes the graph of a SavedModel in place."""
    path = folder / saved_model.BINARY
    model = pb.SavedModel.FromString(path.read_bytes())
    edit(model.meta_graphs[0])
    path.write_bytes(model.SerializeToString())


def check_flipped_bits(
    folder: Path, names: Iterable[str], seed: int, tries: int, refusal: Callable[[Path], str | None]
) -> None:
    """Asserts that flipped bits are refused or, in the graph, without effect."""
    rng = random.Random(seed)
    with bounded():
        for name in names:
            data = (folder / name).read_bytes()
            for _ in range(tries):
                at = rng.randrange(len(data))
                damaged = bytearray(data)
                damaged[at] ^= 1 << rng.randrange(8)
                (folder / name).write_bytes(damaged)
                assert refusal(folder) or not name.startswith("variables"), (name, at)
            (folder / name).write_bytes(data)
