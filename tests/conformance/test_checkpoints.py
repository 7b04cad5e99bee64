"""Checkpoints that TensorFlow writes are read here, and those written here are read there.

Every dtype is compared bit for bit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.files import checkpoints
from headrace.files.manifest import ManifestEntry
from headrace.files.slices import TensorSlice

KINDS = sorted(dtypes.VALUE | dtypes.QUANTIZED, key=lambda d: d.number)
SHAPES = ((), (0,), (3,), (2, 3), (2, 0, 3))
SLICED = {  # the shape of the whole, and its parts
    "rows": ((5, 3), ("0,2:-", "2,3:-")),
    "tiles": ((4, 5), ("0,2:0,3", "2,2:0,3", "-:3,2")),
    "long": ((200000,), ("0,63", "63,1", "64,8127", "8191,1", "8192,191808")),
    "one": ((2, 2), ("-:-",)),
    "odd\x00name\xff": ((3,), ("0,1", "1,2")),
}


def values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng([dtype.number, *shape])
    if dtype is dtypes.string:
        out = np.empty(shape, object)
        out.reshape(-1)[:] = [rng.bytes(int(rng.integers(0, 300))) + b"\0\xff\0" for _ in range(out.size)]
        return out
    if dtype is dtypes.bool_:
        return np.asarray(rng.integers(0, 2, shape) > 0)
    if dtype.is_complex:
        return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype.numpy)
    return np.asarray(rng.integers(0, 100, shape)).astype(dtype.numpy)


def plain() -> dict[str, tuple[DType, np.ndarray]]:
    """Tensors of every dtype and several shapes.

    Many names begin alike, and some are unlikely ones.
    """
    out = {f"scope/{d}/{'x'.join(map(str, s))}": (d, values(d, s)) for d in KINDS for s in SHAPES}
    for i in range(300):
        out[f"scope/deep/er/layer_{i}/kernel"] = (dtypes.int32, np.int32([i]))
    for name in ("ä/ö", "a b", "z" * 3000, "__metadata__", "."):
        out[name] = (dtypes.float32, np.float32([len(name)]))
    return out


def sliced() -> dict[str, tuple[np.ndarray, list[str]]]:
    return {
        name: (np.arange(np.prod(shape), dtype=np.float64).reshape(shape) / 7, [spec_of(shape, p) for p in parts])
        for name, (shape, parts) in SLICED.items()
    }


def spec_of(shape: tuple[int, ...], part: str) -> str:
    return " ".join([*map(str, shape), part])


def part_of(x: np.ndarray, spec: str) -> np.ndarray:
    return x[TensorSlice.parse(spec.rpartition(" ")[2]).index_in(x.shape)]


def assert_equal(got: Any, want: np.ndarray, name: str) -> None:
    got = np.asarray(got, object if want.dtype == object else None)
    assert got.shape == want.shape, name
    if want.dtype == object:
        assert got.tolist() == want.tolist(), name
    else:
        assert got.dtype.itemsize == want.dtype.itemsize, name
        assert got.tobytes() == want.tobytes(), name


# The beginning of both programs.
BEGIN = """
import pickle, sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
folder = {folder!r}
with open(folder + "/plain", "rb") as f:
    plain = pickle.load(f)
with open(folder + "/sliced", "rb") as f:
    sliced = pickle.load(f)
T = tf.dtypes.as_dtype
def tensor(x, number):
    dtype = T(number)
    if number == 7:
        return tf.constant(x.tolist(), tf.string, shape=x.shape)
    if dtype.is_quantized:
        same = dict(qint8=tf.int8, quint8=tf.uint8, qint16=tf.int16, quint16=tf.uint16, qint32=tf.int32)[dtype.name]
        return tf.bitcast(tf.constant(x, same), dtype)
    return tf.constant(x, dtype)
def found(x):
    return tf.bitcast(x, dict(qint8=tf.int8, quint8=tf.uint8, qint16=tf.int16, quint16=tf.uint16,
                              qint32=tf.int32)[x.dtype.name]) if x.dtype.is_quantized else x
"""

WRITE = (
    BEGIN
    + """
names, parts, tensors = [], [], []
for name, (number, x) in plain.items():
    names.append(name), parts.append(""), tensors.append(tensor(x, number))
specs = [(name, spec, x[i]) for name, (x, specs) in sliced.items() for spec, i in specs]
for name, spec, x in specs:
    names.append(name.encode("latin-1") if "\\0" in name else name), parts.append(spec), tensors.append(tf.constant(x))
ops = [tf.raw_ops.SaveV2(prefix=folder + "/whole", tensor_names=names, shape_and_slices=parts, tensors=tensors)]
many = ["layer_%d/%s" % (i, "x" * (i % 50)) for i in range(5000)]
ops.append(tf.raw_ops.SaveV2(prefix=folder + "/many", tensor_names=many, shape_and_slices=[""] * 5000,
                             tensors=[tf.constant(np.int8([3]))] * 5000))
shards = []
for k in range(3):
    prefix = "%s/parts/part-%05d-of-00003" % (folder, k)
    shards.append(prefix)
    pick = slice(k, None, 3)
    ops.append(tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names[pick], shape_and_slices=parts[pick],
                                 tensors=tensors[pick]))
with tf.control_dependencies(ops):
    merge = tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=shards, destination_prefix=folder + "/merged")
with tf.Session() as sess:
    sess.run(merge)
"""
)

READ = (
    BEGIN
    + """
