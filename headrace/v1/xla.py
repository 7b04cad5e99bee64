"""TensorFlow 1's `tf.xla`: marks of operations for a compiler.

headrace compiles every step that it can, so they have no effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace import nest, public_names
from headrace.ir.graph import Operation
from headrace.v1.array_ops import identity
from headrace.v1.grouping import group
from headrace.v1.scoping import control_dependencies


class experimental:
    """TensorFlow's `tf.xla.experimental`."""

    @staticmethod
    def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
        """Returns the results of a computation, as a compiled group of operations.

        Operations among the results run before the tensors are there.

        Args:
          computation: function that builds the operations, of as many arguments as there are inputs.
          inputs: its arguments; None: none.

        Returns:
          A list of tensors; an operation if the computation returns no tensor.

        Source: TensorFlow's `tf.xla.experimental.compile`.
        """
        found = computation(*(identity(x) for x in inputs or ()))
        results = [] if found is None else list(found) if isinstance(found, (list, tuple)) else [found]
        operations = [x for x in results if isinstance(x, Operation)]
        tensors = [x for x in results if not isinstance(x, Operation)]
        if not tensors:
            return group(*operations)
        with control_dependencies(operations):
            return [identity(x) for x in nest.flatten(tensors)]

    @staticmethod
    @contextlib.contextmanager
    def jit_scope(compile_ops: bool = True, separate_compiled_gradients: bool = False) -> Iterator[None]:
        """Context of operations that are compiled, as all are.

        Args:
          compile_ops, separate_compiled_gradients: accepted as in TensorFlow.

        Source: TensorFlow's `tf.xla.experimental.jit_scope`.
        """
        yield


__all__ = ["experimental"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
