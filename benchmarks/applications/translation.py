"""`examples.applications.translation` in PyTorch: same weights, data and optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.applications import translation
from examples.applications.translation import PAD, START, UNITS, WIDTH


class Translator(nn.Module):
    """Encoder, and decoder with attention; the forget gates have the bias 1 of TensorFlow's cells."""

    def __init__(self, w: dict[str, Any]) -> None:
        super().__init__()
        self.read = nn.Embedding.from_pretrained(torch.from_numpy(w["read"]), freeze=False)
        self.written = nn.Embedding.from_pretrained(torch.from_numpy(w["written"]), freeze=False)
        self.encoder = nn.LSTM(WIDTH, UNITS, batch_first=True)
        self.decoder = nn.LSTMCell(WIDTH + UNITS, UNITS)
        self.query = nn.Linear(UNITS, UNITS, bias=False)
        self.out = nn.Linear(2 * UNITS, len(w["out_bias"]))
        with torch.no_grad():
            self.query.weight.copy_(torch.from_numpy(w["query"].T))
            self.out.weight.copy_(torch.from_numpy(w["out"].T))
            self.out.bias.zero_()
            for cell, suffix, name in ((self.encoder, "_l0", "encoder"), (self.decoder, "", "decoder")):
                kernel = torch.from_numpy(w[name].T)
                getattr(cell, f"weight_ih{suffix}").copy_(kernel[:, :-UNITS])
                getattr(cell, f"weight_hh{suffix}").copy_(kernel[:, -UNITS:])
                getattr(cell, f"bias_ih{suffix}").zero_()[UNITS : 2 * UNITS] = 1.0
                getattr(cell, f"bias_hh{suffix}").zero_().requires_grad_(False)  # TensorFlow's cells have one bias

    def forward(self, sources: Tensor, outputs: Tensor) -> Tensor:
        """The mean loss of the tokens of `outputs`."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.read(sources), (sources != PAD).sum(1), batch_first=True, enforce_sorted=False
        )
        packed, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=sources.shape[1])
        h, c = h[0], c[0]
        features = []
        for x in self.written(functional.pad(outputs[:, :-1], (1, 0), value=START)).unbind(1):
            scores = (memory @ self.query(h)[:, :, None])[:, :, 0].masked_fill(sources == PAD, -1e9)
            context = (scores.softmax(1)[:, None] @ memory)[:, 0]
            h, c = self.decoder(torch.cat([x, context], 1), (h, c))
            features.append(torch.cat([h, context], 1))
        logits = self.out(torch.stack(features, 1))
        return functional.cross_entropy(logits.flatten(0, 1), outputs.flatten(), ignore_index=PAD)


def trainer(seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains for some steps and returns the last loss."""
    model, batches = Translator(translation.initial(seed)), translation.batches(seed)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], translation.RATE)

    def train(steps: int) -> float:
        loss = torch.zeros([])
        for _ in range(steps):
            sources, outputs = (torch.from_numpy(x).long() for x in next(batches))
            loss = model(sources, outputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return train
