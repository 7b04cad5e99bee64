"""Graphs in and out, as files and messages that TensorFlow and headrace both read.

    graph.as_graph_def()                    conditionals, loops and calls as If, While and Call with functions
    graph.as_graph_def(form="primitive")    as Switch, Merge, Enter, Exit and NextIteration, as TensorFlow 1 wrote them

The wire format itself is `ir`'s (`ir.serial.graphdef`). What is here needs more than the graph: to lower it
(`exporting`), to say our own operations in TensorFlow's (`portable`). `files` writes and reads files. `meta_graph` has
graphs with what belongs to them: `variables`, `collection` and `op_defs` have a part of that each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pb import GraphDef


def graph_def(*args: Any, **kwargs: Any) -> GraphDef:
    """`exporting.graph_def`, imported when it is first called: protobuf takes long to import."""
    from headrace.interchange import exporting

    return exporting.graph_def(*args, **kwargs)
