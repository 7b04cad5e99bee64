"""Makes docs/reference/onnx.md, the list of ONNX's operators, of the table and the node tests.

    python -m tests.onnx.page        # writes the page

The page names the version of the `onnx` package whose operators and tests it counts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import onnx

from tests.onnx import cases

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "onnx.md"

#: Reasons for which operators are missing, by domain and by name.
_DOMAINS: Final = {
    "ai.onnx.ml": "classical machine learning (trees, encoders) is outside of the scope",
    "ai.onnx.preview.training": "training steps as operators; use the optimizers of `hr.train`",
}
_NAMES: Final = {
    "ImageDecoder": "decodes files; use `hr.image` before the model",
}
_OTHERWISE: Final = "not written yet"

_HEAD: Final = """# Operators of ONNX

`hr.onnx.load` ([how-to](../how-to/onnx.md)) runs these operators of onnx {version}. The page is made by
`python -m tests.onnx.page`, and the tests compare it with the table.

- **has**: headrace's table has the operator.
- **expansion**: the function runs by which the standard defines the operator. A function that depends on the types of
  the inputs is made when the model is called.
- **missing**: `hr.onnx.load` raises `UnimplementedError`, which names the operator, its version and the node.

The column "tests" counts the node tests of the `onnx` package with the operator in their main graph: passed of all.
Tests of the operator's expansion (`_expanded`) are not in it.

| kind of test | passed | all |
|---|---|---|
{kinds}

"""


def text() -> str:
    """Returns the text of the page."""
    results = cases.results()
    kinds = "\n".join(
        f"| {kind} | {sum(r.error is None for r in of_kind)} | {len(of_kind)} |"
        for kind, of_kind in ((kind, [r for r in results if r.kind == kind]) for kind in cases.KINDS)
    )
    lines = [_HEAD.format(version=onnx.__version__, kinds=kinds)]
    passed: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for r in results:
        if r.kind == "node" and not r.name.endswith("_expanded"):
            total.update(r.operators)
            passed.update(r.operators if r.error is None else ())
    schemas = [s for s in onnx.defs.get_all_schemas() if not s.deprecated]
    for domain in sorted({s.domain for s in schemas}):
        lines += [f"## {domain or 'ai.onnx'}\n", "| operator | version | state | tests |", "|---|---|---|---|"]
        for s in sorted((s for s in schemas if s.domain == domain), key=lambda s: s.name):
            key = (domain, s.name)
            count = f"{passed[key]} of {total[key]}" if total[key] else ""
            lines.append(f"| {s.name} | {s.since_version} | {_state(s)} | {count} |")
        lines.append("")
    lines += ["## Tests that fail with all operators there\n", "| test | reason |", "|---|---|"]
    lines += [
        f"| {r.name} | {cases.reason(r)} |" for r in results if r.error is not None and not cases.is_missing(r.error)
    ]
    return "\n".join(lines) + "\n"


def _state(schema: Any) -> str:
    if cases.has(schema.domain, schema.name, schema.since_version):
        return "has"
    if schema.has_function or schema.has_context_dependent_function:
        return "expansion"
    why = _DOMAINS.get(schema.domain) or _NAMES.get(schema.name) or _OTHERWISE
    return f"missing: {why}"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
