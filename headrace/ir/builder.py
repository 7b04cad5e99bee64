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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes
from headrace.errors import ConversionError, GraphError, NotFoundError, ShapeError, SignatureError
from headrace.ir import source
from headrace.ir.graph import Operation, Tensor
from headrace.ir.infer import infer_shapes
from headrace.ir.kernel_errors import is_loop_variable, quoted
from headrace.ir.opdef import OpDef, op_registry

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Graph
    from headrace.ir.opdef import ArgSpec
    from headrace.ir.source import Source


class OpCalls:
    """What makes ops by calling their types: `b.Mul(x, y)` is `b.make("Mul", (x, y), {})`."""

    __slots__ = ()

    def __getattr__(self, type: str) -> Callable[..., Any]:
        if type not in op_registry and (not type[:1].isupper() or op_registry.sought(type) is None):
            me = self.__class__.__name__
            raise AttributeError(f"{me} has no attribute {type!r}, and no op type of that name is registered")

        def call(*args: Any, name: str | None = None, **attrs: Any) -> Any:
            return self.make(type, args, attrs, name)

        return call


@dataclasses.dataclass(frozen=True, slots=True)
class Builder(OpCalls):
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
            inputs, complete, full = self._bind(record, args, attrs, name, where)
            if self.colocate or self.gradients:
                self._mark(type, complete)
            controls: Sequence[Operation] = self.control_inputs
            if controls:
                controls = [c for c in map(graph.capture_control, controls) if c is not None]
            op = graph.add_checked(record, full or self._reserve(name), inputs, complete, controls)
        except (TypeError, ValueError) as e:
            if where is not None and not isinstance(e, ShapeError):
                e.add_note(f"while making {type} at {where}")
            raise
        op.device = self.device
        op.source = where
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

    def _bind(
        self, record: OpDef, args: Sequence[Any], attrs: dict[str, Any], name: str, where: Source | None
    ) -> tuple[list[Tensor], dict[str, Any], str]:
        """The inputs, the complete attributes, and the op's name if constants had to be put below it ("" if not)."""
        specs = record.ins
        if len(args) != len(specs):
            names = ", ".join(a.name for a in specs)
            raise GraphError(f"{record.type} takes {len(specs)} arguments ({names}), got {len(args)}")
        groups: list[list[Any]] = []
        wanted: dict[str, DType] = {}
        decided: dict[str, tuple[ArgSpec, Tensor]] = {}  # what a type attribute follows from
        if attrs:
            wanted.update((k, dtypes.as_dtype(v)) for k, v in attrs.items() if _is_type(record, k))
        graph = self.graph
        is_ready = True
        for spec, arg in zip(specs, args, strict=True):
            if not spec.is_list:
                group = [arg]
            elif isinstance(arg, (list, tuple)):
                group = list(arg)
            else:
                raise GraphError(f"argument {spec.name!r} of {record.type} must be a list of tensors, got {arg!r}")
            groups.append(group)
            attr = spec.type_attr
            for i, x in enumerate(group):
                if not isinstance(x, Tensor) or x.op.graph is not graph:
                    x = group[i] = self._own(x)
                    if not isinstance(x, Tensor):
                        is_ready = False
                        continue
                if attr is not None:
                    if attr in decided:
                        if wanted[attr] is not x.dtype.base:
                            raise _mismatch(record, spec, x, *decided[attr])
                    elif attr not in attrs:
                        wanted[attr] = x.dtype.base
                        decided[attr] = (spec, x)
        full = ""
        if not is_ready:
            full = self._reserve(name)
            below = self._in(full + "/", self.device, (), where)
            for spec, group in zip(specs, groups, strict=True):
                attr = spec.type_attr or ""
                for i, x in enumerate(group):
                    if not isinstance(x, Tensor):
                        dtype = spec.dtype or wanted.get(attr) or _of_nothing(x, record, attr)
                        label = f"{spec.name}_{i}" if spec.is_list else spec.name
                        group[i] = below._convert(x, record, spec, dtype, label, decided.get(attr))
                        if attr:
                            wanted.setdefault(attr, group[i].dtype.base)
        try:
            complete = record.infer_attrs([[t.dtype for t in g] for g in groups], attrs)
        except GraphError as e:
            raise _not_taken(record, groups, attrs) or e from None
        inputs = groups[0] if len(groups) == 1 else [t for g in groups for t in g]
        got = [t.dtype for t in inputs]
        if record.input_dtypes(complete) != got:
            record.check_inputs(complete, got)
        return inputs, complete, full

    def _own(self, x: Any) -> Any:
        """`x`, as a tensor of this graph if it stands for one (a variable, a tensor of a graph around this one)."""
        if not isinstance(x, Tensor):
            as_tensor = getattr(type(x), "as_tensor", None)
            if as_tensor is None:
                return x
            x = as_tensor(x, self)
            if not isinstance(x, Tensor):
                return x
        return x if x.op.graph is self.graph else self.graph.capture(x)

    def _convert(
        self,
        x: Any,
        record: OpDef,
        spec: ArgSpec,
        dtype: DType | None,
        name: str,
        decided: tuple[ArgSpec, Tensor] | None,
    ) -> Tensor:
        if isinstance(x, Operation):
            raise GraphError(f"argument {spec.name!r} got the operation {x.name!r}; give one of its outputs")
        try:
            return self.tensor(x, dtype, name)
        except TypeError as e:
            if decided is None or isinstance(e, GraphError) or _NO_TENSOR in str(e):
                raise
            of = f" of argument {decided[0].name!r} ({quoted(decided[1])})"
            raise SignatureError(
                f"Input '{spec.name}' of '{record.type}' Op does not match type {decided[1].dtype.base.name}{of}: {e}. "
                f"Cast the one or the other (hr.cast){_START if is_loop_variable(decided[1]) else ''}"
            ) from e

    def tensor(self, x: Any, dtype: DType | None = None, name: str = "Const") -> Tensor:
        """`x` as a tensor of this graph: itself, a constant, or (a list with tensors in it) a Pack of its items.

        Raises:
          TypeError: it cannot be one, or not one of `dtype`.
          ConversionError (a TypeError and a ValueError): it is None, or a tensor of another dtype.
        """
        if isinstance(x, (list, tuple)):
            if _has_tensors(x):
                found: DType = next(
                    t.dtype.base for t in _leaves(x) if isinstance(t, Tensor) or hasattr(t, "as_tensor")
                )
                if dtype is not None and found is not dtype.base:
                    x = self._cast(x, dtype)
                dtype = dtype or found
                return self._pack(x, dtype, "packed" if name == "Const" else name)
            return self.const(x, dtype, name)
        x = self._own(x)
        if not isinstance(x, Tensor):
            return self.const(x, dtype, name)
        if dtype is not None and x.dtype.base is not dtype.base:
            raise ConversionError(
                f"Tensor conversion requested dtype {dtype.base.name} for Tensor with dtype {x.dtype.base.name}: {x!r}"
                f"{f' (made at {x.op.source})' if x.op.source is not None else ''}; cast it (hr.cast)"
            )
        return x

    def _cast(self, x: Any, dtype: DType) -> Any:
        """`x`, with all tensors in it cast to `dtype`, as TensorFlow does for shapes like `[n, 3]` with a long n."""
        if isinstance(x, (list, tuple)):
            return [self._cast(item, dtype) for item in x]
        x = self._own(x)
        return self.make("Cast", (x,), {"DstT": dtype}) if isinstance(x, Tensor) and x.dtype is not dtype else x

    def _pack(self, items: Sequence[Any], dtype: DType | None, name: str) -> Tensor:
        """A list with tensors in it, as one. Its numbers become constants that are called by their places."""
        full = self._reserve(name)
        below = self.in_scope(full + "/")
        rows = list(items)
        for i, x in enumerate(rows):
            if not isinstance(x, (list, tuple)):
                rows[i] = below._own(x)
            elif _has_tensors(x):
                rows[i] = below._pack(x, dtype, str(i))
            else:
                self.graph.unique_name(f"{full}/{i}")  # TensorFlow opens a scope for it, and leaves it empty
        tensors = [below.tensor(x, dtype, str(i)) for i, x in enumerate(rows)]
        out: Tensor = below.make("Pack", (tensors,), {}, full + "/")
        return out


