"""Hooks for every test: tiers and their budget, both engines, verified graphs, repeatable random examples."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Read when headrace is imported, so set before any test module can do that.
os.environ.setdefault("HEADRACE_VERIFY", "2")
# Machine code of a loop takes LLVM tens of milliseconds, and most programs of the tests run once. tests/targets/native
# have it on.
os.environ.setdefault("HEADRACE_NATIVE", "off")
os.environ.setdefault("HEADRACE_CACHE", "off")  # no files outside of the folders of tests
# Read when numpy is imported: the threads of OpenBLAS sleep after 2**4 cycles without work. By default they spin for
# 2**26, CPU time that would be taken from the other workers and counted against the test.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # the same for PyTorch's threads

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from headrace import flags, memo
from tests import tiers

# No deadline: the first example of a test pays for imports, and a machine may be busy. The timeout of pytest bounds
# the whole test.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")
GENERATED = hypothesis.Phase.generate

# Without this, examples have constants of all imported modules of the checkout. So the examples of a test would depend
# on what else is collected, even if they are derandomized, and a first run would parse all modules: 6 CPU-seconds.
providers._get_local_constants = providers.Constants


# A background process of a shell ignores Ctrl-C, and so do the processes that it starts; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Graphs, and the trees of test modules that pytest rewrites, are many small objects. To look for garbage less often
# saves an eighth of the time of the tests, and a third of the time of their collection from an empty cache.
gc.set_threshold(10_000)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempts the objects of the collected tests from later collections of garbage."""
    del session
    # makes the table of characters, half a second's work
    hypothesis.find(hypothesis.strategies.text(min_size=1), bool, settings=hypothesis.settings(phases=[GENERATED]))
    gc.collect()
    gc.freeze()


# *** Tiers ***

SELECTED = pytest.StashKey[frozenset[str]]()
PART = pytest.StashKey[tuple[int, int]]()
_watch = tiers.ProcessWatch()
_collections = tiers.CollectionClock()
_compilations = tiers.CompilationClock()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        metavar="NAMES",
        help=f"tiers to run, separated by commas: {', '.join(tiers.TIERS)} or all. By default the unit tier; where "
        "files or folders are named, all but nightly; with -m, all.",
    )
    parser.addoption("--part", metavar="K/N", default="1/1", help="the K-th of N parts of the selected tests")
    parser.addoption(
        "--turn",
        metavar="N",
        type=int,
        help="a number, such as that of a commit: of tests with the mark `rotated` this run has a share, and runs with "
        "the next numbers have the others. By default all of them run.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.tier is None:  # with several workers this is decided here once, and handed on to them
        is_named = config.args_source is pytest.Config.ArgsSource.ARGS
        config.option.tier = "all" if config.option.markexpr else "unit,system,matrix" if is_named else "unit"
    config.stash[SELECTED] = tiers.parse_tiers(config.option.tier)
    config.stash[PART] = tiers.parse_part(config.option.part)
    tiers.turn = config.option.turn


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.is_file() and tiers.is_left_out(collection_path, config.stash[SELECTED]) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected, other_tiers = tiers.split(items, config.stash[SELECTED])
    selected, other_turns = tiers.in_turn(selected, config.option.turn)
    items[:], other_parts = tiers.in_part(selected, *config.stash[PART])
    config.hook.pytest_deselected(items=[*other_tiers, *other_turns, *other_parts])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _watch.events.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test of the unit tier that starts a process or takes too long.

    Its time is CPU time, so that other processes do not count.
    """
    start, modules = _seconds(), len(sys.modules)
    result = yield
    seconds = _seconds() - start
    if tiers.tier_of(item) == "unit":
        if len(sys.modules) > modules:
            seconds = 0.0  # the first test that needs a package pays for its import
        complaint = f"started a process ({_watch.events[0]})" if _watch.events else tiers.excess(seconds)
        if complaint:
            marks = ", ".join(f"pytest.mark.{t}" for t in tiers.TIERS[1:])
            pytest.fail(
                f"this unit test {complaint}. Mend it, or mark it: {marks} (docs/internals/testing.md)", pytrace=False
            )
    return result


def _seconds() -> float:
    """CPU time of this process that counts as that of tests."""
    return time.process_time() - _collections.seconds - _compilations.seconds


# *** Engines ***

TESTS = Path(__file__).parent
# Folders and files whose tests run steps. tests/compile and tests/optimize compare the engines themselves.
STEPS = (
    *("api", "behaviour", "corpus", "execute", "grad", "lower", "multi", "ops", "recover", "session", "train", "v1"),
    "test_examples.py",
)
COPIES = 2  # one of so many has its turn


@pytest.fixture
def engine_of_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """The engine that runs the steps of the test and of its processes.

    With "" it is the engine that the environment selects.
    """
    if not request.param:
        yield
        return
    with pytest.MonkeyPatch.context() as patch, flags.override(ENGINE=request.param):
        patch.setenv("HEADRACE_ENGINE", request.param)
        yield


@pytest.fixture
def python_target() -> Iterator[None]:
    """Turns native code off, for a test whose subject is the Python target.

    It differs from the default in runs with HEADRACE_NATIVE=on.
    """
    with pytest.MonkeyPatch.context() as patch, flags.override(NATIVE="off"):
        patch.setenv("HEADRACE_NATIVE", "off")
        yield


@pytest.hookimpl(trylast=True)  # so that the engine comes last in the names of tests
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a copy of each test that runs steps, for the token machine.

    The copy is in the matrix tier. Tests with an argument `engine` name their engines themselves.
    """
    path = metafunc.definition.path
    if (
        "matrix" in metafunc.config.stash[SELECTED]
        and flags.ENGINE.value != "interpret"
        and "engine" not in metafunc.fixturenames
        and path.is_relative_to(TESTS)
        and path.relative_to(TESTS).parts[0] in STEPS
        and not any(metafunc.definition.get_closest_marker(m) for m in ("one_engine", "nightly"))
    ):
        metafunc.fixturenames.append("engine_of_steps")
        engines = [
            pytest.param("", id=pytest.HIDDEN_PARAM),
            pytest.param("interpret", marks=[pytest.mark.matrix, pytest.mark.rotated(COPIES)]),
        ]
        metafunc.parametrize("engine_of_steps", engines, indirect=True)


@pytest.fixture(autouse=True, scope="module")
def empty_memos() -> Iterator[None]:
    """Empties all memos after a module, and exempts its other objects from later collections.

    Every collection traverses all other objects. In the matrix tier there are millions without this, and a test that
    collects garbage itself takes seconds.
    """
    yield
    for each in list(memo._memos):
        each.clear()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def switches_of_v1() -> Iterator[None]:
    """Resets what `headrace.v1` has for the process: the implicit default graph and switches."""
    yield
    names = "graph", "variables", "tensor_shape", "layers"
    graph, variables, shapes, layers = (sys.modules.get(f"headrace.v1.{name}") for name in names)
    if graph is not None:
        graph.enable_control_flow_v2()
        graph._Default.graph = None
    if variables is not None:
        variables.disable_resource_variables()
    if shapes is not None:
        shapes.disable_v2_tensorshape()
    if layers is not None:
        layers._has_keras_style = False


@pytest.fixture(autouse=True)
def registered_gradients() -> Iterator[None]:
    """Forgets gradients that the test registers.

    Its copy on the other engine can register them again.
    """
    registry = sys.modules.get("headrace.grad.registered")
    if registry is None:
        yield
        return
    known = set(registry.gradient_registry._items)
    yield
    for name in registry.gradient_registry._items.keys() - known:
        del registry.gradient_registry._items[name]
