"""Steps from the object cache are not printed, and behave like those that are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import HeadraceInternalError, InvalidArgumentError
from headrace.targets.native import cached_steps, element_types, engine, lists, object_cache, sections, signatures
from headrace.targets.native.calls import Functions
from tests.targets.native.region_running import regions_of

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine


@pytest.fixture
def prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A folder for the cache, and the numbers of regions that are printed."""
    found: list[int] = []
    printed = sections._print

    def counted(regions: Any, functions: Any, is_guarded: bool) -> Any:
        found.append(len(regions))
        return printed(regions, functions, is_guarded)

    monkeypatch.setattr(sections, "_print", counted)
    for name in ("sources", "_sources"):  # files may be edited while the tests run
        monkeypatch.setattr(cached_steps, name, lambda: "a state")
    with flags.override(NATIVE="on", CACHE=str(tmp_path / "cache")):
        engine.available()  # the support functions are loaded
        yield found


def step(scale: float = 2.0, name: str = "x", n: int = 5) -> tuple[Any, Any, Any]:
    """A session, fetches and feeds of a loop that divides integers by a fed number."""
    with hr.Graph() as g:
        x, d = hr.placeholder(hr.float32, [8], name=name), hr.placeholder(hr.int32, [])
        fetches = hr.while_loop(lambda i, v, k: i < 100, lambda i, v, k: (i + 1, v * scale + x, k // d), [0, x, n])[1:]
        return hr.Session(graph=g, engine="compiled"), fetches, {x: np.arange(8, dtype=np.float32), d: 3}


def test_the_second_step_is_not_printed(prints: list[int]) -> None:
    results = []
    for name in ("x", "other"):  # printers do not read names
        session, fetches, feeds = step(0.5, name)
        results.append(session.run(fetches, feeds))
        assert prints == [1]
    np.testing.assert_array_equal(results[0][0], results[1][0])


def test_a_function_that_calls_itself_is_not_printed_again(prints: list[int]) -> None:
    def run(limit: int) -> Any:
        with hr.Graph() as g:
            f = hr.Function(
                lambda k, x: hr.cond(k < limit, lambda: x // k, lambda: f(k - 1, x + 2) + 1),
                results=hr.TensorSpec([], hr.int32),
                name="f",
            )
            n, x = hr.placeholder(hr.int32, []), hr.placeholder(hr.int32, [])
            session, y = hr.Session(graph=g, engine="compiled"), f(n, x)
        errors = []
        for feed in 5, 0:
            try:
                errors.append(session.run(y, {n: feed, x: 7}))
            except InvalidArgumentError as e:
                errors.append(str(e))
        return errors

    first = run(1)
    assert prints
    before = len(prints)
    assert run(1) == first
    assert len(prints) == before + 1  # for the error
    run(2)
    assert len(prints) > before + 1


@pytest.mark.parametrize("verify", [0, 3])
def test_errors_and_explanations_print_it(prints: list[int], verify: int) -> None:
    with flags.override(VERIFY=verify):
        first = step()
        first[0].run(*first[1:])
        session, fetches, feeds = step()
        session.run(fetches, feeds)
    assert prints == [1]
    divisor = list(feeds)[1]
    with pytest.raises(InvalidArgumentError, match="Integer division by zero") as error:
        session.run(fetches, {**feeds, divisor: 0})
    assert prints == [1, 1]
    with pytest.raises(InvalidArgumentError) as expected:
        first[0].run(first[1], {**first[2], list(first[2])[1]: 0})
    assert str(error.value) == str(expected.value)
    sources = [s.explain(f, list(v)).native_source for s, f, v in (first, (session, fetches, feeds))]
    assert sources[0] == sources[1] != ""


def test_another_constant_threshold_or_flag_is_another_step(prints: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**kwargs: Any) -> None:
        session, fetches, feeds = step(**kwargs)
        session.run(fetches, feeds)

    run()
    run(scale=3.0)
    assert len(prints) == 2
    with flags.override(VERIFY=3):
        run()
    assert len(prints) == 3
    monkeypatch.setattr(thresholds, "NATIVE_POLL_EACH", thresholds.NATIVE_POLL_EACH // 2)
    run()
    assert len(prints) == 4
    run()
    assert len(prints) == 4


def _damage(folder: Path, is_entry: bool, content: bytes | None) -> None:
    """Removes the entries, or the object files, or writes others."""
    for path in folder.iterdir():
        raw = path.read_bytes()
        if (b"headrace step" in raw) == is_entry:
            path.unlink()
            if content is not None:
                object_cache.save(bytes.fromhex(path.name.partition(".")[0]), content)


@pytest.mark.parametrize(
    ("is_entry", "content"),
    [
        (True, None),
        (False, None),
        (True, b""),
        (True, b"headrace step 1\n" + 64 * b"0" + b" " + 64 * b"0" + b" 0 00000\n"),  # more regions than there are
        (False, b"no object"),
    ],
)
def test_a_missing_or_wrong_file_is_made_again(
    prints: list[int], tmp_path: Path, is_entry: bool, content: bytes | None
) -> None:
    session, fetches, feeds = step()
    expected = session.run(fetches, feeds)
    _damage(tmp_path / "cache", is_entry, content)
    for _ in range(2):
        session, fetches, feeds = step()
        np.testing.assert_array_equal(session.run(fetches, feeds)[0], expected[0])
    assert len(prints) == 2


def test_a_text_that_differs_from_the_entry_is_an_error(prints: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    session, fetches, feeds = step()
    session.run(fetches, feeds)
    session, fetches, feeds = step()
    session.run(fetches, feeds)
    monkeypatch.setattr(cached_steps, "digest", lambda text: b"another")
    with pytest.raises(HeadraceInternalError, match="differs"):
        session.explain(fetches, list(feeds))


def test_no_entries_of_sources_that_have_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "native" in cached_steps._sources()
    monkeypatch.setattr(cached_steps, "_IMPORTED", os.stat(signatures.__file__).st_mtime_ns - 1)
    assert not cached_steps._sources()
    monkeypatch.setattr(cached_steps, "_PACKAGE", str(tmp_path / "archive.zip"))
    assert not cached_steps._sources()


def test_a_changed_source_is_another_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cached_steps, "_PACKAGE", str(tmp_path))
    monkeypatch.setattr(cached_steps, "_FOLDERS", ("",))
    file, found = tmp_path / "a.py", []
    for text, second in (("1", 1), ("2", 2), ("12", 2)):
        file.write_text(text)
        os.utime(file, (second, second))
        found.append(cached_steps._sources())
    assert len(set(found)) == 3


# *** Signatures ***


def signature(make: Any, shape: Any = (4, 3)) -> str | None:
    with hr.Graph().as_default():
        x = hr.placeholder(hr.float32, shape, name="x")
        with flags.override(OPTIMIZE="off"):
            return signatures.signature(regions_of(make(x), {x: np.ones(shape, np.float32)}), Functions())


def loop(f: Any) -> Any:
    """A loop that is native on its own."""
    return lambda x: hr.while_loop(lambda i, v: i < 1000, lambda i, v: (i + 1, f(v)), [0, x])


def test_signatures_of_equal_regions_are_equal() -> None:
    assert signature(loop(lambda v: hr.tanh(v) * 0.5)) == signature(loop(lambda v: hr.tanh(v) * 0.5)) != ""


def test_signatures_of_other_regions_differ() -> None:
    ones = np.ones(3, np.float32)
    found = [
        signature(loop(lambda v: v * 0.5)),
        signature(loop(lambda v: v * 0.25)),
        signature(loop(lambda v: v + 0.5)),
        signature(loop(lambda v: v * 0.5), (3, 4)),
        signature(loop(lambda v: v * ones)),
        signature(loop(lambda v: v * (ones + 1))),
        signature(loop(lambda v: hr.concat([v[1:], v[:1]], 0))),
        signature(loop(lambda v: hr.concat([v[2:], v[:2]], 0))),
        signature(loop(lambda v: hr.concat([v[:, 1:], v[:, :1]], 1))),
        signature(loop(lambda v: hr.transpose(hr.transpose(v)))),
    ]
    assert all(found)
    assert len(set(found)) == len(found)


def test_a_function_of_the_user_has_no_signature() -> None:
    with pytest.raises(signatures._UnknownError):
        signatures._leaf(lambda x: x)
    assert signatures._leaf(np.where) != signatures._leaf(np.add)


def test_native_code_has_the_kinds_of_list_operations_that_are_printed() -> None:
    assert frozenset(lists._PRINTERS) == element_types.KINDS
