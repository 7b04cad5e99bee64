"""A differential equation by Dormand and Prince, with adaptive steps."""

import numpy as np

A2 = 1 / 5
A3 = (3 / 40, 9 / 40)
A4 = (44 / 45, -56 / 15, 32 / 9)
A5 = (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)
A6 = (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)
FIFTH = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def combined(weights, slopes):
    total = 0.0
    for weight, slope in zip(weights, slopes):
        if weight != 0.0:
            total = total + weight * slope
    return total


def stages(f, t, y, h):
    """The six slopes of a step."""
    ks = [f(t, y)]
    ks.append(f(t + h / 5, y + h * A2 * ks[0]))
    ks.append(f(t + 3 * h / 10, y + h * combined(A3, ks)))
    ks.append(f(t + 4 * h / 5, y + h * combined(A4, ks)))
    ks.append(f(t + 8 * h / 9, y + h * combined(A5, ks)))
    ks.append(f(t + h, y + h * combined(A6, ks)))
    return ks


def integrate(xp, f, y, end, tolerance, most):
    t, h = 0.0, 0.1
    kept = refused = 0
    while t < end and kept + refused < most:
        if t + h > end:
            h = end - t
        ks = stages(f, t, y, h)
        after = y + h * combined(FIFTH, ks)
        ks.append(f(t + h, after))
        error = xp.max(xp.abs(h * combined(ERROR, ks))) / tolerance
        if error <= 1.0:
            t, y = t + h, after
            kept += 1
        else:
            refused += 1
        factor = 0.9 * xp.maximum(error, 1e-10) ** -0.2
        if factor > 4.0:
            factor = 4.0
        elif factor < 0.25:
            factor = 0.25
        h = h * factor
    return t, y, kept, refused


def program(xp, start, rates, end, digits):
    tolerance = 10.0**-digits

    def pendulum(t, y):
        angle, speed = y[0], y[1]
        return xp.stack([speed, -rates[0] * xp.sin(angle) - rates[1] * speed + rates[2] * xp.cos(t)])

    t, y, kept, refused = integrate(xp, pendulum, start, end, tolerance, 200)
    energy = 0.5 * y[1] ** 2 - rates[0] * xp.cos(y[0])
    return {"t": t, "y": y, "energy": energy, "steps": (kept, refused)}


CALLS = (
    (np.array([1.0, 0.0]), np.array([9.0, 0.2, 0.5]), 1.5, 4.0),
    (np.array([0.1, 2.0]), np.array([30.0, 0.1, 0.0]), 1.0, 5.0),
    (np.array([0.1, 2.0]), np.array([1.0, 0.1, 3.0]), 0.05, 3.0),
)
