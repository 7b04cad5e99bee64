"""Stochastic dual coordinate ascent for linear models: SdcaOptimizer, SdcaOptimizerV2 and SdcaShrinkL1.

Source: TensorFlow's ops of the same names; Shalev-Shwartz and Zhang, "Proximal Stochastic Dual Coordinate Ascent"
(2012), and, for the adaptive order, Csiba, Qu and Richtarik, "Stochastic Dual Coordinate Ascent with Adaptive
Probabilities" (2015). Each example has a dual variable. A step chooses it so that the dual objective is the largest,
and changes the weights of the example's features accordingly. The order of examples is random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, float_attr, int_attr, op, string_attr
from headrace.opkit.shape_rules import nothing
from headrace.shapes import Shape, show

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_STEPS: Final = 10  # of Newton's method
_DECAY: Final = 0.1  # of the probability of an example, each time it is chosen

# *** losses ***


class _Loss(NamedTuple):
    """A loss of a prediction and a label.

    Attributes:
      label: checks and converts a label.
      dual: the new dual variable, of the label, the old one, the prediction, and the product of the example's weight,
        its norm and the number of partitions.
      primal: the loss of a label and a prediction.
      conjugate: the conjugate loss of a label and a dual variable.
      slope: the derivative of `primal` by the prediction.
      smoothness: the inverse of the Lipschitz constant of `slope`.
    """

    label: Callable[[float], float]
    dual: Callable[[float, float, float, float], float]
    primal: Callable[[float, float], float]
    conjugate: Callable[[float, float], float]
    slope: Callable[[float, float], float]
    smoothness: float


def _sign(label: float) -> float:
    if label not in (0.0, 1.0):
        raise InvalidArgumentError(
            f"Only labels of 0.0 or 1.0 are supported right now. Found example with label: {label}"
        )
    return 1.0 if label else -1.0


def _count(label: float) -> float:
    if label < 0:
        raise InvalidArgumentError(
            f"Only non-negative labels can be used with the Poisson log loss. Found example with label: {label}"
        )
    return label


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _logistic_dual(y: float, old: float, wx: float, norm: float) -> float:
    x = 0.0
    for _ in range(_STEPS):
        t = math.tanh(x)
        above = -2 * y * x - wx - norm * (0.5 * (1 + t) / y - old)
        x -= above / (-2 * y - norm * (1 - t * t) * 0.5 / y)
    return 0.5 * (1 + math.tanh(x)) / y


def _poisson_dual(y: float, old: float, wx: float, norm: float) -> float:
    x = 0.0
    for _ in range(_STEPS):
        e = _exp(x)
        x -= (x - wx - norm * (y - e - old)) / (1 + norm * e)
    return y - _exp(x)


def _clipped(y: float, dual: float) -> float:
    return 0.0 if y * dual < 0 else y if y * dual > 1 else dual


def _xlogx(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0


def _log_loss(y: float, wx: float) -> float:
    margin = y * wx
    return math.log1p(_exp(-abs(margin))) + max(-margin, 0.0)


def _within(y: float, dual: float, value: float) -> float:
    return value if 0 <= y * dual <= 1 else math.inf


def _smooth(y: float, wx: float) -> float:
    margin = y * wx
    return 0.0 if margin >= 1 else 0.5 - margin if margin <= 0 else 0.5 * (1 - margin) ** 2


_LOSSES: Final = {
    "logistic_loss": _Loss(
        _sign,
        _logistic_dual,
        _log_loss,
        lambda y, a: _xlogx(a * y) + _xlogx(1 - a * y),
        lambda y, wx: -y / (1 + _exp(y * wx)),
        4.0,
    ),
    "squared_loss": _Loss(
        lambda label: label,
        lambda y, old, wx, norm: old + (y - old - wx) / (1 + norm),
        lambda y, wx: 0.5 * (y - wx) ** 2,
        lambda y, a: a * (0.5 * a - y),
        lambda y, wx: wx - y,
        1.0,
    ),
    "hinge_loss": _Loss(
        _sign,
        lambda y, old, wx, norm: _clipped(y, old + _quotient(y - wx, norm)),
        lambda y, wx: max(0.0, 1 - y * wx),
        lambda y, a: _within(y, a, -a * y),
        lambda y, wx: -y if y * wx < 1 else 0.0,
        0.0,
    ),
    "smooth_hinge_loss": _Loss(
        _sign,
        lambda y, old, wx, norm: _clipped(y, old + (y - wx - old) / (norm + 1)),
        _smooth,
        lambda y, a: _within(y, a, -a * y + 0.5 * a * a),
        lambda y, wx: y * min(max(y * wx, 0.0) - 1, 0.0),
        1.0,
    ),
    "poisson_loss": _Loss(
        _count,
        _poisson_dual,
        lambda y, wx: _exp(wx) - wx * y,
        lambda y, a: math.inf if y < a else _xlogx(y - a) - (y - a),
        lambda y, wx: _exp(wx) - y,
        1.0,
    ),
}


def _quotient(x: float, y: float) -> float:
    """The quotient as C computes it."""
    with np.errstate(all="ignore"):
        return float(np.float64(x) / np.float64(y))


# *** examples ***


class _Features:
    """Weights of some features, their changes, and the features of each example.

    Args:
      weights: the weights, a vector.
      rows: for each example the places of its weights, and its values.
    """

    def __init__(self, weights: Any, rows: Sequence[tuple[Any, Any]]) -> None:
        self.weights, self.rows = weights.astype(np.float64), rows
        self.deltas = np.zeros(weights.shape, np.float32)


def _dense(values: Any, weights: Any, n: int, name: str) -> _Features:
    if values.ndim != 2 or len(values) != n:
        raise InvalidArgumentError(f"{name} must have a row for each of {n} examples, got shape {show(values.shape)}")
    if weights.size != values.shape[1]:
        raise InvalidArgumentError(f"{name} has {values.shape[1]} columns and {weights.size} weights")
    return _Features(weights.reshape(-1), [(slice(None), row.astype(np.float64)) for row in values])


def _sparse(examples: Any, features: Any, values: Any, ids: Any, weights: Any, n: int, name: str) -> _Features:
    """The sparse features of a group; `values` is None if all are 1."""
    if not examples.shape == features.shape == (examples.shape if values is None else values.shape):
        raise InvalidArgumentError(f"{name}: examples, features and values must be vectors of one length")
    if examples.ndim != 1 or ids.ndim != 1 or weights.size != ids.size:
        raise InvalidArgumentError(
            f"{name}: there must be a weight for each index, got shapes {show(ids.shape)} and {show(weights.shape)}"
        )
    if examples.size and not (examples.min() >= 0 and examples.max() < n):
        raise InvalidArgumentError(f"{name}: example indices must be in [0, {n})")
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, features, sorter=order)
    known = order[np.minimum(at, max(ids.size - 1, 0))] if ids.size else np.zeros(0, np.int64)
    if features.size and (not ids.size or (ids[known] != features).any()):
        raise InvalidArgumentError(f"{name}: a feature has no weight: each must be among sparse_indices")
    numbers = np.ones(features.size) if values is None else values.astype(np.float64)
    rows = []
    by_example = np.argsort(examples, kind="stable")
    bounds = np.searchsorted(examples[by_example], np.arange(n + 1))
    for i in range(n):
        part = by_example[bounds[i] : bounds[i + 1]]
        if np.unique(known[part]).size != part.size:
            raise InvalidArgumentError("Duplicate index in sparse vector.")
        rows.append((known[part], numbers[part]))
    return _Features(weights.reshape(-1), rows)


def _dot(groups: Sequence[_Features], i: int, shrinkage: float, partitions: int) -> float:
    """The prediction for an example, with changes of the weights that count so many times."""
    out = 0.0
    for g in groups:
        at, x = g.rows[i]
        w = g.weights[at]
        if partitions:
            w = w + g.deltas[at].astype(np.float64) * partitions
        out += float(x @ np.copysign(np.maximum(np.abs(w) - shrinkage, 0.0), w))
    return out


def _order(random: np.random.Generator, chances: Any) -> list[int]:
    """Examples in the order of a pass: one is chosen again only rarely."""
    n, out, counts, retries = len(chances), list[int](), np.zeros(len(chances), np.int64), 0
    total = chances.sum()
    while len(out) < n and retries < n and total > 0 and math.isfinite(total):
        i = int(random.choice(n, p=chances / total))
        if random.random() > _DECAY ** int(counts[i]):
            retries += 1
            continue
        out.append(i)
        counts[i] += 1
    unseen = [int(i) for i in np.argsort(-chances, kind="stable") if not counts[i]]
    return out + unseen[: n - len(out)]


def _kernel(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    ns, nv, nd = (attrs[f"num_{k}"] for k in ("sparse_features", "sparse_features_with_values", "dense_features"))
    loss, l2, partitions = _LOSSES[attrs["loss_type"]], float(attrs["l2"]), attrs["num_loss_partitions"]
    shrinkage = _quotient(attrs["l1"], l2)
    adaptive = attrs["adaptive"] if "adaptive" in attrs else attrs["adaptative"]
    if nv > ns:
        raise InvalidArgumentError(f"num_sparse_features_with_values is {nv}, more than num_sparse_features: {ns}")

    def kernel(*inputs: Any) -> Any:
        remaining = iter(inputs)
        examples, features, values, dense = ([next(remaining) for _ in range(k)] for k in (ns, ns, nv, nd))
        weights, labels = next(remaining), next(remaining)
        ids, sparse_weights, dense_weights = ([next(remaining) for _ in range(k)] for k in (ns, ns, nd))
        state = next(remaining)
        n = weights.size
        if weights.ndim != 1 or labels.shape != weights.shape:
            raise InvalidArgumentError(
                f"example_weights and example_labels must be vectors of one length, got shapes {show(weights.shape)} "
                f"and {show(labels.shape)}"
            )
        if state.shape != (n, 4):
            raise InvalidArgumentError(f"Expected shape {show((n, 4))} for example_state_data, got {show(state.shape)}")
        groups = [
            _sparse(examples[k], features[k], values[k] if k < nv else None, ids[k], sparse_weights[k], n, f"group {k}")
            for k in range(ns)
        ]
        groups += [_dense(dense[k], dense_weights[k], n, f"dense_features[{k}]") for k in range(nd)]
        norms = np.array([sum(float(g.rows[i][1] @ g.rows[i][1]) for g in groups) for i in range(n)])
        state = state.copy()
        random = np.random.default_rng()
        if adaptive:
            ys = [loss.label(float(y)) for y in labels]
            kappa = [state[i, 0] + loss.slope(ys[i], _dot(groups, i, shrinkage, partitions)) for i in range(n)]
            order = _order(random, weights * np.sqrt(norms + l2 * loss.smoothness) * np.abs(kappa))
        else:
            order = random.permutation(n).tolist()
        for i in order:
            y, weight, old = loss.label(float(labels[i])), float(weights[i]), float(state[i, 0])
            wx, before = _dot(groups, i, shrinkage, partitions), _dot(groups, i, shrinkage, 0)
            new = loss.dual(y, old, wx, partitions * _quotient(norms[i], l2) * weight)
            step = _quotient((new - old) * weight, l2)
            for g in groups:
                at, x = g.rows[i]
                g.deltas[at] += (x * step).astype(np.float32)
            state[i] = new, loss.primal(y, before) * weight, loss.conjugate(y, old) * weight, weight
        changed = [g.deltas for g in groups]
        shaped = [d.reshape(w.shape) for d, w in zip(changed, (*sparse_weights, *dense_weights), strict=True)]
        return (state, *shaped) if shaped else state

    return kernel


def _shape(c: Inference) -> Sequence[Shape]:
    ns, nd = c.attrs["num_sparse_features"], c.attrs["num_dense_features"]
    weights = c.shapes[len(c.shapes) - 1 - ns - nd : len(c.shapes) - 1]
    return [c.shapes[-1], *weights]


for _type, _adaptive in (("SdcaOptimizer", "adaptative"), ("SdcaOptimizerV2", "adaptive")):
    op(
        _type,
        "sparse_example_indices: num_sparse_features * int64, sparse_feature_indices: num_sparse_features * int64, "
        "sparse_feature_values: num_sparse_features_with_values * float32, "
        "dense_features: num_dense_features * float32, example_weights: float32, example_labels: float32, "
        "sparse_indices: num_sparse_features * int64, sparse_weights: num_sparse_features * float32, "
        "dense_weights: num_dense_features * float32, example_state_data: float32",
        "out_example_state_data: float32, out_delta_sparse_weights: num_sparse_features * float32, "
        "out_delta_dense_weights: num_dense_features * float32",
        {
            "loss_type": string_attr(allowed=tuple(_LOSSES)),
            _adaptive: bool_attr(False),
            "num_sparse_features": int_attr(minimum=0),
            "num_sparse_features_with_values": int_attr(minimum=0),
            "num_dense_features": int_attr(minimum=0),
            "l1": float_attr(),
            "l2": float_attr(),
            "num_loss_partitions": int_attr(minimum=1),
            "num_inner_iterations": int_attr(minimum=1),
        },
        shape=_shape,
        stateful=_kernel,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(effect="random", writes=True),
        doc="A pass over examples of a linear model: new dual variables and losses, and changes of the weights.",
        differs="A feature without a weight is an error; TensorFlow reads memory of others.",
    )


# *** SdcaShrinkL1 ***


def _shrink(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., None]:
    shrinkage = np.float32(_quotient(attrs["l1"], attrs["l2"]))

    def kernel(*refs: Any) -> None:
        for ref in refs:
            ref.variable.update(lambda w: np.sign(w) * np.maximum(np.abs(w) - shrinkage, np.float32(0)))

    return kernel


op(
    "SdcaShrinkL1",
    "weights: num_features * Ref(float32)",
    "",
    {"num_features": int_attr(minimum=0), "l1": float_attr(), "l2": float_attr()},
    shape=nothing,
    stateful=_shrink,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource", writes=True),
    doc="Moves weights towards zero by l1 / l2, at most to zero.",
)
