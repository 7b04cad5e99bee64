"""The checkpoints of a folder, and the newest valid one.

A saver writes a checkpoint, then the folder's state file with the checkpoint's name, and then removes old checkpoints.
So the checkpoints that the state file names are complete, unless they were damaged afterwards. With `verify=True` every
byte of the newest checkpoint is compared with its checksum. If they differ, this is reported, and the previous
checkpoint is checked.

Source: TensorFlow's `tf.train.latest_checkpoint` and `get_checkpoint_state`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace import notices
from headrace.errors import DataLossError, OpError
from headrace.files import checkpoint_v1, checkpoints, states

if TYPE_CHECKING:
    from headrace.files.states import CheckpointState

_INDEXES = (".index", ".index.json")  # the files that make a checkpoint one


def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """What the state file of a folder says.

    Args:
      checkpoint_dir: the folder.
      latest_filename: the name of the file; "checkpoint" if None.

    Returns:
      A `CheckpointState` message: `model_checkpoint_path`, the prefix of the newest checkpoint;
      `all_model_checkpoint_paths`, oldest first; `all_model_checkpoint_timestamps`, in seconds since 1970. None: there
      is no such file, or it is damaged, which is warned of.

    Source: TensorFlow's `tf.train.get_checkpoint_state`.
    """
    try:
        return states.read(os.fspath(checkpoint_dir), latest_filename)
    except (DataLossError, OSError) as e:
        notices.warn(f"{e}. It is taken as if it were not there")
        return None


def update_checkpoint_state(
    save_dir: str | os.PathLike[str],
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
    save_relative_paths: bool = False,
) -> None:
    """Writes the state file of a folder: which checkpoints it has.

    Args:
      save_dir: the folder.
      model_checkpoint_path: the prefix of the newest checkpoint.
      all_model_checkpoint_paths: the prefixes of all, oldest first; None: only the newest.
      latest_filename: the name of the file; "checkpoint" if None.
      all_model_checkpoint_timestamps: when each was written, in seconds since 1970.
      last_preserved_timestamp: when the last one was written that is kept for ever.
      save_relative_paths: whether paths are written as they are from the folder, so that it can be moved.

    Raises:
      RuntimeError: the state file would take the name of the checkpoint. ValueError: there are not as many timestamps
        as paths.
      NotFoundError, PermissionDeniedError: the file cannot be written; the one that was there stands.

    Source: TensorFlow's `tf.train.update_checkpoint_state`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = hr.train.save(os.path.join(folder, "m"), {"w": 1.0})
      ...     hr.train.update_checkpoint_state(folder, path)
      ...     hr.train.latest_checkpoint(folder) == path
      True
    """
    folder = os.fspath(save_dir)
    if states.path_of(folder, latest_filename) == model_checkpoint_path:
        raise RuntimeError(
            f"the checkpoint {model_checkpoint_path!r} has the name of the file that says which checkpoints there are; "
            "use another name, or latest_filename="
        )
    message = states.state(
        folder,
        model_checkpoint_path,
        all_model_checkpoint_paths or (),
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
        save_relative_paths,
    )
    states.write(folder, message, latest_filename)


def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint with this prefix; whether it is whole, nobody has looked.

    Source: TensorFlow's `tf.train.checkpoint_exists`.
    """
    prefix = os.fspath(checkpoint_prefix)
    return any(os.path.isfile(prefix + ending) for ending in _INDEXES) or bool(checkpoint_v1.paths(prefix))


def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[str]) -> list[float]:
    """When each of several checkpoints was written, in seconds since 1970; those that are not there are left out.

    Source: TensorFlow's `tf.train.get_checkpoint_mtimes`.
    """
    found = map(checkpoints.modified, checkpoint_prefixes)
    return [t for t in found if t is not None]


def meta_graph_path(prefix: str, suffix: str = "meta") -> str:
    """Where the graph of a checkpoint is kept: beside it, under its name."""
    return f"{checkpoint_v1.base_of(prefix)}.{suffix}"


def remove_checkpoint(checkpoint_prefix: str | os.PathLike[str], meta_graph_suffix: str = "meta") -> None:
    """Removes a checkpoint, and the file of its graph. Nothing happens if there is none.

    What makes it a checkpoint is removed first, so that a process that is killed meanwhile leaves no half of one.

    Source: TensorFlow's `tf.train.remove_checkpoint`.
    """
    prefix = os.fspath(checkpoint_prefix)
    checkpoints.remove(prefix)
    with contextlib.suppress(FileNotFoundError):  # it was written without
        os.unlink(meta_graph_path(prefix, meta_graph_suffix))


