"""TensorFlow 1's API: `import headrace.v1 as tf`.

A program for TensorFlow 1 runs with this package if it uses the names that docs/reference/v1.md lists. The package adds
to `headrace` an implicit default graph and default sessions, collections, `get_variable` and variable scopes, and
TensorFlow 1's names of arguments and of the results of conditionals and loops.
"""

# ruff: noqa: F401, F403 - the names are for importers of this module

from __future__ import annotations

import sys
from typing import Any

import headrace.api.operators  # gives tensors their operators
from headrace import errors as errors
from headrace.api.tensor_spec import TensorSpec
from headrace.dtypes import QUANTIZED as QUANTIZED_DTYPES
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
    qint8,
    qint16,
    qint32,
    quint8,
    quint16,
    resource,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
    variant,
)  # fmt: skip
from headrace.dtypes import bool_ as bool
from headrace.errors import OpError
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Operation
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.tensor_type import Tensor
from headrace.v1 import (
    bitwise,
    compat,
    debugging,
    dtypes,
    gfile,
    image,
    initializers,
    io,
    layers,
    linalg,
    logging,
    lookup,
    losses,
    manip,
    math,
    metrics,
    nn,
    python_io,
    quantization,
    queue,
    random,
    sets,
    signal,
    sparse,
    spectral,
    strings,
    summary,
    test,
    train,
)
from headrace.v1.array_ops import (
    batch_gather,
    batch_to_space,
    batch_to_space_nd,
    bitcast,
    boolean_mask,
    broadcast_dynamic_shape,
    broadcast_to,
    concat,
    constant,
    convert_to_tensor,
    convert_to_tensor_or_indexed_slices,
    depth_to_space,
    dynamic_partition,
    dynamic_stitch,
    ensure_shape,
    expand_dims,
    extract_volume_patches,
    fill,
    gather,
    gather_nd,
    get_static_value,
    identity,
    identity_n,
    invert_permutation,
    is_tensor,
    meshgrid,
    one_hot,
    ones,
    ones_like,
    pad,
    parallel_stack,
    placeholder,
    placeholder_with_default,
    rank,
    repeat,
    required_space_to_batch_paddings,
    reshape,
    reverse,
    reverse_sequence,
    reverse_v2,
    roll,
    scatter_nd,
    sequence_mask,
    setdiff1d,
    shape,
    shape_n,
    size,
    slice,
    space_to_batch,
    space_to_batch_nd,
    space_to_depth,
    split,
    squeeze,
    stack,
    stop_gradient,
    strided_slice,
    tensor_scatter_add,
    tensor_scatter_nd_add,
    tensor_scatter_nd_max,
    tensor_scatter_nd_min,
    tensor_scatter_nd_sub,
    tensor_scatter_nd_update,
    tensor_scatter_sub,
    tensor_scatter_update,
    tile,
    transpose,
    unique,
    unique_with_counts,
    unstack,
    where,
    where_v2,
    zeros,
    zeros_like,
)  # fmt: skip
from headrace.v1.check_ops import (
    Assert,
    assert_equal,
    assert_greater,
    assert_greater_equal,
    assert_integer,
    assert_less,
    assert_less_equal,
    assert_near,
    assert_negative,
    assert_non_negative,
    assert_non_positive,
    assert_none_equal,
    assert_positive,
    assert_proper_iterable,
    assert_rank,
    assert_rank_at_least,
    assert_rank_in,
    assert_same_float_dtype,
    assert_scalar,
    assert_type,
    check_numerics,
    is_non_decreasing,
    is_numeric_tensor,
    is_strictly_increasing,
    verify_tensor_all_finite,
)  # fmt: skip
from headrace.v1.config import (
    ConfigProto,
    GPUOptions,
    GraphOptions,
    OptimizerOptions,
    RunMetadata,
    RunOptions,
)  # fmt: skip
from headrace.v1.control_flow import (
    case,
    cond,
    foldl,
    foldr,
    map_fn,
    scan,
    switch_case,
    while_loop,
)  # fmt: skip
from headrace.v1.gradient_ops import (
    AggregationMethod,
    NotDifferentiable,
    RegisterGradient,
    UnconnectedGradients,
    custom_gradient,
    grad_pass_through,
    gradients,
    hessians,
    recompute_grad,
)  # fmt: skip
from headrace.v1.graph import (
    Graph,
    GraphKeys,
    add_to_collection,
    add_to_collections,
    executing_eagerly,
    get_collection,
    get_collection_ref,
    get_default_graph,
    get_seed,
    reset_default_graph,
    set_random_seed,
)  # fmt: skip
from headrace.v1.grouping import (
    Print,
    group,
    no_op,
    numpy_function,
    print,
    py_func,
    py_function,
    tuple,
)  # fmt: skip
from headrace.v1.image import extract_image_patches, random_crop
from headrace.v1.initializers import Constant as constant_initializer
from headrace.v1.initializers import GlorotNormal as glorot_normal_initializer
from headrace.v1.initializers import GlorotUniform as glorot_uniform_initializer
from headrace.v1.initializers import Ones as ones_initializer
from headrace.v1.initializers import Orthogonal as orthogonal_initializer
from headrace.v1.initializers import RandomNormal as random_normal_initializer
from headrace.v1.initializers import RandomUniform as random_uniform_initializer
from headrace.v1.initializers import TruncatedNormal as truncated_normal_initializer
from headrace.v1.initializers import UniformUnitScaling as uniform_unit_scaling_initializer
from headrace.v1.initializers import VarianceScaling as variance_scaling_initializer
from headrace.v1.initializers import Zeros as zeros_initializer
from headrace.v1.io import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
    decode_base64,
    decode_compressed,
    decode_csv,
    decode_json_example,
    decode_raw,
    encode_base64,
    parse_example,
    parse_single_example,
    parse_single_sequence_example,
    parse_tensor,
    serialize_tensor,
)  # fmt: skip
from headrace.v1.lookup import initialize_all_tables, tables_initializer
from headrace.v1.math_ops import (
    abs,
    accumulate_n,
    acos,
    acosh,
    add,
    add_n,
    angle,
    arg_max,
    arg_min,
    argmax,
    argmin,
    argsort,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    betainc,
    bincount,
    cast,
    ceil,
    cholesky,
    cholesky_solve,
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    complex,
    confusion_matrix,
    conj,
    cos,
    cosh,
    count_nonzero,
    cross,
    cumprod,
    cumsum,
    diag,
    diag_part,
    digamma,
    div,
    div_no_nan,
    divide,
    einsum,
    equal,
    erf,
    erfc,
    exp,
    expm1,
    eye,
    floor,
    floor_div,
    floordiv,
    floormod,
    global_norm,
    greater,
    greater_equal,
    histogram_fixed_width,
    histogram_fixed_width_bins,
    igamma,
    igammac,
    imag,
    is_finite,
    is_inf,
    is_nan,
    lbeta,
    less,
    less_equal,
    lgamma,
    lin_space,
    linspace,
    log,
    log1p,
    log_sigmoid,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    matmul,
    matrix_band_part,
    matrix_determinant,
    matrix_diag,
    matrix_diag_part,
    matrix_inverse,
    matrix_set_diag,
    matrix_solve,
    matrix_solve_ls,
    matrix_square_root,
    matrix_transpose,
    matrix_triangular_solve,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    norm,
    not_equal,
    polygamma,
    pow,
    qr,
    range,
    real,
    realdiv,
    reciprocal,
    reduce_all,
    reduce_any,
    reduce_logsumexp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    rint,
    round,
    rsqrt,
    saturate_cast,
    scalar_mul,
    searchsorted,
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_sum,
    self_adjoint_eig,
    self_adjoint_eigvals,
    sigmoid,
    sign,
    sin,
    sinh,
    sort,
    sqrt,
    square,
    squared_difference,
    subtract,
    svd,
    tan,
    tanh,
    tensordot,
    to_bfloat16,
    to_complex64,
    to_complex128,
    to_double,
    to_float,
    to_int32,
    to_int64,
    trace,
    truediv,
    truncatediv,
    truncatemod,
    unravel_index,
    unsorted_segment_max,
    unsorted_segment_mean,
    unsorted_segment_min,
    unsorted_segment_prod,
    unsorted_segment_sqrt_n,
    unsorted_segment_sum,
    zeta,
)  # fmt: skip
from headrace.v1.partitioners import create_partitioned_variables as create_partitioned_variables
from headrace.v1.partitioners import fixed_size_partitioner as fixed_size_partitioner
from headrace.v1.partitioners import min_max_variable_partitioner as min_max_variable_partitioner
from headrace.v1.partitioners import variable_axis_size_partitioner as variable_axis_size_partitioner
from headrace.v1.plain_ops import (
    approx_top_k,
    fftnd,
    guarantee_const,
    ifftnd,
    irfftnd,
    quantized_concat,
    ragged_fill_empty_rows,
    ragged_fill_empty_rows_grad,
    rfftnd,
    timestamp,
)  # fmt: skip
from headrace.v1.quantization import (
    dequantize,
    fake_quant_with_min_max_args,
    fake_quant_with_min_max_args_gradient,
    fake_quant_with_min_max_vars,
    fake_quant_with_min_max_vars_gradient,
    fake_quant_with_min_max_vars_per_channel,
    fake_quant_with_min_max_vars_per_channel_gradient,
    quantize,
    quantize_v2,
)  # fmt: skip
from headrace.v1.queue import (
    ConditionalAccumulator,
    ConditionalAccumulatorBase,
    FIFOQueue,
    PaddingFIFOQueue,
    PriorityQueue,
    QueueBase,
    RandomShuffleQueue,
    SparseConditionalAccumulator,
)  # fmt: skip
from headrace.v1.random import (
    multinomial,
    random_gamma,
    random_normal,
    random_poisson,
    random_shuffle,
    random_uniform,
    truncated_normal,
)  # fmt: skip
from headrace.v1.readers import *
from headrace.v1.scoping import (
    colocate_with,
    container,
    control_dependencies,
    device,
    import_graph_def,
    init_scope,
    name_scope,
    op_scope,
)  # fmt: skip
from headrace.v1.session import (
    InteractiveSession,
    Session,
    get_default_session,
)  # fmt: skip
from headrace.v1.signal import fft, fft2d, fft3d, ifft, ifft2d, ifft3d
from headrace.v1.sparse import (
    SparseTensor,
    SparseTensorSpec,
    SparseTensorValue,
    convert_to_tensor_or_sparse_tensor,
    deserialize_many_sparse,
    serialize_many_sparse,
    serialize_sparse,
    sparse_to_dense,
)
from headrace.v1.sparse import add as sparse_add
from headrace.v1.sparse import concat as sparse_concat
from headrace.v1.sparse import fill_empty_rows as sparse_fill_empty_rows
from headrace.v1.sparse import mask as sparse_mask
from headrace.v1.sparse import maximum as sparse_maximum
from headrace.v1.sparse import merge as sparse_merge
from headrace.v1.sparse import minimum as sparse_minimum
from headrace.v1.sparse import placeholder as sparse_placeholder
from headrace.v1.sparse import reduce_max as sparse_reduce_max
from headrace.v1.sparse import reduce_max_sparse as sparse_reduce_max_sparse
from headrace.v1.sparse import reduce_sum as sparse_reduce_sum
from headrace.v1.sparse import reduce_sum_sparse as sparse_reduce_sum_sparse
from headrace.v1.sparse import reorder as sparse_reorder
from headrace.v1.sparse import reset_shape as sparse_reset_shape
from headrace.v1.sparse import reshape as sparse_reshape
from headrace.v1.sparse import retain as sparse_retain
from headrace.v1.sparse import segment_mean as sparse_segment_mean
from headrace.v1.sparse import segment_sqrt_n as sparse_segment_sqrt_n
from headrace.v1.sparse import segment_sum as sparse_segment_sum
from headrace.v1.sparse import slice as sparse_slice
from headrace.v1.sparse import softmax as sparse_softmax
from headrace.v1.sparse import sparse_dense_matmul as sparse_tensor_dense_matmul
from headrace.v1.sparse import split as sparse_split
from headrace.v1.sparse import to_dense as sparse_tensor_to_dense
from headrace.v1.sparse import to_indicator as sparse_to_indicator
from headrace.v1.sparse import transpose as sparse_transpose
from headrace.v1.strings import as_string, reduce_join, regex_replace, string_split, substr
from headrace.v1.strings import join as string_join
from headrace.v1.strings import strip as string_strip
from headrace.v1.strings import to_hash_bucket as string_to_hash_bucket
from headrace.v1.strings import to_hash_bucket_fast as string_to_hash_bucket_fast
from headrace.v1.strings import to_hash_bucket_strong as string_to_hash_bucket_strong
from headrace.v1.strings import to_number as string_to_number
from headrace.v1.template import make_template
from headrace.v1.tensor_array import TensorArray
from headrace.v1.tensor_shape import Dimension, TensorShape, broadcast_static_shape
from headrace.v1.tensor_shape import dimension_at_index as dimension_at_index
from headrace.v1.tensor_shape import dimension_value as dimension_value
from headrace.v1.variable_scopes import (
    AUTO_REUSE,
    VariableScope,
    get_variable_scope,
    variable_op_scope,
    variable_scope,
)  # fmt: skip
from headrace.v1.variable_store import get_local_variable, get_variable, no_regularizer
from headrace.v1.variables import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    all_variables,
    assert_variables_initialized,
    assign,
    assign_add,
    assign_sub,
    count_up_to,
    disable_resource_variables,
    enable_resource_variables,
    global_variables,
    global_variables_initializer,
    initialize_all_variables,
    initialize_local_variables,
    initialize_variables,
    is_variable_initialized,
    local_variables,
    local_variables_initializer,
    model_variables,
    moving_average_variables,
    report_uninitialized_variables,
    resource_variables_enabled,
    scatter_add,
    scatter_div,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
    scatter_update,
    trainable_variables,
    variables_initializer,
)  # fmt: skip

