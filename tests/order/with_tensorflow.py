"""Runs the cases and random programs with TensorFlow: `python -m tests.order.with_tensorflow FROM TO`.

TensorFlow's graph optimizer is off: it loses values of some conditionals ("Retval[0] does not have value").
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from tests.order import running
from tests.order.cases import CASES, program
from tests.order.generating import generate
from tests.order.programs import Program, source
from tests.order.reference import Indeterminate

PRELUDE = running.PRELUDE.replace("import headrace.v1 as tf", "import tensorflow.compat.v1 as tf")
DIGITS = 1e-5  # relative, of what TensorFlow prints


def tensorflow() -> Any:
    """TensorFlow as TensorFlow 1, with resource variables."""
    import tensorflow.compat.v1 as tf

    logging.disable(logging.WARNING)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    return tf


def _config(tf: Any) -> Any:
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config


@contextlib.contextmanager
def _sink(log: list[Any]) -> Iterator[None]:
    """Notes what the process prints on its standard error."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            log += running.shown(file.read().decode(errors="replace"))


def check(p: Program) -> list[str]:
    """Differences between the reference and TensorFlow.

    Raises:
      Indeterminate: If the program leaves open which operations run.
    """
    tf = tensorflow()
    reference = running.reference(p, whole=False)
    expected = [reference.step() for _ in range(p.steps)]
    graph = tf.Graph()
    built = running.Built(p, PRELUDE, graph, graph.as_default())
    out = []
    with tf.Session(graph=graph, config=_config(tf)) as session:
        built.start(session)
        for want in expected:
            # prints are found after the step, so they have no place among the calls
            calls = [(i, j) for i, j in want.order if want.log[i][0] == want.log[j][0] == "call"]
            out += running.differences(
                dataclasses.replace(want, order=calls), built.step(session, _sink(built.log)), DIGITS
            )
    return out


def check_case(name: str) -> list[str]:
    """Differences between a case's expected values and TensorFlow's.

    The list is empty if TensorFlow cannot build the case.
    """
    if not CASES[name].in_tensorflow:
        return []
    tf = tensorflow()
    names: dict[str, Any] = {"tf": tf}
    with tf.Graph().as_default() as graph:
        exec(program(name), names)
        with tf.Session(graph=graph, config=_config(tf)) as session:
            session.run(tf.global_variables_initializer())
            values: Any = []
            for _ in range(names["steps"]):
                values, _ = session.run((names["fetches"], names["targets"]), names["feeds"])
            found = {id(t): x for t, x in zip(names["fetches"], values, strict=True)}
            got = [(found[id(t)] if id(t) in found else session.run(t)).tolist() for t in names["reads"]]
    return [] if got == CASES[name].expected else [f"{name}: TensorFlow gives {got}"]


def check_all(first: int, last: int) -> tuple[int, list[str]]:
    """(number of programs compared, differences) of the programs with these seeds."""
    wrong, n = [], 0
    for seed in range(first, last):
        p = generate(seed)
        with contextlib.suppress(Indeterminate):
            wrong += [f"seed {seed}: {w}\n{source(p)}" for w in check(p)]
            n += 1
    return n, wrong


if __name__ == "__main__":
    differ = [w for name in CASES for w in check_case(name)]
    print(f"{len(CASES)} cases, {len(differ)} differ", *differ, sep="\n")
    compared, differ = check_all(int(sys.argv[1]), int(sys.argv[2]))
    print(f"{compared} programs, {len(differ)} differ", *differ, sep="\n")
