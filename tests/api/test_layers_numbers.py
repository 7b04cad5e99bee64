"""Values of every layer, in graphs and outside.

Derivatives, static shapes, the same numbers in a graph as outside, and numpy's numbers for each kind of layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import layers as L

RNG = np.random.default_rng(8)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


# name → what makes it, and the shape of its inputs
LAYERS: dict[str, tuple[Callable[..., L.Layer], tuple[int, ...]]] = {
    "dense": (lambda **o: L.Dense(3, hr.tanh, **o), (4, 5)),
    "dense of volumes": (lambda **o: L.Dense(3, "sigmoid", use_bias=False, **o), (2, 3, 2, 5)),
    "activation": (lambda **o: L.Activation("softplus"), (3, 2)),
    "flatten": (lambda **o: L.Flatten(), (2, 3, 2)),
    "flatten channels": (lambda **o: L.Flatten("channels_first"), (2, 3, 2, 2)),
    "conv1d": (lambda **o: L.Conv1D(3, 3, 2, "same", **o), (2, 7, 2)),
    "conv1d causal": (lambda **o: L.Conv1D(3, 2, padding="causal", dilation_rate=2, **o), (2, 7, 2)),
    "conv2d": (lambda **o: L.Conv2D(3, (2, 3), activation=hr.tanh, **o), (2, 5, 4, 2)),
    "conv2d dilated": (lambda **o: L.Conv2D(2, 2, padding="same", dilation_rate=(2, 1), **o), (1, 5, 4, 2)),
    "conv2d channels": (lambda **o: L.Conv2D(3, 2, 2, "same", "channels_first", **o), (2, 2, 5, 4)),
    "conv3d": (lambda **o: L.Conv3D(2, 2, **o), (1, 3, 4, 3, 2)),
    "conv2d transpose": (lambda **o: L.Conv2DTranspose(3, (3, 2), (2, 3), **o), (2, 3, 2, 2)),
    "conv2d transpose same": (lambda **o: L.Conv2DTranspose(3, 3, 2, "same", **o), (2, 3, 2, 2)),
    "conv3d transpose": (lambda **o: L.Conv3DTranspose(2, 2, 2, **o), (1, 2, 2, 2, 2)),
    "separable conv1d": (lambda **o: L.SeparableConv1D(3, 2, 2, depth_multiplier=2, **o), (2, 5, 2)),
    "separable conv2d": (lambda **o: L.SeparableConv2D(3, 2, padding="same", depth_multiplier=2, **o), (2, 3, 4, 2)),
    "depthwise conv2d": (lambda **o: L.DepthwiseConv2D(2, depth_multiplier=2, **o), (2, 3, 4, 2)),
    "max pooling 1d": (lambda **o: L.MaxPooling1D(2, 1), (2, 5, 2)),
    "max pooling 2d": (lambda **o: L.MaxPooling2D(2, padding="same"), (2, 5, 4, 2)),
    "max pooling 3d": (lambda **o: L.MaxPooling3D(2), (1, 4, 3, 2, 2)),
    "average pooling 1d": (lambda **o: L.AveragePooling1D(3, 2, "same"), (2, 5, 2)),
    "average pooling 2d": (lambda **o: L.AveragePooling2D((2, 3), 1), (2, 3, 4, 2)),
    "average pooling 3d": (lambda **o: L.AveragePooling3D(2), (1, 4, 3, 2, 2)),
    "global average": (lambda **o: L.GlobalAveragePooling2D(), (2, 3, 2, 4)),
    "global max": (lambda **o: L.GlobalMaxPooling2D("channels_first", keepdims=True), (2, 4, 3, 2)),
    "dropout at rest": (lambda **o: L.Dropout(0.5), (3, 4)),
    "layer norm": (lambda **o: L.LayerNormalization(**o), (3, 5)),
    "layer norm of axes": (lambda **o: L.LayerNormalization([1, 2], **o), (2, 3, 2, 2)),
    "batch norm at rest": (lambda **o: L.BatchNormalization(**o), (4, 3)),
    "batch norm channels": (lambda **o: L.BatchNormalization(1, scale=False, **o), (2, 3, 2, 2)),
    "sequential": (lambda **o: L.Sequential([L.Dense(4, "tanh", **o), hr.sin, L.Dense(2, **o)]), (3, 2)),
}  # fmt: skip


def filled(layer: L.Layer, inputs: np.ndarray) -> list[np.ndarray]:
    """Builds a layer outside of graphs, and gives each variable a random value."""
    layer(inputs)
    values = [RNG.uniform(0.2, 1.0, v.shape) * RNG.choice([-1, 1], v.shape) for v in layer.variables]
    for v, value in zip(layer.variables, values, strict=True):
        v.assign(np.abs(value) if "variance" in v.name else value)
    return [v.numpy() for v in layer.variables]


@pytest.mark.parametrize("name", [n for n in LAYERS if n != "max pooling 3d" and not n.startswith("batch norm")])
def test_derivatives(name: str) -> None:
    """In float64, which pooling of volumes does not have; batch norm's are below."""
    make, shape = LAYERS[name]
    layer, x = make(dtype=hr.float64), floats(*shape)
    filled(layer, x)
    values = [v.numpy() for v in layer.variables]
    assert layer.variables == layer.trainable_variables

    def function(values: list[Any], x: Any) -> Any:
        return hr.reduce_sum(hr.sin(layer.with_values(values)(x)))

    hr.check_gradients(function, (values, x), order=1)


