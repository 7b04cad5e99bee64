"""Numbers of at most 8 bits: stored, moved and cast on every engine."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes, interchange
from headrace.dtypes import DType

SMALL = sorted(dtypes.SMALL, key=lambda d: d.number)
GIVEN = np.array([0.3, 1.7, -2.4, 1000.0], np.float32)

# What TensorFlow's casts give for GIVEN, where it has them.
RECORDED = {
    "float8_e5m2": [0.3125, 1.75, -2.5, 1024.0],
    "float8_e4m3fn": [0.3125, 1.75, -2.5, np.nan],
}


def test_facts_are_tensorflows() -> None:
    facts = {d.name: (d.number, d.is_floating, d.is_integer, d.is_unsigned, float(d.min), float(d.max)) for d in SMALL}
    assert facts == {
        "float8_e5m2": (24, True, False, False, -57344, 57344),
        "float8_e4m3fn": (25, True, False, False, -448, 448),
        "float8_e4m3fnuz": (26, True, False, False, -240, 240),
        "float8_e4m3b11fnuz": (27, True, False, False, -30, 30),
        "float8_e5m2fnuz": (28, True, False, False, -57344, 57344),
        "int4": (29, False, True, False, -8, 7),
        "uint4": (30, False, True, True, 0, 15),
        "int2": (31, False, True, False, -2, 1),
        "uint2": (32, False, True, True, 0, 3),
        "float4_e2m1fn": (33, True, False, False, -6, 6),
    }


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_casts_and_moves(dtype: DType) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None,), name="x")
        small = hr.cast(x, dtype)
        back = hr.cast(small, hr.float32)
        moved = hr.concat([small[1:], hr.reshape(small, (2, 2))[0]], 0)
        chosen = hr.cond(hr.size(x) > 1, lambda: small, lambda: hr.cast(x[:1], dtype))
        twice = hr.while_loop(
            lambda i, v: i < 2, lambda i, v: (i + 1, hr.cast(hr.cast(v, hr.int32) * 2, dtype)), (0, small)
        )[1]
    with hr.Session(graph=g) as session:
        got = session.run([small, back, moved, chosen, twice], {x: GIVEN})
    wide = np.array(got[0], np.float32)
    assert got[0].dtype == dtype.numpy
    np.testing.assert_array_equal(got[1], wide)
    np.testing.assert_array_equal(np.array(got[2], np.float32), [*wide[1:], *wide[:2]])
    np.testing.assert_array_equal(np.array(got[3], np.float32), wide)
    want = got[0]
    for _ in range(2):
        with np.errstate(invalid="ignore"):
            want = (np.array(want, np.float64 if dtype.is_floating else np.int32).astype(np.int32) * 2).astype(
                dtype.numpy
            )
    if dtype.is_integer or dtype.name == "float8_e5m2":  # others have NaN, whose integer is left open
        np.testing.assert_array_equal(np.array(got[4], np.float32), np.array(want, np.float32))
    if dtype.name in RECORDED:
        np.testing.assert_array_equal(wide, RECORDED[dtype.name])


def test_integers_keep_their_low_bits() -> None:
    given = np.array([-9, -1, 7, 8, 300], np.int32)
    with hr.Graph() as g:
        outputs = [hr.cast(given, d) for d in (dtypes.int4, dtypes.uint4, dtypes.int2, dtypes.uint2)]
    with hr.Session(graph=g) as session:
        got = [np.array(v, np.int32).tolist() for v in session.run(outputs)]
    assert got == [
        [((v + half) % (2 * half)) - half if signed else v % (2 * half) for v in given.tolist()]
        for half, signed in ((8, True), (8, False), (2, True), (2, False))
    ]


def test_arithmetic_is_refused() -> None:
    with hr.Graph(), pytest.raises(TypeError, match="int4"):
        hr.constant([1, 2], dtypes.int4) + hr.constant([1, 2], dtypes.int4)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (dtypes.float8_e5m2, [1.0, 2.0, -0.5]),
        (dtypes.float8_e5m2, 1.5),
        (dtypes.float4_e2m1fn, [3.0, 3.0]),
        (dtypes.int4, [-1, 7, -8]),
        (dtypes.uint2, 3),
    ],
)
def test_constants_pass_through_a_graph_def(dtype: DType, values: object) -> None:
    with hr.Graph() as g:
        hr.identity(hr.constant(values, dtype), name="y")
    with hr.Graph() as again:
        (y,) = hr.import_graph_def(interchange.graph_def(g), return_elements=["y:0"], name="")
    with hr.Session(graph=again) as session:
        got = session.run(y)
    assert got.dtype == dtype.numpy
    assert np.array(got, np.float32).tolist() == values
