"""SavedModels of TensorFlow 1 that are damaged or made to harm.

With any content of the folder, loading ends with the model or with an error of headrace that has a text. It takes
bounded time and memory, and opens no file outside of the folder. `tests/saved_model/test_hostile_objects.py` is about
SavedModels of TensorFlow 2.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import flags, pb
from headrace.interchange import saved_model
from tests.saved_model.hostile import bounded, change, check_flipped_bits, refusal_of

pytestmark = pytest.mark.matrix

VALUES = ("variables/variables.index", "variables/variables.data-00000-of-00001")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel with two variables, an asset, a signature and a loop."""
    top = tmp_path_factory.mktemp("sound")
    (top / "words.txt").write_text("a\nb\n")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [2], name="x")
        w = tf.get_variable("w", initializer=[3.0, 4.0])
        n = tf.get_variable("n", initializer=2)
        _, y = tf.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, y * w), [0, x])
        y = tf.identity(y, name="y")
        asset = tf.constant(str(top / "words.txt"), name="words")
        tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, asset)
        sess.run(tf.global_variables_initializer())
        builder = tf.saved_model.Builder(str(top / "model"))
        signature = tf.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            sess,
            [tf.saved_model.SERVING],
            {"serving_default": signature},
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
        )
        builder.save()
    return top / "model"


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy of the sound SavedModel, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "model"))


def in_a_session(folder: Path) -> list[float]:
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as sess:
        meta = tf.saved_model.load(sess, [tf.saved_model.SERVING], str(folder))
        call = meta.signature_def["serving_default"]
        out: list[float] = sess.run(call.outputs["y"].name, {call.inputs["x"].name: [1.0, 2.0]}).tolist()
        return out


def as_an_object(folder: Path) -> list[float]:
    out: list[float] = hr.saved_model.load(folder).signatures["serving_default"]([1.0, 2.0])["y"].numpy().tolist()
    return out


@pytest.fixture(params=[in_a_session, as_an_object])
def load(request: pytest.FixtureRequest) -> Callable[[Path], list[float]]:
    """A function that loads a SavedModel and returns the result of its signature."""
    found: Callable[[Path], list[float]] = request.param
    return found


@pytest.fixture
def refusal(load: Callable[[Path], list[float]]) -> Callable[[Path], str | None]:
    """A function that returns the error of a load and call, or None."""
    return lambda folder: refusal_of(load, folder)


def node(meta: pb.MetaGraphDef, name: str, op: str, *inputs: str) -> pb.NodeDef:
    """Adds an operation to the graph of a MetaGraph."""
    return meta.graph_def.node.add(name=name, op=op, input=inputs)


def constant(meta: pb.MetaGraphDef, name: str, dtype: pb.DataType, *shape: int) -> pb.TensorProto:
    """Adds a constant to a graph, used by its signature; returns its value."""
    out = node(meta, name, "Const")
    out.attr["dtype"].type = dtype
    value = out.attr["value"].tensor
    value.dtype = dtype
    for n in shape:
        value.tensor_shape.dim.add(size=n)
    meta.signature_def["serving_default"].outputs["y"].name = f"{name}:0"
    return value


def test_the_sound_model_loads(folder: Path, load: Callable[[Path], list[float]]) -> None:
    assert load(folder) == [9.0, 32.0]


# *** bombs ***


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((1 << 40,), "ResourceExhaustedError: "),
        ((1 << 31, 1 << 31), "Cannot parse tensor from proto: array is too big"),
        ((1 << 62, 4), "is too large"),
        ((-1,), "is not fully defined"),
        ((-(1 << 63),), "values below -1"),
        ((1,) * 300, "has 300 dimensions"),
    ],
)
def test_a_constant_of_an_absurd_shape_is_refused(
    folder: Path, refusal: Callable[[Path], str | None], shape: tuple[int, ...], text: str
) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        constant(meta, "bomb", pb.DT_FLOAT, *shape).float_val.append(1.0)

    change(folder, edit)
    with bounded():
        assert text in (refusal(folder) or "")


def test_a_constant_with_too_few_bytes_is_refused(folder: Path, refusal: Callable[[Path], str | None]) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        constant(meta, "bomb", pb.DT_FLOAT, 1 << 40).tensor_content = bytes(8)

    change(folder, edit)
    with bounded():
        assert "Cannot parse tensor from proto" in (refusal(folder) or "")


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 62,), (1 << 20, 1 << 13)])
def test_a_variable_of_an_absurd_shape_is_refused(
    folder: Path, refusal: Callable[[Path], str | None], shape: tuple[int, ...]
) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        (w,) = [n for n in meta.graph_def.node if n.name == "w"]
        w.attr["shape"].shape.Clear()
        w.attr["shape"].shape.dim.extend([pb.TensorShapeProto.Dim(size=n) for n in shape])

    change(folder, edit)
    with bounded():
        text = refusal(folder)
    assert "Error: " in (text or "")


