"""headrace: dataflow programs with control flow.

import headrace as hr

with hr.Graph() as g:
    hr.import_graph_def(open("model.pb", "rb").read(), name="")
with hr.Session(graph=g) as sess:
    print(sess.run("y:0", {"x:0": 3.0}))
"""

import headrace.ops  # noqa: F401 - registers the op types
from headrace import dtypes, errors, flags, trace
from headrace.build.importing import import_graph_def
from headrace.build.scopes import Graph
from headrace.dtypes import (
    DType,
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    resource,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
    variant,
)
from headrace.dtypes import bool_ as bool
from headrace.ir.graph import Operation, Tensor
from headrace.session import RunOptions, Session

__version__ = "0.1.0"

__all__ = [
    "DType", "Graph", "Operation", "RunOptions", "Session", "Tensor", "__version__", "as_dtype", "bfloat16", "bool",
    "complex64", "complex128", "dtypes", "errors", "flags", "float16", "float32", "float64", "import_graph_def", "int8",
    "int16", "int32", "int64", "resource", "string", "trace", "uint8", "uint16", "uint32", "uint64", "variant",
]  # fmt: skip
