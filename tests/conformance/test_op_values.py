"""Every sampled op in TensorFlow itself.

Its cases are one graph, which TensorFlow imports and runs node by node.

Ops and dtypes for which TensorFlow has no kernel on the CPU are left out; so is what differs on purpose.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation
from headrace.ir.serial import graphdef
from tests.ops.cases import assert_close, cases, dtype_of, flat, make, op_registry, run_kernel, sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.dtypes import DType

PROGRAM = """
import pickle
import numpy as np
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
tf.compat.v1.disable_control_flow_v2()
options = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
options.graph_options.optimizer_options.opt_level = -1
options.graph_options.rewrite_options.disable_meta_optimizer = True
results = {{}}


def run(session, ops):
    try:
        values = session.run([list(op.outputs) for op in ops])
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.UnimplementedError) as e:
        if len(ops) > 1:
            return [v for op in ops for v in run(session, [op])]
        text = str(e)
        phrases = ("No OpKernel", "registered", "not supported", "Unsupported", "only supports", "not yet support")
        missing = any(s in text for s in phrases)
        return [None if missing or isinstance(e, tf.errors.UnimplementedError) else text[:300]]
    found = []
    for outputs in values:
        arrays = [np.asarray(x, object if isinstance(x, bytes) else None) for x in outputs]
        found.append([(a.dtype.name, a.shape, list(a.flat) if a.dtype == object else a.tobytes()) for a in arrays])
    return found


for key, data in pickle.load(open({graphs!r}, "rb")).items():
    graph_def = tf.compat.v1.GraphDef.FromString(data)
    with tf.Graph().as_default() as graph:
        try:
            tf.import_graph_def(graph_def, name="")
        except ValueError as e:
            results[key] = [None] * len(graph_def.node) if "Unsupported" in str(e) else str(e)[:500]
            continue
        except tf.errors.UnimplementedError:  # an op of long ago
            results[key] = [None] * len(graph_def.node)
            continue
        with tf.compat.v1.Session(config=options) as session:
            results[key] = run(session, [op for op in graph.get_operations() if op.type != "Const"])
with open({out!r}, "wb") as f:
    pickle.dump(results, f)
"""

# Undesirable behaviour of TensorFlow's CPU kernels.
WRONG = {
    "ConjugateTranspose string": "ends the process",
    "Conv2DBackpropFilter bfloat16": "rounds after each image",
    "Empty": "whatever is in memory",
    "EnsureShape": "refuses an unknown shape, which ensures nothing",
    "LRNGrad float16": "rounds at every step",
    "Qr float16": "rounds at every step",
    "Round int32": "0 for every integer",
    "Round int64": "0 for every integer",
    "UnicodeDecode int32": "ends the process",
    "UnicodeDecodeWithOffsets int32": "ends the process",
}
# Vectors that are known up to their signs and their order; the cases are made of what is to be found.
FREE = {"Eig", "SelfAdjointEigV2", "Svd"}
CASES = 6  # of each op and dtype
PARTS = 6  # of the registry, each in a process of its own


def decode(found: tuple[str, tuple[int, ...], Any]) -> np.ndarray:
    name, shape, data = found
    if name == "object":
        out = np.empty(len(data), object)
        out[:] = data
        return out.reshape(shape)
    return np.frombuffer(data, dtypes.as_dtype(name).numpy).reshape(shape)


def example(type: str, dtype: DType) -> tuple[Graph, list[tuple[Operation, list[np.ndarray]]]]:
    """A graph of an op's cases, and the ops in it with their arguments."""
    b, made = Builder(Graph()), []
    for case in cases(type, dtype)[:CASES]:
        args = flat(case.inputs)
        made.append((make(b, op_registry.get(type), case, [b.const(x, dtype_of(x)) for x in args]), args))
    return b.graph, made


def difference(op: Operation, args: list[np.ndarray], found: Any) -> str:
    """The differences between TensorFlow's outputs (or its error) and headrace's."""
    where = f"{op.type} { ({k: v for k, v in op.attrs.items() if not isinstance(v, np.ndarray)}) }"
    try:
        got = run_kernel(op, args)
        assert not isinstance(found, str), f"{where}: TensorFlow says {found}, ours {got}"
        for g, w in zip(got, found, strict=True):
            assert_close(g, decode(w), where)
    except Exception as e:
        return f"{where} on {args}: {e}"
    return ""


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_tensorflow_computes_the_same(run_python: Callable[[str], bytes], tmp_path: Path, part: int) -> None:
    there = [(t, d) for t, d in sampled() if not (WRONG.keys() | FREE) & {t, f"{t} {d.name}"} and t[0] != "_"]
    keys = there[part::PARTS]
    made = {f"{t} {d.name}": example(t, d) for t, d in keys}
    graphs, out = tmp_path / "graphs.pkl", tmp_path / "values.pkl"
    data = {key: graphdef.export_graph_def(graph).SerializeToString() for key, (graph, _) in made.items()}
    graphs.write_bytes(pickle.dumps(data))
    run_python(PROGRAM.format(graphs=str(graphs), out=str(out)))
    results = pickle.loads(out.read_bytes())
    report, compared = [], 0
    for key, (_, ops) in made.items():
        found = results[key]
        if isinstance(found, str):
            report.append(f"{key}: TensorFlow refuses the graph: {found}")
            continue
        for (op, args), values in zip(ops, found, strict=False):
            if values is not None:
                compared += 1
                report += filter(None, [difference(op, args, values)])
    if report:
        pytest.fail("\n".join(report), pytrace=False)
    assert compared > len(keys)
