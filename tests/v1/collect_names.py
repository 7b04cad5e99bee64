"""Writes `tensorflow_names.json`: TensorFlow's public names in the areas of docs/reference/v1.md, with their arguments.

    python tests/v1/collect_names.py

`tensorflow_members.json` has the public members of its classes.

Needs TensorFlow 2.21 and tf_keras; everything else that reads the list does not.
"""

from __future__ import annotations

import enum
import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

OUT = Path(__file__).parent / "tensorflow_names.json"
MEMBERS = Path(__file__).parent / "tensorflow_members.json"

# Areas whose classes are listed by name only.
WITHOUT_MEMBERS = ("Keras", "TensorFlow Lite", "TPUs", "distribution", "estimators", "raw operations")

# Where TensorFlow defines it -> the area. The first prefix that fits decides.
AREAS = {
    "tensorflow.python.ops.gradients": "training",
    "tensorflow.python.ops.unconnected_gradients": "training",
    "tensorflow.python.ops.custom_gradient": "training",
    "tensorflow.python.training.experimental": "mixed precision",
    "tensorflow.python.training": "training",
    "tensorflow.core.framework.graph_pb2": "graph",
    "tensorflow.core.framework.node_def_pb2": "graph",
    "tensorflow.core.framework.attr_value_pb2": "graph",
    "tensorflow.python.framework.constant_op": "graph",
    "tensorflow.python.framework.convert_to_constants": "graph",
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
    "tensorflow.python.framework.type_spec": "graph",
    "tensorflow.python.framework.none_tensor": "graph",
    "tensorflow.python.framework.sparse_tensor": "sparse tensors",
    "tensorflow.python.framework.load_library": "system",
    "tensorflow.python.framework.versions": "system",
    "tensorflow.python.framework.config": "system",
    "tensorflow.python.compat.v2_compat": "graph",
    "tensorflow.python.compat": "system",
    "tensorflow.python.eager": "eager execution",
    "tensorflow.python.module": "eager execution",
    "tensorflow.python.data": "data sets",
    "tensorflow.python.feature_column": "feature columns",
    "tensorflow.python.ops.distributions": "distributions",
    "tensorflow.python.ops.ragged.ragged_string_ops": "array",
    "tensorflow.python.ops.ragged": "ragged tensors",
    "tensorflow.python.ops.gen_ragged": "ragged tensors",
    "tensorflow.python.ops.sparse_ops": "sparse tensors",
    "tensorflow.python.ops.lookup_ops": "lookup tables",
    "tensorflow.python.ops.image_ops": "images",
    "tensorflow.python.ops.gen_image_ops": "images",
    "tensorflow.python.ops.random_crop_ops": "images",
    "tensorflow.python.ops.signal": "signals",
    "tensorflow.python.ops.gen_spectral_ops": "signals",
    "tensorflow.python.ops.parallel_for": "control flow",
    "tensorflow.python.ops.gen_parsing_ops": "input",
    "tensorflow.python.ops.parsing": "input",
    "tensorflow.python.ops.candidate_sampling_ops": "math",
    "tensorflow.python.ops.ctc_ops": "math",
    "tensorflow.python.ops.gen_random_index_shuffle_ops": "math",
    "tensorflow.python.ops.linalg.": "math",
    "tensorflow.python.ops.gradient_checker": "tests",
    "tensorflow.python.saved_model": "saved models",
    "tensorflow.python.distribute": "distribution",
    "tensorflow.python.tpu": "TPUs",
    "tensorflow.core.example": "input",
    "tensorflow.core.protobuf.meta_graph_pb2": "saved models",
    "tensorflow.core.framework.summary_pb2": "summaries",
    "tensorflow.core.util.event_pb2": "summaries",
    "xla.tsl.protobuf.histogram_pb2": "summaries",
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
    "tensorflow.python.ops.state_ops": "state",
    "tensorflow.python.ops.stateful_random_ops": "math",
    "tensorflow.python.ops.stateless_random_ops": "math",
    "tensorflow.python.ops.variable": "state",
    "tensorflow.python.ops.resource_variables_toggle": "state",
    "tensorflow.python.ops.init_ops": "state",
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

# Module in which TensorFlow shows a name -> the area, for names that `AREAS` leaves open.
PLACES = {
    "": "system",
    "app": "programs",
    "audio": "audio",
    "autograph": "eager execution",
    "bitwise": "math",
    "compat": "system",
    "config": "system",
    "data": "data sets",
    "debugging": "control flow",
    "distribute": "distribution",
    "distributions": "distributions",
    "dtypes": "graph",
    "errors": "graph",
    "estimator": "estimators",
    "experimental": "experimental",
    "feature_column": "feature columns",
    "flags": "programs",
    "gfile": "input",
    "graph_util": "graph",
    "image": "images",
    "initializers": "state",
    "io": "input",
    "keras": "Keras",
    "layers": "layers",
    "linalg": "math",
    "lite": "TensorFlow Lite",
    "logging": "programs",
    "lookup": "lookup tables",
    "math": "math",
    "mixed_precision": "mixed precision",
    "mlir": "XLA and MLIR",
    "nest": "programs",
    "nn": "math",
    "profiler": "profiler",
    "quantization": "quantization",
    "ragged": "ragged tensors",
    "random": "math",
    "raw_ops": "raw operations",
    "resource_loader": "programs",
    "saved_model": "saved models",
    "sets": "sets",
    "sparse": "sparse tensors",
    "strings": "array",
    "summary": "summaries",
    "sysconfig": "system",
    "test": "tests",
    "tpu": "TPUs",
    "train": "training",
    "types": "graph",
    "user_ops": "system",
    "version": "system",
    "xla": "XLA and MLIR",
}

# Modules below which each name is of the area of `PLACES`.
WHOLE = ("image", "keras", "lite", "quantization", "raw_ops", "test", "estimator", "distribute", "tpu", "experimental")

# Modules that are not TensorFlow's, or TensorFlow itself again.
FOREIGN = ("compat.v1", "compat.v2", "test.mock", "flags.tf_decorator", "app.flags")


def area_of(path: str, module: str) -> str:
    """The area of a name.

    Args:
      path: the module that shows the name, below `tf`.
      module: the module that defines the object, or "".
    """
    top = path.partition(".")[0]
    if top not in WHOLE:
        found = next((area for prefix, area in AREAS.items() if module.startswith(prefix)), "")
        if found:
            return found
    return PLACES[top]


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


def public(space: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Module path, name and value of each public name, in modules below too."""
    getattr(space, "dense", None)  # layers and cells load themselves when one of them is asked for
    for name in dir(space):
        full = f"{path}.{name}".lstrip(".")
        value = None if name.startswith("_") or full in FOREIGN else getattr(space, name, None)
        if value is None and name != "newaxis":
            continue
        if inspect.ismodule(value) or "LazyLoader" in type(value).__name__:
            if value.__name__.startswith(("tensorflow.", "tf_keras.", "tensorflow_estimator.")):
                yield from public(value, full)
            continue
        yield path, name, value


def entry(path: str, name: str, value: Any) -> dict[str, Any]:
    """The record of a name: area, identity of the object, names of its arguments."""
    from tensorflow import DType
    from tensorflow.python.util import tf_decorator

    full = f"{path}.{name}".lstrip(".")
    _, plain = tf_decorator.unwrap(value)
    arguments = None
    if (isinstance(value, DType) and path != "lite.constants") or (isinstance(value, int) and path == "errors"):
        area = "graph"
    else:
        area = area_of(path, getattr(plain, "__module__", None) or "")
        if area != "Keras" and not (inspect.isclass(value) and issubclass(value, Message)):
            arguments = parameters(value)
    known = (arguments is not None or inspect.isclass(plain)) and area not in ("Keras", "raw operations")
    return {
        "area": area,
        "of": f"{plain.__module__}.{getattr(plain, '__qualname__', name)}" if known else full,
        "arguments": arguments,
    }


def members(cls: type) -> list[str]:
    """Public members that TensorFlow's own classes give `cls`."""
    own = [c for c in cls.__mro__ if c.__module__.startswith(("tensorflow.", "tf_keras.src.legacy"))]
    return sorted({n for c in own for n in vars(c) if not n.startswith("_")})


def main() -> None:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # where layers and recurrent cells are by now
    import tensorflow as tf

    out, classes = {}, {}
    for path, name, value in public(tf.compat.v1):
        full = f"{path}.{name}".lstrip(".")
        found = out[full] = entry(path, name, value)
        whole = found["area"] not in WITHOUT_MEMBERS
        if inspect.isclass(value) and whole and not issubclass(value, (Message, enum.Enum, BaseException)):
            classes.setdefault(found["of"], (full, members(value)))
    write(OUT, out)
    write(MEMBERS, dict(classes.values()))
    print(len(out), "names,", len(classes), "classes")


def write(file: Path, data: dict[str, Any]) -> None:
    """Writes a file of JSON with a line for each key."""
    lines = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(data.items()))
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
