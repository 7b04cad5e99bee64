"""Python objects of a loaded SavedModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.api.layers.base import Layer
from headrace.api.variable import Variable
from headrace.errors import GraphError


class LoadedObject:
    """Object of a loaded model: its children in the file are its attributes.

    Children are further objects, variables, functions, lists, tuples, dicts, tables and constants. The classes and
    methods of the program that saved the model are not in the file, except for the functions that it saved.

    Attributes:
      variables: the variables below the object.
      trainable_variables: those that are trainable.

    Source: the result of TensorFlow's `tf.saved_model.load`.

    Example: see `load`.
    """

    variables: list[Variable]
    trainable_variables: list[Variable]

    def __getattr__(self, name: str) -> Any:
        # only if the file has no child of this name; the models of Keras have both
        if name == "variables":
            return variables_below(self)
        if name == "trainable_variables":
            return [v for v in variables_below(self) if v.trainable]
        raise AttributeError(
            f"the loaded object has no {name!r}; it has {', '.join(sorted(vars(self))) or 'no children'}"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(sorted(vars(self))) or 'no children'}>"


class CallableObject(LoadedObject):
    """Loaded object that can be called: it was saved with a function `__call__`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the saved function."""
        return vars(self)["__call__"](*args, **kwargs)


class LoadedLayer(Layer):
    """Layer of a model of `hr.save`.

    A call runs the saved trace for its arguments. Variables, losses of variables, and layers inside are those of the
    saved layer, so it is trained, frozen and put into other layers like any layer.

    Attributes:
      call: the saved function, or None if the layer was saved before its first call.

    Source: Keras's layers of a loaded SavedModel.

    Example: see `hr.load`.
    """

    call: Any = None

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the saved function.

        Raises:
          SignatureError: no trace fits the arguments.
          GraphError: the layer was saved before its first call.
        """
        if self.call is None:
            raise GraphError(f"the layer {self.name!r} was saved before its first call, so the file has no function")
        return super().__call__(inputs, *args, **kwargs)

    def _copied(self, instead: Mapping[int, Any]) -> Any:
        if any(id(v) in instead for v in self.variables):
            raise GraphError(
                f"the loaded layer {self.name!r} computes with its own variables: with_values has no effect on a saved "
                "trace; differentiate by the variables"
            )
        return super()._copied(instead)


class Unsaved:
    """Object that a file does not contain.

    Args:
      title: the description of the object.
    """

    def __init__(self, title: str) -> None:
        self.title = title

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises an error.

        Raises:
          GraphError: always.
        """
        raise GraphError(f"{self.title} is not in the file that was loaded, which has functions under hr.jit only")

    def __repr__(self) -> str:
        return f"<not in the file: {self.title}>"


class Asset:
    """File of a SavedModel.

    Attributes:
      asset_path: the path of the file, a string tensor.

    Source: TensorFlow's `tf.saved_model.Asset`.
    """

    def __init__(self, path: Any) -> None:
        self.asset_path = path

    def __repr__(self) -> str:
        return f"<asset {self.asset_path.numpy()!r}>"


class Resource(LoadedObject):
    """Table, or another object that operations refer to by a handle.

    Attributes:
      resource_handle: the handle.
      made_by: the type, the inputs and the attributes of the operation that created the handle.
    """

    resource_handle: Any = None
    made_by: tuple[str, Sequence[Any], Mapping[str, Any]] = "", (), {}


def variables_below(root: Any) -> list[Variable]:
    """Returns the different variables below an object, breadth first."""
    found: list[Variable] = []
    seen: set[int] = set()
    todo = [root]
    for x in todo:
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Variable):
            found.append(x)
        elif isinstance(x, dict):
            todo += x.values()
        elif isinstance(x, (list, tuple)):
            todo += x
        elif isinstance(x, Layer):
            todo += x.variables
        elif isinstance(x, LoadedObject):
            todo += vars(x).values()
    return found
