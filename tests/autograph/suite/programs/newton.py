"""Newton's method with a backtracking line search."""

import numpy as np


def rosenbrock(p, a, b):
    return (a - p[0]) ** 2 + b * (p[1] - p[0] ** 2) ** 2


def slope(xp, p, a, b):
    inner = p[1] - p[0] ** 2
    return xp.stack([-2.0 * (a - p[0]) - 4.0 * b * p[0] * inner, 2.0 * b * inner])


def curvature(p, a, b):
    """The entries of the Hessian: xx, xy, yy."""
    xx = 2.0 - 4.0 * b * (p[1] - 3.0 * p[0] ** 2)
    return xx, -4.0 * b * p[0], 2.0 * b


def newton_direction(xp, p, g, a, b):
    """Newton's step, and whether it goes downhill."""
    xx, xy, yy = curvature(p, a, b)
    determinant = xx * yy - xy * xy
    if determinant <= 1e-10 or xx <= 0.0:
        return -g, False
    step = xp.stack([-(yy * g[0] - xy * g[1]) / determinant, -(xx * g[1] - xy * g[0]) / determinant])
    return step, True


def line_search(xp, p, g, direction, a, b):
    """Halves the step until the value falls by enough (Armijo)."""
    size = 1.0
    here = rosenbrock(p, a, b)
    fall = xp.sum(g * direction)
    halvings = 0
    while rosenbrock(p + size * direction, a, b) > here + 1e-4 * size * fall:
        size *= 0.5
        halvings += 1
        if halvings >= 30:
            break
    return size, halvings


def program(xp, start, a, b, most):
    p = start
    steps, halved, newton_steps = 0, 0, 0
    for k in range(most):
        g = slope(xp, p, a, b)
        if xp.sqrt(xp.sum(g * g)) < 1e-9:
            break
        direction, is_newton = newton_direction(xp, p, g, a, b)
        if is_newton:
            newton_steps += 1
        size, halvings = line_search(xp, p, g, direction, a, b)
        p = p + size * direction
        halved += halvings
        steps = k + 1
    value = rosenbrock(p, a, b)
    return {"minimum": p, "value": value, "counts": (steps, halved, newton_steps)}


CALLS = (
    (np.array([-1.2, 1.0]), 1.0, 100.0, 60),
    (np.array([2.0, -1.0]), 0.5, 10.0, 40),
    (np.array([0.3, 0.2]), 1.5, 5.0, 3),
)