@pytest.mark.parametrize("name", LAYERS)
def test_a_graph_computes_the_same(name: str) -> None:
    make, shape = LAYERS[name]
    outside, x = make(), floats(*shape).astype(np.float32)
    values = filled(outside, x)
    want = outside(x).numpy()
    for known in (
        shape,
        (None, *shape[1:]),
        tuple(n if i in (1, len(shape) - 1) else None for i, n in enumerate(shape)),
    ):
        if None in known[1:] and name in ("layer norm of axes",):
            continue  # needs to know
        with hr.Graph() as g:
            p = hr.placeholder(hr.float32, known)
            layer = make()
            y, again = layer(p), layer(p)
            assert [v.name for v in layer.variables] == [v.name for v in outside.variables]
            init = hr.variables_initializer()
            changes = [v.assign(value) for v, value in zip(layer.variables, values, strict=True)]
        assert y.shape is not None
        assert all(d in (None, n) for d, n in zip(y.shape, want.shape, strict=True))
        if None not in known[1:]:
            assert y.shape[1:] == want.shape[1:], "what can be known is not"
        with hr.Session(graph=g) as session:
            session.run(init)
            session.run([c.op for c in changes], {p: x})  # in order: behind the reads
            np.testing.assert_allclose(session.run(y, {p: x}), want, rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(session.run(again, {p: x}), want, rtol=2e-5, atol=2e-5)


def test_dense_is_a_product() -> None:
    for shape in ((4, 5), (2, 3, 5)):
        layer, x = L.Dense(3, dtype=hr.float64), floats(*shape)
        kernel, bias = filled(layer, x)
        np.testing.assert_allclose(layer(x).numpy(), x @ kernel + bias)


def windows(x: np.ndarray, size: tuple[int, ...], step: int, rate: int = 1) -> np.ndarray:
    """[batch, places..., window..., channels] of inputs with their channels last."""
    axes = len(size)
    counts = [(n - (k - 1) * rate - 1) // step + 1 for n, k in zip(x.shape[1:-1], size, strict=True)]
    out = np.zeros((len(x), *counts, *size, x.shape[-1]))
    for at in itertools.product(*map(range, counts)):
        part = tuple(slice(a * step, a * step + (k - 1) * rate + 1, rate) for a, k in zip(at, size, strict=True))
        out[(slice(None), *at)] = x[(slice(None), *part)]
    assert out.ndim == 2 + 2 * axes
    return out


@pytest.mark.parametrize(("step", "rate"), [(1, 1), (2, 1), (1, 2)])
def test_convolutions_and_pools_go_over_windows(step: int, rate: int) -> None:
    for make, pools, size in (
        (L.Conv1D, (L.MaxPooling1D, L.AveragePooling1D), (3,)),
        (L.Conv2D, (L.MaxPooling2D, L.AveragePooling2D), (3, 2)),
        (L.Conv3D, (L.MaxPooling3D, L.AveragePooling3D), (1, 3, 2)),
    ):
        x = floats(2, *(7, 6, 5)[: len(size)], 3)
        layer = make(4, size, step, dilation_rate=rate, dtype=hr.float64)
        kernel, bias = filled(layer, x)
        parts = windows(x, size, step, rate)
        over = tuple(range(1 + len(size), 1 + 2 * len(size)))
        want = np.tensordot(parts, kernel, [(*over, parts.ndim - 1), tuple(range(kernel.ndim - 1))]) + bias
        np.testing.assert_allclose(layer(x).numpy(), want, rtol=1e-10)
        if rate == 1:
            got = [pool(size, step)(x.astype(np.float32)).numpy() for pool in pools]
            np.testing.assert_allclose(got[0], parts.max(over), rtol=1e-5)
            np.testing.assert_allclose(got[1], parts.mean(over), rtol=1e-4, atol=1e-6)


def test_a_transpose_is_the_transpose() -> None:
    """<conv(x), y> = <x, transpose(y)> for all x and y."""
    for padding, size in (("valid", 3), ("same", 2), ("same", 3)):
        forward = L.Conv2D(4, size, 2, padding, use_bias=False, dtype=hr.float64)
        back = L.Conv2DTranspose(3, size, 2, padding, use_bias=False, dtype=hr.float64)
        x = floats(2, 7, 7, 3) if padding == "valid" else floats(2, 6, 6, 3)
        (kernel,) = filled(forward, x)
        y = floats(*forward(x).shape)
        back(y)
        back.kernel.assign(kernel)
        assert back(y).shape == x.shape
        np.testing.assert_allclose(np.sum(forward(x).numpy() * y), np.sum(x * back(y).numpy()), rtol=1e-9)


def test_separable_is_depthwise_and_then_dense() -> None:
    x = floats(2, 5, 4, 3)
    layer = L.SeparableConv2D(4, (2, 3), depth_multiplier=2, dtype=hr.float64)
    deep, across, bias = filled(layer, x)
    first = np.einsum("nhwijc,ijcm->nhwcm", windows(x, (2, 3), 1), deep)
    want = first.reshape(*first.shape[:3], 6) @ across[0, 0] + bias
    np.testing.assert_allclose(layer(x).numpy(), want, rtol=1e-10)
    alone = L.DepthwiseConv2D((2, 3), depth_multiplier=2, use_bias=False, dtype=hr.float64)
    alone(x)
    alone.depthwise_kernel.assign(deep)
    np.testing.assert_allclose(alone(x).numpy(), first.reshape(*first.shape[:3], 6), rtol=1e-10)
    flat = L.SeparableConv1D(4, 3, depth_multiplier=2, dtype=hr.float64)
    deep, across, bias = filled(flat, x[:, 0])
    rows = np.einsum("nwic,icm->nwcm", windows(x[:, 0], (3,), 1), deep)
    np.testing.assert_allclose(flat(x[:, 0]).numpy(), rows.reshape(*rows.shape[:2], 6) @ across[0] + bias)


def test_causal_outputs_depend_on_nothing_behind_them() -> None:
    layer, x = L.Conv1D(2, 3, padding="causal"), floats(1, 9, 2).astype(np.float32)
    filled(layer, x)
    changed = x.copy()
    changed[:, 5:] += 1.0
    before, after = layer(x).numpy(), layer(changed).numpy()
    assert before.shape == (1, 9, 2)
    assert np.array_equal(before[:, :5], after[:, :5])
    assert not np.allclose(before[:, 5:], after[:, 5:])


def test_flatten_and_global_pools() -> None:
    x = np.arange(24.0).reshape(2, 3, 2, 2)
    assert np.array_equal(L.Flatten()(x).numpy(), x.reshape(2, 12))
    assert np.array_equal(L.Flatten("channels_first")(x).numpy(), np.moveaxis(x, 1, -1).reshape(2, 12))
    assert L.Flatten()(np.zeros((0, 3, 2))).shape == (0, 6)
    assert L.Flatten()(np.zeros(3)).shape == (3, 1)
    assert np.array_equal(L.GlobalMaxPooling2D()(x).numpy(), x.max((1, 2)))
    assert np.array_equal(L.GlobalAveragePooling2D("channels_first")(x).numpy(), x.mean((2, 3)))
    with hr.Graph() as g:
        p = hr.placeholder(hr.float32, (None, None, 2))
        y = L.Flatten()(p)
    assert y.shape == (None, None)
    assert hr.Session(graph=g).run(y, {p: x[0]}).shape == (3, 4)
    assert hr.Session(graph=g).run(y, {p: np.zeros((0, 3, 2))}).shape == (0, 6)


def test_embeddings_have_sparse_gradients() -> None:
    with hr.Graph() as g:
        layer = L.Embedding(5, 2)
        ids = hr.placeholder(hr.int64, (None, 2))
        y = layer(ids)
        (dtable,) = hr.gradients(hr.reduce_sum(y * [[1.0, 2.0]]), layer.trainable_variables)
        init = hr.variables_initializer()
    assert y.shape == (None, 2, 2)
    assert isinstance(dtable, hr.IndexedSlices)
    with hr.Session(graph=g) as session:
        session.run(init)
        table, rows, where, what = session.run(
            [layer.embeddings, y, dtable.indices, dtable.values], {ids: [[4, 0], [4, 4]]}
        )
    assert np.abs(table).max() <= 0.05
    assert np.array_equal(rows, table[[[4, 0], [4, 4]]])
    assert sorted(where.ravel().tolist()) == [0, 4, 4, 4]
    assert np.array_equal(what.reshape(-1, 2), [[1, 2]] * 4)
    with pytest.raises(TypeError, match="takes numbers of rows"):
        L.Embedding(5, 2)([0.5])


def test_dropout_keeps_the_mean() -> None:
    drop = L.Dropout(0.25, seed=3)
    y = drop(np.ones((200, 100), np.float32), training=True).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(y.mean() - 1) < 0.02
    rows = L.Dropout(0.5, noise_shape=(50, 1))(np.ones((50, 8), np.float32), training=True).numpy()
    assert all(len(set(row)) == 1 for row in rows)
    with hr.Graph() as g:
        training = hr.placeholder(hr.bool, ())
        y = drop(hr.ones((10, 10)), training=training)
    with hr.Session(graph=g) as session:
        assert (session.run(y, {training: False}) == 1).all()
        assert (session.run(y, {training: True}) == 0).any()


# *** batch normalization ***


def by_definition(
    x: np.ndarray, gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float, axis: int
) -> np.ndarray:
    dims = [1] * x.ndim
    dims[axis] = -1
    gamma, beta, mean, variance = (np.reshape(v, dims) for v in (gamma, beta, mean, variance))
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((16, 3), {}),
        ((6, 4, 3), {"axis": 1, "momentum": 0.7}),
        ((4, 3, 2, 3), {"momentum": 0.9}),
        ((4, 3, 2, 3), {"axis": 1, "epsilon": 0.1}),
        ((4, 3, 2, 3), {"fused": False}),
    ],
)
@pytest.mark.parametrize("fed", [False, True])
def test_twenty_steps_of_batch_norm(shape: tuple[int, ...], options: dict[str, Any], fed: bool) -> None:
    """Compares outputs, effects of gradients on gamma and beta, and moving averages with numpy's."""
    axis = options.get("axis", -1) % len(shape)
    momentum, epsilon = options.get("momentum", 0.99), options.get("epsilon", 1e-3)
    over = tuple(i for i in range(len(shape)) if i != axis)
    n = shape[axis]
    # one operation says what the variance of the whole population would be
    beyond = np.prod([shape[i] for i in over])
    factor = beyond / (beyond - 1) if len(shape) == 4 and options.get("fused") is None else 1.0
    rate = 0.05
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, *shape[1:]) if axis else shape)
        training = hr.placeholder(hr.bool, ())
        norm = L.BatchNormalization(**options)
        y = norm(x, training=training if fed else True)
        used = norm(x, training=False)
        loss = hr.reduce_sum(y * y * y) / float(np.prod(shape))
        grads = hr.gradients(loss, norm.trainable_variables)
        with hr.control_dependencies(grads):
            train = hr.group(*(v.assign_sub(rate * d) for v, d in zip(norm.trainable_variables, grads, strict=True)))
        init = hr.variables_initializer()
    assert len(norm.updates) == 2
    gamma, beta, moving_mean, moving_variance = np.ones(n), np.zeros(n), np.zeros(n), np.ones(n)
    with hr.Session(graph=g) as session:
        session.run(init)
        for step in range(20):
            batch = RNG.standard_normal(shape) * 2 + step / 5
            got, _, _ = session.run([y, train, norm.updates], {x: batch, training: True})
            mean, variance = batch.mean(over), batch.var(over)
            want = by_definition(batch, gamma, beta, mean, variance, epsilon, axis)
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
            dy = 3 * want * want / want.size
            normalized = by_definition(batch, np.ones(n), np.zeros(n), mean, variance, epsilon, axis)
            gamma, beta = gamma - rate * (dy * normalized).sum(over), beta - rate * dy.sum(over)
            moving_mean = momentum * moving_mean + (1 - momentum) * mean
            moving_variance = momentum * moving_variance + (1 - momentum) * variance * factor
        kept = session.run(norm.variables)
        for v, want in zip(kept, (gamma, beta, moving_mean, moving_variance), strict=True):
            np.testing.assert_allclose(v, want, rtol=1e-4, atol=1e-5)
        # inference does not change the moving averages
        got = session.run(used, {x: batch, training: True} if fed else {x: batch})
        want = by_definition(batch, gamma, beta, moving_mean, moving_variance, epsilon, axis)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        if fed:
            session.run(norm.updates, {x: batch, training: False})
        assert all(np.array_equal(a, b) for a, b in zip(session.run(norm.variables), kept, strict=True))


