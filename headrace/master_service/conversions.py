"""Conversions between messages of the master service and headrace's errors, tensors and names.

The error of a call travels as the code of TensorFlow's error class and a text, from which the client makes its error. A
text names the operation as `[[{{node NAME}}]]`, the form in which TensorFlow's clients find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from google.protobuf import message as protobuf

from headrace import dtypes, errors, pb
from headrace.errors import InvalidArgumentError, NotFoundError, OpError, ResourceExhaustedError, UnimplementedError
from headrace.ir.attr_values import BadTensor
from headrace.ir.serial import attrs
from headrace.records import record
from headrace.resources.manager import Handle

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

M = TypeVar("M", bound=protobuf.Message)

_COLOCATED: Final = b"loc:@"

LONGEST_STATUS: Final = 3072  # bytes of the text of a gRPC status, TensorFlow's limit; it travels as a header

_MISUSE: Final = (ValueError, TypeError, LookupError)  # of names, feeds and graphs: their texts are for the user


@record(frozen=True, slots=True)
class Status:
    """Outcome of a failed call.

    Attributes:
      code: the number of TensorFlow's error class.
      text: the message.
      is_defect: whether the error is one of headrace and not of the client.
    """

    code: int
    text: str
    is_defect: bool = False


def status_of(error: BaseException) -> Status:
    """Returns the code and the text of an error."""
    if isinstance(error, OpError):
        text = error.message
        node = (error.node or "").partition(":")[0]  # some errors name a tensor
        if node and f"{{{{node {node}}}}}" not in text:
            text += f"\n\t [[{{{{node {node}}}}}]]"
        return Status(error.error_code, text)
    if isinstance(error, (MemoryError, RecursionError)):
        return Status(errors.RESOURCE_EXHAUSTED, f"{type(error).__name__}: {error}")
    if isinstance(error, errors.HeadraceInternalError) or not isinstance(error, (*_MISUSE, RuntimeError)):
        return Status(errors.INTERNAL, f"{type(error).__name__}: {error}", is_defect=True)
    if isinstance(error, RuntimeError):  # a session that another call has closed
        is_closed = "closed" in str(error)
        return Status(errors.CANCELLED if is_closed else errors.INTERNAL, str(error), is_defect=not is_closed)
    return Status(errors.INVALID_ARGUMENT, str(error))


def shortened(text: str) -> str:
    """Returns a text that a gRPC status can carry, cut at `LONGEST_STATUS` bytes."""
    data = text.encode("utf-8", "replace")
    return data[:LONGEST_STATUS].decode("utf-8", "ignore")


def parsed(kind: type[M], data: bytes) -> M:
    """Returns the request in the bytes of a call.

    Raises:
      InvalidArgumentError: the bytes are no such message.
    """
    try:
        return kind.FromString(data)
    except protobuf.DecodeError as e:
        raise InvalidArgumentError(f"the {len(data)} bytes of the call are no {kind.DESCRIPTOR.name}: {e}") from e


# *** names ***


def fed_tensors(graph: Graph, names: Sequence[str]) -> list[Tensor]:
    """Returns the tensors to feed.

    Raises:
      InvalidArgumentError: a tensor is named twice.
      NotFoundError: the graph has no such tensor.
    """
    found = [_tensor(graph, name, f"FeedInputs: unable to find feed output {name}") for name in names]
    if len(set(found)) < len(found):
        raise InvalidArgumentError(f"a tensor is fed twice: {', '.join(sorted(names))}")
    return found


def fetched_tensors(graph: Graph, names: Iterable[str]) -> list[Tensor]:
    """Returns the tensors to fetch.

    Raises:
      NotFoundError: the graph has no such tensor.
    """
    return [_tensor(graph, name, f"FetchOutputs node {name}: not found") for name in names]


def targets(graph: Graph, names: Iterable[str]) -> list[Operation]:
    """Returns the operations to run.

    Raises:
      NotFoundError: the graph has no such operation.
    """
    found = []
    for name in names:
        op = graph.find(name.partition(":")[0])
        if op is None:
            raise NotFoundError(f"Some target nodes not found: {name}")
        found.append(op)
    return found


def _tensor(graph: Graph, name: str, missing: str) -> Tensor:
    owner, _, index = name.partition(":")
    op = graph.find(owner)
    if op is None:
        raise NotFoundError(missing)
    if index and not (index.isascii() and index.isdigit() and len(index) < 10):
        raise InvalidArgumentError(f"{name!r} is no name of a tensor: expected the name of a node, ':' and a number")
    number = int(index or 0)
    if number >= len(op.outputs):
        raise InvalidArgumentError(f"{missing}: node '{owner}' has {len(op.outputs)} outputs")
    return op.outputs[number]


def earlier_nodes(graph: Graph, graph_def: pb.GraphDef) -> dict[str, Tensor | Operation]:
    """Returns the input map of an extension, for inputs that are nodes of the graph.

    Args:
      graph: the graph.
      graph_def: the nodes that are added to it.

    Raises:
      InvalidArgumentError: a node of the graph lacks an output that an input names.
    """
    added = {node.name for node in graph_def.node}
    mapped: dict[str, Tensor | Operation] = {}
    for node in graph_def.node:
        neighbours = [
            "^" + text[len(_COLOCATED) :].decode("utf-8", "replace")
            for text in (node.attr["_class"].list.s if "_class" in node.attr else ())
            if text.startswith(_COLOCATED)
        ]
        for text in (*node.input, *neighbours):
            name = text.removeprefix("^").partition(":")[0]
            op = None if name in added else graph.find(name)
            if op is not None:
                missing = f"Node '{node.name}': Connecting to invalid output of source node {name}"
                mapped[text] = op if text.startswith("^") else _tensor(graph, text, missing)
    return mapped


# *** tensors ***


def value_of(proto: pb.TensorProto, name: str, most_bytes: int) -> Any:
    """Returns the array in a message.

    Args:
      proto: the message.
      name: the name of the tensor, for messages.
      most_bytes: the largest size of the array; a few bytes can describe an array of equal elements of any size.

    Raises:
      InvalidArgumentError: the message is malformed.
      ResourceExhaustedError: the array is too large.
      UnimplementedError: a resource or variant, which belongs to its step.
    """
    if proto.dtype in (pb.DT_RESOURCE, pb.DT_VARIANT):
        raise UnimplementedError(
            f"the value fed to '{name}' is a handle; feed its contents, or run the op that made it"
        )
    try:
        found = attrs.decode_tensor(proto)
    except ValueError as e:
        raise InvalidArgumentError(f"the value fed to '{name}' is no tensor: {e}") from e
    if isinstance(found, BadTensor):
        raise InvalidArgumentError(f"the value fed to '{name}' is no tensor: {found.reason}")
    if found.nbytes > most_bytes:
        raise ResourceExhaustedError(
            f"the value fed to '{name}' takes {found.nbytes:,} bytes; the limit of the server is {most_bytes:,}"
        )
    return found


def proto_of(value: Any, tensor: Tensor) -> pb.TensorProto:
    """Returns the message of a fetched value.

    Args:
      value: an array, a numpy scalar, `bytes` or a handle.
      tensor: the tensor that was fetched.

    Raises:
      UnimplementedError: a variant, which has no wire form.
    """
    dtype = tensor.dtype.base
    if dtype is dtypes.resource:
        return _handles(value)
    if dtype is dtypes.variant:
        raise UnimplementedError(
            f"'{tensor.name}' is a variant, which cannot leave the server; fetch the tensors that are made of it"
        )
    array = value if isinstance(value, np.ndarray) else _scalar(value)
    proto = attrs.encode_tensor(array)
    proto.dtype = dtype.number  # type: ignore[assignment]  # the storage of a quantized dtype is that of its integers
    return proto


def _scalar(value: Any) -> np.ndarray:
    if isinstance(value, bytes):
        array = np.empty((), object)
        array[()] = value
        return array
    return np.asarray(value)


def _handles(value: Any) -> pb.TensorProto:
    handles = value if isinstance(value, np.ndarray) else np.array([value], object).reshape(())
    proto = pb.TensorProto(dtype=pb.DT_RESOURCE, tensor_shape=attrs.encode_shape(handles.shape))
    for handle in handles.reshape(-1):
        assert isinstance(handle, Handle), handle
        proto.resource_handle_val.add(
            device=handle.device, container=handle.container, name=handle.name, maybe_type_name=handle.kind
        )
    return proto
