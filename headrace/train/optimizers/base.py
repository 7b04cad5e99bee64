"""Optimizers with variables: the operations that apply a `rule.Rule` to variables.

A step consists of gradients (`compute_gradients`), optional changes of them such as clipping, and an operation for each
variable that changes it and its slots together (`apply_gradients`). Slots and counters are variables of the graph,
created when gradients are applied for the first time, on the device of their variable.

The operations may be inside of branches and loops, so a training loop can be a loop of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import grouping, recorder, scopes
from headrace.api.traced_graph import current_trace
from headrace.api.variable import Variable
from headrace.errors import GraphError, SignatureError
from headrace.grad.gradients import make_gradients
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import op_registry
from headrace.train.optimizers import tensors
from headrace.train.optimizers.functional import Functional
from headrace.train.optimizers.places import colocated, entered, initialized, lifted, root_of
from headrace.train.optimizers.rule import Hyper, Hyperparameters, Slot, Values

Pairs = list[tuple[Any, Any]]  # (gradient or None, variable)


class Optimizer(Functional):
    """Base class of optimizers, which change variables so that a loss becomes smaller.

    A subclass defines the formula of the update (`rule.Rule`). In a graph the methods add operations. In eager mode the
    loss is a function, and the variables change at once. The methods `init` and `update` are the same optimizer as pure
    functions of tensors.

    Args:
      learning_rate: a number, a scalar tensor, a variable, a function without arguments that returns one of these, or
        a `Schedule`.
      name: name of the operations, and suffix of the names of the slot variables.

    Attributes:
      GATE_NONE, GATE_OP, GATE_GRAPH: the values of `gate_gradients`.

    Source: TensorFlow's `tf.train.Optimizer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     w = hr.Variable(5.0)
      ...     step = hr.train.SGD(0.1).minimize(hr.square(w - 2.0))
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(w.initializer)
      ...     for _ in range(50):
      ...         sess.run(step)
      ...     round(float(sess.run(w)), 3)
      2.0
    """

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, learning_rate: Any, name: str) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        super().__init__(learning_rate)
        self._name = name
        # by slot name and by the id of the variable's handle; the variable is kept, so that the id stays valid
        self._slots: dict[str, dict[int, tuple[Any, Any]]] = {}
        self._counters: dict[tuple[str, int], tuple[Graph | None, Any]] = {}

    def get_name(self) -> str:
        """Returns the name of the optimizer."""
        return self._name

    # *** gradients ***

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Any:
        """Minimizes `loss`: calls `compute_gradients`, then `apply_gradients`.

        Args:
          loss: a floating point tensor. In eager mode: a function without arguments that returns the tensor; the second
            positional argument may then be the variables.
          global_step: a variable that is incremented by 1 after the variables have changed, or None.
          var_list: a structure of variables. None: the trainable variables of the graph; in eager mode those that the
            loss reads.
          gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss: see `compute_gradients`.
          name: name of the operation. None: the name of the optimizer.

        Returns:
          The operation that does the step. In eager mode None, because the step is done.

        Raises:
          ValueError: the loss depends on none of the variables. Other errors: see `compute_gradients`.
        """
        if callable(loss) and var_list is None and global_step is not None and not _is_step(global_step):
            global_step, var_list = None, global_step
        pairs = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        if all(g is None for g, _ in pairs):
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients, "
                f"between variables {[v.name for _, v in pairs]} and loss {nest.describe(loss)}"
            )
        with entered(loss):
            return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> Pairs:
        """Computes the gradients of a loss with respect to variables.

        Args:
          loss: a floating point tensor of any shape, whose elements are summed, or a function without arguments that
            returns the tensor. In eager mode it must be a function.
          var_list: see `minimize`.
          gate_gradients: GATE_NONE, GATE_OP or GATE_GRAPH. With GATE_GRAPH no gradient is available before all
            gradients are computed. The other two have no effect.
          aggregation_method, colocate_gradients_with_ops: accepted as in TensorFlow, without effect.
          grad_loss: the gradient of the loss, a tensor of its shape. None: ones.

        Returns:
          A list of pairs (gradient, variable). A gradient is a tensor, an `IndexedSlices` if the loss gathers rows of
          the variable, or None if the loss does not depend on the variable.

        Raises:
          ValueError: there are no variables; the loss or a variable does not have a floating point dtype;
            `gate_gradients` has another value.
          TypeError: an element of `var_list` is not a variable.
          GraphError (a ValueError): in eager mode the loss is not a function.
        """
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH. Not "
                f"{gate_gradients!r}"
            )
        variables = None if var_list is None else nest.flatten(var_list)
        for v in variables or ():
            if not isinstance(v, Variable):
                raise TypeError(f"an optimizer changes variables, got {nest.describe(v)} among them")
        if callable(loss) and not _in_graph(variables):
            return self._gradients_by_tape(loss, variables, grad_loss)
        reads = recorder.VariableReads()
        if callable(loss):
            with recorder.set_to((*recorder.active.get(), reads)):
                loss = loss()
        with entered(loss) as b:
            if not isinstance(b, Builder):
                raise GraphError(
                    "the loss has a value already, so nothing leads from it to the variables: outside of graphs give "
                    "the function that computes it, opt.minimize(lambda: ..., var_list=[w, b])"
                )
            if variables is None:
                variables = [*self._trainable(b.graph), *reads.found]
            if not variables:
                raise ValueError("No variables to optimize.")
            self._check([loss, *([] if grad_loss is None else [grad_loss])])
            grads = make_gradients(loss, variables, grad_loss, None, "none", "gradients", allows_integers=True)
            if gate_gradients == self.GATE_GRAPH and any(g is not None for g in grads):
                grads = grouping.tuple(grads)
        self._check([v for g, v in zip(grads, variables, strict=True) if g is not None])
        return list(zip(grads, variables, strict=True))

    def _gradients_by_tape(self, loss: Callable[[], Any], variables: Sequence[Any] | None, grad_loss: Any) -> Pairs:
        """Returns the pairs of `compute_gradients` in eager mode."""
        b = scopes.runtime().eager
        with b.tape() as tape:
            tape.watch([v for v in variables or () if v.trainable])
            y = b.tensor(loss())
        if variables is None:
            variables = tape.watched_variables()
        if not variables:
            raise ValueError("No variables to optimize.")
        self._check([v for v in variables if v.trainable])
        return list(zip(tape.gradient(y, list(variables), grad_loss), variables, strict=True))

    def _trainable(self, graph: Graph) -> list[Any]:
        return [v for v in getattr(root_of(graph), "variables", ()) if v.trainable]

    def _check(self, things: Sequence[Any]) -> None:
        for x in things:
            dtype = getattr(x, "dtype", None)
            if dtype is not None and dtype.base not in tensors.FLOATS:
                raise ValueError(
                    f"Invalid type {dtype.base.name} for {getattr(x, 'name', x)}, expected: one of "
                    f"{sorted(d.name for d in tensors.FLOATS)}"
                )

    # *** applying them ***

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Applies gradients to variables.

        The `constraint` of a variable is applied to its new value. If an `IndexedSlices` contains an index several
        times, these rows are summed first.

        Args:
          grads_and_vars: pairs (gradient, variable), as `compute_gradients` returns them. A variable whose gradient is
            None does not change.
          global_step: a variable that is incremented by 1 after the variables have changed, or None.
          name: name of the operation. None: the name of the optimizer.

        Returns:
          The operation that changes the variables. In eager mode None, because the variables have changed.

        Raises:
          ValueError: there are no pairs, or all gradients are None.
          TypeError: the second element of a pair, or `global_step`, is not a variable.
          SignatureError (a ValueError and TypeError): a gradient cannot be converted to a tensor, or its dtype or shape
            differs from that of its variable.
          RuntimeError: the gradient of a variable with a constraint is an `IndexedSlices`.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("No variables provided.")
        for _, v in pairs:
            if not isinstance(v, Variable):
                raise TypeError(f"an optimizer changes variables, got {nest.describe(v)} in the place of one")
        if global_step is not None and not isinstance(global_step, Variable):
            raise TypeError(
                f"global_step must be a variable to count in, got {nest.describe(global_step)}; variables to train are "
                "given as var_list="
            )
        given = [(g, v) for g, v in pairs if g is not None]
        if not given:
            raise ValueError(f"No gradients provided for any variable: {[v.name for _, v in pairs]}.")
        with entered(*(v for _, v in given)):
            made = [(self._gradient(g, v), v) for g, v in given]
            self._make_all([v for _, v in made])
            with scopes.name_scope(name, self._name) as scope:
                return self._applied(made, global_step, scope)

    def _applied(self, pairs: Pairs, global_step: Any, scope: str) -> Any:
        counters = self._counters_of(pairs[0][1])
        hyper = Hyperparameters(self, counters)
        updates = []
        for grad, v in pairs:
            label = "update_" + v.name.split(":")[0]
            with scopes.name_scope(label), colocated(v):
                updates.append(self._updated(grad, v, hyper.of(v.dtype)))
        with scopes.control_dependencies([u for u in updates if u is not None]):
            advanced = self.advanced(counters)
            updates += [
                counters[k].assign(self._cast(new, counters[k]), read_value=False) for k, new in advanced.items()
            ]
        updates = [u for u in updates if not isinstance(u, Variable)]  # outside of graphs all is done
        if global_step is None:
            return grouping.group(*updates, name=scope or None)
        done = grouping.group(*updates, name="update")
        with scopes.control_dependencies([] if done is None else [done]), colocated(global_step):
            one = np.ones((), global_step.dtype.base.numpy)[()]
            made = global_step.assign_add(one, name=scope or None, read_value=False)
        return None if isinstance(made, Variable) else made

    def _cast(self, x: Any, v: Any) -> Any:
        return tensors.number(x, v.dtype) if tensors.is_number(x) else tensors.of_dtype(x, v.dtype)

    def _gradient(self, grad: Any, v: Any) -> Any:
        """Returns a gradient as a tensor or an `IndexedSlices`, checked against the variable."""
        if not tensors.is_sparse(grad):
            try:
                t = scopes.builder(grad, v).tensor(grad, None if hasattr(grad, "dtype") else v.dtype)
            except GraphError:
                raise
            except (TypeError, ValueError) as e:
                raise SignatureError(
                    "Gradient must be convertible to a Tensor or IndexedSlices, or None: got "
                    f"{nest.describe(grad)} for the variable '{v.name}': {e}"
                ) from e
            grad = t
            if not shapes.compatible(t.shape, v.shape):
                raise SignatureError(
                    f"the gradient of the variable '{v.name}' must be of its shape {shapes.show(v.shape)}, got one of "
                    f"shape {shapes.show(t.shape)}"
                )
        if grad.dtype.base is not v.dtype.base:
            raise SignatureError(
                f"the gradient of the variable '{v.name}' must be of its dtype {v.dtype.base.name}, got one of dtype "
                f"{grad.dtype.base.name}; cast it (hr.cast)"
            )
        return grad

    def _updated(self, grad: Any, v: Any, hyper: Hyper) -> Any:
        """Returns the operation that changes a variable and its slots."""
        is_sparse = tensors.is_sparse(grad)
        if is_sparse and v.constraint is not None:
            raise RuntimeError(
                f"Cannot use a constraint function on a sparse variable: the gradient of '{v.name}' is an IndexedSlices"
            )
        done = self._update_sparse(v, grad, hyper) if is_sparse else self._update_dense(v, grad, hyper)
        if v.constraint is None:
            return done
        with scopes.control_dependencies([] if done is None else [done]):
            return v.assign(v.constraint(v), read_value=False)

    def _update_dense(self, v: Any, grad: Any, hyper: Hyper) -> Any:
        if self._has_op("Apply", v):
            return self._by_op("Apply", v, {"grad": grad, "delta": grad}, hyper)
        return self._by_values(v, self.dense(self._values(v), hyper, grad))

    def _update_sparse(self, v: Any, grad: Any, hyper: Hyper) -> Any:
        if self._has_op("SparseApply", v):
            rows, indices = tensors.unique_rows(grad)
            return self._by_op("SparseApply", v, {"grad": rows, "indices": indices}, hyper)
        return self._by_values(v, self.sparse(self._values(v), hyper, grad))

    def _has_op(self, kind: str, v: Any) -> bool:
        """Whether an op of TensorFlow updates the variable and its slots."""
        is_ref = v.handle.dtype.is_ref
        slots = [self.get_slot(v, s.name) for s in self.slots()] if is_ref else ()
        return bool(self.op) and self._op_type(kind, v) in op_registry and all(s.handle.dtype.is_ref for s in slots)

    def _op_type(self, kind: str, v: Any) -> str:
        return ("" if v.handle.dtype.is_ref else "Resource") + kind + self.op

    def _by_op(self, kind: str, v: Any, given: Mapping[str, Any], hyper: Hyper) -> Any:
        """Returns the update as one operation of a TensorFlow type."""
        type = self._op_type(kind, v)
        b = scopes.builder(v, *given.values())
        handles = {"var": v.handle_in(b)} | {s.argument: self.get_slot(v, s.name).handle_in(b) for s in self.slots()}
        args: list[Any] = []
        for spec in op_registry.get(type).ins:
            name = spec.name
            args.append(handles[name] if name in handles else given[name] if name in given else hyper(name))
        made = scopes.builder(v, *args).make(type, args, self.attrs())
        return made.op if v.handle.dtype.is_ref else made

    def _values(self, v: Any) -> Values:
        """Returns the values of a variable and its slots, by argument name of the op."""
        kept = {"var": v} | {s.argument: self.get_slot(v, s.name) for s in self.slots()}
        return {k: scopes.builder(x).tensor(x) for k, x in kept.items()}

    def _by_values(self, v: Any, new: Values) -> Any:
        """Returns the update as assignments of computed values."""
        kept = {"var": v} | {s.argument: self.get_slot(v, s.name) for s in self.slots()}
        # all new values are computed before the first assignment
        with scopes.control_dependencies(list(new.values()) if v.graph is not None else []):
            done = [kept[k].assign(x, read_value=False) for k, x in new.items()]
        return grouping.group(*done) if v.graph is not None else None

    # *** slots and counters ***

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns the slot variable `name` of `var`, or None if it does not exist.

        Args:
          var: the variable.
          name: name of the slot, such as "momentum".
        """
        found = self._slots.get(name, {}).get(id(var.handle))
        return None if found is None else found[1]

    def get_slot_names(self) -> list[str]:
        """Returns the sorted names of the slots that exist."""
        return sorted(self._slots)

    def counter_variables(self) -> dict[str, Any]:
        """Returns the variables that belong to no single variable, by name ("beta1_power").

        In a graph these are the variables of the current graph.
        """
        b = scopes.builder()
        graph = root_of(b.graph) if isinstance(b, Builder) else None
        return {key: v for (key, _), (of, v) in self._counters.items() if of is graph}

    def variables(self) -> list[Any]:
        """Returns the slot and counter variables of the optimizer, sorted by name.

        In a graph these are the variables of the current graph, in eager mode all variables.
        """
        found = [v for _, v in self._counters.values()]
        found += [v for kept in self._slots.values() for _, v in kept.values()]
        b = scopes.builder()
        here = [v for v in found if not isinstance(b, Builder) or v.graph is root_of(b.graph)]
        return sorted(here, key=lambda v: v.name)

    def _make_all(self, variables: Sequence[Any]) -> None:
        """Creates the slots and counters that do not exist yet."""
        first = min(variables, key=lambda v: v.name)
        wide = any(v.dtype.base is dtypes.float64 for v in variables)
        for key, value in self.counters().items():
            if (key, id(first.graph)) not in self._counters:
                made = self._make_counter(first, key, value, wide)
                self._counters[key, id(first.graph)] = first.graph, made
        for v in variables:
            for slot in self.slots():
                kept = self._slots.setdefault(slot.name, {})
                if id(v.handle) not in kept:
                    kept[id(v.handle)] = v, self._make_slot(v, slot)

    def _counters_of(self, v: Any) -> dict[str, Any]:
        return {key: made for (key, graph), (_, made) in self._counters.items() if graph == id(v.graph)}

    def _make_counter(self, beside: Any, name: str, value: Any, wide: bool) -> Any:
        """Creates a scalar variable: int64 for an int, float64 if `wide`, else float32."""
        dtype = dtypes.int64 if isinstance(value, int) else dtypes.float64 if wide else dtypes.float32
        with lifted(beside):
            return self._make_variable(tensors.number(value, dtype), name)

    def _make_slot(self, v: Any, slot: Slot) -> Any:
        element = tensors.number(slot.initial, v.dtype.base)

        def first() -> Any:
            b = scopes.builder()
            size = np.array(v.shape, np.int32) if shapes.is_full(v.shape) else b.Shape(initialized(v))
            return b.Fill(size, element, name="zeros" if element == 0 else "ones" if element == 1 else "Const")

        with lifted(v):
            return self._make_beside(v, first, f"{v.name.split(':')[0]}/{slot.suffix or self._name}")

    def _make_beside(self, v: Any, initial: Any, name: str) -> Any:
        """Creates a variable in the root name scope; see `_make_variable`."""
        with scopes.name_scope(None):
            return self._make_variable(initial, name)

    def _make_variable(self, initial: Any, name: str) -> Any:
        """Creates a variable that is not trainable; `initial` is or returns its initial value."""
        return Variable(initial, trainable=False, name=name)


