"""Decoding and encoding of image files: PNG, JPEG, GIF, BMP.

Source: TensorFlow's DecodePng, DecodeJpeg, DecodeAndCropJpeg, DecodeGif, DecodeBmp, DecodeImage, EncodePng, EncodeJpeg,
EncodeJpegVariableQuality and ExtractJpegShape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import float32, int32, int64, uint8, uint16
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Case, Facts, case, op, string_attr, type_attr
from headrace.ops.image import formats, png
from headrace.shapes import Shape

Attrs = Mapping[str, Any]

_DECODES = Facts(dynamic_shape=True, no_fold=True, cost=lambda ins, outs: 1e7)
_ENCODES = Facts(no_fold=True, cost=lambda ins, outs: 1e7)


# *** decoding ***


def _bytes(contents: Any) -> bytes:
    if contents.ndim:
        raise InvalidArgumentError(f"contents must be scalar, got shape {shapes.show(contents.shape)}")
    data: bytes = contents.item()
    return data


def _decoded(data: bytes, asked: str, channels: int, bits: int, ratio: int = 1) -> np.ndarray:
    """Decodes an image whose format is detected from its first bytes.

    The pixels are uint8 or, of a PNG file, of `bits` bits. Those of an animation have a leading axis of frames.

    Args:
      asked: the op.
    """
    kind = formats.kind_of(data)
    if kind == "BMP" and asked != "DecodeWebP":
        if asked not in ("DecodeBmp", "DecodeImage"):
            raise InvalidArgumentError(
                f"Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead. Op used: "
                f"{asked}"
            )
        if channels == 1:
            raise InvalidArgumentError("`channels` must be 0, 3 or 4 for BMP, but got 1")
        return formats.bmp(data, channels)
    if asked == "DecodeBmp":
        raise InvalidArgumentError(
            f"Trying to decode {kind} format using DecodeBmp op. Use `decode_{kind.lower()}` or `decode_image` instead."
        )
    if kind == "WEBP":
        if asked not in ("DecodeWebP", "DecodeImage"):
            raise InvalidArgumentError(
                f"Trying to decode WebP format using a wrong op. Use `decode_webp` or `decode_image` instead. Op used: "
                f"{asked}"
            )
        return formats.webp(data, channels)
    if asked == "DecodeWebP":
        raise InvalidArgumentError(
            f"Trying to decode {kind} format using DecodeWebP op. Use `decode_{kind.lower()}` or `decode_image`."
        )
    if kind == "PNG":
        return png.decoded(data, channels, bits)
    if channels == 4:
        raise InvalidArgumentError(f"`channels` must be 0, 1, or 3 for {kind}, but got 4")
    if kind == "JPEG":
        return formats.jpeg(data, channels, ratio)
    if channels == 1:
        raise InvalidArgumentError("`channels` must be 0 or 3 for GIF, but got 1")
    frames = formats.gif(data)
    if asked in ("DecodePng", "DecodeJpeg"):
        if len(frames) != 1:
            raise InvalidArgumentError(
                f"Got {len(frames)} frames, but animated gifs can only be decoded by tf.io.decode_gif or "
                "tf.io.decode_image"
            )
        return frames[0]
    return frames


def _check_channels(channels: int, allowed: Sequence[int]) -> None:
    if channels not in allowed:
        raise InvalidArgumentError(f"`channels` must be {', '.join(map(str, allowed))} but got {channels}")


def _simple(type: str, allowed: Sequence[int]) -> Any:
    """The kernel of an op for one format."""

    def factory(attrs: Attrs) -> Callable[..., Any]:
        channels, bits = attrs.get("channels", 0), 16 if attrs.get("dtype") is uint16 else 8
        _check_channels(channels, allowed)

        def kernel(contents: Any) -> np.ndarray:
            pixels = _decoded(_bytes(contents), type, channels, bits)
            return _converted(pixels, attrs.get("dtype", uint8))

        return kernel

    return factory


def _converted(pixels: np.ndarray, dtype: Any) -> np.ndarray:
    """Converts pixels of 8 or 16 bits to `dtype`.

    White becomes 1 in floating types. uint16 keeps the eight bits in the upper byte; `png` scales its own, so that
    white is 65535.
    """
    if dtype is float32:
        return pixels.astype(np.float32) * (np.float32(1) / np.float32(np.iinfo(pixels.dtype).max))
    if dtype is uint16 and pixels.dtype == np.uint8:
        return pixels.astype(np.uint16) << np.uint16(8)
    return pixels


def _gif_kernel(attrs: Attrs) -> Callable[..., Any]:
    def kernel(contents: Any) -> np.ndarray:
        data = _bytes(contents)
        pixels = _decoded(data, "DecodeGif", 3 if formats.kind_of(data) != "BMP" else 0, 8)
        return pixels if pixels.ndim == 4 else pixels[None]

    return kernel


def _image_kernel(attrs: Attrs) -> Callable[..., Any]:
    channels, dtype, animates = attrs["channels"], attrs["dtype"], attrs["expand_animations"]
    _check_channels(channels, (0, 1, 3, 4))

    def kernel(contents: Any) -> np.ndarray:
        pixels = _decoded(_bytes(contents), "DecodeImage", channels, 8 if dtype is uint8 else 16)
        if pixels.ndim == 4 and not animates:
            pixels = pixels[0]
        return _converted(pixels, dtype)

    return kernel


def _jpeg_kernel(attrs: Attrs) -> Callable[..., Any]:
    channels, ratio = attrs["channels"], attrs["ratio"]
    _check_channels(channels, (0, 1, 3))
    if ratio not in (1, 2, 4, 8):
        raise InvalidArgumentError(f"ratio must be 1, 2, 4, or 8, got {ratio}")
    if attrs["dct_method"] not in ("", "INTEGER_FAST", "INTEGER_ACCURATE"):
        raise InvalidArgumentError(
            f"dct_method must be one of '', 'INTEGER_FAST', 'INTEGER_ACCURATE', got {attrs['dct_method']!r}"
        )

    def kernel(contents: Any, window: Any = None) -> np.ndarray:
        if window is None:
            return _decoded(_bytes(contents), "DecodeJpeg", channels, 8, ratio)
        if window.shape != (4,):
            raise InvalidArgumentError(f"crop_window must have 4 elements, got shape {shapes.show(window.shape)}")
        pixels = formats.jpeg(_bytes(contents), channels, ratio)
        y, x, height, width = window.tolist()
        if y < 0 or x < 0 or height <= 0 or width <= 0 or y + height > len(pixels) or x + width > pixels.shape[1]:
            raise InvalidArgumentError(
                f"Invalid JPEG data or crop window: {height} x {width} pixels at ({y}, {x}) of an image of "
                f"{len(pixels)} x {pixels.shape[1]}"
            )
        return np.ascontiguousarray(pixels[y : y + height, x : x + width])

    return kernel


def _pixels_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    if len(c.shapes) > 1:
        shapes.merge(c.shapes[1], (4,))
    channels = c.attrs["channels"]
    if channels < 0:
        raise ValueError(f"channels must be non-negative, got {channels}")
    height, width = (c.shape_value(1) or (None,) * 4)[2:] if len(c.shapes) > 1 else (None, None)
    return [(height, width, channels or None)]


def _frames_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    return [(None, None, None, 3)]


def _webp_shape(c: Inference) -> Sequence[Shape]:
    return [(None, *(s or ())) for s in _pixels_shape(c)]


def _image_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    if c.attrs["expand_animations"]:
        return [None]
    return _pixels_shape(c)


# *** samples ***


def _some(rng: Any, channels: int, dtype: Any = np.uint8) -> np.ndarray:
    pixels: np.ndarray = rng.integers(0, np.iinfo(dtype).max, (3, 5, channels), dtype, endpoint=True)
    return pixels


def _text(data: bytes) -> np.ndarray:
    return np.array(data, object)


def _png_cases(rng: Any, dtype: Any) -> list[Case]:
    """Test cases with 1 to 4 channels, in the dtype asked for."""
    wanted = dtype if dtype in (uint8, uint16) else uint8
    made = [_some(rng, n, wanted.numpy) for n in (1, 2, 3, 4)]
    return [case(_text(png.encoded(x)), dtype=wanted, want=x) for x in made]


def _bitmap(pixels: np.ndarray) -> bytes:
    """Pixels of three channels as a bitmap of 24 bits."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, -(-3 * width // 4) * 4), np.uint8)
    rows[:, : 3 * width] = pixels[::-1, :, ::-1].reshape(height, -1)
    head = (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
    sides = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    return b"BM" + bytes(8) + head + sides + b"\x01\0\x18\0" + bytes(24) + rows.tobytes()


def _bmp_cases(rng: Any, dtype: Any) -> list[Case]:
    pixels = _some(rng, 3)
    return [case(_text(_bitmap(pixels)), want=pixels)]


# One red point, as an animation of one frame.
_GIF = bytes.fromhex("47494638396101000100800100ff00000000002c00000000010001000002024401003b")
_WEBP = bytes.fromhex("524946461c000000574542505650384c0f0000002f000000000710fd8ffe0722a2ff0100")
# A grey image of 8 x 8 pixels, all 128, as libjpeg writes it.
_LEVEL = 128


def _flat_jpeg() -> bytes:
    return formats.encoded_jpeg(np.full((8, 8, 1), _LEVEL, np.uint8), 90)


def _jpeg_cases(rng: Any, dtype: Any) -> list[Case]:
    data = _text(_flat_jpeg())
    flat = np.full((8, 8, 1), _LEVEL, np.uint8)
    return [
        case(data, want=flat),
        case(data, channels=3, want=np.repeat(flat, 3, -1)),
        case(data, ratio=4, want=flat[:2, :2]),
    ]


def _crop_cases(rng: Any, dtype: Any) -> list[Case]:
    return [case(_text(_flat_jpeg()), np.array([1, 2, 3, 4], np.int32), want=np.full((3, 4, 1), _LEVEL, np.uint8))]


def _image_cases(rng: Any, dtype: Any) -> list[Case]:
    pixels = _some(rng, 3)
    data = _text(png.encoded(pixels))
    wide = pixels.astype(np.uint16) * np.uint16(257)
    return [
        case(data, dtype=uint8, want=pixels),
        case(data, dtype=uint16, want=wide),
        case(data, dtype=float32, want=wide.astype(np.float32) * (np.float32(1) / np.float32(65535))),
        case(_text(_bitmap(pixels)), dtype=uint8, channels=3, expand_animations=False, want=pixels),
        case(_text(_GIF), dtype=uint8, want=np.array([[[[255, 0, 0]]]], np.uint8)),
    ]


op(
    "DecodePng",
    "contents: string",
    "image: dtype",
    {"channels": 0, "dtype": type_attr(frozenset({uint8, uint16}), uint8)},
    shape=_pixels_shape,
    kernel=_simple("DecodePng", (0, 1, 3, 4)),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_DECODES,
    sample=_png_cases,
    doc="The pixels of a PNG image.",
    differs=f"More than {formats.MOST_PIXELS} pixels, and interlaced images of colours with 16 bits, are "
    "refused. Alpha is full where TensorFlow gives less to grey of fewer than 8 bits.",
)
_JPEG = {
    "channels": 0,
    "ratio": 1,
    "fancy_upscaling": True,
    "try_recover_truncated": False,
    "acceptable_fraction": 1.0,
    "dct_method": "",
}
_JPEG_DIFFERS = (
    "Pillow decodes: values may differ by a few levels. `fancy_upscaling` and `dct_method` are ignored. Truncated "
    f"files are refused, also with `try_recover_truncated`. More than {formats.MOST_PIXELS} pixels are refused."
)
op(
    "DecodeJpeg",
    "contents: string",
    "image: uint8",
    _JPEG,
    shape=_pixels_shape,
    kernel=_jpeg_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_DECODES,
    sample=_jpeg_cases,
    doc="The pixels of a JPEG image.",
    differs=_JPEG_DIFFERS,
)
op(
    "DecodeAndCropJpeg",
    "contents: string, crop_window: int32",
    "image: uint8",
    _JPEG,
    shape=_pixels_shape,
    kernel=_jpeg_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_DECODES,
    sample=_crop_cases,
    doc="The pixels of a part of a JPEG image: crop_window is [y, x, height, width].",
    differs=_JPEG_DIFFERS,
)
op(
    "DecodeGif",
    "contents: string",
    "image: uint8",
    shape=_frames_shape,
    kernel=_gif_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_DECODES,
    sample=lambda rng, dtype: [case(_text(_GIF), want=np.array([[[[255, 0, 0]]]], np.uint8))],
    doc="The frames of a GIF animation.",
    differs=f"More than {formats.MOST_PIXELS} pixels in all, and truncated files, are refused. Frames are "
    "cleared if the file asks for it.",
)
op(
    "DecodeBmp",
    "contents: string",
    "image: uint8",
    {"channels": 0},
    shape=_pixels_shape,
    kernel=_simple("DecodeBmp", (0, 1, 3, 4)),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_DECODES,
    sample=_bmp_cases,
    doc="The pixels of an uncompressed bitmap.",
    differs=f"More than {formats.MOST_PIXELS} pixels are refused.",
)
op(
    "DecodeWebP",
    "contents: string",
    "image: dtype",
    {"channels": 0, "dtype": type_attr(frozenset({uint8}), uint8)},
    shape=_webp_shape,
    kernel=_simple("DecodeWebP", (0, 1, 3, 4)),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_DECODES,
    sample=lambda rng, dtype: [case(_text(_WEBP), want=np.array([[[[255, 0, 0]]]], np.uint8))],
    doc="The frames of a WebP image or animation.",
    differs=f"More than {formats.MOST_PIXELS} pixels in all are refused. Animations without transparency have three "
    "channels; TensorFlow writes four into the memory of three.",
)
op(
    "DecodeImage",
    "contents: string",
    "image: dtype",
    {"channels": 0, "dtype": type_attr(frozenset({uint8, uint16, float32}), uint8), "expand_animations": True},
    shape=_image_shape,
    kernel=_image_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_DECODES,
    sample=_image_cases,
    doc="The pixels of a PNG, JPEG, GIF, BMP or WebP image.",
    differs="See DecodePng, DecodeJpeg and DecodeGif.",
)


# *** encoding ***


def _check_image(image: np.ndarray, channels: Sequence[int], rank: str = "3") -> None:
    if image.ndim < 3 or (rank == "3" and image.ndim != 3):
        raise InvalidArgumentError(f"image must be {rank}-dimensional, got shape {shapes.show(image.shape)}")
    if image.shape[-1] not in channels:
        raise InvalidArgumentError(
            f"image must have {', '.join(map(str, channels))} channels, got shape {shapes.show(image.shape)}"
        )
    if 0 in image.shape[-3:]:
        raise InvalidArgumentError(f"image must have pixels, got shape {shapes.show(image.shape)}")


def _png_encode(attrs: Attrs) -> Callable[..., Any]:
    compression = attrs["compression"]
    if not -1 <= compression <= 9:
        raise InvalidArgumentError(f"compression should be in [-1, 9], got {compression}")

    def kernel(image: np.ndarray) -> np.ndarray:
        _check_image(image, (1, 2, 3, 4), "at least 3")
        out = np.empty(image.shape[:-3], object)
        for index in np.ndindex(out.shape):
            out[index] = png.encoded(image[index], compression)
        return out

    return kernel


_MODES = {"": (1, 3), "grayscale": (1,), "rgb": (3,)}


def _jpeg_encode(attrs: Attrs) -> Callable[..., Any]:
    quality, mode = attrs["quality"], attrs["format"]
    _check_quality(quality)
    if attrs["x_density"] <= 0 or attrs["y_density"] <= 0:
        raise InvalidArgumentError(f"densities must be positive, got {attrs['x_density']}, {attrs['y_density']}")
    inches = 2.54 if attrs["density_unit"] == "cm" else 1
    options: dict[str, Any] = {
        "progressive": attrs["progressive"],
        "optimize": attrs["optimize_size"],
        "subsampling": 2 if attrs["chroma_downsampling"] else 0,
        "dpi": (round(attrs["x_density"] * inches), round(attrs["y_density"] * inches)),
    }
    if attrs["xmp_metadata"]:
        options["xmp"] = attrs["xmp_metadata"].encode("utf-8", "surrogateescape")

    def kernel(image: np.ndarray) -> np.ndarray:
        _check_image(image, _MODES[mode])
        return _text(formats.encoded_jpeg(image, quality, mode, **options))

    return kernel


def _check_quality(quality: int) -> None:
    if not 0 <= quality <= 100:
        raise InvalidArgumentError(f"quality must be in [0,100], got {quality}")


def _jpeg_encode_as_good(attrs: Attrs) -> Callable[..., Any]:
    def kernel(image: np.ndarray, quality: Any) -> np.ndarray:
        _check_image(image, (1, 3))
        if np.ndim(quality):
            raise InvalidArgumentError(f"quality must be a scalar, got shape {shapes.show(quality.shape)}")
        _check_quality(int(quality))
        return _text(formats.encoded_jpeg(image, int(quality), subsampling=2))

    return kernel


def _encoded_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 3)
    if len(c.shapes) > 1:
        shapes.with_rank(c.shapes[1], 0)
    return [()]


