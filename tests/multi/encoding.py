"""A rendezvous between devices without common memory: each token, key and error passes as bytes."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from headrace import dtypes, errors, plain_data
from headrace.execute.records import DeadCause, Path
from headrace.execute.rendezvous import Key, LocalRendezvous, Receiver, Token
from headrace.resources.manager import Handle


def bytes_of(data: Any) -> bytes:
    """Plain data as bytes; raises `TypeError` for any other object."""
    return json.dumps(data).encode()


class EncodedRendezvous(LocalRendezvous):
    """Rendezvous in which each key, token and error is encoded and decoded.

    Attributes:
      made: all rendezvous since `record`.
      live: values that are objects of this process (variants), by number; they are not encoded.
      dead, alive: the numbers of dead and of live tokens.
      aborted: the error that `abort` received and the one that receivers get.
    """

    made: list[EncodedRendezvous]

    def __init__(self) -> None:
        super().__init__()
        self.live: list[Any] = []
        self.dead = self.alive = 0
        self.aborted: tuple[BaseException, BaseException] | None = None
        self.made.append(self)

    @classmethod
    def record(cls) -> type[EncodedRendezvous]:
        """Clears `made`, which lists the rendezvous of all steps since then."""
        cls.made = []
        return cls

    def send(self, key: Key, value: Any, cause: DeadCause | None = None) -> None:
        self.dead += cause is not None
        self.alive += cause is None
        sent = bytes_of([_key_data(key), self._value_data(value), None if cause is None else plain_data.encode(cause)])
        key_data, value_data, cause_data = json.loads(sent)
        got = None if cause_data is None else plain_data.decode(DeadCause, cause_data)
        super().send(_key(key_data), self._value(value_data), got)

    def take(self, key: Key) -> Token | None:
        return super().take(_through(key))

    def recv_async(self, key: Key, receiver: Receiver) -> None:
        super().recv_async(_through(key), receiver)

    def forget(self, key: Key) -> None:
        super().forget(_through(key))

    def abort(self, error: BaseException) -> None:
        got = errors.from_data(json.loads(bytes_of(errors.to_data(error))))
        self.aborted = error, got
        super().abort(got)

    def _value_data(self, value: Any) -> list[Any]:
        if isinstance(value, bytes):
            return ["bytes", base64.b64encode(value).decode()]
        if isinstance(value, np.ndarray) and value.dtype == object:
            return ["objects", value.shape, [self._value_data(v) for v in value.flat]]
        if isinstance(value, (np.ndarray, np.generic)):
            data = base64.b64encode(value.tobytes()).decode()
            is_array = isinstance(value, np.ndarray)
            return ["array", is_array, dtypes.from_numpy(value.dtype).name, value.shape, data]
        if value is None:
            return ["none"]
        if isinstance(value, Handle):
            return ["handle", plain_data.encode(value)]
        self.live.append(value)
        return ["live", len(self.live) - 1]

    def _value(self, data: list[Any]) -> Any:
        kind, *rest = data
        if kind == "bytes":
            return base64.b64decode(rest[0])
        if kind == "objects":
            out = np.empty(rest[0], object)
            out.flat = [self._value(v) for v in rest[1]]
            return out
        if kind == "array":
            is_array, dtype, shape, content = rest
            array = np.frombuffer(base64.b64decode(content), dtypes.as_dtype(dtype).numpy).reshape(shape)
            return array if is_array else array[()]
        if kind == "handle":
            return plain_data.decode(Handle, rest[0])
        return None if kind == "none" else self.live[rest[0]]


def _key_data(key: Key) -> list[Any]:
    edge, path, index = key
    frames = []
    while path:
        path, outer, name = path
        frames.append([outer, name])
    return [edge, frames[::-1], index]


def _key(data: list[Any]) -> Key:
    edge, frames, index = data
    path: Path = ()
    for outer, name in frames:
        path = (path, outer, name)
    return edge, path, index


def _through(key: Key) -> Key:
    return _key(json.loads(bytes_of(_key_data(key))))
