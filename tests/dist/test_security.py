"""Security of clusters: files, Python functions, certificates, secrets and bounds."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import cli, flags, thresholds
from headrace.api import scopes
from headrace.compiled_step import Request
from headrace.dist import messages, step_codec
from headrace.dist.address import default_options
from headrace.dist.codec import Control, encode_control
from headrace.dist.network import Network, NetworkOptions
from headrace.dist.reactor import Reactor
from headrace.dist.server import Server
from headrace.errors import (
    InvalidArgumentError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    from_data,
)
from headrace.files import checkpoints
from headrace.ir.opdef import op_registry
from headrace.pipeline import pruned
from tests.dist.faults import free_ports
from tests.dist.waits import until

pytestmark = [pytest.mark.system, pytest.mark.one_engine, pytest.mark.timeout(60)]

SECRET = b"secret of the tests"
LIMIT = 20_000  # milliseconds of a step


def address_of(server: Server) -> str:
    """Address of a server for a session that shall connect by the network."""
    return str(server.target)


def far(server: Server, graph: hr.Graph, options: NetworkOptions | None = None, **more: Any) -> hr.Session:
    """A session that connects by the network, as from another process."""
    return hr.Session(hr.cluster.at(address_of(server), options), graph=graph, **more)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with one task, whose clients use no files."""
    with Server({"worker": ["127.0.0.1:0"]}) as made:
        yield made


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """Servers of a cluster with two tasks."""
    spec = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    with Server(spec, "worker", 0) as a, Server(spec, "worker", 1) as b:
        yield a, b


@contextlib.contextmanager
def linked(address: str, role: str, name: str = "") -> Iterator[tuple[Any, queue.SimpleQueue[Any]]]:
    """A connection to a server, and the queue of the frames that arrive."""
    reactor = Reactor("tests")
    frames: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def opened(link: Any) -> None:
        link.on_frames = lambda arrived: list(map(frames.put, arrived))
        link.on_closed = lambda reason: frames.put(None)

    try:
        network = Network(reactor, NetworkOptions(), "test", 1)
        yield network.connect_blocking(address.removeprefix("headrace://"), role, name, 0, opened), frames
    finally:
        reactor.close()


# *** files ***

#: A server that notes the system calls with paths in one folder, by Python's audit hooks, and prints them at its end.
AUDITED = """
import json, os, sys
import headrace as hr
files, watched = sys.argv[1:]
calls = []
def hook(event, args):
    if event in ("open", "glob.glob") or event.startswith(("os.", "shutil.")):
        for a in args:
            if isinstance(a, (str, bytes)) and (os.path.realpath(os.fsdecode(a)) + "/").startswith(watched + "/"):
                calls.append([event, os.fsdecode(a)])
server = hr.Server({"worker": ["127.0.0.1:0"]}, files=files)
sys.addaudithook(hook)
print(server.target, flush=True)
sys.stdin.read()
server.close()
print(json.dumps(calls))
"""


