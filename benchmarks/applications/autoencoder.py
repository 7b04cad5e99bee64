"""The variational autoencoder of `examples/applications/autoencoder.py` in PyTorch, with the same noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from examples.applications.autoencoder import batch, images, weights


def trainer(seed: int = 0) -> Callable[[int], float]:
    rng, train_images = np.random.default_rng(seed), images()[0]
    p = {name: torch.tensor(first, requires_grad=True) for name, first in weights(seed).items()}
    optimizer = torch.optim.Adam(p.values(), 1e-3)

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ p[name] + p[f"{name}_bias"]

    def negative_bound(x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, log_deviation = dense(torch.relu(dense(x, "encoder")), "code").chunk(2, 1)
        code = mean + log_deviation.exp() * noise
        logits = dense(torch.relu(dense(code, "decoder")), "out")
        errors = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        divergence = 0.5 * (mean**2 + (2 * log_deviation).exp() - 2 * log_deviation - 1).sum(1)
        return (errors + divergence).mean()

    def train(steps: int) -> float:
        for _ in range(steps):
            loss = negative_bound(*map(torch.tensor, batch(rng, train_images)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return train
