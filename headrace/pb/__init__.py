"""Wire schema: TensorFlow's graph messages, field for field, in a separate proto package.

`headrace.pb.GraphDef` reads and writes the same bytes as TensorFlow's, but is another Python class, registered under
another name (`headrace.pb.GraphDef`), so that `import tensorflow` and `import headrace` live in one process, in either
order. To pass a graph between the two, pass bytes:

>>> from headrace import pb
>>> g = pb.GraphDef(node=[pb.NodeDef(name="x", op="Placeholder")])
>>> g.node[0].attr["dtype"].type = pb.DT_FLOAT
>>> pb.GraphDef.FromString(g.SerializeToString()) == g
True

The `*_pb2.py` and `*_pb2.pyi` files are generated from the `*.proto` files of this folder by `make protos`; do not edit
them. `tests/conformance/test_wire_schema.py` compares the schema with an installed TensorFlow's.

Only `headrace.ir`, `headrace.files`, `headrace.interchange` and `headrace.master_service` use this package: elsewhere a
graph is an `ir.Graph`, an example of training data a dictionary of arrays (`ir.examples`), and a checkpoint what
`files` makes of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.pb.attr_value_pb2 import AttrValue, NameAttrList
from headrace.pb.full_type_pb2 import FullTypeDef, FullTypeId
from headrace.pb.function_pb2 import FunctionDef, FunctionDefLibrary, GradientDef, RegisteredGradient
from headrace.pb.graph_debug_info_pb2 import GraphDebugInfo
from headrace.pb.graph_pb2 import GraphDef
from headrace.pb.node_def_pb2 import NodeDef
from headrace.pb.op_def_pb2 import OpDef, OpDeprecation, OpList
from headrace.pb.resource_handle_pb2 import ResourceHandleProto
from headrace.pb.tensor_pb2 import TensorProto, VariantTensorDataProto
from headrace.pb.tensor_shape_pb2 import TensorShapeProto

# DataType and its values: DT_FLOAT, DT_FLOAT_REF, ... (67 of them, so by star).
from headrace.pb.types_pb2 import *  # noqa: F403
from headrace.pb.types_pb2 import DataType, SerializedDType
from headrace.pb.versions_pb2 import VersionDef

if TYPE_CHECKING:
    from headrace.pb.checkpoint_state_pb2 import CheckpointState
    from headrace.pb.cluster_pb2 import ClusterDef, JobDef
    from headrace.pb.config_pb2 import (
        CallableOptions,
        ConfigProto,
        GPUOptions,
        GraphOptions,
        OptimizerOptions,
        RunMetadata,
        RunOptions,
    )
    from headrace.pb.cost_graph_pb2 import CostGraphDef
    from headrace.pb.device_attributes_pb2 import DeviceAttributes
    from headrace.pb.event_pb2 import Event, LogMessage, SessionLog
    from headrace.pb.example_pb2 import Example, SequenceExample
    from headrace.pb.feature_pb2 import BytesList, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List
    from headrace.pb.histogram_pb2 import HistogramProto
    from headrace.pb.meta_graph_pb2 import AssetFileDef, CollectionDef, MetaGraphDef, SignatureDef, TensorInfo
    from headrace.pb.named_tensor_pb2 import NamedTensorProto
    from headrace.pb.queue_runner_pb2 import QueueRunnerDef
    from headrace.pb.rewriter_config_pb2 import RewriterConfig
    from headrace.pb.saved_model_pb2 import SavedModel
    from headrace.pb.saved_tensor_slice_pb2 import SavedSlice, SavedSliceMeta, SavedTensorSliceMeta, SavedTensorSlices
    from headrace.pb.saver_pb2 import SaverDef
    from headrace.pb.step_stats_pb2 import StepStats
    from headrace.pb.summary_pb2 import Summary, SummaryMetadata
    from headrace.pb.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto
    from headrace.pb.tensor_slice_pb2 import TensorSliceProto
    from headrace.pb.tensorflow_server_pb2 import ServerDef
    from headrace.pb.tfprof_log_pb2 import OpLogProto
    from headrace.pb.tfprof_output_pb2 import AdviceProto, GraphNodeProto, MultiGraphNodeProto
    from headrace.pb.variable_pb2 import SaveSliceInfoDef, VariableDef

__all__ = [
    "AdviceProto",
    "AssetFileDef",
    "AttrValue",
    "BundleEntryProto",
    "BundleHeaderProto",
    "BytesList",
    "CallableOptions",
    "CheckpointState",
    "ClusterDef",
    "CollectionDef",
    "ConfigProto",
    "CostGraphDef",
    "DataType",
    "DeviceAttributes",
    "Event",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "FullTypeDef",
    "FullTypeId",
    "FunctionDef",
    "FunctionDefLibrary",
    "GPUOptions",
    "GradientDef",
    "GraphDebugInfo",
    "GraphDef",
    "GraphNodeProto",
    "GraphOptions",
    "HistogramProto",
    "Int64List",
    "JobDef",
    "LogMessage",
    "MetaGraphDef",
    "MultiGraphNodeProto",
    "NameAttrList",
    "NamedTensorProto",
    "NodeDef",
    "OpDef",
    "OpDeprecation",
    "OpList",
    "OpLogProto",
    "OptimizerOptions",
    "QueueRunnerDef",
    "RegisteredGradient",
    "ResourceHandleProto",
    "RewriterConfig",
    "RunMetadata",
    "RunOptions",
    "SaveSliceInfoDef",
    "SavedModel",
    "SavedSlice",
    "SavedSliceMeta",
    "SavedTensorSliceMeta",
    "SavedTensorSlices",
    "SaverDef",
    "SequenceExample",
    "SerializedDType",
    "ServerDef",
    "SessionLog",
    "SignatureDef",
    "StepStats",
    "Summary",
    "SummaryMetadata",
    "TensorInfo",
    "TensorProto",
    "TensorShapeProto",
    "TensorSliceProto",
    "VariableDef",
    "VariantTensorDataProto",
    "VersionDef",
]
__all__ += DataType.keys()

# Messages of model files, of data records and of sessions are loaded on first use.
_LATER = {
    "AdviceProto": "tfprof_output",
    "AssetFileDef": "meta_graph",
    "BundleEntryProto": "tensor_bundle",
    "BundleHeaderProto": "tensor_bundle",
    "BytesList": "feature",
    "CallableOptions": "config",
    "CheckpointState": "checkpoint_state",
    "ClusterDef": "cluster",
    "CollectionDef": "meta_graph",
    "ConfigProto": "config",
    "DeviceAttributes": "device_attributes",
    "CostGraphDef": "cost_graph",
    "Event": "event",
    "Example": "example",
    "Feature": "feature",
    "FeatureList": "feature",
    "FeatureLists": "feature",
    "Features": "feature",
    "FloatList": "feature",
    "GPUOptions": "config",
    "GraphNodeProto": "tfprof_output",
    "GraphOptions": "config",
    "HistogramProto": "histogram",
    "Int64List": "feature",
    "JobDef": "cluster",
    "LogMessage": "event",
    "MetaGraphDef": "meta_graph",
    "MultiGraphNodeProto": "tfprof_output",
    "NamedTensorProto": "named_tensor",
    "OpLogProto": "tfprof_log",
    "OptimizerOptions": "config",
    "QueueRunnerDef": "queue_runner",
    "RewriterConfig": "rewriter_config",
    "RunMetadata": "config",
    "RunOptions": "config",
    "SaveSliceInfoDef": "variable",
    "SavedModel": "saved_model",
    "SavedSlice": "saved_tensor_slice",
    "SavedSliceMeta": "saved_tensor_slice",
    "SavedTensorSliceMeta": "saved_tensor_slice",
    "SavedTensorSlices": "saved_tensor_slice",
    "SaverDef": "saver",
    "SequenceExample": "example",
    "ServerDef": "tensorflow_server",
    "SessionLog": "event",
    "SignatureDef": "meta_graph",
    "StepStats": "step_stats",
    "Summary": "summary",
    "SummaryMetadata": "summary",
    "TensorInfo": "meta_graph",
    "TensorSliceProto": "tensor_slice",
    "VariableDef": "variable",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}_pb2"), name)
    globals()[name] = found
    return found
