"""Batches of examples that are alike."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError
from headrace.train import input
from tests.train.pipelines import taken


def numbers(n: int) -> Any:
    return input.range_input_producer(n, num_epochs=1, shuffle=False).dequeue()


@pytest.mark.parametrize("smaller", [False, True])
def test_a_batch_is_of_one_bucket(smaller: bool) -> None:
    def build() -> Any:
        x = numbers(11)
        which, got = input.bucket({"x": x}, x % 3, [2, 3, 1], 3, allow_smaller_final_batch=smaller)
        assert got["x"].shape == (None,)
        return which, got["x"]

    got = taken(build)
    for i, size in enumerate((2, 3, 1)):
        whole = list(range(i, 11, 3))
        batches = [xs for which, xs in got if which == i]
        assert list(itertools.chain(*batches)) == (whole if smaller else whole[: len(whole) // size * size])
        assert all(len(b) == size for b in batches[:-1])


def test_sequences_of_like_lengths_and_no_padding_beyond() -> None:
    lengths = [3, 6, 7, 8, 2, 6, 9, 3, 5, 7]

    def build() -> Any:
        n = input.input_producer(lengths, num_epochs=1, shuffle=False).dequeue()
        ns, rows = input.bucket_by_sequence_length(n, hr.range(n), 2, [6, 7], dynamic_pad=True)
        assert ns.shape == (2,)
        assert rows.shape == (2, None)
        return ns, rows

    got = taken(build)
    assert sorted(ns for ns, _ in got) == [[3, 2], [3, 5], [6, 6], [7, 8], [9, 7]]
    for ns, rows in got:
        assert [row[:n] for n, row in zip(ns, rows, strict=True)] == [list(range(n)) for n in ns]
        assert {len(row) for row in rows} == {max(ns)}


def test_only_what_is_kept() -> None:
    def build() -> Any:
        x = numbers(9)
        return input.bucket([x], x % 2, 2, 2, keep_input=x > 4)[1]

    assert sorted(taken(build)) == [[5, 7], [6, 8]]


def test_a_bucket_that_there_is_not() -> None:
    with pytest.raises(InvalidArgumentError, match="no such bucket"):
        taken(lambda: input.bucket([numbers(4)], 2, 2, 2)[1])


def test_what_cannot_be_bucketed() -> None:
    with hr.Graph():
        x = hr.constant(1)
        for build, match in (
            (lambda: input.bucket([x], 0, [1, 2], 3), "batch_size has 2 entries, and there are 3 buckets"),
            (lambda: input.bucket([x], 0, 1, 0), "at least one bucket"),
            (lambda: input.bucket([x], 0, 0, 1), "must be positive"),
            (lambda: input.bucket([x], 0, 4, 2, bucket_capacities=[4, 3]), "holds 3 examples cannot make a batch of 4"),
            (lambda: input.bucket_by_sequence_length(x, [x], 1, []), "must not be empty"),
            (lambda: input.bucket_by_sequence_length(x, [x], 1, [3, 2]), "ascending"),
        ):
            with pytest.raises(ValueError, match=match):
                build()