class Files:
    """A folder that a server may use for its clients, and another folder.

    Attributes:
      inside: the folder that it may use.
      outside: the other folder, with a file of each kind.
      address: the address of the server.
    """

    def __init__(self, folder: Path) -> None:
        self.inside, self.outside = folder / "inside", folder / "outside"
        (self.inside / "sub").mkdir(parents=True)
        self.outside.mkdir()
        (self.inside / "link").symlink_to(self.outside)
        for where in (self.inside, self.outside):
            (where / "text").write_bytes(b"first\nsecond\n" * 4)
            np.save(where / "rows", np.zeros((2, 3), np.float32))
            for format in ("native", "tensorflow", "tensorflow-v1"):
                checkpoints.write(str(where / format), {"v": np.float32(7)}, format)
        for name in ("text", "rows.npy", "native.index.json"):
            (self.inside / f"link-{name}").symlink_to(self.outside / name)
        self._before = self._contents()
        self._process = subprocess.Popen(
            [sys.executable, "-c", AUDITED, str(self.inside), str(self.outside)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def _contents(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in self.outside.iterdir()}

    def hostile(self, name: str) -> list[str]:
        """Paths of a file in the other folder."""
        inside, outside = str(self.inside), str(self.outside)
        return [
            f"{outside}/{name}",
            f"{inside}/../outside/{name}",
            f"{inside}/sub/../../outside/{name}",
            f"{inside}/link/{name}",
            f"{inside}/sub/../link/{name}",
            f"outside/{name}",
            f"{inside.upper()}/../outside/{name}",
        ]

    def close(self) -> None:
        out, _ = self._process.communicate(timeout=20)
        assert json.loads(out) == [], "system calls with paths outside of the folder"
        assert self._contents() == self._before


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """The folders and the server of all tests of files."""
    made = Files(tmp_path_factory.mktemp("files").resolve())
    yield made
    made.close()


def _table(v2: str) -> Callable[[str], Any]:
    def make(path: str) -> Any:
        kind = f"HashTable{v2}"
        table = getattr(hr.raw_ops, kind)(
            key_dtype=hr.string, value_dtype=hr.int64, shared_name=path + v2, container="", use_node_name_sharing=False
        )
        return getattr(hr.raw_ops, f"InitializeTableFromTextFile{v2}")(
            table_handle=table, filename=path, key_index=-2, value_index=-1, vocab_size=-1, delimiter="\t", offset=0
        )

    return make


def _sampler(path: str) -> Any:
    return hr.raw_ops.FixedUnigramCandidateSampler(
        true_classes=np.zeros((1, 1), np.int64), num_true=1, num_sampled=1, unique=False, range_max=8, vocab_file=path,
        distortion=1.0, num_reserved_ids=0, num_shards=1, shard=0, unigrams=[], seed=1, seed2=1,
    )[0]  # fmt: skip


def _save(type: str, **more: Any) -> Callable[[str], Any]:
    arguments = ("filename", "data") if type in ("Save", "SaveSlices") else ("prefix", "tensors")

    def make(path: str) -> Any:
        named = {arguments[0]: path, arguments[1]: [hr.constant(1.0)]}
        return getattr(hr.raw_ops, type)(tensor_names=["v"], **named, **more)

    return make


def _texts() -> Any:
    return hr.raw_ops.TensorSliceDataset(components=[["a", "b"]], output_shapes=[()])


def _records(type: str) -> Callable[[str], Any]:
    def make(path: str) -> Any:
        return getattr(hr.raw_ops, type)(input_dataset=_texts(), filename=path, compression_type="")

    return make


#: The file of each kind in the folders, and the operation that uses a path of it.
OPS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "ReadFile": ("text", lambda path: hr.io.read_file(path)),
    "WriteFile": ("new", lambda path: hr.raw_ops.WriteFile(filename=path, contents="x")),
    "MatchingFiles": ("*", lambda path: hr.io.matching_files(path)),
    "PrintV2": ("new", lambda path: hr.raw_ops.PrintV2(input="x", output_stream=f"file://{path}", end="\n")),
    "InitializeTableFromTextFile": ("text", _table("")),
    "InitializeTableFromTextFileV2": ("text", _table("V2")),
    "FixedUnigramCandidateSampler": ("text", _sampler),
    "SaveV2": ("native", _save("SaveV2", shape_and_slices=[""])),
    "_SaveNative": ("native", _save("_SaveNative", shape_and_slices=[""])),
    "Save": ("tensorflow-v1", _save("Save")),
    "SaveSlices": ("tensorflow-v1", _save("SaveSlices", shapes_and_slices=[""])),
    "DecodeProtoV2": (
        "text",
        lambda path: hr.io.decode_proto(hr.constant([b""]), "t.M", [], [], path).sizes,
    ),
    "EncodeProto": (
        "text",
        lambda path: hr.io.encode_proto([[0]], [hr.constant([[1]])], ["x"], "t.M", path),
    ),
    "RestoreV2": (
        "tensorflow",
        lambda path: hr.raw_ops.RestoreV2(
            prefix=path, tensor_names=["v"], shape_and_slices=[""], dtypes=[hr.float32]
        )[0],
    ),
    "Restore": (
        "tensorflow-v1",
        lambda path: hr.raw_ops.Restore(file_pattern=path, tensor_name="v", dt=hr.float32, preferred_shard=-1),
    ),
    "RestoreSlice": (
        "native",
        lambda path: hr.raw_ops.RestoreSlice(
            file_pattern=path, tensor_name="v", shape_and_slice="", dt=hr.float32, preferred_shard=-1
        ),
    ),
    "MergeV2Checkpoints": (
        "native",
        lambda path: hr.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[path], destination_prefix=path + "-merged", delete_old_dirs=True,
            allow_missing_files=False,
        ),
    ),
}  # fmt: skip

#: Operations that iterate over a dataset and write its elements.
SINKS: dict[str, Callable[[str], Any]] = {
    "DatasetToTFRecord": _records("DatasetToTFRecord"),
    "ExperimentalDatasetToTFRecord": _records("ExperimentalDatasetToTFRecord"),
    "SaveDataset": lambda path: hr.data.Dataset.from_tensor_slices(["a", "b"]).save(path),
}

#: Op types whose arguments look like those of files.
NO_FILES = {
    "TensorSliceDataset",  # its attribute says whether the elements are names of files; it opens none
    "CTCBeamSearchDecoder", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3",
    "RegexFullMatch", "RegexReplace", "ShardedFilename", "ShardedFilespec",
    "StaticRegexFullMatch", "StaticRegexReplace",
}  # fmt: skip
_FILE = re.compile("file|path|prefix|pattern|folder|dir|stream|basename|destination|descriptor_source|url|uri")

READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "WholeFileReader": ("text", {}),
    "TextLineReader": ("text", {"skip_header_lines": 0}),
    "FixedLengthRecordReader": ("text", {"record_bytes": 2, "header_bytes": 0, "footer_bytes": 0, "hop_bytes": 0}),
    "TFRecordReader": ("text", {"compression_type": ""}),
    "_NpyReader": ("rows.npy", {"dtype": hr.float32, "shape": (3,), "member": ""}),
}


