"""What is in a graph, as data, text, Graphviz and HTML (`headrace inspect`), and what differs between two
(`headrace diff`).

    print(render(describe(graph)))

`describe` collects plain data (names, dtypes, shapes, boxes in boxes), so that other tools can use it without parsing
text; `describe_step` does the same for what is left of a graph when only some fetches matter, with its ends shown: what
feeds it, what it returns, what is ready at the start (Source) and what nobody waits for (Sink). `structure` finds the
loops, conditionals and calls, those of `primitives` too, and puts the operations into boxes (`parts`); `text`, `dot`
and `page` only lay them out. Nothing here changes a graph.
"""

from headrace.inspect.describing import Description, Resource, StepDescription, describe, describe_step
from headrace.inspect.difference import Change, Difference, diff
from headrace.inspect.dot import render_dot
from headrace.inspect.page import graph_html, render_page, render_snippet
from headrace.inspect.parts import Box, Node, Passed, Structure, Value, cut, nodes
from headrace.inspect.structure import draw
from headrace.inspect.text import render, render_box, render_step

__all__ = [
    "Box",
    "Change",
    "Description",
    "Difference",
    "Node",
    "Passed",
    "Resource",
    "StepDescription",
    "Structure",
    "Value",
    "cut",
    "describe",
    "describe_step",
    "diff",
    "draw",
    "graph_html",
    "nodes",
    "render",
    "render_box",
    "render_dot",
    "render_page",
    "render_snippet",
    "render_step",
]
