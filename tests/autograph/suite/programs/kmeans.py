"""Clusters by k-means: farthest-first centres, assignment until nothing changes, and the quality of the result."""

import numpy as np


def squared_distance(xp, a, b):
    return xp.sum((a - b) * (a - b))


def first_centres(xp, points, k):
    """Each next centre is the point that is farthest from its nearest centre."""
    centres = xp.zeros(k, 2)
    centres[0] = points[0]
    for c in range(1, k):
        best, best_distance = 0, -1.0
        for i in range(len(points)):
            nearest = squared_distance(xp, points[i], centres[0])
            for j in range(1, c):
                nearest = xp.minimum(nearest, squared_distance(xp, points[i], centres[j]))
            if nearest > best_distance:
                best, best_distance = i, nearest
        centres[c] = points[best]
    return centres


def assign(xp, points, centres, labels):
    """The nearest centre of each point, and whether a label changed."""
    changed = False
    for i in range(len(points)):
        nearest, distance = 0, squared_distance(xp, points[i], centres[0])
        for c in range(1, len(centres)):
            other = squared_distance(xp, points[i], centres[c])
            if other < distance:
                nearest, distance = c, other
        if labels[i] != nearest:
            labels[i] = nearest
            changed = True
    return labels, changed


def update(xp, points, labels, centres):
    for c in range(len(centres)):
        total, count = xp.zeros(2), 0
        for i in range(len(points)):
            if labels[i] == c:
                total += points[i]
                count += 1
        if count > 0:
            centres[c] = total / xp.real(count)
    return centres


def inertia(xp, points, labels, centres):
    total = 0.0
    for point, label in zip(points, labels):
        total += squared_distance(xp, point, centres[label])
    return total


def program(xp, points, most):
    centres = first_centres(xp, points, 3)
    labels = xp.izeros(len(points)) - 1
    rounds = 0
    while rounds < most:
        rounds += 1
        labels, changed = assign(xp, points, centres, labels)
        if not changed:
            break
        centres = update(xp, points, labels, centres)
    return centres, labels, rounds, inertia(xp, points, labels, centres)


RNG = np.random.default_rng(4)
POINTS = RNG.standard_normal((9, 2)) * 0.4 + np.repeat([[0.0, 0.0], [2.0, 1.0], [-1.0, 2.0]], 3, 0)
CALLS = ((POINTS, 10), (POINTS[::-1] * 1.5 + 0.25, 1))
