"""Binding of call arguments to the inputs and attributes of an op record.

Both builders call op types by name (`b.Mul(x, 2.0)`): the graph builder adds an operation, and the eager builder runs
it immediately. Binding is the same for both and has two steps.

`OpCalls._match` sorts the arguments into one group for each input of the record. The tensors among them determine the
type attributes. If all arguments are tensors, this step suffices. Otherwise `OpCalls._convert_rest` converts Python
values and arrays to tensors of these dtypes or, without a determined dtype, of the values' own dtypes. `complete_attrs`
then infers and checks the attributes.

A builder supplies the class of its tensors, `own`, `const` and `_pack`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from headrace import dtypes, nest
from headrace.errors import ConversionError, GraphError, SignatureError
from headrace.ir.conversion import NO_TENSOR, shown
from headrace.ir.graph import Operation, Tensor
from headrace.ir.kernel_errors import is_loop_variable, quoted
from headrace.ir.opdef import OpDef, op_registry

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Graph
    from headrace.ir.opdef import ArgSpec

T = TypeVar("T")


class Decided(NamedTuple):
    """Type attributes of a call, as far as its tensors and given attributes determine them.

    Attributes:
      types: the dtype of each type attribute.
      by: for each type attribute that a tensor determines, the first argument and tensor of that type.
    """

    types: dict[str, DType]
    by: dict[str, tuple[ArgSpec, Any]]


class OpCalls(Generic[T]):
    """Calls of op types by name: `b.Mul(x, y)` is `b.make("Mul", (x, y), {})`.

    Attributes:
      tensor_type: the class of the builder's tensors, `T`.
    """

    __slots__ = ()

    tensor_type: ClassVar[type[Any]]

    def __getattr__(self, type: str) -> Callable[..., Any]:
        if type not in op_registry and (not type[:1].isupper() or op_registry.sought(type) is None):
            me = self.__class__.__name__
            raise AttributeError(f"{me} has no attribute {type!r}, and no op type of that name is registered")

        def call(*args: Any, name: str | None = None, **attrs: Any) -> Any:
            return self.make(type, args, attrs, name)

        return call

    # *** supplied by the builder ***

    if TYPE_CHECKING:  # a field of `Builder`; the property would be its default

        @property
        def graph(self) -> Graph | None:
            """Graph of every tensor of the builder, or None."""

    @abstractmethod
    def make(self, type: str, args: Sequence[Any], attrs: dict[str, Any], name: str | None = None) -> Any:
        """Creates one operation from one entry of `args` for each argument of the record."""

    @abstractmethod
    def const(self, value: Any, dtype: DType | None = None, name: str = "Const") -> T:
        """Returns a tensor with this value.

        Python floats become float32 and ints int32, unless `dtype` is given.
        """

    @abstractmethod
    def own(self, x: Any) -> Any:
        """Returns the tensor of this builder that `x` stands for; other values unchanged.

        A variable stands for its value, and a tensor of an outer graph for the captured tensor.
        """

    @abstractmethod
    def _pack(self, items: Sequence[Any], dtype: DType, name: str) -> T:
        """Returns a nested list of tensors and values of one dtype as one tensor."""

    # *** conversion ***

    def tensor(self, x: Any, dtype: DType | None = None, name: str = "Const") -> T:
        """Returns `x` as a tensor of this builder: itself, a constant or a Pack.

        A variable stands for its value. A list that contains tensors becomes a Pack of its items; tensors in it with
        another dtype than `dtype` are cast.

        Args:
          x: the value.
          dtype: the dtype of the result; None: determined by `x`.
          name: the name of the constant or Pack.

        Returns:
          The tensor.

        Raises:
          TypeError: `x` cannot be converted to a tensor, or not to one of `dtype`.
          ConversionError (a TypeError and a ValueError): `x` is None, or a tensor of another dtype.
          GraphError: `x` is in a graph that this builder cannot read.
        """
        if isinstance(x, (list, tuple)):
            found_in = (t for t in nest.flatten(x, expand=False) if stands_for_tensor(t))
            kinds = {(t if hasattr(t, "dtype") else self.own(t)).dtype.base: None for t in found_in}
            if not kinds:
                return self.const(x, dtype, name)
            found = next(iter(kinds))
            if dtype is None and kinds.keys() == {dtypes.int32, dtypes.int64}:
                dtype = dtypes.int64  # indices, such as [i, k]
                x = self._cast(x, dtype)
            elif dtype is not None and found is not dtype.base:
                x = self._cast(x, dtype)
            return self._pack(x, dtype or found, "packed" if name == "Const" else name)
        x = self.own(x)
        if not isinstance(x, self.tensor_type):
            return self.const(x, dtype, name)
        if dtype is not None and x.dtype.base is not dtype.base:
            raise ConversionError(
                f"Tensor conversion requested dtype {dtype.base.name} for Tensor with dtype {x.dtype.base.name}: "
                f"{x!r}{_origin(x)}; cast it (hr.cast)"
            )
        tensor: T = x
        return tensor

    def _cast(self, x: Any, dtype: DType) -> Any:
        """Returns `x` with all tensors in it cast to `dtype`.

        TensorFlow casts in shapes like `[n, 3]` with an int64 n.
        """
        if isinstance(x, (list, tuple)):
            return [self._cast(item, dtype) for item in x]
        x = self.own(x)
        if isinstance(x, self.tensor_type) and x.dtype is not dtype:
            return self.make("Cast", (x,), {"DstT": dtype})
        return x

    # *** binding ***

    def _match(
        self, record: OpDef, args: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[list[list[Any]], Decided | None]:
        """Sorts the arguments of a call into groups, one for each input of `record`.

        Args:
          record: the record of the op type.
          args: one entry for each argument.
          attrs: the attributes that the caller stated.

        Returns:
          The groups, and None if every member is a tensor of this builder; else the types for `_convert_rest`.

        Raises:
          GraphError: the number of arguments is wrong, or an argument is not a list where the record requires a list.
          SignatureError: two tensors for one type attribute have different dtypes.
        """
        specs = record.ins
        if len(args) != len(specs):
            names = ", ".join(a.name for a in specs)
            raise GraphError(f"{record.type} takes {len(specs)} arguments ({names}), got {len(args)}")
        tensor_type, graph = self.tensor_type, self.graph
        groups: list[list[Any]] = []
        types: dict[str, DType] = {}
        by: dict[str, tuple[ArgSpec, Any]] = {}
        if attrs:
            types.update((k, dtypes.as_dtype(v)) for k, v in attrs.items() if _is_type(record, k))
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
                if not isinstance(x, tensor_type) or (graph is not None and x.op.graph is not graph):
                    x = group[i] = self.own(x)
                    if not isinstance(x, tensor_type):
                        is_ready = False
                        continue
                if attr is not None:
                    if attr in by:
                        if types[attr] is not x.dtype.base:
                            fixed = self._with_weak_cast(record, args, attr)
                            if fixed is None:
                                raise _mismatch(record, spec, x, *by[attr])
                            return self._match(record, fixed, attrs)
                    elif attr not in attrs:
                        types[attr] = x.dtype.base
                        by[attr] = (spec, x)
        return groups, None if is_ready else Decided(types, by)

    def _with_weak_cast(self, record: OpDef, args: Sequence[Any], attr: str) -> list[Any] | None:
        """Returns the arguments with weak numbers cast to the dtype of the others (`ir.weak_numbers`).

        The result is None if no weak number is the reason that the dtypes of the attribute `attr` differ.
        """
        return None

    def _convert_rest(self, record: OpDef, groups: Sequence[list[Any]], decided: Decided) -> None:
        """Converts the members of `groups` that are not tensors, in place.

        Raises:
          GraphError: an argument is an operation.
          SignatureError: a value does not fit the dtype that a tensor determines.
          TypeError, ValueError: a value cannot be converted; see `tensor`.
        """
        types = decided.types
        for spec, group in zip(record.ins, groups, strict=True):
            attr = spec.type_attr or ""
            for i, x in enumerate(group):
                if not isinstance(x, self.tensor_type):
                    dtype = spec.dtype or types.get(attr) or _default_of_empty(x, record, attr)
                    label = f"{spec.name}_{i}" if spec.is_list else spec.name
                    made: Any = self._convert(x, record, spec, dtype, label, decided.by.get(attr))
                    group[i] = made
                    if attr:
                        types.setdefault(attr, made.dtype.base)

    def _convert(
        self, x: Any, record: OpDef, spec: ArgSpec, dtype: DType | None, label: str, by: tuple[ArgSpec, Any] | None
    ) -> T:
        if isinstance(x, Operation):
            raise GraphError(f"argument {spec.name!r} got the operation {x.name!r}; give one of its outputs")
        try:
            if isinstance(x, (list, tuple)):
                return self.tensor(x, dtype, label)
            return self.const(x, dtype, label)  # `_match` has called `own`
        except TypeError as e:
            if by is None or isinstance(e, GraphError) or NO_TENSOR in str(e):
                raise
            first, other = by
            raise SignatureError(
                f"Input '{spec.name}' of '{record.type}' Op does not match type {other.dtype.base.name} of argument "
                f"'{first.name}' ({_called(other)}): {e}. Cast the one or the other (hr.cast)"
                f"{_START if _is_of_loop(other) else ''}"
            ) from e


def complete_attrs(
    record: OpDef, groups: Sequence[Sequence[Any]], attrs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    """Returns the complete attributes of a call with tensors `groups`, and its flat inputs.

    Raises:
      GraphError: an attribute is missing or has a wrong value, or the inputs do not fit the record.
      SignatureError: an argument has too few tensors or a dtype that the record does not allow.
    """
    given = [[t.dtype for t in g] for g in groups]
    try:
        complete = record.infer_attrs(given, attrs)
    except GraphError as e:
        raise _not_taken(record, groups, attrs) or e from None
    got = [d for ds in given for d in ds]
    if record.input_dtypes(complete) != got:
        record.check_inputs(complete, got)
    return complete, [t for g in groups for t in g]


def stands_for_tensor(x: Any) -> bool:
    """Whether `x` is a tensor of any builder, or a variable."""
    return isinstance(x, Tensor) or hasattr(type(x), "as_tensor")


def _default_of_empty(x: Any, record: OpDef, attr: str) -> DType | None:
    """Returns the dtype of an empty list, which determines none: the default of the attribute."""
    if not isinstance(x, (list, tuple)) or x or attr not in record.attrs:
        return None
    default = record.attrs[attr].default
    return default if isinstance(default, dtypes.DType) else None


def has_tensors(x: Any) -> bool:
    """Whether a nested list has a member that stands for a tensor."""
    return any(map(stands_for_tensor, nest.flatten(x, expand=False)))


def _is_type(record: OpDef, attr: str) -> bool:
    spec = record.attrs.get(attr)
    return spec is not None and spec.kind == "type" and not spec.is_list


# *** errors ***

_START: Final = "; or let the loop variable start with a number of the other type (1.0 is a float, 1 an int)"


def _not_taken(record: OpDef, groups: Sequence[Sequence[Any]], attrs: Mapping[str, Any]) -> SignatureError | None:
    """Returns the error for the first argument with a wrong dtype or count, or None."""
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
            names = ", ".join(sorted(d.name for d in allowed))
            return SignatureError(
                f"Value passed to parameter '{spec.name}' of '{record.type}' Op has DataType {t.dtype.base.name} not "
                f"in list of allowed values: {names}. Got {_called(t)}{_origin(t)}; cast it (hr.cast)"
            )
    return None


def _mismatch(record: OpDef, spec: ArgSpec, x: Any, first: ArgSpec, other: Any) -> SignatureError:
    """Returns the error for two tensors of different dtypes for one type attribute."""
    return SignatureError(
        f"Input '{spec.name}' of '{record.type}' Op has type {x.dtype.base.name} that does not match type "
        f"{other.dtype.base.name} of argument '{first.name}': got {_called(x)}{_origin(x)} and {_called(other)}"
        f"{_origin(other)}. Cast one of them (hr.cast){_START if _is_of_loop(x) or _is_of_loop(other) else ''}"
    )


def _called(t: Any) -> str:
    """Returns the quoted name of a symbolic tensor, or the value of an eager one."""
    return quoted(t) if isinstance(t, Tensor) else shown(t)


def _origin(t: Any) -> str:
    """Returns the user's line that created a symbolic tensor, in parentheses, or ""."""
    return f" (made at {t.op.source})" if isinstance(t, Tensor) and t.op.source is not None else ""


def _is_of_loop(t: Any) -> bool:
    """Whether `t` is a loop variable of a graph."""
    return isinstance(t, Tensor) and is_loop_variable(t)
