"""pyright in standard mode finds no errors in programs, and types of expressions.

The programs are the examples, those of the documentation, and the mended ones of the stories. basedpyright, which comes
with its interpreter of JavaScript, checks them by pyright's rules; it is in the extra `dev`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        importlib.util.find_spec("basedpyright") is None, reason="basedpyright is not installed (extra dev)"
    ),
]

ROOT = Path(__file__).parent.parent
# Pages that show parts of programs, or mistakes.
FRAGMENTS = {"adding_ops.md", "partition.md", "control_flow.md", "errors.md"}
PAGES = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.name not in FRAGMENTS)]
CONFIG = {
    "typeCheckingMode": "standard",
    "extraPaths": [str(ROOT), str(ROOT / "examples")],  # Python looks for modules next to a program first
    "reportPossiblyUnboundVariable": "warning",  # as in pyright's standard mode
}


def checked(folder: Path, include: list[Path]) -> list[dict[str, Any]]:
    """Returns the diagnostics of pyright on the files and folders `include`."""
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({**CONFIG, "include": [str(p) for p in include]}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(config), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] > 0, done.stdout + done.stderr
    diagnostics: list[dict[str, Any]] = said["generalDiagnostics"]
    return diagnostics


def shown(said: list[dict[str, Any]]) -> str:
    return "\n".join(f"{d['file']}:{d['range']['start']['line'] + 1}: {d['message']}" for d in said)


def program_of(page: Path) -> str:
    """The programs of a page, on the lines that they have there."""
    out, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        out.append(line if inside and line != "```" else "")
        inside = line == "```python" or (inside and line != "```")
    return "\n".join(out) + "\n"


def test_programs_have_no_errors(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    for page in PAGES:
        copy = pages / page.relative_to(ROOT).with_suffix(".py")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(program_of(page), encoding="utf-8")
    stories = sorted((ROOT / "tests" / "stories").glob("*/mended.py"))
    assert stories
    errors = [d for d in checked(tmp_path, [ROOT / "examples", pages, *stories]) if d["severity"] == "error"]
    assert not errors, shown(errors)


KNOWN = {
    "hr.constant([1.0])": "Tensor",
    "x + 1": "Tensor",
    "2 ** x": "Tensor",
    "x[0, ..., None]": "Tensor",
    "x < 3.0": "Tensor",
    "x @ x": "Tensor",
    "x << 1": "Tensor",
    "divmod(x, 2)": "tuple[Tensor, Tensor]",
    "round(x, 2)": "Tensor",
    "abs(-x)": "Tensor",
    "bool(x)": "bool",
    "x.sum(axis=0)": "Tensor",
    "x.T.reshape(2, -1)": "Tensor",
    "x.size": "int",
    "x.dtype": "DType",
    "v + 1.0": "Tensor",
    "v.value()": "Tensor",
    "v.mean()": "Tensor",
    "hr.square(x)": "Tensor",
    "hr.add(x, 1)": "Tensor",
    "hr.reduce_sum(x, axis=1)": "Tensor",
    "hr.argmax(x)": "Tensor",
    "hr.nn.relu(x)": "Tensor",
    "hr.nn.softmax(x)": "Tensor",
    "hr.matmul(x, x)": "Tensor",
    "hr.linalg.inv(x)": "Tensor",
    "hr.split(x, 2)": "list[Tensor]",
    "hr.nn.moments(x, [0])": "tuple[Tensor, Tensor]",
    "hr.top_k(x).values": "Tensor",
    "hr.random.normal((2, 3))": "Tensor",
    "hr.strings.lower('A')": "Tensor",
    "hr.image.rgb_to_hsv(x)": "Tensor",
    "hr.cast(x, hr.int32)": "Tensor",
    "hr.identity(s)": "SparseTensor",
    "hr.sqrt(s)": "SparseTensor",
    "hr.placeholder(hr.float32)": "Tensor",
    "hr.cond(x[0, 0] > 0.0, lambda: x, lambda: -x)": "Tensor",
    "hr.TensorArray(hr.float32, 3).stack()": "Tensor",
    "hr.map_fn(f, x)": "Tensor",
    "hr.vmap(f)(x)": "Tensor",
    "hr.value_and_grad(f)(x)": "tuple[Tensor, Any]",
}


def test_expressions_have_types(tmp_path: Path) -> None:
    """The type that an editor shows is that of the result, not Any."""
    program = tmp_path / "program.py"
    start = "import headrace as hr\nx = hr.ones((2, 2))\nv = hr.Variable(1.0)\ns = hr.sparse.from_dense([1.0, 0.0])\n"
    start += "def f(t: hr.Tensor) -> hr.Tensor: return t * t\n"
    program.write_text(start + "\n".join(f"reveal_type({expression})" for expression in KNOWN))
    said = checked(tmp_path, [program])
    assert not [d for d in said if d["severity"] == "error"], shown(said)
    revealed = [d["message"].rpartition(" is ")[2].strip('"') for d in said if d["severity"] == "information"]
    assert dict(zip(KNOWN, revealed, strict=True)) == KNOWN


def test_mistakes_are_found(tmp_path: Path) -> None:
    mistakes = ["hr.sum(x)", "hr.nn.sigmoidd(x)", "x.unsqueeze(0)", "hr.reduce_sum(x, axes=1)", "tf.placehoder()"]
    program = tmp_path / "program.py"
    start = "import headrace as hr\nimport headrace.v1 as tf\nx = hr.ones((2, 2))\n"
    program.write_text(start + "\n".join(mistakes))
    errors = [d for d in checked(tmp_path, [program]) if d["severity"] == "error"]
    assert sorted({d["range"]["start"]["line"] - 3 for d in errors}) == list(range(len(mistakes))), shown(errors)
