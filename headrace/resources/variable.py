"""Variables: values that ops replace.

A value that was read never changes: `update` makes a new array and swaps it in. So a read needs neither copy nor lock.

An update of a few rows of a large table would copy the table. `change` writes into the value itself if the variable has
the only reference to it. Meanwhile the variable is without a value, and a read waits for the lock. Optimizers change
values in the memory of a device so.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from headrace import forking, reference_counts, shapes
from headrace.device_arrays import is_host, to_host
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace.resources.manager import resource_of
from headrace.resources.values import nbytes_of, numpy_dtype_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.device_arrays import ArrayMemory, DeviceArray
    from headrace.dtypes import DType
    from headrace.resources.manager import Owners
    from headrace.resources.memory import Memory
    from headrace.resources.values import Value
    from headrace.shapes import Shape


class Variable:
    """Variable behind VariableV2, VarHandleOp and the ops on them. Thread safe.

    Attributes:
      name: The name, for messages.
      dtype: The base dtype of its value.
      shape: Its declared static shape.
      by_reference: Whether the graph has it as a reference variable. TensorFlow's errors differ.
    """

    __slots__ = ("__weakref__", "_lock", "_value", "by_reference", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: DType, shape: Shape = None) -> None:
        self.name = name
        self.by_reference = False
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
        """Whether the variable has a value."""
        if self._value is None:
            with self._lock:  # `change` may have taken the value
                return self._value is not None
        return True

    def read(self) -> Value:
        """The current value.

        Raises:
          FailedPreconditionError: The variable has no value yet.
        """
        value = self._value
        if value is None:
            with self._lock:  # `change` may have taken the value
                return self._current()
        return value

    def _current(self) -> Value:
        """The value, for a caller that has the lock."""
        value = self._value
        if value is None:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {self.name}. Could not find variable {self.name}'s value: "
                "either its initializer has not run in this session, or it has been destroyed. Run it first: "
                "session.run(hr.variables_initializer([v])), or v.initializer, where v is the variable"
            )
        return value

    def assign(self, value: Value, same_shape: bool = False) -> None:
        """Replaces the value.

        Args:
          value: The new value, of the variable's dtype.
          same_shape: Whether it must have the shape of the current value, or the declared shape if there is none.

        Raises:
          InvalidArgumentError: The dtype is wrong, or the shape with `same_shape`.
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
        """Replaces the value by `fn(value)` atomically, and returns the new value.

        `fn` must make a new array. If it raises, the variable is unchanged.

        Raises:
          FailedPreconditionError: The variable has no value yet.
        """
        with self._lock:
            value = fn(self._current())
            self._hold(value)
            return value

    def change(self, fn: Callable[[np.ndarray], object]) -> None:
        """Changes the value atomically by `fn(array)`, which writes into the array.

        The array is the value itself if nothing else refers to it, and otherwise a copy. `fn` must raise before it
        writes, or not at all; then the variable is unchanged.

        Raises:
          FailedPreconditionError: The variable has no value yet.
        """
        change_together([self], fn)

    def _take(self, like: DeviceArray | None) -> tuple[Value, bool]:
        """Returns an array to change, and whether it is the value itself.

        The variable has no value then. The caller has the lock, and gives the value back.

        Args:
          like: see `change_together`.
        """
        value = self._current()
        self._value = None  # a reader from now on waits
        if reference_counts.count(value) <= reference_counts.LOCAL and _is_writable(value):
            return value, True
        self._value = value
        return value.copy(), False

    def release(self) -> None:
        """Drops the value, so that the variable is uninitialized."""
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


def _is_writable(value: Value) -> bool:
    """Whether a value is a writable array that owns its memory."""
    return type(value) is np.ndarray and value.base is None and value.flags.writeable


# *** several variables ***


