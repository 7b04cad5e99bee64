"""Cellular automata: the game of life, a rule of one dimension, and a flood."""

import numpy as np


def neighbours(board, i, j, n):
    count = 0
    for di in (-1, 0, 1):
        for dj in (-1, 0, 1):
            if di != 0 or dj != 0:
                count += board[(i + di) % n, (j + dj) % n]
    return count


def generation(board, n):
    after = board + 0
    for i in range(n):
        for j in range(n):
            near = neighbours(board, i, j, n)
            if board[i, j] == 1:
                after[i, j] = 1 if 2 <= near <= 3 else 0
            elif near == 3:
                after[i, j] = 1
    return after


def life(xp, board, most):
    """Runs to a still life, to death, or for a number of generations."""
    n = len(board)
    lived = 0
    for _ in range(most):
        after = generation(board, n)
        lived += 1
        if xp.all(after == board):
            return board, lived, 1
        board = after
        if xp.sum(board) == 0:
            return board, lived, 2
    return board, lived, 0


def rule(xp, cells, number, rounds):
    """An elementary automaton: bit b of the number belongs to the neighbourhood b."""
    n = len(cells)
    alive = 0
    for _ in range(rounds):
        after = xp.izeros(n)
        for i in range(n):
            pattern = 4 * cells[i - 1] + 2 * cells[i] + cells[(i + 1) % n]
            after[i] = number // 2**pattern % 2
        cells = after
        alive += xp.sum(cells)
    return cells, alive


def flooded(xp, ground, level):
    """The cells below a level that water from the upper row reaches."""
    n = len(ground)
    wet = xp.izeros(n, n)
    changed = True
    while changed:
        changed = False
        for i in range(n):
            for j in range(n):
                if wet[i, j] == 1 or ground[i, j] >= level:
                    continue
                above = i == 0 or wet[i - 1, j] == 1
                aside = (j > 0 and wet[i, j - 1] == 1) or (j < n - 1 and wet[i, j + 1] == 1)
                below = i < n - 1 and wet[i + 1, j] == 1
                if above or aside or below:
                    wet[i, j] = 1
                    changed = True
    total = 0.0
    for i in range(n):
        for j in range(n):
            if wet[i, j] == 1:
                total += level - ground[i, j]
    return wet, total


def program(xp, board, most, cells, number, ground, level):
    board, lived, end = life(xp, board, most)
    cells, alive = rule(xp, cells, number, 4)
    wet, water = flooded(xp, ground, level)
    return board, (lived, end), cells, alive, wet, water


BLINKER = np.zeros((5, 5), np.int32)
BLINKER[2, 1:4] = 1
BLOCK = np.zeros((5, 5), np.int32)
BLOCK[1:3, 1:3] = 1
BLOCK[2, 3] = 1
LONE = np.eye(5, dtype=np.int32)[::-1] * np.array([1, 0, 0, 0, 1], np.int32)
CELLS = np.array([0, 0, 0, 1, 0, 0, 1], np.int32)
GROUND = np.random.default_rng(2).random((3, 3))
CALLS = (
    (BLINKER, 3, CELLS, 30, GROUND, 0.6),
    (BLOCK, 5, CELLS, 110, GROUND.T.copy(), 0.85),
    (LONE, 5, 1 - CELLS, 90, GROUND, 0.1),
)
