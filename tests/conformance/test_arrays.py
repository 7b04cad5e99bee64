"""TensorArrays whose elements are written and read once: TensorFlow's results, gradients and errors."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests import tiers

RUN = """
import json
import logging

import numpy as np
import tensorflow.compat.v1 as tf

logging.disable(logging.WARNING)
tf.disable_v2_behavior()

import headrace.v1 as hr
from tests.v1.arrays import build, plan


def outcome(tf, errors, p):
    with tf.Graph().as_default(), tf.Session() as session:
        out = build(tf, p)
        try:
            return [np.asarray(x).tolist() for x in session.run(out)]
        except errors.InvalidArgumentError:
            return None


wrong, refused = [], 0
for seed in {seeds!r}:
    p = plan(seed)
    want, got = outcome(tf, tf.errors, p), outcome(hr, hr.errors, p)
    refused += want is None
    if (want is None) != (got is None) or not all(np.allclose(a, b) for a, b in zip(want or (), got or ())):
        wrong.append(f"{{seed}}: {{p}} gives {{got}}, not {{want}}")
print(json.dumps([refused, wrong]))
"""


@pytest.mark.system
def test_arrays_follow_the_rules_of_tensorflow(run_python: Callable[[str], bytes]) -> None:
    seeds = tiers.rotated(range(150), 3)
    refused, wrong = json.loads(run_python(RUN.format(seeds=seeds)).splitlines()[-1])
    assert wrong == []
    assert 0.2 < refused / len(seeds) < 0.8
