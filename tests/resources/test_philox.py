"""`resources.philox` against known answers: the generator's published vectors, and numbers TensorFlow 2.21 drew."""

import threading

import numpy as np
import pytest

from headrace import dtypes
from headrace.resources.philox import Draws, Philox, Stream, within

N = 1003  # numbers a firing: not a multiple of a group

# Distribution, dtype, seed and seed2; then the first three numbers and the last one of the first firing, and the first
# two of the second.
FLOATS = """
uniform float16 87654321 0
    0.266601562 0.606445312 0.076171875 0.530273438 0.428710938 0.0537109375
uniform float16 -5 1099511627779
    0.22265625 0.194335938 0.436523438 0.0703125 0.487304688 0.797851562
uniform bfloat16 87654321 0
    0.1328125 0.8515625 0.609375 0.2421875 0.4296875 0.4296875
uniform bfloat16 -5 1099511627779
    0.78125 0.5546875 0.4921875 0.5625 0.8984375 0.3828125
uniform float32 87654321 0
    0.100862622 0.970166802 0.848764181 0.164859653 0.98711288 0.475104213
uniform float32 -5 1099511627779
    0.908108234 0.234398723 0.903007388 0.192025185 0.519102454 0.230077863
uniform float64 87654321 0
    0.806901302133 0.790113726721 0.388185157957 0.4797027927 0.896903633094 0.0326798697822
uniform float64 -5 1099511627779
    0.264866296639 0.224059733524 0.0322228314873 0.109426312535 0.152819786649 0.12544753432
normal float16 87654321 0
    -0.399169922 2.10351562 0.171020508 0.0229034424 0.0250854492 -0.159057617
normal float16 -5 1099511627779
    0.437011719 0.04296875 0.0578613281 -1.36230469 1.13574219 0.142944336
normal bfloat16 87654321 0
    -0.3984375 2.109375 0.170898438 0.0229492188 0.0251464844 -0.159179688
normal bfloat16 -5 1099511627779
    0.4375 0.04296875 0.0578613281 -1.359375 1.1328125 0.142578125
normal float32 87654321 0
    -0.399157614 2.10443926 0.171072245 0.0229054671 0.0250918716 -0.159097955
normal float32 -5 1099511627779
    0.43696326 0.0429713801 0.0578499921 -1.36255622 1.13616407 0.142966226
normal float64 87654321 0
    -0.634366647874 0.163360940336 -1.37480215131 0.994487491997 0.0951146098014 0.456691275687
normal float64 -5 1099511627779
    1.60844597373 0.264502915289 -1.88015400485 -1.30906426599 1.37443090069 1.36672291739
truncated_normal float16 87654321 0
    -0.399169922 0.171020508 0.546386719 -0.260986328 0.0250854492 -0.159057617
truncated_normal float16 -5 1099511627779
    0.437011719 0.04296875 0.0578613281 0.662109375 1.13574219 0.142944336
truncated_normal bfloat16 87654321 0
    -0.3984375 0.170898438 0.546875 -0.26171875 0.0251464844 -0.159179688
truncated_normal bfloat16 -5 1099511627779
    0.4375 0.04296875 0.0578613281 0.66015625 1.1328125 0.142578125
truncated_normal float32 87654321 0
    -0.399157614 0.171072245 0.546518147 -0.261041015 0.0250918716 -0.159097955
truncated_normal float32 -5 1099511627779
    0.43696326 0.0429713801 0.0578499921 0.661945045 1.13616407 0.142966226
truncated_normal float64 87654321 0
    -0.634366647874 0.163360940336 -0.853035967444 -0.111024556386 0.0951146098014 0.456691275687
truncated_normal float64 -5 1099511627779
    1.60844597373 0.264502915289 -0.658014919401 0.329843202013 1.37443090069 1.36672291739
"""

