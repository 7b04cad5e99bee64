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

_INDEXES = (".index", ".index.json")  # extensions of the index file; a checkpoint exists if its index does


def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """Reads the state file of a folder of checkpoints.

    Args:
      checkpoint_dir: the folder.
      latest_filename: name of the state file. None: "checkpoint".

    Returns:
      A `CheckpointState` message: `model_checkpoint_path`, the prefix of the newest checkpoint;
      `all_model_checkpoint_paths`, oldest first; `all_model_checkpoint_timestamps`, in seconds since 1970. None: the
      file does not exist, or it is damaged, which gives a warning.

    Source: TensorFlow's `tf.train.get_checkpoint_state`.

    Example:
      >>> import headrace as hr
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     state = hr.train.get_checkpoint_state(folder)
      >>> state is None
      True
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
    """Writes the state file of a folder, which lists its checkpoints.

    Args:
      save_dir: the folder.
      model_checkpoint_path: prefix of the newest checkpoint.
      all_model_checkpoint_paths: prefixes of all checkpoints, oldest first. None: only the newest.
      latest_filename: name of the state file. None: "checkpoint".
      all_model_checkpoint_timestamps: times of writing of these checkpoints, in seconds since 1970.
      last_preserved_timestamp: time of writing of the last checkpoint that is kept forever.
      save_relative_paths: whether the file contains paths relative to the folder, so that the folder can be moved.

    Raises:
      RuntimeError: the state file and the checkpoint have the same name.
      ValueError: the numbers of timestamps and paths differ.
      NotFoundError, PermissionDeniedError: the file cannot be written; the previous state file is unchanged.

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
    """Whether a checkpoint with this prefix exists. Its contents are not checked.

    Args:
      checkpoint_prefix: prefix of the checkpoint's files.

    Source: TensorFlow's `tf.train.checkpoint_exists`.

    Example:
      >>> import headrace as hr
      >>> hr.train.checkpoint_exists("no/such/checkpoint")
      False
    """
    prefix = os.fspath(checkpoint_prefix)
    return any(os.path.isfile(prefix + ending) for ending in _INDEXES) or bool(checkpoint_v1.paths(prefix))


def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[str]) -> list[float]:
    """Returns the times of writing of checkpoints, in seconds since 1970.

    Args:
      checkpoint_prefixes: prefixes of checkpoints. Those that do not exist are ignored.

    Source: TensorFlow's `tf.train.get_checkpoint_mtimes`.

    Example:
      >>> import headrace as hr
      >>> hr.train.get_checkpoint_mtimes(["no/such/checkpoint"])
      []
    """
    found = map(checkpoints.modified, checkpoint_prefixes)
    return [t for t in found if t is not None]


def meta_graph_path(prefix: str, suffix: str = "meta") -> str:
    """Returns the path of the file with a checkpoint's graph."""
    return f"{checkpoint_v1.base_of(prefix)}.{suffix}"


def remove_checkpoint(checkpoint_prefix: str | os.PathLike[str], meta_graph_suffix: str = "meta") -> None:
    """Removes a checkpoint and the file with its graph, if they exist.

    The index file is removed first. So if the process is killed, no partial checkpoint is left.

    Args:
      checkpoint_prefix: prefix of the checkpoint's files.
      meta_graph_suffix: extension of the file with the graph.

    Source: TensorFlow's `tf.train.remove_checkpoint`.

    Example:
      >>> import headrace as hr
      >>> import tempfile
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(3.0, name="v")
      ...     saver = hr.train.Saver()
      >>> with hr.Session(graph=g) as sess, tempfile.TemporaryDirectory() as folder:
      ...     sess.run(hr.variables_initializer([v]))
      ...     path = saver.save(sess, f"{folder}/model")
      ...     hr.train.remove_checkpoint(path)
      ...     hr.train.checkpoint_exists(path)
      False
    """
    prefix = os.fspath(checkpoint_prefix)
    checkpoints.remove(prefix)
    with contextlib.suppress(FileNotFoundError):  # the checkpoint was written without a graph
        os.unlink(meta_graph_path(prefix, meta_graph_suffix))


