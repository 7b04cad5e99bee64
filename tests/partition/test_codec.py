"""The codec of parts.

The tests cover every kind of content, operations that cannot leave the process, hostile bytes, and a second process.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.tensor_spec import TensorSpec
from headrace.compile.fused_regions import fuse_regions, waits
from headrace.errors import (
    DataLossError,
    GraphError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnimplementedError,
)
from headrace.execute.plan import may_be_heavy
from headrace.grad.differentiate import differentiate
from headrace.ir.attr_values import Func, equal
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph, Graph
from headrace.ir.notes import ContiguousResult, FusedKernel, ResidualPush
from headrace.ir.text import from_text, to_text
from headrace.jit.function import Function
from headrace.lower import lower
from headrace.partition import partition
from headrace.partition.codec import MAGIC, VERSION, decode, encode
from headrace.partition.part import Edge, Part, part_of
from headrace.prune import prune
from tests.grad.test_random_gradients import Example, Made
from tests.multi import seeded
from tests.partition.golden import PROGRAMS, parts_of
from tests.partition.plans import described, digest, partition_through_bytes, plan_of

pytestmark = pytest.mark.one_engine

A, B = (f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
ROOT = Path(__file__).parents[2]


def part(graph: Graph) -> Part:
    return part_of(A, graph, {})


def again(graph: Graph) -> Graph:
    """Returns the graph of a part that went through bytes."""
    data = encode(part(graph))
    out = decode(data).graph
    assert encode(part(out)) == data
    assert to_text(out) == to_text(graph)
    for x, y in zip(graph.operations, out.operations, strict=True):
        assert x.attrs.keys() == y.attrs.keys()
        assert (x.source, x.notes, x.device) == (y.source, y.notes, y.device)
        assert [(t.shape, t.handle) for t in x.outputs] == [(t.shape, t.handle) for t in y.outputs]
    return out


# *** contents ***


@pytest.mark.parametrize(
    "value",
    [
        np.array([b"a\xff\0", b""], object),
        np.array(1.5, hr.bfloat16.numpy),
        np.array([np.nan, -0.0, np.inf], np.float16),
        np.array([[1 + 2j]], np.complex64),
        np.array([], np.int8),
        np.array(2**63 + 1, np.uint64),
        np.array([True, False]),
    ],
    ids=lambda v: str(v.dtype),
)
def test_constants(value: Any) -> None:
    g = Graph()
    Builder(g).const(value, name="c")
    assert equal(again(g).operations[0].attrs["value"], g.operations[0].attrs["value"])


def test_a_constant_of_equal_elements_stays_one_element() -> None:
    g = Graph()
    attrs = {"value": np.broadcast_to(np.float32(3), (1 << 30,)), "dtype": hr.float32}
    g.add_op("Const", "c", (), attrs).outputs[0].refine((1 << 30,))
    assert len(encode(part(g))) < 2000
    assert again(g).operations[0].attrs["value"].strides == (0,)


def test_floats_keep_all_bits() -> None:
    g = Graph()
    x = Builder(g).Placeholder(dtype=hr.float64, shape=None)
    attrs = {"T": hr.float64, "alpha": 0.1}
    g.add_op("LeakyRelu", "y", [x], attrs)
    g.add_op("NoOp", "n", attrs={"_some": (0.5, 1e300, float("inf")), "_one": 1e-300})
    out = again(g)
    assert out.get_operation_by_name("y").attrs["alpha"] == 0.1
    assert out.get_operation_by_name("n").attrs["_some"] == (0.5, 1e300, float("inf"))


def test_resources_variants_and_references() -> None:
    with hr.Graph() as g:
        v = hr.Variable(np.float32([1, 2]), name="v")
        b = scopes.builder()
        b.VariableV2(dtype=hr.float32, shape=(2,), name="old")
        queue = b.FIFOQueueV2(component_types=[hr.string, hr.int64], shared_name="q")
        b.QueueDequeueV2(queue, component_types=(hr.string, hr.int64))
        filled = b.TensorListPushBack(b.EmptyTensorList([-1], -1, element_dtype=hr.float32), v)
        b.TensorListPopBack(filled, [2], element_dtype=hr.float32)
    out = again(g)
    assert out.get_operation_by_name("v").outputs[0].handle == (hr.float32, (2,))
    assert out.get_operation_by_name("old").outputs[0].dtype.is_ref


def test_colocation_with_an_operation_of_another_part() -> None:
    g = Graph()
    g.add_op("NoOp", "n", attrs={"_class": ("loc:@elsewhere",), "_mine": hr.int32, "_empty": ()})
    assert again(g).operations[0].attrs["_class"] == ("loc:@elsewhere",)


def test_notes() -> None:
    g = Graph()
    g.add_op("NoOp", "n", notes=[ResidualPush("x of 'w'", True), ContiguousResult()])
    again(g)


LOOP = """
    zero = Const[value=int32[]{0}, dtype=int32]
    n = _Arg[T=int32, index=0, shape=[]]
    out = While[cond=@"cond", body=@"body", parallel_iterations=3]{SwapMemory}(zero, n)
    graph "cond" of out, cond (i: int32[], n1: int32[]) -> (less) {
      less = Less(i, n1)
    }
    graph "body" of out, body, is_ordered (i: int32[], n1: int32[]) -> (next, n1) ^side {
      p = Less(i, n1)
      twice = If[then_branch=@"yes", else_branch=@"no", Tin=(int32), Tout=(int32)](p, i)
      graph "yes" of twice, then_branch (j: int32[] of "i:0") -> (sum) {
        sum = AddV2(j, j)
      }
      graph "no" of twice, else_branch (j: int32[]) -> (j) {
      }
      one = Const[value=int32[]{1}, dtype=int32]
      next = AddV2(i, one) ^twice
      side = NoOp ^i
    }
    last = _Retval[index=0](out)
    """


def test_graphs_that_operations_own() -> None:
    g = from_text(LOOP)
    loop = g.get_operation_by_name("out")
    body: FuncGraph = loop.attrs["body"]
    body.role = "the body of loop 'out'"
    body.define({loop.inputs[1]: body.params[1]}, {"_noinline": True})
    got = again(g).get_operation_by_name("out").attrs["body"]
    assert isinstance(got, FuncGraph)
    assert (got.role, got.title, got.is_ordered, got.attrs) == (body.role, body.title, True, {"_noinline": True})
    assert [(t.name, p.name) for t, p in got.captures.items()] == [("n:0", "n1:0")]
    assert got.outer is not None
    assert got.outer.get_operation_by_name("n") is next(iter(got.captures)).op


def test_outlined_loops_make_the_same_fused_region() -> None:
    def loop(n: Any) -> Any:
        return hr.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2.0 + 1.0), (0, 1.0))[1]

    with hr.Graph():
        n = hr.placeholder(hr.int32, [], name="n")
        y = loop(n) + hr.constant(1.0, name="more")
    lowered = lower(prune([n], [y], []).graph, (), differentiate, lambda op: True)
    assert any(op.opdef.structured == "While" for op in lowered.ops)
    (mine,) = partition(lowered.ops, dict.fromkeys(lowered.ops, A)).values()
    other = decode(encode(mine))
    (first,), (second,) = (fuse_regions(p.ops, may_be_heavy, waits)[1] for p in (mine, other))
    assert first.source == second.source
    assert described(plan_of(mine, True)) == described(plan_of(other, True))


@pytest.mark.matrix
def test_whole_loops_of_parts_give_the_same_after_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[str] = []

    def cut(*args: Any, **options: Any) -> dict[str, Part]:
        parts = partition_through_bytes(*args, **options)
        kinds.extend(op.opdef.structured for p in parts.values() for op in p.ops)
        return parts

    with hr.Graph() as g:
        n, w = hr.placeholder(hr.int32, [], name="n"), hr.placeholder(hr.float32, [8, 8], name="w")
        with hr.device("/cpu:0"):
            start = (0, hr.ones([2, 8]))
            y = hr.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, hr.tanh(hr.matmul(x, w))), start)[1]
        with hr.device("/cpu:1"):
            z = hr.reduce_sum(y * y)
        fetches = [z, *hr.gradients(z, [w])]
    feeds = {n: 5, w: np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}
    with hr.Session(graph=g, engine="auto") as session:
        want = session.run(fetches, feeds)
    monkeypatch.setattr("headrace.partition.partition", cut)
    with hr.Session(graph=g, devices={"CPU": 2}, engine="auto") as session:
        for got, x in zip(session.run(fetches, feeds), want, strict=True):
            np.testing.assert_allclose(got, x, rtol=1e-6)
    assert kinds.count("While") == 2  # the loop and its gradient


def test_functions_in_frames_of_their_own() -> None:
    def fewer(n: Any) -> Any:
        return hr.cond(n < 1, lambda: n, lambda: down(n - 1) + 1)

    down = Function(fewer, results=TensorSpec([], hr.int32))
    with hr.Graph():
        n = hr.placeholder(hr.int32, [], name="n")
        y = down(n) + hr.identity(n, name="there")
    step = seeded.lowered([y], [n])
    assert step.functions
    of = {op: B if op.name == "there" else A for op in step.ops}
    parts = partition(step.ops, of, functions=step.functions)
    assert [list(p.functions) == list(step.functions) for p in parts.values()] == [True, False]
    assert all(op.graph not in [g for p in parts.values() for g in p.functions.values()] for op in step.ops)
    assert seeded.run(step, of, 3, [np.int32(4)]) == [8]


def test_edges() -> None:
    g = from_text("x = _Arg[T=float32, index=0, shape=[2,?]]\ny = Neg(x)\nn = NoOp ^y\nz = _Retval[index=0](y)")
    of = {op: B if op.name in ("y", "n") else A for op in g.operations}
    first, second = partition(g.operations, of).values()
    sent = Edge("x:0 -> CPU_1", B, True, hr.float32, (2, None))
    assert sent in first.edges
    assert Edge(sent.key, A, False, hr.float32, (2, None)) in second.edges
    assert decode(encode(first)).edges == first.edges


# *** operations that cannot leave the process ***


def test_a_python_function_cannot_leave_the_process() -> None:
    with hr.Graph() as g:
        hr.py_function(lambda x: x, [hr.constant(1.0)], hr.float32, name="mine")
    with pytest.raises(
        InvalidArgumentError, match=r"'mine' \(EagerPyFunc, made at .*test_codec.py:\d+.*\) calls a"
    ) as e:
        encode(part(g))
    assert e.value.op is not None


def test_a_fused_region_cannot_leave_the_process() -> None:
    g = Graph()
    g.add_op("_FusedRegion", "r", (), {"Tin": (), "Tout": ()}, notes=[FusedKernel(len)])
    with pytest.raises(InvalidArgumentError, match=r"'r' .*encoded before its regions are fused"):
        encode(part(g))


def test_a_function_that_is_missing() -> None:
    g = Graph()
    g.add_op("PartitionedCall", "call", (), {"Tin": (), "Tout": (), "f": Func("gone")})
    with pytest.raises(NotFoundError, match="gone"):
        encode(part(g))


# *** hostile bytes ***

REFUSED = (DataLossError, UnimplementedError, GraphError, NotFoundError, InvalidArgumentError)


def pieces(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Returns the JSON values and the nodes of an encoded part."""
    _, _, graphs, length = struct.unpack_from("<8sHIQ", data)
    at = 22 + 8 * graphs
    sizes = struct.unpack_from(f"<{graphs}Q", data, 22)
    values, at = json.loads(data[at : at + length]), at + length
    nodes = []
    for n in sizes:
        nodes.append(data[at : at + n])
        at += n
    return values, nodes


