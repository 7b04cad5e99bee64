"""Matrices: products, transposes, diagonals."""

from __future__ import annotations

import math as numbers
import re
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import arrays, math, reductions, scopes
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """Multiplies matrices, in the last two axes of the tensors.

    Args:
      a, b: tensors of numbers of the same dtype and rank 2 or more. Batch axes, which precede the last two, are
        broadcast.
      transpose_a, transpose_b: whether to transpose a factor first.
      adjoint_a, adjoint_b: whether to transpose and conjugate a factor first.
      name: name of the operation; "MatMul" if None.

    Raises:
      ValueError: both transposition and adjoint are requested for a factor.
      ShapeError (a ValueError): the shapes are incompatible.

    Source: TensorFlow's `tf.matmul`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.matmul(hr.ones((2, 3)), hr.ones((4, 3)), transpose_b=True).shape
      (2, 4)
    """
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        side = "a" if transpose_a and adjoint_a else "b"
        raise ValueError(f"only one of 'transpose_{side}' and 'adjoint_{side}' can be True")
    make = scopes.builder(a, b)
    if make.graph is None and not adjoint_a and not adjoint_b:  # one op, without a scope
        if a.__class__ is not b.__class__ or a.__class__ is not make.tensor_type:
            a, b = _tensors(make, a, b)
        if len(a.shape) <= 2 and len(b.shape) <= 2:
            attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b} if transpose_a or transpose_b else {}
            return make.make("MatMul", (a, b), attrs, name)
    with scopes.name_scope(name, "MatMul", [a, b]) as scope:
        make = scopes.builder(a, b)
        a, b = _tensors(make, a, b)
        left, right = a.shape, b.shape
        if left is None or right is None or len(left) > 2 or len(right) > 2:
            if transpose_a:
                a, adjoint_a = math.conj(a), True
            if transpose_b:
                b, adjoint_b = math.conj(b), True
            return make.make("BatchMatMulV2", (a, b), {"adj_x": adjoint_a, "adj_y": adjoint_b}, scope)
        if adjoint_a:
            a, transpose_a = math.conj(a), True
        if adjoint_b:
            b, transpose_b = math.conj(b), True
        return make.make("MatMul", (a, b), {"transpose_a": transpose_a, "transpose_b": transpose_b}, scope)


def _tensors(b: Any, x: Any, y: Any, names: tuple[str, str] = ("a", "b")) -> tuple[Any, Any]:
    x = b.tensor(x, getattr(y, "dtype", None) if not hasattr(x, "dtype") else None, names[0])
    return x, b.tensor(y, None if hasattr(y, "dtype") else x.dtype.base, names[1])


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    name: str | None = None,
) -> Tensor:
    """Multiplies matrices by vectors.

    Args:
      a: matrices, [..., M, N].
      b: vectors, [..., N], of the same dtype.
      transpose_a: whether to transpose `a` first.
      adjoint_a: whether to transpose and conjugate `a` first.
      name: name of the scope; "MatVec" if None.

    Source: TensorFlow's `tf.linalg.matvec`.

    Example:
      >>> import headrace as hr
      >>> hr.matvec([[1, 2], [3, 4]], [1, 1])
      <EagerTensor shape=[2] dtype=int32: array([3, 7], dtype=int32)>
    """
    with scopes.name_scope(name, "MatVec", [a, b]):
        column = arrays.expand_dims(b, -1)
        return arrays.squeeze(matmul(a, column, transpose_a=transpose_a, adjoint_a=adjoint_a), [-1])


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """Computes the sums of products of `a` and `b` over pairs of axes.

    Args:
      a, b: tensors of numbers of the same dtype.
      axes: an int n, to pair the last n axes of `a` with the first n of `b`; or two lists (or ints): the axes of `a`
        and the axes of `b` with which they are paired.
      name: name of the operation; "Tensordot" if None.

    Returns:
      A tensor with the other axes of `a`, then those of `b`.

    Raises:
      ValueError: `axes` is invalid, or an axis does not exist.

    Source: TensorFlow's `tf.tensordot`.

    Example:
      >>> import headrace as hr
      >>> hr.tensordot([1, 2], [3, 4], 1)
      <EagerTensor shape=[] dtype=int32: np.int32(11)>
    """
    with scopes.name_scope(name, "Tensordot", [a, b, axes]) as scope:
        make = scopes.builder(a, b)
        a, b = _tensors(make, a, b)
        if a.shape is None or b.shape is None:
            raise ShapeError(
                f"tensordot needs tensors of known rank, got {a!r} and {b!r}; set their shapes (set_shape)"
            )
        ours, theirs = _paired(axes, a, b)
        left, left_free = _as_matrix(make, a, ours, is_left=True)
        right, right_free = _as_matrix(make, b, theirs, is_left=False)
        product = make.make("MatMul", (left, right), {})
        free = [*left_free, *right_free]
        if all(isinstance(d, int) for d in free):
            if product.shape == tuple(free):
                return product
            return make.make("Reshape", (product, make.const(np.array(free, np.int32), None, "shape")), {}, scope)
        return make.make("Reshape", (product, make.tensor(free, dtypes.int32, "shape")), {}, scope)


