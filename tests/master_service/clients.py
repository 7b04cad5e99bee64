"""A client of the master service without TensorFlow: requests as messages, over gRPC."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import pytest

import headrace as hr
from headrace import dtypes, pb
from headrace.ir.serial import attrs, graphdef
from headrace.pb import master_pb2

SECONDS = 20.0  # the longest wait for an answer


def tensor(value: Any) -> pb.TensorProto:
    """The message of an array."""
    return attrs.encode_tensor(np.asarray(value))


def array(proto: pb.TensorProto) -> Any:
    """The array of a message."""
    return np.asarray(attrs.decode_tensor(proto))


def message_of(graph: hr.Graph) -> pb.GraphDef:
    """The `GraphDef` of a graph."""
    return graphdef.export_graph_def(graph)


class Client:
    """Client with one session.

    Args:
      address: the target of the server, "grpc://host:port".
      graph_def: the graph of the session.
      config: the config of the session.
    """

    def __init__(self, address: str, graph_def: pb.GraphDef, config: pb.ConfigProto | None = None) -> None:
        self.channel = grpc.insecure_channel(address.removeprefix("grpc://").replace("localhost", "127.0.0.1"))
        request = master_pb2.CreateSessionRequest(graph_def=graph_def, config=config)
        self.handle = self.call("CreateSession", request, master_pb2.CreateSessionResponse).session_handle

    def begin(self, method: str, request: Any, timeout: float = SECONDS) -> Any:
        """Begins a call; its result is the bytes of the response."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        return self.channel.unary_unary(f"/tensorflow.MasterService/{method}").future(data, timeout=timeout)

    def call(self, method: str, request: Any, response: Any, timeout: float = SECONDS) -> Any:
        """Returns the response of a call; raises `grpc.RpcError` for a status."""
        return response.FromString(self.begin(method, request, timeout).result())

    def step(
        self, fetches: Sequence[str], feeds: Mapping[str, Any] | None = None, targets: Sequence[str] = (), **fields: Any
    ) -> master_pb2.RunStepRequest:
        """Request that runs a step."""
        feed = [pb.NamedTensorProto(name=name, tensor=tensor(value)) for name, value in (feeds or {}).items()]
        return master_pb2.RunStepRequest(session_handle=self.handle, feed=feed, fetch=fetches, target=targets, **fields)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Any] | None = None, **fields: Any) -> list[Any]:
        """Runs a step and returns the values of the fetches."""
        response = self.call("RunStep", self.step(fetches, feeds, **fields), master_pb2.RunStepResponse)
        assert [t.name for t in response.tensor] == list(fetches)
        return [array(t.tensor) for t in response.tensor]

    def close(self) -> None:
        """Closes the connection, as the death of the client's process does."""
        self.channel.close()


@contextlib.contextmanager
def refused(code: grpc.StatusCode, text: str) -> Iterator[None]:
    """Context manager in which a call must fail with a code and a text."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert caught.value.code() is code, caught.value
    assert text in caught.value.details(), caught.value.details()


def doubling() -> pb.GraphDef:
    """The graph of y = 2 x, for x of any shape."""
    with hr.Graph() as g:
        x = hr.placeholder(dtypes.float32, None, name="x")
        hr.multiply(x, 2.0, name="y")
    return message_of(g)
