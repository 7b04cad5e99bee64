"""Variables: a value that ops replace.

A value is never written in place: `update` makes a new array and swaps it in, so a read needs neither copy nor lock,
and what was read stays what it was.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace import forking, shapes
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.resources.values import nbytes_of, numpy_dtype_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.dtypes import DType
    from headrace.resources.memory import Memory
    from headrace.resources.values import Value
    from headrace.shapes import Shape


class Variable:
    """One variable. Serves VariableV2, VarHandleOp and the ops on them. Thread safe.

    Attributes:
      name: for messages.
      dtype: the base dtype of its value.
      shape: its declared static shape.
    """

    __slots__ = ("__weakref__", "_lock", "_value", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: DType, shape: Shape = None) -> None:
        self.name = name
        self.dtype = dtype.base
        self.shape = shape
        self._lock = threading.Lock()
        self._value: Value | None = None
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`."""
        self._lock = threading.Lock()

    @property
    def is_initialized(self) -> bool:
        """Whether it has a value."""
        return self._value is not None

    def read(self) -> Value:
        """The current value.

        Raises:
          FailedPreconditionError: it has none yet.
        """
        value = self._value
        if value is None:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {self.name}. Could not find variable {self.name}'s value: "
                "either its initializer has not run in this session, or it has been destroyed. Run it first: "
                "session.run(hr.variables_initializer([v])), or v.initializer, where v is the variable"
            )
        return value

    def assign(self, value: Value, same_shape: bool = False) -> None:
        """Makes `value` the current value.

        Args:
          value: of the variable's dtype.
          same_shape: whether it must have the shape of the value so far (the declared one, if there is none).

        Raises:
          InvalidArgumentError: wrong dtype, or another shape though `same_shape`.
        """
        if numpy_dtype_of(value) != self.dtype.numpy:
            raise InvalidArgumentError(
                f"Trying to assign variable {self.name} with wrong dtype. "
                f"Expected {self.dtype.name} got {numpy_dtype_of(value)}"
            )
        with self._lock:
            if same_shape:
                self._check_shape(shape_of(value))
            self._hold(value)

    def update(self, fn: Callable[[Value], Value]) -> Value:
        """Replaces the value by `fn(value)`, with no other change in between, and returns the new one.

        `fn` must make a new array; whatever it raises leaves the variable as it was.

        Raises:
          FailedPreconditionError: there is no value yet.
        """
        with self._lock:
            value = fn(self.read())
            self._hold(value)
            return value

    def release(self) -> None:
        """Drops the value: the variable is uninitialized again."""
        with self._lock:
            self._hold(None)

    def _hold(self, value: Value | None) -> None:
        self._value = value

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted = self.shape if self._value is None else shape_of(self._value)
        if not shapes.fits(shape, wanted):
            raise InvalidArgumentError(
                f"Assign requires shapes of both tensors to match. lhs shape= {shapes.show(wanted)} "
                f"rhs shape= {shapes.show(shape)}: variable {self.name} keeps its shape unless validate_shape=False"
            )

    def __repr__(self) -> str:
        state = "" if self.is_initialized else ", uninitialized"
        return f"Variable({self.name!r}, {self.dtype.name}{shapes.show(self.shape)}{state})"


def update_together(variables: Sequence[Variable], fn: Callable[..., Sequence[Value]]) -> None:
    """Replaces the values of several variables by `fn(*values)`, with no other change in between.

    `fn` must make new arrays, or hand back what stays as it is; whatever it raises leaves all of them as they were.

    Args:
      variables: no one twice.
      fn: given the values in this order, makes the new ones in this order.

    Raises:
      FailedPreconditionError: one of them has no value yet.
    """
    held = []  # an ExitStack takes as long as all the rest
    try:
        for v in sorted(variables, key=id):  # one order for all, so that no two calls wait for each other
            v._lock.acquire()
            held.append(v._lock)
        for v, value in zip(variables, fn(*[v.read() for v in variables]), strict=True):
            v._hold(value)
    finally:
        for lock in held:
            lock.release()


class CountedVariable(Variable):
    """A variable on a device with a memory limit: what it holds is counted, and refused before it is too much.

    Args:
      name, dtype, shape: see `Variable`.
      memory: the device's.

    Raises (`assign` and `update`):
      ResourceExhaustedError: there is no room for the new value; the variable keeps the one it has.
    """

    __slots__ = ("_counted", "_memory")

    def __init__(self, name: str, dtype: DType, shape: Shape, memory: Memory) -> None:
        super().__init__(name, dtype, shape)
        self._memory = memory
        self._counted = 0

    def _hold(self, value: Value | None) -> None:
        n = 0 if value is None else nbytes_of(value)
        if n != self._counted:
            self._memory.change(f"variable '{self.name}'", self._counted, n)
            self._counted = n
        super()._hold(value)


class FedVariable(Variable):
    """A variable of one step: every read gives the fed value, every change is refused.

    Args:
      name, dtype, shape: of the variable that it replaces in the step.
      value: the fed value.

    Raises (`assign`, `update` and `release`):
      InvalidArgumentError: always.
    """

    __slots__ = ()

    def __init__(self, name: str, dtype: DType, shape: Shape, value: Value) -> None:
        super().__init__(name, dtype, shape)
        self._value = value

    def _hold(self, value: Value | None) -> None:
        raise InvalidArgumentError(
            f"variable '{self.name}' is fed in this step, so the step cannot change it: leave the operation that does, "
            "or the feed, out of the step"
        )


class Ref:
    """What a tensor of a reference dtype (`float32_ref`) carries: a variable, not its value.

    Whoever wants the value calls `read()` when it fires, not earlier: that is what a reference means.
    """

    __slots__ = ("variable",)

    def __init__(self, variable: Variable) -> None:
        self.variable = variable

    def read(self) -> Value:
        """The variable's value now; see `Variable.read`."""
        return self.variable.read()

    def __repr__(self) -> str:
        return f"<Ref to {self.variable!r}>"
