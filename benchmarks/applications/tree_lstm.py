"""The TreeLSTM of `examples/applications/tree_lstm.py` in PyTorch: a Python function that calls itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from examples.applications.tree_lstm import UNITS, Tree, batch, value, weights


class TreeLSTM(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.p = nn.ParameterDict({name: nn.Parameter(torch.tensor(first)) for name, first in weights(seed).items()})

    def encode(self, tree: Tree) -> torch.Tensor:
        if isinstance(tree, int):
            return self.p["leaves"][tree]
        operator, left, right = tree
        (h1, c1), (h2, c2) = self.encode(left).chunk(2), self.encode(right).chunk(2)
        z = torch.cat([h1, h2]) @ self.p["kernels"][operator] + self.p["biases"][operator]
        keep1, keep2, write, show, new = z.chunk(5)
        c = torch.sigmoid(keep1 + 1) * c1 + torch.sigmoid(keep2 + 1) * c2 + torch.sigmoid(write) * torch.tanh(new)
        return torch.cat([torch.sigmoid(show) * torch.tanh(c), c])

    def forward(self, trees: list[Tree]) -> torch.Tensor:
        return torch.stack([self.encode(tree) for tree in trees])[:, :UNITS] @ self.p["out"]


def trainer(seed: int = 0) -> Callable[[int], float]:
    rng, network = np.random.default_rng(seed), TreeLSTM(seed)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)

    def train(steps: int) -> float:
        for _ in range(steps):
            trees = batch(rng)
            loss = nn.functional.cross_entropy(network(trees), torch.tensor([value(tree) for tree in trees]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return train
