"""Single functions of TensorFlow 1, equal to its own (values and bytes recorded from 2.21)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import headrace.v1 as tf

F, ONES = np.float32, b'"\x18' + b"\x00\x00\x80?" * 6

PROTOS: list[tuple[bytes, tuple[Any, ...], dict[str, Any]]] = [
    (b"\x08\x01\x12\x00*\x04\x00\x00\xc0?", (1.5,), {}),
    (b'\x08\x01\x12\x04\x12\x02\x08\x03"\x0c\x00\x00\x80?\x00\x00\x00@\x00\x00@@', ([1.0, 2.0, 3.0],), {}),
    (b"\x08\x01\x12\x08\x12\x02\x08\x02\x12\x02\x08\x03" + ONES, (np.ones((2, 3), F),), {}),
    (b"\x08\x01\x12\x04\x12\x02\x08\x01*\x04\x00\x00 @", (np.array([2.5], F),), {}),
    (b'\x08\x03\x12\x04\x12\x02\x08\x02"\x08\x01\x00\x00\x00\x02\x00\x00\x00', ([1, 2],), {}),
    (b"\x08\n\x12\x04\x12\x02\x08\x02Z\x02\x01\x00", ([True, False],), {}),
    (b"\x08\x07\x12\x04\x12\x02\x08\x02B\x01aB\x02bc", (["a", b"bc"],), {}),
    (b"\x08\x07\x12\x04\x12\x02\x08\x02B\x01a", ("a",), {"shape": [2]}),
    (b"\x08\x01\x12\x08\x12\x02\x08\x02\x12\x02\x08\x02*\x04\x00\x00\x00@", (2.0,), {"shape": [2, 2]}),
    (b'\x08\x13\x12\x04\x12\x02\x08\x02"\x04\x00<\x00@', ([1.0, 2.0],), {"dtype": tf.float16}),
    (b'\x08\x0e\x12\x04\x12\x02\x08\x02"\x04\x80?\x00@', ([1, 2],), {"dtype": tf.bfloat16}),
    (b"\x08\x08\x12\x04\x12\x02\x08\x01J\x08\x00\x00\x80?\x00\x00\x00@", ([1 + 2j],), {"dtype": tf.complex64}),
    (b'\x08\x06\x12\x04\x12\x02\x08\x02"\x02\x01\x02', ([1, 2],), {"dtype": tf.int8}),
    (b"\x08\x11\x12\x04\x12\x02\x08\x02:\x02\x01\x02", ([1, 2],), {"dtype": tf.uint16}),
    (b"\x08\x03\x12\x08\x12\x02\x08\x02\x12\x02\x08\x02:\x03\x01\x02\x03", ([1, 2, 3],), {"shape": [2, 2]}),
    (b"\x08\x01\x12\x02\x12\x00", (np.zeros(0, F),), {}),
]


@pytest.mark.parametrize(("data", "args", "options"), PROTOS)
def test_messages_of_tensors_have_tensorflows_bytes(data: bytes, args: Any, options: Any) -> None:
    message = tf.make_tensor_proto(*args, **options)
    assert message.SerializeToString(deterministic=True) == data


def test_messages_of_tensors_are_read() -> None:
    assert tf.make_ndarray(tf.make_tensor_proto(5, shape=[2])).tolist() == [5, 5]
    assert tf.make_ndarray(tf.make_tensor_proto(["a", "b"])).tolist() == [b"a", b"b"]
    assert tf.make_ndarray(tf.make_tensor_proto([1.5], tf.bfloat16)).dtype == ml_dtypes.bfloat16
    with pytest.raises(TypeError, match="4 elements"):
        tf.make_ndarray(b'\x08\x01\x12\x04\x12\x02\x08\x04"\x01a')


@pytest.mark.parametrize(
    ("error", "says", "args", "options"),
    [
        (ValueError, "None values not supported", (None,), {}),
        (TypeError, "expected int32", ([1.5],), {"dtype": tf.int32}),
        (TypeError, r"\(2, 2\), but got \(3,\)", ([1, 2, 3],), {"shape": [2, 2], "verify_shape": True}),
        (ValueError, "at most 4, but got 5", ([1, 2, 3, 4, 5],), {"shape": [2, 2]}),
    ],
)
def test_messages_that_tensorflow_refuses_to_make(error: type[Exception], says: str, args: Any, options: Any) -> None:
    with pytest.raises(error, match=says):
        tf.make_tensor_proto(*args, **options)


def test_edit_distances() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        found = tf.SparseTensor([[0, 0], [1, 0], [1, 1]], ["a", "b", "c"], [2, 2])
        truth = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], ["a", "x", "c"], [2, 2])
        assert session.run(tf.edit_distance(found, truth)).tolist() == [0.5, 1.0]
        assert session.run(tf.edit_distance(found, truth, normalize=False)).tolist() == [1.0, 1.0]
        with pytest.raises(TypeError, match="sparse"):
            tf.edit_distance(found, ["a"])


def test_repeated_labels_collapse() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        labels = tf.constant([[1, 1, 2, 2, 1], [1, 1, 1, 1, 1], [2, 3, 3, 0, 0]])
        merged, lengths = session.run(tf.nn.collapse_repeated(labels, [5, 3, 4]))
        assert merged.tolist() == [[1, 2, 1], [1, 0, 0], [2, 3, 0]]
        assert lengths.tolist() == [3, 1, 3]
        assert (merged.dtype, lengths.dtype) == (np.int32, np.int32)


def test_one_function_of_a_critical_section_runs_at_a_time() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=0.0, use_resource=True)
        section = tf.CriticalSection(name="cs")

        def add() -> tf.Tensor:
            read = v.read_value()
            with tf.control_dependencies([read]):
                return v.assign(read + 1.0).read_value()

        added = [section.execute(add) for _ in range(4)]
        session.run(v.initializer)
        assert sorted(session.run(added)) == [1.0, 2.0, 3.0, 4.0]
        assert section.name == "cs"
        assert section.execute(lambda: None).type == "NoOp"
        pair = section.execute(lambda: {"a": v.read_value(), "b": (v * 2.0,)})
        assert session.run(pair) == {"a": 4.0, "b": (8.0,)}
        with pytest.raises(ValueError, match=r"'other' and 'cs' both use \['v:0'\]"):
            tf.CriticalSection(name="other").execute(lambda: v.assign_add(1.0))
