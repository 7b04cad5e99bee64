"""Settings of an estimator: folders, periods of checkpoints and summaries, the session."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from headrace import flags
from headrace.errors import UnimplementedError
from headrace.train.monitored import USE_DEFAULT

_SECONDS: Final = 600  # TensorFlow's default period of checkpoints


class RunConfig:
    """Settings of an estimator.

    The program runs in this process: the environment variable TF_CONFIG may give `model_dir` and the task, and no
    cluster.

    Args:
      model_dir: folder of checkpoints and summaries.
      tf_random_seed: seed of the graphs.
      save_summary_steps: period of summaries in steps. None: no summaries.
      save_checkpoints_steps, save_checkpoints_secs: period of checkpoints in steps or in seconds. None: never. If
        neither is given: 600 seconds.
      session_config: a `tf.ConfigProto`. None: one that allows soft placement.
      keep_checkpoint_max: largest number of checkpoints that are kept. None or 0: no limit.
      keep_checkpoint_every_n_hours: period in hours; one checkpoint of each period is kept forever.
      log_step_count_steps: period in steps of logging the loss and the steps per second. None: never.
      train_distribute, eval_distribute, experimental_distribute: distribution strategies; must be None.
      device_fn: function from an operation to its device, or a device, for the graphs.
      protocol: accepted as in TensorFlow, without effect.
      experimental_max_worker_delay_secs: accepted as in TensorFlow, without effect.
      session_creation_timeout_secs: longest wait in seconds for a session.
      checkpoint_save_graph_def: whether the graph is saved with the checkpoints.

    Raises:
      ValueError: an argument has a wrong value, or both periods of checkpoints are given.
      UnimplementedError: a distribution strategy is given, or TF_CONFIG has a cluster.

    Source: TensorFlow 1's `tf.estimator.RunConfig`.

    Example:
      >>> from headrace.v1.estimator import RunConfig
      >>> config = RunConfig(save_checkpoints_steps=50).replace(model_dir="m")
      >>> config.save_checkpoints_steps, config.save_checkpoints_secs, config.model_dir
      (50, None, 'm')
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: Any = USE_DEFAULT,
        save_checkpoints_secs: Any = USE_DEFAULT,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Any = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: float | None = None,
        session_creation_timeout_secs: float = 7200,
        checkpoint_save_graph_def: bool = True,
    ) -> None:
        if save_checkpoints_steps is USE_DEFAULT and save_checkpoints_secs is USE_DEFAULT:
            save_checkpoints_steps, save_checkpoints_secs = None, _SECONDS
        elif save_checkpoints_secs is USE_DEFAULT:
            save_checkpoints_secs = None
        elif save_checkpoints_steps is USE_DEFAULT:
            save_checkpoints_steps = None
        elif save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
        given = _environment()
        if model_dir == "":
            raise ValueError("model_dir should be non-empty")
        folder = os.fspath(model_dir) if model_dir is not None else given.get("model_dir")
        found = given.get("model_dir")
        if found is not None and folder != found:
            raise ValueError(
                f"`model_dir` provided in RunConfig construct, if set, must have the same value as the model_dir in "
                f"TF_CONFIG. model_dir: {folder}\nTF_CONFIG['model_dir']: {found}.\n"
            )
        for name, value in (
            ("train_distribute", train_distribute), ("eval_distribute", eval_distribute),
            ("experimental_distribute", experimental_distribute),
        ):  # fmt: skip
            if value is not None:
                raise UnimplementedError(f"RunConfig({name}=...): an estimator trains in one process; leave it out")
        for name, number, least in (
            ("save_summary_steps", save_summary_steps, 0), ("save_checkpoints_steps", save_checkpoints_steps, 0),
            ("save_checkpoints_secs", save_checkpoints_secs, 0), ("keep_checkpoint_max", keep_checkpoint_max, 0),
            ("session_creation_timeout_secs", session_creation_timeout_secs, 1),
        ):  # fmt: skip
            if number is not None and number < least:
                raise ValueError(f"{name} should be {'>= 0' if least == 0 else '> 0'}")
        if not keep_checkpoint_every_n_hours > 0:
            raise ValueError("keep_checkpoint_every_n_hours should be > 0")
        if log_step_count_steps is not None and log_step_count_steps <= 0:
            raise ValueError("log_step_count_steps should be > 0")
        if tf_random_seed is not None and not isinstance(tf_random_seed, int):
            raise ValueError("tf_random_seed must be integer.")
        if device_fn is not None and not (callable(device_fn) or isinstance(device_fn, str)):
            raise ValueError("device_fn must be callable with exactly one argument 'op'.")
        self._values: dict[str, Any] = {
            "model_dir": folder, "tf_random_seed": tf_random_seed, "save_summary_steps": save_summary_steps,
            "save_checkpoints_steps": save_checkpoints_steps, "save_checkpoints_secs": save_checkpoints_secs,
            "session_config": session_config, "keep_checkpoint_max": keep_checkpoint_max,
            "keep_checkpoint_every_n_hours": keep_checkpoint_every_n_hours,
            "log_step_count_steps": log_step_count_steps, "train_distribute": None, "device_fn": device_fn,
            "protocol": protocol, "eval_distribute": None, "experimental_distribute": None,
            "experimental_max_worker_delay_secs": experimental_max_worker_delay_secs,
            "session_creation_timeout_secs": session_creation_timeout_secs,
            "checkpoint_save_graph_def": checkpoint_save_graph_def,
        }  # fmt: skip
        task = given.get("task", {})
        self._task_type, self._task_id = str(task.get("type", "worker")), int(task.get("index", 0))
        self._service = given.get("service")

    def replace(self, **kwargs: Any) -> RunConfig:
        """Returns a copy with other values.

        Args:
          **kwargs: the arguments of `RunConfig` that change. A new period of checkpoints, in steps or in seconds,
            replaces the other one.

        Raises:
          ValueError: there is no such argument, or both periods are given.
        """
        for name in kwargs:
            if name not in self._values:
                raise ValueError(f"Replacing {name} is not supported. Allowed properties are {tuple(self._values)}.")
        values = self._values | kwargs
        steps, seconds = "save_checkpoints_steps", "save_checkpoints_secs"
        if kwargs.get(steps) is not None and kwargs.get(seconds) is not None:
            raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
        if steps in kwargs and seconds not in kwargs:
            values[seconds] = None
        if seconds in kwargs and steps not in kwargs:
            values[steps] = None
        return RunConfig(**values)

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "session_config" and values[name] is None:
            from headrace import pb

            return pb.ConfigProto(allow_soft_placement=True)
        return values[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    @property
    def cluster_spec(self) -> Any:
        """Cluster of the program: empty."""
        from headrace.v1.replicas import ClusterSpec

        return ClusterSpec({})

    @property
    def master(self) -> str:
        """Target of the sessions: this process."""
        return ""

    evaluation_master = master

    @property
    def is_chief(self) -> bool:
        """Whether this task saves checkpoints: always."""
        return True

    @property
    def task_type(self) -> str:
        """Kind of the task."""
        return self._task_type

    @property
    def task_id(self) -> int:
        """Number of the task."""
        return self._task_id

    @property
    def global_id_in_cluster(self) -> int:
        """Number of the task in the cluster."""
        return 0

    @property
    def num_ps_replicas(self) -> int:
        """Number of parameter servers."""
        return 0

    @property
    def num_worker_replicas(self) -> int:
        """Number of workers."""
        return 1

    @property
    def service(self) -> Any:
        """Entry "service" of TF_CONFIG, or None."""
        return self._service


def _environment() -> dict[str, Any]:
    """Returns the settings of TF_CONFIG.

    Raises:
      ValueError: it is no JSON object.
      UnimplementedError: it has a cluster.
    """
    text = flags.tf_config()
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"the environment variable TF_CONFIG is not JSON: {e}") from None
    if not isinstance(found, dict) or not isinstance(found.get("task", {}), dict):
        raise ValueError(f"the environment variable TF_CONFIG should be a JSON object, with an object 'task': {text!r}")
    if found.get("cluster"):
        raise UnimplementedError(
            "TF_CONFIG has a cluster, and an estimator trains in one process: train replicas with tf.train.Server and "
            "tf.train.MonitoredTrainingSession"
        )
    return found
