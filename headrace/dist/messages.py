"""Messages between clients, masters and workers.

A message is a frozen record of names, numbers, texts and bytes. Tensors are not part of a message: they follow it on
the wire as *values* (`dist.values`), in the order in which the message names their positions. Tokens between workers
are no messages; `dist.codec` has a format of its own for them.

Every field is bounded. `decode` refuses an unknown message, an unknown field and a value beyond its bound, so a message
that arrives has the form of its class. Its content (a graph, an error, a device name) is checked by its reader.

Handshake: the acceptor of a connection sends `Challenge`, the connector `Hello`, the acceptor `Welcome` or `Refused`.

Client to master: `OpenSession`, `CompileStep`, `RunStep`, `ResumeRun`, `CancelRun`, `CloseSession`, `ClearContainers`,
`Describe`. Each but `CancelRun` is answered by `Reply` or `Failure`.

Master to worker: `Topology`, `PrepareProgram` (answered by `ProgramPrepared`), `DropProgram`, `DropSession`,
`StartStep`, `ResumeStep`, `Orders`, `AbortStep`, `EndSteps`, `ClearContainers`, `Describe`. Worker to master: `Report`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from headrace.errors import DataLossError

VERSION: Final = 1  # of the protocol; both ends of a connection have the same
MASTERS: Final = 1 << 38  # the numbers of the steps of a master are those from a multiple of it on
LONGEST_TEXT: Final = 1 << 16  # characters
MOST_WAITS: Final = 64  # lines about the waiting nodes of a part

Number: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name: TypeAlias = Annotated[str, Meta(max_length=1024)]
Text: TypeAlias = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=64)]
Proof: TypeAlias = Annotated[bytes, Meta(max_length=64)]
Blob: TypeAlias = Annotated[bytes, Meta(max_length=1 << 31)]  # an encoded part or step; its codec checks it
Positions: TypeAlias = Annotated[tuple[Annotated[int, Meta(ge=0, le=(1 << 20) - 1)], ...], Meta(max_length=1 << 20)]
Steps: TypeAlias = Annotated[tuple[Number, ...], Meta(max_length=1 << 20)]
Names: TypeAlias = Annotated[tuple[Text, ...], Meta(max_length=1 << 12)]
Trace: TypeAlias = Annotated[tuple[list[Any], ...], Meta(max_length=1 << 22)]
Data: TypeAlias = Any  # plain data (`plain_data`): lists, texts, numbers and None


class Message(Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base class of all messages."""


# *** the beginning of a connection ***


class Challenge(Message, frozen=True):
    """First message of the acceptor of a connection.

    Attributes:
      version: its version of the protocol.
      nonce: random bytes that the other end's proof depends on.
    """

    version: Number
    nonce: Nonce


class Hello(Message, frozen=True):
    """Answer of the connector.

    Attributes:
      version: its version of the protocol.
      role: "client", "master" or "worker".
      name: its task ("/job:worker/replica:0/task:1"), or the name of a client.
      incarnation: a random number that a process draws when it starts.
      nonce: random bytes that the acceptor's proof depends on.
      proof: shows that it knows the shared secret (`dist.handshake`); empty without a secret.
    """

    version: Number
    role: Name
    name: Name
    incarnation: Number
    nonce: Nonce
    proof: Proof


class Welcome(Message, frozen=True):
    """The acceptor takes the connection. The attributes are those of `Hello`."""

    name: Name
    incarnation: Number
    proof: Proof


class Refused(Message, frozen=True):
    """The acceptor does not take the connection.

    Attributes:
      reason: the reason, as text.
    """

    reason: Text


# *** calls: each has a number, and one answer ***


class Reply(Message, frozen=True):
    """Answer to a call that succeeded. Fetched values follow it.

    Attributes:
      call: the number of the call.
      data: the result, as plain data.
      fetches: positions of the fetches whose values follow, in order.
      trace: events of the step (`dist.tracing`), if it is traced.
    """

    call: Number
    data: Data = None
    fetches: Positions = ()
    trace: Trace = ()


class Failure(Message, frozen=True):
    """Answer to a call that failed.

    Attributes:
      call: the number of the call.
      error: the error (`errors.to_data`).
    """

    call: Number
    error: Data


class OpenSession(Message, frozen=True):
    """A client begins a session; the reply has its number and the devices.

    Attributes:
      call: the number of the call.
      soft: whether an operation with a request for a missing device may run on another one.
      bfloat16: whether float32 is sent between workers as bfloat16.
      recv_scheduling: whether Recvs are delayed until they are needed.
      filters: partial device names; the session uses the tasks that match one of them, and its own. None: all tasks.
    """

    call: Number
    soft: bool = True
    bfloat16: bool = False
    recv_scheduling: bool = False
    filters: Annotated[tuple[Name, ...], Meta(max_length=1024)] = ()


