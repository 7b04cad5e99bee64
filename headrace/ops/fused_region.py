"""Fused regions: several operations as one node of the executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, list_attr, missing, op
from headrace.shapes import Shape


def _compute(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    compute: Any = attrs.get("_compute")
    if not callable(compute):
        raise InvalidArgumentError("_FusedRegion stands for operations of a compiled step; a graph cannot ask for one")
    return compute


def _kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return _compute(attrs)


def _made_for_a_step(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    return _compute(attrs)(ctx)


def _unknown(c: Inference) -> list[Shape]:
    return [None] * len(c.attrs["Tout"])


_WHY = "fused regions are formed from operations to run, after gradients"


def _fused_region(type: str, doc: str, **how: Any) -> None:
    """Registers an operation that replaces several others."""
    types = {"Tin": list_attr("type"), "Tout": list_attr("type")}
    op(type, "args: Tin", "output: Tout", types, shape=_unknown, grad=missing(_WHY), doc=doc, **how)


_fused_region(
    "_FusedRegion",
    "The results of `_compute`, a function compiled from the replaced operations (`compile.fused_regions`).",
    kernel=_kernel,
    facts=Facts(no_fold=True),
)
_fused_region(
    "_FusedRegionOfStep",
    "`_FusedRegion` with a function made for each step: it has loops, which check for cancellation, or reads "
    "state that other operations write.",
    stateful=_made_for_a_step,
    facts=Facts(effect="resource"),
)
