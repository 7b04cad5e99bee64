"""The wire schema against TensorFlow's.

The comparison covers every message, enum, field, number, type, oneof and option that is written.

Only names of packages and files, and options that steer code generation for other languages, may differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from headrace import pb
from headrace.pb import dataset_options_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

# TensorFlow's Python package lacks the messages of its master service. `tests/master_service/test_schema.py` has their
# numbers, and `test_master_service.py` uses them with TensorFlow's client.
NOT_IN_PYTHON = {"master.proto"}

# Prints the schema of MetaGraphDef and the other messages in files, and of all they rest on, as a FileDescriptorSet.
TENSORFLOW_SCHEMA = """
import sys
from google.protobuf import descriptor_pb2
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import dataset_options_pb2, device_attributes_pb2
from tensorflow.core.protobuf import meta_graph_pb2, named_tensor_pb2, queue_runner_pb2, saved_model_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2, tensorflow_server_pb2
from tensorflow.core.profiler import tfprof_log_pb2, tfprof_output_pb2
from tensorflow.core.util import event_pb2, saved_tensor_slice_pb2
from tensorflow.python.training import checkpoint_state_pb2

out = descriptor_pb2.FileDescriptorSet()
seen = set()

def walk(file):
    if file.name not in seen:
        seen.add(file.name)
        for d in file.dependencies:
            walk(d)
        file.CopyToProto(out.file.add())

