"""MetaGraphs: a graph with its variables, other collections and signatures, in one file.

References to parts of a graph are written as names. An import looks up all names among the nodes of the file, so it
finds them even if the nodes have other names in the graph.

Two fields are not read here: `object_graph_def` (the Python objects of a SavedModel), which `headrace.saved_model`
reads, and `asset_file_def`, which `interchange.saved_model` reads. The structure of TensorFlow 1's conditionals and
loops (the collections "cond_context" and "while_context") is kept unchanged, for TensorFlow: headrace recovers it from
the graph itself.

Source: TensorFlow's `export_meta_graph` and `import_meta_graph`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.api.scopes import Graph, current_graph
from headrace.api.variable import Variable
from headrace.errors import GraphError, UnimplementedError
from headrace.interchange import files
from headrace.ir import tensor_type
from headrace.ir.graph import Operation, Tensor
from headrace.ir.serial.attrs import decode_dtype, encode_shape
from headrace.records import record

if TYPE_CHECKING:
    from headrace.interchange.collection import Decode, Encode
    from headrace.pb import MetaGraphDef

TENSORFLOW_VERSION: Final = "2.21.0"  # the version whose format is written
CONTEXTS: Final = ("cond_context", "while_context")
TRAINABLE_SINCE: Final = (1, 9)  # files of earlier versions of TensorFlow do not say whether a variable is trainable

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


@record(frozen=True)
class Signature:
    """A call of a graph: its inputs and outputs by name.

    Attributes:
      inputs: the tensors to feed, by the names of arguments.
      outputs: the tensors to fetch, or operations to run, by the names of results.
      method_name: the kind of the call ("tensorflow/serving/predict"); "" if it is not given.

    Source: TensorFlow's `SignatureDef`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      ...     y = hr.multiply(x, 2.0, name="y")
      >>> call = hr.Signature({"x": x}, {"y": y}, "tensorflow/serving/predict")
      >>> hr.Session(graph=g).run(call.outputs, {call.inputs["x"]: 3.0})
      {'y': np.float32(6.0)}
    """

    inputs: Mapping[str, tensor_type.Tensor]
    outputs: Mapping[str, tensor_type.Tensor | Operation]
    method_name: str = ""


@record(frozen=True)
class MetaGraph:
    """Result of `import_meta_graph`.

    Attributes:
      graph: the graph with the operations.
      variables: the variables of the file, also in `graph.variables`.
      collections: name → items, as in the file: lists of tensors and operations, variables, numbers or bytes. The
        collections of variables are among them. Items of kinds that headrace does not know are bytes or messages.
      signatures: the signatures by name.
      tags: the purposes of the graph ("serve", "train").

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     v = hr.Variable(2.0, name="v")
      >>> meta = hr.import_meta_graph(hr.export_meta_graph(g, tags=["serve"]))
      >>> meta.variables, meta.tags
      ([<Variable 'v:0' shape=[] dtype=float32>], ('serve',))
    """

    graph: Graph
    variables: list[Any]
    collections: dict[str, list[Any]]
    signatures: dict[str, Signature]
    tags: tuple[str, ...]


# *** out ***


def export_meta_graph(
    graph: Graph,
    filename: str | os.PathLike[str] | None = None,
    *,
    signatures: Mapping[str, Signature] | None = None,
    collections: Mapping[str, Sequence[Any]] | None = None,
    tags: Iterable[str] = (),
    form: str = "structured",
    clear_devices: bool = False,
    strip_default_attrs: bool = False,
    as_text: bool = False,
) -> MetaGraphDef:
    """Converts a graph with its variables to a `MetaGraphDef`, or writes it.

    Args:
      graph: the graph. Its variables go into the collections "variables" and, if trainable, "trainable_variables".
      filename: the path of the file; None: no file is written.
      signatures: calls of the graph, by name.
      collections: lists by name, of tensors and operations, of texts, of ints or of floats.
      tags: the purposes of the graph.
      form: see `Graph.as_graph_def`.
      clear_devices: whether to leave out the device requests of operations.
      strip_default_attrs: whether to leave out attributes with default values, for older readers.
      as_text: whether the file is in protobuf's text form.

    Returns:
      The message. It contains initial values, but not the values that variables have in a session.

    Raises:
      GraphError: an object cannot be written, or belongs to another graph (also a ValueError).
      OSError: the file cannot be written.

    Source: TensorFlow's `tf.train.export_meta_graph`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x, w = hr.placeholder(hr.float32, (), name="x"), hr.Variable(2.0, name="w")
      ...     y = hr.multiply(x, w, name="y")
      >>> call = hr.Signature({"x": x}, {"y": y})
      >>> message = hr.export_meta_graph(g, signatures={"serving_default": call}, tags=["serve"])
      >>> m = hr.import_meta_graph(message)
      >>> m.variables, m.signatures["serving_default"].outputs["y"]
      ([<Variable 'w:0' shape=[] dtype=float32>], <Tensor 'y:0' shape=[] dtype=float32>)
    """
    from headrace.interchange.collection import variable_encoders

    if not isinstance(graph, Graph):
        raise TypeError(f"export_meta_graph takes an hr.Graph, got {graph!r} ({type(graph).__name__})")
    trainable = [v for v in graph.variables if v.trainable]
    lists = {"variables": graph.variables, "trainable_variables": trainable, **(collections or {})}
    show = namer(graph, form)
    message = encode(
        graph.as_graph_def(form),
        {name: items for name, items in lists.items() if items},
        variable_encoders(form),
        show,
        graph.saver_def,
        clear_devices,
        strip_default_attrs,
    )
    message.meta_info_def.tags.extend(tags)
    for name, signature in (signatures or {}).items():
        _encode_signature(message.signature_def[name], name, signature, show)
    if filename is not None:
        files.write_message(message, filename, as_text)
    return message


def namer(graph: Graph, form: str = "structured") -> Callable[[Any], str]:
    """Returns a function that maps tensors and operations to their names in the graph's `GraphDef`."""

    def show(x: Any) -> str:
        op = x if isinstance(x, Operation) else getattr(x, "op", None)
        if not isinstance(op, Operation):
            raise GraphError(f"{x!r} ({type(x).__name__}) is no tensor or operation of the graph")
        if op.graph is not graph:
            raise GraphError(f"'{x.name}' belongs to {op.graph.title}, not to {graph.title}")
        if isinstance(x, Tensor) and form == "structured":
            return f"{op.name}:{x.index}"
        if x is op and op.opdef.structured and op.outputs and form == "primitive":
            return str(op.outputs[0].name.partition(":")[0])  # the primitive with the first result runs the others
        return str(x.name)

    return show


