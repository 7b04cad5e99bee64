"""Eager execution: ops that run at once, outside of graphs.

`EagerBuilder` has the methods of `ir.builder.Builder`, but runs an op instead of adding it to a graph. It returns
`EagerTensor`s, which have values. `headrace/__init__.py` installs an `EagerBuilder` as the builder that
`api.scopes.builder()` returns outside of graphs. So the functions of `api` work in both cases.
"""

from headrace.eager.builder import EagerBuilder
from headrace.eager.tensor import EagerTensor

__all__ = ["EagerBuilder", "EagerTensor"]
