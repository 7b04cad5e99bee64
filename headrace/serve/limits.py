"""Limits of a server of models."""

from __future__ import annotations

from headrace.errors import InvalidArgumentError
from headrace.records import record


@record(frozen=True)
class Limits:
    """Sizes, times and numbers that bound a server of models.

    Attributes:
      body_bytes: the largest body of a request; a larger one is refused (413).
      header_bytes: the largest head of a request.
      request_seconds: time for a client to send a request; then the connection ends (408).
      response_seconds: time for a client to read a response; then the connection is cut.
      idle_seconds: time between two requests of a connection.
      step_seconds: time of a request in the queue and in its step (504).
      connections: open connections; further ones are refused (503).
      waiting: requests in the queue of a signature; further ones are refused (503).
      batch_rows: rows of a batch; 0: no batches.
      batch_delay: the longest wait for further requests of a batch, in seconds.
      threads: steps of a signature that run at the same time.
      poll_seconds: time between two looks for a new version.
      drain_seconds: time after the order to end in which clients learn it from responses.
      end_seconds: the longest wait for running requests after the order to end.

    Raises:
      InvalidArgumentError: a value is negative, or 0 where that has no meaning.

    Example:
      >>> import headrace as hr
      >>> hr.serve.Limits(batch_rows=0, step_seconds=5.0).body_bytes
      16777216
    """

    body_bytes: int = 16 << 20
    header_bytes: int = 64 << 10
    request_seconds: float = 10.0
    response_seconds: float = 30.0
    idle_seconds: float = 60.0
    step_seconds: float = 60.0
    connections: int = 1000
    waiting: int = 1000
    batch_rows: int = 128
    batch_delay: float = 0.0
    threads: int = 2
    poll_seconds: float = 1.0
    drain_seconds: float = 1.0
    end_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            least = 0 if name in ("batch_rows", "batch_delay", "drain_seconds") else 1e-9
            if not value >= least:
                raise InvalidArgumentError(f"{name} is {'at least 0' if least == 0 else 'above 0'}, got {value}")
