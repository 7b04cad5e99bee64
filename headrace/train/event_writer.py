"""The writer of event files, which runs in the background.

    with hr.train.FileWriter("runs/first", graph) as writer:
        for step in range(1000):
            _, summary = session.run([train, merged])
            writer.add_summary(summary, step)

A thread writes the files. Added events wait in a queue of bounded length, and a call that adds an event waits while the
queue is full. So a slow disk slows the program down and does not fill its memory. If the thread cannot write, the next
call of the writer raises the error. A program that ends without closing its writers loses nothing, because they are
closed at its exit.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np

from headrace import forking, thresholds
from headrace.api import scopes
from headrace.errors import DeadlineExceededError, FailedPreconditionError, OpError, UnknownError
from headrace.files import events, local, summaries
from headrace.ir.serial.graphdef import read_graph_def
from headrace.metadata.run import RunMetadata

WAIT_SECONDS: Final = 300.0  # longest wait for the thread


class _Worker:
    """File and the thread that writes to it.

    A worker has no reference to its `FileWriter`, so that the writer can be garbage collected and the file then closed.
    """

    def __init__(self, folder: str, suffix: str, most: int, flush_secs: float) -> None:
        self.out = events.Writer(folder, suffix)
        self._most = most
        self._flush_secs = flush_secs
        self._changed = threading.Condition()
        self._waiting: collections.deque[bytes] = collections.deque()
        self._added = self._written = self._wanted = 0  # numbers of events: added; in the file; to write at once
        self._error: BaseException | None = None
        self._is_closing = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="headrace-events", daemon=True)
        self._thread.start()

    @property
    def _is_forked(self) -> bool:
        """Whether this process is a fork of the writer's, so that the thread is missing."""
        return os.getpid() != self._process

    @property
    def is_well(self) -> bool:
        """Whether events can be added."""
        return self._error is None and not self._is_forked

    def add(self, event: bytes) -> None:
        """Adds an event to the queue, and waits while the queue is full."""
        self._check_process()
        with self._changed:
            self._wait(lambda: self._is_closing or len(self._waiting) < self._most, "room in the queue of events")
            if self._is_closing:
                raise closed(self.out.path)
            self._waiting.append(event)
            self._added += 1
            self._changed.notify_all()

    def flush(self) -> None:
        """Waits until all added events are in the file."""
        self._check_process()
        with self._changed:
            goal = self._wanted = self._added
            self._changed.notify_all()
            self._wait(lambda: self._written >= goal, "events to be written")

    def close(self) -> None:
        """Writes the pending events, closes the file and ends the thread. May be called again."""
        if self._is_forked:  # the file belongs to the parent process
            return
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if threading.current_thread() is self._thread:  # garbage collection runs in the thread itself, which will end
            return
        self._thread.join(WAIT_SECONDS)
        if self._thread.is_alive():
            raise DeadlineExceededError(f"{self.out.path}: not written within {WAIT_SECONDS:g} seconds")
        self._raise()

    def _check_process(self) -> None:
        if self._is_forked:
            raise FailedPreconditionError(
                f"{self.out.path} is written by the process that this one was forked from; call reopen(), for a file "
                "of its own"
            )

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        if not self._changed.wait_for(lambda: self._error is not None or is_so(), WAIT_SECONDS):
            raise DeadlineExceededError(f"{self.out.path}: waited {WAIT_SECONDS:g} seconds for {what}")
        self._raise()

    def _raise(self) -> None:
        """Raises the error of the thread, as a new exception so that no traceback grows."""
        e = self._error
        if e is not None:
            of = type(e) if isinstance(e, OpError) else UnknownError
            raise of(f"events could not be written, and are lost: {e}. Call reopen(), for a new file") from e

    # *** the thread ***

    def _run(self) -> None:
        held: list[bytes] = []
        size, due = 0, 0.0
        try:
            with self.out:
                is_last = False
                while not is_last:
                    batch, is_last = self._next(due if held else None)
                    if batch and not held:
                        due = time.monotonic() + self._flush_secs
                    held += batch
                    size += sum(map(len, batch))
                    is_wanted = is_last or self._wanted > self._written
                    if held and (is_wanted or size > thresholds.PENDING_EVENT_BYTES or time.monotonic() >= due):
                        self.out.write(*held)
                        with self._changed:
                            self._written += len(held)
                            self._changed.notify_all()
                        held.clear()
                        size = 0
        except BaseException as e:
            with self._changed:
                self._error = e
                self._waiting.clear()
                self._changed.notify_all()

    def _next(self, due: float | None) -> tuple[list[bytes], bool]:
        """Waits for events or a request. Returns the events, and whether they are the last."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._is_closing or self._wanted > self._written,
                None if due is None else max(due - time.monotonic(), 0),
            )
            batch = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            return batch, self._is_closing


def closed(path: str) -> FailedPreconditionError:
    """Returns the error for adding to a closed file."""
    return FailedPreconditionError(f"{path} is closed; call reopen(), for a new file in the same folder")


def _close_quietly(worker: _Worker) -> None:
    """Closes a worker and ignores errors, when no caller is left to receive them."""
    with contextlib.suppress(OpError):
        worker.close()


class FileWriter:
    """Writes events to a new file in a folder. The methods are thread safe.

    A thread writes the file. An error of the thread is raised by the next call of any method.

    Args:
      logdir: the folder. It is created if necessary.
      graph: a graph to add at the start, as by `add_graph`, or None.
      max_queue: largest number of events that wait for the thread. If the queue is full, methods wait.
      flush_secs: longest time in seconds before an added event is in the file.
      filename_suffix: suffix of the file name. None: no suffix.

    Raises:
      NotFoundError, FailedPreconditionError, PermissionDeniedError, ...: the file cannot be created or written.
      ValueError: `max_queue` is not positive.

    Source: TensorFlow's `tf.summary.FileWriter`.

    Example:
      >>> import tempfile
      >>> from headrace.files import events
      >>> with FileWriter(tempfile.mkdtemp()) as writer:
      ...     for step in range(3):
      ...         writer.scalar("loss", 1 / (step + 1), step)
      >>> [round(e.summary.value[0].simple_value, 2) for e in events.read(writer.path) if e.HasField("summary")]
      [1.0, 0.5, 0.33]
    """

    def __init__(
        self,
        logdir: local.Path,
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str | None = None,
    ) -> None:
        if max_queue < 1:
            raise ValueError(f"max_queue must be positive, got {max_queue}")
        self._folder = local.text_of(logdir)
        self._settings = filename_suffix or "", max_queue, flush_secs
        self._lock = threading.Lock()
        self._seen_tags: set[str] = set()
        self._run_tags: set[str] = set()
        self._begin()
        forking.register_at_fork(self)
        if graph is not None:
            self.add_graph(graph)

    def _begin(self) -> None:
        self._worker = _Worker(self._folder, *self._settings)
        self._finalizer = weakref.finalize(self, _close_quietly, self._worker)
        self._is_closed = False

    def _forked(self) -> None:
        self._lock = threading.Lock()

    # *** the file ***

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._worker.out.path

    def get_logdir(self) -> str:
        """Returns the folder."""
        return self._folder

    def flush(self) -> None:
        """Waits until all added events are in the file."""
        if not self._is_closed:
            self._worker.flush()

    def close(self) -> None:
        """Writes the pending events and closes the file. A second call has no effect."""
        if not self._is_closed:
            self._is_closed = True
            self._finalizer.detach()
            self._worker.close()

    def reopen(self) -> None:
        """Starts a new file in the folder, if the current one is closed or failed."""
        if not self._is_closed and self._worker.is_well:
            return
        self._finalizer.detach()
        _close_quietly(self._worker)
        with self._lock:
            self._seen_tags.clear()
            self._run_tags.clear()
            self._begin()

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # *** messages ***

    def add_event(self, event: Any) -> None:
        """Adds an `Event` message.

        Args:
          event: a message of headrace or TensorFlow, or its bytes.

        Raises:
          InvalidArgumentError: the bytes are not an `Event`.
          TypeError: `event` is neither a message nor bytes.
        """
        self._add(events.checked(_serialized(event)))

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Adds a summary.

        Args:
          summary: the result of a summary operation (bytes, or an array of them), or a `Summary` message of headrace or
            TensorFlow.
          global_step: step of the summary, or None.

        Raises:
          InvalidArgumentError: the bytes are not a `Summary`.
          TypeError: `summary` has another type.
        """
        with self._lock:
            data = summaries.once_noted(summary, self._seen_tags)  # the metadata of a tag is written once
        self._tell(global_step, summary=data)

    def add_graph(self, graph: Any, global_step: Any = None, form: str = "primitive") -> None:
        """Adds a graph, which TensorBoard draws.

        Args:
          graph: an `hr.Graph`, or a `GraphDef`: a message of headrace or TensorFlow, or its bytes or text.
          global_step: step of the graph, or None.
          form: form of an `hr.Graph`: "primitive", which draws the operations inside of their loops and conditionals;
            or "structured", in which a loop or conditional is one operation that calls functions.

        Raises:
          GraphError: the graph cannot be serialized, or the data is not a `GraphDef`.
          TypeError: `graph` has another type.
        """
        self._tell(global_step, graph_def=serialized_graph(graph, form))

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Adds a `MetaGraphDef` message.

        Args:
          meta_graph_def: a message of headrace or TensorFlow, or its bytes.
          global_step: step of the graph, or None.
        """
        self._tell(global_step, meta_graph_def=_serialized(meta_graph_def))

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Adds a `SessionLog` message: a session started or ended, or wrote a checkpoint.

        If a later session starts at an earlier step, TensorBoard drops the steps that it repeats.

        Args:
          session_log: a message of headrace or TensorFlow, or its bytes.
          global_step: step of the message, or None.
        """
        self._tell(global_step, session_log=_serialized(session_log))

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Adds the metadata of a run: its operations, with times and memory.

        Args:
          run_metadata: an `hr.RunMetadata` of a run with a trace (its loop statistics are not written), or a message of
            TensorFlow, or its bytes.
          tag: name of the run.
          global_step: step of the run, or None.

        Raises:
          ValueError: the tag has been used before.
        """
        if isinstance(run_metadata, RunMetadata):
            from headrace.files.run_metadata import encode

            data = encode(run_metadata)
        else:
            data = _serialized(run_metadata)
        with self._lock:
            if tag in self._run_tags:
                raise ValueError(f"The provided tag was already used for this event type: {tag!r}")
            self._run_tags.add(tag)
        self._tell(global_step, tagged_run_metadata={"tag": tag, "run_metadata": data})

    # *** summaries of numpy values ***

    def scalar(self, tag: str, value: Any, step: Any) -> None:
        """Adds a number.

        Args:
          tag: name of the curve. TensorBoard groups tags by the part before a "/".
          value: a number, an array with one element, or an eager tensor.
          step: step of the number.
        """
        self._tell(step, summary=summaries.scalars([tag.encode()], [np.asarray(value).item()]))

    def histogram(self, tag: str, values: Any, step: Any) -> None:
        """Adds the histogram of numbers.

        Args:
          tag: name of the histogram.
          values: an array of any shape.
          step: step of the histogram.

        Raises:
          InvalidArgumentError: an element is not finite.
        """
        self._tell(step, summary=_made("HistogramSummary", tag, values))

    def image(self, tag: str, pixels: Any, step: Any) -> None:
        """Adds an image. Needs Pillow.

        Args:
          tag: name of the image.
          pixels: an array [height, width, channels] or [height, width]; or [batch, height, width, channels] for several
            images, whose tags end in "/0", "/1", ... See `hr.summary.image`.
          step: step of the image.

        Raises:
          InvalidArgumentError: `pixels` has another shape.
        """
        x = np.asarray(pixels)
        x = x[None, ..., None] if x.ndim == 2 else x[None] if x.ndim == 3 else x
        n = len(x) if x.ndim else 1
        data = _made("ImageSummary", tag, x, max_images=max(n, 1))
        self._tell(step, summary=summaries.renamed(data, [tag] if n == 1 else [f"{tag}/{i}" for i in range(n)]))

    def audio(self, tag: str, samples: Any, sample_rate: float, step: Any) -> None:
        """Adds a sound.

        Args:
          tag: name of the sound.
          samples: an array [frames, channels] or [frames], with values from -1 to 1.
          sample_rate: frames per second.
          step: step of the sound.

        Raises:
          InvalidArgumentError: `samples` has another shape, or the rate is not positive.
        """
        x = np.asarray(samples, np.float32)
        data = _made("AudioSummaryV2", tag, x[None], np.float32(sample_rate), max_outputs=1)
        self._tell(step, summary=summaries.renamed(data, [tag]))

    def text(self, tag: str, text: Any, step: Any) -> None:
        """Adds text, which TensorBoard shows as Markdown.

        Args:
          tag: name of the text.
          text: a string, or an array of strings, which is shown as a table.
          step: step of the text.
        """
        note = summaries.metadata(plugin="text")
        self.add_summary(_made("TensorSummaryV2", tag, scopes.runtime().eager.const(text), note), step)

    # *** events for the thread ***

    def _tell(self, step: Any, **what: Any) -> None:
        self._add(events.event(time.time(), None if step is None else int(step), **what))

    def _add(self, event: bytes) -> None:
        if self._is_closed:
            self._refuse()
            return
        self._worker.add(event)

    def _refuse(self) -> None:
        raise closed(self.path)


def serialized_graph(graph: Any, form: str = "primitive") -> bytes:
    """Returns the serialized `GraphDef` of a graph. See `FileWriter.add_graph`."""
    made = graph.as_graph_def(form, add_shapes=True, portable=False) if isinstance(graph, scopes.Graph) else graph
    return _serialized(read_graph_def(made))


def _made(type: str, *args: Any, **attrs: Any) -> bytes:
    """Runs a summary operation eagerly, also while a graph is entered, and returns its bytes."""
    data: bytes = scopes.runtime().eager.make(type, args, attrs).numpy()
    return data


def _serialized(message: Any) -> bytes:
    if isinstance(message, bytes):
        return message
    if not hasattr(message, "SerializeToString"):
        raise TypeError(f"expected a message or its bytes, got {type(message).__name__}: {message!r}")
    data: bytes = message.SerializeToString()
    return data


class FileWriterCache:
    """Cache of one `FileWriter` per folder.

    Source: TensorFlow's `tf.summary.FileWriterCache`.

    Example:
      >>> import headrace as hr, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     writer = hr.train.FileWriterCache.get(folder)
      ...     is_same = hr.train.FileWriterCache.get(folder) is writer
      ...     hr.train.FileWriterCache.clear()
      >>> is_same
      True
    """

    _writers: ClassVar[dict[str, FileWriter]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def get(cls, logdir: local.Path) -> FileWriter:
        """Returns the writer of a folder.

        Args:
          logdir: the folder.
        """
        folder = local.text_of(logdir)
        with cls._lock:
            if folder not in cls._writers:
                cls._writers[folder] = cls._new(folder)
            return cls._writers[folder]

    @classmethod
    def clear(cls) -> None:
        """Closes all writers and removes them from the cache."""
        with cls._lock:
            writers = list(cls._writers.values())
            cls._writers.clear()
        for writer in writers:
            writer.close()

    @classmethod
    def _new(cls, folder: str) -> FileWriter:
        return FileWriter(folder)

    @classmethod
    def _forked(cls) -> None:
        cls._lock = threading.Lock()
        cls._writers.clear()  # they belong to the parent process


forking.run_after_fork(FileWriterCache._forked)


__all__ = ["FileWriter", "FileWriterCache"]
