"""Builds the same expressions with TensorFlow and with headrace, in one process.

The graphs, the names and the values are compared.

`python -m tests.conformance.building` prints what differs, as JSON; `test_building.py` runs it. An expression is
written for a module `m` and the placeholders of `PLACEHOLDERS`. In `building.txt` a mark before it says what has to
agree:

    =  everything: each operation's name, type, inputs and attributes
    ~  the results: names, dtypes and values (the way to them is another)
    ?  the values
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import headrace as hr
from headrace import shapes
from headrace.api import (
    arrays,
    counting,
    debugging,
    gathering,
    image,
    indexing,
    io,
    linalg,
    math,
    nn,
    operators,  # noqa: F401 - gives tensors theirs
    quantization,
    random,
    reductions,
    signal,
    sorting,
    sparse,
    sparse_tensor,
    special,
    strings,
    tensors,
)
from headrace.api.sparse import sets

EXPRESSIONS = Path(__file__).with_name("building.txt")

PLACEHOLDERS: dict[str, tuple[str, Any]] = {
    "x": ("float32", (2, 3)), "y": ("float32", (2, 3)), "w": ("float32", (3, 3)), "v": ("float32", (3,)),
    "s": ("float32", ()), "b3": ("float32", (4, 2, 3)), "o": ("float32", (1, 2, 1)), "u": ("float32", None),
    "u4": ("float32", (None, 3, 4, 4)), "i": ("int32", (2, 3)), "j": ("int32", ()), "k": ("int32", (4, 2)),
    "p": ("bool", (2, 3)), "q": ("bool", (2, 3)), "c": ("complex64", (2, 3)), "t": ("string", (2,)),
    "im": ("float32", (2, 4, 6, 3)), "i8": ("uint8", (2, 4, 6, 3)), "ud": ("float32", (None, None, None, 3)),
    "f4": ("float32", (3, 2, 3, 2)), "x5": ("float32", (1, 3, 3, 3, 2)),
}  # fmt: skip

_rng = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return _rng.uniform(0.1, 0.9, shape).astype(np.float32)


FEEDS: dict[str, Any] = {
    "x": _floats(2, 3), "y": _floats(2, 3), "w": _floats(3, 3), "v": np.sort(_floats(3)), "s": np.float32(0.5),
    "b3": _floats(4, 2, 3), "o": _floats(1, 2, 1), "u": _floats(2, 3, 3), "u4": _floats(2, 3, 4, 4),
    "i": np.array([[1, 0, 1], [0, 1, 1]], np.int32), "j": np.int32(1), "k": np.array([[0, 1]] * 4, np.int32),
    "p": np.array([[True, False, True], [False, True, True]]),
    "q": np.array([[True, True, False], [False, False, True]]),
    "c": (_floats(2, 3) + 1j * _floats(2, 3)).astype(np.complex64), "t": np.array([b"12", b" 7 "], object),
    "im": _floats(2, 4, 6, 3), "i8": _rng.integers(0, 256, (2, 4, 6, 3), np.uint8), "ud": _floats(2, 5, 4, 3),
    "f4": _floats(3, 2, 3, 2), "x5": _floats(1, 3, 3, 3, 2),
}  # fmt: skip


@functools.cache
def ours() -> SimpleNamespace:
    """headrace's functions, in the places where TensorFlow has them."""
    named: dict[str, Any] = {}
    for module in (
        counting,
        sparse_tensor,
        special,
        sorting,
        nn,
        debugging,
        linalg,
        reductions,
        gathering,
        indexing,
        arrays,
        math,
        tensors,
    ):
        named.update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    inner = SimpleNamespace(**named, special=special)
    known = (
        "float32",
        "float64",
        "int32",
        "int64",
        "uint8",
        "uint32",
        "string",
        "bool",
        "complex64",
        "qint8",
        "quint8",
    )
    dtypes = {d: getattr(hr, d) for d in known}
    spaces = {"nn": nn, "random": random, "strings": strings, "linalg": linalg, "debugging": debugging}
    spaces |= {"sparse": sparse, "sets": sets}
    spaces |= {"signal": signal, "image": image, "io": io, "quantization": quantization}
    return SimpleNamespace(**(named | dtypes | spaces | {"math": inner, "bitwise": inner, "newaxis": None}))


