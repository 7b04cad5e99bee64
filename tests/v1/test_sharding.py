"""Division of object checkpoints into shards; the divisions are those of TensorFlow 2.21."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine

E = tf.train.experimental
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


@pytest.fixture(params=["graph", "eager"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The default session, or None in a program that executes eagerly."""
    tf.reset_default_graph()
    if request.param == "eager":
        tf.enable_eager_execution()
        yield None
        tf.disable_eager_execution()
    else:
        with tf.Session() as made:
            yield made
        tf.reset_default_graph()


def objects(session: Any) -> Any:
    v = tf.Variable(np.arange(12, dtype=np.float32).reshape(3, 4), name="v")
    w = tf.Variable(np.arange(5.0), dtype=tf.float64, name="w")
    s = tf.Variable(3.0, name="s")
    if session is not None:
        session.run(tf.global_variables_initializer())
    return tf.train.Checkpoint(v=v, w=w, s=s)


def short(name: str) -> str:
    return name.partition("/")[0]


# Greatest size in bytes -> the parts in each shard.
DIVIDED = {
    16: [
        "s, v 3 4 0,3:0,1",
        "v 3 4 0,1:1,3",
        "v 3 4 1,1:1,3, v 3 4 2,1:1,1",
        "v 3 4 2,1:2,2, w 5 0,1",
        "w 5 1,2",
        "w 5 3,2, G",
    ],
    24: ["s, v 3 4 0,1:0,4", "v 3 4 1,1:0,4, v 3 4 2,1:0,2", "v 3 4 2,1:2,2, w 5 0,2", "w 5 2,3, G"],
    40: ["s, v 3 4 0,2:0,4, v 3 4 2,1:0,1", "v 3 4 2,1:1,3, w 5 0,3", "w 5 3,2, G"],
    1000: ["s, v 3 4 0,3:0,4, w 5 0,5, G"],
}


@pytest.mark.parametrize("size", DIVIDED)
def test_shards_of_a_greatest_size(session: Any, size: int, tmp_path: Path) -> None:
    seen: list[str] = []

    class Policy(E.MaxShardSizePolicy):
        def __call__(self, shardable_tensors: Sequence[Any]) -> Any:
            shards = super().__call__(shardable_tensors)
            for shard in shards:
                parts = [(short(key) if key != GRAPH else "G", spec) for key in shard for spec in shard[key]]
                seen.append(", ".join(f"{key} {spec}".strip() for key, spec in parts))
            return shards

    path = objects(session).write(
        str(tmp_path / "m"), options=tf.train.CheckpointOptions(experimental_sharding_callback=Policy(size))
    )
    assert seen == DIVIDED[size]
    n = len(seen)
    assert sorted(os.listdir(tmp_path)) == [*(f"m.data-{i:05d}-of-{n:05d}" for i in range(n)), "m.index"]
    reader = tf.train.load_checkpoint(path)
    found = {short(k): reader.get_tensor(k).tolist() for k in reader.get_variable_to_shape_map() if k != GRAPH}
    assert found == {"s": 3, "v": np.arange(12).reshape(3, 4).tolist(), "w": [0, 1, 2, 3, 4]}


def test_a_row_or_scalar_that_is_too_large_has_a_shard_of_its_own(session: Any, tmp_path: Path) -> None:
    options = tf.train.CheckpointOptions(experimental_sharding_callback=E.MaxShardSizePolicy(3))
    path = objects(session).save(str(tmp_path / "m"), options=options)
    # of scalars, numbers of w, rows of v, the number of the call, and the graph of the objects
    assert len(list(tmp_path.glob("m-1.data*"))) == 1 + 5 + 3 + 1 + 1
    made = objects(session)
    made.restore(path).assert_consumed()
    assert tf.train.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE").tolist()[2] == [8, 9, 10, 11]


class Function(E.ShardingCallback):  # type: ignore[misc]
    """A callback of a function of all parts."""

    description = "of a test"

    def __init__(self, f: Callable[[dict[str, Any]], Any]) -> None:
        self.f = f

    def __call__(self, shardable_tensors: Sequence[Any]) -> Any:
        return self.f({t.checkpoint_key: {t.slice_spec: t.tensor} for t in shardable_tensors})


@pytest.mark.parametrize(
    ("f", "match"),
    [
        (lambda parts: [parts, parts], "multiple tensors with the same checkpoint key"),
        (lambda parts: [{GRAPH: parts[GRAPH]}], "were not found in the checkpoint shards"),
        (lambda parts: [{**parts, "x": parts[GRAPH]}], "not originally in the object graph"),
        (lambda parts: [{k: {s: tf.cast(t, tf.float16) if t.dtype is tf.float32 else t for s, t in p.items()}
                         for k, p in parts.items()}], "altered dtype"),
        (lambda parts: [{k: {s: t[:1] if t.dtype is tf.float64 else t for s, t in p.items()}
                         for k, p in parts.items()}], "altered shape"),
    ],
)  # fmt: skip
def test_wrong_divisions(session: Any, f: Callable[..., Any], match: str, tmp_path: Path) -> None:
    options = tf.train.CheckpointOptions(experimental_sharding_callback=Function(f))
    with pytest.raises(RuntimeError, match=match) as e:
        objects(session).write(str(tmp_path / "m"), options=options)
    assert "callback_description: of a test" in str(e.value)
    assert not os.listdir(tmp_path)


def test_callbacks_and_their_tensors(session: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be of type ShardingCallback"):
        tf.train.CheckpointOptions(experimental_sharding_callback=3)
    assert hash(E.MaxShardSizePolicy(5)) == hash(E.MaxShardSizePolicy(5)) != hash(E.MaxShardSizePolicy(6))
    given: list[Any] = []

    class Policy(E.ShardByTaskPolicy):
        def __call__(self, shardable_tensors: Sequence[Any]) -> Any:
            given.extend(shardable_tensors)
            return super().__call__(shardable_tensors)

    made = objects(session)
    made.write(str(tmp_path / "m"), options=tf.train.CheckpointOptions(experimental_sharding_callback=Policy()))
    assert sorted(os.listdir(tmp_path)) == ["m.data-00000-of-00001", "m.index"]
    s, v, w, graph = given
    assert (s.name, s.shape.as_list(), s.dtype, s.slice_spec) == ("s/.ATTRIBUTES/VARIABLE_VALUE", [], tf.float32, "")
    assert (v.trackable, v.device.job, w.tensor.dtype) == (made.v, None if session else v.device.job, tf.float64)
    assert (graph.name, graph.trackable, graph.dtype) == (GRAPH, None, tf.string)
