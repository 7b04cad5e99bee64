"""TensorFlow 1's `tf.contrib`: the part that programs use, imported on first use.

`headrace docs reference/contrib` lists the names of each module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.v1.contrib import equivalents

__all__ = [
    "crf", "cudnn_rnn", "eager", "framework", "image", "layers", "learn", "legacy_seq2seq", "lookup", "losses",
    "metrics", "opt", "rnn", "seq2seq", "slim", "training",
]  # fmt: skip

# `tf.distributions` has an older name here
_LATER: Final = {name: f"headrace.v1.contrib.{name}" for name in __all__} | {
    "distributions": "headrace.v1:distributions"
}

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__ = equivalents.of(__name__, __all__, _LATER)
