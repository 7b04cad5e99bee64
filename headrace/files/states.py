"""The file that says which checkpoints a folder has: "checkpoint", a `CheckpointState` in protobuf's text form.

It is replaced as a whole, after the checkpoint that it names is there and before those that it no longer names are
removed. So whenever a process is killed, what it names is whole.

Source: TensorFlow's `checkpoint_management`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.errors import DataLossError
from headrace.files import commit

if TYPE_CHECKING:
    from headrace.pb import CheckpointState as CheckpointState

DEFAULT_NAME: Final = "checkpoint"
MOST_BYTES: Final = 1 << 24  # of such a file; a path for each of many thousand checkpoints


def path_of(folder: str, latest_filename: str | None = None) -> str:
    """The path of the state file of a folder.

    Raises:
      ValueError: `latest_filename` is more than a file's name.
    """
    name = latest_filename or DEFAULT_NAME
    if os.path.split(name)[0] or name in (os.curdir, os.pardir):
        raise ValueError(
            f"'latest_filename' must not contain path components: {name!r}. The file is in the checkpoint's folder"
        )
    return os.path.join(folder, name)


def read(folder: str, latest_filename: str | None = None) -> CheckpointState | None:
    """What the state file of a folder says; relative paths in it are made paths in that folder. None: there is none.

    Raises:
      DataLossError: it is damaged.
      OSError: it cannot be read.
    """
    from google.protobuf import text_format

    from headrace import pb

    path = path_of(folder, latest_filename)
    try:
        with open(path, "rb") as f:
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
    """The message of a state file.

    Args:
      folder: where it is to be.
      newest: the prefix of the newest checkpoint.
      paths: the prefixes of all, oldest first; `newest` is added if it is not the last.
      times: when each was written, in seconds since 1970.
      last_preserved: when the last one was written that is kept for ever.
      is_relative: whether the paths are to be written as they are from the folder, so that it can be moved.

    Raises:
      ValueError: there are not as many times as paths.
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
    ]  # relative paths in the file are paths from its folder in any case
    return pb.CheckpointState(
        model_checkpoint_path=shown[-1],
        all_model_checkpoint_paths=shown,
        all_model_checkpoint_timestamps=times or (),
        last_preserved_timestamp=last_preserved,
    )


def write(folder: str, message: CheckpointState, latest_filename: str | None = None) -> None:
    """Makes `message` what the state file of a folder says.

    Raises:
      OpError: it cannot be written (`commit.replacing`); what it said before stands.
    """
    from google.protobuf import text_format

    with commit.replacing(path_of(folder, latest_filename)) as file:
        file.write(text_format.MessageToString(message).encode())
