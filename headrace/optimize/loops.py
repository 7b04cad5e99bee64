"""The passes on loops, in order. `docs/loops.md` shows what each does."""

from __future__ import annotations

from typing import Final

from headrace.optimize.base import Pass
from headrace.optimize.loop_branch_sums import AddInBranches
from headrace.optimize.loop_counts import CountLoops
from headrace.optimize.loop_fission import FissionForward
from headrace.optimize.loop_fusion import MergeLoops
from headrace.optimize.loop_invariants import HoistInvariants
from headrace.optimize.loop_product_fission import SplitProducts
from headrace.optimize.loop_reassociation import RegroupFactors, RegroupSums
from headrace.optimize.loop_reduction_sinking import FissionBackward
from headrace.optimize.loop_sinking import CollectBehind
from headrace.optimize.loop_transposes import TurnConstants
from headrace.optimize.loop_variables import MergeVariables

LOOP_PASSES: Final[tuple[Pass, ...]] = (
    CountLoops(),
    SplitProducts(),
    RegroupSums(),
    RegroupFactors(),
    TurnConstants(),
    HoistInvariants(),
    FissionForward(),
    FissionBackward(),
    CollectBehind(),
    AddInBranches(),
    MergeLoops(),
    MergeVariables(),
)
