"""Variables of a loaded SavedModel whose values are memory of its files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from tests.files.test_mapped import is_mapped

W = np.random.default_rng(1).standard_normal((64, 64), np.float32)
X = np.random.default_rng(2).standard_normal((3, 64), np.float32)


class Module:
    """Object with variables and a function.

    Args:
      odd: the size of a variable before the others.
    """

    def __init__(self, odd: int) -> None:
        if odd:
            self.first = hr.Variable(np.zeros(odd, np.int8), trainable=False)
        self.w = hr.Variable(W, name="w")
        self.b = hr.Variable(np.ones(64, np.float32), name="b")

    @hr.jit(input_signature=[hr.TensorSpec((None, 64))])
    def __call__(self, x: Any) -> Any:
        return hr.tanh(hr.matmul(x, self.w) + self.b)


def saved(folder: Path, odd: int = 0) -> Path:
    hr.saved_model.save(Module(odd), folder / "model")
    return folder / "model"


def held(v: hr.Variable) -> Any:
    """The array that a variable has."""
    return v.handle.numpy().owned.read()


def contents(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("odd", [0, 3])
@pytest.mark.parametrize("native", ["off", "on"])
def test_calls_have_the_same_results(tmp_path: Path, odd: int, native: str) -> None:
    m = hr.saved_model.load(saved(tmp_path, odd))
    assert is_mapped(held(m.w)) == (not odd)
    assert not is_mapped(held(m.b))
    with flags.override(NATIVE=native):
        np.testing.assert_allclose(m(X).numpy(), np.tanh(X @ W + 1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(m.signatures["serving_default"](x=X)["output_0"].numpy(), m(X).numpy())


@pytest.mark.system
@pytest.mark.parametrize("odd", [0, 3])
def test_machine_code_reads_and_replaces_values(tmp_path: Path, odd: int) -> None:
    pytest.importorskip("llvmlite")
    path = saved(tmp_path, odd)
    before = contents(path)
    m = hr.saved_model.load(path)

    @hr.jit
    def total(k: Any) -> Any:
        def body(i: Any, s: Any) -> tuple[Any, Any]:
            return i + 1, s + hr.cast(m.w[i % 64, 3], hr.float64)

        return hr.while_loop(lambda i, _: i < k, body, (hr.constant(0), hr.constant(0.0, hr.float64)))[1]

    @hr.jit
    def halve(k: Any) -> Any:
        def body(i: Any) -> tuple[Any]:
            m.w.assign(m.w * 0.5)
            return (i + 1,)

        return hr.while_loop(lambda i: i < k, body, (hr.constant(0),))[0]

    with flags.override(NATIVE="on"):
        assert total.lower(hr.TensorSpec((), hr.int32)).explain().native_source
        np.testing.assert_allclose(float(total(hr.constant(640))), 10 * W[:, 3].sum(dtype=np.float64))
        halve(hr.constant(3))
        np.testing.assert_array_equal(m.w.numpy(), W / 8)
    assert contents(path) == before


def test_a_value_is_taken_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.saved_model import values

    read = []
    original = values.Values.variable

    def variable(*args: Any) -> Any:
        read.append(original(*args))
        return read[-1]

    monkeypatch.setattr(values.Values, "variable", variable)
    m = hr.saved_model.load(saved(tmp_path))
    assert {id(held(m.w)), id(held(m.b))} == set(map(id, read))


def updates(m: Any, optimizer: Any) -> list[np.ndarray]:
    """Changes the variables in several ways; returns their values."""
    for _ in range(3):
        with hr.GradientTape() as tape:
            loss = hr.reduce_sum(hr.square(m(X)))
        gradients = tape.gradient(loss, m.trainable_variables)
        optimizer.apply_gradients(zip(gradients, m.trainable_variables, strict=True))
    m.w.assign_add(np.ones_like(W))
    m.w.scatter_nd_update([[1]], [W[0]])

    @hr.jit
    def steps(x: Any) -> Any:
        def body(i: Any) -> tuple[Any]:
            m.w.assign_sub(x)
            return (i + 1,)

        return hr.while_loop(lambda i: i < 3, body, (hr.constant(0),))

    steps(W)
    return [v.numpy() for v in m.trainable_variables]


@pytest.mark.system
@pytest.mark.parametrize("native", ["off", "on"])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_updates_do_not_change_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: str, kind: str
) -> None:
    path = saved(tmp_path)
    before = contents(path)
    with flags.override(NATIVE=native):
        mapped = hr.saved_model.load(path)
        found = updates(mapped, getattr(hr.train, kind)(0.01))
        monkeypatch.setattr(thresholds, "MAPPED_BYTES", 2**40)
        copied = hr.saved_model.load(path)
        assert not is_mapped(held(copied.w))
        wanted = updates(copied, getattr(hr.train, kind)(0.01))
    assert contents(path) == before
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(hr.saved_model.load(path).w.numpy(), W)


def test_a_model_outlives_its_folder(tmp_path: Path) -> None:
    path = saved(tmp_path)
    m = hr.saved_model.load(path)
    shutil.rmtree(path)
    np.testing.assert_allclose(m(X).numpy(), np.tanh(X @ W + 1), rtol=1e-5, atol=1e-6)
    m.w.assign_add(W)
    np.testing.assert_array_equal(m.w.numpy(), 2 * W)


def test_a_model_can_be_saved_over_its_folder(tmp_path: Path) -> None:
    path = saved(tmp_path)
    m = hr.saved_model.load(path)
    m.b.assign_add(m.b)
    module = Module(0)
    module.w, module.b = m.w, m.b
    hr.saved_model.save(module, path, overwrite=True)
    again = hr.saved_model.load(path)
    assert is_mapped(held(again.w))
    np.testing.assert_array_equal(m.w.numpy(), W)
    np.testing.assert_array_equal(again.w.numpy(), W)
    assert again.b.numpy()[0] == 2
