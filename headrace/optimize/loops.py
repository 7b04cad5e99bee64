"""The passes on loops, in order. `headrace docs reference/loops` shows an example of each."""

from __future__ import annotations

from typing import Final

from headrace.optimize.base import Pass
from headrace.optimize.loop_branch_sums import AddInBranches
from headrace.optimize.loop_counters import UnifyCounters
from headrace.optimize.loop_counts import CountLoops
from headrace.optimize.loop_fission import FissionForward
from headrace.optimize.loop_fusion import FuseLoops
from headrace.optimize.loop_invariants import HoistInvariants
from headrace.optimize.loop_list_writes import DropWrites
from headrace.optimize.loop_product_fission import FissionProducts
from headrace.optimize.loop_reassociation import RegroupFactors, RegroupSums
from headrace.optimize.loop_reduction_sinking import SinkReductions
from headrace.optimize.loop_rows import ReadRows
from headrace.optimize.loop_sinking import SinkCollections
from headrace.optimize.loop_transposes import TurnConstants
from headrace.optimize.loop_variables import MergeVariables

_HOIST: Final = HoistInvariants()

LOOP_PASSES: Final[tuple[Pass, ...]] = (
    UnifyCounters(),  # before all passes that ask for trip counts and rows
    CountLoops(),
    _HOIST,  # the passes on products and sums see that the reads of variables are invariant
    DropWrites(),
    ReadRows(),
    FissionProducts(),
    RegroupSums(),
    RegroupFactors(),
    TurnConstants(),
    _HOIST,
    FissionForward(),
    SinkReductions(),
    SinkCollections(),
    AddInBranches(),
    FuseLoops(),
    MergeVariables(),
)
