"""Collections as `CollectionDef` messages: lists of numbers, texts, names or messages.

All items of a list have the kind of the first one. Objects other than tensors and numbers (variables, queue runners)
are written as messages in a list of bytes. The encoder (`Encode`) and decoder (`Decode`) of such objects are found by
the name of the collection.

Source: TensorFlow's `add_collection_def` and `import_scoped_meta_graph`, whose kinds are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf import any_pb2

from headrace import pb
from headrace.errors import GraphError
from headrace.interchange.variables import KINDS, decode_variable, encode_variable
from headrace.ir.graph import Operation, Tensor

Find: TypeAlias = "Callable[[str], Tensor | Operation]"
Encode: TypeAlias = Callable[[Any], Any]  # returns the message of an item
Decode: TypeAlias = Callable[[bytes, Find], Any]  # returns the item of a message's bytes

# Names of the collections of variables.
VARIABLES = (
    "variables", "trainable_variables", "local_variables", "model_variables", "moving_average_variables",
    "metric_variables", "global_step",
)  # fmt: skip


def variable_encoders(form: str = "structured") -> dict[str, Encode]:
    """The encoders of collections of variables.

    Args:
      form: the form of the `GraphDef` with their names; see `Graph.as_graph_def`.
    """
    return dict.fromkeys(VARIABLES, functools.partial(encode_variable, form=form))


def variable_decoders(kinds: Sequence[Any] = KINDS) -> dict[str, Decode]:
    """Returns decoders of the collections of variables, for one import.

    A variable in several collections becomes one object.

    Args:
      kinds: the classes of resource variables and of references.
    """
    made: dict[bytes, Any] = {}

    def decode(data: bytes, find: Find) -> Any:
        if data not in made:
            made[data] = decode_variable(data, find, kinds)
        return made[data]

    return dict.fromkeys(VARIABLES, decode)


def encode_collection(
    name: str, items: Sequence[Any], encoders: Mapping[str, Encode], show: Callable[[Any], str]
) -> Any:
    """Returns the `CollectionDef` of the collection `name`.

    Args:
      name: the name of the collection, which may have an encoder.
      items: the items; at least one.
      encoders: name of a collection → the encoder of its items.
      show: returns the name of a tensor or operation.

    Raises:
      GraphError: an item cannot be written, or has another kind than the first.
    """
    out = pb.CollectionDef()
    first = items[0]
    encode = encoders.get(name)
    try:
        if encode is not None:
            out.bytes_list.value.extend(encode(x).SerializeToString(deterministic=True) for x in items)
        elif isinstance(first, (str, bytes)):
            out.bytes_list.value.extend(x.encode() if isinstance(x, str) else x for x in items)
        elif isinstance(first, int):
            out.int64_list.value.extend(items)
        elif isinstance(first, float):
            out.float_list.value.extend(items)
        elif isinstance(first, any_pb2.Any):
            out.any_list.value.extend(items)
        else:
            out.node_list.value.extend(map(show, items))
    except (AttributeError, TypeError, ValueError, GraphError) as e:
        raise GraphError(
            f"the collection '{name}' cannot be written: {e} (its items must be of one kind: "
            f"{'what its name says' if encode is not None else 'tensors and operations, texts, ints or floats'})"
        ) from e
    return out


def decode_collection(name: str, given: Any, decoders: Mapping[str, Decode], find: Find) -> list[Any]:
    """Returns the items of a `CollectionDef`.

    Args:
      name: the name of the collection, which may have a decoder.
      given: the message.
      decoders: name of a collection → the decoder of its items.
      find: returns the tensor or operation of a name.

    Raises:
      GraphError: a malformed message, or an unknown name; the text names the collection.
    """
    kind = given.WhichOneof("kind")
    if kind is None:
        raise GraphError(f"the collection '{name}' is of no kind that headrace knows")
    values = getattr(given, kind).value
    decode = decoders.get(name) if kind == "bytes_list" else None
    if decode is None and kind != "node_list":
        return list(values)
    read: Callable[[Any], Any] = find if decode is None else lambda data: decode(data, find)
    out = []
    for i, value in enumerate(values):
        try:
            out.append(read(value))
        except GraphError as e:
            raise GraphError(f"item {i} of the collection '{name}': {e}") from e
    return out
