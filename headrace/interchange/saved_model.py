"""SavedModels: folders with graphs, the values of their variables and the files that they read.

| part of the folder | contents |
|---|---|
| saved_model.pb, or saved_model.pbtxt | the graphs, a `SavedModel` message of MetaGraphs with different tags |
| variables/variables.* | a checkpoint; all graphs share it |
| assets/ | files that the graphs read, such as vocabularies |

A graph is loaded in four steps: its operations are imported, its saver restores the variables, the tensors of
`asset_files` are fed the paths of the assets, and the operation `initializer` runs with them.

A folder may come from anywhere: the message is at most as large as a protobuf message can be, and no asset is outside
of the folder, neither by its name nor through a symbolic link, since operations can pass its contents on. The other
files may be links, as in the folders of download caches: their contents are checked against formats and checksums.

Source: TensorFlow's `tf.compat.v1.saved_model`.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import any_pb2

from headrace import pb
from headrace.errors import GraphError, UnimplementedError
from headrace.files import commit, local
from headrace.interchange import files

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef, SavedModel, SignatureDef, TensorInfo

SCHEMA_VERSION: Final = 1
BINARY: Final = "saved_model.pb"
TEXT: Final = "saved_model.pbtxt"
SPLIT: Final = "saved_model.cpb"  # of messages above 2 GiB; TensorFlow's published builds cannot write it

VARIABLES_FOLDER: Final = "variables"
VARIABLES_NAME: Final = "variables"  # the prefix of the checkpoint's files in that folder
ASSETS_FOLDER: Final = "assets"

# Collections of a graph.
ASSETS: Final = "saved_model_assets"
MAIN_OP: Final = "saved_model_main_op"
LEGACY_INIT_OP: Final = "legacy_init_op"

# Signatures that name an operation and not a call.
INIT_SIGNATURE: Final = "__saved_model_init_op"
TRAIN_SIGNATURE: Final = "__saved_model_train_op"
NO_CALLS: Final = (INIT_SIGNATURE, TRAIN_SIGNATURE)

_ASSET_TYPE: Final = "tensorflow.AssetFileDef"
_ASSET_TYPES: Final = (_ASSET_TYPE, "headrace.pb.AssetFileDef")  # the second one comes of protobuf's text form


def is_there(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder has the file of a SavedModel, which may nevertheless be malformed."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in (BINARY, TEXT, SPLIT))


def variables_path(folder: str | os.PathLike[str]) -> str:
    """Returns the prefix of the checkpoint of a SavedModel."""
    return os.path.join(folder, VARIABLES_FOLDER, VARIABLES_NAME)


# *** in ***


def read(folder: str | os.PathLike[str]) -> SavedModel:
    """Reads the message of a SavedModel; the binary file is preferred to the text.

    Args:
      folder: the path of the folder.

    Raises:
      FileNotFoundError: the folder does not exist, or has no SavedModel.
      GraphError: the file contains no such message, or one of another version.
      UnimplementedError: the message is split, as those above 2 GiB are.
      FailedPreconditionError, PermissionDeniedError, ResourceExhaustedError: the file is no regular file, cannot be
        read, or has more than 2 GiB.
    """
    folder = os.fspath(folder)
    found = [name for name in (BINARY, TEXT, SPLIT) if os.path.lexists(os.path.join(folder, name))]
    if not found:
        raise FileNotFoundError(f"SavedModel file does not exist at: {folder}{os.path.sep}{{{TEXT}|{BINARY}}}")
    path = os.path.join(folder, found[0])
    if found[0] == SPLIT:
        raise UnimplementedError(f"{path}: split messages are not read; save the model with less than 2 GiB of graphs")
    return parsed(local.whole(path), path, is_text=found[0] == TEXT)


def parsed(data: bytes, path: str, is_text: bool = False) -> SavedModel:
    """Returns the message in a file.

    Args:
      data: the contents of the file.
      path: the path, for messages.
      is_text: whether it is protobuf's text form.

    Raises:
      GraphError: the file contains no such message, or one of another version.
    """
    try:
        out: SavedModel = (
            files.parse_text(pb.SavedModel, data.decode()) if is_text else files.read_message(pb.SavedModel, data)
        )
    except (GraphError, UnicodeDecodeError) as e:
        raise GraphError(f"Cannot parse file {path}: {e}") from e
    if out.saved_model_schema_version != SCHEMA_VERSION:
        raise GraphError(
            f"{path}: schema version {out.saved_model_schema_version}, but this version of headrace reads "
            f"{SCHEMA_VERSION} (a file of other contents has version 0)"
        )
    return out


def with_tags(model: SavedModel, tags: Iterable[str]) -> MetaGraphDef:
    """Returns the MetaGraph of a SavedModel with exactly these tags.

    Raises:
      RuntimeError: there is none; the text lists the tags that exist.
    """
    wanted = {tags} if isinstance(tags, str) else set(tags)
    for meta in model.meta_graphs:
        if set(meta.meta_info_def.tags) == wanted:
            return meta
    there = ", ".join(str(sorted(meta.meta_info_def.tags)) for meta in model.meta_graphs)
    raise RuntimeError(
        f"MetaGraphDef associated with tags {sorted(wanted)} could not be found in SavedModel, "
        f"with available tags: {there or 'none'}"
    )


def initializer(meta: MetaGraphDef) -> str | None:
    """Returns the name of the operation to run after variables are restored, or None.

    Raises:
      GraphError: the file has several, or one that is not in the graph (also a ValueError).
    """
    known = {node.name for node in meta.graph_def.node}
    if INIT_SIGNATURE in meta.signature_def:
        outputs = meta.signature_def[INIT_SIGNATURE].outputs
        if INIT_SIGNATURE not in outputs or not outputs[INIT_SIGNATURE].name:
            raise GraphError(f"the signature '{INIT_SIGNATURE}' names no operation in the output of that name")
        return _in_graph(known, outputs[INIT_SIGNATURE].name, "the initializer")
    for key in (MAIN_OP, LEGACY_INIT_OP):
        if key in meta.collection_def:
            names = meta.collection_def[key].node_list.value
            if len(names) != 1:
                raise GraphError(f"Expected exactly one SavedModel init op. Found {len(names)} in '{key}'")
            return _in_graph(known, names[0], "the initializer")
    return None


def asset_files(meta: MetaGraphDef, folder: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the paths of the assets, by the names of the tensors to be fed.

    Args:
      meta: a MetaGraph of the SavedModel.
      folder: the path of the SavedModel.

    Raises:
      GraphError: an asset is malformed, its tensor is not in the graph, or its path leaves the folder, by name or by
        a symbolic link.
    """
    paths = asset_paths(meta, folder)
    known = {node.name for node in meta.graph_def.node}
    return {
        _in_graph(known, asset.tensor_info.name, _title(asset)): path
        for asset, path in zip(assets_of(meta), paths, strict=True)
    }


