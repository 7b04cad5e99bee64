"""Distances between sequences: edits with weights, the longest common subsequence, and dynamic time warping."""

import numpy as np


def edit_distance(xp, a, b, insert, delete, replace):
    """The least cost of the edits that turn `a` into `b`."""
    row = xp.zeros(len(b) + 1)
    for j in range(len(b)):
        row[j + 1] = row[j] + insert
    for i in range(len(a)):
        before = row + 0.0
        row[0] = before[0] + delete
        for j in range(len(b)):
            if a[i] == b[j]:
                row[j + 1] = before[j]
            else:
                best = before[j] + replace
                if before[j + 1] + delete < best:
                    best = before[j + 1] + delete
                if row[j] + insert < best:
                    best = row[j] + insert
                row[j + 1] = best
    return row[-1]


def common_subsequence(xp, a, b):
    """The length of the longest common subsequence, and one of them as positions of `a`."""
    table = xp.izeros(len(a) + 1, len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                table[i + 1, j + 1] = table[i, j] + 1
            else:
                table[i + 1, j + 1] = xp.maximum(table[i, j + 1], table[i + 1, j])
    chosen = xp.izeros(len(a))
    i, j = len(a), len(b)
    while i > 0 and j > 0:
        if a[i - 1] == b[j - 1]:
            chosen[i - 1] = 1
            i -= 1
            j -= 1
        elif table[i - 1, j] >= table[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return table[len(a), len(b)], chosen


def warping(xp, x, y):
    """The cost of the best monotonic alignment of two signals."""
    far = 1e6
    cost = xp.zeros(len(x), len(y))
    for i in range(len(x)):
        for j in range(len(y)):
            here = (x[i] - y[j]) ** 2
            if i == 0 and j == 0:
                cost[i, j] = here
                continue
            up = cost[i - 1, j] if i > 0 else far
            left = cost[i, j - 1] if j > 0 else far
            diagonal = cost[i - 1, j - 1] if i > 0 and j > 0 else far
            cost[i, j] = here + min(up, left, diagonal)
    return cost[-1, -1]


def program(xp, a, b, x, y, weights):
    insert, delete, replace = weights
    length, chosen = common_subsequence(xp, a, b)
    return edit_distance(xp, a, b, insert, delete, replace), length, chosen, warping(xp, x, y)


A, B = np.array([1, 2, 3, 4, 2, 1], np.int32), np.array([2, 4, 3, 1, 1], np.int32)
SIGNAL, OTHER = np.array([0.1, 0.9, 2.1, 1.4]), np.array([0.2, 1.1, 1.3, 2.4, 1.0])
CALLS = (
    (A, B, SIGNAL, OTHER, (1.0, 1.1, 1.3)),
    (B[[0, 1, 1, 2, 0, 4]], A[:5], SIGNAL[::-1].copy(), OTHER * 0.5, (0.5, 0.4, 2.0)),
)
