"""Updates that control edges alone reach, against TensorFlow.

The expected values of the cases, and the reference, are TensorFlow's.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

RUN = """
import json
from tests.order import with_tensorflow
from tests.order.cases import CASES
print(json.dumps({}))
"""


@pytest.mark.system
def test_the_cases_expect_what_tensorflow_does(run_python: Callable[[str], bytes]) -> None:
    out = run_python(RUN.format("[w for name in CASES for w in with_tensorflow.check_case(name)]"))
    assert json.loads(out.splitlines()[-1]) == []


def compare(run_python: Callable[[str], bytes], first: int, last: int) -> None:
    out = run_python(RUN.format(f"with_tensorflow.check_all({first}, {last})"))
    compared, wrong = json.loads(out.splitlines()[-1])
    assert wrong == []
    assert compared > (last - first) * 0.9


@pytest.mark.matrix
@pytest.mark.rotated(2)
@pytest.mark.parametrize("first", [0, 25])
def test_the_reference_does_what_tensorflow_does(first: int, run_python: Callable[[str], bytes]) -> None:
    compare(run_python, first, first + 25)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(10))
def test_the_reference_does_what_tensorflow_does_in_many_programs(
    block: int, run_python: Callable[[str], bytes]
) -> None:
    compare(run_python, 1000 + 200 * block, 1000 + 200 * (block + 1))
