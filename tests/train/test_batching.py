"""Batches."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.train import input
from tests.train.pipelines import taken


def numbers(n: int = 7) -> Any:
    return input.range_input_producer(n, num_epochs=1, shuffle=False).dequeue()


def test_batches_in_order() -> None:
    assert taken(lambda: input.batch([numbers()], 3)) == [[0, 1, 2], [3, 4, 5]]
    assert taken(lambda: input.batch(numbers(), 3, allow_smaller_final_batch=True)) == [[0, 1, 2], [3, 4, 5], [6]]


def test_batches_look_like_what_they_are_made_of() -> None:
    def build() -> Any:
        x = numbers(4)
        got = input.batch({"b": x, "a": hr.stack([x, -x])}, 2)
        assert {k: t.shape for k, t in got.items()} == {"b": (2,), "a": (2, 2)}
        return got

    assert taken(build) == [{"b": [0, 1], "a": [[0, 0], [1, -1]]}, {"b": [2, 3], "a": [[2, -2], [3, -3]]}]


def test_several_at_a_time() -> None:
    assert taken(lambda: input.batch([hr.stack([numbers(3), 7])], 2, enqueue_many=True)) == [[0, 7], [1, 7], [2, 7]]


def test_examples_are_filled_up() -> None:
    got = taken(lambda: input.batch([hr.range(numbers(4))], 2, dynamic_pad=True))
    assert got == [[[0], [0]], [[0, 1, 0], [0, 1, 2]]]


def test_only_what_is_kept() -> None:
    def some() -> Any:
        x = numbers(8)
        return input.maybe_batch([x], hr.equal(x % 3, 0), 2)

    assert taken(some) == [[0, 3]]

    def rows() -> Any:
        x = numbers(3)
        return input.maybe_batch([hr.stack([x, x + 10])], [False, True], 3, enqueue_many=True)

    assert taken(rows) == [[10, 11, 12]]


def test_several_sources() -> None:
    (got,) = taken(lambda: input.batch_join([[numbers(4)], [numbers(4) + 10]], 8))
    assert sorted(got) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert [x for x in got if x < 10] == [0, 1, 2, 3]


@pytest.mark.parametrize("join", [False, True])
def test_shuffled_batches(join: bool) -> None:
    def run(seed: int) -> list[list[int]]:
        def build() -> Any:
            if join:
                return input.shuffle_batch_join([[numbers(40)]], 8, 20, 10, seed=seed)
            return input.shuffle_batch([numbers(40)], 8, 20, 10, seed=seed)

        return taken(build)

    got = run(3)
    assert sorted(x for b in got for x in b) == list(range(40))
    assert got != sorted(got)
    assert all(max(b) < 8 * i + 20 for i, b in enumerate(got, 1))
    kept = taken(lambda: (lambda x: input.maybe_shuffle_batch([x], 2, 4, 1, x > 3))(numbers(8)))
    assert sorted(x for b in kept for x in b) == [4, 5, 6, 7]


def test_prefetching_keeps_structure_and_order() -> None:
    def build() -> Any:
        x = numbers(3)
        got = input.prefetch({"x": x, "y": (hr.range(x), [x * 2])}, 2)
        assert got["y"][0].shape == (None,)
        return got

    want = [{"x": i, "y": [list(range(i)), [2 * i]]} for i in range(3)]
    assert taken(build) == want


def test_what_cannot_be_batched() -> None:
    with hr.Graph():
        x = hr.constant(1)
        for build, error, match in (
            (lambda: input.batch([], 2), ValueError, "at least one tensor"),
            (lambda: input.batch_join([], 2), ValueError, "at least one set"),
            (lambda: input.batch([hr.placeholder(hr.int32)], 2), ValueError, "rank"),
            (lambda: input.shuffle_batch([x], 2, 4, 4), ValueError, "capacity 4 must be bigger"),
            (lambda: input.batch_join([[x], [1.0]], 2), TypeError, "int32 vs. float32"),
            (lambda: input.batch_join([{"a": x}, {"b": x}], 2), ValueError, "same keys"),
            (lambda: input.maybe_batch([x], [True], 2), ValueError, "cannot be a vector"),
            (lambda: input.maybe_batch([x], [[True]], 2), ValueError, "0 or 1 dimensions"),
            (lambda: input.batch([x], 2, enqueue_many=True), ValueError, "first dimension"),
        ):
            with pytest.raises(error, match=match):
                build()