def _reader(type: str, path: str, **attrs: Any) -> Any:
    """The next piece of a reader whose queue has one name."""
    b = scopes.builder()
    is_old = not type.endswith("V2") and type != "_NpyReader"
    unique = {"container": "", "shared_name": f"{type} of {path}"}
    handle = b.make(type, (), {**unique, **attrs})
    v2 = "" if is_old else "V2"
    of_queue = {**unique, "capacity": 2, "component_types": (hr.string,), "shapes": ()}
    names = b.make(f"FIFOQueue{v2}", (), of_queue)
    put = b.make(f"QueueEnqueue{v2}", (names, [hr.constant(path)]), {"timeout_ms": -1})
    with hr.control_dependencies([put]):
        return scopes.builder().make(f"ReaderRead{v2}", (handle, names), {})[1]


def _rows(type: str, **more: Any) -> Callable[[str], Any]:
    def make(path: str) -> Any:
        return getattr(hr.raw_ops, type)(filenames=path, buffer_size=0, **more)

    return make


def _cached(type: str, **more: Any) -> Callable[[str], Any]:
    def make(path: str) -> Any:
        rows = hr.raw_ops.TensorSliceDataset(components=[["a", "b"]], output_shapes=[()])
        shown = {"output_types": [hr.string], "output_shapes": [()]}
        # any resource: a cache in a file has no use for one
        resource = hr.raw_ops.IteratorV2(shared_name=f"cache of {path}", container="", **shown)
        memory = {"cache": resource} if type.endswith("V2") else {}
        return getattr(hr.raw_ops, type)(input_dataset=rows, filename=path, **memory, **shown)

    return make


_COLUMN = {
    "compression_type": "", "header": False, "field_delim": ",", "use_quote_delim": True, "na_value": "",
    "select_cols": hr.constant([], hr.int64).numpy(), "record_defaults": [[""]], "output_types": [hr.string],
    "output_shapes": [()],
}  # fmt: skip
_SIZES = {"header_bytes": 0, "record_bytes": 2, "footer_bytes": 0}
#: Datasets, whose files the iterator opens.
DATASETS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TextLineDataset": ("text", _rows("TextLineDataset", compression_type="")),
    "TFRecordDataset": ("text", _rows("TFRecordDataset", compression_type="")),
    "FixedLengthRecordDataset": ("text", _rows("FixedLengthRecordDataset", **_SIZES)),
    "FixedLengthRecordDatasetV2": ("text", _rows("FixedLengthRecordDatasetV2", compression_type="", **_SIZES)),
    "CacheDataset": ("new", _cached("CacheDataset")),
    "CacheDatasetV2": ("new", _cached("CacheDatasetV2")),
    "CSVDataset": ("text", _rows("CSVDataset", **_COLUMN)),
    "ExperimentalCSVDataset": ("text", _rows("ExperimentalCSVDataset", **_COLUMN)),
    "CSVDatasetV2": ("text", _rows("CSVDatasetV2", exclude_cols=_COLUMN["select_cols"], **_COLUMN)),
    "LoadDataset": ("new", lambda path: hr.data.Dataset.load(path, hr.TensorSpec((), hr.string)).variant_tensor),
    "SnapshotDatasetV2": (
        "new",
        lambda path: hr.data.Dataset.from_tensor_slices(["a", "b"]).snapshot(path).variant_tensor,
    ),
}


def _element(type: str, path: str) -> Any:
    """The first element of a dataset of a file."""
    shown = {"output_types": [hr.string], "output_shapes": [()]}
    dataset = DATASETS[type][1](path)
    handle = hr.raw_ops.IteratorV2(shared_name=f"{type} of {path}", container="", **shown)
    with hr.control_dependencies([hr.raw_ops.MakeIterator(dataset=dataset, iterator=handle)]):
        return hr.raw_ops.IteratorGetNext(iterator=handle, **shown)


def test_every_op_with_a_file_name_has_a_case() -> None:
    named = set()
    for type in op_registry:
        record = op_registry.get(type)
        if any(_FILE.search(name) for name in (*(a.name for a in record.ins), *record.attrs)):
            named.add(type)
    assert named - NO_FILES == OPS.keys() | DATASETS.keys() | SINKS.keys()
    assert all(
        op_registry.get(type).kernel is None for type in named - NO_FILES
    )  # pure kernels run without the context of a step
    readers = {t.removesuffix("V2") for t in op_registry if t.endswith(("Reader", "ReaderV2"))}
    assert readers - {"IdentityReader"} == READERS.keys()


def _denied(session: hr.Session, target: Any, type: str, path: str) -> None:
    with pytest.raises(PermissionDeniedError) as e:
        session.run(target, timeout_ms=LIMIT)
    text = "\n".join((str(e.value), *e.value.__notes__))
    assert f"({type})" in text, text
    assert "--files" in text
    assert text.startswith(os.path.dirname(path)), text


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_no_op_uses_a_file_outside_of_the_folder(files: Files, engine: str) -> None:
    with hr.Graph(ordered=False) as g:
        cases = [(type, path, make(path)) for type, (name, make) in OPS.items() for path in files.hostile(name)]
        for type, (name, attrs) in READERS.items():
            for path in files.hostile(name):
                cases.append((f"ReaderRead{'V2' if type == '_NpyReader' else ''}", path, _reader(type, path, **attrs)))
                if type != "_NpyReader":
                    cases.append(("ReaderReadV2", path, _reader(f"{type}V2", path, **attrs)))
        linked = [("ReadFile", f"{files.inside}/link-text"), ("RestoreV2", f"{files.inside}/link-native")]
        cases += [(type, path, OPS[type][1](path)) for type, path in linked]
    with hr.Session(hr.cluster.at(files.address), graph=g, engine=engine) as session:
        for type, path, target in cases:
            _denied(session, target, type, path)


