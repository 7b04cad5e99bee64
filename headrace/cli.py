"""The command `headrace`: runs, inspects and compares graphs in files; runs tasks of clusters.

    headrace run graph.pb --feed x=@x.npy --feed n=3 --fetch y
    headrace inspect graph.pb --fetch y
    headrace inspect graph.pb --html > graph.html       # the graph, drawn
    headrace inspect model_folder                       # a SavedModel: signatures, functions, variables, assets
    headrace run model_folder --signature serving_default --feed x=1,2,3
    headrace diff old.pb new.pb
    headrace text graph.pb                              # the graph as a program for readers
    headrace text graph.pb --exact > graph.txt          # which `run` and `inspect` read, too
    headrace view step.hrrec                            # the page of a recorded step (`hr.record`), or of a graph
    headrace worker --cluster cluster.toml --job worker --task 0
    headrace status headrace://host:2222
    headrace serve DIR                                  # answers requests for a SavedModel over HTTP
    headrace serve --grpc 8470                          # TensorFlow's clients run their graphs here
    headrace docs learn/tutorial                        # a page of the documentation; `headrace docs` lists the pages
    headrace migrate program.py                         # names of TensorFlow 1 that headrace.v1 lacks

Exit status: 0 success; 1 the graph was read and the run failed, or a cluster failed; 2 an argument cannot be used (an
option, a file, the name of a tensor, a value that does not fit); 130 interrupted. Exit status of `diff`: 0 the graphs
are equal; 1 they differ; 2 any failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, flags, shapes, step_events, thresholds
from headrace.errors import DataLossError, FeedError, HeadraceError, HeadraceInternalError
from headrace.fetches import feeder
from headrace.inspect import (
    describe,
    describe_step,
    diff,
    document_of_fetches,
    document_of_graph,
    render,
    render_dot,
    render_page,
    render_program,
    render_step,
)
from headrace.interchange import files
from headrace.ir import graph as ir_graph
from headrace.ir.graph import Operation, Tensor
from headrace.ir.text import to_text
from headrace.metadata import RunMetadata, RunOptions
from headrace.metadata.run import show_seconds
from headrace.progress import Progress
from headrace.session import Session

if TYPE_CHECKING:
    from headrace.dtypes import DType

OK: Final = 0
FAILED: Final = 1
DIFFERENT: Final = 1
BAD_USAGE: Final = 2
INTERRUPTED: Final = 130

_FEED_HELP = """\
values of --feed NAME=VALUE (NAME means NAME:0):
  x=@x.npy          an array saved by numpy.save
  x=3  x=-1.5e3     a number; also nan, inf, and 1+2j for complex tensors
  x=1,2,3           a list of numbers
  x=[[1,2],[3,4]]   nested lists, as in JSON
  x=true            a boolean
  s="some text"     text (a string tensor also takes it without quotation marks)
