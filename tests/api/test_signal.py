"""Transforms, windows and frames of signals, against numpy and their definitions.

Errors are tested too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 8))
C = X + 1j * RNG.normal(size=X.shape)


def close(got: Any, want: Any, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(got), want, 1e-9, atol)


def in_graph(f: Any, *xs: np.ndarray) -> Any:
    """Value of `f` of tensors of unknown shape."""
    with hr.Graph() as g:
        y = f(*(hr.placeholder_with_default(x, None) for x in xs))
    return hr.Session(graph=g).run(y)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fourier(n: int) -> None:
    axes = tuple(range(-n, 0))
    end = "" if n == 1 else f"{n}d"
    there, back, real, real_back = (getattr(hr.signal, f"{f}{end}") for f in ("fft", "ifft", "rfft", "irfft"))
    close(there(C), np.fft.fftn(C, axes=axes))
    close(back(C), np.fft.ifftn(C, axes=axes))
    for lengths in (None, (5, 2, 6)[-n:], (2, 4, 11)[-n:]):
        close(real(X, lengths), np.fft.rfftn(X, lengths, axes))
        want = np.fft.irfftn(C, lengths, axes)
        close(real_back(C, lengths), want)
        close(in_graph(lambda x, k=lengths: real(x, k), X), np.fft.rfftn(X, lengths, axes))
        close(in_graph(lambda x, k=lengths: real_back(x, k), C), want)


def test_transforms_of_chosen_axes() -> None:
    for norm in (None, "forward", "ortho"):
        for axes in (None, (0, 2), (-1,)):
            close(hr.signal.fftnd(C, axes=axes, norm=norm), np.fft.fftn(C, axes=axes, norm=norm))
            close(hr.signal.ifftnd(C, axes=axes, norm=norm), np.fft.ifftn(C, axes=axes, norm=norm))
            close(hr.signal.rfftnd(X, axes=axes, norm=norm), np.fft.rfftn(X, axes=axes, norm=norm))
            close(hr.signal.irfftnd(C, axes=axes, norm=norm), np.fft.irfftn(C, axes=axes, norm=norm))
    close(hr.signal.fftnd(C, [4]), np.fft.fftn(C, (4,), (-1,)))
    with pytest.raises(ValueError, match="'norm' must be"):
        hr.signal.fftnd(C, norm="l2")
    with hr.Graph(), pytest.raises(hr.errors.ShapeError, match="rank of 'input_tensor' must be known"):
        hr.signal.fftnd(hr.placeholder(hr.complex64))


def test_shifts() -> None:
    for axes in (None, 1, (0, -1)):
        close(hr.signal.fftshift(X, axes), np.fft.fftshift(X, axes))
        close(hr.signal.ifftshift(X, axes), np.fft.ifftshift(X, axes))
    close(in_graph(lambda x: hr.signal.ifftshift(x, [1]), X), np.fft.ifftshift(X, 1))
    with hr.Graph(), pytest.raises(hr.errors.ShapeError, match="known rank"):
        hr.signal.fftshift(hr.placeholder(hr.float32))


def cosine(x: np.ndarray, type: int) -> np.ndarray:
    """A cosine transform, as it is defined."""
    n = x.shape[-1]
    i, k = np.arange(n)[:, None], np.arange(n)
    if type == 1:
        weights = np.where((i == 0) | (i == n - 1), 1.0, 2.0)
        return x @ (weights * np.cos(np.pi * i * k / (n - 1)))
    if type == 2:
        return x @ (2 * np.cos(np.pi * k * (2 * i + 1) / (2 * n)))
    if type == 3:
        return x @ (np.where(i == 0, 1.0, 2.0) * np.cos(np.pi * i * (2 * k + 1) / (2 * n)))
    return x @ (2 * np.cos(np.pi * (2 * k + 1) * (2 * i + 1) / (4 * n)))


@pytest.mark.parametrize("type", [1, 2, 3, 4])
def test_cosine_transforms(type: int) -> None:
    close(hr.signal.dct(X, type), cosine(X, type))
    close(hr.signal.dct(X, type, n=5), cosine(X[..., :5], type))
    close(hr.signal.dct(X, type, n=10), cosine(np.pad(X, [(0, 0), (0, 0), (0, 2)]), type))
    close(hr.signal.idct(hr.signal.dct(X, type), type) / (14 if type == 1 else 16), X)
    if type != 1:
        once = hr.signal.dct(X, type, norm="ortho")
        close(np.linalg.norm(np.asarray(once)), np.linalg.norm(X))
        close(hr.signal.idct(once, type, norm="ortho"), X)
    close(in_graph(lambda x: hr.signal.dct(x, type), X), cosine(X, type))


@pytest.mark.parametrize(
    ("kwargs", "error", "phrase"),
    [
        ({"type": 5}, ValueError, "types 1, 2, 3 and 4"),
        ({"axis": 0}, NotImplementedError, "axis must be -1"),
        ({"norm": "l2"}, ValueError, "Unknown normalization"),
        ({"type": 1, "norm": "ortho"}, ValueError, "not supported for the Type-I"),
        ({"n": 0}, ValueError, "positive integer"),
        ({"input": [1.0], "type": 1}, ValueError, "greater than one"),
        ({"input": 1.0}, ValueError, "needs an axis"),
        ({"input": C}, TypeError, "dct takes float32 or float64"),
    ],
)
def test_wrong_cosine_transforms(kwargs: Any, error: Any, phrase: str) -> None:
    with pytest.raises(error, match=phrase):
        hr.signal.dct(**{"input": X} | kwargs)


def test_wrong_transforms() -> None:
    with pytest.raises(TypeError, match="takes float32 or float64"):
        hr.signal.rfft(C)
    with pytest.raises(hr.errors.ShapeError, match="of 2 axes"):
        hr.signal.rfft2d([1.0, 2.0])
    with pytest.raises(hr.errors.InvalidArgumentError, match="fft_length must have shape"):
        hr.signal.irfft(C, [2, 2])
    with hr.Graph(), pytest.raises(hr.errors.ShapeError):
        hr.signal.irfft(C, [2, 2])


@pytest.mark.parametrize("length", [0, 1, 2, 5, 8])
def test_windows(length: int) -> None:
    for f, numpy in ((hr.signal.hann_window, np.hanning), (hr.signal.hamming_window, np.hamming)):
        close(f(length, False, hr.float64), numpy(length))
        # of even length it goes on
        close(f(length, dtype=hr.float64), numpy(length + 1)[:-1] if length % 2 == 0 else numpy(length))
        close(in_graph(lambda n, f=f: f(n, False, hr.float64), np.int32(length)), numpy(length))
    close(hr.signal.kaiser_window(length, 3.0, hr.float64), np.kaiser(length, 3.0), 1e-6)
    for window in (hr.signal.vorbis_window, hr.signal.kaiser_bessel_derived_window):
        if length % 2 == 0 and length:
            w = np.asarray(window(length, dtype=hr.float64))
            close(w[: length // 2] ** 2 + w[length // 2 :] ** 2, np.ones(length // 2))


def test_wrong_windows() -> None:
    for f in (hr.signal.hann_window, hr.signal.kaiser_window, hr.signal.vorbis_window):
        with pytest.raises(ValueError, match="dtype must be a floating point type"):
            f(4, dtype=hr.int32)
        with pytest.raises(ValueError, match="must be a scalar"):
            f([4])


def frames_of(x: np.ndarray, length: int, step: int, pads: bool) -> np.ndarray:
    starts = range(0, x.shape[-1], step) if pads else range(0, x.shape[-1] - length + 1, step)
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, length)], constant_values=7)
    return np.stack([x[..., i : i + length] for i in starts], -2)


@pytest.mark.parametrize(("length", "step"), [(3, 1), (2, 3), (8, 2), (0, 2)])
@pytest.mark.parametrize("pads", [False, True])
def test_frames(length: int, step: int, pads: bool) -> None:
    want = frames_of(X, length, step, pads)
    close(hr.signal.frame(X, length, step, pads, 7), want)
    close(in_graph(lambda x: hr.signal.frame(x, length, step, pads, 7.0), X), want)
    close(in_graph(lambda n, s: hr.signal.frame(X, n, s, pads, 7), np.int32(length), np.int32(step)), want)
    first = np.moveaxis(X, -1, 0)
    close(hr.signal.frame(first, length, step, pads, 7, axis=0), np.moveaxis(want, (-2, -1), (0, 1)))
    added = np.zeros((2, 3, max(0, (want.shape[-2] - 1) * step + length)))
    for i in range(want.shape[-2]):
        added[..., i * step : i * step + length] += want[..., i, :]
    close(hr.signal.overlap_and_add(want, step), added)
    close(in_graph(lambda x: hr.signal.overlap_and_add(x, step), want), added)


def test_wrong_frames() -> None:
    with pytest.raises(ValueError, match="'frame_length' must be a scalar"):
        hr.signal.frame(X, [2], 1)
    with pytest.raises(ValueError, match="'axis' 3 is not an axis"):
        hr.signal.frame(X, 2, 1, axis=3)
    with pytest.raises(hr.errors.InvalidArgumentError):
        hr.signal.frame(X, 2, 0)
    with pytest.raises(ValueError, match="rank at least 2"):
        hr.signal.overlap_and_add([1.0], 1)
    with pytest.raises(ValueError, match="must be an integer"):
        hr.signal.overlap_and_add(X, 1.0)
    with pytest.raises(ValueError, match="rank at least 1"):
        hr.signal.stft(1.0, 2, 1)
    with pytest.raises(ValueError, match="rank at least 2"):
        hr.signal.inverse_stft([1j], 2, 1)


def test_short_time_transforms() -> None:
    x = RNG.normal(size=(2, 40))
    window = np.hanning(7)[:-1]
    want = np.fft.rfft(frames_of(x, 6, 2, False) * window, 8)
    found = hr.signal.stft(x, 6, 2)
    close(found, want)
    close(in_graph(lambda y: hr.signal.stft(y, 6, 2), x), want)
    close(in_graph(lambda n: hr.signal.stft(x, n, 2), np.int32(6)), want)
    back = hr.signal.inverse_stft(found, 6, 2, window_fn=hr.signal.inverse_stft_window_fn(2))
    close(np.asarray(back)[:, 4:-4], x[:, 4:-4])
    close(hr.signal.stft(x, 6, 2, 5, None, True), np.fft.rfft(frames_of(x, 6, 2, True) * (0 < 1), 5), 1e3)
    assert hr.signal.inverse_stft(found, 9, 3).shape == (2, 17 * 3 + 9)


def test_modified_cosine_transforms() -> None:
    x = RNG.normal(size=(2, 32))
    for window in (hr.signal.vorbis_window, hr.signal.kaiser_bessel_derived_window, None):
        for norm in (None, "ortho"):
            found = hr.signal.mdct(x, 8, window, norm=norm)
            assert found.shape == (2, 7, 4)
            back = hr.signal.inverse_mdct(found, window, norm)
            close(np.asarray(back)[:, 4:-4], x[:, 4:-4])
    with pytest.raises(ValueError, match="multiple of 4"):
        hr.signal.mdct(x, 6)
    with pytest.raises(ValueError, match="Unknown normalization"):
        hr.signal.inverse_mdct(x, norm="l2")
    with pytest.raises(ValueError, match="rank at least 2"):
        hr.signal.inverse_mdct([1.0, 2.0])


def test_the_mel_scale() -> None:
    weights = np.asarray(hr.signal.linear_to_mel_weight_matrix(3, 65, 8000, 100.0, 3000.0, hr.float64))
    mels = 1127 * np.log1p(np.linspace(0, 4000, 65) / 700)
    corners = 1127 * np.log1p(np.array([100.0, 3000.0]) / 700)
    corners = np.linspace(*corners, 5)
    want = np.stack([np.interp(mels, corners[i : i + 3], [0, 1, 0]) for i in range(3)], 1)
    want[0] = 0
    close(weights, want)
    logs = np.log(np.abs(X) + 1)
    close(hr.signal.mfccs_from_log_mel_spectrograms(logs), cosine(logs, 2) / 4)
    with pytest.raises(ValueError, match="num_mel_bins must be positive"):
        hr.signal.mfccs_from_log_mel_spectrograms(np.zeros((2, 0)))


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        ((0,), "num_mel_bins must be positive"),
        ((3, 9, -1), "sample_rate must be positive"),
        ((3, 9, 8000, -1.0), "must be non-negative"),
        ((3, 9, 8000, 100.0, 50.0), ">= upper_edge_hertz"),
        ((3, 9, 8000, 100.0, 5000.0), "Nyquist"),
        ((3, 9, 8000, 100.0, 3000.0, hr.int32), "floating point"),
    ],
)
def test_wrong_mel_scales(args: Any, phrase: str) -> None:
    with pytest.raises(ValueError, match=phrase):
        hr.signal.linear_to_mel_weight_matrix(*args)
