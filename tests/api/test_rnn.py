"""Recurrent networks: cells against numpy, lengths, both directions, `raw_rnn`, gradients, what becomes of the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import nest
from headrace.api.rnn import bidirectional, block_cells, cells, dynamic, raw, static, wrappers
from headrace.errors import InvalidArgumentError, ShapeError

BATCH, TIME, DEPTH = 3, 5, 2
LENGTHS = np.array([5, 0, 3], np.int32)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


INPUTS = floats(BATCH, TIME, DEPTH)


def arrays(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in nest.flatten(tree)]


def same(a: Any, b: Any, tolerance: float = 1e-12) -> None:
    a, b = arrays(a), arrays(b)
    assert [x.shape for x in a] == [x.shape for x in b]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


# *** cells by hand: one step of one example, of weights and states in a list ***


def _rnn(x: Any, state: list[Any], w: list[Any]) -> tuple[Any, list[Any]]:
    y = np.tanh(np.concatenate([x, state[0]]) @ w[0] + w[1])
    return y, [y]


def _gru(x: Any, state: list[Any], w: list[Any]) -> tuple[Any, list[Any]]:
    (h,) = state
    r, u = np.split(sigmoid(np.concatenate([x, h]) @ w[0] + w[1]), 2)
    new = np.tanh(np.concatenate([x, r * h]) @ w[2] + w[3])
    y = u * h + (1 - u) * new
    return y, [y]


def _lstm(x: Any, state: list[Any], w: list[Any]) -> tuple[Any, list[Any]]:
    c, h = state
    i, j, f, o = np.split(np.concatenate([x, h]) @ w[0] + w[1], 4)
    c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    h = np.tanh(c) * sigmoid(o)
    return h, [c, h]


def _full(x: Any, state: list[Any], w: list[Any]) -> tuple[Any, list[Any]]:
    c, h = state
    kernel, bias, pf, pi, po, projection = w
    i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
    c = c * sigmoid(f + 0.5 + pf * c) + sigmoid(i + pi * c) * np.tanh(j)
    c = np.clip(c, -0.3, 0.3)
    h = np.clip(sigmoid(o + po * c) * np.tanh(c) @ projection, -0.1, 0.1)
    return h, [c, h]


def _layers(x: Any, state: list[Any], w: list[Any]) -> tuple[Any, list[Any]]:
    y, first = _lstm(x, state[:2], w[:2])
    y, second = _gru(y, state[2:], w[2:])
    return y, [*first, *second]


def full_cell() -> Any:
    return cells.LSTMCell(4, use_peepholes=True, cell_clip=0.3, num_proj=3, proj_clip=0.1, forget_bias=0.5)


CELLS = {
    "rnn": (lambda: cells.BasicRNNCell(4), _rnn),
    "gru": (lambda: cells.GRUCell(4), _gru),
    "lstm": (lambda: cells.BasicLSTMCell(4), _lstm),
    "plain": (lambda: cells.LSTMCell(4), _lstm),
    "full": (full_cell, _full),
    "layers": (lambda: wrappers.MultiRNNCell([cells.BasicLSTMCell(4), cells.GRUCell(3)]), _layers),
}


def weighted(cell: Any, depth: int = DEPTH) -> list[np.ndarray]:
    """Lets a cell make its variables, and gives them larger values than initial ones.

    The variables are made outside of graphs.
    """
    cell.prepare(hr.TensorSpec((None, depth), hr.float64))
    for k, v in enumerate(cell.variables):
        v.assign(floats(*v.shape, seed=k + 1) * 0.7)
    return [v.numpy() for v in cell.variables]


def by_hand(
    step: Any, sizes: list[int], weights: list[np.ndarray], lengths: Any
) -> tuple[np.ndarray, list[np.ndarray]]:
    outputs, last = [], []
    for row, n in zip(INPUTS, lengths, strict=True):
        state: list[Any] = [np.zeros(k) for k in sizes]
        ys = []
        for x in row[:n]:
            y, state = step(x, state, weights)
            ys.append(y)
        outputs.append(ys)
        last.append(state)
    width = next(len(y) for ys in outputs for y in ys)
    whole = np.array([[*ys, *[np.zeros(width)] * (TIME - len(ys))] for ys in outputs])
    return whole, [np.array(part) for part in zip(*last, strict=True)]


@pytest.mark.parametrize("lengths", [None, LENGTHS, np.array([2, 1, 2])], ids=["all", "some", "short"])
@pytest.mark.parametrize("name", CELLS)
def test_cells_are_what_the_definitions_say(name: str, lengths: Any) -> None:
    """The values equal the definition's, eagerly and in graphs.

    One graph has known sizes, and one has none of them.
    """
    make, step = CELLS[name]
    cell = make()
    weights = weighted(cell)
    wanted = by_hand(step, nest.flatten(cell.state_size), weights, [TIME] * BATCH if lengths is None else lengths)
    same(dynamic.dynamic_rnn(cell, INPUTS, lengths, dtype=hr.float64), wanted)
    for batch, time in ((BATCH, TIME), (None, None)):
        with hr.Graph() as g:
            x = hr.placeholder(hr.float64, (time, batch, DEPTH))
            n = None if lengths is None else hr.placeholder(hr.int64, (None,))
            y, state = dynamic.dynamic_rnn(make(), x, n, dtype=hr.float64, time_major=True)
            assert y.shape == (time, batch, cell.output_size)
            loads = [v.assign(w) for v, w in zip(g.variables, weights, strict=True)]
        with hr.Session(graph=g) as session:
            session.run([v.initializer for v in g.variables])
            session.run(loads)
            feeds = {x: INPUTS.transpose(1, 0, 2)} | ({} if n is None else {n: lengths})
            y, state = session.run([y, state], feeds)
            same([y.transpose(1, 0, 2), state], wanted)


def test_states_may_lie_side_by_side() -> None:
    """`state_is_tuple=False` gives the same numbers in one tensor."""
    for make in (
        lambda whole: cells.BasicLSTMCell(3, state_is_tuple=whole),
        lambda whole: cells.LSTMCell(3, num_proj=2, state_is_tuple=whole),
        lambda whole: wrappers.MultiRNNCell([cells.GRUCell(3), cells.BasicRNNCell(2)], state_is_tuple=whole),
    ):
        apart, joined = make(True), make(False)
        for v, w in zip(joined.variables, weighted(apart), strict=False):
            v.assign(w)
        weighted(joined)
        assert joined.state_size == sum(nest.flatten(apart.state_size))
        y, state = dynamic.dynamic_rnn(apart, INPUTS, LENGTHS, dtype=hr.float64)
        z, both = dynamic.dynamic_rnn(joined, INPUTS, LENGTHS, dtype=hr.float64)
        same([y, np.concatenate(arrays(state), 1)], [z, both])


def test_variables_are_named_as_in_tensorflow() -> None:
    """In a graph below "rnn", and the same outside of graphs."""
    layers = [
        cells.LSTMCell(3),
        wrappers.DropoutWrapper(cells.LSTMCell(3), 0.5),
        wrappers.ResidualWrapper(cells.GRUCell(3)),
    ]
    with hr.Graph() as g:
        dynamic.dynamic_rnn(wrappers.MultiRNNCell(layers), INPUTS.astype(np.float32), dtype=hr.float32)
    names = [v.name for v in g.variables]
    assert names == [
        *(f"rnn/multi_rnn_cell/cell_{k}/lstm_cell/{v}:0" for k in (0, 1) for v in ("kernel", "bias")),
        *(f"rnn/multi_rnn_cell/cell_2/gru_cell/{p}/{v}:0" for p in ("gates", "candidate") for v in ("kernel", "bias")),
    ]
    outside = wrappers.MultiRNNCell([cells.GRUCell(3), cells.GRUCell(3)])
    dynamic.dynamic_rnn(outside, INPUTS, dtype=hr.float64)
    assert [v.name for v in outside.variables][::4] == [
        f"multi_rnn_cell/cell_{k}/gru_cell/gates/kernel:0" for k in (0, 1)
    ]


def test_padding_is_never_seen() -> None:
    """Values behind the end of a sequence have no effect, not even infinity or NaN."""
    cell = cells.BasicLSTMCell(4)
    weighted(cell)
    spoilt = INPUTS.copy()
    for row, n in zip(spoilt, LENGTHS, strict=True):
        row[n:] = np.nan
    got = dynamic.dynamic_rnn(cell, spoilt, LENGTHS, dtype=hr.float64)
    same(got, dynamic.dynamic_rnn(cell, INPUTS, LENGTHS, dtype=hr.float64))
    assert not any(np.isnan(x).any() for x in arrays(got))


class Counting(cells.RNNCell):
    """A cell whose output is its input.

    Its states are the number of steps made, and those of each example.
    """

    state_size = (hr.TensorSpec(()), 1)
    output_size = DEPTH

    def call(self, inputs: Any, state: Any) -> Any:
        return inputs, (state[0] + 1, state[1] + 1)


@pytest.mark.parametrize(("lengths", "steps"), [([5, 0, 3], 5), ([1, 2, 0], 2), ([0, 0, 0], 1), ([9, 1, 1], 5)])
def test_the_loop_ends_with_the_longest(lengths: list[int], steps: int) -> None:
    """And makes one step at least, as in TensorFlow."""
    start = (np.float64(0), np.zeros((BATCH, 1)))
    with hr.Graph() as g:
        y, (made, own) = dynamic.dynamic_rnn(Counting(), INPUTS, lengths, start)
    y, made, own = hr.Session(graph=g).run([y, made, own])
    assert made == steps
    assert own.ravel().tolist() == np.minimum(lengths, TIME).tolist()
    kept = np.arange(TIME) < np.array(lengths)[:, None]
    same(y, INPUTS * kept[..., None])


@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (0, 0)])
@pytest.mark.parametrize("has_lengths", [False, True])
def test_nothing_to_do(shape: tuple[int, int], has_lengths: bool) -> None:
    """Batches and sequences without anything in them, whose sizes are not known beforehand; with gradients."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, (None, None, DEPTH))
        n = hr.placeholder(hr.int32, (None,))
        y, state = dynamic.dynamic_rnn(cells.GRUCell(4), x, n if has_lengths else None, dtype=hr.float64)
        (dx,) = hr.gradients(hr.reduce_sum(y), x)
    with hr.Session(graph=g) as session:
        session.run([v.initializer for v in g.variables])
        y, state, dx = session.run([y, state, dx], {x: np.zeros((*shape, DEPTH)), n: np.zeros(shape[0], np.int32)})
    assert (y.shape, state.shape, dx.shape) == ((*shape, 4), (shape[0], 4), (*shape, DEPTH))
    assert not state.any()


