"""Boxes as HTML: nested frames that fold, in one file without references to other files.

All text from a graph passes through `_text`, so no name of an operation can become a tag. `render_page` makes a whole
page with its own script, which its content security policy names, so that no other script runs. Without the script
everything but the filter works. `render_snippet` makes a part of another page, such as a notebook. It has no script and
no links (their names could be in use), and each rule of its style applies to its own elements only.

Colors are tints of those of the surrounding page, so they suit light and dark pages.
"""

from __future__ import annotations

import base64
import collections
import hashlib
import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headrace.inspect.describing import Description
from headrace.inspect.parts import (
    Box,
    Node,
    Part,
    Passed,
    Reference,
    Structure,
    Value,
    cut,
    nodes,
    plural,
    size_text,
    visible,
)
from headrace.inspect.rows import rows
from headrace.inspect.structure import draw
from headrace.inspect.text import box_heading
from headrace.ir.function import nested_operations
from headrace.recursion import MOST, recursion_room_for_levels

if TYPE_CHECKING:
    from headrace.ir.graph import Graph

PAGE_LIMIT: Final = 20_000  # operations that a page shows by default
SNIPPET_LIMIT: Final = 300
_OPEN: Final = 300  # largest box, in operations, that is unfolded at first
_LISTED: Final = 40  # inputs, outputs or passed values that are written out

# Every rule begins with the class, so that no rule applies to the surrounding page.
_STYLE: Final = """\
.headrace-graph{font:13px/1.45 system-ui,sans-serif;color:inherit;overflow-x:auto}
.headrace-graph details{border:1px solid rgba(128,128,128,.55);border-radius:6px;margin:6px 0;padding:2px 8px}
.headrace-graph details.while,.headrace-graph details.for,.headrace-graph details.loop,.headrace-graph details.if,
.headrace-graph details.case,.headrace-graph details.call,.headrace-graph details.function,
.headrace-graph details.gradient{border-left:5px solid rgba(60,160,60,.9);
background:linear-gradient(rgba(60,160,60,.2),rgba(60,160,60,0) 3em)}
.headrace-graph details.while,.headrace-graph details.for,
.headrace-graph details.loop{border-left-color:rgba(40,120,220,.9);
background:linear-gradient(rgba(40,120,220,.2),rgba(40,120,220,0) 3em)}
.headrace-graph details.if,.headrace-graph details.case{border-left-color:rgba(240,150,20,.9);
background:linear-gradient(rgba(240,150,20,.2),rgba(240,150,20,0) 3em)}
.headrace-graph details.box{flex:1 1 20em;min-width:0}
.headrace-graph summary{cursor:pointer;padding:2px 0;overflow-wrap:anywhere}
.headrace-graph summary:focus-visible,.headrace-graph a:focus-visible{outline:2px solid currentColor;outline-offset:2px}
.headrace-graph .boxes{display:flex;flex-wrap:wrap;gap:0 10px;align-items:flex-start}
.headrace-graph ul.row{display:flex;flex-wrap:wrap;gap:6px;list-style:none;margin:6px 0;padding:0}
.headrace-graph ul.row>li{margin:0;max-width:100%}
.headrace-graph li.wide{flex:1 1 100%;min-width:0}
.headrace-graph li.op{border:1px solid rgba(128,128,128,.55);border-radius:4px;padding:2px 6px}
.headrace-graph li.op{background:rgba(128,128,128,.10);max-width:24em;overflow-wrap:anywhere}
.headrace-graph li.op.out{border-width:2px;border-style:double;padding:1px 5px}
.headrace-graph li.op:target,.headrace-graph details:target{outline:3px solid rgba(240,160,20,.9)}
.headrace-graph .q{font-size:11px;opacity:.85;overflow-wrap:anywhere}
.headrace-graph code{font:12px/1.4 ui-monospace,monospace;background:none;color:inherit;padding:0}
.headrace-graph a{color:inherit;text-decoration:underline dotted}
.headrace-graph table{border-collapse:collapse;font-size:12px;margin:4px 0;background:none;color:inherit}
.headrace-graph th,.headrace-graph td{text-align:left;padding:0 12px 0 0;vertical-align:top;border:0;background:none}
.headrace-graph th,.headrace-graph td{font-weight:normal}
.headrace-graph th{opacity:.8}
.headrace-graph p{margin:4px 0}
.headrace-graph .note{font-style:italic}
"""