# Dtype, low and high, with seeds 1 and 2; then the first two numbers and the last one, and the first two of the second.
INTS = """
int32 -7 100
    75 -2 41 29 99
int32 -2147483648 2147483647
    1731462351 216909267 889121937 2136173220 988337424
int64 -9223372036854775808 9223372036854775807
    931618211843278031 -8499702220021360842 3859703926915475601 4244876917776542372 -6235138536780716206
int64 5 1099511627776
    910163225005 950248492588 299062655666 73064380114 589327335685
"""

# Two firings of RandomShuffle on range(50), with seeds 1 and 2.
SHUFFLES = """
49 32 8 3 37 21 31 19 0 9 24 34 44 17 36 43 48 7 45 2 18 25 5 39 4 16 41 23 1 30 33 29 6 27 47 42 13 38 35 46
14 28 26 15 40 12 10 22 11 20

23 30 5 7 39 48 28 41 33 29 40 1 11 20 36 13 37 45 32 17 6 4 14 15 25 49 22 43 27 21 0 18 3 31 35 2 38 34 12 9
16 8 10 19 46 24 26 42 47 44
"""


def cases(text):
    lines = text.strip().splitlines()
    return [(*head.split(), numbers.split()) for head, numbers in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.parametrize(("kind", "name", "seed", "seed2", "want"), cases(FLOATS))
def test_floats_are_tensorflows(kind, name, seed, seed2, want):
    dtype = dtypes.as_dtype(name)
    # uniform numbers are exact; normal ones may differ in the last bit of a function's value
    rtol = {"float32": 3e-7, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(name, 1e-11)
    if kind == "uniform" and dtype is not dtypes.float64:
        rtol = 0
    state = Philox(int(seed), int(seed2))
    first, second = (getattr(state.reserve_numbers(N), kind)(N, dtype) for _ in range(2))
    assert first.dtype == dtype.numpy
    assert first.shape == (N,)
    got = np.concatenate([first[:3], first[-1:], second[:2]])
    np.testing.assert_allclose(got.astype(float), np.array(want, float).astype(dtype.numpy).astype(float), rtol)


@pytest.mark.parametrize(("name", "low", "high", "want"), cases(INTS))
def test_integers_are_tensorflows(name, low, high, want):
    dtype = dtypes.as_dtype(name)
    state = Philox(1, 2)
    first, second = (state.reserve_numbers(N).uniform_int(N, int(low), int(high), dtype) for _ in range(2))
    assert first.dtype == dtype.numpy
    assert [*first[:2].tolist(), first[-1], *second[:2].tolist()] == [int(x) for x in want]


def test_permutations_are_tensorflows():
    state = Philox(1, 2)
    for want in SHUFFLES.strip().split("\n\n"):
        assert state.reserve(-(-49 // 4)).permutation(50).tolist() == [int(x) for x in want.split()]


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [  # of the generator's authors (Random123, kat_vectors: philox4x32 10)
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_blocks(counter, key, want):
    stream = Stream(sum(k << 32 * i for i, k in enumerate(key)), sum(c << 32 * i for i, c in enumerate(counter)))
    for n in (1, 100):  # computed one by one, and in numpy
        assert tuple(stream.blocks(n)[0].tolist()) == want


@pytest.mark.parametrize("counter", [0, 2**32 - 3, 2**64 - 3, 2**96 - 3, 2**128 - 3])
def test_counters_carry(counter):
    stream = Stream(12345678901234567890, counter)
    many = stream.blocks(20)
    for i in range(20):
        assert np.array_equal(stream.skip(i).blocks(1)[0], many[i])
    assert np.array_equal(stream.blocks_at(np.arange(20, dtype=np.uint64)[::-1]), many[::-1])


def test_long_streams_are_computed_in_pieces():
    stream = Stream(1, 2)
    assert np.array_equal(stream.blocks(20000)[15000:15010], stream.skip(15000).blocks(10))


def test_small_and_empty_draws():
    stream = Philox(3, 4).reserve(0)
    for name in ("float16", "bfloat16", "float32", "float64"):
        dtype = dtypes.as_dtype(name)
        for draw in (stream.uniform, stream.normal, stream.truncated_normal):
            five = draw(5, dtype)
            for n in range(5):
                assert np.array_equal(draw(n, dtype), five[:n])
    assert stream.permutation(0).tolist() == []
    assert stream.permutation(1).tolist() == [0]


def test_distributions_have_their_shape():
    stream = Philox(5, 6).reserve(0)
    n = 40000
    u = stream.uniform(n, dtypes.float32)
    assert 0 <= u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01
    z = stream.normal(n, dtypes.float64)
    assert abs(z.mean()) < 0.02
    assert abs(z.std() - 1) < 0.02
    t = stream.truncated_normal(n, dtypes.float32)
    assert np.abs(t).max() < 2
    assert abs(t.std() - 0.88) < 0.01


def test_no_seed_means_another_stream_each_time():
    assert Philox(0, 0).reserve(1).words(4).tolist() != Philox(0, 0).reserve(1).words(4).tolist()
    assert Philox(0, 1).reserve(1).words(4).tolist() == Philox(0, 1).reserve(1).words(4).tolist()


def test_reservations_do_not_overlap():
    state = Philox(1, 2)
    got = []

    def work():
        got.extend(state.reserve(10).counter for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == [(2 << 64) + 10 * i for i in range(400)]


# *** Firings ahead ***


@pytest.mark.parametrize(
    ("distribution", "dtype"),
    [
        ("uniform", dtypes.float32),
        ("uniform", dtypes.float64),
        ("uniform", dtypes.bfloat16),
        ("normal", dtypes.float32),
        ("normal", dtypes.float64),
        ("integers", dtypes.int32),
        ("integers", dtypes.int64),
    ],
)
def test_firings_ahead_have_the_numbers_of_single_ones(distribution: str, dtype: dtypes.DType) -> None:
    state, other = Philox(3, 4), Philox(3, 4)
    draws = Draws(state, distribution, dtype)
    for n in (*[1] * 20, 3, 1, 1, *[5] * 4, 0, *[64] * 6, 2000, 64, 64):
        found = draws.next(n)
        np.testing.assert_array_equal(found, getattr(other.reserve_numbers(n), distribution)(n, dtype))
        assert found.dtype == dtype.numpy
        found[:] = 0  # a consumer may write into its result
        assert state.state == other.state


def test_firings_ahead_follow_the_position_of_the_state() -> None:
    state = Philox(3, 4)
    draws = Draws(state, "integers", dtypes.int32)
    begin = state.state
    first = [draws.next(2).tolist() for _ in range(9)]
    state.state = begin
    assert [draws.next(2).tolist() for _ in range(9)] == first
    state.state = begin[0] + 1, begin[1]  # another key
    assert [draws.next(2).tolist() for _ in range(9)] != first
    state.rewind()
    state.reserve_numbers(2)
    assert [draws.next(2).tolist() for _ in range(8)] == first[1:]


def test_firings_ahead_of_two_ops_with_one_state_take_turns() -> None:
    state, other = Philox(1, 2), Philox(1, 2)
    a, b = (Draws(state, "uniform", dtypes.float32) for _ in range(2))
    for draws in (a, b, a, a, b, b, a):
        np.testing.assert_array_equal(draws.next(4), other.reserve_numbers(4).uniform(4, dtypes.float32))


def test_integers_are_within_their_range() -> None:
    words = np.array([0, 7, -1, -(2**31)], np.int32)
    assert within(words, -2, 3).tolist() == [w % 5 - 2 for w in (0, 7, 2**32 - 1, 2**31)]
    wide = within(np.array([2**63 - 1, -1], np.int64), -(2**63), 2**63 - 1)
    assert wide.tolist() == [w % (2**64 - 1) - 2**63 for w in (2**63 - 1, 2**64 - 1)]
