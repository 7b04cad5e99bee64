"""Classes of a program whose objects are used as tensors."""

from __future__ import annotations

from typing import Any

import pytest

import headrace.v1 as tf
from headrace.errors import InvalidArgumentError


class Length:
    def __init__(self, metres: Any) -> None:
        self.metres = metres


class Mile(Length):
    pass


tf.register_tensor_conversion_function(Length, lambda v, dtype=None, name=None, as_ref=False: v.metres)
tf.register_tensor_conversion_function(
    Length, lambda v, dtype=None, name=None, as_ref=False: -1.0 if v.metres is None else NotImplemented, priority=10
)
tf.register_tensor_conversion_function(
    (Mile,), lambda v, dtype=None, name=None, as_ref=False: tf.constant(1609.0) * v.metres
)


def test_objects_are_operands_and_arguments() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        outputs = [
            tf.constant([1.0, 2.0]) + Length(2.0),
            tf.add(Length(2.0), 3.0),
            tf.convert_to_tensor(Length([1, 2])),
            tf.stack([Length(2.0), Mile(2.0)]),
            tf.reduce_sum(Length([[1.0], [2.0]])),
            tf.constant(5.0) * Length(None),
        ]
        got = [v.tolist() for v in session.run(outputs)]
    assert got == [[3.0, 4.0], 5.0, [1, 2], [2.0, 3218.0], 3.0, -5.0]


@pytest.mark.one_engine
def test_wrong_registrations_are_refused() -> None:
    def never(v: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        return NotImplemented

    class Silent:
        pass

    with pytest.raises(TypeError, match="`base_type` must be a type"):
        tf.register_tensor_conversion_function("Length", never)
    with pytest.raises(TypeError, match="must be callable"):
        tf.register_tensor_conversion_function(Length, 3)
    with pytest.raises(TypeError) as info:
        tf.register_tensor_conversion_function(complex, never)
    assert "derive a class from it" in info.value.__notes__[0]
    tf.register_tensor_conversion_function(Silent, never)
    with tf.Graph().as_default(), pytest.raises(InvalidArgumentError, match="no registered function converts"):
        tf.convert_to_tensor(Silent())
