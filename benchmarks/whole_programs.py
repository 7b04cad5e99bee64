"""Whole programs for TensorFlow 1 that take a fraction of a second.

    python -m benchmarks.whole_programs TensorFlow convnet_raw

prints the seconds of processor time that one takes in this process, without those of `import tensorflow.compat.v1`. The
programs are those of tests/v1/programs/models, whose numbers are compared with TensorFlow's there. Each runs in a
process of its own, since the first steps of a process are a good part of the work. Modules that headrace imports on
first use count for it; tf_keras, which TensorFlow imports on first use, does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from benchmarks import threads
from tests.v1.programs import source

#: Programs for which TensorFlow takes about 0.2 s.
PROGRAMS = (
    "mlp_raw", "mlp_layers", "convnet_raw", "convnet_layers", "vae", "dqn", "gcn", "word2vec", "crf_tagging",
    "queue_pipeline",
)  # fmt: skip
IMPORTS = {"headrace": "import headrace.v1 as tf", "TensorFlow": "import tensorflow.compat.v1 as tf"}
FIRST_USES = {"headrace": "", "TensorFlow": "tf.layers.dense, tf.nn.rnn_cell.GRUCell"}  # imports that do not count


def seconds(contender: Sequence[str], rounds: int, n_threads: int) -> dict[str, dict[str, list[float]]]:
    """Processor time of the programs: program → contender → a value for each round.

    A contender that is not installed has no values. Processes of the contenders take turns.
    """
    has_tensorflow = all(map(importlib.util.find_spec, ("tensorflow", "tf_keras")))
    names = [name for name in IMPORTS if name in contender]
    there = [name for name in names if name == "headrace" or has_tensorflow]
    found: dict[str, dict[str, list[float]]] = {p: {name: [] for name in names} for p in PROGRAMS}
    with tempfile.TemporaryDirectory() as cache:
        for name in there:  # the first process of each compiles modules, and reads from a cold disk
            for program in PROGRAMS if name == "headrace" else PROGRAMS[:1]:
                _measured(name, program, n_threads, cache)
        for _ in range(rounds):
            for program in PROGRAMS:
                for name in there:
                    found[program][name].append(_measured(name, program, n_threads, cache))
    return found


def _measured(contender: str, program: str, n_threads: int, cache: str) -> float:
    command = [sys.executable, "-m", "benchmarks.whole_programs", contender, program]
    env = {**threads.environment(n_threads), "PYTHONPYCACHEPREFIX": cache, "TF_USE_LEGACY_KERAS": "1"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    done = subprocess.run(command, env=env, cwd=threads.ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed with status {done.returncode}:\n{done.stderr}")
    return float(done.stdout)


def here(contender: str, program: str) -> float:
    """Seconds of processor time of the program in this process, after the import."""
    code = compile(source(f"models/{program}", IMPORTS[contender]), f"{program}.py", "exec")
    exec(f"{IMPORTS[contender]}\n{FIRST_USES[contender]}", {})
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, {"__name__": "__main__", "__file__": f"{program}.py"})
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_programs", description="Runs one program.")
    parser.add_argument("who", choices=IMPORTS)
    parser.add_argument("program", choices=PROGRAMS)
    args = parser.parse_args()
    print(here(args.who, args.program))
    return 0


if __name__ == "__main__":
    sys.exit(main())
