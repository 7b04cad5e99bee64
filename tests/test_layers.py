"""Checks the imports of every module against the layers of docs/internals/layout.md.

The layers exist so that a stage can be tested without the others: a pass on text graphs without the user API, the
runtime on hand-made plans without passes. The rule that a module breaks is in the failure's text.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "headrace"

BASE = {
    "diagnosis",
    "errors",
    "plain_data",
    "flags",
    "step_events",
    "metadata",
    "dtypes",
    "shapes",
    "registry",
    "plugins",
}
BASE |= {"gc_pause", "denormals", "forking", "recursion", "notices", "deprecation", "thresholds", "nest", "memo"}
BASE |= {"file_access", "plugins", "float_errors", "intra_op", "philox_rounds", "public_names", "records", "tracebacks"}
BASE |= {"device_arrays", "disjoint_sets", "documentation", "reference_counts", "varints"}
GRAPH = BASE | {"ir", "opkit"}
OPS = GRAPH | {"files", "ops", "resources"}
FRONT = {"api", "recover", "grad", "eager", "autograph", "jit", "vmap"}
PASSES = {"prune", "optimize", "place", "lower", "partition", "schedule", "targets", "compile"}
ENGINE = OPS | FRONT | PASSES | {"execute"}
TOP = ENGINE | {"explain", "extend", "fetches", "interchange", "partial", "pipeline", "report", "session", "simulate"}
TOP |= {
    "compiled_step",
    "environment",
    "function_calls",
    "graph_growth",
    "partition_graphs",
    "programs",
    "session_config",
    "stages",
    "target",
}
COMMAND = {"cli", "inspect", "progress", "view"}
OBSERVE = TOP | {"inspect", "observe", "view"}
MODELS = {"saved_model", "onnx", "serve", "master_service"}
ALL = TOP | COMMAND | MODELS | {"dist", "observe", "train", "v1", "__main__", "pb", ""}

# The parts that each part of the package may import. Keys are top-level modules and packages; "" is
# headrace/__init__.py, and so the names a user sees (`import headrace as hr`). Within a part everything may import
# everything, except in `ops`, whose families meet only through the Builder.
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    "pb": set(),
    "ir": BASE | {"pb"},
    "opkit": BASE | {"ir", "pb"},
    "files": BASE | {"pb"},
    "resources": BASE | {"files"},
    "ops": GRAPH | {"files", "resources"},
    "api": OPS | {"pb"},
    "recover": GRAPH,
    "autograph": OPS | {"api"},
    "jit": OPS | {"api", "autograph"},
    "grad": OPS | {"api", "recover", "autograph", "jit"},
    "vmap": OPS | {"api", "autograph", "jit"},
    "eager": OPS | {"api", "grad", "jit"},
    **dict.fromkeys(PASSES, GRAPH),
    "targets": GRAPH | {"schedule"},
    "compile": GRAPH | {"schedule", "targets"},
    "execute": GRAPH,
    "devices": GRAPH | {"execute"},
    "compiled_step": ENGINE,
    "stages": ENGINE,
    "pipeline": ENGINE | {"compiled_step", "environment", "stages"},
    "environment": ENGINE,
    "fetches": ENGINE,
    "programs": ENGINE | {"compiled_step", "environment", "pipeline", "stages", "target"},
    "function_calls": ENGINE | {"compiled_step", "programs", "target"},
    "explain": ENGINE | {"compiled_step", "pipeline", "programs"},
    "simulate": ENGINE | {"compiled_step", "environment", "explain", "fetches", "pipeline"},
    "extend": ENGINE,
    "report": ENGINE,
    "interchange": ENGINE | {"pb"},
    "partial": ENGINE | {"fetches", "pipeline"},
    "graph_growth": ENGINE,
    "partition_graphs": ENGINE | {"compiled_step", "pb"},
    "session_config": ENGINE | {"environment", "pb"},
    "session": ENGINE
    | {
        "compiled_step",
        "explain",
        "fetches",
        "graph_growth",
        "observe",
        "partial",
        "partition_graphs",
        "pipeline",
        "programs",
        "session_config",
        "simulate",
        "target",
    },
    "target": ENGINE | {"compiled_step", "environment", "pipeline", "stages"},
    "dist": TOP | {"observe"},
    "train": TOP,
    "saved_model": TOP | {"inspect", "pb", "train"},
    "onnx": TOP,
    "serve": TOP | {"dist", "pb", "saved_model", "train"},
    "master_service": TOP | {"dist", "pb"},
    **dict.fromkeys(COMMAND, TOP | COMMAND | {"dist", "observe", "train", "view"}),
    "cli": TOP | COMMAND | MODELS | {"dist", "observe", "train", "view", "v1"},
    "inspect": TOP | {"inspect", "view"},
    "observe": OBSERVE,
    "view": {"view"},
    "__main__": ALL,
    "v1": ALL,
    "": ALL,
}

# An import for type checkers alone may also go to another part of the same layer.
LAYER = (
    dict.fromkeys(BASE | {"pb"}, "0")
    | {
        "ir": "1",
        "opkit": "1",
        "files": "1",
        "ops": "2",
        "resources": "2",
        "api": "3a",
        "recover": "3a",
        "execute": "3 run",
        "devices": "3 run",
    }
    | dict.fromkeys(FRONT - {"api", "recover"}, "3b")
    | dict.fromkeys(PASSES, "3 passes")
    | dict.fromkeys(
        (
            "explain",
            "extend",
            "fetches",
            "function_calls",
            "interchange",
            "partial",
            "partition_graphs",
            "pipeline",
            "programs",
            "report",
            "session",
            "simulate",
            "target",
            "environment",
            "graph_growth",
            "session_config",
            "compiled_step",
            "stages",
        ),
        "4",
    )
    | {"dist": "5", "observe": "5", "train": "5", "view": "5"}
    | dict.fromkeys(COMMAND | MODELS, "5")
    | {"": "6", "cli": "6", "v1": "6", "__main__": "6"}
)

# Packages of other projects, in addition to the standard library. Nothing else may be imported; a package that is slow
# to import or optional is imported inside the function that needs it, which `test_import_is_light` checks.
ARRAYS = {"numpy", "ml_dtypes"}
THIRD_PARTY: dict[str, set[str]] = {
    **dict.fromkeys(MAY_IMPORT, ARRAYS),
    "pb": {"google"},
    "ir": ARRAYS | {"google"},
    "opkit": ARRAYS | {"google"},
    "interchange": ARRAYS | {"google"},
    "report": ARRAYS | {"threadpoolctl"},
    "files": ARRAYS | {"google", "google_crc32c", "safetensors"},
    "ops": ARRAYS | {"scipy", "re2", "PIL"},
    "execute": ARRAYS | {"threadpoolctl", "jax"},
    "devices": ARRAYS | {"torch", "array_api_compat"},
    "targets": ARRAYS | {"llvmlite", "scipy", "threadpoolctl"},
    "compile": ARRAYS | {"jax"},
    "v1": ARRAYS | {"google", "scipy"},  # messages of `tf.test`; `tf.contrib.opt.ScipyOptimizerInterface`
    "session": ARRAYS | {"threadpoolctl"},
    "dist": ARRAYS | {"msgspec", "ray"},
    "train": ARRAYS | {"tqdm", "matplotlib"},
    "saved_model": ARRAYS | {"google"},
    "master_service": ARRAYS | {"google", "grpc"},
    "onnx": ARRAYS | {"google", "onnx"},
    "serve": ARRAYS | {"httptools", "orjson", "uvicorn"},
}

# Single modules that promise more than their layer does: the propagator is pure.
FORBIDDEN_IN = {"execute/frames.py": {"threading", "numpy", "time", "queue"}}


# The layers inside `ir`, lowest first. A module may import modules of its own row and of the rows before it; imports in
# functions and for type checkers count too. A folder's row holds all modules of the folder.
IR: tuple[tuple[str, ...], ...] = (
    (
        "device",
        "source",
        "symbolic",
        "tensor_annotation",
        "tensor_type",
        "static_info",
        "primitive_names",
        "uncopyable",
        "attr_values",
        "conversion",
        "notes",
        "op_roles",
    ),
    ("opdef",),
    ("graph",),
    ("custom_rules", "function", "grad_node", "kernel", "kernel_calls", "output_check", "walk"),
    ("kernel_errors", "weak_numbers"),
    ("binding", "infer"),
    ("builder", "order"),
    ("indexed_slices",),
    ("analysis",),
    ("edit",),
    ("serial",),
    ("text",),
    ("verify",),
)

# Modules that import each other in a circle, and why they still do.
CIRCLES: dict[frozenset[str], str] = {}


#: Fields of nodes that are lists of statements, or of handlers and cases, which have such lists.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def modules() -> list[str]:
    """Paths of the modules under headrace/, without the generated ones."""
    paths = (p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py"))
    return sorted(p for p in paths if not p.endswith("_pb2.py"))


@functools.cache
def folders() -> dict[str, list[str]]:
    """The modules by their folder: `{"ir": ["ir/graph.py", ...], "ops/linalg": [...]}`; `""` has the single ones."""
    out: dict[str, list[str]] = {}
    for path in modules():
        out.setdefault(path.rpartition("/")[0], []).append(path)
    return out


def part_of(path: str) -> str:
    """`"ir/graph.py"` → `"ir"`, `"prune.py"` → `"prune"`, `"__init__.py"` → `""`."""
    first = path.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


class Imports(ast.NodeVisitor):
    """Collects (dotted module, line, only for type checkers) of each import, inside functions too."""

    def __init__(self, path: str, calls: bool) -> None:
        """
        Args:
          path: of the module, relative to headrace/.
          calls: whether calls of functions that import are looked for, which takes a visit of each expression.
        """
        self._calls = calls
        #: Package of the module, for relative imports: ("headrace", "ir").
        self.package = ("headrace", *path.split("/")[:-1])
        self.found: list[tuple[str, int, bool]] = []
        self._typing = False

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
        if name != "TYPE_CHECKING":
            self.generic_visit(node)
            return
        outer, self._typing = self._typing, True
        for child in node.body:
            self.visit(child)
        self._typing = outer
        for child in node.orelse:
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            kept = self.package[: len(self.package) - node.level + 1]
            base = ".".join((*kept, base) if base else kept)
        for alias in node.names:
            # `from headrace.ir import graph` may name a module or something in one; the longer name says more.
            self._add(f"{base}.{alias.name}" if base.split(".")[0] == "headrace" else base, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
            self._add(str(node.args[0].value), node.lineno)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Visits the statements in a node, and its expressions too where a call may import."""
        if self._calls:
            super().generic_visit(node)
            return
        for block in BLOCKS:
            for child in getattr(node, block, ()):
                self.visit(child)

    def _add(self, module: str, line: int) -> None:
        self.found.append((module, line, self._typing))


