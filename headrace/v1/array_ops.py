"""Creation, shapes, parts and layout of tensors, with TensorFlow 1's names and arguments.

Most are headrace's own functions in the default graph; `named` gives others the arguments of TensorFlow 1. This module
defines the functions that exist only in TensorFlow 1, or behave differently there.
"""

from __future__ import annotations

from typing import Any

from headrace import nest
from headrace.api import arrays, gathering, indexing, reductions, scopes, tensors
from headrace.api.nn import blocks
from headrace.api.sparse_tensor import SparseTensor
from headrace.dtypes import as_dtype
from headrace.errors import ShapeError
from headrace.ir import graph as ir_graph
from headrace.ir.indexed_slices import IndexedSlices
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph

# *** from values ***

constant = named(tensors.constant, "value dtype shape name verify_shape!")
placeholder = in_default_graph(tensors.placeholder)
placeholder_with_default = in_default_graph(tensors.placeholder_with_default)
convert_to_tensor = in_default_graph(tensors.convert_to_tensor)


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor, a variable or a sparse tensor.

    Source: TensorFlow's `tf.is_tensor`.
    """
    return tensors.is_tensor(x) or isinstance(x, SparseTensor)


@in_default_graph
def fingerprint(data: Any, method: Any = "farmhash64", name: str | None = None) -> Any:
    """Returns the hash of each row of a tensor, 8 bytes.

    Args:
      data: the tensor, of numbers or strings.
      method: "farmhash64".
      name: of the operation.

    Source: TensorFlow's `tf.fingerprint`.
    """
    return scopes.builder(data, method).make("Fingerprint", (data, method), {}, name)


def is_symbolic_tensor(tensor: Any) -> bool:
    """Whether an object is a tensor of a graph, or a composite of such.

    Args:
      tensor: the object.

    Source: TensorFlow's `tf.is_symbolic_tensor`.
    """
    return is_tensor(tensor) and any(isinstance(t, ir_graph.Tensor) for t in nest.flatten(tensor))


@in_default_graph
def convert_to_tensor_or_indexed_slices(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """`value` as a tensor; an `IndexedSlices` or `SparseTensor` as it is.

    Raises:
      ValueError: it is one of these, and of another dtype than `dtype`.

    Source: TensorFlow's `tf.convert_to_tensor_or_indexed_slices`.
    """
    if not isinstance(value, (IndexedSlices, SparseTensor)):
        return tensors.convert_to_tensor(value, dtype, name)
    if dtype is not None and as_dtype(dtype).base is not value.dtype.base:
        raise ValueError(
            f"Incompatible tensor conversion requested to `dtype` {as_dtype(dtype).name} for `value` ({value}) with "
            f"dtype {value.dtype.name}."
        )
    return value


identity = in_default_graph(tensors.identity)
identity_n = in_default_graph(tensors.identity_n)
stop_gradient = in_default_graph(tensors.stop_gradient)
ensure_shape = in_default_graph(tensors.ensure_shape)
get_static_value = named(tensors.constant_value, "tensor partial!", "get_static_value")
fill = named(arrays.fill, "dims value name layout!")
zeros = named(arrays.zeros, "shape dtype name layout!")
ones = named(arrays.ones, "shape dtype name layout!")
zeros_like = named(arrays.zeros_like, "tensor=input dtype name optimize!")
ones_like = named(arrays.ones_like, "tensor=input dtype name optimize!")

# *** shapes ***

shape = named(arrays.shape, "input name out_type")
size = named(arrays.size, "input name out_type")
transpose = named(arrays.transpose, "a perm name conjugate")
expand_dims = named(arrays.expand_dims, "input axis name dim=axis")
squeeze = named(arrays.squeeze, "input axis name squeeze_dims=axis")
pad = named(arrays.pad, "tensor paddings mode name constant_values")
reverse_sequence = named(
    arrays.reverse_sequence, "input seq_lengths seq_axis batch_axis name seq_dim=seq_axis batch_dim=batch_axis"
)
shape_n = in_default_graph(arrays.shape_n)
rank = in_default_graph(arrays.rank)
reshape = in_default_graph(arrays.reshape)
broadcast_to = in_default_graph(arrays.broadcast_to)
broadcast_dynamic_shape = in_default_graph(arrays.broadcast_dynamic_shape)
concat = in_default_graph(arrays.concat)
stack = in_default_graph(arrays.stack)
parallel_stack = in_default_graph(arrays.parallel_stack)
unstack = in_default_graph(arrays.unstack)
split = in_default_graph(arrays.split)
tile = in_default_graph(arrays.tile)
repeat = in_default_graph(gathering.repeat)
reverse = in_default_graph(arrays.reverse)
roll = in_default_graph(arrays.roll)
bitcast = in_default_graph(arrays.bitcast)
one_hot = in_default_graph(arrays.one_hot)

# *** blocks of images ***

space_to_depth = named(blocks.space_to_depth, "input block_size name data_format")
depth_to_space = named(blocks.depth_to_space, "input block_size name data_format")
space_to_batch = named(blocks.space_to_batch, "input paddings block_size=block_shape name block_shape")
batch_to_space = named(blocks.batch_to_space, "input crops block_size=block_shape name block_shape")
space_to_batch_nd = in_default_graph(blocks.space_to_batch)
batch_to_space_nd = in_default_graph(blocks.batch_to_space)
required_space_to_batch_paddings = in_default_graph(blocks.required_space_to_batch_paddings)
extract_volume_patches = in_default_graph(blocks.extract_volume_patches)
reverse_v2 = reverse
meshgrid = in_default_graph(arrays.meshgrid)
invert_permutation = in_default_graph(reductions.invert_permutation)

# *** parts ***

gather = named(gathering.gather, "params indices validate_indices name axis batch_dims")
gather_nd = named(gathering.gather_nd, "params indices name batch_dims bad_indices_policy")
scatter_nd = named(gathering.scatter_nd, "indices updates shape bad_indices_policy name")
_SCATTER = "tensor indices updates bad_indices_policy name"
tensor_scatter_nd_add = named(gathering.tensor_scatter_nd_add, _SCATTER)
tensor_scatter_nd_sub = named(gathering.tensor_scatter_nd_sub, _SCATTER)
tensor_scatter_nd_max = named(gathering.tensor_scatter_nd_max, _SCATTER)
tensor_scatter_nd_min = named(gathering.tensor_scatter_nd_min, _SCATTER)
strided_slice = named(
    gathering.strided_slice,
    "input_ begin end strides begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask var name",
)
boolean_mask = named(indexing.boolean_mask, "tensor mask name axis")
tensor_scatter_nd_update = in_default_graph(gathering.tensor_scatter_nd_update)
slice = in_default_graph(gathering.slice)
unique = in_default_graph(gathering.unique)
unique_with_counts = in_default_graph(gathering.unique_with_counts)
setdiff1d = in_default_graph(gathering.setdiff1d)
dynamic_partition = in_default_graph(gathering.dynamic_partition)
dynamic_stitch = in_default_graph(gathering.dynamic_stitch)
sequence_mask = in_default_graph(gathering.sequence_mask)
where_v2 = in_default_graph(gathering.where)
tensor_scatter_update = tensor_scatter_nd_update
tensor_scatter_add = tensor_scatter_nd_add
tensor_scatter_sub = tensor_scatter_nd_sub


@in_default_graph
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Selects elements of `x` where `condition` is true, and of `y` elsewhere.

    Without `x` and `y`, it returns the indices of the true elements.

    Args:
      condition: bools, of the shape of `x`; or a vector, which chooses rows; or a scalar.
      x, y: of the same shape and dtype.
      name: name of the operation; "Select", or "Where", if None.

    Raises:
      ValueError: `x` is given without `y`, or `y` without `x`.

    Source: TensorFlow 1's `tf.where`. TensorFlow 2's, which broadcasts, is `where_v2`.
    """
    if x is None and y is None:
        return gathering.where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return scopes.builder(condition, x, y).make("Select", (condition, x, y), {}, name)


@in_default_graph
def batch_gather(params: Any, indices: Any, name: str | None = None) -> Any:
    """Gathers slices of `params` along the last axis of `indices`.

    All other axes of `indices` are batch axes, which `params` begins with too.

    Source: TensorFlow's `tf.batch_gather`.
    """
    with scopes.name_scope(name, "BatchGather", [params, indices]):
        at = scopes.builder(params, indices).tensor(indices, None, "indices")
        if at.shape is None:
            raise ShapeError(f"batch_gather does not allow indices with unknown shape, got {at!r}")
        return gathering.gather(params, at, batch_dims=len(at.shape) - 1)
