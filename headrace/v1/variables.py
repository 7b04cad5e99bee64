"""TensorFlow 1's variables, which are in collections, and functions that change them.

They are resource variables (`headrace.Variable`), or reference variables after `disable_resource_variables`, and where
`use_resource` is False.
"""

from __future__ import annotations

import contextlib
import contextvars
import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, grouping, reductions, reference, scopes, tensors, variable
from headrace.api.partitioned import PartitionedVariable
from headrace.api.traced_graph import current_trace
from headrace.ir import graph as ir_graph
from headrace.ir.graph import Operation, Tensor
from headrace.ir.notes import LateFetch
from headrace.v1.graph import GraphKeys, get_collection, get_default_graph, in_default_graph
from headrace.v1.session import session_for
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.variable_scopes import get_variable_scope


class VariableSynchronization(enum.Enum):
    """Time at which copies of a variable are synchronized. headrace makes no copies.

    ON_READ makes a variable not trainable; the other values have no effect.
    """

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """Method of aggregating copies of a variable.

    It has no effect, because headrace makes no copies.
    """

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = 3  # noqa: PIE796 - an older name


def synchronized(
    synchronization: Any, aggregation: Any, trainable: bool | None, name: str | None
) -> tuple[VariableSynchronization, VariableAggregation, bool]:
    """Resolves the synchronization, aggregation and trainability of a variable.

    Args:
      synchronization: a `VariableSynchronization`. None: AUTO.
      aggregation: a `VariableAggregation`. None: NONE.
      trainable: a bool. None: False for ON_READ, else True.
      name: name of the variable, for messages.

    Raises:
      ValueError: the synchronization or aggregation does not exist.
    """
    try:
        how = VariableAggregation(VariableAggregation.NONE if aggregation is None else aggregation)
    except ValueError as e:
        raise ValueError(f"Invalid variable aggregation mode: {aggregation} for variable: {name}") from e
    try:
        when = VariableSynchronization(VariableSynchronization.AUTO if synchronization is None else synchronization)
    except ValueError as e:
        raise ValueError(f"Invalid variable synchronization mode: {synchronization} for variable: {name}") from e
    return when, how, when is not VariableSynchronization.ON_READ if trainable is None else trainable


_Creator = Callable[..., Any]

# Functions that make variables, and the graphs for which they do, from the outermost on.
_creators: contextvars.ContextVar[tuple[tuple[Any, _Creator], ...]] = contextvars.ContextVar(
    "headrace_variable_creators", default=()
)


@contextlib.contextmanager
def variable_creator_scope(variable_creator: _Creator) -> Iterator[None]:
    """Enters a context in which a function makes the variables of the default graph.

    Args:
      variable_creator: a function of `next_creator` and the arguments of `tf.Variable`, as keywords. It returns a
        variable, usually that of `next_creator(**kwargs)`. The innermost function is called first.

    Source: TensorFlow's `tf.variable_creator_scope`.

    Example:
      >>> import headrace.v1 as tf
      >>> def fixed(next_creator, **kwargs):
      ...     return next_creator(**{**kwargs, "trainable": False})
      >>> with tf.Graph().as_default(), tf.variable_creator_scope(fixed):
      ...     v = tf.Variable(1.0)
      ...     v.trainable
      False
    """
    token = _creators.set((*_creators.get(), (get_default_graph(), variable_creator)))
    try:
        yield
    finally:
        _creators.reset(token)


