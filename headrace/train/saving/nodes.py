"""The operations of a saver: write, read and assign.

Saving and restoring are runs of the graph. A saver adds these nodes to it, under TensorFlow's names, once:

    save/Const               the prefix of the checkpoint's files, which is fed
    save/SaveV2              writes the tensors under their names
    save/control_dependency  the prefix after all writes; the fetch of a save
    save/RestoreV2           reads tensors by their names
    save/AssignVariableOp    one for each variable
    save/restore_all         waits for all assignments; the target of a restore

A sharded saver has a SaveV2 for each device with saved values, which writes into a folder next to the prefix.
MergeV2Checkpoints combines these files into one checkpoint and removes the folder. (TensorFlow's first format has
SaveSlices and no merge: the prefix is the pattern of the file names.) All of these operations are outside of the order
of stateful operations of an `hr.Graph`, so saving does not run a training step first.

Source: TensorFlow's `BaseSaverBuilder`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headrace import dtypes, nest, shapes
from headrace.api import grouping, scopes
from headrace.files import checkpoints
from headrace.ir import walk
from headrace.ir.graph import Operation, Tensor
from headrace.ir.infer import constant_value
from headrace.train.saving.saveables import Saveable

FORMATS: Final = {"native": "_SaveNative", "tensorflow": "SaveV2", "tensorflow-v1": "SaveSlices"}  # to op types


class Nodes(NamedTuple):
    """Tensors and operation of a saver that a run feeds, fetches or runs.

    Attributes:
      filename: prefix of the files, a string scalar that is fed.
      save: the same prefix, available when all is written.
      restore: operation that restores all variables.
    """

    filename: Tensor
    save: Tensor
    restore: Operation


def add_nodes(
    saveables: Sequence[Saveable],
    *,
    format: str,
    name: str | None = None,
    filename: str | None = None,
    reshape: bool = False,
    sharded: bool = False,
    sequentially: bool = False,
) -> Nodes:
    """Adds the operations of a saver to the current graph.

    Args:
      saveables: the objects to save; at least one.
      format: a key of `FORMATS`.
      name: name of the scope of the operations. None: "save".
      filename: default of the prefix. None: "model".
      reshape: whether restored tensors are reshaped to the static shapes of their variables.
      sharded: whether each device writes its own variables.
      sequentially: whether variables are restored one after the other.

    Returns:
      The tensors and the operation for runs.
    """
    b = scopes.graph_builder("a Saver")
    with (
        scopes.entered(dataclasses.replace(b, control_inputs=(), is_ordered=False, colocate=())),
        scopes.name_scope(name, "save"),
    ):
        inner = scopes.builder()
        prefix: Tensor = inner.make("PlaceholderWithDefault", (filename or "model",), {"shape": ()}, "filename")
        prefix = inner.make("PlaceholderWithDefault", (prefix,), {"shape": ()}, "Const")
        save = (_save_in_shards if sharded else _save)(prefix, saveables, FORMATS[format])
        assigns: list[Operation] = []
        for group in _by_device(saveables) if sharded else [saveables]:
            assigns.extend(_restore(prefix, group, reshape, assigns, sequentially))
        restore = grouping.group(*assigns, name="restore_all")
        assert restore is not None
        return Nodes(prefix, save, restore)


def mismatches(restore: Operation, prefix: str) -> list[str]:
    """Returns the shape mismatches between variables and a checkpoint, one text for each.

    Args:
      restore: an operation whose assignments read a checkpoint.
      prefix: prefix of the checkpoint.

    Raises:
      DataLossError: the checkpoint is damaged.
    """
    entries = checkpoints.open(prefix).entries
    out = []
    for op in sorted(walk.reachable([restore]), key=lambda op: op.id):
        if op.type not in ("Assign", "AssignVariableOp"):
            continue
        variable, value = op.inputs
        wanted = variable.handle[1] if variable.handle is not None else variable.shape
        while value.op.type == "Identity":
            value = value.op.inputs[0]
        if value.op.type != "RestoreV2":  # of a Reshape, the shape may differ
            continue
        names, slices = (constant_value(t) for t in value.op.inputs[1:])
        every = (len(value.op.outputs),)
        if names is None or slices is None or not names.shape == slices.shape == every or slices[value.index]:
            continue  # the kernel refuses arrays of other shapes
        key = names[value.index].decode("utf-8", "surrogateescape")
        entry = entries.get(key)
        if entry is not None and not shapes.fits(tuple(entry.shape), wanted):
            out.append(
                f"variable '{variable.op.name}' has the shape {shapes.show(wanted)}, and the tensor {key!r} in the "
                f"checkpoint {shapes.show(tuple(entry.shape))}"
            )
    return out


def _save(prefix: Tensor, saveables: Sequence[Saveable], type: str) -> Tensor:
    written: Tensor = grouping.with_dependencies([_write(prefix, saveables, type)], prefix)
    return written


def _write(prefix: Tensor, saveables: Sequence[Saveable], type: str) -> Operation:
    specs = _specs(saveables)
    tensors = [_tensor_of(s) for s in specs]
    attrs = {"T" if type == FORMATS["tensorflow-v1"] else "dtypes": tuple(t.dtype.base for t in tensors)}
    b = scopes.builder()
    made: Operation = b.make(type, (prefix, [s.name for s in specs], [s.slice_spec for s in specs], tensors), attrs)
    return made


def _save_in_shards(prefix: Tensor, saveables: Sequence[Saveable], type: str) -> Tensor:
    b = scopes.builder()
    groups = _by_device(saveables)
    is_merged = type != FORMATS["tensorflow-v1"]
    base = b.make("StringJoin", ([prefix, "_temp/part"],), {}) if is_merged else prefix
    n = b.const(len(groups), dtypes.int32, "num_shards")
    parts, done = [], []
    for i, group in enumerate(groups):
        with scopes.device(_device_of(group[0])):
            part = scopes.builder().make("ShardedFilename", (base, i, n), {})
            parts.append(part)
            done.append(grouping.with_dependencies([_write(part, group, type)], part))
    with scopes.control_dependencies(done):
        b = scopes.builder()
        if not is_merged:
            pattern: Tensor = b.make("ShardedFilespec", (prefix, n), {})
            return pattern
        merged = b.make("MergeV2Checkpoints", (parts, prefix), {"delete_old_dirs": True})
        whole: Tensor = b.after(merged).Identity(prefix)
        return whole


def _restore(
    prefix: Tensor, saveables: Sequence[Saveable], reshape: bool, before: Sequence[Operation], sequentially: bool
) -> list[Operation]:
    specs = _specs(saveables)
    attrs = {"dtypes": tuple(dtypes.as_dtype(s.dtype).base for s in specs)}
    b = scopes.builder()
    read = b.make("RestoreV2", (prefix, [s.name for s in specs], [s.slice_spec for s in specs]), attrs)
    left = nest.as_list(read)
    out: list[Operation] = []
    for saveable in saveables:
        n = len(saveable.specs)
        tensors, left = left[:n], left[n:]
        wanted = _shapes_of(saveable) if reshape else None
        last = [*before, *out][-1:] if sequentially else []
        with scopes.control_dependencies(last):
            made = saveable.restore(tensors, wanted)
        out.append(made if isinstance(made, Operation) else made.op)
    return out


def _shapes_of(saveable: Saveable) -> list[Any] | None:
    """Returns the shapes to which restored tensors are reshaped; None if they are not known."""
    found = [_tensor_of(s).shape for s in saveable.specs]
    return found if all(map(shapes.is_full, found)) else None


def _tensor_of(spec: Any) -> Tensor:
    tensor = spec.tensor
    made: Tensor = tensor() if callable(tensor) else tensor
    return made


def _specs(saveables: Sequence[Saveable]) -> list[Any]:
    return [spec for saveable in saveables for spec in saveable.specs]


def _device_of(saveable: Saveable) -> str:
    return str(_tensor_of(saveable.specs[0]).device)


def _by_device(saveables: Sequence[Saveable]) -> list[list[Saveable]]:
    groups: dict[str, list[Saveable]] = {}
    for s in saveables:
        groups.setdefault(_device_of(s), []).append(s)
    return [groups[device] for device in sorted(groups)]
