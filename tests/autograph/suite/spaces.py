"""Array functions under the same names for numpy and for headrace.

A program of the suite receives one of the two spaces as its first argument, `xp`. Its result with the space of numpy
contains nothing of headrace.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import headrace as hr


def _numpy_where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


NUMPY = SimpleNamespace(
    zeros=lambda *shape: np.zeros(shape),
    ones=lambda *shape: np.ones(shape),
    izeros=lambda *shape: np.zeros(shape, np.int32),
    eye=lambda n: np.eye(n),
    arange=lambda n: np.arange(n, dtype=np.int32),
    sum=lambda x, axis=None: np.sum(x, axis),
    mean=lambda x, axis=None: np.mean(x, axis),
    max=lambda x, axis=None: np.max(x, axis),
    min=lambda x, axis=None: np.min(x, axis),
    any=lambda x: np.any(x),
    all=lambda x: np.all(x),
    argmax=lambda x: np.argmax(x),
    argmin=lambda x: np.argmin(x),
    maximum=np.maximum,
    minimum=np.minimum,
    abs=np.abs,
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    sin=np.sin,
    cos=np.cos,
    tanh=np.tanh,
    sigmoid=lambda x: 1.0 / (1.0 + np.exp(-x)),
    floor=np.floor,
    where=_numpy_where,
    dot=lambda x, m: x @ m,
    stack=lambda xs: np.stack(xs),
    concat=lambda xs: np.concatenate(xs),
    transpose=lambda x: np.transpose(x),
    reshape=lambda x, shape: np.reshape(x, shape),
    size=lambda x: x.shape[0],
    real=lambda n: np.float64(n),
    integer=lambda x: np.asarray(x).astype(np.int32),
)


def _of_numbers(f: Any) -> Any:
    """The function with Python floats as float64, like those of numpy."""
    return lambda *xs: f(*(hr.constant(x, hr.float64) if type(x) is float else x for x in xs))


TENSORS = SimpleNamespace(
    zeros=lambda *shape: hr.zeros(shape, hr.float64),
    ones=lambda *shape: hr.ones(shape, hr.float64),
    izeros=lambda *shape: hr.zeros(shape, hr.int32),
    eye=lambda n: hr.eye(n, dtype=hr.float64),
    arange=lambda n: hr.range(n),
    sum=lambda x, axis=None: hr.reduce_sum(x, axis),
    mean=lambda x, axis=None: hr.reduce_mean(x, axis),
    max=lambda x, axis=None: hr.reduce_max(x, axis),
    min=lambda x, axis=None: hr.reduce_min(x, axis),
    any=lambda x: hr.reduce_any(x),
    all=lambda x: hr.reduce_all(x),
    argmax=lambda x: hr.argmax(x, 0, output_type=hr.int32),
    argmin=lambda x: hr.argmin(x, 0, output_type=hr.int32),
    maximum=_of_numbers(hr.maximum),
    minimum=_of_numbers(hr.minimum),
    abs=_of_numbers(hr.abs),
    exp=_of_numbers(hr.exp),
    log=_of_numbers(hr.log),
    sqrt=_of_numbers(hr.sqrt),
    sin=_of_numbers(hr.sin),
    cos=_of_numbers(hr.cos),
    tanh=_of_numbers(hr.tanh),
    sigmoid=_of_numbers(hr.sigmoid),
    floor=_of_numbers(hr.floor),
    where=hr.where,
    dot=lambda x, m: hr.linalg.matvec(m, x, transpose_a=True),
    stack=lambda xs: hr.stack(xs),
    concat=lambda xs: hr.concat(xs, 0),
    transpose=lambda x: hr.transpose(x),
    reshape=hr.reshape,
    size=lambda x: hr.shape(x)[0],
    real=lambda n: hr.cast(n, hr.float64),
    integer=lambda x: hr.cast(x, hr.int32),
)