@pytest.mark.parametrize(
    "text",
    [
        "meta_graphs { graph_def { library { function { signature { " * 4000,
        "meta_graphs { graph_def { node { attr { key: 'a' value { list { func { attr { key: 'a' value { " * 3000,
        "meta_graphs < " + "collection_def < value < any_list < " * 5000,
        "saved_model_schema_version: " + "9" * 100_000,
        "meta_graphs { collection_def { key: 'a' value { any_list { value { [x.y/foreign.Type] { a: 1 } } } } } }",
    ],
    ids=["library", "attributes", "collections", "number", "foreign"],
)
def test_a_text_that_cannot_be_parsed_is_refused(
    folder: Path, refusal: Callable[[Path], str | None], text: str
) -> None:
    (folder / saved_model.BINARY).unlink()
    (folder / saved_model.TEXT).write_text(text)
    with bounded():
        found = refusal(folder) or ""
    assert "Cannot parse file" in found
    assert len(found) < 2000


def test_bytes_of_deep_nesting_are_refused(folder: Path, refusal: Callable[[Path], str | None]) -> None:
    data = b""
    for _ in range(3000):  # too deep for the library to build as messages: each level repeats fields of length
        size = len(data)
        length = bytes(((size >> 7 * i) & 0x7F) | (0x80 if size >> 7 * (i + 1) else 0) for i in range(5))
        data = b"\x12" + (length.rstrip(b"\0") or b"\0") + data
    (folder / saved_model.BINARY).write_bytes(data)
    with bounded():
        assert "Cannot parse file" in (refusal(folder) or "")


def test_a_long_chain_of_operations_is_computed(folder: Path, refusal: Callable[[Path], str | None]) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        for i in range(1000):
            node(meta, f"i{i}", "Identity", f"i{i - 1}" if i else "x").attr["T"].type = pb.DT_FLOAT
        meta.signature_def["serving_default"].outputs["y"].name = "i999:0"

    change(folder, edit)
    with bounded():
        assert refusal(folder) is None


# *** loops ***


def test_operations_in_a_circle_are_refused(folder: Path, refusal: Callable[[Path], str | None]) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        for name, source in (("p", "q"), ("q", "p")):
            node(meta, name, "Identity", source).attr["T"].type = pb.DT_FLOAT
        meta.signature_def["serving_default"].outputs["y"].name = "p:0"

    change(folder, edit)
    with bounded():
        assert "GraphError: " in (refusal(folder) or "")


def calls(meta: pb.MetaGraphDef, callees: list[int]) -> None:
    """Adds functions "f0", "f1", ... that call the numbered ones; the signature calls the first."""

    def fill(call: pb.NodeDef, name: str) -> None:
        call.attr["f"].func.name = name
        for key in ("Tin", "Tout"):
            call.attr[key].list.type.append(pb.DT_FLOAT)

    for i, callee in enumerate(callees):
        function = meta.graph_def.library.function.add()
        function.signature.name = f"f{i}"
        function.signature.input_arg.add(name="x", type=pb.DT_FLOAT)
        function.signature.output_arg.add(name="y", type=pb.DT_FLOAT)
        fill(function.node_def.add(name="call", op="PartitionedCall", input=["x"]), f"f{callee}")
        function.ret["y"] = "call:output:0"
    fill(node(meta, "call", "PartitionedCall", "x"), "f0")
    meta.signature_def["serving_default"].outputs["y"].name = "call:0"


@pytest.mark.parametrize("callees", [[0], [1, 0]])
def test_functions_that_call_themselves_without_end_are_refused(
    folder: Path, refusal: Callable[[Path], str | None], callees: list[int]
) -> None:
    change(folder, lambda meta: calls(meta, callees))
    with flags.override(CALL_DEPTH=100):
        assert (refusal(folder) or "").startswith("ResourceExhaustedError: ")


def test_a_long_chain_of_functions_ends(folder: Path, refusal: Callable[[Path], str | None]) -> None:
    change(folder, lambda meta: calls(meta, [*range(1, 300), 300]))
    with bounded(), flags.override(CALL_DEPTH=400):
        assert (refusal(folder) or "").startswith("NotFoundError: ")  # there is no f300


# *** paths ***


@pytest.mark.parametrize("name", ["../words.txt", "/etc/hostname", "a/../../../words.txt", "a\0b", "", ".."])
def test_paths_of_assets_stay_inside(folder: Path, refusal: Callable[[Path], str | None], name: str) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        meta.asset_file_def.add(filename=name).tensor_info.name = "words:0"

    change(folder, edit)
    assert (refusal(folder) or "").startswith("GraphError: the asset ")


