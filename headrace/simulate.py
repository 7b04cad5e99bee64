"""How long a step would take on devices that need not be here: `hr.simulate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    """Predicts the step `session.run(fetches, ...)` on the devices of `cluster`. Nothing is run.

    Args:
      fetches: as for `Session.run`; at least one is a tensor or an operation, whose graph it is.
      cluster: the devices: how fast they are and what joins them.
      feeds: what would be fed: tensors or their names.
      costs: measured costs (`Costs.from_events`); None: estimates from shapes alone.
      placement: name of an operation (of the primitive graph, as in traces) → the full name of its device; the rest is
        placed around it.

    Returns:
      A `Simulation`: the makespan in seconds and what works when; print it to see a picture.

    Raises:
      InvalidArgumentError: what is to be placed cannot be, or there is no such operation.
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
    # the stages of a step take a while to import, and most programs never ask
    from headrace.lower.collectives import expand_collectives
    from headrace.pipeline import lowered_form
    from headrace.prune import prune

    graph = _graph(fetches)
    resolved = Fetches(graph, fetches)
    pruned = prune([t for f in feeds for t in feed_tensors(graph, f)], resolved.tensors, resolved.targets)
    lowered = lowered_form(pruned, resolved.targets)
    ops = lowered.ops if len(cluster.devices) == 1 else expand_collectives(lowered.ops)
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
    """The graph of the first tensor or operation in a fetch structure."""
    key: Any = key_of(fetches)  # raises what `Session.run` would
    todo = [key]
    while todo:
        x = todo.pop()
        if isinstance(x, (Tensor, Operation)):
            return x.graph
        if isinstance(x, tuple):
            todo += reversed(x)
        elif hasattr(type(x), "graph_element"):
            todo.append(x.graph_element)
    raise InvalidArgumentError(
        f"simulate needs a tensor or an operation among its fetches, to know which graph is meant; got {fetches!r}"
    )
