"""Packages that are found by their entry points.

The tests check when packages are imported, and the reports of those that cannot be imported.
"""

from __future__ import annotations

import configparser
import logging
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import plugins
from headrace.errors import InvalidArgumentError, NotFoundError, TextError
from headrace.extend import PluginError
from headrace.ir.text import from_text

pytestmark = pytest.mark.one_engine

ROOT = Path(__file__).parent.parent.parent
PACKAGE = Path(__file__).parent / "headrace_dlp"

SPARE = """
import headrace as hr
from headrace.extend import NOT_DIFFERENTIABLE, same_as

spare = hr.register_op(
    "Spare", "x: T", "y: T", {"T": hr.dtypes.FLOATING}, shape=same_as(0), grad=NOT_DIFFERENTIABLE,
    kernel=lambda attrs: lambda x: x + x,
)
"""
ENTRY = "[headrace.plugins]\nspare = spare\n"
BROKEN = "[headrace.plugins]\noops = broken\n"


def test_the_package_says_where_it_is_found() -> None:
    """The tests install by hand the same entry points as `pip install`."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    from tests.extending.conftest import ENTRY_POINTS

    parsed = configparser.ConfigParser()
    parsed.read_string(ENTRY_POINTS)
    assert {k: dict(parsed[k]) for k in parsed.sections()} == project["entry-points"]
    assert list(project["entry-points"]) == [plugins.GROUP]


@pytest.mark.system
@pytest.mark.parametrize(
    ("program", "loads"),
    [
        ("hr.Session(graph=hr.Graph())", False),
        ("hr.square(2.0); hasattr(hr.raw_ops, '_repr_html_'); hasattr(hr.raw_ops, 'nonesuch')", False),
        ("hr.Session(graph=hr.Graph(), devices={'CPU': 2})", False),
        ("hr.Session(graph=hr.Graph(), devices={'DLP': 1})", True),
        ("hr.load_plugins()", True),
        ("hasattr(hr.raw_ops, 'NoneSuch')", True),
    ],
)
def test_when_they_are_imported(install: Any, program: str, loads: bool) -> None:
    from tests.extending.conftest import ENTRY_POINTS

    site = install("headrace-dlp", ENTRY_POINTS)
    code = f"import sys, headrace as hr\n{program}\nprint('headrace_dlp' in sys.modules)"
    path = os.pathsep.join(map(str, (ROOT, site, PACKAGE)))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{loads}\n"


@pytest.mark.parametrize("how", ["raw", "builder", "eager builder", "graph", "text", "wire", "kernel"])
def test_an_op_that_is_missed(install: Any, how: str) -> None:
    install("spare-ops", ENTRY, {"spare": SPARE})
    with hr.Graph() as g:
        x = hr.constant(3.0)
        if how == "raw":
            y = hr.raw_ops.Spare(x=x)
        elif how == "builder":
            y = hr.scopes.builder(x).Spare(x)
        elif how == "eager builder":
            y = hr.scopes.runtime().eager.Spare(3.0)
        elif how == "graph":
            y = g.add_op("Spare", "y", [x], {"T": hr.float32}).outputs[0]
        elif how == "kernel":
            hr.register_kernel("Spare", "CPU")(lambda attrs: lambda x: x + x)
            y = hr.raw_ops.Spare(x=x)
    if how == "eager builder":
        assert float(y) == 6.0
        return
    if how == "text":
        g = from_text("x = Placeholder[dtype=float32]\ny = Spare(x)")
        assert hr.Session(graph=g).run("y:0", {"x:0": 3.0}) == 6.0
        return
    elif how == "wire":
        with g:
            wire = hr.raw_ops.Sin(x=x, name="y").graph.as_graph_def()
        wire.node[-1].op = "Spare"
        with hr.Graph() as g:
            (y,) = hr.import_graph_def(wire, return_elements=["y:0"], name="")
    assert hr.Session(graph=g).run(y) == 6.0


def test_explicitly(install: Any) -> None:
    install("spare-ops", ENTRY, {"spare": SPARE})
    assert hr.load_plugins() == ["spare"]
    assert hr.load_plugins() == ["spare"], "once"
    assert "Spare" in dir(hr.raw_ops)


def test_a_plugin_may_need_another(install: Any) -> None:
    late = "import headrace as hr\nhr.register_kernel('Spare', 'DLP')(lambda attrs: abs)\n"
    install("a-late", "[headrace.plugins]\na = late\n", {"late": late})
    install("spare-ops", ENTRY, {"spare": SPARE})
    assert hr.load_plugins() == ["spare", "a"]


def test_importing_one_by_hand_is_the_same(install: Any) -> None:
    install("spare-ops", ENTRY, {"spare": SPARE})
    import spare

    assert float(spare.spare(1.0)) == 2.0
    assert hr.load_plugins() == ["spare"]


# *** packages that cannot be loaded ***


def test_a_broken_one_is_told_where_something_is_missed(install: Any, caplog: pytest.LogCaptureFixture) -> None:
    install("oops-kit", BROKEN, {"broken": "import nonesuch_driver"})
    told = (
        r"the plugin 'oops' of oops-kit 1.0 \(entry point 'broken'\) could not be loaded: "
        r"ModuleNotFoundError: No module named 'nonesuch_driver'"
    )
    missed = pytest.raises(
        InvalidArgumentError, match=f"no device type 'DLP' is registered; the registered types are .*{told}"
    )
    with hr.Graph() as g, missed as e:
        hr.Session(graph=g, devices={"DLP": 1})
    assert isinstance(e.value.__cause__, ModuleNotFoundError)
    assert e.value.__cause__.name == "nonesuch_driver"
    with pytest.raises(NotFoundError, match=rf"Op type not registered 'Spare'.*{told}") as e2:
        hr.scopes.runtime().eager.make("Spare", [1.0], {})
    assert e2.value.__cause__ is e.value.__cause__
    with pytest.raises(NotFoundError, match=rf"Op type not registered 'Spare'.*{told}") as e2:
        hr.scopes.Builder(hr.Graph()).make("Spare", [], {})
    assert e2.value.__cause__ is e.value.__cause__
    with pytest.raises(TextError, match=told) as e3:
        from_text("y = Spare()")
    assert e3.value.__cause__ is e.value.__cause__
    with pytest.raises(PluginError, match=f"^{told}$") as e4:
        hr.load_plugins()
    assert isinstance(e4.value, ImportError)
    assert e4.value.__cause__ is e.value.__cause__
    assert [r.levelno for r in caplog.records if r.name == "headrace"] == [logging.WARNING], "once"


def test_a_broken_one_keeps_nobody_from_the_others(install: Any, caplog: pytest.LogCaptureFixture) -> None:
    install("oops-kit", BROKEN, {"broken": "1 / 0"})
    install("spare-ops", ENTRY, {"spare": SPARE})
    assert float(hr.raw_ops.Spare(x=np.float32(2.0))) == 4.0
    assert "ZeroDivisionError" in caplog.text


def test_an_entry_point_that_is_no_module(install: Any) -> None:
    install("spare-ops", "[headrace.plugins]\nspare = spare:register\n", {"spare": SPARE})
    with pytest.raises(PluginError, match=r"must be a module, which registers .*, got 'spare:register'"):
        hr.load_plugins()


def test_an_unknown_type_of_devices() -> None:
    told = r"no device type 'XPU' is registered.*\(hr.register_device\)"
    with hr.Graph() as g, pytest.raises(InvalidArgumentError, match=told):
        hr.Session(graph=g, devices={"XPU": 1})
