"""Steps as the pipeline makes them, with passes of one's choice, run by the interpreter."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from headrace.execute.executor import MachineProgram
from headrace.execute.plan import make_plan
from headrace.execute.run import RunEnvironment
from headrace.execute.step import Step
from headrace.grad.differentiate import differentiate
from headrace.ir.edit.editor import own_bodies
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from headrace.lower import lower
from headrace.optimize.base import Options, Pass, PassContext, Repeat, run
from headrace.optimize.loops import LOOP_PASSES
from headrace.prune import prune
from headrace.resources.manager import ResourceManager

PASSES: dict[str, Pass] = {p.name: p for p in LOOP_PASSES}


@dataclasses.dataclass
class Optimized:
    """A step of which passes have been run.

    Attributes:
      graph: it.
      preserved: its targets.
      context: with the report.
      changed: whether any pass changed anything.
    """

    graph: Graph
    preserved: list[Operation]
    context: PassContext
    changed: bool

    def run(self, fed: Sequence[Any], resources: ResourceManager | None = None) -> list[Any]:
        """Returns the fetches for these feeds."""
        lowered = lower(self.graph, self.preserved, differentiate)
        plan = make_plan(lowered.ops, lowered.functions)
        step = Step(ResourceManager() if resources is None else resources, ResourceManager, None)
        run = MachineProgram(plan, RunEnvironment()).start(step)
        for i, v in enumerate(fed):
            run.feed(i, v)
        try:
            run.run()
            fetches = sum(op.type == "_Retval" for op in self.graph.operations)
            return [run.fetch(i) for i in range(fetches)]
        finally:
            step.close()

    def fired(self, rule: str = "") -> list[str]:
        return [f"{n.op}: {n.text}" for n in self.context.notes if n.fired and n.rule.startswith(rule)]

    def refused(self, rule: str = "") -> list[str]:
        return [f"{n.op}: {n.text}" for n in self.context.notes if not n.fired and n.rule.startswith(rule)]

    def count(self, name: str, type: str) -> int:
        """Number of operations of a type in the body of the loop `name`.

        Nested graphs are not counted.
        """
        body = self.graph.get_operation_by_name(name).attrs["body"]
        return sum(op.type == type for op in body.operations)


def optimize(
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    passes: Iterable[Pass | Repeat],
    targets: Sequence[Operation] = (),
    options: Options | None = None,
    rounds: int = 1,
) -> Optimized:
    """Returns the step with these feeds and fetches after `passes`.

    The graph is verified after each pass.
    """
    pruned = prune(feeds, fetches, targets)
    own_bodies(pruned.graph)
    preserved = [op for t in targets if (op := pruned.graph.find(t.name)) is not None]
    context = PassContext(options or Options(), preserved)
    changed = False
    for _ in range(rounds):
        changed = run(list(passes), pruned.graph, context, verify)
    verify(pruned.graph)
    return Optimized(pruned.graph, preserved, context, changed)


def transformed(
    text: str, passes: Sequence[Pass], preserved: Sequence[str] = (), **options: Any
) -> tuple[str, PassContext]:
    """The text of a graph after `passes`, and their report; `preserved` are the step's targets.

    Of each line there is what a reader of a loop cares for: no constants, attributes, dtypes, shapes; of a loop its
    inputs, of its body the parameters' names, of its condition nothing.
    """
    graph = from_text(textwrap.dedent(text))
    context = PassContext(Options(**options), [graph.get_operation_by_name(n) for n in preserved])
    run(passes, graph, context, verify)
    again = from_text(to_text(graph))
    verify(again)
    out, skipped = [], False
    for line in to_text(graph).splitlines():
        if ", cond" in line and line.lstrip().startswith("graph"):
            skipped = True
        if not skipped and " = Const[" not in line and not re.search(r" = Placeholder\b", line):
            out.append(_short(line))
        if line.strip() == "}":
            skipped = False
    return "\n".join(out) + "\n", context


def check(rule: str, before: str, after: str, fired: list[str], refused: list[str] | None = None) -> None:
    """Compares the result and the report of one pass with the expected ones.

    A second run of the pass changes nothing more, and the pass does nothing if it is switched off.
    """
    got, context = transformed(before, [PASSES[rule]])
    assert got == after.lstrip("\n")
    assert [f"{n.op}: {n.text}" for n in context.notes if n.fired] == fired
    assert [f"{n.op}: {n.text}" for n in context.notes if not n.fired] == (refused or [])
    got, context = transformed(before, [PASSES[rule], PASSES[rule]])
    assert got == after.lstrip("\n")
    off, context = transformed(before, [PASSES[rule]], off=frozenset({rule}))
    assert off == transformed(before, [])[0]
    assert not context.notes


def untouched(rule: str, before: str, *why: str, **options: Any) -> None:
    """Raises unless a pass leaves a graph unchanged and reports the reasons `why`."""
    got, context = transformed(before, [PASSES[rule]], **options)
    assert got == transformed(before, [])[0]
    assert [n.text for n in context.notes] == list(why)


def loop_text(
    variables: str,
    inputs: str,
    results: str,
    body: str,
    *,
    cond: str = "less = Less(i, n)",
    before: str = "",
    behind: str = "",
    name: str = "loop",
    type: str = "StatelessWhile",
) -> str:
    """Returns the text of a loop `name`.

    Its body and its condition also have the constants `zero`, `one`, `two` and `five`.

    Args:
      variables: The parameters, as in the text of a graph.
      inputs, results: Their initial and their next values.
      body, cond: Lines of both graphs; the last line of the condition defines the tensor that it returns.
      before, behind: Lines before and after the loop.
      name, type: Name and type of the loop operation.
    """
    dtypes = ", ".join(re.findall(r": (\w+)(?:\[|<)", variables))
    graphs = []
    for role, lines, ends in ("cond", cond, cond.splitlines()[-1].split("=")[0].strip()), ("body", body, results):
        used = [f"{n} = {_numbers[n]}\n" for n in _numbers if re.search(rf"\b{n}\b", f"{lines} {ends}")]
        head = f'graph "{name}_{role}" of {name}, {role} ({variables}) -> ({ends})'
        graphs.append(f"{head} {{\n{''.join(used)}{lines}\n}}")
    made = f'{name} = {type}[T=({dtypes}), cond=@"{name}_cond", body=@"{name}_body"]({inputs})'
    return "\n".join([before, made, *graphs, behind])


def loop_of(variables: str, body: str, *, before: str = "", **more: str) -> str:
    """The text of a loop with variables given line by line: `name: type = first -> next`.

    Without `next` it is a loop constant; without `first` it begins with a placeholder of its name and type.
    """
    pattern = r"(\w+): ((\w+).*?)(?: = (\S+))?(?: -> (\S+))?$"
    found = [v for line in variables.splitlines() if (v := re.match(pattern, line.strip()))]
    assert len(found) == len(variables.split("\n")) - variables.split("\n").count(""), variables
    made = ["zero = Const[value=int32[]{0}, dtype=int32]", "one = Const[value=int32[]{1}, dtype=int32]"]
    made += [f"{v[1]} = Placeholder[dtype={v[3]}, shape={v[2].removeprefix(v[3])}]" for v in found if v[4] is None]
    return loop_text(
        ", ".join(f"{v[1]}: {v[2]}" for v in found),
        ", ".join(v[4] or v[1] for v in found),
        ", ".join(v[5] or v[1] for v in found),
        body,
        before="\n".join(made) + "\n" + before,
        **more,
    )


_numbers: Final = {
    n: f"Const[value=int32[]{{{i}}}, dtype=int32]" for n, i in (("zero", 0), ("one", 1), ("two", 2), ("five", 5))
}


def agree(
    text: str, passes: Iterable[Pass], feeds: dict[str, Any], fetches: Sequence[str], **options: Any
) -> Optimized:
    """Returns the step of the graph `text` after `passes`.

    Raises unless the step gives the same results with `passes` as without them.
    """
    found = []
    for each in (), tuple(passes):
        graph = from_text(textwrap.dedent(text))
        fed = [graph.get_tensor_by_name(f"{n}:0") for n in feeds]
        fetched = [graph.get_tensor_by_name(n if ":" in n else f"{n}:0") for n in fetches]
        found.append(optimize(fed, fetched, each, options=Options(**options)))
        given = [np.asarray(v, t.dtype.numpy) for v, t in zip(feeds.values(), fed, strict=True)]
    close(found[1].run(given), found[0].run(given), 1e-6)
    return found[1]


def _short(line: str) -> str:
    head = re.match(r'( *)graph "\w+" of (\w+), body[^(]*\((.*)\) -> (.*) \{', line)
    if head is not None:
        params = re.sub(r': \w+\[[^]]*\]( holds \w+\[[^]]*\])?( of "[^"]*")?', "", head[3])
        return f"{head[1]}body of {head[2]} ({params}) -> {head[4]} {{"
    line = re.sub(r"(?<=[\w\]])\{[A-Z]\w*(\[.*\])?\}(?=[( ])", "", line)  # notes
    line = re.sub(r"^( *\S+ = \w+)\[(.*?)\]\(", lambda m: m[1] + _turns(m[2]) + "(", line)
    return re.sub(r" : (\w+\[[^]]*\](, )?)+$", "", line)


def _turns(attrs: str) -> str:
    preserved = re.findall(r"transpose_\w=true", attrs)
    return f"[{', '.join(preserved)}]" if preserved else ""


def close(got: Sequence[Any], want: Sequence[Any], tolerance: float) -> None:
    """Asserts that values are equal to `tolerance`, relative to the largest of each."""
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        if not x.size or x.dtype == object:
            continue
        if tolerance == 0 or x.dtype.kind not in "fc":
            np.testing.assert_array_equal(x, y)
        else:
            scale = 1 + np.abs(np.where(np.isfinite(y), y, 0)).max()
            np.testing.assert_allclose(x / scale, y / scale, atol=tolerance, rtol=0)
