"""Prose keeps to docs/internals/style.md, except for the offences counted in prose_baseline.txt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.manners import prose

pytestmark = pytest.mark.one_engine


@pytest.mark.system
def test_prose_has_exactly_the_offences_of_the_baseline() -> None:
    found = prose.complaints(
        prose.read_baseline(prose.BASELINE.read_text(encoding="utf-8")), prose.count(prose.files())
    )
    assert not found, "\n".join(found)


def test_the_baseline_is_sorted_and_has_positive_counts() -> None:
    text = prose.BASELINE.read_text(encoding="utf-8")
    baseline = prose.read_baseline(text)
    assert all(n > 0 for n in baseline.values())
    assert prose.write_baseline(baseline) == text


WRONG = {
    "who": ("Who waits gets the error.", "The thread is given to whoever asks.", "the caller, who waits"),
    "nobody": ("A queue that nobody reads.", "Someone else closes it.", "Aborted, no one can tell."),
    "what-clause": (
        "What the step needs.",
        "x: what to run",
        "It is pruned. What is left runs.",
        "- what is fed",
        "First this\nand then;\nthe end; what `f` returns",
    ),
    "go round": ("A loop that goes round once.", "It has gone round."),
    "beside": ("The token beside the value.", "Beside that, nothing."),
    "is had": ("The shape is had at once.", "It can be had."),
    "in one another": ("Three loops in loops.", "Frames are in one another.", "lists in each other"),
    "whatever": ("The value, whatever it is.", "Wherever it runs."),
    "anew": ("The plan is made\nanew.",),
    "is told": ("The pass is told of it.", "It tells of the step."),
    "its like": ("The queue and its like.", "Switch and their kin."),
    "had better": ("A kernel had better copy.",),
    "what it was": ("The graph is what it was.",),
}


def test_every_pattern_has_examples() -> None:
    assert WRONG.keys() == prose.PATTERNS.keys()


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_wrong_text_is_an_offence(name: str, text: str) -> None:
    assert name in {o.pattern for o in prose.check_text(text)}


RIGHT = (
    "Returns the nodes whose kernels are made at each step.",
    "The pass reports what follows.",
    "In what follows, a frame is an execution context.",
    "Computes what the plan lists.",
    "The attribute `who` and the method `goes round`.",
    'Raises "who is it?" as TensorFlow does.',
    "A value in the loop's frame.",
    "The besieged renewed whose order.",
    "Told apart by their names.",
    "What? It asks.",
    ">>> x = whatever(beside)\nwho knows anew",
)


@pytest.mark.parametrize("text", RIGHT)
def test_right_text_is_no_offence(text: str) -> None:
    assert list(prose.check_text(text)) == []


@pytest.mark.parametrize(
    ("doc", "patterns"),
    [
        ("Returns the plan of the step.", set()),
        ("Whether the op is stateful.", set()),
        ("Runs one step:\n\nand more", set()),
        ("Returns the plan\nof the step.", set()),
        ("One two three `f(a, b, c, d, e)` five six seven eight nine ten eleven twelve thirteen fourteen.", set()),
        ("One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen.", set()),
        (
            "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen.",
            {prose.LONG},
        ),
        (
            "One two three four five six seven eight\nnine ten eleven twelve thirteen fourteen fifteen 16.\n\nMore.",
            {prose.LONG},
        ),
        ("What the step needs.", {prose.OPENING}),
        ("Where the op is placed.", {prose.OPENING}),
        ("How it is lowered.", {prose.OPENING}),
        ("Which device it uses.", {prose.OPENING}),
        ("Returns the plan of the step", {prose.ENDING}),
        ("Is it stateful?", {prose.ENDING}),
    ],
)
def test_first_lines(doc: str, patterns: set[str]) -> None:
    assert {o.pattern for o in prose.check_first_line(doc)} == patterns


def test_a_module_is_checked_in_docstrings_and_comments() -> None:
    source = '''"""Module.

Whoever reads it.
"""
x = "# who is no comment"  # nobody reads it
# a comment of two lines, the second of which begins with
# what the first left open
s = f"""
# who: in a string of several lines
"""


class C:
    """What it is."""

    async def f(self):
        """Runs it, beside others.

        >>> whoever()
        """
        return "whoever"  # noqa
'''
    there = Counter((o.line, o.pattern) for o in prose.check_python(source))
    assert there == {
        (3, "who"): 1,
        (5, "nobody"): 1,
        (14, "what-clause"): 1,
        (14, prose.OPENING): 1,
        (17, "beside"): 1,
    }


def test_a_page_is_checked_outside_its_code() -> None:
    page = '# Title\n\n```python\n# who is it\n```\n\n- who waits\n- `who` and "nobody"\n'
    assert [(o.line, o.pattern) for o in prose.check_page(page)] == [(7, "who")]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_text('"""Module."""\n# nobody\n\n# nobody\n')
    return path


def test_an_added_offence_fails(module: Path) -> None:
    counts = prose.count([module], module.parent)
    assert counts == {("m.py", "nobody"): 2}
    assert prose.complaints(dict(counts), counts, module.parent) == []
    with module.open("a") as file:
        file.write("\n# somebody, whoever\n")
    found = prose.complaints(dict(counts), prose.count([module], module.parent), module.parent)
    assert [c for c in found if not c.startswith("  ")] == [
        "m.py: nobody: 3, the baseline allows 2 (docs/internals/style.md):",
        "m.py: who: 1, the baseline allows 0 (docs/internals/style.md):",
    ]
    assert "  line 6: somebody, whoever" in found


def test_a_count_that_could_be_lower_fails() -> None:
    found = prose.complaints({("m.py", "who"): 2, ("gone.py", "anew"): 1}, {("m.py", "who"): 1})
    assert found == [
        "gone.py: anew: 0 of 1 left; run python -m tests.manners.prose --write",
        "m.py: who: 1 of 2 left; run python -m tests.manners.prose --write",
    ]


def test_writing_the_baseline_only_lowers_it() -> None:
    baseline = {("a.py", "who"): 2, ("a.py", "anew"): 1, ("b.py", "who"): 1}
    counts = {("a.py", "who"): 1, ("b.py", "who"): 3, ("c.py", "who"): 1}
    assert prose.lowered(baseline, counts) == {("a.py", "who"): 1, ("b.py", "who"): 1}
    text = prose.write_baseline(baseline)
    assert text == "a.py\tanew\t1\na.py\twho\t2\nb.py\twho\t1\n"
    assert prose.read_baseline(text) == baseline