def test_structures() -> None:
    """Inputs, outputs and states that are structures, of other ranks than 2."""

    class Nested(cells.RNNCell):
        state_size = {"a": 2, "b": (hr.TensorSpec((2, 3)),)}
        output_size = (2, {"c": hr.TensorSpec((2, 3))})

        def call(self, inputs: Any, state: Any) -> Any:
            new = {"a": state["a"] * 0.5 + inputs["x"], "b": (state["b"][0] - inputs["y"],)}
            return (new["a"], {"c": new["b"][0]}), new

    given = {"x": INPUTS, "y": floats(BATCH, TIME, 2, 3, seed=4)}
    (a, c), state = dynamic.dynamic_rnn(Nested(), given, LENGTHS, dtype=hr.float64)
    one, two = np.zeros((BATCH, 2)), np.zeros((BATCH, 2, 3))
    for t in range(TIME):
        going = t < LENGTHS
        one[going] = one[going] * 0.5 + INPUTS[going, t]
        two[going] -= given["y"][going, t]
        same(a[:, t], np.where(going[:, None], one, 0))
        same(c["c"][:, t], np.where(going[:, None, None], two, 0))
    same([state["a"], state["b"][0]], [one, two])


# *** gradients ***


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["gru", "lstm", "full"])
def test_gradients_of_both_orders(name: str) -> None:
    """By inputs, first state and weights, against differences; with lengths."""
    cell = CELLS[name][0]()
    weights = weighted(cell)

    def f(x: Any, start: Any, *values: Any) -> Any:
        y, last = dynamic.dynamic_rnn(cell.with_values(values), x, [3, 1], start)
        return hr.reduce_sum(hr.sin(y)), [hr.reduce_sum(s * s) for s in nest.flatten(last)]

    start = nest.pack(cell.state_size, [floats(2, n, seed=n) * 0.1 for n in nest.flatten(cell.state_size)])
    hr.check_gradients(f, [INPUTS[:2, :3], start, *weights], modes=("rev",), rtol=1e-4)


