"""The graph: operations, the tensors that are their outputs, and the edges between them.

    with hr.Graph() as g: ...

A `Graph` owns `Operation`s in the order of their creation. An operation has data inputs (tensors), control inputs
(operations that must finish first), attributes, a requested device and the user's line that created it. A user's graph
only grows, through the methods of this module; private copies change through `ir.edit.editor.Editor`. Import and
recovery also settle a user's graph with an editor. Each change increments `Graph.version`. `tests/test_graph_writes.py`
finds assignments anywhere else. Creation order is *not* topological, because a loop's back edge refers to a later
operation; `ir.walk` sorts operations topologically.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace import forking, nest, recursion, shapes
from headrace.errors import GraphError, NotFoundError
from headrace.ir import opdef as opdefs
from headrace.ir.attr_values import Owned
from headrace.ir.notes import NO_NOTES, Note, Notes, as_notes
from headrace.ir.primitive_names import result_index, visible_name
from headrace.ir.source import Source
from headrace.ir.static_info import Handle, StaticInfo
from headrace.ir.uncopyable import Uncopyable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.dtypes import DType
    from headrace.shapes import Shape

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*\Z")

_unset: Any = object()


class Tensor(StaticInfo, Uncopyable):
    """Output of an operation. A tensor equals only itself, so it can key feed dicts.

    Attributes:
      op: the operation that produces the tensor.
      index: the number of the output.
      dtype: the element type (a reference dtype if the tensor carries a variable).
      shape: the static shape: a tuple of ints and Nones, or None for an unknown rank.
      static_shape: the same shape, which is a tuple in subclasses too (see `ir.symbolic`).
      handle: for resource and variant tensors, (dtype, shape) of the contents, if known (`ir.static_info`).

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (None, 2), name="x")
      >>> x.name, x.shape, x.dtype
      ('x:0', (None, 2), headrace.float32)
    """

    __slots__ = ("_constant", "dtype", "index", "op")

    _refusal = "a Tensor belongs to its graph and"
    op: Operation

    def __init__(self, op: Operation, index: int, dtype: DType, shape: Shape = None) -> None:
        self.op = op
        self.index = index
        self.dtype = dtype
        self.static_shape = shape
        self.handle = None
        self._constant: Any = _unset  # memo of ir.infer.constant_value

    @property
    def name(self) -> str:
        """Name of the tensor: `"op name:index"`.

        In a graph that shows primitives, a result of a conditional or loop has the name of its primitive
        ("cond/Merge:0", "while/Exit_1:0").
        """
        op = self.op
        if op.opdef.structured and op.graph.shows_primitives:
            return f"{visible_name(op.name, op.opdef.structured, self.index)}:0"
        return f"{op.name}:{self.index}"

    @property
    def graph(self) -> Graph:
        """Graph that contains the tensor's operation."""
        return self.op.graph

    @property
    def device(self) -> str:
        """Device requested for the tensor's operation; "" for none."""
        return self.op.device

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r} shape={shapes.show(self.static_shape)} dtype={self.dtype.name}>"


class Operation(Uncopyable):
    """Node of the graph, created by the methods of `Graph` only.

    Attributes:
      graph: the graph that contains the operation.
      name: the name, unique in the graph.
      type: the op type.
      opdef: the record of the op type.
      inputs: the data inputs.
      control_inputs: the operations that must finish before this one starts.
      attrs: attribute name → value (see `ir.attr_values` for the Python types).
      notes: facts that passes recorded about the operation (`ir.notes`).
      device: the requested device string, "" for none.
      source: the user's line, if known.
      id: the position in the graph.
      outputs: the output tensors.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.identity(1.0, name="x")
      >>> x.op.type, [t.name for t in x.op.inputs]
      ('Identity', ['x/input:0'])
    """

    __slots__ = (
        "attrs",
        "control_inputs",
        "device",
        "graph",
        "id",
        "inputs",
        "name",
        "notes",
        "opdef",
        "outputs",
        "source",
        "type",
    )

    _refusal = "an Operation belongs to its graph and"

    def __init__(
        self,
        graph: Graph,
        name: str,
        record: opdefs.OpDef,
        inputs: list[Tensor],
        control_inputs: list[Operation],
        attrs: dict[str, Any],
        device: str,
        source: Source | None,
        made: Sequence[DType] | None = None,
        notes: Notes = NO_NOTES,
    ) -> None:
        """Creates an operation.

        Args:
          graph: the graph that will contain the operation.
          name: the name.
          record: the record of the op type.
          inputs: the data inputs.
          control_inputs: the control inputs.
          attrs: the complete attributes.
          device: the requested device, "" for none.
          source: the user's line, if known.
          made: the dtypes of the outputs; None: computed from the record and `attrs`.
          notes: the notes.
        """
        self.graph = graph
        self.name = name
        self.type = record.type
        self.opdef = record
        self.inputs = inputs
        self.control_inputs = control_inputs
        self.attrs = attrs
        self.notes = notes
        self.device = device
        self.source = source
        self.id = -1
        made = record.output_dtypes(attrs) if made is None else made
        kind = graph.tensor_type
        self.outputs: tuple[Tensor, ...] = tuple([kind(self, i, d) for i, d in enumerate(made)])

    def get_attr(self, name: str) -> Any:
        """Returns the value of an attribute (TensorFlow's method).

        Raises:
          ValueError: the operation has no attribute `name`.
        """
        try:
            return self.attrs[name]
        except KeyError:
            pass
        raise ValueError(
            f"operation {self.name!r} ({self.type}) has no attribute {name!r}; it has {sorted(self.attrs)}"
        )

    def __repr__(self) -> str:
        return f"<Operation {self.name!r} type={self.type}>"


