"""Deep Q-learning of CartPole in PyTorch: the environment and the loop in Python."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable

import numpy as np
import torch

from examples.applications.cartpole import LONGEST
from examples.applications.q_learning import (
    BATCH,
    DISCOUNT,
    EXPLORED,
    FOLLOW,
    HIDDEN,
    LEAST_CHANCE,
    MEMORY,
    RATE,
    WARM,
)


def moved(state: np.ndarray, action: int) -> tuple[np.ndarray, bool]:
    x, v, angle, spin = state.tolist()
    sin, cos = math.sin(angle), math.cos(angle)
    push = (20.0 * action - 10.0 + 0.05 * spin * spin * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
    pull = push - 0.05 * turn * cos / 1.1
    x, v, angle, spin = x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn
    return np.array([x, v, angle, spin], np.float32), abs(x) > 2.4 or abs(angle) > 12 * math.pi / 180


def network(rng: np.random.Generator) -> torch.nn.Sequential:
    """The network with the initial weights of the application."""
    layers: list[torch.nn.Module] = []
    for n, m in itertools.pairwise((4, HIDDEN, HIDDEN, 2)):
        layer = torch.nn.Linear(n, m)
        layer.weight.data = torch.tensor((rng.standard_normal((n, m)) * np.sqrt(2 / n)).T.astype(np.float32).copy())
        layer.bias.data.zero_()
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def trainer(seed: int = 0) -> Callable[[int], float]:
    """Makes a function that runs steps and returns the last loss."""
    rng = np.random.default_rng(seed)
    online = network(rng)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), RATE)
    memory = torch.zeros(MEMORY, 10)
    n, now, age = 0, np.zeros(4, np.float32), 0

    def learn() -> float:
        rows = memory[torch.from_numpy(rng.integers(0, min(n + 1, MEMORY), BATCH))]
        states, after, action, goes_on = rows[:, :4], rows[:, 4:8], rows[:, 8:9].long(), rows[:, 9]
        with torch.no_grad():
            best = online(after).argmax(1, keepdim=True)
            wanted = 1.0 + DISCOUNT * goes_on * target(after).gather(1, best)[:, 0]
        loss = torch.nn.functional.mse_loss(online(states).gather(1, action)[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters()):
                slow.lerp_(fast, FOLLOW)
        return loss.item()

    def train(steps: int) -> float:
        nonlocal n, now, age
        loss = 0.0
        for _ in range(steps):
            if rng.random() < max(LEAST_CHANCE, 1 - (1 - LEAST_CHANCE) * n / EXPLORED):
                action = int(rng.integers(2))
            else:
                with torch.no_grad():
                    action = int(online(torch.from_numpy(now)).argmax())
            after, failed = moved(now, action)
            row = np.concatenate([now, after, [action, not failed]]).astype(np.float32)
            memory[n % MEMORY] = torch.from_numpy(row)
            if n >= WARM:
                loss = learn()
            n, now, age = n + 1, after, age + 1
            if failed or age >= LONGEST:
                now, age = rng.uniform(-0.05, 0.05, 4).astype(np.float32), 0
        return loss

    return train
