"""Functions that can be saved, of all kinds, as traces with descriptions of their arguments.

These are functions under `hr.jit`, traces of them, and functions of loaded models, which are saved again.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from headrace import dtypes, nest
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable
from headrace.ir.graph import Tensor
from headrace.jit.concrete import ConcreteFunction
from headrace.jit.function import Function
from headrace.saved_model import functions as loaded
from headrace.saved_model.encoding import encode, signature_of
from headrace.saved_model.graph_models import GraphFunction
from headrace.saved_model.traces import handle_of

VARIABLE: Final = "Variable"  # the kind of the resource of a variable

LoadedTrace: TypeAlias = "loaded.ConcreteFunction | GraphFunction"
Callable: TypeAlias = "Function | loaded.Function | ConcreteFunction | LoadedTrace"
FUNCTIONS: Final = (Function, loaded.Function)  # those of several traces
CALLABLES: Final = (*FUNCTIONS, ConcreteFunction, loaded.ConcreteFunction, GraphFunction)


class Traced(NamedTuple):
    """Trace of a function.

    Attributes:
      concrete: the trace.
      name: the name of the function.
      arguments: the pair of its positional and keyword arguments, with TensorSpecs, in TensorFlow's canonical form.
      keywords: the names of the tensors among the arguments, in order.
    """

    concrete: ConcreteFunction
    name: str
    arguments: Any
    keywords: list[str]

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """Descriptions of the tensors among the arguments, by name."""
        return dict(zip(self.keywords, map(_spec, self.concrete.arguments), strict=True))


def traces_of(f: Callable) -> list[Traced]:
    """Returns the traces of a function, those with equal signatures once.

    A function with an `input_signature` is traced if it has not been.

    Raises:
      GraphError: the arguments of a trace cannot be described.
    """
    if isinstance(f, ConcreteFunction):
        return [Traced(f, "function", (tuple([_spec(t) for t in f.arguments]), {}), _names(f))]
    if isinstance(f, Function):
        if f.input_signature is not None:
            f.lower(*f.input_signature)
        found = [Traced(c, f.name, _arguments(f, c), _names(c)) for c in f.traces.all()]
    elif isinstance(f, loaded.Function):
        found = [trace._replace(name=f.name) for c in f.concrete_functions for trace in traces_of(c)]
    else:
        return [Traced(f.lower(), f.name, f.structured_input_signature, f.keywords)]
    by_signature = {encode(t.arguments).SerializeToString(deterministic=True): t for t in found}
    return list(by_signature.values())


def variables_of(concrete: ConcreteFunction) -> Iterator[Variable]:
    """Yields the variables that a trace captures."""
    reads = {handle_of(v.handle): v for v in concrete.variables}
    for value in concrete.captured:
        if value.dtype.base is dtypes.resource and value.numpy().kind == VARIABLE:
            found = reads.get(handle_of(value))
            yield Variable.of_handle(value, trainable=False) if found is None else found


def parameters_of(f: Function | loaded.Function) -> inspect.Signature | None:
    """Returns the parameters of a function; None if those of a loaded one are unknown.

    Raises:
      GraphError: a function under `hr.jit` does not state its parameters.
    """
    return signature_of(f.python_function) if isinstance(f, Function) else f.parameters


def _arguments(f: Function, concrete: ConcreteFunction) -> Any:
    """Returns the arguments of a trace, with defaults."""
    args, kwargs = concrete.given
    bound = signature_of(f.python_function).bind(*args, **kwargs)
    bound.apply_defaults()
    return nest.map_leaves(lambda x: _spec(x) if isinstance(x, Tensor) else x, (bound.args, bound.kwargs))


def _names(concrete: ConcreteFunction) -> list[str]:
    return [t.op.name for t in concrete.arguments]


def _spec(t: Tensor) -> TensorSpec:
    return TensorSpec(t.shape, t.dtype.base, t.op.name)
