"""Check of numbers: stops a step at its first NaN or Inf.

**The rule.** A NaN or Inf is *made* by an operation that returns one although none of its inputs has one, or that
returns NaN and has only Inf among its inputs (Inf - Inf, 0 * Inf). The step stops at the first firing that makes one,
before any other operation fires.

A NaN or Inf that came into the step (in a constant, a feed, a variable, an element of a queue) is not made by an
operation. Such an Inf is legal: it masks logits and begins a running minimum. Such a NaN is legal as long as it is
dropped, as by `where(is_nan(x), 0.0, x)`. A NaN that reaches a fetch or the new value of a variable stops the step, and
the error names its source.

**The chain.** From the failing operation the check follows one input of each operation backwards, the most extreme one:
NaN before Inf, before 0, before the number whose magnitude is farthest from 1. Operations that only pass values on
(Switch, Merge, Identity, Enter, NextIteration) are followed and not listed.
"""

from __future__ import annotations

import fnmatch
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, thresholds
from headrace.diagnosis import Diagnosis, Input, Link, OpRef
from headrace.errors import InvalidArgumentError
from headrace.execute import plan as plans
from headrace.execute.blame import where
from headrace.ir.kernel_errors import brief, known_as, place, quoted, ref
from headrace.metadata import NumericsCheck
from headrace.observe.extremes import Extremes, is_finite, is_inexact
from headrace.observe.history import Firing, History, inputs_of
from headrace.opkit.batch_rules import rule_of

if TYPE_CHECKING:
    from headrace.execute.observer import Machine
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Iteration
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.opdef import OpDef


#: How the value of an operation relates to those of its inputs.
_PASSES: Final = "passes"  # it is one of them
_READS: Final = "reads"  # it comes from a constant, a variable, a list or a queue
_COMPUTES: Final = "computes"


def as_number(check: NumericsCheck) -> int:
    """Returns the settings of a check, without `ignore`, as a number."""
    return 1 + 2 * check.inf + 4 * check.sources


def from_number(number: int) -> NumericsCheck:
    """Returns the settings that `as_number` converted."""
    return NumericsCheck(bool(number & 2), bool(number & 4))


