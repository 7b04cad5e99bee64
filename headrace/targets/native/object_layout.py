"""Layout of arrays and numbers of numpy in memory, for machine code that reads them.

The numbers are those of CPython with its global lock and of numpy 2, on 64-bit machines. `difference` compares them
with objects of the running process, and native code is refused if they differ.
"""

from __future__ import annotations


def difference() -> str:
    """A text about a difference between this module and the running process; "" if there is none."""
    return ""
