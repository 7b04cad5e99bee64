"""The site of the documentation (`site/`): its navigation, and the stubs of the public interface."""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_LIKE = object()


@pytest.fixture(scope="module")
def hooks() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "site" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def _paths(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [path for x in (nav if isinstance(nav, list) else nav.values()) for path in _paths(x)]


def test_the_navigation_has_each_page_once(hooks: types.ModuleType) -> None:
    found = _paths(hooks.navigation((DOCS / "index.md").read_text(encoding="utf-8")))
    pages = [p for p in found if not p.startswith("api/")]
    assert sorted(pages) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    assert len(found) == len(set(found)) > len(pages)


def test_an_index_with_other_sections_is_refused(hooks: types.ModuleType) -> None:
    with pytest.raises(ValueError, match=r"has the sections \['learn'\]"):
        hooks.navigation("# Documentation\n\n## learn\n\n| [A](a.md) | task |\n")


def test_links_to_source_files_leave_their_text(hooks: types.ModuleType) -> None:
    text = "[`ir/graph.py`](../../headrace/ir/graph.py), [x](../how-to/rnn.md), [log](../CHANGELOG.md#a)"
    assert hooks.on_page_markdown(text, None, None, None) == "`ir/graph.py`, [x](../how-to/rnn.md), log"


@pytest.mark.system
def test_stubs_have_the_whole_interface_with_its_docstrings(hooks: types.ModuleType) -> None:
    import headrace as hr

    stubs = hooks.stubs
    entries = stubs.entries()
    assert {e.value for e in entries} >= {hr.while_loop, hr.Session, hr.train.Adam, hr.nn.relu, hr.errors.OpError}
    assert len({id(e.value) for e in entries}) == len(entries)
    names = {e.name for e in entries if not e.module}
    # every callable of hr, except for second names of the same object
    assert {id(getattr(hr, n)) for n in hr.__all__ if callable(getattr(hr, n))} == {id(getattr(hr, n)) for n in names}
    for e in entries:
        (node,) = ast.parse(stubs.source(e)).body
        assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
        assert node.name == e.name
        first = (e.value.__doc__ or "").strip().split("\n")[0]
        assert (ast.get_docstring(node) or "").startswith(first), e
        assert e.module or stubs.group(e) in stubs.GROUPS


@pytest.mark.system
def test_a_signature_keeps_names_defaults_and_types(hooks: types.ModuleType) -> None:
    def f(x, axis: int | None = None, *, like=_LIKE, name: str = "f") -> bool: ...  # type: ignore[no-untyped-def]

    assert (
        hooks.stubs.source(hooks.stubs.Entry("", "f", f)).splitlines()[0]
        == "def f(x, axis: int | None = None, *, like=..., name: str = 'f') -> bool:"
    )
