"""Sound files: DecodeWav and EncodeWav, for samples of 16 bits.

Source: TensorFlow's ops of the same names. A file is a list of chunks: "fmt " describes the samples that "data" has.
Samples are floats from -1 to 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import DType, float32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, op
from headrace.opkit.arrays import check_size
from headrace.shapes import Shape, show, with_rank

_SCALE = np.float32(2**15)
_MOST = 2**32 - 1 - 36  # bytes of samples that the header can tell


def _file(samples: np.ndarray, rate: int) -> bytes:
    """Returns a file of [frames, channels] 16-bit samples."""
    channels = samples.shape[1]
    data = samples.astype("<i2").tobytes()
    frame = 2 * channels
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * frame, frame, 16)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data


def _read(data: bytes) -> tuple[np.ndarray, int]:
    """Returns the samples, int16 [frames, channels], and the number of frames in a second.

    Raises:
      InvalidArgumentError: the file is damaged, or its samples have no 16 bits.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InvalidArgumentError(f"Header mismatch: Expected RIFF ... WAVE but found {data[:12]!r}")
    at, form = 12, None
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if size > len(data) - at:
            raise InvalidArgumentError(f"Data too short when trying to read {size} bytes of the chunk {kind!r}")
        if kind == b"fmt ":
            if size < 16:
                raise InvalidArgumentError(f"Bad format chunk size for WAV: Expected 16, 18 or more, but got {size}")
            form = struct.unpack_from("<HHIIHH", data, at)
            _check_format(*form)
        elif kind == b"data":
            if form is None:
                raise InvalidArgumentError("No format chunk before the data chunk of the WAV file")
            channels, rate = form[1], form[2]
            frames = size // (2 * channels)
            return np.frombuffer(data, "<i2", frames * channels, at).reshape(frames, channels), rate
        at += size + size % 2
    raise InvalidArgumentError("Incomplete or missing data chunk in the WAV file")


def _check_format(kind: int, channels: int, rate: int, speed: int, frame: int, bits: int) -> None:
    if kind != 1:
        raise InvalidArgumentError(f"Bad audio format for WAV: Expected 1 (PCM), but got {kind}")
    if bits != 16:
        raise InvalidArgumentError(f"Can only read 16-bit WAV files, but received {bits}")
    if channels == 0:
        raise InvalidArgumentError("A WAV file must have at least one channel, got 0")
    if frame != 2 * channels:
        raise InvalidArgumentError(
            f"Bad bytes per sample in WAV header: Expected {2 * channels} but got {frame} for {channels} channels"
        )
    if speed != frame * rate:
        raise InvalidArgumentError(f"Bad bytes per second in WAV header: Expected {frame * rate} but got {speed}")


def _decode(attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    channels, count = attrs["desired_channels"], attrs["desired_samples"]

    def kernel(contents: Any) -> Any:
        if contents.ndim:
            raise InvalidArgumentError(f"contents must be scalar, got shape {show(contents.shape)}")
        found, rate = _read(contents.item())
        frames = len(found) if count < 0 else count
        wanted = found.shape[1] if channels < 0 else channels
        check_size((frames, wanted), float32)
        out = np.zeros((frames, wanted), np.float32)
        kept = found[:frames].astype(np.float32) / _SCALE
        source = np.minimum(np.arange(wanted), found.shape[1] - 1)  # the last channel again for those beyond
        out[: len(kept)] = kept[:, source]
        return out, np.int32(rate)

    return kernel


def _decode_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 0)
    channels, count = c.attrs["desired_channels"], c.attrs["desired_samples"]
    if channels < -1 or count < -1:
        raise ValueError(f"desired_channels and desired_samples must be -1 or more, got {channels} and {count}")
    return [(None if count < 0 else count, None if channels < 0 else channels), ()]


def _encode(attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    def kernel(audio: Any, rate: Any) -> Any:
        if audio.ndim != 2:
            raise InvalidArgumentError(f"audio must be 2-dimensional but got shape {show(audio.shape)}")
        if rate.ndim:
            raise InvalidArgumentError(f"Input sample_rate should be a scalar tensor, got shape {show(rate.shape)}")
        if audio.shape[1] == 0 or audio.shape[1] > 2**15 - 1:
            raise InvalidArgumentError(f"num_channels must be from 1 to {2**15 - 1}, got {audio.shape[1]}")
        if rate <= 0:
            raise InvalidArgumentError(f"sample_rate must be positive, got {rate}")
        if int(rate) * 2 * audio.shape[1] > 2**32 - 1 or 2 * audio.size > _MOST:
            raise InvalidArgumentError(f"the sound is too large for a WAV file: {show(audio.shape)} at the rate {rate}")
        scaled = np.nan_to_num(audio * _SCALE, nan=0.0)
        rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves away from zero
        return np.array(_file(np.clip(rounded, -(2**15), 2**15 - 1), int(rate)), object)

    return kernel


def _encode_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 2)
    with_rank(c.shapes[1], 0)
    return [()]


_SOUND = np.array([[0, 16384], [-32768, 1], [32767, -2]], np.int16)


def _text(data: bytes) -> np.ndarray:
    return np.array(data, object)


def _decode_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    data, floats = _text(_file(_SOUND, 8000)), _SOUND.astype(np.float32) / 32768
    more = np.concatenate([np.repeat(floats[:, 1:], 2, 1), np.zeros((1, 2), np.float32)])
    longer = np.concatenate([np.concatenate([floats, np.zeros((1, 2), np.float32)]), more[:, :1]], 1)
    return [
        case(data, want=(floats, np.int32(8000))),
        case(data, desired_channels=1, desired_samples=2, want=(floats[:2, :1], np.int32(8000))),
        case(data, desired_channels=3, desired_samples=4, want=(longer, np.int32(8000))),
    ]


def _encode_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    loud = np.array([[0.0, 0.5], [-1.0, 2.0**-15], [2.0, -(2.0**-14)]], np.float32)
    return [case(loud, np.int32(8000), want=(_text(_file(_SOUND, 8000)),))]


op(
    "DecodeWav",
    "contents: string",
    "audio: float32, sample_rate: int32",
    {"desired_channels": -1, "desired_samples": -1},
    shape=_decode_shape,
    kernel=_decode,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, no_fold=True, cost=lambda ins, outs: 1e6),
    sample=_decode_samples,
    doc="The samples of a sound file, [frames, channels], and the number of frames in a second.",
)
op(
    "EncodeWav",
    "audio: float32, sample_rate: int32",
    "contents: string",
    shape=_encode_shape,
    kernel=_encode,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(no_fold=True, cost=lambda ins, outs: 1e6),
    sample=_encode_samples,
    doc="A sound file of samples, [frames, channels], that are floats from -1 to 1.",
)
