"""Offences against the rule for prose (docs/internals/style.md), counted by file and pattern.

    python -m tests.manners.prose            # counts by package
    python -m tests.manners.prose FILE ...   # offences of these files, with line and text
    python -m tests.manners.prose --write    # lowers the counts of prose_baseline.txt

Texts are docstrings, comments, and the pages of docs/ and README.md without their code. Names in backticks, text in
double quotes, examples (`>>>`) and fenced code are not prose. `--write` never raises a count and adds none; without a
baseline it writes all counts, as after files have moved.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.manners import docstrings

ROOT: Final = Path(__file__).parent.parent.parent
BASELINE: Final = Path(__file__).parent / "prose_baseline.txt"
FOLDERS: Final = ("headrace", "tests", "benchmarks", "examples", "docs")

#: Words that the first line of a docstring may have; a name in backticks is one word.
WORDS: Final = 15

#: Names of the patterns that only first lines of docstrings are checked for.
LONG, OPENING, ENDING = "first line: length", "first line: opening", "first line: ending"

#: Patterns that no prose contains, by name.
PATTERNS: Final = {
    name: re.compile(pattern)
    for name, pattern in {
        "who": r"\b(?i:who|whoever|whom)\b",
        "nobody": r"\b(?i:nobody|somebody|someone|anybody|everybody|everyone|no one)\b",
        "what-clause": r"(?:^|[.;:] )[Ww]hat (?!follows\b)[a-z`]",
        "go round": r"\b(?:go|goes|going|went|gone) round\b",
        "beside": r"\b[Bb]eside\b",
        "is had": r"\b(?:is|are|was|were|be|been) had\b",
        "in one another": r"\bin (?:one another|each other)\b|\b(\w+s) in \1\b",
        "whatever": r"\b(?i:whatever|wherever)\b",
        "anew": r"\banew\b",
        "is told": r"\b(?:is|are|was|were|be) told\b|\btells? of\b",
        "its like": r"\bits like\b|\b(?:their|its) kin\b",
        "had better": r"\bhad better\b",
        "what it was": r"\bwhat it was\b",
    }.items()
}

_OPENINGS = re.compile(r"(?:What|Who|Whose|Where|When|That|If|Which|How)\b")

_TOKEN = re.compile(
    r"""[rRbBfFuU]{0,2}(?:'{3}(?:[^\\]|\\.)*?'{3}|"{3}(?:[^\\]|\\.)*?"{3}"""
    r"""|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<comment>\#[^\n]*)""",
    re.S,
)
_CODE = re.compile(r"(`+).*?\1", re.S)
_QUOTED = re.compile(r'"[^"\n]{1,200}"|“[^”\n]{1,200}”')
_FENCED = re.compile(r"^( *)```.*?^\1```", re.S | re.M)
_BULLET = re.compile(r" *(?:[-*>#]+|\d+\.) +")
_ITEM = re.compile(rf"{_BULLET.pattern}| *\||[ \w`*.,]{{1,40}}: ")


class Offence(NamedTuple):
    line: int
    pattern: str
    text: str


def check_text(text: str, line: int = 1) -> Iterator[Offence]:
    """Offences in a text of several paragraphs that begins at `line`."""
    for start, paragraph in _paragraphs(text):
        prose = _plain(paragraph)
        for name, pattern in PATTERNS.items():
            for _ in pattern.finditer(prose):
                yield Offence(line + start, name, paragraph)


def check_first_line(doc: str, line: int = 1) -> Iterator[Offence]:
    """Offences that only the first line of a docstring can have.

    A first line that does not end a sentence stands for its paragraph.
    """
    first = doc.strip().split("\n", 1)[0].rstrip()
    if not first.endswith((".", ":", "?", "!")):
        first = " ".join(re.split(r"\n\s*\n", doc.strip(), maxsplit=1)[0].split())
    prose = _plain(first)
    if len(prose.split()) > WORDS:
        yield Offence(line, LONG, first)
    if _OPENINGS.match(prose):
        yield Offence(line, OPENING, first)
    if not first.endswith((".", ":")):
        yield Offence(line, ENDING, first)


def check_python(source: str) -> Iterator[Offence]:
    """Offences in the docstrings and comments of a module, faults of its docstrings among them."""
    tree = ast.parse(source)
    yield from (Offence(*fault) for fault in docstrings.faults(tree))
    for statement, doc in docstrings.texts(tree):
        if doc:
            yield from check_first_line(doc, statement.lineno)
            yield from check_text(doc, statement.lineno)
    for line, comment in _comments(source):
        yield from check_text(comment, line)


