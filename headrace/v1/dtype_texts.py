"""Texts of dtypes in programs for TensorFlow 1: `<dtype: 'float32'>` and, in containers, `tf.float32`.

The dtypes are those of `headrace`, whose texts are `float32` and `headrace.float32`. So the text depends on the calling
module, as the shape of a tensor does (`v1.tensor`): a module that has imported `headrace.v1` gets TensorFlow's.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Final

from headrace.dtypes import DType
from headrace.ir.source import is_ours

_DOOR: Final = __name__.rpartition(".")[0]
_DEPTH: Final = 12  # frames of Python's library between the program and the text, such as those of a log record


def _is_for_tensorflow(frame: FrameType) -> bool:
    """Whether the frame or one of its callers belongs to a program of `headrace.v1`."""
    caller: FrameType | None = frame
    if is_ours(frame.f_code.co_filename):
        return False
    door = id(sys.modules.get(_DOOR))
    for _ in range(_DEPTH):
        if caller is None:
            return False
        if door in map(id, tuple(caller.f_globals.values())):  # without `id` it would compare arrays
            return True
        caller = caller.f_back
    return False


def install() -> None:
    """Makes `str` and `repr` of dtypes return TensorFlow's texts in such modules."""
    DType.is_for_tensorflow = staticmethod(_is_for_tensorflow)