class CompileStep(Message, frozen=True):
    """A client has a new step. The reply has the number of the program.

    Attributes:
      call: the number of the call.
      session: the number of the session.
      step: the pruned step (`dist.step_codec`).
      released: numbers of programs that the client does not use any more, each as often as the client got it.
    """

    call: Number
    session: Number
    step: Blob
    released: Steps = ()


class RunStep(Message, frozen=True):
    """A client runs a step.

    The values of all feeds follow, unless the run is partial.

    Attributes:
      call: the number of the call.
      session: the number of the session.
      program: the number of the program.
      timeout: seconds after which the step fails; 0: none.
      is_partial: whether the feeds arrive by `ResumeRun`; the reply to this message then has the number of the run.
      tracing: 0: no events; 1: events; 2: events with the bytes of outputs; 3: also with the causes of
        deadness; 4: also with summaries of values.
      check: the check of numbers (`observe.numerics.as_number`); 0: none.
      values_of: names of operations whose events have values in any case.
    """

    call: Number
    session: Number
    program: Number
    timeout: float = 0.0
    is_partial: bool = False
    tracing: Number = 0
    check: Number = 0
    values_of: Names = ()


class ResumeRun(Message, frozen=True):
    """A client feeds a partial run, and waits for some of its fetches.

    The values of the feeds follow.

    Attributes:
      call: the number of the call.
      run: the number of the run.
      feeds: positions of the feeds.
      until: positions of the fetches; None: all that are left, at the end of the step.
      is_fed: whether all feeds have been supplied.
    """

    call: Number
    run: Number
    feeds: Positions
    until: Positions | None
    is_fed: bool


class CancelRun(Message, frozen=True):
    """A client cancels a call of `RunStep`, or ends a partial run.

    The message has no answer of its own.

    Attributes:
      call: the number of the call, or of the partial run.
      error: the error with which the step fails.
    """

    call: Number
    error: Data


class CloseSession(Message, frozen=True):
    """A client ends a session.

    Attributes:
      call: the number of the call.
      session: the number of the session.
    """

    call: Number
    session: Number


class ClearContainers(Message, frozen=True):
    """Drops the resources of containers on all workers, or on the worker that receives it.

    Attributes:
      call: the number of the call.
      names: the containers; none: all.
    """

    call: Number
    names: Annotated[tuple[Name, ...], Meta(max_length=1024)] = ()


class Describe(Message, frozen=True):
    """Asks for the state of the cluster, or of a worker, as plain data.

    Attributes:
      call: the number of the call.
    """

    call: Number


# *** master and workers ***


class Task(Message, frozen=True):
    """A process of the cluster.

    Attributes:
      name: its task, such as "/job:worker/replica:0/task:1".
      address: host and port of its server.
      incarnation: the number that it drew when it started; 0 if unknown.
    """

    name: Name
    address: Name
    incarnation: Number = 0


class Topology(Message, frozen=True):
    """Processes of the cluster, as the master knows them.

    Of each process the newest message counts.

    Attributes:
      tasks: all processes, for a worker that has joined; a process that has joined, for the others.
    """

    tasks: Annotated[tuple[Task, ...], Meta(max_length=1 << 16)]


class PartData(Message, frozen=True):
    """Share of a device in a program.

    Attributes:
      device: the full name of the device.
      data: the part or the share.
    """

    device: Name
    data: Blob


class PrepareProgram(Message, frozen=True):
    """The parts of a step that a worker will run. The answer is `ProgramPrepared`.

    `StartStep` may follow at once; the step begins when the program is prepared.

    Attributes:
      program: the number of the program, which belongs to the master.
      parts: the parts (`partition.codec`), or the shares (`dist.step_codec`).
      edges: the keys of the edges between all devices of the step, in the order of their numbers in tokens.
      is_divided: whether they are shares.
      is_interpreted: whether the worker runs each node by itself, without fused regions.
      is_partial: whether the feeds arrive in several messages.
      may_be_apart: whether operations of unknown size are kept out of fused regions (`execute.plan.may_be_heavy`).
    """

    program: Number
    parts: Annotated[tuple[PartData, ...], Meta(max_length=4096)]
    edges: Annotated[tuple[Text, ...], Meta(max_length=1 << 22)] = ()
    is_divided: bool = False
    is_interpreted: bool = False
    is_partial: bool = False
    may_be_apart: bool = True


class ProgramPrepared(Message, frozen=True):
    """A worker has compiled a program, or failed to.

    Attributes:
      program: the number of the program.
      error: the error; None: none.
    """

    program: Number
    error: Data = None


