"""`resources.tensor_array`: behaviour seen in TensorFlow's TensorArray*V3 ops."""

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.resources.tensor_array import TensorArray

f32 = dtypes.float32


def array(size=3, **kw):
    return TensorArray("ta", f32, size, **kw)


def rows(*values):
    return np.array(values, np.float32)


def ints(*values):
    return np.array(values, np.int32)


def fails(match, error=InvalidArgumentError):
    return pytest.raises(error, match=match)


# *** one element ***


def test_write_then_read():
    a = array()
    a.write(1, rows(1, 2))
    assert a.read(1).tolist() == [1, 2]
    assert a.size() == 3


def test_an_element_is_written_once_and_not_after_a_read():
    a = array(clear_after_read=False)
    a.write(0, np.float32(1))
    with fails("Could not write to TensorArray index 0 because it has already been written to"):
        a.write(0, np.float32(1))
    a.read(0)
    with fails("because it has already been read"):
        a.write(0, np.float32(1))
    assert a.read(0) == 1


def test_reading_clears():
    a = array()
    a.write(0, np.float32(1))
    a.read(0)
    with fails("Could not read index 0 twice because it was cleared after a previous read"):
        a.read(0)


def test_indices():
    a = array()
    for i in (-1, 3):
        with fails(f"Tried to write to index {i} but array is not resizeable and size is: 3"):
            a.write(i, np.float32(1))
        with fails(f"Tried to read from index {i} but array size is: 3"):
            a.read(i)
    with fails("Size should be >= 0"):
        array(-1)


def test_a_dynamic_array_grows():
    a = array(1, dynamic_size=True)
    a.write(4, np.float32(1))
    assert a.size() == 5
    with fails("Tried to write to index -1"):
        a.write(-1, np.float32(1))


def test_a_huge_array_costs_nothing():
    a = array(2**31 - 1)
    a.write(2**31 - 2, np.float32(1))
    assert a.read(2**31 - 2) == 1


def test_never_written_is_zero_if_the_shape_is_known():
    assert array(element_shape=(2,)).read(0).tolist() == [0, 0]
    with fails(r"element shape is not fully defined: \[\?\]"):
        array(element_shape=(None,)).read(0)
    a = array(identical_element_shapes=True)
    a.write(1, rows(1, 2))
    assert a.read(0).tolist() == [0, 0]
    assert TensorArray("s", dtypes.string, 1, element_shape=()).read(0)[()] == b""


def test_elements_must_fit():
    a = array(element_shape=(None, 2))
    with fails(r"shape is \[2\] which is incompatible with the TensorArray's inferred element shape: \[\?,2\]"):
        a.write(0, rows(1, 2))
    with fails("TensorArray dtype is float32 but Op is trying to write dtype int32"):
        a.write(0, np.int32([[1, 2]]))
    a = array(identical_element_shapes=True)
    a.write(0, rows(1, 2))
    with fails("inferred element shape"):
        a.write(1, rows(1, 2, 3))


def test_closed():
    a = array()
    a.close()
    for use in (a.size, lambda: a.read(0), lambda: a.write(0, np.float32(1)), a.concat, lambda: a.grad("g")):
        with fails("TensorArray ta has already been closed"):
            use()
    assert "closed" in repr(a)


# *** many elements ***


def test_gather_reads():
    a = array()
    for i in range(3):
        a.write(i, rows(i, i))
    assert a.gather(ints(2, 0)).tolist() == [[2, 2], [0, 0]]
    with fails("cleared"):
        a.read(0)
    assert a.read(1).tolist() == [1, 1]


def test_gather_checks_shapes():
    a = array(clear_after_read=False)
    a.write(0, rows(1))
    a.write(1, rows(1, 2))
    with fails(r"inconsistent shapes.  Index 0 has shape: \[1\] but index 1 has shape: \[2\]"):
        a.gather(ints(0, 1))
    with fails(r"passed element_shape \[3\] which does not match the Tensor at index 0: \[1\]"):
        a.gather(ints(0), (3,))
    with fails("Incompatible shapes during merge"):
        a.gather(ints(0), (1,))
    with fails("Expected indices to be a vector"):
        a.gather(np.int32(0))


def test_gather_of_nothing_needs_the_shape():
    assert array().gather(ints(), (2,)).shape == (0, 2)
    with fails("TensorArray has size zero, but element shape <unknown> is not fully defined", UnimplementedError):
        array().gather(ints())


