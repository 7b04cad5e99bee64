"""Python functions as operations: `py_func`, `numpy_function`, `py_function`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, thresholds
from headrace.api import recorder, scopes
from headrace.errors import InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.memo import Memo
from headrace.resources.callback import Callback


def py_func(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """An operation that calls a Python function each time it runs.

    The function lives as long as the graph. A graph that is exported keeps only a token in its place, and works in this
    process alone. The operation has no gradient. The function runs in any thread, in no graph, with the floating-point
    mode of the caller of `Session.run`. If it blocks, a deadline or closing the session ends the step; the thread of
    the function ends when the function returns.

    Args:
      func: takes an array or numpy scalar for each of `inp` (strings: `bytes`, or arrays of them), and returns one for
        each of `Tout`, of exactly this dtype; None if there is none.
      inp: tensors.
      Tout: dtype of what it returns, or a list of them.
      stateful: whether it does anything besides, or may return something else for the same arrays. If so, an `hr.Graph`
        keeps it in order with others of its kind; there it must not wait for one that comes later. In other graphs
        (`headrace.v1`, imported ones) calls that no edge orders run at the same time, and may wait for each other.
      name: name of the operation.

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

    Example:
      >>> import headrace as hr
      >>> hr.numpy_function(lambda x: x + 1, [hr.constant([1, 2])], hr.int32).numpy()
      array([2, 3], dtype=int32)
    """
    return py_func(func, inp, Tout, stateful, name)


def py_function(func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None) -> Any:
    """Calls a Python function of eager tensors in a step, with a gradient.

    The function runs its ops eagerly, and may use `.numpy()` and Python's `if` and `while`. Its results are converted
    to `Tout`; it may return None if `Tout` is an empty list.

    Outside of graphs, an active `hr.GradientTape` records the ops of the function like others. In a graph the gradient
    is the first-order gradient of the ops that ran. Values that the function computes by other means (numpy, variables
    that it reads, its own calls of `hr.grad`) are constants. The records of the last 64 calls are kept. For the
    gradient of an earlier call, the function runs again and must return the same values.

    Args, Raises: see `py_func`. The gradient raises, when it runs:
      InvalidArgumentError: the function ran again and returned other values.

    Source: TensorFlow's `tf.py_function`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, ())
      ...     y = hr.py_function(lambda x: x * x if float(x) > 0 else -x, [x], hr.float32)
      ...     (dx,) = hr.gradients(y, [x])
      >>> hr.Session(graph=g).run([y, dx], {x: 3.0})
      [np.float32(9.0), np.float32(6.0)]
    """
    if not callable(func):
        raise ValueError(f"Expected func to be callable. Received func={func!r} of type {func.__class__.__name__}.")
    b = scopes.builder(*nest.as_list(inp))
    if recorder.active.get() and not isinstance(b, Builder):
        on_given = _OnGiven(func, _dtypes(Tout), list(map(b.tensor, nest.as_list(inp))))
        with recorder.set_to(()):
            _make("EagerPyFunc", on_given, on_given.xs, Tout, name)
        return on_given.results if isinstance(Tout, (list, tuple)) else on_given.results[0]
    made = _OnTensors(func, _dtypes(Tout))
    return _make("EagerPyFunc", made, inp, Tout, name, made.differentiated)


class _OnTensors:
    """A function of eager tensors as one of arrays.

    Once its gradient is wanted, the ops of each call are recorded. The newest records are kept by what the call was
    given and gave, until the gradient takes them.

    Attributes:
      types: the dtypes of the results.
    """

    def __init__(self, func: Callable[..., Any], types: Sequence[dtypes.DType]) -> None:
        self._func = func
        self.types = types
        self._is_recorded = False
        self._calls: Memo[Any, tuple[Any, list[Any], list[Any]]] = Memo(
            "py_function calls", thresholds.PY_FUNCTION_CALLS
        )
        self.__qualname__ = getattr(func, "__qualname__", repr(func))
        code = getattr(func, "__code__", None)
        if code is not None:
            self.__code__ = code

    def __call__(self, *arrays: Any) -> Any:
        if not self._is_recorded:
            results = self.on(list(map(scopes.builder().tensor, arrays)))
            return results if len(results) != len(self.types) else tuple(r.numpy() for r in results)
        call = self._recorded(arrays)
        results = call[2]
        if len(results) != len(self.types):
            return results  # which is reported as that of any function
        ys = tuple(r.numpy() for r in results)
        self._calls.put(_content((*arrays, *ys)), call)
        return ys

    def on(self, xs: Sequence[Any]) -> list[Any]:
        """Returns the results for eager tensors; they are of `types` if there are as many."""
        with scopes.eager_call():
            got = self._func(*xs)
        results = [] if got is None else nest.as_list(got)
        if len(results) != len(self.types):
            return results
        convert = scopes.builder().tensor
        return [convert(x, d) for x, d in zip(results, self.types, strict=True)]

    def _recorded(self, arrays: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        b = scopes.builder()  # where the function runs there is no graph
        xs = list(map(b.tensor, arrays))
        with b.tape() as tape:
            tape.watch([x for x in xs if _carries(x.dtype)])
            ys = self.on(xs)
        return tape, xs, ys

    def differentiated(self) -> Callable[..., Any]:
        """Returns the gradient function.

        It takes the inputs, the outputs and the gradients of the outputs, and returns the gradients of the inputs.
        """
        self._is_recorded = True
        func = functools.partial(self._gradient)
        func.__qualname__ = f"{self.__qualname__} (its gradient)"  # type: ignore[attr-defined]
        return func

    def _gradient(self, *arrays: Any) -> Any:
        n_dys = sum(map(_carries, self.types))
        n_xs = len(arrays) - len(self.types) - n_dys
        given, dys = arrays[: len(arrays) - n_dys], list(arrays[len(arrays) - n_dys :])
        call = self._calls.pop(_content(given))
        if call is None:
            call = self._recorded(given[:n_xs])
            if _content([y.numpy() for y in call[2]]) != _content(given[n_xs:]):
                raise InvalidArgumentError(
                    f"the gradient of {self.__qualname__} needs a call of it that lies more than "
                    f"{thresholds.PY_FUNCTION_CALLS} calls back. It was called once more, and returned other values: "
                    "let its results depend on its arguments alone, or write it in ops"
                )
        tape, xs, ys = call
        pairs = [y for y in ys if _carries(y.dtype)]
        sources = [x for x in xs if _carries(x.dtype)]
        grads = tape.gradient(pairs, sources, dys, "zero")
        return tuple(np.asarray(g) for g in grads)


class _OnGiven(_OnTensors):
    """A function of eager tensors for one recorded call outside of graphs.

    The operation that calls it checks the results and translates errors. The function gets the given tensors
    themselves, not tensors of the arrays that the operation passes.

    Attributes:
      xs: the given tensors.
      results: the results of the function.
    """

    def __init__(self, func: Callable[..., Any], types: Sequence[dtypes.DType], xs: list[Any]) -> None:
        super().__init__(func, types)
        self.xs = xs
        self.results: list[Any] = []
        self._recorders = recorder.active.get()

    def __call__(self, *arrays: Any) -> Any:
        with recorder.set_to(self._recorders):  # the operation calls it in a clean context
            self.results = self.on(self.xs)
        is_full = len(self.results) == len(self.types)
        return tuple(r.numpy() for r in self.results) if is_full else self.results


def _carries(x: dtypes.DType) -> bool:
    return x.is_floating or x.is_complex


def _content(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Returns a hashable key that is equal for equal arrays."""
    return tuple(
        (x.shape, x.dtype.str, repr(x.tolist()) if x.dtype == object else x.tobytes()) for x in map(np.asarray, arrays)
    )


def _make(
    type: str,
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    name: str | None,
    gradient: Callable[[], Callable[..., Any]] | None = None,
) -> Any:
    if not callable(func):
        raise ValueError(f"Expected func to be callable. Received func={func!r} of type {func.__class__.__name__}.")
    values = nest.as_list(inp)
    b = scopes.builder(*values)
    callback = Callback(func, gradient)
    scopes.keep(b.graph, callback)
    made = b.make(type, (values,), {"token": callback.token, "Tout": tuple(_dtypes(Tout))}, name)
    if not isinstance(Tout, (list, tuple)):
        return made
    return nest.as_list(made) if Tout else made


def _dtypes(Tout: Any) -> list[dtypes.DType]:
    return [dtypes.as_dtype(d) for d in nest.flatten(Tout)]
