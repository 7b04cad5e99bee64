"""SavedModels of TensorFlow 1, whose graphs become functions.

The graph is imported once. The resources that it creates (variables, tables) are made once, outside of graphs, and
each signature is traced as a function: the operations that its outputs need are copied, with the arguments in place of
the placeholders and the resources in place of the operations that create them. The operations that restore the
variables and fill the tables are functions of the same kind.

Reference variables become resource variables first, as in every step (`recover.references`).

Source: TensorFlow's `saved_model/load_v1_in_v2.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import dtypes, shapes, tracebacks
from headrace.api import recorder, scopes
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable, root_of
from headrace.errors import GraphError, HeadraceError, SignatureError, UnimplementedError
from headrace.interchange import files, saved_model
from headrace.interchange.meta_graph import import_meta_graph
from headrace.ir import walk
from headrace.ir.edit.copying import copy_into
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.recover.references import VARIABLES, handles_for_references, has_references
from headrace.saved_model.functions import traces_of
from headrace.saved_model.library import Library
from headrace.saved_model.objects import LoadedObject
from headrace.saved_model.resources import make_resource

if TYPE_CHECKING:
    from headrace.jit.concrete import ConcreteFunction as Trace
    from headrace.pb import MetaGraphDef, VariableDef

_TRAINABLE: Final = "trainable_variables"
_COLLECTIONS: Final = ("variables", _TRAINABLE)  # the collections that a model shows


def load_graph(meta: MetaGraphDef, folder: str | os.PathLike[str]) -> LoadedObject:
    """Returns the object of a graph of TensorFlow 1, with restored variables and filled tables.

    Args:
      meta: the MetaGraph.
      folder: the folder of the SavedModel.

    Returns:
      The object, with `signatures`, `variables`, `trainable_variables` and `graph`.

    Raises:
      GraphError: the graph is malformed, or an asset is outside of the folder.
    """
    assets = saved_model.asset_files(meta, folder)
    initializer = saved_model.initializer(meta)
    graph = scopes.Graph()
    with graph.all_or_nothing():
        import_meta_graph(_graph_only(meta), graph=graph)
    model = _GraphModel(graph, listed_variables(meta))
    saver = meta.saver_def
    if saver.restore_op_name:
        model.run(saver.restore_op_name, {saver.filename_tensor_name: saved_model.variables_path(folder)})
    if initializer is not None:
        model.run(initializer, assets)
    out = LoadedObject()
    found = vars(out)
    found["graph"] = graph
    found["variables"] = list(model.listed.values())
    found[_TRAINABLE] = [v for v in model.listed.values() if v.trainable]
    found["signatures"] = {
        name: _signature(model, name, meta.signature_def[name])
        for name in sorted(meta.signature_def)
        if name not in saved_model.NO_CALLS
    }
    return out


def _graph_only(meta: MetaGraphDef) -> MetaGraphDef:
    """Returns the MetaGraph without collections, signatures and saver, its functions with names of this load."""
    from headrace import pb

    graph_def = Library(meta.graph_def.library).of_graph(meta.graph_def)
    return pb.MetaGraphDef(graph_def=graph_def, meta_info_def=meta.meta_info_def)


def listed_variables(meta: MetaGraphDef) -> dict[str, bool]:
    """Returns the variables in the collections: name of the operation -> whether it is trainable."""
    from headrace import pb

    out: dict[str, bool] = {}
    for name in _COLLECTIONS:
        for data in meta.collection_def[name].bytes_list.value if name in meta.collection_def else ():
            found: VariableDef = files.read_message(pb.VariableDef, data)
            op = found.variable_name.partition(":")[0]
            out[op] = out.get(op, False) or name == _TRAINABLE
    return out


class _GraphModel:
    """Graph whose resources exist outside of graphs.

    Args:
      graph: the graph, which is changed.
      described: the variables in its collections: name of the operation -> whether it is trainable.

    Attributes:
      listed: the variables in the collections by name.
    """

    def __init__(self, graph: Graph, described: Mapping[str, bool]) -> None:
        self.graph = graph
        if has_references(graph):
            handles_for_references(graph, ())
        self._made: dict[Tensor, Any] = {}  # the output of an operation that creates a resource -> the resource
        shared: dict[Any, Any] = {}
        self.listed: dict[str, Variable] = {}
        for op in graph.operations:
            if not _creates(op):
                continue
            key = op.type, op.attrs.get("container", ""), op.attrs.get("shared_name") or op.name
            if key not in shared:
                made = make_resource(op, [])[0]
                is_trainable = described.get(op.name, False)
                shared[key] = Variable.of_handle(made, is_trainable) if op.type == "VarHandleOp" else made
            self._made[op.outputs[0]] = shared[key]
            if op.name in described:
                self.listed[op.name] = shared[key]
        self.listed = {name: self.listed[name] for name in described if name in self.listed}

    def run(self, target: str, feeds: Mapping[str, Any]) -> None:
        """Runs an operation once.

        Args:
          target: its name.
          feeds: texts by the names of tensors.

        Raises:
          GraphError: the graph has no such operation or tensor.
        """
        op = _element(self.graph, target.partition(":")[0] if ":" in target else target, "an operation to run")
        fed = {_tensor(self.graph, name, "a tensor to feed"): value for name, value in feeds.items()}
        specs = [TensorSpec(t.shape, t.dtype.base) for t in fed]
        GraphFunction(self, target, list(fed), specs, [], [op])(*fed.values())

    def create(self, given: Mapping[Tensor, Tensor], outputs: Sequence[Tensor], targets: Sequence[Operation]) -> Any:
        """Creates the operations that compute `outputs` in the current graph.

        Args:
          given: the tensors in place of placeholders.
          outputs: tensors of the graph.
          targets: operations to create although no output needs them.

        Returns:
          The tensors of the current graph.
        """
        b = scopes.builder()
        stop = {*given, *self._made}
        needed = walk.reachable([*(t.op for t in outputs if t not in stop), *targets], stop)
        moved = dict(given)
        ops = [op for op in walk.in_order(needed) if not (len(op.outputs) == 1 and op.outputs[0] in stop)]
        used = {t for op in ops for t in op.inputs} | set(outputs)
        for t in self._made:
            if t in used:
                x = self._made[t]
                if isinstance(x, Variable):
                    recorder.accessed(x)
                    x = x.handle
                moved[t] = b.tensor(x)
        unfed = next((op for op in ops if op.type in ("Placeholder", "PlaceholderV2")), None)
        if unfed is not None:
            raise SignatureError(f"the placeholder '{unfed.name}' is needed and is no input of the signature")
        root = root_of(b.graph)
        root.library.update(self.graph.library)  # under names that no other model has
        copy_into(b.graph, ops, moved)
        return [moved[t] for t in outputs]


def _creates(op: Operation) -> bool:
    """Whether an operation creates a resource.

    Raises:
      UnimplementedError: the resource is a reference that cannot exist outside of graphs.
    """
    if op.inputs or len(op.outputs) != 1:
        return False
    if op.type in VARIABLES:
        raise UnimplementedError(
            f"the reference variable '{op.name}' is used by an operation that only references have; load the model "
            "into a session (headrace.v1's tf.saved_model.load), or rebuild it with resource variables"
        )
    return op.outputs[0].dtype is dtypes.resource and op.type not in ("Placeholder", "_Arg")


class GraphFunction:
    """Signature of a loaded graph of TensorFlow 1.

    Args:
      model: the graph.
      name: the name of the signature.
      inputs: the placeholders.
      specs: the descriptions of the arguments, whose names are those of the signature.
      outputs: names and tensors of the results.
      targets: operations to run without a value.
    """

    def __init__(
        self,
        model: _GraphModel,
        name: str,
        inputs: Sequence[Tensor],
        specs: Sequence[TensorSpec],
        outputs: Sequence[tuple[str, Tensor]],
        targets: Sequence[Operation] = (),
    ) -> None:
        self.name = name
        self.inputs = list(specs)
        self._model, self._placeholders, self._outputs, self._targets = model, list(inputs), list(outputs), targets
        self.keywords = [s.name or "" for s in specs]
        self.structured_input_signature = ((), dict(zip(self.keywords, self.inputs, strict=True)))
        self.structured_outputs = {k: TensorSpec(t.shape, t.dtype.base, k) for k, t in outputs}
        self._traces = traces_of(self._apply, specs, self.keywords, repr(self))

    def _apply(self, *tensors: Any) -> dict[str, Any]:
        given = dict(zip(self._placeholders, tensors, strict=True))
        made = self._model.create(given, [t for _, t in self._outputs], self._targets)
        return {k: t for (k, _), t in zip(self._outputs, made, strict=True)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a dict of the results for tensors by name or by position."""
        try:
            names = self.keywords[len(args) :]
            if len(args) > len(self.keywords) or set(kwargs) != set(names):
                raise TypeError(
                    f"{self!r} takes {', '.join(self.keywords) or 'no arguments'}; got {len(args)} by position and "
                    f"{', '.join(kwargs) or 'none'} by name"
                )
            return self._traces((*args, *[kwargs[n] for n in names]), {})
        except BaseException as e:
            tracebacks.hide(e)
            raise

    def lower(self) -> Trace:
        """Returns the trace that runs the function outside of graphs, with its graph."""
        return self._traces.lower(tuple(self.inputs), {})

    def __repr__(self) -> str:
        shown = ", ".join(f"{s.name}: {s.dtype.name}{shapes.show(s.shape)}" for s in self.inputs)
        return f"<loaded signature {self.name!r}: ({shown})>"