@pytest.mark.parametrize("options", [{"swap_memory": True}, {"save": hr.recompute(2)}, {"parallel_iterations": 1}])
def test_what_is_kept_does_not_change_gradients(options: dict[str, Any]) -> None:
    """`swap_memory`, `save` and `parallel_iterations` reach the loop."""

    def derivatives(**given: Any) -> list[np.ndarray]:
        with hr.Graph() as g:
            hr.random.set_seed(3)
            cell = cells.BasicLSTMCell(4)
            x = hr.constant(INPUTS)
            y, _ = dynamic.dynamic_rnn(cell, x, LENGTHS, dtype=hr.float64, **given)
            found = hr.gradients(hr.reduce_sum(y * y), [x, *cell.variables])
        with hr.Session(graph=g) as session:
            session.run([v.initializer for v in g.variables])
            return list(session.run(found))

    same(derivatives(**options), derivatives(), 1e-10)


def test_the_whole_step_is_one_function() -> None:
    """With lengths and gradients: compiled, with the products of the inputs before the loop."""
    with hr.Graph() as g:
        x, n = hr.placeholder(hr.float32, (32, 8, 8)), hr.placeholder(hr.int32, (32,))
        cell = cells.BasicLSTMCell(16)
        y, state = dynamic.dynamic_rnn(cell, x, n, dtype=hr.float32)
        found = hr.gradients(hr.reduce_sum(y) + hr.reduce_sum(state.h), cell.variables)
    with hr.Session(graph=g, engine="auto") as session:
        text = str(session.explain(found, [x, n]))
    assert "engine: compiled" in text
    assert "applied: loop_products" in text
    assert "applied: loop_fission" in text
    assert "applied: loop_accumulations" in text