def kept_variables(optimizer: Optimizer) -> tuple[dict[str, list[tuple[Any, Any]]], dict[str, Any]]:
    """Returns the slots and the counters of an optimizer.

    They are pairs of a variable and its slot, by name of the slot, and the counters by name.
    """
    slots = {name: list(kept.values()) for name, kept in optimizer._slots.items()}
    return slots, {key: v for (key, _), (_, v) in optimizer._counters.items()}


def set_kept_variables(
    optimizer: Optimizer, slots: Mapping[str, Sequence[tuple[Any, Any]]], counters: Mapping[str, Any]
) -> None:
    """Sets the slots and counters of an optimizer outside of graphs, as `kept_variables` returns them.

    Raises:
      TypeError: one of them is no variable.
    """
    for v in (*nest.flatten(slots), *counters.values()):
        if not isinstance(v, Variable):
            raise TypeError(f"a slot or counter is {nest.describe(v)}, not a variable")
    optimizer._slots = {name: {id(v.handle): (v, slot) for v, slot in kept} for name, kept in slots.items()}
    optimizer._counters = {(name, id(None)): (None, v) for name, v in counters.items()}


def _in_graph(variables: Sequence[Any] | None) -> bool:
    """Whether a graph has been entered, or the variables belong to a graph."""
    if current_trace() is not None:  # its variables are eager ones
        return True
    if variables:
        return variables[0].graph is not None
    return not scopes.is_outside()


def _is_step(x: Any) -> bool:
    """Whether `x` can be a global step, and so is not a list of variables."""
    return isinstance(x, Variable) and x.dtype.is_integer
