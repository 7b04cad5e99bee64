"""Draws the chart of the README from the table of native code in docs/reference/benchmarks.md.

python -m benchmarks.chart          # writes docs/images/loops.svg
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from examples.applications import pictures

ROOT: Final = Path(__file__).parent.parent
TABLE: Final = ROOT / "docs" / "reference" / "benchmarks.md"
CHART: Final = ROOT / "docs" / "images" / "loops.svg"

#: Rows of the table that the chart shows -> their labels. All are microseconds an iteration.
ROWS: Final = {
    "nested scalar loop": "nested scalar loop",
    "cond in a loop, gradient": "conditional in a loop,\ngradient",
    "RNN 4x16, forward": "RNN 4x16",
    "RNN 4x16, gradient": "RNN 4x16, gradient",
}
COLORS: Final = {"headrace": "#00897b", "C": "#90a4ae", "JAX": "#5c6bc0", "TensorFlow": "#ef8d22"}

_ROW: Final = re.compile(r"^\| (.+?) \| µs an iteration \| (\S+) \| (\w+) \| (\S+) \|", re.M)


def times(text: str) -> dict[str, dict[str, float]]:
    """Microseconds an iteration by row and system.

    Raises:
      LookupError: the table lacks a row.
    """
    found: dict[str, dict[str, float]] = {row: {} for row in ROWS}
    for row, own, other, taken in _ROW.findall(text):
        if row in found:
            found[row]["headrace"] = float(own)
            found[row][other] = float(taken)
    for row, systems in found.items():
        if not systems:
            raise LookupError(f"{TABLE.name} has no row {row!r}")
    return found


def main() -> None:
    """Writes the chart."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    place = 0.0
    ticks = []
    for row, systems in times(TABLE.read_text(encoding="utf-8")).items():
        begin = place
        for system, color in COLORS.items():
            if system in systems:
                axes.barh(place, systems[system], color=color, height=0.85)
                axes.annotate(
                    f"{system}  {systems[system]:.3g}", (systems[system], place), (4, 0), textcoords="offset points",
                    va="center", fontsize=8, color="#546e7a", fontweight="bold" if system == "headrace" else None,
                )  # fmt: skip
                place += 1
        ticks.append(((begin + place - 1) / 2, ROWS[row]))
        place += 0.6
    axes.set_yticks([y for y, _ in ticks], [label for _, label in ticks])
    axes.set_xscale("log")
    axes.set_xlim(right=200)
    axes.invert_yaxis()
    axes.set_xlabel("µs an iteration, one thread (logarithmic; shorter is better)", fontsize=8)
    axes.tick_params(length=0, labelsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    CHART.parent.mkdir(exist_ok=True)
    pictures.save(figure, CHART)
    print(CHART.relative_to(ROOT))


if __name__ == "__main__":
    main()