@functools.cache
def imports_of(path: str, source: str) -> list[tuple[str, int, bool]]:
    """Imports of the module `path` with the text `source`, as `Imports` finds them."""
    imports = Imports(path, "import_module" in source or "__import__" in source)
    imports.visit(ast.parse(source))
    return imports.found


def broken_rules(path: str, source: str) -> list[str]:
    """Faults of the imports of the module `path`, one line each.

    The path is relative to headrace/.
    """
    me = part_of(path)
    if me not in MAY_IMPORT:
        return [f"headrace/{path}: {me!r} has no row in the table of tests/test_layers.py and docs/internals/layout.md"]
    out = []
    for module, line, typing_only in imports_of(path, source):
        where = f"headrace/{path}:{line}: imports {module}"
        top, *rest = module.split(".")
        if top in FORBIDDEN_IN.get(path, ()):
            out.append(f"{where}, which this module promises not to")
        elif top != "headrace":
            if top not in sys.stdlib_module_names and top not in THIRD_PARTY[me] and not typing_only:
                out.append(f"{where}; of other packages {me or '__init__'!r} may use {sorted(THIRD_PARTY[me])}")
            continue
        else:
            other = imported_part(module)
            if other == me:
                if me == "ops" and path != "ops/__init__.py" and not typing_only and not in_same_folder(path, rest):
                    out.append(f"{where}; op families do not import one another, they meet through the Builder")
            elif other not in MAY_IMPORT[me] and not (typing_only and LAYER[me] == LAYER.get(other)):
                allowed = ", ".join(sorted(MAY_IMPORT[me])) or "nothing"
                out.append(f"{where}; of headrace {me or '__init__'!r} may use {allowed}")
    return out


