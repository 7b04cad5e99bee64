"""Auxiliary operations of training (initialization, readiness, summaries) and a saver.

A scaffold also creates sessions with these operations. A graph of `headrace.v1` keeps them in collections, which are
searched first, as in TensorFlow. A graph of `headrace` has no collections, so the scaffold creates them from its
variables, from the operations that fill tables, and from those that create summaries.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from headrace import dtypes
from headrace.api import grouping, scopes
from headrace.ir.graph import Operation, Tensor
from headrace.train.global_step import root_of
from headrace.train.hooks.base import log
from headrace.train.session_manager import MOST_WAIT, PAUSE, SessionManager

_FILL_TABLES = frozenset({"InitializeTable", "InitializeTableV2", "InitializeTableFromTextFile",
                          "InitializeTableFromTextFileV2", "LookupTableImport", "LookupTableImportV2"})  # fmt: skip
_STATIC_TABLES = frozenset({"HashTable", "HashTableV2"})  # filled once by their initializers, unlike other tables
_SUMMARIES = frozenset({"ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary", "AudioSummaryV2",
                        "TensorSummary", "TensorSummaryV2"})  # fmt: skip


def report_uninitialized(variables: Sequence[Any], name: str = "report_uninitialized_variables") -> Tensor:
    """Returns a string vector with the names of the uninitialized variables.

    Args:
      variables: the variables.
      name: name of the scope of the operations, in the current graph.
    """
    with scopes.name_scope(name):
        b = scopes.graph_builder("report_uninitialized")
        names: Tensor = b.const(np.array([v.op.name.encode() for v in variables], object), dtypes.string)
        if not variables:
            return names
        missing = b.LogicalNot(b.Pack([v.is_initialized() for v in variables]))
        found: Tensor = b.Gather(names, b.Squeeze(b.Where(missing), squeeze_dims=(1,)))
        return found


class _Made:
    """Operations that scaffolds have added to a graph without collections, for reuse."""

    def __init__(self) -> None:
        self.pieces: dict[tuple[Any, ...], Any] = {}

    @staticmethod
    def of(graph: scopes.Graph) -> _Made:
        """Returns the object of a graph, which keeps it."""
        for thing in graph.kept:
            if isinstance(thing, _Made):
                return thing
        made = _Made()
        graph.kept.append(made)
        return made


class Scaffold:
    """Operations, functions and saver that training needs apart from the model.

    `finalize` finds or creates those that are not given.

    Args:
      init_op: operation that initializes the variables. It is not run if they are restored from a checkpoint.
      init_feed_dict: feeds of `init_op`.
      init_fn: function that is called as `init_fn(scaffold, session)` after `init_op`.
      ready_op: string vector with the names of uninitialized variables.
      ready_for_local_init_op: a vector like `ready_op`, evaluated before `local_init_op` is run.
      local_init_op: operation that is run in every session. It fills tables and initializes local variables.
      summary_op: the summaries of the graph, a string tensor.
      saver: a `Saver`.
      copy_from_scaffold: a scaffold from which arguments that are None are taken.
      local_init_feed_dict: feeds of `local_init_op`.

    Raises:
      TypeError: `copy_from_scaffold` is not a `Scaffold`.

    Source: TensorFlow's `tf.train.Scaffold`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(1.0, name="v")
      ...     scaffold = hr.train.Scaffold(init_fn=lambda scaffold, session: session.run(set_it))
      ...     set_it = v.assign(3.0)
      >>> creator = hr.train.ChiefSessionCreator(scaffold)
      >>> with hr.train.MonitoredSession(creator, graph=g) as session:
      ...     session.run(v)
      np.float32(3.0)
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Any, Any], object] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Any = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Any = None,
    ) -> None:
        given = {
            "init_op": init_op, "init_feed_dict": init_feed_dict, "init_fn": init_fn, "ready_op": ready_op,
            "ready_for_local_init_op": ready_for_local_init_op, "local_init_op": local_init_op,
            "summary_op": summary_op, "saver": saver, "local_init_feed_dict": local_init_feed_dict,
        }  # fmt: skip
        if copy_from_scaffold is not None:
            if not isinstance(copy_from_scaffold, Scaffold):
                raise TypeError(f"copy_from_scaffold is not a Scaffold instance: {copy_from_scaffold!r}")
            # operations that the other scaffold has created itself belong to its graph
            given = {k: copy_from_scaffold._pieces[k] if v is None else v for k, v in given.items()}
        self._pieces: dict[str, Any] = given

    def finalize(self) -> Scaffold:
        """Finds or creates the operations that were not given, and finalizes the current graph.

        No operation can be added to a finalized graph.

        Returns:
          The scaffold.
        """
        graph = root_of()
        with graph:
            self._piece(
                "init_op", lambda: grouping.group(*(v.initializer for v in global_variables(graph)), name="init")
            )
            self._piece("ready_op", lambda: report_uninitialized([*global_variables(graph), *local_variables(graph)]))
            self._piece("ready_for_local_init_op", lambda: report_uninitialized(global_variables(graph)))
            self._piece("local_init_op", lambda: grouping.group(*_local_initializers(graph), name="local_init"))
            self._piece("summary_op", lambda: merged_summaries(graph))
            self._piece("saver", self._make_saver, key="savers")
        if hasattr(self.saver, "build"):
            self.saver.build()
        if hasattr(graph, "finalize"):
            graph.finalize()
        log.info("Graph was finalized.")
        return self

    def _piece(self, name: str, make: Callable[[], Any], key: str | None = None) -> None:
        if self._pieces[name] is None:
            self._pieces[name] = self.get_or_default(name, key or name, make)

    def _make_saver(self) -> Any:
        """Returns a saver for a graph without one.

        It also saves the states of random ops, so that a resumed run draws the same numbers as a run that was never
        stopped.
        """
        from headrace.train.saving.saver import Saver

        return Saver(allow_empty=True, random_state=True)

    @staticmethod
    def get_or_default(arg_name: str, collection_key: Any, default_constructor: Callable[[], Any]) -> Any:
        """Returns the only element of a collection of the current graph, or creates it.

        A graph without collections has a cache instead.

        Args:
          arg_name: name of the parameter of `Scaffold`.
          collection_key: name of the collection.
          default_constructor: function that creates the element, which is then added to the collection.

        Raises:
          RuntimeError: the collection has several elements.
        """
        graph: Any = root_of()
        if not hasattr(graph, "get_collection"):
            made = _Made.of(graph).pieces
            # the cached object is valid until a variable, table initializer or summary is added
            others = [*_fill_tables(graph), *_of_types(graph, _SUMMARIES)]
            of = (arg_name, tuple(map(id, graph.variables)), tuple(map(id, others)))
            if of not in made:
                made[of] = default_constructor()
            return made[of]
        found = graph.get_collection(collection_key)
        if len(found) > 1:
            raise RuntimeError(
                f'More than one item in the collection "{collection_key}". Please indicate which one to use by passing '
                f"it to the tf.Scaffold constructor as: tf.Scaffold({arg_name}=item to use)"
            )
        if found:
            return found[0]
        one = default_constructor()
        if one is not None:
            graph.add_to_collection(collection_key, one)
        return one

    @staticmethod
    def default_local_init_op() -> Operation | None:
        """Returns an operation that fills the tables and initializes the local variables."""
        return grouping.group(*_local_initializers(root_of()), name="local_init")

    @property
    def init_op(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["init_op"]

    @property
    def init_feed_dict(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["init_feed_dict"]

    @property
    def init_fn(self) -> Callable[[Any], object] | None:
        """Function of the session that calls the given `init_fn`, or None."""
        given = self._pieces["init_fn"]
        return None if given is None else lambda session: given(self, session)

    @property
    def ready_op(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["ready_op"]

    @property
    def ready_for_local_init_op(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["ready_for_local_init_op"]

    @property
    def local_init_op(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["local_init_op"]

    @property
    def local_init_feed_dict(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["local_init_feed_dict"]

    @property
    def summary_op(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["summary_op"]

    @property
    def saver(self) -> Any:
        """See `Scaffold`."""
        return self._pieces["saver"]


# *** variables, tables and summaries of a graph ***


def _collection(graph: Any, key: str) -> list[Any]:
    return list(graph.get_collection(key)) if hasattr(graph, "get_collection") else []


def global_variables(graph: Any) -> list[Any]:
    """Returns the variables of a graph that are saved and restored."""
    return _collection(graph, "variables") if hasattr(graph, "get_collection") else list(graph.variables)


def local_variables(graph: Any) -> list[Any]:
    """Returns the variables of a graph that are initialized in each session."""
    return _collection(graph, "local_variables")


def _local_initializers(graph: Any) -> list[Operation]:
    tables = _collection(graph, "table_initializer")
    if not hasattr(graph, "get_collection"):
        tables = _fill_tables(graph)
    return [*(v.initializer for v in local_variables(graph)), *tables]


def _fill_tables(graph: Any) -> list[Operation]:
    return [op for op in _of_types(graph, _FILL_TABLES) if op.inputs[0].op.type in _STATIC_TABLES]


def _of_types(graph: Any, types: frozenset[str]) -> list[Operation]:
    return [op for op in graph.operations if op.type in types]


def merged_summaries(graph: Any) -> Tensor | None:
    """Returns all summaries of a graph merged into one tensor; None if there are none."""
    found = _collection(graph, "summaries")
    if not hasattr(graph, "get_collection"):
        found = [op.outputs[0] for op in _of_types(graph, _SUMMARIES)]
    if not found:
        return None
    merged: Tensor = scopes.graph_builder("summaries").make("MergeSummary", (found,), {}, "Merge/MergeSummary")
    return merged


# *** session creators ***


class SessionCreator(metaclass=abc.ABCMeta):
    """Abstract base class of factories for the sessions of a monitored session.

    Source: TensorFlow's `tf.train.SessionCreator`.

    Example:
      >>> import headrace as hr
      >>> class Plain(hr.train.SessionCreator):
      ...     def create_session(self):
      ...         return hr.Session(graph=g)
      >>> with hr.Graph() as g:
      ...     x = hr.constant(7)
      ...     with hr.train.MonitoredSession(Plain()) as session:
      ...         value = session.run(x)
      >>> value
      np.int32(7)
    """

    @abc.abstractmethod
    def create_session(self) -> Any:
        """Returns a session that is ready for training. The graph has been entered."""
        raise NotImplementedError(f"create_session is not implemented for {self}.")


class _Creator(SessionCreator):
    """Base class of the two creators."""

    scaffold_class: ClassVar[type[Scaffold]] = Scaffold
    manager_class: ClassVar[type[SessionManager]] = SessionManager

    def __init__(self, scaffold: Scaffold | None, master: str, config: Any) -> None:
        self._scaffold = scaffold if scaffold is not None else self.scaffold_class()
        self._manager: SessionManager | None = None
        self._master = master
        self._config = config
        self._pause = PAUSE

    def _finalized(self) -> SessionManager:
        s = self._scaffold.finalize()
        if self._manager is None:
            self._manager = self.manager_class(
                local_init_op=s.local_init_op,
                local_init_feed_dict=s.local_init_feed_dict,
                ready_op=s.ready_op,
                ready_for_local_init_op=s.ready_for_local_init_op,
                recovery_wait_secs=self._pause,
            )
        return self._manager


class ChiefSessionCreator(_Creator):
    """Creates sessions, and restores their variables from the newest checkpoint or initializes them.

    Args:
      scaffold: the scaffold. None: a new one.
      master: target of the sessions. "" is this process.
      config: configuration of the sessions.
      checkpoint_dir: folder of the checkpoints.
      checkpoint_filename_with_path: prefix of one checkpoint, in place of `checkpoint_dir`.

    Source: TensorFlow's `tf.train.ChiefSessionCreator`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.constant(7)
      ...     with hr.train.MonitoredSession(hr.train.ChiefSessionCreator()) as sess:
      ...         value = sess.run(x)
      >>> value
      np.int32(7)
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._folder = checkpoint_dir
        self._path = checkpoint_filename_with_path

    def create_session(self) -> Any:
        """See `SessionCreator.create_session`."""
        manager, s = self._finalized(), self._scaffold
        return manager.prepare_session(
            self._master,
            saver=s.saver,
            checkpoint_dir=self._folder,
            checkpoint_filename_with_path=self._path,
            config=self._config,
            init_op=s.init_op,
            init_feed_dict=s.init_feed_dict,
            init_fn=s.init_fn,
        )


class WorkerSessionCreator(_Creator):
    """Creates sessions whose variables another session initializes, and waits for this.

    Args:
      scaffold, master, config: see `ChiefSessionCreator`.
      max_wait_secs: longest wait in seconds. None: two hours.
      recovery_wait_secs: seconds between two checks.

    Source: TensorFlow's `tf.train.WorkerSessionCreator`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.constant(7)
      ...     with hr.train.MonitoredSession(hr.train.WorkerSessionCreator(max_wait_secs=10)) as session:
      ...         value = session.run(x)
      >>> value
      np.int32(7)
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float | None = 30 * 60,
        *,
        recovery_wait_secs: float = PAUSE,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._pause = recovery_wait_secs
        self._most = MOST_WAIT if max_wait_secs is None else max_wait_secs

    def create_session(self) -> Any:
        """See `SessionCreator.create_session`."""
        return self._finalized().wait_for_session(self._master, self._config, self._most)
