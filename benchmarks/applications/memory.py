"""The neural Turing machine of `examples/applications/memory.py` in PyTorch.

The gradients are equal; the losses differ by 1 % after 10 steps, since PyTorch adds the epsilon of Adam elsewhere and
the first gradients are of its size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from examples.applications.memory import (
    BATCH,
    BITS,
    HEADS,
    PARTS,
    RATE,
    SHORT,
    SLOTS,
    UNITS,
    WIDTH,
    sequences,
    weights,
)

Tensors = list[torch.Tensor]


def address(memory: torch.Tensor, before: torch.Tensor, *how: torch.Tensor) -> torch.Tensor:
    key, strength, gate, shift, power = how
    near = torch.einsum("bsw,bw->bs", F.normalize(memory, dim=2), F.normalize(key, dim=1))
    content = torch.softmax(F.softplus(strength) * near, 1)
    mixed = before + torch.sigmoid(gate) * (content - before)
    back, stay, on = torch.softmax(shift, 1).split(1, 1)
    moved = back * mixed.roll(-1, 1) + stay * mixed + on * mixed.roll(1, 1)
    sharp = (moved + 1e-6) ** (1.0 + F.softplus(power))
    return sharp / sharp.sum(1, keepdim=True)


def operate(
    memory: torch.Tensor, positions: Tensors, parameters: torch.Tensor
) -> tuple[torch.Tensor, Tensors, Tensors]:
    after, read = [], []
    for k in range(HEADS):
        *how, erase, add = parameters[:, k].split(PARTS, 1)
        after.append(address(memory, positions[k], *how))
        slots = after[k][:, :, None]
        if k == 0:
            kept = memory * (1.0 - slots * torch.sigmoid(erase)[:, None])
            memory = kept + slots * torch.tanh(add)[:, None]
        read.append((slots * memory).sum(1))
    return memory, after, read


def loss_of(inputs: torch.Tensor, answers: torch.Tensor, length: int, p: dict[str, torch.Tensor]) -> torch.Tensor:
    c, h = torch.zeros(BATCH, UNITS), torch.zeros(BATCH, UNITS)
    memory = torch.full((BATCH, SLOTS, WIDTH), 0.01)
    positions = [F.one_hot(torch.zeros(BATCH, dtype=torch.int64), SLOTS).float()] * HEADS
    read, loss = [torch.zeros(BATCH, WIDTH)] * HEADS, torch.tensor(0.0)
    for t in range(2 * length):
        z = torch.cat([inputs[t], *read, h], 1) @ p["lstm"] + p["lstm_bias"]
        i, j, f, o = z.chunk(4, 1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * torch.tanh(c)
        parameters = (h @ p["heads"] + p["heads_bias"]).view(BATCH, HEADS, sum(PARTS))
        memory, positions, read = operate(memory, positions, parameters)
        if t >= length:
            logits = torch.cat(read, 1) @ p["out"] + p["out_bias"]
            loss = loss + F.binary_cross_entropy_with_logits(logits, answers[t], reduction="sum")
    return loss / (BATCH * BITS * length)


def trainer(seed: int = 0) -> Callable[[int], float]:
    rng = np.random.default_rng(seed)
    p = {name: torch.tensor(first, requires_grad=True) for name, first in weights(seed).items()}
    optimizer = torch.optim.Adam(p.values(), RATE)

    def train(steps: int) -> float:
        for length in rng.integers(1, SHORT + 1, steps):
            inputs, answers = map(torch.tensor, sequences(rng, int(length)))
            loss = loss_of(inputs, answers, int(length), p)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
            optimizer.step()
        return loss.item()

    return train
