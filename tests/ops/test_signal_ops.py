"""Fourier transforms and features of sound, beyond the cases of the records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, ShapeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.opkit import arrays
from tests.ops.test_math_ops import array, run

F32, C64, I32 = np.float32, np.complex64, np.int32
REAL = ["RFFT", "RFFT2D", "RFFT3D"]


def ints(*values: int) -> np.ndarray:
    return np.array(values, I32)


@pytest.mark.parametrize(
    ("type", "inputs", "match"),
    [
        ("FFT", [np.zeros((), C64)], "rank of at least 1"),
        ("IFFT3D", [np.zeros((2, 2), C64)], "rank of at least 3"),
        ("RFFT", [np.zeros(4, F32), ints(5)], "Input dimension 0 must have length of at least 5 but got: 4"),
        ("RFFT", [np.zeros(4, F32), ints(-1)], "fft_length must be >= 0"),
        ("RFFT", [np.zeros(4, F32), ints(2, 2)], r"fft_length must have shape \[1\]"),
        ("RFFT", [np.zeros(4, F32), I32(4)], r"fft_length must have shape \[1\]"),
        ("RFFT", [np.zeros(4, F32), ints(2**31 - 1)], "must have length of at least"),
        ("RFFT2D", [np.zeros(4, F32), ints(2, 2)], "rank of at least 2"),
        ("IRFFT", [np.zeros(3, C64), ints(6)], "Input dimension 0 must have length of at least 4 but got: 3"),
        ("IRFFT2D", [np.zeros((3, 3), C64), ints(4, 4)], "Input dimension 0 must have length of at least 4 but got: 3"),
        ("FFTND", [np.zeros((2, 2), C64), ints(2), ints(2)], "is not in"),
        ("FFTND", [np.zeros((2, 2), C64), ints(2, 2), ints(0, -2)], "distinct"),
        ("FFTND", [np.zeros((2, 2), C64), ints(2, 2), ints(0)], r"fft_length must have shape \[1\]"),
        ("AudioSpectrogram", [np.zeros(4, F32)], "2-dimensional"),
        ("Mfcc", [np.zeros((2, 17), F32), I32(8000)], "3-dimensional"),
        ("Mfcc", [np.zeros((1, 2, 17), F32), ints(8000)], "scalar"),
        ("Mfcc", [np.zeros((1, 2, 17), F32), I32(0)], "sample_rate 0 must be positive"),
        ("Mfcc", [np.zeros((1, 2, 1), F32), I32(8000)], "too few"),
    ],
)
def test_invalid_signal_inputs_are_refused(type: str, inputs: list[Any], match: str) -> None:
    attrs = {"window_size": 2, "stride": 1} if type == "AudioSpectrogram" else {}
    with pytest.raises((InvalidArgumentError, ValueError), match=match):
        run(type, *inputs, **attrs)


def test_types_of_different_precision() -> None:
    with pytest.raises(InvalidArgumentError, match="Wrong types"):
        run("RFFT", np.zeros(4, F32), ints(4), Tcomplex=dtypes.complex128)


@pytest.mark.parametrize(
    ("attrs", "match"),
    [
        ({"upper_frequency_limit": 10.0}, "must be above lower_frequency_limit"),
        ({"lower_frequency_limit": -1.0}, "must be >= 0"),
        ({"filterbank_channel_count": 0}, "must be positive"),
        ({"dct_coefficient_count": 0}, r"must be in \[1, 40\]"),
        ({"dct_coefficient_count": 41}, r"must be in \[1, 40\]"),
    ],
)
def test_filters_that_cannot_be(attrs: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        run("Mfcc", np.ones((1, 2, 17), F32), I32(8000), **attrs)


def test_windows_that_cannot_be() -> None:
    for attrs in ({"window_size": 1, "stride": 1}, {"window_size": 2, "stride": 0}):
        with pytest.raises(ShapeError, match="must be"):
            run("AudioSpectrogram", np.zeros((4, 1), F32), **attrs)


def test_filters_above_what_is_given_hear_nothing() -> None:
    x = np.ones((1, 1, 17), F32)
    beyond, silent = (run("Mfcc", x * scale, I32(8000), upper_frequency_limit=5000.0) for scale in (1, 0))
    np.testing.assert_array_equal(beyond, silent)
    assert np.isnan(run("Mfcc", -x, I32(8000))).any()


def test_transforms_of_nothing() -> None:
    assert run("FFT2D", np.zeros((2, 0, 3), C64)).shape == (2, 0, 3)
    assert run("RFFT", np.zeros((0, 4), F32), ints(4)).shape == (0, 3)
    assert run("RFFT", np.zeros(4, F32), ints(0)).shape == (0,)
    assert run("IRFFT", np.zeros(4, C64), ints(0)).shape == (0,)
    np.testing.assert_array_equal(run("RFFT", np.zeros(0, F32), ints(2)), [0, 0])
    np.testing.assert_array_equal(run("IRFFT", np.zeros(0, C64), ints(3)), [0, 0, 0])


def test_what_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "max_bytes", 1000)
    for type, x in (("RFFT", np.zeros(0, F32)), ("IRFFT", np.zeros(0, C64))):
        with pytest.raises(Exception, match="OOM"):
            run(type, x, ints(2**31 - 1))
    with pytest.raises(Exception, match="OOM"):
        run("FFTND", np.zeros(2, C64), ints(2**31 - 1), ints(0))


def test_the_imaginary_part_of_a_mean_is_not_read() -> None:
    x = array([1 + 5j, 2 + 1j, 3 + 7j], C64)
    np.testing.assert_allclose(run("IRFFT", x, ints(4)), [2, -1, 0, 0], atol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("last", [4, 5])
def test_a_transform_and_its_inverse(rank: int, last: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4, last))
    lengths = np.array(x.shape[-rank:], I32)
    half = run(REAL[rank - 1], x, lengths, Tcomplex=dtypes.complex128)
    back = run("I" + REAL[rank - 1], half, lengths, Treal=dtypes.float64)
    np.testing.assert_allclose(back, x, atol=1e-12)


@pytest.mark.parametrize(
    ("type", "shape", "lengths", "want"),
    [
        ("FFT2D", (2, None), None, (2, None)),
        ("RFFT", None, [5], None),
        ("RFFT", (2, None), [5], (2, 3)),
        ("RFFT2D", (2, 7, 7), [5, 6], (2, 5, 4)),
        ("RFFT2D", (2, 7, 7), None, (2, None, None)),
        ("IRFFT2D", (2, 7, 7), [5, 6], (2, 5, 6)),
    ],
)
def test_static_shapes(type: str, shape: Any, lengths: list[int] | None, want: Any) -> None:
    b = Builder(Graph())
    real = type.startswith("R")
    inputs = [b.Placeholder(dtype=dtypes.float32 if real else dtypes.complex64, shape=shape)]
    if "R" in type:
        unknown = b.Placeholder(dtype=dtypes.int32, shape=None)
        inputs.append(unknown if lengths is None else b.const(lengths, dtypes.int32))
    assert b.make(type, inputs, {}).shape == want


@pytest.mark.parametrize(("samples", "frames"), [(None, None), (7, 3), (2, 0), (3, 1)])
def test_the_number_of_frames(samples: int | None, frames: int | None) -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(samples, 2))
    assert b.AudioSpectrogram(x, window_size=3, stride=2).shape == (2, frames, 3)
    if samples is not None:
        assert run("AudioSpectrogram", np.ones((samples, 2), F32), window_size=3, stride=2).shape == (2, frames, 3)


def test_long_sounds_are_transformed_in_parts() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (40000, 1)).astype(F32)
    got = run("AudioSpectrogram", x, window_size=256, stride=1)
    assert got.shape == (1, 39745, 129)
    for i in (0, 4095, 4096, 39744):
        alone = run("AudioSpectrogram", x[i : i + 256], window_size=256, stride=1)
        np.testing.assert_allclose(got[:, i], alone[:, 0], rtol=1e-5)


def test_filters_beyond_what_is_given_hear_nothing() -> None:
    found = run("Mfcc", np.ones((1, 2, 9), np.float32), np.int32(3), upper_frequency_limit=3000.0)
    assert found.shape == (1, 2, 13)
    assert not found.any()
