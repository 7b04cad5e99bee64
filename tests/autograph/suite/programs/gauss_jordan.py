"""Linear equations: Gauss and Jordan with pivots, and the factors of Cholesky."""

import numpy as np


def swap_rows(m, i, j):
    upper, lower = m[i] + 0.0, m[j] + 0.0
    m[i] = lower
    m[j] = upper
    return m


def inverse(xp, matrix):
    """The inverse, the determinant and the number of exchanged rows."""
    n = len(matrix)
    m = matrix + 0.0
    out = xp.eye(n)
    determinant = 1.0
    swaps = 0
    for column in range(n):
        pivot = column
        for row in range(column + 1, n):
            if abs(m[row, column]) > abs(m[pivot, column]):
                pivot = row
        if abs(m[pivot, column]) < 1e-12:
            return out * 0.0, 0.0, swaps
        if pivot != column:
            m = swap_rows(m, pivot, column)
            out = swap_rows(out, pivot, column)
            determinant = -determinant
            swaps += 1
        scale = m[column, column]
        determinant = determinant * scale
        m[column] = m[column] / scale
        out[column] = out[column] / scale
        for row in range(n):
            if row != column:
                factor = m[row, column]
                m[row] -= factor * m[column]
                out[row] -= factor * out[column]
    return out, determinant, swaps


def cholesky(xp, matrix):
    """The lower triangular factor of a positive definite matrix, and whether it is one."""
    n = len(matrix)
    factor = xp.zeros(n, n)
    for i in range(n):
        for j in range(i + 1):
            rest = matrix[i, j] - xp.sum(factor[i] * factor[j])
            if i == j:
                if rest <= 0.0:
                    return factor, False
                factor[i, j] = xp.sqrt(rest)
            else:
                factor[i, j] = rest / factor[j, j]
    return factor, True


def solve(xp, factor, right):
    """Solves the equations of a factor of Cholesky, forward and back."""
    n = len(right)
    y = xp.zeros(n)
    for i in range(n):
        y[i] = (right[i] - xp.sum(factor[i] * y)) / factor[i, i]
    x = xp.zeros(n)
    i = n - 1
    while i >= 0:
        x[i] = (y[i] - xp.sum(factor[:, i] * x)) / factor[i, i]
        i -= 1
    return x


def program(xp, matrix, right):
    inverted, determinant, swaps = inverse(xp, matrix)
    square = xp.transpose(matrix) @ matrix + xp.eye(len(matrix))
    factor, is_definite = cholesky(xp, square)
    solution = solve(xp, factor, right)
    return inverted, determinant, swaps, factor, is_definite, solution


CALLS = (
    (np.array([[0.1, 2.0, 1.0], [1.0, 0.5, -1.0], [3.0, -0.2, 0.4]]), np.array([1.0, -2.0, 0.5])),
    (np.array([[4.0, 1.0, 0.3], [1.0, 3.0, 0.2], [0.1, 0.2, 2.0]]), np.array([0.3, 0.1, -1.0])),
)
