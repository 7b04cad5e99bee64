"""The eager builder: runs ops in place of adding them to a graph.

The complete attributes and the kernel of an op are found once for each combination of type, dtypes and attributes, and
kept in a memo. A call with eager tensors and Python numbers whose key is in the memo needs no binding.

**Cost.** An op of scalars takes about a microsecond. So the path of a call that the memo knows makes no structures but
the key, sets numpy's error state without `np.errstate` (`float_errors`), and computes scalars by operators
(`opkit.scalar_operators`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import queue
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from headrace import dtypes, flags, forking, thresholds, tracebacks
from headrace.api.recorder import Recorder, active
from headrace.diagnosis import Diagnosis, Input, OpRef
from headrace.eager.tensor import EagerTensor
from headrace.errors import DeadlineExceededError, GraphError, HeadraceError, NotFoundError, UnimplementedError
from headrace.float_errors import IGNORED, error_state
from headrace.ir import source
from headrace.ir.attr_values import attr_key
from headrace.ir.binding import OpCalls, complete_attrs
from headrace.ir.conversion import as_array, usual_number
from headrace.ir.graph import Operation, Tensor
from headrace.ir.kernel import Kernel, KernelContext, find_kernel
from headrace.ir.kernel_errors import brief, translated
from headrace.ir.notes import NO_NOTES, Notes
from headrace.ir.opdef import NotDifferentiable, OpDef, op_registry
from headrace.memo import Memo, cached
from headrace.opkit.kernel_library import kernel_with_library
from headrace.opkit.scalar_operators import in_place_of, takes_numbers
from headrace.records import record
from headrace.resources.manager import Handle, ResourceManager

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.eager.tape import GradientTape
    from headrace.ir.builder import Builder
    from headrace.ir.opdef import ArgSpec
    from headrace.ir.source import Source


class EagerOp:
    """An op that runs at once, as its kernel and errors see it.

    Args:
      name: the name of the op.
      record: the record of its type.
      attrs: its complete attributes.

    Attributes:
      name: as in `ir.graph.Operation`, as are `type`, `opdef`, `attrs` and `notes`.
      notes: none; eager ops have no passes.
      device: "", since there is one device.
      type: the op type.
      opdef: the record.
      attrs: the complete attributes.
      source: the user's line, once it is known.
    """

    __slots__ = ("attrs", "name", "opdef", "source", "type")

    notes: ClassVar[Notes] = NO_NOTES
    device: ClassVar[str] = ""

    def __init__(self, name: str, record: OpDef, attrs: dict[str, Any]) -> None:
        self.name = name
        self.type = record.type
        self.opdef = record
        self.attrs = attrs
        self.source: Source | None = None

    def __repr__(self) -> str:
        return f"<EagerOp {self.name!r} type={self.type}>"


class EagerStepState:
    """The step of a single stateful op that runs at once (`ir.kernel.StepContext`).

    Args:
      session: the resources that ops find by name.

    Attributes:
      id: 0, which is not the number of any step of a session.
      session: the resources that ops find by name.
      tag: "", the tag of the root.
      memory: None, since eager ops have no memory limit.
    """

    __slots__ = ("_own", "session")

    id = 0
    tag = ""
    memory = None

    def __init__(self, session: ResourceManager) -> None:
        self.session = session
        self._own: ResourceManager | None = None

    @property
    def resources(self) -> ResourceManager:
        """The manager of the op: its resources pass to their handles (`keep`)."""
        if self._own is None:
            self._own = ResourceManager()
        return self._own

    def keep(self, value: Any, shared: ResourceManager) -> Any:
        """Gives the handles in `value` the resources that the op made outside of `shared`."""
        if isinstance(value, tuple):
            return tuple([self.keep(v, shared) for v in value])
        if not isinstance(value, Handle) or value.owned is not None:
            return value
        manager = self.resources if value.of_step else self.session
        return value if manager is shared else manager.owned(value)


class _Number(NamedTuple):
    """A Python number or list of integers in a call, which becomes a tensor.

    Attributes:
      position: its position among the arguments.
      at: its position among the values of the arguments, flat.
      dtype: the dtype of the tensor.
      convert: the conversion to what the kernel takes; None if the kernel takes Python numbers.
      least, most: the range of the numbers for which this holds; None, None for integers in a list, whose conversion
        returns None out of range.
    """

    position: int
    at: int
    dtype: DType
    convert: Callable[[Any], Any] | None
    least: Any
    most: Any

    def tensor(self, value: Any) -> EagerTensor:
        """Returns the tensor of a number, given by the number or its conversion."""
        is_ready = self.least is None or isinstance(value, np.generic)
        return EagerTensor(value if is_ready else self.dtype.numpy.type(value), self.dtype)


@record(frozen=True, slots=True)
class _Prepared:
    """An op that is ready to run.

    Attributes:
      key: the key of its calls with eager tensors.
      record: the record of its type.
      attrs: its complete attributes.
      dtypes: the dtypes of its outputs.
      dtype: the dtype of its only output; None for other numbers of outputs.
      is_kept: whether `run` is the kernel for all calls: of a pure op, or of one on a resource.
      run: the kernel, or its factory, which makes one for each call.
      is_async: whether the kernel may wait.
      is_recorded: whether a tape records the op.
      counts: the length of each list among the arguments, None for a tensor; None if there are no lists.
      numbers: the Python numbers among the arguments.
    """

    key: Any
    record: OpDef
    attrs: dict[str, Any]
    dtypes: list[DType]
    dtype: DType | None
    is_kept: bool
    run: Callable[..., Any]
    is_async: bool
    is_recorded: bool
    counts: list[int | None] | None
    numbers: tuple[_Number, ...] = ()


class OpEntry:
    """An eager op that has run (`api.recorder.Entry`).

    Args:
      type: the op type.
      args: for each argument a tensor or a list of tensors.
      attrs: the attributes that the call gave.
      prepared: the op.
      outputs: the outputs of the op.

    Attributes:
      type: the op type.
      inputs: the tensors of all arguments.
      outputs: the outputs of the op.
      structure: the key of the op.
    """

    __slots__ = ("_attrs", "_counts", "_source", "inputs", "outputs", "structure", "type")

    def __init__(
        self,
        type: str,
        args: Sequence[Any],
        attrs: dict[str, Any],
        prepared: _Prepared,
        outputs: tuple[EagerTensor, ...],
    ) -> None:
        self.type = type
        self.structure: Hashable = prepared.key
        self.outputs = outputs
        self._attrs = attrs
        self._source = source.here(3)  # `__init__`, `_record` and `make` are not the user's
        self._counts = prepared.counts
        if self._counts is None:
            self.inputs = tuple(args)
        else:
            self.inputs = tuple([t for a in args for t in (a if a.__class__ is list else (a,))])

    def create(self, b: Builder, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Creates the op in a graph; see `api.recorder.Entry`."""
        args: Sequence[Any] = inputs
        if self._counts is not None:
            rest = iter(inputs)
            args = [next(rest) if n is None else list(itertools.islice(rest, n)) for n in self._counts]
        made = b.at(self._source).make(self.type, args, self._attrs)
        return made if isinstance(made, tuple) else (made,)


