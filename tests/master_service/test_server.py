"""A server on loopback with a plain gRPC client: methods, errors, limits and lost clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest

import headrace as hr
from headrace import dtypes, errors, pb, thresholds
from headrace.master_service import Server
from headrace.pb import master_pb2
from tests.master_service.clients import SECONDS, Client, array, doubling, message_of, refused, tensor

pytestmark = pytest.mark.system

Code = grpc.StatusCode
BYTES = 1 << 16


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(largest_message=BYTES) as made:
        yield made


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def make(graph_def: pb.GraphDef | None = None, config: pb.ConfigProto | None = None) -> Client:
        clients.append(Client(server.target, doubling() if graph_def is None else graph_def, config))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def queue() -> pb.GraphDef:
    """The graph of a queue whose steps `put` and `got:0` add and remove an element."""
    with hr.Graph() as g:
        made = hr.FIFOQueue(1, [dtypes.float32], [()], shared_name="queue")
        put = made.enqueue(hr.constant(7.0))
        hr.group(put, name="put")
        hr.identity(made.dequeue(), name="got")
    return message_of(g)


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, "the condition does not become true"
        time.sleep(0.01)


# *** methods ***


def test_a_step_runs(connect: Callable[..., Client]) -> None:
    client = connect()
    values = client.run(["y:0", "x:0"], {"x:0": np.array([1.0, 2.0], np.float32)})
    np.testing.assert_array_equal(values, [[2.0, 4.0], [1.0, 2.0]])


def test_devices_have_the_incarnation_of_their_server(connect: Callable[..., Client]) -> None:
    found = []
    for client in (connect(), connect()):
        request = master_pb2.ListDevicesRequest(session_handle=client.handle)
        found.append(client.call("ListDevices", request, master_pb2.ListDevicesResponse))
    assert [d.name for d in found[0].local_device] == ["/job:localhost/replica:0/task:0/device:CPU:0"]
    assert found[0].local_device[0].incarnation == found[1].local_device[0].incarnation != 0


def test_metadata_comes_on_request(connect: Callable[..., Client]) -> None:
    client = connect()
    options = pb.RunOptions(trace_level=pb.RunOptions.FULL_TRACE)
    for given, lists in ((None, False), (options, True)):
        request = client.step(["y:0"], {"x:0": np.float32(1)}, options=given)
        response = client.call("RunStep", request, master_pb2.RunStepResponse)
        assert bool(response.metadata.step_stats.dev_stats) == lists


def test_an_error_is_in_the_response_if_the_client_asks(connect: Callable[..., Client]) -> None:
    client = connect()
    request = client.step(["y:0"], store_errors_in_response_body=True)
    response = client.call("RunStep", request, master_pb2.RunStepResponse)
    assert response.status_code == errors.INVALID_ARGUMENT
    assert "You must feed a value for placeholder tensor 'x'" in response.status_error_message
    with refused(Code.INVALID_ARGUMENT, "You must feed a value for placeholder tensor 'x'"):
        client.run(["y:0"])


def test_a_reset_ends_sessions_and_drops_resources(connect: Callable[..., Client]) -> None:
    first = connect(queue())
    first.run([], targets=["put"])
    first.call("Reset", master_pb2.ResetRequest(), master_pb2.ResetResponse)
    with refused(Code.ABORTED, "is not found"):
        first.run(["got:0"])
    with refused(Code.DEADLINE_EXCEEDED, ""):
        connect(queue()).run(["got:0"], options=pb.RunOptions(timeout_in_ms=50))


# *** hostile requests ***


@pytest.mark.parametrize(
    "method", ["CreateSession", "ExtendSession", "RunStep", "MakeCallable", "RunCallable", "Reset"]
)
def test_bytes_that_are_no_message_are_an_invalid_argument(connect: Callable[..., Client], method: str) -> None:
    client = connect()
    with refused(Code.INVALID_ARGUMENT, f"{method}Request"):
        client.begin(method, b"\xff" * 100).result()
    assert client.run(["y:0"], {"x:0": np.float32(2)}) == [4.0]


def test_an_unknown_method_is_unimplemented(connect: Callable[..., Client]) -> None:
    with refused(Code.UNIMPLEMENTED, ""):
        connect().begin("RunGraph", b"").result()


def test_messages_that_are_too_large_are_refused(connect: Callable[..., Client]) -> None:
    client = connect()
    with refused(Code.RESOURCE_EXHAUSTED, "larger"):
        client.run(["y:0"], {"x:0": np.zeros(BYTES, np.float32) + np.arange(BYTES, dtype=np.float32)})
    bomb = pb.TensorProto(dtype=pb.DT_FLOAT, float_val=[1.0])
    bomb.tensor_shape.dim.add(size=1 << 40)
    request = client.step(["y:0"])
    request.feed.add(name="x:0", tensor=bomb)
    with refused(Code.RESOURCE_EXHAUSTED, "the limit of the server"):
        client.call("RunStep", request, master_pb2.RunStepResponse)
    assert client.run(["y:0"], {"x:0": np.float32(2)}) == [4.0]


def test_a_response_that_is_too_large_is_refused(connect: Callable[..., Client]) -> None:
    with hr.Graph() as g:
        hr.cast(hr.range(BYTES), dtypes.float32, name="long")
    client = connect(message_of(g))
    with refused(Code.RESOURCE_EXHAUSTED, "larger"):
        client.run(["long:0"])


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("RunStep", master_pb2.RunStepRequest(fetch=["y:0"])),
        ("ExtendSession", master_pb2.ExtendSessionRequest()),
        ("PartialRunSetup", master_pb2.PartialRunSetupRequest()),
        ("MakeCallable", master_pb2.MakeCallableRequest()),
        ("RunCallable", master_pb2.RunCallableRequest()),
        ("ReleaseCallable", master_pb2.ReleaseCallableRequest()),
        ("ListDevices", master_pb2.ListDevicesRequest()),
        ("CloseSession", master_pb2.CloseSessionRequest()),
    ],
)
def test_an_unknown_session_is_aborted(connect: Callable[..., Client], method: str, request_: object) -> None:
    client = connect()
    request_.session_handle = "x" * 10_000  # type: ignore[attr-defined]
    with refused(Code.ABORTED, "is not found"):
        client.begin(method, request_).result()


def test_an_unknown_partial_run_is_an_invalid_argument(connect: Callable[..., Client]) -> None:
    with refused(Code.INVALID_ARGUMENT, "partial_run_77"):
        connect().run(["y:0"], partial_run_handle="partial_run_77")


def test_kernels_use_no_files(connect: Callable[..., Client]) -> None:
    with hr.Graph() as g:
        hr.io.read_file("/etc/hostname", name="text")
    client = connect(message_of(g))
    with refused(Code.PERMISSION_DENIED, "/etc/hostname"):
        client.run([next(n.name for n in message_of(g).node if n.op == "ReadFile") + ":0"])


# *** clients that leave ***


def test_the_death_of_a_client_cancels_its_step_and_ends_its_session(
    server: Server, connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "BROKEN_CLIENT", 0.05)
    monkeypatch.setattr(thresholds, "CLIENT_SWEEP", 0.05)
    with Server() as quick:
        client, other = Client(quick.target, queue()), Client(quick.target, queue())
        blocked = client.begin("RunStep", client.step(["got:0"]))
        time.sleep(0.1)
        client.close()
        assert blocked.code() is Code.CANCELLED
        wait_until(lambda: len(quick._sessions) == 1)
        other.run([], targets=["put"])  # the cancelled dequeue does not take the element
        assert other.run(["got:0"]) == [7.0]
        other.close()


def test_the_time_limit_of_a_client_cancels_its_step_and_keeps_its_session(
    server: Server, connect: Callable[..., Client]
) -> None:
    client = connect(queue())
    with refused(Code.DEADLINE_EXCEEDED, ""):
        client.call("RunStep", client.step(["got:0"]), master_pb2.RunStepResponse, timeout=0.2)
    client.run([], targets=["put"])
    assert client.run(["got:0"]) == [7.0]
    entry = next(iter(server._sessions._entries.values()))
    wait_until(lambda: entry.calls == 0)
    assert not entry.is_broken


def test_a_step_has_the_time_limits_of_its_options_and_of_its_config(connect: Callable[..., Client]) -> None:
    with refused(Code.DEADLINE_EXCEEDED, "Timed out"):
        connect(queue()).run(["got:0"], options=pb.RunOptions(timeout_in_ms=50))
    with refused(Code.DEADLINE_EXCEEDED, "Timed out"):
        connect(queue(), pb.ConfigProto(operation_timeout_in_ms=50)).run(["got:0"])


def test_closing_a_session_cancels_its_steps(connect: Callable[..., Client]) -> None:
    client = connect(queue())
    blocked = client.begin("RunStep", client.step(["got:0"]))
    time.sleep(0.1)
    client.call(
        "CloseSession", master_pb2.CloseSessionRequest(session_handle=client.handle), master_pb2.CloseSessionResponse
    )
    with refused(Code.CANCELLED, "closed"):
        blocked.result()


def test_clients_run_at_the_same_time(connect: Callable[..., Client]) -> None:
    clients = [connect() for _ in range(6)]
    results: dict[int, list[float]] = {}

    def work(k: int) -> None:
        results[k] = [clients[k].run(["y:0"], {"x:0": np.float32(k + i)})[0].item() for i in range(20)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS)
    assert results == {k: [2.0 * (k + i) for i in range(20)] for k in range(6)}


# *** the server itself ***


def test_stop_ends_calls_that_wait() -> None:
    with Server() as server:
        client = Client(server.target, queue())
        blocked = client.begin("RunStep", client.step(["got:0"]))
        time.sleep(0.1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 3.0
    assert blocked.exception() is not None
    client.close()
    server.stop()  # no effect


def test_a_port_in_use_is_an_error(server: Server) -> None:
    with pytest.raises(errors.UnavailableError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        Server(server.port)


def test_a_cluster_has_devices_and_files_of_its_own() -> None:
    with pytest.raises(ValueError, match="a cluster has its own"):
        Server(target="headrace://localhost:1", devices={"CPU": 2})


def test_steps_run_on_a_cluster() -> None:
    worker = hr.Server.create_local_server()
    with Server(target=worker.target) as server:
        client = Client(server.target, doubling())
        assert client.run(["y:0"], {"x:0": np.float32(2)}) == [4.0]
        request = master_pb2.ListDevicesRequest(session_handle=client.handle)
        assert client.call("ListDevices", request, master_pb2.ListDevicesResponse).remote_device
        config = pb.ConfigProto(isolate_session_state=True)
        with refused(Code.UNIMPLEMENTED, "isolate_session_state"):
            Client(server.target, doubling(), config)
        client.call("Reset", master_pb2.ResetRequest(container=["c"]), master_pb2.ResetResponse)
        client.close()
    worker.close()


def test_a_fed_value_of_another_kind_is_an_invalid_argument(connect: Callable[..., Client]) -> None:
    client = connect()
    request = client.step(["y:0"])
    request.feed.add(name="x:0", tensor=pb.TensorProto(dtype=pb.DT_STRING, string_val=[b"text"]))
    with refused(Code.INVALID_ARGUMENT, "'x:0'"):
        client.call("RunStep", request, master_pb2.RunStepResponse)


def test_callables_run_over_the_network(connect: Callable[..., Client]) -> None:
    client = connect()
    options = pb.CallableOptions(feed=["x:0"], fetch=["y:0"])
    made = master_pb2.MakeCallableRequest(session_handle=client.handle, options=options)
    number = client.call("MakeCallable", made, master_pb2.MakeCallableResponse).handle
    request = master_pb2.RunCallableRequest(session_handle=client.handle, handle=number, feed=[tensor(np.float32(4))])
    response = client.call("RunCallable", request, master_pb2.RunCallableResponse)
    assert array(response.fetch[0]) == 8.0
    released = master_pb2.ReleaseCallableRequest(session_handle=client.handle, handle=number)
    client.call("ReleaseCallable", released, master_pb2.ReleaseCallableResponse)
    with refused(Code.INVALID_ARGUMENT, "No such callable handle"):
        client.call("RunCallable", request, master_pb2.RunCallableResponse)
