"""A dynamic LSTM on handwritten digits of different widths: `python examples/digits_lstm.py --folder somewhere`.

An image of scikit-learn's digits is read column by column, as one reads; the empty columns at both sides are left off,
so that the sequences have two to eight steps. A thread takes them from Python and puts them into a queue; batches are
made of sequences of about the same length (bucketing), so that little is computed for nothing. The network is trained
in a monitored session: it saves itself every so many steps, writes what TensorBoard shows, and goes on from the last
checkpoint if the folder has one: kill it, start it again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import headrace as hr

BATCH, UNITS, HELD_OUT = 32, 128, 360


def sequences() -> list[tuple[np.ndarray, int, int]]:
    """Loads the columns, [n, 8] float32 in [0, 1], with number and digit, shuffled."""
    found: Any = load_digits()
    out = []
    for k in np.random.default_rng(0).permutation(len(found.target)):
        columns = (found.images[k].T / 16).astype(np.float32)
        inked = np.flatnonzero(columns.max(1))
        columns = columns[inked[0] : inked[-1] + 1]
        out.append((columns, len(columns), int(found.target[k])))
    return out


def padded(some: list[tuple[np.ndarray, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences as one batch: [batch, 8, 8], lengths and digits."""
    columns = np.zeros((len(some), 8, 8), np.float32)
    for row, (mine, n, _) in zip(columns, some):
        row[:n] = mine
    return columns, np.array([n for _, n, _ in some], np.int32), np.array([d for _, _, d in some], np.int32)


class Model:
    """Builds the graph: input queue, network, training step and test."""

    def __init__(self, train: list[tuple[np.ndarray, int, int]], steps: int) -> None:
        with hr.Graph() as self.graph:
            hr.random.set_seed(1)
            self.cell, self.out = hr.layers.LSTMCell(UNITS), hr.layers.Dense(10)
            self.step = hr.train.create_global_step(self.graph)

            # before the training step: operations that are built after it would wait for it
            self.columns = hr.placeholder(hr.float32, (None, 8, 8), name="columns")
            self.lengths = hr.placeholder(hr.int32, (None,), name="lengths")
            self.predicted = hr.argmax(self.logits(self.columns, self.lengths), 1, output_type=hr.int32)

            columns, length, digit = hr.train.feed(
                train, (hr.float32, hr.int32, hr.int32), ((None, 8), (), ()), shuffle=True, seed=1, epochs=None
            )
            lengths, (columns, digits) = hr.train.bucket_by_sequence_length(
                length, [columns, digit], BATCH, bucket_boundaries=[6, 7], dynamic_pad=True
            )
            self.batch = (lengths, columns, digits)
            logits = self.logits(columns, lengths)
            self.loss = hr.reduce_mean(hr.nn.sparse_softmax_cross_entropy_with_logits(digits, logits))
            optimizer = hr.train.Adam(hr.train.CosineDecay(5e-3, steps))
            slopes, variables = zip(*optimizer.compute_gradients(self.loss))
            slopes, norm = hr.clip_by_global_norm(slopes, 1.0)
            self.train = optimizer.apply_gradients(zip(slopes, variables), self.step)
            right = hr.reduce_mean(hr.cast(hr.equal(hr.argmax(logits, 1, output_type=hr.int32), digits), hr.float32))
            shown = [("loss", self.loss), ("accuracy", right), ("gradient", norm)]
            self.summary = hr.summary.merge([hr.summary.scalar(name, value) for name, value in shown])

    def logits(self, columns: Any, lengths: Any) -> Any:
        """Returns the predicted logits after the last column of each sequence."""
        _, state = hr.nn.dynamic_rnn(self.cell, columns, lengths, dtype=hr.float32)
        return self.out(state.h)

    def accuracy(self, session: Any, held: list[tuple[np.ndarray, int, int]]) -> float:
        columns, lengths, digits = padded(held)
        predicted = session.run(self.predicted, {self.columns: columns, self.lengths: lengths})
        return float(np.mean(predicted == digits))


class FlushHook(hr.train.SessionRunHook):
    """Flushes the summaries after each step: the curve of a killed run has no gap."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def after_run(self, run_context: Any, run_values: Any) -> None:
        hr.train.FileWriterCache.get(self._folder).flush()


def hooks(model: Model, folder: str, steps: int) -> Iterator[Any]:
    yield FlushHook(folder)
    yield hr.train.StopAtStepHook(last_step=steps)
    yield hr.train.NanTensorHook(model.loss)
    yield hr.train.ProgressHook(steps, {"loss": model.loss})
    yield hr.train.ProfilerHook(save_steps=steps // 2, output_dir=folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--folder", default="digits_lstm", help="of checkpoints and event files; made if not there")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--save-steps", type=int, default=100)
    options = parser.parse_args()

    data = sequences()
    held, train = data[:HELD_OUT], data[HELD_OUT:]
    model = Model(train, options.steps)
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    with hr.train.MonitoredTrainingSession(
        graph=model.graph,
        checkpoint_dir=options.folder,
        save_checkpoint_steps=options.save_steps,
        scaffold=hr.train.Scaffold(summary_op=model.summary),
        save_summaries_steps=max(options.save_steps // 5, 1),
        hooks=[*hooks(model, options.folder, options.steps)],
    ) as session:
        begun = session.run_step_fn(lambda step_context: step_context.session.run(model.step))
        print(f"from step {begun}", flush=True)
        while not session.should_stop():
            session.run(model.train)
    with hr.Session(graph=model.graph) as session:
        path = hr.train.latest_checkpoint(options.folder)
        assert path is not None
        hr.train.restore(session, path)
        right = model.accuracy(session, held)
        with hr.record(Path(options.folder) / "reading.hrrec"):  # how the trained network reads two digits
            model.accuracy(session, held[:2])
    print(f"{path}: {right:.2%} of {len(held)} held-out digits are right")
    return 0 if right >= 0.97 or options.steps < 1200 else 1


if __name__ == "__main__":
    sys.exit(main())
