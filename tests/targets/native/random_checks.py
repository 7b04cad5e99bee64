"""Comparisons of native code, the Python target and the interpreter on random programs."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest import mock

import numpy as np

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import HeadraceError
from headrace.targets.native import cached_steps, sections
from tests.targets.native import region_running as running
from tests.targets.native.random_regions import Maker

#: Thresholds that make a region of each instruction that can be native.
EVERYWHERE: Final = {"NATIVE_CALL": 0, "NATIVE_ARGUMENT": 0, "NATIVE_LEAST_SAVING": 0}
#: Thresholds that divide arrays of a few bytes into strips.
STRIPS: Final = {"STRIPPED_BYTES": 1, "STRIP_BYTES": 16, "STRIP_ROWS": 1}


def region(seed: int, verify: int = 0, fails: bool = False) -> bool:
    """Compares the step as one native function with the other engines.

    Returns:
      Whether all of it is native.
    """
    with hr.Graph(), flags.override(VERIFY=verify):
        fetches, feeds = Maker(random.Random(seed), fails).program()
        with running.compared(running.close) as seen, hr.Session(engine="compiled") as session:
            got = _outcome(session, fetches, feeds)
        with hr.Session(engine="interpret") as session:
            _compare(got, _outcome(session, fetches, feeds), is_optimized=True)
    return bool(seen.compared)


def step(seed: int, verify: int = 0, fails: bool = False) -> bool:
    """Compares a step of native sections and Python with the other engines.

    Returns:
      Whether it has native code.
    """
    with hr.Graph(), flags.override(VERIFY=verify), mock.patch.multiple(thresholds, **EVERYWHERE):
        fetches, feeds = Maker(random.Random(seed), fails).program()
        with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
            mine = _outcome(session, fetches, feeds)
            is_native = bool(session.explain(fetches, list(feeds)).native_source)
        for engine in "compiled", "interpret":
            with flags.override(NATIVE="off"), hr.Session(engine=engine) as session:
                _compare(mine, _outcome(session, fetches, feeds), is_optimized=engine == "interpret")
    return is_native


def cached(seed: int, verify: int = 0, fails: bool = False) -> bool:
    """Compares a step with the same step whose code is in the object cache.

    Returns:
      Whether it has native code.
    """
    outcomes, sources, printed = [], [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        flags.override(VERIFY=verify, NATIVE="on", CACHE=folder),
        mock.patch.multiple(thresholds, **EVERYWHERE),
        mock.patch.multiple(cached_steps, sources=lambda: "a state", _sources=lambda: "a state"),
        mock.patch.object(sections, "_printed", wraps=sections._printed) as prints,
    ):
        for _ in range(2):
            with hr.Graph(), hr.Session(engine="compiled") as session:
                fetches, feeds = Maker(random.Random(seed), fails).program()
                outcomes.append(_outcome(session, fetches, feeds))
                printed.append(prints.call_count)
                sources.append(session.explain(fetches, list(feeds)).native_source)
    first, second = outcomes
    assert printed[0] == printed[1]
    assert sources[0] == sources[1]
    if isinstance(first, HeadraceError):
        assert (type(first), str(first)) == (type(second), str(second))
    else:
        for x, y in zip(first, second, strict=True):
            np.testing.assert_array_equal(x, y)
    return bool(sources[0])


def _outcome(session: hr.Session, fetches: Any, feeds: Any) -> Any:
    """The results of a step, or its error."""
    try:
        return session.run(fetches, feeds)
    except HeadraceError as e:
        return e


def _compare(got: Any, want: Any, is_optimized: bool = False) -> None:
    """Raises unless both are equal results, or errors of one class.

    The error may be of another operation: any of those that fail.

    Args:
      got: The outcome of native code.
      want: The outcome to compare it with.
      is_optimized: Whether only the first is of an optimized graph, from which an operation that fails may have been
        removed because no result needs it (docs/reference/optimizing.md "Permitted changes").
    """
    if is_optimized and isinstance(want, HeadraceError) and not isinstance(got, HeadraceError):
        return
    assert isinstance(got, HeadraceError) == isinstance(want, HeadraceError), (got, want)
    if isinstance(got, HeadraceError):
        assert type(got) is type(want), (got, want)
        return
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def strips(seed: int, verify: int = 0) -> bool:
    """The same as `region`, with loops over a few rows of small arrays."""
    with mock.patch.multiple(thresholds, **STRIPS):
        return region(seed, verify)


#: The kinds of programs and comparisons. A check returns whether the step had native code.
CHECKS: Final[Mapping[str, Callable[[int], bool]]] = {
    "region": region,
    "region-guarded": lambda seed: region(seed, 3),
    "region-failing": lambda seed: region(seed, 3 * (seed % 2), True),
    "strips": strips,
    "strips-guarded": lambda seed: strips(seed, 3),
    "step": step,
    "step-guarded": lambda seed: step(seed, 3),
    "step-failing": lambda seed: step(seed, 3 * (seed % 2), True),
    "cached": lambda seed: cached(seed, 3 * (seed % 2), bool(seed % 3)),
}

#: Of `PROGRAMS` programs so many are of each kind; steps of several sections take longest.
SHARES: Final = {
    "region": 4,
    "region-guarded": 4,
    "region-failing": 3,
    "strips": 2,
    "strips-guarded": 2,
    "step": 2,
    "step-guarded": 1,
    "step-failing": 2,
    "cached": 1,
}
PROGRAMS: Final = sum(SHARES.values())