@pytest.mark.parametrize("type", [*DATASETS, *SINKS])
def test_an_iterator_of_a_dataset_does_not_run_in_another_process(files: Files, type: str) -> None:
    """Without this limit, datasets would need the hostile paths above."""
    path = files.hostile(DATASETS[type][0] if type in DATASETS else "new")[0]
    with hr.Graph(ordered=False) as g:
        target = SINKS[type](path) if type in SINKS else _element(type, path)
    refused = pytest.raises(InvalidArgumentError, match="calls a Python function of this process")
    with hr.Session(hr.cluster.at(files.address), graph=g) as session, refused:
        session.run(target, timeout_ms=LIMIT)


def test_a_reader_does_not_restore_a_file_outside_of_the_folder(files: Files) -> None:
    state = b"\x08\x01\x22" + bytes([len(str(files.outside / "text"))]) + str(files.outside / "text").encode()
    with hr.Graph() as g:
        reader = hr.raw_ops.WholeFileReaderV2(container="", shared_name="restored")
        restore = hr.raw_ops.ReaderRestoreStateV2(reader_handle=reader, state=state)
        queue = hr.FIFOQueue(1, [hr.string], shared_name="names of restored")
        read = hr.raw_ops.ReaderReadV2(reader_handle=reader, queue_handle=queue.queue_ref)[1]
    with hr.Session(hr.cluster.at(files.address), graph=g) as session:
        session.run(restore)  # the file is opened by the first read
        _denied(session, read, "ReaderReadV2", "text")


def test_ops_use_the_files_of_the_folder(files: Files) -> None:
    folder = files.inside / "used"
    with hr.Graph() as g:
        v = hr.Variable(3.0, name="v")
        saver = hr.train.Saver([v])
        write = hr.raw_ops.WriteFile(filename=str(folder / "deep" / "text"), contents="hello")
        read = hr.io.read_file("inside/used/deep/text")
        found = hr.io.matching_files(str(folder / "*" / "t*"))
        line = _reader("TextLineReaderV2", str(files.inside / "text"), skip_header_lines=0)
        row = _reader("_NpyReader", str(files.inside / "rows.npy"), dtype=hr.float32, shape=(3,), member="")
    with hr.Session(hr.cluster.at(files.address), graph=g) as session:
        session.run(write)
        assert session.run(read) == b"hello"
        assert session.run(found).tolist() == [str(folder / "deep" / "text").encode()]
        assert session.run(line) == b"first"
        assert session.run(row) == bytes(12)
        session.run(v.initializer)
        path = saver.save(session, str(folder / "model"), global_step=1)
        session.run(v.assign(0.0))
        saver.restore(session, path)
        assert session.run(v) == 3.0


