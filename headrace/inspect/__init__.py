"""Descriptions of graphs, and of the difference between two graphs.

    print(render(describe(graph)))

These are the commands `headrace inspect` and `headrace diff`. A description is available as data, text, Graphviz and
HTML.

`describe` collects plain data (names, dtypes, shapes, nested boxes), so that other tools can use it without parsing
text. `describe_step` does the same for the part of a graph that some fetches need. It also shows the ends of this part:
its feeds, its fetches, the operations that are ready at the start (Source), and those for which no other operation
waits (Sink). `structure` finds the loops, conditionals and calls, those of `primitives` too, and puts the operations
into boxes (`parts`). `text` (summary and tree), `program` (a line for each operation) and `dot` only lay them out. The
page draws the primitive form: `graph_document` collects it, by `program_document`, and `page` makes HTML of it. No
function here changes a graph.
"""

from headrace.inspect.describing import Description, Resource, StepDescription, describe, describe_step
from headrace.inspect.difference import Change, Difference, diff
from headrace.inspect.dot import render_dot
from headrace.inspect.graph_document import document_of_fetches, document_of_graph
from headrace.inspect.page import graph_html, render_page
from headrace.inspect.parts import Box, Node, Passed, Structure, Value, cut, nodes
from headrace.inspect.program import graph_text, render_program
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
    "document_of_fetches",
    "document_of_graph",
    "draw",
    "graph_html",
    "graph_text",
    "nodes",
    "render",
    "render_box",
    "render_dot",
    "render_page",
    "render_program",
    "render_step",
]
