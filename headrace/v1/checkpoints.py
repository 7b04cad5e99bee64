"""TensorFlow 1's functions that inspect checkpoints and their folders."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from headrace import shapes
from headrace.api import scopes
from headrace.api.partitioned import parts_of
from headrace.errors import NotFoundError
from headrace.files import states
from headrace.files.slices import parse_spec
from headrace.train.saving import latest, restoring
from headrace.train.saving.latest import checkpoint_exists as checkpoint_exists
from headrace.train.saving.latest import get_checkpoint_mtimes as get_checkpoint_mtimes
from headrace.train.saving.latest import get_checkpoint_state as get_checkpoint_state
from headrace.train.saving.latest import latest_checkpoint as latest_checkpoint
from headrace.train.saving.latest import update_checkpoint_state as update_checkpoint_state
from headrace.train.saving.restoring import CheckpointReader
from headrace.train.saving.saveables import key_of as key_of
from headrace.train.saving.saveables import slice_spec
from headrace.v1.graph import get_default_graph, in_default_graph

_PAUSE: Final = 1.0  # seconds between two looks at a folder, TensorFlow's


def remove_checkpoint(
    checkpoint_prefix: str | os.PathLike[str], checkpoint_format_version: Any = 2, meta_graph_suffix: str = "meta"
) -> None:
    """Removes a checkpoint and the file with its graph, if they exist. See `headrace.train.remove_checkpoint`.

    Args:
      checkpoint_prefix: prefix of the checkpoint's files.
      checkpoint_format_version: accepted as in TensorFlow: the files of the prefix show the format.
      meta_graph_suffix: extension of the file with the graph.

    Source: TensorFlow's `tf.train.remove_checkpoint`.
    """
    latest.remove_checkpoint(checkpoint_prefix, meta_graph_suffix)


def generate_checkpoint_state_proto(
    save_dir: str | os.PathLike[str],
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> Any:
    """Returns the message of a folder's state file, a `CheckpointState`.

    Args:
      save_dir: the folder. If its path is relative, relative paths in the message begin at the folder.
      model_checkpoint_path: prefix of the newest checkpoint.
      all_model_checkpoint_paths: prefixes of all checkpoints, oldest first; the newest one is added.
      all_model_checkpoint_timestamps: times of writing of these checkpoints, in seconds since 1970.
      last_preserved_timestamp: time of writing of the last checkpoint that is kept forever.

    Raises:
      ValueError: the numbers of timestamps and paths differ.

    Source: TensorFlow's `tf.train.generate_checkpoint_state_proto`.

    Example:
      >>> from headrace.v1.checkpoints import generate_checkpoint_state_proto
      >>> list(generate_checkpoint_state_proto("/m", "/m/a-2", ["/m/a-1"]).all_model_checkpoint_paths)
      ['/m/a-1', '/m/a-2']
    """
    paths, times = all_model_checkpoint_paths or (), all_model_checkpoint_timestamps
    return states.state(os.fspath(save_dir), model_checkpoint_path, paths, times, last_preserved_timestamp)


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], Any] | None = None,
) -> Iterator[str]:
    """Yields the prefix of the newest checkpoint of a folder, then of new ones.

    Args:
      checkpoint_dir: the folder.
      min_interval_secs: least number of seconds between two checkpoints. Those in between are not yielded.
      timeout: longest wait in seconds for a new checkpoint. None: no limit.
      timeout_fn: function that is called after a timeout. If it returns a true value, the iterator ends; else it
        waits again. None: a timeout ends the iterator.

    Source: TensorFlow's `tf.train.checkpoints_iterator`.
    """
    known: str | None = None
    while True:
        new = _wait_for_new(checkpoint_dir, known, timeout)
        if new is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        start = time.monotonic()
        known = new
        yield new
        time.sleep(max(0.0, start + min_interval_secs - time.monotonic()))


def _wait_for_new(folder: str | os.PathLike[str], known: str | None, timeout: float | None) -> str | None:
    """Returns the newest checkpoint, once it is another one than `known`; None after the timeout."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        found = latest.latest_checkpoint(folder)
        if found is not None and found != known:
            return found
        if end is not None and time.monotonic() + _PAUSE > end:
            return None
        time.sleep(_PAUSE)


def NewCheckpointReader(filepattern: str) -> CheckpointReader:
    """Contents of a checkpoint. See `headrace.train.CheckpointReader`.

    Args:
      filepattern: its prefix.

    Source: TensorFlow's `tf.train.NewCheckpointReader`.
    """
    return CheckpointReader(filepattern)


