"""TensorFlow 1's `tf.logging`, on Python's logger "headrace".

As in TensorFlow, messages are written to standard error even if `logging` is not configured: those from the level of
`set_verbosity` on, which is WARN by default. If the program has configured `logging`, its handlers receive the messages
instead.

Example:
  >>> import headrace.v1 as tf
  >>> before = tf.logging.get_verbosity()
  >>> tf.logging.set_verbosity(tf.logging.INFO)
  >>> tf.logging.info("step %d", 3)  # on standard error: INFO:headrace:step 3
  >>> tf.logging.set_verbosity(before)
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from headrace import public_names

DEBUG, INFO, WARN, ERROR, FATAL = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL

_logger = logging.getLogger("headrace")


class _Shown(logging.Handler):
    """Writes to the present `sys.stderr` unless the program has its own handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(logging.BASIC_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or _logger.handlers != [self]:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


_logger.addHandler(_Shown())

debug = _logger.debug
info = _logger.info
warn = warning = _logger.warning
error = _logger.error
fatal = _logger.critical
log = vlog = _logger.log


def set_verbosity(v: int | str) -> None:
    """From which level on messages are shown.

    Source: TensorFlow's `tf.logging.set_verbosity`.
    """
    _logger.setLevel(v)


def get_verbosity() -> int:
    """The level from which on messages are shown.

    Source: TensorFlow's `tf.logging.get_verbosity`.
    """
    return _logger.getEffectiveLevel()


# fmt: off
__all__ = [
    "DEBUG", "ERROR", "FATAL", "INFO", "WARN", "debug", "error", "fatal", "get_verbosity", "info", "log",
    "set_verbosity", "vlog", "warn", "warning",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
