"""The walk of a step: docs/internals/walk.md against the code."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.compiled_step import Request
from headrace.dist import step_codec, worker_programs
from headrace.dist.master_programs import ClusterTarget, compile_parts
from headrace.dist.messages import PartData, PrepareProgram
from headrace.environment import Environment
from headrace.ir.device import DeviceSpec
from headrace.pipeline import pruned
from headrace.programs import Programs
from headrace.report import _IN_PIPELINE
from headrace.target import LocalTarget
from tests.inside import step_of

pytestmark = pytest.mark.one_engine

TEXT = (Path(__file__).parents[2] / "docs/internals/walk.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under `heading`."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return found[2:]


def table(heading: str) -> dict[str, str]:
    """The second column of the table under `heading`, by the first."""
    return {row[0]: row[1] for row in rows(heading)}


def program() -> tuple[hr.Graph, dict[str, Any]]:
    with hr.Graph() as g:
        with hr.device("/cpu:0"):
            x = hr.placeholder(hr.float32, [2], name="x")
            y = hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, x])[1]
        with hr.device("/cpu:1"):
            far = hr.reduce_sum(y)
        queue = hr.FIFOQueue(3, [hr.float32], shapes=[[2]])
        waits = hr.sin(hr.cos(hr.tanh(queue.dequeue() + x)))
    return g, {"x": x, "y": y, "far": far, "waits": waits}


JOINED = "one CPU and one device of another library, nothing waits"
ROUTES = {
    "one device, nothing waits": ("y", 1, "auto", "general"),
    "one device, an operation waits or the feeds arrive in several calls": ("waits", 1, "auto", "general"),
    "several devices, all operations on one CPU": ("y", 2, "auto", "general"),
    "several devices": ("far", 2, "auto", "general"),
    'engine "interpret", or a run with a listener': ("y", 1, "interpret", "general"),
    "the same on several devices": ("far", 2, "interpret", "general"),
}


def test_the_routes_pass_the_stages_of_the_page() -> None:
    graph, tensors = program()
    passed = {}
    for route, (name, devices, engine, form) in ROUTES.items():
        with hr.Session(graph=graph, devices={"CPU": devices}, engine=engine) as session:
            passed[route] = ", ".join(getattr(step_of(session, tensors[name], [tensors["x"]]), form).stages)
    found = table("Routes")
    del found[JOINED]
    assert passed == found


def test_a_joined_step_takes_its_route() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
    with hr.Graph() as g, hr.device("/device:TORCH:0"):
        y = hr.sin(hr.constant([1.0]))
    with hr.Session(graph=g, devices={"TORCH": 1}, engine="auto") as session:
        assert ", ".join(step_of(session, y, []).general.stages) == table("Routes")[JOINED]


def test_observed_and_partial_runs_take_their_routes() -> None:
    graph, tensors = program()
    routes = table("Routes")
    for devices, observed, partial in (
        (1, 'engine "interpret", or a run with a listener', list(ROUTES)[1]),
        (2, "the same on several devices", "several devices"),
    ):
        with hr.Session(graph=graph, devices={"CPU": devices}, engine="auto") as session:
            step = step_of(session, tensors["far"], [tensors["x"]])
            assert ", ".join(step.observed.stages) == routes[observed]
            assert ", ".join(step.partial.stages) == routes[partial]


DEVICES = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)]


def cluster_program() -> tuple[hr.Graph, dict[str, Any]]:
    of_floats = [hr.TensorSpec((), hr.int32), hr.TensorSpec((), hr.float32)]
    power = hr.Function(
        lambda n, v: hr.cond(n > 0, lambda: power(n - 1, v * v), lambda: v),
        of_floats,
        results=of_floats[1],
        name="power",
    )
    with hr.Graph() as g:
        with hr.device(DEVICES[0]):
            x = hr.placeholder(hr.float32, [2], name="x")
            y = hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, x])[1]
        with hr.device(DEVICES[1]):
            far = hr.reduce_sum(y)
            calls = power(hr.cast(x[0], hr.int32), far)
        queue = hr.FIFOQueue(3, [hr.float32], shapes=[[2]])
        waits = hr.sin(hr.cos(hr.tanh(queue.dequeue() + x)))
    return g, {"x": x, "y": y, "far": far, "calls": calls, "waits": waits}


CLUSTER_ROUTES = {
    "all operations on one CPU, nothing waits": ("y", "auto"),
    "several devices, nothing waits": ("far", "auto"),
    "an operation waits, or the feeds arrive in several calls": ("waits", "auto"),
    "several devices, with a call of a recursive function": ("calls", "auto"),
    'the engine is "interpret", or a run has a listener': ("far", "interpret"),
}


def cluster_request(tensors: dict[str, Any], name: str, engine: str) -> Request:
    return Request([tensors["x"]], [tensors[name]], [], engine)


def test_the_master_passes_the_stages_of_the_page() -> None:
    _, tensors = cluster_program()
    passed = {}
    for route, options in CLUSTER_ROUTES.items():
        environment = Environment(DEVICES, is_remote=True)
        programs = Programs(cluster_request(tensors, *options), ClusterTarget(environment))
        passed[route] = ", ".join(programs.general.stages)
    assert passed == table("Routes on a cluster")
    far = Programs(cluster_request(tensors, "far", "auto"), ClusterTarget(Environment(DEVICES, is_remote=True)))
    _, _, waits, _, observed = passed.values()
    assert (", ".join(far.partial.stages), ", ".join(far.observed.stages)) == (waits, observed)


def test_workers_pass_the_stages_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, None] = {}

    def watched(stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*args: Any) -> Any:
            passed[stage] = None
            return call(*args)

        return watching

    for stage, name in (("compile", "compile_graph"), ("fused_regions", "with_fused_regions"), ("plan", "make_plan")):
        monkeypatch.setattr(worker_programs, name, watched(stage, getattr(worker_programs, name)))
    _, tensors = cluster_program()
    found = {}
    for route, options in CLUSTER_ROUTES.items():
        environment = Environment(DEVICES, is_remote=True)
        request = cluster_request(tensors, *options)
        parts = compile_parts(step_codec.encode(request, pruned(request, environment)), environment)
        assert parts.parts
        passed.clear()
        for device, data in parts.parts.items():
            message = PrepareProgram(
                1, (PartData(device, data),), tuple(parts.edges), parts.is_divided, parts.is_interpreted
            )
            here = dataclasses.replace(DeviceSpec.from_string(device), type=None, index=None)
            worker_programs.prepare(message, LocalTarget({"CPU": 1}, task=here), lambda task: None)  # type: ignore[arg-type,return-value]
        found[route] = ", ".join(passed)
    assert found == {route: worker for route, _, worker in rows("Routes on a cluster")}


def test_the_page_names_all_stages_in_their_order() -> None:
    stages = [name.strip("`") for name in table("Stages")]
    drawn = re.findall(r"\w+", TEXT.partition("compile_step:\n")[2].partition("```")[0])
    assert set(stages) <= set(drawn)
    passed = [row[1] for row in rows("Routes")]
    passed += [f"{master}, {worker}" for _, master, worker in rows("Routes on a cluster")]
    for row in passed:
        order = [stages.index(stage) for stage in row.split(", ")]
        assert order[-1] == stages.index("compile") or order == sorted(order)


def test_errors_name_stages_of_the_page() -> None:
    stages = {name.strip("`") for name in table("Stages")}
    assert set(_IN_PIPELINE.values()) <= stages


def modules_of(call: Callable[[], object]) -> list[str]:
    """The modules that `call` enters up to the generated function, the session once."""
    entered: list[str] = []

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event != "call" or "the generated function" in entered:
            return
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_filename.startswith("<compiled"):
            entered.append("the generated function")
        elif module.startswith("headrace."):
            entered.append(module.removeprefix("headrace."))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return ["session", *(module for module, _ in groupby(m for m in entered if m != "session"))]


def test_a_compiled_step_enters_no_module_twice() -> None:
    graph, tensors = program()
    with graph:
        plain = tensors["x"] * 2.0
    entered_by = table("From the call to the kernel")
    with hr.Session(graph=graph, engine="auto") as session:
        for row, fetch in (("of pure operations", plain), ("with a loop", tensors["y"])):
            feeds = {tensors["x"]: [1.0, 2.0]}
            session.run(fetch, feeds)
            entered = modules_of(lambda fetch=fetch, feeds=feeds: session.run(fetch, feeds))  # type: ignore[misc]
            assert ", ".join(entered) == entered_by[row]
            assert len(set(entered)) == len(entered)
