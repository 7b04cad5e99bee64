"""Gradients of the corpus' programs, in headrace and in TensorFlow, on the same values.

TensorFlow 1 differentiates only loops that it has built itself in the same process, so of an imported program with
primitive control flow it gives no gradient. But it differentiates an imported graph of functional operations. So that
is what it gets:

    GraphDef of the corpus -> headrace -> `recover` -> GraphDef with If and While -> TensorFlow -> tf.gradients

and `hr.gradients` of the program as it came is compared with that. Both get the same feeds and random `grad_ys`. The
steps that a program had run before are run before, in both, so that variables hold what they held.

Where TensorFlow has no gradient (or draws other random numbers), the derivative in a random direction is
compared with differences of headrace's values.

`python -m tests.conformance.gradients PART PARTS` prints what became of the programs, as JSON;
`python -m tests.conformance.gradients PROGRAM ...` that of some, with all there is to say.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
import traceback
import types
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.grad.zeros import carries
from headrace.ir.opdef import op_registry
from headrace.recover import recover, resolved

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
KNOWN = Path(__file__).with_name("gradients.txt")
CONTROL = {"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration"}
CONTROL |= {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}
SOURCES = {"Const", "Placeholder", "PlaceholderWithDefault"}
STEPS, YS, XS = 3, 6, 8  # of a program are compared at most
LARGE = 1000  # so many nodes: one step only, for TensorFlow takes long
STEP_MS = 20_000


def _replay() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("headrace_corpus_replay", CORPUS / "replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


corpus = _replay().Corpus(str(CORPUS))


# *** questions: gradients of fetches of recorded programs ***


@dataclass
class Question:
    """The gradients of some fetches of one step.

    Attributes:
      step: the number of the step.
      ys, xs: names of tensors.
    """

    step: int
    ys: list[str]
    xs: list[str]


def candidates() -> list[str]:
    """Programs with control flow that headrace can import."""
    out = []
    for e in corpus.index:
        if {"import_error", "concurrent", "partial_run"} & set(e["tags"]):
            continue
        if not CONTROL & set(e["ops"]) and "functions" not in e["tags"]:
            continue
        if "functions" in e["tags"] or all(t in op_registry for t in e["ops"]):
            out.append(e["id"])
    return out


def questions(graph: hr.Graph, program: Mapping[str, Any]) -> Iterator[Question]:
    """For fetches to which floats lead through control flow from constants or placeholders."""
    asked: set[str] = set()
    count = 0
    for number, step in enumerate(program["steps"]):
        if step["kind"] != "run" or step.get("error") or step.get("timeout_ms"):
            continue
        fed = {n for n, _ in step["feeds"]}
        ys: list[str] = []
        xs: dict[str, None] = {}
        for name in dict.fromkeys(step["fetches"]):
            y = graph.get_tensor_by_name(name)
            if name in asked or not y.dtype.base.is_floating or len(ys) == YS:
                continue
            found = [x for x in _sources(y, fed) if x.op.type != "Placeholder" or x.name in fed]
            if found:
                asked.add(name)
                ys.append(name)
                xs.update(dict.fromkeys(x.name for x in found))
        if ys:
            yield Question(number, ys, sorted(xs)[:XS])
            count += 1
        if count == (STEPS if len(graph) < LARGE else 1):
            return


def _sources(y: hr.Tensor, fed: set[str]) -> list[hr.Tensor]:
    """The float constants and placeholders from which control flow that leads to `y` comes."""
    reached: dict[tuple[hr.Tensor, bool], None] = {(y, False): None}
    todo = [(y, False)]
    while todo:
        t, passed = todo.pop()
        if t.name in fed and t.op.type not in SOURCES:
            continue
        passed = passed or t.op.type in CONTROL
        for u in t.op.inputs:
            if carries(u.dtype) and (u, passed) not in reached:
                reached[u, passed] = None
                todo.append((u, passed))
    sources = [t for t, passed in reached if passed and t.op.type in SOURCES and t.dtype.base.is_floating]
    return [x for x in dict.fromkeys(sources) if x.name in fed or not x.op.control_inputs]


# *** answers ***


@dataclass
class Answer:
    """
    Attributes:
      values: of the ys.
      gradients: of the xs; None where there is no way.
    """

    values: list[np.ndarray]
    gradients: list[np.ndarray | None]


def _weights(name: str, like: np.ndarray) -> np.ndarray:
    """The gradient of a y: random, the same in both systems and in each run."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return np.asarray(rng.normal(size=like.shape)).astype(like.dtype)


