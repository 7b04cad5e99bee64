"""TensorFlow 1's `tf.contrib.learn`: the names that programs use without its estimators."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.records import record
from headrace.v1.contrib import equivalents
from headrace.v1.estimator import modes


class ModeKeys(modes.ModeKeys):
    """Modes of a model: training, evaluation and inference.

    Source: TensorFlow's `tf.contrib.learn.ModeKeys`.
    """

    INFER = modes.ModeKeys.PREDICT

    @classmethod
    def validate(cls, key: str) -> None:
        """Checks that `key` is a mode.

        Raises:
          ValueError: it is not.
        """
        if key not in (cls.TRAIN, cls.EVAL, cls.INFER):
            raise ValueError(f"Invalid mode {key}.")


class TaskType:
    """Kinds of tasks of a cluster. Source: TensorFlow's `tf.contrib.learn.TaskType`."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"


class Environment:
    """Environments of a cluster. Source: TensorFlow's `tf.contrib.learn.Environment`."""

    CLOUD = "cloud"
    GOOGLE = "google"
    LOCAL = "local"


@record
class RunConfig:
    """Settings of a training program, as plain fields.

    Attributes:
      master: address of the master.
      num_cores: number of cores.
      log_device_placement: whether placements are logged.
      gpu_memory_fraction: fraction of the memory of a GPU.
      tf_random_seed: seed of the graph.
      save_summary_steps: number of steps between summaries.
      save_checkpoints_secs: seconds between checkpoints.
      save_checkpoints_steps: number of steps between checkpoints.
      keep_checkpoint_max: largest number of checkpoints that are kept.
      keep_checkpoint_every_n_hours: hours between the checkpoints that are kept beyond that number.
      log_step_count_steps: number of steps between logged rates.
      protocol: accepted as in TensorFlow.
      evaluation_master: address of the master for evaluation.
      model_dir: folder of checkpoints.
      session_config: a `tf.ConfigProto`.

    Source: TensorFlow's `tf.contrib.learn.RunConfig`.
    """

    master: str | None = None
    num_cores: int = 0
    log_device_placement: bool = False
    gpu_memory_fraction: float = 1.0
    tf_random_seed: int | None = None
    save_summary_steps: int = 100
    save_checkpoints_secs: float | None = 600
    save_checkpoints_steps: int | None = None
    keep_checkpoint_max: int = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int = 100
    protocol: str | None = None
    evaluation_master: str = ""
    model_dir: str | os.PathLike[str] | None = None
    session_config: Any = None


__all__ = ["Environment", "ModeKeys", "RunConfig", "TaskType"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
