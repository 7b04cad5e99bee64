"""`tf.contrib.seq2seq`: attention by its formulas, decoders by loops in numpy, beams by all sequences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.contrib.running import drawn, names, run, sigmoid, softmax

pytestmark = pytest.mark.system  # networks, which take their time to compile

seq2seq = tf.contrib.seq2seq
MEMORY = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
QUERY = np.random.default_rng(1).normal(size=(2, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


# *** attention ***


def masked_softmax(scores: np.ndarray) -> np.ndarray:
    return softmax(np.where(np.arange(4) < np.array([[4], [2]]), scores, -np.inf))


@pytest.mark.parametrize("normalize", [False, True])
def test_bahdanau_attention(normalize: bool) -> None:
    attention = seq2seq.BahdanauAttention(6, tf.constant(MEMORY), [4, 2], normalize=normalize)
    found, state = attention(tf.constant(QUERY), attention.initial_state(2, tf.float32))
    v = drawn()
    assert {k: list(a.shape) for k, a in v.items()} == {
        "memory_layer/kernel": [3, 6],
        "bahdanau_attention/query_layer/kernel": [5, 6],
        "bahdanau_attention/attention_v": [6],
        **({"bahdanau_attention/attention_g": [], "bahdanau_attention/attention_b": [6]} if normalize else {}),
    }
    memory = np.where(np.arange(4)[None, :, None] < np.array([4, 2])[:, None, None], MEMORY, 0)
    both = memory @ v["memory_layer/kernel"] + (QUERY @ v["bahdanau_attention/query_layer/kernel"])[:, None]
    vector = v["bahdanau_attention/attention_v"]
    if normalize:
        vector = v["bahdanau_attention/attention_g"] * vector / np.sqrt((vector**2).sum())
        both = both + v["bahdanau_attention/attention_b"]
    wanted = masked_softmax((vector * np.tanh(both)).sum(-1))
    got, after = run([found, state], values=v)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got, after)


@pytest.mark.parametrize("scale", [False, True])
def test_luong_attention(scale: bool) -> None:
    attention = seq2seq.LuongAttention(5, tf.constant(MEMORY), [4, 2], scale=scale)
    found, _ = attention(tf.constant(QUERY), None)
    v = drawn()
    assert names() == {
        "memory_layer/kernel": [3, 5], **({"luong_attention/attention_g": []} if scale else {})
    }  # fmt: skip
    scores = np.einsum("btd,bd->bt", MEMORY @ v["memory_layer/kernel"], QUERY)
    scores = scores * v["luong_attention/attention_g"] if scale else scores
    np.testing.assert_allclose(run(found, values=v), masked_softmax(scores), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="Perhaps you need to set num_units"):
        seq2seq.LuongAttention(4, tf.constant(MEMORY))(tf.constant(QUERY), None)


def expected_alignment(p: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The probability that step j is chosen: item by item from the definition."""
    out = np.zeros_like(p)
    for k in range(p.shape[0]):
        for start in range(p.shape[1]):
            passed = before[k, start]
            for j in range(start, p.shape[1]):
                out[k, j] += passed * p[k, j]
                passed *= 1 - p[k, j]
    return out


def test_monotonic_attention() -> None:
    p = sigmoid(np.random.default_rng(3).normal(size=(2, 4))).astype(np.float32)
    before = softmax(QUERY[:, :4])
    made = [seq2seq.monotonic_attention(p, before, mode) for mode in ("recursive", "parallel")]
    chosen = np.array([[0, 0, 1, 1], [0, 0, 0, 0]], np.float32)
    hard = seq2seq.monotonic_attention(chosen, [[0.0, 1.0, 0.0, 0.0]] * 2, "hard")
    got = run([*made, hard])
    for found in got[:2]:
        np.testing.assert_allclose(found, expected_alignment(p, before), rtol=1e-4, atol=1e-6)
    assert got[2].tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]
    with pytest.raises(ValueError, match="mode must be"):
        seq2seq.monotonic_attention(p, before, "soft")