class Ours:
    """headrace's answers."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        self.program = program
        self.graph = self.imported()  # as it came; values are computed in it
        self._known: dict[int, list[np.ndarray]] = {}  # values of questions, by the numbers of their steps

    def imported(self) -> hr.Graph:
        with hr.Graph() as g:
            hr.import_graph_def(self.program["graph"], name="")
        return g

    def structured(self, question: Question) -> tuple[bytes, dict[str, str]]:
        """The graph with If and While, serialized; and what stands there for results of primitives."""
        g = self.imported()
        recover(g, [g.get_tensor_by_name(n) for n in (*question.ys, *question.xs)])
        instead = {t.name: resolved(t).name for op in g.operations for t in op.outputs if resolved(t) is not t}
        return g.as_graph_def().SerializeToString(), instead

    def feeds(self, question: Question) -> dict[str, Any]:
        return {n: self.program["data"][k] for n, k in self.program["steps"][question.step]["feeds"]}

    def session(self, question: Question, graph: hr.Graph) -> hr.Session:
        """One in which the steps before were run."""
        session = hr.Session(graph=graph, config={"operation_timeout_in_ms": STEP_MS})
        for fetches, feeds in before(self.program, question):
            session.run(fetches, feeds)
        return session

    def answer(self, question: Question) -> Answer:
        values, feeds = self.known_values(question), self.feeds(question)
        with self.imported() as g:
            ys = [g.get_tensor_by_name(n) for n in question.ys]
            xs = [g.get_tensor_by_name(n) for n in question.xs]
            dys = [hr.constant(_weights(n, v)) for n, v in zip(question.ys, values, strict=True)]
            found = hr.gradients(ys, xs, dys)
            found = [g if g is None else hr.convert_to_tensor(g) for g in found]
        with self.session(question, g) as session:
            values, gradients = session.run([ys, [g for g in found if g is not None]], feeds)
        rest = iter(gradients)
        return Answer(values, [None if g is None else next(rest) for g in found])

    def known_values(self, question: Question) -> list[np.ndarray]:
        """Values of the ys, computed once; the weights have their dtypes and shapes."""
        if question.step not in self._known:
            self._known[question.step] = self.values(question)
        return self._known[question.step]

    def values(self, question: Question, at: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        with self.session(question, self.graph) as session:
            return [np.asarray(v) for v in session.run(question.ys, self.feeds(question) | dict(at or {}))]

    def value_of(self, name: str, question: Question) -> np.ndarray:
        feeds = self.feeds(question)
        if name in feeds:
            return np.asarray(feeds[name])
        with self.session(question, self.graph) as session:
            return np.asarray(session.run(name, feeds))


def before(program: Mapping[str, Any], question: Question) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The earlier runs: names, feeds."""
    for step in program["steps"][: question.step]:
        if step["kind"] == "run" and not step.get("error") and not step.get("timeout_ms"):
            feeds = {n: program["data"][k] for n, k in step["feeds"]}
            yield [*step["fetches"], *step["targets"]], feeds


class Refused(Exception):
    """TensorFlow gives no gradient."""


REFUSALS = (  # what TensorFlow says then; anything else that fails there is a mistake of ours
    "No gradient defined for op",
    "Taking gradient of a while loop which creates a resource in its body is not supported",
    "Tried to take gradients (or similar) of a variable without handle data",
    "Cannot convert a partially known TensorShape <unknown>",  # zeros like a handle
    "Trying to access a handle's resource using the wrong type",  # a Stack that is left in a loop's body
)


