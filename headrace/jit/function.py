"""Functions that are traced and compiled: `hr.jit`, also called `hr.function`, and `Function`, their result.

A `Function` serves every place of a call. Outside of graphs its traces are graphs of their own, one for each signature,
which compiled steps run (`jit.cache`). In a graph a call is an operation that names a function of the graph's library
(`jit.library`). In both cases the Python source is converted first, so that Python's `if`, `while` and `for` on tensors
become operations (`autograph`).
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from headrace import flags, nest, tracebacks
from headrace.api import scopes, tracing
from headrace.api.annotations import Checks
from headrace.api.tensor_spec import TensorSpec
from headrace.autograph.conversion import traceable
from headrace.errors import SignatureError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.jit.cache import CacheInfo, Traces
from headrace.jit.library import LibraryCall, returned
from headrace.jit.signature import Parameters

if TYPE_CHECKING:
    from headrace.jit.concrete import ConcreteFunction


class Function:
    """Function that is traced and compiled once for each signature of its calls.

    The signature consists of the dtypes and static shapes of the tensors among the arguments (arrays count as tensors),
    the values of all other arguments, their structure, and which resources are equal. The Python function runs for each
    new signature, with symbolic tensors; later calls with the signature run the compiled step. Python's effects
    (`print`, appending to a list of the caller) happen at tracing only; operations with effects (`hr.print`,
    assignments) happen at every call.

    A call inside a graph, or with symbolic tensors, creates one operation, a call of a function in the graph's library.

    Tensors and variables of the surroundings are captured: a variable is read and changed at every call. Other values
    of variables around the function are part of the signature (`jit.surroundings`); changes inside of an object, such
    as an element of a list, are not seen. The first trace of a function may create variables.

    A function may call itself, also through other functions. `results` declares its return value, if it cannot be found
    from the calls that end the recursion.

    Args:
      fn: the function, from and to nested structures of tensors.
      input_signature: a TensorSpec for each tensor among the arguments, in their structure. Then this is the only
        signature, and all arguments are converted to tensors.
      results: a TensorSpec or dtype, or a nested structure of them, that declares the return value of `fn`.
      name: the name of the function and of its calls; that of `fn` if None.
      static_argnums: the position, or positions, of arguments that are part of the signature as they are, structures
        and arrays included; they must be hashable.
      converts: whether Python's control flow on tensors becomes operations (`hr.autograph`).
      relax_shapes: whether a dimension that varies from call to call becomes unknown after a few traces.
      strict: whether each call checks annotated types and shapes (`hr.check_types`); None: as the flag `STRICT_TYPES`
        says at the first call.

    Raises (a call):
      SignatureError: arguments do not fit `input_signature` or, if `strict`, annotations; a static argument has no
        hash; or the return value of `fn` does not fit `results`.
      ShapeError: a tensor does not have the annotated shape, if `strict`.
      GraphError: the function creates variables at every call.
      AutographError: Python's control flow on tensors cannot be converted.

    Source: TensorFlow's `tf.function` and JAX's `jax.jit`.

    Example:
      >>> import headrace as hr
      >>> @hr.jit
      ... def fact(n):
      ...     total = 1
      ...     while n > 1:
      ...         total, n = total * n, n - 1
      ...     return total
      >>> fact(hr.constant(5))
      <EagerTensor shape=[] dtype=int32: np.int32(120)>
      >>> with hr.Graph() as g:
      ...     y = fact(hr.constant(4))
      >>> hr.Session(graph=g).run(y)
      np.int32(24)
    """

    keeps_traces: Final = True  # those of its transforms, see `traces_of`

    def __init__(
        self,
        fn: Callable[..., Any],
        input_signature: Any = None,
        results: Any = None,
        name: str | None = None,
        *,
        static_argnums: int | Sequence[int] = (),
        converts: bool = True,
        relax_shapes: bool = True,
        strict: bool | None = None,
    ) -> None:
        tracing.check_callable(fn=fn)
        self.python_function = fn
        called = getattr(fn, "__name__", type(fn).__name__).replace("<lambda>", "function")
        self.name = name or called.lstrip("_") or "function"  # names of operations begin with a letter
        self.__name__ = name or called
        self.__wrapped__ = fn
        self.__module__ = getattr(fn, "__module__", __name__)
        self.__qualname__: str = getattr(fn, "__qualname__", self.name)
        self.__doc__ = getattr(fn, "__doc__", None) or type(self).__doc__
        self.input_signature = None if input_signature is None else nest.map_leaves(_described, tuple(input_signature))
        self.results = None if results is None else nest.map_leaves(_as_spec, results)
        self.static = frozenset(_position(k) for k in nest.as_list(static_argnums))
        self.converts = converts
        self.relax_shapes = relax_shapes
        self.strict = strict
        # root graph -> signature -> names in its library; names only, so that no graph is kept alive here
        self.names: weakref.WeakKeyDictionary[Graph, dict[Hashable, list[str]]] = weakref.WeakKeyDictionary()
        self._bound: dict[int, tuple[weakref.ref[Any], Function]] = {}

    def __repr__(self) -> str:
        return f"<Function {self.name!r}>"

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: object) -> Function:
        return self

    def __reduce__(self) -> str:
        """Pickles the function as its name in its module, like a Python function."""
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is not self:
            raise TypeError(
                f"the Function {self.name!r} cannot be pickled: {self.__module__}.{self.__qualname__} is not it. "
                "Define it at the top of a module, with @hr.jit, or export a graph that calls it (as_graph_def)"
            )
        return str(self.__qualname__)

    def __get__(self, instance: Any, owner: type | None = None) -> Function:
        """Returns the function as a method of an instance, which has traces of its own."""
        if instance is None:
            return self
        found = self._bound.get(id(instance))
        if found is not None and found[0]() is instance:
            return found[1]
        try:
            kept = weakref.ref(instance, functools.partial(_forget, self._bound, id(instance)))
        except TypeError:  # an instance without weak references gets a new method at each access
            return self._method(lambda: instance)
        method = self._method(kept)
        self._bound[id(instance)] = kept, method
        return method

    def _method(self, instance: Callable[[], Any]) -> Function:
        made = Function(
            _Method(self.python_function, instance),
            self.input_signature,
            self.results,
            self.name,
            static_argnums=[k - 1 for k in self.static if k],
            converts=self.converts,
            relax_shapes=self.relax_shapes,
            strict=self.strict,
        )
        made.__qualname__ = self.__qualname__
        return made

    # *** calls ***

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            checks = self._checks
            if checks is None:
                return self.traces(args, kwargs)
            names = checks.check_arguments(args, kwargs)
            result = self.traces(args, kwargs)
            checks.check_result(result, names)
            return result
        except BaseException as e:
            tracebacks.hide(e)
            raise

    @functools.cached_property
    def _checks(self) -> Checks | None:
        """Checks of the annotations; None if the function is not strict."""
        strict = flags.STRICT_TYPES.value if self.strict is None else self.strict
        return Checks(self.python_function) if strict else None

    def _in_graph(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Returns the results of a call in a graph, or of one that runs eagerly."""
        b = scopes.builder(*nest.flatten((args, kwargs)))
        if flags.RUN_EAGERLY.value or not isinstance(b, Builder):
            return self.fn(*args, **kwargs)
        return LibraryCall(self, b, args, kwargs).make()

    @functools.cached_property
    def fn(self) -> Callable[..., Any]:
        """The Python function, converted."""
        fn = self.python_function
        if not self.converts:
            return fn
        if isinstance(fn, _Method):
            return _Method(traceable(fn.function), fn.instance)
        return traceable(fn)

    @functools.cached_property
    def title(self) -> str:
        """Description of the function in messages, with its line."""
        return tracing.titled(self.python_function)

    @functools.cached_property
    def parameters(self) -> Parameters:
        """Parameters of the Python function."""
        return Parameters(self.python_function)

    @functools.cached_property
    def traces(self) -> Traces:
        """Traces of the calls outside of graphs."""
        return Traces(
            functools.partial(returned, self),
            self.python_function,
            self._in_graph,
            self.title,
            self.parameters,
            static=self.static,
            input_signature=self.input_signature,
            relaxes=self.relax_shapes,
        )

    # *** questions ***

    def lower(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """Returns the trace for these arguments, without running it.

        Args:
          args: arguments of the function; a TensorSpec stands for a tensor.
          kwargs: keyword arguments likewise.

        Example:
          >>> import headrace as hr
          >>> square = hr.jit(lambda x: x * x)
          >>> [op.type for op in square.lower(hr.TensorSpec((3,))).graph.operations]
          ['Placeholder', 'Mul']
        """
        return self.traces.lower(args, kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the explanation of the compiled step for these arguments (`hr.explain`); see `lower`."""
        return self.lower(*args, **kwargs).explain()

    def cache_info(self) -> CacheInfo:
        """Returns the numbers of hits and traces outside of graphs, and the signatures."""
        return self.traces.info()


class _Method:
    """Python function with its first argument, an instance that it does not keep alive.

    Args:
      function: the function.
      instance: returns the instance.
    """

    def __init__(self, function: Callable[..., Any], instance: Callable[[], Any]) -> None:
        self.function = function
        self.instance = instance
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = types.MethodType(function, _Method)  # its signature lacks the instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.instance(), *args, **kwargs)


def _forget(bound: dict[int, Any], key: int, _: object) -> None:
    bound.pop(key, None)


def _described(spec: Any) -> Any:
    """Returns the description of an object of several tensors as such an object, of TensorSpecs."""
    return spec.from_tensors(iter(spec.flatten())) if hasattr(type(spec), "from_tensors") else spec


def _as_spec(x: Any) -> TensorSpec:
    return x if isinstance(x, TensorSpec) else TensorSpec(None, x)


def _position(k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise SignatureError(f"static_argnums must be positions of arguments, 0 or more, got {k!r}")
    return k


@overload
def jit(fn: Callable[..., Any], **options: Any) -> Function: ...


@overload
def jit(fn: None = None, **options: Any) -> Callable[[Callable[..., Any]], Function]: ...


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Returns a function that is traced and compiled once for each signature; also a decorator.

    `hr.function` is another name of it.

    Args:
      fn: the function; None: the result is a decorator.
      options: the other arguments of `Function`: `input_signature`, `results`, `name`, `static_argnums`, `converts`,
        `relax_shapes`, `strict`.

    Returns:
      A `Function`.

    Raises:
      TypeError: `fn` cannot be called, or there is no such option.

    Source: TensorFlow's `tf.function` and JAX's `jax.jit`.

    Example:
      >>> import headrace as hr
      >>> @hr.jit
      ... def relu(x):
      ...     return x if x > 0.0 else 0.0 * x
      >>> float(relu(hr.constant(3.0)))
      3.0
    """
    if fn is None:
        return lambda fn: jit(fn, **options)
    if isinstance(fn, Function) and not options:
        return fn
    return Function(fn, **options)


function = jit


@tracebacks.entry
def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> ConcreteFunction:
    """Traces a function for some arguments, without conversion of its source.

    Python decides the conditionals and loops of the function, so one that a tensor would decide is an error.

    Args:
      fn: the function.
      args, kwargs: its arguments; an `hr.TensorSpec` stands for a tensor.

    Returns:
      The trace. It has the graph, and is a function of the tensors among the arguments.

    Raises:
      TypeError: a tensor decides a conditional or loop.

    Source: JAX's `jax.make_jaxpr`, and PyTorch's `torch.fx.symbolic_trace`.

    Example:
      >>> import headrace as hr
      >>> square = hr.trace(lambda x: x * x, hr.TensorSpec((None,)))
      >>> [op.type for op in square.graph.operations]
      ['Placeholder', 'Mul']
      >>> square([1.0, 2.0])
      <EagerTensor shape=[2] dtype=float32: array([1., 4.], dtype=float32)>
    """
    return Function(fn, converts=False).lower(*args, **kwargs)


def run_eagerly(enabled: bool = True) -> None:
    """Sets whether functions under `hr.jit` run eagerly, operation by operation.

    Then a debugger stops in the user's function, and its Python effects happen at every call. The functions are
    converted all the same, so the results are equal. The state is that of the flag `RUN_EAGERLY`.

    Args:
      enabled: whether they do.

    Source: TensorFlow's `tf.config.run_functions_eagerly`.

    Example:
      >>> import headrace as hr
      >>> hr.run_eagerly(True)
      >>> hr.jit(lambda x: x + 1)(hr.constant(1))
      <EagerTensor shape=[] dtype=int32: np.int32(2)>
      >>> hr.run_eagerly(False)
    """
    flags.RUN_EAGERLY.value = int(enabled)
