"""The rendezvous of senders and receivers.

Either comes first, tokens are live or dead, steps abort, receivers wait with a deadline, and threads are many.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from headrace.errors import AbortedError, DeadlineExceededError, InternalError
from headrace.execute.rendezvous import SHOWN, Key, LocalRendezvous, show, show_tag

pytestmark = pytest.mark.one_engine

EDGE: Key = ("x:0 -> CPU_1", (), 0)
ORIGIN: Any = ("a switch", "an iteration", 1)


def key(i: int) -> Key:
    return ("x:0 -> CPU_1", ((), 0, "while"), i)


def heard() -> tuple[list[Any], Any]:
    got: list[Any] = []
    return got, lambda token, error: got.append((token, error))


def test_the_sender_comes_first() -> None:
    r = LocalRendezvous()
    r.send(EDGE, 7)
    got, receiver = heard()
    r.recv_async(EDGE, receiver)
    assert got == [((7, None), None)]
    assert len(r) == 0


def test_the_receiver_comes_first() -> None:
    r = LocalRendezvous()
    got, receiver = heard()
    r.recv_async(EDGE, receiver)
    assert got == []
    r.send(EDGE, None, ORIGIN)
    assert got == [((None, ORIGIN), None)]
    assert len(r) == 0


def test_taking() -> None:
    r = LocalRendezvous()
    assert r.take(EDGE) is None
    r.send(EDGE, 7)
    assert r.take(EDGE) == (7, None)
    assert r.take(EDGE) is None


def test_iterations_are_apart() -> None:
    r = LocalRendezvous()
    for i in (2, 0, 1):
        r.send(key(i), i)
    assert [r.take(key(i)) for i in range(4)] == [(0, None), (1, None), (2, None), None]


def test_a_name_is_used_once() -> None:
    r = LocalRendezvous()
    r.send(key(3), 1)
    with pytest.raises(InternalError, match="'x:0 -> CPU_1' in while#3 was sent twice"):
        r.send(key(3), 2)
    r = LocalRendezvous()
    r.recv_async(key(3), print)
    with pytest.raises(InternalError, match="'x:0 -> CPU_1' in while#3 has two receivers"):
        r.recv_async(key(3), print)


def test_aborting_wakes_everybody() -> None:
    r = LocalRendezvous()
    error = AbortedError("the other device is gone")
    waits = [heard() for _ in range(3)]
    for i, (_, receiver) in enumerate(waits):
        r.recv_async(key(i), receiver)
    r.send(EDGE, 1)
    r.abort(error)
    r.abort(AbortedError("again"))
    assert [got for got, _ in waits] == [[(None, error)]] * 3
    got, receiver = heard()
    r.recv_async(EDGE, receiver)  # the token from before the abort is gone
    assert got == [(None, error)]
    r.send(key(0), 1)  # late, and dropped
    assert len(r) == 0


def test_receiving_blocks() -> None:
    r = LocalRendezvous()
    threading.Timer(0.02, r.send, (EDGE, 7)).start()
    assert r.recv(EDGE, 10) == (7, None)
    with pytest.raises(DeadlineExceededError, match=r"'x:0 -> CPU_1' was not received within 0.01 s"):
        r.recv(EDGE, 0.01)
    assert len(r) == 0
    threading.Timer(0.02, r.abort, (AbortedError("gone"),)).start()
    with pytest.raises(AbortedError, match="gone"):
        r.recv(EDGE, 10)


def test_forgetting() -> None:
    r = LocalRendezvous()
    got, receiver = heard()
    r.recv_async(EDGE, receiver)
    r.forget(EDGE)
    r.send(EDGE, 7)
    assert got == []
    assert r.take(EDGE) == (7, None)


def test_the_table_tells_who_waits_for_what() -> None:
    r = LocalRendezvous()
    r.recv_async(key(2), print)
    r.send(EDGE, 1)
    r.send(key(4), None, ORIGIN)
    assert r.table() == [
        "'x:0 -> CPU_1' in while#2: awaited, not sent",
        "'x:0 -> CPU_1': sent, not received",
        "'x:0 -> CPU_1' in while#4: sent dead, not received",
    ]
    for i in range(10, 40):
        r.send(key(i), 1)
    assert len(r.table()) == SHOWN + 1
    assert r.table()[-1] == f"and {33 - SHOWN} more"


def test_tags_as_text() -> None:
    assert show_tag((), 0) == ""
    assert show_tag(((((), 0, "outer")), 3, "inner"), 5) == "outer#3/inner#5"
    assert show(("e", (((), 0, "outer"), 3, "inner"), 5)) == "'e' in outer#3/inner#5"


def test_many_threads() -> None:
    """Each token arrives once, at the receiver that requested it.

    Four threads send and four receive, in random orders.
    """
    r = LocalRendezvous()
    n, got, lock = 2000, {}, threading.Lock()

    def receiver(i: int) -> Any:
        def take(token: Any, error: Any) -> None:
            assert error is None
            with lock:
                assert i not in got
                got[i] = token[0]

        return take

    def work(numbers: list[int], sends: bool) -> None:
        for i in numbers:
            if sends:
                r.send(key(i), i * i)
            else:
                r.recv_async(key(i), receiver(i))

    threads = []
    for sends in (True, False):
        numbers = list(range(n))
        random.Random(sends).shuffle(numbers)
        threads += [threading.Thread(target=work, args=(numbers[k::4], sends)) for k in range(4)]
    for t in threads:
        t.start()
    until = time.monotonic() + 30
    for t in threads:
        t.join(until - time.monotonic())
    assert got == {i: i * i for i in range(n)}
    assert len(r) == 0
