"""TensorFlow 1's `tf.signal`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import signal
from headrace.v1.graph import in_default_graph

fft = in_default_graph(signal.fft)
fft2d = in_default_graph(signal.fft2d)
fft3d = in_default_graph(signal.fft3d)
fftnd = in_default_graph(signal.fftnd)
ifft = in_default_graph(signal.ifft)
ifft2d = in_default_graph(signal.ifft2d)
ifft3d = in_default_graph(signal.ifft3d)
ifftnd = in_default_graph(signal.ifftnd)
rfft = in_default_graph(signal.rfft)
rfft2d = in_default_graph(signal.rfft2d)
rfft3d = in_default_graph(signal.rfft3d)
rfftnd = in_default_graph(signal.rfftnd)
irfft = in_default_graph(signal.irfft)
irfft2d = in_default_graph(signal.irfft2d)
irfft3d = in_default_graph(signal.irfft3d)
irfftnd = in_default_graph(signal.irfftnd)
fftshift = in_default_graph(signal.fftshift)
ifftshift = in_default_graph(signal.ifftshift)
dct = in_default_graph(signal.dct)
idct = in_default_graph(signal.idct)

frame = in_default_graph(signal.frame)
overlap_and_add = in_default_graph(signal.overlap_and_add)
hamming_window = in_default_graph(signal.hamming_window)
hann_window = in_default_graph(signal.hann_window)
kaiser_window = in_default_graph(signal.kaiser_window)
kaiser_bessel_derived_window = in_default_graph(signal.kaiser_bessel_derived_window)
vorbis_window = in_default_graph(signal.vorbis_window)
stft = in_default_graph(signal.stft)
inverse_stft = in_default_graph(signal.inverse_stft)
mdct = in_default_graph(signal.mdct)
inverse_mdct = in_default_graph(signal.inverse_mdct)
linear_to_mel_weight_matrix = in_default_graph(signal.linear_to_mel_weight_matrix)
mfccs_from_log_mel_spectrograms = in_default_graph(signal.mfccs_from_log_mel_spectrograms)


def inverse_stft_window_fn(
    frame_step: Any, forward_window_fn: Callable[..., Any] = hann_window, name: str | None = None
) -> Callable[..., Any]:
    """The `window_fn` for `inverse_stft` that undoes that of `stft`. See `headrace.signal.inverse_stft_window_fn`.

    Source: TensorFlow's `tf.signal.inverse_stft_window_fn`.
    """
    return in_default_graph(signal.inverse_stft_window_fn(frame_step, forward_window_fn, name))


# fmt: off
__all__ = [
    "dct", "fft", "fft2d", "fft3d", "fftnd", "fftshift", "frame", "hamming_window", "hann_window", "idct", "ifft",
    "ifft2d", "ifft3d", "ifftnd", "ifftshift", "inverse_mdct", "inverse_stft", "inverse_stft_window_fn", "irfft",
    "irfft2d", "irfft3d", "irfftnd", "kaiser_bessel_derived_window", "kaiser_window", "linear_to_mel_weight_matrix",
    "mdct", "mfccs_from_log_mel_spectrograms", "overlap_and_add", "rfft", "rfft2d", "rfft3d", "rfftnd", "stft",
    "vorbis_window",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
