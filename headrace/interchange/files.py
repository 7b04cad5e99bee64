"""Files of graphs and MetaGraphs: reading, writing and detection of their formats."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any, Final

from headrace import tracebacks
from headrace.api.scopes import Graph
from headrace.errors import GraphError
from headrace.ir.source import Source
from headrace.ir.text import from_text

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from headrace.ir.graph import Graph as PlainGraph
    from headrace.pb import MetaGraphDef

_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # including the field tags of every binary GraphDef
_MOST_CITED: Final = 1000  # characters of a parser's message
_PBTXT: Final = re.compile(r"(\s|#.*\n)*(node|library|versions?|debug_info)\s*[:{<]")
_META_TEXT: Final = re.compile(
    r"(\s|#.*\n)*(meta_info_def|graph_def|saver_def|(collection|signature|asset_file|object_graph)_def)\s*[:{<]"
)


def write_graph(graph_or_graph_def: Any, logdir: str | os.PathLike[str], name: str, as_text: bool = True) -> str:
    """Writes a graph to the file `name` in the folder `logdir`.

    The folder is created if necessary. The file appears when it is complete. An existing file of that name is replaced.

    Args:
      graph_or_graph_def: an `hr.Graph`, or a `GraphDef`: headrace's or TensorFlow's message, or its bytes or text.
      logdir: the folder.
      name: the name of the file.
      as_text: whether to write protobuf's text form, which people can read; else the binary form, which is smaller.

    Returns:
      The path of the file.

    Raises:
      OSError: the file cannot be written.
      GraphError: the graph has no wire form, or the argument is no `GraphDef`.
      TypeError: an argument of another type.

    Source: TensorFlow's `tf.io.write_graph`.

    Example:
      >>> import headrace as hr, tempfile
      >>> with hr.Graph() as g:
      ...     y = hr.constant(1.0, name="y")
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     hr.read_graph(hr.write_graph(g, folder, "graph.pbtxt"))
      <Graph of 1 operations>
    """
    from google.protobuf import message as protobuf

    if isinstance(graph_or_graph_def, Graph):
        message: Message = graph_or_graph_def.as_graph_def()
    elif isinstance(graph_or_graph_def, protobuf.Message):
        message = graph_or_graph_def
    else:
        from headrace.ir.serial.graphdef import read_graph_def

        message = read_graph_def(graph_or_graph_def)
    os.makedirs(logdir, exist_ok=True)
    path = os.path.join(logdir, name)
    write_message(message, path, as_text)
    return path


def write_message(message: Message, path: str | os.PathLike[str], as_text: bool) -> None:
    """Writes a message to a file, which appears when it is complete."""
    from google.protobuf import text_format

    data = text_format.MessageToString(message).encode() if as_text else message.SerializeToString(deterministic=True)
    path = os.fspath(path)
    temporary = f"{path}.{os.urandom(8).hex()}.tmp"
    try:
        with open(temporary, "xb") as f:
            f.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@tracebacks.entry
def read_graph(path: str | os.PathLike[str]) -> PlainGraph:
    """Reads a graph from a file.

    The file has a `GraphDef` or `MetaGraphDef`, binary or in protobuf's text form, or headrace's own text (`headrace
    text`). From a `MetaGraphDef` only the graph is read; `import_meta_graph` reads the rest, too.

    Args:
      path: the path of the file.

    Returns:
      A new graph. (`import_graph_def` adds to an existing one.) The source of its operations is the file.

    Raises:
      OSError: the file cannot be read.
      GraphError: the file has no graph that headrace can read (also a ValueError).
      NotFoundError: an op type that is not registered.

    Example:
      >>> import headrace as hr, tempfile
      >>> with hr.Graph() as g:
      ...     x = hr.constant(1, name="x")
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     again = hr.read_graph(hr.write_graph(g, folder, "graph.pbtxt"))
      >>> again
      <Graph of 1 operations>
    """
    path = os.fspath(path)
    with open(path, "rb") as f:
        data = f.read()
    try:
        given = data if is_binary(data) else data.decode()
    except UnicodeDecodeError as e:
        raise GraphError("the file is no graph: neither a binary GraphDef nor UTF-8 text") from e
    is_meta = isinstance(given, str) and _META_TEXT.match(given) is not None
    if isinstance(given, str) and not is_meta and not _PBTXT.match(given):
        return from_text(given, path)
    from headrace.ir.serial.graphdef import import_graph_def

    graph = Graph()
    # the "line" of these operations is the file
    source = Source(path, 0)
    try:
        if not is_meta:
            import_graph_def(given, graph, source=source)
            if graph.operations or isinstance(given, str) or not is_meta_graph(given):
                return graph
    except GraphError:
        # Bytes of one of the two messages can hardly be parsed as the other.
        if isinstance(given, str) or not is_meta_graph(given):
            raise
    meta = read_meta_graph_def(given)
    import_graph_def(meta.graph_def, graph, source=source, producer_op_list=meta.meta_info_def.stripped_op_list)
    return graph


def is_binary(data: bytes) -> bool:
    """Whether `data` is the binary form of a message."""
    return _BINARY.search(data) is not None


def is_meta_graph(data: bytes) -> bool:
    """Whether `data` is the binary form of a `MetaGraphDef` with a graph."""
    try:
        return bool(read_meta_graph_def(data).graph_def.node)
    except GraphError:
        return False


def read_meta_graph_def(meta_graph_def: Any) -> MetaGraphDef:
    """Returns the `MetaGraphDef` of bytes, text or a message, headrace's or TensorFlow's.

    Raises:
      GraphError: the argument does not contain one.
      TypeError: an argument of another type.
    """
    from headrace import pb

    if isinstance(meta_graph_def, pb.MetaGraphDef):
        return meta_graph_def
    if not isinstance(meta_graph_def, str):
        made: MetaGraphDef = read_message(pb.MetaGraphDef, meta_graph_def)
        return made
    parsed: MetaGraphDef = parse_text(pb.MetaGraphDef, meta_graph_def)
    return parsed


def parse_text(kind: Any, text: str) -> Any:
    """Returns the message of class `kind` of protobuf's text form.

    Raises:
      GraphError: the text is no such message.
    """
    from google.protobuf import text_format

    name = kind.DESCRIPTOR.name
    try:
        return text_format.Parse(text, kind(), descriptor_pool=_TensorFlowNames())  # type: ignore[arg-type]
    except text_format.ParseError as e:
        said = str(e)  # it cites the input
        said = said if len(said) <= _MOST_CITED else f"{said[:_MOST_CITED]}..."
        raise GraphError(f"not a {name}: {said}") from e
    except RecursionError as e:  # of the text parser; the binary one has a limit of its own
        raise GraphError(f"not a {name}: its messages are nested too deeply") from e


class _TensorFlowNames:
    """Finds headrace's messages by TensorFlow's names, for messages of any type within a text."""

    def FindMessageTypeByName(self, full_name: str) -> Any:
        from google.protobuf import descriptor_pool

        package, _, name = full_name.partition(".")
        ours = f"headrace.pb.{name}" if package == "tensorflow" else full_name
        return descriptor_pool.Default().FindMessageTypeByName(ours)


def read_message(kind: Any, given: Any) -> Any:
    """Returns a message of class `kind` from bytes or another message.

    Args:
      kind: the class of the message.
      given: the bytes or the message.

    Raises:
      GraphError: the argument does not contain one.
      TypeError: an argument of another type.
    """
    from google.protobuf import message as protobuf

    name = kind.DESCRIPTOR.name
    try:
        data = given.SerializeToString() if isinstance(given, protobuf.Message) else given
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"a {name} must be a message or its bytes, got {given!r} ({type(given).__name__})")
        return kind.FromString(bytes(data))
    except (protobuf.DecodeError, protobuf.EncodeError) as e:
        raise GraphError(f"not a {name}: {e}") from e