def test_batch_norm_outside_of_graphs_notes_at_once() -> None:
    for shape in ((8, 2), (2, 2, 2, 2)):
        norm, x = L.BatchNormalization(momentum=0.5), floats(*shape).astype(np.float32)
        norm(x, training=True)
        over = tuple(range(len(shape) - 1))
        np.testing.assert_allclose(norm.moving_mean.numpy(), x.mean(over) / 2, rtol=1e-4, atol=1e-6)
        before = norm.moving_mean.numpy()
        norm(x)
        assert np.array_equal(norm.moving_mean.numpy(), before)
        assert norm.updates == []


def test_half_precision_keeps_float32_statistics() -> None:
    for shape in ((8, 2), (2, 2, 2, 2)):
        for norm in (L.BatchNormalization(), L.LayerNormalization()):
            y = norm(hr.constant(floats(*shape).astype(np.float16)))
            assert y.dtype == hr.float16
            assert {v.dtype for v in norm.variables} == {hr.float32}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((6, 3), -1), ((3, 2, 2, 3), -1), ((3, 2, 2, 2), 1)])
def test_derivatives_of_batch_norm(shape: tuple[int, ...], axis: int, training: bool) -> None:
    """Compares derivatives with central differences in float64, those by the inputs too.

    The same holds where one operation does all.
    """
    x, weight = floats(*shape), floats(*shape)

    def derivatives(dtype: Any, points: list[list[np.ndarray]]) -> list[Any]:
        """The sum and its gradients, with these values of gamma, beta and the inputs."""
        with hr.Graph() as g:
            p = hr.placeholder(dtype, shape)
            norm = L.BatchNormalization(axis, dtype=dtype)
            loss = hr.reduce_sum(hr.sin(norm(p, training=training)) * hr.cast(weight, dtype))
            grads = hr.gradients(loss, [norm.gamma, norm.beta, p])
            init = hr.variables_initializer()
        first = [v.initializer.inputs[1] for v in (norm.gamma, norm.beta)]
        out = []
        with hr.Session(graph=g) as session:
            for at in points:
                session.run(init, dict(zip(first, at[:2], strict=True)))
                out.append(session.run([loss, grads], {p: at[2]}))
        return out

    n = shape[axis]
    start = [RNG.uniform(0.5, 1.5, n), floats(n), x]
    ways = [floats(*value.shape) for value in start]
    moved = [
        [v + sign * 1e-5 * way if j == i else v for j, v in enumerate(start)]
        for i, way in enumerate(ways)
        for sign in (1, -1)
    ]
    (_, grads), *ends = derivatives(hr.float64, [start, *moved])
    for i, way in enumerate(ways):
        difference = (ends[2 * i][0] - ends[2 * i + 1][0]) / 2e-5
        np.testing.assert_allclose((grads[i] * way).sum(), difference, rtol=1e-6, atol=1e-7)
    ((_, short),) = derivatives(hr.float32, [[v.astype(np.float32) for v in start]])
    for a, b in zip(short, grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