# *** other networks ***


def test_both_directions() -> None:
    """The backward cell reads each sequence from its own end."""
    forth, back = cells.GRUCell(3), cells.BasicLSTMCell(2)
    weighted(forth)
    weighted(back)
    (y, z), (last, first) = bidirectional.bidirectional_dynamic_rnn(forth, back, INPUTS, LENGTHS, dtype=hr.float64)
    same((y, last), dynamic.dynamic_rnn(forth, INPUTS, LENGTHS, dtype=hr.float64))
    for k, n in enumerate(LENGTHS):
        alone, state = dynamic.dynamic_rnn(back, INPUTS[k : k + 1, :n][:, ::-1], dtype=hr.float64)
        same(z[k, :n], alone.numpy()[0, ::-1])
        same([s[k] for s in first], [s[0] for s in state])
        assert not z.numpy()[k, n:].any()
    (_, z), _ = bidirectional.bidirectional_dynamic_rnn(
        forth, back, INPUTS.transpose(1, 0, 2), dtype=hr.float64, time_major=True
    )
    same(z, dynamic.dynamic_rnn(back, INPUTS[:, ::-1], dtype=hr.float64)[0].numpy().transpose(1, 0, 2)[::-1])


def test_stacked_directions() -> None:
    """Each network reads what both cells of the one below said."""
    pairs = [(cells.GRUCell(3), cells.GRUCell(2)), (cells.GRUCell(2), cells.GRUCell(4))]
    for k, pair in enumerate(pairs):
        for cell in pair:
            weighted(cell, (DEPTH, 5)[k])
    y, fw, bw = bidirectional.stack_bidirectional_dynamic_rnn(
        [p[0] for p in pairs], [p[1] for p in pairs], INPUTS, dtype=hr.float64, sequence_length=LENGTHS
    )
    x: Any = INPUTS
    for k, pair in enumerate(pairs):
        outputs, states = bidirectional.bidirectional_dynamic_rnn(*pair, x, LENGTHS, dtype=hr.float64)
        x = hr.concat(outputs, 2)
        same(states, (fw[k], bw[k]))
    same(y, x)


