"""Simulation with a hand-written random generator: an option's price, a walk, samples."""

import numpy as np


class Generator:
    """A linear congruential generator of small numbers."""

    def __init__(self, xp, seed):
        self.xp = xp
        self.state = seed % 65537
        self.drawn = 0

    def uniform(self):
        self.state = (self.state * 75 + 74) % 65537
        self.drawn += 1
        return self.xp.real(self.state) / 65537.0

    def normal(self):
        """Nearly normal: the centred sum of 12 uniform numbers."""
        total = -6.0
        for _ in range(12):
            total += self.uniform()
        return total


def option(xp, random, price, strike, rate, volatility, paths, steps):
    """The price of a call that ends at a barrier, and the mean square."""
    total, squares, lost = 0.0, 0.0, 0
    for _ in range(paths):
        now = price
        for _ in range(steps):
            drift = (rate - 0.5 * volatility**2) / steps
            now = now * xp.exp(drift + volatility * random.normal() / steps**0.5)
            if now > 1.8 * price:
                lost += 1
                now = 0.0 * now
                break
        gain = now - strike if now > strike else 0.0
        total += gain
        squares += gain * gain
    mean = xp.exp(-rate) * total / paths
    return mean, squares / paths, lost


def walk(random, start, low, high, most):
    """The steps of a random walk to either barrier."""
    at, steps = start, 0
    while low < at < high and steps < most:
        u = random.uniform()
        if u < 0.45:
            at -= 1
        elif u < 0.9:
            at += 1
        steps += 1
    return at, steps


def inside(random, points):
    """Four times the share of random points in a quarter of a circle."""
    hits = 0
    for _ in range(points):
        x, y = random.uniform(), random.uniform()
        if x * x + y * y <= 1.0:
            hits += 1
    return hits


def sampled(xp, random, shares, draws):
    counts = xp.izeros(len(shares))
    for _ in range(draws):
        u, k = random.uniform() * xp.sum(shares), 0
        while k < len(shares) - 1 and u > shares[k]:
            u -= shares[k]
            k += 1
        counts[k] += 1
    return counts


def program(xp, seed, price, strike, volatility, shares):
    random = Generator(xp, seed)
    value, squares, lost = option(xp, random, price, strike, 0.05, volatility, 6, 3)
    at, steps = walk(random, 2, 0, 5, 50)
    hits = inside(random, 20)
    counts = sampled(xp, random, shares, 15)
    return {"value": value, "squares": squares, "counts": (lost, at, steps, hits, random.drawn), "sampled": counts}


CALLS = tuple((seed, 1.0, 0.9, v, np.array([0.2, 0.5, 0.3])) for seed, v in ((7, 0.3), (1234, 0.6), (65000, 0.2)))