def encode(
    graph_def: Any,
    collections: Mapping[Any, Sequence[Any]],
    encoders: Mapping[str, Encode],
    show: Callable[[Any], str],
    saver_def: Any = None,
    clear_devices: bool = False,
    strip_default_attrs: bool = False,
) -> MetaGraphDef:
    """Returns the `MetaGraphDef` of a graph and its non-empty collections."""
    from headrace import pb
    from headrace.interchange import op_defs
    from headrace.interchange.collection import encode_collection

    out = pb.MetaGraphDef(graph_def=graph_def)
    if clear_devices:
        for node in out.graph_def.node:
            node.device = ""
    about = out.meta_info_def
    about.tensorflow_version, about.tensorflow_git_version = TENSORFLOW_VERSION, "headrace"
    about.stripped_op_list.CopyFrom(op_defs.stripped_op_list(out.graph_def))
    if strip_default_attrs:
        op_defs.strip_default_attrs(out.graph_def)
        about.stripped_default_attrs = True
    if saver_def is not None:
        out.saver_def.MergeFromString(saver_def.SerializeToString())
    for name, items in collections.items():
        out.collection_def[name].CopyFrom(encode_collection(name, items, encoders, show))
    return out


def _encode_signature(out: Any, name: str, signature: Signature, show: Callable[[Any], str]) -> None:
    out.method_name = signature.method_name
    for what, given, infos in (("input", signature.inputs, out.inputs), ("output", signature.outputs, out.outputs)):
        for key, x in given.items():
            t = x.graph_element if isinstance(x, Variable) else x
            try:
                info = infos[key]
                info.name = show(t)
            except GraphError as e:
                raise GraphError(f"{what} '{key}' of the signature '{name}': {e}") from e
            if isinstance(t, Tensor):
                info.dtype = t.dtype.base.number
                info.tensor_shape.CopyFrom(encode_shape(t.shape))


