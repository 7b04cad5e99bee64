"""The server: address, limits, devices, and the end of sessions whose clients are gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import TYPE_CHECKING, Any, Final

from headrace import thresholds
from headrace.errors import UnavailableError, UnimplementedError
from headrace.file_access import FileAccess
from headrace.master_service.sessions import Sessions
from headrace.master_service.target import IsolatedTarget, SharedTarget
from headrace.session_config import read_config
from headrace.target import connectable

if TYPE_CHECKING:
    from headrace.target import Connectable

_STOP_SECONDS: Final = 5.0  # the longest wait of `stop` for the calls of closed sessions, in seconds


class Server:
    """Server of TensorFlow's master service, for unmodified TensorFlow clients.

    The server starts when it is made, or at `start`. All sessions share its variables, queues and tables until a client
    resets them. Its kernels use no files unless `files` names a folder. The protocol has neither passwords nor
    encryption: a process that reaches the port can run any graph.

    Args:
      port: the port; 0: a free one.
      target: a cluster on which the steps run: an address ("headrace://host:port"), an `hr.Server`, or the result of
        `hr.cluster.local`; None: this process.
      host: the address on which the server listens.
      devices: number of devices of each type in this process, such as {"CPU": 2}.
      memory_limit: bytes of values on each device of this process; None: no limit.
      job: the job in the names of the devices of this process.
      files: the folder whose files kernels of this process may use; None: none. Workers of a cluster have their own
        limits.
      largest_message: the largest request and response, in bytes; None: `thresholds.CLIENT_MESSAGE`.
      most_sessions: the largest number of open sessions; None: `thresholds.CLIENT_SESSIONS`.
      idle_seconds: time without calls after which a session ends; None: `thresholds.IDLE_CLIENT`.

    Raises:
      UnavailableError: the port is in use.
      ValueError: a folder that does not exist, or a malformed argument.
      ImportError: grpcio is not installed.

    Source: TensorFlow's `tf.distribute.Server`, and its `MasterService`.

    Example:
      >>> import headrace as hr
      >>> with hr.master_service.Server() as server:
      ...     server.target == f"grpc://localhost:{server.port}"
      True
    """

    def __init__(
        self,
        port: int = 0,
        target: str | Connectable | None = None,
        *,
        host: str = "127.0.0.1",
        devices: Mapping[str, int] | None = None,
        memory_limit: int | None = None,
        job: str = "localhost",
        files: str | os.PathLike[str] | None = None,
        largest_message: int | None = None,
        most_sessions: int | None = None,
        idle_seconds: float | None = None,
    ) -> None:
        if target and (devices is not None or memory_limit is not None or files is not None):
            raise ValueError("devices=, memory_limit= and files= are for steps in this process; a cluster has its own")
        try:
            import grpc
        except ImportError as e:
            raise ImportError(
                "the master service needs gRPC's library, which is not installed: pip install 'headrace[grpc]'"
            ) from e
        from headrace.master_service.service import MasterService

        size = thresholds.CLIENT_MESSAGE if largest_message is None else largest_message
        idle = thresholds.IDLE_CLIENT if idle_seconds is None else idle_seconds
        most = thresholds.CLIENT_SESSIONS if most_sessions is None else most_sessions
        if size < 1 or most < 1 or not idle > 0:
            raise ValueError("largest_message, most_sessions and idle_seconds must be positive")
        self._cluster = connectable(target) if target else None
        access = FileAccess(files)
        self._local = None if target else SharedTarget(devices, memory_limit, job)
        self._sessions = Sessions(self._target_of, most, idle, size)
        self._calls = futures.ThreadPoolExecutor(thresholds.CLIENT_CALLS, "headrace-client")
        self._server = grpc.server(
            self._calls,
            options=[
                ("grpc.max_receive_message_length", size),
                ("grpc.max_send_message_length", size),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", int(thresholds.CLIENT_PROBE * 1000)),
                ("grpc.keepalive_timeout_ms", int(thresholds.CLIENT_PROBE_ANSWER * 1000)),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ],
            maximum_concurrent_rpcs=thresholds.CLIENT_CALLS,
        )
        incarnation = int.from_bytes(os.urandom(7), "little") or 1
        service = MasterService(
            self._sessions, self._reset, None if target else access, incarnation, self._cluster is not None
        )
        self._server.add_generic_rpc_handlers((service.handler(),))
        self._lock = threading.Lock()
        self._is_started = False
        self._is_stopped = False
        self._stopping = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="headrace-client-sweep", daemon=True)
        shown = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{shown}:{port}")
        except RuntimeError as e:
            self._end()
            raise UnavailableError(
                f"cannot listen on {shown}:{port}: {e}. Is another server there? 0 stands for a free port"
            ) from e
        self.target = f"grpc://{'localhost' if host == '127.0.0.1' else shown}:{self.port}"

    def start(self) -> None:
        """Begins to answer. Further calls have no effect."""
        with self._lock:
            if not self._is_started and not self._is_stopped:
                self._is_started = True
                self._server.start()
                self._sweeper.start()

    def stop(self) -> None:
        """Ends all calls and sessions and releases the resources. Further calls have no effect."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        self._stopping.set()
        stopped = self._server.stop(0)
        self._sessions.close_all(is_final=True)
        stopped.wait(_STOP_SECONDS)
        if self._sweeper.is_alive():
            self._sweeper.join(_STOP_SECONDS)
        self._end()

    def _end(self) -> None:
        self._calls.shutdown(wait=False, cancel_futures=True)
        if self._local is not None:
            self._local.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until `stop` or `request_stop` is called.

        Args:
          timeout: seconds; None: no limit.

        Returns:
          Whether it was called.
        """
        return self._stopping.wait(timeout)

    def request_stop(self) -> None:
        """Ends `wait`. A signal handler may call it."""
        self._stopping.set()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # *** sessions ***

    def _target_of(self, is_isolated: bool) -> Connectable:
        if self._local is not None:
            return IsolatedTarget(self._local) if is_isolated else self._local
        if is_isolated:
            raise UnimplementedError(
                "isolate_session_state: the sessions of a cluster share the variables of its workers; leave it out, "
                "and make the variables of this session in a container of their own (`tf.container`)"
            )
        assert self._cluster is not None
        return self._cluster

    def _reset(self, names: Sequence[str]) -> None:
        if self._local is not None:
            self._local.reset(names)
            return
        assert self._cluster is not None
        settings: Any = read_config(None)
        target = self._cluster.connect(settings.placement, settings.device_filters)
        try:
            target.reset(names)
        finally:
            target.close()

    def _sweep(self) -> None:
        while not self._stopping.wait(thresholds.CLIENT_SWEEP):
            self._sessions.sweep()
