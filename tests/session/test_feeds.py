"""Feeds: the keys and values allowed, and conversions of the values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.errors import FeedError, InvalidArgumentError
from headrace.fetches import feeder
from tests.execute.loops import counting, dead
from tests.session.helpers import builder, call, session


def identity(dtype: str, shape: Any = None) -> tuple[hr.Session, hr.Tensor, hr.Tensor]:
    """A session on `y = Identity(p)`, and the two."""
    b = builder()
    p = b.Placeholder(dtype=dtype, shape=shape, name="p")
    return session(b), p, b.Identity(p, name="y")


def given_back(dtype: str, value: Any, shape: Any = None) -> Any:
    s, p, y = identity(dtype, shape)
    with s:
        return s.run(y, {p: value})


@pytest.mark.parametrize(
    ("dtype", "value", "want"),
    [
        ("float32", 1, np.float32(1)),
        ("float32", 1.5, np.float32(1.5)),
        ("float32", np.float64(0.1), np.float32(0.1)),
        ("float32", True, np.float32(1)),
        ("float32", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.float32)),
        ("float32", [], np.zeros(0, np.float32)),
        ("float64", np.arange(3, dtype=">i2"), np.arange(3, dtype=np.float64)),
        ("int32", 7, np.int32(7)),
        ("int32", np.int64(7), np.int32(7)),
        ("int32", np.arange(6).reshape(2, 3).T, np.arange(6, dtype=np.int32).reshape(2, 3).T),
        ("uint8", [0, 255], np.array([0, 255], np.uint8)),
        ("int64", np.uint64(3), np.int64(3)),
        ("bool", [True, False], np.array([True, False])),
        ("complex64", 2, np.complex64(2)),
        ("bfloat16", 0.5, ml_dtypes.bfloat16(0.5)),
        ("float32", ml_dtypes.bfloat16(0.5), np.float32(0.5)),
        ("float32", np.array(2.0, np.float32), np.float32(2)),
    ],
)
def test_values_are_converted_where_nothing_is_lost(dtype: str, value: Any, want: Any) -> None:
    got = given_back(dtype, value)
    assert type(got) is type(want)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("abc", b"abc"),
        (b"\xff\x00", b"\xff\x00"),
        ("", b""),
        (np.array(b"x"), b"x"),
        (["a", b"b"], [b"a", b"b"]),
        (np.array([["a"], ["bc"]]), [[b"a"], [b"bc"]]),
        (np.zeros((2, 0), object), [[], []]),
    ],
)
def test_text(value: Any, want: Any) -> None:
    got = given_back("string", value)
    if isinstance(want, bytes):
        assert got == want
        assert type(got) is bytes
    else:
        assert got.dtype == object
        assert got.tolist() == want


class Ragged:
    """Not an array."""

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        raise ValueError("this is no array at all")


@pytest.mark.parametrize(
    ("dtype", "value", "why"),
    [
        ("int32", 1.5, "float64"),
        ("int32", [1.0, 2.0], "float64"),
        ("int32", 2**40, "does not fit"),
        ("int32", 2**70, "object"),
        ("uint8", -1, "does not fit"),
        ("int64", np.uint64(2**63), "does not fit"),
        ("bool", 1, "int64"),
        ("float32", 1j, "complex128"),
        ("float32", "1.5", "<U3"),
        ("float32", b"1.5", "S3"),
        ("float32", None, "object"),
        ("float32", [[1], [1, 2]], "no array"),
        ("float32", Ragged(), "no array at all"),
        ("float32", np.datetime64("2020-01-01"), "datetime64"),
        ("float32", np.zeros(2, [("a", np.int32), ("b", np.int32)]), "cannot be made float32"),
        ("string", 3, "must hold text"),
        ("string", ["a", 3], "must hold text"),
        ("string", None, "must hold text"),
        ("string", [["a"], ["b", "c"]], "must hold text"),
    ],
)
def test_values_that_do_not_fit_name_the_tensor(dtype: str, value: Any, why: str) -> None:
    with pytest.raises(FeedError) as e:
        given_back(dtype, value)
    assert "'p:0'" in str(e.value)
    assert why in str(e.value)
    assert isinstance(e.value, ValueError)
    assert isinstance(e.value, TypeError)


def test_a_symbolic_tensor_is_no_value() -> None:
    s, p, y = identity("float32")
    with s, pytest.raises(FeedError, match=r"the value fed to 'p:0' \(made at .*\) is the symbolic .*; feed numbers"):
        s.run(y, {p: y})


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        ((), [1.0], [[1.0], np.zeros((1, 1))]),
        ((2,), [[1, 2]], [[1], [1, 2, 3], 5, [[1, 2]]]),
        ((None, 2), [np.zeros((0, 2)), np.zeros((5, 2))], [np.zeros((2, 1)), np.zeros(2), 0.0]),
        (None, [0.0, np.zeros((1, 2, 3))], []),
    ],
)
def test_a_fed_shape_must_fit_the_static_shape(shape: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert np.shape(given_back("float32", value, shape)) == np.shape(value)
    for value in bad:
        with pytest.raises(FeedError, match=r"Cannot feed value of shape .* for Tensor 'p:0', which has shape") as e:
            given_back("float32", value, shape)
        assert "test_feeds.py" in str(e.value)  # where the tensor was made


def test_shapes_of_text() -> None:
    with pytest.raises(FeedError, match="'p:0'"):
        given_back("string", ["a", "b"], (3,))


def test_a_bad_value_runs_nothing(custom: None) -> None:
    b = builder()
    runs: list[int] = []
    p = b.Placeholder(dtype="float32", shape=(2,))
    y = b.after(call(b, "Stateful", lambda ctx: runs.append(1), out=())).Identity(p)
    with session(b) as s:
        with pytest.raises(FeedError):
            s.run(y, {p: [1, 2, 3]})
        assert not runs
        s.run(y, {p: [1, 2]})
        assert len(runs) == 1


@pytest.mark.parametrize("key", ["nothing:0", "p:1", "p", "", 3, None])
def test_unknown_keys(key: Any) -> None:
    s, _, y = identity("float32")
    with s, pytest.raises(FeedError, match="Cannot interpret feed_dict key") as e:
        s.run(y, {key: 1.0})
    assert repr(key) in str(e.value)


def test_other_keys_that_are_wrong() -> None:
    s, p, y = identity("float32")
    other, stranger, _ = identity("float32")
    with s, other:
        with pytest.raises(FeedError, match="belongs to another"):
            s.run(y, {stranger: 1.0})
        with pytest.raises(FeedError, match="Cannot interpret feed_dict key"):
            s.run(y, {p.op: 1.0})
        with pytest.raises(FeedError, match="fed twice"):
            s.run(y, {p: 1.0, "p:0": 2.0})


def test_resources_cannot_be_fed() -> None:
    b = builder()
    v = b.VarHandleOp(dtype="float32", shape=())
    y = b.ReadVariableOp(v, dtype="float32")
    with session(b) as s, pytest.raises(FeedError, match="carries a resource, which cannot be fed"):
        s.run(y, {v: 1.0})


def test_any_tensor_can_be_fed_and_what_it_is_made_of_does_not_run(custom: None) -> None:
    b = builder()
    runs: list[str] = []
    first = call(b, "Stateful", lambda ctx: runs.append("first") or np.int32(1), scalar=True)
    second = b.AddV2(first, b.const(10))
    third = b.Mul(second, b.const(2))
    constant = b.const(5, name="five")
    with session(b) as s:
        assert s.run(third) == 22
        assert runs == ["first"]
        assert s.run(third, {second: 4}) == 8
        assert s.run([third, second], {"AddV2:0": 4, first: 1}) == [8, 4]
        assert runs == ["first"]
        assert s.run(b.Identity(constant), {constant: 6}) == 6
        assert s.run(constant, {constant: 6}) == 6
        assert s.run([second, third, first], {first: 2}) == [12, 24, 2]
        assert runs == ["first"]


@pytest.mark.parametrize("devices", [1, 2])
def test_a_fed_shape_changes_the_static_shapes_behind_it(devices: int) -> None:
    with hr.Graph() as g:
        shape = hr.shape(hr.zeros([2, 3]))
        y = hr.reduce_sum(hr.reshape(hr.ones(shape * 2), [-1]) * 2.0 + 1.0)
    # the checks of kernels compare with the static shapes
    with hr.Session(graph=g, devices={"CPU": devices}) as s, hr.flags.override(VERIFY=1):
        for fed in ([2, 3], [1, 4]):
            assert s.run(y, {shape: fed}) == 12 * np.prod(fed)


def test_one_output_of_several_is_fed(custom: None) -> None:
    b = builder()
    x, y = call(b, "Stateful", lambda ctx: (np.int32(1), np.int32(2)), out=("int32", "int32"), scalar=True)
    with session(b) as s:
        assert s.run([b.AddV2(x, y), x, y], {x: 10}) == [12, 10, 2]


def test_a_fed_reference() -> None:
    b = builder()
    v = b.VariableV2(shape=(), dtype="float32")
    y = b.Mul(v, b.const(2.0))
    with session(b) as s:
        assert s.run(y, {v: 3.0}) == 6.0
        with pytest.raises(hr.errors.FailedPreconditionError):
            s.run(y)


def test_feeding_downstream_of_a_dead_switch_revives() -> None:
    b = builder()
    gone = b.Identity(dead(b), name="gone")
    after = b.AddV2(gone, b.const(1))
    merged = b.Merge([b.Mul(after, after), dead(b)])[0]
    with session(b) as s:
        with pytest.raises(InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            s.run(after)
        assert s.run([after, merged], {gone: 4}) == [5, 25]
        with pytest.raises(InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            s.run(merged)


def test_feeding_inside_a_loop_is_an_error_that_names_the_loop() -> None:
    b = builder()
    loop, i = counting(b, 3, "while/context")
    out = loop.exit(i)
    with session(b) as s:
        for inner in (i, loop.body(i), loop.done(i), loop.cond, i.op.inputs[1]):
            with pytest.raises(InvalidArgumentError) as e:
                s.run(out, {inner: True if inner is loop.cond else 1})
            assert "while/context" in str(e.value) or "Invalid Exit op" in str(e.value)
        assert s.run(b.AddV2(out, out), {out: 5}) == 10  # the Exit is outside
        assert s.run(out) == 3


def test_a_control_edge_from_a_fed_placeholder() -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=())
    y = b.after(p).const(7)
    with session(b) as s:
        assert s.run(y, {p: 1.0}) == 7
        with pytest.raises(InvalidArgumentError, match="You must feed a value for placeholder tensor 'Placeholder'"):
            s.run(y)


# *** aliasing ***


class Holder:
    """Something that has an array and hands it out."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


