"""The state of graph construction: current graph, name scope, device and control inputs.

No other module has such state. The state is a stack of `Builder`s, kept per context (`contextvars`), so that threads
and tasks are independent. Each `with` block of this module pushes a builder that differs from the one below it in one
field. All other functions of the user's API call `builder()` for the top of the stack and create their operations
through it.

Outside of graphs the stack is empty. Then operations are added to the graph of their symbolic inputs; without symbolic
inputs they run immediately. The eager builder, which runs them, and the session are in higher layers. This module
reaches them through the `Runtime` that `headrace/__init__.py` installs.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from headrace import flags, nest
from headrace.errors import GraphError
from headrace.ir import graph as ir_graph
from headrace.ir.builder import Builder
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import Operation, Tensor
from headrace.ir.order import Order
from headrace.ir.tensor_type import TensorOperations
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.dtypes import DType
    from headrace.pb import GraphDef, VersionDef

_stack: contextvars.ContextVar[tuple[Builder, ...]] = contextvars.ContextVar("headrace_builders", default=())
_in_eager_call: contextvars.ContextVar[bool] = contextvars.ContextVar("headrace_eager_call", default=False)


class EagerOps(Protocol):
    """Builder that runs ops immediately, such as `eager.EagerBuilder`.

    Each op type is a method, as of `ir.builder.Builder`. The builder owns the state of ops between calls: resources
    with names, streams of random numbers and their seed.

    Attributes:
      tensor_type: the class of its tensors.
      seed: the argument of the last `set_seed`, or None.
    """

    tensor_type: ClassVar[type[Any]]
    seed: int | None

    def make(self, type: str, args: Sequence[Any], attrs: dict[str, Any], name: str | None = None) -> Any:
        """Runs an op; the arguments are those of `Builder.make`."""

    def tensor(self, x: Any, dtype: DType | None = None, name: str = "Const") -> Any:
        """Converts a value to an eager tensor."""

    def const(self, value: Any, dtype: DType | None = None, name: str = "Const") -> Any:
        """Returns an eager tensor with this value."""

    def view(self, x: Any, index: Any) -> Any:
        """Returns `x[index]` for an index of numpy; None if a StridedSlice has to run."""

    def set_seed(self, seed: int | None) -> None:
        """Sets the seed of random ops without their own seed, and rewinds all streams."""

    def take_op_seed(self) -> int:
        """Returns the seed of the next random op without a seed, if `seed` is set."""

    def tape(self, persistent: bool = False) -> Any:
        """Returns a gradient tape (`eager.tape.GradientTape`)."""

    def forget_kernels(self) -> None:
        """Drops the kernels found so far, because kernels were registered."""

    def __getattr__(self, type: str) -> Callable[..., Any]: ...


class Runner(Protocol):
    """Session, as far as the API uses it."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, *exc: object) -> None: ...

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Returns the values of `fetches`; the arguments are those of `Session.run`."""

    def value_callable(
        self, fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Returns a function of values between kernels; see `Session.value_callable`."""


class SessionFactory(Protocol):
    """Creation of a session that runs one graph immediately."""

    def __call__(self, *, graph: ir_graph.Graph) -> Runner: ...


class GraphExporter(Protocol):
    """Conversion of a graph to a `GraphDef` message, lowering included."""

    def __call__(self, graph: Graph, form: str, *, add_shapes: bool, portable: bool) -> GraphDef: ...


@record(frozen=True, slots=True)
class Runtime:
    """Functions of higher layers that graph construction calls but cannot import.

    Attributes:
      eager: runs ops outside of graphs.
      session: creates a session, for functions that must run a graph immediately.
      graph_def: converts a graph to a message (`Graph.as_graph_def`).
      html: draws a graph for a notebook.
      library_function: makes a function of the graph's library of a Python function, whose calls are operations.
      differentiate: makes the gradient of tensors in their graph (`grad.gradients`).
    """

    eager: EagerOps
    session: SessionFactory
    graph_def: GraphExporter
    html: Callable[[Graph], str]
    library_function: Callable[[Callable[..., Any]], Callable[..., Any]]
    differentiate: Callable[..., Any]


