"""Functions that graphs call (`Function`)."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from headrace import nest
from headrace.api import scopes, tracing
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.jit.library import LibraryCall


class Function:
    """Python function that graphs call.

    A call inside a graph (or with symbolic tensors) creates one operation, a call of a function in the graph's library.
    The Python function runs once for each new signature. The signature consists of the dtypes and static shapes of the
    tensors among the arguments (arrays count as tensors), the values of all other arguments, their structure, and which
    resources are equal. A call outside of graphs runs the Python function.

    A function may call itself, also through other functions. Then `results` must declare its return value.

    Args:
      fn: the function, from and to nested structures of tensors. Outside tensors and variables that it uses are
        captured.
      input_signature: a TensorSpec for each tensor among the arguments, in their structure. Then this is the only
        signature, and all arguments are converted to tensors.
      results: a TensorSpec or dtype, or a nested structure of them, that declares the return value of `fn`.
      name: the name of the function and of its calls; that of `fn` if None.

    Raises (a call):
      SignatureError: arguments do not fit `input_signature`, or the return value of `fn` does not fit `results`.
      GraphError: the function calls itself and has no `results`.

    Source: TensorFlow's `tf.function` (without its translation of Python's control flow).

    Example:
      >>> import headrace as hr
      >>> fact = hr.Function(
      ...     lambda n: hr.cond(n < 2, lambda: 1, lambda: n * fact(n - 1)),
      ...     results=hr.TensorSpec((), hr.int32), name="fact")
      >>> with hr.Graph() as g:
      ...     y = fact(hr.constant(5))
      >>> hr.Session(graph=g).run(y)
      np.int32(120)
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        input_signature: Any = None,
        results: Any = None,
        name: str | None = None,
    ) -> None:
        tracing.check_callable(fn=fn)
        self.fn = fn
        self.name = name or getattr(fn, "__name__", type(fn).__name__).replace("<lambda>", "function")
        self.__name__ = self.name
        self.__module__ = getattr(fn, "__module__", __name__)
        self.__qualname__: str = getattr(fn, "__qualname__", self.name)
        self.__doc__ = getattr(fn, "__doc__", None) or type(self).__doc__
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self.results = None if results is None else nest.map_leaves(_as_spec, results)
        # root graph -> signature -> names in its library; names only, so that no graph is kept alive here
        self.names: weakref.WeakKeyDictionary[Graph, dict[Hashable, list[str]]] = weakref.WeakKeyDictionary()

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
                "Define it at the top of a module, with @hr.Function, or export a graph that calls it (as_graph_def)"
            )
        return str(self.__qualname__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(scopes.builder(*nest.flatten((args, kwargs))), Builder):
            return self.fn(*args, **kwargs)
        b: Builder = scopes.builder(*nest.flatten((args, kwargs)))
        return LibraryCall(self, b, args, kwargs).make()


def _as_spec(x: Any) -> TensorSpec:
    return x if isinstance(x, TensorSpec) else TensorSpec(None, x)