nest.describe.register(Tensor, lambda t: f"the tensor {t.name!r}")
nest.describe.register(Operation, lambda op: f"the operation {op.name!r}")


class Ordering(Protocol):
    """The source of a graph's control edges between stateful operations (`ir.order.Order`)."""

    def after(self, op: Operation) -> Iterable[Operation]:
        """Records `op` as the latest operation and returns the operations that must precede it."""
        ...


class EncodedFunction(Protocol):
    """A function of a graph's library in serialized form (`ir.serial.functiondef.EncodedFunction`)."""

    @property
    def data(self) -> bytes:
        """The serialized `FunctionDef`."""
        ...

    def decode(self, home: Graph) -> FuncGraph:
        """Returns the function as a graph; `home` is the graph with the library."""
        ...


class Graph(Uncopyable):
    """Growing set of operations with unique names.

    Attributes:
      version: the number of changes, including those of graphs that operations of this graph own. It is part of the key
        under which compiled steps are cached.
      outer: the graph that contains the operation that owns this graph (`ir.function`); None for a graph without owner.
      is_part: whether a change of this graph is a change of `outer` too.
      forward: if this graph is a gradient, the graph that it differentiates, whose tensors it may capture
        (`grad.graph`).
      tensor_type: the class of its tensors.
      library: serialized TensorFlow functions that came with an imported graph, by name.
      functions: the functions that operations call by name; see `function`.
      gradient_functions: function name → name of the function that computes its gradient, as stated in a file.
      versions: (producer, min_consumer) of the imported `GraphDef`.
      order: the object that keeps stateful operations in creation order (`ir.order`); None: no order is kept.
      separates_imports: whether variables imported into a scope are distinct from variables of the same name elsewhere.
      shows_primitives: whether results of conditionals and loops have TensorFlow 1's names ("cond/Merge:0").
      finalized: whether adding an operation is an error.
      replaced: result of a primitive (an Exit, a Merge) → result of the recovered loop or conditional that replaces it.
    """

    _refusal = "a Graph"
    _instead = "export it with as_graph_def() and import that"
    outer: Graph | None = None
    forward: Graph | None = None
    tensor_type: type[Tensor] = Tensor
    is_part: bool = True  # a change of this graph changes `outer` too

    def __init__(self) -> None:
        self.version = 0
        self.library: dict[str, EncodedFunction] = {}
        self.functions: dict[str, FuncGraph] = {}
        self.gradient_functions: dict[str, str] = {}
        self.versions: tuple[int, int] = (0, 0)
        self.order: Ordering | None = None
        self.shows_primitives = self.separates_imports = self.finalized = False
        self.replaced: dict[Tensor, Tensor] = {}
        self._operations: list[Operation] = []
        self._by_name: dict[str, Operation] = {}
        self._taken: dict[str, int] = {}  # lower-cased names and scopes in use -> next suffix to try
        self._lock = threading.RLock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.RLock()

    # *** reading ***

    @property
    def operations(self) -> Sequence[Operation]:
        """All operations in the order of their making."""
        return self._operations

    def get_operations(self) -> list[Operation]:
        """Returns the operations as a list (TensorFlow's method)."""
        return list(self._operations)

    def __len__(self) -> int:
        return len(self._operations)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def find(self, name: str) -> Operation | None:
        """Returns the operation called `name`, or None."""
        return self._by_name.get(name)

    def get_operation_by_name(self, name: str) -> Operation:
        """Returns the operation called `name`.

        The names of the primitive form, such as "cond/Merge" and "while/Exit_1", denote the conditional and the loop.

        Raises:
          KeyError: no operation has the name. The text lists similar names.
          ValueError: the name is that of a tensor.
        """
        op = self._by_name.get(name)
        if op is not None:
            return op
        if ":" in name:
            raise ValueError(f"Name {name!r} appears to refer to a Tensor, not a Operation.")
        found = self.find_visible(name)
        if found is None:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph{self._near(name)}")
        return found.op

    def get_tensor_by_name(self, name: str) -> Tensor:
        """Returns the tensor called `name`, which has the form `"op:index"`.

        Raises:
          ValueError: the name does not have this form.
          KeyError: the operation or the output does not exist.
        """
        op_name, colon, index = name.rpartition(":")
        if not colon or not index.isdigit():
            raise ValueError(f"{name!r} is no tensor name; a tensor is named '<operation>:<output index>'")
        op = self._by_name.get(op_name)
        if op is None and index == "0":
            found = self.find_visible(op_name)
            if found is not None:
                return found
        if op is None:
            raise KeyError(
                f"The name {name!r} refers to a Tensor which does not exist: no operation {op_name!r} "
                f"is in the graph{self._near(op_name)}"
            )
        if int(index) >= len(op.outputs):
            raise KeyError(
                f"The name {name!r} refers to a Tensor which does not exist: the operation {op_name!r} "
                f"({op.type}) has {len(op.outputs)} outputs"
            )
        return op.outputs[int(index)]

    def as_graph_element(
        self, obj: object, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Tensor | Operation:
        """Returns the tensor or operation that `obj` denotes in this graph.

        Args:
          obj: a tensor or operation, its name, or an object with a `graph_element` (a variable).
          allow_tensor: whether the result may be a tensor.
          allow_operation: whether the result may be an operation.

        Raises:
          ValueError: the element is in another graph, or the name denotes the kind of element that is not allowed.
          KeyError: the graph has no element of that name.
          TypeError: `obj` is of the kind that is not allowed, or it denotes no element.
        """
        if hasattr(type(obj), "graph_element"):
            obj = obj.graph_element  # type: ignore[attr-defined]
        if isinstance(obj, (Tensor, Operation)):
            if obj.graph is not self:
                raise ValueError(f"{obj!r} is not an element of this graph: {foreign(obj, self)}")
            if isinstance(obj, Tensor) and not allow_tensor:
                raise TypeError(f"{obj!r} is a tensor; an operation is needed here")
            if isinstance(obj, Operation) and not allow_operation:
                raise TypeError(f"{obj!r} is an operation; a tensor is needed here")
            return obj
        if isinstance(obj, str):
            name = obj.removeprefix("^")
            if ":" in name and allow_tensor:
                return self.get_tensor_by_name(name)
            if allow_operation and ":" not in name:
                return self.get_operation_by_name(name)
            if ":" in name:
                raise ValueError(f"{obj!r} names a tensor; the name of an operation is needed here")
            if name in self._by_name:
                raise ValueError(f"{obj!r} names an operation, not a tensor; perhaps you meant '{name}:0'")
            raise ValueError(f"{obj!r} is no tensor name; a tensor is named '<operation>:<output index>'")
        raise TypeError(f"cannot use {obj!r} ({type(obj).__name__}) as a tensor or operation of a graph")

    def as_fed_element(self, obj: object) -> Tensor:
        """Returns the tensor that `obj` denotes as the key of a feed.

        The rules are those of `as_graph_element`, except that a variable denotes its handle.
        """
        if hasattr(type(obj), "fed_element"):
            obj = obj.fed_element  # type: ignore[attr-defined]
        found = self.as_graph_element(obj, allow_operation=False)
        assert isinstance(found, Tensor)
        return found

    def as_fetched_element(self, obj: object) -> Tensor | Operation:
        """Returns the tensor or operation that `obj` denotes as a fetch."""
        return self.as_graph_element(obj)

    def find_visible(self, name: str) -> Tensor | None:
        """Returns the result of a structured operation by its primitive form's name, or None."""
        owner, _, end = name.rpartition("/")
        op = self._by_name.get(owner)
        index = None if op is None else result_index(op.opdef.structured, end)
        return None if op is None or index is None or index >= len(op.outputs) else op.outputs[index]

    def function(self, name: str, caller: Operation | None = None) -> FuncGraph:
        """Returns the function that operations of this graph or its nested graphs call.

        A function of the library is decoded on the first request. If this graph does not have the function, the graphs
        around it are searched.

        Args:
          name: the name of the function.
          caller: the operation that calls it, for the error text.

        Raises:
          NotFoundError: no graph has the function.
          GraphError: the definition of the function cannot be read.
        """
        graph = self
        while True:
            found = graph.functions.get(name)
            if found is not None:
                return found
            if name in graph.library:
                return graph.functions.setdefault(name, graph.library[name].decode(graph))
            if graph.outer is None:
                text = f"Function {name!r} is not in the library of the graph{graph._near_function(name)}"
                if caller is None:
                    raise NotFoundError(text)
                made = f", made at {caller.source}" if caller.source else ""
                raise NotFoundError(f"{text}; '{caller.name}' ({caller.type}{made}) calls it", caller.name, caller)
            graph = graph.outer

    def _near_function(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, [*self.functions, *self.library], n=3)
        return "; near: " + ", ".join(map(repr, near)) if near else ""

    def _near(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, self._by_name, n=3)
        return "; near: " + ", ".join(map(repr, near)) if near else ""

    # *** changing ***

    def unique_name(self, base: str, mark_as_used: bool = True) -> str:
        """Returns `base`, or `base_1`, `base_2`, ...: a name that no operation or scope has.

        Upper and lower case are equal in this comparison, as in TensorFlow.

        Args:
          base: the preferred name.
          mark_as_used: whether the name counts as taken from now on.
        """
        key = base.lower()
        with self._lock:
            n = self._taken.get(key)
            name, lowered = base, key
            if n is None and base in self._by_name:  # a copy has taken the name after an editor released it
                n = 1
            if n is not None:
                while True:
                    name, lowered = f"{base}_{n}", f"{key}_{n}"
                    n += 1
                    if lowered not in self._taken and name not in self._by_name:
                        break
                if mark_as_used:
                    self._taken[key] = n
            if mark_as_used:
                self._taken[lowered] = 1
            return name

    def add_op(
        self,
        type: str,
        name: str,
        inputs: Sequence[Tensor] = (),
        attrs: Mapping[str, Any] | None = None,
        control_inputs: Iterable[Operation] = (),
        device: str = "",
        source: Source | None = None,
        unchecked_back_edges: bool = False,
        notes: Iterable[Note] = (),
    ) -> Operation:
        """Appends an operation, after checks of its type, inputs and attributes.

        Args:
          type: a registered op type.
          name: the name, which must be free (`unique_name` returns a free one).
          inputs: the flat data inputs, tensors of this graph.
          attrs: the complete attributes (`OpDef.complete_attrs` or `infer_attrs` returns them).
          control_inputs: the operations that must finish first.
          device, source: the device and the user's line; see `Operation`.
          unchecked_back_edges: whether a Merge may have fewer inputs than its attribute `N` until `set_back_edge` adds
            the others.
          notes: the notes; see `Operation`.

        Returns:
          The operation. The shapes of its outputs are not inferred yet; see `ir.infer.infer_shapes`.

        Raises:
          NotFoundError: the op type is not registered.
          GraphError: the name is invalid or taken, or the inputs do not fit.
        """
        try:
            record = opdefs.op_registry.get(type)
        except LookupError as e:
            raise NotFoundError(f"Op type not registered '{type}' (operation {name!r}): {e}", name) from e.__cause__
        inputs = list(inputs)
        for t in inputs:
            if t.op.graph is not self:
                raise GraphError(f"operation {name!r} ({type}): {foreign(t, self)}")
        complete = record.complete_attrs(attrs or {})
        if not unchecked_back_edges:
            record.check_inputs(complete, [t.dtype for t in inputs])
        controls = list(dict.fromkeys(control_inputs))
        for c in controls:
            if c.graph is not self:
                raise GraphError(f"operation {name!r} ({type}) has the control input {c!r} of another graph")
        return self.add_checked(record, name, inputs, complete, controls, device, source, notes)

    def add_checked(
        self,
        record: opdefs.OpDef,
        name: str,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        control_inputs: Iterable[Operation],
        device: str = "",
        source: Source | None = None,
        notes: Iterable[Note] = (),
    ) -> Operation:
        """Appends an operation whose inputs, control inputs and attributes the caller (the `Builder`) has checked.

        Args:
          record: the record of the op type.
          name: the name, which must be free.
          inputs: the flat data inputs.
          attrs: the complete attributes.
          control_inputs: the operations that must finish first.
          device, source, notes: the device, the user's line and the notes; see `Operation`.

        Raises:
          GraphError: the name is invalid or taken.
          RuntimeError: the graph is finalized.
        """
        self._check_open()
        if not _NAME.match(name):
            raise GraphError(
                f"{name!r} is not a valid operation name: Node name contains invalid characters "
                "(letters, digits and _ . / \\ > - are valid, and the first is a letter, a digit or a dot)"
            )
        controls = list(dict.fromkeys(control_inputs)) if control_inputs else []
        op = Operation(self, name, record, inputs, controls, attrs, device, source, None, as_notes(notes))
        with self._lock:
            if name in self._by_name:
                raise GraphError(f"Node {name!r} is not unique: the graph has an operation of that name already")
            op.id = len(self._operations)
            self._operations.append(op)
            self._by_name[name] = op
            self._taken.setdefault(name.lower(), 1)
            self._grew()
        return op

    def copy_op(
        self,
        op: Operation,
        inputs: Sequence[Tensor | None],
        control_inputs: Sequence[Operation],
        name: str | None = None,
        attrs: dict[str, Any] | None = None,
        device: str | None = None,
    ) -> Operation:
        """Appends a copy of `op`, with its shapes, notes and source line.

        Args:
          op: an operation of this or another graph.
          inputs: the inputs of the copy. None is a Merge's back edge, which `set_back_edge` supplies later.
          control_inputs: the control inputs of the copy.
          name, attrs, device: the values of the copy; None: those of `op`. The copy shares the attributes of `op`.

        Returns:
          The copy.

        Raises:
          GraphError: the name is taken.
          RuntimeError: the graph is finalized.
        """
        self._check_open()
        reads: list[Tensor] = list(inputs)  # type: ignore[arg-type]  # back edges follow
        copy = self._copy_of(op, name or op.name, reads, list(control_inputs))
        if attrs is not None:
            copy.attrs = attrs
        if device is not None:
            copy.device = device
        with self._lock:
            if copy.name in self._by_name:
                raise GraphError(f"Node {copy.name!r} is not unique: the graph has an operation of that name already")
            copy.id = len(self._operations)
            self._operations.append(copy)
            self._by_name[copy.name] = copy
            self._taken.setdefault(copy.name.lower(), 1)
            self._grew()
        return copy

    def _copy_of(self, op: Operation, name: str, inputs: list[Tensor], controls: list[Operation]) -> Operation:
        """Returns a copy of `op` that is not in the graph yet.

        The copy has the shapes, the notes and the source line of `op`.
        """
        made = [t.dtype for t in op.outputs]
        copy = Operation(self, name, op.opdef, inputs, controls, op.attrs, op.device, op.source, made, op.notes)
        for old, new in zip(op.outputs, copy.outputs):
            new.static_shape, new.handle = old.static_shape, old.handle
        return copy

    def copy_ops(
        self, ops: Sequence[Operation], moved: dict[Tensor, Tensor], copies: dict[Operation, Operation]
    ) -> None:
        """Appends copies of operations of another graph under their names.

        Args:
          ops: the operations, in any order. The copies share their attributes.
          moved: tensor that `ops` read → its replacement here. Outputs of the copies are added, except for tensors that
            have a replacement.
          copies: operation that `ops` wait for → its replacement here. The copies are added. Other control inputs are
            dropped.

        Raises:
          GraphError: a name is taken.
          RuntimeError: the graph is finalized.
        """
        self._check_open()
        first = len(self._operations)
        made: list[Operation] = []
        for i, op in enumerate(ops, first):
            copies[op] = copy = self._copy_of(op, op.name, [], [])
            copy.id = i
            for old, new in zip(op.outputs, copy.outputs):
                moved.setdefault(old, new)
            made.append(copy)
        for op, copy in zip(ops, made, strict=True):
            copy.inputs = [moved[t] for t in op.inputs]
            if op.control_inputs:
                copy.control_inputs = list(dict.fromkeys([copies[c] for c in op.control_inputs if c in copies]))
        with self._lock:
            names = {copy.name: copy for copy in made}
            if len(names) < len(made) or not self._by_name.keys().isdisjoint(names):
                raise GraphError(f"names of copies are not unique in {self.title}")
            self._operations += made
            self._by_name.update(names)
            for name in names:
                self._taken.setdefault(name.lower(), 1)
            self._grew()

    def set_back_edge(self, merge: Operation, index: int, value: Tensor) -> None:
        """Sets input `index` of a Merge to `value`, the output of a later NextIteration.

        Raises:
          GraphError: `merge` is no Merge, or the two are in different graphs.
        """
        if merge.opdef.primitive != "Merge":
            raise GraphError(f"{merge!r} cannot take a back edge; only a Merge can")
        if value.op.graph is not self or merge.graph is not self:
            raise GraphError(f"the back edge {value!r} -> {merge!r} joins two graphs")
        with self._lock:
            if index == len(merge.inputs):
                merge.inputs.append(value)
            else:
                merge.inputs[index] = value
            self._grew()

    def add_control_input(self, op: Operation, before: Operation) -> None:
        """Makes `op` wait for `before`.

        Raises:
          GraphError: one of them is in another graph.
        """
        if op.graph is not self or before.graph is not self:
            raise GraphError(f"the control edge {before!r} -> {op!r} joins two graphs")
        with self._lock:
            if before not in op.control_inputs:
                op.control_inputs.append(before)
                self._grew()

    def extend_op(self, op: Operation, inputs: Sequence[Tensor] = (), attrs: Mapping[str, Any] | None = None) -> None:
        """Appends inputs and outputs to a structured operation; existing ones keep their places.

        Args:
          op: a structured operation of this graph.
          inputs: the additional inputs.
          attrs: the changed attributes (`Tin`, `Tout`, ...), with which the inputs and outputs must agree.

        Raises:
          GraphError: they do not agree, or `op` is not structured.
        """
        if not op.opdef.structured or op.graph is not self:
            raise GraphError(f"{op!r} cannot be extended; only a structured operation of this graph can")
        complete = op.opdef.extend_attrs(op.attrs, attrs or {})
        further = [self.capture(t) for t in inputs]
        op.opdef.check_inputs(complete, [t.dtype for t in further], len(op.inputs))
        reads, made, had = op.opdef.input_dtypes(complete), *map(op.opdef.output_dtypes, (complete, op.attrs))
        if op.opdef.input_dtypes(op.attrs) != reads[: len(op.inputs)] or had != made[: len(op.outputs)]:
            raise GraphError(f"the inputs and outputs that {op!r} has must keep their places and dtypes")
        with self._lock:
            op.inputs, op.attrs = [*op.inputs, *further], complete
            op.outputs += tuple(self.tensor_type(op, i, made[i]) for i in range(len(had), len(made)))
            self._grew()

    def take_back(self, ops: set[Operation]) -> None:
        """Removes operations that no other operation of the graph and no other object refers to."""
        with self._lock:
            kept = [op for op in self._operations if op not in ops]
            for op in ops:
                del self._by_name[op.name]
            for i, op in enumerate(kept):
                op.id = i
            self._operations[:] = kept
            self._grew()

    def share_functions(self, other: Graph) -> None:
        """Shares the functions of `other`, of which this graph is a part or copy.

        Changes of this graph are no changes of the graph that contains `other`, whose steps would be compiled again.
        """
        self.outer, self.functions, self.library = other.outer, other.functions, other.library
        self.is_part = False
        self.gradient_functions = other.gradient_functions

    def own_functions(self) -> None:
        """Replaces the shared table of functions by a copy, which may grow."""
        self.functions = dict(self.functions)

    def capture(self, t: Tensor) -> Tensor:
        """Returns the tensor that represents `t` in this graph.

        In a graph without owner it is `t` itself, which must be in this graph.

        Raises:
          GraphError: `t` is in another graph. The text names both graphs and the lines that created them.
        """
        if t.op.graph is not self:
            raise GraphError(foreign(t, self))
        return t

    def capture_control(self, op: Operation) -> Operation | None:
        """Returns the operation that represents `op` as a control input in this graph.

        Returns:
          The operation; None if the owner of this graph waits for `op` instead.

        Raises:
          GraphError: `op` is in a graph that does not surround this one.
        """
        if op.graph is not self:
            raise GraphError(foreign(op, self))
        return op

    @property
    def title(self) -> str:
        """Description of this graph for messages."""
        return "the graph"

    def _check_open(self) -> None:
        if self.finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")

    def _grew(self) -> None:
        graph: Graph | None = self
        while graph is not None:
            graph.version += 1
            graph = graph.outer if graph.is_part else None

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Returns a context that removes the operations added in it if its block raises.

        Other threads cannot add operations during the block. The block may only add operations and edges between them,
        as an import does.
        """
        with self._lock:
            n, taken = len(self._operations), dict(self._taken)
            library, gradients, versions = dict(self.library), dict(self.gradient_functions), self.versions
            try:
                yield
            except BaseException:
                for op in self._operations[n:]:
                    del self._by_name[op.name]
                del self._operations[n:]
                self._taken.clear()
                self._taken.update(taken)  # owned graphs may share this dict
                self.library, self.gradient_functions, self.versions = library, gradients, versions
                raise

    def __str__(self) -> str:
        return repr(self) if _text is None else _text(self)

    def __repr__(self) -> str:
        return f"<Graph of {len(self)} operations>"


_text: Callable[[Graph], str] | None = None


def set_text(text: Callable[[Graph], str]) -> None:
    """Sets the function that `str` of a graph calls (`inspect.program`)."""
    global _text
    _text = text


class FuncGraph(Graph, Owned):
    """Graph with parameters and results, which an operation owns or calls (`ir.function`).

    Args:
      name: the name in a function library and in messages.
      outer: the graph that contains the owner, whose tensors this graph may capture. For a function of a library: the
        graph that has the library; the function captures nothing.
      captures_from_outer: whether this graph may capture tensors of `outer` and of the graphs around `outer`.
      shares_names: whether names of operations are unique among those of `outer` too, so that lowering can keep them.

    Attributes:
      params: the parameters, outputs of `_Arg` operations.
      results: the results, tensors of this graph.
      captures: tensor of a surrounding graph → the tensor that represents it here, a parameter or a cloned constant.
      control_results: the operations that run whenever the graph does, even if no result needs them.
      outer_controls: the operations of surrounding graphs that the owner has to wait for.
      is_open: whether the graph is under construction, so that its effects are not known yet.
      is_ordered: whether stateful operations keep their order from one iteration of a loop to the next.
      source: the line of the user's function.
      role: the description in messages ("the body of 'while'"); empty: the name is used.
      attrs: the attributes of the definition in a function library.
      with_residuals: for a recursive function, the name of its copy with the residuals as an additional last result.
      gradient: for such a copy, the name of the function that computes its gradient.
      tangent: for a recursive function, the name of a variant that also takes and returns tangents.
      level: the number of `FuncGraph`s around this graph.
      originals: for a copy, tensor of the copied graph → tensor of the copy. The user's gradient functions refer to
        tensors of the traced graph and mean those of the copy.
    """

    def __init__(
        self, name: str, outer: Graph | None, captures_from_outer: bool = True, shares_names: bool = False
    ) -> None:
        super().__init__()
        self.name = name
        self.outer = outer
        self.level: int = 1 + outer.level if isinstance(outer, FuncGraph) else 0
        if self.level >= recursion.MOST:
            raise GraphError(
                f"{name[:40]!r}...: conditionals, loops and functions may be nested {recursion.MOST} deep, not deeper. "
                "Put some of them one after the other, or into functions (hr.Function) that are called"
            )
        self.params: list[Tensor] = []
        self.results: list[Tensor] = []
        self.captures: dict[Tensor, Tensor] = {}
        self.control_results: list[Operation] = []
        self.outer_controls: list[Operation] = []
        self.is_open = False
        self.is_ordered = False
        self.source: Source | None = None
        self.role = ""
        self.attrs: dict[str, Any] = {}
        self.with_residuals = self.gradient = self.tangent = ""
        self.originals: dict[Tensor, Tensor] = {}
        self.captures_from_outer = captures_from_outer
        self._suffixes: dict[str, int] = {}  # of parameters: name -> last suffix number
        self.shares_names = shares_names
        if outer is not None:
            self.tensor_type = outer.tensor_type
        if outer is not None and shares_names:
            self._taken, self._lock = outer._taken, outer._lock
            self.shows_primitives = outer.shows_primitives

    @property
    def title(self) -> str:
        where = f" ({self.source})" if self.source is not None else ""
        return f"{self.role or repr(self.name)}{where}"

    def add_param(
        self,
        dtype: Any,
        shape: Shape,
        name: str,
        of: str = "",
        source: Source | None = None,
        handle: Handle = None,
    ) -> Tensor:
        """Adds a parameter at the end.

        If names are shared, the parameter is called "arg.name", so that it takes no name of the user.

        Args:
          dtype: the dtype; a reference dtype is replaced by its base.
          shape: the static shape.
          name: the preferred name.
          of: the name of the captured tensor, "" for none.
          source: the user's line, if known.
          handle: (dtype, shape) of the contents of a resource or variant, if known.

        Returns:
          The parameter.
        """
        attrs = {"T": dtype.base, "index": len(self.params), "shape": shape, "of": of}
        if self.shares_names:
            base = full = f"arg.{name.rpartition('/')[2].removeprefix('arg.')}"
            while full in self:
                i = self._suffixes[base] = self._suffixes.get(base, 0) + 1
                full = f"{base}_{i}"
        else:
            full = self.unique_name(name)
        op = self.add_op("_Arg", full, attrs=attrs, source=source)
        t = op.outputs[0]
        t.static_shape, t.handle = shape, handle
        self.params.append(t)
        return t

    def describe_param(self, p: Tensor, shape: Shape, handle: Handle) -> None:
        """Replaces the static information of a parameter, and the shape that its operation states."""
        p.replace_static(shape, handle)
        p.op.attrs = {**p.op.attrs, "shape": shape}

    def set_results(
        self,
        results: Iterable[Tensor],
        control_results: Iterable[Operation] | None = None,
        is_ordered: bool | None = None,
    ) -> None:
        """Sets the results and the operations that run whenever the graph does.

        Args:
          results: the new results, tensors of this graph.
          control_results: the new `control_results`; None keeps the present ones.
          is_ordered: the new `is_ordered`; None keeps the present value.

        Raises:
          GraphError: a tensor or operation is in another graph.
        """
        results, controls = list(results), None if control_results is None else list(control_results)
        self._check_mine(results, controls or ())
        with self._lock:
            self.results = results
            if controls is not None:
                self.control_results = controls
            if is_ordered is not None:
                self.is_ordered = is_ordered
            self._grew()

    def add_results(self, results: Sequence[Tensor], control_results: Sequence[Operation] = ()) -> None:
        """Appends results and control results; see `set_results`."""
        self._check_mine(results, control_results)
        with self._lock:
            self.results += results
            self.control_results += control_results
            self._grew()

    def set_control_results(self, control_results: Iterable[Operation]) -> None:
        """Sets the operations that run whenever the graph does; see `set_results`."""
        self.set_results(self.results, control_results)

    def _check_mine(self, tensors: Iterable[Tensor], ops: Iterable[Operation]) -> None:
        elements: list[Tensor | Operation] = [*tensors, *ops]
        for what in elements:
            if what.graph is not self:
                raise GraphError(f"a result of {self.title}: {foreign(what, self)}")

    def set_params(self, params: Sequence[Tensor]) -> None:
        """Reorders the parameters and removes the captures whose parameters are missing in `params`."""
        with self._lock:
            kept = set(params)
            self.params[:] = params
            self.captures = {t: p for t, p in self.captures.items() if p in kept or p.op.type != "_Arg"}
            for i, p in enumerate(params):
                if p.op.attrs["index"] != i:
                    p.op.attrs = {**p.op.attrs, "index": i}  # a copy of an operation shares its attributes
            self._grew()

    def add_captured(self, t: Tensor) -> Tensor:
        """Returns the parameter for `t`, a tensor of `outer`; adds one if necessary."""
        got = self.captures.get(t)
        if got is None:
            got = self.add_param(t.dtype, t.static_shape, t.op.name, t.name, t.op.source, t.handle)
            self.captures[t] = got
        return got

    def capture(self, t: Tensor) -> Tensor:
        """Returns `t`, or the parameter or cloned constant that represents it in this graph.

        Raises:
          GraphError: `t` is in a graph that does not surround this one.
        """
        if t.op.graph is self:
            return t
        got = self.captures.get(t)
        if got is not None:
            return got
        t = self.counterpart(t)
        if t.op.graph is self:
            return t
        outer = self.outer
        if outer is None or not self.captures_from_outer or not self.is_within(t.op.graph):
            raise GraphError(foreign(t, self))
        inner = outer.capture(t)
        got = self.captures.get(inner)
        if got is None and is_cloned(inner):
            name = f"arg.{inner.op.name.removeprefix('arg.')}" if self.shares_names else inner.op.name
            clone = self.copy_op(inner.op, (), (), self.unique_name(name))
            got = clone.outputs[0]
            self.captures[t] = got
        elif got is None:
            got = self.add_captured(inner)
        return got

    def capture_control(self, op: Operation) -> Operation | None:
        if op.graph is self:
            return op
        if self.outer is None or not self.captures_from_outer or not self.is_within(op.graph):
            raise GraphError(foreign(op, self))
        if op not in self.outer_controls:
            self.outer_controls.append(op)
        return None

    def counterpart(self, t: Tensor) -> Tensor:
        """Returns the tensor that represents `t` in a copy of its graph, or `t`.

        A graph is inside a copy also if it is inside the gradient of the copy.
        """
        around: Graph | None = self
        while around is not None:
            for g in (around, around.forward):
                if isinstance(g, FuncGraph) and t in g.originals:
                    return g.originals[t]
            around = around.outer
        return t

    def is_within(self, graph: Graph) -> bool:
        """Whether `graph`, or the gradient of `graph`, surrounds this graph."""
        around = self.outer
        while around is not None and around is not graph and around.forward is not graph:
            around = around.outer if not isinstance(around, FuncGraph) or around.captures_from_outer else None
        return around is not None

    def define(self, captures: Mapping[Tensor, Tensor], attrs: Mapping[str, Any]) -> None:
        """Sets the captures, and the attributes of the definition, for readers of serialized graphs."""
        self.captures, self.attrs = dict(captures), dict(attrs)

    def add_originals(self, made: Mapping[Tensor, Tensor]) -> None:
        """Records tensors of this graph (the values) that are copies of others."""
        self.originals = {**self.originals, **made}

    @property
    def captured(self) -> list[tuple[Tensor, Tensor]]:
        """Pairs (outer tensor, parameter) of the captures that are not cloned, in parameter order."""
        outside = {p: t for t, p in self.captures.items() if t.op.graph is self.outer}
        return [(outside[p], p) for p in self.params if p in outside]

    def __repr__(self) -> str:
        return f"<FuncGraph {self.name!r} of {len(self)} operations, {len(self.params)} -> {len(self.results)}>"


def is_cloned(t: Tensor) -> bool:
    """Whether graphs clone `t` when they capture it.

    They clone constants that are neither float nor complex and have no control inputs.
    """
    if t.op.type != "Const" or t.op.control_inputs:
        return False
    return not (t.dtype.base.is_floating or t.dtype.base.is_complex)


def foreign(what: Tensor | Operation, graph: Graph) -> str:
    """Returns the reason why `graph` cannot use `what`, and the remedy."""
    op = what.op if isinstance(what, Tensor) else what
    made = f" (made at {op.source})" if op.source is not None else ""
    owner = op.graph
    root = owner
    while root.outer is not None:
        root = root.outer
    mine = graph
    while mine.outer is not None:
        mine = mine.outer
    if root is mine and owner.outer is not None:
        return (
            f"'{what.name}'{made} belongs to {owner.title} and has no value outside; return it from there, and use the "
            "result"
        )
    return (
        f"'{what.name}'{made} belongs to another graph ({owner!r}) than the one that is to use it ({graph!r}); "
        "make both in one `with` block, or import the one graph into the other with import_graph_def"
    )
