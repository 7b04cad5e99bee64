"""Removal of registrations after a test."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from headrace import plugins
from headrace.api import raw_ops, scopes
from headrace.execute.devices import device_types
from headrace.ir import kernel
from headrace.ir.opdef import op_registry

TABLES = (op_registry, device_types)


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Removes registrations of a `with` block after it: op types, kernels, device types, plugins."""
    list(op_registry)  # loads all op types, so that none is first loaded in the block
    tables = [(t, dict(t._items), dict(t._where)) for t in TABLES]
    kernels = {key: list(there) for key, there in kernel._overrides.items()}
    loaded = plugins._pending, list(plugins._loaded), list(plugins._failed)
    modules = set(sys.modules)
    try:
        yield
    finally:
        for table, items, where in tables:
            table._items, table._where = items, where
        kernel._overrides.clear()
        kernel._overrides.update(kernels)
        plugins._pending, plugins._loaded[:], plugins._failed[:] = loaded
        for name in set(sys.modules) - modules:
            if name.partition(".")[0] in ("headrace_dlp", "broken", "spare", "late"):
                del sys.modules[name]
        raw_ops._function.cache_clear()
        scopes.runtime().eager.forget_kernels()
