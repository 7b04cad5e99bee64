"""`hr.data`: structures of elements, eager and jitted iteration, and errors."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    SignatureError,
    UnknownError,
)

D = hr.data.Dataset


def test_each_pass_is_an_iterator_of_its_own() -> None:
    dataset = D.range(3)
    first, second = iter(dataset), iter(dataset)
    assert [int(next(first)), int(next(first)), int(next(second))] == [0, 1, 0]
    assert [int(x) for x in dataset] == [0, 1, 2]
    assert list(second) != []
    assert next(second, None) is None
    with pytest.raises(OutOfRangeError, match="End of sequence"):
        second.get_next()


def test_lengths_are_known_where_the_sources_tell_them() -> None:
    assert len(D.range(10).batch(3)) == 4
    assert len(D.zip((D.range(3), D.range(9).skip(2)))) == 3
    assert int(D.range(3).repeat().cardinality()) == hr.data.INFINITE_CARDINALITY
    assert int(D.range(3).filter(lambda x: x > 0).cardinality()) == hr.data.UNKNOWN_CARDINALITY
    with pytest.raises(TypeError, match="infinite"):
        len(D.range(3).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(D.range(3).filter(lambda x: x > 0))


def test_structures_stay_what_they_are() -> None:
    element = {"b": (np.float32([1, 2]), [[1], [2]]), "a": np.array(["x", "y"])}
    (row, _) = list(D.from_tensor_slices(element))
    assert list(row) == ["b", "a"] or list(row) == ["a", "b"]
    assert (float(row["b"][0]), row["b"][1].numpy().tolist(), row["a"].numpy()) == (1.0, [1], b"x")
    sums = D.from_tensor_slices(element).map(lambda e: (e["b"][0] + 1, hr.strings.length(e["a"])))
    assert [(float(x), int(n)) for x, n in sums] == [(2.0, 1), (3.0, 1)]
    assert sums.element_spec == (hr.TensorSpec((), hr.float32), hr.TensorSpec((), hr.int32))


def test_sparse_tensors_are_leaves() -> None:
    sparse = hr.SparseTensor([[0, 1], [1, 0]], [5, 6], [2, 3])
    rows = [hr.sparse.to_dense(x).numpy().tolist() for x in D.from_tensor_slices(sparse)]
    assert rows == [[0, 5, 0], [6, 0, 0]]
    (batch,) = D.from_tensor_slices(sparse).batch(2)
    assert hr.sparse.to_dense(batch).numpy().tolist() == rows


def test_functions_see_eager_variables() -> None:
    v = hr.Variable(2.0)
    scaled = D.range(3).map(lambda x: hr.cast(x, hr.float32) * v)
    assert [float(x) for x in scaled] == [0, 2, 4]
    v.assign(10.0)
    assert [float(x) for x in scaled] == [0, 10, 20]


def test_a_jitted_function_takes_elements_in_order() -> None:
    numbers = iter(D.range(100).map(lambda x: x * 2))

    @hr.jit
    def difference() -> Any:
        first = next(numbers)
        return next(numbers) - first * 10

    assert [int(difference()) for _ in range(3)] == [2, 6 - 40, 10 - 80]
    assert int(next(numbers)) == 12


def test_a_jitted_function_reduces_a_dataset_around_it() -> None:
    dataset = D.range(5)
    total = hr.jit(lambda start: dataset.map(lambda x: x + start).reduce(start, lambda s, x: s + x))
    assert int(total(hr.constant(1, hr.int64))) == 16


def test_a_dataset_in_a_graph_has_no_values() -> None:
    with hr.Graph():
        dataset = D.range(3)
        with pytest.raises(RuntimeError, match="make_initializable_iterator"):
            iter(dataset)
        with pytest.raises(TypeError, match="cardinality"):
            len(dataset)


def test_random_numbers_of_a_function_differ_between_elements() -> None:
    drawn = [float(x) for x in D.range(4).map(lambda x: hr.random.uniform((), seed=1))]
    assert len(set(drawn)) == 4


def test_a_generator_is_started_by_each_pass_and_checked() -> None:
    starts = []

    def pairs() -> Any:
        starts.append(1)
        yield 1, [1.0]
        yield 2, [1.0, 2.0]

    dataset = D.from_generator(
        pairs, output_signature=(hr.TensorSpec((), hr.int32), hr.TensorSpec((None,), hr.float32))
    )
    for _ in range(2):
        assert [(int(n), x.numpy().tolist()) for n, x in dataset] == [(1, [1.0]), (2, [1.0, 2.0])]
    assert len(starts) == 2
    with pytest.raises(InvalidArgumentError, match="expected structure"):
        list(D.from_generator(lambda: iter([(1, 2)]), hr.int32, ()))
    with pytest.raises(InvalidArgumentError, match="shape"):
        list(D.from_generator(lambda: iter([[1, 2]]), hr.int32, (3,)))
    with pytest.raises(InvalidArgumentError, match="expected type"):
        list(D.from_generator(lambda: iter(["text"]), hr.int32, ()))
    with pytest.raises(TypeError, match="output_signature"):
        D.from_generator(pairs)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda d: d.map(lambda x: object()), SignatureError, "cannot be a tensor"),
        (lambda d: d.map(lambda x: None), SignatureError, "returned None"),
        (lambda d: d.map(3), TypeError, "callable"),
        (lambda d: d.filter(lambda x: x), ValueError, "boolean scalar"),
        (lambda d: d.flat_map(lambda x: x), TypeError, "must return a `Dataset`"),
        (lambda d: d.reduce(0.0, lambda s, x: x), TypeError, "Expected float32"),
        (lambda d: d.reduce((0, 0), lambda s, x: s[0]), TypeError, "element structure"),
        (lambda d: d.concatenate(D.from_tensors("a")), TypeError, "Incompatible"),
        (lambda d: d.unbatch(), ValueError, "scalar components"),
        (lambda d: d.window(2).batch(2), TypeError, "flat_map"),
        (lambda d: d.shard(3, 3), ValueError, "index"),
        (lambda d: d.apply(lambda d: 3), TypeError, "must return a `Dataset`"),
        (lambda d: d.group_by_window(lambda x: x, lambda k, g: g), ValueError, "window_size"),
        (lambda d: D.zip((d, 3)), TypeError, "structure of `Dataset`"),
        (lambda d: D.from_tensor_slices(3), ValueError, "from_tensors"),
        (lambda d: D.sample_from_datasets([d], [0.5, 0.5]), ValueError, "2 weights"),
        (lambda d: list(d.batch(0)), InvalidArgumentError, "greater than zero"),
        (lambda d: list(d.shuffle(0)), InvalidArgumentError, "buffer_size"),
        (lambda d: list(D.from_tensor_slices(([1], [1, 2]))), InvalidArgumentError, "same size in the 0th"),
        (lambda d: d.bucket_by_sequence_length(lambda x: x, [1], [2]), ValueError, "bucket_batch_sizes"),
    ],
)
def test_mistakes_are_named(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make(D.range(4))


def test_a_record_may_be_an_element() -> None:
    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any

    points = D.range(2).map(lambda n: Point(n, n + 1))
    assert [(int(p.x), int(p.y)) for p in points] == [(0, 1), (1, 2)]


def test_csv_records_are_checked(tmp_path: Path) -> None:
    name = tmp_path / "a.csv"
    name.write_bytes(b'1,x\n2\n3,4,5\nz,y\n4,"open\n')
    rows = iter(hr.data.CsvDataset(str(name), [[0], [""]]))
    assert int(next(rows)[0]) == 1
    for text in (
        "Expect 2 fields but have 1",
        "Expect 2 fields but have 3",
        "Field 0 in record is not a valid int32: z",
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            next(rows)
    with pytest.raises(InvalidArgumentError, match="Reached end of file without closing quoted field"):
        next(rows)
    assert next(rows, None) is None
    name.write_bytes(b"1,\n")
    with pytest.raises(InvalidArgumentError, match="Field 1 is required but missing in record!"):
        next(iter(hr.data.CsvDataset(str(name), [[0], hr.float32])))
    for more, text in (({"select_cols": [1, 0]}, "increasing"), ({"field_delim": "::"}, "only 1 char")):
        with pytest.raises(InvalidArgumentError, match=text):
            next(iter(hr.data.CsvDataset(str(name), [[0], [""]], **more)))
    with pytest.raises(ValueError, match="exclude one another"):
        hr.data.CsvDataset(str(name), [[0]], select_cols=[0], exclude_cols=[1])
    name.write_bytes(b"1,x,2\n3,y,4\n")
    assert [int(x) for (x,) in hr.data.CsvDataset(str(name), [[0]], exclude_cols=[0, 1])] == [2, 4]


def test_a_position_in_a_csv_file_is_restored(tmp_path: Path) -> None:
    name = tmp_path / "a.csv"
    name.write_bytes(b'1,"x\ny"\n2,z\n3,w\n')
    first, second = (iter(hr.data.CsvDataset(str(name), [[0], [""]])) for _ in range(2))
    next(first)
    second.restore(first.save())
    assert [int(n) for n, _ in second] == [2, 3]


def test_a_query_of_a_database_file_only_reads(tmp_path: Path) -> None:
    name = str(tmp_path / "a.db")
    with pytest.raises(NotFoundError):
        next(iter(hr.data.SqlDataset("sqlite", name, "select 1", (hr.int32,))))
    database = sqlite3.connect(name)
    with database:
        database.execute("create table t (n int)")
        database.executemany("insert into t values (?)", [(n,) for n in range(5)])
    database.close()
    rows = iter(hr.data.SqlDataset("sqlite", name, "select n from t", (hr.int64,)))
    next(rows)
    data = rows.save()
    assert [int(n) for (n,) in rows] == [1, 2, 3, 4]
    rows.restore(data)
    assert int(next(rows)[0]) == 1
    for query, types, error, text in (
        ("delete from t", (hr.int64,), UnknownError, "readonly"),
        ("selec", (hr.int64,), UnknownError, "syntax error"),
        ("select n, n from t", (hr.int64,), InvalidArgumentError, r"columns in query \(2\)"),
    ):
        with pytest.raises(error, match=text):
            next(iter(hr.data.SqlDataset("sqlite", name, query, types)))
    with pytest.raises(InvalidArgumentError, match="mysql"):
        hr.data.SqlDataset("mysql", name, "select 1", (hr.int32,))
    with pytest.raises(InvalidArgumentError, match="float32"):
        hr.data.SqlDataset("sqlite", name, "select 1", (hr.float32,))


def test_an_optional_is_empty_at_the_end_and_a_part_of_elements() -> None:
    numbers = iter(D.range(2))
    take = hr.jit(lambda: numbers.get_next_as_optional().has_value())
    assert [bool(take()) for _ in range(3)] == [True, True, False]
    empty = numbers.get_next_as_optional()
    with pytest.raises(InvalidArgumentError, match="does not have a value"):
        empty.get_value()
    some = D.from_tensors({"o": hr.data.Optional.from_value((1, "a"))})
    assert some.element_spec == {"o": hr.data.OptionalSpec((hr.TensorSpec((), hr.int32), hr.TensorSpec((), hr.string)))}
    (element,) = some
    assert int(element["o"].get_value()[0]) == 1
    with pytest.raises(TypeError, match="Batching"):
        some.batch(2)


def test_saved_elements_are_loaded_by_shards(tmp_path: Path) -> None:
    pairs = D.range(6).map(lambda x: (x, hr.strings.as_string(x)))
    pairs.save(str(tmp_path / "d"), "GZIP", lambda x, text: x % 2)
    load = lambda **more: D.load(str(tmp_path / "d"), pairs.element_spec, **more)
    assert [int(x) for x, _ in load()] == [0, 1, 2, 3, 4, 5]
    joined = load(reader_func=lambda shards: shards.flat_map(lambda shard: shard))
    assert [text.numpy() for _, text in joined] == [b"0", b"2", b"4", b"1", b"3", b"5"]
    with pytest.raises(DataLossError, match="other dtypes"):
        next(iter(D.load(str(tmp_path / "d"), hr.TensorSpec((), hr.float32))))
    for text, error in ((b"{", DataLossError), (b'{"shards": -1}', DataLossError), (b"[]", DataLossError)):
        (tmp_path / "d" / "dataset.json").write_bytes(text)
        with pytest.raises(error):
            next(iter(load()))
    (tmp_path / "d" / "dataset.json").unlink()
    with pytest.raises(NotFoundError, match="no saved dataset"):
        next(iter(load()))
    with pytest.raises(ValueError, match="element_spec"):
        D.load(str(tmp_path / "d"))


def test_a_snapshot_is_written_by_the_first_complete_pass(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    made = D.random().take(4).snapshot(str(folder))
    unfinished = iter(made)
    next(unfinished)
    assert not folder.exists()
    del unfinished
    first = [int(x) for x in made]
    assert folder.exists()
    assert [int(x) for x in made] == [int(x) for x in D.range(4).snapshot(str(folder))] == first
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_options_are_checked_kept_and_merged() -> None:
    options, more = hr.data.Options(), hr.data.Options()
    assert options.deterministic is None
    assert options == more
    for change, error, text in (
        (lambda: setattr(options, "nope", 1), AttributeError, "no option 'nope'"),
        (lambda: setattr(options, "deterministic", 1), TypeError, "bool"),
        (lambda: setattr(options.threading, "private_threadpool_size", "4"), TypeError, "int"),
        (lambda: options.nope, AttributeError, "no option"),
    ):
        with pytest.raises(error, match=text):
            change()
    options.experimental_deterministic = False
    options.threading.private_threadpool_size = more.threading.max_intra_op_parallelism = 2
    more.deterministic = True
    # the bytes of TensorFlow's OptionsDataset for the same options
    assert options.to_bytes() == bytes.fromhex("080012001a002a0210023a006200")
    merged = D.range(3).with_options(options).map(lambda x: x).with_options(more).batch(2).options()
    assert merged == options.merge(more) != more.merge(options)
    assert (merged.deterministic, merged.threading.private_threadpool_size) == (True, 2)
    with pytest.raises(DataLossError):
        hr.data.Options.from_bytes(b"\xff")


def test_options_decide_on_the_order_of_a_parallel_map() -> None:
    def is_ordered(make: Any) -> bool:
        found = iter(make(D.range(3)))._handle.numpy().owned._iterator
        return bool(
            getattr(found, "_input", found)._has_order if not hasattr(found, "_has_order") else found._has_order
        )

    options = hr.data.Options()
    options.deterministic = False
    assert is_ordered(lambda d: d.map(lambda x: x, 2))
    assert not is_ordered(lambda d: d.map(lambda x: x, 2).with_options(options))
    assert is_ordered(lambda d: d.map(lambda x: x, 2, deterministic=True).with_options(options))


def test_a_number_of_elements_is_asserted() -> None:
    assert len(D.range(6).filter(lambda x: x > 2).assert_cardinality(3)) == 3
    for n, text in (
        (2, "2 elements but contained at least 3 elements"),
        (4, "4 elements but contained only 3 elements"),
    ):
        with pytest.raises(FailedPreconditionError, match=text):
            list(D.range(3).assert_cardinality(n))
    with pytest.raises(FailedPreconditionError, match="an infinite number of elements"):
        list(D.range(3).assert_cardinality(-1))


def test_a_row_of_a_sparse_batch_has_room_for_its_element() -> None:
    rows = D.range(1, 4).map(lambda n: hr.fill([n], n))
    batches = iter(rows.sparse_batch(2, [2]))
    assert hr.sparse.to_dense(next(batches)).numpy().tolist() == [[1, 0], [2, 2]]
    with pytest.raises(InvalidArgumentError, match="larger than the row shape"):
        next(batches)


def test_elements_of_a_list_have_one_structure() -> None:
    for elements, error in (([], ValueError), ((1, 2), ValueError), ([1, "a"], TypeError), ([1, (2,)], TypeError)):
        with pytest.raises(error):
            D.from_list(elements)  # type: ignore[arg-type]


def test_python_control_flow_of_functions_is_converted() -> None:
    def halved(x: Any) -> Any:
        while x > 3:
            x = x // 2
        return x

    assert [int(x) for x in D.range(8).map(halved)] == [0, 1, 2, 3, 2, 2, 3, 3]
    sums = D.range(5).scan(hr.constant(0, hr.int64), lambda s, x: (s + x if x % 2 < 1 else s, s))
    assert [int(x) for x in sums] == [0, 0, 0, 2, 2]
    assert int(D.range(5).reduce(hr.constant(0, hr.int64), lambda s, x: s + x if x > 2 else s)) == 7


def test_a_jump_out_of_a_loop_over_an_iterator_takes_no_further_element() -> None:
    numbers = iter(D.range(10))

    @hr.jit
    def until(limit: Any) -> Any:
        total = hr.constant(0, hr.int64)
        for x in numbers:
            if x == 1:
                continue
            total += x
            if total > limit:
                break
        return total

    assert int(until(hr.constant(4, hr.int64))) == 0 + 2 + 3
    assert int(next(numbers)) == 4
    assert int(until(hr.constant(99, hr.int64))) == 5 + 6 + 7 + 8 + 9


def test_a_loop_over_a_dataset_begins_anew_in_each_call() -> None:
    pairs = D.range(4).map(lambda x: (x, {"square": x * x}))

    @hr.jit
    def total(most: Any) -> Any:
        total = hr.constant(0, hr.int64)
        for x, more in pairs.take(most):
            total += x + more["square"]
        return total

    assert [int(total(hr.constant(n, hr.int64))) for n in (0, 2, 9)] == [0, 2, 20]
