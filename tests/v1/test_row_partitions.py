"""`tf.experimental.RowPartition` and `DynamicRaggedShape`, compared with results of TensorFlow 2.21."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import headrace.v1 as tf
from tests.v1.row_partition_cases import KINDS, VALUES, results


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:the graph grows")  # each case adds operations and runs them
@pytest.mark.parametrize("kind", KINDS)
def test_partitions_and_ragged_shapes_have_tensorflows_values(kind: str) -> None:
    recorded = json.loads(VALUES.read_text(encoding="utf-8"))
    wanted = {k.removeprefix(f"{kind}: "): v for k, v in recorded.items() if k.startswith(f"{kind}: ")}
    found = results(tf, KINDS[kind])
    differing: dict[str, Any] = {}
    for name, want in wanted.items():
        is_error = isinstance(want, dict) and "error" in want
        got = found[name]
        same = isinstance(got, dict) and want["error"][0] in got.get("error", ()) if is_error else got == want
        if not same:
            differing[name] = (want, got)
    assert differing == {}
    assert found.keys() == wanted.keys()


def test_partitions_and_structures_are_elements_of_datasets() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        s = tf.experimental.StructuredTensor.from_pyval([[{"a": 1}, {"a": 2}], [{"a": 3}]])
        d = tf.data.Dataset.from_tensors(s).map(lambda s: s.with_updates({"b": s[:, :, "a"]}))
        found = tf.data.make_one_shot_iterator(d).get_next()
        assert (found.rank, sorted(found.field_names())) == (2, ["a", "b"])
        assert session.run(found.field_value("b")).to_list() == [[1, 2], [3]]
        with pytest.raises(TypeError, match="cannot be batched"):
            d.batch(2)


@pytest.fixture
def eager() -> Iterator[None]:
    tf.reset_default_graph()
    tf.enable_eager_execution()
    yield
    tf.disable_eager_execution()


def test_structures_of_eager_execution_become_python_values(eager: None) -> None:
    make = tf.experimental.StructuredTensor.from_pyval
    people = [{"age": 12, "names": [[1], []]}, {"age": 82, "names": [[2, 3]]}]
    nested = [{"docs": [{"tokens": [1, 2]}, {"tokens": []}]}, {"docs": []}]
    for value in (people, nested, {"a": [1, 2]}, [{}, {}], [[{}], [{}, {}]]):
        assert make(value).to_pyval() == value
    assert make(people)[1:].to_pyval() == people[1:]