def joined(values: Any, nodes: Sequence[bytes], version: int = VERSION) -> bytes:
    """Returns an encoded part from JSON values and nodes."""
    text = values if isinstance(values, bytes) else json.dumps(values).encode()
    head = struct.pack("<8sHIQ", MAGIC, version, len(nodes), len(text))
    return head + struct.pack(f"<{len(nodes)}Q", *map(len, nodes)) + text + b"".join(nodes)


def example() -> bytes:
    g = from_text(LOOP)
    x = Builder(g).Identity(g.operations[1].outputs[0], name="x")
    attrs = {"tensor_name": "x:0 -> B", "send_device": A, "recv_device": B}
    Builder(g).make("_Send", (x,), attrs, "x/to_B")
    return encode(part(g))


def test_every_prefix_is_refused() -> None:
    data = example()
    for n in range(0, len(data), 7):
        with pytest.raises(DataLossError):
            decode(data[:n])
    with pytest.raises(DataLossError, match="header states"):
        decode(data + b"x")


def set_op(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        op = next(op for op in values["graphs"][0]["ops"] if "owned" in op)
        op[name] = value

    return change


def set_in(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(values: Any) -> None:
        for key in keys:
            values = values[key]
        values[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_op("notes", {"Nonsense": {}}), "'Nonsense' is no note"),
        (set_op("notes", {"FusedKernel": {"compute": 1}}), "'FusedKernel' is no note"),
        (set_op("notes", {"FrameName": {"name": []}}), "must be str"),
        (set_op("owned", [2]), "'#graph 1', which is not in the library"),
        (set_op("owned", []), "#graph"),
        (set_op("source", 1 << 40), "source lines, but"),
        (set_op("source", "x"), "'source' must be int"),
        (set_op("shapes", []), "0 static shapes"),
        (set_op("shapes", [[-5], []]), "out of range"),
        (set_op("shapes", [[1 << 62, 4], []]), "too large"),
        (set_op("shapes", [[1] * 300, []]), "300 dimensions"),
        (set_op("handles", [[5, "float32", []]]), "describes no handle"),
        (set_op("handles", [[0, "float33", []]]), "no contents of a handle"),
        (set_op("floats", {"parallel_iterations": 0.5}), "in the nodes"),
        (set_in("edges", []), "edges of the part"),
        (set_in("edges", 0, 0, "y:0 -> B"), "edges of the part"),
        (set_in("device", "/gpu:x:y"), "device"),
        (set_in("graph", 99), "99 is referred to"),
        (set_in("graphs", 0, "functions", {"f": 0}), "is referred to twice"),
        (set_in("graphs", 0, "ops", []), "data of 0"),
        (set_in("graphs", 0, "versions", [1]), "must be two numbers"),
        (set_in("graphs", 1, "function", "params", ["less", "n1"]), "is no _Arg"),
        (set_in("graphs", 1, "function", "results", ["gone"]), "'gone' is no operation"),
        (set_in("graphs", 1, "function", "results", ["less:7"]), "no tensor"),
        (set_in("graphs", 1, "function", "results", []), "a condition gives one value"),
        (set_in("graphs", 1, "function", "captures", [1]), "must be two tensors"),
        (set_in("graphs", 1, "function", "attrs", "!"), "attributes of graph"),
        (set_in("graphs", 1, "function", None), "must be an object|must be dict"),
        (set_in("graphs", 1, []), "must be an object"),
        (set_in("sources", [[1, 2, 3]]), "no source line"),
        (set_in("sources", 5), "'sources' must be list"),
    ],
)
def test_wrong_values_are_refused(change: Callable[[dict[str, Any]], None], says: str) -> None:
    values, nodes = pieces(example())
    change(values)
    with pytest.raises(REFUSED, match=says):
        decode(joined(values, nodes))


