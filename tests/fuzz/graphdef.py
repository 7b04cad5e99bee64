"""Feeds damaged graphs to headrace, which may refuse them.

headrace must not crash, hang, use up the memory or blame itself for the error.

    python -m tests.fuzz.graphdef --minutes 10 --seed 0
    python -m tests.fuzz.graphdef --case 0:1234         # one case again, with its traceback

A case is a graph of the conformance corpus, damaged in its bytes or in its messages (nodes dropped, doubled, renamed,
inputs exchanged, attributes changed, absurd sizes), in its functions too. It is imported; if that works, its functions
are read, it is exported, printed, parsed and run under a short time limit. All of it follows from (seed, number of the
case). Cases run in a process of their own, with a limit on its memory, that a watchdog kills when it does not answer; a
case that fails is saved.

The errors that a case may raise: an import only `HeadraceError`s, a run those too; never `HeadraceInternalError`.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import math
import os
import random
import re
import resource
import select
import subprocess
import sys
import time
import traceback
import zipfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "data" / "corpus"
MEMORY = 4 << 30  # bytes of address space a worker may take
ARRAY_BYTES = 1 << 27  # kernels refuse to make larger arrays: filling one takes long, and is no fault
STEP_MS = 500  # time limit of a run
PATIENCE = 60.0  # seconds after which a worker that does not answer hangs
MAX_NODES = 300  # of the programs that are damaged: small ones make many cases

COMMAND: tuple[str, ...] = ("-m", "tests.fuzz.graphdef", "--work")  # of a worker
OPS = ("NoSuchOp", "Const", "Identity", "Enter", "Exit", "NextIteration", "Merge", "Switch", "LoopCond", "AddV2",
       "Pack", "MatMul", "Reshape", "Concat", "Split", "VariableV2", "QueueDequeueV2", "StackPopV2", "TensorListStack",
       "_Arg", "PartitionedCall", "If", "While", "Case", "StatefulPartitionedCall", "SymbolicGradient")  # fmt: skip
# With HEADRACE_VERIFY=2: a variable may be given a value that is not of its declared shape, as in TensorFlow.
NOT_ENFORCED = re.compile(r"\((ReadVariableOp|Resource\w*|Assign\w*|Identity|RefIdentity)\) was inferred as")

# *** damage ***

SIZES = (0, 1, 2, 3, -1, -2, 255, 2**16, 10**6, 10**9, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))


def damage(data: bytes, rng: random.Random) -> bytes:
    """`data`, a serialized `GraphDef`, with one to four things wrong with it."""
    from headrace import pb

    if rng.random() < 0.1:
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = damage_bytes(data, rng)
        return data
    graph = pb.GraphDef.FromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if graph.library.function and rng.random() < 0.7:
            _function(graph, rng)
        elif graph.node:
            rng.choice(MESSAGE_DAMAGE)(graph, rng)
    return graph.SerializeToString()


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at, to = sorted((rng.randrange(len(data)), min(len(data), rng.randrange(len(data)) + 1)))
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
    if kind == 3:
        return data[:at] + data[min(at + rng.randrange(1, 9), len(data)) :]
    return data[:to] + data[at:]


def _drop(g: Any, rng: random.Random) -> None:
    del g.node[rng.randrange(len(g.node))]


def _double(g: Any, rng: random.Random) -> None:
    node = g.node.add()
    node.CopyFrom(rng.choice(g.node))
    if rng.random() < 0.8:
        node.name += "_again"


def _rename(g: Any, rng: random.Random) -> None:
    rng.choice(g.node).name = rng.choice(("", "a b", "_x", rng.choice(g.node).name, "x" * 5000, "new"))


def _exchange_inputs(g: Any, rng: random.Random) -> None:
    node = rng.choice(g.node)
    if len(node.input) > 1:
        i, j = rng.sample(range(len(node.input)), 2)
        node.input[i], node.input[j] = node.input[j], node.input[i]


def _redirect(g: Any, rng: random.Random) -> None:
    node = rng.choice(g.node)
    if node.input:
        source = rng.choice(g.node).name
        node.input[rng.randrange(len(node.input))] = rng.choice(
            (source, source, f"{source}:1", f"^{source}", f"{source}:9")
        )


def _add_input(g: Any, rng: random.Random) -> None:
    rng.choice(g.node).input.append(rng.choice(("", "^")) + rng.choice(g.node).name)


def _drop_input(g: Any, rng: random.Random) -> None:
    node = rng.choice(g.node)
    if node.input:
        del node.input[rng.randrange(len(node.input))]


def _other_op(g: Any, rng: random.Random) -> None:
    rng.choice(g.node).op = rng.choice((rng.choice(g.node).op, *OPS))


def _device(g: Any, rng: random.Random) -> None:
    rng.choice(g.node).device = rng.choice(
        ("/cpu:0", "/cpu:7", "/gpu:*", "/job:x/task:99999", "/foo", "a\x00b", "/" * 99)
    )


def _shuffle(g: Any, rng: random.Random) -> None:
    nodes = list(g.node)
    rng.shuffle(nodes)
    del g.node[:]
    g.node.extend(nodes)


def _versions(g: Any, rng: random.Random) -> None:
    g.versions.producer, g.versions.min_consumer = rng.choice(((-1, 0), (2**31 - 1, 0), (0, 99999), (0, 0)))


def _attr(g: Any, rng: random.Random) -> None:
    """Changes one attribute a little, or replaces it."""
    nodes = [n for n in g.node if n.attr]
    if not nodes:
        return
    node = rng.choice(nodes)
    name = rng.choice(sorted(node.attr))
    kind = node.attr[name].WhichOneof("value")
    action = rng.random()
    if action < 0.1:
        del node.attr[name]
    elif action < 0.2:
        other = rng.choice(nodes)
        node.attr[name].CopyFrom(other.attr[rng.choice(sorted(other.attr))])
    elif kind == "tensor" and action < 0.9:
        _tensor(node.attr[name].tensor, rng)
    elif kind == "shape" and action < 0.9:
        _shape(node.attr[name].shape, rng)
    elif kind == "type" and action < 0.9:
        node.attr[name].type = rng.choice((0, 1, 2, 3, 7, 9, 10, 19, 20, 21, 101, 77, 2**31 - 1))
    elif kind == "i" and action < 0.9:
        node.attr[name].i = rng.choice(SIZES)
    elif kind == "s" and action < 0.9:
        node.attr[name].s = rng.choice((b"", b"\xff", b"x", b"while", node.attr[name].s * 2))
    elif kind == "list" and action < 0.9:
        value = node.attr[name].list
        for field, _ in value.ListFields():
            items = getattr(value, field.name)
            if rng.random() < 0.5:
                del items[rng.randrange(len(items))]
            elif field.name == "i":
                items[rng.randrange(len(items))] = rng.choice(SIZES)
            else:
                items.extend(list(items)[:1])
    else:
        node.attr[name].i = rng.choice(SIZES)


def _shape(shape: Any, rng: random.Random) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        shape.unknown_rank = not shape.unknown_rank
    elif kind == 1 and shape.dim:
        rng.choice(shape.dim).size = rng.choice(SIZES)
    elif kind == 2 and shape.dim:
        del shape.dim[0]
    else:
        for _ in range(rng.choice((1, 1, 1, 60, 300))):
            shape.dim.add(size=rng.choice(SIZES))


def _tensor(tensor: Any, rng: random.Random) -> None:
    kind = rng.randrange(6)
    if kind == 0:
        tensor.dtype = rng.choice((0, 1, 2, 3, 4, 7, 8, 9, 10, 14, 19, 20, 21, 24, 99))
    elif kind == 1:
        tensor.tensor_content = damage_bytes(tensor.tensor_content or b"abcd", rng)
    elif kind == 2:
        tensor.int_val.extend(rng.randrange(-9, 9) for _ in range(rng.randrange(5)))
    elif kind == 3:
        tensor.int_val[:] = [rng.choice(SIZES) % 2**31]
        tensor.tensor_content = b""
    else:
        _shape(tensor.tensor_shape, rng)


def _constant(g: Any, rng: random.Random) -> None:
    """Sets another value in a constant.

    A kernel takes the constant for a size, an axis, an index or data.
    """
    tensors = [n.attr["value"].tensor for n in g.node if n.op == "Const"]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    n = math.prod(d.size for d in tensor.tensor_shape.dim)
    if not 0 <= n <= 64:
        return
    tensor.tensor_content = b""
    small = rng.random() < 0.5
    ints = [rng.randrange(-3, 9) if small else rng.choice(SIZES) for _ in range(n)]
    if tensor.dtype in (3, 4, 5, 6, 17):
        tensor.int_val[:] = [max(-(2**31), min(i, 2**31 - 1)) for i in ints]
    elif tensor.dtype == 9:
        tensor.int64_val[:] = ints
    elif tensor.dtype == 1:
        tensor.float_val[:] = [rng.choice((0.0, -1.0, 1e-40, 3e38, math.inf, math.nan)) for _ in range(n)]
    elif tensor.dtype == 10:
        tensor.bool_val[:] = [rng.random() < 0.5 for _ in range(n)]


# Attributes and constants most of all: they import, and reach the kernels.
MESSAGE_DAMAGE = (
    _drop, _double, _rename, _exchange_inputs, _exchange_inputs, _redirect, _redirect, _redirect, _add_input,
    _drop_input, _other_op, _device, _shuffle, _versions, *[_attr] * 6, *[_constant] * 10,
)  # fmt: skip


def _function(g: Any, rng: random.Random) -> None:
    """Something wrong in a function of the library: in its nodes, most of the time."""
    f = rng.choice(g.library.function)
    kind = rng.randrange(8)
    signature = f.signature
    args = [*signature.input_arg, *signature.output_arg]
    if kind == 0 and args:
        arg = rng.choice(args)
        arg.name = rng.choice(("", "a b", "x", rng.choice(args).name))
    elif kind == 1 and args:
        rng.choice(args).type = rng.choice((0, 1, 3, 9, 10, 20, 21, 101, 77))
    elif kind == 2 and signature.input_arg:
        del signature.input_arg[rng.randrange(len(signature.input_arg))]
    elif kind == 3 and f.ret:
        f.ret[rng.choice(sorted(f.ret))] = rng.choice(
            ("", "x", "y:0", "a:output:0", rng.choice(sorted(f.ret.values())))
        )
    elif kind == 4:
        f.control_ret["c"] = rng.choice(("", "x", *(n.name for n in f.node_def)))
    elif kind == 5 and len(f.arg_attr):
        shapes = f.arg_attr[rng.choice(sorted(f.arg_attr))].attr["_output_shapes"].list.shape
        for shape in shapes:
            _shape(shape, rng)
    elif f.node_def:
        inside = type(g)(node=f.node_def)
        rng.choice(MESSAGE_DAMAGE)(inside, rng)
        del f.node_def[:]
        f.node_def.extend(inside.node)


# *** one case ***


class Programs:
    """Small programs of the corpus, with their first runs."""

    def __init__(self) -> None:
        index = json.loads((CORPUS / "index.json").read_text())["programs"]
        self.ids = [p["id"] for p in index if p["nodes"] <= MAX_NODES]

    def load(self, program: str) -> tuple[bytes, list[str], list[tuple[str, Any]]]:
        """The graph of a program, and the fetches and feeds of its first run."""
        module, _, number = program.partition("/")
        with zipfile.ZipFile(CORPUS / "modules" / f"{module}.zip") as z:
            data = z.read(f"{number}/graph.pb")
            meta = json.loads(z.read(f"{number}/steps.json"))
            stored = f"{number}/arrays.npz"
            arrays = np.load(io.BytesIO(z.read(stored)), allow_pickle=False) if stored in z.namelist() else {}
            step = next((s for s in meta.get("steps", ()) if s["kind"] == "run"), {})
            feeds = [
                (name, arrays[key])
                for name, key in step.get("feeds", ())
                if key in arrays and meta["arrays"][key]["dtype"] not in ("string", "bfloat16")
            ]
        return data, list(step.get("fetches", ())) + list(step.get("targets", ())), feeds


Feeds: TypeAlias = "list[tuple[str, Any]]"


def make(programs: Programs, seed: int, number: int) -> tuple[str, bytes, list[str], Feeds, random.Random]:
    """Returns program, damaged graph, fetches, feeds and random numbers of the case.

    The random numbers are the source of the choices that `check` makes.
    """
    rng = random.Random(f"{seed}:{number}")
    program = rng.choice(programs.ids)
    data, fetches, feeds = programs.load(program)
    return program, damage(data, rng), fetches, feeds, rng


def check(data: bytes, fetches: list[str], feeds: Feeds, rng: random.Random) -> str:
    """Imports, exports, prints and runs a graph.

    Returns:
      "refused", "imported" (nothing could be run) or "ran".

    Raises:
      Exception: an error that should not have been raised.
    """
    import headrace as hr
    from headrace.errors import HeadraceError, HeadraceInternalError
    from headrace.ir.serial.functiondef import encode
    from headrace.ir.serial.graphdef import export_graph_def, import_graph_def
    from headrace.ir.text import from_text, to_text
    from headrace.ir.verify import verify

    graph = hr.Graph()
    try:
        import_graph_def(data, graph)
    except HeadraceError as e:
        if isinstance(e, HeadraceInternalError) or not str(e):
            raise
        assert len(graph) == 0, "an import that failed left something behind"
        return "refused"
    import_graph_def(export_graph_def(graph), hr.Graph())
    for name in graph.library:
        try:
            verify(graph.function(name))
            encode(graph.function(name), name)
        except HeadraceError as e:
            if isinstance(e, HeadraceInternalError) or not str(e):
                raise
    text = to_text(graph)
    assert to_text(from_text(text)) == text, "the text changes when it is parsed and printed"

    everything = [t.name for op in graph.operations for t in op.outputs] + [op.name for op in graph.operations]
    there = set(everything)
    wanted = [f for f in fetches if f in there][:8]
    runs = [wanted] if wanted else []
    if everything:
        runs.append(rng.sample(everything, min(3, len(everything))))
    with hr.Session(graph=graph) as sess:
        for names in runs:
            try:
                sess.run(names, {name: value for name, value in feeds if name in there}, timeout_ms=STEP_MS)
            except HeadraceError as e:
                if (isinstance(e, HeadraceInternalError) or not str(e)) and not NOT_ENFORCED.search(str(e)):
                    raise
    return "ran" if runs else "imported"


# *** the worker ***


def work(seed: int) -> None:
    """Reads numbers of cases, one a line, and answers each with a line of JSON."""
    from headrace.opkit import arrays

    arrays.max_bytes = ARRAY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the output of a damaged graph is no answer
    programs = Programs()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        number = int(line)
        started = time.monotonic()
        failure = ""
        outcome = "failed"
        try:
            _, data, fetches, feeds, rng = make(programs, seed, number)
            outcome = check(data, fetches, feeds, rng)
        except BaseException:
            failure = traceback.format_exc()
        answer = {"outcome": outcome, "failure": failure, "seconds": time.monotonic() - started}
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    """A process that runs cases."""

    def __init__(self, seed: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", *COMMAND, "--seed", str(seed)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.line()

    def run(self, number: int) -> dict[str, Any]:
        """The worker's answer, or the watchdog's observation where there is none."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{number}\n")
            self.process.stdin.flush()
            answer: dict[str, Any] = json.loads(self.line())
            return answer
        except TimeoutError:
            failure = f"hangs: no answer within {PATIENCE:.0f} s"
        except (EOFError, BrokenPipeError):
            failure = f"crash: the process ended with status {self.process.wait()}"
        self.stop()
        return {"outcome": "failed", "failure": failure, "seconds": PATIENCE}

    def line(self) -> str:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError
        text = self.process.stdout.readline()
        if not text:
            raise EOFError
        return text

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


