"""The command `headrace serve DIR`."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from typing import Final

from headrace.errors import InvalidArgumentError
from headrace.serve.limits import Limits
from headrace.serve.server import Server

PORT: Final = 8501  # TensorFlow Serving's port of HTTP
#: Limits by the arguments of the command that set them.
_LIMITS: Final = {
    "batch": "batch_rows",
    "batch_delay": "batch_delay",
    "timeout": "step_seconds",
    "largest_body": "body_bytes",
    "connections": "connections",
    "threads": "threads",
}


def serve(args: argparse.Namespace, report: Callable[[str], None]) -> None:
    """Serves models until SIGTERM or SIGINT.

    Args:
      args: the arguments of the command.
      report: receives the address once the models are loaded.
    """
    logging.basicConfig(level=logging.INFO, format="headrace: %(message)s")
    models: dict[str, str] = {}
    for text in args.models:
        name, equals, folder = text.partition("=")
        if not equals:
            name, folder = os.path.basename(os.path.abspath(text)), text
        if name in models:
            raise InvalidArgumentError(f"two models have the name {name!r}; give another one: NAME={folder}")
        models[name] = folder
    given = {limit: getattr(args, name) for name, limit in _LIMITS.items() if getattr(args, name) is not None}
    server = Server(models, PORT if args.port is None else args.port, args.host, limits=Limits(**given))
    server.run(lambda: report(f"models at {server.url}/v1/models/{next(iter(models))} (Ctrl-C ends the server)"))
