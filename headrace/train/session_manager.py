"""Creation of sessions with restored or initialized variables, and waiting for them.

The chief of a cluster prepares the variables (`prepare_session`), and the other workers wait for it
(`wait_for_session`). A server that cannot be reached is a reason to wait, too, because it may be about to start.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import session as sessions
from headrace.errors import DeadlineExceededError, FailedPreconditionError
from headrace.ir.graph import Graph
from headrace.train.global_step import root_of
from headrace.train.hooks.base import log
from headrace.train.recovery import PREEMPTION

MOST_WAIT = 7200.0  # seconds
PAUSE = 30.0  # between two checks, in seconds


class SessionManager:
    """Creates sessions that are ready for training.

    Args:
      local_init_op: operation that is run in every new session (for tables and local variables), or None.
      ready_op: string vector with the names of uninitialized variables. The session is ready if the vector is empty.
        None: the session is always ready.
      ready_for_local_init_op: a vector like `ready_op`, evaluated before `local_init_op` is run.
      graph: the graph. None: the current graph.
      recovery_wait_secs: seconds between two checks, when a method waits.
      local_init_run_options: `RunOptions` of `local_init_op`.
      local_init_feed_dict: feeds of `local_init_op`.
      sleep: function that waits a number of seconds.

    Raises:
      ValueError: there is a `ready_for_local_init_op` but no `local_init_op`.

    Source: TensorFlow's `tf.train.SessionManager`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(3.0)
      ...     init = hr.variables_initializer([v])
      >>> with hr.train.SessionManager(graph=g).prepare_session(init_op=init) as session:
      ...     session.run(v)
      np.float32(3.0)
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Graph | None = None,
        recovery_wait_secs: float = PAUSE,
        local_init_run_options: Any = None,
        local_init_feed_dict: Any = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError("If you pass a ready_for_local_init_op you must also pass a local_init_op")
        self._local_init = local_init_op
        self._ready = ready_op
        self._ready_for_local_init = ready_for_local_init_op
        self._graph: Any = root_of(graph)
        self._pause = recovery_wait_secs
        self._local_options = local_init_run_options
        self._local_feed = local_init_feed_dict
        self._sleep = sleep

    def _new_session(self, master: str, config: Any) -> Any:
        return sessions.Session(master, self._graph, config)

    def prepare_session(
        self,
        master: str = "",
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float | None = MOST_WAIT,
        config: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Any], object] | None = None,
    ) -> Any:
        """Returns a session whose variables are restored from the newest checkpoint, or initialized.

        Args:
          master: target of the session. "" is this process.
          init_op: operation that initializes the variables if there is no checkpoint.
          saver: saver that restores the variables. None: they are not restored.
          checkpoint_dir: folder of the checkpoints.
          checkpoint_filename_with_path: prefix of one checkpoint, in place of `checkpoint_dir`.
          wait_for_checkpoint: whether to wait for a checkpoint in `checkpoint_dir`.
          max_wait_secs: longest wait for a checkpoint in seconds. None: two hours.
          config: configuration of the session.
          init_feed_dict: feeds of `init_op`.
          init_fn: function that is called with the session after `init_op`.

        Raises:
          RuntimeError: there is nothing to initialize with; or a variable is still uninitialized, and the text names
            it.
          ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path` are given.
          NotFoundError, DataLossError: see `Saver.restore`.
        """
        session, is_restored = self._restored(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        try:
            if not is_restored:
                if init_op is None and init_fn is None and self._local_init is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                if init_op is not None:
                    session.run(init_op, feed_dict=init_feed_dict)
                if init_fn is not None:
                    init_fn(session)
            how = f"Init op: {getattr(init_op, 'name', init_op)}, init fn: {init_fn}"
            if is_restored:
                how = "restored from a checkpoint"
            missing = self._initialize_locally(session)
            if missing is not None:
                raise RuntimeError(f"Init operations did not make model ready for local_init. {how}, error: {missing}")
            missing = missing_variables(self._ready, session)
            if missing is not None:
                local = getattr(self._local_init, "name", self._local_init)
                raise RuntimeError(
                    f"Init operations did not make model ready. {how}, local_init_op: {local}, error: {missing}"
                )
        except BaseException:
            _discard(session)
            raise
        return session

    def recover_session(
        self,
        master: str = "",
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float | None = MOST_WAIT,
        config: Any = None,
    ) -> tuple[Any, bool]:
        """Returns a session, and whether it is restored from a checkpoint and ready.

        Args:
          master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config: see
            `prepare_session`.
        """
        session, is_restored = self._restored(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        try:
            missing = self._initialize_locally(session)
            if is_restored and missing is None:
                missing = missing_variables(self._ready, session)
        except BaseException:
            _discard(session)
            raise
        if is_restored and missing is not None:
            where = checkpoint_dir or checkpoint_filename_with_path
            log.info("Restoring model from %s did not make model ready: %s", where, missing)
        return session, is_restored and missing is None

    def wait_for_session(self, master: str = "", config: Any = None, max_wait_secs: float | None = MOST_WAIT) -> Any:
        """Waits until another session has initialized the variables, and returns a session.

        It also waits for servers that are not available (`UnavailableError`, `AbortedError`).

        Args:
          master, config: see `prepare_session`.
          max_wait_secs: longest wait in seconds. None: two hours. (TensorFlow has no limit then.)

        Raises:
          DeadlineExceededError: the session was not ready in this time; the text names the uninitialized variables.
        """
        most = MOST_WAIT if max_wait_secs is None else max_wait_secs
        waiting = _Waiting(self._sleep)
        while True:
            session = None
            try:
                session = self._new_session(master, config)
                missing = self._initialize_locally(session)
                if missing is None:
                    missing = missing_variables(self._ready, session)
                if missing is None:
                    return session
            except PREEMPTION as e:
                missing = f"{type(e).__name__}: {e}"
            except BaseException:
                _discard(session)
                raise
            _discard(session)
            if waiting.seconds() + self._pause > most:
                hint = "; in one process each session has variables of its own, so use a ChiefSessionCreator there"
                raise DeadlineExceededError(
                    f"Session was not ready after waiting {most:g} secs: {missing}. A worker waits for the chief to "
                    f"initialize what they share{'' if master else hint}"
                )
            log.info("Waiting for model to be ready: %s", missing)
            waiting.wait(self._pause)

    def _restored(
        self,
        master: str,
        saver: Any,
        folder: Any,
        path: Any,
        waits: bool,
        max_wait_secs: float | None,
        config: Any,
    ) -> tuple[Any, bool]:
        """Returns a session, and whether its variables have been restored."""
        if folder and path:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        session = self._new_session(master, config)
        if saver is None or not (folder or path):
            return session, False
        try:
            if path:
                saver.restore(session, path)
                log.info("Restored model from %s", path)
                return session, True
            waiting, most = _Waiting(self._sleep), MOST_WAIT if max_wait_secs is None else max_wait_secs
            while (found := saver.restore_latest(session, folder)) is None:
                if not waits or waiting.seconds() >= most:
                    return session, False
                log.info("Waiting for checkpoint to be available.")
                waiting.wait(self._pause)
            log.info("Restored model from %s", found)
        except BaseException:
            _discard(session)
            raise
        return session, True

    def _initialize_locally(self, session: Any) -> str | None:
        """Runs `local_init_op`. Returns the reason why it cannot run, or None."""
        if self._local_init is None:
            return None
        missing = missing_variables(self._ready_for_local_init, session)
        if missing is None:
            session.run(self._local_init, feed_dict=self._local_feed, options=self._local_options)
        return missing


class _Waiting:
    """Duration of a wait, which is at least the sum of its pauses.

    Args:
      sleep: function that waits a number of seconds.
    """

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._slept = 0.0
        self._begin = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Waits a number of seconds."""
        self._sleep(seconds)
        self._slept += seconds

    def seconds(self) -> float:
        """Returns the seconds since the beginning."""
        return max(self._slept, time.monotonic() - self._begin)


def _discard(session: Any) -> None:
    """Closes a session that is not needed. Errors, as of a lost server, are ignored."""
    if session is not None:
        with contextlib.suppress(Exception):
            session.close()


def missing_variables(ready_op: Any, session: Any) -> str | None:
    """Returns a text with the names of uninitialized variables, or None if there are none.

    Args:
      ready_op: string vector with the names. None: there are none.
      session: the session in which it is evaluated.
    """
    if ready_op is None:
        return None
    try:
        names = session.run(ready_op)
    except FailedPreconditionError as e:
        if "uninitialized" not in str(e):
            raise
        return str(e)
    if names is None or np.asarray(names).dtype == np.int32 or np.size(names) == 0:
        return None
    shown = ", ".join(n.decode(errors="replace") if isinstance(n, bytes) else str(n) for n in np.ravel(names))
    return "Variables not initialized: " + shown
