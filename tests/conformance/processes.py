"""Programs of tests, each in a process that has only imported TensorFlow.

TensorFlow takes seconds to import, warns while it does (warnings are errors here) and would change what a later test
sees in `sys.modules`. So one process imports it, and is forked for each program: a program finds TensorFlow as it is
just after its import, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 220  # for one program: half a minute where nothing else runs

# Runs the statements in its argument. Reads a program and the files for what it writes from each line; says its process
# id, then how it ended.
SERVER = """
import json, os, sys
exec(sys.argv[1])

for line in sys.stdin:
    program, *files = json.loads(line)
    process = os.fork()
    if process == 0:
        break
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
else:
    sys.exit()

os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, file in enumerate(files, 1):
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
exec(program)
"""


def find_tensorflow() -> None:
    """Skips the tests where there is no TensorFlow.

    With `HEADRACE_CONFORMANCE=1` in the environment (CI) its absence is a failure.
    """
    if importlib.util.find_spec("tensorflow") is None:
        reason = "tensorflow is not installed (pip install -e '.[conformance]')"
        if os.environ.get("HEADRACE_CONFORMANCE") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def environment() -> dict[str, str]:
    # layers and recurrent cells of TensorFlow 1 are in tf_keras by now
    return dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", TF_USE_LEGACY_KERAS="1")


@contextlib.contextmanager
def serving(folder: Path, imports: str, **variables: str) -> Iterator[Callable[[str], bytes]]:
    """Context manager of a function that runs a program in a copy of a process.

    The function returns the output of the program.

    Args:
      folder: holds what the programs write.
      imports: statements that the process has run before.
      variables: of its environment, with those of `environment`.
    """
    find_tensorflow()
    out, err, said = (folder / name for name in ("out", "err", "said"))
    with (
        said.open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-c", SERVER, imports],
            cwd=ROOT, env=environment() | variables,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        ) as process,
        selectors.DefaultSelector() as ready,
    ):  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        ready.register(process.stdout, selectors.EVENT_READ)

        def run(program: str) -> bytes:
            print(json.dumps([program, str(out), str(err)]), file=process.stdin, flush=True)
            number = process.stdout.readline()
            assert number, said.read_text(errors="replace")
            late = not ready.select(SECONDS)
            if late:
                os.kill(int(number), signal.SIGKILL)
            status = int(process.stdout.readline())
            problem = err.read_text(errors="replace") if err.exists() else ""
            assert not late, f"the program takes more than {SECONDS} seconds\n{problem}"
            assert status == 0, f"the program ended with status {status}\n{problem}"
            return out.read_bytes()

        yield run
        process.stdin.close()


def run_anew(program: str) -> bytes:
    """Output of a program in a new interpreter without imports."""
    find_tensorflow()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=environment(), capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
