"""`resources.tensor_list`: behaviour seen in TensorFlow's TensorList* ops, and immutability against a model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import dtypes
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.resources.optional import Optional
from headrace.resources.tensor_list import TensorList

f32 = dtypes.float32


def rows(*values):
    return np.array(values, np.float32)


def ints(*values, dtype=np.int32):
    return np.array(values, dtype)


def of(*values, shape=None):
    out = TensorList(f32, shape)
    for v in values:
        out = out.push(np.array(v, np.float32))
    return out


# *** as values ***


def test_push_and_pop_leave_the_old_lists_alone():
    empty = TensorList(f32, ())
    one = empty.push(np.float32(1))
    two = one.push(np.float32(2))
    other = one.push(np.float32(3))
    assert [x.length() for x in (empty, one, two, other)] == [0, 1, 2, 2]
    assert two.stack().tolist() == [1, 2]
    assert other.stack().tolist() == [1, 3]
    rest, last = two.pop()
    assert last == 2
    assert rest.stack().tolist() == [1]
    assert two.stack().tolist() == [1, 2]


def test_numpy_does_not_unpack_a_list():
    x = of(1, 2)
    assert np.array(x, dtype=object)[()] is x
    assert np.array([x, x], dtype=object).shape == (2,)


@pytest.mark.matrix  # a hundred random sequences take nearly what a unit test may take
@given(
    st.lists(
        st.tuples(st.sampled_from("push pop set unset get resize zeros add".split()), st.integers(0, 5)), max_size=30
    )
)
def test_against_a_model(steps):
    """Every version of the list equals a Python list (None: uninitialized), regardless of later changes."""
    versions = [(TensorList(f32, ()), [])]
    for k, (kind, i) in enumerate(steps):
        x, model = versions[-1 if k % 3 else k % len(versions)]
        if kind == "push":
            versions.append((x.push(np.float32(k)), [*model, k]))
        elif kind == "resize":
            versions.append((x.resized(i), (model + [None] * i)[:i]))
        elif kind == "zeros":
            versions.append((x.zeros_like(), [None] * len(model)))
        elif kind == "add":
            versions.append((x.add(x), [None if v is None else 2 * v for v in model]))
        elif kind == "pop" and model:
            rest, last = x.pop()
            assert last == (model[-1] or 0)
            versions.append((rest, model[:-1]))
        elif i < len(model):
            if kind == "get":
                assert x.get(i) == (model[i] or 0)
            elif kind == "unset":
                versions.append((x.unset([i]), [*model[:i], None, *model[i + 1 :]]))
            elif kind == "set":
                versions.append((x.set(i, np.float32(k)), [*model[:i], k, *model[i + 1 :]]))
    for x, model in versions:
        assert x.stack().tolist() == [v or 0 for v in model]
        unset = f", {model.count(None)} uninitialized" if None in model else ""
        assert repr(x) == f"TensorList({len(model)} of float32[]{unset})"


# *** elements never set ***


def test_uninitialized_elements_are_zeros_of_a_known_shape():
    x = TensorList.reserve(f32, (2,), 3)
    assert repr(x) == "TensorList(3 of float32[2], 3 uninitialized)"
    assert x.get(1).tolist() == [0, 0]
    assert x.set(1, rows(1, 2)).stack().tolist() == [[0, 0], [1, 2], [0, 0]]
    rest, last = x.pop()
    assert rest.length() == 2
    assert last.tolist() == [0, 0]


def test_their_shape_comes_from_the_reader_or_from_other_elements():
    x = TensorList.reserve(f32, None, 2)
    assert x.get(0, (3,)).tolist() == [0, 0, 0]
    with pytest.raises(
        InvalidArgumentError, match="Trying to read an uninitialized tensor but element_shape is not fully"
    ):
        x.get(0)
    with pytest.raises(InvalidArgumentError, match="only contains uninitialized tensors"):
        x.stack()
    x = x.set(0, rows(1, 2))
    assert x.get(1).tolist() == [0, 0]
    assert x.stack().tolist() == [[1, 2], [0, 0]]
    with pytest.raises(InvalidArgumentError, match="not fully defined"):
        x.pop()
    with pytest.raises(InvalidArgumentError, match=r"Incompatible shapes during merge: \[3\] vs. \[2\]"):
        x.stack((3,))


def test_strings_and_lists_have_zeros_too():
    x = TensorList.reserve(dtypes.string, (), 1)
    assert x.get(0)[()] == b""
    assert x.set(0, np.array(b"a", object)).stack().tolist() == [b"a"]
    assert TensorList.reserve(dtypes.variant, (), 1).get(0) is None


def test_zeros_like_remembers_shapes_without_copying():
    x = of([1, 2], [3])
    z = x.zeros_like()
    assert z.get(0).tolist() == [0, 0]
    assert z.get(1).tolist() == [0]
    rest, last = z.pop()
    assert last.tolist() == [0]
    assert rest.get(0).tolist() == [0, 0]
    assert z.zeros_like().get(1).tolist() == [0]
    value, lengths = z.concat()
    assert value.tolist() == [0, 0, 0]
    assert lengths.tolist() == [2, 1]


def test_zeros_of_a_list_of_lists():
    x = TensorList(dtypes.variant, ()).push(of([1, 2])).push(of([1]))
    inner = x.zeros_like().get(0)
    assert inner.get(0).tolist() == [0, 0]
    total = x.add(x.zeros_like()).add(x)
    assert total.get(0).get(0).tolist() == [2, 4]


def test_add():
    assert of(1, 2).add(of(3, 4)).stack().tolist() == [4, 6]
    x = of(1, 2)
    assert x.add(x.zeros_like()).stack().tolist() == [1, 2]
    assert x.zeros_like().add(x).stack().tolist() == [1, 2]
    with pytest.raises(InvalidArgumentError, match="different lengths: 2 and 1"):
        x.add(of(1))
    with pytest.raises(InvalidArgumentError, match="different shapes"):
        of([1, 2]).add(of(1))
    with pytest.raises(InvalidArgumentError, match="different dtypes"):
        x.add(TensorList(dtypes.int32))
    with pytest.raises(InvalidArgumentError, match="incompatible element shapes"):
        TensorList(f32, ()).add(TensorList(f32, (2,)))


@pytest.mark.parametrize("n", [5, 33, 1057, 33_000])
def test_sums_of_lists_with_few_elements(n):
    where = [0, 3, n // 2, n - 1]
    x = TensorList.reserve(f32, (), n)
    few = x.scatter(rows(1, 2, 3, 4), ints(*where))
    fewer = x.set(n // 2, np.float32(5)).set(1, np.float32(6)).unset([1])
    full = TensorList.from_tensor(np.arange(n, dtype=np.float32), f32, ())
    want = np.zeros(n, np.float32)
    np.add.at(want, where, rows(1, 2, 3, 4))
    want[n // 2] += 5
    for one, other in ((few, fewer), (fewer, few)):
        assert one.add(other).stack().tolist() == want.tolist()
        assert f"{n - len(set(where))} uninitialized" in repr(one.add(other))
    for total in (full.add(few).add(fewer), few.add(full.add(fewer))):
        assert total.stack().tolist() == (want + np.arange(n)).tolist()
        assert "uninitialized" not in repr(total)


def test_an_element_that_is_unset_may_get_another_shape():
    z = of([1, 2], [3]).zeros_like().set(0, rows(4, 5)).unset([0])
    assert z.get(0, (3,)).tolist() == [0, 0, 0]
    assert z.set(0, rows(1)).stack().tolist() == [[1], [0]]


# *** checks on elements ***


def test_elements_must_fit():
    x = TensorList(f32, (None, 2), max_num_elements=1)
    with pytest.raises(
        InvalidArgumentError, match=r"incompatible shape to a list. Op element shape: \[2\] list shape: \[\?,2\]"
    ):
        x.push(rows(1, 2))
    with pytest.raises(InvalidArgumentError, match="Invalid data types; list elements float32"):
        x.push(np.zeros((1, 2), np.int32))
    x = x.push(np.zeros((5, 2), np.float32))
    with pytest.raises(InvalidArgumentError, match="full list list size: 1 max_num_elements: 1"):
        x.push(np.zeros((5, 2), np.float32))


def test_indices_must_exist():
    x = of(1, 2)
    for i in (-1, 2):
        with pytest.raises(InvalidArgumentError, match=f"access element {i} in a list with 2 elements"):
            x.get(i)
        with pytest.raises(InvalidArgumentError, match=f"modify element {i} in a list with 2 elements"):
            x.set(i, np.float32(1))
        with pytest.raises(InvalidArgumentError, match=f"gather element {i} in a list with 2 elements"):
            x.gather(ints(0, i))
    with pytest.raises(InvalidArgumentError, match="pop from an empty list"):
        TensorList(f32).pop()
    assert x.set(3, np.float32(4), resize=True).stack().tolist() == [1, 2, 0, 4]


def test_absurd_sizes_are_refused():
    with pytest.raises(InvalidArgumentError, match="non negative number, but got -1"):
        TensorList.reserve(f32, None, -1)
    with pytest.raises(InvalidArgumentError, match=r"non-negative\. Got: -1"):
        of(1).resized(-1)
    for grow in (lambda: of(1).resized(2**31 - 1), lambda: of(1).set(2**31 - 2, np.float32(1), resize=True)):
        with pytest.raises(ResourceExhaustedError, match="growing a list of 1 elements"):
            grow()


# *** many at once ***


def test_stack_and_gather():
    x = of([1, 2], [3, 4], [5, 6])
    assert x.stack().tolist() == [[1, 2], [3, 4], [5, 6]]
    assert x.gather(ints(2, 0)).tolist() == [[5, 6], [1, 2]]
    assert x.gather(ints(), (2,)).shape == (0, 2)
    assert of(1, 2).stack().dtype == np.float32
    with pytest.raises(InvalidArgumentError, match="expected a list with 2 elements but got a list with 3"):
        x.stack(num_elements=2)
    with pytest.raises(InvalidArgumentError, match="non-fully-defined element_shape"):
        TensorList(f32).stack()
    with pytest.raises(InvalidArgumentError, match="Incompatible"):
        of([1, 2], 3).stack()
    assert TensorList(f32, (3,)).stack().shape == (0, 3)


def test_concat():
    value, lengths = of([1, 2], [3], []).concat()
    assert value.tolist() == [1, 2, 3]
    assert lengths.tolist() == [2, 1, 0]
    assert lengths.dtype == np.int64
    value, lengths = TensorList(f32, (None, 2)).concat()
    assert value.shape == (0, 2)
    assert lengths.shape == (0,)
    with pytest.raises(InvalidArgumentError, match="scalar shape at index 0 but requires at least vectors"):
        of(1).concat()
    with pytest.raises(InvalidArgumentError, match="found scalars instead"):
        of([1]).concat(())
    with pytest.raises(InvalidArgumentError, match="First entry of element_shape"):
        of([1]).concat((2,))
    with pytest.raises(InvalidArgumentError, match="when concating an empty tensor list"):
        TensorList(f32).concat()


def test_concat_of_uninitialized_elements():
    x = of([1, 2]).resized(2)
    assert x.concat()[0].tolist() == [1, 2, 0, 0]
    assert x.concat(leading_dims=[9, 1])[0].tolist() == [1, 2, 0]
    with pytest.raises(InvalidArgumentError, match="uninitialized tensor at index 2 but leading_dims has only 1"):
        of([1], [1, 2]).resized(3).concat(leading_dims=[1])
    with pytest.raises(InvalidArgumentError, match="only uninitialized tensors"):
        TensorList.reserve(f32, None, 1).concat()


def test_from_tensor_and_split():
    x = TensorList.from_tensor(np.arange(6, dtype=np.float32).reshape(3, 2), f32, (None,))
    assert x.get(1).tolist() == [2, 3]
    with pytest.raises(InvalidArgumentError, match="at least a vector"):
        TensorList.from_tensor(np.float32(1), f32, None)
    with pytest.raises(InvalidArgumentError, match=r"list with shape \[3\] from a tensor with shape \[2\]"):
        TensorList.from_tensor(np.zeros((3, 2), np.float32), f32, (3,))

    x = TensorList.split(rows(1, 2, 3), ints(2, 0, 1, dtype=np.int64), f32, (None,))
    assert [x.get(i).tolist() for i in range(3)] == [[1, 2], [], [3]]
    for lengths, match in (
        ((1, 1), "Unused values"),
        ((2, 2), r"slice \[2, 4\]"),
        ((-1, 4), "Invalid value in lengths"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            TensorList.split(rows(1, 2, 3), ints(*lengths), f32, None)
    with pytest.raises(InvalidArgumentError, match="at least of rank 1"):
        TensorList.split(rows(1), ints(1), f32, ())
    with pytest.raises(InvalidArgumentError, match="not compatible"):
        TensorList.split(rows(1), ints(1), f32, (1, 1))


def test_scatter():
    x = TensorList.scattered(rows(1, 2), ints(2, 0), f32, (), 4)
    assert x.stack().tolist() == [2, 0, 1, 0]
    assert TensorList.scattered(rows(1, 2), ints(2, 0), f32, ()).length() == 3
    for indices, n, match in (
        ((-1, 0), -1, "non-negative"),
        ((0, 4), 4, "index 4 in list with size 4"),
        ((0, 1), -2, ">= -1"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            TensorList.scattered(rows(1, 2), ints(*indices), f32, (), n)
    y = of(1, 2).scatter(rows(7, 8), ints(3, 1))
    assert y.stack().tolist() == [1, 8, 0, 7]
    with pytest.raises(InvalidArgumentError, match="Invalid number of rows"):
        y.scatter(rows(1), ints(1, 2))
    with pytest.raises(InvalidArgumentError, match="must all be non-negative"):
        y.scatter(rows(1), ints(-1))
    assert y.scatter(rows(), ints()) is y


def test_concat_lists():
    assert of(1).concat_lists(of(2, 3)).stack().tolist() == [1, 2, 3]
    with pytest.raises(InvalidArgumentError, match="not identical"):
        of(1).concat_lists(of(2, shape=()))
    with pytest.raises(InvalidArgumentError, match="different dtypes"):
        of(1).concat_lists(TensorList(dtypes.int32))


def test_zeros_keep_their_shapes_when_lists_are_joined_and_split():
    z = of([1], [2, 3]).pop()[0].zeros_like().concat_lists(of([4, 5, 6]).zeros_like())
    assert [z.get(i).tolist() for i in range(2)] == [[0], [0, 0, 0]]
    one, two = of([1], [2, 3], [4]).zeros_like().split_at(1)
    assert one.get(0).tolist() == [0]
    assert [two.get(i).tolist() for i in range(2)] == [[0, 0], [0]]
    with pytest.raises(InvalidArgumentError, match="first 3 elements of a list with 2 elements"):
        two.split_at(3)


def test_bytes_are_counted_up_to_a_limit():
    x = TensorList(f32)
    for n in (1, 2, 3):
        x = x.push_counted(rows(1, 2), 25)
        assert x.nbytes == 8 * n
    assert x.push_counted(rows(1), 25) is None
    nothing = np.broadcast_to(np.float32(0), (1000, 1000))
    assert x.push_counted(nothing, 1 << 20).nbytes == 24 + 4
    assert TensorList(dtypes.variant).push_counted(x, 100).nbytes == 24


def test_zeros_of_optionals_hold_zeros() -> None:
    value = Optional((np.float32(3),), (dtypes.float32,))
    zeros = TensorList(dtypes.variant, ()).push(value).zeros_like()
    assert zeros.get(0).get((dtypes.float32,), ((),)) == (0,)
    assert zeros.pop()[1].get((dtypes.float32,), ((),)) == (0,)
