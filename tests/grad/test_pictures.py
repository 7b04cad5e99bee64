"""The pictures in docs/learn/gradients.md are of the graphs that the code makes."""

from __future__ import annotations

from tests.grad.pictures import PAGE, written


def test_the_pictures_are_those_of_today() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run python -m tests.grad.pictures"
    assert "TensorListPopBack" in page
