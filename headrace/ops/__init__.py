"""The op families, each a module that registers records. Importing this package registers what nearly every graph has.

The rest lies in folders by field (`nn`, `linalg`, `image`, ...), which are imported one after the other when an op type
is asked for that is not there yet: a program that adds and multiplies does not wait for the decompositions.
"""

import functools
import importlib
import pkgutil

from headrace.ir.opdef import op_registry


def _load(folder: str) -> None:
    """Registers the families of a folder."""
    package = importlib.import_module(f"{__name__}.{folder}")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


for _module in pkgutil.iter_modules(__path__):
    if _module.ispkg:
        op_registry.later(functools.partial(_load, _module.name))
    else:
        importlib.import_module(f"{__name__}.{_module.name}")