def _encoded_many_shape(c: Inference) -> Sequence[Shape]:
    shape = c.shapes[0]
    if shape is not None and len(shape) < 3:
        raise ValueError(f"image must be at least 3-dimensional, got {shapes.show(shape)}")
    return [None if shape is None else shape[:-3]]


op(
    "EncodePng",
    "image: T",
    "contents: string",
    {"compression": -1, "T": type_attr(frozenset({uint8, uint16}), uint8)},
    shape=_encoded_many_shape,
    kernel=_png_encode,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_ENCODES,
    sample=lambda rng, dtype: [
        case(x, want=_text(png.encoded(x))) for x in [_some(rng, 3, dtype.numpy if dtype else np.uint8)]
    ],
    doc="Pixels as the contents of a PNG file.",
    differs="The bytes of the file differ; the pixels are equal.",
)
op(
    "EncodeJpeg",
    "image: uint8",
    "contents: string",
    {
        "format": string_attr("", ("", "grayscale", "rgb")),
        "quality": 95,
        "progressive": False,
        "optimize_size": False,
        "chroma_downsampling": True,
        "density_unit": string_attr("in", ("in", "cm")),
        "x_density": 300,
        "y_density": 300,
        "xmp_metadata": "",
    },
    shape=_encoded_shape,
    kernel=_jpeg_encode,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_ENCODES,
    doc="Pixels as the contents of a JPEG file.",
    differs="Pillow encodes: the bytes differ, the pixels nearly agree; densities are per inch.",
)
op(
    "EncodeJpegVariableQuality",
    "images: uint8, quality: int32",
    "contents: string",
    shape=_encoded_shape,
    kernel=_jpeg_encode_as_good,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_ENCODES,
    doc="Pixels as the contents of a JPEG file of a quality from 0 to 100.",
    differs="Pillow encodes: the bytes differ, the pixels nearly agree.",
)


def _shape_kernel(attrs: Attrs) -> Callable[..., Any]:
    wanted = attrs["output_type"].numpy
    return lambda contents: np.array(formats.jpeg_shape(_bytes(contents)), wanted)


op(
    "ExtractJpegShape",
    "contents: string",
    "image_shape: output_type",
    {"output_type": type_attr(frozenset({int32, int64}), int32)},
    shape=lambda c: [(3,)],
    kernel=_shape_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_ENCODES,
    sample=lambda rng, dtype: [
        case(_text(_flat_jpeg()), output_type=dtype, want=np.array([8, 8, 1], dtype.numpy))
        for dtype in (dtypes.int32, dtypes.int64)
    ],
    doc="Height, width and channels of a JPEG image, without decoding it.",
)
