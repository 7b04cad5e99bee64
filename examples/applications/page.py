"""Makes docs/applications.md and its pictures of the recorded runs.

python -m examples.applications --page     # of the records that exist, without a run
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Final

from examples.applications import pictures
from examples.applications.records import Curve, Record, Table, read

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
RECORDS: Final = HERE / "recorded"
PAGE: Final = ROOT / "docs" / "applications.md"
PICTURES: Final = ROOT / "docs" / "images" / "applications"

#: The programs in the order of the page -> the title of their section.
PROGRAMS: Final = {
    "dqn": "Reinforcement learning inside the graph",
    "experts": "Mixture of experts",
    "translation": "Sequence to sequence with attention and beam search",
    "language_model": "Transformer language model",
    "lstm_devices": "LSTM layers on devices and workers",
    "swapping": "Sequences longer than the memory",
    "tree_lstm": "TreeLSTM by recursion",
    "neural_ode": "Neural ordinary differential equation",
    "memory": "Differentiable memory with a nested loop",
    "learned_optimizer": "Learned optimizer",
    "meta_learning": "Meta-learning",
    "hidden_markov": "Hidden Markov model",
    "autoencoder": "Variational autoencoder",
    "adversarial": "Generative adversarial network",
    "digits_cluster": "Data parallelism on a cluster and on Ray",
}

#: Name of the record of the comparison of steps a second.
SPEED: Final = "speed"

INTRODUCTION: Final = """\
# Applications

Programs that systems for dataflow with control flow are judged by, each in under 200 lines of `examples/applications/`.
`make applications` runs all of them, each in a process of its own, and writes this page from what they record.
`python -m examples.applications dqn` runs one. A program with the same seed computes the same numbers, bit for bit.
Figures of time and speed are of two cores of a shared machine. The data are part of Python packages or made by the
programs; no download is needed.
"""


def text() -> str:
    """The page."""
    parts = [INTRODUCTION]
    speed = RECORDS / f"{SPEED}.json"
    if speed.exists():
        parts.append("## Steps a second\n")
        parts.append(_paragraphs(ROOT / "benchmarks" / "applications" / "__main__.py"))
        parts += [_table(t) for t in read(speed).tables]
    for name, title in PROGRAMS.items():
        path = RECORDS / f"{name}.json"
        if path.exists():
            parts += _section(name, title, read(path))
    return "\n".join(parts)


def write() -> None:
    """Writes the page and the pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        path = RECORDS / f"{name}.json"
        if path.exists() and (record := read(path)).curves:
            _draw(record.curves, PICTURES / f"{name}.svg")
    PAGE.write_text(text(), encoding="utf-8")


def _section(name: str, title: str, record: Record) -> list[str]:
    parts = [f"## {title}\n", _paragraphs(HERE / f"{name}.py")]
    if record.figures:
        met = {True: "yes", False: "no"}
        rows = [
            [f.name, f"{f.value:.5g} {f.unit}".strip(), f.aim, met[f.is_met] if f.aim else ""] for f in record.figures
        ]
        parts.append(_table(Table("", ["figure", "value", "aim", "met"], rows)))
    parts += [_table(t) for t in record.tables]
    parts += [f"```\n{s.rstrip()}\n```\n" for s in record.samples]
    if record.curves:
        parts.append(f"![{title}: curves](images/applications/{name}.svg)\n")
    parts.append(f"The run took {record.seconds:.0f} s.\n")
    return parts


def _paragraphs(program: Path) -> str:
    """The docstring of a module: its first line and its text, as paragraphs."""
    first, _, rest = str(ast.get_docstring(ast.parse(program.read_text(encoding="utf-8")))).partition("\n")
    return f"{first}\n\n{rest.strip()}\n"


def _table(table: Table) -> str:
    lines = [f"{table.title}\n"] if table.title else []
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|" + "---|" * len(table.columns))
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _draw(curves: list[Curve], path: Path) -> None:
    from matplotlib.figure import Figure

    plots: dict[str, list[Curve]] = {}
    for curve in curves:
        plots.setdefault(curve.axis, []).append(curve)
    figure = Figure(figsize=(4.2 * len(plots), 3), layout="constrained")
    axes = figure.subplots(1, len(plots), squeeze=False)
    for place, (label, lines) in zip(axes[0], plots.items()):
        for line in lines:
            place.plot(line.steps, line.values, label=line.name, linewidth=1.2)
        place.set_xlabel(lines[0].across, fontsize=8)
        place.set_ylabel(label, fontsize=8)
        place.tick_params(labelsize=8)
        place.grid(alpha=0.3)
        if len(lines) > 1:
            place.legend(fontsize=8)
    pictures.save(figure, path)
