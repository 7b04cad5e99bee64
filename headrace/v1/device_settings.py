"""TensorFlow 1's `tf.config`: devices of the process, defaults of later sessions.

The devices are CPUs, and the GPUs that PyTorch finds (`headrace.list_devices`). A session has a GPU if its config says
so: `tf.ConfigProto(device_count={"GPU": 1})`. Settings of other devices are accepted where TensorFlow accepts them
without such a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace import flags, pb, public_names
from headrace.errors import GraphError
from headrace.execute.devices import allocated_on_gpu, available, forget_peak_of_gpu
from headrace.ir.device import GPU, DeviceSpec
from headrace.session_config import OFF, REWRITERS, left_out
from headrace.v1.session import defaults


class PhysicalDevice(NamedTuple):
    """Device of the machine. Source: TensorFlow's `tf.config.PhysicalDevice`.

    Args:
      name: its name.
      device_type: "CPU" or "GPU".
    """

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """Device of a session. Source: TensorFlow's `tf.config.LogicalDevice`.

    Args:
      name: its name, for `tf.device`.
      device_type: "CPU".
    """

    name: str
    device_type: str


class LogicalDeviceConfiguration(NamedTuple):
    """Description of a logical device, of which no part has an effect.

    Args:
      memory_limit: bytes, for GPUs.
      experimental_priority, experimental_device_ordinal: for GPUs.

    Source: TensorFlow's `tf.config.LogicalDeviceConfiguration`.
    """

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


_CPU = PhysicalDevice("/physical_device:CPU:0", "CPU")


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Returns the devices of the machine: one CPU, and the GPUs that PyTorch finds.

    PyTorch is imported for them, if it is installed.

    Args:
      device_type: only devices of this type; None: all.

    Source: TensorFlow's `tf.config.list_physical_devices`.

    >>> list_physical_devices("CPU")
    [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    return [
        PhysicalDevice(f"/physical_device:{type}:{i}", type)
        for type in ("CPU", "GPU")
        if device_type in (None, type)
        for i in range(available(type))
    ]


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Returns the devices of a session without a config: CPUs.

    Args:
      device_type: only devices of this type; None: all.

    Source: TensorFlow's `tf.config.list_logical_devices`.
    """
    n = len(get_logical_device_configuration(_CPU) or [None])
    return [LogicalDevice(f"/device:CPU:{i}", "CPU") for i in range(n)] if device_type in (None, "CPU") else []


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Returns the devices that sessions may use: all.

    Args:
      device_type: only devices of this type; None: all.

    Source: TensorFlow's `tf.config.get_visible_devices`.
    """
    return list_physical_devices(device_type)


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Accepts the devices that there are.

    Args:
      devices: a device, or a list of devices.
      device_type: the type whose devices are listed; None: all types.

    Raises:
      ValueError: a device does not exist, or the CPU is left out.

    Source: TensorFlow's `tf.config.set_visible_devices`.
    """
    given = [devices] if isinstance(devices, PhysicalDevice) else list(devices or ())
    for device in given:
        _check(device)
    if _CPU not in given and device_type in (None, "CPU"):
        raise ValueError("the CPU cannot be made invisible: it runs what no other device can")


def get_logical_device_configuration(device: PhysicalDevice) -> list[LogicalDeviceConfiguration] | None:
    """Returns the logical devices of a device, or None if none were set.

    Args:
      device: the device.

    Source: TensorFlow's `tf.config.get_logical_device_configuration`.
    """
    _check(device)
    if device != _CPU:
        return None
    n = defaults.get("device_count", {}).get("CPU")
    return None if n is None else [LogicalDeviceConfiguration()] * n


def set_logical_device_configuration(
    device: PhysicalDevice, logical_devices: Sequence[LogicalDeviceConfiguration] | None
) -> None:
    """Sets the number of logical devices of later sessions.

    Args:
      device: the CPU, or a GPU, which remains one logical device.
      logical_devices: a description for each.

    Source: TensorFlow's `tf.config.set_logical_device_configuration`.
    """
    _check(device)
    if device != _CPU:
        return
    if logical_devices:
        defaults["device_count"] = {"CPU": len(logical_devices)}
    else:
        defaults.pop("device_count", None)


