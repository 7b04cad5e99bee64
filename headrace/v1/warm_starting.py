"""Initial values of variables from another model's checkpoint: `tf.train.warm_start`.

A variable takes a whole tensor of the checkpoint, or, with a vocabulary, the rows (or columns) of the words that the
old and the new vocabulary share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes
from headrace.api.partitioned import PartitionedVariable, parts_of
from headrace.api.variable import Variable
from headrace.v1 import array_ops, checkpoints, initializers
from headrace.v1.gfile import GFile
from headrace.v1.graph import GraphKeys, get_collection, in_default_graph
from headrace.v1.logging import info


class VocabInfo(NamedTuple):
    """Old and new vocabulary of a variable with a row (or column) for each word.

    Attributes:
      new_vocab: path of the file of the new vocabulary, a word a line.
      new_vocab_size: number of its first words that are used.
      num_oov_buckets: number of rows after those of the words.
      old_vocab: path of the file of the old vocabulary.
      old_vocab_size: number of its first words that are used; -1: all.
      backup_initializer: initializer of the rows of new words. None: zeros.
      axis: 0: a row for each word; 1: a column.

    Source: TensorFlow's `tf.train.VocabInfo`.
    """

    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int = -1
    backup_initializer: Any = None
    axis: int = 0


class WarmStartSettings(NamedTuple):
    """Arguments of `tf.train.warm_start`, for an estimator.

    Attributes:
      ckpt_to_initialize_from, vars_to_warm_start, var_name_to_vocab_info, var_name_to_prev_var_name: see `warm_start`.

    Source: TensorFlow 1's `tf.estimator.WarmStartSettings`.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Any = None
    var_name_to_prev_var_name: Any = None


@in_default_graph
def warm_start(
    ckpt_to_initialize_from: str,
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None,
    var_name_to_prev_var_name: Mapping[str, str] | None = None,
) -> None:
    """Lets variables of the default graph begin with values of a checkpoint.

    Args:
      ckpt_to_initialize_from: the prefix of the checkpoint, or a folder, whose newest one is taken.
      vars_to_warm_start: a regular expression for names of trainable variables; a list of them, for all variables; a
        list of variables; or None, for the variables of `var_name_to_vocab_info` alone.
      var_name_to_vocab_info: dict from names of variables to their vocabularies.
      var_name_to_prev_var_name: dict from names of variables to their names in the checkpoint.

    Raises:
      ValueError: a name of a dict is no variable to start, the checkpoint has no such tensor, or a shape differs.
      NotFoundError: there is no checkpoint.

    Source: TensorFlow's `tf.train.warm_start`.
    """
    vocabularies = dict(var_name_to_vocab_info or {})
    previous = dict(var_name_to_prev_var_name or {})
    info("Warm-starting from: %s", ckpt_to_initialize_from)
    left_vocabularies, left_previous = set(vocabularies), set(previous)
    whole: dict[str, Any] = {}
    for name, v in _grouped(vars_to_warm_start, vocabularies).items():
        left_previous.discard(name)
        key = previous.get(name, name)
        if name in vocabularies:
            left_vocabularies.discard(name)
            _start_with_vocabulary(v, ckpt_to_initialize_from, key, vocabularies[name])
        elif vars_to_warm_start is not None:
            whole[key] = v
    if whole:
        checkpoints.init_from_checkpoint(ckpt_to_initialize_from, whole)
    if left_previous:
        raise ValueError(
            "You provided the following variables in var_name_to_prev_var_name that were not used: "
            f"{sorted(left_previous)}.  Perhaps you misspelled them?  Here is the list of viable variable names: "
            f"{[v.op.name for v in get_collection(GraphKeys.GLOBAL_VARIABLES)]}"
        )
    if left_vocabularies:
        raise ValueError(
            "You provided the following variables in var_name_to_vocab_info that were not used: "
            f"{sorted(left_vocabularies)}.  Perhaps you misspelled them?  Here is the list of viable variable names: "
            f"{[v.op.name for v in get_collection(GraphKeys.GLOBAL_VARIABLES)]}"
        )


def _grouped(wanted: Any, vocabularies: Mapping[str, VocabInfo]) -> dict[str, Any]:
    """Returns the variables by name; the parts of one variable are a list."""
    everything = get_collection(GraphKeys.GLOBAL_VARIABLES)
    found: list[Any]
    if isinstance(wanted, str):
        found = get_collection(GraphKeys.TRAINABLE_VARIABLES, wanted)
    elif wanted is None:
        found = [v for v in everything if _name(v) in vocabularies]
    elif not isinstance(wanted, (list, tuple)):
        raise ValueError(f"`vars_to_warm_start must be a `list` or `str`.  Given type is {type(wanted)}")
    elif all(isinstance(x, str) for x in wanted):
        found = [v for v in everything if any(re.match(x, v.op.name) for x in wanted)]
    elif all(isinstance(x, (Variable, PartitionedVariable)) for x in wanted):
        found = [part for x in wanted for part in parts_of(x)]
    else:
        raise ValueError(
            "If `vars_to_warm_start` is a list, it must be all `Variable` or all `str`.  Given types are "
            f"{[type(x).__name__ for x in wanted]}"
        )
    out: dict[str, Any] = {}
    for v in found:
        name = _name(v)
        is_part = name != v.op.name
        if is_part:
            out.setdefault(name, []).append(v)
        else:
            out[name] = v
    return out


def _name(v: Any) -> str:
    return checkpoints.key_of(v)


def _words(path: str, size: int) -> list[str]:
    with GFile(path) as f:
        words: list[str] = f.read().splitlines()
    if size > len(words):
        raise ValueError(f"the vocabulary {path!r} has {len(words)} words, and {size} are to be used")
    return words if size < 0 else words[:size]


def _start_with_vocabulary(v: Any, folder: str, key: str, vocabulary: VocabInfo) -> None:
    """Lets a variable begin with the rows or columns of known words."""
    if isinstance(v, list) and len(v) > 1:
        raise ValueError(
            f"the variable {key!r} is in {len(v)} parts; a variable with a vocabulary must be whole for warm_start"
        )
    v = v[0] if isinstance(v, list) else v
    if vocabulary.axis not in (0, 1):
        raise ValueError(f"axis must be 0 or 1, got {vocabulary.axis}")
    old = {word: i for i, word in reversed(list(enumerate(_words(vocabulary.old_vocab, vocabulary.old_vocab_size))))}
    new = _words(vocabulary.new_vocab, vocabulary.new_vocab_size)
    rows = np.array([*(old.get(w, -1) for w in new), *[-1] * vocabulary.num_oov_buckets], np.int64)
    shape = v.get_shape().as_list()
    if shape[vocabulary.axis] != len(rows):
        raise ValueError(
            f"the variable {v.op.name!r} has the shape {shape}, and its vocabulary {len(rows)} words and buckets along "
            f"axis {vocabulary.axis}"
        )
    make = vocabulary.backup_initializer or initializers.Zeros()

    def value(read: Any) -> Any:
        taken = array_ops.gather(read, np.maximum(rows, 0), axis=vocabulary.axis)
        known = (rows >= 0).reshape([-1 if a == vocabulary.axis else 1 for a in range(len(shape))])
        return array_ops.where(np.broadcast_to(known, shape), taken, make(shape, dtypes.as_dtype(v.dtype).base))

    reader = checkpoints.load_checkpoint(folder)
    if key not in reader.get_variable_to_shape_map():
        raise ValueError(f"Tensor {key} ({v.name}) is not found in {reader.path} checkpoint")
    checkpoints.begin_with(v, reader.path, key, value)
