"""Placement: each operation of a step gets a device.

    placement = place(ops, Cluster.local(names))
    placement.of[op]                                    # "/job:localhost/replica:0/task:0/device:CPU:1"

`constraints` finds where each operation may stand, `affinity` what had better not be parted, `greedy` where each of the
rest is done earliest by the estimates of `costs`. `simulate` predicts how long a step takes as it is placed.
`docs/how-to/placement.md` tells the whole way.
"""

from __future__ import annotations

import dataclasses
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

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

__all__ = ["Cluster", "Costs", "DeviceModel", "Link", "Placement", "place"]


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Where the operations of a step stand.

    Attributes:
      of: the full name of each operation's device.
      reasons: for operations that are not where they ask to be, why.
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
    """A device for each operation of a step.

    Args:
      ops: of a primitive graph, `_Arg` and `_Retval` ends included.
      cluster: the devices.
      soft: an operation whose request cannot be met goes elsewhere, and `reasons` says why; else that is an error.
      costs: measured costs; None: estimates alone.
      first: where operations stand in any case (variables, since an earlier step).
      functions: for each function that is called in frames of its own its operations. They are placed too: beside the
        calls.

    Raises:
      InvalidArgumentError: no device suits an operation, or those that must stand together; the text lists them, what
        each asks for and where each can run. The frames of the graph do not fit together.
      UnimplementedError: no device has a kernel for an operation.
      NotFoundError: a call of a function that is not there.

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
