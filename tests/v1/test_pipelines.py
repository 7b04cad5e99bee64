"""Pipelines of `tf.data` against TensorFlow's elements, one by one and in order.

`python -m tests.v1.pipelines.collect` records them; `tests/conformance/test_pipelines.py` checks that they are
TensorFlow's still.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.pipelines.pipelines import PIPELINES, write_files
from tests.v1.pipelines.running import elements

RECORDED: Final = json.loads((Path(__file__).parent / "pipelines" / "recorded.json").read_text(encoding="utf-8"))


def _write(path: str, records: list[bytes]) -> None:
    with tf.python_io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore:the graph grows")
@pytest.mark.parametrize("name", PIPELINES)
def test_elements_are_those_of_tensorflow(name: str, tmp_path: Path) -> None:
    write_files(str(tmp_path), _write)
    got, want = elements(tf, name, str(tmp_path)), RECORDED[name]
    assert (got["types"], got["shapes"], got["end"]) == (want["types"], want["shapes"], want["end"])
    assert len(got["elements"]) == len(want["elements"])
    for mine, theirs in zip(got["elements"], want["elements"], strict=True):
        assert mine == theirs


def test_each_pipeline_is_recorded() -> None:
    assert set(RECORDED) == set(PIPELINES)
    assert len(RECORDED) > 100
    assert sum(len(r["elements"]) > 1 for r in RECORDED.values()) > 100  # else nearly nothing is compared


@pytest.mark.parametrize("name", ["shuffled_4", "padded", "interleaved_1", "bucketed", "sampled_1"])
def test_some_pipelines_in_the_unit_tier(name: str, tmp_path: Path) -> None:
    got: Any = elements(tf, name, str(tmp_path))
    assert got == RECORDED[name]


def test_a_seeded_shuffle_is_a_permutation_that_differs_from_pass_to_pass() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.data.Dataset.range(50).shuffle(50, seed=3).repeat(2).batch(50).make_one_shot_iterator().get_next()
        first, second = sess.run(x), sess.run(x)
    assert sorted(first) == sorted(second) == list(range(50))
    assert not np.array_equal(first, second)