def imported_part(module: str) -> str:
    """`"headrace.ir.graph"` → `"ir"`, `"headrace"` and `"headrace.Graph"` → `""`."""
    _, *rest = module.split(".")
    return rest[0] if rest and (rest[0] in MAY_IMPORT or exists(rest[0])) else ""


def in_same_folder(path: str, rest: list[str]) -> bool:
    """Whether a module of `ops/` imports a neighbour that registers no op types.

    A neighbour is a module in the same folder.
    """
    folder, neighbour = path.split("/")[1], PACKAGE / "/".join(rest[:3])
    if len(rest) < 3 or folder != rest[1]:
        return False
    text = neighbour.with_suffix(".py").read_text(encoding="utf-8")
    return not re.search(r"(?<![.\w])op\(", text)


def exists(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def module_name(path: str) -> str:
    """`"ir/graph.py"` → `"ir.graph"`, `"ir/text/__init__.py"` → `"ir.text"`, `"__init__.py"` → `""`."""
    return path.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """Module → the modules it imports at the top, in functions or for type checkers.

    The import of the package that a module is in, which Python does by itself, is not an edge.
    """
    known = {module_name(path) for path in sources}

    def resolve(dotted: str) -> str | None:
        """The longest start of `dotted` that is a module of the package."""
        parts = dotted.split(".")[1:]
        while parts and ".".join(parts) not in known:
            parts.pop()
        return ".".join(parts) if parts or "" in known else None

    out: dict[str, set[str]] = {}
    for path, source in sources.items():
        found = {resolve(module) for module, _, _ in imports_of(path, source) if module.split(".")[0] == "headrace"}
        out[module_name(path)] = {m for m in found if m is not None and m != module_name(path)}
    return out


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                out.add(frozenset(stack[at:]))
            del stack[at:]

    for module in graph:
        if module not in index:
            visit(module)
    return out


@functools.cache
def package_imports() -> dict[str, set[str]]:
    """The import graph of headrace."""
    return import_graph({p: (PACKAGE / p).read_text(encoding="utf-8") for p in modules()})


@pytest.mark.system
def test_no_modules_import_each_other_in_a_circle() -> None:
    found = circles(package_imports())
    new = [sorted(c) for c in found - CIRCLES.keys()]
    assert not new, f"modules that import each other in a circle: {new}"
    gone = [sorted(c) for c in CIRCLES.keys() - found]
    assert not gone, f"circles that are cut, to be removed from CIRCLES: {gone}"


def ir_row(module: str) -> int | None:
    """The row of `IR` that holds a module ("ir.text.line"); None for "ir" itself."""
    _, _, rest = module.partition(".")
    return next((i for i, row in enumerate(IR) if rest.split(".")[0] in row), None) if rest else None


def broken_ir_rules(graph: dict[str, set[str]]) -> list[str]:
    """The imports inside `ir` that lead to a later row of `IR`, one line each."""
    out = []
    for module in sorted(m for m in graph if m.startswith("ir.")):
        mine = ir_row(module)
        if mine is None:
            out.append(f"{module} has no row in the table IR of tests/test_layers.py")
            continue
        for other in sorted(graph[module]):
            row = ir_row(other) if other.startswith("ir.") else None
            if row is not None and row > mine:
                out.append(f"{module} imports {other}, which is in a later row of IR")
    return out


@pytest.mark.system
def test_ir_is_in_layers() -> None:
    broken = broken_ir_rules(package_imports())
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    "source",
    [
        "from headrace.ir import b",
        "from . import b",
        "import headrace.ir.b as b",
        "def f():\n  from headrace.ir.b import g",
        "if TYPE_CHECKING:\n  from headrace.ir.b import g",
        "importlib.import_module('headrace.ir.b')",
    ],
)
def test_a_circle_is_found(source: str) -> None:
    sources = {"ir/a.py": source, "ir/b.py": "from headrace.ir.c import x", "ir/c.py": "from headrace.ir.a import y"}
    assert circles(import_graph(sources)) == {frozenset({"ir.a", "ir.b", "ir.c"})}
    assert not circles(import_graph({**sources, "ir/c.py": ""}))


