"""Process of one task: a server, and in a client the programs.

    python -m benchmarks.cluster_programs.task '{"module": "headrace.v1", ...}'

The argument is `Settings` as JSON. Replies are lines of JSON on the standard output: the first one after the server has
started, then one for each command. Commands are lines of JSON on the standard input, with a method's name and its
arguments; the method `build` makes the program. The process ends with its standard input, or at its deadline.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

from benchmarks.cluster_programs import Place

PROGRAMS = {
    "barrier": ("barrier", "Barrier"),
    "empty": ("steps", "Empty"),
    "moved": ("steps", "Moved"),
    "between": ("digits", "BetweenGraph"),
    "towers": ("digits", "InGraph"),
    "round trip": ("round_trip", "RoundTrip"),
}
GRACE = 5.0  # seconds for the interpreter's own end


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that a task's process receives at its start.

    Attributes:
      module: name of the module `tf`; empty: plain sockets.
      cluster: job → addresses of its tasks.
      job: name of this task's job.
      index: number of this task in its job.
      is_client: whether the process takes commands; the others join their server.
      threads: threads of each pool of the server.
      deadline: seconds until the process ends in any case.
    """

    module: str
    cluster: Mapping[str, Sequence[str]]
    job: str
    index: int
    is_client: bool
    threads: int
    deadline: float


def main() -> int:
    settings = Settings(**json.loads(sys.argv[1]))
    replies = _private_stdout()
    _end_after(settings.deadline)
    if not settings.module:
        return _plain(settings, replies)
    tf = importlib.import_module(settings.module)
    tf.disable_v2_behavior()
    config = tf.ConfigProto(
        intra_op_parallelism_threads=settings.threads, inter_op_parallelism_threads=settings.threads
    )
    server = tf.train.Server(
        tf.train.ClusterSpec(settings.cluster), job_name=settings.job, task_index=settings.index, config=config
    )
    _reply(replies, {"result": tf.__version__})
    if settings.is_client:
        place = Place(server.target, settings.cluster, settings.job, settings.index)
        _serve_commands(tf, place, replies)
    else:
        threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
        server.join()
    return 0


def _plain(settings: Settings, replies: IO[str]) -> int:
    from benchmarks.cluster_programs import round_trip

    if settings.is_client:
        _reply(replies, {"result": ""})
        _serve_commands(None, Place("", settings.cluster, settings.job, settings.index), replies)
    else:
        threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
        round_trip.echo(settings.cluster[settings.job][settings.index], lambda: _reply(replies, {"result": ""}))
    return 0


def _serve_commands(tf: Any, place: Place, replies: IO[str]) -> None:
    """Carries out the commands. After an error the next command is taken as usual."""
    program: Any = None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=[lines], daemon=True).start()
    while line := lines.get():
        command = json.loads(line)
        arguments = command["arguments"]
        try:
            if command["method"] == "build":
                if program is not None:
                    program.close()
                    program = None
                module, name = PROGRAMS[arguments.pop("program")]
                made = getattr(importlib.import_module(f"benchmarks.cluster_programs.{module}"), name)
                program, result = made(tf, place, **arguments), None
            else:
                result = getattr(program, command["method"])(**arguments)
            _reply(replies, {"result": result})
        except Exception:
            _reply(replies, {"error": traceback.format_exc()})
    if program is not None:
        program.close()


def _read(lines: queue.SimpleQueue[str]) -> None:
    """Passes on the lines of the standard input, and an empty one at its end."""
    for line in sys.stdin:
        lines.put(line)
    lines.put("")
    _end_after(GRACE)  # a step may wait for tasks that have ended, and TensorFlow cannot stop a server


def _private_stdout() -> IO[str]:
    """Returns the standard output as a file and redirects later prints to the standard error."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def _reply(replies: IO[str], reply: Mapping[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _end_after(seconds: float) -> None:
    """Lets the system end the process after a time, also within the interpreter's own end."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _exit_at_end_of_input() -> NoReturn:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