def test_monotonic_mechanisms() -> None:
    first = seq2seq.LuongMonotonicAttention(5, tf.constant(MEMORY), score_bias_init=-1.0)
    second = seq2seq.BahdanauMonotonicAttention(6, tf.constant(MEMORY), normalize=True, mode="hard")
    made = [m(tf.constant(QUERY), m.initial_state(2, tf.float32))[0] for m in (first, second)]
    v = drawn()
    v["luong_monotonic_attention/attention_score_bias"] = np.float32(-1.0)
    got = run(made, values=v)
    scores = np.einsum("btd,bd->bt", MEMORY @ v["memory_layer/kernel"], QUERY) - 1
    start = np.array([[1.0, 0, 0, 0]] * 2)
    np.testing.assert_allclose(got[0], expected_alignment(sigmoid(scores), start), rtol=1e-4, atol=1e-6)
    assert set(np.unique(got[1])) <= {0.0, 1.0}
    assert "bahdanau_monotonic_attention/attention_score_bias" in names()


def test_a_wrapper_joins_attention_and_cell() -> None:
    cell = seq2seq.AttentionWrapper(
        tf.nn.rnn_cell.BasicRNNCell(5), seq2seq.LuongAttention(5, tf.constant(MEMORY)), attention_layer_size=2,
        alignment_history=True,
    )  # fmt: skip
    x = np.random.default_rng(4).normal(size=(2, 3, 1)).astype(np.float32)
    start = cell.zero_state(2, tf.float32).clone(cell_state=tf.constant(QUERY))
    y, state = tf.nn.dynamic_rnn(cell, tf.constant(x), initial_state=start, dtype=tf.float32)
    history = state.alignment_history.stack()
    home = "rnn/attention_wrapper"
    assert names() == {
        "memory_layer/kernel": [3, 5], f"{home}/basic_rnn_cell/kernel": [8, 5], f"{home}/basic_rnn_cell/bias": [5],
        f"{home}/attention_layer/kernel": [8, 2],
    }  # fmt: skip
    v = drawn()
    got, seen, time = run([y, history, state.time], values=v)
    h, attention = QUERY, np.zeros((2, 2))
    for t in range(3):
        joined = np.concatenate([x[:, t], attention, h], 1)
        h = np.tanh(joined @ v[f"{home}/basic_rnn_cell/kernel"] + v[f"{home}/basic_rnn_cell/bias"])
        weights = softmax(np.einsum("btd,bd->bt", MEMORY @ v["memory_layer/kernel"], h))
        context = np.einsum("bt,btd->bd", weights, MEMORY)
        attention = np.concatenate([h, context], 1) @ v[f"{home}/attention_layer/kernel"]
        np.testing.assert_allclose(got[:, t], attention, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(seen[t], weights, rtol=1e-3, atol=1e-5)
    assert time == 3
    with pytest.raises(ValueError, match="tile_batch"):
        cell.zero_state(6, tf.float32)
    with pytest.raises(ValueError, match="The shape of the AttentionWrapperState"):
        cell.zero_state(2, tf.float32).clone(cell_state=tf.zeros([2, 4]))


# *** decoders ***


def test_a_training_decoder_equals_a_network() -> None:
    x = np.random.default_rng(5).normal(size=(2, 4, 3)).astype(np.float32)
    lengths = [4, 2]
    cell = tf.nn.rnn_cell.GRUCell(5)
    layer = tf.layers.Dense(6, name="out")
    helper = seq2seq.TrainingHelper(tf.constant(x), lengths)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32), layer)
    made, last, counts = seq2seq.dynamic_decode(decoder, impute_finished=True)
    free, _, _ = seq2seq.dynamic_decode(decoder, output_time_major=True, maximum_iterations=3)
    with tf.variable_scope("decoder", reuse=True):
        y, state = tf.nn.dynamic_rnn(cell, tf.constant(x), lengths, dtype=tf.float32)
    logits = layer(y)
    assert list(names())[-2:] == ["decoder/out/kernel", "decoder/out/bias"]
    assert made.rnn_output.shape.as_list() == [2, None, 6]
    got = run([made, last, counts, logits, state, free.rnn_output, made.sample_id], values=drawn())
    wanted = got[3] * (np.arange(4)[None, :, None] < np.array(lengths)[:, None, None])
    np.testing.assert_allclose(got[0].rnn_output, wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got[1], got[4], rtol=1e-4, atol=1e-6)
    assert got[2].tolist() == lengths
    np.testing.assert_allclose(got[5][:, 0], wanted[0, :3], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got[6], wanted.argmax(-1))


