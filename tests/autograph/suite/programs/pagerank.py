"""Ranks of pages by power iteration, and distances between them by search and by relaxation."""

import numpy as np


def ranks(xp, links, damping, tolerance):
    """The stationary distribution; a page without links leads to every page."""
    n = len(links)
    rank = xp.ones(n) / n
    rounds = 0
    while True:
        lost = 0.0
        after = xp.zeros(n)
        for page in range(n):
            out = xp.sum(links[page])
            if out > 0.05:
                after += rank[page] * links[page] / out
            else:
                lost += rank[page]
        after = (1.0 - damping) / n + damping * (after + lost / n)
        moved = xp.sum(xp.abs(after - rank))
        rank = after
        rounds += 1
        if moved < tolerance or rounds >= 100:
            break
    return rank, rounds


def clicks(xp, links, start):
    """The least number of links to each page by a queue, or -1."""
    n = len(links)
    distance = xp.izeros(n) - 1
    distance[start] = 0
    queue = xp.izeros(n)
    queue[0] = start
    head, tail = 0, 1
    while head < tail:
        page = queue[head]
        head += 1
        for other in range(n):
            if links[page, other] > 0.05 and distance[other] < 0:
                distance[other] = distance[page] + 1
                queue[tail] = other
                tail += 1
    return distance


def cheapest(xp, links, start):
    """The least sum of inverse weights to each page (Bellman and Ford)."""
    n = len(links)
    cost = xp.zeros(n) + 100.0
    cost[start] = 0.0
    for _ in range(n - 1):
        changed = False
        for i in range(n):
            for j in range(n):
                if links[i, j] > 0.05 and cost[i] + 1.0 / links[i, j] < cost[j]:
                    cost[j] = cost[i] + 1.0 / links[i, j]
                    changed = True
        if not changed:
            break
    return cost


def program(xp, links, damping, start):
    rank, rounds = ranks(xp, links, damping, 1e-9)
    order = []
    rest = rank + 0.0
    for _ in range(3):
        best = xp.argmax(rest)
        order.append(best)
        rest[best] = -1.0
    return rank, rounds, xp.stack(order), clicks(xp, links, start), cheapest(xp, links, start)


LINKS = np.array(
    [[0, 1.0, 0.5, 0, 0], [0, 0, 2.0, 0, 0], [1.0, 0, 0, 0.3, 0], [0, 0, 0, 0, 0], [0.7, 0.2, 0, 0, 0]],
)
CALLS = ((LINKS, 0.85, 0), (LINKS[::-1, ::-1].copy(), 0.5, 3), (LINKS.T.copy(), 0.7, 4))