def test_an_import_of_a_later_row_of_ir_is_found() -> None:
    assert broken_ir_rules({"ir.graph": {"ir.order"}, "ir.order": {"ir.graph"}}) == [
        "ir.graph imports ir.order, which is in a later row of IR"
    ]
    assert broken_ir_rules({"ir.edit.copying": {"ir.text", "ir.walk"}})
    assert broken_ir_rules({"ir.new": set()})
    assert not broken_ir_rules({"ir.text.line": {"ir.text", "ir.serial.attrs"}})


#: Folders with so many modules take longer than a unit test may.
MANY_MODULES = 60


@pytest.mark.parametrize(
    "folder",
    [pytest.param(f, marks=pytest.mark.system) if len(p) > MANY_MODULES else f for f, p in folders().items()],
)
def test_imports_follow_the_layers(folder: str) -> None:
    broken = [b for p in folders()[folder] for b in broken_rules(p, (PACKAGE / p).read_text(encoding="utf-8"))]
    assert not broken, "\n" + "\n".join(broken)


def defined_names(source: str) -> tuple[set[str], list[ast.ImportFrom]]:
    """Names that a module defines itself, and its imports of names from headrace."""
    out: set[str] = set()
    imports = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            out.add(node.id)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace."):
            imports.append(node)
    return out, imports