_PAGE_STYLE: Final = """\
:root{color-scheme:light dark}
body{background:Canvas;color:CanvasText;margin:1em}
.headrace-graph h1{font-size:1.3em;overflow-wrap:anywhere;margin:0 0 .3em}
.headrace-graph .tools{margin:.5em 0}
.headrace-graph [hidden]{display:none!important}
.headrace-graph .tools button,.headrace-graph .tools input{font:inherit;margin-right:.6em}
"""

_SCRIPT: Final = """\
(function(){
  var root=document.querySelector(".headrace-graph"),tools=root.querySelector(".tools");
  var all=Array.from(root.querySelectorAll("details"));
  var ops=Array.from(root.querySelectorAll("li.op")),told=tools.querySelector("output"),was=null;
  function each(open){all.forEach(function(d){d.open=open;});}
  function find(){
    var word=tools.querySelector("input").value.trim().toLowerCase(),n=0;
    if(word&&!was)was=all.map(function(d){return d.open;});
    ops.forEach(function(o){
      var hit=!word||o.textContent.toLowerCase().indexOf(word)>=0;
      o.hidden=!hit;
      if(hit&&word){n++;for(var d=o.closest("details");d;d=d.parentElement.closest("details"))d.open=true;}
    });
    if(!word&&was){all.forEach(function(d,i){d.open=was[i];});was=null;}
    told.textContent=word?n+" found":"";
  }
  tools.hidden=false;
  tools.querySelector(".unfold").addEventListener("click",function(){each(true);});
  tools.querySelector(".fold").addEventListener("click",function(){each(false);});
  var timer=0;
  tools.querySelector("input").addEventListener("input",function(){clearTimeout(timer);timer=setTimeout(find,150);});
})();
"""

_TOOLS: Final = (
    '<div class="tools" hidden><label>Show operations with '
    '<input type="search" placeholder="name, type, dtype"></label>'
    '<button type="button" class="unfold">Unfold all</button><button type="button" class="fold">Fold all</button>'
    '<output aria-live="polite"></output></div>'
)

_LEGEND: Final = (
    "Loops are blue, conditionals orange, calls green; they fold. Operations in one row wait for none of that row, and "
    "what they wait for stands above them. What a branch or body returns has a double border."
)


@recursion_room_for_levels(MOST)
def render_page(d: Description, title: str, limit: int | None = PAGE_LIMIT) -> str:
    """Makes a whole page, in ASCII.

    Args:
      d: the description to show.
      title: the title of the page.
      limit: the largest number of operations to draw; the page gives the number of the others, at their places. None:
        all.

    Example:
      >>> from headrace.inspect.describing import describe
      >>> from headrace.ir.text import from_text
      >>> page = render_page(describe(from_text("x = NoOp")), "<x>")
      >>> "<title>&lt;x&gt;</title>" in page
      True
    """
    box = cut(d.box, limit)
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return _ascii(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{_text(title)}</title>",
            f"<style>\n{_PAGE_STYLE}{_STYLE}</style></head>",
            f'<body><main class="headrace-graph"><h1>{_text(title)}</h1>',
            *_facts(d),
            f"<p>{_LEGEND}</p>",
            *_left_out(box, "give --full for all of them"),
            _TOOLS,
            *_Drawing(box, links=True).inside(box),
            f"</main><script>{_SCRIPT}</script></body></html>",
        ]
    )