def check_page(text: str) -> Iterator[Offence]:
    """Offences in a page of the documentation."""
    return check_text(_FENCED.sub(lambda m: "\n" * m[0].count("\n"), text))


def check_file(path: Path) -> list[Offence]:
    text = path.read_text(encoding="utf-8")
    return list(check_page(text) if path.suffix == ".md" else check_python(text))


def files(root: Path = ROOT) -> list[Path]:
    """Files whose prose is checked."""
    found = (p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in (".py", ".md"))
    checked = (p for p in found if "_pb2" not in p.name and "tests/data/" not in p.as_posix())
    return sorted([*checked, root / "README.md"])


def count(paths: Iterable[Path], root: Path = ROOT) -> dict[tuple[str, str], int]:
    """Number of offences by (path, pattern)."""
    return Counter((p.relative_to(root).as_posix(), o.pattern) for p in paths for o in check_file(p))


def read_baseline(text: str) -> dict[tuple[str, str], int]:
    """Allowed offences by (path, pattern)."""
    rows = (line.split("\t") for line in text.splitlines())
    return {(path, pattern): int(n) for path, pattern, n in rows}


def write_baseline(counts: dict[tuple[str, str], int]) -> str:
    """Text of a baseline file."""
    return "".join(f"{path}\t{pattern}\t{n}\n" for (path, pattern), n in sorted(counts.items()) if n)


def lowered(baseline: dict[tuple[str, str], int], counts: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Returns the baseline with each count lowered to the offences that are left, none raised."""
    return {key: n for key, old in baseline.items() if (n := min(old, counts.get(key, 0)))}


def complaints(
    baseline: dict[tuple[str, str], int], counts: dict[tuple[str, str], int], root: Path = ROOT
) -> list[str]:
    """Differences between the baseline and the files, each with its remedy."""
    out = []
    for path, pattern in sorted({*baseline, *counts}):
        allowed, there = baseline.get((path, pattern), 0), counts.get((path, pattern), 0)
        if there > allowed:
            out.append(f"{path}: {pattern}: {there}, the baseline allows {allowed} (docs/internals/style.md):")
            shown = (o for o in check_file(root / path) if o.pattern == pattern)
            out += [f"  line {o.line}: {' '.join(o.text.split())[:160]}" for o in shown]
        elif there < allowed:
            out.append(f"{path}: {pattern}: {there} of {allowed} left; run python -m tests.manners.prose --write")
    return out


def _plain(text: str) -> str:
    """The text without names in backticks and quoted text."""
    return _QUOTED.sub('"', _CODE.sub("`", text))


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each paragraph and item of a list that is prose."""
    lines: list[str] = []
    start, in_example = 0, False
    for i, line in enumerate([*text.split("\n"), ""]):
        if not line.strip() or _ITEM.match(line):
            if lines:
                yield start, " ".join(lines)
            lines = []
        if not line.strip():
            in_example = False
        elif in_example or line.lstrip().startswith(">>>"):
            in_example = True
        else:
            if not lines:
                start = i
            lines.append(_BULLET.sub("", line, count=1).strip() if not lines else line.strip())


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the comments of a module; full-line comments on consecutive lines are one."""
    line = position = 0
    block: list[str] = []
    start = -1
    for m in _TOKEN.finditer(source):
        if m["comment"] is None:
            continue
        line += source.count("\n", position, m.start())
        position = m.start()
        text = m["comment"].lstrip("#:!").strip()
        is_alone = not source[source.rfind("\n", 0, m.start()) + 1 : m.start()].strip()
        if block and is_alone and line == start + len(block):
            block.append(text)
            continue
        if block:
            yield start + 1, "\n".join(block)
        block, start = [text], line
        if not is_alone:
            yield line + 1, text
            block = []
    if block:
        yield start + 1, "\n".join(block)


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        counts = count(files())
        baseline = read_baseline(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else counts
        BASELINE.write_text(write_baseline(lowered(baseline, counts)), encoding="utf-8")
        more = complaints(lowered(baseline, counts), counts)
        print("\n".join(more) or f"{sum(lowered(baseline, counts).values())} offences left")
        return bool(more)
    if arguments:
        for name in arguments:
            for o in sorted(check_file(Path(name))):
                print(f"{name}:{o.line}: {o.pattern}: {' '.join(o.text.split())[:200]}")
        return 0
    parts: Counter[str] = Counter()
    for (path, _), n in count(files()).items():
        parts["/".join(Path(path).parts[:2]) if path.startswith("headrace/") else Path(path).parts[0]] += n
    for part, n in parts.most_common():
        print(f"{n:6} {part}")
    print(f"{parts.total():6} all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
