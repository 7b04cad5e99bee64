"""Programs as scripts for TensorFlow 1: a graph, its gradients, a session.

It runs under headrace as it stands and under TensorFlow with another import line: `of(module)` is this file with that
line changed. Nothing else in it, nor in `in_graphs`, knows which of the two it has.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace.v1 as tf
from benchmarks.programs import Program, in_graphs
from benchmarks.programs.training import RATE, STEPS, split

Call = Callable[[], list[Any]]

DEVICE = None  # of the operations; None: they request none
VALUES = "values"  # the collection of operations that set the variables of a program
SHARERS = 4  # threads that share a session
SHARED_RUNS = 100  # that each of them does

tf.disable_control_flow_v2()


def build(program: Program) -> tuple[Any, dict[Any, Any], list[Any]]:
    """A new graph of the program, its feeds, and its fetches: result and derivatives."""
    with tf.Graph().as_default() as graph, tf.device(DEVICE):
        args = {name: _given(program, name) for name in program.arguments}
        taken = {name: arg for name, arg in args.items() if arg is not None}
        result = getattr(in_graphs, program.function)(tf, **program.sizes, **taken)
        learned = [name for name, how in program.given.items() if how == "variable"]
        args |= zip(learned, tf.trainable_variables(), strict=True)
        grads = tf.gradients(result, [args[name] for name in program.by]) if program.by else []
        for name in learned:  # `session` sets them
            tf.add_to_collection(VALUES, tf.assign(args[name], program.arguments[name]))
    feeds = {args[name]: v for name, v in program.arguments.items() if name not in program.given}
    return graph, feeds, [result, *grads]


def _given(program: Program, name: str) -> Any:
    """Tensor of an argument; None: the text makes a variable for it."""
    value = program.arguments[name]
    how = program.given.get(name)
    if how is None:
        return tf.placeholder(str(value.dtype), value.shape, name)
    if how == "constant":
        return tf.constant(value)
    return None if program.function.endswith("_cell") else tf.get_variable(name, value.shape, str(value.dtype))


def training(program: Program, threads: int) -> tuple[Call, Call]:
    """Functions that train a network for a step, and that return its results (see `programs.training`)."""
    data, values = split(program)
    shapes = {name: (None, *v.shape[1:]) if program.leaves_batch_open else v.shape for name, v in data.items()}
    with tf.Graph().as_default() as graph, tf.device(DEVICE):
        feeds = {tf.placeholder(str(v.dtype), shapes[name], name): v for name, v in data.items()}
        loss = getattr(in_graphs, program.function)(tf, **program.sizes, **dict(zip(data, feeds)))
        step = tf.train.AdamOptimizer(RATE).minimize(loss)
        variables = tf.trainable_variables()
        init = tf.global_variables_initializer()
        given = [tf.assign(v, value) for v, value in zip(variables, values)]

    def begun() -> Any:
        new = session(graph, threads)
        new.run(init)
        new.run(given)
        return new

    def results() -> list[Any]:
        sess = begun()
        return [[sess.run([loss, step], feeds)[0] for _ in range(STEPS)]]

    running = begun()
    return lambda: [running.run([loss, step], feeds)[0]], results


def session(graph: Any, threads: int) -> Any:
    config = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    if DEVICE is not None:
        config.device_count[DEVICE.split(":")[1]] = 1
        config.allow_soft_placement = True  # lists are on the host
    new = tf.Session(graph=graph, config=config)
    for op in graph.get_collection(VALUES):
        new.run(op)
    return new


def callable(program: Program, threads: int) -> Call:
    """The program built, as a function made by `make_callable`."""
    graph, feeds, fetches = build(program)
    run, values = session(graph, threads).make_callable(fetches, list(feeds)), list(feeds.values())
    return lambda: run(*values)


def run(program: Program, threads: int) -> Call:
    """The program built, as a function that calls `session.run`."""
    graph, feeds, fetches = build(program)
    run = session(graph, threads).run
    return lambda: run(fetches, feeds)


def first(program: Program, threads: int) -> Call:
    """A function that builds the program and runs it once."""

    def build_and_run() -> list[Any]:
        graph, feeds, fetches = build(program)
        with session(graph, threads) as sess:
            return sess.run(fetches, feeds)

    return build_and_run


def graph(program: Program, threads: int) -> Callable[[], Any]:
    """A function that builds the program; it does not run it."""
    return lambda: build(program)[0]


def shared(program: Program, threads: int) -> Call:
    """A function in which several threads run the program many times in one session."""
    run = callable(program, threads)

    def all_threads() -> list[Any]:
        results: list[Any] = []

        def runs() -> None:
            for _ in range(SHARED_RUNS):
                last = run()
            results.append(last)

        sharers = [threading.Thread(target=runs) for _ in range(SHARERS)]
        for t in sharers:
            t.start()
        for t in sharers:
            t.join()
        if len(results) < SHARERS:
            raise RuntimeError("a thread failed")
        return results[0]

    return all_threads


def of(module: str, device: str | None = None) -> types.ModuleType:
    """This script with `import <module> as tf` for its import line, and operations on a device."""
    line = "\nimport headrace.v1 as tf\n"
    text = Path(__file__).read_text(encoding="utf-8")
    if text.count(line) != 1:
        raise ValueError(f"{__file__} must have one line {line.strip()!r}")
    script = types.ModuleType(f"{__name__}_{module.replace('.', '_')}")
    script.__dict__["__file__"] = __file__
    exec(compile(text.replace(line, f"\nimport {module} as tf\n"), __file__, "exec"), script.__dict__)
    script.__dict__["DEVICE"] = device
    return script
