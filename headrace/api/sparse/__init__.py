"""`hr.sparse`: creation, layout, concatenation and splitting of sparse tensors.

Functions that compute with their values are in `arithmetic`. Each function splits `SparseTensor`s (or
`SparseTensorValue`s) into their parts, runs an op on the parts, and combines the results.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, nest, public_names, shapes
from headrace.api import arrays, gathering, math, reductions, scopes, tensors
from headrace.api.debugging import assert_equal, assert_less_equal
from headrace.api.sparse.arithmetic import add as add
from headrace.api.sparse.arithmetic import bincount as bincount
from headrace.api.sparse.arithmetic import map_values as map_values
from headrace.api.sparse.arithmetic import maximum as maximum
from headrace.api.sparse.arithmetic import minimum as minimum
from headrace.api.sparse.arithmetic import reduce_max as reduce_max
from headrace.api.sparse.arithmetic import reduce_sum as reduce_sum
from headrace.api.sparse.arithmetic import segment_mean as segment_mean
from headrace.api.sparse.arithmetic import segment_sqrt_n as segment_sqrt_n
from headrace.api.sparse.arithmetic import segment_sum as segment_sum
from headrace.api.sparse.arithmetic import softmax as softmax
from headrace.api.sparse.arithmetic import sparse_dense_matmul as sparse_dense_matmul
from headrace.api.sparse_tensor import SparseTensor, as_sparse, is_sparse, static_shape
from headrace.api.tensors import identity
from headrace.errors import ShapeError
from headrace.ir import graph as symbolic
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.tensor_type import Tensor
from headrace.shapes import Shape

# *** from and to other tensors ***


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """Converts a tensor to a sparse tensor of its non-zero elements.

    Of strings, the non-empty ones are kept.

    Args:
      tensor: a tensor.
      name: name of the scope; "dense_to_sparse" if None.

    Source: TensorFlow's `tf.sparse.from_dense`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.from_dense([0, 7, 0, 8]).values
      <EagerTensor shape=[2] dtype=int32: array([7, 8], dtype=int32)>
    """
    with scopes.name_scope(name, "dense_to_sparse"):
        b = scopes.builder(tensor)
        x = b.tensor(tensor)
        indices = gathering.where(math.not_equal(x, arrays.zeros_like(x)))
        return SparseTensor(indices, gathering.gather_nd(x, indices), arrays.shape(x, dtypes.int64))


def to_dense(
    sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None
) -> Tensor:
    """Converts a sparse tensor to a tensor.

    Args:
      sp_input: a sparse tensor.
      default_value: a scalar for the elements without a value; None: 0, False or the empty string.
      validate_indices: whether indices out of order, or equal indices, are an error.
      name: name of the operation; "SparseToDense" if None.

    Raises:
      TypeError: `sp_input` is not sparse.
      InvalidArgumentError: in a run, if an index is out of bounds, out of order or repeated.

    Source: TensorFlow's `tf.sparse.to_dense`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.to_dense(hr.SparseTensor([[1]], [5], [3]), -1)
      <EagerTensor shape=[3] dtype=int32: array([-1,  5, -1], dtype=int32)>
    """
    sp = as_sparse(sp_input)
    b = scopes.builder(*nest.flatten(sp), default_value)
    if default_value is None:
        default_value = arrays.zeros([], sp.dtype)
    args = (sp.indices, sp.dense_shape, sp.values, default_value)
    out = b.make("SparseToDense", args, {"validate_indices": validate_indices}, name)
    if isinstance(out, symbolic.Tensor):
        out.refine(shapes.as_shape(sp.shape))
    return out


def to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> Tensor:
    """Converts rows of ids to bools: element i is whether the row contains i.

    Args:
      sp_input: a sparse tensor of int32 or int64 values, the ids. The last index of a value is ignored.
      vocab_size: an int scalar: the size of the last axis of the result; ids are below it.
      name: name of the operation; "SparseToIndicator" if None.

    Source: TensorFlow's `tf.sparse.to_indicator`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.to_indicator(hr.SparseTensor([[0, 0], [0, 1]], [2, 0], [1, 2]), 4)
      <EagerTensor shape=[1,4] dtype=bool: array([[ True, False,  True, False]])>
    """
    sp = as_sparse(sp_input)
    with scopes.name_scope(name, "SparseToIndicator", nest.flatten(sp)) as scope:
        n = arrays.shape(sp.indices)[0]
        there = sp.with_values(arrays.fill(arrays.expand_dims(n, 0), True))
        return to_dense(merge(sp, there, vocab_size), False, validate_indices=False, name=scope)


def merge(
    sp_ids: Any, sp_values: Any, vocab_size: Any, name: str | None = None, already_sorted: bool = False
) -> SparseTensor:
    """Replaces the last index of each value by an id from another sparse tensor.

    Args:
      sp_ids: a sparse tensor of ints, or a list of them, one for each new last axis.
      sp_values: a sparse tensor with the indices of `sp_ids`.
      vocab_size: an int scalar, the size of the last axis; a list of them for a list of `sp_ids`.
      name: name of the scope; "SparseMerge" if None.
      already_sorted: whether the result is in order already, so that it is not sorted.

    Raises:
      TypeError: an argument is not sparse, or `vocab_size` is not an int.
      ValueError: `sp_ids` and `vocab_size` have different lengths.

    Source: TensorFlow's `tf.compat.v1.sparse.merge`.

    Example:
      >>> import headrace as hr
      >>> ids = hr.SparseTensor([[0, 0]], hr.constant([2], hr.int64), [1, 1])
      >>> values = hr.SparseTensor([[0, 0]], [7.0], [1, 1])
      >>> hr.sparse.to_dense(hr.sparse.merge(ids, values, 4)).numpy().tolist()
      [[0.0, 0.0, 7.0, 0.0]]
    """
    if is_sparse(sp_ids):
        sp_ids, vocab_size = [sp_ids], [vocab_size]
    for what, given in (("sp_ids", sp_ids), ("vocab_size", vocab_size)):
        if not isinstance(given, Iterable):
            raise TypeError(f"'{what}' must be one, or a list with one for each of the others, got {given!r}")
    for size in vocab_size:
        if not (tensors.is_tensor(size) or isinstance(size, (int, np.integer))):
            raise TypeError(f"vocab_size must be a tensor or an int, got {size!r} ({type(size).__name__})")
    ids, sizes = [as_sparse(x) for x in sp_ids], list(vocab_size)
    if len(ids) != len(sizes):
        raise ValueError(f"sp_ids and vocab_size have to have equal lengths, got {len(ids)} and {len(sizes)}")
    elements = as_sparse(sp_values)
    with scopes.name_scope(name, "SparseMerge", [x.values for x in (*ids, elements)]):
        last = [arrays.expand_dims(math.cast(x.values, dtypes.int64), 1) for x in ids]
        indices = arrays.concat([ids[0].indices[:, :-1], *last], 1)
        ends = [math.cast(n, dtypes.int64) for n in sizes]
        whole = arrays.concat([ids[0].dense_shape[:-1], ends], 0)
        merged = SparseTensor(indices, elements.values, whole)
        if already_sorted:
            return merged
        ordered = reorder(merged)
        return SparseTensor(ordered.indices, ordered.values, whole)


def eye(num_rows: Any, num_columns: Any = None, dtype: Any = dtypes.float32, name: str | None = None) -> SparseTensor:
    """Creates a sparse identity matrix.

    Args:
      num_rows: number of rows, an int scalar.
      num_columns: number of columns, an int scalar; None: `num_rows`.
      dtype: dtype of the ones.
      name: name of the scope; "eye" if None.

    Source: TensorFlow's `tf.sparse.eye`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.to_dense(hr.sparse.eye(2)).numpy().tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    with scopes.name_scope(name, "eye", [num_rows, num_columns]):
        rows = _int64(num_rows, "num_rows")
        columns = rows if num_columns is None else _int64(num_columns, "num_columns")
        n = math.minimum(rows, columns)
        diagonal = reductions.range(n, dtype=dtypes.int64)
        return SparseTensor(arrays.stack([diagonal, diagonal], 1), arrays.ones(n, dtype), [rows, columns])


