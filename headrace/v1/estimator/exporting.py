"""SavedModels of estimators: folders with a number for each, signatures, and further files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headrace import nest
from headrace.ir.graph import Operation
from headrace.ir.tensor_type import Tensor
from headrace.v1 import gfile
from headrace.v1.estimator.export_outputs import EvalOutput, TrainOutput
from headrace.v1.estimator.modes import ModeKeys
from headrace.v1.estimator.spec import DEFAULT_SIGNATURE
from headrace.v1.logging import info, warn
from headrace.v1.saved_model import signature_def_utils, tag_constants
from headrace.v1.saved_model.tensor_infos import get_tensor_from_tensor_info

if TYPE_CHECKING:
    from headrace.pb import SignatureDef

#: Modes with the tags of their graphs, in the order in which they are exported. The first saves the variables.
TAGS: Final = {ModeKeys.TRAIN: tag_constants.TRAINING, ModeKeys.EVAL: "eval", ModeKeys.PREDICT: tag_constants.SERVING}

#: Collection with the training step of a graph.
TRAIN_OP: Final = "saved_model_train_op"

_EXTRA: Final = "assets.extra"


@contextmanager
def numbered_folder(base: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Context in which a new folder is written.

    Its name is the time in seconds, or the next second without a folder. Until the end of the context it has the prefix
    "temp-", so that servers do not see it. An exception deletes it.

    Args:
      base: the folder in which it is.

    Yields:
      The path to write to, and the path at the end.
    """
    parent, stamp = os.fsdecode(base), int(time.time())
    while any(os.path.lexists(os.path.join(parent, f"{prefix}{stamp}")) for prefix in ("", "temp-")):
        stamp += 1
    path, final = os.path.join(parent, f"temp-{stamp}"), os.path.join(parent, str(stamp))
    try:
        yield path, final
        gfile.Rename(path, final)
    except BaseException:
        if gfile.IsDirectory(path):
            gfile.DeleteRecursively(path)
        raise


def add_extra_files(folder: str, files: Mapping[str, str] | None) -> None:
    """Copies files into the folder "assets.extra" of a SavedModel.

    Args:
      folder: the folder of the SavedModel.
      files: paths of the copies, relative to "assets.extra" -> paths of the files.

    Raises:
      ValueError: a copy would be outside of the folder.
    """
    for name, source in (files or {}).items():
        relative = os.path.normpath(os.fsdecode(name))
        if os.path.isabs(relative) or relative.split(os.sep)[0] in (os.pardir, os.curdir):
            raise ValueError(f"assets_extra has the key {name!r}: expected the path of a file below {_EXTRA}")
        path = os.path.join(folder, _EXTRA, relative)
        gfile.MakeDirs(os.path.dirname(path))
        gfile.Copy(source, path)


def outputs_of(spec: Any, mode: str) -> dict[str, Any]:
    """Returns the outputs of a model's signatures by name.

    Args:
      spec: the `EstimatorSpec`.
      mode: a key of `ModeKeys`.
    """
    if mode == ModeKeys.PREDICT:
        found: dict[str, Any] = spec.export_outputs
        return found
    kind = TrainOutput if mode == ModeKeys.TRAIN else EvalOutput
    return {mode: kind(spec.loss, spec.predictions, spec.eval_metric_ops)}


def signatures(receiver: Any, outputs: Mapping[str, Any], mode: str) -> dict[str, SignatureDef]:
    """Returns the signatures of a model that a server can answer, by name.

    Args:
      receiver: result of the function that makes the placeholders. Each group of alternative tensors makes a signature
        `GROUP:NAME` of each output.
      outputs: `ExportOutput`s by name.
      mode: a key of `ModeKeys`. Signatures for training and evaluation need no server.
    """
    groups = {"": receiver.receiver_tensors}
    for name, group in (getattr(receiver, "receiver_tensors_alternatives", None) or {}).items():
        groups[f"{name or 'None'}:"] = group
    found: dict[str, SignatureDef] = {}
    excluded = {}
    for prefix, fed in groups.items():
        for key, output in outputs.items():
            name = f"{prefix}{key or 'None'}"
            try:
                signature = output.as_signature_def(fed)
                _check_fed(fed, signature)
            except ValueError as e:
                excluded[name] = str(e)
            else:
                found[name] = signature
    _report(found, excluded)
    if mode == ModeKeys.PREDICT:
        found = {name: x for name, x in found.items() if signature_def_utils.is_valid_signature(x)}
    return found


def _check_fed(fed: Mapping[str, Any], signature: SignatureDef) -> None:
    """Checks that the outputs of a signature need no other placeholder than its inputs.

    Raises:
      ValueError: they need another one.
    """
    inputs = _tensors(fed.values())
    outputs = _tensors([get_tensor_from_tensor_info(x, inputs[0].graph) for x in signature.outputs.values()])
    # operation -> one that reads it, or None for that of an output
    readers: dict[Operation, Operation | None] = {x.op: None for x in outputs if x not in inputs}
    todo = list(readers)
    while todo:
        op = todo.pop()
        if op.type == "Placeholder":
            raise ValueError(
                f"The signature's input tensors {[x.name for x in inputs]} are insufficient to compute its output keys "
                f"{list(signature.outputs)} (respectively, tensors {[x.name for x in outputs]}) because of the "
                f"dependency on `{op.name}` which is not given as a signature input, as illustrated by the following "
                f"dependency path: {_path(op, readers)}"
            )
        for x in op.inputs:
            if x not in inputs and x.op not in readers:
                readers[x.op] = op
                todo.append(x.op)


def _path(op: Operation | None, readers: Mapping[Operation, Operation | None]) -> str:
    """Names of the operations from `op` to one of an output."""
    names = []
    while op is not None:
        names.append(op.name)
        op = readers[op]
    return " -> ".join(names)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    return [x for x in nest.flatten(list(values)) if isinstance(x, Tensor)]


def _report(found: Mapping[str, SignatureDef], excluded: Mapping[str, str]) -> None:
    for kind in sorted({x.method_name for x in found.values()}):
        info("Signatures INCLUDED in export for %s: %s", kind, [n for n, x in found.items() if x.method_name == kind])
    if excluded:
        info("Signatures EXCLUDED from export because they cannot be served via TensorFlow Serving APIs:")
    for name, text in excluded.items():
        info("%r : %s", name, text)
    if not found:
        warn("Export includes no signatures!")
    elif DEFAULT_SIGNATURE not in found:
        warn("Export includes no default signature!")
