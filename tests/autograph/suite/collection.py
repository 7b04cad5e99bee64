"""All cases of the suite by kind."""

from __future__ import annotations

import importlib
import pkgutil

from tests.autograph.suite import matrix, programs
from tests.autograph.suite.cases import Case
from tests.autograph.suite.functions import FUNCTIONS

#: Names of the modules of longer programs.
PROGRAMS = tuple(m.name for m in pkgutil.iter_modules(programs.__path__))


def program(name: str) -> Case:
    module = importlib.import_module(f"{programs.__name__}.{name}")
    return Case(name, module.program, module.CALLS, uses_space=True)


def all_cases() -> list[Case]:
    """Short functions, programs, and the cells of the matrix."""
    return [*FUNCTIONS.values(), *map(program, PROGRAMS), *matrix.cases().values()]
