"""`help()` of public functions and classes: they have an example (`tests.manners.examples`)."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.api.table_examples import EXAMPLES
from tests.manners import examples

pytestmark = pytest.mark.one_engine


def test_public_functions_and_classes_have_examples_or_are_in_the_baseline() -> None:
    found = examples.complaints(examples.without_example(), examples.read_baseline())
    assert not found, "\n".join(found)


def test_a_name_without_example_and_a_name_with_one_in_the_baseline_are_reported() -> None:
    assert examples.complaints(["hr.a", "hr.b"], ["hr.b", "hr.c"]) == [
        "hr.a: the docstring has no example",
        "hr.c: it has an example, or is gone; remove it from examples_baseline.txt",
    ]


def test_examples_of_functions_from_a_table_have_the_values_that_they_show() -> None:
    shown = {call: value for call, value in EXAMPLES.values() if not value.startswith("Traceback")}
    assert {call: repr(eval(call, {"hr": hr, "np": np})) for call in shown} == shown
