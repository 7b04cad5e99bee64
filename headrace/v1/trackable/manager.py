"""`tf.train.CheckpointManager`: numbered checkpoints of one object in a folder, of which the newest are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.files import system
from headrace.train.saving import latest
from headrace.train.saving.saver import FOR_EVER_HOURS
from headrace.v1.session import get_default_session
from headrace.v1.trackable.checkpoint import Checkpoint


class CheckpointManager:
    """Keeps the newest checkpoints of a `Checkpoint` in a folder.

    Args:
      checkpoint: the `tf.train.Checkpoint`.
      directory: the folder. It is made if it does not exist.
      max_to_keep: largest number of checkpoints. None: no limit.
      keep_checkpoint_every_n_hours: period in hours; one checkpoint of each period is kept forever. None: none is.
      checkpoint_name: names of files begin with this text, "-" and a number.
      step_counter: integer variable with the number of steps, for `checkpoint_interval`.
      checkpoint_interval: least number of steps between two checkpoints.
      init_fn: function that `restore_or_initialize` calls if there is no checkpoint.
      last_checkpoint_step: step of the last checkpoint.

    Attributes:
      checkpoint_interval: the argument.

    Raises:
      ValueError: `max_to_keep` is not positive, or an interval is given without a step counter.

    Source: TensorFlow's `tf.train.CheckpointManager`.

    Example:
      >>> import headrace.v1 as tf
      >>> import os, tempfile
      >>> with tf.Graph().as_default(), tf.Session() as sess, tempfile.TemporaryDirectory() as folder:
      ...     v = tf.Variable(2.0)
      ...     manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=v), folder, max_to_keep=2)
      ...     sess.run(v.initializer)
      ...     [os.path.basename(manager.save()) for _ in range(3)], [os.path.basename(p) for p in manager.checkpoints]
      (['ckpt-1', 'ckpt-2', 'ckpt-3'], ['ckpt-2', 'ckpt-3'])
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
        last_checkpoint_step: int | None = None,
    ) -> None:
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(f"Expected a positive integer or `None` for `max_to_keep`, got {max_to_keep}.")
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError(
                "`step_counter` should be passed if `checkpoint_interval` is set, as `checkpoint_interval` is in steps"
            )
        self._checkpoint, self._folder = checkpoint, os.fspath(directory)
        self._prefix = os.path.join(self._folder, checkpoint_name)
        self._steps, self.checkpoint_interval = step_counter, checkpoint_interval
        self._init, self._last_step = init_fn, last_checkpoint_step
        hours = FOR_EVER_HOURS if keep_checkpoint_every_n_hours is None else keep_checkpoint_every_n_hours
        self._retained = latest.RetainedCheckpoints(max_to_keep, hours)
        self._newest: str | None = None
        self._read_state()

    def _read_state(self) -> None:
        """Takes the list of checkpoints of the folder."""
        state = latest.get_checkpoint_state(self._folder)
        if state is None:
            return
        paths, times = list(state.all_model_checkpoint_paths), list(state.all_model_checkpoint_timestamps)
        times = times if len(times) == len(paths) else latest.get_checkpoint_mtimes(paths)
        times = times if len(times) == len(paths) else [0.0] * len(paths)
        self._retained.set(zip(paths, times, strict=True))
        self._newest = state.model_checkpoint_path

    @property
    def checkpoint(self) -> Checkpoint:
        """The `tf.train.Checkpoint`."""
        return self._checkpoint

    @property
    def directory(self) -> str:
        """The folder."""
        return self._folder

    @property
    def latest_checkpoint(self) -> str | None:
        """Prefix of the newest checkpoint, or None."""
        return self._newest

    @property
    def checkpoints(self) -> list[str]:
        """Prefixes of the checkpoints, oldest first, without those that are kept forever."""
        return [path for path, _ in self._retained.last]

    def sync(self) -> None:
        """Returns at once: each checkpoint is complete when `save` returns."""

    def save(self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None) -> str | None:
        """Writes a checkpoint, and removes those that are too old.

        Args:
          checkpoint_number: its number, or an integer variable. None: the number of calls.
          check_interval: whether `checkpoint_interval` counts.
          options: a `CheckpointOptions`; see `Checkpoint.write`.

        Returns:
          The prefix. None: the interval is not over.

        Raises:
          RuntimeError: see `Checkpoint.write`.
        """
        step = None
        if self.checkpoint_interval is not None:
            step = _number(self._steps)
            if check_interval and self._last_step is not None and step < self._last_step + self.checkpoint_interval:
                return None
        self._last_step = step if step is not None else self._last_step
        if not system.exists(self._folder):
            os.makedirs(self._folder, exist_ok=True)
        number = None if checkpoint_number is None else _number(checkpoint_number)
        path = self._checkpoint._counted(self._prefix, number, None, options)
        self._newest = path
        self._retained.add(path)
        paths = [p for p, _ in self._retained.last]
        times = [t for _, t in self._retained.last]
        latest.update_checkpoint_state(
            self._folder, path, paths, None, times, self._retained.next_preserved, save_relative_paths=True
        )
        self._retained.sweep("meta")
        return path

    def restore_or_initialize(self) -> str | None:
        """Restores the newest checkpoint, or calls `init_fn`.

        Returns:
          The prefix. None: there is no checkpoint.
        """
        if self._newest is not None:
            status = self._checkpoint.restore(self._newest)
            if get_default_session() is not None:
                status.initialize_or_restore()
            if self._steps is not None:
                self._last_step = _number(self._steps)
            return self._newest
        if self._init is not None:
            self._init()
        return None


def _number(x: Any) -> int:
    """Returns the value of a number or of a variable."""
    if isinstance(x, (int, np.integer)):
        return int(x)
    if getattr(x, "graph", None) is None:
        return int(x.numpy())
    return int(x.eval())
