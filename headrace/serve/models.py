"""The versions of a served model, and their replacement without an interruption.

The folder of a model has a subfolder for each version, whose name is the number of the version: `DIR/1`, `DIR/2`. The
newest one is served. When a newer one appears, it is loaded while the old one answers; then new requests go to the new
one, and the old one ends after its last request. A version that cannot be loaded is reported, and tried again when its
folder changes. A folder that is a SavedModel itself is version 1, for good.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from headrace.errors import FailedPreconditionError, NotFoundError
from headrace.interchange import saved_model
from headrace.records import record
from headrace.serve.batching import Batcher
from headrace.serve.limits import Limits
from headrace.serve.runners import Runner, SavedModelRunner, ServingSignature

LOG: Final = logging.getLogger("headrace.serve")
_DIGITS: Final = 18


class Version:
    """A loaded version of a model.

    Args:
      number: its number.
      runner: the model.
      limits: sizes of batches, and times.
      executor: threads for steps.

    Attributes:
      number: its number.
      signatures: its calls by name.
    """

    def __init__(self, number: int, runner: Runner, limits: Limits, executor: Executor) -> None:
        self.number = number
        self._runner = runner
        self.signatures = runner.signatures
        self._batchers = {
            name: Batcher(
                functools.partial(runner.run, name),
                executor,
                most_rows=limits.batch_rows if signature.is_batched else 0,
                delay=limits.batch_delay if signature.is_batched else 0.0,
                most_waiting=limits.waiting,
                seconds=limits.step_seconds,
                parallel=limits.threads,
                is_repeatable=not signature.writes,
            )
            for name, signature in self.signatures.items()
        }

    def signature(self, name: str) -> ServingSignature:
        """The signature of a name.

        Raises:
          NotFoundError: there is none; the text lists those of the model.
        """
        found = self.signatures.get(name)
        if found is None:
            raise NotFoundError(f"the model has no signature {name!r}; it has {', '.join(sorted(self.signatures))}")
        return found

    def submit(self, name: str, inputs: list[Any]) -> asyncio.Future[list[Any]]:
        """Queues a call of a signature; see `Batcher.submit`."""
        return self._batchers[name].submit(inputs)

    async def end(self) -> None:
        """Waits for the requests of this version, then closes the model."""
        for batcher in self._batchers.values():
            await batcher.finished()
        self._runner.close()


@record(frozen=True)
class Failure:
    """A version that could not be loaded.

    Attributes:
      text: the error.
      seen: the state of the folder.
    """

    text: str
    seen: Any


class Model:
    """A model by name, with the newest version of its folder.

    Args:
      name: the name in paths.
      folder: a folder with a subfolder for each version, or one SavedModel.
      load: the function from the path of a version to a runner.
    """

    def __init__(
        self, name: str, folder: str | os.PathLike[str], load: Callable[[str], Runner] = SavedModelRunner
    ) -> None:
        self.name = name
        self.folder = os.fspath(folder)
        self._load = load
        self._version: Version | None = None
        self.failures: dict[int, Failure] = {}
        self._ending: set[asyncio.Task[None]] = set()
        if not os.path.isdir(self.folder):
            raise NotFoundError(f"{self.folder} is no folder; give that of a SavedModel, or of its versions 1, 2, ...")
        if not self.versions():
            raise FailedPreconditionError(
                f"{self.folder} has neither a SavedModel nor a subfolder with a number as its name and one inside"
            )

    @property
    def is_loaded(self) -> bool:
        """Whether a version answers."""
        return self._version is not None

    @property
    def version(self) -> Version:
        """The version that answers.

        Raises:
          NotFoundError: none could be loaded.
        """
        if self._version is None:
            raise NotFoundError(f"no version of the model {self.name!r} is loaded")
        return self._version

    def versions(self) -> dict[int, str]:
        """The paths of the versions in the folder, by number."""
        if saved_model.is_there(self.folder):
            return {1: self.folder}
        out = {}
        for entry in os.scandir(self.folder):
            name = entry.name
            if name.isascii() and name.isdigit() and len(name) <= _DIGITS and saved_model.is_there(entry.path):
                out[int(name)] = entry.path
        return out

    async def update(self, limits: Limits, executor: Executor) -> None:
        """Loads the newest version unless it answers already, and ends the one before.

        Args:
          limits: sizes and times of the server.
          executor: threads for loading and for steps.
        """
        found = self.versions()
        self.failures = {n: failure for n, failure in self.failures.items() if n in found}
        current = None if self._version is None else self._version.number
        for number in sorted(found, reverse=True):
            if number == current:
                return
            seen = _state(found[number])
            if number in self.failures and self.failures[number].seen == seen:
                continue
            loop = asyncio.get_running_loop()
            try:
                runner = await loop.run_in_executor(executor, self._load, found[number])
            except Exception as e:
                self.failures[number] = Failure(f"{type(e).__name__}: {e}", seen)
                LOG.error("%s: version %d cannot be loaded: %s: %s", self.name, number, type(e).__name__, e)
                continue
            self.failures.pop(number, None)
            before, self._version = self._version, Version(number, runner, limits, executor)
            LOG.info("%s: version %d answers", self.name, number)
            if before is not None:
                task = loop.create_task(before.end())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            return

    async def end(self) -> None:
        """Ends all versions after their last requests."""
        for task in list(self._ending):
            await task
        if self._version is not None:
            await self._version.end()
            self._version = None


def _state(folder: str) -> Any:
    """The files of a version that a repeated attempt to load depends on."""
    out: list[tuple[str, int, int]] = []
    for path in (
        folder,
        *[os.path.join(folder, name) for name in (saved_model.VARIABLES_FOLDER, saved_model.ASSETS_FOLDER)],
    ):
        try:
            out.extend((e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in os.scandir(path))
        except OSError:
            out.append((path, 0, 0))
    return sorted(out)