results = {{}}
for prefix in ("whole", "merged", "again"):
    reader = tf.train.load_checkpoint(folder + "/" + prefix)
    assert tf.train.checkpoint_exists(folder + "/" + prefix)
    listed = {{}}
    if prefix == "again":  # TensorFlow cannot list names that are no UTF-8
        sliced = {{name: x for name, x in sliced.items() if "\\0" not in name}}
        shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        listed = {{name: (types[name].as_datatype_enum, tuple(shapes[name])) for name in shapes}}
    numpy = {{name: reader.get_tensor(name) for name, (n, x) in plain.items() if not T(n).is_quantized and n != 14}}
    with tf.Graph().as_default(), tf.Session() as sess:
        got = tf.raw_ops.RestoreV2(prefix=folder + "/" + prefix, tensor_names=list(plain),
            shape_and_slices=[""] * len(plain), dtypes=[T(n) for n, _ in plain.values()])
        values = dict(zip(plain, sess.run([found(x) for x in got])))
        names = [n.encode("latin-1") if "\\0" in n else n for n in sliced]
        got = tf.raw_ops.RestoreV2(prefix=folder + "/" + prefix, tensor_names=names,
            shape_and_slices=[""] * len(names), dtypes=[tf.float64] * len(names))
        wholes = dict(zip(sliced, sess.run(got)))
        cut = tf.raw_ops.RestoreV2(prefix=folder + "/" + prefix, tensor_names=["tiles", "rows", "scope/int32/2x3"],
            shape_and_slices=["4 5 1,2:1,3", "5 3 1,3:-", "2 3 -:1,2"], dtypes=[tf.float64, tf.float64, tf.int32])
        results[prefix] = listed, numpy, values, wholes, sess.run(cut)
with open(folder + "/results", "wb") as f:
    pickle.dump(results, f)
"""
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the tensors as both sides take them."""
    given = {name: (d.number, x.astype(np.float32) if d is dtypes.bfloat16 else x) for name, (d, x) in plain().items()}
    (tmp_path / "plain").write_bytes(pickle.dumps(given))
    parts = {n: (x, [(s, ()) for s in specs]) for n, (x, specs) in sliced().items()}
    cut = {
        n: (x, [(s, TensorSlice.parse(s.rpartition(" ")[2]).index_in(x.shape)) for s, _ in specs])
        for n, (x, specs) in parts.items()
    }
    (tmp_path / "sliced").write_bytes(pickle.dumps(cut))
    return tmp_path


def stored_name(name: str) -> str:
    """The odd name is given as bytes that are no UTF-8."""
    return name.encode("latin-1").decode("utf-8", "surrogateescape") if "\0" in name else name


def test_what_tensorflow_writes_is_read_here(folder: Path, run_python: Callable[[str], bytes]) -> None:
    run_python(WRITE.format(folder=str(folder)))
    for prefix in ("whole", "merged"):
        reader = checkpoints.open(str(folder / prefix))
        assert reader.format == "tensorflow"
        assert len(reader.entries) == len(plain()) + len(sliced())
        for name, (dtype, want) in plain().items():
            entry = reader.entries[name]
            assert (entry.dtype, entry.shape) == (dtype, want.shape), name
            assert_equal(reader.read(name), want, name)
        for name, (want, specs) in sliced().items():
            assert len(reader.entries[stored_name(name)].parts) == (len(specs) if len(specs) > 1 else 0)
            assert_equal(reader.read(stored_name(name)), want, name)
        whole = sliced()["tiles"][0]
        assert_equal(reader.read("tiles", TensorSlice.parse("1,2:1,3")), whole[1:3, 1:4], "a part across parts")
        checkpoints.check(str(folder / prefix))
    many = {f"layer_{i}/{'x' * (i % 50)}": np.int8([3]) for i in range(5000)}
    checkpoints.write(str(folder / "ours"), many, "tensorflow")
    assert (folder / "ours.index").read_bytes() == (folder / "many.index").read_bytes()  # of several blocks


def test_what_is_written_here_tensorflow_reads(folder: Path, run_python: Callable[[str], bytes]) -> None:
    pieces = [ManifestEntry.of(name, x, d) for name, (d, x) in plain().items()]
    for name, (x, specs) in sliced().items():
        pieces += [ManifestEntry.of(stored_name(name), part_of(x, s), None, s) for s in specs]
    checkpoints.write(str(folder / "whole"), pieces, "tensorflow")
    shards = []
    for k in range(3):
        shards.append(str(folder / f"parts/part-{k:05d}-of-00003"))
        checkpoints.write(shards[-1], pieces[k::3], "tensorflow")
    checkpoints.merge(shards, str(folder / "merged"))
    readable = [p for p in pieces if "\0" not in p.name]
    for _ in range(2):  # in place of one that is there
        checkpoints.write(str(folder / "again"), readable, "tensorflow")
    run_python(READ.format(folder=str(folder)))
    with (folder / "results").open("rb") as f:
        results = pickle.load(f)  # written by the program above
    for prefix, (listed, numpy, values_, wholes, cut) in results.items():
        if prefix == "again":
            named = {name: (d.number, x.shape) for name, (d, x) in plain().items()}
            parts = {name: (dtypes.float64.number, x.shape) for name, (x, _) in sliced().items() if "\0" not in name}
            assert listed == named | parts
        for name, (_, want) in plain().items():
            assert_equal(values_[name], want, f"{prefix}: {name}")
            if name in numpy:
                assert_equal(numpy[name], want, f"{prefix}: {name}")
        for name, got in wholes.items():
            assert_equal(got, sliced()[name][0], f"{prefix}: {name}")
        tiles, rows = sliced()["tiles"][0], sliced()["rows"][0]
        assert_equal(cut[0], tiles[1:3, 1:4], prefix)
        assert_equal(cut[1], rows[1:4], prefix)
        assert_equal(cut[2], plain()["scope/int32/2x3"][1][:, 1:3], prefix)