# *** the driver ***


def fuzz(seed: int, minutes: float, cases: int | None, save: Path) -> int:
    """Runs cases until the time or the number is up; returns how many failed."""
    started = time.monotonic()
    last_report = started
    counts: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[str] = collections.Counter()
    number = 0
    programs = Programs()
    worker = Worker(seed)
    try:
        while (cases is None or number < cases) and time.monotonic() - started < minutes * 60:
            answer = worker.run(number)
            counts[answer["outcome"]] += 1
            if answer["failure"]:
                kind = answer["failure"].strip().split("\n")[-1][:160]
                kinds[kind] += 1
                _save(save, programs, seed, number, answer["failure"])
                print(f"case {seed}:{number} failed: {kind}", flush=True)
            if not worker.alive:
                worker = Worker(seed)
            number += 1
            if time.monotonic() - last_report > 10:
                last_report = time.monotonic()
                print(f"{number} cases, {last_report - started:.0f} s: {dict(counts)}", flush=True)
    finally:
        worker.stop()
    print(
        f"{number} cases: {counts['refused']} refused, {counts['imported']} imported, {counts['ran']} ran, "
        f"{counts['failed']} failed (seed {seed}, {time.monotonic() - started:.0f} s)"
    )
    return counts["failed"]


def _save(folder: Path, programs: Programs, seed: int, number: int, failure: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    program, data, fetches, _, _ = make(programs, seed, number)
    (folder / f"{seed}-{number}.pb").write_bytes(data)
    (folder / f"{seed}-{number}.txt").write_text(f"{program}\nfetches {fetches}\n\n{failure}")


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.graphdef", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="stop after so many cases")
    parser.add_argument("--case", metavar="SEED:NUMBER", help="run one case here, and let its error through")
    parser.add_argument("--save", type=Path, default=ROOT / "build" / "fuzz", help="where failing graphs go")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.work:
        work(args.seed)
        return 0
    if args.case:
        seed, number = map(int, args.case.split(":"))
        program, data, fetches, feeds, rng = make(Programs(), seed, number)
        print(program, "fetches", fetches)
        print(check(data, fetches, feeds, rng))
        return 0
    return 1 if fuzz(args.seed, args.minutes, args.cases, args.save) else 0


if __name__ == "__main__":
    sys.exit(main())
