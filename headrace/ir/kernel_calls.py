"""Functions that kernels call: those of datasets.

A kernel sees an attribute of kind `func` as a name of the graph's library, or as a graph. To call it, all stages of a
step are needed, which are above the kernels. So `headrace/__init__.py` installs the function that compiles it
(`function_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from headrace.ir.attr_values import Func
    from headrace.ir.kernel import KernelContext


class Compiler(Protocol):
    """Function that prepares calls of a graph."""

    def __call__(self, graph: FuncGraph, resources: Any) -> Callable[[Sequence[Any], Any], Sequence[Any]]:
        """Returns a function from the values of the parameters to those of the results.

        Args:
          graph: the graph.
          resources: the manager of the variables and other resources (`resources.manager.ResourceManager`).
        """


_compiler: Compiler | None = None


def install(compiler: Compiler) -> None:
    """Sets the compiler of the process."""
    global _compiler
    _compiler = compiler


def callable_of(
    ctx: KernelContext, f: Func | FuncGraph, captured: Sequence[Any] = ()
) -> Callable[[Sequence[Any], Any], Sequence[Any]]:
    """Returns a function that runs an attribute of kind `func` of a kernel's operation.

    Args:
      ctx: the context of the kernel.
      f: the attribute.
      captured: the values of the last parameters.

    Returns:
      A function from the values of the other parameters, and the pass they belong to, to the values of the results.

    Raises:
      NotFoundError: the library does not have the function.
      RuntimeError: the import of headrace has not finished.
    """
    if _compiler is None:
        raise RuntimeError("headrace's import has not finished; run datasets after `import headrace`")
    graph = f if isinstance(f, FuncGraph) else ctx.op.graph.function(f.name, ctx.op)
    call = _compiler(graph, ctx.step.session)
    if not captured:
        return call
    rest = tuple(captured)
    return lambda element, run: call((*element, *rest), run)
