"""Variables: tensors that persist from step to step, and that operations change.

A variable is a *handle*, created once, and operations on the handle. One operation, the *initializer*, sets the initial
value, each use reads the value, and `assign` and related methods change it. All are TensorFlow's resource variables, in
`headrace.v1` too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import grouping, recorder, scopes
from headrace.api.cond import cond
from headrace.api.initial_value import guarded
from headrace.api.traced_graph import TracedGraph, computed, current_trace, traced_graph
from headrace.errors import ConversionError, GraphError, ShapeError
from headrace.ir import tensor_type
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.symbolic import seen
from headrace.ir.tensor_type import TensorOperations
from headrace.shapes import Shape


class Variable(TensorOperations):
    """Tensor with a value that persists between steps of a session and can be assigned.

    In a graph each session has its own value, and `initializer` (`variables_initializer`) must run to set the first
    one. In eager execution the object has the value from the start.

    A variable can be used in place of a tensor; it is read at that point. In an `hr.Graph` reads and changes happen in
    the order in which they are written. Two operations are outside of this order: the initializer, which runs when it
    is fetched, and the read for a fetch of the variable itself, which returns the value at some time during the step.

    A variable created in a branch or a loop's body belongs to the outermost graph. So must its initial value, which can
    be a function for this purpose.

    Args:
      initial_value: a value that can be converted to a tensor, or a function without arguments that returns one. If it
        reads other variables, their initial values are used as long as they have no values.
      trainable: whether optimizers and other training code should change it.
      name: the name below the name scope; "Variable" if None.
      dtype: the dtype; None: that of `initial_value`.
      shape: the static shape; None: that of `initial_value`. If it is partly known, values of all fitting shapes can be
        assigned.
      validate_shape: if False, values of any shape can be assigned.
      constraint: a function from a new value to the value to store, which optimizers apply.

    Attributes:
      handle: the tensor of dtype resource by which operations refer to the variable.
      graph: the graph of the variable; None in eager execution.
      dtype: the dtype of the value.
      trainable, constraint: the arguments.

    Raises:
      TypeError: `initial_value` is missing, cannot be converted to a tensor, or is not of `dtype`.
      ShapeError (a ValueError): the initial value does not have the shape.
      GraphError (a ValueError): the initial value was created in a branch or a loop's body.

    Source: TensorFlow's `tf.Variable`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     v = hr.Variable([1.0, 2.0], name="v")
      ...     w = v.assign_add([10.0, 10.0])
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(v.initializer)
      ...     sess.run(w)
      array([11., 12.], dtype=float32)
      >>> n = hr.Variable(3)
      >>> n.assign(n * 2).numpy()
      np.int32(6)
    """

    __array_priority__ = 100.0

    handle: Any
    graph: Graph | None

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        shape: Any = None,
        validate_shape: bool = True,
        constraint: Callable[[Any], Any] | None = None,
    ) -> None:
        if initial_value is None:
            raise ConversionError(
                "initial_value must be specified: what the variable starts with, or a function that gives it"
            )
        self.trainable = trainable
        self.constraint = constraint
        self._validates = validate_shape
        wanted = None if dtype is None else dtypes.as_dtype(dtype).base
        b = scopes.builder() if callable(initial_value) else scopes.builder(initial_value)
        trace = traced_graph(b.graph)
        if trace is not None:
            self._make_in_trace(trace, initial_value, name or "Variable", wanted, shape)
        elif isinstance(b, Builder):
            self._make(b, initial_value, name or "Variable", wanted, shape)
        else:
            self._make_eagerly(b, initial_value, name or "Variable", wanted, shape)

    def _make(self, b: Builder, initial_value: Any, name: str, dtype: dtypes.DType | None, shape: Any) -> None:
        """Creates the handle and the other operations of TensorFlow 1, in the outermost graph."""
        root = root_of(b.graph)
        full = name[:-1] if name[-1] == "/" else root.unique_name(b.scope + name)
        # no control inputs and no order: a run of the initializer must run nothing else
        b = dataclasses.replace(b, graph=root, scope=full + "/", control_inputs=(), is_ordered=False)
        within = full + self._initial_scope(initial_value)
        value = _initial(dataclasses.replace(b, scope=within), initial_value, dtype, full)
        self.graph = root
        self._shape = self._declared(shape, value.shape, full)
        self._initial_value = value
        self._name = full
        self._make_operations(b, value, getattr(root, "current_container", ""))
        self._op: Operation = self.handle.op
        if isinstance(root, scopes.Graph):
            root.variables.append(self)

    @staticmethod
    def _initial_scope(initial_value: Any) -> str:
        """Returns the scope of the operations that make the initial value, below the variable's name."""
        return "/Initializer/"

    def _make_operations(self, b: Builder, value: Tensor, container: str) -> None:
        """Creates the handle, the initializer and the operation that reads the value for fetches."""
        name = self._name
        self.dtype = dtype = value.dtype.base
        attrs = {"dtype": dtype, "shape": self._shape, "container": container, "shared_name": name}
        self.handle = b.make("VarHandleOp", (), attrs, name + "/")
        self._is_initialized = b.VarIsInitializedOp(self.handle, name="IsInitialized/VarIsInitializedOp")
        self._first = guarded(value, b)
        inputs, more = (self.handle, self._first), {"dtype": dtype, "validate_shape": False}
        self._initializer: Operation = b.make("AssignVariableOp", inputs, more, "Assign")
        self._element: Tensor = b.ReadVariableOp(self.handle, dtype=dtype, name="Read/ReadVariableOp")

    @classmethod
    def of_operations(
        cls, handle: Tensor, initializer: Operation, element: Tensor, initial_value: Tensor | None, trainable: bool
    ) -> Any:
        """Returns the variable of existing operations, as in an imported graph.

        The caller adds it to the graph's variables.

        Args:
          handle: the handle.
          initializer: the operation that sets the initial value.
          element: the value, as a fetch returns it.
          initial_value: the tensor of the initial value; None: `element`.
          trainable: see `Variable`.

        Returns:
          The variable.

        Raises:
          GraphError: the operations are not those of a variable.
        """
        self = object.__new__(cls)
        held = cls._held(handle)
        if held is None:
            raise GraphError(f"'{handle.name}' ({handle.op.type}) is no handle of a variable")
        self.dtype, self._shape = held
        if element.dtype.base is not self.dtype.base:
            raise GraphError(f"'{element.name}' is {element.dtype.base.name}, so not a value of '{handle.op.name}'")
        self.graph = handle.graph
        self.trainable, self.constraint, self._validates = trainable, None, True
        self.handle, self._op, self._name = handle, handle.op, handle.op.name
        self._initializer, self._element = initializer, element
        # the initializer may be a group of operations too
        assigns = len(initializer.inputs) > 1 and initializer.inputs[0] is handle
        self._first = initializer.inputs[1] if assigns else element
        self._initial_value = self._first if initial_value is None else initial_value
        return self

    @classmethod
    def of_handle(cls, handle: Any, trainable: bool) -> Any:
        """Returns the variable outside of graphs to which an eager handle refers.

        Args:
          handle: the handle.
          trainable: see `Variable`.
        """
        self = object.__new__(cls)
        held = handle.numpy()
        self.graph, self.trainable, self.constraint, self._validates = None, trainable, None, True
        self.handle, self.dtype, self._shape = handle, dtypes.as_dtype(held.value_dtype), held.value_shape
        self._name = held.name or "Variable"
        return self

    @classmethod
    def _held(cls, handle: Tensor) -> tuple[dtypes.DType, Shape] | None:
        """Returns the dtype and shape of the variable with this handle; None for another tensor."""
        return handle.handle if handle.dtype is dtypes.resource and handle.op.type == "VarHandleOp" else None

    def _make_in_trace(
        self, trace: TracedGraph, initial_value: Any, name: str, dtype: dtypes.DType | None, shape: Any
    ) -> None:
        """Creates an eager variable while a function is traced (`hr.jit`), where it is captured."""
        initial = computed(initial_value) if isinstance(initial_value, Tensor) else initial_value
        with scopes.outside():
            self._make_eagerly(scopes.runtime().eager, initial, name, dtype, shape)
        trace.made.append(self)

    def _make_eagerly(self, b: Any, initial_value: Any, name: str, dtype: dtypes.DType | None, shape: Any) -> None:
        value = b.tensor(initial_value() if callable(initial_value) else initial_value, dtype)
        self.graph = None
        self.dtype = value.dtype
        self._name = name.rstrip("/")
        self._shape = self._declared(shape, value.shape, self._name)
        # without a shared name no other object refers to the resource, which is freed with this object
        self.handle = b.make("VarHandleOp", (), {"dtype": self.dtype, "shape": self._shape}, self._name)
        b.make("AssignVariableOp", (self.handle, value), {"dtype": self.dtype})

    def _declared(self, given: Any, initial: Shape, name: str) -> Shape:
        """Returns the static shape that covers all values."""
        if not self._validates:
            return None
        if given is None:
            return initial
        wanted = shapes.as_shape(given)
        if not shapes.compatible(initial, wanted):
            raise ShapeError(
                f"The initial value's shape ({shapes.show(initial)}) is not compatible with the explicitly supplied "
                f"`shape` argument ({shapes.show(wanted)}) of variable '{name}'"
            )
        return wanted

    # *** properties ***

    @property
    def name(self) -> str:
        """Name of the handle, "v:0"; for the result of an assignment, that of the operation."""
        return self._name + ":0" if self._is_whole else self._op.name

    @property
    def shape(self) -> Any:
        """Static shape of the values."""
        return seen(self._shape, self.handle)

    @property
    def op(self) -> Operation:
        """Operation that creates the handle; for the result of an assignment, the assignment."""
        self._graph_only("op")
        return self._op

    @property
    def device(self) -> str:
        """Device requested for the variable."""
        device: str = self.handle.device
        return device

    @property
    def initializer(self) -> Operation:
        """Operation that sets the initial value."""
        self._graph_only("initializer")
        return self._initializer

    @property
    def initial_value(self) -> Tensor:
        """Tensor of the initial value."""
        self._graph_only("initial_value")
        return self._initial_value

    @property
    def graph_element(self) -> Tensor:
        """Tensor that a fetch returns: the value, or an assignment's result."""
        self._graph_only("graph_element")
        return self._element

    @property
    def fed_element(self) -> Tensor:
        """Tensor that a feed replaces: the handle, and so every read; or an assignment's result."""
        self._graph_only("fed_element")
        handle: Tensor = self.handle
        return handle if self._is_whole else self._element

    @property
    def _is_whole(self) -> bool:
        """Whether this is the variable itself, not the result of an assignment."""
        return self.graph is None or self._op is self.handle.op

    def _graph_only(self, what: str) -> None:
        if self.graph is None:
            raise GraphError(
                f"{self!r} was made outside of graphs, so it has no {what}: its value is there already (.numpy())"
            )

    # *** reading ***

    def value(self) -> tensor_type.Tensor:
        """Returns a tensor with the value, read at this point."""
        return self._read(self._builder())

    def read_value(self) -> tensor_type.Tensor:
        """Returns a tensor with the value, read at this point by a new operation.

        The operation can wait for others.

        Example: `with hr.control_dependencies([step]): after = v.read_value()`.
        """
        b = self._builder()
        value = self._read(b.within("Read"))
        return value if b.graph is None else b.Identity(value)

    def as_tensor(self, b: Any) -> Any:
        """Returns the tensor that represents the variable for builder `b`: its value at this point."""
        if not self._is_whole:
            return self._element
        self._check_place(b)
        return self._read(b)

    def handle_in(self, b: Any) -> Any:
        """Returns the handle, for operations that builder `b` makes."""
        return self.handle

    def _read(self, b: Any) -> Any:
        if self.graph is None:
            recorder.accessed(self)
        if isinstance(b, Builder) and b.colocate:  # the operations around may be on another device than the variable
            b = dataclasses.replace(b, colocate=(), device=self.handle.device)
        return b.make("ReadVariableOp", (self.handle,), {"dtype": self.dtype})

    def sparse_read(self, indices: Any, name: str | None = None) -> tensor_type.Tensor:
        """Returns rows of the value by their numbers (int32 or int64), without reading all."""
        if self.graph is None:
            recorder.accessed(self)
        return self._builder(indices).make(
            "ResourceGather", (self.handle, indices), {"dtype": self.dtype}, name or "Gather"
        )

    def gather_nd(self, indices: Any, name: str | None = None) -> tensor_type.Tensor:
        """Returns the elements or slices at `indices`; the last dimension contains the coordinates."""
        return self._builder(indices).make("GatherNd", (self, indices), {}, name)

    def is_initialized(self, name: str | None = None) -> tensor_type.Tensor:
        """Returns whether the variable has a value, as a bool scalar.

        Like the initializer, this operation is outside of the order of reads and changes.
        """
        return self._unordered().make("VarIsInitializedOp", (self.handle,), {}, name)

    def initialized_value(self) -> tensor_type.Tensor:
        """Returns the value, or the initial value if there is no value yet.

        It is for the initial values of other variables. Like initializers, it is outside of the order of reads and
        changes.
        """
        if self.graph is None:
            return self.value()
        with scopes.entered(self._unordered()):
            return cond(self.is_initialized(), self.value, lambda: self._first)

    # *** changing ***

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Assigns `value` to the variable.

        Args:
          value: a value that can be converted to a tensor of the dtype, with a fitting shape.
          use_locking: ignored; changes never overlap.
          name: the name of the operation.
          read_value: if False, the result is the operation alone.

        Returns:
          In a graph: an object that can be run (`.op`, too), and used as a tensor with the value right after the
            change. In eager execution: the variable.

        Raises:
          ShapeError (a ValueError): `value` has another shape.
          TypeError: `value` has another dtype.
        """
        b = self._builder(value)
        t = b.tensor(value, self.dtype)
        if not shapes.compatible(t.shape, self._shape):
            raise ShapeError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch. The variable shape "
                f"{shapes.show(self._shape)}, and the assigned value shape {shapes.show(t.shape)} are incompatible. "
                "(A variable made with validate_shape=False takes values of any shape.)"
            )
        attrs = {"dtype": self.dtype, "validate_shape": shapes.is_full(self._shape)}
        return self._changed(b, b.make("AssignVariableOp", (self.handle, t), attrs, name), read_value)

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds `delta`, which has its shape; see `assign`."""
        return self._update("AssignAddVariableOp", delta, name, read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts `delta`, which has its shape; see `assign`."""
        return self._update("AssignSubVariableOp", delta, name, read_value)

    def _update(self, type: str, delta: Any, name: str | None, read_value: bool) -> Any:
        b = self._builder(delta)
        made = b.make(type, (self.handle, b.tensor(delta, self.dtype)), {"dtype": self.dtype}, name)
        return self._changed(b, made, read_value)

    def count_up_to(self, limit: int) -> tensor_type.Tensor:
        """Increments an integer scalar and returns its old value.

        Raises (when it runs):
          OutOfRangeError: the value has reached `limit`.
        """
        return self._builder().make("ResourceCountUpTo", (self.handle,), {"limit": limit, "T": self.dtype})

    def scatter_update(self, indices: Any, updates: Any = None, name: str | None = None) -> Any:
        """Replaces the rows at `indices` by `updates`.

        Args:
          indices: the numbers of the rows, or an object with the attributes `indices` and `values` in place of both
            arguments.
          updates: the new rows, of shape `indices.shape + shape[1:]`, or a scalar for all.
          name: the name of the operation.

        Returns:
          The result of `assign`.
        """
        return self._scatter("Update", indices, updates, name)

    def scatter_add(self, indices: Any, updates: Any = None, name: str | None = None) -> Any:
        """Adds `updates` to the rows at `indices`; see `scatter_update`."""
        return self._scatter("Add", indices, updates, name)

    def scatter_sub(self, indices: Any, updates: Any = None, name: str | None = None) -> Any:
        """Subtracts `updates` from the rows at `indices`; see `scatter_update`."""
        return self._scatter("Sub", indices, updates, name)

    def scatter_mul(self, indices: Any, updates: Any = None, name: str | None = None) -> Any:
        """Multiplies the rows at `indices` by `updates`; see `scatter_update`."""
        return self._scatter("Mul", indices, updates, name)

    def scatter_div(self, indices: Any, updates: Any = None, name: str | None = None) -> Any:
        """Divides the rows at `indices` by `updates`; see `scatter_update`."""
        return self._scatter("Div", indices, updates, name)

    def scatter_min(self, indices: Any, updates: Any = None, name: str | None = None) -> Any:
        """Replaces the rows at `indices` by their minima with `updates`; see `scatter_update`."""
        return self._scatter("Min", indices, updates, name)

    def scatter_max(self, indices: Any, updates: Any = None, name: str | None = None) -> Any:
        """Replaces the rows at `indices` by their maxima with `updates`; see `scatter_update`."""
        return self._scatter("Max", indices, updates, name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Replaces the slices at `indices`.

        Args:
          indices: int32 or int64, [..., depth]: the last axis has an index of a slice.
          updates: values of the shape `indices.shape[:-1] + self.shape[depth:]`.
          name: the name of the operation.

        Returns:
          The result of `assign`.
        """
        return self._scatter("NdUpdate", indices, updates, name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Adds `updates` to the slices at `indices`; see `scatter_nd_update`."""
        return self._scatter("NdAdd", indices, updates, name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Subtracts `updates` from the slices at `indices`; see `scatter_nd_update`."""
        return self._scatter("NdSub", indices, updates, name)

    def _scatter(self, what: str, indices: Any, updates: Any, name: str | None) -> Any:
        if updates is None:
            indices, updates = indices.indices, indices.values
        b = self._builder(indices, updates)
        updates = b.tensor(updates, self.dtype)
        attrs = {} if what.startswith("Nd") else {"dtype": self.dtype}
        made = b.make(f"ResourceScatter{what}", (self.handle, indices, updates), attrs, name)
        return self._changed(b, made, True)

    def _changed(self, b: Any, op: Any, read_value: bool) -> Any:
        """Returns the result of a changing method: the variable after `op`."""
        if self.graph is None:
            return self
        if not read_value:
            return op
        after = object.__new__(type(self))
        vars(after).update(vars(self), _op=op, _element=b.after(op).ReadVariableOp(self.handle, dtype=self.dtype))
        return after

    def _builder(self, *near: Any) -> Any:
        """Returns the builder for operations on the variable.

        For the result of an assignment, the operations wait for the assignment.
        """
        b = scopes.builder(self, *near)
        self._check_place(b)
        return b if self._is_whole else b.after(self._op)

    def _unordered(self) -> Any:
        b = self._builder()
        return dataclasses.replace(b, is_ordered=False) if isinstance(b, Builder) else b

    def _check_place(self, b: Any) -> None:
        if self.graph is None and b.graph is not None and traced_graph(b.graph) is None:
            raise GraphError(
                f"{self!r} was made outside of graphs and cannot be used in one; make it inside `with g:`, or use its "
                "value as it is now (.numpy())"
            )

    # *** outside of graphs, as a value ***

    def numpy(self) -> Any:
        """Returns the value as a writable array, in eager execution only."""
        return self._concrete("numpy()").numpy()

    def _concrete(self, what: str) -> Any:
        if self.graph is not None:
            raise TypeError(
                f"{what} of the variable '{self.name}', which has no value until the graph runs; run it: "
                "session.run(variable)"
            )
        trace = current_trace()
        if trace is not None:
            raise TypeError(
                f"{what} of the variable '{self.name}' in {trace.title}: it has no value until the traced function "
                "runs; compute with the variable itself"
            )
        return self._read(scopes.runtime().eager)  # also inside of `with g:`

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._concrete("a numpy array").numpy(), dtype)

    def __bool__(self) -> bool:
        return bool(self._concrete("bool()"))

    def __int__(self) -> int:
        return int(self._concrete("int()"))

    def __float__(self) -> float:
        return float(self._concrete("float()"))

    def __index__(self) -> int:
        return self._concrete("an index").__index__()

    def __len__(self) -> int:
        return len(self._concrete("len()"))

    def __iter__(self) -> Any:
        return iter(self._concrete("iteration"))

    def __format__(self, spec: str) -> str:
        return format(self._concrete("a formatted value") if spec else str(self), spec)

    def __repr__(self) -> str:
        value = f": {self.numpy()!r}" if self.graph is None and current_trace() is None else ""
        return f"<Variable {self.name!r} shape={shapes.show(self._shape)} dtype={self.dtype.name}{value}>"

    def __copy__(self) -> Any:
        return self._copied()

    def __deepcopy__(self, memo: object) -> Any:
        return self._copied()

    def _outside_graphs(self) -> None:
        if self.graph is not None:
            raise TypeError(
                "a Variable belongs to its graph and cannot be copied or pickled: make another one, or export the "
                f"graph with as_graph_def(); the value of {self.name!r} is what session.run(variable) gives"
            )

    def _copied(self) -> Any:
        self._outside_graphs()
        return _remade(*self._made_of())

    def _made_of(self) -> tuple[Any, ...]:
        return type(self), self.value(), self.trainable, self._name, self._shape, self.constraint

    def __reduce__(self) -> Any:
        self._outside_graphs()
        return _remade, self._made_of()


def _remade(kind: type[Variable], value: Any, trainable: bool, name: str, shape: Shape, constraint: Any) -> Variable:
    """Creates a variable with the properties of another one, in eager execution."""
    return kind(value, trainable, name, shape=shape, constraint=constraint)


def variables_initializer(var_list: Iterable[Variable] | None = None, name: str = "init") -> Operation | None:
    """Creates an operation that initializes all variables of a list; None in eager execution.

    Args:
      var_list: the variables; None: all present variables of the graph. An empty list makes a `NoOp` in the current
        graph; outside of `with graph:` there is none, and the result is None.
      name: the name of the operation.

    Source: TensorFlow's `tf.variables_initializer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(1.0)
      ...     init = hr.variables_initializer()
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(init)
      ...     sess.run(v)
      np.float32(1.0)
    """
    if var_list is None:
        graph = scopes.current_graph()
        var_list = [] if graph is None else getattr(root_of(graph), "variables", [])
    return grouping.group(*(v.initializer for v in var_list if v.graph is not None), name=name)


def root_of(graph: Graph) -> Graph:
    """Returns the graph around all conditionals, loops and functions."""
    while graph.outer is not None:
        graph = graph.outer
    return graph


def _initial(b: Builder, initial_value: Any, dtype: dtypes.DType | None, name: str) -> Tensor:
    """Returns the initial value as a tensor of the graph of `b`."""
    with scopes.entered(b):
        if callable(initial_value):
            initial_value = initial_value()
        if (
            isinstance(initial_value, Tensor)
            and initial_value.graph is not b.graph
            and root_of(initial_value.graph) is b.graph
        ):
            where = f" (made at {initial_value.op.source})" if initial_value.op.source is not None else ""
            raise GraphError(
                f"The `initial_value` of variable '{name}' is from inside a control-flow construct, such as a loop or "
                f"conditional: '{initial_value.name}'{where} belongs to {initial_value.graph.title}, and the variable "
                "to the graph around it. Give a function that makes the value: hr.Variable(lambda: ...)"
            )
        made: Tensor = b.tensor(initial_value, dtype, "initial_value")
        return made
