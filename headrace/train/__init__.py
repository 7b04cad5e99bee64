"""Training: optimizers, checkpoints, monitored sessions, input, and event files for TensorBoard.

`optimizers` change variables by gradients, with `schedules`, `averages` and `loss_scaling`. `saving` writes and reads
checkpoints. `monitored` is a session that runs `hooks` around its steps, saves, stops and recovers; its parts are
`scaffold`, `session_manager` and `recovery`. `supervisor` is TensorFlow's older form of it. `device_setter` puts
variables on parameter servers. `input` reads data through queues. Threads fill the queues (`queue_runner`) and stop
together (`coordinator`). `event_writer` writes files for TensorBoard, and `curves` draws them.
"""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.train.averages import ExponentialMovingAverage
from headrace.train.coordinator import Coordinator, LooperThread
from headrace.train.curves import plot_events, scalars_of
from headrace.train.device_setter import GreedyLoadBalancingStrategy, byte_size_load_fn, replica_device_setter
from headrace.train.event_writer import FileWriter, FileWriterCache
from headrace.train.global_step import create_global_step, get_global_step, get_or_create_global_step
from headrace.train.hooks import *  # noqa: F403
from headrace.train.hooks import __all__ as _hooks
from headrace.train.input import *  # noqa: F403
from headrace.train.input import __all__ as _input
from headrace.train.loss_scaling import DynamicLossScale, FixedLossScale, LossScale, LossScaleOptimizer
from headrace.train.monitored import MonitoredSession, MonitoredTrainingSession, SingularMonitoredSession
from headrace.train.optimizers import *  # noqa: F403
from headrace.train.optimizers import __all__ as _optimizers
from headrace.train.queue_runner import QueueRunner
from headrace.train.recovery import Recovery
from headrace.train.saving import *  # noqa: F403
from headrace.train.saving import __all__ as _saving
from headrace.train.scaffold import ChiefSessionCreator, Scaffold, SessionCreator, WorkerSessionCreator
from headrace.train.schedules import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    LinearCosineDecay,
    NaturalExponentialDecay,
    NoisyLinearCosineDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
    Schedule,
)
from headrace.train.session_manager import SessionManager
from headrace.train.supervisor import Supervisor, basic_train_loop

__all__ = [
    "ChiefSessionCreator",
    "Coordinator",
    "CosineDecay",
    "CosineDecayRestarts",
    "DynamicLossScale",
    "ExponentialDecay",
    "ExponentialMovingAverage",
    "FileWriter",
    "FileWriterCache",
    "FixedLossScale",
    "GreedyLoadBalancingStrategy",
    "InverseTimeDecay",
    "LinearCosineDecay",
    "LooperThread",
    "LossScale",
    "LossScaleOptimizer",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NaturalExponentialDecay",
    "NoisyLinearCosineDecay",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "QueueRunner",
    "Recovery",
    "Scaffold",
    "Schedule",
    "SessionCreator",
    "SessionManager",
    "SingularMonitoredSession",
    "Supervisor",
    "WorkerSessionCreator",
    "basic_train_loop",
    "byte_size_load_fn",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "plot_events",
    "replica_device_setter",
    "scalars_of",
]
__all__ += [*_hooks, *_input, *_optimizers, *_saving]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
