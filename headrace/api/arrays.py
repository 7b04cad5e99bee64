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

newaxis = None


# *** shapes ***


def shape(input: Any, out_type: Any = None, name: str | None = None) -> Any:
    """The shape of a tensor, an int vector; a constant where it is known.

    Args:
      input: a tensor, or what can be made one; or a `SparseTensor`.
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


def shape_n(input: Any, out_type: Any = dtypes.int32, name: str | None = None) -> list[Any]:
    """The shapes of tensors, as int vectors.

    Source: TensorFlow's `tf.shape_n`.
    """
    b = scopes.builder(*input)
    return nest.as_list(b.make("ShapeN", (list(input),), {"out_type": dtypes.as_dtype(out_type)}, name))


def rank(input: Any, name: str | None = None) -> Any:
    """How many axes a tensor or `SparseTensor` has, an int32 scalar; a constant where it is known.

    Source: TensorFlow's `tf.rank`.
    """
    with scopes.name_scope(name, "Rank", [input]) as scope:
        b = scopes.builder(input)
        if is_sparse(input):
            return size(input.dense_shape, name=scope)
        x = b.tensor(input, None, "input")
        if x.shape is not None:
            return b.const(len(x.shape), dtypes.int32, scope)
        return b.make("Rank", (x,), {}, scope)


def size(input: Any, out_type: Any = None, name: str | None = None) -> Any:
    """How many elements a tensor has, an int scalar; a constant where it is known. Of a `SparseTensor` all count.

    Source: TensorFlow's `tf.size`.
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


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """The elements of a tensor, in their order, in another shape.

    Args:
      tensor: a tensor, or what can be made one.
      shape: an int vector, or a list of numbers and int scalars; one may be -1: as much as is left.
      name: name of the operation; "Reshape" if None.

    Raises:
      ShapeError (a ValueError): the numbers of elements are known and differ.

    Source: TensorFlow's `tf.reshape`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.reshape(hr.zeros((2, 3)), (3, -1)).shape
      (3, 2)
    """
    return scopes.builder(tensor, shape).make("Reshape", (tensor, shape), {}, name)


def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str = "transpose") -> Any:
    """A tensor with its axes in another order.

    Args:
      a: a tensor, or what can be made one.
      perm: for each new axis which of the old ones it is; None: the other way round.
      conjugate: whether the elements are conjugated.
      name: name of the operation.

    Source: TensorFlow's `tf.transpose`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.transpose(hr.zeros((2, 3, 4)), (0, 2, 1)).shape
      (2, 4, 3)
    """
    with scopes.name_scope(name, "transpose", [a]) as scope:
        b = scopes.builder(a, perm)
        a = b.tensor(a, None, "a")
        if perm is None:
            if a.shape is not None:
                perm = np.arange(len(a.shape) - 1, -1, -1, dtype=np.int32)
            else:
                last = b.make("Sub", (b.make("Rank", (a,), {}), 1), {}, "sub")
                perm = b.make("Range", (last, -1, -1), {})
        type = "ConjugateTranspose" if conjugate and a.dtype.is_complex else "Transpose"
        return b.make(type, (a, perm), {}, scope)


