"""Code lines of each package, compared with its budget.

    python -m tests.manners.sizes            # table of packages: modules, lines, budget, longest module

A line of code is a line that is not blank, not a comment of its own and not part of a docstring: a longer explanation
uses no budget. The budget bounds a package and not a module, so that a module ends where its subject ends. A package
that reaches its budget has taken on a second subject, has a mechanism twice, or needs a larger budget; a commit that
raises a budget says which. Generated code (`pb/`) has none.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

from tests.manners import docstrings

PACKAGE: Final = Path(__file__).parent.parent.parent / "headrace"

#: Lines of code by package; "" is the modules of headrace/ itself, and the folders of `v1` here are apart from `v1`.
BUDGETS: Final = {
    "": 7200,  # `ConfigProto` is read here; folders of SavedModels are served, run and inspected; `DeviceArray`
    "api": 17200,
    "autograph": 4500,
    "compile": 2600,
    "devices": 2500,  # kernels of 130 op types on PyTorch's tensors; streams, graphs and memory of CUDA devices
    "dist": 6800,
    "eager": 1410,
    "execute": 3750,
    "files": 2700,
    "grad": 2800,
    "inspect": 1800,
    "interchange": 1180,  # files of SavedModels stay inside of their folders
    "ir": 7400,  # namespaces of devices
    "jit": 1400,
    "lower": 1200,
    "master_service": 850,
    "metadata": 660,  # `Cancellation`
    "observe": 3960,
    "opkit": 3800,  # 190 are fields of protocol messages; windows, rows and parts in any namespace
    "onnx": 3000,  # a table of 156 operators
    "ops": 38000,  # of 690 pure kernels 470 compute in any namespace of the array API standard
    "optimize": 5500,
    "partition": 1450,  # `joined`: a step on the host and one device as one function, with lists on either
    "pb": 200,
    "place": 1540,
    "recover": 1900,
    "resources": 6950,
    "saved_model": 2700,  # objects and functions, read and written; of these 600 are `hr.save` and `hr.load`
    "schedule": 2260,  # segments of a device; copies of a far memory begin early and end late
    "serve": 1100,  # JSON of requests and responses, batches, versions, connections with deadlines
    "targets": 14100,
    "train": 6600,
    "v1": 15900,  # of these 3,900 are distributions, feature columns, ragged and structured tensors
    "v1/contrib": 5100,
    "v1/data": 1400,
    "v1/estimator": 2050,  # of these 500 are exports: signatures, folders and exporters
    "v1/extension_types": 800,  # fields and their conversion, specs, batches, `map_fn`, messages
    "v1/linear_operators": 2100,  # 21 classes, each with its own products, solutions and determinants
    "v1/saved_model": 700,
    "v1/trackable": 850,  # 200 are the division of checkpoints into shards
    "view": 400,
    "vmap": 2000,
}

#: Folders of `v1` with a budget of their own.
APART: Final = tuple(name for name in BUDGETS if name.startswith("v1/"))


class Size(NamedTuple):
    """Modules and lines of code of a package, and its longest module."""

    modules: int
    lines: int
    longest: str
    longest_lines: int


def count_lines(source: str) -> int:
    """Number of lines of code in a module."""
    lines = source.split("\n")
    counted = [bool(text) and not text.startswith("#") for text in map(str.strip, lines)]
    for statement, _ in docstrings.texts(ast.parse(source)):
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            counted[line - 1] = False
    return sum(counted)


def measure(package: Path = PACKAGE) -> dict[str, Size]:
    """Sizes of the packages under a folder, `""` for its own modules."""
    lines: dict[str, dict[str, int]] = {}
    for path in sorted(package.rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            name = path.relative_to(package).as_posix()
            part = name.split("/")[0] if "/" in name else ""
            apart = name.rpartition("/")[0]
            part = next((p for p in APART if f"{apart}/".startswith(f"{p}/")), part)
            lines.setdefault(part, {})[name] = count_lines(path.read_text(encoding="utf-8"))
    out = {}
    for part, modules in lines.items():
        longest = max(modules, key=modules.__getitem__)
        out[part] = Size(len(modules), sum(modules.values()), longest, modules[longest])
    return out


def complaints(sizes: dict[str, Size], budgets: dict[str, int]) -> list[str]:
    """Packages over their budget, without one, and budgets without a package."""
    out = [f"headrace/{p}: no budget in tests/manners/sizes.py" for p in sorted(sizes.keys() - budgets.keys())]
    out += [f"headrace/{p}: a budget, and no such package" for p in sorted(budgets.keys() - sizes.keys())]
    for part in sorted(sizes.keys() & budgets.keys()):
        if sizes[part].lines > budgets[part]:
            out.append(
                f"headrace/{part}: {sizes[part].lines} lines of code, the budget is {budgets[part]}: cut a second "
                "subject out, remove code that is there twice, or raise the budget in a commit that says why"
            )
    return out


def main() -> None:
    print(f"{'package':14} {'modules':>7} {'lines':>7} {'budget':>7} {'used':>5}  longest module")
    for part, size in sorted(measure().items(), key=lambda item: -item[1].lines):
        budget = BUDGETS.get(part, 0)
        used = f"{size.lines / budget:5.0%}" if budget else "    -"
        print(
            f"{part or 'headrace':14} {size.modules:7} {size.lines:7} {budget:7} {used}  "
            f"{size.longest} ({size.longest_lines})"
        )


if __name__ == "__main__":
    main()
