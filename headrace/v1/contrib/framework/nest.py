"""`tf.contrib.framework.nest`: `tf.nest` and its older name `is_sequence`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1.contrib import equivalents
from headrace.v1.nest import assert_same_structure, flatten, is_nested, map_structure, pack_sequence_as

is_sequence = is_nested

__all__ = ["assert_same_structure", "flatten", "is_nested", "is_sequence", "map_structure", "pack_sequence_as"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
