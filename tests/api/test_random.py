"""`hr.random`: seeds, stateless functions, generators."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from tests.api.running import run


def test_gamma_and_poisson_have_a_number_for_each_parameter(g: hr.Graph) -> None:
    a = hr.random.gamma((2000,), [[1.0], [4.0]], beta=[2.0, 8.0], seed=1)
    b = hr.random.poisson((2000,), [0.5, 20.0], dtype=hr.int32, seed=1)
    assert a.shape == (2000, 2, 2)
    assert b.shape == (2000, 2)
    assert b.dtype is hr.int32
    drawn, counted = run((a, b))
    np.testing.assert_allclose(drawn.mean(0), [[0.5, 0.125], [2.0, 0.5]], rtol=0.1)
    np.testing.assert_allclose(counted.mean(0), [0.5, 20.0], rtol=0.1)


def test_gamma_of_integers() -> None:
    with pytest.raises(ValueError, match="float16, float32 or float64, asked for int32"):
        hr.random.gamma((2,), 1, dtype=hr.int32)


def test_a_graphs_seed_makes_its_numbers_the_same_each_time(g: hr.Graph) -> None:
    hr.random.set_seed(3)
    x, y = hr.random.uniform((3,)), hr.random.uniform((3,))
    first, second = run((x, y))
    np.testing.assert_array_equal(run(x), first)
    assert (first != second).all()
    hr.random.set_seed(None)
    z = hr.random.uniform((3,))
    assert (run(z) != run(z)).any()


def test_a_seed_outside_of_graphs() -> None:
    hr.random.set_seed(3)
    try:
        # TensorFlow 2.21 draws the same
        np.testing.assert_allclose(hr.random.normal([2]).numpy(), [-0.8296372, -1.8266271], rtol=1e-6)
        np.testing.assert_allclose(hr.random.normal([2]).numpy(), [1.6663145, 0.70519745], rtol=1e-6)
        np.testing.assert_allclose(hr.random.uniform([2], seed=5).numpy(), [0.3976692, 0.84256816], rtol=1e-6)
    finally:
        hr.random.set_seed(None)


def test_setting_a_seed_rewinds_the_streams_outside_of_graphs() -> None:
    drawn = []
    try:
        for _ in range(2):
            hr.random.set_seed(3)
            drawn.append([hr.random.normal([2]).numpy(), hr.random.normal([2], seed=5).numpy()])
    finally:
        hr.random.set_seed(None)
    np.testing.assert_array_equal(*drawn)


def test_stateless_numbers_follow_from_the_seed_alone() -> None:
    a, b = hr.random.stateless_normal((3,), (1, 2)), hr.random.stateless_normal((3,), (1, 2))
    np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert (a.numpy() != hr.random.stateless_normal((3,), (1, 3)).numpy()).all()
    order = hr.random.stateless_shuffle(hr.range(10), (1, 2)).numpy()
    assert sorted(order.tolist()) == list(range(10))
    assert order.tolist() != list(range(10))


def test_split_and_fold_in() -> None:
    seeds = hr.random.split(hr.constant((1, 2), hr.int64), 3)
    assert seeds.shape == (3, 2)
    assert seeds.dtype is hr.int64
    assert len(np.unique(seeds.numpy())) == 6
    folded = hr.random.fold_in((1, 2), hr.constant(7, hr.int64))
    assert folded.dtype is hr.int64
    assert folded.numpy()[1] == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": hr.int8, "maxval": 3}, "invalid value int8; accepted are"),
        ({"dtype": hr.int32}, "both None or both given, got 0 and None"),
        ({"dtype": hr.uint32, "maxval": 3}, "with bounds it must be int32 or int64"),
        ({"alg": "dice"}, "unsupported value 'dice'; there are 'philox'"),
    ],
)
def test_mistakes_of_stateless_uniform(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hr.random.stateless_uniform((2,), (1, 2), **arguments)


def test_threefry_is_not_there() -> None:
    with pytest.raises(hr.errors.InvalidArgumentError, match="Unsupported algorithm id: 2"):
        hr.random.stateless_uniform((2,), (1, 2), alg=hr.random.Algorithm.THREEFRY)


# *** generators: what TensorFlow 2.21 draws ***


def test_a_generator_draws_what_tensorflows_does() -> None:
    g = hr.random.Generator.from_seed(7)
    np.testing.assert_allclose(g.normal([3]).numpy(), [-1.3240396, 0.28785667, -0.8757901], rtol=1e-6)
    assert g.state.numpy().tolist() == [775, 0, 0]
    assert g.algorithm == 1
    assert g.key.numpy() == 0
    np.testing.assert_allclose(g.normal([2]).numpy(), [-1.2344412, 0.09916726], rtol=1e-6)
    g.reset_from_seed(7)
    np.testing.assert_allclose(g.uniform([3]).numpy(), [0.39932835, 0.7840713, 0.67880154], rtol=1e-6)
    assert g.uniform([2], 1, 9, dtype=hr.int32).numpy().tolist() == [3, 8]
    np.testing.assert_allclose(g.truncated_normal([2]).numpy(), [0.6197005, 0.0243287], rtol=1e-5)
    assert g.uniform_full_int([2]).numpy().tolist() == [10620062734110709236, 15002055446502829210]
    g.reset([7, 0, 0])
    assert g.binomial([2], [10.0, 20.0], 0.5).numpy().tolist() == [4, 14]
    assert g.state.numpy().tolist() == [102407, 0, 0]


def test_the_states_that_seeds_stand_for() -> None:
    made = hr.random.Generator
    for seed, state in ((2**70 + 5, [5, 64, 0]), (-3, [-3, -1, -1]), ([1, 2], [0, 1, 2]), ([1, 2, 3, 4], [1, 2, 3])):
        assert made.from_seed(seed).state.numpy().tolist() == state
    assert made.from_seed(7, "threefry").state.numpy().tolist() == [7, 0]
    assert made.from_key_counter(5, [1, 2], "philox").state.numpy().tolist() == [1, 2, 5]
    assert made(copy_from=made.from_seed(7)).state.numpy().tolist() == [7, 0, 0]
    assert made.from_non_deterministic_state().state.numpy().tolist() != made.from_non_deterministic_state()
    assert hr.random.create_rng_state(7, 1).numpy().tolist() == [7, 0, 0]
    g = made.from_seed(7)
    g.reset_from_key_counter(3, [4, 5])
    assert g.state.numpy().tolist() == [4, 5, 3]


def test_generators_and_seeds_of_a_generator() -> None:
    two = hr.random.Generator.from_seed(7).split(2)
    assert [g.state.numpy().tolist() for g in two] == [[0, 0, 784853886890614065], [0, 0, 8349095772848317176]]
    seeds = hr.random.Generator.from_seed(7).make_seeds(2)
    assert seeds.numpy().tolist() == [[784853886890614065, 8349095772848317176], [0, 0]]
    assert hr.random.Generator.from_seed(7).uniform([1], None, None, hr.int64).numpy() == [784853886890614065]


def test_a_generator_in_a_graph_goes_on_from_run_to_run(g: hr.Graph) -> None:
    made = hr.random.Generator.from_seed(7)
    a = made.normal([3])
    b = made.normal([2])
    with hr.Session(graph=g) as session:
        session.run(made.state.initializer)
        x, y = session.run((a, b))
        assert (session.run(a) != x).all()
    np.testing.assert_allclose(x, [-1.3240396, 0.28785667, -0.8757901], rtol=1e-6)
    np.testing.assert_allclose(y, [-1.2344412, 0.09916726], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="make_seeds"):
        made.split(2)


def test_mistakes_with_generators() -> None:
    made = hr.random.Generator
    for arguments, message in (
        ({}, "one of the two"),
        ({"state": [1, 2, 3]}, "both `state` and `alg`"),
        ({"state": [1, 2], "alg": 1}, "so long is the algorithm's state"),
    ):
        with pytest.raises(ValueError, match=message):
            made(**arguments)
    with pytest.raises(ValueError, match="the algorithm's counter"):
        made.from_key_counter(5, [1, 2, 3], "philox")
    with pytest.raises(ValueError, match="unsupported value 'x'"):
        made.from_seed(7, "x")
    with pytest.raises(ValueError, match="both `None` or both given"):
        made.from_seed(7).uniform([3], dtype=hr.int64)
    with pytest.raises(hr.errors.UnimplementedError, match="ThreeFry"):
        made.from_seed(7, "threefry").make_seeds()
