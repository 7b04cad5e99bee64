"""Fused regions: several operations as one node of the executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.kernel import CPU, override
from headrace.ir.notes import FusedKernel, Notes
from headrace.ir.opdef import Facts, list_attr, missing, op
from headrace.shapes import Shape


def _refuse(*context: Any) -> NoReturn:
    raise InvalidArgumentError("_FusedRegion stands for operations of a compiled step; a graph cannot ask for one")


@override("_FusedRegion", CPU, notes=[FusedKernel])
def _kernel(attrs: Mapping[str, Any], notes: Notes) -> Any:
    return notes[FusedKernel].compute


@override("_FusedRegionOfStep", CPU, form="stateful", notes=[FusedKernel])
def _made_for_a_step(ctx: Any, attrs: Mapping[str, Any], notes: Notes) -> Any:
    return notes[FusedKernel].compute(ctx)


def _unknown(c: Inference) -> list[Shape]:
    return [None] * len(c.attrs["Tout"])


_WHY = "fused regions are formed from operations to run, after gradients"


def _fused_region(type: str, doc: str, **how: Any) -> None:
    """Registers an operation that replaces several others."""
    types = {"Tin": list_attr("type"), "Tout": list_attr("type")}
    op(type, "args: Tin", "output: Tout", types, shape=_unknown, grad=missing(_WHY), doc=doc, **how)


_fused_region(
    "_FusedRegion",
    "The results of a function compiled from the replaced operations (`compile.fused_regions`).",
    kernel=_refuse,
    xp=False,
    facts=Facts(no_fold=True),
)
_fused_region(
    "_FusedRegionOfStep",
    "`_FusedRegion` with a function made for each step: it has loops, which check for cancellation, or reads "
    "state that other operations write.",
    stateful=_refuse,
    facts=Facts(effect="resource"),
)
