"""The learned optimizer of `examples/applications/learned_optimizer.py` in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from examples.applications.learned_optimizer import HORIZON, PROBLEMS, RATE, SIZE, UNITS, problems, weights


def trainer(seed: int = 0) -> Callable[[int], float]:
    rng = np.random.default_rng(seed)
    p = {name: torch.tensor(first, requires_grad=True) for name, first in weights(seed).items()}
    optimizer = torch.optim.Adam(p.values(), 3e-3)

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ p[name] + p[f"{name}_bias"]

    def rule(slope: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        g = slope.reshape(-1, 1)
        seen = torch.cat([g, torch.asinh(20 * g) / 5], 1)
        keep, reset = torch.sigmoid(dense(torch.cat([seen, h], 1), "gates")).chunk(2, 1)
        h = keep * h + (1 - keep) * torch.tanh(dense(torch.cat([seen, reset * h], 1), "new"))
        return RATE * dense(h, "out").reshape(PROBLEMS, SIZE), h

    def mean_loss(matrix: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, h = torch.zeros(PROBLEMS, SIZE, requires_grad=True), torch.zeros(PROBLEMS * SIZE, UNITS)
        losses = []
        for _ in range(HORIZON + 1):
            loss = (matrix @ x[:, :, None] - target).square().sum((1, 2)) / SIZE
            losses.append(loss.mean())
            (slope,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
            change, h = rule(slope, h)
            x = x + change
        return torch.stack(losses).mean()

    def train(steps: int) -> float:
        for _ in range(steps):
            loss = mean_loss(*map(torch.tensor, problems(rng)))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
            optimizer.step()
        return loss.item()

    return train