class Theirs:
    """TensorFlow's answers."""

    def __init__(self, ours: Ours) -> None:
        import tensorflow as tf

        self.tf = tf
        self.ours = ours

    def answer(self, question: Question) -> Answer:
        v1 = self.tf.compat.v1
        data, instead = self.ours.structured(question)
        graph_def = v1.GraphDef.FromString(data)
        prepared = Prepared(graph_def)

        def name(n: str) -> str:
            """The substitute name of a tensor, or of an operation that is to be run."""
            found = instead.get(n if ":" in n else f"{n}:0", n)
            return prepared.name(found) if ":" in found else found

        feeds = self.ours.feeds(question)
        options = v1.ConfigProto(operation_timeout_in_ms=STEP_MS)
        options.graph_options.optimizer_options.opt_level = -1
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        try:
            with self.tf.Graph().as_default() as graph:
                self.tf.import_graph_def(graph_def, name="")
                ys = [graph.get_tensor_by_name(n) for n in map(name, question.ys)]
                xs = [graph.get_tensor_by_name(n) for n in question.xs]
                values = self.ours.known_values(question)
                dys = [self.tf.constant(_weights(n, v)) for n, v in zip(question.ys, values, strict=True)]
                found = self.tf.gradients(ys, xs, dys)
                found = [g if g is None else self.tf.convert_to_tensor(g) for g in found]
                with v1.Session(config=options) as session:
                    for fetches, given in before(self.ours.program, question):
                        session.run([name(n) for n in fetches], given)
                    values, gradients = session.run([ys, [g for g in found if g is not None]], feeds)
        except Exception as e:
            if any(text in str(e) for text in REFUSALS):
                raise Refused(f"{type(e).__name__}: {e}") from e
            raise
        rest = iter(gradients)
        return Answer(values, [None if g is None else next(rest) for g in found])


# *** graphs as TensorFlow's gradients want them ***

INT32 = 3  # DT_INT32
_numbers = itertools.count()  # of functions, in all graphs: TensorFlow's names of functions are global


class Prepared:
    """A GraphDef changed such that TensorFlow differentiates it.

    * Each conditional and loop has functions of its own: TensorFlow changes them, under names that follow from theirs.
    * Loops have two variables more, before the others: a counter and a maximum of iterations. TensorFlow takes it for
      granted that a While has them, as all have that its own `while_loop` made.
    * Functions have nothing in them that they do not need: shape inference fails at what was left over.
    * No node asks for a device.
    """

    def __init__(self, graph_def: Any) -> None:
        self._library = graph_def.library
        self._given = {f.signature.name: type(f).FromString(f.SerializeToString()) for f in self._library.function}
        self._made: dict[str, Any] = {}
        del self._library.function[:]
        for g in self._library.gradient:
            self._called(g.function_name)
            self._called(g.gradient_func)
        self._moved = self._nodes(graph_def.node, None)

    def name(self, tensor: str) -> str:
        """The name that a tensor of the graph has since."""
        return _shifted(tensor, self._moved, False)

    def _nodes(self, nodes: Any, function: Any) -> set[str]:
        """Changes nodes of the graph, or of a function; returns the loops with renumbered results."""
        moved = set()
        for node in list(nodes):
            node.device = ""
            self._called(node.op)
            for value in node.attr.values():
                for f in [value.func] if value.HasField("func") else value.list.func:
                    if node.op in CONTROL:
                        f.name = self._make(f.name, f"{f.name}_{next(_numbers)}")
                    else:
                        self._called(f.name)
            if "While" in node.op and not self._counts(self._made[node.attr["body"].func.name]):
                self._add_counters(node, nodes, function is not None)
                moved.add(node.name)
        for node in nodes:
            node.input[:] = [_shifted(r, moved, function is not None) for r in node.input]
        if function is not None:
            for k, r in list(function.ret.items()):
                function.ret[k] = _shifted(r, moved, True)
        return moved

    def _called(self, name: str) -> None:
        """A function that may be called from several places stays one, under its name."""
        if name in self._given and name not in self._made:
            self._make(name, name)

    def _make(self, name: str, new: str) -> str:
        f = self._library.function.add()
        f.CopyFrom(self._given[name])
        f.signature.name = new
        self._made[new] = f
        _prune(f)
        self._nodes(f.node_def, f)
        return new

    @staticmethod
    def _counts(body: Any) -> bool:
        """Whether a loop has the two variables."""
        ins, outs = body.signature.input_arg, body.signature.output_arg
        if len(ins) < 2 or [a.type for a in ins[:2]] != [INT32, INT32]:
            return False
        made_by = {n.name: n for n in body.node_def}

        def origin(reference: str) -> tuple[str, Any]:
            node = made_by.get(reference.partition(":")[0])
            return origin(node.input[0]) if node is not None and node.op == "Identity" else (reference, node)

        kept, _ = origin(body.ret[outs[1].name])
        _, step = origin(body.ret[outs[0].name])
        return kept == ins[1].name and step is not None and step.op in ("Add", "AddV2") and ins[0].name in step.input

    def _add_counters(self, loop: Any, nodes: Any, in_function: bool) -> None:
        for i, (label, value) in enumerate((("counter", 0), ("maximum", -1))):
            loop.input.insert(i, _add_constant(nodes, f"{loop.name}/{label}", value, in_function))
        loop.attr["T"].list.type[:] = [INT32, INT32, *loop.attr["T"].list.type]
        shapes = loop.attr["output_shapes"].list.shape
        if shapes:
            known = [s.SerializeToString() for s in shapes]
            del shapes[:]
            for s in [b"", b"", *known]:
                shapes.add().MergeFromString(s)
        for attr in ("cond", "body"):
            _add_variables(self._made[loop.attr[attr].func.name], attr == "body")


