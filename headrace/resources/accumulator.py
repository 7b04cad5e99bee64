"""Conditional accumulators: gradients of several workers are added, until a worker takes their mean.

Each gradient has the step at which it was computed. Gradients from before the accumulator's own step, which every take
increments, are dropped. Dense gradients are arrays, sparse ones rows of an array with their indices.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.resources.account import size
from headrace.resources.values import numpy_dtype_of, shape_of
from headrace.resources.waiting import NOT_YET, Cancel, Done, Waiting

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.account import Account
    from headrace.resources.values import Value
    from headrace.shapes import Shape


class Accumulator(Waiting):
    """Base of both kinds of accumulators. Thread safe; no call waits.

    Attributes:
      name: The name, for messages.
      dtype: The dtype of the gradients.
      shape: The static shape of the gradients.
      account: The account of the sum in the device's memory; None if it is not counted. A gradient without room is not
        added, and raises an error.
    """

    def __init__(self, name: str, dtype: DType, shape: Shape, is_mean: bool) -> None:
        super().__init__(name)
        self.dtype = dtype
        self.shape = shape
        self._is_mean = is_mean
        self._count = 0
        self._step = 0
        self.account: Account | None = None

    def count(self) -> int:
        """Number of gradients added since the last take."""
        return self._count

    def set_step(self, step: int) -> None:
        """Sets the step before which gradients are dropped."""
        with self._lock:
            self._step = step

    def take(self, required: int, done: Done) -> Cancel:
        """Takes the mean (or the sum) of the gradients when at least `required` were added.

        Args:
          required: The number of gradients.
          done: Receives the result.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: `required` is not positive.
        """
        if required <= 0:
            raise InvalidArgumentError(f"Argument num_required must be positive, but was {required}")

        def attempt() -> Any:
            if self._count < required:
                return NOT_YET
            result = self._result()
            self._count = 0
            self._step += 1
            self._hold(0)
            return result

        return self._ask(attempt, done, "TakeGradient")

    def check_same(self, other: Accumulator) -> None:
        """Checks an op that shares this accumulator by name but declares `other`.

        Raises:
          InvalidArgumentError: They differ in kind, dtype or shape.
        """
        for what, mine, wanted in (
            ("kind", type(self).__name__, type(other).__name__),
            ("dtype", self.dtype.name, other.dtype.name),
            ("shape", shapes.show(self.shape), shapes.show(other.shape)),
        ):
            if mine != wanted:
                raise InvalidArgumentError(
                    f"Shared conditional accumulator '{self.name}' has {what} {mine} but requested {what} was {wanted}"
                )

    def release(self) -> None:
        """Cancels all waiting requests and drops the sum."""
        super().release()
        self._hold(0)

    def _hold(self, n: int) -> None:
        """Counts `n` bytes before they are allocated; `ResourceExhaustedError` without room."""
        if self.account is not None:
            self.account.set(n)

    @abc.abstractmethod
    def _result(self) -> Any:
        """The result of a take. The lock is held."""

    def _check_dtype(self, gradient: Value) -> None:
        if numpy_dtype_of(gradient) != self.dtype.numpy:
            raise InvalidArgumentError(
                f"Expected gradients of dtype {self.dtype.name} for {self.describe()}, got {numpy_dtype_of(gradient)}"
            )

    def __repr__(self) -> str:
        kind = f"{self.dtype.name}{shapes.show(self.shape)}"
        return f"{type(self).__name__}({self.name!r}, {kind}, {self._count} gradients)"


class DenseAccumulator(Accumulator):
    """Accumulator behind ConditionalAccumulator and ResourceConditionalAccumulator."""

    def __init__(self, name: str, dtype: DType, shape: Shape, is_mean: bool) -> None:
        super().__init__(name, dtype, shape, is_mean)
        self._sum: Any = None

    def apply(self, step: int, gradient: Value) -> None:
        """Adds a gradient of `step`, unless it is too old.

        Raises:
          InvalidArgumentError: The dtype or shape of the gradient differs from that of the accumulator.
        """
        self._check_dtype(gradient)
        shape = shape_of(gradient)
        with self._lock:
            if step < self._step:
                return
            wanted = shape_of(self._sum) if self._count else self.shape
            if not shapes.fits(shape, wanted):
                raise InvalidArgumentError(
                    f"Shape mismatch: expected {shapes.show(wanted)}, got {shapes.show(shape)} for {self.describe()}"
                )
            self._hold(size([gradient]))
            self._sum = np.add(self._sum, gradient) if self._count else gradient
            self._count += 1
        self._serve()

    def _result(self) -> Any:
        total, self._sum = self._sum, None
        return np.divide(total, self.dtype.numpy.type(self._count)) if self._is_mean else total


class SparseAccumulator(Accumulator):
    """Accumulator behind SparseConditionalAccumulator.

    A row of the mean is the mean over the gradients that contain the row.
    """

    def __init__(self, name: str, dtype: DType, shape: Shape, is_mean: bool) -> None:
        super().__init__(name, dtype, shape, is_mean)
        self._indices: list[int] = []
        self._rows: np.ndarray = np.zeros(0, dtype.numpy)
        self._counts: np.ndarray = np.zeros(0, np.int64)  # number of gradients that contained each row

    def apply(self, step: int, indices: np.ndarray, rows: np.ndarray, shape: np.ndarray | None) -> None:
        """Adds a gradient of `step`, unless it is too old.

        Args:
          step: The step at which it was computed.
          indices: The indices of its rows, which are merged as if they were sorted, as in TensorFlow.
          rows: The rows.
          shape: The shape of the whole gradient, if it is known.

        Raises:
          InvalidArgumentError: The arguments do not fit each other or the accumulator.
        """
        self._check_dtype(rows)
        if indices.ndim != 1:
            raise InvalidArgumentError(
                f"Input indices should be vector but received shape: {shapes.show(indices.shape)}"
            )
        if not shape_of(rows):
            raise InvalidArgumentError("Values cannot be 0-dimensional.")
        if len(rows) != len(indices):
            raise InvalidArgumentError(f"Expected {len(indices)} non-empty input values, got {len(rows)}")
        with self._lock:
            if step < self._step:
                return
            self._check_shape(indices, rows, shape)
            if self._count:
                self._merge(indices.tolist(), rows)
            else:
                self._hold_rows(len(rows), rows)
                self._indices, self._rows = indices.tolist(), rows
                self._counts = np.ones(len(rows), np.int64)
            self._count += 1
        self._serve()

    def _check_shape(self, indices: np.ndarray, rows: np.ndarray, shape: np.ndarray | None) -> None:
        known = self.shape or ()
        if shape is not None:
            dims = np.ravel(shape).tolist()
            if len(dims) < len(known):
                raise InvalidArgumentError(
                    f"Shape mismatch: expected shape rank at least {len(known)}, got {len(dims)}"
                )
            for i, d in enumerate(known):
                if d is not None and d != dims[i]:
                    raise InvalidArgumentError(f"Shape mismatch: expected shape dim {i} to be {d}, got {dims[i]}")
        if rows.ndim < len(known):
            raise InvalidArgumentError(f"Shape mismatch: expected values rank at least {len(known)}, got {rows.ndim}")
        if self._count and rows.ndim != self._rows.ndim:
            raise InvalidArgumentError(f"Shape mismatch: expected values rank {self._rows.ndim}, got {rows.ndim}")
        for wanted in (known, self._rows.shape if self._count else ()):
            for i, d in enumerate(wanted):
                if i and d is not None and d != rows.shape[i]:
                    raise InvalidArgumentError(
                        f"Shape mismatch: expected values dim {i} to be {d}, got {rows.shape[i]}"
                    )
        if known and known[0] is not None:
            over = np.flatnonzero(indices >= known[0])
            if over.size:
                raise InvalidArgumentError(
                    f"Shape mismatch: index of slice {over[0]} exceeded limits of shape; index is {indices[over[0]]} "
                    f"exceeded {known[0]}"
                )

    def _merge(self, indices: list[int], rows: np.ndarray) -> None:
        """Adds rows to the current ones by a merge of two sorted index lists."""
        old, merged = self._indices, list[int]()
        to_old, to_new = list[int](), list[int]()  # the target of each row
        i = j = 0
        while i < len(old) or j < len(indices):
            here = i < len(old) and (j == len(indices) or old[i] <= indices[j])
            there = j < len(indices) and (i == len(old) or indices[j] <= old[i])
            merged.append(old[i] if here else indices[j])
            if here:
                to_old.append(len(merged) - 1)
            if there:
                to_new.append(len(merged) - 1)
            i += here
            j += there
        self._hold_rows(len(merged), rows)
        total = np.zeros((len(merged), *rows.shape[1:]), self.dtype.numpy)
        counts = np.zeros(len(merged), np.int64)
        total[to_old] = self._rows
        total[to_new] += rows
        counts[to_old] = self._counts
        counts[to_new] += 1
        self._indices, self._rows, self._counts = merged, total, counts

    def _hold_rows(self, n: int, rows: np.ndarray) -> None:
        """Counts `n` rows like `rows`, with an index and a count each."""
        self._hold(n * (16 + size([rows]) // max(len(rows), 1)))

    def _result(self) -> Any:
        rows = self._rows
        if self._is_mean:
            counts = self._counts.astype(self.dtype.numpy)
            rows = np.divide(rows, counts.reshape(-1, *[1] * (rows.ndim - 1)))
        first = self.shape[0] if self.shape else None
        shape = np.array([-1 if first is None else first, *rows.shape[1:]], np.int64)
        return np.array(self._indices, np.int64), rows, shape
