"""Shapes of tensors, and their concatenation, splitting, layout, padding and filling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes, thresholds
from headrace.api import scopes
from headrace.api.sparse_tensor import as_sparse, is_sparse
from headrace.api.tensors import is_tensor, known_shape
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor

newaxis = None


# *** shapes ***


def shape(input: Any, out_type: Any = None, name: str | None = None) -> Tensor:
    """Returns the shape of a tensor: an int vector, constant if it is known.

    Args:
      input: a tensor, a value convertible to one, or a `SparseTensor`.
      out_type: int32 (also if None) or int64.
      name: name of the operation; "Shape" if None.

    Source: TensorFlow's `tf.shape`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.constant_value(hr.shape(hr.zeros((2, 3))))
      array([2, 3], dtype=int32)
    """
    dtype = dtypes.as_dtype(out_type or dtypes.int32)
    with scopes.name_scope(name, "Shape", [input]) as scope:
        b = scopes.builder(input)
        if is_sparse(input):
            return b.make("Cast", (input.dense_shape,), {"DstT": dtype})
        x = b.tensor(input, None, "input")
        if shapes.is_full(x.shape):
            return b.const(np.array(x.shape, dtype.numpy), dtype, scope)
        return b.make("Shape", (x,), {"out_type": dtype}, scope)


def shape_n(input: Any, out_type: Any = dtypes.int32, name: str | None = None) -> list[Tensor]:
    """Returns the shapes of several tensors, as int vectors.

    Args:
      input: a list of tensors.
      out_type: int32 or int64.
      name: name of the operation; "ShapeN" if None.

    Source: TensorFlow's `tf.shape_n`.

    Example:
      >>> import headrace as hr
      >>> [shape.numpy().tolist() for shape in hr.shape_n([[1, 2], [[3]]])]
      [[2], [1, 1]]
    """
    b = scopes.builder(*input)
    return nest.as_list(b.make("ShapeN", (list(input),), {"out_type": dtypes.as_dtype(out_type)}, name))


def rank(input: Any, name: str | None = None) -> Tensor:
    """Returns the number of axes: an int32 scalar, constant if it is known.

    Args:
      input: a tensor, a value convertible to one, or a `SparseTensor`.
      name: name of the operation; "Rank" if None.

    Source: TensorFlow's `tf.rank`.

    Example:
      >>> import headrace as hr
      >>> hr.rank([[1, 2], [3, 4]]).numpy()
      np.int32(2)
    """
    with scopes.name_scope(name, "Rank", [input]) as scope:
        b = scopes.builder(input)
        if is_sparse(input):
            return size(input.dense_shape, name=scope)
        x = b.tensor(input, None, "input")
        if x.shape is not None:
            return b.const(len(x.shape), dtypes.int32, scope)
        return b.make("Rank", (x,), {}, scope)


def size(input: Any, out_type: Any = None, name: str | None = None) -> Tensor:
    """Returns the number of elements: an int scalar, constant if it is known.

    For a `SparseTensor` it is the number of elements of the dense tensor.

    Args:
      input: a tensor, a value convertible to one, or a `SparseTensor`.
      out_type: int32 (also if None) or int64.
      name: name of the operation; "Size" if None.

    Source: TensorFlow's `tf.size`.

    Example:
      >>> import headrace as hr
      >>> hr.size([[1, 2], [3, 4]]).numpy()
      np.int32(4)
    """
    dtype = dtypes.as_dtype(out_type or dtypes.int32)
    with scopes.name_scope(name, "Size", [input]) as scope:
        b = scopes.builder(input)
        if is_sparse(input):
            whole = b.make("Cast", (input.dense_shape,), {"DstT": dtype})
            return b.make("Prod", (whole, 0), {}, scope)
        x = b.tensor(input, None, "input")
        if shapes.is_full(x.shape):
            return b.const(math.prod(x.shape), dtype, scope)
        return b.make("Size", (x,), {"out_type": dtype}, scope)


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """Reshapes a tensor; the row-major order of the elements is kept.

    Args:
      tensor: a tensor, or a value convertible to one.
      shape: an int vector, or a list of ints and int scalars; one of them may be -1 and is then inferred.
      name: name of the operation; "Reshape" if None.

    Raises:
      ShapeError (a ValueError): the static numbers of elements differ.

    Source: TensorFlow's `tf.reshape`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.reshape(hr.zeros((2, 3)), (3, -1)).shape
      (3, 2)
    """
    return scopes.builder(tensor, shape).make("Reshape", (tensor, shape), {}, name)


def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str = "transpose") -> Tensor:
    """Permutes the axes of a tensor.

    Args:
      a: a tensor, or a value convertible to one.
      perm: for each new axis the index of the old axis; None: reversed.
      conjugate: whether the elements are conjugated.
      name: name of the operation.

    Source: TensorFlow's `tf.transpose`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.transpose(hr.zeros((2, 3, 4)), (0, 2, 1)).shape
      (2, 4, 3)
    """
    b = scopes.builder(a, perm)
    if b.graph is None:  # names are for graphs
        return _transposed(b, a, perm, conjugate, name)
    with scopes.name_scope(name, "transpose", [a]) as scope:
        return _transposed(scopes.builder(a, perm), a, perm, conjugate, scope)


def _transposed(b: Any, a: Any, perm: Any, conjugate: bool, name: str) -> Any:
    a = b.tensor(a, None, "a")
    if perm is None:
        if b.graph is None:
            perm = tuple(range(len(a.shape) - 1, -1, -1)) or np.zeros(0, np.int32)
        elif a.shape is not None:
            perm = np.arange(len(a.shape) - 1, -1, -1, dtype=np.int32)
        else:
            last = b.make("Sub", (b.make("Rank", (a,), {}), 1), {}, "sub")
            perm = b.make("Range", (last, -1, -1), {})
    type = "ConjugateTranspose" if conjugate and a.dtype.is_complex else "Transpose"
    return b.make(type, (a, perm), {}, name)


def expand_dims(input: Any, axis: Any, name: str | None = None) -> Tensor:
    """Inserts an axis of length 1.

    Args:
      input: a tensor.
      axis: index of the new axis, an int scalar; negative: counted from the end.
      name: name of the operation; "ExpandDims" if None.

    Source: TensorFlow's `tf.expand_dims`.

    Example:
      >>> import headrace as hr
      >>> hr.expand_dims([1, 2], 0).shape
      (1, 2)
    """
    return scopes.builder(input, axis).make("ExpandDims", (input, axis), {}, name)


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """Removes axes of length 1.

    Args:
      input: a tensor.
      axis: an int or a list of ints; None: all axes of length 1.
      name: name of the operation; "Squeeze" if None.

    Source: TensorFlow's `tf.squeeze`.

    Example:
      >>> import headrace as hr
      >>> hr.squeeze([[1], [2]])
      <EagerTensor shape=[2] dtype=int32: array([1, 2], dtype=int32)>
    """
    if axis is None:
        dims: tuple[int, ...] = ()
    else:
        dims = tuple(int(i) for i in nest.as_list(axis))
    return scopes.builder(input).make("Squeeze", (input,), {"squeeze_dims": dims}, name)


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """Broadcasts a tensor to a shape.

    Args:
      input: a tensor.
      shape: an int vector. The axes of `input` are aligned with its last elements, and must have that length or length
        1.
      name: name of the operation; "BroadcastTo" if None.

    Source: TensorFlow's `tf.broadcast_to`.

    Example:
      >>> import headrace as hr
      >>> hr.broadcast_to([1, 2], [2, 2]).numpy().tolist()
      [[1, 2], [1, 2]]
    """
    return scopes.builder(input, shape).make("BroadcastTo", (input, shape), {}, name)


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Tensor:
    """Returns the shape, an int vector, to which tensors of two shapes broadcast.

    Args:
      shape_x, shape_y: int vectors.

    Source: TensorFlow's `tf.broadcast_dynamic_shape`.

    Example:
      >>> import headrace as hr
      >>> hr.broadcast_dynamic_shape([2, 1], [3]).numpy()
      array([2, 3], dtype=int32)
    """
    return scopes.builder(shape_x, shape_y).make("BroadcastArgs", (shape_x, shape_y), {})


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> shapes.Shape:
    """Returns the shape to which tensors of two static shapes broadcast.

    Args:
      shape_x, shape_y: static shapes.

    Raises:
      ValueError: the shapes are incompatible.

    Source: TensorFlow's `tf.broadcast_static_shape`.

    Example:
      >>> import headrace as hr
      >>> hr.broadcast_static_shape((2, 1), (None,))
      (2, None)
    """
    return shapes.broadcast(shapes.as_shape(shape_x), shapes.as_shape(shape_y))


# *** joining and splitting ***


def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """Concatenates tensors along an axis.

    Args:
      values: a list of tensors of the same dtype and rank, with equal sizes in the other axes; or one tensor.
      axis: index of the axis, an int scalar; negative: counted from the end.
      name: name of the operation.

    Raises:
      ShapeError (a ValueError): the shapes are incompatible.

    Source: TensorFlow's `tf.concat`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.concat([hr.zeros((2, 3)), hr.ones((1, 3))], 0).shape
      (3, 3)
    """
    items = nest.as_list(values)
    if len(items) == 1:
        with scopes.name_scope(name, "concat", [items, axis]):
            b = scopes.builder(items, axis)
            at = b.tensor(axis, None if is_tensor(axis) else dtypes.int32, "concat_dim")
            if not shapes.compatible(at.shape, ()):
                raise ShapeError(f"'axis' of concat must be a scalar, got one of shape {shapes.show(at.shape)}")
            return b.make("Identity", (items[0],), {}, "concat")
    return scopes.builder(items, axis).make("ConcatV2", (items, axis), {}, name)


def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """Stacks tensors of one shape along a new axis.

    Args:
      values: a list of tensors of the same shape and dtype, or of values convertible to them.
      axis: index of the new axis; negative: counted from the end.
      name: name of the operation.

    Raises:
      ValueError: the axis is out of range, or `values` is empty.
      ShapeError (a ValueError): the shapes differ.

    Source: TensorFlow's `tf.stack`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.stack([hr.zeros((2, 3)), hr.ones((2, 3))], axis=1).shape
      (2, 2, 3)
    """
    if not isinstance(values, (list, tuple)):
        return scopes.builder(values).tensor(values, None, name)
    items = list(values)
    if not items:
        raise ValueError("'values' of stack must not be empty: of no tensors neither shape nor dtype is known")
    b = scopes.builder(items)
    if axis == 0:
        try:
            return b.tensor(items, None, name)
        except ShapeError:
            raise
        except (TypeError, ValueError):
            pass  # numbers of several kinds, say; the op has its own say
    known = next((t.shape for t in items if is_tensor(t) and t.shape is not None), None)
    if known is not None and not -len(known) - 1 <= axis <= len(known):
        raise ValueError(
            f"axis = {axis} not in [{-len(known) - 1}, {len(known) + 1}): the tensors have {len(known)} axes"
        )
    return b.make("Pack", (items,), {"axis": axis}, name)


def parallel_stack(values: Any, name: str = "parallel_stack") -> Tensor:
    """Stacks tensors along axis 0; it may copy values before all of them are available.

    Args:
      values: a list of tensors of the same known shape and dtype.
      name: name of the operation.

    Source: TensorFlow's `tf.parallel_stack`.

    Example:
      >>> import headrace as hr
      >>> hr.parallel_stack([[1, 2], [3, 4]]).numpy().tolist()
      [[1, 2], [3, 4]]
    """
    with scopes.name_scope(name, "parallel_stack", values):
        b = scopes.builder(*values)
        items = [b.tensor(v, None, "value") for v in values]
        one = items[0].shape
        if not shapes.is_full(one):
            raise ShapeError(f"parallel_stack needs the shape of its values, got {items[0]!r}; use stack")
        rows = [b.make("ExpandDims", (x, 0), {}) for x in items]
        return b.make("ParallelConcat", (rows,), {"shape": (len(items), *one)})


def unstack(value: Any, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Tensor]:
    """Splits a tensor into its slices along an axis: the inverse of `stack`.

    Args:
      value: a tensor of rank 1 or more.
      num: length of the axis; None: the static length.
      axis: index of the axis; negative: counted from the end.
      name: name of the operation.

    Raises:
      ValueError: the axis does not exist, or its length is unknown.

    Source: TensorFlow's `tf.unstack`.

    Example:
      >>> import headrace as hr
      >>> [row.numpy().tolist() for row in hr.unstack([[1, 2], [3, 4]])]
      [[1, 2], [3, 4]]
    """
    b = scopes.builder(value)
    x = b.tensor(value, None, "value")
    if num is None:
        if x.shape is not None and not -len(x.shape) <= axis < len(x.shape):
            raise ValueError(f"axis = {axis} not in [{-len(x.shape)}, {len(x.shape)}): {x!r} has {len(x.shape)} axes")
        num = None if x.shape is None else x.shape[axis]
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {shapes.show(x.shape)} of {x!r}; give it")
    made = b.make("Unpack", (x,), {"num": num, "axis": axis}, name)
    return [] if num == 0 else nest.as_list(made)


def split(
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """Splits a tensor into parts along an axis.

    Args:
      value: a tensor.
      num_or_size_splits: number of parts of equal length; or a list or int vector of their lengths, one of which may be
        -1 and is then inferred.
      axis: index of the axis, an int scalar.
      num: number of parts, if the lengths are a tensor of unknown size.
      name: name of the operation.

    Raises:
      ValueError: the number of parts is unknown.
      ShapeError (a ValueError): the axis cannot be split into these parts.

    Source: TensorFlow's `tf.split`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     [x.shape for x in hr.split(hr.zeros((2, 5)), [1, 4], axis=1)]
      [(2, 1), (2, 4)]
    """
    b = scopes.builder(value, num_or_size_splits, axis)
    if shapes.is_number(num_or_size_splits) and not isinstance(num_or_size_splits, bool):
        return nest.as_list(b.make("Split", (axis, value), {"num_split": num_or_size_splits}, name))
    sizes = b.tensor(num_or_size_splits)
    if sizes.shape == ():
        raise ValueError(f"'num_or_size_splits' must be a Python integer or a vector, got the scalar {sizes!r}")
    if num is None:
        num = None if sizes.shape is None else sizes.shape[0]
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {shapes.show(sizes.shape)} of {sizes!r}; give it")
    return nest.as_list(b.make("SplitV", (value, sizes, axis), {"num_split": num}, name))


def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """Repeats a tensor along each axis.

    Args:
      input: a tensor.
      multiples: an int vector: number of repetitions along each axis.
      name: name of the operation; "Tile" if None.

    Source: TensorFlow's `tf.tile`.

    Example:
      >>> import headrace as hr
      >>> hr.tile([1, 2], [2]).numpy()
      array([1, 2, 1, 2], dtype=int32)
    """
    return scopes.builder(input, multiples).make("Tile", (input, multiples), {}, name)


def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None
) -> Tensor:
    """Pads a tensor.

    Args:
      tensor: a tensor.
      paddings: an int matrix of two columns: the padding before and after each axis.
      mode: "CONSTANT": `constant_values`; "REFLECT": the mirror image without the edge element; "SYMMETRIC": the mirror
        image with the edge element.
      constant_values: a scalar.
      name: name of the operation; "Pad", "PadV2" or "MirrorPad" if None.

    Raises:
      ValueError: the mode is unknown.

    Source: TensorFlow's `tf.pad`.

    Example:
      >>> import headrace as hr
      >>> hr.pad([1, 2], [[1, 0]])
      <EagerTensor shape=[3] dtype=int32: array([0, 1, 2], dtype=int32)>
    """
    b = scopes.builder(tensor, paddings, constant_values)
    chosen = mode.upper()
    if chosen in ("REFLECT", "SYMMETRIC"):
        return b.make("MirrorPad", (tensor, paddings), {"mode": chosen}, name)
    if chosen != "CONSTANT":
        raise ValueError(f"'mode' must be 'CONSTANT', 'REFLECT' or 'SYMMETRIC', got {mode!r}")
    if not is_tensor(constant_values) and np.ndim(constant_values) == 0 and constant_values == 0:
        return b.make("Pad", (tensor, paddings), {}, name)
    return b.make("PadV2", (tensor, paddings, constant_values), {}, name)


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """Reverses axes of a tensor.

    Args:
      tensor: a tensor.
      axis: indices of the axes, an int vector.
      name: name of the operation; "ReverseV2" if None.

    Source: TensorFlow's `tf.reverse`.

    Example:
      >>> import headrace as hr
      >>> hr.reverse([[1, 2], [3, 4]], [1]).numpy().tolist()
      [[2, 1], [4, 3]]
    """
    return scopes.builder(tensor, axis).make("ReverseV2", (tensor, axis), {}, name)


def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int | None = None, batch_axis: int | None = None, name: str | None = None
) -> Tensor:
    """Reverses the first `seq_lengths[i]` elements of each sequence of a batch.

    Args:
      input: a tensor.
      seq_lengths: an int vector: the number of elements to reverse for each example.
      seq_axis: index of the axis of the sequences; required.
      batch_axis: index of the axis of the examples; 0 if None.
      name: name of the operation; "ReverseSequence" if None.

    Source: TensorFlow's `tf.reverse_sequence`.

    Example:
      >>> import headrace as hr
      >>> hr.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3], seq_axis=1).numpy().tolist()
      [[2, 1, 3], [6, 5, 4]]
    """
    if seq_axis is None:
        raise ValueError("'seq_axis', the axis along which the sequences run, must be given")
    attrs = {"seq_dim": seq_axis, "batch_dim": batch_axis or 0}
    return scopes.builder(input, seq_lengths).make("ReverseSequence", (input, seq_lengths), attrs, name)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Tensor:
    """Rotates elements along axes; elements that leave one end enter the other.

    Args:
      input: a tensor.
      shift: an int scalar or vector: the distance for each axis; positive: towards higher indices.
      axis: an int scalar or vector: indices of the axes.
      name: name of the operation; "Roll" if None.

    Source: TensorFlow's `tf.roll`.

    Example:
      >>> import headrace as hr
      >>> hr.roll([1, 2, 3, 4], 1, 0).numpy()
      array([4, 1, 2, 3], dtype=int32)
    """
    return scopes.builder(input, shift, axis).make("Roll", (input, shift, axis), {}, name)


def bitcast(input: Any, type: Any, name: str | None = None) -> Tensor:
    """Reinterprets the bytes of a tensor as another dtype.

    Args:
      input: a tensor.
      type: the new dtype.
      name: name of the operation; "Bitcast" if None.

    Source: TensorFlow's `tf.bitcast`.

    Example:
      >>> import headrace as hr
      >>> hr.bitcast([1.0], hr.int32).numpy()
      array([1065353216], dtype=int32)
    """
    return scopes.builder(input).make("Bitcast", (input,), {"type": dtypes.as_dtype(type)}, name)


# *** filling ***


def fill(dims: Any, value: Any, name: str | None = None) -> Tensor:
    """Creates a tensor whose elements all have one value.

    Args:
      dims: the shape, an int vector.
      value: a scalar.
      name: name of the operation; "Fill" if None.

    Source: TensorFlow's `tf.fill`.

    Example:
      >>> import headrace as hr
      >>> hr.fill([2, 2], 7).numpy().tolist()
      [[7, 7], [7, 7]]
    """
    return scopes.builder(dims, value).make("Fill", (dims, value), {}, name)


def zeros(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """Creates a tensor of zeros, False or empty strings.

    Args:
      shape: the shape: ints, or an int vector.
      dtype: dtype of the elements.
      name: name of the operation; "zeros" if None.

    Source: TensorFlow's `tf.zeros`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.zeros((2, 3), hr.int32)
      <Tensor 'zeros:0' shape=[2,3] dtype=int32>
    """
    return _filled(shape, 0, dtype, name, "zeros")


def ones(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """Creates a tensor of ones or True.

    Args:
      shape: the shape: ints, or an int vector.
      dtype: dtype of the elements.
      name: name of the operation; "ones" if None.

    Source: TensorFlow's `tf.ones`.

    Example:
      >>> import headrace as hr
      >>> hr.ones([2]).numpy()
      array([1., 1.], dtype=float32)
    """
    return _filled(shape, 1, dtype, name, "ones")


def _filled(shape: Any, value: Any, dtype: Any, name: str | None, default: str) -> Any:
    wanted = dtypes.as_dtype(dtype).base
    element: Any = value
    if wanted is dtypes.string:
        element = b"" if value == 0 else b"1"
    elif wanted is dtypes.bool_:
        element = bool(value)
    with scopes.name_scope(name, default, [shape]) as scope:
        b = scopes.builder(shape)
        label = "packed"
        if not is_tensor(shape) and not _any_tensors(shape):
            known = known_shape(shape, default)
            if isinstance(shape, (list, tuple)) and math.prod(known) < thresholds.CONSTANT_FILL_ELEMENTS:
                kind = object if wanted is dtypes.string else wanted.numpy
                return b.const(np.full(known, element, kind), wanted, scope)
            is_long = max(known, default=0) >= 2**31
            label, shape = "shape_as_tensor", np.array(known, np.int64 if is_long else np.int32)
        dims = b.tensor(shape, None if is_tensor(shape) or isinstance(shape, np.ndarray) else dtypes.int32, label)
        if dims.shape is None or len(dims.shape) != 1:
            dims = b.make("Reshape", (dims, np.array([-1], np.int32)), {})
        return b.make("Fill", (dims, b.const(element, wanted)), {}, scope)


def _any_tensors(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and any(is_tensor(v) for v in x)


def zeros_like(input: Any, dtype: Any = None, name: str | None = None) -> Tensor:
    """Creates a tensor of zeros with the shape of another tensor.

    Args:
      input: a tensor, a value convertible to one, or a `SparseTensor`, for which the result is dense.
      dtype: dtype of the zeros; None: that of the tensor.
      name: name of the operation; "zeros_like" if None.

    Source: TensorFlow's `tf.zeros_like`.

    Example:
      >>> import headrace as hr
      >>> hr.zeros_like([5, 6]).numpy()
      array([0, 0], dtype=int32)
    """
    if is_sparse(input):
        sp = as_sparse(input)
        with scopes.name_scope(name, "zeros_like", nest.flatten(sp)) as scope:
            return zeros(shape(sp), sp.dtype if dtype is None else dtype, scope)
    return _like(input, 0, dtype, name, "zeros_like", "ZerosLike")


def ones_like(input: Any, dtype: Any = None, name: str | None = None) -> Tensor:
    """Creates a tensor of ones with the shape of another tensor.

    Args:
      input: a tensor, or a value convertible to one.
      dtype: dtype of the ones; None: that of the tensor.
      name: name of the operation; "ones_like" if None.

    Source: TensorFlow's `tf.ones_like`.

    Example:
      >>> import headrace as hr
      >>> hr.ones_like([5, 6]).numpy()
      array([1, 1], dtype=int32)
    """
    return _like(input, 1, dtype, name, "ones_like", "OnesLike")


def _like(input: Any, value: int, dtype: Any, name: str | None, default: str, type: str) -> Any:
    with scopes.name_scope(name, default, [input]) as scope:
        b = scopes.builder(input)
        x = b.tensor(input, None, "input" if value else "tensor")
        wanted = x.dtype.base if dtype is None else dtypes.as_dtype(dtype).base
        if shapes.is_full(x.shape) and wanted not in (dtypes.variant, dtypes.resource):
            return _filled(x.shape, value, wanted, scope, default)
        if wanted is x.dtype.base:
            return b.make(type, (x,), {}, scope)
        return _filled(shape(x), value, wanted, scope, default)


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Creates one-hot vectors: for each index, one element is on, the others are off.

    Args:
      indices: ints of any shape: the index of the element that is on; if it is out of range, all elements are off.
      depth: length of the vectors, an int scalar.
      on_value, off_value: scalars; 1 and 0 if None.
      axis: index of the axis of the vectors in the result; None: last.
      dtype: dtype of the result; None: that of the values, or float32 without values.
      name: name of the operation; "one_hot" if None.

    Raises:
      TypeError: the dtypes of the values contradict each other or `dtype`.

    Source: TensorFlow's `tf.one_hot`.

    Example:
      >>> import headrace as hr
      >>> hr.one_hot([0, 2], 3, dtype=hr.int32)
      <EagerTensor shape=[2,3] dtype=int32: array([[1, 0, 0],
             [0, 0, 1]], dtype=int32)>
    """
    with scopes.name_scope(name, "one_hot", [indices, depth, on_value, off_value]) as scope:
        b = scopes.builder(indices, depth, on_value, off_value)
        wanted = None if dtype is None else dtypes.as_dtype(dtype).base
        on = None if on_value is None else b.tensor(on_value, wanted)
        off = None if off_value is None else b.tensor(off_value, wanted or (None if on is None else on.dtype.base))
        known = next((t.dtype.base for t in (on, off) if t is not None), wanted or dtypes.float32)
        on = b.const(1, known, "on_value") if on is None else on
        off = b.const(0, known, "off_value") if off is None else off
        return b.make("OneHot", (indices, depth, on, off), {"axis": -1 if axis is None else axis}, scope)


