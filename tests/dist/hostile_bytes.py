"""Bytes of a connection: feeding a decoder, comparing values, and damaging frames."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from headrace.dist.codec import Control, Decoder, Frame, Token
from headrace.dist.values import Buffer
from headrace.errors import DataLossError
from headrace.resources.memory import SpilledTensor
from headrace.resources.optional import Optional
from headrace.resources.tensor_list import TensorList
from headrace.resources.tensor_map import TensorMap


def joined(buffers: Iterable[Buffer]) -> bytes:
    return b"".join(buffers)


def feed(decoder: Decoder, data: bytes, chunks: Iterable[int] = ()) -> list[Frame]:
    """Returns the frames that `data` completes.

    Args:
      decoder: the decoder.
      data: the bytes of the connection.
      chunks: the sizes of the first pieces; the rest is received in pieces as large as possible.
    """
    frames: list[Frame] = []
    at, sizes = 0, itertools.chain(chunks, itertools.repeat(len(data)))
    while at < len(data):
        memory = decoder.buffer()
        assert len(memory) > 0
        n = min(len(memory), len(data) - at, next(sizes))
        memory[:n] = data[at : at + n]
        frames += decoder.received(n)
        at += n
    return frames


def survives(data: bytes, limit: int = 1 << 20) -> bool:
    """Whether `data` is decoded without an error; any error but `DataLossError` is raised."""
    try:
        feed(Decoder(limit), data)
    except DataLossError:
        return False
    return True


def damaged(data: bytes) -> Iterator[bytes]:
    """Copies of `data` with one byte changed."""
    for i, byte in enumerate(data):
        for other in {byte ^ 1, byte ^ 0x80, 0, 0xFF} - {byte}:
            yield data[:i] + bytes((other,)) + data[i + 1 :]


def with_numbers(data: bytes, numbers: Iterable[int], start: int) -> Iterator[bytes]:
    """Copies of `data` with eight or four bytes replaced by a number, from `start` on."""
    for number in numbers:
        for form in ("<Q", "<I"):
            if number < 1 << 8 * struct.calcsize(form):
                text = struct.pack(form, number)
                for i in range(start, len(data) - len(text) + 1):
                    yield data[:i] + text + data[i + len(text) :]


def same(a: Any, b: Any) -> bool:
    """Whether two values or frames are equal, in class, dtype, shape and every bit."""
    if isinstance(a, SpilledTensor):
        a = a.value()
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and a.dtype == object:
        return a.shape == b.shape and same(a.ravel().tolist(), b.ravel().tolist())
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (TensorList, TensorMap, Optional, Token, Control)):
        return same(_parts(a), _parts(b))
    return bool(a == b)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, TensorList):
        attributes = [value.element_dtype, value.element_shape, value.max_num_elements, value.nbytes, value.is_blank]
        return [*attributes, value.stored(), value.pattern]
    if isinstance(value, TensorMap):
        return [*value.items()]
    if isinstance(value, Optional):
        return [value.components, value.types]
    if isinstance(value, Control):
        return [value.message, value.values]
    return [value.step, value.edge, value.path, value.index, value.value, value.cause]
