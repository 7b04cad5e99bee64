"""Variables of models, by collection, scope and name; assignments to them from checkpoints and arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import grouping, scopes
from headrace.api.partitioned import SLICE, parts_of
from headrace.train.saving.saveables import key_of
from headrace.v1 import array_ops, checkpoints, global_step, logging
from headrace.v1.contrib.framework.arg_scope import add_arg_scope
from headrace.v1.graph import GraphKeys, get_collection, get_default_graph, in_default_graph
from headrace.v1.saver import Saver
from headrace.v1.variable_scopes import VariableScope
from headrace.v1.variable_store import get_variable
from headrace.v1.variables import Variable, VariableAggregation, VariableSynchronization

# *** making variables ***


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """Returns a variable of the current scope: `tf.get_variable` with a device.

    Args:
      collections: names of collections; None: GraphKeys.GLOBAL_VARIABLES, which is added to the given ones too.
      device: device of the variable: a name, or a function of the operation.
      custom_getter: a function that makes the variable, in place of `tf.get_variable`.
      Others: see `tf.get_variable`.

    Source: TensorFlow's `tf.contrib.framework.variable`.
    """
    kept = list(collections) if collections is not None else [GraphKeys.GLOBAL_VARIABLES]
    if GraphKeys.GLOBAL_VARIABLES not in kept and GraphKeys.LOCAL_VARIABLES not in kept:
        kept.append(GraphKeys.GLOBAL_VARIABLES)
    options = {"synchronization": synchronization, "aggregation": aggregation}
    if use_resource is not None:
        options["use_resource"] = use_resource
    getter = custom_getter or get_variable
    with get_default_graph().device(device or ""):
        return getter(
            name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=trainable,
            collections=list(dict.fromkeys(kept)), caching_device=caching_device, partitioner=partitioner, **options,
        )  # fmt: skip


@add_arg_scope
def model_variable(
    name: str,
    shape: Any = None,
    dtype: Any = dtypes.float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """Returns a variable that is also in GraphKeys.MODEL_VARIABLES. See `variable`.

    Source: TensorFlow's `tf.contrib.framework.model_variable`.
    """
    kept = [*(collections or ()), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(
        name, shape, dtype, initializer, regularizer, trainable, kept, caching_device, device, partitioner,
        custom_getter, use_resource, synchronization, aggregation,
    )  # fmt: skip


@in_default_graph
def local_variable(
    initial_value: Any, validate_shape: bool = True, name: str | None = None, use_resource: bool | None = None
) -> Any:
    """Returns a variable of GraphKeys.LOCAL_VARIABLES, which is not trained and not saved.

    Source: TensorFlow's `tf.contrib.framework.local_variable`.
    """
    return Variable(
        initial_value, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES], validate_shape=validate_shape,
        name=name,
    )  # fmt: skip


@in_default_graph
def global_variable(
    initial_value: Any, validate_shape: bool = True, name: str | None = None, use_resource: bool | None = None
) -> Any:
    """Returns a variable of GraphKeys.GLOBAL_VARIABLES that is not trained.

    Source: TensorFlow's `tf.contrib.framework.global_variable`.
    """
    return Variable(
        initial_value, trainable=False, collections=[GraphKeys.GLOBAL_VARIABLES], validate_shape=validate_shape,
        name=name,
    )  # fmt: skip


def add_model_variable(var: Any) -> None:
    """Adds a variable to GraphKeys.MODEL_VARIABLES.

    Source: TensorFlow's `tf.contrib.framework.add_model_variable`.
    """
    kept = get_default_graph().get_collection_ref(GraphKeys.MODEL_VARIABLES)
    if not any(v is var for v in kept):
        kept.append(var)


# *** finding variables ***


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: Any = GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """Returns the variables of a collection by scope and suffix of their names.

    Args:
      scope: a `VariableScope`, or a pattern that matches the beginning of names; None: all names.
      suffix: the last part of the name, such as "weights"; None: any.
      collection: name of the collection.

    Source: TensorFlow's `tf.contrib.framework.get_variables`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     for name in ("a/w", "a/b", "c/w"):
      ...         _ = tf.get_variable(name, [])
      ...     [v.op.name for v in tf.contrib.framework.get_variables("a", "w")]
      ['a/w']
    """
    prefix = scope.name if isinstance(scope, VariableScope) else scope
    if suffix is not None:
        pattern = suffix if ":" in suffix else f"{suffix}:"
        prefix = f"{prefix or ''}.*{pattern}"
    return get_collection(collection, prefix)


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the variables of GraphKeys.MODEL_VARIABLES. See `get_variables`.

    Source: TensorFlow's `tf.contrib.framework.get_model_variables`.
    """
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the local variables. See `get_variables`.

    Source: TensorFlow's `tf.contrib.framework.get_local_variables`.
    """
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the trainable variables. See `get_variables`.

    Source: TensorFlow's `tf.contrib.framework.get_trainable_variables`.
    """
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """Returns the variables with a name, in any scope below `scope`.

    Source: TensorFlow's `tf.contrib.framework.get_variables_by_name`.
    """
    suffix = f"/{given_name}:|^{given_name}:"
    return [v for v in get_variables(scope) if re.search(suffix, v.name)]


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """Returns the variables whose names end in a suffix. See `get_variables`.

    Source: TensorFlow's `tf.contrib.framework.get_variables_by_suffix`.
    """
    return get_variables(scope, suffix)


