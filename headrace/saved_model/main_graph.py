"""The graph of a SavedModel that calls the functions by signature, for `tf.compat.v1.saved_model.load` and servers.

It has a handle for each variable and table, a constant for each captured tensor, placeholders and a call for each
signature, the operations of a saver, and an initializer that fills the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import dtypes, pb
from headrace.interchange.saved_model import INIT_SIGNATURE
from headrace.ir.serial.attrs import encode_shape, encode_tensor
from headrace.ir.serial.nodedefs import FUNCTIONS_SINCE, GRAPH_DEF_VERSION
from headrace.saved_model.traces import call_of

if TYPE_CHECKING:
    from headrace.api.tensor_spec import TensorSpec
    from headrace.pb import FunctionDef, MetaGraphDef
    from headrace.pb.saved_object_graph_pb2 import SavedVariable

_PREDICT: Final = "tensorflow/serving/predict"


class MainGraph:
    """Main graph in a MetaGraph that is being written.

    Args:
      meta: the MetaGraph.

    Attributes:
      functions: the functions of the library by name.
    """

    def __init__(self, meta: MetaGraphDef) -> None:
        self.functions: dict[str, FunctionDef] = {}
        self._meta = meta
        self._graph = meta.graph_def
        self._graph.versions.producer = GRAPH_DEF_VERSION
        self._graph.versions.min_consumer = FUNCTIONS_SINCE
        self._taken: set[str] = set()
        self._of_node: dict[int, str] = {}  # number of an object -> name of its tensor
        self._variables: list[tuple[str, SavedVariable, str]] = []
        self._fills: list[str] = []

    def add_functions(self, functions: Iterable[FunctionDef]) -> None:
        """Adds functions to the library."""
        for f in functions:
            self.functions[f.signature.name] = f

    def add_variable(self, number: int, variable: SavedVariable, key: str) -> None:
        """Adds the handle of a variable.

        Args:
          number: the number of its object.
          variable: its description.
          key: the key of its value in the checkpoint.
        """
        name = self._free(variable.name)
        attrs = {"dtype": pb.AttrValue(type=variable.dtype), "shape": pb.AttrValue(shape=variable.shape)}
        attrs |= {"shared_name": pb.AttrValue(s=name.encode()), "container": pb.AttrValue(s=b"")}
        self._of_node[number] = self._add(name, "VarHandleOp", (), attrs)
        self._variables.append((name, variable, key))

    def add_constant(self, number: int, value: np.ndarray, dtype: dtypes.DType) -> str:
        """Adds a captured tensor; returns the name of the operation."""
        self._of_node[number] = self._constant("Const", value, dtype)
        return self._of_node[number]

    def add_table(self, number: int, create: FunctionDef, initialize: FunctionDef) -> None:
        """Adds the handle of a table and the call that fills it."""
        made = self._call(create, "table", ())
        self._of_node[number] = made
        self._fills.append(self._call(initialize, "fill_table", [made]))

    def add_signature(
        self,
        name: str,
        f: FunctionDef,
        inputs: Mapping[str, TensorSpec],
        outputs: Mapping[str, TensorSpec],
        bound: Sequence[int],
    ) -> None:
        """Adds the call of a signature.

        Args:
          name: the name of the signature.
          f: the function, which takes its arguments in the order of their names.
          inputs, outputs: the arguments, and the results in order, by name.
          bound: the numbers of the objects of the captured tensors.
        """
        signature = self._meta.signature_def[name]
        signature.method_name = _PREDICT
        given = []
        for key in sorted(inputs):
            spec = inputs[key]
            attrs = {"dtype": pb.AttrValue(type=spec.dtype.base.number)}  # type: ignore[arg-type]
            attrs["shape"] = pb.AttrValue(shape=encode_shape(spec.shape))
            given.append(self._add(self._free(f"{name}_{key}"), "Placeholder", (), attrs))
            signature.inputs[key].CopyFrom(_info(f"{given[-1]}:0", spec))
        call = self._call(f, "StatefulPartitionedCall", [*given, *(self._of_node[i] for i in bound)])
        for i, (key, spec) in enumerate(outputs.items()):
            signature.outputs[key].CopyFrom(_info(f"{call}:{i}", spec))

    def finish(self) -> None:
        """Adds the operations of the saver, the initializer and the library."""
        self._add_saver()
        init = self._add(self._free("init"), "NoOp", [f"^{name}" for name in self._fills], {})
        info = self._meta.signature_def[INIT_SIGNATURE].outputs[INIT_SIGNATURE]
        info.name = init
        info.tensor_shape.unknown_rank = True
        self._graph.library.function.extend(self.functions.values())

    def _add_saver(self) -> None:
        text = pb.AttrValue(type=dtypes.string.number)  # type: ignore[arg-type]
        prefix = self._add(self._free("saver_filename"), "Placeholder", (), {"dtype": text})
        saver = self._meta.saver_def
        saver.filename_tensor_name = f"{prefix}:0"
        saver.version = pb.SaverDef.V2
        keys = np.array([key.encode() for _, _, key in self._variables], object)
        names = self._constant("saver/names", keys, dtypes.string)
        slices = self._constant("saver/slices", np.full(len(keys), b"", object), dtypes.string)
        types = pb.AttrValue(list=pb.AttrValue.ListValue(type=[v.dtype for _, v, _ in self._variables]))
        values = []
        for name, v, _ in self._variables:
            read = self._free(f"{name}/Read/ReadVariableOp")
            values.append(self._add(read, "ReadVariableOp", [name], {"dtype": pb.AttrValue(type=v.dtype)}))
        save, assigned = [], []
        if values:  # the operations of a checkpoint take one value at least
            inputs = [prefix, names, slices]
            written = self._add(self._free("saver/SaveV2"), "SaveV2", [*inputs, *values], {"dtypes": types})
            save = [f"^{written}"]
            restored = self._add(self._free("saver/RestoreV2"), "RestoreV2", inputs, {"dtypes": types})
            for i, (name, v, _) in enumerate(self._variables):
                attrs = {"dtype": pb.AttrValue(type=v.dtype), "validate_shape": pb.AttrValue(b=False)}
                assign = self._free("saver/AssignVariableOp")
                assigned.append(f"^{self._add(assign, 'AssignVariableOp', [name, f'{restored}:{i}'], attrs)}")
        saved = self._add(self._free("saver/saved"), "Identity", [prefix, *save], {"T": text})
        saver.save_tensor_name = f"{saved}:0"
        saver.restore_op_name = self._add(self._free("saver/restore_all"), "NoOp", assigned, {})

    def _constant(self, name: str, value: np.ndarray, dtype: dtypes.DType) -> str:
        tensor = encode_tensor(value)
        tensor.dtype = dtype.base.number  # type: ignore[assignment]
        attrs = {"value": pb.AttrValue(tensor=tensor), "dtype": pb.AttrValue(type=tensor.dtype)}
        return self._add(self._free(name), "Const", (), attrs)

    def _call(self, f: FunctionDef, name: str, inputs: Sequence[str]) -> str:
        node = self._graph.node.add()
        node.CopyFrom(call_of(f, self._free(name), inputs))
        return node.name

    def _free(self, name: str) -> str:
        made, n = name, 0
        while made in self._taken:
            n += 1
            made = f"{name}_{n}"
        self._taken.add(made)
        return made

    def _add(self, name: str, op: str, inputs: Iterable[str], attrs: Mapping[str, pb.AttrValue]) -> str:
        self._graph.node.add(name=name, op=op, input=inputs, attr=attrs)
        return name


def _info(name: str, spec: TensorSpec) -> pb.TensorInfo:
    return pb.TensorInfo(name=name, dtype=spec.dtype.base.number, tensor_shape=encode_shape(spec.shape))  # type: ignore[arg-type]
