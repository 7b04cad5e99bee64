"""`optimize_loss`: the operation of a training step, from a loss, an optimizer and their settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headrace import dtypes
from headrace.api import arrays, initializers, linalg, math, random, scopes, tensors
from headrace.ir.indexed_slices import IndexedSlices
from headrace.v1 import global_step as steps
from headrace.v1 import optimizers, summary
from headrace.v1.graph import GraphKeys, get_collection, in_default_graph
from headrace.v1.variable_scopes import variable_scope
from headrace.v1.variable_store import get_variable
from headrace.v1.variables import trainable_variables

OPTIMIZER_CLS_NAMES: Final[dict[str, Callable[..., Any]]] = {
    "Adagrad": optimizers.AdagradOptimizer,
    "Adam": optimizers.AdamOptimizer,
    "Ftrl": optimizers.FtrlOptimizer,
    "Momentum": lambda learning_rate: optimizers.MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": optimizers.RMSPropOptimizer,
    "SGD": optimizers.GradientDescentOptimizer,
}

OPTIMIZER_SUMMARIES: Final = (
    "learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm",
)  # fmt: skip


@in_default_graph
def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: Any = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Any:
    """Returns a tensor whose value is the loss, after a step of an optimizer.

    Args:
      loss: a scalar.
      global_step: the global step, or None for that of the graph.
      learning_rate: a number of at least 0, a scalar, or None for the optimizer's. A number becomes the variable
        "learning_rate".
      optimizer: name of an optimizer ("SGD", "Adam", "Adagrad", "Ftrl", "Momentum", "RMSProp"), a class or function of
        the learning rate, or an optimizer.
      gradient_noise_scale: factor of normal numbers that are added to the gradients; None: no noise.
      gradient_multipliers: factors of gradients, by variable or its name.
      clip_gradients: bound of the norm of all gradients together, or a function from pairs of gradient and variable to
        such pairs; None: no bound.
      learning_rate_decay_fn: a function from the learning rate and the global step to the learning rate of the step.
      update_ops: operations that run before the step; None: those of GraphKeys.UPDATE_OPS.
      variables: the variables to train; None: all trainable ones.
      name: name of the variable scope; None: "OptimizeLoss".
      summaries: summaries to make, of OPTIMIZER_SUMMARIES; None: learning rate, loss and norm of all gradients.
      colocate_gradients_with_ops: see `tf.gradients`.
      increment_global_step: whether the step adds 1 to the global step.

    Raises:
      ValueError: an argument has a value that is not allowed, or no variable has a gradient.

    Source: TensorFlow's `tf.contrib.layers.optimize_loss`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     w = tf.get_variable("w", initializer=3.0)
      ...     step = tf.train.create_global_step()
      ...     train = tf.contrib.layers.optimize_loss(w * w, step, 0.25, "SGD", clip_gradients=4.0)
      ...     sess.run(tf.global_variables_initializer())
      ...     [float(sess.run(train)) for _ in range(3)], int(sess.run(step))
      ([9.0, 4.0, 1.0], 3)
    """
    loss = scopes.builder(loss).tensor(loss, None, "loss")
    if loss.shape is not None and loss.shape:
        raise ValueError(f"loss must be a scalar, got {loss!r}")
    global_step = steps.get_global_step() if global_step is None else global_step
    if global_step is not None:
        steps.assert_global_step(global_step)
    summaries = OPTIMIZER_SUMMARIES[:2] + OPTIMIZER_SUMMARIES[-1:] if summaries is None else summaries
    for wanted in summaries:
        if wanted not in OPTIMIZER_SUMMARIES:
            raise ValueError(f"Summaries should be one of [{', '.join(OPTIMIZER_SUMMARIES)}], you provided {wanted}.")
    with variable_scope(name, "OptimizeLoss", [loss, global_step]):
        before = get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else list(update_ops)
        if before:
            with scopes.control_dependencies(before):
                loss = tensors.identity(loss)
        rate = _rate(learning_rate, learning_rate_decay_fn, global_step, "learning_rate" in summaries)
        opt = _optimizer(optimizer, rate)
        pairs = opt.compute_gradients(
            loss, trainable_variables() if variables is None else variables,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )  # fmt: skip
        pairs = [(g, v) for g, v in pairs if g is not None]
        if gradient_noise_scale is not None:
            pairs = [(_changed(g, lambda x: x + gradient_noise_scale * _noise(x)), v) for g, v in pairs]
        for key, factor in (gradient_multipliers or {}).items():
            pairs = [
                (_changed(g, lambda x, k=factor: x * math.cast(k, x.dtype.base)), v) if key in (v, v.name) else (g, v)
                for g, v in pairs
            ]
        norm = linalg.global_norm([g for g, _ in pairs]) if pairs else None
        if "global_gradient_norm" in summaries and norm is not None:
            summary.scalar("global_norm/gradient_norm", norm)
        pairs = _clipped(pairs, clip_gradients, norm)
        if "loss" in summaries:
            summary.scalar("loss", loss)
        for g, v in pairs:
            values = g.values if isinstance(g, IndexedSlices) else g
            if "gradients" in summaries:
                summary.histogram(f"gradients/{v.op.name}", values)
            if "gradient_norm" in summaries:
                summary.scalar(f"gradient_norm/{v.op.name}", linalg.global_norm([values]))
        step = global_step if increment_global_step else None
        updates = opt.apply_gradients(pairs, global_step=step, name="train")
        with scopes.control_dependencies([updates]):
            return tensors.identity(loss)


def _rate(given: Any, decay: Callable[[Any, Any], Any] | None, global_step: Any, is_summarized: bool) -> Any:
    """Returns the learning rate of a step, or None."""
    if given is None:
        return None
    if isinstance(given, (int, float)):
        if given < 0.0:
            raise ValueError(f"Invalid learning_rate {given}.")
        given = get_variable("learning_rate", [], dtypes.float32, initializers.Constant(float(given)), trainable=False)
    elif not tensors.is_tensor(given) and not hasattr(given, "read_value"):
        raise ValueError(f"Learning rate should be 0d Tensor or float. Got {given!r} of type {type(given)}")
    if decay is not None:
        if global_step is None:
            raise ValueError("global_step is required for learning_rate_decay_fn.")
        given = decay(given, global_step)
    if is_summarized:
        summary.scalar("learning_rate", given)
    return given


def _optimizer(given: Any, rate: Any) -> Any:
    if isinstance(given, str):
        if given not in OPTIMIZER_CLS_NAMES:
            raise ValueError(
                f"Optimizer name should be one of [{', '.join(OPTIMIZER_CLS_NAMES)}], you provided {given}."
            )
        given = OPTIMIZER_CLS_NAMES[given]
        if rate is None:
            raise ValueError("Learning rate must be specified if optimizer is a name")
    if inspect.isclass(given) and rate is None:
        raise ValueError("Learning rate must be specified if optimizer is a class")
    made = given(rate) if callable(given) else given
    if not isinstance(made, optimizers.Optimizer):
        raise ValueError(f"Unrecognized optimizer: function should return subclass of Optimizer. Got {made!r}.")
    return made


def _changed(gradient: Any, change: Callable[..., Any]) -> Any:
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)


def _noise(x: Any) -> Any:
    return random.truncated_normal(arrays.shape(x), dtype=x.dtype.base)


def _clipped(pairs: list[tuple[Any, Any]], clip: Any, norm: Any) -> list[tuple[Any, Any]]:
    if clip is None or not pairs:
        return pairs
    if callable(clip):
        return list(clip(pairs))
    if not isinstance(clip, (int, float)):
        raise ValueError(f"Unknown type {type(clip)} for clip_gradients")
    found, _ = linalg.clip_by_global_norm([g for g, _ in pairs], clip, use_norm=norm)
    return list(zip(found, (v for _, v in pairs), strict=True))
