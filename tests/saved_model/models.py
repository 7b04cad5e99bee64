"""SavedModels of TensorFlow 2 as TensorFlow writes them, small, without TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from headrace import pb
from headrace.files import checkpoints
from headrace.interchange import saved_model
from headrace.interchange.object_graphs import OBJECT_GRAPH
from headrace.pb.trackable_object_graph_pb2 import TrackableObjectGraph

# root: v (variable), f (function of x and v), layers (list of the root's variable and a tuple), signatures
OBJECTS = """
nodes {
  children { node_id: 1 local_name: "v" } children { node_id: 2 local_name: "f" }
  children { node_id: 3 local_name: "signatures" } children { node_id: 5 local_name: "parts" }
  children { node_id: 0 local_name: "itself" }
  user_object { identifier: "_generic_user_object" }
}
nodes { variable { dtype: DT_FLOAT shape { dim { size: 2 } } trainable: true name: "v" } }
nodes {
  function {
    concrete_functions: "__inference_f_1"
    function_spec { fullargspec { named_tuple_value { name: "FullArgSpec"
      values { key: "args" value { list_value { values { string_value: "x" } values { string_value: "double" } } } }
      values { key: "varargs" value { none_value { } } } values { key: "varkw" value { none_value { } } }
      values { key: "defaults" value { tuple_value { values { bool_value: false } } } }
      values { key: "kwonlyargs" value { list_value { } } } values { key: "kwonlydefaults" value { none_value { } } }
    } } }
  }
}
nodes { children { node_id: 4 local_name: "serving_default" } user_object { identifier: "signature_map" } }
nodes {
  bare_concrete_function {
    concrete_function_name: "__inference_f_1" argument_keywords: "x" allowed_positional_arguments: 1
  }
}
nodes {
  children { node_id: 6 local_name: "0" } children { node_id: 7 local_name: "1" }
  user_object { identifier: "trackable_list_wrapper" }
}
nodes { children { node_id: 1 local_name: "0" } user_object { identifier: "trackable_tuple_wrapper" } }
nodes { constant { operation: "c" } }
concrete_functions {
  key: "__inference_f_1"
  value {
    bound_inputs: 1 bound_inputs: 7
    canonicalized_input_signature { tuple_value {
      values { tuple_value {
        values { tensor_spec_value { name: "x" shape { dim { size: 2 } } dtype: DT_FLOAT } }
        values { bool_value: false }
      } }
      values { dict_value { } }
    } }
    output_signature { dict_value { fields {
      key: "y" value { tensor_spec_value { name: "y" shape { dim { size: 2 } } dtype: DT_FLOAT } } } } }
  }
}
"""

GRAPH = """
node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor {
  dtype: DT_FLOAT tensor_shape { } float_val: 10 } } } }
library { function {
  signature {
    name: "__inference_f_1" is_stateful: true
    input_arg { name: "x" type: DT_FLOAT } input_arg { name: "v" type: DT_RESOURCE }
    input_arg { name: "c" type: DT_FLOAT }
    output_arg { name: "y" type: DT_FLOAT }
  }
  node_def { name: "read" op: "ReadVariableOp" input: "v" attr { key: "dtype" value { type: DT_FLOAT } } }
  node_def { name: "mul" op: "Mul" input: "x" input: "read:value:0" attr { key: "T" value { type: DT_FLOAT } } }
  node_def { name: "add" op: "AddV2" input: "mul:z:0" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
  ret { key: "y" value: "add:z:0" }
} }
versions { producer: 1087 min_consumer: 12 }
"""


def message() -> pb.SavedModel:
    """Returns a model with one variable and one function."""
    out = saved_model.new()
    meta = out.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    text_format.Parse(GRAPH, meta.graph_def)
    text_format.Parse(OBJECTS, meta.object_graph_def)
    return out


def write(folder: Path, model: pb.SavedModel | None = None) -> str:
    """Writes a model with its checkpoint; returns the path."""
    path = str(folder / "model")
    saved_model.write(message() if model is None else model, path)
    graph = TrackableObjectGraph()
    root, v = graph.nodes.add(), graph.nodes.add()
    root.children.add(node_id=1, local_name="v")
    v.attributes.add(name="VARIABLE_VALUE", full_name="v", checkpoint_key="v/.ATTRIBUTES/VARIABLE_VALUE")
    os.makedirs(os.path.join(path, "variables"))
    values: dict[str, np.ndarray] = {
        "v/.ATTRIBUTES/VARIABLE_VALUE": np.array([1, 2], np.float32),
        OBJECT_GRAPH: np.array(graph.SerializeToString(), object),
    }
    checkpoints.write(saved_model.variables_path(path), values, "tensorflow")
    return path
