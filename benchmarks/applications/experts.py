"""The mixture of experts of `examples/applications/experts.py` in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from examples.applications.experts import RATE, SPARSE, Settings, batches


class Mixture(torch.nn.Module):
    """Sends groups to the experts that a gate chooses."""

    def __init__(self, size: Settings, seed: int) -> None:
        super().__init__()
        random = np.random.default_rng(seed + 1)

        def parameter(*shape: int) -> torch.nn.Parameter:
            first = random.normal(0, shape[0] ** -0.5, shape) if len(shape) > 1 else np.zeros(shape)
            return torch.nn.Parameter(torch.tensor(first, dtype=torch.float32))

        self.size = size
        self.gate = parameter(size.width, size.experts)
        shapes = (size.width, size.hidden), (size.hidden,), (size.hidden, size.width)
        self.experts = torch.nn.ModuleList(
            torch.nn.ParameterList(parameter(*shape) for shape in shapes) for _ in range(size.experts)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the outputs and the balancing loss."""
        logits = x.mean(1) @ self.gate
        highest, chosen = logits.topk(self.size.chosen)
        shares = highest.softmax(1)
        out = torch.zeros_like(x)
        for k, weights in enumerate(self.experts):
            group, rank = torch.where(chosen == k)
            if len(group):
                first, bias, second = weights
                outputs = torch.relu(x[group] @ first + bias) @ second
                out = out.index_add(0, group, shares[group, rank, None, None] * outputs)
        load = torch.nn.functional.one_hot(chosen, self.size.experts).float().mean((0, 1))
        return out, self.size.experts * (load * logits.softmax(1).mean(0)).sum()


def trainer(seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains so many steps and returns the last error."""
    size = SPARSE
    data, net = batches(size, seed), Mixture(size, seed)
    optimizer: Any = torch.optim.Adam(net.parameters(), RATE)

    def train(steps: int) -> float:
        error = torch.zeros(())
        for _ in range(steps):
            _, x, y = next(data)
            out, balance = net(torch.from_numpy(x))
            error = (out - torch.from_numpy(y)).square().mean()
            optimizer.zero_grad()  # the gradients of unused experts are None, so Adam leaves these as they are
            (error + size.balance * balance).backward()
            optimizer.step()
        return float(error)

    return train
