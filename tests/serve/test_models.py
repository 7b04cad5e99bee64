"""Versions of a model: which one answers, replacement, versions that cannot be loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import FailedPreconditionError, NotFoundError
from headrace.serve import Limits
from headrace.serve.models import Model
from tests.serve.runners import FakeRunner

LIMITS = Limits()


class Loads:
    """A function that loads versions, with a record of its calls.

    Attributes:
      runners: the runner of each version by its name.
      paths: the names of the versions in the order of the calls.
      broken: names of versions that fail.
    """

    def __init__(self) -> None:
        self.runners: dict[str, FakeRunner] = {}
        self.paths: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, path: str) -> FakeRunner:
        name = Path(path).name
        self.paths.append(name)
        if name in self.broken:
            raise NotFoundError("no weights")
        self.runners[name] = FakeRunner()
        return self.runners[name]


def version(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "saved_model.pb").write_bytes(b"")


def run(body: Callable[[Callable[[Model], Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]]) -> None:
    """Runs a coroutine function, to which a function that updates a model is passed."""

    async def main() -> None:
        with ThreadPoolExecutor(2) as executor:
            await asyncio.wait_for(body(lambda model: model.update(LIMITS, executor)), 20)

    asyncio.run(main())


def test_the_newest_version_answers_and_is_loaded_once(tmp_path: Path) -> None:
    for name in ("1", "9", "10", "x11", "012x", "-3"):
        version(tmp_path, name)
    (tmp_path / "99").mkdir()  # still empty
    loads = Loads()
    model = Model("m", tmp_path, loads)

    async def body(update: Any) -> None:
        assert not model.is_loaded
        await update(model)
        await update(model)
        assert model.version.number == 10

    run(body)
    assert loads.paths == ["10"]


def test_a_newer_version_replaces_after_the_last_request_of_the_older_one(tmp_path: Path) -> None:
    version(tmp_path, "1")
    loads = Loads()
    model = Model("m", tmp_path, loads)

    async def body(update: Any) -> None:
        await update(model)
        old = model.version
        waiting = old.submit("serving_default", [np.ones((1, 2), np.float32)])
        version(tmp_path, "2")
        await update(model)
        assert model.version.number == 2
        assert (await waiting)[0].tolist() == [[2, 2]]
        await model.end()
        assert not model.is_loaded

    run(body)
    assert [r.is_closed for r in loads.runners.values()] == [True, True]


def test_a_broken_version_is_reported_and_tried_again_when_it_changes(tmp_path: Path) -> None:
    version(tmp_path, "1")
    version(tmp_path, "2")
    loads = Loads()
    loads.broken = {"2"}
    model = Model("m", tmp_path, loads)

    async def body(update: Any) -> None:
        for _ in range(3):
            await update(model)
        assert model.version.number == 1
        assert model.failures[2].text == "NotFoundError: no weights"
        loads.broken.clear()
        (tmp_path / "2" / "saved_model.pb").write_bytes(b"other")
        await update(model)
        assert model.version.number == 2
        assert not model.failures

    run(body)
    assert loads.paths == ["2", "1", "2"]


def test_a_removed_version_goes_on_answering(tmp_path: Path) -> None:
    version(tmp_path, "1")
    version(tmp_path, "2")
    model = Model("m", tmp_path, Loads())

    async def body(update: Any) -> None:
        await update(model)
        (tmp_path / "2" / "saved_model.pb").unlink()
        await update(model)
        assert model.version.number == 1  # the newest one that exists
        (tmp_path / "1" / "saved_model.pb").unlink()
        await update(model)
        assert model.version.number == 1

    run(body)


def test_a_saved_model_itself_is_version_1(tmp_path: Path) -> None:
    version(tmp_path, "m")
    model = Model("m", tmp_path / "m", Loads())
    assert model.versions() == {1: str(tmp_path / "m")}


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is no folder"):
        Model("m", tmp_path / "none", Loads())
    with pytest.raises(FailedPreconditionError, match="neither a SavedModel nor a subfolder"):
        Model("m", tmp_path, Loads())


def test_without_a_loaded_version_a_request_is_not_found(tmp_path: Path) -> None:
    version(tmp_path, "1")
    with pytest.raises(NotFoundError, match="no version of the model 'm' is loaded"):
        _ = Model("m", tmp_path, Loads()).version


def test_signatures_are_listed_in_the_error(tmp_path: Path) -> None:
    version(tmp_path, "1")
    model = Model("m", tmp_path, Loads())

    async def body(update: Any) -> None:
        await update(model)
        with pytest.raises(NotFoundError, match="no signature 'other'; it has serving_default"):
            model.version.signature("other")

    run(body)
