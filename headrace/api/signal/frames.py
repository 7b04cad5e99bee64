"""Frames of signals: windows, short-time transforms and their inverses, features of the mel scale."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable
from typing import Any

from headrace import dtypes
from headrace.api import arrays, gathering, math, reductions, scopes, special, tensors
from headrace.api.signal import fourier
from headrace.errors import ShapeError

# *** windows ***


def _floating(dtype: Any) -> dtypes.DType:
    wanted = dtypes.as_dtype(dtype)
    if not wanted.is_floating:
        raise ValueError(f"dtype must be a floating point type, got {wanted!r}")
    return wanted


def _scalar(b: Any, x: Any, name: str, dtype: Any = dtypes.int32) -> Any:
    x = b.tensor(x, dtype, name)
    if x.shape not in ((), None):
        raise ShapeError(f"'{name}' must be a scalar, got {x!r}")
    return x if x.shape == () else tensors.ensure_shape(x, ())


def _raised_cosine(name: str, what: str, default: str, high: float, low: float) -> Callable[..., Any]:
    def function(
        window_length: Any, periodic: bool = True, dtype: Any = dtypes.float32, name: str | None = None
    ) -> Any:
        wanted = _floating(dtype)
        with scopes.name_scope(name, default, [window_length, periodic]):
            b = scopes.builder(window_length, periodic)
            length = _scalar(b, window_length, "window_length")
            # a periodic window of even length has one more interval than the symmetric one
            is_even = 1 - length % 2
            n = math.cast(length + math.cast(periodic, dtypes.int32) * is_even - 1, wanted)
            at = math.cast(reductions.range(length), wanted)
            angle = b.make("RealDiv", (at * b.const(2 * numbers.pi, wanted), n), {}, "truediv")
            window = b.make("Sub", (high, low * math.cos(angle)), {})
            # a window of one element has n = 0
            return gathering.where(math.equal(length, 1), arrays.ones_like(window), window)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what} window.

    Args:
      window_length: int scalar.
      periodic: whether the window is periodic, as transforms require; otherwise it is symmetric. Windows of odd length
        are symmetric in both cases.
      dtype: a floating dtype.
      name: name of the scope; "{default}" if None.

    Raises:
      ValueError: `dtype` is not floating, or `window_length` is not a scalar.

    Source: TensorFlow's `tf.signal.{name}`.
    """
    return function


hann_window = _raised_cosine("hann_window", "Hann's", "hann_window", 0.5, 0.5)
hamming_window = _raised_cosine("hamming_window", "Hamming's", "hamming_window", 0.54, 0.46)


def kaiser_window(window_length: Any, beta: Any = 12.0, dtype: Any = dtypes.float32, name: str | None = None) -> Any:
    """Returns a Kaiser window.

    Args:
      window_length: int scalar.
      beta: shape parameter; the window becomes narrower as it grows.
      dtype: a floating dtype.
      name: name of the scope; "kaiser_window" if None.

    Raises:
      ValueError: `dtype` is not floating, or `window_length` is not a scalar.

    Source: TensorFlow's `tf.signal.kaiser_window`.
    """
    wanted = _floating(dtype)
    with scopes.name_scope(name, "kaiser_window", [window_length, beta]):
        b = scopes.builder(window_length, beta)
        length = _scalar(b, window_length, "window_length")
        beta = math.cast(beta, wanted)
        half = (math.cast(length, wanted) - 1.0) / 2.0
        at = math.cast(reductions.range(length), wanted) - half
        # a window of one element has half = 0
        inside = math.maximum(1.0 - math.square(math.divide_no_nan(at, half)), 0.0)
        narrow = beta * math.sqrt(inside)
        # the quotient of two values of I0, which overflow for large beta, by scaled functions
        window = math.exp(narrow - math.abs(beta)) * special.bessel_i0e(narrow)
        return b.make("RealDiv", (window, special.bessel_i0e(beta)), {}, "truediv")


