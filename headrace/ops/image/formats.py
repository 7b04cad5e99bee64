"""Untrusted encoded images: their formats, stated sizes and pixels.

Pillow decodes the pixels; it gets one format at a time and never guesses. First this module reads the size and refuses
a size that is too large: a small file may state, and expand to, any number of pixels. Any error that Pillow raises
about a file becomes an InvalidArgumentError. This module and `png` implement the features in which Pillow differs from
TensorFlow: 16 bits and colours in PNG, bitmaps, and libpng's mixture of grey values.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from headrace.errors import (
    HeadraceError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)

MOST_PIXELS: Final = 1 << 26  # of an image, or of all of an animation; below the number from which Pillow warns
_KINDS: Final = ((b"\xff\xd8\xff", "JPEG"), (b"\x89PNG\r\n\x1a\n", "PNG"), (b"GIF8", "GIF"), (b"BM", "BMP"))
_RIFF: Final = re.compile(rb"RIFF....WEBP", re.DOTALL)


def kind_of(data: bytes) -> str:
    """ "JPEG", "PNG", "GIF", "BMP" or "WEBP".

    Raises:
      InvalidArgumentError: it is none of these.
    """
    if not data:
        raise InvalidArgumentError("Input is empty: there is no image in it")
    for start, kind in _KINDS:
        if data.startswith(start):
            return kind
    if _RIFF.match(data):
        return "WEBP"
    raise InvalidArgumentError(
        f"Unknown image file format. One of JPEG, PNG, GIF, BMP, WebP required, got {len(data)} bytes that begin with "
        f"{data[:8]!r}"
    )


def check_pixels(width: int, height: int, kind: str, frames: int = 1) -> None:
    """Raises if a size is not positive or too large.

    Raises:
      InvalidArgumentError: a side is not positive.
      ResourceExhaustedError: there are more than `MOST_PIXELS`.
    """
    if width <= 0 or height <= 0:
        raise InvalidArgumentError(f"a {kind} image of {width} x {height} pixels")
    if width * height * frames > MOST_PIXELS:
        many = f"{frames} frames of " if frames > 1 else ""
        raise ResourceExhaustedError(
            f"a {kind} image of {many}{width} x {height} pixels; at most {MOST_PIXELS} pixels are decoded"
        )


def _damaged(kind: str, why: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"Invalid {kind} data or crop window: {why}")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as e:
        raise UnimplementedError(
            "images are decoded and encoded by Pillow, which is not installed: pip install headrace[train]"
        ) from e
    return Image


def opened(data: bytes, kind: str) -> Any:
    """Pillow's image, of which only the head has been read."""
    return _pillow().open(io.BytesIO(data), formats=[kind])


class asking:
    """Context manager that raises errors of a library as InvalidArgumentError."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, e: BaseException | None, at: object) -> None:
        if isinstance(e, Exception) and not isinstance(e, HeadraceError):
            raise _damaged(self._kind, f"{type(e).__name__}: {e}") from e


# *** JPEG ***

_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def jpeg_shape(data: bytes) -> tuple[int, int, int]:
    """Height, width and channels of a JPEG image, as its frame header says.

    Raises:
      InvalidArgumentError: there is no such header.
    """
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            if marker in _FRAMES:
                if length < 8 or at + 2 + length > len(data):
                    break
                height, width, channels = struct.unpack(">HHB", data[at + 5 : at + 10])
                return height, width, channels
            if marker in (0xD9, 0xDA) or length < 2:
                break
            at += 2 + length
    raise _damaged("JPEG", f"no frame header in its {len(data)} bytes")


def jpeg(data: bytes, channels: int = 0, ratio: int = 1) -> np.ndarray:
    """The pixels of a JPEG image: [height, width, channels], uint8.

    Args:
      data: the file.
      channels: 1 for grey, 3 for RGB, 0 for what it has (CMYK becomes RGB).
      ratio: 1, 2, 4 or 8: by so much it is made smaller while it is decoded.

    Raises:
      InvalidArgumentError: it is damaged or cut off. ResourceExhaustedError: it is too large.
    """
    height, width, own = jpeg_shape(data)
    check_pixels(width, height, "JPEG")
    with asking("JPEG"):
        image = opened(data, "JPEG")
        if (image.height, image.width) != (height, width):
            raise _damaged("JPEG", f"two sizes: {width} x {height} and {image.width} x {image.height}")
        if ratio > 1:
            image.draft(None, (max(1, width // ratio), max(1, height // ratio)))
            if image.size != (-(-width // ratio), -(-height // ratio)):
                raise UnimplementedError(
                    f"a JPEG image of {width} x {height} pixels cannot be made {ratio} times smaller"
                )
        if channels == 1 and own == 3:
            image.draft("L", image.size)
        pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.shape[-1] == 4:
        if channels == 1:
            raise InvalidArgumentError("`channels` cannot be 1 for a JPEG image of four inks (CMYK)")
        inks = 255 - pixels.astype(np.uint32)
        pixels = (inks[..., :3] * inks[..., 3:] // 255).astype(np.uint8)
    return np.ascontiguousarray(with_channels(pixels, channels))


def encoded_jpeg(pixels: np.ndarray, quality: int, mode: str = "", **options: Any) -> bytes:
    """Pixels as a JPEG file.

    Args:
      pixels: [height, width, 1 or 3], uint8.
      quality: 0 to 100.
      mode: "grayscale", "rgb", or "" for what the pixels are.
      options: of Pillow.
    """
    out = io.BytesIO()
    with asking("JPEG"):
        image = _pillow().fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        if mode == "rgb" and image.mode == "L":
            image = image.convert("RGB")
        image.save(out, "JPEG", quality=quality, **options)
    return out.getvalue()


# *** GIF ***


def _gif_frames(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yields the rectangle of each frame of an animation: left, top, width, height."""
    at = 13 + (3 << (data[10] & 7) + 1 if data[10] & 128 else 0)
    while at < len(data) and data[at] != 0x3B:
        if data[at] == 0x2C:
            left, top, width, height, flags = struct.unpack_from("<HHHHB", data, at + 1)
            yield left, top, width, height
            at += 11 + (3 << (flags & 7) + 1 if flags & 128 else 0)
        elif data[at] == 0x21:
            at += 2
        else:
            raise ValueError(f"byte {data[at]:#x} where a block should begin, at {at}")
        while data[at]:
            at += 1 + data[at]
        at += 1


