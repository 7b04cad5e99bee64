"""Variables by name: `get_variable` makes one or finds it again, below the names and defaults of `variable_scope`s.

A graph keeps the variables made by `get_variable`; the scope one is in belongs to the thread (or task), as in
TensorFlow 1. Name scopes do not matter for variables' names, only variable scopes do.
"""

from __future__ import annotations

import contextlib
import contextvars
import enum
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from headrace import dtypes
from headrace.build import gathering, scopes
from headrace.build.partitioned import mark_part
from headrace.dtypes import DType, as_dtype
from headrace.ir.graph import Tensor
from headrace.v1 import initializers
from headrace.v1.graph import Graph, GraphKeys, get_default_graph, in_default_graph, scope_in_default_graph
from headrace.v1.partitioned import PartitionedVariable, PartitionInfo, ask, cut
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.variables import Variable


class Reuse(enum.Enum):
    """How a variable scope treats variables that exist already."""

    AUTO_REUSE = 1

    def __repr__(self) -> str:
        return "tf.AUTO_REUSE"


AUTO_REUSE = Reuse.AUTO_REUSE

Getter: TypeAlias = Callable[..., Any]

_scopes: contextvars.ContextVar[tuple[tuple[Graph, VariableScope], ...]] = contextvars.ContextVar(
    "headrace_variable_scopes", default=()
)


class VariableScope:
    """The prefix of new variables' names, and what they are made with unless `get_variable` is told otherwise.

    Attributes:
      name: prefix ("" for the outermost scope).
      original_name_scope: the name scope that was opened when this scope was first entered.
      reuse: None or False (variables are made), True (they are found), or AUTO_REUSE (found, else made).
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, constraint: defaults of
        `get_variable`.

    Source: TensorFlow's `tf.VariableScope`.
    """

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Getter | None = None,
        name_scope: str = "",
        dtype: Any = dtypes.float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self.name, self.reuse = name, reuse
        self.initializer, self.regularizer, self.constraint = initializer, regularizer, constraint
        self.caching_device, self.partitioner, self.custom_getter = caching_device, partitioner, custom_getter
        self.original_name_scope = name_scope
        self.dtype = as_dtype(dtype)
        self.use_resource = use_resource

    def reuse_variables(self) -> None:
        """From now on, in this scope variables are found, not made."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Sets the default initializer."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        """Sets the default regularizer."""
        self.regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        """Sets the default device for copies of the variables' values."""
        self.caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        """Sets the default function that says into how many parts variables are cut."""
        self.partitioner = partitioner

    def set_custom_getter(self, custom_getter: Getter | None) -> None:
        """Sets the function through which variables are got."""
        self.custom_getter = custom_getter

    def set_dtype(self, dtype: Any) -> None:
        """Sets the default dtype."""
        self.dtype = as_dtype(dtype)

    def get_collection(self, name: Any) -> list[Any]:
        """What a collection of the graph has below this scope."""
        return get_default_graph().get_collection(name, self.name + "/" if self.name else None)

    def global_variables(self) -> list[Any]:
        """The global variables below this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """The local variables below this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def trainable_variables(self) -> list[Any]:
        """The trainable variables below this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def __repr__(self) -> str:
        return f"<VariableScope {self.name!r} reuse={self.reuse!r}>"


def get_variable_scope() -> VariableScope:
    """The variable scope one is in.

    Source: TensorFlow's `tf.get_variable_scope`.
    """
    graph = get_default_graph()
    for g, scope in reversed(_scopes.get()):
        if g is graph:
            return scope
    if graph.root_scope is None:
        graph.root_scope = VariableScope(None)
    root: VariableScope = graph.root_scope  # may be told to reuse, too
    return root


# *** scopes ***


@contextlib.contextmanager
def _pure_scope(graph: Graph, scope: VariableScope) -> Iterator[VariableScope]:
    """Makes `scope` the current one. Default names below it begin anew when it is left."""
    counts = graph.scope_counts
    counts[scope.name] = counts.get(scope.name, 0) + 1
    before = _scopes.get()
    _scopes.set((*before, (graph, scope)))
    try:
        yield scope
    finally:
        _scopes.set(before)
        for name in [n for n in counts if n.startswith(scope.name + "/")]:
            del counts[name]


def _unique(graph: Graph, outer: str, prefix: str) -> str:
    """`prefix`, with a number behind it if there was such a scope below `outer`."""
    full = f"{outer}/{prefix}" if outer else prefix
    counts, i, name = graph.scope_counts, 0, prefix
    while counts.get(full if not i else f"{full}_{i}", 0):
        i += 1
        name = f"{prefix}_{i}"
    return name


@scope_in_default_graph
@contextlib.contextmanager
def variable_scope(
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Getter | None = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Puts a name before those of variables, sets defaults for `get_variable`, and opens a name scope.

    Args:
      name_or_scope: a name below the current scope; or a scope, which is entered again wherever one is.
      default_name: the name if `name_or_scope` is None, made unique.
      values: not used; what TensorFlow found the graph by.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, constraint: defaults of
        `get_variable`; None: as in the scope around. Custom getters of scopes around are called by those inside.
      reuse: True: variables are found, and an error if they are not there. AUTO_REUSE: found, or made. None, False: as
        in the scope around.
      use_resource: not used: all variables are resource variables.
      auxiliary_name_scope: whether a name scope of the same name is opened for ops.

    Yields:
      The `VariableScope`.

    Raises:
      ValueError: neither name nor default name; `reuse=True` with a default name.

    Source: TensorFlow's `tf.variable_scope`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     with tf.variable_scope("layer"):
      ...         v = tf.get_variable("v", [2])
      ...     with tf.variable_scope("layer", reuse=True):
      ...         v.name, tf.get_variable("v") is v
      ('layer/v:0', True)
    """
    if reuse not in (None, True, False, AUTO_REUSE):
        raise ValueError(f"reuse must be True, False, None or tf.AUTO_REUSE, got {reuse!r}")
    if name_or_scope is None and default_name is None:
        raise TypeError("variable_scope needs a name_or_scope, or a default_name")
    if name_or_scope is not None and not isinstance(name_or_scope, (str, VariableScope)):
        raise TypeError(f"name_or_scope must be a string or a VariableScope, got {name_or_scope!r}")
    graph, outer = get_default_graph(), get_variable_scope()
    if name_or_scope is None:
        if reuse:
            raise ValueError("reuse=True cannot be used without a name_or_scope: a default name is that of a new scope")
        assert default_name is not None
        name_or_scope = _unique(graph, outer.name, default_name)
    with contextlib.ExitStack() as stack:
        last = name_or_scope if isinstance(name_or_scope, str) else name_or_scope.name.rpartition("/")[2]
        opened = graph.get_name_scope()
        if auxiliary_name_scope and last:
            # a default name is unique among variable scopes; its name scope may get another number
            opened = stack.enter_context(scopes.name_scope(last))
        elif opened:
            opened += "/"
        if isinstance(name_or_scope, VariableScope):
            base = name_or_scope
            name, opened = base.name, base.original_name_scope
        else:
            base = outer
            name = f"{outer.name}/{name_or_scope}" if outer.name else name_or_scope
        given = {"initializer": initializer, "regularizer": regularizer, "caching_device": caching_device,
                 "partitioner": partitioner, "dtype": dtype, "constraint": constraint,
                 "use_resource": use_resource}  # fmt: skip
        settings = {k: getattr(base, k) if v is None else v for k, v in given.items()}
        getter = _nested(base.custom_getter, custom_getter)
        scope = VariableScope(reuse or base.reuse, name, name_scope=opened, custom_getter=getter, **settings)
        yield stack.enter_context(_pure_scope(graph, scope))


