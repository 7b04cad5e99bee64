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

import collections
import logging
import sys
from typing import TYPE_CHECKING, Any

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


def log_if(level: int, msg: str, condition: Any, *args: Any) -> None:
    """Logs a message if a condition holds.

    Args:
      level: its level.
      msg: the message, a format.
      condition: the condition.
      args: arguments of the format.

    Source: TensorFlow's `tf.logging.log_if`.
    """
    if condition:
        _logger.log(level, msg, *args)


def log_every_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Logs a message in every `n`-th call from one line, the first included.

    Args:
      level: its level.
      msg: the message, a format.
      n: the period.
      args: arguments of the format.

    Source: TensorFlow's `tf.logging.log_every_n`.
    """
    log_if(level, msg, _calls() % n == 0, *args)


def log_first_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Logs a message in the first `n` calls from one line.

    Args:
      level: its level.
      msg: the message, a format.
      n: the number of calls.
      args: arguments of the format.

    Source: TensorFlow's `tf.logging.log_first_n`.
    """
    log_if(level, msg, _calls() < n, *args)


# Line -> number of calls of the functions above so far.
_counts: collections.Counter[tuple[str, int]] = collections.Counter()


def _calls() -> int:
    """Returns the number of earlier calls from the line of the caller's caller."""
    frame = sys._getframe(2)
    line = frame.f_code.co_filename, frame.f_lineno
    _counts[line] += 1
    return _counts[line] - 1


def flush() -> None:
    """Writes the messages that handlers hold back.

    Source: TensorFlow's `tf.logging.flush`.
    """
    for handler in (*_logger.handlers, *logging.getLogger().handlers):
        handler.flush()


def TaskLevelStatusMessage(msg: str) -> None:
    """Logs a message at the level of errors.

    Args:
      msg: the message.

    Source: TensorFlow's `tf.logging.TaskLevelStatusMessage`.
    """
    _logger.error(msg)


def get_logger() -> logging.Logger:
    """Returns Python's logger "headrace".

    Source: TensorFlow's `tf.get_logger`.
    """
    return _logger


# fmt: off
__all__ = [
    "DEBUG", "ERROR", "FATAL", "INFO", "WARN", "TaskLevelStatusMessage", "debug", "error", "fatal", "flush",
    "get_verbosity", "info", "log", "log_every_n", "log_first_n", "log_if", "set_verbosity", "vlog", "warn", "warning",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
