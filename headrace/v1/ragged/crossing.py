"""Crosses of features with rows of different lengths: `tf.ragged.cross` and `cross_hashed`."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api import scopes
from headrace.api.sparse_tensor import SparseTensor, SparseTensorValue, as_sparse
from headrace.v1 import array_ops, math_ops
from headrace.v1.ragged.ragged_tensor import RaggedTensor, RaggedTensorValue
from headrace.v1.scoping import name_scope

_KEY = 0xDECAFCAFFE  # TensorFlow's key of the hashes


def cross(inputs: Any, name: str | None = None) -> Any:
    """Makes rows of every combination of one element of each input, joined by "_X_".

    Args:
      inputs: a list of tensors, sparse and ragged tensors of rank 2 with the same number of rows: strings or integers.
      name: of the operation.

    Returns:
      A ragged tensor of strings.

    Raises:
      TypeError: the inputs are no list.
      ValueError: an input has another dtype, or a ragged rank that is not 1.

    Source: TensorFlow's `tf.ragged.cross`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     r = tf.ragged.cross([tf.ragged.constant([["a"], ["b", "c"]]), [["d"], ["e"]]])
      ...     sess.run(r).to_list()
      [[b'a_X_d'], [b'b_X_e', b'c_X_e']]
    """
    return _crossed(inputs, name, hashed_output=False, num_buckets=0, hash_key=_KEY)


def cross_hashed(inputs: Any, num_buckets: int = 0, hash_key: int | None = None, name: str | None = None) -> Any:
    """Makes rows of the hash of every combination of one element of each input.

    Args:
      inputs, name: see `cross`.
      num_buckets: the hashes are below this number; 0: any int64.
      hash_key: key of the hashes; None: TensorFlow's.

    Returns:
      A ragged tensor of int64.

    Source: TensorFlow's `tf.ragged.cross_hashed`.
    """
    key = _KEY if hash_key is None else hash_key
    return _crossed(inputs, name, hashed_output=True, num_buckets=num_buckets, hash_key=key)


def _converted(x: Any, place: int) -> Any:
    """Returns a tensor, sparse or ragged tensor of strings or int64."""
    if isinstance(x, RaggedTensorValue):
        x = RaggedTensor.from_nested_row_splits(x.flat_values, x.nested_row_splits, validate=False)
    elif isinstance(x, (SparseTensor, SparseTensorValue)):
        x = as_sparse(x)
    elif not isinstance(x, RaggedTensor):
        x = array_ops.convert_to_tensor(x)
    if isinstance(x, RaggedTensor) and x.ragged_rank != 1:
        raise ValueError(f"tf.ragged.cross only supports inputs with rank=2, got inputs[{place}] = {x!r}")
    if x.dtype.is_integer:
        return (
            x.with_values(math_ops.cast(x.values, dtypes.int64))
            if isinstance(x, RaggedTensor)
            else (math_ops.cast(x, dtypes.int64))
        )
    if x.dtype != dtypes.string:
        raise ValueError(f"Unexpected dtype for inputs[{place}]: {x.dtype}; give strings or integers")
    return x


def _crossed(inputs: Any, name: str | None, **attrs: Any) -> Any:
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(f"Inputs must be a list, got {inputs!r}")
    with name_scope(name, "RaggedCross"):
        given = [_converted(x, i) for i, x in enumerate(inputs)]
        kinds = ["R" if isinstance(x, RaggedTensor) else "S" if isinstance(x, SparseTensor) else "D" for x in given]
        ragged, sparse, dense = ([x for x, k in zip(given, kinds, strict=True) if k == kind] for kind in "RSD")
        short = bool(ragged) and all(x.row_splits.dtype == dtypes.int32 for x in ragged)
        key = attrs.pop("hash_key")
        attrs |= {
            "out_values_type": dtypes.int64 if attrs["hashed_output"] else dtypes.string,
            "out_row_splits_type": dtypes.int32 if short else dtypes.int64,
            "input_order": "".join(kinds),
            "hash_key": key - 2**64 if key > 2**63 else key,
        }
        args = (
            [x.values for x in ragged],
            [x.row_splits for x in ragged],
            [x.indices for x in sparse],
            [x.values for x in sparse],
            [x.dense_shape for x in sparse],
            dense,
        )
        made = scopes.builder(*args).make("RaggedCross", args, attrs)
        return RaggedTensor.from_row_splits(made[0], made[1], validate=False)
