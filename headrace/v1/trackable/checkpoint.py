"""`tf.train.Checkpoint`: values of objects in a checkpoint with the graph of the objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api.variable import Variable
from headrace.errors import InvalidArgumentError
from headrace.files import checkpoints, commit
from headrace.files.checkpoints import Reader
from headrace.interchange.object_graphs import OBJECT_GRAPH, read_graph
from headrace.train.saving import latest
from headrace.train.saving.restoring import assign, prefix_of
from headrace.train.saving.saveables import key_of
from headrace.v1.compat import as_bytes
from headrace.v1.graph import in_default_graph
from headrace.v1.session import get_default_session
from headrace.v1.trackable import object_graph, sharding
from headrace.v1.trackable.object_graph import Matched, Objects, PythonState, Root
from headrace.v1.variables import Variable as GraphVariable

_COUNTER = "save_counter"


class CheckpointOptions:
    """Options of `Checkpoint` and `CheckpointManager`.

    Args:
      experimental_io_device, experimental_enable_async_checkpoint, experimental_write_callbacks, enable_async,
        experimental_skip_slot_variables: accepted as in TensorFlow, without effect. Files are written by this process,
        before `save` returns.
      experimental_sharding_callback: a `tf.train.experimental.ShardingCallback`, which divides a checkpoint into files.
        None: one file.

    Raises:
      ValueError: the callback is none.

    Source: TensorFlow's `tf.train.CheckpointOptions`.
    """

    def __init__(
        self,
        experimental_io_device: str | None = None,
        experimental_enable_async_checkpoint: bool = False,
        experimental_write_callbacks: Any = None,
        enable_async: bool = False,
        experimental_skip_slot_variables: bool = False,
        experimental_sharding_callback: Any = None,
    ) -> None:
        if experimental_sharding_callback is not None and not isinstance(
            experimental_sharding_callback, sharding.ShardingCallback
        ):
            raise ValueError(
                "The experimental_sharding_callback checkpoint option must be of type ShardingCallback. The option "
                f"provided was of type {type(experimental_sharding_callback)}."
            )
        self.experimental_io_device = experimental_io_device
        self.enable_async = experimental_enable_async_checkpoint or enable_async
        self.experimental_enable_async_checkpoint = self.enable_async
        self.experimental_write_callbacks = experimental_write_callbacks
        self.experimental_skip_slot_variables = experimental_skip_slot_variables
        self.experimental_sharding_callback = experimental_sharding_callback


class Checkpoint(Root):
    """Group of objects that are saved and restored by the paths of their attributes.

    Objects are variables, `tf.Module`s, layers, optimizers of `tf.train`, lists, tuples and dicts of them, other
    checkpoints and `PythonState`s. The files are TensorFlow's.

    Args:
      **kwargs: the objects by name. They become attributes.

    Raises:
      ValueError: an object cannot be saved.

    Source: TensorFlow's `tf.train.Checkpoint`.

    Example:
      >>> import headrace.v1 as tf
      >>> import tempfile
      >>> with tf.Graph().as_default(), tf.Session() as sess, tempfile.TemporaryDirectory() as folder:
      ...     v = tf.Variable(2.0)
      ...     checkpoint = tf.train.Checkpoint(v=v)
      ...     sess.run(v.initializer)
      ...     path = checkpoint.save(f"{folder}/m", session=sess)
      ...     sess.run(v.assign(5.0).op)
      ...     checkpoint.restore(path).assert_consumed().run_restore_ops(sess)
      ...     sess.run(v), tf.train.latest_checkpoint(folder) == path
      (np.float32(2.0), True)
    """

    def __init__(self, **kwargs: Any) -> None:
        self._save_counter: Any = None
        self._names: list[str] = []
        for name, value in sorted(kwargs.items()):
            if not object_graph.is_trackable(value):
                raise ValueError(
                    "`Checkpoint` was expecting a trackable object (an object derived from `Trackable`), got "
                    f"{value!r}. If you believe this object should be trackable (i.e. it is part of the TensorFlow "
                    "Python API and manages state), please open an issue."
                )
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_") and object_graph.is_trackable(value) and name not in self._names:
            self._names.append(name)

    def children(self) -> dict[str, Any]:
        """See `Root.children`."""
        found = {name: getattr(self, name) for name in self._names if hasattr(self, name)}
        return found | ({} if self._save_counter is None else {_COUNTER: self._save_counter})

    @property
    def save_counter(self) -> Any:
        """Variable with the number of calls of `save`, a part of each checkpoint."""
        self._make_counter()
        return self._save_counter

    @in_default_graph
    def _make_counter(self) -> bool:
        """Creates the variable of the counter; returns False if there is one."""
        if self._save_counter is not None:
            return False
        self._save_counter = GraphVariable(0, trainable=False, name=_COUNTER, dtype=dtypes.int64)
        return True

    def write(
        self, file_prefix: str | os.PathLike[str], session: Any = None, options: CheckpointOptions | None = None
    ) -> str:
        """Writes a checkpoint, and neither counts it nor lists it in the state file.

        Args:
          file_prefix: the prefix of its files.
          session: the session with the values. None: the default session.
          options: a `CheckpointOptions`, of which the division into shards has an effect.

        Returns:
          The prefix.

        Raises:
          RuntimeError: a variable belongs to a graph, and there is no session; or the shards are not the tensors.
        """
        objects = Objects(self)
        variables = [(i, x) for i, x in enumerate(objects.nodes) if isinstance(x, Variable)]
        values = _values([v for _, v in variables], session)
        tensors = {objects.key(i): value for (i, _), value in zip(variables, values, strict=True)}
        of = {objects.key(i): x for i, x in enumerate(objects.nodes) if isinstance(x, (Variable, PythonState))}
        for i, x in enumerate(objects.nodes):
            if isinstance(x, PythonState):
                tensors[objects.key(i)] = np.array(as_bytes(x.serialize()), object)
        tensors[OBJECT_GRAPH] = np.array(objects.message().SerializeToString(), object)
        prefix = os.fspath(file_prefix)
        commit.ready(prefix)
        callback = options.experimental_sharding_callback if options is not None else None
        if callback is None:
            checkpoints.write(prefix, tensors, format="tensorflow")
            return prefix
        shards = sharding.divided(tensors, of, callback)
        parts = [f"{prefix}_temp/part-{i:05d}-of-{len(shards):05d}" for i in range(len(shards))]
        for part, entries in zip(parts, shards, strict=True):
            checkpoints.write(part, entries, format="tensorflow")
        checkpoints.merge(parts, prefix)
        return prefix

    def save(
        self, file_prefix: str | os.PathLike[str], session: Any = None, options: CheckpointOptions | None = None
    ) -> str:
        """Writes a checkpoint, and makes it the newest one of its folder.

        Args:
          file_prefix: the prefix of its files, to which "-" and the number of the call are appended.
          session, options: see `write`.

        Returns:
          The prefix with the number.

        Raises:
          RuntimeError: see `write`.
        """
        path = self._counted(os.fspath(file_prefix), None, session, options)
        latest.update_checkpoint_state(os.path.dirname(path), path, [path], save_relative_paths=True)
        return path

    def _counted(self, prefix: str, number: int | None, session: Any, options: CheckpointOptions | None = None) -> str:
        """Writes a checkpoint with the next number, or a given one."""
        is_new = self._make_counter()
        counter = self._save_counter
        if counter.graph is None:
            counter.assign_add(1)
            count = int(counter.numpy())
        else:
            session = _session(session)
            if is_new:
                session.run(counter.initializer)
            count = int(session.run(counter)) + 1
            assign(session, [(counter, np.int64(count))])
        return self.write(f"{prefix}-{count if number is None else number}", session, options)

    def restore(self, save_path: str | os.PathLike[str] | None) -> Any:
        """Reads a checkpoint into the objects.

        Eager variables are assigned at once; those of a graph by `run_restore_ops` or `initialize_or_restore` of the
        result, where objects created in between are restored too.

        Args:
          save_path: the prefix of a checkpoint, also one of `tf.train.Saver`, whose values are found by the names of
            variables. None: nothing is restored, and `initialize_or_restore` of the result initializes.

        Returns:
          A `Status`.

        Raises:
          NotFoundError: there is no checkpoint. DataLossError: it is damaged.
        """
        if save_path is None:
            return Status(self, None)
        self._make_counter()
        status = Status(self, checkpoints.open(prefix_of(save_path)))
        status.restore_eager()
        return status


def _session(given: Any) -> Any:
    session = given if given is not None else get_default_session()
    if session is None:
        raise RuntimeError(
            "there is no default session, and the variables of a graph have their values in sessions: give session=, "
            "or call this in `with session.as_default()`"
        )
    return session


def _values(variables: Sequence[Any], session: Any) -> list[Any]:
    """Returns the values of variables, of a graph or eager."""
    of_graph = [v for v in variables if v.graph is not None]
    read = iter(_session(session).run(of_graph) if of_graph else [])
    return [np.asarray(v.numpy() if v.graph is None else next(read)) for v in variables]


class Status:
    """Result of `Checkpoint.restore`: checks, and the assignment in a session.

    Args:
      root: the checkpoint object.
      reader: the file; None: nothing is restored.

    Source: TensorFlow's `CheckpointLoadStatus`.
    """

    def __init__(self, root: Checkpoint, reader: Reader | None) -> None:
        self._root, self._reader = root, reader
        has_graph = reader is not None and OBJECT_GRAPH in reader.entries
        self._graph = read_graph(reader.read(OBJECT_GRAPH)[()]) if has_graph and reader else None

    def _matched(self) -> Matched:
        reader = self._needed()
        if self._graph is not None:
            found = object_graph.matched(self._root, self._graph)
            return Matched([(x, key) for x, key in found.pairs if key in reader.entries], found.nodes, found.unmatched)
        pairs, unmatched = [], []
        for x in Objects(self._root).nodes:
            if isinstance(x, Variable):
                key = key_of(x)
                if key in reader.entries:
                    pairs.append((x, key))
                elif x is not self._root._save_counter:
                    unmatched.append(key)
        return Matched(pairs, set(), unmatched)

    def _needed(self) -> Reader:
        if self._reader is None:
            raise AssertionError("No checkpoint specified (save_path=None); nothing is being restored.")
        return self._reader

    def assert_consumed(self) -> Status:
        """Checks that each object has a value in the checkpoint, and each value an object.

        Raises:
          AssertionError: one has none.
        """
        self.assert_existing_objects_matched()
        found = self._matched()
        if self._graph is None:
            used = {key for _, key in found.pairs}
            left = sorted(set(self._needed().entries) - used)
        else:
            left = [
                ", ".join(a.checkpoint_key for a in node.attributes) or f"object {i}"
                for i, node in enumerate(self._graph.nodes)
                if i not in found.nodes
            ]
        if left:
            raise AssertionError(f"Unresolved object in checkpoint {self._needed().prefix!r}: {'; '.join(left)}")
        return self

    def assert_existing_objects_matched(self) -> Status:
        """Checks that each object has a value in the checkpoint.

        Raises:
          AssertionError: one has none.
        """
        missing = self._matched().unmatched
        if missing:
            raise AssertionError(
                f"No checkpointed value for {len(missing)} objects: {', '.join(map(repr, missing))} in "
                f"{self._needed().prefix!r}"
            )
        return self

    def assert_nontrivial_match(self) -> Status:
        """Checks that an object other than the root has a value in the checkpoint.

        Raises:
          AssertionError: none has.
        """
        if all(x is self._root._save_counter for x, _ in self._matched().pairs):
            raise AssertionError(
                f"Nothing except the root object matched a checkpoint value: {self._needed().prefix!r}"
            )
        return self

    def expect_partial(self) -> Status:
        """Returns the status. A checkpoint that is not used up causes no warning."""
        return self

    def restore_eager(self) -> None:
        """Assigns the values of eager variables and states."""
        self._restore(None, is_eager=True)

    def run_restore_ops(self, session: Any = None) -> None:
        """Assigns the values of the checkpoint to the variables of the graph.

        Args:
          session: the session. None: the default session.

        Raises:
          AssertionError: no checkpoint was given.
          InvalidArgumentError: a value has another shape or dtype than its variable.
        """
        self._needed()
        self._restore(_session(session), is_eager=False)

    def initialize_or_restore(self, session: Any = None) -> None:
        """Assigns the values of the checkpoint, and initializes the other variables below the root.

        Args:
          session: the session. None: the default session.

        Raises:
          InvalidArgumentError: see `run_restore_ops`.
        """
        found = self._matched().pairs if self._reader is not None else []
        restored = {id(x) for x, _ in found}
        others = [
            x for x in Objects(self._root).nodes
            if isinstance(x, Variable) and x.graph is not None and id(x) not in restored
        ]  # fmt: skip
        if others or any(isinstance(x, Variable) and x.graph is not None for x, _ in found):
            session = _session(session)
            session.run([v.initializer for v in others])
            if self._reader is not None:
                self._restore(session, is_eager=False)

    def _restore(self, session: Any, is_eager: bool) -> None:
        reader, found = self._needed(), []
        for x, key in self._matched().pairs:
            if isinstance(x, PythonState):
                if is_eager:
                    x.deserialize(bytes(reader.read(key)[()]))
                continue
            if (x.graph is None) is not is_eager:
                continue
            entry = reader.entries[key]
            if entry.dtype is not x.dtype.base or not shapes.fits(tuple(entry.shape), x.shape):
                raise InvalidArgumentError(
                    f"the value {key!r} of {reader.prefix!r} is {entry.dtype.name}{shapes.show(tuple(entry.shape))}, "
                    f"and the variable '{x.name}' {x.dtype.base.name}{shapes.show(x.shape)}"
                )
            found.append((x, reader.read(key)))
        assign(session, found)
