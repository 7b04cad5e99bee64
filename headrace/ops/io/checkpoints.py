"""Saving and restoring variables: what graphs with a `tf.train.Saver` have.

Such a graph can be read, run (but for these operations) and written again. Checkpoint files are not read or written
yet: SaveV2, RestoreV2 and MergeV2Checkpoints say so when they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, list_attr, op
from headrace.ir.rules import nothing

_FILES = Facts(effect="python", writes=True)


def _not_yet(type: str) -> Callable[[Any, Mapping[str, Any]], Callable[..., Any]]:
    def kernel(*inputs: Any) -> Any:
        raise UnimplementedError(
            f"{type}: checkpoint files cannot be read or written yet. Fetch the variables' values with session.run, "
            "and give them back by feeding what their initializers assign"
        )

    return lambda ctx, attrs: kernel


op(
    "SaveV2",
    "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes",
    attrs={"dtypes": list_attr("type", minimum=1)},
    shape=nothing,
    stateful=_not_yet("SaveV2"),
    grad=NOT_DIFFERENTIABLE,
    facts=_FILES,
    doc="Writes tensors to a checkpoint.",
)
op(
    "RestoreV2",
    "prefix: string, tensor_names: string, shape_and_slices: string",
    "tensors: dtypes",
    {"dtypes": list_attr("type", minimum=1)},
    shape=lambda c: [None for _ in c.attrs["dtypes"]],
    stateful=_not_yet("RestoreV2"),
    grad=NOT_DIFFERENTIABLE,
    facts=_FILES,
    doc="Reads tensors from a checkpoint.",
)
op(
    "MergeV2Checkpoints",
    "checkpoint_prefixes: string, destination_prefix: string",
    attrs={"delete_old_dirs": True, "allow_missing_files": False},
    shape=nothing,
    stateful=_not_yet("MergeV2Checkpoints"),
    grad=NOT_DIFFERENTIABLE,
    facts=_FILES,
    doc="Makes one checkpoint of several.",
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
    kernel=lambda xp, attrs: _sharded_filename,
    grad=NOT_DIFFERENTIABLE,
    sample=lambda rng, dtype: [
        case(np.array(b"m", object), np.int32(1), np.int32(3), want=np.array(b"m-00001-of-00003", object))
    ],
    doc='The name of one of the files of a checkpoint: "basename-00001-of-00003".',
)
