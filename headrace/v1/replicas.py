"""TensorFlow 1's programs for several workers: `ClusterSpec`, `SyncReplicasOptimizer` and `Supervisor` of `tf.train`.

The implementation is that of `headrace.dist` and `headrace.train`, for the default graph and its collections.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.dist import cluster_spec
from headrace.train import supervisor
from headrace.train.optimizers import sync_replicas
from headrace.v1.graph import GraphKeys, in_default_graph
from headrace.v1.monitored import Scaffold, SessionManager
from headrace.v1.optimizers import Optimizer
from headrace.v1.queue_runner import QueueRunner
from headrace.v1.saver import Saver
from headrace.v1.summary import FileWriter
from headrace.v1.variables import Variable


class ClusterSpec(cluster_spec.ClusterSpec):
    """Jobs of a cluster, with the address of each task. See `headrace.cluster.ClusterSpec`.

    Source: TensorFlow's `tf.train.ClusterSpec`.
    """

    def as_cluster_def(self) -> Any:
        """Returns the cluster as a `ClusterDef` message.

        Example:
          >>> ClusterSpec({"ps": ["host0:2222"]}).as_cluster_def().job[0].tasks[0]
          'host0:2222'
        """
        from headrace.interchange.cluster_defs import cluster_def  # here: the messages take long to load

        return cluster_def(self)


class _ChiefQueueRunner(sync_replicas.ChiefQueueRunner, QueueRunner):
    """See `headrace.train.optimizers.sync_replicas.ChiefQueueRunner`."""


class SyncReplicasOptimizer(sync_replicas.SyncReplicasOptimizer, Optimizer):
    """Optimizer that applies the mean gradient of several workers. See `headrace.train.SyncReplicasOptimizer`.

    The step of a worker is in GraphKeys.LOCAL_VARIABLES.

    Source: TensorFlow's `tf.train.SyncReplicasOptimizer`.
    """

    runner_class = _ChiefQueueRunner

    compute_gradients = in_default_graph(sync_replicas.SyncReplicasOptimizer.compute_gradients)  # type: ignore[arg-type]
    variables = in_default_graph(sync_replicas.SyncReplicasOptimizer.variables)  # type: ignore[arg-type]

    @in_default_graph
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """See `headrace.train.SyncReplicasOptimizer.apply_gradients`."""
        return sync_replicas.SyncReplicasOptimizer.apply_gradients(self, grads_and_vars, global_step, name)

    def _make_local(self, initial: Any, name: str) -> Any:
        return Variable(initial, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES], name=name)


class Supervisor(supervisor.Supervisor):
    """Prepares and supervises the session of a training program. See `headrace.train.Supervisor`.

    Arguments that are not given are elements of collections of the graph (READY_OP, READY_FOR_LOCAL_INIT_OP, INIT_OP,
    LOCAL_INIT_OP, SUMMARY_OP, SAVERS, GLOBAL_STEP), or are created and added to them.

    Source: TensorFlow's `tf.train.Supervisor`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     step = tf.train.get_or_create_global_step()
      ...     count = tf.assign_add(step, 1)
      ...     sv = tf.train.Supervisor()
      ...     with sv.managed_session() as sess:
      ...         while not sv.should_stop():
      ...             if sess.run(count) == 3:
      ...                 sv.request_stop()
      ...         tf.train.global_step(sess, step)
      3
    """

    scaffold_class = Scaffold
    manager_class = SessionManager
    writer_class = FileWriter

    __init__ = in_default_graph(supervisor.Supervisor.__init__)

    def _make_saver(self) -> Any:
        return Saver()

    # older names
    PrepareSession = supervisor.Supervisor.prepare_or_wait_for_session
    StartStandardServices = supervisor.Supervisor.start_standard_services
    StartQueueRunners = supervisor.Supervisor.start_queue_runners
    Loop = supervisor.Supervisor.loop
    Stop = supervisor.Supervisor.stop
    RequestStop = supervisor.Supervisor.request_stop
    ShouldStop = supervisor.Supervisor.should_stop
    StopOnException = supervisor.Supervisor.stop_on_exception
    WaitForStop = supervisor.Supervisor.wait_for_stop
    SummaryComputed = supervisor.Supervisor.summary_computed


__all__ = ["Supervisor", "SyncReplicasOptimizer"]
