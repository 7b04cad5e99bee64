"""Inspection and partial restore of checkpoints.

A `Saver` restores all values that it saved, under their saved names, or fails. `restore` in this module is for changed
models, and for parts of a model that another model reuses. It restores the values that exist and fit, and reports the
others.
"""

from __future__ import annotations

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
from headrace.records import record
from headrace.train.saving import latest
from headrace.train.saving.saveables import key_of, slice_spec

if TYPE_CHECKING:
    import numpy as np

    from headrace.ir.graph import Operation

Rename: TypeAlias = "Mapping[str, str | None] | Callable[[str], str | None] | None"


class CheckpointReader:
    """Reader of a checkpoint. A tensor is read when it is requested.

    Args:
      path: prefix of a checkpoint, or a folder, whose newest checkpoint is read.

    Attributes:
      path: prefix of the checkpoint.

    Raises:
      NotFoundError: there is no checkpoint.
      DataLossError: the checkpoint is damaged.

    Source: TensorFlow's `tf.train.load_checkpoint` and `CheckpointReader`.

    Example:
      >>> import headrace as hr
      >>> import tempfile
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(3.0, name="v")
      ...     saver = hr.train.Saver()
      >>> with hr.Session(graph=g) as sess, tempfile.TemporaryDirectory() as folder:
      ...     sess.run(hr.variables_initializer([v]))
      ...     reader = hr.train.load_checkpoint(saver.save(sess, f"{folder}/model"))
      ...     value = reader.get_tensor("v")
      >>> value
      np.float32(3.0)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = prefix_of(path)
        self._reader = checkpoints.open(self.path)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shapes of the tensors, by name."""
        return {name: list(e.shape) for name, e in self._reader.entries.items()}

    def get_variable_to_dtype_map(self) -> dict[str, dtypes.DType]:
        """Returns the dtypes of the tensors, by name."""
        return {name: e.dtype for name, e in self._reader.entries.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether the checkpoint contains a tensor.

        Args:
          tensor_str: name of the tensor.
        """
        return tensor_str in self._reader.entries

    def get_tensor(self, tensor_str: str) -> np.ndarray | np.generic | bytes:
        """Reads a tensor.

        Args:
          tensor_str: name of the tensor.

        Returns:
          An array. A scalar is a numpy number, or bytes.

        Raises:
          NotFoundError: the checkpoint has no such tensor.
          DataLossError: the tensor is damaged.
        """
        array = self._reader.read(tensor_str)
        value: np.ndarray | np.generic | bytes = array[()] if array.shape == () else array
        return value

    def debug_string(self) -> str:
        """Returns the names, dtypes and shapes of the tensors, one per line."""
        return "\n".join(
            f"{name} (DT_{e.dtype.name.upper()}) [{','.join(map(str, e.shape))}]"
            for name, e in sorted(self._reader.entries.items())
        )


def prefix_of(path: str | os.PathLike[str]) -> str:
    """Returns the prefix of a checkpoint, or of the newest checkpoint of a folder.

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
    """Returns a reader of a checkpoint.

    Args:
      ckpt_dir_or_file: see `CheckpointReader`.

    Source: TensorFlow's `tf.train.load_checkpoint`.

    Example:
      >>> import headrace as hr
      >>> import tempfile
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(3.0, name="v")
      ...     saver = hr.train.Saver()
      >>> with hr.Session(graph=g) as sess, tempfile.TemporaryDirectory() as folder:
      ...     sess.run(hr.variables_initializer([v]))
      ...     reader = hr.train.load_checkpoint(saver.save(sess, f"{folder}/model"))
      ...     shapes = reader.get_variable_to_shape_map()
      >>> shapes
      {'v': []}
    """
    return CheckpointReader(ckpt_dir_or_file)


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Returns the names and shapes of the tensors of a checkpoint, sorted by name.

    Args:
      ckpt_dir_or_file: prefix of a checkpoint, or a folder, whose newest checkpoint is read.

    Raises:
      NotFoundError: there is no checkpoint.
      DataLossError: the checkpoint is damaged.

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
    """Reads one tensor of a checkpoint.

    Args:
      ckpt_dir_or_file: prefix of a checkpoint, or a folder, whose newest checkpoint is read.
      name: name of the tensor. For a variable, "v" and "v:0" are equivalent.

    Returns:
      An array. A scalar is a numpy number, or bytes.

    Raises:
      NotFoundError: there is no checkpoint, or no such tensor.
      DataLossError: the checkpoint is damaged.

    Source: TensorFlow's `tf.train.load_variable`.

    Example: see `list_variables`.

    Example:
      >>> import headrace as hr
      >>> import tempfile
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(3.0, name="v")
      ...     saver = hr.train.Saver()
      >>> with hr.Session(graph=g) as sess, tempfile.TemporaryDirectory() as folder:
      ...     sess.run(hr.variables_initializer([v]))
      ...     value = hr.train.load_variable(saver.save(sess, f"{folder}/model"), "v")
      >>> value
      np.float32(3.0)
    """
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


# *** partial restore ***


@record(frozen=True)
class Restored:
    """Report of `restore`.

    Attributes:
      path: prefix of the checkpoint.
      restored: the restored variables: variable name → name in the checkpoint.
      missing: the variables without a tensor in the checkpoint: variable name → name that was looked up.
      mismatched: the variables whose tensor has another dtype or shape: variable name → description of the difference.
      skipped: names of the variables that `rename` left out.
      unused: names of the tensors in the checkpoint that no variable requested.

    Example:
      >>> import headrace as hr
      >>> report = hr.train.Restored("model-7", {"w": "w"}, {"b": "b"}, {}, [], ["step"])
      >>> report.is_complete
      False
      >>> print(report)
      1 variables restored from 'model-7'
        b: there is no 'b' in it
        not asked for: step
    """

    path: str
    restored: dict[str, str]
    missing: dict[str, str]
    mismatched: dict[str, str]
    skipped: list[str]
    unused: list[str]

    @property
    def is_complete(self) -> bool:
        """Whether no variable is missing or mismatched."""
        return not self.missing and not self.mismatched

    def __str__(self) -> str:
        """Text of the report, with one line for each variable that was not restored."""
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
    """Restores the variables whose tensors in a checkpoint fit.

    All tensors are read before the first assignment. In a session all assignments are one run.

    Args:
      sess: the session. None: the variables are eager.
      path: prefix of a checkpoint, or a folder, whose newest checkpoint is read.
      variables: a list of variables, or a mapping from names in the checkpoint to variables. None: all variables of the
        session's graph.
      rename: names of the variables in the checkpoint, if they differ. Either a mapping from names, or from scopes that
        end in "/" (such as "new/" → "old/"; the longest match counts), or a function of the name. A result of None
        leaves the variable out.
      strict: whether a missing or mismatched tensor is an error. Then nothing is assigned.

    Returns:
      A report, which can be printed.

    Raises:
      NotFoundError: there is no such checkpoint; none of the variables is in it; or with `strict`, a tensor is missing.
      InvalidArgumentError: no variable can be restored, and a tensor has another dtype or shape; or with `strict`, any
        tensor has another dtype or shape.
      DataLossError: the checkpoint is damaged.
      ValueError: a variable belongs to a graph other than that of `sess`.

    Source: the purpose is that of TensorFlow's `tf.train.init_from_checkpoint`.

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
    assign(sess, found)
    return report


def _wanted(sess: Any, variables: Any) -> list[tuple[str, Variable]]:
    """Returns the variables to restore, with their names in the checkpoint before renaming."""
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


def assign(sess: Any, found: Iterable[tuple[Variable, Any]]) -> None:
    """Assigns values to variables, those of a graph in one run where it can.

    An initializer assigns its second input, which is fed. Variables with one tensor as initial value take turns.

    Args:
      sess: the session. None: the variables are eager.
      found: pairs of a variable and its value.

    Raises:
      GraphError: the initializer of a variable is no assignment.
    """
    left: list[tuple[Operation, Any]] = []
    for v, value in found:
        if v.graph is None:
            v.assign(value)
            continue
        init = v.initializer
        if len(init.inputs) < 2 or init.inputs[0] is not v.handle:
            raise GraphError(
                f"the initializer '{init.name}' of '{v.name}' is no assignment whose value could be fed; use a Saver"
            )
        left.append((init, value))
    while left:
        turn = {init.inputs[1]: (init, value) for init, value in reversed(left)}
        sess.run([init for init, _ in turn.values()], {t: value for t, (_, value) in turn.items()})
        left = [(init, value) for init, value in left if turn[init.inputs[1]][0] is not init]
