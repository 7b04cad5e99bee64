"""Random ops in sessions: TensorFlow's numbers, in TensorFlow's order (`tests/resources/test_philox.py` has more)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.opkit import arrays
from headrace.resources.philox import Philox
from tests.ops.running import Program

f32, i32, i64 = dtypes.float32, dtypes.int32, dtypes.int64


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


# Seeds 87654321 and 0, shape [1003], two firings of each op in TensorFlow 2.21: the first three numbers.
RECORDED = {
    "RandomUniform": ([0.100862622, 0.970166802, 0.848764181], [0.98711288, 0.475104213, 0.129084945]),
    "RandomStandardNormal": ([-0.399157614, 2.10443926, 0.171072245], [0.0250918716, -0.159097955, 0.076273039]),
    "TruncatedNormal": ([-0.399157614, 0.171072245, 0.546518147], [0.0250918716, -0.159097955, 0.076273039]),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_numbers(p: Program, name: str) -> None:
    x = p.b.make(name, [[1003]], {"seed": 87654321, "dtype": f32})
    assert x.shape == (1003,)
    for want in RECORDED[name]:
        got = p.run(x)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got[:3], want, 1e-6)


def test_each_op_and_session_has_its_own_state(p: Program) -> None:
    a, b = (p.b.RandomUniform([3], seed=1, seed2=2, dtype=f32) for _ in range(2))
    first, again = p.run([a, b])
    assert first.tolist() == again.tolist()
    assert p.run(a).tolist() != first.tolist()
    p.session.clear_container("")
    assert p.run(a).tolist() != first.tolist()  # clearing variables does not rewind it
    with hr.Session(graph=p.graph) as other:
        assert other.run(a).tolist() == first.tolist()


def test_without_seeds_no_two_sessions_agree(p: Program) -> None:
    x = p.b.RandomUniform([3], dtype=f32)
    with hr.Session(graph=p.graph) as other:
        assert p.run(x).tolist() != other.run(x).tolist()


def test_every_type(p: Program) -> None:
    for name in RECORDED:
        for dtype in sorted(dtypes.FLOATING, key=str):
            x = p.b.make(name, [[2, 3]], {"seed": 1, "dtype": dtype})
            assert p.run(x).dtype == dtype.numpy
            assert p.run(p.b.make(name, [[0, 3]], {"seed": 1, "dtype": dtype})).shape == (0, 3)
            assert p.run(p.b.make(name, [p.b.const([], i64)], {"seed": 1, "dtype": dtype})).shape == ()


def test_integers(p: Program) -> None:
    b = p.b
    for dtype in (i32, i64):
        low, high = b.const(-7, dtype), b.const(100, dtype)
        got = p.run(b.RandomUniformInt([4], low, high, seed=1, seed2=2))
        want = Philox(1, 2).reserve(0).uniform_int(4, -7, 100, dtype)
        assert got.tolist() == want.tolist()
        assert got.dtype == dtype.numpy
    assert p.run(b.RandomUniformInt([0], 5, 5)).shape == (0,)
    for args, match in (
        (([2], 5, 5), "Need minval < maxval, got 5 >= 5"),
        (([2], p.feed(np.int32([5])), 7), r"minval must be 0-D, got shape \[1\]"),
        (([2], 5, p.feed(np.int32([7]))), r"maxval must be 0-D, got shape \[1\]"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(b.RandomUniformInt(*args))


def test_shapes_that_cannot_be(p: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape, match in ((3, "shape must be a vector"), ([[2]], "shape must be a vector"), ([-1], "must be >= 0")):
        with p.fails(InvalidArgumentError, match):
            p.run(p.b.RandomUniform(p.feed(np.int32(shape)), dtype=f32))
    with p.fails(InvalidArgumentError, "more than"):
        p.run(p.b.RandomUniform(p.feed(np.int64([2**31, 2**31, 2**31])), dtype=f32))
    monkeypatch.setattr(arrays, "max_bytes", 1000)
    with p.fails(ResourceExhaustedError, "OOM"):
        p.run(p.b.TruncatedNormal([10000], dtype=f32))


def test_shuffling(p: Program) -> None:
    b = p.b
    rows = b.RandomShuffle(np.arange(8).reshape(4, 2), seed=1, seed2=2)
    assert p.run(rows).tolist() == [[6, 7], [0, 1], [4, 5], [2, 3]]  # TensorFlow's
    text = b.RandomShuffle(np.array([b"a", b"b", b"c", b"d"], object), seed=1, seed2=2)
    assert p.run(text).tolist() == [b"d", b"a", b"c", b"b"]
    assert p.run(b.RandomShuffle(3, seed=1)) == 3
    assert p.run(b.RandomShuffle(np.zeros((0, 3), np.float32), seed=1)).shape == (0, 3)


def test_multinomial(p: Program) -> None:
    b = p.b
    logits = np.log(np.float32([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]]))
    x = b.Multinomial(logits, 5, seed=1, seed2=2)
    assert x.shape == (3, 5)
    assert p.run(x).tolist() == [[1, 2, 1, 1, 3], [2, 0, 0, 1, 0], [0, 2, 2, 1, 3]]  # TensorFlow's
    x = b.Multinomial(logits[:2].astype(np.float64), 3, seed=3, seed2=4, output_dtype=i32)
    assert [p.run(x).tolist(), p.run(x).tolist()] == [[[2, 2, 2], [2, 0, 0]], [[3, 3, 1], [0, 1, 0]]]
    odd = b.Multinomial(np.float64([[np.nan, np.inf, 0, -np.inf]]), 8, seed=3, seed2=4)
    assert p.run(odd).tolist() == [[2] * 8]
    assert p.run(b.Multinomial(logits, 0)).shape == (3, 0)
    for args, match in (
        ((p.feed(np.float32([1])), 3), "logits should be a matrix"),
        ((logits, p.feed(np.int32([3]))), "num_samples should be a scalar"),
        ((logits, p.feed(np.int32(-1))), "num_samples should be non-negative, got -1"),
        ((np.zeros((2, 0), np.float32), 3), "num_classes should be positive"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(b.Multinomial(*args))