"""


class UsageError(Exception):
    """An argument cannot be used. The text is the complete message."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    Args:
      argv: the arguments; None: those of the process.
    """
    args = None
    try:
        args = _parser().parse_args(argv)
        with flags.override(TRACEBACK="full") if args.traceback else contextlib.nullcontext():
            status: int = args.command(args)
        sys.stdout.flush()
        return status
    except SystemExit as e:  # argparse has printed the error or its help
        return e.code if isinstance(e.code, int) else BAD_USAGE
    except UsageError as e:
        return _fail(args, BAD_USAGE, str(e))
    except BrokenPipeError:  # the reader has closed the pipe (`headrace inspect g.pb | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _failed(args)
    except KeyboardInterrupt:
        return _fail(args, INTERRUPTED, "interrupted")
    except Exception as e:
        return _fail(args, _failed(args), _text_of(e))


def _failed(args: argparse.Namespace | None) -> int:
    """Exit status of a command that failed with valid arguments."""
    return FAILED if args is None else int(args.failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headrace", description="Runs and inspects graphs (GraphDef files).")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run", help="run a graph", epilog=_FEED_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_common(run)
    run.add_argument("--feed", action="append", default=[], metavar="NAME=VALUE", help="a value to feed (see below)")
    run.add_argument(
        "--fetch",
        action="append",
        default=[],
        metavar="NAME",
        help="a tensor to fetch and print, or an operation to run",
    )
    run.add_argument(
        "--init",
        action="append",
        default=[],
        metavar="NAME",
        help="an operation to run first; several run in the given order",
    )
    run.add_argument(
        "--save", action="append", default=[], metavar="NAME=@FILE.npy", help="save a fetched tensor for numpy.load"
    )
    run.add_argument("--trace", metavar="FILE.json", help="write a Chrome trace (open it in ui.perfetto.dev)")
    run.add_argument(
        "--stats", action="store_true", help="print the time of each operation on standard error (slows the run)"
    )
    run.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="time limit of the run")
    run.add_argument("--signature", metavar="NAME", help="of a SavedModel, the signature to call (serving_default)")
    run.add_argument("--full", action="store_true", help="print all elements of every value")
    run.add_argument("--quiet", action="store_true", help="no progress line on long runs")
    run.set_defaults(command=_run)

    look = commands.add_parser("inspect", help="describe the contents of a graph")
    _add_common(look)
    look.add_argument(
        "--fetch", action="append", default=[], metavar="NAME", help="describe the step that fetches this"
    )
    look.add_argument("--feed", action="append", default=[], metavar="NAME", help="feed of that step")
    look.add_argument(
        "--lowered",
        action="store_true",
        help="the primitive form: conditionals, loops and calls lowered for the executor",
    )
    form = look.add_mutually_exclusive_group()
    form.add_argument("--dot", action="store_true", help="as Graphviz text for `dot -Tsvg`")
    form.add_argument("--html", action="store_true", help="as one self-contained web page")
    look.add_argument("--full", action="store_true", help="show lists and drawings in full")
    look.set_defaults(command=_inspect)

    compare = commands.add_parser("diff", help="compare two graphs (exit status 0: equal, 1: different)")
    _add_common(compare)
    compare.add_argument("other", metavar="OTHER", help="the second graph")
    compare.add_argument("--full", action="store_true", help="show lists in full")
    compare.set_defaults(command=_diff, failed=BAD_USAGE)

    text = commands.add_parser("text", help="print a graph as a program, a line for each operation")
    _add_common(text)
    text.add_argument("--names", action="store_true", help="full names of operations")
    form = text.add_mutually_exclusive_group()
    form.add_argument("--lowered", action="store_true", help="the primitive form, as the executor runs it")
    form.add_argument("--exact", action="store_true", help="all details, in the form that run and inspect read")
    text.set_defaults(command=_text)

    view = commands.add_parser("view", help="show a recorded step, or a graph, in a browser")
    view.add_argument(
        "file", metavar="FILE", help="a recording (`hr.record`), or a graph as the other commands read it"
    )
    view.add_argument("--port", type=_port, default=0, metavar="N", help="port of the page on 127.0.0.1; 0: a free one")
    view.add_argument("--html", metavar="OUT.html", help="write the page to a file and serve nothing")
    view.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    view.set_defaults(command=_view, failed=FAILED)

    worker = commands.add_parser("worker", help="run a task of a cluster")
    worker.add_argument("--cluster", required=True, metavar="FILE.toml", help="the tasks with their addresses")
    worker.add_argument("--job", required=True, metavar="NAME", help="the job of this task")
    worker.add_argument("--task", required=True, type=int, metavar="N", help="the number of this task in its job")
    worker.add_argument(
        "--device", action="append", default=[], metavar="TYPE=N", help="number of devices of a type, such as CPU=2"
    )
    worker.add_argument("--bind", metavar="HOST", help="address to listen on, if not that of the file")
    worker.add_argument("--heartbeat", type=_seconds, default=1.0, metavar="SECONDS", help="time between signs of life")
    worker.add_argument(
        "--patience", type=_seconds, default=10.0, metavar="SECONDS", help="time after which a silent process is lost"
    )
    worker.add_argument(
        "--files", metavar="DIR", help="the folder whose files clients in other processes may use; without it none"
    )
    worker.add_argument(
        "--largest-frame", type=_bytes, default=thresholds.LARGEST_FRAME, metavar="BYTES",
        help="size of the largest message with its tensors",
    )  # fmt: skip
    worker.add_argument(
        "--shared-memory", type=lambda text: _bytes(text, 0), default=thresholds.SHARED_MEMORY, metavar="BYTES",
        help="memory shared with each other process of this machine; 0: none",
    )  # fmt: skip
    _add_guards(worker)
    worker.add_argument("--until-eof", action="store_true", help="end when the standard input ends")
    worker.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    worker.set_defaults(command=_worker, failed=FAILED)

    _add_serve(commands)

    status = commands.add_parser("status", help="describe a cluster: workers, steps under way, and their waits")
    status.add_argument("target", metavar="TARGET", help="the address of a server, headrace://host:port")
    status.add_argument("--json", action="store_true", help="print the state as JSON")
    _add_guards(status)
    status.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    status.set_defaults(command=_status, failed=FAILED)

    docs = commands.add_parser("docs", help="print a page of the documentation")
    docs.add_argument(
        "page",
        nargs="?",
        default="index",
        metavar="PAGE",
        help="such as learn/tutorial, or tutorial; with #ANCHOR one section; without a page the list of all",
    )
    docs.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    docs.set_defaults(command=_docs, failed=BAD_USAGE)

    migrate = commands.add_parser(
        "migrate", help="list what a program for TensorFlow 1 uses and headrace.v1 lacks (exit status 1: something)"
    )
    migrate.add_argument("paths", nargs="+", metavar="PATH", help="a program, or a folder with programs (*.py)")
    migrate.add_argument("--write", action="store_true", help="change the imports of TensorFlow in the files")
    migrate.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    migrate.set_defaults(command=_migrate, failed=BAD_USAGE)
    return parser


def _migrate(args: argparse.Namespace) -> int:
    from headrace.files.commit import replacing
    from headrace.v1 import migrating

    used: set[str] = set()
    missing: set[str] = set()
    for path in _programs(args.paths):
        try:
            with open(path, encoding="utf-8", newline="") as file:
                source = file.read()
        except (OSError, UnicodeDecodeError) as e:
            raise UsageError(f"{path} cannot be read: {e}") from e
        found = migrating.check(source, path)
        for absent in found.missing:
            print(f"{path}:{absent.line}: tf.{absent.name}: {absent.text}")
        used.update(found.used)
        missing.update(m.name for m in found.missing)
        if args.write and found.source != source:
            with replacing(path) as out:
                out.write(found.source.encode())
            print(f"{path}: imports headrace.v1")
    print(f"{len(used)} names of TensorFlow, of which headrace.v1 lacks {len(missing)}")
    return FAILED if missing else OK


def _programs(paths: Sequence[str]) -> Iterator[str]:
    """Iterates over the files, and those in the folders, of the command line."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, _, files_ in sorted(os.walk(path)):
            yield from (os.path.join(folder, name) for name in sorted(files_) if name.endswith(".py"))


