"""Hash functions of byte strings in TensorFlow's ops, for many strings of one length.

* `farm`: Fingerprint64 of FarmHash (Geoff Pike, Google, 2014; the function farmhashna::Hash64), which never changes.
* `farm128`: its Fingerprint128 (farmhashcc::Fingerprint128), two words.
* `murmur`: MurmurHash64A (Austin Appleby) with the seed that TensorFlow has for its older ops.
* `sip`: SipHash-2-4 (Aumasson and Bernstein, 2012), which is unpredictable without the key.

Each takes a matrix of bytes, a string in each row, and returns a vector of unsigned 64-bit numbers. The operations on a
string depend on its length alone, so a step of the function is an array operation over all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Rows: TypeAlias = np.ndarray  # of bytes
Words: TypeAlias = np.ndarray  # of uint64

_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_MASK = 2**64 - 1


def each(f: Callable[[Rows], Words], strings: np.ndarray, words: tuple[int, ...] = ()) -> Words:
    """Applies the hash `f` to each string of an array.

    All strings of one length are hashed in one call.

    Args:
      f: the hash, of rows of bytes.
      strings: the strings.
      words: the shape of the hash of one string; (): it is one number.
    """
    flat = strings.reshape(-1)
    lengths = np.fromiter(map(len, flat), np.int64, flat.size)
    out = np.empty((flat.size, *words), np.uint64)
    for n in np.unique(lengths).tolist():
        at = np.flatnonzero(lengths == n)
        out[at] = f(np.frombuffer(b"".join(flat[at]), np.uint8).reshape(len(at), n))
    return out.reshape((*strings.shape, *words))


def _word(rows: Rows, at: int, size: int = 8) -> Words:
    """The little-endian number that begins at byte `at` of each string."""
    part = np.ascontiguousarray(rows[:, at : at + size])
    return part.view(f"<u{size}").reshape(-1).astype(np.uint64)


def _full(rows: Rows, value: int) -> Words:
    return np.full(len(rows), value & _MASK, np.uint64)


def _turn(x: Words, n: int) -> Words:
    """Rotated to the right by `n` bits."""
    return x >> n | x << (64 - n)


def _mixed(x: Words) -> Words:
    return x ^ x >> 47


# *** FarmHash ***


def _pair(u: Words, v: Words, factor: Any) -> Words:
    return _mixed((v ^ _mixed((u ^ v) * factor)) * factor) * factor


def _up_to_16(rows: Rows, n: int) -> Words:
    factor = _K2 + 2 * n & _MASK
    if n >= 8:
        a, b = _word(rows, 0) + _K2, _word(rows, n - 8)
        return _pair(_turn(b, 37) * factor + a, (_turn(a, 25) + b) * factor, factor)
    if n >= 4:
        return _pair((_word(rows, 0, 4) << 3) + n, _word(rows, n - 4, 4), factor)
    if n:
        first, middle, last = (rows[:, i].astype(np.uint64) for i in (0, n // 2, n - 1))
        return _mixed((first + (middle << 8)) * _K2 ^ ((last << 2) + n) * _K0) * _K2
    return _full(rows, _K2)


def _up_to_64(rows: Rows, n: int) -> Words:
    factor = _K2 + 2 * n & _MASK
    a = _word(rows, 0) * (_K1 if n <= 32 else _K2)
    b, c, d = _word(rows, 8), _word(rows, n - 8) * factor, _word(rows, n - 16) * _K2
    y = _turn(a + b, 43) + _turn(c, 30) + d
    z = _pair(y, a + _turn(b + _K2, 18) + c, factor)
    if n <= 32:
        return z
    e, f = _word(rows, 16) * factor, _word(rows, 24)
    g, h = (y + _word(rows, n - 32)) * factor, (z + _word(rows, n - 24)) * factor
    return _pair(_turn(e + f, 43) + _turn(g, 30) + h, e + _turn(f + a, 18) + g, factor)


def _weak(rows: Rows, at: int, a: Words, b: Words) -> tuple[Words, Words]:
    w, x, y, z = (_word(rows, at + i) for i in (0, 8, 16, 24))
    a = a + w
    total = a + x + y
    return total + z, _turn(b + a + z, 21) + _turn(total, 44) + a


def farm(rows: Rows) -> Words:
    """FarmHash's Fingerprint64."""
    n = rows.shape[1]
    if n <= 16:
        return _up_to_16(rows, n)
    if n <= 64:
        return _up_to_64(rows, n)
    y = _full(rows, 81 * _K1 + 113)
    z = _mixed(y * _K2 + 113) * _K2
    x = _word(rows, 0) + (81 * _K2 & _MASK)
    zero = _full(rows, 0)
    v, w = (zero, zero), (zero, zero)
    last = (n - 1) // 64 * 64
    for at in (*range(0, last, 64), n - 64):
        factor: Any = _K1
        nine = 1
        if at == n - 64 and at + 64 > last:  # the end, which may overlap what has been
            factor, nine = _K1 + ((z & 0xFF) << 1), 9
            w = (w[0] + (n - 1) % 64, w[1])
            v = (v[0] + w[0], v[1])
            w = (w[0] + v[0], w[1])
        x = _turn(x + y + v[0] + _word(rows, at + 8), 37) * factor ^ w[1] * nine
        y = _turn(y + v[1] + _word(rows, at + 48), 42) * factor + v[0] * nine + _word(rows, at + 40)
        z = _turn(z + w[0], 33) * factor
        v = _weak(rows, at, v[1] * factor, x + w[0])
        w = _weak(rows, at + 32, z + w[1], y + _word(rows, at + 16))
        z, x = x, z
    return _pair(_pair(v[0], w[0], factor) + _mixed(y) * _K0 + z, _pair(v[1], w[1], factor) + x, factor)


