"""`tf.train.warm_start`. The values are those of TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine

EMB = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]
NONE = [[0.0, 0.0]] * 4
ZEROS = tf.zeros_initializer()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder with a checkpoint and vocabularies."""
    folder = tmp_path_factory.mktemp("old")
    with tf.Graph().as_default(), tf.Session() as session:
        for name, value in (("emb", EMB), ("w", [7.0, 8.0]), ("out", [[1.0, 2.0, 3.0]])):
            tf.get_variable(name, initializer=value)
        tf.get_variable("n", initializer=5, trainable=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / "m"))
    (folder / "old").write_text("a\nb\nc\n")
    (folder / "new").write_text("c\nx\na\ny\n")
    return str(folder)


def started(folder: str, shapes: dict[str, list[int]], *args: Any, **kwargs: Any) -> list[Any]:
    with tf.Graph().as_default(), tf.Session() as session:
        made = [
            tf.get_variable(name, shape, tf.int32 if name == "n" else tf.float32, ZEROS, trainable=name != "n")
            for name, shape in shapes.items()
        ]
        tf.train.warm_start(folder, *args, **kwargs)
        session.run(tf.global_variables_initializer())
        return [x.tolist() for x in session.run(made)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), [EMB, [7.0, 8.0], 0]),
        (("w",), [NONE, [7.0, 8.0], 0]),
        ((["emb", "n"],), [EMB, [0.0, 0.0], 5]),
        ((None,), [NONE, [0.0, 0.0], 0]),
    ],
)
def test_the_chosen_variables_begin_with_old_values(old: str, names: Any, expected: Any) -> None:
    assert started(old, {"emb": [4, 2], "w": [2], "n": []}, *names) == expected


def test_another_name_is_followed(old: str) -> None:
    assert started(old, {"new": [2]}, var_name_to_prev_var_name={"new": "w"}) == [[7.0, 8.0]]


@pytest.mark.parametrize(
    ("name", "shape", "settings", "expected"),
    [
        ("emb", [5, 2], (4, 1, 3, tf.ones_initializer()), [[3.0] * 2, [1.0] * 2, [1.0] * 2, [1.0] * 2, [1.0] * 2]),
        ("emb", [5, 2], (4, 1), [[3.0] * 2, [0.0] * 2, [1.0] * 2, [0.0] * 2, [0.0] * 2]),
        ("out", [1, 4], (4, 0, 3, tf.ones_initializer(), 1), [[3.0, 1.0, 1.0, 1.0]]),
    ],
)
def test_words_of_a_vocabulary_keep_their_rows(old: str, name: str, shape: Any, settings: Any, expected: Any) -> None:
    size, buckets, *more = settings
    info = tf.train.VocabInfo(f"{old}/new", size, buckets, f"{old}/old", *more)
    assert started(old, {name: shape}, var_name_to_vocab_info={name: info}) == [expected]


@pytest.mark.parametrize(
    ("shapes", "given", "text"),
    [
        ({"emb": [4, 2]}, {"var_name_to_prev_var_name": {"no": "w"}}, "var_name_to_prev_var_name that were not used"),
        ({"absent": [2]}, {}, "Tensor absent .* is not found in"),
        ({"emb": [3, 2]}, {}, "doesn't match with shape of tensor emb"),
        ({"emb": [4, 2]}, {"vars_to_warm_start": 3}, "`vars_to_warm_start must be a `list` or `str`"),
        ({"emb": [4, 2]}, {"vars_to_warm_start": ["emb", 3]}, "it must be all `Variable` or all `str`"),
    ],
)
def test_unknown_names_and_other_shapes_are_refused(old: str, shapes: Any, given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        started(old, shapes, **given)


def test_an_unused_vocabulary_or_one_of_another_size_is_refused(old: str) -> None:
    info = tf.train.VocabInfo(f"{old}/new", 4, 1, f"{old}/old")
    with pytest.raises(ValueError, match="var_name_to_vocab_info that were not used"):
        started(old, {"emb": [4, 2]}, var_name_to_vocab_info={"no": info})
    with pytest.raises(ValueError, match="its vocabulary 5 words and buckets along axis 0"):
        started(old, {"emb": [4, 2]}, var_name_to_vocab_info={"emb": info})
    with pytest.raises(ValueError, match="has 4 words, and 9 are to be used"):
        started(old, {"emb": [9, 2]}, var_name_to_vocab_info={"emb": info._replace(new_vocab_size=9)})
