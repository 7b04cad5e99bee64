"""`hr.save` and `hr.load`: the variables of a model in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.one_engine


def _model() -> Any:
    model = hr.layers.Sequential([hr.layers.Dense(3, activation=hr.tanh), hr.layers.Dense(1)])
    model(hr.ones((1, 2)))
    return model


def test_a_layer_goes_into_another_one_of_the_same_making(tmp_path: Path) -> None:
    first, second = _model(), _model()
    x = np.float32([[1, 2], [3, 4]])
    assert hr.load(hr.save(tmp_path / "m", first), second) is second
    np.testing.assert_array_equal(first(x).numpy(), second(x).numpy())
    assert list(hr.load(tmp_path / "m")) == [v.name for v in first.variables]


def test_a_model_with_its_optimizer_trains_on(tmp_path: Path) -> None:
    def trained(model: Any, optimizer: Any, steps: int) -> list[Any]:
        for _ in range(steps):
            with hr.GradientTape() as tape:
                loss = hr.reduce_mean(hr.square(model(hr.ones((4, 2))) - 1.0))
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )
        return [v.numpy() for v in model.variables]

    one, other = _model(), _model()
    a, b = hr.train.Adam(0.1), hr.train.Adam(0.1)
    trained(one, a, 3)
    trained(other, b, 1)  # its slots exist
    hr.load(hr.save(tmp_path / "m", {"model": one, "optimizer": a}), {"model": other, "optimizer": b})
    for x, y in zip(trained(one, a, 3), trained(other, b, 3), strict=True):
        np.testing.assert_array_equal(x, y)


def test_variables_of_a_graph_need_the_session(tmp_path: Path) -> None:
    with hr.Graph() as g:
        start = hr.constant([1.0, 2.0])
        variables = [hr.Variable(start, name="a"), hr.Variable(start, name="b"), hr.Variable(3, name="c")]
        change = [variables[0].assign([5.0, 6.0]).op, variables[2].assign(7).op]
    with hr.Session(graph=g) as one, hr.Session(graph=g) as other:
        one.run([v.initializer for v in variables])
        one.run(change)
        path = hr.save(tmp_path / "m", variables, one)
        hr.load(path, variables, other)
        a, b, c = other.run(variables)
        assert (a.tolist(), b.tolist(), c) == ([5, 6], [1, 2], 7)
        n = len(g.operations)
        hr.load(path, variables, other)
        assert len(g.operations) == n
        with pytest.raises(ValueError, match="'a:0' is a variable of a graph: give the session"):
            hr.save(tmp_path / "m", variables)
        with pytest.raises(ValueError, match="give the session"):
            hr.load(path, variables)


def test_a_variable_that_occurs_twice_is_written_once(tmp_path: Path) -> None:
    v = hr.Variable(1.0, name="v")
    assert list(hr.load(hr.save(tmp_path / "m", [v, (v, {"again": v})]))) == ["v:0"]


def test_another_model_is_refused_as_a_whole(tmp_path: Path) -> None:
    v, w = hr.Variable([1.0, 2.0], name="v"), hr.Variable(3, name="w")
    path = hr.save(tmp_path / "m", [v, w])
    into = hr.Variable([0.0, 0.0], name="x"), hr.Variable(0.0, name="y")
    with pytest.raises(InvalidArgumentError, match=r"'y:0' has dtype float32 .*; .* of 'w:0', has dtype int32"):
        hr.load(path, into)
    assert into[0].numpy().tolist() == [0, 0]
    with pytest.raises(InvalidArgumentError, match="has the values of 2 variables and the model has 0"):
        hr.load(path, hr.layers.Dense(2))
    with pytest.raises(InvalidArgumentError, match="shape"):
        hr.load(path, [hr.Variable([1.0]), w])


def test_errors_of_files_and_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no variables to save; a layer has none before its first call"):
        hr.save(tmp_path / "m", hr.layers.Dense(2))
    with pytest.raises(TypeError, match="got int"):
        hr.save(tmp_path / "m", [3])
    with pytest.raises(NotFoundError):
        hr.load(tmp_path / "none")
    hr.train.save(tmp_path / "values", {"names": 1})
    with pytest.raises(DataLossError, match=r"not a file of hr\.save; hr\.train\.load reads any checkpoint"):
        hr.load(tmp_path / "values")
