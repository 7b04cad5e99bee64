"""Commands of clusters: `headrace worker` and `headrace status`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.dist.address import Address, default_options
from headrace.dist.cluster_spec import ClusterSpec
from headrace.dist.network import NetworkOptions
from headrace.dist.server import Server
from headrace.environment import NO_OPTIONS


def worker(args: argparse.Namespace, report: Callable[[str], None]) -> None:
    """Runs a server until it gets a signal, or until its input ends.

    Args:
      args: the arguments of the command.
      report: receives the address of the server once it listens, unless it ends with its input.
    """
    logging.basicConfig(level=logging.WARNING, format="headrace: %(message)s")  # e.g. connections that are refused
    cluster = ClusterSpec.from_toml(args.cluster)
    options = dataclasses.replace(
        _options(args),
        heartbeat=args.heartbeat,
        patience=args.patience,
        largest_frame=args.largest_frame,
        shared_memory=args.shared_memory,
    )
    devices = device_counts(args.device)
    server = Server(cluster, args.job, args.task, devices=devices, options=options, bind=args.bind, files=args.files)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.request_stop())
    if args.until_eof:
        threading.Thread(target=_wait_for_eof, args=(server,), daemon=True).start()
    else:
        report(f"{server.task} at {server.target}")
    server.join()
    server.close()


def _options(args: argparse.Namespace) -> NetworkOptions:
    """Returns the secret and the certificate of the arguments, or else those of the flags."""
    return default_options(cert=args.cert, key=args.key, ca=args.ca, secret_file=args.secret_file)


def _wait_for_eof(server: Server) -> None:
    while os.read(0, 4096):
        pass
    server.request_stop()


def device_counts(texts: Sequence[str]) -> dict[str, int]:
    """Returns the number of devices of each type, of arguments such as "CPU=2"."""
    counts = {}
    for text in texts:
        kind, _, n = text.partition("=")
        counts[kind] = int(n) if n.isdigit() else -1
    return counts


def status(args: argparse.Namespace) -> str:
    """Returns the state of a cluster as text or JSON."""
    target = Address(args.target, _options(args)).connect(NO_OPTIONS)
    try:
        state = target.describe()
    finally:
        target.close()
    return json.dumps(state, indent=2) if args.json else "\n".join(lines(state))


def lines(state: Any) -> list[str]:
    """Returns the state of a cluster as lines of text."""
    out = []
    for w in state["workers"]:
        what = f"{len(w['devices'])} devices, {w['programs']} programs" if w["is_up"] else f"lost: {w['reason']}"
        out.append(f"{w['name']}: {what}")
    out.append(f"{state['sessions']} sessions, {state['programs']} programs, {len(state['steps'])} steps under way")
    for s in state["steps"]:
        out.append(f"step {s['step']} on {', '.join(s['workers'])}" + (f": {s['error']}" if s["error"] else ""))
        for part, waits in s["waits"].items():
            out.append(f"  {part} waits for")
            out += [f"  {line}" for line in waits]
    return out
