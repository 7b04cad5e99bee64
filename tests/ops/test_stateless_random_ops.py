"""Random ops of seeds and of generators: TensorFlow's own numbers, gradients, errors.

The cases of the records cannot express these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InternalError, InvalidArgumentError, NotFoundError, UnimplementedError
from tests.ops.running import Program, gradients

f32, f64, i32, i64 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64
KEY = (np.uint64([3]), np.uint64([1, 2]))


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def generator(p: Program, state: Any) -> tuple[Any, Any]:
    """A generator's handle, and its state read."""
    value = p.b.const(state)
    handle = p.b.VarHandleOp(dtype=value.dtype, shape=None, shared_name="rng")
    p.run(p.b.AssignVariableOp(handle, value))
    return handle, p.b.ReadVariableOp(handle, dtype=value.dtype)


# *** TensorFlow 2.21's numbers ***


def test_keys_and_counters(p: Program) -> None:
    key, counter, alg = p.run(list(p.b.StatelessRandomGetKeyCounterAlg(np.int64([1, 2]))))
    assert key.tolist() == [10413732777507651514]
    assert counter.tolist() == [0, 17830669156045600267]
    assert alg == 1


def test_numbers_of_keys(p: Program) -> None:
    for alg in (1, 3):
        got = p.run(p.b.StatelessRandomUniformV2([2], *KEY, np.int32(alg), dtype=f32))
        np.testing.assert_array_equal(got, np.float32([0.45901167392730713, 0.5334248542785645]))
    gammas = p.b.RandomGamma([2], np.float32([1, 0.5, 0, -1, np.nan, np.inf]), seed=1, seed2=2)
    want = [[0.5854895, 0.19171634, 0, np.nan, np.nan, np.inf], [1.1293961, 0.0204875, 0, np.nan, np.nan, np.inf]]
    np.testing.assert_allclose(p.run(gammas), want, 1e-6)


def test_orders(p: Program) -> None:
    b = p.b
    keys = np.uint64([9]), np.uint64([4, 5]), np.int32(1)
    assert p.run(b.StatelessShuffle(np.arange(10), *keys)).tolist() == [2, 0, 1, 6, 5, 7, 3, 9, 4, 8]
    seed = np.uint32([1, 2, 3])
    assert p.run(b.RandomIndexShuffle(np.arange(6), seed, np.int64(5))).tolist() == [2, 0, 3, 4, 5, 1]
    assert p.run(b.RandomIndexShuffle(3, np.int64([-1, 2, 3]), 100)) == 66


def test_generators(p: Program) -> None:
    b = p.b
    handle, state = generator(p, np.int64([1, 2, 3]))
    one = np.int64(1)
    got = p.run(b.StatefulUniform(handle, one, [3], dtype=f32))
    np.testing.assert_array_equal(got, np.float32([0.45901167392730713, 0.5334248542785645, 0.9627732038497925]))
    assert p.run(state).tolist() == [769, 2, 3]
    assert p.run(b.RngReadAndSkip(handle, np.int32(1), np.uint64(5))).tolist() == [769, 2, 3]
    p.run(b.RngSkip(handle, one, np.int64(-5)))
    assert p.run(state).tolist() == [769, 2, 3]
    assert p.run(b.StatefulUniformInt(handle, one, [0, 2], 1, 7)).shape == (0, 2)
    p.run(b.StatefulRandomBinomial(handle, one, np.int32([5, 2]), [10.0, 20.0], 0.5))
    assert p.run(state).tolist() == [769 + 204800, 2, 3]
    for name in ("StatefulStandardNormalV2", "StatefulTruncatedNormal"):
        assert p.run(b.make(name, [handle, one, [4]], {"dtype": f64})).dtype == np.float64
    ints = [p.run(b.NonDeterministicInts([4])).tolist() for _ in range(2)]
    assert ints[0] != ints[1]


