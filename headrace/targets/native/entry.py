"""Calls of native functions from Python, by machine code that reads numpy's objects.

    library = engine.compile_module(module.text(), ["core"])
    entry = Entry([Slot(np.float32, ("n", 16))], [Slot(np.float32, ("n",))])
    function = entry.bind(library, "core", on_failure)
    result = function(look, array)

`ctypes` takes microseconds to convert arguments, and a native step may take less than a tenth of one. So machine code
(`support`) reads numpy's objects in memory, makes the results and calls the native function (the *core*). `Entry`
describes inputs and results to it.

**Arguments.** The first is the function that polls call (`state.poll`), or None. The others are the inputs: arrays, or
for rank 0 also numpy scalars. An array qualifies if its type is `ndarray` itself, its dtype is the very object of the
slot (and so in native byte order), its elements are in order and aligned, and its dimensions are those of the slot.
Python code copies other arguments once they have proved to be equal in dtype and shape; all else is an internal error.

**Tables.** `%inputs` has the addresses of the inputs' elements, then those of the symbolic dimensions, each an i64, in
the order of their first occurrence in the inputs. `%outputs` has the addresses of the uninitialized elements of the
results. A result with a dimension None has its dimensions from the core: its entry is the address of a record of
a pointer and one i64 for each dimension, which the core sets. The elements there are copied, so the core allocates
them in either arena or returns an input. Elements are aligned naturally.

**Results.** One result is returned as it is, several as a tuple, none as None. Results of rank 0 are numpy scalars.

**Fed values.** A step that is one native function is called with the values that the user feeds. They are copied
while the call holds the interpreter's lock, large arrays of floats excepted. The rules are those of `fetches.feeder`,
which checks and converts other values.

**Failures.** The handler `on_failure(place, counters, calls)` raises the exception. An exception of `look` is passed
on; if it is a deadline and the core returned the place of the poll, the handler is called while it is handled.
"""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags, shapes
from headrace.errors import DeadlineExceededError, HeadraceInternalError, InvalidArgumentError
from headrace.targets.native import engine, state
from headrace.targets.native.deep_calls import EndedCalls
from headrace.targets.native.support import HEAD, INPUT, MOST_DIMS, OUTPUT, Kind

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.targets.native.engine import Library

#: Handler of a failure: called with the place of the failure, the iterations of the open loops of the core, and the
#: calls that have ended; it raises.
OnFailure = Callable[[int, list[int], EndedCalls], object]

_FASTCALL: Final = 0x80  # METH_FASTCALL
_PLAIN: Final = "bhilqBHILQefdF"  # dtypes whose scalars are the head of an object and the value


class Slot:
    """Dtype and shape of an input or a result.

    Args:
      dtype: The dtype, in native byte order and without objects.
      shape: The dimensions. A str is a symbolic dimension: equal names are equal dimensions. None is a symbolic
        dimension without a name in an input, and one that the core computes in a result.
      reader: For an input that an operation reads from the state, the operation.

    Attributes:
      dtype: The dtype.
      shape: The dimensions.
      reader: The argument.
    """

    __slots__ = ("dtype", "reader", "shape")

    def __init__(self, dtype: Any, shape: Sequence[int | str | None], reader: Operation | None = None) -> None:
        self.reader = reader
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape = tuple(shape)
        if self.dtype.hasobject or self.dtype.kind in "SUMm" or self.dtype.type is np.void:
            raise ValueError(f"native code has no values of dtype {self.dtype}")
        if len(self.shape) > MOST_DIMS:
            raise ValueError(f"numpy has at most {MOST_DIMS} dimensions, got {len(self.shape)}")
        if not self.dtype.isnative:
            raise ValueError(f"native code needs the native byte order, got {self.dtype!r}")

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def symbols(inputs: Sequence[Slot]) -> dict[str, int]:
    """Positions of the symbolic dimensions of inputs in the table of inputs.

    A dimension without a name has the name `"INPUT.AXIS"`, as in `"0.1"`.
    """
    names = (
        f"{i}.{axis}" if dim is None else dim
        for i, slot in enumerate(inputs)
        for axis, dim in enumerate(slot.shape)
        if not isinstance(dim, int)
    )
    return {name: len(inputs) + n for n, name in enumerate(dict.fromkeys(names))}


