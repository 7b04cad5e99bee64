"""Predicted duration of a step on devices that need not exist: `hr.simulate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace import nest
from headrace.errors import InvalidArgumentError
from headrace.fetches import Fetches, feed_tensors, key_of
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.place import Cluster, Costs, place
from headrace.place.simulate import Simulation, simulate_step


def simulate(
    fetches: Any,
    cluster: Cluster,
    feeds: Sequence[Any] = (),
    costs: Costs | None = None,
    placement: Mapping[str, str] | None = None,
) -> Simulation:
    """Predicts the step `session.run(fetches, ...)` on the devices of `cluster`, without running it.

    Args:
      fetches: as for `Session.run`. At least one is a tensor or an operation, which determines the graph.
      cluster: the devices and links, with their speeds.
      feeds: the keys of the feed dict: tensors or their names.
      costs: measured costs (`Costs.from_events`); None: estimates from shapes alone.
      placement: name of an operation (of the primitive graph, as in traces) → the full name of its device. Other
        operations are placed around these.

    Returns:
      A `Simulation`: the makespan in seconds and the timeline. Printed, it is a picture.

    Raises:
      InvalidArgumentError: the placement is impossible or names an unknown operation, or no fetch determines the graph.
      ValueError: a fetch is not in the graph.

    Example:
      >>> import headrace as hr
      >>> from headrace.place import Cluster
      >>> with hr.Graph():
      ...     x = hr.placeholder(hr.float32, [1024, 1024])
      ...     y = hr.matmul(x, x) + hr.matmul(x, hr.transpose(x))
      >>> devices = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)]
      >>> one, two = [simulate(y, Cluster.local(devices[:n]), [x]).makespan for n in (1, 2)]
      >>> two < 0.6 * one
      True
    """
    # a slow import: the stages of a step, which building a graph does not need
    from headrace.compiled_step import Request
    from headrace.environment import Environment
    from headrace.pipeline import lowered_form, pruned

    graph = _graph(fetches)
    resolved = Fetches(graph, fetches)
    feeds = [t for f in feeds for t in feed_tensors(graph, f)]
    request = Request(feeds, resolved.tensors, resolved.targets)
    environment = Environment(cluster.names)
    lowered = lowered_form(request, environment, pruned(request, environment), False)
    ops = lowered.ops
    first = {}
    if placement:
        by_name = {op.name: op for op in ops}
        unknown = sorted(set(placement) - set(by_name))
        if unknown:
            raise InvalidArgumentError(f"the placement has {', '.join(map(repr, unknown))}, which the step does not")
        first = {by_name[name]: device for name, device in placement.items()}
    found = place(ops, cluster, costs=costs, first=first, functions=lowered.functions)
    return simulate_step(ops, found.of, cluster, costs)


def _graph(fetches: Any) -> Graph:
    """Graph of the first tensor or operation in a fetch structure."""
    key_of(fetches)  # raises the errors of `Session.run`
    for x in nest.flatten(fetches):
        element = x.graph_element if hasattr(type(x), "graph_element") else x
        if isinstance(element, (Tensor, Operation)):
            return element.graph
    raise InvalidArgumentError(
        f"simulate needs a tensor or an operation among its fetches, to know which graph is meant; got {fetches!r}"
    )
