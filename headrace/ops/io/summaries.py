"""Summaries: values that a step reports in messages for event files and TensorBoard.

ScalarSummary, HistogramSummary, ImageSummary, AudioSummary, AudioSummaryV2, TensorSummary, TensorSummaryV2 and
MergeSummary each return a serialized `Summary` (`files.summaries`). It contains an image as a PNG file and audio as a
WAV file.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import varints
from headrace.dtypes import REAL, DType, float16, float32, float64, uint8
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.files import summaries
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    float_attr,
    flops_per_input,
    int_attr,
    list_attr,
    op,
    string_attr,
    tensor_attr,
    type_attr,
)
from headrace.ir.serial.attrs import write_tensor
from headrace.opkit.arrays import HANDLES, check_size
from headrace.opkit.shape_rules import scalars
from headrace.ops.io.histograms import histogram, limits
from headrace.shapes import show

_FACTS = Facts(cost=flops_per_input(4))
_PIXELS = 1 << 29  # of one picture, at most
_UINT32 = 2**32 - 1


def _result(message: bytes) -> np.ndarray:
    return np.array(message, object)


def _one(tag: np.ndarray, what: str) -> bytes:
    """The string of a scalar."""
    if tag.ndim:
        raise InvalidArgumentError(f"{what} must be a scalar, got the shape {show(tag.shape)}")
    found: bytes = tag.item()
    return found


# *** numbers ***


def _scalar(tags: Any, values: Any) -> np.ndarray:
    if tags.shape != values.shape:
        alone = f" (tag '{tags.item().decode('utf-8', 'replace')}')" if tags.size == 1 else ""
        raise InvalidArgumentError(
            f"tags and values are not the same shape: {show(tags.shape)} != {show(values.shape)}{alone}"
        )
    return _result(summaries.scalars(tags.ravel().tolist(), values.reshape(-1).astype(np.float32).tolist()))


def _histogram(tag: Any, values: Any) -> np.ndarray:
    name = _one(tag, "tags")
    if values.dtype.kind not in "iu":
        for wrong, what in ((np.isnan, "Nan"), (np.isinf, "Infinity")):
            n = np.count_nonzero(wrong(values))
            if n:
                shown = name.decode("utf-8", "replace")
                raise InvalidArgumentError(
                    f"{what} in summary histogram for: {shown}: {n} of {values.size} values. "
                    "hr.check_numerics on what they are made of finds where they come from"
                )
    return _result(summaries.histogram(name, *histogram(values)))


# *** pictures ***


def _check_images(x: Any) -> None:
    if x.ndim != 4 or x.shape[3] not in (1, 3, 4):
        raise InvalidArgumentError(f"Tensor must be 4-D with last dim 1, 3, or 4, not {show(x.shape)}")
    _, h, w, depth = x.shape
    if h * w >= _PIXELS:
        raise InvalidArgumentError(
            f"Tensor too large for summary {show(x.shape)}: a picture has less than 2**29 pixels"
        )
    if not h * w * depth:
        raise InvalidArgumentError(f"input tensor must have non-zero dims. Found: {show(x.shape)}.")


def _bad_color(given: Any) -> np.ndarray:
    if not isinstance(given, np.ndarray) or given.dtype != np.uint8:
        of = given.dtype if isinstance(given, np.ndarray) else given
        raise InvalidArgumentError(f"bad_color must be uint8, got {of}")
    if given.ndim != 1:
        raise InvalidArgumentError(f"bad_color must be a vector, got shape {show(given.shape)}")
    return given


def _as_bytes(x: np.ndarray, bad_color: np.ndarray) -> np.ndarray:
    """A picture of floats, of any range, as one of bytes: [h, w, depth].

    A picture with negative values is scaled by the greatest magnitude, with 0 at 128. Otherwise the greatest value
    becomes 255. Pixels that are not finite neither count for that nor are scaled: they get `bad_color`.
    """
    t = x.dtype.type
    finite = np.isfinite(x).all(axis=-1)
    good = x[finite].astype(np.float32)
    least, greatest = (good.min(), good.max()) if good.size else (np.float32(np.inf), np.float32(-np.inf))
    top, offset = (np.float32(127), t(128)) if least < 0 else (np.float32(255), t(0))
    largest = max(abs(least), abs(greatest)) if least < 0 else greatest
    scale = t(0) if largest < np.float32(1e-6) else t(top / largest)
    levels = x[finite] * scale + offset
    out = np.empty(x.shape, np.uint8)
    out[finite] = np.where(np.isfinite(levels), levels, 0).astype(np.uint8)  # a half's scale may be infinite
    out[~finite] = bad_color
    return out


def _png(x: np.ndarray) -> bytes:
    """A picture [h, w, 1, 3 or 4] of bytes as a PNG file."""
    try:
        from PIL import Image
    except ImportError as e:
        raise UnimplementedError("pictures in summaries need Pillow: pip install headrace[train]") from e
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(x[..., 0] if x.shape[-1] == 1 else x)).save(out, "PNG")
    return out.getvalue()


def _numbered(base: bytes, kind: bytes, n: int, most: int) -> list[bytes]:
    """The tags of `n` pictures or sounds, of `most` that there may be."""
    return [b"%s/%s/%d" % (base, kind, i) if most > 1 else b"%s/%s" % (base, kind) for i in range(n)]


def _image_kernel(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    most, given = attrs["max_images"], attrs["bad_color"]

    def kernel(tag: Any, x: Any) -> np.ndarray:
        if most >= 2**31:
            raise InvalidArgumentError(f"max_images must be < 2^31, got {most}")
        bad_color = _bad_color(given)
        name = _one(tag, "Tags")
        _check_images(x)
        n, h, w, depth = x.shape
        if x.dtype != np.uint8 and len(bad_color) < depth:
            raise InvalidArgumentError(
                f"expected depth <= bad_color.size, got depth = {depth}, bad_color.size = {len(bad_color)}"
            )
        tags = _numbered(name, b"image", min(n, most), most)
        shown = (image if x.dtype == np.uint8 else _as_bytes(image, bad_color[:depth]) for image in x[: len(tags)])
        return _result(summaries.images(tags, map(_png, shown), h, w, depth))

    return kernel


# *** sounds ***


def _wav(x: np.ndarray, rate: int) -> bytes:
    """Encodes a sound [frames, channels] as a WAV file of 16 bits.

    Values outside of -1 to 1 are clipped.
    """
    frames, channels = x.shape
    if not frames or not 0 < channels < 2**16:
        raise InvalidArgumentError(
            f"num_channels must be in (0, 2^16) and there must be frames, got {frames} frames of {channels} channels"
        )
    size = 2 * frames * channels
    if 44 + size > _UINT32:
        raise InvalidArgumentError(
            f"Provided channels and frames cannot be encoded as a WAV: {size} bytes, and the format ends at 2**32"
        )
    scaled = x * np.float32(2**15)
    whole = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves go away from zero
    # beyond 2**22 a float32 has no halves left, and the sum would be rounded
    whole = np.where(np.abs(scaled) < 2**22, whole, scaled)
    samples = np.nan_to_num(np.clip(whole, -(2**15), 2**15 - 1)).astype("<i2")
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, channels, rate, rate * 2 * channels & _UINT32),
        *(2 * channels & 0xFFFF, 16, b"data", size),
    )
    return head + samples.tobytes()


def _audio(most: int, tag: Any, x: Any, rate: float) -> np.ndarray:
    name = _one(tag, "Tag")
    if x.ndim not in (2, 3):
        raise InvalidArgumentError(f"Tensor must be 3-D or 2-D, got: {show(x.shape)}")
    if not 0 < rate <= _UINT32:
        raise InvalidArgumentError(f"sample_rate must be > 0 and below 2^32, got {rate}")
    sounds = x[..., None] if x.ndim == 2 else x
    _, frames, channels = sounds.shape
    check_size(sounds.shape, float32)
    tags = _numbered(name, b"audio", min(len(sounds), most), most)
    whole = max(round(rate), 1)
    return _result(summaries.sounds(tags, (_wav(s, whole) for s in sounds[: len(tags)]), rate, channels, frames))


def _audio_v2_kernel(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    def kernel(tag: Any, x: Any, sample_rate: Any) -> np.ndarray:
        if sample_rate.size != 1:
            raise InvalidArgumentError(
                f"sample_rate must be rank-0 or contain a single value, got the shape {show(sample_rate.shape)}"
            )
        return _audio(attrs["max_outputs"], tag, x, float(sample_rate.item()))

    return kernel


# *** tensors ***


def _tensor(x: Any, t: DType) -> bytes:
    if t in HANDLES:
        raise UnimplementedError(f"a {t.name} has no wire form, and so no summary")
    return write_tensor(np.asarray(x), t)


def _tensor_v2_kernel(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    def kernel(tag: Any, x: Any, metadata: Any) -> np.ndarray:
        name, note = _one(tag, "tag"), _one(metadata, "serialized_summary_metadata")
        return _result(summaries.tensor(_tensor(x, attrs["T"]), name, metadata=note))

    return kernel


def _tensor_kernel(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda x: _result(summaries.tensor(_tensor(x, attrs["T"]), node=ctx.node))


def _merge(*parts: Any) -> np.ndarray:
    return _result(summaries.merge(data for part in parts for data in part.ravel()))


# *** the same by the definition of the messages ***


def _field(number: int, content: bytes | float) -> bytes:
    """A field of a message: bytes, an integer, or a float as a double."""
    if isinstance(content, bytes):
        return varints.encode(number << 3 | 2) + varints.encode(len(content)) + content
    if isinstance(content, int):
        return varints.encode(number << 3) + varints.encode(content)
    return varints.encode(number << 3 | 1) + struct.pack("<d", content)


def _of(*values: bytes) -> np.ndarray:
    return np.array(b"".join(_field(1, v) for v in values), object)


def _number(tag: bytes, value: float) -> bytes:
    return _field(1, tag) + b"\x15" + struct.pack("<f", value)


def _scalar_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    tags = np.array([b"a", b"b"], object)
    numbers = np.array([3, 0]).astype(dtype.numpy)
    return [
        case(np.array(b"a", object), np.asarray(numbers[0]), want=_of(_number(b"a", 3))),
        case(tags, numbers, want=_of(_number(b"a", 3), _number(b"b", 0))),
    ]


def _histogram_oracle(tag: np.ndarray, values: np.ndarray) -> np.ndarray:
    numbers, ends = [float(v) for v in values.ravel()], limits().tolist()
    counts = [0] * len(ends)
    total = squares = 0.0
    for v in numbers:
        counts[next(i for i, end in enumerate(ends) if v < end)] += 1
        total, squares = total + v, squares + v * v
    kept = [i for i, n in enumerate(counts) if n or i + 1 == len(counts) or counts[i + 1]]
    histo = [min(numbers, default=ends[-1]), max(numbers, default=ends[0]), float(len(numbers)), total, squares]
    # a field that is 0 is not written
    content = b"".join(_field(i + 1, v) for i, v in enumerate(histo) if v)
    content += _field(6, struct.pack(f"<{len(kept)}d", *(ends[i] for i in kept)))
    content += _field(7, struct.pack(f"<{len(kept)}d", *(counts[i] for i in kept)))
    return _of(_field(1, tag.item()) + _field(5, content))


def _histogram_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    shapes: Iterable[tuple[int, ...]] = ((2, 3), (), (0,), (50,))
    return [case(np.array(b"h", object), rng.integers(0, 9, shape).astype(dtype.numpy)) for shape in shapes]


def _audio_oracle(tag: np.ndarray, x: np.ndarray, rate: float, max_outputs: int) -> np.ndarray:
    import wave

    values = []
    for i, sound in enumerate((x if x.ndim == 3 else x[..., None])[:max_outputs]):
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setnchannels(sound.shape[1])
            file.setsampwidth(2)
            file.setframerate(rate)
            for v in sound.ravel():
                sample = int(abs(v) * 2**15 + 0.5) * (1 if v > 0 else -1)
                file.writeframes(struct.pack("<h", max(-(2**15), min(sample, 2**15 - 1))))
        audio = b"\x0d" + struct.pack("<f", rate) + _field(2, sound.shape[1]) + _field(3, len(sound))
        audio += _field(4, out.getvalue()) + _field(5, b"audio/wav")
        name = tag.item() + b"/audio" + (b"/%d" % i if max_outputs > 1 else b"")
        values.append(_field(1, name) + _field(6, audio))
    return _of(*values)


def _sounds(rng: np.random.Generator) -> Iterable[tuple[np.ndarray, int]]:
    shapes: Sequence[tuple[tuple[int, ...], int]] = (((2, 5), 3), ((2, 4, 2), 1), ((4, 3, 1), 2))
    return [(rng.uniform(-1.2, 1.2, s).astype(np.float32), n) for s, n in shapes]


def _audio_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(
            np.array(b"s", object),
            x,
            sample_rate=8000.0,
            max_outputs=n,
            want=_audio_oracle(np.array(b"s", object), x, 8000, n),
        )
        for x, n in _sounds(rng)
    ]


def _audio_v2_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    tag = np.array(b"s", object)
    return [
        case(tag, x, np.float32(44100), max_outputs=n, want=_audio_oracle(tag, x, 44100, n)) for x, n in _sounds(rng)
    ]


def _tensor_v2_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype is not float32:
        return []
    x = rng.random(2).astype(np.float32)
    proto = bytes([8, dtype.number]) + _field(2, _field(2, bytes([8, 2]))) + _field(4, x.tobytes())
    note = _field(1, _field(1, b"text"))
    want = _of(_field(1, b"t") + _field(8, proto) + _field(9, note))
    return [case(np.array(b"t", object), x, np.array(note, object), want=want)]


def _merge_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    a, b, c = (_number(tag, 1) for tag in (b"a", b"b", b"c"))
    both = np.empty(2, object)
    both[:] = [_of(a, b).item(), _of(c).item()]
    return [case([_of(a)], want=_of(a)), case([both, np.array(b"", object)], want=_of(a, b, c))]


# *** records ***

op(
    "ScalarSummary",
    "tags: string, values: T",
    "summary: string",
    {"T": type_attr(REAL)},
    shape=scalars,
    kernel=lambda attrs: _scalar,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_scalar_samples,
    doc="The summary of numbers, each with a tag.",
)
op(
    "HistogramSummary",
    "tag: string, values: T",
    "summary: string",
    {"T": type_attr(REAL, default=float32)},
    shape=scalars,
    kernel=lambda attrs: _histogram,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(50)),
    oracle=_histogram_oracle,
    sample=_histogram_samples,
    doc="The summary of how numbers are distributed.",
)
op(
    "ImageSummary",
    "tag: string, tensor: T",
    "summary: string",
    {
        "max_images": int_attr(3, minimum=1),
        "T": type_attr({uint8, float32, float16, float64}, default=float32),
        "bad_color": tensor_attr(np.array([255, 0, 0, 255], np.uint8)),
    },
    shape=scalars,
    kernel=_image_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(200), no_fold=True),  # the files' bytes are another library's, not the graph's
    doc="The summary of pictures, as PNG files.",
    differs="the pixels are TensorFlow's, but the PNG files are compressed by another library, and so other bytes.",
)
op(
    "AudioSummary",
    "tag: string, tensor: float32",
    "summary: string",
    {"sample_rate": float_attr(), "max_outputs": int_attr(3, minimum=1)},
    shape=scalars,
    kernel=lambda attrs: lambda tag, x: _audio(attrs["max_outputs"], tag, x, float(np.float32(attrs["sample_rate"]))),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(20)),
    sample=_audio_samples,
    doc="The summary of sounds, as WAV files.",
    differs="samples that are NaN become 0; in TensorFlow they are undefined.",
)
op(
    "AudioSummaryV2",
    "tag: string, tensor: float32, sample_rate: float32",
    "summary: string",
    {"max_outputs": int_attr(3, minimum=1)},
    shape=scalars,
    kernel=_audio_v2_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(20)),
    sample=_audio_v2_samples,
    doc="The summary of sounds, as WAV files.",
    differs="samples that are NaN become 0; in TensorFlow they are undefined.",
)
op(
    "TensorSummary",
    "tensor: T",
    "summary: string",
    {
        "T": type_attr(),
        "description": string_attr(""),
        "labels": list_attr("string", default=()),
        "display_name": string_attr(""),
    },
    shape=scalars,
    stateful=_tensor_kernel,  # that it may know its name
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    doc="The summary of a tensor, under the operation's name.",
)
op(
    "TensorSummaryV2",
    "tag: string, tensor: T, serialized_summary_metadata: string",
    "summary: string",
    {"T": type_attr()},
    shape=scalars,
    kernel=_tensor_v2_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_tensor_v2_samples,
    doc="The summary of a tensor, with a note on how to show it.",
    differs="metadata that cannot be parsed is an error; TensorFlow omits it.",
)
op(
    "MergeSummary",
    "inputs: N * string",
    "summary: string",
    {"N": int_attr(minimum=1)},
    shape=scalars,
    kernel=lambda attrs: _merge,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_merge_samples,
    doc="One summary of several.",
)
