"""TensorFlow 1's dual coordinate solver of linear models: `tf.train.sdca_optimizer` and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.api import scopes
from headrace.v1.graph import in_default_graph
from headrace.v1.plain_ops import plain

sdca_fprint = plain("train.sdca_fprint", "SdcaFprint", "input")


class SdcaOptimizer(NamedTuple):
    """Results of `sdca_optimizer`.

    Attributes:
      out_example_state_data: for each example the dual variable, the primal and the dual loss, and the weight.
      out_delta_sparse_weights, out_delta_dense_weights: changes of the weights.
    """

    out_example_state_data: Any
    out_delta_sparse_weights: list[Any]
    out_delta_dense_weights: list[Any]


@in_default_graph
def sdca_optimizer(
    sparse_example_indices: Sequence[Any],
    sparse_feature_indices: Sequence[Any],
    sparse_feature_values: Sequence[Any],
    dense_features: Sequence[Any],
    example_weights: Any,
    example_labels: Any,
    sparse_indices: Sequence[Any],
    sparse_weights: Sequence[Any],
    dense_weights: Sequence[Any],
    example_state_data: Any,
    loss_type: str,
    l1: float,
    l2: float,
    num_loss_partitions: int,
    num_inner_iterations: int,
    adaptative: bool = True,
    name: str | None = None,
) -> SdcaOptimizer:
    """Makes the op SdcaOptimizer: a pass of dual coordinate ascent over examples.

    Args:
      sparse_example_indices, sparse_feature_indices: for each group of sparse features the example and the index of
        each value.
      sparse_feature_values: the values of the first groups; those of the others are 1.
      dense_features: for each group of dense features a row for each example.
      example_weights, example_labels: vectors.
      sparse_indices, sparse_weights: for each group of sparse features the indices with a weight, and the weights.
      dense_weights: the weights of each group of dense features.
      example_state_data: [examples, 4], zeros at first.
      loss_type: "logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss" or "poisson_loss".
      l1, l2: strengths of the regularization; `l2` is positive.
      num_loss_partitions: the number of solvers that work on parts of the examples at once.
      num_inner_iterations: accepted as in TensorFlow; the pass is one.
      adaptative: whether examples are drawn by how wrong they are.
      name: name of the operation; "SdcaOptimizer" if None.

    Source: TensorFlow's `tf.train.sdca_optimizer`.
    """
    lists = (sparse_example_indices, sparse_feature_indices, sparse_feature_values, dense_features)
    weights = (sparse_indices, sparse_weights, dense_weights)
    inputs = (*lists, example_weights, example_labels, *weights, example_state_data)
    attrs = {
        "loss_type": loss_type,
        "l1": l1,
        "l2": l2,
        "num_loss_partitions": num_loss_partitions,
        "num_inner_iterations": num_inner_iterations,
        "adaptative": adaptative,
    }
    made = scopes.builder(*inputs).make("SdcaOptimizer", inputs, attrs, name)
    state, *deltas = made if isinstance(made, (list, tuple)) else [made]
    n = len(sparse_weights)
    return SdcaOptimizer(state, deltas[:n], deltas[n:])


@in_default_graph
def sdca_shrink_l1(weights: Sequence[Any], l1: float, l2: float, name: str | None = None) -> Any:
    """Makes the op SdcaShrinkL1: moves weights towards zero by l1 / l2.

    Args:
      weights: reference variables (`use_resource=False`), float32.
      l1, l2: strengths of the regularization.
      name: name of the operation; "SdcaShrinkL1" if None.

    Raises:
      GraphError: a weight is no reference variable.

    Source: TensorFlow's `tf.train.sdca_shrink_l1`.
    """
    references = [getattr(w, "handle", w) for w in weights]
    return scopes.builder(*references).make("SdcaShrinkL1", (references,), {"l1": l1, "l2": l2}, name)