def variable(dtype: str = "float32") -> tuple[hr.Session, hr.Tensor, Any, hr.Tensor]:
    """A session, a placeholder, the assignment of it to a variable, and the variable's value."""
    b = builder()
    p = b.Placeholder(dtype=dtype, shape=None)
    v = b.VarHandleOp(dtype=dtype, shape=None)
    return session(b), p, b.AssignVariableOp(v, p), b.ReadVariableOp(v, dtype=dtype)


@pytest.mark.parametrize(
    "wrap", [lambda a: a, lambda a: a[:], lambda a: a.T, Holder, memoryview, lambda a: a.view(np.matrix)]
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_what_is_fed_may_be_written_afterwards(wrap: Any) -> None:
    s, p, assign, read = variable()
    mine = np.ones((2, 2), np.float32)
    with s:
        s.run(assign, {p: wrap(mine)})
        mine[...] = 99
        np.testing.assert_array_equal(s.run(read), np.ones((2, 2)))


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: a[:], Holder])
def test_large_arrays_that_are_fed_may_be_written_afterwards(wrap: Any) -> None:
    s, p, assign, read = variable()
    mine = np.ones(thresholds.LENT_FEED_BYTES, np.float32)
    with s:
        s.run(assign, {p: wrap(mine)})
        mine[...] = 99
        np.testing.assert_array_equal(s.run(read), np.ones_like(mine))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_large_array_is_read_in_place_and_never_fetched(dtype: str) -> None:
    s, p, y = identity(dtype, None)
    mine = np.ones(thresholds.LENT_FEED_BYTES, dtype)
    with s:
        for fetched in s.run([y, p, y], {p: mine}):
            assert not np.shares_memory(fetched, mine)
            fetched[0] = 7
        assert (mine == 1).all()


