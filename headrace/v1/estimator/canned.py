"""Canned estimators: linear models, dense networks, both together, and baselines, on feature columns.

Source: TensorFlow 1's `tf.estimator.LinearClassifier` and the others, whose names of variables are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from headrace.v1 import feature_column, initializers, layers, losses, nn, optimizers
from headrace.v1.array_ops import expand_dims, shape, tile
from headrace.v1.estimator import heads
from headrace.v1.estimator.estimator import Estimator
from headrace.v1.estimator.modes import ModeKeys
from headrace.v1.global_step import get_global_step
from headrace.v1.graph import GraphKeys, get_collection
from headrace.v1.grouping import group
from headrace.v1.math_ops import add_n
from headrace.v1.scoping import control_dependencies
from headrace.v1.variable_scopes import variable_scope
from headrace.v1.variable_store import get_variable
from headrace.v1.variables import assign_add

_SUM: Final = losses.Reduction.SUM
_OPTIMIZERS: Final = {
    "Adagrad": optimizers.AdagradOptimizer,
    "Adam": optimizers.AdamOptimizer,
    "Ftrl": optimizers.FtrlOptimizer,
    "RMSProp": optimizers.RMSPropOptimizer,
    "SGD": optimizers.GradientDescentOptimizer,
}
_DNN_RATE: Final = 0.05
_BASELINE_RATE: Final = 0.3

Logits = Callable[[Any, str], Any]  # from features and a mode


def _optimizer(given: Any, rate: float) -> Any:
    """Returns the optimizer of a name, a function or an object.

    Raises:
      ValueError: there is no optimizer of the name, or the object is none.
    """
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            raise ValueError(f"Unsupported optimizer name: {given}. Supported names are: {tuple(sorted(_OPTIMIZERS))}")
        return _OPTIMIZERS[given](learning_rate=rate)
    found = given() if callable(given) and not hasattr(given, "minimize") else given
    if not hasattr(found, "minimize"):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {found}")
    return found


def _linear_rate(columns: Sequence[Any], most: float = 0.2) -> float:
    return min(most, 1.0 / math.sqrt(len(columns)))


def _listed(columns: Any, name: str) -> list[Any]:
    found = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, tuple | str) else columns
    found = [found] if hasattr(found, "name") else list(found or ())
    if not found:
        raise ValueError(f"{name} must be given: a list with at least one feature column")
    return found


def _linear_logits(columns: Sequence[Any], units: int, partitioner: Any, combiner: str) -> Logits:
    def logits(features: Any, mode: str) -> Any:
        with variable_scope("linear", values=list(features.values()), partitioner=partitioner):
            return feature_column.linear_model(features, columns, units=units, sparse_combiner=combiner)

    return logits


def _dense_logits(
    columns: Sequence[Any], units: int, hidden: Sequence[int], activation: Any, dropout: float | None,
    partitioner: Any, has_batch_norm: bool,
) -> Logits:  # fmt: skip
    def logits(features: Any, mode: str) -> Any:
        is_training, draw = mode == ModeKeys.TRAIN, initializers.GlorotUniform()
        values = list(features.values())
        with variable_scope("dnn", values=values):
            with variable_scope("input_from_feature_columns", values=values, partitioner=partitioner):
                net = feature_column.input_layer(features, columns)
            for i, n in enumerate(hidden):
                net = layers.dense(net, n, activation, kernel_initializer=draw, name=f"hiddenlayer_{i}")
                if dropout is not None and is_training:
                    net = layers.dropout(net, rate=dropout, training=True)
                if has_batch_norm:
                    net = layers.batch_normalization(net, momentum=0.999, training=is_training, name=f"batchnorm_{i}")
            return layers.dense(net, units, kernel_initializer=draw, name="logits")

    return logits


def _baseline_logits(units: int) -> Logits:
    def logits(features: Any, mode: str) -> Any:
        with variable_scope("baseline", values=list(features.values())):
            bias = get_variable("bias", [units], initializer=initializers.Zeros())
            first = next(iter(features.values()))
            return tile(expand_dims(bias, 0), [shape(first)[0], 1])

    return logits


class _Part:
    """Logits with the optimizer of their variables.

    Args:
      logits: function from features and mode to logits.
      scope: scope of the variables.
      optimizer: optimizer, its name or a function that returns one.
      rate: learning rate of an optimizer that is given by name.
    """

    def __init__(self, logits: Logits, scope: str, optimizer: Any, rate: float) -> None:
        self.logits, self.scope, self.optimizer, self.rate = logits, scope, optimizer, rate


class _Canned(Estimator):
    """Estimator of a head on the sum of the logits of parts."""

    def __init__(
        self, head: heads.Head, parts: Sequence[_Part], model_dir: Any, config: Any, warm_start_from: Any = None
    ) -> None:
        def model_fn(features: Any, labels: Any, mode: str) -> Any:
            if not isinstance(features, dict):
                raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")
            found = [part.logits(features, mode) for part in parts]
            logits = found[0] if len(found) == 1 else add_n(found)
            return head.spec(features, mode, logits, labels, lambda loss: _step(parts, loss))

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def _step(parts: Sequence[_Part], loss: Any) -> Any:
    """Returns the operation of a training step, which also counts it."""
    count = get_global_step()
    with control_dependencies(get_collection(GraphKeys.UPDATE_OPS)):
        if len(parts) == 1:
            return _optimizer(parts[0].optimizer, parts[0].rate).minimize(loss, global_step=count)
        made = [
            _optimizer(p.optimizer, p.rate).minimize(
                loss, var_list=get_collection(GraphKeys.TRAINABLE_VARIABLES, scope=p.scope)
            )
            for p in parts
        ]
    with control_dependencies([group(*made)]):
        return assign_add(count, 1).op


class LinearClassifier(_Canned):
    """Linear model for classes, with a weight for each column or id.

    Args:
      feature_columns: feature columns.
      model_dir, config, warm_start_from: see `Estimator`.
      n_classes: number of classes.
      weight_column: name of the feature with the weights of the examples, or a numeric column.
      label_vocabulary: names of the classes, if the labels are text.
      optimizer: an optimizer, a function that returns one, or "Adagrad", "Adam", "Ftrl", "RMSProp" or "SGD".
      partitioner: partitioner of the variables.
      loss_reduction: `tf.losses.Reduction` of the losses of a batch.
      sparse_combiner: see `tf.feature_column.linear_model`.

    Source: TensorFlow 1's `tf.estimator.LinearClassifier`.
    """

    def __init__(
        self,
        feature_columns: Any,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = heads.classes_head(n_classes, label_vocabulary, weight_column, loss_reduction)
        columns = _listed(feature_columns, "feature_columns")
        logits = _linear_logits(columns, head.units, partitioner, sparse_combiner)
        super().__init__(
            head, [_Part(logits, "linear", optimizer, _linear_rate(columns))], model_dir, config, warm_start_from
        )  # fmt: skip


class LinearRegressor(_Canned):
    """Linear model for numbers.

    Args:
      label_dimension: number of values of an example.
      feature_columns, model_dir, weight_column, optimizer, config, partitioner, warm_start_from, loss_reduction,
        sparse_combiner: see `LinearClassifier`.

    Source: TensorFlow 1's `tf.estimator.LinearRegressor`.
    """

    def __init__(
        self,
        feature_columns: Any,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = heads.RegressionHead(label_dimension, weight_column, loss_reduction)
        columns = _listed(feature_columns, "feature_columns")
        logits = _linear_logits(columns, head.units, partitioner, sparse_combiner)
        super().__init__(
            head, [_Part(logits, "linear", optimizer, _linear_rate(columns))], model_dir, config, warm_start_from
        )  # fmt: skip


class DNNClassifier(_Canned):
    """Network of dense layers for classes.

    Args:
      hidden_units: number of units of each hidden layer.
      feature_columns: dense feature columns.
      model_dir, n_classes, weight_column, label_vocabulary, optimizer, config, warm_start_from, loss_reduction: see
        `LinearClassifier`.
      activation_fn: activation of the hidden layers.
      dropout: probability with which a unit is dropped in training, or None.
      input_layer_partitioner: partitioner of the variables of the columns.
      batch_norm: whether batch normalization follows each hidden layer.

    Source: TensorFlow 1's `tf.estimator.DNNClassifier`.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Any,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
    ) -> None:
        head = heads.classes_head(n_classes, label_vocabulary, weight_column, loss_reduction)
        columns = _listed(feature_columns, "feature_columns")
        logits = _dense_logits(
            columns, head.units, hidden_units, activation_fn, dropout, input_layer_partitioner, batch_norm
        )
        super().__init__(head, [_Part(logits, "dnn", optimizer, _DNN_RATE)], model_dir, config, warm_start_from)


