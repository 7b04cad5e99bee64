"""The fast Fourier transform of radix 2 in real arithmetic, and a convolution."""

import math

import numpy as np


def reversed_bits(i, bits):
    out = 0
    for _ in range(bits):
        out = out * 2 + i % 2
        i = i // 2
    return out


def transform(xp, real, imaginary, sign):
    """The transform in place: a permutation, then butterflies of doubled sizes."""
    n = len(real)
    bits = 0
    while 2**bits < n:
        bits += 1
    re, im = xp.zeros(n), xp.zeros(n)
    for i in range(n):
        j = reversed_bits(i, bits)
        re[i] = real[j]
        im[i] = imaginary[j]
    size = 2
    while size <= n:
        half = size // 2
        for start in range(0, n, size):
            for k in range(half):
                angle = sign * 2.0 * math.pi * k / size
                c, s = math.cos(angle), math.sin(angle)
                even, odd = start + k, start + k + half
                odd_re = c * re[odd] - s * im[odd]
                odd_im = s * re[odd] + c * im[odd]
                even_re, even_im = re[even] + 0.0, im[even] + 0.0
                re[even] = even_re + odd_re
                im[even] = even_im + odd_im
                re[odd] = even_re - odd_re
                im[odd] = even_im - odd_im
        size *= 2
    return re, im


def convolve(xp, a, b):
    """The cyclic convolution by a product of transforms."""
    n = len(a)
    a_re, a_im = transform(xp, a, a * 0.0, -1.0)
    b_re, b_im = transform(xp, b, b * 0.0, -1.0)
    re, im = transform(xp, a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re, 1.0)
    return re / n, im / n


def strongest(xp, re, im, threshold):
    """The first frequency with the largest power, and the number of those above a threshold."""
    best, most, above = 0, -1.0, 0
    for k, (a, b) in enumerate(zip(re, im)):
        power = a * a + b * b
        if power > threshold:
            above += 1
        if power > most + 1e-9:
            best, most = k, power
    return best, most, above


def program(xp, signal, kernel, threshold):
    re, im = transform(xp, signal, signal * 0.0, -1.0)
    back_re, back_im = transform(xp, re, im, 1.0)
    smoothed, rest = convolve(xp, signal, kernel)
    best, most, above = strongest(xp, re, im, threshold)
    assert xp.max(xp.abs(back_im)) < 1e-9, "the signal is real"
    return back_re / len(signal), smoothed, xp.sum(rest * rest), best, most, above


TIMES = np.arange(8)
SMOOTH = np.array([0.5, 0.25, 0, 0, 0, 0, 0, 0.25])
CALLS = (
    (
        np.sin(TIMES * np.pi / 2) + 0.3 * np.cos(TIMES * np.pi / 4) + 0.1,
        SMOOTH,
        1.0,
    ),
    (np.array([1.0, -2.0, 0.5, 3.0, 0.0, 1.0, 2.0, -1.0]), np.arange(8.0) / 8, 9.5),
)
