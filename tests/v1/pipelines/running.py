"""Runs of pipelines, in TensorFlow or headrace, to elements as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.v1.pipelines.pipelines import MOST, PIPELINES


def plain(x: Any) -> Any:
    """Returns a fetched value as lists, numbers and texts, with its dtype."""
    if hasattr(x, "to_list"):  # a ragged tensor's value
        return ["ragged", np.asarray(x.flat_values).dtype.name, x.to_list()]
    if isinstance(x, dict):
        return {"dict": {k: plain(v) for k, v in sorted(x.items())}}
    if isinstance(x, (tuple, list)):
        return {"tuple": [plain(v) for v in x]}
    if isinstance(x, (bytes, str)):
        return ["string", x.decode("latin-1") if isinstance(x, bytes) else x]
    array = np.asarray(x)
    if array.dtype == object:
        texts = [v.decode("latin-1") if isinstance(v, bytes) else v for v in array.ravel().tolist()]
        return ["string", list(array.shape), texts]
    return [array.dtype.name, list(array.shape), array.ravel().tolist()]


def named(types: Any) -> Any:
    """Returns a structure of dtypes with their names."""
    if isinstance(types, dict):
        return {k: named(v) for k, v in sorted(types.items())}
    return [named(t) for t in types] if isinstance(types, (tuple, list)) else types.name


def sized(shapes: Any) -> Any:
    """Returns a structure of static shapes as lists."""
    if isinstance(shapes, dict):
        return {k: sized(v) for k, v in sorted(shapes.items())}
    if isinstance(shapes, (tuple, list)):
        return {"tuple": [sized(s) for s in shapes]}
    return None if shapes.ndims is None else shapes.as_list()


def elements(tf: Any, name: str, folder: str) -> dict[str, Any]:
    """Returns the static description, the elements and the end of a pipeline."""
    with tf.Graph().as_default():
        dataset = PIPELINES[name](tf, folder)
        iterator = tf.data.make_initializable_iterator(dataset)
        following = iterator.get_next()
        types, shapes = named(tf.data.get_output_types(dataset)), sized(tf.data.get_output_shapes(dataset))
        out: list[Any] = []
        end = "more"
        with tf.Session() as sess:
            sess.run(iterator.initializer)
            while len(out) < MOST:
                try:
                    out.append(plain(sess.run(following)))
                except tf.errors.OutOfRangeError as e:
                    end = "End of sequence" if "End of sequence" in str(e) else str(e)
                    break
    return {"types": types, "shapes": shapes, "elements": out, "end": end}