def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None, *, verify: bool = False
) -> str | None:
    """The prefix of the newest checkpoint of a folder.

    Args:
      checkpoint_dir: the folder.
      latest_filename: the name of its state file; "checkpoint" if None.
      verify: whether to compare what is in it with its checksums, and to take the newest one that is whole; that
        takes as long as reading it. A warning names the one that is damaged and the one that is taken.

    Returns:
      The prefix, for `Saver.restore`; None if there is no checkpoint (with `verify`: no whole one).

    Source: TensorFlow's `tf.train.latest_checkpoint`.

    Example:
      >>> import headrace as hr, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     hr.train.latest_checkpoint(folder) is None
      True
    """
    folder = os.fspath(checkpoint_dir)
    state = get_checkpoint_state(folder, latest_filename)
    if not verify:
        if state is None:
            return None
        newest = state.model_checkpoint_path
        reason = _not_there(folder, newest)
        if reason:
            notices.warn(f"{reason}, though {states.path_of(folder, latest_filename)!r} says that it is the newest")
            return None
        return newest
    damaged: list[tuple[str, str]] = []
    for prefix in _candidates(folder, state, latest_filename):
        reason = _not_there(folder, prefix) or _damage(prefix)
        if not reason:
            for what, why in damaged:
                notices.warn(f"the checkpoint {what!r} cannot be used, and {prefix!r} is used in its place: {why}")
            return prefix
        damaged.append((prefix, reason))
    for what, why in damaged:
        notices.warn(f"the checkpoint {what!r} cannot be used, and there is no other: {why}")
    return None


def _candidates(folder: str, state: CheckpointState | None, latest_filename: str | None) -> list[str]:
    """The checkpoints to look at, the newest first. If the state file is lost, what the folder has, by its age."""
    if state is not None:
        older = reversed(state.all_model_checkpoint_paths)
        return list(dict.fromkeys([state.model_checkpoint_path, *older]))
    if not os.path.exists(states.path_of(folder, latest_filename)):
        return []  # nobody has said that there are any
    found: dict[str, float] = {}
    for entry in os.scandir(folder):
        for ending in _INDEXES:
            if entry.name.endswith(ending) and entry.is_file():
                found[os.path.join(folder, entry.name.removesuffix(ending))] = entry.stat().st_mtime
    return sorted(found, key=lambda p: (-found[p], p))


def _not_there(folder: str, prefix: str) -> str:
    """Why `prefix`, which a state file names, cannot be followed; "" if it can."""
    base = os.path.abspath(folder)
    if os.path.commonpath([base, os.path.abspath(prefix)]) != base:
        return (
            f"{prefix!r} is outside of the folder {folder!r} (was it moved? Give the checkpoint's own path to restore, "
            "or write it anew with update_checkpoint_state)"
        )
    return "" if checkpoint_exists(prefix) else f"there is no checkpoint {prefix!r}"


def _damage(prefix: str) -> str:
    """What is wrong with a checkpoint; "" if nothing."""
    try:
        checkpoints.check(prefix)
    except (OpError, OSError) as e:
        return str(e)
    return ""


class RetainedCheckpoints:
    """The checkpoints that a saver has written and not yet removed: at most `most`, besides those kept for ever.

    Args:
      most: how many; None or 0: all.
      every_n_hours: one of so many hours is kept for ever.
    """

    def __init__(self, most: int | None, every_n_hours: float) -> None:
        self.most = most or 0
        self.every = every_n_hours * 3600
        self.next_preserved = self.now() + self.every
        self.last: list[tuple[str, float]] = []  # prefix and time, oldest first
        self.doomed: list[tuple[str, float]] = []

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def add(self, prefix: str) -> None:
        """Counts a checkpoint that was just written as the newest."""
        # one that was saved again is the newest of all, and not to be removed
        self.last = [*((p, t) for p, t in self.last if p != prefix), (prefix, self.now())]
        self.doomed = [(p, t) for p, t in self.doomed if p != prefix]
        while self.most > 0 and len(self.last) > self.most:
            self.doomed.append(self.last.pop(0))

    def set(self, last: Iterable[tuple[str, float]]) -> None:
        """Takes these as what was written so far."""
        self.last = list(last)
        self.doomed = []

    def to_list(self) -> tuple[list[str], list[float]]:
        """What the state file is to name, besides the newest: prefixes and times."""
        last = self.last if self.most else self.last[-1:]
        return [p for p, _ in last], [t for _, t in last]

    def sweep(self, meta_graph_suffix: str) -> None:
        """Removes what is too old."""
        while self.doomed:
            prefix, when = self.doomed.pop(0)
            if when > self.next_preserved:
                self.next_preserved += self.every
                continue
            remove_checkpoint(prefix, meta_graph_suffix)
