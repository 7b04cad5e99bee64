"""Public functions and classes without an example: `python -m tests.manners.examples` lists them by module.

`python -m tests.manners.examples --write` removes names from the baseline whose docstrings have an example by now. The
baseline (`examples_baseline.txt`) may only shrink: no name is added to it.
"""

from __future__ import annotations

import collections
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.manners.public_api import MODULES, public_names

BASELINE: Final = Path(__file__).parent / "examples_baseline.txt"


def without_example() -> list[str]:
    """Public names of functions and classes whose docstrings have no example; aliases have one entry.

    Exceptions are exempt: docs/reference/errors.md has a program for each, which is a test.
    """
    found: dict[int, tuple[str, Any]] = {}
    for module, m in MODULES.items():
        for name in public_names(m):
            x = getattr(m, name)
            is_error = inspect.isclass(x) and issubclass(x, BaseException)
            if callable(x) and not is_error and not inspect.ismodule(x):
                found.setdefault(id(x), (f"{module}.{name}", x))
    return sorted(name for name, x in found.values() if ">>>" not in (x.__doc__ or ""))


def read_baseline() -> list[str]:
    return BASELINE.read_text(encoding="utf-8").split()


def complaints(missing: Iterable[str], baseline: Iterable[str]) -> list[str]:
    """Returns the names that lack an example, and those of the baseline that do not."""
    missing, baseline = set(missing), set(baseline)
    new = [f"{name}: the docstring has no example" for name in sorted(missing - baseline)]
    old = [
        f"{name}: it has an example, or is gone; remove it from {BASELINE.name}" for name in sorted(baseline - missing)
    ]
    return new + old


def main() -> None:
    missing = without_example()
    if "--write" in sys.argv:
        kept = [name for name in read_baseline() if name in set(missing)]
        BASELINE.write_text("".join(f"{name}\n" for name in kept), encoding="utf-8")
        return
    by_module = collections.Counter(name.rpartition(".")[0] for name in missing)
    for name in missing:
        print(name)
    print(len(missing), dict(by_module.most_common()))


if __name__ == "__main__":
    main()
