"""Models in one call: `hr.save` and `hr.load`.

A file is a checkpoint in headrace's format. The values of variables and arrays are tensors under readable names. Three
more tensors have the version of the form, the names of the variables in the order of the model, and a `SavedModel`
message: the functions, and the objects of the model with the nodes of their values (`items`, `kinds`). Two models of
the same making have the same variables in the same order, but not with the same names: the second `Dense` of a process
is "dense_1". So `hr.load(path, model)` assigns values in their order.
"""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar, overload

import numpy as np

from headrace import shapes, tracebacks
from headrace.api import scopes
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable
from headrace.errors import DataLossError, GraphError, InvalidArgumentError, UnimplementedError
from headrace.files import checkpoints, commit
from headrace.interchange import saved_model
from headrace.interchange.object_graphs import OBJECT_GRAPH
from headrace.jit.function import Function
from headrace.saved_model import functions as loaded
from headrace.saved_model.items import Items, variables_in
from headrace.saved_model.model import VARIABLES, Model
from headrace.saved_model.object_graph import ObjectGraph
from headrace.saved_model.objects import LoadedObject
from headrace.saved_model.tree import LEAVES, Item
from headrace.train.saving import values
from headrace.train.saving.restoring import assign, prefix_of

M = TypeVar("M")

VERSION: Final = 1
VERSION_KEY: Final = "_headrace/version"
NAMES_KEY: Final = "_headrace/variables"  # the names of the variables, in the order of the model
MESSAGE_KEY: Final = "_headrace/model"  # the `SavedModel` message; missing if the variables belong to a graph
_RESERVED: Final = (VERSION_KEY, NAMES_KEY, MESSAGE_KEY, OBJECT_GRAPH)

_NOTHING: Final = "the model has no variables and no functions to save; a layer has none before its first call"

# Children of the root.
_MODEL: Final = "model"
_CONSTRAINTS: Final = "constraints"


@tracebacks.entry
def save(path: str | os.PathLike[str], model: Any, session: Any = None) -> str:
    """Writes a model to one file: variables, functions, and the Python structure. Writing is atomic.

    A model is a function under `hr.jit`, a layer, an optimizer, a variable, a table, an object with attributes, or a
    list, tuple or dict of them. Tensors, arrays, numbers, text, bytes and None in it are saved, too.

    * Of a function each trace is saved. One with an `input_signature` need not have been called.
    * Of a layer the call is traced as it was first called, with batches of any size, and with `training=False` and
      `training=True` if it has this parameter.
    * Attributes of objects that are of other kinds are left out; a method that was never called has no traces.

    Args:
      path: prefix of the file's name.
      model: the model. A variable that occurs twice is written once.
      session: the session with the values of a graph's variables; None: the variables are eager ones. The variables of
        a graph are saved without functions and structure.

    Returns:
      The path.

    Raises:
      InvalidArgumentError: the model has no variables and no functions (a layer has none before its first call).
      TypeError: an element of the model is of another kind; the text says which.
      GraphError: a function was never traced, has arguments that a file cannot describe, or calls Python code
        (`hr.py_func`); or a layer cannot be traced.
      FailedPreconditionError: a variable has no value yet.
      ValueError: the variables are a graph's, and there is no session.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> dense = hr.layers.Dense(1, kernel_initializer="ones")
      >>> predict = hr.jit(lambda x: 2.0 * dense(x), input_signature=[hr.TensorSpec((None, 2))])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = hr.save(os.path.join(folder, "model"), {"layer": dense, "predict": predict, "epoch": 3})
      ...     model = hr.load(path)
      >>> model["predict"]([[1.0, 2.0]]).numpy(), model["epoch"]
      (array([[6.]], dtype=float32), 3)
      >>> model["layer"].kernel.assign([[1.0], [0.0]]).shape, model["predict"]([[1.0, 2.0]]).numpy()
      ((2, 1), array([[2.]], dtype=float32))
    """
    prefix = os.fspath(path)
    variables = variables_in(model)
    if any(v.graph is not None for v in variables):
        taken = set(_RESERVED)
        order = [_free(_name_of(v), taken) for v in variables]
        named: dict[str, Any] = dict(zip(order, _session_for(variables, session).run(variables), strict=True))
    else:
        if not scopes.is_outside():
            raise GraphError("hr.save is called while a graph is built; call it outside of graphs and functions")
        described = _Description(model, variables)
        order, named = described.order, described.values
        named[MESSAGE_KEY] = np.array(described.message.SerializeToString(deterministic=True), object)
    named[NAMES_KEY] = np.array([name.encode() for name in order], object)
    named[VERSION_KEY] = np.int64(VERSION)
    commit.ready(prefix)
    checkpoints.write(prefix, named)
    return prefix


