"""Private attributes of `Session` for white-box tests.

Tests read all other facts from `Session.statistics()` and `Session.explain()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import headrace as hr
from headrace.environment import Environment
from headrace.execute.clock import Clock
from headrace.programs import Programs
from headrace.resources.manager import ResourceManager
from headrace.resources.memory import Memory
from headrace.target import LocalTarget


def step_of(session: hr.Session, fetches: Any, feeds: Iterable[Any] = ()) -> Programs:
    """The step that `session.run(fetches, feed_dict)` runs; `feeds` are the keys of `feed_dict`."""
    return session._call(fetches, dict.fromkeys(feeds)).programs


def is_at_once(session: hr.Session, fetches: Any, feeds: Iterable[Any] = ()) -> bool:
    """Whether further runs are single calls of machine code with fed values."""
    return session._call(fetches, dict.fromkeys(feeds)).at_once is not None


def steps_of(session: hr.Session) -> list[Programs]:
    """All cached steps, the oldest first."""
    return [call.programs for call in session._calls.values()]


def growth_of(session: hr.Session) -> int:
    """Fetches and lines for which the session counts runs after a growth of the graph."""
    return len(session._growth.counts)


def target_of(session: hr.Session) -> LocalTarget:
    """Devices, threads, memory and resources of the session."""
    return session._target


def environment_of(session: hr.Session) -> Environment:
    """Names of devices, measured costs and homes of state."""
    return session._target.environment


def manager_of(session: hr.Session) -> ResourceManager:
    """Owner of the variables, queues and other resources."""
    return session._target.resources


def share_resources(session: hr.Session, other: hr.Session) -> None:
    """Makes `session` use the variables, queues and other resources of `other`."""
    session._target.resources = other._target.resources


def resources_of(session: hr.Session) -> list[Any]:
    """The variables, queues and other resources."""
    return list(manager_of(session)._resources.values())


def memories_of(session: hr.Session) -> list[Memory]:
    """The accounts of the devices with a memory limit."""
    return list(session._target._accounts.memories.values())


def use_clock(session: hr.Session, clock: Clock) -> None:
    """Makes `clock` the time of the deadlines and waits of later steps."""
    session._target.clock = clock
