"""Operators that convolve: circulant matrices of one to three axes, and Toeplitz matrices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.dtypes import as_dtype
from headrace.v1 import array_ops, check_ops, math_ops, signal
from headrace.v1.linear_operators import hints
from headrace.v1.linear_operators.diagonal import nonzero, without_imaginary
from headrace.v1.linear_operators.operator import (
    LinearOperator,
    arguments,
    broadcast_static,
    kept,
    read,
    real_dtype,
)
from headrace.v1.scoping import name_scope
from headrace.v1.tensor_shape import TensorShape

_FFT = {1: signal.fft, 2: signal.fft2d, 3: signal.fft3d}
_IFFT = {1: signal.ifft, 2: signal.ifft2d, 3: signal.ifft3d}


def _complex(x: Any) -> Any:
    if x.dtype.is_complex:
        return x
    return math_ops.cast(x, dtypes.complex128 if x.dtype.base == dtypes.float64 else dtypes.complex64)


class _Circulant(LinearOperator):
    """Circulant matrices of `_depth` axes, given by their eigenvalues."""

    _depth = 1

    def __init__(
        self,
        spectrum: Any,
        input_output_dtype: Any = dtypes.complex64,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        name: str | None = None,
    ) -> None:
        given = arguments(locals())
        name = name or type(self).__name__
        with name_scope(name):
            self.spectrum = kept(spectrum, "spectrum")
        rank = self.spectrum.get_shape().ndims
        if rank is not None and rank < self._depth:
            raise ValueError(f"Argument `spectrum` must have at least {self._depth} dimensions. Received: {spectrum}.")
        if not self.spectrum.dtype.is_complex:
            if is_self_adjoint is False:
                raise ValueError("A real spectrum always corresponds to a self-adjoint operator.")
            is_self_adjoint = True
        if is_square is False:
            raise ValueError("A [[nested] block] circulant operator is always square.")
        super().__init__(
            as_dtype(input_output_dtype), None, is_non_singular, is_self_adjoint, is_positive_definite, True, name,
            given,
        )  # fmt: skip

    @property
    def block_depth(self) -> int:
        """Number of axes of the convolution."""
        return self._depth

    @property
    def block_shape(self) -> TensorShape:
        """Static sizes of the axes of the convolution."""
        dims: TensorShape = self.spectrum.get_shape()[-self._depth :]
        return dims

    def block_shape_tensor(self) -> Any:
        """Computes the sizes of the axes of the convolution."""
        known = self.block_shape
        if known.is_fully_defined():
            return array_ops.constant(known.as_list(), dtypes.int32)
        return array_ops.shape(read(self.spectrum))[-self._depth :]

    def _axes(self) -> list[int]:
        return list(range(-self._depth, 0))

    def _shape(self) -> TensorShape:
        dims = self.spectrum.get_shape()
        if dims.ndims is None:
            return TensorShape(None)
        sizes = dims.as_list()[-self._depth :]
        size = None if None in sizes else int(np.prod(sizes))
        whole: TensorShape = dims[: -self._depth].concatenate(TensorShape([size, size]))
        return whole

    def _shape_tensor(self) -> Any:
        size = math_ops.reduce_prod(self.block_shape_tensor())
        batch = array_ops.shape(read(self.spectrum))[: -self._depth]
        return array_ops.concat([batch, array_ops.stack([size, size])], 0)

    def _flat(self, x: Any) -> Any:
        """Joins the axes of the convolution."""
        return array_ops.reshape(x, array_ops.concat([array_ops.shape(x)[: -self._depth], [-1]], 0))

    def _in_spectrum(self, x: Any, change: Any) -> Any:
        """Changes the spectra of the columns of matrices."""
        columns = math_ops.matrix_transpose(x)
        dims = array_ops.concat([array_ops.shape(columns)[:-1], self.block_shape_tensor()], 0)
        found = _IFFT[self._depth](change(_FFT[self._depth](_complex(array_ops.reshape(columns, dims)))))
        return math_ops.cast(math_ops.matrix_transpose(self._flat(found)), self.dtype)

    def _values(self, adjoint: bool) -> Any:
        """Returns the spectrum, with an axis for the columns of matrices."""
        spectrum = _complex(read(self.spectrum))
        spectrum = math_ops.conj(spectrum) if adjoint else spectrum
        return array_ops.expand_dims(spectrum, -self._depth - 1)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        return self._in_spectrum(x, lambda s: s * math_ops.cast(self._values(adjoint), s.dtype))

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = math_ops.adjoint(rhs) if adjoint_arg else rhs
        return self._in_spectrum(rhs, lambda s: s / math_ops.cast(self._values(adjoint), s.dtype))

    def convolution_kernel(self, name: str = "convolution_kernel") -> Any:
        """Computes the array that the operator convolves with."""
        with self._name_scope(name):
            return math_ops.cast(_IFFT[self._depth](_complex(read(self.spectrum))), self.dtype)

    def _determinant(self) -> Any:
        return math_ops.cast(math_ops.reduce_prod(read(self.spectrum), axis=self._axes()), self.dtype)

    def _log_abs_determinant(self) -> Any:
        logs = math_ops.log(math_ops.abs(read(self.spectrum)))
        return math_ops.cast(math_ops.reduce_sum(logs, axis=self._axes()), self.dtype)

    def _trace(self) -> Any:
        total = math_ops.reduce_sum(read(self.spectrum), axis=self._axes())
        return math_ops.cast(total, self.dtype)

    def _diag_part(self) -> Any:
        mean = self._trace() / math_ops.cast(self._size(-1), self.dtype)
        return mean[..., None] * array_ops.ones(array_ops.stack([self._size(-1)]), self.dtype)

    def _eigvals(self) -> Any:
        return self._flat(read(self.spectrum))

    def _cond(self) -> Any:
        sizes = math_ops.abs(self._eigvals())
        return math_ops.reduce_max(sizes, axis=-1) / math_ops.reduce_min(sizes, axis=-1)

    def assert_hermitian_spectrum(self, name: str = "assert_hermitian_spectrum") -> Any:
        """Makes an operation that fails if the convolution kernel is not real, up to rounding."""
        with self._name_scope(name):
            kernel = _IFFT[self._depth](_complex(read(self.spectrum)))
            least = float(np.finfo(real_dtype(self.dtype).numpy).eps)
            imaginary = math_ops.abs(math_ops.imag(kernel))
            most = least * math_ops.cast(self._size(-1), imaginary.dtype)
            return check_ops.assert_less(imaginary, most, message="Spectrum was not Hermitian")

    def _assert_non_singular(self) -> Any:
        return nonzero(self.spectrum, "Singular operator:  Spectrum contained zero values.")

    def _assert_positive_definite(self) -> Any:
        text = "Not positive definite:  Real part of spectrum was not all positive."
        return check_ops.assert_positive(math_ops.real(read(self.spectrum)), message=text)

    def _assert_self_adjoint(self) -> Any:
        return without_imaginary(self.spectrum, "Not self-adjoint:  The spectrum contained non-zero imaginary part.")

    def _linop_adjoint(self) -> LinearOperator:
        return type(self)(math_ops.conj(read(self.spectrum)), self.dtype, **self._hints())

    def _linop_inverse(self) -> LinearOperator:
        return type(self)(1 / read(self.spectrum), self.dtype, **self._hints())

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        if type(right_operator) is not type(self):
            return super()._linop_matmul(left_operator, right_operator)
        product = read(self.spectrum) * read(right_operator.spectrum)
        return type(self)(product, self.dtype, **hints.of_commuting(left_operator, right_operator))

    def _linop_solve(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        if type(right_operator) is not type(self):
            return super()._linop_solve(left_operator, right_operator)
        quotient = read(right_operator.spectrum) / read(self.spectrum)
        return type(self)(quotient, self.dtype, **hints.of_commuting(left_operator, right_operator))


class LinearOperatorCirculant(_Circulant):
    """Circulant matrices, whose columns are rotations of the first one.

    Args:
      spectrum: the Fourier transforms of the first columns, [..., n]: the eigenvalues.
      input_output_dtype: dtype of the matrices and arguments.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints; a real spectrum is self-adjoint.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorCirculant`.
    """


class LinearOperatorCirculant2D(_Circulant):
    """Circulant matrices of circulant blocks: see `LinearOperatorCirculant`.

    Args:
      spectrum: [..., n0, n1].

    Source: TensorFlow's `tf.linalg.LinearOperatorCirculant2D`.
    """

    _depth = 2


class LinearOperatorCirculant3D(_Circulant):
    """Circulant matrices of blocks of circulant blocks: see `LinearOperatorCirculant`.

    Args:
      spectrum: [..., n0, n1, n2].

    Source: TensorFlow's `tf.linalg.LinearOperatorCirculant3D`.
    """

    _depth = 3


class LinearOperatorToeplitz(LinearOperator):
    """Toeplitz matrices, with equal elements along each diagonal.

    Args:
      col: the first columns, [..., n].
      row: the first rows, [..., n]; their first element is ignored.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorToeplitz`.
    """

    def __init__(
        self,
        col: Any,
        row: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorToeplitz",
    ) -> None:
        given = arguments(locals())
        if is_square is False:
            raise ValueError("Only square Toeplitz operators currently supported.")
        with name_scope(name):
            self.row, self.col = kept(row, "row"), kept(col, "col")
        for what, x in (("row", self.row), ("col", self.col)):
            if x.get_shape().ndims is not None and x.get_shape().ndims < 1:
                raise ValueError(f"Argument {what} must have at least 1 dimension.  Found: {x!r}")
        super().__init__(
            self.row.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name, given
        )

    def _shape(self) -> TensorShape:
        whole = broadcast_static(self.row.get_shape(), self.col.get_shape())
        return whole.concatenate(whole[-1:]) if whole.ndims is not None else TensorShape(None)

    def _whole(self) -> Any:
        return functools.reduce(
            array_ops.broadcast_dynamic_shape, [array_ops.shape(read(x)) for x in (self.row, self.col)]
        )

    def _shape_tensor(self) -> Any:
        whole = self._whole()
        return array_ops.concat([whole, whole[-1:]], 0)

    def _elements(self) -> Any:
        """Returns the first column from its end, and the first row behind it."""
        whole = self._whole()
        row, col = (array_ops.broadcast_to(read(x), whole) for x in (self.row, self.col))
        return array_ops.concat([array_ops.reverse(col, [-1]), row[..., 1:]], -1)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        # the matrix is a corner of a circulant one of twice the size
        x = math_ops.adjoint(x) if adjoint_arg else x
        whole = self._whole()
        row, col = (array_ops.broadcast_to(read(v), whole) for v in (self.row, self.col))
        first = array_ops.concat([col, array_ops.zeros_like(col[..., :1]), array_ops.reverse(row[..., 1:], [-1])], -1)
        around = LinearOperatorCirculant(signal.fft(_complex(first)), self.dtype)
        longer = array_ops.concat([x, array_ops.zeros_like(x)], -2)
        return around._matmul(longer, adjoint=adjoint)[..., : self._size(-1), :]

    def _to_dense(self) -> Any:
        n = self._size(-1)
        at = math_ops.range(n) + math_ops.range(n - 1, -1, -1)[:, None]
        return array_ops.gather(self._elements(), at, axis=-1)

    def _diag_part(self) -> Any:
        return read(self.col)[..., :1] * array_ops.ones(array_ops.stack([self._size(-1)]), self.dtype)

    def _trace(self) -> Any:
        return math_ops.cast(self._size(-1), self.dtype) * read(self.col)[..., 0]
