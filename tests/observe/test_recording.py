"""Documents of recorded steps, compared with events and with results by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import step_events, thresholds
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.metadata import scoped_options
from headrace.observe.recorded import check, read_recording
from tests.observe import reading
from tests.observe.reading import causes, fired, held_by, path, rows, tokens, values_of


def count(limit: int = 10) -> Any:
    """Three iterations of `x = tanh(x) if x > 2 else x * 3`, from 1."""
    return hr.while_loop(
        lambda i, x: i < 3,
        lambda i, x: (i + 1, hr.cond(x > 2.0, lambda: hr.tanh(x), lambda: x * 3.0)),
        [0, 1.0],
        parallel_iterations=limit,
        name="w",
    )[1]


def nested() -> Any:
    """The sum 1 + 2, by a nested loop that adds ones."""

    def body(i: Any, s: Any) -> Any:
        inner = hr.while_loop(lambda j, t: j <= i, lambda j, t: (j + 1, t + 1), [0, s], name="inner")
        return i + 1, inner[1]

    return hr.while_loop(lambda i, s: i < 2, body, [0, 0], name="outer")[1]


def factorial() -> Any:
    @hr.function
    def fact(n: Any) -> Any:
        return hr.cond(n <= 1, lambda: hr.constant(1), lambda: n * fact(n - 1))

    return fact(hr.constant(3, name="three"))


def two_devices() -> Any:
    def body(i: Any, x: Any) -> Any:
        with hr.device("/cpu:1"):
            y = hr.tanh(x, name="there")
        with hr.device("/cpu:0"):
            return i + 1, y + 1.0

    return hr.while_loop(lambda i, x: i < 2, body, [0, 3.0], name="w")[1]


def recorded(make: Callable[[], Any], **session: Any) -> tuple[dict[str, Any], Any]:
    """The document of a step, which fits the schema, and its result."""
    with hr.Graph() as g:
        y = make()
    with hr.Session(graph=g, **session) as s, hr.record() as recording:
        out = s.run(y)
    document = json.loads(json.dumps(recording.document()))
    check(document)
    return document, out


@pytest.mark.parametrize("make", [count, nested, factorial])
def test_tokens_are_the_firings_of_the_interpreter_in_order(make: Callable[[], Any]) -> None:
    with hr.Graph() as g:
        y = make()
    s = hr.Session(graph=g)
    events, recording = reading.Events(), hr.record()
    s.run(y, options=hr.RunOptions(listener=events))
    s.run(y, options=hr.RunOptions(listener=recording))
    document = recording.document()
    assert [(t.node, t.tag, t.dead) for t in fired(document)] == events.ends()
    found = causes(document)
    for e in events.all:
        if isinstance(e, step_events.NodeEnd) and e.dead:
            cause = found[e.node, e.tag]
            want = {"op": e.cause.op.name, "where": e.cause.where, "selector": e.cause.selector, "value": e.cause.value}
            assert {k: cause[k] for k in want} == want
            assert document["nodes"][cause["node"]]["name"] == cause["op"]
        elif isinstance(e, step_events.NodeEnd) and e.type in ("Add", "AddV2", "Mul", "Tanh", "Less", "Sub"):
            assert e.values is not None
            assert float(_first(document, e.node, e.tag)) == pytest.approx(float(e.values[0]), rel=1e-6)
    opened = [e.tag for e in events.all if isinstance(e, step_events.IterationOpen)]
    assert [document["tags"][r["tag"]]["text"] for r in rows(document, "iterations")] == opened


def _first(document: dict[str, Any], node: str, tag: str) -> float:
    text = values_of(document, node)[tag]
    return {"True": 1.0, "False": 0.0}.get(text) if text in ("True", "False") else float(text)  # type: ignore[return-value]


def test_a_loop_has_a_tag_for_each_iteration_and_its_values() -> None:
    document, out = recorded(count)
    assert [t["text"] for t in document["tags"]] == ["", "w#0", "w#1", "w#2", "w#3"]
    assert [t["parent"] for t in document["tags"]] == [-1, 0, 0, 0, 0]
    assert values_of(document, "w/Merge") == {"w#0": "0", "w#1": "1", "w#2": "2", "w#3": "3"}
    x = [1.0, 3.0, float(np.tanh(np.float32(3.0)))]
    found = {tag: float(text) for tag, text in values_of(document, "w/Merge_1").items()}
    assert [found[f"w#{i}"] for i in range(3)] == pytest.approx(x, rel=1e-6)
    assert float(out) == pytest.approx(x[2] * 3.0, rel=1e-6)
    loop = next(f for f in document["frames"] if f["kind"] == "loop")
    assert (loop["name"], loop["parent"], loop["limit"]) == ("w", 0, 10)
    assert document["nodes"][loop["op"]]["type"] == "Enter"


def test_an_untaken_branch_is_dead_with_its_cause() -> None:
    document, _ = recorded(count)
    cause = causes(document)["w/cond/Tanh", "w#0"]
    assert cause["selector"] == "w/Greater:0"
    assert (cause["where"], cause["value"]) == ("iteration 0 of loop 'w'", 0)
    assert ("w/cond/mul", "w#1") in causes(document)
    branches = {f["name"]: f for f in document["frames"] if f["kind"] == "branch"}
    tanh = next(n for n in document["nodes"] if n["type"] == "Tanh")
    assert document["frames"][tanh["frame"]] is branches["w/Greater is true"]
    assert document["frames"][branches["w/Greater is true"]["parent"]]["name"] == "w"


def test_a_switch_has_a_value_on_the_side_that_it_took() -> None:
    document, _ = recorded(count)
    switches = [t for t in tokens(document) if t.node == "w/Switch"]
    assert [t.values for t in switches] == [
        *((("", "", ""), ("int32", "[]", str(i))) for i in range(3)),
        (("int32", "[]", "3"), ("", "", "")),
    ]


def test_an_iteration_names_the_token_that_let_it_open() -> None:
    document, _ = recorded(lambda: count(1))
    found = held_by(document)
    assert found[""] is None
    assert found["w#0"] in ("w/Enter", "w/Enter_1")
    # the limit of one open iteration: the last firing of the iteration before lets the next one open
    last = {t.tag: t.node for t in tokens(document)}
    assert [found[f"w#{i}"] for i in (1, 2, 3)] == [last[f"w#{i}"] for i in range(3)]
    many = held_by(recorded(count)[0])
    assert many["w#1"] == "w/NextIteration"  # the counter is ahead of the other variable


def test_a_nested_loop_has_tags_below_those_of_the_outer_loop() -> None:
    document, out = recorded(nested)
    assert out == 3
    tags = {t["text"]: t for t in document["tags"]}
    assert tags["outer#1/outer/inner#2"]["parent"] == document["tags"].index(tags["outer#1"])
    frames = document["frames"]
    assert frames[tags["outer#1/outer/inner#2"]["frame"]]["name"] == "outer/inner"
    assert frames[frames[tags["outer#1/outer/inner#2"]["frame"]]["parent"]]["name"] == "outer"
    adds = values_of(document, "outer/inner/add_1")
    assert adds == {"outer#0/outer/inner#0": "1", "outer#1/outer/inner#0": "2", "outer#1/outer/inner#1": "3"} or (
        sorted(adds.values()) == ["1", "1", "2"]  # the counter, if it is the first addition
    )
    assert ("outer/inner/Merge", "outer#2/outer/inner#0") in causes(document)


def test_a_recursive_call_has_a_frame_with_its_argument_and_result() -> None:
    document, out = recorded(factorial)
    assert out == 6
    calls = [t["text"] for t in document["tags"][1:]]
    assert len(calls) == 3
    assert values_of(document, "fact/three") == dict(zip(calls, ("3", "2", "1"), strict=True))
    assert values_of(document, "fact/cond/fact") == {calls[0]: "2", calls[1]: "1"}
    assert values_of(document, "fact") == {"": "6"}
    assert held_by(document)[calls[0]] == "fact"
    assert held_by(document)[calls[1]] == "fact/cond/fact"
    function = next(f for f in document["frames"] if f["kind"] == "function")
    assert document["nodes"][function["op"]]["name"] == "fact"
    nodes = [n for n, _ in path(document)]
    assert nodes[0] == "fact/three"
    assert nodes[-1] == "ret.fact.0"


def test_crossings_have_both_times_and_dead_tokens_their_cause() -> None:
    document, _ = recorded(two_devices, devices={"CPU": 2})
    assert len(document["devices"]) == 2
    crossed = rows(document, "crossings")
    assert crossed
    for row in crossed:
        assert row["from"] != row["to"]
        assert row["sent"] <= row["received"]
    sent = [r for r in crossed if "Tanh" in document["strings"][r["edge"]] or "there" in document["strings"][r["edge"]]]
    assert [(document["tags"][r["tag"]]["text"], r["dead"]) for r in sorted(sent, key=lambda r: r["tag"])] == [
        ("w#0", 0), ("w#1", 0), ("w#2", 1)
    ]  # fmt: skip
    dead = [(n, t) for n, t in causes(document) if n.startswith("w/there/")]
    assert {t for _, t in dead} == {"w#2"}
    assert len(dead) == 2  # the Send and the Recv
    assert {causes(document)[key]["selector"] for key in dead} == {"w/LoopCond:0"}
    on = {document["nodes"][r["node"]]["name"]: r["device"] for r in rows(document, "tokens")}
    assert document["devices"][on["w/there"]].endswith("CPU:1")
    assert path(document)[-1][0] == "ret.w.1"


@pytest.mark.system
def test_a_step_of_a_cluster_is_recorded_with_summaries_of_values() -> None:
    with hr.Graph() as g:
        with hr.device("/job:worker/task:1"):
            x = hr.exp(hr.constant([1.0, 2.0]), name="there")
        with hr.device("/job:worker/task:0"):
            y = hr.cond(x[0] > 100.0, lambda: x * 2.0, lambda: -x)
    with hr.cluster.local(2) as cluster, hr.Session(cluster, graph=g) as s, hr.record() as recording:
        s.run(y)
    document = json.loads(json.dumps(recording.document()))
    check(document)
    found = {t.node: t for t in tokens(document)}
    assert found["there"].values == (("float32", "[2]", "2.718282, 7.3890557"),)
    assert rows(document, "values")[rows(document, "tokens")[[*found].index("there")]["value"]]["bytes"] == 8.0
    assert sorted(d.partition("/task:")[2] for d in document["devices"]) == ["0/device:CPU:0", "1/device:CPU:0"]
    dead = causes(document)
    assert {c["selector"] for c in dead.values()} == {"Greater:0"}
    assert len(rows(document, "crossings")) >= 1


# *** values ***


def test_values_beyond_the_budget_have_the_same_summaries() -> None:
    with hr.Graph() as g:
        x = hr.constant(np.arange(64, dtype=np.float32).reshape(8, 8))
        y = hr.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, hr.matmul(a, x) * 0.01), [0, x], name="w")[1]
    s = hr.Session(graph=g)
    documents = []
    for budget in (None, 0, 1000):
        with hr.record(bytes=budget) as recording:
            s.run(y)
        documents.append(recording.document())
    assert documents[0]["dropped"] == {"tokens": 0, "values": 0}
    assert documents[1]["dropped"]["values"] > documents[2]["dropped"]["values"] > 0
    for other in documents[1:]:
        assert tokens(other) == tokens(documents[0])
        assert rows(other, "values") == rows(documents[0], "values")


def test_a_summary_is_of_the_value_at_the_firing() -> None:
    with hr.Graph() as g:
        v = hr.Variable(np.zeros(3, np.float32), name="v")
        adds = [v.assign_add([1.0, 2.0, 3.0]) for _ in range(3)]
        read = hr.identity(v, name="read")
    s = hr.Session(graph=g)
    s.run(v.initializer)
    fed = np.ones(3, np.float32)
    with hr.record() as recording:
        result = s.run([read, *adds])
    result[0][:] = 7.0  # the caller may write into its results
    fed[:] = 5.0
    found = [t.values[0][2] for t in tokens(recording.document()) if t.node.startswith("ReadVariableOp") and t.values]
    assert {"1, 2, 3", "2, 4, 6", "3, 6, 9"} <= set(found)


def test_tokens_beyond_the_budget_are_counted() -> None:
    with hr.Graph() as g:
        y = count()
    s = hr.Session(graph=g)
    with hr.record() as whole:
        s.run(y)
    with hr.record(tokens=20) as part:
        s.run(y)
    n = len(tokens(whole.document()))
    kept = part.document()
    check(json.loads(json.dumps(kept)))
    assert 0 < len(tokens(kept)) <= 20
    assert len(tokens(kept)) + kept["dropped"]["tokens"] == n


# *** the step, the sources and the stages ***


def test_a_failed_step_is_recorded_with_its_error(tmp_path: Path) -> None:
    with hr.Graph() as g:
        i = hr.while_loop(lambda i: i < 9, lambda i: i + 8 // (2 - i), [1], name="w")[0]
        j = hr.while_loop(lambda j: j < 3, lambda j: j + 0 * (6 // (2 - j)) + 1, [0], name="v")[0]
    s = hr.Session(graph=g)
    file = tmp_path / "failed.hrrec"
    with pytest.raises(InvalidArgumentError) as e, hr.record(file):
        s.run([i, j])
    assert e.value.diagnosis is not None
    assert any(event.kind == "fired" for event in e.value.diagnosis.story)
    document = read_recording(file)
    assert document["step"]["error"] == str(e.value)
    assert tokens(document)


def test_a_step_has_its_fetches_feeds_and_times() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2,), name="x")
        y = hr.exp(x, name="y")
    with hr.Session(graph=g) as s, hr.record() as recording:
        s.run(y, {x: [0.0, 1.0]})
    d = recording.document()
    assert (d["step"]["fetches"], d["step"]["feeds"], d["step"]["error"]) == (["y:0"], ["x:0"], None)
    assert [t.node for t in tokens(d)] == ["arg.x.0", "y", "ret.y.0"]
    assert tokens(d)[0].values == (("float32", "[2]", "0, 1"),)
    times = rows(d, "tokens")
    assert all(0 <= r["begin"] <= r["end"] <= d["step"]["seconds"] * 1e6 for r in times)
    assert [r["end"] for r in times] == sorted(r["end"] for r in times)
    assert path(d) == [("arg.x.0", ""), ("y", ""), ("ret.y.0", "")]


def test_nodes_have_the_text_of_the_users_file_and_no_other() -> None:
    document, _ = recorded(count)
    assert [f["name"] for f in document["files"]] == [__file__]
    assert document["files"][0]["text"] == Path(__file__).read_text(encoding="utf-8")
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    node = next(n for n in document["nodes"] if n["type"] == "Tanh")
    assert "hr.tanh" in lines[node["source"][1] - 1]


def test_large_and_other_files_are_named_without_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.inspect.program_document import sources

    names = []
    for name, size in (("a.py", 10), ("b.py", 2000), ("c.key", 10), ("d.py", 600), ("e.py", 600)):
        (tmp_path / name).write_text("#" * size)
        names.append(str(tmp_path / name))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    monkeypatch.setattr(thresholds, "RECORDED_SOURCE", 1000)
    monkeypatch.setattr(thresholds, "RECORDED_SOURCES", 1000)
    found = sources([*names, str(tmp_path / "binary.py"), str(tmp_path / "none.py"), str(tmp_path)])
    assert [f["text"] is not None for f in found] == [True, False, False, True, False, False, False, False]


def test_stages_have_the_text_of_each_graph_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        x = hr.placeholder_with_default(np.float32(2.0), ())
        return hr.cond(x > 1.0, lambda: hr.exp(x) + hr.exp(x), lambda: x)

    names = [s["name"] for s in recorded(make)[0]["stages"]]
    assert names[0] == "prune"
    assert "optimize: cse" in names
    assert names[-1] == "lower"
    parts = [s["name"] for s in recorded(two_devices, devices={"CPU": 2})[0]["stages"]]
    assert {"partition CPU:0", "partition CPU:1"} <= set(parts)
    interpreted = recorded(make, engine="interpret")[0]["stages"]
    assert [s["name"] for s in interpreted] == ["prune", "lower"]
    assert "= Merge" in interpreted[1]["text"]
    assert "= Merge" not in interpreted[0]["text"]
    monkeypatch.setattr(thresholds, "RECORDED_STAGES", len(interpreted[0]["text"]))
    assert [s["name"] for s in recorded(make, engine="interpret")[0]["stages"]] == ["prune"]


# *** the context manager and the listener ***


def test_a_block_records_the_last_run_of_its_thread(tmp_path: Path) -> None:
    with hr.Graph() as g:
        a, b, c = (hr.identity(hr.constant(k), name=n) for n, k in (("a", 1), ("b", 2), ("c", 3)))
    s = hr.Session(graph=g)
    run_b = s.make_callable(b)
    file = tmp_path / "step.hrrec"
    with hr.record(file):
        s.run(a)
        run_b()
        other = threading.Thread(target=lambda: s.run(c))
        other.start()
        other.join(30)
    s.run(c)
    assert read_recording(file)["step"]["fetches"] == ["b:0"]
    assert scoped_options.count == 0


def test_a_block_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FailedPreconditionError, match="no step"), hr.record(tmp_path / "step.hrrec"):
        pass
    with hr.record() as recording:
        pass
    with pytest.raises(FailedPreconditionError, match="listener"):
        recording.save(tmp_path / "step.hrrec")
    with pytest.raises(ZeroDivisionError), hr.record(tmp_path / "step.hrrec"):
        _ = 1 // 0
    assert not list(tmp_path.iterdir())


def test_a_jitted_function_is_recorded() -> None:
    @hr.jit
    def f(x: Any) -> Any:
        return hr.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, hr.tanh(x)), [0, x])[1]

    with hr.record() as recording:
        f(np.float32(1.0))
    assert [t["iteration"] for t in recording.document()["tags"]] == [0, 0, 1, 2, 3]


def test_a_recording_and_metadata_observe_the_same_run() -> None:
    with hr.Graph() as g:
        y = count()
    s = hr.Session(graph=g)
    metadata = hr.RunMetadata()
    with hr.record() as recording:
        s.run(y, options=hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE), run_metadata=metadata)
    document = recording.document()
    check(json.loads(json.dumps(document)))
    alive = [t for t in tokens(document) if not t.dead]
    assert (len(alive), len(tokens(document))) == (metadata.calls, metadata.calls + metadata.dead)
    assert causes(document)["w/cond/Tanh", "w#0"]["selector"] == "w/Greater:0"


# *** several devices ***


def ahead() -> Any:
    """A loop of 40 iterations with its counter and its product on two devices."""

    def body(i: Any, x: Any) -> Any:
        with hr.device("/cpu:1"):
            y = hr.matmul(x, x, name="product") * 0.01
        with hr.device("/cpu:0"):
            return i + 1, y

    x = hr.constant(np.ones((32, 32), np.float32))
    return hr.while_loop(lambda i, x: i < 40, body, [0, x], parallel_iterations=4, name="w")[1]


def test_the_iterations_of_each_device_are_within_the_limit() -> None:
    document, _ = recorded(ahead, devices={"CPU": 2})
    found = {(d.rpartition("/")[2], loop): n for (d, loop), n in reading.in_flight(document).items() if loop}
    assert found.keys() == {("device:CPU:0", "w"), ("device:CPU:1", "w")}
    assert max(found.values()) <= 4
    opened = [(r["device"], document["tags"][r["tag"]]["text"]) for r in rows(document, "iterations")]
    assert len(opened) == len(set(opened)) == 2 * 42  # of each device: the root and iterations 0 to 40


def test_each_device_names_the_token_that_let_an_iteration_open() -> None:
    document, _ = recorded(lambda: two_devices(), devices={"CPU": 2})
    nodes = document["nodes"]
    for row in rows(document, "iterations"):
        text = document["tags"][row["tag"]]["text"]
        if text:
            assert nodes[row["held_by"]]["device"] == row["device"]
            assert nodes[row["held_by"]]["type"] == ("Enter" if text == "w#0" else "NextIteration")


def test_control_loops_add_no_branches() -> None:
    document, _ = recorded(two_devices, devices={"CPU": 2})
    assert [(f["kind"], f["name"]) for f in document["frames"]] == [("root", ""), ("loop", "w")]


def test_a_branch_on_two_devices_has_the_name_of_its_predicate() -> None:
    def make() -> Any:
        with hr.device("/cpu:0"):
            x = hr.placeholder_with_default(np.float32(2.0), (), name="x")
            p = hr.greater(x, 1.0, name="p")

        def there() -> Any:
            with hr.device("/cpu:1"):
                return hr.tanh(hr.constant(1.0), name="there")

        return hr.cond(p, there, lambda: x, name="c")

    document, _ = recorded(make, devices={"CPU": 2})
    assert {f["name"] for f in document["frames"] if f["kind"] == "branch"} <= {"p is true", "p is false"}


def test_waits_are_apart_from_the_time_of_computing() -> None:
    document, _ = recorded(two_devices, devices={"CPU": 2})
    for row in rows(document, "tokens"):
        assert row["waited"] == (document["nodes"][row["node"]]["type"] == "_Recv")
    called, _ = recorded(factorial)
    waits = {called["nodes"][r["node"]]["name"] for r in rows(called, "tokens") if r["waited"]}
    assert waits == {"fact", "fact/cond/fact"}


def test_a_loop_variable_has_the_name_that_the_program_gives_it() -> None:
    for document in (recorded(count)[0], recorded(two_devices, devices={"CPU": 2})[0]):
        named = {n["name"]: n["variable"] for n in document["nodes"] if n["variable"] is not None}
        assert named == {"w/Merge": "i", "w/Merge_1": "x"}


def test_a_recv_ends_dead_if_its_token_is_dead() -> None:
    with hr.Graph() as g:
        y = two_devices()
    events = reading.Events()
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(y, options=hr.RunOptions(listener=events))
    arrived = {(e.to, e.tag, e.edge.partition(" ")[0]): e.dead for e in events.all
               if isinstance(e, step_events.TokenReceived)}  # fmt: skip
    ends = [e for e in events.all if isinstance(e, step_events.NodeEnd) and e.type == "_Recv"]
    assert len(ends) == len(arrived) == 9
    assert sum(e.dead for e in ends) == sum(arrived.values()) == 2
    assert {(e.node, e.tag) for e in ends if e.dead} == {
        ("w/Switch_1/1/from_CPU_0", "w#2"), ("w/there/from_CPU_1", "w#2")
    }  # fmt: skip
    assert {e.cause.selector for e in ends if e.dead} == {"w/LoopCond:0"}
