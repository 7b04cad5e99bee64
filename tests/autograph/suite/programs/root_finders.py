"""Zeros of functions: bisection, secants, false position, and Newton's method in brackets."""

import numpy as np


def bisect(f, low, high, tolerance):
    f_low = f(low)
    rounds = 0
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        value = f(middle)
        rounds += 1
        if value == 0.0:
            return middle, rounds
        if (value > 0.0) == (f_low > 0.0):
            low, f_low = middle, value
        else:
            high = middle
    return 0.5 * (low + high), rounds


def secant(f, x, after, most):
    fx = f(x)
    for k in range(most):
        f_after = f(after)
        if abs(f_after) < 1e-13 or f_after == fx:
            return after, k
        x, after, fx = after, after - f_after * (after - x) / (f_after - fx), f_after
    return after, most


def illinois(f, a, b, most):
    """False position, in which an end that stays counts half."""
    fa, fb = f(a), f(b)
    side = 0
    c = a
    for _ in range(most):
        c = (fa * b - fb * a) / (fa - fb)
        fc = f(c)
        if abs(fc) < 1e-13:
            break
        if fc * fb > 0.0:
            b, fb = c, fc
            if side == -1:
                fa = fa * 0.5
            side = -1
        else:
            a, fa = c, fc
            if side == 1:
                fb = fb * 0.5
            side = 1
    return c


def safe_newton(f, slope, low, high, most):
    """Newton's steps where they stay between the brackets, else bisection."""
    x = 0.5 * (low + high)
    bisections = 0
    for _ in range(most):
        value = f(x)
        if abs(value) < 1e-13:
            break
        if value * f(low) > 0.0:
            low = x
        else:
            high = x
        moved = x - value / slope(x)
        if low < moved < high:
            x = moved
        else:
            x = 0.5 * (low + high)
            bisections += 1
    return x, bisections


def program(xp, coefficients, low, high):
    def f(x):
        total = 0.0
        for c in coefficients:
            total = total * x + c
        return total

    def slope(x):
        total, derivative = 0.0, 0.0
        for c in coefficients:
            derivative = derivative * x + total
            total = total * x + c
        return derivative

    near, rounds = bisect(f, low, high, 1e-4)
    by_secant, steps = secant(f, low, high, 40)
    by_newton, bisections = safe_newton(f, slope, low, high, 60)
    wide, narrow = high - low, xp.abs(near - by_newton) < 1e-3
    return (rounds, steps, bisections), by_secant, illinois(f, low, high, 60), by_newton, wide, narrow


CALLS = (
    (np.array([1.0, 0.0, -2.0, -5.0]), 1.0, 3.0),
    (np.array([0.5, 1.0, 0.3, -1.0]), 0.0, 2.0),
    (np.array([-1.0, 0.2, -3.0, 4.0]), 0.5, 2.5),
)
