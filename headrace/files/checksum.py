"""CRC32C, the checksum of TensorFlow's files, and its masked form.

A checksum that is stored among bytes that another checksum covers is *masked*: rotated, and shifted by a constant. The
reason is that the CRC of data that contains its own CRC is a weak check.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np

from headrace import thresholds

_DELTA: Final = 0xA282EAD8
_ALL: Final = 0xFFFFFFFF


def crc32c(data: bytes | bytearray | memoryview | np.ndarray, before: int = 0) -> int:
    """The CRC32C of `data`, or of earlier data followed by `data`.

    Args:
      data: The bytes, or a contiguous array of any fixed-size dtype.
      before: The CRC32C of the earlier data.

    Example:
      >>> hex(crc32c(b"123456789"))
      '0xe3069283'
      >>> crc32c(b"6789", before=crc32c(b"12345")) == crc32c(b"123456789")
      True
    """
    import google_crc32c  # a slow import

    if isinstance(data, bytes) and len(data) <= thresholds.CHECKSUM_BYTES:
        return int(google_crc32c.extend(before, data))
    view = as_bytes(data)
    for start in range(0, len(view), thresholds.CHECKSUM_BYTES):
        before = google_crc32c.extend(before, view[start : start + thresholds.CHECKSUM_BYTES])
    return int(before)


def as_bytes(data: bytes | bytearray | memoryview | np.ndarray) -> np.ndarray:
    """The bytes of `data` as a uint8 vector that shares its memory."""
    if isinstance(data, np.ndarray):
        return data.reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def little_endian(x: np.ndarray) -> np.ndarray:
    """`x` in contiguous memory and little-endian byte order, copied only if needed."""
    x = np.ascontiguousarray(x).reshape(x.shape)
    return x.byteswap() if sys.byteorder == "big" else x


def mask(crc: int) -> int:
    """The masked form of a checksum."""
    return (((crc >> 15) | (crc << 17)) + _DELTA) & _ALL


def unmask(masked: int) -> int:
    """The checksum whose masked form is `masked`.

    Example:
      >>> unmask(mask(0x12345678)) == 0x12345678
      True
    """
    rotated = (masked - _DELTA) & _ALL
    return ((rotated >> 17) | (rotated << 15)) & _ALL


def masked_crc32c(data: bytes | bytearray | memoryview | np.ndarray) -> int:
    """The masked CRC32C of `data`, which TFRecord files, event files and checkpoint bundles store.

    Example:
      >>> masked_crc32c(b"") == mask(0)
      True
    """
    return mask(crc32c(data))