def get_soft_device_placement() -> bool:
    """Whether later sessions run operations elsewhere if a device is missing.

    Source: TensorFlow's `tf.config.get_soft_device_placement`.
    """
    return bool(defaults.get("allow_soft_placement", False))


def set_soft_device_placement(enabled: bool) -> None:
    """Sets whether later sessions run operations elsewhere if a device is missing.

    Args:
      enabled: whether they do.

    Source: TensorFlow's `tf.config.set_soft_device_placement`.
    """
    defaults["allow_soft_placement"] = bool(enabled)


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Sets whether functions of `tf.function` run operation by operation, for debugging.

    Args:
      run_eagerly: whether they do.

    Source: TensorFlow's `tf.config.run_functions_eagerly`.
    """
    flags.RUN_EAGERLY.value = int(run_eagerly)


def functions_run_eagerly() -> bool:
    """Whether functions of `tf.function` run operation by operation.

    Source: TensorFlow's `tf.config.functions_run_eagerly`.
    """
    return bool(flags.RUN_EAGERLY.value)


experimental_run_functions_eagerly = run_functions_eagerly
experimental_functions_run_eagerly = functions_run_eagerly


def _check(device: Any) -> None:
    if device == _CPU:
        return
    there = list_physical_devices()
    if device not in there:
        raise ValueError(f"Unrecognized device: {device!r}; there is {', '.join(map(repr, there))}")


def _gpu(device: str) -> int | None:
    """Returns the number of the GPU that a device name names; None for the CPU."""
    try:
        spec = DeviceSpec.from_string(device if device.startswith("/") else f"/{device}")
    except GraphError:
        spec = DeviceSpec()
    index = spec.index or 0
    if spec.type == "CPU" and not index:
        return None
    if spec.type == GPU and index < available(GPU):
        return index
    raise ValueError(f"Unrecognized device: {device!r}; there is {', '.join(map(repr, list_physical_devices()))}")


class threading:
    """Numbers of threads of later sessions; TensorFlow's `tf.config.threading`."""

    @staticmethod
    def get_intra_op_parallelism_threads() -> int:
        """Returns the number of threads that an operation may use; 0: the session decides."""
        return int(defaults.get("intra_op_parallelism_threads", 0))

    @staticmethod
    def set_intra_op_parallelism_threads(num_threads: int) -> None:
        """Sets the number of threads that an operation may use; 0: the session decides."""
        defaults["intra_op_parallelism_threads"] = num_threads

    @staticmethod
    def get_inter_op_parallelism_threads() -> int:
        """Returns the number of threads for operations that run in parallel; 0: the session decides."""
        return int(defaults.get("inter_op_parallelism_threads", 0))

    @staticmethod
    def set_inter_op_parallelism_threads(num_threads: int) -> None:
        """Sets the number of threads for operations that run in parallel; 0: the session decides."""
        defaults["inter_op_parallelism_threads"] = num_threads


# Set by `optimizer`: TensorFlow's options of graph optimization, and "jit".
_optimizer_options: dict[str, Any] = {}

_OPTIMIZER_OPTIONS: Final = frozenset({
    "layout_optimizer", "constant_folding", "shape_optimization", "remapping", "arithmetic_optimization",
    "dependency_optimization", "loop_optimization", "function_optimization", "debug_stripper", "disable_model_pruning",
    "scoped_allocator_optimization", "pin_to_host_optimization", "implementation_selector", "auto_mixed_precision",
    "disable_meta_optimizer", "min_graph_nodes", "auto_parallel",
})  # fmt: skip


