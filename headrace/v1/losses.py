"""TensorFlow 1's `tf.losses`: errors of predictions as one number.

Each loss is computed element by element, multiplied by weights, and reduced to one number by a `Reduction`. It is added
to the collection GraphKeys.LOSSES, whose sum `get_total_loss` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import dtypes, public_names, shapes
from headrace.api import arrays, debugging, gathering, math, nn, reductions, scopes, tensors
from headrace.api.cond import cond
from headrace.errors import ShapeError
from headrace.v1.graph import GraphKeys, get_collection, get_default_graph, in_default_graph


class Reduction:
    """Methods of reducing the weighted losses of elements to a scalar.

    NONE: no reduction. SUM: the sum. SUM_OVER_BATCH_SIZE: the sum divided by the number of elements. MEAN: the sum
    divided by the sum of the weights. SUM_BY_NONZERO_WEIGHTS (also SUM_OVER_NONZERO_WEIGHTS): the sum divided by the
    number of elements whose weight is not 0.

    Source: TensorFlow's `tf.losses.Reduction`.
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Returns all reductions."""
        by_weights = (cls.SUM_OVER_NONZERO_WEIGHTS, cls.SUM_BY_NONZERO_WEIGHTS)
        return cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, *by_weights

    @classmethod
    def validate(cls, key: Any) -> None:
        """Checks that `key` is a reduction.

        Args:
          key: the value to check.

        Raises:
          ValueError: `key` is not a reduction.
        """
        if key not in cls.all():
            raise ValueError(f"{key!r} is no Reduction; there are {', '.join(dict.fromkeys(cls.all()))}")


_BY_WEIGHTS = Reduction.SUM_BY_NONZERO_WEIGHTS


# *** collections ***


def add_loss(loss: Any, loss_collection: Any = GraphKeys.LOSSES) -> None:
    """Adds a loss to a collection.

    Args:
      loss: the loss.
      loss_collection: the collection. None: the loss is not added.

    Source: TensorFlow's `tf.losses.add_loss`.
    """
    if loss_collection:
        get_default_graph().add_to_collection(loss_collection, loss)


def get_losses(scope: str | None = None, loss_collection: Any = GraphKeys.LOSSES) -> list[Any]:
    """Returns the losses of a collection.

    Args:
      scope: a regular expression. Only losses whose names match it are returned. None: all losses.
      loss_collection: the collection.

    Source: TensorFlow's `tf.losses.get_losses`.
    """
    return get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """Returns the losses of regularizers.

    Args:
      scope: a regular expression. Only losses whose names match it are returned. None: all losses.

    Source: TensorFlow's `tf.losses.get_regularization_losses`.
    """
    return get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@in_default_graph
def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Any:
    """Returns the sum of the losses of regularizers, a scalar; 0 if there are none.

    Args:
      scope: see `get_regularization_losses`.
      name: name of the operation.

    Source: TensorFlow's `tf.losses.get_regularization_loss`.
    """
    found = get_regularization_losses(scope)
    return math.add_n(found, name=name) if found else scopes.builder().const(0.0)


@in_default_graph
def get_total_loss(add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None) -> Any:
    """Returns the sum of all losses of the graph, a scalar.

    Args:
      add_regularization_losses: whether the losses of regularizers are included.
      name: name of the operation.
      scope: see `get_losses`.

    Raises:
      ValueError: there are no losses.

    Source: TensorFlow's `tf.losses.get_total_loss`.
    """
    found = get_losses(scope)
    if add_regularization_losses:
        found += get_regularization_losses(scope)
    if not found:
        raise ValueError("there are no losses to add: none has been made in this graph, or none matches the scope")
    return math.add_n(found, name=name)


# *** weights ***


def check_weights(weights: Any, values: Any) -> None:
    """Checks that weights are a scalar, or can be broadcast to `values`.

    The weights must have the rank of `values`, and each dimension must be equal or 1.

    Args:
      weights: the weights, a tensor.
      values: the values, a tensor.

    Raises:
      ShapeError (a ValueError): the static shapes do not fit.
    """
    if weights.shape is None or values.shape is None or len(weights.shape) == 0:
        return
    fits = len(weights.shape) == len(values.shape) and all(
        w in (1, None) or v is None or w == v for w, v in zip(weights.shape, values.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"weights of shape {shapes.show(weights.shape)} do not fit values of shape {shapes.show(values.shape)}: "
            "give one number, or as many axes, each of the same size or 1"
        )


def weighted(values: Any, weights: Any) -> Any:
    """Multiplies `values` by `weights`, with the broadcast of `check_weights`.

    Dimensions that are not known statically are checked in the run, which fails with InvalidArgumentError.

    Args:
      values: the values, a tensor.
      weights: the weights, a tensor.
    """
    check_weights(weights, values)
    known = shapes.is_full(values.shape) and shapes.is_full(weights.shape)
    if known or weights.shape == ():
        return math.multiply(values, weights)
    of_values, of_weights = arrays.shape(values), arrays.shape(weights)

    def fits() -> Any:
        # weights have the rank of the values or rank 0, so the compared vectors have equal lengths
        return reductions.reduce_all(math.logical_or(math.equal(of_weights, 1), math.equal(of_weights, of_values)))

    same_rank = _rank_exceeds(values, weights, 0)
    fitting = cond(math.equal(arrays.rank(weights), 0), lambda: True, lambda: cond(same_rank, fits, lambda: False))
    message = (
        "weights do not fit the values that they are for: give one number, or as many axes, each of the same size or 1"
    )
    check = debugging.Assert(fitting, [message, "weights.shape=", of_weights, "values.shape=", of_values])
    with scopes.control_dependencies([check] if check is not None else []):
        made = math.multiply(values, weights)
    tensors.narrow(made, values.shape)
    return made


def spread(weights: Any, values: Any) -> Any:
    """Broadcasts `weights` to the shape of `values`.

    Args:
      weights: the weights, a tensor.
      values: the values, a tensor.
    """
    return weighted(arrays.ones_like(values), weights)


def _rank_exceeds(x: Any, y: Any, number: int) -> Any:
    """Whether the rank of `x` is that of `y` plus `number`.

    The result is a bool scalar tensor if a rank is not known statically.
    """
    if x.shape is not None and y.shape is not None:
        return len(x.shape) - len(y.shape) == number
    return math.equal(arrays.rank(x) - arrays.rank(y), number)


def _squeezed_if(condition: Any, x: Any) -> Any:
    """Returns `x` without its last dimension if `condition` holds and the dimension may be 1."""
    if x.shape is not None and (not x.shape or x.shape[-1] not in (1, None)):
        return x
    return cond(condition, lambda: arrays.squeeze(x, [-1]), lambda: x)


def without_last_axis(labels: Any, predictions: Any, weights: Any, more: int = 0) -> tuple[Any, Any, Any]:
    """Removes a last dimension of size 1 that the other tensors do not have.

    Ranks that are not known statically are compared in the run.

    Args:
      labels: the labels, or None.
      predictions: the predictions.
      weights: the weights, or None.
      more: the difference that remains between the ranks of predictions and labels. With 0, weights whose rank is one
        less than that of the predictions get a last dimension of size 1.

    Returns:
      The three tensors.
    """
    if labels is not None:
        excess, lack = _rank_exceeds(predictions, labels, more + 1), _rank_exceeds(predictions, labels, more - 1)
        predictions, labels = _squeezed_if(excess, predictions), _squeezed_if(lack, labels)
    if weights is not None and weights.shape != ():
        like, given = labels if more else predictions, weights
        weights = _squeezed_if(_rank_exceeds(given, like, 1), given)
        if not more and like.shape != ():
            short = _rank_exceeds(like, given, 1)
            if given.shape is None:  # one number stays one
                short = math.logical_and(short, math.not_equal(arrays.rank(given), 0))
            squeezed = weights
            weights = cond(short, lambda: arrays.expand_dims(given, -1), lambda: squeezed)
    return labels, predictions, weights


def _present(values: Any, weights: Any, for_each: bool = False) -> Any:
    """Returns the number of `values` with a nonzero weight, in all or for each example."""
    counted = math.cast(math.not_equal(weights, 0.0), dtypes.float32)
    whole = spread(counted, values)
    if not for_each:
        return reductions.reduce_sum(whole, name="num_present")
    return reductions.reduce_sum(whole, _all_but_first(values), True, name="num_present")


def _all_but_first(x: Any) -> Any:
    """Returns the axes of `x` except the first.

    The result is a list, or a tensor if the rank is not known statically.
    """
    return reductions.range(1, arrays.rank(x)) if x.shape is None else list(range(1, len(x.shape)))


@in_default_graph
def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Multiplies losses by weights, and reduces them to a scalar.

    Args:
      losses: a numeric tensor.
      weights: a scalar, or a tensor with the rank of `losses`, whose dimensions are equal or 1.
      scope: name of the scope of the operations. None: "weighted_loss".
      loss_collection: collection to which the loss is added. None: it is not added.
      reduction: see `Reduction`.

    Returns:
      The loss: a scalar, or with `Reduction.NONE` a tensor of the shape of `losses`.

    Raises:
      ValueError: the weights do not fit, or `reduction` is not a reduction.

    Source: TensorFlow's `tf.losses.compute_weighted_loss`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.losses.compute_weighted_loss([1.0, 2.0, 6.0], [1.0, 1.0, 0.0]))
      np.float32(1.5)
    """
    Reduction.validate(reduction)
    with scopes.name_scope(scope, "weighted_loss", [losses, weights]):
        b = scopes.builder(losses, weights)
        given = b.tensor(losses, None, "losses")
        values = math.cast(given, dtypes.float32)
        factors = math.cast(b.tensor(weights, None, "weights"), dtypes.float32)
        loss = weighted(values, factors)
        if reduction != Reduction.NONE:
            total = reductions.reduce_sum(loss)
            if reduction == Reduction.MEAN:
                total = math.divide_no_nan(total, reductions.reduce_sum(spread(factors, values)), name="value")
            elif reduction == _BY_WEIGHTS:
                total = math.divide_no_nan(total, _present(values, factors), name="value")
            elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
                number = math.cast(arrays.size(values), dtypes.float32)
                total = math.divide_no_nan(total, number, name="value")
            loss = total
        loss = math.cast(loss, given.dtype.base)
        add_loss(loss, loss_collection)
        return loss