def _signature(model: _GraphModel, name: str, saved: Any) -> Any:
    inputs, specs = [], []
    for key in sorted(saved.inputs):
        t = _dense(model.graph, saved.inputs[key], f"the input {key!r} of the signature {name!r}")
        inputs.append(t)
        specs.append(TensorSpec(t.shape, t.dtype.base, key))
    outputs = [
        (key, _dense(model.graph, saved.outputs[key], f"the output {key!r} of the signature {name!r}"))
        for key in sorted(saved.outputs)
    ]
    return GraphFunction(model, name, inputs, specs, outputs)


def _dense(graph: Graph, info: Any, where: str) -> Tensor:
    if info.WhichOneof("encoding") != "name":
        raise UnimplementedError(
            f"{where} is a tensor of several parts; load the model into a session (headrace.v1's tf.saved_model.load)"
        )
    return _tensor(graph, info.name, where)


def _tensor(graph: Graph, name: str, where: str) -> Tensor:
    found = _element(graph, name if ":" in name else f"{name}:0", where)
    if not isinstance(found, Tensor):
        raise GraphError(f"{where}: {name!r} is an operation, not a tensor")
    return found


def _element(graph: Graph, name: str, where: str) -> Any:
    try:
        return graph.get_tensor_by_name(name) if ":" in name else graph.get_operation_by_name(name)
    except HeadraceError as e:
        raise GraphError(f"{where}: {name!r} is not in the graph") from e
    except (KeyError, ValueError) as e:
        raise GraphError(f"{where}: {name!r} is not in the graph: {e.args[0]}") from e
