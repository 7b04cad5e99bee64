"""headrace: dataflow programs with control flow.

import headrace as hr

with hr.Graph() as g:
    n = hr.placeholder(hr.int32, ())
    _, total = hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), (0, 0))
with hr.Session(graph=g) as sess:
    print(sess.run(total, {n: 10}))

Outside a graph, ops run at once: `hr.square(3.0)` is a concrete tensor.
"""

# ruff: noqa: F401, I001, RUF022 - the import of operators and ops registers them; the names are laid out in lines
# fmt: off

import typing as _typing

import headrace.ops
import headrace.targets.native.provision
from headrace import dtypes, errors, flags, interchange, public_names as _public_names, step_events, target
from headrace.api import linalg, math, methods, nn, operators, random, raw_ops, scopes, sparse, special, tree
from headrace.api.storage.accumulators import (
    ConditionalAccumulator, ConditionalAccumulatorBase, SparseConditionalAccumulator
)
from headrace.api.annotations import check_types
from headrace.api.arrays import (
    bitcast, broadcast_dynamic_shape, broadcast_static_shape, broadcast_to, concat, expand_dims, fill, meshgrid,
    newaxis, one_hot, ones, ones_like, pad, parallel_stack, rank, reshape, reverse, reverse_sequence, roll, shape,
    shape_n, size, split, squeeze, stack, tile, transpose, unstack, zeros, zeros_like
)
from headrace.api.collectives import (
    all_gather, all_max, all_min, all_prod, all_sum, broadcast, reduce_scatter
)
from headrace.api.cond import case, cond, switch_case
from headrace.api.counting import (
    bincount, bucketize, confusion_matrix, histogram_fixed_width, histogram_fixed_width_bins, nth_element,
    unravel_index
)
from headrace.api.debugging import (
    Assert, Print, assert_all_finite, assert_equal, assert_greater, assert_greater_equal, assert_less,
    assert_less_equal, assert_near, assert_negative, assert_non_negative, assert_non_positive, assert_none_equal,
    assert_positive, assert_rank, assert_rank_at_least, check_numerics, print
)
from headrace.api.tensor_spec import TensorSpec
from headrace.api.functional import foldl, foldr, map_fn, scan
from headrace.api.gathering import (
    dynamic_partition, dynamic_stitch, gather, gather_nd, repeat, scatter_nd, sequence_mask, setdiff1d, slice,
    strided_slice, tensor_scatter_nd_add, tensor_scatter_nd_max, tensor_scatter_nd_min, tensor_scatter_nd_sub,
    tensor_scatter_nd_update, unique, unique_with_counts, where
)
from headrace.api.grouping import group, no_op, tuple
from headrace.api.importing import import_graph_def
from headrace.api.indexing import boolean_mask
from headrace.api.linalg import (
    adjoint, band_part, clip_by_global_norm, clip_by_norm, cross, diag, diag_part, einsum, eye, global_norm,
    l2_normalize, matmul, matrix_transpose, matvec, norm, set_diag, tensor_diag, tensor_diag_part, tensordot
)
from headrace.api.math import (
    abs, accumulate_n, acos, acosh, add, add_n, angle, asin, asinh, atan, atan2, atanh, betainc, bitwise_and,
    bitwise_or, bitwise_xor, cast, ceil, clip_by_value, complex, conj, cos, cosh, digamma, divide, divide_no_nan,
    equal, erf, erfc, erfcinv, erfinv, exp, expm1, floor, floordiv, floormod, greater, greater_equal, igamma,
    igammac, imag, invert, is_finite, is_inf, is_nan, left_shift, less, less_equal, lgamma, log, log1p,
    log_sigmoid, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, mod, multiply,
    multiply_no_nan, ndtri, negative, nextafter, not_equal, polygamma, pow, real, reciprocal, reciprocal_no_nan,
    right_shift, rint, round, rsqrt, saturate_cast, sigmoid, sign, sin, sinh, sqrt, square, squared_difference,
    subtract, tan, tanh, truediv, truncatediv, truncatemod, xdivy, xlog1py, xlogy, zeta
)
from headrace.api.py_func import numpy_function, py_func, py_function
from headrace.api.storage.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue
from headrace.api.reductions import (
    argmax, argmin, count_nonzero, cumprod, cumsum, cumulative_logsumexp, invert_permutation, linspace, range,
    reduce_all, reduce_any, reduce_euclidean_norm, reduce_logsumexp, reduce_max, reduce_mean, reduce_min,
    reduce_prod, reduce_std, reduce_sum, reduce_variance, searchsorted, segment_max, segment_mean, segment_min,
    segment_prod, segment_sum, top_k, unsorted_segment_max, unsorted_segment_mean, unsorted_segment_min,
    unsorted_segment_prod, unsorted_segment_sqrt_n, unsorted_segment_sum
)
from headrace.api.rematerialization import recompute, recompute_grad
from headrace.api.scopes import Graph, colocate_with, control_dependencies, device, name_scope
from headrace.api.sparse_tensor import (
    SparseTensor, SparseTensorSpec, SparseTensorValue, convert_to_tensor_or_sparse_tensor, sparse_placeholder
)
from headrace.api.storage.staging import Barrier, MapStagingArea, StagingArea
from headrace.api.sorting import argsort, sort
from headrace.api.tensor_array import TensorArray
from headrace.api.tensors import (
    constant, constant_value, convert_to_tensor, ensure_shape, identity, identity_n, is_tensor, placeholder,
    placeholder_with_default, prevent_gradient, stop_gradient
)
from headrace.api.variable import Variable, variables_initializer
from headrace.api.while_loop import while_loop
from headrace.dtypes import (
    DType, as_dtype, bfloat16, complex64, complex128, float16, float32, float64, int8, int16, int32, int64, qint8,
    qint16, qint32, quint8, quint16, resource, string, uint8, uint16, uint32, uint64, variant
)
from headrace.dtypes import bool_ as bool
from headrace.eager import EagerBuilder as _EagerBuilder, EagerTensor
from headrace.eager.tape import GradientTape
from headrace.eager.tensor import from_dlpack
from headrace.grad.checks import check_gradients
from headrace.grad.custom import custom_gradient
from headrace.grad.gradients import differentiate as _differentiate, gradients
from headrace.grad.jacobians import hessian, jacobian
from headrace.grad.registered import RegisterGradient
from headrace.grad.transforms import grad, jvp, value_and_grad, vjp
from headrace.ir import graph as _ir_graph, kernel_calls as _kernel_calls
from headrace.ir.graph import Operation, Tensor as SymbolicTensor
from headrace.ir.tensor_type import Tensor
from headrace.ir.indexed_slices import IndexedSlices, IndexedSlicesValue
from headrace.execute.devices import list_devices
from headrace.explain import explain
from headrace.extend import load_plugins, register_device, register_kernel, register_op
from headrace.jit.function import Function, function, jit, run_eagerly, trace
from headrace.jit.transformed import library_function as _library_function
from headrace.interchange.files import read_graph, write_graph
from headrace.interchange.meta_graph import MetaGraph, Signature, export_meta_graph, import_meta_graph
from headrace.place import Cluster, Costs, DeviceModel, Link
from headrace.metadata import NumericsCheck, RunMetadata, RunOptions, SessionStatistics
from headrace.report import report
from headrace.session import Session
from headrace.simulate import simulate
from headrace.vmap.mapping import vmap