def test_candidates(p: Program) -> None:
    true = np.int64([[1, 2], [0, 3]])
    common = {"num_true": 2, "num_sampled": 5, "seed": 3, "seed2": 4}
    for name, unique, want in (
        ("UniformCandidateSampler", False, [6, 3, 4, 4, 4]),
        ("UniformCandidateSampler", True, [6, 3, 4, 1, 2]),
        ("LogUniformCandidateSampler", True, [1, 2, 0, 5, 4]),
        ("LearnedUnigramCandidateSampler", False, [1, 3, 4, 5, 0]),
    ):
        outs = p.b.make(name, [true], {**common, "unique": unique, "range_max": 7})
        assert p.run(list(outs))[0].tolist() == want
    weights = {"unigrams": [1.0, 2.0, 3.0, 4.0, 0.0], "unique": False, "range_max": 5}
    drawn, trues, counts = p.run(list(p.b.FixedUnigramCandidateSampler(true, **common, **weights)))
    assert drawn.tolist() == [3, 3, 3, 1, 2]
    np.testing.assert_allclose(trues, [[1, 1.5], [0.5, 2]], 1e-6)
    np.testing.assert_allclose(counts, [2, 2, 2, 1, 1.5], 1e-6)
    assert p.run(p.b.AllCandidateSampler(true, unique=True, **common)[0]).tolist() == [0, 1, 2, 3, 4]


# *** gradients: how numbers move if the value of their distribution function is held ***


def test_gradient_of_gamma_numbers(p: Program) -> None:
    special = pytest.importorskip("scipy.special")
    b = p.b
    alpha = b.const(np.array([0.3, 1.0, 4.0, 60.0]))
    for y in (
        b.RandomGamma([5], alpha, seed=1, seed2=2),
        b.StatelessRandomGammaV2([5, 4], np.int64([1, 2]), alpha),
        b.StatelessRandomGammaV3([5, 4], *KEY, np.int32(1), alpha),
    ):
        (dalpha,) = gradients(b, {y: b.OnesLike(y)}, [alpha])
        x, got = p.run([y, dalpha])
        a = p.run(alpha)
        moved = sum(sign * special.gammaincinv(a + sign * 1e-5, special.gammainc(a, x)) / 2e-5 for sign in (1, -1))
        np.testing.assert_allclose(got, moved.sum(axis=0), 1e-4)


def test_gradient_of_truncated_numbers(p: Program) -> None:
    special = pytest.importorskip("scipy.special")
    b = p.b
    parameters = [b.const(np.array(v)) for v in ([0.0, 1.0], [1.0, 2.0], [-1.0, 1.5], [2.0, 4.0])]
    x = b.StatelessParameterizedTruncatedNormal([6, 2], np.int64([3, 9]), *parameters)
    found = p.run([x, *parameters, *gradients(b, {x: b.OnesLike(x)}, parameters)])
    (drawn, mean, deviation, low, high), got = found[:5], found[5:]

    def number(low: Any, high: Any) -> Any:
        """The number with the same share of the distribution below it, within other bounds."""
        ends = [special.ndtr((e - mean) / deviation) for e in (low, high)]
        return mean + deviation * special.ndtri(ends[0] + share * (ends[1] - ends[0]))

    below = [special.ndtr((e - mean) / deviation) for e in (low, high)]
    share = (special.ndtr((drawn - mean) / deviation) - below[0]) / (below[1] - below[0])
    h = 1e-5
    wants = [
        np.full((6, 2), 1.0),
        (drawn - mean) / deviation,
        (number(low + h, high) - number(low - h, high)) / (2 * h),
        (number(low, high + h) - number(low, high - h)) / (2 * h),
    ]
    for g, want in zip(got, wants, strict=True):
        np.testing.assert_allclose(g, want.sum(axis=0), 1e-5)


def test_gradient_of_a_shuffle(p: Program) -> None:
    b = p.b
    x = b.const(np.arange(5.0))
    y = b.StatelessShuffle(x, *KEY, np.int32(1))
    (dx,) = gradients(b, {y: b.Mul(y, y)}, [x])
    assert p.run(dx).tolist() == [0, 1, 4, 9, 16]


# *** errors ***


def test_seeds_and_keys_that_cannot_be(p: Program) -> None:
    b, key, counter = p.b, *KEY
    shape = [2]
    for seed in ([1, 2, 3], 1):
        with p.fails(InvalidArgumentError, r"seed must have shape \[2\]"):
            p.run(b.StatelessRandomUniform(shape, p.feed(np.int64(seed)), dtype=f32))
    for args, match in (
        ((key, counter, 2), "Unsupported algorithm id: 2"),
        ((key, counter, [1]), r"alg must be of shape \[\]"),
        ((np.uint64([1, 2]), counter, 1), r"key must have shape \[1\]"),
        ((key, counter[:1], 1), "counter must be a vector with at least 2 elements"),
    ):
        with p.fails(InvalidArgumentError, match):
            k, c, a = args
            p.run(b.StatelessRandomUniformV2(shape, p.feed(k), p.feed(c), p.feed(np.int32(a)), dtype=f32))
    with p.fails(InvalidArgumentError, "Need minval < maxval, got 5 >= 5"):
        p.run(b.StatelessRandomUniformInt(shape, np.int64([1, 2]), 5, 5))