def _nested(outer: Getter | None, inner: Getter | None) -> Getter | None:
    """A custom getter that gives the inner one the outer one to get variables by."""
    if outer is None or inner is None:
        return inner or outer

    def both(getter: Getter, *args: Any, **kwargs: Any) -> Any:
        return inner(functools.partial(outer, getter), *args, **kwargs)

    return both


def variable_op_scope(
    values: Any, name_or_scope: Any, default_name: str | None = None, *args: Any, **kwargs: Any
) -> Any:
    """`variable_scope` with its arguments in an older order.

    Source: TensorFlow's `tf.variable_op_scope`.
    """
    return variable_scope(name_or_scope, default_name, values, *args, **kwargs)


# *** variables ***


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
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """The variable of that name below the current variable scope: made, or found if the scope reuses variables.

    Args:
      name: below the scope's name.
      shape: of a new variable; of one found, what is to be compared with. Not needed if `initializer` is a value.
      dtype: None: the scope's (float32).
      initializer: an initializer (an object or class that is called with shape and dtype), or a value (number, array,
        tensor). None: the scope's; else numbers of Glorot's uniform distribution for floats, and zeros for others.
      regularizer: given a new variable, a loss, which goes into GraphKeys.REGULARIZATION_LOSSES (None: the scope's).
      trainable: whether it goes into GraphKeys.TRAINABLE_VARIABLES; True if None.
      collections: where it goes; None: GraphKeys.GLOBAL_VARIABLES.
      caching_device: where a copy of its value is kept during a step.
      partitioner: a function of shape and dtype that says into how many parts each axis is cut, such as
        `tf.fixed_size_partitioner` makes (None: the scope's, if it has one). Scalars are never cut.
      validate_shape: whether the shape of the first value must be known.
      use_resource, synchronization, aggregation: not used.
      custom_getter: a function that is called instead, with a getter to call and all of these arguments.
      constraint: kept with the variable, for optimizers.

    Returns:
      The `Variable`; with a partitioner a `PartitionedVariable` of parts named "name/part_0" and so on. Its initializer
      is called for each part with that one's shape, and with `partition_info`, if it takes that; a value is cut.

    Raises:
      ValueError: it exists and is not to be reused, or does not exist and is; shapes or dtypes do not agree; a
        partitioner gives what is no way to cut the variable, or another one than it is cut.

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
    scope = get_variable_scope()
    given = {"initializer": initializer, "regularizer": regularizer, "caching_device": caching_device,
             "partitioner": partitioner, "constraint": constraint}  # fmt: skip
    wanted = {k: getattr(scope, k) if v is None else v for k, v in given.items()}
    if dtype is None and not _is_value(wanted["initializer"]):
        dtype = scope.dtype
    elif dtype is None:
        dtype = getattr(wanted["initializer"], "dtype", None)
    getter = _nested(scope.custom_getter, custom_getter)
    full = f"{scope.name}/{name}" if scope.name else name
    arguments = {
        "shape": shape, "dtype": None if dtype is None else as_dtype(dtype).base, "reuse": scope.reuse,
        "trainable": trainable, "collections": collections, "validate_shape": validate_shape,
        "use_resource": use_resource, "synchronization": synchronization, "aggregation": aggregation, **wanted,
    }  # fmt: skip
    with scopes.name_scope(None):
        if getter is None:
            return _get(full, **arguments)
        return getter(_get, name=full, **arguments)


def _is_value(initializer: Any) -> bool:
    return initializer is not None and not callable(initializer)


def _get(
    name: str,
    shape: Any = None,
    dtype: DType | None = None,
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
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """`get_variable` when names and defaults have been settled; what custom getters are given."""
    graph = get_default_graph()
    given = {"regularizer": regularizer, "reuse": reuse, "trainable": trainable, "collections": collections,
             "caching_device": caching_device, "validate_shape": validate_shape, "constraint": constraint}  # fmt: skip
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
    dtype: DType | None,
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
    dtype = dtype or dtypes.float32
    partitions = None if partitioner is None else ask(partitioner, shape, dtype)
    found: PartitionedVariable | None = graph.partitioned_store.get(name)
    if found is not None:
        if not given["reuse"]:
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
                first = gathering.slice(b.tensor(initializer, dtype), offset, size)
        info = PartitionInfo(dims, offset)
        wanted_shape = None if _is_value(initializer) else TensorShape(size)
        made = _get_one(full, wanted_shape, dtype, first, partition_info=info, **given)
        mark_part(made, name, dims, offset, size)
        parts.append(made)
    graph.partitioned_store[name] = PartitionedVariable(name, dims, parts[0].dtype, parts, partitions)
    return graph.partitioned_store[name]


def _get_one(
    name: str,
    shape: TensorShape | None,
    dtype: DType | None,
    initializer: Any,
    regularizer: Any,
    reuse: Any,
    trainable: bool | None,
    collections: Any,
    caching_device: Any,
    validate_shape: bool,
    constraint: Any,
    partition_info: PartitionInfo | None = None,
) -> Any:
    """`_get`, of a variable in one piece, or of one part."""
    known = TensorShape(None) if shape is None else shape
    if shape is not None and _is_value(initializer):
        raise ValueError("If initializer is a constant, do not specify shape: the variable has that of the value.")
    store = get_default_graph().variable_store
    found = store.get(name)
    if found is not None:
        if not reuse:
            raise ValueError(
                f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in "
                f"VarScope? It was made at {found.op.source}"
            )
        if not known.is_compatible_with(found.get_shape()):
            raise ValueError(
                f"Trying to share variable {name}, but specified shape {known} and found shape {found.get_shape()}."
            )
        if dtype is not None and dtype != found.dtype.base:
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
        initializer = _default_initializer(name, dtype or dtypes.float32)
    if not _is_value(initializer):
        if not known.is_fully_defined() and not inspect.isfunction(initializer):
            raise ValueError(f"Shape of a new variable ({name}) must be fully defined, but instead was {known}.")
        initializer = _initial_value(initializer, known, dtype, partition_info)
    made = Variable(
        initializer, trainable=trainable is not False, collections=collections, validate_shape=validate_shape,
        caching_device=caching_device, name=name, dtype=dtype, constraint=constraint,
        shape=shape,
    )  # fmt: skip
    store[name] = made
    if regularizer is not None:
        with scopes.colocate_with(made.op), scopes.name_scope(name + "/Regularizer/"):
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
    if dtype.is_integer or dtype.is_bool:
        return initializers.Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype.name} is required")


def _initial_value(
    initializer: Any, shape: TensorShape, dtype: DType | None, partition_info: PartitionInfo | None
) -> Callable[[], Any]:
    if isinstance(initializer, type):
        initializer = initializer()
    if shape.ndims is None:  # a function that knows its shape
        return initializer  # type: ignore[no-any-return]
    more = {"partition_info": partition_info} if _takes(initializer, "partition_info") else {}
    return lambda: initializer(shape.as_list(), dtype=dtype, **more)


def _takes(f: Callable[..., Any], argument: str) -> bool:
    try:
        return argument in inspect.signature(f).parameters
    except (TypeError, ValueError):  # one of C's says nothing
        return False


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
