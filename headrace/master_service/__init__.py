"""TensorFlow's master service: unmodified TensorFlow clients run their graphs here.

    with hr.master_service.Server() as server:
        session = tf.compat.v1.Session(server.target)  # in any process of this machine

`server` listens and has the limits, `service` answers the methods, `sessions` has the sessions of clients, and
`conversions` turns errors and tensors into messages and back. `target` has the devices and the variables that all
sessions of a server share, and `command` is `headrace serve --grpc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.master_service.server import Server

__all__ = ["Server"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
