"""Elementwise operations that are done a slice at a time.

They give the same bits as one operation after the other, and take no more memory.
"""

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.ir.graph import Tensor
from headrace.schedule import tiling
from headrace.schedule.program import Group
from headrace.targets.python import Printer
from headrace.targets.python.instructions import _row
from tests.compile.running import b, run, same, scheduled, source
from tests.compile.running import program as step

# the subject is the Python target: its source and its memory
pytestmark = pytest.mark.usefixtures("python_target")


@pytest.fixture(autouse=True)
def _unchecked() -> Iterator[None]:
    """Switches off the checks of every value, which would see slices.

    Other tests have these checks on.
    """
    with flags.override(VERIFY=0):
        yield


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large."""
    monkeypatch.setattr(thresholds, "TILED_BYTES", 200)
    monkeypatch.setattr(thresholds, "TILE_BYTES", 160)
    monkeypatch.setattr(thresholds, "MOVED_BYTES", 100)
    monkeypatch.setattr(thresholds, "SCALAR_ROW_FEWEST", 2)
    monkeypatch.setattr(thresholds, "SCALAR_ROW_ENOUGH", 16)


def number(rng: random.Random, dtype: hr.DType) -> Tensor:
    return hr.constant(rng.choice([0, 1, 2, 3]), dtype)


def loops(text: str) -> int:
    """Number of loops over slices in a source, which are the ranges with steps."""
    return len(re.findall(r"in range\(0, \d+, \d+\)", text))


def elementwise(rng: random.Random, x: Tensor, y: Tensor) -> Tensor:
    """Something of the dtype of `x`, of it and `y`."""
    dtype = x.dtype
    both = [
        hr.add, hr.subtract, hr.multiply, hr.maximum, hr.minimum, lambda u, v: u * v + u,
        lambda u, v: (u - v) * (u - v),
        lambda u, v: hr.where(u > v, u, v - u), lambda u, v: hr.cast(hr.logical_and(u < v, u != v), dtype) * u,
        lambda u, _: hr.minimum(u, number(rng, dtype)), lambda u, _: hr.maximum(number(rng, dtype), u),
        lambda u, _: u * number(rng, dtype), lambda u, _: -u, lambda u, _: hr.square(u),
    ]  # fmt: skip
    floating = [
        lambda u, _: hr.tanh(u), lambda u, _: hr.sigmoid(u), lambda u, _: hr.exp(-hr.abs(u)), lambda u, _: hr.sin(u),
        lambda u, v: u / (1.0 + hr.square(v)), lambda u, _: hr.sqrt(hr.abs(u)), lambda u, _: b().TanhGrad(u, 0.5 * u),
        lambda u, _: hr.nn.relu(u), lambda u, _: hr.log(hr.abs(u) + 1.0), lambda u, _: hr.nn.softplus(u),
    ]  # fmt: skip
    out: Tensor = rng.choice(both + (floating if dtype.is_floating else []))(x, y)
    return out


def aside(rng: random.Random, x: Tensor) -> Tensor:
    """A kernel without a scalar expression.

    It ends a group, or is small and moves out of the way of the group.
    """
    return rng.choice([
        lambda v: hr.reverse(v, [0]), lambda v: v - hr.reduce_sum(v, 0), lambda v: v + hr.reduce_max(v),
        hr.identity, lambda v: hr.reshape(hr.reshape(v, [-1]), v.shape), lambda v: hr.reduce_prod(v[:1]) * v,
    ])(x)  # fmt: skip


def program(rng: random.Random, known: list[Tensor], shape: list[int], length: int) -> list[Tensor]:
    made: list[Tensor] = []
    for _ in range(length):
        x, y = rng.choice(known + made), rng.choice(known + made)
        t = aside(rng, x) if x.shape == tuple(shape) and rng.random() < 0.15 else elementwise(rng, x, y)
        made.append(t if rng.random() < 0.9 or t.shape != tuple(shape) else t + rng.choice(known))
    return [t for t in made if t.shape == tuple(shape)]


SHAPES = [[7, 13], [64, 3], [129], [1, 97], [1, 31, 5], [5, 3, 11], [40, 1, 2], [33, 1]]


@pytest.mark.parametrize("seed", range(48))
def test_slices_give_the_same_bits(seed: int, tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    shape, dtype = SHAPES[seed % len(SHAPES)], rng.choice([hr.float32, hr.float32, hr.float64, hr.int32, hr.int8])
    random_numbers = np.random.default_rng(seed)
    with hr.Graph().as_default():
        sizes = [shape, shape, shape[-1:], [*shape[:-1], 1], [1] * len(shape), []]
        feeds: dict[Tensor, Any] = {}
        for s in sizes:
            x = hr.placeholder(dtype, s)
            feeds[x] = (random_numbers.standard_normal(s) * 3).astype(dtype.numpy)[()]
        known = list(feeds)
        made = program(rng, known, shape, 14)
        if not made:
            return
        if seed % 3 == 0:  # in a loop
            _, last = hr.while_loop(
                lambda i, _: i < 3,
                lambda i, x: [i + 1, [x, *program(rng, [*known, x], shape, 8)][-1]],
                [0, made[-1]],
            )
            made.append(last)
        fetches = made if seed % 2 else rng.sample(made, min(2, len(made)))
        sliced, count = run(fetches, feeds), loops(source(fetches, list(feeds)))
        monkeypatch.setattr(thresholds, "TILED_BYTES", 1 << 60)
        assert not loops(source(fetches, list(feeds)))
        _counts.append(count)
        same(sliced, run(fetches, feeds))
        same(sliced, run(fetches, feeds, "interpret"))


def test_there_were_slices() -> None:
    assert not _counts or any(_counts)


_counts: list[int] = []  # loops over slices in the programs above


def test_source(tiny: None) -> None:
    with hr.Graph().as_default():
        x, row = hr.placeholder(hr.float32, [50, 4]), hr.placeholder(hr.float32, [4])
        column = hr.placeholder(hr.float32, [50, 1])
        y = hr.tanh(x * column + row)
        z = y * y - x
        text = source([z, y > z], [x, row, column])
    assert text.splitlines() == [
        "def step(run, a1, a2, a3):",
        " t4 = f6(a1, o5)",
        " t8 = f6(a1, o9)",
        " for i10 in range(0, 50, 10):",
        "  i11 = i10 + 10",
        "  s12 = a1[i10:i11]",
        "  s13 = a3[i10:i11]",
        "  s14 = t4[i10:i11]",
        "  s15 = t8[i10:i11]",
        "  t17 = k16(s12, s13)",
        "  k18(t17, a2, t17)",
        "  k19(t17, t17)",
        "  t21 = k20(t17)",
        "  k22(t21, s12, s14)",
        "  del t21",
        "  k23(t17, s14, s15)",
        "  del t17",
        " del s12, s13, s14, s15",
        " return (t4, t8)",
    ]


def found(fetches: list[Tensor], feeds: list[Tensor]) -> list[str]:
    """The instructions of a step and its groups, by the types of operations."""
    made = tiling._units(step(fetches, feeds).block)
    return ["+".join(i.op.type for i in u.block.instrs) if isinstance(u, Group) else u.op.type for u in made]


def test_what_is_in_a_group(tiny: None) -> None:
    with hr.Graph().as_default():
        x, y = hr.placeholder(hr.float32, [50, 4]), hr.placeholder(hr.float32, [4])
        first = hr.tanh(hr.sin(x))
        small = hr.reverse(y, [0])  # depends on nothing in the group: before it
        second = first * small
        of_group = second[0]  # small too, but of the group: behind it
        third = hr.exp(second)
        assert found([third, of_group], [x, y]) == ["ReverseV2", "Sin+Tanh+Mul+Exp", "StridedSlice"]
        fourth = hr.exp(second) + of_group  # so this cannot be in it
        assert found([fourth], [x, y]) == ["ReverseV2", "Sin+Tanh+Mul+Exp", "StridedSlice", "AddV2"]
        large = hr.reverse(first, [0])  # is not moved
        assert found([hr.exp(large * 2.0 + first)], [x]) == ["Sin", "Tanh", "ReverseV2", "Mul+AddV2+Exp"]
        assert found([hr.tanh(hr.sin(x))], [x]) == ["Sin", "Tanh"]  # too few
        other = hr.placeholder(hr.float32, [4, 50])  # of another shape
        assert found([hr.exp(hr.sin(hr.tanh(other))) + hr.transpose(third)], [x, y, other])[-1] == "AddV2"
        flat = hr.placeholder(hr.float32, [2, 1000])  # a row does not fit into a slice
        assert found([hr.exp(hr.sin(hr.tanh(flat)))], [flat]) == ["Tanh", "Sin", "Exp"]
        with hr.control_dependencies([hr.no_op()]):  # waits for something
            waits = hr.sin(x)
        assert found([hr.exp(hr.tanh(waits))], [x])[-2:] == ["Tanh", "Exp"]
        unknown = hr.placeholder(hr.float32, [None, 4])
        assert found([hr.exp(hr.sin(hr.tanh(unknown)))], [unknown]) == ["Tanh", "Sin", "Exp"]


def test_nothing_crosses_what_has_effects(tiny: None) -> None:
    with hr.Graph().as_default():
        x = hr.placeholder(hr.float32, [50, 4])
        v = hr.Variable(np.zeros([50, 4], np.float32))
        first = hr.exp(hr.sin(hr.tanh(x)))
        with hr.control_dependencies([v.assign(first)]):
            read = v.read_value()
        second = hr.exp(hr.sin(hr.tanh(x + read)))
        names = found([second], [x])
        assert names[0] == "Tanh+Sin+Exp"
        assert names.index("AssignVariableOp") < names.index("ReadVariableOp")
        assert names[-1] == "AddV2+Tanh+Sin+Exp"


def test_a_dying_array_is_written_over_but_not_while_it_is_read(tiny: None) -> None:
    with hr.Graph().as_default():
        x = hr.placeholder(hr.float32, [50, 4])
        late = hr.reverse(x, [0]) @ hr.ones([4, 4])  # an array that is the step's own
        y = hr.sin(late) * 2.0
        z = y + late
        value = np.random.default_rng(0).standard_normal([50, 4]).astype(np.float32)
        text = source([y, z], [x])
        assert text.count("= f") == 1, text  # z is written over `late`, y is not
        assert not re.search(r" del .*\bt", text.partition(" del s")[2])  # both are fetched
        text = source([hr.reduce_sum(y) + hr.reduce_sum(z)], [x])
        assert len(re.findall(r"\n del t\d+\n", text.partition(" del s")[2])) == 2, text  # nothing outlives its use
        same(run([y, z], {x: value}), run([y, z], {x: value}, "interpret"))


def peak(fetches: list[Tensor], feeds: dict[Tensor, Any]) -> int:
    with hr.Session(graph=fetches[0].graph, engine="compiled") as session:
        call = session.make_callable(fetches, list(feeds))
        values = list(feeds.values())
        call(*values)
        tracemalloc.start()
        try:
            call(*values)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("which", range(4))
def test_memory(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = [512, 128]
    monkeypatch.setattr(thresholds, "TILE_BYTES", 4096)
    with hr.Graph().as_default():
        x, w = hr.placeholder(hr.float32, shape), hr.placeholder(hr.float32, [128, 128])
        a = x @ w
        if which == 0:
            fetches = [hr.exp(hr.sin(a) * 2.0)]
        elif which == 1:
            y = hr.sin(a) * 2.0
            fetches = [y, hr.exp(y) + a]
        elif which == 2:  # an array dies early whose place nothing can take: it is a view
            t = hr.tanh(hr.transpose(w @ hr.transpose(x)))
            fetches = [t + 1.0, hr.exp(t), hr.square(t) - 3.0]
        else:
            u, v = hr.sin(a) * x, hr.cos(a) + x
            fetches = [hr.exp(u * v - u) / (v * v + 1.0)]
        feeds = {x: np.ones(shape, np.float32), w: np.ones([128, 128], np.float32)}
        monkeypatch.setattr(thresholds, "TILED_BYTES", 1 << 60)
        plain = peak(fetches, feeds)
        monkeypatch.setattr(thresholds, "TILED_BYTES", 1000)
        assert loops(source(fetches, list(feeds))) == (which != 2)
        assert peak(fetches, feeds) <= plain + 8 * thresholds.TILE_BYTES


def shapes_of_constants(fetches: list[Tensor], feeds: list[Tensor]) -> set[tuple[int, ...]]:
    written = Printer(scheduled(fetches, feeds)).out.names
    return {v.shape for v in written.values() if isinstance(v, np.ndarray)}


def test_which_numbers_become_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph().as_default():
        x, small = hr.placeholder(hr.float32, [300, 96]), hr.placeholder(hr.float32, [300, 7])
        half = hr.constant(0.5)
        monkeypatch.setattr(thresholds, "SCALAR_ROW_MOST", 1000)
        assert shapes_of_constants([hr.minimum(x, half)], [x]) >= {(96,)}
        assert shapes_of_constants([hr.nn.relu(x)], [x]) >= {(96,)}
        assert shapes_of_constants([hr.minimum(small, half), x * half], [small, x]) == {()}
        monkeypatch.setattr(thresholds, "TILED_BYTES", 1000)
        monkeypatch.setattr(thresholds, "SCALAR_ROW_MOST", 1 << 16)
        assert shapes_of_constants([hr.exp(hr.tanh(hr.minimum(x, half)))], [x]) >= {(96,)}


def test_numbers_beside_minimum_and_maximum_become_rows() -> None:
    assert _row((256, 256)) == (256, 256)
    assert _row((3, 1024, 1024)) == (1024,)
    assert _row((2, 3, 8192)) == (8192,)
    assert _row((16,)) == (16,)
    assert _row((100_000,)) == ()
    specials = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -2.5] * 12, np.float32)
    for dtype in (hr.float32, hr.float64, hr.int32, hr.uint8):
        with hr.Graph().as_default():
            x = hr.placeholder(dtype, [3, 96])
            made = [f(*pair) for n in (0, 1, 2) for f in (hr.minimum, hr.maximum)
                    for pair in ((x, hr.constant(n, dtype)), (hr.constant(n, dtype), x))]  # fmt: skip
            made += [hr.nn.relu(x), hr.minimum(x[:, :7], hr.constant(1, dtype))]
            if dtype.is_floating:
                made += [f(x, hr.constant(s, dtype)) for f in (hr.minimum, hr.maximum) for s in (-0.0, np.nan, np.inf)]
            with np.errstate(invalid="ignore"):
                value = np.stack([specials] * 3).astype(dtype.numpy)
            rows = run(made, {x: value})
            for got, want in zip(rows, run(made, {x: value}, "interpret"), strict=True):
                assert got.tobytes() == want.tobytes()