# *** in ***


def import_meta_graph(
    meta_graph_or_file: Any,
    *,
    graph: Graph | None = None,
    scope: str = "",
    input_map: Mapping[str, Any] | None = None,
    clear_devices: bool = False,
) -> MetaGraph:
    """Adds the operations, variables, collections and signatures of a `MetaGraphDef` to a graph.

    Args:
      meta_graph_or_file: a path of a file (binary or text), a message, headrace's or TensorFlow's, or its bytes.
      graph: the graph to add to; None: the graph of the enclosing `with` block, or a new one.
      scope: prefix for the names of the operations.
      input_map: see `import_graph_def`.
      clear_devices: whether to drop the device requests of operations.

    Returns:
      The contents of the file. The graph keeps the description of a saver (`graph.saver_def`), and an export writes it
      again.

    Raises:
      OSError: the file cannot be read.
      GraphError: the argument is no `MetaGraphDef`, or a malformed one (also a ValueError); the text names the
        collection or signature. Then nothing is added.
      NotFoundError: an op type that is not registered.
      UnimplementedError: a signature has a tensor that is not dense.

    Source: TensorFlow's `tf.train.import_meta_graph`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      >>> message = hr.export_meta_graph(g, collections={"inputs": [x]})
      >>> hr.import_meta_graph(message, scope="copy").collections["inputs"]
      [<Tensor 'copy/x:0' shape=[] dtype=float32>]
    """
    from headrace.interchange.collection import variable_decoders

    into = graph if graph is not None else current_graph()
    if into is None:
        into = Graph()
    if not isinstance(into, Graph):
        raise GraphError(f"a MetaGraph cannot be imported into {into.title}: enter an hr.Graph, or give graph=")
    message = read(meta_graph_or_file)
    with into.all_or_nothing():
        found = decode(message, into, variable_decoders(), scope, input_map, clear_devices)
        signatures = {
            name: _decode_signature(name, given, found.find) for name, given in sorted(message.signature_def.items())
        }
    found.keep(into)
    return MetaGraph(into, found.variables, found.collections, signatures, tuple(message.meta_info_def.tags))


def read(meta_graph_or_file: Any) -> MetaGraphDef:
    """Returns the message of a path, a message or bytes."""
    if not isinstance(meta_graph_or_file, (str, os.PathLike)):
        return files.read_meta_graph_def(meta_graph_or_file)
    path = os.fspath(meta_graph_or_file)
    with open(path, "rb") as f:
        data = f.read()
    try:
        return files.read_meta_graph_def(data if files.is_binary(data) else data.decode())
    except (GraphError, UnicodeDecodeError) as e:
        raise GraphError(f"{path!r} is no MetaGraph: {e}") from e


@record(frozen=True)
class Found:
    """Objects in a graph that an imported `MetaGraphDef` names.

    Attributes:
      find: returns the tensor or operation of a name in the file.
      collections: name → items.
      variables: the variables in the collections of variables.
      saver_def: a `SaverDef` with the names in the graph; None if the file has none.
    """

    find: Callable[[str], Tensor | Operation]
    collections: dict[str, list[Any]]
    variables: list[Variable]
    saver_def: Any

    def keep(self, graph: Graph) -> None:
        """Adds the variables and the saver to `graph`."""
        graph.variables.extend(self.variables)
        if self.saver_def is not None:
            graph.saver_def = self.saver_def