def _of_nothing(x: Any, record: OpDef, attr: str) -> DType | None:
    """The dtype of an empty list, which says nothing itself: what the op has by default."""
    if not isinstance(x, (list, tuple)) or x or attr not in record.attrs:
        return None
    default = record.attrs[attr].default
    return default if isinstance(default, dtypes.DType) else None


def _not_taken(record: OpDef, groups: Sequence[Sequence[Tensor]], attrs: Mapping[str, Any]) -> SignatureError | None:
    """The error of the argument that is of a dtype, or of as few tensors, as the op does not take; None: of none."""
    for spec, group in zip(record.ins, groups, strict=True):
        number = None if spec.number_attr is None else record.attrs[spec.number_attr].minimum
        if number is not None and len(group) < number:
            return SignatureError(
                f"'{record.type}' Op needs at least {number} tensor{'s' * (number != 1)} as argument '{spec.name}', "
                f"got {len(group)}"
            )
        allowed = None if spec.type_attr in (None, *attrs) else record.attrs[spec.type_attr or ""].allowed
        if allowed is not None and group and group[0].dtype.base not in allowed:
            t = group[0]
            made = f" (made at {t.op.source})" if t.op.source is not None else ""
            names = ", ".join(sorted(d.name for d in allowed))
            return SignatureError(
                f"Value passed to parameter '{spec.name}' of '{record.type}' Op has DataType {t.dtype.base.name} not "
                f"in list of allowed values: {names}. Got '{t.name}'{made}; cast it (hr.cast)"
            )
    return None


