"""Writes `tensorflow_names.json`: TensorFlow's public names in the areas of docs/reference/v1.md, with their arguments.

    python tests/v1/collect_names.py

Needs TensorFlow 2.21 and tf_keras; everything else that reads the list does not.
"""

from __future__ import annotations

import inspect
import json
import operator
import os
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "tensorflow_names.json"

# Where TensorFlow defines it -> the area. The first prefix that fits decides.
AREAS = {
    "tensorflow.python.ops.gradients": "training",
    "tensorflow.python.ops.unconnected_gradients": "training",
    "tensorflow.python.ops.custom_gradient": "training",
    "tensorflow.python.training.experimental": "",
    "tensorflow.python.training": "training",
    "tensorflow.core.framework.graph_pb2": "graph",
    "tensorflow.core.framework.node_def_pb2": "graph",
    "tensorflow.core.framework.attr_value_pb2": "graph",
    "tensorflow.python.framework.constant_op": "graph",
    "tensorflow.python.framework.convert_to_constants": "",
    "tensorflow.python.framework.device_spec": "graph",
    "tensorflow.python.framework.dtypes": "graph",
    "tensorflow.python.framework.errors_impl": "graph",
    "tensorflow.python.framework.graph_": "graph",
    "tensorflow.python.framework.importer": "graph",
    "tensorflow.python.framework.indexed_slices": "graph",
    "tensorflow.python.framework.ops": "graph",
    "tensorflow.python.framework.random_seed": "graph",
    "tensorflow.python.framework.stack": "session",
    "tensorflow.python.framework.tensor": "graph",
    "tensorflow.python.framework.type_spec": "",
    "tensorflow.python.compat.v2_compat": "graph",
    "tensorflow.python.eager.context": "graph",
    "tensorflow.python.ops.cond": "control flow",
    "tensorflow.python.ops.control_flow": "control flow",
    "tensorflow.python.ops.while_loop": "control flow",
    "tensorflow.python.ops.map_fn": "control flow",
    "tensorflow.python.ops.functional_ops": "control flow",
    "tensorflow.python.ops.tensor_array_ops": "control flow",
    "tensorflow.python.ops.logging_ops": "control flow",
    "tensorflow.python.ops.check_ops": "control flow",
    "tensorflow.python.ops.script_ops": "control flow",
    "tensorflow.python.ops.critical_section_ops": "control flow",
    "tensorflow.python.ops.numerics": "control flow",
    "tensorflow.python.ops.gen_control_flow_ops": "control flow",
    "tensorflow.python.ops.gen_logging_ops": "control flow",
    "tensorflow.python.ops.math_ops": "math",
    "tensorflow.python.ops.gen_math_ops": "math",
    "tensorflow.python.ops.special_math_ops": "math",
    "tensorflow.python.ops.gen_special_math_ops": "math",
    "tensorflow.python.ops.clip_ops": "math",
    "tensorflow.python.ops.gen_bitwise_ops": "math",
    "tensorflow.python.ops.bincount_ops": "math",
    "tensorflow.python.ops.histogram_ops": "math",
    "tensorflow.python.ops.confusion_matrix": "math",
    "tensorflow.python.ops.linalg_ops": "math",
    "tensorflow.python.ops.gen_linalg_ops": "math",
    "tensorflow.python.ops.linalg.linalg_impl": "math",
    "tensorflow.python.ops.nn_": "math",
    "tensorflow.python.ops.gen_nn_ops": "math",
    "tensorflow.python.ops.embedding_ops": "math",
    "tensorflow.python.ops.sort_ops": "math",
    "tensorflow.python.ops.random_": "math",
    "tensorflow.python.ops.gen_random_ops": "math",
    "tensorflow.python.ops.array_ops": "array",
    "tensorflow.python.ops.gen_array_ops": "array",
    "tensorflow.python.ops.manip_ops": "array",
    "tensorflow.python.ops.gen_manip_ops": "array",
    "tensorflow.python.ops.string_ops": "array",
    "tensorflow.python.ops.gen_string_ops": "array",
    "tensorflow.python.ops.parsing_ops": "",
    "tensorflow.python.ops.variable": "state",
    "tensorflow.python.ops.resource_variables_toggle": "state",
    "tensorflow.python.ops.init_ops": "state",
    "tensorflow.python.ops.state_ops": "state",
    "tensorflow.python.ops.gen_state_ops": "state",
    "tensorflow.python.ops.template": "state",
    "tensorflow.python.ops.partitioned_variables": "state",
    "tensorflow.python.client.session": "session",
    "tensorflow.core.protobuf.config_pb2": "session",
    "tensorflow.python.ops.session_ops": "session",
    "tensorflow.python.ops.data_flow_ops": "queues",
    "tensorflow.python.ops.gen_data_flow_ops": "queues",
    "tensorflow.python.ops.io_ops": "input",
    "tensorflow.python.ops.gen_io_ops": "input",
    "tensorflow.python.lib.io": "input",
    "tensorflow.python.ops.losses": "losses and metrics",
    "tensorflow.python.ops.metrics": "losses and metrics",
    "tensorflow.python.ops.rnn": "layers",
    "tf_keras.src.legacy_tf_layers": "layers",
    "tf_keras.src.layers.rnn.legacy_cells": "layers",
    "tensorflow.python.summary": "summaries",
}

MODULES = [
    "", "bitwise", "debugging", "dtypes", "errors", "gfile", "graph_util", "initializers", "layers", "linalg", "losses",
    "math", "metrics", "nn", "nn.rnn_cell", "python_io", "queue", "random", "strings", "summary", "train",
]  # fmt: skip

# Parts of these modules that are areas of their own (distribution, data sets, trees of protocol messages, images).
APART = ("tensorflow.python.ops.nn_impl_distribute", "tensorflow.python.ops.random_crop_ops")


def area_of(module: str) -> str:
    if module in APART:
        return ""
    return next((area for prefix, area in AREAS.items() if module.startswith(prefix)), "")


def parameters(x: Any) -> list[str] | None:
    """Names of the arguments in order, "*" before a variable number.

    None for objects that are not callable.
    """
    if not callable(x):
        return None
    try:
        found = list(inspect.signature(x).parameters.values())
    except (ValueError, TypeError):
        return None
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [marks.get(p.kind, "") + p.name for p in found]


def main() -> None:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # where layers and recurrent cells are by now
    import tensorflow as tf
    from tensorflow.python.util import tf_decorator

    out: dict[str, dict[str, Any]] = {}
    for module in MODULES:
        space = operator.attrgetter(f"compat.v1.{module}".rstrip("."))(tf)
        getattr(space, "dense", None)  # layers and cells load themselves when one of them is asked for
        for name in dir(space):
            if name.startswith("_") or name in ("keras", "estimator"):
                continue
            value = getattr(space, name, None)
            if inspect.ismodule(value):
                continue
            _, plain = tf_decorator.unwrap(value)
            if isinstance(value, tf.DType) or (isinstance(value, int) and module == "errors"):
                area, arguments = "graph", None
            else:
                area = area_of(getattr(plain, "__module__", None) or "")
                is_class = inspect.isclass(value)
                arguments = parameters(value) if not is_class or "core" not in value.__module__ else None
            if area:
                full = f"{module}.{name}" if module else name
                out[full] = {"area": area, "of": f"{plain.__module__}.{getattr(plain, '__qualname__', name)}"
                             if arguments is not None or inspect.isclass(plain) else full,
                             "arguments": arguments}  # fmt: skip
    lines = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(out.items()))
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(out), "names")


if __name__ == "__main__":
    main()
