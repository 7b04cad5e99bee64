"""The LSTM of `examples/applications/swapping.py` in PyTorch, which keeps all values in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.applications.lstm_devices import cell
from examples.applications.swapping import BATCH, LENGTH, RATE, UNITS, kernel, sequences


def trainer(seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains so many steps and returns the last loss."""
    weights = torch.from_numpy(kernel(seed)).requires_grad_()
    inputs, targets = map(torch.from_numpy, sequences(LENGTH, seed))
    optimizer = torch.optim.SGD([weights], RATE)

    def train(steps: int) -> float:
        loss = torch.zeros(())
        for _ in range(steps):
            c = h = torch.zeros(BATCH, UNITS)
            for x in inputs:
                c, h = cell(x, c, h, weights)
            loss = (h - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss)

    return train
