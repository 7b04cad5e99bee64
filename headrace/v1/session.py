"""TensorFlow 1's sessions: a session can be the default one, which `tensor.eval()` and `op.run()` use."""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace import nest, session
from headrace.api.sparse_tensor import SparseTensor
from headrace.fetches import converting
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.session_config import read_config, settings
from headrace.target import connectable
from headrace.v1.graph import get_default_graph
from headrace.v1.tensor_shape import TensorShape

if TYPE_CHECKING:
    from headrace.pb import ConfigProto

_sessions: contextvars.ContextVar[tuple[session.Session, ...]] = contextvars.ContextVar("headrace_sessions", default=())

_KEEPERS = frozenset(("GetSessionHandle", "GetSessionHandleV2"))  # op types whose values are handles

#: Fields of `ConfigProto` that `tf.config` has set, for sessions whose own configuration leaves them out.
defaults: dict[str, Any] = {}


def _settings(config: ConfigProto | None) -> dict[str, Any]:
    found = settings(config)
    return found | {name: value for name, value in defaults.items() if not found.get(name)}


class BaseSession(session.Session):
    """Base class of sessions. It converts feeds as TensorFlow 1 does."""

    _convert = staticmethod(converting)

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target or "", graph if graph is not None else get_default_graph(), _settings(config))
        self.sess_str = target

    def _compile(self, fetches: Any, feed_keys: list[Any], watched: Any) -> Any:
        call = super()._compile(fetches, feed_keys, watched)
        # watched values have names of the step's own graph
        made = [self.graph.find(name.partition(":")[0]) for name in call.fetch_names]
        kept = {i: op.inputs[0].dtype for i, op in enumerate(made) if op is not None and op.type in _KEEPERS}
        if kept:
            call.pack = self._with_handles(call.pack, kept)
        return call

    def _with_handles(self, pack: Any, kept: dict[int, Any]) -> Any:
        """Returns a `pack` that makes handles of their texts.

        Args:
          pack: function from the values of a step to the structure of the fetches.
          kept: dtypes of the tensors of the handles, by the positions of their texts among the values.
        """
        from headrace.v1.session_handles import handle_of  # here: few programs use handles

        owner = weakref.ref(self)  # the session keeps the call

        def packed(values: Sequence[Any]) -> Any:
            return pack([handle_of(owner(), kept[i], v) if i in kept else v for i, v in enumerate(values)])

        return packed

    @property
    def graph_def(self) -> Any:
        """Graph of the session as a `GraphDef` message."""
        from headrace.ir.serial import graphdef

        return graphdef.export_graph_def(self.graph)

    @contextlib.contextmanager
    def as_default(self) -> Iterator[BaseSession]:
        """Makes this the default session of `eval` and `run` in the context.

        The session stays open afterwards.
        """
        before = _sessions.get()
        _sessions.set((*before, self))
        try:
            yield self
        finally:
            _sessions.set(before)


class Session(BaseSession):
    """Runs a graph.

    In the `with` block of a session, it is the default session, and its graph is the default graph. The end of the
    block closes the session.

    Args:
      target: "" (this process); or a cluster, such as `server.target`.
      graph: the graph to run. None: the default graph.
      config: a `ConfigProto`. As in TensorFlow 1, an operation that requests a missing device is an error, unless
        `allow_soft_placement` is set.

    Source: TensorFlow's `tf.Session`. See `headrace.Session` for `run`, `make_callable` and `partial_run`.
    """

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._entered: list[contextlib.ExitStack] = []

    def __enter__(self) -> Session:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.graph)  # type: ignore[arg-type]  # one that users made
            stack.enter_context(self.as_default())
            self._entered.append(stack.pop_all())
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered.pop().close()
        self.close()

    @staticmethod
    def reset(target: Any, containers: Sequence[str] | None = None, config: Any = None) -> None:
        """Drops the resources of containers on all workers of a cluster.

        Args:
          target: the cluster, such as `server.target`.
          containers: names of containers; None: all.
          config: a `ConfigProto`.

        Source: TensorFlow's `tf.Session.reset`.
        """
        settings = read_config(_settings(config))
        found = connectable(target).connect(settings.placement, settings.device_filters)
        try:
            found.reset(tuple(containers or ()))
        finally:
            found.close()