def _paired(axes: Any, a: Any, b: Any) -> tuple[list[int], list[int]]:
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(len(a.shape), len(b.shape)):
            raise ValueError(f"'axes' must be from 0 to the rank of both tensors, got {axes} for {a!r} and {b!r}")
        return list(range(len(a.shape) - int(axes), len(a.shape))), list(range(int(axes)))
    if not isinstance(axes, (list, tuple, np.ndarray)) or len(axes) != 2:
        raise ValueError(f"'axes' must be an integer or have length 2, got {axes!r}")
    pairs = [[int(x) for x in np.ravel(np.asarray(side))] for side in axes]
    if len(pairs[0]) != len(pairs[1]):
        raise ValueError(f"'axes' must name as many axes of both tensors, got {axes!r}")
    for t, side in zip((a, b), pairs, strict=True):
        for i, axis in enumerate(side):
            if not -len(t.shape) <= axis < len(t.shape):
                raise ValueError(f"'axes' names axis {axis} of {t!r}, which has {len(t.shape)} axes")
            side[i] = axis % len(t.shape)
    return pairs[0], pairs[1]


def _as_matrix(b: Any, x: Any, axes: list[int], is_left: bool) -> tuple[Any, list[Any]]:
    """Reshapes `x` to a matrix for a contraction; returns also its free sizes.

    The contracted axes are the columns of the left factor, and the rows of the right one.
    """
    free = [i for i in range(len(x.shape)) if i not in axes]
    order = [*free, *axes] if is_left else [*axes, *free]
    known = shapes.is_full(x.shape)
    lengths: list[Any] = list(x.shape)
    if not known:
        shape = b.make("Shape", (x,), {"out_type": dtypes.int32})
        lengths = [
            d if d is not None else b.make("GatherV2", (shape, i, 0), {}, "GatherV2") for i, d in enumerate(x.shape)
        ]
    summed = [x.shape[i] for i in axes]
    if None in summed:
        n: Any = -1
    else:
        n = numbers.prod(summed)
    rest: Any = numbers.prod([x.shape[i] for i in free]) if None not in [x.shape[i] for i in free] else -1
    if n == -1 and rest == -1:
        n = b.make("Prod", (b.tensor([lengths[i] for i in axes], dtypes.int32), 0), {})
    matrix = [rest, n] if is_left else [n, rest]
    if order != sorted(order):
        x = b.make("Transpose", (x, np.array(order, np.int32)), {}, "transpose")
    if list(x.shape) != matrix:
        x = b.make("Reshape", (x, b.tensor(matrix, dtypes.int32, "shape") if n is not None else matrix), {})
    return x, [lengths[i] for i in free]


def einsum(equation: str, *inputs: Any, name: str | None = None) -> Tensor:
    """Computes sums of products by an equation of index letters.

    Args:
      equation: for example "ij,jk->ik": a letter for each axis of each tensor. The result is summed over the letters
        that are not after the arrow. Without an arrow, the result has the letters that appear once, in alphabetical
        order. "..." stands for further axes.
      *inputs: tensors of numbers of the same dtype.
      name: name of the scope; "einsum" if None.

    Raises:
      ValueError: the equation does not match the tensors.

    Source: TensorFlow's `tf.einsum`.

    Example:
      >>> import headrace as hr
      >>> hr.einsum('ij,j->i', [[1, 2], [3, 4]], [1, 1])
      <EagerTensor shape=[2] dtype=int32: array([3, 7], dtype=int32)>
    """
    text = equation.replace(" ", "")
    if "->" not in text:
        letters = re.sub(r"[^A-Za-z]", "", text)
        once = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        text = f"{text}->{'...' if '...' in text else ''}{once}"
    if text.partition("->")[0].count(",") + 1 != len(inputs):
        raise ValueError(f"the equation {equation!r} is for {text.count(',') + 1} tensors, got {len(inputs)}")
    with scopes.name_scope(name, "einsum", list(inputs)):
        b = scopes.builder(*inputs)
        if len(inputs) <= 2:
            return b.make("Einsum", (list(inputs),), {"equation": text})
        return _einsum_of_many(b, text, list(inputs))