@recursion_room_for_levels(MOST)
def render_snippet(box: Box, title: str, limit: int | None = SNIPPET_LIMIT, more: str = "") -> str:
    """Makes the drawing alone, in ASCII, for use in another page.

    Args:
      box: the box to draw.
      title: a line above the drawing.
      limit: the largest number of operations to draw. None: all.
      more: a hint how to see the other operations.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import draw, render_snippet
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      >>> render_snippet(draw(g), "a graph")[:28]
      '<div class="headrace-graph">'
    """
    box = cut(box, limit)
    return _ascii(
        [
            f'<div class="headrace-graph"><style>\n{_STYLE}</style>',
            f'<details class="box" open><summary><b>{_text(title)}</b></summary>',
            *_left_out(box, more),
            *_Drawing(box, links=False).inside(box),
            "</details></div>",
        ]
    )


def graph_html(graph: Graph) -> str:
    """HTML of a graph in a notebook: a drawing, or, if large, a summary.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      >>> from headrace.inspect import graph_html
      >>> graph_html(g)[:28]
      '<div class="headrace-graph">'
    """
    ops = list(nested_operations(graph.operations))
    title = f"graph of {plural(len(ops), 'operation')}"
    if len(ops) <= PAGE_LIMIT:
        return render_snippet(draw(graph), title, more="headrace.inspect.render_page(describe(graph), title) has more")
    counts = _most(collections.Counter(op.type for op in ops).most_common())
    return _ascii(
        [
            f'<div class="headrace-graph"><p><b>{_text(title)}</b>: {_text(counts)}</p>',
            '<p class="note">It is too large to be drawn here; headrace inspect --html draws it from a file.</p></div>',
        ]
    )


def _ascii(lines: Sequence[str]) -> str:
    """Joins lines; other than ASCII characters become references, which are valid in every encoding."""
    return "\n".join(lines).encode("ascii", "xmlcharrefreplace").decode()


def _text(text: str) -> str:
    """Escapes text of a graph, so that it contains no tags."""
    return html.escape(visible(text))


def _facts(d: Description) -> Iterator[str]:
    """Table of facts about the whole graph."""
    known = sum(c.bytes or 0 for c in d.constants)
    state = sum(r.bytes or 0 for r in d.resources)
    lines = {
        "operations": f"{sum(d.ops.values()):,} of {plural(len(d.ops), 'type')}: {_most([*d.ops.items()])}",
        "tensors": _most([*d.dtypes.items()]),
        "constants": f"{len(d.constants):,}, {size_text(known)}" if d.constants else "",
        "state": f"{len(d.resources):,}, {size_text(state)} where the shape is known" if d.resources else "",
        "requested devices": _most([*d.devices.items()]),
    }
    yield "<table>"
    for name, told in lines.items():
        if told:
            yield f'<tr><th scope="row">{name}</th><td>{_text(told)}</td></tr>'
    yield "</table>"


def _most(counts: Sequence[tuple[str, int]], shown: int = 8) -> str:
    more = f", {len(counts) - shown} more" if len(counts) > shown else ""
    return ", ".join(f"{n:,} {visible(name, 40)}" for name, n in counts[:shown]) + more


def _left_out(box: Box, more: str) -> Iterator[str]:
    if box.left_out:
        all_of_them = plural(box.left_out + box.total, "operation")
        way = f"; {more}" if more else ""
        yield f'<p class="note">{box.left_out:,} of {all_of_them} are not drawn here{way}.</p>'