_runtime: Runtime | None = None
# Classes whose objects have no graph: a call of `builder` with these alone, or lists of them, needs no walk.
_LISTS = frozenset((list, tuple))
_valued: frozenset[type] = frozenset()
# of the runtime
_eager: EagerOps | None = None
_eager_tensor: type | None = None


def install(runtime: Runtime | None) -> None:
    """Sets the runtime of the process. `headrace/__init__.py` calls it when it is imported or reloaded."""
    global _runtime, _valued, _eager, _eager_tensor
    _runtime = runtime
    _eager, _eager_tensor = (None, None) if runtime is None else (runtime.eager, runtime.eager.tensor_type)
    values: frozenset[type] = frozenset((bool, int, float, complex, str, bytes, type(None), np.ndarray))
    _valued = values | {runtime.eager.tensor_type} if runtime is not None else frozenset()


def runtime() -> Runtime:
    """Returns the installed runtime.

    Raises:
      RuntimeError: none is installed, because the import of headrace has not finished.
    """
    if _runtime is None:
        raise RuntimeError(
            "headrace has no runtime yet, which operations outside of graphs, gradients outside of graphs and "
            "as_graph_def need: its import has not finished. Run them after `import headrace`, or call "
            "`scopes.install(Runtime(...))` first"
        )
    return _runtime


@contextlib.contextmanager
def replaced(runtime: Runtime | None) -> Iterator[None]:
    """Returns a context in which the whole process has another runtime, for tests.

    Args:
      runtime: the other runtime; None: no runtime.
    """
    before = _runtime
    install(runtime)
    try:
        yield
    finally:
        install(before)


