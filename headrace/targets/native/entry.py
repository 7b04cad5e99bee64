"""Calls of native functions from Python: a function of Python's fast calling convention, in machine code.

    entry = Entry(module, "core", [Slot(np.float32, ("n", 16))], [Slot(np.float32, ("n",))])
    library = engine.compile_module(module.text(), [entry.name])
    function = entry.bind(library, on_failure)
    result = function(look, array)

`ctypes` takes microseconds to convert arguments, and a native step may take less than a tenth of one. So `Entry` adds
a function to the module that reads numpy's objects in memory, makes the results and calls the native function
(the *core*).

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

**Failures.** The handler `on_failure(place, counters)` raises the exception. An exception of `look` is passed on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.errors import HeadraceInternalError
from headrace.targets.native import state
from headrace.targets.native.object_layout import ITEMS_AT, QUALIFIED, TYPE_AT, VALUE_AT, Array

if TYPE_CHECKING:
    from headrace.targets.native.engine import Library
    from headrace.targets.native.llvm_text import Function, Module

#: Handler of a failure: called with the place of the failure and the iterations of the open loops; it raises.
OnFailure = Callable[[int, list[int]], object]

_FASTCALL: Final = 0x80  # METH_FASTCALL
_PLAIN: Final = "bhilqBHILQefd"  # dtypes whose scalars are the head of an object and the value


class Slot:
    """Dtype and shape of an input or a result.

    Args:
      dtype: The dtype, in native byte order and without objects.
      shape: The dimensions. A str is a symbolic dimension: equal names are equal dimensions. None is a symbolic
        dimension without a name in an input, and one that the core computes in a result.

    Attributes:
      dtype: The dtype.
      shape: The dimensions.
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: Any, shape: Sequence[int | str | None]) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape = tuple(shape)
        if self.dtype.hasobject or self.dtype.kind in "SUMm" or self.dtype.type is np.void:
            raise ValueError(f"native code has no values of dtype {self.dtype}")
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
    """Python function that calls a native function, added to its module.

    Args:
      module: The module that defines the core.
      core: The name of the core.
      inputs: The inputs.
      outputs: The results.
      is_long: Whether the call releases the interpreter's lock. It takes about 50 ns.

    Attributes:
      name: The name of the added function, for `compile_module`.
      inputs: The inputs.
      outputs: The results.
    """

    __slots__ = ("_objects", "inputs", "name", "outputs")

    def __init__(
        self, module: Module, core: str, inputs: Sequence[Slot], outputs: Sequence[Slot], is_long: bool = False
    ) -> None:
        self.name = f"entry.{core}"
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        printer = _Printer(module, self.name, self.inputs, self.outputs)
        printer.print_checks(printer.print_run(core, is_long))
        self._objects = printer.objects

    def bind(self, library: Library, on_failure: OnFailure) -> Callable[..., Any]:
        """Makes the Python function.

        Args:
          library: The compiled module. It lives as long as the function.
          on_failure: The handler of failures.

        Returns:
          The function. Its arguments are the function that polls call, or None, and the inputs.
        """
        found: list[Callable[..., Any]] = []

        def copy(look: Any, *args: Any) -> Any:
            return found[0](look, *_qualified(self.inputs, args))

        def fail(address: int, status: int) -> Any:
            return _fail(address, status, on_failure)

        head = _MethodDef(self.name.encode(), library.address(self.name), _FASTCALL, None)
        kept = (fail, copy, *self._objects, library, head)
        made: Callable[..., Any] = _new_function(ctypes.addressof(head), kept, None)
        found.append(made)
        return made


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
    error, used.error = used.error, None
    if error is not None:
        raise error
    if used.layout.exception[0]:
        return None  # the caller restores this exception
    if status == state.NO_MEMORY:
        raise MemoryError("no memory for a value of native code")
    on_failure(status, used.counters())
    raise HeadraceInternalError(f"native code failed at place {status}, and its handler raised nothing")


