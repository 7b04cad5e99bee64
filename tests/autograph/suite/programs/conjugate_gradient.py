"""Linear systems by iteration: conjugate gradients with restarts, Gauss-Seidel, and least squares."""

import numpy as np


def dot(xp, a, b):
    return xp.sum(a * b)


def conjugate_gradient(xp, apply, right, tolerance, most, restart):
    """Solves `apply(x) = right` for a positive definite operator; returns residuals too."""
    x = right * 0.0
    r = right - apply(x)
    p = r
    energy = dot(xp, r, r)
    residuals = []
    steps = 0
    while steps < most:
        if xp.sqrt(energy) < tolerance:
            break
        product = apply(p)
        size = energy / dot(xp, p, product)
        x = x + size * p
        if (steps + 1) % restart == 0:
            r = right - apply(x)
        else:
            r = r - size * product
        after = dot(xp, r, r)
        p = r + (after / energy) * p
        energy = after
        residuals.append(xp.sqrt(energy))
        steps += 1
    largest = 0.0
    for residual in residuals:
        largest = max(largest, residual)
    return x, steps, largest, len(residuals)


def gauss_seidel(xp, matrix, right, sweeps):
    x = right * 0.0
    change = 1.0
    for sweep in range(sweeps):
        change = 0.0
        for i in range(len(right)):
            rest = right[i] - xp.sum(matrix[i] * x) + matrix[i, i] * x[i]
            after = rest / matrix[i, i]
            change += abs(after - x[i])
            x[i] = after
        if change < 1e-3 and sweep > 2:
            break
    return x, change


def least_squares(xp, design, observed, ridge):
    def normal(w):
        residual = design @ xp.reshape(w, (-1, 1))
        return xp.reshape(xp.transpose(design) @ residual, (-1,)) + ridge * w

    right = xp.reshape(xp.transpose(design) @ xp.reshape(observed, (-1, 1)), (-1,))
    weights, steps, _, _ = conjugate_gradient(xp, normal, right, 1e-10, 2, 50)
    return weights, steps


def program(xp, matrix, right, design, observed, ridge, most):
    by_matrix = lambda v: xp.sum(matrix * v, 1)
    x, steps, largest, count = conjugate_gradient(xp, by_matrix, right, 1e-6, most, 3)
    y, change = gauss_seidel(xp, matrix, right, 6)
    weights, rounds = least_squares(xp, design, observed, ridge)
    return {"x": x, "largest": largest, "y": y, "change": change, "weights": weights, "counts": (steps, count, rounds)}


RNG = np.random.default_rng(11)
SQUARE = RNG.standard_normal((4, 4)) * 0.6
MATRIX = SQUARE @ SQUARE.T + 2 * np.eye(4)
CALLS = (
    (MATRIX, RNG.standard_normal(4), RNG.standard_normal((6, 2)), RNG.standard_normal(6), 0.1, 3),
    (MATRIX + np.eye(4), RNG.standard_normal(4), RNG.standard_normal((6, 2)), RNG.standard_normal(6), 1.0, 2),
    (MATRIX, RNG.standard_normal(4), RNG.standard_normal((6, 2)), RNG.standard_normal(6), 0.5, 0),
)