def _int64(x: Any, name: str) -> Any:
    b = scopes.builder(x)
    if isinstance(x, (int, np.integer)):
        return b.const(x, dtypes.int64, name)
    if not tensors.is_tensor(x):
        raise TypeError(f"{name} must be an integer value, got {x!r}")
    return math.cast(x, dtypes.int64)


# *** order and shape ***


def reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Sorts the elements in row-major order.

    Args:
      sp_input: a sparse tensor.
      name: name of the operation; "SparseReorder" if None.

    Source: TensorFlow's `tf.sparse.reorder`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.reorder(hr.SparseTensor([[2], [0]], [20, 10], [3])).values
      <EagerTensor shape=[2] dtype=int32: array([10, 20], dtype=int32)>
    """
    sp = as_sparse(sp_input)
    inputs = nest.flatten(sp)
    indices, elements = scopes.builder(*inputs).make("SparseReorder", inputs, {}, name)
    if sp.shape is not None and shapes.is_full(sp.shape):
        return SparseTensor(indices, elements, np.array(sp.shape, np.int64))
    out = SparseTensor(indices, elements, identity(sp.dense_shape))
    out.set_shape(sp.shape)
    return out


def reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """Reshapes a sparse tensor; the row-major order of the elements is kept.

    Args:
      sp_input: a sparse tensor.
      shape: ints; one of them may be -1 and is then inferred.
      name: name of the operation; "SparseReshape" if None.

    Raises:
      ValueError: the static numbers of elements differ, or more than one size is -1.
      InvalidArgumentError: in a run, if the numbers of elements differ.

    Source: TensorFlow's `tf.sparse.reshape`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.reshape(hr.SparseTensor([[1, 0]], [5], [2, 3]), [-1]).indices
      <EagerTensor shape=[1,1] dtype=int64: array([[3]])>
    """
    sp = as_sparse(sp_input)
    wanted = math.cast(shape, dtypes.int64)
    with scopes.name_scope(name, "SparseReshape", nest.flatten(sp)) as scope:
        b = scopes.builder(*nest.flatten(sp), wanted)
        indices, whole = b.make("SparseReshape", (sp.indices, sp.dense_shape, wanted), {}, scope)
        known = _reshaped(sp.shape, wanted)
        if known is not None:
            whole = b.const(np.array(known, np.int64), dtypes.int64)
        return SparseTensor(indices, identity(sp.values), whole)


def _reshaped(shape: Shape, wanted: Any) -> tuple[int, ...] | None:
    """Returns the static result shape of `reshape`; None if it is not fully known."""
    new = static_shape(wanted)
    size = shapes.size(shape)
    if new is None or size is None:
        return None
    given = tensors.constant_value(wanted)
    if given is not None and np.count_nonzero(given == -1) > 1:
        raise ShapeError(f"At most one dimension can be inferred (-1). Found: {given}")
    known = [d for d in new if d is not None]
    if len(known) + 1 < len(new) or (len(known) < len(new) and 0 in known):
        return None
    rest = int(np.prod(known, dtype=object))
    full = tuple(size // rest if d is None else d for d in new)
    if int(np.prod(full, dtype=object)) != size:
        raise ShapeError(
            f"Cannot reshape a tensor with {size} elements to shape {shapes.show(new)} ({rest} elements); the tensor "
            f"has the shape {shapes.show(shape)}"
        )
    return full


def reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """Changes the dense shape of a sparse tensor; the elements and their indices are kept.

    Args:
      sp_input: a sparse tensor.
      new_shape: ints, not less than those of the dense shape; None: the smallest shape that contains all indices.

    Raises:
      ValueError: `new_shape` has another static rank, or a static size that is too small.
      InvalidArgumentError: in a run, if `new_shape` has another rank or is too small.

    Source: TensorFlow's `tf.sparse.reset_shape`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.reset_shape(hr.SparseTensor([[1]], [5], [9])).dense_shape
      <EagerTensor shape=[1] dtype=int64: array([2])>
    """
    indices, elements, old = (identity(t) for t in nest.flatten(as_sparse(sp_input)))
    if new_shape is None:
        greatest = reductions.reduce_max(indices, axis=0)
        ends = math.add(greatest, arrays.ones_like(old))
        return SparseTensor(indices, elements, math.maximum(scopes.builder(old).const(0, dtypes.int64), ends))
    wanted = math.cast(scopes.builder(old, new_shape).tensor(new_shape), dtypes.int64)
    rank, known = shapes.with_rank(wanted.shape, 1), static_shape(old)
    if not shapes.compatible(rank, old.shape):
        raise ShapeError(f"Dimensions {rank[0]} and {old.shape[0]} are not compatible: new_shape has another rank")
    value = tensors.constant_value(wanted)
    if value is not None and known is not None and shapes.is_full(known):
        if np.any(np.array(known, np.int64) > value):
            raise ShapeError(
                f"Requested new_shape should have dimension sizes >= sp_input.shape.  Found new_shape ({value}), "
                f"sp_input.shape ({shapes.show(known)})."
            )
        return SparseTensor(indices, elements, value)
    checks = [assert_equal(arrays.shape(old), arrays.shape(wanted)), assert_less_equal(old, wanted)]
    with scopes.control_dependencies([c for c in checks if c is not None]):
        return SparseTensor(indices, elements, identity(wanted))


def expand_dims(sp_input: Any, axis: Any = None, name: str | None = None) -> SparseTensor:
    """Inserts an axis of length 1.

    Args:
      sp_input: a sparse tensor.
      axis: index of the new axis, from -rank - 1 to rank; None: last.
      name: name of the scope; "expand_dims" if None.

    Raises:
      TypeError: `axis` is not an integer.

    Source: TensorFlow's `tf.sparse.expand_dims`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])
      >>> hr.sparse.expand_dims(x, 0).shape
      (1, 2, 2)
    """
    sp = as_sparse(sp_input)
    rank = shapes.with_rank(sp.dense_shape.shape, 1)[0]
    at = -1 if axis is None else axis
    with scopes.name_scope(name, "expand_dims", nest.flatten(sp)):
        b = scopes.builder(*nest.flatten(sp), at)
        if isinstance(at, (int, np.integer)):
            at = b.const(at, dtypes.int32, "axis")
        elif not tensors.is_tensor(at):
            raise TypeError(f"axis must be an integer from -rank - 1 to rank, got {at!r}")
        if rank is None:
            at = gathering.where(at >= 0, at, at + arrays.shape(sp.dense_shape)[0] + 1)
        else:
            at = gathering.where(at >= 0, at, at + rank + 1)
        n = arrays.shape(sp.indices)[0]
        new = arrays.zeros([n, 1], dtypes.int64)
        before = gathering.slice(sp.indices, [0, 0], arrays.stack([-1, at]))
        after = gathering.slice(sp.indices, arrays.stack([0, at]), [-1, -1])
        first = gathering.slice(sp.dense_shape, [0], arrays.stack([at]))
        rest = gathering.slice(sp.dense_shape, arrays.stack([at]), [-1])
        places = arrays.concat([before, new, after], 1)
        whole = arrays.concat([first, b.const([1], dtypes.int64, "new_shape"), rest], 0)
        return SparseTensor(places, sp.values, whole)


def transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Permutes the axes of a sparse tensor.

    Args:
      sp_input: a sparse tensor.
      perm: the old axes in their new order, ints; None: reversed.
      name: name of the scope; "SparseTranspose" if None.

    Source: TensorFlow's `tf.sparse.transpose`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.transpose(hr.SparseTensor([[0, 2]], [5], [2, 3])).indices
      <EagerTensor shape=[1,2] dtype=int64: array([[2, 0]])>
    """
    sp = as_sparse(sp_input)
    with scopes.name_scope(name, "SparseTranspose", nest.flatten(sp)):
        if perm is None and sp.shape is not None:
            perm = np.arange(len(sp.shape))[::-1]
        elif perm is None:
            rank = arrays.size(sp.dense_shape)
            perm = rank - 1 - reductions.range(0, rank, 1)
        columns = gathering.gather(arrays.transpose(sp.indices), perm)
        order = tensors.constant_value(perm)
        if order is not None and sp.shape is not None and shapes.is_full(sp.shape):
            whole: Any = np.array(sp.shape, np.int64)[order]
        else:
            whole = gathering.gather(sp.dense_shape, perm)
        return reorder(SparseTensor(arrays.transpose(columns), sp.values, whole))


