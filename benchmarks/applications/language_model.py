"""`examples.applications.language_model` in PyTorch: same weights, data and optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.applications import language_model
from examples.applications.language_model import CONTEXT, FULL, HEADS, LAYERS, RATE, WARM, WIDTH


def linear(kernel: Any) -> nn.Linear:
    layer = nn.Linear(*kernel.shape, bias=False)
    layer.weight = nn.Parameter(torch.from_numpy(kernel.T.copy()))
    return layer


class Block(nn.Module):
    """Attention and a layer of hidden units, each after a normalization."""

    def __init__(self, w: dict[str, Any], k: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = linear(w[f"qkv{k}"]), linear(w[f"mix{k}"])
        self.hidden = nn.Sequential(linear(w[f"up{k}"]), nn.ReLU(), linear(w[f"down{k}"]))

    def forward(self, x: Tensor, biases: Tensor) -> Tensor:
        batch, time, _ = x.shape
        parts = self.qkv(self.before(x)).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*parts, attn_mask=biases)
        x = x + self.mix(found.transpose(1, 2).reshape(batch, time, WIDTH))
        return x + self.hidden(self.between(x))


class Transformer(nn.Module):
    """Logits of the next characters, with linear biases in the attention."""

    def __init__(self, w: dict[str, Any]) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.from_numpy(w["embedding"]), freeze=False)
        self.blocks = nn.ModuleList(Block(w, k) for k in range(LAYERS))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), linear(w["out"]))
        place = torch.arange(CONTEXT)
        ahead = (place - place[:, None]).float()
        slopes = 2.0 ** (-8 / HEADS * torch.arange(1, HEADS + 1))
        self.register_buffer("biases", (slopes[:, None, None] * ahead).masked_fill(ahead > 0, -1e9))

    def forward(self, read: Tensor) -> Tensor:
        x = self.embedding(read)
        for block in self.blocks:
            x = block(x, self.biases)
        return self.out(x)


def trainer(seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains for some steps and returns the last loss."""
    numbers, _, characters = language_model.text()
    batches = language_model.batches(numbers, seed)
    model = Transformer(language_model.initial(seed, len(characters)))
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min(1.0, (k + 1) / WARM) * (1 + math.cos(math.pi * min(k, FULL) / FULL)) / 2
    )

    def train(steps: int) -> float:
        loss = torch.zeros([])
        for _ in range(steps):
            pieces = torch.from_numpy(next(batches)).long()
            loss = functional.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        return loss.item()

    return train
