"""The wire schema: TensorFlow's graph messages, field for field, in a proto package of our own.

`headrace.pb.GraphDef` reads and writes the same bytes as TensorFlow's, but is another Python class, registered under
another name (`headrace.pb.GraphDef`), so that `import tensorflow` and `import headrace` live in one process, in either
order. To pass a graph between the two, pass bytes:

>>> from headrace import pb
>>> g = pb.GraphDef(node=[pb.NodeDef(name="x", op="Placeholder")])
>>> g.node[0].attr["dtype"].type = pb.DT_FLOAT
>>> pb.GraphDef.FromString(g.SerializeToString()) == g
True

The `*_pb2.py` and `*_pb2.pyi` files are generated from the `*.proto` files beside them by `make protos`; do not edit
them. `tests/conformance/test_wire_schema.py` compares the schema with an installed TensorFlow's.

Only `headrace.ir` uses this package: above it a graph is an `ir.Graph`.
"""

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

__all__ = [
    "AttrValue",
    "DataType",
    "FullTypeDef",
    "FullTypeId",
    "FunctionDef",
    "FunctionDefLibrary",
    "GradientDef",
    "GraphDebugInfo",
    "GraphDef",
    "NameAttrList",
    "NodeDef",
    "OpDef",
    "OpDeprecation",
    "OpList",
    "RegisteredGradient",
    "ResourceHandleProto",
    "SerializedDType",
    "TensorProto",
    "TensorShapeProto",
    "VariantTensorDataProto",
    "VersionDef",
]
__all__ += DataType.keys()