class DropProgram(Message, frozen=True):
    """The master will not start this program again.

    Attributes:
      program: the number of the program.
    """

    program: Number


class StartStep(Message, frozen=True):
    """A worker begins its parts of a step. The values of some feeds follow.

    Attributes:
      step: the number of the step, unique among all masters.
      program: the number of the program.
      session: the number of the session, whose states its kernels use. Sessions may share a program.
      feeds: positions of the feeds.
      is_fed: whether all feeds of the step have been supplied.
      ended: numbers of steps that are over, as in `EndSteps`.
      tracing: as in `RunStep`.
      is_local: whether the client is in the process of the master. It counts only from the master of the worker's own
        process.
      check: as in `RunStep`.
      values_of: as in `RunStep`.
    """

    step: Number
    program: Number
    session: Number
    feeds: Positions = ()
    is_fed: bool = True
    ended: Steps = ()
    tracing: Number = 0
    is_local: bool = False
    check: Number = 0
    values_of: Names = ()


class ResumeStep(Message, frozen=True):
    """Further feeds of a partial run. Their values follow.

    Attributes:
      step: the number of the step.
      feeds: positions of the feeds.
      is_fed: whether all feeds of the step have been supplied.
    """

    step: Number
    feeds: Positions
    is_fed: bool


class Order(Message, frozen=True):
    """Instruction of `execute.step_state` to one part.

    Attributes:
      kind: "start", "release" or "probe".
      part: the device of the part.
      number: the number of the order, or of the wave.
    """

    kind: Name
    part: Name
    number: Number


class Orders(Message, frozen=True):
    """Instructions to the parts of a step on one worker.

    Attributes:
      step: the number of the step.
      orders: the instructions, in order.
    """

    step: Number
    orders: Annotated[tuple[Order, ...], Meta(max_length=1 << 16)]


class AbortStep(Message, frozen=True):
    """Ends the parts of a step on one worker.

    Attributes:
      step: the number of the step.
      error: the error with which they end.
    """

    step: Number
    error: Data


class EndSteps(Message, frozen=True):
    """Steps are over on all workers, so a worker can drop their state.

    Attributes:
      steps: the numbers of the steps.
    """

    steps: Steps


class DropSession(Message, frozen=True):
    """A session is closed, so a worker can drop the states of its kernels.

    Attributes:
      session: the number of the session.
    """

    session: Number


class PartIdle(Message, frozen=True):
    """Event `execute.step_state.Idle`, whose attributes it has."""

    part: Name
    epoch: Number
    order: Number
    wave: Number
    sent: Number
    arrived: Number
    releasable: Number
    is_waiting: bool
    waits: Annotated[tuple[Text, ...], Meta(max_length=MOST_WAITS)]


class PartFinished(Message, frozen=True):
    """Event `execute.step_state.Finished`, whose attributes it has."""

    part: Name
    epoch: Number
    wave: Number
    sent: Number
    arrived: Number


class PartFailed(Message, frozen=True):
    """Event `execute.step_state.Failed`, whose attributes it has; the error is data."""

    part: Name
    error: Data


class Report(Message, frozen=True):
    """Events of the parts of a step on one worker. Fetched values follow.

    Attributes:
      step: the number of the step.
      events: the events, in order.
      fetches: positions of the fetches that are new; a value follows for each one that is alive.
      dead: for each of `fetches` None, or the error that says why it has no value, as data; empty if all have one.
      trace: events of the step since the last report (`dist.tracing`), if it is traced.
    """

    step: Number
    events: Annotated[tuple[PartIdle | PartFinished | PartFailed, ...], Meta(max_length=1 << 16)]
    fetches: Positions = ()
    dead: Annotated[tuple[Data, ...], Meta(max_length=1 << 20)] = ()
    trace: Trace = ()


AnyMessage: TypeAlias = (
    Challenge
    | Hello
    | Welcome
    | Refused
    | Reply
    | Failure
    | OpenSession
    | CompileStep
    | RunStep
    | ResumeRun
    | CancelRun
    | CloseSession
    | ClearContainers
    | Describe
    | Topology
    | PrepareProgram
    | ProgramPrepared
    | DropProgram
    | StartStep
    | ResumeStep
    | Orders
    | AbortStep
    | EndSteps
    | DropSession
    | Report
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: AnyMessage) -> bytes:
    """Returns a message as bytes.

    Example:
      >>> decode(encode(Describe(7)))
      Describe(call=7)
    """
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> AnyMessage:
    """Returns the message that `encode` has turned into bytes.

    Raises:
      DataLossError: the bytes are no message of this version.
    """
    try:
        message: AnyMessage = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise DataLossError(f"{len(data)} bytes are no message: {e}") from e
    return message