def _check_passes(value: str) -> None:
    """Raises ValueError unless all passes that the flag OPTIMIZE names exist."""
    if value not in ("on", "off"):
        from headrace.optimize.pipeline import options_from  # a slow import, which the first session needs too

        options_from(value)


flags.OPTIMIZE.also_check(_check_passes)


def _html(graph: Graph) -> str:
    from headrace.inspect.page import graph_html  # needed by notebooks only

    return graph_html(graph)


def _graph_text(graph: _ir_graph.Graph) -> str:
    from headrace.inspect.program import graph_text  # needed by `str(graph)` only

    return graph_text(graph)


_ir_graph.set_text(_graph_text)


def _address(url: str) -> _typing.Any:
    from headrace.dist.address import Address

    return Address(url)


def _compiled_function(graph: _ir_graph.FuncGraph, resources: _typing.Any) -> _typing.Any:
    from headrace.function_calls import compiled  # needed by datasets only

    return compiled(graph, resources)


target.SCHEMES["headrace"] = _address
_kernel_calls.install(_compiled_function)
scopes.install(
    scopes.Runtime(_EagerBuilder(), Session, interchange.graph_def, _html, _library_function, _differentiate)
)

# Imported on first use: modules that few programs use, or only those that train.
_LATER = {
    "autograph": "headrace.autograph",
    "data": "headrace.api.data",
    "image": "headrace.api.image",
    "initializers": "headrace.api.initializers",
    "io": "headrace.api.io",
    "layers": "headrace.api.layers",
    "lookup": "headrace.api.storage.lookup",
    "onnx": "headrace.onnx",
    "quantization": "headrace.api.quantization",
    "sets": "headrace.api.sparse.sets",
    "signal": "headrace.api.signal",
    "strings": "headrace.api.strings",
    "summary": "headrace.api.summary",
    "profile": "headrace.observe.profile:profile",
    "train": "headrace.train",
    "load": "headrace.saved_model.models:load",
    "save": "headrace.saved_model.models:save",
    "saved_model": "headrace.saved_model",
    "serve": "headrace.serve",
    "cluster": "headrace.dist.launch",
    "breakpoint_page": "headrace.observe.breakpoint_page:breakpoint_page",
    "breakpoint_when": "headrace.observe.breakpoints:breakpoint_when",
    "watch": "headrace.observe.watch:watch",
    "record": "headrace.observe.recording:record",
    # these import sockets
    "ClusterSpec": "headrace.dist.cluster_spec:ClusterSpec",
    "NetworkOptions": "headrace.dist.network:NetworkOptions",
    "Server": "headrace.dist.server:Server",
    "master_service": "headrace.master_service",
}