class optimizer:
    """Options of graph optimization; TensorFlow's `tf.config.optimizer`.

    Options that switch a group of headrace's passes off have an effect on later sessions
    (`headrace docs reference/session_config` lists them). The others are kept.
    """

    @staticmethod
    def get_jit() -> str:
        """Returns the kind of compilation that was chosen: "" or "autoclustering"."""
        return str(_optimizer_options.get("jit", ""))

    @staticmethod
    def set_jit(enabled: bool | str) -> None:
        """Chooses a kind of compilation.

        Args:
          enabled: False or "", True or "autoclustering".

        Raises:
          ValueError: another value.
        """
        if enabled not in (False, True, "", "autoclustering"):
            raise ValueError(f"set_jit takes a bool or 'autoclustering', got {enabled!r}")
        _optimizer_options["jit"] = "autoclustering" if enabled else ""

    @staticmethod
    def get_experimental_options() -> dict[str, Any]:
        """Returns the options that were set, and those that are always there."""
        options = {"disable_model_pruning": False, "disable_meta_optimizer": False} | _optimizer_options
        options.pop("jit", None)
        return options

    @staticmethod
    def set_experimental_options(options: Mapping[str, Any]) -> None:
        """Sets options.

        Args:
          options: dict from TensorFlow's names to values.

        Raises:
          ValueError: a name is none of TensorFlow's.
        """
        unknown = sorted(set(options) - _OPTIMIZER_OPTIONS)
        if unknown:
            raise ValueError(f"{unknown} are no options of graph optimization; they are {sorted(_OPTIMIZER_OPTIONS)}")
        _optimizer_options.update(options)
        message = pb.GraphOptions()
        rewriter = message.rewrite_options
        rewriter.disable_meta_optimizer = bool(_optimizer_options.get("disable_meta_optimizer"))
        for name in REWRITERS:
            if _optimizer_options.get(name) is False:
                setattr(rewriter, name, OFF)
        defaults["optimize"] = left_out(message)