class Graph(ir_graph.Graph):
    """Graph that can be entered: `with hr.Graph() as g:` adds new ops to it.

    Stateful ops in it keep the order in which they are written (`ir.order`): a read of a variable waits for earlier
    writes of the variable, and so makes them run. A write waits for earlier reads, or for the whole loop or conditional
    that contains them.

    Args:
      ordered: False disables this order, in branches and bodies too, as in TensorFlow 1: only edges determine the
        order, and only operations that the fetches need run.

    Attributes:
      variables: the variables created in it, in order.
      seed: the graph-level seed (`hr.random.set_seed`), or None.
      kept: the objects to which its ops refer by a name or token, and which exist as long as the graph.
      saver_def: the description of the operations that save and restore the variables of an imported MetaGraph, a
        `headrace.pb.SaverDef`; None without one.

    >>> with Graph() as g:
    ...     current_graph() is g
    True
    """

    def __init__(self, ordered: bool = True) -> None:
        super().__init__()
        self.order = Order() if ordered else None
        self.variables: list[Any] = []
        self.seed: int | None = None
        self.kept: list[Any] = []
        self.saver_def: Any = None

    def finalize(self) -> None:
        """Finalizes the graph: later additions raise a RuntimeError.

        A loop of training steps that adds operations in each iteration would become slower and slower, because each run
        would compile a changed graph.
        """
        self.finalized = True

    def __enter__(self) -> Graph:
        stack = _stack.get()
        # a graph that is entered again inside itself continues in the scope where it was left
        inner = next((b for b in reversed(stack) if b.graph is self), None)
        _stack.set((*stack, inner or Builder(self)))
        return self

    def __exit__(self, *exc: object) -> None:
        stack = _stack.get()
        if not stack or stack[-1].graph is not self:
            raise RuntimeError("graphs must be left in the reverse order of entering them, in the same context")
        _stack.set(stack[:-1])

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Graph]:
        """TensorFlow's name for entering a graph.

        Example:
          >>> g = Graph()
          >>> with g.as_default():
          ...     current_graph() is g
          True
        """
        with self:
            yield self

    @property
    def written_form(self) -> str:
        """The form in which files have conditionals and loops; see `as_graph_def`."""
        return "structured"

    def as_graph_def(self, form: str = "structured", *, add_shapes: bool = False, portable: bool = True) -> GraphDef:
        """Returns the graph as a `headrace.pb.GraphDef` message, in TensorFlow's wire format.

        The graph is written as it was built, without optimization. Operations that only headrace has, such as
        `hr.all_sum`, are written as equivalent operations of TensorFlow.

        Args:
          form: "structured": conditionals, loops and calls are operations (`If`, `While`, `Case`, `PartitionedCall`,
            ...) that name functions of the file's library, as TensorFlow 2 writes them. "primitive": they are expanded
            into `Switch`, `Merge`, `Enter`, `Exit` and `NextIteration`, as TensorFlow 1 writes them, and their results
            are called "cond/Merge:0" and "while/Exit_1:0". Calls of recursive functions stay calls. Operations of a
            branch or body that are not needed are omitted.
          add_shapes: whether each node states the static shapes of its outputs (attribute `_output_shapes`).
          portable: False: operations that only headrace has are written unchanged, and recursive functions, which
            TensorFlow cannot run, are accepted. Such a file is for headrace alone.

        Returns:
          The message.

        Raises:
          ValueError: `form` is unknown.
          GraphError: an operation cannot be written: TensorFlow has no equivalent, or cannot run the recursive function
            that it calls (`portable=False` writes it for headrace); an attribute has no wire form; in primitive form
            also: a called function is missing or does not fit.

        Source: TensorFlow's `tf.Graph.as_graph_def`.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     y = hr.cond(hr.placeholder(hr.bool, ()), lambda: 1, lambda: 2)
          >>> [n.op for n in g.as_graph_def().node]
          ['Placeholder', 'StatelessIf']
          >>> [n.name for n in g.as_graph_def("primitive").node if n.op == "Merge"]
          ['cond/Merge']
        """
        return runtime().graph_def(self, form, add_shapes=add_shapes, portable=portable)

    @property
    def graph_def_versions(self) -> VersionDef:
        """Returns the versions of the imported GraphDefs, or of headrace's format without imports.

        Source: TensorFlow's `tf.Graph.graph_def_versions`.
        """
        from headrace import pb
        from headrace.ir.serial.nodedefs import GRAPH_DEF_VERSION

        producer, min_consumer = self.versions
        return pb.VersionDef(producer=producer or GRAPH_DEF_VERSION, min_consumer=min_consumer)

    def _repr_html_(self) -> str:
        """Returns the notebook's view of the graph: loops, branches and functions as nested boxes."""
        return runtime().html(self)


# *** asking ***


def current_graph() -> ir_graph.Graph | None:
    """Returns the graph for new ops in this context, or None.

    In a branch or body it is the graph of that branch or body.
    """
    stack = _stack.get()
    return stack[-1].graph if stack else None


def builder(*near: Any) -> Any:
    """Returns the builder that creates ops in this context.

    It is the builder of the graph entered last. Outside of graphs it is a builder of the graph of the first symbolic
    tensor among `near` (nested structures included), or else the eager builder.
    """
    stack = _stack.get()
    if stack:
        return stack[-1]
    for x in near:
        if x.__class__ not in _valued and not _is_value(x):
            break
    else:
        return _eager or runtime().eager
    try:
        graph = graph_of(near)
    except RecursionError:
        raise nest.too_deep() from None
    return runtime().eager if graph is None else Builder(graph)


def _is_value(x: Any) -> bool:
    """Whether `x` is a list of values or a variable outside of graphs."""
    kind = x.__class__
    if kind in _LISTS:
        return _valued.issuperset(map(type, x))
    return hasattr(kind, "as_tensor") and getattr(x, "graph", x) is None


def eager_builder_of(x: Any) -> EagerOps | None:
    """Returns the eager builder for an eager tensor outside of graphs, or else None."""
    return _eager if x.__class__ is _eager_tensor and not _stack.get() else None


def graph_of(values: Iterable[Any]) -> ir_graph.Graph | None:
    """Returns the graph of the first symbolic tensor in a structure, or None."""
    for v in values:
        if isinstance(v, Tensor):
            return v.op.graph
        node = nest.nodes[type(v)]
        if node is not None and not node.is_composite:
            found = graph_of(node.as_given(v))
            if found is not None:
                return found
        else:
            graph = getattr(v, "graph", None)
            if isinstance(graph, ir_graph.Graph):
                return graph
    return None


