"""`hr.saved_model.save`: writes an object, its functions and its variables as a SavedModel of TensorFlow 2."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from headrace import tracebacks
from headrace.api import scopes
from headrace.errors import AlreadyExistsError, GraphError
from headrace.files import checkpoints, local
from headrace.interchange import saved_model
from headrace.saved_model.model import Model


@tracebacks.entry
def save(
    obj: Any,
    path: str | os.PathLike[str],
    signatures: Any = None,
    *,
    tags: Sequence[str] = ("serve",),
    overwrite: bool = False,
) -> None:
    """Writes an object with functions and variables as a SavedModel of TensorFlow 2.

    TensorFlow 2's `tf.saved_model.load` returns an object with the same attributes: functions under `hr.jit`, which
    take positional and keyword arguments and can be differentiated, variables, tables, and lists, dicts and objects of
    these. Each trace of a function is saved; a function with an `input_signature` need not have been called. Programs
    for TensorFlow 1 and servers load the signatures.

    Attributes of other kinds are not saved, as in TensorFlow, and a function without traces is left out with a warning.
    A tuple becomes a list. Variables that functions capture and that are no attributes are saved as the list
    `variables` of the root. Floating point tensors that functions capture become constants. The contents of a table are
    written as constants of the function that fills it, so the file of a vocabulary is not needed any more.

    The folder appears when it is complete.

    Args:
      obj: a function under `hr.jit`, a layer, a dict with text keys, or any object with attributes.
      path: the path of the folder.
      signatures: a function under `hr.jit` or one of its traces (`Function.lower`), for "serving_default", or a dict of
        them by name. Their arguments are tensors, and their results a tensor, a list or tuple of tensors or a dict of
        tensors with text keys. None: the function itself, or the object's `__call__`, or its only function with an
        `input_signature`, if it is of this kind.
      tags: the tags of the graph.
      overwrite: whether to replace an existing SavedModel. TensorFlow replaces the files in any folder.

    Raises:
      AlreadyExistsError: the folder is not empty, and `overwrite` is False or it has no SavedModel.
      GraphError: a function has an operation or an argument that a SavedModel cannot contain, or captures a resource
        that is not an attribute; a signature has no trace or several; or there is nothing to save.
      TypeError: `obj` or a signature is of another kind.

    Source: TensorFlow's `tf.saved_model.save`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> v = hr.Variable(2.0)
      >>> double = hr.jit(lambda x: x * v, input_signature=[hr.TensorSpec((None,))])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     hr.saved_model.save(double, os.path.join(folder, "double"))
      ...     sorted(os.listdir(os.path.join(folder, "double")))
      ['saved_model.pb', 'variables']
    """
    folder = os.path.abspath(os.fspath(path))
    _check_free(folder, overwrite)
    if not scopes.is_outside():
        raise GraphError(
            "hr.saved_model.save is called while a graph is built; call it outside of graphs and functions"
        )
    model = Model(obj, signatures, tags)
    temporary = f"{folder}.{os.urandom(8).hex()}.tmp"
    local.made_folder(temporary)
    try:
        with local.as_ours(temporary):
            checkpoints.write(saved_model.variables_path(temporary), model.values, format="tensorflow")
        saved_model.write(model.message, temporary)
        with local.as_ours(folder):
            _put(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_free(folder: str, overwrite: bool) -> None:
    if not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder)):
        return
    if not overwrite:
        raise AlreadyExistsError(
            f"{folder} exists and is not an empty folder; give another path, or overwrite=True to replace a SavedModel"
        )
    if not saved_model.is_there(folder):
        raise AlreadyExistsError(
            f"{folder} has no SavedModel, so overwrite=True does not replace it; give another path"
        )


def _put(temporary: str, folder: str) -> None:
    """Renames the complete folder; an existing one is removed afterwards."""
    old = f"{temporary}.old"
    if os.path.lexists(folder):
        os.rename(folder, old)
    try:
        os.rename(temporary, folder)
    except OSError:
        if os.path.lexists(old):
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


__all__ = ["save"]
