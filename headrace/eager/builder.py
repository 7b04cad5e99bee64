"""The eager builder: runs ops where a `Builder` adds them to a graph.

What an op needs before it can run (its complete attributes, its kernel) is worked out once for each combination of
type, dtypes and attributes, and kept.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace import dtypes, flags, forking
from headrace.eager.recorder import active
from headrace.eager.tensor import EagerTensor
from headrace.errors import DeadlineExceededError, GraphError, NotFoundError, SignatureError, UnimplementedError
from headrace.ir import source
from headrace.ir.builder import OpCalls, as_array
from headrace.ir.graph import Operation, Tensor
from headrace.ir.kernel import Kernel, KernelContext, find_kernel, made_for
from headrace.ir.kernel_errors import brief, translated
from headrace.ir.opdef import OpDef, op_registry
from headrace.resources.manager import ResourceManager

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.eager.recording import Recording
    from headrace.ir.opdef import ArgSpec
    from headrace.ir.source import Source

_KEPT: Final = 4096  # prepared ops; beyond that many all are dropped


class EagerOp:
    """What kernels and errors are told of an op that runs at once.

    Attributes:
      name, type, opdef, attrs: as those of an `ir.graph.Operation`.
      source: the user's line, once it is known.
    """

    __slots__ = ("attrs", "name", "opdef", "source", "type")

    def __init__(self, name: str, record: OpDef, attrs: dict[str, Any]) -> None:
        self.name = name
        self.type = record.type
        self.opdef = record
        self.attrs = attrs
        self.source: Source | None = None

    def __repr__(self) -> str:
        return f"<EagerOp {self.name!r} type={self.type}>"


class EagerStepState:
    """The step that the kernels of stateful ops run in (`ir.kernel.StepContext`): one for each op.

    Attributes:
      id: 0, which no step of a session has.
      session: the resources that ops find by name.
      tag: "".
      memory: None: nothing is counted.
    """

    __slots__ = ("session",)

    id = 0
    tag = ""
    memory = None

    def __init__(self, session: ResourceManager) -> None:
        self.session = session

    @property
    def resources(self) -> ResourceManager:
        """A new manager each time: what is put into it lives as long as its handles."""
        return ResourceManager()


class _Prepared(NamedTuple):
    """An op that is ready to run.

    Attributes:
      attrs: its complete attributes.
      dtypes: of its outputs.
      form: "pure", "stateful" or "async".
      run: the kernel of a pure op, else its factory.
    """

    attrs: dict[str, Any]
    dtypes: list[DType]
    form: str
    run: Callable[..., Any]


class EagerBuilder(OpCalls):
    """Runs ops; has the calls of `ir.builder.Builder`. Thread safe.

    Resources that ops make without a `shared_name` belong to whoever has their handles. Those with one are found again
    by later ops of the same name, as in a session. A random op goes on with its stream at every call with the same
    attributes.

    Attributes:
      graph: None.
      control_inputs: ().
      session: the resources that have names.

    Example:
      >>> import headrace as hr
      >>> EagerBuilder().AddV2(1.0, [2.0, 3.0])
      <EagerTensor shape=[2] dtype=float32: array([3., 4.], dtype=float32)>
    """

    graph: Final = None
    control_inputs: Final = ()
    scope: Final = ""
    device: Final = ""
    source: Final = None

    def __init__(self) -> None:
        self.session = ResourceManager()
        forking.register_at_fork(self.session)
        self._prepared: dict[Any, _Prepared] = {}

    def forget_kernels(self) -> None:
        """Kernels have been registered: looks for all anew."""
        self._prepared.clear()

    def recording(self) -> Recording:
        """A block that notes the ops that run in it, for their gradient."""
        from headrace.eager.recording import Recording  # here: it imports gradients

        return Recording()

    # *** what makes no difference here: everything before has been done ***

    def within(self, name: str) -> EagerBuilder:
        """This builder: eager ops have no names."""
        return self

    def on(self, device: str) -> EagerBuilder:
        """This builder: there is one device."""
        return self

    def after(self, *ops: Any) -> EagerBuilder:
        """This builder: what there is has been done."""
        return self

    def at(self, where: Source | None) -> EagerBuilder:
        """This builder."""
        return self

    # *** tensors ***

    def const(self, value: Any, dtype: DType | None = None, name: str = "Const") -> EagerTensor:
        """A tensor with this value. Python floats become float32, ints int32, unless `dtype` says otherwise."""
        array = as_array(value, dtype)
        dtype = dtypes.from_numpy(array.dtype) if dtype is None else dtype.base
        return EagerTensor(array[()] if not array.ndim and dtype is not dtypes.string else array, dtype)

    def tensor(self, x: Any, dtype: DType | None = None, name: str = "Const") -> EagerTensor:
        """`x` as an eager tensor: itself, its value now (a variable), or a constant; a list of tensors is stacked.

        Raises:
          TypeError: it cannot be one, or not one of `dtype`.
          GraphError: it is symbolic.
        """
        if isinstance(x, (list, tuple)) and any(map(_is_tensor, _leaves(x))):
            found = next(t.dtype.base for t in _leaves(x) if _is_tensor(t))
            if dtype is not None and found is not dtype.base:
                x = self._cast(x, dtype)
            dtype = dtype or found
            packed: EagerTensor = self.Pack([self.tensor(v, dtype) for v in x])
            return packed
        x = self._own(x)
        if not isinstance(x, EagerTensor):
            return self.const(x, dtype)
        if dtype is not None and x.dtype is not dtype.base:
            raise TypeError(
                f"Tensor conversion requested dtype {dtype.base.name} for Tensor with dtype {x.dtype.name}: {x!r}; "
                "cast it"
            )
        return x

    def _cast(self, x: Any, dtype: DType) -> Any:
        """`x`, with all tensors in it cast to `dtype`."""
        if isinstance(x, (list, tuple)):
            return [self._cast(item, dtype) for item in x]
        x = self._own(x)
        return self.make("Cast", (x,), {"DstT": dtype}) if isinstance(x, EagerTensor) and x.dtype is not dtype else x

    def _own(self, x: Any) -> Any:
        """`x`, as an eager tensor if it stands for one."""
        if isinstance(x, EagerTensor):
            return x
        if isinstance(x, (Tensor, Operation)):
            raise GraphError(
                f"{x!r} has no value here: it belongs to {x.graph.title}, and this runs outside of it, at once. Call "
                "it inside `with g:`, or run the graph and give it the value"
            )
        as_tensor = getattr(type(x), "as_tensor", None)
        return x if as_tensor is None else as_tensor(x, self)

    # *** ops ***

    def make(self, type: str, args: Sequence[Any], attrs: dict[str, Any], name: str | None = None) -> Any:
        """Runs one op. `args` has one entry for each argument of its record (a list for a list argument).

        Returns:
          The tensor if the op has one output, a tuple if it has several, None if it has none.

        Raises:
          NotFoundError: no such op type.
          GraphError: arguments that do not fit, or an op that means something in graphs only.
          OpError: what it fails with.
        """
        try:
            record = op_registry.get(type)
        except LookupError as e:
            raise NotFoundError(f"Op type not registered '{type}': {e}") from e.__cause__
        try:
            groups = self._bind(record, args, attrs)
            prepared, key = self._prepare(record, groups, attrs)
        except GraphError as e:
            where = source.here()
            if where is not None:
                e.add_note(f"while running {type} at {where}")
            raise
        values = [t._value for g in groups for t in g]
        op: EagerOp | None = None
        try:
            with np.errstate(all="ignore"):
                if prepared.form == "pure":
                    out = prepared.run(*values)
                else:
                    op = EagerOp(name or type, record, prepared.attrs)
                    out = self._run(op, prepared, key, values)
        except Exception as e:
            out = _blamed(e, op or EagerOp(name or type, record, prepared.attrs), values)
            if out is e:
                raise
            raise out from e
        made = prepared.dtypes
        recorder = active.get()
        if recorder is not None and made:
            tensors = (EagerTensor(out, made[0]),) if len(made) == 1 else tuple(map(EagerTensor, out, made))
            recorder.note(type, groups, [a.is_list for a in record.ins], attrs, tensors)
            return tensors[0] if len(made) == 1 else tensors
        if len(made) == 1:
            return EagerTensor(out, made[0])
        return tuple(map(EagerTensor, out, made)) if made else None

    def rewind(self) -> None:
        """Lets every random op begin its stream anew, as TensorFlow does when a seed is set."""
        from headrace.ops.random.drawing import rewind

        rewind(self.session)

    def _run(self, op: EagerOp, prepared: _Prepared, key: Any, values: list[Any]) -> Any:
        """Runs a kernel that touches something besides its inputs, or may have to wait."""
        session = self.session
        if prepared.attrs.get("shared_name") == "":
            session = ResourceManager()  # nobody else is to find what it makes
        elif op.opdef.facts.effect == "random":
            op.name = repr(key)
        ctx = KernelContext(EagerStepState(session), op)  # type: ignore[arg-type]  # it has what kernels ask for
        kernel = prepared.run(ctx, prepared.attrs)
        return _waited_for(op, kernel, values) if prepared.form == "async" else kernel(*values)

    def _bind(self, record: OpDef, args: Sequence[Any], attrs: dict[str, Any]) -> list[list[EagerTensor]]:
        """The tensors of each argument. Numbers take the dtype that the tensors among the arguments ask for."""
        if len(args) != len(record.ins):
            names = ", ".join(a.name for a in record.ins)
            raise GraphError(f"{record.type} takes {len(record.ins)} arguments ({names}), got {len(args)}")
        groups: list[list[Any]] = []
        wanted = {k: dtypes.as_dtype(v) for k, v in attrs.items() if _is_type(record, k)}
        decided: dict[str, tuple[ArgSpec, EagerTensor]] = {}  # what a type attribute follows from
        for spec, arg in zip(record.ins, args, strict=True):
            if spec.is_list and not isinstance(arg, (list, tuple)):
                raise GraphError(f"argument {spec.name!r} of {record.type} must be a list of tensors, got {arg!r}")
            group = [self._own(x) for x in (arg if spec.is_list else (arg,))]
            groups.append(group)
            attr = spec.type_attr
            if attr is None or attr in attrs:
                continue
            for x in group:
                if isinstance(x, EagerTensor):
                    first, other = decided.setdefault(attr, (spec, x))
                    if other.dtype is not x.dtype:
                        raise SignatureError(
                            f"Input '{spec.name}' of '{record.type}' Op has type {x.dtype.name} that does not match "
                            f"type {other.dtype.name} of argument '{first.name}'. Cast one of them (hr.cast)"
                        )
                    wanted[attr] = x.dtype
        for spec, group in zip(record.ins, groups, strict=True):
            attr = spec.type_attr or ""
            for i, x in enumerate(group):
                if not isinstance(x, EagerTensor):
                    group[i] = self._convert(x, record, spec, spec.dtype or wanted.get(attr), attr in decided)
                    if attr:
                        wanted.setdefault(attr, group[i].dtype)
        return groups

    def _convert(self, x: Any, record: OpDef, spec: ArgSpec, dtype: DType | None, is_decided: bool) -> EagerTensor:
        try:
            return self.tensor(x, dtype)
        except TypeError as e:
            if not is_decided or dtype is None or isinstance(e, GraphError):
                raise
            raise SignatureError(
                f"Input '{spec.name}' of '{record.type}' Op does not match type {dtype.name} of the other arguments: "
                f"{e}. Cast the one or the other (hr.cast)"
            ) from e

    def _prepare(self, record: OpDef, groups: list[list[EagerTensor]], attrs: dict[str, Any]) -> tuple[_Prepared, Any]:
        """The op made ready for such arguments, and the key that it is kept under."""
        key = (record.type, *(tuple(t.dtype.number for t in g) for g in groups), *attrs.items())
        try:
            found = self._prepared.get(key)
        except TypeError:  # an array among the attributes
            return _prepared(record, groups, attrs), key
        if found is None:
            found = _prepared(record, groups, attrs)
            if len(self._prepared) >= _KEPT:
                self._prepared.clear()
            self._prepared[key] = found
        return found, key


def _prepared(record: OpDef, groups: list[list[EagerTensor]], attrs: dict[str, Any]) -> _Prepared:
    if record.primitive or record.structured:
        raise GraphError(
            f"{record.type} means something in a graph only; outside, Python's if, while and calls do what it does "
            "(hr.cond and hr.while_loop choose by themselves)"
        )
    complete = record.infer_attrs([[t.dtype for t in g] for g in groups], attrs)
    record.check_inputs(complete, [t.dtype for g in groups for t in g])
    made = record.output_dtypes(complete)
    if any(d.is_ref for d in made):
        raise UnimplementedError(f"{record.type} gives a reference, which exists in graphs only; use hr.Variable")
    op: Any = EagerOp(record.type, record, complete)
    kernel: Kernel | None = find_kernel(op)
    if kernel is None:
        raise UnimplementedError(f"{record.type} has no kernel for the CPU")
    run = made_for(op, kernel) if kernel.form == "pure" else kernel.factory
    return _Prepared(complete, made, kernel.form, run)


def _waited_for(op: EagerOp, kernel: Callable[..., Any], values: list[Any]) -> Any:
    """The result of an asynchronous kernel."""
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    cancel = kernel(*values, results.put)
    limit = flags.WAIT_LIMIT.value
    try:
        result = results.get(timeout=limit)
    except queue.Empty:
        if cancel is not None and not cancel():
            result = results.get()  # it came after all
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


def _blamed(error: Exception, op: EagerOp, values: list[Any]) -> Exception:
    """`error` as the user gets it, with the line and the inputs in notes."""
    op.source = source.here()
    line = f", run at {op.source}" if op.source is not None else ""
    out = translated(error, f"{op.type}{line}", op.name, op, values)
    out.add_note(f"operation {op.type}{line}")
    if values:
        out.add_note(f"inputs: {', '.join(map(brief, values))}")
    return out


def _is_tensor(x: Any) -> bool:
    return hasattr(type(x), "as_tensor") or isinstance(x, Tensor)


def _leaves(x: Any) -> Iterator[Any]:
    for v in x:
        if isinstance(v, (list, tuple)):
            yield from _leaves(v)
        else:
            yield v


def _is_type(record: OpDef, attr: str) -> bool:
    spec = record.attrs.get(attr)
    return spec is not None and spec.kind == "type" and not spec.is_list