def _pair(labels: Any, predictions: Any, what: str = "predictions") -> tuple[Any, Any]:
    """Returns labels and predictions as float32 tensors with compatible shapes."""
    for name, value in (("labels", labels), (what, predictions)):
        if value is None:
            raise ValueError(f"{name} must not be None")
    b = scopes.builder(predictions, labels)
    x = math.cast(b.tensor(predictions, None, what), dtypes.float32)
    y = math.cast(b.tensor(labels, None, "labels"), dtypes.float32)
    if not shapes.compatible(x.shape, y.shape):
        raise ShapeError(
            f"{what} of shape {shapes.show(x.shape)} and labels of shape {shapes.show(y.shape)} must be of the same "
            "shape"
        )
    return y, x


# *** losses ***


@in_default_graph
def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the loss |predictions - labels|.

    Args:
      labels, predictions: numeric tensors of the same shape.
      weights, scope, loss_collection, reduction: see `compute_weighted_loss`.

    Source: TensorFlow's `tf.losses.absolute_difference`.
    """
    with scopes.name_scope(scope, "absolute_difference", [predictions, labels, weights]) as scope:
        y, x = _pair(labels, predictions)
        return compute_weighted_loss(math.abs(x - y), weights, scope, loss_collection, reduction)


@in_default_graph
def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the loss (predictions - labels) squared.

    Args:
      labels, predictions: numeric tensors of the same shape.
      weights, scope, loss_collection, reduction: see `compute_weighted_loss`.

    Source: TensorFlow's `tf.losses.mean_squared_error`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.losses.mean_squared_error([1.0, 2.0], [1.0, 4.0]))
      np.float32(2.0)
    """
    with scopes.name_scope(scope, "mean_squared_error", [predictions, labels, weights]) as scope:
        y, x = _pair(labels, predictions)
        return compute_weighted_loss(math.squared_difference(x, y), weights, scope, loss_collection, reduction)


