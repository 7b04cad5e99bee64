"""Inspection and partial restore of checkpoints.

A `Saver` restores all values that it saved, under their saved names, or fails. `restore` in this module is for changed
models, and for parts of a model that another model reuses. It restores the values that exist and fit, and reports the
others.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import dtypes, shapes
from headrace.api import scopes
from headrace.api.partitioned import PartitionedVariable, parts_of
from headrace.api.variable import Variable
from headrace.errors import GraphError, InvalidArgumentError, NotFoundError
from headrace.files import checkpoints
from headrace.files.slices import parse_spec
from headrace.train.saving import latest
from headrace.train.saving.saveables import key_of, slice_spec

if TYPE_CHECKING:
    import numpy as np

Rename: TypeAlias = "Mapping[str, str | None] | Callable[[str], str | None] | None"


class CheckpointReader:
    """What is in a checkpoint: names, shapes, dtypes, and tensors, which are read when they are asked for.

    Args:
      path: the prefix of a checkpoint, or a folder, whose newest one is taken.

    Raises:
      NotFoundError: there is none. DataLossError: it is damaged.

    Source: TensorFlow's `tf.train.load_checkpoint` and `CheckpointReader`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = prefix_of(path)
        self._reader = checkpoints.open(self.path)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shape of each tensor, by name."""
        return {name: list(e.shape) for name, e in self._reader.entries.items()}

    def get_variable_to_dtype_map(self) -> dict[str, dtypes.DType]:
        """The dtype of each tensor, by name."""
        return {name: e.dtype for name, e in self._reader.entries.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether there is a tensor of this name."""
        return tensor_str in self._reader.entries

    def get_tensor(self, tensor_str: str) -> np.ndarray | np.generic | bytes:
        """The tensor of this name: an array; a number, or bytes, if it is a scalar.

        Raises:
          NotFoundError: there is none. DataLossError: it is damaged.
        """
        array = self._reader.read(tensor_str)
        value: np.ndarray | np.generic | bytes = array[()] if array.shape == () else array
        return value

    def debug_string(self) -> str:
        """Names, dtypes and shapes, one tensor a line."""
        return "\n".join(
            f"{name} (DT_{e.dtype.name.upper()}) [{','.join(map(str, e.shape))}]"
            for name, e in sorted(self._reader.entries.items())
        )


def prefix_of(path: str | os.PathLike[str]) -> str:
    """The prefix of a checkpoint, given it or a folder.

    Raises:
      NotFoundError: the folder has no checkpoint.
    """
    prefix = os.fspath(path)
    if not os.path.isdir(prefix) or latest.checkpoint_exists(prefix):
        return prefix
    found = latest.latest_checkpoint(prefix)
    if found is None:
        raise NotFoundError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {prefix!r}")
    return found


def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """What is in a checkpoint. See `CheckpointReader`.

    Source: TensorFlow's `tf.train.load_checkpoint`.
    """
    return CheckpointReader(ckpt_dir_or_file)


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """The names and shapes of what is in a checkpoint, sorted by name.

    Args:
      ckpt_dir_or_file: its prefix, or a folder, whose newest one is taken.

    Raises:
      NotFoundError: there is none. DataLossError: it is damaged.

    Source: TensorFlow's `tf.train.list_variables`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = hr.train.save(os.path.join(folder, "m"), {"w": hr.ones((1, 2)), "step": 3})
      ...     hr.train.list_variables(path), hr.train.load_variable(path, "step")
      ([('step', []), ('w', [1, 2])], np.int32(3))
    """
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> Any:
    """One tensor of a checkpoint: an array, or a number or bytes if it is a scalar.

    Args:
      ckpt_dir_or_file: its prefix, or a folder, whose newest one is taken.
      name: of the tensor; of a variable "v" or "v:0".

    Raises:
      NotFoundError: there is none. DataLossError: it is damaged.

    Source: TensorFlow's `tf.train.load_variable`.

    Example: see `list_variables`.
    """
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


# *** taking what fits ***


@dataclasses.dataclass(frozen=True)
class Restored:
    """What `restore` did.

    Attributes:
      path: the prefix of the checkpoint.
      restored: of each variable that has a new value, by its name: the name in the checkpoint.
      missing: of each variable whose tensor is not in the checkpoint: the name that was looked for.
      mismatched: of each variable whose tensor has another dtype or shape: what they are.
      skipped: the variables that `rename` left out.
      unused: the names in the checkpoint that no variable asked for.
    """

    path: str
    restored: dict[str, str]
    missing: dict[str, str]
    mismatched: dict[str, str]
    skipped: list[str]
    unused: list[str]

    @property
    def is_complete(self) -> bool:
        """Whether all variables that were to have a value have it."""
        return not self.missing and not self.mismatched

    def __str__(self) -> str:
        """What to show a person: one line for each variable that was not restored."""
        lines = [f"{len(self.restored)} variables restored from {self.path!r}"]
        lines += [f"  {v}: there is no {key!r} in it" for v, key in self.missing.items()]
        lines += [f"  {v}: {why}" for v, why in self.mismatched.items()]
        if self.unused:
            lines.append(f"  not asked for: {', '.join(self.unused)}")
        return "\n".join(lines)


