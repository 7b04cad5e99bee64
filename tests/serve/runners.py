"""Runners for tests: plain functions behind the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.api.tensor_spec import TensorSpec
from headrace.dtypes import as_dtype
from headrace.serve import ServingSignature


def signature(inputs: Mapping[str, tuple[Any, str]], outputs: Mapping[str, tuple[Any, str]]) -> ServingSignature:
    """Returns a signature from shapes and dtype names."""
    return ServingSignature(*[{k: TensorSpec(s, as_dtype(d), k) for k, (s, d) in x.items()} for x in (inputs, outputs)])


ROWS = signature({"x": ((None, 2), "float32")}, {"y": ((None, 2), "float32")})


class FakeRunner:
    """A runner with one signature.

    Args:
      f: the function from arguments to results.
      signature: its signature.

    Attributes:
      calls: the shapes of the first arguments.
      is_closed: whether `close` was called.
    """

    def __init__(self, f: Callable[..., Sequence[Any]] = lambda x: [x * 2], signature: ServingSignature = ROWS) -> None:
        self.signatures = {"serving_default": signature}
        self.calls: list[tuple[int, ...]] = []
        self.is_closed = False
        self._f = f
        self._lock = threading.Lock()

    def run(self, signature: str, inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        assert signature == "serving_default"
        assert timeout_ms > 0
        assert not self.is_closed
        with self._lock:
            self.calls.append(np.shape(inputs[0]))
        return list(self._f(*inputs))

    def close(self) -> None:
        self.is_closed = True