def _docs(args: argparse.Namespace) -> int:
    from headrace import documentation

    try:
        print(documentation.text(args.page), end="")
    except LookupError as e:
        raise UsageError(str(e)) from None
    return OK


def _worker(args: argparse.Namespace) -> int:
    from headrace.dist import command

    command.worker(args, lambda text: print(f"headrace: {text}", file=sys.stderr))
    return OK


def _serve(args: argparse.Namespace) -> int:
    if bool(args.models) == (args.grpc is not None):
        raise UsageError("serve: give folders of models for HTTP, or --grpc PORT for TensorFlow's clients")
    options, other = (_GRPC_ONLY, "--grpc") if args.models else (_HTTP_ONLY, "folders of models")
    wrong = [name for name in options if getattr(args, name) is not None]
    if wrong:
        raise UsageError(f"serve: --{wrong[0].replace('_', '-')} is an option for {other}")
    if args.models:
        from headrace.serve.command import serve
    else:
        from headrace.master_service.command import serve

    serve(args, lambda text: print(f"headrace: {text}", file=sys.stderr))
    return OK


def _status(args: argparse.Namespace) -> int:
    from headrace.dist import command

    print(command.status(args))
    return OK


# Options of `headrace serve` that belong to one of its two protocols.
_HTTP_ONLY: Final = ("port", "batch", "batch_delay", "timeout", "largest_body", "connections", "threads")
_GRPC_ONLY: Final = (
    "target", "device", "job", "files", "largest_message", "sessions", "idle", "cert", "key", "ca", "secret_file",
)  # fmt: skip


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="serve models over HTTP, or run the graphs of TensorFlow's clients")
    serve.add_argument("--host", default="127.0.0.1", metavar="HOST", help="address to listen on, if not loopback")
    serve.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    http = serve.add_argument_group("models over HTTP")
    http.add_argument("models", nargs="*", metavar="[NAME=]DIR", help="a SavedModel, or a folder of versions 1, 2, ...")
    http.add_argument("--port", type=_port, metavar="PORT", help="port of HTTP (8501); 0: a free one")
    http.add_argument("--batch", type=int, metavar="N", help="rows of the largest batch (128); 0: no batches")
    http.add_argument(
        "--batch-delay", type=_seconds, metavar="SECONDS", help="wait of a request for others of its batch (none)"
    )
    http.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="time of a request (60 s)")
    http.add_argument("--largest-body", type=_bytes, metavar="BYTES", help="size of a request (16 MiB)")
    http.add_argument("--connections", type=int, metavar="N", help="open connections (1000)")
    http.add_argument("--threads", type=int, metavar="N", help="steps of a signature at the same time (2)")
    grpc = serve.add_argument_group("TensorFlow's clients")
    grpc.add_argument("--grpc", type=_port, metavar="PORT", help="port of TensorFlow's master service; 0: a free one")
    grpc.add_argument("--target", metavar="TARGET", help="a cluster that runs the steps, headrace://host:port")
    grpc.add_argument("--device", action="append", metavar="TYPE=N", help="number of devices of a type, such as CPU=2")
    grpc.add_argument("--job", metavar="NAME", help="the job in the names of the devices")
    grpc.add_argument("--files", metavar="DIR", help="the folder whose files clients may use; without it none")
    grpc.add_argument("--largest-message", type=_bytes, metavar="BYTES", help="size of the largest request or response")
    grpc.add_argument("--sessions", type=int, metavar="N", help="the largest number of open sessions")
    grpc.add_argument("--idle", type=_seconds, metavar="SECONDS", help="time without calls after which a session ends")
    _add_guards(grpc)
    serve.set_defaults(command=_serve, failed=FAILED)