@overload
def load(path: str | os.PathLike[str], model: None = None, session: Any = None) -> Any: ...


@overload
def load(path: str | os.PathLike[str], model: M, session: Any = None) -> M: ...


@tracebacks.entry
def load(path: str | os.PathLike[str], model: Any = None, session: Any = None) -> Any:
    """Returns the model in a file of `save`, or assigns its values to a model.

    Without `model`, the result has the structure of the saved model:

    * Functions are called, differentiated and jitted as before, for the signatures in the file.
    * Layers are layers: they have variables, losses of variables, attributes and the layers inside, and `training`.
      They compute for the shapes of the saved traces, and `with_values` does not change what they compute.
    * Optimizers and schedules of headrace continue with their slots and counters.
    * Objects of other classes have the saved attributes, `variables` and `trainable_variables`.
    * Variables that were shared are shared, lists are lists, and tuples are tuples.

    Nothing in the file is executed but the operations of its functions, when they are called.

    With `model`, which is of the same making as the saved one, all shapes and dtypes are compared before any value is
    assigned.

    Args:
      path: as given to `save`.
      model: the model to whose variables the values are assigned; None: the saved model is made again.
      session: see `save`.

    Returns:
      The model. Without `model`, for a file with a graph's variables, or of a version of headrace that saved no more
      than variables: a dict from their names to arrays.

    Raises:
      NotFoundError: there is no such file.
      InvalidArgumentError: the given model has another number of variables, or one of another shape or dtype.
      DataLossError: the file is damaged, or is not one of `save`.
      GraphError: the description of the model in the file is malformed.
      UnimplementedError: a later version of headrace wrote the file.
      ValueError: the variables are a graph's, and there is no session.

    Example: see `save`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = hr.save(os.path.join(folder, "v"), hr.Variable([1.0, 2.0]))
      ...     other = hr.load(path, hr.Variable([0.0, 0.0]))
      >>> other.numpy()
      array([1., 2.], dtype=float32)
    """
    reader = checkpoints.open(prefix_of(path))
    if model is None and MESSAGE_KEY in reader.entries:
        return _model_in(reader)
    names, found = _variables(reader) if VERSION_KEY in reader.entries else _old_variables(reader)
    if model is None:
        return dict(zip(names, found, strict=True))
    variables = variables_in(model)
    if len(variables) != len(found):
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} has the values of {len(found)} variables and the model has {len(variables)}; a layer "
            "has none before its first call"
        )
    for v, name, value in zip(variables, names, found, strict=True):
        if v.dtype.base.numpy != value.dtype or not shapes.fits(value.shape, v.shape):
            raise InvalidArgumentError(
                f"the variable {v.name!r} has dtype {v.dtype.base.name} and shape {v.shape}; its value in "
                f"{os.fspath(path)!r}, of {name!r}, has dtype {value.dtype} and shape {value.shape}"
            )
    assign(_session_for(variables, session), zip(variables, found, strict=True))
    return model


# *** out ***


