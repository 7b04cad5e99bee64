"""The generative adversarial network of `examples/applications/adversarial.py` in PyTorch, on the same data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from examples.applications.adversarial import BATCH, NOISE, PENALTY, ring, weights


def network(x: torch.Tensor, p: list[torch.Tensor]) -> torch.Tensor:
    for k in (0, 2):
        x = F.leaky_relu(x @ p[k] + p[k + 1], 0.2)
    return x @ p[4] + p[5]


def trainer(seed: int = 0) -> Callable[[int], float]:
    rng = np.random.default_rng(seed)
    generator, discriminator = (
        [torch.tensor(x, requires_grad=True) for x in parts] for parts in weights(seed).values()
    )
    optimizers = [torch.optim.Adam(p, 1e-3, (0.5, 0.999)) for p in (generator, discriminator)]

    def train(steps: int) -> float:
        for _ in range(steps):
            real = torch.tensor(ring(rng), dtype=torch.float32, requires_grad=True)
            noise = torch.tensor(rng.normal(size=(BATCH, NOISE)), dtype=torch.float32)
            of_real, of_made = network(real, discriminator), network(network(noise, generator), discriminator)
            (slope,) = torch.autograd.grad(of_real.sum(), real, create_graph=True)
            told = F.softplus(-of_real).mean() + F.softplus(of_made).mean()
            loss = told + PENALTY / 2 * slope.square().sum(1).mean()
            of_generator = torch.autograd.grad(F.softplus(-of_made).mean(), generator, retain_graph=True)
            of_discriminator = torch.autograd.grad(loss, discriminator)
            for optimizer, p, slopes in zip(optimizers, (generator, discriminator), (of_generator, of_discriminator)):
                for x, g in zip(p, slopes):
                    x.grad = g
                optimizer.step()
        return loss.item()

    return train