class EagerBuilder(OpCalls[EagerTensor]):
    """Runs ops; has the methods of `ir.builder.Builder`. Thread-safe.

    A resource that an op makes without a `shared_name` lives as long as its handles. One with a `shared_name` is found
    again by later ops with the same name, as in a session. A random op continues its stream at every call with the same
    attributes.

    Attributes:
      graph: None.
      control_inputs: ().
      session: the resources with names.
      seed: the argument of the last `set_seed`, or None.

    Example:
      >>> import headrace as hr
      >>> EagerBuilder().AddV2(1.0, [2.0, 3.0])
      <EagerTensor shape=[2] dtype=float32: array([3., 4.], dtype=float32)>
    """

    tensor_type: ClassVar[type[Any]] = EagerTensor
    graph: Final = None
    control_inputs: Final = ()
    scope: Final = ""
    device: Final = ""
    source: Final = None

    def __init__(self) -> None:
        self.session = ResourceManager()
        forking.register_at_fork(self.session)
        self.seed: int | None = None
        self._op_seeds = random.Random(0)
        self._prepared: Memo[tuple[Any, ...], _Prepared] = Memo("eager ops", thresholds.EAGER_PREPARED_OPS)

    def forget_kernels(self) -> None:
        """Clears the memo of kernels, because kernels were registered."""
        self._prepared.clear()

    def tape(self, persistent: bool = False) -> GradientTape:
        """Returns a tape, for modules that the tape imports."""
        from headrace.eager.tape import GradientTape

        return GradientTape(persistent)

    # *** methods without effect: each op is done before the next begins ***

    def within(self, name: str) -> EagerBuilder:
        """Returns this builder, since eager ops have no names."""
        return self

    def on(self, device: str) -> EagerBuilder:
        """Returns this builder, since there is one device."""
        return self

    def after(self, *ops: Any) -> EagerBuilder:
        """Returns this builder, since all earlier ops are done."""
        return self

    def at(self, where: Source | None) -> EagerBuilder:
        """Returns this builder."""
        return self

    # *** tensors ***

    def const(self, value: Any, dtype: DType | None = None, name: str = "Const") -> EagerTensor:
        """Returns a tensor with this value. Python floats become float32, ints int32, without a `dtype`."""
        if value.__class__ in _NUMBERS:
            usual = usual_number(value.__class__, dtype)
            if usual is not None and usual[0] <= value <= usual[1]:
                return EagerTensor(usual[2].type(value), dtypes.from_numpy(usual[2]) if dtype is None else dtype.base)
        array = as_array(value, dtype)
        dtype = dtypes.from_numpy(array.dtype) if dtype is None else dtype.base
        return EagerTensor(array[()] if not array.ndim and dtype is not dtypes.string else array, dtype)

    def tensor(self, x: Any, dtype: DType | None = None, name: str = "Const") -> EagerTensor:
        if x.__class__ is EagerTensor and (dtype is None or dtype is x.dtype):
            return x
        if x.__class__ in _NUMBERS:
            return self.const(x, dtype)
        if (
            x.__class__ is list
            and {*map(type, x)} == {EagerTensor}
            and {t.dtype.number for t in x} == {(dtype or x[0].dtype).number}
        ):
            packed: EagerTensor = self.make("Pack", (x,), {})
            return packed
        return super().tensor(x, dtype, name)

    def own(self, x: Any) -> Any:
        """Converts `x` to an eager tensor if it represents one (a variable); else returns `x`.

        Raises:
          GraphError: `x` is symbolic.
        """
        if isinstance(x, EagerTensor):
            return x
        if isinstance(x, (Tensor, Operation)):
            raise GraphError(
                f"{x!r} has no value here: it belongs to {x.graph.title}, and this runs outside of it, at once. Call "
                "it inside `with g:`, or run the graph and give it the value"
            )
        as_tensor = getattr(type(x), "as_tensor", None)
        return x if as_tensor is None else as_tensor(x, self)

    def _pack(self, items: Sequence[Any], dtype: DType, name: str) -> EagerTensor:
        out: EagerTensor = self.make("Pack", ([self.tensor(x, dtype) for x in items],), {})
        return out

    # *** ops ***

    def make(self, type: str, args: Sequence[Any], attrs: dict[str, Any], name: str | None = None) -> Any:
        """Runs one op.

        Args:
          type: the op type.
          args: for each argument of the record a tensor, or a list of tensors for a list argument.
          attrs: the attributes.
          name: the name of the op in errors; None: its type.

        Returns:
          The tensor if the op has one output, a tuple if it has several, None if it has none.

        Raises:
          NotFoundError: an unknown op type.
          GraphError: arguments that do not fit, or an op that has a meaning in graphs only.
          OpError: the error of the kernel.
        """
        parts: list[Any] = [type]
        values: list[Any] = []
        for arg in args:
            kind = arg.__class__
            if kind is EagerTensor:
                parts.append(arg.dtype.number)
                values.append(arg._value)
            elif kind in _NUMBERS:
                parts.append(kind)
                values.append(arg)
            elif not _add_list(arg, parts, values):
                key = None
                break
        else:  # the key of `_key_of`, without a call
            if attrs:
                _add_attrs(parts, attrs)
            key = tuple(parts)
        if key is None:  # perhaps because of a variable
            args = self._read(type, args)
            key, values = _key_of(type, args, attrs)
        try:
            try:
                prepared = None if key is None else self._prepared.get(key)
            except TypeError:  # an attribute is an array
                prepared = None
            if prepared is None or (prepared.numbers and not _set_numbers(values, prepared.numbers)):
                args, values, prepared = self._bound_call(type, args, attrs, key)
            op: EagerOp | None = None
            before = error_state.set(IGNORED)
            try:
                if prepared.is_kept:
                    out = prepared.run(*values)
                else:
                    op = EagerOp(name or type, prepared.record, prepared.attrs)
                    out = self._run(op, prepared, values)
            except Exception as e:
                out = _diagnosed(e, op or EagerOp(name or type, prepared.record, prepared.attrs), values)
                if out is e:
                    raise
                raise out from e
            finally:
                error_state.reset(before)
        except Exception as e:
            tracebacks.hide(e)
            raise
        dtype = prepared.dtype
        if dtype is not None:
            tensor = EagerTensor(out, dtype)
            if recorders := active.get():
                _record(recorders, type, args, attrs, prepared, values, (tensor,))
            return tensor
        if not prepared.dtypes:
            return None
        tensors = tuple(map(EagerTensor, out, prepared.dtypes))
        if recorders := active.get():
            _record(recorders, type, args, attrs, prepared, values, tensors)
        return tensors

    def view(self, x: EagerTensor, index: Any) -> EagerTensor | None:
        """Returns `x[index]` without an op, or None if the op has to run.

        The index consists of Python ints, slices of them, `...` and None. The kernel of StridedSlice gives numpy the
        same index. The op has to run if a recorder needs its inputs, or for its error if numpy refuses the index.
        """
        dtype = x.dtype
        if active.get() or dtype.number in _OBJECTS:
            return None
        try:
            return EagerTensor(x._value[index], dtype)
        except (IndexError, TypeError, ValueError):
            return None

    def set_seed(self, seed: int | None) -> None:
        """Sets the seed of random ops without their own seed, and rewinds all streams."""
        from headrace.ops.random.drawing import rewind

        self.seed = seed
        rewind(self.session)
        self._op_seeds = random.Random(seed)

    def take_op_seed(self) -> int:
        """Returns the seed of the next random op without a seed, if `seed` is set."""
        return self._op_seeds.randint(0, 2**31 - 1)

    def _run(self, op: EagerOp, prepared: _Prepared, values: list[Any]) -> Any:
        """Runs a kernel with effects, or one that may wait."""
        session = self.session
        if prepared.attrs.get("shared_name") == "":
            session = ResourceManager()  # no other op may find its resource
        elif op.opdef.facts.effect == "random":
            op.name = repr((op.type, *sorted(prepared.attrs.items())))
        step = EagerStepState(session)
        ctx = KernelContext(step, op)  # type: ignore[arg-type]  # it has what kernels ask for
        kernel = prepared.run(ctx, prepared.attrs)
        out = _waited_for(op, kernel, values) if prepared.is_async else kernel(*values)
        return step.keep(out, self.session)

    def _bound_call(
        self, type: str, args: Sequence[Any], attrs: dict[str, Any], key: Any
    ) -> tuple[Sequence[Any], list[Any], _Prepared]:
        """Binds the arguments of a call that the memo does not know.

        Returns:
          The arguments as eager tensors, their values, and the prepared op.
        """
        bound = self._bound(type, args, attrs)
        full_key, values = _key_of(type, bound, attrs)
        assert full_key is not None, "bound arguments are tensors"
        if not _is_hashable(full_key):  # an attribute is an array
            return bound, values, self._prepare(type, bound, attrs, full_key)
        prepared = self._prepared.get(full_key)
        if prepared is None:
            prepared = self._prepare(type, bound, attrs, full_key)
            self._prepared.put(full_key, prepared)
        numbers = None if key is None or key == full_key else _numbers_among(args, bound, prepared.run)
        if numbers is not None:
            self._prepared.put(key, dataclasses.replace(prepared, numbers=numbers))
        return bound, values, prepared

    def _read(self, type: str, args: Sequence[Any]) -> Sequence[Any]:
        """Returns the arguments with the values of variables in their place."""
        try:
            return [x if x.__class__ in _KNOWN or not hasattr(x.__class__, "as_tensor") else self.own(x) for x in args]
        except GraphError as e:
            _locate(e, type)
            raise

    def _bound(self, type: str, args: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
        """Converts the arguments to eager tensors and lists of them."""
        record = _record_of(type)
        try:
            groups, decided = self._match(record, args, attrs)
            if decided is not None:
                self._convert_rest(record, groups, decided)
        except GraphError as e:
            _locate(e, type)
            raise
        return [g if a.is_list else g[0] for a, g in zip(record.ins, groups, strict=True)]

    def _prepare(self, type: str, args: Sequence[Any], attrs: dict[str, Any], key: Any) -> _Prepared:
        """Prepares an op for bound arguments, with this key."""
        record = _record_of(type)
        try:
            return _prepared(record, _groups(record.ins, args), attrs, key, self.session)
        except GraphError as e:
            _locate(e, type)
            raise


def _record_of(type: str) -> OpDef:
    try:
        return op_registry.get(type)
    except LookupError as e:
        raise NotFoundError(f"Op type not registered '{type}': {e}") from e.__cause__


def _locate(error: GraphError, type: str) -> None:
    """Adds the user's line to the notes of `error`."""
    where = source.here()
    if where is not None:
        error.add_note(f"while running {type} at {where}")


def _groups(specs: Sequence[ArgSpec], args: Sequence[Any]) -> list[list[EagerTensor]]:
    """Tensors of each argument."""
    return [list(arg) if spec.is_list else [arg] for spec, arg in zip(specs, args, strict=True)]


def _key_of(type: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[tuple[Any, ...] | None, list[Any]]:
    """Returns the key of a call and the values of its arguments, flat.

    The key is the one of the memo of prepared ops. It is None if an argument is neither an eager tensor, a list of
    eager tensors, a Python number nor a list of integers. Dtypes and nesting of the arguments, the classes of the
    numbers and the classes of the attributes are parts of the key. A call whose key is in the memo therefore fits the
    record.
    """
    key: list[Any] = [type]
    values = []
    for arg in args:
        kind = arg.__class__
        if kind is EagerTensor:
            key.append(arg.dtype.number)
            values.append(arg._value)
        elif kind in _NUMBERS:
            key.append(kind)
            values.append(arg)
        elif not _add_list(arg, key, values):
            return None, values
    if attrs:
        _add_attrs(key, attrs)
    return tuple(key), values


def _add_list(arg: Any, key: list[Any], values: list[Any]) -> bool:
    """Adds a list to a key and values; returns False if it has none."""
    kind = arg.__class__
    if kind is not list and kind is not tuple:
        return False
    if arg and arg[0].__class__ is int:
        for x in arg:
            if x.__class__ is not int:
                return False
        if len(arg) > thresholds.SHORT_INTEGER_LIST:
            key.append(_INTEGERS)
            values.append(arg)
        else:
            key.append(_FEW_INTEGERS)
            values.append(arg if kind is tuple else tuple(arg))
        return True
    if kind is tuple:
        return False
    kinds = []
    for x in arg:
        if x.__class__ is not EagerTensor:
            return False
        kinds.append(x.dtype.number)
        values.append(x._value)
    key.append(tuple(kinds))
    return True


def _add_attrs(key: list[Any], attrs: Mapping[str, Any]) -> None:
    """Adds the attributes of a call to the list that becomes its key."""
    for name, value in attrs.items():
        key.append(name)
        key.append(attr_key(value))


_NUMBERS: Final = frozenset((bool, int, float))
_KNOWN: Final = _NUMBERS | {EagerTensor}
_INTEGERS: Final = "integers"
_FEW_INTEGERS: Final = "few integers"
_OBJECTS: Final = frozenset(d.number for d in dtypes.OBJECT)  # an element of such an array is no scalar


def _numbers_among(args: Sequence[Any], bound: Sequence[Any], kernel: Callable[..., Any]) -> tuple[_Number, ...] | None:
    """Returns the Python numbers of a call, or None if their values decide dtypes.

    Args:
      args: the arguments of the call: eager tensors, lists of them, and numbers.
      bound: the arguments as eager tensors.
      kernel: the kernel of the op.
    """
    found = []
    at = 0
    for i, (arg, t) in enumerate(zip(args, bound, strict=True)):
        if arg.__class__ in _NUMBERS:
            usual = usual_number(arg.__class__, t.dtype)
            if usual is None or not usual[0] <= arg <= usual[1]:  # the dtype may depend on such a number
                return None
            found.append(_Number(i, at, t.dtype, _conversion(arg.__class__, usual[2], kernel), usual[0], usual[1]))
        elif arg.__class__ is tuple or (arg.__class__ is list and arg and arg[0].__class__ is int):
            usual = usual_number(int, t.dtype) if t.__class__ is EagerTensor and t.dtype.is_integer else None
            if usual is None or min(arg) < usual[0] or max(arg) > usual[1]:
                return None
            of = _vector if len(arg) > thresholds.SHORT_INTEGER_LIST else _short_vector
            found.append(_Number(i, at, t.dtype, functools.partial(of, t.dtype.number), None, None))
        elif arg.__class__ is list and t.__class__ is not list:  # tensors that were packed
            return None
        at += len(t) if t.__class__ is list else 1
    if len(found) == 1 and len(args) == 2 and takes_numbers(kernel):
        return (found[0]._replace(convert=None),)
    return tuple(found)


def _conversion(kind: type, dtype: np.dtype, kernel: Callable[..., Any]) -> Callable[[Any], Any]:
    """Returns the conversion of Python numbers of a class to scalars for a kernel."""
    is_ufunc = isinstance(kernel, np.ufunc)  # it converts numpy's scalars to arrays of rank 0 itself, and slowly
    if kind is int:
        return functools.partial(_integer, dtype.char, is_ufunc)
    return functools.partial(np.array, dtype=dtype) if is_ufunc else dtype.type


def _set_numbers(values: list[Any], numbers: Sequence[_Number]) -> bool:
    """Converts the Python numbers of a call; returns False if one is out of range."""
    for _, at, _, convert, least, most in numbers:
        value = values[at]
        if least is None:
            made = convert(value)  # type: ignore[misc]  # lists are always converted
            if made is None:
                return False
            values[at] = made
        elif not least <= value <= most:
            return False
        elif convert is not None:
            values[at] = convert(value)
    return True


@cached(thresholds.EAGER_INTEGERS, "integers of eager ops")
def _integer(dtype: str, is_array: bool, number: int) -> Any:
    """Returns an integer as a scalar or as an array of rank 0.

    The dtype is given by numpy's character for it. Equal numbers give one object, by which kernels know that they have
    checked it.
    """
    return np.array(number, dtype) if is_array else np.dtype(dtype).type(number)


@cached(thresholds.EAGER_INTEGERS, "lists of integers of eager ops")
def _short_vector(dtype: int, numbers: tuple[int, ...]) -> np.ndarray | None:
    """Returns the `_vector` of a short list.

    Equal lists give one object, by which kernels know that they have checked it.
    """
    return _vector(dtype, numbers)


def _vector(dtype: int, numbers: Sequence[int]) -> np.ndarray | None:
    """Returns a vector, given its dtype's number; None if an integer is out of range."""
    usual = usual_number(int, dtypes.from_number(dtype))
    if usual is None or min(numbers) < usual[0] or max(numbers) > usual[1]:
        return None
    out = np.array(numbers, usual[2])
    out.flags.writeable = False
    return out


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _record(
    recorders: Sequence[Recorder],
    type: str,
    args: Sequence[Any],
    attrs: dict[str, Any],
    prepared: _Prepared,
    values: Sequence[Any],
    outputs: tuple[EagerTensor, ...],
) -> None:
    """Passes an op that has run to the recorders, unless it is not differentiable."""
    if not prepared.is_recorded:
        return
    if prepared.numbers:
        args = list(args)
        for number in prepared.numbers:
            args[number.position] = number.tensor(values[number.at])
    entry = OpEntry(type, args, attrs, prepared, outputs)
    for recorder in recorders:
        recorder.record(entry)


def _prepared(
    record: OpDef,
    groups: Sequence[Sequence[EagerTensor]],
    attrs: dict[str, Any],
    key: Any,
    session: ResourceManager,
) -> _Prepared:
    if record.primitive or record.structured:
        raise GraphError(
            f"{record.type} means something in a graph only; outside, Python's if, while and calls do what it does "
            "(hr.cond and hr.while_loop choose by themselves)"
        )
    complete, _ = complete_attrs(record, groups, attrs)
    made = record.output_dtypes(complete)
    if any(d.is_ref for d in made):
        raise UnimplementedError(f"{record.type} gives a reference, which exists in graphs only; use hr.Variable")
    op: Any = EagerOp(record.type, record, complete)
    kernel: Kernel | None = find_kernel(op)
    if kernel is None:
        raise UnimplementedError(f"{record.type} has no kernel for the CPU")
    is_kept = kernel.form == "pure"
    if is_kept:
        run = kernel_with_library(op, kernel)
    elif kernel.form == "stateful" and _has_state_of_input(record, complete):
        is_kept = True
        step: Any = EagerStepState(session)  # it has what kernels ask for
        run = kernel.factory(KernelContext(step, op), complete)
    else:
        run = kernel.factory
    kinds = {t.dtype.numpy for group in groups for t in group}
    if len(kinds) == 1:
        run = in_place_of(run, *kinds)
    only = made[0] if len(made) == 1 else None
    return _Prepared(
        key,
        record,
        complete,
        made,
        only,
        is_kept,
        run,
        kernel.form == "async",
        is_recorded=not isinstance(record.grad, NotDifferentiable),
        counts=[len(g) if a.is_list else None for a, g in zip(record.ins, groups, strict=True)]
        if any(a.is_list for a in record.ins)
        else None,
    )


def _has_state_of_input(record: OpDef, attrs: Mapping[str, Any]) -> bool:
    """Whether the only state of an op is the resource at input 0.

    A kernel of such an op serves all calls.
    """
    handles = (dtypes.resource, dtypes.variant)
    facts = record.facts
    return (
        facts.effect == "resource"
        and not facts.blocking
        and not facts.waits
        and bool(record.ins)
        and record.ins[0].dtype is dtypes.resource
        and not any(d in handles for d in record.output_dtypes(attrs))
    )


def _waited_for(op: EagerOp, kernel: Callable[..., Any], values: list[Any]) -> Any:
    """Runs an asynchronous kernel and waits for its result."""
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    cancel = kernel(*values, results.put)
    limit = flags.WAIT_LIMIT.value
    try:
        result = results.get(timeout=limit)
    except queue.Empty:
        if cancel is not None and not cancel():
            result = results.get()  # the result arrived at the last moment
        else:
            raise DeadlineExceededError(
                f"{op.type} has waited {limit:g} s. Nothing else can happen in this thread meanwhile: let another one "
                "do what it waits for, or raise HEADRACE_WAIT_LIMIT",
                op.name,
            ) from None
    except BaseException:
        if cancel is not None:
            cancel()
        raise
    if isinstance(result, BaseException):
        raise result
    return result


def _diagnosed(error: Exception, op: EagerOp, values: list[Any]) -> HeadraceError:
    """Converts `error` for the user, with the line and the inputs in its diagnosis."""
    op.source = source.here()
    at = OpRef("", op.type, "" if op.source is None else str(op.source))
    out = translated(error, str(at), op.name, op, values)
    out.diagnose(Diagnosis(at, inputs=tuple(Input("", brief(v)) for v in values)))
    return out
