"""Runs what the tests build."""

from __future__ import annotations

from typing import Any

import headrace as hr
from headrace.api import scopes


def run(fetches: Any, feeds: Any = None) -> Any:
    """Values of `fetches` in a new session of the graph that has been entered."""
    graph = scopes.current_graph()
    assert graph is not None
    with hr.Session(graph=graph) as session:
        return session.run(fetches, feeds)
