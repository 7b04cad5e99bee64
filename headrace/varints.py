"""Numbers of variable length, as protocol buffers and tables of checkpoints have them.

Each byte has seven bits of the number, the lowest first; its top bit says whether another byte follows.

Source: the encoding of protocol buffers, "Base 128 Varints".
"""

from __future__ import annotations

_LONGEST = 10  # bytes of a number of 64 bits


def encode(n: int) -> bytes:
    """Returns the bytes of a number.

    A negative number is encoded as its 64 bits in two's complement.

    Example:
      >>> encode(300), len(encode(-1))
      (b'\\xac\\x02', 10)
    """
    if n < 0:
        n &= 2**64 - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def decode(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns a number and the place behind it.

    Args:
      data: bytes with the number.
      at: the place of its first byte.
      end: the place at which the bytes end.

    Raises:
      ValueError: the bytes end within the number, or it has more than ten bytes. One of ten bytes may have 70 bits; the
        caller checks that, or cuts them off.

    Example:
      >>> decode(encode(300) + b"rest", 0, 6)
      (300, 2)
    """
    value = shift = 0
    for i in range(at, min(end, at + _LONGEST)):
        byte = data[i]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, i + 1
        shift += 7
    if end - at < _LONGEST:
        raise ValueError("it ends in the middle of a number")
    raise ValueError("a number has more than 64 bits")
