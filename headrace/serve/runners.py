"""Models as the server calls them: signatures, and a function from arrays to arrays.

A `Runner` is any object with signatures and `run`. `SavedModelRunner` has the graph of a SavedModel in a session, with
one compiled step for each signature. Other runners put another system, or plain Python, behind the same server.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from headrace.api.scopes import Graph
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import GraphError
from headrace.interchange import meta_graph, saved_model
from headrace.ir import order, walk
from headrace.ir.tensor_type import Tensor
from headrace.metadata import RunOptions
from headrace.records import record
from headrace.session import Session

if TYPE_CHECKING:
    from headrace.interchange.meta_graph import Signature

DEFAULT: Final = "serving_default"
TAGS: Final = ("serve",)


@record(frozen=True)
class ServingSignature:
    """A call of a model.

    Attributes:
      inputs: the descriptions of the arguments by name.
      outputs: the descriptions of the results by name.
      method_name: the kind of the call ("tensorflow/serving/predict").
      writes: whether a call changes variables or other state of the model.

    Example:
      >>> import headrace as hr
      >>> rows = hr.TensorSpec((None, 2), hr.float32)
      >>> hr.serve.ServingSignature({"x": rows}, {"y": rows}).is_batched
      True
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method_name: str = ""
    writes: bool = False

    @property
    def is_batched(self) -> bool:
        """Whether requests can be joined.

        All arguments and results have a first dimension of unknown size, that of the batch, and a call has no effects:
        those of a batch are not those of single calls.
        """
        every = [*self.inputs.values(), *self.outputs.values()]
        return bool(self.inputs) and not self.writes and all(_has_open_rows(spec) for spec in every)


def _has_open_rows(spec: TensorSpec) -> bool:
    dims = spec.shape
    return dims is not None and len(dims) > 0 and dims[0] is None


class Runner(Protocol):
    """A model for the server.

    Example:
      >>> import headrace as hr
      >>> class Doubles:
      ...     def __init__(self, path):
      ...         spec = hr.TensorSpec((None,), hr.float32)
      ...         self.signatures = {"serving_default": hr.serve.ServingSignature({"x": spec}, {"y": spec})}
      ...
      ...     def run(self, signature, inputs, timeout_ms):
      ...         return [inputs[0] * 2]
      ...
      ...     def close(self):
      ...         pass
      >>> runner: hr.serve.Runner = Doubles("path of a version")
    """

    @property
    def signatures(self) -> Mapping[str, ServingSignature]:
        """The calls by name."""
        ...

    def run(self, signature: str, inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        """Calls a signature; several threads may call at the same time.

        Args:
          signature: its name.
          inputs: the arguments in the order of the signature. Their dtypes and shapes fit it.
          timeout_ms: time limit in milliseconds.

        Returns:
          The results in the order of the signature.
        """

    def close(self) -> None:
        """Ends the model. No call is running, and none follows."""


class SavedModelRunner:
    """A SavedModel in a session of its own.

    The graph is imported, the variables are restored and the initializer runs with the assets of the folder. The step
    of a signature is compiled by its first call.

    Args:
      folder: the path of the SavedModel.
      tags: the tags of the graph.

    Raises:
      FileNotFoundError: the folder has no SavedModel.
      RuntimeError: no graph has these tags.
      GraphError: the graph, a signature or an asset is malformed, or there is no signature to call.
      NotFoundError, DataLossError: a file with values of variables is missing or damaged.

    Example:
      >>> import headrace.v1 as tf, os, tempfile
      >>> from headrace.serve import SavedModelRunner
      >>> folder = tempfile.TemporaryDirectory()
      >>> path = os.path.join(folder.name, "model")
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.placeholder(tf.float32, [None])
      ...     tf.saved_model.simple_save(sess, path, {"x": x}, {"y": x * 2.0})
      >>> runner = SavedModelRunner(path)
      >>> runner.run("serving_default", [np.array([1, 2], np.float32)], timeout_ms=1000)
      [array([2., 4.], dtype=float32)]
      >>> runner.close()
      >>> folder.cleanup()
    """

    def __init__(self, folder: str | os.PathLike[str], tags: Sequence[str] = TAGS) -> None:
        meta = saved_model.with_tags(saved_model.read(folder), tags)
        assets = saved_model.asset_files(meta, folder)
        initializer = saved_model.initializer(meta)
        calls = {name for name in meta.signature_def if name not in saved_model.NO_CALLS}
        for name in saved_model.NO_CALLS:
            meta.signature_def.pop(name, None)
        if not calls:
            raise GraphError(f"{os.fspath(folder)}: the SavedModel has no signature to call; save it with one")
        graph = Graph()
        found = meta_graph.import_meta_graph(meta, graph=graph)
        self._calls: dict[str, Signature] = found.signatures
        self.signatures: Mapping[str, ServingSignature] = {
            name: ServingSignature(_specs(s.inputs), _specs(s.outputs), s.method_name, _writes(s.outputs.values()))
            for name, s in found.signatures.items()
            if all(isinstance(t, Tensor) for t in s.outputs.values())
        }
        self._steps: dict[str, Callable[..., Any]] = {}
        self._making = threading.Lock()
        self._session = Session(graph=graph)
        try:
            self._restore(graph, saved_model.variables_path(folder))
            if initializer is not None:
                self._session.run(graph.get_operation_by_name(initializer.partition(":")[0]), assets)
        except BaseException:
            self._session.close()
            raise

    def _restore(self, graph: Graph, path: str) -> None:
        saver = graph.saver_def
        if saver is not None and saver.restore_op_name:
            self._session.run(graph.get_operation_by_name(saver.restore_op_name), {saver.filename_tensor_name: path})

    def run(self, signature: str, inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        """Calls a signature; see `Runner.run`.

        Args:
          signature: its name.
          inputs: the arguments in the order of the signature.
          timeout_ms: time limit in milliseconds, after which the call fails with `DeadlineExceededError`.
        """
        step = self._steps.get(signature) or self._step(signature)
        found: list[np.ndarray] = step(*inputs, options=RunOptions(timeout_ms))
        return found

    def _step(self, signature: str) -> Callable[..., Any]:
        with self._making:
            if signature not in self._steps:
                call = self._calls[signature]
                self._steps[signature] = self._session.make_callable(
                    list(call.outputs.values()), list(call.inputs.values()), accept_options=True
                )
            return self._steps[signature]

    def close(self) -> None:
        """Releases the variables and other resources."""
        self._session.close()


def _writes(outputs: Iterable[Any]) -> bool:
    """Whether the step of these outputs changes state that outlives it, random generators aside."""
    ops = walk.reachable([t.op for t in outputs])
    return any(
        writes and not (isinstance(key, tuple) and key[0] == "random")
        for op in ops
        for key, writes in order.effects(op).items()
    )


def _specs(tensors: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(t.shape, t.dtype.base, t.name) for name, t in tensors.items() if isinstance(t, Tensor)}
