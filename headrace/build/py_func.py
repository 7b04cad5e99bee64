"""Python functions as operations: `py_func`, `numpy_function`, `py_function`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes
from headrace.build import nest, scopes
from headrace.resources.callback import Callback


def py_func(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """An operation that calls a Python function each time it runs.

    The function lives as long as the graph. A graph that is exported keeps only a token in its place, and works in this
    process alone. The operation has no gradient.

    Args:
      func: takes an array or numpy scalar for each of `inp` (strings: `bytes`, or arrays of them), and returns one for
        each of `Tout`, of exactly this dtype; None if there is none.
      inp: tensors.
      Tout: dtype of what it returns, or a list of them.
      stateful: whether it does anything besides, or may return something else for the same arrays. If so, an `hr.Graph`
        keeps it in order with others of its kind.
      name: of the operation.

    Returns:
      The tensor, of unknown shape, or a list of them if `Tout` is a list. If that is empty, the operation.

    Raises (when it runs):
      InvalidArgumentError: `func` returned something else than `Tout` says, or raised a ValueError or TypeError.
      OutOfRangeError, UnimplementedError, ResourceExhaustedError, UnknownError: it raised a StopIteration, a
        NotImplementedError, a MemoryError, another exception.

    Source: TensorFlow's `tf.py_func`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.py_func(lambda x: x[::-1], [hr.constant([1, 2, 3])], hr.int32)
      >>> hr.Session(graph=g).run(y)
      array([3, 2, 1], dtype=int32)
    """
    return _make("PyFunc" if stateful else "PyFuncStateless", func, inp, Tout, name)


def numpy_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """TensorFlow 2's name for `py_func`.

    Source: TensorFlow's `tf.numpy_function`.
    """
    return py_func(func, inp, Tout, stateful, name)


def py_function(func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None) -> Any:
    """Like `py_func`, of a function that takes and returns eager tensors.

    Source: TensorFlow's `tf.py_function` (which has gradients; this has none).
    """
    types = _as_list(Tout)

    def on_tensors(*arrays: Any) -> Any:
        b = scopes.builder()  # where the function runs there is no graph
        got = func(*map(b.tensor, arrays))
        results = got if isinstance(got, (list, tuple)) else [] if got is None else [got]
        if len(results) != len(types):
            return results  # which is reported as that of any function
        return tuple(b.tensor(x, d).numpy() for x, d in zip(results, types, strict=True))

    on_tensors.__qualname__ = getattr(func, "__qualname__", repr(func))
    return _make("EagerPyFunc", on_tensors, inp, Tout, name)


def _make(type: str, func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None) -> Any:
    if not callable(func):
        raise ValueError(f"Expected func to be callable. Received func={func!r} of type {func.__class__.__name__}.")
    values = list(inp) if isinstance(inp, (list, tuple)) else [inp]
    b = scopes.builder(*values)
    callback = Callback(func)
    scopes.keep(b.graph, callback)
    made = b.make(type, (values,), {"token": callback.token, "Tout": tuple(_as_list(Tout))}, name)
    if not isinstance(Tout, (list, tuple)):
        return made
    return list(made) if isinstance(made, tuple) else [made] if len(Tout) == 1 else made


def _as_list(Tout: Any) -> list[dtypes.DType]:
    return [dtypes.as_dtype(d) for d in nest.flatten(Tout)]
