"""Four real TensorFlow programs on headrace: `make examples`, or `python examples/recorded.py`.

TensorFlow's own unit tests built these graphs and ran them; tests/data/corpus keeps the graphs, what was fed and what
came out. Here they are imported and run without TensorFlow, and every result is compared with TensorFlow's.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "data" / "corpus"
TRACE = Path("recorded_trace.json")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of the corpus, and what it does in words."""

    id: str
    title: str
    story: str
    trace: Path | None = None


PROGRAMS = (
    Program(
        "map_fn/0009",
        "A loop over TensorArrays, and its gradient",
        "y = w * x**2 for each x of [1 .. 6], w = 2. TensorFlow's autodiff has added loops that go back over\n"
        "what the first one saves on stacks: the sum's derivative by w is 91, by x it is 4 x.",
        TRACE,
    ),
    Program(
        "control_flow_ops_py/0037",
        "A loop in a loop, and its gradient",
        "x = 2 is squared three times, each time by a loop of its own: an inner frame is opened in every\n"
        "iteration of the outer one. x**8 is 256, and its derivative 8 * 2**7 = 1024.",
    ),
    Program(
        "control_flow_ops_py/0003",
        "A conditional in a loop, and its gradient",
        "The loop squares x, or takes 1 from it, while it is below 100; x = 2 is fed. The loop of the gradient\n"
        "finds on a stack which way each iteration went. It is 8 * 2**7 again.",
    ),
    Program(
        "control_flow_ops_py/0042",
        "A loop and a queue",
        "A loop puts 0 to 9 into a queue, which lives on in the session; ten more runs take them out.",
    ),
)


class Counter:
    """Listener that counts the events of a run, and stores them with `keep`."""

    def __init__(self, keep: bool) -> None:
        self.events: list[Any] = []
        self.fired = self.dead = self.iterations = self.most_open = 0
        self._open = 0
        self._keep = keep

    def __call__(self, event: Any) -> None:
        if self._keep:
            self.events.append(event)
        if isinstance(event, hr.step_events.NodeStart):
            self.fired += 1
            self.dead += event.dead
        elif isinstance(event, hr.step_events.IterationOpen) and event.frame:  # the root frame is no loop
            self.iterations += 1
            self._open += 1
            self.most_open = max(self.most_open, self._open)
        elif isinstance(event, hr.step_events.IterationFree) and event.frame:
            self._open -= 1


def main() -> int:
    replay = load_replay()
    corpus = replay.Corpus(str(CORPUS))
    print("headrace runs TensorFlow's graphs by an executor of its own, written in Python on numpy. TensorFlow's unit")
    print("tests built and ran these four; each result is compared with what TensorFlow got. (A node that fires dead")
    print("computes nothing: it passes on that there is no value, because a conditional or loop went the other way.)")
    print(f"headrace {hr.__version__}, Python {sys.version.split()[0]}, numpy {np.__version__}, no TensorFlow\n")
    differences = sum(show(i, p, corpus.load(p.id), replay) for i, p in enumerate(PROGRAMS, 1))
    if differences:
        print(f"{differences} results differ from TensorFlow's.")
        return 1
    print("All results are TensorFlow's.")
    print(f"Each firing of program 1 is drawn in {TRACE.resolve()}")
    print("Open it at https://ui.perfetto.dev or chrome://tracing: a row is an iteration, a bar a node that fires.")
    return 0


def load_replay() -> Any:
    """The corpus' own reader and comparison, tests/data/corpus/replay.py."""
    spec = importlib.util.spec_from_file_location("corpus_replay", CORPUS / "replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def show(number: int, program: Program, recorded: dict[str, Any], replay: Any) -> int:
    """Runs one program and prints what happened; returns how many results differ."""
    with hr.Graph() as graph:
        hr.import_graph_def(recorded["graph"], name="")
    counter = Counter(keep=program.trace is not None)
    values = run(graph, recorded, hr.RunOptions(listener=counter))
    if program.trace is not None:
        hr.step_events.write_chrome(counter.events, str(program.trace))
    seconds = statistics.median(timed(graph, recorded) for _ in range(5))
    differences = compare(values, recorded, replay)

    loops = {op.attrs["frame_name"] for op in graph.operations if op.type == "Enter"}
    print(f"{number}. {program.title}  [{recorded['test']}]")
    print("   " + program.story.replace("\n", "\n   "))
    print(
        f"   graph: {len(graph)} nodes, {plural(len(loops), 'loop')}; {plural(len(values), 'run')}: "
        f"{counter.fired} nodes fired, {counter.dead} of them dead, in {1e3 * seconds:.2f} ms"
        f" ({1e6 * seconds / counter.fired:.1f} µs a node)"
    )
    print(f"   iterations: {counter.iterations}, at most {counter.most_open} of them in flight at once")
    print(f"   result: {results(values)}  {'DIFFERS from' if differences else 'the same as'} TensorFlow's")
    for d in differences:
        print(f"           {d}")
    print()
    return len(differences)


def run(graph: hr.Graph, recorded: dict[str, Any], options: hr.RunOptions | None = None) -> list[list[Any]]:
    """Runs all steps of a program in one session, and returns their fetches."""
    with hr.Session(graph=graph) as session:
        return [
            session.run(s["fetches"] + s["targets"], feeds(s, recorded), options)[: len(s["fetches"])]
            for s in recorded["steps"]
        ]


def timed(graph: hr.Graph, recorded: dict[str, Any]) -> float:
    """Seconds that the steps take, without the events and without preparing them."""
    with hr.Session(graph=graph) as session:
        calls = [
            (session.make_callable(s["fetches"] + s["targets"], list(feeds(s, recorded))), feeds(s, recorded))
            for s in recorded["steps"]
        ]
        start = time.perf_counter()
        for call, fed in calls:
            call(*fed.values())
        return time.perf_counter() - start


def feeds(step: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    return {name: recorded["data"][key] for name, key in step["feeds"]}


def compare(values: list[list[Any]], recorded: dict[str, Any], replay: Any) -> list[str]:
    """Differences from TensorFlow's results, a line each."""
    found = []
    for step, got in zip(recorded["steps"], values):
        for name, key, value in zip(step["fetches"], step["results"], got):
            if key is not None:
                want, about = recorded["data"][key], recorded["arrays"][key]
                found.append(replay.compare(name, value, want, about, replay.TOL))
    return [d for d in found if d]


def results(values: list[list[Any]]) -> str:
    """The fetched values in one line."""
    return ", ".join(np.array2string(np.asarray(v), separator=", ") for step in values for v in step)


def plural(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


if __name__ == "__main__":
    sys.exit(main())
