"""The programs in PyTorch: Python's own loops and conditionals, which autograd records as they run.

And PyTorch's own LSTM, `FusedLstm`, which is one operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.programs import Program
from benchmarks.programs.training import RATE, STEPS, split


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


def _reordered(v: Any) -> Any:
    """From the order i, j, f, o to i, f, j, o, or back."""
    i, j, f, o = np.split(v, 4, -1)
    return np.concatenate([i, f, j, o], -1)


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
            self._lstm.weight_ih_l0.copy_(torch.tensor(_reordered(w[:inputs])).T)
            self._lstm.weight_hh_l0.copy_(torch.tensor(_reordered(w[inputs:])).T)
            self._lstm.bias_ih_l0.copy_(torch.tensor(_reordered(b)))
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
        """The loss and the derivatives by w and b, in the other systems' layout."""
        loss, by_x, by_h, by_b = (v.numpy() for v in self())
        return [loss, _reordered(np.concatenate([by_x.T, by_h.T])), _reordered(by_b)]


class Convnet:
    """`convnet`, with the derivatives. The images have their channels first, as PyTorch's programs have them."""

    def __init__(self, batch: int, layers: int, images: Any, labels: Any, w: Any, b: Any, **weights: Any) -> None:
        self._layers = layers
        self._images = torch.tensor(images.transpose(0, 3, 1, 2).copy())
        self._labels = torch.tensor(labels).long()
        turned = (v.transpose(3, 2, 0, 1).copy() if v.ndim == 4 else v for v in (*weights.values(), w, b))
        self._by = [torch.tensor(v).requires_grad_() for v in turned]

    def __call__(self) -> list[Any]:
        """The loss, and the derivatives as PyTorch has them."""
        x = self._images
        for k in range(self._layers):
            x = functional.relu(functional.conv2d(x, self._by[2 * k], self._by[2 * k + 1], padding=1))
            x = functional.max_pool2d(x, 2)
        x = x.permute(0, 2, 3, 1).flatten(1)  # the order in which the others have it
        loss = functional.cross_entropy(x @ self._by[-2] + self._by[-1], self._labels)
        return [loss.detach(), *torch.autograd.grad(loss, self._by)]

    def results(self) -> list[Any]:
        """The same as the other systems have them."""
        values = (v.numpy() for v in self())
        return [v.transpose(2, 3, 1, 0) if v.ndim == 4 else v for v in values]


# program → how its gradient is computed
GRADIENTS: dict[str, Callable[..., Any]] = {"lstm": FusedLstm, "convnet": Convnet}


class Training:
    """A network that learns; see `programs.training`. `results` are of a run of its own."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._data, self._loss, self._optimizer = self._begun()

    def _begun(self) -> tuple[Any, Callable[..., Any], Any]:
        data, values = split(self._program)
        tensors = {k: torch.tensor(v).long() if v.dtype == np.int32 else torch.tensor(v) for k, v in data.items()}
        loss, weights = NETWORKS[self._program.function](values, **self._program.sizes)
        return tensors, loss, torch.optim.Adam(weights, RATE)

    def step(self) -> Any:
        """Makes a step and returns the loss, a tensor."""
        self._optimizer.zero_grad()
        value = self._loss(**self._data)
        value.backward()
        self._optimizer.step()
        return value.detach()

    def __call__(self) -> list[Any]:
        return [self.step().numpy()]

    def results(self) -> list[Any]:
        new = Training(self._program)
        return [[float(new.step()) for _ in range(STEPS)]]


def _digits_lstm(values: list[Any], units: int) -> tuple[Callable[..., Any], list[Any]]:
    """`nn.LSTM` over packed sequences; its bias includes the forget bias 1 of TensorFlow's cell."""
    kernel, bias, w, b = values
    net, out = torch.nn.LSTM(8, units, batch_first=True), torch.nn.Linear(units, 10)
    bias = bias.copy()
    bias[2 * units : 3 * units] += 1
    with torch.no_grad():
        net.weight_ih_l0.copy_(torch.tensor(_reordered(kernel[:8])).T)
        net.weight_hh_l0.copy_(torch.tensor(_reordered(kernel[8:])).T)
        net.bias_ih_l0.copy_(torch.tensor(_reordered(bias)))
        net.bias_hh_l0.zero_()
        out.weight.copy_(torch.tensor(w).T)
        out.bias.copy_(torch.tensor(b))
    net.bias_hh_l0.requires_grad_(False)

    def loss(columns: Any, lengths: Any, labels: Any) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(columns, lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = net(packed)
        return functional.cross_entropy(out(h[0]), labels)

    return loss, [net.weight_ih_l0, net.weight_hh_l0, net.bias_ih_l0, out.weight, out.bias]


def _digits_vgg(values: list[Any], first: int, second: int, dense: int) -> tuple[Callable[..., Any], list[Any]]:
    convs, (w0, b0, w1, b1) = values[:8], values[8:]
    weights = [torch.tensor(v.transpose(3, 2, 0, 1) if v.ndim == 4 else v).requires_grad_() for v in convs]
    rest = [torch.tensor(v).requires_grad_() for v in (w0, b0, w1, b1)]

    def loss(images: Any, labels: Any) -> Any:
        x = images.permute(0, 3, 1, 2)
        for k in range(4):
            x = functional.relu(functional.conv2d(x, weights[2 * k], weights[2 * k + 1], padding=1))
            x = functional.max_pool2d(x, 2) if k % 2 else x
        x = x.permute(0, 2, 3, 1).flatten(1)  # the order in which the others have it
        x = functional.relu(x @ rest[0] + rest[1])
        return functional.cross_entropy(x @ rest[2] + rest[3], labels)

    return loss, weights + rest


NETWORKS = {"digits_lstm": _digits_lstm, "digits_vgg": _digits_vgg}
