"""Checkpoints: savers, the checkpoints of a folder, partial restore, and eager values."""

from headrace.train.saving.latest import (
    checkpoint_exists,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    latest_checkpoint,
    remove_checkpoint,
    update_checkpoint_state,
)
from headrace.train.saving.restoring import (
    CheckpointReader,
    Restored,
    list_variables,
    load_checkpoint,
    load_variable,
    restore,
)
from headrace.train.saving.saver import Saver
from headrace.train.saving.values import load, save

__all__ = [
    "CheckpointReader",
    "Restored",
    "Saver",
    "checkpoint_exists",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load",
    "load_checkpoint",
    "load_variable",
    "remove_checkpoint",
    "restore",
    "save",
    "update_checkpoint_state",
]
