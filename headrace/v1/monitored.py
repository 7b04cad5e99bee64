"""TensorFlow 1's monitored sessions, for the default graph and its collections.

The implementation is that of `headrace.train`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.ir.graph import Graph
from headrace.train import monitored, scaffold, session_manager
from headrace.train.monitored import GRACE_SECONDS, USE_DEFAULT
from headrace.train.recovery import Recovery
from headrace.v1.graph import get_default_graph, in_default_graph
from headrace.v1.saver import Saver
from headrace.v1.session import Session

SessionCreator = scaffold.SessionCreator


class Scaffold(scaffold.Scaffold):
    """Operations, functions and saver that training needs apart from the model.

    Those that are not given are elements of collections of the default graph (INIT_OP, READY_OP,
    READY_FOR_LOCAL_INIT_OP, LOCAL_INIT_OP, SUMMARY_OP, SAVERS), or are created and added to them. See
    `headrace.train.Scaffold`.

    Source: TensorFlow's `tf.train.Scaffold`.
    """

    finalize = in_default_graph(scaffold.Scaffold.finalize)
    get_or_default = staticmethod(in_default_graph(scaffold.Scaffold.get_or_default))
    default_local_init_op = staticmethod(in_default_graph(scaffold.Scaffold.default_local_init_op))

    def _make_saver(self) -> Any:
        return Saver(sharded=True, allow_empty=True)


class SessionManager(session_manager.SessionManager):
    """Creates sessions that are ready for training. See `headrace.train.SessionManager`.

    Source: TensorFlow's `tf.train.SessionManager`.
    """

    __init__ = in_default_graph(session_manager.SessionManager.__init__)

    def _new_session(self, master: str, config: Any) -> Any:
        return Session(master, self._graph, config)


class ChiefSessionCreator(scaffold.ChiefSessionCreator):
    """Creates sessions, and restores their variables from the newest checkpoint or initializes them.

    See `headrace.train.ChiefSessionCreator`.

    Source: TensorFlow's `tf.train.ChiefSessionCreator`.
    """

    scaffold_class = Scaffold
    manager_class = SessionManager

    @in_default_graph
    def create_session(self) -> Any:
        """See `SessionCreator.create_session`."""
        return super().create_session()


class WorkerSessionCreator(scaffold.WorkerSessionCreator):
    """Creates sessions whose variables another session initializes, and waits for this.

    See `headrace.train.WorkerSessionCreator`.

    Source: TensorFlow's `tf.train.WorkerSessionCreator`.
    """

    scaffold_class = Scaffold
    manager_class = SessionManager

    @in_default_graph
    def create_session(self) -> Any:
        """See `SessionCreator.create_session`."""
        return super().create_session()


class MonitoredSession(monitored.MonitoredSession):
    """Session for training the default graph. See `headrace.train.MonitoredSession`.

    Source: TensorFlow's `tf.train.MonitoredSession`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     v = tf.get_variable("v", initializer=2.0)
      ...     with tf.train.MonitoredSession() as session:
      ...         session.run(v)
      np.float32(2.0)
    """

    creator_class = ChiefSessionCreator

    def __init__(
        self,
        session_creator: scaffold.SessionCreator | None = None,
        hooks: Iterable[Any] | None = None,
        stop_grace_period_secs: float = GRACE_SECONDS,
        *,
        graph: Graph | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        root = graph if graph is not None else get_default_graph()
        super().__init__(session_creator, hooks, stop_grace_period_secs, graph=root, recovery=recovery)


class SingularMonitoredSession(monitored.SingularMonitoredSession):
    """Session for training the default graph, without recovery, that gives access to its session.

    See `headrace.train.SingularMonitoredSession`.

    Source: TensorFlow's `tf.train.SingularMonitoredSession`.
    """

    creator_class = ChiefSessionCreator

    def __init__(
        self,
        hooks: Iterable[Any] | None = None,
        scaffold: scaffold.Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: Any = None,
        stop_grace_period_secs: float = GRACE_SECONDS,
        checkpoint_filename_with_path: Any = None,
    ) -> None:
        super().__init__(
            hooks, scaffold, master, config, checkpoint_dir, stop_grace_period_secs, checkpoint_filename_with_path,
            graph=get_default_graph(),
        )  # fmt: skip


def MonitoredTrainingSession(
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: Any = None,
    scaffold: scaffold.Scaffold | None = None,
    hooks: Iterable[Any] | None = None,
    chief_only_hooks: Iterable[Any] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = GRACE_SECONDS,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float | None = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: Any = None,
    save_graph_def: bool = True,
    *,
    recovery: Recovery | None = None,
    stop_on_signal: bool = False,
) -> MonitoredSession:
    """Returns a `MonitoredSession` that restores and saves checkpoints and writes summaries.

    See `headrace.train.MonitoredTrainingSession`, which describes the parameters. The graph is the default graph.

    Source: TensorFlow's `tf.train.MonitoredTrainingSession`.
    """
    made: MonitoredSession = monitored.training_session_of(
        MonitoredSession, ChiefSessionCreator, WorkerSessionCreator, get_default_graph(), recovery, stop_on_signal,
        master, is_chief, checkpoint_dir, scaffold, hooks, chief_only_hooks, save_checkpoint_secs, save_summaries_steps,
        save_summaries_secs, config, stop_grace_period_secs, log_step_count_steps, max_wait_secs, save_checkpoint_steps,
        summary_dir, save_graph_def,
    )  # fmt: skip
    return made
