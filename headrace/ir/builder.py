"""The builder: a graph together with where new ops go in it (name scope, device, control inputs).

Everything below the user's API that makes ops (gradients, lowering, rewrites, importers) is handed a `Builder` and
reads no default graph. An op is made by calling its type:

    b = Builder(graph)
    y = b.Mul(b.Sin(x), 2.0)                       # a Tensor; several outputs: a tuple; none: the Operation
    z = b.within("branch").after(y.op).Identity(y)  # a derived builder: other scope, control input

Python values and arrays become constants of the dtype that the other inputs ask for, named below the op ("Mul/y").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import dtypes
from headrace.errors import NotFoundError, ShapeError
from headrace.ir import source
from headrace.ir.binding import OpCalls, complete_attrs, has_tensors
from headrace.ir.conversion import as_array
from headrace.ir.graph import Operation, Tensor
from headrace.ir.infer import infer_shapes
from headrace.ir.opdef import op_registry

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Graph
    from headrace.ir.source import Source


@dataclasses.dataclass(frozen=True, slots=True)
class Builder(OpCalls[Tensor]):
    """Makes ops in one place of one graph. Immutable: `within`, `on`, `after` and `at` give derived builders.

    Attributes:
      graph: the graph that grows.
      scope: prefix of new names, "" or ending in "/".
      device: device requested for new ops.
      control_inputs: every new op waits for these.
      source: the user's line put on new ops; None: the line that calls the builder.
      colocate: names of operations that new ops stand beside (the attribute `_class`).
      gradients: op type → name of the gradient that new ops of the type have instead of their own.
      device_function: given a new op, the device it requests; it has the last word.
      is_ordered: whether stateful ops keep to the graph's order, if it has one (what initializes a variable does not).
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
        """A builder in the fresh name scope `name` below this one's; of `source` and on `device`, if they are given."""
        scope = self.graph.unique_name(self.scope + name) + "/"
        return self._in(scope, device or self.device, self.control_inputs, source or self.source)

    def _in(self, scope: str, device: str, control_inputs: tuple[Operation, ...], source: Source | None) -> Builder:
        """This builder with other values of four fields.

        Each operation of a gradient, and each that converts an argument, has its own builder: `dataclasses.replace`
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
        """A builder whose ops are named below `scope`, which ends in "/" or is empty."""
        return self._in(scope, self.device, self.control_inputs, self.source)

    def on(self, device: str) -> Builder:
        """A builder whose ops request `device`."""
        return self._in(self.scope, device, self.control_inputs, self.source)

    def after(self, *ops: Operation | Tensor) -> Builder:
        """A builder whose ops also wait for `ops`."""
        more = tuple(o.op if isinstance(o, Tensor) else o for o in ops)
        return self._in(self.scope, self.device, self.control_inputs + more, self.source)

    def at(self, where: Source | None) -> Builder:
        """A builder whose ops carry the user's line `where`."""
        return self._in(self.scope, self.device, self.control_inputs, where)

    def const(self, value: Any, dtype: DType | None = None, name: str = "Const") -> Tensor:
        """A constant. Python floats become float32, ints int32, unless `dtype` says otherwise."""
        array = as_array(value, dtype)
        out: Tensor = self.make("Const", (), {"value": array, "dtype": dtype or dtypes.from_numpy(array.dtype)}, name)
        return out

    def make(self, type: str, args: Sequence[Any], attrs: dict[str, Any], name: str | None = None) -> Any:
        """Makes one op. `args` has one entry for each argument of its record (a list for a list argument).

        Returns:
          The tensor if the op has one output, a tuple if it has several, the `Operation` if it has none.

        Raises:
          NotFoundError: no such op type.
          GraphError, ShapeError: arguments that do not fit; the text names the op and the user's line.
        """
        try:
            record = op_registry.get(type)
        except LookupError as e:
            raise NotFoundError(f"Op type not registered '{type}': {e}") from e.__cause__
        where = self.source or source.here()
        graph = self.graph
        name = name or type.lstrip("_")  # an op of our own: no name may begin so
        try:
            groups, decided = self._match(record, args, attrs)
            full = ""
            if decided is not None:
                full = self._reserve(name)
                self._in(full + "/", self.device, (), where)._convert_rest(record, groups, decided)
            complete, inputs = complete_attrs(record, groups, attrs)
            if self.colocate or self.gradients:
                self._mark(type, complete)
            controls: Sequence[Operation] = self.control_inputs
            if controls:
                controls = [c for c in map(graph.capture_control, controls) if c is not None]
            op = graph.add_checked(record, full or self._reserve(name), inputs, complete, controls, self.device, where)
        except (TypeError, ValueError) as e:
            if where is not None and not isinstance(e, ShapeError):
                e.add_note(f"while making {type} at {where}")
            raise
        infer_shapes(op)
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

    def _reserve(self, name: str) -> str:
        """A free name below the scope. One that ends in "/" is that of a scope, which its op has to itself."""
        return name[:-1] if name[-1] == "/" else self.graph.unique_name(self.scope + name)

    def own(self, x: Any) -> Any:
        """`x` as a tensor of this graph, if it stands for one; else `x`.

        A variable and a tensor of an outer graph stand for one.
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
        """A list with tensors in it as one tensor. Numbers become constants named by their positions."""
        full = self._reserve(name)
        below = self.in_scope(full + "/")
        rows = list(items)
        for i, x in enumerate(rows):
            if not isinstance(x, (list, tuple)):
                rows[i] = below.own(x)
            elif has_tensors(x):
                rows[i] = below._pack(x, dtype, str(i))
            else:
                self.graph.unique_name(f"{full}/{i}")  # TensorFlow opens a scope for it, and leaves it empty
        tensors = [below.tensor(x, dtype, str(i)) for i, x in enumerate(rows)]
        out: Tensor = below.make("Pack", (tensors,), {}, full + "/")
        return out