def flat(result: Any) -> list[Any]:
    """The tensors and operations in what an expression gave."""
    if isinstance(result, dict):
        return [x for key in sorted(result) for x in flat(result[key])]
    if isinstance(result, (list, tuple)):
        return [x for r in result for x in flat(r)]
    if hasattr(result, "dense_shape"):
        return [result.indices, result.values, result.dense_shape]
    return [result]


def nodes(graph_def: Any, first: int) -> list[Any]:
    """The compared properties of the nodes from the one of number `first` on."""
    out = []
    for node in list(graph_def.node)[first:]:
        attrs = {
            k: a.SerializeToString(deterministic=True) if k != "value" else b""
            for k, a in sorted(node.attr.items())
            if not k.startswith("_")
        }
        out.append([node.name, node.op, list(node.input), {k: v.hex() for k, v in attrs.items()}])
    return out


def compare(mark: str, expression: str, tf: Any) -> list[str]:
    """The differences."""
    v1 = tf.compat.v1
    used = {n: p for n, p in PLACEHOLDERS.items() if re.search(rf"\b{n}\b", expression)}
    with tf.Graph().as_default() as theirs:
        env: dict[str, Any] = {n: v1.placeholder(d, s, n) for n, (d, s) in used.items()}
        want = flat(eval(expression, {"m": tf, "np": np, **env}))
        feed = {env[n]: FEEDS[n] for n in used}
    with hr.Graph() as mine:
        names = {n: tensors.placeholder(d, s, n) for n, (d, s) in used.items()}
        got = flat(eval(expression, {"m": ours(), "np": np, **names}))
    wrong = []
    if mark == "=":
        a, b = nodes(theirs.as_graph_def(), len(used)), nodes(mine.as_graph_def(), len(used))
        wrong += [f"node {x} != {y}" for x, y in zip(a, b) if x != y]
        wrong += [f"{len(a)} nodes != {len(b)}"] * (len(a) != len(b))
    if len(want) != len(got):
        return [*wrong, f"{len(want)} results != {len(got)}"]
    pairs = [(x, y) for x, y in zip(want, got) if isinstance(y, hr.SymbolicTensor)]
    for x, y in pairs:
        known = None if x.shape.rank is None else tuple(x.shape.as_list())
        if mark != "?" and x.name != y.name:
            wrong.append(f"name {x.name} != {y.name}")
        if x.dtype.name != y.dtype.name:
            wrong.append(f"dtype {x.dtype.name} != {y.dtype.name}")
        if not shapes.covers(known, y.shape):  # headrace may know more of the shape
            wrong.append(f"shape {known} != {y.shape}")
    if not pairs or ("random" in expression and "stateless" not in expression) or "dropout" in expression:
        return wrong
    with v1.Session(graph=theirs) as session:
        a = session.run([x for x, _ in pairs], feed)
    with hr.Session(graph=mine) as session:
        b = session.run([y for _, y in pairs], {names[n]: FEEDS[n] for n in used})
    for x, y in zip(a, b, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        same = np.array_equal(x, y) if x.dtype.kind in "OS" else np.allclose(x, y, 1e-4, 1e-5, equal_nan=True)
        if not same or x.shape != y.shape:
            wrong.append(f"value {x!r} != {y!r}")
    return wrong


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    tf.get_logger().setLevel("ERROR")
    differ = {}
    lines = EXPRESSIONS.read_text(encoding="utf-8").splitlines()
    for line in lines:
        mark, _, expression = line.partition(" ")
        try:
            wrong = compare(mark, expression, tf)
        except Exception as e:
            wrong = [f"{type(e).__name__}: {e}"]
        if wrong:
            differ[expression] = wrong
    json.dump({"compared": len(lines), "differ": differ}, sys.stdout)


if __name__ == "__main__":
    main()
