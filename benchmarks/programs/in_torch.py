"""The programs in PyTorch: Python's own loops and conditionals, which autograd records as they run."""

from __future__ import annotations

from typing import Any

import torch


def power(n: int, x: Any) -> Any:
    y = torch.tensor(1.0)
    for _ in range(n):
        y = y * x
    return y


def rnn(n: int, h: Any, w: Any, b: Any) -> Any:
    for _ in range(n):
        h = torch.tanh(h @ w + b)
    return (h * h).sum()


def lstm(n: int, xs: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
    for t in range(n):
        i, j, f, o = torch.chunk(torch.cat([xs[t], h], 1) @ w + b, 4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * torch.tanh(c)
    return (h * h).sum()


def branches(n: int, x: Any, a: Any, b: Any) -> Any:
    for _ in range(n):
        x = x * a if x > 1.0 else x + b
    return x


def nested(n: int, m: int, h: Any, w: Any, b: Any) -> Any:
    for _ in range(n):
        for _ in range(m):
            h = torch.tanh(h @ w)
        h = h + b
    return (h * h).sum()