class experimental:
    """Older names and settings of accelerators; TensorFlow's `tf.config.experimental`."""

    list_physical_devices = staticmethod(list_physical_devices)
    list_logical_devices = staticmethod(list_logical_devices)
    get_visible_devices = staticmethod(get_visible_devices)
    set_visible_devices = staticmethod(set_visible_devices)
    get_virtual_device_configuration = staticmethod(get_logical_device_configuration)
    set_virtual_device_configuration = staticmethod(set_logical_device_configuration)
    VirtualDeviceConfiguration = LogicalDeviceConfiguration

    class ClusterDeviceFilters:
        """Filters of the devices of other tasks that a task may use.

        Source: TensorFlow's `tf.config.experimental.ClusterDeviceFilters`.

        Example:
          >>> import headrace.v1 as tf
          >>> filters = tf.config.experimental.ClusterDeviceFilters()
          >>> filters.set_device_filters("worker", 0, ["/job:ps"])
        """

        def __init__(self) -> None:
            self._device_filters: dict[str, dict[int, list[str]]] = {}

        def set_device_filters(self, job_name: str, task_index: int, device_filters: Sequence[str]) -> None:
            """Sets the filters of a task, of which one must fit a device.

            Args:
              job_name: the job of the task.
              task_index: the number of the task.
              device_filters: parts of device names, such as "/job:ps".

            Raises:
              TypeError: a filter is no text.
            """
            wrong = [f for f in device_filters if not isinstance(f, str)]
            if wrong:
                raise TypeError(f"device filters are texts, such as '/job:ps'; got {wrong[0]!r}")
            self._device_filters.setdefault(job_name, {})[task_index] = list(device_filters)

        def _as_cluster_device_filters(self) -> Any:
            """Returns the filters as a message, a field of a `ServerDef`."""
            from headrace.pb import device_filters_pb2  # which takes time to import

            out = device_filters_pb2.ClusterDeviceFilters()
            for job, tasks in sorted(self._device_filters.items()):
                made = out.jobs.add(name=job)
                for task, filters in sorted(tasks.items()):
                    made.tasks[task].device_filters.extend(filters)
            return out

    @staticmethod
    def get_memory_growth(device: PhysicalDevice) -> bool:
        """Returns True: PyTorch takes the memory of GPUs as it is needed.

        Raises:
          ValueError: the device is no GPU.
        """
        _check(device)
        if device == _CPU:
            raise ValueError("Cannot get memory growth of non-GPU devices")
        return True

    @staticmethod
    def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
        """Does nothing: PyTorch takes the memory of GPUs as it is needed.

        Raises:
          ValueError: the device is no GPU.
        """
        _check(device)
        if device == _CPU:
            raise ValueError("Cannot set memory growth on non-GPU devices")

    @staticmethod
    def get_memory_info(device: str) -> dict[str, int]:
        """Returns the bytes that PyTorch has on a GPU, now ("current") and at most ("peak").

        They are 0 for a CPU. `Session.statistics` has the memory of a session.

        Args:
          device: name of the device, such as "GPU:0".

        Raises:
          ValueError: the machine has no such device.
        """
        gpu = _gpu(device)
        now, most = (0, 0) if gpu is None else allocated_on_gpu(gpu)
        return {"current": now, "peak": most}

    @staticmethod
    def get_memory_usage(device: str) -> int:
        """Returns the bytes that PyTorch has on a GPU now; 0 for a CPU.

        Args:
          device: name of the device, such as "GPU:0".

        Raises:
          ValueError: the machine has no such device.
        """
        gpu = _gpu(device)
        return 0 if gpu is None else allocated_on_gpu(gpu)[0]

    @staticmethod
    def reset_memory_stats(device: str) -> None:
        """Lets the "peak" of a GPU be its present number of bytes.

        Args:
          device: name of the device, such as "GPU:0".

        Raises:
          ValueError: the machine has no such device.
        """
        gpu = _gpu(device)
        if gpu is not None:
            forget_peak_of_gpu(gpu)

    @staticmethod
    def get_device_details(device: PhysicalDevice) -> dict[str, Any]:
        """Returns no details, as of every CPU."""
        _check(device)
        return {}

    @staticmethod
    def enable_mlir_bridge() -> None:
        """Does nothing: a switch of the compiler of TPUs."""

    @staticmethod
    def disable_mlir_bridge() -> None:
        """Does nothing: see `enable_mlir_bridge`."""

    @staticmethod
    def get_device_policy() -> str:
        """Returns the policy for inputs on other devices: copies are made silently."""
        return "silent"

    @staticmethod
    def set_device_policy(device_policy: str | None) -> None:
        """Accepts the policy "silent", or None for it.

        Raises:
          ValueError: another policy.
        """
        if device_policy not in (None, "silent"):
            raise ValueError(f"device_policy={device_policy!r}: inputs on other devices are always copied ('silent')")

    @staticmethod
    def get_synchronous_execution() -> bool:
        """Whether eager operations run before the call returns: always."""
        return True

    @staticmethod
    def set_synchronous_execution(enable: bool) -> None:
        """Accepts True: eager operations run before the call returns.

        Raises:
          ValueError: `enable` is False.
        """
        if not enable:
            raise ValueError("eager operations are synchronous; nothing runs them later")

    @staticmethod
    def tensor_float_32_execution_enabled() -> bool:
        """Returns False: PyTorch's own settings, which allow it for convolutions, stay."""
        return False

    @staticmethod
    def enable_tensor_float_32_execution(enabled: bool) -> None:
        """Does nothing: only GPUs have the format."""


# fmt: off
__all__ = [
    "LogicalDevice", "LogicalDeviceConfiguration", "PhysicalDevice", "experimental",
    "experimental_functions_run_eagerly", "experimental_run_functions_eagerly", "functions_run_eagerly",
    "get_logical_device_configuration", "get_soft_device_placement", "get_visible_devices", "list_logical_devices",
    "list_physical_devices", "optimizer", "run_functions_eagerly", "set_logical_device_configuration",
    "set_soft_device_placement", "set_visible_devices", "threading",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
