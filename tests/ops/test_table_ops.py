"""Lookup tables in sessions: filling, finding, changing, exporting, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
)
from tests.ops.running import Program

f32, i32, i64, string = dtypes.float32, dtypes.int32, dtypes.int64, dtypes.string


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def text(*words: str) -> np.ndarray:
    return np.array([w.encode() for w in words], object)


def longs(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def find(p: Program, table: Any, keys: np.ndarray, default: Any, key: Any = string, value: Any = i64) -> Any:
    return p.run(p.b.LookupTableFindV2(table, p.feed(keys, key), p.feed(default, value)))


def export(p: Program, table: Any, key: Any = string, value: Any = i64) -> tuple[list[Any], list[Any]]:
    keys, values = p.run(list(p.b.LookupTableExportV2(table, Tkeys=key, Tvalues=value)))
    return keys.tolist(), values.tolist()


# *** filled once ***


def test_a_table_is_filled_once(p: Program) -> None:
    b = p.b
    t = b.HashTableV2(key_dtype=string, value_dtype=i64)
    assert p.run(b.LookupTableSizeV2(t)) == 0
    with p.fails(FailedPreconditionError, "Table not initialized"):
        find(p, t, text("a"), np.int64(-1))
    with p.fails(AbortedError, "not initialized"):
        export(p, t)
    with p.fails(FailedPreconditionError, "different value for same key. Key a has 1 and trying to add value 2"):
        p.run(b.InitializeTableV2(t, text("a", "a"), longs(1, 2)))
    with p.fails(InvalidArgumentError, "cannot be empty"):
        p.run(b.LookupTableImportV2(t, p.feed(text(), string), longs()))
    p.run(b.InitializeTableV2(t, text("a", "b", "a"), longs(1, 2, 1)))
    assert find(p, t, text("b", "x", "a").reshape(3, 1), np.int64(-1)).tolist() == [[2], [-1], [1]]
    assert find(p, t, np.array(b"b", object), np.int64(-1)) == 2
    assert find(p, t, text(), np.int64(-1)).shape == (0,)
    assert find(p, t, text("x", "a", "y"), longs(7, 8, 9)).tolist() == [7, 1, 7]
    assert export(p, t) == ([b"a", b"b"], [1, 2])
    with p.fails(FailedPreconditionError, "already initialized with different data"):
        p.run(b.LookupTableImportV2(t, text("a"), longs(1)))
    for change in (b.LookupTableInsertV2(t, text("a"), longs(1)), b.LookupTableRemoveV2(t, text("a"))):
        with p.fails(UnimplementedError, "not supported"):
            p.run(change)


def test_the_ops_before_v2_and_what_shares_a_name(p: Program) -> None:
    b = p.b
    t = b.HashTable(key_dtype=string, value_dtype=i64, shared_name="t")
    assert p.run(t).tolist() == [b"localhost", b"t"]
    p.run(b.InitializeTable(t, text("a"), longs(5)))
    assert p.run(b.LookupTableFind(t, text("a", "b"), np.int64(0))).tolist() == [5, 0]
    same = b.MutableHashTableV2(key_dtype=string, value_dtype=i64, shared_name="t")  # the table is unchanged
    assert p.run(b.LookupTableSizeV2(same)) == p.run(b.LookupTableSize(t)) == 1
    with p.fails(InvalidArgumentError, "Conflicting key/value dtypes string->int32 with string-int64 for table t"):
        p.run(b.LookupTableSizeV2(b.HashTableV2(key_dtype=string, value_dtype=i32, shared_name="t")))
    with p.fails(InvalidArgumentError, "No OpKernel was registered"):
        p.run(b.LookupTableSizeV2(b.HashTableV2(key_dtype=f32, value_dtype=i32)))
    with p.fails(InvalidArgumentError, "as a Table, but it is a Variable"):
        p.run(b.LookupTableSizeV2(b.VarHandleOp(dtype=f32, shape=())))
    with p.fails(InvalidArgumentError, "deleted_key"):
        p.run(b.MutableDenseHashTable(np.int64(0), value_dtype=i64))


def test_calls_that_do_not_fit(p: Program) -> None:
    b = p.b
    t = b.HashTableV2(key_dtype=string, value_dtype=i64)
    m = b.MutableHashTableV2(key_dtype=string, value_dtype=i64)
    for wrong, match in (
        (b.InitializeTableV2(t, p.feed(text("a", "b"), string), p.feed(longs(1))), "must have the same size 2 vs. 1"),
        (b.InitializeTableV2(t, p.feed(np.array(b"a", object), string), p.feed(np.int64(1))), "Keys must be a vector"),
        (b.InitializeTableV2(t, text("a"), np.int32([1])), "Signature mismatch, have: string, int32"),
        (b.InitializeTableV2(m, text("a"), longs(1)), "is not initializable"),
        (b.LookupTableInsertV2(m, p.feed(text("a"), string), p.feed(longs(1, 2))), r"Expected shape \[1\] for value"),
        (b.LookupTableRemoveV2(m, longs(1)), "Signature mismatch"),
        (b.LookupTableExportV2(t, Tkeys=string, Tvalues=i32)[0], "Signature mismatch"),
        (b.MutableHashTableOfTensorsV2(key_dtype=string, value_dtype=i64).op, "must be a vector, got shape"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(wrong)
    with p.fails(InvalidArgumentError, r"Expected shape \[\] or \[2\] for default value, got \[3\]"):
        find(p, m, text("a", "b"), longs(1, 2, 3))


# *** changing ***


def test_a_table_changes(p: Program) -> None:
    b = p.b
    t = b.MutableHashTableV2(key_dtype=string, value_dtype=i64)
    p.run(b.LookupTableInsertV2(t, text("a", "b", "a"), longs(1, 2, 3)))
    p.run(b.LookupTableInsertV2(t, text("c"), longs(6)))
    assert export(p, t) == ([b"c", b"b", b"a"], [6, 2, 3])
    assert find(p, t, text("a", "x"), longs(8, 9)).tolist() == [3, 9]
    p.run(b.LookupTableRemoveV2(t, text("a", "nothing")))
    p.run(b.LookupTableInsertV2(t, text("d", "e"), longs(4, 5)))
    assert find(p, t, text("a", "b", "c", "d", "e"), np.int64(-1)).tolist() == [-1, 2, 6, 4, 5]
    p.run(b.LookupTableImportV2(t, text("z"), longs(7)))
    assert export(p, t) == ([b"z"], [7])


def test_exports_come_in_the_order_of_the_hash_table_of_c(p: Program) -> None:
    b = p.b
    t = b.MutableHashTableV2(key_dtype=i64, value_dtype=i64)
    p.run(b.LookupTableInsertV2(t, np.arange(20, 0, -1), np.arange(20)))  # past the first 13 buckets
    assert export(p, t, i64)[0] == [1, 2, 3, 4, 5, 6, 7, *range(20, 7, -1)]
    t = b.MutableHashTableV2(key_dtype=string, value_dtype=i64)
    p.run(b.LookupTableInsertV2(t, text(*(f"w{i}" for i in range(12))), np.arange(12)))
    assert export(p, t)[1] == [9, 8, 7, 6, 4, 2, 11, 5, 3, 1, 10, 0]


def test_tables_of_vectors(p: Program) -> None:
    b = p.b
    t = b.MutableHashTableOfTensorsV2(key_dtype=i64, value_dtype=string, value_shape=(2,))
    p.run(b.LookupTableInsertV2(t, longs(3, 4), text("a", "b", "c", "d").reshape(2, 2)))
    found = b.LookupTableFindV2(t, longs(4, 5), text("", "?"))
    assert found.shape == (2, 2)
    assert p.run(found).tolist() == [[b"c", b"d"], [b"", b"?"]]
    each = find(p, t, longs(5, 4), text("p", "q", "r", "s").reshape(2, 2), i64, string)
    assert each.tolist() == [[b"p", b"q"], [b"c", b"d"]]
    p.run(b.LookupTableRemoveV2(t, longs(3)))
    assert export(p, t, i64, string) == ([4], [[b"c", b"d"]])


def test_an_anonymous_table_is_new_each_time(p: Program) -> None:
    b = p.b
    t = b.AnonymousMutableHashTable(key_dtype=string, value_dtype=i64)
    inserted = b.LookupTableInsertV2(t, text("a"), longs(1))
    size = b.after(inserted).LookupTableSizeV2(t)
    assert p.run(size) == p.run(size) == 1
    assert p.run(b.LookupTableSizeV2(t)) == 0


# *** in buckets ***


def dense(p: Program, empty: Any, deleted: Any, **attrs: Any) -> Any:
    return p.b.MutableDenseHashTableV2(empty, deleted, **{"value_dtype": i64, "initial_num_buckets": 4, **attrs})


def test_a_dense_table_is_its_buckets(p: Program) -> None:
    b = p.b
    t = dense(p, np.int64(0), np.int64(-1))
    p.run(b.LookupTableInsertV2(t, longs(11, 12, 13), longs(1, 2, 3)))
    assert export(p, t, i64)[0] == [[12], [13], [0], [11]]
    p.run(b.LookupTableRemoveV2(t, longs(12, 99)))
    assert export(p, t, i64)[0] == [[-1], [13], [0], [11]]
    p.run(b.LookupTableInsertV2(t, longs(13, 14, 15, 16, 17), longs(3, 4, 5, 6, 7)))
    keys, values = export(p, t, i64)
    assert keys == [[16], [17], *[[0]] * 9, [11], [0], [13], [14], [15]]
    assert p.run(b.LookupTableSizeV2(t)) == 6
    assert find(p, t, longs(17, 12, 11), longs(-5, -6, -7), i64).tolist() == [7, -5, 1]
    other = dense(p, np.int64(0), np.int64(-1))
    p.run(b.LookupTableImportV2(other, longs(*[k[0] for k in keys])[:, None], longs(*[v[0] for v in values])[:, None]))
    assert find(p, other, longs(17, 12), np.int64(-1), i64).tolist() == [7, -1]


def test_dense_tables_of_vectors_and_strings(p: Program) -> None:
    b = p.b
    t = dense(p, longs(0, 0), longs(-1, -1))
    p.run(b.LookupTableInsertV2(t, longs(1, 2, 3, 4).reshape(2, 2), longs(5, 6)))
    assert export(p, t, i64) == ([[3, 4], [0, 0], [0, 0], [1, 2]], [[6], [0], [0], [5]])
    words = dense(p, text("", ""), text("$", "$"))
    p.run(b.LookupTableInsertV2(words, text("a", "b", "cc", "d", "hello world", "x").reshape(3, 2), longs(1, 2, 3)))
    assert [v for (v,) in export(p, words)[1]] == [0, 1, 3, 2]
    with p.fails(InvalidArgumentError, r"Expected key shape \[2,2\] got \[2\]"):
        find(p, t, longs(1, 2), np.int64(-1), i64)
    with p.fails(InvalidArgumentError, "must end with the table's key shape"):
        find(p, t, longs(1, 2, 3), np.int64(-1), i64)
    with p.fails(InvalidArgumentError, "must end with the table's key shape"):
        p.run(b.LookupTableImportV2(t, p.feed(longs(1)), p.feed(longs(1))))


def test_what_a_dense_table_refuses(p: Program) -> None:
    b = p.b
    zero, less = np.int64(0), np.int64(-1)
    for table, match in (
        (dense(p, zero, zero), "cannot be equal"),
        (dense(p, zero, longs(1)), "must have same shape"),
        (dense(p, p.feed(longs(0)[None]), p.feed(longs(1)[None])), "must be a scalar or a vector"),
        (dense(p, zero, less, initial_num_buckets=12), "at least 4 and a power of 2, got: 12"),
        (dense(p, zero, less, max_load_factor=1.0), "between 0 and 1"),
        (dense(p, zero, less, value_shape=(2, 2)), "Empty value must be a scalar or a vector"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(b.LookupTableSizeV2(table))
    with p.fails(ResourceExhaustedError, "OOM"):
        p.run(b.LookupTableSizeV2(dense(p, zero, less, initial_num_buckets=2**58)))
    t = dense(p, zero, less)
    for key, what in ((0, "empty"), (-1, "deleted")):
        for use in (
            b.LookupTableInsertV2(t, longs(key), longs(1)),
            b.LookupTableFindV2(t, longs(key), np.int64(1)),
            b.LookupTableRemoveV2(t, longs(key)),
        ):
            with p.fails(InvalidArgumentError, f"Using the {what}_key as a table key"):
                p.run(use)
    p.run(b.LookupTableImportV2(t, longs(5, 6, 7, 8)[:, None], longs(1, 2, 3, 4)[:, None]))
    assert find(p, t, longs(9), np.int64(-1), i64).tolist() == [-1]  # all buckets are in use; it ends nevertheless


# *** from files ***


def test_tables_from_files(p: Program, tmp_path: Path) -> None:
    b = p.b

    def read(contents: bytes, key: int, value: int, types: Any = (string, i64), **attrs: Any) -> Any:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(contents)
        t = b.HashTableV2(key_dtype=types[0], value_dtype=types[1])
        fill = b.InitializeTableFromTextFileV2(t, str(path), key_index=key, value_index=value, **attrs)
        p.run(fill)
        p.run(fill)
        return export(p, t, *types)

    words, columns = b"brain\nsalad\r\nsurgery", b"0\tbrain\n5\tsalad\n"
    assert read(words, -2, -1) == ([b"brain", b"salad", b"surgery"], [0, 1, 2])
    assert read(words, -1, -2, (i64, string), offset=3, vocab_size=2) == ([3, 4], [b"brain", b"salad"])
    assert read(columns, 1, 0, (string, f32)) == ([b"brain", b"salad"], [0.0, 5.0])
    assert read(b"+4 a\n-5 b\n", 0, 1, (i32, string), delimiter=" ") == ([4, -5], [b"a", b"b"])
    for contents, key, value, attrs, error, match in (
        (b"", -2, -1, {}, OutOfRangeError, "Finished reading 0 of lines"),
        (b"a\n\nb\n", -2, -1, {}, InvalidArgumentError, "empty line found"),
        (words, -2, -1, {"vocab_size": 4}, InvalidArgumentError, "expected 4 but got 3"),
        (words, -2, 1, {}, InvalidArgumentError, "Invalid number of columns.*expected at least 2 got 1"),
        (words, -2, -1, {"delimiter": "ab"}, InvalidArgumentError, "only 1 char"),
        (words, -2, -1, {"types": (string, i32)}, InvalidArgumentError, "requires table value dtype of int64"),
        (words, -1, -2, {"types": (i64, f32)}, InvalidArgumentError, "integer or string"),
        (b"0x1\ta\n", 1, 0, {}, InvalidArgumentError, "Field 0x1 in line 0 is not a valid int64"),
        (b"9" * 5000 + b"\ta\n", 1, 0, {}, InvalidArgumentError, "is not a valid int64"),
        (b"a\nb\na\n", -2, -1, {}, FailedPreconditionError, "different value for same key"),
    ):
        with p.fails(error, match):
            read(contents, key, value, **attrs)
    t = b.HashTableV2(key_dtype=string, value_dtype=i64)
    for name, error, match in (
        (str(tmp_path / "none"), NotFoundError, "No such file"),
        (str(tmp_path), FailedPreconditionError, "Is a directory"),
        ("a\0b", InvalidArgumentError, "cannot be opened"),
    ):
        with p.fails(error, match):
            p.run(b.InitializeTableFromTextFileV2(t, name, key_index=-2, value_index=-1))
    with p.fails(InvalidArgumentError, "single string, but got"):
        names = p.feed(text("x"), string)
        p.run(b.InitializeTableFromTextFileV2(t, names, key_index=-2, value_index=-1))