def _add_variables(f: Any, is_body: bool) -> None:
    """Gives a loop's function the two arguments (and, `is_body`, results) more."""
    for arguments, end in [(f.signature.input_arg, "")] + [(f.signature.output_arg, "_out")] * is_body:
        before = list(arguments)
        del arguments[:]
        for label in ("counter", "maximum"):
            arguments.add(name=f"loop_{label}{end}", type=INT32)
        arguments.extend(before)
    f.resource_arg_unique_id.clear()
    for k in sorted(f.arg_attr, reverse=True):
        f.arg_attr[k + 2].CopyFrom(f.arg_attr[k])
        del f.arg_attr[k]
    if is_body:
        one = _add_constant(f.node_def, "loop_one", 1, True)
        add = f.node_def.add(name="loop_next", op="AddV2", input=["loop_counter", one])
        add.attr["T"].type = INT32
        f.ret["loop_counter_out"] = "loop_next:z:0"
        f.ret["loop_maximum_out"] = "loop_maximum"


def _add_constant(nodes: Any, name: str, value: int, in_function: bool) -> str:
    node = nodes.add(name=name, op="Const")
    node.attr["dtype"].type = INT32
    node.attr["value"].tensor.dtype = INT32
    node.attr["value"].tensor.tensor_shape.SetInParent()
    node.attr["value"].tensor.int_val.append(value)
    return f"{name}:output:0" if in_function else name


def _shifted(reference: str, loops: set[str], in_function: bool) -> str:
    """A reference to an output of a node.

    Its number is two higher if the node is one of `loops`.
    """
    name, _, rest = reference.partition(":")
    if name not in loops:
        return reference
    if in_function:
        output, _, k = rest.rpartition(":")
        return f"{name}:{output}:{int(k) + 2}"
    return f"{name}:{int(rest or 0) + 2}"


def _prune(f: Any) -> None:
    made_by = {n.name: n for n in f.node_def}
    needed: dict[str, None] = {}
    todo = [*f.ret.values(), *f.control_ret.values()]
    while todo:
        name = todo.pop().lstrip("^").partition(":")[0]
        if name in made_by and name not in needed:
            needed[name] = None
            todo += made_by[name].input
    kept = [n for n in f.node_def if n.name in needed]
    del f.node_def[:]
    f.node_def.extend(kept)


# *** comparison ***

TOLERANCES = {"float64": 1e-8, "float32": 2e-4}  # relative to the largest number


@dataclass
class Outcome:
    """The result of comparing a program's gradients.

    Attributes:
      agree: how many gradients agree with TensorFlow's, and are not zero or nothing.
      numeric: how many do so with differences, where TensorFlow has none.
      nothing: how many are zero, or there is no way, in both.
      unclear: how many differences say nothing about: they depend on the step.
      refused: what TensorFlow said where it has none.
      wrong: the results that do not agree.
    """

    agree: int = 0
    numeric: int = 0
    nothing: int = 0
    unclear: int = 0
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def count(self, kind: str, g: np.ndarray | None) -> None:
        kind = "nothing" if _is_nothing(g) else kind
        setattr(self, kind, getattr(self, kind) + 1)


def _error(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    scale = max(np.abs(b[np.isfinite(b)]).max(initial=0.0), 1e-3)
    with np.errstate(invalid="ignore"):
        differ = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.nan_to_num(differ, nan=np.inf).max(initial=0.0) / scale)


def _is_nothing(g: np.ndarray | None) -> bool:
    return g is None or not np.any(g)


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return _is_nothing(a) and _is_nothing(b)
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and _error(a, b) < TOLERANCES.get(a.dtype.name, 3e-2)


