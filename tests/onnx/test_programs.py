"""Random programs of nested loops and conditionals, compared with ONNX's reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import headrace as hr
from tests.onnx.programs import Programs

pytestmark = pytest.mark.matrix

SEEDS = 60


def test_random_programs_compute_the_reference_values() -> None:
    wrong = []
    for seed in range(SEEDS):
        model = Programs(seed).model()
        random = np.random.default_rng(seed)
        x, y = random.normal(size=(2, 3)).astype(np.float32)
        expected = ReferenceEvaluator(model).run(None, {"x": x, "y": y})
        loaded = hr.onnx.load(model)
        for mode in ("eager", "jit") if seed % 4 == 0 else ("eager",):
            f = hr.jit(loaded) if mode == "jit" else loaded
            found = [np.asarray(v.numpy()) for v in f(x, y)]
            if not all(
                a.shape == b.shape and np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(expected, found, strict=True)
            ):
                wrong.append((seed, mode))
    assert wrong == []


def test_gradients_of_random_programs_are_those_of_differences() -> None:
    """Seeds whose two central differences disagree take different branches and do not count."""
    wrong = []
    for seed in range(0, SEEDS, 6):
        loaded = hr.onnx.load(Programs(seed).model())
        random = np.random.default_rng(seed)
        x, y, d = random.normal(size=(3, 3)).astype(np.float32)

        def total(x: object, loaded: hr.onnx.OnnxModel = loaded, y: object = y) -> hr.Tensor:
            vector, matrix = loaded(x, y)
            return hr.reduce_sum(vector) + hr.reduce_sum(matrix)

        slope = float(np.dot(hr.grad(total)(x).numpy(), d))
        steps = [1e-2, 5e-3]
        differences = [float((total(x + h * d) - total(x - h * d)).numpy()) / (2 * h) for h in steps]
        is_smooth = abs(differences[0] - differences[1]) < 1e-2 * (1 + abs(slope))
        if is_smooth and abs(slope - differences[1]) > 2e-2 * (1 + abs(slope)):
            wrong.append((seed, slope, differences))
    assert wrong == []
