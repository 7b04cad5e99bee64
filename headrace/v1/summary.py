"""TensorFlow 1's `tf.summary`: summary operations, and their files for TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace import notices, public_names
from headrace.api import summary
from headrace.errors import UnimplementedError
from headrace.files import events, local, summaries
from headrace.train import event_writer
from headrace.v1.graph import GraphKeys, get_default_graph, in_default_graph

if TYPE_CHECKING:
    from headrace.pb import Event
    from headrace.pb.summary_pb2 import SummaryDescription


def _collected(tensor: Any, collections: Sequence[str] | None) -> Any:
    """A summary, put into the collections (None: those of which `merge_all` makes one)."""
    get_default_graph().add_to_collections((GraphKeys.SUMMARIES,) if collections is None else collections, tensor)
    return tensor


@in_default_graph
def scalar(name: str, tensor: Any, collections: Sequence[str] | None = None, family: str | None = None) -> Any:
    """The summary of a number. See `headrace.summary.scalar`.

    Args:
      name: of the operation and, with the scopes around, the tag.
      tensor: the number, of any real dtype.
      collections: of the graph, that it is put into; None: `GraphKeys.SUMMARIES`.
      family: the first part of the tag.

    Source: TensorFlow's `tf.summary.scalar`.
    """
    return _collected(summary.scalar(name, tensor, family), collections)


@in_default_graph
def histogram(name: str, values: Any, collections: Sequence[str] | None = None, family: str | None = None) -> Any:
    """The summary of how numbers are distributed. See `headrace.summary.histogram`, and `scalar`.

    Source: TensorFlow's `tf.summary.histogram`.
    """
    return _collected(summary.histogram(name, values, family), collections)


@in_default_graph
def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Any:
    """The summary of pictures. See `headrace.summary.image`, and `scalar`.

    Source: TensorFlow's `tf.summary.image`.
    """
    return _collected(summary.image(name, tensor, max_outputs, family), collections)


@in_default_graph
def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Any:
    """The summary of sounds. See `headrace.summary.audio`, and `scalar`.

    Source: TensorFlow's `tf.summary.audio`.
    """
    return _collected(summary.audio(name, tensor, sample_rate, max_outputs, family), collections)


@in_default_graph
def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Any:
    """The summary of text. See `headrace.summary.text`, and `scalar`.

    Source: TensorFlow's `tf.summary.text`.
    """
    return _collected(summary.text(name, tensor), collections)


@in_default_graph
def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: Any = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Any:
    """The summary of any tensor. See `headrace.summary.tensor_summary`, and `scalar`.

    Source: TensorFlow's `tf.summary.tensor_summary`.
    """
    made = summary.tensor_summary(name, tensor, summary_description, summary_metadata, family, display_name)
    return _collected(made, collections)


@in_default_graph
def merge(inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str | None = None) -> Any:
    """One summary of several. See `headrace.summary.merge`.

    Args:
      inputs: summaries.
      collections: of the graph, that it is put into; None: none.
      name: of the operation.

    Source: TensorFlow's `tf.summary.merge`.
    """
    return _collected(summary.merge(inputs, name), () if collections is None else collections)


@in_default_graph
def merge_all(key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None) -> Any:
    """Merges all summaries of a collection; None if there are none.

    Args:
      key: the collection.
      scope: only those with a name that this regular expression matches.
      name: of the operation.

    Source: TensorFlow's `tf.summary.merge_all`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     _ = scalar("loss", 0.5), histogram("w", [1.0, 2.0])
      ...     data = sess.run(merge_all())
      >>> from headrace import pb
      >>> [v.tag for v in pb.Summary.FromString(data).value]
      ['loss', 'w']
    """
    found = get_default_graph().get_collection(key, scope)
    return merge(found, name=name) if found else None


def get_summary_description(node_def: Any) -> SummaryDescription:
    """The `SummaryDescription` that an operation of the type TensorSummary has, as JSON, in its attribute.

    Args:
      node_def: a `NodeDef` message, headrace's or TensorFlow's.

    Raises:
      ValueError: it is of another type, or the attribute is no such message as JSON.

    Source: TensorFlow's `tf.summary.get_summary_description`.
    """
    if node_def.op != "TensorSummary":
        raise ValueError(f"Can't get_summary_description on {node_def.op}; only a TensorSummary has one")
    return summaries.description(node_def.attr["description"].s)


class FileWriter(event_writer.FileWriter):
    """Writes events to a new file in a folder. See `headrace.train.FileWriter`.

    Events that are added after `close` are dropped with a warning, as in TensorFlow.

    Args:
      logdir: the folder; it is made if it is not there.
      graph: a graph to begin with, or a `GraphDef`; it is also written as a MetaGraph.
      max_queue: how many events may wait to be written.
      flush_secs: seconds until written events are visible to readers, at most.
      graph_def: an older name of `graph`, for a `GraphDef`.
      filename_suffix: the end of the file's name.
      session: a session of this process, or None. The events are written at once in both cases, by this process.

    Raises:
      UnimplementedError: a session of a cluster, whose events TensorFlow writes in the worker.

    Source: TensorFlow's `tf.summary.FileWriter`.
    """

    def __init__(
        self,
        logdir: local.Path,
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        if getattr(session, "sess_str", ""):
            raise UnimplementedError(
                f"FileWriter(session=...): the session of {session.sess_str} would write in its worker; leave session "
                "out to write in this process"
            )
        super().__init__(logdir, None, max_queue, flush_secs, filename_suffix)
        given = graph if graph is not None else graph_def
        if given is not None:
            from headrace import pb

            data = event_writer.serialized_graph(given)
            self.add_graph(data)
            self.add_meta_graph(pb.MetaGraphDef(graph_def=pb.GraphDef.FromString(data)))

    def add_graph(self, graph: Any = None, global_step: Any = None, graph_def: Any = None) -> None:
        """Adds a graph: `graph`, or, as it was called once, `graph_def`. See `headrace.train.FileWriter.add_graph`."""
        if (graph is None) == (graph_def is None):
            raise ValueError("add_graph takes a graph: one, and one only")
        super().add_graph(graph if graph is not None else graph_def, global_step)

    def _refuse(self) -> None:
        notices.warn(
            "Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter is explicitly "
            "reopened."
        )


FileWriterCache = event_writer.FileWriterCache


def summary_iterator(path: local.Path) -> Iterator[Event]:
    """The events of a file, one after the other.

    Raises:
      DataLossError: the file is damaged or torn, once that place is reached.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: it cannot be opened.

    Source: TensorFlow's `tf.train.summary_iterator`.
    """
    return events.read(path)


def initialize(graph: Any = None, session: Any = None) -> None:
    """Refuses to open a file of TensorFlow 2's summaries.

    Args:
      graph, session: of the summaries.

    Raises:
      RuntimeError: always: no writer of such summaries is open. `FileWriter` writes TensorFlow 1's.

    Source: TensorFlow's `tf.summary.initialize`.
    """
    raise RuntimeError("No default tf.contrib.summary.SummaryWriter found; tf.summary.FileWriter needs none")


def all_v2_summary_ops() -> list[Any]:
    """Returns the operations of TensorFlow 2's summaries in the default graph: none.

    Source: TensorFlow's `tf.summary.all_v2_summary_ops`.
    """
    return []


# Imported on first use: the messages, which take long to load.
_LATER = {
    "Event": "headrace.pb.event_pb2:Event",
    "SessionLog": "headrace.pb.event_pb2:SessionLog",
    "Summary": "headrace.pb.summary_pb2:Summary",
    "SummaryDescription": "headrace.pb.summary_pb2:SummaryDescription",
    "TaggedRunMetadata": "headrace.pb.event_pb2:TaggedRunMetadata",
}

__all__ = [
    "FileWriter",
    "FileWriterCache",
    "all_v2_summary_ops",
    "audio",
    "get_summary_description",
    "histogram",
    "image",
    "initialize",
    "merge",
    "merge_all",
    "scalar",
    "tensor_summary",
    "text",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