walk(meta_graph_pb2.DESCRIPTOR)
walk(queue_runner_pb2.DESCRIPTOR)
walk(saved_model_pb2.DESCRIPTOR)
walk(example_pb2.DESCRIPTOR)
walk(tensor_bundle_pb2.DESCRIPTOR)
walk(event_pb2.DESCRIPTOR)
walk(checkpoint_state_pb2.DESCRIPTOR)
walk(saved_tensor_slice_pb2.DESCRIPTOR)
walk(tensorflow_server_pb2.DESCRIPTOR)
walk(tfprof_output_pb2.DESCRIPTOR)
walk(tfprof_log_pb2.DESCRIPTOR)
walk(dataset_options_pb2.DESCRIPTOR)
walk(device_attributes_pb2.DESCRIPTOR)
walk(named_tensor_pb2.DESCRIPTOR)
sys.stdout.buffer.write(out.SerializeToString())
"""


def our_files() -> list[FileDescriptorProto]:
    """The schema of `pb.MetaGraphDef` and the other files' messages.

    Their dependencies are included and come first.
    """
    found: dict[str, FileDescriptorProto] = {}

    def walk(file: FileDescriptor) -> None:
        if file.name not in found:
            for d in file.dependencies:
                walk(d)
            found[file.name] = FileDescriptorProto()
            file.CopyToProto(found[file.name])

    walk(pb.MetaGraphDef.DESCRIPTOR.file)
    walk(pb.QueueRunnerDef.DESCRIPTOR.file)
    walk(pb.SavedModel.DESCRIPTOR.file)
    walk(pb.Example.DESCRIPTOR.file)
    walk(pb.BundleEntryProto.DESCRIPTOR.file)
    walk(pb.Event.DESCRIPTOR.file)
    walk(pb.CheckpointState.DESCRIPTOR.file)
    walk(pb.SavedTensorSlices.DESCRIPTOR.file)
    walk(pb.ServerDef.DESCRIPTOR.file)
    walk(pb.GraphNodeProto.DESCRIPTOR.file)
    walk(pb.OpLogProto.DESCRIPTOR.file)
    walk(dataset_options_pb2.DESCRIPTOR)
    walk(pb.DeviceAttributes.DESCRIPTOR.file)
    walk(pb.NamedTensorProto.DESCRIPTOR.file)
    return list(found.values())


def describe(files: list[FileDescriptorProto]) -> dict[str, str]:
    """Describes each thing in the schema in one line, by its name without the package."""
    out: dict[str, str] = {}
    for file in files:
        if not file.message_type and not file.enum_type:
            continue  # it only hands on another file
        base = file.name.rsplit("/", 1)[-1]
        out[f"file {base}"] = f"{file.syntax or 'proto2'}, imports {sorted(map(leaf, file.dependency))}"
        for e in file.enum_type:
            out.update(describe_enum(e, "", base))
        for m in file.message_type:
            out.update(describe_message(m, "", base))
    return out


def leaf(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def describe_enum(e: EnumDescriptorProto, prefix: str, file: str) -> Iterator[tuple[str, str]]:
    name = prefix + e.name
    reserved = [(r.start, r.end) for r in e.reserved_range], list(e.reserved_name)
    yield f"enum {name}", f"in {file}, reserved {reserved}, aliases {e.options.allow_alias}"
    for v in e.value:
        yield f"value {name}.{v.name}", str(v.number)


def describe_message(m: DescriptorProto, prefix: str, file: str) -> Iterator[tuple[str, str]]:
    name = prefix + m.name
    reserved = [(r.start, r.end) for r in m.reserved_range], list(m.reserved_name)
    oneofs = [o.name for o in m.oneof_decl]
    yield f"message {name}", f"in {file}, map {m.options.map_entry}, reserved {reserved}, oneofs {oneofs}"
    for f in m.field:
        yield f"field {name}.{f.name}", describe_field(f, oneofs)
    for e in m.enum_type:
        yield from describe_enum(e, name + ".", file)
    for n in m.nested_type:
        yield from describe_message(n, name + ".", file)


def describe_field(f: FieldDescriptorProto, oneofs: list[str]) -> str:
    kind = FieldDescriptorProto.Type.Name(f.type)
    label = FieldDescriptorProto.Label.Name(f.label)
    packed = f.options.packed if f.options.HasField("packed") else "by syntax"
    type_name = f.type_name.removeprefix(".headrace.pb").removeprefix(".tensorflow")
    oneof = oneofs[f.oneof_index] if f.HasField("oneof_index") else "none"
    return (
        f"= {f.number}, {label} {kind} {type_name}, packed {packed}, oneof {oneof}, "
        f"default {f.default_value!r}, deprecated {f.options.deprecated}, json {f.json_name!r}, "
        f"explicit presence {f.proto3_optional}"
    )


def test_schema_equals_tensorflows(run_python: Callable[[str], bytes]) -> None:
    theirs = FileDescriptorSet.FromString(run_python(TENSORFLOW_SCHEMA))
    assert describe(our_files()) == describe(list(theirs.file))


def test_names_are_our_own() -> None:
    files = [f for f in our_files() if not f.name.startswith("google/protobuf/")]
    assert {f.package for f in files} == {
        "headrace.pb",
        "headrace.pb.data",
        "headrace.pb.data.model",
        "headrace.pb.error",
        "headrace.pb.tfprof",
    }
    assert all(f.name.startswith("headrace/pb/") for f in files)


def test_every_file_of_the_package_is_compared() -> None:
    folder = Path(pb.__file__).parent
    ours = {leaf(f.name) for f in our_files() if not f.name.startswith("google/protobuf/")}
    assert ours | NOT_IN_PYTHON == {p.name for p in folder.glob("*.proto")}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.field[0], "number", 77),
        lambda m: setattr(m.field[0], "type", FieldDescriptorProto.TYPE_BYTES),
        lambda m: setattr(m.field[0], "label", FieldDescriptorProto.LABEL_REPEATED),
        lambda m: setattr(m.field[0].options, "packed", True),
        lambda m: m.field.add(name="extra", number=78),
        lambda m: m.oneof_decl.add(name="extra"),
        lambda m: m.reserved_range.add(start=90, end=91),
        lambda m: setattr(m.nested_type[0], "name", "Other"),
    ],
)
def test_the_comparison_sees(change: Callable[[DescriptorProto], object]) -> None:
    files = our_files()
    before = describe(files)
    change(next(m for f in files for m in f.message_type if m.name == "NodeDef"))
    assert describe(files) != before