def get_unique_variable(var_op_name: str) -> Any:
    """Returns the variable with a full name.

    Raises:
      ValueError: there is no such variable, or more than one.

    Source: TensorFlow's `tf.contrib.framework.get_unique_variable`.
    """
    found = get_variables(f"{re.escape(var_op_name)}:")
    if len(found) != 1:
        raise ValueError(
            f"Variable {var_op_name} does not uniquely identify a variable: {len(found)} variables have the name"
        )
    return found[0]


def get_variable_full_name(var: Any) -> str:
    """Returns the name of a variable in checkpoints; of a part, the whole variable's.

    Source: TensorFlow's `tf.contrib.framework.get_variable_full_name`.
    """
    return str(key_of(var))


def get_variables_to_restore(include: Sequence[str] | None = None, exclude: Sequence[str] | None = None) -> list[Any]:
    """Returns the global variables in some scopes and not in others.

    Args:
      include: scopes of the variables; None: all.
      exclude: scopes whose variables are left out.

    Source: TensorFlow's `tf.contrib.framework.get_variables_to_restore`.
    """
    found = get_variables() if include is None else [v for scope in include for v in get_variables(scope)]
    left_out = {id(v) for scope in exclude or () for v in get_variables(scope)}
    return [v for v in found if id(v) not in left_out]


