"""Public modules list their public names, and wrong names are answered with suggestions."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
import types

import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import public_names
from headrace.ir.opdef import op_registry

pytestmark = pytest.mark.one_engine

MODULES = {
    f"{alias}.{name}".removesuffix("."): module
    for alias, root in (("hr", hr), ("tf", tf))
    for name, module in [("", root), *((n, getattr(root, n)) for n in sorted(root.__all__))]
    if isinstance(module, types.ModuleType)
}


def test_there_are_public_modules() -> None:
    expected = "hr hr.nn hr.math hr.linalg hr.random hr.layers hr.train hr.image hr.strings hr.sparse hr.sets hr.lookup"
    expected += " hr.io hr.summary hr.initializers hr.quantization hr.special hr.errors hr.dtypes tf tf.nn tf.train"
    assert set(expected.split()) <= set(MODULES)


@pytest.mark.parametrize("path", MODULES)
def test_dir_is_the_public_names(path: str) -> None:
    module = MODULES[path]
    if path.endswith(".raw_ops"):
        assert dir(module) == sorted(op_registry)
        return
    assert dir(module) == sorted(module.__all__)
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert not missing
    assert [n for n in module.__all__ if n.startswith("_")] == (["__version__"] if path in ("hr", "tf") else [])


@pytest.mark.parametrize("path", sorted(p for p in MODULES if p.startswith("tf")))
def test_names_of_v1_are_complete(path: str) -> None:
    """The functions and classes of a module of `headrace.v1` are in its `__all__`."""
    module = MODULES[path]
    if not module.__name__.startswith("headrace.v1"):
        return
    own = {
        n
        for n, x in vars(module).items()
        if (inspect.isfunction(x) or inspect.isclass(x))
        and x.__module__ == module.__name__
        and getattr(sys.modules[x.__module__], x.__name__, None) is x
        and not n.startswith("_")
    }
    internal = set("Scoped absl check_weights float_ops spread weighted without_last_axis".split())  # for other modules
    # elsewhere in TensorFlow 1
    internal |= set("edit_distance get_logger initialize_all_tables tables_initializer summary_iterator".split())
    assert own - set(module.__all__) <= internal


@pytest.mark.parametrize(
    ("path", "name", "suggested"),
    [
        ("hr", "sum", "hr.reduce_sum"),
        ("hr", "relu", "hr.nn.relu"),
        ("hr", "arange", "hr.range"),
        ("hr", "concatenate", "hr.concat"),
        ("hr", "placehoder", "hr.placeholder"),
        ("hr", "Varaible", "hr.Variable"),
        ("hr", "randn", "hr.random.normal"),
        ("hr", "Dense", "hr.layers.Dense"),
        ("hr", "inv", "hr.linalg.inv"),
        ("hr.nn", "sigmoidd", "hr.nn.sigmoid"),
        ("hr.nn", "reduce_sum", "hr.reduce_sum"),
        ("hr.math", "amax", "hr.reduce_max"),
        ("hr.dtypes", "flaot32", "hr.dtypes.float32"),
        ("hr.errors", "InvalidArgument", "hr.errors.InvalidArgumentError"),
        ("tf", "placehoder", "tf.placeholder"),
        ("tf", "sum", "tf.reduce_sum"),
        ("tf", "relu", "tf.nn.relu"),
        ("hr", "keras", "hr.layers"),
        ("tf.train", "GradientDecentOptimizer", "tf.train.GradientDescentOptimizer"),
    ],
)
def test_wrong_names(path: str, name: str, suggested: str) -> None:
    module = MODULES[path]
    with pytest.raises(AttributeError) as info:
        getattr(module, name)
    assert f"module {module.__name__!r} has no attribute {name!r}; did you mean {suggested}" in str(info.value)


def test_a_name_like_no_other() -> None:
    with pytest.raises(AttributeError, match=r"^module 'headrace' has no attribute 'xyzzy'$"):
        hr.xyzzy
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'; `headrace docs reference/v1` lists"):
        tf.xyzzy


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        ("", "keras", "Keras is a package of its own; `tf.layers`"),
        ("image", "generate_bounding_box_proposals", "an op of GPU devices"),
    ],
)
def test_a_name_that_is_absent_by_intent_is_answered_with_the_reason(module: str, name: str, text: str) -> None:
    with pytest.raises(AttributeError) as info:
        getattr(getattr(tf, module) if module else tf, name)
    assert f"; {text}" in str(info.value)
    assert "(`headrace docs reference/v1`)" in str(info.value)
    assert not hasattr(tf, "keras")


def test_an_op_type_that_is_misspelt() -> None:
    with pytest.raises(AttributeError, match=r"no op type .*; did you mean hr\.raw_ops\.MatMul"):
        hr.raw_ops.MatMull


@pytest.mark.parametrize("name", public_names._ELSEWHERE)
def test_names_of_other_libraries(name: str) -> None:
    """The suggestion exists, and headrace has no such name itself."""
    assert isinstance(getattr(hr, name, types), types.ModuleType)  # the module `headrace.view`, once it is imported
    path = public_names._ELSEWHERE[name]
    assert public_names.suggestions("headrace", name) == [f"hr.{path}"]
    module, _, last = path.rpartition(".")
    assert last in (getattr(hr, module) if module else hr).__all__


def test_questions_for_missing_names_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: str, name: str) -> list[str]:
        raise AssertionError("nothing reads the text")

    monkeypatch.setattr(public_names, "suggestions", fail)
    assert not hasattr(hr, "no_such_name")
    assert getattr(hr.nn, "no_such_name", 3) == 3


def test_the_error_is_copied_between_processes() -> None:
    with pytest.raises(AttributeError) as info:
        hr.sum
    again = pickle.loads(pickle.dumps(info.value))
    assert (str(again), again.name) == (str(info.value), "sum")


def test_a_missing_submodule_is_an_import_error() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("headrace.no_such_module")
    with pytest.raises(ImportError, match="cannot import name 'placehoder'"):
        exec("from headrace import placehoder")


@pytest.mark.system
def test_python_adds_no_suggestion_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import headrace as hr; hr.placehoder"], capture_output=True, text=True, check=False
    )
    assert done.stderr.count("mean") == 1, done.stderr
    assert done.stderr.rstrip().endswith("did you mean hr.placeholder?")
