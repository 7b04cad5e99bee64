"""The public API does not change by accident, and every name of it is documented."""

from __future__ import annotations

import difflib
import inspect
import types
from typing import Any

import pytest

import headrace as hr
from tests.manners.public_api import FILE, MODULES, entries, public_names
from tests.manners.running import run

pytestmark = pytest.mark.one_engine

ALL = [(name, x) for name, _, x in entries()]

# The names that a new user meets first: each shows an example that runs (tests/test_documentation.py runs it).
CORE = """
hr.Graph hr.Graph.as_default hr.Graph.as_graph_def hr.Session hr.Session.run hr.Session.make_callable
hr.Session.partial_run hr.Session.explain hr.Session.list_devices hr.Session.close hr.Function hr.TensorArray
hr.TensorSpec hr.Variable hr.FIFOQueue hr.IndexedSlices hr.RunMetadata hr.RunOptions hr.case hr.cond
hr.control_dependencies hr.constant hr.convert_to_tensor hr.custom_gradient hr.device hr.explain hr.foldl
hr.grad hr.gradients hr.group hr.identity hr.import_graph_def hr.jacobian hr.jvp hr.map_fn hr.matmul hr.name_scope
hr.placeholder hr.print hr.reduce_sum hr.scan hr.simulate hr.stop_gradient hr.switch_case hr.value_and_grad
hr.variables_initializer hr.vjp hr.where hr.while_loop hr.flags.override
""".split()


@pytest.mark.system
def test_the_api_is_as_listed() -> None:
    # in a process of its own: `headrace.v1` gives tensors more methods
    status, there, err = run("import sys; from tests.manners.public_api import text; sys.stdout.write(text())")
    assert (status, err) == (0, "")
    listed = FILE.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(listed, there.splitlines(), "public_api.txt", "headrace", lineterm="", n=0))
    assert not changes, "\n".join(
        ["if this is meant, run python -m tests.manners.public_api and tell of it in CHANGELOG.md:", *changes]
    )


@pytest.mark.parametrize("prefix", MODULES)
def test_lists_of_names_are_complete(prefix: str) -> None:
    module = MODULES[prefix]
    listed = getattr(module, "__all__", None)
    if listed is None:
        return
    assert len(set(listed)) == len(listed), "a name is listed twice"
    assert [n for n in listed if not hasattr(module, n)] == []
    defines = any(inspect.isroutine(x) and x.__module__ == module.__name__ for x in map(vars(module).get, listed))
    if hasattr(module, "__path__") and not defines:
        # the names of a package without functions are its imports by name; its own modules are there besides
        there = {
            n
            for n, x in vars(module).items()
            if not n.startswith("_") and not isinstance(x, types.ModuleType) and _is_ours(x)
        }
        assert sorted(there - set(listed)) == [], "add them to __all__, or begin their names with _"


def _is_ours(x: Any) -> bool:
    home = x.__module__ if inspect.isclass(x) or inspect.isroutine(x) else type(x).__module__
    return str(home).startswith("headrace")


def test_every_name_is_documented() -> None:
    missing = [
        name
        for name, x in ALL
        if (inspect.isclass(x) or inspect.isroutine(x) or isinstance(x, (property, types.ModuleType)))
        and not (inspect.getdoc(x) or "").strip()
        and not _is_said_by_its_class(name)
    ]
    assert not missing, f"{len(missing)} without a docstring: {missing}"


def _is_said_by_its_class(name: str) -> bool:
    """Whether the name is a property that the class's docstring lists among its attributes."""
    owner, _, member = name.rpartition(".")
    doc = next((inspect.getdoc(x) or "" for n, x in ALL if n == owner and inspect.isclass(x)), "")
    _, _, attributes = doc.partition("Attributes:")
    return f"{member}:" in attributes or f"{member}," in attributes


def has_example(x: Any) -> bool:
    return ">>> " in (inspect.getdoc(x) or "")


@pytest.mark.parametrize("name", CORE)
def test_the_core_shows_examples(name: str) -> None:
    assert has_example(dict(ALL)[name]), f"the docstring of {name} has no example"


def test_most_functions_show_examples() -> None:
    """The number of functions without an example only becomes smaller.

    Lower the bound with it. Most functions without an example are elementwise math.
    """
    functions = [(n, x) for n, x in ALL if n.count(".") == 1 and (inspect.isclass(x) or inspect.isroutine(x))]
    without = [n for n, x in functions if not has_example(x)]
    assert len(without) <= 169, f"{len(without)} of {len(functions)} without an example: {without}"


def test_modules_have_names() -> None:
    assert all(public_names(m) for m in MODULES.values())
    assert hr.__version__
