"""Audio features: AudioSpectrogram, Mfcc.

Source: TensorFlow's ops of the same names. A spectrogram uses Hann windows, each padded to a power of two. The cepstral
coefficients of the mel scale are those of Davis and Mermelstein, Comparison of parametric representations for
monosyllabic word recognition (1980): the cosine transform of the logarithms of triangular, overlapping filters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import thresholds
from headrace.dtypes import DType, float32, float64, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, int_attr, missing, op
from headrace.opkit.arrays import check_size
from headrace.opkit.namespaces import constant, converter, dtype_in
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape, show, with_rank

_NO_GRADIENT = missing("TensorFlow has none: these features are computed once, before training")
_FLOOR = 1e-12  # the least output of a filter, for the logarithm


# *** AudioSpectrogram ***


def _check_attrs(attrs: Mapping[str, Any]) -> None:
    if attrs["window_size"] < 2:
        raise InvalidArgumentError(f"window size must be > 1, got {attrs['window_size']}")
    if attrs["stride"] < 1:
        raise InvalidArgumentError(f"stride must be strictly positive, got {attrs['stride']}")


def _fft_length(window: int) -> int:
    return 1 << (window - 1).bit_length()


def _frames(samples: int, window: int, stride: int) -> int:
    return 0 if samples < window else 1 + (samples - window) // stride


def _spectrogram_shape(c: Inference) -> Sequence[Shape]:
    _check_attrs(c.attrs)
    samples, channels = with_rank(c.shapes[0], 2)
    window, stride = c.attrs["window_size"], c.attrs["stride"]
    frames: Dim = None if samples is None else _frames(samples, window, stride)
    return [(channels, frames, 1 + _fft_length(window) // 2)]


def _spectrogram_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    window, stride, squared = attrs["window_size"], attrs["stride"], attrs["magnitude_squared"]
    back = converter(xp, float32)

    def kernel(x: Any) -> Any:
        _check_attrs(attrs)
        if x.ndim != 2:
            raise InvalidArgumentError(f"input must be 2-dimensional, got the shape {show(x.shape)}")
        length, frames = _fft_length(window), _frames(x.shape[0], window, stride)
        shape = (x.shape[1], frames, 1 + length // 2)
        check_size(shape, float32)
        out = xp.empty(shape, dtype=dtype_in(xp, float32), device=x.device)
        if 0 in shape:
            return out
        hann = xp.arange(window, dtype=dtype_in(xp, float64), device=x.device)
        hann = 0.5 - 0.5 * xp.cos(2 * math.pi * hann / window)
        windows = _windows(xp, x, window, stride)
        step = max(1, thresholds.AUDIO_ELEMENTS // (length * x.shape[1]))
        for i in range(0, frames, step):
            last = min(i + step, frames)
            found = xp.fft.rfft(windows(i, last) * hann, n=length)
            power = xp.real(found) ** 2 + xp.imag(found) ** 2
            out[:, i:last, :] = back(power if squared else xp.sqrt(power))
        return out

    return kernel


def _windows(xp: Any, x: Any, window: int, stride: int) -> Callable[[int, int], Any]:
    """Returns the function that returns some of the windows of samples, [channels, windows, window]."""
    if xp is np:
        every = np.lib.stride_tricks.sliding_window_view(x.T, window, axis=1)[:, ::stride]
        return lambda first, last: every[:, first:last]
    channels, widen = x.shape[1], converter(xp, float64)

    def some(first: int, last: int) -> Any:
        starts, along = (xp.arange(*span, dtype=xp.int64, device=x.device) for span in ((first, last), (window,)))
        at = xp.reshape(starts[:, None] * stride + along[None, :], (-1,))
        return widen(xp.reshape(xp.take(x.T, at, axis=1), (channels, last - first, window)))

    return some


def _spectrogram_oracle(x: np.ndarray, window_size: int, stride: int, magnitude_squared: bool) -> np.ndarray:
    length = 2 ** math.ceil(math.log2(window_size))
    starts = range(0, len(x) - window_size + 1, stride)
    out = np.zeros((x.shape[1], len(starts), length // 2 + 1), np.float32)
    for c, f, k in np.ndindex(out.shape):
        total = 0j
        for i in range(window_size):
            turn = complex(0, -2 * math.pi * i * k / length)
            total += float(x[starts[f] + i, c]) * math.sin(math.pi * i / window_size) ** 2 * np.exp(turn)
        out[c, f, k] = abs(total) ** (2 if magnitude_squared else 1)
    return out


def _spectrogram_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, float32, s), window_size=window, stride=stride, magnitude_squared=squared)
        for s, window, stride, squared in (((7, 2), 3, 2, True), ((9, 1), 4, 1, False), ((3, 2), 5, 1, True))
    ]


# *** Mfcc ***


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log1p(hertz / 700.0)


def _filters(bins: int, rate: float, count: int, low: float, high: float) -> np.ndarray:
    """Weights of `bins` frequencies, up to half the sample rate, in `count` filters.

    Filter i rises from the middle of the one before it and falls to that of the next one, all on the mel scale.
    """
    corners = np.linspace(_mel(low), _mel(high), count + 2)
    width = 0.5 * rate / (bins - 1)
    hertz = np.arange(bins) * width
    mels = _mel(hertz)[:, None]
    rising = (mels - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - mels) / (corners[2:] - corners[1:-1])
    weights = np.clip(np.minimum(rising, falling), 0, None)
    weights[: int(1.5 + low / width)] = weights[int(high / width) + 1 :] = 0
    return weights


def _check_mfcc(bins: int, rate: int, attrs: Mapping[str, Any]) -> None:
    low, high = attrs["lower_frequency_limit"], attrs["upper_frequency_limit"]
    filters, count = attrs["filterbank_channel_count"], attrs["dct_coefficient_count"]
    for is_wrong, why in (
        (rate <= 0, f"sample_rate {rate} must be positive"),
        (bins < 2, f"{bins} frequencies are too few"),
        (filters < 1, f"filterbank_channel_count {filters} must be positive"),
        (low < 0, f"lower_frequency_limit {low} must be >= 0"),
        (high <= low, f"upper_frequency_limit {high} must be above lower_frequency_limit {low}"),
        (not 1 <= count <= filters, f"dct_coefficient_count {count} must be in [1, {filters}]"),
    ):
        if is_wrong:
            raise InvalidArgumentError(f"Mfcc initialization failed: {why}")


def _mfcc_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    widen, back = converter(xp, float64), converter(xp, float32)

    def known(value: Any, dtype: DType, like: Any) -> Any:
        return constant(xp, value if xp is np else value.tolist(), dtype, like)

    def kernel(x: Any, rate: Any) -> Any:
        if x.ndim != 3:
            raise InvalidArgumentError(f"spectrogram must be 3-dimensional, got the shape {show(x.shape)}")
        if rate.ndim:
            raise InvalidArgumentError(f"Input sample_rate should be a scalar tensor, got {show(rate.shape)} instead.")
        bins, count = x.shape[-1], attrs["filterbank_channel_count"]
        _check_mfcc(bins, int(rate), attrs)
        check_size((bins, count), float32)
        limits = attrs["lower_frequency_limit"], attrs["upper_frequency_limit"]
        if int(limits[1] / (0.5 * float(rate) / (bins - 1))) >= bins:  # the filters go beyond what is given
            shape = (*x.shape[:2], attrs["dct_coefficient_count"])
            return xp.zeros(shape, dtype=dtype_in(xp, float32), device=x.device)  # as in TensorFlow
        weights = _filters(bins, float(rate), count, *limits)
        used = np.flatnonzero(weights.any(axis=1))  # frequencies without weight may have any value
        heard = widen(xp.take(x, known(used, int64, x), axis=-1))
        size = xp.sqrt(heard) @ known(weights[used], float64, x)  # the spectrogram is of squares
        angles = np.arange(attrs["dct_coefficient_count"])[:, None] * (np.arange(count) + 0.5) * (np.pi / count)
        cosines = np.cos(angles) * math.sqrt(2 / count)
        return back(xp.log(xp.maximum(size, _FLOOR)) @ known(cosines.T, float64, x))

    return kernel


def _mfcc_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[1], 0)
    return [(*with_rank(c.shapes[0], 3)[:2], max(c.attrs["dct_coefficient_count"], 0))]


def _mfcc_oracle(
    x: np.ndarray, rate: Any, dct_coefficient_count: int, filterbank_channel_count: int, upper_frequency_limit: float
) -> np.ndarray:
    """One frequency after the other, shared by the two filters whose middles it is between."""
    count, low, high = filterbank_channel_count, _mel(20.0), _mel(upper_frequency_limit)
    spacing = (high - low) / (count + 1)
    out = np.zeros((*x.shape[:2], dct_coefficient_count), np.float32)
    for at in np.ndindex(x.shape[:2]):
        heard = [0.0] * (count + 3)
        for i, power in enumerate(x[at]):
            hertz = 0.5 * float(rate) / (x.shape[-1] - 1) * i
            if 20.0 < hertz <= upper_frequency_limit:
                below, share = divmod((_mel(hertz) - low) / spacing, 1)
                heard[int(below)] += math.sqrt(power) * (1 - share)
                heard[int(below) + 1] += math.sqrt(power) * share
        logs = [math.log(max(v, 1e-12)) for v in heard[1 : count + 1]]
        for k in range(dct_coefficient_count):
            terms = (v * math.cos(math.pi / count * k * (j + 0.5)) for j, v in enumerate(logs))
            out[at][k] = math.sqrt(2 / count) * sum(terms)
    return out


def _mfcc_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(
            draw(rng, float32, s, 0, 3),
            np.int32(8000),
            filterbank_channel_count=filters,
            dct_coefficient_count=count,
            upper_frequency_limit=high,
        )
        for s, filters, count, high in (
            ((1, 2, 17), 5, 3, 4000.0),
            ((2, 1, 9), 3, 3, 3000.0),
            ((1, 0, 9), 4, 2, 4000.0),
        )
    ]


op(
    "AudioSpectrogram",
    "input: float",
    "spectrogram: float",
    {"window_size": int_attr(), "stride": int_attr(), "magnitude_squared": False},
    shape=_spectrogram_shape,
    kernel=_spectrogram_kernel,
    xp=True,
    grad=_NO_GRADIENT,
    facts=Facts(cost=flops_per_element(60)),
    oracle=_spectrogram_oracle,
    sample=_spectrogram_samples,
    doc="How strong each frequency is in each of the overlapping windows of sound, for each channel.",
)
op(
    "Mfcc",
    "spectrogram: float, sample_rate: int32",
    "output: float",
    {
        "upper_frequency_limit": 4000.0,
        "lower_frequency_limit": 20.0,
        "filterbank_channel_count": 40,
        "dct_coefficient_count": 13,
    },
    shape=_mfcc_shape,
    kernel=_mfcc_kernel,
    xp=True,
    host=("sample_rate",),
    grad=_NO_GRADIENT,
    facts=Facts(cost=flops_per_element(100)),
    oracle=_mfcc_oracle,
    sample=_mfcc_samples,
    doc="The cepstral coefficients of spectrograms on the mel scale.",
)
