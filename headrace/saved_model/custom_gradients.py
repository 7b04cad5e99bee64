"""Gradients of functions (`tf.custom_gradient`) that a SavedModel contains.

`tf.saved_model.SaveOptions(experimental_custom_gradients=True)` saves them as functions of the library. They take the
gradients of the results. Their bound inputs may be intermediate values of the function that is differentiated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.grad.registered import gradient_registry
from headrace.saved_model.functions import ConcreteFunction, Unbound
from headrace.saved_model.library import Library

if TYPE_CHECKING:
    from headrace.pb.saved_object_graph_pb2 import SavedObjectGraph


def register_gradients(library: Library, concrete: Mapping[str, ConcreteFunction], saved: SavedObjectGraph) -> None:
    """Registers the gradients of a SavedModel under the names that its library has for them.

    Args:
      library: the functions of the model.
      concrete: the described functions by name.
      saved: the object graph.
    """
    for name, function in library.gradients.values():
        if function not in concrete:
            continue
        numbers = saved.concrete_functions[function].bound_inputs
        tensors = [saved.nodes[n].captured_tensor.name for n in numbers]
        gradient_registry.register(name, _gradient(concrete[function], tensors), depth=2)


def _gradient(f: ConcreteFunction, captured: list[str]) -> Any:
    """Returns the gradient function `(op, *dys)` of a saved function.

    Args:
      f: the function of the gradients of the results.
      captured: for each bound input the name of an intermediate value, or "".
    """

    def gradient(op: Any, *dys: Any) -> Any:
        bound = [
            op.graph.get_tensor_by_name(name) if isinstance(x, Unbound) else x
            for x, name in zip(f.bound, captured, strict=True)
        ]
        return f.with_bound(bound, list(dys[: len(f.inputs)]))

    return gradient