def restore(
    sess: Any,
    path: str | os.PathLike[str],
    variables: Any = None,
    *,
    rename: Rename = None,
    strict: bool = False,
) -> Restored:
    """Gives variables the values that a checkpoint has for them, as far as it has any that fit.

    Everything is read before anything is assigned, and in a session all of it is assigned in one run.

    Args:
      sess: the session; None for variables outside of graphs.
      path: the prefix of a checkpoint, or a folder, whose newest one is taken.
      variables: a list of variables, or a mapping from names in the checkpoint to variables; None: all variables of the
        session's graph.
      rename: what a variable is called in the checkpoint, if not by its own name: a mapping from names, or from scopes
        ("new/" → "old/"; the longest that fits counts), or a function of the name. None as a name leaves it out.
      strict: whether it is an error if a variable's tensor is missing or does not fit; then nothing is assigned.

    Returns:
      A report, which can be printed.

    Raises:
      NotFoundError: there is no such checkpoint; none of the variables is in it; with `strict`, a tensor is missing.
      InvalidArgumentError: nothing can be restored, and a tensor has another dtype or shape; with `strict`, any has.
      DataLossError: it is damaged.
      ValueError: variables of a graph without a session of it.

    Source: what TensorFlow's `tf.train.init_from_checkpoint` is for.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> w, b = hr.Variable([0.0, 0.0], name="new/w"), hr.Variable(7.0, name="new/b")
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = hr.train.save(os.path.join(folder, "m"), {"old/w": hr.constant([1.0, 2.0]), "step": 3})
      ...     report = hr.train.restore(None, path, [w, b], rename={"new/": "old/"})
      >>> report.restored, report.missing, report.unused
      ({'new/w': 'old/w'}, {'new/b': 'old/b'}, ['step'])
      >>> w.numpy()
      array([1., 2.], dtype=float32)
    """
    wanted = _wanted(sess, variables)
    prefix = prefix_of(path)
    reader = checkpoints.open(prefix)
    restored: dict[str, str] = {}
    missing: dict[str, str] = {}
    mismatched: dict[str, str] = {}
    skipped: list[str] = []
    found: list[tuple[Variable, Any]] = []
    for given, v in wanted:
        name = v.name.removesuffix(":0")
        spec = slice_spec(v)
        whole, part = parse_spec(spec) if spec else (v.shape, None)
        key = _renamed(given, rename)
        entry = None if key is None else reader.entries.get(key)
        if key is None:
            skipped.append(name)
        elif entry is None:
            missing[name] = key
        elif entry.dtype is not v.dtype.base or not shapes.fits(tuple(entry.shape), whole):
            mismatched[name] = (
                f"{key!r} is {entry.dtype.name}{shapes.show(tuple(entry.shape))} in the checkpoint, and the variable "
                f"{v.dtype.base.name}{shapes.show(whole)}"
            )
        else:
            restored[name] = key
            found.append((v, reader.read(key, part)))
    used = set(restored.values())
    unused = sorted(name for name in reader.entries if name not in used)
    report = Restored(
        prefix, {} if strict and (missing or mismatched) else restored, missing, mismatched, skipped, unused
    )
    if not report.is_complete and (strict or not restored):
        is_absent = bool(missing) if strict else not mismatched
        raise (NotFoundError if is_absent else InvalidArgumentError)(f"nothing was restored: {report}")
    _assign(sess, found)
    return report


def _wanted(sess: Any, variables: Any) -> list[tuple[str, Variable]]:
    """The variables to restore, each with its name in the checkpoint before it is renamed."""
    if variables is None:
        graph = getattr(sess, "graph", None)
        if not isinstance(graph, scopes.Graph):
            raise ValueError("without a session of a graph there are no variables to restore: give variables=")
        variables = graph.variables
    if isinstance(variables, (Variable, PartitionedVariable)):
        variables = parts_of(variables)
    items: Iterable[tuple[Any, Any]]
    items = variables.items() if isinstance(variables, Mapping) else [(None, v) for v in variables]
    out = []
    for name, v in ((name, v) for name, given in items for v in parts_of(given)):
        if not isinstance(v, Variable):
            raise TypeError(f"variables must be variables, got {v!r} ({type(v).__name__})")
        if v.graph is not None and getattr(sess, "graph", None) is not v.graph:
            raise ValueError(f"the variable '{v.name}' is in {v.graph!r}: give a session of that graph, not {sess!r}")
        out.append((key_of(v) if name is None else str(name), v))
    return out


def _renamed(name: str, rename: Rename) -> str | None:
    if rename is None:
        return name
    if callable(rename):
        return rename(name)
    if name in rename:
        return rename[name]
    scopes_ = [s for s in rename if s.endswith("/") and name.startswith(s)]
    if not scopes_:
        return name
    longest = max(scopes_, key=len)
    new = rename[longest]
    return None if new is None else new + name[len(longest) :]


def _assign(sess: Any, found: list[tuple[Variable, Any]]) -> None:
    inits, feeds = [], {}
    for v, value in found:
        if v.graph is None:
            v.assign(value)
            continue
        init = v.initializer
        if len(init.inputs) < 2 or init.inputs[0] is not v.handle:
            raise GraphError(
                f"the initializer '{init.name}' of '{v.name}' is no assignment whose value could be fed; use a Saver"
            )
        inits.append(init)
        feeds[init.inputs[1]] = value
    if inits:
        sess.run(inits, feeds)
