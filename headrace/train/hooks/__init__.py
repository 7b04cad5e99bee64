"""Hooks of monitored sessions. `base` defines the interface; the other modules have the hooks."""

from headrace.train.hooks.base import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from headrace.train.hooks.profiling import ProfilerHook
from headrace.train.hooks.progress import ProgressHook
from headrace.train.hooks.saving import CheckpointSaverHook, CheckpointSaverListener, SummarySaverHook
from headrace.train.hooks.signals import StopOnSignalHook
from headrace.train.hooks.stepping import GlobalStepWaiterHook, StepCounterHook, StopAtStepHook
from headrace.train.hooks.watching import (
    FeedFnHook,
    FinalOpsHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
)

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "ProgressHook",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "StopOnSignalHook",
    "SummarySaverHook",
]
