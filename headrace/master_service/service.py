"""Methods of `tensorflow.MasterService`: from a request in bytes to a response or a status.

A method that fails sends the code and the text of its error (`conversions.status_of`). Kernels run in the thread of the
call, with the file access of the server. The end of a call before its answer, by the death of its client or by a time
limit of the client, cancels the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc

from headrace import notices
from headrace.file_access import FileAccess, limited
from headrace.master_service.conversions import Status, parsed, shortened, status_of
from headrace.metadata import Cancellation
from headrace.pb import master_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from headrace.master_service.sessions import Sessions

NAME: Final = "tensorflow.MasterService"
_LEFT: Final = "the client has left: its process ended, its connection broke, or its time limit passed"
_LEAST_LEFT: Final = (
    0.05  # seconds before the client's time limit up to which a call counts as broken off by the client
)

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

Method: TypeAlias = "Callable[[Any, _Call], Message]"


class _Call:
    """A call under way.

    Args:
      context: the call as gRPC has it.

    Attributes:
      cancellation: cancels the steps of the call.
    """

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._until = None if context.time_remaining() is None else time.monotonic() + context.time_remaining()
        self._is_answered = False
        self._is_broken = False
        self.cancellation = Cancellation()
        if not context.add_callback(self._ended):
            self._ended()

    def _ended(self) -> None:
        if not self._is_answered:
            # a client whose own time limit has passed is alive
            self._is_broken = self._until is None or time.monotonic() < self._until - _LEAST_LEFT
            self.cancellation.cancel(_LEFT)

    def answered(self) -> None:
        """Marks the result as complete; the end of the call then has no effect."""
        self._is_answered = True

    def was_broken(self) -> bool:
        """Whether the client left before the result was there."""
        return self._is_broken


class MasterService:
    """TensorFlow's master service. Thread-safe.

    Args:
      sessions: the open sessions.
      reset: drops the resources of containers; no names: of all.
      files: the files that kernels may use.
      incarnation: a number that no earlier server has had, by which clients tell a restart.
      is_remote: whether the devices are those of other processes.
    """

    def __init__(
        self,
        sessions: Sessions,
        reset: Callable[[Sequence[str]], None],
        files: FileAccess | None,
        incarnation: int,
        is_remote: bool,
    ) -> None:
        self._sessions = sessions
        self._reset = reset
        self._files = files
        self._incarnation = incarnation
        self._is_remote = is_remote

    def handler(self) -> grpc.GenericRpcHandler:
        """Handler of the methods for a gRPC server."""
        methods: dict[str, tuple[Any, Method]] = {
            "CreateSession": (master_pb2.CreateSessionRequest, self.create_session),
            "ExtendSession": (master_pb2.ExtendSessionRequest, self.extend_session),
            "PartialRunSetup": (master_pb2.PartialRunSetupRequest, self.partial_run_setup),
            "RunStep": (master_pb2.RunStepRequest, self.run_step),
            "CloseSession": (master_pb2.CloseSessionRequest, self.close_session),
            "ListDevices": (master_pb2.ListDevicesRequest, self.list_devices),
            "Reset": (master_pb2.ResetRequest, self.reset),
            "MakeCallable": (master_pb2.MakeCallableRequest, self.make_callable),
            "RunCallable": (master_pb2.RunCallableRequest, self.run_callable),
            "ReleaseCallable": (master_pb2.ReleaseCallableRequest, self.release_callable),
        }
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                name: grpc.unary_unary_rpc_method_handler(self._answering(name, kind, method))
                for name, (kind, method) in methods.items()
            },
        )

    def _answering(self, name: str, kind: Any, method: Method) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        """Returns the function from the bytes of a request to those of the response."""

        def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
            call = _Call(context)
            try:
                with limited(self._files):
                    response = method(parsed(kind, data), call).SerializeToString()
                call.answered()
                return response
            except Exception as e:
                call.answered()
                status = _reported(name, e)
                context.set_code(_CODES[status.code])
                context.set_details(shortened(status.text))
                return b""

        return answer

    def _using(self, handle: str, call: _Call) -> Any:
        return self._sessions.using(handle, call.was_broken)

    # *** the methods ***

    def create_session(self, request: master_pb2.CreateSessionRequest, call: _Call) -> Message:
        """Opens a session for a graph."""
        session = self._sessions.open(request.graph_def, request.config)
        return master_pb2.CreateSessionResponse(session_handle=session.handle, graph_version=session.version)

    def extend_session(self, request: master_pb2.ExtendSessionRequest, call: _Call) -> Message:
        """Adds nodes to the graph of a session."""
        with self._using(request.session_handle, call) as session:
            version = session.extend(request.graph_def, request.current_graph_version)
        return master_pb2.ExtendSessionResponse(new_graph_version=version)

    def partial_run_setup(self, request: master_pb2.PartialRunSetupRequest, call: _Call) -> Message:
        """Begins a partial run."""
        with self._using(request.session_handle, call) as session:
            return master_pb2.PartialRunSetupResponse(partial_run_handle=session.set_up_partial_run(request))

    def run_step(self, request: master_pb2.RunStepRequest, call: _Call) -> Message:
        """Runs a step, or a part of a partial run.

        An error is in the response if the request asks for that.
        """
        response = master_pb2.RunStepResponse()
        with self._using(request.session_handle, call) as session:
            try:
                session.run(request, call.cancellation, response)
            except Exception as e:
                if not request.store_errors_in_response_body:
                    raise
                status = _reported("RunStep", e)
                response.ClearField("tensor")
                response.status_code = status.code  # type: ignore[assignment]
                response.status_error_message = status.text
        return response

    def close_session(self, request: master_pb2.CloseSessionRequest, call: _Call) -> Message:
        """Ends a session, with its steps."""
        self._sessions.close(request.session_handle)
        return master_pb2.CloseSessionResponse()

    def list_devices(self, request: master_pb2.ListDevicesRequest, call: _Call) -> Message:
        """Describes the devices of a session."""
        response = master_pb2.ListDevicesResponse()
        with self._using(request.session_handle, call) as session:
            found = list(session.devices())
        for d in found:
            d.incarnation = self._incarnation
        (response.remote_device if self._is_remote else response.local_device).extend(found)
        return response

    def reset(self, request: master_pb2.ResetRequest, call: _Call) -> Message:
        """Ends all sessions and drops the resources of containers, of all if none is named."""
        self._sessions.close_all()
        self._reset(list(request.container))
        return master_pb2.ResetResponse()

    def make_callable(self, request: master_pb2.MakeCallableRequest, call: _Call) -> Message:
        """Compiles a step that is called by a number."""
        with self._using(request.session_handle, call) as session:
            return master_pb2.MakeCallableResponse(handle=session.make_callable(request.options))

    def run_callable(self, request: master_pb2.RunCallableRequest, call: _Call) -> Message:
        """Runs a callable."""
        response = master_pb2.RunCallableResponse()
        with self._using(request.session_handle, call) as session:
            found = session.run_callable(request.handle, request.feed, call.cancellation, response.metadata)
        response.fetch.extend(found)
        return response

    def release_callable(self, request: master_pb2.ReleaseCallableRequest, call: _Call) -> Message:
        """Drops a callable."""
        with self._using(request.session_handle, call) as session:
            session.release_callable(request.handle)
        return master_pb2.ReleaseCallableResponse()


def _reported(method: str, error: Exception) -> Status:
    """Returns the status of an error, and logs a defect of headrace."""
    status = status_of(error)
    if status.is_defect:
        log = notices.listener("master_service", notices.WARNING)
        if log is not None:
            log.warning("%s failed: %s", method, status.text, exc_info=error)
    return status