def borrowed_names(sources: dict[str, str]) -> list[str]:
    """Imports of a name from a module that imported it itself, one line each.

    The interface of a package is its `__init__.py`, so names imported from there may come from its modules.
    """
    found = {path: defined_names(source) for path, source in sources.items()}
    defined = {module_name(path): names for path, (names, _) in found.items() if not path.endswith("__init__.py")}
    out = []
    for path, (_, imports) in found.items():
        for node in imports:
            module = (node.module or "").removeprefix("headrace.")
            names = {alias.name for alias in node.names} - defined.get(module, {a.name for a in node.names})
            out += [f"headrace/{path}:{node.lineno}: {n} is not defined in {module}" for n in sorted(names - {"*"})]
    return out


# Modules that gather names: the interface of extension packages, and TensorFlow 1's modules.
GATHERING = ("extend", "v1", "train")


@pytest.mark.system
def test_names_are_imported_from_the_module_that_defines_them() -> None:
    sources = {p: (PACKAGE / p).read_text(encoding="utf-8") for p in modules()}
    assert not (found := borrowed_names({p: s for p, s in sources.items() if part_of(p) not in GATHERING})), found


def test_a_borrowed_name_is_found() -> None:
    sources = {"a.py": "x = 1", "b.py": "from headrace.a import x", "ir/__init__.py": "from headrace.a import x"}
    assert not borrowed_names({**sources, "c.py": "from headrace.a import x\nfrom headrace.ir import x"})
    found = borrowed_names({**sources, "c.py": "from headrace.b import x"})
    assert found == ["headrace/c.py:1: x is not defined in b"]


