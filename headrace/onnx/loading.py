"""Models in ONNX's format as functions on tensors: `hr.onnx.load`."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import shapes, tracebacks
from headrace.api.tensors import constant_value, convert_to_tensor
from headrace.api.variable import Variable
from headrace.dtypes import SMALL_INTEGER, as_dtype, float4_e2m1fn, string
from headrace.errors import InvalidArgumentError, NotFoundError, SignatureError, UnimplementedError
from headrace.onnx import graphs
from headrace.onnx.element_types import array_of, dtype_of, sparse_array_of
from headrace.onnx.graphs import Graph, ValueInfo, value_info
from headrace.onnx.values import Optional, Sequence

if TYPE_CHECKING:
    import onnx

#: Smallest and largest version of the standard's operator set that are read.
OPSETS: Final = (1, 27)


class OnnxModel:
    """Model in ONNX's format: a function on tensors. `hr.onnx.load` makes it.

    A call takes the inputs by position or by name. It runs eagerly, in graphs and in jitted functions, and it is
    differentiable where its operators are.

    Args:
      graph: the model's main graph.
      inputs: the inputs without initializers.
      outputs: the outputs.
      initializers: the constants of the main graph by name.
      trained: the variables in place of initializers, by name.

    Attributes:
      inputs: names, dtypes and shapes of the inputs.
      outputs: names, dtypes and shapes of the outputs.
      initializers: arrays of the main graph's initializers by name, without those that are variables.
      variables: the variables in place of initializers, in the order of the model.

    Example:
      >>> import headrace as hr, onnx
      >>> hr.onnx.load(onnx.parser.parse_model('''
      ...     <ir_version: 10, opset_import: ["" : 21]>
      ...     double (float[n] x) => (float[n] y) { y = Add(x, x) }
      ... '''))
      <OnnxModel (x: float32[None]) -> (y: float32[None])>
    """

    def __init__(
        self,
        graph: Graph,
        inputs: tuple[ValueInfo, ...],
        outputs: tuple[ValueInfo, ...],
        initializers: Mapping[str, np.ndarray],
        trained: Mapping[str, Variable],
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.initializers = initializers
        self.variables = list(trained.values())
        self._graph = graph
        self._trained = trained

    @tracebacks.entry
    def __call__(self, *args: Any, **named: Any) -> Any:
        """Computes the outputs of the model.

        Args:
          args: inputs in their order: tensors, arrays or numbers; a list of them for a sequence; None for an optional
            value that is absent.
          named: inputs by their names.

        Returns:
          The output; a tuple of the outputs if the model has several. A sequence is a list of tensors, and an optional
          value that is absent is None, if this is known when the call returns.

        Raises:
          SignatureError (a TypeError and ValueError): an input is missing, unknown or given twice.
          InvalidArgumentError: the dtype or shape of an input is not the model's.
        """
        if len(args) > len(self.inputs):
            raise SignatureError(f"the model has {len(self.inputs)} inputs, got {len(args)}")
        given = dict(zip((i.name for i in self.inputs), args, strict=False))
        for name, value in named.items():
            if name in given:
                raise SignatureError(f"the input {name!r} is given by position and by name")
            given[name] = value
        scope: dict[str, Any] = {name: v.read_value() for name, v in self._trained.items()}
        for info in self.inputs:
            if info.name in given:
                scope[info.name] = _input(info, given.pop(info.name))
            elif info.name in self.initializers:
                scope[info.name] = convert_to_tensor(self.initializers[info.name])
            elif info.name not in scope:
                raise SignatureError(f"the input {info.name!r} is missing; the model has {_names(self.inputs)}")
        if given:
            raise SignatureError(f"the model has no inputs {sorted(given)}; it has {_names(self.inputs)}")
        results = self._graph.run([scope.pop(name) for name in self._graph.inputs], scope)
        outputs = tuple(map(_output, results))
        return outputs[0] if len(outputs) == 1 else outputs

    def __repr__(self) -> str:
        return f"<OnnxModel ({_names(self.inputs)}) -> ({_names(self.outputs)})>"


@tracebacks.entry
def load(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    trainable: bool = False,
    variables: Collection[str] | None = None,
) -> OnnxModel:
    """Loads a model in ONNX's format as a function on tensors.

    Operators become ops of headrace; `Loop`, `If` and `Scan` become its loops and conditionals. An operator without an
    entry in headrace's table runs by the function that the standard defines it by, if there is one
    (`headrace docs reference/onnx` lists all operators). Needs the extra `onnx`.

    Args:
      model: the path of a file, the bytes of one, or a message `onnx.ModelProto`. Only a path may have tensors in other
        files, which must be in the folder of the model.
      trainable: True makes all initializers of floating dtypes variables, False none.
      variables: names of the initializers that become variables, in place of `trainable`.

    Returns:
      The model.

    Raises:
      InvalidArgumentError: the model is damaged or violates the standard, or `variables` has an unknown name.
      UnimplementedError: headrace lacks an operator or an element type of the model; the text names the node.
      NotFoundError: there is no such file.
      ImportError: the package `onnx` is not installed.

    Source: the ONNX standard, https://onnx.ai/onnx/repo-docs/IR.html.

    Example:
      >>> import headrace as hr, onnx
      >>> model = hr.onnx.load(onnx.parser.parse_model('''
      ...     <ir_version: 10, opset_import: ["" : 21]>
      ...     double (float[n] x) => (float[n] y) { y = Add(x, x) }
      ... ''').SerializeToString())
      >>> model([1.0, 2.0]).numpy()
      array([2., 4.], dtype=float32)
    """
    try:
        import onnx
    except ImportError as e:
        e.add_note("hr.onnx needs the extra `onnx`: pip install 'headrace[onnx]'")
        raise

    folder: Path | None = None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.is_file():
            raise NotFoundError(f"there is no model file {os.fspath(model)!r}")
        folder = path.parent
        content = path.read_bytes()
        proto = _parsed(content, repr(os.fspath(model)))
    elif isinstance(model, bytes):
        proto = _parsed(model, "the bytes")
    elif isinstance(model, onnx.ModelProto):
        proto = model
    else:
        raise TypeError(f"'model' must be a path, bytes or an onnx.ModelProto, got {type(model).__name__}")
    opset = graphs.versions_of(proto)
    if not OPSETS[0] <= opset.get("", 1) <= max(OPSETS[1], onnx.defs.onnx_opset_version()):
        raise UnimplementedError(
            f"the model needs version {opset['']} of the operator set; the versions 1 to {OPSETS[1]} are read"
        )
    arrays = {t.name: _array(t, folder) for t in proto.graph.initializer}
    arrays |= {t.values.name: sparse_array_of(t) for t in proto.graph.sparse_initializer}
    functions = {(graphs.domain_of(f.domain), f.name): f for f in proto.functions}
    shared = graphs.Model(functions, opset)
    names = _variable_names(arrays, trainable, variables)
    trained = {n: Variable(arrays.pop(n), name=_variable_name(n)) for n in names}
    inputs = tuple(value_info(i) for i in proto.graph.input if i.name not in trained)
    graph_inputs = {i.name for i in inputs}
    constants = {n: a for n, a in arrays.items() if n not in graph_inputs}
    outer = frozenset(trained)
    outputs = tuple(map(value_info, proto.graph.output))
    main = Graph(
        shared,
        proto.graph.node,
        [i.name for i in inputs],
        [o.name for o in outputs],
        constants,
        outer,
        0,
        opset,
        infos=outputs,
    )
    return OnnxModel(main, inputs, outputs, arrays, trained)


def _parsed(content: bytes, what: str) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.ModelProto.FromString(content)
    except DecodeError as e:
        raise InvalidArgumentError(f"{what} is not a model of ONNX: {e}") from e
    if not proto.HasField("graph"):
        raise InvalidArgumentError(f"{what} is not a model of ONNX: it has no graph")
    return proto


def _array(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    """Elements of an initializer; those in a file of the folder are memory-mapped.

    Raises:
      InvalidArgumentError: the file is outside of the folder, or does not contain the range that the tensor needs.
    """
    import onnx

    if tensor.data_location != onnx.TensorProto.EXTERNAL or folder is None:
        return array_of(tensor)
    what = f"the tensor {tensor.name!r}"
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    root = folder.resolve()
    file = (root / location).resolve()
    if not location or not file.is_relative_to(root) or not file.is_file():
        raise InvalidArgumentError(f"{what} is in {location!r}, which is not a file in the folder of the model")
    dtype = dtype_of(tensor.data_type, what)
    shape = tuple(tensor.dims)
    packed = dtype in SMALL_INTEGER or dtype == float4_e2m1fn  # several elements to a byte
    if dtype == string or packed or any(d < 0 for d in shape):
        raise InvalidArgumentError(f"{what} of dtype {dtype.name} and shape {shape} cannot be in another file")
    size = dtype.numpy.itemsize * math.prod(shape)
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or size)
    except ValueError as e:
        raise InvalidArgumentError(f"{what} has an offset or a length that is not a number") from e
    if offset < 0 or length != size or offset + size > file.stat().st_size:
        raise InvalidArgumentError(
            f"{what} needs {size} bytes from {offset} of {location!r}, which has {file.stat().st_size}; length {length}"
        )
    if size == 0:
        return np.zeros(shape, dtype.numpy)
    return np.memmap(file, dtype.numpy, "r", offset, shape)


def _variable_names(arrays: Mapping[str, np.ndarray], trainable: bool, variables: Collection[str] | None) -> list[str]:
    """Names of the initializers that become variables, in the order of the model."""
    if variables is not None:
        unknown = sorted(set(variables) - set(arrays))
        if unknown:
            raise InvalidArgumentError(f"the model has no initializers {unknown}; it has {sorted(arrays)}")
        return [n for n in arrays if n in set(variables)]
    return [n for n, a in arrays.items() if trainable and as_dtype(a.dtype).is_floating]


def _variable_name(name: str) -> str:
    """A name that variables may have."""
    text = "".join(c if c.isascii() and (c.isalnum() or c in "_./-") else "_" for c in name)
    return text if text[:1].isalnum() else f"v{text}"


def _input(info: ValueInfo, value: Any) -> Any:
    """An input as a value of the graph.

    Raises:
      InvalidArgumentError: its dtype or shape is not the model's.
    """
    if info.kind.startswith("optional"):
        dtype = as_dtype("float32") if info.dtype is None else info.dtype
        if value is None:
            return Optional.empty(dtype, "sequence" in info.kind)
        inner = _input(info._replace(kind="sequence" if "sequence" in info.kind else "tensor"), value)
        return Optional(convert_to_tensor(True), inner)
    if info.kind == "sequence":
        if isinstance(value, Sequence):
            return value
        element = info._replace(kind="tensor")
        return Sequence.of([_input(element, x) for x in value], info.dtype or as_dtype("float32"))
    try:
        x = convert_to_tensor(value, info.dtype)
    except (TypeError, ValueError) as e:
        e.add_note(f"the input {info.name!r} of an ONNX model has dtype {info.dtype and info.dtype.name}")
        raise
    if not shapes.compatible(x.shape, info.shape):
        raise InvalidArgumentError(
            f"the input {info.name!r} has shape {info.shape}; the value given has shape {tuple(x.shape or ())}"
        )
    return x


def _output(value: Any) -> Any:
    """A value of the graph as the result of a call."""
    if isinstance(value, Optional):
        present = constant_value(value.present)
        if present is None:
            return value
        return _output(value.value) if present else None
    if isinstance(value, Sequence):
        return value if constant_value(value.length()) is None else value.elements()
    return value


def _names(infos: tuple[ValueInfo, ...]) -> str:
    return ", ".join(f"{i.name}: {i.dtype.name if i.dtype else '?'}{list(i.shape or ())}" for i in infos)