def asset_paths(meta: MetaGraphDef, folder: str | os.PathLike[str]) -> list[str]:
    """Returns the paths of the assets, in the order of the file.

    Args:
      meta: a MetaGraph of the SavedModel.
      folder: the path of the SavedModel.

    Raises:
      GraphError: an asset is malformed, or its path leaves the folder, by name or by a symbolic link.
    """
    out = []
    top = os.path.realpath(folder)
    assets = os.path.join(folder, ASSETS_FOLDER)
    for asset in assets_of(meta):
        name = asset.filename
        where = _title(asset)
        if not name or "\0" in name or not asset.tensor_info.name:
            raise GraphError(f"{where}: an asset needs the name of a file and that of a tensor")
        path = os.path.join(assets, name)
        if os.path.isabs(name) or ".." in name.split("/"):
            raise GraphError(f"{where} is outside of the folder {os.fspath(folder)}; assets stay inside")
        if os.path.commonpath([top, os.path.realpath(path)]) != top:
            raise GraphError(
                f"{where} is outside of the folder {os.fspath(folder)}, by a link; assets stay inside. Copy the folder "
                "with the files that links lead to, as `cp -rL` does"
            )
        out.append(path)
    return out


def _title(asset: Any) -> str:
    return f"the asset {asset.filename!r} of the tensor '{asset.tensor_info.name}'"


def assets_of(meta: MetaGraphDef) -> list[Any]:
    """Returns the `AssetFileDef`s of a MetaGraph."""
    given = list(meta.asset_file_def)
    if not given and ASSETS in meta.collection_def:
        given = [_asset_of_item(x) for x in meta.collection_def[ASSETS].any_list.value]
    return given


def _in_graph(known: Set[str], name: str, where: str) -> str:
    """Returns the name of a tensor or operation whose operation is known."""
    if name.partition(":")[0] not in known:
        raise GraphError(f"{where}: '{name}' is not in the graph")
    return name