@pytest.mark.parametrize("what", ["assets/words.txt", "assets"])
def test_assets_that_are_links_to_other_places_are_refused(
    folder: Path, tmp_path: Path, refusal: Callable[[Path], str | None], what: str
) -> None:
    outside = tmp_path / "outside"
    (folder / what).rename(outside)
    (folder / what).symlink_to(outside)
    assert "is outside of the folder" in (refusal(folder) or "")


def test_other_symbolic_links_are_followed(folder: Path, tmp_path: Path, load: Callable[[Path], list[float]]) -> None:
    (folder / "variables").rename(folder / "values")
    (folder / "variables").symlink_to("values")
    (folder / saved_model.BINARY).rename(tmp_path / "blob")
    (folder / saved_model.BINARY).symlink_to(tmp_path / "blob")
    (tmp_path / "link").symlink_to(folder)
    assert load(tmp_path / "link") == [9.0, 32.0]


@pytest.mark.parametrize(
    ("what", "text"), [(VALUES[0], "variables"), (VALUES[1], "data-00000-of-00001"), (saved_model.BINARY, "pb")]
)
def test_a_link_to_itself_is_refused(folder: Path, refusal: Callable[[Path], str | None], what: str, text: str) -> None:
    (folder / what).unlink()
    (folder / what).symlink_to(Path(what).name)
    assert text in (refusal(folder) or "")


# *** names ***


@pytest.mark.parametrize("name", ["a\0b", "^x", "x:0", "\x7f", " ", ""])
def test_names_that_no_operation_can_have_are_refused(
    folder: Path, refusal: Callable[[Path], str | None], name: str
) -> None:
    change(folder, lambda meta: node(meta, name, "NoOp"))
    assert "GraphError: " in (refusal(folder) or "")


@pytest.mark.parametrize("name", ["a" * 1_000_000, "../x", "a/../../b"])
def test_names_of_operations_are_no_paths(folder: Path, refusal: Callable[[Path], str | None], name: str) -> None:
    change(folder, lambda meta: node(meta, name, "NoOp"))
    with bounded():
        assert refusal(folder) is None


STRANGE = ["x\0:0", "x:99999999999999999999", "x:-1", "absent:0", ":", "", "x:" + "9" * 10_000]


@pytest.mark.parametrize("name", STRANGE)
def test_restoring_by_an_operation_that_is_not_there_is_refused(folder: Path, name: str) -> None:
    change(folder, lambda meta: setattr(meta.saver_def, "filename_tensor_name", name))
    for load in (in_a_session, as_an_object):
        assert "GraphError: " in (refusal_of(load, folder) or ""), load


@pytest.mark.parametrize("name", STRANGE)
def test_signatures_with_strange_names_are_refused(folder: Path, name: str) -> None:
    change(folder, lambda meta: setattr(meta.signature_def["serving_default"].outputs["y"], "name", name))
    assert "GraphError: " in (refusal_of(as_an_object, folder) or "")


@pytest.mark.parametrize("name", ["", "absent", "x:0:0", "w"])
def test_initializers_that_are_not_there_are_refused(
    folder: Path, refusal: Callable[[Path], str | None], name: str
) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        init = meta.signature_def[saved_model.INIT_SIGNATURE].outputs[saved_model.INIT_SIGNATURE]
        init.name = name

    change(folder, edit)
    assert (refusal(folder) is None) == (name == "w")


# *** damage ***


def test_files_cut_short_are_refused(folder: Path, refusal: Callable[[Path], str | None]) -> None:
    for name in (saved_model.BINARY, *VALUES):
        data = (folder / name).read_bytes()
        for size in {0, 1, 4, 8, 12, len(data) // 4, len(data) // 2, len(data) - 48, len(data) - 8, len(data) - 1}:
            if 0 <= size < len(data):
                (folder / name).write_bytes(data[:size])
                assert refusal(folder), (name, size)
        (folder / name).write_bytes(data)
    assert refusal(folder) is None


@pytest.mark.parametrize("name", VALUES)
def test_absent_values_are_refused(folder: Path, refusal: Callable[[Path], str | None], name: str) -> None:
    (folder / name).unlink()
    assert "model/variables/variables" in (refusal(folder) or "")


@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")  # of attributes whose names changed
@pytest.mark.parametrize("seed", range(2))
def test_flipped_bits_are_refused_or_without_effect(
    folder: Path, refusal: Callable[[Path], str | None], seed: int
) -> None:
    check_flipped_bits(folder, (saved_model.BINARY, *VALUES), seed, 6, refusal)


@pytest.mark.parametrize("name", [*VALUES, saved_model.BINARY, "assets/words.txt"])
def test_pipes_in_place_of_files_do_not_block(folder: Path, refusal: Callable[[Path], str | None], name: str) -> None:
    os.unlink(folder / name)
    os.mkfifo(folder / name)
    text = refusal(folder)
    if name.startswith("assets"):  # which no operation reads
        assert text is None
    else:
        assert "is no regular file" in (text or "") or "is not a valid checkpoint" in (text or "")