def step_of(v: dict[str, np.ndarray], prefix: str = "decoder/basic_rnn_cell") -> Any:
    def step(x: np.ndarray, h: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.tanh(np.concatenate([x, h], 1) @ v[f"{prefix}/kernel"] + v[f"{prefix}/bias"])
        return found

    return step


def test_a_greedy_decoder_feeds_its_ids() -> None:
    table = tf.get_variable("table", [5, 3])
    cell = tf.nn.rnn_cell.BasicRNNCell(5)
    helper = seq2seq.GreedyEmbeddingHelper(table, [1, 2, 3], 0)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32))
    made, _, counts = seq2seq.dynamic_decode(decoder, maximum_iterations=6)
    v = drawn(3)
    ids, lengths = run([made.sample_id, counts], values=v)
    step, h, now = step_of(v), np.zeros((3, 5)), np.array([1, 2, 3])
    wanted, finished = [], np.zeros(3, bool)
    count = np.zeros(3, int)
    for t in range(6):
        h = step(v["table"][now], h)
        now = h.argmax(1)
        count[~finished] = t + 1
        finished |= now == 0
        wanted.append(now)
        if finished.all():
            break
    np.testing.assert_array_equal(ids, np.stack(wanted, 1))
    np.testing.assert_array_equal(lengths, count)


def test_other_helpers() -> None:
    table = tf.eye(4)
    x = tf.constant(np.random.default_rng(6).normal(size=(3, 4, 4)).astype(np.float32))
    cell = tf.nn.rnn_cell.BasicRNNCell(4)
    state = cell.zero_state(3, tf.float32)

    def decoded(helper: Any, n: int = 4) -> Any:
        return seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, state), maximum_iterations=n, scope="d")[0]

    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        plain = decoded(seq2seq.TrainingHelper(x, [4, 3, 1]))
        never, always = (
            decoded(seq2seq.ScheduledEmbeddingTrainingHelper(x, [4, 4, 4], table, p, seed=1)) for p in (0.0, 1.0)
        )
        fed = decoded(seq2seq.ScheduledOutputTrainingHelper(x, [4, 4, 4], 1.0))
        sampled = decoded(seq2seq.SampleEmbeddingHelper(table, [1, 2, 3], 0, softmax_temperature=1e-4, seed=2))
        greedy = decoded(seq2seq.GreedyEmbeddingHelper(table, [1, 2, 3], 0))
        inferred = decoded(
            seq2seq.InferenceHelper(
                lambda y: y, 4, tf.float32, x[:, 0], lambda y: tf.fill([3], False), lambda y: 2.0 * y
            )
        )
        custom = decoded(
            seq2seq.CustomHelper(
                lambda: (tf.fill([3], False), x[:, 0]),
                lambda time, outputs, state: tf.argmax(outputs, 1, output_type=tf.int32),
                lambda time, outputs, state, sample_ids: (tf.fill([3], False), 2.0 * outputs, state),
            )
        )
    assert list(names()) == ["d/basic_rnn_cell/kernel", "d/basic_rnn_cell/bias"]
    v = drawn()
    step = step_of(v, "d/basic_rnn_cell")
    got = run([plain, never, always, fed, sampled, greedy, inferred, custom, x], values=v)
    inputs = got[-1]
    np.testing.assert_allclose(got[0].rnn_output[0], got[1].rnn_output[0], rtol=1e-5)
    assert (got[1].sample_id == -1).all()
    assert (got[2].sample_id > -1).all()
    np.testing.assert_array_equal(got[4].sample_id, got[5].sample_id)
    np.testing.assert_allclose(got[6].rnn_output, got[7].rnn_output, rtol=1e-5)
    np.testing.assert_allclose(got[6].sample_id, got[6].rnn_output)
    for factor, found in ((1.0, got[3]), (2.0, got[7])):
        h, now = np.zeros((3, 4)), inputs[:, 0]
        for t in range(4):
            h = step(now, h)
            np.testing.assert_allclose(found.rnn_output[:, t], h, rtol=1e-3, atol=1e-5)
            now = factor * h


