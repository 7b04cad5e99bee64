"""Scheduling: a heap of priorities, a simulated machine, and a knapsack."""

import numpy as np


class Heap:
    """A heap of numbered jobs, the smallest key first."""

    def __init__(self, xp, room):
        self.keys = xp.zeros(room)
        self.jobs = xp.izeros(room)
        self.size = 0

    def push(self, key, job):
        i = self.size
        self.size += 1
        while i > 0 and self.keys[(i - 1) // 2] > key:
            self.keys[i] = self.keys[(i - 1) // 2]
            self.jobs[i] = self.jobs[(i - 1) // 2]
            i = (i - 1) // 2
        self.keys[i] = key
        self.jobs[i] = job

    def pop(self):
        least, job = self.keys[0], self.jobs[0]
        self.size -= 1
        key, moved = self.keys[self.size], self.jobs[self.size]
        i = 0
        while 2 * i + 1 < self.size:
            child = 2 * i + 1
            if child + 1 < self.size and self.keys[child + 1] < self.keys[child]:
                child += 1
            if self.keys[child] >= key:
                break
            self.keys[i] = self.keys[child]
            self.jobs[i] = self.jobs[child]
            i = child
        self.keys[i] = key
        self.jobs[i] = moved
        return least, job


def simulate(xp, arrivals, durations, weights, slice_length):
    """Runs the waiting job with the shortest rest, in slices."""
    n = len(arrivals)
    rest = durations + 0.0
    ends = xp.zeros(n)
    waiting = Heap(xp, 16)
    now, arrived, done = 0.0, 0, 0
    cost, switches, last = 0.0, 0, -1
    while done < n:
        while arrived < n and arrivals[arrived] <= now:
            waiting.push(rest[arrived], arrived)
            arrived += 1
        if waiting.size == 0:
            now = arrivals[arrived]
            continue
        left, job = waiting.pop()
        if job != last:
            switches += 1
            last = job
        if left > slice_length:
            now = now + slice_length
            rest[job] = left - slice_length
            waiting.push(rest[job], job)
        else:
            now = now + left
            ends[job] = now
            cost += weights[job] * (now - arrivals[job])
            done += 1
    return ends, cost, switches


def knapsack(xp, sizes, gains, room):
    """The largest gain for a room of whole numbers, and the chosen items."""
    n = len(sizes)
    table = xp.zeros(n + 1, room + 1)
    for i in range(n):
        for space in range(room + 1):
            best = table[i, space]
            if sizes[i] <= space and table[i, space - sizes[i]] + gains[i] > best:
                best = table[i, space - sizes[i]] + gains[i]
            table[i + 1, space] = best
    chosen = xp.izeros(n)
    space = room
    for back in range(n):
        i = n - 1 - back
        if table[i + 1, space] != table[i, space]:
            chosen[i] = 1
            space -= sizes[i]
    return table[n, room], chosen


def program(xp, arrivals, durations, weights, slice_length, sizes, room):
    ends, cost, switches = simulate(xp, arrivals, durations, weights, slice_length)
    gain, chosen = knapsack(xp, sizes, weights, room)
    return ends, cost, switches, gain, chosen


CALLS = (
    (np.array([0.1, 0.3, 1.0, 9.0]), np.array([3.1, 1.2, 0.4, 1.0]), np.array([1.0, 2.5, 0.7, 1.1]), 1.0,
     np.array([3, 2, 1, 4], np.int32), 6),
    (np.array([0.05, 0.2, 0.3, 0.4]), np.array([0.7, 0.5, 0.35, 0.2]), np.array([0.4, 0.8, 1.7, 1.0]), 0.45,
     np.array([5, 4, 3, 2], np.int32), 7),
)  # fmt: skip