def _einsum_of_many(b: Any, text: str, inputs: list[Any]) -> Any:
    """Contracts two tensors at a time, from left to right."""
    terms, _, out = text.partition("->")
    left, *rest = terms.split(",")
    value = inputs[0]
    for i, (term, x) in enumerate(zip(rest, inputs[1:], strict=True)):
        later = "".join([*rest[i + 1 :], out])
        is_last = i == len(rest) - 1
        stays = "".join(dict.fromkeys(c for c in (left + term).replace(".", "") if c in later))
        dots = "..." if "..." in left + term else ""
        kept = out if is_last else dots + stays
        value = b.make("Einsum", ([value, x],), {"equation": f"{left},{term}->{kept}"})
        left = kept
    return value


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """Exchanges the last two axes of `a`.

    Args:
      a: a tensor of rank 2 or more.
      name: name of the scope.
      conjugate: whether to conjugate the result.

    Raises:
      ShapeError (a ValueError): the static rank is below 2.

    Source: TensorFlow's `tf.linalg.matrix_transpose`.

    Example:
      >>> import headrace as hr
      >>> hr.matrix_transpose([[1, 2], [3, 4]])
      <EagerTensor shape=[2,2] dtype=int32: array([[1, 3],
             [2, 4]], dtype=int32)>
    """
    with scopes.name_scope(name, "matrix_transpose", [a]):
        b = scopes.builder(a)
        a = b.tensor(a, None, "a")
        if a.shape is not None:
            n = len(a.shape)
            if n < 2:
                raise ShapeError(f"'a' must be a matrix or have more axes, got {a!r}")
            return arrays.transpose(a, [*range(n - 2), n - 1, n - 2], conjugate=conjugate)
        rank = b.make("Rank", (a,), {})
        before = b.make("Range", (0, b.make("Sub", (rank, 2), {}, "sub"), 1), {})
        last = [b.make("Sub", (rank, 1), {}, "sub"), b.make("Sub", (rank, 2), {}, "sub")]
        return arrays.transpose(a, b.make("ConcatV2", ([before, last], 0), {}, "concat"), conjugate=conjugate)


def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """Exchanges the last two axes of `matrix`, and conjugates it.

    Args:
      matrix: a tensor of rank 2 or more.
      name: name of the scope; "adjoint" if None.

    Source: TensorFlow's `tf.linalg.adjoint`.

    Example:
      >>> import headrace as hr
      >>> hr.adjoint([[1 + 1j, 2]]).numpy().tolist()
      [[(1-1j)], [(2-0j)]]
    """
    with scopes.name_scope(name, "adjoint", [matrix]):
        return matrix_transpose(matrix, conjugate=True)


# *** diagonals ***


