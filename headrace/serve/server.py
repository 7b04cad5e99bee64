"""The HTTP server of models: start, new versions, orderly end.

The server library parses HTTP and runs the event loop; `connections` adds limits, `application` answers. The end is in
three parts. The listening socket is closed, so that new clients see that the server is gone. For `drain_seconds` each
response tells its client to close the connection, so that no client sends a request into a connection that ends. Then
idle connections are closed, and requests that run have `end_seconds` to finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from headrace.errors import DeadlineExceededError, InvalidArgumentError, NotFoundError
from headrace.execute import blas
from headrace.serve.application import Application
from headrace.serve.limits import Limits
from headrace.serve.models import Model
from headrace.serve.runners import Runner, SavedModelRunner

LOG: Final = logging.getLogger("headrace.serve")
LOOPBACK: Final = "127.0.0.1"
_START_SECONDS: Final = 120.0


class Server:
    """Serves models over HTTP in TensorFlow Serving's REST format.

    In a `with` block the server runs in a thread of its own; `run` serves in the calling thread until SIGTERM or
    SIGINT. The BLAS library of the process has one thread while the server runs: requests run at the same time.

    Args:
      models: the folders of models by name: a SavedModel, or a folder with a subfolder for each version.
      port: the port; 0: a free one.
      host: the address to listen on. The default is reached from this machine only.
      limits: sizes and times.
      load: the function from the path of a version to a runner.

    Raises:
      ModuleNotFoundError: the packages of the extra `serve` are not installed.
      InvalidArgumentError: no model, or a name that a path cannot have.
      NotFoundError, FailedPreconditionError: a folder is missing, or contains no version.
      OSError: the port cannot be used.

    Example:
      >>> import headrace.v1 as tf, os, tempfile, urllib.request
      >>> from headrace.serve import Server
      >>> folder = tempfile.TemporaryDirectory()
      >>> path = os.path.join(folder.name, "1")
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.placeholder(tf.float32, [None])
      ...     tf.saved_model.simple_save(sess, path, {"x": x}, {"y": x * 2.0})
      >>> with Server({"double": folder.name}) as server:
      ...     url = f"{server.url}/v1/models/double:predict"
      ...     urllib.request.urlopen(url, b'{"instances": [1.0, 2.5]}').read()
      b'{"predictions":[2.0,5.0]}'
      >>> folder.cleanup()
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        port: int = 0,
        host: str = LOOPBACK,
        *,
        limits: Limits | None = None,
        load: Callable[[str], Runner] = SavedModelRunner,
    ) -> None:
        _require()
        self.limits = Limits() if limits is None else limits
        if not models:
            raise InvalidArgumentError("no model: give a name and a folder for each")
        for name in models:
            if not name or not name.isprintable() or set(name) & set("/:?#% "):
                raise InvalidArgumentError(f"{name!r} cannot be the name of a model: it is a part of a path")
        self.models = {name: Model(name, folder, load) for name, folder in models.items()}
        self._application = Application(self.models, self.limits)
        self._socket = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.host, self.port = self._socket.getsockname()[:2]
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._started = threading.Event()
        self._serving: Any = None
        self._is_stopped = False

    @property
    def url(self) -> str:
        """The address of the server, to which paths are appended."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serves in this thread until SIGTERM or SIGINT, or `stop` in another thread.

        Args:
          ready: a function that is called when the models are loaded and the server answers.

        Raises:
          NotFoundError: no version of a model can be loaded; the text has the reason.
        """
        import uvicorn

        from headrace.serve import connections

        config = uvicorn.Config(
            self._application,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            **connections.options(self.limits),
        )
        self._serving = _serving(config, self._application, self.limits)
        self._serving.should_exit = self._is_stopped
        factory = config.get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._serve(ready))

    async def _serve(self, ready: Callable[[], None]) -> None:
        with blas.threads(1):  # held once for all steps, each of which would set it
            await self._serve_models(ready)

    async def _serve_models(self, ready: Callable[[], None]) -> None:
        executor = ThreadPoolExecutor(self.limits.threads + 1, "headrace-serve")
        looking = None
        try:
            for model in self.models.values():
                await model.update(self.limits, executor)
                if not model.is_loaded:
                    raise NotFoundError(
                        f"no version of the model {model.name!r} can be loaded:\n"
                        + "\n".join(f"{n}: {failure.text}" for n, failure in sorted(model.failures.items()))
                    )
            looking = asyncio.get_running_loop().create_task(self._look(executor))
            self._started.set()
            ready()
            await self._serving.serve([self._socket])
        finally:
            if looking is not None:
                looking.cancel()
            for model in self.models.values():
                await model.end()
            self._socket.close()
            executor.shutdown(wait=False, cancel_futures=True)

    async def _look(self, executor: ThreadPoolExecutor) -> None:
        """Replaces versions when newer ones appear."""
        while True:
            await asyncio.sleep(self.limits.poll_seconds)
            for model in self.models.values():
                try:
                    await model.update(self.limits, executor)
                except OSError as e:  # the folder is being replaced
                    LOG.warning("%s: no look for new versions: %s", model.name, e)

    def stop(self) -> None:
        """Orders the server to end; it answers the requests that it has."""
        self._is_stopped = True
        if self._serving is not None:
            self._serving.should_exit = True

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._in_thread, name="headrace-serve", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            self.stop()
            raise DeadlineExceededError(f"the models are not loaded after {_START_SECONDS:g} s")
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def _in_thread(self) -> None:
        try:
            self.run()
        except BaseException as e:
            self._error = e
        finally:
            self._started.set()

    def __exit__(self, *exc: object) -> None:
        self.stop()
        assert self._thread is not None
        seconds = self.limits.drain_seconds + self.limits.end_seconds + 5.0
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise DeadlineExceededError(f"the server did not end within {seconds:g} s")


def _require() -> None:
    try:
        import httptools  # noqa: F401
        import orjson  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as e:
        e.add_note("Serving models needs the extra 'serve': pip install 'headrace[serve]'")
        raise


def _serving(config: Any, application: Application, limits: Limits) -> Any:
    """The server library's server, with an end that loses no request."""
    import uvicorn

    class Serving(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Handles SIGTERM and SIGINT as the order to stop, without raising them again afterwards."""
            with super().capture_signals():
                yield
                self._captured_signals.clear()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            application.is_ending = True
            for server in self.servers:
                server.close()
            until = time.monotonic() + limits.drain_seconds
            while self.server_state.connections and time.monotonic() < until and not self.force_exit:
                await asyncio.sleep(0.02)
            await super().shutdown(sockets)

    return Serving(config)
