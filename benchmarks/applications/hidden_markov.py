"""The hidden Markov model of `examples/applications/hidden_markov.py` in PyTorch, learned with Adam."""

from __future__ import annotations

from collections.abc import Callable

import torch

from examples.applications.hidden_markov import LENGTH, SEQUENCES, first_parameters, sampled


def trainer(seed: int = 0) -> Callable[[int], float]:
    symbols = torch.tensor(sampled(seed))
    variables = [torch.tensor(p, requires_grad=True) for p in first_parameters(seed)]
    optimizer = torch.optim.Adam(variables, 0.05)

    def loss() -> torch.Tensor:
        first, transition, emission = (torch.log_softmax(v, -1) for v in variables)
        emitted = emission.T[symbols]
        log_alpha = first + emitted[0]
        for t in range(1, LENGTH):
            log_alpha = torch.logsumexp(log_alpha[:, :, None] + transition, 1) + emitted[t]
        return -torch.logsumexp(log_alpha, 1).sum() / (LENGTH * SEQUENCES)

    def train(steps: int) -> float:
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
        return value.item()

    return train