class _Locked:
    """Context with the locks of variables, which costs less than an ExitStack or a generator."""

    __slots__ = ("_held", "_locks")

    def __init__(self, variables: Sequence[Variable]) -> None:
        # a common order, so that no two calls wait for each other
        self._locks = [v._lock for v in sorted(variables, key=id)]
        self._held: list[threading.Lock] = []

    def __enter__(self) -> None:
        try:
            for lock in self._locks:
                lock.acquire()
                self._held.append(lock)
        except BaseException:  # Ctrl-C during the wait
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for lock in self._held:
            lock.release()


def update_together(variables: Sequence[Variable], fn: Callable[..., Sequence[Value]]) -> None:
    """Replaces the values of several variables by `fn(*values)` atomically.

    `fn` must make new arrays or return unchanged ones. If it raises, all variables are unchanged.

    Args:
      variables: The variables, each at most once.
      fn: Takes the values in this order and returns the new ones in this order.

    Raises:
      FailedPreconditionError: A variable has no value yet.
    """
    with _Locked(variables):
        for v, value in zip(variables, fn(*[v._current() for v in variables]), strict=True):
            v._hold(value)


def change_together(variables: Sequence[Variable], fn: Callable[..., object], like: DeviceArray | None = None) -> None:
    """Changes the values of several variables atomically by `fn(*arrays)`, which writes into the arrays.

    An array is the value itself if nothing else refers to it, and otherwise a copy. `fn` must raise before it writes,
    or not at all; then all variables are unchanged.

    Args:
      variables: The variables, each at most once.
      fn: Takes the arrays in this order.
      like: A value on the device of the variables. `fn` then takes values in the memory of that device, with elements
        in the order in which this one has them there. None: arrays of numpy.

    Raises:
      FailedPreconditionError: A variable has no value yet.
    """
    with _Locked(variables):
        taken: list[tuple[Value, bool]] = []
        try:
            for v in variables:
                taken.append(v._take(like))  # noqa: PERF401 - an error leaves those before it in the list
            fn(*[array for array, _ in taken])
        finally:
            for v, (array, is_value) in zip(variables, taken, strict=False):
                if is_value:
                    v._value = array
        for v, (array, is_value) in zip(variables, taken, strict=True):
            if not is_value:
                v._hold(array)


class CountedVariable(Variable):
    """Variable on a device with a memory limit, whose bytes are counted.

    `assign` and `update` raise ResourceExhaustedError if there is no room for the new value, and the variable keeps the
    old one.

    Args:
      name: The name, for messages.
      dtype: The dtype of its value.
      shape: Its declared static shape.
      account: The account of the device; None: the device has no limit, and nothing is counted.
    """

    __slots__ = ("_account", "_counted")

    def __init__(self, name: str, dtype: DType, shape: Shape, account: Memory | None) -> None:
        super().__init__(name, dtype, shape)
        self._account = account
        self._counted = 0

    def _hold(self, value: Value | None) -> None:
        if self._account is not None:
            n = 0 if value is None else nbytes_of(value)
            if n != self._counted:
                self._account.change(f"variable '{self.name}'", self._counted, n)
                self._counted = n
        super()._hold(value)


class DeviceVariable(CountedVariable):
    """Variable whose value is in the memory of a device.

    `change` copies the value to the host and back, unless it is to be changed on the device.

    Args:
      name: The name, for messages.
      dtype: The dtype of its value.
      shape: Its declared static shape.
      memory: The memory of the device.
      account: The account of the device; None: the device has no limit, and nothing is counted.
    """

    __slots__ = ("_memory",)

    def __init__(
        self, name: str, dtype: DType, shape: Shape, memory: ArrayMemory, account: Memory | None = None
    ) -> None:
        super().__init__(name, dtype, shape, account)
        self._memory = memory

    def _take(self, like: DeviceArray | None) -> tuple[Value, bool]:
        value = self._current()
        if like is None:
            return np.array(to_host(value)), False
        self._value = None  # a reader from now on waits
        is_own = False
        try:
            is_own = reference_counts.count(value) <= reference_counts.LOCAL and self._memory.may_change(value, like)
        finally:
            if not is_own:
                self._value = value
        return (value, True) if is_own else (self._memory.copied(value, like), False)

    def _hold(self, value: Value | None) -> None:
        super()._hold(value if value is None or not is_host(value) else self._memory.put(value))