def kaiser_bessel_derived_window(
    window_length: Any, beta: Any = 12.0, dtype: Any = dtypes.float32, name: str | None = None
) -> Any:
    """Returns a Kaiser-Bessel derived window, for `mdct`.

    Args:
      window_length: int scalar, even.
      beta, dtype: see `kaiser_window`.
      name: name of the scope; "kaiser_bessel_derived_window" if None.

    Raises:
      ValueError: `dtype` is not floating, or `window_length` is not a scalar.

    Source: TensorFlow's `tf.signal.kaiser_bessel_derived_window`.
    """
    wanted = _floating(dtype)
    with scopes.name_scope(name, "kaiser_bessel_derived_window", [window_length, beta]):
        b = scopes.builder(window_length, beta)
        half = _scalar(b, window_length, "window_length") // 2
        sums = reductions.cumsum(kaiser_window(half + 1, beta, wanted))
        rising = math.sqrt(sums[:-1] / sums[-1])
        return arrays.concat([rising, arrays.reverse(rising, [0])], 0)


def vorbis_window(window_length: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Any:
    """Returns the window of the Vorbis format, for `mdct`.

    Args:
      window_length: int scalar, even.
      dtype: a floating dtype.
      name: name of the scope; "vorbis_window" if None.

    Raises:
      ValueError: `dtype` is not floating, or `window_length` is not a scalar.

    Source: TensorFlow's `tf.signal.vorbis_window`.
    """
    wanted = _floating(dtype)
    with scopes.name_scope(name, "vorbis_window", [window_length]):
        b = scopes.builder(window_length)
        length = _scalar(b, window_length, "window_length")
        at = math.cast(reductions.range(length), wanted)
        angle = (at + 0.5) * b.const(numbers.pi, wanted) / math.cast(length, wanted)
        return math.sin(math.square(math.sin(angle)) * b.const(numbers.pi / 2, wanted))


# *** frames ***


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: str | None = None,
) -> Any:
    """Cuts an axis into frames, which may overlap.

    Args:
      signal: [..., samples, ...].
      frame_length: int scalar, the number of samples in a frame.
      frame_step: int scalar, the distance between the starts of frames.
      pad_end: whether a frame starts at every step, the last ones padded with `pad_value`; otherwise only whole frames.
      pad_value: a scalar of the dtype of `signal`.
      axis: index of the axis.
      name: name of the scope; "frame" if None.

    Returns:
      A tensor [..., frames, frame_length, ...].

    Raises:
      ValueError: the lengths are not scalars, or the axis does not exist.
      InvalidArgumentError: in a run, if the step is 0 or a length is negative.

    Source: TensorFlow's `tf.signal.frame`.

    Example:
      >>> import headrace as hr
      >>> hr.signal.frame([1, 2, 3], 2, 1)
      <EagerTensor shape=[2,2] dtype=int32: array([[1, 2],
             [2, 3]], dtype=int32)>
    """
    with scopes.name_scope(name, "frame", [signal, frame_length, frame_step, pad_value]):
        b = scopes.builder(signal, frame_length, frame_step, pad_value)
        x = b.tensor(signal, None, "signal")
        length, step = _scalar(b, frame_length, "frame_length"), _scalar(b, frame_step, "frame_step")
        if x.shape is not None and not -len(x.shape) <= axis < len(x.shape):
            raise ShapeError(f"'axis' {axis} is not an axis of {x!r}")
        size = arrays.shape(x)
        samples = size[axis]
        if pad_end:
            count = b.make("Neg", (b.make("FloorDiv", (b.make("Neg", (samples,), {}), step), {}, "floordiv"),), {})
            more = b.make("Maximum", (0, length + step * (count - 1) - samples), {})
            where = b.make("FloorMod", (axis, arrays.rank(x)), {})
            size = gathering.tensor_scatter_nd_update(size, arrays.reshape(where, [1, 1]), arrays.reshape(more, [1]))
            filling = arrays.fill(size, b.tensor(pad_value, x.dtype.base, "pad_value"))
            if x.shape is not None:
                free = [None if i == axis % len(x.shape) else d for i, d in enumerate(x.shape)]
                filling = tensors.ensure_shape(filling, free)
            x = b.make("ConcatV2", ([x, filling], axis), {}, "concat")
        else:
            count = 1 + b.make("FloorDiv", (samples - length, step), {}, "floordiv")
        count = b.make("Maximum", (0, count), {})
        begins = arrays.expand_dims(reductions.range(count) * step, 1)
        at = begins + arrays.expand_dims(reductions.range(length), 0)
        return gathering.gather(x, at, axis=axis)