class _Created(type(variable.Variable)):  # type: ignore[misc]
    """The class of `Variable`, whose calls reach the functions of `variable_creator_scope`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        creators = _creators.get()
        if not creators or cls is not Variable:
            return super().__call__(*args, **kwargs)
        graph = get_default_graph()
        given = inspect.signature(Variable.__init__).bind(None, *args, **kwargs)
        given.apply_defaults()
        make: _Creator = super().__call__
        for of_graph, creator in creators:
            if of_graph is graph:
                make = functools.partial(creator, make)
        return make(**{name: value for name, value in given.arguments.items() if name != "self"})


class Variable(variable.Variable, metaclass=_Created):
    """Variable: a tensor that keeps its value between steps. See `headrace.Variable`.

    Args:
      initial_value: a value that converts to a tensor, or a function without arguments that returns such a value.
      trainable: whether the variable is added to GraphKeys.TRAINABLE_VARIABLES. None: yes, unless `synchronization` is
        ON_READ.
      collections: collections to which the variable is added. None: GraphKeys.GLOBAL_VARIABLES.
      validate_shape: if False, values of any shape can be assigned.
      caching_device: accepted as in TensorFlow, without effect.
      name: name of the variable in the current name scope. None: "Variable".
      variable_def: a `VariableDef` message. The variable is the one that it describes, and no operations are added.
      import_scope: name scope that is put before the names in `variable_def`.
      dtype: dtype of the variable. None: that of `initial_value`.
      expected_shape, shape: static shape that each value must fit.
      constraint: function that optimizers apply to each new value, or None.
      use_resource: if False, the variable of a graph is a `ReferenceVariable`. None: as the variable scope says, and
        then `resource_variables_enabled`.
      synchronization: a `VariableSynchronization`; see there.
      aggregation: a `VariableAggregation`; see there.

    Source: TensorFlow's `tf.Variable`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     v = tf.Variable([1.0, 2.0], name="v")
      ...     sess.run(tf.global_variables_initializer())
      ...     v.name, v.eval()
      ('v:0', array([1., 2.], dtype=float32))
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Iterable[Any] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Any = None,
        use_resource: bool | None = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
        shape: Any = None,
    ) -> None:
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            found = self.from_proto(variable_def, import_scope)
            if type(self) is Variable:
                self.__class__ = type(found)
            vars(self).update(vars(found))
            return
        if type(self) is Variable and not _makes_resource(use_resource):
            self.__class__ = ReferenceVariable
        if use_resource is not True:
            self._notes_of_fetch = (LateFetch(),)
        if constraint is not None and not callable(constraint):
            raise ValueError(f"The `constraint` argument must be a callable, got {constraint!r}")
        when, how, trainable = synchronized(synchronization, aggregation, trainable, name)
        keys = [GraphKeys.GLOBAL_VARIABLES] if collections is None else list(collections)
        if trainable and GraphKeys.TRAINABLE_VARIABLES not in keys:
            keys.append(GraphKeys.TRAINABLE_VARIABLES)
        self._enter_and_make(
            initial_value, trainable, name, dtype, expected_shape if shape is None else shape,
            validate_shape, constraint,
        )  # fmt: skip
        self._synchronization, self._aggregation = when.value, how.value
        get_default_graph().add_to_collections(keys, self)

    # defaults for variables that are read from a `VariableDef`, without the constructor
    _synchronization = VariableSynchronization.AUTO.value
    _aggregation = VariableAggregation.NONE.value

    @property
    def synchronization(self) -> VariableSynchronization:
        """Synchronization that was given."""
        return VariableSynchronization(self._synchronization)

    @property
    def aggregation(self) -> VariableAggregation:
        """Aggregation that was given."""
        return VariableAggregation(self._aggregation)

    _enter_and_make = in_default_graph(variable.Variable.__init__)

    def to_proto(self) -> Any:
        """Returns a `VariableDef` message with the names of the variable's operations."""
        from headrace.interchange.variables import encode_variable

        return encode_variable(self, "structured" if self.graph is None else get_default_graph().written_form)

    @staticmethod
    def from_proto(variable_def: Any, import_scope: str | None = None) -> Any:
        """Returns the variable that a `VariableDef` message describes, in the default graph.

        Args:
          variable_def: a message of headrace or TensorFlow.
          import_scope: name scope that is put before the names in the message.

        Raises:
          GraphError: the message does not describe a variable.
          KeyError: the graph does not contain an operation.
        """
        from headrace.interchange.variables import decode_variable

        prefix = f"{import_scope}/" if import_scope else ""
        graph = get_default_graph()

        def find(name: str) -> Tensor | Operation:
            if ":" not in name:
                return graph.get_operation_by_name(prefix + name)
            return ir_graph.Graph.get_tensor_by_name(graph, prefix + name)  # the handle, not its value

        return decode_variable(variable_def, find, KINDS)

    def batch_scatter_update(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Any:
        """Replaces rows of each matrix of a batch; see `tf.batch_scatter_update`.

        Args:
          sparse_delta: an `IndexedSlices` of the rows.
          use_locking: not used; changes never overlap.
          name: of the scope of the operations.
        """
        return batch_scatter_update(self, sparse_delta.indices, sparse_delta.values, use_locking, name)

    def set_shape(self, shape: Any) -> None:
        """Checks the static shape, which a variable has from the beginning.

        Args:
          shape: a shape.

        Raises:
          ValueError: the variable has another shape.
        """
        TensorShape(self.shape).assert_is_compatible_with(TensorShape(shape))

    def after(self, op: Operation) -> Any:
        """Returns the variable after an operation that changes it, as the methods that assign do.

        Args:
          op: the operation.
        """
        return self._changed(self._builder(), op, read_value=True)

    def get_shape(self) -> TensorShape:
        """Returns the static shape, a `TensorShape`."""
        return TensorShape(self.shape)

    def eval(self, session: Any = None, feed_dict: Any = None) -> Any:
        """Returns the value of the variable in a session.

        Args:
          session: the session. None: the default session.
          feed_dict: the feeds of the run.
        """
        return self._in(session, "eval").run(self, feed_dict)

    def load(self, value: Any, session: Any = None) -> None:
        """Assigns a value in a session, without adding operations to the graph.

        Args:
          value: the value.
          session: the session. None: the default session.
        """
        # the initializer assigns its second input, which is fed here
        self._in(session, "load").run(self.initializer, {self.initializer.inputs[1]: value})

    def _in(self, session: Any, method: str) -> Any:
        assert self.graph is not None
        return session_for(self, self.graph, session, method)


class ReferenceVariable(reference.ReferenceVariable, Variable):
    """Reference variable of a graph. See `headrace.api.reference.ReferenceVariable`."""


KINDS = (Variable, ReferenceVariable)  # classes of the variables that `VariableDef`s describe


# *** collections of variables ***


def _listing(name: str, key: str, what: str) -> Any:
    def function(scope: str | None = None) -> list[Any]:
        return get_collection(key, scope)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what} of the default graph; with `scope`, those whose name this regular expression matches.

    Source: TensorFlow's `tf.{name}`.
    """
    return function


global_variables = _listing("global_variables", GraphKeys.GLOBAL_VARIABLES, "The global variables")
local_variables = _listing("local_variables", GraphKeys.LOCAL_VARIABLES, "The local variables")
trainable_variables = _listing("trainable_variables", GraphKeys.TRAINABLE_VARIABLES, "The trainable variables")
model_variables = _listing("model_variables", GraphKeys.MODEL_VARIABLES, "The variables in the model collection")
moving_average_variables = _listing(
    "moving_average_variables", GraphKeys.MOVING_AVERAGE_VARIABLES, "The variables that have moving averages"
)


def all_variables() -> list[Any]:
    """Older name of `global_variables`.

    Source: TensorFlow's `tf.all_variables`.
    """
    return get_collection(GraphKeys.GLOBAL_VARIABLES)


# *** initializing ***


@in_default_graph
def variables_initializer(var_list: Iterable[Any], name: str = "init") -> Operation:
    """Returns an operation that initializes the variables of a list.

    Args:
      var_list: the variables.
      name: name of the operation.

    Source: TensorFlow's `tf.variables_initializer`.
    """
    made = grouping.group(*(v.initializer for v in var_list), name=name)
    assert made is not None
    return made


def global_variables_initializer() -> Operation:
    """Returns an operation that initializes all global variables that exist now.

    Source: TensorFlow's `tf.global_variables_initializer`.
    """
    return variables_initializer(global_variables())


def local_variables_initializer() -> Operation:
    """Returns an operation that initializes all local variables that exist now.

    Source: TensorFlow's `tf.local_variables_initializer`.
    """
    return variables_initializer(local_variables())


initialize_variables = variables_initializer
initialize_all_variables = global_variables_initializer
initialize_local_variables = local_variables_initializer


@in_default_graph
def is_variable_initialized(variable: Any, name: str | None = None) -> Any:
    """Returns whether a variable is initialized, a bool scalar tensor.

    Args:
      variable: the variable.
      name: name of the operation.

    Source: TensorFlow's `tf.is_variable_initialized`.
    """
    if isinstance(variable, Tensor):
        return scopes.builder(variable).make("IsVariableInitialized", (variable,), {}, name)
    return variable.is_initialized(name)


@in_default_graph
def report_uninitialized_variables(
    var_list: Iterable[Any] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """Returns the names of the uninitialized variables, a string vector.

    Args:
      var_list: the variables. None: all global and local variables that exist now.
      name: name of the scope of the operations.

    Source: TensorFlow's `tf.report_uninitialized_variables`.
    """
    asked = [*global_variables(), *local_variables()] if var_list is None else list(var_list)
    with scopes.name_scope(name):
        b = scopes.builder()
        names: Tensor = b.const(np.array([v.op.name.encode() for v in asked], object), dtypes.string)
        if not asked:
            return names
        missing = b.LogicalNot(b.Pack([v.is_initialized() for v in asked]))
        made: Tensor = b.Gather(names, b.Squeeze(b.Where(missing), squeeze_dims=(1,)))
        return made


@in_default_graph
def assert_variables_initialized(var_list: Iterable[Any] | None = None) -> Operation | None:
    """Returns an operation that fails with `FailedPreconditionError` if a variable is uninitialized.

    Args:
      var_list: the variables. None: all global and local variables that exist now.

    Returns:
      The operation. None: there are no variables.

    Source: TensorFlow's `tf.assert_variables_initialized`.
    """
    asked = [*global_variables(), *local_variables()] if var_list is None else list(var_list)
    return grouping.group(*(v.value() for v in asked)) if asked else None


# *** changing ***


def _is_reference(ref: Any) -> bool:
    return isinstance(ref, Tensor) and ref.dtype.is_ref


@in_default_graph
def assign(
    ref: Any, value: Any, validate_shape: bool | None = None, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Assigns a value to a variable.

    Args:
      ref: the variable, or a reference to a variable, such as the result of an assignment.
      value: the value, of the variable's dtype and shape.
      validate_shape: for a reference: whether the shape must fit. Without effect for other variables: those created
        with `validate_shape=False` accept values of any shape.
      use_locking: accepted as in TensorFlow, without effect: assignments are atomic.
      name: name of the operation.

    Returns:
      The new value, which can be run and used as a tensor.

    Source: TensorFlow's `tf.assign`.
    """
    if validate_shape is False and isinstance(ref, ReferenceVariable):
        ref = ref.handle
    if _is_reference(ref):
        attrs = {"validate_shape": validate_shape is not False}
        return scopes.builder(ref).make("Assign", (ref, value), attrs, name)
    return _variable(ref, "assign").assign(value, name=name)


