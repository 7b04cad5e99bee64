"""Graphs in and out, as files and messages that TensorFlow and headrace both read.

    graph.as_graph_def()                    conditionals, loops and calls as If, While and Call with functions
    graph.as_graph_def(form="primitive")    as Switch, Merge, Enter, Exit and NextIteration, as TensorFlow 1 wrote them

The wire format itself is part of `ir` (`ir.serial.graphdef`). The modules here need more than the graph: `exporting`
lowers it, and `portable` rewrites headrace's own operations as TensorFlow's. `files` writes and reads files.
`meta_graph` adds variables, collections and signatures; `variables`, `collection` and `op_defs` each encode a part of
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pb import GraphDef


def graph_def(*args: Any, **kwargs: Any) -> GraphDef:
    """Calls `exporting.graph_def`, imported on first use because protobuf is a slow import."""
    from headrace.interchange import exporting

    return exporting.graph_def(*args, **kwargs)
