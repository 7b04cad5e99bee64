"""Placement: assigns a device to each operation of a step.

    placement = place(ops, Cluster.local(names))
    placement.of[op]                                    # "/job:localhost/replica:0/task:0/device:CPU:1"

`constraints` finds the devices on which each operation may run. `affinity` joins operations whose separation would cost
more than it gains. `greedy` assigns each remaining group to the device on which it is done earliest, by the estimates
of `costs`. `simulate` predicts the duration of a placed step. `headrace docs how-to/placement` describes the whole
procedure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.ir.analysis import frames
from headrace.place.affinity import contract, join_circles, join_plumbing
from headrace.place.cluster import Cluster, DeviceModel, Link
from headrace.place.colocation import colocation_groups
from headrace.place.constraints import Constraints
from headrace.place.cost_graph import CostGraph
from headrace.place.costs import Costs
from headrace.place.greedy import assign
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

__all__ = ["Cluster", "Costs", "DeviceModel", "Link", "Placement", "place"]


@record(frozen=True, slots=True)
class Placement:
    """The devices of a step's operations.

    Attributes:
      of: the full name of each operation's device.
      reasons: for each operation whose request was not met, the reason.
    """

    of: dict[Operation, str]
    reasons: dict[Operation, str]


def place(
    ops: Sequence[Operation],
    cluster: Cluster,
    *,
    soft: bool = True,
    costs: Costs | None = None,
    first: Mapping[Operation, str] | None = None,
    functions: Mapping[str, Sequence[Operation]] | None = None,
) -> Placement:
    """Assigns a device to each operation of a step.

    Args:
      ops: the operations of a primitive graph, `_Arg` and `_Retval` ends included.
      cluster: the devices.
      soft: whether an operation whose request cannot be met goes to another device, with an entry in `reasons`; else it
        is an error.
      costs: measured costs; None: estimates alone.
      first: fixed devices of operations (of variables, from an earlier step).
      functions: for each function that is called in frames of its own, its operations. They are placed on the device of
        the calls.

    Returns:
      The device of each operation.

    Raises:
      InvalidArgumentError: no device is possible for an operation or a colocated group; the text lists the group, with
        the request and the possible devices of each operation. Or the frames of the graph do not fit together.
      UnimplementedError: an operation without a kernel on any device.
      NotFoundError: a call of a function that is not in `functions`.

    Example:
      >>> from headrace.ir.text import from_text
      >>> g = from_text('a = Const[value=float32[]{2.0}, dtype=float32]\\nb = Neg(a) @"/cpu:1"')
      >>> cluster = Cluster.local([f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)])
      >>> place(g.operations, cluster).of[g.find("b")]
      '/job:localhost/replica:0/task:0/device:CPU:1'
    """
    called = functions or {}
    bodies = {op: name for name, body in called.items() for op in body}
    tree = frames.derive(ops)
    constraints = Constraints(colocation_groups(ops, tree, called), cluster, soft, first or {}, bodies)
    groups = constraints.solve()
    flow = CostGraph(ops, tree, cluster, costs or Costs(), bodies)
    join_plumbing(groups, flow)
    contract(groups, flow)
    join_circles(groups, flow)
    return Placement(assign(groups, flow), constraints.reasons)
