"""Producers of names, numbers and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import GraphError, InvalidArgumentError
from headrace.train import input
from tests.train.pipelines import taken


def test_each_row_so_often_as_there_are_epochs() -> None:
    assert taken(lambda: input.range_input_producer(3, num_epochs=2, shuffle=False).dequeue()) == [0, 1, 2, 0, 1, 2]
    rows = [[1, 2], [3, 4]]
    assert taken(lambda: input.input_producer(rows, num_epochs=1, shuffle=False).dequeue()) == rows


def test_without_epochs_it_goes_on() -> None:
    got = taken(lambda: input.string_input_producer(["a", "b"], shuffle=False, capacity=2).dequeue(), most=7)
    assert got == [b"a", b"b", b"a", b"b", b"a", b"b", b"a"]


def test_shuffled_within_each_epoch_and_by_the_seed() -> None:
    def run(seed: int) -> list[int]:
        return taken(lambda: input.range_input_producer(20, num_epochs=3, seed=seed).dequeue())

    first, again, other = run(1), run(1), run(2)
    assert first == again != other
    epochs = [first[i : i + 20] for i in (0, 20, 40)]
    assert all(sorted(e) == list(range(20)) for e in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != list(range(20))


def test_rows_of_several_tensors_stay_together() -> None:
    got = taken(lambda: input.slice_input_producer([[1, 2, 3], [[1.5], [2.5], [3.5]]], num_epochs=1, seed=1))
    assert sorted(got) == [[1, [1.5]], [2, [2.5]], [3, [3.5]]]


def test_a_tensor_a_limited_number_of_times() -> None:
    assert taken(lambda: input.limit_epochs(hr.constant(7), 3)) == [7, 7, 7]
    with hr.Graph():
        x = hr.constant(1)
        assert input.limit_epochs(x) is x


def test_names_of_files_are_looked_up_once(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"")
    with hr.Graph() as g:
        names = input.match_filenames_once(f"{tmp_path}/*.txt")
        assert names.name.startswith("matching_filenames")
    with hr.Session(graph=g) as sess:
        (tmp_path / "a.txt").write_bytes(b"")
        sess.run(names.initializer)
        (tmp_path / "c.txt").write_bytes(b"")
        assert [Path(x.decode()).name for x in sess.run(names)] == ["a.txt", "b.txt"]


def test_files_to_lines_to_batches(tmp_path: Path) -> None:
    for name, lines in (("a", "1,2\n3,4\n"), ("b", "5,6\n")):
        (tmp_path / f"{name}.csv").write_text(lines)

    def build() -> Any:
        names = input.string_input_producer(
            input.match_filenames_once(f"{tmp_path}/*.csv"), num_epochs=2, shuffle=False
        )
        _, line = hr.io.TextLineReader().read(names)
        x, y = hr.io.decode_csv(line, [[0], [0]])
        return input.batch([x, y], 2)

    assert taken(build) == [[[1, 3], [2, 4]], [[5, 1], [6, 2]], [[3, 5], [4, 6]]]


def test_what_cannot_be_produced() -> None:
    with pytest.raises(GraphError, match=r"with hr\.Graph"):
        input.range_input_producer(3)
    with hr.Graph():
        with pytest.raises(ValueError, match="non-null"):
            input.string_input_producer([])
        with pytest.raises(ValueError, match="num_epochs must be > 0 not 0"):
            input.range_input_producer(3, num_epochs=0)
        with pytest.raises(ValueError, match="element_shape"):
            input.input_producer(hr.placeholder(hr.int32))
        with pytest.raises(ValueError, match="at least one tensor"):
            input.slice_input_producer([])


def test_a_tensor_of_no_names_is_an_error() -> None:
    def build() -> Any:
        none = hr.constant([], hr.string)
        return input.string_input_producer(hr.identity(none)).dequeue()

    with pytest.raises(InvalidArgumentError, match="non-null"):
        taken(build)
