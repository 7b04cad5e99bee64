"""Projected gradient descent on the simplex, with two projections."""

import numpy as np


def descending(values):
    """A sorted copy, the largest value first."""
    out = values + 0.0
    for i in range(len(out)):
        for j in range(i + 1, len(out)):
            if out[j] > out[i]:
                big, small = out[j], out[i]
                out[i] = big
                out[j] = small
    return out


def project(xp, point):
    """The nearest point with entries that are at least 0 and sum to 1."""
    ordered = descending(point)
    total, threshold = 0.0, 0.0
    for i, value in enumerate(ordered):
        total += value
        candidate = (total - 1.0) / xp.real(i + 1)
        if value - candidate > 0.0:
            threshold = candidate
        else:
            break
    return xp.maximum(point - threshold, 0.0)


def project_by_bisection(xp, point, rounds):
    low, high = xp.min(point) - 1.0, xp.max(point)
    for _ in range(rounds):
        middle = (low + high) / 2.0
        if xp.sum(xp.maximum(point - middle, 0.0)) > 1.0:
            low = middle
        else:
            high = middle
    return xp.maximum(point - (low + high) / 2.0, 0.0)


def descend(xp, matrix, linear, start, rate, most):
    """Minimizes a quadratic function over the simplex."""
    point = project(xp, start)
    steps = 0
    path = []
    while steps < most:
        slope = xp.sum(matrix * point, 1) + linear
        after = project(xp, point - rate * slope)
        moved = xp.max(xp.abs(after - point))
        point = after
        path.append(moved)
        steps += 1
        if moved < 1e-10:
            break
    first = 0.0
    for moved in path:
        if moved > first:
            first = moved
    return point, steps, first


def program(xp, matrix, linear, start, rate, most):
    point, steps, largest = descend(xp, matrix, linear, start, rate, most)
    value = 0.5 * xp.sum(point * xp.sum(matrix * point, 1)) + xp.sum(linear * point)
    near = project_by_bisection(xp, start, 60)
    exact = project(xp, start)
    assert xp.max(xp.abs(near - exact)) < 1e-9, "the two projections differ"
    return point, value, steps, largest, exact


MATRIX = np.array([[3.0, 0.5, 0.2, 0.1], [0.5, 2.0, 0.3, 0.0], [0.2, 0.3, 1.5, 0.4], [0.1, 0.0, 0.4, 1.0]])
CALLS = (
    (MATRIX, np.array([0.1, -0.2, 0.3, 0.0]), np.array([0.9, 0.6, -0.4, 0.3]), 0.3, 200),
    (MATRIX, np.array([-4.0, 1.0, 0.5, 2.0]), np.array([0.2, 0.21, 0.22, 0.23]), 0.1, 4),
)
