"""TensorFlow's answers to unsuitable arguments, compared with headrace's.

    HEADRACE_CONFORMANCE=1 python -m tests.conformance.hostile --types Gather,Pad --attempts 40

The operations are those of `tests.ops.hostile`. TensorFlow runs each in turn in a process that writes down what came
out before it goes on: where that process ends by itself (it does, for some arguments), the next one begins behind that
operation.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace import dtypes
from headrace.errors import HeadraceWarning, OpError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import op_registry
from headrace.ir.serial import graphdef
from headrace.opkit import arrays
from tests.ops.cases import assert_close
from tests.ops.hostile import attempts, can_be_tried, make

PROGRAM = """
import os
import pickle
import sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
tf.compat.v1.disable_control_flow_v2()
options = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
options.graph_options.optimizer_options.opt_level = -1
options.graph_options.rewrite_options.disable_meta_optimizer = True
graphs, out, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(graphs, "rb") as f:
    made = pickle.load(f)
with open(out, "ab") as f:
    for i in range(start, len(made)):
        data, name = made[i]
        try:
            with tf.Graph().as_default() as graph:
                tf.import_graph_def(tf.compat.v1.GraphDef.FromString(data), name="")
            with tf.compat.v1.Session(graph=graph, config=options) as session:
                values = session.run(list(graph.get_operation_by_name(name).outputs))
            found = []
            for v in values:
                a = np.asarray(v, object if isinstance(v, bytes) else None)
                found.append((a.dtype.name, a.shape, list(a.flat) if a.dtype == object else a.tobytes()))
            f.write(pickle.dumps((i, "", found)))
            f.flush()
        except Exception as e:
            f.write(pickle.dumps((i, type(e).__name__, str(e)[:300])))
            f.flush()
"""
MOST_BYTES = 10**5  # in one array: results are kept until TensorFlow has run
CRASHED = "the process ended"
NO_KERNEL = ("No OpKernel", "no supported kernel", "not registered", "not supported", "Unsupported", "not yet support")


@dataclasses.dataclass
class Tried:
    """One attempt at a type and its outcome: an error's class and text, or values."""

    type: str
    attempt: Any
    data: bytes
    name: str
    error: str
    said: str
    values: list[np.ndarray]


def tried(type: str, n: int, seed: int) -> list[Tried]:
    """headrace's outcomes of `n` attempts at a type.

    Attempts that headrace refuses to build are left out.
    """
    record, out = op_registry.get(type), []
    for attempt in attempts(record, n, seed):
        graph = Graph()
        try:
            op = make(Builder(graph), record, attempt)
        except (ValueError, OpError):
            continue
        data = graphdef.export_graph_def(graph).SerializeToString()
        mine = Tried(type, attempt, data, op.name, "", "", [])
        try:
            with hr.Session(graph=graph) as session:
                mine.values = session.run(list(op.outputs), options=hr.RunOptions(timeout_in_ms=1000))
        except Exception as e:
            mine.error, mine.said = e.__class__.__name__, str(e)[:300]
        if mine.error != "ResourceExhaustedError":  # TensorFlow would try
            out.append(mine)
    return out


def theirs(found: Sequence[Tried]) -> list[tuple[str, Any]]:
    """TensorFlow's outcomes of the attempts.

    Each is the class and the text of an error, or "" and values.
    """
    results: list[tuple[str, Any]] = [(CRASHED, "")] * len(found)
    with tempfile.TemporaryDirectory() as folder:
        graphs, out = Path(folder, "graphs.pkl"), Path(folder, "out.pkl")
        graphs.write_bytes(pickle.dumps([(t.data, t.name) for t in found]))
        start = 0
        while start < len(found):
            out.write_bytes(b"")
            command = [sys.executable, "-c", PROGRAM, str(graphs), str(out), str(start)]
            env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            subprocess.run(command, env=env, capture_output=True, timeout=600, check=False)
            with out.open("rb") as f:
                while True:
                    try:
                        i, error, got = pickle.load(f)
                    except EOFError:
                        break
                    results[i] = (error, got)
                    start = i + 1
            if start < len(found):
                start += 1  # the one at which it ended
    return results


def difference(mine: Tried, error: str, got: Any) -> str:
    """The difference between the two, in a line; "" if there is none."""
    if error == CRASHED or error == "UnimplementedError" or any(s in str(got) for s in NO_KERNEL):
        return ""
    if error:
        if mine.error:
            same = mine.error == error or error == "ValueError"  # when it is imported
            return "" if same else f"{mine.error} ({mine.said[:80]}), TensorFlow {error} ({got[:120]})"
        return f"gives {[v.shape if hasattr(v, 'shape') else v for v in mine.values]}, TensorFlow {error} ({got[:150]})"
    if mine.error:
        return f"{mine.error} ({mine.said[:120]}), TensorFlow gives {[shape for _, shape, _ in got]}"
    try:
        for v, (name, shape, data) in zip(mine.values, got, strict=True):
            if name == "object":
                want = np.empty(len(data), object)
                want[:] = data
                v = np.array(v, object)
            else:
                want = np.frombuffer(data, dtypes.as_dtype(name).numpy)
            assert_close(np.asarray(v), want.reshape(shape))
    except Exception as e:
        return f"differs: {str(e)[:200]}"
    return ""


def report(types: Sequence[str], n: int, seed: int) -> list[tuple[str, str, Any]]:
    """(type, difference, attempt) of all attempts whose results differ."""
    found = [t for type in types for t in tried(type, n, seed)]
    out = []
    for mine, (error, got) in zip(found, theirs(found), strict=True):
        text = difference(mine, error, got)
        if text:
            out.append((mine.type, " ".join(text.split()), mine.attempt))
    return out


def pure_types() -> list[str]:
    """The comparable types: pure ones with inputs and outputs that TensorFlow hands out."""
    records = [op_registry.get(t) for t in sorted(op_registry) if not t.startswith("_")]
    return [
        r.type
        for r in records
        if can_be_tried(r) and r.is_pure and not r.facts.no_fold
        if not any(a.dtype in arrays.HANDLES for a in (*r.ins, *r.outs))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.hostile")
    parser.add_argument("--types", type=lambda s: s.split(","), default=pure_types(), help="only these, comma between")
    parser.add_argument("--attempts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-v", action="store_true", help="show the arguments")
    args = parser.parse_args()
    warnings.simplefilter("ignore", HeadraceWarning)
    arrays.max_bytes = MOST_BYTES
    for type, text, attempt in report(args.types, args.attempts, args.seed):
        print(f"{type}: {text}" + (f"\n    {attempt}" if args.v else ""))


if __name__ == "__main__":
    main()