@pytest.mark.parametrize(("dtype", "is_lent"), [("float32", True), ("int32", False), ("bool", False)])
def test_large_arrays_of_floats_are_lent_and_indices_never(dtype: str, is_lent: bool) -> None:
    p = identity(dtype, None)[1]
    mine = np.ones((4, thresholds.LENT_FEED_BYTES), dtype)
    for value, may in ((mine, True), (mine.T, False), (mine[:, ::2], False), (mine[:, :4], False)):
        fed = feeder(p, lends=True)(value)
        assert (fed is value) == (is_lent and may)
        assert fed is value or not np.shares_memory(fed, mine)
        assert not np.shares_memory(feeder(p)(value), mine)


def test_text_that_is_fed_may_be_written_afterwards() -> None:
    s, p, assign, read = variable("string")
    mine = np.array([b"a", b"b"], dtype=object)
    with s:
        s.run(assign, {p: mine})
        mine[0] = b"changed"
        assert s.run(read).tolist() == [b"a", b"b"]


def test_what_is_fed_is_not_what_is_fetched() -> None:
    s, p, y = identity("float32", (3,))
    mine = np.ones(3, np.float32)
    with s:
        for fetched in s.run([y, p, y], {p: mine}):
            assert not np.shares_memory(fetched, mine)
            fetched[0] = 7
        assert mine.tolist() == [1, 1, 1]


def test_a_read_only_array_can_be_fed() -> None:
    mine = np.arange(4.0, dtype=np.float32)
    mine.flags.writeable = False
    got = given_back("float32", mine)
    assert got.tolist() == [0, 1, 2, 3]
    got[0] = 5
