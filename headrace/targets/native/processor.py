"""The processor of this machine, as Linux describes it.

LLVM knows more, but takes some 20 ms of a process to be loaded.
"""

from __future__ import annotations

from typing import Final

from headrace import memo

_STABLE: Final = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


@memo.cached(1, "processor")
def description() -> str:
    """Model and features of the first processor of x86-64; "" if they are not known."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            first = file.read(1 << 14).partition("\n\n")[0]  # the text for all processors takes long
    except OSError:
        return ""
    found = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in first.splitlines())}
    return "\n".join(found[name] for name in _STABLE) if all(name in found for name in _STABLE) else ""


@memo.cached(1, "processor features")
def features() -> frozenset[str]:
    """Features of the processor, as Linux names them; empty if they are not known."""
    return frozenset(description().rpartition("\n")[2].split())