@pytest.mark.parametrize("form", [{}, {"average_across_timesteps": False}, {"average_across_batch": False},
                                  {"average_across_timesteps": False, "average_across_batch": False}])  # fmt: skip
def test_sequence_loss(form: dict[str, bool]) -> None:
    rng = np.random.default_rng(7)
    logits, weights = rng.normal(size=(2, 3, 4)), np.array([[1.0, 1.0, 1.0], [1.0, 0.5, 0.0]])
    targets = rng.integers(0, 4, (2, 3))
    losses = -np.log(np.take_along_axis(softmax(logits), targets[..., None], 2))[..., 0] * weights
    axes = tuple(
        i for i, name in ((0, "average_across_batch"), (1, "average_across_timesteps")) if form.get(name, True)
    )
    wanted = losses if not axes else losses.sum(axes) / (weights.sum(axes) + 1e-12)
    got = run(seq2seq.sequence_loss(logits, targets, weights, **form))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_summed_sequence_losses() -> None:
    logits, targets, weights = tf.zeros([2, 3, 4]), tf.zeros([2, 3], tf.int32), [[1.0, 1.0, 1.0], [1.0, 0.5, 0.0]]
    loss = seq2seq.sequence_loss(logits, targets, weights, False, False, True, True)
    np.testing.assert_allclose(run(loss), np.log(4) * 4.5 / 5, rtol=1e-6)
    with pytest.raises(ValueError, match="cannot be set to True at same time"):
        seq2seq.sequence_loss(logits, targets, weights, sum_over_batch=True)


# *** beam search ***


def tree(ids: np.ndarray, parents: np.ndarray, lengths: np.ndarray, end: int) -> np.ndarray:
    """`gather_tree`, element by element."""
    out = np.full_like(ids, end)
    for b, w in itertools.product(range(ids.shape[1]), range(ids.shape[2])):
        at = w
        for t in reversed(range(lengths[b])):
            out[t, b, w], at = ids[t, b, at], parents[t, b, at]
        ends = np.flatnonzero(out[:, b, w] == end)
        if ends.size:
            out[ends[0] :, b, w] = end
    return out


def test_gather_tree() -> None:
    rng = np.random.default_rng(8)
    ids, parents = rng.integers(0, 5, (4, 2, 3)).astype(np.int32), rng.integers(0, 3, (4, 2, 3)).astype(np.int32)
    lengths = np.array([4, 2], np.int32)
    got = run(seq2seq.gather_tree(ids, parents, lengths, 4))
    np.testing.assert_array_equal(got, tree(ids, parents, lengths, 4))


