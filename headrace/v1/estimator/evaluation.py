"""One evaluation of a checkpoint: updates of metrics, and their values at the end."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.train.hooks import FinalOpsHook, SessionRunArgs, SessionRunHook
from headrace.v1 import monitored
from headrace.v1.logging import info, warn
from headrace.v1.summary import FileWriterCache

_STEP = "global_step"


class _StopAfterBatches(SessionRunHook):
    """Ends an evaluation after a number of batches."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def after_create_session(self, session: Any, coord: Any) -> None:
        """See `SessionRunHook.after_create_session`. A new session begins from the first batch."""
        self._count = 0

    def before_run(self, run_context: Any) -> SessionRunArgs | None:
        """See `SessionRunHook.before_run`."""
        return None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """See `SessionRunHook.after_run`."""
        self._count += 1
        if self._count >= self._batches:
            run_context.request_stop()


def evaluate_once(
    path: str | None,
    scaffold: Any,
    updates: Sequence[Any],
    values: Mapping[str, Any],
    steps: int | None,
    hooks: Sequence[Any],
    config: Any,
) -> dict[str, Any]:
    """Returns the values of metrics for a checkpoint.

    Args:
      path: the checkpoint. None: the variables have their initial values.
      scaffold: the scaffold.
      updates: operations that are run for each batch.
      values: tensors by name, evaluated at the end.
      steps: number of batches. None: until the input ends.
      hooks: hooks of the session.
      config: configuration of the session.
    """
    final = FinalOpsHook(dict(values))
    all_hooks = [*hooks, *([] if steps is None else [_StopAfterBatches(steps)]), final]
    creator = monitored.ChiefSessionCreator(scaffold, config=config, checkpoint_filename_with_path=path)
    info("Starting evaluation")
    with monitored.MonitoredSession(creator, all_hooks) as session:
        while not session.should_stop():
            session.run(list(updates))
    info("Finished evaluation")
    found: dict[str, Any] = dict(final.final_ops_values)
    return found


def write_results(folder: str, results: Mapping[str, Any], step: int, path: str | None) -> None:
    """Writes the results of an evaluation to the event file of a folder.

    Args:
      folder: the folder.
      results: values of metrics by name. Numbers, arrays and serialized summaries are written.
      step: the global step.
      path: the checkpoint, whose name is written too, or None.
    """
    from headrace import pb
    from headrace.v1.tensor_protos import make_tensor_proto

    info("Saving dict for global step %d: %s", step, ", ".join(f"{k} = {results[k]}" for k in sorted(results)))
    message = pb.Summary()
    for name in sorted(results):
        value = results[name]
        if name == _STEP:
            continue
        if value is None:
            warn("Skipping summary for %s, as it is None.", name)
        elif isinstance(value, (numbers.Real, np.number, np.bool_)):
            message.value.add(tag=name, simple_value=float(value))
        elif isinstance(value, bytes) and (found := _summary(value)) is not None:
            for i, one in enumerate(found.value):
                one.tag = f"{name}/{i}"
                message.value.append(one)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            message.value.add(tag=name, tensor=make_tensor_proto(value))
        else:
            warn("Skipping summary for %s, must be a number, np.ndarray or a serialized string of Summary.", name)
    writer = FileWriterCache.get(folder)
    writer.add_summary(message, step)
    if path:
        info("Saving 'checkpoint_path' summary for global step %d: %s", step, path)
        message = pb.Summary()
        one = message.value.add(tag="checkpoint_path", tensor=make_tensor_proto(path))
        one.metadata.plugin_data.plugin_name = "text"
        writer.add_summary(message, step)
    writer.flush()


def _summary(data: bytes) -> Any:
    """Returns the message of a serialized summary, or None."""
    from google.protobuf.message import DecodeError

    from headrace import pb

    try:
        return pb.Summary.FromString(data)
    except DecodeError:
        return None
