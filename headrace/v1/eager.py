"""TensorFlow 1's names of eager execution: `tf.enable_eager_execution`, `tf.function`, `tf.GradientTape`.

Without `enable_eager_execution`, functions and tapes work in the default graph, as in TensorFlow 1: a call of a
function is an operation, and a tape differentiates by `tf.gradients`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import flags
from headrace.api import scopes
from headrace.eager import tape
from headrace.errors import GraphError
from headrace.jit import function as jitted
from headrace.v1 import graph
from headrace.v1.graph import in_default_graph


def enable_eager_execution(config: Any = None, device_policy: Any = None, execution_mode: Any = None) -> None:
    """Makes the process execute eagerly outside of graphs.

    Args:
      config, device_policy, execution_mode: accepted as in TensorFlow, without effect.

    Raises:
      ValueError: operations have been added to the default graph.

    Source: TensorFlow's `tf.enable_eager_execution`.
    """
    if flags.V1_EAGER.value:
        return
    if not scopes.is_outside() or graph.get_default_graph().operations:
        raise GraphError("tf.enable_eager_execution must be called at program startup, before a graph has operations.")
    flags.V1_EAGER.value = 1


def disable_eager_execution() -> None:
    """Ends the effect of `enable_eager_execution`.

    Source: TensorFlow's `tf.disable_eager_execution`.
    """
    flags.V1_EAGER.value = 0


class Function(jitted.Function):
    """Function that the default graph calls; see `headrace.jit.function.Function`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return in_default_graph(super().__call__)(*args, **kwargs)


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    experimental_autograph_options: Any = None,
    experimental_relax_shapes: bool = True,
    **ignored: Any,
) -> Any:
    """Returns a function that is traced once for each signature; see `headrace.jit`.

    Args:
      func: the Python function; None: the result is a decorator.
      input_signature: a TensorSpec for each tensor among the arguments.
      autograph: whether Python's control flow on tensors becomes operations.
      experimental_autograph_options: accepted as in TensorFlow, without effect.
      experimental_relax_shapes: whether dimensions that vary become unknown.
      ignored: other arguments of TensorFlow's function that begin with "experimental_" or "jit_", without effect.

    Raises:
      TypeError: an unknown argument.

    Source: TensorFlow's `tf.function`.
    """
    for name in ignored:
        if not name.startswith(("experimental_", "jit_", "reduce_retracing")):
            raise TypeError(f"function() got an unexpected keyword argument {name!r}")

    def make(fn: Callable[..., Any]) -> Function:
        return Function(fn, input_signature, converts=autograph, relax_shapes=experimental_relax_shapes)

    return make if func is None else make(func)


class GradientTape(tape.GradientTape):
    """Tape of eager computations, which in a graph is `tf.gradients`; see `headrace.GradientTape`."""

    gradient = in_default_graph(tape.GradientTape.gradient)
    jacobian = in_default_graph(tape.GradientTape.jacobian)
    batch_jacobian = in_default_graph(tape.GradientTape.batch_jacobian)