def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None, *, verify: bool = False
) -> str | None:
    """Returns the prefix of the newest checkpoint of a folder.

    Args:
      checkpoint_dir: the folder.
      latest_filename: name of the folder's state file. None: "checkpoint".
      verify: whether to compare the contents with their checksums, and to return the newest undamaged checkpoint. This
        takes as long as reading the files. A warning names the damaged checkpoints and the one that is used.

    Returns:
      The prefix, for `Saver.restore`. None: there is no checkpoint, or with `verify` no undamaged one.

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
    """Returns the prefixes of a folder's checkpoints, newest first.

    If the state file is damaged, these are the checkpoints in the folder, by time of modification.
    """
    if state is not None:
        older = reversed(state.all_model_checkpoint_paths)
        return list(dict.fromkeys([state.model_checkpoint_path, *older]))
    if not os.path.exists(states.path_of(folder, latest_filename)):
        return []  # a folder without a state file has no checkpoints, as in TensorFlow
    found: dict[str, float] = {}
    for entry in os.scandir(folder):
        for ending in _INDEXES:
            if entry.name.endswith(ending) and entry.is_file():
                found[os.path.join(folder, entry.name.removesuffix(ending))] = entry.stat().st_mtime
    return sorted(found, key=lambda p: (-found[p], p))


def _not_there(folder: str, prefix: str) -> str:
    """Returns why `prefix`, from a state file, cannot be used; "" if it can."""
    base = os.path.abspath(folder)
    if os.path.commonpath([base, os.path.abspath(prefix)]) != base:
        return (
            f"{prefix!r} is outside of the folder {folder!r} (was it moved? Give the checkpoint's own path to restore, "
            "or write it anew with update_checkpoint_state)"
        )
    return "" if checkpoint_exists(prefix) else f"there is no checkpoint {prefix!r}"


def _damage(prefix: str) -> str:
    """Returns a description of the damage of a checkpoint; "" if it is undamaged."""
    try:
        checkpoints.check(prefix)
    except (OpError, OSError) as e:
        return str(e)
    return ""


class RetainedCheckpoints:
    """Checkpoints that a saver has written and not removed.

    Args:
      most: largest number of checkpoints, apart from those kept forever. None or 0: no limit.
      every_n_hours: period in hours; one checkpoint of each period is kept forever.
    """

    def __init__(self, most: int | None, every_n_hours: float) -> None:
        self.most = most or 0
        self.every = every_n_hours * 3600
        self.next_preserved = self.now() + self.every
        self.last: list[tuple[str, float]] = []  # prefix and time, oldest first
        self.doomed: list[tuple[str, float]] = []

    def now(self) -> float:
        """Returns the time in seconds since 1970."""
        return time.time()

    def add(self, prefix: str) -> None:
        """Adds a checkpoint that has just been written."""
        # a prefix that was saved again becomes the newest, and is no longer to be removed
        self.last = [*((p, t) for p, t in self.last if p != prefix), (prefix, self.now())]
        self.doomed = [(p, t) for p, t in self.doomed if p != prefix]
        while self.most > 0 and len(self.last) > self.most:
            self.doomed.append(self.last.pop(0))

    def set(self, last: Iterable[tuple[str, float]]) -> None:
        """Replaces the list of checkpoints.

        Args:
          last: pairs of prefix and time, oldest first.
        """
        self.last = list(last)
        self.doomed = []

    def to_list(self) -> tuple[list[str], list[float]]:
        """Returns the prefixes and times for the state file."""
        last = self.last if self.most else self.last[-1:]
        return [p for p, _ in last], [t for _, t in last]

    def sweep(self, meta_graph_suffix: str) -> None:
        """Removes the checkpoints that are too old."""
        while self.doomed:
            prefix, when = self.doomed.pop(0)
            if when > self.next_preserved:
                self.next_preserved += self.every
                continue
            remove_checkpoint(prefix, meta_graph_suffix)
