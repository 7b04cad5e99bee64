"""Functions that call themselves, as Python sees them: further stacks, and ended calls."""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from headrace import forking, thresholds
from headrace.errors import ResourceExhaustedError

#: Calls whose iterations are kept after a failure, at either end.
_NAMED: Final = 16

_starting = threading.Lock()  # the size of stacks is a property of the process


def _forked() -> None:
    global _starting
    _starting = threading.Lock()


forking.run_after_fork(_forked)


class EndedCalls:
    """Calls that a failure has ended, innermost first.

    Those between the first and the last ones are counted.

    Attributes:
      first: The places of the first ones, and the iterations of the loops in the functions that they called.
      last: Those of the last ones.
      between: The number of calls between, by place.
    """

    __slots__ = ("between", "first", "last")

    def __init__(self) -> None:
        self.first: list[tuple[int, list[int]]] = []
        self.last: deque[tuple[int, list[int]]] = deque()
        self.between: Counter[int] = Counter()

    def add(self, place: int, counters: list[int]) -> None:
        """Adds a call around those that were added."""
        if len(self.first) < _NAMED:
            self.first.append((place, counters))
            return
        self.last.append((place, counters))
        if len(self.last) > _NAMED:
            self.between[self.last.popleft()[0]] += 1


def on_another_stack(call: Callable[[], int], interrupt: Callable[[BaseException], None]) -> int:
    """Calls a function on the stack of a new thread, and waits for it.

    The wait has no deadline of its own: the function polls that of the step.

    Args:
      call: The function.
      interrupt: Takes an exception of this thread, such as KeyboardInterrupt, and makes the function end.

    Returns:
      The result of the function; its exception is raised here.

    Raises:
      ResourceExhaustedError: No thread can be started.
    """
    codes: list[int] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            codes.append(call())
        except BaseException as e:
            errors.append(e)
        finally:
            done.set()

    with _starting:
        before = threading.stack_size(thresholds.NATIVE_STACK_FAR)
        try:
            start_new_thread(run, ())
        except RuntimeError as e:
            raise ResourceExhaustedError(f"deep recursion needs the stack of another thread: {e}") from e
        except BaseException as e:  # KeyboardInterrupt behind the call: the thread has started
            interrupt(e)
        finally:
            threading.stack_size(before)
    while not done.is_set():
        try:
            done.wait()
        except BaseException as e:
            interrupt(e)
    if errors:
        raise errors[0]
    return codes[0]
