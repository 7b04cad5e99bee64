"""Entries of a checkpoint, written and read, in any format."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.files.slices import TensorSlice, parse_spec
from headrace.records import record

_MOST_COMPARED = 1000  # names that are searched for one similar to a missing one


@record(frozen=True, slots=True)
class TensorEntry:
    """Description of a tensor in a checkpoint.

    Attributes:
      dtype: The dtype.
      shape: The shape of the whole tensor.
      parts: The parts in which it is stored; empty if it is stored in one piece.
    """

    dtype: DType
    shape: tuple[int, ...]
    parts: tuple[TensorSlice, ...] = ()


@record(frozen=True, slots=True)
class ManifestEntry:
    """Tensor to save, or a part of one.

    Attributes:
      name: The name of the tensor.
      dtype: The dtype, which the array does not determine for strings and quantized numbers.
      value: The array; of `bytes` objects for strings.
      shape: The shape of the whole tensor.
      part: The part of the tensor that `value` is; None for all of it.
    """

    name: str
    dtype: DType
    value: np.ndarray
    shape: tuple[int, ...]
    part: TensorSlice | None = None

    @classmethod
    def of(cls, name: str, value: object, dtype: DType | None = None, spec: str = "") -> ManifestEntry:
        """The entry for an array.

        Args:
          name: The name of the tensor.
          value: The array.
          dtype: The dtype; None for that of the array.
          spec: The part of a tensor that the array is, as "4 5 0,2:-" (see `slices`); "" for all of it.

        Returns:
          The entry.

        Raises:
          InvalidArgumentError: The array cannot be stored, or is not such a part.
        """
        array = np.asarray(value)
        dtype = dtypes.from_numpy(array.dtype) if dtype is None else dtype.base
        if dtype in (dtypes.resource, dtypes.variant):
            raise InvalidArgumentError(
                f"tensor {name!r} is a {dtype}, which no checkpoint can hold: of queues, tables and lists save what is "
                "in them (LookupTableExportV2, TensorListStack)"
            )
        if array.dtype.kind in "SU" and dtype is dtypes.string:
            text, array = array, np.empty(array.shape, object)
            array.reshape(-1)[:] = [s if isinstance(s, bytes) else s.encode() for s in text.reshape(-1).tolist()]
        if dtype is dtypes.string:
            odd = next((s for s in array.reshape(-1) if type(s) is not bytes), None)
            if odd is not None:
                raise InvalidArgumentError(f"tensor {name!r} should have strings (bytes), and has {odd!r}")
        elif array.dtype != dtype.numpy and array.dtype.newbyteorder("=") == dtype.numpy:
            array = array.astype(dtype.numpy)
        elif array.dtype != dtype.numpy:
            raise InvalidArgumentError(f"tensor {name!r} should have the dtype {dtype}, and its array is {array.dtype}")
        if not spec:
            return cls(name, dtype, array, array.shape)
        shape, part = parse_spec(spec)
        if part.shape_in(shape) != array.shape:
            raise InvalidArgumentError(
                f"Slice in shape_and_slice specification does not match the shape of the tensor to save: {spec!r}, "
                f"tensor: {list(array.shape)} ({name!r})"
            )
        is_whole = array.shape == shape
        return cls(name, dtype, array, shape, None if is_whole else part)


def distinct(pieces: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Returns `pieces` as a list if one checkpoint can contain them.

    Raises:
      InvalidArgumentError: A name is empty or occurs twice, or its parts belong to different tensors.
    """
    out = list(pieces)
    first: dict[str, ManifestEntry] = {}
    seen: set[tuple[str, TensorSlice | None]] = set()
    for piece in out:
        if not piece.name or piece.name.startswith("\0"):
            raise InvalidArgumentError(f"a tensor in a checkpoint cannot be named {piece.name!r}")
        other = first.setdefault(piece.name, piece)
        alike = (
            other.dtype == piece.dtype and other.shape == piece.shape and (other.part is None) == (piece.part is None)
        )
        if (piece.name, piece.part) in seen or not alike:
            raise InvalidArgumentError(
                f"Adding duplicate key: {piece.name}"
                if alike
                else f"Two tensors of different shapes, dtypes or forms are "
                f"named {piece.name!r}; each name can be saved once, or in parts of one whole"
            )
        seen.add((piece.name, piece.part))
    return out


def entry_of(name: str, prefix: str, entries: Mapping[str, TensorEntry], strange: Mapping[str, int]) -> TensorEntry:
    """The entry of a tensor in a TensorFlow checkpoint.

    Args:
      name: The name of the tensor.
      prefix: The prefix of the checkpoint, for errors.
      entries: The entries of the checkpoint.
      strange: TensorFlow's dtype numbers of the tensors whose values cannot be read.

    Returns:
      The entry.

    Raises:
      NotFoundError: The tensor does not exist.
      InvalidArgumentError: The tensor is one of `strange`.
    """
    entry = entries.get(name)
    if entry is not None:
        return entry
    if name in strange:
        raise InvalidArgumentError(
            f"tensor {name!r} of checkpoint {prefix} has TensorFlow's DataType {strange[name]}, whose values are not "
            "read here"
        )
    raise missing(name, prefix, entries)


def missing(name: str, prefix: str, names: Mapping[str, TensorEntry]) -> NotFoundError:
    """The error for a missing tensor, with similar names of the checkpoint."""
    few = list(itertools.islice(names, _MOST_COMPARED))
    near = difflib.get_close_matches(name[:200], few, 3)
    hint = f"; like it: {', '.join(near)}" if near else ""
    return NotFoundError(f"Key {name} not found in checkpoint {prefix}, which has {len(names)} tensors{hint}")
