"""TensorFlow's behaviour to match, by the sections of the corpus's README.

Each sentence of the section on behaviour has one test or more. The sections and their order are those of
`tests/data/corpus/README.md`. Its sentences on while loops at construction wait for the building of loops; the tests
here cover the part of it that an imported loop shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    FeedError,
    GraphError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    OutOfRangeError,
)
from headrace.ir.builder import Builder
from tests.execute.loops import counting, dead
from tests.execute.machine import SeededReady
from tests.session.helpers import builder, session


def run(b: Builder, fetches: Any, feeds: Any = None, **options: Any) -> Any:
    with session(b) as s:
        return s.run(fetches, feeds, hr.RunOptions(timeout_in_ms=30_000, **options))


def fails(kind: type[Exception], why: str, b: Builder, fetches: Any, feeds: Any = None) -> Exception:
    with pytest.raises(kind, match=why) as e:
        run(b, fetches, feeds)
    return e.value


def only(x: Any) -> Any:
    """The one result of an op that may give a tuple."""
    return x[0] if isinstance(x, tuple) else x


# *** GraphDefs as text ***


def text(*nodes: str) -> str:
    return "\n".join(f"node {{ {n} }}" for n in nodes)


def noop(name: str, *inputs: str) -> str:
    return f'name: "{name}" op: "NoOp" ' + " ".join(f'input: "{i}"' for i in inputs)


def const(name: str, value: int = 1, *inputs: str) -> str:
    return (
        f'name: "{name}" op: "Const" {" ".join(f"input: {i!r}" for i in inputs)} '
        'attr { key: "dtype" value { type: DT_INT32 } } '
        f'attr {{ key: "value" value {{ tensor {{ dtype: DT_INT32 tensor_shape {{ }} int_val: {value} }} }} }}'
    )


def vector(name: str, *values: int) -> str:
    return (
        f'name: "{name}" op: "Const" attr {{ key: "dtype" value {{ type: DT_INT32 }} }} attr {{ key: "value" value {{ '
        f"tensor {{ dtype: DT_INT32 tensor_shape {{ dim {{ size: {len(values)} }} }} "
        f"{' '.join(f'int_val: {v}' for v in values)} }} }} }}"
    )


INTS = 'attr { key: "T" value { type: DT_INT32 } } '


def op(name: str, type: str, *inputs: str, attrs: str = INTS) -> str:
    return f'name: "{name}" op: "{type}" {" ".join(f"input: {i!r}" for i in inputs)} {attrs}'


def placeholder(name: str, dtype: str, dims: str) -> str:
    return (
        f'name: "{name}" op: "Placeholder" attr {{ key: "dtype" value {{ type: {dtype} }} }} '
        f'attr {{ key: "shape" value {{ shape {{ {dims} }} }} }}'
    )


FLOATS = 'attr { key: "T" value { type: DT_FLOAT } }'

# *** Deadness ***


def test_fetching_a_dead_tensor() -> None:
    b = builder()
    x, gone = b.const(1), b.Identity(dead(b))
    fails(InvalidArgumentError, r"Retval\[0\] does not have value", b, gone)
    fails(InvalidArgumentError, r"Retval\[2\] does not have value", b, [x, x.op, b.Identity(x), gone])


def test_running_a_dead_op_only_as_a_target_succeeds() -> None:
    b = builder()
    gone = b.Identity(dead(b))
    assert run(b, [gone.op, b.after(gone).NoOp(), b.const(1)]) == [None, None, 1]


def test_a_control_edge_from_a_switch_is_alive_even_if_the_reader_means_its_dead_output() -> None:
    b = builder()
    b.Switch(b.const(1), b.const(False), name="s")
    after = b.after(b.graph.get_tensor_by_name("s:1")).const(7)  # an edge from a tensor is an edge from its op
    assert run(b, after) == 7


def test_a_control_edge_from_a_switch_is_dead_only_if_the_switch_itself_is() -> None:
    b = builder()
    no, _ = b.Switch(dead(b), b.const(True))
    fails(InvalidArgumentError, "does not have value", b, b.after(no).const(7))


@pytest.mark.parametrize("kind", ["op", "op without outputs", "Merge"])
def test_control_edges_from_dead_ops_kill_their_consumers(kind: str) -> None:
    b = builder()
    gone = b.Identity(dead(b))
    source = {
        "op": lambda: gone,
        "op without outputs": lambda: b.after(gone).NoOp(),
        "Merge": lambda: b.Merge([gone, dead(b)])[0],
    }[kind]()
    for consumer in (b.after(source).const(7), b.after(source).Identity(b.const(7))):
        fails(InvalidArgumentError, "does not have value", b, consumer)


def test_merge_ignores_deadness_on_its_control_inputs() -> None:
    b = builder()
    gone = b.Identity(dead(b))
    for seed in range(10):
        merged = b.after(gone, b.Merge([gone])[0]).Merge([gone, b.const(7)])
        assert run(b, merged, ready=SeededReady(seed)) == (7, 1)


def test_a_merge_with_all_data_inputs_dead_is_dead_in_both_outputs() -> None:
    b = builder()
    for output in b.Merge([b.Identity(dead(b)), dead(b)]):
        fails(InvalidArgumentError, "does not have value", b, output)


def test_a_switch_with_a_dead_predicate_is_dead_on_both_sides() -> None:
    b = builder()
    for side in b.Switch(b.const(1), dead(b, True)):
        fails(InvalidArgumentError, "does not have value", b, side)


def test_value_index_is_the_index_of_the_input_that_arrived() -> None:
    b = builder()
    for k in range(3):
        inputs = [b.const(k) if i == k else dead(b) for i in range(3)]
        assert run(b, b.Merge(inputs)) == (k, k)


def test_with_two_live_inputs_the_first_to_arrive_wins_without_error() -> None:
    b = builder()
    value, index = b.Merge([b.Identity(b.const(10)), b.Identity(b.const(11))])
    winners = set()
    for seed in range(30):
        got_value, got_index = run(b, [value, index], ready=SeededReady(seed))
        assert got_value == 10 + got_index
        winners.add(int(got_index))
    assert winners == {0, 1}


def test_feeding_a_tensor_downstream_of_a_dead_switch_revives_everything_after_it() -> None:
    b = builder()
    gone = dead(b)
    first = b.Identity(gone)
    second = b.AddV2(first, b.const(1))
    third = b.after(second).const(5)
    fails(InvalidArgumentError, "does not have value", b, third)
    assert run(b, [second, third], {first: 2}) == [3, 5]
    assert run(b, [second, third], {gone: 3}) == [4, 5]
    # a control edge is not fed: it still comes from the op, which is dead
    fails(InvalidArgumentError, "does not have value", b, third, {second: 3})


# *** Frames ***


def test_fetching_a_bare_enter_returns_the_value() -> None:
    b = builder()
    assert run(b, b.Enter(b.const(5), frame_name="f")) == 5
    assert run(b, b.Enter(b.const(6), frame_name="f", is_constant=True)) == 6


def test_fetching_a_root_frame_next_iteration_returns_the_value() -> None:
    b = builder()
    assert run(b, b.AddV2(b.NextIteration(b.const(5)), b.const(1))) == 6
    merged = b.Merge([b.NextIteration(dead(b)), b.const(2)])
    for seed in range(10):
        assert run(b, merged, ready=SeededReady(seed)) == (2, 1)


def test_a_root_frame_exit_fails() -> None:
    b = builder()
    why = "Invalid Exit op: Cannot find a corresponding Enter op"
    fails(InvalidArgumentError, why, b, b.Exit(b.const(1)))


def test_mixed_frames_fail_before_execution() -> None:
    b = builder()
    one = b.Enter(b.const(1), frame_name="f1", name="Enter")
    two = b.Enter(b.const(2), frame_name="f2", name="Enter_1")
    mixed = b.AddV2(two, one, name="add")
    e = fails(InvalidArgumentError, r"^\{\{node add\}\} has inputs from different frames\. The input ", b, mixed)
    assert "The input {{node Enter}} is in frame 'f1'." in str(e)
    assert "The input {{node Enter_1}} is in frame 'f2'." in str(e)
    outside = b.AddV2(one, b.const(3, name="root"), name="half")
    fails(InvalidArgumentError, r"node half.*The input \{\{node root\}\} is in frame ''", b, outside)


def test_mixed_frames_of_what_does_not_run_do_not_matter() -> None:
    b = builder()
    b.AddV2(b.Enter(b.const(1), frame_name="f"), b.const(1))
    assert run(b, b.const(4)) == 4


def test_fetching_a_body_tensor_over_more_than_one_iteration() -> None:
    b = builder()
    loop, i = counting(b, 4)
    fails(InternalError, r"Retval\[0\] has already been set\.?", b, loop.body(i))
    fails(InternalError, r"Retval\[1\] has already been set", b, [loop.exit(i), i])


# *** While, when built: the part that an imported loop shows ***


def test_a_variable_of_an_imported_loop_may_change_its_shape() -> None:
    frame = INTS + 'attr { key: "frame_name" value { s: "grow" } }'
    two = INTS + 'attr { key: "N" value { i: 2 } }'
    g = hr.Graph()
    hr.import_graph_def(
        text(
            vector("start", 1, 1),
            const("n", 8),
            op("e", "Enter", "start", attrs=frame),
            op("lim", "Enter", "n", attrs=frame + 'attr { key: "is_constant" value { b: true } }'),
            op("m", "Merge", "e", "next", attrs=two),
            op("size", "Size", "m"),
            op("less", "Less", "size", "lim"),
            op("cond", "LoopCond", "less", attrs=""),
            op("sw", "Switch", "m", "cond"),
            const("axis", 0, "^sw"),
            op("twice", "ConcatV2", "sw:1", "sw:1", "axis", attrs=two),
            op("next", "NextIteration", "twice"),
            op("out", "Exit", "sw"),
        ),
        graph=g,
    )
    with hr.Session(graph=g) as s:
        assert s.run("out:0", timeout_ms=30_000).tolist() == [1] * 8


def test_a_zero_trip_loop_passes_its_inputs_through() -> None:
    b = builder()
    loop, i = counting(b, 0)
    assert run(b, [loop.exit(i), i.op.outputs[1]]) == [0, 0]


# *** Import ***

BAD_GRAPHS = {
    "cycle": ("2 nodes in a cycle", text(op("a", "Identity", "b"), op("b", "Identity", "a"))),
    "control cycle": ("2 nodes in a cycle", text(noop("a", "^b"), noop("b", "^a"))),
    "unknown input": ("Node 'a': Unknown input node 'zz'", text(op("a", "Identity", "zz"))),
    "unknown control input": ("Node 'a': Unknown input node '\\^zz'", text(noop("a", "^zz"))),
    "twice": ("Node 'a' is not unique", text(const("a"), const("a"))),
    "order": (
        "Control dependencies must come after regular dependencies",
        text(const("a"), op("b", "Identity", "^a", "a")),
    ),
    "output": (
        "Connecting to invalid output 3 of source node p which has 1 outputs",
        text(const("p"), op("a", "Identity", "p:3")),
    ),
    "characters": ("Node name contains invalid characters", text(const("a b"))),
    "underscore": ("Node name contains invalid characters", text(const("_a"))),
    "empty name": ("Node name contains invalid characters", text(const(""))),
    "MatMul": (
        "Dimensions must be equal, but are 3 and 2",
        text(
            placeholder("x", "DT_FLOAT", "dim { size: 2 } dim { size: 3 }"),
            op("y", "MatMul", "x", "x", attrs=FLOATS),
        ),
    ),
    "LoopCond": (
        "Shape must be rank 0 but is rank 1",
        text(placeholder("x", "DT_BOOL", "dim { size: 2 }"), op("y", "LoopCond", "x", attrs="")),
    ),
}


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_bad_graphs_are_rejected_on_import(name: str) -> None:
    why, graph_def = BAD_GRAPHS[name]
    with pytest.raises(GraphError, match=why) as e:
        hr.import_graph_def(graph_def, graph=hr.Graph())
    assert isinstance(e.value, ValueError)


def test_an_unknown_op_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="NoSuchOp"):
        hr.import_graph_def(text('name: "a" op: "NoSuchOp"'), graph=hr.Graph())


def test_a_cycle_through_merge_and_next_iteration_is_legal() -> None:
    frame = 'attr { key: "frame_name" value { s: "f" } } attr { key: "T" value { type: DT_INT32 } }'
    constant = frame + ' attr { key: "is_constant" value { b: true } }'
    two = 'attr { key: "N" value { i: 2 } } attr { key: "T" value { type: DT_INT32 } }'
    g = hr.Graph()
    hr.import_graph_def(
        text(
            const("zero", 0),
            const("n", 5),
            op("e", "Enter", "zero", attrs=frame),
            op("lim", "Enter", "n", attrs=constant),
            op("m", "Merge", "e", "next", attrs=two),
            op("less", "Less", "m", "lim"),
            op("cond", "LoopCond", "less", attrs=""),
            op("sw", "Switch", "m", "cond"),
            op("id", "Identity", "sw:1"),
            const("one", 1, "^id"),
            op("add", "AddV2", "id", "one"),
            op("next", "NextIteration", "add"),
            op("out", "Exit", "sw"),
        ),
        graph=g,
    )
    with hr.Session(graph=g) as s:
        assert s.run("out:0", timeout_ms=30_000) == 5


def test_nothing_of_a_bad_graph_is_added() -> None:
    g = hr.Graph()
    with pytest.raises(GraphError):
        hr.import_graph_def(text(const("good"), op("a", "Identity", "zz")), graph=g)
    assert "good" not in g
    hr.import_graph_def(text(const("good")), graph=g)
    assert "good" in g


def test_unknown_extra_attributes_import() -> None:
    g = hr.Graph()
    with pytest.warns(hr.errors.HeadraceWarning, match="attr 'other'"):  # TensorFlow has a line in its log
        hr.import_graph_def(
            text(const("a") + ' attr { key: "_of_tomorrow" value { s: "?" } } attr { key: "other" value { i: 3 } }'),
            graph=g,
        )
    with hr.Session(graph=g) as s:
        assert s.run("a:0") == 1


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        ("dtype: DT_FLOAT tensor_shape { } float_val: 1", None),  # not the dtype of the attribute
        ("dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 1 int_val: 2 int_val: 3", [1, 2]),
        ("dtype: DT_INT32 tensor_shape { dim { size: 3 } } int_val: 1 int_val: 2", [1, 2, 2]),
        ('dtype: DT_INT32 tensor_shape { dim { size: 2 } } tensor_content: "xxx"', None),  # no whole number of elements
        ('dtype: DT_INT32 tensor_shape { dim { size: 1 } } tensor_content: "aaaabbbb"', None),
    ],
)
def test_a_const_whose_dtype_or_count_disagrees_imports(tensor: str, value: list[int] | None) -> None:
    g = hr.Graph()
    hr.import_graph_def(
        text(
            'name: "a" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } '
            f'attr {{ key: "value" value {{ tensor {{ {tensor} }} }} }}',
            const("fine"),
        ),
        graph=g,
    )
    with hr.Session(graph=g) as s:
        assert s.run("fine:0") == 1
        if value is not None:
            assert s.run("a:0").tolist() == value
        else:
            with pytest.raises(InvalidArgumentError):
                s.run("a:0")


# *** Run time ***


def test_a_placeholder_must_be_fed() -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=(2,), name="p")
    why = r"You must feed a value for placeholder tensor 'p' with dtype float and shape \[2\]"
    fails(InvalidArgumentError, why, b, b.Identity(p))
    q = b.Placeholder(dtype="int64", shape=None, name="q")
    fails(InvalidArgumentError, "placeholder tensor 'q' with dtype int64", b, q)


def test_a_wrong_feed_shape_is_a_client_side_value_error() -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=(2,))
    e = fails(ValueError, "Cannot feed value of shape", b, p, {p: [1, 2, 3]})
    assert isinstance(e, FeedError)
    assert not isinstance(e, OpError)


@pytest.mark.parametrize("kind", ["reference", "resource"])
def test_an_uninitialized_variable(kind: str) -> None:
    b = builder()
    if kind == "reference":
        read = b.Identity(b.VariableV2(shape=(), dtype="float32"))
    else:
        read = b.ReadVariableOp(b.VarHandleOp(dtype="float32", shape=()), dtype="float32")
    fails(FailedPreconditionError, "ninitialized", b, read)


def test_a_predicate_that_is_no_scalar() -> None:
    b = builder()
    p = b.Placeholder(dtype="bool", shape=None)
    why = r"The second input must be a scalar, but it has shape \[1\]"
    fails(InvalidArgumentError, why, b, b.Switch(b.const(1), p)[0], {p: [True]})


def test_a_timeout() -> None:
    b = builder()
    q = b.FIFOQueueV2(component_types=["int32"])
    get = only(b.QueueDequeueV2(q, component_types=["int32"]))
    with session(b) as s, pytest.raises(DeadlineExceededError):
        s.run(get, timeout_ms=10)


def test_a_closed_queue() -> None:
    b = builder()
    q = b.FIFOQueueV2(component_types=["int32"])
    put = b.QueueEnqueueV2(q, [b.const(1)])
    get = only(b.QueueDequeueV2(q, component_types=["int32"]))
    with session(b) as s:
        s.run(put)
        s.run(b.QueueCloseV2(q))
        with pytest.raises(CancelledError):
            s.run(put)
        assert s.run(get) == 1
        with pytest.raises(OutOfRangeError):
            s.run(get)


def tensor_array(b: Builder, **attrs: Any) -> Any:
    return b.TensorArrayV3(b.const(3), dtype="float32", **attrs)


def test_an_unwritten_index_of_a_tensor_array() -> None:
    b = builder()
    handle, flow = tensor_array(b, element_shape=(2,))
    assert run(b, b.TensorArrayReadV3(handle, b.const(1), flow, dtype="float32")).tolist() == [0, 0]
    handle, flow = tensor_array(b)
    fails(InvalidArgumentError, "Could not read", b, b.TensorArrayReadV3(handle, b.const(1), flow, dtype="float32"))


def test_double_writes_to_a_tensor_array_fail() -> None:
    b = builder()
    handle, flow = tensor_array(b)
    once = b.TensorArrayWriteV3(handle, b.const(0), b.const([1.0]), flow)
    twice = b.TensorArrayWriteV3(handle, b.const(0), b.const([2.0]), once)
    fails(
        InvalidArgumentError, "Could not write to TensorArray index 0 because it has already been written to", b, twice
    )


def test_reads_after_clear_fail() -> None:
    b = builder()
    handle, flow = tensor_array(b, clear_after_read=True)
    written = b.TensorArrayWriteV3(handle, b.const(0), b.const([1.0]), flow)
    first = b.TensorArrayReadV3(handle, b.const(0), written, dtype="float32")
    assert run(b, first).tolist() == [1.0]
    second = b.after(first).TensorArrayReadV3(handle, b.const(0), written, dtype="float32")
    fails(InvalidArgumentError, "Could not read index 0 twice because it was cleared after a previous read", b, second)


def test_stacks() -> None:
    b = builder()
    stack = b.StackV2(b.const(2), elem_type="float32")
    fails(InvalidArgumentError, r"is empty when calling Pop\(\)", b, b.StackPopV2(stack, elem_type="float32"))
    pushed = stack
    for k in range(3):
        pushed = b.after(pushed).StackPushV2(stack, b.const(float(k)))
    fails(InvalidArgumentError, r"overflowed its max_size \(2\)", b, pushed)


# *** Numerics ***


@pytest.mark.parametrize("type", ["FloorDiv", "FloorMod", "Div", "Mod"])
def test_integer_division_and_modulo_by_zero(type: str) -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=None)
    y = b.make(type, (b.const([1, 2]), p), {})
    assert run(b, y, {p: [1, 1]}) is not None
    fails(InvalidArgumentError, "Integer division by zero", b, y, {p: [1, 0]})


def test_negative_integer_powers() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=None)
    y = b.Pow(b.const(2), p)
    assert run(b, y, {p: 3}) == 8
    fails(InvalidArgumentError, "Integers to negative integer powers are not allowed", b, y, {p: -1})


def test_the_mean_of_integers_truncates() -> None:
    b = builder()
    x = b.Placeholder(dtype="int32", shape=None)
    mean = b.Mean(x, b.const(0), keep_dims=False)
    assert run(b, mean, {x: [1, 2]}) == 1
    assert run(b, mean, {x: [-1, -2]}) == -1
    assert run(b, mean, {x: [-1, 0]}) == 0


@pytest.mark.parametrize("type", ["Max", "Min"])
def test_max_and_min_propagate_nan(type: str) -> None:
    b = builder()
    x = b.Placeholder(dtype="float32", shape=None)
    y = b.make(type, (x, b.const(0)), {"keep_dims": False})
    assert np.isnan(run(b, y, {x: [1, np.nan, 2]}))
    assert run(b, y, {x: [[1, 2], [3, 0]]}).tolist() == ([3, 2] if type == "Max" else [1, 0])


def test_relu_propagates_nan_and_argmax_skips_it() -> None:
    b = builder()
    x = b.Placeholder(dtype="float32", shape=None)
    relu, where = b.Relu(x), b.ArgMax(x, b.const(0), output_type="int64")
    got = run(b, relu, {x: [np.nan, -1, 2]})
    assert np.isnan(got[0])
    assert got[1:].tolist() == [0, 2]
    assert run(b, where, {x: [1, np.nan, 2]}) == 2
    assert run(b, b.Maximum(x, b.const(0.0)), {x: [1.0]}).tolist() == [1]


def test_the_maximum_of_nothing() -> None:
    b = builder()
    x = b.Placeholder(dtype="float32", shape=None)
    n = b.Placeholder(dtype="int32", shape=None)
    largest = [b.Max(t, b.const(0), keep_dims=False) for t in (x, n)]
    assert run(b, largest, {x: [], n: []}) == [-np.inf, np.iinfo(np.int32).min]
    assert run(b, b.Max(x, b.const(1), keep_dims=False), {x: np.zeros((2, 0))}).tolist() == [-np.inf] * 2


def test_nan_and_infinities_cast_to_int32() -> None:
    b = builder()
    x = b.Placeholder(dtype="float32", shape=None)
    y = b.Cast(x, DstT="int32")
    lowest = np.iinfo(np.int32).min
    assert run(b, y, {x: [np.nan, np.inf, -np.inf, 1.9]}).tolist() == [lowest, lowest, lowest, 1]


def test_one_hot_out_of_range_is_a_row_of_zeros() -> None:
    b = builder()
    i = b.Placeholder(dtype="int32", shape=None)
    y = b.OneHot(i, b.const(2), b.const(1.0), b.const(0.0))
    assert run(b, y, {i: [0, 5, -1, 1]}).tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize("type", ["Sum", "Prod", "Max", "Min"])
def test_negative_ids_of_unsorted_segments_are_dropped(type: str) -> None:
    b = builder()
    ids = b.Placeholder(dtype="int32", shape=None)
    y = b.make(f"UnsortedSegment{type}", (b.const([2.0, 3.0, 4.0]), ids, b.const(2)), {})
    assert run(b, y, {ids: [0, -1, 1]}).tolist() == [2, 4]


# *** Deliberate differences ***


def test_an_op_that_cannot_be_placed_does_not_fail_what_does_not_need_it() -> None:
    b = builder()
    b.on("/device:GPU:7").const(1, name="far")
    near = b.const(2)
    with session(b, config={"allow_soft_placement": False}) as s:
        assert s.run(near) == 2
        with pytest.raises(InvalidArgumentError, match="Cannot assign a device for operation far"):
            s.run("far:0")