def test_written_out() -> None:
    """`static_rnn` and `static_bidirectional_rnn` give what the loops give."""
    cell, other = cells.BasicLSTMCell(4), cells.GRUCell(3)
    weighted(cell)
    weighted(other)
    steps = list(INPUTS.transpose(1, 0, 2))
    for lengths in (None, LENGTHS):
        ys, state = static.static_rnn(cell, steps, dtype=hr.float64, sequence_length=lengths)
        y, last = dynamic.dynamic_rnn(cell, INPUTS, lengths, dtype=hr.float64)
        same([hr.stack(ys, axis=1), state], [y, last])
        both, fw, bw = static.static_bidirectional_rnn(cell, other, steps, dtype=hr.float64, sequence_length=lengths)
        pair, states = bidirectional.bidirectional_dynamic_rnn(cell, other, INPUTS, lengths, dtype=hr.float64)
        same([hr.stack(both, axis=1), (fw, bw)], [hr.concat(pair, 2), states])


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_raw_rnn_can_do_what_dynamic_rnn_does(engine: str) -> None:
    """With inputs read by a function, that also counts and keeps every second state."""
    with hr.Graph() as g:
        hr.random.set_seed(5)
        cell = cells.BasicLSTMCell(4)
        rows = hr.TensorArray(hr.float64, size=TIME).unstack(INPUTS.transpose(1, 0, 2))
        nothing = hr.zeros((BATCH, DEPTH), hr.float64)

        def loop_fn(time: Any, output: Any, state: Any, own: Any) -> Any:
            done = time >= hr.constant(LENGTHS)
            x = hr.cond(time < TIME, lambda: rows.read(time), lambda: nothing)
            if output is None:
                return done, x, cell.zero_state(BATCH, hr.float64), None, hr.constant(0)
            return done, x, state, output, own + 2

        emitted, state, own = raw.raw_rnn(cell, loop_fn)
        y, last = dynamic.dynamic_rnn(cell, INPUTS, LENGTHS, dtype=hr.float64)
        ys = emitted.stack()
    with hr.Session(graph=g, engine=engine) as session:
        session.run([v.initializer for v in g.variables])
        ys, state, own, y, last = session.run([ys, state, own, y, last])
    same([ys.transpose(1, 0, 2), state], [y, last])
    assert own == 2 * TIME


# *** wrappers and blocks ***


def test_blocks_are_the_same_cells() -> None:
    """One operation, or twenty: the same results from the same weights."""
    x = INPUTS.astype(np.float32)
    for one, many in (
        (block_cells.LSTMBlockCell(4), cells.LSTMCell(4)),
        (block_cells.LSTMBlockCell(4, 0.3, 0.2, True), cells.LSTMCell(4, True, 0.2, forget_bias=0.3)),
        (block_cells.GRUBlockCellV2(4), cells.GRUCell(4)),
    ):
        for cell in (one, many):
            cell.prepare(hr.TensorSpec((None, DEPTH)))
        named = {v.name.partition("/")[2]: v for v in one.variables}
        assert sorted(named) == sorted(v.name.partition("/")[2] for v in many.variables)
        for k, v in enumerate(many.variables):
            v.assign(floats(*v.shape, seed=k).astype(np.float32))
            named[v.name.partition("/")[2]].assign(v)
        for lengths in (None, LENGTHS):
            wanted = dynamic.dynamic_rnn(many, x, lengths, dtype=hr.float32)
            same(dynamic.dynamic_rnn(one, x, lengths, dtype=hr.float32), wanted, 1e-6)
    layer = block_cells.LSTMBlockFusedCell(4)
    cell = cells.BasicLSTMCell(4)
    major = x.transpose(1, 0, 2)
    layer(major, dtype=hr.float32)
    cell.prepare(hr.TensorSpec((None, DEPTH)))
    for v, w in zip(cell.variables, layer.variables, strict=True):
        v.assign(w)
    for lengths in (None, LENGTHS, [0, 0, 0]):
        wanted = dynamic.dynamic_rnn(cell, major, lengths, dtype=hr.float32, time_major=True)
        same(layer(major, dtype=hr.float32, sequence_length=lengths), wanted, 1e-6)