def filter_variables(
    var_list: Iterable[Any],
    include_patterns: Sequence[str] | None = None,
    exclude_patterns: Sequence[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """Returns the variables whose names match a pattern and no other pattern.

    Args:
      var_list: the variables.
      include_patterns: regular expressions of names; None or empty: all names.
      exclude_patterns: regular expressions of the names that are left out.
      reg_search: whether a pattern may match anywhere in a name; otherwise at its beginning.

    Source: TensorFlow's `tf.contrib.framework.filter_variables`.
    """
    match = re.search if reg_search else re.match

    def is_in(v: Any, patterns: Sequence[str] | None) -> bool:
        return any(match(p, v.name) for p in patterns or ())

    return [
        v for v in var_list
        if (not include_patterns or is_in(v, include_patterns)) and not is_in(v, exclude_patterns)
    ]  # fmt: skip


# *** the global step ***

get_global_step = global_step.get_global_step
create_global_step = global_step.create_global_step
get_or_create_global_step = global_step.get_or_create_global_step
assert_global_step = global_step.assert_global_step


def assert_or_get_global_step(graph: Any = None, global_step_tensor: Any = None) -> Any:
    """Returns a checked global step: the given one, or that of the graph.

    Source: TensorFlow's `tf.contrib.framework.assert_or_get_global_step`.
    """
    if global_step_tensor is None:
        return get_global_step(graph)
    assert_global_step(global_step_tensor)
    return global_step_tensor


# *** values of checkpoints ***


def _named(var_list: Any) -> dict[str, Any]:
    """Returns the variables by their names in checkpoints."""
    if isinstance(var_list, Mapping):
        return dict(var_list)
    return {get_variable_full_name(v): v for v in var_list}


def _assigned(pairs: Sequence[tuple[Any, np.ndarray]]) -> tuple[Any, dict[Any, np.ndarray]]:
    """Returns an operation that assigns fed values to variables, and the feeds."""
    feeds: dict[Any, np.ndarray] = {}
    made = []
    with scopes.name_scope("AssignFromValues"):
        for v, value in pairs:
            fed = array_ops.placeholder(v.dtype.base, list(value.shape))
            feeds[fed] = value
            made.append(v.assign(fed, read_value=False))
        return grouping.group(*made), feeds


@in_default_graph
def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, np.ndarray]]:
    """Returns an operation that assigns the values of a checkpoint to variables, and its feeds.

    Args:
      model_path: prefix of the checkpoint.
      var_list: variables, or a dict from names in the checkpoint to variables, or to lists of their parts.
      ignore_missing_vars: whether variables that the checkpoint lacks are left out.

    Returns:
      The operation, and the dict to feed when it runs.

    Raises:
      ValueError: the checkpoint lacks a variable, or has it with another shape.

    Source: TensorFlow's `tf.contrib.framework.assign_from_checkpoint`.
    """
    reader = checkpoints.load_checkpoint(model_path)
    pairs = []
    for name, given in _named(var_list).items():
        if not reader.has_tensor(name):
            text = f"Checkpoint is missing variable [{name}]"
            if not ignore_missing_vars:
                raise ValueError(text)
            logging.warning(text)
            continue
        value = np.asarray(reader.get_tensor(name))
        for v, part in _parts(given, value):
            if not shapes.fits(tuple(part.shape), v.shape):
                raise ValueError(
                    f"Total size of new array must be unchanged for {name}: the checkpoint has the shape "
                    f"{list(value.shape)}, the variable {v.name} has {shapes.show(v.shape)}"
                )
            pairs.append((v, part))
    return _assigned(pairs)


def _parts(given: Any, value: np.ndarray) -> list[tuple[Any, np.ndarray]]:
    """Returns the variables of a name with the parts of the value that they have."""
    pairs = []
    for v in given if isinstance(given, (list, tuple)) else parts_of(given):
        place = getattr(v, SLICE, None)
        if place is None:
            pairs.append((v, value))
        else:
            ends = zip(place.var_offset, place.var_shape, strict=True)
            pairs.append((v, value[tuple(slice(start, start + n) for start, n in ends)]))
    return pairs


def assign_from_checkpoint_fn(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False, reshape_variables: bool = False
) -> Callable[[Any], None] | None:
    """Returns a function of a session that restores variables from a checkpoint.

    Args:
      model_path: prefix of the checkpoint.
      var_list: variables, or a dict from names in the checkpoint to variables.
      ignore_missing_vars: whether variables that the checkpoint lacks are left out.
      reshape_variables: whether values of another shape with as many elements are reshaped.

    Returns:
      The function; None if no variable is left.

    Raises:
      ValueError: `var_list` is empty.

    Source: TensorFlow's `tf.contrib.framework.assign_from_checkpoint_fn`.
    """
    if not var_list:
        raise ValueError("var_list cannot be empty")
    named = _named(var_list)
    if ignore_missing_vars:
        reader = checkpoints.load_checkpoint(model_path)
        for name in [n for n in named if not reader.has_tensor(n)]:
            logging.warning(f"Variable {name} missing in checkpoint {model_path}")
            del named[name]
        if not named:
            logging.warning("No Variables to restore")
            return None
    saver = Saver(named, reshape=reshape_variables)
    return lambda session: saver.restore(session, model_path)


@in_default_graph
def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Any, dict[Any, np.ndarray]]:
    """Returns an operation that assigns arrays to variables by name, and its feeds.

    Source: TensorFlow's `tf.contrib.framework.assign_from_values`.
    """
    return _assigned([(get_unique_variable(n), np.asarray(x)) for n, x in var_names_to_values.items()])


def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], None]:
    """Returns a function of a session that assigns arrays to variables by name.

    Source: TensorFlow's `tf.contrib.framework.assign_from_values_fn`.
    """
    assign, feeds = assign_from_values(var_names_to_values)

    def run(session: Any) -> None:
        session.run(assign, feeds)

    return run
