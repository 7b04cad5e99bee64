"""Kinds of objects that models of `hr.save` have in addition to those of SavedModels.

The identifier of a node in the object graph states its kind, and its metadata, a JSON text, describes it. A file names
classes of optimizers and schedules, which are looked up in a table; nothing else in it leads to Python code.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np

from headrace import dtypes
from headrace.api import scopes
from headrace.api.layers.base import Layer
from headrace.api.variable import Variable
from headrace.errors import GraphError
from headrace.saved_model.decoding import named_tuple
from headrace.saved_model.objects import LoadedLayer
from headrace.train import optimizers, schedules
from headrace.train.constructed import Constructed, construct
from headrace.train.optimizers.base import set_kept_variables

OBJECT: Final = "_generic_user_object"  # with attributes
LIST: Final = "trackable_list_wrapper"
TUPLE: Final = "trackable_tuple_wrapper"  # with metadata: the name and the fields of a named tuple
DICT: Final = "trackable_dict_wrapper"  # with metadata: the texts of the keys, if some are no strings
VALUE: Final = "headrace_value"  # None, a number or text
ARRAY: Final = "headrace_array"  # an eager tensor, array or number of numpy, whose value is in the checkpoint
LAYER: Final = "headrace_layer"
CONSTRUCTED: Final = "headrace_constructed"  # an optimizer or a schedule, made from its arguments
UNSAVED: Final = "headrace_unsaved"

# Children of roots, layers and constructed objects.
CALL: Final = "__call__"
SIGNATURES: Final = "signatures"
OWN_VARIABLES: Final = "__own_variables__"
OWN_LOSSES: Final = "__own_losses__"
ARGUMENTS: Final = "arguments"
SLOTS: Final = "slots"
COUNTERS: Final = "counters"

CLASSES: Final[dict[str, type[Constructed]]] = {
    kind.__name__: kind
    for module in (optimizers, schedules)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Constructed) and kind not in (optimizers.Optimizer, Constructed)
}

_PLAIN: Final = (type(None), bool, int, float, str)


def encode_value(x: Any) -> str | None:
    """Returns the JSON text of a number, text, bytes, a dtype or None.

    It is None for other objects.
    """
    x = x.item() if isinstance(x, np.character) else x
    if type(x) in _PLAIN:
        return json.dumps(x)
    if type(x) is bytes:
        return json.dumps({"bytes": x.decode("latin-1")})
    if type(x) is complex:
        return json.dumps({"complex": [x.real, x.imag]})
    return json.dumps({"dtype": x.name}) if isinstance(x, dtypes.DType) else None


def decode_value(text: str) -> Any:
    """Returns the value of `encode_value`.

    Raises:
      GraphError: the text is malformed.
    """
    x = decode_json(text)
    if type(x) in _PLAIN:
        return x
    try:
        ((tag, value),) = x.items()
        if tag == "bytes":
            return value.encode("latin-1")
        if tag == "complex":
            return complex(*value)
        if tag == "dtype":
            return dtypes.as_dtype(value)
    except (AttributeError, TypeError, ValueError) as e:
        raise GraphError(f"a model's file describes no value by {text[:200]!r}: {e}") from e
    raise GraphError(f"a model's file describes no value by {text[:200]!r}; it may be of a later version of headrace")


def encode_keys(x: Mapping[Any, Any]) -> tuple[str, list[str]] | None:
    """Returns the metadata of a dict and the names of its children.

    They are None if a key is no number, text, bytes, dtype or None. The names are the keys, or numbers if some keys are
    no strings.
    """
    if all(isinstance(key, str) for key in x):
        return "", list(x)
    texts = [encode_value(key) for key in x]
    return None if None in texts else (json.dumps(texts), list(map(str, range(len(texts)))))


def decode_keys(metadata: str, names: Collection[str]) -> Iterator[tuple[Any, str]]:
    """Yields the key and the name of each child of a dict.

    Raises:
      GraphError: the metadata is malformed.
    """
    if not metadata:
        yield from ((name, name) for name in names)
        return
    for i, text in enumerate(decode_json(metadata, list)):
        key = decode_value(text) if isinstance(text, str) else [text]
        if str(i) not in names or isinstance(key, list):
            raise GraphError(f"a dict in a model's file has other keys than {metadata[:200]!r}")
        yield key, str(i)


def decode_json(text: str, kind: type | None = None) -> Any:
    """Returns the value of a JSON text.

    Raises:
      GraphError: the text is malformed, or describes no instance of `kind`.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise GraphError(f"the description of an object in a model's file is no JSON: {e}") from e
    if kind is not None and not isinstance(found, kind):
        raise GraphError(
            f"the description of an object in a model's file is {text[:200]!r}, not a JSON {kind.__name__}"
        )
    return found


