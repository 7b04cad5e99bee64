"""Random functions give equal results in all ways."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.autograph.suite import matrix, ways
from tests.autograph.suite.cases import Case
from tests.autograph.suite.random_functions import sources
from tests.autograph.suite.sources import written

UNHURRIED = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def check(text: str) -> None:
    ways.check(Case(text, written(text, "headrace_suite_random").f, matrix.CALLS))


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(10))
def test_random_functions(number: int) -> None:
    @seed(number)
    @settings(max_examples=10, database=None, suppress_health_check=UNHURRIED, print_blob=False)
    @given(sources())
    def agree(text: str) -> None:
        check(text)

    agree()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(10, 40))
def test_more_random_functions(number: int) -> None:
    @seed(number)
    @settings(max_examples=50, database=None, suppress_health_check=UNHURRIED, print_blob=False)
    @given(sources(depth=4))
    def agree(text: str) -> None:
        check(text)

    agree()
