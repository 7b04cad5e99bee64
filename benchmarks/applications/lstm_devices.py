"""The LSTM layers of `examples/applications/lstm_devices.py` in PyTorch, on one device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from examples.applications.lstm_devices import BATCH, LENGTH, RATE, UNITS, kernels, sequences


def cell(x: torch.Tensor, c: torch.Tensor, h: torch.Tensor, kernel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the next state of an LSTM cell."""
    i, j, f, o = (torch.cat([x, h], 1) @ kernel).chunk(4, 1)
    c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(j)
    return c, torch.sigmoid(o) * torch.tanh(c)


def trainer(seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains so many steps and returns the last loss."""
    weights = [torch.from_numpy(kernel).requires_grad_() for kernel in kernels(seed)]
    inputs, targets = map(torch.from_numpy, sequences(seed, LENGTH))
    optimizer = torch.optim.SGD(weights, RATE, momentum=0.9)

    def train(steps: int) -> float:
        loss = torch.zeros(())
        for _ in range(steps):
            states = [(torch.zeros(BATCH, UNITS), torch.zeros(BATCH, UNITS)) for _ in weights]
            x = inputs[0]
            for x in inputs:
                for k, kernel in enumerate(weights):
                    c, h = states[k]
                    states[k] = cell(x, c, h, kernel)
                    x = states[k][1]
            loss = (x - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss)

    return train
