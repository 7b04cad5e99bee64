"""The command `headrace serve --grpc PORT`."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable

from headrace.dist.address import Address, default_options
from headrace.dist.command import device_counts
from headrace.master_service.server import Server


def serve(args: argparse.Namespace, report: Callable[[str], None]) -> None:
    """Runs a server until the process gets a signal.

    Args:
      args: the arguments of the command.
      report: receives the address of the server once it listens.
    """
    logging.basicConfig(level=logging.WARNING, format="headrace: %(message)s")  # defects that calls have met
    target = None
    if args.target is not None:
        options = default_options(cert=args.cert, key=args.key, ca=args.ca, secret_file=args.secret_file)
        target = Address(args.target, options)
    server = Server(
        args.grpc,
        target,
        host=args.host,
        devices=device_counts(args.device or ()) or None,
        job=args.job or "localhost",
        files=args.files,
        largest_message=args.largest_message,
        most_sessions=args.sessions,
        idle_seconds=args.idle,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.request_stop())
    with server:
        report(f"TensorFlow's clients connect to {server.target}")
        server.wait()
