"""Values in files, without a graph or a saver: `save` and `load`.

The saved value is a structure of arrays, variables and numbers. The name of a leaf in the checkpoint is its path:
`{"layer": [w, b]}` has "layer/0" and "layer/1". The file also contains the structure as JSON text, so that `load`
returns the same structure; `load` executes and imports nothing from a file. A flat dict needs no such text: its file
contains only the tensors, under the dict's names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from headrace import nest, recursion
from headrace.api import scopes
from headrace.api.variable import Variable
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.files import checkpoints, commit
from headrace.ir.builder import Builder
from headrace.train.saving.nodes import FORMATS
from headrace.train.saving.restoring import prefix_of

STRUCTURE: Final = "_structure"  # name of the tensor with the JSON text of the structure
MOST_LEVELS: Final = 500  # a level takes two JSON objects, and Python 3.12 reads and writes about 1,500 nested ones
_ROOM: Final = 4 * MOST_LEVELS  # a level takes two calls of the walk and one of the rebuilder


def save(path: str | os.PathLike[str] | Any, values: Any, *, format: str = "native") -> Any:
    """Writes values to a checkpoint. Writing is atomic.

    In eager mode the values are written at once. In a graph, also in a branch or a loop body, the function adds an
    operation that writes them when it runs, in program order with other stateful operations.

    Args:
      path: prefix of the checkpoint's files. In a graph it may be a string tensor.
      values: tensors, arrays, numbers, text, variables, or nested lists, tuples, dicts, named tuples and dataclasses of
        them. The keys of a dict must be text.
      format: "native": safetensors with an index; "tensorflow": TensorFlow's format; "tensorflow-v1": its first format.

    Returns:
      The path. In a graph: the operation.

    Raises:
      InvalidArgumentError: two leaves have the same name, or there is nothing to save.
      TypeError: a leaf cannot be saved, or a key is not text.
      ValueError: the parent of the path's folder does not exist (a missing folder itself is created); or there is no
        such format.
      PermissionDeniedError, ResourceExhaustedError, ...: the files cannot be written; a previous checkpoint is
      unchanged.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> w = hr.Variable([1.0, 2.0])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = hr.train.save(os.path.join(folder, "m"), {"layer": [w, 3], "note": "ok"})
      ...     hr.train.load(path)
      {'layer': [array([1., 2.], dtype=float32), np.int32(3)], 'note': b'ok'}
    """
    if format not in FORMATS:
        raise ValueError(f"no checkpoint format {format!r}; there are {', '.join(map(repr, FORMATS))}")
    leaves: dict[str, Any] = {}
    with recursion.recursion_room(_ROOM):
        text = json.dumps(_named(values, (), leaves, 0), ensure_ascii=False)
    if not leaves:
        raise InvalidArgumentError("there is nothing to save: the structure has no values in it")
    b = scopes.builder(path, *leaves.values())
    is_graph = isinstance(b, Builder)
    named = {name: b.tensor(x) if is_graph else _array(x) for name, x in leaves.items()}
    is_flat = isinstance(values, Mapping) and set(leaves) == set(values)
    if not is_flat:
        named[STRUCTURE] = b.tensor(text) if is_graph else np.array(text.encode(), object)
    if is_graph:
        names = list(named)
        prefix = path if hasattr(path, "dtype") or hasattr(type(path), "as_tensor") else os.fspath(path)
        return b.make(FORMATS[format], (prefix, names, [""] * len(names), list(named.values())), {}, "save")
    prefix = os.fspath(path)
    commit.ready(prefix)
    checkpoints.write(prefix, named, format=format)
    return prefix


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Reads all values of a checkpoint, of `save`, a `Saver` or TensorFlow.

    Args:
      path: prefix of a checkpoint, or a folder, whose newest checkpoint is read.
      like: a structure like the saved one. Only its shape is used: the values take the places of its leaves.

    Returns:
      The saved structure with arrays as leaves; scalars are numpy numbers or bytes. Named tuples and dataclasses become
      dicts of their fields, unless `like` has their types. If the checkpoint contains no structure: a dict by name.

    Raises:
      NotFoundError: there is no checkpoint, or it has no value for a leaf of `like`.
      DataLossError: the checkpoint is damaged.

    Example: see `save`.

    Example:
      >>> import headrace as hr
      >>> import tempfile
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(3.0, name="v")
      ...     saver = hr.train.Saver()
      >>> with hr.Session(graph=g) as sess, tempfile.TemporaryDirectory() as folder:
      ...     sess.run(hr.variables_initializer([v]))
      ...     values = hr.train.load(saver.save(sess, f"{folder}/model"))
      >>> values
      {'v': np.float32(3.0)}
    """
    reader = checkpoints.open(prefix_of(path))

    def value(name: str) -> Any:
        found: Any = reader.read(name)
        return found[()] if getattr(found, "shape", None) == () and found.dtype != object else _plain(found)

    if like is not None:
        leaves: dict[str, Any] = {}
        with recursion.recursion_room(_ROOM):
            _named(like, (), leaves, 0)
            absent = sorted(name for name in leaves if name not in reader.entries)
            if absent:
                raise NotFoundError(f"the checkpoint {os.fspath(path)!r} has no {', '.join(map(repr, absent))}")
            return nest.pack(like, [value(name) for name in leaves], expand=False)
    if STRUCTURE not in reader.entries:
        return {name: value(name) for name in sorted(reader.entries)}
    try:
        with recursion.recursion_room(_ROOM):
            structure = json.loads(_plain(reader.read(STRUCTURE)))
            return _filled(structure, reader.entries, value, 0)
    except (ValueError, RecursionError, TypeError, KeyError) as e:
        raise DataLossError(f"{os.fspath(path)!r} does not say what the structure of its values is: {e}") from None