def _qualified(slots: Sequence[Slot], args: Sequence[Any]) -> list[Any]:
    """Copies of arguments that machine code can read.

    Raises:
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
        if len(slot.shape) != arg.ndim or tuple(shape) != arg.shape or arg.dtype.newbyteorder("=") != dtype:
            raise HeadraceInternalError(
                f"input {i} of native code is {slot}; it was called with {arg.dtype}{list(arg.shape)}"
            )
        copied = np.empty(arg.shape, dtype)
        copied[...] = arg
        out.append(copied)
    return out


class _Printer:
    """Prints the two functions of an entry: one that checks the inputs, and one that makes the results.

    Args:
      module: The module.
      name: The name of the entry.
      inputs: The inputs.
      outputs: The results.

    Attributes:
      objects: Python objects that the entry uses, in the order of their positions in its tuple.
    """

    def __init__(self, module: Module, name: str, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> None:
        self.objects: list[Any] = []
        self._module, self._name, self._inputs, self._outputs = module, name, inputs, outputs
        self._symbols = symbols(inputs)

    def _object(self, f: Function, wanted: Any) -> str:
        """Prints a load of an object out of the tuple of the function."""
        for i, known in enumerate(self.objects):
            if known is wanted:
                return _item(f, _OBJECTS + i)
        self.objects.append(wanted)
        return _item(f, _OBJECTS + len(self.objects) - 1)

    # *** Inputs ***

    def print_checks(self, run: str) -> None:
        """Prints the function that Python calls: it checks the inputs, takes a state and calls `run`."""
        f = self._module.function(self._name, "ptr", [("ptr", "self"), ("ptr", "args"), ("i64", "count")], "nounwind")
        table = f.alloca(f"[{len(self._inputs) + len(self._symbols) + 1} x ptr]", 8)
        dims = f.alloca(f"[{len(self._symbols) + 1} x i64]", 8)
        _require(f, f"icmp eq i64 %count, {len(self._inputs) + 1}")
        sizes: dict[str, str] = {}
        for i, slot in enumerate(self._inputs):
            arg = f.op(f"load ptr, ptr {_at(f, '%args', 8 * (i + 1))}, align 8", "arg")
            value = self._array(f, i, slot, arg, sizes) if slot.shape else self._scalar(f, slot, arg)
            f.line(f"store ptr {value}, ptr {_at(f, table, 8 * i)}, align 8")
        for name, position in self._symbols.items():
            place = _at(f, dims, 8 * (position - len(self._inputs)))
            f.line(f"store i64 {sizes[name]}, ptr {place}, align 8")
            f.line(f"store ptr {place}, ptr {_at(f, table, 8 * position)}, align 8")
        taken = state.take(f, "none")
        look = f.op("load ptr, ptr %args, align 8", "look")
        f.line(f"ret ptr {f.op(f'call ptr @{run}(ptr {taken}, ptr %self, ptr {look}, ptr {table}, ptr {dims})')}")
        f.begin("none")
        no_memory = self._module.declare("PyErr_NoMemory", "ptr", [])
        f.line(f"ret ptr {f.op(f'call ptr {no_memory}()')}")
        f.begin("copy")
        call = self._module.declare("PyObject_Vectorcall", "ptr", ["ptr", "ptr", "i64", "ptr"])
        f.line(f"ret ptr {f.op(f'call ptr {call}(ptr {_item(f, _COPY)}, ptr %args, i64 %count, ptr null)')}")

    def _array(self, f: Function, number: int, slot: Slot, arg: str, sizes: dict[str, str]) -> str:
        """Prints the checks of an array; returns the address of its elements."""
        _require(f, f"icmp eq ptr {_type(f, arg)}, {_array_type(self._module)}")
        self._check_array(f, slot, arg)
        dimensions = _field(f, arg, "dimensions", "ptr")
        for axis, dim in enumerate(slot.shape):
            size = f.op(f"load i64, ptr {_at(f, dimensions, 8 * axis)}, align 8", "dim")
            known = str(dim) if isinstance(dim, int) else sizes.setdefault(dim or f"{number}.{axis}", size)
            if known != size:
                _require(f, f"icmp eq i64 {size}, {known}")
        return _field(f, arg, "data", "ptr")

    def _check_array(self, f: Function, slot: Slot, arg: str) -> None:
        flags_set = f.op(f"and i32 {_field(f, arg, 'flags', 'i32')}, {QUALIFIED}")
        _require(
            f,
            f"icmp eq i32 {_field(f, arg, 'rank', 'i32')}, {len(slot.shape)}",
            f"icmp eq ptr {_field(f, arg, 'dtype', 'ptr')}, {self._object(f, slot.dtype)}",
            f"icmp eq i32 {flags_set}, {QUALIFIED}",
        )

    def _scalar(self, f: Function, slot: Slot, arg: str) -> str:
        """Prints the checks of an input of rank 0; returns the address of its value."""
        array, number, on = f.new("array"), f.new("number"), f.new("on")
        kind = _type(f, arg)
        f.branch(f.op(f"icmp eq ptr {kind}, {self._object(f, slot.dtype.type)}"), number, array)
        f.begin(array)
        _require(f, f"icmp eq ptr {kind}, {_array_type(self._module)}")
        self._check_array(f, slot, arg)
        data = _field(f, arg, "data", "ptr")
        before = f.current
        f.jump(on)
        f.begin(number)
        value = _at(f, arg, VALUE_AT)
        f.jump(on)
        f.begin(on)
        return f.op(f"phi ptr [ {data}, %{before} ], [ {value}, %{number} ]", "value")

    # *** Results ***

    def print_run(self, core: str, is_long: bool) -> str:
        """Prints the function that makes the results and calls the core; returns its name."""
        module, name = self._module, f"run.{core}"
        params = [("ptr", each) for each in ("state", "self", "look", "inputs", "dims")]
        f = module.function(name, "ptr", params, "nounwind", "internal")
        table = f.alloca(f"[{len(self._outputs) + 1} x ptr]", 8)
        objects = f.alloca(f"[{len(self._outputs) + 1} x ptr]", 8)
        status = f.alloca("i32", 4)
        for i in range(len(self._outputs)):
            f.line(f"store ptr null, ptr {_at(f, objects, 8 * i)}, align 8")
        none = module.add_global("_Py_NoneStruct", "external global i8")
        look = f.op(f"select i1 {f.op(f'icmp eq ptr %look, {none}')}, ptr null, ptr %look")
        state.store(f, look, "look", kind="ptr")
        places = [self._place(f, i, slot, objects) for i, slot in enumerate(self._outputs)]
        for i, place in enumerate(places):
            f.line(f"store ptr {place}, ptr {_at(f, table, 8 * i)}, align 8")
        self._call(f, core, table, status, is_long)
        for i, (slot, place) in enumerate(zip(self._outputs, places)):
            self._finish_output(f, slot, place, _at(f, objects, 8 * i))
        ending = f.op(f"call i32 {state.finish(module)}(ptr %state)", "ending")
        f.line(f"store i32 {ending}, ptr {status}, align 4")
        f.branch(state.unlikely(f, f.op(f"icmp ne i32 {ending}, {state.DONE}")), "refused", "ended")
        f.begin("ended")
        state.give_back(f)
        f.line(f"ret ptr {self._result(f, objects)}")
        self._print_failures(f, objects, status)
        return name

    def _place(self, f: Function, number: int, slot: Slot, objects: str) -> str:
        """Prints the making of a result; returns the address that the core gets."""
        if None in slot.shape:
            return f.alloca(f"[{len(slot.shape) + 1} x i64]", 8)
        if slot.shape:
            dims = f.alloca(f"[{len(slot.shape)} x i64]", 8)
            sizes = [self._size(f, dim) for dim in slot.shape]
            for axis, size in enumerate(sizes):
                f.line(f"store i64 {size}, ptr {_at(f, dims, 8 * axis)}, align 8")
            made = self._new_array(f, slot, dims)
            f.line(f"store ptr {made}, ptr {_at(f, objects, 8 * number)}, align 8")
            if not state.is_guarded():
                return _field(f, made, "data", "ptr")
            return state.allocate(f, _bytes(f, slot, dims), "full", f"output {number}")
        if state.is_guarded():
            return state.allocate(f, slot.dtype.itemsize, "full", f"output {number}")
        return f.alloca(f"[{max(slot.dtype.itemsize, 16)} x i8]", 16)

    def _size(self, f: Function, dim: int | str | None) -> str:
        if isinstance(dim, int):
            return str(dim)
        if dim not in self._symbols:
            raise ValueError(f"no input has the symbolic dimension {dim!r}")
        place = _at(f, "%dims", 8 * (self._symbols[dim] - len(self._inputs)))
        return f.op(f"load i64, ptr {place}, align 8", "dim")

    def _new_array(self, f: Function, slot: Slot, dims: str) -> str:
        """Prints the making of an array with the dimensions at `dims`; returns its name."""
        take = self._module.declare("Py_IncRef", "void", ["ptr"])
        new = self._module.declare(
            "PyArray_NewFromDescr", "ptr", ["ptr", "ptr", "i32", "ptr", "ptr", "ptr", "i32", "ptr"]
        )
        dtype = self._object(f, slot.dtype)
        f.line(f"call void {take}(ptr {dtype})")  # the function takes a reference over
        kind = _array_type(self._module)
        args = f"ptr {kind}, ptr {dtype}, i32 {len(slot.shape)}, ptr {dims}, ptr null, ptr null, i32 0, ptr null"
        return _not_null(f, f.op(f"call ptr {new}({args})", "array"))

    def _call(self, f: Function, core: str, table: str, status: str, is_long: bool) -> None:
        """Prints the call of the core."""
        if is_long:
            save = self._module.declare("PyEval_SaveThread", "ptr", [])
            state.store(f, f.op(f"call ptr {save}()"), "thread", kind="ptr")
        result = f.op(f"call i32 @{core}(ptr %state, ptr %inputs, ptr {table})", "status")
        if is_long:
            restore = self._module.declare("PyEval_RestoreThread", "void", ["ptr"])
            f.line(f"call void {restore}(ptr {state.load(f, 'thread', kind='ptr')})")
            state.store(f, "null", "thread", kind="ptr")
        f.line(f"store i32 {result}, ptr {status}, align 4")
        on = f.new("on")
        f.branch(state.unlikely(f, f.op(f"icmp ne i32 {result}, {state.DONE}")), "failed", on)
        f.begin(on)

    def _finish_output(self, f: Function, slot: Slot, place: str, kept: str) -> None:
        """Prints the end of a result: the object of a scalar, or the copy of elements that are elsewhere."""
        if not slot.shape:
            f.line(f"store ptr {self._new_scalar(f, slot, place)}, ptr {kept}, align 8")
            return
        if None in slot.shape:
            dims = _at(f, place, 8)
            source = f.op(f"load ptr, ptr {place}, align 8")
            f.line(f"store ptr {self._new_array(f, slot, dims)}, ptr {kept}, align 8")
        elif state.is_guarded():
            dims, source = "", place
        else:
            return
        array = f.op(f"load ptr, ptr {kept}, align 8")
        size = _bytes(f, slot, dims or _field(f, array, "dimensions", "ptr"))
        copy = self._module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        f.line(f"call void {copy}(ptr {_field(f, array, 'data', 'ptr')}, ptr {source}, i64 {size}, i1 false)")

    def _new_scalar(self, f: Function, slot: Slot, place: str) -> str:
        """Prints the making of a numpy scalar of the value at `place`; returns its name."""
        module, dtype = self._module, slot.dtype
        if dtype.kind == "b":
            value = f.op(f"icmp ne i8 {f.op(f'load i8, ptr {place}, align 1')}, 0")
            yes, no = self._object(f, np.True_), self._object(f, np.False_)
            made = f.op(f"select i1 {value}, ptr {yes}, ptr {no}")
            f.line(f"call void {module.declare('Py_IncRef', 'void', ['ptr'])}(ptr {made})")
            return made
        if dtype.char in _PLAIN:
            new = module.declare("_PyObject_New", "ptr", ["ptr"])
            made = _not_null(f, f.op(f"call ptr {new}(ptr {self._object(f, dtype.type)})", "scalar"))
            kind = f"i{8 * dtype.itemsize}"
            value = f.op(f"load {kind}, ptr {place}, align {dtype.itemsize}")
            f.line(f"store {kind} {value}, ptr {_at(f, made, VALUE_AT)}, align {dtype.itemsize}")
            return made
        new = module.declare("PyArray_Scalar", "ptr", ["ptr", "ptr", "ptr"])
        return _not_null(f, f.op(f"call ptr {new}(ptr {place}, ptr {self._object(f, dtype)}, ptr null)", "scalar"))

    def _result(self, f: Function, objects: str) -> str:
        """Prints the making of the result of the call."""
        if len(self._outputs) == 1:
            return f.op(f"load ptr, ptr {objects}, align 8")
        if not self._outputs:
            f.line(f"call void {self._module.declare('Py_IncRef', 'void', ['ptr'])}(ptr @_Py_NoneStruct)")
            return "@_Py_NoneStruct"
        new = self._module.declare("PyTuple_New", "ptr", ["i64"])
        put = self._module.declare("PyTuple_SetItem", "i32", ["ptr", "i64", "ptr"])
        made = f.op(f"call ptr {new}(i64 {len(self._outputs)})", "tuple")
        on = f.new("on")
        f.branch(state.unlikely(f, f.op(f"icmp eq ptr {made}, null")), "no_tuple", on)
        f.begin(on)
        for i in range(len(self._outputs)):
            item = f.op(f"load ptr, ptr {_at(f, objects, 8 * i)}, align 8")
            f.op(f"call i32 {put}(ptr {made}, i64 {i}, ptr {item})")
        return made

    def _print_failures(self, f: Function, objects: str, status: str) -> None:
        """Prints the blocks of failures, which drop the results and raise."""
        module = self._module
        f.begin("broken")  # a function of Python or numpy failed and has set an exception
        state.keep_exception(f)
        f.line(f"store i32 {state.STOPPED}, ptr {status}, align 4")
        f.jump("failed")
        if state.is_guarded():
            f.begin("full")
            f.line(f"store i32 {state.NO_MEMORY}, ptr {status}, align 4")
            f.jump("failed")
        f.begin("failed")
        f.op(f"call i32 {state.finish(module)}(ptr %state)")
        f.jump("refused")
        f.begin("refused")
        drop = module.declare("Py_DecRef", "void", ["ptr"])
        self._drop_results(f, objects)
        fail = module.declare("PyObject_Vectorcall", "ptr", ["ptr", "ptr", "i64", "ptr"])
        args = f.alloca("[2 x ptr]", 8)
        whose = f.op(f"call ptr {module.declare('PyLong_FromVoidPtr', 'ptr', ['ptr'])}(ptr %state)")
        code = f.op(f"sext i32 {f.op(f'load i32, ptr {status}, align 4')} to i64")
        what = f.op(f"call ptr {module.declare('PyLong_FromLong', 'ptr', ['i64'])}(i64 {code})")
        f.line(f"store ptr {whose}, ptr {args}, align 8")
        f.line(f"store ptr {what}, ptr {_at(f, args, 8)}, align 8")
        is_short = f.op(f"or i1 {f.op(f'icmp eq ptr {whose}, null')}, {f.op(f'icmp eq ptr {what}, null')}")
        f.branch(is_short, "silent", "handle")
        f.begin("handle")
        result = f.op(f"call ptr {fail}(ptr {_item(f, _FAIL)}, ptr {args}, i64 2, ptr null)")
        f.line(f"call void {drop}(ptr {result})")
        f.jump("silent")
        f.begin("silent")
        f.line(f"call void {drop}(ptr {whose})")
        f.line(f"call void {drop}(ptr {what})")
        is_kept = f.op(f"icmp ne ptr {state.load(f, 'exception', kind='ptr')}, null")
        f.branch(is_kept, "restore", "raise")
        f.begin("restore")
        state.restore_exception(f)
        f.jump("raise")
        f.begin("raise")
        state.give_back(f)
        f.line("ret ptr null")
        if len(self._outputs) > 1:
            f.begin("no_tuple")  # the state is back already
            self._drop_results(f, objects)
            f.line("ret ptr null")

    def _drop_results(self, f: Function, objects: str) -> None:
        drop = self._module.declare("Py_DecRef", "void", ["ptr"])
        for i in range(len(self._outputs)):
            f.line(f"call void {drop}(ptr {f.op(f'load ptr, ptr {_at(f, objects, 8 * i)}, align 8')})")


# the positions of objects in the tuple of an entry
_FAIL, _COPY, _OBJECTS = 0, 1, 2


def _at(f: Function, pointer: str, offset: int) -> str:
    return f.op(f"getelementptr inbounds i8, ptr {pointer}, i64 {offset}", "at") if offset else pointer


def _item(f: Function, position: int) -> str:
    return f.op(f"load ptr, ptr {_at(f, '%self', ITEMS_AT + 8 * position)}, align 8", "object")


def _field(f: Function, array: str, name: str, kind: str) -> str:
    at: int = getattr(Array, name).offset
    return f.op(f"load {kind}, ptr {_at(f, array, at)}, align {4 if kind == 'i32' else 8}", name)


def _type(f: Function, thing: str) -> str:
    return f.op(f"load ptr, ptr {_at(f, thing, TYPE_AT)}, align 8", "type")


def _array_type(module: Module) -> str:
    return module.add_global("PyArray_Type", "external global i8")


def _require(f: Function, *conditions: str) -> None:
    """Prints a branch to the block `copy` unless all conditions hold."""
    both = f.op(conditions[0])
    for each in conditions[1:]:
        both = f.op(f"and i1 {both}, {f.op(each)}")
    on = f.new("on")
    f.branch(state.unlikely(f, f.op(f"xor i1 {both}, true")), "copy", on)
    f.begin(on)


def _not_null(f: Function, pointer: str) -> str:
    on = f.new("on")
    f.branch(state.unlikely(f, f.op(f"icmp eq ptr {pointer}, null")), "broken", on)
    f.begin(on)
    return pointer


def _bytes(f: Function, slot: Slot, dims: str) -> str:
    """Prints the size in bytes of an array that exists, whose dimensions are at `dims`."""
    size = str(slot.dtype.itemsize)
    for axis in range(len(slot.shape)):
        size = f.op(f"mul i64 {size}, {f.op(f'load i64, ptr {_at(f, dims, 8 * axis)}, align 8')}")
    return size