def check(pid: str) -> Outcome:
    """Compares a program's gradients."""
    out = Outcome()
    program = corpus.load(pid)
    if program.get("events"):
        return out
    try:
        ours = Ours(program)
        asked = list(questions(ours.graph, program))
    except hr.errors.NotFoundError:  # an op type that headrace does not have, in a function
        return out
    for question in asked:
        try:
            _check(out, ours, question)
        except Exception as e:
            traceback.print_exc()
            out.wrong.append(f"step {question.step}, {question.ys} by {question.xs}: {type(e).__name__}: {e}")
    return out


def _check(out: Outcome, ours: Ours, question: Question) -> None:
    mine = ours.answer(question)
    try:
        theirs = Theirs(ours).answer(question)
        if not all(map(_same, mine.values, theirs.values)):
            if "random" not in ours.program["tags"]:
                raise AssertionError(f"{mine.values} here, {theirs.values} in TensorFlow")
            raise Refused("other random numbers in functions than outside")
    except Refused as e:
        out.refused.append(str(e))
        for x, g in zip(question.xs, mine.gradients, strict=True):
            _numeric(out, ours, question, x, g)
        return
    for x, g, h in zip(question.xs, mine.gradients, theirs.gradients, strict=True):
        if _same(g, h):
            out.count("agree", g)
        elif h is None:  # some of its rules leave arguments out: the padding of MatrixDiagV3
            _numeric(out, ours, question, x, g)
        else:
            out.wrong.append(f"step {question.step}, {question.ys} by {x}: {g} here, {h} in TensorFlow")


def _numeric(out: Outcome, ours: Ours, question: Question, x: str, g: np.ndarray | None) -> None:
    """Compares the derivative in a direction with differences, if those of two steps agree."""
    at = ours.value_of(x, question)
    way = _weights(x, at)
    size = 1.0

    def total(step: float) -> float:
        nonlocal size
        found = ours.values(question, {x: (at + step * way).astype(at.dtype)})
        parts = [v.astype(np.float64) * _weights(n, v) for n, v in zip(question.ys, found, strict=True)]
        size = max(size, *(float(np.abs(p).max(initial=0.0)) for p in parts))
        return sum(float(p.sum()) for p in parts)

    got = 0.0 if g is None else float(np.sum(g.astype(np.float64) * way))
    precision = float(np.finfo(at.dtype).eps)
    step = precision ** (1 / 3) * max(1.0, float(np.abs(at).max(initial=0.0)))
    first, second = ((total(h) - total(-h)) / (2 * h) for h in (4 * step, 2 * step))
    noise = 10 * precision * size / step
    tolerance = 2e-2 * max(abs(first), abs(second)) + noise
    if not abs(first - second) <= tolerance:
        out.unclear += 1
    elif abs(got - second) <= tolerance:
        out.count("numeric", g)
    else:
        out.wrong.append(f"step {question.step}, {question.ys} by {x}: {got} in a direction, differences give {second}")


def run(programs: Iterable[str]) -> dict[str, Any]:
    """The results of comparing the gradients of programs.

    Returns:
      `programs`: how many agree with TensorFlow, or with differences, or have only gradients that are nothing;
      `gradients`: how many of each kind of `Outcome`; `wrong` and `refused`: program → what.
    """
    kinds = ("agree", "numeric", "nothing", "unclear")
    total: dict[str, Any] = {"programs": dict.fromkeys(kinds, 0), "gradients": dict.fromkeys(kinds, 0)}
    total |= {"wrong": {}, "refused": {}}
    for pid in programs:
        o = check(pid)
        for kind in kinds:
            total["gradients"][kind] += getattr(o, kind)
        of = next((kind for kind in kinds if getattr(o, kind)), None)
        if of is not None and not o.wrong:
            total["programs"][of] += 1
        if o.wrong:
            total["wrong"][pid] = o.wrong
        if o.refused:
            total["refused"][pid] = o.refused
    return total


def known() -> dict[str, str]:
    """Programs that are known to differ, and why."""
    lines = [line for line in KNOWN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {pid: why for pid, _, why in (line.partition(" ") for line in lines)}


def main(argv: Sequence[str]) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    tf.get_logger().setLevel("ERROR")
    programs = list(argv) if argv and "/" in argv[0] else candidates()[int(argv[0]) :: int(argv[1])]
    json.dump(run(programs), sys.stdout, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