def _mismatch(record: OpDef, spec: ArgSpec, x: Tensor, first: ArgSpec, other: Tensor) -> SignatureError:
    """Two tensors of different dtypes for one type attribute."""
    made, also = (f" (made at {t.op.source})" if t.op.source is not None else "" for t in (x, other))
    return SignatureError(
        f"Input '{spec.name}' of '{record.type}' Op has type {x.dtype.base.name} that does not match type "
        f"{other.dtype.base.name} of argument '{first.name}': got {quoted(x)}{made} and {quoted(other)}{also}. Cast "
        f"one of them (hr.cast){_START if any(is_loop_variable(t) for t in (x, other)) else ''}"
    )


_START = "; or let the loop variable start with a number of the other type (1.0 is a float, 1 an int)"


def _leaves(x: Any) -> Iterator[Any]:
    for v in x:
        if isinstance(v, (list, tuple)):
            yield from _leaves(v)
        else:
            yield v


def _has_tensors(x: Any) -> bool:
    return any(isinstance(v, Tensor) or hasattr(type(v), "as_tensor") for v in _leaves(x))


def _is_type(record: OpDef, attr: str) -> bool:
    spec = record.attrs.get(attr)
    return spec is not None and spec.kind == "type" and not spec.is_list


_NO_TENSOR = "cannot be a tensor"


def as_array(value: Any, dtype: DType | None = None) -> np.ndarray:
    """`value` as a read-only array of `dtype` (Python floats: float32, ints: int32 or int64 if too large, text: bytes).

    Raises:
      TypeError: it cannot be an array of that dtype without losing what it is (a float as an int, text as a number), or
        no array at all. (ConversionError, which is a ValueError too, for None and arrays of text.)
      ValueError: its rows differ in length, or a number is too large for the dtype.
    """
    if (dtype is not None and dtype.base is dtypes.string) or (dtype is None and _is_text(value)):
        return frozen(_string_array(value))
    try:
        array = np.asarray(value)
    except ValueError as e:  # numpy says where
        if not isinstance(value, (list, tuple)):
            raise  # its own: an object that cannot be an array
        raise ValueError(
            f"{_short(value)} {_NO_TENSOR}: its rows differ in length or depth. Give rows of equal length, or "
            f"pad them ({e})"
        ) from e
    if array.dtype == object:
        if dtype is not None and dtype in dtypes.OBJECT:
            return frozen(array)
        raise (ConversionError if value is None else TypeError)(
            f"{_short(value)} ({type(value).__name__}) {_NO_TENSOR}: give a number, a bool, text, an array, or "
            "lists of these"
        )
    if dtype is None:
        if array.dtype.kind in "SU":
            raise TypeError(f"{_short(value)} {_NO_TENSOR}: it mixes text with numbers")
        if array.dtype == np.float64 and not _has_dtype(value):
            array = array.astype(np.float32)
        elif array.dtype == np.int64 and not _has_dtype(value):
            small = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
            array = array.astype(np.int32) if small else array
        return frozen(array)
    want = dtype.base.numpy
    if array.dtype != want:
        if array.size and _RANK_OF_KIND.get(array.dtype.kind, 2) > _RANK_OF_KIND.get(want.kind, 2):
            kind = "text" if array.dtype.kind in "SU" else f"of dtype {array.dtype}"
            error = ConversionError if kind == "text" and _has_dtype(value) else TypeError
            raise error(f"expected {dtype.base.name}, got {_short(value)}, which is {kind}")
        if array.size and want.kind in "iu" and array.dtype.kind in "iu" and not _has_dtype(value):
            least, most = np.iinfo(want).min, np.iinfo(want).max
            if array.min() < least or array.max() > most:
                raise ValueError(
                    f"{_short(value)} does not fit {dtype.base.name}, which goes from {least} to {most}; choose a "
                    "larger dtype"
                )
        array = array.astype(want)
    return frozen(array)


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= 80 else text[:77] + "..."


# how much a kind of number can hold; going down would lose something ('V' is how ml_dtypes' floats present themselves)
_RANK_OF_KIND = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3, "S": 9, "U": 9, "O": 9}


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only array with the same elements, sharing none with whoever made `array` if that could write them."""
    if array.flags.writeable:
        array = array.copy() if array.base is not None or array.flags.owndata else array
        array.flags.writeable = False
    return array


def _has_dtype(value: Any) -> bool:
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, (list, tuple)):
            todo += part
        elif hasattr(part, "dtype"):
            return True
    return False


def _is_text(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    if isinstance(value, (str, bytes)):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "SU" or (value.dtype == object and value.size > 0 and _is_text(value.flat[0]))
    return False


def _string_array(value: Any) -> np.ndarray:
    shaped = np.array(value, dtype=object)
    out = np.empty(shaped.shape, dtype=object)
    for i in np.ndindex(shaped.shape):
        x = shaped[i]
        if isinstance(x, str):
            x = x.encode()
        if not isinstance(x, bytes):
            raise TypeError(f"expected string, got {x!r} of type {type(x).__name__}")
        out[i] = x
    return out