def test_dropout_of_each_part() -> None:
    """Dropped elements are zero, and the rest is scaled up.

    An LSTM's c is left alone.
    """

    class Passing(cells.RNNCell):
        state_size = cells.LSTMStateTuple(50, 50)
        output_size = 50

        def call(self, inputs: Any, state: Any) -> Any:
            return inputs, cells.LSTMStateTuple(inputs, inputs)

    x, start = hr.ones((4, 50)), Passing().zero_state(4, hr.float32)
    for part in ("input", "output", "state"):
        cell = wrappers.DropoutWrapper(Passing(), **{f"{part}_keep_prob": 0.5}, seed=1)
        y, (c, h) = cell(x, start)
        dropped = {name for name, t in (("y", y), ("c", c), ("h", h)) if set(t.numpy().ravel().tolist()) == {0.0, 2.0}}
        assert dropped == {"input": {"y", "c", "h"}, "output": {"y"}, "state": {"h"}}[part]
    both = wrappers.DropoutWrapper(Passing(), state_keep_prob=0.5, seed=1, dropout_state_filter_visitor=lambda s: True)
    _, (c, h) = both(x, start)
    assert all(set(t.numpy().ravel().tolist()) == {0.0, 2.0} for t in (c, h))
    assert (c.numpy() != h.numpy()).any()  # each has a seed of its own
    with pytest.raises(ValueError, match="between 0 and 1"):
        wrappers.DropoutWrapper(Passing(), 1.5)
    with pytest.raises(ValueError, match="input_size must be provided"):
        wrappers.DropoutWrapper(Passing(), 0.5, variational_recurrent=True, dtype=hr.float32)
    with pytest.raises(ValueError, match="dtype must be provided"):
        wrappers.DropoutWrapper(Passing(), 0.5, variational_recurrent=True)


def test_variational_dropout_drops_the_same_in_all_steps() -> None:
    """And other elements in the next run."""
    with hr.Graph() as g:
        cell = wrappers.DropoutWrapper(
            Counting(), 0.5, variational_recurrent=True, input_size=DEPTH * 20, dtype=hr.float64, seed=2
        )
        cell.cell.output_size = DEPTH * 20
        cell.cell.state_size = (hr.TensorSpec((1,)), 1)
        y, _ = dynamic.dynamic_rnn(cell, hr.ones((BATCH, TIME, DEPTH * 20), hr.float64), dtype=hr.float64)
    with hr.Session(graph=g) as session:
        first, second = session.run(y), session.run(y)
    assert set(first.ravel().tolist()) == {0.0, 2.0}
    assert (first == first[0, 0]).all()
    assert (first != second).any()


