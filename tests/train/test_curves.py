"""Learning curves from event files, as numbers and as pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DataLossError, NotFoundError, UnimplementedError
from headrace.files import events, summaries
from headrace.train.curves import plot_events, scalars_of


def write(folder: Path, second: int, tag: str, *points: tuple[int, float]) -> str:
    with events.Writer(folder, clock=lambda: second) as out:
        for step, value in points:
            out.write(events.event(second + step, step, summary=summaries.scalars([tag.encode()], [value])))
    return out.path


def test_curves_are_what_was_written(tmp_path: Path) -> None:
    write(tmp_path, 10, "loss", (0, 4.0), (1, 2.0))
    write(tmp_path, 20, "accuracy", (0, 0.5))
    with events.Writer(tmp_path) as out:
        out.write(events.event(1.0, 3, summary=summaries.images([b"i"], [b""], 1, 1, 1)))
    found = scalars_of(tmp_path)
    assert list(found) == ["loss", "accuracy"]
    assert found["loss"] == ([0, 1], [4.0, 2.0], [10.0, 11.0])
    assert list(scalars_of(tmp_path, ["accuracy", "loss"])) == ["accuracy", "loss"]


def test_a_resumed_run_goes_on_from_its_first_step(tmp_path: Path) -> None:
    write(tmp_path, 20, "loss", (2, 20.0), (3, 30.0))  # begun later
    write(tmp_path, 10, "loss", (0, 0.0), (1, 1.0), (2, 2.0), (5, 5.0))
    assert scalars_of(tmp_path)["loss"][:2] == ([0, 1, 2, 3], [0.0, 1.0, 20.0, 30.0])


def test_a_torn_file_counts_as_far_as_it_goes_and_a_damaged_one_not(tmp_path: Path) -> None:
    path = Path(write(tmp_path, 10, "loss", (0, 0.0), (1, 1.0)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert scalars_of(tmp_path)["loss"].steps == [0]
    path.write_bytes(whole[:-20] + b"x" + whole[-19:])
    with pytest.raises(DataLossError):
        scalars_of(tmp_path)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"has no event files; write some with hr\.train\.FileWriter"):
        scalars_of(tmp_path)
    write(tmp_path, 10, "loss", (0, 0.0))
    with pytest.raises(NotFoundError, match="no scalars under 'los'"):
        scalars_of(tmp_path, ["los", "loss"])


@pytest.mark.system
@pytest.mark.parametrize(("ending", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_pictures_of_each_format(tmp_path: Path, ending: str, begin: bytes) -> None:
    write(tmp_path, 10, "loss", (0, 4.0), (1, 2.0))
    plot_events(tmp_path, tmp_path / f"curve{ending}")
    assert (tmp_path / f"curve{ending}").read_bytes().startswith(begin)


@pytest.mark.system  # matplotlib's first picture on a machine starts a process that lists the fonts
def test_curves_that_share_axes_have_a_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    had_pyplot = "matplotlib.pyplot" in sys.modules
    drawn: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: drawn.append(self))
    for i, tag in enumerate(("train", "test", "rate", "more", "last")):
        write(tmp_path, i, tag, (0, i), (1, i + 0.5))
    plot_events(tmp_path, "c.png", [["train", "test"], "rate", "more", "last"], title="run")
    (figure,) = drawn
    assert [[line.get_label() for line in a.lines] for a in figure.axes] == [
        ["train", "test"],
        ["rate"],
        ["more"],
        ["last"],
    ]
    assert [a.get_legend() is not None for a in figure.axes] == [True, False, False, False]
    assert [list(line.get_ydata()) for line in figure.axes[0].lines] == [[0, 0.5], [1, 1.5]]
    assert figure.axes[0].get_subplotspec().get_gridspec().get_geometry() == (2, 3)
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot  # which would have changed what the program draws itself


@pytest.mark.system  # see above
def test_marks_are_lines_with_a_legend_in_each_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: drawn.append(self))
    for i, tag in enumerate(("loss", "accuracy")):
        write(tmp_path, i, tag, (0, i), (9, i + 0.5))
    plot_events(tmp_path, "c.png", marks={"restored": 4, "killed": 6})
    for axes, tag in zip(drawn[0].axes, ("loss", "accuracy"), strict=True):
        assert [text.get_text() for text in axes.get_legend().get_texts()] == [tag, "restored", "killed"]
        assert [list(line.get_xdata()) for line in axes.lines] == [[0, 9], [4, 4], [6, 6]]
        assert len({line.get_color() for line in axes.lines}) == 3


@pytest.mark.system  # see above
def test_what_cannot_be_drawn_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events.Writer(tmp_path).close()
    with pytest.raises(ValueError, match=r"must end in \.png, \.svg or \.pdf"):
        plot_events(tmp_path, tmp_path / "curve.gif")
    with pytest.raises(ValueError, match="no scalars to draw"):
        plot_events(tmp_path, tmp_path / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnimplementedError, match=r"pip install headrace\[examples\]"):
        plot_events(tmp_path, tmp_path / "curve.png")
