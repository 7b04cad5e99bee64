"""Writes checkpoints in processes that are killed on the way, and checks the result.

`python -m tests.files.killing FOLDER FORMAT WAY SEED ROUNDS`. A child writes checkpoints of steps 0, 1, 2, ... under
one name and reports each that is done. WAY says when it ends: "calls" before and after each of the system calls that
make a file last, one child for each of them; "times" at ROUNDS moments that SEED decides. Then the checkpoint must be
whole: that of the last step that the child reported, or of the next. Prints the number of children that were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.files import checkpoints
from headrace.files.manifest import ManifestEntry

FIRST = "tensorflow-v1"
LASTING = ("open", "fsync", "replace", "unlink", "rmdir", "mkdir")


def tensors(step: int, size: int) -> list[ManifestEntry]:
    words = np.empty(3, object)
    words[:] = [b"%d" % step, b"", b"x" * (step % 7)]
    return [
        ManifestEntry.of("step", np.int64(step)),
        ManifestEntry.of("w", np.full(size, step, np.float32)),
        ManifestEntry.of("words", words, dtypes.string),
        ManifestEntry.of("p", np.full((2, 3), step), None, "4 3 0,2:-"),
        ManifestEntry.of("p", np.full((2, 3), step), None, "4 3 2,2:-"),
    ]


def write(prefix: str, step: int, size: int, format: str) -> None:
    """Writes the checkpoint of a step, in turn from one process and from two parts.

    The parts are merged, as savers merge those of several devices.
    """
    if step % 2 == 0 or format == FIRST:  # parts of the first format are not merged
        checkpoints.write(prefix, tensors(step, size), format)
        return
    parts = [f"{prefix}_temp/part-{i:05d}-of-00002" for i in range(2)]
    for i, part in enumerate(parts):
        checkpoints.write(part, tensors(step, size)[i::2], format)
    checkpoints.merge(parts, prefix)


def found(prefix: str) -> int:
    """The step whose checkpoint is there, whole."""
    reader = checkpoints.open(prefix)
    step = int(reader.read("step"))
    for piece in tensors(step, reader.entries["w"].shape[0]):
        assert reader.read(piece.name, piece.part).tolist() == piece.value.tolist(), (piece.name, step)
    checkpoints.check(prefix)
    return step


def killed_at(k: int, after: bool, steps: Callable[[], None]) -> None:
    """Runs `steps` until the k-th lasting call; is killed there."""
    calls = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == k and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            out = call(*args, **options)
            if calls == k and after:
                os.kill(os.getpid(), signal.SIGKILL)
            return out

        return counting

    for name in LASTING:
        setattr(os, name, counted(getattr(os, name)))
    steps()


def child(run: Callable[[int], None], kill_after: float | None) -> tuple[bool, int]:
    """Runs `run` in a process that may be killed.

    Returns whether it was killed, and the last step that it reported.
    """
    here, there = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(here)
        try:
            run(there)
            os._exit(0)
        except BaseException as e:  # reports the error, and must not go on as the parent
            print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
            os._exit(1)
    os.close(there)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    told = b""
    while piece := os.read(here, 4096):
        told += piece
    os.close(here)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed by itself"
    return os.WIFSIGNALED(status), int(told.split()[-1]) if told else -1


def one(folder: Path, format: str, first: int, steps: int, size: int, k: int, after: bool, pause: float | None) -> bool:
    """One child, which begins over the checkpoint of step `first`; whether it was killed."""
    prefix = str(folder / "model")
    write(prefix, first, size, format)

    def run(tell: int) -> None:
        def writing() -> None:
            for step in range(first + 1, first + 1 + steps):
                write(prefix, step, size, format)
                os.write(tell, b"%d " % step)

        killed_at(k, after, writing) if k else writing()

    was_killed, told = child(run, pause)
    last = max(told, first)
    step = found(prefix)
    assert step in (last, last + 1), (step, last)
    checkpoints.sweep(str(folder))
    checkpoints.write(prefix, tensors(step, size), format)  # leftovers do not prevent the next write
    assert found(prefix) == step
    names = [n for n in os.listdir(folder) if n != "model_temp"]
    assert len(names) == (1 if format == FIRST else 2), names
    return was_killed


def main(folder: Path, format: str, way: str, seed: int, rounds: int) -> int:
    killed = 0
    if way == "calls":
        for first in (0, 1):  # the next is merged, or not
            for after in (False, True):
                k = 1
                while one(folder, format, first, 1, 10, k, after, None):
                    k += 1
                    killed += 1
        return killed
    rng = random.Random(seed)
    for i in range(rounds):
        killed += one(folder, format, i, 10**6, rng.choice([10, 10**5, 10**6]), 0, False, rng.random() * 0.1)
    return killed


if __name__ == "__main__":
    signal.alarm(120)  # nothing here waits for ever
    print(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
