"""Functions of a loaded SavedModel, as Python callables.

A *concrete function* of the file has one signature of tensors, and *bound inputs*: variables, constants and other
objects of the model, which follow the arguments. One operation calls it, by its name in the graph's library. Outside of
graphs the call is traced and compiled once (`jit.cache`), so that tapes, optimizers and jitted functions treat it as
any other function of headrace.

A *function* of the file has several concrete functions, the traces of a Python function. A call chooses the first one
whose signature fits the arguments: tensors by dtype and shape, all other arguments by their values.

Source: TensorFlow's `function_deserialization.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, nest, shapes, tracebacks
from headrace.api import recorder, scopes, tracing
from headrace.api.sparse_tensor import SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable, root_of
from headrace.errors import GraphError, SignatureError, UnimplementedError
from headrace.ir.attr_values import Func
from headrace.ir.serial.attrs import decode_dtype
from headrace.jit.cache import Traces
from headrace.jit.signature import Parameters, fitted
from headrace.saved_model.decoding import OpaqueSpec, decode
from headrace.saved_model.library import Library

if TYPE_CHECKING:
    from headrace.jit.concrete import ConcreteFunction as Trace
    from headrace.pb.saved_object_graph_pb2 import FunctionSpec, SavedConcreteFunction

_INFERENCE: Final = re.compile(r"__inference_(.+)_\d+")


class ConcreteFunction:
    """Function of a loaded SavedModel for arguments of one signature.

    Args:
      library: the functions of the model.
      name: the name in the file.
      saved: the description in the file.

    Attributes:
      name: the name in the file.
      structured_input_signature: the pair of the positional and the keyword arguments, with TensorSpecs.
      structured_outputs: the structure of the results, with TensorSpecs.
      keywords: the names of the arguments in the order of the tensors.
      positional: the number of arguments that a call may give by position.
      bound: the objects of the model that follow the arguments: variables and tensors.

    Raises:
      GraphError: the description does not fit the function.

    Source: TensorFlow's `ConcreteFunction`.
    """

    def __init__(self, library: Library, name: str, saved: SavedConcreteFunction) -> None:
        self.name = name
        self._library = library
        self._definition = library.definition(name)
        signature = self._definition.signature
        count = len(signature.input_arg) - len(saved.bound_inputs)
        if count < 0:
            raise GraphError(
                f"the function {name!r} has {len(signature.input_arg)} arguments, but {len(saved.bound_inputs)} bound "
                "inputs"
            )
        given: Any = ((), {})
        if saved.HasField("canonicalized_input_signature"):
            given = decode(saved.canonicalized_input_signature)
        given = _pair(given)
        self.structured_input_signature: tuple[tuple[Any, ...], dict[str, Any]] = (tuple(given[0]), dict(given[1]))
        self.structured_outputs = decode(saved.output_signature) if saved.HasField("output_signature") else None
        specs = tensor_specs(self.structured_input_signature)
        self._is_opaque = specs is None
        if specs is not None and len(specs) != count:
            raise GraphError(f"the function {name!r} takes {count} tensors, and its signature has {len(specs)}")
        self._specs = specs or [TensorSpec(None, decode_dtype(a.type)) for a in signature.input_arg[:count]]
        outputs = tensor_specs(self.structured_outputs)
        if outputs is not None and len(outputs) != len(signature.output_arg):
            raise GraphError(
                f"the function {name!r} returns {len(signature.output_arg)} tensors, and its signature {len(outputs)}"
            )
        self._has_opaque_results = outputs is None
        self.keywords = [a.name for a in signature.input_arg[:count]]
        self.positional = count
        self.bound: list[Any] = []
        self._traces: Traces | None = None

    def bind(self, bound: Sequence[Any]) -> None:
        """Sets the objects that follow the arguments.

        Raises:
          GraphError: an argument of the function has another dtype than its object or its TensorSpec.
        """
        self.bound = list(bound)
        given = [s.dtype for s in self._specs] + [
            dtypes.resource if isinstance(x, Variable) else x.dtype for x in bound
        ]
        for arg, dtype in zip(self._definition.signature.input_arg, given, strict=True):
            wanted = decode_dtype(arg.type)
            if dtype is not None and dtype.base is not wanted.base:
                raise GraphError(
                    f"the argument {arg.name!r} of the function {self.name!r} has dtype {wanted.base.name}, but the "
                    f"SavedModel gives it {dtype.base.name}"
                )

    def call(self, tensors: Sequence[Any]) -> Any:
        """Calls the function with a value for each tensor of its signature.

        Args:
          tensors: the values, in the order of the flat signature.

        Returns:
          The structure of the results.

        Raises:
          SignatureError: a value has another dtype or shape.
          UnimplementedError: the function takes or returns objects that headrace does not have.
        """
        return self._compiled((tuple(tensors)), {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function by the names of its tensors, as signatures are called."""
        try:
            if len(args) > self.positional:
                raise TypeError(f"{self!r} takes {self.positional} positional arguments, got {len(args)}")
            names = self.keywords[len(args) :]
            missing = [n for n in names if n not in kwargs]
            unknown = [n for n in kwargs if n not in names]
            if missing or unknown:
                raise TypeError(
                    f"{self!r} takes the arguments {', '.join(self.keywords) or 'none'}; "
                    + (f"missing: {', '.join(missing)}" if missing else f"unknown or given twice: {', '.join(unknown)}")
                )
            return self.call([*args, *[kwargs[n] for n in names]])
        except BaseException as e:
            tracebacks.hide(e)
            raise

    def lower(self) -> Trace:
        """Returns the trace that runs the function outside of graphs, with its graph."""
        return self._compiled.lower(tuple(self._specs), {})

    @property
    def inputs(self) -> list[TensorSpec]:
        """Descriptions of the tensors to give, in order."""
        return self._specs

    @property
    def variables(self) -> list[Variable]:
        """Variables that the function uses."""
        return [x for x in self.bound if isinstance(x, Variable)]

    @property
    def trainable_variables(self) -> list[Variable]:
        """Trainable variables that the function uses."""
        return [v for v in self.variables if v.trainable]

    @property
    def _compiled(self) -> Traces:
        if self._traces is None:
            if self._is_opaque or self._has_opaque_results:
                where = self.structured_input_signature if self._is_opaque else self.structured_outputs
                raise UnimplementedError(
                    f"the function {self.name!r} takes or returns {where!r}, which headrace cannot pass; call a "
                    "function of tensors, such as a signature of the model"
                )
            self._traces = traces_of(self._apply, self._specs, self.keywords, repr(self))
        return self._traces

    def _apply(self, *tensors: Any) -> Any:
        """Creates the call in the current graph; returns the structure of its results."""
        return self.with_bound(self.bound, tensors)

    def with_bound(self, bound: Sequence[Any], tensors: Sequence[Any]) -> Any:
        """Creates a call in the current graph; returns the structure of its results.

        Args:
          bound: the bound inputs.
          tensors: the arguments.
        """
        b = scopes.builder(*tensors)
        name = self._library.add_to(root_of(b.graph), self.name)
        signature = self._definition.signature
        type = "StatefulPartitionedCall" if signature.is_stateful else "PartitionedCall"
        attrs = {"f": Func(name), "Tout": tuple([decode_dtype(a.type) for a in signature.output_arg])}
        made = tracing.operation_of(b.make(type, ([*tensors, *[self._bound(x, b) for x in bound]],), attrs, "call"))
        if not made.outputs:
            return self.structured_outputs
        for t, spec in zip(made.outputs, tensor_specs(self.structured_outputs) or (), strict=False):
            if shapes.compatible(t.shape, spec.shape):
                t.refine(spec.shape)
        return nest.pack(self.structured_outputs, _with_constants(self.structured_outputs, made.outputs))

    def _bound(self, x: Any, b: Any) -> Any:
        if isinstance(x, Unbound):
            raise x.error()
        if isinstance(x, Variable):
            recorder.accessed(x)
            x = x.handle
        return b.tensor(x)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}: {show_structure(s)}" for k, s in zip(self.keywords, self._specs, strict=True))
        return f"<loaded function {_plain(self.name)!r}: ({shown})>"


