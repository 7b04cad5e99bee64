"""Pipelines of `tf.data` as functions of the module `tf` and of a folder with files.

Each function returns a dataset. The decorator states the number of elements that are compared.
"""

from __future__ import annotations

import collections
import gzip
import os
import sqlite3
from collections.abc import Callable
from typing import Any, Final

import numpy as np

MOST: Final = 40  # elements of a pipeline

PIPELINES: Final[dict[str, Callable[[Any, str], Any]]] = {}

Pair = collections.namedtuple("Pair", "first second")


def pipeline(f: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Adds a pipeline under the name of its function."""
    PIPELINES[f.__name__] = f
    return f


def many(name: str, f: Callable[..., Any], cases: list[tuple[Any, ...]]) -> None:
    """Adds a pipeline for each case: `f(tf, *case)`."""
    for i, case in enumerate(cases):
        PIPELINES[f"{name}_{i}"] = lambda tf, folder, case=case: f(tf, *case)


def write_files(folder: str, write_record: Callable[[str, list[bytes]], None]) -> None:
    """Writes the files that pipelines read.

    Args:
      folder: the folder.
      write_record: writes a record file.
    """
    for i in range(3):
        with open(os.path.join(folder, f"text{i}.txt"), "wb") as file:
            file.write(b"".join(b"line %d of %d\n" % (j, i) for j in range(i + 1)) + b"last")
        write_record(os.path.join(folder, f"data{i}.tfrecord"), [b"record %d.%d" % (i, j) for j in range(4 - i)])
    with gzip.open(os.path.join(folder, "text.gz"), "wb") as file:
        file.write(b"packed\r\nlines\n")
    with open(os.path.join(folder, "fixed.bin"), "wb") as file:
        file.write(b"HH" + bytes(range(12)) + b"F")
    for i in range(2):
        with open(os.path.join(folder, f"table{i}.csv"), "wb") as file:
            file.write(b"n,share,word,big\n" + b"".join(_row(i, j) for j in range(5 - 2 * i)))
    with open(os.path.join(folder, "odd.csv"), "wb") as file:
        file.write(b'1,"two\nlines",2.5\r\n2,,NA\r3,"a ""quote""",-1\n4,x\n5,"",1e3,9\n"6",NA,0\n7')
    database = sqlite3.connect(os.path.join(folder, "people.db"))
    with database:
        database.execute("create table people (name text, age int, height real)")
        rows = [("Ada", 36, 1.6), (None, 300, None), ("7 up", None, 2)]
        database.executemany("insert into people values (?, ?, ?)", rows)
    database.close()
    write_record(os.path.join(folder, "examples.tfrecord"), [_example(i) for i in range(7)])


def _row(i: int, j: int) -> bytes:
    return b"%d,%s,w%d%d,%d\n" % (10 * i + j, [b"0.5", b"", b"2"][j % 3], i, j, 3_000_000_000 + j)


def _example(i: int) -> bytes:
    """A serialized example with a feature n and i % 3 numbers v."""
    n, many = bytes([i]), bytes(range(i % 3))
    entries = b"".join(
        _field(1, _field(1, key) + _field(2, _field(3, _field(1, data)))) for key, data in ((b"n", n), (b"v", many))
    )
    return _field(1, entries)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def _numbers(tf: Any, n: int = 10) -> Any:
    return tf.data.Dataset.range(n)


# *** sources ***

many("range", lambda tf, *args: tf.data.Dataset.range(*args), [(5,), (2, 6), (0, 10, 3), (9, 0, -4), (5, 5), (3, 0)])


@pipeline
def from_tensors(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensors({"a": np.arange(3, dtype=np.float32), "b": ("text", 7)})


@pipeline
def slices_of_a_tuple(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensor_slices((np.arange(6, dtype=np.int16).reshape(3, 2), ["a", "b", "c"]))


@pipeline
def slices_of_a_dict(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensor_slices({"y": [1, 2], "x": {"z": [0.5, 1.5]}})


@pipeline
def slices_of_a_named_tuple(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensor_slices(Pair([1, 2], [True, False])).map(lambda *a: a)


@pipeline
def slices_of_a_list(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensor_slices([[1, 2], [3, 4], [5, 6]])


@pipeline
def slices_of_a_sparse_tensor(tf: Any, folder: str) -> Any:
    sparse = tf.SparseTensor([[0, 1], [2, 0], [2, 3]], [1.0, 2.0, 3.0], [3, 4])
    return tf.data.Dataset.from_tensor_slices(sparse).map(tf.sparse.to_dense)


@pipeline
def batches_of_sparse_tensors(tf: Any, folder: str) -> Any:
    sparse = tf.SparseTensor([[0, 1], [2, 0], [2, 3]], [1.0, 2.0, 3.0], [3, 4])
    return tf.data.Dataset.from_tensor_slices(sparse).batch(2).map(tf.sparse.to_dense)


@pipeline
def generator(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_generator(lambda: iter(range(4)), tf.int64, tf.TensorShape([])).map(lambda x: x * x)


@pipeline
def generator_of_pairs(tf: Any, folder: str) -> Any:
    def pairs() -> Any:
        for i in range(3):
            yield i, [1] * i

    return tf.data.Dataset.from_generator(pairs, (tf.int32, tf.int64), ([], [None])).repeat(2)


@pipeline
def generator_with_arguments(tf: Any, folder: str) -> Any:
    count = lambda n, text: ((text + b"!") for _ in range(n))
    return tf.data.Dataset.from_generator(count, tf.string, [], args=(3, "hi"))


@pipeline
def text_lines(tf: Any, folder: str) -> Any:
    return tf.data.TextLineDataset([os.path.join(folder, f"text{i}.txt") for i in range(3)])


@pipeline
def packed_lines(tf: Any, folder: str) -> Any:
    return tf.data.TextLineDataset(os.path.join(folder, "text.gz"), compression_type="GZIP")


@pipeline
def records(tf: Any, folder: str) -> Any:
    return tf.data.TFRecordDataset([os.path.join(folder, f"data{i}.tfrecord") for i in range(3)])


@pipeline
def records_of_listed_files(tf: Any, folder: str) -> Any:
    names = tf.data.Dataset.list_files(os.path.join(folder, "data*.tfrecord"), shuffle=False)
    return names.interleave(tf.data.TFRecordDataset, cycle_length=2, block_length=1)


@pipeline
def shuffled_files(tf: Any, folder: str) -> Any:
    names = tf.data.Dataset.list_files(os.path.join(folder, "*.txt"), seed=5)
    return names.flat_map(tf.data.TextLineDataset)


@pipeline
def fixed_length_records(tf: Any, folder: str) -> Any:
    return tf.data.FixedLengthRecordDataset(os.path.join(folder, "fixed.bin"), 4, header_bytes=2, footer_bytes=1)


@pipeline
def csv_lines(tf: Any, folder: str) -> Any:
    lines = tf.data.Dataset.from_tensor_slices(["1,2.5,a", "3,,b", "5,0.5,"])
    return lines.map(lambda line: tf.decode_csv(line, [[0], [1.5], ["none"]]))


# *** selection and combination ***

many("take", lambda tf, n: _numbers(tf).take(n), [(3,), (0,), (-1,), (99,)])
many("skip", lambda tf, n: _numbers(tf).skip(n), [(3,), (0,), (-1,), (99,)])
many("shard", lambda tf, n, i: _numbers(tf).shard(n, i), [(3, 0), (3, 2), (20, 19)])
many("repeat", lambda tf, n: _numbers(tf, 3).repeat(n), [(2,), (0,), (None,), (-1,)])


@pipeline
def repeated_empty(tf: Any, folder: str) -> Any:
    return _numbers(tf, 0).repeat()


@pipeline
def zipped(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.zip((_numbers(tf, 3), {"a": _numbers(tf, 5), "b": _numbers(tf, 4).batch(2)}))


@pipeline
def concatenated(tf: Any, folder: str) -> Any:
    return _numbers(tf, 3).concatenate(tf.data.Dataset.range(7, 9)).repeat(2)


@pipeline
def filtered(tf: Any, folder: str) -> Any:
    return _numbers(tf).filter(lambda x: tf.equal(x % 3, 1))


@pipeline
def filtered_pairs(tf: Any, folder: str) -> Any:
    pairs = tf.data.Dataset.from_tensor_slices(([1, 2, 3, 4], ["a", "b", "c", "d"]))
    return pairs.filter(lambda n, text: tf.logical_or(n > 2, tf.equal(text, "a")))


@pipeline
def enumerated(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensor_slices(["x", "y"]).apply(tf.data.experimental.enumerate_dataset(start=3))


@pipeline
def taken_while(tf: Any, folder: str) -> Any:
    return _numbers(tf).apply(tf.data.experimental.take_while(lambda x: x < 4))


@pipeline
def unique(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensor_slices([3, 1, 3, 2, 1, 4]).apply(tf.data.experimental.unique())


@pipeline
def ignored_errors(tf: Any, folder: str) -> Any:
    divided = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 0.0, 4.0]).map(lambda x: tf.check_numerics(1.0 / x, "bad"))
    return divided.apply(tf.data.experimental.ignore_errors())


@pipeline
def chosen(tf: Any, folder: str) -> Any:
    datasets = [tf.data.Dataset.from_tensors(t).repeat(2) for t in ("a", "b", "c")]
    choice = tf.data.Dataset.from_tensor_slices(np.array([0, 1, 0, 2, 2, 0, 1, 2, 1], np.int64))
    return tf.data.experimental.choose_from_datasets(datasets, choice)


many(
    "sampled",
    lambda tf, weights, seed: tf.data.experimental.sample_from_datasets(
        [tf.data.Dataset.range(10 * i, 10 * i + 8) for i in range(3)], weights, seed
    ),
    [(None, 1), ([0.5, 0.25, 0.25], 7), ([0.1, 0.9, 0.0], 3)],
)


@pipeline
def random_numbers(tf: Any, folder: str) -> Any:
    return tf.data.experimental.RandomDataset(seed=4).take(9)


# *** functions ***


@pipeline
def mapped(tf: Any, folder: str) -> Any:
    return _numbers(tf).map(lambda x: (x * x, {"half": tf.cast(x, tf.float32) / 2}))


@pipeline
def mapped_in_parallel(tf: Any, folder: str) -> Any:
    return _numbers(tf, 30).map(lambda x: x * 3 + 1, num_parallel_calls=4)


@pipeline
def mapped_with_captured_tensors(tf: Any, folder: str) -> Any:
    table = tf.constant([10, 20, 30, 40], tf.int64)
    factor = tf.constant(2.5)
    return _numbers(tf, 4).map(lambda x: (tf.gather(table, x), factor * tf.to_float(x)))


@pipeline
def mapped_by_conditionals(tf: Any, folder: str) -> Any:
    return _numbers(tf, 6).map(lambda x: tf.cond(x < 3, lambda: x * 2, lambda: -x))


@pipeline
def mapped_by_loops(tf: Any, folder: str) -> Any:
    power = lambda x: tf.while_loop(lambda i, y: i < x, lambda i, y: (i + 1, y * 2), (tf.zeros_like(x), x))[1]
    return _numbers(tf, 6).map(power)


@pipeline
def mapped_by_python(tf: Any, folder: str) -> Any:
    return _numbers(tf, 5).map(lambda x: tf.py_func(lambda v: np.float64(v) ** 2, [x], tf.float64))


@pipeline
def mapped_text(tf: Any, folder: str) -> Any:
    words = tf.data.Dataset.from_tensor_slices(["one two", "three", "a b c"])
    return words.map(lambda s: tf.string_split([s]).values).padded_batch(2, [None], padding_values="-")


@pipeline
def mapped_examples(tf: Any, folder: str) -> Any:
    numbers = tf.data.Dataset.from_tensor_slices(["1", "-4", "22"])
    return numbers.map(lambda s: [tf.string_to_number(s), 0.5])


@pipeline
def flat_mapped(tf: Any, folder: str) -> Any:
    return _numbers(tf, 5).flat_map(lambda x: tf.data.Dataset.range(x).map(lambda y: x * 10 + y))


many(
    "interleaved",
    lambda tf, cycle, block: tf.data.Dataset.range(1, 6).interleave(
        lambda x: tf.data.Dataset.from_tensors(x).repeat(x), cycle_length=cycle, block_length=block
    ),
    [(1, 1), (2, 1), (2, 4), (3, 2), (5, 1), (7, 3)],
)


@pipeline
def interleaved_in_parallel(tf: Any, folder: str) -> Any:
    repeat = lambda x: tf.data.Dataset.from_tensors(x).repeat(4)
    return tf.data.Dataset.range(1, 6).interleave(repeat, cycle_length=3, block_length=2, num_parallel_calls=2)


@pipeline
def interleaved_in_parallel_unequal(tf: Any, folder: str) -> Any:
    repeat = lambda x: tf.data.Dataset.from_tensors(x).repeat(x)
    return tf.data.Dataset.range(0, 7).interleave(repeat, cycle_length=3, block_length=2, num_parallel_calls=3)


@pipeline
def scanned(tf: Any, folder: str) -> Any:
    step = lambda state, x: ((state[0] + x, state[1] * 2), state[0] * state[1])
    state = (tf.constant(0, tf.int64), tf.constant(1, tf.int64))
    return _numbers(tf, 6).apply(tf.data.experimental.scan(state, step))


@pipeline
def reduced(tf: Any, folder: str) -> Any:
    total = _numbers(tf).reduce(np.int64(0), lambda s, x: s + x)
    pair = _numbers(tf).reduce((0.0, np.int64(1)), lambda s, x: (s[0] + 0.5, s[1] * 2))
    return tf.data.Dataset.from_tensors((total, pair))


@pipeline
def mapped_out_of_range(tf: Any, folder: str) -> Any:
    def stop(x: np.int64) -> np.int64:
        if x == 3:
            raise StopIteration
        return x

    return _numbers(tf, 6).map(lambda x: tf.py_func(stop, [x], tf.int64))


@pipeline
def counted(tf: Any, folder: str) -> Any:
    return tf.data.experimental.Counter(start=2, step=3).take(5)


# *** batches ***

many(
    "batched",
    lambda tf, n, drop: _numbers(tf, 7).batch(n, drop_remainder=drop),
    [(3, False), (3, True), (7, True), (8, True), (8, False)],
)


@pipeline
def batched_structures(tf: Any, folder: str) -> Any:
    parts = {
        "a": np.arange(10, dtype=np.float64).reshape(5, 2),
        "b": (["v", "w", "x", "y", "z"], [True, False] * 2 + [True]),
    }
    return tf.data.Dataset.from_tensor_slices(parts).batch(2)


@pipeline
def padded(tf: Any, folder: str) -> Any:
    rows = tf.data.Dataset.range(1, 6).map(lambda n: tf.fill([n], n))
    return rows.padded_batch(2, padded_shapes=[None])


@pipeline
def padded_to_a_size(tf: Any, folder: str) -> Any:
    rows = tf.data.Dataset.range(1, 6).map(lambda n: tf.fill([n, 2], n))
    return rows.padded_batch(2, [6, None], padding_values=np.int64(-1), drop_remainder=True)


@pipeline
def padded_structures(tf: Any, folder: str) -> Any:
    rows = tf.data.Dataset.range(1, 6).map(lambda n: {"x": tf.fill([n], tf.to_float(n)), "n": n})
    return rows.padded_batch(3, {"x": [None], "n": []}, {"x": 9.5, "n": np.int64(0)})


@pipeline
def unbatched(tf: Any, folder: str) -> Any:
    pairs = tf.data.Dataset.from_tensor_slices(([[1, 2], [3, 4]], [["a", "b"], ["c", "d"]]))
    return pairs.apply(tf.data.experimental.unbatch())


@pipeline
def mapped_and_batched(tf: Any, folder: str) -> Any:
    return _numbers(tf).apply(tf.data.experimental.map_and_batch(lambda x: x + 1, 4, drop_remainder=True))


# *** windows and groups ***


def _windows(tf: Any, size: int, shift: int | None, stride: int, drop: bool) -> Any:
    return _numbers(tf).window(size, shift, stride, drop).flat_map(lambda w: w.batch(size))


many(
    "windowed",
    _windows,
    [
        (3, None, 1, False),
        (3, 1, 1, True),
        (3, 1, 1, False),
        (2, 4, 1, False),
        (3, 2, 3, False),
        (3, 2, 3, True),
        (4, 15, 1, False),
        (20, 3, 1, False),
    ],
)


@pipeline
def windows_of_pairs(tf: Any, folder: str) -> Any:
    pairs = tf.data.Dataset.zip((_numbers(tf, 5), _numbers(tf, 5).map(lambda x: x * x)))
    both = lambda a, b: tf.data.Dataset.zip((a.batch(3), b.batch(3)))
    return pairs.window(3, shift=2).flat_map(both)


@pipeline
def grouped(tf: Any, folder: str) -> Any:
    group = tf.data.experimental.group_by_window(lambda x: x % 3, lambda key, ds: ds.batch(4), window_size=4)
    return _numbers(tf, 20).apply(group)


@pipeline
def grouped_by_sizes(tf: Any, folder: str) -> Any:
    group = tf.data.experimental.group_by_window(
        lambda x: x % 3 - 1, lambda key, ds: ds.map(lambda x: (key, x)).batch(10), window_size_func=lambda key: key + 2
    )
    return _numbers(tf, 20).apply(group)


def _buckets(tf: Any, **options: Any) -> Any:
    rows = tf.data.Dataset.from_tensor_slices([1, 5, 2, 9, 3, 4, 8, 6, 7, 2]).map(lambda n: tf.fill([n], n))
    return rows.apply(tf.data.experimental.bucket_by_sequence_length(tf.size, [3, 6, 10], [2, 2, 3, 1], **options))


@pipeline
def bucketed(tf: Any, folder: str) -> Any:
    return _buckets(tf)


@pipeline
def bucketed_to_boundaries(tf: Any, folder: str) -> Any:
    return _buckets(tf, pad_to_bucket_boundary=True, padding_values=-1)


@pipeline
def bucketed_without_remainder(tf: Any, folder: str) -> Any:
    return _buckets(tf, drop_remainder=True, padded_shapes=[None])


# *** shuffles ***

many(
    "shuffled",
    lambda tf, n, size, seed: _numbers(tf, n).shuffle(size, seed=seed),
    [
        (10, 4, 1),
        (10, 10, 2),
        (10, 1, 3),
        (10, 100, 4),
        (30, 7, 0),
        (30, 29, 123456789),
        (30, 16, 2**31 + 5),
        (1, 3, 1),
        (0, 3, 1),
        (25, 5, -3),
    ],
)
many(
    "reshuffled",
    lambda tf, renews, seed, count: (
        _numbers(tf, 6).shuffle(4, seed=seed, reshuffle_each_iteration=renews).repeat(count)
    ),
    [(True, 1, 4), (False, 1, 4), (None, 9, 3), (True, 77, 6)],
)
many(
    "shuffled_and_repeated",
    lambda tf, n, size, count, seed: _numbers(tf, n).apply(
        tf.data.experimental.shuffle_and_repeat(size, count, seed=seed)
    ),
    [(5, 3, 3, 1), (5, 8, 4, 2), (7, 7, 2, 3), (3, 20, 5, 4), (4, 2, None, 5)],
)


@pipeline
def shuffled_twice(tf: Any, folder: str) -> Any:
    return _numbers(tf, 12).shuffle(5, seed=1).batch(3).shuffle(3, seed=2)


@pipeline
def shuffled_by_the_seed_of_the_graph(tf: Any, folder: str) -> Any:
    tf.set_random_seed(11)
    return _numbers(tf, 12).shuffle(5, seed=8).repeat(2)


@pipeline
def shuffled_repeated_and_batched(tf: Any, folder: str) -> Any:
    return _numbers(tf, 10).repeat(3).shuffle(15, seed=6).batch(4).prefetch(2)


# *** caches and prefetching ***


@pipeline
def cached(tf: Any, folder: str) -> Any:
    return _numbers(tf, 4).shuffle(4, seed=1).cache().repeat(3)


@pipeline
def cached_in_a_file(tf: Any, folder: str) -> Any:
    return _numbers(tf, 4).map(lambda x: (x, tf.as_string(x))).cache(os.path.join(folder, "cache")).repeat(2)


@pipeline
def prefetched(tf: Any, folder: str) -> Any:
    return _numbers(tf, 20).map(lambda x: x * 2).prefetch(3)


@pipeline
def options(tf: Any, folder: str) -> Any:
    made = tf.data.Options()
    made.experimental_deterministic = True
    return _numbers(tf, 4).with_options(made)


# *** columns, rows and examples of files ***


def _csv(tf: Any, folder: str, *args: Any, **kwargs: Any) -> Any:
    return tf.data.experimental.CsvDataset(os.path.join(folder, "odd.csv"), *args, **kwargs)


for _name, _args, _kwargs in (
    ("csv", ([[0], ["none"], [0.5]],), {"na_value": "NA"}),
    ("csv_of_text", (["a", "b", "c"],), {}),
    ("csv_of_two_columns", ([[0], [0.5]],), {"select_cols": [0, 2], "na_value": "NA"}),
    ("csv_without_quotes", (["a", "b", "c"],), {"use_quote_delim": False}),
    ("csv_with_header", ([[0], ["b"], [0.5]],), {"header": True, "na_value": "NA"}),
):
    PIPELINES[_name] = lambda tf, folder, args=_args, kwargs=_kwargs: _csv(tf, folder, *args, **kwargs).apply(
        tf.data.experimental.ignore_errors()
    )


@pipeline
def csv_of_several_files(tf: Any, folder: str) -> Any:
    names = [os.path.join(folder, f"table{i}.csv") for i in range(2)]
    defaults = [tf.int32, [0.25], tf.string, tf.constant([1], tf.int64)]
    return tf.data.experimental.CsvDataset(names, defaults, header=True)


@pipeline
def csv_required(tf: Any, folder: str) -> Any:
    return _csv(tf, folder, [tf.int32, tf.string, tf.float32]).apply(tf.data.experimental.ignore_errors())


for _name, _kwargs in (
    ("csv_batches", {"num_epochs": 1, "shuffle": False}),
    ("csv_batches_shuffled", {"shuffle_seed": 5}),
    ("csv_batches_with_labels", {"num_epochs": 1, "shuffle_seed": 2, "label_name": "word"}),
    ("csv_batches_selected", {"num_epochs": 1, "shuffle": False, "select_columns": ["big", 0]}),
    ("csv_batches_in_turn", {"num_epochs": 2, "shuffle_seed": 3, "num_parallel_reads": 2}),
):
    PIPELINES[_name] = lambda tf, folder, kwargs=_kwargs: tf.data.experimental.make_csv_dataset(
        os.path.join(folder, "table*.csv"), 3, **kwargs
    )


@pipeline
def csv_batches_with_names(tf: Any, folder: str) -> Any:
    return tf.data.experimental.make_csv_dataset(
        os.path.join(folder, "odd.csv"),
        2,
        column_names=["a", "b", "c"],
        column_defaults=[[0], "x", tf.constant([0.0])],
        header=False,
        na_value="NA",
        num_epochs=1,
        shuffle=False,
        ignore_errors=True,
    )


def _features(tf: Any) -> Any:
    return {"n": tf.FixedLenFeature([], tf.int64), "v": tf.VarLenFeature(tf.int64)}


@pipeline
def parsed_examples(tf: Any, folder: str) -> Any:
    records = tf.data.TFRecordDataset(os.path.join(folder, "examples.tfrecord"))
    return records.batch(2).apply(tf.data.experimental.parse_example_dataset(_features(tf)))


for _name, _kwargs in (
    ("features_in_batches", {"num_epochs": 1, "shuffle": False}),
    ("features_shuffled", {"shuffle_seed": 4}),
    ("features_with_labels", {"num_epochs": 1, "shuffle_seed": 4, "label_key": "n"}),
    ("features_of_full_batches", {"num_epochs": 1, "shuffle": False, "drop_final_batch": True}),
):
    PIPELINES[_name] = lambda tf, folder, kwargs=_kwargs: tf.data.experimental.make_batched_features_dataset(
        os.path.join(folder, "examples.tfrecord"), 3, _features(tf), **kwargs
    )

for _name, _query, _types in (
    ("sql", "select * from people order by rowid", ("string", "int32", "float64")),
    ("sql_of_texts", "select age, height, name from people order by rowid", ("string", "string", "string")),
    ("sql_of_small_numbers", "select age, age, name from people order by rowid", ("int8", "bool", "int64")),
):
    PIPELINES[_name] = lambda tf, folder, query=_query, types=_types: tf.data.experimental.SqlDataset(
        "sqlite", os.path.join(folder, "people.db"), query, tuple(map(tf.as_dtype, types))
    )


# *** batches, groups and resampling ***


def _triangle(tf: Any, n: int = 6) -> Any:
    return tf.data.Dataset.range(n).map(lambda x: tf.fill([x], x))


many(
    "sparse_batches",
    lambda tf, size, shape: _triangle(tf).apply(tf.data.experimental.dense_to_sparse_batch(size, shape)),
    [(2, [6]), (3, [None]), (6, [7])],
)
many(
    "ragged_batches",
    lambda tf, *args: _triangle(tf).apply(tf.data.experimental.dense_to_ragged_batch(*args)),
    [(2,), (4, True), (4, False, "int32")],
)


@pipeline
def ragged_batches_of_a_dict(tf: Any, folder: str) -> Any:
    rows = tf.data.Dataset.range(4).map(lambda x: {"n": x, "row": tf.fill([x, 2], x), "grid": tf.fill([x, x], x)})
    return rows.apply(tf.data.experimental.dense_to_ragged_batch(3))


@pipeline
def ragged_rows(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[[1], []], [[2, 3]], []])).batch(2)


@pipeline
def ragged_elements(tf: Any, folder: str) -> Any:
    return tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [], [2, 3]])).repeat(2).map(lambda r: (r, r * 2))


@pipeline
def rebatched(tf: Any, folder: str) -> Any:
    return _numbers(tf, 11).batch(4).rebatch(3)


@pipeline
def rebatched_in_turn(tf: Any, folder: str) -> Any:
    return _numbers(tf, 11).map(lambda x: (x, -x)).batch(4).rebatch([1, 3], drop_remainder=True)


@pipeline
def reduced_by_key(tf: Any, folder: str) -> Any:
    e = tf.data.experimental
    mean = e.Reducer(
        lambda key: (tf.zeros([], tf.float32), tf.zeros([], tf.float32)),
        lambda state, x: (state[0] + tf.cast(x, tf.float32), state[1] + 1),
        lambda total, count: total / count,
    )
    return _numbers(tf, 20).apply(e.group_by_reducer(lambda x: (x * 7) % 4 - 1, mean))


@pipeline
def joined_by_key(tf: Any, folder: str) -> Any:
    e = tf.data.experimental
    join = e.Reducer(
        lambda key: (key, tf.zeros([0], tf.int64)),
        lambda state, x: (state[0], tf.concat([state[1], [x]], 0)),
        lambda key, values: {"key": key, "values": values},
    )
    return _numbers(tf, 9).apply(e.group_by_reducer(lambda x: x % 3, join))


many(
    "resampled",
    lambda tf, *args: _numbers(tf, 60).apply(
        tf.data.experimental.rejection_resample(lambda x: tf.cast(x % 3, tf.int32), *args)
    ),
    [
        ([0.5, 0.3, 0.2], [1 / 3, 1 / 3, 1 / 3], 7),
        ([0.4, 0.3, 0.3], None, 3),
        ([0.25, 0.25, 0.5], [0.25, 0.25, 0.5], 3),
        ([1.0, 0.0, 0.0], [0.6, 0.2, 0.2], 3),
    ],
)


@pipeline
def sampled_by_a_dataset(tf: Any, folder: str) -> Any:
    weights = tf.data.Dataset.from_tensor_slices([[0.0, 1.0], [0.9, 0.1], [0.5, 0.5], [1.0, 0.0]]).repeat()
    return tf.data.experimental.sample_from_datasets([_numbers(tf), _numbers(tf).map(lambda x: -x)], weights, 3)


# *** elements of lists, and numbers of elements ***


@pipeline
def listed(tf: Any, folder: str) -> Any:
    return tf.data.experimental.from_list([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}])


@pipeline
def listed_pairs(tf: Any, folder: str) -> Any:
    return tf.data.experimental.from_list([([1, 2], 1.5), ([3], 2.5)])


@pipeline
def asserted(tf: Any, folder: str) -> Any:
    return _numbers(tf, 5).apply(tf.data.experimental.assert_cardinality(5))


@pipeline
def padded_to_a_number(tf: Any, folder: str) -> Any:
    rows = tf.data.Dataset.from_tensor_slices({"a": [1.5, 2.5], "b": [[1, 2], [3, 4]]})
    return rows.apply(tf.data.experimental.pad_to_cardinality(4, "is_real"))


many("counted", lambda tf, *args: tf.data.Dataset.counter(*args), [(), (5, -2), (3, 1, "int32")])
many(
    "random",
    lambda tf, *args: tf.data.experimental.RandomDataset(*args).take(4).repeat(3),
    [(1,), (7,)],
)
many("rerandomized", lambda tf, *args: tf.data.Dataset.random(*args).take(3).repeat(3), [(1, True), (1, False)])


@pipeline
def sparse_slices(tf: Any, folder: str) -> Any:
    x = tf.SparseTensor([[0, 1], [2, 0], [2, 2]], [1, 2, 3], [4, 3])
    return tf.data.Dataset.from_sparse_tensor_slices(x)


@pipeline
def optionals(tf: Any, folder: str) -> Any:
    made = _numbers(tf, 4).map(lambda x: tf.data.experimental.Optional.from_value((x, x * x)))
    return made.map(lambda o: (o.has_value(), o.get_value()[1]))


@pipeline
def empty_optionals(tf: Any, folder: str) -> Any:
    none = tf.data.experimental.Optional.empty(tf.TensorSpec([], tf.int64))
    return tf.data.Dataset.from_tensors(none).repeat(2).map(lambda o: o.has_value())


@pipeline
def through_a_variant(tf: Any, folder: str) -> Any:
    e = tf.data.experimental
    return e.from_variant(e.to_variant(_numbers(tf, 3)), tf.TensorSpec([], tf.int64)).map(lambda x: x + 1)


@pipeline
def with_options(tf: Any, folder: str) -> Any:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    options.deterministic = True
    return _numbers(tf).map(lambda x: x * x, 4).with_options(options).batch(3)


@pipeline
def tensor_arrays(tf: Any, folder: str) -> Any:
    made = _numbers(tf, 3).map(lambda x: tf.TensorArray(tf.int64, 3, element_shape=[]).unstack([x, x + 1, x + 2]))
    return made.map(lambda array: array.stack())


@pipeline
def snapshots(tf: Any, folder: str) -> Any:
    return _numbers(tf, 5).apply(tf.data.experimental.snapshot(os.path.join(folder, "snapshot")))


# *** Python's control flow in functions ***


def _collatz(tf: Any) -> Any:
    def steps(n: Any) -> Any:
        steps = 0
        while n > 1:
            if tf.equal(n % 2, 0):
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        return steps

    return steps


def _label(tf: Any) -> Any:
    def label(n: Any) -> Any:
        if n < 2:
            label = tf.constant("few")
        elif n < 4:
            label = tf.constant("some")
        else:
            label = tf.constant("many")
        return {"n": n, "label": label}

    return label


def _is_prime(tf: Any) -> Any:
    def is_prime(n: Any) -> Any:
        found = n > 1
        for k in tf.range(2, tf.maximum(n, tf.constant(2, tf.int64))):
            if tf.equal(n % k, 0):
                found = False
                break
        return found

    return is_prime


@pipeline
def mapped_loops(tf: Any, folder: str) -> Any:
    return _numbers(tf).map(_collatz(tf))


@pipeline
def mapped_conditionals(tf: Any, folder: str) -> Any:
    return _numbers(tf, 6).map(_label(tf))


@pipeline
def mapped_conditional_expression(tf: Any, folder: str) -> Any:
    return _numbers(tf, 6).map(lambda n: n * 10 if n % 2 < 1 else -n, num_parallel_calls=2)


@pipeline
def filtered_by_a_loop(tf: Any, folder: str) -> Any:
    return _numbers(tf, 20).filter(_is_prime(tf))


@pipeline
def flat_mapped_conditionals(tf: Any, folder: str) -> Any:
    def some(n: Any) -> Any:
        count = n
        if n > 2:
            count = n - 2
        return tf.data.Dataset.range(count)

    return _numbers(tf, 5).flat_map(some)


@pipeline
def scanned_conditionals(tf: Any, folder: str) -> Any:
    def step(state: Any, x: Any) -> Any:
        if x % 3 < 1:
            state = state + x
        return state, state

    return _numbers(tf).apply(tf.data.experimental.scan(np.int64(0), step))