def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Opens a checkpoint for reading. See `headrace.train.load_checkpoint`.

    Args:
      ckpt_dir_or_file: its prefix, or a folder, whose newest one is taken.

    Raises:
      ValueError: the folder has no checkpoint. NotFoundError: there are no files of that prefix.

    Source: TensorFlow's `tf.train.load_checkpoint`.
    """
    try:
        prefix = restoring.prefix_of(ckpt_dir_or_file)
    except NotFoundError as e:
        raise ValueError(str(e)) from e
    return restoring.load_checkpoint(prefix)


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Returns names and shapes of the variables of a checkpoint. See `load_checkpoint`.

    Source: TensorFlow's `tf.train.list_variables`.
    """
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> Any:
    """One tensor of a checkpoint, an array. For arguments and errors see `load_checkpoint`.

    Source: TensorFlow's `tf.train.load_variable`.
    """
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


@in_default_graph
def init_from_checkpoint(ckpt_dir_or_file: str | os.PathLike[str], assignment_map: Mapping[str, Any]) -> None:
    """Lets variables begin with values of a checkpoint: their initializers read it from now on.

    Args:
      ckpt_dir_or_file: the prefix of a checkpoint, or a folder, whose newest one is taken.
      assignment_map: name in the checkpoint → variable (or the list of the parts of one), or the name that
        `tf.get_variable` gave it; or scope in the checkpoint → scope ("old/" → "new/"; "/" is the outermost), for all
        variables in it.

    Raises:
      ValueError: the checkpoint has no such tensor, or one of another shape; a scope is mapped to no scope; a folder
        has no checkpoint.
      NotFoundError: there is no checkpoint.

    Source: TensorFlow's `tf.train.init_from_checkpoint`.
    """
    reader = load_checkpoint(ckpt_dir_or_file)
    known = reader.get_variable_to_shape_map()
    store = get_default_graph().variable_store
    for name, current in sorted(assignment_map.items()):
        given = _of_name(current) if isinstance(current, str) else current
        wholes = [(name, given)] if given is not None else _in_scope(name, current, store)
        pairs = [(key, v) for key, whole in wholes for v in parts_of(whole)]
        for key, v in pairs:
            if key not in known:
                raise ValueError(f"Tensor {key} ({v.name}) is not found in {reader.path} checkpoint {sorted(known)}")
            wanted = _whole_shape(v)
            if not shapes.fits(tuple(known[key]), wanted):
                raise ValueError(
                    f"Shape of variable {v.name} ({shapes.show(wanted)}) doesn't match with shape of tensor {key} "
                    f"({shapes.show(tuple(known[key]))}) from checkpoint reader."
                )
        for key, v in pairs:
            begin_with(v, reader.path, key)


def _of_name(name: str) -> Any:
    """Returns the variable that `get_variable` made under a name, or None."""
    graph = get_default_graph()
    return graph.variable_store.get(name, graph.partitioned_store.get(name))


def _whole_shape(v: Any) -> Any:
    spec = slice_spec(v)
    return parse_spec(spec)[0] if spec else v.shape


def _in_scope(name: str, current: Any, store: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The variables of a scope, each with its name in a scope of a checkpoint."""
    if not isinstance(current, str) or not current.endswith("/"):
        raise ValueError(f"assignment_map: there is no variable {current!r} (a scope ends with '/')")
    if not name.endswith("/"):
        raise ValueError(
            f"Assignment map with scope only name {current} should map to scope only {name}. Should be 'scope/': "
            "'other_scope/'."
        )
    inner, outer = current.removesuffix("/"), "" if name == "/" else name
    prefix = f"{inner}/" if inner else ""
    return [(outer + key_of(store[v])[len(prefix) :], store[v]) for v in sorted(store) if v.startswith(prefix)]


def begin_with(v: Any, prefix: str, key: str, changed: Callable[[Any], Any] | None = None) -> None:
    """Lets the initializer of a variable read a tensor of a checkpoint.

    Args:
      v: the variable.
      prefix: the prefix of the checkpoint.
      key: the name of the tensor.
      changed: function from the tensor to the initial value. None: the tensor itself.
    """
    with scopes.control_dependencies(None), scopes.name_scope("checkpoint_initializer"):
        b = scopes.builder()
        read = b.make("RestoreV2", (os.fsencode(prefix), [key], [slice_spec(v)]), {"dtypes": (v.dtype.base,)})
        if changed is not None:
            read = changed(read)
        if v.handle.dtype.is_ref:
            made = b.make("Assign", (v.handle, read), {}).op
        else:
            made = b.make("AssignVariableOp", (v.handle, read), {"dtype": v.dtype, "validate_shape": False})
    vars(v).update(_initializer=made, _initial_value=read, _first=read)