def test_a_client_of_the_servers_process_uses_all_files(server: Server, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with hr.Graph() as g:
        read = hr.io.read_file(str(tmp_path / "text"))
    with hr.Session(server.target, graph=g) as session:
        assert session.run(read) == b"hello"
        with far(server, g) as other, pytest.raises(PermissionDeniedError, match="--files FOLDER"):
            other.run(read)
        assert session.run(read) == b"hello"


def test_requests_to_one_reader_have_the_files_of_their_clients(server: Server, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("secret")
    with hr.Graph() as g:
        names = hr.FIFOQueue(2, [hr.string], shared_name="names")
        reader = hr.raw_ops.WholeFileReaderV2(container="", shared_name="both")
        read = hr.raw_ops.ReaderReadV2(reader_handle=reader, queue_handle=names.queue_ref)[1]
        put = names.enqueue(str(tmp_path / "text"))
    errors: list[Exception] = []

    def wait(session: hr.Session) -> None:
        try:
            session.run(read, timeout_ms=LIMIT)
        except Exception as e:
            errors.append(e)

    with hr.Session(server.target, graph=g) as own, far(server, g) as other:
        thread = threading.Thread(target=wait, args=(other,))
        thread.start()
        time.sleep(0.3)  # it waits for a name, which a client with all files provides
        own.run(put)
        thread.join(20)
        assert [type(e) for e in errors] == [PermissionDeniedError]
        own.run(put)
        assert own.run(read, timeout_ms=LIMIT) == b"secret"


def test_a_master_in_another_process_gets_no_files(server: Server, tmp_path: Path) -> None:
    """Its claim that a client is local does not count."""
    (tmp_path / "text").write_text("secret")
    with hr.Graph() as g:
        read = OPS["RestoreV2"][1](str(tmp_path / "text"))
    step = _encoded(g, [read])
    device = f"{server.task}/device:CPU:0"
    with linked(address_of(server), "master", server.task) as (link, frames):
        link.send(encode_control(messages.PrepareProgram(1, (messages.PartData(device, step),), (), True)))
        link.send(encode_control(messages.StartStep(1 << 50, 1, 1, is_local=True)))
        while not isinstance(message := _message(frames), messages.Report):
            pass
        (event,) = message.events
        assert isinstance(event, messages.PartFailed)
        assert isinstance(from_data(event.error), PermissionDeniedError)


def _message(frames: queue.SimpleQueue[Any]) -> Any:
    frame = frames.get(timeout=20)
    assert isinstance(frame, Control)
    return frame.message


def _encoded(g: hr.Graph, fetches: Sequence[Any], home: str = "") -> bytes:
    """A step as a client sends it."""
    from headrace.environment import Environment

    request = Request((), tuple(fetches), (), "auto", False)
    return step_codec.encode(request, pruned(request, Environment(is_remote=True)), home)


def test_a_local_cluster_uses_all_files_unless_it_has_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with hr.Graph() as g:
        v = hr.Variable(3.0, name="v")
        saver = hr.train.Saver([v])
    with hr.cluster.local(1) as cluster, hr.Session(cluster, graph=g) as session:
        session.run(v.initializer)
        saver.save(session, str(tmp_path / "model"))
    with hr.cluster.local(1, files=tmp_path / "folder") as cluster, hr.Session(cluster, graph=g) as session:
        session.run(v.initializer)
        saver.save(session, str(tmp_path / "folder" / "model"))
        with pytest.raises(PermissionDeniedError, match=re.escape(str(tmp_path / "folder"))):
            saver.restore(session, str(tmp_path / "model"))


def test_the_folder_of_a_server_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        Server({"worker": ["127.0.0.1:0"]}, files=tmp_path / "missing")


# *** Python functions ***


def _doubled(calls: list[str]) -> hr.Graph:
    """A graph whose loop over two tasks calls a Python function; "y" is 22."""

    def double(x: Any) -> Any:
        calls.append(threading.current_thread().name)
        return 2 * x

    def body(i: Any, x: Any) -> Any:
        with hr.device("/job:worker/task:1"):
            x = x + 1.0
        x = hr.py_func(double, [x], hr.float32)
        x.set_shape(())
        return i + 1, x

    with hr.Graph() as g:
        _, y = hr.while_loop(lambda i, x: i < 3, body, [hr.constant(0), hr.constant(1.0)])
        hr.identity(y, name="y")
    return g


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_python_function_runs_in_the_process_of_its_client(pair: tuple[Server, Server], engine: str) -> None:
    for server in pair:
        calls: list[str] = []
        g = _doubled(calls)
        with hr.Session(server.target, graph=g, engine=engine) as session:
            assert session.run("y:0", timeout_ms=LIMIT) == 22.0
            assert len(calls) == 3
            devices = {d.name for d in session.list_devices()}
            assert len(devices) == 2
        with far(server, g, engine=engine) as session, pytest.raises(InvalidArgumentError, match="of this process"):
            session.run("y:0")
        assert len(calls) == 3


def test_a_python_function_for_the_device_of_another_task_is_refused(pair: tuple[Server, Server]) -> None:
    with hr.Graph() as g, hr.device("/job:worker/task:1"):
        y = hr.py_func(lambda x: x, [hr.constant(1.0)], hr.float32, name="mine")
    with hr.Session(pair[0].target, graph=g) as session:
        with pytest.raises(InvalidArgumentError, match=r"'mine' .*requests the device /job:worker/task:1") as e:
            session.run(y)
        assert "this process is /job:worker/replica:0/task:0" in str(e.value)
    with hr.Session(pair[1].target, graph=g) as session:
        assert session.run(y) == 1.0


def test_a_gradient_of_a_python_function_runs_there_too(pair: tuple[Server, Server]) -> None:
    with hr.Graph() as g:
        with hr.device("/job:worker/task:1"):
            x = hr.constant(3.0)
        y = hr.py_function(lambda t: t * t, [x], hr.float32)
        dx = hr.gradients(y, [x])[0]
    with hr.Session(pair[0].target, graph=g) as session:
        assert session.run([y, dx], timeout_ms=LIMIT) == [9.0, 6.0]


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_deadline_ends_a_step_in_a_python_function(server: Server, engine: str) -> None:
    entered, released = threading.Event(), threading.Event()

    def wait(x: Any) -> Any:
        entered.set()
        released.wait(30)
        return x

    with hr.Graph() as g:
        y = hr.py_func(wait, [hr.constant(1.0)], hr.float32)
        z = hr.constant(2.0) * 3
    with hr.Session(server.target, graph=g, engine=engine) as session, far(server, g) as other:
        began = time.monotonic()
        with pytest.raises(OpError, match="Timed out"):
            session.run(y, timeout_ms=300)
        assert time.monotonic() - began < 4
        assert entered.is_set()
        assert other.run(z, timeout_ms=LIMIT) == 6.0
        released.set()
        assert session.run(z) == 6.0


def test_a_python_function_may_run_steps_of_its_server(server: Server) -> None:
    with hr.Graph() as inner:
        x = hr.constant(5.0) * 2
    with hr.Session(server.target, graph=inner) as within:
        with hr.Graph() as g:
            y = hr.py_func(lambda v: within.run(x) + v, [hr.constant(1.0)], hr.float32)
        with hr.Session(server.target, graph=g) as session:
            assert session.run(y, timeout_ms=LIMIT) == 11.0


def test_no_client_of_another_process_reaches_a_python_function(server: Server) -> None:
    """The bytes of an own program do not work for another client."""
    calls: list[Any] = []
    with hr.Graph() as g:
        y = hr.py_func(lambda x: (calls.append(x), x)[1], [hr.constant(1.0)], hr.float32, name="mine")
    with hr.Session(server.target, graph=g) as own, far(server, g) as other:
        assert own.run(y) == 1.0
        other._target._calls.home = server.task  # type: ignore[attr-defined]
        with pytest.raises(InvalidArgumentError, match=r"'mine' .*which only the process that made it may call"):
            other.run(y)
        assert own.run(y) == 1.0
    assert len(calls) == 2


def test_a_master_in_another_process_reaches_no_python_function(server: Server) -> None:
    calls: list[Any] = []
    with hr.Graph() as g:
        y = hr.py_func(lambda x: (calls.append(x), x)[1], [hr.constant(1.0)], hr.float32)
    data = _encoded(g, [y], server.task)
    with linked(address_of(server), "master", server.task) as (link, frames):
        part = messages.PartData(f"{server.task}/device:CPU:0", data)
        link.send(encode_control(messages.PrepareProgram(1, (part,), (), True)))
        answer = _message(frames)
        assert isinstance(answer, messages.ProgramPrepared)
        assert isinstance(error := from_data(answer.error), InvalidArgumentError)
        assert "This process runs none for others" in str(error)
        link.send(encode_control(messages.StartStep(1 << 50, 1, 1, is_local=True)))
        assert isinstance(_message(frames), messages.Report)
    assert not calls


# *** certificates and secrets ***


class Authority:
    """Folder with two authorities, and a certificate for loopback of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ca", "other"):
            self._openssl("req", "-x509", *self._new(name), "-addext", "basicConstraints=critical,CA:true",
                          "-out", f"{name}.pem")  # fmt: skip
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        for name, by in (("good", "ca"), ("bad", "other")):
            self._openssl("req", *self._new(name), "-out", f"{name}.csr")
            signer = ["-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial"]
            self._openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-days", "2", "-extfile", "names",
                          "-out", f"{name}.pem")  # fmt: skip
        (folder / "secret").write_bytes(SECRET + b"\n")

    def _new(self, name: str) -> list[str]:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]
        return [*key, "-subj", f"/CN={name}", "-days", "2"]

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder, timeout=20)

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def options(self, cert: str = "good", ca: str = "ca", secret: bytes = SECRET, **more: Any) -> NetworkOptions:
        """Options with mutual TLS and a secret."""
        return NetworkOptions.from_files(
            self[f"{cert}.pem"], self[f"{cert}.key"], self[f"{ca}.pem"], secret=secret, **more
        )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl, which makes certificates, is missing")
    return Authority(tmp_path_factory.mktemp("certificates"))


def _cut_loop() -> hr.Graph:
    """A loop whose body is on two workers; "y" is 20."""

    def body(i: Any, x: Any) -> Any:
        with hr.device("/job:worker/task:1"):
            x = x + 1.0
        with hr.device("/job:worker/task:0"):
            return i + 1, x * 1.0

    with hr.Graph() as g:
        _, y = hr.while_loop(lambda i, x: i < 20, body, [hr.constant(0), hr.constant(0.0)])
        hr.identity(y, name="y")
    return g


def test_a_cluster_with_mutual_tls_runs_a_loop_and_refuses_others(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    options, g = authority.options(), _cut_loop()

    def served() -> None:
        with far(a, g, options) as session:
            assert session.run("y:0", timeout_ms=LIMIT) == 20.0

    with_ca = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with_ca.load_verify_locations(authority["ca.pem"])
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(authority["ca.pem"])
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with Server(spec, "worker", 0, options=options) as a, Server(spec, "worker", 1, options=options):
        served()

        def versions() -> set[str | None]:
            return {link._socket.version() for link in a._links}  # type: ignore[attr-defined]

        until(lambda: None not in versions())  # a link may still be in its handshake
        assert versions() <= {"TLSv1.3", "TLSv1.2"}
        for wrong, text in (
            (NetworkOptions(SECRET, None, with_ca), "demands a certificate"),
            (NetworkOptions(SECRET, None, old), "demands a certificate"),
            (authority.options("bad"), "does not accept the certificate of this process"),
            (authority.options("good", "other"), "does not accept the certificate of the other end"),
            (authority.options(secret=b"another"), "the secret of the client .* differs"),
            (authority.options(secret=b""), "has no secret"),
        ):
            with pytest.raises(UnauthenticatedError, match=text):
                far(a, g, wrong)
        monkeypatch.setattr(a._listener, "_handshake_timeout", 0.2)  # the server waits so long for a handshake
        with pytest.raises(UnavailableError, match="may demand TLS"):
            far(a, g, NetworkOptions(SECRET))
        monkeypatch.undo()
        served()


def test_tls_towards_a_server_without_is_refused(authority: Authority) -> None:
    with Server({"worker": ["127.0.0.1:0"]}, options=NetworkOptions(SECRET)) as server:
        with pytest.raises(UnavailableError, match="Only one end uses TLS"):
            far(server, hr.Graph(), authority.options())
        with far(server, hr.Graph(), NetworkOptions(SECRET)) as session:
            assert session.list_devices()


def test_the_commands_take_certificates_and_secrets_from_files(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    file = tmp_path / "cluster.toml"
    file.write_text(f'[jobs]\nworker = ["localhost:{port}"]\n')
    guards = ["--cert", authority["good.pem"], "--key", authority["good.key"], "--ca", authority["ca.pem"]]
    guards += ["--secret-file", authority["secret"]]
    command = [sys.executable, "-m", "headrace", "worker", "--cluster", str(file), "--job", "worker", "--task", "0"]
    target = f"headrace://localhost:{port}"
    with hr.Graph() as g:
        read = hr.io.read_file(str(file))
    with subprocess.Popen([*command, *guards, "--files", str(tmp_path)], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert target in process.stderr.readline()
            assert cli.main(["status", target, *guards]) == 0
            assert "task:0: 1 devices" in capsys.readouterr().out
            assert cli.main(["status", target, *guards[:-2]]) != 0
            assert "has no secret" in capsys.readouterr().err
            given = {"CLUSTER_CERT": guards[1], "CLUSTER_KEY": guards[3], "CLUSTER_CA": guards[5]}
            with flags.override(**given, CLUSTER_SECRET_FILE=guards[7]), hr.Session(target, graph=g) as session:
                assert b"[jobs]" in session.run(read)
        finally:
            process.terminate()


def test_a_report_hides_the_secret() -> None:
    with flags.override(CLUSTER_SECRET=SECRET.decode()):
        text = str(hr.report())
        assert "HEADRACE_CLUSTER_SECRET=(hidden)" in text
        assert SECRET.decode() not in text
        assert SECRET.decode() not in repr(default_options())


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"cert": "good.pem", "key": "good.key"}, "a certificate and an authority"),
        ({"ca": "ca.pem"}, "a certificate and an authority"),
        ({"cert": "good.pem", "ca": "ca.pem"}, "cannot be used"),
        ({"cert": "good.pem", "key": "bad.key", "ca": "ca.pem"}, "cannot be used"),
        ({"cert": "missing", "key": "good.key", "ca": "ca.pem"}, "missing"),
        ({"cert": "good.pem", "key": "good.key", "ca": "good.key"}, "cannot be used"),
        ({"secret_file": "missing"}, "cannot be read"),
        ({"secret_file": "empty"}, "has no secret"),
    ],
)
def test_unusable_files_are_named(authority: Authority, files: dict[str, str], text: str) -> None:
    (authority.folder / "empty").write_bytes(b"\n")
    with pytest.raises(InvalidArgumentError, match=text) as e:
        NetworkOptions.from_files(**{name: authority[file] for name, file in files.items()})
    assert SECRET.decode() not in str(e.value)


def test_a_server_that_others_can_reach_demands_a_secret_or_certificates(authority: Authority) -> None:
    one_sided = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    one_sided.load_cert_chain(authority["good.pem"], authority["good.key"])
    local = {"worker": ["127.0.0.1:0"]}
    for bind in ("0.0.0.0", "::", "", "192.0.2.1", "example.org"):
        for options in (NetworkOptions(), NetworkOptions(server_tls=one_sided)):
            with pytest.raises(InvalidArgumentError, match=r"any process there could run .*CLUSTER_SECRET"):
                Server(local, options=options, bind=bind)
    with pytest.raises(InvalidArgumentError, match=r"listens on '192\.0\.2\.1'"):
        Server({"worker": ["192.0.2.1:0"]})
    for options in (NetworkOptions(SECRET), authority.options(secret=b"")):
        with Server(local, options=options, bind="0.0.0.0") as server, far(server, hr.Graph(), options) as session:
            assert server._listener.address.startswith("0.0.0.0:")
            assert session.list_devices()
    for bind in ("127.0.0.1", "localhost", "127.0.0.7"):
        Server(local, bind=bind).close()


def test_a_server_may_listen_on_all_addresses_of_a_host_that_it_cannot_name() -> None:
    """The address in the cluster is for others, such as a container's name."""
    (port,) = free_ports(1)
    spec = {"worker": [f"worker-0.example:{port}"]}
    with Server(spec, options=NetworkOptions(SECRET), bind="0.0.0.0") as server:
        assert server.target == f"headrace://worker-0.example:{port}"
        with hr.Graph() as g:
            y = hr.constant(2) * 3
        with hr.Session(hr.cluster.at(f"headrace://127.0.0.1:{port}", NetworkOptions(SECRET)), graph=g) as session:
            assert session.run(y) == 6
        with hr.Session(server.target, graph=g) as session:
            assert session.run(y) == 6


# *** bounds ***


def _graph(n: int) -> hr.Graph:
    """A graph with tensors "x0", "x1" and so on."""
    with hr.Graph() as g:
        for i in range(n):
            hr.add(hr.constant(i), 1, name=f"x{i}")
    return g


def test_the_sessions_of_a_master_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "CLUSTER_SESSIONS", 3)
    g = _graph(1)
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(far(server, g)) for _ in range(3)]
        for make in (lambda: far(server, g), lambda: hr.Session(server.target, graph=g)):
            with pytest.raises(ResourceExhaustedError, match=r"3 sessions of this master, and at most 3 are allowed"):
                make()
        sessions[0].close()
        assert stack.enter_context(far(server, g)).run("x0:0") == 1


