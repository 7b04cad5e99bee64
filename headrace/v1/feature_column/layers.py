"""Layers on columns: `input_layer` joins dense columns, `linear_model` weighs dense and categorical ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace import dtypes
from headrace.v1 import array_ops, initializers, math_ops, nn, sparse
from headrace.v1.feature_column.columns import MODEL_COLLECTIONS, CategoricalColumn, Column, DenseColumn
from headrace.v1.feature_column.features import Features
from headrace.v1.graph import GraphKeys, get_collection
from headrace.v1.variable_scopes import get_variable_scope, variable_scope
from headrace.v1.variable_store import get_variable


def _listed(feature_columns: Any, kinds: tuple[type, ...], text: str) -> list[Any]:
    """Returns the columns in the order of their names.

    Raises:
      ValueError: no column is given, two have the same name, or one has another kind or is of sequences.
    """
    if isinstance(feature_columns, Mapping):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    columns = [feature_columns] if isinstance(feature_columns, Column) else list(feature_columns)
    if not columns:
        raise ValueError("feature_columns must not be empty.")
    for c in columns:
        if not isinstance(c, kinds):
            raise ValueError(f"Items of feature_columns must be {text}. Given: {c}")
    names = [c.name for c in columns]
    for c in columns:
        if names.count(c.name) > 1:
            raise ValueError(f"Duplicate feature column name found for columns: {c.name}")
    return sorted(columns, key=lambda c: c.name)


def _in_scopes(columns: Sequence[Any], cols_to_vars: dict[Any, Any] | None) -> Iterator[Any]:
    """Yields each column within its variable scope, and records its variables."""
    for c in columns:
        if c.is_sequence:
            raise ValueError(f"column {c.name} is of sequences: only layers of sequences take it")
        with variable_scope(None, default_name=c.scope):
            yield c
            if cols_to_vars is not None:
                cols_to_vars[c] = get_collection(GraphKeys.GLOBAL_VARIABLES, get_variable_scope().name)


def _collections(given: Any) -> list[Any]:
    return list(dict.fromkeys([*(given or ()), *MODEL_COLLECTIONS]))


def _flat(t: Any, column: Any) -> Any:
    return array_ops.reshape(t, array_ops.stack([array_ops.shape(t)[0], math.prod(column.dense_shape)]))


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: Any = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> Any:
    """Joins dense columns to one float matrix, in the order of their names.

    Args:
      features: tensors or sparse tensors by name, [batch, ...].
      feature_columns: dense columns; `embedding_column` and `indicator_column` make dense columns of ids.
      weight_collections: collections to which variables are added, other than GLOBAL_VARIABLES and MODEL_VARIABLES.
      trainable: whether variables are added to TRAINABLE_VARIABLES.
      cols_to_vars: dict that receives the variables of each column.
      cols_to_output_tensors: dict that receives the matrix of each column.

    Raises:
      ValueError: a column is not dense, or two have the same name.

    Source: TensorFlow's `tf.feature_column.input_layer`.
    """
    text = "a _DenseColumn. You can wrap a categorical column with an embedding_column or indicator_column"
    columns = _listed(feature_columns, (DenseColumn,), text)
    out = []
    with variable_scope(None, default_name="input_layer", values=list(features.values())):
        made = Features(features)
        for c in _in_scopes(columns, cols_to_vars):
            out.append(_flat(c.dense(made, _collections(weight_collections), trainable), c))
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[c] = out[-1]
        return array_ops.concat(out, 1)


def linear_model(
    features: Mapping[str, Any],
    feature_columns: Any,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Any = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> Any:
    """Computes the weighted sum of all columns plus a bias, [batch, units].

    All variables begin as zeros.

    Args:
      features: tensors or sparse tensors by name, [batch, ...].
      feature_columns: dense and categorical columns. A categorical column has a weight for each id.
      units: number of outputs.
      sparse_combiner: "mean", "sqrtn" or "sum", for the ids of an example.
      weight_collections: collections to which variables are added, other than GLOBAL_VARIABLES and MODEL_VARIABLES.
      trainable: whether variables are added to TRAINABLE_VARIABLES.
      cols_to_vars: dict that receives the variables of each column, and the bias as "bias".

    Raises:
      ValueError: an item is no column, or two columns have the same name.

    Source: TensorFlow's `tf.feature_column.linear_model`.
    """
    text = "either a _DenseColumn or _CategoricalColumn"
    columns = _listed(feature_columns, (DenseColumn, CategoricalColumn), text)
    collections = _collections(weight_collections)

    def variable(name: str, shape: Sequence[int]) -> Any:
        return get_variable(
            name, shape, dtypes.float32, initializers.zeros(), trainable=trainable, collections=collections
        )  # fmt: skip

    with variable_scope(None, default_name="linear_model", values=list(features.values())):
        made, sums = Features(features), []
        for c in _in_scopes(columns, cols_to_vars):
            if isinstance(c, CategoricalColumn):
                ids, weights = _as_rows(*c.ids(made))
                table = variable("weights", (c.num_buckets, units))
                sums.append(
                    nn.safe_embedding_lookup_sparse(table, ids, weights, combiner=sparse_combiner, name="weighted_sum")
                )
                continue
            tensor = _flat(c.dense(made, collections, trainable), c)
            weights = variable("weights", (math.prod(c.dense_shape), units))
            sums.append(math_ops.matmul(tensor, weights, name="weighted_sum"))
        bias = variable("bias_weights", (units,))
        if cols_to_vars is not None:
            cols_to_vars["bias"] = [bias]
        return nn.bias_add(math_ops.add_n(sums, name="weighted_sum_no_bias"), bias, name="weighted_sum")


def _as_rows(ids: Any, weights: Any) -> tuple[Any, Any]:
    """Reshapes the ids of each example, and the weights, to a row."""
    rank = ids.get_shape().ndims
    if rank == 2:
        return ids, weights
    shape = array_ops.stack([ids.dense_shape[0], -1])
    return sparse.reshape(ids, shape), None if weights is None else sparse.reshape(weights, shape)


def make_parse_example_spec(feature_columns: Any) -> dict[str, Any]:
    """Returns the features that `tf.parse_example` must parse for columns, by name.

    Args:
      feature_columns: the columns.

    Raises:
      ValueError: an item is no column, or two columns parse one feature differently.

    Source: TensorFlow's `tf.feature_column.make_parse_example_spec`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.feature_column.make_parse_example_spec([tf.feature_column.numeric_column("age")])
      {'age': FixedLenFeature(shape=(1,), dtype=tf.float32, default_value=None)}
    """
    out: dict[str, Any] = {}
    for c in feature_columns:
        if not isinstance(c, Column):
            raise ValueError(f"All feature_columns must be _FeatureColumn instances. Given: {c}")
        for key, feature in c.spec().items():
            if key in out and out[key] != feature:
                raise ValueError(
                    f"feature_columns contain different parse_spec for key {key}. Given feature_columns: {c}"
                )  # fmt: skip
            out[key] = feature
    return out
