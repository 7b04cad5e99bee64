"""The text of the page is self-contained, and no document ends its element."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from headrace.view import page
from headrace.view.page import ASSETS, SCRIPTS, assemble

ROOT = Path(__file__).parent.parent.parent


def element(text: str, pattern: str) -> str:
    found = re.search(rf"<{pattern}>(.*?)</", text, flags=re.S)
    assert found, pattern
    return found[1]


def test_the_document_is_data_in_the_page() -> None:
    document = {"text": "</script><!-- <b>", "n": [1, 2.5, None]}
    text = element(assemble(json.dumps(document)), 'script type="application/json" id="recording"')
    assert "<" not in text
    assert json.loads(text) == document


def test_the_page_of_a_server_has_no_document() -> None:
    assert element(assemble(None), 'script type="application/json" id="recording"') == ""


def test_no_placeholder_is_left() -> None:
    assert not re.search(r"/\*[\w.]+\*/", assemble(None))


def test_the_policy_allows_exactly_the_script_and_the_style_of_the_page() -> None:
    text = assemble("{}")
    policy = re.search(r'Security-Policy" content="([^"]*)"', text)
    assert policy
    for name, pattern in (("script-src", "script"), ("style-src", "style")):
        digest = hashlib.sha256(element(text, pattern).encode()).digest()
        assert f"{name} 'sha256-{base64.b64encode(digest).decode()}'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_page_refers_to_no_other_host() -> None:
    text = assemble(None)
    assert not re.findall(r"""(?:src|href)\s*=\s*["']""", text)
    assert not re.findall(r"(?:https?|wss?)://(?!www\.w3\.org)", text)
    assert "sourceMappingURL" not in text


def test_every_script_of_the_assets_is_in_the_page() -> None:
    assert sorted(SCRIPTS) == sorted(path.name for path in (ASSETS / "js").iterdir())


def test_a_script_that_would_end_its_element_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_asset", lambda name: "</script>" if name == "worker.js" else "")
    page._frame.cache_clear()
    with pytest.raises(AssertionError, match="end its own element"):
        assemble(None)
    page._frame.cache_clear()


def test_the_layout_library_is_the_one_that_its_hash_names() -> None:
    vendor = ASSETS / "vendor"
    digest, name = (vendor / "SHA256").read_text().split()
    assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest
    assert "Permission is hereby granted" in (vendor / "dagre.LICENSE.txt").read_text()
    assert "@dagrejs/dagre" in (ROOT / "NOTICE").read_text()
