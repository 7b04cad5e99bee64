"""Random functions give equal results in all ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.autograph.suite import matrix, ways
from tests.autograph.suite.cases import Case
from tests.autograph.suite.random_functions import sources
from tests.autograph.suite.sources import written

UNHURRIED = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def check(text: str) -> None:
    ways.check(Case(text, written(text, "headrace_suite_random").f, matrix.CALLS))


def agree(number: int, examples: int, **wanted: Any) -> None:
    """Checks random functions without a reduction of those that differ, which would take minutes."""

    @seed(number)
    @settings(
        max_examples=examples,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=UNHURRIED,
        print_blob=False,
    )
    @given(sources(**wanted))
    def run(text: str) -> None:
        check(text)

    run()


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 6))])
def test_random_functions(number: int) -> None:
    agree(number, 6)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(10, 40))
def test_more_random_functions(number: int) -> None:
    agree(number, 50, depth=4)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(40, 50))
def test_wide_random_functions(number: int) -> None:
    agree(number, 50, is_wide=True)
