"""Learning curves: the scalars of event files, as numbers and as a plot.

Source: the event files are those of `headrace.files.events`; TensorBoard shows the same curves.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace import nest
from headrace.errors import NotFoundError, UnimplementedError
from headrace.files import events, local

_COLUMNS: Final = 3  # largest number of plots in a row


class Curve(NamedTuple):
    """Values of one tag over time.

    Attributes:
      steps: global steps of the values, in the order of the file.
      values: the value at each step.
      times: times of writing, in seconds since 1970.
    """

    steps: list[int]
    values: list[float]
    times: list[float]


def scalars_of(folder: local.Path, tags: Sequence[str] | None = None) -> dict[str, Curve]:
    """Reads the scalars in the event files of a folder.

    The files are read in the order of their creation. A program that resumes from a checkpoint writes some steps again.
    Then the later file replaces all values of the earlier file from its first step on.

    Args:
      folder: the folder.
      tags: tags to read. None: all tags.

    Returns:
      A dict from tag to `Curve`, in the order of `tags`, or else of their first appearance.

    Raises:
      NotFoundError: the folder does not exist or has no event files, or a tag has no scalars.
      DataLossError: a file is damaged. (An incomplete last event is ignored.)

    Example:
      >>> import tempfile
      >>> from headrace.train.event_writer import FileWriter
      >>> folder = tempfile.mkdtemp()
      >>> with FileWriter(folder) as writer:
      ...     for step in range(3):
      ...         writer.scalar("loss", 1 / 2**step, step)
      >>> scalars_of(folder)["loss"].values
      [1.0, 0.5, 0.25]
    """
    paths = events.files_in(folder)
    if not paths:
        raise NotFoundError(f"{local.text_of(folder)} has no event files; write some with hr.train.FileWriter")
    found: dict[str, Curve] = {}
    for path in paths:
        here: dict[str, Curve] = {}
        for event in events.read(path, torn="end"):
            for value in event.summary.value:
                if value.HasField("simple_value") and (tags is None or value.tag in tags):
                    curve = here.setdefault(value.tag, Curve([], [], []))
                    curve.steps.append(event.step)
                    curve.values.append(value.simple_value)
                    curve.times.append(event.wall_time)
        for tag, curve in here.items():
            found[tag] = _continued(found[tag], curve) if tag in found else curve
    if tags is None:
        return found
    missing = [t for t in tags if t not in found]
    if missing:
        there = ", ".join(map(repr, found)) or "none of those asked for"
        raise NotFoundError(
            f"{local.text_of(folder)} has no scalars under {', '.join(map(repr, missing))}; it has {there}"
        )
    return {tag: found[tag] for tag in tags}


def _continued(before: Curve, after: Curve) -> Curve:
    """Returns `before` up to the first step of `after`, followed by `after`."""
    begin = min(after.steps)
    kept = [i for i, step in enumerate(before.steps) if step < begin]
    return Curve(
        [before.steps[i] for i in kept] + after.steps,
        [before.values[i] for i in kept] + after.values,
        [before.times[i] for i in kept] + after.times,
    )


def plot_events(
    folder: local.Path,
    path: str | os.PathLike[str],
    tags: Sequence[Any] | None = None,
    title: str = "",
    marks: Mapping[str, float] | None = None,
) -> None:
    """Draws the learning curves in the event files of a folder.

    The function needs matplotlib, and no display.

    Args:
      folder: folder of the event files.
      path: path of the picture. Its extension selects the format: ".png", ".svg" or ".pdf".
      tags: tags of the scalars to draw, one plot for each; a list of tags in it is one plot with several curves. None:
        a plot for each tag.
      title: title of the picture.
      marks: text to step of the vertical lines in each plot, such as `{"killed": 641}`.

    Raises:
      UnimplementedError: matplotlib is not installed.
      ValueError: the extension is not supported, or there are no scalars.
      NotFoundError, DataLossError: see `scalars_of`.
      OSError: the picture cannot be written.

    Example:
      >>> import os, tempfile
      >>> from headrace.train.event_writer import FileWriter
      >>> folder = tempfile.mkdtemp()
      >>> with FileWriter(folder) as writer:
      ...     for step in range(3):
      ...         writer.scalar("loss", 1 / 2**step, step)
      >>> plot_events(folder, os.path.join(folder, "loss.svg"), ["loss"], marks={"restored": 1})
      >>> os.path.getsize(os.path.join(folder, "loss.svg")) > 0
      True
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise UnimplementedError("pictures of curves need matplotlib: pip install headrace[examples]") from e
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in (".png", ".svg", ".pdf"):
        raise ValueError(f"the picture's path must end in .png, .svg or .pdf, got {os.fspath(path)!r}")
    if tags is None:
        groups = [[tag] for tag in scalars_of(folder)]
    else:
        groups = [nest.as_list(t) for t in tags]
    curves = scalars_of(folder, list(dict.fromkeys(tag for group in groups for tag in group)))
    if not curves:
        raise ValueError(f"{local.text_of(folder)}: no scalars to draw")
    columns = min(len(groups), _COLUMNS)
    rows = math.ceil(len(groups) / columns)
    # a separate Figure and not pyplot: no global state changes, and no window is opened
    figure = Figure(figsize=(4.5 * columns, 3.2 * rows), layout="constrained")
    for i, group in enumerate(groups):
        axes = figure.add_subplot(rows, columns, i + 1)
        for tag in group:
            axes.plot(curves[tag].steps, curves[tag].values, label=tag)
        for k, (text, step) in enumerate((marks or {}).items()):
            axes.axvline(step, color=f"C{len(group) + k}", linestyle="--", linewidth=1, label=text)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if len(group) == 1:
            axes.set_title(group[0])
        if len(group) > 1 or marks:
            axes.legend()
    if title:
        figure.suptitle(title)
    figure.savefig(path)


__all__ = ["Curve", "plot_events", "scalars_of"]
