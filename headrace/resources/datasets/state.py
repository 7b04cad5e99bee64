"""Saved positions of iterators: plain data and arrays, as one text of bytes.

The text is JSON. Arrays are written as dtype, shape and base64. A file may contain anything, so `decode` checks all
that it reads, and an iterator takes each value from a `Saved`, which checks its kind and range.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from headrace import dtypes
from headrace.errors import DataLossError, UnimplementedError

State: TypeAlias = Any  # None, int, str, bytes, arrays, and lists and dicts (by str) of these


def encode(state: State) -> bytes:
    """Returns a state as bytes.

    Raises:
      UnimplementedError: an element has a component without a text form, such as a resource.
    """
    return json.dumps(_plain(state), separators=(",", ":")).encode()


def decode(data: bytes) -> Saved:
    """Returns the state that `encode` wrote.

    Raises:
      DataLossError: the bytes are not a state.
    """
    try:
        return Saved(_value(json.loads(data)))
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as e:
        raise _damaged(f"it cannot be read ({e})") from e


class Saved:
    """Reader of a saved state.

    Args:
      value: the state.
    """

    def __init__(self, value: State) -> None:
        self.value = value

    def _field(self, name: str) -> Any:
        if not isinstance(self.value, dict) or name not in self.value:
            raise _damaged(f"it has no {name!r}")
        return self.value[name]

    def inner(self, name: str) -> Saved:
        """Returns a part."""
        return Saved(self._field(name))

    def optional(self, name: str) -> Saved | None:
        """Returns a part; None if it is None."""
        found = self._field(name)
        return None if found is None else Saved(found)

    def number(self, name: str, least: int = 0, most: float = math.inf) -> int:
        """Returns an integer within the bounds."""
        found = self._field(name)
        if type(found) is not int or not least <= found <= most:
            raise _damaged(f"{name!r} is {found!r}, where an integer from {least} to {most} belongs")
        return found

    def parts(self, name: str, most: float = math.inf) -> list[Saved]:
        """Returns the parts of a list."""
        found = self._field(name)
        if not isinstance(found, list) or len(found) > most:
            raise _damaged(f"{name!r} is no list of at most {most} parts")
        return [Saved(x) for x in found]

    def seeds(self, name: str) -> tuple[int, int]:
        """Returns a pair of integers that were written as texts."""
        found = [x.value for x in self.parts(name, 2)]
        if len(found) != 2 or not all(isinstance(x, str) and x.lstrip("-").isdecimal() for x in found):
            raise _damaged(f"{name!r} is no pair of seeds")
        return int(found[0]), int(found[1])

    def element(self) -> tuple[Any, ...]:
        """Returns the state itself as an element."""
        if not isinstance(self.value, list):
            raise _damaged("an element is no list")
        return tuple(self.value)

    def elements(self, name: str, most: float = math.inf) -> list[tuple[Any, ...]]:
        """Returns a list of elements."""
        return [x.element() for x in self.parts(name, most)]


def set_window(make: Callable[[list[tuple[Any, ...]]], Any]) -> None:
    """Sets the function from elements to the dataset of a window, which `elements` defines."""
    global _window
    _window = make


_window: Callable[[list[tuple[Any, ...]]], Any] = list


def _damaged(why: str) -> DataLossError:
    return DataLossError(f"the saved state is not that of an iterator of this dataset: {why}")


def _plain(x: State) -> Any:
    if x is None or x.__class__ in (int, str):
        return x
    if isinstance(x, dict):
        return {"dict": {k: _plain(v) for k, v in x.items()}}
    if isinstance(x, (list, tuple)):
        return [_plain(v) for v in x]
    if isinstance(x, bytes):
        return {"bytes": base64.b64encode(x).decode()}
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype == object:
            return {"texts": [_plain(v) for v in np.ravel(x).tolist()], "shape": list(x.shape)}
        data = base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
        return {"array": data, "dtype": dtypes.from_numpy(x.dtype).name, "shape": list(x.shape)}
    save = getattr(x, "as_state", None)
    if save is not None:
        return {"window": _plain(save())}
    raise UnimplementedError(
        f"the position of an iterator cannot be saved, because an element has a {type(x).__name__}, which has no form "
        "in files"
    )


def _value(x: Any) -> State:
    if x is None or x.__class__ in (int, str):
        return x
    if isinstance(x, list):
        return [_value(v) for v in x]
    if "dict" in x:
        return {str(k): _value(v) for k, v in x["dict"].items()}
    if "bytes" in x:
        return base64.b64decode(x["bytes"], validate=True)
    if "window" in x:
        return _window([tuple(e) for e in _value(x["window"])])
    shape = tuple(x["shape"])
    if any(type(d) is not int or d < 0 for d in shape):
        raise ValueError(f"an array of shape {shape}")
    if "texts" in x:
        texts = _value(x["texts"])
        if len(texts) != math.prod(shape):
            raise ValueError(f"{len(texts)} elements for an array of shape {shape}")
        out = np.empty(len(texts), object)
        out[:] = texts
        return out.reshape(shape)
    dtype = dtypes.as_dtype(x["dtype"]).numpy
    array = np.frombuffer(base64.b64decode(x["array"], validate=True), dtype).reshape(shape)
    return array if shape else array[()]
