"""Packages that bring op types, kernels and devices of their own, found by their entry points.

A package says in its metadata that it belongs to headrace, by an entry point in the group `headrace.plugins` whose
value is a module:

    [project.entry-points."headrace.plugins"]
    dlp = "headrace_dlp"

The module registers what it brings when it is imported (`headrace.extend`), so it makes no difference whether the user
imports it or headrace does. `import headrace` looks for no plugins and imports none. They are imported, all of them and
once, when something is asked for that is not there (an op type, a type of devices), when a session is to have devices
other than CPUs, or by `hr.load_plugins()`.

One that cannot be imported keeps nobody from using the others: the logger "headrace" warns of it once. It is an error
where something is missed that it may have brought: the text then names it and the package that it comes from, and the
error has the original exception as its cause.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.forking import run_after_fork

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "headrace.plugins"

_lock = threading.RLock()  # a plugin that is being imported may miss what another one brings: the same thread
_pending: list[EntryPoint] | None = None  # None: not looked for yet
_loaded: list[str] = []
_failed: list[Failure] = []


class PluginError(ImportError):
    """A plugin cannot be loaded; the text names it and its package, the cause is what it failed with."""


class Failure(NamedTuple):
    """A plugin that could not be loaded: which, as text, and why."""

    plugin: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.plugin} could not be loaded: {type(self.error).__name__}: {self.error}"


def load() -> list[Failure]:
    """Imports the plugins that have not been imported yet; returns those that could not be."""
    global _pending
    with _lock:
        if _pending is None:
            from importlib.metadata import entry_points  # slow to import

            _pending = sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value))
        while _pending:
            _load(_pending.pop(0))
    return _failed


def load_plugins() -> list[str]:
    """Loads the plugins that are installed, unless they have been.

    A plugin is a package with an entry point in the group "headrace.plugins"; `docs/how-to/extending.md` shows one.
    There is seldom a reason to call this: plugins are loaded when an op type or a type of devices is missed. It is
    needed if one replaces kernels of ops that exist, for nobody misses those.

    Returns:
      The names of the plugins that are loaded.

    Raises:
      PluginError (an ImportError): one of them cannot be loaded. The others are.

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
    """What to say of plugins that could not be loaded."""
    return "; ".join(map(str, failures))


def _forked() -> None:
    global _lock
    _lock = threading.RLock()


run_after_fork(_forked)


def _load(entry: EntryPoint) -> None:
    """Imports one plugin, and remembers how that went."""
    package = "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
    try:
        if entry.attr:
            raise TypeError(
                f"the entry point must be a module, which registers what it brings when it is imported, "
                f"got {entry.value!r}"
            )
        entry.load()
    except Exception as e:  # whatever a module of somebody else's raises: it is told where something is missed
        import logging

        _failed.append(Failure(f"the plugin {entry.name!r} of {package} (entry point '{entry.value}')", e))
        logging.getLogger("headrace").warning("%s", _failed[-1])
    else:
        _loaded.append(entry.name)