@pytest.mark.matrix
def test_parameters_that_cannot_be(p: Program) -> None:
    b, seed = p.b, np.int64([1, 2])
    with p.fails(InvalidArgumentError, "Shape passed in must end with broadcasted shape"):
        p.run(b.StatelessRandomPoisson([3], seed, [1.0, 2.0], dtype=i64))
    for rate, dtype, match in ((np.nan, i64, "NaN"), (1e30, i32, "no number was accepted")):
        with p.fails(InvalidArgumentError, match):
            p.run(b.StatelessRandomPoisson([1], seed, [rate], dtype=dtype))
    with p.fails(InvalidArgumentError, "counts must be finite"):
        p.run(b.StatelessRandomBinomial([1], seed, [np.inf], [0.5]))
    for low, error in ((2.0, InvalidArgumentError), (np.nan, InvalidArgumentError)):
        with p.fails(error, "Invalid parameters"):
            p.run(b.ParameterizedTruncatedNormal([2, 3], 0.0, 1.0, low, 1.0))
    with p.fails(InternalError, "failed to accept a sample"):
        p.run(b.ParameterizedTruncatedNormal([2, 3], np.nan, 1.0, 0.0, 1.0))
    with p.fails(InvalidArgumentError, "rounds must be even"):
        p.run(b.RandomIndexShuffle(1, np.uint32([1, 2, 3]), 5, rounds=5))
    for index, limit, match in ((300, 5, "max_index must be >= index"), (-3, 5, "index must be >= 0")):
        with p.fails(InvalidArgumentError, match):
            p.run(b.RandomIndexShuffle(index, np.uint32([1, 2, 3]), limit))


def test_generators_that_cannot_be(p: Program) -> None:
    b = p.b
    unset = b.VarHandleOp(dtype=i64, shape=None, shared_name="unset")
    with p.fails(NotFoundError, "uninitialized"):
        p.run(b.StatefulUniform(unset, np.int64(1), [3], dtype=f32))
    for state, alg, error, match in (
        (np.int64([1, 2]), 1, InvalidArgumentError, "must be at least 3; got 2"),
        (np.int64([[1, 2, 3]]), 1, InvalidArgumentError, "one and only one dimension"),
        (np.float32([1, 2, 3]), 1, InvalidArgumentError, "must be int64, not float32"),
        (np.int64([1, 2, 3]), 2, UnimplementedError, "ThreeFry"),
        (np.int64([1, 2, 3]), 9, InvalidArgumentError, "Unsupported algorithm id: 9"),
    ):
        other = Program()
        with other.session, other.fails(error, match):
            other.run(other.b.StatefulUniform(generator(other, state)[0], np.int64(alg), [3], dtype=f32))


def test_candidates_that_cannot_be(p: Program) -> None:
    common = {"num_true": 2, "unique": True, "seed": 3}
    for true, n, match in (
        ([[1, 9]], 3, r"out of range \[0, 7\), received 9"),
        ([[1, 2]], 8, "Sampler's range is too small"),
        ([1, 2], 3, "true_classes must be a matrix"),
        ([[1]], 3, "must have num_true columns"),
    ):
        with p.fails(InvalidArgumentError, match):
            outs = p.b.UniformCandidateSampler(p.feed(np.int64(true)), num_sampled=n, range_max=7, **common)
            p.run(outs[0])
    for weights, error, match in (
        ({"unigrams": [1.0]}, InvalidArgumentError, "must be equal to weights size  1"),
        ({}, InvalidArgumentError, "Must provide either"),
        ({"unigrams": [1.0], "vocab_file": "x"}, InvalidArgumentError, "Must only provide one"),
        ({"vocab_file": "/nowhere"}, NotFoundError, "/nowhere"),
    ):
        with p.fails(error, match):
            outs = p.b.FixedUnigramCandidateSampler(np.int64([[0, 1]]), num_sampled=2, range_max=3, **common, **weights)
            p.run(outs[0])
    for true, sampled, match in (
        ([1, 2], [1], "true_candidates must be"),
        ([[1, 2]], [[1]], "sampled_candidates must be"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(p.b.ComputeAccidentalHits(p.feed(np.int64(true)), p.feed(np.int64(sampled)), num_true=2)[0])
