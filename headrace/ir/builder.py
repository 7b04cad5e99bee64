"""Builder of operations: a graph and the scope, device and control inputs of new operations.

Every part of headrace below the user's API that creates operations (gradients, lowering, rewrites, importers) receives
a `Builder`, and none of them reads a default graph. A call of an op type creates an operation:

    b = Builder(graph)
    y = b.Mul(b.Sin(x), 2.0)                       # a Tensor; several outputs: a tuple; none: the Operation
    z = b.within("branch").after(y.op).Identity(y)  # a derived builder: other scope, control input

Python values and arrays become constants of the dtype that the other inputs determine, with names below the operation's
("Mul/y").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import dtypes, tracebacks
from headrace.errors import NotFoundError, ShapeError
from headrace.ir import source, weak_numbers
from headrace.ir.binding import Decided, OpCalls, complete_attrs, has_tensors
from headrace.ir.conversion import as_array
from headrace.ir.graph import Operation, Tensor
from headrace.ir.infer import infer_shapes
from headrace.ir.opdef import op_registry
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Graph
    from headrace.ir.notes import Note
    from headrace.ir.opdef import OpDef
    from headrace.ir.source import Source


@record(frozen=True, slots=True)
class Builder(OpCalls[Tensor]):
    """Immutable builder of operations for one graph.

    `within`, `on`, `after` and `at` return derived builders.

    Attributes:
      graph: the graph to which operations are added.
      scope: the prefix of new names, "" or ending in "/".
      device: the device requested for new operations.
      control_inputs: the operations that every new operation waits for.
      source: the user's line that new operations record; None: the line that calls the builder.
      colocate: names of the operations with which new ones are colocated (the attribute `_class`).
      gradients: op type → name of the gradient that replaces the type's own for new operations.
      device_function: function from a new operation to the device it requests, which overrides `device`; None for none.
      is_ordered: whether stateful operations follow the graph's order, if it has one. Initializers of variables do not.
    """

    tensor_type: ClassVar[type[Any]] = Tensor

    graph: Graph
    scope: str = ""
    device: str = ""
    control_inputs: tuple[Operation, ...] = ()
    source: Source | None = None
    colocate: tuple[str, ...] = ()
    gradients: Mapping[str, str] | None = None
    device_function: Callable[[Operation], str] | None = None
    is_ordered: bool = True

    def within(self, name: str, source: Source | None = None, device: str = "") -> Builder:
        """Returns a builder in a new name scope `name` below this builder's scope.

        Args:
          name: the name of the scope, made unique in the graph.
          source: the user's line; None: that of this builder.
          device: the requested device; "": that of this builder.

        Returns:
          The derived builder.
        """
        scope = self.graph.unique_name(self.scope + name) + "/"
        return self._in(scope, device or self.device, self.control_inputs, source or self.source)

    def _in(self, scope: str, device: str, control_inputs: tuple[Operation, ...], source: Source | None) -> Builder:
        """Returns this builder with other values of four fields.

        Each operation of a gradient, and each that converts an argument, has its own builder, and `dataclasses.replace`
        takes twice as long.
        """
        return type(self)(
            self.graph,
            scope,
            device,
            control_inputs,
            source,
            self.colocate,
            self.gradients,
            self.device_function,
            self.is_ordered,
        )

    def in_scope(self, scope: str) -> Builder:
        """Returns a builder with names below `scope`, which ends in "/" or is empty."""
        return self._in(scope, self.device, self.control_inputs, self.source)

    def on(self, device: str) -> Builder:
        """Returns a builder whose operations request `device`."""
        return self._in(self.scope, device, self.control_inputs, self.source)

    def after(self, *ops: Operation | Tensor) -> Builder:
        """Returns a builder whose operations also wait for `ops`."""
        more = tuple(o.op if isinstance(o, Tensor) else o for o in ops)
        return self._in(self.scope, self.device, self.control_inputs + more, self.source)

    def at(self, where: Source | None) -> Builder:
        """Returns a builder whose operations record the user's line `where`."""
        return self._in(self.scope, self.device, self.control_inputs, where)

    def const(self, value: Any, dtype: DType | None = None, name: str = "Const") -> Tensor:
        """Creates a constant.

        Python floats become float32 and ints int32, unless `dtype` is given.
        """
        array = as_array(value, dtype)
        out: Tensor = self.make("Const", (), {"value": array, "dtype": dtype or dtypes.from_numpy(array.dtype)}, name)
        return out

    def make(
        self,
        type: str,
        args: Sequence[Any],
        attrs: dict[str, Any],
        name: str | None = None,
        notes: Iterable[Note] = (),
    ) -> Any:
        """Creates an operation.

        Args:
          type: the op type.
          args: one entry for each argument of the record (a list for a list argument).
          attrs: the attributes that the inputs do not determine.
          name: the name below the builder's scope; None: derived from the type.
          notes: the notes of the operation (`ir.notes`).

        Returns:
          The tensor if the op has one output, a tuple if it has several, the `Operation` if it has none.

        Raises:
          NotFoundError: the op type is not registered.
          GraphError, ShapeError: the arguments do not fit; the text names the op and the user's line.
        """
        try:
            record = op_registry.get(type)
        except LookupError as e:
            raise NotFoundError(f"Op type not registered '{type}': {e}") from e.__cause__
        where = self.source or source.here()
        graph = self.graph
        name = name or type.lstrip("_")  # names cannot begin with the underscore of internal op types
        try:
            try:
                groups, decided = self._match(record, args, attrs)
                full = ""
                if decided is not None and (fixed := self._with_floats(record, args, decided)) is not None:
                    groups, decided = self._match(record, fixed, attrs)
                if decided is not None:
                    full = self._reserve(name)
                    self._in(full + "/", self.device, (), where)._convert_rest(record, groups, decided)
                complete, inputs = complete_attrs(record, groups, attrs)
                if self.colocate or self.gradients:
                    self._mark(type, complete)
                controls: Sequence[Operation] = self.control_inputs
                if controls:
                    controls = [c for c in map(graph.capture_control, controls) if c is not None]
                name = full or self._reserve(name)
                op = graph.add_checked(record, name, inputs, complete, controls, self.device, where, notes)
            except (TypeError, ValueError) as e:
                if where is not None and not isinstance(e, ShapeError):
                    e.add_note(f"while making {type} at {where}")
                raise
            infer_shapes(op)
        except Exception as e:
            tracebacks.hide(e)
            raise
        if self.device_function is not None:
            op.device = self.device_function(op)
        if graph.order is not None and (record.facts.effect or record.structured) and self.is_ordered:
            for before in graph.order.after(op):
                graph.add_control_input(op, before)
        if len(op.outputs) == 1:
            return op.outputs[0]
        return op.outputs or op

    def _mark(self, type: str, attrs: dict[str, Any]) -> None:
        if self.colocate:
            attrs["_class"] = (*attrs.get("_class", ()), *(f"loc:@{name}" for name in self.colocate))
        if self.gradients and type in self.gradients:
            attrs["_gradient_op_type"] = self.gradients[type]

    def _with_weak_cast(self, record: OpDef, args: Sequence[Any], attr: str) -> list[Any] | None:
        chosen = [
            self.own(x)
            for spec, arg in zip(record.ins, args, strict=True)
            if spec.type_attr == attr
            for x in (arg if spec.is_list else [arg])
        ]
        dtype = weak_numbers.common_dtype([x for x in chosen if isinstance(x, Tensor)])
        if dtype is None:
            return None

        def cast(x: Any) -> Any:
            x = self.own(x)
            if not isinstance(x, Tensor) or x.dtype.base is dtype:
                return x
            return self.make("Cast", (x,), {"DstT": dtype})

        return [
            arg if spec.type_attr != attr else [cast(x) for x in arg] if spec.is_list else cast(arg)
            for spec, arg in zip(record.ins, args, strict=True)
        ]

    def _with_floats(self, record: OpDef, args: Sequence[Any], decided: Decided) -> list[Any] | None:
        """Returns the arguments with weak integers cast that meet Python floats, or None."""
        fixed = list(args)
        for spec, x in zip(record.ins, args, strict=True):
            if x.__class__ is float and spec.type_attr in decided.by and decided.types[spec.type_attr].is_integer:
                for k, (other, t) in enumerate(zip(record.ins, args, strict=True)):
                    if other.type_attr == spec.type_attr and isinstance(t, Tensor) and weak_numbers.is_weak(t):
                        fixed[k] = self.make("Cast", (t,), {"DstT": dtypes.float64})
                return None if all(x is y for x, y in zip(fixed, args, strict=True)) else fixed
        return None

    def _reserve(self, name: str) -> str:
        """Returns a free name below the scope.

        A name that ends in "/" is that of a scope, which is reserved for the operation already.
        """
        return name[:-1] if name[-1] == "/" else self.graph.unique_name(self.scope + name)

    def own(self, x: Any) -> Any:
        """Returns the tensor of this graph that `x` stands for; other values unchanged.

        Variables and tensors of outer graphs stand for tensors of this graph.
        """
        if not isinstance(x, Tensor):
            as_tensor = getattr(type(x), "as_tensor", None)
            if as_tensor is None:
                return x
            x = as_tensor(x, self)
            if not isinstance(x, Tensor):
                return x
        return x if x.op.graph is self.graph else self.graph.capture(x)

    def _pack(self, items: Sequence[Any], dtype: DType, name: str) -> Tensor:
        """Returns a list that contains tensors as one tensor.

        Numbers become constants named after their positions.
        """
        full = self._reserve(name)
        below = self.in_scope(full + "/")
        rows = list(items)
        for i, x in enumerate(rows):
            if not isinstance(x, (list, tuple)):
                rows[i] = below.own(x)
            elif has_tensors(x):
                rows[i] = below._pack(x, dtype, str(i))
            else:
                self.graph.unique_name(f"{full}/{i}")  # TensorFlow opens a scope here and leaves it empty
        tensors = [below.tensor(x, dtype, str(i)) for i, x in enumerate(rows)]
        out: Tensor = below.make("Pack", (tensors,), {}, full + "/")
        return out