_PAIR = 0x9DDFEA08EB382D69


def _murmured(rows: Rows, start: int, a: Words, b: Words) -> tuple[Words, Words]:
    """The 128 bits of the bytes from `start` on, less than 128."""
    n = rows.shape[1] - start
    if n <= 16:
        a = _mixed(a * _K1) * _K1
        c = b * _K1 + _up_to_16(rows[:, start:], n)
        d = _mixed(a + (_word(rows, start) if n >= 8 else c))
    else:
        c = _pair(_word(rows, start + n - 8) + _K1, a, _PAIR)
        d = _pair(b + n, c + _word(rows, start + n - 16), _PAIR)
        a = a + d
        for at in range(start, start + n - 16, 16):
            a = (a ^ _mixed(_word(rows, at) * _K1) * _K1) * _K1
            b = b ^ a
            c = (c ^ _mixed(_word(rows, at + 8) * _K1) * _K1) * _K1
            d = d ^ c
    a, b = _pair(a, c, _PAIR), _pair(d, b, _PAIR)
    return a ^ b, _pair(b, a, _PAIR)


def farm128(rows: Rows) -> tuple[Words, Words]:
    """FarmHash's Fingerprint128: the lower and the upper half."""
    n = rows.shape[1]
    if n >= 16:
        start, x, y = 16, _word(rows, 0), _word(rows, 8) + _K0
    else:
        start, x, y = 0, _full(rows, _K0), _full(rows, _K1)
    n -= start
    if n < 128:
        return _murmured(rows, start, x, y)
    z = _full(rows, n * _K1)
    first = _turn(y ^ _K1, 49) * _K1 + _word(rows, start)
    v = first, _turn(first, 42) * _K1 + _word(rows, start + 8)
    w = _turn(y + z, 35) * _K1 + x, _turn(x + _word(rows, start + 88), 53) * _K1
    end = start + n // 128 * 128
    for at in range(start, end, 64):
        x = _turn(x + y + v[0] + _word(rows, at + 8), 37) * _K1 ^ w[1]
        y = _turn(y + v[1] + _word(rows, at + 48), 42) * _K1 + v[0] + _word(rows, at + 40)
        z = _turn(z + w[0], 33) * _K1
        v = _weak(rows, at, v[1] * _K1, x + w[0])
        w = _weak(rows, at + 32, z + w[1], y + _word(rows, at + 16))
        z, x = x, z
    x = x + _turn(v[0] + z, 49) * _K0
    y = y * _K0 + _turn(w[1], 37)
    z = z * _K0 + _turn(w[0], 27)
    w, v = (w[0] * 9, w[1]), (v[0] * _K0, v[1])
    for done in range(32, n % 128 + 32, 32):
        at = start + n - done
        y = _turn(x + y, 42) * _K0 + v[1]
        w = w[0] + _word(rows, at + 16), w[1]
        x = x * _K0 + w[0]
        z = z + w[1] + _word(rows, at)
        w = w[0], w[1] + v[0]
        v = _weak(rows, at, v[0] + z, v[1])
        v = v[0] * _K0, v[1]
    x, y = _pair(x, v[0], _PAIR), _pair(y + z, w[0], _PAIR)
    return _pair(x + v[1], w[1], _PAIR) + y, _pair(x + w[1], y + v[1], _PAIR)


# *** MurmurHash ***

_MURMUR = 0xC6A4A7935BD1E995
_SEED = 0xDECAFCAFFE


def murmur(rows: Rows) -> Words:
    """MurmurHash64A."""
    n = rows.shape[1]
    out = _full(rows, _SEED ^ n * _MURMUR & _MASK)
    whole = n // 8 * 8
    for at in range(0, whole, 8):
        out = (out ^ _mixed(_word(rows, at) * _MURMUR) * _MURMUR) * _MURMUR
    if whole < n:
        out = (out ^ _word(_filled(rows), whole)) * _MURMUR
    return _mixed(_mixed(out) * _MURMUR)


def _filled(rows: Rows) -> Rows:
    """With zeros behind, up to a multiple of 8 bytes."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8)))


# *** SipHash ***


def sip(rows: Rows, key: tuple[int, int]) -> Words:
    """SipHash-2-4 with a key of two 64-bit numbers."""
    n = rows.shape[1]
    keys = (key[0], key[1], key[0], key[1])
    first = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    state = [_full(rows, k ^ f) for k, f in zip((k & _MASK for k in keys), first, strict=True)]
    padded = np.pad(rows, ((0, 0), (0, 8 - n % 8)))
    padded[:, -1] = n % 256
    for at in range(0, n + 1, 8):
        word = _word(padded, at)
        state[3] = state[3] ^ word
        state = _rounds(state, 2)
        state[0] = state[0] ^ word
    state[2] = state[2] ^ 0xFF
    a, b, c, d = _rounds(state, 4)
    return a ^ b ^ c ^ d


def _rounds(state: list[Words], n: int) -> list[Words]:
    a, b, c, d = state
    for _ in range(n):
        a, c = a + b, c + d
        b, d = _turn(b, 51) ^ a, _turn(d, 48) ^ c
        a, c = _turn(a, 32) + d, c + b
        b, d = _turn(b, 47) ^ c, _turn(d, 43) ^ a
        c = _turn(c, 32)
    return [a, b, c, d]
