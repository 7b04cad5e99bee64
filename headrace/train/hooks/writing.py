"""Destinations of hooks: the event file of a folder."""

from __future__ import annotations

import os
from typing import Any, Final

START: Final = 1  # of SessionLog.SessionStatus
CHECKPOINT: Final = 3


def writer_of(folder: Any) -> Any:
    """The `FileWriter` of a folder, the same for all who write there."""
    from headrace.train.event_writer import FileWriterCache

    return FileWriterCache.get(os.fspath(folder))


def session_log(status: int, checkpoint_path: str = "") -> Any:
    """A `SessionLog` message."""
    from headrace.files import events

    messages: Any = events  # which has them from first use on
    return messages.SessionLog(status=status, checkpoint_path=checkpoint_path)
