"""Hooks: effects of each one in small monitored sessions.

Their summaries go to writers that record them.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import AbortedError, DeadlineExceededError, OutOfRangeError
from headrace.files.events import files_in as events_in
from headrace.files.events import read as read_events
from headrace.train import global_step
from headrace.train.event_writer import FileWriterCache
from headrace.train.hooked import merged
from headrace.train.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProfilerHook,
    ProgressHook,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from headrace.train.monitored import MonitoredSession
from headrace.train.recovery import Recovery
from headrace.train.scaffold import ChiefSessionCreator, Scaffold


class Model:
    """A graph that counts steps.

    `train` adds one to the step, `x` is 10 times the new step, and `fed` is a placeholder with a default.
    """

    def __init__(self) -> None:
        with hr.Graph() as self.graph:
            self.step = global_step.create_global_step()
            self.fed = hr.placeholder_with_default(np.float32(0), (), name="fed")
            self.train = self.step.assign_add(1)
            self.x = hr.multiply(hr.cast(self.train, hr.float32), 10.0, name="x")

    def session(self, *hooks: Any, **scaffold: Any) -> MonitoredSession:
        scaffold.setdefault("saver", Saver())
        return MonitoredSession(ChiefSessionCreator(Scaffold(**scaffold)), hooks, graph=self.graph)


class Saver:
    """Records what is saved."""

    def __init__(self) -> None:
        self.saved: list[tuple[str, int, bool]] = []

    def save(self, sess: Any, path: str, global_step: int, write_meta_graph: bool) -> str:
        self.saved.append((Path(path).name, global_step, write_meta_graph))
        return f"{path}-{global_step}"


class Writer:
    """Records what is written."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def add_summary(self, summary: Any, step: int) -> None:
        self.said.append(("summary", summary, step))

    def scalar(self, tag: str, value: float, step: int) -> None:
        self.said.append((tag, value > 0, step))

    def add_session_log(self, log: Any, step: int) -> None:
        self.said.append(("log", log.status, step))

    def add_graph(self, graph: Any) -> None:
        self.said.append(("graph", len(graph.operations) > 0))

    def flush(self) -> None:
        self.said.append(("flush",))