class _Drawing:
    """Writer of a drawing.

    Args:
      whole: the box of the whole drawing.
      links: whether operations have anchors, and their inputs link to them.
    """

    def __init__(self, whole: Box, links: bool) -> None:
        self._drawn = {n.id for n in nodes(whole)} if links else set()
        self._links = links

    def inside(self, box: Box) -> Iterator[str]:
        """Rows of a box, its notes and its results."""
        if box.note and not box.label:
            yield f'<p class="note">{html.escape(visible(box.note, None))}</p>'
        returned = {id for _, id in box.results}
        for row in rows(box.parts):
            yield '<ul class="row">'
            for part in row:
                yield from self._part(part, returned)
            yield "</ul>"
        if box.left_out and box.label:
            yield f'<p class="note">{plural(box.left_out, "operation")} not drawn.</p>'
        if box.results:
            yield f'<p class="q">returns {self._references(box.results)}</p>'

    def _part(self, part: Part, returned: set[int]) -> Iterator[str]:
        if isinstance(part, Node):
            double = " out" if part.id in returned else ""
            yield f'<li class="op{double}"{self._anchor(part)}>{self._node(part)}</li>'
            return
        anchor = self._anchor(part.node) if part.node is not None else ""
        kind = part.kind if part.kind.isidentifier() else "call"
        unfolded = " open" if part.total <= _OPEN else ""
        yield f'<li class="wide"><details class="{kind}"{anchor}{unfolded}><summary>{_heading(part)}</summary>'
        if part.node is not None:
            yield f'<div class="q">{self._ends(part.node)}</div>'
        yield from _passed(part.passed)
        yield '<div class="boxes">'
        for box in part.boxes:
            unfolded = " open" if box.total <= _OPEN else ""
            yield f'<details class="box"{unfolded}><summary>{html.escape(box_heading(box))}</summary>'
            yield from self.inside(box)
            yield "</details>"
        yield "</div></details></li>"

    def _anchor(self, n: Node) -> str:
        return f' id="n{n.id}"' if self._links else ""

    def _node(self, n: Node) -> str:
        out = f"<b>{_text(n.type)}</b> <code>{_text(n.name)}</code>"
        if n.attrs:
            out += f'<div class="q">{_text(n.attrs)}</div>'
        if n.outputs:
            out += f'<div class="q">{_values(n.outputs)}</div>'
        ends = self._ends(n)
        return out + (f'<div class="q">{ends}</div>' if ends else "")

    def _ends(self, n: Node) -> str:
        """Inputs, control inputs, device and source line of a node."""
        words = [f"takes {self._references(n.inputs)}"] if n.inputs else []
        if n.controls:
            words.append(f"waits for {self._references(n.controls)}")
        if n.device:
            words.append(f"on {_text(n.device)}")
        if n.source:
            words.append(f"at {_text(n.source)}")
        return "; ".join(words)

    def _references(self, some: Sequence[Reference]) -> str:
        out = [
            f'<a href="#n{id}">{_text(name)}</a>' if id in self._drawn else _text(name) for name, id in some[:_LISTED]
        ]
        return ", ".join(out) + _more(len(some))


def _heading(s: Structure) -> str:
    gives = f" &rarr; {_values(s.outputs)}" if s.outputs else ""
    about = f' <span class="q">{_text(s.about)}{gives}</span>' if s.about or gives else ""
    return f"<b>{_text(s.kind)}</b> <code>{_text(s.name)}</code>{about}"


def _values(values: Sequence[Value]) -> str:
    """Dtypes, shapes and sizes of tensors."""
    texts = [v.kind + (f", {size_text(v.bytes)}" if v.bytes is not None else "") for v in values[:_LISTED]]
    return html.escape("; ".join(texts)) + _more(len(values))


def _more(n: int) -> str:
    return f" and {n - _LISTED:,} more" if n > _LISTED else ""


def _passed(some: Sequence[Passed]) -> Iterator[str]:
    """Table of the values passed to a structure."""
    if not some:
        return
    columns = ["role", "name", "dtype and shape", "from"]
    columns += [
        title for title, has in (("next", any(p.next for p in some)), ("out by", any(p.out for p in some))) if has
    ]
    yield "<table><tr>" + "".join(f'<th scope="col">{c}</th>' for c in columns) + "</tr>"
    for p in some[:_LISTED]:
        cells = {
            "role": html.escape(p.role),
            "name": f"<code>{_text(p.value.name)}</code>",
            "dtype and shape": _values([p.value]),
            "from": _text(p.start),
            "next": _text(p.next),
            "out by": _text(p.out),
        }
        yield "<tr>" + "".join(f"<td>{cells[c]}</td>" for c in columns) + "</tr>"
    yield "</table>"
    if len(some) > _LISTED:
        yield f'<p class="note">{_more(len(some)).strip()}</p>'