def _add_guards(parser: argparse.ArgumentParser) -> None:
    """Adds the options of connections in a cluster, whose defaults are the flags `CLUSTER_...`."""
    parser.add_argument("--cert", metavar="FILE", help="certificate of this process, for connections by TLS (PEM)")
    parser.add_argument("--key", metavar="FILE", help="private key of the certificate, if that file lacks it (PEM)")
    parser.add_argument("--ca", metavar="FILE", help="authorities that have signed the certificates of all (PEM)")
    parser.add_argument("--secret-file", metavar="FILE", help="file with the secret of the cluster")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "graph",
        metavar="GRAPH",
        help="a GraphDef (binary or text), headrace's text form, or a folder with a SavedModel",
    )
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    parser.set_defaults(failed=FAILED)


def _bytes(text: str, least: int = 1 << 16) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a number of bytes, at least {least}, got {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return value


def _fail(args: argparse.Namespace | None, status: int, text: str) -> int:
    if args is not None and args.traceback:
        traceback.print_exc()
    print(f"headrace: {text}", file=sys.stderr)
    return status


def _text_of(e: BaseException) -> str:
    """Text of an error for the user: its class, text and notes."""
    text = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
    notes = getattr(e, "__notes__", [])
    if isinstance(e, HeadraceInternalError) or not isinstance(e, (HeadraceError, MemoryError, OSError)):
        notes = [*notes, "This is a fault of headrace; please report it with what --traceback shows."]
    return "\n  ".join([text, *notes])


# *** run ***


def _run(args: argparse.Namespace) -> int:
    if os.path.isdir(args.graph):
        return _run_model(args)
    if args.signature is not None:
        raise UsageError("--signature names a call of a SavedModel, which is a folder")
    graph = read_graph(args.graph)
    feeds = [_feed(graph, f) for f in args.feed]
    if len({t for t, _ in feeds}) < len(feeds):
        raise UsageError(f"a tensor is fed twice: {', '.join(t.name for t, _ in feeds)}")
    saves = [_save(graph, s) for s in args.save]
    fetches: list[Tensor | Operation] = [_element(graph, f) for f in args.fetch]
    fetches += [t for t, _ in saves if t not in fetches]
    init = [_operation(graph, name) for name in args.init]
    if not fetches and not init:
        raise UsageError("nothing to do: give --fetch NAME (`headrace inspect` lists the outputs)")
    recorder = _Recorder(args.trace) if args.trace else None
    level, metadata = (RunOptions.FULL_TRACE, RunMetadata()) if args.stats else (RunOptions.NO_TRACE, None)
    milliseconds = max(1, math.ceil(args.timeout * 1000)) if args.timeout else 0
    try:
        with Session(graph=graph) as session:
            for op in init:
                session.run(op, timeout_ms=milliseconds)
            if not fetches:
                return OK
            began = time.perf_counter()
            call = session.make_callable(fetches, [t for t, _ in feeds], accept_options=True)
            compiled = time.perf_counter()
            with contextlib.nullcontext() if args.quiet else Progress() as progress:
                options = RunOptions(milliseconds, recorder, progress and progress.ready, level)
                values = call(*[v for _, v in feeds], options=options, run_metadata=metadata)
            ended = time.perf_counter()
    finally:
        if recorder is not None:
            recorder.write()
        if metadata is not None and metadata.engine:
            print(metadata, file=sys.stderr)
    for f, value in zip(fetches, values, strict=True):
        print(_shown(f, value, args.full))
    for t, file in saves:
        _write_array(t, file, values[fetches.index(t)])
    print(f"ran in {show_seconds(ended - compiled)}, prepared in {show_seconds(compiled - began)}")
    return OK


def _run_model(args: argparse.Namespace) -> int:
    """Calls a signature of a SavedModel; `--fetch` selects results."""
    from headrace.saved_model import load
    from headrace.saved_model.functions import ConcreteFunction
    from headrace.saved_model.graph_models import GraphFunction

    for option in ("init", "save", "trace", "stats", "timeout"):
        if getattr(args, option):
            raise UsageError(f"--{option} is for files with a graph; {args.graph!r} is a folder with a SavedModel")
    began = time.perf_counter()
    model = _read_model(args.graph, load)
    name = args.signature or "serving_default"
    given = getattr(model, "signatures", None)
    calls = given if isinstance(given, dict) else {}  # a file may have any object there
    calls = {k: f for k, f in calls.items() if isinstance(f, (ConcreteFunction, GraphFunction))}
    if name not in calls:
        raise UsageError(f"{args.graph!r} has no signature {name!r}; it has {', '.join(sorted(calls)) or 'none'}")
    call = calls[name]
    specs = dict(zip(call.keywords, call.inputs, strict=True))
    feeds = {}
    for text in args.feed:
        key, equals, value = text.partition("=")
        if not equals or key not in specs:
            raise UsageError(f"--feed {text}: write NAME=VALUE; the signature takes {', '.join(specs) or 'nothing'}")
        feeds[key] = _fed(key, specs[key].dtype, value, lambda x: x)
    missing = [key for key in specs if key not in feeds]
    if missing:
        raise UsageError(f"the signature {name!r} also takes {', '.join(missing)}; give --feed {missing[0]}=...")
    call.lower()
    compiled = time.perf_counter()
    results = call(**feeds)
    ended = time.perf_counter()
    unknown = [key for key in args.fetch if key not in results]
    if unknown:
        raise UsageError(f"--fetch {unknown[0]}: the results of {name!r} are {', '.join(sorted(results))}")
    for key in args.fetch or sorted(results):
        print(_shown_value(key, results[key].dtype, results[key].numpy(), args.full))
    print(f"ran in {show_seconds(ended - compiled)}, prepared in {show_seconds(compiled - began)}")
    return OK


def _read_model(path: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(path)
    except OSError as e:
        raise UsageError(f"cannot read {path!r}: {e.strerror or e}") from e
    except HeadraceInternalError:
        raise
    except (HeadraceError, RuntimeError, ValueError) as e:
        raise UsageError(f"cannot load {path!r}: {e}") from e


class _Recorder:
    """Collects the events of a run for a trace.

    It opens the file at once, so that a wrong path is an error before a long run.

    Args:
      path: the path of the trace.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._events: list[step_events.Event] = []
        self._lost = 0
        try:
            self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115  (write() closes it)
        except OSError as e:
            raise UsageError(f"cannot write the trace {path!r}: {e.strerror}") from e

    def __call__(self, event: step_events.Event) -> None:
        if len(self._events) < thresholds.TRACE_EVENTS:
            self._events.append(event)
        else:
            self._lost += 1

    def write(self) -> None:
        with self._file as f:
            step_events.write_chrome(self._events, f)
        cut = f" ({self._lost:,} later events are left out)" if self._lost else ""
        print(f"trace in {self._path}: open it at ui.perfetto.dev or chrome://tracing{cut}", file=sys.stderr)


def _shown(fetch: Tensor | Operation, value: Any, full: bool) -> str:
    if isinstance(fetch, Operation):
        return f"{fetch.name}  done"
    return _shown_value(fetch.name, fetch.dtype, value, full)


def _shown_value(name: str, dtype: DType, value: Any, full: bool) -> str:
    head = f"{name}  {dtype.base.name} {shapes.show(np.shape(value))}"
    if not isinstance(value, (np.ndarray, np.generic, bytes)):
        return f"{head}  {value!r}"
    limit = sys.maxsize if full else 60
    if isinstance(value, np.ndarray):
        with np.printoptions(threshold=limit, edgeitems=3, linewidth=100):
            text = str(value) if value.dtype != object else repr(value.tolist())
    else:
        text = repr(value) if isinstance(value, bytes) else str(value)
    if not full and len(text) > 2000:
        text = text[:2000] + " ..."
    if "\n" in text:
        return head + "\n  " + text.replace("\n", "\n  ")
    return f"{head}  {text}"


# *** inspect, diff and text ***

_DOT_LIMIT: Final = 2000  # operations; Graphviz takes minutes for more


def _inspect(args: argparse.Namespace) -> int:
    if os.path.isdir(args.graph):
        from headrace.saved_model.describing import describe_model

        print(_read_model(args.graph, lambda path: describe_model(path, None if args.full else 20)))
        return OK
    graph = read_graph(args.graph)
    if args.feed and not args.fetch:
        raise UsageError("--feed says what a step is fed; give --fetch too")
    feeds = list(dict.fromkeys(_tensor(graph, f.partition("=")[0], "--feed") for f in args.feed))
    wanted = [_element(graph, f) for f in args.fetch]
    fetches = [t for t in wanted if isinstance(t, Tensor)]
    targets = [op for op in wanted if isinstance(op, Operation)]
    if args.html:
        drawn = None if args.full else thresholds.DRAWN_OPERATIONS
        title = f"{args.graph}: the step of {', '.join(args.fetch)}" if wanted else args.graph
        if wanted:
            document = document_of_fetches(graph, feeds, fetches, targets, title, drawn)
        else:
            document = document_of_graph(graph, title, drawn)
        _print_page(render_page(document))
        return OK
    step = describe_step(graph, feeds, fetches, targets, args.lowered) if wanted else None
    found = step.graph if step is not None else describe(graph, args.lowered)
    limit = None if args.full else 20
    if args.dot:
        print(render_dot(found.box, args.graph, None if args.full else _DOT_LIMIT))
    else:
        print(render(found, limit) if step is None else render_step(step, limit))
    return OK


def _print_page(text: str) -> None:
    """Prints a page in UTF-8, which it declares."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


def _diff(args: argparse.Namespace) -> int:
    found = diff(read_graph(args.graph), read_graph(args.other))
    print(found.text(None if args.full else 40))
    return DIFFERENT if found else OK


def _text(args: argparse.Namespace) -> int:
    graph = read_graph(args.graph)
    if args.exact:
        print(to_text(graph))
    else:
        print(render_program(describe(graph, args.lowered).box, full_names=args.names))
    return OK


# *** view ***


def _view(args: argparse.Namespace) -> int:
    from headrace.view.page import assemble
    from headrace.view.server import PageServer

    text = json.dumps(_document(args.file), allow_nan=False)
    if args.html:
        try:
            with open(args.html, "w", encoding="utf-8", errors="backslashreplace") as f:
                f.write(assemble(text))
        except OSError as e:
            raise UsageError(f"cannot write {args.html!r}: {e.strerror}") from e
        print(f"page in {args.html}", file=sys.stderr)
        return OK
    try:
        server = PageServer(text, args.port)
    except OSError as e:
        raise UsageError(f"cannot use port {args.port}: {e.strerror}") from e
    with server, contextlib.suppress(KeyboardInterrupt):
        print(f"{args.file} is at {server.url} (Ctrl-C ends the server)", flush=True)
        server.wait()
    return OK


def _document(path: str) -> dict[str, Any]:
    """Returns the document of a recording or graph."""
    from headrace.observe.recorded import is_recording, read_recording

    try:
        if not is_recording(path):
            return document_of_graph(read_graph(path), path)
        return read_recording(path)
    except DataLossError as e:
        raise UsageError(str(e)) from e
    except OSError as e:
        raise UsageError(f"cannot read {path!r}: {e.strerror}") from e


# *** arguments ***


def read_graph(path: str) -> ir_graph.Graph:
    """Reads the graph in a file; see `files.read_graph`.

    Raises:
      UsageError: the file cannot be read, or is not a graph that headrace can import.
    """
    try:
        graph = files.read_graph(path)
    except OSError as e:
        raise UsageError(f"cannot read {path!r}: {e.strerror}") from e
    except HeadraceInternalError:
        raise
    except (HeadraceError, ValueError) as e:
        raise UsageError(f"cannot import {path!r}: {e}") from e
    if not graph.operations:
        raise UsageError(f"{path!r} holds no operations")
    return graph


def _element(graph: ir_graph.Graph, name: str) -> Tensor | Operation:
    """Returns the tensor or operation that an argument names.

    `x:1` is output 1 of `x`; `x` is output 0, or the operation if it has no outputs; `^x` is the operation.
    """
    try:
        if ":" in name and not name.startswith("^"):
            return graph.get_tensor_by_name(name)
        op = graph.get_operation_by_name(name.removeprefix("^"))
    except (KeyError, ValueError) as e:
        raise UsageError(str(e.args[0])) from e
    return op.outputs[0] if op.outputs and not name.startswith("^") else op


def _operation(graph: ir_graph.Graph, name: str) -> Operation:
    found = _element(graph, "^" + name.removeprefix("^"))
    assert isinstance(found, Operation)
    return found


def _tensor(graph: ir_graph.Graph, name: str, option: str) -> Tensor:
    found = _element(graph, name)
    if isinstance(found, Operation):
        raise UsageError(f"{option} {name}: the operation '{found.name}' ({found.type}) has no outputs")
    return found


def _feed(graph: ir_graph.Graph, text: str) -> tuple[Tensor, Any]:
    """Parses `NAME=VALUE` to a tensor and a value to feed."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--feed {text}: write NAME=VALUE, for example --feed x=3 or --feed x=@x.npy")
    t = _tensor(graph, name, "--feed")
    if t.dtype.base in (dtypes.resource, dtypes.variant):
        raise UsageError(f"--feed {name}: '{t.name}' carries a {t.dtype.name}, which cannot be fed")
    return t, _fed(name, t.dtype.base, value, feeder(t))


def _fed(name: str, dtype: DType, value: str, convert: Callable[[Any], Any]) -> Any:
    """Returns the value of the text of a feed."""
    try:
        return convert(_load(value[1:], dtype) if value.startswith("@") else parse_value(value, dtype))
    except (FeedError, ValueError, OverflowError) as e:
        raise UsageError(f"--feed {name}: {e}") from e


def _load(path: str, dtype: DType) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as e:
        raise UsageError(f"cannot read {path!r}: {e.strerror or e}") from e
    except (ValueError, EOFError) as e:
        raise UsageError(f"{path!r} is no array saved by numpy.save: {e}") from e
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path!r} holds several arrays; save one with numpy.save")
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.numpy.itemsize:
        return array.view(dtype.numpy)  # numpy files do not know bfloat16 and keep its bytes
    return array


def parse_value(text: str, dtype: DType) -> Any:
    """Parses `text` as a value of `dtype`.

    The text is JSON, or one or several numbers as Python writes them.

    Args:
      text: the text of the value.
      dtype: the dtype of the tensor.

    Raises:
      ValueError: the text is not a value, or a list is ragged.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text if dtype is dtypes.string else _numbers(text)
    if dtype is dtypes.string:
        return value if _is_text(value) else text
    if not _is_data(value):
        raise ValueError(f"{_short(text)} is no {dtype.name}; write a number, true, false or a list of them")
    array = np.array(value)  # a ragged list raises ValueError
    return array if array.size else array.astype(dtype.numpy)


def _numbers(text: str) -> Any:
    words = text.strip().removesuffix(",").split(",")
    numbers = [_number(w.strip()) for w in words]
    return numbers if "," in text else numbers[0]


def _number(word: str) -> bool | int | float | complex:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for parse in (int, float, complex):
        try:
            return parse(word)
        except ValueError:
            pass
    raise ValueError(f"{_short(word)} is no number, true, false or JSON; an array in a file is @FILE.npy")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_text, value)))


