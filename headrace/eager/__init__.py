"""Ops that run at once: what happens outside every graph.

`EagerBuilder` has the calls of `ir.builder.Builder`, but runs an op instead of adding it to a graph, and gives
`EagerTensor`s, which have values. `headrace/__init__.py` makes one what `api.scopes.builder()` gives outside graphs,
so that the functions of `build` serve both.
"""

from headrace.eager.builder import EagerBuilder
from headrace.eager.tensor import EagerTensor

__all__ = ["EagerBuilder", "EagerTensor"]
