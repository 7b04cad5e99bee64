"""The memory account of a device, and swapping of loop values to a store.

A `Memory` counts values that outlive an operation: the values that loops keep for their gradients, variables, and the
contents of queues, barriers, staging areas, tables and conditional accumulators (`account`). Temporary values are not
counted. A holder reserves memory before it allocates. The reservation succeeds, or it fails with an error that lists
the holders and the remedies. So a step fails before the process runs out of memory.

**Swapping.** The values that a loop keeps are pushed by its forward loop and popped by its backward loop in reverse
order. So the oldest value is needed last. If a loop may swap, its oldest values are written to a *store* when memory is
nearly full, and they are read ahead of their use. The store of values in the host's memory is a spill file (`spill`). A
device with memory of its own has another store (`device_arrays.Store`). One thread, the *copy stream*, moves the values
while the loop continues:

    resident ──(room is needed)──► leaving ──(written)──► away ──(soon to be popped)──► coming ──(read)──► resident
                                                            ▲                                                 │
                                                            └───(room is needed: it is still in the store)────┘

A quarter of the memory is reserved for this: writing begins when three quarters are full. So a push waits only if all
of the memory is full and no write has finished. In the backward loop, values are read into the memory that pops free.

A device with memory of its own runs behind the host, so pushes would always fill its memory; and its allocator has the
same limit. So there a part of the limit is for temporary values (`thresholds.TEMPORARY_SHARE`). The *room* for values
that are counted is the rest.

**Representation.** A list contains a `SpilledTensor` for each value, with its dtype and shape, whose method `value`
returns the array. Lists are immutable, so an element may be in several lists and be read several times. It is in the
store, in memory, or in both as long as its `SpilledTensor` exists; then its places are freed.

Each `Memory` has one lock. The garbage collector may delete a `SpilledTensor` at any time, inside any function. So the
deletion takes no lock but leaves a note, and the notes are read before each change of the account.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from headrace import forking, step_events, thresholds
from headrace.errors import DataLossError, ResourceExhaustedError
from headrace.metadata import MemoryStatistics
from headrace.records import record
from headrace.resources.spill import SpillFile
from headrace.resources.values import nbytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.device_arrays import ArrayMemory, Store, StoredLayout
    from headrace.resources.values import Value


RESIDENT, LEAVING, AWAY, COMING, GONE = "resident", "leaving", "away", "coming", "gone"


class MemoryUser(Protocol):
    """Step that keeps values in a `Memory`: a `resources.step_memory.StepMemory`.

    Attributes:
      memory: The memory of the device.
      step_id: The number of the step, 0 without a step.
      listener: Receives a `step_events.StreamSpan` for each copy; None for no listener.
    """

    memory: Memory
    step_id: int
    listener: step_events.Listener | None

    def look(self) -> None:
        """Raises if the step was cancelled or is past its deadline."""


@record(eq=False, slots=True)
class Allocation:
    """Memory of one holder: all values of one tensor in one loop, or a variable.

    Attributes:
      name: The name of the holder in messages.
      swaps: Whether the loop may swap; None if the holder is not a loop.
      count: The number of values in memory.
      bytes: The bytes of these values.
    """

    name: str
    swaps: bool | None = None
    count: int = 0
    bytes: int = 0


@record(eq=False, slots=True)
class _Record:
    """State of one value in a memory.

    Attributes:
      use: The step that keeps the value.
      allocation: The allocation for which it is counted.
      nbytes: The bytes that it takes.
      value: The array, if it is in memory.
      layout: The layout of the array in the store; None if it is never written.
      state: The state, see the module's text; GONE if no `SpilledTensor` refers to it.
      slot: Its place in the store, after it was written.
      buffer: The memory into which it is read.
      is_read: Whether a thread reads it now, in the state COMING.
      is_dropped: Whether its `SpilledTensor` was deleted.
    """

    use: MemoryUser
    allocation: Allocation
    nbytes: int
    value: Value
    layout: StoredLayout | None
    state: str = RESIDENT
    slot: Any = None
    buffer: Any = None
    is_read: bool = False
    is_dropped: bool = False


class SpilledTensor:
    """Value kept for a gradient, in memory or in the store; see the module's text.

    Attributes:
      dtype: The dtype of the value.
      shape: The shape of the value.
      nbytes: The bytes of the value.
    """

    __slots__ = ("_record", "dtype", "nbytes", "shape")

    def __init__(self, record: _Record) -> None:
        value = record.value
        self._record = record
        self.dtype: np.dtype = value.dtype
        self.shape: tuple[int, ...] = value.shape
        self.nbytes: int = value.nbytes

    def value(self) -> Value:
        """The value, after a wait if it must be read.

        Raises:
          ResourceExhaustedError: Memory has no room for it.
          DataLossError: It cannot be read from the store.
          Exception: The error with which the step was cancelled during the wait.
        """
        record = self._record
        memory = record.use.memory
        if record.layout is not None:
            memory.note(record)
        value = record.value
        return memory.fetch_back(record) if value is None else value

    @property
    def is_away(self) -> bool:
        """Whether it is in the store alone and no read of it was requested."""
        return self._record.state == AWAY

    def want(self) -> bool:
        """Requests a read ahead of use; returns False if there is no room."""
        record = self._record
        return record.state == RESIDENT or record.use.memory.want(record)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value(), dtype=dtype, copy=copy)

    def __add__(self, other: Any) -> Any:
        return self.value() + other

    def __del__(self) -> None:
        record = self._record
        record.is_dropped = True
        record.value = None
        record.use.memory.note(record)

    def __repr__(self) -> str:
        return f"SpilledTensor({self.dtype}{list(self.shape)}, {self._record.state})"


def prefetch(items: Any, at: int, step: int) -> None:
    """Requests reads of a few elements of a list that will soon be used.

    The elements are those from `at` on, in the direction `step`. Nothing is requested while half of them are in memory,
    because several are read together.

    Args:
      items: A list or a `Vector`.
      at: The position of the first element.
      step: The direction: 1 or -1.
    """
    n, half = len(items), at + thresholds.PREFETCHED_ELEMENTS // 2 * step
    if 0 <= half < n and type(items[half]) is SpilledTensor and not items[half].is_away:
        return
    for i in range(at, at + thresholds.PREFETCHED_ELEMENTS * step, step):
        if not 0 <= i < n:
            break
        item = items[i]
        if type(item) is SpilledTensor and not item.want():
            break


class Memory:
    """Account of one device; see the module's text. Thread safe.

    Args:
      device: The name of the device, for messages and events.
      limit: The bytes that the device may hold; None for any number.
      submit: Submits work to the copy stream of the device, which runs it in order; None disables swapping.
      place: The memory of the values; None for the host's.

    Attributes:
      device: The name of the device.
      limit: The bytes that the device may hold; None for any number.
      place: The memory of the values; None for the host's.
      bytes_out: The bytes written to the store.
      bytes_in: The bytes read from the store.

    Example:
      >>> from headrace.resources.memory import Memory
      >>> memory = Memory("/device:CPU:0", 1000)
      >>> memory.change("variable 'v'", 0, 600)
      >>> memory.change("variable 'w'", 0, 600)
      Traceback (most recent call last):
      headrace.errors.ResourceExhaustedError: /device:CPU:0 would exceed its memory limit of 1,000 bytes: ...
    """

    def __init__(
        self,
        device: str,
        limit: int | None,
        submit: Callable[[Callable[[], object]], object] | None = None,
        place: ArrayMemory | None = None,
    ) -> None:
        self._submit = submit
        self.device = device
        self.limit = limit
        self.place = place
        self._store: Store = (None if place is None else place.store()) or SpillFile(place)
        is_far = place is not None and not place.is_near
        self._room = room = 0 if limit is None else limit - (limit // thresholds.TEMPORARY_SHARE if is_far else 0)
        self._soft = room - room // 4  # above it, the oldest values leave
        self._held = self._peak = self._leaving = self._coming = 0
        self._allocations: dict[str, Allocation] = {}
        self._changed = threading.Condition(threading.Lock())
        self._resident: collections.OrderedDict[_Record, None] = collections.OrderedDict()  # may leave, in this order
        self._notes: collections.deque[_Record] = collections.deque()
        self._failure: OSError | None = None
        self._to_read: collections.deque[_Record] = collections.deque()
        self._to_write: collections.deque[_Record] = collections.deque()
        self._is_going = False  # whether work is in the stream
        self.bytes_out = self.bytes_in = 0
        if place is not None:
            place.accounts.add(self)
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork and drops pending copies of the parent; see `forking`."""
        self._changed = threading.Condition(threading.Lock())
        self._to_read.clear()
        self._to_write.clear()
        self._is_going = False

    # *** reports ***

    def statistics(self) -> MemoryStatistics:
        """A snapshot of the account."""
        allocated = (0, 0) if self.place is None else self.place.figures()
        return MemoryStatistics(self.held, self.peak, self.spilled, self.bytes_out, self.bytes_in, *allocated)

    def holders(self) -> str:
        """The largest holders as text; "" if nothing is held."""
        with self._changed:
            self._settle()
            return self._largest()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        with self._changed:
            self._settle()
            return self._held

    @property
    def peak(self) -> int:
        """Maximum of the bytes held so far."""
        return self._peak

    @property
    def spilled(self) -> int:
        """Bytes of the store that are in use."""
        with self._changed:
            self._settle()
            return self._store.used

    # *** values that are never swapped ***

    def change(self, what: str, before: int, after: int) -> None:
        """Changes the bytes held for `what` from `before` to `after`, ahead of the allocation.

        Raises:
          ResourceExhaustedError: The memory limit would be exceeded.
        """
        with self._changed:
            if after > before:
                self._make_room(after - before, what, None, None)
            if before:
                self._lose(self._allocation(what, None), before)
            if after:
                self._gain(self._allocation(what, None), after)
            self._changed.notify_all()

    def close(self) -> None:
        """Closes the store and loses its contents. Further calls have no effect."""
        with self._changed:
            self._store.close()

    # *** values that loops keep ***

    def save(self, use: MemoryUser, value: Value, what: str, may_swap: bool) -> SpilledTensor:
        """See `StepMemory.save`."""
        layout = self._store.layout_of(value) if may_swap and self._submit is not None else None
        n = nbytes_of(value) if layout is None else layout.span
        with self._changed:
            self._make_room(n, what, may_swap, use)
            record = _Record(use, self._allocation(what, may_swap), n, value, layout)
            self._gain(record.allocation, n)
            if layout is not None:
                self._resident[record] = None
        return SpilledTensor(record)

    def note(self, record: _Record) -> None:
        """Records that a value was read or deleted, without waiting for the lock."""
        self._notes.append(record)
        if len(self._notes) > thresholds.RELEASE_NOTES and self._changed.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._changed.release()

    def want(self, record: _Record) -> bool:
        """See `SpilledTensor.want`."""
        with self._changed:
            self._settle()
            if record.state == LEAVING:
                self._stay(record)
            elif record.state == AWAY:
                if self.limit is not None and self._held + record.nbytes > self._soft:
                    return False
                self._begin(record)
                self._to_read.append(record)
                self._go()
        return True

    def fetch_back(self, record: _Record) -> Value:
        """See `SpilledTensor.value`."""
        while True:
            with self._changed:
                if record.state == AWAY:
                    self._make_room(record.nbytes, record.allocation.name, True, record.use)
                    if record.state == AWAY:  # no other thread began to read it during the wait for room
                        self._begin(record)
                if record.value is not None:
                    return record.value
                if record.is_read:
                    self._wait(record.use)
                    continue
                record.is_read = True  # the copy stream may still have a request for it in its queue
            try:
                return self._read([record])[0]
            except OSError as e:
                record.use.look()
                raise DataLossError(f"{record.allocation.name} was swapped, and cannot be read again: {e}") from e

    # *** the account; the lock is held ***

    def _allocation(self, what: str, swaps: bool | None) -> Allocation:
        found = self._allocations.get(what)
        if found is None:
            found = self._allocations[what] = Allocation(what, swaps)
        return found

    def _gain(self, allocation: Allocation, n: int) -> None:
        allocation.count += 1
        allocation.bytes += n
        self._held += n
        self._peak = max(self._peak, self._held)

    def _lose(self, allocation: Allocation, n: int) -> None:
        allocation.count -= 1
        allocation.bytes -= n
        self._held -= n
        if not allocation.count:
            del self._allocations[allocation.name]

    def _make_room(self, n: int, what: str, swaps: bool | None, use: MemoryUser | None) -> None:
        """Lets values leave until `n` bytes are free, and waits for that if necessary.

        Raises:
          ResourceExhaustedError: That much memory cannot become free.
        """
        self._settle()
        while self.limit is not None:
            if self._failure is not None:
                error, self._failure = self._failure, None
                raise self._exhausted(n, what, swaps, error) from error
            if n <= self._room:
                self._let_go(self._held - self._leaving + n - self._soft)
            if self._held + n <= self._room:
                break
            if not (self._leaving or self._coming) or n > self._room:
                raise self._exhausted(n, what, swaps)
            self._wait(use)

    def _wait(self, use: MemoryUser | None) -> None:
        self._changed.wait(thresholds.COPY_POLL)
        if use is not None:
            use.look()
        self._settle()

    def _let_go(self, excess: int) -> None:
        """Lets the values that are needed last leave, until `excess` bytes are leaving.

        A little more leaves as well, because copies that are made together cost less than single ones.
        """
        if excess > 0:
            excess += self._room // 16
        while excess > 0 and self._resident:
            record, _ = self._resident.popitem(last=False)
            excess -= record.nbytes
            if record.slot is None:
                record.state = LEAVING
                self._leaving += record.nbytes
                self._to_write.append(record)
                self._go()
            else:  # it is already in the store, since it left before
                self._put_away(record)

    def _put_away(self, record: _Record) -> None:
        record.state, record.value = AWAY, None
        self._lose(record.allocation, record.nbytes)

    def _go(self) -> None:
        """Submits all pending copies as one piece of work.

        A piece of work for each copy would cost more than most copies.
        """
        if not self._is_going:
            assert self._submit is not None
            self._is_going = True
            self._submit(self._copy)

    def _stay(self, record: _Record) -> None:
        """Cancels the leaving of `record`."""
        record.state = RESIDENT
        self._leaving -= record.nbytes
        self._resident[record] = None

    def _begin(self, record: _Record) -> None:
        """Begins the read of `record`, for which there is room.

        The array is allocated here and not in the thread that reads, because C libraries keep memory for each thread.
        """
        assert record.layout is not None
        record.buffer = self._store.buffer(record.layout)
        record.state, record.is_read = COMING, False
        # the previous allocation may be deleted
        record.allocation = self._allocation(record.allocation.name, record.allocation.swaps)
        self._gain(record.allocation, record.nbytes)
        self._coming += record.nbytes

    def _settle(self) -> None:
        """Processes the notes."""
        notes = self._notes
        while notes:
            record = notes.popleft()
            if record.is_dropped:
                self._forget(record)
            elif record in self._resident:  # it was read and is still in a list, so it is needed after all others
                self._resident.move_to_end(record, last=False)

    def _forget(self, record: _Record) -> None:
        state, record.state = record.state, GONE
        if state == GONE:
            return
        if state != AWAY:
            self._lose(record.allocation, record.nbytes)
        if state == LEAVING:
            self._leaving -= record.nbytes
        elif state == COMING:
            self._coming -= record.nbytes
        self._resident.pop(record, None)
        record.value = None
        slot, record.slot = record.slot, None
        if slot is not None:
            self._store.free(slot)

    # *** copies; without the lock ***

    def _copy(self) -> None:
        """Copies until no copy is pending."""
        try:
            while (found := self._next()) is not None:
                records, are_read = found
                if not are_read:
                    self._write(records)
                    continue
                with contextlib.suppress(OSError, ResourceExhaustedError):  # `fetch_back` tries again and raises it
                    self._read(records)
        except BaseException:  # raised by a listener: later copies must still be made
            with self._changed:
                self._is_going = False
                self._go()
            raise

    def _next(self) -> tuple[list[_Record], bool] | None:
        """The next copies to make together, reads first, and whether they are reads."""
        with self._changed:
            records: list[_Record] = []
            while self._to_read and len(records) < thresholds.COPIED_TOGETHER:
                record = self._to_read.popleft()
                if record.state == COMING and not record.is_read:  # else another thread reads it, or it was deleted
                    record.is_read = True
                    records.append(record)
            if records:
                return records, True
            while self._to_write and len(records) < thresholds.COPIED_TOGETHER:
                record = self._to_write.popleft()
                if record.state == LEAVING and not record.is_dropped:  # else it stays, or is no longer needed
                    records.append(record)
            if records:
                return records, False
            self._is_going = False
            return None

    def _write(self, records: Sequence[_Record]) -> None:
        """Writes `records`, whose state is `LEAVING`."""
        there = [(r, r.layout, r.value) for r in records]
        pieces = [(r, layout, value) for r, layout, value in there if layout is not None and value is not None]
        began = time.perf_counter_ns()
        slots: list[Any] = []
        store = self._store
        try:
            with self._changed:
                for _, layout, _ in pieces:  # an error leaves the slots before it in the list
                    slots.append(store.reserve(layout.span))
            store.write([(slot, layout, value) for slot, (_, layout, value) in zip(slots, pieces, strict=True)])
        except OSError as e:
            with self._changed:
                self._failure = e
                for slot in slots:
                    store.free(slot)
                for record, _, _ in pieces:
                    if record.state == LEAVING:
                        self._stay(record)
                self._changed.notify_all()
            return
        written = [record for record, _, _ in pieces]
        del there, pieces  # frees the values that have no other reference
        with self._changed:
            for record, slot in zip(written, slots, strict=True):
                self.bytes_out += record.nbytes
                if record.state == LEAVING:
                    record.slot = slot
                    self._leaving -= record.nbytes
                    self._put_away(record)
                elif record.state == RESIDENT:
                    record.slot = slot
                else:
                    store.free(slot)
            self._changed.notify_all()
        self._tell(written, "out", began)

    def _read(self, records: Sequence[_Record]) -> list[Value]:
        """Reads `records`, whose state is `COMING`; the value of a deleted one is None."""
        began, store = time.perf_counter_ns(), self._store
        known = [(r.slot, r.layout, r.buffer) for r in records]
        values: list[Value] = [None] * len(records)
        there = [i for i, (slot, _, _) in enumerate(known) if slot is not None]
        try:
            for i, value in zip(there, store.read([known[i] for i in there]), strict=True):
                values[i] = value
        except (OSError, ResourceExhaustedError):
            with self._changed:
                for record in records:
                    if record.state == COMING:
                        self._coming -= record.nbytes
                        self._put_away(record)
                    record.buffer = None
                self._changed.notify_all()
            raise
        with self._changed:
            for record, value in zip(records, values, strict=True):
                if value is None:
                    continue
                self.bytes_in += record.nbytes
                if record.state == COMING:
                    self._coming -= record.nbytes
                    record.state = RESIDENT
                    record.value = None if record.is_dropped else value
                    self._resident[record] = None
                record.buffer = None
            self._changed.notify_all()
        self._tell(records, "in", began)
        return values

    def _tell(self, records: Sequence[_Record], way: str, began: int) -> None:
        if not records or records[0].use.listener is None:
            return
        use, end = records[0].use, time.perf_counter_ns()
        assert use.listener is not None
        more = f", and {len(records) - 1} more" if len(records) > 1 else ""
        name = f"swap {way}: {records[0].allocation.name}{more}"
        nbytes = sum(r.nbytes for r in records)
        use.listener(step_events.StreamSpan(began, end, use.step_id, self.device, "copy", name, nbytes))

    # *** errors ***

    def _largest(self) -> str:
        largest = sorted(self._allocations.values(), key=lambda h: -h.bytes)
        held = [f"{h.bytes:,} for {h.name}" + (f" ({h.count:,} values)" if h.count > 1 else "") for h in largest[:5]]
        return "; ".join(held) + (f"; and {len(largest) - 5} more" if len(largest) > 5 else "")

    def _exhausted(
        self, n: int, what: str, swaps: bool | None, failed: OSError | None = None
    ) -> ResourceExhaustedError:
        largest, held = self._allocations.values(), self._largest()
        now = f"{self._held:,} bytes are held: {held}" if held else "nothing is held"
        cures = ["let the loop keep less (while_loop(..., save=hr.recompute('sqrt')))"]
        if swaps is None and not any(h.swaps is not None for h in largest):
            cures = ["let what is listed hold less (a queue: a smaller capacity)"]
        cures.append("raise the limit (hr.Session(memory_limit=...))")
        kept = "" if self._room == self.limit else f", of which {self._room:,} are for values that are kept"
        why = ""
        if failed is not None:
            why = f"What leaves memory cannot be written to {self._store.name}: {failed}. "
            cures.insert(0, self._store.remedy)
        elif swaps is False or any(h.swaps is False for h in largest):
            cures.insert(0, "let the loop swap (while_loop(..., swap_memory=True))")
        elif swaps is not None:
            why = f"All that can be swapped is; arrays of less than {thresholds.SPILLED_BYTES:,} bytes never are. "
        advice = ", or ".join(cures)
        return ResourceExhaustedError(
            f"{self.device} would exceed its memory limit of {self.limit:,} bytes{kept}: {what} asks for {n:,} bytes, "
            f"and {now}. {why}{advice[0].upper()}{advice[1:]}"
        )
