"""Random numbers by native code are TensorFlow's to the last bit."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from headrace import dtypes, flags, philox_rounds, thresholds
from headrace.resources.philox import Stream
from headrace.targets.native.random_blocks import filled

MANY = 2 * thresholds.NATIVE_RANDOM_BLOCKS + 3
COUNTERS = [0, 7 << 64, (1 << 64) - 5, (1 << 128) - 5, (3 << 96) | 12345, ((1 << 32) - 2) << 32]


@pytest.mark.parametrize("key", [0, 0x0123456789ABCDEF, (1 << 64) - 1])
@pytest.mark.parametrize("counter", COUNTERS)
def test_blocks_are_those_of_numpy(key: int, counter: int) -> None:
    stream = Stream(key, counter)
    offsets = np.arange(0, 3 * MANY, 3, dtype=np.uint64)
    with flags.override(NATIVE="off"):
        expected, at = stream.blocks(MANY), stream.blocks_at(offsets)
    np.testing.assert_array_equal(stream.blocks(MANY), expected)
    np.testing.assert_array_equal(stream.blocks_at(offsets), at)
    single = np.array([stream.skip(k).blocks(1)[0] for k in (0, 1, 5, MANY - 1)])
    np.testing.assert_array_equal(single, expected[[0, 1, 5, MANY - 1]])


@pytest.mark.parametrize("draw", ["uniform", "normal", "truncated_normal"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16])
def test_distributions_are_those_of_numpy(draw: str, dtype: dtypes.DType) -> None:
    stream = Stream(5, 9 << 64)
    with flags.override(NATIVE="off"):
        expected = getattr(stream, draw)(4 * MANY, dtype)
    np.testing.assert_array_equal(getattr(stream, draw)(4 * MANY, dtype), expected)


def test_numpy_computes_blocks_without_native_code() -> None:
    out = np.zeros((3, 4), np.uint32)
    with flags.override(NATIVE="off"):
        assert not filled(1, 2, np.arange(3, dtype=np.uint64), out)
    assert not out.any()
    assert filled(1, 2, np.arange(3, dtype=np.uint64), out)
    assert out.all()


@pytest.mark.parametrize("blocks", [1, 7, 16])
def test_few_blocks_are_native_after_many_draws(blocks: int) -> None:
    stream, native = Stream(3, (1 << 64) - 5), mock.Mock(side_effect=filled)
    with (
        mock.patch.object(philox_rounds, "_fills", [native]),
        mock.patch.object(philox_rounds, "_draws", itertools.count()),
        mock.patch.object(thresholds, "NATIVE_RANDOM_DRAWS", 3),
    ):
        drawn = [stream.blocks(blocks) for _ in range(5)]
    assert native.call_count == 2
    for found in drawn[1:]:
        np.testing.assert_array_equal(found, drawn[0])