def keep(graph: ir_graph.Graph | None, thing: Any) -> None:
    """Keeps `thing` alive as long as the outermost graph around `graph`.

    Without a graph, it is needed only during the call, so nothing is kept.
    """
    while graph is not None and graph.outer is not None:
        graph = graph.outer
    if graph is not None:
        vars(graph).setdefault("kept", []).append(thing)  # a graph that cannot be entered has no such list yet


def graph_builder(what: str) -> Builder:
    """Returns the builder of the current graph, for functions that require a graph.

    Raises:
      GraphError: no graph has been entered; the text names `what`, which needs one.
    """
    stack = _stack.get()
    if not stack:
        raise GraphError(f"{what} needs a graph: call it inside `with hr.Graph() as g:`")
    return stack[-1]


def is_outside() -> bool:
    """Whether no graph has been entered."""
    return not _stack.get()


def is_eager_call() -> bool:
    """Whether ops run eagerly even where an implicit graph exists (`eager_call`, the flag V1_EAGER)."""
    return bool(_in_eager_call.get() or flags.V1_EAGER.value) and not _stack.get()


# *** changing ***


@contextlib.contextmanager
def eager_call() -> Iterator[None]:
    """Returns a context in which ops run eagerly, even where an implicit graph exists."""
    token = _in_eager_call.set(True)
    try:
        yield
    finally:
        _in_eager_call.reset(token)


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Returns a context outside of all graphs, where ops run eagerly."""
    token = _stack.set(())
    try:
        yield
    finally:
        _stack.reset(token)


@contextlib.contextmanager
def entered(top: Builder) -> Iterator[Builder]:
    """Returns a context in which `top` is the current builder."""
    before = _stack.get()
    _stack.set((*before, top))
    try:
        yield top
    finally:
        _stack.set(before)


class name_scope(contextlib.ContextDecorator):
    """Context that puts new ops' names below `name`, made unique.

    The target of `as` is the prefix ("outer/name/"). A name that ends in "/" is used unchanged, to enter a scope again.
    "" or None leaves all scopes, unless there is a `default_name`. The context is also a decorator of functions.

    Args:
      name: the name of the scope.
      default_name: the name if `name` is None.
      values: tensors that determine the graph outside of `with graph`.

    Source: TensorFlow's `tf.name_scope`.

    Example:
      >>> with Graph() as g, name_scope("layer") as s:
      ...     s
      'layer/'
    """

    __slots__ = ("_before", "_given")

    def __init__(self, name: str | None, default_name: str | None = None, values: Any = None) -> None:
        self._given = name, default_name, values
        self._before: tuple[Builder, ...] | None = None

    def _recreate_cm(self) -> name_scope:
        return name_scope(*self._given)

    def __enter__(self) -> str:
        name, default_name, values = self._given
        b = builder(*(values or ()))
        name = default_name if name is None else name
        if b.graph is None:
            return f"{name}/" if name else ""
        if not name:
            scope = ""
        elif name.endswith("/"):
            scope = name
        else:
            scope = b.graph.unique_name(b.scope + name) + "/"
        self._before = _stack.get()
        _stack.set((*self._before, b.in_scope(scope)))
        return scope

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            _stack.set(self._before)


@contextlib.contextmanager
def device(spec: str | Callable[[Operation], str | None] | None) -> Iterator[None]:
    """Returns a context that requests a device for new ops.

    Args:
      spec: a name ("/device:CPU:1", "/job:worker"), which is merged into that of the surrounding block; a function from
        operation to name; None: no device, independent of surrounding blocks.

    Source: TensorFlow's `tf.device`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g, hr.device("/job:worker"), hr.device("/device:CPU:1"):
      ...     hr.constant(1).device
      '/job:worker/device:CPU:1'
    """
    b = builder()
    if not isinstance(b, Builder):
        yield
        return
    if spec is None:
        top = dataclasses.replace(b, device="", device_function=None)
    elif callable(spec):
        top = dataclasses.replace(b, device_function=_chosen(spec, b.device_function))
    elif not isinstance(spec, str):
        raise TypeError(f"device takes a name (as '/device:CPU:1'), a function or None, got {spec!r}")
    else:
        given = DeviceSpec.from_string(spec)
        merged = DeviceSpec.from_string(b.device).merge(given).to_string() if b.device else given.to_string()
        top = dataclasses.replace(b, device=merged)
    with entered(top):
        yield


def _chosen(
    choose: Callable[[Operation], str | None], outer: Callable[[Operation], str] | None
) -> Callable[[Operation], str]:
    def function(op: Operation) -> str:
        chosen = DeviceSpec.from_string(choose(op) or "")
        merged: str = DeviceSpec.from_string(op.device).merge(chosen).to_string()
        if outer is not None:
            Editor(op.graph).set_device(op, merged)
            merged = outer(op)
        return merged

    return function


@contextlib.contextmanager
def control_dependencies(inputs: Iterable[Operation | TensorOperations] | None) -> Iterator[None]:
    """Returns a context in which new ops wait for `inputs`.

    Args:
      inputs: operations, or tensors, which denote their producers; None: new ops wait for nothing, independent of
        surrounding blocks.

    Source: TensorFlow's `tf.control_dependencies`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(1.0)
      ...     with hr.control_dependencies([v.assign_add(2.0)]):
      ...         after = v.read_value()
      >>> with hr.Session(graph=g) as session:
      ...     session.run(v.initializer)
      ...     session.run(after)
      np.float32(3.0)
    """
    if inputs is not None and (isinstance(inputs, Tensor) or not isinstance(inputs, Iterable)):
        raise TypeError(
            f"control_dependencies takes a list of operations and tensors, got {inputs!r}; put it in a list"
        )
    b = builder(*(inputs or ()))
    if not isinstance(b, Builder):
        yield
        return
    if inputs is None:
        top = dataclasses.replace(b, control_inputs=())
    else:
        top = b.after(*(_operation(b, x) for x in inputs))
    with entered(top):
        yield


def _operation(b: Builder, x: Any) -> Operation:
    if isinstance(x, Operation):
        return x
    if isinstance(x, str):
        found = b.graph.as_graph_element(x)
        return found.op if isinstance(found, Tensor) else found
    own = getattr(x, "op", None)  # a tensor; or a variable, which denotes its initializer
    if isinstance(own, Operation):
        return own
    made = b.own(x)
    if isinstance(made, Tensor):
        return made.op
    raise TypeError(f"control_dependencies takes operations and tensors, got {x!r} ({type(x).__name__})")


@contextlib.contextmanager
def colocate_with(op: Operation | TensorOperations | None, ignore_existing: bool = False) -> Iterator[None]:
    """Returns a context in which new ops are colocated with `op`, and request its device.

    Surrounding `device` blocks have no effect.

    Source: TensorFlow's `tf.colocate_with`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     with hr.device("/cpu:1"):
      ...         x = hr.constant(1.0, name="x")
      ...     with hr.colocate_with(x.op):
      ...         y = hr.identity(x)
      >>> y.op.get_attr("_class")
      ('loc:@x',)
    """
    b = builder(op)
    if not isinstance(b, Builder):
        yield
        return
    names = () if ignore_existing or op is None else b.colocate
    place = ""
    if op is not None:
        target = _operation(b, op)
        names = names if target.name in names else (*names, target.name)
        place = target.device
    # device functions around it would request other devices, such as a worker's for the slots of a variable
    with entered(dataclasses.replace(b, colocate=names, device=place, device_function=None)):
        yield


@contextlib.contextmanager
def gradient_override_map(types: dict[str, str]) -> Iterator[None]:
    """Returns a context in which new ops of the given types have the named gradients.

    Source: TensorFlow's `Graph.gradient_override_map`.
    """
    b = graph_builder("gradient_override_map")
    with entered(dataclasses.replace(b, gradients={**(b.gradients or {}), **types})):
        yield