@in_default_graph
def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
    dim: int | None = None,
) -> Any:
    """Computes the loss 1 - sum(labels * predictions) along an axis, for unit vectors.

    Args:
      labels, predictions: numeric tensors of the same shape.
      axis: axis of the vectors. It remains in the result, with size 1.
      weights, scope, loss_collection, reduction: see `compute_weighted_loss`.
      dim: older name of `axis`.

    Raises:
      ValueError: not exactly one of `axis` and `dim` is given.

    Source: TensorFlow's `tf.losses.cosine_distance`.
    """
    if (axis is None) == (dim is None):
        raise ValueError("cosine_distance needs an axis (dim is its older name): one of the two")
    with scopes.name_scope(scope, "cosine_distance_loss", [predictions, labels, weights]) as scope:
        y, x = _pair(labels, predictions)
        along = reductions.reduce_sum(x * y, [dim if axis is None else axis], True)
        return compute_weighted_loss(1.0 - along, weights, scope, loss_collection, reduction)


@in_default_graph
def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the hinge loss max(0, 1 - s * logits).

    The sign s is 1 for labels of 1, and -1 for labels of 0.

    Args:
      labels: tensor of zeros and ones.
      logits: numeric tensor of the same shape.
      weights, scope, loss_collection, reduction: see `compute_weighted_loss`.

    Source: TensorFlow's `tf.losses.hinge_loss`.
    """
    with scopes.name_scope(scope, "hinge_loss", [logits, labels, weights]) as scope:
        y, x = _pair(labels, logits, "logits")
        losses = nn.relu(1.0 - (2.0 * y - 1.0) * x)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@in_default_graph
def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the Huber loss of the differences d between predictions and labels.

    The loss is d * d / 2 where |d| <= `delta`, and delta * (|d| - delta / 2) elsewhere.

    Args:
      labels, predictions: numeric tensors of the same shape.
      weights, scope, loss_collection, reduction: see `compute_weighted_loss`.
      delta: the difference from which the loss is linear.

    Source: TensorFlow's `tf.losses.huber_loss`.
    """
    with scopes.name_scope(scope, "huber_loss", [predictions, labels, weights]) as scope:
        y, x = _pair(labels, predictions)
        far = math.abs(x - y)
        near = math.minimum(far, delta)
        losses = 0.5 * near * near + delta * (far - near)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@in_default_graph
