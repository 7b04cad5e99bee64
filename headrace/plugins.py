"""Plugins: packages with op types, kernels and devices, found by their entry points.

A package declares itself a plugin in its metadata, by an entry point in the group `headrace.plugins` whose value is a
module:

    [project.entry-points."headrace.plugins"]
    dlp = "headrace_dlp"

The module registers its op types, kernels and devices when it is imported (`headrace.extend`), so it does not matter
whether the user or headrace imports it. `import headrace` looks for no plugins and imports none. All plugins are
imported, once, on one of these occasions: an op type or a type of devices is missing; a session is created with devices
other than CPUs; or the program calls `hr.load_plugins()`.

A plugin that cannot be imported does not prevent the use of the others: the logger "headrace" warns of it once. It
becomes an error if something is missing that the plugin may have. The text then names the plugin and its package, and
the error has the original exception as its cause.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.forking import run_after_fork

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "headrace.plugins"

_lock = threading.RLock()  # reentrant: while a plugin is imported, it may need an op type of another plugin
_pending: list[EntryPoint] | None = None  # None: not searched yet
_loaded: list[str] = []
_failed: list[Failure] = []


class PluginError(ImportError):
    """A plugin cannot be loaded.

    The text names the plugin and its package; the cause is the original error.
    """


class Failure(NamedTuple):
    """A plugin that could not be loaded.

    Attributes:
      plugin: a description of the plugin, its package and its entry point.
      error: the error of its import.
    """

    plugin: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.plugin} could not be loaded: {type(self.error).__name__}: {self.error}"


def load() -> list[Failure]:
    """Imports the plugins that are not imported yet; returns the failures so far."""
    global _pending
    with _lock:
        if _pending is None:
            from importlib.metadata import entry_points  # a slow import

            _pending = sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value))
        while _pending:
            _load(_pending.pop(0))
    return _failed


def load_plugins() -> list[str]:
    """Loads the installed plugins that are not loaded yet.

    A plugin is a package with an entry point in the group "headrace.plugins"; `headrace docs how-to/extending` shows
    one. A call is seldom necessary, since plugins are loaded when an op type or a type of devices is missing. It is
    necessary for a plugin that replaces kernels of existing ops, because such kernels are never missing.

    Returns:
      The names of the loaded plugins.

    Raises:
      PluginError: some plugin cannot be loaded (an ImportError). The others are loaded.

    Example:
      >>> import headrace as hr
      >>> isinstance(hr.load_plugins(), list)
      True
    """
    failures = load()
    if failures:
        raise PluginError(sentence(failures)) from failures[0].error
    return list(_loaded)


def sentence(failures: list[Failure]) -> str:
    """Text about plugins that could not be loaded."""
    return "; ".join(map(str, failures))


def _forked() -> None:
    global _lock
    _lock = threading.RLock()


run_after_fork(_forked)


def _load(entry: EntryPoint) -> None:
    """Imports one plugin, and records its success or failure."""
    package = "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
    try:
        if entry.attr:
            raise TypeError(
                f"the entry point must be a module, which registers what it brings when it is imported, "
                f"got {entry.value!r}"
            )
        entry.load()
    # a module of another package may raise anything; the error is reported where something is missing
    except Exception as e:
        import logging

        _failed.append(Failure(f"the plugin {entry.name!r} of {package} (entry point '{entry.value}')", e))
        logging.getLogger("headrace").warning("%s", _failed[-1])
    else:
        _loaded.append(entry.name)
