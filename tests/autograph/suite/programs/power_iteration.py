"""Eigenvalues of a symmetric matrix: power iteration with deflation, and Jacobi rotations."""

import numpy as np


def norm(xp, v):
    return xp.sqrt(xp.sum(v * v))


def dominant(xp, matrix, start, tolerance, most):
    """The eigenvalue of the largest magnitude with its vector, and the number of products."""
    v = start / norm(xp, start)
    value = 0.0
    count = 0
    for _ in range(most):
        w = xp.sum(matrix * v, 1)
        length = norm(xp, w)
        if length < 1e-12:
            break
        after = w / length
        new_value = xp.sum(after * xp.sum(matrix * after, 1))
        count += 1
        moved = xp.max(xp.abs(after - v))
        v = after
        if xp.abs(new_value - value) < tolerance and moved < 1e-7:
            value = new_value
            break
        value = new_value
    return value, v, count


def deflated(xp, matrix, value, v):
    return matrix - value * xp.reshape(v, (-1, 1)) * v


def jacobi(xp, matrix, sweeps):
    """The eigenvalues by rotations that make one entry 0 at a time."""
    a = matrix + 0.0
    n = len(matrix)
    for _ in range(sweeps):
        for p in range(n - 1):
            for q in range(p + 1, n):
                if xp.abs(a[p, q]) < 1e-13:
                    continue
                theta = (a[q, q] - a[p, p]) / (2.0 * a[p, q])
                sign = 1.0 if theta >= 0.0 else -1.0
                t = sign / (xp.abs(theta) + xp.sqrt(theta * theta + 1.0))
                c = 1.0 / xp.sqrt(t * t + 1.0)
                s = t * c
                rows_p, rows_q = c * a[p] - s * a[q], s * a[p] + c * a[q]
                a[p] = rows_p
                a[q] = rows_q
                columns_p, columns_q = c * a[:, p] - s * a[:, q], s * a[:, p] + c * a[:, q]
                a[:, p] = columns_p
                a[:, q] = columns_q
    return xp.stack([a[k, k] for k in range(n)])


def program(xp, matrix, start, most):
    values, counts = [], []
    rest = matrix
    for _ in range(2):
        value, v, count = dominant(xp, rest, start, 1e-12, most)
        values.append(value)
        counts.append(count)
        rest = deflated(xp, rest, value, v)
    return xp.stack(values), xp.stack(counts), jacobi(xp, matrix, 6)


RNG = np.random.default_rng(1)
SQUARE = RNG.standard_normal((3, 3))
MATRIX = SQUARE @ SQUARE.T + np.diag([4.0, 1.0, 0.2])
CALLS = ((MATRIX, np.array([1.0, 0.5, -0.3]), 300), (MATRIX * 0.5 + np.eye(3), np.array([0.2, 1.0, 0.4]), 5))
