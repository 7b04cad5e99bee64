"""Vector registers of the processor, from which generators choose the sizes of their tiles."""

from __future__ import annotations

from headrace.memo import cached
from headrace.records import record


@record(frozen=True, slots=True)
class Registers:
    """Vector registers.

    Attributes:
      bytes: the bytes of one.
      count: the number of them.
    """

    bytes: int
    count: int


@cached(1, "vector registers")
def of_host() -> Registers:
    """The vector registers of the processor that runs this process."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return Registers(64, 32)
    if features.get("avx"):
        return Registers(32, 16)
    return Registers(16, 16 if features.get("sse2") else 32)
