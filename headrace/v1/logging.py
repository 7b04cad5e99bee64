"""TensorFlow 1's `tf.logging`, on Python's logger "headrace"."""

from __future__ import annotations

import logging

DEBUG, INFO, WARN, ERROR, FATAL = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL

_logger = logging.getLogger("headrace")

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
