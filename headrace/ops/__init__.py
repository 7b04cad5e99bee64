"""Op families: each module registers the records of a family.

Importing this package registers the families that nearly every graph uses.

The other families are in folders by field (`nn`, `linalg`, `image`, ...). A look-up of an unknown op type imports these
folders one after the other, those of training programs first. So a program that only adds and multiplies does not wait
for the import of the decompositions.
"""

import functools
import importlib
import pkgutil
from typing import Final

from headrace.ir.opdef import op_registry


def _load(folder: str) -> None:
    """Registers the families of a folder."""
    package = importlib.import_module(f"{__name__}.{folder}")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


_FIRST: Final = ("random", "nn", "training")

_modules: Final = list(pkgutil.iter_modules(__path__))
for _module in _modules:
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")
for _name in dict.fromkeys((*_FIRST, *(_module.name for _module in _modules if _module.ispkg))):
    op_registry.later(functools.partial(_load, _name))
