"""Op types with a gradient: headrace's against TensorFlow's registry of gradients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import headrace.ops
from headrace.ir.opdef import Missing, NotDifferentiable, op_registry

if TYPE_CHECKING:
    from collections.abc import Callable

assert headrace.ops  # importing it is what fills the registry

PROGRAM = """
import json
import sys
import tensorflow
from tensorflow.python.framework import kernels, op_def_registry, ops
from tensorflow.python.ops import gradients, linalg_grad
from tensorflow.python.ops.linalg.sparse import sparse_csr_matrix_grad
found = {}
for name, entry in ops.gradient_registry._registry.items():
    if op_def_registry.get(name) is not None:
        devices = {k.device_type for k in kernels.get_registered_kernels_for_op(name).kernel}
        found[name] = [entry["type"] is not None, "CPU" in devices]
sys.stdout.write(json.dumps(found))
"""

# TensorFlow's rules for these give None.
STOPS = {"ArgMax", "ArgMin", "Ceil", "Floor", "FloorDiv", "LoopCond", "Rint", "Round", "TruncateDiv"}
MOST = 0.05  # of the types with a gradient in TensorFlow


def test_gradients_are_those_of_tensorflow(run_python: Callable[[str], bytes]) -> None:
    """Few of TensorFlow's types with a gradient and a CPU kernel lack one here."""
    found = json.loads(run_python(PROGRAM))
    wanted = sorted(n for n, (has, on_cpu) in found.items() if has and on_cpu)
    assert len(wanted) > 300
    lacking, stopping = {}, []
    for name in wanted:
        record = op_registry.find(name)
        if record is None:
            lacking[name] = "not registered"
        elif record.structured or record.primitive:
            continue  # differentiated as a whole, with the graphs that belong to it: `tests/grad`
        elif isinstance(record.grad, Missing):
            lacking[name] = record.grad.why
        elif isinstance(record.grad, NotDifferentiable) and name not in STOPS:
            stopping.append(name)
    print(f"{len(wanted) - len(lacking)} of {len(wanted)} have a rule; lacking: {lacking}")
    assert not stopping, f"TensorFlow has gradients of these, here they stop: {stopping}"
    assert len(lacking) <= MOST * len(wanted), f"{len(lacking)} of {len(wanted)}: {lacking}"
