"""Tensors that stay in a session: `tf.get_session_handle`, `tf.get_session_tensor`, `tf.delete_session_tensor`.

A run that fetches the result of `get_session_handle` returns a `TensorHandle`. A later run of the session reads the
tensor by the handle, without a copy through Python.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

from headrace import dtypes
from headrace.api import scopes
from headrace.ir.graph import Graph
from headrace.v1.array_ops import placeholder
from headrace.v1.graph import in_default_graph

_MOST_DEAD: Final = 10  # handles without references whose tensors are deleted together; TensorFlow's number


class _Operations:
    """Operations of a graph that read and delete tensors by handles, created on first use."""

    _of: Final[weakref.WeakKeyDictionary[Graph, _Operations]] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self.readers: dict[Any, tuple[Any, Any]] = {}
        self.deleter: tuple[Any, Any] | None = None

    @classmethod
    def of(cls, graph: Graph) -> _Operations:
        """Returns the operations of a graph."""
        return cls._of.setdefault(graph, cls())

    def reader_of(self, graph: Any, dtype: Any) -> tuple[Any, Any]:
        """Returns the placeholder of a handle and the tensor that it reads."""
        if dtype not in self.readers:
            with graph.as_default(), scopes.name_scope(None):
                self.readers[dtype] = get_session_tensor("", dtype)
        return self.readers[dtype]

    def deleter_of(self, graph: Any) -> tuple[Any, Any]:
        """Returns the placeholder of a handle and the operation that deletes its tensor."""
        if self.deleter is None:
            with graph.as_default(), scopes.name_scope(None):
                self.deleter = delete_session_tensor("")
        return self.deleter


class TensorHandle:
    """Handle of a tensor that a session keeps.

    The session deletes the tensor some time after the last reference to the handle is dropped. A handle can be fed in
    place of the tensor's value.

    Args:
      handle: text of the handle.
      dtype: dtype of the tensor.
      session: the session.

    Source: TensorFlow's `TensorHandle`.
    """

    def __init__(self, handle: str, dtype: Any, session: Any) -> None:
        self._handle, self._dtype, self._session = handle, dtype, session
        self._is_owner = True
        self._dead = _dead_of(session)

    def __del__(self) -> None:
        if getattr(self, "_is_owner", False):
            self._dead.append(self._handle)

    def __str__(self) -> str:
        return self._handle

    @property
    def handle(self) -> str:
        """Text of the handle."""
        return self._handle

    def eval(self) -> Any:
        """Returns the value of the tensor.

        Raises:
          TypeError: the handle was deleted or given away.
        """
        self._check_owner()
        graph = self._session.graph
        holder, reader = _Operations.of(graph).reader_of(graph, self._dtype)
        return self._session.run(reader, {holder: self._handle})

    def delete(self) -> None:
        """Deletes the tensor from the session.

        Raises:
          TypeError: the handle was deleted or given away.
        """
        self._check_owner()
        self._is_owner = False
        _delete(self._session, self._handle)

    def get_raw_handle(self) -> str:
        """Returns the text of the handle. The session keeps the tensor until `tf.delete_session_tensor` runs."""
        self._is_owner = False
        return self._handle

    def to_numpy_array(self) -> Any:
        """Returns the value of the tensor, to feed it."""
        return self.eval()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.asarray(self.eval(), dtype)

    def _check_owner(self) -> None:
        if not self._is_owner:
            raise TypeError(f"Persistent tensor {self._handle} may have already been deleted.")


_dead: Final[weakref.WeakKeyDictionary[Any, list[str]]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _dead_of(session: Any) -> list[str]:
    """Returns the list of handles of a session without references."""
    return _dead.setdefault(session, [])


def _delete(session: Any, handle: str) -> None:
    graph = session.graph
    holder, deleter = _Operations.of(graph).deleter_of(graph)
    session.run(deleter, {holder: handle})


def handle_of(session: Any, dtype: Any, text: bytes) -> TensorHandle:
    """Returns the handle that a run has fetched.

    If there are many dead handles, their tensors are deleted.

    Args:
      session: the session of the run.
      dtype: dtype of the tensor.
      text: text of the handle.
    """
    dead = _dead_of(session)
    if len(dead) > _MOST_DEAD:
        with _lock:
            doomed, dead[:] = list(dead), []
        for one in doomed:
            _delete(session, one)
    return TensorHandle(text.decode(), dtype, session)


@in_default_graph
def get_session_handle(data: Any, name: str | None = None) -> Any:
    """Keeps a tensor in the session; a run that fetches the result returns a `TensorHandle`.

    Args:
      data: the tensor.
      name: name of the operation.

    Raises:
      TypeError: `data` is no tensor.

    Source: TensorFlow's `tf.get_session_handle`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     handle = sess.run(tf.get_session_handle(tf.constant(3.0) * 2.0))
      ...     holder, kept = tf.get_session_tensor(handle.handle, tf.float32)
      ...     sess.run(kept + 1.0, {holder: handle.handle}), handle.eval()
      (np.float32(7.0), np.float32(6.0))
    """
    b = scopes.builder(data)
    return b.make("GetSessionHandle", (b.tensor(data),), {}, name)


@in_default_graph
def get_session_tensor(handle: Any, dtype: Any, name: str | None = None) -> Any:
    """Returns a placeholder for a handle, and the tensor that the session keeps under it.

    Args:
      handle: text of a handle.
      dtype: dtype of the tensor.
      name: name of the operation.

    Source: TensorFlow's `tf.get_session_tensor`.
    """
    holder = placeholder(dtypes.string, [])
    return holder, scopes.builder(holder).make("GetSessionTensor", (holder,), {"dtype": dtypes.as_dtype(dtype)}, name)


@in_default_graph
def delete_session_tensor(handle: Any, name: str | None = None) -> Any:
    """Returns a placeholder for a handle, and the operation that deletes its tensor.

    Args:
      handle: text of a handle.
      name: name of the operation.

    Source: TensorFlow's `tf.delete_session_tensor`.
    """
    holder = placeholder(dtypes.string, [])
    return holder, scopes.builder(holder).make("DeleteSessionTensor", (holder,), {}, name)
