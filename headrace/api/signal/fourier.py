"""Fourier transforms in any number of dimensions, cosine transforms, and their inverses."""

from __future__ import annotations

import math as numbers
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, reductions, scopes, tensors
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor

_DIMENSIONS = {1: "last axis", 2: "last two axes", 3: "last three axes"}


class Fourier(Protocol):
    """A transform of complex numbers along the last axes."""

    def __call__(self, input: Any, name: str | None = None) -> Tensor: ...


class RealFourier(Protocol):
    """A transform from or to real numbers along the last axes."""

    def __call__(self, input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor: ...


class FourierOfAxes(Protocol):
    """A transform along any axes."""

    def __call__(
        self,
        input_tensor: Any,
        fft_length: Any = None,
        axes: Any = None,
        norm: str | None = None,
        name: str | None = None,
    ) -> Tensor: ...


# *** of complex numbers ***


def _complex(name: str, type: str, what: str, dimensions: int) -> Fourier:
    def function(input: Any, name: str | None = None) -> Any:
        return scopes.builder(input).make(type, (input,), {}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what} of the {_DIMENSIONS[dimensions]}.

    Args:
      input: complex64 or complex128.
      name: name of the operation; "{type}" if None.

    Returns:
      A tensor of the same shape and dtype.

    Source: TensorFlow's `tf.signal.{name}`.
    """
    return function


_THERE, _BACK = "The discrete Fourier transform", "The inverse of the discrete Fourier transform"

fft = _complex("fft", "FFT", _THERE, 1)
fft2d = _complex("fft2d", "FFT2D", _THERE, 2)
fft3d = _complex("fft3d", "FFT3D", _THERE, 3)
ifft = _complex("ifft", "IFFT", _BACK, 1)
ifft2d = _complex("ifft2d", "IFFT2D", _BACK, 2)
ifft3d = _complex("ifft3d", "IFFT3D", _BACK, 3)


# *** of real numbers ***


def _real(name: str, type: str, dimensions: int) -> RealFourier:
    def function(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Any:
        with scopes.name_scope(name, type.lower(), [input_tensor, fft_length]) as scope:
            b = scopes.builder(input_tensor, fft_length)
            x = _of_dtype(b, input_tensor, (dtypes.float32, dtypes.float64), type.lower())
            lengths = _lengths(b, x, dimensions, fft_length)
            x = _padded(b, x, lengths)
            is_single = x.dtype.base is dtypes.float32
            return b.make(type, (x, lengths), {"Tcomplex": dtypes.complex64 if is_single else dtypes.complex128}, scope)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The discrete Fourier transform of real numbers, of the {_DIMENSIONS[dimensions]}.

    Of the last axis only the frequencies from 0 up to the half of them are there: the others are their conjugates.

    Args:
      input_tensor: float32 or float64.
      fft_length: [{dimensions}], int32: the length of the transform for each axis; what is longer is cut off, what is
        shorter filled up with zeros. If None, the lengths of `input_tensor`.
      name: name of the operation; "{type.lower()}" if None.

    Returns:
      complex64 or complex128; the last axis has the length `fft_length[-1] // 2 + 1`.

    Raises:
      TypeError: `input_tensor` has another dtype.
      ShapeError (a ValueError): it has too few axes, or `fft_length` is of another length.

    Source: TensorFlow's `tf.signal.{name}`.
    """
    return function


def _real_back(name: str, type: str, dimensions: int) -> RealFourier:
    def function(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Any:
        with scopes.name_scope(name, type.lower(), [input_tensor, fft_length]) as scope:
            b = scopes.builder(input_tensor, fft_length)
            x = _of_dtype(b, input_tensor, (dtypes.complex64, dtypes.complex128), type.lower())
            lengths = _lengths(b, x, dimensions, fft_length, is_back=True)
            x = _padded(b, x, lengths, is_back=True)
            is_single = x.dtype.base is dtypes.complex64
            return b.make(type, (x, lengths), {"Treal": dtypes.float32 if is_single else dtypes.float64}, scope)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The inverse of `{name[1:]}`.

    Args:
      input_tensor: complex64 or complex128: the frequencies, of the last axis only the first half of them.
      fft_length: [{dimensions}], int32: the lengths of the result's {_DIMENSIONS[dimensions]}. If None, those of
        `input_tensor`, and `2 * (length - 1)` for the last axis, because odd and even lengths cannot be distinguished.
      name: name of the operation; "{type.lower()}" if None.

    Returns:
      float32 or float64.

    Raises:
      TypeError: `input_tensor` has another dtype.
      ShapeError (a ValueError): it has too few axes, or `fft_length` is of another length.

    Source: TensorFlow's `tf.signal.{name}`.
    """
    return function


def _of_dtype(b: Any, x: Any, allowed: tuple[dtypes.DType, dtypes.DType], what: str) -> Any:
    x = tensors.floats(b, x, "input_tensor")
    if x.dtype.base not in allowed:
        raise TypeError(f"{what} takes {allowed[0].name} or {allowed[1].name}, got {x!r}")
    return x


def _lengths(b: Any, x: Any, dimensions: int, given: Any, is_back: bool = False) -> Any:
    """Returns the lengths of the transforms: as given, or those of `x`."""
    if x.shape is not None and len(x.shape) < dimensions:
        raise ShapeError(f"the transform is of {dimensions} axes, got {x!r}")
    if given is not None:
        return b.tensor(given, dtypes.int32, "fft_length")
    sizes = None if x.shape is None else x.shape[-dimensions:]
    if sizes is not None and len(sizes) == dimensions and None not in sizes:
        if is_back:
            sizes = (*sizes[:-1], max(0, 2 * (sizes[-1] - 1)))
        return b.tensor(np.array(sizes, np.int32), dtypes.int32, "fft_length")
    found = arrays.shape(x, out_type=dtypes.int32)[-dimensions:]
    if is_back:
        last = b.make("Maximum", (0, (found[-1:] - 1) * 2), {})
        found = arrays.concat([found[:-1], last], 0)
    return found


def _padded(b: Any, x: Any, lengths: Any, is_back: bool = False) -> Any:
    """Pads the last axes of `x` with zeros to the lengths that the transforms need."""
    known = tensors.constant_value(lengths)
    if lengths.shape is None or len(lengths.shape) != 1 or lengths.shape[0] is None:
        return x  # the op reports the error, or handles unknown lengths
    n = lengths.shape[0]
    if x.shape is not None and len(x.shape) < n:
        return x
    if known is not None and x.shape is not None:
        wanted = [int(d) for d in known]
        if is_back:
            wanted[-1] = wanted[-1] // 2 + 1
        inner = x.shape[-n:]
        if all(d is not None and d >= w for d, w in zip(inner, wanted, strict=True)):
            return x
        if None not in inner:
            pads = [[0, max(0, w - d)] for d, w in zip(inner, wanted, strict=True)]
            return arrays.pad(x, [[0, 0]] * (len(x.shape) - n) + pads)
    needed = arrays.concat([lengths[:-1], lengths[-1:] // 2 + 1], 0) if is_back else lengths
    size = arrays.shape(x)
    more = b.make("Maximum", (0, needed - size[-n:]), {})
    more = arrays.concat([arrays.zeros_like(size[:-n]), more], 0)
    padded = arrays.pad(x, arrays.stack([arrays.zeros_like(more), more], 1))
    return padded if x.shape is None else tensors.ensure_shape(padded, (*x.shape[:-n], *[None] * n))


rfft = _real("rfft", "RFFT", 1)
rfft2d = _real("rfft2d", "RFFT2D", 2)
rfft3d = _real("rfft3d", "RFFT3D", 3)
irfft = _real_back("irfft", "IRFFT", 1)
irfft2d = _real_back("irfft2d", "IRFFT2D", 2)
irfft3d = _real_back("irfft3d", "IRFFT3D", 3)


# *** along given axes ***


def _of_axes(name: str, type: str, takes: str, is_back: bool) -> FourierOfAxes:
    def function(
        input_tensor: Any, fft_length: Any = None, axes: Any = None, norm: str | None = None, name: str | None = None
    ) -> Any:
        if norm not in (None, "backward", "forward", "ortho"):
            raise ValueError(f"'norm' must be None, 'backward', 'forward' or 'ortho', got {norm!r}")
        with scopes.name_scope(name, type.lower(), [input_tensor, fft_length, axes]) as scope:
            b = scopes.builder(input_tensor, fft_length, axes)
            is_real = takes == "float32 or float64"
            allowed = (dtypes.float32, dtypes.float64) if is_real else (dtypes.complex64, dtypes.complex128)
            x = _of_dtype(b, input_tensor, allowed, type.lower())
            if x.shape is None:
                raise ShapeError(f"the rank of 'input_tensor' must be known, got {x!r}; set its shape (set_shape)")
            rank = len(x.shape)
            if axes is None:
                n = rank if fft_length is None else len(np.ravel(fft_length))
                chosen = list(range(rank - n, rank))
            else:
                chosen = [int(a) % rank if -rank <= int(a) < rank else int(a) for a in np.ravel(axes)]
            if fft_length is None:
                lengths = _lengths_of(b, x, chosen, is_back and type.startswith("IR"))
            else:
                lengths = b.tensor(fft_length, dtypes.int32, "fft_length")
            attrs = {}
            if type == "RFFTND":
                attrs["Tcomplex"] = dtypes.complex64 if x.dtype.base is dtypes.float32 else dtypes.complex128
            elif type == "IRFFTND":
                attrs["Treal"] = dtypes.float32 if x.dtype.base is dtypes.complex64 else dtypes.float64
            args = (x, lengths, b.const(np.array(chosen, np.int32)))
            if norm in (None, "backward"):
                return b.make(type, args, attrs, scope)
            found = b.make(type, args, attrs)
            count = math.cast(reductions.reduce_prod(lengths), dtypes.float64)
            power = 0.5 if norm == "ortho" else 1.0
            factor = b.make("Pow", (count, power if is_back else -power), {})
            return b.make("Mul", (found, math.cast(factor, found.dtype.base)), {}, scope)

    function.__name__ = function.__qualname__ = name
    of = "The inverse of a discrete Fourier transform" if is_back else "A discrete Fourier transform"
    function.__doc__ = f"""{of} of chosen axes.

    Args:
      input_tensor: {takes}, of known rank.
      fft_length: int32, the length of the transform for each of the axes; if None, those that `input_tensor` has.
      axes: which axes; if None, the last ones, as many as there are lengths, or all.
      norm: "backward" (as None) divides the inverse by the number of elements, "forward" the transform itself, "ortho"
        both by its root.
      name: name of the operation; "{type.lower()}" if None.

    Raises:
      ValueError: there is no such `norm`, or the rank is not known.
      TypeError: `input_tensor` has another dtype.

    Source: TensorFlow's `tf.signal.{name}`.
    """
    return function


def _lengths_of(b: Any, x: Any, axes: Sequence[int], is_half: bool) -> Any:
    if all(0 <= a < len(x.shape) and x.shape[a] is not None for a in axes):
        sizes = [x.shape[a] for a in axes]
        if is_half and sizes:
            sizes[-1] = max(0, 2 * (sizes[-1] - 1))
        return b.tensor(np.array(sizes, np.int32), dtypes.int32, "fft_length")
    found = b.make("GatherV2", (arrays.shape(x), np.array(axes, np.int32), 0), {})
    return arrays.concat([found[:-1], (found[-1:] - 1) * 2], 0) if is_half else found


_COMPLEX, _FLOAT = "complex64 or complex128", "float32 or float64"

fftnd = _of_axes("fftnd", "FFTND", _COMPLEX, False)
ifftnd = _of_axes("ifftnd", "IFFTND", _COMPLEX, True)
rfftnd = _of_axes("rfftnd", "RFFTND", _FLOAT, False)
irfftnd = _of_axes("irfftnd", "IRFFTND", _COMPLEX, True)


# *** shifts of the zero frequency ***


def fftshift(x: Any, axes: Any = None, name: str | None = None) -> Any:
    """Moves the zero frequency, the first element of a transform, to the middle of axes.

    Args:
      x: a tensor; if `axes` is None, of known rank.
      axes: an axis or a list of axes; None: all.
      name: name of the operation; "fftshift" if None.

    Source: TensorFlow's `tf.signal.fftshift`.

    Example:
      >>> import headrace as hr
      >>> hr.signal.fftshift([0, 1, 2, -2, -1])
      <EagerTensor shape=[5] dtype=int32: array([-2, -1,  0,  1,  2], dtype=int32)>
    """
    return _shifted(x, axes, name, "fftshift", is_back=False)


def ifftshift(x: Any, axes: Any = None, name: str | None = None) -> Any:
    """Moves the zero frequency from the middle of axes to the first element.

    Args:
      x: a tensor; if `axes` is None, of known rank.
      axes: an axis or a list of axes; None: all.
      name: name of the operation; "ifftshift" if None.

    Source: TensorFlow's `tf.signal.ifftshift`.
    """
    return _shifted(x, axes, name, "ifftshift", is_back=True)


def _shifted(x: Any, axes: Any, name: str | None, default: str, is_back: bool) -> Any:
    with scopes.name_scope(name, default, [x]) as scope:
        b = scopes.builder(x)
        x = b.tensor(x, None, "x")
        if axes is None and x.shape is None:
            raise ShapeError(f"all axes can be shifted only of a tensor of known rank, got {x!r}")
        size = arrays.shape(x)
        if axes is None:
            at: Any = list(range(len(x.shape)))
            lengths = size
        elif isinstance(axes, int):
            at, lengths = axes, size[axes]
        else:
            at = b.tensor(axes, dtypes.int32, "axes")
            at = b.make("FloorMod", (at, arrays.rank(x)), {})
            lengths = b.make("GatherV2", (size, at, 0), {})
        shift = b.make("FloorDiv", (lengths, 2), {}, "floordiv")
        if is_back:
            shift = b.make("Neg", (shift,), {})
        return b.make("Roll", (x, shift, at), {}, scope)


# *** cosine transforms ***


def dct(
    input: Any, type: int = 2, n: Any = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> Any:
    """Computes the discrete cosine transform of the last axis, of type 1 to 4.

    Args:
      input: float32 or float64.
      type: 1, 2, 3 or 4. Type 1 needs at least two elements.
      n: length of the transform; the input is cut or padded with zeros to it. None: the length of the axis.
      axis: must be -1.
      norm: "ortho" for the orthonormal transform (not for type 1), or None.
      name: name of the scope; "dct" if None.

    Raises:
      ValueError: the type or the normalization is unknown, or the input has no axis.
      NotImplementedError: `axis` is not -1.
      TypeError: `input` has another dtype.

    Source: TensorFlow's `tf.signal.dct`.

    Example:
      >>> import headrace as hr
      >>> hr.signal.dct([1.0, 1.0])[0]
      <EagerTensor shape=[] dtype=float32: np.float32(4.0)>
    """
    with scopes.name_scope(name, "dct", [input]):
        b = scopes.builder(input)
        x = _of_dtype(b, input, (dtypes.float32, dtypes.float64), "dct")
        _check_dct(x, type, axis, norm)
        if n is not None:
            if isinstance(n, (int, np.integer)) and n < 1:
                raise ValueError(f"'n' should be a positive integer or None, got {n!r}")
            x = _of_length(b, x, n)
        return _dct(b, x, type, norm)


def idct(
    input: Any, type: int = 2, n: Any = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> Any:
    """Computes the inverse discrete cosine transform of the last axis.

    If `norm` is None, the result is multiplied by twice the length (for type 1, by twice the length minus 1).

    Args:
      input: float32 or float64.
      type, n, axis, norm: see `dct`.
      name: name of the scope; "dct" if None.

    Raises:
      ValueError, NotImplementedError, TypeError: as for `dct`.

    Source: TensorFlow's `tf.signal.idct`.
    """
    return dct(input, {2: 3, 3: 2}.get(type, type), n, axis, norm, name)


def _check_dct(x: Any, type: int, axis: int, norm: str | None) -> None:
    if type not in (1, 2, 3, 4):
        raise ValueError(f"there are cosine transforms of the types 1, 2, 3 and 4, got {type!r}")
    if axis != -1:
        raise NotImplementedError(f"axis must be -1, got {axis!r}; transpose the tensor")
    if norm not in (None, "ortho"):
        raise ValueError(f"Unknown normalization: expected None or 'ortho', got {norm!r}")
    if type == 1:
        if norm == "ortho":
            raise ValueError("Normalization is not supported for the Type-I DCT.")
        if x.shape and x.shape[-1] is not None and x.shape[-1] < 2:
            raise ValueError(f"Type-I DCT requires the dimension to be greater than one, got {x!r}")
    if x.shape == ():
        raise ShapeError(f"a cosine transform needs an axis, got {x!r}")


def _of_length(b: Any, x: Any, n: Any) -> Any:
    """Cuts or pads the last axis of `x` to the length `n`."""
    found = None if x.shape is None else x.shape[-1]
    if x.shape is None:
        raise ShapeError(f"a length can be given only for a tensor of known rank, got {x!r}")
    before = [[0, 0]] * (len(x.shape) - 1)
    if isinstance(n, (int, np.integer)) and found is not None:
        return x[..., :n] if n <= found else arrays.pad(x, [*before, [0, int(n) - found]])
    size = arrays.shape(x)[-1]
    more = b.make("Maximum", (0, b.make("Sub", (n, size), {})), {})
    return arrays.pad(x, [*before, [0, more]])[..., :n]


def _dct(b: Any, x: Any, type: int, norm: str | None) -> Any:
    dtype = x.dtype.base
    length = None if x.shape is None else x.shape[-1]
    size = arrays.shape(x)[-1] if length is None else length
    n = math.cast(size, dtype) if length is None else b.const(length, dtype)
    if type == 1:
        return math.real(rfft(arrays.concat([x, x[..., -2:0:-1]], -1)))
    if type == 4:
        # the odd elements of the second transform of twice the length
        found = _dct(b, arrays.concat([x, arrays.zeros_like(x)], -1), 2, None)[..., 1::2]
        return found * (b.make("Rsqrt", (n,), {}) * numbers.sqrt(0.5)) if norm else found
    turn = reductions.range(n) * b.const(numbers.pi / 2, dtype) / n
    zeros = arrays.zeros_like(turn)
    if type == 2:
        scale = math.exp(math.complex(zeros, -turn)) * 2.0
        found = math.real(rfft(x, arrays.stack([2 * size]))[..., :size] * scale)
        return found * _orthonormal(b, n, 0.5) if norm else found
    scale = math.exp(math.complex(zeros, turn)) * 2.0
    x = x / _orthonormal(b, n, 1.0) if norm else x * n
    found = irfft(scale * math.complex(x, arrays.zeros_like(x)), arrays.stack([2 * size]))
    return found[..., :size]


def _orthonormal(b: Any, n: Any, share: float) -> Any:
    """Returns the factors that make the type 2 transform orthonormal.

    The first factor is smaller by sqrt(2) than the others.
    """
    first = b.make("Rsqrt", (n,), {}) * share
    is_first = math.equal(reductions.range(n), 0.0)
    return b.make("SelectV2", (is_first, first, first * numbers.sqrt(2.0)), {})
