"""Devices of a program for parameter servers: variables on servers, other operations on a worker.

    with hr.device(hr.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:1")):
        ...  # the model and its optimizer

Each worker builds this graph for itself. A *strategy* assigns each variable to a task. It depends on the order in which
the variables are created, and on their sizes. So it gives the same task to the same variable in the graph of each
worker, and the workers share the variables. Slots of optimizers are colocated with their variables (`colocate_with`),
so the strategy is not asked for them.

Source: TensorFlow's `tf.train.replica_device_setter`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headrace import shapes
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Operation
from headrace.train.hooks.base import log

#: Types of the operations that create variables, tables and other state of parameter servers.
PS_OPS: Final = (
    "Variable",
    "VariableV2",
    "AutoReloadVariable",
    "VarHandleOp",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "ResourceConditionalAccumulator",
)


class _RoundRobinStrategy:
    """Assigns operations to the tasks in turn.

    Args:
      num_tasks: number of the tasks.
    """

    def __init__(self, num_tasks: int) -> None:
        self._count = num_tasks
        self._next = 0

    def __call__(self, op: Operation) -> int:
        task = self._next
        self._next = (task + 1) % self._count
        return task


class GreedyLoadBalancingStrategy:
    """Assigns each operation to the task with the smallest load so far.

    Large variables alternate with small ones in most programs, and round robin then gives all the large ones to one
    task.

    Args:
      num_tasks: number of the tasks.
      load_fn: function from an operation to its load, such as `byte_size_load_fn`.

    Source: TensorFlow's `tf.contrib.training.GreedyLoadBalancingStrategy`.

    Example:
      >>> import headrace as hr
      >>> by_size = hr.train.GreedyLoadBalancingStrategy(2, hr.train.byte_size_load_fn)
      >>> with hr.Graph(), hr.device(hr.train.replica_device_setter(ps_tasks=2, ps_strategy=by_size)):
      ...     [hr.Variable(hr.zeros([n])).device for n in (100, 1, 2)]
      ['/job:ps/task:0', '/job:ps/task:1', '/job:ps/task:1']
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Operation], float]) -> None:
        self._loads = [0.0] * num_tasks
        self._load_of = load_fn

    def __call__(self, op: Operation) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_of(op)
        return task


def byte_size_load_fn(op: Operation) -> int:
    """Returns the number of bytes of the variable that an operation creates.

    Args:
      op: the operation. If it does not create a variable, the result is the size of its only output.

    Raises:
      ValueError: the shape is not fully known, or there is not one output.

    Source: TensorFlow's `tf.contrib.training.byte_size_load_fn`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     byte_size_load_fn(hr.Variable(hr.zeros([3, 2])).op)
      24
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op.name!r} must have a single output, it has {len(op.outputs)}")
    (out,) = op.outputs
    # a handle says nothing of the value, which the attributes describe
    dtype = op.attrs.get("dtype") or out.dtype
    shape = shapes.as_shape(op.attrs.get("shape", out.shape))
    n = shapes.size(shape)
    if n is None:
        raise ValueError(f"the size of {op.name!r} is unknown: its shape is {shapes.show(shape)}")
    size: int = dtype.base.size
    return n * size


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str | None = "/job:ps",
    worker_device: str | None = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Iterable[str] | None = None,
    ps_strategy: Callable[[Operation], int] | None = None,
) -> Callable[[Operation], str] | None:
    """Returns a function for `hr.device` that puts variables on parameter servers.

    Args:
      ps_tasks: number of tasks of the parameter servers, without `cluster`. 0: there are none.
      ps_device: device of the variables, without the task. With "" or None they are on the worker.
      worker_device: device of the other operations.
      merge_devices: whether an operation with a request for a part of a device, such as "/gpu:0", receives the other
        parts from the function. False: its request remains as it is.
      cluster: a `ClusterSpec`, a dict like its argument, or a `ClusterDef` message. The tasks are those of the job of
        `ps_device`.
      ps_ops: types of the operations on the parameter servers. None: those that create variables, mutable tables and
        accumulators.
      ps_strategy: function from an operation to the number of its task. None: round robin.

    Returns:
      The function, or None if there are no parameter servers. Then `hr.device` requests no device.

    Raises:
      TypeError: `cluster` does not describe a cluster, or `ps_strategy` is not callable.
      ValueError: a device name is malformed, or `ps_tasks` is negative.

    Source: TensorFlow's `tf.train.replica_device_setter`.

    Example:
      >>> import headrace as hr
      >>> cluster = {"ps": ["host0:2222", "host1:2222"], "worker": ["host2:2222", "host3:2222"]}
      >>> setter = hr.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:1")
      >>> with hr.Graph(), hr.device(setter):
      ...     variables = [hr.Variable(0.0) for _ in range(3)]
      ...     total = hr.add_n(variables)
      >>> [v.device for v in variables], total.device
      (['/job:ps/task:0', '/job:ps/task:1', '/job:ps/task:0'], '/job:worker/task:1')
    """
    ps, worker = DeviceSpec.from_string(ps_device or ""), DeviceSpec.from_string(worker_device or "")
    if cluster is not None:
        ps_tasks = len(_tasks_of(cluster).get(ps.job or "") or ())
    if ps_tasks < 0:
        raise ValueError(f"ps_tasks must not be negative, got {ps_tasks}")
    if not ps_tasks:
        return None
    if not merge_devices:
        log.warning("replica_device_setter: merge_devices=True is recommended")
    strategy = _RoundRobinStrategy(ps_tasks) if ps_strategy is None else ps_strategy
    if not callable(strategy):
        raise TypeError(f"ps_strategy must be callable, got {strategy!r}")
    types = frozenset(PS_OPS if ps_ops is None else ps_ops) if ps_device else frozenset()

    def choose(op: Operation) -> str:
        if op.device and not merge_devices:
            return op.device
        asked = DeviceSpec.from_string(op.device)
        if op.type not in types:
            return worker.merge(asked).to_string()
        if ps.job is None or asked.job not in (None, ps.job):  # the user's request names another job
            return ps.merge(asked).to_string()
        return dataclasses.replace(ps, task=strategy(op)).merge(asked).to_string()

    return choose


def _tasks_of(cluster: Any) -> Mapping[str, Any]:
    """Returns the tasks of each job. `dist` has `ClusterSpec`, and is not imported here."""
    if hasattr(cluster, "as_dict"):
        cluster = cluster.as_dict()
    elif hasattr(cluster, "job") and hasattr(cluster, "SerializeToString"):
        cluster = {job.name: dict(job.tasks) for job in cluster.job}
    if not isinstance(cluster, Mapping):
        raise TypeError(f"`cluster` must be a ClusterSpec, a dict of its jobs or a ClusterDef message; got {cluster!r}")
    return cluster


__all__ = ["GreedyLoadBalancingStrategy", "byte_size_load_fn", "replica_device_setter"]