def test_modules_are_named_for_their_subject() -> None:
    vague = [p for p in modules() if p.rsplit("/", 1)[-1] in ("utils.py", "util.py", "misc.py", "helpers.py")]
    assert not vague, f"modules that are not named for their subject: {vague}"


def test_every_part_has_a_layer() -> None:
    assert set(LAYER) == set(MAY_IMPORT) == set(THIRD_PARTY)
    assert all(targets <= ALL for targets in MAY_IMPORT.values())


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("errors.py", "from headrace import ir"),
        ("errors.py", "import headrace.ir.graph"),
        ("errors.py", "from .ir.graph import Graph"),
        ("dtypes.py", "import jax"),
        ("ir/graph.py", "from headrace.ops import math"),
        ("ir/graph.py", "from ..ops import math"),
        ("ir/graph.py", "def f():\n  from headrace.api import cond"),
        ("ir/graph.py", "import headrace as hr"),
        ("ir/graph.py", "from headrace import Graph"),
        ("ir/graph.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from headrace.ops import math"),
        ("ir/graph.py", "if TYPE_CHECKING:\n  pass\nelse:\n  import headrace.ops"),
        ("ir/graph.py", "importlib.import_module('headrace.ops.math')"),
        ("ops/math.py", "from headrace.ops import array"),
        ("ops/math.py", "from . import array"),
        ("ops/math.py", "from headrace import pb"),
        ("resources/queue.py", "from headrace.ir.graph import Graph"),
        ("optimize/constant_folding.py", "from headrace.lower import loops"),
        ("prune.py", "from headrace.ops import math"),
        ("execute/executor.py", "from headrace.ops import math"),
        ("execute/frames.py", "import threading"),
        ("grad/backward.py", "from headrace.eager import tape"),
        ("pipeline.py", "from headrace import session"),
        ("session.py", "if TYPE_CHECKING:\n  from headrace.dist import server"),
        ("cli.py", "import headrace as hr"),
        ("cli.py", "import tensorflow"),
        ("newpart.py", ""),
    ],
)
def test_the_check_refuses(path: str, source: str) -> None:
    assert broken_rules(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("errors.py", "from headrace import flags\nimport json, numpy"),
        ("ir/graph.py", "from headrace import errors, pb\nfrom headrace.ir import walk\nfrom . import text"),
        ("ops/__init__.py", "from headrace.ops import math, array"),
        ("ops/math.py", "from headrace.ir.opdef import op\nfrom headrace.resources import queue"),
        ("ops/math.py", "import typing as t\nif t.TYPE_CHECKING:\n  from headrace.ops import array"),
        ("optimize/constant_folding.py", "from headrace.optimize import base"),
        ("optimize/constant_folding.py", "if TYPE_CHECKING:\n  from headrace.place import reasons"),
        ("session.py", "from headrace import pipeline, prune\nfrom headrace.execute.plan import Plan"),
        ("cli.py", "from headrace.session import Session"),
        ("__init__.py", "from headrace import cli\nfrom headrace.session import Session"),
    ],
)
def test_the_check_accepts(path: str, source: str) -> None:
    assert not broken_rules(path, source)


@pytest.mark.system
def test_import_is_light() -> None:
    """Slow and optional packages are imported on first use.

    Counted from after the packages that headrace needs, and what the interpreter's start-up brings (coverage, path
    files), so that their imports are not laid at our door.
    """
    program = (
        "import sys, numpy, ml_dtypes\n"
        "import google.protobuf.message, google.protobuf.descriptor_pool, google.protobuf.internal.builder\n"
        "before = set(sys.modules)\n"
        "import headrace\n"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    slow = {"jax", "tensorflow", "ray", "asyncio", "scipy", "socket", "threadpoolctl", "re2"}
    slow |= {"PIL", "tqdm", "matplotlib", "safetensors", "google_crc32c", "msgspec"}
    heavy = slow & set(done.stdout.split())
    assert not heavy, f"`import headrace` imports {sorted(heavy)}; import them in the function that needs them"