# *** parts ***


def slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """Extracts the part that begins at `start` and has at most the shape `size`.

    Args:
      sp_input: a sparse tensor.
      start, size: ints, one for each axis.
      name: name of the operation; "SparseSlice" if None.

    Source: TensorFlow's `tf.sparse.slice`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])
      >>> hr.sparse.to_dense(hr.sparse.slice(x, [0, 0], [1, 2])).numpy().tolist()
      [[0.0, 3.0]]
    """
    parts = nest.flatten(as_sparse(sp_input))
    b = scopes.builder(*parts, start, size)
    ends = (b.tensor(start, dtypes.int64), b.tensor(size, dtypes.int64))
    with scopes.name_scope(name, "SparseSlice", parts) as scope:
        return SparseTensor(*scopes.builder(*parts).make("SparseSlice", (*parts, *ends), {}, scope))


def split(
    sp_input: Any = None, num_split: int | None = None, axis: Any = None, name: str | None = None
) -> list[SparseTensor]:
    """Splits a sparse tensor along an axis.

    Args:
      sp_input: a sparse tensor.
      num_split: number of parts, an int. If the size is not a multiple of it, the first parts are longer by 1.
      axis: index of the axis, an int scalar.
      name: name of the operation; "SparseSplit" if None.

    Raises:
      ValueError: `sp_input`, `num_split` or `axis` is missing.

    Source: TensorFlow's `tf.sparse.split`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])
      >>> [part.values.numpy().tolist() for part in hr.sparse.split(x, 2, 1)]
      [[4.0], [3.0]]
    """
    if sp_input is None or num_split is None or axis is None:
        raise ValueError("sparse.split needs sp_input, num_split and axis")
    sp = as_sparse(sp_input)
    b = scopes.builder(*nest.flatten(sp), axis)
    at = b.tensor(axis, None if tensors.is_tensor(axis) else dtypes.int64, "split_dim")
    if at.dtype.base is not dtypes.int64:
        at = math.cast(at, dtypes.int64)
    made = nest.as_list(b.make("SparseSplit", (at, *nest.flatten(sp)), {"num_split": num_split}, name))
    return [SparseTensor(*made[i::num_split]) for i in builtins.range(num_split)]


def retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Selects elements of a sparse tensor by a mask; the dense shape is kept.

    Args:
      sp_input: a sparse tensor.
      to_retain: a bool vector with one element for each value.

    Raises:
      ValueError: the numbers of bools and values differ.

    Source: TensorFlow's `tf.sparse.retain`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.retain(hr.SparseTensor([[0], [1]], [5, 6], [2]), [False, True]).values
      <EagerTensor shape=[1] dtype=int32: array([6], dtype=int32)>
    """
    sp = as_sparse(sp_input)
    kept = scopes.builder(*nest.flatten(sp), to_retain).tensor(to_retain)
    n = shapes.with_rank(kept.shape, 1)
    if not shapes.compatible(n, sp.values.shape):
        raise ShapeError(f"Dimensions {sp.values.shape[0]} and {n[0]} are not compatible: so many values and bools")
    rows = arrays.reshape(gathering.where(kept), [-1])
    indices, elements = gathering.gather(sp.indices, rows), gathering.gather(sp.values, rows)
    return SparseTensor(indices, elements, identity(sp.dense_shape))


def fill_empty_rows(sp_input: Any, default_value: Any, name: str | None = None) -> tuple[SparseTensor, Tensor]:
    """Inserts a default value in the first column of each empty row.

    Args:
      sp_input: a sparse tensor of rank 2.
      default_value: a scalar.
      name: name of the scope; "SparseFillEmptyRows" if None.

    Returns:
      The filled sparse tensor, and a bool vector: whether each row was empty.

    Source: TensorFlow's `tf.sparse.fill_empty_rows`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0, 1]], [3.0], [2, 2])
      >>> filled, is_empty = hr.sparse.fill_empty_rows(x, 0.0)
      >>> is_empty.numpy().tolist(), filled.indices.numpy().tolist()
      ([False, True], [[0, 1], [1, 0]])
    """
    sp = as_sparse(sp_input)
    with scopes.name_scope(name, "SparseFillEmptyRows", nest.flatten(sp)):
        b = scopes.builder(*nest.flatten(sp), default_value)
        default = b.tensor(default_value, sp.dtype.base)
        indices, elements, was_empty, _ = b.make("SparseFillEmptyRows", (*nest.flatten(sp), default), {})
        return SparseTensor(indices, elements, sp.dense_shape), was_empty


def mask(a: IndexedSlices, mask_indices: Any, name: str | None = None) -> IndexedSlices:
    """Removes the rows of an `IndexedSlices` whose indices are in `mask_indices`.

    Args:
      a: the slices.
      mask_indices: an int vector: the indices of the rows to remove.
      name: name of the operation; "sparse_mask" if None.

    Source: TensorFlow's `tf.sparse.mask`.

    Example:
      >>> import headrace as hr
      >>> x = hr.IndexedSlices(hr.constant([[1], [2]]), hr.constant([0, 5]))
      >>> hr.sparse.mask(x, hr.constant([5])).values.numpy().tolist()
      [[1]]
    """
    with scopes.name_scope(name, "sparse_mask", [a.values, mask_indices]) as scope:
        b = scopes.builder(a.values, mask_indices)
        indices, rows = b.make("ListDiff", (a.indices, mask_indices), {})
        return IndexedSlices(gathering.gather(a.values, rows, name=scope), indices, a.dense_shape)


def concat(
    axis: int, sp_inputs: Sequence[Any], expand_nonconcat_dims: bool = False, name: str | None = None
) -> SparseTensor:
    """Concatenates sparse tensors along an axis.

    Args:
      axis: an int, from -rank to rank - 1.
      sp_inputs: a list of sparse tensors of the same rank.
      expand_nonconcat_dims: whether the sizes of other axes may differ; the result has the greatest ones.
      name: name of the operation; "SparseConcat" if None.

    Raises:
      TypeError: `sp_inputs` is not a list of sparse tensors.

    Source: TensorFlow's `tf.sparse.concat`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0, 1]], [5], [1, 2])
      >>> hr.sparse.concat(1, [x, x]).indices
      <EagerTensor shape=[2,2] dtype=int64: array([[0, 1],
             [0, 3]])>
    """
    if not isinstance(sp_inputs, (list, tuple)):
        raise TypeError(f"Inputs must be a list or tuple, got {sp_inputs!r}")
    sps = [as_sparse(sp) for sp in sp_inputs]
    if len(sps) == 1:
        return sps[0]
    wholes = [sp.dense_shape for sp in sps]
    if expand_nonconcat_dims:
        greatest = reductions.reduce_max(arrays.concat([arrays.reshape(w, [1, -1]) for w in wholes], 0), 0)
        last = axis == -1
        parts = [(greatest[:axis], w[-1:] if last else w[axis : axis + 1]) for w in wholes]
        rest = [] if last else [greatest[axis + 1 :]]
        wholes = [arrays.concat([*part, *rest], 0) for part in parts]
    inputs = ([sp.indices for sp in sps], [sp.values for sp in sps], wholes)
    made = scopes.builder(*inputs).make("SparseConcat", inputs, {"concat_dim": axis}, name)
    known = _joined([sp.shape for sp in sps], axis, expand_nonconcat_dims)
    if known is not None and all(sp.shape is not None and shapes.is_full(sp.shape) for sp in sps):
        return SparseTensor(made[0], made[1], scopes.builder(*inputs).const(np.array(known, np.int64), dtypes.int64))
    out = SparseTensor(*made)
    out.set_shape(known)
    return out


def _joined(parts: list[Shape], axis: int, expand: bool) -> Shape:
    """Returns the static shape of the result of `concat`."""
    ranked = [p for p in parts if p is not None]
    if len(ranked) < len(parts) or any(not -len(p) <= axis < len(p) for p in ranked):
        return None
    columns = list(zip(*ranked, strict=False))
    if expand:
        out = [None if None in c else builtins.max(d for d in c if d is not None) for c in columns]
    else:
        out = list(ranked[0])
    along = [d for d in columns[axis] if d is not None]
    out[axis] = sum(along) if len(along) == len(ranked) else None
    return tuple(out)


# *** crossings ***


def cross(inputs: Sequence[Any], name: str | None = None, separator: Any = None) -> SparseTensor:
    """Combines the values of each row of the inputs to strings "a_X_b".

    The result has one string for each combination of a value of each input.

    Args:
      inputs: a list of sparse tensors and tensors of rank 2 with the same number of rows, of strings or ints.
      name: name of the operation; "SparseCrossV2" if None.
      separator: the text between values; "_X_" if None.

    Raises:
      TypeError: `inputs` is not a list of tensors and sparse tensors.

    Source: TensorFlow's `tf.sparse.cross`.

    Example:
      >>> import headrace as hr
      >>> one, two = hr.sparse.from_dense([["a", "b"]]), hr.sparse.from_dense([["c"]])
      >>> hr.sparse.cross([one, two]).values.numpy()
      array([b'a_X_c', b'b_X_c'], dtype=object)
    """
    given, _ = _to_cross(inputs)
    b = scopes.builder(*given)
    sep = b.tensor("_X_" if separator is None else separator, dtypes.string)
    return SparseTensor(*b.make("SparseCrossV2", (*given, sep), {}, name))


def cross_hashed(
    inputs: Sequence[Any], num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """Combines the values of each row of the inputs to hashes; see `cross`.

    Args:
      inputs: as for `cross`.
      num_buckets: the hashes are reduced modulo it; 0: they are not reduced.
      hash_key: the key of the hash function; None: TensorFlow's default.
      name: name of the operation; "SparseCross" if None.

    Source: TensorFlow's `tf.sparse.cross_hashed`.

    Example:
      >>> import headrace as hr
      >>> one, two = hr.sparse.from_dense([["a", "b"]]), hr.sparse.from_dense([["c"]])
      >>> hr.sparse.cross_hashed([one, two], num_buckets=100).values.numpy()
      array([66, 54])
    """
    given, is_text = _to_cross(inputs)
    attrs = {
        "hashed_output": True,
        "num_buckets": num_buckets,
        "hash_key": hash_key or 0xDECAFCAFFE,
        "out_type": dtypes.int64,
        "internal_type": dtypes.string if is_text else dtypes.int64,
    }
    return SparseTensor(*scopes.builder(*given).make("SparseCross", given, attrs, name))


def _to_cross(inputs: Sequence[Any]) -> tuple[tuple[list[Any], list[Any], list[Any], list[Any]], bool]:
    """Returns the indices, values, shapes and dense inputs, and whether all are strings."""
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(f"Inputs must be a list, got {inputs!r}")
    if not all(isinstance(x, SparseTensor) or tensors.is_tensor(x) for x in inputs):
        raise TypeError(f"All inputs must be Tensor or SparseTensor, got {inputs!r}")

    def number(x: Any) -> Any:
        return x if x.dtype.base is dtypes.string else math.cast(x, dtypes.int64)

    sparse = [x for x in inputs if isinstance(x, SparseTensor)]
    elements = [number(x.values) for x in sparse]
    dense = [number(x) for x in inputs if not isinstance(x, SparseTensor)]
    is_text = all(x.dtype.base is dtypes.string for x in (*elements, *dense))
    return ([x.indices for x in sparse], elements, [x.dense_shape for x in sparse], dense), is_text


# fmt: off
__all__ = [
    "add", "bincount", "concat", "cross", "cross_hashed", "expand_dims", "eye", "fill_empty_rows", "from_dense",
    "map_values", "mask", "maximum", "merge", "minimum", "reduce_max", "reduce_sum", "reorder", "reset_shape",
    "reshape", "retain", "segment_mean", "segment_sqrt_n", "segment_sum", "slice", "softmax", "sparse_dense_matmul",
    "split", "to_dense", "to_indicator", "transpose",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
