"""TensorFlow 1's `tf.user_ops`: the example of an op."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.plain_ops import plain


def my_fact() -> object:
    """Makes the op Fact: a string with a fact about factorials.

    Source: TensorFlow's `tf.user_ops.my_fact`.
    """
    return _fact()


_fact = plain("user_ops.my_fact", "Fact", "")

__all__ = ["my_fact"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
