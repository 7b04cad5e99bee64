"""Sessions of clients, without a network: graphs that grow, limits, and lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import headrace as hr
from headrace import dtypes, errors, pb, thresholds
from headrace.master_service.sessions import ClientSession, Sessions
from headrace.master_service.target import IsolatedTarget, SharedTarget
from headrace.metadata import Cancellation
from headrace.pb import master_pb2
from tests.master_service.clients import array, doubling, message_of, tensor

BYTES = 1 << 20


@pytest.fixture
def target() -> Iterator[SharedTarget]:
    shared = SharedTarget(None, None, "localhost")
    yield shared
    shared.close()


@pytest.fixture
def opened(target: SharedTarget) -> Iterator[Callable[..., ClientSession]]:
    """Opens sessions, and closes them at the end."""
    sessions: list[ClientSession] = []

    def make(graph_def: pb.GraphDef | None = None) -> ClientSession:
        sessions.append(ClientSession(doubling() if graph_def is None else graph_def, {}, target, BYTES))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


def run(session: ClientSession, *fetches: str, **feeds: object) -> list[object]:
    response = master_pb2.RunStepResponse()
    feed = [pb.NamedTensorProto(name=n, tensor=tensor(v)) for n, v in feeds.items()]
    session.run(master_pb2.RunStepRequest(feed=feed, fetch=fetches), Cancellation(), response)
    return [array(t.tensor).tolist() for t in response.tensor]


def node(name: str, op: str, *inputs: str, **types: int) -> pb.NodeDef:
    made = pb.NodeDef(name=name, op=op, input=inputs)
    for key, number in types.items():
        made.attr[key].type = number  # type: ignore[assignment]
    return made


def identity(name: str, *inputs: str) -> pb.GraphDef:
    return pb.GraphDef(node=[node(name, "Identity", *inputs, T=pb.DT_FLOAT)])


# *** graphs that grow ***


def test_an_extension_refers_to_earlier_nodes(opened: Callable[..., ClientSession]) -> None:
    session = opened()
    extension = identity("z", "y", "^x")
    extension.node[0].attr["_class"].list.s.append(b"loc:@x")
    assert session.extend(extension, 0) == 1
    assert session.extend(identity("w", "z:0"), 1) == 2
    assert run(session, "w:0", x=3.0) == [6.0]


def test_an_extension_needs_the_newest_version(opened: Callable[..., ClientSession]) -> None:
    session = opened()
    with pytest.raises(errors.AbortedError, match="Current version is 0 but caller expected 1"):
        session.extend(identity("z", "y"), 1)


@pytest.mark.parametrize(
    ("extension", "error", "text"),
    [
        (identity("y", "x"), errors.InvalidArgumentError, "includes node 'y', which was created by a previous call"),
        (identity("z", "y:1"), errors.InvalidArgumentError, "has 1 outputs"),
        (identity("z", "unknown"), errors.GraphError, "Unknown input node"),
        (identity("z", "z"), errors.GraphError, "cycle"),
        (pb.GraphDef(node=[node("z", "NoSuchOp")]), errors.NotFoundError, "Op type not registered 'NoSuchOp'"),
        (pb.GraphDef(node=[node("z", "NoOp"), node("z", "NoOp")]), errors.GraphError, "not unique"),
        (pb.GraphDef(node=[node("z", "PyFunc")]), errors.PermissionDeniedError, "Python function"),
        (pb.GraphDef(node=[node("z/\x00", "NoOp")]), errors.GraphError, "invalid characters"),
    ],
)
def test_a_wrong_extension_leaves_the_graph_unchanged(
    opened: Callable[..., ClientSession], extension: pb.GraphDef, error: type[Exception], text: str
) -> None:
    session = opened()
    with pytest.raises(error, match=text):
        session.extend(extension, 0)
    assert session.version == 0
    session.extend(identity("ok", "y"), 0)
    assert run(session, "ok:0", x=1.0) == [2.0]


# *** state ***


def counter() -> pb.GraphDef:
    """The graph of a variable that a step makes and another increases."""
    with hr.Graph() as g:
        v = hr.Variable(0.0, name="v")
        v.assign_add(1.0, name="more")
    return message_of(g)


def test_sessions_share_variables(opened: Callable[..., ClientSession], target: SharedTarget) -> None:
    a, b = opened(counter()), opened(counter())
    a.run(master_pb2.RunStepRequest(target=["v/Assign"]), Cancellation(), master_pb2.RunStepResponse())
    for session in (a, b, a):
        session.run(master_pb2.RunStepRequest(target=["more"]), Cancellation(), master_pb2.RunStepResponse())
    assert run(b, "v/Read/ReadVariableOp:0") == [3.0]
    isolated = ClientSession(counter(), {}, IsolatedTarget(target), BYTES)
    with pytest.raises(errors.NotFoundError):
        isolated.run(master_pb2.RunStepRequest(target=["more"]), Cancellation(), master_pb2.RunStepResponse())
    isolated.close()
    target.reset(())
    with pytest.raises(errors.NotFoundError):
        a.run(master_pb2.RunStepRequest(target=["more"]), Cancellation(), master_pb2.RunStepResponse())


# *** limits ***


def test_partial_runs_and_callables_have_limits(
    opened: Callable[..., ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "CLIENT_PARTIAL_RUNS", 1)
    monkeypatch.setattr(thresholds, "CLIENT_CALLABLES", 1)
    session = opened()
    setup = master_pb2.PartialRunSetupRequest(feed=["x:0"], fetch=["y:0"])
    handle = session.set_up_partial_run(setup)
    with pytest.raises(errors.ResourceExhaustedError, match="1 partial runs"):
        session.set_up_partial_run(setup)
    feed = [pb.NamedTensorProto(name="x:0", tensor=tensor(2.0))]
    request = master_pb2.RunStepRequest(feed=feed, fetch=["y:0"], partial_run_handle=handle)
    session.run(request, Cancellation(), response := master_pb2.RunStepResponse())
    assert array(response.tensor[0].tensor) == 4.0
    session.set_up_partial_run(setup)  # the first one has ended

    options = pb.CallableOptions(feed=["x:0"], fetch=["y:0"])
    number = session.make_callable(options)
    with pytest.raises(errors.ResourceExhaustedError, match="1 callables"):
        session.make_callable(options)
    assert array(session.run_callable(number, [tensor(3.0)], Cancellation(), pb.RunMetadata())[0]) == 6.0
    with pytest.raises(errors.InvalidArgumentError, match="Expected 1 feed tensors, but got 0"):
        session.run_callable(number, [], Cancellation(), pb.RunMetadata())
    session.release_callable(number)
    with pytest.raises(errors.InvalidArgumentError, match="No such callable handle"):
        session.run_callable(number, [tensor(3.0)], Cancellation(), pb.RunMetadata())


def test_a_step_without_fetches_and_targets_is_an_error(opened: Callable[..., ClientSession]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="at least one target"):
        run(opened())


# *** lifetimes ***


def test_the_number_of_sessions_is_limited(target: SharedTarget) -> None:
    sessions = Sessions(lambda isolated: target, 1, 60.0, BYTES)
    first = sessions.open(doubling(), pb.ConfigProto())
    with pytest.raises(errors.ResourceExhaustedError, match="1 sessions are open"):
        sessions.open(doubling(), pb.ConfigProto())
    sessions.close(first.handle)
    with pytest.raises(errors.AbortedError, match="is not found"):
        sessions.close(first.handle)
    with pytest.raises(errors.GraphError):  # a session that cannot be made takes no place
        sessions.open(identity("z", "z"), pb.ConfigProto())
    sessions.open(doubling(), pb.ConfigProto())
    sessions.close_all(is_final=True)
    with pytest.raises(errors.CancelledError, match="the server stops"):
        sessions.open(doubling(), pb.ConfigProto())


@pytest.mark.parametrize(("is_broken", "seconds"), [(False, 100.0), (True, thresholds.BROKEN_CLIENT)])
def test_an_idle_session_ends(
    target: SharedTarget, monkeypatch: pytest.MonkeyPatch, is_broken: bool, seconds: float
) -> None:
    now = [1000.0]
    monkeypatch.setattr("headrace.master_service.sessions.time.monotonic", lambda: now[0])
    sessions = Sessions(lambda isolated: target, 9, 100.0, BYTES)
    handle = sessions.open(doubling(), pb.ConfigProto()).handle
    with sessions.using(handle, lambda: is_broken):
        now[0] += 500.0
        sessions.sweep()  # a call is under way
    assert len(sessions) == 1
    now[0] += seconds
    sessions.sweep()
    assert len(sessions) == 1
    now[0] += 1.0
    sessions.sweep()
    assert len(sessions) == 0


def test_closing_a_session_cancels_its_steps(opened: Callable[..., ClientSession]) -> None:
    cancellation = Cancellation()
    cancellation.cancel("the client has left")
    with hr.Graph() as g:
        hr.identity(hr.FIFOQueue(1, [dtypes.float32]).dequeue(), name="got")
    session = opened(message_of(g))
    with pytest.raises(errors.CancelledError, match="the client has left"):
        session.run(master_pb2.RunStepRequest(fetch=["got:0"]), cancellation, master_pb2.RunStepResponse())