def traces_of(apply: Callable[..., Any], specs: Sequence[TensorSpec], names: Sequence[str], title: str) -> Traces:
    """Returns the traces of a function of tensors.

    The first call outside of graphs compiles it.

    Args:
      apply: creates the call in the current graph.
      specs: descriptions of the arguments.
      names: the names of the arguments.
      title: the description of the function in messages.
    """
    parameters, signature = Parameters(apply), tuple(specs)
    parameters.names = list(names)

    def in_graph(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return apply(*fitted(signature, args, scopes.builder(*args), parameters, title))

    return Traces(apply, apply, in_graph, title, parameters, input_signature=signature, obeys_run_eagerly=False)


class Unbound:
    """Bound input that cannot be given; a call of its function raises an error.

    Args:
      why: the reason.
    """

    dtype: Final = None

    def __init__(self, why: str) -> None:
        self.why = why

    def error(self) -> UnimplementedError:
        """Returns the error of a call."""
        return UnimplementedError(self.why)


class Function:
    """Function of a loaded SavedModel with several signatures.

    Args:
      name: the name in messages.
      concrete: the traces of the Python function that was saved.
      spec: its parameters in the file.

    Attributes:
      name: the name in messages.
      concrete_functions: the functions for one signature each.
      parameters: the parameters of the Python function; None if the file does not have them.

    Raises:
      GraphError: the parameters are malformed.
    """

    def __init__(self, name: str, concrete: Sequence[ConcreteFunction], spec: FunctionSpec) -> None:
        self.name = _plain(name)
        self.concrete_functions = list(concrete)
        self.parameters = self.__signature__ = parameters_of(spec, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function whose signature fits the arguments.

        Raises:
          SignatureError: none fits; the text lists the signatures.
        """
        try:
            given = self._bound(args, kwargs)
            for converts in (False, True):
                for f in self.concrete_functions:
                    tensors = matched(f.structured_input_signature, given, converts)
                    if tensors is not None:
                        return f.call(tensors)
            raise SignatureError(self._mismatch(given))
        except BaseException as e:
            tracebacks.hide(e)
            raise

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.parameters is None:
            return tuple(args), kwargs
        found = self.parameters.bind(*args, **kwargs)
        found.apply_defaults()
        return found.args, found.kwargs

    def _mismatch(self, given: Any) -> str:
        if not self.concrete_functions:
            return f"the function {self.name!r} was saved without a trace; call it once before the model is saved"
        options = "\n  ".join(show_signature(f.structured_input_signature) for f in self.concrete_functions)
        return (
            f"Could not find a matching concrete function of {self.name!r} for the arguments {show_signature(given)}; "
            f"the model was saved with these signatures:\n  {options}"
        )

    def __repr__(self) -> str:
        return f"<loaded function {self.name!r} with {len(self.concrete_functions)} signatures>"


def _plain(name: str) -> str:
    """Returns the name of a Python function: "f" for "__inference_f_12"."""
    found = _INFERENCE.fullmatch(name)
    return found[1] if found else name


def parameters_of(spec: FunctionSpec, name: str) -> inspect.Signature | None:
    """Returns the parameters of a saved Python function, without `self`, or None.

    Raises:
      GraphError: they are malformed.
    """
    if not spec.HasField("fullargspec"):
        return None
    found = decode(spec.fullargspec)
    try:
        args, kwonly = list(found.args), list(found.kwonlyargs or ())
        defaults, kwdefaults = list(found.defaults or ()), dict(found.kwonlydefaults or {})
        if spec.is_method or args[:1] == ["self"]:
            args = args[1:]
        first = len(args) - len(defaults)
        P = inspect.Parameter
        made = [P(a, P.POSITIONAL_OR_KEYWORD, default=defaults[i - first] if i >= first >= 0 else P.empty)
                for i, a in enumerate(args)]  # fmt: skip
        made += [P(found.varargs, P.VAR_POSITIONAL)] if found.varargs else []
        made += [P(k, P.KEYWORD_ONLY, default=kwdefaults.get(k, P.empty)) for k in kwonly]
        made += [P(found.varkw, P.VAR_KEYWORD)] if found.varkw else []
        return inspect.Signature(made)
    except (AttributeError, IndexError, TypeError, ValueError) as e:  # IndexError: a parameter named ""
        raise GraphError(f"the parameters of the function {name!r} are malformed: {e}") from e


def matched(signature: Any, given: Any, converts: bool) -> list[Any] | None:
    """Returns the tensors among arguments that fit a signature, or None.

    Args:
      signature: the signature, with TensorSpecs.
      given: the arguments in the same structure.
      converts: whether values of Python are converted to tensors.
    """
    if isinstance(signature, TensorSpec):
        return _tensor(signature, given, converts)
    if isinstance(signature, dict):
        if not hasattr(given, "keys") or set(given.keys()) != set(signature):
            return None
        pairs = [(signature[k], given[k]) for k in sorted(signature)]
    elif isinstance(signature, (list, tuple)):
        if not isinstance(given, (list, tuple)) or len(given) != len(signature):
            return None
        pairs = list(zip(signature, given, strict=True))
    else:
        is_same = given is signature or (not tracing.is_tensor_argument(given) and _equal(signature, given))
        return [] if is_same else None
    out: list[Any] = []
    for wanted, x in pairs:
        found = matched(wanted, x, converts)
        if found is None:
            return None
        out += found
    return out


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(type(a) is type(b) and a == b) or (isinstance(a, float) and isinstance(b, (int, float)) and a == b)


def _tensor(spec: TensorSpec, x: Any, converts: bool) -> list[Any] | None:
    if not tracing.is_tensor_argument(x):
        if not converts or x is None or isinstance(x, (dict, TensorSpec)):
            return None
        try:
            x = scopes.builder().tensor(x, spec.dtype)
        except (TypeError, ValueError, OverflowError):  # not convertible, so the signature does not fit
            return None
    elif isinstance(x, (np.ndarray, np.generic)):
        x = scopes.builder().tensor(x)
    if x.dtype.base is not spec.dtype.base or not shapes.compatible(shapes.as_shape(x.shape), spec.shape):
        return None
    return [x]


def tensor_specs(structure: Any) -> list[TensorSpec] | None:
    """Returns the TensorSpecs of a structure; None if it has objects of several tensors."""
    leaves = nest.flatten(structure, is_leaf=lambda x: isinstance(x, OpaqueSpec))
    if any(isinstance(x, (OpaqueSpec, SparseTensorSpec)) for x in leaves):
        return None
    return [x for x in leaves if isinstance(x, TensorSpec)]


def _with_constants(structure: Any, tensors: Sequence[Any]) -> list[Any]:
    """Returns the leaves of a result: tensors in place of TensorSpecs, other leaves unchanged."""
    rest = iter(tensors)
    return [next(rest) if isinstance(x, TensorSpec) else x for x in nest.flatten(structure)]


def show_signature(signature: Any) -> str:
    """Returns the text of a pair of positional and keyword arguments.

    Raises:
      GraphError: it is no such pair.
    """
    args, kwargs = _pair(signature)
    parts = [_brief(a) for a in args] + [f"{k}={_brief(v)}" for k, v in sorted(kwargs.items())]
    return f"({', '.join(parts)})"


def _pair(signature: Any) -> Any:
    """Returns a signature if it is a pair of positional and keyword arguments.

    Raises:
      GraphError: it is not.
    """
    is_pair = isinstance(signature, tuple) and len(signature) == 2
    if not (is_pair and isinstance(signature[0], (tuple, list)) and isinstance(signature[1], dict)):
        raise GraphError(f"the signature of a function is {_brief(signature)}, not a pair of arguments")
    return signature


def _brief(x: Any) -> str:
    text = nest.describe(x) if tracing.is_tensor_argument(x) else show_structure(x)
    return text if len(text) <= 200 else text[:197] + "..."


def show_structure(x: Any) -> str:
    """Returns the text of a structure of TensorSpecs, such as "{'y': float32 [?,2]}"."""
    if isinstance(x, TensorSpec):
        return f"{x.dtype.name} {shapes.show(x.shape)}"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k!r}: {show_structure(x[k])}" for k in sorted(x)) + "}"
    if isinstance(x, (list, tuple)):
        inner = ", ".join(map(show_structure, x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner}{',' if len(x) == 1 else ''})"
    return repr(x)
