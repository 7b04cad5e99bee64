"""`make check` finds the tests that a change affects."""

from __future__ import annotations

import pytest

from tests import affected
from tests.test_layers import MAY_IMPORT

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("path", "are", "are_not"),
    [
        ("headrace/cli.py", {"test_cli.py", "test_layers.py"}, {"session", "corpus", "v1"}),
        ("headrace/session.py", {"session", "corpus", "train", "v1"}, {"grad", "ir", "files"}),
        ("headrace/grad/loops.py", {"grad", "train", "v1"}, {"files", "resources"}),
        ("headrace/ir/graph.py", {"ir", "ops", "api", "grad", "corpus"}, {"files"}),
        ("headrace/prune.py", {"optimize", "session", "corpus"}, {"files"}),
        ("docs/reference/errors.md", {"stories/test_errors_page.py", "test_pages.py"}, {"session"}),
        ("examples/demo.py", {"test_examples.py"}, {"train"}),
        ("tests/ops/cases.py", {"ops", "eager/test_builder.py"}, {"train"}),
        ("tests/grad/test_loops.py", {"grad/test_loops.py"}, {"grad"}),
        ("pyproject.toml", {""}, set()),
    ],
)
def test_affected_folders(path: str, are: set[str], are_not: set[str]) -> None:
    found = {p.removeprefix("tests").removeprefix("/") for p in affected.affected([path])}
    assert found >= are
    assert not found & are_not


def test_every_test_folder_is_reached() -> None:
    """A folder of tests/ is named like a part, or is in `EXERCISED`."""
    there = {p.name for p in affected.TESTS.glob("*/") if any(p.glob("test_*.py"))}
    there |= {p.name for p in affected.TESTS.glob("test_*.py")} - {"test_affected.py", "test_tiers.py"}
    assert not there - affected.entries(set(MAY_IMPORT))
