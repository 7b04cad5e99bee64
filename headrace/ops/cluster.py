"""Several operations as one node of the token machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, list_attr, missing, op
from headrace.shapes import Shape


def _kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    compute = attrs.get("_compute")
    if not callable(compute):
        raise InvalidArgumentError("_Cluster stands for operations of a compiled step; a graph cannot ask for one")
    return compute


def _unknown(c: Inference) -> list[Shape]:
    return [None] * len(c.attrs["Tout"])


op(
    "_Cluster",
    "args: Tin",
    "output: Tout",
    {"Tin": list_attr("type"), "Tout": list_attr("type")},
    shape=_unknown,
    kernel=_kernel,
    grad=missing("clusters are made of what is to be run, after gradients"),
    facts=Facts(no_fold=True),
    doc="What the function `_compute`, made of the operations that this one stands for (`compile.clusters`), gives.",
)