def test_wrong_envelopes_are_refused() -> None:
    values, nodes = pieces(example())
    with pytest.raises(UnimplementedError, match="has version 2, and this version of headrace reads 1"):
        decode(joined(values, nodes, 2))
    for text in (b"{", b"[" * 100_000, b'{"device": 1e999', b"\xff"):
        with pytest.raises(DataLossError, match="no JSON text"):
            decode(joined(text, nodes))
    with pytest.raises(GraphError, match="must be an object"):
        decode(joined([], nodes))
    with pytest.raises(GraphError, match="nodes of graph 0"):
        decode(joined(values, [b"\xff\xff", *nodes[1:]]))
    with pytest.raises(GraphError, match="data of"):
        decode(joined(values, nodes[:-1]))
    with pytest.raises(DataLossError):
        decode(struct.pack("<8sHIQ", MAGIC, VERSION, (1 << 32) - 1, (1 << 64) - 1))
    with pytest.raises(DataLossError, match="must begin with"):
        decode(b"")


def test_deeply_nested_graphs_are_refused() -> None:
    g: Graph = from_text(LOOP)
    values, nodes = pieces(encode(part(g)))
    cond = values["graphs"][1]
    for _ in range(1000):
        values["graphs"].append(cond)
        nodes.append(nodes[1])
    assert decode(joined(values, nodes)).ops  # graphs without owner are not read


