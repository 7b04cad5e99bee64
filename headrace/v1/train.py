"""TensorFlow 1's `tf.train`: optimizers, savers, monitored sessions, input through queues; graphs in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.train import coordinator
from headrace.train.device_setter import GreedyLoadBalancingStrategy, byte_size_load_fn, replica_device_setter
from headrace.train.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProfilerHook,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from headrace.train.supervisor import basic_train_loop
from headrace.v1 import loss_scales as experimental
from headrace.v1 import queue_runner as queue_runner
from headrace.v1.averages import ExponentialMovingAverage
from headrace.v1.checkpoints import (
    NewCheckpointReader,
    checkpoint_exists,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    init_from_checkpoint,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
    remove_checkpoint,
    update_checkpoint_state,
)
from headrace.v1.exporting import export_meta_graph, write_graph
from headrace.v1.global_step import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from headrace.v1.importing import import_meta_graph
from headrace.v1.input import (
    batch,
    batch_join,
    input_producer,
    limit_epochs,
    match_filenames_once,
    maybe_batch,
    maybe_batch_join,
    maybe_shuffle_batch,
    maybe_shuffle_batch_join,
    range_input_producer,
    shuffle_batch,
    shuffle_batch_join,
    slice_input_producer,
    string_input_producer,
)
from headrace.v1.learning_rates import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    noisy_linear_cosine_decay,
    piecewise_constant,
    piecewise_constant_decay,
    polynomial_decay,
)
from headrace.v1.monitored import (
    ChiefSessionCreator,
    MonitoredSession,
    MonitoredTrainingSession,
    Scaffold,
    SessionCreator,
    SessionManager,
    SingularMonitoredSession,
    WorkerSessionCreator,
)
from headrace.v1.optimizers import (
    AdadeltaOptimizer,
    AdagradDAOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    ProximalAdagradOptimizer,
    ProximalGradientDescentOptimizer,
    RMSPropOptimizer,
)
from headrace.v1.queue_runner import QueueRunner, add_queue_runner, start_queue_runners
from headrace.v1.replicas import ClusterSpec, Supervisor, SyncReplicasOptimizer
from headrace.v1.saver import Saver
from headrace.v1.summary import summary_iterator

Coordinator = coordinator.Coordinator
LooperThread = coordinator.LooperThread

if TYPE_CHECKING:
    from headrace.dist.server import Server
    from headrace.pb import (
        BytesList,
        CheckpointState,
        ClusterDef,
        Example,
        Feature,
        FeatureList,
        FeatureLists,
        Features,
        FloatList,
        Int64List,
        JobDef,
        QueueRunnerDef,
        SaverDef,
        SequenceExample,
        ServerDef,
        SessionLog,
    )  # fmt: skip

# Imported on first use: messages, which take long to load, and what imports sockets.
_LATER = {
    **{
        name: f"headrace.pb:{name}"
        for name in (
            "BytesList",
            "CheckpointState",
            "ClusterDef",
            "Example",
            "Feature",
            "FeatureList",
            "FeatureLists",
            "Features",
            "FloatList",
            "Int64List",
            "JobDef",
            "QueueRunnerDef",
            "SaverDef",
            "SequenceExample",
            "ServerDef",
            "SessionLog",
        )
    },
    "Server": "headrace.dist.server:Server",
}

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "BytesList",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointState",
    "ChiefSessionCreator",
    "ClusterDef",
    "ClusterSpec",
    "Coordinator",
    "Example",
    "ExponentialMovingAverage",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FeedFnHook",
    "FinalOpsHook",
    "FloatList",
    "FtrlOptimizer",
    "GlobalStepWaiterHook",
    "GradientDescentOptimizer",
    "GreedyLoadBalancingStrategy",
    "Int64List",
    "JobDef",
    "LoggingTensorHook",
    "LooperThread",
    "MomentumOptimizer",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "NewCheckpointReader",
    "Optimizer",
    "ProfilerHook",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "QueueRunner",
    "QueueRunnerDef",
    "RMSPropOptimizer",
    "Saver",
    "SaverDef",
    "Scaffold",
    "SecondOrStepTimer",
    "SequenceExample",
    "Server",
    "ServerDef",
    "SessionCreator",
    "SessionLog",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "SyncReplicasOptimizer",
    "WorkerSessionCreator",
    "add_queue_runner",
    "assert_global_step",
    "basic_train_loop",
    "batch",
    "batch_join",
    "byte_size_load_fn",
    "checkpoint_exists",
    "cosine_decay",
    "cosine_decay_restarts",
    "create_global_step",
    "experimental",
    "exponential_decay",
    "export_meta_graph",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "import_meta_graph",
    "init_from_checkpoint",
    "input_producer",
    "inverse_time_decay",
    "latest_checkpoint",
    "limit_epochs",
    "linear_cosine_decay",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "match_filenames_once",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "queue_runner",
    "range_input_producer",
    "remove_checkpoint",
    "replica_device_setter",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "start_queue_runners",
    "string_input_producer",
    "summary_iterator",
    "update_checkpoint_state",
    "write_graph",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
