"""Collectives: joint computations on tensors of several devices.

    totals = hr.all_sum([x0, x1, x2])       # three tensors, each of them x0 + x1 + x2

Each function takes a list with a tensor for each *participant*, and returns a list with a result for each participant.
Result i is on the device of participant i: the device given in `devices`, else the device requested for tensor i. On
one device this is plain arithmetic. On several devices the tensors are sent from device to device along a ring or a
tree (`lower/collectives.py`). Loops, conditionals and gradients treat collectives like other operations.

Source: TensorFlow's `nccl_ops` and `collective_ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace import nest
from headrace.api import scopes
from headrace.api.tensors import is_tensor
from headrace.errors import GraphError
from headrace.ir.device import DeviceSpec
from headrace.ir.tensor_type import Tensor


def all_sum(tensors: Sequence[Any], devices: Sequence[str] | None = None, name: str | None = None) -> list[Tensor]:
    """Returns to each participant the sum of all tensors.

    Args:
      tensors: one tensor of numbers for each participant, of one dtype and shape.
      devices: the device name of each participant; None: the device of its tensor.
      name: the name of the operation; "AllReduce" if None.

    Returns:
      A list of tensors like `tensors`, equal bit for bit.

    Raises:
      GraphError (a ValueError): there is no tensor, or another number of devices.
      SignatureError (a TypeError): the dtypes differ.
      ShapeError (a ValueError): the static shapes differ.
      InvalidArgumentError: the shapes differ at run time.

    Source: TensorFlow's `nccl_ops.all_sum`.

    Example: gradients of two halves of a batch, each of them computed on its device, become those of the batch.

      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     with hr.device("/cpu:0"):
      ...         a = hr.constant([1.0, 2.0])
      ...     with hr.device("/cpu:1"):
      ...         b = hr.constant([10.0, 20.0])
      ...     on_0, on_1 = hr.all_sum([a, b])
      >>> hr.Session(graph=g).run(on_1)
      array([11., 22.], dtype=float32)
    """
    return _all_reduced("all_sum", "sum", tensors, devices, name)


def all_prod(tensors: Sequence[Any], devices: Sequence[str] | None = None, name: str | None = None) -> list[Tensor]:
    """Returns to each participant the elementwise product of all tensors; see `all_sum`.

    Source: TensorFlow's `nccl_ops.all_prod`.

    Example:
      >>> [t.numpy().item() for t in all_prod([2, 3, 7])]
      [42, 42, 42]
    """
    return _all_reduced("all_prod", "prod", tensors, devices, name)


def all_max(tensors: Sequence[Any], devices: Sequence[str] | None = None, name: str | None = None) -> list[Tensor]:
    """Returns to each participant the elementwise maximum of all tensors; see `all_sum`.

    The tensors are real. If several elements are maximal, they share the gradient evenly.

    Source: TensorFlow's `nccl_ops.all_max`.

    Example:
      >>> [t.numpy().tolist() for t in all_max([[1, 5], [4, 2]])]
      [[4, 5], [4, 5]]
    """
    return _all_reduced("all_max", "max", tensors, devices, name)


def all_min(tensors: Sequence[Any], devices: Sequence[str] | None = None, name: str | None = None) -> list[Tensor]:
    """Returns to each participant the elementwise minimum of all tensors; see `all_max`.

    Source: TensorFlow's `nccl_ops.all_min`.

    Example:
      >>> [t.numpy().tolist() for t in all_min([[1, 5], [4, 2]])]
      [[1, 2], [1, 2]]
    """
    return _all_reduced("all_min", "min", tensors, devices, name)


def broadcast(tensor: Any, devices: Sequence[str] | int, name: str | None = None) -> list[Tensor]:
    """Returns the same tensor to each participant.

    (`broadcast_to` is a different function: it repeats a tensor along axes.)

    Args:
      tensor: a tensor of numbers, bools or strings, on the device of the root.
      devices: the device name of each participant; or their number, without names.
      name: the name of the operation; "Broadcast" if None.

    Returns:
      A list with a tensor for each participant.

    Raises:
      GraphError (a ValueError): there is no participant, or a name is not a device name.

    Source: TensorFlow's `nccl_ops.broadcast`.

    Example:
      >>> [t.numpy().tolist() for t in broadcast([1, 2], ["/cpu:0", "/cpu:1"])]
      [[1, 2], [1, 2]]
    """
    n = devices if isinstance(devices, int) else len(devices)
    if n < 1:
        raise GraphError(f"broadcast needs at least one participant, got devices={devices!r}")
    b = scopes.builder(tensor)
    attrs = {"N": n, "devices": () if isinstance(devices, int) else _named(b, devices)}
    return nest.as_list(b.make("_Broadcast", (tensor,), attrs, name))


def all_gather(tensors: Sequence[Any], devices: Sequence[str] | None = None, name: str | None = None) -> list[Tensor]:
    """Returns to each participant all tensors, concatenated along the first axis.

    Args:
      tensors: one tensor of numbers, bools or strings for each participant, of one dtype and shape [n, ...].
      devices: the device name of each participant; None: the device of its tensor.
      name: the name of the operation; "AllGather" if None.

    Returns:
      A list of tensors of shape [n * the number of participants, ...].

    Raises:
      As `all_sum`; ShapeError (a ValueError) also if the tensors are scalars.

    Source: NCCL's `ncclAllGather`.

    Example:
      >>> [t.numpy().tolist() for t in all_gather([[1, 2], [3, 4]])]
      [[1, 2, 3, 4], [1, 2, 3, 4]]
    """
    return _grouped("all_gather", "_AllGather", tensors, devices, name)


def reduce_scatter(
    tensors: Sequence[Any], devices: Sequence[str] | None = None, name: str | None = None
) -> list[Tensor]:
    """Returns to each participant its part of the sum of all tensors.

    The sum is divided into equal parts along the first axis, and participant i gets part i.

    Args:
      tensors: one tensor of numbers for each participant, of one dtype and shape [n, ...]; n is divisible by the number
        of participants.
      devices: the device name of each participant; None: the device of its tensor.
      name: the name of the operation; "ReduceScatter" if None.

    Returns:
      A list of tensors of shape [n / the number of participants, ...].

    Raises:
      As `all_sum`; ShapeError (a ValueError) also if the tensors are scalars or n is not divisible.

    Source: NCCL's `ncclReduceScatter`.

    Example:
      >>> [t.numpy().tolist() for t in reduce_scatter([[1, 2], [10, 20]])]
      [[11], [22]]
    """
    return _grouped("reduce_scatter", "_ReduceScatter", tensors, devices, name)


def _all_reduced(
    what: str, reduction: str, tensors: Sequence[Any], devices: Sequence[str] | None, name: str | None
) -> list[Any]:
    return _grouped(what, "_AllReduce", tensors, devices, name, reduction=reduction)


def _grouped(
    what: str, type: str, tensors: Sequence[Any], devices: Sequence[str] | None, name: str | None, **attrs: Any
) -> list[Any]:
    """Creates a collective with one input of each participant; returns its outputs."""
    if is_tensor(tensors):
        raise GraphError(
            f"{what} takes a list with a tensor for each participant, got {tensors!r}; hr.unstack gives one"
        )
    xs = list(tensors)
    if not xs:
        raise GraphError(f"{what} needs at least one participant, got an empty list of tensors")
    b = scopes.builder(*xs)
    if devices is not None:
        there = _named(b, devices)
        if len(there) != len(xs):
            raise GraphError(f"{what} needs a device for each of the {len(xs)} tensors, got {list(devices)}")
    else:
        there = tuple(x.device if getattr(x, "graph", None) is not None else "" for x in xs)
    return nest.as_list(b.make(type, (xs,), {"devices": there if any(there) else (), **attrs}, name))


def _named(b: Any, devices: Sequence[str]) -> tuple[str, ...]:
    """Returns `devices` as full names where possible, completed by the current device scope."""
    if isinstance(devices, str):
        raise GraphError(f"'devices' must be a list with a device name for each participant, got {devices!r}")
    around = DeviceSpec.from_string(b.device)
    return tuple(around.merge(DeviceSpec.from_string(d)).to_string() for d in devices)