@pytest.mark.matrix
def test_damaged_bytes_give_the_documented_errors_only() -> None:
    originals = [example(), *(encode(p) for make in PROGRAMS for p in parts_of(make).values())]
    rng = random.Random(7)
    refused = 0
    for _ in range(1500):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(22 if rng.random() < 0.9 else 0, len(data))
            data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255])
        try:
            decode(bytes(data))
        except REFUSED:
            refused += 1
    assert refused > 300


#: Values that replace others: of every class of JSON, and legal elsewhere.
VALUES: list[Any] = [
    *(None, 0, 1, -1, 1 << 40, 1 << 70, 0.5, "", "x", "x:0", "#graph 1", True, "float32"),
    *([], {}, [1], [None], [[]], [["a", 1, "b"]], {"FrameName": {"name": "a"}}, {"StandsFor": {"names": ["a"]}}),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Iterates over (container, key) of all values inside a value of JSON."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@pytest.mark.matrix
def test_damaged_values_give_the_documented_errors_only() -> None:
    originals = [example(), *(encode(p) for make in PROGRAMS for p in parts_of(make).values())]
    rng = random.Random(11)
    refused = 0
    for _ in range(1500):
        values, nodes = pieces(rng.choice(originals))
        for _ in range(rng.choice([1, 1, 2, 3])):
            there = list(places(values))
            container, key = rng.choice(there)
            other, at = rng.choice(there)
            change = rng.random()
            if change < 0.2:
                del container[key]
            elif change < 0.4:
                container[key] = json.loads(json.dumps(other[at]))
            else:
                container[key] = rng.choice(VALUES)
            values = json.loads(json.dumps(values))
        try:
            made = decode(joined(values, nodes))
        except REFUSED:
            refused += 1
        else:
            with contextlib.suppress(GraphError, OpError):  # a legal part, for which there may be no kernels
                plan_of(made, False)
    assert refused > 300


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(6))
def test_fused_regions_of_random_parts_are_equal(seed: int) -> None:
    with Made(Example(60_000 + seed)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    step = seeded.lowered(fetches, [made.inputs[n] for n in made.example.at if n != "V"])
    regions = 0
    for p in partition(step.ops, seeded.at_random(step, random.Random(seed), 2), functions=step.functions).values():
        other = decode(encode(p))
        mine, theirs = (fuse_regions(q.ops, may_be_heavy, waits)[1] for q in (p, other))
        assert [r.source for r in mine] == [r.source for r in theirs]
        assert described(plan_of(p, True)) == described(plan_of(other, True))
        regions += len(mine)
    assert regions


# *** another process ***


@pytest.mark.system
def test_another_process_makes_the_same_plans(tmp_path: Path) -> None:
    files, want = [], []
    for make in PROGRAMS:
        for i, p in enumerate(parts_of(make).values()):
            file = tmp_path / f"{make.__name__}-{i}"
            file.write_bytes(encode(p))
            files.append(str(file))
            want.append(" ".join(digest(plan_of(p, is_fused)) for is_fused in (False, True)))
    command = [sys.executable, "-m", "tests.partition.plans", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == want