__version__ = VERSION = "1.15.0"  # the version of TensorFlow whose API this is

half, double = float16, float64
newaxis = None
NoGradient = no_gradient = NotDifferentiable
compat.v1 = sys.modules[__name__]  # type: ignore[attr-defined]


def disable_v2_behavior() -> None:
    """Does nothing: there is no TensorFlow 2 behaviour here.

    Source: TensorFlow's `tf.disable_v2_behavior`.
    """


executing_eagerly_outside_functions = executing_eagerly


def control_flow_v2_enabled() -> Any:
    """False: control flow has TensorFlow 1's names. Source: TensorFlow's `tf.control_flow_v2_enabled`."""
    return False


disable_eager_execution = disable_control_flow_v2 = disable_v2_behavior
disable_v2_tensorshape = disable_tensor_equality = disable_v2_behavior

# The messages of the wire format, which take long to import: on first use.
_MESSAGES = (
    "AttrValue", "Event", "GraphDef", "HistogramProto", "MetaGraphDef", "NameAttrList", "NodeDef", "SessionLog",
    "Summary", "SummaryMetadata",
)  # fmt: skip
_LATER = {"GradientTape": "gradients of what runs at once are a later step; tf.gradients differentiates graphs"}


def __getattr__(name: str) -> Any:
    if name in _MESSAGES:
        from headrace import pb

        return getattr(pb, name)
    why = f": {_LATER[name]}" if name in _LATER else ""
    raise AttributeError(
        f"headrace.v1 has no {name!r}{why}; docs/reference/v1.md lists what it has of TensorFlow 1's names"
    )