def gif(data: bytes) -> np.ndarray:
    """Decodes the frames of a GIF animation: [frames, height, width, 3], uint8.

    Each frame is drawn over the one before.

    Raises:
      InvalidArgumentError: it is damaged or cut off. ResourceExhaustedError: it is too large.
    """
    with asking("GIF"):
        width, height = struct.unpack_from("<HH", data, 6)
        places = list(_gif_frames(data))
    check_pixels(width, height, "GIF", max(1, len(places)))
    for left, top, w, h in places:
        check_pixels(w, h, "GIF")
        if left + w > width or top + h > height:
            raise _damaged("GIF", f"a frame of {w} x {h} at ({left}, {top}) in {width} x {height} pixels")
    with asking("GIF"):
        image = opened(data, "GIF")
        frames = []
        for i in range(len(places)):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")))
        if not frames:
            raise _damaged("GIF", "it has no frame")
        return np.stack(frames)


# *** WebP ***


def _webp_size(data: bytes) -> tuple[int, int]:
    """The width and height that the first chunk states."""
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError(f"the first chunk is {kind!r}")


def webp(data: bytes, channels: int = 0) -> np.ndarray:
    """Decodes the frames of a WebP image.

    Returns:
      [frames, height, width, 3], or 4 with transparency, uint8.

    Raises:
      InvalidArgumentError: it is damaged or cut off, or has another number of channels. ResourceExhaustedError: it is
        too large.
    """
    if channels == 1:
        raise InvalidArgumentError("WebP only supports 3 or 4 channels")
    with asking("WebP"):
        width, height = _webp_size(data)
    check_pixels(width, height, "WebP")
    with asking("WebP"):
        image = opened(data, "WEBP")
        count, mode = getattr(image, "n_frames", 1), image.mode
        if mode not in ("RGB", "RGBA"):
            raise _damaged("WebP", f"its mode is {mode}")
    check_pixels(width, height, "WebP", count)
    if channels and channels != len(mode):
        raise InvalidArgumentError(
            f"Number of channels requested does not match input: {channels} of a WebP image with {len(mode)}"
        )
    with asking("WebP"):
        frames = []
        for i in range(count):
            image.seek(i)
            frames.append(np.asarray(image.convert(mode)))
        return np.stack(frames)


# *** BMP ***


def bmp(data: bytes, channels: int = 0) -> np.ndarray:
    """Decodes an uncompressed bitmap of 8, 24 or 32 bits: [height, width, channels], uint8.

    Pixels of 8 bits are read as grey values and the palette is ignored, as in TensorFlow.

    Raises:
      InvalidArgumentError: it is damaged, cut off or another kind of bitmap. ResourceExhaustedError: it is too large.
    """
    if len(data) < 32:
        raise _damaged(
            "BMP", f"Incomplete BMP content, requires at least 32 bytes to find the header size, got {len(data)}"
        )
    start, width, height, bits = struct.unpack_from("<i4xii2xh", data, 10)
    if bits not in (8, 24, 32):
        raise _damaged("BMP", f"{bits} bits per pixel; 8, 24 and 32 are read")
    own = bits // 8
    is_upright = height < 0
    height = abs(height)
    check_pixels(width, height, "BMP")
    row = -(-own * width // 4) * 4
    if start < 0 or len(data) - start < row * height:
        raise _damaged(
            "BMP", f"Incomplete BMP content, requires at least {start + row * height} bytes, got {len(data)} bytes"
        )
    rows = np.frombuffer(data, np.uint8, row * height, start).reshape(height, row)
    pixels = rows[:, : own * width].reshape(height, width, own)
    if own > 1:
        pixels = pixels[..., [2, 1, 0, 3][:own]]
    return np.ascontiguousarray(with_channels(pixels if is_upright else pixels[::-1], channels))


# *** Shared by the formats ***


def grey(pixels: np.ndarray) -> np.ndarray:
    """RGB as grey values, in libpng's fixed point."""
    red, green, blue = (pixels[..., i : i + 1].astype(np.int64) for i in range(3))
    half = 1 << 14 if pixels.dtype.itemsize > 1 else 0  # wide values are rounded, others are cut
    mixed = (red * 9797 + green * 19234 + blue * 3737 + half) >> 15
    return np.where((red == green) & (red == blue), red, mixed).astype(pixels.dtype)


def with_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    """Converts pixels to 1, 3 or 4 channels; 0 keeps their number.

    The pixels are grey or RGB, with or without an alpha channel.
    """
    own = pixels.shape[-1]
    if channels in (0, own):
        return pixels
    colours, alpha = (pixels[..., :-1], pixels[..., -1:]) if own in (2, 4) else (pixels, None)
    if channels == 1:
        return colours if own < 3 else grey(colours)
    if own < 3:
        colours = np.repeat(colours, 3, axis=-1)
    if channels == 3:
        return colours
    if alpha is None:
        alpha = np.full_like(pixels[..., :1], np.iinfo(pixels.dtype).max)
    return np.concatenate((colours, alpha), axis=-1)
