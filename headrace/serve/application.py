"""The paths of the service and its errors, as an ASGI application.

| request | answer |
|---|---|
| `POST /v1/models/NAME[/versions/N]:predict` | the results of a signature (`predict`) |
| `GET /v1/models/NAME[/versions/N]` | the state of the versions |
| `GET /v1/models/NAME[/versions/N]/metadata` | the signatures |

An error is `{"error": "..."}` with the status that TensorFlow Serving gives its class. A model's own error, such as a
failed assertion, is the client's (400) if its class is; an error of no class of headrace's is a fault of the server
(500), and is logged with its traceback.

Source: TensorFlow Serving's "RESTful API"; ASGI 3.0.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from headrace import dtypes, errors
from headrace.errors import NotFoundError, OpError
from headrace.serve import predict
from headrace.serve.limits import Limits
from headrace.serve.models import Model, Version
from headrace.serve.runners import ServingSignature

LOG: Final = logging.getLogger("headrace.serve")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: The status of an error by its class; the first class that fits counts.
STATUS: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (errors.NotFoundError, 404),
    (errors.PermissionDeniedError, 403),
    (errors.UnauthenticatedError, 401),
    (errors.AlreadyExistsError, 409),
    (errors.AbortedError, 409),
    (errors.ResourceExhaustedError, 429),
    (errors.UnimplementedError, 501),
    (errors.UnavailableError, 503),
    (errors.DeadlineExceededError, 504),
    (errors.CancelledError, 499),
    (errors.InternalError, 500),
    (errors.UnknownError, 500),
    (errors.DataLossError, 500),
    (OpError, 400),
    (errors.FeedError, 400),
)

_PATH: Final = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d{1,18}))?(?::(\w+)|/(metadata))?")
_JSON: Final = (b"content-type", b"application/json")
_SIGNATURES: Final = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
_CLOSE: Final = (b"connection", b"close")
_KNOWN_PATHS: Final = 1000


class Application:
    """ASGI application that answers for models.

    Args:
      models: the models by name.
      limits: sizes and times.

    Attributes:
      is_ending: whether responses tell clients to close their connections.
    """

    def __init__(self, models: Mapping[str, Model], limits: Limits) -> None:
        self._models = models
        self._limits = limits
        self._routes: dict[str, tuple[Model, int | None, str]] = {}
        self.is_ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request.

        Args:
          scope: the request without its body.
          receive: the function that returns parts of the body.
          send: the function that takes parts of the response.
        """
        if scope["type"] != "http":
            return
        status = 200
        try:
            body = await self._answer(scope, receive)
        except _Refused as e:
            status, body = e.status, _error(str(e))
        except asyncio.CancelledError:
            raise
        except Exception as e:
            status, body = status_of(e), _error(_text(e))
            if status == 500:
                LOG.error("%s %s failed", scope["method"], scope["path"], exc_info=e)
        headers = [_JSON, (b"content-length", str(len(body)).encode())]
        if self.is_ending or status in (408, 413):
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        model, number, verb = self._route(scope["path"])
        method = scope["method"]
        if method != ("POST" if verb in _VERBS else "GET"):
            raise _Refused(405, f"{method} {scope['path']}: use {'POST' if verb in _VERBS else 'GET'}")
        if verb == "predict":
            body = await self._body(scope, receive)
            version = self._version(model, number)
            request = predict.parse(body)
            signature = version.signature(request.signature_name)
            values = await version.submit(request.signature_name, predict.arguments(request, signature))
            return predict.response(request, signature, values)
        if verb == "metadata":
            return _dumped(_metadata(model, self._version(model, number)))
        if verb:
            raise _Refused(501, f"{verb!r} is not served; use predict with the signature's arguments")
        return _dumped({"model_version_status": _states(model, number)})

    def _route(self, path: str) -> tuple[Model, int | None, str]:
        found = self._routes.get(path)
        if found is None:
            match = _PATH.fullmatch(path)
            if match is None or (match[3] is not None and match[3] not in _VERBS):
                raise _Refused(404, f"{path[:200]!r}: expected /v1/models/NAME[/versions/N][:predict|/metadata]")
            model = self._models.get(match[1])
            if model is None:
                raise NotFoundError(f"no model {match[1][:200]!r}; the models are {', '.join(sorted(self._models))}")
            found = model, None if match[2] is None else int(match[2]), match[3] or match[4] or ""
            if len(self._routes) < _KNOWN_PATHS:
                self._routes[path] = found
        return found

    async def _body(self, scope: Scope, receive: Receive) -> bytes | bytearray:
        most = self._limits.body_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > most:  # the parser accepts digits only
                raise _Refused(413, f"the body has {int(value):,} bytes; the limit is {most:,}")
        message = await receive()
        body: bytes | bytearray = message.get("body", b"")
        while True:
            if len(body) > most:
                raise _Refused(413, f"the body has more than {most:,} bytes, the limit")
            if not message.get("more_body"):
                return body
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Refused(400, "the connection ended before the body")
            body = bytearray(body) if isinstance(body, bytes) else body
            body += message.get("body", b"")

    @staticmethod
    def _version(model: Model, number: int | None) -> Version:
        version = model.version
        if number is not None and number != version.number:
            raise NotFoundError(f"version {number} of the model {model.name!r} is not loaded; {version.number} is")
        return version