class NumericsInspector:
    """Inspector that stops the step at its first bad value.

    Args:
      check: the settings.

    Attributes:
      number: the settings in a message to a worker.
    """

    def __init__(self, check: NumericsCheck) -> None:
        self._check = check
        self.number = as_number(check)
        self._history = History()
        # by operation: its role, and the indices of its outputs that are checked
        self._roles: dict[Operation, tuple[str, tuple[int, ...]]] = {}

    def begins(self, machine: Machine) -> None:
        """Adds the nodes of a device, and checks the constants if they must be finite."""
        self._history.begins(machine)
        if self._check.sources:
            for t in self._history.constants():
                if t.op.type == "Const" and self._is_bad(t.op.attrs["value"]) and not self._is_ignored(t.op):
                    raise self._source_error(t.op, f"the constant {place(t.op)}", t.op.attrs["value"], "")

    def fires(self, machine: Machine, node: PlanNode, it: Iteration, x: Any) -> None:
        """Stops the step if a NaN is about to reach a fetch or a variable."""
        facts = node.op.opdef.facts
        is_write = facts.writes and facts.effect == "resource" and not facts.waits
        if node.kind == plans.DEAD or not (node.real == plans.RETVAL or is_write):
            return
        for k, value in inputs_of(node, it, x):
            if is_inexact(value) and np.isnan(value).any():
                end = f"reaches {place(node.op)}" if is_write else f"reaches the fetch {quoted(node.op.inputs[k])}"
                raise self._inherited(node, it, k, value, end)

    def fired(self, machine: Machine, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...]) -> None:
        """Keeps the values of a firing, and stops the step at bad ones."""
        if node.kind == plans.DEAD:
            return
        firing = self._history.add(node, it, x, values)
        role, checked = self._role(node)
        if not checked or role == _PASSES or (role == _READS and not self._check.sources):
            return
        for k in checked:
            if k >= len(values) or not self._is_bad(values[k]):
                continue
            if role == _READS:
                what = f"the fed '{known_as(node.op.outputs[k])}'" if x is None else place(node.op) + _state_of(node.op)
                raise self._source_error(node.op, what, values[k], where(it))
            if self._is_made(firing, values[k]):
                raise self._made(firing, k)

    # *** rules ***

    def _role(self, node: PlanNode) -> tuple[str, tuple[int, ...]]:
        op = node.op
        found = self._roles.get(op)
        if found is None:
            if op.opdef.primitive or op.opdef.facts.forwards is not None or node.real in _ENDS:
                role = _PASSES
            elif op.type == "Const" or node.real == plans.ARG or any(map(_is_state, op.inputs)):
                role = _READS
            else:
                role = _COMPUTES
            outs = tuple(t.index for t in op.outputs if t.dtype.is_floating or t.dtype.is_complex)
            found = self._roles[op] = role, (() if self._is_ignored(op) else outs)
        return found

    def _is_ignored(self, op: Operation) -> bool:
        return any(fnmatch.fnmatchcase(op.name, pattern) for pattern in self._check.ignore)

    def _is_bad(self, value: Any) -> bool:
        if not is_inexact(value) or is_finite(value):
            return False
        return self._check.inf or bool(np.isnan(value).any())

    def _is_made(self, firing: Firing, value: Any) -> bool:
        """Whether a firing made its bad value, by the rule of the module.

        The elements of an elementwise operation are compared one by one.
        """
        inputs = [v for _, v in inputs_of(*firing[:3]) if is_inexact(v) and not is_finite(v)]
        nan: Any = np.isnan(value)
        inf: Any = np.isinf(value) if self._check.inf else np.False_
        nan_in: Any = np.False_
        bad_in: Any = np.False_
        is_elementwise = _is_elementwise(firing.node.op.opdef)
        for v in inputs:
            of, bad = np.isnan(v), ~np.isfinite(v)
            nan_in = nan_in | (of if is_elementwise else of.any())
            bad_in = bad_in | (bad if is_elementwise else bad.any())
        return bool((nan & ~nan_in).any() or (inf & ~bad_in).any())

    # *** errors ***

    def _made(self, firing: Firing, output: int) -> InvalidArgumentError:
        op, found = firing.node.op, Extremes.of(firing.values[output])
        inputs = inputs_of(*firing[:3])
        kind = "NaN" if found.nans else "Inf"
        bad = [Extremes.of(v) for _, v in inputs if is_inexact(v) and not is_finite(v)]
        given = " from finite inputs" if inputs else ""
        if bad:
            given = " at elements where its inputs have none" if any(x.nans for x in bad) else " from Inf"
        text = f"{place(op)} made the first {kind} of the step{given}: its output {output} is {found}"
        return self._error(text, firing, self._chain(firing))

    def _inherited(self, node: PlanNode, it: Iteration, k: int, value: Any, end: str) -> InvalidArgumentError:
        start = Firing(node, it, value if node.arity == 1 else [None] * k + [value], ())
        chain = self._chain(start, k)
        source = f"its source is {chain[-1].op}: {chain[-1].value}" if chain else "its source is not known"
        text = f"a NaN that no operation of the step made {end}: {Extremes.of(value)}; {source}"
        return self._error(text, start, chain)

    def _source_error(self, op: Operation, what: str, value: Any, at: str) -> InvalidArgumentError:
        named = _users_ref(op)
        error = InvalidArgumentError(f"{what} holds {Extremes.of(value)}", named.name.partition(":")[0], op)
        error.diagnose(Diagnosis(named, at))
        return error

    def _error(self, text: str, firing: Firing, chain: list[Link]) -> InvalidArgumentError:
        op, at = firing.node.op, where(firing.it)
        inputs = tuple(Input(known_as(op.inputs[k]), _show(v)) for k, v in inputs_of(*firing[:3]) if v is not None)
        if op.type == "_Retval":
            op = op.inputs[0].op
        error = InvalidArgumentError(text + (f", in {at}" if at else ""), op.name, op)
        error.diagnose(Diagnosis(ref(op), at, inputs, chain=tuple(chain)))
        return error

    def _chain(self, firing: Firing, position: int | None = None) -> list[Link]:
        """Follows the most extreme inputs backwards from `firing`, or from its input `position`."""
        chain: list[Link] = []
        value: Any = None
        for _ in range(thresholds.HISTORY_FIRINGS):
            inputs = [(k, v) for k, v in inputs_of(*firing[:3]) if is_inexact(v) and position in (None, k)]
            if not inputs and firing.node.real != plans.RECV:
                break
            sources = [(v, self._history.producer(firing.node, firing.it, k)) for k, v in inputs]
            if not sources:  # a token of another device
                sources = [(value, self._history.producer(firing.node, firing.it, 0))]
            # of equals a computed one, and the last, which is the divisor of a quotient
            rank = lambda i: (_extremity(i[1][0]), isinstance(i[1][1], Firing), i[0])
            value, found = max(enumerate(sources), key=rank)[1] if len(sources) > 1 else sources[0]
            position = None
            if found is None:
                break
            if not isinstance(found, Firing):
                chain.append(Link(ref(found.op), f"a constant, {_show(value)}"))
                break
            firing = found
            role, _ = self._role(firing.node)
            if role == _PASSES:
                continue
            op = firing.node.op
            if firing.x is None:
                chain.append(Link(_users_ref(op), _show(value)))
                break
            chain.append(Link(ref(op), _show(value) + _state_of(op), where(firing.it)))
            if role == _READS:
                break
        most = thresholds.NUMERICS_CHAIN
        return chain if len(chain) <= most else [*chain[: most - 1], chain[-1]]


def _users_ref(op: Operation) -> OpRef:
    """Describes an operation; of a feed, the tensor of the user's graph that is fed."""
    return ref(op) if op.type != "_Arg" else OpRef(known_as(op.outputs[0]), "fed")


def _state_of(op: Operation) -> str:
    """Returns an addition that names the state that an operation reads, or ""."""
    source = next((t.op for t in op.inputs if _is_state(t)), None)
    return "" if source is None else f", read from '{source.name}' ({source.type})"


def _is_elementwise(opdef: OpDef) -> bool:
    """Whether elements of the output depend on those at the same place only."""
    return opdef.batch is None and rule_of(opdef) is not None


_ENDS: Final = frozenset({plans.RETVAL, plans.RESULT, plans.PARAM})


def _is_state(t: Tensor) -> bool:
    """Whether a tensor is a variable, a queue or a list."""
    return t.dtype in (dtypes.resource, dtypes.variant) or t.dtype.is_ref


def _show(value: Any) -> str:
    if not is_inexact(value):
        return brief(value)
    return brief(value) if np.size(value) <= _FEW else str(Extremes.of(value))


_FEW: Final = 4  # elements of an array that is shown by its elements


def _extremity(value: Any) -> tuple[int, float]:
    """Order of values by which one may be the reason of a NaN or Inf."""
    found = Extremes.of(value)
    if found.nans or found.infs:
        return (3 if found.nans else 2), 0.0
    with np.errstate(over="ignore"):
        size = np.abs(np.asarray(value)).astype(np.float64)
    if not size.size:
        return 0, 0.0
    if size.min() == 0:
        return 1, 0.0
    return 0, max(abs(math.log(float(size.min()))), abs(math.log(float(size.max()))))
