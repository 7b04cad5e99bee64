"""TensorFlow 1's graphs: the implicit default graph, collections, seeds.

Only `headrace.v1` has an implicit graph. Outside of every `with`, its functions use this graph: each function is
wrapped in `in_default_graph`, which enters the graph for the time of the call. So the lower packages, which ask
`api.scopes` for the current graph, need no support for it.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from headrace.api import random, scopes
from headrace.errors import GraphError
from headrace.ir import graph as ir_graph
from headrace.ir.graph import Operation, Tensor
from headrace.v1 import overrides, tensor
from headrace.v1.device_spec import request

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from headrace.pb import GraphDef


class GraphKeys:
    """Names of the standard collections of a graph.

    Source: TensorFlow's `tf.GraphKeys`.
    """

    GLOBAL_VARIABLES = "variables"
    VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    TRAINABLE_RESOURCE_VARIABLES = "trainable_resource_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    CONCATENATED_VARIABLES = "concatenated_variables"
    SAVEABLE_OBJECTS = "saveable_objects"
    SAVERS = "savers"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    UPDATE_OPS = "update_ops"
    LOSSES = "losses"
    REGULARIZATION_LOSSES = "regularization_losses"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    TRAIN_OP = "train_op"
    GLOBAL_STEP = "global_step"
    EVAL_STEP = "eval_step"
    RESOURCES = "resources"
    LOCAL_RESOURCES = "local_resources"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"


class Graph(scopes.Graph):
    """Graph with TensorFlow 1's semantics, with collections and a seed.

    Stateful operations are ordered by control dependencies only, and not automatically. The results of conditionals and
    loops have TensorFlow 1's names, "cond/Merge:0" and "while/Exit:0".

    Attributes:
      seed: the graph-level seed (`set_random_seed`), or None.

    Source: TensorFlow's `tf.Graph`.

    Example:
      >>> with Graph().as_default() as g:
      ...     g.add_to_collection("numbers", 1)
      ...     g.get_collection("numbers")
      [1]
    """

    tensor_type = tensor.Tensor

    def __init__(self) -> None:
        super().__init__(ordered=False)
        self.shows_primitives = True
        self.separates_imports = True  # as reference variables are, TensorFlow 1's usual ones
        self._op_seeds = 0
        self.current_container = ""
        self._collections: dict[Any, list[Any]] = {}
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Operation] = set()
        # state of `get_variable` (variables by name, also partitioned ones) and of `variable_scope`
        self.variable_store: dict[str, Any] = {}
        self.partitioned_store: dict[str, Any] = {}
        self.variable_scopes: Any = None

    def as_graph_def(self, form: str | None = None, *, add_shapes: bool = False, portable: bool = True) -> GraphDef:
        """Returns the graph as a `headrace.pb.GraphDef` message; see `headrace.Graph.as_graph_def`.

        Args:
          form: "structured" or "primitive". None: "primitive" if control flow v2 is disabled
            (`disable_control_flow_v2`, `disable_v2_behavior`). Then the nodes of conditionals and loops are those of
            TensorFlow 1: Switch, Merge, Enter, Exit, NextIteration, LoopCond.
          add_shapes: whether each node states the static shapes of its outputs.
          portable: whether operations that only headrace has are written as equivalent operations of TensorFlow.

        Returns:
          The message.

        Source: TensorFlow's `tf.Graph.as_graph_def`.
        """
        return super().as_graph_def(
            self.written_form if form is None else form, add_shapes=add_shapes, portable=portable
        )

    @property
    def written_form(self) -> str:
        """Form of conditionals and loops in files: "structured" or "primitive"."""
        return "structured" if _control_flow_v2 else "primitive"

    def take_op_seed(self) -> int:
        """Returns the op seed of the next random op that has no seed."""
        self._op_seeds += 1
        return self._op_seeds - 1

    def get_tensor_by_name(self, name: str) -> Tensor:
        """Returns the tensor "op:index".

        The name of a variable ("v:0") is that of its value, as in TensorFlow 1.

        Args:
          name: the name.
        """
        found = super().get_tensor_by_name(name)
        if found.op.type == "VarHandleOp":
            for v in self.variables:
                if v.handle is found:
                    value: Tensor = v.graph_element
                    return value
        return found

    def as_fed_element(self, obj: object) -> Tensor:
        """Returns the tensor that a feed replaces.

        A feed of "v:0" replaces all reads of the variable `v`.

        Args:
          obj: a tensor, a variable or a name.
        """
        found = super().as_fed_element(obj)
        if not self.is_feedable(found):
            raise ValueError(f"Tensor {found.name} may not be fed (prevent_feeding).")
        if found.op.type == "ReadVariableOp":
            for v in self.variables:
                if v.graph_element is found:
                    fed: Tensor = v.fed_element
                    return fed
        return found

    # *** collections ***

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Appends a value to a collection.

        Args:
          name: name of the collection.
          value: the value.
        """
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Appends a value to several collections.

        Args:
          names: names of the collections, or the name of one.
          value: the value.
        """
        for name in dict.fromkeys((names,) if isinstance(names, str) else names):
            self.add_to_collection(name, value)

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """Returns a copy of a collection.

        Args:
          name: name of the collection.
          scope: a regular expression. Only elements whose names match it are returned. None: all elements.
        """
        found = self._collections.get(name, [])
        if scope is None:
            return list(found)
        pattern = re.compile(scope)
        return [x for x in found if hasattr(x, "name") and pattern.match(x.name)]

    def get_collection_ref(self, name: Any) -> list[Any]:
        """Returns a collection itself, so that changes of the list change the collection.

        Args:
          name: name of the collection.
        """
        return self._collections.setdefault(name, [])

    def get_all_collection_keys(self) -> list[Any]:
        """Returns the names of the collections that are not empty."""
        return [k for k, v in self._collections.items() if v]

    @property
    def collections(self) -> list[Any]:
        """Names of all collections."""
        return list(self._collections)

    def clear_collection(self, name: Any) -> None:
        """Removes all elements of a collection.

        Args:
          name: name of the collection.
        """
        self._collections.pop(name, None)

    # *** methods for what `headrace.v1` also has as functions ***

    def name_scope(self, name: str | None) -> Any:
        """`tf.name_scope` in this graph."""
        return self._within(lambda: scopes.name_scope(name))

    def device(self, spec: Any) -> Any:
        """`tf.device` in this graph."""
        return self._within(lambda: scopes.device(request(spec)))

    def control_dependencies(self, inputs: Any) -> Any:
        """`tf.control_dependencies` in this graph."""
        return self._within(lambda: scopes.control_dependencies(inputs))

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Any:
        """`tf.colocate_with` in this graph."""
        return self._within(lambda: scopes.colocate_with(op, ignore_existing))

    def gradient_override_map(self, op_type_map: dict[str, str]) -> Any:
        """Assigns registered gradients (`RegisterGradient`) to op types, for operations in the context.

        Args:
          op_type_map: a dict from op types to names of gradients.
        """
        return self._within(lambda: scopes.gradient_override_map(op_type_map))

    @contextlib.contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Sets the resource container of variables and queues that are created in the context.

        Args:
          container_name: name of the container.
        """
        before, self.current_container = self.current_container, container_name
        try:
            yield container_name
        finally:
            self.current_container = before

    def _within(self, make: Callable[[], Any]) -> Any:
        @contextlib.contextmanager
        def enter() -> Iterator[Any]:
            with contextlib.ExitStack() as stack:
                if root_graph() is not self:
                    stack.enter_context(self)
                yield stack.enter_context(make())

        return enter()

    def get_name_scope(self) -> str:
        """Returns the current name scope, without a final slash."""
        if root_graph() is not self:
            return ""
        return str(scopes.builder().scope).removesuffix("/")

    def prevent_feeding(self, tensor: Tensor) -> None:
        """Makes feeds of a tensor an error, in all later runs.

        Args:
          tensor: the tensor.
        """
        self._unfeedable.add(tensor)
        self._grew()  # compiled steps may feed it

    def is_feedable(self, tensor: Tensor) -> bool:
        """Whether a tensor may be fed.

        Args:
          tensor: the tensor.
        """
        return tensor not in self._unfeedable

    def prevent_fetching(self, op: Operation) -> None:
        """Makes fetches of an operation and its outputs an error, in all later runs.

        Args:
          op: the operation.
        """
        self._unfetchable.add(op)
        self._grew()  # compiled steps may fetch it

    def is_fetchable(self, tensor_or_op: Tensor | Operation) -> bool:
        """Whether a tensor or operation may be fetched.

        Args:
          tensor_or_op: the tensor or operation.
        """
        return (tensor_or_op.op if isinstance(tensor_or_op, Tensor) else tensor_or_op) not in self._unfetchable

    def as_fetched_element(self, obj: object) -> Tensor | Operation:
        """Returns the tensor or operation that `obj` denotes as a fetch.

        Args:
          obj: a tensor, an operation, a variable or a name.

        Raises:
          ValueError: `prevent_fetching` excludes it.
        """
        found = super().as_fetched_element(obj)
        if not self.is_fetchable(found):
            op = found.op if isinstance(found, Tensor) else found
            raise ValueError(f"Operation {op.name!r} has been marked as not fetchable (prevent_fetching).")
        return found

    # *** making operations by type ***

    def create_op(
        self,
        op_type: str,
        inputs: Sequence[Tensor],
        dtypes: Any = None,
        input_types: Any = None,
        name: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        op_def: Any = None,
        compute_shapes: bool = True,
        compute_device: bool = True,
    ) -> Operation:
        """Creates an operation of a type.

        Args:
          op_type: the op type.
          inputs: the flat list of its inputs.
          dtypes, input_types, op_def, compute_shapes, compute_device: accepted as in TensorFlow, without effect: the
            record of the type has the dtypes.
          name: name of the operation. One that ends in a slash is taken without the name scope.
          attrs: the attributes, `AttrValue` messages. The inputs determine those of their dtypes and numbers.

        Raises:
          NotFoundError: the type is not registered.
          GraphError: the inputs or attributes do not fit.

        Source: TensorFlow's `tf.Graph.create_op`.
        """
        from headrace.v1.operations import created  # a slow import: the messages of the wire format

        with self._within(contextlib.nullcontext):
            return created(op_type, inputs, name, attrs or {})

    def op_def_for_type(self, type: str) -> Any:
        """Returns the definition of an op type, an `OpDef` message.

        Args:
          type: the op type.

        Raises:
          NotFoundError: the type is not registered.
        """
        from headrace.v1.operations import definition  # a slow import: the messages of the wire format

        return definition(type)

    def num_operations(self) -> int:
        """Returns the number of operations."""
        return len(self)

    @contextlib.contextmanager
    def new_operations(self) -> Iterator[list[Operation]]:
        """Returns a context whose list has the new operations once its block has ended."""
        first, made = len(self), list[Operation]()
        yield made
        made += self.operations[first:]

    @property
    def building_function(self) -> bool:
        """Whether the graph is that of a function: never."""
        return False

    def switch_to_thread_local(self) -> None:
        """Does nothing: the device, name scope and control dependencies of a thread are its own."""


