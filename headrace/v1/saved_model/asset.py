"""Paths of files that belong to a SavedModel."""

from __future__ import annotations

import os
from typing import Any

from headrace.v1.array_ops import constant
from headrace.v1.scoping import init_scope


class Asset:
    """File of a SavedModel, which can be used as a tensor, its path.

    Put `asset_path` into `assets_collection` of a builder, which then copies the file.

    Args:
      path: the path of the file.

    Attributes:
      asset_path: the path, a constant.

    Source: TensorFlow's `tf.saved_model.Asset`.
    """

    def __init__(self, path: Any) -> None:
        with init_scope():
            self.asset_path = constant(os.fspath(path), name="asset_path")

    def as_tensor(self, builder: Any) -> Any:
        """Returns the path as a tensor."""
        return self.asset_path