class Clock:
    """A clock that stands still until `now` is assigned."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _writers() -> Iterator[None]:
    yield
    FileWriterCache.clear()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """The writer of all hooks, for every folder."""
    made = Writer()
    for module in ("saving", "stepping"):
        monkeypatch.setattr(f"headrace.train.hooks.{module}.writer_of", lambda folder: made)
    return made


def steps(session: MonitoredSession, fetch: Any, most: int = 100) -> list[Any]:
    """Runs until the session should stop; returns the values fetched."""
    got = []
    with session:
        while not session.should_stop() and len(got) < most:
            got.append(session.run(fetch))
    return [getattr(v, "item", lambda v=v: v)() for v in got]


# *** timers ***


def test_a_timer_of_steps() -> None:
    t = SecondOrStepTimer(every_steps=3)
    at = [0, 1, 2, 3, 3, 4, 5, 6, 100, 101]
    due = [(step, t.update_last_triggered_step(step)[1]) for step in at if t.should_trigger_for_step(step)]
    assert due == [(0, None), (3, 3), (6, 3), (100, 94)]
    assert t.last_triggered_step() == 100
    t.reset()
    assert t.last_triggered_step() is None
    assert t.should_trigger_for_step(7)


def test_a_timer_of_seconds() -> None:
    clock = Clock()
    t = SecondOrStepTimer(every_secs=10.0, clock=clock)
    assert t.update_last_triggered_step(1) == (None, None)
    clock.now += 9.0
    assert not t.should_trigger_for_step(2)
    clock.now += 1.0
    assert not t.should_trigger_for_step(1), "twice in one step never"
    assert t.should_trigger_for_step(2)
    assert t.update_last_triggered_step(5) == (10.0, 4)


@pytest.mark.parametrize(("secs", "steps"), [(None, None), (1.0, 1)])
def test_a_timer_needs_one_of_the_two(secs: float | None, steps: int | None) -> None:
    with pytest.raises(ValueError, match="every_secs"):
        SecondOrStepTimer(secs, steps)


# *** stopping and waiting ***


def test_stop_after_so_many_steps_or_at_one(model: Model) -> None:
    assert steps(model.session(StopAtStepHook(num_steps=3)), model.train) == [1, 2, 3]
    assert steps(model.session(StopAtStepHook(last_step=2)), model.train) == [1, 2]
    start = Scaffold(saver=Saver(), init_fn=lambda _, session: [session.run(model.train) for _ in range(5)])
    hooks = [StopAtStepHook(num_steps=2)]
    assert steps(MonitoredSession(ChiefSessionCreator(start), hooks, graph=model.graph), model.train) == [6, 7]


def test_a_step_that_counts_twice(model: Model) -> None:
    with model.graph:
        after_train = model.step.assign_add(1)
    assert steps(model.session(StopAtStepHook(last_step=5)), after_train) == [2, 4, 6]


@pytest.mark.parametrize("kwargs", [{}, {"num_steps": 1, "last_step": 1}])
def test_stop_needs_one_of_the_two(kwargs: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="num_steps or last_step"):
        StopAtStepHook(**kwargs)


@pytest.mark.parametrize(
    "hook",
    [
        StopAtStepHook(1),
        StepCounterHook(),
        GlobalStepWaiterHook(1),
        SummarySaverHook(1, summary_op="x"),
        CheckpointSaverHook("nowhere", 1),
        ProfilerHook(1),
        ProgressHook(),
    ],
    ids=lambda h: type(h).__name__,
)
def test_hooks_that_need_a_global_step_say_so(hook: SessionRunHook) -> None:
    with hr.Graph() as g:
        hr.constant(1)
    with pytest.raises(RuntimeError, match=f"create_global_step|use {type(hook).__name__}") as caught:
        MonitoredSession(hooks=[hook], graph=g)
    assert caught.value.__notes__ == [f"(raised by the hook {type(hook).__name__}, in begin())"]


def test_wait_for_a_step(model: Model) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        session._raw.run(model.train)

    session = model.session(GlobalStepWaiterHook(3, sleep=nap))
    assert steps(session, model.train, most=2) == [4, 5]
    assert naps == [0.5] * 3
    assert steps(model.session(GlobalStepWaiterHook(0)), model.train, most=1) == [1]
    late = model.session(GlobalStepWaiterHook(3, max_wait_secs=1.0, sleep=lambda _: None))
    with pytest.raises(DeadlineExceededError, match=r"'global_step:0' is 0 after 1 s of waiting for 3"):
        steps(late, model.train)


# *** looking at values ***


def test_logging(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.train")
    hook = LoggingTensorHook({"x": "x", "b": model.fed}, every_n_iter=2)
    steps(model.session(hook, StopAtStepHook(5)), model.train)
    said = [r.message for r in caplog.records if " = " in r.message]
    assert [s.split(" (")[0] for s in said] == ["b = 0.0, x = 10.0", "b = 0.0, x = 30.0", "b = 0.0, x = 50.0"]
    assert "(" not in said[0]
    assert said[1].endswith(" sec)")


def test_logging_at_the_end_and_with_a_formatter(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.train")
    hook = LoggingTensorHook(
        ["global_step/Read/ReadVariableOp"], at_end=True, formatter=lambda d: f"all: {list(d.values())}"
    )
    steps(model.session(hook, StopAtStepHook(4)), model.train)
    assert [r.message for r in caplog.records if r.message.startswith("all")] == [f"all: {[np.int64(4)]}"]


def test_logging_is_asked_for_properly(model: Model) -> None:
    for kwargs in ({}, {"every_n_iter": 1, "every_n_secs": 1}, {"every_n_iter": 0}):
        with pytest.raises(ValueError, match="every_n_iter"):
            LoggingTensorHook(["x"], **kwargs)  # type: ignore[arg-type]
    with hr.Graph():
        other = hr.constant(1)
    with pytest.raises(ValueError, match="of the graph that is trained"):
        model.session(LoggingTensorHook([other], 1))
    with model.graph:
        hr.split(hr.constant([1, 2]), 2, name="two")
    with pytest.raises(ValueError, match="ambiguous"):
        model.session(LoggingTensorHook(["two"], 1))
    with pytest.raises(KeyError):
        model.session(LoggingTensorHook(["not_there"], 1))


def test_nan_stops_or_fails(model: Model) -> None:
    with model.graph:
        loss = hr.where(hr.less(model.x, 25.0), model.x, np.float32(np.nan), name="loss")
    with pytest.raises(NanLossDuringTrainingError, match="NaN loss during training: 'loss:0' is nan") as caught:
        steps(model.session(NanTensorHook(loss)), model.train)
    assert caught.value.__notes__ == ["(raised by the hook NanTensorHook, in after_run())"]
    assert steps(model.session(NanTensorHook(loss, fail_on_nan_loss=False)), model.train) == [1, 2, 3]
    assert str(NanLossDuringTrainingError()) == "NaN loss during training."


def test_feeds_and_what_is_computed_at_the_end(model: Model) -> None:
    numbers = iter([1.0, 2.0, 3.0])
    last = FinalOpsHook({"sum": model.fed + 1.0}, {model.fed: 41.0})
    feed = FeedFnHook(lambda: {model.fed: next(numbers)})
    assert steps(model.session(feed, last, StopAtStepHook(3)), [model.train, model.fed]) == [[1, 1], [2, 2], [3, 3]]
    assert last.final_ops_values == {"sum": 42.0}


def test_an_end_that_needs_data_says_why_that_cannot_be(model: Model) -> None:
    with model.graph:
        q = hr.FIFOQueue(1, [hr.int32])
        close, got = q.close(), q.dequeue()
    with pytest.raises(OutOfRangeError) as caught, model.session(FinalOpsHook(got)) as session:
        session.run(close)
    assert any("must need none" in n for n in caught.value.__notes__)


# *** writing ***


def test_checkpoints_at_the_beginning_every_so_often_and_at_the_end(
    model: Model, writer: Writer, tmp_path: Path
) -> None:
    saver, calls = Saver(), []

    class Listener(CheckpointSaverListener):
        def begin(self) -> None:
            calls.append("begin")

        def before_save(self, session: Any, global_step_value: int) -> None:
            calls.append(f"before {global_step_value}")

        def after_save(self, session: Any, global_step_value: int) -> bool:
            calls.append(f"after {global_step_value}")
            return global_step_value == 6

        def end(self, session: Any, global_step_value: int) -> None:
            calls.append(f"end {global_step_value}")

    hook = CheckpointSaverHook(tmp_path, save_steps=3, saver=saver, listeners=[Listener()])
    assert steps(model.session(hook), model.train) == [1, 2, 3, 4, 5, 6]
    assert saver.saved == [("model.ckpt", n, True) for n in (0, 3, 6)]
    assert calls == ["begin", *(f"{w} {n}" for n in (0, 3, 6) for w in ("before", "after")), "end 6"]
    saves = [said for step in (0, 3, 6) for said in (("log", 3, step), ("flush",))]  # each can be where it goes on
    assert writer.said == [("graph", True), *saves, ("flush",)]
    assert hr.read_graph(tmp_path / "graph.pbtxt").find("x") is not None
    again = CheckpointSaverHook(tmp_path, save_steps=10, saver=(other := Saver()), save_graph_def=False)
    steps(model.session(again, StopAtStepHook(2)), model.train)
    assert other.saved == [("model.ckpt", n, False) for n in (0, 2)]


def test_which_saver(model: Model, writer: Writer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both saver and scaffold"):
        CheckpointSaverHook(tmp_path, save_steps=1, saver=Saver(), scaffold=Scaffold())
    with pytest.raises(RuntimeError, match="collection 'savers' has 0"):
        model.session(CheckpointSaverHook(tmp_path, save_steps=1))
    s = Scaffold(saver=Saver())
    hooks = [CheckpointSaverHook(tmp_path, save_steps=1, scaffold=s)]
    steps(MonitoredSession(ChiefSessionCreator(s), hooks, graph=model.graph), model.train, most=1)
    assert [n for _, n, _ in s.saver.saved] == [0, 1]


def test_summaries(model: Model) -> None:
    with model.graph:
        text = hr.strings.as_string(model.x)
    writer = Writer()
    steps(model.session(SummarySaverHook(2, summary_writer=writer, summary_op=text), StopAtStepHook(5)), model.train)
    assert writer.said == [
        ("log", 1, 1), ("summary", b"10.000000", 1), ("summary", b"30.000000", 3), ("summary", b"50.000000", 5),
        ("flush",),
    ]  # fmt: skip
    two = Writer()
    hook = SummarySaverHook(5, summary_writer=two, summary_op=[text, text])
    steps(model.session(hook, StopAtStepHook(1)), model.train)
    assert [w[0] for w in two.said] == ["log", "summary", "summary", "flush"]
    for kwargs in ({}, {"summary_op": text, "scaffold": Scaffold()}):
        with pytest.raises(ValueError, match="Exactly one of scaffold or summary_op"):
            SummarySaverHook(1, **kwargs)


def test_steps_a_second(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.train")
    writer = Writer()
    steps(model.session(StepCounterHook(2, summary_writer=writer), StopAtStepHook(5)), model.train)
    assert writer.said == [("global_step/sec", True, 3), ("global_step/sec", True, 5), ("flush",)]
    assert sum(r.message.startswith("global_step/sec: ") for r in caplog.records) == 2
    assert not any(r.levelno >= logging.WARNING for r in caplog.records)
    with pytest.raises(ValueError, match="exactly one"):
        StepCounterHook(every_n_steps=1, every_n_secs=1)


def test_a_step_that_nobody_counts_is_told_once(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    steps(model.session(StepCounterHook()), model.fed, most=4)
    assert [r.message for r in caplog.records if "stays at 0" in r.message] != []
    assert sum("stays at 0" in r.message for r in caplog.records) == 1


def test_traces(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "traces"
    seen: list[Any] = []

    class Look(SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(bool(run_values.run_metadata.ops))

    assert steps(model.session(ProfilerHook(2, output_dir=folder), Look(), StopAtStepHook(5)), model.train) == [
        1,
        2,
        3,
        4,
        5,
    ]
    found = sorted(p.name for p in folder.glob("timeline-*.json"))
    assert len(found) == 2
    (log,) = events_in(folder)
    told = [e.tagged_run_metadata.tag for e in read_events(log) if e.HasField("tagged_run_metadata")]
    assert [f"timeline-{tag.removeprefix('step_')}.json" for tag in told] == found
    events = json.loads((folder / found[0]).read_text())["traceEvents"]
    assert "AssignAddVariableOp" in {e.get("cat") for e in events}
    assert sum(seen) == 2, "only the steps that are traced are interpreted"


# *** several at once ***


def test_two_may_not_feed_the_same(model: Model) -> None:
    one = FeedFnHook(lambda: {model.fed: 1.0})
    with pytest.raises(RuntimeError, match=r"fed by two hooks, one of them FeedFnHook. Conflict\(s\): \['fed:0'\]"):
        steps(model.session(one, FeedFnHook(lambda: {model.fed: 2.0})), model.train)
    with model.session(one) as session, pytest.raises(RuntimeError, match="by a hook and by the user"):
        session.run(model.train, {model.fed: 2.0})


def test_options_of_hooks_and_user_are_put_together(model: Model) -> None:
    events: dict[str, list[Any]] = {"hook": [], "user": []}
    seen = []

    class Watch(SessionRunHook):
        def before_run(self, run_context: Any) -> SessionRunArgs:
            options = hr.RunOptions(timeout_in_ms=20_000, listener=events["hook"].append)
            return SessionRunArgs(None, options=options)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append((run_values.options.timeout_in_ms, run_values.options.trace_level, run_values.results))

    with model.session(Watch()) as session:
        given = hr.RunOptions(timeout_in_ms=10, trace_level=3, listener=events["user"].append)
        metadata = hr.RunMetadata()
        session.run(model.train, options=given, run_metadata=metadata)
    assert seen == [(20_000, 3, None)]
    assert events["hook"] == events["user"] != []
    assert given.timeout_in_ms == 10, "what the user gave stays as it was"
    assert metadata.ops


def test_the_check_and_the_breakpoints_of_both_options_are_kept() -> None:
    one, two = hr.breakpoint_when("a", on_pause=print), hr.breakpoint_when("b", on_pause=print)
    both = merged(hr.RunOptions(breakpoints=[one]), hr.RunOptions(check_numerics=True, breakpoints=[two]))
    assert both.check_numerics is True
    assert both.breakpoints == (one, two)


# *** progress ***


def test_progress_in_plain_lines(model: Model) -> None:
    out, clock = io.StringIO(), Clock()

    class Tick(SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            clock.now += 0.5

    hook = ProgressHook(last_step=5, tensors={"x": "x"}, every_secs=1.0, out=out, clock=clock)
    steps(model.session(Tick(), hook, StopAtStepHook(last_step=5)), model.train)
    assert out.getvalue().splitlines() == [
        "train: progress in plain lines, as this is no terminal",
        "train: step 2 of 5, 2 steps/s, 00:02 left, x = 20",
        "train: step 4 of 5, 2 steps/s, 00:01 left, x = 40",
        "train: step 5 of 5, 2 steps/s, x = 40",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_as_a_bar(model: Model) -> None:
    pytest.importorskip("tqdm")
    out = Terminal()
    hook = ProgressHook(last_step=4, tensors={"x": model.x}, every_secs=0.0, out=out, name="digits")
    steps(model.session(hook, StopAtStepHook(last_step=4)), model.train)
    last = out.getvalue().replace("\n", "\r").split("\r")
    shown = [s for s in last if "digits: 100%" in s]
    assert shown, last
    assert "4/4" in shown[-1]
    assert "x=40" in shown[-1]


def test_a_terminal_without_tqdm(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    out = Terminal()
    steps(model.session(ProgressHook(every_secs=0.0, out=out), StopAtStepHook(2)), model.train)
    lines = out.getvalue().splitlines()
    assert lines[0] == "train: progress in plain lines, as tqdm is not installed (pip install 'headrace[train]')"
    assert [s.split(",")[0] for s in lines[1:]] == ["train: step 1", "train: step 2"]


# *** a session that was lost ***


def test_hooks_go_on_from_an_older_step(model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with model.graph:
        text = hr.strings.as_string(model.train)
    writer, counts, out, bar, clock = Writer(), Writer(), io.StringIO(), Terminal(), Clock()

    class Abort(SessionRunHook):
        is_over = False

        def before_run(self, run_context: Any) -> None:
            clock.now += 1.0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_context.session.run(model.step) == 4 and not self.is_over:
                self.is_over = True
                raise AbortedError("preempted")

    hooks = [
        Abort(),
        SummarySaverHook(2, summary_writer=writer, summary_op=text),
        StepCounterHook(1, summary_writer=counts),
        ProfilerHook(3, output_dir=tmp_path),
        ProgressHook(every_secs=1.0, out=out, clock=clock),
        ProgressHook(every_secs=1.0, out=bar, clock=clock),
        StopAtStepHook(num_steps=5),
    ]
    creator = ChiefSessionCreator(Scaffold(saver=Saver()))
    session = MonitoredSession(creator, hooks, graph=model.graph, recovery=Recovery(wait_secs=0.0))
    assert steps(session, model.train) == [1, 2, 3, 1, 2, 3, 4, 5]
    assert [w[2] for w in writer.said if w[0] == "summary"] == [1, 3, 1, 3, 5]
    assert [w[2] for w in writer.said if w[0] == "log"] == [1, 1]
    assert [w[2] for w in counts.said if w[0] == "global_step/sec"] == [2, 3, 2, 3, 4, 5]
    assert not any("stays at" in r.message for r in caplog.records)
    said = [line.split(",")[0] for line in out.getvalue().splitlines()[1:]]
    assert said == [f"train: step {n}" for n in (1, 2, 3, 1, 2, 3, 4, 5)]
    assert all("1 steps/s" in line for line in out.getvalue().splitlines()[1:])
    assert "5step" in bar.getvalue()
    FileWriterCache.clear()
    (log,) = events_in(tmp_path)
    told = [e.tagged_run_metadata.tag for e in read_events(log) if e.HasField("tagged_run_metadata")]
    assert told == ["step_3", "step_3_1"]