def _plain(x: Any) -> Any:
    """Returns a scalar string as bytes, other values unchanged."""
    return x.item() if isinstance(x, np.ndarray) and x.shape == () and x.dtype == object else x


def _array(x: Any) -> Any:
    if isinstance(x, Variable):
        return x.numpy()
    made = scopes.runtime().eager.tensor(x).numpy()
    return np.array(made, object) if isinstance(made, bytes) else made


def _named(x: Any, path: tuple[str, ...], leaves: dict[str, Any], depth: int) -> Any:
    """Returns the structure `x` as JSON, with the names of its leaves.

    The leaves are added to `leaves` by name, in the order of `nest`.
    """
    if depth > MOST_LEVELS:
        raise InvalidArgumentError(
            f"a structure of more than {MOST_LEVELS} levels, or one that contains itself, cannot be saved"
        )
    node = nest.nodes[type(x)]
    if node is None or node.is_composite:
        name = "/".join(path) or "value"
        if name in leaves or name == STRUCTURE:
            raise InvalidArgumentError(f"two values come to have the name {name!r}; call one of them otherwise")
        leaves[name] = x
        return name
    keys = node.keys(x)
    if isinstance(x, Mapping):
        for k in x:
            if not isinstance(k, str) or not k:
                raise TypeError(f"the keys of a dict that is saved must be text, got {k!r} ({type(k).__name__})")
    parts = [_named(part, (*path, str(k)), leaves, depth + 1) for k, part in zip(keys, node.parts(x), strict=True)]
    if x is None:
        return None
    if isinstance(keys, range):  # a list or tuple
        return {"tuple" if isinstance(x, tuple) else "list": parts}
    named = dict(zip(keys, parts, strict=True))
    return {"dict": {k: named[k] for k in x} if isinstance(x, Mapping) else named}


def _filled(structure: Any, known: Mapping[str, Any], value: Any, depth: int) -> Any:
    if depth > MOST_LEVELS:
        raise ValueError(f"it has more than {MOST_LEVELS} levels")
    if structure is None:
        return None
    if isinstance(structure, str):
        if structure not in known:
            raise ValueError(f"it names {structure!r}, which is not there")
        return value(structure)
    if not isinstance(structure, dict) or len(structure) != 1:
        raise ValueError(f"{structure!r} means nothing")
    ((kind, parts),) = structure.items()
    if kind == "dict" and isinstance(parts, dict):
        return {k: _filled(v, known, value, depth + 1) for k, v in parts.items()}
    if kind in ("list", "tuple") and isinstance(parts, list):
        filled = [_filled(v, known, value, depth + 1) for v in parts]
        return tuple(filled) if kind == "tuple" else filled
    raise ValueError(f"{kind!r} means nothing")
