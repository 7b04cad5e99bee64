"""Functions of the greatest elements of a row, in descending order.

Of fewer than all elements, a heap keeps the best ones, as TensorFlow's `TopN` does. All elements of a short row are
sorted by insertion, as `std::sort` does. Both compare the same pairs as the kernel does in rows that contain NaN
(`opkit.cpp_sorting`), whose order depends on that; in other rows the order is the only one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from headrace.targets.native import scalars
from headrace.targets.native.llvm_text import Function, Module

_BEFORE: Final = [("ptr", "x"), ("i64", "a"), ("i64", "b")]
_INT64: Final = np.dtype(np.int64)


def top(module: Module, n: int, k: int, dtype: np.dtype, index: np.dtype) -> str:
    """Adds the function `void @name(ptr %values, ptr %indices, ptr %x)` of a contiguous row.

    Args:
      module: The module; a function is added once.
      n: The number of elements.
      k: The number of results, from 1 to `n`; if it is `n`, that is at most `cpp_sorting.FEW`.
      dtype: The dtype of the elements.
      index: The dtype of the indices.

    Returns:
      The name, with `@`.
    """
    name = f"top.{k}.of.{n}.{dtype.name}.{index.name}"
    if module.has(name):
        return f"@{name}"
    f = module.function(name, "void", [("ptr noalias", "values"), ("ptr noalias", "indices"), ("ptr", "x")], "nounwind")
    row = _Row(f, dtype)
    if k == 1 < n:
        row.greatest(n)
    elif k < n:
        row.heap(n, k)
    else:
        row.sort(n)
    with f.loop("0", str(k)) as i:
        found = row.item(i)
        to = f.op(f"getelementptr inbounds {scalars.memory_type(index)}, ptr %indices, i64 {i}")
        scalars.store(f, index, scalars.convert(f, found, _INT64, index), to)
        to = f.op(f"getelementptr inbounds {scalars.memory_type(dtype)}, ptr %values, i64 {i}")
        scalars.store(f, dtype, row.key(found), to)
    f.line("ret void")
    return f"@{name}"


@contextlib.contextmanager
def _while(f: Function, condition: Callable[[], str]) -> Iterator[None]:
    """A loop that runs while the i1 that `condition` prints is true."""
    head, body, end = f.new("while"), f.new("do"), f.new("done")
    f.jump(head)
    f.begin(head)
    f.branch(condition(), body, end)
    f.begin(body)
    yield
    f.jump(head)
    f.begin(end)


class _Row:
    """Writer of the function of a row; `items` are indices of its elements.

    Args:
      f: The function.
      dtype: The dtype of the elements.
    """

    def __init__(self, f: Function, dtype: np.dtype) -> None:
        self.f, self.dtype, self.kind = f, dtype, scalars.register_type(dtype)
        self.is_float = dtype.kind not in "iu"
        self.items = ""

    # *** Elements and items ***

    def key(self, at: str, f: Function | None = None) -> str:
        """The element at an index."""
        f = f or self.f
        kind = scalars.memory_type(self.dtype)
        return scalars.load(f, self.dtype, f.op(f"getelementptr inbounds {kind}, ptr %x, i64 {at}"))

    def compared(self, name: str, a: str, b: str, f: Function | None = None) -> str:
        """A comparison of two elements, such as `gt`; it is false if one is NaN."""
        sign = "o" if self.is_float else "" if name == "eq" else "s" if self.dtype.kind == "i" else "u"
        return (f or self.f).op(f"{'fcmp' if self.is_float else 'icmp'} {sign}{name} {self.kind} {a}, {b}")

    def make_items(self, count: int) -> None:
        """Reserves memory of items."""
        self.items = self.f.alloca(f"[{count} x i64]", 16)

    def item(self, at: str, pointer: str = "", f: Function | None = None) -> str:
        """The item at a place."""
        f = f or self.f
        to = f.op(f"getelementptr inbounds i64, ptr {pointer or self.items}, i64 {at}")
        return f.op(f"load i64, ptr {to}, align 8")

    def put(self, at: str, item: str, pointer: str = "", f: Function | None = None) -> None:
        """Prints the assignment of an item."""
        f = f or self.f
        to = f.op(f"getelementptr inbounds i64, ptr {pointer or self.items}, i64 {at}")
        f.line(f"store i64 {item}, ptr {to}, align 8")

    # *** The greatest element ***

    def greatest(self, n: int) -> None:
        """Prints the search of the first greatest element.

        It is element 0 if the last of all comparisons is with NaN.
        """
        f = self.f
        self.make_items(1)
        best, place = f.alloca(self.kind), f.alloca("i64")
        f.line(f"store {self.kind} {self.key('0')}, ptr {best}")
        f.line(f"store i64 0, ptr {place}")
        with f.loop("1", str(n)) as i:
            x, so_far, at = self.key(i), f.op(f"load {self.kind}, ptr {best}"), f.op(f"load i64, ptr {place}")
            stays = self.compared("ge", so_far, x)  # the same value, of which the first counts
            f.line(f"store {self.kind} {f.op(f'select i1 {stays}, {self.kind} {so_far}, {self.kind} {x}')}, ptr {best}")
            f.line(f"store i64 {f.op(f'select i1 {stays}, i64 {at}, i64 {i}')}, ptr {place}")
        found, at = f.op(f"load {self.kind}, ptr {best}"), f.op(f"load i64, ptr {place}")
        if self.is_float:  # an equal element may be before a NaN
            with f.loop("0", str(n)) as j:
                i = f.op(f"sub i64 {n - 1}, {j}")
                is_same = self.compared("eq", self.key(i), found)
                before = f.op(f"load i64, ptr {place}")
                f.line(f"store i64 {f.op(f'select i1 {is_same}, i64 {i}, i64 {before}')}, ptr {place}")
            is_nan = f.op(f"fcmp uno {self.kind} {found}, {found}")
            at = f.op(f"select i1 {is_nan}, i64 0, i64 {f.op(f'load i64, ptr {place}')}")
        self.put("0", at)

    # *** Heap ***

    def heap(self, n: int, k: int) -> None:
        """Prints the selection of the first `k` indices by a heap."""
        f = self.f
        self.make_items(k + 1)
        with f.loop("0", str(k + 1)) as i:
            self.put(i, i)
        with f.loop("0", str((k + 1) // 2)) as i:
            parent = f.op(f"sub i64 {(k - 1) // 2}, {i}")
            self._sink(parent, str(k + 1), self.item(parent))
        self._pop(str(k + 1))
        with f.loop(str(k + 1), str(n)) as i:
            take, on = f.new("take"), f.new("on")
            f.branch(f.op(f"call i1 @{self._before(True)}(ptr %x, i64 {i}, i64 {self.item('0')})"), take, on)
            f.begin(take)
            self.put(str(k), i)
            self._pop(str(k + 1))
            f.jump(on)
            f.begin(on)
        with f.loop("0", str(k - 1)) as i:
            self._pop(f.op(f"sub i64 {k}, {i}"))

    def _pop(self, size: str) -> None:
        """Prints the move of the front of a heap of `size` items to their end."""
        f = self.f
        last = f.op(f"sub i64 {size}, 1")
        item = self.item(last)
        self.put(last, self.item("0"))
        self._sink("0", last, item)

    def _sink(self, hole: str, size: str, item: str) -> None:
        f = self.f
        f.line(f"call void @{self._sinking()}(ptr %x, ptr {self.items}, i64 {hole}, i64 {size}, i64 {item})")

    def _before(self, has_ties: bool) -> str:
        """The function whether an item precedes another one.

        If it `has_ties`, the first one of equal elements does.
        """
        name = f"top.before.{self.dtype.name}.{int(has_ties)}"
        if not self.f.module.has(name):
            f = self.f.module.function(name, "i1", _BEFORE, "nounwind alwaysinline", "internal")
            a, b = self.key("%a", f), self.key("%b", f)
            found = self.compared("lt", b, a, f)
            if has_ties:
                is_not_after = f.op(f"xor i1 {self.compared('gt', b, a, f)}, true")
                is_first = f.op(f"and i1 {is_not_after}, {f.op('icmp slt i64 %a, %b')}")
                found = f.op(f"or i1 {found}, {is_first}")
            f.line(f"ret i1 {found}")
        return name

    def _sinking(self) -> str:
        """The function that moves an item from a hole of a heap to its place."""
        name = f"top.sink.{self.dtype.name}"
        if self.f.module.has(name):
            return name
        before = self._before(True)
        params = [("ptr", "x"), ("ptr", "items"), ("i64", "top"), ("i64", "size"), ("i64", "item")]
        f = self.f.module.function(name, "void", params, "nounwind", "internal")
        hole, child = f.alloca("i64"), f.alloca("i64")

        def get(variable: str) -> str:
            return f.op(f"load i64, ptr {variable}")

        def let(variable: str, value: str) -> None:
            f.line(f"store i64 {value}, ptr {variable}")

        def precedes(a: str, b: str) -> str:
            return f.op(f"call i1 @{before}(ptr %x, i64 {a}, i64 {b})")

        let(hole, "%top")
        let(child, "%top")
        half = f.op(f"ashr i64 {f.op('sub i64 %size, 1')}, 1")
        with _while(f, lambda: f.op(f"icmp slt i64 {get(child)}, {half}")):
            right = f.op(f"shl i64 {f.op(f'add i64 {get(child)}, 1')}, 1")
            left = f.op(f"sub i64 {right}, 1")
            items = self.item(right, "%items", f), self.item(left, "%items", f)
            chosen = f.op(f"select i1 {precedes(*items)}, i64 {left}, i64 {right}")
            self.put(get(hole), self.item(chosen, "%items", f), "%items", f)
            let(child, chosen)
            let(hole, chosen)
        below = f.op("sub i64 %size, 2")
        is_even = f.op(f"icmp eq i64 {f.op('and i64 %size, 1')}, 0")
        is_last = f.op(f"icmp eq i64 {get(child)}, {f.op(f'ashr i64 {below}, 1')}")
        f.branch(f.op(f"and i1 {is_even}, {is_last}"), "single", "up")
        f.begin("single")
        only = f.op(f"add i64 {f.op(f'shl i64 {get(child)}, 1')}, 1")
        self.put(get(hole), self.item(only, "%items", f), "%items", f)
        let(hole, only)
        f.jump("up")
        f.begin("up")

        def rises() -> str:
            """Whether there is a parent that the item does not precede."""
            parent, on = f.new("parent"), f.new("tested")
            is_below = f.op(f"icmp sgt i64 {get(hole)}, %top")
            came = f.current
            f.branch(is_below, parent, on)
            f.begin(parent)
            above = f.op(f"ashr i64 {f.op(f'sub i64 {get(hole)}, 1')}, 1")
            found = precedes(self.item(above, "%items", f), "%item")
            f.jump(on)
            f.begin(on)
            return f.op(f"phi i1 [ false, %{came} ], [ {found}, %{parent} ]")

        with _while(f, rises):
            above = f.op(f"ashr i64 {f.op(f'sub i64 {get(hole)}, 1')}, 1")
            self.put(get(hole), self.item(above, "%items", f), "%items", f)
            let(hole, above)
        self.put(get(hole), "%item", "%items", f)
        f.line("ret void")
        return name

    # *** Insertion ***

    def sort(self, n: int) -> None:
        """Prints the sort of all indices, and of neighbors with equal elements by their index."""
        f = self.f
        self.make_items(n)
        before = self._before(False)

        def precedes(a: str, b: str) -> str:
            return f.op(f"call i1 @{before}(ptr %x, i64 {a}, i64 {b})")

        def is_equal_before(a: str, b: str) -> str:
            is_equal = self.compared("eq", self.key(a), self.key(b))
            return f.op(f"and i1 {is_equal}, {f.op(f'icmp slt i64 {a}, {b}')}")

        with f.loop("0", str(n)) as i:
            self.put(i, i)
        with f.loop("1", str(n)) as i:
            item = self.item(i)
            is_first = precedes(item, self.item("0"))  # it is compared with no other one
            self._insert(i, item, lambda a, b: f.op(f"or i1 {is_first}, {precedes(a, b)}"))
        with f.loop("1", str(n)) as i:
            self._insert(i, self.item(i), is_equal_before)

    def _insert(self, i: str, item: str, precedes: Callable[[str, str], str]) -> None:
        """Prints the move of an item to the front past those that it precedes."""
        f = self.f
        at = f.alloca("i64")
        f.line(f"store i64 {i}, ptr {at}")

        def moves() -> str:
            test, on = f.new("test"), f.new("tested")
            now = f.op(f"load i64, ptr {at}")
            came = f.current
            f.branch(f.op(f"icmp sgt i64 {now}, 0"), test, on)
            f.begin(test)
            found = precedes(item, self.item(f.op(f"sub i64 {now}, 1")))
            f.jump(on)
            f.begin(on)
            return f.op(f"phi i1 [ false, %{came} ], [ {found}, %{test} ]")

        with _while(f, moves):
            now = f.op(f"load i64, ptr {at}")
            left = f.op(f"sub i64 {now}, 1")
            self.put(now, self.item(left))
            f.line(f"store i64 {left}, ptr {at}")
        self.put(f.op(f"load i64, ptr {at}"), item)