def expand_dims(input: Any, axis: Any, name: str | None = None) -> Any:
    """A tensor with one more axis, of length 1, that stands at `axis` (negative: counted from the end).

    Source: TensorFlow's `tf.expand_dims`.

    Example:
      >>> import headrace as hr
      >>> hr.expand_dims([1, 2], 0).shape
      (1, 2)
    """
    return scopes.builder(input, axis).make("ExpandDims", (input, axis), {}, name)


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    """A tensor without the given axes, which must have length 1; None: without all that do.

    Args:
      input: a tensor.
      axis: a number or a list of them.
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


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """A tensor, repeated along axes of length 1 (and new ones in front) until it has the given shape.

    Source: TensorFlow's `tf.broadcast_to`.
    """
    return scopes.builder(input, shape).make("BroadcastTo", (input, shape), {}, name)


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Any:
    """The shape, an int vector, to which tensors of two shapes broadcast.

    Source: TensorFlow's `tf.broadcast_dynamic_shape`.
    """
    return scopes.builder(shape_x, shape_y).make("BroadcastArgs", (shape_x, shape_y), {})


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> shapes.Shape:
    """The shape to which tensors of two static shapes broadcast.

    Raises:
      ValueError: they do not.

    Source: TensorFlow's `tf.broadcast_static_shape`.
    """
    return shapes.broadcast(shapes.as_shape(shape_x), shapes.as_shape(shape_y))


# *** joining and splitting ***


def concat(values: Any, axis: Any, name: str = "concat") -> Any:
    """Tensors one after the other along an axis that they have.

    Args:
      values: a list of tensors of the same dtype and rank, equal in their other dimensions; or one.
      axis: an int scalar, negative: counted from the end.
      name: name of the operation.

    Raises:
      ShapeError (a ValueError): their shapes do not fit.

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


def stack(values: Any, axis: int = 0, name: str = "stack") -> Any:
    """Tensors of one shape beside each other along a new axis.

    Args:
      values: a list of tensors of the same shape and dtype, or what can be made such.
      axis: where the new axis stands, negative: counted from the end.
      name: name of the operation.

    Raises:
      ValueError: there is no such place.
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


def parallel_stack(values: Any, name: str = "parallel_stack") -> Any:
    """`stack` along axis 0, which may start before all values are there; their shapes must be known.

    Source: TensorFlow's `tf.parallel_stack`.
    """
    with scopes.name_scope(name, "parallel_stack", values):
        b = scopes.builder(*values)
        items = [b.tensor(v, None, "value") for v in values]
        one = items[0].shape
        if not shapes.is_full(one):
            raise ShapeError(f"parallel_stack needs the shape of its values, got {items[0]!r}; use stack")
        rows = [b.make("ExpandDims", (x, 0), {}) for x in items]
        return b.make("ParallelConcat", (rows,), {"shape": (len(items), *one)})


def unstack(value: Any, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Any]:
    """What stands along an axis, each by itself: the reverse of `stack`.

    Args:
      value: a tensor with at least one axis.
      num: the length of the axis; if None, it must be known.
      axis: a number, negative: counted from the end.
      name: name of the operation.

    Raises:
      ValueError: there is no such axis, or its length is not known.

    Source: TensorFlow's `tf.unstack`.
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


def split(value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str = "split") -> list[Any]:
    """A tensor in pieces along an axis.

    Args:
      value: a tensor.
      num_or_size_splits: how many pieces of equal length; or a list or int vector of their lengths, of which one may
        be -1: what is left.
      axis: an int scalar.
      num: how many pieces there are, if the lengths are a tensor whose own is not known.
      name: name of the operation.

    Raises:
      ValueError: the number of pieces is not known.
      ShapeError (a ValueError): the axis cannot be divided so.

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


def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """A tensor, repeated along each axis as often as `multiples`, an int vector, says.

    Source: TensorFlow's `tf.tile`.
    """
    return scopes.builder(input, multiples).make("Tile", (input, multiples), {}, name)


def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Any:
    """A tensor with more around it.

    Args:
      tensor: a tensor.
      paddings: for each axis how much comes before and after: an int matrix of two columns.
      mode: "CONSTANT": `constant_values`; "REFLECT": what the edge would mirror, without the edge itself;
        "SYMMETRIC": with it.
      constant_values: a scalar.
      name: name of the operation; "Pad", "PadV2" or "MirrorPad" if None.

    Raises:
      ValueError: there is no such mode.

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


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    """A tensor the other way round along the axes that `axis`, an int vector, names.

    Source: TensorFlow's `tf.reverse`.
    """
    return scopes.builder(tensor, axis).make("ReverseV2", (tensor, axis), {}, name)


