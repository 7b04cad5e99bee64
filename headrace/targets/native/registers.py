"""Vector registers of the processor, from which generators choose the sizes of their tiles."""

from __future__ import annotations

from headrace.memo import cached
from headrace.records import record
from headrace.targets.native import processor
from headrace.targets.native.compiler import compiler


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
    features = processor.features() or {f[1:] for f in compiler().features.split(",") if f.startswith("+")}
    if "avx512f" in features:
        return Registers(64, 32)
    if "avx" in features:
        return Registers(32, 16)
    return Registers(16, 16 if "sse2" in features else 32)
