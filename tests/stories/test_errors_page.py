"""The programs of docs/reference/errors.md raise what the page says: class, text and notes."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

from headrace import errors
from tests.stories.test_stories import with_numbers_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "errors.md"
PROGRAM = "program.py"  # the page's name of the file


def programs() -> list[tuple[str, str, str]]:
    """Heading, program and text of each example."""
    out, heading = [], ""
    for part in re.split(r"^(?=##)", PAGE.read_text(encoding="utf-8"), flags=re.M):
        heading = part.partition("\n")[0].lstrip("# ")
        pairs = re.findall(r"^```python\n(.*?)^```\n\n^```text\n(.*?)^```", part, flags=re.M | re.S)
        out += [(heading, *pair) for pair in pairs]
    return out


def raised(program: str) -> Exception:
    with pytest.raises(Exception) as caught:
        exec(compile(program, PROGRAM, "exec"), {"__name__": "__main__"})
    return caught.value


@pytest.mark.parametrize(("heading", "program", "text"), programs(), ids=[h for h, _, _ in programs()])
def test_a_program_of_the_page(
    heading: str, program: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(PROGRAM).write_text(program, encoding="utf-8")  # the conversion reads the source
    error = raised(program)
    got = "".join(traceback.format_exception_only(error))
    assert with_numbers_of(got, text) == got
    if heading in vars(errors):
        assert type(error) is getattr(errors, heading)


def test_every_class_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    public = [n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, (Exception, Warning))]
    assert not [n for n in public if f"`{n}`" not in text and not re.search(rf"^### .*\b{n}\b", text, flags=re.M)]
    with_examples = {h for h, _, _ in programs()}
    rare = {"CompileWarning", "DataLossError", "HeadraceInternalError", "PermissionDeniedError", "UnauthenticatedError"}
    bases = {"HeadraceError", "OpError", "HeadraceWarning"}
    assert set(public) - with_examples <= rare | bases | {"UnavailableError"}
