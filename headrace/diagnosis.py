"""Descriptions of failed operations as data.

They consist of names, numbers and texts, and refer to no object of a graph or of a run.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class OpRef:
    """Operation that an error names.

    Attributes:
      name: its name.
      type: its op type.
      source: the user's line that created it, as text; "" if unknown.

    Example:
      >>> str(OpRef("sum", "AddV2", "program.py:3 in body"))
      "'sum' (AddV2), made at program.py:3 in body"
    """

    name: str
    type: str
    source: str = ""

    def __str__(self) -> str:
        made = f", made at {self.source}" if self.source else ""
        return f"'{self.name}' ({self.type}){made}"
