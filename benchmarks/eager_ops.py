"""Time of an op outside of graphs, compared with other systems."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.measure import Result, in_turns

Calls = dict[str, Callable[[], object]]

MATRIX = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(4, 4)
RECORDED = 100  # ops on one tape
AIM = 2  # microseconds of an op of scalars or small arrays, with nothing recorded
AIM_ON_A_TAPE = 5
LAYERS = 3


def eager_ops(repeats: int = 15, others: Sequence[str] = ("tensorflow", "torch", "jax")) -> list[Result]:
    """Microseconds of single ops, and of the gradient of a small network by a tape.

    The aim for an op of scalars or small arrays is `AIM`, and `AIM_ON_A_TAPE`. The ops that other systems spell in the
    same way are compared with theirs.

    Args:
      repeats: the number of rounds.
      others: the systems to compare with, where they are installed.
    """
    systems = {name: OTHERS[name]() for name in others if importlib.util.find_spec(name)}
    mine = _headrace()
    results = []
    for name, call in mine.items():
        theirs = {system: calls[name] for system, calls in systems.items() if name in calls}
        note = "" if name == NETWORK else f"aim {AIM}"
        results.append(_result(f"eager {name}", call, theirs, repeats, note=note))
        if name != NETWORK:
            note = f"aim {AIM_ON_A_TAPE}"
            results.append(_result("the same on a tape", _on_a_tape(call), {}, repeats, RECORDED, note))
    return results


def _result(
    name: str,
    call: Callable[[], object],
    others: Mapping[str, Callable[[], object]],
    repeats: int,
    ops: int = 1,
    note: str = "",
) -> Result:
    values, *theirs = in_turns([call, *others.values()], repeats)
    micros = [[1e6 * s / ops for s in seconds] for seconds in (values, *theirs)]
    return Result(name, "µs", micros[0], note, dict(zip(others, micros[1:], strict=True)))


def _on_a_tape(call: Callable[[], object]) -> Callable[[], None]:
    def calls() -> None:
        with hr.GradientTape() as tape:
            tape.watch(WATCHED)
            for _ in range(RECORDED):
                call()

    return calls


def _ops(add: Any, matmul: Any, tanh: Any, x: Any, y: Any, m: Any) -> Calls:
    """The measured ops on tensors of one system."""
    return {
        "add(x, y)": lambda: add(x, y),
        "x + y": lambda: x + y,
        "x * 2.0": lambda: x * 2.0,
        "x < y": lambda: x < y,
        "tanh(x)": lambda: tanh(x),
        "matmul of 4x4": lambda: matmul(m, m),
        "m[1] of 4x4": lambda: m[1],
    }


NETWORK = "gradient of a network of 3 layers, by a tape"
WATCHED = [hr.constant(2.0), hr.constant(3.0), hr.constant(MATRIX)]


def _headrace() -> Calls:
    weights = [hr.Variable(MATRIX) for _ in range(LAYERS)]

    def network() -> Any:
        with hr.GradientTape() as tape:
            h = WATCHED[2]
            for w in weights:
                h = hr.tanh(hr.matmul(h, w))
            loss = hr.reduce_sum(h)
        return tape.gradient(loss, weights)

    return {**_ops(hr.add, hr.matmul, hr.tanh, *WATCHED), **_spellings(*WATCHED), NETWORK: network}


def _spellings(x: Any, y: Any, m: Any) -> Calls:
    """Other spellings of ops of scalars and of a matrix of 4x4."""
    v = hr.constant(MATRIX[0])
    variable = hr.Variable(2.0)
    return {
        "2 * x": lambda: 2 * x,
        "x - 1": lambda: x - 1,
        "x ** 2": lambda: x**2,
        "x / 3": lambda: x / 3,
        "x < 1.0": lambda: x < 1.0,
        "x == 2.0": lambda: x == 2.0,
        "m * 2.0": lambda: m * 2.0,
        "m > 0": lambda: m > 0,
        "m @ m": lambda: m @ m,
        "v[None] @ m": lambda: v[None] @ m,
        "matvec(m, v)": lambda: hr.matvec(m, v),
        "v[0]": lambda: v[0],
        "m[-1]": lambda: m[-1],
        "m[1, 2]": lambda: m[1, 2],
        "m[1:3]": lambda: m[1:3],
        "m[..., 0]": lambda: m[..., 0],
        "m[:, 1]": lambda: m[:, 1],
        "reduce_sum(m)": lambda: hr.reduce_sum(m),
        "reduce_sum(m, 0)": lambda: hr.reduce_sum(m, 0),
        "m.sum()": lambda: m.sum(),
        "reshape(m, (2, 8))": lambda: hr.reshape(m, (2, 8)),
        "transpose(m)": lambda: hr.transpose(m),
        "concat([m, m], 0)": lambda: hr.concat([m, m], 0),
        "stack([x, y])": lambda: hr.stack([x, y]),
        "cast(x, int32)": lambda: hr.cast(x, hr.int32),
        "reading a variable": lambda: variable.value(),
        "variable * 2.0": lambda: variable * 2.0,
        "assign_add(0.0) of a variable": lambda: variable.assign_add(0.0),
    }


def _tensorflow() -> Calls:
    import tensorflow as tf
    from tensorflow.python.eager import context

    def eagerly(call: Callable[[], object]) -> Callable[[], object]:
        if tf.executing_eagerly():
            return call

        def entered() -> object:  # other benchmarks have switched eager execution off
            with context.eager_mode():
                return call()

        return entered

    with context.eager_mode():
        x, y, m = tf.constant(2.0), tf.constant(3.0), tf.constant(MATRIX)
        weights = [tf.Variable(MATRIX) for _ in range(LAYERS)]

    def network() -> Any:
        with tf.GradientTape() as tape:
            h = m
            for w in weights:
                h = tf.tanh(tf.matmul(h, w))
            loss = tf.reduce_sum(h)
        return tape.gradient(loss, weights)

    found = {**_ops(tf.add, tf.matmul, tf.tanh, x, y, m), NETWORK: network}
    return {name: eagerly(call) for name, call in found.items()}


def _torch() -> Calls:
    import torch

    x, y, m = torch.tensor(2.0), torch.tensor(3.0), torch.from_numpy(MATRIX)
    weights = [m.clone().requires_grad_() for _ in range(LAYERS)]

    def network() -> Any:
        h = m
        for w in weights:
            h = torch.tanh(h @ w)
        return torch.autograd.grad(h.sum(), weights)

    return {**_ops(torch.add, torch.matmul, torch.tanh, x, y, m), NETWORK: network}


def _jax() -> Calls:
    import jax.numpy as jnp

    return _ops(jnp.add, jnp.matmul, jnp.tanh, jnp.float32(2.0), jnp.float32(3.0), jnp.asarray(MATRIX))


OTHERS: Mapping[str, Callable[[], Calls]] = {"tensorflow": _tensorflow, "torch": _torch, "jax": _jax}