def array_of(x: Any) -> tuple[str, np.ndarray] | None:
    """Returns the metadata of an eager tensor, array or number of numpy, and its values.

    They are None for other objects.
    """
    kinds = {"tensor": scopes.runtime().eager.tensor_type, "array": np.ndarray, "number": np.generic}
    kind = next((name for name, of in kinds.items() if isinstance(x, of)), None)
    if kind is None:
        return None
    try:
        dtype = x.dtype if kind == "tensor" else dtypes.from_numpy(x.dtype)
    except (TypeError, ValueError):  # a dtype of numpy that no tensor has
        return None
    if dtype.base in (dtypes.resource, dtypes.variant):
        return None
    return json.dumps([kind, dtype.base.name]), np.asarray(x.numpy() if kind == "tensor" else x)


def decode_array(text: str, value: np.ndarray) -> Any:
    """Returns the object of `array_of`.

    Args:
      text: the text of `array_of`.
      value: the values.

    Raises:
      GraphError: the text is malformed.
    """
    match decode_json(text, list):
        case ["tensor", str(name)]:
            try:
                return scopes.runtime().eager.const(value, dtypes.as_dtype(name))
            except (TypeError, ValueError) as e:
                raise GraphError(f"a model's file describes a tensor of dtype {name[:200]!r}: {e}") from e
        case ["array", _]:
            return value.copy()  # which can be written
        case ["number", _] if not value.ndim and value.dtype != object:
            return value[()]
    raise GraphError(f"a model's file describes no array by {text[:200]!r}; it may be of a later version of headrace")


# *** objects whose children are set later ***


def new_tuple(metadata: str, items: list[Any]) -> tuple[Any, ...]:
    """Returns a tuple, or a named tuple if the metadata has its name and fields.

    Raises:
      GraphError: the metadata is malformed.
    """
    if not metadata:
        return tuple(items)
    names = decode_json(metadata, list)
    if len(names) != len(items) + 1 or not all(isinstance(name, str) for name in names):
        raise GraphError(f"a named tuple in a model's file has {len(items)} items, and {metadata[:200]!r} as fields")
    made: tuple[Any, ...] = named_tuple(names[0], list(zip(names[1:], items, strict=True)))
    return made


def new_layer(metadata: str) -> LoadedLayer:
    """Returns a layer without its parts.

    Raises:
      GraphError: the metadata is malformed.
    """
    try:
        match decode_json(metadata, dict):
            case {"name": str(name), "trainable": bool(trainable), "dtype": dtype}:
                return LoadedLayer(name, trainable, dtype)
    except TypeError as e:  # no dtype
        raise GraphError(f"a layer in a model's file is malformed: {e}") from e
    raise GraphError(f"a layer in a model's file is malformed: it is described by {metadata[:200]!r}")


def set_parts(layer: LoadedLayer, children: dict[str, Any]) -> None:
    """Sets the parts of a layer.

    Raises:
      GraphError: a part is of another kind.
    """
    own, losses = children.pop(OWN_VARIABLES, []), children.pop(OWN_LOSSES, [])
    if not all(isinstance(v, Variable) for v in own) or not all(map(callable, losses)):
        raise GraphError(
            f"the layer {layer.name!r} in a model's file has {own!r} as variables and {losses!r} as losses"
        )
    layer.built = True
    layer._own_variables, layer._own_losses, layer._is_outside = own, losses, True
    layer.call = children.pop(CALL, None)
    vars(layer).update({name: x for name, x in children.items() if not hasattr(Layer, name)})


def new_constructed(metadata: str) -> Constructed:
    """Returns an optimizer or schedule that is not initialized.

    Raises:
      GraphError: the metadata names no class of them.
    """
    name = decode_json(metadata, str)
    if name not in CLASSES:
        raise GraphError(f"a model's file has an object of the class {name[:200]!r}; headrace has {', '.join(CLASSES)}")
    made: Constructed = CLASSES[name].__new__(CLASSES[name])
    return made


def set_arguments(x: Constructed, children: dict[str, Any]) -> None:
    """Initializes an optimizer or schedule, and sets its variables.

    Raises:
      GraphError: the children are malformed.
    """
    try:
        construct(x, children[ARGUMENTS])
        if isinstance(x, optimizers.Optimizer):
            set_kept_variables(x, children[SLOTS], children[COUNTERS])
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise GraphError(f"an object of the class {type(x).__name__} in a model's file is malformed: {e!r}") from e