def meshgrid(*args: Any, indexing: str = "xy", name: str = "meshgrid") -> list[Tensor]:
    """Returns the coordinates of a grid from the coordinates along its axes.

    Args:
      *args: vectors, the coordinates along each axis.
      indexing: "ij": axis k of the results belongs to vector k; "xy": the first two axes are exchanged.
      name: name of the scope.

    Raises:
      ValueError: `indexing` is unknown.

    Source: TensorFlow's `tf.meshgrid`.

    Example:
      >>> import headrace as hr
      >>> x, y = hr.meshgrid([1, 2], [3, 4])
      >>> x.numpy().tolist(), y.numpy().tolist()
      ([[1, 2], [1, 2]], [[3, 3], [4, 4]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"'indexing' must be either 'xy' or 'ij', got {indexing!r}")
    with scopes.name_scope(name, "meshgrid", list(args)):
        b = scopes.builder(*args)
        n = len(args)
        places = list(range(n))
        if indexing == "xy" and n > 1:
            places[:2] = [1, 0]
        vectors = [b.tensor(x, None, "args") for x in args]
        sizes = [size(x) for x in vectors]
        laid = [
            b.make("Reshape", (x, np.array([1] * at + [-1] + [1] * (n - at - 1), np.int32)), {})
            for x, at in zip(vectors, places, strict=True)
        ]
        if not n:
            return []
        dims = b.tensor([sizes[i] for i in places], dtypes.int32, "packed")
        return [b.make("BroadcastTo", (x, dims), {}) for x in laid]