def diag(
    diagonal: Any,
    name: str = "diag",
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Creates matrices with given diagonals.

    Args:
      diagonal: the diagonals, in the last axis; if `k` is a pair, in the last two axes.
      name: name of the operation.
      k: index of the diagonal: 0 is the main one, 1 the one above it; or a pair: the lowest and the highest index.
      num_rows, num_cols: height and width of the matrices; -1: the least possible.
      padding_value: the value of the other elements.
      align: alignment of diagonals that are shorter than the longest. "RIGHT_LEFT": upper ones to the right, lower ones
        to the left.

    Source: TensorFlow's `tf.linalg.diag`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.diag([1, 2])
      <EagerTensor shape=[2,2] dtype=int32: array([[1, 0],
             [0, 2]], dtype=int32)>
    """
    b = scopes.builder(diagonal, k, num_rows, num_cols, padding_value)
    args = (diagonal, k, num_rows, num_cols, padding_value)
    return b.make("MatrixDiagV3", args, {"align": align}, name)


def diag_part(
    input: Any, name: str = "diag_part", k: Any = 0, padding_value: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """Extracts the diagonals of matrices.

    Args:
      input: [..., M, N].
      name: name of the operation.
      k, align: see `diag`.
      padding_value: the value that pads shorter diagonals.

    Source: TensorFlow's `tf.linalg.diag_part`.

    Example:
      >>> import headrace as hr
      >>> hr.diag_part([[1, 2], [3, 4]])
      <EagerTensor shape=[2] dtype=int32: array([1, 4], dtype=int32)>
    """
    b = scopes.builder(input, k, padding_value)
    return b.make("MatrixDiagPartV3", (input, k, padding_value), {"align": align}, name)


def set_diag(input: Any, diagonal: Any, name: str = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """Replaces the diagonals of matrices.

    Args:
      input: [..., M, N].
      diagonal: the new diagonals; see `diag`.
      name: name of the operation.
      k, align: see `diag`.

    Source: TensorFlow's `tf.linalg.set_diag`.

    Example:
      >>> import headrace as hr
      >>> hr.set_diag([[1, 2], [3, 4]], [8, 9])
      <EagerTensor shape=[2,2] dtype=int32: array([[8, 2],
             [3, 9]], dtype=int32)>
    """
    b = scopes.builder(input, diagonal, k)
    return b.make("MatrixSetDiagV3", (input, diagonal, k), {"align": align}, name)


def band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Tensor:
    """Sets the elements of matrices outside a band around the main diagonal to zero.

    Args:
      input: [..., M, N].
      num_lower, num_upper: numbers of diagonals to keep below and above the main one, int scalars; negative: all.
      name: name of the operation; "MatrixBandPart" if None.

    Source: TensorFlow's `tf.linalg.band_part`.

    Example:
      >>> import headrace as hr
      >>> hr.band_part([[1, 2], [3, 4]], 0, 0)
      <EagerTensor shape=[2,2] dtype=int32: array([[1, 0],
             [0, 4]], dtype=int32)>
    """
    b = scopes.builder(input, num_lower, num_upper)
    return b.make("MatrixBandPart", (input, num_lower, num_upper), {}, name)


def tensor_diag(diagonal: Any, name: str | None = None) -> Tensor:
    """Creates a tensor of twice the rank with `diagonal` on its diagonal.

    Elements whose two halves of the index are equal are those of `diagonal`; the others are zero.

    Args:
      diagonal: a tensor.
      name: name of the operation; "Diag" if None.

    Source: TensorFlow's `tf.linalg.tensor_diag`.

    Example:
      >>> import headrace as hr
      >>> hr.tensor_diag([1, 2]).numpy().tolist()
      [[1, 0], [0, 2]]
    """
    return scopes.builder(diagonal).make("Diag", (diagonal,), {}, name)


def tensor_diag_part(input: Any, name: str | None = None) -> Tensor:
    """Extracts the diagonal of a tensor: the inverse of `tensor_diag`.

    Args:
      input: a tensor of even rank whose shape has two equal halves.
      name: name of the operation; "DiagPart" if None.

    Source: TensorFlow's `tf.linalg.tensor_diag_part`.

    Example:
      >>> import headrace as hr
      >>> hr.tensor_diag_part([[1, 2], [3, 4]]).numpy()
      array([1, 4], dtype=int32)
    """
    return scopes.builder(input).make("DiagPart", (input,), {}, name)


def trace(x: Any, name: str | None = None) -> Tensor:
    """Computes the sums of the main diagonals of matrices.

    Args:
      x: [..., M, N].
      name: name of the operation; "Trace" if None.

    Source: TensorFlow's `tf.linalg.trace`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.trace([[1, 2], [3, 4]]).numpy()
      np.int32(5)
    """
    with scopes.name_scope(name, "Trace", [x]) as scope:
        return reductions.reduce_sum(diag_part(x), [-1], name=scope)


def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Creates identity matrices.

    Args:
      num_rows: number of rows, an int scalar.
      num_columns: number of columns, an int scalar; None: `num_rows`.
      batch_shape: the sizes of the batch axes; None: there are none.
      dtype: dtype of the elements.
      name: name of the scope; "eye" if None.

    Source: TensorFlow's `tf.eye`.

    Example:
      >>> import headrace as hr
      >>> hr.eye(2)
      <EagerTensor shape=[2,2] dtype=float32: array([[1., 0.],
             [0., 1.]], dtype=float32)>
    """
    with scopes.name_scope(name, "eye", [num_rows, num_columns]):
        b = scopes.builder(num_rows, num_columns, batch_shape)
        is_square = num_columns is None
        columns = num_rows if is_square else num_columns
        batch = [] if batch_shape is None else batch_shape
        if isinstance(num_rows, int) and isinstance(columns, int) and isinstance(batch, (list, tuple)):
            size: Any = [*batch, min(num_rows, columns)]
            matrix: Any = [*batch, num_rows, columns]
        else:
            short = b.make("Minimum", (num_rows, columns), {})
            batch = b.tensor(batch, dtypes.int32, "shape")
            size = b.make("ConcatV2", ([batch, [short]], 0), {}, "concat")
            matrix = None if is_square else b.make("ConcatV2", ([batch, [num_rows, columns]], 0), {}, "concat")
        ones = arrays.ones(size, dtype)
        if is_square:
            return diag(ones)
        return set_diag(arrays.zeros(matrix, dtype), ones)


# *** vectors ***


def cross(a: Any, b: Any, name: str | None = None) -> Tensor:
    """Computes the cross products of vectors of three elements.

    Args:
      a, b: numbers, [..., 3], of the same shape and dtype.
      name: name of the operation; "Cross" if None.

    Source: TensorFlow's `tf.linalg.cross`.

    Example:
      >>> import headrace as hr
      >>> hr.cross([1, 0, 0], [0, 1, 0])
      <EagerTensor shape=[3] dtype=int32: array([0, 0, 1], dtype=int32)>
    """
    return scopes.builder(a, b).make("Cross", (a, b), {}, name)
