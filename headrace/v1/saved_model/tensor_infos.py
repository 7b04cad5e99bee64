"""TensorFlow 1's `tf.saved_model.utils`: tensors as `TensorInfo` messages, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import pb
from headrace.errors import UnimplementedError
from headrace.ir.serial.attrs import encode_shape
from headrace.v1.graph import Graph, get_default_graph
from headrace.v1.sparse import SparseTensor

if TYPE_CHECKING:
    from headrace.pb import TensorInfo

_RAGGED = "RaggedTensorSpec"


def build_tensor_info(tensor: Any) -> TensorInfo:
    """Returns the description of a tensor, variable, `SparseTensor` or `RaggedTensor` of a graph.

    Args:
      tensor: the tensor.

    Raises:
      RuntimeError: the tensor is a value of eager execution.
      TypeError: the argument is no tensor.

    Source: TensorFlow's `tf.saved_model.build_tensor_info`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     info = tf.saved_model.build_tensor_info(tf.placeholder(tf.float32, (None, 2), name="x"))
      >>> info.name, info.dtype, [d.size for d in info.tensor_shape.dim]
      ('x:0', 1, [-1, 2])
    """
    from headrace.v1.ragged.ragged_tensor import RaggedTensor

    if isinstance(tensor, RaggedTensor):
        return _of_ragged(tensor)
    if not hasattr(tensor, "dtype") or not hasattr(tensor, "shape"):
        raise TypeError(f"build_tensor_info takes a tensor of a graph, got {tensor!r} ({type(tensor).__name__})")
    if not hasattr(tensor, "graph"):
        raise RuntimeError("`build_tensor_info` is not supported in eager execution: its argument must be in a graph")
    dtype, shape = tensor.dtype.base.number, encode_shape(tensor.shape)
    if not isinstance(tensor, SparseTensor):
        return pb.TensorInfo(name=tensor.name, dtype=dtype, tensor_shape=shape)
    parts = pb.TensorInfo.CooSparse(
        values_tensor_name=tensor.values.name,
        indices_tensor_name=tensor.indices.name,
        dense_shape_tensor_name=tensor.dense_shape.name,
    )
    return pb.TensorInfo(coo_sparse=parts, dtype=dtype, tensor_shape=shape)


def _of_ragged(tensor: Any) -> TensorInfo:
    from headrace.pb import struct_pb2

    splits = tensor.nested_row_splits
    spec = struct_pb2.TypeSpecProto(
        type_spec_class=struct_pb2.TypeSpecProto.RAGGED_TENSOR_SPEC,
        type_spec_class_name=_RAGGED,
        num_flat_components=1 + len(splits),
    )
    state = spec.type_state.tuple_value.values
    shape = tensor.shape
    state.add().tensor_shape_value.CopyFrom(encode_shape(None if shape.ndims is None else shape.as_list()))
    state.add().tensor_dtype_value = tensor.dtype.number
    state.add().int64_value = len(splits)
    state.add().tensor_dtype_value = splits[0].dtype.number
    out = pb.TensorInfo()
    out.composite_tensor.type_spec.CopyFrom(spec)
    out.composite_tensor.components.extend(map(build_tensor_info, (tensor.flat_values, *splits)))
    return out


def get_tensor_from_tensor_info(
    tensor_info: TensorInfo, graph: Graph | None = None, import_scope: str | None = None
) -> Any:
    """Returns the tensor, `SparseTensor` or `RaggedTensor` that a message describes.

    Args:
      tensor_info: the message.
      graph: the graph of the tensor. None: the default graph.
      import_scope: scope to add to the names of the message.

    Raises:
      KeyError: the graph has no tensor of a name.
      ValueError: the message describes none.
      UnimplementedError: it describes a composite tensor of another class.

    Source: TensorFlow's `tf.saved_model.get_tensor_from_tensor_info`.
    """
    from headrace.v1.ragged.ragged_tensor import RaggedTensor

    into = get_default_graph() if graph is None else graph

    def find(name: str) -> Any:
        return into.get_tensor_by_name(f"{import_scope}/{name}" if import_scope else name)

    kind = tensor_info.WhichOneof("encoding")
    if kind == "name":
        return find(tensor_info.name)
    if kind == "coo_sparse":
        sparse = tensor_info.coo_sparse
        names = sparse.indices_tensor_name, sparse.values_tensor_name, sparse.dense_shape_tensor_name
        return SparseTensor(*map(find, names))
    if kind == "composite_tensor":
        found = tensor_info.composite_tensor
        if found.type_spec.type_spec_class_name != _RAGGED or len(found.components) < 2:
            raise UnimplementedError(
                f"a composite tensor of class {found.type_spec.type_spec_class_name!r} with {len(found.components)} "
                "parts: headrace has sparse and ragged ones; `get_tensor_by_name` finds the parts"
            )
        values, *splits = (find(part.name) for part in found.components)
        return RaggedTensor.from_nested_row_splits(values, splits, validate=False)
    raise ValueError(
        f"Invalid TensorInfo.encoding: {kind}. Expected `coo_sparse`, `composite_tensor`, or `name` for a dense tensor."
    )


__all__ = ["build_tensor_info", "get_tensor_from_tensor_info"]
