"""TensorFlow 1's `tf.resource_loader`: files next to the program."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from headrace import public_names
from headrace.files import local


def _folder_of_caller(depth: int) -> str:
    return os.path.dirname(str(sys._getframe(depth).f_globals.get("__file__", "")))


def get_data_files_path() -> str:
    """Returns the folder of the file of the caller.

    Source: TensorFlow's `tf.resource_loader.get_data_files_path`.
    """
    return _folder_of_caller(2)


def get_path_to_datafile(path: str) -> str:
    """Returns the path of a file in the folder of the caller.

    Args:
      path: the path below that folder.

    Source: TensorFlow's `tf.resource_loader.get_path_to_datafile`.
    """
    return os.path.join(_folder_of_caller(2), path)


def get_root_dir_with_all_resources() -> str:
    """Returns the folder of the file of the caller, where its resources are.

    Source: TensorFlow's `tf.resource_loader.get_root_dir_with_all_resources`.
    """
    return _folder_of_caller(2)


def load_resource(path: str) -> bytes:
    """Returns the contents of a file in the folder of the caller.

    Args:
      path: the path below that folder.

    Raises:
      NotFoundError: there is no such file.

    Source: TensorFlow's `tf.resource_loader.load_resource`, whose paths are below TensorFlow's own folder.
    """
    with local.opened(os.path.join(_folder_of_caller(2), path)) as file:
        data: bytes = file.read()
    return data


def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """Returns `path`: local files need no hint.

    Args:
      path: a path.
      readahead: accepted as in TensorFlow, without effect.

    Source: TensorFlow's `tf.resource_loader.readahead_file_path`.
    """
    return path


# fmt: off
__all__ = [
    "get_data_files_path", "get_path_to_datafile", "get_root_dir_with_all_resources", "load_resource",
    "readahead_file_path",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