def _is_data(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) or (isinstance(value, list) and all(map(_is_data, value)))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _save(graph: ir_graph.Graph, text: str) -> tuple[Tensor, str]:
    """Parses `NAME=@FILE` to a tensor and a path that can be written."""
    name, _, path = text.partition("=")
    path = path.removeprefix("@")
    if not name or not path:
        raise UsageError(f"--save {text}: write NAME=@FILE.npy, for example --save y=@y.npy")
    t = _tensor(graph, name, "--save")
    if t.dtype.base in (dtypes.resource, dtypes.variant):
        raise UsageError(f"--save {name}: '{t.name}' carries a {t.dtype.name}, which cannot be saved")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder) or os.path.isdir(path):
        raise UsageError(f"--save {name}: cannot write {path!r}: its folder does not exist, or it is one itself")
    return t, path


def _write_array(t: Tensor, path: str, value: Any) -> None:
    array = np.asarray(value)  # texts become numpy's padded kind, the only one that files can hold without pickles
    if t.dtype.base is dtypes.string:
        array = np.array(array.tolist(), dtype=np.bytes_).reshape(array.shape)
        if array.tolist() != (value.tolist() if isinstance(value, np.ndarray) else value):
            raise UsageError(f"--save {t.name}: numpy files cannot hold text that ends in NUL characters")
    try:
        with open(path, "wb") as f:
            np.save(f, array, allow_pickle=False)
    except OSError as e:
        raise UsageError(f"cannot write {path!r}: {e.strerror}") from e