class DNNRegressor(_Canned):
    """Network of dense layers for numbers.

    Args:
      label_dimension: number of values of an example.
      hidden_units, feature_columns, model_dir, weight_column, optimizer, activation_fn, dropout,
        input_layer_partitioner, config, warm_start_from, loss_reduction, batch_norm: see `DNNClassifier`.

    Source: TensorFlow 1's `tf.estimator.DNNRegressor`.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Any,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
    ) -> None:
        head = heads.RegressionHead(label_dimension, weight_column, loss_reduction)
        columns = _listed(feature_columns, "feature_columns")
        logits = _dense_logits(
            columns, head.units, hidden_units, activation_fn, dropout, input_layer_partitioner, batch_norm
        )
        super().__init__(head, [_Part(logits, "dnn", optimizer, _DNN_RATE)], model_dir, config, warm_start_from)


def _joined(
    head: heads.Head, linear: Any, linear_optimizer: Any, combiner: str, dnn: Any, dnn_optimizer: Any, hidden: Any,
    activation: Any, dropout: float | None, partitioner: Any, has_batch_norm: bool,
) -> list[_Part]:  # fmt: skip
    """Returns the parts of a model with linear and dense logits.

    Raises:
      ValueError: there are columns of neither part, or hidden units without columns.
    """
    out = []
    if dnn:
        if not hidden:
            raise ValueError("dnn_hidden_units must be defined when dnn_feature_columns is specified.")
        columns = _listed(dnn, "dnn_feature_columns")
        logits = _dense_logits(columns, head.units, hidden, activation, dropout, partitioner, has_batch_norm)
        out.append(_Part(logits, "dnn", dnn_optimizer, _DNN_RATE))
    if linear:
        columns = _listed(linear, "linear_feature_columns")
        logits = _linear_logits(columns, head.units, partitioner, combiner)
        out.append(_Part(logits, "linear", linear_optimizer, _linear_rate(columns, 0.005)))
    if not out:
        raise ValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
    return out


class DNNLinearCombinedClassifier(_Canned):
    """Sum of a linear model and a network of dense layers, for classes ("wide and deep").

    Args:
      model_dir, n_classes, weight_column, label_vocabulary, config, warm_start_from, loss_reduction: see
        `LinearClassifier`.
      linear_feature_columns, linear_optimizer, linear_sparse_combiner: columns, optimizer and combiner of the linear
        model.
      dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout: those of the network, see
        `DNNClassifier`.
      input_layer_partitioner: partitioner of the variables of the columns.
      batch_norm: see `DNNClassifier`.

    Source: TensorFlow 1's `tf.estimator.DNNLinearCombinedClassifier`.
    """

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = heads.classes_head(n_classes, label_vocabulary, weight_column, loss_reduction)
        parts = _joined(
            head, linear_feature_columns, linear_optimizer, linear_sparse_combiner, dnn_feature_columns, dnn_optimizer,
            dnn_hidden_units, dnn_activation_fn, dnn_dropout, input_layer_partitioner, batch_norm,
        )  # fmt: skip
        super().__init__(head, parts, model_dir, config, warm_start_from)


class DNNLinearCombinedRegressor(_Canned):
    """Sum of a linear model and a network of dense layers, for numbers.

    Args:
      label_dimension: number of values of an example.
      model_dir, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer, dnn_hidden_units,
        dnn_activation_fn, dnn_dropout, weight_column, input_layer_partitioner, config, warm_start_from,
        loss_reduction, batch_norm, linear_sparse_combiner: see `DNNLinearCombinedClassifier`.

    Source: TensorFlow 1's `tf.estimator.DNNLinearCombinedRegressor`.
    """

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = heads.RegressionHead(label_dimension, weight_column, loss_reduction)
        parts = _joined(
            head, linear_feature_columns, linear_optimizer, linear_sparse_combiner, dnn_feature_columns, dnn_optimizer,
            dnn_hidden_units, dnn_activation_fn, dnn_dropout, input_layer_partitioner, batch_norm,
        )  # fmt: skip
        super().__init__(head, parts, model_dir, config, warm_start_from)


class BaselineClassifier(_Canned):
    """Model that ignores the features, and learns the frequencies of the classes.

    Args:
      model_dir, n_classes, weight_column, label_vocabulary, optimizer, config, loss_reduction: see `LinearClassifier`.

    Source: TensorFlow 1's `tf.estimator.BaselineClassifier`.
    """

    def __init__(
        self,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        loss_reduction: str = _SUM,
    ) -> None:
        head = heads.classes_head(n_classes, label_vocabulary, weight_column, loss_reduction)
        part = _Part(_baseline_logits(head.units), "baseline", optimizer, _BASELINE_RATE)
        super().__init__(head, [part], model_dir, config)


class BaselineRegressor(_Canned):
    """Model that ignores the features, and learns the mean of the labels.

    Args:
      label_dimension: number of values of an example.
      model_dir, weight_column, optimizer, config, loss_reduction: see `LinearClassifier`.

    Source: TensorFlow 1's `tf.estimator.BaselineRegressor`.
    """

    def __init__(
        self,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        loss_reduction: str = _SUM,
    ) -> None:
        head = heads.RegressionHead(label_dimension, weight_column, loss_reduction)
        part = _Part(_baseline_logits(head.units), "baseline", optimizer, _BASELINE_RATE)
        super().__init__(head, [part], model_dir, config)
