"""Descriptions of SavedModels, made from their files without the values of variables.

`headrace inspect DIR` prints them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from headrace import dtypes, shapes
from headrace.errors import GraphError
from headrace.inspect.parts import visible
from headrace.interchange import saved_model
from headrace.ir.serial.attrs import decode_dtype, decode_shape
from headrace.saved_model.decoding import decode
from headrace.saved_model.functions import show_signature, show_structure
from headrace.saved_model.graph_models import listed_variables

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef, TensorInfo
    from headrace.pb.saved_object_graph_pb2 import SavedObjectGraph


_LONGEST: Final = 1000  # characters of a line, unless all are shown
_LONGEST_PATH: Final = 200  # characters of a path in the object graph


def describe_model(path: str | os.PathLike[str], limit: int | None = 20) -> str:
    """Returns a text about a SavedModel: tags, signatures, functions, variables and assets of each MetaGraph.

    Characters of the file that do not print are escaped.

    Args:
      path: the folder.
      limit: the number of lines of each list, of 1,000 characters; None: all.

    Raises:
      FileNotFoundError, GraphError: the folder has no SavedModel, or a malformed one.
    """
    model = saved_model.read(path)
    parts = [f"{os.fspath(path)}: a SavedModel with {_count(len(model.meta_graphs), 'MetaGraph')}"]
    for meta in model.meta_graphs:
        kind = "objects of TensorFlow 2" if meta.object_graph_def.nodes else "a graph of TensorFlow 1"
        version = meta.meta_info_def.tensorflow_version or "an unknown version"
        tags = ", ".join(meta.meta_info_def.tags) or "none"
        parts.append(f"\ntags {visible(tags)}: {kind}, written by {visible(version)}")
        count = len(meta.graph_def.node), len(meta.graph_def.library.function)
        parts.append(f"  {_count(count[0], 'operation')}, {_count(count[1], 'function')} in the library")
        for title, lines in (
            ("signatures", _signatures(meta)),
            ("functions", _functions(meta.object_graph_def)),
            ("variables", _variables(meta)),
            ("assets", iter([a.filename for a in saved_model.assets_of(meta)])),
        ):
            parts += _list(title, list(lines), limit)
    return "\n".join(parts)


def _list(title: str, lines: list[str], limit: int | None) -> list[str]:
    if not lines:
        return []
    shown = [visible(line, limit and _LONGEST) for line in lines[:limit]]
    more = [f"    ... and {len(lines) - len(shown)} more (--full)"] if len(shown) < len(lines) else []
    return [f"  {title}", *[f"    {line}" for line in shown], *more]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _signatures(meta: MetaGraphDef) -> Iterator[str]:
    for name in sorted(meta.signature_def):
        if name in saved_model.NO_CALLS:
            continue
        signature = meta.signature_def[name]
        yield name
        for arrow, infos in (("<-", signature.inputs), ("->", signature.outputs)):
            for key in sorted(infos):
                yield f"  {arrow} {key}: {_tensor(infos[key])}"


def _tensor(info: TensorInfo) -> str:
    if info.WhichOneof("encoding") == "composite_tensor":
        return f"a tensor of {len(info.composite_tensor.components)} parts"
    sparse = "sparse " if info.WhichOneof("encoding") == "coo_sparse" else ""
    return f"{sparse}{decode_dtype(info.dtype).name} {shapes.show(decode_shape(info.tensor_shape))}"


def _functions(objects: SavedObjectGraph) -> Iterator[str]:
    paths = _paths(objects)
    for i in sorted(paths, key=lambda i: paths[i]):
        node = objects.nodes[i]
        if node.WhichOneof("kind") != "function" or _is_private(paths[i]):
            continue
        yield paths[i]
        for name in node.function.concrete_functions:
            if name not in objects.concrete_functions:
                raise GraphError(f"the SavedModel describes no concrete function {name!r}")
            saved = objects.concrete_functions[name]
            if saved.HasField("canonicalized_input_signature"):
                results = decode(saved.output_signature) if saved.HasField("output_signature") else None
                yield f"  {show_signature(decode(saved.canonicalized_input_signature))} -> {show_structure(results)}"


def _is_private(path: str) -> bool:
    """Whether a path leads to a function of a table or of Keras."""
    last = path.rpartition(".")[2]
    return "keras_api" in path.split(".") or (last.startswith("_") and last != "__call__")


def _variables(meta: MetaGraphDef) -> Iterator[str]:
    if meta.object_graph_def.nodes:
        paths = _paths(meta.object_graph_def)
        for i in sorted(paths, key=lambda i: paths[i]):
            node = meta.object_graph_def.nodes[i]
            if node.WhichOneof("kind") == "variable":
                v = node.variable
                yield _variable(paths[i], v.name, decode_dtype(v.dtype), decode_shape(v.shape), v.trainable)
        return
    nodes = {node.name: node for node in meta.graph_def.node}
    for op, is_trainable in listed_variables(meta).items():
        if op in nodes:
            attrs = nodes[op].attr
            dtype, shape = decode_dtype(attrs["dtype"].type), decode_shape(attrs["shape"].shape)
            yield _variable(op, op, dtype, shape, is_trainable)


def _variable(path: str, name: str, dtype: dtypes.DType, shape: Any, trainable: bool) -> str:
    shown = "" if name == path or not name else f" ({name})"
    return f"{path}{shown}: {dtype.base.name} {shapes.show(shape)}{'' if trainable else ', not trainable'}"


def _paths(objects: SavedObjectGraph) -> dict[int, str]:
    """Returns the shortest path from the root of each node, without those of traces.

    Of a long path only the end is there: with all of them, a chain of n nodes would take n**2 characters.

    Raises:
      GraphError: a number of a node is invalid.
    """
    paths = {0: ""} if objects.nodes else {}
    todo = [*paths]
    for i in todo:
        node = objects.nodes[i]
        if node.WhichOneof("kind") == "function":
            continue
        for c in node.children:
            if not 0 <= c.node_id < len(objects.nodes):
                raise GraphError(
                    f"node {i} of the SavedModel's objects refers to node {c.node_id}, of {len(objects.nodes)} nodes"
                )
            if c.node_id not in paths:
                path = f"{paths[i]}.{c.local_name}".lstrip(".")
                paths[c.node_id] = path if len(path) <= _LONGEST_PATH else f"...{path[-_LONGEST_PATH:]}"
                todo.append(c.node_id)
    return paths
