"""Refusal of constructs that have no conversion, by name and with a caret."""

from __future__ import annotations

import ast

from headrace.autograph.analysis.activity import own_nodes
from headrace.autograph.origin import Origin


def check(origin: Origin) -> None:
    """Raises an error for the first construct of a function that cannot be converted.

    Raises:
      AutographError: the function has such a construct.
    """
    node = origin.node
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    for statement in body:
        for inner in own_nodes(statement):
            match inner:
                case ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                    raise origin.error(inner, "asynchronous code is not converted.")
                case ast.ImportFrom() if any(a.name == "*" for a in inner.names):
                    raise origin.error(inner, "'import *' is not converted.")