def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int | None = None, batch_axis: int | None = None, name: str | None = None
) -> Any:
    """A batch of sequences, the first `seq_lengths[i]` elements of each the other way round.

    Source: TensorFlow's `tf.reverse_sequence`.
    """
    if seq_axis is None:
        raise ValueError("'seq_axis', the axis along which the sequences run, must be given")
    attrs = {"seq_dim": seq_axis, "batch_dim": batch_axis or 0}
    return scopes.builder(input, seq_lengths).make("ReverseSequence", (input, seq_lengths), attrs, name)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Any:
    """A tensor whose elements are moved along axes; what leaves at one end comes in at the other.

    Source: TensorFlow's `tf.roll`.
    """
    return scopes.builder(input, shift, axis).make("Roll", (input, shift, axis), {}, name)


def bitcast(input: Any, type: Any, name: str | None = None) -> Any:
    """The bytes of a tensor, read as another dtype.

    Source: TensorFlow's `tf.bitcast`.
    """
    return scopes.builder(input).make("Bitcast", (input,), {"type": dtypes.as_dtype(type)}, name)


# *** filling ***


def fill(dims: Any, value: Any, name: str | None = None) -> Any:
    """A tensor of shape `dims`, an int vector, with the scalar `value` everywhere.

    Source: TensorFlow's `tf.fill`.
    """
    return scopes.builder(dims, value).make("Fill", (dims, value), {}, name)


def zeros(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Any:
    """A tensor of zeros (of empty strings; of False).

    Args:
      shape: numbers, or an int vector.
      dtype: of the elements.
      name: name of the operation; "zeros" if None.

    Source: TensorFlow's `tf.zeros`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.zeros((2, 3), hr.int32)
      <Tensor 'zeros:0' shape=[2,3] dtype=int32>
    """
    return _filled(shape, 0, dtype, name, "zeros")


def ones(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Any:
    """A tensor of ones (of True).

    Args:
      shape: numbers, or an int vector.
      dtype: of the elements.
      name: name of the operation; "ones" if None.

    Source: TensorFlow's `tf.ones`.
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


def zeros_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Zeros in the shape of a tensor.

    Args:
      input: a tensor, or what can be made one; or a `SparseTensor`, for which the result is dense.
      dtype: of the zeros; that of the tensor if None.
      name: name of the operation; "zeros_like" if None.

    Source: TensorFlow's `tf.zeros_like`.
    """
    if is_sparse(input):
        sp = as_sparse(input)
        with scopes.name_scope(name, "zeros_like", nest.flatten(sp)) as scope:
            return zeros(shape(sp), sp.dtype if dtype is None else dtype, scope)
    return _like(input, 0, dtype, name, "zeros_like", "ZerosLike")


def ones_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Ones in the shape of a tensor; see `zeros_like`.

    Source: TensorFlow's `tf.ones_like`.
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
) -> Any:
    """For each index a vector with one element on and the others off.

    Args:
      indices: which element; one that is out of range turns none on.
      depth: how long the vectors are, an int scalar.
      on_value, off_value: scalars; 1 and 0 if None.
      axis: where the axis of the vectors stands; None: last.
      dtype: of the result; if None, that of the values, and float32 if there are none.
      name: name of the operation; "one_hot" if None.

    Raises:
      TypeError: values and `dtype` contradict one another.

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


def meshgrid(*args: Any, indexing: str = "xy", name: str = "meshgrid") -> list[Any]:
    """The coordinates of a grid, one tensor for each axis, from vectors of the coordinates along the axes.

    Args:
      *args: vectors.
      indexing: "ij": axis k of the results is that of vector k; "xy": the first two are swapped.
      name: name of the scope.

    Raises:
      ValueError: `indexing` is something else.

    Source: TensorFlow's `tf.meshgrid`.
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
