"""The neural ODE of `examples/applications/neural_ode.py` in PyTorch, with the same solver."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from examples.applications.neural_ode import DECAY, POINTS, RATE, TIMES, TOLERANCE, pieces, true_path, weights

Velocity = Callable[[torch.Tensor], torch.Tensor]


def advance(f: Velocity, x: torch.Tensor, duration: float, size: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    t, slope = torch.zeros((), dtype=torch.float64), f(x)
    while t < duration - 1e-9:
        h = torch.minimum(size, duration - t)
        k2 = f(x + h / 2 * slope)
        k3 = f(x + h * 3 / 4 * k2)
        new = x + h / 9 * (2 * slope + 3 * k2 + 4 * k3)
        k4 = f(new)
        error = (h / 72 * (-5 * slope + 6 * k2 + 8 * k3 - 9 * k4)).abs().max() / TOLERANCE
        other = h * torch.clamp(0.9 * (error + 1e-9) ** (-1 / 3), 0.2, 5.0)
        if error <= 1.0:
            t, x, slope, size = t + h, new, k4, torch.maximum(size, other)
        else:
            size = other
    return x, size


def trainer(seed: int = 0) -> Callable[[int], float]:
    rng, path = np.random.default_rng(seed), true_path()
    p = [torch.tensor(first, requires_grad=True) for first in weights(seed)]
    optimizer = torch.optim.Adam(p, RATE)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, math.exp(-DECAY))
    interval = float(TIMES[1] - TIMES[0])

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ p[0] + p[1]) @ p[2] + p[3]

    def train(steps: int) -> float:
        for _ in range(steps):
            seen = torch.tensor(pieces(path, rng))
            predicted, size = [seen[0]], torch.tensor(interval, dtype=torch.float64)
            for _ in range(POINTS - 1):
                x, size = advance(f, predicted[-1], interval, size)
                predicted.append(x)
            loss = (torch.stack(predicted) - seen).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        return loss.item()

    return train