def test_scatter():
    a = array()
    a.scatter(ints(2, 0), rows([1, 2], [3, 4]))
    assert a.read(0).tolist() == [3, 4]
    for indices, value, match in (
        (ints(0, 3), rows(1, 2), r"Max scatter index must be < array size \(3 vs. 3\)"),
        (ints(0, 1), rows(1), r"len\(indices\) == values.shape\[0\], but saw: 2 vs. 1"),
        (ints(0), np.float32(1), "at least a vector"),
        (ints(-1), rows(1), "Tried to write to index -1"),
        (np.int32([[0]]), rows(1), "indices to be a vector"),
        (ints(1, 1), rows(1, 2), "already been written"),
    ):
        with fails(match):
            a.scatter(indices, value)
    grown = array(0, dynamic_size=True)
    grown.scatter(ints(4), rows(1))
    assert grown.size() == 5


def test_split_and_concat():
    a = array(clear_after_read=False)
    a.split(rows(1, 2, 3), np.int64([2, 0, 1]))
    assert [a.read(i).tolist() for i in range(3)] == [[1, 2], [], [3]]
    value, lengths = a.concat()
    assert value.tolist() == [1, 2, 3]
    assert lengths.tolist() == [2, 0, 1]
    for lengths, match in (((1, 1, 2), "sum of lengths is 4"), ((1, 2), "is not equal to the size of lengths")):
        with fails(match):
            array().split(rows(1, 2, 3), np.int64(lengths))
    with fails("at least 0"):
        array().split(rows(1, 2, 3), np.int64([4, -2, 1]))


def test_concat_checks_shapes():
    a = array(2, clear_after_read=False)
    a.write(0, rows([1, 2]))
    a.write(1, rows([1]))
    with fails(r"\(excepting dimension 0\) shape: \[2\] but index 1 has \(excepting dimension 0\) shape: \[1\]"):
        a.concat()
    with fails(r"element_shape_except0 \[3\] but index 0 has"):
        a.concat((3,))
    b = array(1)
    b.write(0, np.float32(1))
    with fails("scalar shape at index 0 but requires at least vectors"):
        b.concat()
    assert array(0).concat((2,))[0].shape == (0, 2)
    with fails("element_shape_except0 <unknown> is not fully defined", UnimplementedError):
        array(0).concat()


# *** gradients ***


def test_a_gradient_array_adds_and_copies_shapes():
    a = array(dynamic_size=True)
    a.write(0, rows(1, 2))
    a.write(1, rows(5))
    g = a.grad("gradients")
    assert a.grad("gradients") is g
    assert a.grad("gradients_1") is not g
    assert g.size() == 3
    first = rows(1, 1)
    for value in (first, rows(2, 2), rows(3, 3)):
        g.write(0, value)
    assert g.read(0).tolist() == [6, 6]
    assert first.tolist() == [1, 1]
    assert g.read(1).tolist() == [0]
    with fails(r"existing shape is \[1\] but the new input shape is \[2\]"):
        a.grad("other").write(1, rows(1, 2))
    with fails("not resizeable"):
        a.write(3, rows(1))  # an array with a gradient does not grow


def test_gradients_read_beyond_the_end_as_zeros():
    g = array(1, element_shape=(2,)).grad("g")
    assert g.read(4).tolist() == [0, 0]
    assert g.size() == 5


def test_gradients_of_gradients_are_refused():
    a = array()
    a.write(0, np.float32(1))
    with fails("Wrong input container"):
        a.grad("g").grad("g")


def test_no_gradient_after_several_writes():
    a = array(multiple_writes_aggregate=True)
    a.write(0, np.float32(1))
    a.write(0, np.float32(2))
    with fails("Unable to create a gradients TensorArray"):
        a.grad("g")


def test_gradient_with_a_shape_prepended():
    a = array(2, element_shape=(2,))
    a.write(0, rows(1, 2))
    g = a.grad("g", (3,))
    assert g.element_shape == (3, 2)
    assert g.read(0).shape == (3, 2)


def test_a_gradients_concat_stops_where_the_split_did():
    a = array(2)
    a.split(rows(1, 2, 3), np.int64([1, 2]))
    g = a.grad("g")
    assert g.concat()[0].tolist() == [0, 0, 0]


def test_strings_cannot_be_added():
    a = TensorArray("s", dtypes.string, 1, multiple_writes_aggregate=True)
    a.write(0, np.array(b"x", object))
    with fails("cannot be added"):
        a.write(0, np.array(b"y", object))


def test_release_closes_gradients_too():
    a = array()
    g = a.grad("g")
    a.release()
    with fails("closed"):
        g.size()