@in_default_graph
def assign_add(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Adds a value to a variable.

    Args:
      ref, value, use_locking, name: see `assign`.

    Source: TensorFlow's `tf.assign_add`.
    """
    if _is_reference(ref):
        return scopes.builder(ref).make("AssignAdd", (ref, value), {}, name)
    return _variable(ref, "assign_add").assign_add(value, name=name)


@in_default_graph
def assign_sub(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Subtracts a value from a variable.

    Args:
      ref, value, use_locking, name: see `assign`.

    Source: TensorFlow's `tf.assign_sub`.
    """
    if _is_reference(ref):
        return scopes.builder(ref).make("AssignSub", (ref, value), {}, name)
    return _variable(ref, "assign_sub").assign_sub(value, name=name)


@in_default_graph
def count_up_to(ref: Any, limit: int, name: str | None = None) -> Any:
    """Increments a variable up to a limit, and returns its previous value.

    Args:
      ref: an integer scalar variable.
      limit: the limit. A step fails with `OutOfRangeError` if the variable has this value.
      name: name of the scope of the operations.

    Source: TensorFlow's `tf.count_up_to`.
    """
    with scopes.name_scope(name, "CountUpTo"):
        return _variable(ref, "count_up_to").count_up_to(limit)


def _variable(ref: Any, who: str) -> Any:
    is_whole = isinstance(ref, PartitionedVariable) and hasattr(ref, who)  # a partitioned variable lacks some methods
    if not is_whole and not isinstance(ref, variable.Variable):
        raise TypeError(f"{who} takes a variable, got {ref!r} ({type(ref).__name__})")
    return ref


def _scatter(what: str, does: str) -> Any:
    @in_default_graph
    def function(ref: Any, indices: Any, updates: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
        if _is_reference(ref):
            kind = "Scatter" + "".join(word.capitalize() for word in what.split("_"))
            return scopes.builder(ref).make(kind, (ref, indices, updates), {}, name)
        return getattr(_variable(ref, f"scatter_{what}"), f"scatter_{what}")(indices, updates, name)

    function.__name__ = function.__qualname__ = f"scatter_{what}"
    rows = "slices" if what.startswith("nd_") else "rows"
    function.__doc__ = f"""{does} the {rows} of a variable at `indices`.

    Args:
      ref: the variable.
      indices: int32 or int64, of any shape; for slices, the last axis has the index of one.
      updates: of the shape of the {rows}; for rows, or a scalar.
      use_locking: not used; changes never overlap.
      name: of the operation.

    Returns:
      What can be run and used as a tensor: the whole value after the change.

    Source: TensorFlow's `tf.scatter_{what}`.
    """
    return function


@in_default_graph
def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Replaces rows of each matrix of a batch: `ref[i, indices[i, j]] = updates[i, j]`.

    Args:
      ref: the variable.
      indices: int32 or int64, of known rank. The axes before the last one are those of the batch.
      updates: of shape `indices.shape + shape of a row`.
      use_locking: not used; changes never overlap.
      name: of the scope of the operations.

    Returns:
      The variable after the change: it can be run and used as a tensor.

    Source: TensorFlow's `tf.batch_scatter_update`.
    """
    with scopes.name_scope(name, "batch_scatter_update", [ref, indices, updates]) as scope:
        at = tensors.convert_to_tensor(indices)
        shape, rank = arrays.shape(at, out_type=at.dtype), len(at.shape)
        grid = [
            arrays.broadcast_to(
                arrays.reshape(reductions.range(shape[d]), [-1 if d == e else 1 for e in range(rank)]), shape
            )
            for d in range(rank - 1)
        ]
        return scatter_nd_update(ref, arrays.stack([*grid, at], -1), updates, name=scope)


scatter_update = _scatter("update", "Replaces")
scatter_add = _scatter("add", "Adds to")
scatter_sub = _scatter("sub", "Subtracts from")
scatter_mul = _scatter("mul", "Multiplies")
scatter_div = _scatter("div", "Divides")
scatter_min = _scatter("min", "Puts the smaller of two values into")
scatter_max = _scatter("max", "Puts the larger of two values into")
scatter_nd_update = _scatter("nd_update", "Replaces")
scatter_nd_add = _scatter("nd_add", "Adds to")
scatter_nd_sub = _scatter("nd_sub", "Subtracts from")


# *** resource variables ***


def enable_resource_variables() -> None:
    """Makes resource variables the default, as they are at the start.

    Source: TensorFlow's `tf.enable_resource_variables`.
    """
    global _enabled
    _enabled = True


def disable_resource_variables() -> None:
    """Makes reference variables the default of graphs. Eager variables remain resource variables.

    Source: TensorFlow's `tf.disable_resource_variables`.
    """
    global _enabled
    _enabled = False


def resource_variables_enabled() -> bool:
    """Returns whether resource variables are the default.

    Source: TensorFlow's `tf.resource_variables_enabled`.
    """
    return _enabled


_enabled = True


def _makes_resource(use_resource: bool | None) -> bool:
    """Whether a new variable is a resource variable, given the argument."""
    if scopes.is_eager_call() or current_trace() is not None:
        return True
    if use_resource is None:
        use_resource = get_variable_scope().use_resource
    return _enabled if use_resource is None else use_resource