_VERBS: Final = ("predict", "classify", "regress")


class _Refused(Exception):
    """An answer with a status of HTTP that no class of headrace's errors has.

    Attributes:
      status: the status.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def status_of(error: BaseException) -> int:
    """The status of HTTP for an error.

    Args:
      error: the error.
    """
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def _text(error: BaseException) -> str:
    if not isinstance(error, errors.HeadraceError):
        return "internal error of the server; its log has the cause"
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def _error(text: str) -> bytes:
    return _dumped({"error": text.encode(errors="backslashreplace").decode()})


def _dumped(content: Any) -> bytes:
    import orjson

    return orjson.dumps(content)


# *** states and metadata ***


def _states(model: Model, number: int | None) -> list[dict[str, Any]]:
    loaded = model.version.number if model.is_loaded else None
    states = {n: _state(n, "END", 2, failure.text) for n, failure in model.failures.items()}
    if loaded is not None:
        states[loaded] = _state(loaded, "AVAILABLE", 0, "")
    if number is not None and number not in states:
        raise NotFoundError(f"version {number} of the model {model.name!r} is not loaded")
    return [states[n] for n in sorted(states, reverse=True) if number in (None, n)]


def _state(number: int, state: str, code: int, text: str) -> dict[str, Any]:
    status = {"error_code": "OK" if code == 0 else "UNKNOWN", "error_message": text}
    return {"version": str(number), "state": state, "status": status}


def _metadata(model: Model, version: Version) -> dict[str, Any]:
    signatures = {name: _signature(s) for name, s in version.signatures.items()}
    return {
        "model_spec": {"name": model.name, "signature_name": "", "version": str(version.number)},
        "metadata": {"signature_def": {"@type": _SIGNATURES, "signature_def": signatures}},
    }


def _signature(signature: ServingSignature) -> dict[str, Any]:
    return {
        "inputs": {name: _tensor(spec) for name, spec in signature.inputs.items()},
        "outputs": {name: _tensor(spec) for name, spec in signature.outputs.items()},
        "method_name": signature.method_name,
    }


def _tensor(spec: Any) -> dict[str, Any]:
    dims = spec.shape
    sizes = [{"size": str(-1 if n is None else n), "name": ""} for n in dims or ()]
    shape = {"dim": sizes, "unknown_rank": dims is None}
    return {"dtype": _name(spec.dtype), "tensor_shape": shape, "name": spec.name or ""}


def _name(dtype: dtypes.DType) -> str:
    from headrace import pb

    return pb.DataType.Name(dtype.as_datatype_enum)