def test_the_connections_of_clients_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "CLUSTER_CLIENTS", 2)
    monkeypatch.setattr(thresholds, "REFUSED_CLIENT", 0.1)
    g = _graph(1)
    with far(server, g) as a, far(server, g) as b:
        with pytest.raises(ResourceExhaustedError, match="2 clients are connected to this server"):
            far(server, g)
        assert a.run("x0:0") == b.run("x0:0") == 1
        with linked(address_of(server), "client") as (_, frames):
            assert frames.get(timeout=20) is None  # a client that says nothing is disconnected
        until(lambda: len(server._links) == 2)


def test_the_programs_of_a_session_are_bounded_and_released(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SESSION_PROGRAMS", 4)
    monkeypatch.setattr(thresholds, "SESSION_CALLS", 2)  # that a client keeps; the master drops the others
    with far(server, _graph(12)) as session:
        for _ in range(2):
            for i in range(12):
                assert session.run(f"x{i}:0") == i + 1
        assert server._master is not None
        assert server._master.master._state.description()["programs"] <= 4
        monkeypatch.setattr(thresholds, "SESSION_PROGRAMS", 0)
        with pytest.raises(ResourceExhaustedError, match="programs of this session, and at most 0"):
            session.run(["x0:0", "x1:0"])
        assert session.run("x11:0") == 12


def test_the_bytes_of_programs_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "CLUSTER_PROGRAM_BYTES", 1 << 17)
    with hr.Graph() as g:
        one = hr.placeholder_with_default(np.float64(1), ())
        for i in range(3):
            hr.reduce_sum(hr.constant(np.random.default_rng(i).random(1 << 13)) * one, name=f"x{i}")
    with far(server, g) as session:
        session.run("x0:0")
        with pytest.raises(ResourceExhaustedError, match="bytes of programs of this master"):
            session.run("x1:0")
        assert session.run("x0:0") > 0
    assert server._master is not None
    assert server._master.master._state._program_bytes == 0
    with far(server, g) as session:
        session.run("x1:0")


