"""The programs in PyTorch: Python's own loops and conditionals, which autograd records as they run.

And PyTorch's own LSTM, `FusedLstm`, which is one operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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


class FusedLstm:
    """`lstm` by `nn.LSTM`, with the loss and its derivatives by w and b.

    `nn.LSTM` has two matrices, each transposed and with the gates in the order i, f, j, o, and two vectors where the
    others have one; the second is zero here, and nothing is differentiated by it.
    """

    def __init__(self, n: int, xs: Any, h: Any, c: Any, w: Any, b: Any) -> None:
        inputs, hidden = np.shape(xs)[2], np.shape(h)[1]
        self._hidden = hidden
        self._lstm = torch.nn.LSTM(inputs, hidden)
        with torch.no_grad():
            self._lstm.weight_ih_l0.copy_(torch.tensor(self._reordered(w[:inputs])).T)
            self._lstm.weight_hh_l0.copy_(torch.tensor(self._reordered(w[inputs:])).T)
            self._lstm.bias_ih_l0.copy_(torch.tensor(self._reordered(b)))
            self._lstm.bias_hh_l0.zero_()
        self._lstm.bias_hh_l0.requires_grad_(False)
        self._by = [self._lstm.weight_ih_l0, self._lstm.weight_hh_l0, self._lstm.bias_ih_l0]
        self._xs, self._state = torch.tensor(xs), (torch.tensor(h)[None], torch.tensor(c)[None])

    def __call__(self) -> list[Any]:
        """The loss and the derivatives as `nn.LSTM` has them."""
        _, (h, _) = self._lstm(self._xs, self._state)
        loss = (h * h).sum()
        return [loss.detach(), *torch.autograd.grad(loss, self._by)]

    def results(self) -> list[Any]:
        """The same as the other systems have them: the loss, and the derivatives by w and b."""
        loss, by_x, by_h, by_b = (v.numpy() for v in self())
        return [loss, self._reordered(np.concatenate([by_x.T, by_h.T])), self._reordered(by_b)]

    def _reordered(self, v: Any) -> Any:
        """From the order i, j, f, o to i, f, j, o, or back."""
        i, j, f, o = np.split(v, 4, -1)
        return np.concatenate([i, f, j, o], -1)