def decode(
    message: MetaGraphDef,
    graph: Graph,
    decoders: Mapping[str, Decode],
    scope: str,
    input_map: Mapping[str, Any] | None,
    clear_devices: bool,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Found:
    """Adds the operations of a `MetaGraphDef` to `graph`; returns the objects that its collections name."""
    from headrace import pb
    from headrace.api.importing import import_graph_def
    from headrace.interchange.collection import VARIABLES, decode_collection

    graph_def = message.graph_def
    if clear_devices:
        graph_def = pb.GraphDef()
        graph_def.CopyFrom(message.graph_def)
        for node in graph_def.node:
            node.device = ""
    names = [node.name for node in graph_def.node]
    about = message.meta_info_def
    known = about.stripped_op_list if about.HasField("stripped_op_list") else None
    made = import_graph_def(graph_def, scope, input_map, names, graph=graph, producer_op_list=known)
    find = _finder(dict(zip(names, made or (), strict=True)))
    collections = {}
    for name, given in sorted(message.collection_def.items()):
        if not wanted(name) or (name in CONTEXTS and scope):  # these contain names of the file
            continue
        collections[name] = decode_collection(name, given, decoders, find)
    if scope:
        for items in collections.values():
            items[:] = [_scoped(x, scope.rstrip("/")) if isinstance(x, bytes) else x for x in items]
    variables = [v for name in VARIABLES for v in collections.get(name, ()) if isinstance(v, Variable)]
    # the file has the handle in place of a variable among tensors
    held: dict[Any, Any] = {v.handle: v for v in variables}
    for items in collections.values():
        items[:] = [held.get(x, x) if isinstance(x, Tensor) else x for x in items]
    written_by = _VERSION.match(about.tensorflow_version)
    if written_by is not None and tuple(map(int, written_by.groups())) < TRAINABLE_SINCE:
        trainable = set(map(id, collections.get("trainable_variables", ())))
        for v in variables:
            v.trainable = id(v) in trainable
    return Found(find, collections, list(held.values()), _decode_saver(message, find))


def _scoped(text: bytes, scope: str) -> str | bytes:
    """Adds a scope to a text, which is often a name; keeps other bytes."""
    try:
        return f"{scope}/{text.decode()}"
    except UnicodeDecodeError:
        return text


def _finder(made: Mapping[str, Any]) -> Callable[[str], Tensor | Operation]:
    from headrace.ir.serial.nodedefs import parse_tensor_name

    def find(text: str) -> Tensor | Operation:
        name, index = parse_tensor_name(text) if ":" in text else (text, None)
        op: Operation | None = made.get(name)
        if op is None:
            raise GraphError(f"'{text}' is not in the graph")
        if index is None:
            return op
        if index >= len(op.outputs):
            raise GraphError(f"'{text}' is not in the graph: '{name}' ({op.type}) has {len(op.outputs)} outputs")
        return op.outputs[index]

    return find


def _decode_saver(message: MetaGraphDef, find: Callable[[str], Tensor | Operation]) -> Any:
    """Returns the `saver_def` with the names in the graph, or None."""
    from headrace import pb

    if not message.HasField("saver_def"):
        return None
    out = pb.SaverDef()
    out.CopyFrom(message.saver_def)
    for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
        name = getattr(out, field)
        if name:
            try:
                found = find(name)
            except GraphError as e:
                raise GraphError(f"{field} of the saver_def: {e}") from e
            setattr(out, field, f"{found.op.name}:{found.index}" if isinstance(found, Tensor) else found.name)
    return out


def _decode_signature(name: str, given: Any, find: Callable[[str], Tensor | Operation]) -> Signature:
    parts: list[dict[str, Any]] = []
    for what, infos in (("input", given.inputs), ("output", given.outputs)):
        parts.append({})
        for key, info in sorted(infos.items()):
            where = f"{what} '{key}' of the signature '{name}'"
            if info.WhichOneof("encoding") != "name":
                raise UnimplementedError(f"{where}: only dense tensors are supported, which have a name")
            try:
                t = find(info.name)
                if isinstance(t, Tensor) and info.dtype and decode_dtype(info.dtype) is not t.dtype.base:
                    raise GraphError(f"'{info.name}' is {t.dtype.name}, not {decode_dtype(info.dtype).name}")
            except GraphError as e:
                raise GraphError(f"{where}: {e}") from e
            parts[-1][key] = t
    return Signature(parts[0], parts[1], given.method_name)