def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the loss -labels * log(predictions) - (1 - labels) * log(1 - predictions).

    Args:
      labels, predictions: tensors of probabilities, of the same shape.
      weights, scope, loss_collection, reduction: see `compute_weighted_loss`.
      epsilon: number that is added to the argument of each logarithm.

    Source: TensorFlow's `tf.losses.log_loss`.
    """
    with scopes.name_scope(scope, "log_loss", [predictions, labels, weights]) as scope:
        y, x = _pair(labels, predictions)
        losses = -y * math.log(x + epsilon) - (1.0 - y) * math.log(1.0 - x + epsilon)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@in_default_graph
def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
) -> Any:
    """Computes the mean squared error of the differences between pairs of elements.

    For each example, the differences between its predictions are compared with those between its labels. The squared
    errors are averaged over all pairs of the example, and summed over the examples.

    Args:
      labels, predictions: numeric tensors [batch, ...] of the same shape.
      weights: a scalar, or a weight for each example.
      scope, loss_collection: see `compute_weighted_loss`.

    Source: TensorFlow's `tf.losses.mean_pairwise_squared_error`.
    """
    with scopes.name_scope(scope, "mean_pairwise_squared_error", [predictions, labels, weights]):
        y, x = _pair(labels, predictions)
        factors = math.cast(scopes.builder(x).tensor(weights, None, "weights"), dtypes.float32)
        d = x - y
        check_weights(factors, d)
        axes = _all_but_first(d)
        n = _present(d, factors, for_each=True)
        squares = reductions.reduce_sum(math.square(d), axes, True)
        mean = 2.0 * math.divide_no_nan(squares, math.maximum(n - 1.0, 0.0))
        total = reductions.reduce_sum(d, axes, True)
        shared = 2.0 * math.divide_no_nan(math.square(total), math.maximum(n * (n - 1.0), 0.0))
        whole = reductions.reduce_sum(math.multiply(mean - shared, factors))
        loss = gathering.where(reductions.reduce_sum(n) > 0.0, whole, arrays.zeros_like(whole), name="value")
        add_loss(loss, loss_collection)
        return loss


@in_default_graph
def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the loss of `tf.nn.sigmoid_cross_entropy_with_logits`.

    Args:
      multi_class_labels: tensor of the shape of `logits`, with values from 0 to 1.
      logits: numeric tensor [batch, classes].
      weights, scope, loss_collection, reduction: see `compute_weighted_loss`.
      label_smoothing: fraction from 0 to 1 by which labels are moved towards 0.5.

    Source: TensorFlow's `tf.losses.sigmoid_cross_entropy`.
    """
    with scopes.name_scope(scope, "sigmoid_cross_entropy_loss", [logits, multi_class_labels, weights]) as scope:
        y, x = _labels_and_logits(multi_class_labels, logits, "multi_class_labels")
        if label_smoothing > 0:
            y = y * (1 - label_smoothing) + 0.5 * label_smoothing
        losses = nn.sigmoid_cross_entropy_with_logits(y, x, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def _labels_and_logits(labels: Any, logits: Any, what: str) -> tuple[Any, Any]:
    if labels is None or logits is None:
        raise ValueError(f"{what} and logits must not be None")
    b = scopes.builder(logits, labels)
    x = b.tensor(logits, None, "logits")
    y = math.cast(b.tensor(labels, None, what), x.dtype.base)
    if not shapes.compatible(x.shape, y.shape):
        raise ShapeError(
            f"logits of shape {shapes.show(x.shape)} and {what} of shape {shapes.show(y.shape)} must be of the same "
            "shape"
        )
    return y, x


@in_default_graph
def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the loss of `tf.nn.softmax_cross_entropy_with_logits`.

    The labels receive no gradient.

    Args:
      onehot_labels: tensor of probabilities [batch, classes].
      logits: numeric tensor [batch, classes].
      weights: a scalar, or a tensor [batch].
      label_smoothing: fraction from 0 to 1 by which labels are moved towards 1 / classes.
      scope, loss_collection, reduction: see `compute_weighted_loss`.

    Source: TensorFlow's `tf.losses.softmax_cross_entropy`.
    """
    with scopes.name_scope(scope, "softmax_cross_entropy_loss", [logits, onehot_labels, weights]) as scope:
        y, x = _labels_and_logits(onehot_labels, logits, "onehot_labels")
        if label_smoothing > 0:
            classes = math.cast(arrays.shape(y)[-1], x.dtype.base)
            y = y * (1.0 - label_smoothing) + label_smoothing / classes
        y = tensors.stop_gradient(y, name="labels_stop_gradient")
        losses = nn.softmax_cross_entropy_with_logits(y, x, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@in_default_graph
def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> Any:
    """Computes the loss of `tf.nn.sparse_softmax_cross_entropy_with_logits`.

    Args:
      labels: integer tensor [batch] or [batch, 1], the classes.
      logits: numeric tensor [batch, classes].
      weights: a scalar, or a tensor of the shape of `labels`.
      scope, loss_collection, reduction: see `compute_weighted_loss`.

    Source: TensorFlow's `tf.losses.sparse_softmax_cross_entropy`.
    """
    if labels is None or logits is None:
        raise ValueError("labels and logits must not be None")
    with scopes.name_scope(scope, "sparse_softmax_cross_entropy_loss", [logits, labels, weights]) as scope:
        b = scopes.builder(logits, labels)
        x, y = b.tensor(logits, None, "logits"), b.tensor(labels, None, "labels")
        factors = b.tensor(weights, None, "weights")
        y, x, factors = without_last_axis(y, x, factors, 1)
        losses = nn.sparse_softmax_cross_entropy_with_logits(y, x, name="xentropy")
        return compute_weighted_loss(losses, factors, scope, loss_collection, reduction)


# fmt: off
__all__ = [
    "Reduction", "absolute_difference", "add_loss", "compute_weighted_loss", "cosine_distance", "get_losses",
    "get_regularization_loss", "get_regularization_losses", "get_total_loss", "hinge_loss", "huber_loss", "log_loss",
    "mean_pairwise_squared_error", "mean_squared_error", "sigmoid_cross_entropy", "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
