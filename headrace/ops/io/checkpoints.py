"""Saving and restoring of variables: the operations that a `tf.train.Saver` creates.

`files.checkpoints` describes the files, the meaning of a prefix, and the atomic writing. This module has the ops with
TensorFlow's signatures. SaveV2 writes TensorFlow's format, Save and SaveSlices its first format, _SaveNative headrace's
own. RestoreV2, Restore and RestoreSlice read all of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.files import checkpoints
from headrace.files.manifest import ManifestEntry, missing
from headrace.files.slices import TensorSlice, parse_spec
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, int_attr, list_attr, op, type_attr
from headrace.opkit import arrays
from headrace.opkit.shape_rules import nothing
from headrace.shapes import Shape

_FILES = Facts(effect="python", writes=True)
_READS = dataclasses.replace(_FILES, dynamic_shape=True)


def _text(value: Any, what: str) -> str:
    """Scalar string as text.

    Bytes that are not UTF-8 become surrogate escapes, as in Python's paths.
    """
    if np.ndim(value):
        raise InvalidArgumentError(f"{what} should be a scalar, got the shape {shapes.show(np.shape(value))}")
    got = value.item() if isinstance(value, np.ndarray) else value
    out: str = got.decode("utf-8", "surrogateescape")
    return out


def _texts(values: Any, n: int | None, what: str) -> list[str]:
    """A vector of `n` strings as text."""
    if np.ndim(values) != 1:
        raise InvalidArgumentError(f"{what} should be a vector, got the shape {shapes.show(np.shape(values))}")
    if n is not None and len(values) != n:
        raise InvalidArgumentError(f"Got {len(values)} {what}, but there are {n} tensors; each needs one of its own")
    return [s.decode("utf-8", "surrogateescape") for s in values.tolist()]


# *** writing ***


def _save(format: str, ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., None]:
    kinds: tuple[DType, ...] = attrs["dtypes"]

    def kernel(prefix: Any, names: Any, specs: Any, *tensors: Any) -> None:
        path = checkpoints.check_prefix(_text(prefix, "prefix"))
        texts = _texts(names, len(kinds), "tensor_names")
        parts = _texts(specs, len(kinds), "shape_and_slices")
        pieces = [ManifestEntry.of(*given) for given in zip(texts, tensors, kinds, parts, strict=True)]
        checkpoints.write(path, pieces, format)

    return kernel


_SAVE = "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes"

op(
    "SaveV2",
    _SAVE,
    attrs={"dtypes": list_attr("type", minimum=1)},
    shape=nothing,
    stateful=functools.partial(_save, "tensorflow"),
    grad=NOT_DIFFERENTIABLE,
    facts=_FILES,
    doc="Writes tensors to a checkpoint in TensorFlow's format.",
)
op(
    "_SaveNative",
    _SAVE,
    attrs={"dtypes": list_attr("type", minimum=1)},
    shape=nothing,
    stateful=functools.partial(_save, "native"),
    grad=NOT_DIFFERENTIABLE,
    facts=_FILES,
    doc="Writes tensors to a checkpoint in headrace's format.",
)


def _merge(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., None]:
    def kernel(prefixes: Any, destination: Any) -> None:
        if np.ndim(prefixes) != 1:
            raise InvalidArgumentError(
                f"checkpoint_prefixes should be a vector, got the shape {shapes.show(np.shape(prefixes))}"
            )
        checkpoints.merge(
            _texts(prefixes, None, "checkpoint_prefixes"),
            _text(destination, "destination_prefix"),
            attrs["delete_old_dirs"],
            attrs["allow_missing_files"],
        )

    return kernel


op(
    "MergeV2Checkpoints",
    "checkpoint_prefixes: string, destination_prefix: string",
    attrs={"delete_old_dirs": True, "allow_missing_files": False},
    shape=nothing,
    stateful=_merge,
    grad=NOT_DIFFERENTIABLE,
    facts=_FILES,
    doc="Makes one checkpoint of several, of TensorFlow's V2 format or of headrace's.",
)


# *** reading ***


def _restored(reader: checkpoints.Reader, name: str, spec: str, dtype: DType) -> Callable[[], np.ndarray]:
    """Returns a function that reads one tensor, after a check that it can be read."""
    entry = reader.entries.get(name)
    if entry is None:
        reader.read(name)  # which may know more of why
        raise missing(name, reader.prefix, reader.entries)
    part: TensorSlice | None = None
    shape = entry.shape
    if spec:
        whole, part = parse_spec(spec)
        if whole != entry.shape:
            raise InvalidArgumentError(
                f"tensor_name = {name}; shape in shape_and_slice spec {list(whole)} does not match the shape stored in "
                f"checkpoint: {list(entry.shape)} ({reader.prefix})"
            )
        shape = part.shape_in(whole)
    if entry.dtype != dtype:
        raise InvalidArgumentError(
            f"tensor_name = {name}; expected dtype {dtype} does not equal original dtype {entry.dtype} "
            f"(checkpoint {reader.prefix})"
        )
    arrays.check_size(entry.shape if part is None else shape, dtype)
    return lambda: reader.read(name, part)


def _restore(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    kinds: tuple[DType, ...] = attrs["dtypes"]

    def kernel(prefix: Any, names: Any, specs: Any) -> tuple[np.ndarray, ...]:
        path = _text(prefix, "prefix")
        texts = _texts(names, len(kinds), "tensor_names")
        parts = _texts(specs, len(kinds), "shape_and_slices")
        reader = checkpoints.open(path)
        found = [_restored(reader, *given) for given in zip(texts, parts, kinds, strict=True)]
        return tuple([read() for read in found])

    return arrays.single(kernel, len(kinds))


def _restored_shapes(c: Inference) -> list[Shape]:
    """Shape rule: a tensor restored by a slice has the shape of a known slice."""
    specs = c.value(2)
    n = len(c.attrs["dtypes"])
    if specs is None or specs.shape != (n,):
        return [None] * n
    out: list[Shape] = []
    for spec in specs.tolist():
        try:
            whole, part = parse_spec(spec.decode("utf-8", "surrogateescape")) if spec else ((), None)
        except InvalidArgumentError as e:
            raise ValueError(str(e)) from None
        out.append(None if part is None else part.shape_in(whole))
    return out


op(
    "RestoreV2",
    "prefix: string, tensor_names: string, shape_and_slices: string",
    "tensors: dtypes",
    {"dtypes": list_attr("type", minimum=1)},
    shape=_restored_shapes,
    stateful=_restore,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="Reads tensors from a checkpoint, of either of TensorFlow's formats or of headrace's.",
)


# *** TensorFlow's first format ***


def _save_first(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., None]:
    write = _save("tensorflow-v1", ctx, {"dtypes": attrs["T"]})

    def kernel(filename: Any, names: Any, *tensors: Any) -> None:
        write(filename, names, np.array([b""] * len(tensors), object), *tensors)

    return kernel


def _save_slices(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., None]:
    return _save("tensorflow-v1", ctx, {"dtypes": attrs["T"]})


for _type, _slices, _kernel in (
    ("Save", "", _save_first), ("SaveSlices", "shapes_and_slices: string, ", _save_slices),
):  # fmt: skip
    op(
        _type,
        f"filename: string, tensor_names: string, {_slices}data: T",
        attrs={"T": list_attr("type", minimum=1)},
        shape=nothing,
        stateful=_kernel,
        grad=NOT_DIFFERENTIABLE,
        facts=_FILES,
        doc="Writes tensors to a checkpoint of TensorFlow's V1 format.",
    )


def _restore_one(ctx: Any, attrs: Mapping[str, Any]) -> Callable[..., np.ndarray]:
    def kernel(pattern: Any, name: Any, spec: Any = b"") -> np.ndarray:
        given = _text(name, "tensor_name"), _text(spec, "shape_and_slice"), attrs["dt"]
        return _restored(checkpoints.open(_text(pattern, "file_pattern")), *given)()

    return kernel


for _type, _slices in (("Restore", ""), ("RestoreSlice", ", shape_and_slice: string")):
    op(
        _type,
        f"file_pattern: string, tensor_name: string{_slices}",
        "tensor: dt",
        {"dt": type_attr(), "preferred_shard": int_attr(-1)},
        shape=lambda c: [None],
        stateful=_restore_one,
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="Reads a tensor from a checkpoint.",
        differs="It reads what RestoreV2 reads, whose prefix it takes; TensorFlow's reads files of the V1 format, by "
        "any pattern.",
    )


def _sharded_filename(basename: Any, shard: Any, num_shards: Any) -> Any:
    if np.ndim(basename) or np.ndim(shard) or np.ndim(num_shards):
        raise InvalidArgumentError("ShardedFilename takes scalars")
    name = basename.item() if isinstance(basename, np.ndarray) else basename
    return np.array(b"%s-%05d-of-%05d" % (name, int(shard), int(num_shards)), object)


op(
    "ShardedFilename",
    "basename: string, shard: int32, num_shards: int32",
    "filename: string",
    shape=lambda c: [()],
    kernel=lambda attrs: _sharded_filename,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    sample=lambda rng, dtype: [
        case(np.array(b"m", object), np.int32(1), np.int32(3), want=np.array(b"m-00001-of-00003", object))
    ],
    doc='The name of one of the files of a checkpoint: "basename-00001-of-00003".',
)


def _sharded_filespec(basename: Any, num_shards: Any) -> Any:
    if np.ndim(basename) or np.ndim(num_shards):
        raise InvalidArgumentError("ShardedFilespec takes scalars")
    name = basename.item() if isinstance(basename, np.ndarray) else basename
    return np.array(b"%s-?????-of-%05d" % (name, int(num_shards)), object)


op(
    "ShardedFilespec",
    "basename: string, num_shards: int32",
    "filename: string",
    shape=lambda c: [()],
    kernel=lambda attrs: _sharded_filespec,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    sample=lambda rng, dtype: [
        case(np.array(b"m", object), np.int32(3), want=np.array(b"m-?????-of-00003", object)),
    ],
    doc='The pattern of all names that ShardedFilename gives: "basename-?????-of-00003".',
)
