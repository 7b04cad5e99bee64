"""`hr.serve`: models over HTTP, also as the command `headrace serve DIR`.

| module | subject |
|---|---|
| `runners` | a model: signatures, and a function from arrays to arrays; that of a SavedModel |
| `predict` | the JSON of requests and responses |
| `batching` | requests that wait run as one step |
| `models` | the versions of a model, found in its folder and replaced without an interruption |
| `application` | the paths of the service and its errors |
| `connections` | deadlines and sizes of a connection |
| `limits` | the numbers of all limits |
| `server` | the server: start, orderly end |

Requests and responses have TensorFlow Serving's REST format.
"""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.serve.limits import Limits
from headrace.serve.runners import Runner, SavedModelRunner, ServingSignature
from headrace.serve.server import Server

__all__ = ["Limits", "Runner", "SavedModelRunner", "Server", "ServingSignature"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