class _Description(Model):
    """Message and values of a model.

    Args:
      model: the model.
      variables: its variables.

    Attributes:
      order: the names of the variables.
    """

    _is_portable = False

    def __init__(self, model: Any, variables: list[Variable]) -> None:
        self._taken = set(_RESERVED)
        self._keys: dict[int, str] = {}
        constraints = [(v, _function_of(v.constraint, v)) for v in variables if v.constraint is not None]
        items = Items()
        children = {_MODEL: items.of(model), VARIABLES: items.of(variables), _CONSTRAINTS: items.of(constraints)}
        super().__init__(Item(children), None, ())
        if not any(self._tree.leaves(LEAVES)):
            raise InvalidArgumentError(_NOTHING)
        known = {id(x): i for i, x in self._tree.leaves(Variable)}
        self.order = [self._key(known[id(v)]) for v in variables]

    def _key(self, i: int) -> str:
        if i not in self._keys:
            x = self._tree.nodes[i]
            name = _name_of(x) if isinstance(x, Variable) else self._tree.paths[i]
            self._keys[i] = _free(name, self._taken)
        return self._keys[i]


def _function_of(constraint: Any, v: Variable) -> Any:
    is_loaded = isinstance(constraint, loaded.Function)
    return constraint if is_loaded else Function(constraint, [TensorSpec(v.shape, v.dtype)])


def _name_of(v: Variable) -> str:
    return v.name.partition(":")[0]


def _free(name: str, taken: set[str]) -> str:
    """Returns a name like `name` that is not taken, and adds it."""
    made, n = name, 0
    while made in taken:
        n += 1
        made = f"{name}_{n}"
    taken.add(made)
    return made


def _session_for(variables: list[Variable], session: Any) -> Any:
    if session is None and any(v.graph is not None for v in variables):
        name = next(v.name for v in variables if v.graph is not None)
        raise ValueError(f"{name!r} is a variable of a graph: give the session with its value (session=...)")
    return session


# *** in ***


def _check_version(reader: checkpoints.Reader) -> None:
    version = np.asarray(reader.read(VERSION_KEY)) if VERSION_KEY in reader.entries else None
    if version is None or version.shape or version.dtype != np.int64 or version < 1:
        raise _damage(reader)
    if version > VERSION:
        raise UnimplementedError(
            f"{reader.prefix!r} is a file of hr.save of version {version}, and this headrace knows {VERSION}; use a "
            "later headrace"
        )


def _damage(reader: checkpoints.Reader) -> DataLossError:
    return DataLossError(f"{reader.prefix!r} is not a file of hr.save; hr.train.load reads any checkpoint")


def _variables(reader: checkpoints.Reader) -> tuple[list[str], list[np.ndarray]]:
    """Returns the names and the values of the variables in a file."""
    _check_version(reader)
    given: Any = np.asarray(reader.read(NAMES_KEY)) if NAMES_KEY in reader.entries else np.zeros(())
    if given.dtype != object or given.ndim != 1:
        raise _damage(reader)
    names = [name.decode(errors="replace") for name in given.tolist()]
    if any(name not in reader.entries for name in names):
        raise _damage(reader)
    return names, [np.asarray(reader.read(name)) for name in names]


def _old_variables(reader: checkpoints.Reader) -> tuple[list[str], list[np.ndarray]]:
    """Returns the names and the values in a file of the first form."""
    content = values.load(reader.prefix)
    names, found = content.get("names"), content.get("variables")
    if not isinstance(names, list) or not isinstance(found, list) or len(names) != len(found):
        raise _damage(reader)
    return [n.decode() for n in names], [np.asarray(x) for x in found]


def _model_in(reader: checkpoints.Reader) -> Any:
    """Returns the model that a file describes."""
    _check_version(reader)
    data = np.asarray(reader.read(MESSAGE_KEY), object)
    if data.shape or not isinstance(data.item(), bytes):
        raise _damage(reader)
    message = saved_model.parsed(data.item(), reader.prefix)
    if len(message.meta_graphs) != 1:
        raise _damage(reader)
    with scopes.outside():
        root = ObjectGraph(message.meta_graphs[0], os.path.dirname(reader.prefix), reader.prefix).root
    parts = vars(root) if isinstance(root, LoadedObject) else {}
    try:
        for v, constraint in parts[_CONSTRAINTS]:
            if isinstance(v, Variable):
                v.constraint = constraint
        return parts[_MODEL]
    except (KeyError, TypeError, ValueError):
        raise _damage(reader) from None