@pytest.mark.parametrize("bound", ["SESSION_STEPS", "CLUSTER_STEPS"])
def test_the_steps_under_way_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    with hr.Graph() as g:
        numbers = hr.FIFOQueue(10, [hr.int32], shapes=[()], shared_name="q")
        take, put = numbers.dequeue(), numbers.enqueue(1)
        y = hr.constant(1) + 1
    with far(server, g) as session, far(server, g) as other:
        session.run(y)
        threads = [threading.Thread(target=session.run, args=(take,), daemon=True) for _ in range(3)]
        for t in threads:
            t.start()
        assert server._master is not None
        state = server._master.master._state
        end = time.monotonic() + 20
        while len(state.runs) < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        with monkeypatch.context() as m:
            m.setattr(thresholds, bound, 3)
            text = f"there are 3 steps of this {'session' if bound == 'SESSION_STEPS' else 'master'} under way"
            with pytest.raises(ResourceExhaustedError, match=text):
                session.run(y)
            if bound == "SESSION_STEPS":
                assert other.run(y) == 2
            else:
                with pytest.raises(ResourceExhaustedError, match=text):
                    other.run(y)
        for _ in range(3):
            other.run(put)
        for t in threads:
            t.join(20)
            assert not t.is_alive()
        assert session.run(y) == 2


