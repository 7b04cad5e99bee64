"""`RNN`, `GRU` and `LSTM` as loops over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.api import arrays, gathering, linalg, math, tensors
from headrace.api.nn import activations
from headrace.api.tensor_array import TensorArray
from headrace.api.while_loop import while_loop
from headrace.dtypes import int32
from headrace.errors import UnimplementedError
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator

Step = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]


def _activation(call: Call, index: int, default: str) -> Callable[[Any], Any]:
    names = call.get("activations") or []
    name = names[index] if index < len(names) else default
    alphas, betas = call.get("activation_alpha") or [], call.get("activation_beta") or []
    alpha = alphas[index] if index < len(alphas) else None
    beta = betas[index] if index < len(betas) else None
    known: dict[str, Callable[[Any], Any]] = {
        "relu": activations.relu,
        "tanh": math.tanh,
        "sigmoid": math.sigmoid,
        "softsign": activations.softsign,
        "softplus": activations.softplus,
        "affine": lambda x: x * (alpha if alpha is not None else 1.0) + (beta or 0.0),
        "leakyrelu": lambda x: activations.leaky_relu(x, 0.01 if alpha is None else alpha),
        "hardsigmoid": lambda x: math.clip_by_value(
            x * (0.2 if alpha is None else alpha) + (0.5 if beta is None else beta), 0.0, 1.0
        ),
        "scaledtanh": lambda x: math.tanh(x * (1.0 if beta is None else beta)) * (1.0 if alpha is None else alpha),
    }
    chosen = known.get(name.lower())
    if chosen is None:
        raise UnimplementedError(f"the {call.node} has the activation {name!r}, which is not supported")
    clip = call.get("clip")
    if clip is None:
        return chosen
    return lambda x: chosen(math.clip_by_value(x, -clip, clip))


def _run(
    call: Call,
    x: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor | None],
    step_of: Callable[[int], Step],
    directions: int,
) -> Any:
    """Runs the steps of all directions over time; returns Y and the last states."""
    if call.get("layout"):
        x = arrays.transpose(x, (1, 0, 2))
        states = [None if s is None else arrays.transpose(s, (1, 0, 2)) for s in states]
    dims = arrays.shape(x)
    time, batch = dims[0], dims[1]
    hidden = call["hidden_size"]
    outputs, finals = [], []
    for d in range(directions):
        backward = call["direction"] == "reverse" or d == 1
        first = [s[d] if s is not None else arrays.zeros(arrays.stack([batch, hidden]), x.dtype.base) for s in states]
        step = step_of(d)

        def at(i: Any, backward: bool = backward) -> Any:
            return time - 1 - i if backward else i

        def body(i: Any, state: Any, ys: Any, step: Step = step, at: Callable[[Any], Any] = at) -> Any:
            now = step(gathering.gather(x, at(i)), state)
            shown = now[0]
            if lengths is not None:
                alive = arrays.expand_dims(math.cast(lengths, int32) > at(i), 1)
                now = [gathering.where(alive, a, b) for a, b in zip(now, state, strict=True)]
                shown = gathering.where(alive, shown, arrays.zeros_like(shown))
            return i + 1, list(now), ys.write(at(i), shown)

        shapes = ((), [(s.shape[0] if s.shape else None, hidden) for s in first], None)
        ys = TensorArray(x.dtype.base, size=time, infer_shape=False)
        _, last, ys = while_loop(lambda i, s, y: i < time, body, (tensors.constant(0), first, ys), shapes)
        outputs.append(ys.stack())
        finals.append(last)
    y = arrays.stack(outputs, 1)
    ends = [arrays.stack(list(column), 0) for column in zip(*finals, strict=True)]
    if call.get("layout"):
        y = arrays.transpose(y, (2, 0, 1, 3))
        ends = [arrays.transpose(e, (1, 0, 2)) for e in ends]
    return (y, *ends)


def _times(x: Tensor, w: Tensor) -> Tensor:
    return linalg.matmul(x, w, False, True)


@operator("RNN")
def rnn(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> Any:  # fmt: skip
    """Runs a simple recurrent network."""
    n = call["hidden_size"]

    def step_of(d: int) -> Step:
        f = _activation(call, d, "Tanh")

        def step(x: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
            total = _times(x, w[d]) + _times(state[0], r[d])
            return [f(total if b is None else total + b[d][:n] + b[d][n:])]

        return step

    return _run(call, x, lengths, [h], step_of, int(w.shape[0]))


@operator("GRU")
def gru(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> Any:  # fmt: skip
    """Runs gated recurrent units."""
    n = call["hidden_size"]

    def step_of(d: int) -> Step:
        f, g = _activation(call, 2 * d, "Sigmoid"), _activation(call, 2 * d + 1, "Tanh")
        wb = b[d][: 3 * n] if b is not None else arrays.zeros((3 * n,), x.dtype.base)
        rb = b[d][3 * n :] if b is not None else arrays.zeros((3 * n,), x.dtype.base)

        def step(x: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
            before = state[0]
            own = _times(x, w[d]) + wb
            gates = f(own[:, : 2 * n] + _times(before, r[d][: 2 * n]) + rb[: 2 * n])
            z, reset = gates[:, :n], gates[:, n:]
            if call.get("linear_before_reset"):
                fresh = g(own[:, 2 * n :] + reset * (_times(before, r[d][2 * n :]) + rb[2 * n :]))
            else:
                fresh = g(own[:, 2 * n :] + _times(reset * before, r[d][2 * n :]) + rb[2 * n :])
            return [(1 - z) * fresh + z * before]

        return step

    return _run(call, x, lengths, [h], step_of, int(w.shape[0]))


@operator("LSTM")
def lstm(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None, c: Tensor | None = None, p: Tensor | None = None,
) -> Any:  # fmt: skip
    """Runs long short-term memories, perhaps with peepholes."""
    n = call["hidden_size"]

    def step_of(d: int) -> Step:
        f, g, last = [_activation(call, 3 * d + k, name) for k, name in enumerate(("Sigmoid", "Tanh", "Tanh"))]

        def step(x: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
            hidden, cell = state
            total = _times(x, w[d]) + _times(hidden, r[d])
            if b is not None:
                total = total + b[d][: 4 * n] + b[d][4 * n :]
            i, o, forget, fresh = arrays.split(total, 4, 1)
            if p is not None:
                i, forget = i + p[d][:n] * cell, forget + p[d][2 * n :] * cell
            keep = 1 - f(i) if call.get("input_forget") else f(forget)
            now = keep * cell + f(i) * g(fresh)
            if p is not None:
                o = o + p[d][n : 2 * n] * now
            return [f(o) * last(now), now]

        return step

    return _run(call, x, lengths, [h, c], step_of, int(w.shape[0]))