def overlap_and_add(signal: Any, frame_step: Any, name: str | None = None) -> Any:
    """Joins overlapping frames to a signal; overlapping samples are added.

    Args:
      signal: [..., frames, frame_length].
      frame_step: int scalar, the distance between the starts of frames.
      name: name of the scope; "overlap_and_add" if None.

    Returns:
      A tensor [..., (frames - 1) * frame_step + frame_length].

    Raises:
      ValueError: the rank of `signal` is below 2, or `frame_step` is not an integer scalar.

    Source: TensorFlow's `tf.signal.overlap_and_add`.

    Example:
      >>> import headrace as hr
      >>> hr.signal.overlap_and_add([[1, 2], [3, 4]], 1)
      <EagerTensor shape=[3] dtype=int32: array([1, 5, 4], dtype=int32)>
    """
    with scopes.name_scope(name, "overlap_and_add", [signal, frame_step]):
        b = scopes.builder(signal, frame_step)
        x = b.tensor(signal, None, "signal")
        if x.shape is not None and len(x.shape) < 2:
            raise ShapeError(f"'signal' must have rank at least 2, got {x!r}")
        step = _scalar(b, frame_step, "frame_step", None)
        if not step.dtype.is_integer:
            raise ValueError(f"'frame_step' must be an integer, got {step!r}")
        step = math.cast(step, dtypes.int32)
        size = arrays.shape(x)
        frames, length = size[-2], size[-1]
        begins = arrays.expand_dims(reductions.range(frames) * step, 1)
        at = arrays.reshape(begins + arrays.expand_dims(reductions.range(length), 0), [-1])
        total = (frames - 1) * step + length
        rows = arrays.transpose(arrays.reshape(x, arrays.stack([reductions.reduce_prod(size[:-2]), frames * length])))
        added = arrays.transpose(b.make("UnsortedSegmentSum", (rows, at, total), {}))
        found = arrays.reshape(added, arrays.concat([size[:-2], [total]], 0))
        return found if x.shape is None else tensors.ensure_shape(found, (*x.shape[:-2], None))


def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Any:
    """Computes the short-time Fourier transform: the transform of each frame of signals.

    Args:
      signals: [..., samples], float32 or float64.
      frame_length, frame_step, pad_end: see `frame`.
      fft_length: int scalar, the length of the transforms; None: the least power of two that is at least
        `frame_length`.
      window_fn: a function of a length and a `dtype` that returns a window, by which each frame is multiplied. None: no
        window.
      name: name of the scope; "stft" if None.

    Returns:
      A tensor [..., frames, fft_length // 2 + 1] of complex64 or complex128.

    Raises:
      ValueError: `signals` is a scalar or not of floats, or the lengths are not scalars.

    Source: TensorFlow's `tf.signal.stft`.

    Example:
      >>> import headrace as hr
      >>> hr.signal.stft(hr.ones([8]), 4, 2).shape
      (3, 3)
    """
    with scopes.name_scope(name, "stft", [signals, frame_length, frame_step]):
        b = scopes.builder(signals, frame_length, frame_step)
        x = b.tensor(signals, None, "signals")
        if x.shape == ():
            raise ShapeError(f"'signals' must have rank at least 1, got {x!r}")
        length = _scalar(b, frame_length, "frame_length")
        fft_length = _enclosing_power(length) if fft_length is None else _scalar(b, fft_length, "fft_length")
        framed = frame(x, length, frame_step, pad_end=pad_end)
        if window_fn is not None:
            framed = b.make("Mul", (framed, window_fn(length, dtype=framed.dtype.base)), {}, "mul")
        return fourier.rfft(framed, arrays.stack([fft_length]))


