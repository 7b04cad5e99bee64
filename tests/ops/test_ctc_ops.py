"""CTC losses and decoders: gradients, a search that forgets, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace.dtypes import float64
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from tests.ops.running import Program, check_gradient

LABELS = np.int64([[0, 0], [0, 1], [1, 0], [1, 1]]), np.int32([0, 1, 1, 1])
LENGTHS = np.int32([4, 6])


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def inputs(steps: int = 6, classes: int = 4) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(steps, 2, classes))


def test_gradient(p: Program) -> None:
    x = p.b.Placeholder(dtype=float64, shape=(6, 2, 4))
    loss, gradient = p.b.CTCLoss(x, *LABELS, LENGTHS)
    assert loss.shape == (2,)
    assert gradient.shape == (6, 2, 4)
    check_gradient(p, loss, {x: inputs()}, orders=1)
    with pytest.raises(LookupError, match="no second derivative of CTCLoss"):
        check_gradient(p, loss, {x: inputs()})


def test_sequences_that_are_too_short_count_nothing(p: Program) -> None:
    x = p.b.const(inputs())
    loss, gradient = p.run(list(p.b.CTCLoss(x, *LABELS, np.int32([1, 6]), ignore_longer_outputs_than_inputs=True)))
    assert loss[0] == 0
    assert not gradient[:, 0].any()
    assert gradient[:, 1].any()
    repeated = p.run(p.b.CTCLoss(x, LABELS[0], np.int32([1, 1, 2, 2]), np.int32([2, 6]))[0])
    assert repeated[0] == np.inf  # two equal labels need three steps


def test_narrow_beams(p: Program) -> None:
    """The result is TensorFlow's with 4 of 15 sequences kept.

    One sequence comes back that was dropped.
    """
    x = np.random.RandomState(3).randn(6, 1, 3) * 1.5
    outs = p.run(list(p.b.CTCBeamSearchDecoder(x, np.int32([6]), beam_width=4, top_paths=4, merge_repeated=False)))
    assert [v.tolist() for v in outs[4:8]] == [[0, 1, 0], [0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]]
    np.testing.assert_allclose(outs[-1], [[-2.10734117, -2.23032229, -2.24757318, -2.28859553]], 1e-6)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": np.zeros((2, 4))}, "inputs is not a 3-Tensor"),
        ({"x": np.zeros((6, 0, 4))}, "batch_size must not be 0"),
        ({"x": np.zeros((0, 2, 4))}, "Max time or first dimension of input must not be 0"),
        ({"x": np.zeros((6, 2, 0))}, "num_classes must not be 0"),
        ({"indices": np.int64([0, 1])}, "labels_indices is not a matrix"),
        ({"values": np.int32([1])}, "must contain the same number of rows"),
        ({"indices": np.int64([[1, 0], [0, 0], [0, 1], [1, 1]])}, "is out of order"),
        ({"indices": np.int64([[0, 0], [0, 0], [1, 0], [1, 1]])}, "is repeated"),
        ({"indices": np.int64([[0, 0], [0, 1], [1, 0], [2, 1]])}, "is out of bounds"),
        ({"indices": np.int64([[0, 0], [0, 1], [0, 2], [0, 3]])}, "Labels length is zero in batch 1"),
        ({"values": np.int32([-1, 1, 1, 1])}, "must be nonnegative"),
        ({"values": np.int32([3, 1, 1, 1])}, "following a null label"),
        ({"lengths": np.int32([4])}, r"len\(sequence_length\) != batch_size"),
        ({"lengths": np.int32([4, 7])}, r"sequence_length\(1\) <= 6"),
        ({"lengths": np.int32([-1, 6])}, r"seq_len\(0\) < 0"),
        ({"lengths": np.int32([1, 6])}, r"Not enough time for target transition sequence \(required: 2, available: 1"),
    ],
)
def test_losses_that_cannot_be(p: Program, change: dict[str, Any], match: str) -> None:
    args = {"x": inputs(), "indices": LABELS[0], "values": LABELS[1], "lengths": LENGTHS, **change}
    with p.fails(InvalidArgumentError, match):
        p.run(p.b.CTCLoss(*map(p.feed, args.values()))[0])


@pytest.mark.parametrize("op", ["CTCGreedyDecoder", "CTCBeamSearchDecoder"])
def test_decodings_that_cannot_be(p: Program, op: str) -> None:
    attrs = {"beam_width": 3, "top_paths": 2} if op == "CTCBeamSearchDecoder" else {}
    for x, lengths, error, match in (
        (inputs(), [6, 7], FailedPreconditionError, r"sequence_length\(1\) <= 6"),
        (inputs(), [6], FailedPreconditionError, r"len\(sequence_length\) != batch_size"),
        (inputs(), [[6, 6]], InvalidArgumentError, "sequence_length is not a vector"),
        (inputs()[0], [6, 6], InvalidArgumentError, "inputs is not a 3-Tensor"),
        (inputs()[:0], [0, 0], InvalidArgumentError, "inputs must not be empty"),
    ):
        with p.fails(error, match):
            p.run(list(p.b.make(op, [p.feed(x), p.feed(np.int32(lengths))], attrs)))
    x, lengths = inputs(), np.int32([6, 0])
    if op == "CTCGreedyDecoder":
        with p.fails(InvalidArgumentError, "blank_index expected to be between -4 and 3 but was 4"):
            p.run(list(p.b.CTCGreedyDecoder(x, lengths, blank_index=4)))
        return
    with p.fails(InvalidArgumentError, "Less leaves in the beam search than requested"):
        p.run(list(p.b.CTCBeamSearchDecoder(x, lengths, beam_width=3, top_paths=2)))
    with p.fails(InvalidArgumentError, "requested more paths than the beam width"):
        p.run(list(p.b.CTCBeamSearchDecoder(x, lengths, beam_width=1, top_paths=2)))
