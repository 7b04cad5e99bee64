"""TensorFlow 1's `tf.spectral`: older names of some functions of `tf.signal`."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.signal import dct as dct
from headrace.v1.signal import fft as fft
from headrace.v1.signal import fft2d as fft2d
from headrace.v1.signal import fft3d as fft3d
from headrace.v1.signal import idct as idct
from headrace.v1.signal import ifft as ifft
from headrace.v1.signal import ifft2d as ifft2d
from headrace.v1.signal import ifft3d as ifft3d
from headrace.v1.signal import irfft as irfft
from headrace.v1.signal import irfft2d as irfft2d
from headrace.v1.signal import irfft3d as irfft3d
from headrace.v1.signal import rfft as rfft
from headrace.v1.signal import rfft2d as rfft2d
from headrace.v1.signal import rfft3d as rfft3d

# fmt: off
__all__ = [
    "dct", "fft", "fft2d", "fft3d", "idct", "ifft", "ifft2d", "ifft3d", "irfft", "irfft2d", "irfft3d", "rfft", "rfft2d",
    "rfft3d",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
