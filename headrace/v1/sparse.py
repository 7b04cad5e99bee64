"""TensorFlow 1's `tf.sparse`.

`headrace.v1` also has most of its functions under separate names (`tf.sparse_add`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import nest, public_names
from headrace.api import scopes, sparse, sparse_tensor
from headrace.api.sparse import arithmetic as sparse_math
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph
from headrace.v1.queue import SparseConditionalAccumulator as SparseConditionalAccumulator
from headrace.v1.session import session_for
from headrace.v1.tensor_shape import TensorShape

SparseTensorSpec = sparse_tensor.SparseTensorSpec
SparseTensorValue = sparse_tensor.SparseTensorValue


class _Every(type):
    """Metaclass: every sparse tensor is an instance of `SparseTensor`.

    A call of the class makes a tensor like those of all other functions.
    """

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, sparse_tensor.SparseTensor)

    @in_default_graph
    def __call__(cls, indices: Any, values: Any, dense_shape: Any) -> sparse_tensor.SparseTensor:
        return sparse_tensor.SparseTensor(indices, values, dense_shape)


class SparseTensor(sparse_tensor.SparseTensor, metaclass=_Every):
    """A tensor of which only some elements are there. See `headrace.SparseTensor`.

    Source: TensorFlow's `tf.SparseTensor`.
    """


def _get_shape(self: sparse_tensor.SparseTensor) -> TensorShape:
    """Static shape, a `TensorShape`."""
    return TensorShape(self.shape)


def _eval(self: sparse_tensor.SparseTensor, feed_dict: Any = None, session: Any = None) -> Any:
    """Its value, a `SparseTensorValue`, in the default session if none is given."""
    return session_for(self, self.graph, session, "eval").run(self, feed_dict)


sparse_tensor.SparseTensor.get_shape = _get_shape  # type: ignore[attr-defined]
sparse_tensor.SparseTensor.eval = _eval  # type: ignore[attr-defined]

placeholder = in_default_graph(sparse_tensor.sparse_placeholder)
from_dense = in_default_graph(sparse.from_dense)
to_dense = in_default_graph(sparse.to_dense)
to_indicator = in_default_graph(sparse.to_indicator)
merge = in_default_graph(sparse.merge)
eye = in_default_graph(sparse.eye)
reorder = in_default_graph(sparse.reorder)
reshape = in_default_graph(sparse.reshape)
reset_shape = in_default_graph(sparse.reset_shape)
expand_dims = in_default_graph(sparse.expand_dims)
transpose = in_default_graph(sparse.transpose)
slice = in_default_graph(sparse.slice)
retain = in_default_graph(sparse.retain)
fill_empty_rows = in_default_graph(sparse.fill_empty_rows)
mask = in_default_graph(sparse.mask)
cross = in_default_graph(sparse.cross)
cross_hashed = in_default_graph(sparse.cross_hashed)
maximum = in_default_graph(sparse.maximum)
minimum = in_default_graph(sparse.minimum)
softmax = in_default_graph(sparse.softmax)
sparse_dense_matmul = matmul = in_default_graph(sparse.sparse_dense_matmul)
bincount = in_default_graph(sparse.bincount)
add = named(sparse.add, "a b threshold thresh=threshold", "sparse.add")
concat = named(
    sparse.concat,
    "axis sp_inputs name expand_nonconcat_dim=expand_nonconcat_dims concat_dim=axis expand_nonconcat_dims",
    "sparse.concat",
)
split = named(sparse.split, "keyword_required=keyword sp_input num_split axis name split_dim=axis", "sparse.split")
_AXES = "sp_input axis keepdims reduction_axes=axis keep_dims=keepdims"
reduce_sum = named(sparse.reduce_sum, _AXES, "sparse.reduce_sum")
reduce_max = named(sparse.reduce_max, _AXES, "sparse.reduce_max")
_SEGMENTS = "data indices segment_ids name num_segments sparse_gradient"
segment_sum = named(sparse_math.segment_sum, _SEGMENTS, "sparse.segment_sum")
segment_mean = named(sparse_math.segment_mean, _SEGMENTS, "sparse.segment_mean")
segment_sqrt_n = named(sparse_math.segment_sqrt_n, _SEGMENTS, "sparse.segment_sqrt_n")


def reduce_sum_sparse(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> Any:
    """The sum of the elements that are there, along axes: a sparse tensor.

    Source: TensorFlow's `tf.sparse.reduce_sum_sparse`.
    """
    return _sparse_reduction(sparse.reduce_sum, sp_input, axis, keepdims, reduction_axes, keep_dims)


def reduce_max_sparse(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> Any:
    """The greatest of the elements that are there, along axes: a sparse tensor.

    Source: TensorFlow's `tf.sparse.reduce_max_sparse`.
    """
    return _sparse_reduction(sparse.reduce_max, sp_input, axis, keepdims, reduction_axes, keep_dims)


@in_default_graph
def _sparse_reduction(f: Any, sp_input: Any, axis: Any, keepdims: Any, reduction_axes: Any, keep_dims: Any) -> Any:
    for names, old, new in (("axis", reduction_axes, axis), ("keepdims", keep_dims, keepdims)):
        if old is not None and new is not None:
            raise ValueError(f"Cannot specify both '{names}' and its older name")
    axis = reduction_axes if axis is None else axis
    return f(sp_input, axis, keep_dims if keepdims is None else keepdims, output_is_sparse=True)


# *** as strings, and older names ***


@in_default_graph
def serialize_sparse(sp_input: Any, name: str | None = None, out_type: Any = "string") -> Any:
    """A sparse tensor as a vector of three strings, its parts.

    Source: TensorFlow's `tf.serialize_sparse`.
    """
    parts = nest.flatten(sparse_tensor.as_sparse(sp_input))
    return scopes.builder(*parts).make("SerializeSparse", parts, {"out_type": out_type}, name)


@in_default_graph
def serialize_many_sparse(sp_input: Any, name: str | None = None, out_type: Any = "string") -> Any:
    """Serializes each element of the first axis as a row of three strings.

    Source: TensorFlow's `tf.serialize_many_sparse`.
    """
    parts = nest.flatten(sparse_tensor.as_sparse(sp_input))
    return scopes.builder(*parts).make("SerializeManySparse", parts, {"out_type": out_type}, name)


@in_default_graph
def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> Any:
    """The sparse tensor of which `serialize_many_sparse` made strings.

    Args:
      serialized_sparse: the strings, [n, 3].
      dtype: of its values.
      rank: its rank, if that is known.
      name: of the operation.

    Source: TensorFlow's `tf.deserialize_many_sparse`.
    """
    b = scopes.builder(serialized_sparse)
    indices, values, whole = b.make("DeserializeManySparse", (serialized_sparse,), {"dtype": dtype}, name)
    indices.refine((None, rank))
    whole.refine((rank,))
    return sparse_tensor.SparseTensor(indices, values, whole)


@in_default_graph
def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Any:
    """A tensor with some values in some places, and `default_value` in all others.

    Args:
      sparse_indices: the places: a scalar, a vector, or a matrix with one in each row.
      output_shape: the shape, an int vector.
      sparse_values: the values: a vector, or a scalar for all places.
      default_value: a scalar.
      validate_indices: whether indices that are not in order, or come twice, are an error.
      name: of the operation.

    Source: TensorFlow's `tf.sparse_to_dense`.
    """
    args = (sparse_indices, output_shape, sparse_values, default_value)
    return scopes.builder(*args).make("SparseToDense", args, {"validate_indices": validate_indices}, name)


convert_to_tensor_or_sparse_tensor = in_default_graph(sparse_tensor.convert_to_tensor_or_sparse_tensor)


@in_default_graph
def edit_distance(hypothesis: Any, truth: Any, normalize: bool = True, name: str = "edit_distance") -> Any:
    """Numbers of insertions, deletions and replacements that turn hypotheses into truths.

    Args:
      hypothesis, truth: sparse tensors with a sequence along the last axis, of one dtype.
      normalize: whether a number is divided by the length of its truth.
      name: name of the operation.

    Returns:
      The numbers, without the last axis.

    Raises:
      TypeError: an argument is not sparse.

    Source: TensorFlow's `tf.edit_distance`.
    """
    for given in (hypothesis, truth):
        if not isinstance(given, (sparse_tensor.SparseTensor, sparse_tensor.SparseTensorValue)):
            raise TypeError(f"edit_distance takes sparse tensors, got {given!r} ({type(given).__name__})")
    inputs = [part for x in (hypothesis, truth) for part in (x.indices, x.values, x.dense_shape)]
    return scopes.builder(*inputs).make("EditDistance", inputs, {"normalize": normalize}, name)


# fmt: off
__all__ = [
    "SparseConditionalAccumulator", "SparseTensor", "SparseTensorSpec", "SparseTensorValue", "add", "bincount",
    "concat", "convert_to_tensor_or_sparse_tensor", "cross", "cross_hashed", "deserialize_many_sparse", "expand_dims",
    "eye", "fill_empty_rows", "from_dense", "mask", "matmul", "maximum", "merge", "minimum", "placeholder",
    "reduce_max", "reduce_max_sparse", "reduce_sum", "reduce_sum_sparse", "reorder", "reset_shape", "reshape", "retain",
    "segment_mean", "segment_sqrt_n", "segment_sum", "serialize_many_sparse", "serialize_sparse", "slice", "softmax",
    "sparse_dense_matmul", "sparse_tensor", "sparse_to_dense", "split", "to_dense", "to_indicator", "transpose",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
