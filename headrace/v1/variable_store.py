"""Variables by name: `get_variable` creates a variable, or finds it, in the current variable scope.

The graph stores these variables.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from headrace import dtypes
from headrace.api import gathering, scopes
from headrace.api.partitioned import mark_part
from headrace.dtypes import DType, as_dtype
from headrace.ir.conversion import as_array
from headrace.ir.graph import Tensor
from headrace.v1 import initializers
from headrace.v1.graph import GraphKeys, get_default_graph, in_default_graph
from headrace.v1.partitioned import PartitionedVariable, PartitionInfo, ask, cut
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.variable_scopes import Getter, get_variable_scope
from headrace.v1.variables import Variable, VariableAggregation, VariableSynchronization, synchronized


@in_default_graph
def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Getter | None = None,
    constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """Makes or, in a scope that reuses variables, finds a variable of the current scope.

    Args:
      name: below the scope's name.
      shape: of a new variable; of one found, what is to be compared with. Not needed if `initializer` is a value.
      dtype: None: the scope's (float32).
      initializer: an initializer (an object or class that is called with shape and dtype), or a value (number, array,
        tensor). None: the scope's; else numbers of Glorot's uniform distribution for floats, and zeros for others.
      regularizer: given a new variable, a loss, which goes into GraphKeys.REGULARIZATION_LOSSES (None: the scope's).
      trainable: whether it goes into GraphKeys.TRAINABLE_VARIABLES; None: unless it is synchronized ON_READ.
      collections: where it goes; None: GraphKeys.GLOBAL_VARIABLES.
      caching_device: where a copy of its value is kept during a step.
      partitioner: a function of shape and dtype that says into how many parts each axis is cut, such as
        `tf.fixed_size_partitioner` makes (None: the scope's, if it has one). Scalars are never cut.
      validate_shape: whether the shape of the first value must be known.
      use_resource: as in `tf.Variable`; None: the scope's.
      synchronization, aggregation: kept with the variable; there are no copies to bring together.
      custom_getter: a function that is called instead, in place of the scope's, with `getter`, the function that gets
        variables, and all of these arguments by name.
      constraint: kept with the variable, for optimizers.

    Returns:
      The `Variable`, in eager mode always a new one; with a partitioner a `PartitionedVariable` of parts named
      "name/part_0" and so on. Its initializer is called for each part with that one's shape, and with
      `partition_info`, if it takes that; a value is cut.

    Raises:
      ValueError: it exists and is not to be reused, or does not exist and is; shapes or dtypes do not agree; a
        partitioner gives what is no way to cut the variable, or another one than it is cut; the initializer is a
        value of another dtype than the one given.

    Source: TensorFlow's `tf.get_variable`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     v = tf.get_variable("v", [2, 3], initializer=tf.ones_initializer())
      ...     v.name, v.get_shape().as_list()
      ('v:0', [2, 3])
      >>> with tf.Graph().as_default():
      ...     w = tf.get_variable("w", [5, 3], partitioner=tf.fixed_size_partitioner(2))
      ...     w.name, [part.shape.as_list() for part in w], tf.convert_to_tensor(w).shape.as_list()
      ('w', [[3, 3], [2, 3]], [5, 3])
    """
    if custom_getter is not None and not callable(custom_getter):
        raise ValueError(f"Passed a custom_getter which is not callable: {custom_getter!r}")
    scope = get_variable_scope()
    if dtype is not None and _is_value(initializer):
        found = initializer.dtype.base if isinstance(initializer, Tensor) else as_array(initializer).dtype
        if as_dtype(found) is not as_dtype(dtype).base:
            raise ValueError(
                f"Initializer type '{as_dtype(found).name}' and explicit dtype '{as_dtype(dtype).name}' don't match."
            )
    given = {"initializer": initializer, "regularizer": regularizer, "caching_device": caching_device,
             "partitioner": partitioner, "constraint": constraint, "use_resource": use_resource}  # fmt: skip
    wanted = {k: getattr(scope, k) if v is None else v for k, v in given.items()}
    full = f"{scope.name}/{name}" if scope.name else name
    synchronization, aggregation, trainable = synchronized(synchronization, aggregation, trainable, full)
    arguments = {
        "shape": shape, "dtype": as_dtype(scope.dtype if dtype is None else dtype).base, "reuse": scope.reuse,
        "trainable": trainable, "collections": collections, "validate_shape": validate_shape,
        "synchronization": synchronization, "aggregation": aggregation, **wanted,
    }  # fmt: skip
    getter = custom_getter or scope.custom_getter
    with scopes.name_scope(None):
        if getter is None:
            return _get(full, **arguments)
        if not _takes(getter, "constraint"):  # getters may be older than this argument
            del arguments["constraint"]
        first = next(iter(inspect.signature(getter).parameters.values()), None)
        is_named_otherwise = first is not None and first.kind is first.POSITIONAL_OR_KEYWORD
        if is_named_otherwise and not _takes(getter, "getter", by_kwargs=False):
            return getter(_get, name=full, **arguments)
        return getter(getter=_get, name=full, **arguments)


def _is_value(initializer: Any) -> bool:
    return initializer is not None and not callable(initializer)


def _get(
    name: str,
    shape: Any = None,
    dtype: Any = dtypes.float32,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """`get_variable` with resolved names and defaults, which custom getters receive.

    With `reuse=None` a variable is found, else made, as with AUTO_REUSE.
    """
    graph, dtype = get_default_graph(), as_dtype(dtype).base
    given = {"regularizer": regularizer, "reuse": reuse, "trainable": trainable, "collections": collections,
             "caching_device": caching_device, "validate_shape": validate_shape, "constraint": constraint,
             "use_resource": use_resource, "synchronization": synchronization, "aggregation": aggregation}  # fmt: skip
    known = TensorShape(shape)
    whole = name.rstrip("/")
    if (partitioner is not None and known.ndims != 0) or (reuse is True and whole in graph.partitioned_store):
        return _get_parts(whole, partitioner, known, dtype, initializer, given)
    if f"{whole}/part_0" in graph.variable_store:
        raise ValueError(
            f"No partitioner was provided, but a partitioned version of the variable was found: {whole}/part_0. "
            "Perhaps a variable of the same name was already created with partitioning?"
        )
    return _get_one(name, None if shape is None else known, dtype, initializer, **given)


def _get_parts(
    name: str,
    partitioner: Any,
    shape: TensorShape,
    dtype: DType,
    initializer: Any,
    given: Mapping[str, Any],
) -> PartitionedVariable:
    """`_get`, of a variable in several parts."""
    graph = get_default_graph()
    if name in graph.variable_store:
        raise ValueError(
            f"A partitioner was provided, but an unpartitioned version of the variable was found: {name}. Perhaps a "
            "variable of the same name was already created without partitioning?"
        )
    if isinstance(initializer, Tensor):
        shape = shape.merge_with(TensorShape(initializer.shape))
    partitions = None if partitioner is None else ask(partitioner, shape, dtype)
    found: PartitionedVariable | None = graph.partitioned_store.get(name)
    if found is not None:
        if given["reuse"] is False:
            raise ValueError(
                f"Partitioned variable with name {name} already exists. Did you mean to set reuse=True or "
                "reuse=tf.AUTO_REUSE in VarScope?"
            )
        for what, wanted, there, agree in (
            ("shape", shape, found.shape, shape.is_compatible_with(found.get_shape())),
            ("dtype", dtype.name, found.dtype.name, dtype is found.dtype),
            ("partitions", partitions, found._get_partitions(), partitions in (None, found._get_partitions())),
        ):
            if not agree:
                raise ValueError(
                    f"Trying to reuse partitioned variable {name}, but specified {what} {wanted} and found {what} "
                    f"{there}."
                )
        return found
    if given["reuse"] is True:
        raise ValueError(
            f"PartitionedVariable {name} does not exist, or was not created with tf.get_variable(). Did you mean to "
            f"set reuse=False or reuse=tf.AUTO_REUSE in VarScope?{_near(name, graph.partitioned_store)}"
        )
    assert partitions is not None
    dims, parts = [int(n) for n in shape], []
    for i, (offset, size) in enumerate(cut(dims, partitions)):
        full, first = f"{name}/part_{i}", initializer
        if _is_value(initializer):
            with scopes.name_scope(f"{full}/PartitionedInitializer"):
                b = scopes.builder(initializer)
                first = gathering.slice(b.tensor(initializer, None), offset, size)
        info = PartitionInfo(dims, offset)
        wanted_shape = None if _is_value(initializer) else TensorShape(size)
        made = _get_one(full, wanted_shape, dtype, first, partition_info=info, **given)
        mark_part(made, name, dims, offset, size)
        parts.append(made)
    whole = graph.partitioned_store[name] = PartitionedVariable(name, dims, parts[0].dtype, parts, partitions)
    return whole


def _get_one(
    name: str,
    shape: TensorShape | None,
    dtype: DType,
    initializer: Any,
    regularizer: Any,
    reuse: Any,
    trainable: bool | None,
    collections: Any,
    caching_device: Any,
    validate_shape: bool,
    use_resource: bool | None,
    constraint: Any,
    synchronization: Any,
    aggregation: Any,
    partition_info: PartitionInfo | None = None,
) -> Any:
    """`_get`, of a variable in one piece, or of one part."""
    known = TensorShape(None) if shape is None else shape
    if shape is not None and _is_value(initializer):
        raise ValueError("If initializer is a constant, do not specify shape: the variable has that of the value.")
    # in eager mode each call makes a variable, which belongs to no graph
    store = {} if scopes.is_eager_call() else get_default_graph().variable_store
    reuse = reuse if not scopes.is_eager_call() else False
    found = store.get(name)
    if found is not None:
        if reuse is False:
            raise ValueError(
                f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in "
                f"VarScope? It was made at {found.op.source}"
            )
        if not known.is_compatible_with(found.get_shape()):
            raise ValueError(
                f"Trying to share variable {name}, but specified shape {known} and found shape {found.get_shape()}."
            )
        if dtype != found.dtype.base:
            raise ValueError(
                f"Trying to share variable {name}, but specified dtype {dtype.name} and found dtype "
                f"{found.dtype.base.name}."
            )
        return found
    if reuse is True:
        raise ValueError(
            f"Variable {name} does not exist, or was not created with tf.get_variable(). Did you mean to set "
            f"reuse=tf.AUTO_REUSE in VarScope?{_near(name, store)}"
        )
    if initializer is None:
        initializer = _default_initializer(name, dtype)
    own: DType | None = None  # of a value, or what a function without arguments returns: its own
    if not _is_value(initializer):
        if known.is_fully_defined():
            own = dtype
        elif not inspect.isfunction(initializer):
            raise ValueError(f"Shape of a new variable ({name}) must be fully defined, but instead was {known}.")
        initializer = _initial_value(initializer, known, dtype, partition_info)
    made = Variable(
        initializer, trainable=trainable, collections=collections, validate_shape=validate_shape,
        caching_device=caching_device, name=name, dtype=own, constraint=constraint, shape=shape,
        use_resource=use_resource, synchronization=synchronization, aggregation=aggregation,
    )  # fmt: skip
    store[name] = made
    if regularizer is not None:
        with (
            contextlib.nullcontext() if made.graph is None else scopes.colocate_with(made.op),
            scopes.name_scope(name + "/Regularizer/"),
        ):
            loss = regularizer(made)
        if loss is not None:
            get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return made


def _near(name: str, store: Mapping[str, Any]) -> str:
    import difflib

    near = difflib.get_close_matches(name, store, n=3)
    return " There is " + ", ".join(near) if near else ""


def _default_initializer(name: str, dtype: DType) -> Any:
    if dtype.is_floating:
        return initializers.GlorotUniform()
    if dtype.is_integer or dtype.is_bool or dtype is dtypes.string:
        return initializers.Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype.name} is required")


def _initial_value(
    initializer: Any, shape: TensorShape, dtype: DType, partition_info: PartitionInfo | None
) -> Callable[[], Any]:
    if isinstance(initializer, type):
        initializer = initializer()
    if shape.ndims is None:  # a function that knows its shape
        return initializer  # type: ignore[no-any-return]
    more = {"partition_info": partition_info} if _takes(initializer, "partition_info", by_kwargs=False) else {}
    return lambda: initializer(shape.as_list(), dtype=dtype, **more)


def _takes(f: Callable[..., Any], argument: str, by_kwargs: bool = True) -> bool:
    """Whether a function has a parameter of that name; `by_kwargs`: or takes any, as `**kwargs`."""
    try:
        parameters = inspect.signature(f).parameters
    except (TypeError, ValueError):  # one of C's says nothing
        return False
    return argument in parameters or (by_kwargs and any(p.kind is p.VAR_KEYWORD for p in parameters.values()))


def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Any:
    """`get_variable`, of a variable that goes into GraphKeys.LOCAL_VARIABLES and is not trainable.

    Source: TensorFlow's `tf.get_local_variable`.
    """
    bound = inspect.signature(get_variable).bind(name, *args, **kwargs).arguments
    bound["collections"] = [*(bound.get("collections") or []), GraphKeys.LOCAL_VARIABLES]
    bound["trainable"] = False
    return get_variable(**bound)


def no_regularizer(_: Any) -> None:
    """A regularizer that gives no loss: overrides that of a scope.

    Source: TensorFlow's `tf.no_regularizer`.
    """
