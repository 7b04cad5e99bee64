"""Destinations of hooks: the event file of a folder."""

from __future__ import annotations

import os
from typing import Any, Final

START: Final = 1  # values of SessionLog.SessionStatus
STOP: Final = 2
CHECKPOINT: Final = 3


def writer_of(folder: Any) -> Any:
    """Returns the `FileWriter` of a folder, which all hooks share."""
    from headrace.train.event_writer import FileWriterCache

    return FileWriterCache.get(os.fspath(folder))


def session_log(status: int, checkpoint_path: str = "") -> Any:
    """Returns a `SessionLog` message."""
    from headrace.files import events

    messages: Any = events  # the module creates message classes on first use
    return messages.SessionLog(status=status, checkpoint_path=checkpoint_path)
