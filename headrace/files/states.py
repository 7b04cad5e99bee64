"""State files: the list of a folder's checkpoints, a `CheckpointState` in text form.

The file, "checkpoint" by default, is replaced atomically. That happens after the new checkpoint is written and before
checkpoints that the file no longer names are removed. So the named checkpoints are complete even if the process is
killed at any time.

Source: TensorFlow's `checkpoint_management`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.errors import DataLossError
from headrace.files import commit, system

if TYPE_CHECKING:
    from headrace.pb import CheckpointState as CheckpointState

DEFAULT_NAME: Final = "checkpoint"
MOST_BYTES: Final = 1 << 24  # of a state file, enough for the paths of many thousand checkpoints


def path_of(folder: str, latest_filename: str | None = None) -> str:
    """The path of the state file of a folder.

    Raises:
      ValueError: `latest_filename` contains a path separator or is not a file name.
    """
    name = latest_filename or DEFAULT_NAME
    if os.path.split(name)[0] or name in (os.curdir, os.pardir):
        raise ValueError(
            f"'latest_filename' must not contain path components: {name!r}. The file is in the checkpoint's folder"
        )
    return os.path.join(folder, name)


def read(folder: str, latest_filename: str | None = None) -> CheckpointState | None:
    """Reads the state file of a folder; None if there is none.

    Relative paths in it are joined to the folder.

    Raises:
      DataLossError: The file is damaged.
      OSError: The file cannot be read.
    """
    from google.protobuf import text_format

    from headrace import pb

    path = path_of(folder, latest_filename)
    try:
        with system.stream(path, "rb") as f:
            data = f.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        state = text_format.Parse(data.decode(), pb.CheckpointState())
        if not state.model_checkpoint_path:
            raise ValueError("it does not name a checkpoint (model_checkpoint_path)")
    except (text_format.ParseError, ValueError, RecursionError) as e:
        raise DataLossError(f"{path!r} does not say which checkpoints there are: {e}") from None
    state.model_checkpoint_path = os.path.join(folder, state.model_checkpoint_path)
    for i, p in enumerate(state.all_model_checkpoint_paths):
        state.all_model_checkpoint_paths[i] = os.path.join(folder, p)
    return state


def state(
    folder: str,
    newest: str,
    paths: Sequence[str] = (),
    times: Sequence[float] | None = None,
    last_preserved: float | None = None,
    is_relative: bool = False,
) -> CheckpointState:
    """The message for a state file.

    Args:
      folder: The folder of the file.
      newest: The prefix of the newest checkpoint.
      paths: The prefixes of all checkpoints, oldest first; `newest` is moved to the end or added.
      times: The times at which they were written, in seconds since 1970.
      last_preserved: The time at which the last permanently kept checkpoint was written.
      is_relative: Whether to write paths relative to the folder, so that the folder can be moved.

    Returns:
      The message.

    Raises:
      ValueError: The numbers of times and paths differ.
    """
    from headrace import pb

    paths = list(paths)
    if newest not in paths[-1:]:
        paths = [*(p for p in paths if p != newest), newest]
    if times is not None and len(times) != len(paths):
        raise ValueError(f"{len(times)} timestamps for {len(paths)} checkpoint paths: {paths}")
    shown = [
        os.path.relpath(p, folder) if is_relative or not (os.path.isabs(p) or os.path.isabs(folder)) else p
        for p in paths
    ]  # relative paths in the file always start at its folder
    return pb.CheckpointState(
        model_checkpoint_path=shown[-1],
        all_model_checkpoint_paths=shown,
        all_model_checkpoint_timestamps=times or (),
        last_preserved_timestamp=last_preserved,
    )


def write(folder: str, message: CheckpointState, latest_filename: str | None = None) -> None:
    """Replaces the state file of a folder.

    Raises:
      OpError: The file cannot be written (`commit.replacing`); its previous contents are unchanged.
    """
    from google.protobuf import text_format

    with commit.replacing(path_of(folder, latest_filename)) as file:
        file.write(text_format.MessageToString(message).encode())