@pytest.mark.parametrize("largest", [1 << 16, 1 << 20])
def test_a_frame_above_the_bound_is_refused_by_both_ends(largest: int) -> None:
    value = np.zeros(largest, np.uint8)
    with hr.Graph() as g:
        x = hr.placeholder(hr.uint8, (None,))
        n = hr.size(x)
    with Server({"worker": ["127.0.0.1:0"]}, options=NetworkOptions(largest_frame=largest)) as server:
        with far(server, g, NetworkOptions(largest_frame=largest)) as session:
            assert session.run(n, {x: value[: largest // 2]}) == largest // 2
            with pytest.raises(ResourceExhaustedError, match=f"at most {largest} are sent. Raise NetworkOptions"):
                session.run(n, {x: value})
            assert session.run(n, {x: value[:9]}) == 9
        with far(server, g) as session:
            assert session.run(n, {x: value[:9]}) == 9
            with pytest.raises(UnavailableError):  # the server closes the connection
                session.run(n, {x: value})


def test_the_first_messages_of_a_connection_are_bounded() -> None:
    g = hr.Graph()
    for largest in (100, 1 << 16):
        options = NetworkOptions(SECRET, largest_greeting=largest)
        with Server({"worker": ["127.0.0.1:0"]}, options=options) as server:
            with socket.create_connection(("127.0.0.1", server._port), timeout=20) as peer:
                peer.sendall(b"hr\x01\x00" + (largest - 16).to_bytes(4, "little") + (largest + 1).to_bytes(8, "little"))
                while peer.recv(1 << 16):
                    pass  # the challenge; then the server closes the connection, and waits for no more bytes
            if largest > 1000:
                with far(server, g, NetworkOptions(SECRET)) as session:
                    assert session.list_devices()
