"""PNG images: decoding with TensorFlow's numbers of bits and channels, and encoding.

Pillow decodes images with at most 8 bits and grey images. It keeps only 8 of 16 bits in colours, so this module decodes
such images. The file consists of chunks, and the chunks called IDAT form one zlib stream. In this stream each row
begins with a byte that states the prediction of its bytes from the bytes to the left (a), above (b) and above to the
left (c).

Source: the PNG specification (ISO/IEC 15948), chapters 5 and 9.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np

from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ops.image import formats

_START: Final = b"\x89PNG\r\n\x1a\n"
_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_TYPES: Final = {1: 0, 2: 4, 3: 2, 4: 6}


def decoded(data: bytes, channels: int, bits: int) -> np.ndarray:
    """The pixels of a PNG image: [height, width, channels], uint8 or uint16.

    Args:
      data: the file.
      channels: 1 (grey), 3 (RGB) or 4 (RGBA); 0 for what it has.
      bits: 8 or 16 of each channel.

    Raises:
      InvalidArgumentError: it is damaged or cut off. ResourceExhaustedError: it is too large.
    """
    width, height, depth, colour, interlaced = _head(data)
    formats.check_pixels(width, height, "PNG")
    if depth == 16 and colour and (bits == 16 or channels == 1):
        if interlaced:
            raise UnimplementedError("an interlaced PNG image of 16 bits and colours; as uint8 it can be decoded")
        with formats.asking("PNG"):
            pixels = _unfiltered(_packed(data), width, height, _CHANNELS[colour])
    else:
        pixels = _by_pillow(data, channels)
    pixels = formats.with_channels(pixels, channels)
    if bits == 16 and pixels.dtype == np.uint8:
        return pixels.astype(np.uint16) * np.uint16(257)
    if bits == 8 and pixels.dtype == np.uint16:
        return (pixels >> np.uint16(8)).astype(np.uint8)
    return np.ascontiguousarray(pixels)


def _head(data: bytes) -> tuple[int, int, int, int, int]:
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise InvalidArgumentError("Invalid PNG. Failed to initialize decoder: it does not begin with a header")
    width, height, depth, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    if colour not in _CHANNELS or depth not in (1, 2, 4, 8, 16):
        raise InvalidArgumentError(f"Invalid PNG header, colour type {colour} with {depth} bits")
    return width, height, depth, colour, interlaced


def _by_pillow(data: bytes, channels: int) -> np.ndarray:
    with formats.asking("PNG"):
        image = formats.opened(data, "PNG")
        is_grey_alpha = image.mode == "RGBA" and data[25] == 4  # that is how 16 bits come
        if image.mode == "1":
            image = image.convert("L")
        elif image.mode == "P":
            image = image.convert("RGBA" if "transparency" in image.info else "RGB")
        elif image.mode in ("L", "RGB") and channels == 4 and "transparency" in image.info:
            image = image.convert("RGBA")
        pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.dtype == np.int32:
        pixels = pixels.astype(np.uint16)
    return pixels[..., ::3] if is_grey_alpha else pixels


def _packed(data: bytes) -> bytes:
    """The zlib stream."""
    out, at = [], 8
    while at + 12 <= len(data):
        (n,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + n]
        if len(data) < at + 12 + n:
            break
        if zlib.crc32(kind + body) != struct.unpack_from(">I", data, at + 8 + n)[0]:
            raise ValueError(f"the checksum of chunk {kind!r} is wrong")
        if kind == b"IDAT":
            out.append(body)
        elif kind == b"IEND":
            return b"".join(out)
        at += 12 + n
    raise ValueError("it is cut off")


def _unfiltered(packed: bytes, width: int, height: int, channels: int) -> np.ndarray:
    """The pixels of 16 bits in a zlib stream of rows."""
    step, length = 2 * channels, 2 * channels * width
    stream = zlib.decompressobj().decompress(packed, (length + 1) * height)
    if len(stream) < (length + 1) * height:
        raise ValueError(f"{len(stream)} bytes of pixels, {(length + 1) * height} are needed")
    rows = np.frombuffer(stream, np.uint8).reshape(height, length + 1)
    out = np.zeros((height, length), np.uint8)
    above = np.zeros(length, np.uint8)
    for y, row in enumerate(rows):
        out[y] = above = _row(int(row[0]), row[1:], above, step)
    return out.view(">u2").astype(np.uint16).reshape(height, width, channels)


def _row(filter: int, row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    if filter == 0:
        return row
    if filter == 1:
        return np.add.accumulate(row.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)
    if filter == 2:
        return row + above
    if filter not in (3, 4):
        raise ValueError(f"a row has filter {filter}; 0 to 4 are known")
    given, up, out = row.tolist(), above.tolist(), [0] * len(row)
    for i, x in enumerate(given):
        a, b, c = (out[i - step], up[i], up[i - step]) if i >= step else (0, up[i], 0)
        out[i] = (x + ((a + b) // 2 if filter == 3 else _paeth(a, b, c))) & 255
    return np.array(out, np.uint8)


def _paeth(a: int, b: int, c: int) -> int:
    """Element nearest to a + b - c of the three: the Paeth predictor."""
    at_a, at_b, at_c = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    if at_a <= at_b and at_a <= at_c:
        return a
    return b if at_b <= at_c else c


def encoded(pixels: np.ndarray, compression: int = -1) -> bytes:
    """Pixels as a PNG file.

    Args:
      pixels: [height, width, 1 to 4], uint8 or uint16.
      compression: 0 to 9, -1 for what zlib thinks best.
    """
    height, width, channels = pixels.shape
    depth = pixels.dtype.itemsize * 8
    body = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    rows = np.zeros((height, body.shape[1] + 1), np.uint8)
    rows[:, 1:] = body
    if width > 1:  # each byte as its difference from that of the pixel before, which packs better
        step = channels * pixels.dtype.itemsize
        rows[:, 0] = 1
        rows[:, 1 + step :] = body[:, step:] - body[:, :-step]
    head = struct.pack(">IIBBBBB", width, height, depth, _TYPES[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), compression)), (b"IEND", b""))
    return _START + b"".join(
        struct.pack(">I", len(x)) + kind + x + struct.pack(">I", zlib.crc32(kind + x)) for kind, x in parts
    )