def _enclosing_power(length: Any) -> Any:
    """Returns the least power of two that is at least `length`."""
    known = tensors.constant_value(length)
    if known is not None:
        return 1 << max(0, int(known) - 1).bit_length()
    logarithm = math.log(math.cast(length, dtypes.float64)) / numbers.log(2.0)
    return math.cast(math.pow(2.0, math.ceil(logarithm)), dtypes.int32)


def inverse_stft_window_fn(
    frame_step: Any, forward_window_fn: Callable[..., Any] = hann_window, name: str | None = None
) -> Callable[..., Any]:
    """Returns the `window_fn` for `inverse_stft` that inverts the window of `stft`.

    Args:
      frame_step: int scalar, the step of both transforms.
      forward_window_fn: the `window_fn` of `stft`.
      name: name of the scope; "inverse_stft_window_fn" if None.

    Returns:
      A function of a length and a `dtype`.

    Source: TensorFlow's `tf.signal.inverse_stft_window_fn`.
    """

    def inverse_window(frame_length: Any, dtype: Any) -> Any:
        with scopes.name_scope(name, "inverse_stft_window_fn", [forward_window_fn]):
            b = scopes.builder(frame_step, frame_length)
            step, length = _scalar(b, frame_step, "frame_step"), _scalar(b, frame_length, "frame_length")
            window = forward_window_fn(length, dtype=dtype)
            # the sums of the squared windows at each sample
            squares = math.square(window)
            at = reductions.range(length) % step
            sums = b.make("UnsortedSegmentSum", (squares, at, step), {})
            sums = gathering.gather(sums, at)
            is_none = math.equal(sums, 0.0)
            quotient = window / gathering.where(is_none, arrays.ones_like(sums), sums)
            return gathering.where(is_none, arrays.zeros_like(window), quotient)

    return inverse_window


def inverse_stft(
    stfts: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    name: str | None = None,
) -> Any:
    """Computes the inverse of `stft`.

    It is exact if `window_fn` is `inverse_stft_window_fn` of the step and the window of `stft`.

    Args:
      stfts: [..., frames, fft_length // 2 + 1], complex64 or complex128.
      frame_length, frame_step, fft_length, window_fn: see `stft`.
      name: name of the scope; "inverse_stft" if None.

    Returns:
      A tensor [..., samples] of float32 or float64.

    Raises:
      ValueError: the rank of `stfts` is below 2, or the lengths are not scalars.

    Source: TensorFlow's `tf.signal.inverse_stft`.
    """
    with scopes.name_scope(name, "inverse_stft", [stfts]):
        b = scopes.builder(stfts, frame_length, frame_step)
        x = b.tensor(stfts, None, "stfts")
        if x.shape is not None and len(x.shape) < 2:
            raise ShapeError(f"'stfts' must have rank at least 2, got {x!r}")
        length = _scalar(b, frame_length, "frame_length")
        fft_length = _enclosing_power(length) if fft_length is None else _scalar(b, fft_length, "fft_length")
        frames = fourier.irfft(x, arrays.stack([fft_length]))[..., :length]
        more = b.make("Maximum", (0, length - arrays.shape(frames)[-1]), {})
        if frames.shape is not None:
            frames = arrays.pad(frames, [[0, 0]] * (len(frames.shape) - 1) + [[0, more]])
        if window_fn is not None:
            frames = b.make("Mul", (frames, window_fn(length, dtype=frames.dtype.base)), {}, "mul")
        return overlap_and_add(frames, frame_step)


