"""TensorFlow 1's `tf.version`: versions of the interface, of graphs and of the interpreter."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from headrace import public_names

VERSION = "1.15.0"  # the version of TensorFlow whose API this is
GIT_VERSION = "v1.15.0-headrace"
COMPILER_VERSION = platform.python_compiler()  # of the interpreter: headrace has no compiled part
GRAPH_DEF_VERSION = 2474  # as in `ir.serial.nodedefs`, which is imported with the messages only
GRAPH_DEF_VERSION_MIN_CONSUMER = 0
GRAPH_DEF_VERSION_MIN_PRODUCER = 0

# Settings of a C++ compiler, for ops that programs compile; headrace's ops are written in Python.
CXX11_ABI_FLAG = CXX_VERSION = MONOLITHIC_BUILD = 0

# fmt: off
__all__ = [
    "COMPILER_VERSION", "GIT_VERSION", "GRAPH_DEF_VERSION", "GRAPH_DEF_VERSION_MIN_CONSUMER",
    "GRAPH_DEF_VERSION_MIN_PRODUCER", "VERSION",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
