"""TensorFlow 1's `tf.sysconfig`: properties of the build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.v1.version import CXX11_ABI_FLAG as CXX11_ABI_FLAG
from headrace.v1.version import CXX_VERSION as CXX_VERSION
from headrace.v1.version import MONOLITHIC_BUILD as MONOLITHIC_BUILD


def get_build_info() -> dict[str, Any]:
    """Returns the kinds of accelerators that the build supports: none.

    Source: TensorFlow's `tf.sysconfig.get_build_info`.

    >>> get_build_info()["is_cuda_build"]
    False
    """
    return {"is_cuda_build": False, "is_rocm_build": False, "is_tensorrt_build": False}


# fmt: off
__all__ = ["CXX11_ABI_FLAG", "CXX_VERSION", "MONOLITHIC_BUILD", "get_build_info"]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