def test_residual_and_device() -> None:
    """A residual adds the inputs; a device is requested by every operation of a step."""
    cell = cells.GRUCell(DEPTH)
    weighted(cell)
    y, state = dynamic.dynamic_rnn(cell, INPUTS, LENGTHS, dtype=hr.float64)
    z, other = dynamic.dynamic_rnn(wrappers.ResidualWrapper(cell), INPUTS, LENGTHS, dtype=hr.float64)
    kept = np.arange(TIME) < LENGTHS[:, None]
    same([y + INPUTS * kept[..., None], state], [z, other])
    z, _ = dynamic.dynamic_rnn(wrappers.ResidualWrapper(cell, lambda x, y: y - x), INPUTS, dtype=hr.float64)
    same(z, dynamic.dynamic_rnn(cell, INPUTS, dtype=hr.float64)[0] - INPUTS)
    with pytest.raises(ShapeError, match="residual_fn"):
        wrappers.ResidualWrapper(cells.GRUCell(3))(hr.ones((1, 2)), hr.zeros((1, 3)))
    with hr.Graph() as g:
        wrapped = wrappers.DeviceWrapper(cells.GRUCell(2), "/device:CPU:1")
        wrapped(hr.ones((1, 2)), hr.zeros((1, 2)))
    wanted = ("MatMul", "VarHandleOp", "Sigmoid", "Tanh")
    made = [op for op in g.get_operations() if op.name.startswith("gru_cell") and op.type in wanted]
    assert len(made) == 8
    assert {op.device for op in made} == {"/device:CPU:1"}


# *** mistakes ***


def test_malformed_cells_and_inputs_are_refused() -> None:
    """Each error names the value given and the remedy."""
    cell = cells.GRUCell(4)
    x = hr.constant(INPUTS)
    with pytest.raises(TypeError, match="no output_size, no state_size, no zero_state"):
        dynamic.dynamic_rnn(lambda x, s: (x, s), x, dtype=hr.float64)
    with pytest.raises(ValueError, match="give dtype="):
        dynamic.dynamic_rnn(cell, x)
    with pytest.raises(ShapeError, match=r"must be a vector .* of the 3 examples"):
        dynamic.dynamic_rnn(cell, x, [1, 2], dtype=hr.float64)
    with pytest.raises(ShapeError, match="rank of 3 or more"):
        dynamic.dynamic_rnn(cell, x[0], dtype=hr.float64)
    with pytest.raises(ShapeError, match="the same time steps and batch size"):
        dynamic.dynamic_rnn(cell, (x, x[:, 1:]), dtype=hr.float64)
    with pytest.raises(ValueError, match="state_size"):
        dynamic.dynamic_rnn(cells.BasicLSTMCell(4), x, initial_state=hr.zeros((3, 4), hr.float64))
    with pytest.raises(ValueError, match="compute with floats, got int32"):
        cell(hr.constant([[1, 2]]), hr.constant([[1, 2, 3, 4]]))
    with pytest.raises(ValueError, match=r"\(c, h\)"):
        cells.BasicLSTMCell(4)(hr.ones((1, 2)), hr.ones((1, 8, 1)))
    with pytest.raises(ValueError, match="at least one cell"):
        wrappers.MultiRNNCell([])
    with pytest.raises(ValueError, match="state_is_tuple=False joins"):
        wrappers.MultiRNNCell([cells.BasicLSTMCell(4)], state_is_tuple=False)
    with pytest.raises(ValueError, match="no activation called 'thrilling'"):
        cells.GRUCell(4, activation="thrilling")
    with pytest.raises(ValueError, match="five things"):
        raw.raw_rnn(cell, lambda *_: None)
    with pytest.raises(ValueError, match="must not be empty"):
        static.static_rnn(cell, [], dtype=hr.float32)

    class Wrong(cells.RNNCell):
        state_size = output_size = 2

        def call(self, inputs: Any, state: Any) -> Any:
            return inputs, (state, state)

    with pytest.raises(ValueError, match=r"the state of .*a tuple of 2"):
        dynamic.dynamic_rnn(Wrong(), x, dtype=hr.float64)
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, (None,))
        rows = hr.placeholder(hr.float64, (None, TIME, DEPTH))
        y, _ = dynamic.dynamic_rnn(Counting(), rows, n, (np.float64(0), np.zeros((BATCH, 1))))
    with hr.Session(graph=g) as session, pytest.raises(InvalidArgumentError):
        session.run(y, {rows: INPUTS, n: [1, 2]})