# *** the default graph ***


class _Default:
    """Holder of the implicit default graph, which all threads share, as in TensorFlow 1."""

    graph: Graph | None = None


def _implicit() -> Graph:
    if _Default.graph is None:
        _Default.graph = Graph()
    return _Default.graph


def root_graph() -> ir_graph.Graph | None:
    """Returns the graph entered last, outside of branches and loop bodies, or None."""
    top = scopes.current_graph()
    while top is not None and top.outer is not None:
        top = top.outer
    return top


def get_default_graph() -> Graph:
    """Returns the graph to which new operations are added.

    This is the graph that this thread entered last, or the implicit default graph.

    Source: TensorFlow's `tf.get_default_graph`.

    Raises:
      GraphError: the graph entered last is not a graph of `headrace.v1`.
    """
    top = root_graph()
    if top is None:
        return _implicit()
    if not isinstance(top, Graph):
        raise GraphError(f"the graph entered last, {top!r}, is no graph of headrace.v1: enter a tf.Graph() instead")
    return top


def reset_default_graph() -> None:
    """Replaces the implicit default graph by a new, empty graph.

    Source: TensorFlow's `tf.reset_default_graph`.

    Raises:
      AssertionError: a graph has been entered.
    """
    if not scopes.is_outside():
        raise AssertionError(
            "reset_default_graph replaces the implicit default graph, and is of no use inside `with tf.Graph()`, in a "
            "scope or in a session's `with`; make a new tf.Graph() instead"
        )
    _Default.graph = None


