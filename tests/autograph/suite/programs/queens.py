"""Backtracking without recursion: the placements of n queens, and the subsets of a sum."""

import numpy as np


def is_safe(columns, row, column):
    """Whether no queen of an earlier row attacks the square."""
    for earlier in range(row):
        other = columns[earlier]
        if other == column or abs(other - column) == row - earlier:
            return False
    return True


def count_queens(xp, n, most):
    """The number of placements, and the first one."""
    columns = xp.izeros(most) - 1
    first = xp.izeros(most) - 1
    found, tried = 0, 0
    row = 0
    while row >= 0:
        column = columns[row] + 1
        while column < n and not is_safe(columns, row, column):
            column += 1
            tried += 1
        if column >= n:
            columns[row] = -1
            row -= 1
            continue
        columns[row] = column
        if row == n - 1:
            found += 1
            if found == 1:
                first = columns + 0
        else:
            row += 1
    return found, first, tried


def subsets(items, target):
    """The number of subsets with this sum, by two stacks."""
    found = 0
    positions, rests = [0], [target]
    while positions:
        position, rest = positions.pop(), rests.pop()
        if rest == 0:
            found += 1
            continue
        if position >= len(items) or rest < 0:
            continue
        positions.append(position + 1)
        rests.append(rest)
        positions.append(position + 1)
        rests.append(rest - items[position])
    return found


def ways(xp, items, target, most):
    """The number of sums of any number of items each, by a table."""
    table = xp.izeros(most)
    table[0] = 1
    for item in items:
        for total in range(item, target + 1):
            table[total] += table[total - item]
    return table[target]


def program(xp, n, items, target):
    found, first, tried = count_queens(xp, n, 6)
    return found, first, tried, subsets(items, target), ways(xp, items, target, 20)


CALLS = (
    (4, np.array([2, 3, 5, 1, 4], np.int32), 7),
    (5, np.array([4, 6, 2, 8, 3], np.int32), 10),
    (2, np.array([7, 7, 7, 7, 7], np.int32), 3),
)