class InteractiveSession(BaseSession):
    """Session that is the default session until it is closed, for shells and notebooks.

    Source: TensorFlow's `tf.InteractiveSession`.
    """

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        # not a `with` statement: other sessions may have become the default when it is closed
        _sessions.set((*_sessions.get(), self))
        self._leave = contextlib.ExitStack()
        if graph is not None:
            self._leave.enter_context(graph)  # type: ignore[arg-type]  # one that users made

    def close(self) -> None:
        """Closes the session, which is then no longer the default session."""
        super().close()
        if self in _sessions.get():
            _sessions.set(tuple(s for s in _sessions.get() if s is not self))
            self._leave.close()


def get_default_session() -> session.Session | None:
    """Returns the default session, or None if there is none.

    Source: TensorFlow's `tf.get_default_session`.
    """
    sessions = _sessions.get()
    return sessions[-1] if sessions else None


def session_for(what: Any, graph: Graph, given: session.Session | None, method: str) -> session.Session:
    """Returns the session to run a tensor or operation: `given`, or the default session.

    Args:
      what: the tensor or operation.
      graph: its graph.
      given: the session, or None.
      method: name of the caller's method, for messages.

    Raises:
      ValueError: there is no session, or it belongs to another graph.
    """
    found = given or get_default_session()
    if found is None:
        raise ValueError(
            f"Cannot evaluate {what.name!r} using `{method}()`: No default session is registered. Use "
            f"`with sess.as_default()`, make an InteractiveSession, or give the session: `{method}(session=sess)`"
        )
    while graph.outer is not None:
        graph = graph.outer
    if found.graph is not graph:
        which = "the session given" if given is not None else "the default session"
        raise ValueError(
            f"Cannot use {which} to evaluate {what.name!r}: its graph is another one than the session's; pass a "
            f"session made with Session(graph=...) to `{method}(session=sess)`"
        )
    return found


# *** methods that tensors and operations have in TensorFlow 1 ***


def _eval(self: Tensor, feed_dict: Any = None, session: Any = None) -> Any:
    """The tensor's value: `session.run(tensor, feed_dict)`, in the default session if none is given."""
    return session_for(self, self.graph, session, "eval").run(self, feed_dict)


def _run(self: Operation, feed_dict: Any = None, session: Any = None) -> None:
    """Runs the operation in `session`, or in the default one."""
    session_for(self, self.graph, session, "run").run(self, feed_dict)


def _get_shape(self: Tensor) -> TensorShape:
    """Returns the static shape."""
    return TensorShape(self.shape)


def _consumers(self: Tensor) -> list[Operation]:
    """Returns the operations of the tensor's graph of which it is an input."""
    return [op for op in self.graph.operations if self in op.inputs]


def _values(self: Operation) -> tuple[Tensor, ...]:
    """Returns the outputs of the operation."""
    return self.outputs


def _consumers_of_parts(self: SparseTensor | IndexedSlices) -> list[Operation]:
    """Returns the operations that read a part of the composite."""
    parts = [t for t in nest.flatten(self) if isinstance(t, Tensor)]
    return [op for op in parts[0].graph.operations if any(t in parts for t in op.inputs)]


def _node_def(self: Operation) -> Any:
    """Operation as a `NodeDef` message."""
    from headrace.v1 import operations  # here: it imports the messages, which few programs need

    return operations.node_def(self)


def _op_def(self: Operation) -> Any:
    """Definition of the op type, an `OpDef` message."""
    from headrace.v1 import operations

    return operations.op_def(self)


def _traceback(self: Operation) -> Any:
    """User's line that created the operation, as a stack of one frame."""
    from headrace.v1 import operations

    return operations.source_lines(self)


def _colocation_groups(self: Operation) -> list[bytes]:
    """Returns the colocation groups: those of `colocate_with`, else the operation's own."""
    found = self.attrs.get("_class") or (f"loc:@{self.name}",)
    return [group.encode() if isinstance(group, str) else group for group in found]


def _install() -> None:
    methods = ((Tensor, "eval", _eval), (Tensor, "get_shape", _get_shape), (Tensor, "consumers", _consumers),
               (Operation, "run", _run), (Operation, "values", _values),
               (Operation, "colocation_groups", _colocation_groups), (SparseTensor, "consumers", _consumers_of_parts),
               (IndexedSlices, "consumers", _consumers_of_parts))  # fmt: skip
    for cls, name, method in methods:
        setattr(cls, name, method)
    for name, read in (("node_def", _node_def), ("op_def", _op_def), ("traceback", _traceback)):
        setattr(Operation, name, property(read))
    doc = "Which output of its operation the tensor is."
    Tensor.value_index = property(lambda self: self.index, doc=doc)  # type: ignore[attr-defined]


_install()