def _asset_of_item(item: Any) -> Any:
    """Returns the `AssetFileDef` of an item of the collection."""
    if item.type_url.rpartition("/")[2] not in _ASSET_TYPES:
        raise GraphError(f"the collection '{ASSETS}' has a message of type {item.type_url!r}, not {_ASSET_TYPE}")
    return files.read_message(pb.AssetFileDef, item.value)


# *** out ***


def new() -> SavedModel:
    """Returns a `SavedModel` without graphs."""
    return pb.SavedModel(saved_model_schema_version=SCHEMA_VERSION)


def write(model: SavedModel, folder: str | os.PathLike[str], as_text: bool = False) -> str:
    """Writes the message of a SavedModel into its folder, which is made if necessary.

    Args:
      model: the message.
      folder: the path of the folder.
      as_text: whether to write protobuf's text form.

    Returns:
      The path of the file, which appears when it is complete.

    Raises:
      FailedPreconditionError, PermissionDeniedError, ...: the file cannot be written.
    """
    path = os.path.join(local.made_folder(folder), TEXT if as_text else BINARY)
    with local.as_ours(path):
        files.write_message(model, path, as_text)
    return path


def check_signatures(signatures: Mapping[str, SignatureDef]) -> None:
    """Checks the signatures of a graph that is to be saved.

    Raises:
      AssertionError: an input or output without a name or dtype.
      KeyError: a reserved name.
    """
    for name, signature in signatures.items():
        for what, infos in (("input", signature.inputs), ("output", signature.outputs)):
            for key in infos:
                _check_tensor_info(infos[key], f"{what} '{key}' of the signature '{name}'")
    for name, use in ((INIT_SIGNATURE, "initialization"), (TRAIN_SIGNATURE, "the train op")):
        if name in signatures:
            raise KeyError(f'SignatureDef map key "{name}" is reserved for {use}. Please use a different key.')


def _check_tensor_info(info: TensorInfo, where: str) -> None:
    kind = info.WhichOneof("encoding")
    if kind is None:
        raise AssertionError(f"{where}: the TensorInfo has no name (or coo_sparse, or composite_tensor)")
    if kind == "composite_tensor":
        for part in info.composite_tensor.components:
            _check_tensor_info(part, where)
    elif info.dtype == pb.DT_INVALID:
        raise AssertionError(f"{where}: the TensorInfo has no dtype")


def rename_tensors(signature: SignatureDef, rename: Callable[[str], str]) -> None:
    """Replaces the names of tensors in a signature by those of `rename`."""
    infos = [*signature.inputs.values(), *signature.outputs.values()]
    while infos:
        info = infos.pop()
        kind = info.WhichOneof("encoding")
        if kind == "name":
            info.name = rename(info.name)
        elif kind == "coo_sparse":
            for field in ("values_tensor_name", "indices_tensor_name", "dense_shape_tensor_name"):
                setattr(info.coo_sparse, field, rename(getattr(info.coo_sparse, field)))
        elif kind == "composite_tensor":
            infos.extend(info.composite_tensor.components)


def asset_item(filename: str, tensor: str) -> any_pb2.Any:
    """Returns the item of a file in the collection `ASSETS`."""
    asset = pb.AssetFileDef(filename=filename, tensor_info=pb.TensorInfo(name=tensor))
    return any_pb2.Any(type_url=f"type.googleapis.com/{_ASSET_TYPE}", value=asset.SerializeToString())


class Assets:
    """Assets of a SavedModel that is being written.

    Args:
      folder: the path of the SavedModel.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.path.join(folder, ASSETS_FOLDER)
        self._sources: dict[str, str] = {}  # the names of files -> where they were copied from

    def add(self, path: str | bytes) -> str:
        """Copies a file unless it is there; returns its name among the assets.

        Files with the same name and different contents get different names ("words.txt", "words.txt_1").

        Args:
          path: the path of the file.

        Raises:
          NotFoundError, PermissionDeniedError, FailedPreconditionError: the file cannot be copied.
        """
        path = local.text_of(path)
        first, number = os.path.basename(path), 0
        name = first
        while name in self._sources:
            if self._sources[name] == path or filecmp.cmp(path, os.path.join(self._folder, name), shallow=False):
                return name
            number += 1
            name = f"{first}_{number}"
        with local.opened(path) as source:
            target = os.path.join(local.made_folder(self._folder), name)
            with commit.replacing(target) as copy, local.as_ours(path):
                shutil.copyfileobj(source, copy)
        self._sources[name] = path
        return name