class FedVariable(Variable):
    """Variable of one step whose reads return a fed value.

    `assign`, `update`, `change` and `release` raise InvalidArgumentError.

    Args:
      name: The name of the variable that it replaces in the step.
      dtype: The dtype of that variable.
      shape: The declared static shape of that variable.
      value: The fed value.
    """

    __slots__ = ()

    def __init__(self, name: str, dtype: DType, shape: Shape, value: Value) -> None:
        super().__init__(name, dtype, shape)
        self._value = value

    def _take(self, like: DeviceArray | None) -> NoReturn:
        self._hold(None)

    def _hold(self, value: Value | None) -> NoReturn:
        raise InvalidArgumentError(
            f"variable '{self.name}' is fed in this step, so the step cannot change it: leave the operation that does, "
            "or the feed, out of the step"
        )


class Ref:
    """Value of a tensor of a reference dtype (`float32_ref`): a variable instead of its value.

    A kernel that needs the value calls `read()` when it fires and not earlier, as the reference dtype requires.
    """

    __slots__ = ("variable",)

    def __init__(self, variable: Variable) -> None:
        self.variable = variable

    def read(self) -> Value:
        """The current value of the variable; see `Variable.read`."""
        return self.variable.read()

    def __repr__(self) -> str:
        return f"<Ref to {self.variable!r}>"


# *** variables by handle ***


def variable_of(step: Owners, handle: Any, dtype: DType) -> Variable:
    """The variable of a handle, which must have `dtype`.

    Raises:
      InvalidArgumentError: `handle` is not a scalar handle of a variable, or the variable has another dtype.
      NotFoundError: The variable does not exist in this session or step.
    """
    variable = resource_of(step, handle, Variable)
    check_dtype(variable, dtype)
    return variable


def by_handle(step: Owners, attrs: Mapping[str, Any], handle: Any) -> tuple[Variable, Any]:
    """The variable of a handle, and the handle.

    Args:
      step: The managers of the step.
      attrs: The attributes of an operation, whose `dtype` the variable must have.
      handle: The handle.

    Raises:
      InvalidArgumentError, NotFoundError: As `variable_of`.
    """
    return variable_of(step, handle, attrs["dtype"]), handle


def initialized_variable(step: Owners, handle: Any, dtype: DType | None = None) -> Variable:
    """The initialized variable of a handle, which must have `dtype` if it is given.

    Raises:
      InvalidArgumentError: As `variable_of`.
      NotFoundError: As `variable_of`, or the variable is uninitialized; TensorFlow reports that it does not exist.
    """
    variable = resource_of(step, handle, Variable) if dtype is None else variable_of(step, handle, dtype)
    check_initialized(variable, handle)
    return variable


def check_initialized(variable: Variable, handle: Any) -> None:
    """Raises `NotFoundError` unless the variable of a handle is initialized.

    For a reference variable this is a `FailedPreconditionError`.
    """
    if not variable.is_initialized:
        if variable.by_reference:
            variable.read()
        raise NotFoundError(
            f"Resource {handle.container}/{handle.name} does not exist: the variable is uninitialized; "
            "run its initializer in this session first: session.run(v.initializer), where v is the variable"
        )


def check_dtype(variable: Variable, dtype: DType) -> None:
    """Raises `InvalidArgumentError` unless a variable has `dtype`."""
    if variable.dtype is not dtype and variable.dtype != dtype:
        raise InvalidArgumentError(
            f"Trying to access variable {variable.name} with wrong dtype. "
            f"Expected {variable.dtype.name} got {dtype.name}"
        )