if _typing.TYPE_CHECKING:
    from headrace import autograph, master_service, onnx, saved_model, serve, train
    from headrace.api import data
    from headrace.api import image, initializers, io, layers, quantization, signal, strings, summary
    from headrace.api.sparse import sets
    from headrace.api.storage import lookup
    from headrace.dist import launch as cluster
    from headrace.dist.cluster_spec import ClusterSpec
    from headrace.dist.network import NetworkOptions
    from headrace.dist.server import Server
    from headrace.observe.breakpoint_page import breakpoint_page
    from headrace.observe.breakpoints import breakpoint_when
    from headrace.observe.watch import watch
    from headrace.observe.recording import record
    from headrace.observe.profile import profile
    from headrace.saved_model.models import load, save

__version__ = "0.1.0"

__all__ = [
    "Assert", "Barrier", "Cluster", "ClusterSpec", "ConditionalAccumulator", "ConditionalAccumulatorBase", "Costs",
    "DType", "DeviceModel", "EagerTensor", "FIFOQueue", "Function", "GradientTape", "Graph", "IndexedSlices",
    "IndexedSlicesValue", "Link", "MapStagingArea", "MetaGraph", "NetworkOptions", "NumericsCheck",
    "Operation", "PaddingFIFOQueue",
    "Print", "PriorityQueue", "QueueBase", "RandomShuffleQueue", "RegisterGradient", "RunMetadata", "RunOptions",
    "Server", "Session", "SessionStatistics", "Signature", "SparseConditionalAccumulator", "SparseTensor",
    "SparseTensorSpec", "SparseTensorValue", "StagingArea", "SymbolicTensor", "Tensor", "TensorArray", "TensorSpec",
    "Variable", "__version__", "abs", "accumulate_n", "acos", "acosh", "add", "add_n", "adjoint", "all_gather",
    "all_max", "all_min", "all_prod", "all_sum", "angle", "argmax", "argmin", "argsort", "as_dtype", "asin", "asinh",
    "assert_all_finite", "assert_equal", "assert_greater", "assert_greater_equal", "assert_less", "assert_less_equal",
    "assert_near", "assert_negative", "assert_non_negative", "assert_non_positive", "assert_none_equal",
    "assert_positive", "assert_rank", "assert_rank_at_least", "atan", "atan2", "atanh", "band_part", "betainc",
    "bfloat16", "bincount", "bitcast", "bitwise_and", "bitwise_or", "bitwise_xor", "bool", "boolean_mask",
    "breakpoint_page", "breakpoint_when", "broadcast",
    "broadcast_dynamic_shape", "broadcast_static_shape", "broadcast_to", "bucketize", "case", "cast", "ceil",
    "check_gradients", "check_numerics", "check_types", "clip_by_global_norm", "clip_by_norm", "clip_by_value",
    "cluster", "colocate_with", "complex", "complex128", "complex64", "concat", "cond", "confusion_matrix", "conj",
    "constant", "constant_value", "control_dependencies", "convert_to_tensor", "convert_to_tensor_or_sparse_tensor",
    "cos", "cosh", "count_nonzero", "cross", "cumprod", "cumsum", "cumulative_logsumexp", "custom_gradient", "data",
    "device",
    "diag", "diag_part", "digamma", "divide", "divide_no_nan", "dtypes", "dynamic_partition", "dynamic_stitch",
    "einsum", "ensure_shape", "equal", "erf", "erfc", "erfcinv", "erfinv", "errors", "exp", "expand_dims", "explain",
    "expm1", "export_meta_graph", "eye", "fill", "flags", "float16", "float32", "float64", "floor", "floordiv",
    "floormod", "foldl", "foldr", "from_dlpack", "function", "gather", "gather_nd", "global_norm", "grad", "gradients",
    "greater", "greater_equal", "group", "hessian", "histogram_fixed_width", "histogram_fixed_width_bins", "identity",
    "identity_n", "igamma", "igammac", "imag", "image", "import_graph_def", "import_meta_graph", "initializers",
    "int16", "int32", "int64", "int8", "invert", "invert_permutation", "io", "is_finite", "is_inf", "is_nan",
    "is_tensor", "jacobian", "jit", "jvp", "l2_normalize", "layers", "left_shift", "less", "less_equal", "lgamma",
    "linalg", "linspace", "list_devices", "load", "load_plugins", "log", "log1p", "log_sigmoid", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lookup", "map_fn", "master_service", "math", "matmul",
    "matrix_transpose", "matvec",
    "maximum",
    "meshgrid", "minimum", "mod", "multiply", "multiply_no_nan", "name_scope", "ndtri", "negative", "newaxis",
    "nextafter", "nn", "no_op",
    "norm", "not_equal", "nth_element", "numpy_function", "one_hot", "ones", "ones_like", "onnx", "pad",
    "parallel_stack",
    "placeholder", "placeholder_with_default", "polygamma", "pow", "prevent_gradient", "print", "profile", "py_func",
    "py_function", "qint16", "qint32", "qint8", "quantization", "quint16", "quint8", "random", "range", "rank",
    "raw_ops", "read_graph", "real", "reciprocal", "reciprocal_no_nan", "recompute", "recompute_grad", "record",
    "reduce_all", "reduce_any", "reduce_euclidean_norm", "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min",
    "reduce_prod", "reduce_scatter", "reduce_std", "reduce_sum", "reduce_variance", "register_device",
    "register_kernel", "register_op", "repeat", "report", "reshape", "resource", "reverse", "reverse_sequence",
    "right_shift", "rint", "roll", "round", "rsqrt", "run_eagerly", "saturate_cast", "save", "saved_model", "scan",
    "scatter_nd",
    "searchsorted", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum", "sequence_mask",
    "serve",
    "set_diag", "setdiff1d", "sets", "shape", "shape_n", "sigmoid", "sign", "simulate", "sin", "sinh", "size", "slice",
    "sort", "sparse", "sparse_placeholder", "special", "split", "sqrt", "square", "squared_difference", "squeeze",
    "stack", "stop_gradient", "strided_slice", "string", "strings", "subtract", "summary", "switch_case", "tan", "tanh",
    "tensor_diag", "tensor_diag_part", "tensor_scatter_nd_add", "tensor_scatter_nd_max", "tensor_scatter_nd_min",
    "tensor_scatter_nd_sub", "tensor_scatter_nd_update", "tensordot", "tile", "top_k", "trace", "train", "transpose",
    "tree", "truediv", "truncatediv", "truncatemod", "tuple", "uint16", "uint32", "uint64", "uint8", "unique",
    "unique_with_counts", "unravel_index", "unsorted_segment_max", "unsorted_segment_mean", "unsorted_segment_min",
    "unsorted_segment_prod", "unsorted_segment_sqrt_n", "unsorted_segment_sum", "unstack", "value_and_grad",
    "variables_initializer", "variant", "vjp", "vmap", "watch", "where", "while_loop", "write_graph", "xdivy",
    "xlog1py", "xlogy", "zeros", "zeros_like", "zeta",
]

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _public_names.of(__name__, __all__, _LATER)