# *** the modified cosine transform ***


def mdct(
    signals: Any,
    frame_length: Any,
    window_fn: Callable[..., Any] | None = vorbis_window,
    pad_end: bool = False,
    norm: str | None = None,
    name: str | None = None,
) -> Any:
    """Computes the modified discrete cosine transform of frames that overlap by half.

    Args:
      signals: [..., samples], float32 or float64.
      frame_length: int scalar, a multiple of 4.
      window_fn: see `stft`; None: a constant window, for which the transform keeps the energy.
      pad_end: see `frame`.
      norm: "ortho" for the orthonormal transform, or None.
      name: name of the scope; "mdct" if None.

    Returns:
      A tensor [..., frames, frame_length // 2].

    Raises:
      ValueError: `frame_length` is not a scalar multiple of 4, or `norm` is unknown.

    Source: TensorFlow's `tf.signal.mdct`.
    """
    with scopes.name_scope(name, "mdct", [signals, frame_length]):
        b = scopes.builder(signals, frame_length)
        x = b.tensor(signals, None, "signals")
        if x.shape == ():
            raise ShapeError(f"'signals' must have rank at least 1, got {x!r}")
        length = _scalar(b, frame_length, "frame_length")
        known = tensors.constant_value(length)
        if known is not None and known % 4:
            raise ValueError(f"The frame length must be a multiple of 4, got {int(known)}")
        framed = frame(x, length, length // 2, pad_end=pad_end)
        window = 1.0 / numbers.sqrt(2.0) if window_fn is None else window_fn(length, dtype=framed.dtype.base)
        framed = framed * window
        parts = arrays.split(framed, 4, -1)
        first = -arrays.reverse(parts[2], [-1]) - parts[3]
        second = parts[0] - arrays.reverse(parts[1], [-1])
        return fourier.dct(arrays.concat([first, second], -1), type=4, norm=norm)


def inverse_mdct(
    mdcts: Any, window_fn: Callable[..., Any] | None = vorbis_window, norm: str | None = None, name: str | None = None
) -> Any:
    """Computes the inverse of `mdct`, except for half a frame at both ends.

    Args:
      mdcts: [..., frames, frame_length // 2], float32 or float64.
      window_fn, norm: as for `mdct`.
      name: name of the scope; "inverse_mdct" if None.

    Returns:
      A tensor [..., (frames - 1) * (frame_length // 2) + frame_length].

    Raises:
      ValueError: the rank of `mdcts` is below 2, or `norm` is unknown.

    Source: TensorFlow's `tf.signal.inverse_mdct`.
    """
    with scopes.name_scope(name, "inverse_mdct", [mdcts]):
        b = scopes.builder(mdcts)
        x = b.tensor(mdcts, None, "mdcts")
        if x.shape is not None and len(x.shape) < 2:
            raise ShapeError(f"'mdcts' must have rank at least 2, got {x!r}")
        half = arrays.shape(x)[-1]
        found = fourier.dct(x, type=4, norm=norm)
        if norm is None:
            found = found * (0.5 / math.cast(half, x.dtype.base))
        first, second = arrays.split(found, 2, -1)
        parts = [second, -arrays.reverse(second, [-1]), -arrays.reverse(first, [-1]), -first]
        frames = arrays.concat(parts, -1)
        window = 1.0 / numbers.sqrt(2.0) if window_fn is None else window_fn(2 * half, dtype=x.dtype.base)
        return overlap_and_add(frames * window, half)


# *** the mel scale ***


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: Any = 129,
    sample_rate: Any = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Any:
    """Returns the matrix that converts a linear spectrogram to the mel scale.

    Its columns are triangular filters, which overlap by half.

    Args:
      num_mel_bins: number of mel filters.
      num_spectrogram_bins: number of frequencies of the spectrogram.
      sample_rate: samples per second.
      lower_edge_hertz, upper_edge_hertz: the edges of the frequency band.
      dtype: a floating dtype.
      name: name of the operation; "linear_to_mel_weight_matrix" if None.

    Returns:
      A tensor [num_spectrogram_bins, num_mel_bins].

    Raises:
      ValueError: an argument is out of range.

    Source: TensorFlow's `tf.signal.linear_to_mel_weight_matrix`.

    Example:
      >>> import headrace as hr
      >>> hr.signal.linear_to_mel_weight_matrix(3, 9, 8000).shape
      (9, 3)
    """
    wanted = dtypes.as_dtype(dtype)
    rate = tensors.constant_value(sample_rate) if hasattr(sample_rate, "dtype") else sample_rate
    if num_mel_bins <= 0:
        raise ValueError(f"num_mel_bins must be positive, got {num_mel_bins}")
    if lower_edge_hertz < 0.0:
        raise ValueError(f"lower_edge_hertz must be non-negative, got {lower_edge_hertz}")
    if lower_edge_hertz >= upper_edge_hertz:
        raise ValueError(f"lower_edge_hertz {lower_edge_hertz} >= upper_edge_hertz {upper_edge_hertz}")
    if rate is not None and rate <= 0.0:
        raise ValueError(f"sample_rate must be positive, got {rate}")
    if rate is not None and upper_edge_hertz > rate / 2:
        raise ValueError(
            f"upper_edge_hertz must not be larger than the Nyquist frequency (sample_rate / 2), "
            f"got {upper_edge_hertz} for a sample_rate of {rate}"
        )
    if not wanted.is_floating:
        raise ValueError(f"dtype must be a floating point type, got {wanted!r}")
    with scopes.name_scope(name, "linear_to_mel_weight_matrix", [num_spectrogram_bins, sample_rate]) as scope:
        b = scopes.builder(num_spectrogram_bins, sample_rate)
        nyquist = math.cast(sample_rate, wanted) / 2.0
        # frequency 0 has no weight, and its mel value is excluded
        mels = _mel(reductions.linspace(b.const(0.0, wanted), nyquist, num_spectrogram_bins)[1:])
        lowest, highest = (_mel(b.const(h, wanted)) for h in (lower_edge_hertz, upper_edge_hertz))
        edges = reductions.linspace(lowest, highest, num_mel_bins + 2)
        low, middle, high = edges[:-2], edges[1:-1], edges[2:]
        mels = arrays.expand_dims(mels, 1)
        rising = (mels - low) / (middle - low)
        falling = (high - mels) / (high - middle)
        weights = math.maximum(0.0, math.minimum(rising, falling))
        return arrays.pad(weights, [[1, 0], [0, 0]], name=scope)


def _mel(hertz: Any) -> Any:
    return math.log(1.0 + hertz / 700.0) * 1127.0


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> Any:
    """Computes mel-frequency cepstral coefficients from logarithmic mel spectrograms.

    Args:
      log_mel_spectrograms: [..., num_mel_bins], float32 or float64.
      name: name of the scope; "mfccs_from_log_mel_spectrograms" if None.

    Returns:
      A tensor of the same shape. Usually only the first 13 or so coefficients of the last axis are used.

    Raises:
      ValueError: the last axis has length 0.

    Source: TensorFlow's `tf.signal.mfccs_from_log_mel_spectrograms`.
    """
    with scopes.name_scope(name, "mfccs_from_log_mel_spectrograms", [log_mel_spectrograms]):
        b = scopes.builder(log_mel_spectrograms)
        x = b.tensor(log_mel_spectrograms, None, "log_mel_spectrograms")
        if x.shape is not None and (not x.shape or x.shape[-1] == 0):
            raise ValueError(f"num_mel_bins must be positive, got {x!r}")
        bins = math.cast(arrays.shape(x)[-1], x.dtype.base)
        return b.make("Mul", (fourier.dct(x), math.rsqrt(bins * 2.0)), {}, "mul")