class Entry:
    """Signature of a native function, by which Python calls it.

    Args:
      inputs: The inputs.
      outputs: The results.
      is_long: Whether a call releases the interpreter's lock, which takes about 50 ns.
      flushes: Whether denormal numbers are flushed to zero during a call.

    Attributes:
      inputs: The inputs.
      outputs: The results.
      is_long: The argument.
      flushes: The argument.

    Raises:
      ValueError: a result has a symbolic dimension that no input has.
    """

    __slots__ = ("_symbols", "flushes", "inputs", "is_long", "outputs")

    def __init__(
        self, inputs: Sequence[Slot], outputs: Sequence[Slot], is_long: bool = False, flushes: bool = False
    ) -> None:
        self.inputs, self.outputs, self.is_long, self.flushes = tuple(inputs), tuple(outputs), is_long, flushes
        self._symbols = symbols(self.inputs)
        for slot in self.outputs:
            for dim in slot.shape:
                if isinstance(dim, str) and dim not in self._symbols:
                    raise ValueError(f"no input has the symbolic dimension {dim!r} of the result {slot}")

    def bind(
        self, library: Library, core: str, on_failure: OnFailure, lent: Sequence[int] | None = None
    ) -> Callable[..., Any]:
        """Makes the Python function. With the flag VERIFY=3 its calls are guarded (`state`).

        Args:
          library: The compiled module. It lives as long as the function.
          core: The native function, one of the names that were given to `compile_module`.
          on_failure: The handler of failures.
          lent: For a function of values that users feed, for each input the size in bytes from which it is read in
            place. Smaller ones are copied.

        Returns:
          The function. Its arguments are the function that polls call, or None, and the inputs. A function of fed
          values returns a tuple, or NotImplemented if an argument does not qualify.
        """
        found: list[Callable[..., Any]] = []

        def copy(look: Any = None, *args: Any) -> Any:
            return NotImplemented if lent is not None else found[0](look, *_qualified(self.inputs, args))

        def fail(address: int, status: int) -> Any:
            return _fail(address, status, on_failure)

        names = [ctypes.c_char_p(f"result {i}".encode()) for i in range(len(self.outputs))]
        about = self._description(library.address(core), id(fail), id(copy), names, lent)
        head = _MethodDef(core.encode(), engine.entry_address(), _FASTCALL, None)
        dtypes = [slot.dtype for slot in (*self.inputs, *self.outputs)]
        kept = (about, fail, copy, dtypes, names, library, head)  # the description has their addresses
        made: Callable[..., Any] = _new_function(ctypes.addressof(head), kept, None)
        found.append(made)
        return made

    def _description(
        self, core: int, fail: int, copy: int, names: Sequence[ctypes.c_char_p], lent: Sequence[int] | None
    ) -> bytes:
        """The words that `support` reads: head, records of inputs and of results, dimensions."""
        count, words = len(self.inputs), len(HEAD)
        input_at = 8 * words
        output_at = input_at + 8 * len(INPUT) * count
        dims_at = output_at + 8 * len(OUTPUT) * len(self.outputs)
        records: list[int] = []
        dims: list[int] = []
        scratch = 16  # not empty

        def place_of(slot: Slot, number: int) -> int:
            at = dims_at + 8 * len(dims)
            for axis, dim in enumerate(slot.shape):
                name = f"{number}.{axis}" if dim is None else dim
                dims.append(name if isinstance(name, int) else -1 - (self._symbols.get(name, count) - count))
            return at

        for i, slot in enumerate(self.inputs):
            scalar = id(slot.dtype.type) if slot.shape == () else 0
            records += _words(
                INPUT,
                dtype=id(slot.dtype),
                scalar=scalar,
                rank=len(slot.shape),
                dims_at=place_of(slot, i),
                bytes=slot.dtype.itemsize,
                lent=lent[i] if lent is not None else 0,
            )
        for i, slot in enumerate(self.outputs):
            records += _words(
                OUTPUT,
                dtype=id(slot.dtype),
                scalar=id(slot.dtype.type),
                rank=len(slot.shape),
                dims_at=place_of(slot, -1),
                kind=_kind(slot),
                bytes=slot.dtype.itemsize,
                place=scratch,
                name=ctypes.cast(names[i], ctypes.c_void_p).value or 0,
            )
            scratch += 16 + 8 * len(slot.shape)
            scratch += scratch % 16
        head = _words(
            HEAD,
            core=core,
            fail=fail,
            copy=copy,
            is_long=self.is_long,
            flushes=self.flushes,
            is_guarded=flags.VERIFY.value >= 3,
            is_fed=lent is not None,
            inputs=count,
            symbols=len(self._symbols),
            outputs=len(self.outputs),
            scratch=scratch,
            input_at=input_at,
            output_at=output_at,
        )
        return array.array("q", [*head, *records, *dims]).tobytes()