def test_tile_batch() -> None:
    state = tf.nn.rnn_cell.LSTMStateTuple(tf.constant([[1], [2]]), tf.constant([3, 4]))
    got = run(seq2seq.tile_batch(state, 2))
    assert got.c.tolist() == [[1], [1], [2], [2]]
    assert got.h.tolist() == [3, 3, 4, 4]


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_a_wide_beam_finds_the_best_of_all_sequences(penalty: float) -> None:
    """With as many beams as there are prefixes, nothing is lost."""
    classes, steps, width, end = 3, 3, 12, 0
    table = tf.get_variable("table", [classes, 2])
    cell = tf.nn.rnn_cell.BasicRNNCell(4)
    layer = tf.layers.Dense(classes, name="out")
    decoder = seq2seq.BeamSearchDecoder(
        cell, table, [1, 2], end, cell.zero_state(2 * width, tf.float32), width, layer, length_penalty_weight=penalty
    )
    made, state, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=steps)
    v = drawn(1)
    found, scores = run([made.predicted_ids, made.beam_search_decoder_output.scores], values=v)
    log_probs, lengths = run([state.log_probs, state.lengths], values=v)
    step = step_of(v)
    for b, start in enumerate((1, 2)):
        wanted = {}
        for ids in itertools.product(range(classes), repeat=steps):
            n = ids.index(end) + 1 if end in ids else steps
            if any(i != end for i in ids[n:]):
                continue
            h, now, total = np.zeros((1, 4)), start, 0.0
            for i in ids[:n]:
                h = step(v["table"][[now]], h)
                logits = h @ v["decoder/out/kernel"] + v["decoder/out/bias"]
                total += float(np.log(softmax(logits))[0, i])
                now = i
            # as in TensorFlow, an end counts as a step from the next step on
            counted = n - 1 if end in ids and n == steps else n
            wanted[ids] = total, total / ((5 + counted) / 6) ** penalty
        best = sorted(wanted, key=lambda ids: -wanted[ids][1])[:4]
        assert [tuple(found[b, :, w]) for w in range(4)] == best
        np.testing.assert_allclose(scores[b, -1, :4], [wanted[i][1] for i in best], rtol=1e-4)
        np.testing.assert_allclose(log_probs[b, :4], [wanted[i][0] for i in best], rtol=1e-4)
        assert lengths[b, :4].tolist() == [i.index(end) + 1 if end in i else steps for i in best]


def test_a_beam_of_one_is_greedy() -> None:
    table = tf.get_variable("table", [5, 3])
    memory = tf.constant(MEMORY)

    def cell(memory: Any, lengths: Any) -> Any:
        attention = seq2seq.LuongAttention(5, memory, lengths)
        return seq2seq.AttentionWrapper(
            tf.nn.rnn_cell.BasicRNNCell(5), attention, attention_layer_size=5, alignment_history=True
        )

    with tf.variable_scope("s"):
        one = cell(memory, [4, 2])
        helper = seq2seq.GreedyEmbeddingHelper(table, [1, 2], 0)
        greedy, last, _ = seq2seq.dynamic_decode(
            seq2seq.BasicDecoder(one, helper, one.zero_state(2, tf.float32)), maximum_iterations=4
        )
    made = {}
    for width in (1, 3):
        with tf.variable_scope("s", reuse=True):
            many = cell(seq2seq.tile_batch(memory, width), seq2seq.tile_batch(tf.constant([4, 2]), width))
            decoder = seq2seq.BeamSearchDecoder(
                many, table, [1, 2], 0, many.zero_state(2 * width, tf.float32), width,
                coverage_penalty_weight=0.0 if width == 1 else 0.2,
            )  # fmt: skip
            made[width] = seq2seq.dynamic_decode(decoder, maximum_iterations=4)
    v = drawn(2)
    ids, seen, beam, weights = run(
        [
            greedy.sample_id, last.alignment_history.stack(), made[1][0].predicted_ids,
            made[1][1].cell_state.alignment_history,
        ],
        values=v,
    )  # fmt: skip
    n = beam.shape[1]
    np.testing.assert_array_equal(beam[:, :, 0], ids[:, :n])
    np.testing.assert_allclose(weights, seen[:n], rtol=1e-5)
    wide, scores = run([made[3][0].predicted_ids, made[3][0].beam_search_decoder_output.scores], values=v)
    assert wide.shape[2] == 3
    assert (np.diff(scores[:, -1], axis=1) <= 0).all()
