"""Calls of functions by kernels: the functions of datasets, compiled like steps.

The code of a function is compiled once and kept (`programs.Programs`). It runs in the thread of the kernel, with the
resources of the session of that kernel. A function without state is a call of its code, in 2 to 4 µs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags, forking, thresholds
from headrace.compiled_step import Request
from headrace.execute.entered import entered
from headrace.memo import Memo
from headrace.programs import Programs
from headrace.target import LocalTarget

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph
    from headrace.resources.datasets.base import Pass
    from headrace.resources.manager import ResourceManager


class _Compiled:
    """Programs of functions, and the target that runs them."""

    def __init__(self) -> None:
        self.programs: Memo[tuple[FuncGraph, str], Programs] = Memo(
            "functions of datasets", thresholds.DATASET_FUNCTIONS
        )
        self._target: LocalTarget | None = None
        self._forked()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    @property
    def target(self) -> LocalTarget:
        """Target of one CPU, which is made at first use."""
        with self._lock:
            if self._target is None:
                self._target = LocalTarget()
            return self._target

    def of(self, graph: FuncGraph) -> Programs:
        """Returns the programs of a function."""
        key = graph, flags.ENGINE.value
        found = self.programs.get(key)
        if found is None:
            results = list(dict.fromkeys(graph.results))
            request = Request(list(graph.params), results, list(graph.control_results), flags.ENGINE.value)
            found = Programs(request, self.target)
            self.programs.put(key, found)
        return found


_compiled = _Compiled()


def compiled(graph: FuncGraph, resources: ResourceManager) -> Callable[[Sequence[Any], Pass], Sequence[Any]]:
    """Returns a function that calls `graph`; see `ir.kernel_calls.Compiler`."""
    programs, target = _compiled.of(graph), _compiled.target
    distinct = list(dict.fromkeys(graph.results))
    at = [distinct.index(t) for t in graph.results]
    is_plain = at == list(range(len(at)))

    def call(values: Sequence[Any], run: Pass) -> Sequence[Any]:
        found = programs.for_values(values)
        code = found.compiled
        if code is not None and code.is_direct:
            out: Sequence[Any] = code.run(None, values)
        else:
            step = target.step(run.deadline, resources=run.resources_of(graph, resources))
            run.enter(step)
            try:
                if code is not None:  # in this thread, which may wait
                    with entered(code.flushes):
                        out = code.run(step, values)
                else:
                    started = found.start(step)
                    for i, value in enumerate(values):
                        started.feed(i, value)
                    started.run()
                    out = [started.fetch(i) for i in range(len(distinct))]
            finally:
                run.leave(step)
                step.close()
        return out if is_plain else [out[i] for i in at]

    return call