def _words(names: Sequence[str], **values: int) -> list[int]:
    return [int(values[name]) for name in names]


def _kind(slot: Slot) -> Kind:
    if slot.shape:
        return Kind.COMPUTED if None in slot.shape else Kind.ARRAY
    return Kind.BOOL if slot.dtype.kind == "b" else Kind.PLAIN if slot.dtype.char in _PLAIN else Kind.SCALAR


class _MethodDef(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_function: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def _fail(address: int, status: int, on_failure: OnFailure) -> Any:
    """Raises the error of a call that failed."""
    used = state.pool().states[address]
    error, calls = used.take_failure()
    if error is not None:
        raise error
    if used.layout.exception[0]:
        if status < 0:
            return None  # the caller restores this exception
        try:
            used.raise_exception()
        except DeadlineExceededError:
            on_failure(status, used.counters(), calls)
    if status == state.NO_MEMORY:
        raise MemoryError("no memory for a value of native code")
    on_failure(status, used.counters(), calls)
    raise HeadraceInternalError(f"native code failed at place {status}, and its handler raised nothing")


def _qualified(slots: Sequence[Slot], args: Sequence[Any]) -> list[Any]:
    """Arguments that machine code can read, with copies of those that it cannot.

    Raises:
      InvalidArgumentError: a value from the state has another shape than the graph states.
      HeadraceInternalError: their number, a dtype or a shape is wrong.
    """
    if len(args) != len(slots):
        raise HeadraceInternalError(f"native code has {len(slots)} inputs, and was called with {len(args)}")
    known: dict[str, int] = {}
    out = []
    for i, (slot, arg) in enumerate(zip(slots, args)):
        dtype = slot.dtype
        if type(arg) is int and dtype.kind in "iu" and slot.shape == ():
            try:
                arg = dtype.type(arg)
            except OverflowError:
                raise HeadraceInternalError(f"input {i} of native code is {slot}; {arg} is out of its range") from None
        if not isinstance(arg, (np.ndarray, np.generic)):
            raise HeadraceInternalError(f"input {i} of native code is {slot}; it was called with {type(arg).__name__}")
        # a symbolic dimension that was seen before has a known size
        shape = [
            known.setdefault(dim, n) if isinstance(dim, str) else n if dim is None else dim
            for dim, n in zip(slot.shape, arg.shape)
        ]
        is_alike = arg.dtype.newbyteorder("=") == dtype
        if is_alike and slot.reader is not None and arg.shape != slot.shape:  # some assignments check no shape
            name = slot.reader.name
            raise InvalidArgumentError(
                f"{name!r} read a value of shape {shapes.show(arg.shape)}, and the graph was compiled for the shape "
                f"{list(slot.shape)} that it states: assign a value of that shape",
                name,
                slot.reader,
            )
        if len(slot.shape) != arg.ndim or tuple(shape) != arg.shape or not is_alike:
            raise HeadraceInternalError(
                f"input {i} of native code is {slot}; it was called with {arg.dtype}{list(arg.shape)}"
            )
        if type(arg) is not np.ndarray or arg.dtype is not dtype or not (arg.flags.c_contiguous and arg.flags.aligned):
            copied = np.empty(arg.shape, dtype)
            copied[...] = arg
            arg = copied
        out.append(arg)
    return out
