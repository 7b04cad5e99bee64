"""Several operations as one node of the token machine."""

from __future__ import annotations

from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, list_attr, missing, op
from headrace.shapes import Shape


def _unknown(c: Inference) -> list[Shape]:
    return [None] * len(c.attrs["Tout"])


op(
    "_Cluster",
    "args: Tin",
    "output: Tout",
    {"Tin": list_attr("type"), "Tout": list_attr("type")},
    shape=_unknown,
    kernel=lambda xp, attrs: attrs["_compute"],
    grad=missing("clusters are made of what is to be run, after gradients"),
    facts=Facts(no_fold=True),
    doc="What the function `_compute`, made of the operations that this one stands for (`compile.clusters`), gives.",
)