def in_default_graph(f: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that calls `f` in the default graph.

    It enters the implicit default graph, unless a graph has been entered or the caller is the function of a
    `py_function`. Overrides are asked before.

    Args:
      f: the function.
    """

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if overrides.registered:
            found: Any = overrides.call(call, args, kwargs)
            if found is not NotImplemented:
                made: R = found
                return made
        if not scopes.is_outside() or scopes.is_eager_call():
            return f(*args, **kwargs)
        with _implicit():
            return f(*args, **kwargs)

    return call


_CALL: Final = in_default_graph(lambda: None).__code__


def takes_overrides(f: Callable[..., Any]) -> bool:
    """Whether a function is one of the API, as `in_default_graph` returns."""
    return getattr(f, "__code__", None) is _CALL


def scope_in_default_graph(f: Callable[P, contextlib.AbstractContextManager[R]]) -> Any:
    """Returns a function like `f`, whose context manager also enters the default graph.

    See `in_default_graph`.

    Args:
      f: a function that returns a context manager.
    """

    @functools.wraps(f)
    @contextlib.contextmanager
    def enter(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        if not scopes.is_outside() or scopes.is_eager_call():
            with f(*args, **kwargs) as got:
                yield got
            return
        with _implicit(), f(*args, **kwargs) as got:
            yield got

    return enter


def executing_eagerly() -> bool:
    """Whether ops run at once: in a `py_function`, or after `enable_eager_execution`.

    Source: TensorFlow's `tf.executing_eagerly`.
    """
    return scopes.is_eager_call()


# *** the form of control flow ***


def enable_control_flow_v2() -> None:
    """Makes exported graphs contain conditionals and loops as single operations, the default.

    Source: TensorFlow's `tf.enable_control_flow_v2`.
    """
    global _control_flow_v2
    _control_flow_v2 = True


def disable_control_flow_v2() -> None:
    """Makes exported graphs contain TensorFlow 1's primitives (Switch, Merge, Enter); see `Graph.as_graph_def`.

    In the graph itself a conditional or loop remains one operation, whose results have TensorFlow 1's names.

    Source: TensorFlow's `tf.disable_control_flow_v2`.
    """
    global _control_flow_v2
    _control_flow_v2 = False


def control_flow_v2_enabled() -> bool:
    """Returns whether exported graphs contain conditionals and loops as single operations.

    Source: TensorFlow's `tf.control_flow_v2_enabled`.
    """
    return _control_flow_v2


_control_flow_v2 = True


# *** collections of the default graph ***


def add_to_collection(name: Any, value: Any) -> None:
    """Appends a value to a collection of the default graph.

    Args:
      name: name of the collection.
      value: the value.

    Source: TensorFlow's `tf.add_to_collection`.
    """
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Iterable[Any], value: Any) -> None:
    """Appends a value to several collections of the default graph.

    Args:
      names: names of the collections, or the name of one.
      value: the value.

    Source: TensorFlow's `tf.add_to_collections`.
    """
    get_default_graph().add_to_collections(names, value)


def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """Returns a copy of a collection of the default graph.

    Args:
      key: name of the collection.
      scope: a regular expression. Only elements whose names match it are returned. None: all elements.

    Source: TensorFlow's `tf.get_collection`.
    """
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> list[Any]:
    """Returns a collection of the default graph itself, so that it can be changed.

    Args:
      key: name of the collection.

    Source: TensorFlow's `tf.get_collection_ref`.
    """
    return get_default_graph().get_collection_ref(key)


# *** seeds ***


def set_random_seed(seed: int | None) -> None:
    """Sets the graph-level seed of the default graph.

    Random ops that are created later draw the same numbers in each session.

    Args:
      seed: an int, or None.

    Source: TensorFlow's `tf.set_random_seed`.
    """
    get_default_graph().seed = seed


@in_default_graph
def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """Returns the two seeds of a random op.

    If neither the graph-level seed nor the op seed is given, both results are None, and the numbers differ between
    sessions. If only the graph-level seed is given, the op seed is the number of random ops without a seed that were
    created before.

    Args:
      op_seed: seed of the op, or None.

    Source: TensorFlow's `tf.get_seed`.
    """
    if get_default_graph().seed is None and op_seed is None:
        return None, None
    found = random.seeds(op_seed)
    return found["seed"], found["seed2"]
