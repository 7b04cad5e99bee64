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
    """Registers an operation that stands for others."""
    types = {"Tin": list_attr("type"), "Tout": list_attr("type")}
    op(type, "args: Tin", "output: Tout", types, shape=_unknown, grad=missing(_WHY), doc=doc, **how)


_fused_region(
    "_FusedRegion",
    "What the function `_compute`, made of the operations that this one stands for (`compile.fused_regions`), gives.",
    kernel=_kernel,
    facts=Facts(no_fold=True),
)
_fused_region(
    "_FusedRegionOfStep",
    "The same, where the function is made for each step: what it computes has loops, which look whether the step is "
    "still wanted, or reads what others write.",
    stateful=_made_for_a_step,
    facts=Facts(effect="resource"),
)
