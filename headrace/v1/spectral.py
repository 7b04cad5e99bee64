"""TensorFlow 1's `tf.spectral`: older names of some functions of `tf.signal`."""

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
