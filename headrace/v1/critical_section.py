"""TensorFlow 1's `tf.CriticalSection`: functions of which one runs at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace import dtypes, nest
from headrace.api import scopes
from headrace.ir.graph import Operation
from headrace.v1.graph import get_default_graph, in_default_graph

_EXECUTIONS: Final = "critical_section_executions"  # collection of the graph: (section, resources, is exclusive)


class CriticalSection:
    """Mutex of the session around the operations of functions.

    Args:
      name: name of the mutex; None: "critical_section".
      shared_name: name under which sections of several graphs share the mutex; None: `name`.
      critical_section_def, import_scope: not supported.

    Raises:
      ValueError: `critical_section_def` is given.

    Source: TensorFlow's `tf.CriticalSection`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as session:
      ...     v = tf.get_variable("v", initializer=0.0, use_resource=True)
      ...     section = tf.CriticalSection()
      ...     added = [section.execute(lambda: v.assign_add(1.0)) for _ in range(3)]
      ...     session.run(v.initializer)
      ...     sorted(float(x) for x in session.run(added))
      [1.0, 2.0, 3.0]
    """

    def __init__(
        self,
        name: str | None = None,
        shared_name: str | None = None,
        critical_section_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if critical_section_def is not None or import_scope is not None:
            raise ValueError(
                "CriticalSection(critical_section_def=..., import_scope=...): make the section by its name"
            )
        self.name = name or "critical_section"
        self._make(shared_name or self.name)

    @in_default_graph
    def _make(self, shared_name: str) -> None:
        self._handle = scopes.builder().make("MutexV2", [], {"shared_name": shared_name}, self.name)

    def execute(self, fn: Callable[[], Any], exclusive_resource_access: bool = True, name: str | None = None) -> Any:
        """Returns the results of a function, whose operations run alone in the section.

        Args:
          fn: the function, without arguments.
          exclusive_resource_access: whether no other section may use the variables and other resources of `fn`.
          name: name of the operations.

        Raises:
          ValueError: another section uses a resource of `fn`, and one of the two demands it for itself.

        Source: TensorFlow's `tf.CriticalSection.execute`.
        """
        graph: Any = get_default_graph()
        with graph.as_default(), graph.name_scope(name or "critical_section_execute"):
            builder = scopes.builder(self._handle)
            lock = builder.make("MutexLock", [self._handle], {})
            first = len(graph.operations)
            with graph.control_dependencies([lock.op]):
                found = fn()
            made = graph.operations[first:]
            self._check(graph, made, exclusive_resource_access)
            # all operations of `fn` end before the lock does, those that its results do not need, too
            with graph.control_dependencies(made):
                free = builder.make("ConsumeMutexLock", [lock], {})
            with graph.control_dependencies([free]):
                if found is None or isinstance(found, Operation):
                    return builder.make("NoOp", [], {})
                return nest.map_leaves(_after, found)

    def _check(self, graph: Any, made: list[Operation], is_exclusive: bool) -> None:
        used = {t for op in made for t in op.inputs if t.dtype is dtypes.resource and t is not self._handle}
        for section, others, other_is_exclusive in graph.get_collection(_EXECUTIONS):
            both = used & others
            if section is not self and both and (is_exclusive or other_is_exclusive):
                names = sorted(t.name for t in both)
                raise ValueError(
                    f"the critical sections {self.name!r} and {section.name!r} both use {names}, "
                    "and one demands them for itself; pass exclusive_resource_access=False to both"
                )
        graph.add_to_collection(_EXECUTIONS, (self, used, is_exclusive))


def _after(x: Any) -> Any:
    """Returns a tensor that has the value of a result after the lock has ended."""
    return scopes.builder(x).make("Identity", [x], {})
